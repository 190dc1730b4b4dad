"""`deepjoin check`: damage is told, wherever it is; a sound index is left alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, Lake
from deepjoin.checking.check import check_index
from deepjoin.errors import IndexUnusable
from deepjoin.read.corpus import write_corpus
from deepjoin.store.ledger import Entry, Key, entries_of, write_ledger
from deepjoin.store.segment import Segment
from deepjoin.store.storage import file_problems
from tests.support.command_line import Run, call
from tests.support.histories import (
    FRAMES,
    MOVES,
    NAMES,
    STEPS,
    Frame,
    even,
    merging,
    replayed,
    write,
)
from tests.support.index_files import (
    changed_manifest,
    damages,
    edit_numbers,
    files_of,
    flipped,
    is_slight,
    only,
    sign,
)
from tests.support.options import index_options

pytestmark = pytest.mark.slow

#: Where flips may be that nothing but a checksum tells, and that no search or join is wrong by:
#: stamps (read again at worst), titles and first rows, statistics inside Parquet, numbers of
#: rows whose order stays, and what is kept of tables that have left.
HARMLESS = (
    *("ledger.arrow", "table_entries.bytes.npy", "frames/0.parquet", "frames/1.parquet"),
    *("cell_rows.npy", "column_generic.npy", "table_items.npy", "checksums"),
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(call, capsys)


def make(folder: Path) -> Lake:
    """Index files and frames in three segments, some of whose tables have left."""
    data = folder / "data"
    write(data / "a.csv", {"Land": ["France", "Italy", "Peru", "ITALY"], "n": list("1234")})
    write(data / "b.csv", {"City": ["Lyon", "Oslo", "Rome", "Bonn"], "of": list("xyzx")})
    write(data / "c.csv", {"year": ["1999", "2000", "2001"], "flag": list("010")})
    with merging(often=False):
        lake = deepjoin.index(
            data, folder / "ix", settings=deepjoin.Settings(min_distinct=1), encoder="none"
        )
        lake.add({"mine": {"land": ["Peru", "Chad", "PERU"]}, "old": {"z": list("uvw")}})
        write(data / "d.csv", {"land": ["Mali", "mali", "Peru"], "x": ["1.50", "7.0", "7"]})
        lake = deepjoin.index(data, folder / "ix")
        lake.remove("c.csv", "old")
    return lake


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("check")).path


@pytest.fixture
def index(original: Path, tmp_path: Path) -> Path:
    """Return an index of one's own, beside its tables."""
    shutil.copytree(original.parent, tmp_path / "copy")
    return tmp_path / "copy" / "ix"


@pytest.mark.slow
def test_a_sound_index_has_no_problems(run: Run, index: Path) -> None:
    before = files_of(index)
    found = Lake(index).check()
    assert found
    assert found.ok
    assert (found.segments, found.tables_compared) == (3, 4)
    assert found.files == sum(name.startswith("segments/") for name in before)
    assert (found.changed, found.unreachable, found.problems, found.notes) == ([], [], [], [])
    answer = run("check", index)
    assert (answer.status, answer.out) == (0, "")
    assert "sound" in answer.err
    assert "4 tables compared" in answer.err
    assert files_of(index) == before, "nothing is written"


def advice(index: Path, name: str) -> str:
    """Say what to do about a damaged file: only what can still be opened is encoded again."""
    if "/vectors/" in name:
        with suppress(IndexUnusable):
            Lake(index)
            return f"Encode again with: deepjoin index {index} --cells none, then --cells default"
    return f"Build it again: deepjoin index SOURCE -o {index} --rebuild"


@pytest.mark.slow
def test_a_flipped_bit_is_reported_with_its_file(index: Path) -> None:
    for name in damages(index):
        problem = only(check_index(index))
        assert problem.startswith(f"{name} is not what was written: its checksum differs. ")
        assert problem.endswith(advice(index, name))
    assert check_index(index)
    assert file_problems(index) == []


@pytest.mark.slow
def test_flips_that_no_checksum_finds_are_noticed_or_harmless(run: Run, index: Path) -> None:
    live = files_of(index)
    for name in damages(index, start=128):
        sign(index)
        answer = run("check", index)
        assert answer.status in (0, 1)
        harmless = name.partition("/")[2] in HARMLESS or is_slight(index, name, live)
        assert answer.status == 1 or harmless, name
    assert live.keys() == files_of(index).keys()


