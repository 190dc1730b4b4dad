"""Cases that failed once do not fail again, and the script that finds them works."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
hard, hard_cases = import_module("hard"), import_module("hard_cases")
Case = dict[str, Any]

KEPT = sorted((Path(__file__).parent / "hard").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    why = hard.replay(path)
    assert why is None, why


@pytest.mark.slow
@pytest.mark.parametrize("name", ["promise", "file", "history"])
def test_a_round_of_cases_passes(name: str) -> None:
    kind, random = hard.kinds()[name], Random(f"{name} 0")
    for _ in range(2):
        case = kind.make(random)
        assert json.loads(json.dumps(case)) == case, "a case can be kept"
        assert hard.failure(kind, case) is None


class Sums(hard_cases.Kind):  # type: ignore[misc,name-defined]
    """Fails where numbers add up to ten or more."""

    def make(self, random: Random) -> Case:
        """Choose numbers."""
        return {"numbers": [random.randrange(9) for _ in range(9)]}

    def run(self, case: Case, place: Path) -> None:
        """Add them up."""
        assert sum(case["numbers"]) < 10

    def smaller(self, case: Case) -> Iterator[Case]:
        """Leave one out."""
        for number in range(len(case["numbers"])):
            yield {"numbers": case["numbers"][:number] + case["numbers"][number + 1 :]}


def test_failures_are_made_smaller_and_kept(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(hard, "kinds", lambda: {"sums": Sums()})
    case = {"numbers": [1, 8, 0, 3, 7]}
    why = hard.failure(Sums(), case)
    assert why is not None
    small = hard.shrunk(Sums(), case)
    assert small == {"numbers": [3, 7]}
    path = hard.keep(tmp_path, "sums", small, why)
    assert json.loads(path.read_text())["case"] == small
    assert "AssertionError" in str(hard.replay(path))


def test_rounds_end_with_a_summary(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hard, "kinds", lambda: {"sums": Sums()})
    arguments = ["--minutes", "1", "--seed", "0", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["hard.py", *arguments])
    assert hard.main() == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["failed"] == {"sums": 5}, "then the kind is left out"
    assert "--seed 0 --first 0: sums failed" in said.err
    assert len(list(tmp_path.iterdir())) >= 1
