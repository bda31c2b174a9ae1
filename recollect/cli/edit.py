"""`recollect edit`: a document's title, tags, metadata and content."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from recollect.cli import _complete
from recollect.cli._add_sources import LARGEST, TOO_LARGE, metadata
from recollect.cli.client import ApiKey, AsJson, Url, open_service
from recollect.cli.output import echo_json, fail


def register(app: typer.Typer) -> None:
    app.command()(edit)


def edit(
    id: Annotated[str, typer.Argument(help="Id or customId.", autocompletion=_complete.documents)],
    title: Annotated[
        str | None,
        typer.Option(
            help="Title, which stays whatever the content says; '' takes the content's again."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            help="Container tag, in place of those it has; repeat for several.",
            autocompletion=_complete.tags,
        ),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="KEY=VALUE", help="Metadata, in place of what it has."),
    ] = None,
    content: Annotated[
        str | None,
        typer.Option(
            "--content", metavar="FILE", help="Text that replaces its content; - reads it here."
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Change title, tags, metadata or content of a document; the rest stays as it is.

    Example: recollect edit notes/tasks.md --tag handbook --meta year=2026
    """
    body: dict[str, Any] = {}
    if title is not None:
        body["title"] = title
    if tag:
        body["containerTags"] = tag
    if meta:
        body["metadata"] = metadata(meta)
    if content is not None:
        body["content"] = _read(content)
    if not body:
        fail("name something to change: --title, --tag, --meta or --content", code=2)
    told = open_service(url, key).send("PATCH", f"/v3/documents/{quote(id, safe='')}", body)
    if as_json:
        echo_json(told)
    else:
        typer.echo(f"{told['id']} {told['status']}")


def _read(name: str) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            fail(f"{name} is {TOO_LARGE}", code=2)
        return data.decode("utf-8-sig")
    except OSError as error:
        fail(f"{name} cannot be read: {error.strerror}", code=2)
    except UnicodeDecodeError:
        fail(f"{name} is not UTF-8 text; add it as a file instead", code=2)
