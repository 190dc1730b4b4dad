"""Indexing on a Ray cluster of two nodes: the same index, whoever dies on the way."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepjoin
from deepjoin import DeepJoinError, Lake
from deepjoin.build import reading, update, workers
from deepjoin.build.engine import Step
from deepjoin.build.update import merge_segments
from deepjoin.embed.columns.cache import VectorCache
from deepjoin.engines import engine_named
from deepjoin.engines import ray as ray_engine
from deepjoin.errors import MissingExtra, UnreadableTable
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.progress import UNITS
from deepjoin.read.corpus import write_corpus
from deepjoin.store.column_vectors import ColumnVectors
from tests.support import ray_steps
from tests.support.buckets import BUCKET, Store, running_store, use
from tests.support.options import index_options
from tests.support.tiny_models import save_model

#: Ray's own: what it uses of others, and files it leaves to the end of the process.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}
WORDS = [f"Word {number} x{number * 7919 % 1000}" for number in range(400)]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """Start a store of objects that nodes started later know of."""
    with running_store() as running, pytest.MonkeyPatch.context() as patch:
        use(patch, running.address)
        yield running


@pytest.fixture(scope="module")
def cluster(store: Store) -> Iterator[Any]:
    """Start two nodes of one processor each, and join them; sockets need a short path.

    Ray notes the cluster in its own folder, which a machine without Ray does not have.
    """
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    # Not that there is a GPU: it is enough for Ray to hand it out.
    head = NODE | {"num_gpus": 1, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)
        started = Cluster(initialize_head=True, head_node_args=head)
        started.add_node(**NODE)
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
        try:
            yield started
        finally:
            ray.shutdown()
            started.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write tables, and something that is none."""
    chance, place = random.Random(1), tmp_path / "data"
    (place / "more").mkdir(parents=True)
    for number in range(24):
        name = f"{'more/' if number % 3 == 0 else ''}t{number:02}.csv"
        write(place / name, chance, chance.randint(5, 60))
    (place / "bad.parquet").write_bytes(b"PAR1 is not enough")
    (place / "notes.bin").write_text("no table")
    return age(place)


def write(path: Path, chance: random.Random, rows: int) -> None:
    lines = (f"{chance.choice(WORDS)},{chance.choice(WORDS).upper()}" for _ in range(rows))
    path.write_text("\n".join(["key,Other", *lines]))


