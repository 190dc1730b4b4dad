"""Write a planned join as one SELECT for the database that holds the tables.

The statement is that of `joining.sql` in the dialect of PostgreSQL, SQLite or DuckDB. How a
database writes keys as text is not guessed: it is queried for every distinct key of both sides,
the expression with the fewest errors is chosen, and the cells with errors are listed in the
statement. Rows are in the order of the left table and then of the right one; PostgreSQL has no
order for views and partitioned tables, whose rows come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from deepjoin.errors import DeepJoinError
from deepjoin.joining.keys import KeySql
from deepjoin.joining.plan import JoinPlan
from deepjoin.joining.sql import JoinSql, QuerySide, StoredValues, pair_values, stored_pairs
from deepjoin.joining.tables import MAX_VALUES, Aggregate, SideColumn, SideTable, free_name
from deepjoin.normalise.canonical import canonical
from deepjoin.normalise.cells import unique_names
from deepjoin.read.database import DatabaseSource
from deepjoin.read.database.duckdb_file import readable
from deepjoin.read.database.relation import Ask, DatabaseRelation
from deepjoin.read.sql import identifier, literal, postgres_literal

#: Name of the left table if it is not in the database.
PLACEHOLDER = identifier("your_table")
#: A statement that lists more cells than this is too long to read or to send.
MOST_SPELLINGS = 1_000

_NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "duckdb": "DuckDB"}
_SIMPLE = ("{cell}", "lower({cell})", "trim({cell})", "lower(trim({cell}))")
#: From simple to complex; ties go to the first. SQLite has no regular expressions. In PostgreSQL
#: backslashes are escaped, whatever standard_conforming_strings is where the statement runs, and
#: functions are qualified unless their arguments have exactly the types of the server's own: any
#: role may create one that fits better.
_EXPRESSIONS = {
    "sqlite": _SIMPLE,
    "postgresql": (
        *_SIMPLE,
        r"pg_catalog.regexp_replace({cell}, '[.]0+$', '')",
        r"pg_catalog.regexp_replace(lower({cell}), ' 00:00:00z?$', '')",
        r"pg_catalog.regexp_replace(lower(trim({cell})), E'\\s+', ' ', 'g')",
        r"pg_catalog.regexp_replace(lower(trim({cell})), "
        r"'^(-?(?:0|[1-9][0-9]*))(?:[.]0+|([.][0-9]*[1-9])0+)$', E'\\1\\2')",
    ),
}
_CASTS = {
    "postgresql": {"BIGINT": "bigint", "DOUBLE": "double precision", "DATE": "date"},
    "sqlite": {"BIGINT": "INTEGER", "DOUBLE": "REAL", "DATE": "TEXT"},
}
_CELLS_A_QUERY = 500
#: SQL for what is between the parts of a key of several columns, and what that is.
_SEPARATORS = {"postgresql": "chr(31)", "sqlite": "char(31)"}
SEPARATOR = chr(31)
_IS_ORDERED = (
    "SELECT relkind IN ('r', 'm') AND NOT relhassubclass FROM pg_catalog.pg_class "
    "WHERE oid = pg_catalog.to_regclass({})"
)


def database_sql(plan: JoinPlan, source: DatabaseSource, left: str = "") -> str:
    """Write a join whose right table is in a database as a SELECT to run there.

    ``left`` names the left table in the database; without it, the statement has a placeholder.
    Its rows are those of the plan; cells have the types of the database, and means may differ
    in their last digit.
    """
    dialect, join = source.database.dialect, plan.query
    if dialect not in _NAMES:
        raise DeepJoinError(
            f"The join cannot be written for {dialect}, only for {', '.join(_NAMES.values())}. "
            "Run it with deepjoin."
        )
    yours = source.relation(left) if left else None
    theirs = source.relation(join.right.source.table)
    with source.database.session() as ask:
        if dialect == "duckdb":
            statement = _for_duckdb(plan, ask, yours, theirs)
        else:
            statement = Translation(plan, dialect, ask).statement(yours, theirs)
    lines = [f"{join.left.source.table} joined with {join.right.source.table}: {_NAMES[dialect]}"]
    if not left:
        lines.append(f"Put the name of your table, its cells as text, in place of {PLACEHOLDER}.")
    # A name may hold a line break, which would end the comment.
    return "".join(f"-- {' '.join(line.split())}\n" for line in lines) + statement


def _for_duckdb(
    plan: JoinPlan, ask: Ask, yours: DatabaseRelation | None, theirs: DatabaseRelation
) -> str:
    """Write the plan's own statement, which is DuckDB's, over the tables of the file."""

    def over(side: QuerySide, relation: DatabaseRelation | None) -> QuerySide:
        shows = PLACEHOLDER
        if relation is not None:
            described = ask(f"DESCRIBE SELECT * FROM {relation.sql}")
            shows = f"({readable(described, relation)})"
        return replace(side, source=replace(side.source, shows=shows))

    join = plan.query
    join = replace(join, left=over(join.left, yours), right=over(join.right, theirs))
    _check_pairs(plan)
    return join.joined(typed=True, writer=StoredValues(plan.session))


def _check_pairs(plan: JoinPlan) -> None:
    count = plan.session.count(plan.query.pairs) if plan.query.pairs else 0
    if count > MOST_SPELLINGS:
        raise _refusal(
            f"it goes through {count:,} pairs of values, and at most {MOST_SPELLINGS:,} can be "
            "listed"
        )


@dataclass
class DatabaseKeys:
    """Key cells of a side: the text that a database makes by each expression, and the true key."""

    spelled: dict[str, tuple[str, ...]]
    truth: dict[str, str]
    chosen: int = 0

    def choose(self, matching: set[str]) -> None:
        """Choose the expression that is wrong for the fewest matching cells."""
        # Other cells may come out wrong, unless they make a match; `exceptions` lists those.
        cells = [cell for cell, key in self.truth.items() if key and key in matching]
        count = len(next(iter(self.spelled.values()), ()))
        wrong = [
            sum(self.spelled[cell][at] != self.truth[cell] for cell in cells) for at in range(count)
        ]
        self.chosen = wrong.index(min(wrong)) if wrong else 0

    def made(self) -> set[str]:
        """Return the keys that the chosen expression makes."""
        return {texts[self.chosen] for texts in self.spelled.values()}

    def exceptions(self, keys: set[str], made: set[str]) -> list[tuple[str, str]]:
        """List the cells with a wrong expression that could miss or make a match."""
        return sorted(
            (cell, self.truth[cell])
            for cell, texts in self.spelled.items()
            if texts[self.chosen] != self.truth[cell]
            and (self.truth[cell] in keys or texts[self.chosen] in made)
        )


@dataclass
class Translation:
    """One plan in the dialect of PostgreSQL or SQLite."""

    plan: JoinPlan
    dialect: str
    ask: Ask
    spellings: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def statement(self, yours: DatabaseRelation | None, theirs: DatabaseRelation) -> str:
        """Write the statement."""
        join = self.plan.query
        _check_pairs(self.plan)
        ordered = {one.function for one in join.aggregates} & {"first", "list"}
        if ordered and self.dialect == "sqlite":
            raise _refusal(
                f"SQLite has no aggregate for {' or '.join(sorted(ordered))} in the order of rows",
                '`many="first"`',
            )
        floats = ("FLOAT", "DOUBLE")
        if any(one.function == "list" and one.column.kind in floats for one in join.aggregates):
            raise _refusal("PostgreSQL writes floating point numbers differently", '`many="first"`')
        if "first" in (join.many, *ordered) and not self._is_ordered(theirs):
            raise _refusal(
                f"{theirs.name} has no order, so none of its rows is the first",
                '`many="aggregate"`',
            )
        left, right = self._side(join.left, yours), self._side(join.right, theirs)
        if join.left.key.as_text:
            left, right = self._spelled(left, right, yours is not None)
        parts = vars(join) | {"left": left, "right": right}
        return DatabaseJoin(**parts, dialect=self.dialect).joined(typed=False, writer=self)

    def spelling(self, stored: str) -> list[tuple[str, str]]:
        """Return the cells for which the expression of the database is wrong."""
        return self.spellings[stored]

    def pairs(self, stored: str, columns: Sequence[str]) -> str:
        """List the pairs of a semantic join; no table of a database can hold a NUL."""
        pairs = stored_pairs(self.plan.session, stored, columns)
        return pair_values([pair for pair in pairs if "\0" not in pair[0]], self.literal)

    def literal(self, text: str) -> str:
        """Quote a string in the dialect of the database."""
        return postgres_literal(text) if self.dialect == "postgresql" else literal(text)

    def _is_ordered(self, relation: DatabaseRelation) -> bool:
        if self.dialect == "sqlite":
            return True
        answer = self.ask(_IS_ORDERED.format(self.literal(relation.sql)))
        return bool(answer and answer[0][0])

    def _side(self, side: QuerySide, relation: DatabaseRelation | None) -> QuerySide:
        """Read a side with the names and types of the plan, and add its key as text."""
        source = self._with_own_names(side.source, relation)
        keys = list(source.keys)
        table = relation.sql if relation else PLACEHOLDER
        mixed = self._mixed(relation, source) if relation and self.dialect == "sqlite" else set()
        cells = []
        for column in source.columns:
            cell, name = identifier(column.original), identifier(column.name)
            if column.cast:
                cast = _CASTS[self.dialect][column.cast]
                cells.append(f"CAST(nullif(trim({cell}), '') AS {cast}) AS {name}")
            elif column.kind == "VARCHAR" and (
                self.dialect == "postgresql" or column.original in mixed
            ):
                cells.append(f"CAST({cell} AS text) AS {name}")
            else:
                cells.append(cell if cell == name else f"{cell} AS {name}")
        if side.key.as_text:
            both = (*self.plan.query.left.source.columns, *self.plan.query.right.source.columns)
            taken = {column.name.lower() for column in both}
            for number, key in enumerate(keys):
                added = free_name("_text", taken)
                taken.add(added.lower())
                text = _key_text(self.dialect, key.kind if relation else "VARCHAR", key.original)
                cells.append(f"{text} AS {identifier(added)}")
                keys[number] = SideColumn(added, added, "VARCHAR")
        postgres = relation is not None and self.dialect == "postgresql"
        # row_number() without an order follows the scan, which PostgreSQL may start anywhere.
        order = " ORDER BY ctid" if postgres and relation and self._is_ordered(relation) else ""
        listed = ",\n    ".join(cells)
        shows = f"(SELECT\n    {listed}\n    FROM {table}{order}) AS {side.table}_rows"
        read = replace(source, shows=shows, key=keys[0], more=tuple(keys[1:]))
        return replace(side, source=read, separator=_SEPARATORS[self.dialect])

    def _with_own_names(self, source: SideTable, relation: DatabaseRelation | None) -> SideTable:
        """Name the columns as the database does; we read blank names of SQLite under others."""
        if relation is None or self.dialect != "sqlite":
            return source
        sql = f"SELECT name FROM pragma_table_info({literal(relation.table)})"
        names = [name for (name,) in self.ask(sql)]
        own = dict(zip(unique_names(names), names, strict=True))

        def named(column: SideColumn) -> SideColumn:
            return replace(column, original=own.get(column.original, column.original))

        columns = tuple(map(named, source.columns))
        more = tuple(map(named, source.more))
        return replace(source, columns=columns, key=named(source.key), more=more)

    def _mixed(self, relation: DatabaseRelation, source: SideTable) -> set[str]:
        """Find the columns of SQLite that hold text and other types."""
        mixed = set()
        for column in source.columns:
            if column.kind != "VARCHAR":
                continue
            cell = f"{relation.sql}.{identifier(column.original)}"
            kinds = {
                row[0] for row in self.ask(f"SELECT DISTINCT typeof({cell}) FROM {relation.sql}")
            }
            if "real" in kinds and len(kinds - {"null"}) > 1:
                raise _refusal(
                    f"column '{column.original}' of {relation.name} mixes text and fractions, "
                    "which SQLite writes differently"
                )
            if kinds - {"text", "null"}:
                mixed.add(column.original)
        return mixed

    def _spelled(
        self, left: QuerySide, right: QuerySide, in_database: bool
    ) -> tuple[QuerySide, QuerySide]:
        """Give both sides the SQL of their keys, and the cells for which it is wrong."""
        parts = list(zip(left.source.parts(), right.source.parts(), strict=True))
        made_of = []
        for number, (my_part, their_part) in enumerate(parts, 1):
            part = f"_{number}" if len(parts) > 1 else ""
            yours = self._keys(my_part if in_database else None, f"left_keys{part}", left)
            theirs = self._keys(their_part, f"right_keys{part}", right)
            if self.plan.query.pairs:
                # Keys of pairs are compared with the pairs, not with the keys of the other side.
                mine, other = self._paired(number - 1)
            else:
                mine, other = set(theirs.truth.values()) - {""}, set(yours.truth.values()) - {""}
            yours.choose(mine)
            theirs.choose(other)
            made = (set(), set()) if self.plan.query.pairs else (theirs.made(), yours.made())
            made_of.append(
                (
                    self._key(left, part, yours, yours.exceptions(mine, mine | made[0])),
                    self._key(right, part, theirs, theirs.exceptions(other, other | made[1])),
                )
            )
        (my_key, *mores), (their_key, *others) = zip(*made_of, strict=True)
        return (
            replace(left, key=my_key, more=tuple(mores)),
            replace(right, key=their_key, more=tuple(others)),
        )

    def _paired(self, part: int) -> tuple[set[str], set[str]]:
        """Return the keys of both sides that are in pairs; of several columns, those of a part."""
        assert self.plan.query.pairs is not None
        pairs = stored_pairs(self.plan.session, self.plan.query.pairs, ("yours", "theirs"))
        mine, theirs = (
            {pair[side].split(SEPARATOR)[part] for pair in pairs}
            if self.plan.query.left.more
            else {pair[side] for pair in pairs}
            for side in (0, 1)
        )
        return mine, theirs

    def _key(
        self, side: QuerySide, part: str, keys: DatabaseKeys, exceptions: list[tuple[str, str]]
    ) -> KeySql:
        if len(exceptions) > MOST_SPELLINGS:
            raise _refusal(
                f"{len(exceptions):,} keys of {side.source.table} have spellings that "
                f"{_NAMES[self.dialect]} cannot bring together"
            )
        stored = f"{side.table}{part}"
        self.spellings[stored] = exceptions
        expression = _EXPRESSIONS[self.dialect][keys.chosen]
        return KeySql(expression, stored if exceptions else None, drops_blanks=True)

    def _keys(self, source: SideTable | None, stored: str, side: QuerySide) -> DatabaseKeys:
        spelled: dict[str, tuple[str, ...]] = {}
        for reads, name in self._cells(source, stored):
            texts = [
                expression.replace("{cell}", name) for expression in _EXPRESSIONS[self.dialect]
            ]
            distinct = f"SELECT DISTINCT {name} FROM {reads} WHERE {name} IS NOT NULL"
            sql = f"SELECT {name}, {', '.join(texts)} FROM ({distinct}) AS cells"
            spelled |= {cell: tuple(made) for cell, *made in self.ask(sql)}
        truth = {cell: canonical(cell, self.plan.profile) for cell in spelled}
        known = self.plan.session.run(f"SELECT DISTINCT key FROM {stored} WHERE key IS NOT NULL")
        # The database may spell a type differently than DuckDB read it; such a join would differ.
        different = {key for (key,) in known} ^ (set(truth.values()) - {""})
        if source is not None and different:
            raise _refusal(
                f"{_NAMES[self.dialect]} writes {len(different):,} keys of {side.source.table} "
                f"differently than deepjoin, or they have changed ({min(different)!r:.60})"
            )
        return DatabaseKeys(spelled, truth)

    def _cells(self, source: SideTable | None, stored: str) -> Iterator[tuple[str, str]]:
        """Yield tables to query and their column: the side itself, or its cells as values."""
        if source is not None:
            yield source.shows, identifier(source.key.name)
            return
        rows = self.plan.session.run(f"SELECT DISTINCT cell FROM {stored} ORDER BY cell")
        cells = [cell for (cell,) in rows if "\0" not in cell]
        for start in range(0, len(cells), _CELLS_A_QUERY):
            some = cells[start : start + _CELLS_A_QUERY]
            values = " UNION ALL SELECT ".join(self.literal(cell) for cell in some[1:])
            more = f" UNION ALL SELECT {values}" if values else ""
            yield f"(SELECT {self.literal(some[0])} AS cell{more}) AS cells", "cell"


def _refusal(reason: str, instead: str = "") -> DeepJoinError:
    hint = f"Use {instead}, or run the join with deepjoin." if instead else "Run it with deepjoin."
    return DeepJoinError(f"The join cannot be written as SQL of the database: {reason}. {hint}")


def _key_text(dialect: str, kind: str, name: str) -> str:
    """Write SQL for the text of a key that does not depend on settings of the session."""
    cell = identifier(name)
    if dialect == "sqlite":
        whole = f"CAST({cell} AS INTEGER)"
        if kind == "DOUBLE":
            cell = f"CASE WHEN {cell} = {whole} THEN {whole} ELSE {cell} END"
        return f"CAST({cell} AS TEXT)"
    if kind == "DATE":
        return f"pg_catalog.to_json({cell}) #>> '{{}}'"
    if kind == "TIMESTAMP":
        return f"replace(pg_catalog.to_json({cell}) #>> '{{}}', 'T', ' ')"
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"replace(pg_catalog.to_json({cell} AT TIME ZONE 'UTC') #>> '{{}}', 'T', ' ') || 'Z'"
    return f"CAST({cell} AS text)"


@dataclass(frozen=True)
class DatabaseJoin(JoinSql):
    """A join whose aggregates are written for PostgreSQL or SQLite, over cells with their types."""

    dialect: str = "postgresql"

    def aggregated(self) -> list[tuple[str, str, str]]:
        """List the aggregates: name, SQL of the aggregate, SQL of the cell of the result."""
        found = []
        for one in self.aggregates:
            name = identifier(one.name)
            if one.function == "list":
                found.append((name, *_listed_values(one)))
            else:
                found.append((name, self._grouped(one), name))
        return found

    def _grouped(self, one: Aggregate) -> str:
        cell, kind = identifier(one.column.name), one.column.cast or one.column.kind
        postgres = self.dialect == "postgresql"
        schema = "pg_catalog." if postgres else ""
        if one.function == "first":
            return f"(pg_catalog.array_agg({cell} ORDER BY {self.row_order}))[1]"
        if kind == "VARCHAR":
            cell = f"nullif(trim({cell}), '')"
        if one.function == "count":
            return f"{schema}count({cell})"
        if one.function == "mean":
            return f"CAST({schema}avg({cell}) AS {'double precision' if postgres else 'REAL'})"
        if one.function == "sum":
            return (
                f"CAST({schema}sum({cell}) AS BIGINT)" if "INT" in kind else f"{schema}sum({cell})"
            )
        if postgres and kind == "BOOLEAN":
            return f"{schema}{'bool_and' if one.function == 'min' else 'bool_or'}({cell})"
        # DuckDB compares text by its bytes, PostgreSQL by the rules of a language.
        by_bytes = ' COLLATE "C"' if postgres and kind == "VARCHAR" else ""
        return f"{schema}{one.function}({cell}{by_bytes})"


def _listed_values(one: Aggregate) -> tuple[str, str]:
    """Write PostgreSQL for the distinct values of a column, and for the cell that lists them."""
    name, cell = identifier(one.name), identifier(one.column.name)
    kind = one.column.cast or one.column.kind
    text = _key_text("postgresql", kind, one.column.name)
    if kind == "TIMESTAMP WITH TIME ZONE":
        text = (
            f"replace(pg_catalog.to_json({cell} AT TIME ZONE 'UTC') #>> '{{}}', 'T', ' ') || '+00'"
        )
    sorted_text = f'trim({text}) COLLATE "C"'
    grouped = (
        f"pg_catalog.array_agg(DISTINCT {sorted_text} ORDER BY {sorted_text}) "
        f"FILTER (WHERE trim({text}) <> '')"
    )
    more = f"'; and ' || (pg_catalog.cardinality({name}) - {MAX_VALUES}) || ' more'"
    result = (
        f"CASE WHEN pg_catalog.cardinality({name}) > {MAX_VALUES} "
        f"THEN pg_catalog.array_to_string({name}[1:{MAX_VALUES}], '; ') || {more}\n"
        f"    ELSE pg_catalog.array_to_string({name}, '; ') END"
    )
    return grouped, result
