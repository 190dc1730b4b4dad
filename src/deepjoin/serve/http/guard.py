"""Who gets in, and what every answer says to the browser; before any route is looked at."""

from __future__ import annotations

import asyncio
import hmac
import logging
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepjoin.serve.http.answers import problem
from deepjoin.serve.http.metrics import Metrics
from deepjoin.serve.http.settings import ServerSettings, is_loopback
from deepjoin.serve.http.tracing import traced
from deepjoin.serve.http.uploads import too_large

_LOG = logging.getLogger("deepjoin.serve.http")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }.items()
]
_UNEXPECTED = "Something went wrong that should not; the log of the service has it."
_NOT_KEPT = (b"cache-control", b"no-store")
#: Bytes of a JSON body; uploads have a limit of their own.
_JSON = 32 << 20
#: A file may take so many times the seconds of a request to come.
_PATIENCE = 20
_SLOW = "The body was not here after {:g} seconds. Send less, or compressed."
#: The rest of a body is not waited for.
_CLOSE = {"connection": "close"}
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_READING = ("GET", "HEAD", "OPTIONS")
#: What anyone may see: the page has no data of its own.
_PRIVATE = ("/api", "/metrics")


class Guard:
    """Checks host, origin and token, limits bodies, counts requests, adds security headers."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._wanted = f"Bearer {settings.token}".encode() if settings.token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through to the app, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = perf_counter(), 0
        private = scope["path"].startswith(_PRIVATE)

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS, *([_NOT_KEPT] * private)]
            await send(message)

        try:
            refused = self._refused(scope, private)
            if refused is None:
                await self._app(scope, self._limited(scope, receive), told)
            else:
                await refused(scope, receive, told)
        except Exception as error:
            # Of a request, only the name of its route is told; what an error says may quote cells.
            _LOG.error("%s %s failed: %s", scope["method"], _route(scope), traced(error))
            if not status:
                await problem(_UNEXPECTED, 500)(scope, receive, told)
        finally:
            seconds = perf_counter() - started
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.count(_route(scope), method, status, seconds)

    def _refused(self, scope: Scope, private: bool) -> Any:
        """Return the answer to a request that may not in, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._settings.is_local and not self._is_own(_hostname(host)):
            return problem(
                "This service answers at the address it was started on, such as 127.0.0.1, and "
                "under no other host name. Start it with --host to serve others.",
                400,
            )
        origin = headers.get("origin")
        if origin and scope["method"] not in _READING and _netloc(origin) != host:
            return problem("Requests from pages of other sites are refused.", 403)
        if private and self._wanted and not self._knows(headers.get("authorization", "")):
            text = "A token is needed: send the header Authorization: Bearer TOKEN."
            return problem(text, 401, {"www-authenticate": "Bearer"})
        return None

    def _is_own(self, name: str) -> bool:
        """Whether a host name is this machine's, or the one the service was started with."""
        return is_loopback(name) or name == self._settings.host.lower()

    def _knows(self, given: str) -> bool:
        # As bytes, in a time that tells nothing of how much of it is right.
        return hmac.compare_digest(given.encode("latin-1", "replace"), self._wanted)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Stop reading a body that is too large or too slow, whatever length it claims to have."""
        most, seconds = self._settings.max_upload, self._settings.seconds
        if scope["path"] == "/api/uploads":
            seconds *= _PATIENCE
        else:
            most = min(most, _JSON)
        over, size, whole = asyncio.get_running_loop().time() + seconds, 0, False

        async def counted() -> Message:
            nonlocal size, whole
            if whole:  # waits for the client to go
                return await receive()
            try:
                async with asyncio.timeout_at(over):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, _SLOW.format(seconds), _CLOSE) from None
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if size > most:
                raise HTTPException(413, str(too_large(most)), _CLOSE)
            return message

        return counted


def _hostname(host: str) -> str:
    """Take the port off a Host header.

    >>> _hostname("localhost:8765"), _hostname("[::1]:8765"), _hostname("a@b")
    ('localhost', '::1', '')
    """
    if "@" in host:
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    """Take host and port out of an Origin header; None if it is no address.

    >>> _netloc("http://127.0.0.1:8765"), _netloc("http://[")
    ('127.0.0.1:8765', None)
    """
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _route(scope: Scope) -> str:
    """Name the route of a request as it is written in the code: no value of a client's in it."""
    return getattr(scope.get("route"), "path", None) or "other"
