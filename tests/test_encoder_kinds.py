"""Encoders of other methods: averages of cells, how they are named, stored, searched, evaluated."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, Lake
from deepjoin.arrays import Double, Float
from deepjoin.cli.config import NAME, parse
from deepjoin.cli.parser import make_parser
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.loading import example_of, split_kind
from deepjoin.embed.columns.text import no_frequency
from deepjoin.errors import DeepJoinError, IndexUnusable, MissingExtra, UnknownName
from deepjoin.lab.encoders import KINDS, averages
from deepjoin.lab.evaluation import EvaluationSettings
from deepjoin.read.corpus import write_corpus
from deepjoin.search.methods import all_methods
from deepjoin.store import models
from deepjoin.store.models import located, shown, stored
from tests.support.command_line import Run
from tests.support.encoder_models import Folders

WORDS = {
    "rome": (3, 0, 0), "paris": (2, 1, 0), "lyon": (2, 1, 1), "oslo": (1, 0, 1),
    "copper": (0, 4, -1), "zinc": (-1, 3, 0), "new": (0, 1, 1), "york": (1, 0, 2),
}  # fmt: skip
CITIES = Column(["Rome", "Paris", "Oslo", "New York", "Lyon"], "city", "cities")
METALS = Column(["copper", "zinc", "new copper"], "metal", "metals")
MIXED = Column(["Rome", "zinc", "lyon", "atlantis"], "thing", "things")
ODD = Column(["atlantis", "lemuria"], "place", "legends")


def write_vec(path: Path) -> Path:
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in WORDS.items()]
    path.write_text("\n".join([f"{len(lines)} 3", *lines]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def vec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vec(tmp_path_factory.mktemp("vec") / "words.vec")


def loaded(spec: str, profile: str = "default") -> ColumnEncoder:
    found = load_encoder(spec, profile=profile, device="cpu")
    assert found is not None
    return found


def by_hand(cells: list[str]) -> Double:
    """Average as the definition says, value by value."""
    values = {" ".join(cell.lower().split()) for cell in cells}
    rows = []
    for value in values:
        units = [np.array(WORDS[word]) / np.linalg.norm(WORDS[word])
                 for word in value.split() if word in WORDS]  # fmt: skip
        if units:
            rows.append(np.sum(units, axis=0) / np.linalg.norm(np.sum(units, axis=0)))
    return np.mean(rows, axis=0) if rows else np.zeros(3)


cells = st.lists(
    st.lists(st.sampled_from([*WORDS, "Rome", "YORK", "atlantis"]), min_size=1, max_size=3).map(
        " ".join
    ),
    max_size=12,
)


@pytest.mark.slow
@given(columns=st.lists(cells, max_size=5), random=st.randoms(use_true_random=False))
def test_a_column_is_the_mean_of_its_distinct_cells(
    columns: list[list[str]], random: np.random.Generator, vec: Path
) -> None:
    encoder = loaded(f"fasttext:{vec}")
    found = encoder.encode([Column(of) for of in columns], no_frequency)
    assert found.shape == (len(columns), 3) and found.dtype == np.float32
    for vector, of in zip(found, columns, strict=True):
        assert np.allclose(vector, by_hand(of), atol=1e-6)
        again = [*of, *(cell.upper() for cell in of)]
        random.shuffle(again)  # type: ignore[arg-type]
        assert np.allclose(encoder.encode_query(Column(again), no_frequency), vector, atol=1e-6)


def test_many_values_are_looked_up_some_at_a_time(
    vec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, columns = loaded(f"fasttext:{vec}"), [CITIES, METALS, MIXED, ODD, Column([])]
    whole = encoder.encode(columns, no_frequency)
    assert not whole[3:].any()
    monkeypatch.setattr(averages, "_VALUES", 3)
    assert np.allclose(encoder.encode(columns, no_frequency), whole)


def test_what_an_encoder_says_of_itself(vec: Path) -> None:
    encoder = loaded(f"fasttext:{vec}")
    assert (encoder.name, encoder.kind, encoder.dimension) == ("fasttext:words.vec", "fasttext", 3)
    assert not encoder.counted
    assert encoder.digest == loaded(f"fasttext:{vec}").digest
    assert encoder.digest != loaded(f"fasttext:{vec}", "basic").digest


@pytest.mark.slow
def test_trained_vectors_average_too(tmp_path: Path) -> None:
    pytest.importorskip("fasttext")
    from deepjoin.lab.encoders.train_fasttext import main

    deepjoin.index([CITIES, METALS], tmp_path / "i", encoder="none", vectors={"cells": "none"})
    options = ["-o", str(tmp_path / "lake.bin"), "--dimension", "6", "--epochs", "1"]
    assert main([str(tmp_path / "i"), *options]) == 0
    lake = deepjoin.index(tmp_path / "i", encoder=f"fasttext:{tmp_path / 'lake.bin'}")
    assert {hit.table for hit in lake.search(["Rome"], method="fasttext", join="equi")} == {
        "cities"
    }


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_a_language_model_averages_word_pieces(kind: str, folders: Folders) -> None:
    encoder = loaded(f"{kind}:{folders(kind)}")
    assert (encoder.kind, encoder.dimension) == (kind, 64)
    columns = [
        Column(["Rome", "new york", " rome", "東京 x"]),
        Column(["company", "!?"]),
        Column([]),
    ]
    found = encoder.encode(columns, no_frequency)
    for vector, values in zip(
        found, (["rome", "new york", "東京 x"], ["company", "!?"]), strict=False
    ):
        wanted = np.mean([states_mean(folders(kind), value) for value in values], axis=0)
        assert np.allclose(vector, wanted, atol=1e-5)
    assert not found[2].any()
    alone = encoder.encode_query(columns[1], no_frequency)
    assert np.allclose(alone, found[1], atol=1e-5)


def states_mean(folder: Path, text: str) -> Float:
    """Average the last layer over the word pieces of a text, with the library alone."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    with torch.inference_mode():
        states = model.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    mean: Float = states[1:-1].mean(0).numpy()
    return mean


