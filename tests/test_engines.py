"""Engines and the parts they build, where no cluster is needed: groups, pieces, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import DeepJoinError
from deepjoin.distributed import ray_engine
from deepjoin.errors import MissingExtra, UnknownName
from deepjoin.lake import parts
from deepjoin.lake.changes import Found
from deepjoin.ledger import Key
from deepjoin.sources.frames import MemorySource
from deepjoin.sources.items import Item, Listing, skipped_item


def test_pieces_of_two_readings_are_refused(tmp_path: Path) -> None:
    group = parts.Group(0, [Found(Key(0, "a"), skipped_item("a", "no"), MemorySource([]))])
    rows = (parts._row(0, digest, "values", b"1") for digest in ("one", "other"))
    with pytest.raises(DeepJoinError, match="A worker was lost, and a table it was reading has ch"):
        list(parts._received(rows, [group], lambda: tmp_path))


def test_another_encoder_on_a_node() -> None:
    with pytest.raises(DeepJoinError, match=r"The encoder of cells 'x' is another one on the node"):
        parts.check_same("cells", "x", "one", "other")


@given(st.lists(st.one_of(st.none(), st.integers(0, 1 << 27)), max_size=300))
def test_groups_are_bounded_and_in_order(sizes: list[int | None]) -> None:
    found = [
        Found(Key(0, str(number)), Item(str(number), "", Listing, size=size), MemorySource([]))
        for number, size in enumerate(sizes)
    ]
    groups = parts.cut(found)
    assert [one for group in groups for one in group.found] == found
    assert [group.number for group in groups] == list(range(len(groups)))
    for group in groups:
        held = [one.item.size for one in group.found]
        assert 0 < len(held) <= parts._ITEMS[1]
        assert len(held) == 1 or sum(size or 0 for size in held) <= parts._BYTES[1]
        assert len([size for size in held if size != 0]) == 1 or None not in held


def test_names_that_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"No engine 'rya' in deepjoin.*Did you mean 'ray'\?"):
        deepjoin.index(tmp_path, engine="rya")
    with pytest.raises(DeepJoinError, match="'ray://head:10001' is the address of a Ray client"):
        deepjoin.index(tmp_path, engine="ray", ray_address="ray://head:10001")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs ray and pandas: pip install 'deepjoin\[ray\]'"):
        deepjoin.index(tmp_path, engine="ray")


def test_a_cluster_that_is_not_there(lake_folder: Path, tmp_path: Path) -> None:
    options = ["-o", str(tmp_path / "index"), "--engine", "ray", "--ray-address", "127.0.0.1:1"]
    command = [sys.executable, "-m", "deepjoin", "index", str(lake_folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "deepjoin: No Ray cluster can be joined at '127.0.0.1:1': [Errno 111] Connection refused. "
        "Start one with: ray start --head, or leave the address out.\n"
    )
