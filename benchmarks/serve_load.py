"""Load test of a service: response times at a steady rate, and throughput of concurrent clients.

    python benchmarks/serve_load.py INDEX CORPUS --rate 100 --seconds 300
    python benchmarks/serve_load.py INDEX CORPUS --clients 50 --seconds 60
    python benchmarks/serve_load.py INDEX CORPUS --rate 100 --refresh 'deepjoin add INDEX x.csv'
    python benchmarks/serve_load.py INDEX --beside 4 --join any --rate 5 --seconds 30

Starts `deepjoin serve INDEX` on this machine and asks it for the top 10 of the queries of CORPUS,
one after the other. With --rate, requests start on a clock whether or not earlier ones have been
answered, and times count from when a request should have started, so that a slow answer is not
hidden by the wait it causes (an open loop). With --clients, each asks again as soon as it has its
answer (a closed loop). Memory is that of the worker processes, mapped files apart. --refresh runs
a command again and again meanwhile. With --beside, small searches are measured alone and then
beside clients that search with 40,000 values each, all taken from the index; "ratio" is what the
small ones wait for the large ones. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.compute as pc

import deepjoin
from common import Row, emit, machine, percentiles, query_sets, say
from deepjoin.read.corpus import CorpusSource
from deepjoin.store.segment import Segment

#: Connections that an open loop keeps; more requests at once open more.
_IDLE = 64
#: Small queries taken from an index, and values of each.
_SMALL, _SMALL_VALUES = 50, 10
#: Values of each segment that queries are taken from.
_CONSIDERED = 1_000_000


@dataclass
class Seen:
    """The responses: times, statuses and errors."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, seconds: float, status: str) -> None:
        """Record one response."""
        self.seconds.append(seconds)
        self.statuses[status] += 1

    @property
    def errors(self) -> int:
        """The number of failed requests."""
        return sum(count for status, count in self.statuses.items() if status != "200")


