"""From a source of tables to one segment of the index: read, reduce, merge, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from deepjoin.canonical import CellType
from deepjoin.catalog import CatalogWriter, ColumnEntry, TableEntry
from deepjoin.columns import Table
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lake.build_corpus import build_corpus
from deepjoin.lake.reader import Draft, TableReader
from deepjoin.lake.report import BuildReport
from deepjoin.settings import Settings
from deepjoin.sources import TableSource
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.files import FileSource
from deepjoin.values.builder import Kept, ValueIndexBuilder
from deepjoin.values.profile import ColumnProfiles

#: Told after each table (or block of a corpus): how many are done, of how many, the last name.
Progress = Callable[[int, int, str], None]
#: For a table's name, the title and context it is to have; None leaves the source's.
Titles = Mapping[str, tuple[str | None, str | None]]

#: Folder, inside a segment, of the tables that came from memory.
FRAMES = "frames"


def build_segment(
    source: TableSource | CorpusSource,
    settings: Settings,
    out: Path,
    scratch: Path,
    memory: int,
    progress: Progress,
    titles: Titles | None = None,
    threads: int = 2,
) -> BuildReport:
    """Index every table of a source into the folder ``out``; ``titles`` override the source's."""
    out.mkdir(parents=True)
    with ValueIndexBuilder(scratch, settings, memory, threads) as builder:
        if isinstance(source, CorpusSource):
            if titles:
                raise DeepJoinError("A corpus has titles of its own; leave the others out.")
            report = build_corpus(source, settings, builder, out, progress)
        else:
            tables = _listed(source, titles or {})
            keep = None if isinstance(source, FileSource) else out / FRAMES
            with TableReader(builder, settings, scratch, keep) as reader:
                for done, table in enumerate(tables, 1):
                    reader.read(table, _stamp(source, table.name))
                    progress(done, len(tables), table.name)
                report = _write(builder, reader, settings, out)
            report.skipped = [*source.skipped, *reader.skipped]
    report.values = len(np.load(out / "value_hashes.npy", mmap_mode="r"))
    report.save(out)
    return report


def _listed(source: TableSource, titles: Titles) -> list[Table]:
    try:
        tables = list(source.tables())
    except OSError as error:
        raise DeepJoinError(f"Cannot list the tables of the source: {error}.") from None
    names = {table.name for table in tables}
    for name in titles:
        if name not in names:
            raise unknown_name("table", name, "the source, though it has a title", sorted(names))
    return [_titled(table, *titles.get(table.name, (None, None))) for table in tables]


def _titled(table: Table, title: str | None, context: str | None) -> Table:
    return replace(
        table,
        title=table.title if title is None else title,
        context=table.context if context is None else context,
    )


def _stamp(source: TableSource, name: str) -> tuple[int, int] | None:
    """Return size and time of the file behind a table, by which a change is noticed."""
    if not isinstance(source, FileSource):
        return None
    try:
        status = source.paths(name).stat()
    except (OSError, DeepJoinError):
        return None
    return status.st_size, status.st_mtime_ns


def _write(
    builder: ValueIndexBuilder, reader: TableReader, settings: Settings, out: Path
) -> BuildReport:
    usable = reader.usable()

    def choose(profiles: ColumnProfiles) -> Kept:
        kept = usable & (profiles.distinct >= settings.min_distinct)
        return kept & (profiles.mean_length <= settings.max_mean_length)

    profiles, kept = builder.finish(out, reader.columns, choose)
    report = BuildReport(tables=len(reader.drafts))
    with CatalogWriter(out) as catalog:
        for number, (draft, sample) in enumerate(reader.finished()):
            entries = tuple(_column_entries(draft, profiles, kept, settings))
            _add_table(catalog, number, draft, entries, sample)
            _count(report, draft, entries)
        catalog.finish(profiles, kept)
    return report.with_columns(profiles, kept)


def _add_table(
    catalog: CatalogWriter,
    number: int,
    draft: Draft,
    entries: tuple[ColumnEntry, ...],
    sample: str,
) -> None:
    entry = TableEntry(
        *(draft.name, draft.title, draft.context, draft.rows),
        *(entries, tuple(json.loads(sample)), draft.notes, draft.stamp or ()),
    )
    here = [i for i, column in enumerate(entries) if not column.left_out]
    catalog.add_tables([entry])
    catalog.add_columns(
        [f"{draft.name}#{i}" for i in here], [draft.names[i] for i in here], [number] * len(here)
    )


def _count(report: BuildReport, draft: Draft, entries: tuple[ColumnEntry, ...]) -> None:
    report.left_out.update(entry.left_out.split(" (")[0] for entry in entries if entry.left_out)
    report.notes.extend((draft.name, note) for note in draft.notes)
    report.rows += draft.rows


def _column_entries(
    draft: Draft, profiles: ColumnProfiles, kept: Kept, settings: Settings
) -> Iterator[ColumnEntry]:
    for column, name in enumerate(draft.names, draft.first):
        reason = ""
        if not kept[column]:
            reason = draft.refused.get(name) or profiles.why_left_out(column, settings)
        kind = CellType(int(profiles.types[column])).name.lower()
        yield ColumnEntry(name, kind, int(profiles.distinct[column]), reason)
