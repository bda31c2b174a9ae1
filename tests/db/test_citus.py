"""The index on the workers of a real cluster of Citus: nothing acknowledged is lost when servers
are killed, nothing is half done, and what looks at everything sees one moment (decision 0042).

Skipped where the extension is not at hand (`tests/fakes/citus.py`).
"""

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import LiteralString, cast

import httpx
import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr
from typer.testing import CliRunner

from recollect import documents
from recollect.app import App, index_identity, open_database
from recollect.cli import app as cli
from recollect.db import Database
from recollect.db.citus import DISTRIBUTED
from recollect.db.faults import judged
from recollect.db.schema import migrate
from recollect.documents import NewDocument, _changing
from recollect.errors import Contended, SetupError, Unavailable
from recollect.index import missing_vectors, vector_index
from recollect.memories import telling
from recollect.memories.records import Correction, Fact, MemoryTarget
from recollect.model import DocumentId, Org, Plan, Scope, Tenant, random_id
from recollect.ops import backup, verify
from recollect.ops.purge import purge
from recollect.orgs import orgs
from recollect.search import hybrid
from recollect.torture.judge import BELOW
from recollect.worker.processing import Worker, drain
from tests.conftest import eventually, free_port, plain_client, serving
from tests.db.test_refused_by_citus import REFUSED, TAKEN
from tests.fakes import citus
from tests.fakes.citus import SHARDS, Cluster, Node

pytestmark = [pytest.mark.costly, pytest.mark.timeout(300)]
WORDS = ("heron", "walrus", "lantern", "orchard")


@dataclass(frozen=True)
class Place:
    """A service on a database of its own in the cluster."""

    cluster: Cluster
    name: str
    app: App
    org: Org
    key: str

    @property
    def url(self) -> str:
        return self.app.db.url

    @property
    def tenant(self) -> Tenant:
        return Tenant(self.org.id)

    def shards(self) -> dict[int, int]:
        """How many shards of the entries each port has."""
        rows = self.cluster.coordinator.ask(
            self.name,
            "select nodeport, count(*) from citus_shards where table_name = 'entries'::regclass"
            " group by nodeport",
        )
        return dict(rows)


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Generator[Cluster]:
    with citus.running(short_tmp / "spread", free_port) as cluster:
        yield cluster


@pytest.fixture
def new_place(cluster: Cluster, app: App) -> Generator[Callable[[str], Place]]:
    with ExitStack() as stack:

        def make(url: str) -> Place:
            db = stack.enter_context(Database(url, size=12, name="test"))
            with db.begin() as tx:
                vector_index.adopt(tx, *index_identity(app.embedder))
                org = orgs.create(tx, f"org-{uuid.uuid4().hex[:12]}", Plan.ENTERPRISE)
                key = orgs.create_key(tx, org.id, scope=Scope.ADMIN)[1]
            return Place(cluster, url.rpartition("/")[2], replace(app, db=db), org, key)

        yield make


@pytest.fixture
def place(cluster: Cluster, new_place: Callable[[str], Place]) -> Place:
    """Ready to serve, its index on two workers."""
    return new_place(cluster.new_database())


def add(place: Place, text: str, tag: str = "all") -> DocumentId:
    new = NewDocument(documents.text_content(text), [tag])
    with place.app.db.begin() as tx:
        return documents.add(tx, place.tenant, new, DocumentId(random_id())).id


def found(place: Place, word: str, limit: int = 100) -> set[str]:
    assert place.app.embedder is not None
    query = hybrid.Query(word, place.app.embedder.embed([word])[0], limit=limit)
    with place.app.db.begin() as tx:
        return {hit.document.id for hit in hybrid.search(tx, place.tenant, query)}


