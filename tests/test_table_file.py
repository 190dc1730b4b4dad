"""Writing tables that are in memory."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest

from deepjoin.errors import DeepJoinError
from deepjoin.joining.output import write_table


def test_csv_of_all_types_and_without_formulas(tmp_path: Path) -> None:
    cells = ["=1+1", "-5", None, "plain", "\uff1d1"]
    table = pa.table(
        {
            "=name": cells,
            "n": [1, None, 3, 4, 5],
            "list": [[1], None, [], [2, 3], [4]],
            "coded": pa.array(cells).dictionary_encode(),
            "view": pa.array(cells, pa.string_view()),
        }
    )
    write_table(table, tmp_path / "given.csv")
    write_table(table, tmp_path / "safe.csv", neutralise=True)
    given, safe = (
        list(csv.reader((tmp_path / f"{name}.csv").read_text("utf-8").splitlines()))
        for name in ("given", "safe")
    )
    assert given[0] == table.column_names
    assert given[1] == ["=1+1", "1", "[1]", "=1+1", "=1+1"] and given[3][2] == "[]"
    assert safe[0][0] == "'=name"
    assert [row[0] for row in safe[1:]] == ["'=1+1", "-5", "", "plain", "'\uff1d1"]
    assert safe[1][3:] == ["'=1+1", "'=1+1"]
    with pytest.raises(DeepJoinError, match=r"^Cannot write x.xlsx: an enriched table is"):
        write_table(table, tmp_path / "x.xlsx")
