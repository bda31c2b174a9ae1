"""`serve`: the whole service on one machine, and who watches over its processes.

It is a supervisor. It holds the listening socket, so that connections wait while a killed API
process comes back, and are turned away while one that keeps dying is given time; it starts the
embedded PostgreSQL, one API process and one worker process, and starts again whichever ends. Each
child reads its standard input, a pipe that only the supervisor holds open: when the supervisor
dies, however suddenly, its children end, too.

The supervisor loads the code once, and its children are forks of it, which share that memory; a new
one works at once. What a fork must not share, it does not have: no thread, no session of the
database. Whatever needs them, as the migrations do, runs in a fork that ends. Where forks are not
safe (macOS), a child is a new process that loads the code itself.
"""

import http.client
import json
import math
import multiprocessing
import os
import select
import shutil
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer
from setproctitle import setproctitle

from recollect import cli, log
from recollect.cli import _lazy
from recollect.cli._log import log_of_process
from recollect.cli._process import (
    ENDING,
    Host,
    Port,
    Workers,
    let_signals_end,
    listen,
    on_signals,
)
from recollect.cli.output import fail, tell
from recollect.config import Config, load
from recollect.db.embedded import await_recovery, database
from recollect.errors import RecollectError, SetupError, Unavailable
from recollect.loop import backoff, tell_bug

LOG = log.get("serve")
Answer = TypeVar("Answer")
"""of what needs the database"""
READY_WITHIN = 120.0
TRIES = 3
"""to start and to prepare a database of ours"""
STOP_WITHIN = 30.0
WATCH = 2.0
"""Seconds between two looks at all; the end of a child of ours is told by a signal at once."""
ASK = 0.1
"""Seconds between the first two questions whether the service is ready."""
TURNED_AWAY = (
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    "retry-after: {seconds}\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
)
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=30)
PROCESSES = (
    multiprocessing.get_context("fork")
    if sys.platform == "linux"
    else multiprocessing.get_context("spawn")
)

DataDir = Annotated[Path | None, typer.Option(help="Folder for all data.")]


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="On a terminal, also show each request and document.")
    ] = False,
) -> None:
    """Run the whole service on this machine: database, API and workers.

    Example: recollect serve --port 6767 --data-dir ./data
    """
    more: Mapping[str, Any] = {"log_level": "info"} if verbose else {}
    config = load(host=host, port=port, data_dir=data_dir, workers=workers, **more)
    log_of_process(config, "serve")
    try:
        Supervisor(config).run()
    except RecollectError as error:
        fail(str(error))


@dataclass
class Child:
    """A process that is kept alive: what `command` does."""

    name: str
    command: str
    process: BaseProcess | None = None
    born: float = 0.0
    deaths: int = 0
    not_before: float = field(default=0.0)


