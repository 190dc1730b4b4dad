"""Folders on this machine: corpora, models, and the cache between runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.paper.experiments import Options


def _silent(text: str) -> None:
    """Ignore a message."""


@dataclass(frozen=True)
class Places:
    """The folders that ``{data}``, ``{models}`` and ``{cache}`` stand for in an experiment."""

    data: Path
    cache: Path
    models: Path
    tell: Callable[[str], None] = field(default=_silent)

    def filled(self, text: str) -> str:
        """Put the folders into a text."""
        folders = {"data": self.data, "cache": self.cache, "models": self.models}
        for name, folder in folders.items():
            text = text.replace(f"{{{name}}}", str(folder))
        return text

    def options(self, setting: Options) -> Options:
        """Put the folders into the options of a setting."""
        join = str(setting.get("join", ""))
        return {name: self._option(value, join) for name, value in setting.items()}

    def _option(self, value: Any, join: str) -> Any:
        return self.filled(value).replace("{join}", join) if isinstance(value, str) else value

    def missing(self, setting: Options) -> list[str]:
        """Return the missing models of a setting."""
        named = {k: v for k, v in setting.items() if isinstance(v, str) and "{models}" in v}
        paths = [
            text[text.index(str(self.models)) :]
            for text in self.options(named | {"join": setting.get("join", "")}).values()
            if str(self.models) in text
        ]
        return [path for path in paths if not Path(path).exists()]
