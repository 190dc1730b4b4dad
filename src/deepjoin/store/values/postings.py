"""Second step of a build: rows in hash partitions become distinct values and their postings.

Rows are held in memory while they fit and on disk when they do not. Ascending partitions hold
ascending hashes, so partitions can be merged one by one and their results written in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Hashes, Int, Marks
from deepjoin.store.values.chunk import PARTITION_BITS, ROWS, partition_of

PARTITIONS = 1 << PARTITION_BITS
#: Neighbouring partitions with fewer rows than this are merged as one: each merge has a fixed cost.
_FEW_ROWS = 1 << 15


class Spill:
    """Collects rows of chunks and returns them partition by partition."""

    def __init__(self, folder: Path, memory: int) -> None:
        self._folder = folder
        self._memory = memory
        self._held: list[list[pa.RecordBatch]] = [[] for _ in range(PARTITIONS)]
        self._held_bytes = 0
        #: How many rows each partition has.
        self.rows = [0] * PARTITIONS
        self._writers: list[pa.RecordBatchFileWriter] = []

    @property
    def on_disk(self) -> bool:
        """Whether the rows did not fit in memory."""
        return bool(self._writers)

    def append(self, rows: pa.RecordBatch) -> None:
        """Keep rows that are sorted by partition; once memory is used up, all go to disk."""
        ends = np.cumsum(np.bincount(partition_of(np.asarray(rows["hash"])), minlength=PARTITIONS))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                self._held[number].append(rows.slice(start, end - start))
                self.rows[number] += end - start
            start = end
        self._held_bytes += rows.nbytes
        if self._held_bytes > self._memory:
            self._flush()

    def seal(self) -> None:
        """End the collection; from here on any thread may take partitions."""
        if self._writers:
            self._flush()
            self.close()

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers:
            writer.close()

    def take(self, number: int) -> list[pa.RecordBatch]:
        """Return the rows of one partition in order of arrival, and forget them."""
        batches: list[pa.RecordBatch] = []
        if self._writers:
            path = self._path(number)
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            path.unlink()
        held, self._held[number] = self._held[number], []
        return batches + held

    def _flush(self) -> None:
        if not self._writers:
            self._writers = [
                pa.ipc.new_file(str(self._path(number)), ROWS) for number in range(PARTITIONS)
            ]
        for number, held in enumerate(self._held):
            for batch in held:
                self._writers[number].write_batch(batch)
        self._held, self._held_bytes = [[] for _ in range(PARTITIONS)], 0

    def _path(self, number: int) -> Path:
        return self._folder / f"cells-{number:02}.arrow"


@dataclass(frozen=True)
class Postings:
    """Distinct values in hash order; postings run value by value, columns ascending within one."""

    hashes: Hashes
    values: pa.StringArray
    #: Which value each posting belongs to.
    value: Int
    column: Int
    row: Int
    count: Int
    spellings: pa.StringArray

    def save(self, path: Path) -> None:
        """Write the postings to scratch files, to be read again by `load`."""
        heads = pa.record_batch({"hash": self.hashes, "value": self.values})
        numbers = {n: getattr(self, n) for n in ("value", "column", "row", "count")}
        tails = pa.record_batch(numbers | {"spelling": self.spellings})
        for suffix, batch in ((".values", heads), (".postings", tails)):
            with pa.ipc.new_file(str(path) + suffix, batch.schema) as writer:
                writer.write_batch(batch)

    @classmethod
    def load(cls, path: Path) -> Postings:
        """Read what `save` wrote."""
        heads, tails = (
            pa.ipc.open_file(pa.memory_map(str(path) + suffix)).get_batch(0)
            for suffix in (".values", ".postings")
        )
        value, column, row, count = (np.asarray(tails[i]) for i in range(4))
        head = (np.asarray(heads["hash"]), heads["value"])
        return cls(*head, value, column, row, count, tails["spelling"])

    def keep(self, kept: Marks) -> Postings:
        """Drop the postings of columns that are not kept, and the values left with none."""
        here = kept[self.column]
        if here.all():
            return self
        alive = np.bincount(self.value[here], minlength=len(self.hashes)) > 0
        renumbered = np.cumsum(alive) - 1
        return Postings(
            self.hashes[alive],
            self.values.filter(pa.array(alive)),
            renumbered[self.value[here]],
            self.column[here],
            self.row[here],
            self.count[here],
            self.spellings.filter(pa.array(here)),
        )

    def unspelled(self) -> Postings:
        """Drop the spellings: every cell counts as spelled as its value."""
        return replace(self, spellings=self.values.take(pa.array(self.value)))


def merge_rows(batches: Sequence[pa.RecordBatch]) -> Postings:
    """Merge chunk rows that arrived in table order; a value of a column may be in several."""
    rows = pa.Table.from_batches(batches, ROWS).combine_chunks()
    fields = {
        name: column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    hashes, values = np.asarray(fields["hash"]), fields["value"]
    order, new_value = _by_value(hashes, values)
    column = np.asarray(fields["column"]).astype(np.int64)[order]
    value = np.cumsum(new_value) - 1
    if not np.all((column[1:] >= column[:-1]) | new_value[1:]):
        # Tables read in several chunks interleave; a stable sort keeps arrival order inside.
        resort = np.lexsort((column, value))
        order, column = order[resort], column[resort]
        new_value = np.append(True, value[1:] != value[:-1])
    first = np.flatnonzero(new_value | np.append(True, column[1:] != column[:-1])[: len(column)])
    kept, heads = order[first], order[new_value]
    counts = np.asarray(fields["count"]).astype(np.int64)[order]
    return Postings(
        hashes[heads],
        values.take(pa.array(heads)),
        value[first],
        column[first],
        np.asarray(fields["row"]).astype(np.int64)[kept],
        np.add.reduceat(counts, first) if len(first) else counts,
        fields["spelling"].take(pa.array(kept)),
    )


def _by_value(hashes: Hashes, values: pa.Array) -> tuple[Int, Marks]:
    """Sort rows by value, stable, and mark where a new value begins."""
    order = np.argsort(hashes, kind="stable")
    new_hash = np.append(True, np.diff(hashes[order]) != 0)[: len(order)]
    ordered = values.take(pa.array(order))
    same_string = np.asarray(pc.equal(ordered.slice(1), ordered.slice(0, max(0, len(ordered) - 1))))
    if not np.any(~new_hash[1:] & ~same_string):
        return order, new_hash
    # Two values share a hash: order by the strings as well.
    codes = np.asarray(values.dictionary_encode().indices)
    order = np.lexsort((codes, hashes))
    changed = (np.diff(hashes[order]) != 0) | (np.diff(codes[order]) != 0)
    return order, np.append(True, changed)


def merged_partitions(spill: Spill, pool: ThreadPoolExecutor, threads: int) -> Iterator[Postings]:
    """Merge a sealed spill from its lowest hashes to its highest, a few partitions ahead."""

    def merge(group: range) -> Postings:
        return merge_rows([batch for number in group for batch in spill.take(number)])

    running: deque[Future[Postings]] = deque()
    start = rows = 0
    for number, count in enumerate(spill.rows):
        rows += count
        if rows < _FEW_ROWS and number + 1 < PARTITIONS:
            continue
        # A few ahead, in order: more would hold merged partitions that cannot be written yet.
        running.append(pool.submit(merge, range(start, number + 1)))
        start, rows = number + 1, 0
        if len(running) > threads:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()
