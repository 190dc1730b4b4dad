"""A default search loads few modules: those of the other methods, joins and training stay out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import deepjoin

SEARCH = """
import json, sys
import deepjoin
lake = deepjoin.open(sys.argv[1])
assert len(lake.search(["France", "Germany", "Italy"]))
print(json.dumps(sorted(sys.modules)))
"""
#: Rooms, modules and libraries that a default search does not need.
NOT_NEEDED = (
    "deepjoin.lab",
    "deepjoin.joining",
    "deepjoin.relating",
    "deepjoin.build",
    "deepjoin.search.vectors",
    "deepjoin.search.exact",
    "faiss",
    "torch",
    "duckdb",
)


@pytest.mark.slow
def test_a_default_search_loads_few_modules(lake_folder: Path, tmp_path: Path) -> None:
    deepjoin.index(lake_folder, tmp_path / "index")
    ran = subprocess.run(
        [sys.executable, "-c", SEARCH, tmp_path / "index"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = json.loads(ran.stdout)
    ours = [name for name in modules if name.split(".")[0] == "deepjoin"]
    assert len(ours) <= 96, ours
    loaded = [name for name in NOT_NEEDED if name in modules]
    assert loaded == []


COMMAND = """
import sys
from deepjoin.cli import main
assert main() == 0
assert "pandas" not in sys.modules
import pandas, pyarrow
assert pyarrow.Table.from_pandas(pandas.DataFrame({"a": [1]})).to_pandas()["a"].tolist() == [1]
"""


@pytest.mark.slow
def test_the_search_command_imports_no_pandas(lake_folder: Path, tmp_path: Path) -> None:
    """Arrow would, with the first Python value; who needs pandas can still have it."""
    deepjoin.index(lake_folder, tmp_path / "index")
    command = ["search", str(tmp_path / "index"), "--values=France,Germany"]
    subprocess.run([sys.executable, "-c", COMMAND, *command], capture_output=True, check=True)
