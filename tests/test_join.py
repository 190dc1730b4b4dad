"""The join against a plain Python one, over ugly cells, hostile names and broken tables."""

from __future__ import annotations

import csv
import datetime
import gzip
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin.canonical import canonical
from deepjoin.columns import Reading, Table
from deepjoin.errors import DeepJoinError, UnknownName, UnreadableTable
from deepjoin.join import JoinPlan, Side, plan_join
from deepjoin.join.quote import identifier, literal

Cell = str | None
Columns = dict[str, list[Any]]

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


def table(name: str, *batches: Columns | pa.RecordBatch) -> Table:
    made = [
        batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch) for batch in batches
    ]
    return Table(name, lambda: Reading(iter(made)))


def text_batch(columns: dict[str, Sequence[Cell]]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(cells, pa.string()) for name, cells in columns.items()})


def scan_of(batch: pa.RecordBatch) -> str:
    """Return a DuckDB table expression with the rows of a batch of text."""
    names = ", ".join(identifier(name) for name in batch.schema.names)
    rows = [
        ", ".join("NULL" if c is None else f"CAST({literal(c)} AS VARCHAR)" for c in row.values())
        for row in batch.to_pylist()
    ]
    empty = ", ".join(["CAST(NULL AS VARCHAR)"] * batch.num_columns)
    listed = ", ".join(f"({row})" for row in [empty, *rows])
    return f"(SELECT * FROM (VALUES {listed}) AS t({names}) OFFSET 1)"


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
    assert all(row["matched_rows"] == len(_numbers(row["tag_values"])) for row in rows)
    return [(row["mine"], _numbers(row["tag_values"])) for row in rows]


def _numbers(values: str | None) -> list[int]:
    return sorted(int(value[1:]) for value in values.split("; ")) if values else []


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
        Side(table(name, batch), "cell", scan_of(batch) if scans else None)
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


def both(left: Columns, right: Columns, on: str = "k", key: str = "k", **options: Any) -> JoinPlan:
    sides = Side(table("orders.csv", left), on), Side(table("geo/cities.csv", right), key)
    return plan_join(*sides, **options)


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
        "name_values": "BRAZIL; brazil",
        "city_values": "Recife; Rio",
        "population_mean": 8.0,
        "since_values": "1537-03-12; 1565-03-01",
    }
    assert rows[2]["matched_rows"] == 0
    assert rows[2]["city_values"] is None


def test_aggregate_says_how_many_values_it_leaves_out() -> None:
    right = {"k": ["a"] * 25, "v": [f"v{number:02}" for number in range(25)]}
    values = both({"k": ["a"]}, right, many="aggregate").to_arrow()["v_values"][0].as_py()
    assert values.startswith("v00; v01; ")
    assert values.endswith("; v19; and 5 more")


def test_facts_and_the_warning_of_a_fan_out() -> None:
    plan = both(ORDERS, CITIES, "country", "name")
    facts = plan.facts
    assert (facts.left_rows, facts.right_rows, facts.result_rows) == (4, 4, 5)
    assert (facts.left_keys, facts.matched_keys, facts.matched_left_rows) == (3, 2, 2)
    assert (facts.cardinality, facts.max_fan_out) == ("1:n", 2)
    assert plan.warnings == (
        "4 rows become 5: 'BRAZIL' has 2 rows in geo/cities.csv. "
        "Use --many first or --many aggregate to keep one row per row of yours.",
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


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (pa.array([7, 8], pa.int32()), ["7.0", "+8"]),
        (pa.array([7.0, 7.5]), ["7", "7.50"]),
        (pa.array([1e15, 0.1]), ["1e+15", "0.1"]),
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
    ],
)  # fmt: skip
def test_typed_keys_match_their_text(cells: pa.Array, texts: list[str]) -> None:
    left, right = table("l", pa.record_batch({"k": cells})), table("r", {"t": texts})
    plan = plan_join(Side(left, "k"), Side(right, "t"), many="first")
    assert plan.to_arrow()["t"].null_count == 0
    assert plan.facts.matched_left_rows == len(cells)


