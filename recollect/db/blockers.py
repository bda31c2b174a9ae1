"""Who holds up a change of the schema: it waits for every transaction that uses its tables, for as
long as that takes, and others wait behind it."""

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from recollect import log
from recollect.db.sessions import CONNECT_TIMEOUT, bound, connect

LOG = log.get("db")
LOOK = 5.0
"""Seconds between two looks."""
_BLOCKING = (
    "select format('pid %%s (%%s, %%s, %%s)', o.pid, o.usename, o.application_name,"
    "  coalesce(o.state, 'state hidden'))"
    " from pg_stat_activity w, pg_stat_activity o where w.pid = %s and w.wait_event_type = 'Lock'"
    # Who waits for that one waits for another process that migrates.
    " and w.wait_event <> 'advisory' and o.pid = any(pg_blocking_pids(w.pid)) order by o.pid"
)


@contextmanager
def told(session: psycopg.Connection[Any], url: str) -> Generator[None]:
    """The log says for whom the session waits, should it wait for long."""
    over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(session.info.backend_pid, url, over), name="blockers", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()  # the supervisor forks next, and no thread may live then


def _watch(pid: int, url: str, over: threading.Event) -> None:
    before: list[str] = []
    while not over.wait(LOOK):
        with suppress(psycopg.Error), connect(psycopg.Connection, url) as look:
            bound(look, CONNECT_TIMEOUT)
            found = [row[0] for row in look.execute(_BLOCKING, (pid,)).fetchall()]
            if found and found != before:
                LOG.warning(
                    "the change of the schema waits for transactions of others; end them, for"
                    " example with pg_terminate_backend",
                    sessions=found,
                )
            before = found
