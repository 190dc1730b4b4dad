"""What people say: the columns that answer each query, from a corpus's labels.parquet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.read.corpus import CorpusSource
from deepjoin.read.formats import unreadable

FIELDS = ("query_id", "column_id", "entity_jn", "surface_equi_jn")
#: A column is relevant from this share of the query's entities on, and hard to find below this
#: share of equal strings.
RELEVANT, EASY = 0.7, 0.3
#: Labels are stored in single precision.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Labels:
    """Of one query: the share of its entities, and of its strings, that labelled columns hold."""

    gains: dict[str, float]
    surface: dict[str, float]

    @cached_property
    def relevant(self) -> frozenset[str]:
        """The columns that answer the query."""
        least = RELEVANT - _TOLERANCE
        return frozenset(column for column, gain in self.gains.items() if gain >= least)

    @cached_property
    def hard(self) -> frozenset[str]:
        """Those of them that spell it in other words."""
        least = EASY - _TOLERANCE
        return frozenset(column for column in self.relevant if self.surface[column] < least)

    @cached_property
    def easy(self) -> frozenset[str]:
        """Those of them that equal strings are enough to find."""
        return self.relevant - self.hard


def read_labels(source: CorpusSource, queries: Sequence[Column]) -> list[Labels] | None:
    """Read the labels of each query, without those of its own table; None if a corpus has none."""
    table = _table(source)
    if table is None:
        return None
    asked = {query.column_id: query.table for query in queries}
    tables = _tables(source)
    found: dict[str, Labels] = defaultdict(lambda: Labels({}, {}))
    for query, column, gain, surface in zip(*(table[name].to_pylist() for name in FIELDS),
                                            strict=True):  # fmt: skip
        if query not in asked:
            continue
        if column not in tables:
            raise DeepJoinError(
                f"{source.folder / 'labels.parquet'} labels the column '{column}', which "
                f"columns.parquet lacks. Labels are of columns of the corpus."
            )
        if asked[query] != tables[column]:
            found[query].gains[column], found[query].surface[column] = gain, surface
    return [found[query.column_id or ""] for query in queries]


def _table(source: CorpusSource) -> pa.Table | None:
    path = source.folder / "labels.parquet"
    try:
        table = source.labels()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error, "is not a readable Parquet file") from None
    missing = [] if table is None else [name for name in FIELDS if name not in table.column_names]
    if missing:
        raise DeepJoinError(f"{path} has no {', '.join(missing)}. Labels have {', '.join(FIELDS)}.")
    return table


def _tables(source: CorpusSource) -> dict[str, str]:
    """Say which table each column of a corpus is in."""
    known: dict[str, str] = {}
    for block in source.blocks(names=("column_id", "table_id")):
        ids = zip(block["column_id"].to_pylist(), block["table_id"].to_pylist(), strict=True)
        known.update(ids)
    return known
