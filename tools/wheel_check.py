"""Build a wheel, install it into an empty environment and use it there: ``make wheel-check``.

An editable install hides files that the wheel lacks; this does what a user does instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
USE = """
import deepjoin, sys
assert "site-packages" in deepjoin.__file__, deepjoin.__file__
lake = deepjoin.open("deepjoin-demo/lake/.deepjoin")
hits = lake.search(["France", "Japan", "Brazil"], k=3)
assert hits[0].joinability == 1.0 and hits[0].matched == 3, hits
assert lake.search(["France", "Japan"], k=1, method="deepjoin")
assert not {"torch", "ray", "fastapi"} & set(sys.modules)
print(hits)
"""


def main() -> int:
    """Run the story of the first five minutes with nothing but the wheel."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DEEPJOIN"))}

    def run(*command: str | Path, cwd: Path) -> None:
        print("$", " ".join(Path(part).name for part in command[:1]), *command[1:], flush=True)
        subprocess.run([str(part) for part in command], cwd=cwd, env=clean, check=True)

    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        pip = ("-m", "pip", "-q", "--disable-pip-version-check")
        run(sys.executable, "-m", "venv", place / "venv", cwd=place)
        python = place / "venv" / "bin" / "python"
        run(python, *pip, "wheel", "--no-deps", "-w", place / "dist", ROOT, cwd=place)
        (wheel,) = (place / "dist").glob("*.whl")
        run(python, *pip, "install", wheel, cwd=place)
        run(python.with_name("deepjoin"), "demo", cwd=place)
        run(python, "-c", USE, cwd=place)
        print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB: installed and used")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"wheel-check failed: {' '.join(map(str, failed.cmd))}")
