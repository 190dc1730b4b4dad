"""Experiments as data: what is compared, on what, and what the paper found.

A table of results is rows (mostly methods) by columns (depths, sizes), once for each block. The
options of a cell combine those of defaults, size, block, column and row; later ones prevail.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deepjoin.errors import DeepJoinError, unknown_name

FOLDER = Path(__file__).parents[1] / "experiments"
SIZES = ("reduced", "full")
#: Keys that describe a row, column or block, and are not options.
_SAID = {"label", "paper", "needs", "train", "only", "blocks", "value", "at", "depth", "ours"}

Options = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A cell of a table, and its setting."""

    block: Options
    row: Options
    column: Options
    setting: Options

    def chosen(self, rows: list[Options]) -> Options | None:
        """Find the row of an evaluation that this cell shows."""
        depth = self.column.get("depth")
        return next((row for row in rows if depth is None or row.get("k") == depth), None)


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper."""

    name: str
    title: str
    #: What the paper shows, and where.
    shows: str
    #: Which runner it needs: accuracy, labels, examples, statistics or times.
    kind: str
    #: Each has its own table, unless columns name theirs.
    metrics: list[str]
    rows: list[Options]
    sizes: dict[str, Options]
    defaults: Options = field(default_factory=dict)
    columns: list[Options] = field(default_factory=lambda: [{"label": ""}])
    blocks: list[Options] = field(default_factory=lambda: [{"label": ""}])
    #: The paper's figures: table number, block, columns, and figures by row.
    paper: list[Options] = field(default_factory=list)
    claims: list[Options] = field(default_factory=list)
    plot: Options = field(default_factory=dict)
    slope: Options = field(default_factory=dict)
    note: str = ""

    def cells(self, size: str) -> Iterator[Cell]:
        """Yield the cells of all tables, block by block and row by row."""
        for block in self.blocks:
            for row in self.rows:
                if block["label"] in row.get("blocks", [block["label"]]):
                    for column in self.columns_at(size):
                        yield self._cell(size, block, row, column)

    def columns_at(self, size: str) -> list[Options]:
        """Return the columns a size has."""
        return [column for column in self.columns if column.get("only", size) == size]

    def settings(self, size: str) -> list[tuple[Options, Options]]:
        """Return the distinct settings to run, each with the first row that needs it."""
        found: dict[str, tuple[Options, Options]] = {}
        for cell in self.cells(size):
            found.setdefault(key_of(self.name, cell.setting), (cell.setting, cell.row))
        return list(found.values())

    def figure(self, cell: Cell, metric: str) -> float | None:
        """Look up the paper's figure for a cell."""
        blocks = cell.block.get("paper")
        row = cell.row.get("paper", cell.row["label"])
        column = cell.column.get("paper", cell.column["label"])
        for block in blocks if isinstance(blocks, list) else [blocks]:
            if (block, row, column, metric) in self._figures:
                return self._figures[block, row, column, metric]
        return None

    @cached_property
    def _figures(self) -> dict[tuple[Any, str, str, str], float]:
        return {
            (one.get("block"), row, column, metric): figure
            for one in self.paper
            for metric, rows in one["figures"].items()
            for row, figures in rows.items()
            for column, figure in zip(one["columns"], figures, strict=True)
        }

    def _cell(self, size: str, block: Options, row: Options, column: Options) -> Cell:
        merged = self.defaults | self.sizes[size] | block | column | row
        return Cell(block, row, column, {k: v for k, v in merged.items() if k not in _SAID})


def key_of(experiment: str, setting: Mapping[str, Any]) -> str:
    """Return a key of a setting that does not depend on the machine."""
    return f"{experiment} {json.dumps(setting, sort_keys=True, ensure_ascii=False)}"


def names(folder: Path = FOLDER) -> list[str]:
    """List the experiments, in the order of the paper's tables."""
    return sorted((path.stem for path in folder.glob("*.toml")), key=lambda n: _table(folder, n))


def read_experiment(name: str, folder: Path = FOLDER) -> Experiment:
    """Read one experiment."""
    path = folder / f"{name}.toml"
    if not path.is_file():
        raise unknown_name("experiment", name, str(folder), names(folder))
    given = _parsed(path)
    known = set(Experiment.__dataclass_fields__) - {"name"}
    if unknown := sorted(set(given) - known):
        raise DeepJoinError(
            f"{path.name} has {', '.join(unknown)}. An experiment has {', '.join(sorted(known))}."
        )
    missing = [k for k in ("title", "shows", "kind", "metrics", "rows", "sizes") if k not in given]
    if missing:
        raise DeepJoinError(f"{path.name} has no {', '.join(missing)}. Every experiment needs it.")
    return Experiment(name=name, **given)


def _parsed(path: Path) -> Options:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DeepJoinError(f"{path.name} is not TOML: {error}. Correct that line.") from None


def _table(folder: Path, name: str) -> tuple[int, str]:
    tables = [one.get("table", 99) for one in _parsed(folder / f"{name}.toml").get("paper", [])]
    return min(tables, default=99), name
