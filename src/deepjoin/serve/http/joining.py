"""Joins as the service does them: a preview with its facts, a file to download or to keep."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinPlan, Rows, Side
from deepjoin.joining.claimed import claimed
from deepjoin.joining.sides import right_side
from deepjoin.joining.texts import row_texts
from deepjoin.lake import Lake
from deepjoin.serve.current import Opened
from deepjoin.serve.http.lines import python_lines, shell_line
from deepjoin.serve.http.problems import Forbidden, Refused, TooLarge
from deepjoin.serve.http.requests import JoinRequest, PreviewRequest, UploadTable
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.uploads import Upload, Uploads
from deepjoin.settings import JoinSettings

#: Characters of a cell that a preview shows, and the sign that there are more.
_LONGEST = 10_001


@dataclass(frozen=True)
class Planned:
    """A join that is ready to run, and the upload it starts from, if it does."""

    lake: Lake
    plan: JoinPlan
    asked: JoinRequest
    upload: Upload | None

    def named(self, text: str) -> str:
        """Speak of an upload by its owner's name for it."""
        return text if self.upload is None else self.upload.named(text)

    @property
    def left(self) -> str:
        """What the left table is called."""
        asked = self.asked.left
        return self.upload.name if self.upload is not None else getattr(asked, "table", "")


class Joining:
    """Plans joins of uploads and tables of the lake with hits."""

    def __init__(self, settings: ServerSettings, uploads: Uploads) -> None:
        self._settings, self._uploads = settings, uploads
        self._answers = settings.folder / "answers"
        self._answers.mkdir(mode=0o700, parents=True, exist_ok=True)

    def preview(self, opened: Opened, asked: PreviewRequest) -> dict[str, Any]:
        """Plan a join and run its first rows."""
        most = self._settings.max_preview
        if asked.rows > most:
            raise Refused(f"rows is {asked.rows}; a preview has {most} at most.")
        with self._planned(opened, asked) as planned:
            plan, lake = planned.plan, opened.lake
            rows = plan.preview(asked.rows)
            texts = _shown(rows)
            return {
                "columns": _columns(rows.schema, plan.brought),
                "rows": texts,
                "facts": asdict(plan.facts),
                "warnings": [*map(planned.named, plan.warnings), *_cut(texts)],
                "sql": planned.named(_code(lambda: _sql(planned), "-- ")),
                "python": python_lines(lake.location, planned.left, planned.asked, plan.facts.join),
                "pandas": planned.named(_code(lambda: plan.pandas_code, "# ")),
                "shell": shell_line(lake.location, planned.left, planned.asked, plan.facts.join),
            }

    def answer(self, opened: Opened, asked: JoinRequest, form: str, neutralise: bool) -> IO[bytes]:
        """Run a join into a file that has no name any more: it goes when it is closed."""
        with (
            self._whole(opened, asked) as planned,
            tempfile.TemporaryDirectory(dir=self._answers) as folder,
        ):
            path = Path(folder, f"joined.{form}")
            _rows(planned.plan, neutralise).write(path)
            return path.open("rb")

    def save(
        self, opened: Opened, asked: JoinRequest, form: str, neutralise: bool, name: str
    ) -> dict[str, Any]:
        """Run a join into the output folder, beside whatever is there."""
        if self._settings.out is None:
            raise Forbidden("This service only reads. Start it with --out FOLDER to save joins.")
        with (
            self._whole(opened, asked) as planned,
            claimed(self._settings.out, name, form) as path,
        ):
            rows = _rows(planned.plan, neutralise).write(path)
        return {"file": path.name, "rows": rows, "bytes": path.stat().st_size}

    @contextmanager
    def _whole(self, opened: Opened, asked: JoinRequest) -> Iterator[Planned]:
        """Plan a join that is to be run to its end, unless it has too many rows."""
        with self._planned(opened, asked) as planned:
            rows, most = planned.plan.facts.result_rows, self._settings.max_rows
            if rows > most:
                raise TooLarge(
                    f"The joined table has {rows:,} rows, more than the {most:,} this service "
                    "gives. Use many=first or many=aggregate, or start it with a higher --max-rows."
                )
            yield planned

    @contextmanager
    def _planned(self, opened: Opened, asked: JoinRequest) -> Iterator[Planned]:
        lake, upload = opened.lake, None
        opened.check_table(asked.hit.table)
        asked = _resolved(lake, asked)
        if isinstance(asked.left, UploadTable):
            upload = self._uploads.get(asked.left.upload)
            with upload.called():
                left = upload.side(asked.on)
        else:
            opened.check_table(asked.left.table)
            left = right_side(lake.index.origin(asked.left.table), asked.on)
        with _called(upload), _plan(lake, left, asked, self._settings.join_memory) as plan:
            yield Planned(lake, plan, asked, upload)


def _resolved(lake: Lake, asked: JoinRequest) -> JoinRequest:
    """Call the column of a hit as its table does, where only the id tells which one it is."""
    hit = asked.hit
    if hit.column_id is None:
        return asked
    column = lake.index.origin(hit.table).key(hit.column, hit.column_id)
    return asked.model_copy(update={"hit": hit.model_copy(update={"column": column})})


def _plan(lake: Lake, left: Side, asked: JoinRequest, memory: str) -> JoinPlan:
    return lake.plan_join(
        left,
        asked.on,
        (asked.hit.table, asked.hit.column),
        how=asked.how,
        many=asked.many,
        join=asked.join,
        settings=JoinSettings(tau=asked.tau, matching=asked.matching, memory_limit=memory),
    )


@contextmanager
def _called(upload: Upload | None) -> Iterator[None]:
    if upload is None:
        yield
    else:
        with upload.called():
            yield


def _rows(plan: JoinPlan, neutralise: bool) -> Rows:
    return plan.neutralised() if neutralise else plan


def _sql(planned: Planned) -> str:
    left = "" if planned.upload is not None else planned.left
    return planned.lake.join_sql(planned.plan, planned.asked.hit.table, left)


def _code(write: Any, comment: str) -> str:
    """Write the join as code; where there is too much to write, say so in a comment."""
    try:
        return str(write())
    except DeepJoinError as error:
        return comment + " ".join(str(error).split())


def _columns(schema: pa.Schema, brought: frozenset[str]) -> list[dict[str, str]]:
    return [
        {
            "name": one.name,
            "from": "right" if one.name in brought else "left",
            "type": _type(one.type),
        }
        for one in schema
    ]


def _type(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "decimal"
    return "date" if types.is_temporal(kind) else "text"


def _shown(rows: pa.Table) -> list[list[str | None]]:
    """Give rows as text, very long cells cut."""
    return [[_shortened(cell) if cell else cell for cell in row] for row in row_texts(rows)]


def _shortened(cell: str) -> str:
    return cell if len(cell) < _LONGEST else cell[: _LONGEST - 1] + "…"


def _cut(texts: list[list[str | None]]) -> list[str]:
    """Say that cells are not shown to their end."""
    if not any(cell and len(cell) == _LONGEST for row in texts for cell in row):
        return []
    return [f"Cells of more than {_LONGEST - 1:,} characters are cut here; a download has them."]
