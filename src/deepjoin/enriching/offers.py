"""The catalogue of columns that a lake could add to a table, and search in it by words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Float
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.enriching.features import as_feature, rank_correlation
from deepjoin.enriching.walk import EnrichWalk
from deepjoin.errors import DeepJoinError
from deepjoin.model import Offer
from deepjoin.normalise.canonical import canonical_array

#: Rows on which a new column is compared with yours.
_ROWS = 5000
#: Cells that are shown of a column, how many are looked at for them, and their decimals at most.
_EXAMPLES, _LOOKED_AT, _DECIMALS = 3, 500, 6
#: Words that say nothing of what is looked for.
_FILLERS = (
    "a about all an and any anything column columns data field for how in is it many much of on or "
    "some something that the their there to what which with"
)


def catalogue(walk: EnrichWalk) -> tuple[Offer, ...]:
    """List what the joins of a walk could add: many of your rows and new to your table first."""
    sample = walk.own.table.slice(0, _ROWS)
    mine = [as_feature(name, sample[name]) for name in sample.column_names]
    known = [one for one in mine if one is not None]
    texts = [_canonical(sample[name]) for name in sample.column_names]
    offers = []
    for one in walk.made:
        title = walk.lake.index.table(one.choice.table).title
        for name in one.brought.table.column_names:
            cells = one.brought.table[name]
            filled = len(cells) - cells.null_count
            feature = as_feature(name, cells.slice(0, _ROWS))
            if feature is not None:
                alike = [rank_correlation(feature.values, other.values) for other in known]
                novelty = 1 - max(alike, default=0.0)
            else:
                spelled = _canonical(cells.slice(0, _ROWS))
                same = max((_equal_share(spelled, text) for text in texts), default=0.0)
                # A column with one value tells nothing that is new.
                novelty = 0.0 if len(pc.unique(spelled).drop_null()) < 2 else 1 - same
            offers.append(
                Offer(
                    column=name,
                    table=one.choice.table,
                    via=walk.start_of(one),
                    key=one.choice.shown[1],
                    coverage=filled / max(1, len(cells)),
                    probability=one.choice.probability,
                    novelty=novelty,
                    title=title,
                    examples=_examples(cells),
                )
            )
    return tuple(sorted(offers, key=lambda one: (-one.worth, one.table, one.column)))


def _examples(cells: pa.ChunkedArray) -> tuple[str, ...]:
    """Write the first cells, each once; cells may be lists or bytes, which Arrow cannot compare."""
    found = dict.fromkeys(map(_shown, cells.drop_null()[:_LOOKED_AT].to_pylist()))
    return tuple(found)[:_EXAMPLES]


def _shown(cell: object) -> str:
    """Write a cell; a mean in as few digits as tell it."""
    if not isinstance(cell, float):
        return str(cell)
    whole = f"{cell:.15g}"
    return f"{cell:.6g}" if len(whole.partition(".")[2]) > _DECIMALS else whole


def _canonical(cells: pa.ChunkedArray) -> pa.Array:
    text = pc.cast(cells, pa.string(), safe=False) if _is_plain(cells.type) else cells
    if not pa.types.is_string(text.type):
        return pa.nulls(len(cells), pa.string())
    return canonical_array(text.combine_chunks())


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind))


def _equal_share(some: pa.Array, other: pa.Array) -> float:
    same = pc.equal(some, other).drop_null()
    return float(pc.mean(same.cast(pa.int8())).as_py() or 0.0) if len(same) else 0.0


def offers_about(offers: Sequence[Offer], words: str) -> tuple[Offer, ...]:
    """Order offers by what their names, titles and values have to do with words."""
    asked = [word for word in _words(str(words)) if word not in _FILLERS.split()]
    if not asked:
        raise DeepJoinError(
            f"`about` is {words!r}; it must say what to look for, such as 'income'."
        )
    if not offers:
        return ()
    query = " ".join(asked)
    names = [" ".join(_words(one.column)) for one in offers]
    titles = [" ".join(_words(one.title or one.table)) for one in offers]
    cells = load_cell_encoder()
    of_query = _unit(cells.encode([query]))[0]
    score = np.asarray(
        np.maximum(
            _unit(cells.encode(names)) @ of_query, 0.5 * (_unit(cells.encode(titles)) @ of_query)
        )
    )
    encoder = load_encoder("default")
    if isinstance(encoder, TextEncoder):
        # The encoder of columns reads them as it was trained to: title, name, values.
        texts = [
            f"{title}. {name}: {', '.join(one.examples)}."
            for title, name, one in zip(titles, names, offers, strict=True)
        ]
        vectors = _unit(encoder.encode_texts([query, *texts]))
        score = (score + vectors[1:] @ vectors[0]) / 2
    for at, (name, title) in enumerate(zip(names, titles, strict=True)):
        score[at] += np.mean([_is_in(word, name) + 0.5 * _is_in(word, title) for word in asked])
    order = sorted(
        range(len(offers)), key=lambda at: (-round(float(score[at]), 2), -offers[at].worth)
    )
    return tuple(offers[at] for at in order)


def _words(text: str) -> list[str]:
    """Split a name into words: at anything but letters and digits, and before capitals."""
    spaced = "".join(
        f" {letter}" if letter.isupper() and at and text[at - 1].islower() else letter
        for at, letter in enumerate(text)
    )
    return "".join(one if one.isalnum() else " " for one in spaced).lower().split()


def _is_in(word: str, text: str) -> bool:
    """Check whether a text has a word, or one that begins like it."""
    stem = word[: max(4, len(word) - 2)]
    return any(one.startswith(stem) for one in text.split())


def _unit(vectors: Float) -> Float:
    found: Float = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return found
