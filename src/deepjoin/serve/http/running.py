"""Start and stop the service: its address, its connections, its private folder, its processes.

Connections cannot be held open without use: headers, requests, silence and number are bounded
before the token is read, so this holds for anyone who can reach the port. uvicorn bounds none of it
with httptools, and the time-out it has starts only after a first response.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from deepjoin.errors import DeepJoinError
from deepjoin.files import TemporaryFolder
from deepjoin.memory import JOIN_SPACE, check_address_space
from deepjoin.serve.http.app import create_app
from deepjoin.serve.http.service import share_counters
from deepjoin.serve.http.settings import ServerSettings

if TYPE_CHECKING:
    from asyncio.events import TimerHandle


#: Bytes of a request line and its headers; one read of the socket (256 KB) may come on top.
_MOST_HEAD = 64 * 1024
#: Headers of a request: each takes far more memory than its bytes.
_MOST_HEADERS = 256
#: Requests that a client may send before the first of them is answered.
_MOST_WAITING = 16
#: Seconds in which the headers must be complete, however slowly they drip.
_HEAD_SECONDS = 10
#: Seconds a client may be silent while its request's body is awaited, and seconds in which it must
#: take what is kept for it (64 KB) of an answer.
_BODY_SECONDS = 30
#: Connections of a worker: at least, at most, and for how many seconds a count holds.
_LEAST_OPEN, _MOST_OPEN, _COUNTED = 16, 4096, 1.0
_LOG = logging.getLogger("deepjoin.serve.http")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Connections that may wait to be accepted.
_BACKLOG = 2048
#: Seconds after which a silent worker counts as dead.
_SILENT = 60
#: Seconds between looks at signals and workers; seconds that requests have to finish when the
#: service stops, and workers to end after that. A busy machine takes some more to end processes.
_LOOK, _GRACE, _ENDED = 0.1, 0.8, 0.5


def most_open(held: int) -> int:
    """Return how many connections a worker keeps, of which it holds some.

    A third of the descriptors that nothing else has: an upload takes two, and an open index one for
    each of its files.
    """
    try:
        resource = importlib.import_module("resource")
    except ImportError:  # Windows has no such limit
        return _MOST_OPEN
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_OPEN
    others = 0
    with suppress(OSError):
        others = len(os.listdir("/dev/fd")) - held
    return max(min((int(soft) - others) // 3, _MOST_OPEN), _LEAST_OPEN)


class _Refused(Exception):
    """Stop parsing what a client has sent: it is refused already."""


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, closed when a request does not arrive or an answer is not taken."""

    #: How many connections are kept, and until when that holds: an index may be opened meanwhile.
    most_open, _counted_until = 0, float("-inf")
    _timer: TimerHandle | None = None
    #: The clock of an answer that the client does not take, and since when it does not.
    _taking: TimerHandle | None = None
    _untaken_since = 0.0
    _head_bytes = 0
    _awaits_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first headers; make room if there are too many connections."""
        super().connection_made(transport)
        now = self.loop.time()
        self._heard = now
        self._expect_head()
        kind = type(self)
        if now >= kind._counted_until:
            kind.most_open = most_open(len(self.connections))
            kind._counted_until = now + _COUNTED
        if len(self.connections) > self.most_open:
            others = [
                one
                for one in self.connections
                if isinstance(one, BoundedConnection) and one is not self and one._is_waiting
            ]
            # One without a request before one whose body or whose reading is awaited, and of these
            # the longest silent: a client that means to ask does so within milliseconds.
            min(others, key=lambda one: one._silence, default=self)._drop()

    @property
    def _is_mid_body(self) -> bool:
        return self.cycle is not None and bool(self.cycle.more_body)

    @property
    def _silence(self) -> tuple[bool, float]:
        """Return what is dropped first when there are too many connections."""
        if self._taking is not None:
            return True, self._untaken_since
        return self._is_mid_body, self._heard

    @property
    def _is_waiting(self) -> bool:
        """Whether it is the client's turn: no request is being worked on, or it does not read."""
        if self._taking is not None:
            return True
        is_idle = self.cycle is None or self.cycle.response_complete
        return not self.transport.is_closing() and (
            self._awaits_head or is_idle or self._is_mid_body
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop_clock()
        self._stop_taking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes before the headers are complete."""
        self._heard = self.loop.time()
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._awaits_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD:
                self._refuse("431 Request Header Fields Too Large")
        elif self._is_mid_body and not self.cycle.response_complete:
            self._start_clock(_BODY_SECONDS)

    def on_message_begin(self) -> None:
        """Start the clock of a request that follows another on the same connection."""
        if not self._awaits_head:
            self._expect_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Refuse headers after a body in chunks, which uvicorn would collect without using them."""
        if not self._awaits_head or len(self.headers) >= _MOST_HEADERS:
            self._head_bytes += 1  # counted once all is parsed, but the client has said something
            self._refuse("431 Request Header Fields Too Large")
            raise _Refused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the request take its time from here on: the service has its own limits."""
        if len(self.pipeline) >= _MOST_WAITING:
            self._drop()
            raise _Refused
        self._awaits_head = False
        self._stop_clock()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop waiting for more of the body."""
        self._stop_clock()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait only briefly for the rest of a body that is no longer needed."""
        super().on_response_complete()
        if self._is_mid_body and self.cycle.response_complete:
            self._start_clock(_HEAD_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless it was answered already."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Start the clock of an answer that the client does not take."""
        super().pause_writing()
        self._stop_taking()
        self._untaken_since = self.loop.time()
        self._taking = self.loop.call_later(_BODY_SECONDS, self._drop)

    def resume_writing(self) -> None:
        """Stop that clock."""
        super().resume_writing()
        self._stop_taking()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _drop(self) -> None:
        """Close the connection without waiting for the client to take what is left."""
        self._stop_taking()
        self.transport.abort()

    def _expect_head(self) -> None:
        self._awaits_head, self._head_bytes = True, 0
        self._start_clock(_HEAD_SECONDS)

    def _start_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self.flow.read_paused:  # we are the slow side: the service has not taken what was sent
            self._start_clock(_BODY_SECONDS)
        else:
            self._refuse("408 Request Timeout")

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: str) -> None:
        if not self.transport.is_closing():
            asked = self._head_bytes or (self.cycle and not self.cycle.response_started)
            if asked:  # else the client has said nothing, and expects no answer
                head = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                self.transport.write(head.encode())
            self.transport.close()


