"""One contract over every encoder of columns and of cells that can run here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepjoin import Column, DeepJoinError
from deepjoin.embed.cells import DEFAULT_TABLE, CellEncoder, load_cell_encoder
from deepjoin.embed.columns import DEFAULT, ColumnEncoder, load_encoder
from deepjoin.embed.columns.text import no_frequency
from deepjoin.embed.columns.weights import read_weights, write_weights
from tests.support.encoder_models import export, model_folders
from tests.support.table_models import save_mlp, save_tabert, save_turl

pytestmark = pytest.mark.slow

CITIES = Column(["Rome", "Paris", "Oslo", "New York", "rome"], name="city", title="Cities")
NUMBERS = Column(["7", "8.5", "-3", "7.0", "1200"], name="rank")
EMPTY = Column([], name="gone")
COLUMNS = [CITIES, NUMBERS, EMPTY, Column(["a", "b"]), Column(["China"] * 9)]
ODD_CELLS = ["\ud800", "x" * 20_000, "", "😀", "\x00", "東京", "9" * 400, "-.5", "a b " * 9000]

#: Copies the weights of an encoder into a folder and returns what `load_encoder` is given.
Place = Callable[[pytest.TempPathFactory, Path], str]


def write_words(path: Path) -> Path:
    """Write a small file of word vectors."""
    words = {"rome": (3, 0, 0), "paris": (2, 1, 0), "new": (0, 1, 1), "york": (1, 0, 2)}
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in words.items()]
    path.write_text("\n".join([f"{len(lines)} 3", *lines]) + "\n", "utf-8")
    return path


def tiny(kind: str) -> Place:
    """Save a tiny model of transformers or sentence-transformers."""
    return lambda places, to: str(shutil.copytree(model_folders(places)(kind), to))


def checkpoint(save: Callable[..., Path], **said: Any) -> Place:
    """Save a tiny checkpoint in the layout of a published model."""

    def place(places: pytest.TempPathFactory, to: Path) -> str:
        torch: Any = pytest.importorskip("torch")
        torch.set_num_threads(1)
        return str(save(to, **said))

    return place


@dataclass(frozen=True)
class EncoderCase:
    """How to make an encoder, and which of its files holds the weights."""

    kind: str
    place: Place
    weights: str = ""

    def spec(self, places: pytest.TempPathFactory, to: Path) -> str:
        """Make the files; returns what names the encoder."""
        where = self.place(places, to)
        return f"{self.kind}:{where}" if self.kind else where


CASES = {
    "shipped": EncoderCase("", lambda _, to: str(shutil.copytree(DEFAULT, to)), "weights.npz"),
    "onnx": EncoderCase(
        "", lambda places, to: str(export(model_folders(places)("distilbert"), to)), "weights.npz"
    ),
    "torch": EncoderCase("", tiny("bert"), "model.safetensors"),
    "sentence": EncoderCase("", tiny("sentence bert"), "model.safetensors"),
    "fasttext": EncoderCase("fasttext", lambda _, to: str(write_words(to.with_suffix(".vec")))),
    "averages": EncoderCase("bert", tiny("bert"), "model.safetensors"),
    "tabert": EncoderCase("tabert", checkpoint(save_tabert), "model.bin"),
    "tabert rows": EncoderCase(
        "tabert",
        checkpoint(save_tabert, rows=3, column_representation="mean_pool_column_name"),
        "model.bin",
    ),
    "turl": EncoderCase("turl", checkpoint(save_turl), "pytorch_model.bin"),
    "mlp": EncoderCase("mlp", checkpoint(save_mlp), "weights.npz"),
    "sherlock": EncoderCase("sherlock", lambda _, to: ""),
}
#: Encoders with files: sherlock computes statistics and has nothing to load.
WITH_WEIGHTS = [name for name in CASES if name != "sherlock"]


def load(spec: str, profile: str = "default") -> ColumnEncoder:
    found = load_encoder(spec, profile=profile, threads=1, device="cpu")
    assert isinstance(found, ColumnEncoder)
    return found


@pytest.fixture(scope="module", params=CASES)
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make every column encoder there is."""
    return CASES[request.param].spec(tmp_path_factory, tmp_path_factory.mktemp("made") / "model")


@pytest.fixture(scope="module")
def encoder(spec: str) -> ColumnEncoder:
    """Load every column encoder there is."""
    return load(spec)


def test_every_column_has_one_vector(encoder: ColumnEncoder) -> None:
    vectors = encoder.encode(COLUMNS, no_frequency)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(COLUMNS), encoder.dimension)
    assert np.isfinite(vectors).all()
    assert encoder.encode([], no_frequency).shape == (0, encoder.dimension)
    assert encoder.encode_query(CITIES, no_frequency).shape == (encoder.dimension,)


