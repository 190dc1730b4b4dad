"""Peak memory of a build: what the process holds, and what it has mapped.

python benchmarks/build_memory.py SOURCE --memory 500M
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def peaks(command: list[str]) -> dict[str, int]:
    """Run a command; return the peaks of RssAnon and RssFile in MB, sampled every 20 ms."""
    found = {"RssAnon": 0, "RssFile": 0}
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
            except OSError:
                break
            for name, size in re.findall(r"(RssAnon|RssFile):\s+(\d+)", status):
                found[name] = max(found[name], int(size) >> 10)
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"The build failed with {process.returncode}.")
    return found


def main() -> None:
    """Build an index in a scratch folder and print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("--memory", default="2G")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "deepjoin",
            "index",
            options.source,
            "-o",
            folder + "/index",
        ]
        found = peaks([*command, "--memory", options.memory])
        seconds = time.perf_counter() - start
    print(f"--memory {options.memory}: held {found['RssAnon']} MB, mapped {found['RssFile']} MB, "
          f"{seconds:.1f} s")  # fmt: skip


if __name__ == "__main__":
    main()
