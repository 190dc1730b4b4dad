"""Vectors of a lake come, go and change without reading a table, and nothing stays half-way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.build import encoding
from deepjoin.cli import main
from deepjoin.settings import SearchSettings
from deepjoin.store import column_vectors
from deepjoin.store.column_vectors import ColumnVectors
from deepjoin.store.manifest import MANIFEST
from deepjoin.store.sketch import FrequencySnapshot
from tests.support.options import index_options
from tests.support.tiny_models import save_model

from .conftest import MakeLake

CITIES = pa.table({"city": ["Berlin", "Paris", "Rome", "Oslo", "Lima"], "n": list("abcde")})
TOWNS = pa.table({"town": ["Berlin", "Rome", "Oslo", "Bonn", "Nice"]})
METHODS = ("deepjoin", "sketch", "deepjoin-sketch")


def build(folder: Path, **options: Any) -> Lake:
    return deepjoin.index(
        {"cities": CITIES, "towns": TOWNS}, folder, **index_options(min_distinct=1, **options)
    )


def spaces(lake: Lake) -> list[set[str]]:
    return [
        {s for s in encoding.SPACES if ColumnVectors.open(segment.folder, s)}
        for segment in lake.index.segments
    ]


def answers(lake: Lake, method: str) -> list[tuple[str, str, float]]:
    results = lake.search(["Berlin", "Rome", "Bonn"], 5, method=method)
    return [(hit.table, hit.column, round(hit.score, 3)) for hit in results]


def test_all_methods_answer_when_everything_is_encoded(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", encoder="default", sketch=64)
    assert spaces(lake) == [{"columns", "sketch", "both"}]
    for method in METHODS:
        assert answers(lake, method)[0][1] in ("town", "city")


@pytest.mark.slow
def test_encoders_come_and_go(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", encoder="none")
    assert spaces(lake) == [set()]
    lake = deepjoin.index(lake.path, encoder="default")
    assert spaces(lake) == [{"columns"}] and FrequencySnapshot.exists(lake.index.segments[0].folder)
    lake = deepjoin.index(lake.path, vectors={"sketch": 64})
    assert spaces(lake) == [{"columns", "sketch", "both"}]
    lake = deepjoin.index(lake.path, encoder="none")
    assert spaces(lake) == [{"sketch"}]
    lake = deepjoin.index(lake.path, vectors={"sketch": 128})
    assert lake.vectors.sketch == 128 and answers(lake, "sketch")
    manifest = (lake.path / MANIFEST).read_bytes()
    assert spaces(deepjoin.index(lake.path)) == [{"sketch"}]
    assert (lake.path / MANIFEST).read_bytes() == manifest, "it settles"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"encoder": "./nowhere"}, "There is no encoder folder './nowhere'"),
        ({"cells": "./nowhere"}, "No cell table in"),
        ({"sketch": 100}, "a multiple of 64"),
        ({"sketch": -1}, "`sketch` is -1"),
    ],
)
def test_what_cannot_be_encoded_is_refused_before_anything_is_read(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(DeepJoinError, match=text):
        build(tmp_path / "i", **options)
    assert not (tmp_path / "i" / MANIFEST).exists()
    lake = build(tmp_path / "j", encoder="none")
    with pytest.raises(DeepJoinError, match=text):
        deepjoin.index(lake.path, **index_options(**options))
    assert Lake(lake.path).vectors == lake.vectors


def test_an_interrupted_change_of_encoder_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    lake = build(tmp_path / "i", encoder="default")
    model = save_model(tmp_path / "bert", "bert")

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "finish_columns", stop)
        with pytest.raises(KeyboardInterrupt):
            deepjoin.index(lake.path, encoder=str(model))
    with pytest.raises(DeepJoinError, match=r"encoded by 'deepjoin-mini.*not by.*--encoder .*bert"):
        Lake(lake.path).search(["Rome"], method="deepjoin")
    assert Lake(lake.path).search(["Rome"])[0].matched == 1
    lake = deepjoin.index(lake.path)
    assert answers(lake, "deepjoin")


@pytest.mark.slow
def test_an_interrupted_build_can_be_searched_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "finish_columns", stop)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "i", encoder="default")
    lake = Lake(tmp_path / "i")
    assert lake.search(["Rome"])[0].matched == 1
    with pytest.raises(DeepJoinError, match=r"not completely encoded.*deepjoin index"):
        lake.search(["Rome"], method="deepjoin")
    assert answers(deepjoin.index(lake.path), "deepjoin")


@pytest.mark.slow
def test_many_additions_and_a_compaction_answer_as_one_build(tmp_path: Path) -> None:
    options = {"encoder": "default", "sketch": 64}
    whole = build(tmp_path / "whole", **options)
    grown = deepjoin.index(
        {"cities": CITIES}, tmp_path / "grown", **index_options(min_distinct=1, **options)
    )
    grown.add({"gone": pa.table({"x": ["Berlin", "Bonn", "Rome"]})})
    grown.add({"towns": TOWNS})
    for method in METHODS:
        assert answers(grown, method)
    grown.remove("gone")
    grown.compact()
    assert len(grown.index.segments) == 1
    for method in METHODS:
        assert answers(grown, method) == answers(whole, method)
    assert not grown.compact(), "nothing is left to do"


@pytest.mark.slow
def test_compact_renews_frequencies_of_a_single_segment(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", encoder="default")
    lake.add({"more": TOWNS.rename_columns(["place"])})
    assert lake.compact()
    assert not lake.compact()
    columns = sum(segment.live_columns for segment in lake.index.segments)
    assert FrequencySnapshot(lake.index.segments[0].folder).columns == columns


def test_an_index_travels_with_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    here = tmp_path / "here"
    model = save_model(here / "models" / "bert", "bert")
    lake = build(here / "ix", encoder=str(model))
    expected = answers(lake, "deepjoin")
    assert lake.vectors.encoder == "../models/bert"
    here.rename(tmp_path / "there")
    assert answers(Lake(tmp_path / "there" / "ix"), "deepjoin") == expected


def test_a_lake_of_hashes_keeps_its_sketches(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", hash_only=True, sketch=64)
    assert answers(lake, "sketch")
    assert answers(deepjoin.index(lake.path), "sketch")


@pytest.mark.slow
def test_never_fewer_than_k_when_k_exist(make_lake: MakeLake) -> None:
    """Columns that promise much and hold no match must not take the places of those that do."""
    near = [f"Jonathan Smithers the {n}th of Ely" for n in range(6)]
    many = [Column(near, "x", table=f"near{i}", column_id=f"n{i}") for i in range(300)]
    few = [
        Column(["alpha", f"other{i}", f"more{i}"], "y", table=f"t{i}", column_id=f"t{i}")
        for i in range(12)
    ]
    lake = make_lake(many + few)
    query = ["alpha", *(f"Jonathan of Ely the {n}" for n in range(30, 36))]
    assert len(lake.search(query, 10)) == 10


@pytest.mark.slow
def test_vectors_put_together_otherwise_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(column_vectors, "_BOTH_VERSION", 1)
        lake = build(tmp_path / "i", encoder="default", sketch=64)
    with pytest.raises(DeepJoinError, match=r"again with: .*--encoder default --sketch 64"):
        Lake(lake.path).search(["Rome"], method="deepjoin-sketch")
    lake = deepjoin.index(lake.path)
    assert answers(lake, "deepjoin-sketch")


def test_the_command_line_says_what_was_encoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = build(tmp_path / "i", encoder="none")
    assert main(["index", str(lake.path), "--sketch", "64"]) == 0
    said = capsys.readouterr().err
    assert "cells by default, columns by none, sketches of 64 numbers" in said
    assert main(["info", str(lake.path)]) == 0
    assert "sketches of 64 numbers" in capsys.readouterr().out


@pytest.mark.slow
def test_the_kind_of_vector_index_and_the_metric_can_be_chosen(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", encoder="default", metric="euclidean", index="hnsw")
    assert (lake.vectors.index, lake.vectors.metric) == ("hnsw", "euclidean")
    assert lake.search(["Berlin", "Rome"], 1, method="deepjoin")[0].score < 0, "a distance"
    lake = deepjoin.index(lake.path, vectors={"metric": "cosine"})
    assert lake.search(["Berlin", "Rome"], 1, method="deepjoin")[0].score > 0
    with pytest.raises(DeepJoinError, match="No vector index 'hsnw'.*Did you mean 'hnsw'"):
        deepjoin.index(lake.path, vectors={"index": "hsnw"})
    with pytest.raises(DeepJoinError, match="No metric 'cosin'.*Did you mean 'cosine'"):
        deepjoin.index(lake.path, vectors={"metric": "cosin"})


def test_deepjoin_shows_what_matches_by_meaning(tmp_path: Path) -> None:
    tables = {"a": pa.table({"country": ["United States", "Germany", "France"]})}
    lake = deepjoin.index(
        tables, tmp_path / "i", settings=deepjoin.Settings(min_distinct=1), encoder="default"
    )
    (hit,) = lake.search(["USA", "Germany"], 1, method="deepjoin", join="semantic")
    assert (hit.join, hit.joinability, hit.found_by) == ("semantic", 1.0, ("deepjoin",))
    assert hit.score < 1 and hit.equi.matched == 1
    (hit,) = lake.search(["x", "y"], 1, method="deepjoin")
    assert (hit.matched, hit.cardinality) == (0, "")


def test_tau_is_refused_where_it_says_nothing(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", encoder="default")
    for options in ({"join": "equi"}, {"method": "deepjoin"}, {"method": "exact-equi"}):
        with pytest.raises(DeepJoinError, match="`tau` is 0.7, .* compares no cells by meaning"):
            lake.search(["Rome"], settings=SearchSettings(tau=0.7), **options)
    for wrong in (2.5, "3"):
        with pytest.raises(DeepJoinError, match="`k` is .*; it must be a whole number"):
            lake.search(["Rome"], wrong)  # type: ignore[arg-type]
    with pytest.raises(DeepJoinError, match="`tau` is 'x'; it must be a cosine"):
        lake.search(["Rome"], settings=SearchSettings(tau="x"))  # type: ignore[arg-type]
