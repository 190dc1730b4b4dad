"""What people decided about pairs of values: a CSV of doubtful pairs to mark and to give back.

The file has the columns query, target, chance and decision; the decision is accept, reject, or
empty for a pair nobody has looked at. Values are compared as in equi-joins, so a decision holds
wherever the two values meet again.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.matching.linking import LinkOptions
from deepjoin.normalise.canonical import canonical
from deepjoin.show.text import plain_text

#: A CSV file, or tuples (query, target, whether it is right).
Given: TypeAlias = "str | os.PathLike[str] | Iterable[tuple[str, str, bool]]"

FIELDS = ("query", "target", "chance", "decision")
_WORDS = {
    **dict.fromkeys(("accept", "accepted", "yes", "y", "true", "1", "x"), True),
    **dict.fromkeys(("reject", "rejected", "no", "n", "false", "0"), False),
}
#: Chances between these are doubtful.
LOW, HIGH = 0.1, 0.9


@dataclass
class Decisions:
    """Pairs that were accepted or rejected, by their canonical values; the last decision counts."""

    pairs: dict[tuple[str, str], bool] = field(default_factory=dict)
    #: The pairs as they were given.
    spelled: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Given | None) -> Decisions:
        """Read decisions from a file, or take them from memory."""
        made = cls()
        if given is None:
            return made
        if isinstance(given, str | os.PathLike):
            made._read(Path(given).expanduser())
            return made
        if not isinstance(given, Iterable):
            raise DeepJoinError(
                f"`decisions` is {given!r}; it must be a CSV file or a list of "
                "(query, target, True or False)."
            )
        for one in given:
            if (
                not isinstance(one, Sequence)
                or isinstance(one, str)
                or len(one) != 3
                or not isinstance(one[2], bool | np.bool_)
            ):
                raise DeepJoinError(
                    f"`decisions` has {one!r}; each must be (query, target, True or False)."
                )
            made.add(str(one[0]), str(one[1]), bool(one[2]))
        return made

    def add(self, query: str, target: str, accept: bool) -> None:
        """Note a decision."""
        key = canonical(query), canonical(target)
        self.pairs[key], self.spelled[key] = accept, (query, target)

    def options(
        self, mine: Sequence[str], theirs: Sequence[str], precision: float | None = None
    ) -> LinkOptions:
        """Return what was decided about two lists of canonical values, by their places."""
        places = [{value: at for at, value in enumerate(side)} for side in (mine, theirs)]
        known: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for (one, other), accept in self.pairs.items():
            if one in places[0] and other in places[1]:
                known[accept].append((places[0][one], places[1][other]))
        return LinkOptions(precision, tuple(known[True]), frozenset(known[False]))

    def _read(self, path: Path) -> None:
        try:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                rows = csv.DictReader(lines)
                missing = [name for name in ("query", "target", "decision")
                           if name not in (rows.fieldnames or ())]  # fmt: skip
                if missing:
                    raise DeepJoinError(
                        f"{path} has no column {', '.join(missing)}; decisions need the columns "
                        "query, target and decision, as `doubtful` writes them."
                    )
                for row in rows:
                    word = (row["decision"] or "").strip().lower()
                    if word and word not in _WORDS:
                        raise DeepJoinError(
                            f"{path}, line {rows.line_num}: the decision is '{word}'; it must be "
                            "accept, reject or empty."
                        )
                    if word:
                        query, target = (row[side] or "" for side in ("query", "target"))
                        self.add(_read_back(query), _read_back(target), _WORDS[word])
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DeepJoinError(f"Cannot read the decisions in {path}: {reason}.") from None


def write_doubtful(
    pairs: Iterable[tuple[str, str, float]], path: Path, decisions: Decisions
) -> int:
    """Write doubtful pairs, likeliest first, after the decisions so far; return how many."""
    rows = [
        (*map(_written, decisions.spelled[key]), "", "accept" if accept else "reject")
        for key, accept in decisions.pairs.items()
    ]
    new = [pair for pair in dict.fromkeys(pairs) if LOW <= pair[2] < HIGH
           and (canonical(pair[0]), canonical(pair[1])) not in decisions.pairs]  # fmt: skip
    new.sort(key=lambda pair: -pair[2])
    with written_aside(path) as aside, aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows(rows)
        for query, target, chance in new:
            writer.writerow((_written(query), _written(target), f"{chance:.3f}", ""))
    return len(new)


def _written(cell: str) -> str:
    """Put a ``'`` before a cell that a spreadsheet would run, where people fill the file in."""
    return f"'{cell}" if _runs(cell) else cell


def _read_back(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _runs(cell) else cell


def _runs(cell: str) -> bool:
    """Check whether a cell is a formula, with any number of ``'`` before it."""
    bare = cell.lstrip("'")
    return plain_text(bare) != bare
