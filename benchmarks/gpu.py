"""Encoding and exact search on a GPU: columns a second, and the time of a query step by step.

Models with the shapes of MiniLM and MPNet-base are created with random weights; --model FOLDER
uses a real one. Prints one JSON object. --device cpu only tests the script, with
tiny models whose figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from common import machine, percentiles, rounded, say, versions
from deepjoin.arrays import Half, Int
from deepjoin.embed.columns.text import TextSettings
from deepjoin.embed.columns.token_model import TOKENS, TokenModel
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.embed.vector_build import index_rows, new_rows
from deepjoin.embed.vector_index import VectorIndex
from deepjoin.engines.gpu import DeviceIndex, DeviceSearch

Figures = dict[str, Any]
K = 10
#: The most tokens a text has, special ones included; the median is 44.
_LIMIT, _MEDIAN = 50, 44
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: Layers, width and heads.
_SHAPES = {"minilm": (6, 384, 12), "mpnet": (12, 768, 12)}
_TINY = (1, 96, 12)
#: Share of the columns encoded in bulk; less for the larger, slower model.
_SHARES = {"minilm": 1.0, "mpnet": 0.125}
_COMPARED, _PROVEN = 500, 5


def save_model(folder: Path, shape: str, words: int, tiny: bool) -> Path:
    """Save a model with random weights and a tokenizer of random words."""
    import torch
    import transformers

    torch.manual_seed(7)
    layers, width, heads = _TINY if tiny else _SHAPES[shape]
    options = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "vocab_size": words,
    }
    if shape == "mpnet":
        model = transformers.MPNetModel(
            transformers.MPNetConfig(**options, max_position_embeddings=514)
        )
    else:
        model = transformers.BertModel(transformers.BertConfig(**options))
    model.save_pretrained(folder)
    tokenizer(words).save_pretrained(folder)
    return folder


def tokenizer(words: int) -> Any:
    """Make a tokenizer whose every word is one token."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    chance = random.Random(7)
    pieces = dict.fromkeys((*_SPECIAL, *":,."))
    while len(pieces) < words:
        pieces["".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9)))] = None
    numbers = {piece: number for number, piece in enumerate(pieces)}
    made = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, numbers[name]) for name in ("[CLS]", "[SEP]")],
    )
    names = zip(("pad", "unk", "cls", "sep", "mask"), _SPECIAL, strict=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{name}_token": token for name, token in names}
    )


def lengths_of(columns: int) -> Int:
    """Draw text lengths as of real columns: most are near the limit."""
    shorter = np.random.default_rng(1).exponential((_LIMIT - _MEDIAN) / np.log(2), columns)
    return np.clip(np.rint(_LIMIT - shorter), 6, _LIMIT).astype(np.int64)


def texts_of(encoder: TorchEncoder, count: int) -> list[str]:
    """Write texts in the form of columns, of these lengths, from words the tokenizer knows."""
    known = encoder._tokens._counting.get_vocab()
    words = sorted(word for word in known if word.isascii() and word.isalpha())
    chance = random.Random(3)
    sizes = lengths_of(count).tolist()
    # Two special tokens, a name with a colon, and a comma or a full stop behind each cell.
    return [
        f"{chance.choice(words)}: {', '.join(chance.choices(words, k=max(1, (n - 4) // 2)))}."
        for n in sizes
    ]


def bulk(encoder: TorchEncoder, model: TokenModel, columns: int, sizes: Sequence[int]) -> Figures:
    """Encode columns from token arrays: for each number of tokens at a time, and from a list."""
    lengths = lengths_of(columns)
    words = encoder._tokens._counting.get_vocab_size()
    rows = np.random.default_rng(2).integers(10, words, (columns, _LIMIT)).astype(np.uint16)
    found: Figures = {"columns": columns, "tokens": int(lengths.sum())}
    for size in sizes:
        model.encode(rows[:20_000], lengths[:20_000], size)
        seconds = _seconds(lambda size=size: model.encode(rows, lengths, size))
        found[f"columns_per_s_{size}_tokens_at_a_time"] = columns / seconds
    found["columns_per_s"] = columns / _seconds(lambda: encoder.encode_tokens(rows, lengths))
    several = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    found["columns_per_s_from_a_list"] = columns / _seconds(lambda: encoder.encode_tokens(several))
    return found


def agreement(encoder: TorchEncoder, folder: Path, texts: Sequence[str]) -> Figures:
    """Compare with full precision on the CPU."""
    full = TorchEncoder(folder, encoder.settings, device="cpu").encode_texts(texts)
    ours = encoder.encode_texts(texts)
    lengths = np.linalg.norm(full, axis=1) * np.linalg.norm(ours, axis=1)
    cosines = (full * ours).sum(1) / lengths
    return {"texts": len(texts), "least_cosine": cosines.min(), "mean_cosine": cosines.mean()}


