"""Matching two columns: what matches and how, messages, bad input, the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin.cli import main
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.matching import candidates
from deepjoin.matching.candidates import GramSpace
from deepjoin.matching.careful import AlikePairs, CarefulModels, look_alike
from deepjoin.matching.decisions import Decisions, write_doubtful
from deepjoin.matching.features import ValueWords
from deepjoin.matching.trees import Network, Trees, TreeSum
from deepjoin.model import Matches
from deepjoin.normalise.canonical import canonical
from deepjoin.show.text import plain_text

LEFT = ["Smith, Anna", "Doe, John", "Lee, Kim", "FRANCE", "Quito"]
RIGHT = ["Anna Smith", "John Doe", "Kim Lee", "France", "Nairobi"]


def test_equal_values_then_programs() -> None:
    found = deepjoin.match(LEFT, RIGHT)
    assert {(one.query, one.target): one.how for one in found} == {
        ("Smith, Anna", "Anna Smith"): "program",
        ("Doe, John", "John Doe"): "program",
        ("Lee, Kim", "Kim Lee"): "program",
        ("FRANCE", "France"): "equal",
    }
    program = found.program
    assert program is not None
    assert (program.covers, program.exceptions, program.merged) == (3, 1, 0)
    assert found.unmatched == ("Quito",)
    assert found.precision is not None
    assert 0.9 < found.precision <= 1
    assert found.sizes == (5, 5)


def test_equi_never_uses_programs_or_similarity() -> None:
    assert deepjoin.match(LEFT, RIGHT, join="equi").pairs == [("FRANCE", "France")]
    assert deepjoin.match(["007", "7"], ["7", "08"], join="equi").pairs == [("7", "7")]


def test_codes_with_zeros_stay_different_without_a_program() -> None:
    assert deepjoin.match(["007", "x1", "y2"], ["7", "a", "b"]).pairs == []
    padded = deepjoin.match(["1001", "8013", "9001"], ["01001", "08013", "09001"])
    assert padded.pairs == [("1001", "01001"), ("8013", "08013"), ("9001", "09001")]
    assert padded.program is not None


def test_synonyms_match_and_numbers_are_never_similar() -> None:
    found = deepjoin.match(["USA", "2019", "1999"], ["United States", "2018", "Peru"])
    assert found.pairs == [("USA", "United States")]
    assert found[0].how == "similar"


def test_two_firms_with_one_common_word_are_two_firms() -> None:
    left = ["Cobaltine Foods", "Marlowe Steel", "Verity Bank", "Juniper Labs"]
    right = ["Cobaltine Optics", "Marlowe Textiles", "Verity Press", "Juniper Tours"]
    assert deepjoin.match(left, right).pairs == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("otto ii, count of brehna", "otto 2 count of brehna"),
        ("berenice i of egypt", "berenice 1 of egypt"),
        ("norwegian second division", "norwegian 2 division"),
        ("xi jinping", "xi jinping"),
        ("anna i. smith", "anna i smith"),
    ],
)
def test_numerals_are_numbers(value: str, words: str) -> None:
    assert " ".join(ValueWords.of(value).tokens) == words


def test_products_match_by_their_codes() -> None:
    kinds = ("cordless phone", "stereo tuner", "dvd player", "desk lamp", "drip kettle")
    left = [f"bandifo {kind} - kx{4310 + 7 * at}{end}"
            for at, kind in enumerate(kinds) for end in "bw"]  # fmt: skip
    right = [f"bandifo kx-{4310 + 7 * at}{end} digital {kind}"
             for at, kind in enumerate(kinds) for end in "bw"]  # fmt: skip
    assert dict(deepjoin.match(left, right, join="semantic").pairs) == dict(
        zip(left, right, strict=True)
    )


def test_frames_of_several_columns_match_row_by_row() -> None:
    left = {"year": [2001, 2002], "team": ["BOS", "NYA"]}
    right = pa.table({"y": [2002, 2003], "t": ["nya", "NYA"]})
    assert deepjoin.match(left, right, join="equi").pairs == [("2002 | NYA", "2002 | nya")]


def test_forms_of_the_result() -> None:
    pytest.importorskip("pandas")
    found = deepjoin.match(LEFT, RIGHT)
    assert found.to_arrow().column_names == ["query", "target", "similarity", "how"]
    assert len(found.to_pandas()) == len(found) == 4
    assert found[0].query == "Smith, Anna"
    assert isinstance(found[:2], Matches)
    assert "3 by program" in repr(found)
    assert "SQL: " in repr(found)
    assert "Smith, Anna" in found._repr_html_()
    assert "none of 1 value has a match" in repr(deepjoin.match(["a"], ["zzz"], join="equi"))
    assert "No value has a match" in deepjoin.match(["a"], ["zzz"], join="equi")._repr_html_()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([], []),
        ([None, "", "  "], ["a"]),
        (["a"], []),
        (["a"], ["b"]),
        (["a"] * 50, ["a"] * 50),
        ([1, 2.5, None, "x", True], ["x", 1, "2.5"]),
        (["☃", "…", "\ud800"], ["☃☃", "."]),
        (["x" * 3_000_000, "y"], ["x" * 3_000_000, "x" * 2_999_999]),
    ],
)
def test_odd_columns_are_matched_without_a_fuss(left: list[object], right: list[object]) -> None:
    keys = {canonical(str(cell)) for cell in right if cell is not None}
    for one in deepjoin.match(left, right):
        if one.how == "equal":
            assert canonical(one.query) in keys


def test_messages() -> None:
    with pytest.raises(UnknownName, match="No join kind 'fuzzy' in a match"):
        deepjoin.match(["a"], ["a"], join="fuzzy")
    with pytest.raises(DeepJoinError, match="A column is a list of cells, not one str"):
        deepjoin.match("abc", ["a"])
    with pytest.raises(DeepJoinError, match="no column that could be searched with"):
        deepjoin.match(["a"], {})


WORDS = st.lists(st.text("abcd ", min_size=1, max_size=8), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(WORDS, WORDS)
def test_cosines_of_trigrams_equal_brute_force(left: list[str], right: list[str]) -> None:
    space = GramSpace(left, right)
    one, two = (
        np.repeat(np.arange(len(left)), len(right)),
        np.tile(np.arange(len(right)), len(left)),
    )
    found = space.cosines(one, two, (space.left, space.right))

    def grams(text: str) -> set[str]:
        padded = f" {text} "
        return {padded[at : at + 3] for at in range(len(padded) - 2)}

    every = [grams(text) for text in (*left, *right)]
    counts = {gram: sum(gram in held for held in every) for held in every for gram in held}
    weight = {gram: np.log1p(len(every) / count) ** 2 for gram, count in counts.items()}
    for i, j, cosine in zip(one.tolist(), two.tolist(), found.tolist(), strict=True):
        a, b = every[i], every[len(left) + j]
        norms = [sum(weight[gram] for gram in held) ** 0.5 for held in (a, b)]
        shared = sum(weight[gram] for gram in a & b)
        assert cosine == pytest.approx(shared / max(norms[0] * norms[1], 1e-12), abs=1e-9)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = tmp_path / "left.csv", tmp_path / "right.csv"
    left.write_text("name,n\n" + "".join(f'"{cell}",1\n' for cell in LEFT))
    right.write_text("who\n" + "".join(f"{cell}\n" for cell in RIGHT))
    sides = [str(left), str(right), "--left-column", "name", "--right-column", "who"]
    assert main(["match", *sides, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["matches"]) == 4
    assert found["matches"][0] == {
        **{"query": "Smith, Anna", "target": "Anna Smith", "similarity": 1.0, "how": "program"},
    }
    assert found["programs"][0]["covers"] == 3
    out = tmp_path / "pairs.csv"
    assert main(["match", *sides, "-o", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 5
    assert "4 pairs in " in capsys.readouterr().err
    assert main(["match", *sides, "--join", "equi", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "FRANCE,France,1.0,equal"
    assert main(["match", *sides]) == 0
    assert "4 of 5 values match" in capsys.readouterr().out
    assert main(["match", str(left), str(right)]) != 0
    assert "has 2 columns; name one with --left-column: name, n." in capsys.readouterr().err
    assert main(["match", *sides, "-o", str(tmp_path / "pairs.doc")]) != 0
    assert "Cannot write pairs.doc" in capsys.readouterr().err


@given(st.data())
def test_many_rows_weigh_as_few(data: st.DataObject) -> None:
    """Rows that walk through the trees, and the same rows by masks; values meet thresholds."""
    numbers = st.integers(-2, 2)
    left, right, feature, threshold, value, roots = [], [], [], [], [], []

    def grow(depth: int) -> int:
        node = len(left)
        for of, start in ((left, node), (right, node), (feature, 0), (threshold, 0), (value, 0)):
            of.append(start)
        if depth and data.draw(st.booleans()):
            feature[node], threshold[node] = data.draw(st.integers(0, 2)), data.draw(numbers)
            left[node], right[node] = grow(depth - 1), grow(depth - 1)
        else:
            value[node] = data.draw(numbers)
        return node

    for _ in range(data.draw(st.integers(1, 4))):
        roots.append(grow(data.draw(st.sampled_from([0, 2, 4, 5]))))
    parts = (np.array(of) for of in (roots, feature, threshold, left, right, value))
    total = TreeSum(*parts)
    rows = np.random.default_rng(0).integers(-3, 3, (200, 3)).astype(np.float32)
    few = [total(rows[at : at + 7]) for at in range(0, 200, 7)]
    assert total(rows).tolist() == np.concatenate(few).tolist()


def test_all_trees_at_once_weigh_as_one_after_the_other() -> None:
    # A node: feature, threshold, child if at most the threshold, child if above, value.
    trees = [
        [
            [1, 0.5, 1, 2, 0],
            [0, 0, 1, 1, 0.25],
            [0, 0.2, 3, 4, 0],
            [0, 0, 3, 3, -1],
            [0, 0, 4, 4, 2],
        ],
        [[0, 0, 0, 0, 0.5]],
    ]
    model = Trees.load({"base": 0.1, "trees": trees, "depth": 3})
    rows = np.random.default_rng(0).random((600, 2)).astype(np.float32)

    def weighed(row: list[float]) -> float:
        total = 0.1
        for tree in trees:
            at = 0
            for _ in range(3):
                feature, threshold, low, high, _ = tree[at]
                at = int(low if row[int(feature)] <= np.float32(threshold) else high)
            total += tree[at][4]
        return 1 / (1 + float(np.exp(-total)))

    assert np.allclose(model.chance(rows), [weighed(row) for row in rows.tolist()], atol=1e-12)
    assert len(model.chance(rows[:0])) == 0


NAMES = ("Burma", "Stanford Universty", "Univ. of Oslo", "Peru", "Kenya")
OTHERS = ("Myanmar", "Stanford University", "University of Oslo", "Peru", "Chile")


def test_accepted_and_rejected_pairs() -> None:
    before = dict(deepjoin.match(NAMES, OTHERS).pairs)
    assert before["Peru"] == "Peru" and "Burma" not in before
    assert before["Stanford Universty"] == "Stanford University"
    after = deepjoin.match(
        NAMES,
        OTHERS,
        decisions=[
            ("BURMA", "Myanmar", True),
            ("Stanford Universty", "Stanford University", False),
            ("Peru", "Peru", False),
            ("not there", "Chile", True),
        ],
    )
    pairs = dict(after.pairs)
    assert pairs["Burma"] == "Myanmar"
    assert "Peru" not in pairs and "Stanford Universty" not in pairs
    (burma,) = (one for one in after if one.query == "Burma")
    assert burma.how == "similar" and burma.similarity == 1


@given(st.text("'=+-@\t\n＝a1,\"", max_size=6), st.text("'=a", min_size=1, max_size=3))
def test_no_cell_of_a_file_to_fill_in_is_a_formula(
    tmp_path_factory: pytest.TempPathFactory, query: str, target: str
) -> None:
    file = tmp_path_factory.mktemp("decisions") / "check.csv"
    write_doubtful([], file, Decisions.of([(query, target, True)]))
    with file.open(newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert plain_text(row["query"]) == row["query"] and plain_text(row["target"]) == row["target"]
    assert list(Decisions.of(file).spelled.values()) == [(query, target)]


def test_a_file_goes_out_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "check.csv"
    given = [("Burma", "Myanmar", True)]
    deepjoin.match(NAMES, OTHERS, decisions=given, doubtful=file)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert list(rows[0]) == ["query", "target", "chance", "decision"]
    assert (rows[0]["query"], rows[0]["decision"]) == ("Burma", "accept")
    assert all(row["decision"] == "" for row in rows[1:])
    for row in rows:
        row["decision"] = "Accept" if row["query"] == "Burma" else "NO"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    again = deepjoin.match(NAMES, OTHERS, decisions=file, doubtful=file)
    assert ("Burma", "Myanmar") in again.pairs
    rejected = {(row["query"], row["target"]) for row in rows[1:]}
    assert not rejected & set(again.pairs)
    kept = list(csv.DictReader(file.read_text().splitlines()))
    assert {row["query"] for row in kept if row["decision"]} == {row["query"] for row in rows}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("query,target\na,b\n", "has no column decision"),
        ("query,target,decision\na,b,maybe\n", "line 2: the decision is 'maybe'; it must be"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "d.csv"
    file.write_text(text)
    with pytest.raises(DeepJoinError, match=says):
        deepjoin.match(["a"], ["b"], decisions=file)


def test_other_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="Cannot read the decisions in .*none.csv"):
        deepjoin.match(["a"], ["b"], decisions=tmp_path / "none.csv")
    with pytest.raises(DeepJoinError, match=r"each must be \(query, target, True or False\)"):
        deepjoin.match(["a"], ["b"], decisions=[("a", "b")])  # type: ignore[list-item]
    with pytest.raises(DeepJoinError, match=r"each must be \(query, target, True or False\)"):
        deepjoin.match(["a"], ["b"], decisions=[("a", "b", "no")])  # type: ignore[list-item]
    with pytest.raises(DeepJoinError, match="`decisions` is 5; it must be a CSV file or a list"):
        deepjoin.match(["a"], ["b"], decisions=5)  # type: ignore[arg-type]
    with pytest.raises(DeepJoinError, match="`precision` is 0; it must be above 0"):
        deepjoin.match(["a"], ["b"], precision=0)
    with pytest.raises(DeepJoinError, match="`precision` is '.9'; it must be above 0"):
        deepjoin.match(["a"], ["b"], precision=".9")  # type: ignore[arg-type]


def test_numbers_and_truths_of_numpy_are_accepted() -> None:
    said = np.array([True, False])
    decided = list(zip(["Oslo", "Lima"], ["Kristiania", "Lima"], said, strict=True))
    precision: Any = np.float32(0.9)
    found = deepjoin.match(
        ["Oslo", "Lima"], ["Kristiania", "Lima"], decisions=decided, precision=precision
    )
    assert found.pairs == [("Oslo", "Kristiania")]


def test_a_requested_precision_is_kept() -> None:
    left = [f"University of {name}" for name in ("Oslo", "Lima", "Rome", "Kyoto", "Quito")]
    right = ["Univ Oslo", "Lima University", "Roma University", "Kyoto Univ.", "Quito College"]
    least = [deepjoin.match(left, right, precision=wanted) for wanted in (0.3, 0.7, 0.9, 1.0)]
    assert [len(one) for one in least] == sorted((len(one) for one in least), reverse=True)
    for found, wanted in zip(least, (0.3, 0.7, 0.9, 1.0), strict=True):
        assert found.precision is None or found.precision >= wanted
    assert len(least[0]) > len(least[-1])


def test_the_command_applies_decisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, cells in (("a", NAMES), ("b", OTHERS)):
        (tmp_path / f"{name}.csv").write_text("name\n" + "\n".join(cells) + "\n")
    (tmp_path / "d.csv").write_text("query,target,decision\nBurma,Myanmar,accept\n")
    command = ["match", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--format", "csv",
               "--decisions", str(tmp_path / "d.csv"), "--precision", "0.6",
               "--doubtful", str(tmp_path / "check.csv")]  # fmt: skip
    main(command)
    out, said = capsys.readouterr()
    assert "Burma,Myanmar,1.0,similar" in out and "check.csv" in said
    assert "Burma,Myanmar,,accept" in (tmp_path / "check.csv").read_text()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=60),
    st.integers(1, 4),
)
def test_the_leading_scores_are_those_of_a_sort(rows: list[tuple[int, float]], count: int) -> None:
    owners = np.array([owner for owner, _ in rows], np.int64)
    scores = np.array([score for _, score in rows], np.float64)
    order = sorted(range(len(rows)), key=lambda at: (rows[at][0], -rows[at][1], at))
    seen: dict[int, int] = {}
    wanted = []
    for at in order:
        seen[rows[at][0]] = seen.get(rows[at][0], 0) + 1
        if seen[rows[at][0]] <= count:
            wanted.append(at)
    before = candidates._MANY
    for many in (before, 0):
        candidates._MANY = many
        try:
            assert candidates.leading(owners, scores, count).tolist() == wanted
        finally:
            candidates._MANY = before


_NAMES = ("Anna Smith", "Anna Smyth", "Foods Ltd", "Optics Ltd", "gate 7", "gate 8", "Oslo")


@given(st.lists(st.lists(st.tuples(*[st.sampled_from(_NAMES)] * 2), max_size=6), max_size=4))
def test_groups_are_judged_as_if_each_were_alone(drawn: list[list[tuple[str, str]]]) -> None:
    groups = [
        AlikePairs([a for a, _ in pairs], [b for _, b in pairs], np.full(len(pairs), 0.7))
        for pairs in drawn
    ]
    alone = [look_alike([group], 0.3)[0].tolist() for group in groups]
    assert [marks.tolist() for marks in look_alike(groups, 0.3)] == alone


def test_trees_that_see_what_all_rows_have_in_common_add_up_the_same() -> None:
    trees = Trees.load(
        {
            "base": 0.0,
            "trees": [
                [[0, 0.5, 1, 2, 0], [0, 0, 1, 1, 1.0], [1, 0.5, 3, 4, 0], [0, 0, 3, 3, 2.0],
                 [0, 0, 4, 4, 3.0]],
            ],
        }
    )  # fmt: skip
    rows = np.stack([np.linspace(0, 1, 100), np.full(100, 0.7)], axis=1).astype(np.float32)
    assert np.allclose(trees.total(rows), np.where(rows[:, 0] <= 0.5, 1.0, 3.0))
    assert np.allclose(trees.total(rows[:, ::-1]), 2.0 + (rows[:, 0] > 0.5))


def test_a_network_cuts_features_and_passes_them_on() -> None:
    network = Network.load(
        {
            "mean": [1.0, 0.0],
            "deviation": [0.5, 1.0],
            "layers": [[[[1.0, 0.0], [0.0, 2.0]], [0.0, 1.0]], [[[1.0], [-1.0]], [0.25]]],
        }
    )
    # (2 - 1) / .5 is 2; 9 is cut to 4, which makes 2 * 4 + 1.
    silu = [2 / (1 + np.exp(-2.0)), 9 / (1 + np.exp(-9.0))]
    found = network(np.tile(np.array([[2.0, 9.0]], np.float32), (20_000, 1)))
    assert np.allclose(found, silu[0] - silu[1] + 0.25, atol=1e-5)


def test_candidates_of_a_value_share_one_chance() -> None:
    # Trees that know nothing, and a network whose score is the feature.
    nothing = {"base": 0.0, "trees": [[[0, 0, 0, 0, 0.0]]]}
    same = {"mean": [0.0], "deviation": [1.0], "layers": [[[[1.0]], [0.0]]]}
    models = CarefulModels.load({"first": nothing, "second": nothing, "networks": [same]})
    scores = np.array([[3.0], [3.0], [3.0]], np.float32)
    rivals, alone = models.chances(np.array([4, 4, 7]), scores)[1:].tolist()

    def halved(chance: float) -> float:
        odds = (chance / (1 - chance)) ** 0.5
        return odds / (1 + odds)

    assert rivals == pytest.approx(halved(np.exp(3) / (1 + 2 * np.exp(3))))
    assert alone == pytest.approx(halved(np.exp(3) / (1 + np.exp(3))))