def test_what_a_folder_adds_to_the_model_is_left_out(folders: Folders) -> None:
    sentence = folders("sentence bert")
    tuned, plain = loaded(f"bert:{sentence}"), loaded(f"bert:{sentence.parent / 'plain'}")
    both = [one.encode([CITIES], no_frequency) for one in (tuned, plain)]
    assert np.allclose(*both, atol=1e-6)
    assert np.linalg.norm(both[0]) != pytest.approx(1)


def test_a_long_cell_is_cut(folders: Folders) -> None:
    encoder = loaded(f"bert:{folders('bert')}")
    long, longer = (Column([" ".join("ab" * times)]) for times in (63, 200))
    assert np.allclose(*(encoder.encode([one], no_frequency) for one in (long, longer)), atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fastext:a.vec", "No encoder kind 'fastext' in deepjoin. .*Did you mean 'fasttext'?"),
        ("fasttext", "'fasttext' is an encoder kind and needs a place. Give `encoder=.fasttext:"),
        ("bert:", "Nothing follows 'bert:'. Give `encoder=.bert:FOLDER"),
        ("fasttext:train", "There is no fastText file 'train'. .*train_fasttext INDEX -o lake.bin"),
        ("fasttext:a/gone.bin", "There is no fastText file 'a/gone.bin'. Give a .vec or .bin"),
        ("mpnet:./gone", "There is no encoder folder './gone'. Give"),
    ],
)
def test_a_wrong_encoder_is_reported_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(DeepJoinError, match=message) as told:
        load_encoder(spec)
    assert "\n" not in str(told.value)


def test_a_missing_package_is_named(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders("bert")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"needs torch: pip install 'deepjoin\[train\]'"):
        loaded(f"bert:{folder}")


