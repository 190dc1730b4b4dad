"""`deepjoin relations`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import SOURCE, Argument, share
from deepjoin.cli.output import say
from deepjoin.files import written_aside
from deepjoin.show.text import Screen, aligned, count, printable

if TYPE_CHECKING:
    from deepjoin.relating.relations import Relations

SUMMARY = "find keys and foreign keys, each with its probability"
EPILOG = """\
examples:
  deepjoin relations shop.sqlite                    indexed on first use
  deepjoin relations data/ --format mermaid -o schema.mmd
  deepjoin relations shop.sqlite --least 0.8 --format sql
  deepjoin relations shop.sqlite --format svg -o shop.svg   a diagram
  deepjoin relations postgresql://host/shop --check   exits 1 if rows refer to nothing

A probability is the chance that a person who knows both tables would make the join. Constraints
that a database declares are shown and never counted."""

_TEXTS = ("sql", "dbt", "dbml", "mermaid", "svg")


#: Relations whose columns are aligned with each other.
_LINES = 1000


ARGUMENTS = (
    SOURCE,
    Argument("--least P", "least probability of what is listed", share, 0.5),
    Argument("--across", "relations between different sources as well"),
    Argument(
        "--check", "read what changed, list rows that refer to nothing, and exit 1 if there are any"
    ),
    Argument("--format", "output format", ("table", "json", *_TEXTS), "table"),
    Argument("-o --out FILE", "write to a file, not to stdout"),
)


def run(options: argparse.Namespace) -> int:
    """Find the relations of a lake and print them as asked."""
    from deepjoin.cli.opening import open_or_index_source

    lake = open_or_index_source(options.index)
    if options.check:
        # An index may be older than the rows that are to be checked.
        lake.refresh()
    found = lake.relations(least=options.least, across=options.across)
    broken = found.check()
    text: Iterable[str]
    if options.format == "json":
        whole = {"index": str(lake.location)} | found.to_dict()
        text = [json.dumps(whole, ensure_ascii=False) + "\n"]
    elif options.format == "table":
        text = _table(found, options)
    else:
        text = [getattr(found, f"to_{options.format}")()]
    if options.out:
        with written_aside(Path(options.out)) as aside, aside.open("w", encoding="utf-8") as file:
            file.writelines(text)
        say(f"{len(found):,} relations and {len(found.keys):,} keys in {options.out}")
    else:
        sys.stdout.writelines(text)
    for note in found.notes:
        say(note)
    if options.format == "table":
        relations, keys = count(len(found), "relation"), count(len(found.keys), "key")
        say(f"{relations}, {keys} in {found.seconds:.1f} s")
        for one in found.undetected:
            ends = (
                f"{one.child_table}.{'+'.join(one.child_columns)} -> "
                f"{one.parent_table}.{'+'.join(one.parent_columns)}"
            )
            say(f"Declared, not found in the data: {printable(ends)}")
    if not options.check:
        return 0
    for relation in broken:
        some = ", ".join(relation.orphan_values)
        say(
            printable(
                f"{relation.orphans:,} rows of {relation.child_table} refer to nothing: "
                f"{'+'.join(relation.child_columns)} is not in {relation.parent}"
                + (f" ({some})" if some else "")
            )
        )
    return 1 if broken else 0


def _table(found: Relations, options: argparse.Namespace) -> Iterator[str]:
    """List relations, with the evidence that is most telling, then the keys."""
    screen = Screen.of(sys.stdout) if not options.out else Screen.plain(sys.stdout)
    if not found and not found.keys:
        yield f"No relations and no keys with a probability of at least {found.least:g}.\n"
        return
    # Some at a time, each with a heading: a lake may have hundreds of thousands.
    for start in range(0, len(found), _LINES):
        rows = [["chance", "child", "parent", "rows", "orphans", "declared", "evidence"]]
        for one in found[start : start + _LINES]:
            reasons = [one.evidence[w] for w in ("person", "name", "values") if w in one.evidence]
            orphans = f"{one.orphans:,}" if one.orphans else ""
            declared = {True: "yes", False: "no", None: ""}[one.declared]
            cells = one.child, one.parent, one.cardinality, orphans, declared, "; ".join(reasons)
            rows.append([f"{one.probability:.2f}", *map(printable, cells)])
        yield aligned(rows, screen) + "\n"
    if found.keys:
        yield "\nkeys\n"
    for key in found.keys:
        columns = printable("+".join(key.columns))
        yield f"{key.probability:.2f}  {printable(key.table)}.{columns}\n"
