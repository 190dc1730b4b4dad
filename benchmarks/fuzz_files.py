"""Fuzz the reader with thousands of malformed files: each must be read or refused, never crash.

Every file is made from a seed: delimited text with random delimiters, quotes that break, ragged
rows, any encoding and line end; JSON rows; packed files cut short; tables with bytes changed.
Each is read in a separate process, with limits on time and memory. Anything but rows or an
`UnreadableTable` of one line is a failure, and so are rows that depend on which of the two
parsers reads them, on how the bytes come in blocks, or on DuckDB being asked instead. A failing
file is kept in --out and can be made again from its seed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.read import encoding, jsonlines
from deepjoin.read.delimited import duckdb_scan, read_delimited
from deepjoin.read.files import FileSource
from deepjoin.read.formats import true_format
from fuzz_grammar import Fuzzed, fuzzed

#: Larger and wider files are not read in the other ways, which are slow by design.
_COMPARED = 1 << 18
_WIDE = 2000


@dataclass(frozen=True)
class Outcome:
    """The outcome of a file: read, unreadable, no table, or failed; the reason and the seconds."""

    number: int
    name: str
    recipe: str
    kind: str
    reason: str = ""
    seconds: float = 0.0
    rows: int = 0


class Differing(Exception):
    """The same file gave different rows when read in another way."""


def examine(path: Path) -> tuple[str, str, int, float]:
    """Read a file in every way; return kind, reason, rows and the seconds of the first way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        started = perf_counter()
        source = FileSource([path])
        tables = list(source.tables())
        if not tables:
            return "no table", source.skipped[0].reason, 0, perf_counter() - started
        try:
            batches = _checked(tables[0].open())
        except UnreadableTable as error:
            seconds = perf_counter() - started
            _check_refusal(str(error), tables[0].open)
            return "unreadable", _general(str(error), path), 0, seconds
        seconds = perf_counter() - started
        _check_again(path, batches, tables[0].open)
        return "read", "", sum(batch.num_rows for batch in batches), seconds


def _checked(reading: Reading) -> list[pa.RecordBatch]:
    """Read to the end; every batch is whole, of named text columns, one cell a row."""
    batches = list(reading)
    for batch in batches:
        batch.validate(full=True)
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise Differing(f"columns of one name: {names[:20]}")
        if {str(kind) for kind in batch.schema.types} - {"string"}:
            raise Differing(f"other types than text: {batch.schema.types[:20]}")
        if {len(column) for column in batch.columns} - {batch.num_rows}:
            raise Differing("columns of different length")
    if not batches:
        raise Differing("not even an empty batch")
    if any("\n" in note for note in reading.notes):
        raise Differing(f"a note of more than a line: {reading.notes}")
    return batches


def _check_refusal(text: str, again: Callable[[], Reading]) -> None:
    if "\n" in text or "\r" in text:
        raise Differing(f"a refusal of more than a line: {text!r}")
    try:
        list(again())
    except UnreadableTable as error:
        if str(error) != text:
            raise Differing(f"first {text!r}, then {error}") from None
        return
    raise Differing(f"first {text!r}, then rows")


def _check_again(path: Path, batches: list[pa.RecordBatch], again: Callable[[], Reading]) -> None:
    """Read in every other way that must give the same rows."""
    other = list(again())
    if len(other) != len(batches) or not all(map(pa.RecordBatch.equals, batches, other)):
        raise Differing("read twice, other rows")
    wide = any(batch.num_columns > _WIDE for batch in batches)
    if wide or path.stat().st_size > _COMPARED:
        return
    rows = list(_rows(batches))
    with _small_blocks(7 + path.stat().st_size % 500):
        _compare(rows, _rows(again()), "in small blocks")
    if true_format(path) == "delimited":
        _compare(rows, _rows(read_delimited(path, _engine="csv")), "by the csv module")
        _compare_duckdb(path, rows)


def _rows(batches: Reading | list[pa.RecordBatch]) -> Iterator[dict[str, str]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: cell for name, cell in row.items() if cell is not None}


def _compare(rows: list[dict[str, str]], others: Iterator[dict[str, str]], way: str) -> None:
    found = list(others)
    for number, (one, other) in enumerate(zip(rows, found, strict=False)):
        if one != other:
            raise Differing(f"row {number} {way}: {_short(one)} became {_short(other)}")
    if len(rows) != len(found):
        raise Differing(f"{len(rows)} rows, {len(found)} {way}")


def _short(row: dict[str, str]) -> str:
    return ascii(row)[:300]


def _compare_duckdb(path: Path, rows: list[dict[str, str]]) -> None:
    import duckdb

    scan = duckdb_scan(path)
    if scan is not None:
        table = duckdb.sql(f"SELECT * FROM {scan}").to_arrow_table()
        _compare(rows, _rows(table.to_batches()), "by DuckDB")


