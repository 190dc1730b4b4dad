"""Views of columns to the tokens a model reads, by the text settings it will be used with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepjoin.embed.columns.text import DocumentFrequencies, TextSettings, column_texts
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.views import View
from deepjoin.model import Column


@dataclass(frozen=True)
class Tokeniser:
    """Writes views as texts and these as token numbers, padded with the model's own padding."""

    columns: TrainingColumns
    settings: TextSettings
    frequency: DocumentFrequencies
    tokens: Tokens
    padding: int = 0
    #: Other spellings that views may have.
    spellings: Sequence[str] = ()

    def __call__(self, views: Sequence[View]) -> dict[str, Any]:
        """Return ``input_ids`` and ``attention_mask``."""
        return padded(self.tokens.numbers(self.texts(views)), self.padding)

    def texts(self, views: Sequence[View]) -> list[str]:
        """Write views as texts."""
        shown = [self._shown(view) for view in views]
        texts = column_texts(shown, self.settings, self.frequency, self.tokens.count)
        prompt = self.settings.prompt
        return [prompt * view.asking + text for view, text in zip(views, texts, strict=True)]

    def _shown(self, view: View) -> Column:
        column = self.columns.column(view.column, view.places, view.named)
        if view.spelled is None:
            return column
        cells = [
            cell if number < 0 else self.spellings[number]
            for cell, number in zip(column.cells, view.spelled.tolist(), strict=True)
        ]
        return replace(column, cells=cells)


def padded(numbers: Sequence[Sequence[int]], padding: int) -> dict[str, Any]:
    """Put rows of token numbers into one array.

    >>> padded([[5, 6], [7]], 0)["input_ids"].tolist()
    [[5, 6], [7, 0]]
    """
    lengths = np.array([len(one) for one in numbers])
    mask = np.arange(max(1, lengths.max(initial=0))) < lengths[:, None]
    rows = np.full(mask.shape, padding, np.int64)
    rows[mask] = np.concatenate([np.zeros(0, np.int64), *numbers])
    return {"input_ids": rows, "attention_mask": mask.astype(np.int64)}
