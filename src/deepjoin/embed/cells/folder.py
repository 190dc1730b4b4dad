"""The folder of a cell table: what it says of itself, read so that a torn file is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells.words import Recipe
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Floats = npt.NDArray[np.float32]

FORMAT = 2
#: The table that comes with the package.
SHIPPED = Path(__file__).parent / "default"
_FILES = ("table.json", "tokenizer.json", "rows.npy", "scales.npy", "phrases.txt",
          "words.txt")  # fmt: skip
#: How many lines each list has: beside the facts, for no vector depends on saying so.
_LINES = "lines"
_LISTS = ("phrases.txt", "words.txt")


@dataclass(frozen=True)
class TableFacts:
    """What a table says of itself; rows are pieces, then letter groups, then phrases."""

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
    """What a table is made of."""

    facts: TableFacts
    tokenizer: str
    rows: npt.NDArray[np.int8]
    scales: Floats
    phrases: Sequence[str]
    words: Sequence[str]


class _Torn(Exception):
    """A file is not what was written: which, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")


def read_folder(folder: Path) -> TableParts:
    """Read a table, or say which file of it is missing or damaged."""
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise DeepJoinError(
            f"No cell table in {folder}: {missing[0]} is missing. Give a folder made by "
            "'python -m deepjoin.lab.cell_table.make', a .vec or .bin file, or 'default'."
        )
    try:
        return _read(folder)
    except _Torn as torn:
        remedy = "Install deepjoin again." if folder == SHIPPED else (
            "Copy the folder again, or make it again: python -m deepjoin.lab.cell_table.make."
        )  # fmt: skip
        why = " ".join(str(torn).split())
        raise DeepJoinError(f"The cell table in {folder} is damaged: {why}. {remedy}") from None


def write_folder(folder: Path, parts: TableParts) -> None:
    """Write the files `read_folder` reads; the same table always gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    lists = dict(zip(_LISTS, (parts.phrases, parts.words), strict=True))
    said = asdict(parts.facts) | {_LINES: {name: len(lines) for name, lines in lists.items()}}
    (folder / "table.json").write_text(json.dumps(said, indent=1) + "\n")
    (folder / "tokenizer.json").write_text(parts.tokenizer, "utf-8")
    np.save(folder / "rows.npy", parts.rows)
    np.save(folder / "scales.npy", parts.scales.astype(np.float16))
    for name, lines in lists.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def read_tokenizer(text: str) -> Tokenizer:
    """Make the word-piece tokenizer, without limits on length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _read(folder: Path) -> TableParts:
    said = _said(folder / "table.json")
    lines = said.pop(_LINES, {})
    facts = _facts(said, folder / "table.json")
    phrases, words = (_lines(folder / name, lines) for name in _LISTS)
    count = facts.pieces + facts.buckets + len(phrases)
    rows = _array(folder / "rows.npy", (count, facts.dimension), np.dtype(np.int8))
    scales = _array(folder / "scales.npy", (count,), np.dtype(np.float16)).astype(np.float32)
    if not np.isfinite(scales).all():
        raise _Torn("scales.npy", "has scales that are no numbers")
    return TableParts(facts, _tokenizer(folder, facts.pieces), rows, scales, phrases, words)


def _said(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise _Torn(path.name, f"is no JSON ({error})") from None
    if not isinstance(said, dict) or not isinstance(said.get(_LINES, {}), dict):
        raise _Torn(path.name, "does not describe a table")
    if said.get("format") != FORMAT:
        raise DeepJoinError(
            f"{path} has format {said.get('format')}; this version reads {FORMAT}. "
            "Make the table again with 'python -m deepjoin.lab.cell_table.make'."
        )
    return said


def _facts(said: dict[str, Any], path: Path) -> TableFacts:
    try:
        facts = TableFacts(**said | {"recipe": Recipe(**said["recipe"])})
        counts = (facts.dimension, facts.pieces, facts.buckets)
        shares = (facts.floor, facts.tau, *vars(facts.recipe).values())
        sound = all(type(one) is int and one > 0 for one in counts) and min(shares) >= 0
    except (TypeError, KeyError) as error:
        raise _Torn(path.name, f"does not describe a table ({error})") from None
    if not sound or type(facts.name) is not str or type(facts.unknown) is not int:
        raise _Torn(path.name, "does not describe a table")
    return facts


def _lines(path: Path, counts: dict[str, Any]) -> list[str]:
    """Read a list whole; tables that do not say how long it is are taken at its last line's end."""
    text = _text(path)
    if text and not text.endswith("\n"):
        raise _Torn(path.name, "breaks off in the middle of a line")
    lines = text.split("\n")[:-1]
    if len(lines) != counts.get(path.name, len(lines)):
        raise _Torn(path.name, f"has {len(lines)} lines; table.json says {counts[path.name]}")
    return lines


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise _Torn(path.name, "is no text in UTF-8") from None


def _array(path: Path, shape: tuple[int, ...], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Read an array whose shape is known, so that a garbled header asks for no memory."""
    with path.open("rb") as file:
        found, is_turned, stored = _header(file, path.name)
        if found != shape or is_turned or stored != kind:
            raise _Torn(
                path.name,
                f"is {found} {stored}, table.json and phrases.txt say {shape} {kind}",
            )
        content = file.read()
    whole = prod(shape) * kind.itemsize
    if len(content) != whole:
        raise _Torn(path.name, f"holds {len(content)} bytes of {whole}")
    return np.frombuffer(content, kind).reshape(shape)


def _header(file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise _Torn(name, "is no array of ours")
        return np.lib.format.read_array_header_1_0(file)
    # A garbled header is parsed as Python, and fails in any way that Python can.
    except (ValueError, EOFError, SyntaxError, TypeError, TokenError) as error:
        raise _Torn(name, f"is no array ({error})") from None


def _tokenizer(folder: Path, pieces: int) -> str:
    text = _text(folder / "tokenizer.json")
    try:
        numbers = read_tokenizer(text).get_vocab().values()
    # The tokenizers library raises plain Exception for whatever it cannot read.
    except Exception as error:
        raise _Torn("tokenizer.json", f"is no tokenizer ({error})") from None
    if max(numbers, default=0) >= pieces:
        raise _Torn("tokenizer.json", f"has pieces beyond the {pieces} that table.json says")
    return text
