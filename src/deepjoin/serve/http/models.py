"""What answers are made of; they are documented and tested by these, and made without them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Problem(BaseModel):
    """Why a request was refused, in one line."""

    error: str


class Method(BaseModel):
    """A search method this index can answer with."""

    name: str
    joins: list[str]
    says: str


class Limits(BaseModel):
    """How much the service takes and gives."""

    upload_bytes: int
    preview_rows: int
    rows: int
    seconds: float
    k: int


class LakeInfo(BaseModel):
    """The lake in numbers, and what can be asked of it."""

    name: str
    version: str
    generation: str
    tables: int
    columns: int
    values: int
    rows: int
    cells: int
    bytes: int
    joins: list[str]
    methods: list[Method]
    default_method: str
    default_join: str
    hash_only: bool
    limits: Limits
    can_write: bool
    needs_token: bool


class TableLine(BaseModel):
    """A table in a list."""

    name: str
    title: str
    rows: int
    columns: int
    names: list[str]


class TableList(BaseModel):
    """Some of the tables, and how many there are."""

    total: int
    tables: list[TableLine]


class ColumnLine(BaseModel):
    """A column in a list."""

    table: str
    column: str
    type: str
    distinct: int


class HolderLine(BaseModel):
    """A column that holds a value, and in how many rows."""

    table: str
    column: str
    rows: int


class ValueLine(BaseModel):
    """A value and the columns that hold it."""

    value: str
    columns: list[HolderLine]
    total: int


class Found(BaseModel):
    """What has a text in its name, or holds it as a cell."""

    tables: list[TableLine]
    columns: list[ColumnLine]
    values: list[ValueLine]


class ColumnDetail(BaseModel):
    """A column of a table: what it holds, and how good a key it is."""

    name: str
    type: str
    distinct: int
    filled: float
    indexed: bool
    left_out: str
    generic: str
    samples: list[str]
    key: float


class TableDetail(BaseModel):
    """A table with its columns, best keys and first rows."""

    name: str
    title: str
    context: str
    rows: int
    source: str
    notes: list[str]
    columns: list[ColumnDetail]
    best_keys: list[str]
    sample: list[dict[str, str | None]]


class UploadDetail(TableDetail):
    """An uploaded table, the token it is known by, and for how many seconds."""

    upload: str
    expires_in: int


class Equi(BaseModel):
    """The evidence of equal cells."""

    joinability: float
    reverse: float
    matched: int
    join_size: int
    multiset: float


class Semantic(BaseModel):
    """The evidence of cells that mean the same."""

    joinability: float
    reverse: float
    matched: int
    tau: float


class MatchLine(BaseModel):
    """A cell of the query and the one it meets."""

    query: str
    target: str
    similarity: float


class Brings(BaseModel):
    """What joining a hit would add."""

    columns: list[str]
    sample: list[dict[str, str | None]]


class HitDetail(BaseModel):
    """A column of the lake that joins with the query, and why."""

    rank: int
    table: str
    column: str
    column_id: str
    type: str
    generic: str | None
    join: str
    score: float
    joinability: float
    equi: Equi
    semantic: Semantic | None
    query_size: int
    target_size: int
    cardinality: str
    matches: list[MatchLine]
    unmatched: list[str]
    found_by: list[str]
    brings: Brings
    also: list[HitDetail] | None = None


class QueryFacts(BaseModel):
    """The query as it was understood."""

    table: str | None
    column: str
    cells: int
    size: int


class SearchAnswer(BaseModel):
    """Hits, best first."""

    query: QueryFacts
    hits: list[HitDetail]
    seconds: dict[str, float]


class JoinedColumn(BaseModel):
    """A column of the joined table, and whose it is."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str
    side: Literal["left", "right"] = Field(alias="from")
    type: str


class Facts(BaseModel):
    """Exact numbers of a join, known before it runs."""

    left_rows: int
    right_rows: int
    left_keys: int
    matched_keys: int
    matched_left_rows: int
    result_rows: int
    cardinality: str
    max_fan_out: int
    renamed: dict[str, str]
    equal_keys: int
    join: str
    tau: float | None
    matching: str | None
    similarity: str | None


class Preview(BaseModel):
    """The first rows of a join, what is known of it, and how to do the same elsewhere."""

    columns: list[JoinedColumn]
    rows: list[list[str | None]]
    facts: Facts
    warnings: list[str]
    sql: str
    python: str
    pandas: str
    shell: str


class Saved(BaseModel):
    """A joined table that was written."""

    file: str
    rows: int
    bytes: int


class Node(BaseModel):
    """A table on the map, and how many joins it is away."""

    table: str
    rows: int
    columns: int
    distance: int


class End(BaseModel):
    """One end of an edge."""

    table: str
    column: str


class Edge(BaseModel):
    """A proven equi-join: how much of a is in b, and of b in a."""

    a: End
    b: End
    joinability: float
    reverse: float
    matched: int
    cardinality: str


class Neighbourhood(BaseModel):
    """A table and what it joins with."""

    nodes: list[Node]
    edges: list[Edge]
    truncated: bool


class Paths(BaseModel):
    """Ways from one table to another, shortest first."""

    paths: list[list[Edge]]
    searched: int
    complete: bool


class Health(BaseModel):
    """Whether the service answers."""

    status: Literal["ok"]
