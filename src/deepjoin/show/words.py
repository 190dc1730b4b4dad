"""What hits say in codes, in words: how rows meet, why a key says little, what found it."""

from __future__ import annotations

from collections.abc import Iterable

#: How rows meet on the matched values, the query's side first.
CARDINALITIES = {
    "1:1": "one to one: a row of yours meets one row of theirs",
    "1:n": "one to many: a row of yours may meet several of theirs",
    "n:1": "many to one: several rows of yours may share one of theirs",
    "n:m": "many to many: several rows on both sides, so rows multiply",
}

_GENERIC = {"run": "row numbers", "year": "years", "flag": "flags"}

_WAYS = {"exact-equi": "equal cells", "cell-vectors": "similar cells"}


def cardinality_words(cardinality: str) -> str:
    """Say how rows meet.

    >>> cardinality_words("n:1")
    'many to one: several rows of yours may share one of theirs'
    """
    return CARDINALITIES.get(cardinality, "nothing matches")


def generic_words(generic: str) -> str:
    """Say why a key says little; nothing for one that says something.

    >>> generic_words("year")
    'These are years: they match nearly every column of years, whatever it is about.'
    """
    if not generic:
        return ""
    kind = _GENERIC.get(generic, generic)
    return f"These are {kind}: they match nearly every column of {kind}, whatever it is about."


def found_by_words(ways: Iterable[str]) -> str:
    """Say what led to a hit.

    >>> found_by_words(("exact-equi", "cell-vectors"))
    'equal cells, similar cells'
    """
    return ", ".join(_WAYS.get(way, way) for way in ways)
