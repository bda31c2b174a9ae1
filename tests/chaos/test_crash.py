"""kill -9 at random points of the whole service, against a ledger of what it acknowledged.

`RECOLLECT_CHAOS_SEED` repeats a run (as far as threads and signals repeat), and
`RECOLLECT_CHAOS_KILLS` asks for more of them.
"""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, LiteralString

import httpx
import psutil
import psycopg
import pytest

from recollect.db.embedded import Embedded
from recollect.db.server_roles import SERVICE
from tests.chaos.ledger import COMMON, Client, Watcher, Written, in_threads
from tests.conftest import RECOLLECT, Service, eventually, start_service

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

KILLS = int(os.environ.get("RECOLLECT_CHAOS_KILLS", "26"))  # noqa: TID251 # the test's own switch
SEED = os.environ.get("RECOLLECT_CHAOS_SEED") or str(SystemRandom().randrange(10**9))  # noqa: TID251 # likewise
# A part that dies again within a minute is restarted later and later, so most kills hit PostgreSQL.
SHARES = {"worker": 4, "api": 4, "postmaster": 7, "backend": 11}
PATIENCE = 60.0
"""Seconds without any progress after which what is left counts as stuck."""


# --- the killer --------------------------------------------------------------------------------


@dataclass
class Killer:
    """Sends SIGKILL to parts of a running service, in an order that the seed decides."""

    service: Service
    chance: Random
    killed: Counter[str] = field(default_factory=Counter[str])
    _pause: threading.Event = field(default_factory=threading.Event)

    def kill(self, parts: Sequence[str], acknowledged: Callable[[], int]) -> None:
        """One after another, each when some more writes got through: not into ruins."""
        for part in parts:
            goal = acknowledged() + self.chance.randrange(1, 20)
            eventually(lambda goal=goal: acknowledged() >= goal)
            victim = eventually(lambda part=part: self._find(part))
            self._pause.wait(self.chance.uniform(0, 0.2))
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                self.killed[part] += 1

    def _find(self, part: str) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if part == "postmaster":
                return postmaster(self.service.data_dir)
            if part == "backend":
                server = postmaster(self.service.data_dir)
                backends = [p for p in (server.children() if server else []) if is_session(p)]
                return self.chance.choice(backends) if backends else None
            return next((p for p in children(self.service) if part_of(p) == part), None)
        return None


