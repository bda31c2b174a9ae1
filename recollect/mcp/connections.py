"""Tools that connect sources and say how they stand."""

import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from recollect import connectors
from recollect.errors import NotFoundError
from recollect.mcp.seam import Session
from recollect.mcp.tool import Arguments, ReadTag, Tag, ToolAnswer

RUNS = 5
"""Of a connection that is asked for by id, the latest."""


class ConnectArguments(Arguments):
    provider: str = Field(
        min_length=1,
        description=f"One of {', '.join(connectors.all())}.",
    )
    tag: Tag = None
    settings: dict[str, str | int | float | bool] | None = Field(
        None,
        description="What the provider takes, such as "
        + "; ".join(
            f"{json.dumps(one.guide.example)} for {one.provider}"
            for one in connectors.all().values()
            if one.guide.example
        )
        + ".",
    )
    document_limit: int | None = Field(
        None, ge=1, le=10_000, description="The most documents that it brings in."
    )


class Connected(ToolAnswer):
    id: str = Field(description="For `sync_status`.")
    provider: str
    authorization_link: str | None = Field(
        description="The user has to open it and agree; give it to them as it is. Null: nothing is"
        " to be authorized, the first sync has begun."
    )
    expires_in: str | None = Field(description="How long the link can be used.")


async def connect(session: Session, new: ConnectArguments) -> Connected:
    body = {
        "containerTags": session.tags(new.tag),
        "metadata": new.settings,
        "documentLimit": new.document_limit,
    }
    if new.provider == "list":  # means something else there
        raise NotFoundError("Provider not found", f"no provider {new.provider!r}")
    path = f"/v3/connections/{quote(new.provider, safe='')}"
    made = await session.api.send("POST", path, body)
    return Connected(
        id=made["id"],
        provider=new.provider,
        authorization_link=made["authLink"],
        expires_in=made["expiresIn"],
    )


class WhichConnections(Arguments):
    connection: str | None = Field(
        None, description="Id of one connection, for its latest runs; absent: all of them."
    )
    tag: ReadTag = None


class RunAnswer(ToolAnswer):
    status: Literal["running", "completed", "partial", "failed"]
    started_at: str
    completed_at: str | None
    added: int
    changed: int
    unchanged: int
    removed: int
    failed: int
    skipped: dict[str, int] = Field(description="By reason.")
    error: str | None


class ConnectionAnswer(ToolAnswer):
    id: str
    provider: str
    state: Literal["pending", "ready", "syncing", "needs_auth", "failed"] = Field(
        description="pending: its link was not used yet. needs_auth: the user has to authorize it"
        " again, on the console's page of connections. failed: its provider was away for a month."
    )
    paused: bool
    tags: list[str]
    account: str | None
    error: str | None = Field(description="What is wrong, and what to do.")
    last_synced_at: str | None
    next_sync_at: str | None
    runs: list[RunAnswer] = Field(description="The latest first; only of one asked for by id.")


class Connections(ToolAnswer):
    connections: list[ConnectionAnswer]


async def sync_status(session: Session, wanted: WhichConnections) -> Connections:
    if wanted.connection is not None:
        path = f"/v3/connections/{quote(wanted.connection, safe='')}"
        one = await session.api.send("GET", path)
        runs = await session.api.array("GET", f"{path}/sync-runs?limit={RUNS}")
        return Connections(connections=[_connection(one, [_run(run) for run in runs])])
    body = {"containerTags": session.tags(wanted.tag)}
    found = await session.api.array("POST", "/v3/connections/list", body)
    return Connections(connections=[_connection(one, []) for one in found])


def _connection(one: Mapping[str, Any], runs: list[RunAnswer]) -> ConnectionAnswer:
    return ConnectionAnswer(
        id=one["id"],
        provider=one["provider"],
        state=one["state"],
        paused=one["paused"],
        tags=one["containerTags"],
        account=one.get("email"),
        error=one["error"],
        last_synced_at=one.get("lastSyncedAt"),
        next_sync_at=one["nextSyncAt"],
        runs=runs,
    )


def _run(run: Mapping[str, Any]) -> RunAnswer:
    return RunAnswer(
        status=run["status"],
        started_at=run["startedAt"],
        completed_at=run.get("completedAt"),
        added=run["added"],
        changed=run["changed"],
        unchanged=run["unchanged"],
        removed=run["removed"],
        failed=run["itemsFailed"],
        skipped=run["skipped"],
        error=run["error"],
    )
