"""Whole cells with rows of their own: codes and short names whose letters say too little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.lab.cell_table.variants import Alias

Floats = npt.NDArray[np.float32]

_LONGEST = 12
#: Letters of a code say less than those of a word, so its own vector weighs less.
_CODE_LETTERS, _CODE_WEIGHT, _WORD_WEIGHT = 4, 0.3, 1.0
#: Aliases already this near to what they name need no row.
_NEAR = 0.75


def phrase_rows(
    aliases: Sequence[Alias], encode: Callable[[list[str]], Floats]
) -> tuple[list[str], Floats]:
    """Give each short alias a vector between its own and those of the things it names."""
    named = _named(aliases)
    surfaces = sorted(named)
    entities = sorted({entity for things in named.values() for entity in things})
    place = {entity: at for at, entity in enumerate(entities)}
    own, vectors = encode(surfaces), encode(entities)
    meant = _unit(np.stack([
        sum(count**0.5 * vectors[place[entity]] for entity, count in sorted(named[s].items()))
        for s in surfaces
    ]))  # fmt: skip
    far = (meant * own).sum(axis=1) < _NEAR
    weights = [_CODE_WEIGHT if len(s) <= _CODE_LETTERS else _WORD_WEIGHT for s in surfaces]
    mixed = _unit(meant + np.array(weights)[:, None] * own)
    kept = [surface for surface, is_far in zip(surfaces, far, strict=True) if is_far]
    return kept, mixed[far]


def _named(aliases: Sequence[Alias]) -> dict[str, dict[str, float]]:
    """Collect what each short alias names, with counts; numbers name nothing by themselves."""
    named: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for alias in aliases:
        short = len(alias.surface) <= _LONGEST and any(c.isalpha() for c in alias.surface)
        if short and alias.surface != alias.plain:
            named[alias.surface][alias.plain] += alias.count
    return named


def _unit(vectors: npt.NDArray[np.floating]) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, 1e-9)).astype(np.float32)
    return unit
