"""What an error of the database means, judged once and by its SQLSTATE.

psycopg's Python classes do not tell: `OperationalError` is a lost connection as well as a value
that is too long for an index, and `InternalError` is a failover as well as corrupted data.

SQLSTATE                                | raised as       | what follows
----------------------------------------|-----------------|-------------------------------------
none, or 08 connection; 28, 3D, 57P01   | `Unavailable`   | the queue pauses; no attempt counts;
to 57P05 shutdown, crash, start, idle   |                 | 503 with Retry-After
session; 25006 read only (a failover);  |                 |
53 resources (disk, memory,             |                 |
connections) but 53400; 58 system;      |                 |
XX000 that speaks of a connection, or   |                 |
of a postmaster that ended: Citus lost  |                 |
one of its servers; any other that is   |                 |
FATAL: a pooler ended the session       |                 |
40P01 deadlock; 40001 serialization     | `Collided`      | `Database.write` does it again; else
                                        |                 | as `Contended`, of which it is one
40, other rollbacks; 55P03 lock         | `Contended`     | tried again later; the attempt
timeout; 57014 statement timeout;       |                 | counts; nothing else pauses; 503
25P03, 25P04 idle or long transaction;  |                 | with Retry-After
53400 a configured limit                |                 |
22 data; 23514 check; 54 limits of the  | `Refused`       | a document fails with this reason;
server (index row, statement, columns)  |                 | 400
the rest: 42 syntax or access, 23, XX … | as it came      | a bug: logged with its traceback, the
                                        |                 | attempt counts; 500
"""

import os
import re
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from recollect.errors import (
    DATABASE_AWAY,
    DISK_FULL,
    NO_ROOM,
    NO_WRITES,
    READ_ONLY,
    Collided,
    Contended,
    DatabaseAway,
    Refused,
    Unavailable,
)

_OUTAGE = ("08", "28", "3D", "53", "58", "57P01", "57P02", "57P03", "57P04", "57P05")
_COLLIDED = ("40P01", "40001")
_CONTENDED = ("40", "53400", "55P03", "57014", "25P03", "25P04")
_REFUSED = ("22", "23514", "54")
_LOST = ("connection", "postmaster was shut down")
"""What Citus says, as of an error inside, where one of its servers is gone."""
_TAKEN = (
    "too many clients",
    "max client",
    "too many connections",
    "remaining connection slots",
    "max_client_conn",
    "query_wait_timeout",
)
"""What PostgreSQL, PgBouncer and Supavisor say that have no connection left, as a rule without
SQLSTATE."""
_NO_IPV6 = re.compile(r'at "[^"]*:[^"]*".* (unreachable|assign requested address|No route to host)')
_UNTRUSTED = ("certificate verify failed", "root certificate file")
_ENDED = ("FATAL", "PANIC")
_HURRIED = (
    "query timeout",
    "query_timeout",
    "idle transaction timeout",
    "idle_transaction_timeout",
    "client_idle_timeout",
)
"""What PgBouncer says to whom it cuts off for a limit of time."""
_DISK_FULL = "53100"
_READ_ONLY = "25006"
_TELLING = ("23514", "54")
"""Those whose message names a limit or a rule; others quote the value."""


def judged(error: psycopg.Error, away: str = DATABASE_AWAY) -> Exception:
    """What to raise in place of `error`; itself, if it is a bug.

    `away` begins the message of an outage, which is a DatabaseAway unless the server says
    that its disk is full or that it takes no writes.
    """
    state = error.sqlstate
    if isinstance(error, PoolClosed | PoolTimeout | TooManyRequests):
        return DatabaseAway(away)
    if state is None:
        if isinstance(error, psycopg.OperationalError):
            if speaks_of_no_room(str(error)):  # a session did not begin
                return _no_room(error)
            return DatabaseAway(f"{away}: {why_away(error)}")
        if isinstance(error, psycopg.DataError):  # found by the client, such as a NUL in a text
            return Refused(f"the database cannot keep a value of it ({type(error).__name__})")
        return error
    name = f"{type(error).__name__}, SQLSTATE {state}"
    if state.startswith(_CONTENDED):
        # Of other rollbacks it may be unknown whether the transaction was kept (40003).
        kind = Collided if state in _COLLIDED else Contended
        return kind(f"the database gave up a transaction ({name}): {first_line(error)}")
    if state == "XX000" and any(sign in first_line(error) for sign in _LOST):
        return DatabaseAway(f"{away}: {first_line(error)}")
    if state == _DISK_FULL:
        return _no_room(error)
    if state == _READ_ONLY:
        return Unavailable(f"{NO_WRITES}: {first_line(error)}", code=READ_ONLY)
    if state.startswith(_OUTAGE) or error.diag.severity_nonlocalized in _ENDED:
        return DatabaseAway(f"{away}: {why_away(error)}")
    if state.startswith(_REFUSED):
        told = f": {error.diag.message_primary}" if state.startswith(_TELLING) else ""
        return Refused(f"the database cannot keep or compare a value of it ({name}){told}")
    return error


@contextmanager
def judging(away: str = DATABASE_AWAY) -> Generator[None]:
    """What a connection of our own raises inside comes out as of the table above."""
    try:
        yield
    except psycopg.Error as error:
        raised = judged(error, away)
        if raised is error:
            raise
        raise raised from error


def speaks_of_no_room(words: str) -> bool:
    return any(os.strerror(code) in words for code in NO_ROOM)


def _no_room(error: psycopg.Error) -> Unavailable:
    told = f"the database's disk is full, make room on it: {first_line(error)}"
    return Unavailable(told, code=DISK_FULL)


def why_away(error: psycopg.Error) -> str:
    """The server's words, and what to do where they name a limit."""
    words = first_line(error)
    if any(sign in words for sign in _HURRIED):
        return (
            f"{words}; the pooler in front of it cuts off long work, such as a backup: set its"
            " query_timeout, idle_transaction_timeout and client_idle_timeout to 0"
        )
    if _NO_IPV6.search(words):
        return (
            f"{words}; this machine, or its container, has no IPv6: give it that, or name an"
            " address of the database that has IPv4, such as its pooler in session mode"
        )
    if any(sign in words for sign in _UNTRUSTED):
        return (
            f"{words}; name the file of the authority that signs the server's certificate, or of"
            " all that this machine trusts: sslrootcert=/etc/ssl/certs/ca-certificates.crt in the"
            " URL (sslrootcert=system finds none, unless SSL_CERT_FILE names that file)"
        )
    if not any(sign in words.lower() for sign in _TAKEN):
        return words
    return (
        f"{words}; it, or the pooler before it, has no connection left: raise its limit"
        " (max_connections, that of the role or the database; of PgBouncer max_client_conn and"
        " default_pool_size) to what docs/scale.md says"
    )


def first_line(error: Exception) -> str:
    """The server's words without the connection string that libpq may add below."""
    return str(error).strip().split("\n", 1)[0]
