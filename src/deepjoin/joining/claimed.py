"""New files of an output folder, under names made of what a client or an agent asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepjoin.errors import DeepJoinError

_TRIES = 1000


@contextmanager
def claimed(folder: Path, name: str, form: str) -> Iterator[Path]:
    """Make an empty file under a free name, to be written; it goes again if that fails."""
    path = _free(folder, name, form)
    try:
        yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _free(folder: Path, name: str, form: str) -> Path:
    """Make an empty file under a free name; of a client's words, letters and digits are kept."""
    stem = re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-_")[:60] or "joined"
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
        f"The output folder has {_TRIES:,} files called '{stem}'; choose another name."
    )
