"""Models averaged: the weights are the mean, and what cannot be averaged is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import deepjoin
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.torch_encoder import SETTINGS_FILE, load_model
from deepjoin.errors import DeepJoinError
from tests.support.histories import write
from tests.support.tiny_models import save_model

torch = pytest.importorskip("torch")
from deepjoin.lab.training.average import average, main  # noqa: E402  needs torch

TEXT = '{"text": {"pattern": "colname-col", "tokens": 40, "prompt": "query "}}'
TEXTS = ["name: alben, cogos, dafix.", "name: huhux."]


def run(folder: Path, seed: int, text: str = TEXT, kind: str = "bert") -> str:
    """Save a model as training would, its weights moved a little."""
    save_model(folder, kind)
    model = load_model(str(folder), "cpu")
    torch.manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor += 0.02 * torch.randn_like(tensor)
    shutil.rmtree(folder)
    model.save(str(folder), create_model_card=False)
    (folder / SETTINGS_FILE).write_text(text)
    return str(folder)


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    return [run(tmp_path / f"run{seed}", seed) for seed in (1, 2)]


def weights(folder: str | Path) -> dict[str, np.ndarray]:
    return {name: one.numpy() for name, one in load_model(str(folder), "cpu").state_dict().items()}


def test_weights_are_the_mean(runs: list[str], tmp_path: Path) -> None:
    one, two = map(weights, runs)
    mean = weights(average({Path(runs[0]): 3, Path(runs[1]): 1}, tmp_path / "mean"))
    assert mean.keys() == one.keys()
    for name, found in mean.items():
        np.testing.assert_allclose(found, 0.75 * one[name] + 0.25 * two[name], atol=1e-6)
    assert (tmp_path / "mean" / SETTINGS_FILE).read_text() == TEXT
    said = json.loads((tmp_path / "mean" / "config_sentence_transformers.json").read_text())
    assert said["prompts"]["query"] == "query "


def test_one_alone_is_itself(runs: list[str], tmp_path: Path) -> None:
    found = average({Path(runs[0]): 0.5, Path(runs[1]): 0}, tmp_path / "mean")
    ours, theirs = (load_encoder(str(one), device="cpu") for one in (found, runs[0]))
    assert ours is not None and theirs is not None
    np.testing.assert_allclose(ours.encode_texts(TEXTS), theirs.encode_texts(TEXTS), atol=1e-5)


def test_the_command_ships_it(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(90):
        cells = [f"alben co{number} {number % 7 * place}" for place in range(12)]
        write(tmp_path / "lake" / f"{number}.csv", {f"name{number}": cells})
    deepjoin.index(tmp_path / "lake", tmp_path / "index", encoder="none", vectors={"cells": "none"})
    out = tmp_path / "mean"
    assert main([str(tmp_path / "index"), f"{runs[0]}=.4", f"{runs[1]}=.6", "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n" and "ten nearest are the same" in said.err
    assert load_encoder(str(out / "shipped")) is not None


WRONG = {
    "nowhere=1": "has no deepjoin.json",
    "run1=x": "'x' in 'run1=x' is not a number",
    "run1=-1": "Weights must be >= 0",
    "run1=nan": "Weights must be >= 0",
    "run2=1": "given twice",
    "other=1": "tokens differ",
    "another=1": "is a different model from",
}


@pytest.mark.parametrize("given", WRONG)
def test_what_cannot_be_averaged(
    runs: list[str],
    tmp_path: Path,
    given: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(tmp_path / "other", 3, TEXT.replace("40", "30"))
    run(tmp_path / "another", 3, kind="distilbert")
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        write(tmp_path / "lake" / f"{name}.csv", {"name": [name + end for end in "abcdefgh"]})
    deepjoin.index("lake", "index", encoder="none", vectors={"cells": "none"})
    assert main(["index", "run2", given, "-o", "mean"]) == 1
    assert WRONG[given] in capsys.readouterr().err
    assert not Path("mean").exists()


def test_a_model_without_a_small_form(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        write(tmp_path / "lake" / f"{name}.csv", {"name": [name + end for end in "abcdefgh"]})
    deepjoin.index(tmp_path / "lake", tmp_path / "index", encoder="none", vectors={"cells": "none"})
    assert main([str(tmp_path / "index"), *runs, "-o", str(tmp_path / "mean")]) == 0
    assert "There are 3 different columns" in capsys.readouterr().err
    assert load_encoder(str(tmp_path / "mean"), device="cpu") is not None


def test_weights_say_something(runs: list[str], tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="one of them > 0"):
        average(dict.fromkeys(map(Path, runs), 0.0), tmp_path / "mean")