def damage(place: Place) -> list[str]:
    """What rows and counts say that no answer shows."""
    with place.app.db.begin() as tx:
        faults = [
            f"{name}: {row['what']}" for name, (_, sql) in BELOW.items() for row in tx.execute(sql)
        ]
        strays = tx.execute(
            "with held as materialized (select id from facets) select id from held"
            " where id not in (select id from documents)"
        ).fetchall()
    told = verify.verify(place.app.db, place.app.blobs).findings
    return [*faults, *(f"facets of {row['id']}" for row in strays), *(one.kind for one in told)]


def test_the_index_lies_on_the_workers_and_all_else_on_the_coordinator(place: Place):
    ids = {add(place, f"A {word} by the shore.") for word in WORDS}
    drain(place.app)

    assert found(place, "shore") == ids
    assert sum(place.shards().values()) == SHARDS
    assert set(place.shards()) == {node.port for node in place.cluster.workers}
    spread = place.cluster.coordinator.ask(
        place.name, "select logicalrelid::text from pg_dist_partition order by 1"
    )
    assert {name for (name,) in spread} == set(DISTRIBUTED)
    here = place.cluster.coordinator.ask(place.name, "select count(*) from only entries")
    assert here == [(len(ids),)], "the coordinator answers for all of them"
    assert damage(place) == []


def test_a_database_that_gets_workers_later_is_spread_at_the_next_start(
    cluster: Cluster, new_place: Callable[[str], Place]
):
    """What is there moves; until then the coordinator serves like any PostgreSQL."""
    url = cluster.create(f"test_{uuid.uuid4().hex[:12]}", workers=False)
    migrate(url, index_shards=SHARDS)
    place = new_place(url)
    before = {word: add(place, f"A {word} by the shore.") for word in WORDS}
    drain(place.app)
    with place.app.db.begin() as tx:
        assert tx.execute("select to_regclass('pg_dist_shard')").fetchone() is not None
    assert place.shards() == {}

    cluster.add_workers(place.name)
    migrate(url, index_shards=SHARDS)

    assert sum(place.shards().values()) == SHARDS
    for word, id in before.items():
        assert id in found(place, word)
    changed = add(place, "A lantern in the attic.")
    drain(place.app)
    assert changed in found(place, "attic")
    assert damage(place) == []
    migrate(url, index_shards=SHARDS)  # a second time it has nothing to do
    assert sum(place.shards().values()) == SHARDS


PURE: LiteralString = (
    "select proname::text from pg_proc where provolatile = 'i' and"
    " pronamespace = 'public'::regnamespace and not exists (select from pg_depend"
    "  where objid = pg_proc.oid and deptype = 'e') order by 1"
)
"""Functions of ours that ask for nothing but what they are given."""


def test_workers_know_the_functions_that_statements_have_them_call(place: Place):
    ours = place.cluster.coordinator.ask(place.name, PURE)

    assert ("fold_case",) in ours
    assert [node.ask(place.name, PURE) for node in place.cluster.workers] == [ours, ours]


def test_an_index_that_was_spread_without_a_function_gets_it_at_the_next_start(place: Place):
    with psycopg.connect(place.url, autocommit=True) as session:
        row = session.execute("select pg_get_functiondef('fold_case'::regproc)").fetchone()
        assert row is not None
        session.execute("drop function fold_case(text)")
        session.execute("set citus.enable_ddl_propagation = off")
        session.execute(row[0])
    worker = place.cluster.workers[0]
    assert ("fold_case",) not in worker.ask(place.name, PURE)

    migrate(place.url, index_shards=SHARDS)

    assert ("fold_case",) in worker.ask(place.name, PURE)


