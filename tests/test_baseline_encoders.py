"""TaBERT, TURL, the MLP and Sherlock: published layouts, read as published, by column alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepjoin
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.text import no_frequency
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.encoders.averages import MlpEncoder, Tower, load_mlp, mean_vectors, write_mlp
from deepjoin.lab.encoders.sherlock import load_sherlock
from deepjoin.lab.encoders.tabert import RowLayout, TabertEncoder, TabertRow, load_tabert
from deepjoin.lab.encoders.turl import TurlEncoder, load_turl
from deepjoin.model import Column
from tests.support.table_models import (
    SIZES,
    VOCABULARY,
    across_shapes,
    bert_config,
    drawn,
    put_words,
    save_mlp,
    save_tabert,
    save_turl,
    say,
)

pytestmark = pytest.mark.slow

NATIONS = Column(["United States", "China", "china", None, "gdp"], name="Nation", title="GDPs")
NUMBERS = Column(["7", "8.5", "-3", "7.0", "1200"], name="rank")
COLUMNS = [NATIONS, NUMBERS, Column([], name="gone"), Column(["a", "b"]), Column(["China"] * 9)]


def tokens_of(numbers: list[int]) -> str:
    return " ".join(VOCABULARY[number] for number in numbers)


def tabert(folder: Path) -> TabertEncoder:
    found = load_tabert(str(folder), profile="default", device="cpu")
    assert isinstance(found, TabertEncoder)
    return found


def turl(folder: Path) -> TurlEncoder:
    found = load_turl(str(folder), profile="default", device="cpu")
    assert isinstance(found, TurlEncoder)
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch: Any = pytest.importorskip("torch")
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("checkpoints")
    return {
        "one": save_tabert(place / "one"),
        "three": save_tabert(
            place / "three", rows=3, column_representation="mean_pool_column_name"
        ),
        "turl": save_turl(place / "turl"),
        "mlp": save_mlp(place / "mlp"),
    }


def loaded(spec: str, folders: dict[str, Path]) -> ColumnEncoder:
    kind, _, name = spec.partition(":")
    found = load_encoder(f"{kind}:{folders[name] if name else ''}", profile="default", device="cpu")
    assert isinstance(found, ColumnEncoder)
    assert found.kind == kind
    return found


def test_rows_are_written_as_published(folders: dict[str, Path]) -> None:
    words = tabert(folders["one"])._words
    title, nation, united = words.numbers(
        ["ranked", "Nation", "united states united states united states"]
    )
    row = RowLayout().row(title, nation, words.number("text"), united, words)
    assert tokens_of(row.tokens) == (
        "[CLS] rank ##ed [SEP] nation | text | united states united states united [SEP]"
    )
    assert row.first == 4
    column = "nation | text | united states united states united"
    assert tokens_of(row.tokens[slice(*row.span)]) == column


@pytest.mark.parametrize("pooling", ["mean_pool_column_name", "first_token"])
def test_rows_name_their_column(pooling: str, folders: dict[str, Path]) -> None:
    words = tabert(folders["one"])._words
    gdp, china = words.numbers(["GDP", "China"])
    layout = RowLayout(title_first=False, pooling=pooling)
    row = layout.row([], gdp, words.number("text"), china, words)
    assert tokens_of(row.tokens) == "[CLS] gdp | text | china [SEP] [SEP]"
    assert row.first == len(row.tokens) - 1
    assert tokens_of(row.tokens[slice(*row.span)]) == "gdp"


def test_long_rows_are_cut(folders: dict[str, Path]) -> None:
    words = tabert(folders["one"])._words
    title, name = words.numbers(["gdp " * 90, "nation " * 90])
    row = RowLayout(longest=20, title_tokens=10).row(title, name, words.number("text"), [], words)
    assert len(row.tokens) == 20
    assert row.span == (12, 19)


@pytest.mark.parametrize(
    ("said", "template"),
    [
        ({}, "column | type | value"),
        ({"cell_input_template": "column|type|value"}, "column | type | value"),
        ({"cell_input_template": ["column", "|", "value"]}, "column | value"),
        ({"column_item_delimiter": "|", "use_type_text": False}, "column | value"),
        ({"column_item_delimiter": "|", "use_sample_value": False}, "column | type"),
    ],
)
def test_templates_of_all_versions_are_read(
    said: dict[str, Any], template: str, tmp_path: Path, folders: dict[str, Path]
) -> None:
    assert " ".join(tabert(save_tabert(tmp_path, **said)).layout.template) == template


def snapshots(encoder: TabertEncoder, column: Column) -> list[str]:
    return [tokens_of(row.tokens) for row in encoder.snapshot(column)]


def test_snapshots_show_distinct_cells_in_order(folders: dict[str, Path]) -> None:
    assert snapshots(tabert(folders["three"]), NATIONS) == [
        f"[CLS] gdp ##s [SEP] nation | text | {cell} [SEP]"
        for cell in ("united states", "china", "gdp")
    ]
    (one,) = snapshots(tabert(folders["one"]), NUMBERS)
    assert one.startswith("[CLS] [SEP] rank | real |")
    assert snapshots(tabert(folders["one"]), Column([None, " "])) == []


def test_tabert_averages_the_tokens_of_a_column(folders: dict[str, Path]) -> None:
    import torch

    encoder = tabert(folders["one"])
    (row,) = encoder.snapshot(NATIONS)
    assert isinstance(row, TabertRow)
    segments = [0] * row.first + [1] * (len(row.tokens) - row.first)
    with torch.inference_mode():
        states = encoder._bert(
            input_ids=torch.tensor([row.tokens]), token_type_ids=torch.tensor([segments])
        ).last_hidden_state[0]
    start, stop = row.span
    found = encoder.encode_query(NATIONS, no_frequency)
    np.testing.assert_allclose(found, states[start:stop].mean(0), atol=1e-5)


def test_rows_attend_to_each_other(folders: dict[str, Path]) -> None:
    """The layers across rows, compared with the library's own under other names."""
    import torch

    library: Any = pytest.importorskip("transformers")
    encoder = tabert(folders["three"])
    config = bert_config()
    config.num_attention_heads = 3
    layers = library.BertModel(config).eval().encoder
    tensors = drawn(across_shapes())
    layers.load_state_dict(
        {
            name.replace("vertical_transformer_layers.", "layer.")
            .replace("self_attention.", "self.")
            .replace("_linear", "")
            .replace("self_output", "output"): one
            for name, one in tensors.items()
        }
    )
    with torch.inference_mode():
        states = torch.from_numpy(encoder._states(encoder.snapshot(NATIONS)))[None]
        wanted = layers(states).last_hidden_state[0].mean(0)
    found = encoder.encode_query(NATIONS, no_frequency)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_turl_reads_a_column_as_a_table_of_its_own(folders: dict[str, Path]) -> None:
    encoder = turl(folders["turl"])
    table = encoder.table(NATIONS)
    assert tokens_of(table.title) == "gdp ##s"
    assert tokens_of(table.header) == "nation"
    assert [tokens_of(cell) for cell in table.mentions] == ["united states", "china", "gdp"]
    tall = encoder.table(Column([f"a{at}" for at in range(300)]))
    assert len(tall.mentions) == 100
    long = encoder.table(Column(["a " * 99], name="a " * 99, title="b " * 99))
    assert (len(long.title), len(long.header), len(long.mentions[0])) == (50, 10, 10)


