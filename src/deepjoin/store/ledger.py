"""The ledger: which items of the sources were read, as they were when they were read.

Every segment holds the entries it added; a later entry of an item replaces an earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.checksums import verify_file
from deepjoin.read.source import Skipped

LEDGER = "ledger.arrow"

_SCHEMA = pa.schema(
    {
        "source": pa.int32(),
        "item": pa.string(),
        "stamp": pa.string(),
        "digest": pa.string(),
        # JSON of what was passed over in the item, '' for nothing.
        "skipped": pa.string(),
        "gone": pa.bool_(),
    }
)


class Key(NamedTuple):
    """An item of the lake: the number of its source, and its name there."""

    source: int
    item: str


@dataclass(frozen=True)
class Entry:
    """What is remembered of one item; ``gone`` entries cover earlier ones of items that left."""

    key: Key
    stamp: str = ""
    digest: str = ""
    skipped: tuple[Skipped, ...] = ()
    gone: bool = False

    @classmethod
    def touched(cls, key: Key, stamp: str, before: Known) -> Entry:
        """Return the entry of an unchanged item under a new stamp."""
        return cls(key, stamp, before.digest, _from_json(before.skipped))


class Known(NamedTuple):
    """The latest entry of an item: the segment that has it, its row there, and its fields."""

    segment: int
    row: int
    stamp: str
    digest: str
    skipped: str

    @property
    def may_pass(self) -> bool:
        """Whether the item could not be read for a reason that may pass by itself."""
        # Most entries skip nothing, so their JSON is parsed only if a flag in it can be true.
        return "true]" in self.skipped and any(one.passing for one in _from_json(self.skipped))


def write_ledger(folder: Path, entries: Iterable[Entry]) -> None:
    """Store the entries of a segment, in order."""
    rows = [
        {
            "source": entry.key.source,
            "item": entry.key.item,
            "stamp": entry.stamp,
            "digest": entry.digest,
            "skipped": _to_json(entry.skipped),
            "gone": entry.gone,
        }
        for entry in entries
    ]
    with pa.ipc.new_file(str(folder / LEDGER), _SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))


def read_ledger(folder: Path) -> pa.Table:
    """Map the entries of a segment; they stay readable when the file is deleted."""
    with pa.memory_map(str(verify_file(folder / LEDGER))) as file:
        table = pa.ipc.open_file(file).read_all()
    if table.schema != _SCHEMA:
        raise ValueError(f"{LEDGER} is not what was written")
    table.validate(full=True)
    return table


def known_items(ledgers: Sequence[pa.Table]) -> dict[Key, Known]:
    """Find the latest entry of every item that is part of the lake."""
    known: dict[Key, Known] = {}
    for segment, ledger in enumerate(ledgers):
        columns = (column.to_pylist() for column in ledger.columns)
        for row, (source, item, *said, gone) in enumerate(zip(*columns, strict=True)):
            key = Key(source, item)
            # Removed and added again, so that items are in the order of their latest entries.
            known.pop(key, None)
            if not gone:
                known[key] = Known(segment, row, *said)
    return known


def rows_of(table: pa.Table, keys: Collection[Key]) -> list[int]:
    """Find the rows that a segment's ledger has for some items."""
    names = pa.array({key.item for key in keys}, pa.string())
    rows: list[int] = pc.indices_nonzero(pc.is_in(table["item"], names)).to_pylist()
    sources = table["source"].take(rows).to_pylist() if rows else []
    items = table["item"].take(rows).to_pylist() if rows else []
    wanted = set(keys)
    found = zip(rows, map(Key, sources, items), strict=True)
    return [row for row, key in found if key in wanted]


def passed_over(ledgers: Sequence[pa.Table]) -> list[Skipped]:
    """Collect what was passed over in the items of the lake, by name."""
    latest: dict[Key, str] = {}
    for table in ledgers:
        # Most items say nothing; only those that do, or once did, matter.
        if not latest:
            table = table.filter(pc.not_equal(table["skipped"], ""))
        columns = (table[name].to_pylist() for name in ("source", "item", "skipped"))
        for source, item, skipped in zip(*columns, strict=True):
            latest[Key(source, item)] = skipped
    found = [Skipped(*one) for text in latest.values() if text for one in json.loads(text)]
    return sorted(found, key=lambda one: one.name)


def _to_json(skipped: tuple[Skipped, ...]) -> str:
    if not skipped:
        return ""
    fields = [(one.name, one.reason, one.passing) for one in skipped]
    return json.dumps(fields, ensure_ascii=False)


def entries_of(table: pa.Table) -> list[Entry]:
    """Read the entries of a segment as they were written."""
    columns = (column.to_pylist() for column in table.columns)
    return [
        Entry(Key(source, item), stamp, digest, _from_json(skipped), gone)
        for source, item, stamp, digest, skipped, gone in zip(*columns, strict=True)
    ]


def _from_json(text: str) -> tuple[Skipped, ...]:
    return tuple(Skipped(*one) for one in json.loads(text)) if text else ()
