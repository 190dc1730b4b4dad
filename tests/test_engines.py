"""Engines and the parts they build, where no cluster is needed: groups, pieces, what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import DeepJoinError
from deepjoin.build import encoding, workers
from deepjoin.build.engine import BuildResources, Step, node_name
from deepjoin.build.listing import ListedItem, list_items
from deepjoin.build.workers import EncodeElsewhere, TextModel
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.engines import ray as ray_engine
from deepjoin.errors import MissingExtra, UnknownName
from deepjoin.read.files import FileSource
from deepjoin.read.frames import MemorySource
from deepjoin.read.source import Item, Listing, skipped_item
from deepjoin.settings import NO_VECTORS, Settings
from deepjoin.store.ledger import Key
from deepjoin.store.sketch import FrequencySnapshot


def test_pieces_of_two_readings_are_refused(tmp_path: Path) -> None:
    group = workers.ItemGroup(
        0, [ListedItem(Key(0, "a"), skipped_item("a", "no"), MemorySource([]))]
    )
    rows = (workers._part_row(0, digest, "values", b"1") for digest in ("one", "other"))
    with pytest.raises(DeepJoinError, match="A worker was lost, and a table it was reading has ch"):
        list(workers.received_parts(rows, [group], lambda: tmp_path))


def test_another_encoder_on_a_node() -> None:
    with pytest.raises(DeepJoinError, match=r"The node .* has a different encoder of cells under"):
        workers.check_same("cells", "x", "one", "other")


def test_an_encoder_that_a_node_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    said = rf"^The node {node_name()} cannot load the encoder '{{}}': .* Put it where all nodes see"
    with pytest.raises(DeepJoinError, match=said.format("/nowhere/model")):
        TextModel("/nowhere/model", "default", "").load("cpu")
    job = workers.PartJob(Settings(), replace(NO_VECTORS, cells="/nowhere/cells"), 1 << 20, {}, ())
    with pytest.raises(DeepJoinError, match=said.format("/nowhere/cells")):
        list(workers.read_part(job, workers.ItemGroup(0, [])))
    with (
        pytest.raises(MissingExtra, match=r"cannot load the encoder 'x': pip install it\.$"),
        workers.loading("x"),
    ):
        raise MissingExtra("pip install it.")


def write_tables(kind: str, place: Path) -> FileSource:
    """Write what is one table to some library, in a folder of its own."""
    cities = pa.table({"id": [1, 2, 3], "city": ["Rome", "Lima", "Oslo"]})
    if kind in ("delta", "delta in a folder"):
        folder = place / "cities" if kind == "delta in a folder" else place
        pytest.importorskip("deltalake").write_deltalake(str(folder), cities)
        return FileSource([place])
    place.mkdir()
    if kind == "workbook":
        pytest.importorskip("fastexcel")
        book = pytest.importorskip("openpyxl").Workbook()
        for row in cities.to_pylist():
            book.active.append(list(row.values()))
        book.save(place / "cities.xlsx")
        return FileSource([place])
    for number in range(3):
        (place / f"cities-{number}.csv").write_text("id,city\n1,Rome\n2,Lima\n")
    patterns = ["*.csv"] if kind == "files that are one table" else []
    return FileSource([place], Settings(one_table=tuple(patterns)))


def sent_part(groups: list[workers.ItemGroup]) -> Generator[pa.Table]:
    """Read a group as a worker does, and send it off."""
    job = workers.PartJob(Settings(), NO_VECTORS, 1 << 20, {}, ())
    yield from list(workers.read_part(job, groups[0]))


@pytest.mark.parametrize("kind", ["files", "files that are one table", "workbook", "delta"])
@pytest.mark.parametrize("is_back", [False, True])
def test_tables_that_a_worker_does_not_see(tmp_path: Path, kind: str, is_back: bool) -> None:
    source = write_tables(kind, tmp_path / "data")
    groups = workers.grouped(list_items({0: source}, Settings()))
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    tables = (table for table in list(sent_part(groups)))
    if not is_back:
        assert list(workers.received_parts(tables, groups, lambda: tmp_path / "part"))
        return
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    gone = "(is no longer there|No such file or directory)"
    with pytest.raises(
        DeepJoinError, match=rf" can be read here, and not on the node {node_name()}: .*{gone}\. W"
    ):
        list(workers.received_parts(tables, groups, lambda: tmp_path / "part"))


@pytest.mark.parametrize(
    ("kind", "package"), [("workbook", "fastexcel"), ("delta in a folder", "deltalake")]
)
def test_an_extra_that_a_worker_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    groups = workers.grouped(list_items({0: write_tables(kind, tmp_path / "data")}, Settings()))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        tables = (table for table in list(sent_part(groups)))
    said = r"^cities\S* can be read here, and not on the node \S+: .*: pip install 'deepjoin\["
    with pytest.raises(DeepJoinError, match=said):
        list(workers.received_parts(tables, groups, lambda: tmp_path / "part"))


class Engine:
    """Has so many GPUs, and nothing to do."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus

    def flow(self, tasks: Sequence[object], *steps: Step) -> Generator[pa.Table]:
        """Give back nothing."""
        yield from ()


