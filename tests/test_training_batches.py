"""What an encoder reads while it is trained: tokens, examples, batches, the loss, near values."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.embed.cells import match_chance
from deepjoin.embed.columns import DEFAULT
from deepjoin.embed.columns.text import DocumentFrequencies, TextSettings
from deepjoin.embed.columns.tokens import Tokens
from deepjoin.lab.training import prepare, tokenising
from deepjoin.lab.training.batches import (
    CROPPED,
    MINED,
    SHUFFLED,
    Batches,
    Examples,
    Joinability,
    View,
    composed,
)
from deepjoin.lab.training.columns import Spellings, TrainingColumns
from deepjoin.lab.training.prepare import near_values, value_vectors
from deepjoin.lab.training.self_join import ColumnPairs, equi_pairs
from deepjoin.lab.training.settings import PAPER, TrainSettings
from deepjoin.lab.training.tokenising import PieceTokeniser, Tokeniser, padded, tokeniser_for
from deepjoin.matching.joinability import ONE, similarities
from tests.support.definitions import equi_joinability

pytest.importorskip("scipy")

SHIPPED = DEFAULT / "tokenizer.json"
SEEDS = st.integers(0, 999).map(np.random.default_rng)
RANDOM = np.random.default_rng(0)

#: Beside letters of any script: what tokenizers drop, split, cut, cannot know or take for special.
ODD = [
    *("a", "GE", "ge", "General Electric", "don't", "U.S.A.", "a,b", ", ", "...", "Apple (fruit)"),
    *("[SEP]", "[UNK]", "[CLS] x", "##ing", "<s>", "é", "e\u0301", "\u0301", "İ", "ß", "Σ", "ﬁ"),
    *("東京都", "شركة", "תל אביב", "Ελλάδα", "ไทย", "한국", "१२", "\ue000", "\ufffd"),
    *("😀", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "🇫🇷"),
    *("\0", "\x01", "\x7f", "\u200b", "\u00ad", "\ufeff", "\u202e", "x\u200by", " z\t\n y ", ""),
    *("b" * 90, "c" * 150, "d" * 4000, "word " * 90, "unbelievability tokenization " * 9),
]
CELLS = st.sampled_from(ODD) | st.text(max_size=6)
#: Letters that are no more than one token each: a name of others may be longer than its share.
WORDS = st.sampled_from(["", "Company", "due date " * 30, "c" * 150, "[SEP]", "\u200b", "😀!"])
WORDS = WORDS | st.text(st.characters(max_codepoint=0x17F), max_size=20)
COLUMNS = st.builds(
    Column,
    st.lists(CELLS, min_size=1, max_size=4) | st.lists(CELLS, max_size=70),
    name=WORDS,
    title=WORDS,
)
ALIASES = st.lists(st.tuples(CELLS, st.sampled_from(["GE", "a", "e1", " "])), max_size=8)


@cache
def shipped(limit: int) -> Tokens:
    return Tokens.from_file(SHIPPED, limit)


def tokeniser(
    columns: list[Column], text: TextSettings, tokens: Tokens, spellings: Sequence[str] = ()
) -> Tokeniser:
    training = TrainingColumns.of(columns, range(len(columns)), text.profile)
    frequency = DocumentFrequencies.of(columns, text.profile)
    return Tokeniser(training, text, frequency, tokens, 1, spellings)


def every_view(columns: TrainingColumns, number: int, random: np.random.Generator) -> list[View]:
    whole = View.whole(columns, number)
    plain = [whole, whole.shuffled(random), whole.cropped(random)]
    return [*plain, *(one.nameless() for one in plain)]


@pytest.mark.slow
@settings(max_examples=250)
@given(
    st.lists(COLUMNS, min_size=1, max_size=4),
    ALIASES,
    st.sampled_from(["col", "colname-col", "title-colname-col"]),
    st.sampled_from([8, 16, 48]),
    st.sampled_from(["default", "basic"]),
    SEEDS,
)
def test_tokens_put_together_are_those_of_the_text(
    columns: list[Column],
    aliases: list[tuple[str, str]],
    pattern: str,
    limit: int,
    profile: str,
    random: np.random.Generator,
) -> None:
    slow = tokeniser(columns, TextSettings(pattern, limit, profile=profile), shipped(limit))
    spellings = Spellings.of(slow.columns, aliases, profile)
    slow = replace(slow, spellings=spellings.strings)
    fast = PieceTokeniser(slow)
    shown = [
        view
        for number in range(len(columns))
        for one in every_view(slow.columns, number, random)
        for view in (one, one.respelled(slow.columns, spellings, 0.5, random))
    ]
    expected = slow.tokens.numbers(slow.texts(shown))
    # Twice: what is remembered is as good as what is made.
    for _ in range(2):
        assert [fast.numbers(view) for view in shown] == expected
    assert all(len(one) <= limit + 2 for one in expected)


def rows_of(tokens: dict[str, Any]) -> list[list[int]]:
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    assert (ids[mask == 0] == 1).all()
    assert (np.diff(mask, axis=1) <= 0).all()
    return [row[: sum(here)].tolist() for row, here in zip(ids, mask, strict=True)]


def test_rows_of_tokens_are_padded() -> None:
    columns = [Column(["GE", "IBM"], "firm"), Column(["x" * 9, "y"]), Column([])]
    slow = tokeniser(columns, TextSettings("colname-col", 48), shipped(48))
    fast = tokeniser_for(slow)
    assert isinstance(fast, PieceTokeniser)
    shown = [View.whole(slow.columns, number) for number in range(3)]
    assert rows_of(fast(shown)) == rows_of(slow(shown)) == slow.tokens.numbers(slow.texts(shown))
    assert slow.texts(shown) == ["firm: GE, IBM.", "xxxxxxxxx, y.", ""]
    assert fast([])["input_ids"].shape == slow([])["input_ids"].shape == (0, 1)


@pytest.mark.parametrize("limit", [8, 48])
def test_cells_without_tokens_and_with_many_letters_are_counted(limit: int) -> None:
    nothing = ["\u200b" * size for size in range(1, 60)]
    long = [chr(letter) * 1000 for letter in range(ord("a"), ord("a") + 26)]
    columns = [
        Column(nothing),
        Column(long),
        Column([*nothing[:9], *long]),
        Column(long[:1], "c" * 999),
    ]
    slow = tokeniser(columns, TextSettings("colname-col", limit), shipped(limit))
    fast = PieceTokeniser(slow)
    shown = [one for number in range(4) for one in every_view(slow.columns, number, RANDOM)]
    assert [fast.numbers(one) for one in shown] == slow.tokens.numbers(slow.texts(shown))


def test_other_spellings_are_written_once_each() -> None:
    slow = tokeniser([Column(["GE", "USA", "IBM"])], TextSettings("col", 48), shipped(48))
    slow = replace(slow, spellings=["United States", "ge", " "])
    whole = View.whole(slow.columns, 0)
    spelled = [
        replace(whole, spelled=np.array(one)) for one in ([-1, 0, -1], [-1, 1, 0], [2, 2, 2])
    ]
    assert slow.texts(spelled) == ["GE, United States, IBM", "GE, United States", ""]
    assert rows_of(tokeniser_for(slow)(spelled)) == rows_of(slow(spelled))


FIRMS = [Column(["GE", "IBM", f"firm {number}"], "firm", title="t") for number in range(30)]


@pytest.mark.parametrize(
    "text",
    [
        *(TextSettings(one) for one in ("colname-col-context", "title-colname-stat-col")),
        *(TextSettings("col", sampling=one) for one in ("random", "truncate", "tf-idf")),
    ],
)
def test_other_texts_are_tokenised_the_slow_way(text: TextSettings) -> None:
    slow = tokeniser(FIRMS, text, shipped(text.tokens))
    assert tokeniser_for(slow) is slow


def by_letters(pre_tokenizer: Any) -> Tokens:
    """Return a tokenizer whose tokens are the letters that another step leaves, spaces too."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = [*pre_tokenizers.ByteLevel.alphabet(), "▁"]
    numbers = {letter: number for number, letter in enumerate(sorted({*letters}))}
    tokenizer = Tokenizer(models.BPE(numbers, []))
    tokenizer.pre_tokenizer = pre_tokenizer
    return Tokens.from_text(tokenizer.to_str(), 48)


