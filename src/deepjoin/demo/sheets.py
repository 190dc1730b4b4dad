"""A demo table and the bytes of its file: CSV, TSV, gzip, Parquet or JSON lines."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

Cell = str | int | float | datetime.date | None


@dataclass(frozen=True)
class Sheet:
    """A table of the demo lake; the ending of its name picks the file format."""

    name: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    delimiter: str = ","
    encoding: str = "utf-8"
    newline: str = "\n"
    preamble: str = ""


def records(text: str) -> list[list[str]]:
    r"""Split facts kept one a line with bars between the fields.

    >>> records("Paris | FR \n Rome|IT")
    [['Paris', 'FR'], ['Rome', 'IT']]
    """
    return [[field.strip() for field in line.split("|")] for line in text.strip().splitlines()]


def file_bytes(sheet: Sheet) -> bytes:
    """Encode a sheet; the same sheet gives the same bytes every time."""
    if sheet.name.endswith(".parquet"):
        return _parquet(sheet)
    if sheet.name.endswith(".jsonl"):
        return _json_lines(sheet)
    if sheet.name.endswith(".gz"):
        # The time in a gzip header would make every write differ.
        return gzip.compress(_delimited(sheet), mtime=0)
    return _delimited(sheet)


def _delimited(sheet: Sheet) -> bytes:
    delimiter = "\t" if sheet.name.endswith(".tsv") else sheet.delimiter
    text = io.StringIO()
    if sheet.preamble:
        text.write(sheet.preamble + sheet.newline)
    writer = csv.writer(text, delimiter=delimiter, lineterminator=sheet.newline)
    writer.writerow(sheet.header)
    writer.writerows(sheet.rows)
    return text.getvalue().encode(sheet.encoding)


def _json_lines(sheet: Sheet) -> bytes:
    lines = []
    for row in sheet.rows:
        fields = {name: cell for name, cell in zip(sheet.header, row, strict=True) if cell != ""}
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def _parquet(sheet: Sheet) -> bytes:
    columns = zip(*sheet.rows, strict=True)
    table = pa.table({name: list(cells) for name, cells in zip(sheet.header, columns, strict=True)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
