"""What the processes of the service have in common: options, signals, an opened App."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from recollect.app import App, database, open_app
from recollect.cli.output import fail
from recollect.config import Config
from recollect.errors import SetupError, Unavailable

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on.")]
Workers = Annotated[int | None, typer.Option(help="Documents processed at once.")]
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True)]


def opened(config: Config) -> App:
    """The App of a child process, on the database that is configured or that runs here."""
    try:
        with database(config, keep=True) as ensure:
            return open_app(config, ensure())
    except (SetupError, Unavailable) as error:
        fail(str(error), code=2 if isinstance(error, SetupError) else 1)


def on_signals(stop: Callable[[], object]) -> None:
    def handle(number: int, frame: object) -> None:
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def when_orphaned(stop: Callable[[], object]) -> None:
    def watch() -> None:
        while os.read(0, 1024):
            pass
        stop()

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()
