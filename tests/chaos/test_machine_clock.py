"""The whole machine's clock steps, PostgreSQL's with it: an hour ahead, then two back."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from recollect.blobs import open_blobs
from recollect.db import Database, _server_process, embedded
from recollect.db.embedded import Embedded
from recollect.db.schema import migrate
from recollect.model import Plan, Scope
from recollect.ops import verify
from recollect.orgs import orgs
from tests.chaos.test_clocks import HOUR, Site, clock, needs_clock, rows
from tests.conftest import eventually, free_port

LEASE = timedelta(seconds=4)
BOUND = 60.0
"""Seconds: a lease and a back-off of this test, several times over, on a machine that is busy."""


class Machine:
    """A database server, an API process and two workers, all by one clock, which is ours."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._folder = folder
        self._clock = clock(folder / "clock")
        patch.setattr(
            embedded, "ENVIRONMENT", {**_server_process.ENVIRONMENT, **self._clock.environment}
        )
        self.server = Embedded(folder / "database")
        self.database = self.server.ensure()
        self.blobs = (folder / "blobs").as_uri()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.parts: dict[str, subprocess.Popen[bytes]] = {}

    def step(self, by: int) -> None:
        self._clock.step(by)

    def start(self, name: str, *command: str) -> None:
        settings = {
            "DATA_DIR": str(self._folder / "data"),
            "DATABASE_URL": self.database,
            "BLOB_URL": self.blobs,
            "SECRET_KEY": "one for all 7f3a9c15e2d84b60a1b5",
            "EMBEDDER": "none",
            "TRANSCRIBER": "none",
            "CANARY_INTERVAL": "0",
            "LEASE_SECONDS": str(LEASE.total_seconds()),
            "WORKERS": "3",
            "CRAWL_DELAY": "0",
            "ALLOW_NETWORKS": "127.0.0.0/8",
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            self.parts[name] = subprocess.Popen(
                [sys.executable, "-m", "recollect", *command],
                env={
                    **os.environ,  # noqa: TID251 # the child needs PATH and the like
                    **{f"RECOLLECT_{key}": value for key, value in settings.items()},
                    **self._clock.environment,
                },
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        """With all that it holds."""
        part = self.parts.pop(name)
        part.send_signal(signal.SIGKILL)
        part.wait()

    def stop(self) -> None:
        for part in self.parts.values():
            part.terminate()
        for part in self.parts.values():
            part.wait(60)
        self.server.stop()


class Writer:
    """Adds a note, and now and then a file, until it is told to end; keeps what was acknowledged.

    A connection that breaks is tried again with the same customId; anything else is a refusal.
    """

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
        )
        self.over = threading.Event()
        self.acknowledged: dict[str, str] = {}
        self.refused: list[str] = []

    def post(self, path: str, **sent: Any) -> str:
        return self._http.post(path, **sent).raise_for_status().json()["id"]

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path)

    def run(self) -> None:
        number = 0
        while not self.over.wait(0.1):
            number += 1
            text, name = f"Note {number} is about the number {number}.", f"note-{number}"
            try:
                if number % 5:
                    sent: dict[str, Any] = {"json": {"content": text, "customId": name}}
                    answer = self._http.post("/v3/documents", **sent)
                else:
                    answer = self._http.post(
                        "/v3/documents/file",
                        files={"file": (f"{name}.txt", text.encode())},
                        data={"customId": name},
                    )
            except httpx.TransportError as error:
                self.refused.append(repr(error))
                continue
            if answer.status_code == 200:
                self.acknowledged[answer.json()["id"]] = text
            else:
                self.refused.append(answer.text)


@pytest.fixture
def machine(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Machine]:
    made = Machine(short_tmp / "stepped", monkeypatch)
    try:
        yield made
    finally:
        made.stop()


