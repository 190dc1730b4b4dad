"""Joins: a preview with its facts and code, a file to download, or one saved on the server."""

from __future__ import annotations

import csv
import io
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.joining import JoinPlan
from deepjoin.joining.entry import origin_side
from deepjoin.joining.output import JoinLimits, check_rows, joined_name, row_texts, save_join
from deepjoin.lake import Lake
from deepjoin.model import UploadDescription
from deepjoin.read.sql import literal
from deepjoin.serve.current import Opened
from deepjoin.serve.http.answers import (
    TABLE_FILES,
    JoinedColumn,
    JoinPreview,
    Neutralise,
    SavedJoin,
    Section,
    TableFormat,
    check_format,
    table_file,
    wording,
)
from deepjoin.serve.http.problems import Forbidden, Refused
from deepjoin.serve.http.requests import JoinRequest, PreviewRequest, UploadTable
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.uploads import Upload, Uploads
from deepjoin.settings import JoinSettings, fields_of
from deepjoin.store.manifest import DEFAULT

if TYPE_CHECKING:
    from deepjoin.serve.http.service import Service

#: Characters of a cell in a preview.
_LONGEST = 10_000
#: Doubtful pairs that a preview shows.
_DOUBTFUL = 100
#: The file that the page saves decisions about pairs in.
_DECISIONS = "decisions.csv"


def join_routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = Section(prefix="/join", tags=["join"])
    joins = service.joins
    router.on_lake("/preview", service.heavily, "POST")(joins.preview)

    @router.post("/download", responses=TABLE_FILES, response_class=StreamingResponse)
    async def download(
        request: JoinRequest, form: TableFormat = "csv", neutralise: Neutralise = False
    ) -> Response:
        """Return the joined table as a file."""
        work = partial(joins.file, request=request, form=form, neutralise=neutralise)
        name, file = await service.heavily(work)
        return table_file(name, form, file)

    router.on_lake("/save", service.heavily, "POST")(joins.save)
    router.on_lake("/keep", service.heavily, "POST")(joins.keep)
    return router


@dataclass(frozen=True)
class PlannedJoin:
    """A join that is ready to run, the upload it starts from, if any, and the lake's own files."""

    lake: Lake
    plan: JoinPlan
    request: JoinRequest
    upload: Upload | None
    files: Mapping[Path, str]

    def named(self, text: str) -> str:
        """Name an upload in a text as its owner does, and files of the lake as the lake does."""
        return without_paths(text if self.upload is None else self.upload.named(text), self.files)

    def runnable(self, code: str) -> str:
        """Name files in code so that it runs beside the folder of the lake, as `_location` does."""
        location = self.lake.location
        if isinstance(location, Path) and location.resolve().name == DEFAULT:
            folder = location.resolve().parent
            inside = {
                path: path.resolve().relative_to(folder.parent).as_posix()
                for path in self.files
                if path.resolve().is_relative_to(folder)
            }
            code = without_paths(code, inside)
        return self.named(code)

    @property
    def left(self) -> str:
        """The name of the left table."""
        left = self.request.left
        return self.upload.name if self.upload is not None else getattr(left, "table", "")


def without_paths(text: str, files: Mapping[Path, str]) -> str:
    """Replace paths of this machine by the names that clients know, also where SQL quotes them.

    >>> without_paths("read_csv('/srv/it''s.csv')", {Path("/srv/it's.csv"): "it's.csv"})
    "read_csv('it''s.csv')"
    """
    for path, name in files.items():
        text = text.replace(literal(str(path)), literal(name)).replace(str(path), name)
    return text


