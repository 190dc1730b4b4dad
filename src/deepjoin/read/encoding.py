"""Bytes to UTF-8: what a file is, how it is compressed, and which encoding it has."""

from __future__ import annotations

import bz2
import codecs
import gzip
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from deepjoin.errors import UnreadableTable

BLOCK = 1 << 24
#: Endings of compressed files.
COMPRESSIONS = (".gz", ".zst", ".bz2")

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_UNPACKING_ERRORS = (EOFError, OSError, zlib.error, pa.ArrowException)

#: Offset in a file, the bytes there, and what such a file is.
_MAGIC = (
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (0, b"RIFF", "a media file"),
    (0, b"OggS", "a media file"),
    (0, b"ID3", "a media file"),
    (4, b"ftyp", "a media file"),
    (0, b"%PDF", "a PDF document"),
    (0, b"%!PS", "a PostScript document"),
    (0, b"{\\rtf", "an RTF document"),
    (0, b"PK\x03\x04", "a zip archive or an Office file"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file"),
    (0, b"7z\xbc\xaf", "a 7z archive"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (8, b"DUCK", "a DuckDB database"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ARROW1", "an Arrow file"),
    (0, b"Obj\x01", "an Avro file"),
    (0, b"ORC", "an ORC file"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x80\x04\x95", "a Python pickle"),
    (0, b"\x7fELF", "an executable"),
    (0, b"\xcf\xfa\xed\xfe", "an executable"),
    (0, b"\xca\xfe\xba\xbe", "an executable"),
    (0, b"MZ", "an executable"),
    (0, b"BM", "a BMP image"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file itself with git lfs pull"),
)
#: How texts begin that are not delimited text.
_MARKUP = (
    (("<!doctype html", "<html", "<head", "<body"), "an HTML page"),
    (("<?xml", "<svg", "<rss", "<kml"), "an XML document"),
    (('{"', "[{", "{\n", "{\r", "[\n", "[\r"), "JSON"),
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Bytes that text does not contain; NUL is counted apart, because UTF-16 is full of it.
_CONTROLS = bytes(b for b in range(32) if b not in b"\0\t\n\v\f\r\x1a\x1b\x1c\x1d\x1e\x1f")

#: Code pages of other scripts; charset_normalizer tells them apart reliably, not Latin ones.
_SCRIPTS = (
    *("cp1251", "koi8_r", "cp866", "cp1253", "cp1255", "cp1256", "cp874"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
_WESTERN = "àáâãäåæçèéêëíîïñóôõöøùúûüœ"
_CENTRAL = "ąćęłńóśźżáčďéěíňřšťúůýžőűöüäăâîşţ"
#: Latin code pages in order of likelihood, each with the letters its languages use.
_LATIN = {
    "cp1252": _WESTERN,
    "mac_roman": _WESTERN,
    "cp1250": _CENTRAL,
    "cp1254": "âçğıîöşüû",
}
#: Signs that any Latin text may have beyond its letters.
_MARKS = frozenset("‘“”–—…•€£°©®™·\xa0«»½ßºªİ")


@dataclass
class TextRepairs:
    """Repairs that turned the bytes of a file into text."""

    nul_bytes: int = 0
    bad_byte: int | None = None

    def notes(self, encoding: str) -> Iterator[str]:
        """Describe the repairs to the user."""
        if self.nul_bytes:
            yield f"{self.nul_bytes:,} NUL bytes were removed."
        if self.bad_byte is not None:
            yield (
                f"Bytes that are not {encoding}, the first at {self.bad_byte:,}, are read as"
                " Windows-1252 or Latin-1."
            )


def open_bytes(path: Path, compression: str | None) -> BinaryIO:
    """Open a file for reading, decompressing it.

    The standard library's readers notice a compressed stream that ends too early.
    """
    if compression == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if compression == "bz2":
        return cast(BinaryIO, bz2.open(path, "rb"))
    if compression == "zstd":
        return cast(BinaryIO, pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
    return path.open("rb", buffering=0)


def read_some(stream: BinaryIO, size: int) -> bytes:
    """Read ``size`` bytes, or all that is left."""
    parts = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def unreadable_text(path: Path, error: BaseException) -> UnreadableTable:
    """Turn an error of the system or of decompression into one line about the file."""
    if isinstance(error, UnreadableTable):
        return error
    if isinstance(error, OSError) and error.strerror:
        return UnreadableTable(f"{path.name} cannot be read: {error.strerror}.", passing=True)
    said = " ".join(str(error).split())[:120] or type(error).__name__
    return UnreadableTable(
        f"{path.name} is packed but damaged or cut short ({said}); fetch it again."
    )


def check_file(path: Path) -> tuple[int, int]:
    """Return size and time of change of a regular, non-empty file."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable_text(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableTable(f"{path.name} is not a file.")
    if status.st_size == 0:
        raise UnreadableTable(f"{path.name} is empty.")
    return status.st_size, status.st_mtime_ns


def compression_of(path: Path) -> str | None:
    """Return the compression of a file, by its first bytes."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise unreadable_text(path, error) from error
    return next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)


def read_sample(path: Path, compression: str | None, size: int) -> bytes:
    """Return the first bytes of a file, decompressed."""
    try:
        with open_bytes(path, compression) as stream:
            return read_some(stream, size)
    except _UNPACKING_ERRORS as error:
        raise unreadable_text(path, error) from error


def foreign_kind(sample: bytes) -> str | None:
    """Name what a file is when it is not delimited text.

    >>> foreign_kind(b"%PDF-1.7 ..."), foreign_kind(b"id,name")
    ('a PDF document', None)
    """
    raw = sample[:1024].translate(None, _CONTROLS + b"\0") != sample[:1024]
    for offset, magic, kind in _MAGIC:
        # A table may well begin with "ID3" or "ORC": letters count only beside binary bytes.
        if sample.startswith(magic, offset) and (raw or not magic.isalnum()):
            return kind
    if encoding_by_zeros(sample) or any(sample.startswith(bom) for bom, _ in _BOMS):
        return None
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    # Text from old systems has stray control characters, so a few are allowed.
    if controls * 20 > len(sample) or sample.count(0) * 3 > len(sample):
        return "binary data"
    return None


def markup_kind(text: str) -> str | None:
    """Name the markup a text is written in, if it is one.

    >>> markup_kind("<!DOCTYPE html><p>Not found"), markup_kind("<5 years,7")
    ('an HTML page', None)
    """
    start = text.lstrip("\ufeff \t\r\n")[:64].lower()
    return next((kind for openings, kind in _MARKUP if start.startswith(openings)), None)


def encoding_of(sample: bytes) -> str:
    """Guess the encoding of a text from its first bytes.

    >>> encoding_of("id;Größe".encode()), encoding_of("Köln".encode("cp1252"))
    ('utf-8', 'cp1252')
    """
    for bom, name in _BOMS:
        if sample.startswith(bom):
            return name
    zeros = encoding_by_zeros(sample)
    if zeros:
        return zeros
    try:
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError as error:
        return _code_page(sample, error)
    return "utf-8"


def decode_sample(sample: bytes, encoding: str) -> str:
    """Decode the start of a file; a character cut at the end is left out."""
    if encoding.startswith("utf-8"):
        text = codecs.utf_8_decode(sample, _AS_CP1252, False)[0]
    else:
        text = codecs.getincrementaldecoder(encoding)(_AS_CP1252).decode(sample)
    return text.removeprefix("\ufeff").replace("\0", "")


def encoding_by_zeros(sample: bytes) -> str | None:
    """Recognise UTF-16 without a mark: one byte of most pairs is zero."""
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    few, many = sorted((even, odd))
    if not pairs or many * 5 < 2 * pairs or few * 20 > many:
        return None
    return "utf-16-be" if even > odd else "utf-16-le"


def _code_page(sample: bytes, error: UnicodeDecodeError) -> str:
    """Choose a code page for bytes that are not UTF-8, judging the lines that need one."""
    lines = [line for line in sample.replace(b"\r", b"\n").split(b"\n") if not line.isascii()]
    some = lines[:1000]
    good = 0
    for line in some:
        with suppress(UnicodeDecodeError):
            line.decode()
            good += 1
    # Mostly valid UTF-8 has a few damaged lines, and no code page would read the others. Of a
    # single line, what comes before the first bad byte decides.
    is_started = len(lines) == 1 and not error.object[: error.start].isascii()
    if good * 10 >= 9 * len(some) or is_started:
        return "utf-8"
    # Each line once, since repeated ones would outvote the others; the guess needs no more.
    foreign = b"\n".join(dict.fromkeys(lines))[:16384]
    return _other_script(foreign) or max(_LATIN, key=lambda name: _plausible(foreign, name))


def _other_script(sample: bytes) -> str | None:
    """Return the code page of a script other than Latin, by the letters' statistics."""
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_isolation=list(_SCRIPTS)).best()
    if best is None or best.encoding not in _SCRIPTS:
        return None
    text = sample.decode(best.encoding, "replace")
    beyond = [at for at, letter in enumerate(text) if not letter.isascii()]
    letters = [at for at in beyond if text[at].isalpha()]
    touching = sum(text[at - 1].isascii() and text[at - 1].isalpha() for at in letters if at)
    # Symbols among the letters, or letters after ASCII ones, are accents misread.
    sound = len(letters) > 3 and 8 * len(letters) >= 7 * len(beyond) and 5 * touching < len(letters)
    return best.encoding if sound else None


def _plausible(sample: bytes, encoding: str) -> int:
    """Score how much a Latin text looks like words when read in an encoding."""
    text = f" {sample.decode(encoding, 'replace')} "
    letters = _LATIN[encoding]
    score = 0
    for before, letter, after in zip(text, text[1:], text[2:], strict=False):
        if letter.isascii():
            continue
        # Its byte is a letter in other code pages, so it counts only where one is usual.
        if letter == "’":
            score += 1 if not after.isalpha() or after in "stdmrlv" else -1
        elif letter in _MARKS:
            score += 1
        else:
            shouting = letter.isupper() and before.islower()
            score += 1 if letter.lower() in letters and not shouting else -1
    return score


def utf8_blocks(
    path: Path, encoding: str, compression: str | None, repairs: TextRepairs
) -> Iterator[bytes]:
    """Yield a file as blocks of clean UTF-8: whole characters, no mark, no NUL."""
    try:
        with open_bytes(path, compression) as stream:
            blocks = iter(lambda: read_some(stream, BLOCK), b"")
            decoded = _from_utf8 if encoding.startswith("utf-8") else _from_other
            for block in decoded(blocks, encoding, repairs):
                zeros = block.count(0)
                repairs.nul_bytes += zeros
                yield block.replace(b"\0", b"") if zeros else block
    except _UNPACKING_ERRORS as error:
        raise unreadable_text(path, error) from error


def _from_utf8(blocks: Iterator[bytes], encoding: str, repairs: TextRepairs) -> Iterator[bytes]:
    position, rest = 0, b""
    for number, block in enumerate(blocks):
        if number == 0 and encoding == "utf-8-sig":
            position, block = 3, block.removeprefix(codecs.BOM_UTF8)
        # Most blocks are ASCII, and need no decoding at all.
        if not rest and block.isascii():
            position += len(block)
            yield block
            continue
        data = rest + block
        try:
            used = codecs.utf_8_decode(data, "strict", False)[1]
            clean = data[:used]
        except UnicodeDecodeError as error:
            if repairs.bad_byte is None:
                repairs.bad_byte = position + error.start
            text, used = codecs.utf_8_decode(data, _AS_CP1252, False)
            clean = text.encode()
        position, rest = position + used, data[used:]
        yield clean
    if rest:
        repairs.bad_byte = position if repairs.bad_byte is None else repairs.bad_byte
        yield rest.decode("utf-8", _AS_CP1252).encode()


def _from_other(blocks: Iterator[bytes], encoding: str, repairs: TextRepairs) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    position = 0
    for block in chain(blocks, (b"",)):
        # Kept, so that a block that fails can be decoded again with its bad bytes replaced.
        pending, _ = before = decoder.getstate()
        try:
            text = decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            if repairs.bad_byte is None:
                repairs.bad_byte = position - len(pending) + error.start
            decoder.setstate(before)
            decoder.errors = _AS_CP1252
            text = decoder.decode(block, not block)
        position += len(block)
        yield text.encode("utf-8", "replace")


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    """Read the bytes that do not fit as Windows-1252, and leave their neighbours alone."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    # Five bytes have no meaning in Windows-1252; Latin-1 has one for every byte.
    try:
        return wrong.decode("cp1252"), error.end
    except UnicodeDecodeError:
        return wrong.decode("latin-1"), error.end


_AS_CP1252 = "deepjoin-cp1252"
codecs.register_error(_AS_CP1252, _as_cp1252)
