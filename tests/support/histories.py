"""Random histories of a lake, and everything a lake answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake

Frame = dict[str, list[str]]


CELLS = st.lists(st.sampled_from([*"abcdefgh", "A", " b", "1", "2", "3", "1999"]), max_size=9)


NAMES = st.sampled_from(["t1", "t2", "t3", "t4", "t5", "u"])


FRAMES = st.dictionaries(st.sampled_from(["x", "y", "name"]), CELLS, min_size=1, max_size=2)


QUERIES = (["a", "b", "c"], ["1", "2", "3"], ["a", "1999", "zz"], ["H", "G", "f", "e", "d"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.dictionaries(NAMES, FRAMES, min_size=1, max_size=3)),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("compact"), st.none()),
    ),
    min_size=1,
    max_size=8,
)


def even(frame: Frame) -> Frame:
    """Make all columns equally long."""
    length = min(map(len, frame.values()))
    return {name: cells[:length] for name, cells in frame.items()}


def answers(lake: Lake) -> Iterator[Any]:
    """Say everything a lake says, apart from times and places on disk."""
    report = lake.report
    yield (report.tables, report.columns, report.values, report.rows, report.cells)
    yield (report.left_out, report.notes, [vars(skip) for skip in report.skipped])
    yield sorted(lake.tables)
    for name in sorted(lake.tables):
        yield lake.table(name)
        yield [lake.column(name, column) for column in lake.index.indexed_columns(name)]
    grouped = deepjoin.SearchSettings(group="tables")
    options = ({"k": 1}, {"k": 4}, {"min_joinability": 0.3}, {"settings": grouped})
    for turn, method in enumerate(("hybrid", "exact-equi")):
        # Each method has every query and every option once; not all pairs of them.
        for place, query in enumerate(QUERIES):
            chosen = options[(place + turn) % len(options)]
            found = lake.search(query, method=method, **chosen)  # type: ignore[arg-type]
            yield [told(hit) for hit in found]
    for name in sorted(lake.tables):
        for column in lake.index.indexed_columns(name):
            yield [told(hit) for hit in lake.search(lake.column(name, column), 5)]


def told(hit: deepjoin.Hit) -> dict[str, Any]:
    return hit.to_dict()


def merging(often: bool) -> Any:
    """Let segments be merged as usual, or never."""
    never = mock.patch("deepjoin.build.update.worth_merging", lambda sizes, removed: len(sizes))
    return nullcontext() if often else never


FILES = st.sampled_from(["a.csv", "b.csv", "geo/a.csv", "geo/b.tsv", "c.json"])


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), FILES, FRAMES),
        st.tuples(st.just("delete"), FILES, st.none()),
        st.tuples(st.just("rename"), FILES, FILES),
        st.tuples(st.just("touch"), FILES, st.none()),
        st.tuples(st.just("refresh"), st.none(), st.none()),
        st.tuples(st.just("compact"), st.none(), st.none()),
    ),
    max_size=12,
)


def write(path: Path, frame: Frame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [list(frame), *map(list, zip(*even(frame).values(), strict=True))]
    separator = "\t" if path.suffix == ".tsv" else ","
    path.write_text("".join(separator.join(row) + "\n" for row in rows))


def move(lake: Path, step: str, name: str, what: Any) -> None:
    path = lake / name
    if step == "write":
        write(path, what)
    elif step == "delete":
        path.unlink(missing_ok=True)
    elif step == "rename" and path.exists():
        (lake / what).parent.mkdir(exist_ok=True)
        path.rename(lake / what)
    elif step == "touch" and path.exists():
        path.touch()


def replayed(lake: Lake, folder: Path, moves: list[tuple[str, Any, Any]]) -> Lake:
    """Change a folder step by step, its lake refreshed or compacted now and then."""
    for step, name, what in moves:
        if step == "refresh":
            lake = deepjoin.index(folder, lake.path)
        elif step == "compact":
            lake.compact()
        else:
            move(folder, step, name, what)
    return lake
