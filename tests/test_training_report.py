"""What a training run leaves behind: the shipped form, the report with its picture, the card."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import DeepJoinError
from deepjoin.errors import MissingExtra
from deepjoin.lab.training import delivery, report
from deepjoin.lab.training.delivery import Agreement, agreement, halves, ship
from deepjoin.lab.training.report import (
    CardFacts,
    best,
    card,
    check_installed,
    curves,
    whole_file,
    write_card,
    write_report,
)
from tests.support.encoder_models import Folders, loaded

pytest.importorskip("matplotlib")

EVENTS = [
    {"step": 0, "precision": 0.61, "queries": 500},
    *({"step": step, "loss": 2 / step} for step in range(1, 60)),
    {"step": 30, "precision": 0.8, "queries": 500},
    {"step": 60, "precision": 0.79, "queries": 500},
]
HEADER = {
    "settings": {"batch": 32, "folder": Path("lake"), "rates": (1, np.float32(0.5))},
    "data": {"columns": 12},
    "versions": {"deepjoin": "0.1.0"},
    "hardware": "one core",
    "seconds": 1.5,
}
FACTS = CardFacts(
    name="tiny-equi",
    base_model="sentence-transformers/all-MiniLM-L6-v2",
    data="86,814 columns of Wikipedia tables.",
    settings={"batch": 32, "text": "a|b"},
    figures=[("P@10", 0.80349, "500 queries held back"), ("columns", 1234.0, "")],
    command="deepjoin train lake.index --out tiny-equi",
    example='Company: "Apple", GE.',
    tokens=48,
    metric="cosine",
    encoder="tiny-equi/shipped",
    prompt="query ",
    limits=("A column is read up to 48 tokens.",),
)


def column_text(chance: np.random.Generator) -> str:
    letters = list("abcdefghijklmnopqrstuvwxyz0123456789")
    cells = ["".join(chance.choice(letters, 3)) for _ in range(int(chance.integers(1, 12)))]
    return f"company: {', '.join(cells)}."


def texts(count: int) -> list[str]:
    chance = np.random.default_rng(3)
    return [column_text(chance) for _ in range(count)]


def test_a_model_is_shipped_with_its_agreement(folders: Folders, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    found = ship(folders("sentence bert"), tmp_path / "shipped", "tiny", texts(200))
    assert found.texts == 100
    assert found.least_cosine > 0.999
    assert found.top_10 >= 0.95
    encoder = loaded(tmp_path / "shipped")
    assert encoder.name == "tiny"
    assert json.loads((tmp_path / "shipped" / "agreement.json").read_text()) == asdict(found)
    assert [path.name for path in tmp_path.iterdir()] == ["shipped"]


def test_a_form_that_finds_other_columns_is_not_shipped(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    bad = Agreement(30, 0.91234, 0.5, 0.9449)
    monkeypatch.setattr(delivery, "agreement", lambda *_: bad)
    message = (
        "small form of 'tiny' finds other columns than the model: 94.5% of the ten nearest are the "
        r"same, vectors have a cosine of 0.91234 on average and 0.50000 at least \(30 texts\); of "
        r"the ten nearest 95% should be the same. Use .* itself, with deepjoin\[train\] installed"
    )
    with pytest.raises(DeepJoinError, match=message):
        ship(folders("bert"), tmp_path / "shipped", "tiny", texts(60))
    assert not any(tmp_path.iterdir())


def test_too_few_texts_to_compare() -> None:
    with pytest.raises(DeepJoinError, match="There are 59 different columns .*60 are needed. Tra"):
        halves([*texts(59), *texts(59)])


def test_texts_rounded_for_are_not_compared() -> None:
    calibration, held_out = halves(texts(1000))
    assert (len(calibration), len(held_out)) == (320, 680)
    assert not set(calibration) & set(held_out)
    assert halves(texts(1000)) == (calibration, held_out)


@given(st.integers(0, 2**32), st.floats(0, 2))
def test_agreement_is_that_of_searching_one_by_one(seed: int, noise: float) -> None:
    chance = np.random.default_rng(seed)
    model = chance.standard_normal((24, 6)).astype(np.float32)
    shipped = (model + noise * chance.standard_normal(model.shape)).astype(np.float32)
    found = agreement(model, shipped)
    same = [len(_nearest(model, row) & _nearest(shipped, row)) / 10 for row in range(len(model))]
    assert found.top_10 == pytest.approx(np.mean(same), abs=0.01)
    cosines = [_cosine(one, other) for one, other in zip(model, shipped, strict=True)]
    assert found.mean_cosine == pytest.approx(np.mean(cosines), abs=1e-5)
    assert found.least_cosine == pytest.approx(min(cosines), abs=1e-5)


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def _nearest(vectors: np.ndarray, row: int) -> set[int]:
    others = [other for other in range(len(vectors)) if other != row]
    return set(sorted(others, key=lambda other: -_cosine(vectors[row], vectors[other]))[:10])


def test_of_equal_vectors_any_will_do() -> None:
    vectors = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    assert agreement(vectors, vectors[:, ::-1] * 2).top_10 == 1
    assert agreement(vectors, np.zeros_like(vectors)).mean_cosine == 0


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    events = [*EVENTS, {"step": 61, "loss": float("nan")}]
    write_report(tmp_path, HEADER, events)
    write_report(tmp_path, HEADER, events)
    found = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert found["format"] == 1
    assert found["settings"] == {"batch": 32, "folder": "lake", "rates": [1, 0.5]}
    assert found["best"] == {"step": 30, "precision": 0.8, "queries": 500}
    assert found["events"][:-1] == EVENTS
    assert found["events"][-1] == {"step": 61, "loss": None}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "report.json"]
    assert _size((tmp_path / "curves.png").read_bytes()) == (1728, 624)


def _size(png: bytes) -> tuple[int, ...]:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(
    ("events", "width"),
    [
        (EVENTS[:1], 864),
        (EVENTS[1:2], 864),
        ([{"step": 1, "loss": float("nan")}], 864),
        ([*EVENTS, {"step": 61, "precision": 0.2}], 1728),
        ([EVENTS[0], {"step": 5, "precision": 0.4}], 864),
    ],
)
def test_curves_of_what_there_is(events: list[report.Event], width: int) -> None:
    assert _size(curves(events)) == (width, 624)


def test_a_run_without_validation_has_no_best() -> None:
    assert best(EVENTS[1:5]) is None


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_losses_are_averaged_with_those_around(losses: list[float]) -> None:
    reach = len(losses) // 30
    around = [losses[max(0, at - reach) : at + reach + 1] for at in range(len(losses))]
    assert report._smoothed(np.array(losses)) == pytest.approx([np.mean(one) for one in around])


def test_matplotlib_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r"the curves of a training run needs matplotlib: pip install 'deepjoin\[train\]'"
    for call in (check_installed, lambda: write_report(tmp_path, HEADER, EVENTS)):
        with pytest.raises(MissingExtra, match=message):
            call()
    assert not any(tmp_path.iterdir())


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    message = r"gone/a.json cannot be written: No such file.*\. Make room, or give another"
    with pytest.raises(DeepJoinError, match=message):
        whole_file(tmp_path / "gone" / "a.json", b"")


def test_a_card_says_what_a_model_is(tmp_path: Path) -> None:
    text = write_card(tmp_path, FACTS).read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert re.findall(r"^#+ (.+)$", text, re.MULTILINE) == [
        "tiny-equi", "Use", "Data", "Settings", "Figures", "Limits", "Made with",
    ]  # fmt: skip
    for line in (
        "| batch | 32 |",
        r"| text | a\|b |",
        "| P@10 | 0.803 | 500 queries held back |",
        "| columns | 1,234 |  |",
        "Licence of the data: that of the tables.",
        "deepjoin train lake.index --out tiny-equi",
        "deepjoin index tables/ --encoder tiny-equi/shipped --metric cosine",
        'vectors = model.encode(["Company: \\"Apple\\", GE."])',
        'query = model.encode("name: Oslo, Lima, Rome.", prompt_name="query")',
        "Vectors are compared by their cosine.",
        "- A column is read up to 48 tokens.",
    ):
        assert line in text.splitlines()


def test_the_head_of_a_card_is_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    _, head, _ = card(replace(FACTS, base_model='odd: "name" #1')).split("---\n", 2)
    assert yaml.safe_load(head) == {
        "license": "other",
        "base_model": 'odd: "name" #1',
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["deepjoin", "sentence-transformers", "table-discovery", "joinable-columns"],
    }


def test_a_card_without_figures() -> None:
    text = card(replace(FACTS, figures=(), metric="euclidean", prompt="", limits=()))
    assert "prompt_name" not in text and "## Limits" not in text
    assert "## Figures\n\nNone measured.\n" in text
    assert "compared by their Euclidean distance" in text


def test_a_card_s_code_for_sentence_transformers_runs(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders("sentence bert"), tmp_path / "tiny-equi")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.+?)```", card(FACTS), re.DOTALL)
    assert code is not None
    names: dict[str, np.ndarray] = {}
    exec(code[1], names)
    assert names["vectors"].shape == (1, 64)
