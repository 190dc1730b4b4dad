"""Try to read a client's file in a process with bounded memory, which alone dies of it.

A workbook of a kilobyte can declare a sheet of terabytes, and a Parquet file can repeat a long
value for free; the libraries that read them allocate that memory at once, and abort without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deepjoin.errors import DeepJoinError
from deepjoin.read.formats import format_of, read_file, true_format
from deepjoin.serve.http.problems import Refused, TooLarge, TooSlow

#: A file may unpack to this many times the largest upload.
UNPACKED = 10
#: Bytes that reading needs besides what is read.
_BESIDE = 512 << 20
_READABLE, _UNREADABLE = 0, 3
#: Libraries that reserve memory for every core would exceed the limit before they read a byte.
_MODEST = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}


def unpacks_to_too_much(max_upload: int) -> TooLarge:
    """Build the error for a file that is small only while it is compressed."""
    return TooLarge(
        f"The file unpacks to more than {UNPACKED * max_upload:,} bytes, the limit of this "
        "service. Upload a part of it, or ask whoever runs the service to raise the limit."
    )


def try_to_read(path: Path, max_upload: int, seconds: float) -> None:
    """Read a file in another process, if its format reveals its size only when it is read."""
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
        raise TooSlow(
            f"Reading the file took longer than {seconds:g} seconds. Upload a part of it."
        ) from None
    if done.returncode == _UNREADABLE:
        raise Refused(done.stdout.decode("utf-8", "replace"))
    if done.returncode != _READABLE:
        raise unpacks_to_too_much(max_upload)


def main(path: Path, most: int) -> int:
    """Read a file to its end in bounded memory; print what is wrong with it."""
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        # Not the address space: libraries reserve more of that than they use.
        _, allowed = resource.getrlimit(resource.RLIMIT_DATA)
        if allowed == resource.RLIM_INFINITY or most + _BESIDE < allowed:
            resource.setrlimit(resource.RLIMIT_DATA, (most + _BESIDE, most + _BESIDE))
    size = 0
    try:
        for batch in read_file(path, format_of(path.name) or "delimited"):
            size += batch.nbytes
            if size > most:
                return 1
    except DeepJoinError as error:
        # Libraries report a lack of memory as they report damage.
        if isinstance(error.__context__, MemoryError):
            return 1
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return _UNREADABLE
    return _READABLE


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
