"""A device is chosen when a lake is used: it answers the same, and is not part of the lake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.build.update import IndexUpdate
from deepjoin.cli import main
from deepjoin.embed.columns.cache import CachedEncoder, VectorCache
from deepjoin.embed.columns.text import no_frequency
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.embed.devices import device_named
from deepjoin.engines.gpu import DeviceSearch
from deepjoin.errors import MissingExtra
from deepjoin.search.methods import all_methods
from deepjoin.store import column_vectors, models
from deepjoin.store.column_vectors import finish_columns
from deepjoin.store.manifest import MANIFEST
from tests.support.column_lakes import WordEncoder, segment_of
from tests.support.encoder_models import Folders
from tests.support.options import index_options
from tests.support.played_gpu import play_gpu, play_halves

WORDS = ("Berlin", "Paris", "Rome", "Oslo", "Lima", "Bonn", "Nice", "Bern", "Cork", "Graz")
#: Those with an encoder of their own are the same search.
BY_VECTOR = [
    name
    for name, method in all_methods().items()
    if "values" not in method.needs and not method.kind
]
QUERIES: list[Any] = [["Berlin", "Rome", "Bonn"], ["Oslo 3", "Lima 4"], ["nothing like it"]]


def _frames(start: int, stop: int) -> dict[str, pa.Table]:
    """Make tables of two columns; every third is a copy of the one before it."""
    made = {}
    for n in range(start, stop):
        of = n - 1 if n % 3 == 2 else n
        towns = [f"{word} {of % 5}" if of % 2 else word for word in WORDS[of % 7 :]]
        made[f"t{n:02}"] = pa.table(
            {"town": towns, "code": [f"{of}-{i}" for i in range(len(towns))]}
        )
    return made


def _grown(folder: Path, **options: Any) -> Lake:
    """Index tables into three segments, and take one out."""
    lake = deepjoin.index(
        _frames(0, 12),
        folder,
        **index_options(min_distinct=1, index="flat", **options),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            IndexUpdate, "merge", lambda self, whole=False: None
        )  # so small, they are merged
        lake.add(_frames(12, 14))
        lake.add(_frames(14, 15))
        lake.remove("t03")
    return lake


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a lake with the default encoder, and sketches."""
    return _grown(tmp_path_factory.mktemp("lake") / "i", encoder="default", sketch=64).path


@pytest.fixture
def by_torch(folders: Folders, tmp_path: Path) -> Path:
    """Make a lake with an encoder that runs on torch."""
    model = str(folders("bert"))
    return _grown(tmp_path / "i", encoder=model, cells="none", device="cpu").path


def _answers(lake: Lake, query: Any, method: str, **options: Any) -> list[tuple[str, str, float]]:
    found = lake.search(query, method=method, **options)
    return [(hit.table, hit.column, hit.score) for hit in found]


@pytest.mark.slow
@pytest.mark.parametrize("method", BY_VECTOR)
def test_a_lake_on_a_device_answers_the_same(path: Path, method: str) -> None:
    here, there = deepjoin.open(path), deepjoin.open(path, device="cpu")
    assert len(here.index.segments) == 3
    for query in [*QUERIES, here.column("t04", "town"), here.column("t14", "code")]:
        grouped = deepjoin.SearchSettings(group="tables")
        for options in ({"k": 1}, {"k": 10}, {"k": 100}, {"k": 5, "settings": grouped}):
            found = _answers(there, query, method, **options)
            assert found == _answers(here, query, method, **options)
    assert len(_answers(there, QUERIES[0], method, k=100)) == 28


def test_semantic_joins_show_their_evidence_on_a_device_too(path: Path) -> None:
    here, there = deepjoin.open(path), deepjoin.open(path, device="cpu")
    asked = {"method": "deepjoin", "join": "semantic", "k": 5}
    hits = [lake.search(QUERIES[0], **asked).hits for lake in (here, there)]  # type: ignore[arg-type]
    assert hits[0] == hits[1]


def test_methods_without_column_vectors_need_no_device(path: Path) -> None:
    found = [_answers(deepjoin.open(path, device=d), QUERIES[0], "hybrid") for d in (None, "cpu")]
    assert found[0] == found[1]


