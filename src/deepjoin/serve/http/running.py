"""Start and stop the service: its address, its private folder and its worker processes."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from deepjoin.errors import DeepJoinError
from deepjoin.files import TemporaryFolder
from deepjoin.memory import JOIN_SPACE, check_address_space
from deepjoin.serve.http.app import create_app
from deepjoin.serve.http.connections import BoundedConnection
from deepjoin.serve.http.service import share_counters
from deepjoin.serve.http.settings import ServerSettings

_LOG = logging.getLogger("deepjoin.serve.http")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Connections that may wait to be accepted.
_BACKLOG = 2048
#: Seconds after which a silent worker counts as dead.
_SILENT = 60
#: Seconds between looks at signals and workers; seconds that requests have to finish when the
#: service stops, and workers to end after that. A busy machine takes some more to end processes.
_LOOK, _GRACE, _ENDED = 0.1, 0.8, 0.5


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
