"""Labels within the pool of all methods, and answers that an earlier run has kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column
from deepjoin.lab.evaluation import EvaluationSettings, cache
from deepjoin.lab.evaluation.metrics import Labels, Pool, harmonic, pooled_precision, pooled_recall
from deepjoin.read.corpus import write_corpus
from tests.support.corpora import write_labels

IDS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
BOTH = ("exact-equi", "sketch")
NONE = Labels({}, {})


def labelled(*relevant: str) -> Labels:
    """Label columns as relevant, and one as not enough."""
    gains = dict.fromkeys(relevant, 1.0) | {"half": 0.5}
    return Labels(gains, dict.fromkeys(gains, 1.0))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write two queries; of the relevant columns, one shares no value."""
    cells = [f"value {i}" for i in range(12)]
    columns = [Column(cells[i : i + 6], "c", f"t{i}", column_id=f"t{i}#0") for i in range(7)]
    columns.append(Column(["other", "words", "here"], "c", "far", column_id="far#0"))
    queries = [columns[0], columns[6]]
    write_corpus(tmp_path / "pooled", columns, queries)
    rows = [("t0#0", "t1#0", 1.0, 0.8), ("t0#0", "t5#0", 0.9, 0.1), ("t0#0", "far#0", 1.0, 0.0)]
    write_labels(tmp_path / "pooled", [*rows, ("t6#0", "far#0", 1.0, 0.0)])
    return tmp_path / "pooled"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the searches of each method."""
    counts: Counter[str] = Counter()
    search = deepjoin.Lake.search

    def counted(*arguments: Any, method: str, **options: Any) -> Any:
        counts[method] += 1
        return search(*arguments, method=method, **options)

    monkeypatch.setattr(deepjoin.Lake, "search", counted)
    return counts


def test_precision_is_over_what_is_retrieved() -> None:
    labels = labelled("a", "b", "c")
    assert pooled_precision(list("axby"), labels, 4) == 0.5
    assert pooled_precision(list("axby"), labels, 1) == 1
    assert pooled_precision(["a"], labels, 10) == 1, "one of one"
    assert pooled_precision(["half"], labels, 10) == 0
    assert pooled_precision([], labels, 10) == 0, "nothing is right in nothing"
    assert pooled_precision(["a"], NONE, 10) is None


def test_recall_is_over_the_pool() -> None:
    labels = labelled("a", "b", "c", "never found")
    pool = [list("axb"), list("ca")]
    assert pooled_recall(pool[0], labels, pool, 3) == 2 / 3
    assert pooled_recall(pool[1], labels, pool, 3) == 2 / 3
    assert pooled_recall(pool[0], labels, pool, 1) == 1 / 2, "of the first of each: a and c"
    assert pooled_recall([], labels, [[], ["x"]], 3) is None
    assert pooled_recall(["a"], NONE, [["a"]], 3) is None


@given(found=st.lists(IDS, min_size=1, max_size=4), relevant=IDS, k=st.integers(1, 9))
def test_the_pool_as_defined(found: list[list[str]], relevant: list[str], k: int) -> None:
    labels = labelled(*relevant)
    right = {*relevant} & {column for one in found for column in one[:k]}
    for one in found:
        hits = {*one[:k]} & {*relevant}
        recall = pooled_recall(one, labels, found, k)
        assert recall == (len(hits) / len(right) if right else None)
        precision = pooled_precision(one, labels, k)
        expected = len(hits) / len(one[:k]) if one else 0
        assert precision == (expected if relevant else None)


def test_f1_is_that_of_the_averages() -> None:
    found = ([["a", "x"], ["y"], ["z"]], [["b"], ["c"], []])
    labels = [labelled("a", "b"), labelled("c"), NONE]
    pool = Pool(("one", "two"), found)
    row = pool.measured(found[0], labels, 5)
    assert (row["pooled_precision"], row["pooled_recall"]) == (0.25, 0.25)
    assert (row["pooled_f1"], row["queries_pooled"]) == (0.25, 2)
    assert row["pooled_methods"] == ["one", "two"]
    assert pool.measured(found[1], labels, 5)["pooled_f1"] == 2 * 1 * 0.75 / 1.75
    assert harmonic(0.652, 0.385) == pytest.approx(0.484, abs=1e-3), "a row of the paper"
    assert harmonic(0.0, 0.0) == 0
    assert harmonic(None, 1.0) is harmonic(1.0, None) is None


def test_rows_are_measured_within_the_run(corpus: Path) -> None:
    rows = {row["method"]: row for row in deepjoin.evaluate(corpus, BOTH, k=[7])}
    alone = next(iter(deepjoin.evaluate(corpus, ["exact-equi"], k=[7])))
    assert [row["pooled_methods"] for row in (*rows.values(), alone)] == [
        *([*BOTH], [*BOTH], ["exact-equi"])
    ]
    # Exact search finds five of the six others for the first query, two of which are relevant.
    assert alone["pooled_recall"] == 1, "all that is relevant in a pool of its own"
    assert alone["pooled_precision"] == rows["exact-equi"]["pooled_precision"] == (2 / 5 + 0) / 2
    assert all(0 < row["pooled_recall"] <= 1 for row in rows.values())
    for row in rows.values():
        assert row["pooled_f1"] == harmonic(row["pooled_precision"], row["pooled_recall"])


def test_a_corpus_without_labels_has_no_pool(corpus: Path) -> None:
    (corpus / "labels.parquet").unlink()
    for row in deepjoin.evaluate(corpus, BOTH, k=[5]):
        assert not [name for name in row if "pool" in name]


def test_methods_that_have_answered_are_not_asked_again(
    corpus: Path, tmp_path: Path, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*methods: str) -> list[dict[str, Any]]:
        return list(deepjoin.evaluate(corpus, methods, k=[3, 5], cache=tmp_path / "kept"))

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("deepjoin.search.vectors.VectorSearcher._ranking", stop)
        run(*BOTH)
    first = asked["exact-equi"]
    assert first
    rows = run(*BOTH)
    assert asked["exact-equi"] == first, "it had answered before the interruption"
    assert asked["sketch"]
    asked.clear()
    assert run(*BOTH) == rows, "with the times that were measured"
    assert not asked


def precision(corpus: Path, kept: Path, k: int = 3, queries: int = 2) -> float:
    settings = EvaluationSettings(queries=queries)
    (row,) = deepjoin.evaluate(corpus, ["exact-equi"], k=[k], settings=settings, cache=kept)
    return float(row["precision"])


def test_answers_to_other_questions_do_not_serve(
    corpus: Path, tmp_path: Path, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    precision(corpus, tmp_path / "kept")
    for options in ({"k": 4}, {"queries": 1}):
        asked.clear()
        precision(corpus, tmp_path / "kept", **options)
        assert asked["exact-equi"]
    asked.clear()
    monkeypatch.setattr(cache, "_code", lambda: "a method that was changed")
    precision(corpus, tmp_path / "kept")
    assert asked["exact-equi"]


@pytest.mark.parametrize("text", ['{"found": [', "[]", '{"other": 1}'])
def test_damaged_answers_are_asked_for_again(
    corpus: Path, tmp_path: Path, asked: Counter[str], text: str
) -> None:
    expected = precision(corpus, tmp_path / "kept")
    (path,) = (tmp_path / "kept").glob("answers-*.json")
    path.write_text(text)
    asked.clear()
    assert precision(corpus, tmp_path / "kept") == expected
    assert asked["exact-equi"]
    assert path.read_text() != text
