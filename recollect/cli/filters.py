"""Commands for the filter: what of connected sources is kept out, and what a change would do."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from recollect.cli import _complete
from recollect.cli.client import ApiKey, AsJson, Url, open_service
from recollect.cli.output import echo_json, fail, table, tell
from recollect.sync.item_filter import KEYS

CLEARED = ("include", "exclude", "prompt")
_EFFECTS = {"add": "adds", "drop": "drops", "undecided": "undecided"}

_filters = typer.Typer(
    help="Show, try out and change what syncs keep out.",
    no_args_is_help=True,
)

IncludeUrl = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Only addresses like this; repeatable.")
]
IncludeTitle = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Only titles like this; repeatable.")
]
ExcludeUrl = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="No addresses like this; repeatable.")
]
ExcludeTitle = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="No titles like this; repeatable.")
]
Prompt = Annotated[str | None, typer.Option(help="What to sync and what to skip, in words.")]
Model = Annotated[
    bool | None,
    typer.Option("--model/--no-model", help="Whether a language model judges by the prompt."),
]
Clear = Annotated[
    list[str] | None, typer.Option(metavar="PART", help="include, exclude or prompt; repeatable.")
]


def register(app: typer.Typer) -> None:
    app.add_typer(_filters, name="filters")


@_filters.command("show")
def show(as_json: AsJson = False, url: Url = None, key: ApiKey = None) -> None:
    """Show the filter as it is.

    Example: recollect filters show
    """
    _tell(_of(open_service(url, key).get("/v3/settings")), as_json=as_json)


@_filters.command("preview")
def preview(
    include_url: IncludeUrl = None,
    include_title: IncludeTitle = None,
    exclude_url: ExcludeUrl = None,
    exclude_title: ExcludeTitle = None,
    prompt: Prompt = None,
    model: Model = None,
    clear: Clear = None,
    connection: Annotated[
        str | None,
        typer.Option(help="Only this connection, by id.", autocompletion=_complete.connections),
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Let the model judge up to 50 things now.")
    ] = False,
    examples: Annotated[
        int, typer.Option(min=0, max=100, help="Examples of each effect and connection.")
    ] = 10,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """What a changed filter would add and drop among what connections know. Changes nothing.

    Example: recollect filters preview --exclude-title "Draft *"
    """
    change = _change(include_url, include_title, exclude_url, exclude_title, prompt, model, clear)
    body = {**change, "ask": ask, "examples": examples}
    if connection is not None:
        body["connectionId"] = connection
    told = open_service(url, key).send("POST", "/v3/settings/preview", body)
    if as_json:
        echo_json(told)
        return
    for one in told["connections"]:
        counts = ", ".join(f"{one[name]} {name}" for name in _EFFECTS.values())
        typer.echo(f"{one['provider']} {one['connectionId']}: {counts} of {one['known']} known")
        rows = [
            [shown["effect"], shown["title"] or shown["id"], shown["reason"] or "", _before(shown)]
            for shown in one["examples"]
        ]
        if rows:
            table(["effect", "what", "why", "until now"], rows)
    if not told["connections"]:
        tell("there are no connections")
    for note in told["notes"]:
        tell(note)


@_filters.command("set")
def set_filter(
    include_url: IncludeUrl = None,
    include_title: IncludeTitle = None,
    exclude_url: ExcludeUrl = None,
    exclude_title: ExcludeTitle = None,
    prompt: Prompt = None,
    model: Model = None,
    clear: Clear = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Change the filter; what is not named stays. It acts on what syncs find from now on.

    Example: recollect filters set --prompt "Specifications and decisions; no drafts" --model
    """
    change = _change(include_url, include_title, exclude_url, exclude_title, prompt, model, clear)
    if not change:
        fail("name something to change, or look with `recollect filters show`", code=2)
    told = open_service(url, key).send("PATCH", "/v3/settings", change)
    _tell(_of(told["updated"]), as_json=as_json)
    for warning in told.get("warnings") or ():
        tell(warning)


def _change(
    include_url: list[str] | None,
    include_title: list[str] | None,
    exclude_url: list[str] | None,
    exclude_title: list[str] | None,
    prompt: str | None,
    model: bool | None,
    clear: list[str] | None,
) -> dict[str, Any]:
    """The settings that the options name; patterns replace all that were there of their kind."""
    change: dict[str, Any] = {}
    for part in clear or ():
        if part not in CLEARED:
            fail(f"--clear {part}: must be one of {', '.join(CLEARED)}", code=2)
        change["filterPrompt" if part == "prompt" else f"{part}Items"] = None
    for name, urls, titles in (
        ("includeItems", include_url, include_title),
        ("excludeItems", exclude_url, exclude_title),
    ):
        if urls or titles:
            change[name] = {"urlPatterns": urls or [], "titlePatterns": titles or []}
    if prompt is not None:
        change["filterPrompt"] = prompt
    if model is not None:
        change["shouldLLMFilter"] = model
    return change


def _of(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in KEYS}


def _tell(filter: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        echo_json(filter)
        return
    rows: list[list[str]] = []
    for name, word in (("includeItems", "include"), ("excludeItems", "exclude")):
        patterns: Mapping[str, list[str]] = filter[name] or {}
        rows += [[word, "address", pattern] for pattern in patterns.get("urlPatterns", ())]
        rows += [[word, "title", pattern] for pattern in patterns.get("titlePatterns", ())]
    if filter["filterPrompt"]:
        judged = "judged by the model" if filter["shouldLLMFilter"] else "off (--model)"
        rows.append(["prompt", judged, filter["filterPrompt"]])
    if rows:
        table(["part", "of", "what"], rows)
    else:
        tell("nothing is filtered")
    if filter["shouldLLMFilter"] and not filter["filterPrompt"]:
        tell("the model has no prompt to judge by; give one with --prompt")


def _before(shown: Mapping[str, Any]) -> str:
    return "a document" if shown["effect"] == "drop" else shown["before"] or ""
