"""What users see: tables, columns, hits, joins and the join graph, each declared once.

JSON (`to_json`) and its schema (`json_schema`) follow from the declarations below, so the command
line, the HTTP service, the MCP tools and the web page cannot disagree about a field. The string
under a field is its description in the schema.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

from deepjoin.lazy import cached_property
from deepjoin.optional import as_frame
from deepjoin.progress import check_stop

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """A column: its cells in table order, duplicates kept, and the words around it.

    ``None`` and blank cells are missing; they are kept here and never match.

    >>> Column(["Apple", "GE", "Apple"], name="Company").name
    'Company'
    """

    cells: Sequence[str | None]
    name: str = ""
    table: str | None = None
    title: str = ""
    context: str = ""
    column_id: str | None = None


@dataclass
class Reading:
    """One pass over a table: batches in row order, and notes on what was repaired on the way.

    A batch may have columns that earlier ones did not have (JSON lines do); within a batch
    every column has one cell per row. ``notes`` is complete once the batches are exhausted.
    ``memory`` is how many bytes reading takes beside a few batches, where that is much.
    """

    batches: Iterator[pa.RecordBatch]
    notes: list[str] = field(default_factory=list)
    memory: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            check_stop()
            yield batch


@dataclass(frozen=True)
class Table:
    """A table that can be read from its first row as often as needed, without being held.

    ``name`` is unique in a lake: the path relative to the source, ``file#sheet``, or the
    name the user gave. ``open`` raises `UnreadableTable`, at once or while being read.
    """

    name: str
    open: Callable[[], Reading]
    title: str = ""
    context: str = ""


@dataclass(frozen=True)
class AsJson:
    """How a field appears in JSON where its name, value or type differ from Python's."""

    key: str = ""
    #: The attribute that has the value, if it is not the field itself.
    value: str = ""
    type: Any = None
    #: What becomes of an empty value: it is kept, becomes null, or the key is left out.
    empty: Literal["kept", "null", "left out"] = "kept"


# Narrower in the schema than in Python, where these are plain strings.
JoinKind = Annotated[str, AsJson(type=Literal["any", "equi", "semantic"])]
ColumnType = Annotated[str, AsJson(type=Literal["text", "integer", "decimal", "date"])]
DecidedBy = Annotated[str, AsJson(type=Literal["accepted", "rejected"], empty="left out")]
GenericKey = Literal["run", "year", "flag"]
GenericMatch = Literal["run", "year", "flag", "range"]
Row = dict[str, str | None]


class Answer:
    """Base of the declarations that know their JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the command line and the service."""
        found: dict[str, Any] = to_json(self)
        return found


class Match(NamedTuple):
    """A cell of the query and the cell of the target it matches, as their tables spell them."""

    query: str
    target: str
    similarity: float = 1.0
    how: Annotated[str, AsJson(type=Literal["equal", "similar", "program", "bridge"])] = "equal"


class NearMatch(NamedTuple):
    """A cell of the left column and one of the right that may be meant, and the chance of it."""

    query: str
    target: str
    chance: float


@dataclass(frozen=True)
class Program:
    """A rule that rewrites cells so that they are found in the other column.

    ``sql`` is a DuckDB expression over ``cell``, ``pandas`` one over the Series ``cells``; a rule
    that treats both sides differently is a condition over ``left_cell`` and ``right_cell``.
    """

    text: str
    """The rule in words."""
    sql: str
    pandas: str
    covers: int
    """Values of the left column that get their match from it."""
    side: str = "left"
    """Whose cells are rewritten: "left", "right" or "both"."""
    exceptions: int = 0
    """Values of the left column without an equal one that it does not explain."""
    merged: int = 0
    """How many left values beyond the first share the match of another one."""

    @property
    def covering(self) -> str:
        """How many values it covers, and how many of them share a match, in words."""
        words = f"{self.covers:,} {'value' if self.covers == 1 else 'values'}"
        if not self.merged:
            return words
        share = "shares" if self.merged == 1 else "share"
        return f"{words}, {self.merged:,} of which {share} the match of another one"


class EquiEvidence(NamedTuple):
    """Evidence for the equi-join of two columns."""

    joinability: float
    """Share of the query's distinct values found in the target."""
    reverse: float
    """Share of the target's distinct values found in the query."""
    matched: int
    join_size: int
    """Rows of the inner join."""
    multiset: float
    """Rows of the inner join over |Q| times |X|, duplicates counted."""