@pytest.mark.parametrize(
    ("on_gpu", "gpus", "device"), [(True, 2, "cuda"), (True, 0, "cpu"), (False, 2, "cpu")]
)
def test_where_texts_are_encoded(on_gpu: bool, gpus: int, device: str) -> None:
    model = TextModel("x", "default", "")
    write, encode = EncodeElsewhere(Engine(gpus), model, Path("here"), None, on_gpu).steps(Path())
    assert isinstance(write.work, partial) and isinstance(encode.work, partial)
    assert (encode.work.args[1], encode.gpu_rows > 0) == (device, device == "cuda")
    assert write.here and write.work.args[0].frequency == Path.cwd() / "here"
    assert write.named(range(3)) == "the texts of 3 columns" and "`exclude`" not in write.advice


def test_a_gpu_that_the_cluster_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.build.engine.device_named", lambda name: None)
    monkeypatch.setattr(encoding, "TorchEncoder", TextEncoder)
    vectors = replace(NO_VECTORS, encoder="default")
    frequency = object.__new__(FrequencySnapshot)
    frequency.folder = tmp_path
    found = {}
    for device in (None, "cpu", "cuda:1"):
        resources = BuildResources(device=device, engine=Engine(0))
        chosen = encoding.Encoding(vectors, Settings(), tmp_path, resources)
        assert chosen._columns is not None
        if device == "cuda:1":
            with pytest.raises(DeepJoinError, match=r"'cuda:1', and the engine has no GPU"):
                chosen._encode(chosen._columns, frequency, None)
        else:
            found[device] = chosen._encode(chosen._columns, frequency, None)
    assert [one.on_gpu for one in found.values()] == [True, False]  # type: ignore[union-attr]


@given(st.lists(st.one_of(st.none(), st.integers(0, 1 << 27)), max_size=300))
def test_groups_are_bounded_and_in_order(sizes: list[int | None]) -> None:
    found = [
        ListedItem(Key(0, str(number)), Item(str(number), "", Listing, size=size), MemorySource([]))
        for number, size in enumerate(sizes)
    ]
    groups = workers.grouped(found)
    assert [one for group in groups for one in group.listed] == found
    assert [group.number for group in groups] == list(range(len(groups)))
    for group in groups:
        held = [one.item.size for one in group.listed]
        assert 0 < len(held) <= workers._ITEMS[1]
        assert len(held) == 1 or sum(size or 0 for size in held) <= workers._BYTES[1]
        assert len([size for size in held if size != 0]) == 1 or None not in held


