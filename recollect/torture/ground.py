"""The service under test: a scratch folder, its processes, its disk and its clock.

Nothing outside of the scratch folder is touched, and nothing is killed but the supervisor that was
started here, its children, and the PostgreSQL whose data folder is inside. Linux only: processes
are found in /proc and killed by descriptors, which never name another process.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from recollect.db.embedded import Embedded
from recollect.errors import SetupError, Transient
from recollect.fetch import Endpoint
from recollect.torture.plan import Kill

NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS of linux/sched.h"""
DISK_BYTES = 4_000_000_000
FAKE_CLOCKS = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
CLOCK_SETTINGS = {
    "FAKETIME_CACHE_DURATION": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
}
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


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc."""

    pid: int
    parent: int
    born: int
    """in ticks since the machine started: with the pid, names it for good"""
    command: str


class Ground:
    """Runs `recollect serve` and starts it again whenever it ends, until `stop`."""

    def __init__(
        self,
        folder: Path,
        embedder_url: str,
        *,
        disk: bool,
        clock: Path | None,
        settings: dict[str, str] | None = None,
    ) -> None:
        """`disk`: put the data on a file system of its own, which needs root. `clock`: a
        libfaketime. `settings` are further ones, by their names without the prefix."""
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "serve.log"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.restarts = 0
        self._disk = disk
        self._clock = clock
        self._settings = {
            **SETTINGS,
            "data_dir": str(self.data),
            "port": str(self.port),
            "embedder": "openai",
            "embedder_url": embedder_url,
            **(settings or {}),
        }
        self._embedded = Embedded(self.data)
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self._nurse = threading.Thread(target=self._keep, name="nurse")

    def __enter__(self) -> Self:
        """Raises SetupError when the service does not come up."""
        self.data.mkdir(mode=0o711)
        if self._disk:
            _mount(self.data)
        self.step_clock("+0")
        self._nurse.start()
        try:
            self.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._disk:
            # Else it would go only with this process, and nobody could remove the folder.
            subprocess.run(["umount", "--lazy", str(self.data)], check=False, capture_output=True)  # noqa: S607 # from PATH

    # --- life ----------------------------------------------------------------------------------

    def wait_until_up(self) -> None:
        """Raises SetupError with the end of the log when it takes too long."""
        with contextlib.closing(Endpoint(self.url, timeout=5)) as endpoint:
            if not self._within(START_WITHIN, lambda: _answers(endpoint)):
                end = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
                raise SetupError(f"the service did not start; the end of its log:\n{end}")

    def stop(self) -> int | None:
        """End it as Ctrl-C would, and what is left of it after a while by force.

        Returns its exit code, None if it had to be forced.
        """
        self._over.set()
        if self._nurse.is_alive():
            self._nurse.join()
        process, self._process = self._process, None
        if process is None:
            return None
        code: int | None = None
        family = self._family(process.pid)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(STOP_WITHIN)
        for member in [*family, *self._orphans(), *self._postgres()]:
            _kill(member)
        process.wait()
        return code

    def database_url(self) -> str:
        """Of the embedded PostgreSQL."""
        return self._embedded.url

    def _keep(self) -> None:
        while not self._over.wait(0.1):
            if self._process is not None and self._process.poll() is None:
                continue
            if self._process is not None:
                self.restarts += 1
                # Its children are still on their way out and hold the port for a moment.
                self._over.wait(0.4)
            with self.log.open("ab") as out:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "recollect", "serve"],
                    env=self._environment(),
                    cwd=self.folder,  # where no .env lies
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for us; we end it in our turn
                )

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()  # noqa: TID251 # PATH and the like, not settings
            if not name.startswith("RECOLLECT_")
        }
        given = {f"RECOLLECT_{name.upper()}": value for name, value in self._settings.items()}
        if self._clock is None:
            return kept | given
        return (
            kept
            | given
            | {
                "LD_PRELOAD": str(self._clock),
                "FAKETIME_TIMESTAMP_FILE": str(self.folder / "clock"),
                "FAKETIME_CACHE_DURATION": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        )

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
        process = self._process
        if process is None or process.poll() is not None:
            return False
        family = self._family(process.pid)
        victims: list[Process]
        match what:
            case "supervisor":
                victims = family[:1]
            case "api" | "worker":
                word = "work" if what == "worker" else "api"
                victims = [
                    one for one in family[1:] if f"recollect {word} --supervised" in one.command
                ]
            case "postmaster":
                victims = self._postgres()[:1]
            case "backend":
                sessions = [
                    one for one in self._postgres()[1:] if "recollect recollect" in one.command
                ]
                victims = [chance.choice(sessions)] if sessions else []
            case "everything":
                victims = [*family, *self._postgres()]
        hits = [_kill(victim) for victim in victims]
        return any(hits)

    def _family(self, pid: int) -> list[Process]:
        """The supervisor, then what it started."""
        everybody = list(_processes())
        parents = {pid}
        for _ in range(3):
            parents |= {one.pid for one in everybody if one.parent in parents}
        known = [one for one in everybody if one.pid in parents and not _is_postgres(one)]
        return sorted(known, key=lambda one: one.pid != pid)

    def _orphans(self) -> list[Process]:
        """Children of supervisors that were killed, should any have stayed."""
        ours = f"RECOLLECT_DATA_DIR={self.data}".encode()
        found: list[Process] = []
        for one in _processes():
            with contextlib.suppress(OSError):
                if ours in Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0"):
                    found.append(one)
        return found

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

    def step_clock(self, by: str) -> None:
        """Move the wall clock of API, worker and supervisor; PostgreSQL keeps its own."""
        fresh = self.folder / "clock.new"
        fresh.write_text(f"{by}\n")
        fresh.replace(self.folder / "clock")

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


def fake_clock() -> Path | str:
    """The libfaketime of this machine, or why it cannot be used."""
    root = Path("/")
    found = next((found for name in FAKE_CLOCKS for found in root.glob(name[1:])), None)
    return "there is no libfaketime on this machine" if found is None else try_clock(found)


def try_clock(library: Path) -> Path | str:
    """The library, or why it is of no use: some break Python's own waiting."""
    probe = "import time; time.sleep(0.01); print(int(time.time()))"
    child = subprocess.run(
        [sys.executable, "-c", probe],
        env={"LD_PRELOAD": str(library), "FAKETIME": "+86400", **CLOCK_SETTINGS},
        check=False,
        capture_output=True,
        text=True,
    )
    if child.returncode != 0:
        return f"this Python cannot sleep with {library}"
    if abs(int(child.stdout) - time.time() - 86_400) > 60:
        return f"{library} does not step the clock of this Python"
    return library


def _mount(folder: Path) -> None:
    """For this thread and all that it starts from now on; goes with the last of them."""
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


def _is_postgres(process: Process) -> bool:
    return Path(process.command.split(" ", 1)[0]).name.startswith("postgres")


def _kill(victim: Process) -> bool:
    """Whether it was still the same, and is dead now."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(victim.pid)
        try:
            # The descriptor holds on to a process: if that is still ours, it is the right one.
            if any((one.pid, one.born) == (victim.pid, victim.born) for one in _processes()):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
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
