"""`deepjoin index`."""

from __future__ import annotations

import argparse
import json

from deepjoin.cli.opening import human_size, index_with_progress, parse_size
from deepjoin.settings import Settings


def run(options: argparse.Namespace) -> None:
    """Index the sources, or say what that would take."""
    settings = Settings(
        profile=options.profile,
        min_distinct=options.min_distinct,
        deny_columns=tuple(options.deny_column),
        include=tuple(options.include),
        exclude=tuple(options.exclude),
    )
    source = options.source if len(options.source) > 1 else options.source[0]
    if options.dry_run:
        _dry_run(source, settings, options.format)
        return
    lake = index_with_progress(source, options.out, settings, memory=parse_size(options.memory))
    if options.format == "json":
        print(json.dumps(lake.info(), ensure_ascii=False))
    else:
        print(lake.path)


def _dry_run(source: object, settings: Settings, form: str) -> None:
    from deepjoin.lake.forecast import forecast

    expected = forecast(source, settings)
    if form == "json":
        print(json.dumps(vars(expected) | {"skipped": [vars(s) for s in expected.skipped]}))
        return
    print(f"{expected.tables:,} tables in files of {human_size(expected.bytes)}")
    print(f"about {expected.columns:,} columns to index")
    print(f"about {expected.seconds:,.0f} s and {human_size(expected.disk)} of disk")
    print(f"(from {expected.tried:,} tables tried; nothing was written)")
    for one in expected.skipped:
        print(f"not read: {one.name}: {one.reason}")
