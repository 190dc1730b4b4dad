"""Starts and stops the service: one address, a private folder, and its worker processes."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from deepjoin.errors import DeepJoinError
from deepjoin.serve.http.app import create_app
from deepjoin.serve.http.metrics import share_counters
from deepjoin.serve.http.settings import ServerSettings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Connections that may wait to be taken.
_BACKLOG = 2048
#: Seconds after which a worker that says nothing is taken for dead.
_SILENT = 60


def serve(settings: ServerSettings, port: int, workers: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``ready`` is told the address before the first request."""
    with _listening(settings.host, port) as listener, private_folder() as folder:
        bound = listener.getsockname()[0]
        own = replace(settings, folder=folder, bound=bound, parent=os.getpid(), workers=workers)
        config = uvicorn.Config(
            partial(_app, own),
            factory=True,
            workers=workers,
            # Access logs would hold what clients ask for.
            access_log=False,
            log_level=logging.WARNING,
            server_header=False,
            timeout_graceful_shutdown=int(settings.seconds) + 1,
            # Their senders are not to be believed.
            proxy_headers=False,
            timeout_worker_healthcheck=_SILENT,
        )
        ready(_address(settings.host, listener))
        share_counters(folder / "counters")
        with _signals_kept():
            supervisor = Multiprocess(config, [listener])
            supervisor.run()
    if any(one.exitcode == STARTUP_FAILURE for one in supervisor.processes):
        raise DeepJoinError("A worker could not start; the line above says why.")


def _app(settings: ServerSettings) -> FastAPI:
    """Make the app of a worker, or end the service with the line that says why it cannot be."""
    _use_scratch(settings.folder / "scratch")
    try:
        return create_app(settings)
    except DeepJoinError as error:
        logging.getLogger("deepjoin.serve.http").error("%s", error)
        sys.exit(STARTUP_FAILURE)


def _use_scratch(folder: Path) -> None:
    """Keep what joins write aside in the service's folder: it goes even if a worker is killed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that is this user's alone, and is gone afterwards with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="deepjoin-serve-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Take the address, or say who has it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise DeepJoinError(f"No address is called '{host}': {error.strerror}.") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise _unusable(host, port, error) from None
        listener.set_inheritable(True)
        yield listener


def _unusable(host: str, port: int, error: OSError) -> DeepJoinError:
    if error.errno == errno.EADDRINUSE:
        return DeepJoinError(
            f"Port {port} of {host} is taken by another program. Choose another with --port, or "
            "--port 0 for any that is free."
        )
    return DeepJoinError(
        f"Cannot serve at {host}, port {port}: {error.strerror}. Choose others with --host, --port."
    )


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put back what signals did before: they end the service, not the process."""
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