def test_a_list_as_key_is_compared_as_text() -> None:
    cells = pa.record_batch({"k": [["a", "b"], ["c"]]})
    plan = plan_join(Side(table("l", cells), "k"), Side(table("r", {"t": ["[A, b]"]}), "t"))
    assert plan.facts.matched_left_rows == 1


def test_parquet_is_read_in_place(tmp_path: Path) -> None:
    data = pa.table({"k": list(range(100)), "v": [str(number) for number in range(100)]})
    pq.write_table(data, tmp_path / "right.parquet", row_group_size=10)
    scan = f"read_parquet({literal(str(tmp_path / 'right.parquet'))})"
    right = Side(table("right.parquet", *data.to_batches()), "k", scan)
    plan = plan_join(Side(table("l", {"k": ["99", "5", "x"]}), "k"), right)
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
    rows = plan_join(Side(left, "k"), Side(table("r", {"k": ["a"]}), "k")).to_arrow().to_pylist()
    assert [(row["k"], row["n"], row["late"]) for row in rows] == [
        ("a", "1", None),
        ("b", "two", "x"),
        ("c", None, "y"),
        ("d", None, None),
    ]


def test_empty_tables_join() -> None:
    nothing = text_batch({"k": []})
    assert (
        plan_join(Side(table("l", nothing), "k"), Side(table("r", nothing), "k")).facts.result_rows
        == 0
    )
    plan = both({"k": ["a"]}, {"k": pa.array([], pa.string())}, many="aggregate")
    assert plan.to_arrow().to_pylist() == [{"k": "a", "matched_rows": 0, "k_values": None}]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-20", "0", "", None], pa.int64()),
        (["999999999999999999"], pa.int64()),
        (["1000000000000000000"], pa.string()),
        (["007"], pa.string()),
        (["-0"], pa.float64()),
        (["1", "2.50", " "], pa.float64()),
        (["0.30000000000000004"], pa.float64()),
        (["0.300000000000000041"], pa.string()),
        (["1e5"], pa.string()),
        (["2020-01-05", ""], pa.date32()),
        (["2020-02-30"], pa.string()),
        (["", None], pa.string()),
        (["1", "x"], pa.string()),
        (["1"] * 3000 + ["x"], pa.string()),
    ],
)
def test_text_gets_the_type_it_has_throughout(cells: list[Cell], kind: pa.DataType) -> None:
    left = {"k": ["a"] * len(cells), "v": pa.array(cells, pa.string())}
    joined = both(left, {"k": ["b"]}).to_arrow()
    assert joined.schema.field("v").type == kind
    assert joined.schema.field("k").type == pa.string()


def test_keys_keep_their_spelling() -> None:
    joined = both({"k": ["7.0"]}, {"id": ["7"]}, key="id").to_arrow()
    assert joined.to_pylist() == [{"k": "7.0", "id": "7"}]


def test_clashing_names_get_the_name_of_the_right_table() -> None:
    left = {"k": ["a"], "Name": ["x"], "id_cities": ["y"], "id": ["z"]}
    right = {"K": ["A"], "name": ["1"], "name_cities": ["2"], "id": ["3"]}
    plan = both(left, right, key="K")
    assert plan.facts.renamed == {"K": "K_cities", "name": "name_cities_2", "id": "id_cities_2"}
    expected = [*left, "K_cities", "name_cities_2", "name_cities", "id_cities_2"]
    assert plan.to_arrow().column_names == expected


HOSTILE = [
    '"; DROP TABLE left_rows; --',
    "it's",
    "new\nline",
    "",
    " ",
    "nul\0byte",
    "k",
    "K",
    "_row",
    "_key",
    "key",
    "cell",
    "side",
    "spelling",
    "yours",
    "theirs",
    "matched_rows",
    "{cell}",
    "{value}",
    "%s",
    "select",
    "é",
    "É",
    "*",
    "a.b",
]


MANY = ("expand", "first", "aggregate")


