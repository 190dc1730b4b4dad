"""TURL as a column encoder: title, header and cells of a table.

Words of title and header are tokens. A cell is one element, the mean of the embeddings of its
words, without an entity embedding, since cells of a lake are not linked to entities. Columns are
encoded one at a time, so the table has a single column. In TURL's visibility matrix all elements of
such a table see each other, so no mask is needed. The vector is the mean state of the header
followed by the mean state of the cells, as published for column types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from deepjoin.arrays import Float
from deepjoin.embed.columns.encoder import ColumnEncoder, checked
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

LAYOUT = CheckpointFiles("TURL", "config.json", ("model.safetensors", "pytorch_model.bin"))
#: Most tokens of a title, a header and a cell, and most cells of a table, as in pre-training.
TITLE, HEADER, CELL, CELLS = 50, 10, 10, 100
#: Types of elements; 2 is the entity of the page and 3 that of a subject, both unknown here.
_TITLE, _HEADER, _CELL = 0, 1, 4
#: Pads cells to equal length; no token has this number.
_PAD = -1
#: Elements in a batch; attention is quadratic in the elements of a table.
_ELEMENTS = 1 << 13
_TABLES = ("word", "position", "type")


class TableInput(NamedTuple):
    """A table of one column as TURL reads it: the token numbers of title, header and each cell."""

    title: list[int]
    header: list[int]
    mentions: list[list[int]]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of tokens of title and header, and of cells."""
        return len(self.title), len(self.header), len(self.mentions)


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
        checkpoint.check_words(words)
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

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the vector of each column; zeros for one without cells."""
        import torch

        vectors = np.zeros((len(columns), self.dimension), np.float32)
        shapes: dict[tuple[int, ...], list[int]] = {}
        tables = [self.table(column) for column in columns]
        for place, table in enumerate(tables):
            if table.mentions:
                # Tables of one shape need no padding, so a vector does not depend on its batch.
                shapes.setdefault(table.shape, []).append(place)
        with torch.inference_mode():
            for shape, places in shapes.items():
                step = max(1, _ELEMENTS // sum(shape))
                for start in range(0, len(places), step):
                    some = places[start : start + step]
                    vectors[some] = self._read([tables[place] for place in some])
        return checked(vectors, self.name)

    def table(self, column: Column) -> TableInput:
        """Build the input of a table with this column only."""
        cells = shown_cells(column, self._profile, CELLS)
        title, header, *mentions = self._words.numbers([column.title, column.name, *cells])
        return TableInput(title[:TITLE], header[:HEADER], [one[:CELL] for one in mentions])

    def _read(self, tables: Sequence[TableInput]) -> Float:
        """Encode tables of one shape."""
        import torch

        states = torch.cat([self._read_words(tables), self._read_cells(tables)], dim=1)
        for layer in self._layers:
            states = layer(states)
        title, name, _ = tables[0].shape
        header, cells = states[:, title : title + name], states[:, title + name :]
        # A column may have no name; its header part is then 0, not undefined.
        means = [part.sum(1) / max(1, part.shape[1]) for part in (header, cells)]
        vectors: Float = torch.cat(means, dim=1).cpu().numpy()
        return vectors

    def _read_words(self, tables: Sequence[TableInput]) -> Any:
        """Embed title and header; positions are counted within each."""
        title, header, _ = tables[0].shape
        tokens = self._numbers([table.title + table.header for table in tables])
        positions = self._numbers([*range(title), *range(header)])
        kinds = self._numbers([_TITLE] * title + [_HEADER] * header)
        found = self._embedding("word")[tokens] + self._embedding("position")[positions]
        return self._normed(found + self._embedding("type")[kinds])

    def _read_cells(self, tables: Sequence[TableInput]) -> Any:
        """Embed each cell: the mean of its words, fused with a zero entity embedding."""
        import torch
        from torch.nn import functional

        wide = max(1, *(len(cell) for table in tables for cell in table.mentions))
        padded = [[cell + [_PAD] * (wide - len(cell)) for cell in one.mentions] for one in tables]
        tokens = self._numbers(padded)
        known = (tokens != _PAD)[..., None]
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
