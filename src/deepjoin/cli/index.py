"""`deepjoin index`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from deepjoin.build.build import Titles
from deepjoin.cli.opening import human_size, index_with_progress
from deepjoin.errors import DeepJoinError
from deepjoin.read.frames import file_table, read_columns
from deepjoin.settings import BuildSettings, Settings, Vectors
from deepjoin.show.terminal import printable


def run(options: argparse.Namespace) -> None:
    """Index the sources, or say what that would take."""
    settings = _given(
        profile=options.profile,
        min_distinct=options.min_distinct,
        deny_columns=options.deny_column and tuple(options.deny_column),
        include=options.include and tuple(options.include),
        exclude=options.exclude and tuple(options.exclude),
        parts=options.parts,
        one_table=options.one_table and tuple(options.one_table),
        sample_rows=options.sample_rows,
        version_query=options.version_query,
        hash_only=options.hash_only,
    )
    source = options.source if len(options.source) > 1 else options.source[0]
    if options.dry_run:
        _dry_run(source, Settings(**settings), options, options.format)
        return
    vectors = _given(
        encoder=options.encoder,
        cells=options.cells,
        sketch=options.sketch,
        index=options.vector_index,
        metric=options.metric,
    )
    build = BuildSettings(
        *(options.memory, options.threads, options.device, options.engine, options.ray_address),
        titles=_titles(options.titles) if options.titles else {},
        rebuild=options.rebuild,
    )
    lake = index_with_progress(source, options.out, build, settings, vectors)
    if options.format == "json":
        print(json.dumps(lake.info(), ensure_ascii=False))
    else:
        print(lake.location)


def _given(**options: Any) -> dict[str, Any]:
    """Drop the options that were not given: the index keeps what it has for these."""
    return {name: value for name, value in options.items() if value is not None}


def _titles(path: str) -> Titles:
    """Read titles and contexts from a CSV file with the columns table, title and context."""
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


def _dry_run(source: object, settings: Settings, options: argparse.Namespace, form: str) -> None:
    from deepjoin.build.forecast import forecast

    none = "none" if settings.hash_only else None
    encoder, cells = (none or given or "default" for given in (options.encoder, options.cells))
    expected = forecast(source, settings, Vectors(encoder, cells))
    if form == "json":
        print(json.dumps(vars(expected) | {"skipped": [vars(s) for s in expected.skipped]}))
        return
    print(f"{expected.tables:,} tables in files of {human_size(expected.bytes)}")
    print(f"about {expected.columns:,} columns to index")
    print(f"about {expected.seconds:,.0f} s and {human_size(expected.disk)} of disk")
    print(f"(from {expected.tried:,} tables tried; nothing was written)")
    for one in expected.skipped:
        print(printable(f"not read: {one.name}: {one.reason}"))
