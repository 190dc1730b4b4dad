"""What holds for every source of tables, and for those who use one."""

from __future__ import annotations

import ast
import json
import os
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import deepjoin
from deepjoin import Column
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.model import Table
from deepjoin.normalise.cells import as_strings
from deepjoin.read import KINDS, Source, open_sources, reopen
from deepjoin.read.corpus import write_corpus
from deepjoin.read.source import digest_of
from deepjoin.settings import Settings
from tests.support.buckets import BUCKET, Store, running_store, use
from tests.support.vector_stores import execute, fresh, started

CITIES, MORE = ["Rome", "Lima", "Oslo"], ["Rome", "Lima", "Kyiv"]
CREATE = ("CREATE TABLE cities (city VARCHAR)", "INSERT INTO cities VALUES ('Rome'), ('Lima')")
INSERT, UPDATE = (
    "INSERT INTO cities VALUES ('Oslo')",
    "UPDATE cities SET city = 'Kyiv' WHERE city = 'Oslo'",
)


@dataclass
class Example:
    """A source with one table of `CITIES`, and what becomes of it."""

    #: What `open_sources` is given.
    place: Callable[[], object]
    table: str
    #: Replaces Oslo by Kyiv.
    change: Callable[[], object]
    #: The name of something that is passed over, if the source has any such thing.
    skipped: str = ""
    #: Settings under which it is passed over.
    settings: Settings = field(default_factory=Settings)

    def source(self, settings: Settings | None = None) -> Source:
        """Open the source."""
        (source,) = open_sources(self.place(), settings or Settings())
        return source


