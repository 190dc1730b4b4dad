"""What a build found: how much was indexed, what was left out, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from deepjoin.arrays import Hashes, Marks, find_sorted
from deepjoin.checksums import read_verified
from deepjoin.read.source import Skipped
from deepjoin.store.ledger import passed_over
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import ColumnProfiles

REPORT = "report.json"


@dataclass
class BuildReport:
    """Counts and reasons; every table and column of the source is in one of them."""

    tables: int = 0
    columns: int = 0
    rows: int = 0
    cells: int = 0
    #: Columns not indexed, by kind of reason.
    left_out: Counter[str] = field(default_factory=Counter)
    #: Tables that were repaired while being read: (table, note).
    notes: list[tuple[str, str]] = field(default_factory=list)
    #: Files and sheets that were not read; the ledger stores these.
    skipped: list[Skipped] = field(default_factory=list)
    #: Counts the distinct values; called on demand, because many segments make it slow.
    count_values: Callable[[], int] = field(default=int, repr=False, compare=False)

    @property
    def values(self) -> int:
        """How many distinct values the lake has."""
        return self.count_values()

    def with_columns(self, profiles: ColumnProfiles, kept: Marks) -> BuildReport:
        """Add what the value index counted."""
        return replace(self, columns=int(kept.sum()), cells=int(profiles.present[kept].sum()))

    def saved(self, folder: Path) -> BuildReport:
        """Store the report beside what it reports on."""
        fields = {name: getattr(self, name) for name in _STORED}
        (folder / REPORT).write_text(json.dumps(fields, ensure_ascii=False), "utf-8")
        return self

    @classmethod
    def load(cls, folder: Path) -> BuildReport:
        """Read the stored report of a segment."""
        fields = json.loads(read_verified(folder / REPORT))
        fields["left_out"] = Counter(fields["left_out"])
        fields["notes"] = [(table, note) for table, note in fields["notes"]]
        return cls(**fields)


#: What a segment stores; the rest is of the whole lake.
_STORED = ("tables", "columns", "rows", "cells", "left_out", "notes")


def live_report(segment: Segment) -> BuildReport:
    """Report on the tables of a segment that are still part of the lake."""
    report = BuildReport.load(segment.folder)
    catalog = segment.catalog
    for number in segment.removed:
        entry = catalog.table(number)
        columns = catalog.columns_of(number)
        report.tables -= 1
        report.columns -= len(columns)
        report.rows -= entry.rows
        report.cells -= int(catalog.column_cells[columns].sum())
        report.left_out.subtract(c.left_out.split(" (")[0] for c in entry.columns if c.left_out)
    gone = {catalog.table_names[number] for number in segment.removed}
    report.notes = [(table, note) for table, note in report.notes if table not in gone]
    report.left_out = +report.left_out  # drops the reasons that are down to zero
    return report


def sum_of(reports: Sequence[BuildReport]) -> BuildReport:
    """Add reports up; notes come in the order of their tables."""
    total = BuildReport()
    for report in reports:
        total.tables += report.tables
        total.columns += report.columns
        total.rows += report.rows
        total.cells += report.cells
        total.left_out.update(report.left_out)
        total.notes += report.notes
    total.notes.sort(key=lambda note: note[0])
    return total


def lake_report(segments: Sequence[Segment]) -> BuildReport:
    """Report on a lake as it is now."""
    total = sum_of([live_report(segment) for segment in segments])
    total.count_values = cache(partial(_distinct_values, segments))
    total.skipped = passed_over([segment.ledger for segment in segments])
    return total


def _distinct_values(segments: Sequence[Segment]) -> int:
    """Count the distinct values of all live columns, by their hashes."""
    total = 0
    # Each segment has a value once, so only the segments before it can have it as well.
    seen: list[Hashes] = []
    for segment in segments:
        hashes = segment.live_hashes
        new = np.ones(len(hashes), bool)
        for earlier in seen:
            new &= find_sorted(earlier, hashes) < 0
        total += int(new.sum())
        seen.append(hashes)
    return total
