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

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from deepjoin.errors import DeepJoinError
from deepjoin.files import TemporaryFolder
from deepjoin.serve.http.app import create_app
from deepjoin.serve.http.connections import BoundedConnection
from deepjoin.serve.http.service import share_counters
from deepjoin.serve.http.settings import ServerSettings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Connections that may wait to be accepted.
_BACKLOG = 2048
#: Seconds after which a silent worker counts as dead.
_SILENT = 60


def serve(settings: ServerSettings, port: int, workers: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops it; ``ready`` gets the address before the first request."""
    with _listening(settings.host, port) as listener, TemporaryFolder("deepjoin-serve-") as folder:
        bound = listener.getsockname()[0]
        own = replace(settings, folder=folder, bound=bound, parent=os.getpid(), workers=workers)
        config = uvicorn.Config(
            partial(_app, own),
            factory=True,
            http=BoundedConnection,
            workers=workers,
            # Access logs would record what clients search for.
            access_log=False,
            log_level=logging.WARNING,
            server_header=False,
            timeout_graceful_shutdown=int(settings.seconds) + 1,
            # Any client can forge these headers.
            proxy_headers=False,
            timeout_worker_healthcheck=_SILENT,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready(f"http://{host}:{listener.getsockname()[1]}/")
        share_counters(folder / "counters")
        with _signals_kept():
            supervisor = _Workers(config, [listener])
            supervisor.run()
    if any(one.exitcode == STARTUP_FAILURE for one in supervisor.processes):
        raise DeepJoinError("A worker could not start; the line above says why.")


class _Workers(Multiprocess):
    """uvicorn's supervisor, which replaces dead workers without a word at our log level."""

    def keep_subprocess_alive(self) -> None:
        """Replace workers that ended or are silent, and log it."""
        before = list(self.processes)
        super().keep_subprocess_alive()
        for process in before:
            if process in self.processes or process.exitcode == STARTUP_FAILURE:
                continue
            code = process.exitcode or 0
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            logging.getLogger("deepjoin.serve.http").warning(
                "Worker %s ended with %s and was replaced; the requests it worked on are lost. If "
                "this happens again, use fewer workers or more memory.",
                *(process.pid, how),
            )


def _app(settings: ServerSettings) -> FastAPI:
    """Make the app of a worker, or stop the service and log why it cannot start."""
    # Joins spill to the service's folder, which is deleted even if a worker is killed.
    scratch = settings.folder / "scratch"
    scratch.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    try:
        return create_app(settings)
    except DeepJoinError as error:
        logging.getLogger("deepjoin.serve.http").error("%s", error)
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
