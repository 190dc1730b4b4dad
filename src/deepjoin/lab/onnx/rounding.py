"""Round the weights of a model to 8 bits so that its products on real texts change least.

Each row of a matrix has its own step. The rounding error of one number is compensated in those
after it, as far as their inputs correlate (as in GPTQ); where the inputs are not known, each number
goes to the nearest step. Without texts, they are made of the tokenizer's words.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.onnx_encoder import session
from deepjoin.embed.columns.weights import Array, Floats, block_codes
from deepjoin.lab.onnx.graph import FINE_MATRICES, GraphWriter, Shape

Codes = npt.NDArray[np.int8]
Doubles = npt.NDArray[np.float64]
_LARGEST = 127
#: Share of the mean moment added to each, so that the inverse exists.
_DAMPING = 0.01
_BLOCK = 64
#: Texts made, or used of those given: more make no difference that could be measured.
TEXTS = 320
_CELLS = 24


def steps_of(matrix: Floats) -> Floats:
    """Return the step of each row, 1 for a row of zeros.

    >>> steps_of(np.array([[1, -127], [0, 0]], np.float32)).tolist()
    [1.0, 1.0]
    """
    largest = np.abs(matrix).max(axis=1)
    return np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)


def nearest(matrix: Floats) -> tuple[Codes, Floats]:
    """Round each number to the nearest step."""
    steps = steps_of(matrix)
    return _codes(matrix / steps[:, None]), steps


def rounded(matrix: Floats, moments: Doubles) -> tuple[Codes, Floats]:
    """Round a matrix whose inputs have these second moments, the most active inputs first."""
    steps = steps_of(matrix)
    order = np.argsort(-np.diag(moments), kind="stable")
    left = (matrix[:, order] / steps[:, None]).astype(np.float64)
    spread = _spread(moments[np.ix_(order, order)])
    codes = np.zeros(matrix.shape, np.int8)
    for start in range(0, len(order), _BLOCK):
        block = slice(start, start + _BLOCK)
        some, errors = _rounded_block(left[:, block], spread[block, block])
        codes[:, order[block]] = some
        left[:, start + _BLOCK :] -= errors @ spread[block, start + _BLOCK :]
    return codes, steps


def _rounded_block(left: Doubles, spread: Doubles) -> tuple[Codes, Doubles]:
    codes = np.zeros(left.shape, np.int8)
    errors = np.zeros(left.shape)
    for place in range(left.shape[1]):
        codes[:, place] = _codes(left[:, place])
        errors[:, place] = (left[:, place] - codes[:, place]) / spread[place, place]
        left[:, place:] -= np.outer(errors[:, place], spread[place, place:])
    return codes, errors


def _spread(moments: Doubles) -> Doubles:
    """Return how much of an error each later input takes over."""
    damping = max(_DAMPING * float(np.diag(moments).mean()), 1e-9)
    inverse = np.linalg.inv(moments + damping * np.eye(len(moments)))
    triangle: Doubles = np.linalg.cholesky(inverse).T
    return triangle


def _codes(numbers: npt.NDArray[np.floating]) -> Codes:
    codes: Codes = np.clip(np.rint(numbers), -_LARGEST, _LARGEST).astype(np.int8)
    return codes


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
    model = session(GraphWriter(shape, exact).model().SerializeToString(), exact, None)
    sizes = {name: exact[f"{name}.weight"].shape[1] for name in products}
    moments = {name: np.zeros((size, size)) for name, size in sizes.items()}
    for numbers in texts:
        for name, states in zip(products, model.run(products, {"tokens": [numbers]}), strict=True):
            moments[name] += states.T @ states
    return moments
