"""From a source of tables to one segment of the index: read, reduce, merge, write."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.canonical import CellType
from deepjoin.catalog import CatalogWriter, ColumnEntry, TableEntry
from deepjoin.columns import Table
from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.lake.report import BuildReport
from deepjoin.settings import Settings
from deepjoin.sources import Skipped, TableSource
from deepjoin.sources.cells import as_strings, left_out
from deepjoin.sources.corpus import CorpusSource
from deepjoin.values.builder import ValueIndexBuilder
from deepjoin.values.profile import ColumnProfiles

Kept = npt.NDArray[np.bool_]
#: Told after each table (or block of a corpus): how many are done, of how many, the last name.
Progress = Callable[[int, int, str], None]

#: For a table's name, the title and context it is to have; None leaves the source's.
Titles = Mapping[str, tuple[str | None, str | None]]

_SAMPLE_ROWS = 3
_SAMPLE_COLUMNS = 50
_SAMPLE_LENGTH = 80
_WORDS = ("column_id", "table_id", "title", "column_name", "context")


@dataclass
class Draft:
    """A table while it is being read: its columns get numbers as they turn up."""

    table: Table
    first: int
    names: list[str] = field(default_factory=list)
    #: Columns that cannot be keys, whatever their values: name to reason.
    refused: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    sample: tuple[dict[str, str | None], ...] = ()
    notes: tuple[str, ...] = ()


def build_segment(
    source: TableSource | CorpusSource,
    settings: Settings,
    out: Path,
    scratch: Path,
    memory: int,
    progress: Progress,
    titles: Titles | None = None,
) -> BuildReport:
    """Index every table of a source into the folder ``out``; ``titles`` override the source's."""
    with ValueIndexBuilder(scratch, settings, memory) as builder:
        if isinstance(source, CorpusSource):
            report = _build_corpus(source, settings, builder, out, progress)
        else:
            report = _build_tables(source, settings, builder, out, progress, titles or {})
    report.values = len(np.load(out / "value_hashes.npy", mmap_mode="r"))
    report.save(out)
    return report


def _build_tables(
    source: TableSource,
    settings: Settings,
    builder: ValueIndexBuilder,
    out: Path,
    progress: Progress,
    titles: Titles,
) -> BuildReport:
    reader = _TableReader(builder, settings)
    tables = [_titled(table, titles) for table in _listed(source)]
    for done, table in enumerate(tables, 1):
        reader.read(table)
        progress(done, len(tables), table.name)
    report = BuildReport(skipped=[*source.skipped, *reader.skipped])
    profiles, kept = _finish(builder, out, reader.columns, settings, reader.usable())
    with CatalogWriter(out) as catalog:
        _write_tables(catalog, reader.drafts, profiles, kept, settings, report)
        catalog.finish(profiles, kept)
    return _counted(report, len(reader.drafts), profiles, kept)


def _listed(source: TableSource) -> list[Table]:
    try:
        return list(source.tables())
    except OSError as error:
        raise DeepJoinError(f"Cannot list the tables of the source: {error}.") from None


def _titled(table: Table, titles: Titles) -> Table:
    title, context = titles.get(table.name, (None, None))
    return replace(
        table,
        title=table.title if title is None else title,
        context=table.context if context is None else context,
    )


class _TableReader:
    """Feeds tables to the value index; one that cannot be read is noted and passed over."""

    def __init__(self, builder: ValueIndexBuilder, settings: Settings) -> None:
        self._builder = builder
        self._settings = settings
        self.columns = 0
        self.drafts: list[Draft] = []
        self.skipped: list[Skipped] = []
        self._abandoned: list[range] = []

    def read(self, table: Table) -> None:
        """Read one table to its end."""
        draft = Draft(table, self.columns)
        try:
            reading = table.open()
            for batch in reading:
                self._read_batch(draft, batch)
            draft.notes = tuple(reading.notes)
        except UnreadableTable as error:
            self.skipped.append(Skipped(table.name, _reason(table.name, str(error))))
            self._abandoned.append(range(draft.first, self.columns))
            return
        self.drafts.append(draft)

    def _read_batch(self, draft: Draft, batch: pa.RecordBatch) -> None:
        known = {name: draft.first + i for i, name in enumerate(draft.names)}
        strings: dict[str, pa.Array] = {}
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            if name not in known:
                known[name] = self.columns
                draft.names.append(name)
                self.columns += 1
                if self._is_denied(name):
                    draft.refused[name] = "denied by name"
            converted = as_strings(cells)
            if converted is None:
                draft.refused.setdefault(name, left_out(cells.type) or "")
                continue
            if name not in draft.refused:
                strings[name] = converted
                self._builder.add(known[name], draft.rows, converted)
        if draft.rows == 0:
            draft.sample = _sample(strings)
        draft.rows += batch.num_rows

    def _is_denied(self, name: str) -> bool:
        denied = self._settings.deny_columns
        return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in denied)

    def usable(self) -> Kept:
        """Mark the columns of tables that were read to their end."""
        usable = np.ones(self.columns, bool)
        for columns in self._abandoned:
            usable[columns.start : columns.stop] = False
        return usable


def _reason(name: str, text: str) -> str:
    """Drop the file's name from the front of an error that is listed under that name."""
    before, found, after = text.partition(PurePosixPath(name.partition("#")[0]).name)
    return after.lstrip("' :") if found and " " not in before else text


