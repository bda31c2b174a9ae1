"""What happens to documents, as it happens: notices of triggers (migrations 0004 and 0058)."""

import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from recollect.db.faults import judging
from recollect.db.sessions import connect_async
from recollect.model import OrgId

KEEP = timedelta(seconds=60)
"""How long processes are told of every stage after they last said that they watch."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A document in another state. Without `tags` there were too many to send."""

    org_id: OrgId
    id: str
    status: str
    """of `model.Status`, or `deleted`"""
    stage: str | None
    kind: str
    tags: Sequence[str] | None
    at: int
    """milliseconds of the database's clock since 1970"""
    before: Sequence[str] | None = None
    """the tags that it had, if they are what changed"""


class Watch:
    """A connection that hears all notices of a database."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._id = secrets.token_hex(8)

    async def next(self, timeout: timedelta) -> list[Notice]:
        """Those that came together next, or none when none came in time; raises Unavailable."""
        with judging():
            notices = self._connection.notifies(timeout=timeout.total_seconds(), stop_after=1)
            return [_notice(notice.payload) async for notice in notices]

    async def renew(self) -> None:
        """Say that someone watches; at least every `KEEP`, or stages are not told any more."""
        with judging():
            await self._connection.execute(
                "insert into watchers (id, expires_at) values (%(id)s, now() + %(keep)s)"
                " on conflict (id) do update set expires_at = excluded.expires_at",
                {"id": self._id, "keep": KEEP},
            )
            await self._connection.execute("delete from watchers where expires_at < now()")


@asynccontextmanager
async def watch(url: str) -> AsyncGenerator[Watch]:
    """Everything committed from now on is heard; raises Unavailable."""
    with judging():
        connection = await connect_async(url)
    try:
        found = Watch(connection)
        await found.renew()
        with judging():
            await connection.execute("listen recollect_documents")
        yield found
    finally:
        await connection.close()


def _notice(payload: str) -> Notice:
    told = json.loads(payload)
    return Notice(
        org_id=OrgId(told["org"]),
        id=told["id"],
        status=told["status"],
        stage=told["stage"],
        kind=told["kind"],
        tags=told["tags"],
        at=told["at"],
        before=told.get("before"),
    )
