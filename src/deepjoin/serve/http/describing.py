"""Tables as the service describes them: columns with types and samples, best keys first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepjoin.lake import Lake
from deepjoin.model import ColumnDescription, to_json
from deepjoin.store.describing import best_keys, column_facts
from deepjoin.store.origin import root_of

_LONGEST = 80

Described = dict[str, Any]


def table_detail(lake: Lake, name: str) -> Described:
    """Describe a table of the lake from what the index holds; its file is not opened."""
    entry, facts = lake.table(name), list(column_facts(lake.index, name))
    sample = [{column: row.get(column) for column in row} for row in entry.sample]
    return detail_of(entry.name, entry.title, entry.rows, facts, sample, entry.notes) | {
        "context": entry.context,
        "source": _source(lake, name),
    }


def detail_of(
    name: str,
    title: str,
    rows: int,
    facts: Sequence[ColumnDescription],
    sample: Sequence[dict[str, str | None]],
    notes: Sequence[str],
) -> Described:
    """Put together what is known of a table, its best keys in order."""
    return {
        "name": name,
        "title": title,
        "context": "",
        "rows": rows,
        "source": "",
        "notes": list(notes),
        "columns": [_column(one) for one in facts],
        "best_keys": [one.name for one in best_keys(facts)],
        "sample": list(sample),
    }


def _column(facts: ColumnDescription) -> Described:
    """Give a column as JSON has it."""
    fields: Described = to_json(facts)
    return fields | {"samples": [shortened(one) for one in facts.samples]}


def _source(lake: Lake, name: str) -> str:
    described = lake.index.source_of(name)
    root = root_of(described, lake.path)
    return str(described.get("url") or root or described["kind"])


def shortened(cell: str) -> str:
    """Cut a cell to what a card has room for."""
    return cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…"