@pytest.mark.slow
def test_names_that_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"No engine 'rya' in deepjoin.*Did you mean 'ray'\?"):
        deepjoin.index(tmp_path, build=deepjoin.BuildSettings(engine="rya"))
    with pytest.raises(DeepJoinError, match="'ray://head:10001' is the address of a Ray client"):
        deepjoin.index(
            tmp_path, build=deepjoin.BuildSettings(engine="ray", ray_address="ray://head:10001")
        )
    with pytest.raises(DeepJoinError, match=r"'head:6379', and the engine is 'local'\. Use `eng"):
        deepjoin.index(tmp_path, build=deepjoin.BuildSettings(ray_address="head:6379"))


@pytest.mark.slow
def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pandas", "ray"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtra, match=rf"needs {package}: pip install 'deepjoin\[ray\]'"):
            deepjoin.index(tmp_path, build=deepjoin.BuildSettings(engine="ray"))


@pytest.mark.slow
def test_a_cluster_that_is_not_there(lake_folder: Path, tmp_path: Path) -> None:
    options = ["-o", str(tmp_path / "index"), "--engine", "ray", "--ray-address", "127.0.0.1:1"]
    command = [sys.executable, "-m", "deepjoin", "index", str(lake_folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "deepjoin: No Ray cluster can be joined at '127.0.0.1:1': [Errno 111] Connection refused. "
        "Start one with: ray start --head, or leave --ray-address out.\n"
    )


#: A command that finds no other cluster that may run on this machine.
ALONE = """
import sys
from ray._private import services
services.find_gcs_addresses = lambda: set()
services.find_gcs_addresses.cache_clear = lambda: None
from deepjoin.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_cluster_that_is_no_more(lake_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    known = {"RAY_TMPDIR": str(tmp_path), "RAY_ADDRESS": ""}
    command = [sys.executable, "-c", ALONE, "index", str(lake_folder), "--engine", "ray"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | known
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"deepjoin: No Ray cluster can be joined at '[\d.]+:1': \[Errno 111\] Connection refused\. "
        r"Stop what is left of it with: ray stop, or name another --ray-address\.\n",
        done.stderr,
    )


class FakeRay(SimpleNamespace):
    """Says what Ray says when it is asked to join a cluster, and can start one."""

    def init(self, address: str, **options: object) -> None:
        """Fail but for a cluster of one's own."""
        self.asked.append(address)
        if address != "local":
            raise self.error

    def cluster_resources(self) -> dict[str, float]:
        """Say what the cluster has."""
        return {"CPU": 2.0}

    def nodes(self) -> list[dict[str, bool]]:
        """List the nodes."""
        return [{"Alive": True}]


def test_a_cluster_is_started_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    said: list[str] = []
    none = ConnectionError("Could not find any running Ray instance. Please specify")
    ray = FakeRay(asked=[], error=none)
    monkeypatch.setattr(ray_engine, "_local_address", lambda: "head")
    ray_engine.join_cluster(ray, "", said.append)
    assert ray.asked == ["auto", "local"]
    assert said == ["No Ray cluster is running: started one here, 1 node, 2 processors, 0 GPUs."]
    with pytest.raises(DeepJoinError, match=r"^No Ray cluster can be joined at 'head': Could not "):
        ray_engine.join_cluster(ray, "auto", said.append)


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionError, ValueError])
def test_a_cluster_that_cannot_be_joined(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_engine, "_local_address", lambda: "head")
    ray = FakeRay(asked=[], error=kind("Version mismatch:\n    Ray: 2.50\n    Python: 3.12."))
    with pytest.raises(
        DeepJoinError,
        match=r"joined at 'head': Version mismatch: Ray: 2\.50 Python: 3\.12\. Stop what",
    ):
        ray_engine.join_cluster(ray, "", print)
    assert ray.asked == ["auto"]
    ray.error, ray.error.__cause__ = ConnectionError("Failed to connect."), ray.error
    with pytest.raises(DeepJoinError, match=r": Failed to connect \(Version mismatch: Ray: 2\.50 "):
        ray_engine.join_cluster(ray, "", print)