def test_turl_is_the_published_model(folders: dict[str, Path]) -> None:
    """Its embeddings written out, its layers those of the library."""
    import torch
    from torch.nn import functional

    library: Any = pytest.importorskip("transformers")
    tensors: Any = torch.load(folders["turl"] / "pytorch_model.bin", weights_only=True)
    layers = library.BertModel(bert_config()).eval().encoder
    prefix = "table.encoder."
    layers.load_state_dict(
        {name[len(prefix) :]: one for name, one in tensors.items() if name.startswith(prefix)}
    )
    part = {name.removeprefix("table.embeddings."): one for name, one in tensors.items()}
    word, kind = part["word_embeddings.weight"], part["type_embeddings.weight"]

    def normed(states: Any) -> Any:
        weights = part["LayerNorm.weight"], part["LayerNorm.bias"]
        return functional.layer_norm(states, (24,), *weights, eps=1e-12)

    table = turl(folders["turl"]).table(NATIONS)
    places = part["position_embeddings.weight"][[0, 1, 0]]
    words = normed(word[table.title + table.header] + places + kind[[0, 0, 1]])
    means = torch.stack([word[cell].mean(0) for cell in table.mentions])
    fused = functional.linear(
        torch.cat([torch.zeros_like(means), means], 1), part["fusion.weight"], part["fusion.bias"]
    )
    cells = normed(normed(functional.gelu(fused)) + kind[4])
    with torch.inference_mode():
        states = layers(torch.cat([words, cells])[None]).last_hidden_state[0]
    wanted = torch.cat([states[2], states[3:].mean(0)])
    found = turl(folders["turl"]).encode_query(NATIONS, no_frequency)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


