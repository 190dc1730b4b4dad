"""Rows of a build in hash partitions: in memory while they fit, on disk when they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from deepjoin.store.values.chunk import PARTITION_BITS, ROWS, partition_of

PARTITIONS = 1 << PARTITION_BITS


class Spill:
    """Collects chunk rows and hands them back partition by partition."""

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
        """Whether the rows have outgrown memory."""
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
        """Say that no more rows will come; partitions may then be taken from any thread."""
        if self._writers:
            self._flush()
            self.close()

    def close(self) -> None:
        """Close all files; what they hold is of no more use."""
        for writer in self._writers:
            writer.close()

    def take(self, number: int) -> list[pa.RecordBatch]:
        """Hand over the rows of one partition in order of arrival, once."""
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