class SemanticEvidence(NamedTuple):
    """Evidence for the semantic join of two columns; equal cells match as well."""

    joinability: float
    """Share of the query's distinct values with a match in the target."""
    reverse: float
    """Share of the target's distinct values with a match in the query."""
    matched: int
    tau: float
    """The cosine from which two cells match."""


@dataclass(frozen=True)
class Brings:
    """What joining a hit would add: the target's other columns and its first rows."""

    columns: tuple[str, ...]
    sample: tuple[Row, ...]


@dataclass(frozen=True)
class BetterKey:
    """A longer key that is unique in a hit's table, where its column alone multiplies rows."""

    on: tuple[str, ...]
    """Columns of the query's table, that of the query first."""
    columns: tuple[str, ...]
    """The columns of the hit's table that they join with."""
    rows: int
    """Rows of the inner join on this key."""
    instead_of: int
    """Rows of the inner join on the hit's column alone."""

    def __str__(self) -> str:
        more = " and ".join(f"`{name}`" for name in self.on[1:])
        return f"with {more}: {self.rows:,} rows instead of {self.instead_of:,}"


@dataclass(frozen=True)
class Hit(Answer):
    """A column of the lake that joins with the query, and the evidence for it."""

    rank: int
    table: str
    column: str
    column_id: str
    type: ColumnType
    generic: Annotated[str, AsJson(type=GenericMatch | None, empty="null")]
    """Why the match says little: a run (1..n), years or flags, or whole numbers of a range that the
    column holds most of; empty for an ordinary match."""
    join: JoinKind
    score: float
    """What the method ranks by; for most methods the joinability."""
    joinability: float
    """The joinability for the kind of join that was requested; for any, the share of the query's
    values that the column is expected to have."""
    equi: EquiEvidence
    semantic: SemanticEvidence | None
    """None where cells are only compared as strings."""
    query_size: int
    target_size: int
    cardinality: str
    matches: tuple[Match, ...]
    unmatched: tuple[str, ...]
    found_by: tuple[str, ...]
    # A callable, because a wide table has much to bring and most callers never look at it.
    bring: Annotated[Callable[[], Brings], AsJson("brings", "brings", Brings)] = field(
        repr=False, compare=False
    )
    also: Annotated[tuple[Hit, ...], AsJson(empty="left out")] = ()
    """Other columns of the same table that match too, when hits are grouped by table."""
    # Without a default in the class, which would hide that it is still to be measured.
    probability: float = field(default_factory=float)
    """The chance that a person who knows both tables would make this join; orders joins of kind
    any."""
    columns: Annotated[tuple[str, ...], AsJson(value="key", empty="left out")] = ()
    """The columns that a key of several columns joins with, in the order of the query's; left out
    of the JSON of a hit for one column."""
    better: Annotated[BetterKey | None, AsJson(type=BetterKey, empty="left out")] = None
    """A longer key that would not multiply rows, if the query's table has one."""
    decided: DecidedBy = ""
    """What a person said of this join, which makes the probability 1 or 0; left out if nobody
    did."""
    programs: Annotated[tuple[Program, ...], AsJson(empty="left out")] = ()
    """Rules that rewrite cells of the query, or of the column, so that they match."""

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", (self.column,))

    if not TYPE_CHECKING:  # or every misspelt attribute would pass

        def __getattr__(self, name: str) -> Any:
            # Python comes here only for what is missing; another thread may have measured it since.
            own = vars(self)
            if "_later" in own and not name.startswith("_"):
                own.update(own["_later"](name))
            if name not in own:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            return own[name]

    @property
    def multiplies(self) -> bool:
        """Whether a row of the query may match several rows of the target."""
        return self.cardinality[-1:] in ("n", "m")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of a key of several columns; nothing for one column."""
        return self.columns if len(self.columns) > 1 else ()

    @property
    def matched(self) -> int:
        """How many of the query's distinct values have a match, equal or similar."""
        return self.equi.matched if self.semantic is None else self.semantic.matched

    @property
    def coverage(self) -> float:
        """Share of the query's distinct values that have a match, equal or similar.

        For joins of kind any `joinability` differs: there every value counts by the chance that the
        column has it.
        """
        return self.equi.joinability if self.semantic is None else self.semantic.joinability

    @property
    def reverse(self) -> float:
        """Share of the target's distinct values that have a match in the query."""
        return self.equi.reverse if self.semantic is None else self.semantic.reverse

    @cached_property
    def brings(self) -> Brings:
        """What the join would add; read from the index on first use."""
        return self.bring()

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import hit_html

        return hit_html(self)


