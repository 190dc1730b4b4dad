"""Addresses of databases: files and servers, and which parts of them are secret."""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deepjoin.errors import DeepJoinError

#: The environment variable for the whole address, password included, of an indexed database.
ADDRESS_VARIABLE = "DEEPJOIN_DATABASE_URL"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9_.+-]+)://")
# Several hosts, each with a port or not; IPv6 addresses are in brackets.
_HOSTS = re.compile(r"(\[[^\]]*\]|[^:\[\],]*)(:[0-9]*)?(,(\[[^\]]*\]|[^:\[\],]*)(:[0-9]*)?)*")
#: Parameters that may be shown and stored; any other may hold a secret, whatever its name.
_PUBLIC = re.compile(
    "host|hostaddr|port|dbname|user|service|connect_timeout|client_encoding|"
    "(fallback_)?application_name|target_session_attrs|load_balance_hosts|"
    "keepalives(_idle|_interval|_count)?|tcp_user_timeout|sslmode|sslnegotiation|sslrootcert|"
    "sslcert|sslkey|sslcrl|ssl_(min|max)_protocol_version|channel_binding|gssencmode|krbsrvname|"
    "ssl|ssl_(ca|cert|key|verify_cert)|charset|collation|unix_socket|(read_|write_)?timeout|"
    "driver|encrypt|trustservercertificate|trusted_connection|multisubnetfailover|"
    "applicationintent|service_name|sid|account|database|schema|warehouse|role|region|location|"
    "catalog|http_path|protocol|timezone|authenticator|cipher|kdf_iter",
    re.IGNORECASE,
)
#: Values that are not secrets; hiding them would make messages unreadable.
_PLAIN = re.compile(r"[0-9]{0,3}|true|false|yes|no|on|off", re.IGNORECASE)
_SYNONYMS = {"postgres": "postgresql"}
# Schemes of databases, which are recognised without the name of a driver.
_DIALECTS = re.compile(
    "postgresql|sqlite|duckdb|mysql|mariadb|mssql|oracle|snowflake|bigquery|redshift|trino|presto|"
    "clickhouse|databricks|cockroachdb|db2|ibm_db_sa|teradatasql|exa|hana|vertica|hive|impala|"
    "firebird|access|awsathena|druid|crate|monetdb"
)
# What may follow a plus sign without being a driver of a database: git+https and so on.
_NO_DRIVERS = ("", "http", "https", "ssh")


def is_database(location: str) -> bool:
    """Check whether a location is a database: by its scheme, or by the first bytes of a file.

    >>> [is_database(text) for text in ("postgresql://db/shop", "mysql+pymysql://h/d", "s3://b")]
    [True, True, False]
    """
    match = _SCHEME.match(location)
    if match is None:
        return bool(file_dialect(Path(location).expanduser()))
    dialect, driver = dialect_of(location)
    return _DIALECTS.fullmatch(dialect) is not None or driver not in _NO_DRIVERS


