"""`deepjoin index`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin.cli.arguments import COLUMN_VECTORS, FORMAT, MEMORY, Argument, vectors, whole
from deepjoin.cli.output import human_size, print_json
from deepjoin.errors import DeepJoinError
from deepjoin.show.text import duration, printable

if TYPE_CHECKING:
    from deepjoin.build.segment_builder import Titles

SUMMARY = "index folders, files, databases or buckets; when repeated, only what changed"
EPILOG = """\
examples:
  deepjoin index data/
  deepjoin index 'data/**/*.csv' -o my.index --exclude 'tmp/*'
  deepjoin index postgresql://me@db/shop --include 'sales.*' -o shop.index
  deepjoin index s3://bucket/tables -o s3://bucket/index
  deepjoin index my.index               refresh an index from its own sources
  deepjoin index my.index --encoder default   add column vectors, for --method deepjoin
  deepjoin index data/ --dry-run        how many files, how long, how much disk

Indexing again keeps the options of the first time, except those given anew."""

#: Options that an index remembers, as fields of `Settings` and of `Vectors`.
_SETTINGS = (
    *("profile", "min_distinct", "deny_column", "include", "exclude", "parts", "one_table"),
    *("sample_rows", "version_query", "hash_only"),
)
_VECTORS = (
    *("encoder", "cells", "sketch", "vector_index", "metric"),
    *("pattern", "tokens", "sampling", "unit"),
)
#: Fields that are not named like their option.
_FIELDS = {"deny_column": "deny_columns", "vector_index": "index"}


#: Which tables and columns are read, and how cells compare.
_TABLES = (
    Argument(
        "--profile",
        "how cells compare: default (case, white space, Unicode forms, 7 = 7.0, ISO dates) or "
        "basic (case and outer white space only)",
        ("default", "basic"),
    ),
    Argument("--include GLOB...", "only these files"),
    Argument("--exclude GLOB...", "not these files"),
    Argument(
        "--parts",
        "whether folders of part files and hive layouts count as one table (default auto)",
        ("auto", "never"),
    ),
    Argument("--one-table GLOB...", "folders whose files are one table, recognised or not"),
    Argument(
        "--sample-rows N", "read only the first N rows of each database table (0: all)", whole(0)
    ),
    Argument(
        "--version-query SQL",
        "query whose result changes when a database table does: "
        "'SELECT max(changed_at) FROM {table}'",
    ),
    Argument(
        "--hash-only", "store salted hashes instead of values", action="store_const", const=True
    ),
    Argument("--deny-column NAME...", "never index it (pattern)"),
    Argument(
        "--min-distinct N", "leave out columns with fewer distinct values (default 5)", whole(1)
    ),
    Argument(
        "--titles CSV",
        "a file with the columns table, title, context, to use instead of file names",
    ),
)
ARGUMENTS = (
    Argument("source SOURCE...", "folder, file, 'glob' or URL"),
    Argument("-o --out INDEX", "default: SOURCE/.deepjoin"),
    *_TABLES,
    *vectors(),
    *COLUMN_VECTORS,
    MEMORY,
    Argument("--threads N", "default: one for each processor", whole(1)),
    Argument(
        "--device NAME",
        "cuda, cuda:1 or cpu: where an encoder that uses torch runs; default: a GPU if there "
        "is one",
    ),
    Argument(
        "--engine NAME", "what reads and encodes: local (default), or ray, the workers of a cluster"
    ),
    Argument(
        "--ray-address ADDRESS",
        "address of the Ray cluster; default: RAY_ADDRESS, one that runs here, or a new one",
    ),
    Argument("--rebuild", "index again even if no file has changed"),
    Argument("--dry-run", "print an estimate, write nothing"),
    FORMAT,
)


def run(options: argparse.Namespace) -> None:
    """Index the sources, or estimate what that would take."""
    from deepjoin.cli.opening import index_with_progress
    from deepjoin.settings import BuildSettings, fields_of

    source = options.source if len(options.source) > 1 else options.source[0]
    settings = _given(options, _SETTINGS)
    if options.dry_run:
        _print_forecast(source, settings, options)
        return
    titles = _titles(options.titles) if options.titles else {}
    build = BuildSettings(**fields_of(BuildSettings, options) | {"titles": titles})
    lake = index_with_progress(source, options.out, build, settings, _given(options, _VECTORS))
    if options.format == "json":
        print_json(lake.info())
    else:
        print(lake.location)


def _given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Collect the options that were given; the index keeps its own for the others."""
    values = {_FIELDS.get(name, name): getattr(options, name) for name in names}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


def _titles(path: str) -> Titles:
    """Read titles and contexts from a CSV file with the columns table, title and context."""
    from deepjoin.read.frames import file_table, read_columns

    table = file_table(Path(path))
    columns = {column.name: column.cells for column in read_columns(table)}
    if "table" not in columns or not columns.keys() & {"title", "context"}:
        raise DeepJoinError(
            f"{path} has the columns {', '.join(columns)}; titles need table, title and context."
        )
    names = columns["table"]
    nothing: list[str | None] = [None] * len(names)
    words = zip(columns.get("title", nothing), columns.get("context", nothing), strict=True)
    return {name: pair for name, pair in zip(names, words, strict=True) if name}


def _print_forecast(source: object, settings: dict[str, Any], options: argparse.Namespace) -> None:
    from deepjoin.build.forecast import forecast, forecast_encoding
    from deepjoin.settings import NO_VECTORS, Settings, Vectors
    from deepjoin.store.manifest import is_index
    from deepjoin.store.open_index import OpenIndex

    chosen = Settings(**settings)
    # Hashes cannot be encoded, so such an index has no vectors.
    vectors = Vectors(options.encoder or "none", options.cells or "default")
    vectors = NO_VECTORS if chosen.hash_only else vectors
    stored = Path(source) if isinstance(source, str) and is_index(Path(source)) else None
    if stored is None:
        expected = forecast(source, chosen, vectors)
    else:
        expected = forecast_encoding(OpenIndex(stored), vectors)
    if options.format == "json":
        print_json(vars(expected) | {"skipped": [vars(s) for s in expected.skipped]})
        return
    basis = f"{expected.tried:,} tables" if expected.tried else "usual rates"
    if stored is None:
        print(f"{expected.tables:,} tables in files of {human_size(expected.bytes)}")
        print(f"about {expected.columns:,} columns to index")
    else:
        print(f"{expected.columns:,} columns to encode; changes of its tables are not counted")
    print(f"about {duration(expected.seconds)} and {human_size(expected.disk)} of disk")
    print(f"(estimated from {basis}; nothing was written)")
    for one in expected.skipped:
        print(printable(f"not read: {one.name}: {one.reason}"))
