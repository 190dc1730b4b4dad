"""Ugly files through the reader: rows or a refusal of one line, whatever comes."""

from __future__ import annotations

import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

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


@pytest.mark.parametrize("seed", ["0", f"{random.randrange(10**9)}"], ids=["fixed", "new"])
def test_every_ugly_file_is_read_or_refused(tmp_path: Path, seed: str) -> None:
    for number in range(150):
        made = grammar.fuzzed(seed, number)
        if len(made.content) < 1 << 16:
            outcome = fuzz.outcome_of(made, tmp_path)
            assert outcome.kind in ("read", "unreadable", "no table"), f"{seed=} {outcome}"


def test_the_same_seed_makes_the_same_files() -> None:
    assert grammar.fuzzed("7", 1) == grammar.fuzzed("7", 1)
    assert grammar.fuzzed("7", 1) != grammar.fuzzed("8", 1)
