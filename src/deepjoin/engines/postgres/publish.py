"""Copy the column vectors of a lake into PostgreSQL, and take out those it no longer has.

A run holds the lake's name on all servers from beginning to end. What it puts in is seen by
searches only when everything is there, on all of them; what no lake uses any more is dropped after
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from deepjoin.engines.postgres import settling
from deepjoin.engines.postgres.connections import Server
from deepjoin.engines.postgres.how import How
from deepjoin.engines.postgres.loading import Count, Loading, Progress
from deepjoin.engines.postgres.pieces import Grouping, Piece
from deepjoin.engines.postgres.schema import parts_of, prepare
from deepjoin.engines.postgres.shares import assigned, completed
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from psycopg import Connection

Done = TypeVar("Done")


@dataclass(frozen=True)
class Published:
    """What was done, summed up over the servers."""

    lake: str
    #: Segments there now, counted in each space; those that were sent, and those taken out.
    parts: int
    sent: int
    removed: int
    #: Different vectors sent.
    vectors: int
    #: What the lake takes there, with its indexes.
    bytes: int


def publish(
    servers: Sequence[Server],
    lake: tuple[str, str],
    pieces: Sequence[Piece],
    how: How,
    progress: Progress,
) -> Published:
    """Make servers hold the vectors of a lake, which has a name and a location, and no others."""
    count = Count(len(servers) * sum(len(piece.vectors.rows) for piece in pieces), progress)
    work, grouping = _Work(lake, pieces, how), Grouping()
    with _sessions(servers, lake[0]) as connections:
        jobs = [
            _Job(server, connection, work)
            for server, connection in zip(servers, connections, strict=True)
        ]
        shares = completed(assigned([job.shares(len(jobs)) for job in jobs]))
        loads = [
            partial(job.load, (share, len(jobs)), count, grouping)
            for job, share in zip(jobs, shares, strict=True)
        ]
        sent = _together(loads, count, servers)
        _together([job.show for job in jobs], count, servers)
        rest = _together([job.settle for job in jobs], count, servers)
    removed, sizes = (sum(numbers) for numbers in zip(*rest, strict=True))
    new, vectors = (sum(numbers) for numbers in zip(*sent, strict=True))
    return Published(lake[0], len(jobs) * len(pieces), new, removed, vectors, sizes)


def withdraw(servers: Sequence[Server], name: str) -> int:
    """Take a lake out of the servers that have it; returns how many tables were dropped."""
    dropped, known = 0, set()
    with _sessions(servers, name) as connections:
        for server, connection in zip(servers, connections, strict=True):
            with server.telling():
                lakes = settling.names(connection)
                known |= set(lakes)
                if name in lakes:
                    dropped += settling.remove(connection, name)
    if name not in known:
        places = " ".join(server.place for server in servers)
        raise DeepJoinError(
            f"{places} has no lake '{name}'. It has: {', '.join(sorted(known)) or 'none'}."
        )
    return dropped


@contextmanager
def _sessions(servers: Sequence[Server], lake: str) -> Iterator[list[Connection[Any]]]:
    """Lend a connection to each server, on which no one else changes the lake meanwhile."""
    places = [server.place for server in servers]
    for place in places:
        if places.count(place) > 1:
            raise DeepJoinError(f"{place} is named twice; name each server once.")
    with ExitStack() as stack:
        connections = [stack.enter_context(server.session()) for server in servers]
        # All runs in one order, or two of them could each keep the other out.
        for server, connection in sorted(
            zip(servers, connections, strict=True), key=lambda pair: pair[0].place
        ):
            with server.telling():
                settling.hold(connection, server.place, lake)
        yield connections


def _together(
    jobs: Sequence[Callable[[], Done]], count: Count, servers: Sequence[Server]
) -> list[Done]:
    """Work on all servers at a time; the first that fails, or Ctrl-C, stops the others."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            futures = [pool.submit(job) for job in jobs]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for failed in (one.exception() for one in done):
                if failed is not None:
                    raise failed
            return [one.result() for one in futures]
        except BaseException:
            count.stopped = True
            for server in servers:
                server.interrupt()
            raise


@dataclass(frozen=True)
class _Work:
    """What is to be published, the same for all servers."""

    lake: tuple[str, str]
    pieces: Sequence[Piece]
    how: How


class _Job:
    """The work on one server, step by step."""

    def __init__(self, server: Server, connection: Connection[Any], work: _Work) -> None:
        """Make sure that the lake may come."""
        self._server, self._connection, self._work = server, connection, work
        segments = list({piece.segment for piece in work.pieces})
        self._used: list[int] = []
        with server.telling():
            self._extension = prepare(connection, server.place)
            if not work.how.replaces:
                settling.check_name(connection, server.place, work.lake, segments)
            self._there = parts_of(connection, server.place, segments)

    def shares(self, servers: int) -> set[int]:
        """List the shares of this many servers that are there already, whole or in part."""
        return {part.shard for part in self._there if part.shards == servers}

    def load(self, shard: tuple[int, int], count: Count, grouping: Grouping) -> tuple[int, int]:
        """Send what is not there; returns how many segments, and how many different vectors."""
        lake, how, place = self._work.lake, self._work.how, self._server.place
        loading = Loading(place, self._extension, shard, how, count, grouping)
        sent = vectors = 0
        with self._server.telling():
            settling.claim(self._connection, lake)
            for piece in self._work.pieces:
                part, new = loading.put(self._connection, lake[0], piece)
                self._used.append(part.id)
                sent, vectors = sent + new, vectors + new * part.vectors
        return sent, vectors

    def show(self) -> None:
        """Let searches see it."""
        with self._server.telling():
            settling.show(self._connection, self._used)

    def settle(self) -> tuple[int, int]:
        """Make it the lake's state; returns how many tables were dropped, and what is taken."""
        with self._server.telling():
            return settling.settle(self._connection, self._work.lake[0], self._used)