class Supervisor:
    """Starts the parts, keeps them alive, stops them in order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stopping = False
        self._bell, self._rope = PROCESSES.Pipe(duplex=False)
        """readable after any signal"""
        self._life, self._held = PROCESSES.Pipe(duplex=False)
        """ends when this process does, which alone holds the other end"""
        for end in (self._bell, self._rope, self._held):
            os.register_at_fork(after_in_child=end.close)

    def run(self) -> None:
        """Until SIGINT or SIGTERM. Raises SetupError when a part cannot start at all, Unavailable
        when the database ends each time that it is prepared."""
        self._heed_signals()
        listening = listen(self._config)
        with database(self._config) as ensure:
            with ThreadPoolExecutor(1) as loader:  # its thread has ended before the first fork
                loading = loader.submit(_load)
                _tried(self._config, ensure)
            loading.result()
            settings = _lazy.part("_config")
            settings.check(self._config)
            for told in settings.unknown():
                tell(f"warning: {told} It has no effect.")
            url, secret = _tried(self._config, lambda: _prepared(self._config, ensure()))
            children = [Child("api", "api"), Child("worker", "work")]
            environment = self._environment(url)
            try:
                announced, pause, told = False, ASK, ""
                while not self._stopping:
                    for child in children:
                        self._tend(child, environment, listening, announced=announced)
                    if os.getpid() == 1:
                        bury({child.process.pid for child in children if child.process})
                    reason = None if announced else self._hindrance()
                    if reason is None and not announced:
                        _announce(self._config, secret)
                        announced = True
                    elif reason and reason != told:
                        LOG.warning("not ready", reason=reason)
                        told = reason
                    self._rest(children, pause, listening)
                    pause = WATCH if announced else min(WATCH, pause * 1.1)
                    self._keep_database(ensure)
            finally:
                _end(children)
                listening.close()
        if _shares_a_log():
            LOG.info("stopped")
        else:
            typer.echo("Stopped.")

    def _heed_signals(self) -> None:
        for end in (self._bell, self._rope):
            os.set_blocking(end.fileno(), False)
        # The kernel's word reaches `_rest` by the pipe, so that no lock is taken in a handler.
        signal.set_wakeup_fd(self._rope.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        on_signals(self._stop)

    def _stop(self) -> None:
        self._stopping = True

    def _rest(self, children: Sequence[Child], longest: float, listening: socket.socket) -> None:
        """Until a signal comes, a child may be started again, or `longest` seconds passed; who
        comes meanwhile is turned away if the API stays away for longer than `WATCH`."""
        now = time.monotonic()
        waits = {child.name: child.not_before - now for child in children if child.process is None}
        away = waits.get("api", 0.0) > WATCH
        heard = [self._bell, listening] if away else [self._bell]
        ready = select.select(heard, [], [], max(0.0, min([longest, *waits.values()])))[0]
        if self._bell in ready:
            os.read(self._bell.fileno(), 4096)
        if listening in ready:
            _turn_away(listening, waits["api"])

    def _tend(
        self,
        child: Child,
        environment: Mapping[str, str],
        listening: socket.socket,
        *,
        announced: bool,
    ) -> None:
        now = time.monotonic()
        if child.process is not None:
            code = child.process.exitcode
            if code is None:
                return
            if code == 2 and not announced:
                raise SetupError(f"the {child.name} process could not start; see above")
            child.deaths = 1 if now - child.born > 60 else child.deaths + 1
            # The first restart is immediate; one that keeps dying is given more and more time.
            if child.deaths > 1:
                pause = backoff(child.deaths - 1, FIRST_PAUSE, LONGEST_PAUSE)
                child.not_before = now + pause.total_seconds()
            LOG.warning("process ended", part=child.name, exit=code)
            child.process = None
        if now < child.not_before:
            return
        child.born = now
        process = PROCESSES.Process(
            target=_work, args=(child.name, child.command, environment, self._life, listening)
        )
        # One that is ended at once, ends by the signal: it must not run the handler of ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process.start()
        except OSError as error:  # no process or memory left
            LOG.warning("process not started", part=child.name, error=str(error))
            child.not_before = now + WATCH
        else:
            child.process = process
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def _environment(self, url: str) -> dict[str, str]:
        return {
            **os.environ,  # noqa: TID251 # handed on unread: the children read their own settings
            "RECOLLECT_DATABASE_URL": url,
            "RECOLLECT_DATA_DIR": str(self._config.data_dir.absolute()),
            "RECOLLECT_HOST": self._config.host,
            "RECOLLECT_PORT": str(self._config.port),
            "RECOLLECT_WORKERS": str(self._config.workers),
            **(
                {"RECOLLECT_LOG_LEVEL": self._config.log_level}
                if "log_level" in self._config.model_fields_set
                else {}
            ),
        }

    def _keep_database(self, ensure: Callable[[], str]) -> None:
        try:
            ensure()
        except (Unavailable, SetupError) as error:
            LOG.warning("database", error=str(error))
        except Exception as error:  # noqa: BLE001 # a full disk, for one: the next look is in a moment
            tell_bug(LOG, error)

    def _hindrance(self) -> str | None:
        """Why the service cannot work yet, empty where it does not say; None: it can."""
        address = urlsplit(self._config.address)
        asked = http.client.HTTPConnection(address.hostname or "", address.port, timeout=2)
        try:
            asked.request("GET", "/ready")
            answer = asked.getresponse()
            return None if answer.status == 200 else json.loads(answer.read())["reason"] or ""
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return ""
        finally:
            asked.close()


def bury(ours: Collection[int | None]) -> None:
    """Let go of processes that have ended and that nobody waits for. The first process of a
    container is given all that outlive their parent, as files' readers do a worker that is killed,
    and each would keep its place there."""
    if sys.platform == "linux":
        with suppress(ChildProcessError):  # no child at all
            # Only a look: who ended of `ours` has its exit code read elsewhere.
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    return
                os.waitpid(ended.si_pid, 0)


def _turn_away(listening: socket.socket, seconds: float) -> None:
    """Answer one client in place of the API: one that hangs tells its user nothing."""
    told = "the API process ended several times and is started again in a while; its log says why"
    body = json.dumps({"error": "Service unavailable", "details": told}).encode()
    head = TURNED_AWAY.format(seconds=math.ceil(seconds), size=len(body)).encode()
    with suppress(OSError), listening.accept()[0] as line:
        line.settimeout(0.1)
        with suppress(TimeoutError):
            line.recv(1 << 16)  # what is left unread would take the answer back
        line.sendall(head + body)


def _load() -> None:
    if PROCESSES.get_start_method() == "fork":
        for command in ("api", "work"):
            _lazy.part(command)


def _work(
    name: str,
    command: str,
    environment: Mapping[str, str],
    life: Connection,
    listening: socket.socket,
) -> None:
    """What a child does, from its first moment."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    let_signals_end()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.setsid()  # Ctrl-C reaches the supervisor, which stops them in order
    setproctitle(f"recollect: {name}")
    os.dup2(life.fileno(), 0)
    os.environ.update(environment)  # noqa: TID251 # what the supervisor hands on, for `load`
    arguments = [command, "--supervised"]
    if command == "api":
        arguments += ["--listening", str(listening.fileno())]
    else:
        listening.close()
    cli.main(arguments)


