"""The product's default search: every candidate verified, keys that say little ranked last."""

from __future__ import annotations

import numpy as np

from deepjoin.search.base import Searching
from deepjoin.search.by_meaning import ByMeaning
from deepjoin.search.exact_equi import ExactEqui
from deepjoin.search.ground import Ground
from deepjoin.search.overlap import Marks
from deepjoin.search.probe import Probe
from deepjoin.store.values.profile import Generic, generic_of


def hybrid(ground: Ground, join: str, tau: float | None) -> Searching:
    """Search by equal cells for "equi", by what cells mean for "semantic" and "any".

    Without cell vectors, "any" means equal cells alone, and the hits say so.
    """
    if join == "equi" or (join == "any" and not ground.has_cells):
        return InformativeFirst(ground.segments, ground.profile, ground.key)
    return ByMeaning(ground.segments, ground.profile, ground.cell_encoder(), join, tau)


class InformativeFirst(ExactEqui):
    """Exact equi-join search in which row numbers, years and flags rank below informative keys.

    A query that is itself such a key asks for them: then nothing is moved.
    """

    def _demoted(self, probe: Probe) -> Marks | None:
        if generic_of(probe.values.distinct.values) is not Generic.NO:
            return None
        return np.asarray(probe.segment.catalog.column_generic)