def age(place: Path) -> Path:
    """Make files older than a moment, so that their stamps tell whether they changed."""
    for path in place.rglob("*.*"):
        os.utime(path, (path.stat().st_mtime - 100,) * 2)
    return place


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a small lake into many parts and blocks."""
    monkeypatch.setattr(workers, "_ITEMS", (4, 4))
    monkeypatch.setattr("deepjoin.store.column_vectors._BLOCK", 8)


def stored(lake: Lake) -> list[dict[str, Any]]:
    """Return checksums of all files of an index, by segment."""
    return [record["files"] for record in manifest(lake)["segments"]]


def manifest(lake: Lake) -> dict[str, Any]:
    return dict(json.loads((lake.path / "manifest.json").read_text()))


def hits(lake: Lake) -> list[Any]:
    queries = [lake.column(name, "key") for name in list(lake.tables)[:4]]
    methods = ("hybrid", "deepjoin") if lake.vectors.encoder != "none" else ("hybrid",)
    return [
        [hit.to_dict() for hit in lake.search(query, 5, method=method)]
        for query in queries
        for method in methods
    ]


def test_tasks_come_out_in_order_from_two_processes(cluster: Any) -> None:
    with engine_named("ray") as engine:
        assert engine is not None
        flow = engine.flow(range(6), Step(ray_steps.squares), Step(ray_steps.doubled, here=True))
        rows = [row for table in flow for row in table.to_pylist()]
        assert [row["value"] for row in rows] == [0, 0, 2, 2, 4, 8, 6, 18, 8, 32, 10, 50]
        assert list(engine.flow([], Step(ray_steps.squares))) == []


def test_work_for_a_gpu_stays_in_one_process(cluster: Any) -> None:
    with engine_named("ray") as engine:
        assert engine is not None
        flow = engine.flow(range(6), Step(ray_steps.squares), Step(ray_steps.visible, gpu_rows=3))
        rows = [row for table in flow for row in table.to_pylist()]
        assert [row["value"] for row in rows] == [0, 0, 1, 1, 2, 4, 3, 9, 4, 16, 5, 25]
        assert {row["device"] for row in rows} == {"0"}
        assert len({row["process"] for row in rows}) == 1
        with pytest.raises(UnreadableTable, match="Three is not a table"):
            steps = Step(ray_steps.refuses_three), Step(ray_steps.visible, gpu_rows=3)
            list(engine.flow(range(5), *steps))


def test_an_error_of_ours_comes_as_it_was(cluster: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with engine_named("ray") as engine:
        assert engine is not None
        steps = Step(ray_steps.refuses_three), Step(ray_steps.doubled)
        with pytest.raises(UnreadableTable, match=r"^Three is not a table\.$") as raised:
            list(engine.flow(range(5), steps[0], steps[1]))
        assert raised.value.passing
        with pytest.raises(DeepJoinError, match=r"The node .* cannot go on \(No space left on "):
            list(engine.flow([1], Step(ray_steps.finds_no_room)))
        assert capfd.readouterr() == ("", "")
        with pytest.raises(AttributeError, match="nothing"):
            list(engine.flow([1], Step(ray_steps.has_a_mistake)))


def test_another_version_on_a_node(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "__version__", "9.9")
    with engine_named("ray") as engine, pytest.raises(DeepJoinError, match="the build is by 9.9"):
        assert engine is not None
        list(engine.flow([1], Step(ray_steps.squares)))


def test_what_a_dead_process_lost_is_done_again(cluster: Any, tmp_path: Path) -> None:
    marker = str(tmp_path / "killed")
    with engine_named("ray") as engine:
        assert engine is not None
        flow = engine.flow([(number, marker) for number in range(6)], Step(ray_steps.dies_once))
        values = [value for table in flow for value in table["value"].to_pylist()]
    assert values == [number for number in range(6) for _ in range(2)]


def test_a_task_that_kills_its_workers(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_MOST_ATTEMPTS", 2)
    with (
        engine_named("ray") as engine,
        pytest.raises(
            DeepJoinError, match=r"^Every worker that got too much died\. Ray's logs say why"
        ),
    ):
        assert engine is not None
        list(engine.flow(["too much"], Step(ray_steps.dies)))


@pytest.mark.parametrize("gpu_rows", [0, 3])
def test_what_kills_the_workers_of_a_later_step(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, gpu_rows: int
) -> None:
    monkeypatch.setattr(ray_engine, "_MOST_ATTEMPTS", 2)
    steps = (
        Step(ray_steps.refuses_three, here=True),
        Step(ray_steps.dies_of_two, gpu_rows=gpu_rows, named=ray_steps.rows_named, advice="Rest."),
    )
    said = r"^Every worker that got rows of \[.*2.*\] died\. Ray's logs say why.* Rest\.$"
    with engine_named("ray") as engine, pytest.raises(DeepJoinError, match=said):
        assert engine is not None
        list(engine.flow([1, 2], *steps))


def test_a_package_that_a_node_lacks(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def work(task):\n    yield task\n")
    monkeypatch.syspath_prepend(tmp_path)
    from only_here import work  # type: ignore[import-not-found]

    lacks = r"^The node \S+ lacks the package '{}'\. .*: pip install 'deepjoin\[ray,train\]=="
    with engine_named("ray") as engine:
        assert engine is not None
        with pytest.raises(DeepJoinError, match=lacks.format("only_here")):
            list(engine.flow([1], Step(work)))
        with pytest.raises(DeepJoinError, match=lacks.format("not_to_be_had")):
            list(engine.flow([1], Step(ray_steps.needs_a_package)))
        with pytest.raises(MissingExtra, match=r"^On the node \S+: Reading needs fastexcel\.$"):
            list(engine.flow([1], Step(ray_steps.needs_an_extra)))


@pytest.mark.usefixtures("small_groups")
def test_the_index_is_the_same(cluster: Any, folder: Path, tmp_path: Path) -> None:
    both = index_both(folder, tmp_path, encoder="default", sketch=64, cells="default")
    assert {skip.name for skip in both[1].report.skipped} == {"bad.parquet", "notes.bin"}
    assert stored(both[0]) == stored(both[1])
    assert manifest(both[0])["vectors"] == manifest(both[1])["vectors"]
    assert hits(both[0]) == hits(both[1])
    write(folder / "t01.csv", random.Random(5), 30)
    write(folder / "new.csv", random.Random(6), 30)
    (folder / "more" / "t00.csv").unlink()
    age(folder)
    both = index_both(folder, tmp_path)
    assert both[0].report == both[1].report
    assert hits(both[0]) == hits(both[1])


def test_a_relative_place(
    cluster: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEPJOIN_CACHE", "cache")
    lake = deepjoin.index(
        folder.name, "my.index", build=deepjoin.BuildSettings(engine="ray"), encoder="default"
    )
    assert lake.search(WORDS[:9], 1, method="deepjoin")


def index_both(folder: Path, place: Path, **options: Any) -> list[Lake]:
    """Index by both engines; each encodes for itself."""
    lakes = []
    for engine in ("local", "ray"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DEEPJOIN_CACHE", str(place / f"cache-{engine}"))
            lakes.append(
                deepjoin.index(folder, place / engine, **index_options(engine=engine, **options))
            )
    return lakes


@pytest.mark.usefixtures("small_groups")
def test_words_and_settings_reach_the_workers(cluster: Any, folder: Path, tmp_path: Path) -> None:
    titles = {"t01.csv": ("One", None), "more/t00.csv": (None, "More")}
    options = {"min_distinct": 2, "deny_columns": ("other",), "titles": titles}
    assert_same(index_both(folder, tmp_path, **options))
    for name in ("t01.csv", "t02.csv"):
        write(folder / name, random.Random(7), 20)
    both = index_both(age(folder), tmp_path)
    assert both[1].table("t01.csv").title == "One", "words are kept when a table is read again"
    for lake in both:
        lake.remove("t04.csv")
    assert_same(index_both(folder, tmp_path, rebuild=True))


def assert_same(both: list[Lake]) -> None:
    assert stored(both[0]) == stored(both[1])


@pytest.mark.usefixtures("small_groups")
def test_a_private_lake(cluster: Any, folder: Path, tmp_path: Path) -> None:
    lake = deepjoin.index(
        folder,
        tmp_path / "ray",
        build=deepjoin.BuildSettings(engine="ray"),
        settings=deepjoin.Settings(hash_only=True),
    )
    cells = [line.partition(",")[0] for line in (folder / "t01.csv").read_text().splitlines()[1:]]
    hit = lake.search(cells, 1)[0]
    assert (hit.table, hit.joinability) == ("t01.csv", 1.0)


@pytest.mark.usefixtures("small_groups")
def test_tables_in_a_bucket(cluster: Any, store: Store, folder: Path, tmp_path: Path) -> None:
    store.client.create_bucket(Bucket=BUCKET)
    store.put(**{f"tables/{path.name}": path.read_bytes() for path in folder.rglob("t*.csv")})
    url = f"s3://{BUCKET}/tables"
    local, other = (
        deepjoin.index(url, tmp_path / name, build=deepjoin.BuildSettings(engine=name))
        for name in ("local", "ray")
    )
    assert local.report == other.report
    assert hits(local) == hits(other)


@pytest.mark.usefixtures("small_groups")
def test_workers_and_a_node_killed_on_the_way(
    cluster: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[object] = []

    def kill(done: int, total: int, name: str) -> None:
        if name == "columns" and len(killed) == 1 and done < total:
            killed.append(cluster.remove_node(cluster.worker_nodes.copy().pop(), False))
        elif 0 < done < total and not killed:
            killed.append(
                [os.kill(process, signal.SIGKILL) for process in ray_steps.workers(cluster)]
            )

    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "cache"))
    lake = deepjoin.index(
        folder,
        tmp_path / "ray",
        build=deepjoin.BuildSettings(engine="ray"),
        encoder="default",
        progress=kill,
    )
    cluster.add_node(**NODE)
    assert len(killed) == 2
    assert killed[0]
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "other cache"))
    assert_same([deepjoin.index(folder, tmp_path / "local", encoder="default"), lake])


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("how", ["at a part", "while waiting", "at the last merge", "by an error"])
def test_an_interrupted_build_goes_on(
    cluster: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(reading, "WORTH_KEEPING", 0.0)
    if how == "by an error":
        monkeypatch.setattr(reading, "CHECKPOINT", 0.0)

    def interrupt(done: int, total: int, name: str) -> None:
        if done == 8 and how == "by an error":
            raise OSError("The terminal is gone")
        if done == 4 and how == "at a part":
            signal.raise_signal(signal.SIGINT)
        if done == 4 and how == "while waiting":
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()

    with monkeypatch.context() as patch:
        if how == "at the last merge":
            patch.setattr(update, "merge_segments", interrupted_merge)
        with pytest.raises(DeepJoinError if how == "by an error" else KeyboardInterrupt):
            deepjoin.index(
                folder,
                tmp_path / "ray",
                build=deepjoin.BuildSettings(engine="ray"),
                progress=interrupt,
            )
    seen: list[tuple[int, int]] = []

    def tell(done: int, total: int, name: str) -> None:
        if name not in UNITS:  # a table
            seen.append((done, total))

    lake = deepjoin.index(
        folder, tmp_path / "ray", build=deepjoin.BuildSettings(engine="ray"), progress=tell
    )
    if how == "at the last merge":
        assert seen == [], "nothing is read again"
    else:
        assert 0 < seen[0][1] < 26, "what had come is not read again"
    assert lake.report == deepjoin.index(folder, tmp_path / "local").report
    assert hits(lake) == hits(deepjoin.open(tmp_path / "local"))


def interrupted_merge(*given: Any, **named: Any) -> None:
    """Press Ctrl-C at the first merge only: what has arrived is then merged after all."""
    update.merge_segments = merge_segments
    signal.raise_signal(signal.SIGINT)
    merge_segments(*given, **named)


#: Indexes, and is killed when two parts have come.
KILLED = """
import os, signal, sys
import deepjoin
from deepjoin.build import reading, workers

