"""Read tables, or a column corpus, into one segment of the index."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.arrays import Marks
from deepjoin.build.engine import BuildResources
from deepjoin.build.listing import hidden_item
from deepjoin.errors import UnreadableTable
from deepjoin.memory import check_reading
from deepjoin.model import Table
from deepjoin.normalise import private
from deepjoin.normalise.canonical import CellType
from deepjoin.normalise.cells import as_strings, left_out
from deepjoin.progress import Notify, no_notice
from deepjoin.read.corpus import CorpusSource
from deepjoin.read.source import Item, Listing, Skipped, digest_of
from deepjoin.settings import Settings, TableWords
from deepjoin.store.catalog import CatalogWriter, ColumnEntry, TableEntry
from deepjoin.store.ledger import Entry, Key, write_ledger
from deepjoin.store.report import BuildReport
from deepjoin.store.segment import FRAMES, SMALL
from deepjoin.store.values.builder import ValueIndexBuilder
from deepjoin.store.values.profile import ColumnProfiles

#: Titles and contexts that tables get instead of the source's, by name.
Titles = Mapping[str, TableWords]

_SAMPLE_ROWS = 3
_SAMPLE_COLUMNS = 50
_SAMPLE_LENGTH = 80
#: Report the progress of reading tables with at least this many rows.
_MANY_ROWS = 100_000
_CORPUS_WORDS = ("column_id", "table_id", "title", "column_name", "context")


@dataclass
class DraftTable:
    """A table while it is being read; its columns get numbers as they turn up."""

    name: str
    title: str
    context: str
    #: Number of its first column, and of the item that it came from.
    first: int
    item: int
    names: list[str] = field(default_factory=list)
    #: Columns that cannot be keys, whatever their values, and why.
    refused: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    notes: tuple[str, ...] = ()


class SegmentBuilder:
    """Reads items one after the other into a segment that `finish` writes.

    A table that cannot be read is noted and skipped. ``keep`` stores the tables themselves as
    well, for those that exist only in memory; an index of hashes stores neither these nor the
    first rows of tables.
    """

    def __init__(
        self,
        out: Path,
        scratch: Path,
        settings: Settings,
        resources: BuildResources,
        keep: bool = False,
    ) -> None:
        out.mkdir(parents=True)
        self._out, self._settings, self._memory = out, settings, resources.memory
        self._keep = out / FRAMES if keep and not settings.hash_only else None
        #: Ledger entries of the items noted so far.
        self.entries: list[Entry] = []
        self._drafts: list[DraftTable] = []
        self._skipped: list[Skipped] = []
        self._columns = 0
        #: Columns of tables that turned out to be unreadable halfway.
        self._abandoned: list[range] = []
        self._titled: set[str] = set()
        self._touched: set[Key] = set()
        with ExitStack() as stack:
            values = ValueIndexBuilder(
                *(scratch, settings, resources.memory, resources.threads), with_rows=True
            )
            self._values = stack.enter_context(values)
            # On disk, since the first rows of a million tables would fill the memory.
            samples = (scratch / "samples").open("w+", encoding="utf-8")
            self._samples = stack.enter_context(samples)
            self._open = stack.pop_all()

    def __enter__(self) -> SegmentBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def read_keys(self) -> list[Key]:
        """The items whose earlier tables this segment replaces."""
        return [entry.key for entry in self.entries if entry.key not in self._touched]

    def read(
        self,
        key: Key,
        item: Item,
        words_of: Callable[[str], TableWords | None] = lambda name: None,
        excluded: Collection[str] = (),
        notify: Notify = no_notice,
    ) -> None:
        """Read the tables of an item, except the excluded ones."""
        # Before the tables are read: a change in between then shows at the next refresh.
        digest = digest_of(item)
        try:
            listing = item.listing()
        except UnreadableTable as error:
            reason = short_reason(item.name, str(error))
            listing = Listing(skipped=(Skipped(item.name, reason, error.passing),))
        before = len(self._skipped)
        for table in listing.tables:
            if table.name in excluded:
                continue
            words = words_of(table.name)
            if words is not None:
                self._titled.add(table.name)
                title, context = words
                table = replace(
                    table,
                    title=table.title if title is None else title,
                    context=table.context if context is None else context,
                )
            self._read_table(table, notify)
        skipped = (*listing.skipped, *self._skipped[before:])
        self.entries.append(Entry(key, item.stamp, digest, skipped))

    def touch(self, entry: Entry) -> None:
        """Note the new stamp of an item whose content has not changed."""
        self.entries.append(entry)
        self._touched.add(entry.key)

    def forget(self, key: Key) -> None:
        """Note that an item is gone from its source."""
        self.entries.append(Entry(key, gone=True))

    def _read_table(self, table: Table, notify: Notify) -> None:
        hash_only = self._settings.hash_only
        draft = DraftTable(
            *(table.name, table.title, table.context, self._columns, len(self.entries))
        )
        sample = "[]"
        held: list[pa.RecordBatch] = []
        try:
            reading = table.open()
            if reading.memory:
                check_reading(reading.memory, self._memory)
            for batch in reading:
                strings = self._add_batch(draft, batch)
                if draft.rows == 0 and not hash_only:
                    sample = json.dumps(_sample(strings))
                draft.rows += batch.num_rows
                if draft.rows >= _MANY_ROWS:
                    notify(f"{table.name}: {draft.rows:,} rows")
                if self._keep is not None:
                    held.append(batch)
            # What follows a semicolon quotes the table.
            draft.notes = tuple(
                f"{note.partition(';')[0]}." if hash_only and ";" in note else note
                for note in reading.notes
            )
        except UnreadableTable as error:
            text = _without_cells(error) if hash_only else str(error)
            reason = short_reason(table.name, text)
            self._skipped.append(Skipped(table.name, reason, error.passing))
            self._abandoned.append(range(draft.first, self._columns))
            return
        if self._keep is not None:
            _write_frame(held, self._keep / f"{len(self._drafts)}.parquet")
        self._samples.write(sample + "\n")
        self._drafts.append(draft)

    def _add_batch(self, draft: DraftTable, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Add the cells of a batch to the value index; return them as text, by column."""
        known = {name: draft.first + i for i, name in enumerate(draft.names)}
        strings: dict[str, pa.Array] = {}
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            if name not in known:
                known[name] = self._columns
                draft.names.append(name)
                self._columns += 1
                denied = (pattern.lower() for pattern in self._settings.deny_columns)
                if any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in denied):
                    draft.refused[name] = "denied by name"
            converted = as_strings(cells)
            if converted is None:
                draft.refused.setdefault(name, left_out(cells.type) or "")
            elif name not in draft.refused:
                strings[name] = converted
                self._values.add(known[name], draft.rows, converted)
        return strings

    def finish(self) -> BuildReport:
        """Write the segment."""
        settings = self._settings
        usable = np.ones(self._columns, bool)
        for columns in self._abandoned:
            usable[columns.start : columns.stop] = False

        def choose(profiles: ColumnProfiles) -> Marks:
            kept = usable & (profiles.distinct >= settings.min_distinct)
            return kept & (profiles.mean_length <= settings.max_mean_length)

        def choose_small(profiles: ColumnProfiles) -> Marks:
            return usable & _is_small(profiles, settings)

        rows = np.zeros(self._columns, np.int64)
        for draft in self._drafts:
            rows[draft.first : draft.first + len(draft.names)] = draft.rows
        apart = self._out / SMALL, choose_small
        profiles, kept, small = self._values.finish(
            *(self._out, self._columns, choose, apart), rows=rows
        )
        report = BuildReport(tables=len(self._drafts))
        self._samples.seek(0)
        with CatalogWriter(self._out) as catalog:
            for number, draft in enumerate(self._drafts):
                entries = self._column_entries(draft, profiles, kept)
                table = TableEntry(
                    *(draft.name, draft.title, draft.context, draft.rows, entries),
                    *(tuple(json.loads(self._samples.readline())), draft.notes),
                    titled=draft.name in self._titled,
                )
                here = [i for i, column in enumerate(entries) if not column.left_out]
                catalog.add_tables([table], [draft.item])
                catalog.add_columns(
                    [f"{draft.name}#{i}" for i in here],
                    [draft.names[i] for i in here],
                    np.full(len(here), number),
                )
                reasons = (entry.left_out.split(" (")[0] for entry in entries if entry.left_out)
                report.left_out.update(reasons)
                report.notes.extend((draft.name, note) for note in draft.notes)
                report.rows += draft.rows
            catalog.finish(profiles.types[kept], profiles.generic[kept], profiles.present[kept])
        write_ledger(self._out, self.entries)
        if small.any():
            self._write_small(profiles, small)
        return report.with_columns(profiles, kept).saved(self._out)

    def _write_small(self, profiles: ColumnProfiles, small: Marks) -> None:
        """Write the catalog of the columns that are stored for relations alone."""
        out = self._out / SMALL
        with CatalogWriter(out) as catalog:
            for number, draft in enumerate(self._drafts):
                table = TableEntry(draft.name, draft.title, rows=draft.rows)
                catalog.add_tables([table], [draft.item])
                here = np.flatnonzero(small[draft.first : draft.first + len(draft.names)]).tolist()
                ids, names = [f"{draft.name}#{i}" for i in here], [draft.names[i] for i in here]
                catalog.add_columns(ids, names, np.full(len(here), number))
            catalog.finish(profiles.types[small], profiles.generic[small], profiles.present[small])
        write_ledger(out, self.entries)

    def _column_entries(
        self, draft: DraftTable, profiles: ColumnProfiles, kept: Marks
    ) -> tuple[ColumnEntry, ...]:
        entries = []
        for column, name in enumerate(draft.names, draft.first):
            reason = ""
            if not kept[column]:
                refused = draft.refused.get(name)
                reason = refused or profiles.why_left_out(column, self._settings)
            kind = CellType(int(profiles.types[column])).name.lower()
            entries.append(ColumnEntry(name, kind, int(profiles.distinct[column]), reason))
        return tuple(entries)


