"""The semantic join: against a plain Python join over the matches, and rule by rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan, JoinSide, database_sql, plan_join
from deepjoin.joining import sql as join_sql
from deepjoin.joining.facts import NearMiss
from deepjoin.matching.joinability import ONE
from deepjoin.matching.values import SemanticMatching
from deepjoin.normalise.canonical import canonical
from deepjoin.normalise.cells import distinct_cells
from tests.support.join_tables import (
    HOSTILE,
    Cell,
    Columns,
    Dial,
    as_text,
    both,
    brute_matches,
    scan_of,
    table,
    text_batch,
)
from tests.support.shops import Shop, check

CELLS = st.none() | st.sampled_from(
    ["10", "10 ", "10A", "10a", "11", "11b", "12", "12 B", "40", "?", "", " ", "😀", "a\0b", "7.0"]
)


def brute_rows(
    left: list[Cell], right: list[Cell], way: str, how: str, many: str
) -> list[tuple[Any, ...]]:
    """Give pairs of left row, similarity, and matching right rows, in order."""
    mine, theirs = distinct_cells(left).values, distinct_cells(right).values
    linked = {
        (mine[i], theirs[j]): similarity / ONE
        for i, j, similarity in brute_matches(mine, theirs, 0.99, way)
    }
    rows: list[tuple[Any, ...]] = []
    for at, cell in enumerate(left):
        key = canonical(cell or "")
        found = sorted(
            (-linked[key, other], row)
            for row, target in enumerate(right)
            if (key, other := canonical(target or "")) in linked
        )
        if not found and how == "left":
            rows.append((at, None, [] if many == "aggregate" else None))
        elif found and many == "aggregate":
            rows.append((at, -found[0][0], sorted(row for _, row in found)))
        else:
            rows += [(at, -like, row) for like, row in found[: 1 if many == "first" else None]]
    return rows


def found_rows(joined: pa.Table, many: str) -> list[tuple[Any, ...]]:
    """Give the same from the result of a plan."""
    rows = joined.to_pylist()
    if many != "aggregate":
        return [(row["mine"], row["similarity"], row["other"]) for row in rows]
    return [
        (
            row["mine"],
            row["similarity"],
            sorted(int(t[1:]) for t in tags.split("; ")) if tags else [],
        )
        for row in rows
        for tags in [row["tag_list"]]
    ]


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    left=st.lists(CELLS, max_size=7),
    right=st.lists(CELLS, max_size=7),
    how=st.sampled_from(["left", "inner"]),
    many=st.sampled_from(["expand", "first", "aggregate"]),
    way=st.sampled_from(["best", "one-to-one", "all"]),
)
def test_join_equals_brute_force(
    left: list[Cell], right: list[Cell], how: str, many: str, way: str
) -> None:
    mine = text_batch({"cell": left, "mine": [str(row) for row in range(len(left))]})
    others = {"other": [str(row) for row in range(len(right))], "cell": right}
    theirs = text_batch(others | {"tag": [f"t{row}" for row in range(len(right))]})
    sides = [
        JoinSide(table(name, batch), "cell", scan_of(batch))
        for name, batch in (("mine.csv", mine), ("theirs.csv", theirs))
    ]
    semantic = SemanticMatching(Dial(), matching=way)
    with plan_join(*sides, how=how, many=many, semantic=semantic) as plan:
        joined = plan.to_arrow()
        expected = brute_rows(left, right, way, how, many)
        assert found_rows(joined, many) == expected
        assert plan.facts.result_rows == len(expected)
        rows = {row for row, *_ in brute_rows(left, right, way, "inner", "first")}
        assert plan.facts.matched_left_rows + plan.facts.ambiguous_left_rows == len(rows)
        if plan.facts.alternatives:
            doubtful = {row["mine"] for row in joined.to_pylist() if row["alternatives"]}
            assert plan.facts.ambiguous_left_rows == len(doubtful) > 0
        unmatched = plan.unmatched().to_arrow()["mine"].to_pylist()
        assert unmatched == [row for row in range(len(left)) if row not in rows]
        with duckdb.connect() as fresh:
            assert fresh.sql(plan.sql).to_arrow_table().to_pylist() == joined.to_pylist()


ORDERS: Columns = {
    "id": ["1", "2", "3", "4", "5", "6"],
    "country": ["FRANCE ", "USA", "United States of America", "Holland", "x", None],
}
COUNTRIES: Columns = {
    "name": ["France", "United States", "Netherlands", "United States"],
    "capital": ["Paris", "Washington", "Amsterdam", "New York"],
    "since": ["1", "2", "3", "4"],
}


def countries(**options: Any) -> JoinPlan:
    semantic = SemanticMatching(
        load_cell_encoder(), options.pop("tau", None), options.pop("way", "best")
    )
    return both(ORDERS, COUNTRIES, "country", "name", semantic=semantic, **options)


@pytest.mark.slow
def test_the_similarity_stands_between_the_tables() -> None:
    joined = countries(many="first").to_arrow()
    assert joined.column_names == ["id", "country", "similarity", "name", "capital", "since"]
    assert joined["similarity"].type == pa.float64()
    assert joined["capital"].to_pylist() == ["Paris", "Washington", "Washington", None, None, None]
    similar = joined["similarity"].to_pylist()
    assert similar[0] == 1
    assert 0.65 <= similar[1] < 1
    assert similar[3] is None


def test_its_name_is_like_no_other() -> None:
    left, right = {"k": ["10"], "Similarity": ["a"]}, {"k": ["10a"], "similarity_2": ["b"]}
    plan = both(left, right, semantic=SemanticMatching(Dial()))
    assert plan.to_arrow().column_names == [
        *("k", "Similarity", "similarity_3", "k_cities", "similarity_2")
    ]
    assert plan.facts.similarity == "similarity_3"


@pytest.mark.slow
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_hostile_names(many: str) -> None:
    ours = ["pairs", "their_rows", "similarity", "_similarity", "_target", "_place", "similarity_2"]
    names = [*HOSTILE, *ours]
    batch = text_batch({name: ["10", f"t{at}"] for at, name in enumerate(names)})
    other = text_batch({name: ["10a", f"t{at}"] for at, name in enumerate(names)})
    left, right = (
        JoinSide(table("l.csv", batch), "pairs"),
        JoinSide(table("r.csv", other), "theirs"),
    )
    with plan_join(left, right, many=many, semantic=SemanticMatching(Dial())) as plan:
        joined = plan.to_arrow()
        assert plan.facts.similarity == "similarity_3"
        assert joined["similarity_3"].to_pylist() == [1.0, None]
    lowered = {name.lower() for name in joined.column_names}
    assert len(lowered) == joined.num_columns == 2 * len(names) + 1 + (many == "aggregate")


@pytest.mark.slow
def test_facts_of_a_semantic_join() -> None:
    plan = countries()
    facts = plan.facts
    assert (facts.join, facts.tau, facts.matching) == ("semantic", 0.65, "best")
    assert (facts.left_keys, facts.matched_keys, facts.equal_keys) == (5, 3, 1)
    assert (facts.matched_left_rows, facts.result_rows) == (3, 8)
    assert (facts.cardinality, facts.max_fan_out) == ("n:m", 2)
    assert plan.warnings[0] == (
        "6 rows become 8: 'United States of America' matches 2 rows in geo/cities.csv. "
        'Use `many="first"` or `many="aggregate"` to keep one row per row of yours.'
    )
    equi = both(ORDERS, COUNTRIES, "country", "name").facts
    assert (equi.join, equi.equal_keys, equi.tau, equi.similarity) == ("equi", 1, None, None)


#: 10 is as similar to 10b as to 10a, and 20 has one similar value in two rows.
TIED: Columns = {"id": ["1", "2", "3", "4"], "k": ["10", "20", "10", "50"]}
TARGETS: Columns = {"k": ["10a", "20a", "20a", "10b"], "n": ["1", "2", "3", "4"]}


def test_ambiguous_rows_are_counted_apart_and_shown() -> None:
    plan = both(TIED, TARGETS, many="first", semantic=SemanticMatching(Dial()))
    facts = plan.facts
    assert (facts.matched_left_rows, facts.ambiguous_left_rows, facts.several_left_rows) == (
        1,
        2,
        1,
    )
    assert (facts.matched_keys, facts.ambiguous_keys, facts.left_keys) == (1, 1, 3)
    assert facts.to_dict()["several"] == [
        {
            **{"query": "10", "left_rows": 2, "targets": ["10a", "10b"], "target_rows": 1},
            **{"similarity": 1.0, "ambiguous": True},
        },
        {
            **{"query": "20", "left_rows": 1, "targets": ["20a"], "target_rows": 2},
            **{"similarity": 1.0, "ambiguous": False},
        },
    ]
    rows = plan.to_arrow().to_pylist()
    assert [row["alternatives"] for row in rows] == ["10b", None, "10b", None]
    assert [row["n"] for row in rows] == [1, 2, 1, None]
    assert plan.warnings == (
        "2 of 4 rows are ambiguous: '10' is joined with '10a' but is nearly as similar to '10b'. "
        "See the column 'alternatives', or keep every candidate with `matching=\"all\"`.",
    )


def test_alternatives_have_a_column_of_their_own() -> None:
    left = TIED | {"alternatives": ["a", "b", "c", "d"]}
    plan = both(left, TARGETS, semantic=SemanticMatching(Dial()))
    assert plan.facts.alternatives == "alternatives_2"
    assert plan.to_arrow().column_names[2:5] == ["alternatives", "similarity", "alternatives_2"]
    every = both(TIED, TARGETS, semantic=SemanticMatching(Dial(), matching="all"))
    assert (every.facts.ambiguous_left_rows, every.facts.alternatives) == (0, None)
    assert every.facts.several_left_rows == 3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_ambiguous_joins_are_the_same_elsewhere(how: str, many: str, tmp_path: Path) -> None:
    sides = [
        JoinSide(table(name, text_batch(cells)), "k", scan_of(text_batch(cells)))
        for name, cells in (("l.csv", TIED), ("r.csv", TARGETS))
    ]
    plan = plan_join(*sides, how=how, many=many, semantic=SemanticMatching(Dial()))
    check_pandas(plan, TIED, TARGETS, plan.pandas_code)
    sql, code = plan.reading(tmp_path / "pairs.parquet")
    check_pandas(plan, TIED, TARGETS, code)
    for statement in (plan.sql, sql):
        with duckdb.connect() as fresh:
            rows = fresh.sql(statement).to_arrow_table().to_pylist()
        assert rows == plan.to_arrow().to_pylist()


def test_any_is_an_equi_join_where_all_matches_are_equal() -> None:
    any_kind = SemanticMatching(Dial(), join="any")
    plan = both({"k": ["10", "?"]}, {"k": ["10", "!"], "v": ["x", "y"]}, semantic=any_kind)
    assert plan.to_arrow().column_names == ["k", "v"]
    facts = plan.facts
    assert (facts.join, facts.tau, facts.similarity) == ("any", 0.99, None)
    assert "value_pairs" not in plan.sql
    similar = both({"k": ["a10", "10"]}, {"k": ["10"]}, semantic=any_kind)
    assert similar.facts.similarity is None
    plan = both({"k": ["10x"]}, {"k": ["10y"]}, semantic=any_kind)
    assert (plan.facts.join, plan.facts.similarity) == ("any", "similarity")


def test_any_compares_equal_values_where_others_would_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deepjoin.joining.facts._COMPARED", 3)
    left, right = {"k": ["10x", "11x", "a"]}, {"k": ["10y", "a"]}
    plan = both(left, right, semantic=SemanticMatching(Dial(), join="any"))
    assert (plan.facts.join, plan.facts.matched_keys) == ("equi", 1)
    assert plan.warnings == (
        "Only equal values were compared: 2 values without an equal one and 2 values to compare "
        'them with would take long. Use `join="semantic"` to compare them.',
    )


@pytest.mark.slow
def test_one_to_one_takes_no_value_twice() -> None:
    assert countries(way="one-to-one").facts.matched_keys == 2


@pytest.mark.slow
def test_near_misses_tell_what_was_just_not_enough() -> None:
    misses = countries().near_misses(1)
    assert [(miss.yours, miss.theirs) for miss in misses] == [("Holland", "Netherlands")]
    assert 0.5 < misses[0].similarity < 0.65
    taken = countries(way="one-to-one").near_misses(1)[0]
    assert taken.theirs == "United States"
    assert taken.similarity > 0.65


@pytest.mark.slow
def test_near_misses_of_an_equi_join_are_what_a_semantic_one_would_add() -> None:
    misses = both(ORDERS, COUNTRIES, "country", "name").near_misses(2)
    assert {miss.yours for miss in misses} == {"USA", "United States of America"}
    assert misses[0].similarity >= misses[1].similarity


def test_near_misses_of_nothing() -> None:
    assert (
        both({"k": ["10"]}, {"k": ["10a"]}, semantic=SemanticMatching(Dial())).near_misses() == []
    )
    near = both(
        {"k": ["10", "20", "30"]}, {"k": ["13"]}, semantic=SemanticMatching(Dial())
    ).near_misses(0)
    assert near == []
    assert both(
        {"k": ["10", "?"]}, {"k": ["13"]}, semantic=SemanticMatching(Dial())
    ).near_misses() == [NearMiss("10", "13", round(float(np.cos(np.pi / 10)), 6))]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
@pytest.mark.parametrize("way", ["best", "all"])
def test_pandas_code_gives_the_same(how: str, many: str, way: str) -> None:
    left: Columns = {
        "id": ["1", "2", "3", "4"],
        "k": ["10", "11a", "10a", "?"],
        "_key": list("abcd"),
    }
    right: Columns = {"k": ["11", "10 A", "10b", "11", "40"], "id": ["5", "6", "7", "8", "9"]}
    right["similarity"] = ["1", "2", "3", "4", "5"]
    semantic = SemanticMatching(Dial(), matching=way)
    plan = both(left, right, how=how, many=many, semantic=semantic)
    check_pandas(plan, left, right, plan.pandas_code)


def check_pandas(plan: JoinPlan, left: Columns, right: Columns, code: str) -> None:
    scope: dict[str, Any] = {"yours": pd.DataFrame(left), "theirs": pd.DataFrame(right)}
    exec(code, scope)
    assert list(scope["joined"].columns) == plan.to_arrow().column_names
    expected = plan.session.table(plan.query.joined(False)).to_pylist()
    assert as_text(scope["joined"].to_dict("records")) == as_text(expected)


def test_pandas_code_of_no_match() -> None:
    left, right = {"k": ["10"]}, {"k": ["?"]}
    plan = both(left, right, semantic=SemanticMatching(Dial()))
    check_pandas(plan, left, right, plan.pandas_code)


def test_many_pairs_are_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_sql, "MOST_PAIRS", 2)
    left, right = {"k": ["10", "20", "30"]}, {"k": ["10a", "20a", "30a"], "v": ["x", "y", "z"]}
    plan = plan_join(
        JoinSide(table("l.csv", text_batch(left)), "k", scan_of(text_batch(left))),
        JoinSide(table("r.csv", text_batch(right)), "k", scan_of(text_batch(right))),
        semantic=SemanticMatching(Dial()),
    )
    with pytest.raises(DeepJoinError, match=r"through 3 pairs .* Use `plan\.reading\("):
        plan.sql  # noqa: B018
    with pytest.raises(DeepJoinError, match=r'`plan\.reading\("pairs\.parquet"\)`'):
        plan.pandas_code  # noqa: B018
    with pytest.raises(DeepJoinError, match=r"from a \.parquet file, not pairs\.csv\."):
        plan.reading(tmp_path / "pairs.csv")
    sql, code = plan.reading(tmp_path / "it's.parquet")
    assert pq.read_table(tmp_path / "it's.parquet").to_pylist()[0] == {
        **{"yours": "10", "theirs": "10a", "similarity": 1.0}
    }
    with duckdb.connect() as fresh:
        assert fresh.sql(sql).to_arrow_table().to_pylist() == plan.to_arrow().to_pylist()
    check_pandas(plan, left, right, code)


@pytest.mark.slow
def test_matches_are_a_table_of_their_own(tmp_path: Path) -> None:
    assert both({"k": ["A", "c"]}, {"k": ["a", "b"]}).matches().to_arrow().to_pylist() == [
        {"yours": "a", "theirs": "a", "similarity": 1.0}
    ]
    assert countries().matches().write(tmp_path / "pairs.csv") == 3
    assert (tmp_path / "pairs.csv").read_text().startswith("yours,theirs,similarity\nfrance,")


def test_a_low_bound_is_doubted() -> None:
    plan = both({"k": ["10"]}, {"k": ["15"]}, semantic=SemanticMatching(Dial(), 0.5))
    assert plan.warnings[-1].startswith("`tau` is 0.5: below 0.9, similar values of this")


AWKWARD: list[Cell] = [
    *(
        "x" * 100_000,
        "word " * 20_000,
        "日本",
        "Москва",
        "القاهرة",
        "क",
        "😀",
        "👩‍👩‍👧",
        "\0",
        "\x01\x02",
    ),
    *("a\nb", "'", '"; DROP TABLE left_rows; --', "\u202e", "￿", "", None, "%s", "{}", "ß", "İ"),
]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["best", "one-to-one", "all"])
def test_awkward_cells_meet_their_equals(way: str) -> None:
    semantic = SemanticMatching(load_cell_encoder(), matching=way)
    plan = both({"k": AWKWARD}, {"k": AWKWARD[::-1]}, semantic=semantic)
    keys = {canonical(cell) for cell in AWKWARD if cell} - {""}
    assert plan.facts.equal_keys == plan.facts.matched_keys == len(keys)
    assert plan.to_arrow().num_rows == plan.facts.result_rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "right"), [([], ["a"]), (["a"], []), ([], []), ([None, ""], ["a"])]
)
@pytest.mark.parametrize("way", ["best", "one-to-one", "all"])
def test_empty_keys(left: list[Cell], right: list[Cell], way: str) -> None:
    batches = text_batch({"k": left}), text_batch({"k": right})
    sides = [JoinSide(table(n, b), "k", scan_of(b)) for n, b in zip("lr", batches, strict=True)]
    plan = plan_join(*sides, semantic=SemanticMatching(load_cell_encoder(), matching=way))
    assert plan.to_arrow().num_rows == len(left)
    assert plan.near_misses() == []
    assert plan.warnings == ("No row of l has a match in r. Try another column, or a lower `tau`.",)
    with duckdb.connect() as fresh:
        assert fresh.sql(plan.sql).to_arrow_table().num_rows == len(left)


@pytest.mark.slow
def test_values_that_nobody_knows_are_reported() -> None:
    plan = both(
        {"k": ["😀", "👍", "a"]}, {"k": ["a", "👍"]}, semantic=SemanticMatching(load_cell_encoder())
    )
    assert plan.warnings == (
        "1 value of orders.csv has no word that the cell encoder knows, so it can only match an "
        "equal value: '😀'.",
    )


def test_progress_is_reported() -> None:
    told: list[tuple[int, int, str]] = []
    semantic = SemanticMatching(Dial(), progress=lambda *said: told.append(said))
    both({"k": ["10", "11"]}, {"k": ["11", "12"]}, semantic=semantic)
    assert told == [(0, 1, "matching values"), (1, 1, "matching values")]


def make_shop(place: Shop) -> tuple[JoinSide, JoinSide]:
    cells = ["10", " 10A", "ÎLE", "20", None, "11", "5 Jan 2020", "it's"]
    place.make("yours", "id integer, k text", list(enumerate(cells)))
    others = ["10b", "10B ", "île", "21", "11", "2020-01-05", "IT'S", "10\tC"]
    place.make("theirs", "k text, n integer", [(cell, at) for at, cell in enumerate(others)])
    return place.side("yours", "k"), place.side("theirs", "k")


@pytest.mark.slow
def test_sql_of_a_database(shop: Shop) -> None:
    sides = make_shop(shop)
    for many, way in (("expand", "best"), ("expand", "all"), ("first", "all")):
        check(shop, *sides, many=many, semantic=SemanticMatching(Dial(), matching=way))
    if shop.source.database.dialect != "sqlite":
        check(shop, *sides, many="aggregate", semantic=SemanticMatching(Dial(), matching="all"))


@pytest.mark.slow
@pytest.mark.parametrize("shop", ["sqlite", "duckdb"], indirect=True)
def test_sql_of_a_database_lists_a_limited_number_of_pairs(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database_sql, "MOST_SPELLINGS", 2)
    plan = plan_join(*make_shop(shop), semantic=SemanticMatching(Dial()))
    with pytest.raises(
        DeepJoinError, match=r"goes through \d pairs of values, .* Run it with deepjoin"
    ):
        database_sql.database_sql(plan, shop.source, shop.prefix + "yours")
