"""FastText cells: text and binary files, torn ones, and models trained on a lake."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deepjoin
from deepjoin import Column, Lake
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.embed.cells.fasttext import check_binary, load_vectors
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lab.encoders import train_fasttext as train
from deepjoin.lab.encoders.train_fasttext import main, train_fasttext
from deepjoin.settings import SearchSettings

MakeLake = Callable[..., Lake]
COUNTRIES = ["germany", "france", "italy", "spain", "norway", "sweden", "portugal", "greece"]
METALS = ["copper", "mercury", "cobalt", "nickel", "titanium", "platinum", "zinc", "tungsten"]
LAKE = [
    Column(COUNTRIES, name="country", table="nations", column_id="nations#0"),
    Column(METALS, name="metal", table="metals", column_id="metals#0"),
]


@pytest.mark.parametrize("end", ["", " "])
def test_text_vectors_are_read_with_and_without_a_last_space(tmp_path: Path, end: str) -> None:
    path = tmp_path / "small.vec"
    path.write_text(f'3 2\nnew 1 0{end}\nYork 0 1{end}\n" -1 0{end}\n', "utf-8")
    encoder = load_cell_encoder(path)
    assert encoder.dimension == 2 and encoder.name == "small.vec"
    expected = [[0.5**0.5, 0.5**0.5], [0, 1], [0, 0]]
    assert np.allclose(encoder.encode(["New York", "york!", "atlantis"]), expected)
    assert encoder.digest == load_vectors(path).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("new 1 0\n", "does not start with a line 'words dimension'"),
        ("3 2\nnew 1 0\n", "ends after 1 words; its first line says 3"),
        ("3 2\nnew 1 0\nyork 1", "is damaged: .*Download the file again"),
        ("2 2\nnew 1 0\nyork x y\n", "is damaged: .*Download the file again"),
        ("2 3\nnew 1 0\nyork 1 0\n", "has 2 numbers in its second line; its first line says 3"),
        ("99999999 300\nnew 1 0\n", "is too short for the 99999999 words of 300 numbers"),
        ("3 0\nnew\n", "is too short for the 3 words of 0 numbers"),
    ],
)
def test_a_broken_text_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.vec"
    path.write_text(text)
    with pytest.raises(DeepJoinError, match=message):
        load_vectors(path)


def test_a_missing_file_and_a_missing_package_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeepJoinError, match="No file .*absent.vec"):
        load_cell_encoder(tmp_path / "absent.vec")
    monkeypatch.setitem(sys.modules, "fasttext", None)
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r"pip install 'deepjoin\[fasttext\]'"):
        load_cell_encoder(tmp_path / "model.bin")


def model_file(path: Path, model: int = 2, words: int = 2, buckets: int = 3) -> Path:
    """Write a file laid out as fastText does, of four numbers a word."""
    settings = (4, 5, 5, 1, 5, 1, 2, model, buckets, 3, 6, 100, 1e-4)
    head = struct.pack("<2i12id3i2q", 793712314, 12, *settings, words, words, 0, 9, -1)
    entries = b"".join(f"word{n}".encode() + b"\0" + bytes(9) for n in range(words))
    matrices = [
        b"\0" + struct.pack("<2q", rows, 4) + bytes(16 * rows) for rows in (words + buckets, words)
    ]
    path.write_bytes(head + entries + b"".join(matrices))
    return path


def test_whole_models_are_taken(tmp_path: Path) -> None:
    check_binary(model_file(tmp_path / "whole.bin"))
    supervised = model_file(tmp_path / "labels.bin", model=3)
    supervised.write_bytes(supervised.read_bytes()[:-7])  # nobody knows where its matrices are
    check_binary(supervised)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: b"", "it ends within its header. Download or train it again"),
        (lambda content: content[:50], "it ends within its header"),
        (lambda content: b"\0" * 500, "it does not start with fastText's magic number"),
        (
            lambda content: content[:8] + b"\0" * 4 + content[12:],
            "the sizes in .* are invalid",
        ),
        (lambda content: content[:100], "100 bytes are too few for its 2 words"),
        (lambda content: content[:-1], r"its matrices do not end at its \d+ bytes"),
        (lambda content: content[:-40], r"its matrices do not end at its \d+ bytes"),
    ],
)
def test_a_torn_model_is_named(
    spoil: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    path = model_file(tmp_path / "torn.bin")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DeepJoinError, match=f"torn.bin is not a fastText model, or .*: {message}"):
        check_binary(path)


def test_a_model_of_an_unknown_version_is_named(tmp_path: Path) -> None:
    pytest.importorskip("fasttext")
    path = model_file(tmp_path / "later.bin")
    path.write_bytes(path.read_bytes()[:4] + struct.pack("<i", 99) + path.read_bytes()[8:])
    with pytest.raises(DeepJoinError, match="later.bin is not a fastText .*wrong file format"):
        load_vectors(path)


@pytest.mark.slow
def test_a_model_is_trained_on_a_lake_and_searched_with(
    make_lake: MakeLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fasttext")
    lake = make_lake(LAKE)
    out = tmp_path / "lake.bin"
    options = ["-o", str(out), "--dimension", "12", "--epochs", "2"]
    assert main([str(lake.path), *options]) == 0
    assert (
        "trained on 16 words of 2 columns. Use it with: deepjoin index" in capsys.readouterr().err
    )
    encoder = load_cell_encoder(out)
    assert encoder.dimension == 12
    again = deepjoin.index(LAKE, lake.path, vectors={"cells": str(out)})
    assert again.vectors.cells.endswith("lake.bin")
    hits = again.search(
        ["germanny", "norways", "portugall"], join="semantic", settings=SearchSettings(tau=0.7)
    )
    assert hits[0].table == "nations"
    assert {match.target for match in hits[0].matches} <= {"germany", "norway", "portugal"}


@pytest.mark.slow
def test_training_draws_some_values_of_each_column(make_lake: MakeLake, tmp_path: Path) -> None:
    pytest.importorskip("fasttext")
    tall = Column(
        [f"value{n}, x-{n}" for n in range(1000)], name="tall", table="t", column_id="t#0"
    )
    lake = make_lake([*LAKE, tall])
    lake.remove("metals")
    trained = train_fasttext(lake, tmp_path / "lake.bin", dimension=4, epochs=1)
    assert (trained.columns, trained.words) == (2, len(COUNTRIES) + 200 * 3)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads race")
def test_the_same_lake_gives_the_same_model_twice(make_lake: MakeLake, tmp_path: Path) -> None:
    pytest.importorskip("fasttext")
    lake = make_lake(LAKE)
    first, again = (
        train_fasttext(lake, tmp_path / name, dimension=12, epochs=3) for name in ("a.bin", "b.bin")
    )
    assert first.path.read_bytes() == again.path.read_bytes()
    assert first.digest == again.digest == load_vectors(first.path).digest
    assert np.isfinite(load_vectors(first.path).encode(COUNTRIES)).all()


def test_a_failure_of_fasttext_is_reported(
    make_lake: MakeLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fasttext")
    monkeypatch.setattr(train, "_ALONE", "raise RuntimeError('Encountered NaN')")
    with pytest.raises(DeepJoinError, match="fastText failed on .*: RuntimeError: Encountered NaN"):
        train_fasttext(make_lake(LAKE), tmp_path / "lake.bin")
    assert not (tmp_path / "lake.bin").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"out": "lake.vec"},
            "cannot be written to .*lake.vec. Give a file name that ends in .bin",
        ),
        ({"out": "gone/lake.bin"}, "cannot be written to .*gone/lake.bin. Give"),
        ({"dimension": 0}, "The dimension is 0, the number of epochs 5; both must be >= 1"),
        ({"epochs": 0}, "The dimension is 100, the number of epochs 0; both must be >= 1"),
    ],
)
def test_training_that_cannot_be_done(
    options: dict[str, object], message: str, make_lake: MakeLake, tmp_path: Path
) -> None:
    out = tmp_path / str(options.pop("out", "lake.bin"))
    with pytest.raises(DeepJoinError, match=message):
        train_fasttext(make_lake(LAKE), out, **options)  # type: ignore[arg-type]


def test_lakes_without_words_are_refused(make_lake: MakeLake, tmp_path: Path) -> None:
    pytest.importorskip("fasttext")
    marks = Column(["--", "?", "!"], name="mark", table="t", column_id="t#0")
    with pytest.raises(DeepJoinError, match="has no words to train on. Index tables with text"):
        train_fasttext(make_lake([marks]), tmp_path / "lake.bin")


def test_lakes_of_hashes_and_no_lake_are_refused(
    lake_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = deepjoin.index(
        lake_folder, tmp_path / "index", settings=deepjoin.Settings(hash_only=True)
    )
    with pytest.raises(DeepJoinError, match="stores hashes and has no words .*Give"):
        train_fasttext(lake, tmp_path / "lake.bin")
    assert main([str(tmp_path / "no-index"), "-o", str(tmp_path / "lake.bin")]) == 1
    assert "is not a deepjoin index" in capsys.readouterr().err


def test_training_names_the_package_it_needs(
    make_lake: MakeLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(MissingExtra, match=r"pip install 'deepjoin\[fasttext\]'"):
        train_fasttext(make_lake(LAKE), tmp_path / "lake.bin")
