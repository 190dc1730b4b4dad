"""Results in a notebook: cards that hold what was found, and nothing that runs or leaks."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column
from deepjoin.model import Brings, EquiEvidence, Hit, Match, Results, SemanticEvidence
from deepjoin.show.cards import SCOPE, STYLE
from deepjoin.show.text import CARDINALITIES

from .conftest import MakeLake

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</div></details><style>*{display:none}</style>",
    "\u202egnp.exe\u2066 turned \u200f round",
    "x" * 10_000,
    "a/" * 5_000,
    "&lt;b&gt; &#60;i&#62;",
    "nul \x00 and \ud800 lone",
)
_VOID = {"img", "br", "meta", "link", "input", "hr"}


class Page(HTMLParser):
    """Reads a page: its tags must close in order; keeps what it says, apart from its style."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.said = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep what is said."""
        if "style" not in self.open:
            self.said += data


def make_hit(rank: int = 1, word: str = "France", **other: object) -> Hit:
    fields: dict[str, object] = {
        "table": f"{word}.csv",
        "column": word,
        "column_id": "1",
        "type": "text",
        "generic": "",
        "join": "any",
        "score": 0.5,
        "joinability": 0.5,
        "equi": EquiEvidence(0.25, 0.1, 1, 1, 0.1),
        "semantic": SemanticEvidence(0.5, 0.2, 2, 0.7),
        "query_size": 4,
        "target_size": 10,
        "cardinality": "n:1",
        "matches": (Match(word, word), Match("UK", "United Kingdom", 0.875)),
        "unmatched": (word, "Atlantis"),
        "found_by": ("exact-equi", "cell-vectors"),
        "bring": lambda: Brings((word, "capital"), ({word: word, "capital": "Paris"},)),
    }
    return Hit(rank=rank, **{**fields, **other})  # type: ignore[arg-type]


def make_results(*hits: Hit, column: str = "country", size: int = 4) -> Results:
    return Results(
        {"table": None, "column": column, "cells": 9, "size": size}, hits, {"total": 0.01}
    )


def html_of(shown: Results | Hit) -> str:
    return shown._repr_html_()


def test_a_card_has_all_that_is_known_of_a_hit() -> None:
    said = Page(html_of(make_hit())).said
    for part in (
        *("France.csv", "50%", "25%", "1 of 4", "10%", "2 of 4", "20%", "of 10"),
        *(CARDINALITIES["n:1"], "text column", "found by equal cells, similar cells"),
        *("UK≈United Kingdom0.88", "France=France", "Atlantis", "capital", "Paris"),
    ):
        assert part in said


def test_other_spellings_come_first() -> None:
    said = Page(html_of(make_hit())).said
    assert said.index("UK≈") < said.index("France=France")


def test_a_generic_key_is_warned_of() -> None:
    assert "These are years: they match nearly" in Page(html_of(make_hit(generic="year"))).said


def test_without_vectors_there_is_one_pair_of_bars() -> None:
    assert "equal or similar" not in Page(html_of(make_hit(semantic=None))).said


def test_other_columns_of_the_table_are_named() -> None:
    hit = replace(make_hit(), also=(make_hit(2, "iso2"),))
    assert "Also joinsiso2 50%" in Page(html_of(hit)).said


def test_a_hit_without_matches_says_so() -> None:
    hit = make_hit(matches=(), unmatched=(), cardinality="", found_by=())
    assert "nothing matches" in Page(html_of(hit)).said


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_the_best_are_unfolded_and_the_rest_summed_up(count: int) -> None:
    text = html_of(make_results(*(make_hit(rank) for rank in range(1, count + 1))))
    page = Page(text)
    assert f"{count:,} hit{'s' if count > 1 else ''}" in page.said
    assert text.count('<details class="dj-card" open>') == min(3, count)
    assert text.count("Brings") == min(10, count)
    assert ("more hits, numbers 11 to" in page.said) == (count > 10)
    assert ("and 790 more" in page.said) == (count == 1000)
    assert len(text) < 250_000


def test_cells_that_are_not_seen_are_counted() -> None:
    cells = tuple(Match(f"cell {i}", f"CELL {i}") for i in range(20))
    hit = make_hit(
        matches=cells, semantic=SemanticEvidence(0.5, 0.5, 50, 0.7), query_size=100,
        unmatched=tuple(map(str, range(20))),
    )  # fmt: skip
    said = Page(html_of(hit)).said
    assert "15 more and 30 not listed" in said
    assert "and 42 more" in said


@pytest.mark.parametrize("shown", HOSTILE, ids=range(len(HOSTILE)))
def test_text_from_tables_stays_text(shown: str) -> None:
    hit = make_hit(
        1, shown, matches=(Match(shown, shown, 0.9),), type=shown, found_by=(shown,), generic=shown
    )
    results = make_results(hit, *(make_hit(n, shown) for n in range(2, 20)), column=shown)
    for text in (html_of(results), html_of(replace(hit, cardinality=shown))):
        page = Page(text)
        assert set(page.tags) <= {"div", "style", "details", "summary", "span", "b", "bdi", "small"}
        assert {name for name, _ in page.attributes} <= {"class", "style", "title", "open"}
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200f\x00]", text)
        text.encode("utf-8")


@given(st.text(max_size=80))
def test_any_text_makes_a_whole_page(text: str) -> None:
    Page(html_of(make_results(make_hit(1, text), column=text)))


def test_nothing_is_asked_for_or_run() -> None:
    text = html_of(make_results(make_hit()))
    assert not re.search(r"https?:|url\(|@import|<script|javascript:|\son\w+=", text)


def test_style_is_for_the_cards_alone() -> None:
    selectors = [rule.partition("{")[0] for rule in STYLE.split("}") if rule]
    assert all(one.startswith(f".{SCOPE}") and "," not in one for one in selectors)


def test_no_hits_teach() -> None:
    said = Page(html_of(make_results())).said
    assert 'Try:join="any", which also matches other spellings' in said
    assert "every cell is missing or blank" in Page(html_of(make_results(size=0))).said


def test_a_lake_shows_what_it_holds(make_lake: MakeLake) -> None:
    lake = make_lake(
        [Column(["Oslo", "Rome"], "city", f"<b>t{number}</b>.csv") for number in range(30)]
    )
    said = Page(lake._repr_html_()).said
    assert "30 tables · 30 columns · 2 distinct values" in said
    assert "10 more" in said and "<b>t29</b>.csv" in said


def test_an_empty_lake_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "No tables yet" in deepjoin.index(tmp_path / "data")._repr_html_()


def test_a_search_renders(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["Oslo", "Lima", "Rome"], "city", "cities.csv")])
    page = Page(html_of(lake.search(["oslo", "Paris"], join="equi")))
    assert "oslo=Oslo" in page.said and "Not matchedParis" in page.said
