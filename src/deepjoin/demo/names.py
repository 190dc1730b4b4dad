"""First names and surnames for invented people."""

from __future__ import annotations

import random
from functools import cache

FIRST_NAMES = (
    *("Alexander", "Alice", "Amina", "Anna", "Ben", "Carla", "Charles", "Chloe", "Daniel"),
    *("Elena", "Elizabeth", "Emma", "Farid", "Frederick", "George", "Grace", "Hanna", "Henry"),
    *("Ines", "Ivan", "James", "Joseph", "Julia", "Karim", "Laura", "Leo", "Lucas", "Maria"),
    *("Mei", "Nina", "Nora", "Oliver", "Olga", "Paul", "Priya", "Robert", "Rosa", "Samuel"),
    *("Sofia", "Thomas", "Tomás", "Victor", "William", "Yuki", "Zoe"),
)

#: First names that are also large cities.
CITY_NAMES = (
    *("Adelaide", "Alexandria", "Austin", "Charlotte", "Chester", "Dallas", "Florence", "Houston"),
    *("Jackson", "Lima", "Lincoln", "Madison", "Milan", "Paris", "Phoenix", "Sydney", "Valencia"),
)

SURNAMES = (
    *("Ahmed", "Baker", "Becker", "Bianchi", "Brown", "Clarke", "Costa", "Dubois", "Evans"),
    *("Fischer", "Garcia", "Hansen", "Ito", "Jansen", "Jones", "Keller", "Khan", "Kowalski"),
    *("Larsen", "Lopez", "Martin", "Meyer", "Moreau", "Müller", "Novak", "O'Brien", "Okafor"),
    *("Patel", "Rossi", "Sato", "Schmidt", "Silva", "Smith", "Svensson", "Taylor", "Walker"),
    *("Weber", "Wilson", "Wright", "Young"),
)

#: Always employed, so that every demo shows 'Wm. Smith' beside 'William Smith'.
_KNOWN = ("William Smith", "Charles Jones", "Elizabeth Baker", "Thomas O'Brien", "Nora Müller")


@cache
def people() -> tuple[str, ...]:
    """Draw 240 different full names, the well-known first."""
    pairs = [f"{first} {last}" for first in FIRST_NAMES for last in SURNAMES]
    drawn = random.Random("people").sample([name for name in pairs if name not in _KNOWN], 235)
    return (*_KNOWN, *drawn)