class Joins:
    """Plans and runs joins of uploads and tables of the lake with hits."""

    def __init__(self, settings: ServerSettings, uploads: Uploads) -> None:
        self._settings, self._uploads = settings, uploads
        self._answers = settings.folder / "answers"
        self._answers.mkdir(mode=0o700, parents=True, exist_ok=True)

    def preview(self, opened: Opened, request: PreviewRequest, asked: Request) -> JoinPreview:
        """Return the first rows of a join, its facts, and code that does the same."""
        words, most = wording(asked), self._settings.max_preview
        if request.rows > most:
            raise Refused(f"rows is {request.rows}; a preview has at most {most}.")
        with self._planned(opened, request) as planned:
            plan = planned.plan
            rows = plan.preview(request.rows)
            texts = row_texts(rows)
            warnings = [words(planned.named(text)) for text in plan.warnings]
            if any(cell and len(cell) > _LONGEST for row in texts for cell in row):
                warnings.append(
                    f"Cells are cut to {_LONGEST:,} characters here; the download has all of them."
                )
            left = "" if planned.upload is not None else planned.left
            hit = planned.request.hit
            return JoinPreview(
                columns=[
                    JoinedColumn(
                        one.name, "right" if one.name in plan.brought else "left", _type(one.type)
                    )
                    for one in rows.schema
                ],
                rows=[[cell and _cut(cell) for cell in row] for row in texts],
                facts=plan.facts,
                warnings=warnings,
                sql=planned.runnable(
                    _code(lambda: planned.lake.join_sql(plan, hit.table, left), "-- ", words)
                ),
                python=python_lines(planned),
                pandas=planned.named(_code(lambda: plan.pandas_code, "# ", words)),
                shell=shell_line(planned),
                doubtful=[
                    one
                    for one in plan.doubtful(_DOUBTFUL)
                    if max(len(one.query), len(one.target)) <= _LONGEST
                ],
            )

    def file(
        self, opened: Opened, request: JoinRequest, form: str, neutralise: bool
    ) -> tuple[str, IO[bytes]]:
        """Run a join; return what to call it, and a file that disappears when it is closed."""
        check_format(form, neutralise)
        with (
            self._planned(opened, request) as planned,
            tempfile.TemporaryDirectory(dir=self._answers) as folder,
        ):
            check_rows(planned.plan, self._settings.max_rows)
            path = Path(folder, f"joined.{form}")
            (planned.plan.neutralised() if neutralise else planned.plan).write(
                path, self._settings.max_joined
            )
            return joined_name(planned.left, request.hit.table), path.open("rb")

    def keep(self, opened: Opened, request: JoinRequest) -> UploadDescription:
        """Keep the joined table as an upload, to search and join on with it."""
        with self._planned(opened, request) as planned:
            check_rows(planned.plan, self._settings.max_rows)
            name = f"{joined_name(planned.left, request.hit.table)}.parquet"
            return self._uploads.describe(self._uploads.of_join(planned.plan, name))

    def save(
        self,
        opened: Opened,
        request: JoinRequest,
        form: TableFormat = "csv",
        neutralise: Neutralise = False,
        name: Annotated[str, Query(max_length=1000)] = "",
    ) -> SavedJoin:
        """Write the joined table into the output folder, if the service has one."""
        check_format(form, neutralise)
        out = self._settings.out
        if out is None:
            raise Forbidden(
                "This service is read-only: it was started without a folder to save joins in "
                "(deepjoin serve --out FOLDER). Download the joined table instead."
            )
        with self._planned(opened, request) as planned:
            most = JoinLimits(self._settings.max_rows, self._settings.max_joined)
            name = name or joined_name(planned.left, request.hit.table)
            path, rows = save_join(planned.plan, out, name, form, neutralise, most)
        return SavedJoin(path.name, rows, path.stat().st_size)

    @contextmanager
    def _planned(self, opened: Opened, request: JoinRequest) -> Iterator[PlannedJoin]:
        lake, upload, hit = opened.lake, None, request.hit
        opened.check_table(hit.table)
        if hit.column_id is not None:
            # Columns of one name differ only by their id; from here on, by what the table says.
            column = lake.index.origin(hit.table).key(hit.column, hit.column_id)
            columns = hit.columns and [column, *hit.columns[1:]]
            hit = hit.model_copy(update={"column": column, "columns": columns})
            request = request.model_copy(update={"hit": hit})
        if isinstance(request.left, UploadTable):
            upload = self._uploads.get(request.left.upload)
            left = upload.side(_names(request.on))
        else:
            opened.check_table(request.left.table)
            # Never by a path: a client names tables of the lake, and nothing else is opened.
            left = origin_side(lake.index.origin(request.left.table), _names(request.on))
        tables = [hit.table, *([] if upload else [left.table.name])]
        files = opened.files(tables)
        decisions = [(one.query, one.target, one.accepted) for one in request.decisions]
        with (
            _without_paths(files),
            nullcontext() if upload is None else upload.called(),
            lake.plan_join(
                left,
                request.on,
                (hit.table, hit.key),
                how=request.how,
                many=request.many,
                join=request.join,
                settings=JoinSettings(
                    **fields_of(JoinSettings, request)
                    | {"decisions": decisions or None, "memory_limit": self._settings.join_memory}
                ),
            ) as plan,
        ):
            yield PlannedJoin(lake, plan, request, upload, files)