class Shell:
    """What a pickle could do when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("unpickled",)


def test_checkpoints_that_are_none_are_reported_in_one_line(
    tmp_path: Path, folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    def refused(folder: Path, text: str) -> None:
        with pytest.raises(DeepJoinError, match=text) as told:
            tabert(folder)
        assert "\n" not in str(told.value)

    refused(tmp_path / "gone", "is not a TaBERT checkpoint: there is no such folder. Give a folder")
    folder = tmp_path / "made"
    folder.mkdir()
    refused(folder, r"tb_config.json cannot be read \(")
    (folder / "tb_config.json").write_text("[]")
    refused(folder, "tb_config.json holds no object")
    say(folder / "tb_config.json", num_attention_heads=4)
    refused(folder, "it has no model.bin")
    torch.save({"tensors": Shell()}, folder / "model.bin")
    refused(folder, "model.bin cannot be read: ")
    assert "unpickled" not in capsys.readouterr().out
    torch.save({"tensors": 3}, folder / "model.bin")
    refused(folder, "model.bin is not a dictionary of tensors")
    torch.save({"a": torch.zeros(1)}, folder / "model.bin")
    refused(folder, "it has no vocabulary, and that of 'bert-base-uncased' cannot be loaded: ")
    put_words(folder)
    refused(folder, "it has no tensor 'embeddings.word_embeddings.weight'")


def test_parts_that_do_not_fit_are_reported_in_one_line(tmp_path: Path) -> None:
    import torch

    pytest.importorskip("transformers")
    with pytest.raises(DeepJoinError, match="its column_representation is 'max_pool', no mean"):
        tabert(save_tabert(tmp_path / "max", column_representation="max_pool"))
    with pytest.raises(DeepJoinError, match="its max_cell_len is 'five'"):
        tabert(save_tabert(tmp_path / "five", max_cell_len="five"))
    with pytest.raises(DeepJoinError, match="cell_input_template is 7 in tb_config.json; it must"):
        tabert(save_tabert(tmp_path / "seven", cell_input_template=7))
    with pytest.raises(DeepJoinError, match="'vertical_transformer_layers.0.attention.self_att"):
        tabert(save_tabert(tmp_path / "layers", num_vertical_layers=2))
    folder = save_tabert(tmp_path / "torn")
    tensors: Any = torch.load(folder / "model.bin", weights_only=True)
    del tensors["_bert_model.bert.encoder.layer.1.output.dense.bias"]
    torch.save(tensors, folder / "model.bin")
    with pytest.raises(DeepJoinError, match="its tensors are not those of a BERT: Error"):
        tabert(folder)
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "more"]))
    with pytest.raises(DeepJoinError, match="not those of a BERT"):
        tabert(folder)
    folder = save_tabert(tmp_path / "words")
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "more"]))
    with pytest.raises(DeepJoinError, match="its vocabulary has 43 words, its weights 42"):
        tabert(folder)


def test_turl_checkpoints_that_do_not_fit_are_reported_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = save_turl(tmp_path)
    say(folder / "config.json", **{**SIZES, "num_hidden_layers": 3})
    with pytest.raises(DeepJoinError, match="TURL checkpoint: it has no tensor 'table.encoder.lay"):
        turl(folder)
    say(folder / "config.json", **{**SIZES, "num_attention_heads": 5})
    with pytest.raises(DeepJoinError, match="its tensors do not fit together: "):
        turl(folder)
    say(folder / "config.json", **{**SIZES, "layer_norm_eps": None})
    with pytest.raises(DeepJoinError, match="its layer_norm_eps is None"):
        turl(folder)
    say(folder / "config.json", **SIZES)
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "more"]))
    with pytest.raises(DeepJoinError, match="its vocabulary has 43 words, its weights 42"):
        turl(folder)


def test_safetensors_give_the_same_vectors(tmp_path: Path, folders: dict[str, Path]) -> None:
    import torch
    from safetensors.torch import save_file

    tensors: Any = torch.load(folders["turl"] / "pytorch_model.bin", weights_only=True)
    put_words(tmp_path)
    say(tmp_path / "config.json", **SIZES)
    save_file(tensors, tmp_path / "model.safetensors")
    assert turl(tmp_path).digest == turl(folders["turl"]).digest


def test_the_tower_is_two_layers(folders: dict[str, Path]) -> None:
    encoder = loaded("mlp:mlp", folders)
    assert isinstance(encoder, MlpEncoder)
    weights = {name: np.asarray(one) for name, one in encoder._tower.weights.items()}
    means = mean_vectors(
        [["united states", "china", "gdp"]], encoder._cells.encode, encoder._cells.dimension
    )
    hidden = (means - weights["mean"]) * weights["scale"] @ weights["first"]
    hidden = np.maximum(hidden + weights["first_bias"], 0)
    wanted = np.tanh(hidden @ weights["second"] + weights["second_bias"])
    np.testing.assert_allclose(encoder.encode([NATIONS], no_frequency), wanted, atol=1e-6)


def test_folders_that_hold_no_mlp_are_reported(tmp_path: Path, folders: dict[str, Path]) -> None:
    def refused(text: str) -> None:
        with pytest.raises(DeepJoinError, match=text) as told:
            load_mlp(str(tmp_path), profile="default", device=None)
        assert "\n" not in str(told.value)

    said = json.loads((folders["mlp"] / "mlp.json").read_text())
    refused(
        r"holds no MLP: mlp.json cannot be read \(.*Make one with: python -m deepjoin.lab.training"
    )
    say(tmp_path / "mlp.json", version=1)
    refused("mlp.json does not have version, cells, cells_digest")
    say(tmp_path / "mlp.json", **{**said, "version": 9})
    refused("mlp.json has version 9, not 1")
    say(tmp_path / "mlp.json", **{**said, "cells": "/gone/cc.vec"})
    refused("reads the cell vectors /gone/cc.vec, which do not exist. Copy them to ")
    say(tmp_path / "mlp.json", **{**said, "cells_digest": "other"})
    refused("was trained on cell vectors other, and default has ")
    say(tmp_path / "mlp.json", **said)
    refused(r"weights.npz cannot be read \(")
    encoder = loaded("mlp:mlp", folders)
    assert isinstance(encoder, MlpEncoder)
    narrow = dict(encoder._tower.weights)
    narrow |= {name: narrow[name][:5] for name in ("mean", "scale", "first")}
    write_mlp(tmp_path, Tower(narrow), "default", said["cells_digest"], {})
    refused("it reads 5 numbers, cells have ")
    with pytest.raises(ValueError, match="'first' has the shape"):
        Tower({**narrow, "first": narrow["second"]})


def lake_of(tmp_path: Path) -> deepjoin.Lake:
    random = np.random.default_rng(0)
    kinds = [[f"{stem} {at}" for at in range(30)] for stem in ("river", "firm", "saint", "moon")]
    columns = [
        Column(list(random.choice(kinds[at % 4], 22, replace=False)), name="n", table=f"t{at}")
        for at in range(60)
    ]
    return deepjoin.index(columns, tmp_path / "index", encoder="none", vectors={"cells": "none"})


@pytest.mark.parametrize("join", ["equi", "semantic"])
def test_training_finds_held_back_columns(join: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from deepjoin.lab.training.mlp import MlpSettings, train_mlp

    lake = lake_of(tmp_path)
    wanted = MlpSettings(join, steps=30, batch=32, hidden=64, dimension=16)
    told: list[str] = []
    found = train_mlp(
        lake, tmp_path / "mlp", settings=wanted, progress=lambda *said: told.append(said[2])
    )
    assert found.queries > 0
    assert found.precision > 0.6
    assert any(text.startswith("loss ") for text in told)
    encoder = load_encoder(f"mlp:{found.folder}", profile="default")
    assert encoder is not None
    assert encoder.dimension == 16
    again = train_mlp(lake, tmp_path / "again", settings=wanted)
    repeated = load_encoder(f"mlp:{again.folder}", profile="default")
    assert repeated is not None
    assert repeated.digest == encoder.digest
    with pytest.raises(DeepJoinError, match="mlp already holds an MLP. Give a new folder"):
        train_mlp(lake, found.folder)


def test_training_and_encoding_see_the_same_means(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    from deepjoin.embed.cells import load_cell_encoder
    from deepjoin.lab.training.columns import TrainingColumns
    from deepjoin.lab.training.mlp import column_means
    from deepjoin.lab.training.prepare import value_vectors
    from deepjoin.normalise.cells import distinct_cells

    cells = load_cell_encoder("default")
    columns = TrainingColumns.of(COLUMNS, range(len(COLUMNS)))
    values = [distinct_cells(column.cells).values for column in COLUMNS]
    found = column_means(columns, value_vectors(columns, cells))
    np.testing.assert_allclose(
        found, mean_vectors(values, cells.encode, cells.dimension), atol=1e-6
    )


def test_the_command_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from deepjoin.lab.training.mlp import main

    lake_of(tmp_path)
    index, out = str(tmp_path / "index"), str(tmp_path / "mlp")
    short = ["--steps", "2", "--batch", "8", "--hidden", "8", "--dimension", "4"]
    assert main([index, "-o", out, *short]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert "P@10 of held-back columns: " in said.err
    assert main([index, "-o", index, *short]) == 1
    assert "holds other files. Give a new folder." in capsys.readouterr().err
    assert main([index, "-o", out, "--join", "outer"]) == 1
    assert "join is 'outer'; it must be one of equi, semantic." in capsys.readouterr().err
    assert main([index, "-o", out, "--steps", "0"]) == 1
    assert "steps is 0; it must be from 1 to 1e+09." in capsys.readouterr().err


def test_sherlock_gives_numbers_alone_a_vector() -> None:
    encoder = load_sherlock("", profile="default", device=None)
    assert encoder.counted
    cells = [["1", "2.5"], ["1", "n/a"], ["2020-01-05"], ["007"], ["1,000"], [None, "+3", " -4 "]]
    vectors = encoder.encode([Column(some) for some in cells], no_frequency)
    assert vectors.any(axis=1).tolist() == [True, False, False, False, False, True]
    lengths = np.linalg.norm(vectors[[0, 5]], axis=1)
    np.testing.assert_allclose(lengths, (encoder.dimension / 2) ** 0.5, rtol=1e-5)


def test_sherlock_finds_the_column_a_sample_is_of() -> None:
    random = np.random.default_rng(4)
    drawn_from = [
        random.normal(170, 10, 400).round(1),
        random.integers(1900, 2025, 400),
        random.integers(10_000, 99_999, 400),
        random.lognormal(10, 2, 400).round(2),
        random.uniform(-90, 90, 400).round(4),
        np.arange(400),
        random.uniform(0, 1, 400).round(3),
    ]
    encoder = load_sherlock("", profile="default", device=None)
    whole = encoder.encode(
        [Column([str(one) for one in some]) for some in drawn_from], no_frequency
    )
    halves = [random.choice(some, 200, replace=False) for some in drawn_from]
    asked = encoder.encode([Column([str(one) for one in some]) for some in halves], no_frequency)
    assert (asked @ whole.T).argmax(axis=1).tolist() == list(range(len(drawn_from)))


def test_sherlock_counts_repeated_cells_and_reads_no_file() -> None:
    encoder = load_sherlock("", profile="default", device=None)
    once, often = encoder.encode([Column(["1", "2"]), Column(["1", "2", "2"])], no_frequency)
    assert (once != often).any()
    with pytest.raises(DeepJoinError, match="'x' follows 'sherlock:', which reads no file."):
        load_sherlock("x", profile="default", device=None)


def test_what_torch_is_needed_for_is_reported(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepjoin.lab.training import mlp

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"TURL needs torch: pip install 'deepjoin\[train\]'"):
        turl(folders["turl"])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"Training needs torch: pip install 'deepjoin\[tra"):
        mlp.train_mlp(lake_of(tmp_path), tmp_path / "mlp")


def test_the_mlp_reads_the_vectors_beside_it(tmp_path: Path) -> None:
    vectors = tmp_path / "words.vec"
    vectors.write_text("2 2\nunited 1 0\nchina 0 1\n", "utf-8")
    from deepjoin.embed.cells import load_cell_encoder

    tower = Tower(
        {
            "mean": np.zeros(2), "scale": np.ones(2), "first": np.eye(2),
            "first_bias": np.zeros(2), "second": np.eye(2), "second_bias": np.zeros(2),
        }
    )  # fmt: skip
    folder = tmp_path / "mlp"
    folder.mkdir()
    write_mlp(folder, tower, str(vectors), load_cell_encoder(vectors).digest, {})
    vectors.rename(folder / vectors.name)
    encoder = load_mlp(str(folder), profile="default", device=None)
    found = encoder.encode([Column(["United", "China", "Chile"]), Column(["x"])], no_frequency)
    np.testing.assert_allclose(found, [[np.tanh(0.5)] * 2, [0, 0]], atol=1e-6)
