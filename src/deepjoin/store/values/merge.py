"""Second step of a build: the rows of one hash partition to distinct values and postings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.store.values.chunk import ROWS

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Postings:
    """Distinct values in hash order; postings run value by value, columns ascending within one."""

    hashes: npt.NDArray[np.uint64]
    values: pa.StringArray
    #: Which value each posting belongs to.
    value: Int
    column: Int
    row: Int
    count: Int
    spellings: pa.StringArray

    def save(self, path: Path) -> None:
        """Put the postings on disk until they are written to the index."""
        heads = pa.record_batch({"hash": self.hashes, "value": self.values})
        numbers = {n: getattr(self, n) for n in ("value", "column", "row", "count")}
        tails = pa.record_batch(numbers | {"spelling": self.spellings})
        for suffix, batch in ((".values", heads), (".postings", tails)):
            with pa.ipc.new_file(str(path) + suffix, batch.schema) as writer:
                writer.write_batch(batch)

    @classmethod
    def load(cls, path: Path) -> Postings:
        """Fetch what `save` put aside."""
        heads, tails = (
            pa.ipc.open_file(pa.memory_map(str(path) + suffix)).get_batch(0)
            for suffix in (".values", ".postings")
        )
        value, column, row, count = (np.asarray(tails[i]) for i in range(4))
        head = (np.asarray(heads["hash"]), heads["value"])
        return cls(*head, value, column, row, count, tails["spelling"])

    def keep(self, kept: npt.NDArray[np.bool_]) -> Postings:
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
        """Forget the spellings: every cell counts as spelled like its value."""
        return replace(self, spellings=self.values.take(pa.array(self.value)))


def merge_rows(batches: Sequence[pa.RecordBatch]) -> Postings:
    """Merge chunk rows that arrived in table order; a value of a column may be in several."""
    rows = pa.Table.from_batches(batches, ROWS).combine_chunks()
    values = _column(rows, "value")
    order, new_value = _by_value(np.asarray(_column(rows, "hash")), values)
    column = np.asarray(_column(rows, "column")).astype(np.int64)[order]
    value = np.cumsum(new_value) - 1
    if not _ascending(column, new_value):
        # Tables read in several chunks interleave; a stable sort keeps arrival order inside.
        resort = np.lexsort((column, value))
        order, column = order[resort], column[resort]
        new_value = np.append(True, value[1:] != value[:-1]) if len(value) else value > 0
    first = np.flatnonzero(new_value | np.append(True, column[1:] != column[:-1])[: len(column)])
    kept, heads = order[first], order[new_value]
    counts = np.asarray(_column(rows, "count")).astype(np.int64)[order]
    return Postings(
        np.asarray(_column(rows, "hash"))[heads],
        values.take(pa.array(heads)),
        value[first],
        column[first],
        np.asarray(_column(rows, "row")).astype(np.int64)[kept],
        np.add.reduceat(counts, first) if len(first) else counts,
        _column(rows, "spelling").take(pa.array(kept)),
    )


def _column(rows: pa.Table, name: str) -> pa.Array:
    chunks = rows[name].chunks
    return chunks[0] if chunks else pa.array([], rows.schema.field(name).type)


def _by_value(
    hashes: npt.NDArray[np.uint64], values: pa.Array
) -> tuple[Int, npt.NDArray[np.bool_]]:
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


def _ascending(column: Int, new_value: npt.NDArray[np.bool_]) -> bool:
    return bool(np.all((column[1:] >= column[:-1]) | new_value[1:]))
