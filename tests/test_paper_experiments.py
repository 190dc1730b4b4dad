"""The paper's experiments: as data, run on a tiny corpus, and shown beside the paper's figures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.paper import __main__ as command
from benchmarks.paper import lakes, running, tall
from benchmarks.paper.claims import Verdict, compared, sentences, slopes
from benchmarks.paper.corpora import column_sizes, corpus_folder
from benchmarks.paper.experiments import SIZES, Cell, Experiment, names, read_experiment
from benchmarks.paper.hits import take
from benchmarks.paper.labelled import PooledLabels, measured
from benchmarks.paper.places import Places
from benchmarks.paper.plots import write_plots
from benchmarks.paper.results import Results
from benchmarks.paper.running import reason_not_to_run, run
from benchmarks.paper.shown import Figure, Measured, number
from benchmarks.paper.tables import document, section

from deepjoin import Column
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.metrics import Labels, Pool
from deepjoin.lab.evaluation.task import EncoderChoice, EvaluationSettings
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.read.corpus import CorpusSource, write_corpus
from deepjoin.search.methods import all_methods

pytestmark = pytest.mark.slow

LISTS = ["rome oslo bern kyiv lima", "iron gold zinc lead tin", "red blue green pink grey"]


def columns(count: int, kind: str, seed: int) -> list[Column]:
    """Make columns that share the words of one of a few lists, some with many words more."""
    chance = random.Random(seed)
    made = []
    for at in range(count):
        words = chance.sample(LISTS[at % 3].split(), 4)
        more = [f"{kind}{at}x{n}" for n in range(chance.choice([1, 3, 20]))]
        table = f"{kind}{at}"
        made.append(Column([*words, *more], name=f"n{at % 3}", table=table, column_id=f"{table}#0"))
    return made


def label(query: Column, target: Column) -> dict[str, Any]:
    shared = len(set(query.cells) & set(target.cells)) / 4
    ids = {"query_id": query.column_id, "column_id": target.column_id}
    return ids | {"entity_jn": min(1.0, shared), "surface_equi_jn": shared}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    repository, queries = columns(60, "t", 1), columns(6, "q", 2)
    corpus = write_corpus(tmp_path / "data" / "tiny", repository, queries).folder
    labels = [label(one, target) for one in queries for target in repository[:12]]
    pq.write_table(pa.Table.from_pylist(labels), corpus / "labels.parquet")
    return Places(tmp_path / "data", tmp_path / "cache", tmp_path / "models", lambda text: None)


def experiment(kind: str, **more: Any) -> Experiment:
    fields: dict[str, Any] = {
        "metrics": ["precision_ties"],
        "rows": [
            {"label": "sketch", "method": "sketch"},
            {"label": "exact", "method": "exact-equi", "paper": "theirs"},
            {"label": "heavy", "method": "bert", "encoder": "bert:{models}/b", "needs": "weights"},
        ],
        "sizes": {"reduced": {"columns": 40, "queries": 4}, "full": {}},
        "defaults": {"corpus": "tiny", "join": "equi", "k": [1, 2], "sketch": 64},
        "columns": [{"label": f"k = {k}", "depth": k, "at": k} for k in (1, 2)],
        "paper": [
            {"columns": ["k = 1", "k = 2"], "figures": {"precision_ties": {"theirs": [0.5, 0.25]}}}
        ],
    }
    return Experiment("tried", "Tried out", "It shows.", kind, **fields | more)


def ran(kind: str, places: Places, tmp_path: Path, **more: Any) -> Measured:
    tried = experiment(kind, **more)
    results = Results(tried, tmp_path / "results")
    assert run(tried, "reduced", places, results) == []
    return Measured(tried, Results(tried, tmp_path / "results"))


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_whole(name: str) -> None:
    read = read_experiment(name)
    for size in SIZES:
        cells = list(read.cells(size))
        assert cells
        for cell in cells:
            assert {"corpus"} <= set(cell.setting)
            assert read.kind == "statistics" or "method" in cell.setting
    assert read.kind in {**running._ALONE, **running._TOGETHER}
    known = {row["label"] for row in read.rows}
    for claim in read.claims:
        for named in (value for key, value in claim.items() if key != "says"):
            assert set([named] if isinstance(named, str) else named) <= known


@pytest.mark.parametrize("name", [name for name in names() if name != "examples"])
def test_every_experiment_shows_the_papers_figures(name: str) -> None:
    read = read_experiment(name)
    values = [column.get("value") for column in read.columns]
    metrics = {value for value in values if value} or set(read.metrics)
    found = {
        read.figure(cell, metric)
        for size in SIZES
        for cell in read.cells(size)
        for metric in metrics
    }
    assert len(found - {None}) > 3


def test_figures_are_those_of_the_paper() -> None:
    equi = read_experiment("equi")._figures
    assert equi["Wikitable", "DeepJoin (MPNet)", "k = 10", "precision"] == 0.614
    assert equi["Webtable", "DeepJoin (MPNet)", "k = 50", "ndcg"] == 0.822
    lake = read_experiment("time-lake")._figures
    assert lake["Webtable, equi-joins", "josie", "5M", "total_ms"] == 1103
    assert lake["Wikitable, semantic joins", "DeepJoin (GPU)", "encoding", "encode_ms"] == 9


def test_accuracy_stands_beside_the_papers_figure(places: Places, tmp_path: Path) -> None:
    page = section(ran("accuracy", places, tmp_path))
    assert "| exact | 1.000 (paper .500) | 1.000 (paper .250) |" in page
    assert "| heavy | not run (weights) | not run (weights) |" in page
    assert "Size reduced; 40 columns; 4 queries;" in page


@pytest.mark.parametrize("method", [name for name, one in all_methods().items() if not one.kind])
def test_indexes_have_what_an_evaluation_gives_a_method(method: str) -> None:
    wanted = EncoderChoice.of(EvaluationSettings()).of_method(method)
    chosen = lakes.index_options({"method": method})
    assert chosen == {"encoder": wanted.encoder, "cells": wanted.cells, "sketch": wanted.sketch}


@pytest.mark.parametrize("needs_model", [True, False])
def test_figures_of_other_models_are_not_shown(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_model: bool
) -> None:
    measured = ran("accuracy", places, tmp_path)
    assert "1.000 (paper .500)" in section(measured)
    monkeypatch.setattr("benchmarks.paper.results.shipped", lambda: "another")
    monkeypatch.setattr("benchmarks.paper.results.relies_on_shipped", lambda _: needs_model)
    again = Measured(measured.experiment, Results(measured.experiment, tmp_path / "results"))
    assert ("1.000 (paper .500)" in section(again)) is not needs_model


def test_a_line_says_all_a_figure_depends_on(places: Places, tmp_path: Path) -> None:
    ran("accuracy", places, tmp_path)
    text = (tmp_path / "results" / "tried.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == 4
    for key in ("experiment", "setting", "row", "command", "seed", "version", "shipped", "size"):
        assert all(key in line for line in lines)
    assert {"cores", "model", "memory_gb"} == set(lines[0]["hardware"])


def test_hits_of_another_machine_are_measured_as_those_of_a_run(
    places: Places, tmp_path: Path
) -> None:
    folder = tmp_path / "back"
    folder.mkdir()
    machine = {"cores": 8, "model": "Some", "memory_gb": 1.0, "gpu": "A GPU"}
    (folder / "machine.json").write_text(json.dumps(machine), "utf-8")
    source = CorpusSource(places.data / "tiny")
    right = brute_force(source.columns(), source.queries()[:4], "basic")
    ids = [one.column_id for one in source.columns()]
    rows = [[ids.index(name) for name in one.ranked[:3]] + [-1] for one in right]
    wrong = [row[::-1] for row in rows]
    np.savez(folder / "near.npz", **{"tiny-flat-cosine": rows, "tiny-hnsw-cosine": wrong})
    given = {"encoder": "{models}/near", "metric": "cosine", "vector_index": "flat"}
    tried = experiment(
        "accuracy",
        rows=[
            {"label": "exact", "method": "deepjoin"} | given,
            {"label": "other way", "method": "deepjoin"} | given | {"vector_index": "hnsw"},
            {"label": "verified", "method": "deepjoin-exact"} | given | {"vector_index": "hnsw"},
            {"label": "no hits", "method": "deepjoin"} | given | {"encoder": "{models}/far"},
        ],
        sizes={"reduced": {"columns": 40, "queries": 4}, "full": {"queries": 4}},
    )
    results = Results(tried, tmp_path / "results")
    take(tried, "full", places, results, folder)
    assert {line["hardware"]["gpu"] for line in results.lines} == {"A GPU"}
    shown = Measured(tried, Results(tried, tmp_path / "results"))
    found = {name: row[0].ours for name, row in shown.by_row("precision_ties", "").items()}
    assert found["exact"] == found["verified"] == 1
    assert found["other way"] is not None
    assert found["no hits"] is None
    np.savez(folder / "near.npz", **{"tiny-flat-cosine": rows[:3]})
    with pytest.raises(DeepJoinError, match="hits of 3 queries; the setting has 4"):
        take(tried, "full", places, results, folder)


def test_queries_of_another_corpus_have_a_match_and_are_of_different_tables(
    places: Places,
) -> None:
    others = [*columns(30, "o", 3), *columns(30, "o", 4)]
    alone = Column(["nowhere"] * 9 + [f"only{n}" for n in range(9)], table="z", column_id="z#0")
    write_corpus(places.data / "others", [*others, alone])
    options = {"corpus": "tiny", "queries_of": "others", "queries": 20, "k": [2], "join": "equi"}
    asked = lakes.queries_of(options, places)
    assert len(asked) == len({one.table for one in asked}) == 20
    assert asked == lakes.queries_of(options, places)
    source = CorpusSource(places.data / "tiny")
    assert all(one.joinability for one in brute_force(source.columns(), asked, "basic"))


def test_conditions_name_both_machines(places: Places, tmp_path: Path) -> None:
    measured = ran("accuracy", places, tmp_path)
    gpu = dict(measured.results.lines[0])
    gpu["hardware"] = {"cores": 16, "model": "Some", "memory_gb": 135.1, "gpu": "NVIDIA H200"}
    measured.results.lines.append(gpu)
    assert "rows of a GPU: NVIDIA H200, 16 cores of Some, 135.1 GB." in section(measured)


def test_what_was_run_is_not_run_again(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ran("accuracy", places, tmp_path)
    monkeypatch.setitem(running._ALONE, "accuracy", fail_with(AssertionError()))
    assert run(first.experiment, "reduced", places, first.results) == []
    with pytest.raises(AssertionError):
        run(first.experiment, "reduced", places, first.results, again=True)


def test_only_the_rows_asked_for_are_run(places: Places, tmp_path: Path) -> None:
    first = ran("accuracy", places, tmp_path)
    empty = Results(first.experiment, tmp_path / "others")
    run(first.experiment, "reduced", places, empty, rows=["no such row"])
    assert not any(empty.rows(one) for one, _ in first.experiment.settings("reduced"))
    label = first.experiment.rows[0]["label"]
    run(first.experiment, "reduced", places, empty, rows=[label])
    for one, row in first.experiment.settings("reduced"):
        assert bool(empty.rows(one)) == (row["label"] == label)


def fail_with(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_an_interruption_keeps_what_is_done(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = iter([[{"queries": 1}]])

    def once(*_: object) -> Any:
        found = next(done, None)
        if found is None:
            raise KeyboardInterrupt
        return found

    monkeypatch.setitem(running._ALONE, "accuracy", once)
    tried = experiment("accuracy")
    with pytest.raises(KeyboardInterrupt):
        run(tried, "reduced", places, Results(tried, tmp_path))
    assert len(Results(tried, tmp_path).lines) == 1


def test_a_setting_that_fails_is_named_and_others_go_on(places: Places, tmp_path: Path) -> None:
    tried = experiment("accuracy", defaults={"corpus": "none", "join": "equi", "k": [1]})
    failed = run(tried, "reduced", places, Results(tried, tmp_path))
    assert len(failed) == 2
    assert "tried, method sketch" in failed[0]
    assert "There is no corpus" in failed[0]


def test_times_and_slopes(places: Places, tmp_path: Path) -> None:
    more = {
        "metrics": ["total_ms"],
        "columns": [{"label": str(n), "columns": n, "at": n} for n in (20, 40)],
        "slope": {"of": "columns", "claimed": {"exact": "linear"}},
    }
    timed = ran("times", places, tmp_path, **more)
    found = timed.by_row("total_ms", "")
    assert all(figure.ours for figure in found["exact"])
    assert slopes(timed)[-2].endswith("| linear |")
    assert slopes(timed)[-1].split("|")[3].strip() == "not run"


def test_statistics(places: Places, tmp_path: Path) -> None:
    rows = [{"label": "tiny", "positives": True}]
    values = [{"label": name, "value": name} for name in ("columns", "most", "positives")]
    sizes = {"reduced": {}, "full": {}}
    more = {"rows": rows, "columns": values, "sizes": sizes, "defaults": {"corpus": "tiny"}}
    ran_ = ran("statistics", places, tmp_path, **more)
    counted, most, positives = (one.ours for one in ran_.by_row("", "")["tiny"])
    corpus = list(CorpusSource(places.data / "tiny").columns())
    pairs = [
        (one, other)
        for one in corpus
        for other in corpus
        if one is not other and len(set(one.cells) & set(other.cells)) >= 0.7 * len(one.cells)
    ]
    assert (counted, most, positives) == (60, 24, len(pairs))


def test_labels_and_examples(places: Places, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "metrics": ["pooled_f1"],
        "columns": [{"label": "F1", "value": "pooled_f1"}],
        "sizes": {"reduced": {"columns": 30, "queries": 4, "labels": True}, "full": {}},
    }
    found = ran("labels", places, tmp_path, **more).by_row("", "")
    assert 0 < (found["exact"][0].ours or 0) <= 1
    shown = section(ran("examples", places, tmp_path / "other", **more))
    assert "wins" in shown


def test_recall_is_within_the_pool_and_by_case() -> None:
    labels = [Labels({"a": 1.0, "b": 0.8, "c": 0.9, "d": 0.1}, dict.fromkeys("abcd", 0.0))]
    one, other = [["a", "d"]], [["b", "d"]]
    pool = Pool(("one", "other"), (one, other))
    judged = PooledLabels(labels, pool, [frozenset("ab")], [frozenset("b")])
    row = measured(one, judged)
    assert (row["pooled_precision"], row["pooled_recall"], row["pooled_f1"]) == (0.5, 0.5, 0.5)
    assert (row["recall_duplicates"], row["recall_enriching"]) == (0.0, 1.0)


def test_a_smaller_part_lies_inside_a_larger_one(places: Places) -> None:
    ids = [
        {one.column_id for one in CorpusSource(part(places, columns=n)).columns()} for n in (10, 30)
    ]
    assert len(ids[0]) == 10
    assert ids[0] < ids[1]


def test_a_part_may_keep_the_answers(places: Places) -> None:
    source = CorpusSource(places.data / "tiny")
    made = CorpusSource(part(places, columns=25, answers=[3, 5]))
    best = [set(one.ranked[:5]) for one in brute_force(source.columns(), source.queries(), "basic")]
    assert set.union(*best[:3]) <= {one.column_id for one in made.columns()}
    assert made.count == 25


def part(places: Places, **options: Any) -> Path:
    return corpus_folder({"corpus": "tiny", "queries": 3, **options}, places)


def test_a_corpus_is_made_once(places: Places) -> None:
    folder = part(places, columns=10)
    before = (folder / "columns.parquet").stat().st_mtime_ns
    assert (part(places, columns=10) / "columns.parquet").stat().st_mtime_ns == before


def test_columns_and_queries_of_one_size(places: Places) -> None:
    made = CorpusSource(part(places, columns=5, cells_between=[6, 10]))
    sizes = [column_sizes(made), column_sizes(made, "queries.parquet")]
    assert [len(one) for one in sizes] == [5, 3]
    assert all(6 <= size <= 10 for size in np.concatenate(sizes))
    ids = [{one.column_id for one in made.columns()}, {one.column_id for one in made.queries()}]
    assert not ids[0] & ids[1]
    assert column_sizes(CorpusSource(part(places, columns=5, cells_between=[11, 0]))).min() == 24


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": 61}, "has 60 columns, not 61. Ask for fewer"),
        ({"columns": 60, "cells_between": [5, 9]}, "columns of 5 to 9 cells, not 63. Ask for"),
        ({"corpus": "other"}, "There is no corpus .*other.*Give --data the folder"),
    ],
)
def test_corpora_that_cannot_be_made(places: Places, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DeepJoinError, match=text):
        part(places, **options)


class PlayedFaker:
    """Stands in for Faker."""

    def __init__(self) -> None:
        self._chance = random.Random(0)

    def _text(self) -> str:
        return f"value {self._chance.randrange(50)}"

    address = company = job = name = _text

    def simple_profile(self) -> dict[str, str]:
        """Make up a profile."""
        return {"username": self._text()}


def test_tall_columns(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tall, "_faker", lambda seed: PlayedFaker())
    monkeypatch.setattr(tall, "POOL", 100)
    made = CorpusSource(part(places, corpus="faker", columns=10, cells_each=32, local=0.5))
    assert {len(one.cells) for one in (*made.columns(), *made.queries())} == {32}
    assert {one.name for one in made.columns()} == set(tall._ATTRIBUTES)


def test_tall_columns_need_faker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faker", None)
    with pytest.raises(DeepJoinError, match=r"made with Faker: pip install 'deepjoin\[bench\]'"):
        tall._faker(0)


def test_claims_are_counted(places: Places, tmp_path: Path) -> None:
    claims = [
        {"says": "Exact is best", "best": "exact"},
        {"says": "It is above itself", "above": ["exact", "exact"]},
        {"says": "It does not rise", "falls": ["exact"]},
        {"says": "It is above what was not run", "above": ["exact", "heavy"]},
    ]
    said = sentences(ran("accuracy", places, tmp_path, claims=claims))
    name = "Precision@k with ties"
    assert said[0].startswith(f"Exact is best: {name} holds in ")
    counts = [int(word.rstrip(",")) for word in said[0].split() if word.rstrip(",").isdigit()]
    assert sum(counts) == 2
    assert (
        said[1] == f"It is above itself: {name} holds in 0, fails in 0, open in 2 paired "
        "comparisons."
    )
    assert said[2] == (
        f"It does not rise: {name} holds in 0, fails in 0, open in 1 paired comparisons."
    )
    assert said[3] == "It is above what was not run: not run here."


def figure(ours: float, values: list[float | None], digest: str = "same") -> Figure:
    cell = Cell({}, {"label": "one"}, {}, {})
    return Figure(cell, "precision", ours, None, len(values), True, values, digest)


def test_a_claim_holds_only_where_the_paired_interval_excludes_zero() -> None:
    chance = np.random.default_rng(0)
    noise = chance.normal(size=40)
    values: list[float | None] = [*map(float, noise), None]
    better: list[float | None] = [*map(float, noise + 0.1), 1.0]
    one, other = figure(0.1, better), figure(0.0, values)
    # The spread of the queries is large beside the gain, and pairing takes it out.
    assert compared(one, other) == Verdict(1, True)
    assert compared(other, one) == Verdict(-1, True)
    unpaired = figure(0.0, values, "other queries")
    assert compared(one, unpaired) == Verdict(1, False)
    assert compared(figure(0.1, []), other) == Verdict(1, False)
    noisy: list[float | None] = [*map(float, chance.permutation(noise) + 0.01), None]
    assert compared(figure(0.01, noisy), other) == Verdict(0, True)


def test_lines_of_earlier_versions_are_compared_by_means_and_named(
    places: Places, tmp_path: Path
) -> None:
    claims = [{"says": "Exact is better", "above": ["exact", "sketch"]}]
    measured = ran("accuracy", places, tmp_path, claims=claims)
    for line in measured.results.lines:
        del line["row"]["per_query"]
    assert sentences(measured)[0].endswith("of 2 comparisons of means (no paired values).")


def test_why_a_setting_is_left_out(places: Places) -> None:
    row = {"label": "one", "needs": "weights"}
    setting = {"method": "deepjoin", "encoder": "{models}/{join}/m", "join": "equi"}
    assert reason_not_to_run(setting, row, places) == f"weights: no {places.models}/equi/m"
    (places.models / "equi" / "m").mkdir(parents=True)
    assert reason_not_to_run(setting, row, places) == ""
    assert "no method nothing" in reason_not_to_run({"method": "nothing"}, row, places)


def test_encoders_with_another_sampling(places: Places) -> None:
    options = lakes.prepared({"method": "deepjoin", "sampling": "random"}, places)
    about = json.loads((Path(options["encoder"]) / "encoder.json").read_text("utf-8"))
    assert about["text"]["sampling"] == "random"
    assert (Path(options["encoder"]) / "graph.onnx").exists()


def write_experiment(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text, "utf-8")
    return folder


TINY = """
title = "Tiny"
shows = "Something."
kind = "accuracy"
metrics = ["precision_ties"]
plot = {kind = "KIND", highlight = "exact"}
defaults = {corpus = "tiny", join = "equi", k = [1, 2]}
sizes.reduced = {columns = 40, queries = 4}
sizes.full = {}
columns = [{label = "k = 1", depth = 1, at = 1}, {label = "k = 2", depth = 2, at = 2}]
rows = [{label = "exact", method = "exact-equi"}, {label = "hybrid", method = "hybrid"}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_document_and_pictures(places: Places, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    folder = write_experiment(tmp_path / "experiments", "tiny", TINY.replace("KIND", kind))
    tiny = read_experiment("tiny", folder)
    results = Results(tiny, tmp_path / "results")
    rows = [{"k": k, "queries": 4, "precision_ties": 1 / k} for k in (1, 2)]
    for setting, _ in tiny.settings("reduced"):
        results.add(setting, rows, "reduced", "a command")
    page = document(folder, tmp_path / "results")
    assert "| exact | 1.000 | .500 |" in page
    assert "![Tiny](plots/tiny.svg)" in page
    (picture,) = write_plots(tmp_path / "plots", folder, tmp_path / "results")
    assert picture.read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("title = 'x'", "bad.toml has no shows, kind, metrics, rows, sizes. Every experiment"),
        ("titel = 'x'", "bad.toml has titel. An experiment has blocks, claims"),
        ("title = ", "bad.toml is not TOML: .*Correct that line"),
    ],
)
def test_experiments_that_cannot_be_read(tmp_path: Path, text: str, told: str) -> None:
    folder = write_experiment(tmp_path / "experiments", "bad", text)
    with pytest.raises(DeepJoinError, match=told):
        read_experiment("bad", folder)


def test_an_unknown_experiment() -> None:
    with pytest.raises(DeepJoinError, match="No experiment 'eqi'.*equi"):
        read_experiment("eqi")


def test_a_damaged_line(tmp_path: Path) -> None:
    (tmp_path / "tried.jsonl").write_text("{", "utf-8")
    with pytest.raises(DeepJoinError, match="a line that is not JSON. Delete that line"):
        Results(experiment("accuracy"), tmp_path)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main(["list"]) == 0
    assert "time-lake" in capsys.readouterr().out
    folders = ["--data", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert command.main(["models", "shuffle", *folders]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 12
    assert all(line.startswith("deepjoin train") for line in printed)
    assert command.main(["run", "eqi", *folders]) == 1
    assert "No experiment 'eqi'" in capsys.readouterr().err


def test_numbers_are_written_as_the_paper_does() -> None:
    values = (0.5341, 1.0, 20.25, 508.0, 383472)
    assert [number(value) for value in values] == [".534", "1.000", "20.2", "508", "383,472"]
