"""Commands for connections: connect, look, sync, end, and why something is not a document."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer
from typer._click.formatting import HelpFormatter
from typer.core import TyperCommand, TyperGroup

from recollect.cli import _complete
from recollect.cli._lazy import loaded, part
from recollect.cli.client import ApiKey, AsJson, Service, Url, open_service
from recollect.cli.output import age, confirm, echo_json, fail, one_line, table, tell

PER_PAGE = 100
"""Things to pick that one request brings."""
STATES = {"holds": "ok", "fails": "FAILS", "unknown": "?"}

Id = Annotated[
    str, typer.Argument(help="Id of the connection.", autocompletion=_complete.connections)
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Container tag; repeat for several.", autocompletion=_complete.tags),
]


def register(app: typer.Typer) -> None:
    app.command(cls=_Connect)(connect)
    connected = typer.Typer(cls=_Connections)
    connected.callback(invoke_without_command=True)(connections)
    connected.command()(authorize)
    connected.command()(pick)
    app.add_typer(connected, name="connections")
    app.command()(sync)
    app.command()(changes)
    app.command()(seen)
    app.command()(disconnect)


class _Connect(TyperCommand):
    """Its help lists what `--set` takes."""

    def format_help(self, ctx: typer.Context, formatter: HelpFormatter) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        super().format_help(ctx, formatter)
        table(["provider", "--set", "meaning"], list(part("_providers").keys()))


class _Connections(TyperGroup):
    """Lists, and has a command that needs the code of the database."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride] # typer's context is click's
        return [*super().list_commands(ctx), "verify"]

    def get_command(self, ctx: typer.Context, cmd_name: str):  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        if cmd_name == "verify":
            return loaded(ctx, "verification", cmd_name)
        return super().get_command(ctx, cmd_name)