def build_corpus(
    corpus: CorpusSource,
    key: Key,
    settings: Settings,
    out: Path,
    scratch: Path,
    resources: BuildResources,
) -> BuildReport:
    """Index every column of a corpus, which is one item.

    Whoever made the corpus chose its columns as keys, so none is left out as free text.
    """
    out.mkdir(parents=True)
    (item,) = corpus.items()
    item = hidden_item(item, private.key(settings))
    entry = Entry(key, item.stamp, digest_of(item))
    columns = 0
    with ValueIndexBuilder(scratch, settings, resources.memory, resources.threads) as builder:
        for block in corpus.blocks():
            builder.add_lists(columns, block["cells"])
            columns += block.num_rows
            resources.progress(columns, corpus.count, "columns")

        def choose(profiles: ColumnProfiles) -> Marks:
            return profiles.distinct >= settings.min_distinct

        profiles, kept, _ = builder.finish(out, columns, choose)
    report = BuildReport()
    settings = replace(settings, max_mean_length=settings.max_cell)
    for column in np.flatnonzero(~kept).tolist():
        report.left_out[profiles.why_left_out(column, settings).split(" (")[0]] += 1
    # Titles and names come in a second pass, so that they need not be held in memory.
    numbers: dict[str, int] = {}
    start = 0
    with CatalogWriter(out) as catalog:
        for block in corpus.blocks(names=_CORPUS_WORDS):
            tables = []
            words = (block[name].to_pylist() for name in ("table_id", "title", "context"))
            for name, title, context in zip(*words, strict=True):
                if name not in numbers:
                    numbers[name] = len(numbers)
                    tables.append(TableEntry(name, title, context))
            catalog.add_tables(tables, np.zeros(len(tables)))
            here = kept[start : start + block.num_rows]
            mask = pa.array(here)
            of_table = np.array([numbers[name] for name in block["table_id"].to_pylist()], np.int32)
            catalog.add_columns(
                *(block["column_id"].filter(mask), block["column_name"].filter(mask)),
                of_table[here],
            )
            start += block.num_rows
        catalog.finish(profiles.types[kept], profiles.generic[kept], profiles.present[kept])
    report.tables = len(numbers)
    write_ledger(out, [entry])
    return report.with_columns(profiles, kept).saved(out)


