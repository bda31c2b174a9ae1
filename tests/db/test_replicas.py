"""Reads from two real streaming replicas: what was written is there, what was deleted is not, and
a replica that lags, dies or falls silent costs no answer (docs/decisions/0040)."""

import json
import socket
import threading
import uuid
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from recollect.app import App, connection_strings, index_identity
from recollect.cli import app as cli
from recollect.db import Database, ReplicaState, Tx, replicas, sessions
from recollect.db.embedded import Embedded
from recollect.db.replicas import NO_REPLICA, TAKES_WRITES, Replicated
from recollect.db.schema import migrate
from recollect.errors import DATABASE_AWAY
from recollect.index import vector_index
from recollect.model import Org, OrgId, Plan, Scope, random_id
from recollect.orgs import orgs
from recollect.worker.processing import drain
from tests.conftest import capture_logs, eventually, free_port, plain_client, serving
from tests.fakes.streaming import Standby, standing_by

WRITERS, ROUNDS = 4, 12


@dataclass(frozen=True)
class Cluster:
    """A primary, two replicas, and two API processes' worth of service on them."""

    primary: Embedded
    replicas: tuple[Standby, Standby]
    apps: tuple[App, App]
    urls: tuple[str, str]

    def standings(self, app: int = 0) -> Sequence[ReplicaState]:
        return self.apps[app].db.replicas()

    def served(self) -> int:
        return sum(one.served for app in self.apps for one in app.db.replicas())

    def all_serve(self) -> bool:
        return all(one.state == "serves" for app in self.apps for one in app.db.replicas())

    def new_org(self) -> Org:
        with self.apps[0].db.begin() as tx:
            return orgs.create(tx, f"org-{uuid.uuid4().hex[:12]}", Plan.ENTERPRISE)

    def new_key(self, org: OrgId, *, tags: list[str] | None = None) -> str:
        with self.apps[0].db.begin() as tx:
            return orgs.create_key(tx, org, scope=Scope.WRITE if tags else Scope.ADMIN, tags=tags)[
                1
            ]


def replicated(primary: Embedded, standbys: Sequence[Standby]) -> Replicated:
    urls = [one.url("recollect") for one in standbys]
    return Replicated(primary.url, urls, size=12, name="test")


@pytest.fixture(scope="module")
def cluster(app: App, short_tmp: Path) -> Generator[Cluster]:
    # Made again where other modules' tests ran in between.
    folder = short_tmp / f"streaming-{random_id()[:6]}"
    with ExitStack() as stack:
        primary = Embedded(folder, port=free_port())
        migrate(primary.ensure())
        stack.callback(primary.stop)
        first, second = (
            stack.enter_context(
                standing_by(
                    Standby(
                        primary,
                        folder.with_name(f"{folder.name}-{number}"),
                        free_port(),
                        ("max_standby_streaming_delay=0",),
                    )
                )
            )
            for number in range(2)
        )
        dbs = [stack.enter_context(replicated(primary, (first, second))) for _ in range(2)]
        with dbs[0].begin() as tx:
            vector_index.adopt(tx, *index_identity(app.embedder))
        one, other = (replace(app, db=db) for db in dbs)
        urls = stack.enter_context(serving(one)), stack.enter_context(serving(other))
        yield Cluster(primary, (first, second), (one, other), urls)


@pytest.fixture
def shared(cluster: Cluster) -> Generator[Cluster]:
    """With both replicas serving, before and after."""
    eventually(cluster.all_serve)
    yield cluster
    for standby in cluster.replicas:
        standby.thaw()
        if not standby.answers():
            standby.start()
        standby.resume()