def serve(settings: ServerSettings, port: int, workers: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops it; ``ready`` gets the address before the first request."""
    # Its workers join, and each has the limit of this process.
    check_address_space("The service", JOIN_SPACE)
    with _listening(settings.host, port) as listener, TemporaryFolder("deepjoin-serve-") as folder:
        bound = listener.getsockname()[0]
        own = replace(settings, folder=folder, bound=bound, parent=os.getpid(), workers=workers)
        config = uvicorn.Config(
            partial(_app, own),
            factory=True,
            http=BoundedConnection,
            ws="none",  # a connection that became a web socket would be bounded by nothing
            workers=workers,
            # Access logs would record what clients search for.
            access_log=False,
            log_level=logging.WARNING,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,  # type: ignore[arg-type]  # only asyncio uses it
            # Any client can forge these headers.
            proxy_headers=False,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready(f"http://{host}:{listener.getsockname()[1]}/")
        share_counters(folder / "counters")
        with _signals_kept():
            supervisor = Supervisor(config, [listener])
            supervisor.run()
    if any(one.exitcode == STARTUP_FAILURE for one in supervisor.processes):
        raise DeepJoinError("A worker could not start; the line above says why.")


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which does not wait for a worker that is dead or busy.

    uvicorn's own asks one worker after the other and waits up to a minute for each answer, also
    from one that has just died; signals and dead workers wait as long.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        #: When each worker was asked for a sign of life; those that have answered are not here.
        self._asked: dict[int | None, float] = {}

    def run(self) -> None:
        """Watch workers and signals until one of them ends the service."""
        self.init_processes()
        while not self.should_exit.wait(_LOOK):
            self.handle_signals()
            self.keep_subprocess_alive()
        self.terminate_all()
        self.join_all()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died or are silent; stop if one cannot start."""
        for place, worker in enumerate(self.processes):
            if worker.process.is_alive():
                if not self._is_silent(worker):
                    continue
                worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                self.should_exit.set()
                return
            _LOG.error("Worker %s died (%s); another takes its place", worker.pid, _cause(worker))
            self._asked.pop(worker.pid, None)
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()

    def join_all(self) -> None:
        """Wait for the workers to end, and kill those that do not: within two seconds in all."""
        over = monotonic() + _GRACE + _ENDED
        for worker in self.processes:
            worker.process.join(max(0.0, over - monotonic()))
            if worker.process.is_alive():
                _LOG.warning("Worker %s did not stop and was killed", worker.pid)
                worker.process.kill()
                worker.join()

    def _is_silent(self, worker: Process) -> bool:
        """Ask a worker for a sign of life, unless its answer is awaited already."""
        try:
            if worker.pid not in self._asked:
                worker.parent_conn.send(b"ping")
                self._asked[worker.pid] = monotonic()
            if worker.parent_conn.poll():
                worker.parent_conn.recv()
                del self._asked[worker.pid]
        except (OSError, EOFError):  # it dies at this moment
            return False
        return monotonic() - self._asked.get(worker.pid, monotonic()) > _SILENT


def _cause(worker: Process) -> str:
    """Say how a worker ended."""
    status = worker.exitcode or 0
    return signal.strsignal(-status) or "" if status < 0 else f"status {status}"


def _app(settings: ServerSettings) -> FastAPI:
    """Make the app of a worker, or stop the service and log why it cannot start."""
    # Joins spill to the service's folder, which is deleted even if a worker is killed.
    scratch = settings.folder / "scratch"
    scratch.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    try:
        return create_app(settings)
    except DeepJoinError as error:
        _LOG.error("%s", error)
        sys.exit(STARTUP_FAILURE)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen at the address, or say why that is impossible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise DeepJoinError(f"Cannot find the host '{host}': {error.strerror}.") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise DeepJoinError(
                    f"Port {port} of {host} is in use by another program. Choose another with "
                    "`port`, or any free one with `port=0`."
                ) from None
            raise DeepJoinError(
                f"Cannot serve at {host}, port {port}: {error.strerror}. Choose others with "
                "`host` and `port`."
            ) from None
        listener.set_inheritable(True)
        yield listener


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the signal handlers afterwards: signals stop the service, not the process."""
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
