"""Run the quick tests on every Python here and with the oldest dependencies: ``make matrix``.

Each combination has an environment of its own under ``.matrix``. The last lines say what passed,
what failed and which interpreters were not found, so that pyproject.toml can claim what was seen.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".matrix"
PYTHONS = ("3.11", "3.12", "3.13")
#: The quick tests, without the checks that a platform may lack the extras for.
MARKS = "not slow and not train and not ray and not postgres and not page"


def interpreter(version: str) -> str | None:
    """Find a Python by its version: on the path, or where pyenv keeps them."""
    on_path = shutil.which(f"python{version}")
    candidates = [on_path] if on_path else []
    candidates += [str(p) for p in Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")]
    for candidate in candidates:
        # A pyenv shim is on the path for versions that are not switched on: ask before trusting it.
        answer = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.startswith(f"Python {version}."):
            return candidate
    return None


def oldest() -> list[str]:
    """Return every dependency of the quick environment pinned to the oldest version allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in ("excel", "pandas", "polars", "server", "mcp", "baselines", "sql", "postgres"):
        wanted += project["optional-dependencies"][extra]
    pins = []
    for line in wanted:
        found = re.match(r"([\w.-]+)(?:\[[\w,]*\])?>=([\w.]+)", line)
        if found:
            pins.append(f"{found[1]}=={found[2]}")
    return pins


def tried(name: str, python: str, pins: list[str]) -> bool:
    """Make one environment and run the quick tests in it."""
    venv = PLACE / name
    subprocess.run([python, "-m", "venv", "--clear", str(venv)], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if pins:
        constraints = PLACE / f"{name}.txt"
        constraints.write_text("\n".join(pins) + "\n")
        pip += ["-c", str(constraints)]
    installed = subprocess.run([*pip, "-r", str(ROOT / "requirements-quick.txt")], cwd=ROOT)
    if installed.returncode:
        return False
    tests = [str(venv / "bin/python"), "-m", "pytest", "-n", "2", "--doctest-ignore-import-errors"]
    return subprocess.run([*tests, "-m", MARKS], cwd=ROOT).returncode == 0


def main() -> int:
    """Try all combinations, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="e.g. 3.12 oldest; default: all")
    chosen = parser.parse_args().names or [*PYTHONS, "oldest"]
    PLACE.mkdir(exist_ok=True)
    results = {}
    for name in chosen:
        python = interpreter("3.11" if name == "oldest" else name)
        if python is None:
            results[name] = "not tried: no such interpreter here"
            continue
        passed = tried(name, python, oldest() if name == "oldest" else [])
        results[name] = "passed" if passed else "FAILED"
    for name, result in results.items():
        print(f"{name:8} {result}")
    return int("FAILED" in results.values())


if __name__ == "__main__":
    sys.exit(main())
