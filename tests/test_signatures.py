"""Signatures: values that a program may rewrite to one another share one, and search uses them."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake, SearchSettings
from deepjoin.checking.check import check_index
from deepjoin.checking.segments import array_problems
from deepjoin.checksums import open_again
from deepjoin.cli import main
from deepjoin.joining.entry import JoinWarning
from deepjoin.matching import programs
from deepjoin.packing import load_numbers, pack
from deepjoin.settings import Settings
from deepjoin.store.values import signatures
from deepjoin.store.values.signatures import Signatures, signatures_of, write_signatures
from tests.support.index_files import edit_numbers, sign

FIRST = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Greta", "Hugo")
LAST = ("Abel", "Bauer", "Conrad", "Dietz", "Eckert", "Fischer", "Graf", "Huber")
NAMES = [(first, LAST[(at * 3 + step) % 8]) for at, first in enumerate(FIRST) for step in (0, 1, 2)]
FIPS = [f"{1 + at % 9:02d}{at * 37 % 500:03d}" for at in range(40)]
DAYS = [f"{month:02d}/{day:02d}/2020" for month in (1, 2, 3) for day in range(1, 29)]


def groups(values: list[str]) -> set[frozenset[str]]:
    found = signatures_of(pa.array(values), every=True)
    by_hash = defaultdict(set)
    for value, hash_ in zip(found.values.tolist(), found.hashes.tolist(), strict=True):
        by_hash[hash_].add(values[value])
    return {frozenset(one) for one in by_hash.values() if len(one) > 1}


@pytest.mark.parametrize(
    "values",
    [
        ("ng, ann", "ann ng"),
        ("a. ng", "ng, ann", "ng a."),
        ("o'brien, pat", "p. obrien"),
        ("1001", "01001"),
        ("2020-03-01", "03/01/2020", "1 march 2020", "mar 1, 2020", "20200301"),
        ("1,234,567", "1234567"),
        ("ab12", "ab-012"),
        ("são paulo", "sao paulo"),
    ],
)
def test_values_that_a_program_rewrites_share_a_signature(values: tuple[str, ...]) -> None:
    assert frozenset(values) in groups([*values, "other", "2020-04-05", "b. ng"])


#: Python and Arrow know different versions of Unicode: characters that Python knows.
KNOWN = st.characters(exclude_categories=("Cs", "Cn"))


@given(
    st.lists(st.text("ab1 ,-é0'’२½ü\u0301東", max_size=8) | st.text(KNOWN, max_size=6), max_size=20)
)
def test_few_values_have_the_signatures_of_many(values: list[str]) -> None:
    texts = pa.array([value.encode("utf-8", "replace").decode() for value in values], pa.string())
    few = signatures_of(texts, every=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signatures, "_FEW", -1)
        many = signatures_of(texts, every=True)
    for name, found in vars(few).items():
        assert np.array_equal(found, getattr(many, name)), name


@given(st.lists(st.text("ab1 ,-é0'", max_size=8), max_size=20))
def test_signatures_equal_sorted_words(values: list[str]) -> None:
    def words(value: str) -> tuple[str, ...]:
        plain = unicodedata.normalize("NFKD", value.replace("'", ""))
        plain = "".join(one for one in plain if not unicodedata.combining(one))
        for _ in range(2):
            plain = signatures.pc.replace_substring_regex(plain, "([0-9]),([0-9]{3})", r"\1\2")
            plain = plain.as_py()
        runs, before = [""], ""
        for one in plain:
            kind = "d" if one.isdigit() else "l" if one.isalpha() else ""
            if kind != before:
                runs.append("")
            runs[-1] += one if kind else ""
            before = kind
        return tuple(sorted(run.lstrip("0") or "0" if run.isdigit() else run
                            for run in runs if run))  # fmt: skip

    found = signatures_of(pa.array(values, pa.string()), every=True)
    first = dict(reversed(list(zip(found.values.tolist(), found.hashes.tolist(), strict=True))))
    for one, hash_ in first.items():
        for other, hash_too in first.items():
            assert (words(values[one]) == words(values[other])) == (hash_ == hash_too)
    assert set(first) == {at for at, value in enumerate(values) if words(value)}


def test_signatures_are_sorted_in_parts(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segment,) = lake.index.segments
    whole = Signatures.open(segment.folder)
    assert whole is not None
    monkeypatch.setattr(signatures, "_SORTED", 7)
    for name in ("values.offsets.npy", "values.bytes.npy"):
        (tmp_path / name).write_bytes((segment.folder / name).read_bytes())
    write_signatures(tmp_path)
    parts = Signatures.open(tmp_path)
    assert parts is not None
    assert np.array_equal(parts.hashes, whole.hashes)
    assert np.array_equal(parts.values, whole.values)
    assert not (tmp_path / "signatures.unsorted").exists()


def write(path: Path, head: str, cells: Iterable[str]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([head, "number"])
        writer.writerows((cell, at * 7) for at, cell in enumerate(cells))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    source = tmp_path / "source"
    source.mkdir()
    write(source / "people.csv", "name", (f"{last}, {first}" for first, last in NAMES))
    write(source / "counties.csv", "fips", FIPS)
    write(source / "weather.csv", "day", DAYS)
    return deepjoin.index(source, tmp_path / "index")


QUERIES = {
    "people.csv": [f"{first[0]}. {last}" for first, last in NAMES[:16]],
    "counties.csv": [str(int(code)) for code in FIPS[:30]],
    "weather.csv": [f"2020-{day[:2]}-{day[3:5]}" for day in DAYS[:60]],
}


@pytest.mark.slow
@pytest.mark.parametrize("table", QUERIES)
def test_search_finds_columns_that_join_by_a_program(lake: Lake, table: str) -> None:
    query = QUERIES[table]
    hit = next(hit for hit in lake.search(query, join="any") if hit.table == table)
    assert hit.found_by == ("program",) and hit.programs
    assert hit.joinability == 1 and hit.matched == len(query)
    assert {match.how for match in hit.matches} == {"program"}
    assert json.loads(json.dumps(hit.to_dict()))["programs"][0]["covers"] == len(query)
    off = lake.search(query, join="any", settings=SearchSettings(programs=False))
    assert not any(hit.programs for hit in off)
    assert not any(hit.programs for hit in lake.search(query, join="equi"))
    # It joins as it was found.
    with pytest.warns(JoinWarning, match=f"{len(query)} values match by a program"):
        joined = lake.join({"key": query}, on="key", hit=hit, how="inner")
    assert len(joined) == len(query)


def test_copies_of_a_column_share_their_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a.csv", "b.csv"):
        write(source / name, "fips", FIPS)
    lake, query = deepjoin.index(source, tmp_path / "index"), QUERIES["counties.csv"]
    found, find = [], programs.find_programs
    monkeypatch.setattr(programs, "find_programs", lambda *of: found.append(of) or find(*of))
    hits = lake.search(query, join="any").hits
    assert [(hit.table, hit.found_by) for hit in hits] == [
        (name, ("program",)) for name in ("a.csv", "b.csv")
    ]
    assert hits[0].programs == hits[1].programs and hits[0].matches == hits[1].matches
    assert len(found) == 1


def test_a_time_limit_leaves_programs_out(lake: Lake) -> None:
    settings = SearchSettings(time_limit=0)
    assert not any(hit.programs for hit in lake.search(QUERIES["people.csv"], settings=settings))


def test_an_index_without_signatures_still_answers(lake: Lake, tmp_path: Path) -> None:
    query = QUERIES["counties.csv"]
    (segment,) = lake.index.segments
    without = Path(segment.folder)
    for name in signatures.SIGNATURE_FILES:
        (without / f"{name}.npy").unlink()
    sign(tmp_path / "index")
    again = deepjoin.open(tmp_path / "index")
    assert not any(hit.programs for hit in again.search(query))
    assert again.search(FIPS)[0].table == "counties.csv"
    # The next run of the same command adds them.
    renewed = deepjoin.index(tmp_path / "source", tmp_path / "index")
    assert any(hit.programs for hit in renewed.search(query))


def test_refresh_and_compact_keep_signatures(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "source" / "more.csv", "code", [f"{at:06d}" for at in range(500, 540)])
    lake = deepjoin.index(tmp_path / "source", tmp_path / "index")
    query = [str(at) for at in range(500, 530)]
    assert any(hit.programs for hit in lake.search(query) if hit.table == "more.csv")
    (tmp_path / "source" / "people.csv").unlink()
    lake = deepjoin.index(tmp_path / "source", tmp_path / "index")
    lake.compact()
    lake.reopen()
    assert any(hit.programs for hit in lake.search(query) if hit.table == "more.csv")
    assert check_index(tmp_path / "index").ok


@pytest.mark.parametrize("name", signatures.SIGNATURE_FILES)
def test_check_finds_damaged_signatures(lake: Lake, tmp_path: Path, name: str) -> None:
    (segment,) = lake.index.segments
    file = Path(segment.folder) / f"{name}.npy"
    edit_numbers(file, lambda a: a[len(a) // 2 :].fill(a[len(a) // 2]))
    sign(tmp_path / "index")
    open_again(segment.folder)
    _, problems = array_problems(segment.folder, lake.settings)
    assert problems and problems[0].startswith("signature_hashes.npy does not agree with values")
    np.save(file, np.array(load_numbers(file))[:-1])
    pack(file)
    sign(tmp_path / "index")
    open_again(segment.folder)
    _, problems = array_problems(segment.folder, lake.settings)
    assert problems and "elements where" in problems[0]


def test_an_index_of_hashes_has_no_signatures(tmp_path: Path) -> None:
    write(tmp_path / "counties.csv", "fips", FIPS)
    lake = deepjoin.index(tmp_path, settings=Settings(hash_only=True))
    (segment,) = lake.index.segments
    assert segment.signatures is None
    assert lake.search(FIPS, join="any")[0].joinability == 1


def test_the_command_shows_programs_and_can_leave_them_out(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = ",".join(QUERIES["counties.csv"])
    main(["search", str(tmp_path / "index"), "--values", values])
    assert "counties.csv by program: right: the value without zeros in front (30 values)" in (
        capsys.readouterr().out
    )
    main(["search", str(tmp_path / "index"), "--values", values, "--no-programs"])
    assert "program" not in capsys.readouterr().out


def test_matched_counts_the_pairs_that_are_shown(tmp_path: Path) -> None:
    codes = [f"PEN-{number}-RED" for number in range(1060, 1075)]
    write(tmp_path / "pens.csv", "sku", codes)
    write(tmp_path / "firms.csv", "firm", [
        "Cobaltine Optics", "Stanford University", "Oslo Shipping", "Lima Textiles",
        "Quito Coffee", "Rome Marble",
    ])  # fmt: skip
    lake = deepjoin.index(tmp_path)
    everything = SearchSettings(matches=None)
    for query in (
        [str(number) for number in range(1060, 1075)],
        ["Cobaltine Foods", "Stanford Universty", "Oslo Shipping", "Lima Textile", "Peru"],
    ):
        for hit in lake.search(query, settings=everything):
            assert hit.matched == len(hit.matches)
            assert len(hit.matches) + len(hit.unmatched) == hit.query_size
            numbers = [one for one in hit.matches if one.query.isdigit() and one.how == "similar"]
            assert not numbers
