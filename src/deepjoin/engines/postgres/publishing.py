"""Copy the column vectors of a lake into PostgreSQL, and drop those it no longer has.

A run holds the lake's name on all servers from start to end. Each table is loaded in one
transaction together with its registration, so a killed run leaves nothing half done and the next
one continues. Searches see new tables only once all of them are there, on all servers; what no
lake uses any more is dropped after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from deepjoin.engines.postgres import schema
from deepjoin.engines.postgres.binary import HEAD, TAIL, EqualRows, copied
from deepjoin.engines.postgres.schema import VectorTable, execute
from deepjoin.engines.postgres.server import Extension, Server, addresses
from deepjoin.engines.postgres.shards import GRAPH_EFFORT
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.progress import Progress
from deepjoin.search.vectors import opened_vectors
from deepjoin.settings import PublishSettings
from deepjoin.store.column_vectors import SPACES, ColumnVectors
from deepjoin.store.manifest import DEFAULT
from deepjoin.store.open_index import OpenIndex

if TYPE_CHECKING:
    from psycopg import Connection

Done = TypeVar("Done")

INDEXES = ("auto", "hnsw", "codes", "exact")
#: Up to this size all vectors of a segment are compared in a few milliseconds, exactly.
SCANNED_UP_TO = 10_000
#: The most candidates that a scan of codes keeps.
_MOST_CODES = 100_000
#: Default numbers of candidates that a search keeps, of vectors and of codes.
_EFFORT, _CODES = 200, 1_000
#: How the graph is built: links of a vector, and candidates considered for them.
_LINKS, _CANDIDATES = 16, 128
#: Segments whose equal vectors are remembered: servers load about the same one at a time.
_REMEMBERED = 2
#: Seconds between two requests to stop.
_ASK_AGAIN = 0.2


@dataclass(frozen=True)
class SegmentVectors:
    """The vectors of one segment in one space, as the index has them."""

    segment: str
    space: str
    vectors: ColumnVectors


@dataclass(frozen=True)
class Published:
    """What was done, summed over the servers."""

    lake: str
    #: Tables there now (segments times spaces), those that were sent, and those dropped.
    parts: int
    sent: int
    removed: int
    #: Distinct vectors sent.
    vectors: int
    #: Size of the lake there, with its indexes.
    bytes: int


def publish_index(
    opened: OpenIndex,
    vector_store: str | Sequence[str],
    *,
    name: str | None,
    spaces: Sequence[str] | None,
    replace: bool,
    settings: PublishSettings,
    progress: Progress,
) -> Published:
    """Copy the column vectors of an open index to PostgreSQL; a second run sends what is new."""
    if settings.index not in INDEXES:
        raise unknown_name("vector index", settings.index, "a vector store", INDEXES)
    most = GRAPH_EFFORT if settings.index == "hnsw" else _MOST_CODES
    if settings.effort is not None and not 1 <= settings.effort <= most:
        raise DeepJoinError(
            f"`effort` is {settings.effort}; a search keeps 1 to {most} candidates."
        )
    segments = [segment for segment in opened.segments if segment.values.columns]
    for space in spaces or ():
        if space not in SPACES:
            raise unknown_name("space", space, "an index", SPACES)
    chosen = spaces or [
        space
        for space in SPACES
        if any(ColumnVectors.open(segment.folder, space) for segment in segments)
    ]
    # Without any vectors, ask for the first space: the error says how to make them.
    vectors = [
        SegmentVectors(segment.folder.name, space, one)
        for space in chosen or SPACES[:1]
        for segment, one in zip(
            segments, opened_vectors(segments, space, location=opened.location), strict=True
        )
    ]
    lake = (lake_name(opened) if name is None else name, str(opened.url or opened.path.resolve()))
    return publish_vectors(vector_store, lake, vectors, settings, progress, replaces=replace)


def lake_name(lake: OpenIndex) -> str:
    """Return the default name of a lake in a vector store: that of the folder with its index."""
    if lake.url:
        return lake.url.rstrip("/").rpartition("/")[2]
    folder = Path(lake.path).resolve()
    return folder.parent.name if folder.name == DEFAULT else folder.name


def publish_vectors(
    vector_store: str | Sequence[str],
    lake: tuple[str, str],
    vectors: Sequence[SegmentVectors],
    settings: PublishSettings,
    progress: Progress,
    *,
    replaces: bool = False,
) -> Published:
    """Make servers hold the vectors of a lake, given as (name, location), and no others."""
    servers = [Server(url) for url in addresses(vector_store)]
    total = len(servers) * sum(len(one.vectors.rows) for one in vectors)
    shared = _SharedProgress(total, progress)
    run = _PublishRun(lake, vectors, settings, replaces, shared, _Grouping())
    with _sessions(servers, lake[0]) as connections:
        jobs = [
            _ServerJob(server, connection, run)
            for server, connection in zip(servers, connections, strict=True)
        ]
        # A server keeps the share it has, so that little is sent when servers are added.
        shares = schema.completed(schema.assigned([job.shares(len(jobs)) for job in jobs]))
        share_of = dict(zip(jobs, shares, strict=True))
        sent = _together(jobs, lambda job: job.load((share_of[job], len(jobs))))
        # Searches may use new tables only when every server has all of its own.
        _together(jobs, lambda job: schema.make_visible(job.connection, job.used))
        rest = _together(jobs, lambda job: schema.finish(job.connection, lake[0], job.used))
    removed, sizes = (sum(numbers) for numbers in zip(*rest, strict=True))
    new, distinct = (sum(numbers) for numbers in zip(*sent, strict=True))
    return Published(lake[0], len(jobs) * len(vectors), new, removed, distinct, sizes)


def withdraw(vector_store: str | Sequence[str], name: str) -> int:
    """Remove a lake from a vector store; returns the number of dropped tables.

    Of several servers, those without the lake are left as they are.
    """
    servers = [Server(url) for url in addresses(vector_store)]
    dropped, known = 0, set()
    with _sessions(servers, name) as connections:
        for server, connection in zip(servers, connections, strict=True):
            with server.reporting():
                lakes = schema.lake_names(connection)
                known |= set(lakes)
                if name in lakes:
                    dropped += schema.remove_lake(connection, name)
    if name not in known:
        places = " ".join(server.place for server in servers)
        raise DeepJoinError(
            f"{places} has no lake '{name}'. It has: {', '.join(sorted(known)) or 'none'}."
        )
    return dropped


@contextmanager
def _sessions(servers: Sequence[Server], lake: str) -> Iterator[list[Connection[Any]]]:
    """Open a connection to each server that holds the lake's name until it is closed."""
    places = [server.place for server in servers]
    for place in places:
        if places.count(place) > 1:
            raise DeepJoinError(f"{place} is named twice; name each server once.")
    with ExitStack() as stack:
        connections = [stack.enter_context(server.session()) for server in servers]
        # Lock in one order, or two runs could each lock the other out.
        for server, connection in sorted(
            zip(servers, connections, strict=True), key=lambda pair: pair[0].place
        ):
            with server.reporting():
                schema.hold(connection, server.place, lake)
        yield connections


