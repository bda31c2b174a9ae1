"""`recollect tags`: the container tags that there are."""

from typing import Annotated

import typer

from recollect.cli.client import ApiKey, AsJson, Url, open_service
from recollect.cli.output import echo_json, table, tell


def register(app: typer.Typer) -> None:
    app.command()(tags)


def tags(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Tags on a page.")] = 100,
    page: Annotated[int, typer.Option(min=1, help="Which page.")] = 1,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """List container tags by name, with the number of documents that carry each.

    Example: recollect tags --limit 20
    """
    path = f"/v3/container-tags/list?limit={limit}&page={page}"
    found = open_service(url, key).get(path)
    if as_json:
        echo_json(found)
        return
    rows = [
        [one["containerTag"], str(one["documentCount"]), one.get("name") or ""]
        for one in found["containerTags"]
    ]
    total = found["pagination"]["totalItems"]
    if rows:
        table(["tag", "documents", "name"], rows)
    else:
        tell("no tags" if page == 1 else f"no page {page}; there are {total} tags")
    if total > page * limit:
        tell(f"{total} in all; --page {page + 1} for the next")