def test_tokenizers_that_join_cells_are_found_out() -> None:
    from tokenizers import pre_tokenizers

    for step in (pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Metaspace()):
        slow = tokeniser(FIRMS, TextSettings("colname-col", 48), by_letters(step))
        assert tokeniser_for(slow) is slow


def test_only_some_columns_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenising, "_TRIED", 2)
    slow = tokeniser(FIRMS, TextSettings("title-colname-col", 48), shipped(48))
    assert isinstance(tokeniser_for(slow, seed=5), PieceTokeniser)


def lake(count: int = 30, seed: int = 0) -> TrainingColumns:
    """Give columns of 1 to 8 of few values, each its own table."""
    random = np.random.default_rng(seed)
    lists = [random.choice(14, random.integers(1, 9), replace=False) for _ in range(count)]
    columns = [
        Column([f"v{one}" for one in some], f"c{number}") for number, some in enumerate(lists)
    ]
    return TrainingColumns.of(columns, range(count))


@given(st.integers(0, 5), st.integers(1, 200), st.floats(0, 1), st.floats(0, 3))
def test_examples_are_pairs_and_shuffled_copies_and_parts(
    seed: int, size: int, shuffle: float, crops: float
) -> None:
    columns, random = lake(), np.random.default_rng(seed)
    drawn = random.integers(0, 30, (2, size))
    pairs = ColumnPairs(*drawn, np.ones(size, np.float32))
    chosen = replace(PAPER, shuffle=shuffle, crops=crops, seed=seed)
    examples = Examples.of(columns, pairs, chosen)
    mined, copies, parts = (examples.kind == kind for kind in (MINED, SHUFFLED, CROPPED))
    both = np.stack([examples.x, examples.y])
    assert both[:, mined].tolist() == drawn.tolist()
    # Of the positives that come from pairs, r / (1 + r) are shuffled, but for rounding.
    assert copies.sum() == round(shuffle * size)
    share = copies.sum() / (mined.sum() + copies.sum())
    assert share == pytest.approx(shuffle / (1 + shuffle), abs=0.5 / size)
    assert Counter(map(tuple, both[:, copies].T)) <= Counter(map(tuple, drawn.T))
    assert parts.sum() == round(crops * size) == len(examples) - mined.sum() - copies.sum()
    assert (examples.x[parts] == examples.y[parts]).all()
    assert (columns.sizes[examples.x[parts]] >= 4).all()
    assert np.array_equal(both, np.stack([*vars(Examples.of(columns, pairs, chosen)).values()][:2]))


