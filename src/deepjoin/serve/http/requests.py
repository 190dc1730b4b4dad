"""What requests are made of: all that is allowed in them, and how much."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from deepjoin.joining.select import MATCHES

#: Names are looked up, never opened; longer ones are none.
Name = Annotated[str, Field(max_length=20_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cosine = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Cells = Annotated[list[str | None], Field(max_length=1_000_000)]
Join = Literal["any", "equi", "semantic"]
Many = Literal["expand", "first", "aggregate"]
assert set(Many.__args__) == set(MATCHES)  # type: ignore[attr-defined]


class Asked(BaseModel):
    """A part of a request: unknown keys are mistakes, and nothing is taken for something else."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PastedValues(Asked):
    """Values to store as a table of one column."""

    values: Cells = Field(min_length=1)
    name: Name = "values"


class LakeColumn(Asked):
    """A column of the lake."""

    table: Name
    column: Name


class UploadColumn(Asked):
    """A column of an upload."""

    upload: Name
    column: Name


class ValueList(Asked):
    """Values, and what their column would be called."""

    values: Cells
    name: Name = ""


class SearchRequest(Asked):
    """A query column and how to search with it; None leaves the library's default."""

    query: LakeColumn | UploadColumn | ValueList
    k: int = Field(10, ge=0, le=10_000)
    join: Join = "any"
    method: Name = "hybrid"
    tau: Cosine | None = None
    min_joinability: Share | None = None
    group: Literal["tables"] | None = None
    exclude_table: Name | None = None
    matches: int = Field(12, ge=0, le=1000)


class LakeTable(Asked):
    """A table of the lake."""

    table: Name


class UploadTable(Asked):
    """An upload."""

    upload: Name


class Target(Asked):
    """A hit; its id tells columns of one name apart."""

    table: Name
    column: Name
    column_id: Name | None = None


class JoinRequest(Asked):
    """Two tables and how to join them."""

    left: LakeTable | UploadTable
    on: Name
    hit: Target
    how: Literal["left", "inner"] = "left"
    many: Many = "expand"
    join: Literal["equi", "semantic"] | None = None
    tau: Cosine | None = None
    matching: Literal["best", "one-to-one", "all"] = "best"


class PreviewRequest(JoinRequest):
    """A join of which some rows are to be shown."""

    rows: int = Field(20, ge=0, le=10_000)
