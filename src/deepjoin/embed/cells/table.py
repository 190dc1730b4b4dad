"""The static table: a value's vector is the sum of its pieces' rows, so encoding is a look-up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.embed.cells.folder import (
    TableFacts,
    TableParts,
    read_folder,
    read_tokenizer,
    write_folder,
)
from deepjoin.embed.cells.numbers import WEIGHT, directions, number_bags, numbered, wordless
from deepjoin.embed.cells.spelling import SHORTEST, Speller
from deepjoin.embed.cells.tokens import (
    Bags,
    gram_bags,
    normalise,
    piece_bags,
    plain_word,
    split_words,
    sum_bags,
    text_array,
    undotted,
)
from deepjoin.embed.cells.words import is_split, levelled, mix_slips, shades, weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Floats = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]

#: Part of the digest: raised when the same table would give other vectors.
_WAY = 3
_VALUES_AT_ONCE = 1 << 19
_WORDS_AT_ONCE = 1 << 12
_NUMBERED_AT_ONCE = 1 << 16
#: So many values are looked up one by one.
_FEW = 1 << 12
#: Of a row of eight-bit numbers, the largest one.
_TOP = 127


class StaticTable:
    """Look-up rows for word pieces, letter groups and whole phrases, summed and normalised."""

    def __init__(
        self, facts: TableFacts, tokenizer: str, rows: npt.NDArray[np.int8], scales: Floats,
        phrases: Sequence[str], words: Sequence[str],
    ) -> None:  # fmt: skip
        self.facts = facts
        self.name, self.dimension = facts.name, facts.dimension
        self.floor, self.tau = facts.floor, facts.tau
        self._tokenizer_text, self._rows, self._scales = tokenizer, rows, scales
        self._phrases, self._words = pa.array(phrases, pa.string()), list(words)
        self.digest = self._digest()

    @classmethod
    def load(cls, folder: str | Path) -> StaticTable:
        """Open a folder that `save` wrote."""
        return cls(*read_folder(Path(folder)))

    @classmethod
    def pack(
        cls, facts: TableFacts, tokenizer: str, table: Floats, phrases: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> StaticTable:  # fmt: skip
        """Make a table of real numbers into one of eight bits a number, a scale for every row."""
        scales = (np.abs(table).max(axis=1) / _TOP).astype(np.float16).astype(np.float32)
        safe = np.where(scales > 0, scales, 1)[:, None]
        rows = np.clip(np.rint(table / safe), -_TOP, _TOP).astype(np.int8)
        return cls(facts, tokenizer, rows, scales, phrases, words)

    def save(self, folder: str | Path) -> None:
        """Write the files `load` reads; the same table always gives the same bytes."""
        write_folder(Path(folder), self._parts())

    def _parts(self) -> TableParts:
        phrases = self._phrases.to_pylist()
        parts = (self.facts, self._tokenizer_text, self._rows, self._scales, phrases, self._words)
        return TableParts(*parts)

    def _digest(self) -> str:
        """Everything a vector depends on, as sixteen letters."""
        whole = hashlib.sha256(json.dumps([_WAY, asdict(self.facts)]).encode())
        whole.update(self._tokenizer_text.encode())
        whole.update(np.ascontiguousarray(self._rows).tobytes())
        whole.update(self._scales.astype(np.float16).tobytes())
        for lines in (self._phrases.to_pylist(), self._words):
            whole.update("\n".join([*lines, ""]).encode())
        return whole.hexdigest()[:16]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The word-piece tokenizer, without limits on length."""
        return read_tokenizer(self._tokenizer_text)

    @cached_property
    def _table(self) -> Floats:
        return self._rows.astype(np.float32) * self._scales[:, None]

    def encode(self, values: Sequence[str | None] | pa.Array) -> Floats:
        """Encode values, one unit row each; a value without letters or digits gets zeros.

        A value's vector does not depend on the values encoded with it.
        """
        array = pc.utf8_lower(pc.utf8_trim_whitespace(text_array(values)))
        out = np.zeros((len(array), self.dimension), np.float32)
        for start in range(0, len(array), _VALUES_AT_ONCE):
            part = array.slice(start, _VALUES_AT_ONCE)
            if isinstance(part, pa.ChunkedArray):
                part = part.combine_chunks()
            self._encode_part(part, out[start : start + len(part)])
        return out

    def _encode_part(self, values: pa.Array, out: Floats) -> None:
        starts, numbers, words = split_words(values)
        vectors = self._word_vectors(words)
        weights = shades(starts, numbers, words, self.facts.recipe)
        sum_bags(vectors, Bags(starts, numbers), out, weights)
        phrases = self._place_phrases(values, out)
        normalise(out)
        rows = np.setdiff1d(numbered(values), phrases)
        for start in range(0, len(rows), _NUMBERED_AT_ONCE):
            self._add_numbers(values, rows[start : start + _NUMBERED_AT_ONCE], out)

    def _add_numbers(self, values: pa.Array, rows: Int, out: Floats) -> None:
        """Turn values with numbers towards what these are, and those without words all the way."""
        some = values.take(pa.array(rows))
        alone = wordless(some)
        bags, numbers = number_bags(some.to_pylist(), alone.tolist())
        parts = np.zeros((len(rows), self.dimension), np.float32)
        sum_bags(directions(numbers, self.dimension), bags, parts)
        normalise(parts)
        turned = np.where(alone[:, None], parts, out[rows] + np.float32(WEIGHT) * parts)
        normalise(turned)
        out[rows] = turned

    def _word_vectors(self, words: Sequence[str]) -> Floats:
        starts, numbers, parts = split_words(
            pa.array([plain_word(word) for word in words], pa.string())
        )
        made = np.zeros((len(parts), self.dimension), np.float32)
        for start in range(0, len(parts), _WORDS_AT_ONCE):
            some = parts[start : start + _WORDS_AT_ONCE]
            made[start : start + len(some)] = self._part_vectors(some)
        vectors = np.zeros((len(words), self.dimension), np.float32)
        sum_bags(made, Bags(starts, numbers), vectors)
        return vectors

    def _part_vectors(self, parts: list[str]) -> Floats:
        """Add rows up, and turn what looks mistyped towards the word that was meant."""
        pieces, letters = self.bags(parts)
        split = is_split(parts, pieces)
        vectors = self._blend(pieces, letters, split)
        places, meant = self.slips(parts, split)
        if meant:
            own = self.bags(meant)
            known = self._blend(*own, is_split(meant, own[0]))
            vectors[places] = mix_slips(vectors[places], known, self.facts.recipe.slip)
        vectors *= levelled(vectors, self.facts.recipe.even)[:, None]
        self._place_numbers(parts, vectors)
        return vectors

    def _place_numbers(self, parts: list[str], vectors: Floats) -> None:
        """Give numbers and codes directions of their own: their letters make 1265 near to 1260."""
        digits = [at for at, part in enumerate(parts) if part.isascii() and not part.isalpha()]
        numbers = [at for at in digits if parts[at].isdigit()]
        codes = [at for at in digits if parts[at] and not parts[at].isdigit()]
        if numbers:
            named = [parts[at].lstrip("0") or "0" for at in numbers]
            length = np.float32(self.facts.recipe.number)
            vectors[numbers] = length * directions(named, self.dimension)
        if codes:
            lengths = np.linalg.norm(vectors[codes], axis=1, keepdims=True)
            lengths *= np.float32(self.facts.recipe.code)
            vectors[codes] += lengths * directions([parts[at] for at in codes], self.dimension)

    def _blend(self, pieces: Bags, letters: Bags, split: npt.NDArray[np.bool_]) -> Floats:
        sums = [np.zeros((len(split), self.dimension), np.float32) for _ in range(2)]
        sum_bags(self._table, pieces, sums[0])
        sum_bags(self._table, letters, sums[1])
        along, across = weights(sums[0], sums[1], split, self.facts.recipe)
        blended: Floats = along[:, None] * sums[0] + across[:, None] * sums[1]
        return blended

    def slips(self, words: Sequence[str], split: npt.NDArray[np.bool_]) -> tuple[Int, list[str]]:
        """Find the words that look mistyped, and what was meant by each."""
        asked = [
            at for at in np.flatnonzero(split).tolist()
            if len(words[at]) >= SHORTEST and words[at].isascii() and words[at].isalpha()
        ]  # fmt: skip
        nearest = self._speller.nearest([words[at] for at in asked])
        found = nearest >= 0
        meant = [self._known[number] for number in nearest[found].tolist()]
        return np.array(asked, np.int64)[found], meant

    @cached_property
    def _known(self) -> list[str]:
        """Words that are whole pieces, by number, which follows how common they are; then ours."""
        numbered = sorted(self.tokenizer.get_vocab().items(), key=lambda item: item[1])
        whole = [word for word, _ in numbered if word.isascii() and word.isalpha()]
        return [word for word in whole if len(word) >= SHORTEST] + self._words

    @cached_property
    def _speller(self) -> Speller:
        return Speller(self._known)

    def bags(self, words: Sequence[str]) -> tuple[Bags, Bags]:
        """Give the piece rows and the letter rows of plain words."""
        return (
            piece_bags(words, self.tokenizer, self.facts.unknown),
            gram_bags(words, self.facts.buckets, self.facts.pieces),
        )

    def _phrase_numbers(self, values: pa.Array) -> pa.Array:
        """Look values up among the phrases; Arrow hashes all of these anew at every call."""
        if len(values) > _FEW:
            return pc.index_in(values, self._phrases)
        known = self._phrase_places
        return pa.array([known.get(value) for value in values.to_pylist()], pa.int32())

    @cached_property
    def _phrase_places(self) -> dict[str, int]:
        return {phrase: number for number, phrase in enumerate(self._phrases.to_pylist())}

    def _place_phrases(self, values: pa.Array, out: Floats) -> Int:
        """Give phrases the rows they have of their own, and say where they are."""
        places = pc.coalesce(self._phrase_numbers(values), self._phrase_numbers(undotted(values)))
        known = np.asarray(pc.is_valid(places)).nonzero()[0]
        first = self.facts.pieces + self.facts.buckets
        out[known] = self._table[first + np.asarray(places.take(known)).astype(np.int64)]
        return known