def hit_to_measure(known: Mapping[str, Any], later: Callable[[str], Mapping[str, Any]]) -> Hit:
    """Make a hit of what is known; ``later`` measures other fields when one is first read."""
    hit = object.__new__(Hit)
    vars(hit).update(known, columns=(known["column"],), _later=later)
    return hit


class QuerySummary(TypedDict):
    """The query as it was understood: its names, its cells and its distinct values."""

    table: str | None
    column: str
    columns: Annotated[list[str], AsJson(empty="left out")]
    """The columns of a key of several columns; left out for one column."""
    cells: int
    size: int


@dataclass(frozen=True)
class Partial:
    """How far a search had come when it gave an answer that is not complete."""

    text: str
    """What was looked up and what was not, in one line."""
    done: int
    total: int
    """Values, or columns when all columns of a table are searched."""


@dataclass(frozen=True)
class Results(Answer, Sequence[Hit]):
    """The hits of one query, best first."""

    query: Annotated[dict[str, Any], AsJson(type=QuerySummary)]
    hits: tuple[Hit, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    partial: Annotated[Partial | None, AsJson(type=Partial, empty="left out")] = None
    """What is missing in an answer that came before the search was complete."""
    others: Annotated[tuple[Results, ...], AsJson(empty="left out")] = ()
    """The other columns of a table of yours, best key first, when all were searched."""
    unlikely: Annotated[tuple[Hit, ...], AsJson(empty="left out")] = ()
    """The further hits, whose probability is so low that a person would hardly make the join."""

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, i: int) -> Hit: ...
    @overload
    def __getitem__(self, i: slice) -> Results: ...
    def __getitem__(self, i: int | slice) -> Hit | Results:
        return replace(self, hits=self.hits[i]) if isinstance(i, slice) else self.hits[i]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def to_arrow(self) -> pa.Table:
        """Return the hits as an Arrow table, one row per hit, evidence in its own columns."""
        import pyarrow as pa

        kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in FLAT.items()])
        return pa.Table.from_pylist([flat_row(hit) for hit in self.hits], schema)

    def to_pandas(self) -> Any:
        """Return the hits as a pandas data frame."""
        return as_frame(self.to_arrow(), "pandas")

    def to_polars(self) -> Any:
        """Return the hits as a polars data frame."""
        return as_frame(self.to_arrow(), "polars")

    def __repr__(self) -> str:
        from deepjoin.show.text import Screen, render_table

        return render_table(self, Screen.plain(sys.stdout))

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import results_html

        return results_html(self)


