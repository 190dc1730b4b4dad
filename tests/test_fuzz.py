"""Ugly files through the reader: rows or a refusal of one line, whatever comes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deepjoin.normalise.cells import REPAIRED_NOTE
from deepjoin.read import delimited
from deepjoin.read.jsonlines import read_jsonlines

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """Load a script that is no part of the package."""
    spec = spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


grammar = benchmark("fuzz_grammar")
fuzz = benchmark("fuzz_files")


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", f"{random.randrange(10**9)}"], ids=["fixed", "new"])
def test_every_ugly_file_is_read_or_refused(tmp_path: Path, seed: str) -> None:
    for number in range(150):
        made = grammar.fuzzed(f"{seed}:{number}")
        if len(made.content) < 1 << 16:
            outcome = fuzz.outcome_of(made, tmp_path)
            assert outcome.kind in ("read", "unreadable", "no table"), (
                f"{seed=} {number=} {outcome}"
            )


def test_the_same_seed_makes_the_same_files() -> None:
    assert grammar.fuzzed("7") == grammar.fuzzed("7") != grammar.fuzzed("8")


def test_half_characters_in_wide_json_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = '{"id": 1, "name": "a\ud800b"}\n{"id": 2, "name": "c"}\n'
    path.write_bytes(b"\xff\xfe" + rows.encode("utf-16-le", "surrogatepass"))
    reading = read_jsonlines(path)
    (batch,) = reading
    assert batch.to_pydict() == {"id": ["1", "2"], "name": ["a�b", "c"]}
    assert reading.notes == [REPAIRED_NOTE]


@pytest.mark.parametrize(
    ("text", "kind"), [("a,b\n1,2\n", "read"), ("", "unreadable"), ("%PDF-1.7", "unreadable")]
)
def test_what_becomes_of_a_file_is_reported(tmp_path: Path, text: str, kind: str) -> None:
    outcome = fuzz.outcome_of(grammar.Fuzzed("a.csv", text.encode(), "by hand"), tmp_path)
    assert outcome.kind == kind
    assert bool(outcome.reason) == (kind == "unreadable")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lambda table: table.slice(1), "1 rows, 2 by the csv module"),
        (lambda table: 1 / 0, "ZeroDivisionError at"),
    ],
    ids=["wrong rows", "crash"],
)
def test_faults_of_the_reader_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], Any], text: str
) -> None:
    sound = delimited._arrow
    monkeypatch.setattr(delimited, "_arrow", lambda *given: fault(sound(*given)))
    made = grammar.Fuzzed("a.csv", b"a,b\n1,2\n1,2\n", "by hand")
    outcome = fuzz.outcome_of(made, tmp_path)
    assert outcome.kind == "failed"
    assert text in outcome.reason
