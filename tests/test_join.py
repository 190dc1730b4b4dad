"""What is joined: against a plain Python join over ugly cells, and rule by rule."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan, JoinSide, plan_join
from deepjoin.normalise.canonical import canonical
from deepjoin.read.sql import literal
from deepjoin.settings import JoinSettings
from tests.support.join_tables import Cell, Columns, as_text, both, scan_of, table, text_batch

UGLY: list[Cell] = [
    *(
        "Brazil",
        " brazil ",
        "BRAZIL",
        "brazil",
        "a  b",
        "a b",
        "A\tB",
        "a\nb",
        "it's",
        'a"b',
        "a\0b",
    ),
    *(
        "7",
        "7.0",
        "+7",
        "007",
        "  7 ",
        "7.50",
        "7.5",
        "-0",
        "0",
        ".5",
        "0.5",
        "-.0",
        "\x1c7",
        "v1.0",
    ),
    *("5 Jan 2020", "2020-01-05", "2020/1/5", "2020-01-05 00:00:00", "2020-01-05T10:00Z"),
    *("Île", "I\u0302le", "île", "ﬁ", "fi", "İ", "i\u0307", "ΟΔΟΣ", "οδος", "οδοσ", "ẞ", "ß", "ss"),
    *("", " ", "\u00a0", "\t", None, None),
]
CELLS = st.one_of(st.sampled_from(UGLY), st.text(max_size=4), st.none())


def brute_join(left: list[Cell], right: list[Cell], how: str, many: str, profile: str) -> list[Any]:
    """Return pairs of left row and matching right rows, in order."""
    keys = [canonical(cell, profile) if cell is not None else "" for cell in right]
    pairs: list[Any] = []
    for row, cell in enumerate(left):
        key = canonical(cell, profile) if cell is not None else ""
        rows = [other for other, target in enumerate(keys) if key and target == key]
        if not rows and how == "inner":
            continue
        if many == "expand":
            pairs += [(row, other) for other in rows or [None]]
        else:
            pairs.append((row, (rows or [None])[0] if many == "first" else rows))
    return pairs


def found_pairs(plan: JoinPlan, many: str) -> list[Any]:
    """Return the same pairs from the result of a plan."""
    rows = plan.to_arrow().to_pylist()
    if many != "aggregate":
        return [(row["mine"], row["other"]) for row in rows]
    assert all(row["matched_rows"] == len(_numbers(row["tag_list"])) for row in rows)
    return [(row["mine"], _numbers(row["tag_list"])) for row in rows]


def _numbers(values: str | None) -> list[int]:
    return sorted(int(value[1:]) for value in values.split("; ")) if values else []


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    left=st.lists(CELLS, max_size=8),
    right=st.lists(CELLS, max_size=8),
    how=st.sampled_from(["left", "inner"]),
    many=st.sampled_from(["expand", "first", "aggregate"]),
    profile=st.sampled_from(["default", "default", "basic"]),
    scans=st.booleans(),
)
def test_equals_brute_force(
    left: list[Cell], right: list[Cell], how: str, many: str, profile: str, scans: bool
) -> None:
    mine = text_batch({"cell": left, "mine": [str(row) for row in range(len(left))]})
    others = {"other": [str(row) for row in range(len(right))], "cell": right}
    theirs = text_batch(others | {"tag": [f"t{row}" for row in range(len(right))]})
    sides = [
        JoinSide(table(name, batch), "cell", scan_of(batch) if scans else None)
        for name, batch in (("mine.csv", mine), ("theirs.csv", theirs))
    ]
    with plan_join(*sides, how=how, many=many, profile=profile) as plan:
        pairs = found_pairs(plan, many)
        assert pairs == brute_join(left, right, how, many, profile)
        assert plan.facts.result_rows == len(pairs)
        assert plan.to_arrow().equals(plan.to_arrow())
        unmatched = [row["mine"] for row in plan.unmatched().to_arrow().to_pylist()]
        assert unmatched == [
            row for row, match in brute_join(left, right, "left", "first", profile) if match is None
        ]
        if scans:
            with duckdb.connect() as fresh:
                assert (
                    fresh.sql(plan.sql).to_arrow_table().to_pylist() == plan.to_arrow().to_pylist()
                )


ORDERS: Columns = {"id": ["1", "2", "3", "4"], "country": ["Brazil", "FRANCE ", "x", None]}
CITIES: Columns = {
    "name": ["brazil", "France", "BRAZIL", "Peru"],
    "city": ["Rio", "Paris", "Recife", "Lima"],
    "population": ["7", "8.5", "9", ""],
    "since": ["1565-03-01", "", "1537-03-12", "1535-01-18"],
}


def test_rows_come_in_the_order_of_both_tables() -> None:
    plan = both(ORDERS, CITIES, "country", "name")
    assert plan.to_arrow().select(["id", "city"]).to_pylist() == [
        {"id": 1, "city": "Rio"},
        {"id": 1, "city": "Recife"},
        {"id": 2, "city": "Paris"},
        {"id": 3, "city": None},
        {"id": 4, "city": None},
    ]
    assert plan.preview(2).to_pylist() == plan.to_arrow().slice(0, 2).to_pylist()
    assert pa.Table.from_batches(plan.batches()).equals(plan.to_arrow())


def test_first_takes_the_first_row_of_the_right_table() -> None:
    plan = both(ORDERS, CITIES, "country", "name", many="first", how="inner")
    assert plan.to_arrow()["city"].to_pylist() == ["Rio", "Paris"]


def test_aggregate_makes_one_row_of_all_matches() -> None:
    rows = both(ORDERS, CITIES, "country", "name", many="aggregate").to_arrow().to_pylist()
    assert rows[0] == {
        "id": 1,
        "country": "Brazil",
        "matched_rows": 2,
        "name_list": "BRAZIL; brazil",
        "city_list": "Recife; Rio",
        "population_mean": 8.0,
        "since_list": "1537-03-12; 1565-03-01",
    }
    assert rows[2]["matched_rows"] == 0
    assert rows[2]["city_list"] is None


def test_aggregate_says_how_many_values_it_leaves_out() -> None:
    right = {"k": ["a"] * 25, "v": [f"v{number:02}" for number in range(25)]}
    values = both({"k": ["a"]}, right, many="aggregate").to_arrow()["v_list"][0].as_py()
    assert values.startswith("v00; v01; ")
    assert values.endswith("; v19; and 5 more")


def test_facts_and_the_warning_of_a_fan_out() -> None:
    plan = both(ORDERS, CITIES, "country", "name")
    facts = plan.facts
    assert (facts.left_rows, facts.right_rows, facts.result_rows) == (4, 4, 5)
    assert (facts.left_keys, facts.matched_keys, facts.matched_left_rows) == (3, 2, 2)
    assert (facts.cardinality, facts.max_fan_out) == ("1:n", 2)
    assert plan.warnings == (
        "4 rows become 5: 'Brazil' has 2 rows in geo/cities.csv. "
        'Use `many="first"` or `many="aggregate"` to keep one row per row of yours.',
    )
    assert both(ORDERS, CITIES, "country", "name", many="first").warnings == ()


@pytest.mark.parametrize(
    ("left", "right", "cardinality"),
    [
        (["a", "b"], ["a", "b"], "1:1"),
        (["a", "b"], ["a", "A"], "1:n"),
        (["a", "A"], ["a", "b", "b"], "n:1"),
        (["a", "A"], ["a", "A"], "n:m"),
        (["a", "a"], ["b", "b"], "1:1"),
    ],
)
def test_cardinality_is_that_of_the_matching_keys(
    left: list[str], right: list[str], cardinality: str
) -> None:
    assert both({"k": left}, {"k": right}).facts.cardinality == cardinality


def test_no_match_is_a_warning() -> None:
    plan = both({"k": ["a"]}, {"k": ["b"]})
    assert plan.warnings == (
        "No row of orders.csv has a match in geo/cities.csv. Try another column.",
    )
    assert plan.facts.max_fan_out == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "right", "expressions"),
    [
        (["a", "b"], ["a", "c"], ('"k"', '"k"')),
        (["A", "b"], ["a", "B"], ('lower("k")', 'lower("k")')),
        ([" A"], ["a"], ('lower(trim("k"))', '"k"')),
        (["7.0"], ["7"], (r"""regexp_replace("k", '\.0+$', '')""", '"k"')),
        (
            ["2020-01-05 00:00:00"],
            ["2020-01-05"],
            ("""regexp_replace("k", ' 00:00:00$', '')""", '"k"'),
        ),
        ([7, 8], [7, 9], ('"k"', '"k"')),
        ([7, 8], ["7"], ('CAST("k" AS VARCHAR)', '"k"')),
    ],
)
def test_sql_is_as_simple_as_the_cells_allow(
    left: list[Any], right: list[Any], expressions: tuple[str, str]
) -> None:
    plan = both({"k": left}, {"k": right})
    assert [f'{expression} AS "_key"' in plan.sql for expression in expressions] == [True, True]
    assert "spelling" not in plan.sql
    assert plan.facts.matched_keys >= 1


def test_cells_that_no_expression_gets_right_are_spelled_out() -> None:
    plan = both(
        {"k": ["5 Jan 2020", "ΟΔΟΣ", "x"]}, {"k": ["2020-01-05", "οδος", "Y", "3 Mar 1999"]}
    )
    assert "('5 Jan 2020', '2020-01-05')" in plan.sql
    assert "3 Mar 1999" not in plan.sql
    assert plan.facts.matched_keys == 2


def test_thousands_of_exceptions() -> None:
    days = [datetime.date(1990, 1, 1) + datetime.timedelta(days) for days in range(3000)]
    plan = both(
        {"k": [f"{day:%d %b %Y}" for day in days]}, {"k": [day.isoformat() for day in days]}
    )
    assert plan.facts.matched_keys == 3000
    assert plan.sql.count("', '") >= 3000
    assert plan.to_arrow()["k_cities"].to_pylist() == [day.isoformat() for day in days]


def test_blank_keys_never_match() -> None:
    blanks = ["", " ", "\u00a0", None]
    plan = both({"k": blanks}, {"k": blanks, "v": list("abcd")})
    assert plan.to_arrow()["v"].null_count == 4
    assert both({"k": blanks}, {"k": blanks}, how="inner").to_arrow().num_rows == 0


DAY = datetime.date(2020, 1, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (pa.array([7, 8], pa.int32()), ["7.0", "+8"]),
        (pa.array([7.0, 7.5]), ["7", "7.50"]),
        (pa.array([1e15, 0.1]), ["1000000000000000", "0.1"]),
        (pa.array([1e20, 1e-8]), ["100000000000000000000", "0.00000001"]),
        (pa.array([7.0], pa.float16()), ["7"]),
        (pa.array([True, False]), ["TRUE", "false"]),
        (pa.array([DAY]), ["5 Jan 2020"]),
        (pa.array([datetime.datetime(2020, 1, 5), datetime.datetime(2020, 1, 5, 10, 30)]),
         ["2020-01-05", "2020-01-05 10:30:00"]),
        (pa.array([datetime.datetime(2020, 1, 5, 10)], pa.timestamp("us", "UTC")),
         ["2020-01-05T10:00Z"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["A", "B", "a "]),
        (pa.array([7, 8], pa.decimal128(5, 2)), ["7", "8"]),
        (pa.array([7, 8], pa.decimal256(50, 2)), ["7", "8"]),
        (pa.array(["x"], pa.large_string()), ["X"]),
        (pa.array([datetime.time(10, 30)]), ["10:30:00"]),
        (pa.array([1, 1500], pa.duration("ms")), ["0.001", "1.5"]),
        (pa.array([1, 90_000], pa.duration("s")), ["1", "90000"]),
    ],
)  # fmt: skip
def test_typed_keys_match_their_text(cells: pa.Array, texts: list[str]) -> None:
    left, right = table("l", pa.record_batch({"k": cells})), table("r", {"t": texts})
    plan = plan_join(JoinSide(left, "k"), JoinSide(right, "t"), many="first")
    assert plan.to_arrow()["t"].null_count == 0
    assert plan.facts.matched_left_rows == len(cells)


def test_nan_is_a_missing_key() -> None:
    assert both({"k": [math.nan, 1.0]}, {"k": [math.nan, 1.0]}).facts.matched_left_rows == 1


def test_a_list_as_key_is_compared_as_text() -> None:
    cells = pa.record_batch({"k": [["a", "b"], ["c"]]})
    plan = plan_join(JoinSide(table("l", cells), "k"), JoinSide(table("r", {"t": ["[A, b]"]}), "t"))
    assert plan.facts.matched_left_rows == 1


def test_parquet_is_read_in_place(tmp_path: Path) -> None:
    data = pa.table({"k": list(range(100)), "v": [str(number) for number in range(100)]})
    pq.write_table(data, tmp_path / "right.parquet", row_group_size=10)
    scan = f"read_parquet({literal(str(tmp_path / 'right.parquet'))})"
    right = JoinSide(table("right.parquet", *data.to_batches()), "k", scan)
    plan = plan_join(JoinSide(table("l", {"k": ["99", "5", "x"]}), "k"), right)
    assert plan.to_arrow()["v"].to_pylist() == ["99", "5", None]
    assert "FROM read_parquet(" in plan.sql


def test_columns_may_turn_up_late_and_change_type() -> None:
    left = table(
        "l.jsonl",
        {"k": ["a"], "n": [1]},
        {"k": ["b"], "n": ["two"], "late": ["x"]},
        {"late": ["y"], "k": ["c"]},
        {"k": pa.array(["d"]), "n": pa.nulls(1), "late": pa.nulls(1)},
    )
    rows = (
        plan_join(JoinSide(left, "k"), JoinSide(table("r", {"k": ["a"]}), "k"))
        .to_arrow()
        .to_pylist()
    )
    assert [(row["k"], row["n"], row["late"]) for row in rows] == [
        ("a", "1", None),
        ("b", "two", "x"),
        ("c", None, "y"),
        ("d", None, None),
    ]


def test_empty_tables_join() -> None:
    nothing = text_batch({"k": []})
    assert (
        plan_join(
            JoinSide(table("l", nothing), "k"), JoinSide(table("r", nothing), "k")
        ).facts.result_rows
        == 0
    )
    plan = both({"k": ["a"]}, {"k": pa.array([], pa.string())}, many="aggregate")
    assert plan.to_arrow().to_pylist() == [{"k": "a", "matched_rows": 0, "k_list": None}]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_pandas_code_gives_the_same(how: str, many: str) -> None:
    right = CITIES | {"id": ["9", "8", "7", "6"]}
    plan = both(ORDERS, right, "country", "name", how=how, many=many)
    scope: dict[str, Any] = {"yours": pd.DataFrame(ORDERS), "theirs": pd.DataFrame(right)}
    exec(plan.pandas_code, scope)
    assert list(scope["joined"].columns) == plan.to_arrow().column_names
    expected = plan.session.table(plan.query.joined(False)).to_pylist()
    assert as_text(scope["joined"].to_dict("records")) == as_text(expected)


VISITS: Columns = {
    "who": ["ann", "ANN", "bob", "ann"],
    "spent": ["5", "", "2.5", "7"],
    "visits": ["1", "2", "3", "4"],
    "city": ["Rome", " ", "Oslo", "Paris"],
}
GUESTS: Columns = {"guest": ["Ann", "Bob", "Cy"]}


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("sum", {"spent_sum": 12.0, "visits_sum": 7, "city_list": "Paris; Rome"}),
        ("mean", {"spent_mean": 6.0, "visits_mean": 7 / 3, "city_list": "Paris; Rome"}),
        ("min", {"spent_min": 5.0, "visits_min": 1, "city_min": "Paris"}),
        ("max", {"spent_max": 7.0, "visits_max": 4, "city_max": "Rome"}),
        ("count", {"spent_count": 2, "visits_count": 3, "city_count": 2}),
        ("first", {"spent_first": 5.0, "visits_first": 1, "city_first": "Rome"}),
        ("list", {"spent_list": "5; 7", "visits_list": "1; 2; 4", "city_list": "Paris; Rome"}),
        ({"spent": "sum"}, {"spent_sum": 12.0, "visits_mean": 7 / 3, "city_list": "Paris; Rome"}),
        (
            {"*": "count", "city": "first"},
            {"spent_count": 2, "visits_count": 3, "city_first": "Rome"},
        ),
    ],
)
def test_aggregates_by_name(aggregate: Any, expected: dict[str, Any]) -> None:
    columns = ["spent", "visits", "city"]
    chosen = JoinSettings(aggregate=aggregate, columns=columns)
    plan = both(GUESTS, VISITS, "guest", "who", settings=chosen)
    rows = plan.to_arrow().to_pylist()
    assert rows[0] == {"guest": "Ann", "matched_rows": 3} | expected
    nothing = dict.fromkeys(expected)
    assert rows[2] == {"guest": "Cy", "matched_rows": 0} | nothing
    scope: dict[str, Any] = {"yours": pd.DataFrame(GUESTS), "theirs": pd.DataFrame(VISITS)}
    exec(plan.pandas_code, scope)
    assert list(scope["joined"].columns) == plan.to_arrow().column_names
    untyped = plan.session.table(plan.query.joined(False)).to_pylist()[0].values()
    same = scope["joined"].to_dict("records")[0].values()
    for ours, theirs in zip(untyped, same, strict=True):
        assert ours == theirs or float(ours) == float(theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["ctiy"]}, r"^No column 'ctiy' in geo/cities\.csv\. .*Did you mean 'city'\?$"),
        ({"aggregate": {"paid": "sum"}}, r"^No column 'paid' in geo/cities\.csv\."),
        (
            {"aggregate": {"city": "mean"}},
            r"^`aggregate` of column 'city' is mean, but its cells are not numbers\. "
            r"Use one of first, count, min, max, list\.$",
        ),
        (
            {"aggregate": {"city": "first"}, "columns": ["spent"]},
            r"^`aggregate` names column 'city', which `columns` leaves out\.$",
        ),
    ],
)
def test_columns_and_aggregates_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepJoinError, match=message):
        both(GUESTS, VISITS, "guest", "who", settings=JoinSettings(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"aggregate": "median"},
            r"^No aggregate 'median' in a join\. Aggregates: first, .*, list\. Did you mean 'mean'",
        ),
        ({"aggregate": ["mean"]}, r"^`aggregate` is \['mean'\]; it must be the name of an agg"),
        ({"columns": "city"}, r"^`columns` is 'city'; it must be a list of names: \['city'\]\.$"),
    ],
)
def test_settings_of_a_join_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepJoinError, match=message):
        JoinSettings(**options)


def test_aggregates_are_not_the_first_row() -> None:
    with pytest.raises(DeepJoinError, match=r'^`aggregate` came with `many="first"`; leave one'):
        both(GUESTS, VISITS, "guest", "who", many="first", settings=JoinSettings(aggregate="sum"))


def test_only_the_chosen_columns_are_brought() -> None:
    chosen = JoinSettings(columns=["city", "who", "city"])
    plan = both(GUESTS, VISITS, "guest", "who", settings=chosen)
    assert plan.to_arrow().column_names == ["guest", "city", "who"]
    scope: dict[str, Any] = {"yours": pd.DataFrame(GUESTS), "theirs": pd.DataFrame(VISITS)}
    exec(plan.pandas_code, scope)
    assert list(scope["joined"].columns) == ["guest", "city", "who"]
    bare = both(GUESTS, VISITS, "guest", "who", many="first", settings=JoinSettings(columns=[]))
    assert bare.to_arrow().column_names == ["guest"]


@pytest.mark.parametrize(
    ("left", "right", "names"),
    [
        (["a", "b"], ["a", "c"], ["k", "v"]),
        (["a", "b"], ["A", "c"], ["k", "k_cities", "v"]),
        (["7", "x"], ["7.0", "y"], ["k", "k_cities", "v"]),
        (["x"], ["y"], ["k", "v"]),
    ],
)
def test_the_key_comes_twice_only_if_it_is_spelled_differently(
    left: list[str], right: list[str], names: list[str]
) -> None:
    plan = both({"k": left}, {"k": right, "v": right})
    assert plan.to_arrow().column_names == names
    assert both({"k": ["a"]}, {"k": ["a"]}).to_arrow().column_names == ["k", "k_cities"]


def test_rows_with_several_matches_are_counted_whatever_becomes_of_them() -> None:
    for many in ("expand", "first", "aggregate"):
        facts = both(GUESTS, VISITS, "guest", "who", many=many).facts
        assert facts.several_left_rows == 1
        (one,) = facts.several
        assert (one.query, one.targets, one.target_rows) == ("Ann", ("ANN",), 3)
        assert not one.ambiguous


def test_means_do_not_depend_on_threads() -> None:
    numbers = [repr(math.sin(number) * 10**6) for number in range(5000)]
    right = {"k": ["a"] * len(numbers), "v": numbers}
    means = {
        both({"k": ["a"]}, right, many="aggregate").to_arrow()["v_mean"][0].as_py() for _ in "123"
    }
    assert len(means) == 1
