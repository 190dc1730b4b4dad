"""The arguments of each tool, with the descriptions that agents read."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

#: The most that one call may send or ask for.
MOST_VALUES, MOST_HITS, MOST_CELLS, MOST_ROWS, MOST_FOUND = 10_000, 50, 100, 50, 100

Join = Literal["any", "equi", "semantic"]


def _listed(values: Any) -> Any:
    """Parse a list that came as JSON text, as some clients send it."""
    if isinstance(values, str) and values.lstrip().startswith("["):
        try:
            return json.loads(values)
        except (ValueError, RecursionError):
            return values
    return values


def _text(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


Values = Annotated[list[str | int | float | None], BeforeValidator(_listed)]


class ToolArguments(BaseModel):
    """Arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, arguments: Any) -> Any:
        """Replace lone surrogates: no table holds them, and no answer can be encoded with them."""
        if not isinstance(arguments, dict):
            return arguments
        return {
            name: [_text(one) for one in value] if isinstance(value, list) else _text(value)
            for name, value in arguments.items()
        }


class InfoArguments(ToolArguments):
    """No arguments."""


class FindArguments(ToolArguments):
    """What to look for."""

    text: str = Field(
        min_length=1,
        max_length=1000,
        description="Part of a table's or column's name, or one whole cell value, e.g. 'France'.",
    )
    limit: int = Field(
        default=20, ge=1, le=MOST_FOUND, description="How many of each kind to list."
    )


class TableArguments(ToolArguments):
    """Which table to describe."""

    table: str = Field(description="The table's name, as find_tables or search gives it.")
    rows: int = Field(
        default=3, ge=0, le=MOST_ROWS, description="How many of its first rows to show."
    )


class QueryArguments(ToolArguments):
    """The query column: one of the lake, or values."""

    table: str | None = Field(
        default=None, description="A table of the lake; then column is one of its columns."
    )
    column: str | None = Field(
        default=None,
        description="The column of that table; with values, an optional name for them.",
    )
    values: Values | None = Field(
        default=None,
        max_length=MOST_VALUES,
        description="Instead of a table: the values themselves, e.g. those of the user's file.",
    )


class SearchArguments(QueryArguments):
    """The query, and which hits to return."""

    join: Join = Field(
        default="any",
        description="equi: equal values (ignoring case and white space); semantic: values that "
        "mean the same; any: both, each value counted by the chance of a match.",
    )
    k: int = Field(default=10, ge=1, le=MOST_HITS, description="How many hits at most.")
    min_joinability: float = Field(
        default=0.0, ge=0, le=1, description="Only hits covering this share of the query's values."
    )
    one_per_table: bool = Field(default=False, description="Only the best column of each table.")


class PairArguments(QueryArguments):
    """The query column, and the column of the lake it may join with."""

    target_table: str = Field(description="The table of the lake to join with, as a hit names it.")
    target_column: str = Field(description="The key column of that table.")


class ExplainArguments(PairArguments):
    """The pair of columns to explain."""

    join: Join = Field("any", description="How to compare, as for search.")
    cells: int = Field(
        default=20, ge=0, le=MOST_CELLS, description="How many matched and unmatched cells to list."
    )


class JoinArguments(PairArguments):
    """The tables to join, and how."""

    join: Literal["equi", "semantic"] = Field(
        default="equi",
        description="equi: equal values; semantic: also values that mean the same. A hit's "
        "suggested_join says which.",
    )
    how: Literal["left", "inner"] = Field(
        default="left", description="left keeps the query's rows without a match, inner does not."
    )
    many: Literal["expand", "first", "aggregate"] = Field(
        default="expand",
        description="Where several rows match: all of them, the first, or one row of means and "
        "lists.",
    )


class PreviewArguments(JoinArguments):
    """The join to preview."""

    rows: int = Field(default=10, ge=1, le=MOST_ROWS, description="How many rows to show.")


class FileArguments(JoinArguments):
    """The join to write, and the name of its file."""

    name: str = Field(
        default="joined",
        max_length=200,
        description="Name of the file, without folder or ending; a number is added if it exists.",
    )
    format: Literal["csv", "parquet"] = Field(default="csv", description="parquet keeps types.")
    neutralise: bool = Field(
        default=False,
        description="Put ' before cells that a spreadsheet would run as formulas; CSV only.",
    )

    @model_validator(mode="after")
    def _formulas_are_for_csv(self) -> Self:
        if self.neutralise and self.format != "csv":
            raise ValueError("neutralise is for format='csv'; Parquet has no formulas")
        return self
