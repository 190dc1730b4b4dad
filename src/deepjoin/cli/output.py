"""What commands write for a person: messages and a progress bar on stderr, sizes, rows.

Results go to stdout, everything else to stderr, so that a pipe gets nothing but results.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deepjoin.progress import Progress, no_progress
from deepjoin.show.text import aligned, printable
from deepjoin.show.wording import in_options

if TYPE_CHECKING:
    from deepjoin.lake import Lake

#: What a bar counts, by the name of the work; tables for any other name.
_UNITS = {"values": "values", "columns": "columns", "sketches": "columns", "vectors": "vectors"}


def say(text: str) -> None:
    """Write a message to stderr; arguments of Python in it become options."""
    print(printable(in_options(text)), file=sys.stderr)


def human_size(size: float) -> str:
    """Write a number of bytes for people.

    >>> human_size(512), human_size(3_400_000)
    ('512 B', '3.2 MB')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def print_tables(what: str, names: Sequence[str], lake: Lake, form: str) -> None:
    """List tables that were added or removed."""
    if form == "json":
        print(json.dumps({"index": str(lake.location), "tables": list(names)}, ensure_ascii=False))
    else:
        for name in names:
            print(printable(name))
    say(
        f"{what} {len(names):,} {'table' if len(names) == 1 else 'tables'}; "
        f"{lake.location} now has {lake.report.tables:,}."
    )


def print_records(records: Sequence[dict[str, Any]], names: Sequence[str], form: str) -> None:
    """Print rows as JSON, CSV or an aligned table."""
    if form == "json":
        print(json.dumps(records, ensure_ascii=False, default=str))
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows(record.values() for record in records)
    else:
        cells = [["" if v is None else str(v) for v in record.values()] for record in records]
        print(aligned([list(names), *cells], widest=24))


def left_out_lines(lake: Lake, named: int = 5) -> Iterator[str]:
    """Describe what is not in the index, and why."""
    report = lake.report
    if report.left_out:
        reasons = ", ".join(
            f"{count:,} {reason}" for reason, count in report.left_out.most_common()
        )
        yield f"Columns left out: {reasons}."
    if report.notes:
        repaired = len({table for table, _ in report.notes})
        yield f"Repaired while reading: {repaired:,}; see: deepjoin info {lake.location}"
    if report.skipped:
        yield f"Not read: {len(report.skipped):,}."
        for one in report.skipped[:named]:
            yield f"  {one.name}: {one.reason}"
        if len(report.skipped) > named:
            yield f"  and {len(report.skipped) - named:,} more; see: deepjoin info {lake.location}"


def described_vectors(lake: Lake) -> str:
    """Name the encoders of cells and columns, and the size of sketches."""
    chosen = lake.vectors
    return f"cells by {chosen.cells}, columns by {chosen.encoder}, " + (
        f"sketches of {chosen.sketch} numbers" if chosen.sketch else "no sketches"
    )


@contextmanager
def progress_bar(unit: str = "") -> Iterator[Progress]:
    """Show what is done, the rate and the time left; nothing where no terminal is watched.

    The bar begins with the first call and is redrawn with every other, also when only the name
    changes, as it does while a large table is being read. It counts ``unit``, or what the name
    of the work implies; with ``unit`` it closes when all is done, before results are printed.
    """
    bar: Any = None

    def show(done: int, total: int, name: str) -> None:
        nonlocal bar
        if bar is not None and done < bar.n:  # other work has begun
            bar.close()
            bar = None
        if bar is None:
            bar = make_bar(done, total, unit or _UNITS.get(name, "tables"))
        bar.total = total
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            columns = 80
        # A third of the line for the name leaves room for the bar.
        bar.set_postfix_str(shortened(printable(name), max(columns // 3, 12)), refresh=False)
        bar.update(done - bar.n)
        if unit and done >= total:
            bar.close()
            bar = None

    # A dumb terminal cannot write over a line.
    is_watched = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    try:
        yield show if is_watched else no_progress
    finally:
        if bar is not None:
            bar.close()


def make_bar(done: int, total: int, unit: str) -> Any:
    """Make a bar on stderr."""
    from tqdm import tqdm

    # Without smoothing, the rate is the mean of all work so far: one table may take longer than
    # thousands before it. With miniters=0, time alone decides when to redraw.
    return tqdm(
        initial=done,
        total=total,
        unit=f" {unit}",
        leave=False,
        dynamic_ncols=True,
        smoothing=0,
        miniters=0,
    )


def shortened(text: str, width: int) -> str:
    """Cut a text to a number of terminal columns; keep its end, which says most of a path.

    >>> shortened("geo/cities.csv", 9), shortened("日本/地名.csv", 9)
    ('…ties.csv', '…地名.csv')
    """
    if sum(map(_columns, text)) <= width:
        return text
    room, start = width - 1, len(text)
    while start and room >= _columns(text[start - 1]):
        start -= 1
        room -= _columns(text[start])
    while start < len(text) and not _columns(text[start]):  # an accent whose letter is cut off
        start += 1
    return "…" + text[start:]


def _columns(character: str) -> int:
    """Count the terminal columns that a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
