"""The page about the paper's recipe: its commands run, in order, on a tiny model."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from deepjoin.cli import main
from deepjoin.lab.encoders import train_fasttext
from deepjoin.lab.training import preset
from deepjoin.model import Column
from deepjoin.read.corpus import write_corpus

PAGE = Path(__file__).parents[1] / "docs" / "paper.md"
BASE = "sentence-transformers/all-mpnet-base-v2"
#: What keeps the run short; everything else is as the page says.
SHORT = ["--steps", "3", "--validate", "2", "--threshold", "0.3", "--device", "cpu"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def commands() -> list[list[str]]:
    """Take the commands from the page."""
    blocks = re.findall(r"```sh\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_the_commands_of_the_page(
    training_tables: Path,
    tmp_path: Path,
    tiny_bert: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("fasttext")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").symlink_to(training_tables)
    first = sorted(training_tables.glob("*.csv"))[0]
    _, *rows = first.read_text("utf-8").splitlines()
    values = [row.split(",")[0] for row in rows]
    (tmp_path / "query.csv").write_text("\n".join(["name", *values]) + "\n", "utf-8")
    columns = [
        Column([value, *values[at : at + 5]], name="name", table=f"t{at}", column_id=f"t{at}#0")
        for at, value in enumerate(values[:8])
    ]
    write_corpus(tmp_path / "corpus", columns, [Column(values[:6], "name", "q", column_id="q#0")])
    printed = []
    for command in commands():
        given = [tiny_bert if part == BASE else part for part in command]
        if given[:2] == ["python", "-m"]:
            assert train_fasttext.main([*given[3:], "--dimension", "8"]) == 0
            continue
        assert given[0] == "deepjoin"
        assert main([*given[1:], *(SHORT if given[1] == "train" else ())]) == 0, command
        printed.append((given[1], capsys.readouterr().out))
    for name, join, shuffle in (("equi-model", "equi", 0.3), ("semantic-model", "semantic", 0.2)):
        report = json.loads((tmp_path / name / "report.json").read_text("utf-8"))
        assert report["settings"] == vars(
            preset("paper", join=join, shuffle=shuffle, steps=3, validate=2, threshold=0.3)
        ) | {"tau": report["settings"]["tau"]}
        # The tiny base reads 160 tokens, two of them special.
        assert report["text"]["pattern"] == "title-colname-stat-col"
        assert (report["text"]["sampling"], report["text"]["tokens"]) == ("frequency", 158)
        assert report["warmup_steps"] <= report["steps"] == 3
    lines = [line for kind, out in printed if kind == "evaluate" for line in out.splitlines()]
    measured = [json.loads(line) for line in lines]
    assert [row["method"] for row in measured] == ["deepjoin", "deepjoin-exact", "deepjoin"]
    assert measured[1]["precision"] == 1.0, "all columns are candidates"
    assert [row["truth"] == row["trained"] for row in measured] == [True] * 3, "one truth"
    assert measured[2]["truth"].startswith("cells.bin@")