@contextmanager
def _small_blocks(size: int) -> Iterator[None]:
    """Read files in blocks of a few bytes, to test every block boundary."""
    kept = encoding.BLOCK, jsonlines._CHUNK
    encoding.BLOCK = jsonlines._CHUNK = size
    try:
        yield
    finally:
        encoding.BLOCK, jsonlines._CHUNK = kept


def _general(text: str, path: Path) -> str:
    """Remove from a reason the parts that differ between files."""
    text = text.replace(str(path), "FILE").replace(path.name, "FILE")
    return re.sub(r"\([^)]*\)", "(...)", re.sub(r"[0-9][0-9,]*", "N", text))


def outcome_of(made: Fuzzed, folder: Path) -> Outcome:
    """Write a file, examine it and remove it."""
    path = folder / made.name
    path.write_bytes(made.content)
    rows, seconds = 0, 0.0
    try:
        kind, reason, rows, seconds = examine(path)
    except Exception as error:  # whatever it is, it is what we look for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        kind, reason = "failed", f"{type(error).__name__} at {where}: {error}"
    path.unlink()
    return Outcome(made.number, made.name, made.recipe, kind, reason[:2000], seconds, rows)


def _work(pipe: Connection, seed: str, samples: tuple[bytes, ...]) -> None:
    """Examine file after file, as their numbers come through the pipe."""
    with tempfile.TemporaryDirectory() as folder:
        while (number := pipe.recv()) is not None:
            pipe.send(outcome_of(fuzzed(seed, number, samples), Path(folder)))


class Worker:
    """A process that examines files and is replaced when it hangs or dies."""

    def __init__(self, seed: str, memory: int, limit: float, samples: tuple[bytes, ...]) -> None:
        self.seed, self.memory, self.limit, self.samples = seed, memory, limit, samples
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, end = context.Pipe()
        arguments = (end, self.seed, self.samples)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        end.close()

    def examine(self, number: int) -> Outcome:
        """Examine one file; exceeding the limits of time or memory is a failure."""
        self.pipe.send(number)
        started = perf_counter()
        try:
            while not (reason := self._excess(perf_counter() - started)):
                if self.pipe.poll(0.1):
                    outcome: Outcome = self.pipe.recv()
                    return outcome
        except EOFError:
            reason = "the process died"
        self.close()
        self._start()
        made = fuzzed(self.seed, number, self.samples)
        seconds = perf_counter() - started
        return Outcome(number, made.name, made.recipe, "failed", reason, seconds)

    def _excess(self, seconds: float) -> str:
        """Return the limit that is exceeded, if any; memory is counted by the kernel."""
        if seconds > self.limit:
            return f"no answer within {self.limit} s"
        pages = Path(f"/proc/{self.process.pid}/statm")
        used = int(pages.read_text().split()[1]) * resource.getpagesize() if pages.exists() else 0
        return f"{used / 1e9:.1f} GB of memory in use" if used > self.memory else ""

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()


def report(outcomes: list[Outcome], seed: str) -> None:
    """Print the outcomes, one JSON object per line."""
    from common import emit, machine

    kinds = Counter(outcome.kind for outcome in outcomes)
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    emit("fuzz_files", seed=seed, files=len(outcomes), **kinds, machine=machine())
    reasons = Counter((o.kind, o.reason) for o in outcomes if o.kind != "failed" and o.reason)
    for (kind, reason), count in reasons.most_common():
        emit("fuzz_reason", kind=kind, reason=reason, files=count)
    emit("fuzz_slowest", **asdict(slowest))


def keep(outcome: Outcome, seed: str, samples: tuple[bytes, ...], out: Path) -> None:
    """Keep a file that failed, and print how to reproduce it."""
    out.mkdir(parents=True, exist_ok=True)
    made = fuzzed(seed, outcome.number, samples)
    (out / f"{seed}-{made.number}-{made.name}").write_bytes(made.content)
    print(json.dumps({"benchmark": "fuzz_failure", "seed": seed} | asdict(outcome)), flush=True)


def samples_in(folder: Path | None) -> tuple[bytes, ...]:
    """Read the beginnings of real tables, to be changed here and there."""
    if folder is None:
        return ()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(path.read_bytes()[: 1 << 14] for path in paths)


def main() -> None:
    """Make, examine, report; exit 1 if a file failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so long")
    parser.add_argument("--seconds", type=float, default=20, help="limit for one file")
    parser.add_argument("--memory-gb", type=float, default=2, help="limit for the process")
    parser.add_argument("--real", type=Path, help="folder of tables to change here and there")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()
    samples = samples_in(options.real)
    worker = Worker(options.seed, int(options.memory_gb * 1e9), options.seconds, samples)
    stop, outcomes = perf_counter() + 60 * options.minutes, list[Outcome]()
    for number in range(options.first, options.first + options.files):
        if perf_counter() > stop:
            break
        outcomes.append(worker.examine(number))
        if outcomes[-1].kind == "failed":
            keep(outcomes[-1], options.seed, samples, options.out)
    worker.close()
    report(outcomes, options.seed)
    sys.exit(any(outcome.kind == "failed" for outcome in outcomes))


if __name__ == "__main__":
    main()