def _is_small(profiles: ColumnProfiles, settings: Settings) -> Marks:
    """Mark the columns with values, too few to be searched with: keys of small tables, flags."""
    some = (profiles.distinct > 0) & (profiles.distinct < settings.min_distinct)
    return some & (profiles.mean_length <= settings.max_mean_length)


def short_reason(name: str, text: str) -> str:
    """Drop the file's name from the front of an error that is listed under that name."""
    before, found, after = text.partition(PurePosixPath(name.partition("#")[0]).name)
    return after.lstrip("' :") if found and " " not in before else text


def _sample(strings: dict[str, pa.Array]) -> list[dict[str, str | None]]:
    """Return the first rows of a table, long cells shortened."""
    names = list(strings)[:_SAMPLE_COLUMNS]
    columns = [
        [
            cell
            if cell is None or len(cell) <= _SAMPLE_LENGTH
            else f"{cell[: _SAMPLE_LENGTH - 1]}…"
            for cell in strings[name].slice(0, _SAMPLE_ROWS).to_pylist()
        ]
        for name in names
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _without_cells(error: UnreadableTable) -> str:
    """Return an error's text unless it has another library's words, which may quote cells."""
    cause = error.__context__
    while isinstance(cause, UnreadableTable):  # part files put their table's name before
        cause = cause.__context__
    if cause is None or (isinstance(cause, OSError) and cause.strerror):
        return str(error)
    return f"it cannot be read ({type(cause).__name__}); the message may quote cells"


def _write_frame(batches: list[pa.RecordBatch], path: Path) -> None:
    """Keep a table that exists only in memory; what Parquet has no type for becomes text."""
    path.parent.mkdir(exist_ok=True)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    whole = pa.concat_tables(tables or [pa.table({})], promote_options="default")
    types = pa.types
    for i, column in enumerate(whole.schema):
        kind = column.type
        if types.is_interval(kind) or types.is_run_end_encoded(kind) or types.is_union(kind):
            whole = whole.set_column(i, column.name, as_strings(whole.column(i)))
    pq.write_table(whole, path)