def test_columns_without_parts_are_not_cropped() -> None:
    columns = TrainingColumns.of([Column(["a", "b"]), Column(["a", "b", "c"])], [0, 1])
    examples = Examples.of(columns, equi_pairs(columns), TrainSettings(crops=5, shuffle=0))
    assert examples.kind.tolist() == [MINED]


@given(st.lists(st.integers(0, 12), max_size=80), st.integers(2, 9), st.integers(0, 99))
def test_no_batch_has_a_partner_twice(y: list[int], size: int, seed: int) -> None:
    partners = np.array(y, np.int64)
    dealt = composed(partners, size, np.random.default_rng(seed))
    rows = np.concatenate([np.zeros(0, np.int64), *dealt])
    assert len(set(rows.tolist())) == len(rows)
    assert all(len(set(partners[one].tolist())) == len(one) for one in dealt)
    sizes = [len(one) for one in dealt]
    if len(set(y)) < size:
        assert all(2 * one > max(sizes) for one in sizes)
        assert max(sizes, default=0) == len(set(y))
    else:
        assert set(sizes) <= {size}
        # What is left over would fill no batch: each holds a partner of the others once.
        assert len(y) - len(rows) <= max(Counter(y).values()) * (size - 1)
    again = composed(partners, size, np.random.default_rng(seed))
    assert [one.tolist() for one in dealt] == [one.tolist() for one in again]


