"""A lake of hashes finds what any lake finds, and gives away no value on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

import deepjoin
from deepjoin import Column, DeepJoinError, Lake, Settings, Table
from deepjoin.build.listing import hidden_item
from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.normalise import private
from deepjoin.normalise.canonical import canonical
from deepjoin.normalise.cells import distinct_cells
from deepjoin.progress import Progress
from deepjoin.read.source import Item, Listing, file_digest
from deepjoin.settings import SearchSettings
from deepjoin.store.manifest import MANIFEST
from deepjoin.store.storage import PENDING, writing
from deepjoin.store.values import builder as builder_module
from deepjoin.store.values.chunk import Chunk, reduce_chunk
from deepjoin.store.values.postings import merge_rows
from deepjoin.store.values.profile import ColumnTallies, Traits
from tests.support.options import index_options

SALT = "0123456789abcdef" * 2

CELL = st.none() | st.sampled_from(
    [
        *("0", "1", "2", "3", "yes", "No", "1999", "2004", "-4", "1.5", "2.0", "9" * 20, " "),
        *("Ä", "ä", "a b", "A  b", "2020-01-02", "2 Jan 2020", "longer than ten", "x" * 30, "é"),
    ]
)
COLUMN = st.lists(CELL, max_size=14)


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(private.SECRET, raising=False)


def without_cells(result: dict[str, Any]) -> dict[str, Any]:
    """Drop from a search's answer what a lake of hashes cannot say."""
    del result["seconds"]
    for hit in result["hits"]:
        hit["matches"] = hit["unmatched"] = hit["brings"]["sample"] = []
    return result


@pytest.mark.slow
@settings(max_examples=10)
@given(
    columns=st.lists(COLUMN, min_size=1, max_size=6),
    query=COLUMN,
    memory=st.sampled_from([1, 1 << 30]),
    profile=st.sampled_from(["default", "basic"]),
)
def test_it_finds_what_a_clear_lake_finds(
    tmp_path_factory: pytest.TempPathFactory,
    columns: list[list[str | None]],
    query: list[str | None],
    memory: int,
    profile: str,
) -> None:
    folder = tmp_path_factory.mktemp("lakes")
    tables = [Column(cells, f"c{i % 3}", f"t{i}") for i, cells in enumerate(columns)]
    chosen = {"min_distinct": 1, "max_cell": 20, "max_mean_length": 8, "profile": profile}
    with pytest.MonkeyPatch.context() as patch:
        # Every value comes in several chunks.
        patch.setattr(builder_module, "_CHUNK_CELLS", 3)
        clear = deepjoin.index(tables, folder / "clear", **index_options(memory=memory, **chosen))
        hashed = deepjoin.index(
            tables,
            folder / "hashed",
            **index_options(memory=memory, hash_only=True, **chosen),
        )
    assert [hashed.table(name).columns for name in hashed.tables] == [
        clear.table(name).columns for name in clear.tables
    ]
    assert hashed.report == clear.report
    for cells in (*columns, query):
        for method in ("hybrid", "exact-equi"):
            found = [
                lake.search(Column(cells, "c1"), 4, join="equi", method=method).to_dict()
                for lake in (clear, hashed)
            ]
            assert without_cells(found[1]) == without_cells(found[0])


def profiles(columns: list[list[str | None]], key: bytes) -> dict[str, list[float]]:
    """Judge columns from pieces of four cells each."""
    traits, rows = Traits(0), []
    for start in range(0, 14, 4):
        for number, cells in enumerate(columns):
            part = pa.array(cells[start : start + 4], pa.string())
            chunk = Chunk(np.full(len(part), number), np.arange(len(part)) + start, part)
            reduced = reduce_chunk(chunk, "default", 20, key)
            rows.append(reduced.rows)
            if reduced.traits is not None:
                traits = traits.include(reduced.first, reduced.traits)
    tallies = ColumnTallies(len(columns), traits if key else None)
    tallies.add(merge_rows(rows))
    nothing = np.zeros(len(columns), np.int64)
    return {n: array.tolist() for n, array in vars(tallies.profiles(nothing, nothing)).items()}


@pytest.mark.slow
@settings(max_examples=40)
@given(columns=st.lists(COLUMN, max_size=8))
def test_columns_are_judged_as_in_the_clear(columns: list[list[str | None]]) -> None:
    assert profiles(columns, b"salt") == profiles(columns, b"")


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


NEEDLES = (
    *("Zanzibarfoo", "Quixotequux", "Île Wombatbar", "Kalamazoobaz", "7345098123", "Fiddlestick"),
    *("2031-07-19", 'needle, with a "quote"', "Xylophonist"),
)


