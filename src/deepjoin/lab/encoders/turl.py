"""TURL as a column encoder: title, header and cells under the visibility matrix of a table.

Words of title and header are tokens. A cell is one element, the mean of the embeddings of its
words, without an entity embedding, since cells of a lake are not linked to entities. Columns are
encoded one at a time, so the table has a single column, whose elements all see each other. The
vector is the mean state of the header followed by the mean state of the cells, as published for
column types.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.encoder import ColumnEncoder, FloatMatrix, checked
from deepjoin.embed.columns.text import Frequency
from deepjoin.lab.encoders.checkpoints import (
    BERT,
    Checkpoint,
    CheckpointFiles,
    TransformerLayer,
    chosen_device,
    shown_cells,
    tensors_digest,
)
from deepjoin.model import Column

Int = npt.NDArray[np.int64]

LAYOUT = CheckpointFiles("TURL", "config.json", ("model.safetensors", "pytorch_model.bin"))
#: Most tokens of a title, a header and a cell, and most cells of a table, as in pre-training.
TITLE, HEADER, CELL, CELLS = 50, 10, 10, 100
#: Types of elements; 2 is the entity of the page and 3 that of a subject, both unknown here.
_TITLE, _HEADER, _CELL = 0, 1, 4
#: Row or column number of elements that belong to all.
_ALL = -1
#: Elements in a batch; attention is quadratic in the elements of a table.
_ELEMENTS = 1 << 13
_TABLES = ("word", "position", "type")


class TableInput(NamedTuple):
    """A table as TURL reads it: tokens, then cells, with type, row and column of each."""

    tokens: list[int]
    positions: list[int]
    mentions: list[list[int]]
    kinds: list[int]
    rows: Int
    columns: Int

    @classmethod
    def of(
        cls,
        title: Sequence[int],
        headers: Sequence[Sequence[int]],
        cells: Sequence[Sequence[Sequence[int]]],
    ) -> TableInput:
        """Build the input from token numbers of the title, the headers, and the cells by column."""
        spans = [title[:TITLE], *(header[:HEADER] for header in headers)]
        tokens = list(chain.from_iterable(spans))
        kinds = [_TITLE] * len(spans[0]) + [_HEADER] * (len(tokens) - len(spans[0]))
        owners = [at for at, span in enumerate(spans, _ALL) for _ in span]
        places = [(row, at) for at, column in enumerate(cells) for row in range(len(column))]
        return cls(
            tokens,
            [position for span in spans for position in range(len(span))],
            [list(cell[:CELL]) for column in cells for cell in column],
            kinds + [_CELL] * len(places),
            np.array([_ALL] * len(tokens) + [row for row, _ in places], np.int64),
            np.array(owners + [at for _, at in places], np.int64),
        )

    def visible(self) -> npt.NDArray[np.bool_]:
        """Return the visibility matrix.

        Words see all words; the title sees and is seen by everything; cells see their header,
        column and row.

        >>> table = TableInput.of([7], [[8], [9]], [[[1], [2]], [[3], [4]]])
        >>> table.visible()[3].astype(int).tolist()
        [1, 1, 0, 1, 1, 1, 0]
        """
        words = np.arange(len(self.kinds)) < len(self.tokens)
        whole = self.columns == _ALL
        found: npt.NDArray[np.bool_] = self.columns[:, None] == self.columns
        found |= whole[:, None] | whole
        found |= words[:, None] & words
        found |= (self.rows[:, None] == self.rows) & ~(words[:, None] | words)
        return found

    def of_column(self, column: int) -> tuple[Int, Int]:
        """Return the elements of the header and of the cells of a column."""
        here = self.columns == column
        words = np.arange(len(here)) < len(self.tokens)
        return np.flatnonzero(here & words), np.flatnonzero(here & ~words)


class TurlEncoder(ColumnEncoder):
    """A TURL checkpoint."""

    kind = "turl"

    def __init__(self, checkpoint: Checkpoint, profile: str, device: str | None) -> None:
        self._profile, self._words = profile, checkpoint.words
        self._device = chosen_device(device)
        heads = checkpoint.number("num_attention_heads", 12)
        layers = checkpoint.number("num_hidden_layers", 4)
        self._eps = checkpoint.share("layer_norm_eps", 1e-12)
        self._tensors = _tensors(checkpoint, layers)
        if self._embedding("word").ndim != 2:
            raise checkpoint.refused("its word embedding is not a matrix")
        words, width = self._embedding("word").shape
        if checkpoint.words.size > words:
            raise checkpoint.refused(
                f"its vocabulary has {checkpoint.words.size} words, its weights {words}"
            )
        self.name, self.dimension = checkpoint.folder.name, 2 * width
        self.digest = tensors_digest(
            *(self._tensors, heads, self._eps, profile, self._words.digest()),
            (TITLE, HEADER, CELL, CELLS),
        )
        self._tensors = {name: one.to(self._device) for name, one in self._tensors.items()}
        self._layers = [
            TransformerLayer(self._tensors, f"encoder.layer.{number}.", BERT, heads, self._eps)
            for number in range(layers)
        ]

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> FloatMatrix:
        """Return the vector of each column; zeros for one without cells."""
        import torch

        vectors = np.zeros((len(columns), self.dimension), np.float32)
        shapes: dict[tuple[int, ...], list[int]] = {}
        tables = [self.table(column) for column in columns]
        for place, table in enumerate(tables):
            if table.mentions:
                # Tables of one shape need no padding, so a vector does not depend on its batch.
                of_all = int((table.columns == _ALL).sum())
                key = (len(table.tokens), len(table.mentions), of_all)
                shapes.setdefault(key, []).append(place)
        with torch.inference_mode():
            for shape, places in shapes.items():
                step = max(1, _ELEMENTS // (shape[0] + shape[1]))
                for start in range(0, len(places), step):
                    some = places[start : start + step]
                    vectors[some] = self._read([tables[place] for place in some])
        return checked(vectors, self.name)

    def table(self, column: Column) -> TableInput:
        """Build the input of a table with this column only."""
        cells = shown_cells(column, self._profile, CELLS)
        title, header, *mentions = self._words.numbers([column.title, column.name, *cells])
        return TableInput.of(title, [header], [mentions])

    def _read(self, tables: Sequence[TableInput]) -> FloatMatrix:
        """Encode tables of one shape, which share a visibility matrix."""
        import torch

        states = torch.cat([self._read_words(tables), self._read_cells(tables)], dim=1)
        visible = torch.from_numpy(tables[0].visible()).to(self._device)
        for layer in self._layers:
            states = layer(states, visible)
        means = [
            states[:, torch.from_numpy(places)].sum(1) / max(1, len(places))
            for places in tables[0].of_column(0)
        ]
        vectors: FloatMatrix = torch.cat(means, dim=1).cpu().numpy()
        return vectors

    def _read_words(self, tables: Sequence[TableInput]) -> Any:
        size = len(tables[0].tokens)
        tokens, positions, kinds = (
            self._numbers([getattr(table, name)[:size] for table in tables])
            for name in ("tokens", "positions", "kinds")
        )
        found = self._embedding("word")[tokens] + self._embedding("position")[positions]
        return self._normed(found + self._embedding("type")[kinds])

    def _read_cells(self, tables: Sequence[TableInput]) -> Any:
        """Embed each cell: the mean of its words, fused with a zero entity embedding."""
        import torch
        from torch.nn import functional

        wide = max(1, *(len(cell) for table in tables for cell in table.mentions))
        padded = [[cell + [_ALL] * (wide - len(cell)) for cell in one.mentions] for one in tables]
        tokens = self._numbers(padded)
        known = (tokens != _ALL)[..., None]
        words = self._embedding("word")[tokens.clamp(min=0)] * known
        words = words.sum(2) / known.sum(2).clamp(min=1)
        both = torch.cat([torch.zeros_like(words), words], dim=2)
        weight, bias = (self._tensors[f"embeddings.fusion.{name}"] for name in ("weight", "bias"))
        found = self._normed(functional.gelu(functional.linear(both, weight, bias)))
        return self._normed(found + self._embedding("type")[_CELL])

    def _embedding(self, name: str) -> Any:
        return self._tensors[_table_name(name)]

    def _normed(self, states: Any) -> Any:
        from torch.nn import functional

        weight, bias = (
            self._tensors[f"embeddings.LayerNorm.{name}"] for name in ("weight", "bias")
        )
        return functional.layer_norm(states, states.shape[-1:], weight, bias, self._eps)

    def _numbers(self, lists: list[Any]) -> Any:
        import torch

        return torch.from_numpy(np.array(lists, np.int64)).to(self._device)


def _table_name(name: str) -> str:
    return f"embeddings.{name}_embeddings.weight"


def _tensors(checkpoint: Checkpoint, layers: int) -> dict[str, Any]:
    """Return the tensors needed: all but the entity embeddings, by far the largest part."""
    ends = ("weight", "bias")
    names = [
        *(_table_name(name) for name in _TABLES),
        *(f"embeddings.{name}.{end}" for name in ("LayerNorm", "fusion") for end in ends),
        *(
            f"encoder.layer.{at}.{name}.{end}"
            for at in range(layers)
            for name in BERT
            for end in ends
        ),
    ]
    missing = [name for name in names if f"table.{name}" not in checkpoint.tensors]
    if missing:
        raise checkpoint.refused(f"it has no tensor 'table.{missing[0]}'")
    return {name: checkpoint.tensors[f"table.{name}"].float() for name in names}


def load_turl(where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Load a published TURL checkpoint: config.json, pytorch_model.bin, and vocab.txt beside."""
    checkpoint = Checkpoint.read(where, LAYOUT)
    encoder = TurlEncoder(checkpoint, profile, device)
    checkpoint.check(encoder)
    return encoder
