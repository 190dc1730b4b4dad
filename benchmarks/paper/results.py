"""Results as JSON lines, one file per experiment; a line has all that a figure depends on."""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import xxhash
from benchmarks.paper.experiments import Experiment, Options, key_of

from deepjoin import __version__
from deepjoin.embed.cells import DEFAULT_TABLE
from deepjoin.embed.columns import DEFAULT
from deepjoin.errors import DeepJoinError
from deepjoin.search.methods import all_methods

FOLDER = Path(__file__).parents[1] / "results"
SEED = 0
#: The digest of the models shipped before, see `shipped`.
BEFORE = "97b3e5cb2ec7b5e3"


class Results:
    """The measurements of one experiment."""

    def __init__(self, experiment: Experiment, folder: Path = FOLDER) -> None:
        self._path = folder / f"{experiment.name}.jsonl"
        self._name = experiment.name
        self.lines = _read(self._path)

    @property
    def sizes(self) -> set[str]:
        """The sizes that were run."""
        return {line["size"] for line in self.lines}

    def rows(self, setting: Options, *, earlier: bool = False) -> list[Options]:
        """Return the rows measured last with a setting.

        Those of the models shipped before count too if ``earlier``, where there are no others.
        """
        found: dict[tuple[bool, str], list[Options]] = defaultdict(list)
        for line in self.lines:
            same = key_of(self._name, line["setting"]) == key_of(self._name, setting)
            is_ours = line["shipped"] == shipped() or not relies_on_shipped(setting)
            if same and (is_ours or (earlier and line["shipped"] == BEFORE)):
                found[is_ours, line["at"]].append(line["row"])
        return found[max(found)] if found else []

    def add(
        self, setting: Options, rows: Iterable[Options], size: str, command: str,
        machine: Options | None = None,
    ) -> None:  # fmt: skip
        """Write the rows of a setting, in one write: an interruption leaves none or all.

        ``machine`` is given if another than this one searched.
        """
        about = {
            "command": command,
            "seed": SEED,
            "version": __version__,
            "shipped": shipped(),
            "hardware": machine or hardware(setting.get("device", "cpu")),
            "at": _now(),
        }
        head = {"experiment": self._name, "size": size, "setting": setting}
        lines = [head | {"row": _rounded(row)} | about for row in rows]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
        self.lines += lines


def hardware(device: str = "cpu") -> Options:
    """Describe the machine, with the GPU if it was used."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = {"cores": os.cpu_count(), "model": _model(), "memory_gb": round(pages / 1e9, 1)}
    if device == "cpu":
        return found
    import torch

    return found | {"gpu": torch.cuda.get_device_name(device)}


def _model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or platform.machine())


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="microseconds")


def _rounded(row: Options) -> Options:
    """Round to five digits, more than the precision of any figure here."""
    return {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()}


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        raise DeepJoinError(
            f"{path} has a line that is not JSON. Delete that line; its setting is run again."
        ) from None


def relies_on_shipped(setting: Options) -> bool:
    """Return whether a setting uses a model that comes with the package.

    >>> relies_on_shipped({"method": "deepjoin"}), relies_on_shipped({"method": "josie"})
    (True, False)
    """
    if setting.get("labels"):
        return True  # what is relevant is pooled from the hits of all methods
    method = all_methods().get(setting.get("method", ""))
    needs = set(method.needs) if method else set()
    if setting.get("search_join", setting.get("join")) == "equi":
        needs.discard("cell vectors")  # those of an equi-join's index are not compared
    needs |= set(method.also) if method else set()
    if setting.get("join") == "semantic":
        needs.add("cell vectors")  # the truth compares cells, whatever the method does
    chosen = {"column vectors": "encoder", "cell vectors": "cells"}
    return any(setting.get(chosen[need], "default") == "default" for need in needs & chosen.keys())


@cache
def shipped() -> str:
    """Return a digest of the shipped models: figures of other models are not shown."""
    content = xxhash.xxh3_64()
    for path in (DEFAULT / "weights.npz", DEFAULT_TABLE / "table.json"):
        content.update(path.read_bytes())
    return content.hexdigest()