def traces(cell: str) -> Iterator[bytes]:
    """Give the forms in which a cell must not be found."""
    for text in {cell, canonical(cell), cell.lower()}:
        data = text.encode()
        number = xxh3_64_intdigest(data)
        yield from (data, number.to_bytes(8, "little"), f"{number:016x}".encode())
        yield json.dumps(text).strip('"').encode()


def assert_no_trace(folder: Path) -> int:
    """Search every file of a folder; return how many there are."""
    count = 0
    for name, content in files(folder):
        count += 1
        for needle in NEEDLES:
            for trace in traces(needle):
                assert trace not in content, (needle, name)
    return count


@pytest.fixture
def needles_folder(tmp_path: Path) -> Path:
    """Write tables in which the needles stand everywhere a cell may be."""
    folder = tmp_path / "data"
    folder.mkdir()
    quoted = ['"' + needle.replace('"', '""') + '"' for needle in NEEDLES]
    long = ["Kalamazoobaz" * 20, *["Fiddlestick" * 20] * (len(NEEDLES) - 1)]
    rows = [
        f"{cell},{i % 2},{text}" for i, (cell, text) in enumerate(zip(quoted, long, strict=True))
    ]
    (folder / "good.csv").write_text(
        "name,few,long\n" + "\n".join([*rows, *rows, '"Xylophonist,1,a'])
    )
    (folder / "few.csv").write_text("one\nXylophonist\nFiddlestick\n")
    (folder / "lines.jsonl").write_text(
        "".join(json.dumps({"key": needle, "n": i}) + "\n" for i, needle in enumerate(NEEDLES))
    )
    return folder


