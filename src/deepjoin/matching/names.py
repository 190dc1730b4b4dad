"""Names of columns and tables, compared many pairs at a time.

A name is split into words, at case changes as well, and accents are folded. Endings that only say
"this is a key" (id, code, no, nummer, …) are cut off: what is left, the stem, says what the key is
of. Stems are compared by the letters they share (three at a time, so that plurals, compounds and
abbreviations stay near) and, where an encoder is given, by meaning.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from deepjoin.arrays import Array, Double, Int, Marks, ranges
from deepjoin.embed.cells import CellEncoder

#: Words that say that a column is a key, not what it is a key of.
_KEY_WORDS = frozenset(
    (
        *("id", "ids", "code", "codes", "key", "keys", "no", "nr", "num", "number", "nummer"),
        *("nummern", "kennung", "kennnummer", "schlussel", "uuid", "guid", "pk", "fk", "sk", "ref"),
        *("iso", "abbr", "abbreviation", "identifier", "identificador", "codigo", "clave", "cle"),
        *("numero", "numer", "schluessel"),
    )
)
#: Those that may come first.
_LEADING = frozenset(("id", "fk", "pk", "sk", "uuid", "guid", "code", "cod", "codigo", "ref"))
#: The same, glued to another word: zimmernummer, abteilungsid.
_GLUED = re.compile(r"(.{3,}?)(?:s?nummer|s?code|s?schlussel|s?kennung|nr|id|key|no)$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_ENDING = re.compile(r"\.(?:csv|tsv|txt|dat|parquet|jsonl?|ndjson|xlsx?|xlsb|ods)(?:\.\w+)?$")
#: What a row of the same table is to a row; what a person is to a thing; tables of people.
_OWN_KIND = frozenset(
    (
        *("parent", "reports", "manager", "mgr", "supervisor", "boss", "superior", "leader"),
        *("head", "reply", "previous", "prev", "predecessor", "successor", "next", "original"),
        *("replaces", "replaced", "ancestor", "mentor", "vorgesetzter", "vorgesetzte", "leiter"),
        "eltern",
        *("ubergeordnet", "uebergeordnet", "ubergeordnete", "vorganger", "vorgaenger"),
        *("nachfolger", "superieur", "responsable", "chef", "precedent", "suivant", "origine"),
        *("jefe", "padre", "superiore", "capo"),
    )
)
_ROLES = frozenset(
    (
        *("author", "owner", "sender", "recipient", "receiver", "creator", "created", "updated"),
        *("modified", "assigned", "assignee", "reviewer", "approver", "approved", "host", "seller"),
        *("buyer", "sold", "captain", "coach", "winner", "loser", "manager", "supervisor", "head"),
        *("reporter", "requester", "editor", "agent", "rep", "salesperson", "clerk", "attending"),
        *("driver", "pilot", "friend", "follower", "contact", "responsible", "instructor", "tutor"),
        *("advisor", "lead", "leader", "verfasser", "autor", "besitzer", "inhaber", "absender"),
        *("empfanger", "empfaenger", "ersteller", "bearbeiter", "sachbearbeiter", "prufer"),
        *("pruefer", "gastgeber", "verkaufer", "verkaeufer", "kaufer", "kaeufer", "betreuer"),
        *("angelegt", "genehmigt", "erstellt", "sieger", "trainer", "freund", "gewinner"),
        *("verlierer", "fahrer", "leiter", "vorgesetzter", "auteur", "proprietaire", "expediteur"),
        *("destinataire", "createur", "acheteur", "vendeur", "cree", "valide", "vainqueur"),
        *("entraineur", "responsable", "dueno", "creador", "remitente", "vendedor", "comprador"),
    )
)
_PEOPLE = frozenset(
    (
        *("user", "employee", "person", "people", "member", "student", "client", "player"),
        *("account", "staff", "doctor", "customer", "physician", "teacher", "contact", "worker"),
        *("benutzer", "mitarbeiter", "personen", "mitglied", "mitglieder", "schuler", "schueler"),
        *("kunde", "kunden", "spieler", "lehrer", "arzt", "arzte", "aerzte", "personal", "leute"),
        *("utilisateur", "employe", "personne", "membre", "etudiant", "joueur", "medecin"),
        *("vendeur", "empleado", "usuario", "persona", "cliente", "miembro", "salesperson"),
    )
)
#: Letter groups of a name are kept as a set of this many bits.
_BITS = 256
#: Names whose letters are prepared at a time.
_WORDS = 1 << 15
#: Letters of so few words are taken apart one by one.
_FEW = 4
#: What is left of a name's characters when its words are joined.
_JOINED = {code: chr(code).lower() if chr(code).isalnum() else None for code in range(128)}

Bits = npt.NDArray[np.uint64]


@lru_cache(maxsize=1 << 16)
def key_words(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words without accents.

    >>> key_words("ArtistId"), key_words("größen_code2")
    (('artist', 'id'), ('grossen', 'code', '2'))
    """
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    folded = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return tuple(word.lower() for word in _WORD.findall(folded))


