"""Checksums of blocks: damage is told when it is read, and sound files read as without them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake
from deepjoin.arrays import (
    HEADER,
    StoredArray,
    Strings,
    StringsWriter,
    load_array,
    load_offsets,
    settle,
    shorten,
)
from deepjoin.build import update
from deepjoin.checksums import BLOCK, NAME, DamagedFile, read_verified, verify_file
from deepjoin.errors import IndexUnusable
from deepjoin.packing import PackedArray, load_numbers, pack
from deepjoin.relating.graph import current_edges
from deepjoin.store import open_index
from deepjoin.store.manifest import is_sealed, sealed_json
from deepjoin.store.storage import PENDING, pending_salt, seal
from tests.support.command_line import Run
from tests.support.flips import (
    OPERATIONS,
    Flip,
    flipped_copy,
    flips,
    outcomes,
    own_queries,
    verdict,
)
from tests.support.index_files import changed_manifest

WORDS = ["Lima", "Oslo", "Bamako", "Muscat", "Riga", "Quito", "Accra", "Dakar", "Hanoi", "Tunis"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index a small lake in two segments, one of which has lost a table."""
    folder = tmp_path_factory.mktemp("lake")
    for number in range(6):
        rows = (f"{word},{word.upper()} {number},{at}\n" for at, word in enumerate(WORDS[number:]))
        (folder / f"{number}.csv").write_text(f"city,name {number},rank\n{''.join(rows)}")
    made = folder.parent / f"{folder.name}-index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "_RATIO", 0)
        lake = deepjoin.index(folder, made, encoder="none")
        (folder / "more.csv").write_text("town\n" + "\n".join([*WORDS[3:], "Lomé"]) + "\n")
        lake.refresh()
        lake.remove("2.csv")
    assert len(lake.index.segments) == 2
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder as those of segments are placed."""
    made = tmp_path / "segments" / "one"
    made.mkdir(parents=True)
    return made


def flip(path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.slow
def test_no_flip_changes_an_answer_without_a_word(index: Path) -> None:
    copy = index.with_name("copy")
    queries = own_queries(index, 0)
    flipped_copy(index, copy, None)
    before = outcomes(copy, queries, list(OPERATIONS))
    assert {one.kind for one in before.values()} == {"answer"}
    for one in flips(index, 25, 1):
        flipped_copy(index, copy, one)
        after = outcomes(copy, queries, list(OPERATIONS))
        for name, outcome in after.items():
            assert verdict(before[name], outcome) in ("same", "told"), (name, one, outcome)
        assert after["check"].kind == "told", one


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_bit_of_any_file_is_harmless_or_reported(index: Path, data: Any) -> None:
    """The searches alone, which take little: of each file, every byte is as likely."""
    files = [path for path in sorted(index.rglob("*")) if path.is_file() and path.stat().st_size]
    path = data.draw(st.sampled_from(files))
    byte = data.draw(st.integers(0, path.stat().st_size - 1))
    one = Flip(path.relative_to(index).as_posix(), byte, data.draw(st.integers(0, 7)))
    names, queries = ["search equi", "list"], [["Lima", "Oslo", "nowhere"], ["LIMA 0", "OSLO 1"]]
    copy = index.with_name("drawn")
    flipped_copy(index, copy, one)
    before, after = outcomes(index, queries, names), outcomes(copy, queries, names)
    for name in names:
        assert verdict(before[name], after[name]) in ("same", "told"), (name, one, after[name])


READS: dict[str, Callable[[Any], Any]] = {
    "one": lambda x: x[5],
    "the last": lambda x: x[-1],
    "a slice": lambda x: x[3:400],
    "nothing": lambda x: x[9:9],
    "steps": lambda x: x[10:400:7],
    "some": lambda x: x[np.array([1, 500, 1, len(x) - 1])],
    "some, from the end": lambda x: x[np.array([-1, 0])],
    "none": lambda x: x[np.zeros(0, np.int64)],
    "marked": lambda x: x[np.arange(len(x)) % 100 == 1],
    "a list": lambda x: x[[7, 400]],
    "taken": lambda x: np.take(x, np.array([3, 599]), axis=0),
    "all": np.asarray,
    "a copy": lambda x: np.array(x, copy=True),
    "differences": lambda x: np.diff(x, axis=0),
    "compared": lambda x: x == 7,
    "added": lambda x: 1 + x,
    "summed": lambda x: x.sum(),
    "as others": lambda x: x.astype(np.float64),
    "iterated": lambda x: [one for one, _ in zip(x, range(3), strict=False)],
    "an index": lambda x: np.arange(100)[np.minimum(x, 9)],
    "its size": lambda x: (len(x), x.shape, x.dtype, x.ndim),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("length", "width"), [(50_000, 0), (20_000, 3), (600, 600)])
def test_a_stored_array_reads_as_a_plain_one(
    folder: Path, read: str, length: int, width: int
) -> None:
    shape = (length, width) if width else (length,)
    plain = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    np.save(folder / "x.npy", plain)
    seal(folder)
    stored = load_array(folder / "x.npy")
    assert isinstance(stored, StoredArray)
    np.testing.assert_equal(READS[read](stored), READS[read](plain))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 50), min_size=1), st.lists(st.integers(-1, 51)), st.booleans())
def test_places_are_those_of_a_plain_array(
    tmp_path_factory: pytest.TempPathFactory, held: list[int], wanted: list[int], left: bool
) -> None:
    folder = tmp_path_factory.mktemp("x") / "segments" / "one"
    folder.mkdir(parents=True)
    plain = np.sort(np.array(held).repeat(40))
    np.save(folder / "x.npy", plain)
    seal(folder)
    side = "left" if left else "right"
    stored: Any = load_array(folder / "x.npy")
    assert (
        np.searchsorted(stored, wanted, side).tolist()
        == np.searchsorted(plain, wanted, side).tolist()
    )
    assert np.searchsorted(stored, 7, side) == np.searchsorted(plain, 7, side)


def test_a_damaged_number_of_packed_numbers_is_reported(folder: Path) -> None:
    """It agrees with the size of the file, so opening finds nothing, and reads little."""
    path = folder / "x.npy"
    np.save(path, np.arange(1000))
    pack(path)
    seal(folder)
    for bit in (3, 4):  # 1000 is 15 full blocks and 40 numbers
        flip(path, HEADER + 8, bit)
        for read in (len, lambda x: x[7], lambda x: x[1010:], lambda x: x.searchsorted(3)):
            packed = load_numbers(path)
            assert isinstance(packed, PackedArray)
            with pytest.raises(DamagedFile, match="one/x.npy is not what was written"):
                read(packed)
        flip(path, HEADER + 8, bit)
    for bit in (0, 6):
        for byte in (HEADER, HEADER + 8 * 18):  # the mark, and where the last block begins
            flip(path, byte, bit)
            with pytest.raises(DamagedFile, match="one/x.npy is not what was written"):
                load_numbers(path)
            flip(path, byte, bit)
    assert len(load_numbers(path)) == 1000


def test_an_offset_is_verified_alone(folder: Path) -> None:
    path = folder / "x.offsets.npy"
    np.save(path, np.arange(100_000))
    shorten(path)
    seal(folder)
    flip(path, 150_000)
    offsets = load_offsets(path)
    for at in (3, np.int64(3), -99_997):
        assert offsets[at] == 3


def test_only_what_is_read_is_verified(folder: Path) -> None:
    np.save(folder / "x.npy", np.arange(100_000))
    seal(folder)
    flip(folder / "x.npy", 400_000)
    stored = load_array(folder / "x.npy")
    assert stored[3] == 3
    assert stored[90_000:].tolist() == list(range(90_000, 100_000))
    told = rf"{folder.parent.parent} is damaged: one/x.npy is not what was written \(between bytes"
    for read in (
        lambda: stored[(400_000 - 128) // 8],
        lambda: stored[np.array([1, 49_990])],
        lambda: stored[40_000:60_000],
        lambda: np.asarray(stored),
        lambda: stored.sum(),
        lambda: pa.array(stored),
        lambda: np.searchsorted(stored, 49_990),
        lambda: settle(_Holder(stored), whole=True),
    ):
        with pytest.raises(DamagedFile, match=f"{told}.*deepjoin index SOURCE -o .* --rebuild"):
            read()


class _Holder:
    def __init__(self, *arrays: Any) -> None:
        self.array, self.arrays = arrays[0], arrays


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["u1", "<i2", "<f4", "<i8"]),
    width=st.sampled_from([1, 3, 12, 16, 100]),
    first=st.integers(0, 40),
    dtype=st.sampled_from(["u1", "<i4", "<i8", "<u8"]),
    rows=st.lists(st.integers(0, 250), min_size=1, max_size=400),
    block=st.integers(1, 49),
)
def test_rows_are_damaged_if_one_of_their_blocks_is(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str, width: int, first: int, dtype: str, rows: list[int], block: int,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("x") / "segments" / "one"
    folder.mkdir(parents=True)
    step = width * np.dtype(kind).itemsize
    plain = np.zeros((50 * BLOCK // step, width), kind)
    np.save(folder / "x.npy", plain)
    seal(folder)
    flip(folder / "x.npy", block * BLOCK)
    part = cast(StoredArray, load_array(folder / "x.npy")).part(first, len(plain))
    spread = 1 if dtype == "u1" else (len(part) - 1) // 251
    numbers = np.minimum(np.array(rows) * spread, len(part) - 1).astype(dtype)
    starts = HEADER + (numbers.astype(np.int64) + first) * step
    is_read = ((starts // BLOCK <= block) & ((starts + step - 1) // BLOCK >= block)).any()
    if is_read:
        with pytest.raises(DamagedFile, match="one/x.npy is not what was written"):
            part[numbers]
    else:
        assert not part[numbers].any()


def test_a_search_that_damage_leads_astray_is_noticed(folder: Path) -> None:
    """The middle element is read first, and sends the search to the wrong half."""
    np.save(folder / "x.npy", np.arange(100_000))
    seal(folder)
    flip(folder / "x.npy", 128 + 8 * 50_000 + 4, 6)
    with pytest.raises(DamagedFile, match="one/x.npy is not what was written"):
        np.searchsorted(load_array(folder / "x.npy"), 70_000)


def test_what_is_verified_becomes_a_plain_array(folder: Path) -> None:
    np.save(folder / "x.npy", np.arange(100_000))
    np.save(folder / "y.npy", np.arange(10))
    seal(folder)
    holder = _Holder(load_array(folder / "x.npy"), load_array(folder / "y.npy"))
    assert holder.arrays[1][0] == 0
    settle(holder)
    assert isinstance(holder.arrays[0], StoredArray)
    assert type(holder.arrays[1]) is np.ndarray, "a small file is verified at once"
    settle(holder, whole=True)
    assert type(holder.array) is np.ndarray


def test_strings_are_verified_one_by_one(folder: Path) -> None:
    texts = [f"text {number}" for number in range(40_000)]
    with StringsWriter(folder, "texts") as writer:
        writer.append(texts)
    seal(folder)
    flip(folder / "texts.bytes.npy", 200_000)
    strings = Strings.load(folder, "texts")
    assert list(strings[:5]) == texts[:5]
    assert strings[39_999] == texts[-1]
    with pytest.raises(IndexError):
        strings[40_000]
    with pytest.raises(DamagedFile, match=r"one/texts.bytes.npy is not what was written"):
        list(strings)
    with pytest.raises(DamagedFile, match=r"one/texts.bytes.npy is not what was written"):
        strings.arrow()


def test_threads_read_the_same_blocks(folder: Path) -> None:
    plain = np.arange(300_000)
    np.save(folder / "x.npy", plain)
    seal(folder)
    stored = load_array(folder / "x.npy")
    found: list[bool] = []

    def read(seed: int) -> None:
        rows = np.random.default_rng(seed).integers(0, len(plain), 2_000)
        found.append(bool((stored[rows] == rows).all()))

    threads = [Thread(target=read, args=(seed % 3,)) for seed in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 9
    marked = sum((isinstance(stored, StoredArray) and stored.guard.seen) or b"")
    assert isinstance(stored, StoredArray)
    assert marked + stored.guard.left == len(stored.guard.seen)


@pytest.mark.parametrize("byte", [20, 64, 90, 127])
def test_a_damaged_header_is_reported(folder: Path, byte: int) -> None:
    np.save(folder / "x.npy", np.arange(10))
    seal(folder)
    for bit in range(8):
        flip(folder / "x.npy", byte, bit)
        with pytest.raises(DamagedFile, match="one/x.npy is not what was written"):
            load_array(folder / "x.npy")[3]
        flip(folder / "x.npy", byte, bit)


@pytest.mark.parametrize("read", [read_verified, verify_file])
def test_files_that_are_read_whole_are_verified(
    folder: Path, read: Callable[[Path], object]
) -> None:
    for name, size in {"a": 0, "b": 10, "c": 3 * BLOCK, "deeper/d": BLOCK + 1}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(size))
    seal(folder)
    for name in ("a", "b", "c", "deeper/d"):
        read(folder / name)
    for name in ("b", "c", "deeper/d"):
        flip(folder / name, -1)
        with pytest.raises(DamagedFile, match=f"one/{name} is not what was written"):
            read(folder / name)
    (folder / "a").write_bytes(b"x")
    with pytest.raises(DamagedFile, match="one/a is not what was written"):
        read(folder / "a")
    (folder / "new").write_bytes(b"came later")
    read(folder / "new")


def test_damaged_checksums_are_reported(folder: Path) -> None:
    np.save(folder / "x.npy", np.arange(10))
    seal(folder)
    content = (folder / NAME).read_bytes()
    for byte in range(len(content)):
        flip(folder / NAME, byte, byte % 8)
        with pytest.raises(DamagedFile, match="one/(checksums|x.npy) is not what was written"):
            load_array(folder / "x.npy")[3]
        (folder / NAME).write_bytes(content)
    (folder / NAME).write_bytes(content[:-1])
    with pytest.raises(DamagedFile, match="one/checksums is not what was written"):
        load_array(folder / "x.npy")[3]


def test_other_folders_may_have_a_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("of another program")
    np.save(tmp_path / "x.npy", np.arange(10))
    assert type(load_array(tmp_path / "x.npy")) is np.ndarray


def test_a_damaged_graph_says_how_to_make_it_again(index: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    lake = Lake(copy)
    lake.graph(0.5)
    (path,) = copy.glob("graph/*/b.npy")
    flip(path, -1)
    edges = current_edges(lake.index, 0.5)
    assert edges is not None
    told = rf"Remove {copy / 'graph'} and run: deepjoin graph {copy}"
    with pytest.raises(DamagedFile, match=told):
        list(edges.batches())


def test_json_says_whether_it_is_what_was_written() -> None:
    content = sealed_json({"name": "x", "list": [1, {"y": "ü"}]}).encode()
    assert is_sealed(content)
    assert json.loads(content)["list"] == [1, {"y": "ü"}]
    for byte in range(len(content)):
        changed = bytearray(content)
        changed[byte] ^= 1 << byte % 8
        assert not is_sealed(bytes(changed))
    assert not is_sealed(b"{}")


@pytest.mark.slow
def test_every_bit_of_a_manifest_counts(index: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    path = copy / "manifest.json"
    content = path.read_bytes()
    for byte in range(0, len(content), 97):
        flip(path, byte, byte % 8)
        with pytest.raises(IndexUnusable, match="is damaged: manifest.json is not "):
            Lake(copy)
        path.write_bytes(content)


def test_a_damaged_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    content = sealed_json({"key": "k", "salt": "s", "of": "", "segments": []})
    (tmp_path / PENDING).write_text(content)
    assert pending_salt(tmp_path) == "s"
    (tmp_path / PENDING).write_text(content.replace('"s"', '"t"'))
    assert pending_salt(tmp_path) == ""
    (tmp_path / PENDING).write_text('{"salt": "of an earlier version"}')
    assert pending_salt(tmp_path) == "of an earlier version"


def without_checksums(index: Path) -> None:
    """Make an index as an earlier version wrote it."""

    def forget(fields: Any) -> None:
        fields["format"] = 1
        for segment in fields["segments"]:
            del segment["files"][NAME]
            (index / "segments" / segment["name"] / NAME).unlink()

    changed_manifest(index, forget)
    path = index / "manifest.json"
    fields = json.loads(path.read_text())
    del fields["checksum"]
    path.write_text(json.dumps(fields))


@pytest.mark.slow
@pytest.mark.parametrize("single", [True, False])
def test_compact_adds_checksums(run: Run, index: Path, tmp_path: Path, single: bool) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    if single:
        Lake(copy).compact()
    without_checksums(copy)
    before = outcomes(copy, [["Lima", "Oslo"]], ["search equi", "search any"])
    assert {one.kind for one in before.values()} == {"answer"}
    answer = run("compact", copy)
    assert (
        "Wrote the segment anew in" if single else "Merged 2 segments into one in"
    ) in answer.err
    assert outcomes(copy, [["Lima", "Oslo"]], ["search equi", "search any"]) == before
    (record,) = Lake(copy).index.records
    assert NAME in record.files
    assert Lake(copy).check()
    run("compact", copy)
    assert Lake(copy).index.records == (record,)


@pytest.mark.parametrize("single", [True, False])
def test_compact_refuses_damage_without_checksums(
    index: Path, tmp_path: Path, single: bool
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    if single:
        Lake(copy).compact()
    without_checksums(copy)
    path = sorted(copy.glob("segments/*/cell_counts.npy"))[0]
    flip(path, -4)
    with pytest.raises(IndexUnusable, match=r"cell_counts.npy is not what was written.*--rebuild"):
        Lake(copy).compact()
    assert not list(copy.glob(f"segments/*/{NAME}"))


def test_an_index_that_is_searched_often_is_verified_aside(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Callable[[], None]] = []

    class Aside:
        def __init__(self, target: Any, args: Any, daemon: bool) -> None:
            self.start = lambda: started.append(lambda: target(*args))

    monkeypatch.setattr(open_index, "Thread", Aside)
    lake = Lake(index)
    answers = [lake.search(["Lima", "Oslo"], join="equi") for _ in range(40)]
    (work,) = started
    assert isinstance(lake.index.segments[0].values.posting_columns, np.ndarray | StoredArray)
    work()
    for segment in lake.index.segments:
        kept = [*vars(segment.values).values(), *vars(segment.catalog).values()]
        kept += [one._words for one in kept if isinstance(one, PackedArray)]
        assert not any(isinstance(one, StoredArray) for one in kept)
    hits = [(one.table, one.column) for one in lake.search(["Lima", "Oslo"], join="equi")]
    assert hits == [(one.table, one.column) for one in answers[0]]


def test_a_merge_leaves_a_damaged_index_as_it_is(index: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    lake = Lake(copy)
    flip(sorted(copy.glob("segments/*/cell_counts.npy"))[0], -4)
    before = sorted(copy.glob("segments/*"))
    with pytest.raises(DamagedFile, match=r"cell_counts.npy is not what was written"):
        lake.compact()
    assert sorted(copy.glob("segments/*")) == before
