"""The service under test: a scratch folder, its processes, its disk and its clock.

Nothing outside of the scratch folder is touched, and nothing is killed but what was started here,
its children, and the PostgreSQL whose data folder is inside. Linux only: processes are found in
/proc and killed by descriptors, which never name another process.

It is either one machine, where `recollect serve` runs all, or several: API and worker processes
with data folders of their own, which share a PostgreSQL that listens on a port, a store of files,
and settings.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from recollect.db.embedded import Embedded
from recollect.db.server_roles import SERVICE
from recollect.errors import SetupError, Transient, Unavailable
from recollect.fetch import Endpoint
from recollect.torture._clock import Clock
from recollect.torture.plan import Kill

HEIR = (
    "import pathlib, sys; from recollect.torture.ground import end_all;"
    " end_all(pathlib.Path(sys.argv[1]))"
)
"""the program of a process that ends the service if this one is killed"""
NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS of linux/sched.h"""
DISK_BYTES = 4_000_000_000
APIS, WORKERS = 2, 3
"""of several machines"""
START_WITHIN = 90.0
STOP_WITHIN = 60.0
KEY = "sm_torture"
SETTINGS = {
    "api_key": KEY,
    "host": "127.0.0.1",
    "allow_networks": "127.0.0.0/8",
    "workers": "4",
    "lease_seconds": "3",
    # Most attempts end with a kill here; that must not use them up.
    "max_attempts": "100",
    "crawl_delay": "0",
    "transcriber": "none",
    "log_level": "info",
}
SETTINGS_OF_MACHINES = {
    "workers": "2",
    "secret_key": "f2b7c0d9a4e81635 the same on all machines",
}


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc."""

    pid: int
    parent: int
    born: int
    """in ticks since the machine started: with the pid, names it for good"""
    command: str


@dataclass
class Part:
    """A process that is started again whenever it ends, and the folder and log that are its own."""

    name: str
    command: Sequence[str]
    data: Path
    log: Path
    port: int | None = None
    process: subprocess.Popen[bytes] | None = None
    not_before: float = 0.0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Ground:
    """Runs the service and starts what ends again, until `stop`."""

    def __init__(
        self,
        folder: Path,
        embedder_url: str,
        *,
        disk: bool,
        clock: Path | None,
        settings: dict[str, str] | None = None,
        machines: bool = False,
        blobs: str | None = None,
    ) -> None:
        """`disk`: put the data on a file system of its own, which needs root. `clock`: a C
        compiler, for a clock that steps. `settings` are further ones, by their names without the
        prefix. `machines`: several. `blobs`: the store of files; a folder among the data if
        None."""
        self.folder = folder
        self.data = folder / "data"
        self.machines = machines
        self.restarts = 0
        self._disk = disk
        self._clock = None if clock is None else Clock(clock, folder)
        self._embedded = (
            Embedded(self.data / "database", port=_free_port()) if machines else Embedded(self.data)
        )
        if blobs is None:
            blobs = (self.data / "blobs").as_uri()
        self._settings = {
            **SETTINGS,
            **(SETTINGS_OF_MACHINES if machines else {}),
            "blob_url": blobs,
            "embedder": "openai",
            "embedder_url": embedder_url,
            **(settings or {}),
        }
        self.blobs = blobs
        self._parts = (
            [
                *(self._part(f"api-{n}", "api", _free_port()) for n in range(1, APIS + 1)),
                *(self._part(f"work-{n}", "work") for n in range(1, WORKERS + 1)),
            ]
            if machines
            else [Part("serve", ["serve"], self.data, folder / "serve.log", _free_port())]
        )
        self.urls = [f"http://127.0.0.1:{part.port}" for part in self._parts if part.port]
        """where clients find it"""
        self._stranger: subprocess.Popen[bytes] | None = None
        self._heir: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self._nurses = [threading.Thread(target=self._keep, name="nurse")]
        if machines:
            self._nurses.append(threading.Thread(target=self._keep_database, name="nurse of data"))

    def __enter__(self) -> Self:
        """Raises SetupError when the service does not come up."""
        self.data.mkdir(mode=0o711)
        # Reads to the end, which comes by itself when this process is killed.
        self._heir = subprocess.Popen(
            [sys.executable, "-c", HEIR, str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # outlives Ctrl-C, as the service does
        )
        if self._disk:
            _mount(self.data)
        try:
            if self.machines:
                self._settings["database_url"] = self._embedded.ensure()
            for nurse in self._nurses:
                nurse.start()
            self.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._heir is not None:
            self._heir.communicate()
        if self._disk:
            # Else it would go only with this process, and nobody could remove the folder.
            subprocess.run(["umount", "--lazy", str(self.data)], check=False, capture_output=True)  # noqa: S607 # from PATH

    # --- life ----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address for a client that uses only one."""
        return self.urls[0]

    @property
    def logs(self) -> list[Path]:
        return [part.log for part in self._parts]

    def wait_until_up(self) -> None:
        """Raises SetupError with the ends of the logs when it takes too long."""
        for url in self.urls:
            with contextlib.closing(Endpoint(url, timeout=5)) as endpoint:
                if not self._within(START_WITHIN, lambda: _answers(endpoint)):
                    ends = [log.read_text(errors="replace") for log in self.logs if log.exists()]
                    told = "\n".join(end[-2000:] for end in ends)
                    raise SetupError(f"the service did not start; the end of its log:\n{told}")

    def stop(self) -> int | None:
        """End it as Ctrl-C would, and what is left of it after a while by force.

        Returns an exit code that is not 0, if there is one; None if it had to be forced.
        """
        self._over.set()
        if self._stranger is not None:
            self._stranger.kill()
            self._stranger.wait()
            self._stranger = None
        for nurse in self._nurses:
            if nurse.is_alive():
                nurse.join()
        processes = [part.process for part in self._parts if part.process is not None]
        if not processes:
            for member in self._postgres():
                _kill(member)
            return None
        families = [member for process in processes for member in self._family(process.pid)]
        for process in processes:
            process.send_signal(signal.SIGINT)
        codes: list[int | None] = []
        end = time.monotonic() + STOP_WITHIN
        for process in processes:
            try:
                code = process.wait(max(0.1, end - time.monotonic()))
                # Uvicorn ends by the signal that it was told to end with, once it ended in order.
                codes.append(0 if self.machines and code in (-signal.SIGINT, 130) else code)
            except subprocess.TimeoutExpired:
                codes.append(None)
        for member in [*families, *_left_on(self.folder), *self._postgres()]:
            _kill(member)
        for part in self._parts:
            if part.process is not None:
                part.process.wait()
                part.process = None
        return None if None in codes else next((code for code in codes if code), 0)

    def database_url(self) -> str:
        """Of its PostgreSQL."""
        return self._embedded.url

    def _part(self, name: str, command: str, port: int | None = None) -> Part:
        return Part(name, [command], self.data / name, self.folder / f"{name}.log", port)

    def _keep(self) -> None:
        while not self._over.wait(0.1):
            now = time.monotonic()
            for part in self._parts:
                if part.alive:
                    continue
                if part.process is not None:
                    self.restarts += 1
                    part.process = None
                    # Its children are still on their way out and hold the port for a moment.
                    part.not_before = now + 0.4
                if now >= part.not_before:
                    self._start(part)

    def _start(self, part: Part) -> None:
        with part.log.open("ab") as out:
            part.process = subprocess.Popen(
                [sys.executable, "-m", "recollect", *part.command],
                env=self._environment(part),
                cwd=self.folder,  # where no .env lies
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we end it in our turn
            )

    def _keep_database(self) -> None:
        """As whoever runs a database server does."""
        while not self._over.wait(0.2):
            with contextlib.suppress(SetupError, Unavailable):
                self._embedded.ensure()

    def _environment(self, part: Part) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()  # noqa: TID251 # PATH and the like, not settings
            if not name.startswith("RECOLLECT_")
        }
        settings = {**self._settings, "data_dir": str(part.data)}
        if part.port is not None:
            settings["port"] = str(part.port)
        given = {f"RECOLLECT_{name.upper()}": value for name, value in settings.items()}
        return kept | given | ({} if self._clock is None else self._clock.environment)

    def _within(self, seconds: float, holds: Callable[[], bool]) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if holds():
                return True
            if self._over.wait(0.1):
                return False
        return False

    # --- kills ---------------------------------------------------------------------------------

    def kill(self, what: Kill, chance: Random) -> bool:
        """SIGKILL one part, or all at once as when the machine fails; False if it is not there."""
        victims: list[Process]
        match what:
            case "postmaster":
                victims = self._postgres()[:1] if self._families() else []
            case "backend":
                sessions = self._sessions()
                victims = [chance.choice(sessions)] if sessions and self._families() else []
            case "everything" | "reused":
                families = self._families()
                victims = [one for family in families for one in family]
                victims += self._postgres() if families else []
            case "supervisor":
                victims = [one for family in self._families() for one in family[:1]]
            case "machine":
                families = self._families()
                victims = list(chance.choice(families)) if families else []
            case "api" | "worker":
                found = self._processes_of(what)
                victims = [chance.choice(found)] if self.machines and found else found
        hits = [_kill(victim) for victim in victims]
        if what == "reused" and any(hits):
            self._reuse_ids()
        return any(hits)

    def _reuse_ids(self) -> None:
        """Have PostgreSQL's lock files name a live process of its user that is not a server: ids
        are given out again, in a container that restarts within seconds."""
        cluster = self._embedded.cluster
        if self._stranger is None:
            owner = cluster.stat().st_uid if os.geteuid() == 0 else None
            self._stranger = subprocess.Popen(["sleep", "infinity"], user=owner, cwd="/")  # noqa: S607 # from PATH
        for path in (cluster / "postmaster.pid", *(cluster.parent / "run").glob(".s.*.lock")):
            _, _, rest = path.read_text().partition("\n")
            path.write_text(f"{self._stranger.pid}\n{rest}")

    @contextlib.contextmanager
    def frozen(self, what: Kill, chance: Random) -> Generator[bool]:
        """One process and its children stand still in the block, as a machine does that is moved;
        yields whether there was one."""
        found = self._processes_of(what)
        family = self._family(chance.choice(found).pid) if found else []
        for one in family:
            _signal(one, signal.SIGSTOP)
        try:
            yield bool(family)
        finally:
            for one in reversed(family):
                _signal(one, signal.SIGCONT)

    def cut_sessions(self, chance: Random, *, every: bool) -> bool:
        """End one session of PostgreSQL, or all, wherever they are: to whoever holds the other end
        it is a lost connection. False if there is none."""
        sessions = self._sessions()
        victims = sessions if every else chance.sample(sessions, min(1, len(sessions)))
        hits = [_signal(one, signal.SIGTERM) for one in victims]
        return any(hits)

    @contextlib.contextmanager
    def stalled_session(self, chance: Random) -> Generator[bool]:
        """One session of PostgreSQL stands still in the block, with all the locks it has."""
        sessions = self._sessions()
        victims = chance.sample(sessions, min(1, len(sessions)))
        for one in victims:
            _signal(one, signal.SIGSTOP)
        try:
            yield bool(victims)
        finally:
            for one in victims:
                _signal(one, signal.SIGCONT)

    def _sessions(self) -> list[Process]:
        return [one for one in self._postgres()[1:] if f"{SERVICE} recollect" in one.command]

    def _processes_of(self, what: Kill) -> list[Process]:
        command = "work" if what == "worker" else "api"
        words = f"recollect {command}" if self.machines else f"recollect: {what}"
        return [one for family in self._families() for one in family if words in one.command]

    def _families(self) -> list[list[Process]]:
        """What runs, each root first."""
        processes = [part.process for part in self._parts]
        roots = [one.pid for one in processes if one is not None and one.poll() is None]
        found = [self._family(root) for root in roots]
        return [family for family in found if family]

    def _family(self, pid: int) -> list[Process]:
        """The supervisor, then what it started."""
        everybody = list(_processes())
        parents = {pid}
        for _ in range(3):
            parents |= {one.pid for one in everybody if one.parent in parents}
        known = [one for one in everybody if one.pid in parents and not _is_postgres(one)]
        return sorted(known, key=lambda one: one.pid != pid)

    def _postgres(self) -> list[Process]:
        """The postmaster of our data folder, then its children."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self._embedded.cluster / "postmaster.pid").read_text().split()[0])
            everybody = list(_processes())
            for one in everybody:
                if one.pid == pid and f"-D {self._embedded.cluster} " in one.command:
                    return [one, *(child for child in everybody if child.parent == pid)]
        return []

    # --- disk and clock ------------------------------------------------------------------------

    def fill_disk(self) -> None:
        """No byte more fits."""
        stat = os.statvfs(self.data)
        _remount(self.data, (stat.f_blocks - stat.f_bfree) * stat.f_frsize)

    def free_disk(self) -> None:
        _remount(self.data, DISK_BYTES)

    def step_clock(self, by: int) -> None:
        """Move the wall clock of API, worker and supervisor; PostgreSQL keeps its own."""
        if self._clock is not None:
            self._clock.step(by)

    def keep(self, to: Path) -> None:
        """Copy the data folder, which may end with this process, after `stop`."""
        subprocess.run(["cp", "-a", str(self.data), str(to)], check=True)  # noqa: S607 # from PATH


def can_mount() -> str | None:
    """Why there can be no file system of our own; None if there can."""
    if os.geteuid() != 0:
        return "only root may mount a small file system"
    if shutil.which("mount") is None:
        return "there is no mount command"
    # Asked of a child: once in a name space of our own there is no way back.
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(int(sys.argv[1])))",
            str(NEW_MOUNTS),
        ],
        check=False,
        capture_output=True,
    )
    return None if child.returncode == 0 else "a private mount name space is not permitted here"


def _mount(folder: Path) -> None:
    """Mount a file system that only this thread and the processes it starts from now on see. It is
    gone when the last of them ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS) != 0:
        raise SetupError(f"no private name space: {os.strerror(ctypes.get_errno())}")
    options = f"size={DISK_BYTES},mode=0711"
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", options, "recollect-torture", str(folder)],
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SetupError(f"{' '.join(command)}: {done.stderr.strip()}")


