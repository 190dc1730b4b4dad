"""The table that is enriched, and how it is recognised in the lake."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.enriching.features import is_near_number, numbers_in
from deepjoin.enriching.joins import EnrichableLake
from deepjoin.enriching.ordered import ROW, kind_of
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.joining.store import read_typed
from deepjoin.normalise.canonical import canonical
from deepjoin.read.frames import file_table, frame_table
from deepjoin.settings import EnrichSettings

#: A table of the lake with all your columns, if they are as many, is yours, whatever its rows.
_TELLING_COLUMNS = 3
#: Rows of yours that are looked for among those that joined with them, and at least how many.
_SOUGHT, _LEAST_SOUGHT = 500, 20
#: How many more of them are found than with targets of other rows, of those that are not found so;
#: targets that are found this seldom in other rows tell a row alone.
_MORE, _SELDOM = 0.25, 0.1


@dataclass(frozen=True)
class OwnTable:
    """The table that is enriched."""

    table: pa.Table
    #: Its name in the lake, if it comes from there.
    name: str | None = None
    target: str | None = None

    @classmethod
    def read(cls, lake: EnrichableLake, given: object, target: str | None = None) -> OwnTable:
        """Read a frame, a file or a table of the lake into memory."""
        shown = "the table"
        if isinstance(given, OwnTable):
            own = replace(given, target=target)
        elif isinstance(given, str | os.PathLike):
            path = Path(given).expanduser()
            if not path.exists() and isinstance(given, str) and given in lake.index:
                own = cls(read_typed(lake.index.origin(given).table()), given, target)
            else:
                table = read_typed(file_table(path))
                own, shown = cls(table, lake.index.name_of(path), target), path.name
        else:
            read = frame_table(given)
            if not any(batch.schema.names for batch in read.open()):
                raise DeepJoinError("The table has no columns; it must have at least one.")
            own = cls(read_typed(read), None, target)
        if target is not None and target not in own.table.column_names:
            raise unknown_name("column", target, own.name or shown, own.table.column_names)
        return own

    @property
    def rest(self) -> pa.Table:
        """The table without the target."""
        return self.table if self.target is None else self.table.drop_columns([self.target])

    def check_keys(self, settings: EnrichSettings) -> None:
        """Refuse keys of which none is a column of this table, where every path of joins begins."""
        names = [key.partition("=")[0] for key in settings.keys]
        known = self.rest.column_names
        if names and not {canonical(name) for name in names} & set(map(canonical, known)):
            raise unknown_name("column", names[0], "the table", known)

    def order(self, settings: EnrichSettings) -> pa.ChunkedArray | None:
        """Return the column that joins on order compare, if one was chosen."""
        for argument in ("as_of", "ranges"):
            name = getattr(settings, argument)
            if name:
                if name not in self.rest.column_names:
                    raise unknown_name("column", name, "the table", self.rest.column_names)
                if not kind_of(self.table[name].type):
                    raise DeepJoinError(
                        f"`{argument}` column '{name}' holds {self.table[name].type}; it must hold "
                        "dates or numbers."
                    )
                return self.table[name]
        return None

    def is_in(self, lake: EnrichableLake, table: str) -> bool:
        """Check whether a table of the lake is this one or a copy: its name, or all its columns.

        With a target, rows are not compared: you may have given some of them.
        """
        if table == self.name:
            return True
        entry, mine = lake.index.table(table), set(map(canonical, self.table.column_names))
        if not {canonical(one.name) for one in entry.columns} >= mine:
            return False
        if len(mine) == 1:
            return False  # a list of keys, which any table may have
        is_telling = self.target is not None and len(mine) >= _TELLING_COLUMNS
        return is_telling or entry.rows == self.table.num_rows

    def is_cut_from(self, lake: EnrichableLake, table: str) -> bool:
        """Check whether a table of the lake has all columns of this one but the target."""
        names = {canonical(one.name) for one in lake.index.table(table).columns}
        return names.issuperset(map(canonical, self.rest.column_names))

    def is_among(self, rows: pa.Table, names: Sequence[str]) -> bool:
        """Check whether rows of a table that joined with yours hold yours, under any names.

        Several meet each row of yours, so summaries of a copy would tell the target of each row.
        """
        if self.target is None or rows.num_rows == 0:
            return False
        drawn = np.random.default_rng(0)
        met = rows[ROW].to_numpy()
        sought = np.unique(met)
        if len(sought) < _LEAST_SOUGHT:
            return False
        sought = drawn.permutation(sought)[:_SOUGHT]
        rows = rows.filter(pc.is_in(rows[ROW], pa.array(sought)))
        met = np.unique(rows[ROW].to_numpy(), return_inverse=True)[1]
        theirs = [_comparable(rows[name]) for name in names]
        mine = self.table.take(np.unique(sought))

        def found(pairs: npt.NDArray[np.bool_]) -> float:
            return float((np.bincount(met, pairs, len(mine)) > 0).mean())

        def closest(name: str) -> tuple[float, float, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
            """Compare a column with all of theirs, and with its cells in other rows."""
            own = _comparable(mine[name])
            other = own.take(drawn.permutation(len(own)))
            best = 0.0, 0.0, np.zeros(len(met), bool), np.zeros(len(met), bool)
            for one in theirs:
                if one.type == own.type:
                    same, chance = _equal(own.take(met), one), _equal(other.take(met), one)
                    share, by_chance = found(same), found(chance)
                    if share - by_chance > best[0] - best[1]:
                        best = share, by_chance, same, chance
            return best

        def is_more(share: float, by_chance: float) -> bool:
            return share - by_chance >= _MORE * (1 - by_chance) > 0

        share, by_chance, held, shuffled = closest(self.target)
        if not is_more(share, by_chance):
            return False
        if by_chance <= _SELDOM:
            return True
        paired = 0
        for name in self.rest.column_names:
            one, chance, same, _ = closest(name)
            if is_more(one, chance):
                paired += 1
                held, shuffled = held & same, shuffled & same
        return 2 * paired >= len(self.rest.column_names) and is_more(found(held), found(shuffled))


def _comparable(cells: pa.ChunkedArray) -> pa.Array:
    """Return numbers as such, and all else as text in lower case."""
    kind = cells.type
    if is_near_number(cells):
        cells = numbers_in(cells)
    elif kind_of(kind) == "number":
        cells = cells.cast(pa.float64(), safe=False)
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind):
        cells = pa.chunked_array([pa.nulls(len(cells), pa.string())])
    else:
        cells = pc.utf8_lower(pc.utf8_trim_whitespace(cells.cast(pa.string(), safe=False)))
    return cells.combine_chunks()


def _equal(some: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = pc.fill_null(pc.equal(some, other), False).to_numpy(
        zero_copy_only=False
    )
    return same
