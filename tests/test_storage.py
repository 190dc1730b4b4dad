"""The index folder: whole or refused, the old one or the new one, whatever happens on the way."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.build.update import worth_merging
from deepjoin.embed.vector_build import ROWS, new_rows
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.store import manifest
from deepjoin.store.values.index import FORWARD, ValueIndexWriter
from tests.support.command_line import Answer, Run
from tests.support.index_files import changed_manifest, files_of, search_answers

pytestmark = pytest.mark.slow

Damage = Callable[[Path], object]


@pytest.fixture
def built(lake_folder: Path) -> Path:
    """Return the folder of an index."""
    return Path(deepjoin.index(lake_folder).path)


def rewritten(change: Callable[[dict[str, Any]], object]) -> Damage:
    return lambda index: changed_manifest(index, change)


def in_segment(change: Callable[[dict[str, Any]], object]) -> Damage:
    return rewritten(lambda fields: change(fields["segments"][0]))


def segment(index: Path) -> Path:
    (path,) = (index / "segments").iterdir()
    return path


def on_file(name: str, change: Callable[[Path], object]) -> Damage:
    return lambda index: change(segment(index) / name)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def garble(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)


DAMAGES: dict[str, Damage] = {
    "no manifest": lambda index: (index / "manifest.json").unlink(),
    "empty manifest": lambda index: (index / "manifest.json").write_text(""),
    "not JSON": lambda index: (index / "manifest.json").write_text('{"product": "deepjo'),
    "not text": lambda index: (index / "manifest.json").write_bytes(b"\xff\xfe\x00"),
    "a list": lambda index: (index / "manifest.json").write_text("[1, 2]"),
    "no segments": lambda index: shutil.rmtree(index / "segments"),
    "empty segments": lambda index: shutil.rmtree(segment(index)),
    "segment is a file": lambda index: (shutil.rmtree(segment(index)), segment_file(index)),
    "fields missing": rewritten(lambda fields: fields.pop("segments")),
    "no settings": rewritten(lambda fields: fields.pop("settings")),
    "no format": rewritten(lambda fields: fields.pop("format")),
    "unknown field": rewritten(lambda fields: fields.update(surprise=1)),
    "format is text": rewritten(lambda fields: fields.update(format="1")),
    "format is null": rewritten(lambda fields: fields.update(format=None)),
    "settings are a list": rewritten(lambda fields: fields.update(settings=[1])),
    "unknown profile": rewritten(lambda fields: fields["settings"].update(profile="fancy")),
    "min_distinct is text": rewritten(lambda fields: fields["settings"].update(min_distinct="5")),
    "files are a list": in_segment(lambda one: one.update(files=["report.json"])),
    "files are empty": in_segment(lambda one: one.update(files={})),
    "file without size": in_segment(lambda one: one["files"].update({"report.json": 5})),
    "segment is null": in_segment(lambda one: one.update(name=None)),
    "segment is a number": in_segment(lambda one: one.update(name=7)),
    "segment is elsewhere": in_segment(lambda one: one.update(name="../../..")),
    "source is text": rewritten(lambda fields: fields.update(sources=["data"])),
    "source is empty": rewritten(lambda fields: fields.update(sources=[{}])),
    "root is a number": rewritten(lambda fields: fields["sources"][0].update(root=3)),
    "paths are a number": rewritten(lambda fields: fields["sources"][0].update(paths=3)),
    "no paths": rewritten(lambda fields: fields["sources"][0].pop("paths")),
    "array missing": on_file("posting_columns.npy", Path.unlink),
    "array cut": on_file("cell_values.npy", shorten),
    "array longer": on_file("value_hashes.npy", lengthen),
    "array garbled": on_file("column_tables.npy", garble),
    "strings missing": on_file("table_names.bytes.npy", Path.unlink),
    "strings cut": on_file("values.offsets.npy", shorten),
    "report missing": on_file("report.json", Path.unlink),
    "report cut": on_file("report.json", shorten),
    "report garbled": on_file("report.json", garble),
    "entries garbled": on_file("table_entries.offsets.npy", garble),
}
FOREIGN: dict[str, Damage] = {
    "foreign": rewritten(lambda fields: fields.update(product="npm")),
    "no product": rewritten(lambda fields: fields.pop("product")),
}


def segment_file(index: Path) -> None:
    name = json.loads((index / "manifest.json").read_text())["segments"][0]["name"]
    (index / "segments" / name).write_text("")


@pytest.mark.parametrize("damage", {**DAMAGES, **FOREIGN}.values(), ids=[*DAMAGES, *FOREIGN])
def test_a_damaged_index_is_refused_by_every_command(
    run: Run, built: Path, lake_folder: Path, damage: Damage
) -> None:
    damage(built)
    before = files_of(built)
    with pytest.raises(IndexUnusable) as caught:
        deepjoin.open(built).info()
    assert str(built) in str(caught.value)
    target = ("-c", "customer_country", "--with", "geo/countries.csv:country")
    orders = lake_folder.parent / "orders.csv"
    for answer in (
        run("search", built, "--values", "Peru,Japan"),
        run("info", built),
        run("join", built, orders, *target),
    ):
        answer.refused(str(built))
        assert "deepjoin index" in answer.err, "says what to do"
    assert files_of(built) == before, "looking changes nothing"


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_index_can_be_built_again_in_place(
    run: Run, built: Path, lake_folder: Path, damage: Damage
) -> None:
    expected = search_answers(built)
    damage(built)
    answer = run("index", lake_folder, "-o", built, "--rebuild")
    assert answer.status == 0, answer.err
    assert search_answers(built) == expected


@pytest.mark.parametrize("damage", FOREIGN.values(), ids=FOREIGN)
def test_what_belongs_to_another_program_is_not_overwritten(
    run: Run, built: Path, lake_folder: Path, damage: Damage
) -> None:
    damage(built)
    before = files_of(built)
    run("index", lake_folder, "-o", built).refused(str(built))
    assert files_of(built) == before


def test_a_newer_format_names_the_version_to_install(run: Run, built: Path) -> None:
    rewritten(lambda fields: fields.update(format=99, version="9.1", novelty=[1]))(built)
    texts = ("deepjoin 9.1", "format 99", "pip install 'deepjoin>=9.1'")
    run("search", built, "--values", "Peru").refused(*texts)
    with pytest.raises(IndexUnusable, match="reads up to format 4"):
        deepjoin.open(built)


def test_a_folder_without_index_is_not_opened(lake_folder: Path) -> None:
    with pytest.raises(IndexUnusable, match=r"not a deepjoin index.*deepjoin index SOURCE"):
        deepjoin.open(lake_folder)
    with pytest.raises(IndexUnusable, match="nowhere is not a deepjoin index"):
        deepjoin.open("nowhere")


def test_an_unreadable_manifest_says_why(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_permission(path: Path, *_: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", no_permission)
    with pytest.raises(IndexUnusable, match=r"cannot be read: Permission denied"):
        deepjoin.open(built)


def test_one_writer_at_a_time(run: Run, built: Path, lake_folder: Path) -> None:
    expected = search_answers(built)
    with (built / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run("index", lake_folder, "--rebuild").refused(
            str(built), "being written by another process"
        )
        assert search_answers(built) == expected, "readers never wait"
    assert run("index", lake_folder).status == 0


def test_an_index_cannot_be_written_where_nothing_can(
    run: Run, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    answer = run("index", lake_folder, "-o", lake_folder.parent / "ix")
    answer.refused("Cannot write an index", "Read-only file system", "-o")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def short_write(*_: object, **__: object) -> None:
    """Raise what NumPy raises when the disk is full: an error without a number."""
    raise OSError("4096 requested and 0 written")


#: From the first cell written to the last step of the commit.
STEPS = [
    "deepjoin.arrays.ArrayWriter.append",
    "deepjoin.store.catalog.CatalogWriter.finish",
    "deepjoin.store.report.BuildReport.saved",
    "deepjoin.store.storage.fingerprint",
    "deepjoin.store.storage.sync_folder",
    "deepjoin.store.storage.replace_file",
]


@pytest.mark.parametrize("grown", [True, False], ids=["changed", "unchanged"])
@pytest.mark.parametrize("step", STEPS)
def test_a_full_disk_leaves_the_old_index(
    run: Run,
    built: Path,
    lake_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    grown: bool,
) -> None:
    expected = search_answers(built)
    if grown:
        (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
    with monkeypatch.context() as patch:
        patch.setattr(step, full)
        run("index", lake_folder, "--rebuild").refused("No space left", str(built), "-o")
    gc.collect()  # a file that was left open becomes a warning here, and so an error
    assert search_answers(built) == expected
    assert not list(built.glob("segments/writing-*"))
    assert run("index", lake_folder).status == 0
    assert len(list((built / "segments").iterdir())) == 1
    assert (search_answers(built) != expected) == grown


def test_a_short_write_is_a_full_disk(
    run: Run, built: Path, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = search_answers(built)
    with monkeypatch.context() as patch:
        patch.setattr("numpy.save", short_write)
        run("index", lake_folder, "--rebuild").refused("space", str(built))
    gc.collect()
    assert search_answers(built) == expected


def test_room_for_mapped_files_is_taken_before_they_are_filled(tmp_path: Path) -> None:
    """A disk that fills up under a memory map ends the process by a signal, without a word."""
    with ValueIndexWriter(tmp_path, np.full(4, 50_000)):
        for name in FORWARD:
            status = (tmp_path / f"{name}.npy").stat()
            assert status.st_blocks * 512 >= status.st_size > 4 * 50_000
    new_rows(tmp_path, 1000, 256)
    status = (tmp_path / ROWS).stat()
    assert status.st_blocks * 512 >= status.st_size > 2 * 256_000


def test_a_disk_without_room_for_column_vectors_is_reported(
    run: Run, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", lambda *_: full())
        run("index", lake_folder, "--encoder", "default").refused("No space left", "-o")


def test_a_source_that_fails_is_not_called_a_full_index(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("deepjoin.read.files.FileSource.items", broken)
    with pytest.raises(DeepJoinError) as caught:
        deepjoin.index(lake_folder, lake_folder.parent / "ix")
    assert "Cannot write" not in str(caught.value)


def test_a_reader_outlives_a_rebuild(built: Path, lake_folder: Path) -> None:
    lake = Lake(built)
    (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
    newer = deepjoin.index(lake_folder)
    assert len(lake.search(["Peru"])) == 1 < len(newer.search(["Peru"]))
    assert (lake.info()["tables"], newer.info()["tables"]) == (3, 4)


def test_a_reader_that_meets_a_commit_gets_the_new_lake(
    built: Path, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment a manifest names may go before it is opened: then the manifest is read again."""
    (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
    commits = iter([partial(deepjoin.index, lake_folder)])

    def read_manifest(folder: Path) -> manifest.Manifest:
        found = manifest.read_manifest(folder)
        for commit in commits:
            commit()
        return found

    monkeypatch.setattr("deepjoin.store.open_index.read_manifest", read_manifest)
    assert len(Lake(built).tables) == 4


CHILD = """
import sys
from deepjoin.cli import main
from {module} import {owner}
import {module} as module

def stop(*arguments, **options):
    print("here", flush=True)
    sys.stdin.read()

{owner}.{name} = stop
sys.exit(main(["index", sys.argv[1]]))
"""


def stopped_at(step: str, source: Path, number: int) -> Answer:
    """Index in another process and send it a signal when it comes to a step."""
    path, _, name = step.rpartition(".")
    module, _, owner = path.rpartition(".")
    code = CHILD.format(module=module, owner=owner, name=name)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return Answer(process.returncode, out, err)


@pytest.mark.parametrize("exists", [True, False], ids=["again", "first"])
def test_stopping_leaves_no_half_index(run: Run, lake_folder: Path, exists: bool) -> None:
    if exists:
        deepjoin.index(lake_folder)
    index = lake_folder / ".deepjoin"
    expected = search_answers(index) if exists else None
    (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
    answer = stopped_at("deepjoin.store.report.BuildReport.saved", lake_folder, signal.SIGINT)
    assert answer.status == 130
    assert answer.err.startswith("deepjoin: Interrupted. The index is consistent;")
    assert not list(index.glob("segments/writing-*"))
    if exists:
        assert search_answers(index) == expected
    else:
        assert "indexing it" in run("search", lake_folder, "--values", "Peru,Chad").err


@pytest.mark.parametrize("step", ["report.BuildReport.saved", "storage.replace_file"])
def test_a_killed_writer_leaves_the_old_index(
    run: Run, built: Path, lake_folder: Path, step: str
) -> None:
    expected = search_answers(built)
    (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
    answer = stopped_at(f"deepjoin.store.{step}", lake_folder, signal.SIGKILL)
    assert answer.status == -signal.SIGKILL
    assert search_answers(built) == expected
    assert run("index", lake_folder).status == 0
    assert len(list((built / "segments").iterdir())) == 1, "the next writer clears up"
    assert search_answers(built) != expected


def test_large_segments_stay_apart() -> None:
    giga = 1 << 30
    assert worth_merging([giga, giga], [0, 0]) == 0
    assert worth_merging([100 * giga, 60 * giga, 5 * giga], [0, 0, 0]) == 3
    assert worth_merging([100 * giga, 6 * giga, 5 * giga], [0, 0, 0]) == 1
    assert worth_merging([100 * giga, 60 * giga], [0.3, 0]) == 0, "one that is half empty shrinks"


def test_a_manifest_cut_short_alone_in_its_folder_is_an_index(
    lake_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"product": "deepj')
    assert manifest.is_index(folder)
    with pytest.raises(IndexUnusable, match=r"is damaged: manifest.json is not valid JSON"):
        deepjoin.open(folder)
    again = deepjoin.BuildSettings(rebuild=True)
    assert len(deepjoin.index(lake_folder, folder, build=again)) == 3
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "manifest.json").write_text('{"product": "deepj')
    (beside / "t.csv").write_text("a,b\n1,2\n")
    assert not manifest.is_index(beside)