@dataclass(frozen=True, repr=False)
class Matches(Answer, Sequence[Match]):
    """The pairs of values that match between two columns, in the order of the left one.

    ``precision`` is the estimated share of the pairs that are right, None if there are no pairs.
    """

    matches: tuple[Match, ...]
    programs: tuple[Program, ...] = ()
    """Rules that found some of the pairs, the one that covers most values first."""
    precision: float | None = None
    near_misses: tuple[NearMatch, ...] = ()
    """Values of the left column without a match and what they may mean, likeliest first."""
    ties: tuple[NearMatch, ...] = ()
    """Other values of the right column that a matched value may mean as well."""
    unmatched: tuple[str, ...] = ()
    sizes: tuple[int, int] = (0, 0)
    """Distinct values of the left and of the right column."""

    @property
    def program(self) -> Program | None:
        """The rule that covers most values, if one was found."""
        return self.programs[0] if self.programs else None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The cells that match, as pairs."""
        return [(one.query, one.target) for one in self.matches]

    def __len__(self) -> int:
        return len(self.matches)

    @overload
    def __getitem__(self, i: int) -> Match: ...
    @overload
    def __getitem__(self, i: slice) -> Matches: ...
    def __getitem__(self, i: int | slice) -> Match | Matches:
        return replace(self, matches=self.matches[i]) if isinstance(i, slice) else self.matches[i]

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches)

    def to_arrow(self) -> pa.Table:
        """Return the pairs as an Arrow table: query, target, similarity, how."""
        import pyarrow as pa

        kinds = (pa.string(), pa.string(), pa.float64(), pa.string())
        schema = pa.schema(list(zip(Match._fields, kinds, strict=True)))
        return pa.Table.from_pylist([one._asdict() for one in self.matches], schema)

    def to_pandas(self) -> Any:
        """Return the pairs as a pandas data frame."""
        return as_frame(self.to_arrow(), "pandas")

    def to_polars(self) -> Any:
        """Return the pairs as a polars data frame."""
        return as_frame(self.to_arrow(), "polars")

    def __repr__(self) -> str:
        from deepjoin.show.text import Screen, render_matches

        return render_matches(self, Screen.plain(sys.stdout))

    def _repr_html_(self) -> str:
        from deepjoin.show.cards import matches_html

        return matches_html(self)


@dataclass(frozen=True)
class Bridge(Answer):
    """A table in which two keys meet that have nothing in common."""

    table: str
    left_column: str
    """The column that holds values of the left key."""
    right_column: str
    """The column of the same rows that holds values of the right key."""
    coverage: float
    """Share of the left key's distinct values that reach a value of the right key."""
    left_coverage: float
    """Share of the left key's distinct values that the table holds."""
    right_coverage: float
    """Share of the right key's distinct values that are reached."""
    ambiguous: int
    """Left values that reach several right ones."""
    matches: tuple[Match, ...]
    sql: str
    """Both joins, in DuckDB's SQL; the table is named as in the lake."""


@dataclass(frozen=True)
class Bridges(Answer, Sequence[Bridge]):
    """The tables that lead from one key to another, those that lead most values first."""

    bridges: tuple[Bridge, ...]
    sizes: tuple[int, int] = (0, 0)
    """Distinct values of the left and of the right key."""

    def __len__(self) -> int:
        return len(self.bridges)

    @overload
    def __getitem__(self, i: int) -> Bridge: ...
    @overload
    def __getitem__(self, i: slice) -> Bridges: ...
    def __getitem__(self, i: int | slice) -> Bridge | Bridges:
        return replace(self, bridges=self.bridges[i]) if isinstance(i, slice) else self.bridges[i]

    def __iter__(self) -> Iterator[Bridge]:
        return iter(self.bridges)

    def __repr__(self) -> str:
        from deepjoin.show.text import Screen, render_bridges

        return render_bridges(self, Screen.plain(sys.stdout))


#: The fields of a flat row and their types, in order.
FLAT: dict[str, type] = {
    **{"rank": int, "table": str, "column": str, "column_id": str, "type": str, "generic": str},
    **{"join": str, "score": float, "joinability": float, "probability": float},
    **{"query_size": int, "target_size": int},
    **{"cardinality": str, "reverse": float, "matched": int, "join_size": int, "multiset": float},
    **{"equi_joinability": float, "semantic_joinability": float, "found_by": str},
    "columns": str,
}


def flat_row(hit: Hit) -> dict[str, Any]:
    """Flatten a hit to one level, for CSV and Arrow."""
    return {name: getattr(hit, name, None) for name in FLAT} | {
        "generic": hit.generic or None,
        "join_size": hit.equi.join_size,
        "multiset": hit.equi.multiset,
        "equi_joinability": hit.equi.joinability,
        "semantic_joinability": None if hit.semantic is None else hit.semantic.joinability,
        "found_by": ",".join(hit.found_by),
        # A list as JSON writes it, since a name may have a comma.
        "columns": json.dumps(hit.key, ensure_ascii=False) if hit.key else None,
    }


@dataclass(frozen=True)
class EnrichStep(Answer):
    """One join of an enrichment, and what it adds."""

    table: str
    column: str
    """Its key column, or several with commas between."""
    via: str
    """The column of the enriched table that it is joined on, or several in the same order."""
    cardinality: str
    coverage: float
    """Share of your rows that have a match."""
    probability: float
    """The chance that the join makes sense."""
    columns: tuple[str, ...]
    """The columns it adds; empty where it only leads to another table."""
    gain: float | None
    """How much the score rises with these columns, after those of the steps before."""
    sql: str
    parent: int = -1
    """Number of the step that brings ``via``, from 0; -1 for your own table."""
    how: str = "equal"
    """"equal" or "similar" values, "as-of" for the nearest earlier, "range" for the one around."""


