"""Evaluation by labels: the metrics are those defined, own tables never count, bad files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepjoin import Column
from deepjoin.lab.evaluation.metrics import (
    Labels,
    hard_recall_labels,
    ndcg_labels,
    precision_labels,
    read_labels,
)
from deepjoin.read.corpus import CorpusSource, write_corpus
from tests.support.command_line import Run
from tests.support.corpora import write_labels

#: Four relevant columns, two of them spelled in other words, and one that is not enough.
LABELS = Labels(
    {"easy": 1.0, "hard": 0.8, "other": 0.75, "sure": 0.7, "half": 0.5},
    {"easy": 0.9, "hard": 0.0, "other": 0.2, "sure": 0.3, "half": 0.0},
)
NONE = Labels({}, {})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write a query in its own repository, columns that spell it alike, and one that does not."""
    cells = ["Austria", "Belgium", "Chile", "Denmark", "Estonia"]
    columns = [
        Column(cells, "country", "own", column_id="own#0"),
        Column(cells, "land", "own", column_id="own#1"),
        Column(cells, "country", "a", column_id="a#0"),
        Column(cells[:4], "country", "b", column_id="b#0"),
        Column([cells[0], *"wxyz"], "country", "c", column_id="c#0"),
        Column(["Apple", "Pear"], "fruit", "d", column_id="d#0"),
    ]
    write_corpus(tmp_path / "labelled", columns, [columns[0]])
    write_labels(
        tmp_path / "labelled",
        [
            *(("own#0", "a#0", 1.0, 1.0), ("own#0", "b#0", 0.7, 0.8), ("own#0", "c#0", 0.9, 0.2)),
            *(("own#0", "d#0", 0.6, 0.0), ("own#0", "own#1", 1.0, 1.0), ("other", "x", 1.0, 1.0)),
        ],
    )
    return tmp_path / "labelled"


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_relevant_hard_and_easy() -> None:
    assert LABELS.relevant == {"easy", "hard", "other", "sure"}
    assert LABELS.hard == {"hard", "other"}
    assert LABELS.easy == {"easy", "sure"}


@pytest.mark.parametrize(
    ("found", "k", "expected"),
    [
        ("easy hard other sure", 4, 1.0),
        ("easy hard other sure", 10, 1.0),
        ("half easy", 2, 0.5),
        ("half easy", 10, 0.25),
        ("half nothing", 2, 0.0),
        ("half hard", 1, 0.0),
    ],
)
def test_precision_is_over_what_fits(found: str, k: int, expected: float) -> None:
    assert precision_labels(found.split(), LABELS, k) == expected


@pytest.mark.parametrize(
    ("found", "k", "expected"),
    [
        ("easy sure hard half other", 1, 1.0),
        ("easy half hard other", 2, 0.5),
        ("easy half hard other", 3, 1.0),
        ("half nothing", 10, 0.0),
    ],
)
def test_hard_recall_takes_the_easy_ones_out(found: str, k: int, expected: float) -> None:
    assert hard_recall_labels(found.split(), LABELS, k) == expected


def test_ndcg_by_labels() -> None:
    best = 1.0 + 0.8 / math.log2(3)
    assert ndcg_labels(["easy", "hard"], LABELS, 2) == 1
    expected = (0.5 + 1.0 / math.log2(3)) / best
    assert ndcg_labels(["half", "easy", "hard"], LABELS, 2) == pytest.approx(expected)


def test_queries_without_labels_are_not_counted() -> None:
    easy = Labels({"easy": 1.0}, {"easy": 1.0})
    assert precision_labels(["a"], NONE, 3) is None
    assert ndcg_labels(["a"], NONE, 3) is None
    assert hard_recall_labels(["a"], NONE, 3) is hard_recall_labels(["easy"], easy, 3) is None


def test_the_own_table_is_not_labelled(corpus: Path) -> None:
    source = CorpusSource(corpus)
    unknown = Column(["a"], "x", "t", column_id="unlabelled")
    labels = read_labels(source, [*source.queries(), unknown])
    assert labels is not None
    assert labels[0].relevant == {"a#0", "b#0", "c#0"}, "0.7 in single precision is enough"
    assert labels[1] == NONE
    (corpus / "labels.parquet").unlink()
    assert read_labels(source, source.queries()) is None


def test_rows_have_what_labels_say(run: Run, corpus: Path) -> None:
    options = ("--methods", "exact-equi", "--join", "any", "-k", "1,2,3,10")
    rows = rows_of(run("evaluate", corpus, *options).out)
    # Found are a, b and c; c alone is hard, and the next once a and b are taken out.
    assert [row["precision_labels"] for row in rows] == [1.0, 1.0, 1.0, 1.0]
    assert [row["hard_recall_labels"] for row in rows] == [1.0, 1.0, 1.0, 1.0]
    gains, best = (1.0, 0.7, 0.9), (1.0, 0.9, 0.7, 0.6)
    discounted = [
        [sum(g / math.log2(i + 2) for i, g in enumerate(of[:k])) for k in (1, 2, 3, 10)]
        for of in (gains, best)
    ]
    expected = [mine / ideal for mine, ideal in zip(*discounted, strict=True)]
    assert [row["ndcg_labels"] for row in rows] == pytest.approx(expected, abs=1e-6)
    for row in rows:
        counts = ("queries_labels", "queries_ndcg_labels", "queries_hard_labels")
        assert [row[name] for name in counts] == [1, 1, 1]
        exact = ("precision", "precision_ties", "precision_low", "precision_high", "ndcg")
        assert [row[name] for name in exact] == [None] * 5, "any has no exact answer"
        assert (row["queries_ties"], row["queries_ndcg"], row["tau"]) == (0, 0, None)


def test_labels_beside_the_exact_answer(run: Run, corpus: Path) -> None:
    options = ("--methods", "exact-equi", "-k", "3")
    (row,) = rows_of(run("evaluate", corpus, *options).out)
    assert (row["precision"], row["precision_labels"]) == (1.0, 1.0)
    table = run("evaluate", corpus, *options, "--format", "table").out.splitlines()
    assert table[0].split()[2:8] == [
        *("precision", "precision_ties", "ndcg"),
        *("precision_labels", "ndcg_labels", "hard_recall_labels"),
    ]


def test_bad_labels_are_explained(run: Run, corpus: Path) -> None:
    write_labels(corpus, [("own#0", "nowhere", 1.0, 1.0)])
    run("evaluate", corpus).refused("labels.parquet labels the column 'nowhere'")
    pq.write_table(pa.table({"query_id": ["own#0"], "column_id": ["a#0"]}),
                   corpus / "labels.parquet")  # fmt: skip
    run("evaluate", corpus).refused("labels.parquet has no entity_jn, surface_equi_jn. Labels have")
    (corpus / "labels.parquet").write_text("no parquet")
    run("evaluate", corpus).refused("labels.parquet", "is not a readable Parquet file")
