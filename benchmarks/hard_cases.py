"""Cases of `hard.py`: each kind makes cases from random numbers, runs one, and makes smaller ones.

A case is plain JSON, so that a failing one can be kept as a file and run again. Running one raises
if a promise does not hold; the cases reuse what the tests and the other scripts here check.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import deepjoin
from deepjoin.demo import write_demo_lake
from fuzz_files import outcome_of
from fuzz_grammar import Fuzzed, fuzzed

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.crash import OPERATIONS, Trial
from tests.support.histories import answers, merging, replayed, write
from tests.support.power import LOSSES
from tests.support.serving import serving

#: A case: plain JSON values.
Case = dict[str, Any]


class Kind(ABC):
    """A kind of case."""

    #: How often its cases come, among all.
    weight = 1.0

    @abstractmethod
    def make(self, random: Random) -> Case:
        """Make a case."""

    @abstractmethod
    def run(self, case: Case, place: Path) -> None:
        """Run a case in an empty folder; raise if a promise does not hold."""

    def smaller(self, case: Case) -> Iterator[Case]:
        """Return cases that are simpler, to find the simplest one that fails."""
        return iter(())

    def every(self) -> Iterator[Case]:
        """Return all cases, where they can be counted."""
        return iter(())


class Kills(Kind):
    """An operation is killed at a moment or a step, often right beside a rename: the commit."""

    weight = 3

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="deepjoin-hard-", dir=_memory()))
        self._trials: dict[str, Trial] = {}
        self._steps: dict[str, list[str]] = {}

    def close(self) -> None:
        """Remove what the trials have written."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _trial(self, operation: str) -> Trial:
        if operation not in self._trials:
            self._trials[operation] = Trial(operation, self._place / operation)
        return self._trials[operation]

    def _steps_of(self, operation: str) -> list[str]:
        if operation not in self._steps:
            self._steps[operation] = self._trial(operation).steps()
        return self._steps[operation]

    def _step(self, random: Random, operation: str) -> int:
        steps = self._steps_of(operation)
        renames = [number for number, name in enumerate(steps, 1) if name == "os.rename"]
        if renames and random.random() < 0.5:
            return max(1, random.choice(renames) + random.choice((-1, 0, 1, 2)))
        return random.randint(1, len(steps) + 1)

    def make(self, random: Random) -> Case:
        """Choose an operation and a step, or a moment."""
        operation = random.choice(list(OPERATIONS))
        case: Case = {"operation": operation, "step": self._step(random, operation)}
        if random.random() < 0.4:
            case["loss"] = random.choice(list(LOSSES))
        elif random.random() < 0.2:
            case["seconds"] = random.uniform(0, self._trial(operation).usual_seconds())
        return case

    def every(self) -> Iterator[Case]:
        """Kill each operation at each step, and cut the power at every tenth and each rename."""
        for operation in OPERATIONS:
            steps = self._steps_of(operation)
            renames = [number + 1 for number, name in enumerate(steps, 1) if name == "os.rename"]
            for step in range(1, len(steps) + 2):
                yield {"operation": operation, "step": step}
            for step in sorted({*range(1, len(steps) + 1, 10), *renames, len(steps) + 1}):
                for loss in LOSSES:
                    yield {"operation": operation, "step": step, "loss": loss}

    def run(self, case: Case, place: Path) -> None:
        """Kill the operation or cut the power; the state before or after must be left."""
        trial = self._trial(case["operation"])
        if "loss" in case:
            trial.cut_at(case["step"], case["loss"])
        elif "seconds" in case:
            trial.killed_after(case["seconds"])
        else:
            trial.killed_at(case["step"])


class Histories(Kind):
    """A folder changes step by step, its lake now and then; a clean build must answer the same."""

    weight = 3
    _FILES = ("a.csv", "b.csv", "geo/a.csv", "geo/b.tsv", "c.json")
    _CELLS = (*"abcdefgh", "A", " b", "1", "2", "3", "1999")

    def make(self, random: Random) -> Case:
        """Choose the steps."""

        def frame() -> dict[str, list[str]]:
            names = random.sample(["x", "y", "name"], random.randint(1, 2))
            rows = random.randint(0, 9)
            return {name: random.choices(self._CELLS, k=rows) for name in names}

        moves: list[list[Any]] = []
        for _ in range(random.randint(1, 12)):
            step = random.choice(
                ("write", "write", "delete", "rename", "touch", "refresh", "compact")
            )
            name = random.choice(self._FILES)
            what = frame() if step == "write" else random.choice(self._FILES)
            moves.append([step, name, what])
        return {"moves": moves, "often": random.random() < 0.5}

    def run(self, case: Case, place: Path) -> None:
        """Go through the steps, and compare with a clean build."""
        folder, settings = place / "data", deepjoin.Settings(min_distinct=1)
        write(folder / "a.csv", {"x": list("abcabd"), "y": list("123456")})
        write(folder / "stays.csv", {"x": list("gh")})
        moves = [(step, name, what) for step, name, what in case["moves"]]
        with merging(case["often"]):
            lake = deepjoin.index(folder, place / "many", settings=settings)
            lake = deepjoin.index(folder, replayed(lake, folder, moves).path)
            once = deepjoin.index(folder, place / "one", settings=settings)
            same(list(answers(lake)), list(answers(once)), "the answers of a clean build")

    def smaller(self, case: Case) -> Iterator[Case]:
        """Leave a step out."""
        for number in range(len(case["moves"])):
            yield case | {"moves": case["moves"][:number] + case["moves"][number + 1 :]}