def test_small_lakes_are_not_left_out() -> None:
    dealt = composed(np.repeat(np.arange(10), 50), 1024, np.random.default_rng(0))
    assert sorted(np.concatenate(dealt)) == list(range(500))


def as_shown(shown: Sequence[View]) -> dict[str, Any]:
    return {"views": shown}


def said(batch: dict[str, Any]) -> list[Any]:
    """Write a batch so that it can be compared."""
    shown = [
        (
            one.column,
            one.places.tolist(),
            one.named,
            None if one.spelled is None else [*one.spelled],
        )
        for side in "xy"
        for one in batch[side]["views"]
    ]
    return [shown, batch["joinability"].tolist()]


def batches_of(columns: TrainingColumns, chosen: TrainSettings, **more: Any) -> Batches:
    pairs = equi_pairs(columns, 0.5, chosen.pairs)
    neighbours = equi_pairs(columns, 0.1) if chosen.negatives == "hard" else None
    examples, joinability = Examples.of(columns, pairs, chosen), Joinability(14)
    return Batches(columns, examples, neighbours, joinability, as_shown, chosen, **more)


OURS = TrainSettings(batch=12, epochs=3)
RECIPES = [OURS, replace(PAPER, batch=8), replace(OURS, negatives="removed", seed=7)]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", RECIPES)
def test_a_batch_is_made_from_its_number_alone(chosen: TrainSettings) -> None:
    columns = lake()
    spellings = Spellings.of(columns, [(f"v{one}", f"w{one}") for one in range(9)], "default")
    made = batches_of(columns, chosen, spellings=spellings)
    assert len(made) == chosen.epochs * made.per_epoch > 5
    in_order = [said(made[number]) for number in range(len(made))]
    assert len({str(one) for one in in_order}) == len(in_order)
    order = np.random.default_rng(1).permutation(len(made)).tolist()
    assert [said(made[number]) for number in order] == [in_order[number] for number in order]
    other = pickle.loads(pickle.dumps(batches_of(columns, chosen, spellings=spellings)))
    assert said(other[len(made) - 1]) == in_order[-1]
    changed = batches_of(columns, replace(chosen, seed=9), spellings=spellings)
    assert said(changed[0]) != in_order[0]


def test_a_run_ends_after_its_steps() -> None:
    made = batches_of(lake(), replace(OURS, steps=4))
    assert len(made) == 4
    assert len(batches_of(lake(), replace(OURS, steps=10_000))) == 3 * made.per_epoch


@pytest.mark.parametrize("chosen", RECIPES)
def test_batches_know_how_joinable_all_they_show_is(chosen: TrainSettings) -> None:
    columns = lake()
    made = batches_of(columns, chosen)
    for number in range(4):
        batch = made[number]
        x, y = (
            [columns.column(one.column, one.places).cells for one in batch[side]["views"]]
            for side in "xy"
        )
        right = np.float32([[equi_joinability(one, other) for other in y] for one in x])
        assert batch["joinability"].tolist() == right.tolist()


def test_an_epoch_shows_every_example_once_at_most() -> None:
    columns = lake()
    chosen = replace(PAPER, batch=4)
    made, pairs = batches_of(columns, chosen), equi_pairs(columns, 0.5, chosen.pairs)
    examples = Examples.of(columns, pairs, chosen)
    shown = Counter(
        (x.column, y.column)
        for number in range(made.per_epoch)
        for x, y in zip(*(made[number][side]["views"] for side in "xy"), strict=True)
    )
    assert shown <= Counter(zip(examples.x.tolist(), examples.y.tolist(), strict=True))
    assert shown.total() == 4 * made.per_epoch > 0.8 * len(examples)


