"""The files of an index, and damage to them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import deepjoin
from deepjoin import Lake
from deepjoin.checking.check import Check
from deepjoin.checking.vector_contents import ERROR, HALF
from deepjoin.embed.scan import SLACK
from deepjoin.embed.value_vectors import NO_ROW, ORDER_FILES
from deepjoin.packing import PackedArray, load_numbers, pack
from deepjoin.store.manifest import sealed_json
from deepjoin.store.storage import seal
from deepjoin.store.values.index import PACKED
from deepjoin.store.values.signatures import SIGNATURE_FILES


def files_of(index: Path) -> dict[str, bytes]:
    """Read every file below a folder, by relative path."""
    return {
        path.relative_to(index).as_posix(): path.read_bytes()
        for path in sorted(index.rglob("*"))
        if path.is_file()
    }


def sign(index: Path) -> None:
    """Make the manifest name the files as they are now, so that no checksum tells damage."""

    def signed(fields: Any) -> None:
        for segment in fields["segments"]:
            folder = index / "segments" / segment["name"]
            there = [name for name in segment["files"] if (folder / name).exists()]
            segment["files"] = seal(folder)
            segment["files"] = {name: segment["files"][name] for name in there}

    changed_manifest(index, signed)


def edit_numbers(path: Path, change: Callable[[Any], object]) -> None:
    """Change an array, packed or not, and write it as it was."""
    more = PACKED.get(path.stem, NO_ROW if path.name in ORDER_FILES else 0)
    may_be_packed = path.name in ORDER_FILES or path.stem in {*PACKED, *SIGNATURE_FILES}
    stored = load_numbers(path, more) if may_be_packed else np.load(path)
    array = np.array(stored)
    changed = change(array)
    np.save(path, array if changed is None else changed)
    if isinstance(stored, PackedArray):
        pack(path, more)


def flipped(content: bytes, chance: random.Random, start: int = 0) -> bytes:
    """Flip a bit anywhere, but at the start."""
    at = chance.randrange(min(start, len(content) - 1), len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def is_slight(index: Path, name: str, before: dict[str, bytes]) -> bool:
    """Check whether numbers of vectors have changed by less than searches allow for.

    Errors of values are rounded as much as another machine may round them. Distances of
    columns are not proven: a hundredth of its length turns a vector by a cosine of 0.9999. Those of
    columns that have left are never asked for.
    """
    path = index / "segments" / name
    old = np.load(io.BytesIO(before[f"segments/{name}"])) if path.suffix == ".npy" else np.array(0)
    if old.dtype not in (np.float32, np.float16):
        return False
    off = np.abs(np.load(path).astype(np.float64) - old)
    if path.name == "vector_errors.npy":  # larger ones only take time
        return bool((np.load(path) >= old - SLACK).all())
    if old.dtype == np.float32:
        return bool((off <= SLACK).all())
    if old.ndim == 1:
        return bool((off <= np.maximum(ERROR, HALF * np.abs(old))).all())
    limits = 0.01 * np.linalg.norm(old.astype(np.float64), axis=1, keepdims=True) + SLACK
    segment = next(one for one in Lake(index).index.segments if name.startswith(one.folder.name))
    if segment.dead is not None:
        limits[segment.dead] = np.inf
    return bool((off <= limits).all())


def damages(index: Path, start: int = 0) -> Iterator[str]:
    """Flip a bit in each file that segments have, in one of them, and mend it again."""
    files = files_of(index / "segments")
    same: dict[str, list[str]] = {}
    for name in files:
        same.setdefault(name.partition("/")[2], []).append(name)
    for inside, names in same.items():
        chance = random.Random(inside)
        name = chance.choice(names)
        content = files[name]
        (index / "segments" / name).write_bytes(flipped(content, chance, start))
        yield name
        (index / "segments" / name).write_bytes(content)


def only(check: Check) -> str:
    """Return the one problem of a check."""
    (problem,) = check.problems
    return problem


def changed_manifest(index: Path, change: Callable[[Any], object]) -> None:
    """Edit the manifest of an index."""
    fields = json.loads((index / "manifest.json").read_text())
    change(fields)
    (index / "manifest.json").write_text(resealed(fields))


def resealed(fields: dict[str, Any]) -> str:
    """Write the fields of a manifest again, with the checksum of what it says now."""
    return sealed_json({name: of for name, of in fields.items() if name != "checksum"})


def search_answers(index: Path) -> list[Any]:
    """Search an index for a few values; hits without times."""
    lake = deepjoin.open(index)
    queries = (["France", "Italy", "Peru"], ["Lyon", "Bonn"], ["1", "2", "2005"])
    return [[(hit.table, hit.column, hit.equi) for hit in lake.search(query)] for query in queries]