def _sample(strings: dict[str, pa.Array]) -> tuple[dict[str, str | None], ...]:
    names = list(strings)[:_SAMPLE_COLUMNS]
    rows = zip(*(strings[name].slice(0, _SAMPLE_ROWS).to_pylist() for name in names), strict=True)
    return tuple(dict(zip(names, map(_shortened, row), strict=True)) for row in rows)


def _shortened(cell: str | None) -> str | None:
    if cell is None or len(cell) <= _SAMPLE_LENGTH:
        return cell
    return cell[: _SAMPLE_LENGTH - 1] + "…"


def _finish(
    builder: ValueIndexBuilder, out: Path, columns: int, settings: Settings, usable: Kept
) -> tuple[ColumnProfiles, Kept]:
    kept = usable

    def choose(profiles: ColumnProfiles) -> Kept:
        nonlocal kept
        kept = usable & (profiles.distinct >= settings.min_distinct)
        kept &= profiles.mean_length <= settings.max_mean_length
        return kept

    return builder.finish(out, columns, choose), kept


def _write_tables(
    catalog: CatalogWriter,
    drafts: Iterable[Draft],
    profiles: ColumnProfiles,
    kept: Kept,
    settings: Settings,
    report: BuildReport,
) -> None:
    for number, draft in enumerate(drafts):
        entries = tuple(_column_entries(draft, profiles, kept, settings))
        report.left_out.update(entry.left_out.split(" (")[0] for entry in entries if entry.left_out)
        report.notes.extend((draft.table.name, note) for note in draft.notes)
        report.rows += draft.rows
        table = draft.table
        catalog.add_tables(
            [
                TableEntry(
                    *(table.name, table.title, table.context, draft.rows),
                    *(entries, draft.sample, draft.notes),
                )
            ]
        )
        here = [i for i in range(len(draft.names)) if kept[draft.first + i]]
        catalog.add_columns(
            pa.array([f"{table.name}#{i}" for i in here], pa.string()),
            pa.array([draft.names[i] for i in here], pa.string()),
            [number] * len(here),
        )


def _column_entries(
    draft: Draft, profiles: ColumnProfiles, kept: Kept, settings: Settings
) -> Iterator[ColumnEntry]:
    for column, name in enumerate(draft.names, draft.first):
        distinct = int(profiles.distinct[column])
        reason = ""
        if not kept[column]:
            reason = draft.refused.get(name) or _why_left_out(column, profiles, settings)
        kind = CellType(int(profiles.types[column])).name.lower()
        yield ColumnEntry(name, kind, distinct, reason)


def _why_left_out(column: int, profiles: ColumnProfiles, settings: Settings) -> str:
    distinct = int(profiles.distinct[column])
    if distinct == 0 and profiles.too_long[column]:
        return f"cells longer than {settings.max_cell} characters"
    if distinct == 0:
        return "no values"
    if distinct < settings.min_distinct:
        return f"fewer than {settings.min_distinct} distinct values ({distinct})"
    return f"long text (mean {profiles.mean_length[column]:.0f} characters)"


def _build_corpus(
    corpus: CorpusSource,
    settings: Settings,
    builder: ValueIndexBuilder,
    out: Path,
    progress: Progress,
) -> BuildReport:
    columns = 0
    for block in corpus.blocks():
        builder.add_lists(columns, block["cells"])
        columns += block.num_rows
        progress(columns, corpus.count, corpus.folder.name)
    # Whoever made the corpus chose its columns as keys: none is taken for free text.
    chosen = replace(settings, max_mean_length=settings.max_cell)
    profiles, kept = _finish(builder, out, columns, chosen, np.ones(columns, bool))
    report = BuildReport()
    for column in np.flatnonzero(~kept).tolist():
        report.left_out[_why_left_out(column, profiles, settings).split(" (")[0]] += 1
    with CatalogWriter(out) as catalog:
        tables = _write_corpus_catalog(catalog, corpus, kept)
        catalog.finish(profiles, kept)
    return _counted(report, tables, profiles, kept)


def _write_corpus_catalog(catalog: CatalogWriter, corpus: CorpusSource, kept: Kept) -> int:
    """Write the words around the columns in a second pass, so that they need not be held."""
    numbers: dict[str, int] = {}
    start = 0
    for block in corpus.blocks(names=_WORDS):
        tables = []
        names, titles, contexts = (block[n].to_pylist() for n in ("table_id", "title", "context"))
        for name, title, context in zip(names, titles, contexts, strict=True):
            if name not in numbers:
                numbers[name] = len(numbers)
                tables.append(TableEntry(name, title, context))
        catalog.add_tables(tables)
        here = kept[start : start + block.num_rows]
        mask = pa.array(here)
        catalog.add_columns(
            block["column_id"].filter(mask),
            block["column_name"].filter(mask),
            np.array([numbers[name] for name in names], np.int32)[here],
        )
        start += block.num_rows
    return len(numbers)


def _counted(report: BuildReport, tables: int, profiles: ColumnProfiles, kept: Kept) -> BuildReport:
    report.tables = tables
    report.columns = int(kept.sum())
    report.cells = int(profiles.present[kept].sum())
    return report
