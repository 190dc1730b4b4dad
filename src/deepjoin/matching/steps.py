"""The steps that programs are made of, each as Python, DuckDB SQL, pandas code and words.

All forms of a step give the same text for the same cell, and none (None, NULL, NaN) where a part
does not exist. ``{x}`` stands for the cell: a SQL expression of type VARCHAR, or a pandas Series
of strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepjoin.read.sql import literal
from deepjoin.show.text import printable

#: Letters that all regular expression engines at hand agree on.
LETTER = "A-Za-zÀ-ɏ"


@dataclass(frozen=True)
class ProgramStep:
    """One way to get a text from a cell; ``cost`` is low for what people do often."""

    words: str
    run: Callable[[str], str | None]
    sql: str
    pandas: str
    cost: float

    def __call__(self, cell: str | None) -> str | None:
        """Apply the step; nothing comes of nothing."""
        return None if cell is None else self.run(cell)

    def then(self, after: ProgramStep) -> ProgramStep:
        """Apply another step to the outcome."""
        return ProgramStep(
            f"{after.words} of {self.words}",
            lambda cell: after(self.run(cell)),
            after.sql.replace("{x}", self.sql),
            after.pandas.replace("{x}", self.pandas),
            self.cost + after.cost,
        )


WHOLE = ProgramStep("the value", lambda cell: cell, "{x}", "{x}", 0.5)


def _ordinal(number: int) -> str:
    if number < 0:
        return "last" if number == -1 else f"{_ordinal(-number - 1)} from the end"
    names = ("first", "second", "third", "fourth", "fifth", "sixth")
    return names[number] if number < len(names) else f"{number + 1}th"


def _item(parts: list[str], number: int) -> str | None:
    return parts[number] if -len(parts) <= number < len(parts) else None


def split(by: str, number: int) -> ProgramStep:
    """Take one of the parts between separators."""
    at = number + 1 if number >= 0 else number
    named = "word" if by == " " else f"part between '{by}'"
    if by == " ":

        def words(cell: str) -> str | None:
            return _item([word for word in cell.split(" ") if word] or [""], number)

        return ProgramStep(
            f"the {_ordinal(number)} {named}", words,
            f"regexp_split_to_array(trim({{x}}, ' '), ' +')[{at}]",
            f'{{x}}.str.strip(" ").str.split(" +", regex=True).str[{number}].astype("string")',
            1.5 + abs(number + (number < 0)) * 0.2,
        )  # fmt: skip

    def run(cell: str) -> str | None:
        part = _item(cell.split(by), number)
        return None if part is None else part.strip(" ")

    return ProgramStep(
        f"the {_ordinal(number)} {named}", run,
        f"trim(string_split({{x}}, {literal(by)})[{at}], ' ')",
        f'{{x}}.str.split({by!r}, regex=False).str[{number}].astype("string").str.strip(" ")',
        1.6 + abs(number + (number < 0)) * 0.2,
    )  # fmt: skip


def after(by: str) -> ProgramStep:
    """Take what follows the first separator."""

    def run(cell: str) -> str | None:
        part = _item(cell.split(by, 1), 1)
        return None if part is None else part.strip(" ")

    return ProgramStep(
        f"what follows the first '{by}'", run,
        f"CASE WHEN contains({{x}}, {literal(by)}) THEN "
        f"trim(substr({{x}}, instr({{x}}, {literal(by)}) + {len(by)}), ' ') END",
        f'{{x}}.str.split({by!r}, n=1, regex=False).str[1].astype("string").str.strip(" ")',
        1.8,
    )  # fmt: skip


def before_last(by: str) -> ProgramStep:
    """Take what precedes the last separator; all of the value if there is none."""

    def run(cell: str) -> str | None:
        return cell.rpartition(by)[0].strip(" ") if by in cell else cell.strip(" ")

    return ProgramStep(
        f"what precedes the last '{by}'", run,
        f"trim(left({{x}}, length({{x}}) - instr(reverse({{x}}), {literal(by)})), ' ')",
        f'{{x}}.str.rsplit({by!r}, n=1).str[0].astype("string").str.strip(" ")',
        1.9,
    )  # fmt: skip


def found(pattern: str, name: str, number: int) -> ProgramStep:
    """Take one of the runs of characters that a pattern finds."""
    at = number + 1 if number >= 0 else number
    compiled = re.compile(pattern)
    return ProgramStep(
        f"the {_ordinal(number)} {name}",
        lambda cell: _item(compiled.findall(cell), number),
        f"regexp_extract_all({{x}}, {literal(pattern)}, {compiled.groups})[{at}]",
        f'{{x}}.str.findall({pattern!r}).str[{number}].astype("string")',
        2.0 + abs(number + (number < 0)) * 0.2,
    )


def begin(count: int) -> ProgramStep:
    """Take the first characters."""
    dear = 0.8 if count == 1 else 2.2 + 0.2 * max(0, count - 4)
    name = "the first letter" if count == 1 else f"the first {count} characters"
    return ProgramStep(
        name, lambda cell: cell[:count], f"left({{x}}, {count})", f"{{x}}.str[:{count}]", dear
    )


def end(count: int) -> ProgramStep:
    """Take the last characters."""
    dear = 2.4 + 0.2 * max(0, count - 4)
    name = "the last letter" if count == 1 else f"the last {count} characters"
    return ProgramStep(
        name, lambda cell: cell[-count:], f"right({{x}}, {count})", f"{{x}}.str[-{count}:]", dear
    )


def middle(start: int, stop: int) -> ProgramStep:
    """Take the characters at fixed places."""
    return ProgramStep(
        f"characters {start + 1} to {stop}" if stop > start + 1 else f"character {stop}",
        lambda cell: cell[start:stop],
        f"substr({{x}}, {start + 1}, {stop - start})",
        f"{{x}}.str[{start}:{stop}]",
        3.0 + 0.3 * max(0, stop - start - 4),
    )


def replaced(pattern: str, by: str, words: str, cost: float = 1.2) -> ProgramStep:
    """Replace what a pattern finds; ``by`` may refer to its groups."""
    # In Python alone, $ also stands before a line break at the end.
    python = re.sub(r"\$$", r"\\Z", pattern)
    compiled = re.compile(python)
    return ProgramStep(
        words,
        lambda cell: compiled.sub(by, cell),
        f"regexp_replace({{x}}, {literal(pattern)}, {literal(by)}, 'g')",
        f"{{x}}.str.replace({python!r}, {by!r}, regex=True)",
        cost,
    )


def lookup(words: str, table: Mapping[str, str]) -> ProgramStep:
    """Look a text up in a table, whatever its case."""
    known = dict(table)
    keys, values = (", ".join(map(literal, side)) for side in (known.keys(), known.values()))
    return ProgramStep(
        words,
        lambda cell: known.get(cell.strip(" ").lower()),
        f"map([{keys}], [{values}])[lower(trim({{x}}, ' '))]",
        f'{{x}}.str.strip(" ").str.lower().map({known!r})',
        1.5,
    )


def joined(parts: Sequence[ProgramStep | str], cost: float) -> ProgramStep:
    """Make one step of parts and constants."""
    made = [
        ProgramStep(f"'{printable(part)}'", _constant(part), *_written(part), 0.0)
        if isinstance(part, str) else part
        for part in parts
    ]  # fmt: skip
    if len(made) == 1:
        return made[0]

    def run(cell: str) -> str | None:
        whole = ""
        for one in made:
            text = one.run(cell)
            if text is None:
                return None
            whole += text
        return whole

    return ProgramStep(
        ", then ".join(one.words for one in made),
        run,
        "(" + " || ".join(f"({one.sql})" for one in made) + ")",
        "(" + " + ".join(one.pandas for one in made) + ")",
        cost,
    )


def _constant(text: str) -> Callable[[str], str | None]:
    return lambda cell: text


def _written(text: str) -> tuple[str, str]:
    """Write a constant in SQL and in Python: a cell may hold ``{x}``, or codes of a terminal."""
    sql = literal(text).replace("{x}", "{' || 'x}")
    sql = "".join(one if one.isprintable() else f"' || chr({ord(one)}) || '" for one in sql)
    return sql, repr(text).replace("{x}", r"\x7bx}")


def padded(length: int) -> ProgramStep:
    """Put zeros in front until the text has a length."""
    return ProgramStep(
        f"the value with zeros in front to {length} characters",
        lambda cell: cell.rjust(length, "0"),
        f"CASE WHEN length({{x}}) < {length} THEN lpad({{x}}, {length}, '0') ELSE {{x}} END",
        f'{{x}}.str.pad({length}, fillchar="0")',
        1.0,
    )


_TITLES = "mr|mrs|ms|miss|dr|prof|sir|dame|gov|sen|rep|hon|rev|st|lord|lady|king|queen|president"
TITLE = replaced(rf"^(?i:{_TITLES})\.? +", "", "the value without its title", 1.0)
BRACKETED = replaced(r" *[(\[][^)\]]*[)\]]", "", "the value without what is in brackets", 1.0)
CAPITALS = replaced("[^A-ZÀ-Ý]", "", "the capital letters", 1.2)
INITIALS = replaced("([^ -])[^ -]*[ -]*", r"\1", "the initials", 1.2)
DIGITS = replaced("[^0-9]", "", "the digits", 1.2)
NO_DIGITS = replaced(" *[0-9]+ *", "", "the value without digits", 1.4)
NO_ZEROS = replaced("^0+([0-9])", r"\1", "the value without zeros in front", 0.9)
NO_TAGS = replaced("<[^>]*>", "", "the value without tags", 1.0)
NO_MIDDLE = replaced(
    rf"^([{LETTER}'-]+) +[{LETTER}]\.? +", r"\1 ", "the value without the middle initial", 1.2
)
FIRST_LAST = replaced("^([^ ]+) .* ([^ ]+)$", r"\1 \2", "the first and the last word", 1.3)
NO_SUFFIX = replaced(r"(?i:,? +(?:jr|sr|ii|iii|iv|inc|ltd|llc|co|corp)\.?)$", "",
                     "the value without Jr., Ltd or the like", 1.2)  # fmt: skip
SQUASHED = replaced(f"[^{LETTER}0-9]", "", "the letters and digits alone", 0.9)
NO_SCHEME = replaced(r"^(?:https?://)?(?:www\.)?", "", "the address without http:// and www", 1.2)


def _roman(number: int) -> str:
    signs = ((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
    text = ""
    for value, sign in signs:
        text += sign * (number // value)
        number %= value
    return text


ROMAN = lookup(
    "the Roman numeral as a number", {_roman(number): str(number) for number in range(1, 90)}
)
#: A last word that may be a Roman numeral.
_ROMAN_END = re.compile("(?:^| )[IVXL]+ *$")

_SEPARATORS = (" ", ",", ";", "-", "/", ".", "_", "@", ":", "|", "(", "[", "'", '"', " - ", ", ")
_RUNS = (
    ("[0-9]+", "number"),
    (f"[{LETTER}]+", "run of letters"),
    (f"[{LETTER}0-9]+", "run of letters and digits"),
    (r"\(([^()]*)\)", "part in brackets"),
    (r'"([^"]*)"', "part in quotation marks"),
)


def pieces(cell: str) -> list[ProgramStep]:
    """List the steps that give a part of this cell, simple ones first."""
    steps = [WHOLE]
    for one in (TITLE, BRACKETED, NO_DIGITS, NO_ZEROS, NO_TAGS, NO_MIDDLE, DIGITS, CAPITALS,
                INITIALS, NO_SCHEME, FIRST_LAST, NO_SUFFIX):  # fmt: skip
        if one(cell) not in (cell, ""):
            steps.append(one)
    for one in (TITLE, BRACKETED, split(";", 0), split(",", 0), NO_DIGITS):
        if (made := one(cell)) and made != cell and FIRST_LAST(made) != made:
            steps.append(one.then(FIRST_LAST))
    for by in _SEPARATORS:
        if by not in cell:
            continue
        count = len(re.split(" +", cell.strip(" "))) if by == " " else cell.count(by) + 1
        numbers = sorted({*range(min(count, 6)), *(-n for n in range(1, min(count, 3) + 1))})
        steps += [split(by, number) for number in numbers]
        steps.append(after(by))
        if len(by) == 1:
            steps.append(before_last(by))
    for pattern, name in _RUNS:
        count = len(re.findall(pattern, cell))
        if count and not (count == 1 and re.fullmatch(pattern, cell)):
            numbers = sorted({*range(min(count, 5)), *(-n for n in range(1, min(count, 2) + 1))})
            steps += [found(pattern, name, number) for number in numbers]
    if " " in cell and _ROMAN_END.search(cell):
        steps.append(split(" ", -1).then(ROMAN))
    return steps
