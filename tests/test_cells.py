"""Cell encoders: vectors by look-up, the same wherever a value stands, and how they learn."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.embed.cells import DEFAULT_TABLE, StaticTable, load_cell_encoder, match_chance
from deepjoin.embed.cells.folder import TableFacts
from deepjoin.embed.cells.tokens import character_counts, plain_word, split_words
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.cell_table.make import FeatureReader, main, tune
from deepjoin.lab.cell_table.variants import (
    Alias,
    draw_pairs,
    mistype,
    phrase_rows,
    read_aliases,
    read_codes,
    read_columns,
    variant,
)
from tests.support.definitions import chance_joinability, shared

DEFAULT = StaticTable.load(DEFAULT_TABLE)
TOKENIZER = (DEFAULT_TABLE / "tokenizer.json").read_text("utf-8")
PIECES = 30522


def cosine(one: str, other: str) -> float:
    vectors = DEFAULT.encode([one, other])
    return float(vectors[0] @ vectors[1])


def small_table(phrases: list[str] | None = None, dimension: int = 8) -> StaticTable:
    phrases = phrases or []
    facts = TableFacts("small", dimension, PIECES, 64, 100, 0.5, 0.7)
    rows = np.random.default_rng(1).standard_normal((PIECES + 64 + len(phrases), dimension))
    return StaticTable.pack(facts, TOKENIZER, rows.astype(np.float32), phrases, ["zzyzxia"])


SMALL = small_table(["qb"])
READER = FeatureReader(SMALL.facts, TOKENIZER, ["zzyzxia"])
WORDS = ["new york", "qb", " QB ", "--", "", "germny (x, y)", "zzyzia", "o'neill-smith, j."]
VALUES = st.lists(st.text(max_size=20) | st.sampled_from(WORDS))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn"]) | st.sampled_from("a1 é"))))
def test_characters_are_counted_one_by_one(values: list[str]) -> None:
    whole = pa.array(["cut off", *values], pa.string())[1:]
    counted = zip(*(found.tolist() for found in character_counts(whole)), strict=True)
    for value, (all_, letters, digits, spaces) in zip(values, counted, strict=True):
        assert all_ == len(value)
        assert digits == sum(value.count(digit) for digit in "0123456789")
        assert spaces == sum(value.count(space) for space in "\t\n\f\r ")
        # The pattern's tables of letters may be of another version of Unicode than Python's.
        if value.isascii():
            assert letters == sum(map(str.isalpha, value))


@given(VALUES)
def test_rows_are_of_unit_length_or_zero(values: list[str]) -> None:
    lengths = np.linalg.norm(SMALL.encode(values), axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-4) | (lengths == 0))


@pytest.mark.slow
@given(VALUES, st.text(max_size=20))
def test_a_vector_does_not_depend_on_the_other_values(values: list[str], value: str) -> None:
    together = SMALL.encode([*values, value, *values])[len(values)]
    assert np.array_equal(together, SMALL.encode([value])[0])


@pytest.mark.slow
@given(VALUES)
def test_encode_equals_the_sum_of_rows_one_by_one(values: list[str]) -> None:
    values = [v.strip().lower() for v in values if not re.search("[0-9]", plain_word(v))]
    values = [v for v in values if v.replace(".", "") != "qb"]
    table = SMALL._rows.astype(np.float32) * SMALL._scales[:, None]
    expected = READER.features(values, lambda ids: table[ids]).toarray() @ table[: PIECES + 64]
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = np.divide(expected, lengths, out=np.zeros_like(expected), where=lengths > 0)
    assert np.allclose(SMALL.encode(values), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1234567", "1234568"), ("2020-01-05", "2020-01-06"), ("a123", "a124"), ("-5", "5"),
     ("sku-10023", "sku-10024"), ("7.5", "75"), ("flight 12", "flight 13"), ("1v2", "21v2")],
)  # fmt: skip
def test_cells_with_other_numbers_do_not_match(one: str, other: str) -> None:
    first, second = DEFAULT.encode([one, other])
    assert first @ second < DEFAULT.floor


@pytest.mark.parametrize(
    ("one", "other"),
    [("(555) 123-4567", "555.123.4567"), ("Olympics 2008", "2008 olympics"), ("03/04", "03-04")],
)
def test_cells_with_equal_numbers_match_however_they_are_set(one: str, other: str) -> None:
    first, second = DEFAULT.encode([one, other])
    assert first @ second > 0.99


def test_arrow_arrays_nulls_and_chunks_are_taken() -> None:
    values = ["new york", None, "--"]
    plain = DEFAULT.encode(values)
    assert np.array_equal(plain, DEFAULT.encode(pa.array(values)))
    assert np.array_equal(plain, DEFAULT.encode(pa.chunked_array([values[:1], values[1:]])))
    assert not plain[1:].any() and plain[0].any()
    assert DEFAULT.encode([]).shape == (0, DEFAULT.dimension)


def test_a_phrase_has_its_own_row_whatever_its_case() -> None:
    expected = SMALL._rows[-1] / np.linalg.norm(SMALL._rows[-1].astype(np.float32))
    assert np.allclose(SMALL.encode(["qb", " QB "]), expected, atol=1e-5)
    assert not np.allclose(SMALL.encode(["qb x"]), expected, atol=1e-2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("usa", "united states"),
        ("U.S.A.", "united states"),
        ("uk", "united kingdom"),
        ("MA", "Massachusetts"),
        ("mf", "midfielder"),
        ("j. smith", "john smith"),
        ("greensboro", "greensboro, north carolina"),
        ("são paulo", "Sao Paulo"),
    ],
)
def test_other_spellings_reach_the_floor(one: str, other: str) -> None:
    assert cosine(one, other) >= DEFAULT.floor


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("route 12", "route 13"),
        ("france", "germany"),
        ("1992", "1993"),
        ("red", "blue"),
        ("apple", "ibm"),
    ],
)
def test_other_things_stay_below_the_floor(one: str, other: str) -> None:
    assert cosine(one, other) < DEFAULT.floor


def test_saving_and_loading_keeps_every_bit(tmp_path: Path) -> None:
    SMALL.save(tmp_path / "a")
    again = StaticTable.load(tmp_path / "a")
    assert again.digest == SMALL.digest and again.facts == SMALL.facts
    assert np.array_equal(again.encode(["new york", "qb"]), SMALL.encode(["new york", "qb"]))
    assert small_table(["qc"]).digest != SMALL.digest


def test_the_shipped_table_is_small_and_says_what_it_is() -> None:
    encoder = load_cell_encoder()
    assert encoder.digest == DEFAULT.digest and 0 < encoder.floor <= encoder.tau < 1
    assert sum(file.stat().st_size for file in DEFAULT_TABLE.iterdir()) < 12_000_000
    card = (DEFAULT_TABLE / "README.md").read_text("utf-8")
    assert DEFAULT.digest in card and "CC BY-SA" in card


@given(st.lists(st.text(max_size=20)))
def test_words_are_what_split_gives(values: list[str]) -> None:
    starts, numbers, words = split_words(pa.array(values, pa.string()))
    for at, value in enumerate(values):
        found = [words[n] for n in numbers[starts[at] : starts[at + 1]]]
        assert [w for w in found if w] == value.split() or not value.isascii()


def test_variants_change_little_and_numbers_not_at_all() -> None:
    chance = random.Random(0)
    cells = ["john smith", "paris, france", "go (game)", "route 12", "x"]
    for cell in cells * 40:
        assert variant(cell, chance, "other cell").strip()
    assert {mistype("1992", chance) for _ in range(9)} == {"1992"}
    assert all(abs(len(mistype("berlin", chance)) - 6) <= 1 for _ in range(50))


def aliases_file(folder: Path) -> Path:
    rows = {
        "surface": ["USA", "U.S. of A.", "MF", "Deutschland", "United States"],
        "entity": ["United States", "United States", "Midfielder", "Germany", "United States"],
        "count": [9, 1, 3, 2, 4],
        "column_name": ["Country", "Country", None, "Country", "Country"],
    }
    pq.write_table(pa.table(rows), folder / "aliases.parquet")
    return folder / "aliases.parquet"


def columns_file(folder: Path) -> Path:
    cells = [["Red", "Green", "Blue", "Black", "White", None], ["a", "b"]] * 3
    pq.write_table(pa.table({"cells": cells}), folder / "columns.parquet")
    return folder / "columns.parquet"


def test_what_is_learned_from_is_read_and_drawn_alike_each_time(tmp_path: Path) -> None:
    aliases = read_aliases(aliases_file(tmp_path))
    assert [alias.surface for alias in aliases] == ["usa", "u.s. of a.", "mf", "deutschland"]
    columns = read_columns(columns_file(tmp_path))
    assert columns == [["red", "green", "blue", "black", "white"]] * 3
    first, again = (list(draw_pairs(aliases, columns, 3, 16, 5)) for _ in range(2))
    assert first == again and all(len(batch) == 16 for batch in first)


def test_codes_name_countries_and_states() -> None:
    known = {(alias.surface, alias.entity) for alias in read_codes()}
    assert {("usa", "united states"), ("ma", "massachusetts"), ("sui", "switzerland")} <= known


def test_an_aliases_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = columns_file(tmp_path)
    with pytest.raises(DeepJoinError, match="has no column 'surface'. An aliases file needs"):
        read_aliases(path)


@pytest.mark.slow
def test_tuning_brings_spellings_together_and_leaves_the_rest() -> None:
    table = small_table(dimension=16)
    reader = FeatureReader(table.facts, TOKENIZER, [])
    before = table._rows.astype(np.float32) * table._scales[:, None]
    aliases = [Alias("usa", "united states", 1, ""), Alias("mf", "midfielder", 1, ""),
               Alias("qb", "quarterback", 1, ""), Alias("uk", "united kingdom", 1, "")]  # fmt: skip
    batches = draw_pairs(aliases, [["red", "green", "blue", "black", "white"]], 40, 16, 0)
    after = tune(before, batches, 40, reader.features)

    def loss(rows: np.ndarray) -> float:
        left, right = (
            reader.features([getattr(a, s) for a in aliases], lambda ids: rows[ids]) @ rows
            for s in ("surface", "entity")
        )
        left, right = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (left, right))
        return float((left * right).sum())

    assert loss(after) > loss(before) + 0.2
    seen = reader.features(["zebra"], lambda ids: before[ids]).indices[:1]
    assert np.array_equal(after[seen], before[seen])


def test_phrases_lie_between_themselves_and_what_they_name() -> None:
    aliases = [Alias("qb", "quarterback", 4, ""), Alias("12", "class 12", 9, "")]
    phrases, rows = phrase_rows(aliases, SMALL.encode)
    assert phrases == ["qb"]
    assert rows[0] @ SMALL.encode(["quarterback"])[0] > 0.7


def test_make_says_what_the_base_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--aliases", str(aliases_file(tmp_path)), "--columns", str(columns_file(tmp_path))]
    assert main(["--base", str(tmp_path), *files, "-o", str(tmp_path / "out")]) == 1
    assert "has no tokenizer.json" in capsys.readouterr().err


def test_distilling_names_the_extra_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepjoin.lab.cell_table.make import piece_outputs

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'deepjoin\[train\]'"):
        piece_outputs(tmp_path, 101, 102)


def test_chances_rise_from_nothing_to_certainty() -> None:
    cosines = np.linspace(-1, 1, 201).astype(np.float32)
    chances = match_chance(cosines, 0.55, 0.65)
    assert np.all(np.diff(chances) >= 0) and chances[-1] > 0.99
    assert not chances[cosines < 0.549].any()


def test_several_cells_share_what_one_target_cell_gives() -> None:
    chances = np.array([[0.9, 0.1], [1.0, 0.0], [0.0, 0.5], [0.6, 0.2]], np.float32)
    assert np.allclose(shared(chances), [0.45, 1.0, 0.5, 0.2])


@given(st.lists(st.text("abc ", max_size=4)), st.lists(st.text("abc ", max_size=4)))
def test_the_soft_score_lies_between_the_equal_share_and_one(
    query: list[str], target: list[str]
) -> None:
    mine, theirs = ({c.strip() for c in cells if c.strip()} for cells in (query, target))
    score = chance_joinability(query, target, SMALL, "basic")
    equal = len(mine & theirs) / len(mine) if mine else 0
    assert equal - 1e-6 <= score <= 1 + 1e-6


def test_the_soft_score_finds_a_column_of_codes() -> None:
    names = ["Germany", "France", "Switzerland", "United States", "Italy"]
    assert chance_joinability(names, ["GER", "FRA", "SUI", "USA", "ITA"], DEFAULT) > 0.7
    assert chance_joinability(names, ["red", "green", "blue", "black", "white"], DEFAULT) < 0.1
