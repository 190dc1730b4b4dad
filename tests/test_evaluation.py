"""Evaluation: the exact method scores 1.0, the metrics are the definitions, the cache is used."""

from __future__ import annotations

import json
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin import Column
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.evaluation import run as evaluation
from deepjoin.evaluation.metrics import interval, mean, ndcg, precision, precision_ties
from deepjoin.evaluation.truth import Truth, brute_force
from deepjoin.sources.corpus import write_corpus

from .test_cli import Run, call

REQUIRED = {
    *("corpus", "method", "join", "k", "queries", "precision", "precision_ties", "queries_ties"),
    *("precision_low", "precision_high", "ndcg", "queries_ndcg", "encode_ms", "search_ms_p50"),
    *("total_ms_p50", "total_ms_p99", "build_s", "index_mb", "memory_mb", "tau", "encoder"),
    *("seed", "version"),
}
OPTIONAL = {
    *("candidates_500", "precision_labels", "ndcg_labels", "hard_recall_labels"),
    *("pooled_precision", "pooled_recall", "pooled_f1"),
}
TIMES = {
    *("encode_ms", "search_ms_p50", "total_ms_p50", "total_ms_p99", "build_s", "memory_mb"),
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(call, capsys)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write forty columns and six queries, one of which matches nothing."""
    chance = random.Random(7)
    words = [f"Word {i}" for i in range(60)]
    columns = [
        Column(chance.sample(words, chance.randint(3, 30)), f"c{i % 5}", f"t{i // 2}")
        for i in range(40)
    ]
    queries = [Column(chance.sample(words, 12), f"c{i}", f"t{i}") for i in range(5)]
    queries.append(Column(["nowhere", "nothing"], "c", "elsewhere"))
    write_corpus(tmp_path / "tiny", columns, queries)
    return tmp_path / "tiny"


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_exact_search_scores_one(run: Run, corpus: Path) -> None:
    answer = run("evaluate", corpus, "--methods", "exact-equi,hybrid", "-k", "1,5,10")
    assert answer.status == 0
    rows = rows_of(answer.out)
    assert [(row["method"], row["k"]) for row in rows] == [
        *(("exact-equi", 1), ("exact-equi", 5), ("exact-equi", 10)),
        *(("hybrid", 1), ("hybrid", 5), ("hybrid", 10)),
    ]
    for row in rows:
        assert REQUIRED <= set(row) <= REQUIRED | OPTIONAL
        assert (row["precision"], row["precision_ties"], row["ndcg"]) == (1.0, 1.0, 1.0)
        assert (row["precision_low"], row["precision_high"]) == (1.0, 1.0)
        assert (row["queries"], row["queries_ndcg"], row["queries_ties"]) == (6, 5, 5)
        assert (row["corpus"], row["join"]) == ("tiny", "equi")
        assert row["version"] == deepjoin.__version__
        assert all(row[name] >= 0 for name in TIMES)


def test_evaluate_yields_what_the_command_prints(run: Run, corpus: Path) -> None:
    printed = rows_of(run("evaluate", corpus, "-k", "5").out)
    (row,) = deepjoin.evaluate(corpus, k=[5])
    assert {n: v for n, v in row.items() if n not in TIMES} == {
        n: v for n, v in printed[0].items() if n not in TIMES
    }


def test_default_depths_and_queries(run: Run, corpus: Path) -> None:
    rows = rows_of(run("evaluate", corpus, "--queries", 2).out)
    assert [row["k"] for row in rows] == [10, 20, 30, 40, 50]
    assert {row["queries"] for row in rows} == {2}
    more = rows_of(run("evaluate", corpus, "--queries", 99, "-k", "3").out)
    assert more[0]["queries"] == 6


def test_results_as_a_table_and_a_file(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    answer = run("evaluate", corpus, "-k", "2,4", "--format", "table", "-o", out)
    lines = answer.out.splitlines()
    assert lines[0].split()[:5] == ["method", "k", "precision", "precision_ties", "ndcg"]
    assert [line.split()[:5] for line in lines[1:]] == [
        *(["exact-equi", "2", "1.000", "1.000", "1.000"],),
        *(["exact-equi", "4", "1.000", "1.000", "1.000"],),
    ]
    assert [row["k"] for row in rows_of((out / "rows.jsonl").read_text())] == [2, 4]


def test_progress_goes_to_stderr(run: Run, corpus: Path) -> None:
    answer = run("evaluate", corpus, "-k", "2")
    assert "brute force" in answer.err
    assert "exact-equi: 6 queries" in answer.err
    assert len(rows_of(answer.out)) == 1


def test_the_cache_is_used(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = ("evaluate", corpus, "-k", "5", "--cache", tmp_path / "cache")
    first = rows_of(run(*wide).out)
    built = sorted(path.name for path in (tmp_path / "cache").iterdir())

    def again(*_: object, **__: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(evaluation, "index", again)
    monkeypatch.setattr(evaluation, "brute_force", again)
    second = rows_of(run(*wide).out)
    assert [row["build_s"] for row in first] == [row["build_s"] for row in second]
    assert [row["precision"] for row in second] == [1.0]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == built


def test_the_cache_follows_the_content(run: Run, corpus: Path, tmp_path: Path) -> None:
    wide = ("evaluate", corpus, "-k", "1", "--queries", 1, "--cache", tmp_path / "cache")
    run(*wide)
    queries = pq.read_table(corpus / "queries.parquet")
    query = Column(queries["cells"][0].as_py(), "c", "a table of its own", column_id="q")
    write_corpus(corpus, [query], [query])
    (row,) = rows_of(run(*wide).out)
    assert (row["precision"], row["queries_ndcg"]) == (None, 0), "its own table never counts"


@pytest.mark.parametrize("pattern", ["truth-*.json", "index-*/manifest.json"])
def test_a_damaged_cache_is_explained_or_mended(
    run: Run, corpus: Path, tmp_path: Path, pattern: str
) -> None:
    wide = ("evaluate", corpus, "-k", "1", "--cache", tmp_path / "cache")
    run(*wide)
    for path in (tmp_path / "cache").glob(pattern):
        path.write_text('[{"a": 0.')
    answer = run(*wide)
    assert "Traceback" not in answer.err
    if answer.status == 0:
        assert rows_of(answer.out)[0]["precision"] == 1
    else:
        assert str(tmp_path / "cache") in answer.err.splitlines()[-1]


def test_nothing_stays_without_a_cache(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(corpus.iterdir())
    assert run("evaluate", corpus, "-k", "1").status == 0
    assert list(scratch.iterdir()) == []
    assert sorted(corpus.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "status", "texts"),
    [
        (["--methods", "exact-eqi"], 1, ["Did you mean 'exact-equi'?"]),
        (["--methods", ""], 1, ["method"]),
        (["-k", "0"], 2, ["0"]),
        (["-k", "5,-1"], 2, ["-1"]),
        (["-k", "five"], 2, ["five", "10,20"]),
        (["-k", ""], 2, ["10,20"]),
        (["--queries", "0"], 2, ["queries"]),
        (["--queries", "-2"], 2, ["queries"]),
        (["--queries", "two"], 2, ["queries"]),
        (["--join", "semantic"], 2, ["semantic"]),
        (["--format", "xml"], 2, ["xml"]),
    ],
)
def test_wrong_options_are_explained(
    run: Run, corpus: Path, options: list[str], status: int, texts: list[str]
) -> None:
    answer = run("evaluate", corpus, *options)
    assert (answer.status, answer.out) == (status, "")
    assert "Traceback" not in answer.err
    for text in texts:
        assert text in answer.err.splitlines()[-1]


def test_corpora_that_are_none_are_explained(run: Run, corpus: Path, tmp_path: Path) -> None:
    run("evaluate", tmp_path / "nowhere").refused("nowhere")
    (tmp_path / "empty").mkdir()
    run("evaluate", tmp_path / "empty").refused("no columns.parquet")
    (corpus / "queries.parquet").unlink()
    answer = run("evaluate", corpus)
    assert answer.status == 1
    assert "no queries.parquet" in answer.err.splitlines()[-1]
    (corpus / "columns.parquet").write_text("no parquet")
    run("evaluate", corpus).refused("columns.parquet", "not a readable Parquet file")


def test_a_corpus_without_queries_is_explained(run: Run, tmp_path: Path) -> None:
    write_corpus(tmp_path / "c", [Column(["a", "b"], "x", "t")], [])
    answer = run("evaluate", tmp_path / "c")
    assert answer.status == 1
    assert answer.out == ""
    assert "no queries" in answer.err.splitlines()[-1].lower()


def test_results_that_cannot_be_written_are_explained(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for option in ("-o", "--cache"):
        answer = run("evaluate", corpus, "-k", "1", option, tmp_path / "file")
        assert answer.status == 1
        assert str(tmp_path / "file") in answer.err.splitlines()[-1]
        assert "Traceback" not in answer.err


def test_arguments_are_checked_before_the_work(corpus: Path) -> None:
    with pytest.raises(UnknownName, match="No method 'magic'"):
        next(iter(deepjoin.evaluate(corpus, ["exact-equi", "magic"])))
    with pytest.raises(DeepJoinError, match="k is 0; give numbers from 1 on"):
        next(iter(deepjoin.evaluate(corpus, k=[0])))


def test_truth_leaves_the_own_table_out() -> None:
    columns = [
        Column(["a", "b"], "x", "t1", column_id="same"),
        Column(["a"], "x", "t2", column_id="other"),
    ]
    (truth,) = brute_force(columns, [Column(["A", "b"], "x", "t1")], "basic")
    assert truth.joinability == {"other": 0.5}


RIGHT = Truth({"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25})
NOTHING = Truth({})


@pytest.mark.parametrize(
    ("found", "k", "by_id", "tied"),
    [
        ("ab", 2, 1.0, 1.0),
        ("ac", 2, 0.5, 1.0),
        ("ad", 2, 0.5, 0.5),
        ("ba", 2, 1.0, 1.0),
        ("", 2, 0.0, 0.0),
        ("abcd", 10, 1.0, None),
        ("zabc", 4, 0.75, 0.75),
    ],
)
def test_precision(found: str, k: int, by_id: float, tied: float | None) -> None:
    assert precision(list(found), RIGHT, k) == by_id
    assert precision_ties(list(found), RIGHT, k) == tied


def test_ndcg() -> None:
    best = 1 + 0.5 / math.log2(3)
    assert ndcg(list("ab"), RIGHT, 2) == 1
    assert ndcg(list("ac"), RIGHT, 2) == 1
    assert ndcg(list("ba"), RIGHT, 2) == pytest.approx((0.5 + 1 / math.log2(3)) / best)
    assert ndcg([], RIGHT, 2) == 0


def test_queries_that_match_nothing_are_not_counted() -> None:
    assert precision([], NOTHING, 3) is None
    assert precision_ties([], NOTHING, 3) is None
    assert ndcg([], NOTHING, 3) is None
    assert mean([1.0, None, 0.5]) == (0.75, 2)
    assert mean([None]) == (None, 0)
    assert interval([None], 0) == (None, None)
    low, high = interval([0.0, 1.0] * 50, 0)
    assert low is not None and high is not None
    assert 0.3 < low < 0.5 < high < 0.7
    assert (low, high) == interval([0.0, 1.0] * 50, 0)