@pytest.mark.slow
def test_headers_are_checked_to_the_letter(index: Path) -> None:
    chance = random.Random(3)
    first = Lake(index).index.segments[0].folder.name
    for name, content in files_of(index / "segments").items():
        if name.startswith(first) and name.endswith(".npy"):
            bad = flipped(content[:128], chance) + content[128:]
            (index / "segments" / name).write_bytes(bad)
            sign(index)
            assert f"{name} is not the array that belongs there" in only(check_index(index))
            (index / "segments" / name).write_bytes(content)


def test_short_and_missing_files_are_all_named(run: Run, index: Path) -> None:
    first, second, third = sorted((index / "segments").glob("*/values.bytes.npy"))
    os.truncate(first, 100)
    second.unlink()
    with third.open("ab") as file:
        file.write(b"more")
    answer = run("check", index)
    assert answer.status == 1
    lines = answer.out.splitlines()
    assert "has 100 bytes where" in next(line for line in lines if first.parent.name in line)
    assert "is missing" in next(line for line in lines if second.parent.name in line)
    assert "bytes where" in next(line for line in lines if third.parent.name in line)
    assert len(lines) == 3
    assert "3 problems" in answer.err


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"product": "npm"}'])
def test_an_unusable_manifest_is_refused_in_one_line(run: Run, index: Path, content: bytes) -> None:
    (index / "manifest.json").write_bytes(content)
    run("check", index).refused(str(index), "deepjoin index")


def test_what_is_no_index_is_refused(run: Run, tmp_path: Path) -> None:
    run("check", tmp_path).refused("is not a deepjoin index")
    assert not list(tmp_path.iterdir()), "no index is made on the way"


@pytest.mark.slow
def test_a_changed_table_is_not_wrong(run: Run, index: Path) -> None:
    write(index.parent / "data" / "a.csv", {"Land": ["Cuba", "Fiji"], "n": list("12")})
    found = check_index(index)
    assert (found.ok, found.changed, found.tables_compared) == (True, ["a.csv"], 3)
    answer = run("check", index)
    assert answer.status == 0
    assert "Changed since they were indexed: a.csv. Run: deepjoin index" in answer.err


@pytest.mark.slow
def test_a_table_that_is_gone_is_not_wrong(run: Run, index: Path) -> None:
    (index.parent / "data" / "b.csv").unlink()
    found = check_index(index)
    assert (found.ok, found.tables_compared) == (True, 3)
    assert [(one.name, one.reason) for one in found.unreachable] == [
        ("b.csv", "it is no longer there")
    ]
    shutil.rmtree(index.parent / "data")
    found = check_index(index)
    assert [one.name for one in found.unreachable] == ["a.csv", "b.csv", "d.csv"]
    assert found.tables_compared == 1, "the index has the frame itself"
    answer = run("check", index, "--format", "json")
    assert (answer.status, answer.json["ok"], len(answer.json["unreachable"])) == (0, True, 3)


def respell(index: Path, stored: bytes) -> None:
    """Store another spelling for the capitalised cells of the segment that has France."""
    (values,) = (
        path for path in index.glob("segments/*/values.bytes.npy") if b"france" in path.read_bytes()
    )
    path = values.with_name("spellings.bytes.npy")
    path.write_bytes(path.read_bytes().replace(b"\xff\x01", stored))
    sign(index)


def test_a_wrong_spelling_is_found(index: Path) -> None:
    respell(index, b"\xff\x03")
    first = "Column 'Land' of a.csv: 'France' is 'FRance' in the index."
    assert check_index(index).problems[0].startswith(first)
    assert check_index(index, tables=0), "only the table tells"


def test_a_spelling_of_another_value_is_found_without_the_table(index: Path) -> None:
    respell(index, b"Fr")
    assert "not spelled as their values" in only(check_index(index, tables=0))


def edited(name: str, change: Callable[[Any], Any]) -> Callable[[Segment], None]:
    def edit(segment: Segment) -> None:
        edit_numbers(segment.folder / f"{name}.npy", change)

    return edit


def swap(array: Any) -> None:
    array[[0, 1]] = array[[1, 0]]


def bump(array: Any) -> None:
    array[0] += 1


def other(array: Any) -> None:
    array[0] = (array[0] + 1) % 6


def garbled(name: str) -> Callable[[Segment], None]:
    def garble(segment: Segment) -> None:
        path = segment.folder / name
        path.write_bytes(b"\xa5" * path.stat().st_size)

    return garble


def miscounted(segment: Segment) -> None:
    path = segment.folder / "report.json"
    path.write_text(path.read_text().replace('"tables": 3', '"tables": 4'))


