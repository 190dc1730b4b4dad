"""The static table: a value's vector is the sum of table rows, so encoding is a look-up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Float, Int, Marks
from deepjoin.embed.cells.folder import (
    TableFacts,
    TableParts,
    read_folder,
    read_pieces,
    read_tokenizer,
    write_folder,
)
from deepjoin.embed.cells.pieces import WordPieces
from deepjoin.embed.cells.tokens import (
    Bags,
    directions,
    gram_bags,
    normalise,
    number_bags,
    plain_initials,
    plain_word,
    split_words,
    sum_bags,
    text_array,
    undotted,
    with_digits,
    without_letters,
)
from deepjoin.embed.cells.words import (
    SHORTEST,
    KnownWords,
    Speller,
    is_split,
    levelled,
    shades,
    slip_ratios,
    weights,
)
from deepjoin.lazy import cached_property
from deepjoin.progress import check_stop

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Part of the digest: raised whenever the same table would give different vectors.
_WAY = 3
#: Length of a value's numbers beside its words. Different numbers leave at most 1 / 1.36 of the
#: cosine, equal ones alone give .36 / 1.36. A larger weight costs precision among columns.
_NUMBER_WEIGHT = 0.6
_VALUES_AT_ONCE = 1 << 19
_WORDS_AT_ONCE = 1 << 14
_NUMBERED_AT_ONCE = 1 << 16
#: Up to this many values are looked up in a dictionary: Arrow hashes all phrases at every call.
_FEW = 1 << 12
#: Words of small calls whose vectors are kept: 8 MB.
_RECENT = 1 << 14
#: The largest code of a row.
_TOP = 127


class StaticTable:
    """Rows of word pieces, letter n-grams and whole phrases, summed and normalised."""

    def __init__(
        self, facts: TableFacts, tokenizer: str, rows: npt.NDArray[np.int8], scales: Float,
        phrases: Sequence[str], words: Sequence[str],
    ) -> None:  # fmt: skip
        self.facts = facts
        self.name, self.dimension = facts.name, facts.dimension
        self.floor, self.tau = facts.floor, facts.tau
        self._tokenizer_text, self._rows, self._scales = tokenizer, rows, scales
        self._phrases, self._words = pa.array(phrases, pa.string()), list(words)
        self._recent: KnownWords | None = None
        content = hashlib.sha256(json.dumps([_WAY, asdict(facts)]).encode())
        content.update(tokenizer.encode())
        content.update(np.ascontiguousarray(rows).tobytes())
        content.update(scales.astype(np.float16).tobytes())
        for lines in (phrases, words):
            content.update("\n".join([*lines, ""]).encode())
        self.digest = content.hexdigest()[:16]

    @classmethod
    def load(cls, folder: str | Path) -> StaticTable:
        """Open a folder that `save` wrote."""
        return cls(*read_folder(Path(folder)))

    @classmethod
    def pack(
        cls, facts: TableFacts, tokenizer: str, table: Float, phrases: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> StaticTable:  # fmt: skip
        """Round a table of floats to eight bits a number, with one scale for each row."""
        scales = (np.abs(table).max(axis=1) / _TOP).astype(np.float16).astype(np.float32)
        safe = np.where(scales > 0, scales, 1)[:, None]
        rows = np.clip(np.rint(table / safe), -_TOP, _TOP).astype(np.int8)
        return cls(facts, tokenizer, rows, scales, phrases, words)

    def save(self, folder: str | Path) -> None:
        """Write the files `load` reads; the same table always gives the same bytes."""
        phrases = self._phrases.to_pylist()
        parts = (self.facts, self._tokenizer_text, self._rows, self._scales, phrases, self._words)
        write_folder(Path(folder), TableParts(*parts))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The word-piece tokenizer, without limits on length."""
        return read_tokenizer(self._tokenizer_text)

    @cached_property
    def _pieces(self) -> WordPieces:
        return WordPieces(self.tokenizer, self.facts.unknown)

    @cached_property
    def _table(self) -> Float:
        return self._rows.astype(np.float32) * self._scales[:, None]

    def encode(
        self, values: Sequence[str | None] | pa.Array, known: KnownWords | None = None
    ) -> Float:
        """Encode values, one unit row each; a value without letters or digits gets zeros.

        A value's vector does not depend on the values encoded with it, nor on the words known.
        """
        if known is None and len(values) <= _FEW:
            known = self._recent_words()
        array = pc.utf8_lower(pc.utf8_trim_whitespace(text_array(values)))
        out = np.zeros((len(array), self.dimension), np.float32)
        for start in range(0, len(array), _VALUES_AT_ONCE):
            part = array.slice(start, _VALUES_AT_ONCE)
            if isinstance(part, pa.ChunkedArray):
                part = part.combine_chunks()
            check_stop()
            self._encode_part(part, out[start : start + len(part)], known)
        return out

    def _recent_words(self) -> KnownWords:
        """Return the words of queries, and of values near them, which occur again and again."""
        if self._recent is None or self._recent.is_full:
            self._recent = KnownWords(_RECENT, self.dimension)
        return self._recent

    def _encode_part(self, values: pa.Array, out: Float, known: KnownWords | None) -> None:
        starts, numbers, words = split_words(values)
        shading = shades(starts, numbers, words, self.facts.recipe)
        make = self._word_vectors
        vectors = make(words) if known is None else known.vectors(words, make)
        sum_bags(vectors, Bags(starts, numbers), out, shading)
        # A phrase's row replaces the sum of its words.
        phrases, places = self._phrases_among(values)
        rows = self.facts.pieces + self.facts.buckets + places
        out[phrases] = self._rows[rows] * self._scales[rows, None]
        normalise(out)
        # Word pieces make 1234567 and 1234568, or a123 and a124, nearly the same vector. So the
        # numbers of a value are added as directions of their own hashes.
        has_numbers = with_digits(values)
        has_numbers[phrases] = False
        numbered = np.flatnonzero(has_numbers)
        for start in range(0, len(numbered), _NUMBERED_AT_ONCE):
            rows = numbered[start : start + _NUMBERED_AT_ONCE]
            some = values.take(pa.array(rows))
            # Values without a letter are nothing but their numbers.
            alone = without_letters(some)
            bags, distinct = number_bags(some.to_pylist(), alone.tolist())
            sums = np.zeros((len(rows), self.dimension), np.float32)
            sum_bags(directions(distinct, self.dimension), bags, sums)
            normalise(sums)
            turned = np.where(alone[:, None], sums, out[rows] + np.float32(_NUMBER_WEIGHT) * sums)
            normalise(turned)
            out[rows] = turned

    def _word_vectors(self, words: Sequence[str]) -> Float:
        """Sum the parts of each word: punctuation inside a word separates parts."""
        plain = pa.array([plain_word(word) for word in words], pa.string())
        starts, numbers, parts = split_words(plain)
        made = np.zeros((len(parts), self.dimension), np.float32)
        for start in range(0, len(parts), _WORDS_AT_ONCE):
            check_stop()
            some = parts[start : start + _WORDS_AT_ONCE]
            made[start : start + len(some)] = self._part_vectors(some)
        vectors = np.zeros((len(words), self.dimension), np.float32)
        sum_bags(made, Bags(starts, numbers), vectors)
        return vectors

    def _part_vectors(self, parts: list[str]) -> Float:
        """Blend pieces and letters, correct misspellings, and separate numbers and codes."""
        recipe = self.facts.recipe
        pieces, letters = self.bags(parts)
        split = is_split(parts, pieces)
        vectors = self._blend(pieces, letters, split)
        places, correct = self.slips(parts, split)
        if correct:
            bags = self.bags(correct)
            known, own = self._blend(*bags, is_split(correct, bags[0])), vectors[places]
            ratios = slip_ratios(own, known, recipe.slip)
            vectors[places] = ratios[:, None] * own + np.float32(recipe.slip) * known
        vectors *= levelled(vectors, recipe.even)[:, None]
        # Letter n-grams alone would make 1265 close to 1260.
        digits = [at for at, part in enumerate(parts) if part.isascii() and not part.isalpha()]
        numbers = [at for at in digits if parts[at].isdigit()]
        codes = [at for at in digits if parts[at] and not parts[at].isdigit()]
        if numbers:
            named = [parts[at].lstrip("0") or "0" for at in numbers]
            vectors[numbers] = np.float32(recipe.number) * directions(named, self.dimension)
        if codes:
            lengths = np.linalg.norm(vectors[codes], axis=1, keepdims=True)
            lengths *= np.float32(recipe.code)
            vectors[codes] += lengths * directions([parts[at] for at in codes], self.dimension)
        return vectors

    def _blend(self, pieces: Bags, letters: Bags, split: Marks) -> Float:
        sums = [np.zeros((len(split), self.dimension), np.float32) for _ in range(2)]
        for bags, out in zip((pieces, letters), sums, strict=True):
            self._sum_rows(bags, out)
        along, across = weights(sums[0], sums[1], split, self.facts.recipe)
        blended: Float = along[:, None] * sums[0] + across[:, None] * sums[1]
        return blended

    def _sum_rows(self, bags: Bags, out: Float) -> None:
        """Sum rows of the table; of a few, only these are turned into floats."""
        if len(bags.ids) > _FEW:
            sum_bags(self._table, bags, out)
            return
        rows = self._rows[bags.ids] * self._scales[bags.ids, None]
        sum_bags(rows, Bags(bags.starts, np.arange(len(rows))), out)

    def slips(self, words: Sequence[str], split: Marks) -> tuple[Int, list[str]]:
        """Find the words that look mistyped: their places, and the correct word of each."""
        unknown = [
            at for at in np.flatnonzero(split).tolist()
            if len(words[at]) >= SHORTEST and words[at].isascii() and words[at].isalpha()
        ]  # fmt: skip
        if not unknown:  # a short query may need no speller, which takes a tenth of a second
            return np.zeros(0, np.int64), []
        nearest = self._speller.nearest([words[at] for at in unknown])
        found = nearest >= 0
        correct = [self._speller.words[number] for number in nearest[found].tolist()]
        return np.array(unknown, np.int64)[found], correct

    @cached_property
    def _speller(self) -> Speller:
        # Piece numbers follow how common a word is; the table's own words come after them.
        numbered = sorted(read_pieces(self._tokenizer_text).items(), key=lambda item: item[1])
        whole = [word for word, _ in numbered if word.isascii() and word.isalpha()]
        return Speller([word for word in whole if len(word) >= SHORTEST] + self._words)

    def bags(self, words: Sequence[str]) -> tuple[Bags, Bags]:
        """Return the piece rows and the letter rows of plain words."""
        return (
            self._pieces.bags(words),
            gram_bags(words, self.facts.buckets, self.facts.pieces),
        )

    def _phrases_among(self, values: pa.Array) -> tuple[Int, Int]:
        """Return which values are phrases, with dots between initials or without, and which."""
        if len(values) > _FEW:
            first = pc.index_in(values, self._phrases)
            found = pc.coalesce(first, pc.index_in(undotted(values), self._phrases))
            places = np.asarray(pc.fill_null(found, -1)).astype(np.int64)
        else:
            known, texts = self._phrase_places, values.to_pylist()
            both = ((one or "", plain_initials(one) or "") for one in texts)
            numbers = (known.get(one, known.get(plain, -1)) for one, plain in both)
            places = np.fromiter(numbers, np.int64, len(texts))
        which = np.flatnonzero(places >= 0)
        return which, places[which]

    @cached_property
    def _phrase_places(self) -> dict[str, int]:
        return {phrase: number for number, phrase in enumerate(self._phrases.to_pylist())}
