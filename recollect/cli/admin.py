"""Commands that tend the service from inside: organisations, keys, checks, the index."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from recollect import db, documents
from recollect.app import (
    index_identity,
    open_embedder_of,
    user_agent,
)
from recollect.cli._config import load
from recollect.cli._database import transaction
from recollect.cli.output import confirm, counted, echo_json, fail, if_stopped, shown, table
from recollect.connectors._robots import AGENT, MAX_BYTES, Robots, Rule
from recollect.db import Database, machines
from recollect.db.embedded import database
from recollect.errors import Permanent, RecollectError, SetupError, Transient
from recollect.fetch import Fetcher, UrlVerdict
from recollect.index import vector_index
from recollect.inference.embed import Embedder
from recollect.memories import memories
from recollect.model import KeyId, Plan, Scope
from recollect.orgs import assistants, orgs, tags
from recollect.orgs import audit as audits

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    app.add_typer(_orgs, name="orgs")
    app.add_typer(_keys, name="keys")
    app.add_typer(_assistants, name="assistants")
    app.command()(reindex)
    app.command()(audit)
    app.command("check-url")(check_url)


_orgs = typer.Typer(help="Organisations and their plan.", no_args_is_help=True)
_keys = typer.Typer(help="API keys.", no_args_is_help=True)
_assistants = typer.Typer(
    help="List and revoke assistants connected to /mcp.", no_args_is_help=True
)


@_orgs.command("create")
def create_org(name: str, plan: Plan = Plan.ENTERPRISE, as_json: AsJson = False) -> None:
    """Create an organisation.

    Example: recollect orgs create acme --plan scale
    """
    with transaction() as tx:
        org = orgs.create(tx, name, plan)
    if as_json:
        echo_json({"id": org.id, "name": org.name, "plan": org.plan})
    else:
        typer.echo(f"{org.name} ({org.plan}), id {org.id}")


@_orgs.command("list")
def list_orgs(as_json: AsJson = False) -> None:
    """Show the organisations.

    Example: recollect orgs list
    """
    with transaction() as tx:
        found = orgs.list_all(tx)
    if as_json:
        echo_json([{"id": o.id, "name": o.name, "plan": o.plan} for o in found])
    else:
        table(["name", "plan", "id"], [[o.name, o.plan, o.id] for o in found])


@_orgs.command("plan")
def change_plan(name: str, plan: Plan, as_json: AsJson = False) -> None:
    """Change an organisation's plan.

    Example: recollect orgs plan acme scale
    """
    with transaction() as tx:
        org = orgs.change_plan(tx, name, plan)
    if as_json:
        echo_json({"id": org.id, "name": org.name, "plan": org.plan})
    else:
        typer.echo(f"{org.name} is on plan {org.plan}")


@_keys.command("create")
def create_key(
    org: Annotated[str, typer.Option(help="Name of the organisation.")] = orgs.DEFAULT,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "",
    scope: Annotated[Scope, typer.Option(help="What it may do.")] = Scope.WRITE,
    tag: Annotated[list[str] | None, typer.Option(help="Only these container tags.")] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="When it expires: 90m, 2h, 30d, 2027-01-31, an ISO time."),
    ] = None,
    per_minute: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Requests per minute; default RECOLLECT_RATE_LIMIT.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key; its secret is printed once.

    Example: recollect keys create --scope read --expires 2h
    """
    with transaction() as tx:
        until = None if expires is None else orgs.expiry(expires, db.now(tx))
        owner = orgs.find(tx, org)
        key, secret = orgs.create_key(
            tx,
            owner.id,
            name=name,
            scope=scope,
            tags=tags.check(tag, "--tag") if tag else None,
            expires_at=until,
            limit=orgs.Limit(per_minute, timedelta(minutes=1)) if per_minute else None,
        )
    if as_json:
        echo_json(
            {
                "id": key.id,
                "key": secret,
                "org": owner.name,
                "scope": key.scope,
                "tags": key.tags,
                "expiresAt": until.isoformat() if until else None,
            }
        )
    else:
        typer.echo(secret)
        end = f", until {until:%Y-%m-%d %H:%M} UTC" if until else ""
        typer.echo(f"{key.scope} key {key.id} of {owner.name}{end}; shown once", err=True)


