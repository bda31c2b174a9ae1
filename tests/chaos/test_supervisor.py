"""What the supervisor's children share with it, as forks do, and what they must not."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from recollect.app import App
from recollect.cli._process import listen
from recollect.cli.serve import Child, Supervisor, _tried
from recollect.config import Config
from recollect.db.embedded import database
from recollect.db.faults import judging
from recollect.ops import readiness
from tests.chaos.test_crash import alive, children, family, part_of, postmaster, serving
from tests.conftest import RECOLLECT, Service, eventually, free_port
from tests.conftest import serving as running

MAKING = ("making", "data")
"""a cluster while initdb writes it, and after that"""

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children are no forks"),
]


def test_what_the_supervisor_loads_starts_no_thread_and_opens_no_file() -> None:
    asked = """if True:
        import os, threading
        from recollect.cli import serve

        before = set(os.listdir("/proc/self/fd"))
        serve._load()
        assert threading.enumerate() == [threading.main_thread()]
        print(set(os.listdir("/proc/self/fd")) - before)
    """
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_who_outlives_a_parent_is_buried_and_our_own_are_not() -> None:
    """In a container, each worker that was killed left zombies, which count to the limit of
    processes."""
    asked = """if True:
        import ctypes, os, subprocess
        from recollect.cli import serve

        def ended(pid):
            with open(f"/proc/{pid}/stat") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] == "Z"

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans come here, as to a container's first
        orphan = int(subprocess.check_output(["sh", "-c", "sleep 0 & echo $!"]))
        while not ended(orphan):
            pass
        serve.bury(())
        own = serve.PROCESSES.Process(target=os._exit, args=(7,))
        own.start()
        while not ended(own.pid):
            pass
        serve.bury({own.pid})
        print(os.path.exists(f"/proc/{orphan}"), own.exitcode)
    """
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "False 7\n"


def test_a_signal_while_the_database_is_prepared_goes_into_no_file_of_that_process() -> None:
    asked = """if True:
        import signal, socket
        import recollect.app
        from recollect.cli import serve
        from recollect.config import load

        def prepare(config, url):
            # Some of them get the numbers that the supervisor's pipe had, which is closed here.
            opened = [end for _ in range(5) for end in socket.socketpair()]
            signal.raise_signal(signal.SIGINT)
            for end in opened:
                end.shutdown(socket.SHUT_WR)
            return repr(b"".join(end.recv(100) for end in opened))

        recollect.app.prepare = prepare
        supervisor = serve.Supervisor(load())
        supervisor._heed_signals()
        print(serve._prepared(supervisor._config, "")[1])
    """
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "b''\n"


@pytest.mark.parametrize(("deaths", "told"), [(2, "url"), (3, "it is away")])
def test_a_database_that_is_killed_as_it_starts_is_started_again(deaths: int, told: str) -> None:
    asked = f"""if True:
        from recollect.cli import serve
        from recollect.config import load
        from recollect.errors import DatabaseAway, RecollectError

        starts = iter([DatabaseAway("it is away")] * {deaths} + ["url"])

        def ensure():
            told = next(starts)
            if isinstance(told, Exception):
                raise told
            return told

        try:
            config = load().model_copy(update={{"database_url": None}})
            print(serve._tried(config, ensure))
        except RecollectError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == told


