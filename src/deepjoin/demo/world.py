"""Demo tables about the world: places, code lists, travel, films, books, courses, sensors."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator

from deepjoin.demo.business import products
from deepjoin.demo.facts import (
    AIRPORTS,
    BOOKS,
    BORDERS,
    BY_ISO2,
    BY_NAME,
    CITIES,
    CITY_NAMES,
    COUNTRIES,
    COURSES,
    CURRENCIES,
    DIRECTORS,
    FILMS,
    FIRST_NAMES,
    GERMAN_NAMES,
    HOLIDAYS,
    LANGUAGES,
    OTHER_NAMES,
    PEAKS,
    SPOKEN,
    article_last,
    long_date,
    padded,
    people,
    without_article,
)
from deepjoin.demo.sheets import Sheet


def _name(iso2: str) -> str:
    return BY_ISO2[iso2].name


def geo_sheets() -> Iterator[Sheet]:
    """Give the tables of countries, cities and mountains."""
    header: tuple[str, ...] = ("country", "iso2", "iso3", "capital", "continent", "population")
    countries = [(*country[:5], country.population, country.currency) for country in COUNTRIES]
    yield Sheet("geo/countries.csv", (*header, "currency"), countries)

    capitals = {country.capital for country in COUNTRIES}
    cities = [
        (city, _name(iso2), latitude, longitude, int(city in capitals))
        for city, iso2, latitude, longitude in CITIES
    ]
    yield Sheet("geo/cities.csv", ("city", "country", "lat", "lon", "is_capital"), cities)

    # Europe and the Americas in upper case, as old mainframes export them.
    kept = [country for country in COUNTRIES if country.continent[-6:] in ("Europe", "merica")]
    nations = padded([country.name.upper() for country in kept])
    rows = [(nation, country.capital) for nation, country in zip(nations, kept, strict=True)]
    yield Sheet("geo/capitals.tsv", ("nation", "capital_city"), rows)

    german = [
        (iso2, land, hauptstadt, BY_ISO2[iso2].millions.replace(".", ","))
        for iso2, land, hauptstadt in GERMAN_NAMES
    ]
    yield Sheet("geo/laender.csv", ("Kürzel", "Land", "Hauptstadt", "Einwohner (Mio.)"), german)

    both_ways = BORDERS + [(neighbour, country) for country, neighbour in BORDERS]
    borders = sorted((_name(country), _name(neighbour)) for country, neighbour in both_ways)
    yield Sheet("geo/borders.csv", ("cntry_name", "neighbour"), borders)

    peaks = [(peak, metres, _name(iso2)) for peak, metres, iso2 in PEAKS]
    yield Sheet("geo/peaks.csv", ("peak", "height_m", "country"), peaks)

    english = {code: name for code, name, _, _ in LANGUAGES}
    spoken = [(_name(iso2), english[code]) for iso2, code in SPOKEN]
    yield Sheet("geo/languages_spoken.csv", ("territory", "language"), spoken)


def reference_sheets() -> Iterator[Sheet]:
    """Give the code lists that everybody joins with."""
    codes = [(country.iso2, country.iso3, country.official_name) for country in COUNTRIES]
    yield Sheet("reference/iso_codes.csv", ("ISO-2", "ISO-3", "official_name"), codes)
    yield Sheet("reference/currencies.csv", ("code", "currency", "minor_digits"), CURRENCIES)

    languages = [(english, own, code, family) for code, english, own, family in LANGUAGES]
    header = ("language", "own_name", "code", "family")
    yield Sheet("reference/languages.csv", header, languages)

    registers = [OTHER_NAMES.get(country.name, ("", country.name))[1] for country in COUNTRIES]
    calling = [
        (register.upper(), "+" + country.calling_code)
        for register, country in zip(registers, COUNTRIES, strict=True)
    ]
    yield Sheet("reference/calling_codes.tsv", ("COUNTRY", "CODE"), sorted(calling))

    holidays = [
        (long_date(datetime.date.fromisoformat(f"2024-{day}")), _name(iso2), holiday)
        for day, iso2, holiday in HOLIDAYS
    ]
    yield Sheet("reference/public_holidays_2024.csv", ("date", "country", "holiday"), holidays)

    days = [datetime.date(2024, 1, 1) + datetime.timedelta(place) for place in range(182)]
    calendar = [
        (day.isoformat(), day.isocalendar().week, (day.month + 2) // 3, int(day.weekday() > 4))
        for day in days
    ]
    header = ("day", "iso_week", "quarter", "is_weekend")
    yield Sheet("reference/calendar_2024_h1.csv", header, calendar)

    # A decoy: names for babies, some of which are cities too.
    names = sorted({*FIRST_NAMES, *CITY_NAMES})
    random.Random("first names").shuffle(names)
    ranked = [(rank, name, 9000 // rank) for rank, name in enumerate(names, 1)]
    yield Sheet("reference/first_names.csv", ("rank", "name", "babies"), ranked)


def travel_sheets() -> Iterator[Sheet]:
    """Give the tables of a travel agency."""
    airports = [(iata, airport, city, _name(iso2)) for iata, airport, city, iso2 in AIRPORTS]
    yield Sheet("travel/airports.csv", ("iata", "airport", "city", "cntry_name"), airports)

    rng = random.Random("flights")
    codes = [iata for iata, *_ in AIRPORTS]
    flights = []
    for place in range(240):
        origin, destination = rng.sample(codes, 2)
        day = datetime.date(2024, 3, 1) + datetime.timedelta(place // 8)
        flight = f"DJ{rng.randrange(100, 999)}"
        flights.append((flight, origin, destination, day, rng.randrange(40, 320)))
    header = ("flight", "from_iata", "to_iata", "departs", "passengers")
    yield Sheet("travel/flights.csv.gz", header, flights)

    # Countries as a brochure names them.
    rng = random.Random("destinations")
    destinations = []
    for name in sorted({*OTHER_NAMES, *rng.sample(sorted(BY_NAME), 34)}):
        brochure, _ = OTHER_NAMES.get(name, (name, ""))
        destinations.append((brochure, rng.randrange(299, 2999, 50), rng.randint(3, 5)))
    yield Sheet("travel/destinations.csv", ("nation", "price_from", "rating"), sorted(destinations))

    rng = random.Random("city breaks")
    chosen = rng.sample([city for city, *_ in CITIES if city not in CITY_NAMES], 38)
    towns = padded([city.upper() for city in sorted([*chosen, "Charlotte", "Florence", "Sydney"])])
    breaks = [(town, rng.randint(2, 7), rng.randrange(149, 899, 10)) for town in towns]
    yield Sheet("travel/city_breaks.tsv", ("TOWN", "NIGHTS", "PRICE_EUR"), breaks)


def film_sheets() -> Iterator[Sheet]:
    """Give the tables of a film club, where titles lose and move their articles."""
    yield Sheet("films/films.csv", ("title", "year", "director"), FILMS)
    directors = [(name, born, _name(iso2)) for name, born, iso2 in DIRECTORS]
    yield Sheet("films/directors.csv", ("name", "born", "born_in"), directors)

    rng = random.Random("ratings")
    ratings = [
        (article_last(title), rng.randint(3, 5), rng.randrange(5, 60))
        for title, _, _ in FILMS[::-1]
    ]
    yield Sheet("films/club_ratings.tsv", ("movie", "stars", "votes"), ratings[:58])

    rng = random.Random("screenings")
    halls = ("Odeon", "Rex", "Capitol", "Astoria")
    screenings = []
    for place in range(90):
        title, _, _ = rng.choice(FILMS)
        day = datetime.date(2024, 4, 1) + datetime.timedelta(place // 2)
        film = without_article(title) if place % 3 == 0 else title
        screenings.append((film, rng.choice(halls), day, rng.randrange(20, 180)))
    yield Sheet("films/screenings.csv", ("film", "cinema", "shown_on", "seats_sold"), screenings)


def library_sheets() -> Iterator[Sheet]:
    """Give the catalogue of a small library."""
    rng = random.Random("library")
    rows = [
        (f"{place:05d}", title, author, year, rng.randint(1, 4))
        for place, (title, author, year) in enumerate(BOOKS, 7)
    ]
    yield Sheet("library/books.csv", ("shelf_mark", "title", "author", "year", "copies"), rows)


def university_sheets() -> Iterator[Sheet]:
    """Give a course list; courses are numbered within their subject."""
    rng = random.Random("courses")
    lecturers = people()[140:152]
    subjects = [subject for subject, _ in COURSES]
    rows = []
    for place, (subject, title) in enumerate(COURSES):
        number = 101 + place - subjects.index(subject)
        rows.append((f"{subject}{number}", title, rng.choice(lecturers), rng.choice((3, 5, 8))))
    yield Sheet("university/courses.csv", ("course_code", "title", "lecturer", "credits"), rows)


def sensor_sheets() -> Iterator[Sheet]:
    """Give sensors and their readings: numbers that match everything and mean nothing."""
    rng = random.Random("sensors")
    towns = rng.sample([city for city, *_ in CITIES], 20)
    sensors = [(f"SN-{place:03d}", town, place) for place, town in enumerate(towns, 1)]
    yield Sheet("sensors/sensors.csv", ("sensor", "location", "floor"), sensors)

    start = datetime.datetime(2024, 2, 1)
    readings = [
        (sensor, start + datetime.timedelta(hours=hour), round(rng.gauss(12, 4), 1), hour % 2)
        for sensor, _, _ in sensors
        for hour in range(14)
    ]
    header = ("sensor_id", "measured_at", "celsius", "is_checked")
    yield Sheet("sensors/readings.parquet", header, readings)


def web_sheets() -> Iterator[Sheet]:
    """Give a log of visits; not every visitor looked at a product."""
    rng = random.Random("visits")
    codes = [country.iso2.lower() for country in COUNTRIES]
    rows = []
    for visit in range(1, 181):
        sku = rng.choice(products()).sku if rng.random() < 0.6 else ""
        rows.append((visit, rng.choice(codes[:60]), rng.choice(("/", "/shop", "/help")), sku))
    yield Sheet("web/visits.jsonl", ("visit", "country_code", "page", "sku"), rows)