def test_an_index_that_is_spread_takes_the_migrations_of_a_newer_version(place: Place):
    """Those since it could be spread that write functions; what `spread.sql` made stays."""
    with psycopg.connect(place.app.db.url) as session:
        made = "select prosrc from pg_proc where proname = 'known_entries'"
        before = session.execute(made).fetchall()
        session.execute("drop function public_as_of.within()")
        session.execute("delete from migrations where name = '0065_past_of_a_scope'")

    assert migrate(place.app.db.url, index_shards=SHARDS) == ["0065_past_of_a_scope"]

    with psycopg.connect(place.app.db.url) as session:
        assert session.execute(made).fetchall() == before
    id = add(place, "A heron by the shore.")
    drain(place.app)
    with place.app.db.begin() as tx:
        row = tx.execute("select clock_timestamp() as t").fetchone()
        assert row is not None
        query = hybrid.Query("heron", None, tags=["all"], as_of=row["t"])
        assert {hit.document.id for hit in hybrid.search(tx, place.tenant, query)} == {id}


@dataclass
class Load:
    """Clients that add, delete and search while servers are killed; every answer counts."""

    url: str
    key: str
    there: dict[str, str] = field(default_factory=dict[str, str])
    """acknowledged documents and their word"""
    deleted: set[str] = field(default_factory=set[str])
    doubtful: set[str] = field(default_factory=set[str])
    """whose deletion was not acknowledged"""
    answers: Counter[str] = field(default_factory=Counter[str])
    strange: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def client(self) -> httpx.Client:
        return plain_client(self.url, {"Authorization": f"Bearer {self.key}"})

    def grows(self, *names: str, by: int = 5) -> None:
        """Wait until so many more answers of each kind have come."""
        before = dict(self.answers)
        eventually(lambda: all(self.answers[one] >= before.get(one, 0) + by for one in names))

    def note(self, what: str, answer: httpx.Response) -> bool:
        name = f"{what} {answer.status_code}"
        with self.lock:
            self.answers[name] += 1
            if answer.status_code not in (200, 204, 404, 503):
                self.strange.append(f"{name}: {answer.text[:300]}")
        return answer.status_code < 300

    def add(self, number: int) -> None:
        with self.client() as http:
            for n in count():
                if self.over.is_set():
                    return
                word = WORDS[n % len(WORDS)]
                text = f"Note {number}.{n}: a {word}. " + " ".join(f"w{n}x{i}" for i in range(40))
                answer = http.post("/v3/documents", json={"content": text})
                if self.note("add", answer):
                    with self.lock:
                        self.there[answer.json()["id"]] = word

    def delete(self) -> None:
        with self.client() as http:
            while not self.over.wait(0.02):
                with self.lock:
                    id = next((one for one in self.there if one not in self.doubtful), None)
                if id is None:
                    continue
                done = self.note("delete", http.delete(f"/v3/documents/{id}"))
                with self.lock:
                    if done:
                        del self.there[id]
                    (self.deleted if done else self.doubtful).add(id)

    def search(self) -> None:
        with self.client() as http:
            while not self.over.is_set():
                self.note("search", http.post("/v3/search", json={"q": WORDS[0], "limit": 5}))


@contextmanager
def under_load(place: Place) -> Generator[Load]:
    worker = Worker(place.app)
    with serving(place.app) as url:
        load = Load(url, place.key)
        work = [worker.run, partial(load.add, 0), partial(load.add, 1), load.delete, load.search]
        threads = [threading.Thread(target=one) for one in work]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            load.over.set()
            worker.stop()
            for thread in threads:
                thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def settle(place: Place, load: Load) -> None:
    """All is well again: nothing acknowledged is lost, nothing deleted is found, nothing is half
    there."""
    eventually(lambda: _drained(place), timeout=120)
    assert load.strange == []
    with place.app.db.begin() as tx:
        rows = tx.execute(
            "select id, status, attempts, due_at, error_code, error_message from documents"
        ).fetchall()
    statuses = {row["id"]: row["status"] for row in rows}
    assert {id for id in load.there if id not in load.doubtful and id not in statuses} == set()
    assert load.deleted.isdisjoint(statuses)
    assert [row for row in rows if row["status"] != "done"] == []
    # What was in doubt at the crash is decided by Citus within seconds.
    eventually(lambda: damage(place) == [], timeout=60)
    for word in WORDS:
        ids = found(place, word, limit=10)
        assert ids
        assert ids <= statuses.keys()


