"""Models exported to need no torch: their vectors, their weights, and what is refused."""

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
from deepjoin.embed.columns.onnx_encoder import _is_exact
from deepjoin.embed.columns.weights import block_codes, read_weights, write_weights
from deepjoin.errors import MissingExtra
from deepjoin.lab.onnx_export import nearest, rounded
from tests.support.encoder_models import ODD, Folders, cosines, export, loaded
from tests.support.tiny_models import save_model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "distilbert", "minilm"])
def test_an_exported_model_gives_the_vectors_of_its_source(
    kind: str, folders: Folders, tmp_path: Path
) -> None:
    first, second = (export(folders(kind), tmp_path / name) for name in ("one", "two"))
    texts = [*ODD, "company values", "a, b, c"]
    ours, theirs = loaded(first).encode_texts(texts), loaded(folders(kind)).encode_texts(texts)
    assert cosines(ours, theirs).min() > 0.999
    assert loaded(first).digest == loaded(second).digest


def test_weights_are_rounded_for_the_texts_given(folders: Folders, tmp_path: Path) -> None:
    texts = ["company values", "a, b, c", ""]
    folder = export(folders("bert"), tmp_path / "rounded", texts)
    ours, theirs = loaded(folder).encode_texts(texts), loaded(folders("bert")).encode_texts(texts)
    assert cosines(ours, theirs).min() > 0.999
    assert loaded(folder).digest != loaded(export(folders("bert"), tmp_path / "other")).digest


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("mpnet", "is a model of type 'mpnet', neither bert nor distilbert, and cannot"),
        ("odd", "has matrices of width 40, not a multiple of 32, and cannot be exported. Use it"),
        ("none", "is not a model folder: config.json cannot be read"),
        ("torn", "The weights .* cannot be read: .*Save the model again"),
        ("foreign", "has no weights named 'encoder.layer.2"),
        ("active", "computes with 'relu' or with relative positions"),
        ("pooling", "pools its tokens in another way than by their mean"),
        ("module", "has a module of type 'Dense'"),
        ("tokens", "is not a model folder: tokenizer.json cannot be read"),
    ],
)
def test_models_that_cannot_be_exported(
    kind: str, message: str, folders: Folders, tmp_path: Path
) -> None:
    pytest.importorskip("sentence_transformers")
    source = tmp_path / "source"
    if kind == "odd":
        save_model(source, "bert", width=40)
    elif kind != "none":
        shutil.copytree(folders("mpnet" if kind == "mpnet" else "sentence bert"), source)
    if kind == "torn":
        (source / "model.safetensors").write_bytes(b"{}")
    if kind == "foreign":
        change(source / "config.json", num_hidden_layers=3)
    if kind == "active":
        change(source / "config.json", hidden_act="relu")
    if kind == "pooling":
        change(source / "1_Pooling" / "config.json", pooling_mode="cls")
    if kind == "module":
        modules = source / "modules.json"
        modules.write_text(modules.read_text().replace("Normalize", "Dense"))
    if kind == "tokens":
        (source / "tokenizer.json").unlink()
    with pytest.raises(DeepJoinError, match=message):
        export(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_export_without_its_libraries(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folders("bert")
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(MissingExtra, match="needs safetensors and onnx: pip install"):
        export(source, tmp_path)


@given(st.integers(0, 2**32))
def test_codes_are_as_close_as_their_steps(seed: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((3, 64)).astype(np.float32)
    matrix[0, :32] = 0
    codes, scales = block_codes(matrix)
    # Scales have half precision, so the largest number of a block may miss its last step.
    missed = np.abs(codes * scales.astype(np.float32) - matrix.reshape(3, 2, 32))
    assert (missed <= 0.76 * scales.astype(np.float32) + 1e-9).all()


@given(st.integers(0, 2**32), st.integers(1, 70))
def test_without_ties_between_inputs_numbers_go_to_the_nearest_step(seed: int, width: int) -> None:
    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((4, width)).astype(np.float32)
    codes, steps = nearest(matrix)
    assert (np.abs(codes * steps[:, None] - matrix) <= 0.501 * steps[:, None]).all()
    same, again = rounded(matrix, np.diag(chance.random(width)))
    assert np.array_equal(again, steps)
    assert np.abs(same.astype(int) - codes).max() <= 1  # a number between two steps goes to either
    assert (same == codes).mean() > 0.9


@given(st.integers(0, 2**32))
def test_rounding_for_inputs_changes_their_products_less(seed: int) -> None:
    chance = np.random.default_rng(seed)
    states = chance.standard_normal((500, 8)) @ chance.standard_normal((8, 96))
    matrix = chance.standard_normal((16, 96)).astype(np.float32)

    def error(codes: np.ndarray, steps: np.ndarray) -> float:
        return float(np.square(states @ (codes * steps[:, None] - matrix).T).mean())

    assert error(*rounded(matrix, states.T @ states)) < 0.7 * error(*nearest(matrix))


def test_a_matrix_of_zeros_is_rounded() -> None:
    codes, steps = rounded(np.zeros((2, 40), np.float32), np.zeros((40, 40)))
    assert not codes.any()
    assert steps.tolist() == [1, 1]


def test_the_probe_finds_sums_that_overflow() -> None:
    probe = (DEFAULT / "probe.onnx").read_bytes()
    assert _is_exact(probe) in (True, False)
    smaller = probe.replace(b"\x7f" * 64, b"\x7e" * 64)
    assert smaller != probe
    assert not _is_exact(smaller)


def test_weights_are_written_the_same_each_time(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b.codes": np.ones(3, np.int8)}
    paths = [tmp_path / name for name in ("one.npz", "two.npz")]
    for path in paths:
        write_weights(path, arrays)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    read = read_weights(paths[0].read_bytes(), paths[0])
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())
