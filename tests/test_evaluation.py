"""Evaluation: the exact method scores 1.0, the metrics are the definitions, the cache is used."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin import Column
from deepjoin.cli import evaluate as command
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.lab.evaluation import cache
from deepjoin.lab.evaluation.metrics import (
    PairedDifference,
    candidates,
    interval,
    mean,
    ndcg,
    precision,
    precision_ties,
)
from deepjoin.lab.evaluation.truth import Truth, brute_force
from deepjoin.read.corpus import write_corpus
from tests.support.command_line import Run

REQUIRED = {
    *("corpus", "method", "join", "k", "queries", "precision", "precision_ties", "queries_ties"),
    *("precision_low", "precision_high", "ndcg", "queries_ndcg", "encode_ms", "search_ms_p50"),
    *("total_ms_p50", "total_ms_p99", "build_s", "index_mb", "memory_mb", "tau", "encoder"),
    *("precision_ties_low", "precision_ties_high", "ndcg_low", "ndcg_high", "per_query"),
    *("queries_digest", "truth", "trained", "seed", "version"),
}
#: What differs from run to run; an index also holds times and inodes, as many digits as they have.
TIMES = {
    *("encode_ms", "search_ms_p50", "total_ms_p50", "total_ms_p99", "build_s", "memory_mb"),
    "index_mb",
}
EXACT = ("--methods", "exact-equi")


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
        assert set(row) == REQUIRED
        assert (row["precision"], row["precision_ties"], row["ndcg"]) == (1.0, 1.0, 1.0)
        assert (row["precision_low"], row["precision_high"]) == (1.0, 1.0)
        assert (row["queries"], row["queries_ndcg"], row["queries_ties"]) == (6, 5, 5)
        assert (row["corpus"], row["join"]) == ("tiny", "equi")
        assert row["version"] == deepjoin.__version__
        assert all(row[name] >= 0 for name in TIMES)


def test_evaluate_yields_what_the_command_prints(run: Run, corpus: Path) -> None:
    printed = rows_of(run("evaluate", corpus, *EXACT, "-k", "5").out)
    (row,) = deepjoin.evaluate(corpus, ["exact-equi"], k=[5])
    assert {n: v for n, v in row.items() if n not in TIMES} == {
        n: v for n, v in printed[0].items() if n not in TIMES
    }


def test_default_depths_and_queries(run: Run, corpus: Path) -> None:
    rows = rows_of(run("evaluate", corpus, *EXACT, "--queries", 2).out)
    assert [row["k"] for row in rows] == [10, 20, 30, 40, 50]
    assert {row["queries"] for row in rows} == {2}
    more = rows_of(run("evaluate", corpus, *EXACT, "--queries", 99, "-k", "3").out)
    assert more[0]["queries"] == 6


def test_results_as_a_table_and_a_file(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    answer = run("evaluate", corpus, *EXACT, "-k", "2,4", "--format", "table", "-o", out)
    lines = answer.out.splitlines()
    assert lines[0].split()[:5] == ["method", "k", "precision", "precision_ties", "ndcg"]
    assert [line.split()[:5] for line in lines[1:]] == [
        *(["exact-equi", "2", "1.000", "1.000", "1.000"],),
        *(["exact-equi", "4", "1.000", "1.000", "1.000"],),
    ]
    assert [row["k"] for row in rows_of((out / "rows.jsonl").read_text())] == [2, 4]


def test_progress_goes_to_stderr(run: Run, corpus: Path) -> None:
    answer = run("evaluate", corpus, *EXACT, "-k", "2")
    assert "brute force" in answer.err
    assert "exact-equi: 6 queries" in answer.err
    assert "6 of 6" not in answer.err, "it was over at once"
    assert len(rows_of(answer.out)) == 1


def test_long_steps_say_how_far_they_are(
    run: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_PAUSE", 0)
    said = run("evaluate", corpus, *EXACT, "-k", "2").err.splitlines()
    assert {"  40 of 40 columns compared", "  40 of 40 columns", "  6 of 6 queries"} <= set(said)


def test_what_was_measured_before_an_interruption_stays(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = ("evaluate", corpus, "-k", "2", "--cache", tmp_path / "c", "-o", tmp_path / "out")
    search = deepjoin.Lake.search

    def stopped(*arguments: Any, method: str, **options: Any) -> Any:
        if method == "hybrid":
            raise KeyboardInterrupt
        return search(*arguments, method=method, **options)

    with monkeypatch.context() as patch:
        patch.setattr(deepjoin.Lake, "search", stopped)
        answer = run(*wide, "--methods", "exact-equi,hybrid")
    assert answer.status == 130
    assert "run the same command to resume" in answer.err.splitlines()[-1]
    assert rows_of(answer.out) == rows_of((tmp_path / "out" / "rows.jsonl").read_text())
    assert len(rows_of(answer.out)) == 1
    again = rows_of(run(*wide, "--methods", "exact-equi,hybrid").out)
    assert [row["precision"] for row in again] == [1.0, 1.0]


def test_an_interrupted_build_is_made_again(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = ("evaluate", corpus, *EXACT, "-k", "2", "--cache", tmp_path / "cache")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    for place in (
        "deepjoin.build.segment_builder.write_ledger",
        "deepjoin.lab.evaluation.cache._timing",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, stopped)
            assert run(*wide).status == 130
    (row,) = rows_of(run(*wide).out)
    assert row["precision"] == 1


def test_the_cache_is_used(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = ("evaluate", corpus, *EXACT, "-k", "5", "--cache", tmp_path / "cache")
    first = rows_of(run(*wide).out)
    built = sorted(path.name for path in (tmp_path / "cache").iterdir())

    def again(*_: object, **__: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(cache, "index", again)
    monkeypatch.setattr(cache, "brute_force", again)
    second = rows_of(run(*wide).out)
    assert [row["build_s"] for row in first] == [row["build_s"] for row in second]
    assert [row["precision"] for row in second] == [1.0]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == built


def test_the_cache_follows_the_content(run: Run, corpus: Path, tmp_path: Path) -> None:
    kept = tmp_path / "cache"
    wide = ("evaluate", corpus, *EXACT, "-k", "1", "--queries", 1, "--cache", kept)
    run(*wide)
    queries = pq.read_table(corpus / "queries.parquet")
    query = Column(queries["cells"][0].as_py(), "c", "a table of its own", column_id="q")
    write_corpus(corpus, [query], [query])
    (row,) = rows_of(run(*wide).out)
    assert (row["precision"], row["queries_ndcg"]) == (None, 0), "its own table never counts"


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", ["truth-*.json", "index-*/manifest.json", "index-*.seconds", "index-*/segments/*/*"]
)
def test_a_damaged_cache_is_mended(run: Run, corpus: Path, tmp_path: Path, pattern: str) -> None:
    wide = ("evaluate", corpus, *EXACT, "-k", "1", "--cache", tmp_path / "cache")
    run(*wide)
    for path in (tmp_path / "cache").glob(pattern):
        path.write_text('[{"a": 0.')
    answer = run(*wide)
    assert answer.status == 0, answer.err
    assert rows_of(answer.out)[0]["precision"] == 1


def test_nothing_stays_without_a_cache(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(corpus.iterdir())
    assert run("evaluate", corpus, *EXACT, "-k", "1").status == 0
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
        (["--join", "near"], 2, ["near", "semantic"]),
        ([*EXACT, "--join", "semantic"], 1, ["'exact-equi' answers join equi, not semantic."]),
        (["--join", "any", "--candidates"], 1, ["Join any has no exact top 10"]),
        (["--tau", "0.7"], 1, ["tau is 0.7 and join equi; tau is a cosine"]),
        (["--join", "any", "--tau", "0"], 1, ["tau is 0.0 and join any; tau is a cosine"]),
        (["--tau", "2"], 2, ["2"]),
        (["--join", "semantic", "--cells", "none"], 1, ["cells is 'none'"]),
        (["--join", "any", "--cells", "no/where/here"], 1, ["no/where/here"]),
        (["--sketch", "0"], 2, ["0"]),
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
        answer = run("evaluate", corpus, *EXACT, "-k", "1", option, tmp_path / "file")
        assert answer.status == 1
        assert str(tmp_path / "file") in answer.err.splitlines()[-1]
        assert "Traceback" not in answer.err
    (tmp_path / "out" / "rows.jsonl").mkdir(parents=True)
    answer = run("evaluate", corpus, *EXACT, "-k", "1", "-o", tmp_path / "out")
    assert (answer.status, answer.out) == (1, "")
    assert f"Cannot write the rows to {tmp_path / 'out'}" in answer.err.splitlines()[-1]


def test_a_truth_that_cannot_be_kept_is_explained(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    answer = run("evaluate", corpus, *EXACT, "-k", "1", "--cache", tmp_path / "cache")
    assert answer.status == 1
    assert f"Cannot write {tmp_path / 'cache'}" in answer.err.splitlines()[-1]
    assert "No space left on device." in answer.err.splitlines()[-1]


def test_arguments_are_checked_before_the_work(corpus: Path) -> None:
    with pytest.raises(UnknownName, match="No method 'magic'"):
        next(iter(deepjoin.evaluate(corpus, ["exact-equi", "magic"])))
    with pytest.raises(DeepJoinError, match="k is 0; give whole numbers >= 1"):
        next(iter(deepjoin.evaluate(corpus, k=[0])))
    with pytest.raises(UnknownName, match="No join kind 'near' in deepjoin"):
        next(iter(deepjoin.evaluate(corpus, join="near")))


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


def test_candidates() -> None:
    ties = Truth({f"c{i}": 1.0 if i < 4 else 0.5 for i in range(20)} | {"worse": 0.25})
    best = [f"c{i}" for i in range(20)]
    assert candidates(best, ties) == 1
    assert candidates(best[10:], ties) == 1, "any ten that reach the tenth"
    assert candidates([*best[:3], "worse", "unknown"], ties) == 0.3
    assert candidates(["unknown"] * 499 + best, ties) == 0.1, "the first 500"
    assert candidates(list("abcd"), RIGHT) is None, "there is no tenth"


def test_candidates_are_measured_when_asked_for(run: Run, corpus: Path) -> None:
    options = (*EXACT, "-k", "1,5", "--candidates")
    rows = rows_of(run("evaluate", corpus, *options).out)
    assert {(row["candidates_500"], row["queries_candidates"]) for row in rows} == {(1.0, 5)}
    assert set(rows[0]) == REQUIRED | {"candidates_500", "queries_candidates"}


def test_ndcg() -> None:
    best = 1 + 0.5 / math.log2(3)
    assert ndcg(list("ab"), RIGHT, 2) == 1
    assert ndcg(list("ac"), RIGHT, 2) == 1
    assert ndcg(list("ba"), RIGHT, 2) == pytest.approx((0.5 + 1 / math.log2(3)) / best)
    assert ndcg([], RIGHT, 2) == 0


@pytest.mark.slow
def test_rows_keep_the_value_of_each_query(run: Run, corpus: Path) -> None:
    rows = rows_of(run("evaluate", corpus, "--methods", "exact-equi,sketch", "-k", "5").out)
    for row in rows:
        for name, values in row["per_query"].items():
            assert len(values) == row["queries"]
            assert mean(values)[0] == pytest.approx(row[name], abs=1e-4)
    assert {name for row in rows for name in row["per_query"]} == {
        *("precision", "precision_ties", "ndcg")
    }
    fewer = rows_of(run("evaluate", corpus, *EXACT, "-k", "5", "--queries", 3).out)
    digests = [row["queries_digest"] for row in (*rows, *fewer)]
    assert digests[0] == digests[1] != digests[2], "of the same queries, in the same order"


def test_paired_differences() -> None:
    chance = random.Random(0)
    other = [chance.random() for _ in range(60)]
    one = [value + 0.05 + 0.01 * chance.random() for value in other]
    better = PairedDifference.of([*one, None], [*other, 1.0])
    assert better is not None
    assert (better.queries, better.sign) == (60, 1)
    assert better.low < better.mean < better.high
    assert str(better) == "+0.056 (+0.055 to +0.056, 60 queries)"
    worse = PairedDifference.of(other, one)
    assert worse is not None and worse.sign == -1
    same = PairedDifference.of(other, [*reversed(other)])
    assert same is not None and same.sign == 0
    assert PairedDifference.of([None], [1.0]) is None


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


def test_single_keywords_are_deprecated(corpus: Path) -> None:
    messages: list[str] = []
    with pytest.warns(DeprecationWarning) as warned:
        (row,) = deepjoin.evaluate(corpus, ["exact-equi"], k=[1], queries=2, tell=messages.append)
    assert [str(one.message) for one in warned] == [
        "evaluate() takes tell for one more release; use notify",
        "evaluate() takes queries for one more release; "
        "use settings=EvaluationSettings(queries=...)",
    ]
    assert row["queries"] == 2 and "truth by brute force" in messages