def _drained(place: Place) -> bool:
    """Whether nothing waits; an attempt that met a node too early is made again."""
    with suppress(Unavailable, Contended):
        with place.app.db.begin() as tx:
            tx.execute("update documents set due_at = now() where due_at > now()")
        drain(place.app)
        with place.app.db.begin() as tx:
            waiting = "select 1 from documents where status not in ('done', 'failed') limit 1"
            return tx.execute(waiting).fetchone() is None
    return False


def test_a_worker_that_is_killed_loses_nothing_and_is_waited_for(place: Place):
    node = place.cluster.workers[0]
    with under_load(place) as load:
        for _ in range(2):
            load.grows("search 200")
            node.kill()
            try:
                load.grows("search 503", by=3)
                load.grows("add 200", by=10)  # what does not need it goes on
            finally:
                node.start()
        load.grows("search 200")
    settle(place, load)


def test_a_coordinator_that_is_killed_leaves_nothing_half_done(place: Place):
    """Its commits go to the workers, too: all of them or none."""
    node = place.cluster.coordinator
    with under_load(place) as load:
        for _ in range(4):
            load.grows("delete 204", "search 200", by=3)
            node.kill()
            node.start()
    settle(place, load)


def test_whoever_writes_both_sides_commits_in_two_phases(place: Place):
    """Else a coordinator that dies between two commits leaves one side of them: seen in the logs of
    the workers, as no kill hits those microseconds."""
    app, tenant = place.app, place.tenant
    ids = [add(place, f"Note {n} of a heron.", tag="old") for n in range(8)]
    drain(app)

    with logged(place) as transactions:
        with app.db.begin() as tx:
            documents.delete(tx, tenant, ids[:1])  # of several, it is on by itself
        with app.db.begin() as tx:
            documents.update(tx, tenant, ids[2], documents.DocumentChange(tags=["new"]))
        with app.db.begin() as tx:
            change = documents.DocumentChange(metadata={"kind": "bird"})
            documents.update(tx, tenant, ids[3], change)
        with app.db.begin() as tx:
            content = documents.text_content("A lantern in the attic.")
            documents.update(tx, tenant, ids[4], documents.DocumentChange(content=content))
        drain(app)
        with app.db.begin() as tx:
            _changing.drop_stashed(tx, tenant.id, ids[5:6])
        with app.db.begin() as tx:
            missing_vectors.mend(tx, ids[5])
        with app.db.begin() as tx:
            documents.drop_entries(tx, tenant.id, ids[5], [b"none"])
        with app.db.begin() as tx:
            documents.reindex(tx)
        drain(app)

    written = [one for one in transactions() if one.writes]
    assert len(written) > 5
    assert [one for one in written if not one.prepared] == []
    assert damage(place) == []


@dataclass
class Transaction:
    """What a worker did in one, as its log says."""

    writes: list[str] = field(default_factory=list[str])
    reads: list[str] = field(default_factory=list[str])
    prepared: bool = False


_SHARD = re.compile(r"\b(?:entries|chunks|facets)_\d+\b")
_LINE = re.compile(r"^\S+ \S+ UTC \[(\d+)\] (\S*) LOG:  (?:statement|execute [^:]*): (.*)")
_WRITES = re.compile(r"^(INSERT|UPDATE|DELETE|COPY|WITH.*\b(INSERT|UPDATE|DELETE)) ?", re.I)