def _remount(folder: Path, size: int) -> None:
    # Refused when more was written since we looked: then look again, it is full at last.
    for _ in range(50):
        command = ["mount", "-o", f"remount,size={size}", str(folder)]
        done = subprocess.run(command, check=False, capture_output=True)
        if done.returncode == 0:
            return
        stat = os.statvfs(folder)
        size = max(size, (stat.f_blocks - stat.f_bfree) * stat.f_frsize + 65_536)


def _processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if state[0] not in ("Z", "X"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                yield Process(int(entry.name), int(state[1]), int(state[19]), command)


def end_all(folder: Path) -> None:
    """Once standard input ends, kill what still runs on the folder."""
    sys.stdin.read()
    while left := _left_on(folder):
        for one in left:
            _kill(one)


def _left_on(folder: Path) -> list[Process]:
    """What runs on data in the folder: services, also without their supervisor, and PostgreSQL."""
    setting = os.fsencode(f"RECOLLECT_DATA_DIR={folder}/")
    found: list[Process] = []
    for one in _processes():
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{one.pid}/environ").read_bytes()
            if setting in environment or f" -D {folder}/" in one.command:
                found.append(one)
    return found


def _is_postgres(process: Process) -> bool:
    return Path(process.command.split(" ", 1)[0]).name.startswith("postgres")


def _kill(victim: Process) -> bool:
    """Kill the process, unless its id belongs to another by now; whether it was killed."""
    return _signal(victim, signal.SIGKILL)


def _signal(victim: Process, number: signal.Signals) -> bool:
    """Send the signal, unless the id belongs to another process by now; whether it was sent."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(victim.pid)
        try:
            # The descriptor holds on to a process: if that is still ours, it is the right one.
            if any((one.pid, one.born) == (victim.pid, victim.born) for one in _processes()):
                signal.pidfd_send_signal(descriptor, number)
                return True
        finally:
            os.close(descriptor)
    return False


def _answers(endpoint: Endpoint) -> bool:
    # Not /ready: that is red while the embedding endpoint fails, as it shall.
    try:
        return endpoint.request("GET", "/health").status == 200
    except Transient:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
