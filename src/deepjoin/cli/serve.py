"""`deepjoin serve`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from deepjoin.cli.arguments import INDEX, VECTOR_STORE, Argument, seconds, size, whole
from deepjoin.cli.output import say
from deepjoin.errors import DeepJoinError
from deepjoin.optional import require

SUMMARY = "serve the page and the HTTP API of an index"
EPILOG = """\
examples:
  deepjoin serve data/ --open
  DEEPJOIN_TOKEN=... deepjoin serve data/ --host 0.0.0.0 --workers 4"""

#: Holds the token, so that it need not be visible on a command line.
VARIABLE = "DEEPJOIN_TOKEN"
_MAX_PORT = 65_535


ARGUMENTS = (
    INDEX,
    Argument("--host ADDRESS", "default: this machine only", default="127.0.0.1"),
    Argument("--port N", "default 8765; 0: any free one", whole(0), 8765),
    Argument("--workers N", "processes (default: one a core, up to 4)", whole(1)),
    Argument("--token T", "bearer token of clients; better set in $DEEPJOIN_TOKEN"),
    Argument("--max-upload SIZE", "largest file accepted from a client", size, "100MB"),
    Argument(
        "--max-rows N", "maximum rows of such a file, and of a joined table", whole(1), 5_000_000
    ),
    Argument("--max-joined SIZE", "largest joined table that is made for a client", size, "2GB"),
    Argument("--timeout SECONDS", "time limit of a request", seconds, 30),
    Argument("--out DIR", "a folder that joined tables may be saved in; default: none"),
    VECTOR_STORE,
    Argument("--open", "open the page in the browser"),
)


def run(options: argparse.Namespace) -> None:
    """Serve an index until a signal stops it."""
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require(module, "server", "deepjoin serve")
    from deepjoin.cli.opening import open_or_index, vector_store
    from deepjoin.serve.http.running import serve
    from deepjoin.serve.http.settings import ServerSettings

    if options.port > _MAX_PORT:
        raise DeepJoinError(f"--port is {options.port}; ports go from 0 to {_MAX_PORT}.")
    token = os.environ.get(VARIABLE, "") if options.token is None else options.token
    # Such a token could not be sent in a header.
    if options.token == "" or not all("!" <= letter <= "~" for letter in token):
        raise DeepJoinError("--token must be letters, digits and punctuation, without spaces.")
    out = None if options.out is None else Path(options.out).resolve()
    if out is not None and not (out.is_dir() and os.access(out, os.W_OK)):
        raise DeepJoinError(f"--out '{options.out}' is not a writable folder; create it first.")
    stores = vector_store(options)
    lake = open_or_index(options.index, vector_store=stores)
    settings = ServerSettings(
        index=str(lake.location),
        folder=Path(),
        host=options.host,
        token=token,
        max_upload=options.max_upload,
        max_rows=options.max_rows,
        max_joined=options.max_joined,
        seconds=options.timeout,
        out=out,
        vector_store=tuple(stores),
    )

    # Called once the socket listens: the port may have been chosen by the system.
    def ready(address: str) -> None:
        if not settings.is_local and not token:
            say(
                f"warning: whoever can reach {settings.host} can read this lake; give a --token, "
                f"or set {VARIABLE}."
            )
        say(f"Serving {lake.location} ({lake.report.tables:,} tables) at {address}")
        say("Press Ctrl-C to stop.")
        if options.open:
            import webbrowser

            webbrowser.open(address)

    serve(settings, options.port, options.workers or min(4, os.cpu_count() or 1), ready)
    say("Stopped.")