@pytest.mark.parametrize("kind", [MINED, SHUFFLED, CROPPED])
def test_examples_are_shown_by_their_kind(kind: int) -> None:
    columns = lake()
    tall = np.flatnonzero(columns.sizes >= 4)
    examples = Examples(tall, tall[::-1], np.full(len(tall), kind))
    made = Batches(columns, examples, None, Joinability(14), as_shown, PAPER)
    x, y = made.views(np.arange(len(tall)), np.random.default_rng(0))
    assert [one.column for one in x] == tall.tolist() == [one.column for one in y][::-1]
    whole = [columns.places(number).tolist() for number in tall]
    places = [[one.places.tolist() for one in side] for side in (x, y)]
    assert (places[0] == whole) == (kind == MINED)
    assert (places[1][::-1] == whole) == (kind != CROPPED)
    if kind == SHUFFLED:
        assert [sorted(one) for one in places[0]] == whole
    for one, every in zip(places[0], whole, strict=True):
        assert {*one} <= {*every} and len({*one}) == len(one) >= 3


def test_hard_negatives_are_neighbours_and_no_partners() -> None:
    columns = lake()
    made, neighbours = batches_of(columns, OURS), equi_pairs(columns, 0.1)
    more = 0
    for number in range(made.per_epoch):
        x, y = ([one.column for one in made[number][side]["views"]] for side in "xy")
        near_them = set(neighbours.y[np.isin(neighbours.x, x)].tolist())
        assert len({*y}) == len(y)
        assert {*y[len(x) :]} <= near_them
        more += len(y) - len(x)
    assert more > 0


def test_columns_nearest_by_the_model_are_negatives() -> None:
    columns = lake()
    made = batches_of(columns, OURS)
    made.nearest = np.arange(len(columns), dtype=np.int32)[::-1, None]
    usual = batches_of(columns, OURS)[0]
    x, y = ([one.column for one in made[0][side]["views"]] for side in "xy")
    assert len({*y}) == len(y)
    nearest = {len(columns) - 1 - one for one in x} - {*y[: len(x)]}
    assert {*y} == {one.column for one in usual["y"]["views"]} | nearest
    queries, all_of_them = (side["views"] for side in made.whole())
    assert [one.column for one in all_of_them] == [*range(len(columns))]
    assert queries == [one.as_query() for one in all_of_them]


def test_columns_without_neighbours_have_no_hard_negatives() -> None:
    columns = lake()
    examples = Examples(np.array([28, 29]), np.array([1, 2]), np.zeros(2, np.int64))
    few = ColumnPairs(np.array([3, 28]), np.array([4, 5]), np.ones(2, np.float32))
    made = Batches(columns, examples, few, Joinability(14), as_shown, replace(OURS, batch=2))
    assert [one.column for one in made[0]["y"]["views"]][2:] == [5]


def test_matching_cells_can_be_removed_from_partners() -> None:
    columns = lake()
    made = batches_of(columns, replace(OURS, negatives="removed"))
    for number in range(made.per_epoch):
        batch = made[number]
        x, y = batch["x"]["views"], batch["y"]["views"]
        assert len(y) == 2 * len(x)
        for one, partner, rest in zip(x, y[: len(x)], y[len(x) :], strict=True):
            right = partner.without(one, columns)
            assert (rest.column, rest.places.tolist()) == (partner.column, right.places.tolist())


def test_words_are_left_out_and_cells_respelled_now_and_then() -> None:
    columns = lake()
    spellings = Spellings.of(columns, [(f"v{one}", f"w{one}") for one in range(14)], "default")
    chosen = replace(OURS, nameless=0.2, respelled=0.3)
    made = batches_of(columns, chosen, spellings=spellings)
    shown = [one for number in range(30) for side in "xy" for one in made[number][side]["views"]]
    assert 0.15 < np.mean([not one.named for one in shown]) < 0.25
    assert 0.25 < np.mean(np.concatenate([one.spelled for one in shown]) >= 0) < 0.35
    for usual in (batches_of(columns, PAPER, spellings=spellings), batches_of(columns, OURS)):
        shown = [one for side in "xy" for one in usual[0][side]["views"]]
        assert all(one.spelled is None for one in shown)
    assert all(one.named for one in batches_of(columns, PAPER)[0]["x"]["views"])


