"""Starts and stops the service: one address, a private folder, and its worker processes."""

from __future__ import annotations

import errno
import logging
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvicorn
from uvicorn.supervisors import Multiprocess

from deepjoin.errors import DeepJoinError
from deepjoin.server.app import create_app
from deepjoin.server.settings import ServerSettings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Connections that may wait to be taken.
_BACKLOG = 2048


def serve(settings: ServerSettings, port: int, workers: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``ready`` is told the address before the first request."""
    with _listening(settings.host, port) as listener, private_folder() as folder:
        own = replace(settings, folder=folder, several=workers > 1)
        config = uvicorn.Config(
            partial(create_app, own),
            factory=True,
            workers=workers,
            # Access logs would hold what clients ask for.
            access_log=False,
            log_level=logging.WARNING,
            server_header=False,
            timeout_graceful_shutdown=int(settings.seconds) + 1,
            # Their senders are not to be believed.
            proxy_headers=False,
        )
        ready(_address(settings.host, listener))
        with _signals_kept():
            if workers > 1:
                _share_counters(folder)
                Multiprocess(config, [listener]).run()
            else:
                uvicorn.Server(config).run([listener])


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that is this user's alone, and is gone afterwards with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="deepjoin-serve-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _share_counters(folder: Path) -> None:
    from deepjoin.server.metrics import share_counters

    share_counters(folder / "counters")


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
    """Let a signal end the service, not the process: what it leaves is still to be removed."""
    before = {one: signal.signal(one, lambda *_: None) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