@pytest.mark.parametrize(("at", "key"), list(enumerate(HOSTILE)))
def test_hostile_names(at: int, key: str) -> None:
    many = MANY[at % 3]
    batch = text_batch({name: ["5 Jan 2020", f"t{at}"] for at, name in enumerate(HOSTILE)})
    other = text_batch({name: ["2020-01-05", f"t{at}"] for at, name in enumerate(HOSTILE)})
    left, right = Side(table("l.csv", batch), key), Side(table('r";--.csv', other), key)
    with plan_join(left, right, many=many) as plan:
        joined = plan.to_arrow()
    names = [name.lower() for name in joined.column_names]
    assert len(set(names)) == len(names) == 2 * len(HOSTILE) + (many == "aggregate")
    assert plan.facts.matched_left_rows == 2
    assert joined.column(HOSTILE.index(key)).to_pylist()[0] == "5 Jan 2020"


def test_names_that_had_to_be_mended_are_told() -> None:
    plan = both({"k": ["a"], "": ["x"]}, {"k": ["a"]})
    assert plan.warnings == ("Column '' of orders.csv is called 'column' in the result.",)


def test_repeated_names_are_kept_apart() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"])
    plan = plan_join(Side(table("l", batch), "k"), Side(table("r", {"r": ["a"]}), "r"))
    assert plan.to_arrow().to_pylist() == [{"k": "a", "k_2": "b", "r": "a"}]


def test_thousands_of_columns() -> None:
    wide = {f"c{number}": ["1", "x"] for number in range(2_000)}
    plan = both({"k": ["X", "z"]}, wide, key="c1999")
    joined = plan.preview()
    assert joined.num_columns == 2_001
    assert joined["c0"].to_pylist() == ["x", None]


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_unknown_column_is_named_with_the_nearest(side: str) -> None:
    sides = {
        "left": Side(table("l", {"k": ["a"]}), "k"),
        "right": Side(table("r", {"k": ["a"]}), "k"),
    }
    sides[side] = Side(table("orders.csv", {"customer": ["a"]}), "custmer")
    with pytest.raises(UnknownName, match=r"No column 'custmer' in orders.csv\. .*'customer'\?"):
        plan_join(**sides)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "outer"}, r"^Unknown how 'outer'\. Allowed: left, inner\.$"),
        ({"many": "all"}, r"^Unknown many 'all'\. Allowed: expand, first, aggregate\.$"),
        ({"profile": "raw"}, r"^Unknown profile 'raw'\. Allowed: default, basic\.$"),
        ({"memory_limit": "much"}, r"^memory_limit is 'much'; it must be a size such as '4GB'\.$"),
    ],
)
def test_unknown_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(DeepJoinError, match=message):
        both({"k": ["a"]}, {"k": ["a"]}, **options)


def broken() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"k": ["a"]})
    raise UnreadableTable("bad.csv ends within a quoted cell at line 3.")


def test_an_unreadable_table_says_so_itself() -> None:
    bad = Side(Table("bad.csv", lambda: Reading(broken())), "k")
    with pytest.raises(UnreadableTable, match=r"^bad\.csv ends within"):
        plan_join(Side(table("l", {"k": ["a"]}), "k"), bad)


def test_a_scan_that_fails_names_the_table() -> None:
    bad = Side(table("gone.csv", {"k": ["a"]}), "k", "read_csv('/nowhere/gone.csv')")
    with pytest.raises(UnreadableTable, match=r"^DuckDB cannot read gone\.csv: .*No files found"):
        plan_join(bad, Side(table("r", {"k": ["a"]}), "k"))


def test_a_closed_plan_says_so() -> None:
    with both({"k": ["a"]}, {"k": ["a"]}) as plan:
        pass
    with pytest.raises(DeepJoinError, match=r"^This join is closed\. Call plan_join again"):
        plan.to_arrow()


def test_batches_outlive_the_plan() -> None:
    batches = both({"k": ["a"]}, {"k": ["a"]}).batches()
    assert batches.read_all().num_rows == 1


