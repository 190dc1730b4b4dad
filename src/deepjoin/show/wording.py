"""Messages in the words of each kind of caller: arguments, options, fields, or controls.

Messages are written once, with arguments in backticks as a Python caller types them (see
`deepjoin.errors`). Each other way to call the package rewrites them here.
"""

from __future__ import annotations

import re

#: An argument, `tau`, with a value, `join="semantic"`, or a call, `plan.reading("pairs.parquet")`.
_ARGUMENT = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)(?:=([^`]*)|\(([^`]*)\))?`")
#: Options whose names differ from those of their arguments.
_OPTIONS = {
    "out": "-o",
    "on": "-c",
    "k": "-k",
    "hit": "--with",
    "spaces": "--space",
    "index": "--ann",
    "memory_limit": "--memory",
    "plan.reading": "--matches-out",
    "left_on": "--left-column",
    "right_on": "--right-column",
}
#: What clients do outside their requests.
_COMMANDS = {"plan.reading": "deepjoin join --matches-out"}
#: A hint that agents cannot follow: no tool takes the threshold.
_LOWER_TAU = ", or a lower `tau`"
#: Labels of the page's controls, by argument and value; "" for the argument alone.
CONTROLS = {
    "join": {"": "Values match if", "any": "Equal or similar", "equi": "Equal values"}
    | {"semantic": "Similar in meaning"},
    "many": {"": "If several rows match", "expand": "keep all", "first": "keep first"}
    | {"aggregate": "summarise"},
    "aggregate": {"": "summarise"},
    "columns": {"": "Columns to add"},
    "how": {"": "Rows without a match", "left": "keep", "inner": "drop"},
    "matching": {"": "If several values are similar", "best": "best", "all": "all"}
    | {"one-to-one": "one-to-one"},
    "tau": {"": "Minimum similarity"},
    "min_joinability": {"": "Minimum joinability"},
    "method": {"": "Method"},
    "k": {"": "Hits"},
    "values": {"": "Values, one per line"},
    "target": {"": "Column to predict"},
    "about": {"": "About"},
    "name": {"": "Column name"},
}
#: Values whose labels mean little without the name of their group.
_VAGUE = ("all", "best", "left", "inner")
#: What a visitor of the page cannot run, in parentheses or after a colon.
_COMMAND = re.compile(
    r"\b(?:deepjoin (?:index|join|mcp|methods|publish|search|serve)|pip install|ray start"
    r"|GET /api|call reopen)\b"
)
_ASIDE = re.compile(rf" \([^()]*{_COMMAND.pattern}[^()]*\)")
_OPERATOR = "Ask whoever runs this service."


def in_options(text: str) -> str:
    """Rewrite the arguments in a message as options of the command line.

    >>> in_options('Leave out `tau`, or use `join="semantic"`; `rebuild=True` reads all again.')
    'Leave out --tau, or use --join semantic; --rebuild reads all again.'
    >>> in_options("Leave it out of the index with `save=False`.")
    'Leave it out of the index with --no-save.'
    """

    def option(found: re.Match[str]) -> str:
        name, value = _parts(found)
        written = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value == "False":
            return f"--no-{written.lstrip('-')}"
        return written if value in ("", "True") else f"{written} {value}"

    return _ARGUMENT.sub(option, text)


def in_fields(text: str) -> str:
    """Rewrite the arguments in a message as fields of a request.

    >>> in_fields('Use `many="first"` or a lower `tau`.')
    'Use many=first or a lower tau.'
    """

    def field(found: re.Match[str]) -> str:
        name, value = _parts(found)
        if name in _COMMANDS:
            return f"{_COMMANDS[name]} {value}"
        return f"{name}={value}" if value else name

    return _ARGUMENT.sub(field, text)


def on_page(text: str) -> str:
    """Rewrite the arguments in a message as controls of the page; commands are for its operator.

    >>> on_page('Use `many="first"`. The index is damaged: run deepjoin index again.')
    'Use “keep first”. The index is damaged. Ask whoever runs this service.'
    """

    def control(found: re.Match[str]) -> str:
        name, value = _parts(found)
        if name in _COMMANDS:
            return "the Python or Shell code"
        labels = CONTROLS.get(name, {})
        label = labels.get(value)
        if not label:
            return (value or name).replace("_", " ")
        # "all" alone does not say where to look for it.
        return f"“{label}” under “{labels['']}”" if value in _VAGUE else f"“{label}”"

    sentences = []
    for sentence in re.split(r"(?<=[.?!])\s+", _ASIDE.sub("", text)):
        if found := _COMMAND.search(sentence):
            head = sentence[: found.start()].rpartition(": ")[0]
            # "Make them with: deepjoin index …" says nothing without its command.
            is_whole = head and not head.endswith("with")
            sentence = f"{head}. {_OPERATOR}" if is_whole else _OPERATOR
        sentences.append(sentence)
    return _ARGUMENT.sub(control, " ".join(sentences))


def in_tool_arguments(text: str) -> str:
    """Rewrite the arguments in a message as arguments of the tools that agents call.

    >>> in_tool_arguments("No row has a match. Try another column, or a lower `tau`.")
    'No row has a match. Try another column.'
    """
    return in_fields(text.replace(_LOWER_TAU, ""))


def _parts(found: re.Match[str]) -> tuple[str, str]:
    return found[1], (found[2] or found[3] or "").strip("'\"")