@pytest.mark.parametrize(("deaths", "told"), [(2, "('url 3', 'key')"), (3, "it is away")])
def test_a_database_that_dies_while_it_is_prepared_is_started_again(
    tmp_path: Path, deaths: int, told: str
) -> None:
    asked = f"""if True:
        import itertools, pathlib
        import recollect.app
        from recollect.cli import serve
        from recollect.config import load
        from recollect.errors import RecollectError, Unavailable

        tries = pathlib.Path({str(tmp_path / "tries")!r})
        tries.touch()

        def prepare(config, url):
            tries.write_text(tries.read_text() + "x")
            if len(tries.read_text()) <= {deaths}:
                raise Unavailable("it is away")
            return "key"

        recollect.app.prepare = prepare
        starts = itertools.count(1)
        config = load().model_copy(update={{"database_url": None}})
        try:
            ensure = lambda: f"url {{next(starts)}}"
            print(serve._tried(config, lambda: serve._prepared(config, ensure())))
        except RecollectError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == told


def test_a_database_that_recovers_while_it_is_prepared_is_waited_for(short_tmp: Path) -> None:
    """As one does, a process of which is killed for its memory."""
    config = Config(data_dir=short_tmp / "recovers")
    with database(config) as ensure:
        url = ensure()
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("create table t as select n from generate_series(1, 100000) n")
            os.kill(session.info.backend_pid, signal.SIGKILL)

        def refused() -> bool:
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError as error:
                return "recovery" in str(error)
            return False

        def asked() -> object:
            with judging(), psycopg.connect(ensure()) as session:
                return session.execute("select count(*) from t").fetchone()

        eventually(refused)

        assert _tried(config, asked) == (100000,)


def test_why_the_service_is_not_ready_is_told(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with app.db.begin() as tx:  # of other tests, whose failures count for a quarter of an hour
        tx.execute("delete from stage_health")
        tx.execute("delete from canary")
    monkeypatch.setattr(readiness, "LEAST_FREE", 1 << 62)
    with running(app) as url:
        port = int(url.rpartition(":")[2])
        supervisor = Supervisor(app.config.model_copy(update={"host": "127.0.0.1", "port": port}))
        # Where the machine is busy an answer may take longer than it waits: then it asks again.
        eventually(lambda: (supervisor._hindrance() or "").startswith("the disk is full: "))
        monkeypatch.undo()
        eventually(lambda: supervisor._hindrance() is None)
    assert supervisor._hindrance() == ""


def test_who_comes_while_the_api_keeps_dying_is_told(tmp_path: Path) -> None:
    """Connections waited for half a minute, and nobody learnt why."""
    supervisor = Supervisor(Config(data_dir=tmp_path))
    api, worker = Child("api", "api"), Child("worker", "work")
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v3/search"
        api.not_before = time.monotonic() + 20
        asked = pool.submit(httpx.post, url, json={"q": "x" * 10_000}, trust_env=False)
        while not asked.done():
            supervisor._rest([api, worker], 0.1, listening)
        answer = asked.result()

        api.not_before = time.monotonic() + 0.2
        with socket.create_connection(listening.getsockname()):
            supervisor._rest([api, worker], 0.1, listening)
            listening.accept()[0].close()  # it was left to the API, which comes at once

    assert answer.status_code == 503
    assert 18 <= int(answer.headers["retry-after"]) <= 20
    assert "its log says why" in answer.json()["details"]


def test_children_hold_nothing_of_their_supervisor_and_end_each_by_itself(short_tmp: Path) -> None:
    with serving(short_tmp / "forks") as service:
        # Until it says so, it may be asking whether it is ready.
        eventually(lambda: '"event": "ready"' in service.log.read_text())
        found = _by_part(service)
        ours = _written(service.process.pid)
        charge = str(service.data_dir / "postgres.charge")
        (listening,) = (name for name in ours if name.startswith("socket:"))
        life = str(Path(f"/proc/{found['api'].pid}/fd/0").readlink())
        assert {charge, life} < ours

        for part, process in found.items():
            shared = {charge, life, listening} & _written(process.pid)
            assert shared == ({listening} if part == "api" else set())
            assert os.getsid(process.pid) == process.pid

        # One that stands still must not keep the other alive.
        found["worker"].suspend()
        try:
            service.process.kill()
            service.process.wait()
            found["api"].wait(30)
            # Nor keep the address from the next service.
            with socket.create_server(("127.0.0.1", int(service.url.rpartition(":")[2]))):
                pass
        finally:
            found["worker"].send_signal(signal.SIGCONT)
        found["worker"].wait(30)


def test_a_service_that_was_killed_can_be_started_at_once(short_tmp: Path) -> None:
    """Its API process holds the address until it notices."""
    with serving(short_tmp / "killed") as service:
        service.process.kill()
        service.process.wait()
        with listen(Config(port=int(service.url.rpartition(":")[2]))):
            pass


def test_who_is_orphaned_before_the_database_answers_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"postgresql://x@127.0.0.1:{mute.getsockname()[1]}/x?connect_timeout=300"
        for command in ("api", "work"):
            with subprocess.Popen(
                [*RECOLLECT, command, "--supervised"],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"RECOLLECT_DATABASE_URL": url, "RECOLLECT_PORT": str(free_port())},
            ) as process:
                asked, _ = mute.accept()
                with asked:
                    _, told = process.communicate(timeout=60)
                assert (process.returncode, told) == (0, b"")


def test_ctrl_c_in_the_first_start_is_no_fault_of_the_database(short_tmp: Path) -> None:
    folder = short_tmp / "first" / "postgres"
    with subprocess.Popen(
        [*RECOLLECT, "serve", "--port", str(free_port()), "--data-dir", str(folder.parent)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell's background jobs, and what they start, are deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        eventually(lambda: any((folder / name / "global/pg_control").exists() for name in MAKING))
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=60)

    assert process.returncode == 0, told


def test_a_closed_terminal_ends_all_of_it(short_tmp: Path) -> None:
    with serving(short_tmp / "hung-up") as service:
        processes = family(service)
        assert postmaster(service.data_dir) in processes
        service.process.send_signal(signal.SIGHUP)
        service.process.wait(60)
        # A child of a child may be dying still.
        eventually(lambda: not alive(processes))


def test_a_closed_terminal_ends_nothing_under_nohup(short_tmp: Path) -> None:
    with serving(short_tmp / "kept", program=("nohup", *RECOLLECT)) as service:
        worker = _by_part(service)["worker"]
        for process in (worker.pid, service.process.pid):
            os.kill(process, signal.SIGHUP)
        with service.client() as http:
            made = http.post("/v3/documents", json={"content": "Written without a terminal."})
            path = f"/v3/documents/{made.json()['id']}"
            eventually(lambda: http.get(path).json()["status"] == "done")
        assert _by_part(service)["worker"] == worker


def test_it_runs_where_the_standard_streams_are_closed(short_tmp: Path) -> None:
    closing = ("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *RECOLLECT)
    with serving(short_tmp / "closed", program=closing) as service:
        _by_part(service)["worker"].kill()
        with service.client() as http:
            made = http.post("/v3/documents", json={"content": "Written into a silent house."})
            path = f"/v3/documents/{made.json()['id']}"
            eventually(lambda: http.get(path).json()["status"] == "done")
        service.process.terminate()
        assert service.process.wait(60) == 0


def _by_part(service: Service) -> Mapping[str, psutil.Process]:
    def found() -> dict[str, psutil.Process]:
        named = {part_of(child): child for child in children(service)}
        return {part: child for part, child in named.items() if part is not None}

    return eventually(lambda: two if len(two := found()) == 2 else None)


def _written(pid: int) -> set[str]:
    """What a process holds open to write."""
    held: set[str] = set()
    for number in Path(f"/proc/{pid}/fd").iterdir():
        # The process runs on, and may close a file between the list and the look.
        with suppress(FileNotFoundError):
            told = Path(f"/proc/{pid}/fdinfo/{number.name}").read_text()
            flags = int(re.findall(r"^flags:\s*(\d+)", told, re.MULTILINE)[0], 8)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                held.add(str(number.readlink()))
    return held
