"""A service over a small lake, asked in this process: what the tests of the server share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

import deepjoin
from deepjoin import Lake
from deepjoin.serve.http.app import create_app
from deepjoin.serve.http.service import Service
from deepjoin.serve.http.settings import ServerSettings

ORIGIN = "http://127.0.0.1:8765"
COUNTRIES = "geo/countries.csv"
HIT = {"table": COUNTRIES, "column": "country"}


class Served:
    """A client of one service, and the service itself."""

    def __init__(self, client: TestClient, service: Service, orders: Path) -> None:
        self.client, self.service, self._orders = client, service, orders

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        """Get JSON."""
        answer = self.client.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        """Post JSON and get some back."""
        answer = self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def upload(self, content: bytes, name: str, status: int = 200) -> Any:
        """Bring a file."""
        answer = self.client.post("/api/uploads", params={"filename": name}, content=content)
        assert answer.status_code == status, answer.text
        return answer.json()

    def orders(self) -> str:
        """Bring the orders, and give their token."""
        return str(self.upload(self._orders.read_bytes(), "orders.csv")["upload"])


@contextmanager
def serving(folder: Path, lake: Lake | None = None, **settings: Any) -> Iterator[Served]:
    """Serve the tables of a folder."""
    lake = deepjoin.index(folder) if lake is None else lake
    private = folder.parent / "private"
    private.mkdir(mode=0o700, exist_ok=True)
    app = create_app(ServerSettings(str(lake.location), private, **settings), lake)
    with TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client:
        yield Served(client, app.state.service, folder.parent / "orders.csv")