def query_times(
    encoder: TorchEncoder, model: TokenModel, rows: Half, texts: Sequence[str]
) -> Figures:
    """Time each step of a query, and the whole."""
    device = str(model.device)
    search = DeviceSearch(rows, "cosine", device)
    numbers = encoder.numbers(texts)
    vectors = [model.encode_one(one) for one in numbers]
    rest: Figures = {"columns": len(rows), "queries": len(texts), "k": K}
    steps: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]] = {
        "end_to_end": (lambda text: search.near(encoder.encode_texts([text])[0], K), texts),
        "tokenise": (lambda text: encoder.numbers([text]), texts),
        "encode": (model.encode_one, numbers),
        "encode_unrecorded": (lambda one: _unrecorded(model, one), numbers),
        "search": (lambda vector: search.near(vector, K), vectors),
    }
    found = {name: times(call, given) for name, (call, given) in steps.items()}
    return rest | found | index_times(rows, vectors, device)


def _unrecorded(model: TokenModel, numbers: Sequence[int]) -> Any:
    given = np.array([numbers], np.int64)
    return model.recorder.run(None, lambda tokens: model.vectors(tokens)[0], given)


def index_times(rows: Half, vectors: Sequence[Any], device: str) -> Figures:
    """Time an index on the device, distances measured again, and compare with one that is not."""
    with tempfile.TemporaryDirectory() as folder:
        new_rows(Path(folder), *rows.shape)[:] = rows
        index_rows(Path(folder), "flat")
        there, here = DeviceIndex(VectorIndex(Path(folder)), device), VectorIndex(Path(folder))
        found: Figures = {"index": times(lambda vector: there.search(vector, K), vectors)}
        same = [
            there.search(vector, K).ids.tolist() == here.search(vector, K).ids.tolist()
            for vector in vectors[:_PROVEN]
        ]
    return found | {"index_equal_to_brute_force": f"{sum(same)} of {len(same)}"}


def times(call: Callable[[Any], Any], given: Sequence[Any]) -> Figures:
    """Time calls with each argument, after a warm-up, waiting for the results."""
    for one in given:
        call(one)
    return percentiles([_seconds(partial(call, one)) for one in given])


def _seconds(call: Callable[[], Any]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


def random_rows(columns: int, width: int) -> Half:
    """Draw vectors, a block at a time."""
    chance = np.random.default_rng(5)
    rows = np.empty((columns, width), np.float16)
    for start in range(0, columns, 1 << 16):
        block = rows[start : start + (1 << 16)]
        block[:] = chance.standard_normal(block.shape, np.float32)
    return rows


def measure(folder: Path, shape: str, options: argparse.Namespace) -> Figures:
    """Measure one model."""
    import torch

    started = perf_counter()
    settings = TextSettings("colname-col", tokens=_LIMIT - 2)
    encoder = TorchEncoder(folder, settings, device=options.device)
    model = encoder.token_model
    if model is None:
        return {"error": "vectors in half precision are not those of full precision"}
    about: Figures = {"loaded_s": perf_counter() - started, "dimension": encoder.dimension}
    texts = texts_of(encoder, options.queries)
    on_gpu = model.device.type == "cuda"
    sizes = (1 << 15, TOKENS, 1 << 17) if on_gpu else (TOKENS,)
    about["bulk"] = bulk(encoder, model, max(1, int(options.columns * _SHARES[shape])), sizes)
    about["agreement"] = agreement(encoder, folder, texts[:_COMPARED])
    about["query"] = query_times(
        encoder, model, random_rows(options.columns, encoder.dimension), texts
    )
    about |= {"recorded": model.recorder.records, "refusal": model.recorder.refusal}
    if on_gpu:
        about["gpu_peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
    return about


def machine_of(device: str) -> Figures:
    """Describe the machine and its GPU."""
    import torch

    packages = ("torch", "transformers", "sentence-transformers", "tokenizers")
    on_gpu = torch.device(device).type == "cuda"
    about = {"device": torch.cuda.get_device_name(device)} if on_gpu else {}
    return machine() | about | {"cuda": torch.version.cuda} | versions(*packages)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder to take in place of 'minilm'")
    parser.add_argument("--shapes", default="minilm,mpnet")
    parser.add_argument("--columns", type=int, default=383_472)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--words", type=int, default=30_522, help="words of a made tokenizer")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, help="a file to write the figures to as well")
    options = parser.parse_args()
    tiny = not options.device.startswith("cuda")
    figures: Figures = {"benchmark": "gpu", "machine": machine_of(options.device)}
    for shape in options.shapes.split(","):
        with tempfile.TemporaryDirectory() as place:
            given = options.model if shape == "minilm" else None
            folder = given or save_model(Path(place) / shape, shape, options.words, tiny)
            figures[shape] = rounded(measure(folder, shape, options))
        if options.json:  # after each, since the next one may take long
            options.json.write_text(json.dumps(figures) + "\n")
        say(f"{shape} is measured.")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