def test_nothing_stays_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with both({"k": ["a"]}, {"k": ["a"]}) as plan:
        assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(UnknownName):
        both({"k": ["a"]}, {"k": ["a"]}, key="none")
    assert plan.facts.result_rows == 1
    assert list(tmp_path.iterdir()) == []


TEXT_ROWS = [["id", "k", "k_cities", "v"], ["01", "a", "A", "2.50"], ["02", "b", "", ""]]


def text_plan() -> JoinPlan:
    return both({"id": ["01", "02"], "k": ["a", "b"]}, {"k": ["A"], "v": ["2.50"]})


@pytest.mark.parametrize(
    ("name", "delimiter"), [("x.csv", ","), ("x.CSV", ","), ("x.csv.gz", ","), ("x.tsv", "\t")]
)
def test_text_files_keep_the_cells_as_they_were(name: str, delimiter: str, tmp_path: Path) -> None:
    assert text_plan().write(tmp_path / name) == 2
    content = (tmp_path / name).read_bytes()
    text = (gzip.decompress(content) if name.endswith("gz") else content).decode()
    assert list(csv.reader(text.splitlines(), delimiter=delimiter)) == TEXT_ROWS


def test_parquet_gets_types_and_is_the_same_twice(tmp_path: Path) -> None:
    plan = text_plan()
    assert plan.write(tmp_path / "x.parquet") == 2
    first = (tmp_path / "x.parquet").read_bytes()
    assert plan.write(str(tmp_path / "x.parquet")) == 2
    assert (tmp_path / "x.parquet").read_bytes() == first
    assert pq.read_table(tmp_path / "x.parquet")["v"].to_pylist() == [2.5, None]
    assert plan.unmatched().write(tmp_path / "none.csv") == 1
    assert (tmp_path / "none.csv").read_text() == "id,k\n02,b\n"


def test_an_unknown_ending_names_the_known(tmp_path: Path) -> None:
    message = r"Cannot write x\.xlsx: its ending must be one of \.parquet, \.csv, \.csv\.gz,"
    with pytest.raises(DeepJoinError, match=message):
        text_plan().write(tmp_path / "x.xlsx")


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match=r"^Cannot write .*x\.csv: No such file or directory\."):
        text_plan().write(tmp_path / "none" / "x.csv")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_write_that_is_stopped_leaves_the_old_file(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text("old")

    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(error):
        text_plan().write(tmp_path / "x.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "old"


def test_an_interrupt_inside_duckdb_is_one_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = text_plan()

    def interrupted(_: object) -> None:
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr("deepjoin.join.session.Session.cursor", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan.to_arrow()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    os.symlink(tmp_path / "target.csv", tmp_path / "link.csv")
    text_plan().write(tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").exists()


def test_a_small_memory_limit_is_enough() -> None:
    cells = [f"cell {number}" for number in range(20_000)]
    plan = both({"k": cells}, {"k": [cell.upper() for cell in cells]}, memory_limit="64MB")
    assert plan.to_arrow()["k_cities"].null_count == 0


def as_text(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Write every cell as text, since pandas and Arrow differ in their words for nothing."""
    return [["" if pd.isna(cell) else str(cell) for cell in row.values()] for row in rows]


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_pandas_code_gives_the_same(how: str, many: str) -> None:
    right = CITIES | {"id": ["9", "8", "7", "6"]}
    plan = both(ORDERS, right, "country", "name", how=how, many=many)
    scope: dict[str, Any] = {"yours": pd.DataFrame(ORDERS), "theirs": pd.DataFrame(right)}
    exec(plan.pandas_code, scope)
    assert list(scope["joined"].columns) == plan.to_arrow().column_names
    expected = plan._session.table(plan._query(False)).to_pylist()
    assert as_text(scope["joined"].to_dict("records")) == as_text(expected)


def test_means_do_not_depend_on_threads() -> None:
    numbers = [repr(math.sin(number) * 10**6) for number in range(5000)]
    right = {"k": ["a"] * len(numbers), "v": numbers}
    means = {
        both({"k": ["a"]}, right, many="aggregate").to_arrow()["v_mean"][0].as_py() for _ in "123"
    }
    assert len(means) == 1