def parts(chance: Random, kills: int) -> list[str]:
    """Which part each kill hits: every kind in its share, shuffled."""
    names = [name for name, share in SHARES.items() for _ in range(share)]
    many = names * (kills // len(names)) + chance.sample(names, kills % len(names))
    chance.shuffle(many)
    return many


def postmaster(data_dir: Path) -> psutil.Process | None:
    try:
        pid = int(Embedded(data_dir).cluster.joinpath("postmaster.pid").read_text().split()[0])
        found = psutil.Process(pid)
    except (FileNotFoundError, IndexError, ValueError, psutil.NoSuchProcess):
        return None
    alive = found.name() == "postgres" and found.status() != psutil.STATUS_ZOMBIE
    return found if alive else None


def is_session(process: psutil.Process) -> bool:
    return f"{SERVICE} recollect" in " ".join(process.cmdline())


def part_of(process: psutil.Process) -> str | None:
    """`api` or `worker`; None for one that is not (or no longer) either."""
    with contextlib.suppress(psutil.NoSuchProcess):
        title = process.cmdline()[:1]
        return {"recollect: api": "api", "recollect: worker": "worker"}.get("".join(title))
    return None


def children(service: Service) -> list[psutil.Process]:
    return psutil.Process(service.process.pid).children()


def family(service: Service) -> list[psutil.Process]:
    """The supervisor and all below it, PostgreSQL included."""
    supervisor = psutil.Process(service.process.pid)
    found = {supervisor, *supervisor.children(recursive=True)}
    if server := postmaster(service.data_dir):
        found |= {server, *server.children(recursive=True)}
    return list(found)


def alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    def lives(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end between two looks
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    return [process for process in processes if lives(process)]


@contextlib.contextmanager
def serving(
    data_dir: Path, *, program: Sequence[str] = RECOLLECT, **settings: str
) -> Generator[Service]:
    """The service, without an embedder; what is left of it at the end is killed."""
    running = start_service(
        data_dir,
        program=program,
        embedder="none",
        workers="2",
        lease_seconds="3",
        max_attempts="50",
        **settings,
    )
    try:
        yield running
    finally:
        end(running)


def patient(service: Service) -> httpx.Client:
    """Given up, a request might still wait at the listening socket and be served after the next."""
    headers = {"Authorization": f"Bearer {service.key}"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=200, trust_env=False)


def end(service: Service) -> None:
    left = family(service) if service.process.poll() is None else []
    service.process.terminate()
    with contextlib.suppress(Exception):
        service.process.wait(30)
    if server := postmaster(service.data_dir):  # whose supervisor a test killed
        left.append(server)
    for process in alive(left):
        process.kill()


# --- what must hold at the end -----------------------------------------------------------------


def settle_down(http: httpx.Client) -> dict[str, int]:
    """Wait until nothing is queued or in work, for as long as there is progress."""
    pause = threading.Event()
    last: dict[str, int] = {}
    since = time.monotonic()
    while True:
        with contextlib.suppress(httpx.TransportError):
            answer = http.get("/v3/documents/counts")
            if answer.status_code == 200:
                found = answer.json()
                if found["queued"] == found["processing"] == 0:
                    return found
                if found != last:
                    last, since = found, time.monotonic()
        assert time.monotonic() - since < PATIENCE, f"stuck: {last}"
        pause.wait(0.1)


def all_listed(http: httpx.Client) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    page = 1
    while True:
        body = {"limit": 1000, "page": page, "includeContent": True, "order": "asc"}
        answer = http.post("/v3/documents/list", json=body).raise_for_status().json()
        listed += answer["memories"]
        if page >= answer["pagination"]["totalPages"]:
            return listed
        page += 1


def acknowledged_by(clients: Sequence[Client]) -> int:
    return sum(client.counts["acknowledged"] for client in clients)


def check_ledger(ledger: Sequence[Written], listed: Sequence[dict[str, Any]]) -> list[str]:
    """Every way in which the service's documents differ from what it acknowledged."""
    faults: list[str] = []
    by_id = {document["id"]: document for document in listed}
    of_custom_id = Counter(d["customId"] for d in listed if d["customId"])
    faults += [f"doubled: customId {name}" for name, n in of_custom_id.items() if n > 1]
    of_content = Counter(document["content"] for document in listed)
    faults += [f"doubled: {text[:40]!r}" for text, n in of_content.items() if n > 1]
    faults += [f"{d['status']}: {d['id']}" for d in listed if d["status"] != "done"]
    by_custom_id = {d["customId"]: d for d in listed if d["customId"]}
    by_content = {d["content"]: d for d in listed}
    expected: set[str] = set()
    for written in ledger:
        found = by_id.get(written.id or "") or by_custom_id.get(written.custom_id)
        if found is None and written.id is None:
            found = next((by_content[t] for t in written.right if t in by_content), None)
        if found is None:
            if written.id is not None and written.deleted is False:
                faults.append(f"lost: {written.id}")
            continue
        expected.add(found["id"])
        if written.deleted:
            faults.append(f"deleted, yet there: {found['id']}")
        elif found["content"] not in written.right:
            faults.append(f"stale or mixed: {found['id']} {found['content'][:80]!r}")
    faults += [f"nobody wrote {id}" for id in by_id if id not in expected]
    return faults


def check_search(http: httpx.Client, ledger: Sequence[Written]) -> list[str]:
    """The first line of each text finds its document, and nothing finds a deleted one."""
    faults: list[str] = []
    for written in ledger:
        if written.id is None or written.deleted is None or len(written.right) != 1:
            continue
        [text] = written.right
        answer = http.post("/v3/search", json={"q": text.split()[0], "limit": 5})
        found = [hit["documentId"] for hit in answer.raise_for_status().json()["results"]]
        if (written.id in found) is bool(written.deleted):
            faults.append(f"search for {written.id}, deleted={written.deleted}: {found}")
    return faults


def check_index(data_dir: Path) -> list[str]:
    """Below the API: rows that no answer would show."""
    queries: dict[str, LiteralString] = {
        "chunk is not part of the text": "select c.document_id from chunks c"
        " join documents d on d.id = c.document_id"
        " left join entries e on e.document_id = c.document_id and e.hash = c.hash"
        " where e.text is distinct from"
        "  substr(d.text, c.start_at + 1, c.end_at - c.start_at)",
        "entry without chunk": "select e.document_id from entries e where not exists"
        " (select 1 from chunks c where c.document_id = e.document_id and c.hash = e.hash)",
        "wrong count": "select number from term_counts full join"
        " (select org_id, number, count(*) as n from entries e"
        "  join documents d on d.id = e.document_id, unnest(e.terms) number"
        "  group by org_id, number) recount using (org_id, number)"
        " where term_counts.entries is distinct from recount.n",
        "indexed revision is not the newest": "select id from documents"
        " where status = 'done' and indexed_revision <> revision",
    }
    with psycopg.connect(Embedded(data_dir).url) as session:
        return [
            f"{name}: {row}" for name, query in queries.items() for row in session.execute(query)
        ]


def check_log(log: Path) -> list[str]:
    """A kill explains lost connections and ended processes, but never a bug."""
    return [
        line[:1500]
        for line in log.read_text(errors="replace").splitlines()
        if '"event": "bug"' in line or line.startswith("Traceback")
    ]


# --- the tests ---------------------------------------------------------------------------------


@pytest.mark.slow  # each change runs a short torture, which does the same and more
def test_kills_at_random_points_lose_and_double_nothing(short_tmp: Path) -> None:
    print(f"RECOLLECT_CHAOS_SEED={SEED}")  # noqa: T201 # pytest shows it when the test fails
    chance = Random(SEED)
    order = parts(chance, KILLS)
    half = len(order) // 2
    with serving(short_tmp / "crash") as service, patient(service) as http:
        killer = Killer(service, chance)
        heavy = [Client(http, f"{SEED} heavy {n}", pause=0) for n in range(5)]
        light = [Client(http, f"{SEED} light {n}", pause=0.1) for n in range(2)]
        watcher = Watcher(http, f"{SEED} watch")
        over = threading.Event()
        watching = in_threads([partial(watcher.run, over)])
        try:
            # A backlog hides races, an idle queue hides losses: one phase of each.
            for clients, some in ((heavy, order[:half]), (light, order[half:])):
                enough = threading.Event()
                writing = in_threads([partial(client.run, enough) for client in clients])
                try:
                    killer.kill(some, lambda clients=clients: acknowledged_by(clients))
                finally:
                    enough.set()
                    for thread in writing:
                        thread.join()
            counts = settle_down(http)
        finally:
            over.set()
            for thread in watching:
                thread.join()
        clients = heavy + light
        ledger = [written for client in clients for written in client.documents]
        listed = all_listed(http)
        acknowledged = acknowledged_by(clients)
        print(  # noqa: T201 # the figures, for whoever asks with -s
            f"kills {dict(killer.killed)}, acknowledged {acknowledged},"
            f" documents {counts}, searches {watcher.answers}, chunks seen {watcher.chunks}"
        )

        assert [
            *(fault for client in clients for fault in client.faults),
            *watcher.faults,
            *check_ledger(ledger, listed),
            *check_search(http, chance.sample(ledger, min(len(ledger), 50))),
            *check_index(service.data_dir),
            *check_log(service.log),
        ] == []
        assert killer.killed.total() == KILLS
        assert acknowledged > 5 * KILLS
        assert watcher.chunks > 100


@pytest.mark.slow
def test_children_end_with_their_supervisor_and_the_next_one_goes_on(short_tmp: Path) -> None:
    folder = short_tmp / "orphans"
    with serving(folder) as service, service.client() as http:
        relatives = family(service)
        ids = [
            http.post("/v3/documents", json={"content": f"note{n} {COMMON}"}).json()["id"]
            for n in range(60)
        ]
        service.process.kill()
        service.process.wait()
        eventually(lambda: not [p for p in alive(relatives) if part_of(p)])

    with serving(folder, api_key=service.key) as again, again.client() as http:
        counts = settle_down(http)
        found = {document["id"]: document["content"] for document in all_listed(http)}
        everyone = [*family(again), *alive(relatives)]
        again.process.send_signal(signal.SIGINT)
        code = again.process.wait(60)

        assert counts == {"queued": 0, "processing": 0, "done": 60, "failed": 0}
        assert found == {id: f"note{n} {COMMON}" for n, id in enumerate(ids)}
        assert code == 0
        assert eventually(lambda: not alive(everyone))
        assert check_log(again.log) == []


@pytest.mark.costly
def test_ctrl_c_stops_everything_cleanly(short_tmp: Path) -> None:
    with serving(short_tmp / "stopped") as service, service.client() as http:
        for n in range(20):
            http.post("/v3/documents", json={"content": f"note{n}"}).raise_for_status()
        everyone = family(service)
        service.process.send_signal(signal.SIGINT)
        code = service.process.wait(60)

        assert code == 0
        # A child of a child may be dying still.
        assert eventually(lambda: not alive(everyone))
        assert len(everyone) > 4
        assert not Embedded(service.data_dir).cluster.joinpath("postmaster.pid").exists()
        assert check_log(service.log) == []
