"""What a build found: how much was indexed, what was left out, and why."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.sources import Skipped
from deepjoin.values.profile import ColumnProfiles


@dataclass
class BuildReport:
    """Counts and reasons; every table and column of the source is in one of them."""

    tables: int = 0
    columns: int = 0
    values: int = 0
    rows: int = 0
    cells: int = 0
    #: Columns not indexed, by kind of reason.
    left_out: Counter[str] = field(default_factory=Counter)
    #: Files and sheets that were not read.
    skipped: list[Skipped] = field(default_factory=list)
    #: Tables that were mended while being read: (table, note).
    notes: list[tuple[str, str]] = field(default_factory=list)

    def with_columns(self, profiles: ColumnProfiles, kept: npt.NDArray[np.bool_]) -> BuildReport:
        """Add what the value index counted."""
        return replace(self, columns=int(kept.sum()), cells=int(profiles.present[kept].sum()))

    def save(self, folder: Path) -> None:
        """Store the report beside what it reports on."""
        fields = vars(self) | {"skipped": [vars(one) for one in self.skipped]}
        (folder / "report.json").write_text(json.dumps(fields, ensure_ascii=False), "utf-8")

    @classmethod
    def from_json(cls, text: bytes) -> BuildReport:
        """Read a stored report."""
        fields = json.loads(text)
        fields["left_out"] = Counter(fields["left_out"])
        fields["skipped"] = [Skipped(**one) for one in fields["skipped"]]
        fields["notes"] = [(table, note) for table, note in fields["notes"]]
        return cls(**fields)
