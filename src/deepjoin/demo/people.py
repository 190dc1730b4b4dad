"""Tables about people and what they do: hr, support, university and web folders."""

from __future__ import annotations

import datetime
import random

from deepjoin.demo.countries import COUNTRIES
from deepjoin.demo.names import FIRST_NAMES, SURNAMES, people
from deepjoin.demo.orders import customers, products
from deepjoin.demo.places import CITIES
from deepjoin.demo.sheets import Sheet, records
from deepjoin.demo.spellings import abbreviated, long_date, surname_first

_STAFF = people()[:80]
_COURSES = ("First aid", "Fire safety", "Data protection", "Negotiation", "Spreadsheets")
_LECTURES = records("""
MATH|Linear Algebra, Calculus, Probability, Number Theory, Topology
PHYS|Mechanics, Electrodynamics, Quantum Physics, Thermodynamics
HIST|Ancient Rome, The Middle Ages, Modern Europe, Economic History
COMP|Databases, Algorithms, Compilers, Computer Networks, Machine Learning
LANG|French I, French II, German I, Spanish I, Japanese I
""")
_COMPLAINTS = (
    "The parcel arrived two weeks late and nobody answered the phone",
    "The colour of the article is not the one shown on the web page",
    "One of the boxes was open, the packing torn, and a part was missing",
    'The invoice shows the old address although we sent "the new one" in March',
    "We were charged twice for the same delivery and would like the money back",
)
_REPLIES = (
    "we called the carrier, who promised a new delivery before the end of the week.",
    "the customer accepts a discount of ten per cent and keeps the goods.",
    "waiting for a photograph of the damage before anything else is done.",
    "the warehouse sends a replacement; the old one need not come back.",
)


def hr_sheets() -> list[Sheet]:
    """Give the tables of the personnel office, one person spelt three ways."""
    return [_employees(), _phone_list(), _training(), _alumni()]


def _employees() -> Sheet:
    rng = random.Random("employees")
    departments = ("Sales", "Finance", "Warehouse", "Support", "Design")
    offices = ("Berlin", "Paris", "London", "Sydney", "Charlotte", "Florence")
    rows = []
    for number, person in enumerate(_STAFF, 1):
        started = datetime.date(rng.randrange(2005, 2024), rng.randint(1, 12), 1)
        row = (f"{number:04d}", person, rng.choice(departments), rng.choice(offices), started)
        rows.append(row)
    header = ("staff_no", "full_name", "department", "office", "started")
    return Sheet("hr/employees.csv", header, rows)


def _phone_list() -> Sheet:
    rows = sorted((surname_first(person), 200 + place) for place, person in enumerate(_STAFF[:70]))
    return Sheet("hr/phone_list.csv", ("name", "extension"), rows, encoding="utf-8-sig")


def _training() -> Sheet:
    rng = random.Random("training")
    known = _STAFF[:5]
    rows = []
    for person in (*known, *rng.choices(_STAFF[5:], k=55)):
        day = datetime.date(2024, rng.randint(1, 6), rng.randint(1, 28))
        rows.append(
            (abbreviated(person), rng.choice(_COURSES), long_date(day), rng.choice(("yes", "no")))
        )
    return Sheet("hr/training.csv", ("participant", "course", "held_on", "passed"), rows)


def _alumni() -> Sheet:
    """Share the surnames of the staff, but be other people."""
    rng = random.Random("alumni")
    employed = set(_STAFF)
    pairs = [f"{first} {last}" for last in SURNAMES for first in FIRST_NAMES]
    strangers = rng.sample([person for person in pairs if person not in employed], 60)
    rows = [(person, rng.randrange(1999, 2020)) for person in strangers]
    return Sheet("hr/alumni.csv", ("full_name", "left_in"), rows)


def support_sheets() -> list[Sheet]:
    """Give the tables of the help desk."""
    header = ("escalation", "ticket", "raised_by", "raised_on")
    return [_tickets(), Sheet("support/escalations.csv", header, [])]


def _tickets() -> Sheet:
    """Write comments too long to be keys, with the commas and quotes of real ones."""
    rng = random.Random("tickets")
    rows = []
    for place in range(1, 71):
        client = rng.choice(customers()).name
        sku = rng.choice(products()).sku
        comment = (
            f"{rng.choice(_COMPLAINTS)} ({sku}).\nAnswer of the help desk: {rng.choice(_REPLIES)}"
        )
        opened = datetime.date(2024, 1, 1) + datetime.timedelta(place * 2)
        rows.append((f"T-{place:04d}", opened, client, rng.randint(1, 5), comment))
    header = ("ticket", "opened", "client_name", "priority", "comment")
    return Sheet("support/tickets.csv", header, rows)


def university_sheets() -> list[Sheet]:
    """Give a course list."""
    rng = random.Random("courses")
    lecturers = people()[140:152]
    rows = [
        (f"{subject}{100 + place}", title, rng.choice(lecturers), rng.choice((3, 5, 8)))
        for subject, titles in _LECTURES
        for place, title in enumerate(titles.split(", "), 1)
    ]
    header = ("course_code", "title", "lecturer", "credits")
    return [Sheet("university/courses.csv", header, rows)]


def web_sheets() -> list[Sheet]:
    """Give a log of visits; not every visitor looked at a product."""
    rng = random.Random("visits")
    codes = [country.iso2.lower() for country in COUNTRIES]
    rows = []
    for visit in range(1, 181):
        sku = rng.choice(products()).sku if rng.random() < 0.6 else ""
        rows.append((visit, rng.choice(codes[:60]), rng.choice(("/", "/shop", "/help")), sku))
    return [Sheet("web/visits.jsonl", ("visit", "country_code", "page", "sku"), rows)]


def sensor_sheets() -> list[Sheet]:
    """Give sensors and what they measured: numbers that match everything and mean nothing."""
    rng = random.Random("sensors")
    towns = rng.sample([city for city, *_ in CITIES], 20)
    sensors = [(f"SN-{place:03d}", town, place) for place, town in enumerate(towns, 1)]
    start = datetime.datetime(2024, 2, 1)
    readings = [
        (sensor, start + datetime.timedelta(hours=hour), round(rng.gauss(12, 4), 1), hour % 2)
        for sensor, _, _ in sensors
        for hour in range(14)
    ]
    header = ("sensor_id", "measured_at", "celsius", "is_checked")
    return [
        Sheet("sensors/sensors.csv", ("sensor", "location", "floor"), sensors),
        Sheet("sensors/readings.parquet", header, readings),
    ]
