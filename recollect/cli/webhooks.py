"""Commands for webhooks: who gets events, and what was sent."""

import sys
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer
from typer.core import TyperGroup

from recollect.cli import _complete
from recollect.cli._lazy import loaded, tell_new_name
from recollect.cli.client import ApiKey, AsJson, Url, open_service
from recollect.cli.output import age, confirm, echo_json, one_line, span, table, tell

Id = Annotated[str, typer.Argument(help="Id of the webhook.", autocompletion=_complete.webhooks)]


def register(app: typer.Typer) -> None:
    app.add_typer(_webhooks, name="webhooks")


class _Webhooks(TyperGroup):
    """With what `webhooks` meant before: tokens of providers."""

    def get_command(self, ctx: typer.Context, cmd_name: str):  # pyright: ignore[reportIncompatibleMethodOverride] # typer's context is click's
        if cmd_name != "confirm":
            return super().get_command(ctx, cmd_name)
        tell_new_name(ctx, "webhooks confirm", "connections verify")
        return loaded(ctx, "verification", "verify")


_webhooks = typer.Typer(
    cls=_Webhooks,
    help="Webhooks: send signed events of documents, syncs and connections to your programs.",
    no_args_is_help=True,
)


@_webhooks.command("list")
def list_webhooks(as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """List the webhooks, and what is wrong with them.

    Example: recollect webhooks list
    """
    found = open_service(url, key).get("/v3/webhooks")["endpoints"]
    if as_json:
        echo_json(found)
        return
    if not found:
        tell("no webhooks; create one with `recollect webhooks add URL`")
        return
    rows = [
        [
            one["id"],
            one["url"],
            ",".join(one["events"]),
            ",".join(one.get("containerTags") or ["all"]),
            _state(one),
        ]
        for one in found
    ]
    table(["id", "url", "events", "tags", "state"], rows)
    for one in found:
        if one["disabledReason"]:
            tell(f"{one['id']}: {one_line(one['disabledReason'])}")


@_webhooks.command("add")
def add(
    address: Annotated[str, typer.Argument(metavar="URL", help="Where to send.")],
    event: Annotated[
        list[str] | None, typer.Option("--event", help="Only this kind; repeat for several.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", help="Only this container tag; repeat.", autocompletion=_complete.tags
        ),
    ] = None,
    description: Annotated[str, typer.Option(help="What it is for; shown in lists.")] = "",
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Create a webhook; the secret that signs is printed once.

    Example: recollect webhooks add https://app.example.org/hook --event document.failed
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
        tell(f"webhook {made['id']}; the secret is shown once")


@_webhooks.command("rm")
def remove(
    id: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Delete a webhook with its log; on a terminal it asks first.

    Example: recollect webhooks rm 7msRU48jI0KqwTPC6nnlhv
    """
    service = open_service(url, key)
    if sys.stdin.isatty() and not yes:
        found = [one["url"] for one in service.get("/v3/webhooks")["endpoints"] if one["id"] == id]
        if found:
            asked = f"Delete the webhook to {one_line(found[0])}, and what is logged of it?"
            confirm(asked, yes=False)
    service.send("DELETE", _path(id), {})
    _done(as_json, {"id": id, "deleted": True}, f"deleted {id}")


@_webhooks.command("enable")
def enable(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Let a webhook that was disabled be sent events again.

    Example: recollect webhooks enable 7msRU48jI0KqwTPC6nnlhv
    """
    changed = open_service(url, key).send("PATCH", _path(id), {"disabled": False})
    _done(as_json, changed, f"enabled {id}")


@_webhooks.command("rotate")
def rotate(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Create a new secret, printed once; for a day the old one signs as well.

    Example: recollect webhooks rotate 7msRU48jI0KqwTPC6nnlhv
    """
    changed = open_service(url, key).send("PATCH", _path(id), {"rotateSecret": True})
    _done(as_json, changed, str(changed["secret"]))


@_webhooks.command("test")
def try_out(id: Id, as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Send a webhook.test event; `log` shows how it went.

    Example: recollect webhooks test 7msRU48jI0KqwTPC6nnlhv
    """
    sent = open_service(url, key).send("POST", f"{_path(id)}/test", {})
    _done(as_json, sent, f"{sent['id']} is on its way; see `recollect webhooks log {id}`")


@_webhooks.command("log")
def show_log(
    id: Id,
    state: Annotated[str | None, typer.Option(help="Only pending, delivered or dead ones.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Show what was sent to a webhook, the newest first, and why something was not taken.

    Example: recollect webhooks log 7msRU48jI0KqwTPC6nnlhv --state dead
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
                _progress(one, now),
                str(one["attempts"]),
                str(last.get("status") or ""),
                last["reason"] or "",
            ]
        )
    table(["id", "event", "since", "state", "attempts", "status", "reason"], rows)


@_webhooks.command("replay")
def replay(
    id: Id,
    delivery: Annotated[str, typer.Argument(help="Id of the delivery, msg_….")],
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Send something again, with the same webhook-id.

    Example: recollect webhooks replay 7msRU48jI0KqwTPC6nnlhv msg_0f3a
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


def _progress(delivery: dict[str, Any], now: datetime) -> str:
    since, due = delivery.get("sendingSince"), delivery["nextAttemptAt"]
    if since is not None:
        return f"being sent for {age(datetime.fromisoformat(since), now)}"
    if due is None or not delivery["attempts"]:
        return delivery["state"]
    left = (datetime.fromisoformat(due) - now).total_seconds()
    # One that is due waits while its endpoint rests.
    return f"pending, again in {span(left)}" if left > 0 else "pending, due again"


def _state(webhook: dict[str, Any]) -> str:
    if webhook["disabled"]:
        return "disabled"
    return f"failing ({webhook['failures']})" if webhook["failures"] else "active"
