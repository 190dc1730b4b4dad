"""Inclusions that were found before, kept beside the index: the next run compares what is new.

Two files, the pairs as numbers and a sealed description of the lake they are of. They are not part
of the index: what is missing, damaged or of another state is found again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_hexdigest

from deepjoin.arrays import Int, Marks
from deepjoin.files import replace_file
from deepjoin.relating.evidence import Pairs
from deepjoin.store.manifest import RELATION_PAIRS, RELATIONS, is_sealed, sealed_json
from deepjoin.store.segment import Numbering

_PRODUCT = "deepjoin relations"
_FORMAT = 1


def segment_names(columns: Numbering) -> list[str]:
    """Name the segments of a numbering: small columns are in a folder of their segment."""
    return ["/".join(one.folder.parts[-2:]) for one in columns.segments]


def known_pairs(folder: Path, columns: Numbering, how: str) -> tuple[Pairs, Marks]:
    """Return the pairs that are known of a lake, and which columns they are not known of."""
    sizes = np.diff(columns.column_starts).tolist()
    new = np.ones(len(columns.sizes), bool)
    none = Pairs(*(np.zeros(0, np.int64) for _ in range(3)))
    try:
        described = (folder / RELATIONS).read_bytes()
        fields = json.loads(described)
        content = (folder / RELATION_PAIRS).read_bytes()
        if not is_sealed(described) or fields["product"] != _PRODUCT or fields["how"] != how:
            return none, new
        if fields["format"] != _FORMAT or fields["pairs"] != xxh3_64_hexdigest(content):
            return none, new
        stored = np.load(io.BytesIO(content), allow_pickle=False).astype(np.int64)
        earlier = [(str(name), int(size)) for name, size in fields["segments"]]
    except (OSError, ValueError, KeyError, TypeError):
        return none, new
    starts = {
        name: (start, size)
        for name, start, size in zip(
            segment_names(columns), columns.column_starts.tolist(), sizes, strict=False
        )
    }
    numbers = np.full(sum(size for _, size in earlier), -1)
    at = 0
    for name, size in earlier:
        if starts.get(name, (0, -1))[1] == size:
            start = starts[name][0]
            numbers[at : at + size] = np.arange(start, start + size)
            new[start : start + size] = False
        at += size
    child, parent = numbers[stored[0]], numbers[stored[1]]
    kept = (child >= 0) & (parent >= 0)
    # Tables may have left the lake since.
    kept[kept] = columns.joins[child[kept]] & columns.joins[parent[kept]]
    return Pairs(child[kept], parent[kept], stored[2][kept]), new


def save_pairs(folder: Path, columns: Numbering, how: str, pairs: Pairs) -> None:
    """Keep pairs for the next run; a folder that cannot be written keeps none."""
    buffer = io.BytesIO()
    np.save(buffer, np.stack(pairs).astype(np.uint32))
    sizes: Sequence[int] = np.diff(columns.column_starts).tolist()
    fields = {
        "product": _PRODUCT,
        "format": _FORMAT,
        "how": how,
        "segments": list(zip(segment_names(columns), sizes, strict=True)),
        "pairs": xxh3_64_hexdigest(buffer.getvalue()),
    }
    with suppress(OSError):
        replace_file(folder / RELATION_PAIRS, buffer.getvalue())
        replace_file(folder / RELATIONS, sealed_json(fields))


def pairs_of(columns: Int, pairs: Pairs) -> Int:
    """Count the pairs of each column."""
    return np.bincount(np.append(pairs.child, pairs.parent), minlength=len(columns))
