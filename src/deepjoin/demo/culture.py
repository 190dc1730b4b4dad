"""Tables about films and books: the films and library folders."""

from __future__ import annotations

import datetime
import random

from deepjoin.demo.countries import BY_ISO2
from deepjoin.demo.sheets import Sheet
from deepjoin.demo.spellings import article_last, without_article
from deepjoin.demo.works import BOOKS, DIRECTORS, FILMS


def film_sheets() -> list[Sheet]:
    """Give the tables of a film club, whose titles lose and move their articles."""
    directors = [(name, born, BY_ISO2[iso2].name) for name, born, iso2 in DIRECTORS]
    return [
        Sheet("films/films.csv", ("title", "year", "director"), FILMS),
        Sheet("films/directors.csv", ("name", "born", "born_in"), directors),
        _ratings(),
        _screenings(),
    ]


def _ratings() -> Sheet:
    rng = random.Random("ratings")
    rows = [
        (article_last(title), rng.randint(3, 5), rng.randrange(5, 60))
        for title, _, _ in FILMS[::-1]
    ]
    return Sheet("films/club_ratings.tsv", ("movie", "stars", "votes"), rows[:58])


def _screenings() -> Sheet:
    rng = random.Random("screenings")
    halls = ("Odeon", "Rex", "Capitol", "Astoria")
    rows = []
    for place in range(90):
        title, _, _ = rng.choice(FILMS)
        day = datetime.date(2024, 4, 1) + datetime.timedelta(place // 2)
        film = without_article(title) if place % 3 == 0 else title
        rows.append((film, rng.choice(halls), day, rng.randrange(20, 180)))
    return Sheet("films/screenings.csv", ("film", "cinema", "shown_on", "seats_sold"), rows)


def library_sheets() -> list[Sheet]:
    """Give the catalogue of a small library."""
    rng = random.Random("library")
    rows = [
        (f"{place:05d}", title, author, year, rng.randint(1, 4))
        for place, (title, author, year) in enumerate(BOOKS, 7)
    ]
    header = ("shelf_mark", "title", "author", "year", "copies")
    return [Sheet("library/books.csv", header, rows)]
