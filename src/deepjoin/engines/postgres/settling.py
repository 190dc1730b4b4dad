"""What a server knows of lakes: whose name is whose, what each one uses, and what nobody does.

Whoever changes a lake there holds its name until its session ends, so that two runs never take
out what the other has just put in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.engines.postgres.schema import PART_FIELDS, Part, execute, is_made, lock_part
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from psycopg import Connection

#: How often, and after how many seconds, a lake that is held is tried again: of a run that was
#: killed a moment ago, the server may not know yet.
_TRIES, _PAUSE = 20, 0.1
#: How long a table that nobody needs is waited for, if a search of a moment ago still reads it.
_PATIENCE = "5s"
#: What PostgreSQL says of a table that is being read, and of a part that a lake has just taken.
_IN_USE = ("55P03", "23503")
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(
  format('deepjoin.vectors_%%s_%%s', p.id, p.token)::regclass)), 0)
FROM deepjoin.uses u JOIN deepjoin.parts p ON p.id = u.part WHERE u.lake = %s
"""


def hold(connection: Connection[Any], place: str, name: str) -> None:
    """Be the only one who changes a lake on a server, until the session ends."""
    sql = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
    for attempt in range(_TRIES):
        if attempt:
            sleep(_PAUSE)
        if connection.execute(sql, [f"deepjoin lake {name}"]).fetchone() == (True,):
            return
    raise DeepJoinError(
        f"Another run is publishing '{name}' to {place}, or taking it out. Wait until it has "
        "ended, and run this again."
    )


def check_name(
    connection: Connection[Any], place: str, lake: tuple[str, str], segments: Collection[str]
) -> None:
    """Refuse a name that another lake has: one from elsewhere, with no segment of this one."""
    sql = (
        "SELECT location, coalesce(array_agg(p.segment), '{}') FROM deepjoin.lakes l LEFT JOIN "
        "deepjoin.uses u ON u.lake = l.name LEFT JOIN deepjoin.parts p ON p.id = u.part "
        "WHERE l.name = %s GROUP BY l.name"
    )
    name, location = lake
    found = connection.execute(sql, [name]).fetchone()
    if found is not None and found[0] != location and not set(segments) & set(found[1]):
        raise DeepJoinError(
            f"{place} has another lake '{name}', published from {found[0]}. Give this one a name "
            "with --name, or put it in its place with --replace."
        )


def claim(connection: Connection[Any], lake: tuple[str, str]) -> None:
    """Note a lake's name and where it comes from."""
    connection.execute(
        "INSERT INTO deepjoin.lakes VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
        "location = excluded.location, version = excluded.version",
        [*lake, __version__],
    )


def show(connection: Connection[Any], parts: Sequence[int]) -> None:
    """Let searches see parts, all at once."""
    connection.execute("UPDATE deepjoin.parts SET ready = true WHERE id = ANY(%s)", [list(parts)])


def settle(connection: Connection[Any], name: str, parts: Sequence[int]) -> tuple[int, int]:
    """Leave a lake these parts alone; returns how many tables were dropped, and what it takes."""
    with connection.transaction():
        connection.execute(
            "DELETE FROM deepjoin.uses WHERE lake = %s AND part <> ALL(%s)", [name, list(parts)]
        )
        connection.execute("UPDATE deepjoin.lakes SET published = now() WHERE name = %s", [name])
    dropped = _drop_unused(connection)
    (size,) = connection.execute(_SIZE, [name]).fetchone() or (0,)
    return dropped, int(size)


def names(connection: Connection[Any]) -> list[str]:
    """List the lakes of a server."""
    if not is_made(connection):
        return []
    return [name for (name,) in connection.execute("SELECT name FROM deepjoin.lakes")]


def remove(connection: Connection[Any], name: str) -> int:
    """Take a lake out; returns how many tables were dropped."""
    connection.execute("DELETE FROM deepjoin.lakes WHERE name = %s", [name])
    return _drop_unused(connection)


def _drop_unused(connection: Connection[Any]) -> int:
    """Drop the tables that no lake uses; one that is being read is left to the next run."""
    sql = (
        f"SELECT {PART_FIELDS} FROM deepjoin.parts p WHERE NOT EXISTS "
        "(SELECT FROM deepjoin.uses WHERE part = p.id)"
    )
    unused = [Part(*row) for row in execute(connection, sql).fetchall()]
    return sum(_drop(connection, part) for part in unused)


def _drop(connection: Connection[Any], part: Part) -> bool:
    """Drop a part, unless another lake takes it at this moment."""
    from psycopg import Error

    sql = (
        "DELETE FROM deepjoin.parts p WHERE id = %s AND NOT EXISTS "
        "(SELECT FROM deepjoin.uses WHERE part = p.id)"
    )
    try:
        with connection.transaction():
            execute(connection, f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            if not lock_part(connection, part.key, wait=False):
                return False
            if not connection.execute(sql, [part.id]).rowcount:
                return False
            execute(connection, f"DROP TABLE {part.table}")
            return True
    except Error as error:
        if error.sqlstate not in _IN_USE:
            raise
        return False
