"""Joins as callers ask for them: of two tables, or of a table and a column of an index."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError, UnknownName, unknown_name
from deepjoin.joining.plan import JoinPlan, plan_join
from deepjoin.joining.tables import JoinSide
from deepjoin.matching.decisions import Decisions
from deepjoin.matching.values import SemanticMatching
from deepjoin.model import Hit, Table
from deepjoin.optional import FRAMES, as_frame
from deepjoin.progress import Progress, no_progress
from deepjoin.read.frames import file_table, frame_table
from deepjoin.read.sql import duckdb_scan
from deepjoin.search.tuples import check_key
from deepjoin.settings import JoinSettings, with_deprecated
from deepjoin.store.models import cell_encoder
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.origin import TableOrigin

JOINS = ("any", "equi", "semantic")
#: A table of a lake and the column, or the columns, to join on.
KeyTarget = tuple[str, str] | tuple[str, Sequence[str]]
#: Fields of `JoinSettings` that `join` and `plan_join` also take as keywords.
KEYWORDS = ("columns", "aggregate")


class JoinWarning(UserWarning):
    """Something to know about a join: more rows than before, ambiguous matches, renamed columns."""


def join(
    left: object,
    right: object,
    on: str | tuple[str, str] | tuple[Sequence[str], Sequence[str]],
    *,
    how: str = "left",
    many: str = "expand",
    join: str = "any",
    settings: JoinSettings | None = None,
    **options: Any,
) -> Any:
    """Join two tables without a lake; the result is a frame of the kind of ``left``.

    >>> orders = {"country": ["France", "Peru"], "amount": [5, 7]}
    >>> capitals = {"name": ["FRANCE", "Peru"], "capital": ["Paris", "Lima"]}
    >>> join(orders, capitals, on=("country", "name"), columns=["capital"]).to_pydict()
    {'country': ['France', 'Peru'], 'amount': [5, 7], 'capital': ['Paris', 'Lima']}

    Parameters
    ----------
    left, right
        Data frames, Arrow tables, dicts of columns, or paths of files.
    on
        The key column, or a pair of names if the tables call it differently; for a key of several
        columns, a pair of lists: (["year", "team"], ["yearID", "teamID"]).
    how
        "left" keeps the left rows without a match, "inner" does not.
    many
        Several matching rows: "expand" to all, the "first", or "aggregate" them to one.
    join
        "equi" for equal values, "semantic" for values that mean the same, "any" for equal values
        and, for the rest, similar ones.
    settings
        Which columns to bring, how to aggregate, how values are matched.
    **options
        ``columns`` and ``aggregate`` of `JoinSettings`, for short.
    """
    chosen = with_deprecated("join", settings, JoinSettings, options, KEYWORDS)
    keys = (on, on) if isinstance(on, str) else on
    if not isinstance(keys, Sequence) or len(keys) != 2:
        raise DeepJoinError(
            f"`on` is {on!r}; it must be the name of a column, or a pair: (left name, right name)."
        )
    mine, theirs = matched_keys(*keys)
    sides = side_of(left, mine, "left"), side_of(right, theirs, "right")
    semantic = matching_of(None, join, chosen, load_cell_encoder)
    with plan_join(*sides, how=how, many=many, semantic=semantic, settings=chosen) as plan:
        return joined_frame(plan, left)


def plan_index_join(
    index: OpenIndex,
    sides: tuple[object, str | Sequence[str], Hit | KeyTarget],
    *,
    how: str,
    many: str,
    join: str | None,
    settings: JoinSettings,
    progress: Progress | None,
) -> JoinPlan:
    """Plan the join of a table and its key with a hit, or a pair of table and key."""
    left, on, hit = sides

    def encoder() -> CellEncoder | None:
        return cell_encoder(index.vectors.cells, index.path)

    semantic = matching_of(hit, join, settings, encoder, progress)
    table, named = (hit.table, hit.columns) if isinstance(hit, Hit) else hit
    mine_key, columns = matched_keys(on, named)
    known = {one.name for one in index.table(table).columns}
    if isinstance(left, str) and not Path(left).exists() and left in index:
        left = index.origin(left).table()
    mine = side_of(left, mine_key, "query")
    origin = index.origin(table)
    if isinstance(hit, Hit):
        columns = (origin.key(columns[0], hit.column_id), *columns[1:])
    try:
        right = origin_side(origin, columns)
        _check_key(right)
    except UnknownName as error:
        hint = " It has changed since it was indexed: run deepjoin index again."
        raise UnknownName(f"{error}{hint if known.issuperset(columns) else ''}") from None
    kind = {"how": how, "many": many, "profile": index.settings.profile}
    plan = plan_join(mine, right, **kind, semantic=semantic, settings=settings)
    if origin.has_changed:
        changed = f"{table} has changed since it was indexed: run deepjoin index again."
        plan.warnings = (*plan.warnings, changed)
    return plan


def matched_keys(
    on: str | Sequence[str], theirs: str | Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check that two keys have as many columns, and return them."""
    mine, other = ((key,) if isinstance(key, str) else tuple(key) for key in (on, theirs))
    check_key(mine)
    check_key(other, "The key of the other table")
    if len(mine) != len(other):
        raise DeepJoinError(
            f"`on` names {_counted(mine)} and the hit joins on {_counted(other)}. Name one column "
            "for each, in the same order."
        )
    return mine, other


