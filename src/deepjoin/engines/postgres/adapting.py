"""Vectors as parameters of psycopg's: its types are here, so that it is imported when needed."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

from deepjoin.engines.postgres.codes import Code
from deepjoin.engines.postgres.rows import Vector


class BytesDumper(Dumper):
    """Sends a vector or a code in its binary form; the statement says what type it is."""

    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        """Give the bytes."""
        return bytes(obj.bytes)


def teach(connection: Connection[Any]) -> None:
    """Let a connection send vectors and codes."""
    connection.adapters.register_dumper(Vector, BytesDumper)
    connection.adapters.register_dumper(Code, BytesDumper)