@dataclass(frozen=True)
class RejectedJoin(Answer):
    """A join or a column that an enrichment did not use."""

    table: str
    column: str
    via: str
    reason: str


@dataclass(frozen=True)
class Offer(Answer):
    """A column that the lake could add to a table."""

    column: str
    table: str
    via: str
    """The column of yours that leads to it."""
    key: str
    """The key column of the table."""
    coverage: float
    """Share of your rows that would get a value."""
    probability: float
    """The chance that the join makes sense."""
    novelty: float
    """1 where nothing of yours ranks rows alike, 0 where your table has the same."""
    title: str = ""
    """The title of the table."""
    examples: tuple[str, ...] = ()
    """Some of its values."""

    @property
    def worth(self) -> float:
        """What offers are ordered by."""
        return self.coverage * self.probability * self.novelty


@dataclass(frozen=True)
class SearchMethod:
    """A search method that an index can answer with."""

    name: str
    joins: list[JoinKind]
    says: str
    """What it does, in one line."""


@dataclass(frozen=True)
class TableSummary:
    """A table in a list."""

    name: str
    title: str
    rows: int
    columns: int
    names: tuple[str, ...]
    """Names of its first columns."""


@dataclass(frozen=True)
class ColumnSummary:
    """An indexed column in a list."""

    table: str
    column: str
    type: ColumnType
    distinct: int


@dataclass(frozen=True)
class ValueHolder:
    """A column that holds a value, and in how many rows."""

    table: str
    column: str
    rows: int


@dataclass(frozen=True)
class ColumnDescription:
    """A column of a table: its contents, and how good a join key it is."""

    name: str
    type: ColumnType
    distinct: int
    filled: float
    """Share of the rows that have a cell."""
    indexed: bool
    left_out: str
    """Why it is not in the index; empty if it is."""
    generic: Annotated[str, AsJson(type=GenericKey | Literal[""])]
    """Why the key says little: a run (1..n), a year or a flag; empty for an ordinary key."""
    samples: Sequence[str]
    key: float
    """How good a join key it is, from 0 to 1."""


@dataclass(frozen=True)
class TableDescription(Answer):
    """A table with its columns, best keys and first rows."""

    name: str
    title: str
    context: str
    rows: int
    source: str
    notes: Sequence[str]
    """What was repaired when the table was read."""
    columns: Sequence[ColumnDescription]
    best_keys: Sequence[str]
    """Names of the columns to search with, best first."""
    sample: Sequence[Row]


@dataclass(frozen=True)
class UploadDescription(TableDescription):
    """An uploaded table and the token that stands for it in later requests."""

    upload: str
    expires_in: int
    """Seconds until the service deletes the upload."""


@dataclass(frozen=True)
class SeveralMatches:
    """A value of the left table with several matching rows, or several values it may mean."""

    query: str
    """The value, as the left table spells it."""
    left_rows: int
    """Rows of the left table that have it."""
    targets: tuple[str, ...]
    """The value of the right table that it matches, then those that are nearly as similar."""
    target_rows: int
    """Rows of the right table that it matches."""
    similarity: float
    ambiguous: bool
    """Whether there is more than one target."""


