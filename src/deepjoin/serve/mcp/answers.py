"""What tools answer: typed, so that an agent need not guess, and each with a note in words."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Answer(BaseModel):
    """What every answer says besides: what to know, and what was left out to keep it short."""

    note: str = Field(default="", description="What to know or to do next.")
    cut: list[str] = Field(default_factory=list, description="What was left out or shortened.")


class LakeAnswer(Answer):
    """What the lake holds and what can be done with it."""

    tables: int
    columns: int = Field(description="Columns that can be searched and joined.")
    rows: int = Field(description="0 for a corpus of columns, which does not say.")
    distinct_values: int
    joins: list[str] = Field(description="The kinds of join this index can answer.")
    can_write: bool = Field(description="Whether the tool join is offered.")
    values_are_hashed: bool = Field(description="Then no cells of hits can be shown.")
    not_searchable: dict[str, int] = Field(description="Columns left out of the index, by reason.")
    not_read: int = Field(description="Files that could not be read as tables.")
    examples: list[str] = Field(description="Some names of tables.")


class TableFound(BaseModel):
    """A table with the text in its name or a column's."""

    table: str
    title: str
    rows: int
    columns: int
    first_columns: list[str]


class ColumnFound(BaseModel):
    """A searchable column with the text in its name."""

    table: str
    column: str
    type: str
    distinct: int


class ValueFound(BaseModel):
    """A column that holds the text as a cell, and in how many rows."""

    table: str
    column: str
    rows: int


class FindAnswer(Answer):
    """Where a text is found: in names of tables, in names of columns, as a cell."""

    tables: list[TableFound]
    tables_in_all: int
    columns: list[ColumnFound]
    holders: list[ValueFound]
    holders_in_all: int


class ColumnAnswer(BaseModel):
    """A column of a table."""

    column: str
    type: str
    distinct: int
    searchable: bool
    why_not: str = ""
    warning: str = Field(default="", description="Why it says little as a key.")
    samples: list[str]


class TableAnswer(Answer):
    """A table: the words around it, its columns, its first rows."""

    table: str
    title: str
    context: str
    rows: int
    columns: list[ColumnAnswer]
    sample: list[dict[str, str | None]]
    mended: list[str] = Field(description="What was odd about the file when it was read.")


class Coverage(BaseModel):
    """How much of each column the other covers, in distinct values."""

    of_query: float = Field(description="Share of the query's values with a match (joinability).")
    of_target: float = Field(description="Share of the target's values with a match.")
    matched: int = Field(description="How many of the query's values have one.")


class Pair(BaseModel):
    """A cell of the query and the cell of the target it meets."""

    query: str
    target: str
    similarity: float


class HitAnswer(BaseModel):
    """A column that joins with the query, and why."""

    rank: int
    table: str
    column: str
    type: str
    joinability: float = Field(description="What hits are ranked by, for the join asked for.")
    query_size: int = Field(description="Distinct values of the query.")
    target_size: int = Field(description="Distinct values of the target.")
    equal: Coverage
    equal_or_similar: Coverage | None = Field(description="None where only equal values count.")
    cardinality: str = Field(description="1:1, 1:n, n:1 or n:m, the query's side first.")
    rows_meet: str = Field(description="The cardinality in words.")
    warning: str = Field(description="Set for keys that match everything, such as row numbers.")
    found_by: list[str]
    matches: list[Pair]
    unmatched: list[str]
    brings: list[str] = Field(description="The other columns of the table, which a join adds.")
    also: list[str] = Field(description="Other columns of the table that match as well.")
    suggested_join: str = Field(description="What to pass as join to preview_join.")


class SearchAnswer(Answer):
    """The hits of a search, best first; without any, how near it came."""

    query: str
    query_size: int = Field(description="Distinct values that were compared.")
    join: str
    compared_columns: int
    compared_tables: int
    hits: list[HitAnswer]
    best_below: HitAnswer | None = Field(
        default=None,
        description="Where nothing reaches min_joinability: the first hit without it.",
    )
    advice: list[str] = Field(default_factory=list, description="Where nothing joins: what to try.")


class ExplainAnswer(Answer):
    """The evidence of one pair of columns, also of one that does not join."""

    query: str
    joins: bool = Field(description="Whether any value matches.")
    evidence: HitAnswer


class FactsAnswer(BaseModel):
    """What a join does, counted over the whole tables."""

    join: str
    left_rows: int
    matched_left_rows: int
    left_keys: int
    matched_keys: int
    result_rows: int
    cardinality: str
    most_rows_for_one_key: int
    renamed: dict[str, str] = Field(description="Columns of the target that had to be renamed.")


class ColumnShown(BaseModel):
    """A column of the joined table."""

    column: str
    is_new: bool = Field(description="Whether the join brings it.")


class PreviewAnswer(Answer):
    """The first rows of a join, and its facts; nothing is written."""

    columns: list[ColumnShown]
    rows: list[list[str | None]]
    facts: FactsAnswer
    warnings: list[str]


class FileAnswer(Answer):
    """The file a join was written to."""

    file: str = Field(description="Its name in the output folder of this server.")
    path: str
    rows: int
    bytes: int
    facts: FactsAnswer
    warnings: list[str]