def _tried(config: Config, work: Callable[[], Answer]) -> Answer:
    """What `work` answers, which starts the database if need be. Where a server of ours is killed
    meanwhile, or recovers, `work` is done again, `TRIES` times at most."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except Unavailable as error:
            if config.database_url is not None:
                raise
            LOG.warning("database", error=str(error))
            await_recovery(config)
    return work()


def _prepared(config: Config, url: str) -> tuple[str, str | None]:
    """The URL, and what `recollect.app.prepare` says of its database, in a process that ends."""
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_prepare, args=(config, url, there))
    process.start()
    there.close()
    try:
        secret, failure, away = here.recv()
    except EOFError:
        raise SetupError("preparing the database ended early; see above") from None
    finally:
        process.join()
    if failure is not None:
        raise Unavailable(failure) if away else SetupError(failure)
    return url, secret


def _prepare(config: Config, url: str, there: Connection) -> None:
    from recollect.app import prepare  # noqa: PLC0415 - see above

    signal.set_wakeup_fd(-1)  # its number is free here, and would be that of a session
    try:
        there.send((prepare(config, url), None, False))
    except RecollectError as error:
        there.send((None, str(error), isinstance(error, Unavailable)))


def _announce(config: Config, secret: str | None) -> None:
    kept = config.data_dir / "api-key"
    if _shares_a_log():
        LOG.info("ready", address=config.address, key_file=str(kept) if kept.exists() else None)
        return
    typer.echo(f"Recollect is ready at {config.address}")
    typer.echo(f"  console  {config.address}/console")
    typer.echo(f"  API      {config.address}/docs")
    if secret is not None and _is_logged():
        typer.echo(f"  key      is in {kept}; a log must not hold it")
    elif secret is not None:
        typer.echo(f"  key      {secret}")
        typer.echo(f"           shown once; kept for you in {kept}")
    program = _program()
    typer.echo(f"Next: `{program} open` opens the console, `{program} quickstart` finds something.")
    typer.echo("Stop with Ctrl-C.")


def _program() -> str:
    """What to type for this command line in the shell that it was started from."""
    given = sys.argv[0]
    if Path(given).name != "recollect":
        return f"{os.path.relpath(sys.executable)} -m recollect"
    return "recollect" if shutil.which("recollect") else os.path.relpath(given)


def _is_logged() -> bool:
    """Whether what we print stays in a log: systemd's journal, or that of a container, whose first
    process we are. A pipe that someone reads is neither."""
    if sys.stdout.isatty():
        return False
    out = os.fstat(sys.stdout.fileno())
    journal = os.environ.get("JOURNAL_STREAM")  # noqa: TID251 # systemd's word, no setting
    return os.getpid() == 1 or journal == f"{out.st_dev}:{out.st_ino}"


def _shares_a_log() -> bool:
    """Whether we print into the file that has the log's lines, each of them JSON."""
    out, log_file = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    return stat.S_ISREG(out.st_mode) and os.path.samestat(out, log_file)


def _end(children: Sequence[Child]) -> None:
    alive = [(child.name, child.process) for child in children if child.process is not None]
    for _, process in alive:
        process.terminate()
    give_up = time.monotonic() + STOP_WITHIN
    for name, process in alive:
        process.join(max(0.1, give_up - time.monotonic()))
        if process.exitcode is None:
            LOG.warning("process killed: it did not end when asked to", part=name)
            process.kill()
            process.join()
