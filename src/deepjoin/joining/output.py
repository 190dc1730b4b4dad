"""What a join gives: a preview, Arrow data, or a file that appears only when complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.joining.session import Session, explained
from deepjoin.joining.sql import JoinSql, StoredValues, ValueWriter
from deepjoin.joining.tables import OutputColumn, table_suffix
from deepjoin.lazy import cached_property
from deepjoin.normalise.cells import as_strings
from deepjoin.progress import Stopped, StopSignal, stop_signal
from deepjoin.read.sql import literal
from deepjoin.show.text import FORMULA, NUMBER, plain_text

if TYPE_CHECKING:
    from deepjoin.joining.plan import JoinPlan

#: Extensions of files that can be written, and how DuckDB writes them.
ENDINGS = {
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
    ".csv": "FORMAT csv, HEADER",
    ".csv.gz": "FORMAT csv, HEADER, COMPRESSION gzip",
    ".tsv": "FORMAT csv, HEADER, DELIMITER '\t'",
    ".tsv.gz": "FORMAT csv, HEADER, DELIMITER '\t', COMPRESSION gzip",
}
#: Seconds between two looks at the size of what is written.
_LOOK = 0.05
#: Numbers that are tried behind a name that is taken.
_TRIES = 1000


class JoinTooLarge(DeepJoinError):
    """A joined table with more rows or bytes than may be written."""


class RowQuery(Protocol):
    """A query that can be written: with or without types, to run it or to print it."""

    def __call__(self, typed: bool, writer: ValueWriter | None = None) -> str:
        """Write the SQL."""


class JoinedRows:
    """The rows of a query, always in the same order; can be read and written repeatedly."""

    def __init__(self, session: Session, write: RowQuery) -> None:
        self.session = session
        self._write = write

    @cached_property
    def sql(self) -> str:
        """The SELECT over the original tables; DuckDB runs it where both sides have a scan."""
        return self._write(True, StoredValues(self.session))

    def preview(self, rows: int = 10) -> pa.Table:
        """Return the first rows."""
        with explained():
            return self.session.table(f"{self._write(True)}\nLIMIT {int(rows)}")

    def to_arrow(self) -> pa.Table:
        """Return all rows."""
        with explained():
            return self.session.table(self._write(True))

    def batches(self, typed: bool = True) -> pa.RecordBatchReader:
        """Return all rows, a batch at a time; without types, the cells as they were."""
        with explained():
            return self.session.reader(self._write(typed))

    def write(self, path: str | os.PathLike[str], most: int | None = None) -> int:
        """Write all rows to a .parquet, .csv or .tsv file (also .gz) and return their number.

        Parquet gets types, the others the cells as they were. An existing file is replaced
        once the new one is complete. ``most`` bounds the bytes of the file, and those that the
        query needs on disk before it has its first row.
        """
        import duckdb

        target = Path(os.path.realpath(path))
        options = writing_options(target)
        # CSV keeps the text of cells: types would rewrite numbers and dates.
        query = self._write(typed="parquet" in options)
        try:
            with (
                explained(besides=duckdb.IOException),
                written_aside(target) as aside,
                _bounded((aside.parent, self.session.folder), most),
            ):
                copied = self.session.run(f"COPY ({query}) TO {literal(str(aside))} ({options})")
        except (OSError, duckdb.IOException) as error:
            raise DeepJoinError(
                f"Cannot write {target}: {_reason(error)}. "
                "Choose a folder that exists and has room."
            ) from error
        return int(copied[0][0])


def _reason(error: Exception) -> str:
    """Say why a file cannot be written; DuckDB puts the number of the system's error into JSON."""
    text = str(error).split("\n", 1)[0]
    number = re.search(r'"errno":"(\d+)"', text)
    return getattr(error, "strerror", None) or (os.strerror(int(number[1])) if number else text)


@contextmanager
def _bounded(folders: Sequence[Path], most: int | None) -> Iterator[None]:
    """Stop what runs in the block once it has written more than ``most`` bytes to the folders."""
    if most is None:
        yield
        return
    above, bound, done = stop_signal(), StopSignal(), Event()

    def look() -> None:
        while not done.wait(_LOOK):
            if above.is_set or _size(folders) > most:
                bound.stop()
                return

    looking = Thread(target=look, daemon=True)
    looking.start()
    try:
        with bound.watched():
            yield
        too_large = _size(folders) > most  # what is small is written between two looks
    except Stopped:
        above.check()
        too_large = True
    finally:
        done.set()
        looking.join()
    if too_large:
        raise JoinTooLarge(
            f"The joined table takes more than {most:,} bytes, the limit. Bring fewer columns "
            '(`columns`), or where several rows match, keep the first (`many="first"`) or one '
            'summary row (`many="aggregate"`).'
        )


def _size(folders: Sequence[Path]) -> int:
    size = 0
    for folder in folders:
        for path in folder.rglob("*"):
            with suppress(OSError):  # DuckDB removes what it no longer needs
                size += path.stat().st_size if path.is_file() else 0
    return size