@dataclass(frozen=True)
class JoinFacts(Answer):
    """Exact numbers of a join, known before it runs.

    Keys are distinct canonical strings; blank ones do not count.
    """

    left_rows: int
    right_rows: int
    left_keys: int
    matched_keys: int
    """Keys of the left table with a match that is not ambiguous."""
    matched_left_rows: int
    """Rows of the left table with such a key."""
    result_rows: int
    cardinality: str
    """1:1, 1:n, n:1 or n:m, over the keys that match."""
    max_fan_out: int
    """The most rows that one matched key has on the right."""
    renamed: Mapping[str, str]
    """Columns of the right table that were renamed, with their new names."""
    equal_keys: int = 0
    """Keys of the left table that have an equal key on the right."""
    join: JoinKind = "equi"
    tau: float | None = None
    """The cosine from which keys match; None for an equi-join."""
    matching: Annotated[str | None, AsJson(type=Literal["best", "one-to-one", "all"] | None)] = None
    """Which matches of a key count; None for an equi-join."""
    similarity: str | None = None
    """The column of the result that has the similarity of the two keys, if any."""
    ambiguous_keys: int = 0
    """Keys of the left table whose match has alternatives: keys that are nearly as similar."""
    ambiguous_left_rows: int = 0
    """Rows of the left table with such a key; the most similar match is joined."""
    alternatives: str | None = None
    """The column of the result that lists the alternatives, if any."""
    several_left_rows: int = 0
    """Rows of the left table that match several rows of the right one."""
    several: tuple[SeveralMatches, ...] = ()
    """Examples of ambiguous keys, and of keys that match several rows."""


@dataclass(frozen=True)
class ColumnPlace:
    """One end of a join: a column and its table."""

    table: str
    column: str
    column_id: Annotated[str, AsJson(empty="left out")] = ""
    """Tells columns of one name apart, as in a hit; left out where it is not known."""


@dataclass(frozen=True)
class JoinEdge(Answer):
    """A proven join between columns ``a`` and ``b`` of two tables."""

    a: ColumnPlace
    b: ColumnPlace
    joinability: float
    """Share of the distinct values of a found in b."""
    reverse: float
    """Share of the distinct values of b found in a."""
    matched: int
    cardinality: str
    """How many rows of a and of b share a value: 1:1, 1:n, n:1 or n:m."""
    join: Annotated[str, AsJson(type=Literal["semantic"], empty="left out")] = ""
    """Semantic where more values match by meaning than are equal; left out of an equi-join."""
    probability: Annotated[float, AsJson(empty="left out")] = 0.0
    """The chance that a person who knows both tables would make this join; left out if it is 0."""
    decided: DecidedBy = ""
    """What a person said of it; left out if nobody did."""


@dataclass(frozen=True)
class GraphTable:
    """A table on the map."""

    table: str
    rows: int
    columns: int
    distance: int
    """How many joins lead to it from the table in the middle; 0 in an overview."""


@dataclass(frozen=True)
class Neighbourhood(Answer):
    """A table and those that join with it, or an overview, and the joins between all of them."""

    nodes: tuple[GraphTable, ...]
    edges: tuple[JoinEdge, ...]
    truncated: bool
    """Whether tables or joins were left out."""


@dataclass(frozen=True)
class SimilarJoins(Answer):
    """Joins by meaning between tables of a map."""

    edges: Sequence[JoinEdge]
    truncated: bool
    """Whether columns were left out."""


@dataclass(frozen=True)
class JoinPaths(Answer):
    """Chains of joins from one table to another, likeliest first."""

    paths: tuple[tuple[JoinEdge, ...], ...]
    searched: int
    """Columns whose joins were looked for."""
    complete: bool
    """Whether no better path can have been missed."""
    probabilities: tuple[float, ...] = ()
    """Of each path, the product of the probabilities of its joins."""
    fan_outs: tuple[float, ...] = ()
    """Of each path, how many rows one row of its start becomes on the average of the keys."""


@dataclass(frozen=True)
class Decision(Answer):
    """What a person said of a join: that it means something, or that it does not."""

    child_table: str
    """Empty for a column of a table that is not in the lake."""
    child_columns: tuple[str, ...]
    parent_table: str
    parent_columns: tuple[str, ...]
    accepted: bool
    at: str = ""
    """When it was said, in UTC."""

    @property
    def text(self) -> str:
        """The decision in a word."""
        return "accepted" if self.accepted else "rejected"


@dataclass(frozen=True)
class TableKey(Answer):
    """Columns that identify the rows of a table."""

    table: str
    columns: tuple[str, ...]
    probability: float
    """The chance that a person would call it a key."""


