"""Joins as the service does them: a preview with its facts, a file to download or to keep."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.join import JoinPlan, Rows, Side
from deepjoin.lake import Lake
from deepjoin.lake.sides import right_side
from deepjoin.server.current import Opened
from deepjoin.server.lines import python_lines, shell_line
from deepjoin.server.problems import Forbidden, Refused, TooLarge
from deepjoin.server.requests import JoinRequest, PreviewRequest, UploadTable
from deepjoin.server.settings import ServerSettings
from deepjoin.server.uploads import Upload, Uploads
from deepjoin.sources.cells import as_strings

_TRIES = 1000


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
            return {
                "columns": _columns(rows.schema, plan.brought),
                "rows": _texts(rows),
                "facts": asdict(plan.facts),
                "warnings": [planned.named(text) for text in plan.warnings],
                "sql": planned.named(_code(lambda: _sql(planned), "-- ")),
                "python": python_lines(lake.location, planned.left, asked, plan.facts.join),
                "pandas": planned.named(_code(lambda: plan.pandas_code, "# ")),
                "shell": shell_line(lake.location, planned.left, asked, plan.facts.join),
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
        with self._whole(opened, asked) as planned:
            path = _claimed(self._settings.out, name, form)
            try:
                rows = _rows(planned.plan, neutralise).write(path)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
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
        if isinstance(asked.left, UploadTable):
            upload = self._uploads.get(asked.left.upload)
            left = upload.side(asked.on)
        else:
            opened.check_table(asked.left.table)
            left = right_side(lake.origin(asked.left.table), asked.on)
        with _called(upload), _plan(lake, left, asked) as plan:
            yield Planned(lake, plan, asked, upload)


def _plan(lake: Lake, left: Side, asked: JoinRequest) -> JoinPlan:
    target, column = asked.hit, asked.hit.column
    if target.column_id is not None:
        column = lake.origin(target.table).key(column, target.column_id)
    return lake.plan_join(
        left,
        asked.on,
        (target.table, column),
        how=asked.how,
        many=asked.many,
        join=asked.join,
        tau=asked.tau,
        matching=asked.matching,
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


def _texts(rows: pa.Table) -> list[list[str | None]]:
    columns = [_cells(column) for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(column: pa.ChunkedArray) -> list[str | None]:
    strings = as_strings(column)
    if strings is None:  # nested, or bytes
        return [None if cell is None else str(cell) for cell in column.to_pylist()]
    cells: list[str | None] = strings.to_pylist()
    return cells


def _claimed(folder: Path, name: str, form: str) -> Path:
    """Make an empty file under a free name; of a client's words, letters and digits are kept."""
    stem = re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-_")[:60] or "joined"
    for number in range(_TRIES):
        path = folder / f"{stem}{f'-{number}' if number else ''}.{form}"
        try:
            path.open("xb").close()
        except FileExistsError:
            continue
        except OSError as error:
            raise Refused(f"Cannot write into the output folder: {error.strerror}.") from None
        return path
    raise Refused(f"The output folder has {_TRIES} files called '{stem}'; choose another name.")