@contextmanager
def logged(place: Place) -> Generator[Callable[[], list[Transaction]]]:
    """The transactions of all workers on this database, while they log each statement."""
    sizes = {node.port: node.log.stat().st_size for node in place.cluster.workers}
    _log(place, "all")

    def transactions() -> list[Transaction]:
        done: list[Transaction] = []
        for node in place.cluster.workers:
            open_ones: dict[str, Transaction] = {}
            for line in node.log.read_text()[sizes[node.port] :].splitlines():
                if (told := _LINE.match(line)) is None or told[2] != place.name:
                    continue
                session, _, statement = told.groups()
                one = open_ones.setdefault(session, Transaction())
                word = statement.split()[0].upper().rstrip(";")
                if word == "PREPARE":
                    one.prepared = True
                if word in ("PREPARE", "COMMIT", "ROLLBACK"):
                    done.append(open_ones.pop(session))
                elif _WRITES.match(statement) and _SHARD.search(statement):
                    one.writes.append(statement)
                elif word == "SELECT" and _SHARD.search(statement):
                    one.reads.append(statement)
            done += open_ones.values()
        return done

    try:
        yield transactions
    finally:
        _log(place, "none")


def _log(place: Place, what: str) -> None:
    for node in place.cluster.workers:
        node.ask("postgres", f"alter system set log_statement = '{what}'".encode())
        node.ask("postgres", "select pg_reload_conf()")
    eventually(
        lambda: all(
            node.ask("postgres", "show log_statement") == [(what,)]
            for node in place.cluster.workers
        )
    )


def test_who_looks_at_everything_sees_one_moment(place: Place):
    """Citus has no snapshot over its servers: rows of documents and of chunks would not agree."""
    looks: list[tuple[int, int]] = []
    with under_load(place) as load:
        load.grows("search 200")
        for _ in range(40):
            with place.app.db.moment() as tx:
                row = tx.execute(
                    "with placed as materialized (select count(*) as n from chunks)"
                    " select (select n from placed) as placed,"
                    " (select coalesce(sum(chunks), 0) from documents) as told"
                ).fetchone()
            assert row is not None
            looks.append((row["placed"], row["told"]))
        told = [one.kind for one in verify.verify(place.app.db, place.app.blobs).findings]
    settle(place, load)

    assert len({placed for placed, _ in looks}) > 5, "nobody wrote meanwhile"
    assert [(placed, told) for placed, told in looks if placed != told] == []
    assert told == []


def test_who_looks_at_everything_is_told_of_a_shard_that_moved(place: Place, tmp_path: Path):
    """A snapshot from before the move sees no rows of the shard on its new worker: a backup lacked
    half of the index."""
    add(place, "A heron by the shore.")
    drain(place.app)

    def move() -> None:
        [(shard, *way), *_] = place.cluster.coordinator.ask(
            place.name,
            "select s.shardid, s.nodename, s.nodeport, w.nodename, w.nodeport from citus_shards s"
            " join pg_dist_node w on w.nodeport <> s.nodeport and w.groupid <> 0"
            " where s.table_name = 'entries'::regclass",
        )
        arguments = sql.SQL(", ").join(map(sql.Literal, [shard, *way, "block_writes"]))
        place.cluster.coordinator.ask(
            place.name, sql.SQL("select citus_move_shard_placement({})").format(arguments)
        )

    with pytest.raises(Contended, match="moved"), place.app.db.moment():
        move()
    file = tmp_path / "backup.zip"
    moves = iter([move])
    with pytest.raises(Contended, match="moved"):
        backup.backup(
            place.url,
            place.app.blobs,
            file,
            sealed_with="",
            tell=lambda _: next(moves, lambda: None)(),
        )
    assert list(tmp_path.iterdir()) == []
    backup.backup(place.url, place.app.blobs, file, sealed_with="")
    assert damage(place) == []


def test_what_asks_for_one_document_asks_one_shard(place: Place):
    """And a lock on the table, none at all: it once read every row of each."""
    id = add(place, "A heron by the shore.")
    for n in range(12):
        add(place, f"Another {n}.")
    drain(place.app)
    with logged(place) as transactions, place.app.db.begin() as tx:
        assert len(documents.chunks(tx, place.tenant, id)) == 1
    shards = {name for one in transactions() for text in one.reads for name in _SHARD.findall(text)}
    assert len(shards) == 2, "its chunks and its entries"

    with logged(place) as transactions:
        assert found(place, "heron", limit=1) == {id}
    assert transactions()
    for text in (text for one in transactions() for text in one.reads):
        assert re.search(r"\b(WHERE|LIMIT)\b", text), f"reads a whole shard: {text}"