PLANTED: dict[str, tuple[Callable[[Segment], None], str]] = {
    "offsets": (edited("values.offsets", bump), "does not divide values.bytes.npy"),
    "range": (
        edited("cell_values", lambda a: a.fill(99)),
        "cell_values.npy has numbers out of range",
    ),
    "spelling": (edited("cell_spellings", lambda a: a.fill(99)), "cell_spellings.npy has numbers"),
    "hashes": (edited("value_hashes", swap), "value_hashes.npy and values.bytes.npy do not belong"),
    "postings": (edited("posting_columns", lambda a: a.fill(0)), "posting_columns.npy is not in"),
    "pairs": (
        edited("posting_columns", other),
        "cell_values.npy and posting_columns.npy contradict",
    ),
    "text": (
        edited("column_names.bytes", lambda a: a.fill(255)),
        "column_names.bytes.npy is not text",
    ),
    "entries": (
        edited("table_entries.bytes", lambda a: a.fill(32)),
        "table_entries.bytes.npy is not what",
    ),
    "ledger": (garbled("ledger.arrow"), "ledger.arrow is not what was written"),
    "report": (garbled("report.json"), "report.json is not what was written"),
    "another report": (miscounted, "report.json does not count what the segment holds"),
    "counts": (edited("cell_counts", bump), "cell_counts.npy and column_cells.npy contradict"),
    "order": (edited("column_order", swap), "column_order.npy is not in order"),
    "rank": (edited("column_order", lambda a: a.fill(0)), "column_order.npy is not in order"),
    "cells": (edited("cell_values", swap), "cell_values.npy is not in order"),
    "names": (edited("table_name_hashes", bump), "table_name_hashes.npy and table_names.bytes"),
    "by name": (edited("table_by_name", swap), "table_by_name.npy is not in order"),
    "tables": (edited("table_columns", swap), "table_columns.npy and column_tables.npy"),
    "items": (edited("table_items", lambda a: a.fill(9)), "table_items.npy names items"),
    "types": (edited("column_types", lambda a: a.fill(3)), "has other columns of a.csv"),
    "rows": (edited("cell_rows", lambda a: a.fill(99)), "has other columns of a.csv"),
    "generic": (edited("column_generic", lambda a: a.fill(3)), "its type differs"),
    "astray": (edited("table_items", lambda a: a.fill(0)), "b.csv is not in 'a.csv'"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "text"), PLANTED.values(), ids=PLANTED)
def test_planted_damage_is_named(index: Path, plant: Callable[[Segment], None], text: str) -> None:
    plant(Lake(index).index.segments[0])
    sign(index)
    found = check_index(index)
    assert any(text in problem for problem in found.problems), found


def test_a_manifest_that_does_not_fit_is_noticed(index: Path) -> None:
    changed_manifest(index, lambda fields: fields["segments"][0].update(removed=[99]))
    assert "removed tables" in only(check_index(index))
    changed_manifest(index, lambda fields: fields["segments"][0].update(removed=[]))
    assert check_index(index, tables=0)
    changed_manifest(index, lambda fields: fields.update(sources=fields["sources"][:1]))
    assert "ledger.arrow names sources that are not there" in only(check_index(index))


@pytest.mark.slow
def test_two_tables_of_one_name_are_noticed(index: Path, tmp_path: Path) -> None:
    other = deepjoin.index(
        index.parent / "data", tmp_path / "other", settings=deepjoin.Settings(min_distinct=1)
    )
    record = json.loads((other.path / "manifest.json").read_text())["segments"][0]
    shutil.copytree(other.index.segments[0].folder, index / "segments" / record["name"])
    changed_manifest(index, lambda fields: fields["segments"].append(record))
    assert "2 tables are named 'a.csv'" in check_index(index).problems[0]


def test_a_table_whose_file_is_noted_to_be_gone_is_noticed(index: Path) -> None:
    last = Lake(index).index.segments[-1]
    write_ledger(last.folder, [*entries_of(last.ledger), Entry(Key(0, "a.csv"), gone=True)])
    sign(index)
    assert "a.csv is in the index, though its file is noted to be gone" in only(check_index(index))


def test_a_kept_frame_that_cannot_be_read_is_a_problem(index: Path) -> None:
    (frame,) = index.glob("segments/*/frames/0.parquet")
    frame.write_bytes(b"PAR1" * 50)
    sign(index)
    assert "frames/0.parquet cannot be read: " in only(check_index(index))


def test_what_an_earlier_version_read_otherwise_is_not_compared(index: Path) -> None:
    changed_manifest(index, lambda fields: fields.update(reads=0))
    found = check_index(index)
    assert (found.ok, found.tables_compared) == (True, 0)
    assert "read tables differently" in found.notes[-1]


