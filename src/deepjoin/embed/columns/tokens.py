"""Texts to token numbers, without torch: the tokenizer.json of a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.errors import DeepJoinError, reason

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

#: Characters kept for each token of the limit before tokenising; tokens are rarely this long.
_LETTERS = 64


class Tokens:
    """A tokenizer with a limit: ``tokens`` of the text, plus its prompt and special tokens.

    Threads may share it: one tokenizer truncates, another counts, and neither is ever modified.
    """

    def __init__(self, cutting: Tokenizer, counting: Tokenizer, tokens: int, prompt: str) -> None:
        for tokenizer in (cutting, counting):
            tokenizer.no_padding()
            tokenizer.no_truncation()
        self._cutting, self._counting = cutting, counting
        special = int(cutting.num_special_tokens_to_add(False))
        self.limit = tokens + sum(self.count([prompt])) + special
        cutting.enable_truncation(self.limit)

    @classmethod
    def from_file(cls, path: Path, tokens: int, prompt: str = "") -> Tokens:
        """Read a tokenizer.json."""
        try:
            return cls.from_text(path.read_text("utf-8"), tokens, prompt)
        # The tokenizers library raises plain Exception for whatever it cannot read.
        except Exception as error:
            raise DeepJoinError(
                f"The tokenizer {path} cannot be read: {reason(error)} Copy the model folder again."
            ) from None

    @classmethod
    def from_text(cls, text: str, tokens: int, prompt: str = "") -> Tokens:
        """Make a tokenizer from the content of a tokenizer.json."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_str(text), Tokenizer.from_str(text), tokens, prompt)

    def check(self, positions: int, name: str) -> None:
        """Refuse a limit greater than the model's number of positions."""
        if self.limit > positions:
            raise DeepJoinError(
                f"A text of {self.limit} tokens is too long for the encoder '{name}', which reads "
                f"{positions} at most. Set tokens lower."
            )

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count all tokens of each text, without special tokens."""
        return [len(one) for one in self._bare(texts)]

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token numbers of each text, cut to the limit."""
        return [one.ids for one in self._cutting.encode_batch_fast(self.readable(texts))]

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token numbers of each text, without a limit and without special tokens."""
        return [one.ids for one in self._bare(texts)]

    def _bare(self, texts: Sequence[str]) -> list[Encoding]:
        clean = [_encodable(text) for text in texts]
        return self._counting.encode_batch_fast(clean, add_special_tokens=False)

    def around(self) -> tuple[list[int], list[int]]:
        """Return the special tokens before and after a text."""
        (bare,), whole = self.plain(["a"]), self._cutting.encode("a").ids
        at = next(at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        return whole[:at], whole[at + len(bare) :]

    def readable(self, texts: Sequence[str]) -> list[str]:
        """Cut texts far beyond the limit, and replace what no tokenizer accepts."""
        return [_encodable(text[: _LETTERS * self.limit]) for text in texts]


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no tokenizer accepts."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