@pytest.mark.parametrize("onto", ["the cluster", "one server"])
def test_a_backup_of_it_is_restored(
    place: Place, new_place: Callable[[str], Place], tmp_path: Path, onto: str
):
    ids = {add(place, f"A {word} by the shore.") for word in WORDS}
    drain(place.app)
    waiting = add(place, "A lantern that waits.")
    file = tmp_path / "backup.zip"
    backup.backup(place.url, place.app.blobs, file, sealed_with="")

    name = f"test_{uuid.uuid4().hex[:12]}"
    url = place.cluster.create(name, workers=onto == "the cluster")
    with backup.Archive(file) as archive:
        backup.restore(archive, url, place.app.blobs, index_shards=SHARDS)
    with ExitStack() as stack:
        db = stack.enter_context(Database(url, size=4, name="test"))
        again = replace(place, name=name, app=replace(place.app, db=db))
        assert found(again, "shore") == ids
        drain(again.app)
        assert found(again, "waits") >= {waiting}
        assert (again.shards() != {}) == (onto == "the cluster")
        assert damage(again) == []

    with backup.Archive(file) as archive:  # over what is there
        backup.restore(archive, url, place.app.blobs, replace=True, index_shards=SHARDS)
    with Database(url, size=4, name="test") as db:
        again = replace(place, name=name, app=replace(place.app, db=db))
        assert found(again, "shore") == ids


def test_a_purge_writes_the_shards_again_and_says_what_it_cannot_reach(
    place: Place, tmp_path: Path
):
    gone = add(place, "The xylophone of a deleted note.")
    kept = add(place, "A heron by the shore.")
    drain(place.app)
    with place.app.db.begin() as tx:
        documents.delete(tx, place.tenant, [gone])

    done = purge(place.app.db, place.app.blobs, tmp_path)

    assert {table.table for table in done.tables} >= set(DISTRIBUTED)
    assert any("workers of Citus" in one for one in done.left)
    for node in place.cluster.workers:
        names = node.ask(
            place.name,
            "select oid::regclass::text, pg_relation_filepath(oid) from pg_class"
            " where relkind = 'r' and relname ~ '^(entries|chunks)_'",
        )
        for shard, path in names:
            assert b"xylophone" not in (node.data / path).read_bytes(), shard
    assert found(place, "heron") == {kept}
    assert damage(place) == []


def test_a_node_that_joins_takes_shards_while_the_service_runs(place: Place, short_tmp: Path):
    cluster = place.cluster
    node = Node(cluster.coordinator.programs, short_tmp / "spread" / uuid.uuid4().hex, free_port())
    node.make()
    try:
        with under_load(place) as load:
            load.grows("search 200")
            cluster.join(node, place.name)
            cluster.coordinator.ask(place.name, "select citus_rebalance_start()")
            eventually(lambda: place.shards().get(node.port), timeout=120)
            cluster.coordinator.ask(place.name, "select citus_rebalance_wait()")
            load.grows("search 200")
        settle(place, load)
        assert {name for name in load.answers if name.endswith("503")} == set()
        assert sum(place.shards().values()) == SHARDS
    finally:
        cluster.workers.remove(node)
        cluster.drop(place.name)
        node.kill()