class Client:
    """Connections to one service, reused when free."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, body: bytes) -> str:
        """Post a search and read the whole answer; returns its status."""
        try:
            reader, writer = await self._connected()
            writer.write(self._request(body))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
        except (OSError, asyncio.IncompleteReadError) as error:
            return type(error).__name__
        if len(self._free) < _IDLE:
            self._free.append((reader, writer))
        else:
            writer.close()
        return head[9:12].decode()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Take a connection that is free and that the service has not closed meanwhile."""
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)

    def _request(self, body: bytes) -> bytes:
        head = (
            f"POST /api/search HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return int(next(line for line in lines if line.startswith(b"content-length:"))[15:])


async def open_loop(client: Client, bodies: Iterator[bytes], rate: float, seconds: float) -> Seen:
    """Start requests on a clock; times count from when each should have started."""
    seen, started = Seen(), perf_counter()

    async def one(due: float, body: bytes) -> None:
        status = await client.ask(body)
        seen.add(perf_counter() - due, status)

    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = started + number / rate
            await asyncio.sleep(max(0.0, due - perf_counter()))
            group.create_task(one(due, next(bodies)))
    return seen


async def closed_loop(
    client: Client, bodies: Iterator[bytes], clients: int, seconds: float
) -> Seen:
    """Let so many clients ask, each as soon as it has its answer."""
    seen, stop = Seen(), perf_counter() + seconds

    async def one() -> None:
        while (started := perf_counter()) < stop:
            status = await client.ask(next(bodies))
            seen.add(perf_counter() - started, status)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(one())
    return seen


def bodies_of(corpus: Path, join: str) -> list[bytes]:
    """Write the queries of a corpus as requests."""
    queries = next(iter(query_sets(CorpusSource(corpus)).values()))
    return [
        json.dumps(
            {"query": {"values": list(query.cells), "name": query.name}, "k": 10, "join": join}
            | {"exclude_table": query.table}
        ).encode()
        for query in queries
    ]


def bodies_of_index(index: str, join: str, values: int, count: int, seed: int) -> list[bytes]:
    """Write queries of values that columns of the index hold, with a letter more: none is equal."""
    choose = np.random.default_rng(seed)
    strings = [text for one in deepjoin.open(index).index.segments for text in _texts(one)]
    queries = [choose.choice(len(strings), min(values, len(strings)), False) for _ in range(count)]
    return [
        json.dumps(
            {"query": {"values": [f"{strings[one]}s" for one in query.tolist()]}, "join": join}
        ).encode()
        for query in queries
    ]


def _texts(segment: Segment) -> list[str]:
    """Return values of a segment that are words: numbers are never compared by meaning."""
    values = segment.values.values.arrow()
    some = values.slice(0, _CONSIDERED)
    return some.filter(pc.match_substring_regex(some, "^[A-Za-z ]{4,40}$")).to_pylist()


async def beside(options: argparse.Namespace, port: int) -> Row:
    """Measure small searches alone, then while clients search with many values each."""
    small = bodies_of_index(options.index, options.join, _SMALL_VALUES, _SMALL, 0)
    large = bodies_of_index(options.index, options.join, options.values, options.beside, 1)
    asked, heavy = iter(cycle(small)), iter(cycle(large))
    client, others = Client("127.0.0.1", port), Client("127.0.0.1", port)
    await closed_loop(client, asked, 1, options.warm)
    alone = await open_loop(client, asked, options.rate, options.seconds)
    loading = asyncio.create_task(
        closed_loop(others, heavy, options.beside, options.seconds + options.warm)
    )
    await asyncio.sleep(options.warm)
    loaded = await open_loop(client, asked, options.rate, options.seconds)
    say("waiting for the large searches")
    large_seen = await loading
    one, two = percentiles(alone.seconds), percentiles(loaded.seconds)
    return {
        "alone": one | {"statuses": dict(alone.statuses)},
        "loaded": two | {"statuses": dict(loaded.statuses)},
        "large": percentiles(large_seen.seconds) | {"statuses": dict(large_seen.statuses)},
        "ratio": {name: two[name] / one[name] for name in one},
    }


@contextmanager
def serving(index: str, workers: int) -> Iterator[tuple[int, int]]:
    """Start a service; gives its process and its port."""
    command = [sys.executable, "-m", "deepjoin", "serve", index, "--port", "0"]
    command += ["--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://" in line)
        yield process.pid, int(line.rstrip().rstrip("/").rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def worker_memory(parent: int) -> list[float]:
    """Return the memory of each worker in MB, without mapped files."""
    found = []
    for process in _workers(parent):
        status = Path(f"/proc/{process}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("RssAnon"))
        found.append(int(line.split()[1]) * 1024 / 1e6)
    return found


def worker_seconds(parent: int) -> float:
    """Return the processor time that all workers have used."""
    stats = (Path(f"/proc/{one}/stat").read_text().rpartition(")")[2] for one in _workers(parent))
    return sum(sum(map(int, stat.split()[11:13])) for stat in stats) / os.sysconf("SC_CLK_TCK")


def _workers(parent: int) -> list[int]:
    """Find the workers among the children: they are spawned."""
    return [one for one in _children(parent) if b"spawn_main" in _command(one)]


def _children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _command(process: int) -> bytes:
    """Return the command line of a process."""
    return Path(f"/proc/{process}/cmdline").read_bytes()


async def refreshed(command: str, every: float) -> int:
    """Run a command again and again until cancelled; it must succeed."""
    while True:
        process = await asyncio.create_subprocess_exec(*shlex.split(command))
        if await process.wait():
            sys.exit(f"The refresh failed: {command}")
        await asyncio.sleep(every)


async def measured(options: argparse.Namespace, pid: int, port: int) -> Row:
    """Warm up, measure, and look at memory before and after."""
    bodies = bodies_of(Path(options.corpus), options.join)
    client = Client("127.0.0.1", port)
    asked = iter(cycle(bodies))
    await closed_loop(client, asked, 4, options.warm)
    before, worked = worker_memory(pid), worker_seconds(pid)
    refreshing = None
    if options.refresh:
        refreshing = asyncio.create_task(refreshed(options.refresh, options.refresh_every))
    started = perf_counter()
    if options.clients:
        seen = await closed_loop(client, asked, options.clients, options.seconds)
    else:
        seen = await open_loop(client, asked, options.rate, options.seconds)
    taken = perf_counter() - started
    if refreshing is not None:
        refreshing.cancel()
    return {
        "requests": len(seen.seconds),
        "requests_per_second": len(seen.seconds) / taken,
        "errors": seen.errors,
        "statuses": dict(seen.statuses),
        **percentiles(seen.seconds),
        "worker_cpu_ms": 1e3 * (worker_seconds(pid) - worked) / len(seen.seconds),
        "workers_mb_before": [round(one, 1) for one in before],
        "workers_mb_after": [round(one, 1) for one in worker_memory(pid)],
    }


def main() -> None:
    """Read the options, serve, load, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("index")
    parser.add_argument("corpus", nargs="?", help="a folder with queries.parquet")
    parser.add_argument("--rate", type=float, default=100, help="requests a second, open loop")
    parser.add_argument("--clients", type=int, help="so many in a closed loop instead")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm", type=float, default=5, help="seconds of load before")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--join", choices=("equi", "any", "semantic"), default="equi")
    parser.add_argument("--beside", type=int, default=0, help="clients with large searches")
    parser.add_argument("--values", type=int, default=40_000, help="values of a large search")
    parser.add_argument("--refresh", help="a command to run meanwhile, again and again")
    parser.add_argument("--refresh-every", type=float, default=5, help="seconds between two")
    options = parser.parse_args()
    if not options.beside and options.corpus is None:
        parser.error("CORPUS is missing; only --beside takes its queries from the index")
    with serving(options.index, options.workers) as (pid, port):
        say(f"loading http://127.0.0.1:{port} for {options.seconds:g} s")
        if options.beside:
            row = asyncio.run(beside(options, port))
        else:
            row = asyncio.run(measured(options, pid, port))
    kept = ("rate", "clients", "seconds", "workers", "join", "refresh", "beside", "values")
    asked = {name: getattr(options, name) for name in kept}
    emit("serve_load", **asked, **row, **machine())


if __name__ == "__main__":
    main()
