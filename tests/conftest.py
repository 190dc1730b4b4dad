"""Shared fixtures: small lakes made on the spot, and the strategies that fill them."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# Set before huggingface_hub is imported: a name that is no folder then fails without retries.
os.environ["HF_HUB_OFFLINE"] = "1"

import deepjoin
from deepjoin import Column, Lake, Settings
from deepjoin.demo import write_demo_lake
from tests.support.browsing import CHROMIUM, NO_BROWSER, browsing
from tests.support.options import index_options
from tests.support.vector_stores import SERVERS, frames, fresh, started, towns

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# What tests print must not depend on the terminal that they, or the workers of xdist, run in.
for _name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(_name, None)

settings.register_profile(
    "deepjoin",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("deepjoin"), max_examples=12)
settings.load_profile("deepjoin")

pytest_plugins = [
    *("tests.support.command_line", "tests.support.encoder_models", "tests.support.postgres"),
    *("tests.support.shops", "tests.support.training"),
]

# Each of the hundreds of processes that tests start would compile the whole package otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell starts what runs in the background with Ctrl-C ignored, and commands would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Thousands of small indexes are written, in memory for less than half of the processor time. xdist
# passes the choice on to its workers.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK):
    _room = os.statvfs(_MEMORY)
    if _room.f_bavail * _room.f_frsize > 4 << 30 and not _room.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
# Nothing here outlives a power cut; the tests that play one do it in processes of their own.
os.fsync = lambda _: None

MakeLake = Callable[..., Lake]

#: Test modules that need an optional package, left out where it is not installed. It is looked for,
#: not imported: every worker of xdist collects all tests, and these packages take seconds.
_NEEDS = {
    "playwright": ("test_page*.py",),
    "schemathesis": ("test_server_openapi.py",),
    "onnx": ("test_semantic.py", "test_restore.py"),
    "ray": ("test_ray.py",),
    "torch": ("test_train*.py", "test_device.py", "test_gpu.py"),
    "sentence_transformers": ("test_device.py", "test_gpu.py", "test_restore.py"),
}
collect_ignore_glob = [
    pattern
    for package, modules in _NEEDS.items()
    if find_spec(package) is None
    for pattern in modules
]
#: Tests that use these fixtures start what `make quick` goes without.
_MARKS = {
    "browser": "page",
    "cluster": "ray",
    "vector_server": "postgres",
    "postgres_server": "postgres",
    "tiny_bert": "train",
}
#: Modules some of whose tests load torch, although their fixtures do not tell.
_WITH_TORCH = {
    *("test_baseline_encoders", "test_encoder_contract", "test_encoder_export"),
    *("test_encoder_folders", "test_encoder_kinds", "test_method_contract", "test_restore"),
}
#: Marks in the order in which their tests begin.
_LONGEST = ("ray", "page", "train", "postgres", "slow")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures they use and the packages they import.

    Tests that share what is made once for all or some of them (a cluster, a server, a browser, an
    index for a module) run in one worker, and so do those that load torch, which takes each worker
    five seconds; what takes longest begins first.
    """
    begins: dict[str, int] = {}
    unit: dict[pytest.Item, str] = {}
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        marks = {mark for fixture, mark in _MARKS.items() if fixture in fixtures}
        imported = vars(getattr(item, "module", None) or object)
        marks |= {mark for name, mark in (("torch", "train"), ("ray", "ray")) if name in imported}
        if "postgres" in item.name:
            marks.add("postgres")
        if "bucket" in item.name:  # a server of objects is started for these
            marks.add("slow")
        for mark in sorted(marks):
            item.add_marker(mark)
        groups = sorted(marks & {"ray", "postgres", "page"}) or _shared_in_module(item)
        if item.path.stem in _WITH_TORCH or (marks & {"train"} and "ray" not in marks):
            groups = ["train"]
        for group in groups:
            item.add_marker(pytest.mark.xdist_group(group))
        unit[item] = groups[0] if groups else item.nodeid
        marks |= {mark.name for mark in item.iter_markers()}
        rank = min(map(_LONGEST.index, marks & {*_LONGEST}), default=len(_LONGEST))
        begins[unit[item]] = min(rank, begins.get(unit[item], rank))
    items.sort(key=lambda item: begins[unit[item]])


