"""The guard: decides which requests reach a route, and adds security headers to every answer."""

from __future__ import annotations

import asyncio
import hmac
import logging
from time import perf_counter
from urllib.parse import urlsplit

from fastapi import Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepjoin.serve.http.answers import problem, problem_page, wants_page
from deepjoin.serve.http.problems import traced
from deepjoin.serve.http.service import Metrics
from deepjoin.serve.http.settings import ServerSettings, is_loopback
from deepjoin.serve.http.uploads import too_large
from deepjoin.show.wording import on_page

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
_ELSEWHERE = (
    "This service answers only at the address it was started on, such as 127.0.0.1. To serve other "
    "machines, start it with: deepjoin serve --host ADDRESS"
)
_UNEXPECTED = "The service failed unexpectedly; its log has the details."
_STOPPED = "The service was stopped before it could answer."
_NOT_STORED = (b"cache-control", b"no-store")
#: Bytes of a JSON body; uploads have another limit.
_JSON = 32 << 20
#: An upload may take this many times the seconds of a request to arrive.
_PATIENCE = 20
_SLOW = "The request did not arrive within {:g} seconds. Upload less, or a compressed file."
#: The rest of a refused body is not waited for.
_CLOSE = {"connection": "close"}
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_READING = ("GET", "HEAD", "OPTIONS")
#: The status that counters show for a request whose client left before the answer.
_LEFT = 499
#: These need the token; the page itself holds no data, so anyone may load it.
_PRIVATE = ("/api", "/metrics")


class Guard:
    """Checks host, origin and token, limits bodies, counts requests, adds security headers."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._bearer = f"Bearer {settings.token}".encode() if settings.token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, sent = perf_counter(), 0, False
        private = scope["path"].startswith(_PRIVATE)

        async def secured(message: Message) -> None:
            nonlocal status, sent
            sent = message["type"] == "http.response.body" and not message.get("more_body")
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS, *([_NOT_STORED] * private)]
            try:
                await send(message)
            except RuntimeError:  # so uvloop says that the connection was reset
                raise ClientDisconnect from None

        limited, whole = self._limited(scope, receive)

        async def left() -> None:
            """Wait for the client to leave; before its request is complete, others do."""
            await whole.wait()
            while (await receive())["type"] != "http.disconnect":
                pass

        try:
            refusal = self._refusal(scope, private)
            if refusal is None:
                answered = asyncio.ensure_future(self._app(scope, limited, secured))
                leaving = asyncio.ensure_future(left())
                leaving.add_done_callback(lambda _: sent or answered.cancel())
                try:
                    await answered
                except asyncio.CancelledError:
                    answered.cancel()
                    if leaving.done():
                        status = status or _LEFT
                    elif not status:  # the service stops
                        await problem(_STOPPED, 503)(scope, receive, secured)
                finally:
                    leaving.cancel()
            else:
                await refusal(scope, receive, secured)
        except ClientDisconnect:
            status = status or _LEFT
        except Exception as error:
            # The log names the route only: addresses and error messages may quote cells.
            _LOG.error("%s %s failed: %s", scope["method"], _route(scope), traced(error))
            if not status:
                await problem(_UNEXPECTED, 500)(scope, receive, secured)
        finally:
            seconds = perf_counter() - started
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.count(_route(scope), method, status, seconds)

    def _refusal(self, scope: Scope, private: bool) -> Response | None:
        """Return the answer to a request that must not pass, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # Against DNS rebinding: another site could resolve its own host name to this machine.
        if self._settings.is_local:
            name = hostname(host)
            if not is_loopback(name) and name != self._settings.host.lower():
                if wants_page(scope["path"], headers):
                    return problem_page("Wrong address", on_page(_ELSEWHERE), 400, scope["path"])
                return problem(_ELSEWHERE, 400)
        origin = headers.get("origin")
        if origin and scope["method"] not in _READING and netloc(origin) != host:
            return problem("Requests from pages of other sites are refused.", 403)
        if private and self._bearer:
            given = headers.get("authorization", "").encode("latin-1", "replace")
            # Compared in constant time, which reveals nothing about the token.
            if not hmac.compare_digest(given, self._bearer):
                text = "A token is needed: send the header Authorization: Bearer TOKEN."
                # What else the client sends is not waited for.
                return problem(text, 401, {"www-authenticate": "Bearer"} | _CLOSE)
        return None

    def _limited(self, scope: Scope, receive: Receive) -> tuple[Receive, asyncio.Event]:
        """Stop reading a body that is too large or too slow, whatever length it claims to have.

        The event is set once the body is complete.
        """
        most, seconds = self._settings.max_upload, self._settings.seconds
        if scope["path"] == "/api/uploads":
            seconds *= _PATIENCE
        else:
            most = min(most, _JSON)
        over, size, whole = asyncio.get_running_loop().time() + seconds, 0, asyncio.Event()

        async def counted() -> Message:
            nonlocal size
            if whole.is_set():  # waits for the client to disconnect
                return await receive()
            try:
                async with asyncio.timeout_at(over):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, _SLOW.format(seconds), _CLOSE) from None
            size += len(message.get("body", b""))
            if size > most:
                raise HTTPException(413, str(too_large(most)), _CLOSE)
            if not message.get("more_body", False):
                whole.set()
            return message

        return counted, whole


def hostname(host: str) -> str:
    """Remove the port from a Host header; empty if it is malformed.

    >>> hostname("localhost:8765"), hostname("[::1]:8765"), hostname("a@b")
    ('localhost', '::1', '')
    """
    if "@" in host:
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def netloc(origin: str) -> str | None:
    """Take host and port from an Origin header; None if it is not an address.

    >>> netloc("http://127.0.0.1:8765"), netloc("http://[")
    ('127.0.0.1:8765', None)
    """
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _route(scope: Scope) -> str:
    """Name the route of a request as the code has it, without anything the client sent."""
    return getattr(scope.get("route"), "path", None) or "other"
