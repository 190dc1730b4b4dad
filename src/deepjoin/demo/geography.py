"""Tables about places: the geo, reference and travel folders."""

from __future__ import annotations

import datetime
import random

from deepjoin.demo.countries import BY_ISO2, BY_NAME, COUNTRIES, GERMAN_NAMES, OTHER_NAMES
from deepjoin.demo.names import CITY_NAMES, FIRST_NAMES
from deepjoin.demo.places import AIRPORTS, BORDERS, CITIES, PEAKS
from deepjoin.demo.sheets import Sheet
from deepjoin.demo.spellings import long_date, padded
from deepjoin.demo.standards import CURRENCIES, HOLIDAYS, LANGUAGES, SPOKEN


def _name(iso2: str) -> str:
    return BY_ISO2[iso2].name


def geo_sheets() -> list[Sheet]:
    """Give the tables of countries, cities and mountains."""
    capitals = {country.capital for country in COUNTRIES}
    cities = [
        (city, _name(iso2), latitude, longitude, int(city in capitals))
        for city, iso2, latitude, longitude in CITIES
    ]
    peaks = [(peak, metres, _name(iso2)) for peak, metres, iso2 in PEAKS]
    return [
        _countries(),
        Sheet("geo/cities.csv", ("city", "country", "lat", "lon", "is_capital"), cities),
        _capitals(),
        _german_countries(),
        _borders(),
        Sheet("geo/peaks.csv", ("peak", "height_m", "country"), peaks),
        _spoken_languages(),
    ]


def _countries() -> Sheet:
    header = ("country", "iso2", "iso3", "capital", "continent", "population", "currency")
    rows = [(*country[:5], country.population, country.currency) for country in COUNTRIES]
    return Sheet("geo/countries.csv", header, rows)


def _capitals() -> Sheet:
    """Shout the names of Europe and the Americas, as old mainframe exports do."""
    kept = [country for country in COUNTRIES if country.continent[-6:] in ("Europe", "merica")]
    nations = padded([country.name.upper() for country in kept])
    rows = [(nation, country.capital) for nation, country in zip(nations, kept, strict=True)]
    return Sheet("geo/capitals.tsv", ("nation", "capital_city"), rows)


def _german_countries() -> Sheet:
    rows = [
        (iso2, land, hauptstadt, BY_ISO2[iso2].millions.replace(".", ","))
        for iso2, land, hauptstadt in GERMAN_NAMES
    ]
    return Sheet("geo/laender.csv", ("Kürzel", "Land", "Hauptstadt", "Einwohner (Mio.)"), rows)


def _borders() -> Sheet:
    both_ways = BORDERS + [(neighbour, country) for country, neighbour in BORDERS]
    rows = sorted((_name(country), _name(neighbour)) for country, neighbour in both_ways)
    return Sheet("geo/borders.csv", ("cntry_name", "neighbour"), rows)


def _spoken_languages() -> Sheet:
    english = {code: name for code, name, _, _ in LANGUAGES}
    rows = [(_name(iso2), english[code]) for iso2, code in SPOKEN]
    return Sheet("geo/languages_spoken.csv", ("territory", "language"), rows)


def reference_sheets() -> list[Sheet]:
    """Give the code lists everybody joins with."""
    codes = [(country.iso2, country.iso3, country.official_name) for country in COUNTRIES]
    languages = [(english, own, code, family) for code, english, own, family in LANGUAGES]
    return [
        Sheet("reference/iso_codes.csv", ("ISO-2", "ISO-3", "official_name"), codes),
        Sheet("reference/currencies.csv", ("code", "currency", "minor_digits"), CURRENCIES),
        Sheet("reference/languages.csv", ("language", "own_name", "code", "family"), languages),
        _calling_codes(),
        _holidays(),
        _calendar(),
        _first_names(),
    ]


def _calling_codes() -> Sheet:
    rows = []
    for country in COUNTRIES:
        _, register = OTHER_NAMES.get(country.name, ("", country.name))
        rows.append((register.upper(), "+" + country.calling_code))
    return Sheet("reference/calling_codes.tsv", ("COUNTRY", "CODE"), sorted(rows))


def _holidays() -> Sheet:
    rows = [
        (long_date(datetime.date.fromisoformat(f"2024-{day}")), _name(iso2), holiday)
        for day, iso2, holiday in HOLIDAYS
    ]
    return Sheet("reference/public_holidays_2024.csv", ("date", "country", "holiday"), rows)


def _calendar() -> Sheet:
    start = datetime.date(2024, 1, 1)
    days = [start + datetime.timedelta(place) for place in range(182)]
    rows = [
        (day.isoformat(), day.isocalendar().week, (day.month + 2) // 3, int(day.weekday() > 4))
        for day in days
    ]
    header = ("day", "iso_week", "quarter", "is_weekend")
    return Sheet("reference/calendar_2024_h1.csv", header, rows)


def _first_names() -> Sheet:
    """List names for babies, some of which are cities too."""
    names = sorted({*FIRST_NAMES, *CITY_NAMES})
    random.Random("first names").shuffle(names)
    rows = [(rank, name, 9000 // rank) for rank, name in enumerate(names, 1)]
    return Sheet("reference/first_names.csv", ("rank", "name", "babies"), rows)


def travel_sheets() -> list[Sheet]:
    """Give the tables of a travel agency."""
    airports = [(iata, airport, city, _name(iso2)) for iata, airport, city, iso2 in AIRPORTS]
    return [
        Sheet("travel/airports.csv", ("iata", "airport", "city", "cntry_name"), airports),
        _flights(),
        _destinations(),
        _city_breaks(),
    ]


def _flights() -> Sheet:
    rng = random.Random("flights")
    codes = [iata for iata, *_ in AIRPORTS]
    rows = []
    for place in range(240):
        origin, destination = rng.sample(codes, 2)
        day = datetime.date(2024, 3, 1) + datetime.timedelta(place // 8)
        flight = f"DJ{rng.randrange(100, 999)}"
        rows.append((flight, origin, destination, day, rng.randrange(40, 320)))
    header = ("flight", "from_iata", "to_iata", "departs", "passengers")
    return Sheet("travel/flights.csv.gz", header, rows)


def _destinations() -> Sheet:
    """Name countries as a brochure would."""
    rng = random.Random("destinations")
    chosen = sorted({*OTHER_NAMES, *rng.sample(sorted(BY_NAME), 34)})
    rows = []
    for name in chosen:
        brochure, _ = OTHER_NAMES.get(name, (name, ""))
        rows.append((brochure, rng.randrange(299, 2999, 50), rng.randint(3, 5)))
    return Sheet("travel/destinations.csv", ("nation", "price_from", "rating"), sorted(rows))


def _city_breaks() -> Sheet:
    rng = random.Random("city breaks")
    chosen = rng.sample([city for city, *_ in CITIES if city not in CITY_NAMES], 38)
    towns = padded([city.upper() for city in sorted([*chosen, "Charlotte", "Florence", "Sydney"])])
    rows = [(town, rng.randint(2, 7), rng.randrange(149, 899, 10)) for town in towns]
    return Sheet("travel/city_breaks.tsv", ("TOWN", "NIGHTS", "PRICE_EUR"), rows)