def connect(
    provider: Annotated[
        str,
        typer.Argument(help="One of the providers below.", autocompletion=_complete.providers),
    ],
    tag: Tags = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Metadata, such as startUrl=https://… or webhooks=false",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="The most documents to bring in.")
    ] = None,
    follow: Annotated[bool, typer.Option(help="Wait for the first sync.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            help="Read the real account, change nothing, report what holds. Takes the newest"
            " connection of the provider (with these tags); makes one if there is none, or with"
            " --set or --limit."
        ),
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Connect a provider; where users have to authorize, print the link.

    Example: recollect connect web-crawler --set startUrl=https://docs.example.org --tag docs
    """
    metadata = _pairs(set or [])
    body: dict[str, Any] = {"metadata": metadata}
    if tag:
        body["containerTags"] = tag
    if limit is not None:
        body["documentLimit"] = limit
    service = open_service(url, key)
    if check and not set and limit is None and (found := _newest_of(service, provider, tag)):
        _report(service, found, as_json)
        return
    if lacking := part("_providers").lacking(provider, metadata):
        rows = "".join(f"\n  --set {name}=…  {meaning}" for name, meaning in lacking)
        fail(f"{provider} needs to know more:{rows}", code=2)
    for given, meant in part("_providers").mistaken(provider, metadata):
        tell(f"{provider} knows no {given}; did you mean {meant}? It is kept, and does nothing")
    made = service.send("POST", f"/v3/connections/{quote(provider, safe='')}", body)
    _tell_warnings(made)
    if as_json and not check:
        echo_json(made)
    elif as_json:
        if made["authLink"] is not None:
            tell(made["authLink"])
    else:
        typer.echo(f"connection {made['id']}")
        _echo_link(made)
    if part("_providers").unpicked(provider, metadata):
        tell(f"then pick what is to be synced: `recollect connections pick {made['id']}`")
    if follow:
        part("_sync_progress").follow(service, made["id"], None)
    if check:
        _report(service, made["id"], as_json)


def connections(
    ctx: typer.Context,
    tag: Tags = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """List connections: state, last sync, next sync, and what to do where something is wrong.

    Example: recollect connections --tag docs
    """
    if ctx.invoked_subcommand is not None:
        return
    body = {"containerTags": tag} if tag else {}
    found = open_service(url, key).array("POST", "/v3/connections/list", body)
    if as_json:
        echo_json(found)
        return
    if not found:
        tell("no connections; create one with `recollect connect`")
        return
    now = datetime.now(UTC)
    rows = [
        [
            one["id"],
            one["provider"],
            one.get("email") or _subject(one["metadata"]),
            ",".join(one["containerTags"]),
            "paused" if one["paused"] else one["state"],
            _last(one, now),
            _next(one, now),
        ]
        for one in found
    ]
    table(["id", "provider", "source", "tags", "state", "last sync", "next"], rows)
    for one in found:
        # What is wrong with it, or what its last sync could not do.
        last: Mapping[str, Any] = one.get("lastSyncRun") or {}
        if wrong := one["error"] or last.get("error"):
            tell(f"{one['id']}: {one_line(wrong)}")
        if todo := part("_providers").todo(one):
            tell(f"{one['id']}: {todo}")
        if (one["pushes"] or "").startswith("off"):
            tell(f"{one['id']}: pushes: {one_line(one['pushes'])}")


def authorize(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Print a new link by which the user authorizes a connection, for the first time or again.

    Example: recollect connections authorize 7msRU48jI0KqwTPC6nnlhv
    """
    path = f"/v3/connections/{quote(id, safe='')}/authorize"
    made = open_service(url, key).send("POST", path, {})
    if as_json:
        echo_json(made)
    else:
        _echo_link(made)


def _echo_link(made: Mapping[str, Any]) -> None:
    if made["authLink"] is not None:
        typer.echo(f"authorize within {made['expiresIn']}:\n{made['authLink']}")


def pick(
    id: Id,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="What is to be synced, by full name; without any, list what there is."),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Pick what a connection of GitHub syncs, in place of what was picked before; list it.

    Example: recollect connections pick 7msRU48jI0KqwTPC6nnlhv octo/handbook octo/docs
    """
    service = open_service(url, key)
    path = f"/v3/connections/{quote(id, safe='')}"
    found: list[Mapping[str, Any]] = []
    while True:
        query = urlencode({"page": len(found) // PER_PAGE + 1, "per_page": PER_PAGE})
        some = service.get(f"{path}/resources?{query}")
        found += some["resources"]
        if len(some["resources"]) < PER_PAGE:
            break
    if not names and as_json:
        echo_json(found)
    elif not names:
        picked = service.get(path)["metadata"].get("resources", [])
        ids = {one["id"] for one in picked}
        rows = [["yes" if one["id"] in ids else "", one["full_name"]] for one in found]
        table(["picked", "name"], rows)
    else:
        by_name = {one["full_name"].lower(): one for one in found}
        if lacking := [name for name in names if name.lower() not in by_name]:
            fail(
                f"the account has no {', '.join(lacking)}; `recollect connections pick {id}` lists"
            )
        chosen = [by_name[name.lower()] for name in names]
        wanted = [{"id": one["id"], "name": one["full_name"]} for one in chosen]
        told = service.send("POST", f"{path}/configure", {"resources": wanted})
        if as_json:
            echo_json(told)
        else:
            typer.echo(told["message"])


def _subject(metadata: Mapping[str, Any]) -> str:
    """What the connection is of (a site, a bucket), if it has no account."""
    if "bucket" in metadata:
        return "/".join(filter(None, (str(metadata["bucket"]), str(metadata.get("prefix") or ""))))
    return next((str(metadata[key]) for key in ("startUrl", "path") if key in metadata), "")


def sync(
    id: Id,
    follow: Annotated[bool, typer.Option(help="Show progress until it is done.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Sync a connection now; a sync that runs is followed by one more.

    Example: recollect sync 7msRU48jI0KqwTPC6nnlhv --follow
    """
    service = open_service(url, key)
    before = _newest(service, id)
    told = service.send("POST", f"/v3/connections/{quote(id, safe='')}/sync", {})
    progress = part("_sync_progress")
    if not follow:
        progress.not_halted(service, id)
        if as_json:
            echo_json(told)
        else:
            typer.echo(told["message"])
        return
    run = progress.follow(service, id, before)
    if as_json:
        echo_json(run)


def changes(
    id: Id,
    run: Annotated[str | None, typer.Argument(help="Id of a run; default the latest.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows on a page.")] = 100,
    page: Annotated[int, typer.Option(min=1, help="Which page.")] = 1,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """What a sync added, changed and removed; of each document, how much of its text was new.

    Example: recollect changes 7msRU48jI0KqwTPC6nnlhv
    """
    service = open_service(url, key)
    run = run or _newest(service, id)
    if run is None:
        fail("this connection was never synced")
    path = f"/v3/connections/{quote(id, safe='')}/sync-runs/{quote(run, safe='')}/changes"
    found = service.get(f"{path}?{urlencode({'limit': limit, 'page': page})}")
    if as_json:
        echo_json(found)
        return
    rows = [
        [
            one["change"],
            "" if one["share"] is None else f"{one['share']:.0%}",
            one["documentId"],
            one["title"] or one.get("url") or "",
        ]
        for one in found["changes"]
    ]
    if rows:
        table(["change", "new", "document", "title"], rows)
    total = found["pagination"]["totalItems"]
    if total > page * limit:
        tell(f"{(page - 1) * limit + len(rows)} of {total}; --page {page + 1} for the next")
    elif not rows:
        tell("nothing changed" if page == 1 else f"no page {page}")


def seen(
    id: Id,
    what: Annotated[str | None, typer.Argument(help="One item: its URL or id.")] = None,
    verdict: Annotated[
        str | None, typer.Option(help="Only with this verdict: robots, error, off_host …")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows on a page.")] = 100,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """What a connection saw, and why something is not a document.

    Example: recollect seen 7msRU48jI0KqwTPC6nnlhv https://docs.example.org/private/
    """
    query: dict[str, Any] = {"limit": limit}
    if what is not None:
        query["id"] = what
    if verdict is not None:
        query["verdict"] = verdict
    path = f"/v3/connections/{quote(id, safe='')}/items?{urlencode(query)}"
    found = open_service(url, key).get(path)
    if as_json:
        echo_json(found)
        return
    rows = [[one["verdict"], *_what(one), one["detail"] or ""] for one in found["items"]]
    if any(row[2] for row in rows):
        table(["verdict", "what", "title", "why"], rows)
    elif rows:
        table(["verdict", "what", "why"], [[*row[:2], row[3]] for row in rows])
    elif verdict is not None:
        tell(f"nothing has the verdict {verdict}")
    counts = ", ".join(f"{count} {name}" for name, count in found["verdicts"].items())
    tell(counts or "nothing was seen yet")


def _what(one: Mapping[str, Any]) -> tuple[str, str]:
    """The id of a thing, and its title; an empty one where the id is the address or contains the
    title."""
    id, title = one["id"], one["title"] or ""
    return id, "" if id == one.get("url") or title in id else title


def disconnect(
    id: Id,
    keep_documents: Annotated[
        bool, typer.Option("--keep-documents", help="What it brought stays.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """End a connection for good, and delete what it brought unless it is to be kept.

    Example: recollect disconnect 7msRU48jI0KqwTPC6nnlhv --keep-documents
    """
    service = open_service(url, key)
    path = f"/v3/connections/{quote(id, safe='')}"
    found = service.send("GET", path)
    if not keep_documents:
        source = found.get("email") or _subject(found["metadata"])
        whose = f" of {one_line(source)}" if source else ""
        told = f"the {found['provider']} connection{whose}, and all documents that it brought"
        confirm(f"Delete {told}, for good?", yes=yes)
    flag = "false" if keep_documents else "true"
    gone = service.send("DELETE", f"{path}?deleteDocuments={flag}", {})
    if as_json:
        echo_json(gone)
    else:
        typer.echo(f"disconnected {gone['provider']} {gone['id']}")


def _pairs(given: list[str]) -> dict[str, str | float | bool]:
    pairs: dict[str, str | float | bool] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            fail(f"--set {pair}: give it as KEY=VALUE", code=2)
        # Numbers stay text: an access key may look like one.
        pairs[name] = value == "true" if value in ("true", "false") else value
    return pairs


def _newest_of(service: Service, provider: str, tags: list[str] | None) -> str | None:
    body = {"containerTags": tags} if tags else {}
    found = service.array("POST", "/v3/connections/list", body)
    return next((one["id"] for one in found if one["provider"] == provider), None)


def _tell_warnings(made: Mapping[str, Any]) -> None:
    """Such as that another connection brings the same."""
    for told in made.get("warnings") or ():
        tell(f"{told} `recollect disconnect {made['id']}` undoes this one.")


def _report(service: Service, id: str, as_json: bool) -> None:
    """Print what was found at the account; exit with code 1 if something does not hold."""
    told = service.send("POST", f"/v3/connections/{quote(id, safe='')}/check", {})
    if as_json:
        echo_json(told)
    else:
        typer.echo(f"{told['provider']} {told['connectionId']}")
        rows = [[STATES[one["state"]], one["name"], one["sentence"]] for one in told["assumptions"]]
        table(["", "what", "found"], rows)
    if not told["holds"]:
        raise typer.Exit(1)


def _newest(service: Service, id: str) -> str | None:
    runs = service.array("GET", f"/v3/connections/{quote(id, safe='')}/sync-runs?limit=1")
    return runs[0]["id"] if runs else None


def _last(one: Mapping[str, Any], now: datetime) -> str:
    run = one.get("lastSyncRun")
    if run is None:
        return "never"
    # In the words of the published clients, which know no "partial".
    status = "partial" if run["status"] == "completed" and run.get("error") else run["status"]
    return f"{status} {age(datetime.fromisoformat(run['startedAt']), now)} ago"


def _next(one: Mapping[str, Any], now: datetime) -> str:
    if one["nextSyncAt"] is None:
        return ""
    due = datetime.fromisoformat(one["nextSyncAt"])
    return "now" if due <= now else f"in {age(now, due)}"