@needs_clock
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_a_machine_whose_clock_steps_loses_doubles_and_delays_no_document(machine: Machine):
    migrate(machine.database)
    with Database(machine.database, size=1) as db, db.begin() as tx:
        org = orgs.create(tx, "stepped", Plan.ENTERPRISE)
        until = datetime.now(UTC) + timedelta(hours=2)
        key, secret = orgs.create_key(tx, org.id, scope=Scope.ADMIN, expires_at=until)
        token = orgs.sign_in(tx, key.id)
    machine.start("api", "api", "--port", machine.url.rpartition(":")[2])
    machine.start("one", "work")
    machine.start("two", "work")
    writer = Writer(machine.url, secret)
    eventually(lambda: _up(machine.url), timeout=120)
    writing = threading.Thread(target=writer.run)
    writing.start()

    def held_page(count: int) -> str:
        """A document whose page a worker waits for."""
        id = writer.post("/v3/documents", json={"content": f"{site.url}/slow#{count}"})
        eventually(lambda: len(site.asked("/slow")) >= count)
        return id

    def many_more_done() -> None:
        wanted = _done(machine.database) + 20
        eventually(lambda: _done(machine.database) >= wanted, timeout=BOUND)

    with Site() as site:
        try:
            many_more_done()
            uploaded = eventually(lambda: _uploaded(machine.database))
            signed = writer.get(f"/v3/documents/{uploaded}/file-url").json()["url"]
            slow = held_page(1)

            machine.step(HOUR)
            assert _off(machine.database) == pytest.approx(HOUR, abs=60)
            # Held all the time, by a lease that was over at once, had nobody looked at the clock;
            # after ten seconds whoever fetches it would give up.
            asked = site.asked("/slow")[0]
            eventually(lambda: time.monotonic() - asked > LEASE.total_seconds() + 1)
            assert len(site.asked("/slow")) == 1
            site.answer.set()
            eventually(lambda: _status(machine.database, slow) == "done", timeout=BOUND)
            many_more_done()
            later = writer.get(f"/v3/documents/{uploaded}/file-url").json()["url"]
            for address in (signed, later):
                assert writer.get(_path(address)).status_code == 200

            # Set back while no worker runs, and what they held was leased by the wrong clock …
            site.answer.clear()
            broken = writer.post("/v3/documents", json={"content": f"{site.url}/broken"})
            held = [held_page(2)]
            eventually(lambda: site.asked("/broken"))
            for name in ("one", "two"):
                machine.kill(name)
            machine.step(0)
            assert abs(_off(machine.database)) < 60
            site.answer.set()
            for name in ("one", "two"):
                machine.start(name, "work")
            many_more_done()
            for id in (broken, *held):
                eventually(lambda id=id: _status(machine.database, id) == "done", timeout=BOUND)
            assert writer.get(_path(later)).status_code == 200

            # … and before the eyes of one that does.
            site.answer.clear()
            before = len(site.asked("/slow"))
            held = [held_page(before + 1), held_page(before + 2)]
            machine.kill("two")
            machine.step(-HOUR)
            site.answer.set()
            for id in held:
                eventually(lambda id=id: _status(machine.database, id) == "done", timeout=BOUND)
            many_more_done()
        finally:
            writer.over.set()
            writing.join()
            site.answer.set()
    eventually(lambda: not _waiting(machine.database), timeout=BOUND)

    assert writer.refused == []
    there = dict(rows(machine.database, "select id, text from documents where url is null"))
    assert there == writer.acknowledged, "lost, doubled, or not what was sent"
    # The next attempt of what died with its worker is the only one more.
    again = rows(machine.database, "select id, claims from documents where claims > 1")
    assert len(again) <= 3 * 3 + 1
    assert all(claims <= 3 for _, claims in again)
    assert rows(machine.database, "select 1 from documents where status = 'failed'") == []
    with Database(machine.database) as db:
        found = verify.verify(db, open_blobs(machine.blobs)).findings
    assert list(found) == []
    with Database(machine.database, size=1) as db, db.begin() as tx:
        assert orgs.signed_in(tx, token).id == key.id


def _up(url: str) -> bool:
    try:
        return (
            httpx.get(f"{url}/health", timeout=5, trust_env=False, verify=False).status_code == 200
        )
    except httpx.TransportError:
        return False


def _path(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


def _off(url: str) -> float:
    """Seconds by which the database's clock is ahead of ours."""
    [(there,)] = rows(url, "select extract(epoch from clock_timestamp())::float8")
    return there - time.time()


def _done(url: str) -> int:
    return rows(url, "select count(*) from documents where status = 'done'")[0][0]


def _waiting(url: str) -> list[Any]:
    return rows(url, "select id, status, due_at from documents where due_at is not null")


def _uploaded(url: str) -> str | None:
    found = rows(url, "select id from documents where blob is not null and status = 'done' limit 1")
    return found[0][0] if found else None


def _status(url: str, id: str) -> str:
    return dict(rows(url, "select id, status from documents"))[id]
