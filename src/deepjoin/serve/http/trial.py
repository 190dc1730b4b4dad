"""Reads a file of a client's in a process of its own: what unpacks to too much ends that alone.

A workbook of a kilobyte can ask for a sheet of terabytes, and a Parquet file repeat a long value
for nothing; the libraries that read them ask for that memory at once, and abort without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deepjoin.errors import DeepJoinError
from deepjoin.read.formats import format_of, read_file, true_format
from deepjoin.serve.http.problems import Refused, TooLarge, TooSlow

#: A file may unpack to so many times the bytes that it may have.
UNPACKED = 10
#: Bytes that reading needs beside what is read.
_BESIDE = 512 << 20
_READABLE, _UNREADABLE = 0, 3
_MODEST = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}


def unpacks_to_too_much(max_upload: int) -> TooLarge:
    """Build the error for a file that is small only as long as it is packed."""
    return TooLarge(
        f"The file unpacks to more than {UNPACKED * max_upload:,} bytes, the limit of this "
        "service. Send some of it, or start it with a higher --max-upload."
    )


def try_to_read(path: Path, max_upload: int, seconds: float) -> None:
    """Read a file elsewhere first, if its format tells only when read how large it is."""
    if true_format(path) not in ("excel", "parquet"):
        return
    command = [sys.executable, "-P", "-m", __name__, str(path), str(UNPACKED * max_upload)]
    try:
        done = subprocess.run(
            command,
            env=os.environ | _MODEST,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TooSlow(f"The file was not read after {seconds:g} seconds. Send less.") from None
    if done.returncode == _UNREADABLE:
        raise Refused(done.stdout.decode("utf-8", "replace"))
    if done.returncode != _READABLE:
        raise unpacks_to_too_much(max_upload)


def main(path: Path, most: int) -> int:
    """Read a file to its end in bounded memory; what is wrong with it is printed."""
    _limit(most + _BESIDE)
    size = 0
    try:
        for batch in read_file(path, format_of(path.name) or "delimited"):
            size += batch.nbytes
            if size > most:
                return 1
    except DeepJoinError as error:
        # Libraries report that there is no memory as they report damage.
        if isinstance(error.__context__, MemoryError):
            return 1
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return _UNREADABLE
    return _READABLE


def _limit(most: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    # Not the address space: libraries reserve more of that than they use.
    _, allowed = resource.getrlimit(resource.RLIMIT_DATA)
    if allowed == resource.RLIM_INFINITY or most < allowed:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
