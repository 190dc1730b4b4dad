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
    """A table of the demo lake; its file name extension selects the format."""

    name: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    delimiter: str = ","
    encoding: str = "utf-8"
    newline: str = "\n"
    preamble: str = ""

    def file_bytes(self) -> bytes:
        """Encode the sheet; the same sheet gives the same bytes every time."""
        if self.name.endswith(".parquet"):
            columns = [list(cells) for cells in zip(*self.rows, strict=True)]
            sink = io.BytesIO()
            pq.write_table(pa.table(columns, names=list(self.header)), sink)
            return sink.getvalue()
        if self.name.endswith(".jsonl"):
            rows = [zip(self.header, row, strict=True) for row in self.rows]
            fields = [{name: cell for name, cell in row if cell != ""} for row in rows]
            return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in fields).encode()
        if self.name.endswith(".gz"):
            # The time in a gzip header would make every write differ.
            return gzip.compress(self._delimited(), mtime=0)
        return self._delimited()

    def _delimited(self) -> bytes:
        text = io.StringIO()
        if self.preamble:
            text.write(self.preamble + self.newline)
        delimiter = "\t" if self.name.endswith(".tsv") else self.delimiter
        writer = csv.writer(text, delimiter=delimiter, lineterminator=self.newline)
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return text.getvalue().encode(self.encoding)
