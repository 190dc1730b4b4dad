"""Building and starting: columns a second, peak memory, index size, and how fast things start.

CORPUS is a column corpus or a folder of tables; its index is rebuilt in the work folder by
`deepjoin.index`, in a separate process. Start-up times are medians of whole processes; the
time of an empty Python process is given beside them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median
from time import perf_counter

import deepjoin
from common import (
    RUNS,
    Row,
    command_line,
    emit,
    folder_bytes,
    in_child,
    machine,
    memory,
    most_anonymous,
    process_seconds,
    say,
    show,
)
from deepjoin.lab.evaluation.cache import SETTINGS
from deepjoin.read.corpus import is_corpus

#: In a new virtual environment before anything is installed.
_TOOLS = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack", "distutils")


def measure(corpus: Path, index: Path, memory_bytes: int) -> Row:
    """Build an index in a separate process and measure it."""
    shutil.rmtree(index, ignore_errors=True)
    row = in_child("build.build", corpus, index, memory_bytes)
    size = folder_bytes(index)
    return row | {
        "columns_a_second": row["columns"] / row["build_s"],
        "cells_a_second": row["cells"] / row["build_s"],
        "index_mb": size / 1e6,
        "bytes_a_column": size / row["columns"],
        "bytes_a_cell": size / row["cells"],
        "corpus_mb": _corpus_bytes(corpus) / 1e6,
    }


def build(corpus: str, index: str, memory_bytes: str) -> None:
    """Build an index and print time and memory; a corpus uses the settings of evaluations."""
    settings = SETTINGS if is_corpus(Path(corpus)) else deepjoin.Settings()
    started = perf_counter()
    how = deepjoin.BuildSettings(memory=int(memory_bytes))
    with most_anonymous() as held:
        lake = deepjoin.index(corpus, index, settings=settings, build=how)
    seconds = perf_counter() - started
    report = lake.report
    counts = {name: getattr(report, name) for name in ("tables", "columns", "values", "cells")}
    print(json.dumps(counts | {"build_s": seconds, "profile": settings.profile} | held | memory()))


def _corpus_bytes(corpus: Path) -> int:
    columns = corpus / "columns.parquet"
    return columns.stat().st_size if columns.exists() else folder_bytes(corpus)


def start(index: Path) -> Row:
    """Time whole processes, and opening the index in a fresh one."""
    python = sys.executable
    return {
        "runs": RUNS,
        "empty_python_ms": 1e3 * process_seconds([python, "-c", "pass"]),
        "import_ms": 1e3 * process_seconds([python, "-c", "import deepjoin"]),
        "help_ms": 1e3 * process_seconds([python, "-m", "deepjoin", "--help"]),
        "info_ms": 1e3 * process_seconds([python, "-m", "deepjoin", "info", str(index)]),
        "open_ms": median(in_child("common.opening", index)["open_ms"] for _ in range(RUNS)),
    }


def install(folder: Path, project: Path) -> Row:
    """Install the project into a fresh virtual environment and sum its size."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", str(project)]
    subprocess.run(pip, check=True, stdout=sys.stderr)
    (packages,) = folder.glob("lib/python*/site-packages")
    sizes: dict[str, int] = {}
    for part in packages.iterdir():
        name = part.name.partition("-")[0].removesuffix(".libs")
        if name not in _TOOLS and part.name not in _TOOLS:
            size = folder_bytes(part) if part.is_dir() else part.stat().st_size
            sizes[name] = sizes.get(name, 0) + size
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:8]
    return {
        "installed_mb": sum(sizes.values()) / 1e6,
        "largest_mb": {name: round(sizes[name] / 1e6, 1) for name in largest},
    }


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("corpus", type=Path, metavar="CORPUS")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for the index (default: here)")
    add("--memory", type=int, default=1 << 30, metavar="BYTES", help="of `deepjoin.index` (1 GiB)")
    add("--repeats", type=int, default=1, metavar="N", help="builds; the median is reported")
    add("--install", action="store_true", help="also the size of a default install (needs pip)")
    given = parser.parse_args()
    corpus, index = given.corpus.absolute(), given.workdir / f"{given.corpus.name}.build"
    emit("build", corpus=corpus.name, machine=machine())
    rows = []
    for number in range(given.repeats):
        say(f"build {number + 1} of {given.repeats}")
        rows.append(measure(corpus, index, given.memory))
        emit("build", what="one build", **rows[-1])
    middle = sorted(rows, key=lambda row: row["build_s"])[len(rows) // 2]
    started = start(index)
    emit("build", what="start", **started)
    if given.install:
        say("installing")
        project = Path(__file__).resolve().parents[1]
        row = emit("build", what="install", **install(given.workdir / "install-venv", project))
        started["installed_mb"] = row["installed_mb"]
    keys = ("columns_a_second", "build_s", "peak_mb", "index_mb", "bytes_a_column")
    show([keys, [middle[key] for key in keys]])
    show([list(started), list(started.values())])


if __name__ == "__main__":
    main()