def test_the_same_columns_have_the_same_vectors(encoder: ColumnEncoder) -> None:
    first, second = (encoder.encode(COLUMNS, no_frequency) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_vector_does_not_depend_on_its_batch(encoder: ColumnEncoder) -> None:
    together = encoder.encode(COLUMNS, no_frequency)
    alone = [encoder.encode([column], no_frequency)[0] for column in COLUMNS]
    backwards = encoder.encode(COLUMNS[::-1], no_frequency)[::-1]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(together, backwards, atol=1e-5)


def test_a_column_without_a_word_is_read(encoder: ColumnEncoder) -> None:
    vectors = encoder.encode([Column([]), Column(["", " "]), Column([None])], no_frequency)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors, np.repeat(vectors[:1], 3, axis=0), atol=1e-5)


def test_odd_and_very_long_cells_are_read(encoder: ColumnEncoder) -> None:
    odd = Column(ODD_CELLS, name="\udfff" * 700, title="t " * 9000)
    assert np.isfinite(encoder.encode([odd, CITIES], no_frequency)).all()


def test_a_digest_is_stable_and_tells_profiles_apart(spec: str, encoder: ColumnEncoder) -> None:
    assert encoder.digest == load(spec).digest != load(spec, "basic").digest


def change_weights(path: Path) -> None:
    """Change one number of a file of weights, which stays readable."""
    if path.suffix == ".vec":
        path.write_text(path.read_text("utf-8").replace("rome 3 0 0", "rome 3 0 1"), "utf-8")
    elif path.suffix == ".npz":
        arrays = {
            name: array.copy() for name, array in read_weights(path.read_bytes(), path).items()
        }
        next(iter(arrays.values())).flat[0] += 1
        write_weights(path, arrays)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load_file, save_file

        tensors = load_file(path)
        next(iter(tensors.values())).flat[0] += 1
        save_file(tensors, path, metadata={"format": "pt"})
    else:
        import torch

        tensors = torch.load(path)
        next(iter(tensors.values())).view(-1)[0] += 1
        torch.save(tensors, path)


def weights_of(case: EncoderCase, spec: str) -> Path:
    where = Path(spec.removeprefix(f"{case.kind}:"))
    return where / case.weights if case.weights else where


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_a_digest_changes_with_the_weights(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = CASES[name].spec(tmp_path_factory, tmp_path / "model")
    before = load(spec).digest
    change_weights(weights_of(CASES[name], spec))
    assert load(spec).digest != before


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_a_torn_file_is_named_in_one_line(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = CASES[name].spec(tmp_path_factory, tmp_path / "model")
    path = weights_of(CASES[name], spec)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DeepJoinError, match="model") as raised:
        load(spec)
    assert "\n" not in str(raised.value)


CELLS = {
    "shipped": lambda to: Path(shutil.copytree(DEFAULT_TABLE, to)),
    "fasttext": lambda to: write_words(to.with_suffix(".vec")),
}
VALUES = ["rome", "new york", "", "\ud800", "atlantis 7", "paris", "x" * 20_000, "東京"]


@pytest.fixture(scope="module", params=CELLS)
def cell_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make every cell encoder there is."""
    return CELLS[request.param](tmp_path_factory.mktemp("cells") / "model")


@pytest.fixture(scope="module")
def cells(cell_place: Path) -> CellEncoder:
    """Load every cell encoder there is."""
    return load_cell_encoder(cell_place)


def test_every_cell_has_one_unit_vector_or_zeros(cells: CellEncoder) -> None:
    vectors = cells.encode(VALUES)
    assert vectors.dtype == np.float32 and vectors.shape == (len(VALUES), cells.dimension)
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, atol=1e-5)
    assert lengths[0] > 0 and lengths[2] == 0
    assert cells.encode([]).shape == (0, cells.dimension)
    assert 0 < cells.floor < cells.tau <= 1


def test_a_cell_vector_does_not_depend_on_its_batch(cells: CellEncoder) -> None:
    together = cells.encode(VALUES)
    assert np.array_equal(together, cells.encode(VALUES))
    alone = np.concatenate([cells.encode([value]) for value in VALUES])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_a_cell_digest_is_stable(cells: CellEncoder, cell_place: Path) -> None:
    assert cells.digest == load_cell_encoder(cell_place).digest


@pytest.mark.parametrize("kind", CELLS)
def test_a_torn_cell_encoder_is_named_in_one_line(kind: str, tmp_path: Path) -> None:
    place = CELLS[kind](tmp_path / "model")
    path = place / "rows.npy" if place.is_dir() else place
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DeepJoinError, match="model") as raised:
        load_cell_encoder(place)
    assert "\n" not in str(raised.value)
