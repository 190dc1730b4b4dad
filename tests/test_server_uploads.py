"""Tables that clients bring, and the joins made of them."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import os
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin.joining import JoinSide, plan_join
from deepjoin.joining.output import JoinTooLarge
from deepjoin.joining.session import Session
from deepjoin.model import Column, Reading, Table
from deepjoin.read.corpus import write_corpus
from deepjoin.read.frames import frame_table
from deepjoin.serve.http import describing, trial
from deepjoin.serve.http import uploads as uploads_module
from deepjoin.serve.http.problems import Busy, TooSlow
from tests.support.serving import COUNTRIES, HIT, Served, serving


@pytest.fixture
def served(lake_folder: Path) -> Iterator[Served]:
    with serving(lake_folder) as one:
        yield one


def joined(served: Served, **more: Any) -> dict[str, Any]:
    """Write a join of the orders with the countries."""
    return {"left": {"upload": served.orders()}, "on": "customer_country", "hit": HIT} | more


def test_a_file_is_described_and_searched_with(served: Served) -> None:
    detail = served.upload(b"id;land\n1;Peru\n2; PERU\n3;\n4;Italy\n", r"C:\tables\my orders.csv")
    assert (detail["name"], detail["rows"]) == ("my orders.csv", 4)
    land = detail["columns"][1]
    assert (land["name"], land["distinct"], land["filled"]) == ("land", 2, 0.75)
    assert land["samples"] == ["Peru", " PERU", "Italy"]
    assert detail["best_keys"] == ["land", "id"]
    assert detail["columns"][0]["generic"] == "run"
    assert detail["sample"][2] == {"id": "3", "land": None}
    query = {"upload": detail["upload"], "column": "land"}
    found = served.post("/api/search", {"query": query, "join": "equi"})
    assert found["query"]["size"] == 2
    assert found["hits"][0]["table"] == COUNTRIES


def test_a_long_table_is_described_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [["Peru", "peru ", None, ""], ["Italy", "Peru"], ["7", "Chile"], ["Italy", "x"]]

    def described(some: int, many: int) -> tuple[Any, ...]:
        monkeypatch.setattr(describing, "_SOME", some)
        monkeypatch.setattr(describing, "_MANY", many)
        made = (pa.record_batch({"land": pa.array(cells, pa.string())}) for cells in batches)
        detail = describing.describe_file(Table("t", lambda: Reading(made)), 10, 1000)
        (column,) = detail.columns
        return tuple(getattr(column, name) for name in ("distinct", "filled", "type", "samples"))

    whole = described(100, 100)
    assert whole == (5, 0.8, "text", ["Peru", "peru ", "Italy", "7", "Chile"])
    assert described(0, 100) == whole
    assert described(0, 2)[0] == 6, "of very many, spellings are counted, blank ones too"


@pytest.mark.slow
def test_other_formats_come_as_well(served: Served) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"land": ["Peru", None], "n": [1, 2], "l": [[1], [2]]}), buffer)
    detail = served.upload(buffer.getvalue(), "no ending")
    assert [column["type"] for column in detail["columns"]] == ["text", "integer", "text"]
    assert detail["columns"][2]["left_out"] == "nested"
    detail = served.upload(b'{"land": "Peru"}\n{"land": "Italy", "more": 1}\n', "x.jsonl")
    assert [column["name"] for column in detail["columns"]] == ["land", "more"]


@pytest.mark.slow
def test_pasted_values_are_a_table_of_one_column(served: Served) -> None:
    detail = served.post("/api/uploads/values", {"values": ["Peru", "Italy"], "name": "land"})
    assert [column["name"] for column in detail["columns"]] == ["land"]
    again = served.get(f"/api/uploads/{detail['upload']}")
    assert again | {"expires_in": 0} == detail | {"expires_in": 0}
    asked = {"left": {"upload": detail["upload"]}, "on": "land", "hit": HIT}
    assert served.post("/api/join/preview", asked)["facts"]["matched_keys"] == 2


@pytest.mark.slow
def test_pasted_values_without_a_name_are_ranked_as_a_list_is(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    lands = ["France", "Peru", "Italy", "Spain", "Chad"]
    for table, name in {"a.csv": "land", "b.csv": "values"}.items():
        (folder / table).write_text("\n".join([name, *lands]) + "\n")
    with serving(folder) as served:
        listed = served.service.current.lake.search(lands[:3])
        upload = served.post("/api/uploads/values", {"values": lands[:3]})["upload"]
        query = {"upload": upload, "column": "values"}
        found = served.post("/api/search", {"query": query})["hits"]
        assert (
            [hit["table"] for hit in found] == [hit.table for hit in listed] == ["a.csv", "b.csv"]
        )
        assert [hit["score"] for hit in found] == [hit.score for hit in listed]
        named = served.post("/api/uploads/values", {"values": lands[:3], "name": "values"})
        found = served.post("/api/search", {"query": query | {"upload": named["upload"]}})
        assert found["hits"][0]["table"] == "b.csv"


@pytest.mark.slow
def test_a_join_is_kept_to_go_on_with(served: Served) -> None:
    asked = joined(served)
    kept = served.post("/api/join/keep", asked)
    assert kept["name"] == "orders-joined-with-countries.parquet"
    shown = served.post("/api/join/preview", asked)
    assert [one["name"] for one in kept["columns"]] == [one["name"] for one in shown["columns"]]
    cities = {"table": "geo/cities.csv", "column": "nation"}
    further = {"left": {"upload": kept["upload"]}, "on": "country", "hit": cities}
    assert served.post("/api/join/preview", further)["facts"]["matched_keys"] > 0
    with serving(served.service.current.lake.path.parent, max_rows=2) as small:
        refused = small.post(
            "/api/join/keep", asked | {"left": {"table": "geo/cities.csv"}, "on": "nation"}, 413
        )
        assert "the limit is 2" in refused["error"]
        assert len(list(small.service.uploads._folder.glob("*.parquet"))) == 1


@pytest.mark.slow
def test_an_upload_can_be_forgotten_and_expires(served: Served) -> None:
    first, second = served.orders(), served.orders()
    assert served.client.delete(f"/api/uploads/{first}").status_code == 204
    assert "No such upload" in served.get(f"/api/uploads/{first}", 404)["error"]
    uploads = served.service.uploads
    for path in uploads._folder.iterdir():
        os.utime(path, (1, 1))
    assert "it has expired" in served.get(f"/api/uploads/{second}", 404)["error"]
    uploads.expire()
    assert list(uploads._folder.iterdir()) == []


@pytest.mark.slow
def test_the_hour_of_an_upload_starts_when_it_is_whole(served: Served) -> None:
    token, uploads = served.orders(), served.service.uploads
    os.utime(uploads._folder / f"{token}.csv", (1, 1))
    uploads.expire()
    asked = {"left": {"upload": token}, "on": "customer_country", "hit": HIT}
    assert served.post("/api/join/preview", asked)["rows"]


@pytest.mark.slow
def test_an_upload_that_has_vanished_is_not_found(served: Served) -> None:
    token = served.orders()
    (served.service.uploads._folder / f"{token}.csv").unlink()
    asked = {"left": {"upload": token}, "on": "customer_country", "hit": HIT}
    assert "No such upload" in served.post("/api/join/preview", asked, 404)["error"]
    query = {"query": {"upload": token, "column": "customer_country"}}
    assert "No such upload" in served.post("/api/search", query, 404)["error"]


def test_uploads_are_private_and_no_name_of_a_client_is_a_path(served: Served) -> None:
    before = set(served.service.settings.folder.parent.rglob("*"))
    token = served.upload(b"a\nb\n", "../../../evil.csv")["upload"]
    new = set(served.service.settings.folder.parent.rglob("*")) - before
    folder = served.service.settings.folder / "uploads"
    assert {path.name for path in new} == {f"{token}.csv", f"{token}.about"}
    assert {path.parent for path in new} == {folder}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in new} == {0o600}


@pytest.mark.slow
def test_an_upload_in_a_lake_of_another_name_is_no_path(served: Served) -> None:
    """A table is only ever one the lake has, whatever files there are."""
    here = str(served.service.settings.folder.parent / "orders.csv")
    asked = {"left": {"table": here}, "on": "order", "hit": HIT}
    refused = served.post("/api/join/preview", asked, 400)["error"]
    assert refused.startswith(f"No table '{here}' in ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "name", "status", "text"),
    [
        (b"", "x.csv", 400, "The uploaded file is empty"),
        (b"PK\x03\x04nonsense", "x.xlsx", 400, "x.xlsx is not a readable workbook"),
        (b"PAR1 and no more", "x.parquet", 400, "x.parquet"),
        (b"a\n" + b"b\n" * 300, "x.csv", 413, "The request is larger than 500 bytes"),
        (b"a\n" + b"b\n" * 60, "x.csv", 413, "more than 50 rows"),
    ],
)
def test_what_cannot_be_taken_leaves_nothing(
    lake_folder: Path, content: bytes, name: str, status: int, text: str
) -> None:
    with serving(lake_folder, max_upload=500, max_rows=50) as served:
        refused = served.upload(content, name, status)["error"]
        assert text in refused
        assert str(served.service.settings.folder) not in refused
        assert list(served.service.uploads._folder.iterdir()) == []


def bomb(kind: str) -> bytes:
    """Make a small file that asks for gigabytes."""
    buffer = io.BytesIO()
    if kind == "xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        book.active["A1"], book.active["XFD1048576"] = "land", "Peru"
        book.save(buffer)
    elif kind == "parquet":
        long = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["x" * (1 << 20)])
        pq.write_table(pa.table({"land": long}), buffer)
    else:
        buffer.write(gzip.compress(b"land\n" + b"x" * 12_000_000))
    return buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xlsx", "parquet", "csv.gz"])
def test_what_unpacks_to_too_much_is_refused(lake_folder: Path, kind: str) -> None:
    with serving(lake_folder, max_upload=1_000_000) as served:
        refused = served.upload(bomb(kind), f"x.{kind}", 413)["error"]
        assert refused.startswith("The file unpacks to more than 10,000,000 bytes")
        assert list(served.service.uploads._folder.iterdir()) == []


@pytest.mark.slow
def test_a_workbook_is_tried_and_then_read(served: Served) -> None:
    book, buffer = pytest.importorskip("openpyxl").Workbook(), io.BytesIO()
    for row in (["land"], ["Peru"], ["Italy"]):
        book.active.append(row)
    book.save(buffer)
    assert served.upload(buffer.getvalue(), "x.xlsx")["columns"][0]["samples"] == ["Peru", "Italy"]


def test_a_file_is_tried_for_so_long(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"land": ["Peru"]}), path)
    with pytest.raises(TooSlow, match="Reading the file took longer than 0 seconds"):
        trial.try_to_read(path, 1000, 0)


@pytest.mark.slow
def test_uploads_together_have_a_limit(lake_folder: Path) -> None:
    with serving(lake_folder, max_upload=200) as served:
        while (answer := _brought(served)).status_code == 200:
            pass
        assert answer.status_code == 503
        assert "has no room for more uploads" in answer.json()["error"]


def _brought(served: Served) -> Any:
    return served.client.post("/api/uploads?filename=x.csv", content=b"a\n" + b"b\n" * 90)


@pytest.mark.slow
def test_all_uploads_are_counted_while_one_comes(lake_folder: Path) -> None:
    with serving(lake_folder, max_upload=1600) as served:
        uploads = served.service.uploads

        async def blocks() -> AsyncIterator[bytes]:
            for number in range(15):
                if number == 3:  # others came meanwhile
                    (uploads._folder / "other").write_bytes(bytes(20 * 1600))
                yield b"x" * 101

        with pytest.raises(Busy, match="has no room for more uploads"):
            asyncio.run(uploads.receive("x.csv", blocks()))
        assert [path.name for path in uploads._folder.iterdir()] == ["other"]


@pytest.mark.slow
def test_an_upload_that_has_no_turn_leaves_nothing(lake_folder: Path) -> None:
    with serving(lake_folder, heavy_threads=1, heavy_waiting=0) as served:
        served.service._heavy.held = 1
        assert "The service is busy" in served.upload(b"a\nb\n", "x.csv", 503)["error"]
        assert list(served.service.uploads._folder.iterdir()) == []


@pytest.mark.slow
def test_an_upload_that_takes_too_long_leaves_nothing(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, real = threading.Event(), uploads_module.describe_file

    def waits(*given: Any) -> Any:
        go.wait()
        return real(*given)

    monkeypatch.setattr(uploads_module, "describe_file", lambda *given: waits(*given))
    with serving(lake_folder, seconds=0.05) as served:
        assert "The request took longer" in served.upload(b"a\nb\n", "x.csv", 408)["error"]
        folder = served.service.uploads._folder
        assert list(folder.iterdir()) == []
        go.set()
        served.service._heavy._pool.shutdown()
        assert list(folder.iterdir()) == [], "nor when it is done"


@pytest.mark.slow
def test_a_preview_has_facts_and_code_that_does_the_same(served: Served) -> None:
    shown = served.post("/api/join/preview", joined(served, rows=2))
    assert [column["from"] for column in shown["columns"]] == ["left"] * 3 + ["right"] * 3
    assert shown["rows"][0] == ["1", " france", "10", "France", "Paris", "68"]
    assert shown["facts"]["renamed"] == {"population": "population_countries"}
    assert shown["facts"]["result_rows"] == 6
    assert "orders.csv" in shown["sql"]
    private = str(served.service.settings.folder)
    assert all(private not in shown[form] for form in ("sql", "python", "pandas", "shell"))


@pytest.mark.slow
def test_a_hit_by_meaning_joins_unless_only_equal_values_are_wanted(lake_folder: Path) -> None:
    firms = "Acme Holdings Ltd,c\nAcme Holdings Inc,d\nCobalt Foods,e\n"
    codes = "name,code\nBorealis Optics,a\nDune Air,b\n" + firms
    (lake_folder.parent / "tables" / "codes.csv").parent.mkdir(exist_ok=True)
    (lake_folder.parent / "tables" / "codes.csv").write_text(codes)
    deepjoin.index(lake_folder.parent / "tables")
    with serving(lake_folder.parent / "tables") as served:
        upload = served.upload(b"k\nBorealis\nDune\nAcme Holdings\n", "x.csv")["upload"]
        hit = {"table": "codes.csv", "column": "name"}
        asked = {"left": {"upload": upload}, "on": "k", "hit": hit, "columns": ["code"]}
        shown = served.post("/api/join/preview", asked)
        assert [column["name"] for column in shown["columns"]] == [
            *("k", "similarity", "alternatives", "code")
        ]
        # Either firm is about as likely; the likelier one joins, the other is an alternative.
        *sure, likelier = [row[-1] for row in shown["rows"]]
        assert sure == ["a", "b"] and likelier in ("c", "d")
        facts = shown["facts"]
        assert (facts["join"], facts["matched_left_rows"]) == ("any", 2)
        assert (facts["ambiguous_left_rows"], facts["alternatives"]) == (1, "alternatives")
        assert sorted(facts["several"][0]["targets"]) == ["Acme Holdings Inc", "Acme Holdings Ltd"]
        assert "columns=['code']" in shown["python"] and "join=" not in shown["python"]
        equal = served.post("/api/join/preview", asked | {"join": "equi"})
        assert equal["facts"]["matched_left_rows"] == 0
        assert "--join=equi --columns=code" in equal["shell"]


@pytest.mark.slow
def test_aggregates_and_the_code_that_names_them(served: Served) -> None:
    aggregate = {"*": "list", "population": "max", "capital": "first"}
    shown = served.post("/api/join/preview", joined(served, join="equi", aggregate=aggregate))
    assert [column["name"] for column in shown["columns"]][3:] == [
        *("matched_rows", "country_list", "capital_first", "population_max")
    ]
    assert "--aggregate=list,population=max,capital=first" in shown["shell"]
    assert f"aggregate={aggregate!r}" in shown["python"]


@pytest.mark.slow
def test_long_cells_are_cut_in_a_preview_and_whole_in_a_download(served: Served) -> None:
    long = {"upload": served.upload(b"x,y\nPeru," + b"z" * 10_001 + b"\n", "x.csv")["upload"]}
    asked = {"left": long, "on": "x", "hit": HIT}
    shown = served.post("/api/join/preview", asked)
    assert shown["rows"][0][1] == "z" * 10_000 + "…"
    cut = "Cells are cut to 10,000 characters here; the download has all of them."
    assert cut in shown["warnings"]
    assert "z" * 10_001 in served.client.post("/api/join/download", json=asked).text
    assert cut not in served.post("/api/join/preview", joined(served))["warnings"]


@pytest.mark.slow
def test_the_code_of_a_preview_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch, lake_folder: Path
) -> None:
    shown = served.post("/api/join/preview", joined(served))
    monkeypatch.chdir(lake_folder.parent)
    by_sql = duckdb.sql(shown["sql"]).fetchall()
    names: dict[str, Any] = {}
    exec(shown["python"], names)
    by_python = names["joined"].to_pylist()
    assert [row["capital"] for row in by_python] == [row[4] for row in by_sql]
    assert [row[4] for row in by_sql] == [row[4] for row in shown["rows"]]
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert os.system(shown["shell"] + " 2>/dev/null") == 0
    assert pq.read_table("joined.parquet").to_pylist() == by_python


def test_names_with_quotes_and_dashes_stay_names(served: Served) -> None:
    content = b"x'y,-z\nPeru,1\n"
    upload = served.upload(content, "--it's $(here).csv")["upload"]
    asked = {"left": {"upload": upload}, "on": "x'y", "hit": HIT, "many": "first", "how": "inner"}
    shown = served.post("/api/join/preview", asked)
    assert "'--it''s $(here).csv'" in shown["sql"]
    assert """'./--it'"'"'s $(here).csv'""" in shown["shell"]
    assert "--how=inner --many=first" in shown["shell"]


def test_names_that_would_move_the_cursor_are_shown(served: Served) -> None:
    name = "a\x1b[2J\u202e'b\nc.csv"
    upload = served.upload(b"x\nPeru\n", name)["upload"]
    shown = served.post("/api/join/preview", {"left": {"upload": upload}, "on": "x", "hit": HIT})
    assert shown["shell"].isprintable()
    assert shown["python"].replace("\n", "").isprintable()
    word = shown["shell"].partition("/.deepjoin ")[2].rpartition(" --column=")[0]
    printed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert printed.stdout.decode() == name


@pytest.mark.slow
def test_columns_of_one_name_are_distinguished(tmp_path: Path) -> None:
    first, second = ["Peru", "Italy", *"abc"], ["Oslo", "Lima", *"xyz"]
    columns = [Column(first, "c", "t", column_id="t#0"), Column(second, "c", "t", column_id="t#1")]
    write_corpus(tmp_path / "lake" / "corpus", iter(columns))
    with serving(tmp_path / "lake" / "corpus") as served:
        detail = served.get("/api/table", name="t")
        assert [column["samples"][0] for column in detail["columns"]] == ["Peru", "Oslo"]
        upload = served.post("/api/uploads/values", {"values": ["Lima"], "name": "k"})["upload"]
        hit = {"table": "t", "column": "c", "column_id": "t#1"}
        asked = {"left": {"upload": upload}, "on": "k", "hit": hit}
        shown = served.post("/api/join/preview", asked)
        assert shown["facts"]["matched_keys"] == 1
        assert "hit=('t', 'c_2')" in shown["python"]
        assert "--with=t:c_2" in shown["shell"]


def test_a_semantic_join_says_how_similar(served: Served) -> None:
    values = {"values": ["Republic of Peru", "Italy"], "name": "land"}
    upload = served.post("/api/uploads/values", values)["upload"]
    asked = {"left": {"upload": upload}, "on": "land", "hit": HIT, "join": "semantic"}
    shown = served.post("/api/join/preview", asked)
    assert shown["facts"]["join"] == "semantic"
    similarity = shown["columns"][1]
    assert similarity == {"name": "similarity", "from": "right", "type": "decimal"}
    assert "join='semantic'" in shown["python"]


@pytest.mark.slow
def test_a_download_is_the_join_of_the_library(served: Served, lake_folder: Path) -> None:
    asked = joined(served)
    answer = served.client.post("/api/join/download?format=parquet", json=asked)
    name = "orders-joined-with-countries.parquet"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    table = pq.read_table(io.BytesIO(answer.content))
    lake = deepjoin.open(lake_folder / ".deepjoin")
    orders = lake_folder.parent / "orders.csv"
    expected = lake.join(orders, "customer_country", (COUNTRIES, "country"))
    assert table.to_pylist() == expected.to_pylist()
    answer = served.client.post("/api/join/download", json=asked)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert next(row["capital"] for row in csv.DictReader(io.StringIO(answer.text))) == "Paris"
    assert list((served.service.settings.folder / "answers").iterdir()) == []


def test_a_table_of_the_lake_can_be_the_left_one(served: Served) -> None:
    asked = {"left": {"table": "geo/cities.csv"}, "on": "nation", "hit": HIT}
    shown = served.post("/api/join/preview", asked)
    assert shown["facts"]["matched_left_rows"] == 8
    assert "cities.csv" in shown["sql"]
    assert "lake.join('geo/cities.csv', on='nation'" in shown["python"]


@pytest.mark.slow
def test_formulas_can_be_made_text(served: Served) -> None:
    content = b'=land,n\n"=cmd|x",-5\n+Peru,+1.5e3\n-x,-\n@a,1\n"\ttab",2\nplain,3\n'
    content += "＝1+1,4\n﹢x,－5\n".encode()
    upload = served.upload(content, "x.csv")["upload"]
    asked = {"left": {"upload": upload}, "on": "=land", "hit": HIT, "join": "equi"}
    plain = served.client.post("/api/join/download", json=asked).text
    neutral = served.client.post("/api/join/download?neutralise=true", json=asked).text
    assert plain.startswith("=land,n,capital")
    rows = list(csv.reader(io.StringIO(neutral)))
    assert rows[0][:2] == ["'=land", "n"]
    texts = ["'=cmd|x", "'+Peru", "'-x", "'@a", "'\ttab", "plain", "'＝1+1", "'﹢x"]
    assert [row[0] for row in rows[1:]] == texts
    assert [row[1] for row in rows[1:]] == ["-5", "+1.5e3", "'-", "1", "2", "3", "4", "'－5"]
    refused = served.post("/api/join/download?format=parquet&neutralise=true", asked, 400)
    assert "neutralise works for format=csv only" in refused["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"on": "nope"}, 400, "No column 'nope' in orders.csv."),
        ({"hit": {"table": COUNTRIES, "column": "nope"}}, 400, f"No column 'nope' in {COUNTRIES}."),
        ({"left": {"upload": "0" * 32}}, 404, "No such upload"),
        ({"tau": 0.5, "join": "equi"}, 400, "tau and matching are for similar values"),
        ({"columns": ["nope"]}, 400, f"No column 'nope' in {COUNTRIES}."),
        ({"aggregate": "median"}, 422, "Input should be 'first', 'count'"),
        ({"aggregate": "sum", "many": "first"}, 400, "aggregate came with many=first; leave one"),
        ({"how": "outer"}, 422, "Input should be 'left' or 'inner'"),
        ({"rows": 201}, 400, "rows is 201; a preview has at most 200."),
    ],
)
def test_a_join_that_cannot_be_is_refused(
    served: Served, change: dict[str, Any], status: int, text: str
) -> None:
    refused = served.post("/api/join/preview", joined(served) | change, status)
    assert text in refused["error"]


@pytest.mark.slow
def test_joins_share_the_memory_of_the_machine(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.serve.http.settings._physical_memory", lambda: 24 << 30)
    with serving(lake_folder, workers=4, heavy_threads=2) as served:
        settings = served.service.settings
        assert (settings.join_memory, replace(settings, workers=0).join_memory) == (
            *("3072MiB", "12288MiB"),
        )
        limits: list[str | None] = []
        real = Session.__init__

        def noted(self: Session, memory_limit: str | None = None) -> None:
            limits.append(memory_limit)
            real(self, memory_limit)

        monkeypatch.setattr(Session, "__init__", noted)
        served.post("/api/join/preview", joined(served))
        assert limits == ["3072MiB"]


@pytest.mark.slow
def test_a_join_with_too_many_rows_is_refused(lake_folder: Path) -> None:
    with serving(lake_folder, max_rows=7) as served:
        left = served.upload(b"land\n" + b"Italy\n" * 6, "x.csv")["upload"]
        asked = {"left": {"upload": left}, "on": "land"}
        asked |= {"hit": {"table": "geo/cities.csv", "column": "nation"}}
        refused = served.post("/api/join/download", asked, 413)
        assert "The joined table has 12 rows; the limit is 7" in refused["error"]


@pytest.mark.slow
def test_joins_are_saved_only_where_there_is_a_place(lake_folder: Path, tmp_path: Path) -> None:
    with serving(lake_folder) as served:
        refused = served.post("/api/join/save", joined(served), 403)
        assert "This service is read-only" in refused["error"]
    out = tmp_path / "out"
    out.mkdir()
    with serving(lake_folder, out=out) as served:
        assert served.get("/api/lake")["can_write"]
        asked = joined(served)
        first = served.post("/api/join/save?format=parquet&name=../my join", asked)
        second = served.post("/api/join/save?format=parquet&name=../my join", asked)
        assert (first["file"], second["file"]) == ("my-join.parquet", "my-join-1.parquet")
        assert first["rows"] == 6
        assert first["bytes"] == (out / "my-join.parquet").stat().st_size
        assert served.post("/api/join/save", asked | {"on": "nope"}, 400)
        assert len(list(out.iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("way", ["download?format=csv", "download?format=parquet", "save", "keep"])
def test_a_joined_table_has_a_limit_in_bytes(lake_folder: Path, tmp_path: Path, way: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with serving(lake_folder, max_joined=100, out=out) as served:
        error = served.post(f"/api/join/{way}", joined(served), 413)["error"]
        assert error.startswith("The joined table takes more than 100 bytes, the limit.")
        assert list(out.iterdir()) == []
        kept = {path.suffix for path in served.service.uploads._folder.iterdir()}
        assert kept == {".about", ".csv"}
        assert list(served.service.joins._answers.iterdir()) == []


@pytest.mark.slow
def test_a_join_that_grows_on_disk_is_stopped(tmp_path: Path) -> None:
    table = pa.table({"key": ["k"] * 1000, "text": [os.urandom(500).hex() for _ in range(1000)]})
    sides = (JoinSide(frame_table(table), "key") for _ in range(2))
    with plan_join(*sides, settings=deepjoin.JoinSettings(memory_limit="50MB")) as plan:
        with pytest.raises(JoinTooLarge, match=r"more than 30,000,000 bytes, the limit"):
            plan.write(tmp_path / "joined.csv", 30_000_000)
        assert list(tmp_path.iterdir()) == []
        assert plan.facts.result_rows == 1_000_000
        assert plan.preview(1).num_rows == 1, "the plan can still be used"