@_keys.command("list")
def list_keys(
    org: Annotated[str | None, typer.Option(help="Only this organisation.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the keys, without their secrets.

    Example: recollect keys list
    """
    with transaction() as tx:
        found = orgs.list_keys(tx, orgs.find(tx, org).id if org else None)
    rows = [
        {
            "id": key.id,
            "org": key.org.name,
            "name": key.name,
            "scope": str(key.scope),
            "tags": list(key.tags) if key.tags else None,
            "rateLimit": key.rate_limit,
            "rateLimitWindow": key.rate_window.total_seconds() if key.rate_window else None,
            "state": key.state,
            "expiresAt": key.expires_at.isoformat() if key.expires_at else None,
            "revokedAt": key.revoked_at.isoformat() if key.revoked_at else None,
        }
        for key in found
    ]
    if as_json:
        echo_json(rows)
    else:
        names = "id", "org", "name", "scope", "tags", "rateLimit", "state", "expiresAt", "revokedAt"
        columns = list(names)
        table(columns, [[shown(row[column]) for column in columns] for row in rows])


@_keys.command("revoke")
def revoke_key(id: str, as_json: AsJson = False) -> None:
    """Revoke a key: it stops working at once.

    Example: recollect keys revoke 4f0c2ab19d3e
    """
    with transaction() as tx:
        orgs.revoke_key(tx, KeyId(id))
    if as_json:
        echo_json({"id": id, "revoked": True})
    else:
        typer.echo(f"key {id} is revoked")


@_assistants.command("list")
def list_assistants(
    org: Annotated[str | None, typer.Option(help="Only this organisation.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the assistants that can still ask, the newest first.

    Example: recollect assistants list
    """
    with transaction() as tx:
        found = assistants.find(tx, orgs.find(tx, org).id if org else None)
    rows = [
        {
            "id": one.id,
            "org": one.org,
            "name": one.name,
            "scope": str(one.scope),
            "tags": one.tags,
            "keyId": one.key_id,
            "createdAt": one.created_at.isoformat(),
            "lastUsedAt": one.last_used_at.isoformat() if one.last_used_at else None,
        }
        for one in found
    ]
    if as_json:
        echo_json(rows)
    else:
        columns = ["id", "org", "name", "scope", "tags", "keyId", "lastUsedAt"]
        table(columns, [[shown(row[column]) for column in columns] for row in rows])


@_assistants.command("revoke")
def revoke_assistant(id: str, as_json: AsJson = False) -> None:
    """Revoke an assistant: its tokens open nothing from now on.

    Example: recollect assistants revoke kQ3vVxJrW1pYc7TzN5bHfA
    """
    with transaction() as tx:
        assistants.revoke(tx, id)
    if as_json:
        echo_json({"id": id, "revoked": True})
    else:
        typer.echo(f"assistant {id} is revoked")


def reindex(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bind the index to the embedding model of the settings and embed everything again.

    Stop the service first; documents stay searchable by words while the workers go through them.
    Memories are embedded before it ends.

    Example: RECOLLECT_EMBEDDER=none recollect reindex --yes
    """
    config = load()
    try:
        with transaction() as tx:
            index = vector_index.read(tx)
            if machines.is_served(tx):
                fail("a service is running on this database; stop it first")
        embedder = open_embedder_of(config, index)
    except SetupError as error:
        fail(str(error))
    name, dimensions = index_identity(embedder)
    confirm(f"Embed every document again with {name}?", yes=yes)
    with transaction() as tx:
        vector_index.rebind(tx, name, dimensions)
        queued = documents.reindex(tx)
        audits.record(tx, "index.rebuilt", embedder=name)
        memories.forget_vectors(tx)
    if embedder is not None:
        left = "the workers embed the rest once the service runs; until then words find it"
        try:
            with (
                if_stopped(left),
                database(config, keep=False) as ensure,
                Database(ensure(), size=1) as db,
            ):
                embed_memories(db, embedder)
        except RecollectError as error:
            fail(f"{error}; {left}")
    if as_json:
        echo_json({"embedder": name, "queued": queued})
    else:
        typer.echo(f"queued: {counted(queued, 'document')}; start the service to work through them")


def embed_memories(db: Database, embedder: Embedder) -> int:
    """Give every memory that has no vector one; how many those were. Raises Transient, Permanent.

    In batches: what is done stays done.
    """
    done = 0
    while True:
        with db.begin() as tx:
            waiting = memories.without_vector(tx)
        if not waiting:
            return done
        vectors = embedder.embed(list(waiting.values()))
        with db.begin() as tx:
            memories.embed(tx, dict(zip(waiting, vectors, strict=True)))
        done += len(waiting)


def audit(
    org: Annotated[str | None, typer.Option(help="Only this organisation; default all.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, or all that begin with it: key.")
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only by key:ID, cli, service.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Not older than this, in UTC.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 100,
    as_json: AsJson = False,
) -> None:
    """Show who did what, the newest first: keys, settings, connections, deletions, sign-ins.

    Example: recollect audit --action key. --since 2026-11-01
    """
    with transaction() as tx:
        found = audits.find(
            tx,
            org=orgs.find(tx, org).id if org else None,
            action=action,
            actor=actor,
            since=since.replace(tzinfo=since.tzinfo or UTC) if since else None,
            limit=limit,
        )
    rows: list[dict[str, Any]] = [
        {
            "id": one.id,
            "at": one.at.isoformat(),
            "org": one.org_id,
            "actor": one.actor,
            "action": one.action,
            "object": one.object,
            "result": one.result,
            "address": one.address,
            "request": one.request,
            "details": dict(one.details),
        }
        for one in found
    ]
    if as_json:
        echo_json(rows)
        return
    columns = ["at", "actor", "action", "object", "result", "address", "details"]
    table(
        columns,
        [[_told(row[column]) for column in columns] for row in rows],
    )


def _told(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return "" if value is None else str(value)


def check_url(
    url: str,
    robots: Annotated[
        bool, typer.Option("--robots", help="Ask the site's robots.txt, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether this address may be fetched, and why not; with --robots also crawled.

    Example: recollect check-url https://example.org/private/ --robots
    """
    config = load()
    with Fetcher(user_agent=user_agent(config), allow_networks=config.allow_networks) as fetcher:
        verdict = fetcher.check(url)
        rule = _rule(fetcher, verdict) if robots and verdict.allowed else None
    if as_json:
        told: dict[str, object] = {
            "url": verdict.url,
            "allowed": verdict.allowed,
            "reason": verdict.reason,
            "host": verdict.host,
            "addresses": [
                {"address": a.address, "allowed": a.allowed, "rule": a.rule}
                for a in verdict.addresses
            ],
        }
        if rule is not None:
            told["robots"] = {
                "allowed": rule.allowed,
                "line": rule.line,
                "number": rule.number,
                "reason": rule.reason,
            }
        echo_json(told)
    else:
        typer.echo(f"{'allowed' if verdict.allowed else 'refused'}: {verdict.url or url}")
        if verdict.reason:
            typer.echo(f"  {verdict.reason}")
        for address in verdict.addresses:
            typer.echo(f"  {address.address}  {address.rule}")
        if rule is not None:
            said = f"line {rule.number}: {rule.line}" if rule.line else rule.reason
            typer.echo(f"robots.txt {'allows' if rule.allowed else 'forbids'} it")
            typer.echo(f"  {said or 'no line says otherwise'}")
    if not verdict.allowed or (rule is not None and not rule.allowed):
        raise typer.Exit(1)


def _rule(fetcher: Fetcher, verdict: UrlVerdict) -> Rule:
    """What robots.txt says of the address (RFC 9309 2.3.1: 4xx allows, 5xx forbids)."""
    parts = urlsplit(verdict.href or "")
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        url = f"{parts.scheme}://{parts.netloc}/robots.txt"
        found = fetcher.get(url, enough=MAX_BYTES + 1)
        rules = Robots.parse(found.data, AGENT)
    except Permanent as error:
        missing = error.code.startswith("http_4") or error.code == "bad_redirect"
        rules = Robots.everything() if missing else Robots.nothing(str(error))
    except Transient as error:
        rules = Robots.nothing(str(error))
    return rules.verdict(target)
