"""Connections before the token: headers, silence and number are bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from deepjoin.serve.http import running
from deepjoin.serve.http.running import BoundedConnection

GET = b"GET / HTTP/1.1\r\n"


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer any request with the size of its body; or with much, or at once."""
    size, more = 0, scope["type"] == "http"
    if scope["type"] == "http" and scope["path"] != "/":
        body = bytes(1 << 24) if scope["path"] == "/much" else b"0"
        length = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})
        return
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    if scope["type"] == "http":
        length = [(b"content-length", str(len(str(size))).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": str(size).encode()})


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """Serve the app at a free port, in this event loop."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, http=BoundedConnection, lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        await running


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection that the other side may have closed already."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def answer_to(port: int, *parts: bytes, pause: float = 0) -> bytes:
    """Send a request in parts and return all that comes back until the connection closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b"reset"
    finally:
        await closed(writer)


def run(test: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a port that is served."""

    async def both() -> None:
        async with served() as port:
            await test(port)

    asyncio.run(both())


def test_headers_without_end_are_refused() -> None:
    async def test(port: int) -> None:
        endless = (GET, b"a: ", *[b"x" * 65536] * 40)
        answer = await answer_to(port, *endless)
        assert answer.startswith(b"HTTP/1.1 431") or answer == b"reset"

    run(test)


@pytest.mark.parametrize(
    "sent", [(), (b"GET / HTTP/1.1\r\n",), (b"GET / HTTP/1.1\r\n", b"a: 1\r\n")]
)
def test_headers_that_do_not_come_are_not_awaited(
    sent: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_HEAD_SECONDS", 0.3)

    async def test(port: int) -> None:
        answer = await answer_to(port, *sent, pause=0.01)
        assert answer.startswith(b"HTTP/1.1 408") if sent else not answer

    run(test)


@pytest.mark.slow
def test_a_body_that_stops_is_not_awaited_and_a_slow_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_BODY_SECONDS", 0.6)
    head = b"POST / HTTP/1.1\r\ncontent-length: 4\r\nconnection: close\r\n\r\n"

    async def test(port: int) -> None:
        assert (await answer_to(port, head, b"ab")).startswith(b"HTTP/1.1 408")
        slow = await answer_to(port, head, b"a", b"b", b"c", b"d", pause=0.25)
        assert slow.endswith(b"4")

    run(test)


@pytest.mark.slow
def test_headers_after_a_body_are_refused() -> None:
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"

    async def test(port: int) -> None:
        assert b"HTTP/1.1 200" in await answer_to(port, head, b"1\r\na\r\n0\r\n\r\n", GET + b"\r\n")
        answer = await answer_to(port, head, b"0\r\n", *[b"a: b\r\n" * 1000] * 100)
        assert answer.startswith(b"HTTP/1.1 431") or answer == b"reset"

    run(test)


def test_an_index_leaves_fewer_descriptors_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (300, 300))
    monkeypatch.setattr("os.listdir", lambda _: ["0"] * 90)
    assert (running.most_open(0), running.most_open(60)) == (70, 90)
    monkeypatch.setattr("os.listdir", lambda _: ["0"] * 299)
    assert running.most_open(0) == 16


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\na",
    ],
    ids=["silent", "half a head", "idle", "half a body"],
)
def test_too_many_connections_make_room(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "most_open", lambda _: 20)
    monkeypatch.setattr(BoundedConnection, "_counted_until", float("-inf"))
    request = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n"

    async def test(port: int) -> None:
        silent = []
        for _ in range(60):
            silent.append(await asyncio.open_connection("127.0.0.1", port))
            silent[-1][1].write(sent)
            await silent[-1][1].drain()
        assert (await answer_to(port, request)).endswith(b"0")
        for _, writer in silent:
            await closed(writer)

    run(test)


@pytest.mark.slow
def test_requests_on_one_connection_have_a_clock_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_HEAD_SECONDS", 0.4)
    first = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"

    async def test(port: int) -> None:
        answer = await answer_to(port, first, GET, pause=0.05)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answer

    run(test)


async def unread(port: int, sent: bytes) -> socket.socket:
    """Connect and send, with little room for an answer that is never read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, sent)
    return client


@pytest.mark.parametrize("closing", [b"", b"connection: close\r\n"], ids=["kept", "closing"])
def test_clients_that_do_not_read_make_room(
    closing: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "most_open", lambda _: 20)
    monkeypatch.setattr(BoundedConnection, "_counted_until", float("-inf"))
    request = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n"

    async def test(port: int) -> None:
        much = b"GET /much HTTP/1.1\r\n\r\n" * 2 + b"GET /much HTTP/1.1\r\n" + closing + b"\r\n"
        stuck = [await unread(port, much) for _ in range(40)]
        await asyncio.sleep(0.2)
        assert (await answer_to(port, request)).endswith(b"0")
        for client in stuck:
            client.close()

    run(test)


def test_an_answer_that_is_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_BODY_SECONDS", 0.3)

    async def test(port: int) -> None:
        with await unread(port, b"GET /much HTTP/1.1\r\n\r\n") as client:
            await asyncio.sleep(1)
            client.settimeout(10)
            with pytest.raises(ConnectionError):
                while client.recv(1 << 20):
                    pass
                raise ConnectionResetError  # closed before all was sent

    run(test)


def test_requests_that_wait_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = []
    usual = BoundedConnection.on_headers_complete

    def counting(self: BoundedConnection) -> None:
        usual(self)
        waiting.append(len(self.pipeline))

    monkeypatch.setattr(BoundedConnection, "on_headers_complete", counting)
    get = GET + b"\r\n"

    async def test(port: int) -> None:
        answer = await answer_to(port, get * 9 + GET + b"connection: close\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200") == 10
        assert b"400" not in await answer_to(port, get * 10_000)

    run(test)
    assert 9 <= max(waiting) <= 16
    assert len(waiting) < 1000


def test_headers_are_few() -> None:
    async def test(port: int) -> None:
        for count, status in ((250, b"200"), (257, b"431")):
            headers = b"a:\r\n" * (count - 1) + b"connection: close\r\n\r\n"
            assert (await answer_to(port, GET + headers)).startswith(b"HTTP/1.1 " + status)

    run(test)


def test_the_rest_of_a_body_that_is_answered_already_is_not_awaited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_HEAD_SECONDS", 0.3)
    head = b"POST /early HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;"

    async def test(port: int) -> None:
        assert await answer_to(port, head, *[b"a" * 1000] * 200, pause=0.01) == b"reset"

    run(test)
