"""Every error of the database, raised by a real server, in every loop and in the API."""

import os
import select
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx
import psycopg
import pytest
import structlog
from psycopg.errors import lookup

from recollect import connectors, documents, loop
from recollect.app import App, index_identity
from recollect.config import Config
from recollect.connectors.gmail._settings import GmailSettings
from recollect.db import Database, faults
from recollect.db.faults import judged
from recollect.documents import NewDocument
from recollect.errors import (
    DISK_FULL,
    NO_ROOM,
    Contended,
    Permanent,
    RecollectError,
    Refused,
    Unavailable,
)
from recollect.index.vector_index import adopt
from recollect.inference.llm import Llm
from recollect.loop import Loop, ending_with_loops
from recollect.model import ConnectionId, DocumentId, Plan, Scope, Tenant, random_id
from recollect.ops import purge
from recollect.ops.purge import Purger
from recollect.orgs import orgs, tags
from recollect.sync import connection_queue, connections
from recollect.sync.connections import SealedConnection
from recollect.telemetry import metrics
from recollect.worker import maintenance, processing, syncs, tag_merges
from recollect.worker import pulls as pull
from recollect.worker.extraction import Dreamer
from recollect.worker.maintenance import Maintainer
from recollect.worker.processing import Worker
from recollect.worker.syncs import Syncer
from recollect.worker.webhooks import Deliverer
from tests.conftest import capture_logs, eventually, plain_client, serving
from tests.fakes.embedder import WordEmbedder
from tests.fakes.llm import Model, running
from tests.fakes.pubsub import SUBSCRIPTION, FakePubSub
from tests.fakes.shelf import Shelf, shelved
from tests.index.test_embedder_switch import standing

pytestmark = pytest.mark.one_server  # its faults are triggers, which no spread table may have

OUTAGES = ("08006", "25006", "28P01", "3D000", "53100", "53200", "53300", "57P01", "57P03", "57P05",
           "58030")  # fmt: skip
CONTENDED = ("40001", "40P01", "55P03", "57014", "25P03", "25P04", "53400")
REFUSED = ("22001", "22003", "22P02", "22021", "23514", "54000", "54001")
BUGS = ("42P01", "42601", "42501", "23505", "23503", "0A000", "25P02", "XX000", "XX001", "P0001")
STATES = (*OUTAGES, *CONTENDED, *REFUSED, *BUGS)
ONE_OF_EACH = ("53100", "40P01", "54000", "42P01")


class Runs(Protocol):
    def run(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True)
class Ground:
    """A service without its edges, on a database whose tables can be told to raise."""

    app: App
    tenant: Tenant

    def fault(self, relation: str, state: str | None, whose: str | None = None) -> None:
        """From now on writing to `relation` raises; None: not any more. `whose`: only that row."""
        with self.app.db.begin() as tx:
            tx.execute("delete from fault where relation = %s", (relation,))
            if state is not None:
                tx.execute("insert into fault values (%s, %s, %s)", (relation, state, whose))
            tx.execute("notify recollect_due")

    def hits(self) -> int:
        return self.one("select case when is_called then last_value else 0 end from fault_hits")

    def one(self, statement: Any, *parameters: object) -> Any:
        with self.app.db.begin() as tx:
            row = tx.execute(statement, parameters).fetchone()
        assert row is not None
        [value] = row.values()
        return value

    def do(self, statement: Any, *parameters: object) -> None:
        with self.app.db.begin() as tx:
            tx.execute(statement, parameters)

    def add(self, text: str, custom_id: str | None = None, tag: str = "notes") -> DocumentId:
        new = NewDocument(documents.text_content(text), [tag], custom_id=custom_id)
        with self.app.db.begin() as tx:
            tags.ensure(tx, self.tenant.id, [tag])
            return documents.add(tx, self.tenant, new, DocumentId(random_id())).id

    def connect(self) -> ConnectionId:
        new = SealedConnection("shelf", ["notes"], 100, {"shelf": "faults"}, None, pending=False)
        with self.app.db.begin() as tx:
            return connections.create(tx, self.tenant.id, new, ConnectionId(random_id())).id

    def row(self, id: DocumentId) -> dict[str, Any]:
        with self.app.db.begin() as tx:
            row = tx.execute(
                "select status, attempts, error_code as code, error_message as message"
                " from documents where id = %s",
                (id,),
            ).fetchone()
        assert row is not None
        return row

    def age(self) -> None:
        self.do("update documents set due_at = now() - interval '1 second' where due_at > now()")