@lru_cache(maxsize=1 << 16)
def split_key(name: str) -> tuple[str, bool]:
    """Return the stem of a name, without words that only say that it is a key; and if it had any.

    >>> split_key("customer_id"), split_key("Zimmernummer"), split_key("id"), split_key("Name")
    (('customer', True), ('zimmer', True), ('', True), ('name', False))
    """
    words = list(key_words(name))
    is_key = False
    while words and words[-1] in _KEY_WORDS:
        words.pop()
        is_key = True
    # id_client, FK_Kunde; but num_clients may be a count, and iso_date is a date.
    while len(words) > 1 and words[0] in _LEADING:
        words, is_key = words[1:], True
    if words and not is_key:
        glued = _GLUED.match(words[-1])
        if glued:
            words[-1], is_key = glued[1], True
    return "".join(words), is_key


def names_one_key(name: str, other: str) -> bool:
    """Check whether two names are one, and say of a key whose it is or which one.

    >>> names_one_key("Key_1_2", "key 1_2"), names_one_key("id", "ID"), names_one_key("age", "age")
    (True, False, False)
    """
    words = key_words(name)
    return words == key_words(other) and 0 < len(_KEY_WORDS.intersection(words)) < len(set(words))


class Role(IntFlag):
    """What the words of a name say, besides what it is called."""

    OWN_KIND = 1
    OF_PERSON = 2
    PEOPLE = 4


def role_of(name: str) -> Role:
    """Say whether a column is named after a role that rows of its own table or people have.

    >>> role_of("reports_to"), role_of("author_id"), role_of("Users"), role_of("price")
    (<Role.OWN_KIND: 1>, <Role.OF_PERSON: 2>, <Role.PEOPLE: 4>, <Role: 0>)
    """
    words = set(key_words(name))
    words |= {word.removesuffix("s") for word in words}
    found = Role(0)
    kinds = (_OWN_KIND, Role.OWN_KIND), (_ROLES, Role.OF_PERSON), (_PEOPLE, Role.PEOPLE)
    for known, role in kinds:
        if words & known:
            found |= role
    return found


def without_prefixes(names: Sequence[str], tables: Sequence[int]) -> list[str]:
    """Cut off what all names of a table begin with, up to four letters and a line: c_custkey.

    >>> without_prefixes(["c_id", "c_name", "id", "x_y"], [0, 0, 1, 2])
    ['id', 'name', 'id', 'x_y']
    """
    ends = [name.find("_", 1, 5) for name in names]
    begins: dict[int, str] = {}
    count: Counter[int] = Counter()
    for name, table, end in zip(names, tables, ends, strict=True):
        count[table] += 1
        prefix = name[: end + 1] if end < len(name) - 1 else ""
        begins[table] = prefix if begins.get(table, prefix) == prefix else ""
    return [
        name[len(begins[table]) :] if count[table] > 1 else name
        for name, table in zip(names, tables, strict=True)
    ]


def short_name(table: str) -> str:
    """Return the name of a table without folders, file endings, database and schema.

    >>> short_name("geo/cities.csv"), short_name("shop.public.orders"), short_name("b.xlsx#Sheet1")
    ('cities', 'orders', 'Sheet1')
    """
    base = table.rpartition("/")[2]
    base, _, sheet = base.partition("#")
    if sheet:
        return sheet
    if "." not in base:
        return base
    ending = _ENDING.search(base)
    return base[: ending.start()] if ending else base.rpartition(".")[2]


@lru_cache(maxsize=1 << 14)
def home_of(table: str) -> str:
    """Return where a table is: its folder, workbook, or database and schema; '' if only named.

    >>> home_of("geo/cities.csv"), home_of("shop.orders"), home_of("cities.csv")
    ('geo/', 'shop.', '')
    """
    base = table.rpartition("#")[0] or table
    if base != table:
        return base
    folder = table.rpartition("/")[0]
    if folder:
        return f"{folder}/"
    short = short_name(table)
    return table[: -len(short)] if short and table.endswith(short) else ""