@pytest.fixture
def patient(shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Where it matters that a replica answers, on a machine that stalls, too."""
    monkeypatch.setattr(replicas, "CATCH_UP", timedelta(seconds=20))
    eventually(shared.all_serve)
    return shared


@pytest.fixture
def key(shared: Cluster) -> str:
    return shared.new_key(shared.new_org().id)


def client(url: str, key: str) -> httpx.Client:
    return plain_client(url, {"Authorization": f"Bearer {key}"})


def found(http: httpx.Client, word: str) -> list[str]:
    answer = http.post("/v3/search", json={"q": word, "limit": 100})
    assert answer.status_code == 200, answer.text
    return [one["documentId"] for one in answer.json()["results"]]


def listed(http: httpx.Client) -> list[str]:
    answer = http.post("/v3/documents/list", json={"limit": 100})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["memories"]]


def test_what_was_written_is_read_by_any_process(shared: Cluster, key: str):
    """One replica replays nothing meanwhile."""
    shared.replicas[0].pause()
    before = shared.served()

    def write_and_read(writer: int) -> None:
        with client(shared.urls[0], key) as here, client(shared.urls[1], key) as there:
            for number in range(ROUNDS):
                added = here.post("/v3/documents", json={"content": f"{writer} {number}"})
                id = added.json()["id"]
                got = there.get(f"/v3/documents/{id}")
                assert got.status_code == 200, got.text
                assert id in listed(there)
                here.patch(f"/v3/documents/{id}", json={"metadata": {"round": number}})
                assert there.get(f"/v3/documents/{id}").json()["metadata"] == {"round": number}

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write_and_read, range(WRITERS)))

    assert shared.served() > before, "no replica answered"
    lags, _ = shared.standings()
    assert lags.state == "lags"
    assert lags.reason.endswith(f"bytes of the log are not replayed, {replicas.PAUSED}")
    shared.replicas[0].resume()
    eventually(shared.all_serve)


def test_a_lag_is_told_once_and_only_if_it_lasts(shared: Cluster, monkeypatch: pytest.MonkeyPatch):
    """Under load each replica lags for moments, many times a minute."""
    for rest in ("LEAST_REST", "MOST_REST"):
        monkeypatch.setattr(replicas, rest, timedelta(milliseconds=1))
    standby = shared.replicas[0]
    with replicated(shared.primary, [standby]) as db, capture_logs() as lines:

        def told() -> list[str]:
            return [one.get("state", one["event"]) for one in lines if "replica" in one]

        eventually(lambda: db.replicas()[0].state == "serves")
        lines.clear()
        standby.pause()
        shared.new_org()
        assert db.replicas()[0].state == "lags"
        assert told() == []
        eventually(lambda: db.replicas() and told())
        standby.resume()
        eventually(lambda: db.replicas()[0].state == "serves")

    assert told() == ["lags", "replica serves"]


@pytest.mark.parametrize("paused", [0, 1])
def test_what_was_deleted_is_in_no_answer(shared: Cluster, key: str, paused: int):
    with client(shared.urls[0], key) as here, client(shared.urls[1], key) as there:
        ids = [
            here.post("/v3/documents", json={"content": f"a walrus of number {n}"}).json()["id"]
            for n in range(8)
        ]
        drain(shared.apps[0])
        assert sorted(found(there, "walrus")) == sorted(ids)
        shared.replicas[paused].pause()
        for id in ids:
            assert here.delete(f"/v3/documents/{id}").status_code == 204
            assert there.get(f"/v3/documents/{id}").status_code == 404
            assert there.get(f"/v3/documents/{id}/chunks").status_code == 404
            assert id not in listed(there)
            assert id not in found(there, "walrus")


def test_a_replica_that_is_killed_costs_no_answer_and_serves_again(shared: Cluster, key: str):
    killed = shared.replicas[0]
    with client(shared.urls[0], key) as http:
        id = http.post("/v3/documents", json={"content": "a heron"}).json()["id"]
    drain(shared.apps[0])
    over, answers = threading.Event(), list[int]()

    def read(url: str) -> None:
        with client(url, key) as http:
            while not over.is_set():
                assert found(http, "heron") == [id]
                assert http.get(f"/v3/documents/{id}").status_code == 200
                answers.append(1)

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, url) for url in (*shared.urls, *shared.urls)]
        try:
            for _ in range(2):
                seen = len(answers)
                eventually(lambda: len(answers) > seen + 8)  # noqa: B023 # at once
                killed.kill()
                seen = len(answers)
                eventually(lambda: len(answers) > seen + 8)  # noqa: B023
                eventually(lambda: shared.standings()[0].state == "away")
                killed.start()
                eventually(shared.all_serve)
                before = shared.standings()[0].served
                eventually(lambda: shared.standings()[0].served > before)  # noqa: B023
        finally:
            over.set()
        for one in reading:
            one.result()
    committed = "select xact_commit from pg_stat_database where datname = 'recollect'"
    assert killed.ask(committed) > 0


def test_a_replica_that_falls_silent_costs_no_answer(
    shared: Cluster, key: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replicas, "SILENCE", replicas.SILENCE / 20)
    with client(shared.urls[0], key) as http:
        id = http.post("/v3/documents", json={"content": "an otter"}).json()["id"]
        shared.replicas[1].freeze()
        for _ in range(10):
            assert http.get(f"/v3/documents/{id}").status_code == 200
        assert shared.standings()[1].state == "away"


def test_a_read_under_way_leaves_a_replica_that_stands_still(
    patient: Cluster, monkeypatch: pytest.MonkeyPatch
):
    """Long before the statement is given up; and no other of its connections is tried first."""
    monkeypatch.setattr(replicas, "SILENCE", timedelta(hours=1))
    knocks = list[str]()

    def answers(server: psycopg.ConnectionInfo) -> bool:
        knocks.append(server.hostaddr)
        return reachable(server)

    reachable = replicas._answers
    monkeypatch.setattr(replicas, "_answers", answers)
    frozen = patient.replicas[0]
    with Replicated(patient.primary.url, [frozen.url("recollect")], size=4, name="test") as db:
        eventually(lambda: db.read(_in_recovery))
        many = threading.Barrier(4)

        def together(tx: Tx) -> bool:
            many.wait(60)
            return _in_recovery(tx)

        with ThreadPoolExecutor(4) as pool:  # until its own pool keeps four connections
            eventually(lambda: all(list(pool.map(lambda _: db.read(together), range(4)))))
        tries = list[bool]()

        def freeze(tx: Tx) -> bool:
            tries.append(_in_recovery(tx))
            if tries == [True]:
                frozen.freeze()
            return _in_recovery(tx)

        assert not db.read(freeze)
        assert tries == [True, False]
        assert [one.state for one in db.replicas()] == ["away"]
        knocks.clear()
        eventually(lambda: not db._replicas[0].is_left_alone())
        assert not db.read(_in_recovery)
        assert len(knocks) == 1
        frozen.thaw()  # or what still knocks there is waited for at the end


def test_a_replica_of_what_was_promoted_is_left_alone(
    patient: Cluster, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
):
    """It has every word that was written before, and its log is further."""
    monkeypatch.setattr(replicas, "WORD_LASTS", timedelta(seconds=1))
    primary = patient.primary
    promoted = Standby(primary, short_tmp / "standby-astray", free_port())
    astray = Standby(primary, short_tmp / "standby-of-astray", free_port())
    with (
        standing_by(promoted),
        standing_by(astray),
        Replicated(primary.url, [astray.url("recollect")], size=2, name="test") as db,
    ):
        eventually(lambda: db.read(_in_recovery))
        # Before: it must not have more of the primary's log than the one that it follows.
        astray.follow(promoted)
        eventually(lambda: promoted.ask("select count(*) from pg_stat_replication"))
        promoted.ask("select pg_promote()")
        promoted.ask("create table of_its_own as select generate_series(1, 100000) as n")
        eventually(lambda: astray.ask("select to_regclass('of_its_own') is not null"))
        eventually(lambda: db.replicas()[0].reason == NO_REPLICA)
        with db.begin() as tx:
            tx.execute("create table of_ours ()")
        assert db.read(lambda tx: tx.execute("select from of_ours").fetchall()) == []


def test_what_replaying_cancels_is_done_by_the_primary(patient: Cluster):
    """A read whose rows the replica has to remove, here with their table."""
    db = patient.apps[0].db
    with db.begin() as tx:
        tx.execute("create table scratch as select 1 as n")
    tries: list[bool] = []

    def count(tx: Tx) -> int:
        row = tx.execute(
            "select count(*) as n, pg_is_in_recovery() as there from scratch"
        ).fetchone()
        assert row is not None
        tries.append(row["there"])
        if row["there"]:
            with psycopg.connect(patient.primary.url, autocommit=True) as session:
                session.execute("truncate scratch")
            eventually(lambda: _is_over(tx))
        return row["n"]

    assert db.read(count) == 0
    assert tries == [True, False]


def _is_over(tx: Tx) -> bool:
    tx.execute("select 1")
    return False


def test_a_read_may_not_write(shared: Cluster):
    """Neither where a replica answers nor where the primary does."""
    for db in (shared.apps[0].db, Database(shared.primary.url, size=1).open()):
        with pytest.raises(Exception, match="read-only transaction"):
            db.read(lambda tx: tx.execute("delete from documents"))
    eventually(shared.all_serve)


def test_no_key_sees_more_through_a_replica(patient: Cluster):
    org = patient.new_org()
    whole, limited = patient.new_key(org.id), patient.new_key(org.id, tags=["mine"])
    foreign = patient.new_key(patient.new_org().id)
    with client(patient.urls[0], whole) as http:
        mine, other = (
            http.post("/v3/documents", json={"content": "a puffin", "containerTag": tag}).json()[
                "id"
            ]
            for tag in ("mine", "other")
        )
    drain(patient.apps[0])
    before = patient.served()
    for key, seen in ((whole, {mine, other}), (limited, {mine}), (foreign, set[str]())):
        with client(patient.urls[1], key) as http:
            assert set(found(http, "puffin")) == set(listed(http)) == seen
            for id in (mine, other):
                for path in (f"/v3/documents/{id}", f"/v3/documents/{id}/chunks"):
                    assert http.get(path).status_code == (200 if id in seen else 404)
    assert patient.served() >= before + 18


def test_settings_changed_at_the_primary_hold_at_once(shared: Cluster, key: str):
    with client(shared.urls[0], key) as here, client(shared.urls[1], key) as there:
        for number in range(5):
            bucket = {"key": f"b{number}", "description": "of this test"}
            changed = here.patch("/v3/settings", json={"profileBuckets": [bucket]})
            assert changed.status_code == 200, changed.text
            shown = there.post("/v4/profile/buckets", json={}).json()["buckets"]
            assert [one["key"] for one in shown] == [bucket["key"]]


def test_the_index_bound_to_another_model_is_read_so_at_once(patient: Cluster):
    here, there = (app.db for app in patient.apps)
    with here.begin() as tx:
        before = tx.execute("select * from index_settings").fetchone()
        tx.execute("update index_settings set embedder = 'another'")
    try:
        seen = there.read(lambda tx: (vector_index.read(tx), _in_recovery(tx)))
        assert seen[0] is not None
        assert (seen[0].used.name, seen[1]) == ("another", True)
    finally:
        with here.begin() as tx:
            assert before is not None
            tx.execute("update index_settings set embedder = %s", (before["embedder"],))


def _in_recovery(tx: Tx) -> bool:
    row = tx.execute("select pg_is_in_recovery() as there").fetchone()
    assert row is not None
    return row["there"]


def test_another_database_and_a_replica_that_was_promoted_are_left_alone(
    shared: Cluster, short_tmp: Path
):
    """However far their log is."""
    primary = shared.primary
    migrate(primary.prepare("another"))
    third = Standby(primary, short_tmp / "standby-promoted", free_port())
    with standing_by(third):
        urls = [shared.replicas[0].url("another"), third.url("recollect")]
        with Replicated(primary.url, urls, size=2, name="test") as db:
            eventually(lambda: [one.state for one in db.replicas()] == ["away", "serves"])
            third.ask("select pg_promote()")
            third.ask("create table of_its_own ()")

            def reasons() -> set[str | None]:
                assert not db.read(_in_recovery)
                return {one.reason for one in db.replicas()}

            # Not at once where it lagged before: it rests.
            eventually(lambda: reasons() == {NO_REPLICA, TAKES_WRITES})


def test_what_is_no_replica_is_told_what_is_wrong_with_it(shared: Cluster):
    """The primary should have been built again, and of a database without vectors, or of another
    program, it was said that it does not answer, or lacks a table."""
    primary = shared.primary
    another = make_conninfo(primary.superuser_url, dbname=f"shop_{random_id()[:6].lower()}")
    name = str(conninfo_to_dict(another)["dbname"])
    with psycopg.connect(primary.superuser_url, autocommit=True) as session:
        session.execute(sql.SQL("create database {}").format(sql.Identifier(name)))

    def reasons() -> list[str]:
        with Replicated(primary.url, [primary.url, another], size=1, name="test") as db:
            assert not db.read(_in_recovery)
            return [one.reason for one in db.replicas()]

    no_vectors = f"{DATABASE_AWAY}: vector type not found in the database"
    eventually(lambda: reasons() == [TAKES_WRITES, no_vectors])
    with psycopg.connect(another, autocommit=True) as session:
        session.execute("create extension vector")
    eventually(lambda: reasons() == [TAKES_WRITES, NO_REPLICA])


def test_a_replica_that_is_away_at_the_start_is_no_fault(shared: Cluster):
    nowhere = f"postgresql://somebody:secret@127.0.0.1:{free_port()}/recollect"
    with closing(Replicated(shared.primary.url, [nowhere], size=2, name="test")) as db:
        assert not db.open().read(_in_recovery)
        [told] = db.replicas()
    assert told.state == "away"
    assert "secret" not in repr(told)


def test_nobody_waits_for_a_replica_that_takes_up_connections_and_is_silent(shared: Cluster):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://somebody:secret@127.0.0.1:{silent.getsockname()[1]}/recollect"
        before = set(threading.enumerate())
        db = Replicated(shared.primary.url, [url], size=2, name="test").open()
        assert not db.read(_in_recovery)
        [refusal] = db.refusals()
        db.close()

        assert refusal is not None
        assert "timeout" in refusal
        assert set(threading.enumerate()) - before  # what still connects was not waited for


def test_a_silent_replica_holds_up_a_start_no_longer_than_a_look(
    shared: Cluster, monkeypatch: pytest.MonkeyPatch
):
    """However long others wait for a connection."""
    monkeypatch.setattr(sessions, "CONNECT_TIMEOUT", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://somebody:secret@127.0.0.1:{silent.getsockname()[1]}/recollect"
        db = Replicated(shared.primary.url, [url], size=2, name="test")
        start = threading.Thread(target=db.open, daemon=True)
        start.start()
        start.join(60)

        assert not start.is_alive()
        db.close()


def test_the_state_of_replicas_is_told_without_secrets(
    patient: Cluster, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
):
    """`/ready` stays 200, and names no host; `/metrics` and doctor do."""
    away, serving_one = patient.replicas
    with patient.apps[0].db.begin() as tx:
        admin = orgs.ensure_default(tx, plan=Plan.ENTERPRISE, secret=None)
    assert admin is not None
    away.kill()
    with client(patient.urls[0], admin) as http:
        eventually(lambda: patient.standings()[0].state == "away")
        ready = http.get("/ready")
        shown = http.get("/metrics").text
    assert ready.status_code == 200
    assert ready.json()["warning"].endswith("of 2 replicas, 1 away")
    assert f'recollect_replica_serves{{replica="127.0.0.1:{away.port}"}} 0.0' in shown
    assert f'recollect_replica_serves{{replica="127.0.0.1:{serving_one.port}"}} 1.0' in shown
    assert f'{{outcome="served",replica="127.0.0.1:{serving_one.port}"}}' in shown
    monkeypatch.setenv("RECOLLECT_DATABASE_URL", patient.primary.url)
    urls = [one.url("recollect") for one in patient.replicas]
    monkeypatch.setenv("RECOLLECT_READ_URLS", ",".join(urls))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    monkeypatch.setenv("RECOLLECT_DATA_DIR", str(short_tmp / "doctor"))
    told = CliRunner().invoke(cli, ["doctor", "--json"]).output
    told_of = {one["name"]: one for one in json.loads(told)["checks"]}
    assert told_of[f"replica 127.0.0.1:{away.port}"]["state"] == "warn"
    assert "Connection refused" in told_of[f"replica 127.0.0.1:{away.port}"]["details"]
    assert told_of[f"replica 127.0.0.1:{serving_one.port}"]["state"] == "ok"
    for text in (told, shown, ready.text):
        assert (patient.primary.folder / "service-password").read_text().strip() not in text


@pytest.mark.parametrize(
    ("listed", "strings"),
    [
        (" postgresql://a/db,\n postgres://b:1/db, ", ["postgresql://a/db", "postgres://b:1/db"]),
        # One that names two hosts, and a password.
        (
            "postgres://u:p,q=1@a,b:2/db,postgres://c",
            ["postgres://u:p,q=1@a,b:2/db", "postgres://c"],
        ),
        ("host=a,b dbname=c, dbname=c host=d", ["host=a,b dbname=c", "dbname=c host=d"]),
        ("postgres://u:p,", ["postgres://u:p"]),
        (" , ", []),
    ],
)
def test_not_each_comma_separates_replicas(listed: str, strings: list[str]):
    assert connection_strings(listed) == strings


def test_a_replica_whose_sessions_are_all_taken_is_not_away(patient: Cluster):
    """What finds none there goes to the primary."""
    begun, over = threading.Barrier(4), threading.Event()

    def read(tx: Tx) -> bool:
        begun.wait(60)
        over.wait(60)
        return _in_recovery(tx)

    url = patient.replicas[0].url("recollect")
    with Replicated(patient.primary.url, [url], size=3, name="test") as db:
        eventually(lambda: db.replicas()[0].state == "serves")
        with ThreadPoolExecutor(3) as pool:
            reading = [pool.submit(db.read, read) for _ in range(3)]
            try:
                begun.wait(60)
                assert not db.read(_in_recovery)
            finally:
                over.set()
            assert all(one.result() for one in reading)
        [told] = db.replicas()
    assert (told.state, told.passed) == ("serves", 0)
