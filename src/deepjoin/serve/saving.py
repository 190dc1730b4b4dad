"""Save a joined table in the output folder, under a new name made of what the client sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan
from deepjoin.joining.output import JoinTooLarge
from deepjoin.joining.tables import table_suffix

_TRIES = 1000


class JoinLimits(NamedTuple):
    """How large a joined table may be."""

    rows: int
    bytes: int


def joined_name(left: str, right: str) -> str:
    """Name the file of a join after its tables, in letters and digits that any system takes.

    >>> joined_name("my orders.csv", "geo/countries.csv.gz")
    'my_orders-joined-with-countries'
    """
    return file_stem(f"{table_suffix(left)} joined with {table_suffix(right)}", 120)


def check_rows(plan: JoinPlan, most: int) -> None:
    """Refuse a join with too many rows before it runs."""
    rows = plan.facts.result_rows
    if rows > most:
        raise JoinTooLarge(
            f"The joined table has {rows:,} rows; the limit is {most:,}. Where several rows match, "
            'keep the first (`many="first"`) or one summary row (`many="aggregate"`).'
        )


def save_join(
    plan: JoinPlan, folder: Path, name: str, form: str, neutralise: bool, most: JoinLimits
) -> tuple[Path, int]:
    """Run a join into a new file and return its path and its rows; never replace a file."""
    check_rows(plan, most.rows)
    path = _new_file(folder, name, form)
    try:
        return path, (plan.neutralised() if neutralise else plan).write(path, most.bytes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _new_file(folder: Path, name: str, form: str) -> Path:
    """Create an empty file under a free name, so that nobody else can take the name meanwhile."""
    stem = file_stem(name)
    for number in range(_TRIES):
        path = folder / f"{stem}{f'-{number}' if number else ''}.{form}"
        try:
            path.open("xb").close()
        except FileExistsError:
            continue
        except OSError as error:
            raise DeepJoinError(f"Cannot write into the output folder: {error.strerror}.") from None
        return path
    raise DeepJoinError(
        f"The output folder has {_TRIES:,} files named '{stem}'; choose another name."
    )


def file_stem(name: str, most: int = 60) -> str:
    """Keep letters and digits of what a client sends: no path, no hidden file."""
    return re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-_")[:most] or "joined"