def writing_options(path: Path) -> str:
    """Return how DuckDB writes a file with this extension; other extensions are refused."""
    for ending, options in ENDINGS.items():
        if path.name.lower().endswith(ending):
            return options
    raise DeepJoinError(
        f"Cannot write {path.name}: its ending must be one of {', '.join(ENDINGS)}."
    )


def row_texts(rows: pa.Table) -> list[list[str | None]]:
    """Return each row as a list of texts, missing cells as None.

    >>> row_texts(pa.table({"n": [7.0, None], "is": [True, False]}))
    [['7', 'true'], [None, 'false']]
    """
    columns = []
    for column in rows.columns:
        strings = as_strings(column)
        if strings is None:  # nested, or bytes
            cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
        else:
            cells = strings.to_pylist()
        columns.append(cells)
    return [list(row) for row in zip(*columns, strict=True)]


def without_formulas(join: JoinSql) -> JoinSql:
    """Write the same join with a ``'`` before every cell and name that starts like a formula."""

    def plain(column: OutputColumn) -> OutputColumn:
        cell = f"CAST({column.text} AS VARCHAR)"
        text = (
            f"CASE WHEN regexp_matches({cell}, '{FORMULA}') "
            f"AND NOT regexp_full_match({cell}, '{NUMBER}') THEN '''' || {cell} ELSE {cell} END"
        )
        return OutputColumn(plain_text(column.name), text, text)

    parts = (join.left_columns, join.between, join.right_columns)
    left, between, right = (tuple(map(plain, columns)) for columns in parts)
    return replace(join, left_columns=left, between=between, right_columns=right)


def check_output(path: Path) -> None:
    """Refuse a file whose extension is not one that can be written."""
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise DeepJoinError(f"Cannot write {path.name}: an enriched table is .parquet or .csv.")


def write_table(table: pa.Table, path: Path, neutralise: bool = False) -> None:
    """Write a table; the file appears when it is complete.

    Neutralised, a CSV file has a ``'`` before cells that a spreadsheet would run as formulas.
    """
    check_output(path)
    with written_aside(path) as aside:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, aside)
        else:
            import pyarrow.csv as csv

            csv.write_csv(_for_csv(table, neutralise), aside)


def _for_csv(table: pa.Table, neutralise: bool) -> pa.Table:
    columns = []
    for column in table.columns:
        if pa.types.is_nested(column.type):  # CSV has no such types
            cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
            column = pa.chunked_array([pa.array(cells, pa.string())])
        elif pa.types.is_string_view(column.type) or pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        columns.append(_without_formulas(column) if neutralise and is_text else column)
    names = [plain_text(name) if neutralise else name for name in table.column_names]
    return pa.table(columns, names=names)


def _without_formulas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_number = pc.match_substring_regex(column, f"^({NUMBER})$")
    runs = pc.and_not(pc.match_substring_regex(column, FORMULA), is_number)
    return pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)


class JoinLimits(NamedTuple):
    """How large a joined table may be."""

    rows: int
    bytes: int


def joined_name(left: str, right: str) -> str:
    """Name the file of a join after its tables, in letters and digits that any system takes.

    >>> joined_name("my orders.csv", "geo/countries.csv.gz")
    'my_orders-joined-with-countries'
    """
    return file_stem(f"{table_suffix(left)} joined with {table_suffix(right)}", 120)


def check_rows(plan: JoinPlan, most: int) -> None:
    """Refuse a join with too many rows before it runs."""
    rows = plan.facts.result_rows
    if rows > most:
        raise JoinTooLarge(
            f"The joined table has {rows:,} rows; the limit is {most:,}. Where several rows match, "
            'keep the first (`many="first"`) or one summary row (`many="aggregate"`).'
        )


def save_join(
    plan: JoinPlan, folder: Path, name: str, form: str, neutralise: bool, most: JoinLimits
) -> tuple[Path, int]:
    """Run a join into a new file and return its path and its rows; never replace a file."""
    check_rows(plan, most.rows)
    path = _new_file(folder, name, form)
    try:
        return path, (plan.neutralised() if neutralise else plan).write(path, most.bytes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _new_file(folder: Path, name: str, form: str) -> Path:
    """Create an empty file under a free name, so that nobody else can take the name meanwhile."""
    stem = file_stem(name)
    for number in range(_TRIES):
        path = folder / f"{stem}{f'-{number}' if number else ''}.{form}"
        try:
            path.open("xb").close()
        except FileExistsError:
            continue
        except OSError as error:
            raise DeepJoinError(f"Cannot write into the output folder: {error.strerror}.") from None
        return path
    raise DeepJoinError(
        f"The output folder has {_TRIES:,} files named '{stem}'; choose another name."
    )


def file_stem(name: str, most: int = 60) -> str:
    """Keep letters and digits of what a client sends: no path, no hidden file."""
    return re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-_")[:most] or "joined"
