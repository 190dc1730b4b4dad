"""Enrichment as a step of a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from deepjoin.enriching.enrich import apply_plan
from deepjoin.lake import Lake, open_lake
from deepjoin.settings import EnrichSettings


class LakeEnricher(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Adds columns of a lake that help to predict ``y``.

    `fit` chooses the joins and columns; `transform` makes the same joins for other rows, where keys
    that the lake does not know give missing values. A fitted enricher can be pickled: it keeps the
    plan and where the lake is, not the lake.

    Parameters
    ----------
    lake
        A `Lake`, or the path of its index.
    depth
        How many joins in a row, at most 3.
    settings
        Bounds, keys and the seed: an `EnrichSettings`.
    """

    def __init__(
        self, lake: Any = None, *, depth: int = 2, settings: EnrichSettings | None = None
    ) -> None:
        self.lake = lake
        self.depth = depth
        self.settings = settings

    def fit(self, X: Any, y: Any) -> LakeEnricher:
        """Choose the joins that help to predict ``y`` from a data frame."""
        frame = _as_arrow(X)
        name = _free("target", frame.column_names)
        table = frame.append_column(name, pa.chunked_array([pa.array(np.asarray(y))]))
        lake = self._opened()
        found = lake.enrich(table, name, depth=self.depth, settings=self.settings)
        self.plan_ = found.plan
        self.score_before_, self.score_after_ = found.score_before, found.score_after
        self.feature_names_in_ = np.array(frame.column_names, object)
        self.n_features_in_ = len(frame.column_names)
        return self

    def transform(self, X: Any) -> Any:
        """Return the rows with the columns that `fit` chose; a frame of the same kind."""
        check_is_fitted(self, "plan_")
        return apply_plan(self._opened(), X, self.plan_)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name the columns that `transform` returns."""
        check_is_fitted(self, "plan_")
        new = [column for join in self.plan_ for column in join.columns]
        return np.array([*self.feature_names_in_, *new], object)

    def _opened(self) -> Lake:
        return self.lake if isinstance(self.lake, Lake) else open_lake(self.lake)


def _as_arrow(frame: Any) -> pa.Table:
    from deepjoin.joining.store import read_typed
    from deepjoin.read.frames import frame_table

    return read_typed(frame_table(frame))


def _free(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name
