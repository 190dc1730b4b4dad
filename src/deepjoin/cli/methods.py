"""`deepjoin methods`."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence

from deepjoin.embed.columns.kinds import option_of
from deepjoin.search.methods import Method, all_methods
from deepjoin.show.render import aligned

#: Letters of a line; longer summaries go on below.
_WIDTH = 100
_HEAD = ("method", "joins", "needs", "what it is")


def run(options: argparse.Namespace) -> None:
    """Print the table of methods."""
    if options.format == "json":
        for name, method in all_methods().items():
            print(json.dumps(_fields(name, method), ensure_ascii=False))
        return
    rows = [(name, ", ".join(m.joins), _needs(m), m.summary) for name, m in all_methods().items()]
    print(aligned([_HEAD, *_wrapped(rows)]))


def _fields(name: str, method: Method) -> dict[str, object]:
    fields = {"method": name, "joins": method.joins, "needs": method.needs, "also": method.also}
    option = option_of(method.kind) if method.kind else None
    return fields | {"option": option, "summary": method.summary}


def _needs(method: Method) -> str:
    """Name what of an index it reads; column vectors of another kind by how they are made."""
    return option_of(method.kind) if method.kind else ", ".join(method.needs)


def _wrapped(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Break the last cell of rows into lines, so that all fits."""
    columns = list(zip(*rows, strict=True))[:-1]
    room = _WIDTH - sum(max(map(len, column)) + 2 for column in columns)
    for *cells, summary in rows:
        for part in textwrap.wrap(summary, room):
            yield (*cells, part)
            cells = [""] * len(cells)
