"""`serve`: the whole service on one machine, and who watches over its processes.

It is a supervisor. It holds the listening socket, so that connections wait while a killed API
process comes back; it starts the embedded PostgreSQL, one API process and one worker process, and
starts again whichever ends. Each child reads its standard input, a pipe that only the supervisor
holds open: when the supervisor dies, however suddenly, its children end, too.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from recollect import log
from recollect.app import database, prepare
from recollect.cli._process import Host, Port, Workers, on_signals
from recollect.cli.output import fail
from recollect.config import Config, load
from recollect.errors import RecollectError, SetupError, Transient, Unavailable
from recollect.fetch import Endpoint

LOG = log.get("serve")
READY_WITHIN = 120.0
STOP_WITHIN = 30.0
WATCH = 0.3
"""Seconds between two looks at the children."""
LONGEST_PAUSE = 30.0

DataDir = Annotated[Path | None, typer.Option(help="Folder of everything that is kept.")]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Run")(serve)


def serve(
    host: Host = None, port: Port = None, data_dir: DataDir = None, workers: Workers = None
) -> None:
    """Run the whole service on this machine: database, API and workers.

    Example: recollect serve --port 6767 --data-dir ./data
    """
    config = load(host=host, port=port, data_dir=data_dir, workers=workers)
    log.configure(config.log_level, process="serve")
    try:
        Supervisor(config).run()
    except RecollectError as error:
        fail(str(error))


@dataclass
class Child:
    """A process that is kept alive."""

    name: str
    arguments: Sequence[str]
    passed: Sequence[int] = ()
    process: subprocess.Popen[bytes] | None = None
    born: float = 0.0
    deaths: int = 0
    not_before: float = field(default=0.0)


class Supervisor:
    """Starts the parts, keeps them alive, stops them in order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stop = threading.Event()

    def run(self) -> None:
        """Until SIGINT or SIGTERM. Raises SetupError when a part cannot start at all."""
        on_signals(self._stop.set)
        listening = _listen(self._config)
        with database(self._config) as ensure:
            url = ensure()
            secret = prepare(self._config, url)
            if secret is not None:
                _keep_key(self._config, secret)
            children = [
                Child(
                    "api",
                    ["api", "--supervised", "--listening", str(listening.fileno())],
                    [listening.fileno()],
                ),
                Child("worker", ["work", "--supervised"]),
            ]
            environment = self._environment(url)
            try:
                announced = False
                while not self._stop.is_set():
                    for child in children:
                        self._tend(child, environment, announced)
                    if not announced and self._ready():
                        _announce(self._config, secret)
                        announced = True
                    self._stop.wait(WATCH)
                    self._keep_database(ensure)
            finally:
                _end(children)
                listening.close()
        typer.echo("Stopped.")

    def _tend(self, child: Child, environment: dict[str, str], announced: bool) -> None:
        now = time.monotonic()
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                return
            if code == 2 and not announced:
                raise SetupError(f"the {child.name} process could not start; see above")
            child.deaths = 1 if now - child.born > 60 else child.deaths + 1
            # The first restart is immediate; one that keeps dying is given more and more time.
            child.not_before = now + min(2.0 ** (child.deaths - 2) - 0.5, LONGEST_PAUSE)
            LOG.warning("process ended", part=child.name, exit=code)
            child.process = None
        if now < child.not_before:
            return
        child.born = now
        child.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *child.arguments],
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=child.passed,
            start_new_session=True,  # Ctrl-C reaches the supervisor, which stops them in order
        )

    def _environment(self, url: str) -> dict[str, str]:
        return {
            **os.environ,  # noqa: TID251 # handed on unread: the children read their own settings
            "RECOLLECT_DATABASE_URL": url,
            "RECOLLECT_DATA_DIR": str(self._config.data_dir.absolute()),
            "RECOLLECT_HOST": self._config.host,
            "RECOLLECT_PORT": str(self._config.port),
            "RECOLLECT_WORKERS": str(self._config.workers),
        }

    def _keep_database(self, ensure: Callable[[], str]) -> None:
        try:
            ensure()
        except (Unavailable, SetupError) as error:
            LOG.warning("database", error=str(error))

    def _ready(self) -> bool:
        try:
            answer = Endpoint(self._config.address, timeout=2).request("GET", "/ready")
        except Transient:
            return False
        return answer.status == 200


def _listen(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as error:
        raise SetupError(
            f"cannot listen on {config.host}:{config.port} ({error.strerror});"
            " choose another with --port"
        ) from error
    listening.listen(2048)
    listening.set_inheritable(True)
    return listening


def _keep_key(config: Config, secret: str) -> None:
    """For the command line on this machine; whoever reads the data folder may anything anyway."""
    path = config.data_dir / "api-key"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret + "\n")


def _announce(config: Config, secret: str | None) -> None:
    typer.echo(f"Recollect is ready at {config.address}")
    typer.echo(f"  console  {config.address}/console")
    typer.echo(f"  API      {config.address}/docs")
    if secret is not None:
        typer.echo(f"  key      {secret}")
        typer.echo(f"           shown once; kept for you in {config.data_dir / 'api-key'}")
    typer.echo("Stop with Ctrl-C.")


def _end(children: Sequence[Child]) -> None:
    alive = [child.process for child in children if child.process is not None]
    for process in alive:
        process.terminate()
    give_up = time.monotonic() + STOP_WITHIN
    for process in alive:
        try:
            process.wait(max(0.1, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