@contextmanager
def _without_paths(files: Mapping[Path, str]) -> Iterator[None]:
    """Let errors name the files of the lake as clients do."""
    try:
        yield
    except UnreadableTable as error:
        raise UnreadableTable(without_paths(str(error), files), passing=error.passing) from None


def _names(on: str | list[str]) -> tuple[str, ...]:
    return (on,) if isinstance(on, str) else tuple(on)


def _code(write: Callable[[], str], comment: str, words: Callable[[str], str]) -> str:
    """Write the join as code; where that is impossible, say why in a comment."""
    try:
        return write()
    except DeepJoinError as error:
        return comment + " ".join(words(str(error)).split())


def _cut(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else cell[:_LONGEST] + "…"


def _type(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "decimal"
    return "date" if types.is_temporal(kind) else "text"


def python_lines(planned: PlannedJoin) -> str:
    """Write the join with the library."""
    request = planned.request
    options = "".join(f", {name}={value!r}" for name, value in _options(planned).items())
    judged = ", ".join(f"{name}={value!r}" for name, value in _judged(request).items())
    options += f", settings=deepjoin.JoinSettings({judged})" if judged else ""
    hit = (request.hit.table, request.hit.columns or request.hit.column)
    return (
        "import deepjoin\n\n"
        f"lake = deepjoin.open({_location(planned)!r})\n"
        f"joined = lake.join({planned.left!r}, on={request.on!r}, hit={hit!r}{options})\n"
    )


def shell_line(planned: PlannedJoin) -> str:
    """Write the join as a command; names that start with a dash must not become options."""
    request, left = planned.request, planned.left
    words = ["deepjoin", "join", _location(planned), f"./{left}" if left.startswith("-") else left]
    words += [f"--column={name}" for name in _names(request.on)]
    target = request.hit.column if request.hit.columns is None else _option(request.hit.columns)
    words.append(f"--with={request.hit.table}:{target}")
    options = _options(planned) | _judged(request)
    words += [f"--{name}={_option(value)}" for name, value in options.items()]
    return " ".join(map(shell_quoted, [*words, "--out=joined.parquet"]))


def shell_quoted(word: str) -> str:
    r"""Quote a word for a shell so that whoever copies it sees every character of it.

    >>> print(shell_quoted("it's"), shell_quoted("it's\x1b[1m"))
    'it'"'"'s' $'it\'s\033[1m'
    """
    if word.isprintable():
        return shlex.quote(word)
    letters = []
    for letter in word:
        if letter.isprintable():
            letters.append(f"\\{letter}" if letter in "\\'" else letter)
        else:
            letters += [f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogatepass")]
    return "$'" + "".join(letters) + "'"


def _location(planned: PlannedJoin) -> str:
    """Name the index without saying where on this machine it is."""
    location = planned.lake.location
    if not isinstance(location, Path):
        return location
    parts = location.resolve().parts
    return "/".join(parts[-2:] if parts[-1] == DEFAULT else parts[-1:])


def _option(value: object) -> object:
    """Write the value of an option: aggregates as COLUMN=HOW, lists with commas."""
    if isinstance(value, dict):
        value = [how if name == "*" else f"{name}={how}" for name, how in value.items()]
    if not isinstance(value, list):
        return value
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue()


def _judged(request: JoinRequest) -> dict[str, object]:
    """Return the precision that was asked for, and the file that the page saves decisions in."""
    given: dict[str, object] = {} if request.precision is None else {"precision": request.precision}
    return given | ({"decisions": _DECISIONS} if request.decisions else {})


def _options(planned: PlannedJoin) -> dict[str, object]:
    """Return the options that differ from their defaults."""
    usual: dict[str, object] = {"how": "left", "many": "expand", "matching": "best"}
    names = ("how", "many", "join", "columns", "aggregate", "tau", "matching")
    given = {name: getattr(planned.request, name) for name in names}
    if given["join"] == "any":
        del given["join"]
    return {name: value for name, value in given.items() if value not in (None, usual.get(name))}