def tiny_torch() -> Any:
    """Import torch for tiny tensors, which wait longer for threads than they compute."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


Matrix = list[list[float]]


def plain_scores(x: np.ndarray, y: np.ndarray, chosen: TrainSettings) -> Matrix:
    def score(one: np.ndarray, other: np.ndarray) -> float:
        if chosen.metric == "euclidean":
            return -math.dist(one, other)
        return float(one @ other) / math.hypot(*one) / math.hypot(*other)

    return [[chosen.scale * score(one, other) for other in y] for one in x]


def plain_loss(found: Matrix, negatives: list[list[bool]]) -> float:
    """Write down the paper's formula: mean of log sum exp S(x, y) less S of the partner."""
    losses = []
    for i, row in enumerate(found):
        counted = [one for j, one in enumerate(row) if j == i or negatives[i][j]]
        losses.append(math.log(sum(math.exp(one) for one in counted)) - row[i])
    return sum(losses) / len(losses)


def plain_graded(found: Matrix, joinability: Matrix, power: int = 2) -> float:
    losses = []
    for row, wanted in zip(found, joinability, strict=True):
        total, every = sum(one**power for one in wanted), sum(math.exp(one) for one in row)
        shares = [one**power / total if total else 0 for one in wanted]
        losses.append(-sum(a * (b - math.log(every)) for a, b in zip(shares, row, strict=True)))
    return sum(losses) / len(losses)


def turned(rows: list[list[Any]], size: int) -> list[list[Any]]:
    return [[row[j] for row in rows] for j in range(size)]


@given(
    st.integers(1, 6),
    st.integers(0, 4),
    st.sampled_from(["cosine", "euclidean"]),
    st.booleans(),
    st.booleans(),
    SEEDS,
)
def test_the_loss_is_that_of_the_formula(
    size: int, more: int, metric: str, masked: bool, symmetric: bool, random: np.random.Generator
) -> None:
    torch = tiny_torch()
    from deepjoin.lab.training.model import ranking_loss

    x, y = random.standard_normal((size, 5)), random.standard_normal((size + more, 5))
    joinability = random.choice([0, 0.1, 0.7, 0.9, 1], (size, size + more))
    tensors = [torch.tensor(one, dtype=torch.float32) for one in (x, y, joinability)]
    chosen = replace(PAPER, metric=metric, masked=masked, symmetric=symmetric, scale=3)
    found, known = plain_scores(x, y, chosen), joinability.tolist()
    negatives = [[not (masked and one >= 0.7) for one in row] for row in known]
    partner = plain_loss(found, negatives)
    graded, first = (plain_graded(found, known, power) for power in (2, 1))
    if symmetric:
        back = turned(found, size)
        partner = (partner + plain_loss(back, turned(negatives, size))) / 2
        graded = (graded + plain_graded(back, turned(known, size))) / 2
        first = (first + plain_graded(back, turned(known, size), 1)) / 2
    assert float(ranking_loss(*tensors, chosen)) == pytest.approx(partner, abs=1e-4)
    chosen = replace(chosen, target="joinability")
    assert float(ranking_loss(*tensors, chosen)) == pytest.approx(graded, abs=1e-4)
    mixed = 0.75 * graded + 0.25 * first
    chosen = replace(chosen, plain=0.25)
    assert float(ranking_loss(*tensors, chosen)) == pytest.approx(mixed, abs=1e-4)