def test_names_are_seen_from_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_vec(tmp_path / "words.vec")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    index = tmp_path / "deep" / "index"
    for spec in ("fasttext:words.vec", "fasttext:~/words.vec", f"fasttext:{tmp_path}/words.vec"):
        assert stored(spec, index) == "fasttext:../../words.vec"
    assert stored("fasttext:words.vec", None) == f"fasttext:{tmp_path}/words.vec"
    assert located("fasttext:../../words.vec", index) == f"fasttext:{tmp_path}/words.vec"
    assert shown("fasttext:../../words.vec", index) == "fasttext:words.vec"
    for same in ("sherlock:", "bert:google/bert", "default", "none"):
        assert stored(same, index) == located(same, index) == shown(same, index) == same


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Index four columns, with the vectors beside the index."""
    (tmp_path / "home").mkdir()
    vec = write_vec(tmp_path / "home" / "words.vec")
    columns = [CITIES, METALS, MIXED, ODD]
    return deepjoin.index(
        columns, tmp_path / "home" / "i", encoder=f"fasttext:{vec}", vectors={"cells": "none"},
        settings=deepjoin.Settings(min_distinct=1),
    )  # fmt: skip


def test_the_nearest_averages_are_found(lake: Lake) -> None:
    query = Column(["Paris", "new york", "Gotham"])
    hits = lake.search(query, method="fasttext", join="equi")
    likes = {
        one.table: _cosine(by_hand(list(map(str, one.cells))), by_hand(["paris", "new york"]))
        for one in (CITIES, METALS, MIXED)
    }
    near = [hit for hit in hits if hit.table in likes]
    assert [hit.table for hit in near] == sorted(likes, key=lambda table: -likes[table])
    assert [hit.score for hit in near] == pytest.approx(sorted(likes.values())[::-1], abs=1e-3)
    assert near[0].found_by == ("fasttext",)
    mine = lake.search(query, method="fasttext", join="equi", exclude_table=near[0].table)
    assert mine[0].table == near[1].table
    assert not lake.search(["atlantis"], method="fasttext", join="equi")


def _cosine(one: Double, other: Double) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_an_index_moves_with_its_vectors(lake: Lake, tmp_path: Path, run: Run) -> None:
    wanted = [hit.table for hit in lake.search(CITIES, method="fasttext", join="equi")]
    assert lake.vectors.encoder == "fasttext:../words.vec"
    shutil.move(tmp_path / "home", tmp_path / "away")
    moved = deepjoin.open(tmp_path / "away" / "i")
    assert [hit.table for hit in moved.search(CITIES, method="fasttext", join="equi")] == wanted
    checked = run("check", tmp_path / "away" / "i")
    assert checked.status == 0 and "not compared" not in checked.out + checked.err


def test_other_vectors_are_reported(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "home" / "words.vec"
    path.write_text(path.read_text("utf-8").replace("rome 3", "rome 1"), "utf-8")
    again = deepjoin.open(tmp_path / "home" / "i")
    models._loaded_columns.cache_clear()
    with pytest.raises(IndexUnusable, match="--encoder fasttext:home/words.vec"):
        again.search(CITIES, method="fasttext", join="equi")


@pytest.mark.parametrize("method", ["deepjoin", "deepjoin-sketch"])
def test_a_method_reads_vectors_of_its_own_kind(lake: Lake, method: str) -> None:
    message = (
        f"encoded for method 'fasttext', not for '{method}'. Search with 'fasttext', or encode "
        "them again with: deepjoin index .*i --encoder default$"
    )
    with pytest.raises(DeepJoinError, match=message):
        lake.search(CITIES, method=method, join="equi")
    with pytest.raises(DeepJoinError, match="not for 'bert'. .* --encoder bert:FOLDER$"):
        lake.search(CITIES, method="bert", join="equi")


def test_what_a_lake_lacks_is_named_with_the_command(tmp_path: Path) -> None:
    lake = deepjoin.index([CITIES], tmp_path / "i", encoder="none", vectors={"cells": "none"})
    message = (
        "has no column vectors, which method 'fasttext' needs. Make them with: "
        "deepjoin index .*i --encoder fasttext:FILE.bin$"
    )
    with pytest.raises(DeepJoinError, match=message):
        lake.search(CITIES, method="fasttext", join="equi")


def test_deepjoin_vectors_are_not_those_of_an_average(tmp_path: Path) -> None:
    lake = deepjoin.index([CITIES], tmp_path / "i", encoder="default", vectors={"cells": "none"})
    with pytest.raises(DeepJoinError, match="encoded for method 'deepjoin', not for 'fasttext'"):
        lake.search(CITIES, method="fasttext", join="equi")


def test_every_kind_is_a_method() -> None:
    assert {method.kind for method in all_methods().values()} == {"", *KINDS}
    assert all(all_methods()[kind].kind == kind for kind in KINDS)
    assert all(split_kind(f"{kind}:x") == (kind, "x") for kind in KINDS)


def test_the_table_of_methods_fits(run: Run) -> None:
    lines = run("methods").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(f"--encoder {example_of(kind)}" in line for kind in KINDS for line in lines) == len(
        KINDS
    )
    (both,) = (line for line in lines if line.startswith("deepjoin-sketch"))
    assert "--encoder default --sketch 768" in both, "what an index does not have by default"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    queries = [Column(["Rome", "Lyon"], "q", "mine"), Column(["zinc", "copper"], "q", "other")]
    write_corpus(tmp_path / "tiny", [CITIES, METALS, MIXED, ODD], queries)
    return tmp_path / "tiny"


@pytest.mark.slow
def test_each_method_is_evaluated_with_its_encoder(
    corpus: Path, vec: Path, folders: Folders
) -> None:
    rows = list(
        deepjoin.evaluate(
            *(corpus, ["exact-equi", "fasttext", "bert"]),
            k=[1],
            settings=EvaluationSettings(encoder=[f"fasttext:{vec}", f"bert:{folders('bert')}"]),
        )
    )
    encoders = [(row["encoder"] or "").partition("@")[0] for row in rows]
    assert encoders == ["", "fasttext:words.vec", f"bert:{folders('bert').name}"]
    assert rows[1]["precision_ties"] == 1.0


@pytest.mark.slow
def test_the_command_takes_several_encoders(run: Run, corpus: Path, vec: Path) -> None:
    options = ("--methods", "deepjoin,fasttext", "-k", "1", "--encoder", "default")
    answer = run("evaluate", corpus, *options, "--encoder", f"fasttext:{vec}", "--format", "table")
    assert answer.status == 0
    assert [line.split()[0] for line in answer.out.splitlines()] == [
        "method", "deepjoin", "fasttext",
    ]  # fmt: skip


def test_a_method_without_its_encoder_is_refused_first(run: Run, corpus: Path) -> None:
    answer = run("evaluate", corpus, "--methods", "exact-equi,mlp", "--encoder", "default")
    answer.refused("Method 'mlp' needs its own encoder. Add --encoder mlp:FOLDER")
    assert answer.out == ""
    with pytest.raises(DeepJoinError, match="'default' and 'mine' are for the same method"):
        twice = EvaluationSettings(encoder=["default", "mine"])
        next(iter(deepjoin.evaluate(corpus, settings=twice)))
    with pytest.raises(UnknownName, match="No encoder kind 'fastext'"):
        unknown = EvaluationSettings(encoder="fastext:a.vec")
        next(iter(deepjoin.evaluate(corpus, ["deepjoin"], settings=unknown)))


def test_a_path_of_the_configuration_file_counts_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vec(tmp_path / "words.vec")
    (tmp_path / "below").mkdir()
    lines = '[evaluate]\nencoder = ["fasttext:words.vec", "bert:name", "sherlock:"]\n'
    (tmp_path / NAME).write_text(lines + '[index]\nencoder = "fasttext:words.vec"\n')
    monkeypatch.chdir(tmp_path / "below")
    options = parse(make_parser(), ["evaluate", "corpus"])
    assert options.encoder == [f"fasttext:{tmp_path}/words.vec", "bert:name", "sherlock:"]
    assert parse(make_parser(), ["index", "x"]).encoder == f"fasttext:{tmp_path}/words.vec"
