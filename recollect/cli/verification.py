"""`recollect connections verify`: tokens by which a provider proves its pushes."""

import hashlib
from typing import Annotated

import typer

from recollect import encryption
from recollect.app import secret_keys
from recollect.cli._config import load
from recollect.cli._database import transaction
from recollect.cli.client import AsJson
from recollect.cli.output import echo_json, fail, shown, table, tell
from recollect.sync import push_registrations


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    provider: Annotated[
        str | None, typer.Argument(metavar="PROVIDER", help="Whose pushes.")
    ] = None,
    token: Annotated[
        str | None, typer.Argument(metavar="TOKEN", help="The token that the provider accepted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the verification tokens that providers sent; with a token, let it prove their pushes.

    Paste the token back at the provider first, then confirm it here; other tokens are forgotten.
    It works on the database of the settings, whether the service runs or not.

    Example: recollect connections verify notion secret_…
    """
    if provider is None:
        _show(as_json)
    elif token is None:
        fail(
            "name the token, too: `recollect connections verify` shows those that were received",
            code=2,
        )
    else:
        digest = hashlib.sha256(token.encode()).digest()
        with transaction() as tx:
            push_registrations.confirm_hook_secret(tx, provider, digest)
        if as_json:
            echo_json({"provider": provider, "confirmed": True})
        else:
            typer.echo(f"{provider}: confirmed")


def _show(as_json: bool) -> None:
    with transaction() as tx:
        found = push_registrations.hook_secrets(tx)
    keys = secret_keys(load())
    rows = [
        {
            "provider": one.provider,
            "token": encryption.unseal(keys, one.sealed, place=(one.provider, "hook")),
            "cameAt": one.came_at.isoformat(),
            "confirmed": one.confirmed,
        }
        for one in found
    ]
    if as_json:
        echo_json(rows)
    elif not rows:
        tell(
            "no tokens were received; a provider that uses them sends one when you create a"
            " subscription there"
        )
    else:
        columns = ["provider", "token", "cameAt", "confirmed"]
        table(columns, [[shown(row[column]) for column in columns] for row in rows])
