"""Routes of relations: keys, foreign keys and their diagram, what people say of joins, paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request

from deepjoin.joining.chain import ChainStep, plan_chain
from deepjoin.joining.output import row_texts
from deepjoin.model import Decision, Relation, TableKey
from deepjoin.relating.diagram import Diagram, lay_out
from deepjoin.relating.relations import RelationFinder
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import Section, wording
from deepjoin.serve.http.joins import without_paths
from deepjoin.serve.http.problems import Forbidden, Refused
from deepjoin.serve.http.requests import FeedbackRequest, PathRequest
from deepjoin.serve.http.service import Service

#: Relations and keys listed, and tables drawn.
_LISTED, _DRAWN = 500, 60


@dataclass(frozen=True)
class RelationList:
    """The relations of a lake, surest first, its keys, and both as a diagram."""

    relations: Sequence[Relation]
    keys: Sequence[TableKey]
    total: int
    """How many relations there are; the first are listed."""
    diagram: Diagram
    notes: Sequence[str]
    rejected: Sequence[Decision]
    """Joins that people rejected, which are in no list."""


@dataclass(frozen=True)
class DecisionList:
    """What people said of joins, the oldest first."""

    decisions: Sequence[Decision]


@dataclass(frozen=True)
class PathJoin:
    """The joins of a path as one: its first rows, and SQL that does the same elsewhere."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    total: int
    sql: str
    warnings: Sequence[str]


def relation_routes(service: Service) -> APIRouter:
    """Make the routes of relations, feedback and paths."""
    router = Section(tags=["relations"])

    @router.on_lake("/relations", service.heavily)
    def relations(
        opened: Opened,
        least: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.5,
    ) -> RelationList:
        """Find keys and foreign keys inside each source, and lay out their diagram."""
        if RelationFinder(opened.lake.index).is_large:
            raise Refused(
                "This lake has too many columns to find its relations while you wait; run "
                "deepjoin relations INDEX instead."
            )
        found = opened.lake.relations(least=least)
        listed, keys = found.relations[:_LISTED], found.keys[:_LISTED]
        rejected = [one for one in found.decisions if not one.accepted]
        drawn = lay_out(listed, keys, _DRAWN)
        return RelationList(listed, keys, len(found), drawn, found.notes, rejected)

    @router.on_lake("/feedback", service.quickly)
    def said(opened: Opened) -> DecisionList:
        """List what people accepted and rejected."""
        return DecisionList(tuple(opened.lake.feedback))

    @router.on_lake("/feedback", service.quickly, "POST")
    def say(opened: Opened, request: FeedbackRequest) -> DecisionList:
        """Accept or reject a join; null takes back what was said of it."""
        if not service.settings.may_judge:
            raise Forbidden(
                "Others can reach this service without a token, so it keeps no decisions. Ask "
                "whoever runs it for one with a token."
            )
        lake, child = opened.lake, request.child
        opened.check_table(request.parent.table)
        mine = (child.table, child.columns)
        end = mine if child.table else {"table": "", "columns": child.columns}
        parent = request.parent.table, request.parent.columns
        if request.accepted is None:
            lake.forget(end, parent)
        else:
            (lake.accept if request.accepted else lake.reject)(end, parent)
        return said(opened)

    @router.on_lake("/join/path", service.heavily, "POST")
    def joined(opened: Opened, request: PathRequest, asked: Request) -> PathJoin:
        """Run the joins of a path as one; returns its first rows and its SQL."""
        steps = [
            ChainStep(one.a.table, one.a.column, one.b.table, one.b.column) for one in request.path
        ]
        tables = dict.fromkeys(table for one in steps for table in (one.table, one.next_table))
        for table in tables:
            opened.check_table(table)
        index, memory = opened.lake.index, service.settings.join_memory
        files = opened.files(tables)
        with plan_chain(index, steps, request.how, request.many, memory) as chain:
            rows, words = chain.preview(request.rows), wording(asked)
            return PathJoin(
                rows.column_names,
                row_texts(rows),
                chain.rows,
                without_paths(chain.sql, files),
                [without_paths(words(text), files) for text in chain.warnings],
            )

    return router
