"""Files of a column corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_labels(folder: Path, rows: list[tuple[str, str, float, float]]) -> None:
    names = ("query_id", "column_id", "entity_jn", "surface_equi_jn")
    columns = [list(values) for values in zip(*rows, strict=True)]
    arrays = [pa.array(columns[0]), pa.array(columns[1])]
    arrays += [pa.array(np.array(columns[n], np.float32)) for n in (2, 3)]
    pq.write_table(pa.table(dict(zip(names, arrays, strict=True))), folder / "labels.parquet")
