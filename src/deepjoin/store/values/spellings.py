"""How a cell is spelled, given its canonical value: most differ in the case of letters alone.

Such a spelling is stored as the places of the bytes that differ from the value's in the bit that
distinguishes cases in ASCII and in half of Latin and Cyrillic: bits after a byte that no text
begins with. Many cells share these, and each is stored once; every other spelling is a text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Int, Strings, ranges

Bytes = npt.NDArray[np.uint8]

#: In front of places: no text in UTF-8 has this byte.
_PLACES = 0xFF
#: The bit in which upper and lower case differ.
_CASE = 0x20


def load_spellings(folder: Path) -> pa.LargeBinaryArray:
    """Map the stored spellings of a segment, as `respelled` takes them."""
    strings = Strings.load(folder, "spellings").arrow()
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(strings), strings.buffers())


def spelled_as(value: str, stored: bytes) -> str:
    r"""Spell a value.

    >>> spelled_as("new york", b"\xff\x11"), spelled_as("0.5", b".50")
    ('New York', '.50')
    """
    if stored[:1] != b"\xff":
        return str(stored, "utf-8")
    text = bytearray(value.encode())
    places = int.from_bytes(stored[1:], "little")
    while places:
        text[(places & -places).bit_length() - 1] ^= _CASE
        places &= places - 1
    return text.decode()


def stored_spellings(values: pa.Array, spellings: pa.Array) -> pa.LargeBinaryArray:
    r"""Turn spellings into what is stored, each given its value.

    >>> stored = stored_spellings(pa.array(["new york", "0.5"]), pa.array(["New York", ".50"]))
    >>> stored.to_pylist()
    [b'\xff\x11', b'.50']
    """
    starts, sizes, theirs = _flat(values)
    here, lengths, mine = _flat(spellings)
    alike = np.flatnonzero(sizes == lengths)
    differ = theirs[ranges(starts[alike], sizes[alike])] ^ mine[ranges(here[alike], sizes[alike])]
    owners = np.repeat(np.arange(len(alike)), sizes[alike])
    other = np.zeros(len(alike), bool)
    other[owners[(differ & ~np.uint8(_CASE)) != 0]] = True
    # The bits of each spelling begin at a byte.
    widths = -(-sizes[alike] // 8)
    firsts = np.cumsum(widths) - widths
    bits = np.zeros(8 * int(widths.sum()), bool)
    bits[ranges(8 * firsts, sizes[alike])] = differ != 0
    packed = np.packbits(bits, bitorder="little")
    # Zeros at the end are left out.
    used = np.flatnonzero(packed)
    last = firsts.copy()
    last[np.repeat(np.arange(len(alike)), widths)[used]] = used + 1
    widths = last - firsts
    chosen = np.flatnonzero(~other)
    folded = np.zeros(len(sizes), bool)
    folded[alike[chosen]] = True
    kept = np.where(folded, 0, lengths)
    kept[alike[chosen]] = 1 + widths[chosen]
    offsets = np.append(0, np.cumsum(kept))
    data = np.empty(offsets[-1], np.uint8)
    texts = np.flatnonzero(~folded)
    data[ranges(offsets[texts], kept[texts])] = mine[ranges(here[texts], lengths[texts])]
    heads = offsets[alike[chosen]]
    data[heads] = _PLACES
    data[ranges(heads + 1, widths[chosen])] = packed[ranges(firsts[chosen], widths[chosen])]
    return _binary(offsets, data)


def respelled(values: pa.Array, stored: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """Spell values as they were; a null stands for the value itself."""
    starts, sizes, theirs = _flat(values)
    here, lengths, mine = _flat(stored)
    as_text = np.array(stored.is_valid())
    some = np.flatnonzero(lengths > 0)
    as_text[some] = mine[here[some]] != _PLACES
    places = np.flatnonzero((lengths > 0) & ~as_text)
    kept = np.where(as_text, lengths, sizes)
    offsets = np.append(0, np.cumsum(kept))
    data = np.empty(offsets[-1], np.uint8)
    texts, others = np.flatnonzero(as_text), np.flatnonzero(~as_text)
    data[ranges(offsets[texts], kept[texts])] = mine[ranges(here[texts], kept[texts])]
    data[ranges(offsets[others], kept[others])] = theirs[ranges(starts[others], kept[others])]
    widths = lengths[places] - 1
    bits = np.unpackbits(mine[ranges(here[places] + 1, widths)], bitorder="little")
    at = np.flatnonzero(bits)
    owners = np.repeat(np.arange(len(places)), 8 * widths)[at]
    before = 8 * (np.cumsum(widths) - widths)
    at -= before[owners]
    if (at >= sizes[places][owners]).any():
        raise ValueError("a spelling is longer than its value")
    data[offsets[places][owners] + at] ^= _CASE
    binary = _binary(offsets, data)
    return pa.LargeStringArray.from_buffers(len(binary), *binary.buffers()[1:])


def _flat(texts: pa.Array) -> tuple[Int, Int, Bytes]:
    """Return where texts start, how many bytes each has, 0 for a null, and all bytes."""
    whole = pc.fill_null(texts.cast(pa.large_binary()), b"")
    _, offsets, data = whole.buffers()
    if len(whole) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    every = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bounds[:-1], np.diff(bounds), every


def _binary(offsets: Int, data: Bytes) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
