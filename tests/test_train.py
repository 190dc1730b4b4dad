"""Training from tables to a model, on a tiny one: interrupted, out of memory, out of disk."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import deepjoin
from deepjoin.cli import main
from deepjoin.cli.train import TrainingProgress
from deepjoin.embed.columns import load_encoder
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.training import TrainInputs, TrainResources, preset
from deepjoin.progress import Progress, no_progress
from tests.support import rivals
from tests.support.histories import write
from tests.support.tiny_models import save_model

torch = pytest.importorskip("torch")

if TYPE_CHECKING:  # sentence-transformers takes seconds to load, which only those who run this need
    from deepjoin.lab.training.model import JoinModel

#: Few steps of small batches.
SHORT = {
    "threshold": 0.3, "batch": 16, "steps": 12, "validate": 4, "tokens": 40, "device": "cpu",
    "pattern": "colname-col",
}  # fmt: skip


@pytest.fixture(scope="module")
def join_model() -> type[JoinModel]:
    """Load the class of models in training."""
    from deepjoin.lab.training.model import JoinModel

    return JoinModel


@pytest.fixture(scope="module", autouse=True)
def one_thread(join_model: type[JoinModel]) -> Iterator[None]:
    """Tiny models wait longer for threads than they compute."""
    # Every run searches for garbage twice; what has just been loaded is none.
    gc.freeze()
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def trained(
    training_tables: Path,
    out: Path,
    tiny_bert: str,
    progress: Progress = no_progress,
    **options: Any,
) -> Any:
    """Train with few steps; options are fields of any of the settings objects."""
    options = SHORT | options
    inputs, resources = (
        kind(**{one.name: options.pop(one.name) for one in fields(kind) if one.name in options})
        for kind in (TrainInputs, TrainResources)
    )
    settings = preset(options.pop("preset", "default"), **options)
    rest = {"settings": settings, "inputs": inputs, "resources": resources}
    return deepjoin.train(training_tables, out, base=tiny_bert, progress=progress, **rest)


@pytest.fixture(scope="module")
def whole(
    training_tables: Path, tiny_bert: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """Train once without any trouble; returns what was found and the vectors of the model."""
    out = tmp_path_factory.mktemp("trained") / "whole"
    return trained(training_tables, out, tiny_bert), vectors(out)


def vectors(folder: Path) -> Any:
    encoder = load_encoder(str(folder), threads=1, device="cpu")
    assert encoder is not None
    return encoder.encode_texts(["name: alben, cogos, dafix.", "name: huhux."])


def test_a_model_in_both_forms(training_tables: Path, tmp_path: Path, tiny_bert: str) -> None:
    found = trained(
        training_tables, tmp_path / "mine", tiny_bert, steps=60, validate=20, learning_rate=1e-3
    )
    assert found.agreement.top_10 >= 0.95
    np.testing.assert_allclose(
        vectors(tmp_path / "mine"), vectors(tmp_path / "mine" / "shipped"), atol=0.05
    )
    report = json.loads((tmp_path / "mine" / "report.json").read_text())
    losses = [event["loss"] for event in report["events"] if "loss" in event]
    assert losses[-1] < losses[0]
    assert report["events"][0] == {"step": 0, "precision": found.before}
    assert (report["columns"], report["held_back"]) == (72, 8)
    assert (tmp_path / "mine" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "before training" in card and "mine/shipped" in card
    assert not (tmp_path / "mine" / ".training").exists()
    lake = deepjoin.index(
        training_tables, tmp_path / "index", encoder=str(tmp_path / "mine" / "shipped")
    )
    assert lake.search(["alben", "albes"], method="deepjoin")


def test_the_command(
    training_tables: Path, tmp_path: Path, tiny_bert: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    options = [text for key, one in SHORT.items() for text in (f"--{key}", str(one))]
    given = [
        "train",
        str(training_tables),
        "-o",
        str(out),
        "--base",
        tiny_bert,
        "--preset",
        "paper",
        *options,
    ]
    assert main(given) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert "P@10 on held-back columns" in said.err and "12 of 12" in said.err
    settings = json.loads((out / "report.json").read_text())["settings"]
    assert (settings["warmup"], settings["target"], settings["batch"]) == (10_000, "partner", 16)


def test_one_engine_reads_and_mines(
    training_tables: Path,
    tmp_path: Path,
    tiny_bert: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lent: list[tuple[str, str]] = []

    @contextmanager
    def lend(name: str, address: str, told: Callable[[str], None]) -> Iterator[None]:
        lent.append((name, address))
        told("Working elsewhere.")
        yield None

    monkeypatch.setattr("deepjoin.lab.training.run.engine_named", lend)
    given = {"engine": "ray", "ray_address": "head:1", "steps": 1, "validate": 1}
    trained(training_tables, tmp_path / "mine", tiny_bert, progress=TrainingProgress(), **given)
    assert lent == [("ray", "head:1")]
    assert capsys.readouterr().err.splitlines()[0] == "Working elsewhere."


@pytest.mark.parametrize("negatives", ["batch", "removed", "hard", "nearest"])
def test_the_same_twice(
    training_tables: Path, tmp_path: Path, tiny_bert: str, negatives: str
) -> None:
    for name in ("one", "two"):
        trained(
            training_tables, tmp_path / name, tiny_bert, negatives=negatives, metric="euclidean"
        )
    one, two = (vectors(tmp_path / name) for name in ("one", "two"))
    np.testing.assert_array_equal(one, two)


def test_nearest_columns_are_found_again_as_the_model_learns(
    training_tables: Path,
    tmp_path: Path,
    tiny_bert: str,
    join_model: type[JoinModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, find = [], join_model.nearest

    def noted(*given: Any) -> Any:
        near = find(*given)
        found.append(near.clone())
        return near

    monkeypatch.setattr(join_model, "nearest", noted)
    rest = {"negatives": "nearest", "plain": 0.3, "learning_rate": 1e-2}
    trained(training_tables, tmp_path / "mine", tiny_bert, **rest)
    assert len(found) == 1 + SHORT["steps"] // SHORT["validate"]
    assert all(one.shape == (72, 64) for one in found)
    assert (found[0] != found[-1]).any()


def test_joins_by_meaning(training_tables: Path, tmp_path: Path, tiny_bert: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.table({"surface": ["albea", "ALBEN"], "entity": ["alben", "alben"]})
    pq.write_table(names, tmp_path / "aliases.parquet")
    found = trained(
        *(training_tables, tmp_path / "mine", tiny_bert),
        join="semantic",
        aliases=tmp_path / "aliases.parquet",
    )
    assert found.precision > 0


def test_nothing_to_validate_with(
    training_tables: Path, tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.lab.training.prepare._QUERIES", 0)
    said: list[str] = []
    found = trained(
        *(training_tables, tmp_path / "mine", tiny_bert),
        progress=lambda done, total, text: said.append(text),
    )
    assert (found.queries, found.precision) == (0, 0)
    assert any("None of 8 held-back columns joins" in text for text in said)


class Killed(BaseException):
    """Ends a run as a signal would."""


def at(step: int, deed: Callable[[], object]) -> Callable[[int, int, str], None]:
    """Do something once, when a run is at a step."""
    deeds = iter([deed])

    def told(done: int, total: int, text: str) -> None:
        if total == SHORT["steps"] and done >= step and "P@10" in text:
            for one in deeds:
                one()

    return told


def killed() -> None:
    raise Killed


def test_a_killed_run_goes_on(
    training_tables: Path, tmp_path: Path, tiny_bert: str, whole: tuple[Any, Any]
) -> None:
    with pytest.raises(Killed):
        trained(training_tables, tmp_path / "mine", tiny_bert, progress=at(9, killed))
    assert not (tmp_path / "mine" / "modules.json").exists()
    (tmp_path / "mine" / ".training" / "checkpoints" / "checkpoint-11").mkdir()
    steps: list[int] = []
    again = trained(
        *(training_tables, tmp_path / "mine", tiny_bert),
        progress=lambda done, total, text: steps.append(done) if "loss" in text else None,
    )
    assert min(steps) > 8, "it begins behind the last whole checkpoint"
    assert again.precision == whole[0].precision
    np.testing.assert_allclose(vectors(tmp_path / "mine"), whole[1], atol=1e-5)


def test_ctrl_c_saves_the_step_it_is_at(
    training_tables: Path, tmp_path: Path, tiny_bert: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(
            *(training_tables, tmp_path / "mine", tiny_bert),
            validate=5,
            progress=at(6, lambda: os.kill(os.getpid(), signal.SIGINT)),
        )
    saved = (tmp_path / "mine" / ".training" / "checkpoints").glob("checkpoint-*")
    assert "checkpoint-6" in {path.name for path in saved}
    assert trained(training_tables, tmp_path / "mine", tiny_bert, validate=5).precision > 0


def test_too_little_memory(
    training_tables: Path,
    tmp_path: Path,
    tiny_bert: str,
    whole: tuple[Any, Any],
    join_model: type[JoinModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = join_model._encode

    def limited(model: JoinModel, tokens: Any) -> Any:
        if model.training and len(tokens["input_ids"]) > 8:
            raise torch.OutOfMemoryError("too much")
        return read(model, tokens)

    monkeypatch.setattr(join_model, "_encode", limited)
    said: list[str] = []
    found = trained(
        *(training_tables, tmp_path / "mine", tiny_bert),
        progress=lambda done, total, text: said.append(text),
    )
    told = re.compile("out of memory: from now on [0-9]+ columns are encoded at a time")
    assert any(map(told.search, said))
    assert found.precision == whole[0].precision
    np.testing.assert_allclose(vectors(tmp_path / "mine"), whole[1], atol=1e-4)
    monkeypatch.setattr(join_model, "_encode", lambda *given: _nothing_fits(read, *given))
    with pytest.raises(DeepJoinError, match="too little memory to learn from one column"):
        trained(training_tables, tmp_path / "none", tiny_bert)


def _nothing_fits(read: Any, model: Any, tokens: Any) -> Any:
    if model.training:
        raise torch.OutOfMemoryError("too much")
    return read(model, tokens)


def test_a_full_disk(training_tables: Path, tmp_path: Path, tiny_bert: str) -> None:
    try:
        with rivals.small_disk(tmp_path / "disk", "2500k") as disk:
            out = disk / "mine"
            with pytest.raises(DeepJoinError, match=r"no space left .* the same command again"):
                trained(training_tables, out, tiny_bert)
            assert not (out / "modules.json").exists()
            subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
            assert trained(training_tables, out, tiny_bert).folder == out
    except PermissionError as error:
        pytest.skip(f"NO TEST OF A FULL DISK: {error}")


def test_an_index_has_its_own_cell_vectors(training_tables: Path, tmp_path: Path) -> None:
    deepjoin.index(training_tables, tmp_path / "index", encoder="none", vectors={"cells": "none"})
    with pytest.raises(DeepJoinError, match="cells is 'default', and .* is an index, which"):
        deepjoin.train(tmp_path / "index", tmp_path / "mine", inputs=TrainInputs(cells="default"))
    assert not (tmp_path / "mine").exists()


def test_what_cannot_be_trained(
    training_tables: Path, tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, cells in {"a": "abcdef", "b": "uvwxyz", "c": "opqrst"}.items():
        write(tmp_path / "apart" / f"{name}.csv", {"x": list(cells)})
    write(tmp_path / "single" / "a.csv", {"x": list("abcdef")})
    write(tmp_path / "numbers" / "a.csv", {"x": ["1.5", "2.7", "3.1", "4.4", "8.9"]})
    for source, text in (
        ("apart", r"No two of \d columns .* Lower `threshold` or give more tables"),
        ("single", "has 1 text columns in 1 tables; .* Add tables"),
        ("numbers", "has 0 text columns in 0 tables"),
    ):
        with pytest.raises(DeepJoinError, match=text):
            trained(tmp_path / source, tmp_path / f"m-{source}", tiny_bert)
    deepjoin.index(
        training_tables,
        tmp_path / "hashed",
        settings=deepjoin.Settings(hash_only=True),
        encoder="none",
        vectors={"cells": "none"},
    )
    with pytest.raises(DeepJoinError, match="stores hashes instead of cells"):
        trained(tmp_path / "hashed", tmp_path / "m-hashed", tiny_bert)
    alone = save_model(tmp_path / "alone", "bert")
    for path in alone.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(DeepJoinError, match="has no tokenizer file"):
        trained(training_tables, tmp_path / "m-alone", str(alone))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'deepjoin\[train\]'"):
        trained(training_tables, tmp_path / "m-torch", tiny_bert)


def test_a_run_that_failed_leaves_nothing_to_the_next(
    training_tables: Path, tmp_path: Path, tiny_bert: str
) -> None:
    def full(done: int, total: int, text: str) -> None:
        if "compared" in text:
            raise Killed

    with pytest.raises(Killed):
        trained(training_tables, tmp_path / "mine", tiny_bert, progress=full, layers=1)
    trained(training_tables, tmp_path / "mine", tiny_bert, negatives="batch")
    trained(training_tables, tmp_path / "whole", tiny_bert, negatives="batch")
    np.testing.assert_array_equal(vectors(tmp_path / "mine"), vectors(tmp_path / "whole"))


def test_one_run_at_a_time(training_tables: Path, tmp_path: Path, tiny_bert: str) -> None:
    def again() -> None:
        with pytest.raises(DeepJoinError, match="Another run is working in .*mine"):
            trained(training_tables, tmp_path / "mine", tiny_bert)

    trained(training_tables, tmp_path / "mine", tiny_bert, progress=at(1, again))


def test_where_a_model_may_go(training_tables: Path, tmp_path: Path, tiny_bert: str) -> None:
    with pytest.raises(Killed):
        trained(training_tables, tmp_path / "mine", tiny_bert, progress=at(1, killed))
    with pytest.raises(DeepJoinError, match="holds an unfinished run with other settings"):
        trained(training_tables, tmp_path / "mine", tiny_bert, seed=4)
    trained(training_tables, tmp_path / "mine", tiny_bert)
    with pytest.raises(DeepJoinError, match="already holds a model"):
        trained(training_tables, tmp_path / "mine", tiny_bert)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("all of it")
    with pytest.raises(DeepJoinError, match="holds other files"):
        trained(training_tables, tmp_path / "other", tiny_bert)
    with pytest.raises(DeepJoinError, match="Cannot write to"):
        trained(training_tables, tmp_path / "other" / "thesis.tex" / "mine", tiny_bert)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "cuda"}, "There is no device 'cuda': torch sees 0 GPUs"),
        ({"device": "gpu"}, "There is no device 'gpu'"),
        ({"preset": "papers"}, "preset is 'papers'; it must be one of default, paper"),
        ({"aliases": "nowhere.parquet"}, "The spellings nowhere.parquet cannot be read"),
        ({"layers": 9}, "layers is 9, but .*bert has 2 layers"),
        ({"tokens": 1000}, "A text of 1007 tokens is too long for the encoder .*bert'"),
        ({"pattern": "poem"}, "pattern is 'poem'; it must be one of col"),
        ({"lr": 3}, "There is no setting 'lr'. Settings: join, threshold"),
        ({"join": "semantic", "cells": "none"}, "cells is 'none', and join semantic compares"),
        ({"join": "semantic", "negatives": "removed"}, "takes out equal cells"),
    ],
)
def test_options_that_are_wrong(
    training_tables: Path, tmp_path: Path, tiny_bert: str, options: Any, text: str
) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeepJoinError, match=text):
        trained(training_tables, tmp_path / "mine", tiny_bert, **options)


def test_single_keywords_are_deprecated(
    training_tables: Path, tmp_path: Path, tiny_bert: str, whole: tuple[Any, Any]
) -> None:
    with pytest.warns(DeprecationWarning, match=r"settings=TrainSettings\(threshold=\.\.\.\), "):
        found = deepjoin.train(training_tables, tmp_path / "old", base=tiny_bert, **SHORT)
    assert found.precision == whole[0].precision
    np.testing.assert_array_equal(vectors(tmp_path / "old"), whole[1])


def test_the_papers_recipe_needs_a_base_as_published(training_tables: Path, tmp_path: Path) -> None:
    text = "`base` is 'default', a model that deepjoin has trained already; the paper's recipe"
    with pytest.raises(DeepJoinError, match=text):
        deepjoin.train(training_tables, tmp_path / "mine", settings=preset("paper"))


def test_a_run_says_how_long_it_takes_and_whether_it_gained(
    training_tables: Path, tmp_path: Path, tiny_bert: str
) -> None:
    said: list[tuple[int, int, str]] = []
    found = trained(
        *(training_tables, tmp_path / "mine", tiny_bert),
        progress=lambda *one: said.append(one),
        sampling="random",
        unit="words",
    )
    texts = [text for _, total, text in said if not total]
    assert any(text.startswith("12 steps of 16 pairs on cpu: about ") for text in texts)
    first = next(at for at, one in enumerate(said) if "steps of 16 pairs" in one[2])
    assert any("columns encoded for validation" in one[2] for one in said[first:])
    steps = [done for done, total, _ in said if total == 12]
    assert set(range(1, 13)) <= set(steps), "every step is reported"
    report = json.loads((tmp_path / "mine" / "report.json").read_text())
    assert (report["text"]["sampling"], report["text"]["unit"]) == ("random", "words")
    assert (report["steps"], report["warmup_steps"]) == (12, 1)
    assert len(report["per_query"]) == found.queries == report["gain"]["queries"]
    assert found.gain.low <= found.gain.mean <= found.gain.high
    assert report["truth"] == {"join": "equi", "threshold": 0.3}
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "95% interval" in card and "## Limits" in card and 'prompt_name="query"' in card
    assert ("within noise" in card) == (found.gain.sign == 0)
    settings = json.loads((tmp_path / "mine" / "deepjoin.json").read_text())
    assert settings["trained"] == report["truth"]


def test_no_run_ends_before_its_learning_rate_is_reached(
    training_tables: Path, tmp_path: Path, tiny_bert: str
) -> None:
    steps: list[int] = []
    trained(
        *(training_tables, tmp_path / "mine", tiny_bert),
        progress=lambda done, total, _: steps.append(done if total == 12 else 0),
        **{"validate": 1, "patience": 1, "warmup": 8, "learning_rate": 1e-9},
    )
    assert max(steps) > 8


def test_unknown_samplings_are_refused_before_any_work(
    training_tables: Path, tmp_path: Path, tiny_bert: str
) -> None:
    with pytest.raises(DeepJoinError, match="sampling is 'rnd'; it must be one of frequency, rand"):
        trained(training_tables, tmp_path / "mine", tiny_bert, sampling="rnd")
