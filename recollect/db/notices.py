"""Calls of the database to those who wait for work."""

from datetime import timedelta
from typing import Any

import psycopg

from recollect.db.faults import judging


class NoticeListener:
    """Waits for `notify`; lost notices cost seconds, never work, since waiters look anyway."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def wait(self, timeout: timedelta) -> bool:
        """Whether something became due within the time; raises Unavailable."""
        heard = False
        with judging():
            for _ in self._connection.notifies(timeout=timeout.total_seconds(), stop_after=1):
                heard = True
        return heard

    def close(self) -> None:
        self._connection.close()
