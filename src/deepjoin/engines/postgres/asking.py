"""Ask one server for the vectors nearest to a query, of all segments in one statement.

A part with an index is asked for as many as are wanted and as may be out of the lake; if the
index gives too few that are still in it, more are asked for, and at last all are compared. A part
without one is compared as a whole, and asked again until what comes last is no longer as near as
the last one wanted: so nothing is missed that single precision cannot tell from it. Of codes, all
are compared, and many more taken than are wanted, among which the distances then tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.engines.postgres.codes import Code, bits_of
from deepjoin.engines.postgres.connections import ANSWERING, Server
from deepjoin.engines.postgres.extension import Extension
from deepjoin.engines.postgres.rows import Vector
from deepjoin.engines.postgres.schema import Part

if TYPE_CHECKING:
    from psycopg import Connection

Float = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]

#: Asked for beyond what is wanted: they may be as near as the last, or nearer by exact distance.
_MORE = 32
#: The most that a search of the index keeps, and the most it gives where it can go on by itself.
GRAPH_EFFORT, _MOST_ITERATING = 1_000, 16_000
#: Codes taken for each column that is wanted, at least.
_CODES_EACH = 16
#: How far single precision may be from the distance itself.
_SLACK = 3e-5


class Found(NamedTuple):
    """A vector that was found: its columns, from the lowest on, and its rough distance."""

    columns: Sequence[int]
    distance: float


@dataclass(frozen=True)
class Ask:
    """What is asked of one part, until it has given enough."""

    part: Part
    k: int
    excluded: Marks | None
    limit: int
    #: How many at most can be had of the index; all are compared beyond.
    most: int
    exact: bool = False

    @classmethod
    def of(cls, part: Part, k: int, excluded: Marks | None, extension: Extension) -> Ask:
        """Begin with as many as are wanted, and as many as may have to be left out."""
        dead = 0 if excluded is None else int(excluded.sum())
        most = _MOST_ITERATING if extension.iterates else GRAPH_EFFORT
        if part.coded:
            wanted = max(part.effort, _CODES_EACH * k)
            return cls(part, wanted // 2, excluded, wanted + min(dead, wanted), most)
        if not part.indexed or k > most:
            return cls(part, k, excluded, k + dead + _MORE, most, exact=True)
        return cls(part, k, excluded, min(k + dead + _MORE, max(part.effort, k)), most)

    def again(self, found: Sequence[Found]) -> Ask | None:
        """Say what to ask next; None where this is enough."""
        if len(found) >= self.part.vectors:
            return None
        live, last = self._live(found)
        if self.exact:
            near = last is None or found[-1].distance <= last + _SLACK * (1 + abs(last))
            return replace(self, limit=4 * self.limit) if near else None
        if live >= self.k:
            return None
        if self.part.coded:
            return replace(self, limit=4 * self.limit)
        if len(found) < self.limit or self.limit >= self.most:
            dead = 0 if self.excluded is None else int(self.excluded.sum())
            return replace(self, limit=self.k + dead + _MORE, exact=True)
        return replace(self, limit=min(self.most, 4 * self.limit))

    def _live(self, found: Iterable[Found]) -> tuple[int, float | None]:
        """Count the columns of the lake among those found, and see how far the last wanted is."""
        live = 0
        for one in found:
            marks = self.excluded
            live += sum(marks is None or not marks[column] for column in one.columns)
            if live >= self.k:
                return live, one.distance
        return live, None

    def sql(self, number: int, extension: Extension) -> str:
        """Write the question."""
        distance = self._distance(extension)
        return (
            f"(SELECT {number} AS n, first, members, {distance} AS distance FROM {self.part.table} "
            f"ORDER BY {distance} LIMIT {self.limit})"
        )

    def _distance(self, extension: Extension) -> str:
        """Write the distance; an expression other than the index's own compares all."""
        if self.part.coded:
            return extension.differing("v", f"%(code)s::bit({bits_of(self.part.dimension)})")
        wide, operator = extension.name("vector"), extension.operator(self.part.metric)
        if not self.exact:
            asked = f"%(vector)s::{wide}::{extension.name(self.part.kind)}"
            return f"v {operator} ({asked})"
        # A vector of zeros is like nothing.
        return f"coalesce(nullif(v::{wide} {operator} (%(vector)s::{wide}), 'NaN'), 1)"


class Shard:
    """What one server holds of the segments of a lake in one space."""

    def __init__(self, server: Server, extension: Extension, parts: Sequence[Part]) -> None:
        self._server, self._extension, self._parts = server, extension, parts

    def near(
        self, vector: Float, k: int, excluded: Sequence[Marks | None]
    ) -> list[Sequence[Found]]:
        """Return of each segment what is nearest here, enough of it for k columns."""
        asked = {
            number: Ask.of(part, k, marks, self._extension)
            for number, (part, marks) in enumerate(zip(self._parts, excluded, strict=True))
            if part.vectors
        }
        found: dict[int, list[Found]] = {number: [] for number in range(len(self._parts))}
        while asked:
            found |= self._answered(vector, asked)
            next_ones = {number: ask.again(found[number]) for number, ask in asked.items()}
            asked = {number: ask for number, ask in next_ones.items() if ask is not None}
        return [found[number] for number in range(len(self._parts))]

    def _answered(self, vector: Float, asked: Mapping[int, Ask]) -> dict[int, list[Found]]:
        sql = " UNION ALL ".join(ask.sql(n, self._extension) for n, ask in asked.items())
        settings = self._settings(asked.values())
        rows = self._server.ask(lambda connection: self._rows(connection, settings, sql, vector))
        found: dict[int, list[Found]] = {number: [] for number in asked}
        for number, first, members, distance in rows:
            found[number].append(Found(members or (first,), distance))
        for some in found.values():
            some.sort(key=lambda one: one.distance)
        return found

    def _settings(self, asked: Iterable[Ask]) -> str:
        """Write the settings of one transaction: how hard to search, and for how long."""
        efforts = [
            max(ask.part.effort, ask.limit) for ask in asked if not (ask.exact or ask.part.coded)
        ]
        chosen = {
            "statement_timeout": 1000 * ANSWERING,
            # The index is there to be used, whatever it is thought to cost.
            "enable_seqscan": "off" if efforts else "on",
            "jit": "off",
            "hnsw.ef_search": min(GRAPH_EFFORT, max(efforts, default=GRAPH_EFFORT)),
        }
        if self._extension.iterates:
            chosen |= {"hnsw.iterative_scan": "strict_order"}
        return "SELECT " + ", ".join(
            f"set_config('{name}', '{value}', true)" for name, value in chosen.items()
        )

    def _rows(
        self, connection: Connection[Any], settings: str, sql: str, vector: Float
    ) -> list[tuple[Any, ...]]:
        """Ask within one transaction, sent at once: poolers keep no settings."""
        coded = any(part.coded for part in self._parts)
        sent = {"vector": Vector(vector)} | ({"code": Code(vector)} if coded else {})
        with connection.pipeline(), connection.transaction():
            connection.execute(settings.encode())
            cursor = connection.execute(sql.encode(), sent, binary=True)
        return cursor.fetchall()
