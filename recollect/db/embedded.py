"""The bundled PostgreSQL: binaries from a wheel, under our own supervision.

The wheel's own supervisor is not used: it takes a dead (zombie) postmaster for a live one, opens
every parent folder to others when run by root, and trusts every local user. Here the server
listens only on a socket in a private folder, asks for a password, runs as an unprivileged user
when we are root, and counts as up when a real connection works.

PostgreSQL takes any live process of its user whose id stands in `postmaster.pid`, or in the lock
file of its socket, for a server that runs, and refuses to start. Ids repeat, in containers within
minutes. So nothing is believed that stands in a file: every process of our server inherits a lock
(`postgres.alive`) that the kernel lets go of with the last of them, in whatever container it is,
and each of them has the cluster as its working directory. Where neither shows one, and nothing
listens at its socket or is attached to its shared memory, both files go before the start.

The service does not connect as the superuser `recollect` but as `recollect_service`, which owns the
tables and may do nothing to the server: no programs, no files, no settings, no roles, no
extensions. The superuser makes that role and its database at the start, and purges what only it can
reach.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, Ping

from recollect import log
from recollect.config import Config, temporary_folder
from recollect.db._server_memory import memory_limit, sized
from recollect.db._server_process import (
    ENVIRONMENT,
    account_for,
    check_named,
    check_passable,
    check_version,
    close,
    installed_server,
    is_listening,
    is_passable,
    process_of,
    processes,
    wait_until,
    why_attached,
)
from recollect.db.faults import judging, speaks_of_no_room
from recollect.db.server_roles import HAND_OVER, SERVICE, SUPERUSER
from recollect.db.sessions import check_url
from recollect.errors import DatabaseAway, SetupError, Unavailable

LOG = log.get("postgres")
SHARED = (
    "the database's files belong to nobody, so to every service that runs as nobody; make a user"
    " named recollect before the first start"
)
START_TIMEOUT = 60.0
ONE_SEGMENT = 16 << 20
"""Bytes of a file of the write-ahead log, which it needs to start."""
CONNECT_TIMEOUT = 5
"""seconds; libpq takes no less than 2"""
SOCKET_PATH_LIMIT = 90  # sun_path holds 107 bytes; the socket's own name needs some
ONLY_CATALOG = "-c search_path=pg_catalog"
"""Option of every session of the superuser: a function or operator that the service's role left in
its schema would be run with all powers otherwise."""
CONF = """
listen_addresses = ''
unix_socket_permissions = 0700
fsync = on
synchronous_commit = on
full_page_writes = on
maintenance_work_mem = 128MB
work_mem = 16MB
max_wal_size = 1GB
wal_compression = off
max_connections = 100
autovacuum_naptime = 20s
autovacuum_vacuum_scale_factor = 0.05
autovacuum_analyze_scale_factor = 0.05
log_min_messages = warning
log_checkpoints = off
log_error_verbosity = terse
log_min_error_statement = panic
log_parameter_max_length = 0
log_parameter_max_length_on_error = 0
wal_recycle = off
shared_memory_type = mmap
restart_after_crash = on
jit = off
"""
# `pglz`, the one way of compression that the wheel has, takes 0.19 ms for the first change of each
# page after a checkpoint. Vectors do not get smaller by it: an ingest writes 3 to 6 % more without.


class Embedded:
    """One data folder and the server on it.

    Several processes may hold an `Embedded` for the same folder: `ensure` starts the server or
    joins the one that runs. Raises SetupError when the machine cannot run it.
    """

    def __init__(self, data_dir: Path, *, port: int | None = None) -> None:
        """With a `port` it listens there, too, on loopback, and that is the address it gives."""
        self.data_dir = data_dir.absolute()
        self.port = port
        self.folder = self.data_dir / "postgres"
        self._child: subprocess.Popen[bytes] | None = None
        self._account = account_for(self.cluster)
        self._known_up = self._was_up = False
        self._charge: IO[str] | None = None

    @property
    def cluster(self) -> Path:
        return self.folder / "data"

    @property
    def url(self) -> str:
        """Connection string of the service; only who can read the data folder has the password."""
        return self._url(SERVICE, self._service_password)

    @property
    def superuser_url(self) -> str:
        """Connection string of the superuser, for what the service may not do.

        A session with it must set `ONLY_CATALOG`.
        """
        return self._url(SUPERUSER, self.folder / "password")

    @property
    def _service_password(self) -> Path:
        return self.folder / "service-password"

    def _url(self, role: str, password: Path) -> str:
        user = f"{role}:{quote(password.read_text().strip())}"
        if self.port is not None:
            return f"postgresql://{user}@127.0.0.1:{self.port}/recollect"
        return f"postgresql://{user}@/recollect?host={quote(str(self._socket_folder()), safe='')}"

    def ensure(self) -> str:
        """The URL of a server that answers, started if need be; safe and cheap to call often.

        Raises SetupError when it does not start, Unavailable when it may yet, or when the folder
        of one that was up is away: another, empty one is not what anybody wants then.
        """
        if self._known_up and self._postmaster() is not None:
            self._join()
            return self.url
        self._known_up = False
        if self._was_up and not (self.cluster / "PG_VERSION").exists():
            raise Unavailable(f"the folder of the database is away: {self.cluster}")
        with self._lock():
            if self._child is not None and self._child.poll() is not None:
                LOG.warning("postgres ended", exit=self._child.returncode)
                self._child = None
            if not (self.cluster / "PG_VERSION").exists():
                self._init()
            check_version(self.cluster)
            close(self.cluster)
            self._join()  # before there is a server that a signal could leave behind
            if not self._answers():
                self._start()
            url = self.prepare("recollect")
        self._known_up = self._was_up = True
        return url

    @property
    def is_shared(self) -> bool:
        """Whether its files belong to a user as whom other services run, too."""
        return self._account.shared

    def leave(self) -> None:
        """Use the server no more; stop it if nobody else uses it."""
        if self._charge is None:
            return
        with self._lock():  # who joins meanwhile finds it either in use or stopped
            try:
                fcntl.flock(self._charge, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._charge.close()
                self._charge = None
            else:
                self.stop()

    def stop(self) -> None:
        """Stop the server: a fast shutdown, sessions are cut off, nothing committed is lost."""
        pid = self._server()
        if pid is not None:
            os.kill(pid, signal.SIGQUIT if self.recovers() else signal.SIGINT)
            if not wait_until(lambda: self._server() is None, START_TIMEOUT):
                LOG.warning("a fast shutdown did not end: the next start recovers", pid=pid)
                os.kill(pid, signal.SIGQUIT)
                wait_until(lambda: self._server() is None, START_TIMEOUT)
            self._child = None
        if self._charge is not None:
            self._charge.close()
            self._charge = None

    def recovers(self) -> bool:
        """Whether the server, which was ready, recovers from the death of one of its processes, as
        on a full disk. PostgreSQL 18 never ends a fast shutdown that it is asked for meanwhile."""
        try:
            ready = (self.cluster / "postmaster.pid").read_text().rstrip().endswith("ready")
        except FileNotFoundError:
            return False
        return ready and _ping(self.superuser_url) == Ping.REJECT

    def _join(self) -> None:
        """Be one of those who use the server: the last to leave stops it.

        An earlier version that runs holds the lock alone, and stops it whoever uses it.
        """
        if self._charge is not None:
            return
        file = _lock_file(self.data_dir / "postgres.charge")
        try:
            # The kernel lets go of it when we die, however suddenly.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            self._charge = file
            os.register_at_fork(after_in_child=file.close)  # a fork would hold on to it

    def _init(self) -> None:
        check_named(os.geteuid() if self._account.uid is None else self._account.uid)
        self._make_folders()
        shutil.rmtree(self.cluster, ignore_errors=True)  # left half-made by a crash
        password = self.folder / "password"
        if not password.exists() or not password.stat().st_size:
            _write_private(password, secrets.token_urlsafe(32))
        making = self.folder / "making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        self._own(making)
        handed_in = self.folder / "making.password"
        _write_private(handed_in, password.read_text())
        self._own(handed_in)
        try:
            self._run(
                "initdb",
                f"--pgdata={making}",
                "--auth=scram-sha-256",
                "--username=recollect",
                f"--pwfile={handed_in}",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--data-checksums",
                "--no-instructions",
            )
        finally:
            handed_in.unlink(missing_ok=True)
        with (making / "postgresql.conf").open("a") as conf:
            conf.write(CONF)
        making.rename(self.cluster)
        LOG.info("created the database folder", folder=str(self.cluster))

    def _start(self) -> None:
        """Raises DatabaseAway while an earlier server may not be ended, or if ours was killed."""
        sockets = self._socket_folder()
        log_file = self.folder / "server.log"
        with _lock_file(self.data_dir / "postgres.alive") as alive, log_file.open("ab") as out:
            obstacles = [self._obstacle(alive)]

            def cleared() -> bool:
                obstacles[0] = self._obstacle(alive)
                return obstacles[0] is None

            # It may be starting, recovering, or shutting down.
            if not wait_until(lambda: cleared() or self._answers(), START_TIMEOUT):
                raise DatabaseAway(f"PostgreSQL cannot be started: {obstacles[0]}")
            if obstacles[0] is not None:
                return
            self._forget_files()
            if self.is_shared:
                LOG.warning(SHARED)
            self._child = subprocess.Popen(
                [
                    str(self._binaries() / "postgres"),
                    "-D",
                    str(self.cluster),
                    "-k",
                    str(sockets),
                    *sized(self.cluster, memory_limit()),
                    *self._listening(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C on the terminal is for us, not for it
                pass_fds=[alive.fileno()],
                cwd="/",
                env=ENVIRONMENT,
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=self._account.extra_groups,
            )
        child = self._child
        up = wait_until(lambda: self._answers() or child.poll() is not None, START_TIMEOUT)
        if not up or child.poll() is not None:
            told = _why_not_up(self.folder, log_file)
            raise DatabaseAway(told) if (child.returncode or 0) < 0 else SetupError(told)

    def _obstacle(self, alive: IO[str]) -> str | None:
        """What of an earlier server is still there. None: nothing, and `alive` is locked by us.

        A session that computes does not notice that its postmaster died, and holds the shared
        memory for as long as its statement takes. It can only finish in vain: it is ended.
        """
        found = processes(self.cluster)
        if masters := [one for one in found if not one.session]:
            return f"the postmaster with pid {masters[0].pid} runs and does not answer"
        for one in found:
            LOG.warning("ended a session that outlived its postmaster", pid=one.pid)
            one.kill(self.cluster)
        if found:
            return f"sessions of a server that was killed are ending, pid {found[0].pid} for one"
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return (
                f"another process holds {alive.name}, so a server runs on this folder that cannot"
                " be seen from here, perhaps in another container; stop it there"
            )
        if is_listening(self._socket):
            reason = f"another process listens at {self._socket}"
        else:
            reason = why_attached(self.cluster / "postmaster.pid")
        if reason is not None:
            fcntl.flock(alive, fcntl.LOCK_UN)
        return reason

    def _forget_files(self) -> None:
        """Remove what says that a server runs; nobody may call it unless none does."""
        for path in (
            self.cluster / "postmaster.pid",
            self._socket.with_name(f"{self._socket.name}.lock"),
        ):
            with suppress(FileNotFoundError):
                path.unlink()
                LOG.warning("removed the lock file of a server that is gone", file=str(path))

    @property
    def _socket(self) -> Path:
        return self._socket_folder() / f".s.PGSQL.{self.port or 5432}"

    def _listening(self) -> list[str]:
        if self.port is None:
            return []
        return ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}"]

    def _answers(self) -> bool:
        """Whether it takes connections, or refuses them for good, as where its disk is full: then
        `prepare` says why."""
        url = make_conninfo(self.superuser_url, dbname="postgres")
        return _opens(url) or (self._postmaster() is not None and _refuses(url))

    def prepare(self, database: str) -> str:
        """Make a database of the service if there is none; returns its connection string.

        What the superuser owns in it goes to the service: an earlier version, which had no other
        role, made it. Raises Unavailable.
        """
        with judging():
            with self._connect("postgres") as session:
                self._make_role(session)
                found = session.execute("select 1 from pg_database where datname = %s", (database,))
                if found.fetchone() is None:
                    session.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
            with self._connect(database) as session, session.transaction():
                session.execute(HAND_OVER)
        return make_conninfo(self.url, dbname=database)

    def _make_role(self, session: psycopg.Connection) -> None:
        """The role of the service, with the password that its file has."""
        file = self._service_password
        known = file.read_text().strip() if file.exists() else ""
        password = known or secrets.token_urlsafe(32)
        if not known:
            _write_private(file, password)
        found = session.execute("select 1 from pg_roles where rolname = %s", (SERVICE,)).fetchone()
        role = sql.Identifier(SERVICE)
        if found is None:
            session.execute(sql.SQL("create role {} login").format(role))
        else:
            # A role may set defaults and a password of its own, and so lock itself out.
            session.execute(sql.SQL("alter role {} reset all").format(role))
        if not _opens(make_conninfo(self.url, dbname="postgres")):
            # Not the password itself: statements can be seen by others, and logged.
            secret = session.pgconn.encrypt_password(
                password.encode(), SERVICE.encode(), b"scram-sha-256"
            )
            session.execute(
                sql.SQL("alter role {} password {}").format(role, sql.Literal(secret.decode()))
            )

    def _connect(self, database: str) -> psycopg.Connection:
        """As the superuser."""
        return psycopg.connect(
            self.superuser_url,
            dbname=database,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT,
            options=ONLY_CATALOG,
        )

    def _postmaster(self) -> int | None:
        """Process id of a live postmaster on this folder; a zombie is not alive."""
        try:
            pid = int((self.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        if self._child is not None and self._child.pid == pid:
            return pid if self._child.poll() is None else None
        found = process_of(pid, self.cluster)
        return None if found is None or found.session else pid

    def _server(self) -> int | None:
        """The same, or of the child that has yet to write its file."""
        child = self._child
        return self._postmaster() or (child.pid if child and child.poll() is None else None)

    def _socket_folder(self) -> Path:
        inside = self.folder / "run"
        path = os.fsencode(inside)
        if len(path) <= SOCKET_PATH_LIMIT and b"," not in path:  # which parts folders, and hosts
            return inside
        # A private folder with a short name; the digest keeps two data folders apart.
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        outside = temporary_folder() / f"recollect-{digest}"
        outside.mkdir(mode=0o700, exist_ok=True)
        self._own(outside)
        found = outside.lstat()
        owner = os.geteuid() if self._account.uid is None else self._account.uid
        if found.st_uid != owner or stat.S_IMODE(found.st_mode) != 0o700:
            raise SetupError(f"{outside} belongs to another user; remove it or set TMPDIR")
        return outside

    def _make_folders(self) -> None:
        root = os.geteuid() == 0
        # Root's server runs as another user, who has to pass through; what lies inside is closed.
        self.data_dir.mkdir(mode=0o711 if root else 0o700, parents=True, exist_ok=True)
        if root:
            check_passable(self.data_dir)
            self.data_dir.chmod(0o711)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._own(self.folder)
        inside = self.folder / "run"
        inside.mkdir(mode=0o700, exist_ok=True)
        self._own(inside)

    def _own(self, path: Path) -> None:
        if self._account.uid is not None and self._account.gid is not None:
            os.chown(path, self._account.uid, self._account.gid)

    def _binaries(self) -> Path:
        found = installed_server()
        if os.geteuid() != 0 or is_passable(found):
            return found
        # Root installed us where its unprivileged server may not look: give it a copy, with the
        # libraries that the wheel keeps beside its package.
        package, copy = found.parents[1], self.data_dir / "postgresql-18"
        bin = copy / package.name / found.relative_to(package)
        if not bin.exists():
            making = self.data_dir / "postgresql-18.making"
            shutil.rmtree(making, ignore_errors=True)
            for part in (found.parent, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    there = making / part.relative_to(package.parent)
                    shutil.copytree(part, there, symlinks=True)
            for folder in (making, making / package.name):
                folder.chmod(0o755)
            shutil.rmtree(copy, ignore_errors=True)
            making.rename(copy)
        return bin

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries() / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            start_new_session=True,  # as the server, see above
            cwd="/",
            env=ENVIRONMENT,
            user=self._account.uid,
            group=self._account.gid,
            extra_groups=self._account.extra_groups,
        )
        if done.returncode != 0:
            raise SetupError(f"{program} failed: {(done.stderr or done.stdout).strip()[-2000:]}")

    @contextmanager
    def _lock(self) -> Generator[None]:
        try:
            self._make_folders()
            file = _lock_file(self.data_dir / "postgres.lock")
        except OSError as error:
            told = f"the data folder {self.data_dir} cannot be written to ({error.strerror})"
            if isinstance(error, PermissionError) and os.access(self.data_dir, os.W_OK):
                told += f": {error.filename} belongs to another user; `chown -R` gives it back"
                raise SetupError(told) from error
            raise SetupError(f"{told}; RECOLLECT_DATA_DIR names another") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def superuser_url(url: str, data_dir: Path) -> str | None:
    """The same database's connection string for the superuser, if our own server on that folder has
    it; None if another server has."""
    if not (data_dir / "postgres" / "data" / "PG_VERSION").exists():
        return None
    ours, theirs = Embedded(data_dir).superuser_url, conninfo_to_dict(url)
    if any(conninfo_to_dict(ours).get(name) != theirs.get(name) for name in ("host", "port")):
        return None
    return make_conninfo(ours, dbname=theirs.get("dbname"))


@contextmanager
def database(config: Config, *, keep: bool = False) -> Generator[Callable[[], str]]:
    """A function that returns the URL of a database that answers, starting ours if need be.

    At the end our server is stopped if no other process uses it. With `keep` it runs on, unless the
    block fails, and counts as in use until this process ends.
    """
    if config.database_url is not None:
        url = config.database_url.get_secret_value()
        check_url(url)
        yield lambda: url
        return
    server = Embedded(config.data_dir)
    try:
        yield server.ensure
    except BaseException:
        server.leave()
        raise
    if not keep:
        server.leave()


def await_recovery(config: Config) -> None:
    """Wait while our server recovers from the death of one of its processes."""
    server = Embedded(config.data_dir)
    wait_until(lambda: not server.recovers(), START_TIMEOUT)


def _opens(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT).close()
    except (psycopg.OperationalError, OSError):
        return False
    return True


def _refuses(url: str) -> bool:
    """Whether a server answers there, and is neither starting nor about to end."""
    return _ping(url) == Ping.OK


def _ping(url: str) -> Ping:
    return Ping(PGconn.ping(make_conninfo(url, connect_timeout=CONNECT_TIMEOUT).encode()))


def _lock_file(path: Path) -> IO[str]:
    """To be locked by us alone: whoever may open a file may lock it, and keep us waiting."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a")
    with suppress(PermissionError):  # whose it is decides
        os.fchmod(file.fileno(), 0o600)
    return file


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _why_not_up(folder: Path, log_file: Path) -> str:
    told = log_file.read_bytes()[-2000:].decode(errors="replace")
    # A disk without a byte takes no line of the log either.
    full = shutil.disk_usage(folder).free < ONE_SEGMENT or speaks_of_no_room(told)
    why = "the bundled PostgreSQL did not start"
    if full:
        why = f"the disk of {folder} is full, so {why}: make room on it, then start again"
    return f"{why}; the end of its log ({log_file}):\n{told}"
