"""Stores that speak S3, on this machine: a whole one, and one that always says the same."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

_COLOURS = re.compile(r"\x1b\[\d+m")
_REQUEST = re.compile(r'"(.*) HTTP/1')
BUCKET = "lake"


class Store(logging.Handler):
    """A running store with one bucket; remembers what it was asked."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.requests: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the server's log."""
        found = _REQUEST.search(_COLOURS.sub("", record.getMessage()))
        if found:
            self.requests.append(found[1])

    @cached_property
    def client(self) -> Any:
        """Return boto3's client of the store."""
        import boto3

        return boto3.client("s3", endpoint_url=self.address, region_name="us-east-1")

    def put(self, **contents: str | bytes) -> None:
        """Store objects by key."""
        client = self.client
        for key, content in contents.items():
            body = content.encode() if isinstance(content, str) else content
            client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        """Return every object below a prefix."""
        client = self.client
        listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {
            one["Key"]: client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
            for one in listed
        }


@contextmanager
def running_store() -> Iterator[Store]:
    """Start a store on a free port."""
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    log = logging.getLogger("werkzeug")
    log.setLevel(logging.INFO)
    log.propagate = False
    server.start()
    host, port = server.get_host_and_port()
    store = Store(f"http://{host}:{port}")
    log.addHandler(store)
    try:
        yield store
    finally:
        log.removeHandler(store)
        server.stop()
        s3_backends.reset()


def use(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Point the environment at a store."""
    settings = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


@contextmanager
def answering(status: int, code: str, message: str = "") -> Iterator[str]:
    """Start a server that gives every request the same answer."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    class Answer(BaseHTTPRequestHandler):
        """Says it, whatever it is asked."""

        def do_GET(self) -> None:
            """Answer."""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/xml")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
