"""What parts of the benchmark stand on: the service as a user starts it, and bare counterparts."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Any, Self

import psutil

from recollect.app import prepare
from recollect.config import Config
from recollect.db.embedded import Embedded
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.local_model import DEFAULT

THREADS = os.cpu_count() or 1
"""of the bare embedder; what the service has by default, too"""
KEY = "bench"
KEEP_ALIVE = 2.0
"""seconds after which a connection is not used again: the service closes idle ones"""
PROJECT = Path(__file__).parents[1]
_PAUSE = threading.Event()


def wait(seconds: float) -> None:
    _PAUSE.wait(seconds)


def until(holds: Callable[[], bool], *, within: float = 300.0, every: float = 0.05) -> None:
    """Ask until it holds; raises TimeoutError."""
    end = time.monotonic() + within
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come true within {within} s")
        wait(every)


class Client:
    """One connection to the service, for one thread; cheap, since it shares the machine."""

    def __init__(self, port: int, key: str = KEY) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._used = 0.0

    def send(self, method: str, path: str, body: object | None = None) -> Any:
        """The answer's JSON; raises RuntimeError when it is no success."""
        data = None if body is None else json.dumps(body)
        if time.monotonic() - self._used > KEEP_ALIVE:
            self._connection.close()
        self._used = time.monotonic()
        self._connection.request(method, path, data, self._headers)
        answer = self._connection.getresponse()
        told = answer.read()
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{method} {path} answered {answer.status}: {told[:300]!r}")
        return json.loads(told)

    def add(self, content: str, **labels: object) -> str:
        """Add a document; returns its id."""
        return self.send("POST", "/v3/documents", {"content": content, **labels})["id"]

    def document(self, id: str) -> dict[str, Any]:
        return self.send("GET", f"/v3/documents/{id}")

    def drained(self) -> bool:
        """Whether nothing waits; raises RuntimeError when something failed."""
        counts = self.send("GET", "/v3/documents/counts")
        if counts["failed"]:
            raise RuntimeError(f"{counts['failed']} documents failed")
        return counts["queued"] + counts["processing"] == 0


@dataclass(frozen=True, slots=True)
class Service:
    """`recollect serve` (or a part of it), running."""

    port: int
    data_dir: Path
    process: subprocess.Popen[bytes]

    def client(self) -> Client:
        return Client(self.port)

    @property
    def log(self) -> str:
        return (self.data_dir / "bench.log").read_text(errors="replace")

    @property
    def database_url(self) -> str:
        """Of the embedded PostgreSQL."""
        return Embedded(self.data_dir).url

    def processes(self) -> list[psutil.Process]:
        """The supervisor and all below it: API, worker, extraction, PostgreSQL's own."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@dataclass
class Ground:
    """Folders and processes of one run; all end with it."""

    tmp: Path = field(default_factory=lambda: _folder())
    model: str = DEFAULT
    """which of the local ones"""
    _stack: ExitStack = field(default_factory=ExitStack)
    _made: int = 0

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.tmp, ignore_errors=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @cached_property
    def embedder(self) -> Embedder:
        """The local model, bare, in this process."""
        found = open_embedder(
            EmbedderChoice("local", model=self.model),
            cache=self.tmp / "model" / "cache",
            threads=THREADS,
        )
        assert found is not None
        return found

    @cached_property
    def service(self) -> Service:
        """The whole service, shared by the parts that do not mind what others left in it."""
        return self._stack.enter_context(self.serving())

    def new_folder(self, *, with_model: bool = True) -> Path:
        """A data folder; `with_model` spares the service the building of its model."""
        self._made += 1
        folder = self.tmp / f"data-{self._made}"
        folder.mkdir(mode=0o711)
        if with_model:
            assert self.embedder
            shutil.copytree(self.tmp / "model" / "cache", folder / "cache")
        return folder

    @contextmanager
    def serving(self, data_dir: Path | None = None, **settings: str) -> Generator[Service]:
        """`recollect serve`, from ready to stopped."""
        service = start(["serve"], data_dir or self.new_folder(), settings)
        try:
            yield service
        finally:
            service.stop()

    @cached_property
    def _postgres(self) -> Embedded:
        server = Embedded(self.new_folder(with_model=False))
        server.ensure()
        self._stack.callback(server.stop)
        return server

    def new_database(self) -> str:
        """A database of its own on a shared server, for parts that go below HTTP."""
        self._made += 1
        url = self._postgres.prepare(f"bench_{self._made}")
        prepare(Config.model_validate({"data_dir": self.tmp, "api_key": KEY}), url)
        return url

    def restart_database(self) -> None:
        """The server of `new_database`; nobody may be connected."""
        self._postgres.stop()
        self._postgres.ensure()

    @contextmanager
    def answering(self, database_url: str, **settings: str) -> Generator[Service]:
        """One API process without a worker: what is posted stays queued."""
        folder = self.new_folder(with_model="embedder" not in settings)
        service = start(["api"], folder, {"database_url": database_url, **settings})
        try:
            yield service
        finally:
            service.stop()


def start(command: list[str], data_dir: Path, settings: Mapping[str, str]) -> Service:
    """Start a part of the service on a free port and wait until it is ready."""
    port = free_port()
    given = {"data_dir": str(data_dir), "port": str(port), "api_key": KEY, **settings}
    with (data_dir / "bench.log").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *command],
            env={**clean_environment(), **{f"RECOLLECT_{k.upper()}": v for k, v in given.items()}},
            cwd=data_dir,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    service = Service(port, data_dir, process)
    try:
        until(lambda: _ready(service), within=120, every=0.01)
    except BaseException:
        process.kill()
        raise
    return service


def free_port() -> int:
    """Above those that Linux gives to whoever asks for any: such a one others get before us."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = SystemRandom().randrange(61_000, 65_536)
            probe.bind(("127.0.0.1", port))
            return port


def clean_environment() -> dict[str, str]:
    """Ours, without settings of a service that the developer happens to run."""
    return {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 # the child needs PATH and the like
        if not name.startswith("RECOLLECT_")
    }


def _ready(service: Service) -> bool:
    if service.process.poll() is not None:
        raise RuntimeError(f"the service ended: {service.log[-2000:]}")
    try:
        return Client(service.port).send("GET", "/ready")["status"] == "ready"
    except (OSError, http.client.HTTPException, RuntimeError):
        return False


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="recollect-bench-"))
    folder.chmod(0o711)  # PostgreSQL's unprivileged user must pass when we are root
    return folder
