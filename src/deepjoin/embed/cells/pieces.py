"""Word pieces: the tokenizer's own answer, computed for many plain words at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from deepjoin.arrays import Int, ranges
from deepjoin.embed.cells.tokens import Bags
from deepjoin.embed.cells.words import LONGEST, HashIndex, hashed_parts, hashed_words
from deepjoin.lazy import cached_property

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: From this many words on; fewer do not repay the index of pieces.
_MANY = 1 << 10
#: Up to this many, the tokenizer's threads take longer to wake than to work.
_FEW = 1 << 6
#: What marks a piece inside a word, and its share of a hash.
_INSIDE, _INSIDE_MARK = "##", np.uint64(0xA24BAED4963EE407)


class WordPieces:
    """Splits plain words into the pieces of a tokenizer; drops the ``unknown`` piece.

    WordPiece takes the longest piece that a word begins with, then the longest that its rest
    begins with. For words of ASCII letters and digits that is done here, by hashes of all parts
    of many words at once: the tokenizer, which gives the same pieces, takes ten times as long.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: int) -> None:
        self._tokenizer, self._unknown = tokenizer, unknown

    def bags(self, words: Sequence[str]) -> Bags:
        """Return the piece numbers of each word."""
        plain = np.zeros(len(words), bool)
        if len(words) >= _MANY and self._index is not None:
            plain[:] = [word.isascii() and word.isalnum() and word.islower() | word.isdigit()
                        and len(word) <= LONGEST for word in words]  # fmt: skip
        parts = [
            (np.flatnonzero(chosen), split([word for word, one in zip(words, chosen.tolist(),
                                                                      strict=True) if one]))
            for chosen, split in ((plain, self._split), (~plain, self._asked)) if chosen.any()
        ]  # fmt: skip
        if len(parts) == 1:
            return parts[0][1]
        counts = np.zeros(len(words), np.int64)
        for places, bags in parts:
            counts[places] = np.diff(bags.starts)
        starts = np.append(0, np.cumsum(counts))
        ids = np.empty(starts[-1], np.int64)
        for places, bags in parts:
            ids[ranges(starts[places], counts[places])] = bags.ids
        return Bags(starts, ids)

    def _asked(self, words: Sequence[str]) -> Bags:
        """Ask the tokenizer."""
        if len(words) <= _FEW:
            one_by_one = (self._tokenizer.encode(word, add_special_tokens=False) for word in words)
            lists = [encoding.ids for encoding in one_by_one]
        else:
            found = self._tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
            lists = [encoding.ids for encoding in found]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        ids = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
        is_known = ids != self._unknown
        known_before = np.concatenate([[0], np.cumsum(is_known)])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Bags(known_before[starts], ids[is_known])

    @cached_property
    def _index(self) -> HashIndex | None:
        """Pieces by hash; None if this tokenizer may split plain words in another way."""
        about = json.loads(self._tokenizer.to_str())
        kinds = {step: (about[step] or {}).get("type") for step in ("normalizer", "pre_tokenizer")}
        model = about["model"]
        if (
            kinds != {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
            or model.get("type") != "WordPiece"
            or model["continuing_subword_prefix"] != _INSIDE
            or model["max_input_chars_per_word"] < LONGEST
            or any(one["content"].isalnum() for one in about["added_tokens"])
        ):
            return None
        pieces = [(text.removeprefix(_INSIDE), text.startswith(_INSIDE), number)
                  for text, number in model["vocab"].items()]  # fmt: skip
        pieces = [one for one in pieces if one[0].isascii() and one[0].isalnum()
                  and len(one[0]) <= LONGEST and one[2] != self._unknown]  # fmt: skip
        texts, inside, numbers = zip(*pieces, strict=True)
        hashes = hashed_words(texts).wholes ^ np.where(inside, _INSIDE_MARK, np.uint64(0))
        return HashIndex(hashes, np.array(numbers, np.int64))

    def _split(self, words: Sequence[str]) -> Bags:
        """Take the longest piece of every word, then of what is left of each, and so on."""
        assert self._index is not None
        hashed = hashed_words(words)
        lengths, places = hashed.lengths, np.zeros(len(words), np.int64)
        active = np.arange(len(words))
        steps: list[tuple[Int, Int]] = []
        failed = np.zeros(len(words), bool)
        while len(active):
            left = lengths[active] - places[active]
            rows = np.repeat(np.arange(len(active)), left)
            sizes = ranges(np.ones(len(active), np.int64), left)
            starts = places[active][rows]
            hashes = hashed_parts(hashed, active[rows], starts, starts + sizes)
            found = self._index.find(hashes ^ (_INSIDE_MARK if steps else np.uint64(0)))
            here = np.flatnonzero(found >= 0)
            best, size = np.full(len(active), -1), np.zeros(len(active), np.int64)
            # Ascending: the longest is written last.
            best[rows[here]], size[rows[here]] = found[here], sizes[here]
            # A word with a part that no piece begins is unknown as a whole.
            failed[active[best < 0]] = True
            active, best, size = active[best >= 0], best[best >= 0], size[best >= 0]
            steps.append((active, best))
            places[active] += size
            active = active[places[active] < lengths[active]]
        counts = np.zeros(len(words), np.int64)
        for rows, _ in steps:
            counts[rows] += 1
        counts[failed] = 0
        firsts = np.append(0, np.cumsum(counts))
        ids = np.empty(firsts[-1], np.int64)
        for step, (rows, best) in enumerate(steps):
            known = ~failed[rows]
            ids[firsts[rows[known]] + step] = best[known]
        return Bags(firsts, ids)
