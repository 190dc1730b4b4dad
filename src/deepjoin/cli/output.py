"""What commands write for a person: messages and a progress bar on stderr, sizes, rows.

Results go to stdout, everything else to stderr, so that a pipe gets nothing but results.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deepjoin.progress import UNITS, Progress, no_progress
from deepjoin.show.text import Screen, aligned, count, cut, one_line, printable, text_width
from deepjoin.show.wording import in_options

if TYPE_CHECKING:
    from deepjoin.lake import Lake

#: From this number on, a bar abbreviates.
_LARGE = 10_000
#: Columns of a terminal that a cell of a joined table needs.
_LEAST_CELL = 12


#: Colours of the words that messages begin with.
_PREFIXES = {"deepjoin": "red", "warning": "yellow"}


def say(text: str) -> None:
    """Write a message to stderr, above a bar; arguments of Python in it become options."""
    prefix, colon, rest = printable(in_options(text)).partition(":")
    prefix = Screen.of(sys.stderr).paint(prefix, _PREFIXES.get(prefix.split(" ")[0], ""))
    line = f"{prefix}{colon}{rest}"
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)


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


def print_json(content: Any) -> None:
    """Print an answer for programs."""
    print(json.dumps(content, ensure_ascii=False, default=str))


def print_tables(what: str, names: Sequence[str], lake: Lake, form: str) -> None:
    """List tables that were added or removed."""
    if form == "json":
        print_json({"index": str(lake.location), "tables": list(names)})
    else:
        for name in names:
            print(printable(name))
    counted = count(len(names), "table")
    say(f"{what} {counted}; {lake.location} now has {lake.report.tables:,}.")


def print_records(records: Sequence[dict[str, Any]], names: Sequence[str], form: str) -> None:
    """Print rows as JSON, CSV or an aligned table."""
    if form == "json":
        print_json(records)
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows(record.values() for record in records)
    else:
        cells = [
            ["" if value is None else one_line(str(value)) for value in record.values()]
            for record in records
        ]
        screen = Screen.of(sys.stdout)
        shown = _columns_that_fit([names, *cells], screen)
        print(aligned([row[:shown] for row in [names, *cells]], screen, last="name"))
        if shown < len(names):
            say(f"{len(names) - shown:,} more columns; -o and --format csv have all of them.")


def _columns_that_fit(rows: Sequence[Sequence[str]], screen: Screen) -> int:
    """Count the columns that a terminal has room for, cells cut to a readable width."""
    if not screen.is_terminal or screen.width is None:
        return len(rows[0])
    room, count = screen.width, 0
    for column in zip(*rows, strict=True):
        room -= min(max(map(text_width, column)), _LEAST_CELL) + 2
        count += room >= -2
    return max(count, 1)


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
    of the work implies: a new bar begins when that changes, so that every rate is of one unit.
    With ``unit`` it closes when all is done, before results are printed.
    """
    bar: Any = None
    counted = ""

    def show(done: int, total: int, name: str) -> None:
        nonlocal bar, counted
        before, counted = counted, unit or UNITS.get(name, "tables")
        if bar is not None and (done < bar.n or counted != before):  # other work has begun
            bar.close()
            bar = None
        if bar is None:
            bar = make_bar(done, total, counted)
        bar.total = total
        # A third of the line for the name leaves room for the bar; the end of a path says most.
        room = max((Screen.of(sys.stderr).width or 80) // 3, 12)
        bar.set_postfix_str(cut(printable(name), room, -1), refresh=False)
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
    # thousands before it. With miniters=0, time alone decides when to redraw. Large
    # numbers are written as 1.2M.
    return tqdm(
        initial=done,
        total=total,
        unit="B" if unit == "bytes" else f" {unit}",
        unit_scale=unit == "bytes" or total >= _LARGE,
        unit_divisor=1024 if unit == "bytes" else 1000,
        leave=False,
        dynamic_ncols=True,
        smoothing=0,
        miniters=0,
    )


def say_doubtful(file: str) -> None:
    """Say where doubtful pairs are, and what to do with them."""
    say(
        f"doubtful pairs are in {file}; write accept or reject beside them, then give it back: "
        f"--decisions {file}"
    )
