"""Connections that cannot be held for nothing: bounded headers, requests, silence and number.

All of this comes before the token is read, so it holds for anyone who can reach the port. uvicorn
bounds none of it with httptools, and the time-out it has starts only after a first response.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
        """Refuse headers after a body in chunks: uvicorn would collect them, for nobody."""
        if not self._awaits_head or len(self.headers) >= _MOST_HEADERS:
            self._head_bytes += 1  # counted once all is parsed, but the client has said something
            self._refuse("431 Request Header Fields Too Large")
            raise _Refused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the request take its time from here on: the service has limits of its own."""
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
        """Await the rest of a body that nobody needs any more for a short time only."""
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
