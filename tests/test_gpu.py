"""Encoding and searching on a device: on the processor here, and with recording played by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from deepjoin.embed.columns import token_model as encoding
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.embed.columns.token_model import TokenModel, padded, runs
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.embed.recorder import Recorder
from deepjoin.embed.vector_build import METRICS
from deepjoin.embed.vector_index import VectorIndex
from deepjoin.engines import gpu as searching
from deepjoin.engines.gpu import DeviceIndex, DeviceSearch
from deepjoin.errors import DeepJoinError
from tests.support.encoder_models import ODD, Folders, cosines, loaded
from tests.support.played_gpu import play_gpu, play_halves
from tests.support.tiny_models import KINDS
from tests.support.vector_files import build_vectors

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "gpu.py"
TEXTS = ["company values", "a", "", "x, y", "9 8 7", "company: a, b.", "values 1", *ODD]
CPU = torch.device("cpu")


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor play a GPU that records."""
    play_gpu(monkeypatch)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold rows as a GPU does, with its product played."""
    play_halves(monkeypatch)


@pytest.fixture(scope="module", params=KINDS)
def encoder(request: pytest.FixtureRequest, folders: Folders) -> TorchEncoder:
    """Load a tiny model of every kind."""
    return _torch(loaded(folders(request.param)))


def _torch(encoder: TextEncoder) -> TorchEncoder:
    assert isinstance(encoder, TorchEncoder)
    return encoder


def _model(encoder: TorchEncoder, half: bool = False) -> TokenModel:
    return TokenModel(encoder._model, encoder.name, encoder._tokens.limit, half)


def best_rows(search: DeviceSearch, vector: Any, k: int) -> tuple[Any, Any]:
    """Return scores and numbers of the best k rows as the device finds them."""
    count = min(k, len(search))
    scores, rows = searching._unpacked(search._packed(search._checked(vector), count))
    order = np.lexsort((rows, -scores))
    if search.metric == "euclidean":
        scores = -np.sqrt(np.maximum(-scores, 0))
    return scores[order], rows[order]


def _truth(rows: Any, query: Any, metric: str) -> Any:
    rows, query = rows.astype(np.float16).astype(np.float64), query.astype(np.float64)
    if metric == "euclidean":
        return -np.linalg.norm(rows - query, axis=1)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    return rows @ query / np.where(lengths > 0, lengths, 1)


SMALL = st.integers(-3, 3)
CASES = st.tuples(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 90), st.just(5)), elements=SMALL),
    arrays.arrays(np.float32, 5, elements=SMALL),
    st.sampled_from(METRICS),
    st.integers(1, 95),
)


@given(case=CASES)
def test_search_is_brute_force(case: tuple[Any, Any, str, int]) -> None:
    rows, query, metric, k = case
    scores, found = best_rows(DeviceSearch(rows, metric, "cpu"), query, k)
    truth = _truth(rows, query, metric)
    assert len(found) == min(k, len(rows)) == len(set(found.tolist()))
    # A distance of 0 is the root of a rounding error.
    np.testing.assert_allclose(scores, truth[found], atol=5e-3)
    np.testing.assert_allclose(scores, -np.sort(-truth)[:k], atol=5e-3)


@given(case=CASES, data=st.data())
def test_all_that_may_be_among_the_nearest_are_near(
    case: tuple[Any, Any, str, int], data: st.DataObject
) -> None:
    rows, query, metric, k = case
    excluded = data.draw(arrays.arrays(bool, len(rows)))
    found = DeviceSearch(rows, metric, "cpu").near(query, k, excluded)
    truth = np.round(_truth(rows, query, metric), 6)
    live = np.flatnonzero(~excluded)
    least = np.sort(truth[live])[::-1][:k].min(initial=np.inf)
    assert set(live[truth[live] >= least].tolist()) <= set(found.tolist()) <= set(live.tolist())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [40, 45])
def test_halves_lose_nothing(halves: None, metric: str, width: int) -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((3000, width)).astype(np.float16)
    search = DeviceSearch(rows, metric, "cpu")
    for query in random.standard_normal((5, width)).astype(np.float32):
        scores, found = best_rows(search, query, 20)
        truth = _truth(rows, query, metric)
        np.testing.assert_allclose(scores, truth[found], atol=2e-6 if metric == "cosine" else 2e-5)
        assert found.tolist() == np.argsort(-truth, kind="stable")[:20].tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_many_equal_rows_are_all_near(metric: str) -> None:
    rows = np.repeat(np.eye(4, 8, dtype=np.float32), 700, axis=0)
    found = DeviceSearch(rows, metric, "cpu").near(rows[0], 3)
    assert sorted(found.tolist()) == list(range(700))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=arrays.arrays(np.float16, st.tuples(st.integers(0, 80), st.just(6)), elements=SMALL),
    query=arrays.arrays(np.float32, 6, elements=SMALL),
    metric=st.sampled_from(METRICS),
    k=st.integers(0, 90),
    data=st.data(),
)
def test_an_index_on_a_device_finds_the_same(
    tmp_path: Path, rows: Any, query: Any, metric: str, k: int, data: st.DataObject
) -> None:
    build_vectors(rows, tmp_path, "flat", metric)
    excluded = data.draw(st.none() | arrays.arrays(bool, len(rows)))
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    here = VectorIndex(tmp_path).search(query, k, excluded, order)
    there = DeviceIndex(VectorIndex(tmp_path), "cpu").search(query, k, excluded, order)
    assert here.ids.tolist() == there.ids.tolist()
    assert here.distances.tolist() == there.distances.tolist()


def test_any_kind_of_index_is_compared_whole_on_a_device(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((2000, 16)).astype(np.float32)
    build_vectors(rows, tmp_path, "flat8")
    exact = np.argsort(-_truth(rows, rows[3], "cosine"))[:10]
    assert (
        DeviceIndex(VectorIndex(tmp_path), "cpu").search(rows[3], 10).ids.tolist() == exact.tolist()
    )


def test_token_numbers_give_the_vectors_of_their_texts(encoder: TorchEncoder) -> None:
    numbers = encoder.numbers(TEXTS)
    wanted = encoder.encode_texts(TEXTS)
    assert cosines(encoder.encode_tokens(numbers), wanted).min() > 1 - 1e-5
    rows, lengths = padded(numbers)
    rows = np.where(np.arange(rows.shape[1]) < lengths[:, None], rows, 9999).astype(np.uint16)
    assert cosines(encoder.encode_tokens(rows, lengths), wanted).min() > 1 - 1e-5
    alone = [encoder.encode_tokens([np.array(one, np.uint16)])[0] for one in numbers]
    assert cosines(np.stack(alone), wanted).min() > 1 - 1e-5
    assert encoder.encode_tokens([]).shape == (0, encoder.dimension)


def test_texts_are_read_in_parts(encoder: TorchEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, lengths = padded(encoder.numbers(TEXTS))
    model = _model(encoder)
    whole = model.encode(rows, lengths)
    monkeypatch.setattr(encoding, "_TEXTS", 5)
    assert cosines(model.encode(rows, lengths, at_a_time=100), whole).min() > 1 - 1e-5


def test_half_precision_agrees_with_full_precision(encoder: TorchEncoder) -> None:
    rows, lengths = padded(encoder.numbers(TEXTS))
    vectors = _model(encoder, half=True).encode(rows, lengths)
    assert vectors.dtype == np.float32
    assert cosines(vectors, encoder.encode_texts(TEXTS)).min() > 0.999


def test_an_encoder_on_a_gpu_reads_token_numbers(
    folders: Folders, recording: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _torch(loaded(folders("bert")))
    monkeypatch.setattr(TorchEncoder, "_on_gpu", True)
    encoder = _torch(loaded(folders("bert")))
    assert cosines(encoder.encode_texts(TEXTS), plain._encode_in_full(TEXTS)).min() > 0.999
    assert cosines(encoder.encode_texts(TEXTS[:1]), plain._encode_in_full(TEXTS[:1])).min() > 0.999
    assert encoder.digest == plain.digest
    assert encoder.token_model is not None
    assert encoder.token_model.recorder.records


def test_texts_without_a_token_are_zero(encoder: TorchEncoder) -> None:
    vectors = encoder.encode_tokens([[], [5, 6], []])
    assert np.abs(vectors).max(axis=1).astype(bool).tolist() == [False, True, False]
    assert not encoder.encode_tokens([[]]).any()


def test_single_texts_are_replayed(encoder: TorchEncoder, recording: None) -> None:
    model = _model(encoder)
    for text in ("company values", "a b c d", "company: a", "values company", "", "x" * 9):
        (numbers,) = encoder.numbers([text])
        wanted = encoder.encode_texts([text])
        assert cosines(model.encode_one(numbers)[None], wanted).min() > 1 - 1e-5
    assert model.recorder.records
    assert not model.recorder.refusal
    assert set(model.recorder._recordings) == {len(one) for one in encoder.numbers(
        ["company values", "a b c d", "company: a", "", "x" * 9])}  # fmt: skip


def test_long_texts_are_not_recorded(
    encoder: TorchEncoder, recording: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "RECORDED", 3)
    model = _model(encoder)
    model.encode_one(encoder.numbers(["company values a b"])[0])
    assert not model.recorder._recordings


def test_threads_may_share_a_search(recording: None, halves: None) -> None:
    rows = np.random.default_rng(3).standard_normal((500, 24)).astype(np.float16)
    search = DeviceSearch(rows, device="cpu")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda row: best_rows(search, row, 3)[1][0], rows[:60]))
    assert found == list(range(60))


def test_what_cannot_be_recorded_is_run(recording: None) -> None:
    recorder = Recorder(CPU)

    def looks(given: Any) -> Any:
        return given * given[0].item()

    assert recorder.run("looks", looks, np.array([2.0, 3.0])).tolist() == [4.0, 6.0]
    assert not recorder.records
    assert "waits for its result" in recorder.refusal
    assert recorder.run("looks", looks, np.array([3.0, 3.0])).tolist() == [9.0, 9.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_a_real_gpu_gives_the_same(folders: Folders, tmp_path: Path, kind: str) -> None:
    here = _torch(loaded(folders(kind)))
    there = TorchEncoder(folders(kind), device="cuda")
    rows = here.encode_texts([f"company {n}" for n in range(300)])
    assert cosines(there.encode_texts(TEXTS), here.encode_texts(TEXTS)).min() > 0.999
    assert there.token_model is not None
    assert there.token_model.recorder.records, there.token_model.recorder.refusal
    search = DeviceSearch(rows)
    build_vectors(rows, tmp_path, "flat")
    for text, vector in zip(TEXTS[:2], here.encode_texts(TEXTS[:2]), strict=True):
        scores, found = best_rows(search, there.encode_texts([text])[0], 300)
        np.testing.assert_allclose(scores, _truth(rows, vector, "cosine")[found], atol=2e-3)
        near = DeviceIndex(VectorIndex(tmp_path), "cuda").search(vector, 20)
        assert near.ids.tolist() == VectorIndex(tmp_path).search(vector, 20).ids.tolist()


def test_runs_are_of_one_length() -> None:
    sizes = np.array([4, 4, 4, 2, 1, 1])
    assert list(runs(sizes, 8)) == [(0, 2, 4), (2, 3, 4), (3, 4, 2), (4, 6, 1)]
    assert list(runs(sizes, 1)) == [(n, n + 1, int(size)) for n, size in enumerate(sizes)]


def test_token_numbers_that_cannot_be_read_are_refused(encoder: TorchEncoder) -> None:
    for wrong in (9999, -1):
        text = f"^Got the token number {wrong}; the encoder '.*' has numbers 0 to .*tokenizer"
        for tokens in ([[1, wrong]], [[1, wrong], [2]]):
            with pytest.raises(DeepJoinError, match=text):
                encoder.encode_tokens(tokens)
    with pytest.raises(DeepJoinError, match="^Got a text of 65 tokens; .* reads 64 at most. Cut"):
        encoder.encode_tokens([[1] * 65, [1]])


def test_a_model_that_reads_more_is_not_given_token_numbers(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.embed.columns.torch_encoder._AGREEMENT", 2.0)
    monkeypatch.setattr(TorchEncoder, "_on_gpu", True)
    encoder = _torch(loaded(folders("bert")))
    assert encoder.encode_texts(["company"]).any()
    with pytest.raises(DeepJoinError, match="' needs more than token numbers. Use encode_texts."):
        encoder.encode_tokens([[1, 2]])


def test_bad_rows_and_questions_are_refused() -> None:
    rows = np.ones((3, 4), np.float32)
    with pytest.raises(DeepJoinError, match="4 numbers a row"):
        DeviceSearch(rows, device="cpu").near(rows[0, :2], 1)
    for bad in (np.nan, 1e6):
        rows[1, 2] = bad
        with pytest.raises(
            DeepJoinError, match="^Row 1 holds NaN or a number over 65504; .*smaller"
        ):
            DeviceSearch(rows, device="cpu")


def test_rows_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 20.00 MiB")

    monkeypatch.setattr(searching, "_squares", full)
    with pytest.raises(
        DeepJoinError, match="^The device 'cpu' has no room for 3 vectors of 4 numbers. Free"
    ):
        DeviceSearch(np.ones((3, 4), np.float32), device="cpu")


@pytest.mark.slow
def test_the_benchmark_runs_on_the_processor_without_other_libraries(
    folders: Folders, tmp_path: Path
) -> None:
    absent = "import sys; sys.modules.update(dict.fromkeys(('faiss', 'duckdb', 'polars')))"
    code = f"{absent}; import gpu; gpu.main()"
    options = ["--columns", "30", "--queries", "3", "--words", "300", "--device", "cpu"]
    options += ["--model", str(folders("bert")), "--json", str(tmp_path / "figures.json")]
    environment = os.environ | {"PYTHONPATH": str(BENCHMARK.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures == json.loads((tmp_path / "figures.json").read_text())
    for shape in ("minilm", "mpnet"):
        found = figures[shape]
        assert found["agreement"]["least_cosine"] > 0.999
        assert found["query"]["index_equal_to_brute_force"] == "3 of 3"
        assert found["query"]["end_to_end"]["p99_ms"] > 0
        assert found["bulk"]["columns_per_s"] > 0