@dataclass(frozen=True)
class NameTable:
    """Distinct names: letters of the whole name and of its stem, whether it is a key's, vectors."""

    letters: Bits
    stems: Bits
    #: Hashes of names and stems without accents, case and separators; 0 for an empty one.
    hashes: Array
    stem_hashes: Array
    is_key: Marks
    #: Unit vectors of the words; no dimensions without an encoder.
    vectors: npt.NDArray[np.float16]

    @classmethod
    def of(cls, names: Sequence[str], encoder: CellEncoder | None = None) -> NameTable:
        """Prepare names for comparison."""
        whole = ["".join(key_words(name)) for name in names]
        split = [split_key(name) for name in names]
        vectors = np.zeros((len(names), 0), np.float16)
        if encoder is not None:
            # In half precision: a lake has hundreds of thousands of names.
            texts = [" ".join(key_words(name)) for name in names]
            vectors = encoder.encode(texts).astype(np.float16)
        stems = [stem for stem, _ in split]
        letters = _letter_bits([*whole, *stems])
        return cls(
            *(letters[: len(whole)], letters[len(whole) :], _hashes(whole), _hashes(stems)),
            np.array([is_key for _, is_key in split], bool),
            vectors,
        )

    def take(self, rows: Int) -> NameTable:
        """Return some of the names, in this order."""
        return NameTable(*(array[rows] for array in vars(self).values()))


def _hashes(words: Sequence[str]) -> Array:
    found = [xxh3_64_intdigest(word.encode("utf-8", "replace")) if word else 0 for word in words]
    return np.array(found, np.uint64)


def letters_of(names: Sequence[str]) -> Bits:
    """Return the letter groups of names, as `NameTable.letters` has them."""
    return _letter_bits([_squashed(name) for name in names])


def _squashed(name: str) -> str:
    """Return the words of a name, joined."""
    # In ASCII, words leave out nothing but what is neither letter nor digit.
    return name.translate(_JOINED) if name.isascii() else "".join(key_words(name))


def _letter_bits(words: Sequence[str]) -> Bits:
    """Turn words into sets of letter groups: three letters, and the first two of the word."""
    if len(words) <= _FEW:
        bits = b"".join(map(_word_bits, words))
        return np.frombuffer(bits, "<u8").astype(np.uint64).reshape(-1, _BITS // 64)
    # Some at a time: while they are made, sets take a byte for each bit.
    parts = [_some_letter_bits(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]
    return np.concatenate(parts) if parts else np.zeros((0, _BITS // 64), np.uint64)


def _some_letter_bits(words: Sequence[str]) -> Bits:
    marks = np.zeros((len(words), _BITS), bool)
    plain = [at for at, word in enumerate(words) if word.isascii()]
    codes = np.frombuffer("^".join(["", *(words[at] for at in plain)]).encode(), np.uint8)
    lengths = np.array([len(words[at]) + 1 for at in plain], np.int64)
    # A word and the ^ before it have two groups fewer than characters; one letter is one group.
    groups = np.maximum(lengths - 2, lengths == 2)
    starts = ranges(np.cumsum(lengths) - lengths, groups)
    sizes = np.repeat(np.minimum(lengths, 3), groups)
    rows = np.repeat(np.array(plain, np.int64), groups)
    marks[rows, _short_hashes(codes, starts, sizes) % _BITS] = True
    found = np.packbits(marks, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    for at in set(range(len(words))).difference(plain):
        found[at] = np.frombuffer(_word_bits(words[at]), "<u8")
    return found


def _short_hashes(codes: npt.NDArray[np.uint8], starts: Int, sizes: Int) -> Array:
    """Return what `xxh3_64_intdigest` does for groups of two or three bytes, all at once."""
    first, middle, last = (
        codes[starts + at].astype(np.uint64) for at in (0, sizes >> 1, sizes - 1)
    )
    mixed = (first << 16) | (middle << 24) | (sizes.astype(np.uint64) << 8) | last
    mixed ^= np.uint64(0x87275A9B)
    mixed ^= mixed >> 33
    mixed *= np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> 29
    mixed *= np.uint64(0x165667B19E3779F9)
    return mixed ^ (mixed >> 32)


@lru_cache(maxsize=1 << 16)
def _word_bits(word: str) -> bytes:
    """Do the same for one word in any alphabet."""
    padded = f"^{word}"
    bits = 0
    for group in {padded[i : i + 3] for i in range(len(padded) - 2)} or {padded} - {"^"}:
        bits |= 1 << xxh3_64_intdigest(group.encode("utf-8", "replace")) % _BITS
    return bits.to_bytes(_BITS // 8, "little")


def shared_letters(one: Bits, other: Bits) -> tuple[Double, Double]:
    """Return the share of the letter groups of each name that the other has; 0 for no name."""
    shared, mine, theirs = (np.bitwise_count(of).sum(axis=-1) for of in (one & other, one, other))
    return shared / np.maximum(1, mine), shared / np.maximum(1, theirs)