FAULTS = """
create table fault (relation text primary key, state text not null, whose text);
create sequence fault_hits;
create function stumble() returns trigger language plpgsql as $$
declare found fault;
begin
  select * into found from fault where relation = tg_table_name;
  if found.state is not null and (tg_level = 'STATEMENT') = (found.whose is null)
     and (found.whose is null or to_jsonb(new)::text like '%' || found.whose || '%') then
    perform nextval('fault_hits');
    raise exception 'stumbled' using errcode = found.state;
  end if;
  return new;
end $$;
do $$ declare t text; begin
  foreach t in array array['documents', 'chunks', 'entries', 'connections', 'items', 'dreams',
    'memories', 'deliveries', 'tag_merges', 'vector_gaps', 'purges', 'tallies', 'canary', 'pushes',
    'endpoints', 'tags']
  loop
    execute format('create trigger a_stumble before insert or update or delete on %I'
      ' for each statement execute function stumble()', t);
    execute format('create trigger a_stumble_row before insert or update on %I'
      ' for each row execute function stumble()', t);
  end loop;
end $$;
"""


@pytest.fixture(scope="module")
def faulty(new_database: Callable[[], str]) -> str:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(FAULTS)
    return url


@pytest.fixture
def ground(
    app: App,
    faulty: str,
    copy_database: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Generator[Ground]:
    """Its loops look often, and take a short breath: what they do is not a matter of time."""
    moment = timedelta(milliseconds=20)
    for module, name in (
        (processing, "TICK"), (processing, "PAUSE"), (processing, "PACE"), (syncs, "TICK"),
        (maintenance, "BEAT"), (purge, "LOOK"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, moment)
    monkeypatch.setattr(loop, "BREATH", 0.01)
    embedder = WordEmbedder()
    with Database(copy_database(faulty), size=24) as database:
        with database.begin() as tx:
            adopt(tx, *index_identity(embedder))
            org = orgs.create(tx, "faults", Plan.ENTERPRISE)
        config = app.config.model_copy(
            update={"workers": 2, "data_dir": tmp_path, "lease_seconds": 0.3, "max_attempts": 3}
        )
        yield Ground(replace(app, db=database, config=config, embedder=embedder), Tenant(org.id))


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved("faults") as made:
        yield made


@contextmanager
def at_work(run: Callable[[], None], stop: Callable[[], None]) -> Generator[threading.Thread]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        stop()
        thread.join(60)
    assert not thread.is_alive()


def survives(ground: Ground, thread: threading.Thread, relation: str, works: Callable[[], Any]):
    """Each state is met, some times, and outlived; after it `works` comes true."""
    for state in STATES:
        before = ground.hits()
        ground.fault(relation, state)
        eventually(lambda: ground.hits() > before + 1)  # noqa: B023 # asked here
        assert thread.is_alive(), state
        ground.fault(relation, None)
        works()
        assert thread.is_alive(), state


# --- the table -----------------------------------------------------------------------------------


def kind(error: BaseException) -> str:
    match error:
        case Contended():
            return "contended"
        case Unavailable():
            return "outage"
        case Refused():
            return "refused"
        case psycopg.Error():
            return "bug"
        case _:
            raise AssertionError(error)


@pytest.mark.parametrize(
    ("states", "expected"),
    [(OUTAGES, "outage"), (CONTENDED, "contended"), (REFUSED, "refused"), (BUGS, "bug")],
)
def test_what_the_server_raises_is_judged_by_its_sqlstate(
    db: Database, states: tuple[str, ...], expected: str
):
    for state in states:
        with pytest.raises((RecollectError, psycopg.Error)) as caught, db.begin() as tx:
            tx.execute(f"do $$ begin raise exception 'secret' using errcode = '{state}'; end $$")  # type: ignore[arg-type]

        assert kind(caught.value) == expected, state
        if expected == "refused" and not state.startswith(("54", "23514")):
            assert "secret" not in str(caught.value)  # it may quote a row
        assert lookup(state).sqlstate == state
    db.ping()


def test_a_transaction_that_idles_too_long_counts_and_the_next_one_works(database_url: str):
    with Database(database_url, size=1, idle_timeout=timedelta(milliseconds=50)) as database:
        with pytest.raises(Contended):
            _idle(database)
        database.ping()


def _idle(database: Database) -> None:
    with database.begin() as tx:
        tx.execute("select 1")
        eventually(lambda: _readable(tx.fileno()))  # what the server has to say, at last
        tx.execute("select 1")


def _readable(socket: int) -> bool:
    return bool(select.select([socket], [], [], 0)[0])


def test_a_statement_that_takes_too_long_counts(database_url: str):
    with Database(database_url, size=1, statement_timeout=timedelta(milliseconds=50)) as database:
        with pytest.raises(Contended), database.begin() as tx:
            tx.execute("select pg_sleep(60)")
        database.ping()


def test_a_server_that_turned_read_only_is_an_outage_and_is_left(database_url: str):
    with Database(database_url, size=1) as database:
        with pytest.raises(Unavailable) as caught, database.begin() as tx:
            tx.execute("set transaction read only; create table t ()")
        assert tx.closed, "the next one gets another connection"

    assert kind(caught.value) == "outage"


def test_what_the_client_refuses_to_send_is_refused(db: Database):
    with pytest.raises(Refused), db.begin() as tx:
        tx.execute("select %s::text", ("a\x00b",))


def test_a_pool_that_is_closed_is_an_outage(database_url: str):
    database = Database(database_url, size=1).open()
    database.close()

    with pytest.raises(Unavailable):
        database.ping()


def test_the_page_for_operators_has_the_same_table():
    page = Path("docs/operations.md").read_text()

    for group in (faults._OUTAGE, faults._CONTENDED, faults._REFUSED):
        for state in group:
            assert f"`{state}`" in page, state


# --- the loops -----------------------------------------------------------------------------------


def test_the_worker_outlives_all_of_them(ground: Ground):
    made, n = Worker(ground.app), Counter[str]()

    def works() -> None:
        n["n"] += 1
        id = ground.add(f"note {n['n']}")
        eventually(lambda: ground.row(id)["status"] == "done")

    ground.add("the first")
    with at_work(made.run, made.stop) as thread:
        survives(ground, thread, "documents", works)


def test_syncs_outlive_all_of_them(ground: Ground, shelf: Shelf):
    made, id = Syncer(ground.app), ground.connect()

    def works() -> None:
        ground.do("update connections set due_at = now(), last_synced_at = null")
        ground.do("notify recollect_due")
        eventually(
            lambda: ground.one("select last_synced_at is not null from connections where id=%s", id)
        )

    with at_work(made.run, made.stop) as thread:
        survives(ground, thread, "connections", works)


def test_a_claim_resumes_no_run_that_has_just_ended(ground: Ground, shelf: Shelf):
    """A trigger ends it where another process would: after the statement began to look."""
    ground.connect()
    with ground.app.db.begin() as tx:
        [first] = connection_queue.claim(tx, lease=timedelta(), limit=1)
    ground.do(
        "create function end_run() returns trigger language plpgsql as $$ begin"
        " update sync_runs set status = 'failed', error_code = 'internal_error',"
        " finished_at = now(); return null;"
        " end $$"
    )
    ground.do(
        "create trigger end_run before update on connections for each statement"
        " execute function end_run()"
    )

    with ground.app.db.begin() as tx:
        [second] = connection_queue.claim(tx, lease=timedelta(), limit=1)
        counts = connection_queue.counted(tx, second)

    assert second.run_id != first.run_id
    assert counts.code is None


def test_webhooks_outlive_all_of_them(ground: Ground, monkeypatch: pytest.MonkeyPatch):
    made = Deliverer(ground.app)
    monkeypatch.setattr("recollect.worker.webhooks.TICK", timedelta(milliseconds=20))
    monkeypatch.setattr("recollect.worker.webhooks.IDLE", timedelta(milliseconds=20))

    with at_work(made.run, made.stop) as thread:
        survives(ground, thread, "deliveries", lambda: None)


def test_memories_outlive_all_of_them(ground: Ground, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recollect.worker.extraction.TICK", timedelta(milliseconds=20))
    with running(Model()) as model:
        llm = Llm(model.url, "a-model", pauses=())
        made = Dreamer(replace(ground.app, llm=llm))
        with at_work(made.run, made.stop) as thread:
            survives(ground, thread, "dreams", lambda: None)
        llm.close()


def test_the_maintenance_outlives_all_of_them(ground: Ground):
    config = ground.app.config.model_copy(update={"canary_interval": timedelta(hours=1)})
    made = Maintainer(replace(ground.app, config=config))
    counted = "select coalesce(sum(value), 0) from tallies where name = 'recollect_test_total'"

    def works() -> None:
        before = ground.one(counted)
        metrics.add("recollect_test_total")
        eventually(lambda: ground.one(counted) > before)

    def beat() -> None:
        while not stopped.wait(0.01):
            metrics.add("recollect_test_total")

    stopped = threading.Event()
    with at_work(beat, stopped.set), at_work(made.run, made.stop) as thread:
        survives(ground, thread, "tallies", works)
        survives(ground, thread, "canary", works)


def test_the_purge_outlives_all_of_them(ground: Ground):
    ground.do("insert into purges (id, started_at, finished_at, changes)"
              " values ('x', now() - interval '1 day', now(), -1)")  # fmt: skip
    config = ground.app.config.model_copy(update={"purge_interval": timedelta(microseconds=1)})
    made = Purger(replace(ground.app, config=config))

    ground.fault("purges", "08006")
    with at_work(made.run, made.stop) as thread:
        for state in STATES:
            before = ground.hits()
            ground.fault("purges", state)
            eventually(lambda: ground.hits() > before + 1)  # noqa: B023 # asked here
            assert thread.is_alive(), state


def test_the_pull_of_notices_outlives_all_of_them(ground: Ground, tmp_path: Path):
    with FakePubSub() as pubsub:
        given: dict[str, Any] = ground.app.config.model_dump(exclude={"providers"}) | {
            "providers": {
                "gmail": GmailSettings.model_construct(
                    pubsub_subscription=SUBSCRIPTION,
                    pubsub_key_file=pubsub.key_file(tmp_path),
                    pubsub_api_url=pubsub.url,
                )
            },
        }
        here = replace(ground.app, config=Config(**given))
        stop, n = Brief(), Counter[str]()

        def publish() -> None:
            n["n"] += 1
            data = "eyJlbWFpbEFkZHJlc3MiOiAiYUBiLmMiLCAiaGlzdG9yeUlkIjogMX0="
            pubsub.publish({"message": {"data": data, "messageId": f"m{n['n']}"}})

        def works() -> None:
            publish()
            eventually(lambda: ground.one("select count(*) from pushes") >= 1)
            ground.do("delete from pushes")

        def again() -> None:
            while not stop.wait(0.05):
                publish()
                pubsub.lapse()

        with (
            at_work(again, stop.set),
            at_work(lambda: pull.run(here, connectors.get("gmail"), stop), stop.set) as thread,
        ):
            survives(ground, thread, "pushes", works)


class Brief(threading.Event):
    """Is waited for in a moment, however long a pause was to be."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else min(timeout, 0.01))


def test_heartbeats_outlive_all_of_them(ground: Ground):
    """Leases are renewed in threads of their own, which nobody would miss for a while."""
    gated = Gated()
    made = Worker(replace(ground.app, embedder=gated))
    ground.add("slow to embed")
    with (
        ending_with_loops(structlog.get_logger(), made.stop) as died,
        at_work(made.run, made.stop),
        gated.open_at_the_end(),
    ):
        assert gated.asked.wait(60)
        for state in ONE_OF_EACH:
            before = ground.hits()
            ground.fault("documents", state)
            eventually(lambda: ground.hits() > before + 3)  # noqa: B023 # asked here
        ground.fault("documents", None)
        lease = "select max(due_at) from documents where status = 'processing'"
        until = ground.one(lease)
        eventually(lambda: ground.one(lease) > until)
        gated.gate.set()

    assert not died.is_set()


class Gated(WordEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = threading.Event(), threading.Event()

    def embed(self, texts: Any, *, query: bool = False) -> Any:
        self.asked.set()
        assert self.gate.wait(60)
        return super().embed(texts, query=query)

    @contextmanager
    def open_at_the_end(self) -> Generator[None]:
        try:
            yield
        finally:
            self.gate.set()


# --- one of many ---------------------------------------------------------------------------------


def test_a_document_that_the_database_does_not_take_ends_and_disturbs_no_other(ground: Ground):
    for state in STATES:
        ground.fault("entries", state, "poison")
        bad = ground.add("this is poison")
        good = [ground.add(f"note {n}") for n in range(3)]
        for _ in range(ground.app.config.max_attempts):
            processing.drain(ground.app)
            ground.age()
        found = ground.row(bad)

        assert {ground.row(id)["status"] for id in good} == {"done"}, state
        if state in OUTAGES:
            assert (found["status"], found["attempts"]) == ("queued", 0), state
        else:
            assert found["status"] == "failed", state
            assert found["attempts"] == (1 if state in REFUSED else ground.app.config.max_attempts)
            code = "database_contended" if state in CONTENDED else "internal_error"
            assert found["code"] == ("database_refused" if state in REFUSED else code), state
        ground.do("delete from documents where id = %s", bad)


def test_only_an_outage_pauses_the_queue(ground: Ground):
    made = Worker(ground.app)
    with capture_logs() as logs, at_work(made.run, made.stop):
        for state in (*CONTENDED, *REFUSED, *BUGS):
            ground.fault("entries", state, "poison")
            bad = ground.add("this is poison")
            eventually(lambda: ground.age() or ground.row(bad)["status"] == "failed")  # noqa: B023 # asked here
            assert "queue paused" not in {line["event"] for line in logs}, state
        ground.fault("entries", "53100", "poison")
        ground.add("this is poison")
        eventually(lambda: "queue paused" in {line["event"] for line in logs})


@pytest.mark.parametrize("code", sorted(NO_ROOM))
def test_a_session_that_does_not_begin_for_want_of_room_is_a_full_disk(code: int):
    """Such an error has no SQLSTATE; the database, which answered, was said not to."""
    told = f"connection failed: FATAL:  could not write init file: {os.strerror(code)}"
    found = judged(psycopg.OperationalError(told))

    assert isinstance(found, Unavailable)
    assert found.code == DISK_FULL
    assert str(found).startswith("the database's disk is full, make room on it: ")


def test_an_outcome_that_cannot_be_written_down_becomes_one_that_can(ground: Ground):
    """The reason of its failure is what the database does not take."""
    ground.fault("documents", "22021", "poison")
    made = Worker(replace(ground.app, embedder=Refusing()))
    id = ground.add("a note")
    with at_work(made.run, made.stop) as thread:
        eventually(lambda: ground.row(id)["status"] == "failed")
        assert thread.is_alive()

    assert ground.row(id)["code"] == "database_refused"


class Refusing(WordEmbedder):
    def embed(self, texts: Any, *, query: bool = False) -> Any:
        raise Permanent("poison", code="embedding_refused")


def test_vectors_of_a_new_model_outlive_all_of_them(
    app: App, new_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("TICK", "PAUSE", "PACE"):
        monkeypatch.setattr(processing, name, timedelta(milliseconds=20))
    monkeypatch.setattr(loop, "BREATH", 0.01)
    url = new_database()
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(FAULTS)
    with standing(app, url, tmp_path) as switching:
        ground = Ground(switching.app, switching.tenant)
        switching.add("a note")
        processing.drain(switching.app)
        switching.switch()
        made = Worker(switching.app)
        ground.fault("vector_gaps", "53100")
        with at_work(made.run, made.stop) as thread:
            for state in STATES:
                before = ground.hits()
                ground.fault("vector_gaps", state)
                eventually(lambda: ground.hits() > before + 1)  # noqa: B023 # asked here
                assert thread.is_alive(), state
            ground.fault("vector_gaps", None)
            eventually(lambda: switching.index().phase == "kept")


def test_a_sync_that_the_database_does_not_take_waits_and_says_so(ground: Ground, shelf: Shelf):
    id = ground.connect()
    told = "select state || ' ' || (error_message is not null) from connections where id = %s"
    for state in (*CONTENDED, *BUGS):
        shelf.put(state, "text", title=f"poison {state}")
        ground.fault("documents", state, state)

        ran = syncs.drain(ground.app)

        assert ran == 1, state  # not due again at once
        assert ground.one(told, id) == "ready true", state
        ground.fault("documents", None)
        ground.do("update connections set due_at = now()")
        assert syncs.drain(ground.app) == 1, state
        assert ground.one(told, id) == "ready false", state
        ground.do("update connections set due_at = now()")


@pytest.mark.parametrize("state", REFUSED)
def test_an_item_that_the_database_refuses_is_left_out_and_the_others_come(
    ground: Ground, shelf: Shelf, state: str
):
    id = ground.connect()
    shelf.put("old", "text", title="a quiet one")
    assert syncs.drain(ground.app) == 1
    for n in range(9):
        shelf.put(f"n{n}", "text", title="poison" if n == 4 else "fine")
    shelf.put("old", "newer text", title="poison")
    ground.fault("documents", state, "poison")
    ground.do("update connections set due_at = now()")

    assert syncs.drain(ground.app) == 1

    titles = "select string_agg(title, ', ' order by title) from documents where title <> ''"
    assert ground.one(titles) == "a quiet one, " + ", ".join(["fine"] * 8)
    ran = "select added || ' ' || failed || ' ' || notes::text from sync_runs order by started_at"
    told = ground.one(ran + " desc limit 1")
    assert told.startswith("8 2 ")
    assert "n4 was left out: the database cannot keep" in told
    assert "old was left out" in told
    verdict = "select verdict from items where id = %s"
    assert [ground.one(verdict, one) for one in ("n4", "old")] == ["unsupported", "document"]
    shelf.put("n4", "text again", title="better")
    ground.do("update connections set due_at = now() where id = %s", id)
    assert syncs.drain(ground.app) == 1
    assert "better" in ground.one(titles)


def test_a_merge_of_tags_that_fails_ends_and_keeps_no_other_waiting(ground: Ground):
    for state in (*CONTENDED, *REFUSED, *BUGS):
        ground.add("this is poison", custom_id=f"poison {state}", tag=f"old {state}")
        ground.add("a note", tag=f"fine {state}")
        processing.drain(ground.app)
        with ground.app.db.begin() as tx:
            stuck, other = (
                tags.begin_merge(
                    tx, ground.tenant, [f"{one} {state}"], f"new {one}", random_id()
                ).id
                for one in ("old", "fine")
            )
        ground.fault("documents", state, "poison")
        steps = 0
        for _ in range(tags.MOST_FAILURES):
            while tag_merges.step(ground.app):
                steps += 1
                assert steps < 50, state
            ground.do("update tag_merges set updated_at = now() - interval '1 hour'")

        with ground.app.db.begin() as tx:
            failed, done = (tags.merge(tx, ground.tenant, one) for one in (stuck, other))
        assert (done.finished_at is not None, done.reason, done.moved) == (True, None, 1), state
        assert failed.finished_at is not None, state
        assert failed.reason, state
        ground.fault("documents", None)


def test_an_outage_gives_no_merge_up(ground: Ground):
    ground.add("this is poison", custom_id="poison", tag="old")
    processing.drain(ground.app)
    with ground.app.db.begin() as tx:
        id = tags.begin_merge(tx, ground.tenant, ["old"], "new", random_id()).id
    ground.fault("documents", "53100", "poison")
    for _ in range(tags.MOST_FAILURES + 1):
        with pytest.raises(Unavailable):
            tag_merges.step(ground.app)
    ground.fault("documents", None)
    while tag_merges.step(ground.app):
        pass

    with ground.app.db.begin() as tx:
        assert tags.merge(tx, ground.tenant, id).moved == 1


# --- what ends all the same ----------------------------------------------------------------------


def test_a_loop_that_ends_by_an_error_ends_its_process():
    stopped = threading.Event()

    def dies() -> None:
        raise MemoryError

    with (
        capture_logs() as logs,
        ending_with_loops(structlog.get_logger(), stopped.set) as died,
    ):
        other = threading.Thread(target=dies)
        other.start()
        other.join()
        assert not died.is_set()
        broken = Loop(dies, "broken")
        broken.start()
        broken.join()

    assert died.is_set()
    assert stopped.is_set()
    assert "a loop ended; the process ends with it" in {line["event"] for line in logs}


# --- the API -------------------------------------------------------------------------------------


@pytest.fixture
def http(ground: Ground) -> Generator[httpx.Client]:
    with ground.app.db.begin() as tx:
        key = orgs.create_key(tx, ground.tenant.id, scope=Scope.ADMIN)[1]
    with (
        serving(ground.app) as url,
        plain_client(url, {"Authorization": f"Bearer {key}"}) as client,
    ):
        yield client


def test_the_api_says_which_it_was(ground: Ground, http: httpx.Client):
    for state in STATES:
        ground.fault("documents", state)
        answer = http.post("/v3/documents", json={"content": "hello", "containerTag": "notes"})

        expected = 503 if state in (*OUTAGES, *CONTENDED) else 400 if state in REFUSED else 500
        assert answer.status_code == expected, (state, answer.text)
        assert ("retry-after" in answer.headers) == (expected == 503)
        assert ("disk" in answer.text) == (state == "53100"), (
            "what its owner can do something about"
        )
        assert ("takes no writes" in answer.text) == (state == "25006")
        assert "stumbled" not in answer.text or state.startswith(("54", "23514"))
    ground.fault("documents", None)
    answer = http.post("/v3/documents", json={"content": "hello", "containerTag": "notes"})
    assert answer.status_code < 300
