"""What the processes of the service have in common: options, signals, where they listen."""

import os
import signal
import socket
import threading
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


def listen(config: Config) -> socket.socket:
    """A socket that listens at the address of the settings. Raises SetupError if that cannot be
    had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it. The server takes a socket that it is handed for one of Unix and
    # does not set it, and then every answer on a kept connection waits 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as error:
        raise SetupError(
            f"cannot listen on {config.host}:{config.port} ({error.strerror});"
            " choose another with --host or --port"
        ) from error
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


def when_orphaned(stop: Callable[[], object]) -> None:
    def watch() -> None:
        while os.read(0, 1024):
            pass
        stop()

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()
