"""Databases made up for training: styles of names and keys that collections of real ones lack.

Tables that refer to themselves, columns named after a role (`reports_to`, `author_id`) instead of
a table, keys called `id` in every table, prefixes, UUIDs, keys that do not begin at 1, lookup
tables of a few rows, and beside them what only looks like a reference: quantities, ages, ratings,
columns of one value.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

#: Words of one language: things, people, roles of people, and roles of a row's own kind.
_Words = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_LANGUAGES: tuple[_Words, ...] = (
    (
        _words(
            "branch course machine vehicle warehouse contract policy claim lesson room building "
            "route stop shipment parcel recipe ingredient album song match season league asset "
            "loan payment device sensor reading ward treatment survey question plant batch lot"
        ),
        _words("user employee person member student client player account staff doctor"),
        _words(
            "author owner sender recipient creator assignee reviewer approver host seller buyer "
            "created_by assigned_to approved_by updated_by sold_by captain coach winner"
        ),
        _words("parent reports_to manager supervisor reply_to previous original successor"),
        ("quantity", "age", "priority", "rating", "year", "level", "count", "size", "points"),
    ),
    (
        _words(
            "filiale kurs maschine fahrzeug lager vertrag police schaden raum gebaeude strecke "
            "halt sendung paket rezept zutat lied spiel saison liga anlage darlehen zahlung geraet "
            "messung station behandlung umfrage frage pflanze charge"
        ),
        _words("benutzer mitarbeiter person mitglied schueler kunde spieler lehrer arzt"),
        _words(
            "verfasser besitzer absender empfaenger ersteller bearbeiter pruefer gastgeber "
            "verkaeufer kaeufer betreuer angelegt_von genehmigt_von sieger trainer"
        ),
        _words("vorgesetzter eltern uebergeordnet leiter vorgaenger nachfolger original"),
        ("menge", "alter", "prioritaet", "note", "jahr", "stufe", "anzahl", "groesse", "punkte"),
    ),
    (
        _words(
            "agence cours machine vehicule entrepot contrat police sinistre salle batiment trajet "
            "arret envoi colis recette chanson match saison ligue pret paiement appareil mesure "
            "traitement enquete question plante lot"
        ),
        _words("utilisateur employe personne membre etudiant client joueur medecin"),
        _words(
            "auteur proprietaire expediteur destinataire createur acheteur vendeur cree_par "
            "valide_par vainqueur entraineur"
        ),
        _words("parent superieur responsable chef precedent suivant origine"),
        ("quantite", "age", "priorite", "note", "annee", "niveau", "nombre", "taille", "points"),
    ),
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: How many of a reference's cells are missing, and the share of the parent's keys that it uses.
_MISSING, _USED = (0.0, 0.0, 0.0, 0.1, 0.5, 0.9), (0.1, 0.4, 0.7, 1.0, 1.0)


@dataclass
class _Table:
    name: str
    noun: str
    key: str
    keys: list[object]
    columns: dict[str, list[object]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))


def make_database(file: Path, seed: int) -> list[dict[str, str]]:
    """Write a database and return its foreign keys, in the form of `declared_keys`."""
    maker = _Maker(Random(seed))
    keys = maker.make(file.stem)
    with closing(sqlite3.connect(file)) as database:
        for table in maker.tables:
            names = ", ".join(f'"{name}"' for name in table.columns)
            database.execute(f'CREATE TABLE "{table.name}" ({names})')
            marks = ", ".join("?" * len(table.columns))
            rows = zip(*table.columns.values(), strict=True)
            database.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', rows)
        database.commit()
    return keys


class _Maker:
    """Makes one database, in one style."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tables: list[_Table] = []
        self.words = random.choices(_LANGUAGES, (3, 1, 1))[0]
        self.is_plural = random.random() < 0.5
        self.case: Callable[[str], str] = random.choice((str, str, _camel, str.upper))
        self.key_style = random.choice(
            ("id", "id", "id", "{}_id", "{}_id", "{}_nr", "id_{}", "{}_code", "{}_no", "uuid")
        )
        self.is_prefixed = random.random() < 0.12

    def make(self, name: str) -> list[dict[str, str]]:
        random = self.random
        things = random.sample(self.words[0], random.randint(4, 8))
        people = random.sample(self.words[1], random.randint(1, 2))
        nouns = things + people
        random.shuffle(nouns)
        keys: list[tuple[_Table, str, _Table]] = []
        for noun in nouns:
            size = random.choices(
                (random.randint(2, 5), random.randint(6, 40), random.randint(60, 900)), (1, 2, 3)
            )[0]
            keys += self._entity(noun, size)
        for _ in range(random.randint(0, 2)):
            keys += self._bridge()
        return [
            {
                "db": name,
                "table": child.name,
                "columns": column,
                "ref_table": parent.name,
                "ref_columns": parent.key,
                "n_columns": "1",
                "distinct_child": str(len(set(child.columns[column]) - {None})),
            }
            for child, column, parent in keys
        ]

    def _prefix(self, noun: str) -> str:
        return "".join(word[0] for word in noun.split("_")) + "_" if self.is_prefixed else ""

    def _own(self, kind: str, noun: str) -> str:
        return f"{noun[0]}_{kind}" if self.is_prefixed else kind

    def _table(self, noun: str, size: int) -> _Table:
        random = self.random
        plain = noun + "s" if self.is_plural and not noun.endswith("s") else noun
        prefix = self._prefix(noun)
        key = self.case(prefix + self.key_style.format(noun))
        start, step = random.choice(((1, 1),) * 6 + ((1000, 1), (20_000, 1), (10, 10), (300, 3)))
        keys: list[object] = [start + step * at for at in range(size)]
        if self.key_style == "uuid":
            keys = [str(uuid.UUID(int=random.getrandbits(128))) for _ in range(size)]
        elif "code" in self.key_style or random.random() < 0.08:
            letter = random.choice(_LETTERS).upper()
            keys = [f"{letter}{at + 1:0{len(str(size))}}" for at in range(size)]
        return _Table(self.case(plain), noun, key, keys, {key: keys})

    def _entity(self, noun: str, size: int) -> list[tuple[_Table, str, _Table]]:
        random, found = self.random, []
        table = self._table(noun, size)
        is_person = noun in self.words[1]
        self._plain_column(table, "name")
        parents = [one for one in self.tables if 0 < len(one.keys) < 3 * size]
        for parent in random.sample(parents, min(len(parents), random.randint(0, 3))):
            times = 2 if parent.noun in self.words[1] and random.random() < 0.5 else 1
            roles = random.sample(self.words[2], times)
            for role in roles:
                found.append(self._reference(table, parent, role, times > 1))
        if size > 8 and random.random() < (0.6 if is_person else 0.25):
            found.append(self._reference(table, table, random.choice(self.words[3]), True))
        for _ in range(random.randint(1, 4)):
            self._plain_column(table, random.choice((*self.words[4], "price", "status", "date")))
        if self.tables and random.random() < 0.4:
            # The same name in every row, which another table has as well: no reference to it.
            other = random.choice(self.tables)
            names = other.columns.get(self.case(self._own("name", other.noun)))
            if names:
                table.columns[self.case(random.choice(("label", "group", "x1", "source")))] = [
                    names[0]
                ] * size
        self.tables.append(table)
        return found

    def _bridge(self) -> list[tuple[_Table, str, _Table]]:
        random = self.random
        if len(parents := [one for one in self.tables if one.keys]) < 2:
            return []
        one, other = random.sample(parents, 2)
        name = self.case(f"{one.noun}_{other.noun}")
        if any(table.name == name for table in self.tables):
            return []
        size = random.randint(20, 1500)
        table = _Table(name, f"{one.noun}_{other.noun}", "", [], {})
        table.columns[""] = [None] * size
        found = [self._reference(table, parent, "", False) for parent in (one, other)]
        del table.columns[""]
        if random.random() < 0.5:
            self._plain_column(table, random.choice(self.words[4]))
        self.tables.append(table)
        return found

    def _reference(
        self, table: _Table, parent: _Table, role: str, is_role: bool
    ) -> tuple[_Table, str, _Table]:
        """Add a column that refers to a table, under its name or as a role."""
        random = self.random
        prefix = self._prefix(table.noun)
        is_bare = self.key_style in ("id", "uuid")
        plain = f"{parent.noun}_{self.key_style}" if is_bare else self.key_style.format(parent.noun)
        if is_role or (parent.noun in self.words[1] and role and random.random() < 0.3):
            ending = random.choice(("", "_id")) if "_" not in role else ""
            plain = random.choice((f"{role}{ending}", f"{role}{ending}", f"{role}_{plain}"))
        elif role and random.random() < 0.1:
            plain = f"{random.choice(('main', 'first', 'old', 'new'))}_{plain}"
        name = self.case(prefix + plain)
        while name in table.columns:
            name += "2"
        used = random.sample(parent.keys, max(1, round(random.choice(_USED) * len(parent.keys))))
        missing = random.choice(_MISSING)
        cells = [
            None if random.random() < missing else random.choice(used) for _ in range(table.rows)
        ]
        table.columns[name] = cells
        return table, name, parent

    def _plain_column(self, table: _Table, kind: str) -> None:
        """Add a column that refers to nothing, though some look as if they did."""
        random, size = self.random, table.rows
        name = self.case(self._own(kind, table.noun))
        if name in table.columns:
            return
        cells: list[object]
        if kind == "name":
            words = self.words[0] + self.words[1]
            cells = [f"{random.choice(words)} {random.randint(1, 999)}" for _ in range(size)]
        elif kind == "price":
            cells = [round(random.uniform(1, 900), 2) for _ in range(size)]
        elif kind == "status":
            cells = [random.choice(("open", "closed", "new")) for _ in range(size)]
        elif kind == "date":
            cells = [f"20{random.randint(10, 23)}-0{random.randint(1, 9)}-01" for _ in range(size)]
        elif random.random() < 0.15:
            cells = [random.randint(1, 2100)] * size
        else:
            low, high = random.choice(((0, 1), (1, 5), (1, 10), (0, 100), (1, 300), (18, 80)))
            cells = [random.randint(low, high) for _ in range(size)]
        table.columns[name] = cells


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