def _counted(names: Sequence[str]) -> str:
    word = "column" if len(names) == 1 else "columns"
    return f"{len(names)} {word} ({', '.join(names)})"


def matching_of(
    hit: object,
    join: str | None,
    settings: JoinSettings,
    encoder: Callable[[], CellEncoder | None],
    progress: Progress | None = None,
) -> SemanticMatching | None:
    """Return how to match values that are not equal; None for equal values only.

    A hit joins as it was found: with its own kind of join and its threshold. A pair that was
    named by hand joins equal values and, where there are cell vectors, similar ones.
    """
    if join not in (None, *JOINS):
        raise unknown_name("join kind", str(join), "a join", JOINS)
    found: Any = getattr(hit, "semantic", None)
    if join is None:
        join = getattr(hit, "join", "any")
        if isinstance(hit, Hit) and found is None:
            join = "equi"
    judged = settings.precision is not None or settings.decisions is not None
    if judged and (join != "any" or settings.tau is not None or settings.matching != "best"):
        raise DeepJoinError(
            '`precision` and `decisions` are for joins of the kind `join="any"`, without `tau` and '
            "`matching`."
        )
    if join == "equi":
        if settings.tau is not None or settings.matching != "best":
            raise DeepJoinError(
                "`tau` and `matching` are for similar values, and this join compares equal ones. "
                'Leave them out, or use `join="any"`.'
            )
        return None
    of_index = encoder()
    if of_index is None and join == "any" and not judged:
        return None
    encode = of_index or load_cell_encoder()
    tau = settings.tau
    if tau is None and found is not None and not judged:
        tau = found.tau
    # A threshold or a way to match that somebody chose is taken literally.
    careful = join == "any" and tau in (None, encode.tau) and settings.matching == "best"
    how = encode, tau, settings.matching, progress or no_progress, join, careful
    return SemanticMatching(*how, settings.precision, Decisions.of(settings.decisions))


def side_of(given: object, key: str | tuple[str, ...], name: str) -> JoinSide:
    """Take a table of the caller: a path, a data frame, an Arrow table, a `Table`, a `JoinSide`."""
    if isinstance(given, JoinSide):
        return given
    if isinstance(given, Table):
        return JoinSide(given, key)
    if not isinstance(given, str | os.PathLike):
        return JoinSide(frame_table(given, name), key)
    path = Path(given).expanduser()
    return JoinSide(file_table(path), key, duckdb_scan(path))


def origin_side(origin: TableOrigin, column: str | tuple[str, ...]) -> JoinSide:
    """Open a table of the lake at its source."""
    path = origin.path()
    return JoinSide(origin.table(), column, duckdb_scan(path) if path else None)


def _check_key(side: JoinSide) -> None:
    """Check that a table still has its key columns, before anything is planned."""
    names: dict[str, None] = {}
    reading = side.table.open()
    if reading.memory:  # even one batch takes it; the join looks whether it may
        return
    # JSON lines may have the column in a later batch only.
    for batch in reading:
        names |= dict.fromkeys(batch.schema.names)
        if names.keys() >= set(side.keys):
            return
    missing = next(key for key in side.keys if key not in names)
    raise unknown_name("column", missing, side.table.name, names)


def joined_frame(plan: JoinPlan, given: object) -> Any:
    """Run a join into the kind of frame that was given, after Python warnings of what to know."""
    for text in plan.warnings:
        warnings.warn(text, JoinWarning, stacklevel=3)
    library = type(given).__module__.partition(".")[0]
    return as_frame(plan.to_arrow(), library if library in FRAMES else "arrow")