def pytest_collection_finish() -> None:
    """Leave a million objects that stay until the end out of every later search for garbage."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries report what is still there at the end as leaks."""
    gc.unfreeze()


def _shared_in_module(item: pytest.Item) -> list[str]:
    """Name the module of a test, if the test uses what is made once for its module."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info else ()
    is_shared = any(one.scope == "module" for several in definitions for one in several)
    return [item.path.stem] if is_shared else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly that the page was not tested, in place of a few more letters among the dots."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(NO_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.section("THE PAGE WAS NOT TESTED", red=True, bold=True)
        terminalreporter.line(
            f"There is {NO_BROWSER}. Install it (Debian: apt-get install chromium) and run the "
            "tests again."
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium for the tests of one module: while it runs, its thread has an event loop."""
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    with browsing() as started:
        yield started


@pytest.fixture(scope="session", params=SERVERS)
def vector_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run what follows on each PostgreSQL server with pgvector."""
    with started(request.param, request.config.pluginmanager.get_plugin("terminalreporter")) as uri:
        yield uri


@pytest.fixture(scope="session")
def encoded_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index a lake with column vectors, sketches and all in one."""
    folder = tmp_path_factory.mktemp("made") / "lake"
    options = {"encoder": "default", "cells": "default", "sketch": 64, "min_distinct": 1}
    deepjoin.index(frames(towns(0, 12)), folder, **index_options(**options))
    return folder


@pytest.fixture
def own_lake(encoded_lake: Path, tmp_path: Path) -> Path:
    """Give a lake of a test's own."""
    return Path(shutil.copytree(encoded_lake, tmp_path / "lake"))


@pytest.fixture
def store_url(vector_server: str) -> Iterator[str]:
    """Give a database without tables."""
    yield fresh(vector_server, "publishing")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Index the demo lake once, for tests that only read it."""
    folder = write_demo_lake(tmp_path_factory.mktemp("demo")).folder
    return deepjoin.index(folder, encoder="none")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep vectors that tests encode apart from those of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPJOIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def make_lake(tmp_path: Path) -> MakeLake:
    """Build a lake from columns; each call makes a new index."""
    count = 0

    def make(columns: list[Column], memory: int = 1 << 30, **options: object) -> Lake:
        nonlocal count
        count += 1
        chosen = Settings(**{"min_distinct": 1, **options})  # type: ignore[arg-type]
        out = tmp_path / f"index-{count}"
        return deepjoin.index(
            columns, out, settings=chosen, build=deepjoin.BuildSettings(memory=memory)
        )

    return make


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    """Write three small CSV files that share a key."""
    folder = tmp_path / "data"
    (folder / "geo").mkdir(parents=True)
    (folder / "geo" / "countries.csv").write_text(
        "country,capital,population\n"
        "France,Paris,68\nGermany,Berlin,84\nItaly,Rome,59\nSpain,Madrid,48\n"
        "Peru,Lima,34\nJapan,Tokyo,124\n"
    )
    (folder / "geo" / "cities.csv").write_text(
        "city,nation\nLyon,FRANCE\nNice,France\nMunich,Germany\nBonn,germany\n"
        "Milan,Italy\nTurin,Italy\nSeville,Spain\nOsaka,Japan\n"
    )
    (folder / "numbers.csv").write_text(
        "n,year,flag\n" + "".join(f"{i},{2000 + i},{i % 2}\n" for i in range(1, 21))
    )
    (folder.parent / "orders.csv").write_text(
        "order,customer_country,population\n1, france,10\n2,Germany,20\n3,GERMANY,30\n4,Italy,40\n"
        "5,Atlantis,50\n6,Peru,60\n"
    )
    # Older than a moment, or whether their stamps tell a change would depend on the clock.
    for path in folder.rglob("*.csv"):
        os.utime(path, (path.stat().st_mtime - 100,) * 2)
    return folder