def file_dialect(path: Path) -> str:
    """Return the dialect of a database file by its first bytes; '' for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except (OSError, ValueError):
        return ""
    if head == b"SQLite format 3\0":
        return "sqlite"
    return "duckdb" if head[8:12] == b"DUCK" else ""


def is_readable_file(path: Path) -> bool:
    """Check whether a file is a database whose tables can be listed here."""
    dialect = file_dialect(path)
    try:
        if dialect == "sqlite":
            import sqlite3

            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        elif dialect == "duckdb":
            import duckdb

            with closing(duckdb.connect(str(path), read_only=True)) as connection:
                connection.execute("SELECT 1 FROM duckdb_tables() LIMIT 1").fetchall()
    except Exception:  # whatever the driver says, the file is passed over and named
        return False
    return bool(dialect)


def dialect_of(location: str) -> tuple[str, str]:
    """Return a location's dialect and driver; the driver is '' if none is named.

    >>> dialect_of("postgres://h/d"), dialect_of("sqlite+pysqlite:///a.db")
    (('postgresql', ''), ('sqlite', 'pysqlite'))
    """
    match = _SCHEME.match(location)
    if match is None:
        return file_dialect(Path(location).expanduser()), ""
    dialect, _, driver = match[1].lower().partition("+")
    return _SYNONYMS.get(dialect, dialect), driver


def file_of(location: str) -> Path:
    """Return the file of a SQLite or DuckDB location, `sqlite:///data/a.db` or a bare path."""
    match = _SCHEME.match(location)
    given = location if match is None else location[match.end() :].removeprefix("/")
    path = Path(os.path.abspath(os.path.expanduser(given)))
    dialect = dialect_of(location)[0]
    # Checked here, because the drivers' errors do not explain how to write the address.
    if not given or not path.is_file():
        what = {"sqlite": "SQLite", "duckdb": "DuckDB"}[dialect]
        raise DeepJoinError(
            f"No {what} file '{given}'. A file's address has three slashes before its path, "
            f"four where it starts at the root: {dialect}:///data/shop.db"
        )
    if match is not None and file_dialect(path) != dialect:
        raise DeepJoinError(f"'{given}' is not a {dialect} file by its first bytes.")
    return path


def file_shown(location: str) -> str:
    """Write the location of a file without the password that some drivers put before its path.

    >>> file_shown("sqlite+pysqlcipher://:pw@/data/a.db?cipher=aes"), file_shown("data/a@b.db")
    ('sqlite+pysqlcipher:///data/a.db', 'data/a@b.db')
    """
    match = _SCHEME.match(location)
    rest = location[match.end() :] if match else ""
    if match is None or (rest.startswith("/") and "?" not in rest):
        return location
    path = rest if rest.startswith("/") else rest.rpartition("@")[2]
    return f"{match[0]}{path.partition('?')[0]}"


def file_secrets(location: str) -> list[str]:
    """List the secrets in the location of a file.

    >>> file_secrets("sqlite+pysqlcipher://:pw@/data/a.db"), file_secrets("sqlite:////a:b@c.db")
    (['pw'], [])
    """
    rest, _, query = location.partition("://")[2].partition("?")
    credentials = "" if rest.startswith("/") else rest.rpartition("@")[0]
    return _secrets(credentials.partition(":")[2], query)


@dataclass(frozen=True)
class Address:
    """The parts of a database server's address; ``password`` is None if there is none."""

    scheme: str
    user: str | None
    password: str | None
    hosts: str
    tail: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Split an address; one whose password cannot be separated from the rest is refused."""
        match = _SCHEME.match(url)
        if match is None:
            raise DeepJoinError("A database is named by a URL such as postgresql://host/shop.")
        authority, tail = re.fullmatch(r"([^/?#]*)(.*)", url[match.end() :], re.DOTALL).groups()  # type: ignore[union-attr]
        credentials, at, hosts = authority.rpartition("@")
        if "@" in credentials or not _HOSTS.fullmatch(hosts):
            raise DeepJoinError(
                "Cannot find the host in the database URL: in a user name or password write "
                "@ as %40, : as %3A, / as %2F, ? as %3F, # as %23."
            )
        # Some drivers take what follows as parameters, so it may be a secret.
        if re.search("[;#]", tail.partition("?")[0]):
            raise DeepJoinError(
                "The name of the database in the URL has ; or #: write ; as %3B, # as %23, and "
                "parameters after a question mark."
            )
        user, colon, password = credentials.partition(":")
        return cls(match[1], user if at else None, password if colon else None, hosts, tail)

    def __repr__(self) -> str:
        return f"Address({self.shown()!r})"

    def shown(self) -> str:
        """Write the address without anything secret.

        >>> Address.of("postgresql://me:pw@db:5432/shop?sslpassword=x&sslmode=require").shown()
        'postgresql://me@db:5432/shop?sslmode=require'
        """
        path, _, query = self.tail.partition("?")
        kept = "&".join(part for part in query.split("&") if part and not _is_secret(part))
        user = "" if self.user is None else f"{self.user}@"
        return f"{self.scheme}://{user}{self.hosts}{path}{f'?{kept}' if kept else ''}"

    def secrets(self) -> list[str]:
        """List the secrets, both as they are written and unquoted."""
        return _secrets(self.password, self.tail.partition("?")[2])

    def names_same(self, other: Address) -> bool:
        """Check whether two addresses name the same database on the same host."""
        return self._place() == other._place()

    def _place(self) -> tuple[str, str, str]:
        dialect = dialect_of(f"{self.scheme}://")[0]
        hosts = self.hosts.lower().removesuffix(":5432" if dialect == "postgresql" else ":")
        return dialect, hosts, self.tail.partition("?")[0].strip("/")


def _secrets(password: str | None, query: str) -> list[str]:
    hidden = [part.partition("=")[2] for part in query.split("&") if _is_secret(part)]
    hidden = [text for text in hidden if not _PLAIN.fullmatch(text)]
    raw = [text for text in (password, *hidden) if text]
    return sorted({*raw, *map(unquote, raw)}, key=len, reverse=True)


def _is_secret(part: str) -> bool:
    # Some drivers take ; for &, and what follows # would be shown with a value that is public.
    is_one = not re.search("[;#]", part)
    return not (is_one and _PUBLIC.fullmatch(unquote(part.partition("=")[0])))


def from_environment(url: str) -> str:
    """Return the address in the environment, with its password, if it is this database's."""
    given = os.environ.get(ADDRESS_VARIABLE, "")
    if given and _SCHEME.match(given) and Address.of(given).names_same(Address.of(url)):
        return given
    return url
