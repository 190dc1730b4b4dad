"""Make a cell table: ``python -m deepjoin.lab.cell_table.make --base MODEL -o DIR``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from deepjoin.embed.cells.folder import TableFacts
from deepjoin.embed.cells.table import StaticTable
from deepjoin.errors import DeepJoinError
from deepjoin.lab.cell_table.tune import FeatureReader, first_table, piece_outputs, principal, tune
from deepjoin.lab.cell_table.variants import (
    draw_pairs,
    phrase_rows,
    read_aliases,
    read_codes,
    read_columns,
    real_words,
)
from deepjoin.show.wording import in_options

#: Rows of hashed letter groups, and pairs in a batch.
_BUCKETS, _BATCH = 16384, 512


@dataclass(frozen=True)
class TableSettings:
    """The recipe of a cell table."""

    dimension: int = 128
    #: Batches of spellings that tune the table.
    steps: int = 400
    #: Cosines from which on two cells may match, and do match.
    floor: float = 0.55
    tau: float = 0.65
    seed: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table and write it."""
    parser = argparse.ArgumentParser(
        prog="python -m deepjoin.lab.cell_table.make", description=__doc__
    )
    parser.add_argument(
        "--base", required=True, metavar="MODEL", help="folder of a BERT-like model"
    )
    parser.add_argument("--aliases", required=True, metavar="FILE", help="surface, entity, count")
    parser.add_argument("--columns", required=True, metavar="PARQUET", help="columns with cells")
    for field in fields(TableSettings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("-o", "--out", required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    settings = TableSettings(**{one.name: vars(options)[one.name] for one in fields(TableSettings)})
    try:
        table = make(options.base, options.aliases, options.columns, settings)
    except DeepJoinError as error:
        sys.stderr.write(f"{in_options(str(error))}\n")
        return 1
    table.save(options.out)
    sys.stderr.write(f"{options.out}: {table.name}, digest {table.digest}\n")
    return 0


def make(
    base: str | Path, aliases: str | Path, columns: str | Path, settings: TableSettings
) -> StaticTable:
    """Distil the word pieces of a model, tune them on spellings, add phrases and codes."""
    path = Path(base) / "tokenizer.json"
    if not path.is_file():
        raise DeepJoinError(
            f"{base} has no tokenizer.json. Give the folder of a BERT-like model with its "
            "word-piece tokenizer, such as all-MiniLM-L6-v2."
        )
    tokenizer = path.read_text("utf-8")
    vocabulary: dict[str, int] = json.loads(tokenizer)["model"]["vocab"]
    outputs = piece_outputs(base, vocabulary["[CLS]"], vocabulary["[SEP]"])
    bounds = (settings.floor, settings.tau)
    sizes = (settings.dimension, len(outputs), _BUCKETS)
    facts = TableFacts("default", *sizes, vocabulary["[UNK]"], *bounds)
    known, cells = [*read_aliases(aliases), *read_codes()], read_columns(columns)
    words = real_words(cells, vocabulary)
    reader = FeatureReader(facts, tokenizer, words)
    frequency = reader.frequencies(dict.fromkeys(cell for column in cells for cell in column))
    pieces = principal(outputs, settings.dimension)
    is_number = np.zeros(len(pieces), bool)
    for piece, row in vocabulary.items():
        is_number[row] = piece.removeprefix("##").isdigit()
    first = first_table(pieces, is_number, frequency, settings.seed)
    batches = draw_pairs(known, cells, settings.steps, _BATCH, settings.seed)
    tuned = tune(first, batches, settings.steps, reader.features)
    rough = StaticTable.pack(facts, tokenizer, tuned, words=words)
    phrases, rows = phrase_rows(known, rough.encode)
    return StaticTable.pack(facts, tokenizer, np.concatenate([tuned, rows]), phrases, words)


if __name__ == "__main__":
    sys.exit(main())