class Promises(Kind):
    """What a search says of a hit must be what the join with it gives."""

    weight = 4
    _ODD = (
        *("", " ", "A", "a", "ä", "a\u0308", "ß", "SS", "İ", "ﬁ", "1", "01", "1.0", "1e3", "-0"),
        *("N/A", "null", "\u200b", "\ufeffx", "x\ty", "x\ny", 'x"y', "x,y", "'x", "=1+1", "\x00z"),
        *("𝒳", "New York", "new  york", "Bern", "BERN", "2020-01-31", "Oslo", "Lima", "٣", None),
    )

    def make(self, random: Random) -> Case:
        """Make a table of yours and one of the lake."""

        def column(rows: int) -> list[str | None]:
            return random.choices(self._ODD, k=rows)

        rows = random.randint(1, 12)
        lake = {
            f"t{number}": {"k": column(size), "v": column(size)}
            for number in range(random.randint(1, 3))
            for size in [random.randint(1, 15)]
        }
        kind = random.choice(("equi", "equi", "any", "semantic"))
        return {"mine": column(rows), "lake": lake, "join": kind}

    def run(self, case: Case, place: Path) -> None:
        """Search, join with every hit, and compare the counts."""
        tables = {name: pa.table(columns) for name, columns in case["lake"].items()}
        settings = deepjoin.Settings(min_distinct=1)
        lake = deepjoin.index(tables, place / "index", settings=settings)
        mine = pa.table({"k": pa.array(case["mine"], pa.string())})
        for hit in lake.search(mine, 10, on="k", join=case["join"]):
            with lake.plan_join(mine, "k", hit, how="inner", join=case["join"]) as plan:
                rows, facts = plan.to_arrow().num_rows, plan.facts
            same(facts.result_rows, rows, f"the rows that {hit.table} was said to give")
            keys = facts.matched_keys + facts.ambiguous_keys
            if case["join"] == "equi":
                same(hit.equi.join_size, rows, f"the rows of {hit.table}.{hit.column}")
                same(hit.equi.matched, keys, f"the keys of {hit.table}.{hit.column}")
            same(hit.equi.matched, facts.equal_keys, f"equal keys of {hit.table}.{hit.column}")

    def smaller(self, case: Case) -> Iterator[Case]:
        """Leave out a cell of mine, a table, or a row of a table."""
        for number in range(len(case["mine"]) - 1, -1, -1):
            if len(case["mine"]) > 1:
                yield case | {"mine": case["mine"][:number] + case["mine"][number + 1 :]}
        for name, columns in case["lake"].items():
            others = {other: of for other, of in case["lake"].items() if other != name}
            if others:
                yield case | {"lake": others}
            for number in range(len(columns["k"])):
                if len(columns["k"]) > 1:
                    less = {n: c[:number] + c[number + 1 :] for n, c in columns.items()}
                    yield case | {"lake": case["lake"] | {name: less}}


class Files(Kind):
    """A malformed file is read, the same in every way, or refused with a line."""

    weight = 4

    def make(self, random: Random) -> Case:
        """Make a file."""
        while True:
            made = fuzzed(str(random.randrange(1 << 60)))
            if len(made.content) < 1 << 16:
                content = base64.b64encode(made.content).decode()
                return {"name": made.name, "content": content, "recipe": made.recipe}

    def run(self, case: Case, place: Path) -> None:
        """Read it in every way."""
        content = base64.b64decode(case["content"])
        outcome = outcome_of(Fuzzed(case["name"], content, case["recipe"]), place)
        if outcome.kind == "failed":
            raise AssertionError(outcome.reason)

    def smaller(self, case: Case) -> Iterator[Case]:
        """Leave out a half, a quarter, an eighth, a byte."""
        content = base64.b64decode(case["content"])
        size = len(content) // 2
        while size:
            for start in range(0, len(content), size):
                less = content[:start] + content[start + size :]
                yield case | {"content": base64.b64encode(less).decode()}
            size //= 2