def test_pieces_of_similar_length_change_no_vector(tiny_bert: str) -> None:
    torch = tiny_torch()
    from deepjoin.lab.training.model import JoinModel

    random = np.random.default_rng(0)
    rows = [random.integers(5, 60, size).tolist() for size in random.integers(3, 40, 150)]
    tokens = {name: torch.from_numpy(one) for name, one in padded(rows, 0).items()}
    model = JoinModel(Path(tiny_bert), TrainSettings(), "cpu").eval()
    with torch.no_grad():
        alone = [
            model._encode({name: one[[row], : len(rows[row])] for name, one in tokens.items()})
            for row in range(len(rows))
        ]
        vectors = torch.cat(alone)
        torch.testing.assert_close(model.vectors(tokens), vectors, atol=1e-5, rtol=0)
        model.piece = 40
        torch.testing.assert_close(model.vectors(tokens), vectors, atol=1e-5, rtol=0)
    torch.testing.assert_close(model.encoded(tokens), vectors, atol=1e-5, rtol=0)
    near = (vectors[:, None] - vectors).norm(dim=2).fill_diagonal_(torch.inf)
    model.settings = TrainSettings(metric="euclidean")
    found = model.nearest(tokens, tokens, 7).long()
    expected = near.topk(7, largest=False).values
    torch.testing.assert_close(near.gather(1, found), expected, atol=1e-3, rtol=0)
    assert model.nearest(tokens, tokens, 500).shape == (150, 149)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("target", ["partner", "joinability"])
