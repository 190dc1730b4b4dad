"""Shipped encoders made whole again, and models with fewer layers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import DeepJoinError
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.torch_encoder import load_model
from deepjoin.embed.columns.weights import read_weights, write_weights
from deepjoin.errors import MissingExtra
from deepjoin.lab.onnx_restore import drop_layers, kept_layers, restore, whole_folder
from deepjoin.lab.training.prepare import write_base
from tests.support.encoder_models import (
    ODD,
    Folders,
    cosines,
    default,
    export,
    loaded,
)

TEXTS = ["company values", "Company: Apple, GE, IBM.", "a, b, c", *ODD]


@pytest.fixture(scope="module")
def shipped(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export a tiny model once."""
    return export(folders("bert"), tmp_path_factory.mktemp("shipped") / "tiny")


@pytest.mark.slow
def test_the_default_encoder_restored_gives_its_vectors(tmp_path: Path) -> None:
    folder = restore(DEFAULT, tmp_path / "restored")
    texts = [f"Company: Apple, GE, {'IBM, ' * count}." for count in range(8)] + ODD
    ours, theirs = loaded(folder).encode_texts(texts), default().encode_texts(texts)
    assert cosines(ours, theirs).min() > 0.9998
    assert loaded(folder).settings == default().settings
    assert (folder / "NOTICE").read_bytes() == (DEFAULT / "NOTICE").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["restored"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "distilbert", "minilm"])
def test_a_model_exported_and_restored_twice_is_the_same(
    kind: str, folders: Folders, tmp_path: Path
) -> None:
    settings = TextSettings("col", tokens=20)
    source = shutil.copytree(folders(kind), tmp_path / "source")
    (source / "deepjoin.json").write_text('{"text": {"pattern": "col", "tokens": 20}}')
    first = restore(export(source, tmp_path / "one"), tmp_path / "first")
    second = restore(export(first, tmp_path / "two"), tmp_path / "second")
    encoders = [loaded(folder) for folder in (source, first, tmp_path / "one", second)]
    original, *others = (encoder.encode_texts(TEXTS) for encoder in encoders)
    for other in others:
        assert cosines(original, other).min() > 0.999
    assert all(encoder.settings == settings for encoder in encoders)
    assert loaded(first).digest == encoders[1].digest


@pytest.mark.slow
@pytest.mark.parametrize("layers", [None, 2, 1])
def test_fewer_layers_are_restored(layers: int | None, shipped: Path, tmp_path: Path) -> None:
    folder = restore(shipped, tmp_path / "restored", layers)
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == (layers or 2)
    whole = restore(shipped, tmp_path / "whole")
    write_base(str(whole), tmp_path / "shallower", layers, "cpu")
    assert loaded(folder).digest == loaded(tmp_path / "shallower").digest