def test_rows_are_compared_on_the_device(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    made = DeviceSearch.__init__

    def noted(self: DeviceSearch, rows: Any, metric: str, device: str) -> None:
        held.append((len(rows), device))
        made(self, rows, metric, device)

    monkeypatch.setattr(DeviceSearch, "__init__", noted)
    _answers(deepjoin.open(path), QUERIES[0], "deepjoin")
    assert not held
    there = deepjoin.open(path, device="cpu")
    for query in QUERIES:
        _answers(there, query, "deepjoin")
    assert held == [(segment.values.columns, "cpu") for segment in there.index.segments]


@pytest.mark.slow
def test_an_encoder_of_torch_works_on_the_device(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = []

    def noted(spec: str, **options: Any) -> Any:
        devices.append((Path(spec).name, options["device"]))
        return TorchEncoder(spec, device=options["device"])

    monkeypatch.setattr(models, "load_encoder", noted)
    model = folders("distilbert")
    lake = deepjoin.index(
        {"a": pa.table({"x": WORDS})},
        tmp_path / "i",
        encoder=str(model),
        vectors={"cells": "none"},
        build=deepjoin.BuildSettings(device="cpu"),
    )
    lake.search(["Rome"], method="deepjoin")
    lake.add(_frames(1, 2))
    assert set(devices) == {(model.name, "cpu")}
    assert lake.device == "cpu"


def test_a_device_is_not_stored(by_torch: Path) -> None:
    assert deepjoin.open(by_torch).device is None
    assert "device" not in (by_torch / MANIFEST).read_text()
    lake = deepjoin.open(by_torch, device="cpu")
    Lake(by_torch).remove("t01")
    assert lake.reopen()
    assert lake.device == "cpu"
    assert len(_answers(lake, QUERIES[0], "deepjoin", k=100)) == 26


@pytest.mark.slow
def test_a_played_gpu_answers_the_same(by_torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = deepjoin.open(by_torch, device="cpu")
    expected = [_answers(plain, query, "deepjoin", k=100) for query in QUERIES]
    play_gpu(monkeypatch)
    play_halves(monkeypatch)
    monkeypatch.setattr(TorchEncoder, "_on_gpu", True)
    models._loaded_columns.cache_clear()
    lake = deepjoin.open(by_torch, device="cpu")
    for query, wanted in zip(QUERIES, expected, strict=True):
        found = _answers(lake, query, "deepjoin", k=100)
        likes = {one[:2]: one[2] for one in wanted}
        assert likes.keys() == {one[:2] for one in found}
        assert max(abs(likes[table, column] - like) for table, column, like in found) < 1e-3
    again = deepjoin.index(by_torch, build=deepjoin.BuildSettings(device="cpu", rebuild=True))
    assert again.context().column_encoder().block == 1 << 14
    models._loaded_columns.cache_clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_real_gpu_answers_the_same(path: Path, by_torch: Path, tmp_path: Path) -> None:
    here, there = deepjoin.open(path), deepjoin.open(path, device="cuda")
    for query in QUERIES:
        found = _answers(there, query, "deepjoin", k=100)
        assert found == _answers(here, query, "deepjoin", k=100)
    slow, fast = deepjoin.open(by_torch, device="cpu"), deepjoin.open(by_torch, device="cuda")
    for query in QUERIES:
        wanted, found = (_answers(lake, query, "deepjoin", k=9) for lake in (slow, fast))
        np.testing.assert_allclose([one[2] for one in found], [one[2] for one in wanted], atol=2e-3)


def test_encoders_of_large_blocks_are_given_more_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [Column([f"{word} {n}" for word in WORDS], "x", f"t{n:02}") for n in range(10)]
    segment = segment_of(columns, tmp_path / "index")
    monkeypatch.setattr(column_vectors, "_BLOCK", 3)

    def blocks(block: int) -> list[int]:
        encoder, told = WordEncoder(), []
        encoder.block = block
        progress: Any = lambda done, total, text: told.append(done)  # noqa: E731
        finish_columns(segment, tmp_path, encoder, no_frequency, None, progress)
        return told

    assert blocks(1024) == [3, 6, 9, 10]
    assert blocks(2048) == [6, 10]
    monkeypatch.setattr(column_vectors, "_CELLS", 20)
    assert blocks(2048) == [2, 4, 6, 8, 10]
    monkeypatch.setattr(column_vectors, "_CELLS", 1)
    assert blocks(2048) == list(range(1, 11))


def test_a_cached_encoder_reads_blocks_of_its_own_size(tmp_path: Path) -> None:
    encoder, sizes = WordEncoder(), []
    encoder.block, whole = 3000, encoder.encode_texts
    encoder.encode_texts = lambda texts: sizes.append(len(texts)) or whole(texts)  # type: ignore
    with VectorCache(tmp_path / "cache") as cache:
        cached = CachedEncoder(encoder, cache)
        cached.encode_texts([str(number) for number in range(3500)])
    assert (cached.block, sizes) == (3000, [3000, 500])


def test_devices_are_named() -> None:
    assert device_named("cpu") == torch.device("cpu")
    for name in ("gpu", "cuda:", "cuda:x", "CUDA", "meta", ""):
        with pytest.raises(DeepJoinError, match=f"^There is no device '{name}'. Use cuda for a G"):
            device_named(name)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_named("cuda").type == "cuda"
    for name in ("cuda:1", "cuda:9999"):
        text = f"^There is no device '{name}': torch sees 1 GPUs. Use another"
        with pytest.raises(DeepJoinError, match=text):
            device_named(name)


@pytest.mark.parametrize(
    ("device", "text"),
    [("gpu", "There is no device 'gpu'. Use cuda for a GPU"), ("cuda", "torch sees 0 GPUs")],
)
def test_a_wrong_device_is_reported_before_anything_is_read(
    path: Path, tmp_path: Path, device: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(DeepJoinError, match=text):
        deepjoin.open(path, device=device)
    with pytest.raises(DeepJoinError, match=text):
        deepjoin.index(_frames(0, 1), tmp_path / "i", build=deepjoin.BuildSettings(device=device))
    assert not (tmp_path / "i").exists()


def test_a_device_without_torch_says_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="device 'cuda' needs torch: pip install 'deepjoin"):
        deepjoin.open(path, device="cuda")
    assert _answers(deepjoin.open(path), QUERIES[0], "deepjoin")


def test_the_command_line_takes_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, frame in _frames(0, 3).items():
        rows = [",".join(row.values()) for row in frame.to_pylist()]
        (tmp_path / f"{name}.csv").write_text("\n".join(["town,code", *rows]))
    index = ["index", str(tmp_path), "--encoder", "default", "--cells", "none"]
    assert main([*index, "--device", "cpu"]) == 0
    search = ["search", str(tmp_path), "--values", "Rome,Oslo", "--method", "deepjoin"]
    found = []
    for device in ([], ["--device", "cpu"]):
        capsys.readouterr()
        assert main([*search, "--format", "json", *device]) == 0
        found.append(json.loads(capsys.readouterr().out)["hits"])
    assert found[0] == found[1]
    assert found[0]
    for command in (index, search):
        assert main([*command, "--device", "gpu"]) == 1
        said = capsys.readouterr().err
        assert "There is no device 'gpu'" in said
        assert said.count("\n") == 1
