"""Model folders that cannot be encoders: each is named in one line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deepjoin import DeepJoinError
from deepjoin.embed.columns import DEFAULT, load_encoder
from deepjoin.embed.columns.encoder import checked
from deepjoin.embed.columns.onnx_encoder import OnnxEncoder
from deepjoin.embed.columns.text import TextSettings
from deepjoin.errors import MissingExtra, reason
from tests.support.encoder_models import Folders, loaded


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="There is no encoder folder '.*gone'. Give 'default'"):
        load_encoder(str(tmp_path / "gone"))


@pytest.mark.parametrize("spoil", ["unknown", "torn", "empty", "name"])
def test_models_that_cannot_be_loaded(
    spoil: str, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / "model"
    if spoil == "name":
        folder = Path("nobody/no-such-model")
    elif spoil == "empty":
        folder.mkdir()
    else:
        shutil.copytree(folders("bert"), folder)
    if spoil == "unknown":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "nonsense"}))
    if spoil == "torn":
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(
        DeepJoinError, match=r"^The encoder '.*' cannot be loaded: .+ Give a folder"
    ):
        load_encoder(str(folder))


def test_models_run_no_code_of_their_folder(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder, ran = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(folders("bert"), folder)
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    module = {"idx": 0, "name": "0", "path": "", "type": "own.Model"}
    (folder / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(DeepJoinError, match=r"^The encoder '.*' cannot be loaded: "):
        load_encoder(str(folder))
    monkeypatch.setattr(sentence_transformers, "__version__", "5.9.1")
    with pytest.raises(
        MissingExtra, match=r"needs sentence-transformers 6 or newer, .*; 5\.9\.1 is installed"
    ):
        load_encoder(str(folder))
    assert not ran.exists()


@pytest.mark.parametrize("left", [(), ("tokenizer_config.json",)])
def test_a_model_saved_without_its_tokenizer(
    left: tuple[str, ...], folders: Folders, tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("bert"), tmp_path / "model")
    for path in folder.glob("tokenizer*"):
        if path.name not in left:
            path.unlink()
    with pytest.raises(
        DeepJoinError,
        match=r"model' has no tokenizer file \(tokenizer.json, .*Save the model again",
    ):
        loaded(folder)


def test_a_tokenizer_of_another_model(folders: Folders, tmp_path: Path) -> None:
    folder = shutil.copytree(folders("bert"), tmp_path / "model")
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    words = list(tokenizer["model"]["vocab"].items())
    tokenizer["model"]["vocab"] = dict(words[:50])
    path.write_text(json.dumps(tokenizer), "utf-8")
    with pytest.raises(
        DeepJoinError, match=r"a tokenizer of 50 words, but its model has 143: .*Save"
    ):
        loaded(folder)


def test_a_tokenizer_that_is_not_a_fast_one() -> None:
    from deepjoin.embed.columns.torch_encoder import _tokenizer_text

    with pytest.raises(DeepJoinError, match="'slow' has no tokenizer.json, .*a fast tokenizer"):
        _tokenizer_text(SimpleNamespace(tokenizer=object()), "slow")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("It failed..", "It failed."),
        ("", "ValueError."),
        ("It\nfailed  twice", "It failed twice."),
        (
            "The file is torn in the middle and useless. " * 5,
            r"(The file .* useless\. ){2}The .*\.",
        ),
        ("It is so. " + "that one, " * 40, "It is so. (that one, )+that one …"),
        ("x" * 500, "x{160} …"),
    ],
)
def test_reasons_are_one_line_that_ends_well(error: str, expected: str) -> None:
    found = reason(ValueError(error))
    assert re.fullmatch(expected, found)
    assert len(found) <= 162


def test_torch_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"needs torch: pip install 'deepjoin\[train\]'"):
        load_encoder(str(tmp_path))


def test_onnxruntime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepjoin.embed.columns.loading.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="needs onnxruntime and tokenizers: pip install onnx"):
        load_encoder("default")


def spoiled(folder: Path, name: str, content: bytes) -> Path:
    shutil.copytree(DEFAULT, folder)
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("encoder.json", b"{", "is not an encoder folder: encoder.json cannot be read .*Copy"),
        ("encoder.json", b'{"format": 9}', "has format 9; this version reads format 2. Upgrade"),
        ("tokenizer.json", b"{}", "The tokenizer .* cannot be read: .*Copy the model folder"),
        ("weights.npz", b"PK", "The weights .* cannot be read: .*Copy the model folder"),
        ("weights.npz", b"", "The weights .* cannot be read: .*Copy the model folder"),
        ("graph.onnx", b"\x08", r"The model in .* cannot be loaded: .*[^.]\. Copy the folder"),
    ],
)
def test_a_damaged_model_folder(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match=message):
        OnnxEncoder(spoiled(tmp_path / "model", name, content))


def test_a_model_folder_that_lacks_a_file(tmp_path: Path) -> None:
    folder = shutil.copytree(DEFAULT, tmp_path / "model")
    (folder / "probe.onnx").unlink()
    with pytest.raises(DeepJoinError, match="has no .*probe.onnx: No such file.*Copy the model"):
        OnnxEncoder(folder)


def test_a_limit_beyond_the_model(folders: Folders) -> None:
    with pytest.raises(DeepJoinError, match="602 tokens is too long .*, which reads 512 at most"):
        loaded("default", TextSettings(tokens=600))
    with pytest.raises(DeepJoinError, match="162 tokens is too long .*, which reads 158 at most"):
        loaded(folders("mpnet"), TextSettings(tokens=160))


def test_no_vector_that_is_not_a_number_gets_out() -> None:
    with pytest.raises(DeepJoinError, match="The encoder 'x' gave a vector that is not a number"):
        checked(np.array([[1, np.nan]], np.float32), "x")