@dataclass(frozen=True)
class Relation(Answer):
    """A foreign key: the child's values are values of the parent, which has each of them once."""

    child_table: str
    child_columns: tuple[str, ...]
    parent_table: str
    parent_columns: tuple[str, ...]
    probability: float
    """The chance that a person who knows both tables would make this join."""
    containment: float
    """Share of the child's distinct values found in the parent."""
    orphans: int
    """Rows of the child whose value the parent lacks; missing values are none."""
    cardinality: str
    """How many rows of child and parent share a value: n:1 or 1:1, if the parent is a key."""
    evidence: Mapping[str, str]
    """What speaks for it and against it, in words."""
    declared: bool | None = None
    """Whether the database declares it; null where nothing can be declared, or was not read."""
    orphan_values: tuple[str, ...] = ()
    """The first values that the parent lacks."""
    matched: int = 0
    """How many distinct values of the child the parent has."""
    coverage: float = 0.0
    """Share of the parent's distinct values that the child uses."""
    decided: DecidedBy = ""
    """What a person said of it, which makes the probability 1 or 0; left out if nobody did."""

    @property
    def child(self) -> str:
        """The child's columns in a word: orders.customer."""
        return f"{self.child_table}.{'+'.join(self.child_columns)}"

    @property
    def parent(self) -> str:
        """The parent's columns in a word: customers.id."""
        return f"{self.parent_table}.{'+'.join(self.parent_columns)}"


class _JsonField(NamedTuple):
    key: str
    attribute: str
    type: Any
    doc: str
    empty: str


@cache
def _json_fields(kind: type) -> tuple[_JsonField, ...]:
    """List what a declaration shows in JSON, in order."""
    hints, docs = get_type_hints(kind, include_extras=True), _field_docs(kind)
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else list(hints)
    found = []
    for name in names:
        hint, changed = hints[name], AsJson()
        if get_origin(hint) is Annotated:
            changed = hint.__metadata__[0]
            hint = changed.type or hint.__origin__
        found.append(
            _JsonField(
                changed.key or name, changed.value or name, hint, docs.get(name, ""), changed.empty
            )
        )
    return tuple(found)


def _field_docs(kind: type) -> dict[str, str]:
    """Read the strings that stand under the fields of a declaration, and of those it extends."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):  # without its source a class still has a schema
            continue
        statements = getattr(body, "body", [])
        for one, below in pairwise(statements):
            match one, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs


def to_json(value: Any) -> Any:
    """Turn a declared object, or anything made of them, into plain JSON values.

    >>> to_json(Match("Chad", "CHAD", 0.9))
    {'query': 'Chad', 'target': 'CHAD', 'similarity': 0.9, 'how': 'equal'}
    """
    if isinstance(value, (str, int, float, NoneType)):
        return value
    if isinstance(value, Mapping):
        return {key: to_json(one) for key, one in value.items()}
    if is_dataclass(value) or hasattr(value, "_fields"):
        kind: Any = type(value)
        found = {}
        for one in _json_fields(kind):
            item = getattr(value, one.attribute)
            if item or one.empty == "kept":
                found[one.key] = to_json(item)
            elif one.empty == "null":
                found[one.key] = None
        return found
    return [to_json(one) for one in value]


_PLAIN: dict[Any, dict[str, Any]] = {
    **{str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}},
    **{bool: {"type": "boolean"}, NoneType: {"type": "null"}, Any: {}},
}


def json_schema(kind: Any, schemas: dict[str, Any], at: str = "#/components/schemas/") -> Any:
    """Return the JSON schema of a type; declared classes are added to ``schemas`` by name.

    >>> json_schema(list[str | None], {})
    {'type': 'array', 'items': {'anyOf': [{'type': 'string'}, {'type': 'null'}]}}
    """
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return json_schema(kind.__metadata__[0].type or kind.__origin__, schemas, at)
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (Union, UnionType):
        return {"anyOf": [json_schema(one, schemas, at) for one in inner]}
    if is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "_fields"):
        name = kind.__name__
        if name not in schemas:
            schemas[name] = {}  # a class may refer to itself
            shown = _json_fields(kind)
            properties = {one.key: json_schema(one.type, schemas, at) for one in shown}
            for one in shown:
                if one.doc:
                    properties[one.key]["description"] = one.doc
            schemas[name] = {
                "type": "object",
                "title": name,
                "description": inspect.cleandoc(kind.__doc__ or ""),
                "properties": properties,
                "required": [one.key for one in shown if one.empty != "left out"],
            }
        return {"$ref": at + name}
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": json_schema(inner[1], schemas, at)}
    return {"type": "array", "items": json_schema(inner[0], schemas, at)}
