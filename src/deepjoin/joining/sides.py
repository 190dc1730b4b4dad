"""The two tables of a join: the user's, whatever it came as, and the lake's, from where it is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.joining import Semantic, Side
from deepjoin.model import Table
from deepjoin.read.frames import file_table, frame_table
from deepjoin.read.sql import duckdb_scan
from deepjoin.store.models import cell_encoder
from deepjoin.store.origin import TableOrigin

JOINS = ("equi", "semantic")


class JoinWarning(UserWarning):
    """Something about a join that its user should know: more rows than before, other names."""


def left_side(left: object, on: str) -> Side:
    """Take the user's table: a path, a data frame, an Arrow table, a `Table` or a side of it."""
    if isinstance(left, Side):
        return left
    if isinstance(left, Table):
        return Side(left, on)
    if not isinstance(left, str | os.PathLike):
        return Side(frame_table(left, "query"), on)
    path = Path(left).expanduser()
    return Side(file_table(path), on, duckdb_scan(path))


def right_side(origin: TableOrigin, column: str) -> Side:
    """Open a table of the lake where it was found."""
    path = origin.path()
    return Side(origin.table(), column, duckdb_scan(path) if path else None)


def semantic_or_equi(
    hit: object,
    join: str | None,
    tau: float | None,
    matching: str,
    progress: Callable[[int, int, str], None] | None,
    encoder: Callable[[], CellEncoder],
) -> Semantic | None:
    """Say how to match values that are not equal; None if they do not."""
    if join not in (None, *JOINS):
        raise unknown_name("join kind", str(join), "a join", JOINS)
    found = getattr(hit, "semantic", None)
    if join is None:
        join = "semantic" if _is_better(hit, found) else "equi"
    if join == "equi":
        if tau is not None or matching != "best":
            raise DeepJoinError(
                "tau and matching are for semantic joins; add join='semantic' (--join semantic)."
            )
        return None
    if tau is None and found is not None:
        tau = found.tau
    told = {} if progress is None else {"progress": progress}
    return Semantic(encoder(), tau, matching, **told)


def _is_better(hit: object, found: Any) -> bool:
    """Tell whether a hit has more matches by meaning than by equality."""
    if found is None or getattr(hit, "join", "equi") not in ("semantic", "any"):
        return False
    equi = getattr(hit, "equi", None)
    return equi is None or bool(equi.joinability < found.joinability)


def encoder_of(spec: str, folder: Path) -> CellEncoder:
    """Load the cell encoder of an index; one without vectors is joined by the default one's."""
    return cell_encoder(spec, folder) or load_cell_encoder()


def check_key(side: Side) -> None:
    """See that a table still has its key column, before anything is planned."""
    names: dict[str, None] = {}
    for batch in side.table.open():
        names |= dict.fromkeys(batch.schema.names)
        if side.key in names:
            return
    raise unknown_name("column", side.key, side.table.name, names)


def frame_like(given: object, joined: pa.Table) -> Any:
    """Return the result as the kind of frame the user works with."""
    library = type(given).__module__.partition(".")[0]
    if library == "pandas":
        return joined.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(joined)
    return joined


def warn(texts: Iterable[str]) -> None:
    """Say in Python's own way what the command line prints."""
    for text in texts:
        warnings.warn(text, JoinWarning, stacklevel=4)
