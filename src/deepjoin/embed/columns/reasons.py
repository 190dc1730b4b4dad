"""Errors of other libraries as one short line within ours."""

from __future__ import annotations

_WIDTH = 160
#: A first sentence shorter than this says too little by itself.
_LEAST = 40


def reason(error: Exception) -> str:
    """Write an error as one line that is a sentence, a long one up to a sentence's or word's end.

    >>> reason(ValueError("No  such model."))
    'No such model.'
    >>> reason(ValueError("word " * 40))[-11:]
    'word word …'
    """
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if len(text) <= _WIDTH:
        return f"{text}."
    head = text[: _WIDTH + 1]
    end = head.rfind(". ")
    if end >= _LEAST:
        return head[: end + 1]
    words = head.rpartition(" ")[0] or head[:_WIDTH]
    return f"{words.rstrip(' ,;:.')} …"
