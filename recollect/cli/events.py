"""Commands for events out: endpoints, and what they were told."""

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from recollect.cli.client import ApiKey, AsJson, Url, open_service
from recollect.cli.output import age, echo_json, one_line, table, tell

PANEL = "Tend"
Id = Annotated[str, typer.Argument(help="Id of the endpoint.")]


def register(app: typer.Typer) -> None:
    app.add_typer(_endpoints, name="endpoints", rich_help_panel=PANEL)


_endpoints = typer.Typer(
    help="Where events go: signed webhooks of documents, syncs and connections.",
    no_args_is_help=True,
)


@_endpoints.command("list")
def list_endpoints(as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Show the endpoints, and what is wrong with them.

    Example: recollect endpoints list
    """
    found = open_service(url, key).get("/v3/webhooks")["endpoints"]
    if as_json:
        echo_json(found)
        return
    if not found:
        tell("no endpoints; make one with `recollect endpoints add URL`")
        return
    rows = [
        [
            one["id"],
            one["url"],
            ",".join(one["events"]),
            ",".join(one["containerTags"] or ["all"]),
            _state(one),
        ]
        for one in found
    ]
    table(["id", "url", "events", "tags", "state"], rows)
    for one in found:
        if one["disabledReason"]:
            tell(f"{one['id']}: {one_line(one['disabledReason'])}")


@_endpoints.command("add")
def add(
    address: Annotated[str, typer.Argument(metavar="URL", help="Where to send.")],
    event: Annotated[
        list[str] | None, typer.Option("--event", help="Only this kind; repeat for several.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only of this container tag; repeat.")
    ] = None,
    description: Annotated[str, typer.Option(help="What it is for, for those who list it.")] = "",
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Make an endpoint; the secret that signs is printed once.

    Example: recollect endpoints add https://app.example.org/hook --event document.failed
    """
    body: dict[str, Any] = {"url": address}
    if event:
        body["events"] = event
    if tag:
        body["containerTags"] = tag
    if description:
        body["description"] = description
    made = open_service(url, key).send("POST", "/v3/webhooks", body)
    if as_json:
        echo_json(made)
    else:
        typer.echo(made["secret"])
        tell(f"endpoint {made['id']}; the secret is shown once")


@_endpoints.command("rm")
def remove(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Delete an endpoint with its log.

    Example: recollect endpoints rm 7msRU48jI0KqwTPC6nnlhv
    """
    open_service(url, key).send("DELETE", _path(id), {})
    _done(as_json, {"id": id, "deleted": True}, f"deleted {id}")


@_endpoints.command("enable")
def enable(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Tell an endpoint again what happens, after it was disabled.

    Example: recollect endpoints enable 7msRU48jI0KqwTPC6nnlhv
    """
    changed = open_service(url, key).send("PATCH", _path(id), {"disabled": False})
    _done(as_json, changed, f"enabled {id}")


@_endpoints.command("rotate")
def rotate(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Make a new secret, printed once; for a day the old one signs as well.

    Example: recollect endpoints rotate 7msRU48jI0KqwTPC6nnlhv
    """
    changed = open_service(url, key).send("PATCH", _path(id), {"rotateSecret": True})
    _done(as_json, changed, str(changed["secret"]))


@_endpoints.command("test")
def try_out(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Send a webhook.test; the log tells how it went.

    Example: recollect endpoints test 7msRU48jI0KqwTPC6nnlhv
    """
    sent = open_service(url, key).send("POST", f"{_path(id)}/test", {})
    _done(as_json, sent, f"{sent['id']} is on its way; see `recollect endpoints log {id}`")


@_endpoints.command("log")
def show_log(
    id: Id,
    state: Annotated[str | None, typer.Option(help="Only pending, delivered or dead ones.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Show what an endpoint was told, the newest first, and why something was not taken.

    Example: recollect endpoints log 7msRU48jI0KqwTPC6nnlhv --state dead
    """
    query = {"limit": str(limit), **({"state": state} if state else {})}
    found = open_service(url, key).get(f"{_path(id)}/deliveries?{urlencode(query)}")
    if as_json:
        echo_json(found["deliveries"])
        return
    now = datetime.now(UTC)
    rows: list[list[str]] = []
    for one in found["deliveries"]:
        last = one["log"][-1] if one["log"] else {"status": None, "reason": None}
        rows.append(
            [
                one["id"],
                one["type"],
                f"{age(datetime.fromisoformat(one['createdAt']), now)} ago",
                one["state"],
                str(one["attempts"]),
                str(last["status"] or ""),
                last["reason"] or "",
            ]
        )
    table(["id", "event", "since", "state", "attempts", "status", "reason"], rows)


@_endpoints.command("replay")
def replay(
    id: Id,
    delivery: Annotated[str, typer.Argument(help="Id of the delivery, msg_….")],
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Send something again, with the same webhook-id.

    Example: recollect endpoints replay 7msRU48jI0KqwTPC6nnlhv msg_0f3a
    """
    path = f"{_path(id)}/deliveries/{quote(delivery, safe='')}/replay"
    sent = open_service(url, key).send("POST", path, {})
    _done(as_json, sent, f"{delivery} is on its way again")


def _path(id: str) -> str:
    return f"/v3/webhooks/{quote(id, safe='')}"


def _done(as_json: bool, told: object, line: str) -> None:
    if as_json:
        echo_json(told)
    else:
        typer.echo(line)


def _state(endpoint: dict[str, Any]) -> str:
    if endpoint["disabled"]:
        return "disabled"
    return f"failing ({endpoint['failures']})" if endpoint["failures"] else "fine"
