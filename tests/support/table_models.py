"""Tiny TaBERT and TURL checkpoints in their published layouts."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WORDS = ("gdp", "nation", "real", "text", "##s", "|", "united", "states", "china", "rank", "##ed")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *string.ascii_lowercase]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}


def put_words(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")


def say(path: Path, **said: Any) -> None:
    path.write_text(json.dumps(said), "utf-8")


def bert_config() -> Any:
    transformers: Any = pytest.importorskip("transformers")
    return transformers.BertConfig(
        vocab_size=len(VOCABULARY), intermediate_size=40, max_position_embeddings=64, **SIZES
    )


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    import torch

    random = torch.Generator().manual_seed(3)
    return {name: torch.randn(shape, generator=random) / 4 for name, shape in shapes.items()}


def across_shapes() -> dict[str, tuple[int, ...]]:
    width, wide = 24, 40
    parts = {
        **{f"attention.self_attention.{name}_linear": (width, width) for name in ("query", "key")},
        "attention.self_attention.value_linear": (width, width),
        "attention.self_output.dense": (width, width),
        "attention.self_output.LayerNorm": (width,),
        "intermediate.dense": (wide, width),
        "output.dense": (width, wide),
        "output.LayerNorm": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(2):
        for name, shape in parts.items():
            shapes[f"vertical_transformer_layers.{layer}.{name}.weight"] = shape
            shapes[f"vertical_transformer_layers.{layer}.{name}.bias"] = shape[:1]
    return shapes


def save_tabert(folder: Path, rows: int = 1, **said: Any) -> Path:
    """Save what TaBERT's own code saves: a masked language model inside, layers across rows."""
    import torch
    import transformers

    library: Any = transformers
    torch.manual_seed(5)
    model = library.BertForMaskedLM(bert_config())
    tensors = {f"_bert_model.{name}": one for name, one in model.state_dict().items()}
    config: dict[str, Any] = {"base_model_name": "bert-base-uncased", "num_attention_heads": 4}
    if rows > 1:
        tensors |= drawn(across_shapes())
        config |= {"num_vertical_layers": 2, "num_vertical_attention_heads": 3}
        config |= {"sample_row_num": rows}
    put_words(folder)
    say(folder / "tb_config.json", **config, **said)
    torch.save(tensors, folder / "model.bin")
    return folder


def save_turl(folder: Path) -> Path:
    """Save what TURL's own code saves: its embeddings, layers as BERT's, heads that are unused."""
    import torch

    torch.manual_seed(6)
    layers: Any = pytest.importorskip("transformers").BertModel(bert_config()).encoder
    width, words = 24, len(VOCABULARY)
    tensors = drawn(
        {
            "table.embeddings.word_embeddings.weight": (words, width),
            "table.embeddings.ent_embeddings.weight": (9, width),
            "table.embeddings.position_embeddings.weight": (64, width),
            "table.embeddings.type_embeddings.weight": (5, width),
            "table.embeddings.ent_mask_embedding.weight": (4, width),
            "table.embeddings.fusion.weight": (width, 2 * width),
            "table.embeddings.fusion.bias": (width,),
            "table.embeddings.LayerNorm.weight": (width,),
            "table.embeddings.LayerNorm.bias": (width,),
            "cls.ent_predictions.bias.weight": (9, 1),
        }
    )
    tensors |= {f"table.encoder.{name}": one for name, one in layers.state_dict().items()}
    put_words(folder)
    say(folder / "config.json", **SIZES, ent_vocab_size=9, type_vocab_size=5)
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder


def save_mlp(folder: Path) -> Path:
    """Save an MLP of random weights that reads the shipped cell vectors."""
    from deepjoin.embed.cells import load_cell_encoder
    from deepjoin.lab.encoders.averages import Tower, write_mlp

    cells = load_cell_encoder("default")
    random = np.random.default_rng(2)
    shapes = {
        "mean": (cells.dimension,), "scale": (cells.dimension,),
        "first": (cells.dimension, 16), "first_bias": (16,),
        "second": (16, 8), "second_bias": (8,),
    }  # fmt: skip
    folder.mkdir(parents=True)
    tower = Tower({name: random.standard_normal(shape) for name, shape in shapes.items()})
    write_mlp(folder, tower, "default", cells.digest, {})
    return folder