@pytest.mark.slow
def test_strays_and_pending_builds_are_mentioned(run: Run, index: Path) -> None:
    (index / "segments" / "writing-1").mkdir()
    (index / "pending.json").write_text("{}")
    segment = Lake(index).index.segments[0].folder
    (segment / ".DS_Store").write_text("")
    found = check_index(index)
    assert found.ok
    texts = [".DS_Store is not part of the index", "writing-1 is not used", "was interrupted"]
    assert [any(text in note for note in found.notes) for text in texts] == [True] * 3
    assert "was interrupted" in run("check", index).err


def test_a_read_only_index_can_be_checked(index: Path) -> None:
    paths = [index, *index.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert check_index(index)
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_commit_in_between_is_no_damage(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = iter([lambda: Lake(index).compact()])

    def read(path: Path, **how: Any) -> tuple[int, str]:
        for commit in commits:
            commit()
        return original_read(path, **how)

    from deepjoin.store import storage

    original_read = storage.fingerprint
    monkeypatch.setattr(storage, "fingerprint", read)
    found = check_index(index)
    assert (found.ok, found.segments) == (True, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"profile": "basic"}, {"max_cell": 4}, {"hash_only": True}]
)
def test_files_are_compared_as_they_were_indexed(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "data" / "a.csv", {"x": ["Île", "ile ", "7.0", "7", "a long cell", "ÎLE"]})
    write(tmp_path / "data" / "b.csv", {"x": list("010101"), "year": ["1999"] * 3 + ["2000"] * 3})
    (tmp_path / "data" / "c.json").write_text(
        '{"k": 1}\n{"k": 2, "late": "x"}\n' + '{"late": "y"}\n' * 2
    )
    lake = deepjoin.index(
        tmp_path / "data", tmp_path / "ix", **index_options(min_distinct=1, **options)
    )
    found = lake.check()
    assert (found.problems, found.tables_compared) == ([], 3)
    for path in lake.path.glob("segments/*/cell_rows.npy"):
        edit_numbers(path, lambda rows: np.bitwise_xor(rows, 1, out=rows))
    sign(lake.path)
    assert "in another order" in lake.check().problems[0]


