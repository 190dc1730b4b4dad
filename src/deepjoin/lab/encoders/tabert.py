"""TaBERT as a column encoder: the title of the table and a few cells, read by BERT.

A row is ``[CLS] title [SEP] name | type | cell [SEP]``; a lake gives one column at a time, so the
table has that column alone. A column's state in a row is the mean over its tokens; models of
several rows let these states attend to each other before they are averaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deepjoin.arrays import Float
from deepjoin.embed.columns.encoder import ColumnEncoder, batches, checked
from deepjoin.embed.columns.text import Frequency
from deepjoin.errors import DeepJoinError, reason
from deepjoin.lab.encoders.checkpoints import (
    Checkpoint,
    CheckpointFiles,
    TransformerLayer,
    Words,
    are_numbers,
    chosen_device,
    shown_cells,
    tensors_digest,
)
from deepjoin.model import Column

LAYOUT = CheckpointFiles("TaBERT", "tb_config.json", ("model.safetensors", "model.bin"))
#: Prefixes of the BERT inside: as published, and of an earlier version.
_BERT = ("_bert_model.bert.", "bert.")
_ACROSS = "vertical_transformer_layers."
#: The parts of a layer across rows, in the order of `deepjoin.lab.encoders.checkpoints.BERT`.
_ACROSS_NAMES = (
    *("attention.self_attention.query_linear", "attention.self_attention.key_linear"),
    *("attention.self_attention.value_linear", "attention.self_output.dense"),
    *("attention.self_output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
)
#: Parts of BERT that are not needed, and not in all checkpoints.
_SPARE = ("pooler.", "embeddings.position_ids")
_LONGEST = 512
#: Tokens read at a time.
_TOKENS = 1 << 14


class TabertRow(NamedTuple):
    """A row as BERT reads it: tokens, length of the first segment, and the column's tokens."""

    tokens: list[int]
    first: int
    span: tuple[int, int]


