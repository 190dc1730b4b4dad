"""Figures of tables: ours, and the paper's in the same cell."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.paper.experiments import Cell, Experiment, Options
from benchmarks.paper.results import Results

#: Display names of metrics.
NAMES = {
    "precision": "Precision@k by id",
    "precision_ties": "Precision@k with ties",
    "ndcg": "NDCG@k",
    "candidates_500": "Of the exact top 10 among the 500 nearest",
    "total_ms": "Milliseconds a query",
    "pooled_f1": "F1",
}
#: The count of queries of a metric that not all queries have.
_COUNTED = {
    "precision_ties": "queries_ties",
    "ndcg": "queries_ndcg",
    "candidates_500": "queries_candidates",
    "pooled_recall": "queries_pooled",
}
#: Sizes by preference.
_BEST_FIRST = ("full", "reduced")


@dataclass(frozen=True)
class Figure:
    """The figures of a cell."""

    cell: Cell
    metric: str
    ours: float | None
    paper: float | None
    #: Number of queries in the mean.
    queries: int | None
    was_run: bool
    #: The value of each query, None where it has none; empty in lines of earlier versions.
    values: list[float | None] = field(default_factory=list)
    #: Identifies the queries: values of figures with the same digest are paired.
    digest: str = ""

    def __str__(self) -> str:
        if self.ours is None:
            text = "–" if self.was_run else not_run(self.cell.row)
            return text if self.paper is None else f"{text}, paper {number(self.paper)}"
        text = number(self.ours)
        return text if self.paper is None else f"{text} (paper {number(self.paper)})"


@dataclass(frozen=True)
class Measured:
    """An experiment with its results at one size."""

    experiment: Experiment
    results: Results

    @property
    def size(self) -> str:
        """The largest size that was run; the reduced one if nothing was."""
        return next((size for size in _BEST_FIRST if size in self.results.sizes), "reduced")

    @property
    def metrics(self) -> list[str]:
        """The metrics that have a table each; a single one where columns name theirs."""
        return self.experiment.metrics

    def columns(self) -> list[Options]:
        """Return the columns of every table."""
        return self.experiment.columns_at(self.size)

    def figures(self, metric: str) -> list[Figure]:
        """All figures of a table, block by block and row by row."""
        return [self._figure(cell, metric) for cell in self.experiment.cells(self.size)]

    def by_row(self, metric: str, block: str) -> dict[str, list[Figure]]:
        """Return the figures of one block by the labels of its rows, in order."""
        rows: dict[str, list[Figure]] = {}
        for figure in self.figures(metric):
            if figure.cell.block["label"] == block:
                rows.setdefault(figure.cell.row["label"], []).append(figure)
        return rows

    def _figure(self, cell: Cell, metric: str) -> Figure:
        shown = cell.column.get("value", metric)
        row = cell.chosen(self.results.rows(cell.setting, earlier=True)) or {}
        paper = self.experiment.figure(cell, shown)
        counted = row.get(_COUNTED.get(shown, "queries"))
        values = row.get("per_query", {}).get(shown, [])
        digest = row.get("queries_digest", "")
        return Figure(cell, shown, row.get(shown), paper, counted, bool(row), values, digest)


def not_run(row: Options) -> str:
    """Describe an empty cell and what it lacks."""
    return f"not run ({row['needs']})" if "needs" in row else "not run"


def number(value: float) -> str:
    """Format a figure: shares with three digits, others by their size.

    >>> number(0.5341), number(1.0), number(20.25), number(508.0), number(383472)
    ('.534', '1.000', '20.2', '508', '383,472')
    """
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    if value > 1:
        return f"{value:.1f}"
    return f"{value:.3f}".removeprefix("0")
