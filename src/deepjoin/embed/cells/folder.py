"""The folder of a cell table: reads its files and names the one that is missing or damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Float
from deepjoin.embed.cells.words import Recipe
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 2
#: The table that comes with the package.
SHIPPED = Path(__file__).parent / "default"
_FILES = ("table.json", "tokenizer.json", "rows.npy", "scales.npy", "phrases.txt",
          "words.txt")  # fmt: skip
_LISTS = ("phrases.txt", "words.txt")
#: Key of the line counts of the lists; not a field of `TableFacts`, because vectors and hence the
#: digest do not depend on it.
_LINES = "lines"


@dataclass(frozen=True)
class TableFacts:
    """Name, sizes and settings of a table; its rows are pieces, letter n-grams, then phrases."""

    name: str
    dimension: int
    pieces: int
    buckets: int
    unknown: int
    floor: float
    tau: float
    recipe: Recipe = field(default_factory=Recipe)
    format: int = FORMAT


class TableParts(NamedTuple):
    """The content of a table's files."""

    facts: TableFacts
    tokenizer: str
    rows: npt.NDArray[np.int8]
    scales: Float
    phrases: Sequence[str]
    words: Sequence[str]


class _Damaged(Exception):
    """Names a damaged file and the damage."""


def read_folder(folder: Path) -> TableParts:
    """Read a table, or say which of its files is missing or damaged."""
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise DeepJoinError(
            f"No cell table in {folder}: {missing[0]} is missing. Give a folder made by "
            "'python -m deepjoin.lab.cell_table.make', a .vec or .bin file, or 'default'."
        )
    try:
        return _read(folder)
    except _Damaged as damaged:
        remedy = "Install deepjoin again." if folder == SHIPPED else (
            "Copy the folder again, or make it again: python -m deepjoin.lab.cell_table.make."
        )  # fmt: skip
        why = " ".join(str(damaged).split())
        raise DeepJoinError(f"The cell table in {folder} is damaged: {why}. {remedy}") from None


def write_folder(folder: Path, parts: TableParts) -> None:
    """Write the files `read_folder` reads; the same table always gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    lists = dict(zip(_LISTS, (parts.phrases, parts.words), strict=True))
    about = asdict(parts.facts) | {_LINES: {name: len(lines) for name, lines in lists.items()}}
    (folder / "table.json").write_text(json.dumps(about, indent=1) + "\n")
    (folder / "tokenizer.json").write_text(parts.tokenizer, "utf-8")
    np.save(folder / "rows.npy", parts.rows)
    np.save(folder / "scales.npy", parts.scales.astype(np.float16))
    for name, lines in lists.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


@lru_cache(1)
def read_tokenizer(text: str) -> Tokenizer:
    """Make the word-piece tokenizer, without limits on length; it is made once."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@lru_cache(1)
def read_pieces(text: str) -> Mapping[str, int]:
    """Return the pieces of a tokenizer and their numbers; making the dictionary takes 10 ms."""
    pieces: dict[str, int] = read_tokenizer(text).get_vocab()
    return pieces


def _read(folder: Path) -> TableParts:
    facts, counts = _facts(folder / "table.json")
    lists: list[list[str]] = []
    for name in _LISTS:
        text = _text(folder / name)
        if text and not text.endswith("\n"):
            raise _Damaged(f"{name} ends in the middle of a line")
        lines = text.split("\n")[:-1]
        # Line counts are optional: some tables do not store them.
        if len(lines) != counts.get(name, len(lines)):
            raise _Damaged(f"{name} has {len(lines)} lines; table.json says {counts[name]}")
        lists.append(lines)
    phrases, words = lists
    count = facts.pieces + facts.buckets + len(phrases)
    rows = _array(folder / "rows.npy", (count, facts.dimension), np.dtype(np.int8))
    scales = _array(folder / "scales.npy", (count,), np.dtype(np.float16)).astype(np.float32)
    if not np.isfinite(scales).all():
        raise _Damaged("scales.npy has infinite scales or NaN")
    tokenizer = _text(folder / "tokenizer.json")
    try:
        numbers = read_pieces(tokenizer).values()
    # The tokenizers library raises plain Exception for whatever it cannot read.
    except Exception as error:
        raise _Damaged(f"tokenizer.json is not a tokenizer ({error})") from None
    if max(numbers, default=0) >= facts.pieces:
        raise _Damaged(f"tokenizer.json has more than the {facts.pieces} pieces of table.json")
    return TableParts(facts, tokenizer, rows, scales, phrases, words)


def _facts(path: Path) -> tuple[TableFacts, dict[str, Any]]:
    """Read table.json: the facts, and the line counts of the lists."""
    try:
        about = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"{path.name} is not JSON ({error})") from None
    invalid = f"{path.name} does not describe a table"
    if not isinstance(about, dict) or not isinstance(about.get(_LINES, {}), dict):
        raise _Damaged(invalid)
    if about.get("format") != FORMAT:
        raise DeepJoinError(
            f"{path} has format {about.get('format')}; this version reads {FORMAT}. "
            "Make the table again with 'python -m deepjoin.lab.cell_table.make'."
        )
    counts = about.pop(_LINES, {})
    try:
        facts = TableFacts(**about | {"recipe": Recipe(**about["recipe"])})
        sizes = (facts.dimension, facts.pieces, facts.buckets)
        shares = (facts.floor, facts.tau, *vars(facts.recipe).values())
        sound = all(type(one) is int and one > 0 for one in sizes) and min(shares) >= 0
    except (TypeError, KeyError) as error:
        raise _Damaged(f"{invalid} ({error})") from None
    if not sound or type(facts.name) is not str or type(facts.unknown) is not int:
        raise _Damaged(invalid)
    return facts, counts


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise _Damaged(f"{path.name} is not text in UTF-8") from None


def _array(path: Path, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """Read an array of a known shape; a garbled header then cannot make numpy allocate memory."""
    with path.open("rb") as file:
        try:
            if np.lib.format.read_magic(file) != (1, 0):
                raise _Damaged(f"{path.name} is not an array of .npy version 1.0")
            found, is_fortran, stored = np.lib.format.read_array_header_1_0(file)
        # A garbled header is parsed as Python, and fails in any way that Python can.
        except (ValueError, EOFError, SyntaxError, TypeError, TokenError) as error:
            raise _Damaged(f"{path.name} is not an array ({error})") from None
        if found != shape or is_fortran or stored != kind:
            raise _Damaged(
                f"{path.name} is {found} {stored}, table.json and phrases.txt say {shape} {kind}"
            )
        content = file.read()
    whole = prod(shape) * kind.itemsize
    if len(content) != whole:
        raise _Damaged(f"{path.name} holds {len(content)} bytes of {whole}")
    return np.frombuffer(content, kind).reshape(shape)
