"""Build a wheel, install it into an empty environment and run the README: ``make wheel-check``.

An editable install hides files that the wheel lacks; this does what a user does instead. The
blocks of the README run in their order in an empty folder. ``--here`` takes what the wheel needs
from the current environment, which is what the tests do: they install nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What lines of the README come to where the package is installed and on the path.
INSTALLED = {"make demo": "deepjoin demo", "source .venv/bin/activate": "true"}
#: What the README promises and does not show: the paper's method, and that nothing heavy loads.
BEYOND = """
import deepjoin, sys
lake = deepjoin.open("deepjoin-demo/lake/.deepjoin")
hits = lake.search(["France", "Japan", "Brazil"], k=3)
assert hits[0].joinability == 1.0 and hits[0].matched == 3, hits
assert lake.search(["France", "Japan"], k=1, method="deepjoin")
assert not {"torch", "ray", "fastapi"} & set(sys.modules)
"""


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the code blocks of a page with their languages: sh, python, or text for output."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run_story(folder: Path, python: Path, environment: Mapping[str, str]) -> None:
    """Run the blocks of the README in a folder, with the commands that are beside ``python``.

    A block of text must be part of what the block before it printed.
    """
    path = f"{python.parent}{os.pathsep}{environment.get('PATH', '')}"
    env = {**environment, "PATH": path}
    printed = ""
    for language, code in [*blocks((ROOT / "README.md").read_text("utf-8")), ("python", BEYOND)]:
        if language == "text":
            seen = [line.split() for line in printed.splitlines()]
            for line in code.splitlines():
                if line.split() not in seen:
                    raise SystemExit(f"README.md shows a line that was not printed: {line}")
            continue
        lines = (INSTALLED.get(line, line) for line in code.splitlines())
        script = code if language == "python" else "\n".join(lines)
        command = [str(python), "-"] if language == "python" else ["bash", "-eux"]
        done = subprocess.run(
            command, input=script, cwd=folder, env=env, stdout=subprocess.PIPE, text=True
        )
        print(done.stdout, flush=True)
        if done.returncode:
            raise SystemExit(f"A block of README.md failed:\n{code}")
        printed = done.stdout


def main() -> int:
    """Run the first five minutes with nothing but the wheel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--here",
        action="store_true",
        help="install the wheel alone, beside the packages of this environment",
    )
    is_here = parser.parse_args().here
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DEEPJOIN"))}

    def run(*command: str | Path, cwd: Path) -> None:
        print("$", " ".join(Path(part).name for part in command[:1]), *command[1:], flush=True)
        subprocess.run([str(part) for part in command], cwd=cwd, env=clean, check=True)

    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
        run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
        python = place / "venv" / "bin" / "python"
        run(*pip, "wheel", "--no-deps", "-w", place / "dist", ROOT, cwd=place)
        (wheel,) = (place / "dist").glob("*.whl")
        run(*pip, "--python", python, "install", *["--no-deps"] * is_here, wheel, cwd=place)
        if is_here:
            # Its .pth files are not read, so an editable install of ours stays out of sight.
            (site,) = (place / "venv").glob("lib/python*/site-packages")
            packages = [path for path in sys.path if path.endswith("-packages")]
            (site / "here.pth").write_text("\n".join(packages))
        where = f"import deepjoin; assert {str(place)!r} in deepjoin.__file__, deepjoin.__file__"
        run(python, "-c", where, cwd=place)
        empty = place / "empty"
        empty.mkdir()
        run_story(empty, python, clean)
        print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB: installed and used")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"wheel-check failed: {' '.join(map(str, failed.cmd))}")