def test_gradients_reach_all_columns(metric: str, target: str) -> None:
    torch = tiny_torch()
    from deepjoin.lab.training.model import ranking_loss

    torch.manual_seed(0)
    x, y = torch.randn(4, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
    joinability = torch.eye(4, 6)
    chosen = TrainSettings(metric=metric, target=target, scale=2)
    ranking_loss(x, y, joinability, chosen).backward()
    assert all((one.grad.norm(dim=1) > 1e-3).all() for one in (x, y))
    same = torch.ones(4, 8, requires_grad=True)
    ranking_loss(same, same, joinability[:, :4], chosen).backward()
    assert torch.isfinite(same.grad).all()


def test_a_step_against_the_gradient_brings_partners_nearer() -> None:
    torch = tiny_torch()
    from deepjoin.lab.training.model import ranking_loss, scores

    torch.manual_seed(0)
    for target in ("partner", "joinability"):
        x, y = (torch.randn(8, 16, requires_grad=True) for _ in range(2))
        for _ in range(30):
            loss = ranking_loss(x, y, torch.eye(8), TrainSettings(target=target))
            steps = torch.autograd.grad(loss, (x, y))
            moved = [one - step for one, step in zip((x, y), steps, strict=True)]
            x, y = (one.detach().requires_grad_() for one in moved)
        assert scores(x, y, "cosine", 1).argmax(1).tolist() == list(range(8))


def test_known_joinable_columns_are_no_negatives() -> None:
    torch = tiny_torch()
    from deepjoin.lab.training.model import ranking_loss

    x, y = torch.randn(2, 4), torch.randn(3, 4, requires_grad=True)
    values = [np.arange(10), np.arange(50, 60)]
    found = Joinability(99)(values, [np.arange(10), np.arange(50, 99), np.arange(7)])
    # Seven of ten, in single precision, reach the threshold of 0.7.
    assert found[0, 2] == np.float32(0.7)
    assert TrainSettings().masked and not PAPER.masked
    for chosen in (replace(PAPER, masked=True), PAPER):
        y.grad = None
        ranking_loss(x[:1], y, torch.from_numpy(found[:1]), chosen).backward()
        assert y.grad is not None and y.grad.norm(dim=1)[:2].gt(0).all()
        # The paper's recipe takes every other column of a batch as a negative.
        assert bool(y.grad[2].eq(0).all()) is chosen.masked


def unit(random: np.random.Generator, size: int, width: int) -> np.ndarray:
    """Give few directions, so that many cosines are equal, and rows of zeros."""
    rows = random.standard_normal((size, width))[random.integers(0, max(1, size // 2), size)]
    rows += random.choice([0, 0.2], (size, 1)) * random.standard_normal((size, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(random.random((size, 1)) < 0.1, 0, rows).astype(np.float32)


def near_by_brute_force(vectors: np.ndarray, floor: float, tau: float, most: int) -> np.ndarray:
    chances = np.eye(len(vectors))
    for value, vector in enumerate(vectors):
        cosines = (similarities(vector, vectors) / ONE).astype(np.float32)
        best = sorted(range(len(vectors)), key=lambda one: (-cosines[one], one))[:most]
        for other in {*best} - {value}:
            chances[value, other] = match_chance(cosines[other : other + 1], floor, tau)[0]
    return chances


@given(
    st.integers(1, 40),
    st.sampled_from([2, 16]),
    st.sampled_from([(0.3, 0.5), (0.55, 0.65), (0.9, 1.0)]),
    st.sampled_from([5, 64]),
    SEEDS,
)
def test_near_values_are_those_of_comparing_all(
    size: int, width: int, bounds: tuple[float, float], most: int, random: np.random.Generator
) -> None:
    vectors = unit(random, size, width)
    heard: list[tuple[int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "_MOST", most)
        patch.setattr(prepare, "_ON_CPU", 7)
        found = near_values(vectors, *bounds, progress=lambda *one: heard.append(one))
    right = near_by_brute_force(vectors, *bounds, most)
    assert found.toarray() == pytest.approx(right, abs=1e-6)
    assert [one[0] for one in heard] == [min(one + 7, size) for one in range(0, size, 7)]
    assert heard[-1] == (size, size, "values compared")


def test_a_gpu_finds_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = tiny_torch()
    vectors = unit(np.random.default_rng(0), 300, 64)
    right = near_values(vectors, 0.5, 0.7).toarray()
    as_cpu = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda rows, device, kind: as_cpu(rows, "cpu", kind), raising=True
    )
    monkeypatch.setattr(prepare, "_ON_GPU", 128)
    heard: list[int] = []
    found = near_values(vectors, 0.5, 0.7, "cuda", lambda *one: heard.append(one[0])).toarray()
    assert heard == [128, 256, 300]
    both = (right > 0) & (found > 0)
    assert found[both] == pytest.approx(right[both], abs=0.02)
    # At the floor, with a chance of a twentieth, one may be found by one of both alone.
    assert np.where(both, 0, right + found).max() < 0.06
    assert (np.diag(found) == 1).all()


def test_no_values_are_near_nothing() -> None:
    assert near_values(np.zeros((0, 4), np.float32), 0.5, 0.7).shape == (0, 0)
    assert (
        near_values(np.zeros((3, 4), np.float32), 0.5, 0.7).toarray().tolist() == np.eye(3).tolist()
    )


@pytest.mark.parametrize("bounds", [(0.5, 0.5), (0.6, 0.5), (0, 0.5), (0.5, 1.1), (-1, -0.5)])
def test_bounds_that_mean_nothing_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(DeepJoinError, match="0 < floor < tau <= 1 is allowed. Give a `tau` such"):
        near_values(np.eye(2, dtype=np.float32), *bounds)


def test_vectors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DeepJoinError, match=r"Vectors of shape \(3,\) came. Give one row for each"):
        near_values(np.ones(3, np.float32), 0.5, 0.7)
    with pytest.raises(DeepJoinError, match="Vector 1 has the squared length 4"):
        near_values(np.diag([1.0, 2.0]).astype(np.float32), 0.5, 0.7)


class Lengths:
    """Encodes a value as its number of letters."""

    name = digest = "lengths"
    dimension, floor, tau = 1, 0.5, 0.7

    def encode(self, values: Sequence[str | None] | pa.Array) -> np.ndarray:
        """Encode canonical values."""
        return np.array([len(str(one)) for one in values], np.float32)[:, None]


@pytest.mark.parametrize(("profile", "spaces"), [("default", 1), ("basic", 2)])
def test_each_value_is_encoded_as_the_lake_compares_it(profile: str, spaces: int) -> None:
    lists = [["x"], ["New  York ", "7.0"], ["new  york", "7.0", " Oslo!"]]
    columns = TrainingColumns.of([Column(cells) for cells in lists], [0, 1, 2], profile)
    right = [1, 7 + spaces, 1 if profile == "default" else 3, 5]
    assert value_vectors(columns, Lengths(), profile).ravel().tolist() == right
    some = columns.take(np.array([2]))
    assert value_vectors(some, Lengths(), profile).ravel().tolist() == [0, *right[1:]]
    none = columns.take(np.zeros(0, np.int64))
    assert value_vectors(none, Lengths(), profile).shape == (0, 1)
