"""Part files as one table: which names count, what is read, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.parts import PartGroup, checked, first_columns, grouped, hive_keys, read_parts

ONE = "0c9ad6c5-9b0c-4bd2-a4d4-8d1b4c5d6e7f"
TWO = "5f0f4b1e-3f57-4a0e-9a39-07d1f3c1a2b4"


def groups(*names: str, auto: bool = True, one_table: tuple[str, ...] = ()) -> dict[str, int]:
    """Count the files of each group; what is none has 0."""
    entries = grouped(names, auto, one_table)
    return {_plain(e): len(e.members) if isinstance(e, PartGroup) else 0 for e in entries}


def _plain(entry: str | PartGroup) -> str:
    return entry if isinstance(entry, str) else entry.name


def rows(reading: Reading) -> list[dict[str, object]]:
    return [row for batch in reading for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "files",
    [
        (f"part-00000-{ONE}.c000.snappy.parquet", f"part-00001-{ONE}.c000.snappy.parquet"),
        (f"part-00000-{ONE}-c000.csv", f"part-00000-{TWO}.c000.csv"),
        (f"part-00000-tid-81-{ONE}-12-1-c000.csv", f"part-00001-tid-82-{ONE}-13-1-c000.csv"),
        ("part.0.parquet", "part.1.parquet", "part.10.parquet"),
        ("part-0.parquet", "part-1.parquet"),
        ("part-m-00000", "part-m-00001"),
        ("part-00000.gz", "part-00001.gz"),
        ("data_0.csv", "data_1.csv"),
        ("data_0_0_0.csv.gz", "data_0_1_0.csv.gz", "data_0_3_0.csv.gz"),
        ("000000_0", "000001_0", "000001_0_copy_1"),
        ("0000_part_00", "0001_part_00"),
        ("bq-000000000000.json", "bq-000000000001.json"),
        ("orders_0001.csv", "orders_0002.csv", "orders_0003.csv"),
        ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet"),
        (f"{ONE}.csv", f"{TWO}.csv"),
        (f"{ONE.replace('-', '')}-0.parquet", f"{TWO.replace('-', '')}-0.parquet"),
        (f"20240102_101112_00012_ab1cd_{ONE}.pq", f"20240203_101112_00007_zz1cd_{TWO}.pq"),
    ],
)
def test_part_like_names(files: tuple[str, ...]) -> None:
    names = [f"lake/log/{name}" for name in files]
    assert groups(*names) == {"lake/log": len(files)}
    assert groups(*names, auto=False) == dict.fromkeys(names, 0)
    assert groups(names[0]) == {names[0]: 0}


@pytest.mark.parametrize(
    "files",
    [
        ("sales_2019.csv", "sales_2020.csv"),
        ("data_2019.csv", "data_2020.csv"),
        ("data_1.csv", "data_2.csv"),
        ("202001.csv", "202002.csv"),
        ("202001_1.csv", "202002_1.csv"),
        ("sales_01.csv", "sales_02.csv"),
        ("2020-01-01.csv", "2020-01-02.csv"),
        ("001.csv", "002.csv", "004.csv"),
        ("075.csv", "076.csv"),
        ("paris.csv", "rome.csv"),
        ("part1_cities.csv", "part2_people.csv"),
        ("users_000.csv", "orders_000.csv"),
        ("part-0.csv", "part-1.parquet"),
        ("part-0.csv", "part-1.csv", "cities.csv"),
        ("part-0.xlsx", "part-1.xlsx"),
        ("part-0.orc", "part-1.orc"),
        (f"users-{ONE}.csv", f"orders-{TWO}.csv"),
    ],
)
def test_other_names(files: tuple[str, ...]) -> None:
    assert groups(*(f"log/{name}" for name in files)) == {f"log/{name}": 0 for name in files}


def test_marks_are_dropped_and_other_files_kept() -> None:
    files = ("part-0.csv", "part-1.csv", "_SUCCESS", "_committed_17", ".part-0.csv.crc", "READ.me")
    assert groups(*(f"log/{name}" for name in files)) == {"log": 2, "log/READ.me": 0}
    assert groups("_SUCCESS", "log/part-0.csv", "log/part-1.csv") == {"_SUCCESS": 0, "log": 2}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("e/y=1/a.csv", "e/y=2/m=1/b.csv"), {"e/y=1/a.csv": 0, "e/y=2/m=1/b.csv": 0}),
        (("e/y=1/m=1/a.csv", "e/y=2/m=1/b.csv", "e/_SUCCESS"), {"e": 2}),
        (("e/y=1/a.csv", "e/y=1/b.csv", "e/cities.csv"), {"e": 2, "e/cities.csv": 0}),
        (("e/y=1/a.csv", "e/z=1/b.csv"), {"e/y=1/a.csv": 0, "e/z=1/b.csv": 0}),
        (("e/y=1/a.csv", "e/notes.md", "e/y=2/n.md", "e/y=2/a.csv"), {
            "e": 2, "e/notes.md": 0, "e/y=2/n.md": 0
        }),
        (("y=1/a.csv", "y=2/a.csv"), {".": 2}),
        (("e/y=1/000000_0", "e/y=2/000000_0"), {"e": 2}),
        (("e/a=1.csv", "e/a=2.csv"), {"e/a=1.csv": 0, "e/a=2.csv": 0}),
        (("e/=1/a.csv", "e/=2/a.csv"), {"e/=1/a.csv": 0, "e/=2/a.csv": 0}),
    ],
)  # fmt: skip
def test_hive_folders(files: tuple[str, ...], expected: dict[str, int]) -> None:
    assert groups(*files) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("sales", {"sales": 3, "x.csv": 0, "sales/a.txt.bak": 0}),
        ("sales/sales_*.csv", {"sales/sales_*.csv": 2, "sales/eu/q.csv": 0}),
        ("sales_*.csv", {"sales/sales_*.csv": 2}),
        ("./sales/*", {"sales/eu": 1, "sales/sales_2019.csv": 0}),
        (".", {".": 4}),
        ("*.bak", {"sales/*.bak": 1}),
        ("nothing", {"sales/sales_2019.csv": 0, "x.csv": 0}),
    ],
)
@pytest.mark.parametrize("auto", [True, False])
def test_one_table(pattern: str, expected: dict[str, int], auto: bool) -> None:
    files = ("sales/sales_2019.csv", "sales/sales_2020.csv", "sales/eu/q.csv", "x.csv")
    found = groups(*files, "sales/a.txt.bak", auto=auto, one_table=(pattern,))
    assert found.items() >= expected.items()


PIECES = st.sampled_from(
    ["a", "k=1", "k=2", "part-0.csv", "part-1.csv", "data_0.csv", "_SUCCESS", "x.md", f"{ONE}.csv"]
)


@given(
    st.sets(st.lists(PIECES, min_size=1, max_size=4).map("/".join), max_size=12),
    st.booleans(),
    st.lists(st.sampled_from(["a", "*.csv", ".", "k=1"]), max_size=2),
)
def test_nothing_is_lost(names: set[str], auto: bool, one_table: list[str]) -> None:
    entries = list(grouped(names, auto, one_table))
    seen = [m for e in entries for m in ([e] if isinstance(e, str) else e.members)]
    assert len(seen) == len(set(seen))
    assert {name for name in names - set(seen) if not name.endswith("_SUCCESS")} == set()
    assert set(seen) <= names
    assert list(map(_plain, entries)) == sorted(map(_plain, entries))
    assert len(set(map(_plain, entries))) == len(entries)


def opener(files: dict[str, pa.RecordBatch | DeepJoinError]) -> Callable[[str], Reading]:
    def open_member(name: str) -> Reading:
        found = files[name]
        if isinstance(found, DeepJoinError):
            raise found
        return Reading(iter([found]), [f"Rows with too few cells, filled up: {len(files)}."])

    return open_member


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("endings", "headers", "alike"),
    [
        (".csv", ("ab", "ab", "ab"), True),
        (".csv", ("ab", "ab", "ac"), False),
        (".csv", ("ab", "abc", "ab"), False),
        (".csv", ("ab", "", "ba"), True),
        (".csv", ("", "", ""), True),
        (".parquet", ("ab", "abc", "ab"), True),
        (".jsonl", ("ab", "cd", "ab"), False),
    ],
)
def test_groups_are_taken_apart_if_they_differ(
    endings: str, headers: tuple[str, ...], alike: bool
) -> None:
    members = tuple(f"log/part-{at}{endings}" for at in range(3))
    columns = dict(zip(members, headers, strict=True))
    for forced in (False, True):
        parts = PartGroup("log", members, forced)
        expected = ["x", parts] if alike or forced else ["x", *members]
        assert list(checked(["x", parts], columns.__getitem__)) == expected


def test_what_cannot_be_read_does_not_differ() -> None:
    parts = PartGroup("log", ("a.csv", "b.csv"))

    def columns_of(name: str) -> list[str]:
        raise {"a.csv": UnreadableTable, "b.csv": MissingExtra}[name]("no")

    assert list(checked([parts], columns_of)) == [parts]


def test_first_columns() -> None:
    assert first_columns(Reading(iter([batch(a=[1], b=[2]), batch(c=[1])]))) == ["a", "b"]
    assert first_columns(Reading(iter(()))) == []


def test_members_are_read_in_order_with_their_keys() -> None:
    members = ("e/y=2020/c=S%C3%A3o/1.csv", "e/y=__HIVE_DEFAULT_PARTITION__/c=B/2.csv")
    files = {members[0]: batch(id=[1, 2]), members[1]: batch(id=["x"], c=["own"], more=[0.5])}
    reading = read_parts(PartGroup("e", members), opener(files))
    assert rows(reading) == [
        {"id": 1, "y": "2020", "c": "São"},
        {"id": 2, "y": "2020", "c": "São"},
        {"id": "x", "c": "own", "more": 0.5, "y": None},
    ]
    assert reading.notes == [
        "2 part files read as one table.",
        "Columns that not every part file has: more.",
        "Rows with too few cells, filled up: 4. (In 2 part files.)",
    ]


def test_many_notes_are_summed_up() -> None:
    def open_member(name: str) -> Reading:
        columns: dict[str, list[object]] = {f"{name}-{at}": [1] for at in range(6)}
        return Reading(iter([batch(**columns)]), ["No header.", f"Stray: {name}"])

    reading = read_parts(PartGroup("e", tuple(map(str, range(12)))), open_member)
    rows(reading)
    assert reading.notes[:3] == [
        "12 part files read as one table.",
        "Columns that not every part file has: 0-0, 0-1, 0-2, 0-3, 0-4, 0-5, 1-0, 1-1 and 64 more.",
        "No header. (In 12 part files.)",
    ]
    assert reading.notes[3] == "Stray: 0 (In 1 part file.)"
    assert reading.notes[-1] == "Other notes on part files, left out: 5."


@pytest.mark.parametrize(
    ("error", "is_passing"),
    [
        (UnreadableTable("b is odd."), False),
        (UnreadableTable("b is away.", passing=True), True),
        (MissingExtra("needs excel"), True),
    ],
)
def test_a_member_that_cannot_be_read(error: DeepJoinError, is_passing: bool) -> None:
    reading = read_parts(
        PartGroup("e", ("e/a", "e/b")), opener({"e/a": batch(id=[1]), "e/b": error})
    )
    with pytest.raises(UnreadableTable, match=rf"e: part file e/b: {error}") as caught:
        rows(reading)
    assert caught.value.passing is is_passing


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("a/y=1/m=02/x.csv", {"y": "1", "m": "02"}),
        ("y=1/k=v.csv", {"y": "1"}),
        ("a%20b=c%3Dd/x", {"a b": "c=d"}),
        ("k=/x", {"k": ""}),
        ("plain/x=y", {}),
    ],
)
def test_hive_keys(name: str, keys: dict[str, str]) -> None:
    assert hive_keys(name) == keys
