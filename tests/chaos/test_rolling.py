"""A rolling restart: processes are replaced one by one under load, and nobody notices."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path

import httpx
import pytest

from recollect.db import Database
from recollect.model import Plan, Scope
from recollect.orgs import orgs
from tests.conftest import eventually, free_port

CLIENTS = 4


class Machines:
    """API and worker processes on one database, each with a folder of its own but one for files."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,  # noqa: TID251 # the children need PATH and the like
            "RECOLLECT_DATABASE_URL": database_url,
            "RECOLLECT_DATA_DIR": str(folder),
            "RECOLLECT_EMBEDDER": "none",
            "RECOLLECT_CANARY_INTERVAL": "0",
        }
        self.running: list[subprocess.Popen[bytes]] = []
        with Database(database_url) as db, db.begin() as tx:
            org = orgs.create(tx, "rolling", Plan.ENTERPRISE)
            self.key = orgs.create_key(tx, org.id, scope=Scope.ADMIN)[1]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "recollect", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def api(self, port: int) -> subprocess.Popen[bytes]:
        process = self.start("api", "--port", str(port))

        def ready() -> bool:
            assert process.poll() is None, self.log()
            try:
                found = httpx.get(
                    f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False, verify=False
                )
            except httpx.TransportError:
                return False
            return found.status_code == 200

        eventually(ready, timeout=120)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGTERM)
        self.running.remove(process)
        return process.wait(60)

    def log(self) -> str:
        return (self._folder / "log").read_text()[-4000:]


class Writer:
    """Clients behind a balancer: a connection that fails is tried once more, elsewhere."""

    def __init__(self, ports: list[int], key: str) -> None:
        self._ports = ports
        self._headers = {"Authorization": f"Bearer {key}"}
        self.over = threading.Event()
        self.acknowledged: list[str] = []
        self.refused: list[str] = []

    def write(self, client: int) -> None:
        with httpx.Client(headers=self._headers, timeout=60, trust_env=False, verify=False) as http:
            for n in count():
                if self.over.is_set():
                    return
                body = {"content": f"Note {n} of {client}.", "customId": f"{client}-{n}"}
                order = self._ports if n % 2 else self._ports[::-1]
                answer = self._first(http, order, body)
                if answer is None or answer.status_code != 200:
                    self.refused.append("neither took it" if answer is None else answer.text)
                else:
                    self.acknowledged.append(answer.json()["id"])

    def _first(
        self, http: httpx.Client, ports: list[int], body: dict[str, str]
    ) -> httpx.Response | None:
        for port in ports:
            try:
                return http.post(f"http://127.0.0.1:{port}/v3/documents", json=body)
            except httpx.TransportError:
                continue
        return None


@pytest.fixture
def machines(new_database: Callable[[], str], short_tmp: Path) -> Generator[Machines]:
    folder = short_tmp / "rolling"
    folder.mkdir()
    made = Machines(folder, new_database())
    yield made
    for process in made.running:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_processes_are_replaced_one_by_one_and_no_write_fails_twice(machines: Machines):
    ports = [free_port(), free_port()]
    apis = [machines.api(port) for port in ports]
    workers = [machines.start("work"), machines.start("work")]
    writer = Writer(ports, machines.key)

    clients = [threading.Thread(target=writer.write, args=(n,)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    codes: list[int] = []
    try:
        for place, port in enumerate(ports):
            seen = len(writer.acknowledged)
            eventually(lambda seen=seen: len(writer.acknowledged) > seen + 10)
            codes.append(machines.end(apis[place]))
            apis[place] = machines.api(port)
        for place, worker in enumerate(workers):
            codes.append(machines.end(worker))
            workers[place] = machines.start("work")
    finally:
        writer.over.set()
        for client in clients:
            client.join()

    assert writer.refused == [], machines.log()
    # Uvicorn ends by the signal that it was told to end with, once it has ended in order.
    assert set(codes) <= {0, -signal.SIGTERM}, machines.log()
    assert len(set(writer.acknowledged)) == len(writer.acknowledged)
    with httpx.Client(
        base_url=f"http://127.0.0.1:{ports[0]}",
        headers={"Authorization": f"Bearer {machines.key}"},
        timeout=60,
        trust_env=False,
    ) as http:

        def documents() -> list[dict[str, object]]:
            found: list[dict[str, object]] = []
            while True:
                page = len(found) // 100 + 1
                asked = {"limit": 100, "page": page, "sort": "createdAt", "order": "asc"}
                got = http.post("/v3/documents/list", json=asked).raise_for_status().json()
                found += got["memories"]
                if len(found) >= got["pagination"]["totalItems"]:
                    return found

        def done() -> bool:
            return {one["status"] for one in documents()} == {"done"}

        eventually(done, timeout=120)
        assert {one["id"] for one in documents()} == set(writer.acknowledged)
        # What a stopping worker held was given back: no attempt was lost to it.
        tried = {
            http.get(f"/v3/documents/{id}").json()["attempts"] for id in writer.acknowledged[-50:]
        }
        assert tried == {1}
