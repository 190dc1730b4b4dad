"""Flips a bit of an index and does everything with it: nothing may answer otherwise."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import deepjoin
from deepjoin import Lake
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column

#: Kinds of joins that are searched for.
JOINS = ("equi", "semantic", "any")
#: Cells of a query.
_CELLS = 40


class Flip(NamedTuple):
    """One bit of one file of an index, by its path there."""

    name: str
    byte: int
    bit: int


class Outcome(NamedTuple):
    """What an operation gave: an answer, a `DeepJoinError`, or another exception."""

    kind: str
    answer: Any


Operation = Callable[[Path, list[list[str]]], Any]


def searched(join: str) -> Operation:
    """Search for columns of the lake itself, and for what its hits bring."""

    def search(index: Path, queries: list[list[str]]) -> Any:
        lake = deepjoin.open(index)
        hits = [lake.search(Column(cells, "query"), 10, join=join) for cells in queries]
        brings = [[repr(hit.brings) for hit in one] for one in hits]
        return [_without_times(one.to_dict()) for one in hits], brings

    return search


def by_vectors(index: Path, queries: list[list[str]]) -> Any:
    """Search by one vector a column, if the index has any."""
    lake = deepjoin.open(index)
    if lake.vectors.encoder == "none":
        return "no vectors"
    found = [lake.search(Column(cells, "query"), 10, method="deepjoin") for cells in queries]
    return [_without_times(one.to_dict()) for one in found]


def by_key(index: Path, _: list[list[str]]) -> Any:
    """Search with two columns of a table of the lake as one key."""
    lake = deepjoin.open(index)
    first = next(name for name in lake.tables if len(lake[name].columns) > 1)
    table = lake.read(first, "arrow")
    found = lake.search(table.select(table.column_names[:2]).slice(0, _CELLS), 10)
    return _without_times(found.to_dict())


def related(index: Path, _: list[list[str]]) -> Any:
    """Find relations, also from the pairs kept beside the index, and read the map of joins."""
    lake = deepjoin.open(index)
    graph = lake.graph(0.5, save=False)
    near = lake.neighbourhood(sorted(lake.tables)[0])
    return [_without_times(one) for one in (lake.relations(least=0).to_dict(), near.to_dict())], [
        repr(edge) for edge in graph
    ]


def listed(index: Path, _: list[list[str]]) -> Any:
    """Read what is known of the lake, its tables and some columns."""
    lake = deepjoin.open(index)
    tables = [repr(lake.table(name)) for name in list(lake.tables)[:20]]
    info = {name: of for name, of in lake.info().items() if name != "index"}
    return info, tables, list(lake.tables)


def joined(index: Path, queries: list[list[str]]) -> Any:
    """Join a column with the best hit."""
    lake = deepjoin.open(index)
    hits = lake.search(Column(queries[0], "query"), 1, join="equi")
    table = {"query": queries[0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [str(lake.join(table, "query", hit).to_pylist()[:50]) for hit in hits]


def compacted(index: Path, queries: list[list[str]]) -> Any:
    """Merge all segments, then search, and check what was written."""
    lake = Lake(index)
    lake.remove(sorted(lake.tables)[0])  # or there may be nothing to do
    lake.compact()
    found = [searched(join)(index, queries) for join in JOINS]
    return found, checked(index, queries)


def checked(index: Path, _: list[list[str]]) -> Any:
    """Check the index; problems are a refusal."""
    problems = Lake(index).check(tables=0).problems
    if problems:
        raise DeepJoinError(problems[0])
    return "sound"


#: In this order: compacting changes the index.
OPERATIONS: dict[str, Operation] = {
    **{f"search {join}": searched(join) for join in JOINS},
    "search deepjoin": by_vectors,
    "search key": by_key,
    "relations": related,
    "list": listed,
    "join": joined,
    "check": checked,
    "compact": compacted,
}


def outcomes(index: Path, queries: list[list[str]], names: list[str]) -> dict[str, Outcome]:
    """Run operations on an index."""
    found = {}
    for name in names:
        try:
            answer = json.loads(json.dumps(OPERATIONS[name](index, queries), default=str))
            found[name] = Outcome("answer", answer)
        except DeepJoinError as error:
            found[name] = Outcome("told", str(error))
        except Exception as error:
            found[name] = Outcome("raw", f"{type(error).__name__}: {error}")
    return found


def own_queries(index: Path, seed: int, count: int = 3) -> list[list[str]]:
    """Take some cells of some columns of a lake, and one that no column has."""
    lake, chance = deepjoin.open(index), random.Random(seed)
    columns = [
        lake.column(table, column)
        for table in chance.sample(sorted(lake.tables), min(count, len(lake.tables)))
        for column in lake.index.indexed_columns(table)[:1]
    ]
    return [[*one.cells[:_CELLS], "not in the lake"] for one in columns if one.cells]


def flips(index: Path, count: int, seed: int) -> list[Flip]:
    """Choose bits: of any file as often as of any other, or as often as it is large."""
    chance = random.Random(seed)
    files = [path for path in sorted(index.rglob("*")) if path.is_file() and path.name != "lock"]
    sizes = [path.stat().st_size for path in files]
    there = [(path, size) for path, size in zip(files, sizes, strict=True) if size]
    chosen = []
    for number in range(count):
        weights = [size if number % 2 else 1 for _, size in there]
        path, size = chance.choices(there, weights)[0]
        name = path.relative_to(index).as_posix()
        chosen.append(Flip(name, chance.randrange(size), chance.randrange(8)))
    return chosen


def flipped_copy(index: Path, copy: Path, flip: Flip | None) -> None:
    """Copy an index by links, but for one file, a bit of which is flipped."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(index, copy, copy_function=os.link)
    if flip is not None:
        content = bytearray((copy / flip.name).read_bytes())
        content[flip.byte] ^= 1 << flip.bit
        (copy / flip.name).unlink()
        (copy / flip.name).write_bytes(content)


def verdict(before: Outcome, after: Outcome) -> str:
    """Judge what an operation gave after a flip, compared with what it gave before."""
    if after == before:
        return "same"
    if after.kind == "told":
        return "told" if "\n" not in after.answer else "several lines"
    return "silent" if after.kind == "answer" else "raw"


def _without_times(fields: Any) -> Any:
    if isinstance(fields, dict):
        return {name: _without_times(of) for name, of in fields.items() if name != "seconds"}
    return [_without_times(one) for one in fields] if isinstance(fields, list) else fields
