"""`recollect open`: the console in a browser, signed in."""

import webbrowser

import typer

from recollect.cli.client import ApiKey, AsJson, Url, open_service
from recollect.cli.output import echo_json, tell


def register(app: typer.Typer) -> None:
    app.command("open")(open_console)


def open_console(url: Url = None, key: ApiKey = None, as_json: AsJson = False) -> None:
    """Open the console in a browser, signed in by a link that works once and for two minutes.

    Example: recollect open
    """
    service = open_service(url, key)
    made = service.send("POST", "/v3/session/link")
    address = f"{service.url}{made['path']}"
    if as_json:
        echo_json({"url": address, "expiresIn": made["expiresIn"]})
        return
    if webbrowser.open(address):
        tell(f"Opened {service.url}/console in a browser.")
        return
    tell("No browser can be opened from here. Within two minutes, open")
    typer.echo(address)
