"""Run commands in this process and keep what they print."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from deepjoin.cli import main
from deepjoin.cli.parser import make_parser


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read back."""
        return json.loads(self.out)

    @property
    def hits(self) -> list[tuple[str, str]]:
        """Table and column of each hit that it printed as JSON."""
        return [(hit["table"], hit["column"]) for hit in self.json["hits"]]

    def refused(self, *texts: str, status: int = 1) -> None:
        """Check for one line on stderr that has these texts, and nothing on stdout."""
        assert self.status == status, self
        assert self.out == ""
        lines = self.err.strip().splitlines()
        line = lines[-1]
        assert "Traceback" not in self.err
        assert line.startswith("deepjoin")
        assert len(lines) == 1, "a refusal is one line"
        for text in texts:
            assert text in line


Run = Callable[..., Answer]


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    """Call the command line in this process."""
    capsys.readouterr()
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as usage:
        status = int(usage.code or 0)
    return Answer(status, *capsys.readouterr())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process."""
    return partial(call, capsys)


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    (choices,) = (
        action.choices
        for action in make_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(choices)
