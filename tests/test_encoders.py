"""Column encoders: one contract over every implementation, and what the default one means."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.embed.columns import DEFAULT, load_encoder
from deepjoin.embed.columns.encoder import TextEncoder, batches
from deepjoin.embed.columns.text import DocumentFrequencies, TextSettings, no_frequency
from deepjoin.embed.columns.tokens import Tokens
from tests.support.encoder_models import (
    ODD,
    Folders,
    cosines,
    default,
    export,
    loaded,
)
from tests.support.tiny_models import KINDS

COLUMN = Column(["Apple", "GE", "IBM"], name="Company", title="Firms")
TEXTS = {
    "colname-col": "Company: Apple, GE, IBM.",
    "title-colname-stat-col": "Firms. Company contains 3 values (5, 2, 3.3): Apple, GE, IBM.",
}


@pytest.fixture(scope="module", params=["default", *KINDS, "sentence bert", "exported"])
def encoder(
    request: pytest.FixtureRequest,
    folders: Folders,
    tmp_path_factory: pytest.TempPathFactory,
) -> TextEncoder:
    """Load every kind of encoder there is."""
    if request.param == "default":
        return loaded("default")
    if request.param == "exported":
        return loaded(export(folders("distilbert"), tmp_path_factory.mktemp("exported")))
    return loaded(folders(request.param))


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


@pytest.mark.slow
def test_the_default_encoder_rounds_alike_in_any_company() -> None:
    words = ("Oslo", "Lima", "Rome", "Bern", "Kiev", "Paris", "Tokyo", "Berlin")
    texts = [f"city: {', '.join(words[:count])}." for count in range(1, 9) for _ in range(count)]
    texts = [text + f" {number}" for number, text in enumerate(texts)]
    together = default().encode_texts(texts)
    for number, text in enumerate(texts):
        assert np.array_equal(default().encode_texts([text])[0], together[number])
    column = Column(words, name="city")
    asked = default().encode_query(column, no_frequency)
    prompt = default().settings.prompt
    (text,) = default().texts([column], no_frequency)
    assert np.allclose(asked, default().encode_texts([prompt + text])[0], atol=1e-5)


def test_many_columns_are_encoded_as_one_is(
    encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [Column([word] * 3 + ["b"], name=word) for word in ("a", "company", "x y", "", "9")]
    whole = encoder.encode(columns, no_frequency)
    monkeypatch.setattr(encoder, "block", 2)
    assert cosines(encoder.encode(columns, no_frequency), whole).min() > 1 - 1e-6


def test_texts_of_tall_columns_keep_the_limit(encoder: TextEncoder) -> None:
    rows = [Column([f"{n} {word}" for n in range(3000)], name=word * 50) for word in ("né", "東")]
    texts = encoder.texts(rows, no_frequency)
    sizes = encoder.count(texts)
    assert max(sizes) <= encoder.settings.tokens
    assert min(sizes) > encoder.settings.tokens - 16


@pytest.mark.slow
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
    assert (default().name, default().dimension) == ("deepjoin-minilm-l3-2", 384)
    assert default().settings == TextSettings("colname-col", tokens=48, prompt="query ")


def test_a_query_stands_behind_its_prompt(folders: Folders) -> None:
    settings = TextSettings("colname-col", tokens=24, prompt="sought: ")
    for folder in (DEFAULT, folders("bert")):
        encoder = loaded(folder, settings)
        column = Column(["Apple", "GE", *map(str, range(90))], name="Company")
        (text,) = encoder.texts([column], no_frequency)
        asked = encoder.encode_query(column, no_frequency)
        plain = encoder.encode([column], no_frequency)[0]
        assert cosines(asked[None], encoder.encode_texts([f"sought: {text}"]))[0] > 0.9999
        assert cosines(asked[None], plain[None])[0] < 0.9999
        # No token of the text is lost for the prompt.
        assert not np.allclose(asked, encoder.encode_texts([f"sought: {text[:-5]}."])[0])
        unprompted = loaded(folder, TextSettings("colname-col", tokens=24))
        again = unprompted.encode_query(column, no_frequency)
        # But for rounding: a query is read alone, which is faster.
        assert np.allclose(again, unprompted.encode([column], no_frequency)[0], atol=1e-6)
        assert unprompted.digest != encoder.digest


def test_frequent_values_reach_the_vector() -> None:
    cells = [f"value number {n}" for n in range(200)]
    lake = [Column(cells[-5:]) for _ in range(3)]
    frequency = DocumentFrequencies.of(lake)
    assert "value number 199" in default().texts([Column(cells)], frequency)[0]
    assert "value number 199" not in default().texts([Column(cells)], no_frequency)[0]


@pytest.mark.slow
def test_digest_stands_for_all_a_vector_depends_on(folders: Folders) -> None:
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


def test_text_settings_travel_with_the_model(folders: Folders, tmp_path: Path) -> None:
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


def test_processors_whose_products_overflow_give_the_same_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["Company: Apple, GE.", "1, 2, 3", "x" * 500]
    monkeypatch.setattr("deepjoin.embed.columns.onnx_encoder._is_exact", lambda probe: False)
    assert np.allclose(
        loaded("default").encode_texts(texts), default().encode_texts(texts), atol=1e-5
    )


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 30))
def test_batches_hold_texts_of_one_length(lengths: list[int], tokens: int) -> None:
    groups = batches(lengths, tokens)
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        assert len({lengths[place] for place in group}) == 1
        assert len(group) == 1 or len(group) * lengths[group[0]] <= tokens
    assert all(lengths[one[0]] >= lengths[other[0]] for one, other in pairwise(groups))


@pytest.mark.slow
def test_threads_share_a_tokenizer() -> None:
    tokens = Tokens.from_file(DEFAULT / "tokenizer.json", 8)
    texts = ["one two three four five six seven eight nine ten " * 40] * 20

    def right(_: int) -> bool:
        cut, counts = tokens.numbers(texts), tokens.count(texts)
        return {len(one) for one in cut} == {10} and set(counts) == {400}

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(right, range(40)))
