"""What the processes of the service have in common: options, signals, where they listen."""

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Annotated

import typer

from recollect import log
from recollect.config import Config
from recollect.errors import SetupError

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on.")]
Workers = Annotated[int | None, typer.Option(help="Documents processed at once.")]
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True)]

LOG = log.get("process")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEFT_BEHIND = 3.0
"""Seconds within which the API process of a service that was killed lets go of the address."""


def listen(config: Config) -> socket.socket:
    """A socket that listens at the address of the settings. Raises SetupError if that cannot be
    had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it. The server takes a socket that it is handed for one of Unix and
    # does not set it, and then every answer on a kept connection waits 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    latest = time.monotonic() + LEFT_BEHIND
    while True:
        try:
            listening.bind((config.host, config.port))
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > latest:
                raise SetupError(
                    f"cannot listen on {config.host}:{config.port} ({error.strerror});"
                    " choose another with --host or --port"
                ) from error
        threading.Event().wait(0.1)
    listening.listen(2048)
    listening.set_inheritable(True)
    return listening


def on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` at Ctrl-C, at SIGTERM, and when the terminal is closed, but then not under
    `nohup`."""

    def handle(number: int, frame: object) -> None:
        stop()

    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def let_signals_end() -> None:
    """Let signals end this process at once, without a clean-up. A signal that is ignored, as
    `nohup` has it, stays ignored."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def end_within(seconds: float, code: int) -> None:
    """End this process by then, whatever its threads wait for: a request to a model may take
    minutes. What they had claimed is given back, and who asked is answered."""

    def end() -> None:
        # Whether the exit waits for a thread is not seen at it: for those of pools it does.
        others = {threading.main_thread(), threading.current_thread()}
        names = sorted(one.name for one in set(threading.enumerate()) - others)
        LOG.info("ended in the middle of something", threads=names)
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class Parent:
    """The supervisor of this process, whose end closes the pipe that is our standard input.

    This process ends at once then; after `at_end`, as that says.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], object] = lambda: os._exit(0)
        threading.Thread(target=self._watch, name="orphan-watch", daemon=True).start()

    def at_end(self, stop: Callable[[], object]) -> None:
        self._stop = stop

    def _watch(self) -> None:
        while os.read(0, 1024):
            pass
        self._stop()
