"""What a join gives: types, names, files, and errors that help."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepjoin.errors import DeepJoinError, ResourceLimit, UnknownName, UnreadableTable
from deepjoin.joining import JoinPlan, JoinSide, plan_join
from deepjoin.model import Reading, Table
from deepjoin.settings import JoinSettings
from tests.support.command_line import call
from tests.support.join_tables import HOSTILE, Cell, both, table, text_batch


@pytest.mark.slow
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
        (["1e-05", "-2.5E+20", "7", ""], pa.float64()),
        (["1.0"] * 3000 + ["1e-05"], pa.float64()),
        (["1.2310030531707026e-05"], pa.float64()),
        (["1.23450000000000000e-05"], pa.string()),
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


MANY = ("expand", "first", "aggregate")


@pytest.mark.slow
@pytest.mark.parametrize(("at", "key"), list(enumerate(HOSTILE)))
def test_hostile_names(at: int, key: str) -> None:
    many = MANY[at % 3]
    batch = text_batch({name: ["5 Jan 2020", f"t{at}"] for at, name in enumerate(HOSTILE)})
    other = text_batch({name: ["2020-01-05", f"t{at}"] for at, name in enumerate(HOSTILE)})
    left, right = JoinSide(table("l.csv", batch), key), JoinSide(table('r";--.csv', other), key)
    with plan_join(left, right, many=many) as plan:
        joined = plan.to_arrow()
    names = [name.lower() for name in joined.column_names]
    assert len(set(names)) == len(names) == 2 * len(HOSTILE) + (many == "aggregate")
    assert plan.facts.matched_left_rows == 2
    assert joined.column(HOSTILE.index(key)).to_pylist()[0] == "5 Jan 2020"


def test_names_that_had_to_be_mended_are_reported() -> None:
    plan = both({"k": ["a"], "": ["x"]}, {"k": ["a"]})
    assert plan.warnings == ("Column '' of orders.csv is called 'column' in the result.",)


@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_pandas_code_overwrites_no_column(many: str) -> None:
    left, right = {"k": ["a"], "_key": ["x"]}, {"k": ["a"], "_KEY": ["y"], "_key_2": ["z"]}
    plan = both(left, right, many=many)
    scope: dict[str, Any] = {"yours": pd.DataFrame(left), "theirs": pd.DataFrame(right)}
    exec(plan.pandas_code, scope)
    assert scope["joined"].to_dict("list") == plan.to_arrow().to_pydict()


def test_repeated_names_are_kept_apart() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"])
    plan = plan_join(JoinSide(table("l", batch), "k"), JoinSide(table("r", {"r": ["a"]}), "r"))
    assert plan.to_arrow().to_pylist() == [{"k": "a", "k_2": "b", "r": "a"}]


@pytest.mark.slow
def test_thousands_of_columns() -> None:
    wide = {f"c{number}": ["1", "x"] for number in range(2_000)}
    plan = both({"k": ["X", "z"]}, wide, key="c1999")
    joined = plan.preview()
    assert joined.num_columns == 2_001
    assert joined["c0"].to_pylist() == ["x", None]


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_unknown_column_is_named_with_the_nearest(side: str) -> None:
    sides = {
        "left": JoinSide(table("l", {"k": ["a"]}), "k"),
        "right": JoinSide(table("r", {"k": ["a"]}), "k"),
    }
    sides[side] = JoinSide(table("orders.csv", {"customer": ["a"]}), "custmer")
    with pytest.raises(UnknownName, match=r"No column 'custmer' in orders.csv\. .*'customer'\?"):
        plan_join(**sides)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "outer"}, r"^Unknown how 'outer'\. Allowed: left, inner\.$"),
        ({"many": "all"}, r"^Unknown many 'all'\. Allowed: expand, first, aggregate\.$"),
        ({"profile": "raw"}, r"^Unknown profile 'raw'\. Allowed: default, basic\.$"),
        (
            {"settings": JoinSettings(memory_limit="much")},
            r"^`memory_limit` is 'much'; it must be a size such as '4GB'\.$",
        ),
    ],
)
def test_unknown_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepJoinError, match=message):
        both({"k": ["a"]}, {"k": ["a"]}, **options)


def broken() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"k": ["a"]})
    raise UnreadableTable("bad.csv ends within a quoted cell at line 3.")


def test_an_unreadable_table_says_so_itself() -> None:
    bad = JoinSide(Table("bad.csv", lambda: Reading(broken())), "k")
    with pytest.raises(UnreadableTable, match=r"^bad\.csv ends within"):
        plan_join(JoinSide(table("l", {"k": ["a"]}), "k"), bad)


def test_a_scan_that_fails_names_the_table() -> None:
    bad = JoinSide(table("gone.csv", {"k": ["a"]}), "k", "read_csv('/nowhere/gone.csv')")
    with pytest.raises(UnreadableTable, match=r"^DuckDB cannot read gone\.csv: .*No files found"):
        plan_join(bad, JoinSide(table("r", {"k": ["a"]}), "k"))


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
    plan, cursor = text_plan(), MagicMock()
    cursor.__enter__.return_value.sql.side_effect = RuntimeError("Query interrupted")
    monkeypatch.setattr("deepjoin.joining.session.Session.cursor", lambda _: cursor)
    with pytest.raises(KeyboardInterrupt):
        plan.to_arrow()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    os.symlink(tmp_path / "target.csv", tmp_path / "link.csv")
    text_plan().write(tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").exists()


def test_too_little_memory_to_write_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise duckdb.OutOfMemoryException("Out of Memory Error: no block left\nmore of it")

    plan = both({"k": ["a"]}, {"k": ["a"]})
    monkeypatch.setattr(plan.session, "run", fails)
    with pytest.raises(ResourceLimit, match=r"^The join does not fit its memory limit\. Bring"):
        plan.write(tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_memory_limit_from_the_shell(
    capsys: pytest.CaptureFixture[str], lake_folder: Path
) -> None:
    join = ("join", lake_folder, lake_folder.parent / "orders.csv", "-c", "customer_country")
    target = ("--with", "geo/countries.csv:country", "--join", "equi")
    assert call(capsys, *join, *target, "--memory", "100M").status == 0
    answer = call(capsys, *join, *target, "--memory", "4K")
    assert answer.status == 1
    assert answer.err.startswith("deepjoin: The join does not fit its memory limit of 1.0 MiB. ")
    assert answer.err.endswith("Bring fewer --columns, or raise --memory.\n")


def test_a_small_memory_limit_is_enough() -> None:
    cells = [f"cell {number}" for number in range(20_000)]
    plan = both(
        {"k": cells},
        {"k": [cell.upper() for cell in cells]},
        settings=JoinSettings(memory_limit="64MB"),
    )
    assert plan.to_arrow()["k_cities"].null_count == 0
