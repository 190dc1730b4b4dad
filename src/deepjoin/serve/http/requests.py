"""Requests: what they may contain, and how much of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from deepjoin.joining.tables import MATCHES
from deepjoin.settings import AGGREGATES

#: Names are looked up, never opened, and no table has a longer one.
Name = Annotated[str, Field(max_length=20_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cosine = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Cells = Annotated[list[str | None], Field(max_length=1_000_000)]
#: How many there may be is checked, and said, where they are searched with.
KeyColumns = Annotated[list[Name], Field(min_length=1, max_length=1000)]
Join = Literal["any", "equi", "semantic"]
Many = Literal["expand", "first", "aggregate"]
assert set(Many.__args__) == set(MATCHES)  # type: ignore[attr-defined]
How = Literal["first", "count", "sum", "mean", "min", "max", "list"]
assert set(How.__args__) == set(AGGREGATES)  # type: ignore[attr-defined]


class RequestPart(BaseModel):
    """A part of a request: unknown keys are errors, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PastedValues(RequestPart):
    """Values to store as a table of one column."""

    values: Cells = Field(min_length=1)
    name: Name = ""


class LakeColumn(RequestPart):
    """A column of the lake."""

    table: Name
    column: Name


class UploadColumn(RequestPart):
    """A column of an upload."""

    upload: Name
    column: Name


class ValueList(RequestPart):
    """Values, and the name of their column."""

    values: Cells
    name: Name = ""


class LakeTable(RequestPart):
    """A table of the lake."""

    table: Name


class UploadTable(RequestPart):
    """An upload."""

    upload: Name


class LakeKey(RequestPart):
    """Columns of a table of the lake that are one key."""

    table: Name
    columns: KeyColumns


class UploadKey(RequestPart):
    """Columns of an upload that are one key."""

    upload: Name
    columns: KeyColumns


class SearchRequest(RequestPart):
    """A query column, several that are one key, or a table to search with every column of.

    None means the default.
    """

    query: LakeColumn | UploadColumn | ValueList | LakeTable | UploadTable | LakeKey | UploadKey
    k: int = Field(10, ge=0, le=10_000)
    join: Join = "any"
    method: Name = "hybrid"
    tau: Cosine | None = None
    min_joinability: Share | None = None
    least: Share | None = Field(
        None, description="Hits with a lower probability are set apart as unlikely"
    )
    group: Literal["tables"] | None = None
    exclude_table: Name | None = None
    matches: int = Field(12, ge=0, le=1000)
    time_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class JoinEnds(RequestPart):
    """One end of a join that somebody accepts or rejects."""

    table: Name = Field(description="Empty for columns of a table that is not in the lake")
    columns: KeyColumns


class FeedbackRequest(RequestPart):
    """What a person says of a join."""

    child: JoinEnds
    parent: JoinEnds
    accepted: bool | None = Field(description="null takes back what was said")


class PathStep(RequestPart):
    """One join of a path."""

    a: LakeColumn
    b: LakeColumn


class PathRequest(RequestPart):
    """The joins of a path, each from a table that is there already to the next one."""

    path: list[PathStep] = Field(min_length=1, max_length=10)
    how: Literal["left", "inner"] = "left"
    many: Many = "expand"
    rows: int = Field(20, ge=0, le=200)


class Target(RequestPart):
    """A hit; its id distinguishes columns of the same name."""

    table: Name
    column: Name
    column_id: Name | None = None
    columns: KeyColumns | None = Field(
        None, description="The columns of a key of several, in the order of `on`"
    )

    @property
    def key(self) -> list[str]:
        """The columns to join on."""
        return self.columns or [self.column]


class PairDecision(RequestPart):
    """What a person says of two values: whether they mean the same."""

    query: Annotated[str, Field(max_length=20_000)]
    target: Annotated[str, Field(max_length=20_000)]
    accepted: bool


class JoinRequest(RequestPart):
    """Two tables and how to join them."""

    left: LakeTable | UploadTable
    on: Name | KeyColumns
    hit: Target
    how: Literal["left", "inner"] = "left"
    many: Many = "expand"
    aggregate: How | dict[Name, How] | None = Field(
        None, description="How several matching rows become one: for all columns, or by name"
    )
    columns: list[Name] | None = Field(
        None, max_length=10_000, description="Columns of the hit's table to bring; all by default"
    )
    join: Join | None = Field(None, description="any by default")
    tau: Cosine | None = None
    matching: Literal["best", "one-to-one", "all"] = "best"
    precision: Cosine | None = Field(
        None, description="The least estimated precision of all pairs of values; join any only"
    )
    decisions: list[PairDecision] = Field(
        [], max_length=10_000, description="Pairs of values that people accepted or rejected"
    )


class PreviewRequest(JoinRequest):
    """A join, and how many of its rows to show."""

    rows: int = Field(20, ge=0, le=10_000)