def aged(folder: Path) -> None:
    """Make files an hour older, each by another second: one changed just now has no stamp."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if path.is_file():
            status = path.stat()
            earlier = status.st_mtime_ns - (3_600 + number) * 10**9
            os.utime(path, ns=(status.st_atime_ns, earlier))


def csv(cells: list[str]) -> str:
    return "".join(f"{line}\n" for line in ("city", *cells))


def of_files(folder: Path, tables: dict[str, list[str]], table: str, changing: str) -> Example:
    """Make a folder of CSV files and a file that is no table."""

    def write(name: str, cells: list[str]) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(csv(cells))
        aged(folder)

    for name, cells in tables.items():
        write(name, cells)
    (folder / "paper.pdf").write_bytes(b"%PDF")
    cells = [cell.replace("Oslo", "Kyiv") for cell in tables[changing]]
    return Example(lambda: folder, table, lambda: write(changing, cells), "paper.pdf")


def files(folder: Path, request: pytest.FixtureRequest) -> Example:
    return of_files(folder, {"cities.csv": CITIES}, "cities.csv", "cities.csv")


def parts(folder: Path, request: pytest.FixtureRequest) -> Example:
    members = {"log/year=2020/part-0.csv": CITIES[:2], "log/year=2021/part-0.csv": CITIES[2:]}
    return of_files(folder, members, "log", "log/year=2021/part-0.csv")


def delta(folder: Path, request: pytest.FixtureRequest) -> Example:
    deltalake = pytest.importorskip("deltalake")

    def write(cells: list[str]) -> None:
        table = pa.table({"city": cells})
        deltalake.write_deltalake(str(folder / "cities"), table, mode="overwrite")
        aged(folder)

    write(CITIES)
    (folder / "paper.pdf").write_bytes(b"%PDF")
    return Example(lambda: folder, "cities", lambda: write(MORE), "paper.pdf")


def iceberg(folder: Path, request: pytest.FixtureRequest) -> Example:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalogue = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    request.addfinalizer(catalogue.close)
    catalogue.create_namespace("geo")
    made = catalogue.create_table("geo.cities", schema=pa.schema([("city", pa.string())]))

    def write(cells: list[str]) -> None:
        made.overwrite(pa.table({"city": cells}))
        aged(folder)

    made.append(pa.table({"city": CITIES}))
    aged(folder)
    (folder / "w" / "paper.pdf").write_bytes(b"%PDF")
    return Example(lambda: folder / "w", "geo/cities", lambda: write(MORE), "paper.pdf")


def corpus(folder: Path, request: pytest.FixtureRequest) -> Example:
    def write(cells: list[str]) -> None:
        write_corpus(folder, [Column(cells, "city", "cities")])
        aged(folder)

    write(CITIES)
    return Example(lambda: folder, "cities", lambda: write(MORE))


def memory(folder: Path, request: pytest.FixtureRequest) -> Example:
    frames = {"cities": {"city": CITIES}}
    return Example(lambda: frames, "cities", lambda: frames.update(cities={"city": MORE}))


def of_database(
    url: str, run: Callable[..., object], table: str = "cities", place: str = ""
) -> Example:
    """Make a database; the patterns that leave nothing of it are reported under its place."""
    run(*CREATE, INSERT)
    nothing = Settings(exclude=("*",))
    return Example(lambda: url, table, lambda: run(UPDATE), place or url, nothing)


def sqlite(folder: Path, request: pytest.FixtureRequest) -> Example:
    def run(*statements: str) -> None:
        with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)
        aged(folder)

    return of_database(f"sqlite:///{folder}/shop.db", run)


def sqlalchemy(folder: Path, request: pytest.FixtureRequest) -> Example:
    pytest.importorskip("sqlalchemy")
    made = sqlite(folder, request)
    url = f"sqlite+pysqlite:///{folder}/shop.db"
    return Example(lambda: url, made.table, made.change, url, made.settings)


def duckdb_file(folder: Path, request: pytest.FixtureRequest) -> Example:
    def run(*statements: str) -> None:
        with duckdb.connect(folder / "shop.duckdb") as connection:
            for statement in statements:
                connection.execute(statement)
        aged(folder)

    return of_database(f"duckdb:///{folder}/shop.duckdb", run, "main.cities")


def postgres(folder: Path, request: pytest.FixtureRequest) -> Example:
    url = fresh(request.getfixturevalue("postgres_server"), "contract")

    def run(*statements: str) -> None:
        execute(url, *statements)

    return of_database(url, run, "public.cities", url.replace("postgres:@", "postgres@"))


def bucket(folder: Path, request: pytest.FixtureRequest) -> Example:
    store: Store = request.getfixturevalue("store")
    use(request.getfixturevalue("monkeypatch"), store.address)
    place = folder.parent.name
    store.put(**{f"{place}/cities.csv": csv(CITIES), f"{place}/paper.pdf": "%PDF"})

    def change() -> None:
        store.put(**{f"{place}/cities.csv": csv(MORE)})

    return Example(lambda: f"s3://{BUCKET}/{place}", "cities.csv", change, "paper.pdf")


SOURCES = (
    *(files, parts, delta, iceberg, corpus, memory),
    *(sqlite, sqlalchemy, duckdb_file, postgres, bucket),
)


@pytest.fixture(scope="module")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[str]:
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    with started("pgserver", reporter) as uri:
        yield uri


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, running_store() as made:
        use(patch, made.address)
        made.client.create_bucket(Bucket=BUCKET)
        yield made


@pytest.fixture(params=SOURCES, ids=lambda make: make.__name__)
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Example:
    folder = tmp_path / "lake"
    folder.mkdir()
    made: Example = request.param(folder, request)
    return made


def cities(table: Table) -> list[str]:
    """Read the cells of the one column that every example has, as they are indexed."""
    texts = (as_strings(batch["city"]) for batch in table.open())
    return sorted(cell for array in texts if array is not None for cell in array.to_pylist())


@pytest.mark.slow
def test_the_same_is_listed_each_time(example: Example) -> None:
    source = example.source()
    items = list(source.items())
    assert items
    assert [item.name for item in source.items()] == [item.name for item in items]
    tables = [table.name for item in items for table in item.listing().tables]
    assert [table.name for table in source.tables()] == tables
    assert tables == [example.table]


@pytest.mark.slow
def test_a_table_reads_the_same_each_time(example: Example) -> None:
    source = example.source()
    (listed,) = source.tables()
    named = source.table(example.table)
    assert named.name == listed.name == example.table
    assert cities(listed) == cities(listed) == cities(named) == sorted(CITIES)


def test_an_unknown_table_is_named(example: Example) -> None:
    with pytest.raises(UnknownName, match="No table 'no-such-table'"):
        example.source().table("no-such-table")


def test_stamps_change_with_the_content_only(example: Example) -> None:
    def mark() -> tuple[str, str]:
        items = [item for item in example.source().items() if item.listing().tables]
        return items[0].stamp, digest_of(items[0])

    (stamp, digest), again = mark(), mark()
    # A source that cannot tell without reading gives no stamp.
    assert not stamp or stamp == again[0]
    assert digest == again[1]
    example.change()
    other_stamp, other_digest = mark()
    assert not other_stamp or other_stamp != stamp
    assert not other_digest or other_digest != digest
    assert cities(example.source().table(example.table)) == sorted(MORE)


def test_a_source_is_reopened_from_its_description(example: Example, tmp_path: Path) -> None:
    source, index = example.source(), tmp_path / "index"
    described = json.loads(json.dumps(source.describe(index)))
    assert described["kind"] == source.kind
    again = reopen(described, index, Settings())
    if source.in_memory:
        assert again is None
        assert source.kind not in KINDS
        return
    assert again is not None
    assert again.kind == source.kind
    assert again.describe(index) == described
    assert again.gone == ()
    assert [item.name for item in again.items()] == [item.name for item in source.items()]
    assert cities(again.table(example.table)) == sorted(CITIES)


def test_what_is_passed_over_is_named(example: Example) -> None:
    source = example.source(example.settings)
    assert source.skipped == []
    list(source.tables())
    listed = [skip for item in source.items() for skip in item.listing().skipped]
    assert source.skipped == listed
    assert [skip.name for skip in listed] == [example.skipped] * bool(example.skipped)
    assert all(skip.reason for skip in listed)


def test_what_a_source_can_do_holds(example: Example) -> None:
    source = example.source()
    path, folder = source.path(example.table), source.folder
    assert path is None or path.is_file()
    assert folder is None or folder.is_dir()
    assert source.as_corpus in (None, source)
    assert source.as_database in (None, source)
    (table,) = source.apart().tables()
    assert table.name.endswith(example.table)
    assert cities(table) == sorted(CITIES)
    names = {name for batch in table.open() for name in batch.schema.names}
    assert set(source.column_names(example.table).values()) <= names
    if source.is_portable:
        other: Source = pickle.loads(pickle.dumps(source))
        assert cities(other.table(example.table)) == sorted(CITIES)


def test_a_source_is_within_itself_or_within_nothing(example: Example, tmp_path: Path) -> None:
    source = example.source()
    part = source.within(source.describe(tmp_path), tmp_path, Settings())
    names = [table.name for table in part.tables()] if part else [example.table]
    assert names == [example.table]
    assert source.within({"kind": "gone"}, tmp_path, Settings()) is None


HOUSE = Path(deepjoin.__file__).parent


def names_of(node: ast.AST) -> set[str]:
    """Return every name and attribute inside a syntax tree."""
    nodes = list(ast.walk(node))
    names = {one.id for one in nodes if isinstance(one, ast.Name)}
    return names | {one.attr for one in nodes if isinstance(one, ast.Attribute)}


def classes_asked_for(code: str) -> set[str]:
    """Return the sources whose class a module asks for: isinstance, issubclass, type, match."""
    asked: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and names_of(node.func) & {"isinstance", "issubclass"}:
            asked |= names_of(node.args[1])
        if isinstance(node, ast.Compare):
            asked |= set().union(*map(names_of, node.comparators))
        if isinstance(node, ast.MatchClass):
            asked |= names_of(node.cls)
    return {name for name in asked if name.endswith("Source")}


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(one, FileSource)",
        "isinstance(one, read.FileSource | int)",
        "type(one) is FileSource",
        "type(one) in (int, FileSource)",
        "issubclass(type(one), FileSource)",
        "match one:\n    case FileSource(root=root): pass",
    ],
)
def test_asking_for_a_class_is_noticed(code: str) -> None:
    assert classes_asked_for(code) == {"FileSource"}


@pytest.mark.slow
def test_nobody_outside_asks_for_the_class_of_a_source() -> None:
    modules = [path for path in HOUSE.rglob("*.py") if HOUSE / "read" not in path.parents]
    asked = {str(path): classes_asked_for(path.read_text("utf-8")) for path in modules}
    assert {path: names for path, names in asked.items() if names} == {}


@pytest.mark.slow
def test_a_kind_this_version_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="a kind this version does not know: 'telex'"):
        reopen({"kind": "telex"}, tmp_path, Settings())


@pytest.mark.slow
def test_nothing_is_left_to_reopen_of_frames_and_removed_sources(tmp_path: Path) -> None:
    assert reopen({"kind": "memory"}, tmp_path, Settings()) is None
    assert reopen({"kind": "gone"}, tmp_path, Settings()) is None
