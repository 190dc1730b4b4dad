"""Compare an index with its tables: read them again, and search for their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.build.listing import ListedItem, list_items
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column, Table
from deepjoin.normalise.cells import DistinctCells, as_strings, distinct_cells
from deepjoin.normalise.private import key as key_of
from deepjoin.progress import Progress
from deepjoin.read import reopen
from deepjoin.read.corpus import CorpusSource
from deepjoin.read.source import Skipped, digest_of
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions
from deepjoin.store.ledger import Key, Known, entries_of, known_items
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.origin import TableOrigin
from deepjoin.store.segment import FRAMES, Segment
from deepjoin.store.values.profile import classified

#: Each cell of a column that can be indexed and how often it is there, the first one first.
Cells = Counter[str]

#: Enough to find a column among those that hold the same values, nearly always.
_HITS = 10


class Place(NamedTuple):
    """A table of the lake: its segment, its number there, and the item it came from."""

    segment: Segment
    number: int
    key: Key

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.segment.catalog.table_names[self.number]

    @property
    def columns(self) -> list[int]:
        """The numbers of its indexed columns."""
        return self.segment.catalog.columns_of(self.number)


def spread(segments: Iterable[Segment], count: int | None) -> list[Place]:
    """Choose ``count`` tables spread over a lake, or all of them."""
    every = [(segment, number) for segment in segments for number in segment.live_tables]
    count = len(every) if count is None else min(count, len(every))
    places = []
    for segment, number in (every[at * len(every) // count] for at in range(count)):
        row = int(segment.catalog.table_items[number])
        (entry,) = entries_of(segment.ledger.slice(row, 1))
        places.append(Place(segment, number, entry.key))
    return places


class Comparison:
    """Compares tables with what the lake holds of them, and keeps what it finds."""

    def __init__(self, lake: OpenIndex) -> None:
        self._lake = lake
        self._settings, self._hide = lake.settings, key_of(lake.settings)
        self._searcher = EquiSearch(lake.segments, lake.settings.profile, self._hide)
        self.compared = 0
        self.changed: list[str] = []
        self.unreachable: list[Skipped] = []
        self.problems: list[str] = []

    def run(self, places: Sequence[Place], progress: Progress) -> None:
        """Compare tables, source by source."""
        done = 0
        ordered = sorted(places, key=lambda place: place.key)
        for source, group in groupby(ordered, lambda place: place.key.source):
            for place in self._of_source(source, list(group)):
                done += 1
                progress(done, len(places), place.name)

    def _of_source(self, source: int, places: list[Place]) -> Iterator[Place]:
        described = self._lake.sources[source]
        if described["kind"] == "memory":
            return self._kept(places)
        try:
            opened = reopen(described, self._lake.path, self._settings)
            found = list_items({source: opened} if opened else {}, self._settings)
        except (DeepJoinError, OSError) as error:
            self.unreachable += [Skipped(place.name, str(error)) for place in places]
            return iter(places)
        known = known_items([segment.ledger for segment in self._lake.segments])
        listed = {one.key: one for one in found}
        if opened and (corpus := opened.as_corpus):
            return self._corpus(corpus, places, _state(listed, known, places[0].key))
        return self._listed(places, listed, known)

    def _kept(self, places: Iterable[Place]) -> Iterator[Place]:
        """Compare tables that the index itself keeps, unless it holds hashes alone."""
        for place in places:
            frame = place.segment.folder / FRAMES / f"{place.number}.parquet"
            try:
                table = TableOrigin(self._lake, place.segment, place.number).table()
                self.problems += [] if place.key.item == place.name else [_astray(place)]
                self.problems += self._differences(place, table)
                self.compared += 1
            except (DeepJoinError, OSError) as error:
                if frame.exists():
                    self.problems.append(f"{frame} cannot be read: {error}")
                else:
                    self.unreachable.append(Skipped(place.name, str(error)))
            yield place

    def _listed(
        self, places: Iterable[Place], listed: dict[Key, ListedItem], known: dict[Key, Known]
    ) -> Iterator[Place]:
        """Compare tables that their source lists, as a refresh would read them."""
        for key, group in groupby(places, lambda place: place.key):
            same = _state(listed, known, key)
            for place in group:
                if same == "changed":
                    self.changed.append(place.name)
                elif same == "gone":
                    self.unreachable.append(Skipped(place.name, "it is no longer there"))
                else:
                    self._reread(place, listed[key], sure=same == "same")
                yield place

    def _reread(self, place: Place, found: ListedItem, sure: bool) -> None:
        try:
            listing = found.item.listing()
            table = next((one for one in listing.tables if one.name == place.name), None)
            if table is None and listing.skipped:
                self.unreachable.append(Skipped(place.name, listing.skipped[0].reason))
                return
            texts = list(self._differences(place, table)) if table else [_astray(place)]
            changed = bool(texts) and not sure
            if texts and sure and table:  # the file may have changed while it was compared
                changed = TableOrigin(self._lake, place.segment, place.number).has_changed
        except (DeepJoinError, OSError) as error:
            self.unreachable.append(Skipped(place.name, str(error)))
            return
        if changed:
            self.changed.append(place.name)
        else:
            self.compared += 1
            self.problems += texts

    def _differences(self, place: Place, table: Table) -> Iterator[str]:
        """Report how a table differs from the index."""
        columns, rows = _read(table, self._settings.max_cell)
        entry = place.segment.catalog.table(place.number)
        names = place.segment.catalog.column_names
        if rows != entry.rows:
            yield f"{place.name} has {rows:,} rows, {entry.rows:,} in the index"
        for name in columns.keys() - {column.name for column in entry.columns}:
            yield f"{place.name} has a column '{name}' that the index does not know"
        for column in place.columns:
            if names[column] not in columns:
                yield f"{place.name} has no column '{names[column]}', which the index has"
            elif text := self._difference(place, column, columns[names[column]]):
                yield f"Column '{names[column]}' of {place.name}: {text}"

    def _corpus(self, corpus: CorpusSource, places: list[Place], state: str) -> Iterator[Place]:
        """Compare tables of a corpus, which is read once, column by column."""
        if state == "changed":
            self.changed += [place.name for place in places]
            yield from places
            return
        left = {place.name: (place, set(place.columns)) for place in places}
        wanted = pa.array(left, pa.large_string())
        seen: set[str] = set()
        for block in corpus.blocks():
            for row in block.filter(pc.is_in(block["table_id"], wanted)).to_pylist():
                place, columns = left[row["table_id"]]
                self._compare_row(place, columns, row)
                if place.name not in seen:
                    seen.add(place.name)
                    yield place
        for place, columns in left.values():
            for column in columns:
                name = place.segment.catalog.column_ids[column]
                self.problems.append(f"{place.name} has no column {name}, which the index has")
        self.compared += len(left)

    def _compare_row(self, place: Place, columns: set[int], row: dict[str, Any]) -> None:
        """Compare a column of a corpus with the one of its id; several may have the same."""
        catalog, most = place.segment.catalog, self._settings.max_cell
        present = (cell for cell in row["cells"] or () if cell is not None)
        cells = Counter(cell for cell in present if len(cell) <= most)
        alike = [c for c in sorted(columns) if catalog.column_ids[c] == row["column_id"]]
        texts = {c: self._difference(place, c, cells) for c in alike}
        # The equal one, if any: the id alone does not identify one of several.
        own = next((c for c in alike if not texts[c]), alike[0] if alike else None)
        if own is not None:
            columns.remove(own)
            if texts[own]:
                self.problems.append(f"{row['column_id']} of {place.name}: {texts[own]}")
        elif len(distinct_cells(cells, self._settings.profile)) >= self._settings.min_distinct:
            self.problems.append(f"{row['column_id']} of {place.name} is not in the index")

    def _difference(self, place: Place, column: int, cells: Cells) -> str:
        """Return how a column differs from the index; '' if it does not."""
        # `distinct_cells` counts with a Counter itself, so it takes one as well as the cells.
        distinct = distinct_cells(cells, self._settings.profile, self._hide)
        if text := _unlike_stored(distinct, place.segment, column):
            return text
        catalog = place.segment.catalog
        stored = catalog.column_types[column], catalog.column_generic[column]
        if classified(pa.array(distinct.values, pa.string())) != stored:
            return "its type differs in the index"
        # A search with the column's own cells must find it: first as a user searches, then among
        # all columns that hold them, for there may be more than the first hits show.
        query = Column(distinct.spellings, catalog.column_names[column])
        own = (place.name, catalog.column_ids[column], 1.0)
        with self._lake.reporting_damage():
            for k, least in ((_HITS, 0.0), (None, 1.0)):
                hits = self._searcher.search(query, SearchOptions(k, least, show=0))
                if own in [(hit.table, hit.column_id, hit.equi.joinability) for hit in hits]:
                    return ""
        return "a search with its cells does not find it"


def _astray(place: Place) -> str:
    return f"{place.name} is not in '{place.key.item}', where it is said to be from"


def _state(listed: dict[Key, ListedItem], known: dict[Key, Known], key: Key) -> str:
    """Return whether an item is the same, changed or gone; '' if that is not known."""
    if key not in listed:
        return "gone"
    item, before = listed[key].item, known[key]
    # A new stamp alone proves no change: a copied file has another date and the same content.
    if item.stamp and item.stamp == before.stamp:
        return "same"
    digest = digest_of(item) if before.digest else ""
    if not digest:
        return ""
    return "same" if digest == before.digest else "changed"


def _read(table: Table, max_cell: int) -> tuple[dict[str, Cells], int]:
    """Read the distinct cells of each column, and count the rows; a batch at a time."""
    columns: dict[str, Cells] = {}
    rows = 0
    for batch in table.open():
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            cells = columns.setdefault(name, Counter())
            strings = as_strings(array)
            if strings is not None:
                strings = strings.filter(pc.less_equal(pc.utf8_length(strings), max_cell))
                for one in pc.value_counts(strings).to_pylist():
                    cells[one["values"]] += one["counts"]
        rows += batch.num_rows
    return columns, rows


def _unlike_stored(distinct: DistinctCells, segment: Segment, column: int) -> str:
    """Compare values, counts and spellings, all in order of first appearance."""
    index = segment.values
    start, stop = index.cells_of(column)
    order = np.argsort(index.cell_rows[start:stop], kind="stable") + start
    values = [index.values[number] for number in index.cell_values[order].tolist()]
    held = distinct.values if distinct.hidden is None else distinct.hidden
    if sorted(values) != sorted(held):
        missing, more = len(set(held) - set(values)), len(set(values) - set(held))
        return f"{missing:,} of its values are not in the index, {more:,} there are not its own"
    if values != held:
        return "its values are in another order in the index"
    if index.cell_counts[order].tolist() != distinct.counts:
        return "its values have other counts in the index"
    numbers = index.cell_spellings[order].tolist()
    spelled = list(map(index.spelling, values, numbers))
    if distinct.hidden is None and spelled != distinct.spellings:
        at = next(i for i, cell in enumerate(spelled) if cell != distinct.spellings[i])
        return f"'{distinct.spellings[at]}' is '{spelled[at]}' in the index"
    return ""
