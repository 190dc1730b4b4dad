"""The demo as it runs: a join by equal cells, and one where no cell is equal."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from deepjoin.cli import main
from deepjoin.demo.facts import without_legal_form
from deepjoin.normalise.canonical import canonical


@pytest.mark.slow
def test_the_demo_joins_by_equality_and_by_meaning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "--with geo/countries.csv:country --join equi" in told
    assert "--with sales/crm_export.csv:Client --join semantic" in told
    with (tmp_path / "orders-with-clients.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert all(0.65 <= float(row["similarity"]) < 1 for row in rows)
    for row in rows:
        assert canonical(row["Client"]) == canonical(without_legal_form(row["customer"]))