def test_older_texts_are_read_as_they_were(place: Place):
    with place.app.db.begin() as tx:
        tx.execute(
            "insert into settings (org_id, data) values (%s, jsonb_build_object('keepVersions', 5))"
            " on conflict (org_id) do update set data = excluded.data",
            (place.org.id,),
        )
    id = add(place, "A heron by the shore.")
    drain(place.app)
    with place.app.db.begin() as tx:
        before = tx.execute("select clock_timestamp() as t").fetchone()
    assert before is not None
    with place.app.db.begin() as tx:
        content = documents.text_content("A lantern in the attic.")
        documents.update(tx, place.tenant, id, documents.DocumentChange(content=content))
    drain(place.app)

    def then(word: str) -> set[str]:
        query = hybrid.Query(word, None, as_of=before["t"])
        with place.app.db.begin() as tx:
            return {hit.document.id for hit in hybrid.search(tx, place.tenant, query)}

    assert then("heron") == {id}
    assert then("lantern") == set()
    assert found(place, "lantern") == {id}


def test_memories_are_told_corrected_carried_and_go_with_their_passage(
    place: Place, tmp_path: Path
):
    """They lie on the coordinator, and what they rest on on the workers."""
    id = add(place, "The heron eats fish. It stands by the shore.")
    drain(place.app)
    facts = [Fact("Herons are told of."), Fact("Storks are told of.")]
    bearer, (heron, _) = telling.add(place.app, place.tenant, "notes", facts)
    with place.app.db.begin() as tx:
        row = tx.execute("select hash from chunks where document_id = %s", (id,)).fetchone()
        assert row is not None
        tx.execute(
            "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
            " values (%s, %s, %s, 0, 20)",
            (heron.id, id, row["hash"]),
        )
    target = MemoryTarget(heron.id)
    telling.correct(place.app, place.tenant, "notes", target, Correction("Herons were told of."))
    backup.export(place.url, place.app.blobs, tmp_path / "bundle", org=place.org.name)
    with place.app.db.begin() as tx:
        tx.execute("delete from memories")
    assert backup.bring(place.app, tmp_path / "bundle", org=place.org.name).memories == 3
    with place.app.db.begin() as tx:
        content = documents.text_content("A lantern in the attic.")
        documents.update(tx, place.tenant, id, documents.DocumentChange(content=content))
    drain(place.app)
    with place.app.db.begin() as tx:
        documents.delete(tx, place.tenant, [bearer])
        assert tx.execute("select from memories").fetchall() == []


@pytest.mark.parametrize("statement", [*REFUSED, *TAKEN])
def test_it_refuses_what_tests_without_it_refuse(cluster: Cluster, place: Place, statement: str):
    taken = nullcontext() if statement in TAKEN else pytest.raises(psycopg.Error)
    with psycopg.connect(place.url) as session, taken:
        session.execute(cast("LiteralString", statement))


def test_what_a_lost_worker_makes_of_a_statement_is_an_outage():
    """It comes as an internal error, which would count an attempt and be a 500."""

    lost = psycopg.errors.InternalError_("server closed the connection unexpectedly\nDETAIL: …")
    ended = psycopg.errors.InternalError_("postmaster was shut down, exiting")
    other = psycopg.errors.InternalError_("cache lookup failed\nDETAIL: a connection")
    assert isinstance(judged(lost), Unavailable)
    assert isinstance(judged(ended), Unavailable)
    assert judged(other) is other


def test_doctor_says_what_each_worker_is_and_lacks(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RECOLLECT_DATABASE_URL", place.url)
    monkeypatch.setenv("RECOLLECT_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    name = f"worker 127.0.0.1:{place.cluster.workers[0].port}"

    def told() -> dict[str, dict[str, str]]:
        checks = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)["checks"]
        return {one["name"]: one for one in checks}

    assert told()[name]["state"] == "ok"
    assert "Citus 14.0-1, pgvector" in told()[name]["details"]
    place.cluster.workers[0].ask(
        place.name, "set citus.enable_ddl_propagation = off; drop extension vector cascade"
    )
    assert told()[name]["state"] == "fail"
    assert "create extension vector" in told()[name]["details"]


def test_replicas_of_a_coordinator_are_refused(place: Place):
    config = place.app.config.model_copy(update={"read_urls": SecretStr(place.url)})
    with pytest.raises(SetupError, match="RECOLLECT_READ_URLS"):
        open_database(config, place.url, size=1)
