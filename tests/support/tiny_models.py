"""Tiny language models made on the spot, in the layouts their libraries save."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
KINDS = ("bert", "distilbert", "mpnet", "minilm")


def save_model(folder: Path, kind: str, width: int = 64) -> Path:
    """Save a model and its tokenizer as transformers does."""
    import torch

    torch.manual_seed(7)
    _model(kind, width).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def save_sentence_model(folder: Path, kind: str) -> Path:
    """Save the same as a sentence-transformers folder that normalises its vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    plain = SentenceTransformer(str(save_model(folder / "plain", kind)), device="cpu")
    model = SentenceTransformer(modules=[*plain, Normalize()], device="cpu")
    model.save(str(folder / "sentence"))
    return folder / "sentence"


def _model(kind: str, width: int) -> Any:
    import transformers as t

    size = len(_vocabulary())
    shape = {"vocab_size": size, "max_position_embeddings": 160}
    if kind == "distilbert":
        config = t.DistilBertConfig(**shape, dim=width, hidden_dim=128, n_layers=2, n_heads=4)
        return t.DistilBertModel(config)
    layers = {"num_hidden_layers": 2, "num_attention_heads": 12 if kind == "minilm" else 4}
    width = 96 if kind == "minilm" else width
    shape |= layers | {"hidden_size": width, "intermediate_size": 2 * width}
    if kind == "mpnet":
        return t.MPNetModel(t.MPNetConfig(**shape))
    return t.BertModel(t.BertConfig(**shape))


def _vocabulary() -> dict[str, int]:
    letters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), "company", "values"]
    return {piece: number for number, piece in enumerate(pieces)}


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = _vocabulary()
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
    options = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)