class _SharedProgress:
    """Adds up the progress of several servers, and stops them all when one fails."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock, self.stopped = Lock(), False

    def add(self, vectors: int, what: str) -> None:
        """Report that more is done."""
        with self._lock:
            if self.stopped:
                raise DeepJoinError("Another server failed; run the same command again.")
            self._done += vectors
            self._progress(self._done, self._total, what)


def _together(jobs: Sequence[_ServerJob], work: Callable[[_ServerJob], Done]) -> list[Done]:
    """Work on all servers at once; the first that fails, or Ctrl-C, stops the others."""

    def reported(job: _ServerJob) -> Done:
        with job.server.reporting():
            return work(job)

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures: list[Future[Done]] = []
        try:
            futures += [pool.submit(reported, job) for job in jobs]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for failed in (one.exception() for one in done):
                if failed is not None:
                    raise failed
            return [one.result() for one in futures]
        except BaseException:
            jobs[0].run.progress.stopped = True
            # A server between two statements has nothing to cancel, and the next one may wait for
            # a lock: ask again until all have stopped.
            while running := [one for one in futures if not one.done()]:
                for job in jobs:
                    job.server.interrupt()
                wait(running, timeout=_ASK_AGAIN)
            raise


class _Grouping:
    """Groups the equal vectors of a segment, once for all servers."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known = lru_cache(_REMEMBERED)(lambda one: EqualRows.of(one.vectors.rows))

    def of(self, one: SegmentVectors) -> EqualRows:
        """Return the groups; a second server waits for the first to find them."""
        with self._lock:
            return self._known(one)


