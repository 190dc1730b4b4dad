"""Enrichment as a step of a scikit-learn pipeline."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from deepjoin.enriching.enrich import apply_plan
from deepjoin.enriching.scoring import UnusableTarget
from deepjoin.errors import DeepJoinError
from deepjoin.joining.store import read_typed
from deepjoin.joining.tables import free_name
from deepjoin.lake import Lake, open_lake
from deepjoin.read.frames import frame_table, is_frame
from deepjoin.settings import EnrichSettings


class LakeEnricher(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Adds columns of a lake that help to predict ``y``.

    `fit` chooses the joins and columns; `transform` makes the same joins for other rows, where keys
    that the lake does not know give missing values. A fitted enricher can be pickled: it keeps the
    plan and where the lake is, not the lake. Where ``y`` cannot be predicted, for it is constant or
    has too few rows, nothing is added, with a warning.

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any) -> LakeEnricher:
        """Choose the joins that help to predict ``y`` from a data frame or an array."""
        table = self._table(X, reset=True)
        if y is None:
            raise ValueError("LakeEnricher requires y to be passed, but the target y is None.")
        target = column_or_1d(y, warn=True)
        check_consistent_length(table, target)
        name = free_name("target", {one.lower() for one in table.column_names})
        with_target = table.append_column(name, pa.chunked_array([pa.array(target)]))
        self.plan_: tuple[Any, ...] = ()
        self.score_before_ = self.score_after_ = None
        try:
            found = self._opened().enrich(
                with_target, name, depth=self.depth, settings=self.settings
            )
            self.plan_ = found.plan
            self.score_before_, self.score_after_ = found.score_before, found.score_after
        except UnusableTarget as error:
            warnings.warn(f"{error} Nothing is added.", UserWarning, stacklevel=2)
        return self

    def transform(self, X: Any) -> Any:
        """Return the rows with the columns that `fit` chose; a frame of the same kind, or an array.

        An array has numbers only, unless a new column is text.
        """
        check_is_fitted(self, "plan_")
        table = self._table(X, reset=False)
        if not self.plan_:
            return X if is_frame(X) else validate_data(self, X, reset=False, **_AS_GIVEN)
        if is_frame(X):
            return apply_plan(self._opened(), X, self.plan_)
        added = apply_plan(self._opened(), table, self.plan_).select(self._added)
        new = [column.to_numpy() for column in added.columns]
        given = validate_data(self, X, reset=False, **_AS_GIVEN)
        is_text = any(column.dtype.kind == "O" for column in new)
        return np.column_stack([given.astype(object) if is_text else given, *new])

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name the columns that `transform` returns."""
        check_is_fitted(self, "plan_")
        given = _check_feature_names_in(self, input_features)
        return np.array([*given, *self._added], object)

    @property
    def _added(self) -> list[str]:
        return [column for join in self.plan_ for column in join.columns]

    def _table(self, X: Any, reset: bool) -> pa.Table:
        """Check X as scikit-learn does, and return it as a table; columns of arrays are x0, x1."""
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = read_typed(frame_table(X))
            if reset:  # scikit-learn knows the names of few kinds of frames
                self.feature_names_in_ = np.array(table.column_names, object)
            return table
        array = validate_data(self, X, reset=reset, **_AS_GIVEN)
        names = [f"x{number}" for number in range(array.shape[1])]
        return pa.table({name: _column(array[:, at]) for at, name in enumerate(names)})

    def _opened(self) -> Lake:
        if self.lake is None:
            raise DeepJoinError("`lake` is None; it must be a lake, or the path of its index.")
        return self.lake if isinstance(self.lake, Lake) else open_lake(self.lake)


#: Arrays keep their type, and may have missing values.
_AS_GIVEN = {"dtype": None, "ensure_all_finite": False}


def _column(cells: Any) -> pa.Array:
    if cells.dtype.kind != "O":
        return pa.array(np.ascontiguousarray(cells), from_pandas=True)
    try:
        return pa.array(cells, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # cells of several types
        return pa.array([None if cell is None else str(cell) for cell in cells])