reading.CHECKPOINT, workers._ITEMS = 0.0, (4, 4)

def die(done, total, name):
    if done == 8:
        os.kill(os.getpid(), signal.SIGKILL)

deepjoin.index(
    *sys.argv[1:], build=deepjoin.BuildSettings(engine="ray"), encoder="none", progress=die
)
"""


@pytest.mark.usefixtures("small_groups")
def test_a_killed_build_goes_on(cluster: Any, folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "ray")]
    done = subprocess.run(
        command, capture_output=True, env=os.environ | {"RAY_ADDRESS": cluster.address}
    )
    assert done.returncode == -signal.SIGKILL
    seen: list[int] = []
    lake = deepjoin.index(
        folder,
        tmp_path / "ray",
        build=deepjoin.BuildSettings(engine="ray"),
        progress=lambda done, total, name: seen.append(total),
    )
    assert 0 < seen[0] < 26, "what had come is not read again"
    assert lake.report == deepjoin.index(folder, tmp_path / "local").report
    assert hits(lake) == hits(deepjoin.open(tmp_path / "local"))


def test_an_encoder_that_runs_on_torch_is_given_the_gpu(
    cluster: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    model = save_model(tmp_path / "model", "bert")
    monkeypatch.setattr("deepjoin.build.encoding.TextModel", ray_steps.PlayedModel)
    both = index_both(folder, tmp_path, encoder=str(model))
    assert {path.name for path in tmp_path.glob("on *")} == {"on cpu", "on cuda 0"}
    found = [ColumnVectors.open(lake.index.segments[0].folder, "columns") for lake in both]
    local, other = (np.asarray(one.rows, np.float32) for one in found if one is not None)
    np.testing.assert_allclose(local, other, atol=0.01)


def test_vectors_encoded_before_are_not_encoded_again(
    cluster: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "cache"))
    lake = deepjoin.index(
        folder, tmp_path / "ray", build=deepjoin.BuildSettings(engine="ray"), encoder="default"
    )
    with VectorCache(tmp_path / "cache" / "vectors.sqlite") as cache:
        assert len(cache) == lake.report.columns
        (key,) = cache._database.execute("SELECT key FROM vectors LIMIT 1").fetchone()
        cache.put([key], np.ones((1, 384), np.float32))
    again = deepjoin.index(
        folder, tmp_path / "again", build=deepjoin.BuildSettings(engine="ray"), encoder="default"
    )
    rows = ColumnVectors.open(again.index.segments[0].folder, "columns").rows  # type: ignore[union-attr]
    assert (np.asarray(rows) == 1).all(axis=1).sum() == 1


def test_what_cannot_travel_is_read_here(cluster: Any, folder: Path, tmp_path: Path) -> None:
    frames = {"mine": {"key": WORDS[:9]}, "yours": {"key": WORDS[4:12]}}
    lake = deepjoin.index(frames, tmp_path / "frames", build=deepjoin.BuildSettings(engine="ray"))
    assert lake.search(WORDS[:9], 1)[0].table == "mine"
    write_corpus(tmp_path / "corpus", [deepjoin.Column(WORDS[:9], "key", "t", column_id="t#0")])
    corpus = deepjoin.index(
        tmp_path / "corpus", tmp_path / "of corpus", build=deepjoin.BuildSettings(engine="ray")
    )
    assert corpus.report.columns == 1


def test_tables_that_workers_do_not_see(cluster: Any, folder: Path, tmp_path: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        with pytest.raises(
            DeepJoinError, match=r"^\S+\.csv can be read here, and not on the node \S+: "
        ):
            deepjoin.index(
                f"/proc/self/fd/{number}",
                tmp_path / "index",
                build=deepjoin.BuildSettings(engine="ray"),
            )
    finally:
        os.close(number)


def test_a_table_that_goes_meanwhile(cluster: Any, folder: Path, tmp_path: Path) -> None:
    def remove(done: int, total: int, name: str) -> None:
        (folder / "t23.csv").unlink(missing_ok=True)

    lake = deepjoin.index(
        folder, tmp_path / "index", build=deepjoin.BuildSettings(engine="ray"), progress=remove
    )
    assert "t23.csv" not in lake.tables
    assert "t23.csv" in {skip.name for skip in lake.report.skipped}


def test_another_cluster_than_joined(cluster: Any, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="This process is part of the Ray cluster at .*, not"):
        deepjoin.index(
            folder,
            tmp_path / "index",
            build=deepjoin.BuildSettings(engine="ray", ray_address="127.0.0.1:1"),
        )


def test_the_command_says_where_it_works(cluster: Any, folder: Path, tmp_path: Path) -> None:
    options = ["-o", str(tmp_path / "index"), "--engine", "ray", "--encoder", "none"]
    command = [sys.executable, "-m", "deepjoin", "index", str(folder), *options]
    address = {"RAY_ADDRESS": cluster.address}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | address)
    assert done.stdout == f"{tmp_path / 'index'}\n"
    lines = done.stderr.splitlines()
    assert lines[0] == (
        f"Working on the Ray cluster at {cluster.address}: 2 nodes, 2 processors, 1 GPU."
    )
    # The nodes, small as they are, may have said something before.
    assert any(line.startswith("Indexed 24 tables: 48 columns, ") for line in lines)


@pytest.mark.parametrize("join", ["equi", "semantic"])
def test_pairs_to_learn_from_are_the_same(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, join: str
) -> None:
    from scipy.sparse import csr_array

    from deepjoin.lab.training import self_join

    chance = random.Random(3)
    lists = [chance.sample(WORDS[:80], chance.randint(3, 30)) for _ in range(60)]
    columns = TrainingColumns.of([deepjoin.Column(cells) for cells in lists], range(60))
    monkeypatch.setattr(self_join, "_WORK", 400)
    monkeypatch.setattr(self_join, "_CELLS", 200)
    found = []
    for name in ("local", "ray"):
        with engine_named(name) as engine:
            if join == "equi":
                found.append(self_join.equi_pairs(columns, 0.3, 5, engine=engine))
            else:
                near = csr_array(np.eye(len(columns.frequency)))
                mine = self_join.semantic_pairs
                found.append(mine(columns, near, 0.3, 5, engine=engine))
    assert len(found[0]) > 60
    for one, other in zip(*(vars(pairs).values() for pairs in found), strict=True):
        assert np.array_equal(one, other)
