"""The arguments of each tool, with the descriptions that agents read."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

#: The most that one call may send or ask for.
MOST_VALUES, MOST_HITS, MOST_CELLS, MOST_ROWS, MOST_FOUND = 10_000, 50, 100, 50, 100

Join = Literal["any", "equi", "semantic"]
Aggregate = Literal["first", "count", "sum", "mean", "min", "max", "list"]


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
Share = Annotated[float, Field(ge=0, le=1)]


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

    @classmethod
    def schema_of(cls) -> dict[str, Any]:
        """Return the JSON schema, without what agents do not need: titles, null for left out."""
        schema = cls.model_json_schema()
        properties = schema.get("properties", {})
        for one in properties.values():
            kinds = [kind for kind in one.pop("anyOf", []) if kind != {"type": "null"}]
            one |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
            one.pop("title", None)
            if one.get("default", 0) is None:
                del one["default"]
            if "anyOf" in one.get("items", {}):
                one["items"] = {"type": [kind["type"] for kind in one["items"]["anyOf"]]}
        kept = ("type", "required", "additionalProperties")
        return {name: schema[name] for name in kept if name in schema} | {"properties": properties}


class InfoArguments(ToolArguments):
    """No arguments."""


class FindArguments(ToolArguments):
    """What to look for."""

    text: str = Field(min_length=1, max_length=1000, description="part of a name, or a whole cell")
    limit: int = Field(default=20, ge=1, le=MOST_FOUND, description="results of each kind")


class TableArguments(ToolArguments):
    """Which table to describe."""

    table: str = Field(description="its name, or a unique ending of it")
    rows: int = Field(default=3, ge=0, le=MOST_ROWS, description="first rows to show")


class PageArguments(ToolArguments):
    """Which table or column to read, and from where."""

    table: str = Field(description="its name")
    column: str | None = Field(default=None, description="list its distinct values instead of rows")
    offset: int = Field(default=0, ge=0, description="next_offset of the page before")
    limit: int = Field(default=20, ge=1, le=MOST_ROWS, description="rows or values of a page")


class PathArguments(ToolArguments):
    """Between which tables to find paths."""

    start: str = Field(description="a table")
    end: str = Field(description="another table")
    min_joinability: Share = Field(default=0.5, description="of every join of a path")
    longest: int = Field(default=4, ge=1, le=6, description="most joins of a path")


class QueryArguments(ToolArguments):
    """The query column: one of the lake, or values."""

    table: str | None = Field(default=None, description="a table of the lake")
    column: str | list[str] | None = Field(
        default=None, description="a column of it; a list is one key; or a name for values"
    )
    values: Values | None = Field(
        default=None,
        max_length=MOST_VALUES,
        description="cells of a user's file, instead of a table",
    )


class SearchArguments(QueryArguments):
    """The query, and which hits to return."""

    join: Join = Field(
        default="any", description="equi: equal values; semantic: the same meaning; any: both"
    )
    k: int = Field(default=10, ge=1, le=MOST_HITS, description="number of hits")
    min_joinability: Share = Field(
        default=0.0, description="share of the query's distinct values that a hit must have"
    )
    least: Share | None = Field(
        default=None,
        description="least probability of a hit; 0 lists unlikely ones too, which are left out of "
        "join any by default",
    )
    one_per_table: bool = Field(default=False, description="only the best column of a table")


class PairArguments(QueryArguments):
    """The query column, and the column of the lake it may join with."""

    target_table: str = Field(description="as a hit names it")
    target_column: str | list[str] = Field(description="its key: as many columns as column has")


class ExplainArguments(PairArguments):
    """The pair of columns to explain."""

    join: Join = Field("any", description="as for search")
    cells: int = Field(default=20, ge=0, le=MOST_CELLS, description="matched and unmatched cells")


class JoinArguments(PairArguments):
    """The tables to join, and how."""

    join: Join = Field(
        default="any", description="any: equal values, similar ones for the rest; equi: only equal"
    )
    how: Literal["left", "inner"] = Field(
        default="left", description="left keeps rows without a match"
    )
    many: Literal["expand", "first", "aggregate"] = Field(
        default="expand", description="where several rows match"
    )
    aggregate: Aggregate | dict[str, Aggregate] | None = Field(
        default=None, description="several rows to one: for all columns or {'price': 'mean'}"
    )
    columns: Annotated[list[str], BeforeValidator(_listed)] | None = Field(
        default=None, description="columns of the target table to bring; default: all"
    )


class PreviewArguments(JoinArguments):
    """The join to preview."""

    rows: int = Field(default=10, ge=1, le=MOST_ROWS, description="rows to show")


class FileArguments(JoinArguments):
    """The join to write, and the name of its file."""

    name: str = Field(default="joined", max_length=200, description="file name, without ending")
    format: Literal["csv", "parquet"] = Field(default="csv", description="parquet keeps types")
    neutralise: bool = Field(
        default=False, description="put ' before formulas of spreadsheets; CSV only"
    )

    @model_validator(mode="after")
    def _formulas_are_for_csv(self) -> Self:
        if self.neutralise and self.format != "csv":
            raise ValueError("neutralise is for format='csv'; Parquet has no formulas")
        return self
