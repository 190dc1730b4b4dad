"""From a column corpus to one segment: many columns at a time, words in a second pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from deepjoin.build.build import Means
from deepjoin.build.reader import hidden_item
from deepjoin.normalise import private
from deepjoin.read.corpus import CorpusSource
from deepjoin.read.source import digest_of
from deepjoin.settings import Settings
from deepjoin.store.catalog import CatalogWriter, TableEntry
from deepjoin.store.ledger import Entry, Key, write_ledger
from deepjoin.store.report import BuildReport
from deepjoin.store.values.builder import Kept, ValueIndexBuilder
from deepjoin.store.values.profile import ColumnProfiles

_WORDS = ("column_id", "table_id", "title", "column_name", "context")


def build_corpus(
    corpus: CorpusSource, key: Key, settings: Settings, out: Path, scratch: Path, means: Means
) -> BuildReport:
    """Index every column of a corpus, which is one item.

    Whoever made the corpus chose its columns as keys: none is taken for free text.
    """
    out.mkdir(parents=True)
    (item,) = corpus.items()
    item = hidden_item(item, private.key(settings))
    entry = Entry(key, item.stamp, digest_of(item))
    columns = 0
    with ValueIndexBuilder(scratch, settings, means.memory, means.threads) as builder:
        for block in corpus.blocks():
            builder.add_lists(columns, block["cells"])
            columns += block.num_rows
            means.progress(columns, corpus.count, corpus.folder.name)

        def choose(profiles: ColumnProfiles) -> Kept:
            return profiles.distinct >= settings.min_distinct

        profiles, kept = builder.finish(out, columns, choose)
    report = BuildReport()
    settings = replace(settings, max_mean_length=settings.max_cell)
    for column in np.flatnonzero(~kept).tolist():
        report.left_out[profiles.why_left_out(column, settings).split(" (")[0]] += 1
    with CatalogWriter(out) as catalog:
        report.tables = _write_catalog(catalog, corpus, kept)
        catalog.finish(profiles.types[kept], profiles.generic[kept], profiles.present[kept])
    write_ledger(out, [entry])
    return report.with_columns(profiles, kept).saved(out)


def _write_catalog(catalog: CatalogWriter, corpus: CorpusSource, kept: Kept) -> int:
    """Write the words around the columns in a second pass, so that they need not be held."""
    numbers: dict[str, int] = {}
    start = 0
    for block in corpus.blocks(names=_WORDS):
        tables = []
        names, titles, contexts = (block[n].to_pylist() for n in ("table_id", "title", "context"))
        for name, title, context in zip(names, titles, contexts, strict=True):
            if name not in numbers:
                numbers[name] = len(numbers)
                tables.append(TableEntry(name, title, context))
        catalog.add_tables(tables, np.zeros(len(tables)))
        here = kept[start : start + block.num_rows]
        mask = pa.array(here)
        catalog.add_columns(
            block["column_id"].filter(mask),
            block["column_name"].filter(mask),
            np.array([numbers[name] for name in names], np.int32)[here],
        )
        start += block.num_rows
    return len(numbers)