class Requests(Kind):
    """Whatever is asked of the service, it answers in JSON, and never "failed unexpectedly"."""

    weight = 4
    _PATHS = """/api/lake /api/tables /api/find /api/table /api/search /api/search/stream
        /api/join/preview /api/join/download /api/join/save /api/join/keep /api/graph
        /api/graph/paths /api/graph/similar /api/uploads /api/uploads/values /api/uploads/x
        /healthz /metrics /api/openapi.json /api/nothing"""
    _FIELDS = """query values name table column k join method tau upload left min_joinability group
        exclude_table matches time_limit on hit how many aggregate columns matching rows column_id
        text limit depth from to longest offset format neutralise filename"""
    _TABLES = ("geo/countries.csv", "geo/cities.csv", "country", "sales/orders.csv", "no such one")
    _ODD = (
        *(0, -1, 1, 10**30, 0.5, -0.0, 1e308, True, False, None, "", "x", "any", "equi", "left"),
        *("semantic", "hybrid", "exact-equi", "exact-semantic", "tables", "inner", "first"),
        *("\x00", "\ud800", "../../etc/passwd", "a" * 3000, "csv", "parquet", "mean", "list", "🙂"),
    )

    def __init__(self) -> None:
        self._stack = ExitStack()

    def close(self) -> None:
        """Stop the service."""
        self._stack.close()

    @cache  # noqa: B019  # there is one of these
    def _served(self) -> Any:
        place = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        lake = write_demo_lake(place / "demo")
        (place / "out").mkdir()
        found = deepjoin.index(lake.folder, place / "index")
        return self._stack.enter_context(
            serving(lake.folder, found, out=place / "out", seconds=20.0)
        )

    def make(self, random: Random) -> Case:
        """Make a request: often nearly right, so that it comes far."""
        fields = self._FIELDS.split()

        def value(depth: int) -> Any:
            kind = random.random()
            if depth and kind < 0.3:
                return {
                    random.choice(fields): value(depth - 1) for _ in range(random.randint(0, 4))
                }
            if depth and kind < 0.45:
                return [value(depth - 1) for _ in range(random.randint(0, 5))]
            return random.choice((*self._ODD, *self._TABLES))

        path = random.choice(self._PATHS.split())
        query: dict[str, Any] = {}
        for _ in range(random.choice((0, 0, 1, 3))):
            query[random.choice(fields)] = random.choice((*self._ODD, *self._TABLES))
        column = {
            "table": random.choice(self._TABLES),
            "column": random.choice(("country", "city", "x")),
        }
        left = {"table": self._TABLES[1]}
        right: dict[str, Any] = {
            "/api/search": {"query": random.choice(({"values": ["Peru", None, "Itly"]}, column))},
            "/api/join/preview": {"left": left, "on": "country", "hit": column},
            "/api/uploads/values": {"values": ["Peru", "Chad", None]},
        }
        right["/api/search/stream"] = right["/api/search"]
        for what in ("download", "save", "keep"):
            right[f"/api/join/{what}"] = right["/api/join/preview"]
        body = dict(right.get(path, {}))
        for _ in range(random.choice((0, 1, 1, 2))):
            body[random.choice(fields)] = value(2)
        method = "GET" if path not in right and random.random() < 0.8 else "POST"
        return {"method": method, "path": path, "query": query, "body": body}

    def run(self, case: Case, place: Path) -> None:
        """Ask, and look at the answer."""
        query = {name: str(value) for name, value in case["query"].items()}
        answer = self._served().client.request(
            case["method"],
            case["path"],
            params={name: value.encode("utf-8", "replace") for name, value in query.items()},
            content=None if case["method"] == "GET" else json.dumps(case["body"]).encode(),
            headers={"content-type": "application/json"},
        )
        if answer.status_code >= 500 and answer.status_code != 503:
            raise AssertionError(f"{answer.status_code}: {answer.text[:300]}")
        if answer.status_code >= 400:
            error = answer.json()["error"]
            if "\n" in error or "Traceback" in error or len(error) > 5000:
                raise AssertionError(f"not one line: {error[:300]}")

    def smaller(self, case: Case) -> Iterator[Case]:
        """Leave out a field."""
        for part in ("query", "body"):
            for name in case[part]:
                less = {other: value for other, value in case[part].items() if other != name}
                yield case | {part: less}


def same(found: object, expected: object, what: str) -> None:
    """Fail unless two things are equal."""
    if found != expected:
        raise AssertionError(f"{what}: {found!r:.700} instead of {expected!r:.700}")


def _memory() -> Path | None:
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None
