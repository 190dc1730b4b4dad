"""The weights of a model in 8 bits, rounded for the texts it will read.

Without texts at hand they are made of the tokenizer's words, in the form of columns.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from deepjoin.embed.columns.graph import FINE_MATRICES, Graph, Shape
from deepjoin.embed.columns.onnx_encoder import session
from deepjoin.embed.columns.rounding import Doubles, nearest, rounded
from deepjoin.embed.columns.weights import Array, Floats, block_codes

#: Texts made, or used of those given: more make no difference that could be measured.
TEXTS = 320
_CELLS = 24


def made_texts(vocabulary: Iterable[str]) -> list[str]:
    """Write columns of random words, the same each time.

    >>> made_texts(["apple", "[CLS]", "##s"])[0][:20]
    'apple: apple apple a'
    """
    words = sorted(word for word in vocabulary if word[0] != "[" and word[:2] != "##")
    chance = random.Random(0)
    return [
        f"{chance.choice(words)}: {', '.join(_cell(words, chance) for _ in range(_CELLS))}."
        for _ in range(TEXTS)
    ]


def _cell(words: Sequence[str], chance: random.Random) -> str:
    return " ".join(chance.choice(words) for _ in range(chance.choice((1, 1, 2, 3))))


def compressed(
    weights: dict[str, Floats], shape: Shape, texts: Sequence[Sequence[int]]
) -> dict[str, Array]:
    """Replace the matrices by their codes, given token numbers of texts to round them for."""
    exact: dict[str, Array] = {name: array for name, array in weights.items() if name != "words"}
    exact["words.codes"], exact["words.scales"] = block_codes(weights["words"])
    products = [name.removesuffix(".weight") for name in weights if _is_matrix(name, weights)]
    moments = _moments(exact, shape, [name for name in products if not _is_fine(name)], texts)
    stored = {name: array for name, array in exact.items() if not _is_matrix(name, weights)}
    for name in products:
        stored |= _parts(name, weights[f"{name}.weight"], moments.get(name))
    return stored


def _is_matrix(name: str, weights: dict[str, Floats]) -> bool:
    return name[0].isdigit() and weights[name].ndim == 2


def _is_fine(product: str) -> bool:
    return product.partition(".")[2] in FINE_MATRICES


def _parts(name: str, matrix: Floats, moments: Doubles | None) -> dict[str, Array]:
    """Store a matrix turned, as the product wants it; a fine one in two parts."""
    codes, steps = nearest(matrix) if moments is None else rounded(matrix, moments)
    parts: dict[str, Array] = {f"{name}.codes": codes.T, f"{name}.codes.steps": steps}
    if moments is None:
        rest, finer = nearest(matrix - codes * steps[:, None])
        parts |= {f"{name}.rest": rest.T, f"{name}.rest.steps": finer}
    return parts


def _moments(
    exact: dict[str, Array], shape: Shape, products: list[str], texts: Sequence[Sequence[int]]
) -> dict[str, Doubles]:
    """Add up the second moments of what each product is given over all texts."""
    model = session(Graph(shape, exact).model().SerializeToString(), exact, None)
    sizes = {name: exact[f"{name}.weight"].shape[1] for name in products}
    moments = {name: np.zeros((size, size)) for name, size in sizes.items()}
    for numbers in texts:
        for name, states in zip(products, model.run(products, {"tokens": [numbers]}), strict=True):
            moments[name] += states.T @ states
    return moments
