"""Packed numbers read as the arrays they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import packing
from deepjoin.arrays import Offsets, Strings, StringsWriter, load_offsets, shorten
from deepjoin.packing import PackedArray, is_packed, load_numbers, pack

NUMBERS = st.integers(0, (1 << 32) - 1) | st.integers(0, 3) | st.integers(70_000, 70_300)


def packed(folder: Path, numbers: list[int], more: int = 0) -> PackedArray:
    path = folder / "a.npy"
    np.save(path, np.array(numbers, np.uint32))
    pack(path, more)
    found = load_numbers(path, more)
    assert isinstance(found, PackedArray)
    assert is_packed(path)
    return found


@given(numbers=st.lists(NUMBERS, max_size=300), more=st.integers(0, 1), chosen=st.data())
def test_packed_numbers_read_as_they_were(
    tmp_path: Path, numbers: list[int], more: int, chosen: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_BLOCKS", 2)
        patch.setattr(packing, "_AT_ONCE", 100)
        array, plain = packed(tmp_path, numbers, more), np.array(numbers, np.uint32)
        assert len(array) == len(plain)
        assert np.array_equal(array, plain)
        assert array[:].dtype == np.uint32
        start, stop = chosen.draw(st.tuples(st.integers(-9, 310), st.integers(-9, 310)))
        assert np.array_equal(array[start:stop], plain[start:stop])
        assert np.array_equal(array[start:stop:3], plain[start:stop:3])
    if numbers:
        places = np.array(chosen.draw(st.lists(st.integers(-len(plain), len(plain) - 1))), int)
        assert np.array_equal(array[places], plain[places])
        assert np.array_equal(array[plain > 3], plain[plain > 3])
        assert array[-1] == plain[-1]
        array.prefetch(places % len(plain))


@given(numbers=st.lists(NUMBERS, max_size=300), wanted=st.lists(NUMBERS))
def test_ascending_numbers_are_searched(
    tmp_path: Path, numbers: list[int], wanted: list[int]
) -> None:
    plain = np.sort(np.array(numbers, np.uint32))
    array = packed(tmp_path, plain.tolist())
    asked = np.array([*wanted, *numbers[:20]], np.uint32)
    for side in ("left", "right"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PackedArray, "__array__", None)  # reads all
            found = np.searchsorted(array, asked, side)
            assert np.take(array, found[found < len(plain)]).tolist() == [
                plain[at] for at in found.tolist() if at < len(plain)
            ]
        assert np.array_equal(found, plain.searchsorted(asked, side))


@given(
    steps=st.lists(st.integers(0, 40) | st.integers(0, 1000), max_size=400),
    times=st.sampled_from([1, 90]),  # so that they pass 16 bits
    far=st.booleans(),
    chosen=st.data(),
)
def test_offsets_read_as_they_were(
    tmp_path: Path, steps: list[int], times: int, far: bool, chosen: st.DataObject
) -> None:
    plain = np.append(0, np.cumsum([*steps * times, *[70_000] * far])).astype(np.int64)
    path = tmp_path / "x.offsets.npy"
    Offsets.bases_of(path).unlink(missing_ok=True)
    np.save(path, plain)
    shorten(path)
    offsets = load_offsets(path)
    assert isinstance(offsets, Offsets) == (plain[-1] > 65_535 and not far)
    assert np.array_equal(offsets, plain)
    places = np.array(chosen.draw(st.lists(st.integers(-len(plain), len(plain) - 1))), int)
    assert np.array_equal(offsets[places], plain[places])
    assert np.array_equal(np.diff(offsets), np.diff(plain))
    assert (offsets[0], offsets[-1], len(offsets)) == (0, plain[-1], len(plain))
    for at in places.tolist():
        assert offsets[at] == plain[at]
    wanted = np.append(plain[places], chosen.draw(st.lists(st.integers(-9, 1 << 20))))
    for side in ("left", "right"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Offsets, "__array__", None)  # reads all
            found = offsets.searchsorted(wanted, side)
            assert offsets.searchsorted(5, side) == plain.searchsorted(5, side)
        assert np.array_equal(found, plain.searchsorted(wanted, side))


def test_strings_with_short_offsets_are_read(tmp_path: Path) -> None:
    texts = [f"{number} {'x' * (number % 60)}" for number in range(5000)]
    with StringsWriter(tmp_path, "s") as writer:
        writer.append(texts)
    assert (tmp_path / "s.offsets.bases.npy").exists()
    strings = Strings.load(tmp_path, "s")
    assert strings.arrow().to_pylist() == texts == list(strings)
    for numbers in (np.array([3, 4999, 0]), np.arange(0, 5000, 7)):
        assert strings.take(numbers) == [texts[number] for number in numbers.tolist()]


def test_numbers_of_one_block_cost_their_range(tmp_path: Path) -> None:
    packed(tmp_path, [1 << 31] * 6400)
    assert (tmp_path / "a.npy").stat().st_size < 128 + 8 * (100 + 10)
    packed(tmp_path, [*range(1000, 1064)] * 100)
    assert (tmp_path / "a.npy").stat().st_size < 128 + 8 * (100 + 600 + 10)


def test_wide_numbers_stay_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 1 << 40]))
    pack(tmp_path / "a.npy")
    assert np.array_equal(load_numbers(tmp_path / "a.npy"), [1, 1 << 40])


def test_a_number_that_is_not_there_is_refused(tmp_path: Path) -> None:
    array = packed(tmp_path, [5, 6])
    with pytest.raises(IndexError, match="2 of 2 numbers"):
        array[2]


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_other_files_are_refused(tmp_path: Path, cut: int) -> None:
    packed(tmp_path, [5, 6, 9])
    words = np.load(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", words[:cut] if cut else words + np.uint64(1))
    with pytest.raises(ValueError, match="not an array of packed numbers"):
        load_numbers(tmp_path / "a.npy")


@given(
    numbers=st.lists(NUMBERS, min_size=1, max_size=200), at=st.integers(0), bit=st.integers(0, 63)
)
def test_a_bit_that_flips_is_noticed_or_changes_a_number(
    tmp_path: Path, numbers: list[int], at: int, bit: int
) -> None:
    packed(tmp_path, numbers)
    words = np.load(tmp_path / "a.npy")
    words[at % len(words)] ^= np.uint64(1 << bit)
    np.save(tmp_path / "a.npy", words)
    try:
        found = load_numbers(tmp_path / "a.npy")
    except ValueError:
        return
    assert not is_packed(tmp_path / "a.npy") or np.asarray(found).tolist() != numbers
