"""Messages of the library in the words of clients, who have fields and no command line."""

from __future__ import annotations

import re

# Only options that are also fields of a request or arguments of a tool: other options belong to
# commands, such as deepjoin index, which whoever runs the service has to type.
_OPTION = re.compile(r"--(many|join|matching|how|tau)\b(?:[ =]([a-z-]+))?")
_NEAR_MISSES = re.compile(r": --near-misses \d+ shows what is near")


def for_clients(text: str) -> str:
    """Replace options of the command line by fields.

    >>> for_clients("Use --many first or --many aggregate.")
    'Use many=first or many=aggregate.'
    >>> for_clients("Try another column, or a lower --tau: --near-misses 10 shows what is near.")
    'Try another column, or a lower tau.'
    """

    def field(option: re.Match[str]) -> str:
        name, value = option.groups()
        return f"{name}={value}" if value else str(name)

    return _OPTION.sub(field, _NEAR_MISSES.sub("", text))
