"""What the processes of the service have in common: options and signals."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Annotated

import typer

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on.")]
Workers = Annotated[int | None, typer.Option(help="Documents processed at once.")]
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True)]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_signals(stop: Callable[[], object]) -> None:
    """A terminal that is closed stops it as Ctrl-C does, unless `nohup` is to keep it from that."""

    def handle(number: int, frame: object) -> None:
        stop()

    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def when_orphaned(stop: Callable[[], object]) -> None:
    def watch() -> None:
        while os.read(0, 1024):
            pass
        stop()

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()
