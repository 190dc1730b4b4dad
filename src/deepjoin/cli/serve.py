"""`deepjoin serve`."""

from __future__ import annotations

import argparse
import os
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.cli.opening import open_or_index, say, vector_store
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lake import Lake

if TYPE_CHECKING:
    from deepjoin.serve.http.settings import ServerSettings

#: Where the token may be, so that it need not stand on a command line for all to see.
VARIABLE = "DEEPJOIN_TOKEN"
_PORTS = 65_535


def run(options: argparse.Namespace) -> None:
    """Serve an index until a signal says to stop."""
    try:
        from deepjoin.serve.http.running import serve
        from deepjoin.serve.http.settings import ServerSettings
    except ImportError as error:
        raise MissingExtra(
            f"The service needs its extra ({error.name} is missing): pip install 'deepjoin[server]'"
        ) from None
    if options.port > _PORTS:
        raise DeepJoinError(f"--port is {options.port}; ports go from 0 to {_PORTS}.")
    stores = vector_store(options)
    lake = open_or_index(options.index, vector_store=stores)
    settings = ServerSettings(
        index=str(lake.location),
        folder=Path(),
        host=options.host,
        token=_token(options.token),
        max_upload=options.max_upload,
        max_rows=options.max_rows,
        seconds=options.timeout,
        out=_out(options.out),
        vector_store=tuple(stores),
    )
    ready = partial(_tell, lake, settings, options.open)
    serve(settings, options.port, options.workers or _workers(), ready)
    say("Stopped.")


def _tell(lake: Lake, settings: ServerSettings, show: bool, address: str) -> None:
    """Say where the service is, and open its page if that is wanted."""
    _warn(settings)
    say(f"Serving {lake.location} ({lake.report.tables:,} tables) at {address}")
    say("Ctrl-C stops it.")
    if show:
        webbrowser.open(address)


def _warn(settings: ServerSettings) -> None:
    if not settings.is_local and not settings.token:
        say(
            f"warning: whoever can reach {settings.host} can read this lake; give a --token, or "
            f"set {VARIABLE}."
        )


def _workers() -> int:
    return min(4, os.cpu_count() or 1)


def _token(given: str | None) -> str:
    token = os.environ.get(VARIABLE, "") if given is None else given
    if given == "" or not all("!" <= letter <= "~" for letter in token):
        raise DeepJoinError("A token is made of letters, digits and signs, without spaces.")
    return token


def _out(given: str | None) -> Path | None:
    if given is None:
        return None
    folder = Path(given).resolve()
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise DeepJoinError(f"'{given}' is no folder that can be written to; make it first.")
    return folder
