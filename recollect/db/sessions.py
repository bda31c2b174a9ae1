"""How a session with the database begins: with our settings, whatever its role, its database or a
pooler in front of it would have them be, and over a line that counts as lost when it is silent."""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Self, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from recollect.db import citus
from recollect.errors import SetupError

CONNECT_TIMEOUT = 10.0
LINE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""How soon a network that swallows everything counts as a lost connection: a minute or so."""
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "client_encoding": "UTF8",
        "datestyle": "ISO",
        "intervalstyle": "postgres",
        "standard_conforming_strings": "on",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        "array_nulls": "on",
        "transform_null_equals": "off",
        "gin_fuzzy_search_limit": "0",  # of what has a frequent word, some would be left out
        "timezone": "UTC",
        "default_transaction_isolation": "read committed",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_session_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "transaction_timeout": "0",  # unknown to servers before 17
        "jit": "off",
    }
    | citus.SETTINGS
)
"""Of every session: what values look like, what a statement means and finds, what a transaction is,
and no limits of time."""
NO_MORE: Mapping[str, str] = MappingProxyType({})
NO_URL = (
    "is not a connection string such as postgresql://ROLE:PASSWORD@HOST/DATABASE; in a password"
    " the signs % @ / : ? # , are written %25 %40 %2F %3A %3F %23 %2C"
)
NO_PARAMETER = (
    "has a parameter that only other programs know, such as pgbouncer, connection_limit or schema;"
    " leave it out (a schema is named by ?options=-csearch_path%3DNAME,public)"
)
NO_DRIVER = "names a driver, which only SQLAlchemy does; let it begin with postgresql://"
_DRIVER = re.compile(r"postgres(ql)?\+\w+://")
_QUERY = re.compile(r"[^?]*\?[^@]*")
"""An address with parameters; after an `@` in them the `?` belongs to the password."""
_PASSWORD_WITH_SLASH = re.compile(r"postgres(ql)?://[^/?@]*/[^?]*@")
_SETTLE = (
    "select set_config(key, value, false) from jsonb_each_text(%s)"
    " where key <> 'transaction_timeout' or current_setting(key, true) is not null"
)

Connection = TypeVar("Connection", bound=psycopg.Connection[Any])
AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


Note = Callable[[psycopg.Error | None], object]


@contextmanager
def _noting(refused: Note | None) -> Generator[None]:
    """`refused` is told what ends the block, too."""
    try:
        yield
    except psycopg.Error as error:
        if refused is not None:
            refused(error)
        raise


class PooledSession(psycopg.Connection[DictRow]):
    """A session of a pool. It tells `refused` why it could not be opened; the pool tells nobody."""

    @classmethod
    def connect(  # pyright: ignore[reportIncompatibleMethodOverride] # takes `refused`, too
        cls,
        conninfo: str = "",
        *,
        refused: Note | None = None,
        **more: Any,
    ) -> Self:
        with _noting(refused):
            return super().connect(conninfo, **more)

    @contextmanager
    def made_ready(self, refused: Note) -> Generator[None]:
        """In the block the session gets what it needs. `refused` is told why it cannot be used,
        too; None, where it can."""
        with _noting(refused):
            yield
        refused(None)


def connect(
    kind: type[Connection], url: str, settings: Mapping[str, str] = NO_MORE, **more: Any
) -> Connection:
    """A session in autocommit, settled; the caller closes it. `more` goes to psycopg.

    Raises OperationalError where the server takes the connection and then says nothing.
    """
    session = kind.connect(url, autocommit=True, **line(url, CONNECT_TIMEOUT), **more)
    try:
        bound(session, CONNECT_TIMEOUT)
        settle(session, settings)
        bound(session, None)
    except BaseException:
        session.close()
        raise
    return session


def bound(session: AnyConnection, seconds: float | None) -> None:
    """From now on, a statement without an answer after so many seconds raises OperationalError. A
    server that stands still, as where its disk hangs, keeps no limit itself. None: no limit."""
    # Psycopg calls it for each statement: a method of ours would cost each some time.
    session.__dict__["wait"] = partial(type(session).wait, session, timeout=seconds)


async def connect_async(url: str) -> psycopg.AsyncConnection[Any]:
    """As `connect`, for an event loop; each later statement, too, has `CONNECT_TIMEOUT`."""
    session = await psycopg.AsyncConnection.connect(
        url, autocommit=True, **line(url, CONNECT_TIMEOUT)
    )
    try:
        bound(session, CONNECT_TIMEOUT)
        await session.execute(_SETTLE, (Jsonb(dict(SETTINGS)),))
    except BaseException:
        await session.close()
        raise
    return session


def settle(session: psycopg.Connection[Any], settings: Mapping[str, str] = NO_MORE) -> None:
    """Make `SETTINGS` and others those of a session in autocommit.

    Not by `options` when it begins: those of the URL would be lost, and PgBouncer refuses or drops
    them.
    """
    session.execute(_SETTLE, (Jsonb({**SETTINGS, **settings}),))


def check_url(url: str) -> None:
    """Raises SetupError, which does not quote it, for what is not a connection string."""
    if why := why_no_url(url):
        raise SetupError(f"RECOLLECT_DATABASE_URL {why}")


def why_no_url(url: str) -> str | None:
    """What it is not, or has too much; None for a connection string, as libpq and its author
    understand it. After a sign that a password must not have there, the rest would count as a host,
    a port or a database, which errors and `/ready` show."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        if _DRIVER.match(url):
            return NO_DRIVER
        unknown = "invalid URI query parameter" in str(error) and _QUERY.fullmatch(url)
        return NO_PARAMETER if unknown else NO_URL
    hosts, ports = (str(said.get(name) or "").split(",") for name in ("host", "port"))
    split = (
        any("@" in host[1:] for host in hosts)  # before a name it means an abstract socket
        or any(port and not port.isdecimal() for port in ports)
        or _PASSWORD_WITH_SLASH.match(url)
    )
    return NO_URL if split else None


def line(url: str, patience: float) -> dict[str, Any]:
    """What a connection over a network is told of its patience, as far as its URL is silent.

    `patience`: seconds until it is there. Its hosts share them: they are tried one after the other.
    """
    said = conninfo_to_dict(url)
    hosts = str(said.get("host") or "").count(",") + 1
    ours = {**LINE, "connect_timeout": max(1, int(patience / hosts))}
    return {name: value for name, value in ours.items() if name not in said}