@pytest.mark.parametrize("kind", ["sentence bert", "sentence distilbert", "sentence mpnet"])
def test_a_shallower_model_is_its_first_model_without_some_layers(
    kind: str, folders: Folders, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from torch.nn import ModuleList

    source = shutil.copytree(folders(kind), tmp_path / "source")
    (source / "README.md").write_text("Figures of the whole model.")
    folder = tmp_path / "shallower"
    write_base(str(source), folder, 1, "cpu")
    assert not (folder / "README.md").exists()
    model = load_model(str(source), "cpu")
    inner = model[0].auto_model
    stack = inner.transformer if kind.endswith("distilbert") else inner.encoder
    stack.layer = ModuleList([stack.layer[-1]])
    expected = model.encode(TEXTS[:3], show_progress_bar=False)
    found = SentenceTransformer(str(folder), device="cpu").encode(
        TEXTS[:3], show_progress_bar=False
    )
    assert np.allclose(found, expected, atol=1e-6)


def test_a_shallower_model_can_be_exported(folders: Folders, tmp_path: Path) -> None:
    folder = tmp_path / "shallower"
    write_base(str(folders("sentence bert")), folder, 1, "cpu")
    exported = loaded(export(folder, tmp_path / "exported")).encode_texts(TEXTS)
    assert cosines(exported, loaded(folder).encode_texts(TEXTS)).min() > 0.999


@given(st.integers(1, 48), st.data())
def test_layers_are_kept_evenly_and_the_last_always(there: int, data: st.DataObject) -> None:
    layers = data.draw(st.integers(1, there))
    kept = kept_layers(there, layers, "a model")
    assert len(kept) == layers
    assert kept[-1] == there - 1
    steps = np.diff([-1, *kept])
    assert steps.min() >= 1
    assert steps.max() - steps.min() <= 1


@pytest.mark.parametrize("layers", [0, -1, 3])
def test_layers_that_are_not_there(
    layers: int, folders: Folders, shipped: Path, tmp_path: Path
) -> None:
    message = f"layers is {layers}, but .* has 2 layers. Give 1 to 2"
    with pytest.raises(DeepJoinError, match=message):
        restore(shipped, tmp_path / "restored", layers)
    with pytest.raises(DeepJoinError, match=message):
        write_base(str(folders("bert")), tmp_path / "restored", layers, "cpu")
    assert not any(tmp_path.iterdir())


def test_a_model_whose_layers_cannot_be_identified(folders: Folders) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folders("bert")), device="cpu")
    model[0].auto_model.config.num_hidden_layers = 3
    with pytest.raises(DeepJoinError, match="'bert' whose layers cannot be identified. Use"):
        drop_layers(model, 1, "a model")


def test_a_folder_that_is_no_shipped_encoder(folders: Folders, tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="is not an encoder folder: encoder.json cannot be"):
        restore(folders("bert"), tmp_path / "target")


def test_a_shipped_encoder_that_is_torn(shipped: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(shipped, tmp_path / "torn")
    weights = folder / "weights.npz"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DeepJoinError, match="The weights .* cannot be read: .*Copy the model"):
        restore(folder, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("spoil", ["arrays", "graph"])
def test_a_shipped_encoder_of_another_make(
    spoil: str, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(shipped, tmp_path / "other")
    if spoil == "arrays":
        arrays = read_weights((shipped / "weights.npz").read_bytes(), shipped)
        del arrays["0.wide.bias"]
        write_weights(folder / "weights.npz", arrays)
        missing = "'0.wide.bias'"
    else:
        shutil.copy(folder / "probe.onnx", folder / "graph.onnx")
        missing = "'LayerNormalization'"
    # As if all of it fitted together, only otherwise than here.
    monkeypatch.setattr("deepjoin.embed.columns.onnx_encoder._session", lambda *_: None)
    message = f"was not exported from a BERT by deepjoin: it has no {missing}. Train from"
    with pytest.raises(DeepJoinError, match=message):
        restore(folder, tmp_path / "target")


def test_a_tokenizer_without_padding(shipped: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(shipped, tmp_path / "other")
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    tokenizer["added_tokens"] = [
        one for one in tokenizer["added_tokens"] if one["content"] != "[PAD]"
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    with pytest.raises(DeepJoinError, match="has no token for padding .*Train from the folder"):
        restore(folder, tmp_path / "target")


def test_restoring_without_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = r"^Training from .* needs onnx: pip install 'deepjoin\[train\]'"
    with pytest.raises(MissingExtra, match=message):
        restore(DEFAULT, tmp_path)


def test_no_folder_is_written_over(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    assert restore(shipped, tmp_path / "target") == tmp_path / "target"
    with pytest.raises(DeepJoinError, match="target already exists. Remove it, or give another"):
        restore(shipped, tmp_path / "target")
    (tmp_path / "file").touch()
    with pytest.raises(DeepJoinError, match="file already exists"):
        restore(shipped, tmp_path / "file")
    with pytest.raises(DeepJoinError, match="x cannot be written: .*Give another folder"):
        restore(shipped, tmp_path / "file" / "x")


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(KeyboardInterrupt), whole_folder(target) as aside:
        (aside / "half").touch()
        assert not target.exists()
        raise KeyboardInterrupt
    assert not any(tmp_path.iterdir())