@dataclass(frozen=True)
class _PublishRun:
    """What is published, the same for all servers."""

    lake: tuple[str, str]
    vectors: Sequence[SegmentVectors]
    settings: PublishSettings
    replaces: bool
    progress: _SharedProgress
    grouping: _Grouping


class _ServerJob:
    """The work on one server, step by step."""

    def __init__(self, server: Server, connection: Connection[Any], run: _PublishRun) -> None:
        """Check that no other lake is published under this name."""
        self.server, self.connection, self.run = server, connection, run
        segments = list({one.segment for one in run.vectors})
        #: The ids of the tables that the lake uses now.
        self.used: list[int] = []
        with server.reporting():
            self._extension = schema.prepare(connection, server.place)
            if not run.replaces:
                schema.check_name(connection, server.place, run.lake, segments)
            self._existing = schema.tables_of(connection, server.place, segments)

    def shares(self, servers: int) -> set[int]:
        """List the shares among this many servers that are there already, whole or in part."""
        return {table.shard for table in self._existing if table.shards == servers}

    def load(self, shard: tuple[int, int]) -> tuple[int, int]:
        """Send what is missing of a share; returns how many tables and distinct vectors."""
        sent = vectors = 0
        schema.register(self.connection, self.run.lake)
        for one in self.run.vectors:
            table, new = self._put(one, shard)
            self.used.append(table.id)
            sent, vectors = sent + new, vectors + new * table.vectors
        return sent, vectors

    def _put(self, one: SegmentVectors, shard: tuple[int, int]) -> tuple[VectorTable, bool]:
        """Load a table, or reuse one that is there; returns it and whether it was sent."""
        connection, index = self.connection, self.run.settings.index
        key = (one.segment, one.space, *shard)
        with connection.transaction():
            # Until the transaction ends, no other run creates or drops the same table.
            schema.lock_table(connection, key, wait=True)
            tables = schema.tables_of(connection, self.server.place, [one.segment])
            fitting = [
                table
                for table in tables
                if table.key == key
                and (index == "auto" or table.coded == (index == "codes"))
                and difference(table, one.vectors) is None
            ]
            if fitting:
                table = self._reindex(fitting[-1])
                self.run.progress.add(len(one.vectors.rows), "vectors")
            else:
                table = self._load(one, shard)
            connection.execute(
                "INSERT INTO deepjoin.uses VALUES (%s, %s) ON CONFLICT DO NOTHING",
                [self.run.lake[0], table.id],
            )
        return table, not fitting

    def _reindex(self, table: VectorTable) -> VectorTable:
        """Give an existing table the index that is wanted now."""
        wanted = search_existing(table, self.run.settings)
        _check_searchable(wanted, self._extension)
        if wanted.indexed and not table.indexed:
            self._build_graph(wanted)
        elif table.indexed and not wanted.indexed:
            execute(self.connection, f"DROP INDEX {table.table}_near")
        self.connection.execute(
            "UPDATE deepjoin.parts SET indexed = %s, effort = %s WHERE id = %s",
            [wanted.indexed, wanted.effort, table.id],
        )
        return wanted

    def _load(self, one: SegmentVectors, shard: tuple[int, int]) -> VectorTable:
        """Register a table, create it, fill it and index it."""
        rows, about, metric = one.vectors.rows, one.vectors.about, one.vectors.index.metric
        groups = self.run.grouping.of(one)
        share = groups.share(*shard)
        table = VectorTable(
            *(0, one.segment, one.space, *shard, about.name, about.digest, metric),
            *(about.dimension, len(rows), len(share), self._extension.kind, False, 0),
            token_hex(4),
        )
        table = search_new(table, self.run.settings, self._extension)
        _check_searchable(table, self._extension)
        table = schema.add_table(self.connection, table)
        schema.create_table(self.connection, self._extension, table)
        # FREEZE needs a table made in this transaction, and saves a later rewrite by VACUUM.
        statement = f"COPY {table.table} FROM STDIN (FORMAT binary, FREEZE)"
        with self.connection.cursor().copy(statement.encode()) as copy:
            copy.write(HEAD)
            for count, block in copied(rows, groups, share, table.kind):
                copy.write(block)
                self.run.progress.add(count, "vectors")
            copy.write(TAIL)
        self.run.progress.add(len(rows) - len(share), "vectors")  # those that equal others
        if table.indexed:
            self._build_graph(table)
        return table

    def _build_graph(self, table: VectorTable) -> None:
        """Build the HNSW index, in memory if it fits into what may be used."""
        self.run.progress.add(0, "indexing")
        size = table.dimension * (2 if table.kind == "halfvec" else 4) + 64 * _LINKS + 256
        wanted = min(self.run.settings.memory, table.vectors * size * 5 // 4) // 1024
        sql = (
            "SELECT pg_catalog.set_config('maintenance_work_mem', "
            "greatest(setting::pg_catalog.int8, %s)::pg_catalog.text, true) "
            "FROM pg_catalog.pg_settings WHERE name = 'maintenance_work_mem'"
        )
        self.connection.execute(sql, [wanted])
        execute(
            self.connection,
            f"CREATE INDEX {table.name}_near ON {table.table} USING hnsw "
            f"(v {self._extension.operator_class(table.kind, table.metric)}) "
            f"WITH (m = {_LINKS}, ef_construction = {_CANDIDATES})",
        )


def search_new(table: VectorTable, settings: PublishSettings, extension: Extension) -> VectorTable:
    """Choose how a new table is searched."""
    kind = settings.index
    if kind == "auto":
        kind = "hnsw" if table.dimension <= extension.most else "exact"
        # Only vectors of a model lie in neighbourhoods that a graph can follow.
        if table.metric == "cosine" and (table.space != "columns" or kind == "exact"):
            kind = "codes"
        if table.vectors <= SCANNED_UP_TO:
            kind = "exact"
    effort = settings.effort or (_CODES if kind == "codes" else _EFFORT)
    stored = "bit" if kind == "codes" else table.kind
    return replace(table, kind=stored, indexed=kind == "hnsw", effort=effort)


def search_existing(table: VectorTable, settings: PublishSettings) -> VectorTable:
    """Choose how an existing table is searched; what is not asked for stays as it is."""
    indexed = table.indexed if settings.index == "auto" else settings.index == "hnsw"
    effort = settings.effort or table.effort
    if settings.effort is None and indexed and effort > GRAPH_EFFORT:
        effort = _EFFORT  # the effort of a scan is too much for a graph
    return replace(table, indexed=indexed, effort=effort)


def _check_searchable(table: VectorTable, extension: Extension) -> None:
    """Refuse what neither an index of vectors nor codes can hold."""
    if table.indexed and table.dimension > extension.most:
        raise DeepJoinError(
            f"The vectors '{table.space}' have {table.dimension} dimensions; an index of "
            f"pgvector {extension.version} takes up to {extension.most}. "
            'Use `index="codes"` or `index="exact"`, leave them out with `spaces`, or make them '
            "smaller: deepjoin index INDEX --sketch N"
        )
    if table.indexed and table.effort > GRAPH_EFFORT:
        raise DeepJoinError(
            f"`effort` is {table.effort}; a search of the vectors '{table.space}' by a graph keeps "
            f"1 to {GRAPH_EFFORT} candidates. Give less, "
            'use `index="codes"`, or leave them out with `spaces`.'
        )
    if table.coded and table.metric != "cosine":
        raise DeepJoinError(
            f"The vectors '{table.space}' are compared by {table.metric} distance; codes hold "
            'angles only. Use `index="hnsw"` or `index="exact"`.'
        )


def difference(table: VectorTable, vectors: ColumnVectors) -> tuple[str, object, object] | None:
    """Return what differs, its value in the table and in the index; None if all is the same."""
    about, index = vectors.about, vectors.index
    if table.digest != about.digest:
        there, here = f"{table.encoder} ({table.digest})", f"{about.name} ({about.digest})"
        return "encoder", there, here
    compared = (
        ("metric", table.metric, index.metric),
        ("dimension", table.dimension, index.dimension),
        ("columns", table.columns, len(index)),
    )
    return next((one for one in compared if one[1] != one[2]), None)