@dataclass(frozen=True)
class RowLayout:
    """How rows are written, by the configuration of a checkpoint."""

    template: tuple[str, ...] = ("column", "|", "type", "|", "value")
    #: Would separate columns; it is part of the digest, so it stays although there is one column.
    delimiter: str = "[SEP]"
    title_first: bool = True
    pooling: str = "mean_pool"
    cell_tokens: int = 5
    title_tokens: int = 256
    longest: int = _LONGEST

    @classmethod
    def of(cls, checkpoint: Checkpoint, positions: int) -> RowLayout:
        """Read the layout from the configuration."""
        config = checkpoint.config
        pooling = str(config.get("column_representation", cls.pooling))
        if not pooling.startswith(("mean_pool", "first_token")):
            raise checkpoint.refused(f"its column_representation is '{pooling}', no mean")
        longest = min(positions, checkpoint.number("max_sequence_len", _LONGEST))
        return cls(
            template=_template(config),
            delimiter=str(config.get("column_delimiter", cls.delimiter)),
            title_first=bool(config.get("context_first", True)),
            pooling=pooling,
            cell_tokens=checkpoint.number("max_cell_len", cls.cell_tokens),
            title_tokens=min(longest // 2, checkpoint.number("max_context_len", 256)),
            longest=longest,
        )

    def row(
        self, title: Sequence[int], name: list[int], kind: int, value: list[int], words: Words
    ) -> TabertRow:
        """Write a row from the token numbers of title, column name, type and cell."""
        title = title[: self.title_tokens]
        parts = {"column": name, "type": [kind], "value": value[: self.cell_tokens]}
        tokens: list[int] = []
        first, last = 0, 0
        for part in self.template:
            found = parts.get(part) or ([] if part in parts else [words.number(part)])
            if part == "column":
                first, last = len(tokens), len(tokens) + len(found)
            tokens += found
        # The tokens that represent the column: its name, the first one, or all.
        if "column_name" not in self.pooling:
            first, last = 0, 1 if "first_token" in self.pooling else len(tokens)
        # [CLS], title and the two [SEP] are never cut; the column gets the rest.
        tokens = tokens[: max(0, self.longest - len(title) - 3)]
        start = len(title) + 2 if self.title_first else 1
        span = (start + min(first, len(tokens)), start + min(last, len(tokens)))
        one, other = (list(title), tokens) if self.title_first else (tokens, list(title))
        begin, end = words.number("[CLS]"), words.number("[SEP]")
        return TabertRow([begin, *one, end, *other, end], len(one) + 2, span)


def _template(config: Mapping[str, Any]) -> tuple[str, ...]:
    if "column_item_delimiter" in config:  # as the first versions wrote it
        parts = ["column"]
        parts += ["type"] * bool(config.get("use_type_text", True))
        parts += ["value"] * bool(config.get("use_sample_value", True))
        template: Any = str(config["column_item_delimiter"]).join(parts)
    else:
        template = config.get("cell_input_template", RowLayout.template)
    if isinstance(template, str):
        return tuple(re.findall(r"\w+|[^\w\s]", template))
    if isinstance(template, list | tuple):
        return tuple(str(part) for part in template)
    raise DeepJoinError(
        f"cell_input_template is {template!r} in tb_config.json; it must be a text or a list. Copy "
        "the checkpoint again."
    )


class TabertEncoder(ColumnEncoder):
    """A TaBERT checkpoint that reads one row or several."""

    kind = "tabert"

    def __init__(self, checkpoint: Checkpoint, profile: str, device: str | None) -> None:
        self._profile, self._words = profile, checkpoint.words
        self._device = chosen_device(device)
        self._bert = _bert(checkpoint).to(self._device).eval()
        config = self._bert.config
        self.layout = RowLayout.of(checkpoint, config.max_position_embeddings)
        across = {name: one.to(self._device) for name, one in checkpoint.below(_ACROSS).items()}
        self._across = _across(checkpoint, across, config.layer_norm_eps)
        self._rows = checkpoint.number("sample_row_num", 3) if self._across else 1
        self.name, self.dimension = checkpoint.folder.name, int(config.hidden_size)
        self.digest = tensors_digest(
            {
                **self._bert.state_dict(),
                **{f"{_ACROSS}{name}": one for name, one in across.items()},
            },
            *(self.layout, self._rows, profile, self._words.digest()),
            *(config.num_attention_heads, config.hidden_act, config.layer_norm_eps),
            checkpoint.config.get("num_vertical_attention_heads"),
        )

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the vector of each column; zeros for one without cells."""
        snapshots = [self.snapshot(column) for column in columns]
        ends = np.cumsum([0, *(len(rows) for rows in snapshots)])
        vectors = np.zeros((len(columns), self.dimension), np.float32)
        if not ends[-1]:
            return vectors
        states = self._states([row for rows in snapshots for row in rows])
        sizes = np.diff(ends)
        # Columns with equally many rows share a batch of the layers across rows.
        for size in np.unique(sizes[sizes > 0]).tolist():
            places = np.flatnonzero(sizes == size)
            rows = ends[places][:, None] + np.arange(size)
            vectors[places] = self._joined(states[rows])
        return checked(vectors, self.name)

    def snapshot(self, column: Column) -> list[TabertRow]:
        """Write some of a column's cells as rows."""
        cells = shown_cells(column, self._profile, self._rows)
        kind = self._words.number("real" if are_numbers(cells) else "text")
        title, name, *values = self._words.numbers([column.title, column.name, *cells])
        return [self.layout.row(title, name, kind, value, self._words) for value in values]

    def _states(self, rows: list[TabertRow]) -> Float:
        """Return the state of the column in each row; rows of equal length form a batch."""
        import torch

        states = np.zeros((len(rows), self.dimension), np.float32)
        with torch.inference_mode():
            for places in batches([len(row.tokens) for row in rows], _TOKENS):
                tokens, segments, mask = (
                    torch.from_numpy(np.array(array)).to(self._device)
                    for array in zip(*(_arrays(rows[place]) for place in places), strict=True)
                )
                found = self._bert(
                    input_ids=tokens,
                    token_type_ids=segments,
                    attention_mask=torch.ones_like(tokens),
                ).last_hidden_state
                means = (found * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
                states[places] = means.cpu().numpy()
        return states

    def _joined(self, states: Float) -> Float:
        """Apply the layers across the rows of each column, and average the rows."""
        import torch

        with torch.inference_mode():
            found = torch.from_numpy(states).to(self._device)
            for layer in self._across:
                found = layer(found)
            joined: Float = found.mean(1).cpu().numpy()
        return joined


def _arrays(row: TabertRow) -> Iterator[Any]:
    places = np.arange(len(row.tokens))
    start, stop = row.span
    yield np.array(row.tokens, np.int64)
    yield (places >= row.first).astype(np.int64)
    yield ((places >= start) & (places < stop)).astype(np.float32)


def _bert(checkpoint: Checkpoint) -> Any:
    """Build the BERT inside a checkpoint, with the sizes of its tensors."""
    import transformers

    library: Any = transformers
    found = next((found for prefix in _BERT if (found := checkpoint.below(prefix))), {})
    found = {name: one for name, one in found.items() if not name.startswith(_SPARE)}
    try:
        # The configuration of TaBERT names its BERT only; the tensors have the sizes.
        words, width = found["embeddings.word_embeddings.weight"].shape
        config = library.BertConfig(
            vocab_size=words,
            hidden_size=width,
            num_hidden_layers=len({name.split(".")[2] for name in found if ".layer." in name}),
            num_attention_heads=checkpoint.number("num_attention_heads", max(1, width // 64)),
            intermediate_size=len(found["encoder.layer.0.intermediate.dense.bias"]),
            max_position_embeddings=len(found["embeddings.position_embeddings.weight"]),
            type_vocab_size=len(found["embeddings.token_type_embeddings.weight"]),
            layer_norm_eps=float(checkpoint.config.get("layer_norm_eps", 1e-12)),
        )
        model = library.BertModel(config, add_pooling_layer=False)
        model.load_state_dict(found, strict=True)
    except KeyError as error:
        raise checkpoint.refused(f"it has no tensor {error}") from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise checkpoint.refused(f"its tensors are not those of a BERT: {reason(error)}") from None
    checkpoint.check_words(words)
    return model


def _across(
    checkpoint: Checkpoint, tensors: Mapping[str, Any], eps: float
) -> list[TransformerLayer]:
    """Build the layers across rows that the configuration declares."""
    if "num_vertical_layers" not in checkpoint.config:
        return []
    heads = checkpoint.number("num_vertical_attention_heads", 6)
    try:
        return [
            TransformerLayer(tensors, f"{number}.", _ACROSS_NAMES, heads, eps)
            for number in range(checkpoint.number("num_vertical_layers", 3))
        ]
    except KeyError as error:
        raise checkpoint.refused(f"it has no tensor '{_ACROSS}{error.args[0]}'") from None


def load_tabert(where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Load a published TaBERT checkpoint: tb_config.json, model.bin, and vocab.txt beside them."""
    checkpoint = Checkpoint.read(where, LAYOUT)
    encoder = TabertEncoder(checkpoint, profile, device)
    checkpoint.check(encoder)
    return encoder
