"""Foreign keys that databases declare: compared with what was found, never weighed."""

from __future__ import annotations

from typing import NamedTuple

from deepjoin.errors import DeepJoinError
from deepjoin.read import reopen
from deepjoin.read.database import DatabaseSource
from deepjoin.store.open_index import OpenIndex


class DeclaredKey(NamedTuple):
    """A foreign key as a database declares it."""

    child_table: str
    child_columns: tuple[str, ...]
    parent_table: str
    parent_columns: tuple[str, ...]


def declared_keys(index: OpenIndex) -> tuple[set[DeclaredKey] | None, list[str]]:
    """Ask the databases of an index for their foreign keys; None if it has no database.

    A database that is gone or does not answer is noted, since relations need nothing of it.
    """
    found: set[DeclaredKey] | None = None
    notes: list[str] = []
    for described in index.sources:
        if described["kind"] != "database":
            continue
        try:
            source = reopen(described, index.path, index.settings)
            database = source.as_database if source else None
            if database is None:
                continue
            keys = _keys_of(database)
        except DeepJoinError as error:
            notes.append(f"Constraints were not read: {error}")
            continue
        if keys is not None:
            found = (found or set()) | keys
    return found, notes


def _keys_of(source: DatabaseSource) -> set[DeclaredKey] | None:
    """Read the foreign keys of one database; None if its kind of database is not asked."""
    declared = source.database.foreign_keys()
    if declared is None:
        return None
    relations = source.relations().items()
    names = {(relation.schema, relation.table): name for name, relation in relations}
    return {
        DeclaredKey(names[child], columns, names[parent], parents)
        for child, columns, parent, parents in declared
        if child in names and parent in names
    }
