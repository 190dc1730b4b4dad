"""One training run as two processes, as torchrun starts them, on a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.prepare import Prepared, write_json
from deepjoin.lab.training.processes import Processes

torch = pytest.importorskip("torch")

_OPTIONS = (
    "--threshold .3 --batch 8 --tokens 40 --pattern colname-col --device cpu --learning-rate 1e-3"
)


def launched(
    out: Path, training_tables: Path, tiny_bert: str, *options: str
) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "deepjoin", "train", str(training_tables), "-o", str(out), "--base", tiny_bert),
        *(*_OPTIONS.split(), *options),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_two_processes_train_one_model(
    training_tables: Path, tmp_path: Path, tiny_bert: str
) -> None:
    run = launched(
        tmp_path / "mine", training_tables, tiny_bert, "--steps", "40", "--validate", "10"
    )
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert out.split() == [str(tmp_path / "mine")], "one of them speaks"
    report = json.loads((tmp_path / "mine" / "report.json").read_text("utf-8"))
    assert report["events"][-1]["step"] == 20, "each has learned from half of the batches"
    assert report["precision"] > report["before"]
    assert (tmp_path / "mine" / "shipped").is_dir()


def test_what_is_wrong_is_said_once(training_tables: Path, tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    run = launched(tmp_path / "mine", training_tables, tiny_bert)
    out, err = run.communicate(timeout=300)
    assert run.returncode != 0 and "holds other files. Give a new folder" in err and not out


def test_a_process_alone() -> None:
    alone = Processes()
    assert alone.is_first and alone.device("cuda") == "cuda"
    assert alone.first_says(lambda: 0.5) == 0.5 and alone.any_says(True)
    assert Processes(3, 4, 1).device("cuda") == "cuda:1"
    assert Processes(3, 4, 1).device("cpu") == "cpu"


def test_the_launcher_says_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, said)
    assert Processes.started() == Processes(5, 8, 1)


def test_what_others_wait_for_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = Prepared(tmp_path)
    prepared.begin({"source": "tables"})
    assert prepared.request() == {"source": "tables"}

    def cut_short(path: Path, target: Path) -> None:
        path.write_bytes(path.read_bytes()[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", cut_short)
    for name, said in (("run.json", {"pairs": 3}), ("asked.json", {"source": "others"})):
        with pytest.raises(OSError, match="No space left"):
            write_json(tmp_path / name, said)
    assert not prepared.is_whole
    assert prepared.request() == {"source": "tables"}


def test_too_little_memory_on_one_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepjoin.lab.training.fit import Loop

    def too_much(*given: object) -> None:
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr("transformers.Trainer.training_step", too_much)
    loop = Loop.__new__(Loop)
    loop._processes = Processes(1, 2, 1)
    with pytest.raises(DeepJoinError, match=r"run on several devices .* Give a smaller `batch`"):
        loop.training_step(None, {})
