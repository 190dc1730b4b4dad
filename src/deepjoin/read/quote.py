"""Names and cells as SQL text that means nothing but themselves."""

from __future__ import annotations


def identifier(name: str) -> str:
    """Quote a name.

    >>> print(identifier('6" nails'))
    "6"" nails"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string.

    >>> print(literal("it's"))
    'it''s'
    """
    quoted = "'" + text.replace("'", "''") + "'"
    # A NUL inside SQL text ends the statement in some clients.
    return quoted.replace("\0", "' || chr(0) || '")