def test_hidden_values_are_compared(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.csv", {"x": list("abc")})
    lake = deepjoin.index(
        tmp_path / "data",
        tmp_path / "ix",
        settings=deepjoin.Settings(min_distinct=1, hash_only=True),
    )
    path = tmp_path / "data" / "a.csv"
    stat = path.stat()
    path.write_text(path.read_text().replace("c", "d"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert lake.check().changed == ["a.csv"], "the digest tells"
    lake.add({"mine": {"k": list("abc")}})
    assert [one.name for one in lake.check().unreachable] == ["mine"], "it keeps no frames"


def test_a_change_that_no_stamp_shows_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that stood still.
    for module in ("read.files", "store.origin"):
        stamp = f"deepjoin.{module}.file_stamp"
        monkeypatch.setattr(stamp, lambda status: str(status.st_size))
    path = tmp_path / "data" / "a.csv"
    write(path, {"x": list("abc")})
    os.utime(path, (1, 1))
    lake = deepjoin.index(
        tmp_path / "data", tmp_path / "ix", settings=deepjoin.Settings(min_distinct=1)
    )
    path.write_text(path.read_text().replace("c", "d"))
    os.utime(path, (1, 1))
    texts = "Column 'x' of a.csv: 1 of its values are not in the index, 1 there are not its own."
    assert texts in only(lake.check())
    path.write_text("y\na\nb\nc\n")
    os.utime(path, (1, 1))
    assert "has a column 'y'" in lake.check().problems[0]
    assert "has no column 'x'" in lake.check().problems[1]


def test_sampled_database_tables_are_compared(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER, name TEXT)")
        connection.executemany("INSERT INTO orders VALUES (?, ?)", enumerate("abcdefghij"))
    connection.close()
    source = f"sqlite:///{tmp_path / 'shop.db'}"
    lake = deepjoin.index(
        source, tmp_path / "ix", settings=deepjoin.Settings(min_distinct=1, sample_rows=4)
    )
    found = lake.check()
    assert (found.problems, found.changed, found.tables_compared) == ([], [], 1)


def test_corpora_are_compared_by_the_ids_of_columns(tmp_path: Path) -> None:
    columns = [
        Column(list("abc"), "", "t1", column_id="one"),
        Column(["x", "y", "Z", None], "", "t1", column_id="two"),
        Column(list("a"), "few", "t2", column_id="three"),
        Column(list("abc"), "same", "t3", column_id="four"),
        Column(list("abd"), "same", "t3", column_id="four"),
    ]
    corpus = write_corpus(tmp_path / "corpus", columns)
    os.utime(corpus.folder / "columns.parquet", (1, 1))
    lake = deepjoin.index(
        tmp_path / "corpus", tmp_path / "ix", settings=deepjoin.Settings(min_distinct=2)
    )
    found = lake.check(tables=None)
    assert (found.problems, found.tables_compared) == ([], 3)
    assert found.tables_compared == len(lake.tables)
    columns[0] = Column(list("abq"), "", "t1", column_id="one")
    columns[1] = Column(list("abc"), "", "t1", column_id="new")
    size = (corpus.folder / "columns.parquet").stat().st_size
    write_corpus(tmp_path / "corpus", columns)
    os.utime(corpus.folder / "columns.parquet", (1, 1))
    if (corpus.folder / "columns.parquet").stat().st_size == size:
        texts = ["one of t1: 1 of its values", "new of t1 is not in the index", "no column two"]
        found = lake.check()
        assert [any(text in one for one in found.problems) for text in texts] == [True] * 3
    else:
        assert lake.check().changed == ["t1", "t2", "t3"]


@pytest.mark.slow
def test_the_sample_is_spread_and_all_is_all(run: Run, tmp_path: Path) -> None:
    lake = deepjoin.index(
        {f"t{i:02}": {"x": list("abc")} for i in range(30)},
        tmp_path,
        settings=deepjoin.Settings(min_distinct=1),
    )
    seen: list[tuple[int, int, str]] = []
    found = lake.check(tables=3, progress=lambda *told: seen.append(told))
    assert found.tables_compared == 3
    compared = [call for call in seen if call[2].startswith("t")]
    assert compared == [(1, 3, "t00"), (2, 3, "t10"), (3, 3, "t20")]
    read = [call for call in seen if call[2] == "bytes"]
    assert read[-1] == (found.bytes, found.bytes, "bytes")
    assert "30 tables compared" in run("check", tmp_path, "--all").err
    assert "12 tables compared" in run("check", tmp_path, "--tables", 12).err
    assert "30 tables compared" in run("check", tmp_path).err, "all hold the same values"


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, FRAMES, min_size=1), STEPS, st.booleans())
def test_lakes_of_any_history_are_sound(
    first: dict[str, Frame], steps: list[tuple[str, Any]], often: bool
) -> None:
    model = {name: even(frame) for name, frame in first.items()}
    with tempfile.TemporaryDirectory() as folder, merging(often):
        lake = deepjoin.index(
            model, Path(folder) / "ix", settings=deepjoin.Settings(min_distinct=1)
        )
        for step, what in steps:
            if step == "add":
                lake.add({name: even(frame) for name, frame in what.items()})
            elif step == "remove" and what in lake and len(lake.tables) > 1:
                lake.remove(what)
            elif step == "compact":
                lake.compact()
        found = lake.check()
        assert (found.problems, found.notes, found.changed, found.unreachable) == ([], [], [], [])
        assert found.tables_compared == len(lake.tables)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(MOVES, st.booleans())
def test_refreshed_folders_are_sound(moves: list[tuple[str, Any, Any]], often: bool) -> None:
    with tempfile.TemporaryDirectory() as place, merging(often):
        folder = Path(place) / "data"
        write(folder / "a.csv", {"x": list("abcabd"), "y": list("123456")})
        write(folder / "stays.csv", {"x": list("gh")})
        lake = deepjoin.index(
            folder, Path(place) / "many", settings=deepjoin.Settings(min_distinct=1)
        )
        lake = replayed(lake, folder, moves)
        assert check_index(lake.path).problems == []
        found = deepjoin.index(folder, lake.path).check()
        assert (found.problems, found.changed, found.unreachable) == ([], [], [])


@pytest.mark.slow
def test_search_never_shows_a_traceback(run: Run, index: Path) -> None:
    for _ in damages(index, start=128):
        answer = run("search", index, "--values", "Peru,Italy,Lyon,1,x")
        assert answer.status == 0 or answer.err.count("\n") == 1


def test_a_damaged_index_is_not_opened_by_chance(index: Path) -> None:
    shutil.rmtree(index / "segments")
    found = check_index(index)
    assert all("is missing" in problem for problem in found.problems)
    with pytest.raises(IndexUnusable):
        Lake(index)