def test_no_value_is_found_in_any_file(
    needles_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "index"
    seen: list[str] = []
    append = builder_module.ValueIndexWriter.append

    def watched(self: Any, *given: Any) -> None:
        assert_no_trace(out)
        seen.extend(name for name, _ in files(out))
        append(self, *given)

    monkeypatch.setattr(builder_module, "_CHUNK_CELLS", 5)
    monkeypatch.setattr(builder_module.ValueIndexWriter, "append", watched)
    lake = deepjoin.index(
        *(needles_folder, out),
        build=deepjoin.BuildSettings(memory=1),
        settings=deepjoin.Settings(hash_only=True, max_cell=100),
        progress=lambda *_: seen.append(str(assert_no_trace(out))),
    )
    assert any("postings-" in name for name in seen)
    assert assert_no_trace(out)
    assert [hit.equi.matched for hit in lake.search(list(NEEDLES))] == [len(NEEDLES)] * 2
    (note,) = (note for note in lake.table("good.csv").notes if "quotes" in note)
    assert note == "Lines whose quotes do not pair, each read by itself: 1."


def test_the_needles_are_found_where_nothing_is_hidden(
    needles_folder: Path, tmp_path: Path
) -> None:
    deepjoin.index(needles_folder, tmp_path / "index")
    with pytest.raises(AssertionError, match="segments"):
        assert_no_trace(tmp_path / "index")


KILLED = """
import os, sys
import deepjoin
from deepjoin.store.values import builder
builder._CHUNK_CELLS = 5
builder.ValueIndexWriter.append = lambda *_: os.kill(os.getpid(), 9)
deepjoin.index(sys.argv[1], sys.argv[2], memory=1, hash_only=True)
"""


@pytest.mark.slow
def test_a_killed_build_leaves_no_value(needles_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(needles_folder), str(out)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert any("postings-" in name for name, _ in files(out))
    assert_no_trace(out)


def test_the_spill_holds_lengths_for_spellings() -> None:
    chunk = Chunk(np.zeros(3, np.int64), np.arange(3), pa.array(["Paris", "paris", "Rome"]))
    reduced = reduce_chunk(chunk, "default", 100, b"salt")
    assert sorted(reduced.rows["value"].to_pylist()) == sorted(
        private.hidden(["paris", "rome"], b"salt")
    )
    assert sorted(reduced.rows["spelling"].to_pylist()) == ["4", "5"]


def test_traits_of_pieces_are_those_of_the_whole() -> None:
    values = pa.array(["0", "7", "x", "1.5", "yes", "2020-01-01"])
    value, column = np.arange(6), np.array([0, 4, 1, 4, 1, 3])
    whole = Traits(5)
    whole.add(values, value, column)
    pieces = Traits(0)
    for i in range(6):
        one = Traits(1)
        one.add(values, value[[i]], np.zeros(1, np.int64))
        pieces = pieces.include(int(column[i]), one)
    assert pieces.of(5).types().tolist() == whole.types().tolist() == [1, 0, 0, 3, 2]
    for name, array in vars(whole).items():
        assert (getattr(pieces.of(5), name) == array).all()


def test_a_hidden_partition_is_stored_without_spellings(tmp_path: Path) -> None:
    lake = deepjoin.index(
        {"t": {"c": ["A", "B"]}},
        tmp_path,
        settings=deepjoin.Settings(hash_only=True, min_distinct=1),
    )
    spellings = [content for name, content in files(tmp_path) if "spellings.bytes" in name]
    assert [len(content) for content in spellings] == [128]
    assert len(lake.search(["a", "b"])[0].unmatched) == 0
    assert ColumnTallies(0, Traits(0)).profiles(*[Traits(0).minimum] * 2).distinct.tolist() == []


def test_hits_show_counts_and_no_cells(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    hit = lake.search(["France", "GERMANY", "Atlantis"], settings=SearchSettings(matches=None))[0]
    assert (hit.equi.matched, hit.query_size) == (2, 3)
    assert hit.matches == hit.unmatched == hit.brings.sample == ()
    assert lake.table("geo/countries.csv").sample == ()


def test_rebuilding_gives_the_same_bytes(lake_folder: Path, tmp_path: Path) -> None:
    for path in lake_folder.rglob("*.csv"):
        os.utime(path, (1e9, 1e9))
    built = []
    for name in ("one", "two"):
        deepjoin.index(
            lake_folder, tmp_path / name, settings=deepjoin.Settings(hash_only=True, salt=SALT)
        )
        built.append(dict(files(tmp_path / name / "segments")))
    deepjoin.index(lake_folder, tmp_path / "two", build=deepjoin.BuildSettings(rebuild=True))
    again = dict(files(tmp_path / "two" / "segments"))
    assert built[0] == built[1] == again
    deepjoin.index(lake_folder, tmp_path / "other", settings=deepjoin.Settings(hash_only=True))
    other = dict(files(tmp_path / "other" / "segments"))
    assert other.keys() != again.keys() or other != again


def noting(read: list[str]) -> Progress:
    """Note what has been read."""
    return lambda done, of, name: read.append(name) if done else None


@pytest.mark.slow
def test_a_refresh_reads_what_changed_and_no_more(lake_folder: Path, tmp_path: Path) -> None:
    for path in lake_folder.rglob("*.csv"):
        os.utime(path, (1e9, 1e9))
    out, read = tmp_path / "index", list[str]()
    deepjoin.index(lake_folder, out, settings=deepjoin.Settings(hash_only=True))
    (lake_folder / "new.csv").write_text(
        "land\n" + "\n".join(["France", "Peru", "Chad", "Mali", "Cuba"])
    )
    for _ in range(2):
        lake = deepjoin.index(lake_folder, out, progress=noting(read))
    assert read == ["new.csv"]
    clear = deepjoin.index(lake_folder, tmp_path / "clear")
    found = [
        without_cells(one.search(["peru", "france"], join="equi").to_dict())
        for one in (lake, clear)
    ]
    assert found[0] == found[1]
    assert len(found[0]["hits"]) == 3


def test_a_corpus_of_hashes_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    names = {name: ["t0", "t1"] for name in ("column_id", "table_id", "title", "column_name")}
    cells = [["Zanzibarfoo", "b", "c", "d", "e"], ["b", "c", "d", "e", "f"]]
    pq.write_table(
        pa.table(names | {"context": ["", ""], "cells": cells}), folder / "columns.parquet"
    )
    os.utime(folder / "columns.parquet", (1e9, 1e9))
    out, read = tmp_path / "index", list[str]()
    for _ in range(2):
        lake = deepjoin.index(
            folder, out, settings=deepjoin.Settings(hash_only=True), progress=noting(read)
        )
    assert read == ["columns"]
    assert [hit.column_id for hit in lake.search(["zanzibarfoo"])] == ["t0"]
    assert len(lake.column("t0", "t0").cells) == 5
    assert_no_trace(out)


def test_settings_given_anew_keep_the_salt(lake_folder: Path, tmp_path: Path) -> None:
    first = deepjoin.index(lake_folder, tmp_path / "i", settings=deepjoin.Settings(hash_only=True))
    again = deepjoin.index(lake_folder, tmp_path / "i", settings=Settings(hash_only=True))
    assert first.settings.salt == again.settings.salt
    clear = deepjoin.index(lake_folder, tmp_path / "i", settings=deepjoin.Settings(hash_only=False))
    assert clear.settings.salt == ""
    assert clear.search(["France"])[0].matches


def test_a_table_of_the_lake_is_read_again_to_search_with(
    lake_folder: Path, tmp_path: Path
) -> None:
    clear = deepjoin.index(lake_folder, tmp_path / "clear")
    hashed = deepjoin.index(
        lake_folder, tmp_path / "hashed", settings=deepjoin.Settings(hash_only=True)
    )
    mine, theirs = (lake.column("geo/cities.csv", "nation") for lake in (hashed, clear))
    ours, known = distinct_cells(mine.cells), distinct_cells(theirs.cells)
    assert (ours.values, ours.counts) == (known.values, known.counts)
    assert (mine.name, mine.table, mine.column_id) == (theirs.name, theirs.table, theirs.column_id)
    found = [without_cells(lake.search(mine, join="equi").to_dict()) for lake in (clear, hashed)]
    assert found[0] == found[1]
    assert found[0]["hits"]


def test_joins_read_the_tables_themselves(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    orders = pa.table({"nation": ["france", "Peru"]})
    (hit, *_) = lake.search(orders["nation"])
    joined = lake.join(orders, "nation", hit)
    assert joined["capital"].to_pylist() == ["Paris", "Lima"]


def test_tables_from_memory_are_not_kept(tmp_path: Path) -> None:
    frame = {"city": ["Paris", "Rome", "Lima", "Oslo", "Bonn"]}
    lake = deepjoin.index({"cities": frame}, tmp_path, settings=deepjoin.Settings(hash_only=True))
    (hit,) = lake.search(["rome"])
    with pytest.raises(
        DeepJoinError, match="cities was in memory when it was indexed, and the index has no copy"
    ):
        lake.join(pa.table({"c": ["rome"]}), "c", hit)
    with pytest.raises(
        DeepJoinError, match="cities was in memory when it was indexed, and the index has no copy"
    ):
        lake.column("cities", "city")


def failing(raised: BaseException | None) -> Table:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"c": ["Zanzibarfoo"]})
        if raised is None:
            raise UnreadableTable("bad.csv breaks off in line 7")
        try:
            raise raised
        except Exception as error:
            raise UnreadableTable(f"bad.csv cannot be read: {error}") from None

    def parts() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches()
        except UnreadableTable as error:
            raise UnreadableTable(str(error)) from None

    return Table("bad.csv", lambda: Reading(parts()))


REASONS: dict[str, tuple[BaseException | None, str]] = {
    "own": (None, "breaks off in line 7"),
    "system": (OSError(5, "Input/output error"), "cannot be read: [Errno 5] Input/output error"),
    "foreign": (
        ValueError("no number: Zanzibarfoo"),
        "it cannot be read (ValueError); the message may quote cells",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_reasons_quote_no_cell(tmp_path: Path, case: str) -> None:
    raised, reason = REASONS[case]
    lake = deepjoin.index([failing(raised)], tmp_path, settings=deepjoin.Settings(hash_only=True))
    assert [(one.name, one.reason) for one in lake.report.skipped] == [("bad.csv", reason)]
    assert_no_trace(tmp_path)


def test_what_is_remembered_of_items_is_hidden() -> None:
    item = Item("t", "max is Zanzibarfoo", Listing, lambda: "digest")
    assert hidden_item(item, b"") is item
    hidden = hidden_item(item, b"salt")
    assert hidden.stamp == private.hidden([item.stamp], b"salt")[0]
    assert hidden.digest is not None
    assert hidden.digest() == private.hidden(["digest"], b"salt")[0]
    bare = hidden_item(Item("t", "", Listing), b"salt")
    assert (bare.stamp, bare.digest) == ("", None)


def test_no_digest_of_a_file_is_stored(lake_folder: Path) -> None:
    (lake_folder / "one.csv").write_text("c\nZanzibarfoo\n")
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    digest = file_digest(lake_folder / "one.csv").encode()
    assert all(digest not in content for _, content in files(lake.path))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_the_salt_is_readable_by_its_owner_alone(lake_folder: Path, tmp_path: Path) -> None:
    hashes = deepjoin.Settings(hash_only=True)
    manifest = Path(deepjoin.index(lake_folder, tmp_path / "i", settings=hashes).path) / MANIFEST
    assert manifest.stat().st_mode & 0o777 == 0o600
    manifest.chmod(0o644)
    deepjoin.index(lake_folder, tmp_path / "i", build=deepjoin.BuildSettings(rebuild=True))
    assert manifest.stat().st_mode & 0o777 == 0o640
    with writing(tmp_path / "i") as writer:
        writer.set_pending("key", "salt", [])
    assert (tmp_path / "i" / PENDING).stat().st_mode & 0o777 == 0o600


def test_info_does_not_print_the_salt(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    assert lake.info()["settings"]["hash_only"] is True
    assert lake.settings.salt not in json.dumps(lake.info())


@pytest.fixture
def secret_lake(lake_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv(private.SECRET, "correct horse")
    return deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))


def test_a_secret_is_needed_and_never_stored(
    secret_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert secret_lake.search(["France", "Peru"])[0].equi.matched == 2
    assert all(b"correct horse" not in content for _, content in files(secret_lake.path))
    monkeypatch.delenv(private.SECRET)
    opened = deepjoin.open(secret_lake.path)
    with pytest.raises(DeepJoinError, match="built with a secret; set DEEPJOIN_SECRET to it"):
        opened.search(["France"])
    monkeypatch.setenv(private.SECRET, "wrong horse")
    with pytest.raises(DeepJoinError, match="is not the secret this index was built with"):
        opened.search(["France"])


def test_the_secret_is_needed_to_index_again(
    secret_lake: Lake, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = secret_lake.settings.salt
    assert (
        deepjoin.index(lake_folder, build=deepjoin.BuildSettings(rebuild=True)).settings.salt
        == salt
    )
    monkeypatch.delenv(private.SECRET)
    with pytest.raises(DeepJoinError, match="built with a secret; set DEEPJOIN_SECRET to it"):
        deepjoin.index(lake_folder, build=deepjoin.BuildSettings(rebuild=True))


def test_a_secret_cannot_be_added_later(lake_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    monkeypatch.setenv(private.SECRET, "correct horse")
    assert lake.search(["France"])
    with pytest.raises(DeepJoinError, match="built without a secret, and DEEPJOIN_SECRET is set"):
        deepjoin.index(lake_folder, build=deepjoin.BuildSettings(rebuild=True))


def test_keys_depend_on_salt_and_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Settings(hash_only=True, salt=SALT)
    assert private.key(plain) == bytes.fromhex(SALT)
    keys = {private.key(plain)}
    for secret in ("one", "other", "x" * 1000):
        monkeypatch.setenv(private.SECRET, secret)
        made = private.salted(plain)
        assert made.salt.startswith(f"{SALT}-")
        keys.add(private.key(made))
    assert len(keys) == 4


@pytest.mark.parametrize("salt", ["", "x", SALT[:-1], f"{SALT}-12", SALT.upper()])
def test_a_salt_nobody_made_is_refused(salt: str) -> None:
    with pytest.raises(DeepJoinError, match="The salt is not one a build made; leave it out"):
        private.key(Settings(hash_only=True, salt=salt))


@settings(max_examples=20)
@given(st.lists(st.text(max_size=4)))
def test_arrays_are_hidden_as_strings_are(values: list[str]) -> None:
    key = b"salt"
    valid = [value for value in values if value.isprintable()]
    assert private.hidden_array(pa.array(valid, pa.string()), key).to_pylist() == private.hidden(
        valid, key
    )
    cells = distinct_cells(values, key=key)
    assert cells.hidden == private.hidden(cells.values, key)


def test_a_version_query_that_fails_quotes_no_cell(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "a.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'Zanzibarfoo' AS c")
    index = tmp_path / "index"
    query = "SELECT max(CAST(c AS INTEGER)) FROM {table}"
    lake = deepjoin.index(
        str(path), index, settings=deepjoin.Settings(hash_only=True, version_query=query)
    )
    assert lake.table("main.t").notes == (
        "The version query failed, so the database's own stamp serves.",
    )
    assert_no_trace(index)


def test_reasons_that_may_pass_are_passed_on(tmp_path: Path) -> None:
    def away() -> Reading:
        raise UnreadableTable("bad.csv is away", passing=True)

    lake = deepjoin.index(
        [Table("bad.csv", away)], tmp_path, settings=deepjoin.Settings(hash_only=True)
    )
    assert [one.passing for one in lake.report.skipped] == [True]


def test_a_table_of_hits_lists_no_cells(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder, settings=deepjoin.Settings(hash_only=True))
    shown = repr(lake.search(["France", "Peru", "Italy", "Chad", "Mali"]))
    assert "France" not in shown
    assert "…" not in shown
