"""The worker: what becomes of each outcome, and what happens when its surroundings misbehave."""

import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from psycopg.conninfo import make_conninfo

from recollect import blobs, documents
from recollect.app import App
from recollect.blobs import FolderBlobs
from recollect.db import Database, open_once
from recollect.documents import DocumentChange, NewDocument
from recollect.errors import (
    DATABASE_AWAY,
    DatabaseAway,
    HeldOff,
    LeaseLost,
    Permanent,
    Transient,
    Unavailable,
    Undeletable,
)
from recollect.extract import Sandbox
from recollect.ingest.pipeline import process
from recollect.mcp.server import advice
from recollect.model import (
    Changed,
    Claim,
    Content,
    Document,
    DocumentId,
    Failure,
    OrgId,
    Status,
    StoredBlob,
    Tenant,
)
from recollect.orgs import orgs
from recollect.worker import processing
from recollect.worker.processing import Worker, attempt, backoff, drain, settle
from tests.conftest import capture_logs, eventually, fresh_org
from tests.extract import samples
from tests.fakes.embedder import WordEmbedder

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
Row = dict[str, Any]


def story(*numbers: int) -> str:
    """A paragraph of about 900 characters for each number."""
    return "\n\n".join(
        f"Part {n}. " + " ".join(f"word{n}x{i} tells more." for i in range(45)) for n in numbers
    )


def add(
    app: App, tenant: Tenant, text: str, *, custom_id: str | None = None, tag: str = "notes"
) -> DocumentId:
    new = NewDocument(documents.text_content(text), [tag], custom_id=custom_id)
    with app.db.begin() as tx:
        return documents.add(tx, tenant, new, DocumentId(orgs.random_id())).id


def upload(app: App, tenant: Tenant, data: bytes, name: str, *, custom_id: str) -> DocumentId:
    key = blobs.new_key(tenant.id, data)
    app.blobs.put(key, data)
    content = Content("pdf", b"hash of " + data, blob=StoredBlob(key, name, None))
    new = NewDocument(content, ["notes"], custom_id=custom_id)
    with app.db.begin() as tx:
        return documents.add(tx, tenant, new, DocumentId(orgs.random_id())).id


def get(app: App, tenant: Tenant, id: str) -> Document:
    with app.db.begin() as tx:
        return documents.get(tx, tenant, id, with_text=True)


def take(app: App) -> Claim:
    with app.db.begin() as tx:
        [claim] = documents.claim(
            tx, lease=app.lease, limit=1, max_attempts=app.config.max_attempts
        )
    return claim


def age(app: App, tenant: Tenant) -> None:
    """Let back-offs and leases be over."""
    with app.db.begin() as tx:
        tx.execute(
            "update documents set due_at = now() - interval '1 second'"
            " where org_id = %s and due_at is not null",
            (tenant.id,),
        )


def row(app: App, id: DocumentId) -> Row:
    with app.db.begin() as tx:
        found = tx.execute(
            "select *, due_at <= now() as due, due_at - created_at as wait"
            " from documents where id = %s",
            (id,),
        ).fetchone()
    assert found is not None
    return found


def rows_of(app: App, tenant: Tenant, table: str) -> int:
    queries: dict[str, LiteralString] = {
        "entries": "select count(*) as n from entries join documents d on d.id = document_id"
        " where org_id = %s",
        "term_counts": "select count(*) as n from term_counts where org_id = %s",
    }
    with app.db.begin() as tx:
        found = tx.execute(queries[table], (tenant.id,)).fetchone()
    assert found is not None
    return found["n"]


def raising(error: Exception) -> Callable[[App, Claim], Changed]:
    def work(_: App, __: Claim) -> Changed:
        raise error

    return work


def settled(app: App, error: Exception) -> None:
    """One attempt at what is due, which ends so."""
    claim = take(app)
    settle(app, claim, attempt(app, claim, raising(error)))


# --- settle's table, row by row ----------------------------------------------------------------


def test_passing_trouble_puts_back_with_a_back_off(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    settled(app, Transient("a reset", code="connection_reset"))

    found = row(app, id)
    assert (found["status"], found["stage"], found["attempts"]) == ("queued", None, 1)
    assert (found["error_code"], found["error_message"]) == ("connection_reset", "a reset")
    assert found["wait"] >= 1.5 * SECOND


def test_passing_trouble_fails_once_no_attempt_is_left(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    for n in range(app.config.max_attempts):
        assert row(app, id)["status"] == "queued", n
        age(app, tenant)
        settled(app, Transient("the provider is tired"))

    found = row(app, id)
    assert (found["status"], found["due_at"]) == ("failed", None)
    assert found["attempts"] == app.config.max_attempts
    assert found["error_message"] == "the provider is tired"


def test_what_a_model_holds_off_alone_has_hours_and_ends(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")
    waits: list[timedelta] = []

    for _ in range(app.config.max_attempts):
        assert row(app, id)["status"] == "queued"
        age(app, tenant)
        began = row(app, id)["wait"]
        settled(app, HeldOff("it takes others", code="embedding_held_off"))
        if (wait := row(app, id)["wait"]) is not None:
            waits.append(wait - began)

    found = row(app, id)
    assert (found["status"], found["error_code"]) == ("failed", "embedding_held_off")
    assert sum(waits, timedelta()) > 6 * HOUR


@pytest.mark.parametrize(("asked", "granted"), [(0.5 * HOUR, 0.5 * HOUR), (100 * HOUR, HOUR)])
def test_a_wish_for_patience_is_granted_up_to_an_hour(
    app: App, tenant: Tenant, asked: timedelta, granted: timedelta
) -> None:
    id = add(app, tenant, "hello")

    settled(app, Transient("429", after=asked))

    # `wait` counts from the creation, which lies a little before the settling.
    assert granted <= row(app, id)["wait"] < granted + 0.25 * HOUR


def test_what_all_need_being_down_costs_no_attempt(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    for _ in range(app.config.max_attempts + 2):
        age(app, tenant)
        settled(app, Unavailable("the endpoint does not answer"))

    found = row(app, id)
    assert (found["status"], found["attempts"]) == ("queued", 0)
    assert found["error_code"] == "dependency_down"
    assert found["wait"] >= processing.PAUSE


def test_what_a_database_that_is_away_says_is_not_told(
    app: App, tenant: Tenant, database_url: str
) -> None:
    """It names hosts and roles."""
    id = add(app, tenant, "hello")
    with pytest.raises(DatabaseAway, match="a_role") as caught:
        open_once(make_conninfo(database_url, user="a_role")).__enter__()

    settled(app, caught.value)

    assert row(app, id)["error_message"] == DATABASE_AWAY
    assert advice(caught.value) == f"{DATABASE_AWAY}. Try again in a moment."


def test_an_endpoint_that_is_down_is_not_waited_for_all_day(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    settled(app, Unavailable("it answered 503", after=timedelta(hours=20)))

    assert row(app, id)["wait"] < 1.25 * HOUR


def test_what_will_never_work_fails_at_once(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    settled(app, Permanent("report.pdf is encrypted", code="encrypted_file"))

    found = get(app, tenant, id)
    assert (found.status, found.due_at, found.attempts) == (Status.FAILED, None, 1)
    assert found.failure is not None
    assert (found.failure.code, found.failure.message) == (
        "encrypted_file",
        "report.pdf is encrypted",
    )


def test_a_bug_keeps_its_traceback_in_the_log_and_is_tried_again(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    with capture_logs() as lines:
        settled(app, ZeroDivisionError("secret content"))

    found = row(app, id)
    assert (found["status"], found["attempts"], found["error_code"]) == (
        "queued",
        1,
        "internal_error",
    )
    assert found["error_message"] == "an error in Recollect itself: ZeroDivisionError"
    [bug] = [line for line in lines if line["event"] == "bug"]
    assert "in work" in bug["traceback"]
    assert bug["log_level"] == "error"


def test_a_bug_that_stays_fails_the_document(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    for _ in range(app.config.max_attempts):
        age(app, tenant)
        settled(app, ZeroDivisionError())

    assert row(app, id)["status"] == "failed"


def test_a_lost_lease_is_nothing_to_write_down(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")
    claim = take(app)
    with app.db.begin() as tx:
        tx.execute("update documents set claims = claims + 1 where id = %s", (id,))
    before = row(app, id)

    settle(app, claim, LeaseLost())

    assert row(app, id) == before


def test_what_a_stop_has_cut_off_is_given_back(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")

    settle(app, take(app), LeaseLost())

    found = row(app, id)
    assert is_due(found)
    assert found["attempts"] == 0


@pytest.mark.parametrize(
    "error", [Transient("x"), Unavailable("x"), Permanent("x"), ZeroDivisionError("x")], ids=repr
)
def test_no_outcome_of_a_deleted_document_is_written_or_raised(
    app: App, tenant: Tenant, error: Exception
) -> None:
    id = add(app, tenant, "hello")
    claim = take(app)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [id])

    settle(app, claim, attempt(app, claim, raising(error)))

    with app.db.begin() as tx:
        assert tx.execute("select 1 from documents where id = %s", (id,)).fetchone() is None


def test_a_failure_of_old_content_does_not_fail_the_new(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "unreadable", custom_id="a")
    claim = take(app)
    with app.db.begin() as tx:
        documents.update(tx, tenant, id, DocumentChange(content=documents.text_content("readable")))

    settle(app, claim, Permanent("not readable"))

    found = row(app, id)
    assert (found["status"], found["attempts"], found["due"]) == ("queued", 0, True)
    drain(app)
    assert get(app, tenant, id).text == "readable"


@given(attempts=st.integers(1, 1000))
def test_back_offs_grow_to_five_minutes_and_a_quarter(attempts: int) -> None:
    wait = backoff(attempts)

    assert min(2**attempts, 300) * 0.75 <= wait.total_seconds() <= 375


# --- growing and repeated content --------------------------------------------------------------


def test_a_conversation_that_grows_while_it_is_processed_ends_with_everything(
    app: App, tenant: Tenant, embedder: WordEmbedder
) -> None:
    embedder.forget()
    id = add(app, tenant, story(1, 2, 3), custom_id="chat")
    claim = take(app)
    add(app, tenant, story(1, 2, 3) + "\n\n" + story(4), custom_id="chat")
    settle(app, claim, attempt(app, claim, process))
    first = get(app, tenant, id)
    assert (first.text, first.indexed_revision, first.status) == (
        story(1, 2, 3),
        1,
        Status.QUEUED,
    )
    before = set(embedder.texts)
    embedder.forget()
    drain(app)

    found = get(app, tenant, id)
    assert (found.status, found.text, found.indexed_revision) == (
        Status.DONE,
        story(1, 2, 3, 4),
        2,
    )
    assert embedder.texts
    assert not before & set(embedder.texts)
    assert found.changed is not None
    assert found.changed.embedded == len(embedder.texts) < found.changed.chunks


def test_the_same_content_again_embeds_nothing(
    app: App, tenant: Tenant, embedder: WordEmbedder
) -> None:
    id = add(app, tenant, story(1, 2), custom_id="same")
    drain(app)
    embedder.forget()

    assert add(app, tenant, story(1, 2), custom_id="same") == id
    assert drain(app) == 0
    assert embedder.texts == []


def test_working_a_document_once_more_embeds_nothing(
    app: App, tenant: Tenant, embedder: WordEmbedder
) -> None:
    id = add(app, tenant, story(1, 2))
    drain(app)
    embedder.forget()
    with app.db.begin() as tx:
        documents.reprocess(tx, tenant, ids=[id])

    assert drain(app) == 1
    assert embedder.texts == []
    changed = get(app, tenant, id).changed
    assert changed is not None
    assert (changed.embedded, changed.reused, changed.removed) == (0, changed.chunks, 0)


def test_what_waits_for_its_next_try_is_tried_when_a_user_asks(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, story(1, 2))
    with app.db.begin() as tx:
        documents.retry(tx, take(app), Failure("http_429", "later"), timedelta(hours=1))
    assert drain(app) == 0
    with app.db.begin() as tx:
        assert documents.reprocess(tx, tenant, failed=True) == []
        assert documents.reprocess(tx, tenant, ids=[id]) == [id]

    assert drain(app) == 1
    assert get(app, tenant, id).status is Status.DONE


def test_content_replaced_during_processing_keeps_its_own_kind(app: App, tenant: Tenant) -> None:
    id = upload(app, tenant, samples.pdf("Pears cost 3."), "prices.pdf", custom_id="prices")
    claim = take(app)
    with app.db.begin() as tx:
        text = documents.text_content("no file any more")
        documents.update(tx, tenant, id, DocumentChange(content=text))
    settle(app, claim, attempt(app, claim, process))
    drain(app)

    found = get(app, tenant, id)
    assert (found.kind, found.text) == ("text", "no file any more")


# --- crashes -----------------------------------------------------------------------------------


def test_a_fresh_worker_takes_over_where_the_lease_ran_out(app: App, tenant: Tenant) -> None:
    id = add(app, tenant, "hello")
    lost = take(app)
    assert drain(app) == 0
    age(app, tenant)

    assert drain(app) == 1

    assert get(app, tenant, id).status is Status.DONE
    assert isinstance(attempt(app, lost, process), LeaseLost)


def test_a_killed_worker_s_embeddings_are_used_by_the_next(
    app: App, tenant: Tenant, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.ingest.pipeline.BATCH", 2)
    id = add(app, tenant, story(*range(12)))
    claim = take(app)
    dying = replace(app, embedder=DyingEmbedder(after=3))
    with pytest.raises(Killed):
        process(dying, claim)
    age(app, tenant)
    embedder.forget()

    drain(app)

    changed = get(app, tenant, id).changed
    assert changed is not None
    assert (changed.reused, changed.embedded) == (6, changed.chunks - 6)
    assert len(embedder.texts) == changed.embedded


def test_a_document_that_kills_its_worker_each_time_is_buried(
    app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.ingest.pipeline.BATCH", 2)
    id = add(app, tenant, story(*range(12)))
    for _ in range(app.config.max_attempts):
        age(app, tenant)
        with pytest.raises(Killed):
            process(replace(app, embedder=DyingEmbedder(after=1)), take(app))
    age(app, tenant)
    assert rows_of(app, tenant, "entries") > 0

    assert drain(app) == 0

    found = get(app, tenant, id)
    assert (found.status, found.due_at) == (Status.FAILED, None)
    assert found.failure is not None
    assert found.failure.code == "worker_died"
    assert rows_of(app, tenant, "entries") == 0
    assert rows_of(app, tenant, "term_counts") == 0


def test_what_an_early_attempt_met_is_not_why_the_last_worker_died(
    app: App, tenant: Tenant
) -> None:
    id = add(app, tenant, "hello")
    settled(app, Unavailable("the endpoint does not answer"))
    for _ in range(app.config.max_attempts):
        age(app, tenant)
        take(app)
    age(app, tenant)

    drain(app)

    found = row(app, id)
    assert (found["status"], found["error_code"]) == ("failed", "worker_died")
    assert "while extracting it" in found["error_message"]


def test_a_claim_takes_no_more_than_asked_however_small_the_planner_believes_the_table(
    app: App, tenant: Tenant
) -> None:
    add(app, tenant, "the only one")
    with app.db.begin() as tx:
        tx.execute("analyze documents")
    for n in range(6):
        add(app, tenant, f"note {n}")

    assert take(app).document.status is Status.PROCESSING


# --- the loop, in threads ----------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone: nobody settles."""


class DyingEmbedder(WordEmbedder):
    """Takes the process down at a batch."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return super().embed(texts, query=query)


class GatedEmbedder(WordEmbedder):
    """Embeds once the gate is open, at the latest at the end of its `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.asked = threading.Event()
        """somebody waits at the gate"""
        self.came: list[threading.Event] = []
        """one for each who ever came"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        own = threading.Event()
        self.came.append(own)
        self.asked.set()
        while not (self.gate.wait(0.01) or own.is_set()):
            pass
        return super().embed(texts, query=query)

    def let_the_first_pass(self) -> None:
        self.came[0].set()


class AwayAtFirst(FolderBlobs):
    """A store that does not answer the first times."""

    asked = 0

    def older_than(self, age: timedelta) -> Iterator[str]:
        self.asked += 1
        if self.asked <= 3:
            raise Unavailable("the blob bucket does not answer")
        return super().older_than(age)


class MoodyEmbedder(WordEmbedder):
    """Like one that is down for a moment only, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if self.down:
            self.refused += 1
            raise Unavailable("overloaded", after=timedelta(milliseconds=20))
        return super().embed(texts, query=query)


@pytest.fixture
def own(app: App) -> Generator[App]:
    """An App with a sandbox of its own, since a stopping worker may close it."""
    with Sandbox(workers=2) as sandbox:
        config = app.config.model_copy(update={"workers": 2})
        yield replace(app, sandbox=sandbox, config=config)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two notes are worked together, as no two longer documents are."""
    monkeypatch.setattr("recollect.ingest.notes.TOGETHER", 1)


@contextmanager
def running(app: App) -> Generator[Worker]:
    made = Worker(app)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(60)
        assert not thread.is_alive()


def all_done(app: App, tenant: Tenant) -> Callable[[], bool]:
    def holds() -> bool:
        with app.db.begin() as tx:
            found = documents.counts(tx, tenant)
        return sum(found.values()) == found[Status.DONE]

    return holds


def test_two_workers_do_each_document_once(own: App, tenant: Tenant) -> None:
    ids = [add(own, tenant, f"note number {n}") for n in range(30)]
    with running(own), running(own):
        eventually(all_done(own, tenant))

    assert {row(own, id)["claims"] for id in ids} == {1}


class Endless(WordEmbedder):
    """Takes as long as it likes for what is large."""

    def __init__(self) -> None:
        super().__init__()
        self.end = threading.Event()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if any("endless" in text for text in texts):
            self.end.wait(60)
        return super().embed(texts, query=query)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("of", ["another organisation", "another tag"])
def test_long_documents_do_not_keep_others_waiting(
    own: App, tenant: Tenant, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "LONG", timedelta())
    monkeypatch.setattr(processing, "TICK", timedelta(seconds=0.1))
    embedder = Endless()
    for n in range(6):
        add(own, tenant, f"endless {n}")
    with fresh_org(own.db) as another, running(replace(own, embedder=embedder)):
        try:
            eventually(lambda: states(own, tenant)[Status.PROCESSING] == 3)
            waiting = tenant if of == "another tag" else Tenant(another.id)
            short = [add(own, waiting, f"short {n}", tag="letters") for n in range(3)]
            eventually(lambda: all(row(own, id)["status"] == "done" for id in short))
            assert states(own, tenant)[Status.PROCESSING] == 3
        finally:
            embedder.end.set()


@pytest.mark.usefixtures("apart")
def test_long_documents_do_not_keep_the_short_ones_of_their_tag_waiting(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "LONG", timedelta())
    monkeypatch.setattr(processing, "TICK", timedelta(seconds=0.1))
    embedder = Endless()
    long = [add(own, tenant, f"endless {n}") for n in range(own.config.workers)]
    short = [add(own, tenant, f"short {n}") for n in range(3)]
    with running(replace(own, embedder=embedder)):
        try:
            eventually(lambda: all(row(own, id)["status"] == "done" for id in short))
            assert {row(own, id)["status"] for id in long} == {"processing"}
        finally:
            embedder.end.set()


def states(app: App, tenant: Tenant) -> Mapping[Status, int]:
    with app.db.begin() as tx:
        return documents.counts(tx, tenant)


@pytest.mark.usefixtures("apart")
def test_documents_are_worked_side_by_side_but_no_more_than_asked(own: App, tenant: Tenant) -> None:
    gated = GatedEmbedder()
    for n in range(5):
        add(own, tenant, f"note {n}")
    with running(replace(own, embedder=gated)), gated:
        eventually(lambda: len(gated.came) == own.config.workers == 2)
        with own.db.begin() as tx:
            found = documents.counts(tx, tenant)
        assert (found[Status.PROCESSING], found[Status.QUEUED]) == (2, 3)
        gated.gate.set()
        eventually(all_done(own, tenant))


@pytest.mark.usefixtures("apart")
def test_a_free_place_is_taken_while_others_work_on(own: App, tenant: Tenant) -> None:
    gated = GatedEmbedder()
    for n in range(3):
        add(own, tenant, f"note {n}")
    with running(replace(own, embedder=gated)), gated:
        eventually(lambda: len(gated.came) == 2)
        gated.let_the_first_pass()

        eventually(lambda: len(gated.came) == 3)
        gated.gate.set()
        eventually(all_done(own, tenant))


def test_while_a_batch_is_stored_the_next_is_embedded(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.ingest.pipeline.BATCH", 2)
    gated = GatedEmbedder()
    id = add(own, tenant, story(*range(4)))
    with running(replace(own, embedder=gated)), gated:
        assert gated.asked.wait(60)
        with own.db.begin() as tx:
            tx.execute("select 1 from documents where id = %s for update", (id,))
            gated.let_the_first_pass()  # its batch cannot be stored before the lock is gone
            eventually(lambda: len(gated.came) == 2)
        gated.gate.set()
        eventually(all_done(own, tenant))

    changed = get(own, tenant, id).changed
    assert changed is not None
    assert len(gated.came) == -(-changed.chunks // 2)
    assert rows_of(own, tenant, "entries") == changed.chunks


@pytest.mark.parametrize("together", [1, 3])
def test_a_stage_is_shown_once_it_lasts(
    own: App, tenant: Tenant, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own.db.begin() as tx:  # for who watches, each would take one of the two places
        tx.execute("delete from watchers")
    monkeypatch.setattr("recollect.ingest.pipeline.BRIEF", 0.001)
    gated = GatedEmbedder()
    ids = [add(own, tenant, f"slow to embed {number}") for number in range(together)]
    with running(replace(own, embedder=gated)), gated:
        eventually(lambda: all(row(own, id)["stage"] == "embedding" for id in ids))
        gated.gate.set()
        eventually(all_done(own, tenant))

    assert all(row(own, id)["stage"] is None for id in ids)


@pytest.mark.parametrize(
    ("watched", "stage"), [(False, "extracting"), (True, "embedding")], ids=["unseen", "watched"]
)
def test_a_brief_stage_is_written_only_for_who_watches(
    own: App, tenant: Tenant, watched: bool, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.ingest.pipeline.BRIEF", HOUR.total_seconds())
    gated = GatedEmbedder()
    watcher = uuid.uuid4().hex
    with own.db.begin() as tx:
        tx.execute("delete from watchers")
        tx.execute(
            "insert into watchers (id, expires_at) values (%s, now() + %s)",
            (watcher, HOUR if watched else -HOUR),
        )
    id = add(own, tenant, "hello")
    with running(replace(own, embedder=gated)), gated:
        assert gated.asked.wait(60)
        shown = row(own, id)["stage"]
        gated.gate.set()
        eventually(all_done(own, tenant))
    with own.db.begin() as tx:
        tx.execute("delete from watchers where id = %s", (watcher,))

    assert shown == stage


def test_a_late_showing_never_follows_the_end(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.ingest.pipeline.BRIEF", 0.0)
    ids = [add(own, tenant, f"note {n}") for n in range(30)]
    with running(own):
        eventually(all_done(own, tenant))

    found = [row(own, id) for id in ids]
    assert {(one["status"], one["stage"], one["due_at"]) for one in found} == {("done", None, None)}


def test_a_waiting_worker_is_woken_by_new_content(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "TICK", HOUR)
    with running(own):
        eventually(lambda: listeners(own.db))
        add(own, tenant, "hello")

        eventually(all_done(own, tenant))


def test_the_heartbeat_keeps_a_slow_document_from_others(own: App, tenant: Tenant) -> None:
    gated = GatedEmbedder()
    # One place, so that it does not take it again itself, should its heart stop for a moment.
    lease = own.config.model_copy(update={"lease_seconds": 0.6, "workers": 1})
    id = add(own, tenant, "slow to embed")
    with running(replace(own, embedder=gated, config=lease)), gated:
        assert gated.asked.wait(60)
        first = row(own, id)["due_at"]

        def kept() -> bool:
            """From others, at a moment when the first lease is over and a later one is not."""
            with own.db.begin() as tx:
                found = tx.execute(
                    "select %s < now() and due_at > now() as outlasted from documents"
                    " where id = %s for update",
                    (first, id),
                ).fetchone()
                assert found is not None
                return found["outlasted"] and not documents.claim(
                    tx, lease=own.lease, limit=1, max_attempts=own.config.max_attempts
                )

        eventually(kept)
        gated.gate.set()
        eventually(all_done(own, tenant))

    assert row(own, id)["claims"] == 1


def test_an_endpoint_that_is_down_fails_nothing(own: App, tenant: Tenant) -> None:
    moody = MoodyEmbedder()
    moody.down = True
    ids = [add(own, tenant, f"note {n}") for n in range(5)]
    with running(replace(own, embedder=moody)):
        eventually(lambda: moody.refused > 3 * own.config.max_attempts)
        with own.db.begin() as tx:
            found = documents.counts(tx, tenant)
        assert found[Status.FAILED] == found[Status.DONE] == 0
        moody.down = False
        eventually(all_done(own, tenant))

    assert {row(own, id)["attempts"] for id in ids} == {1}
    assert {row(own, id)["error_code"] for id in ids} == {None}


def test_documents_wait_inline_while_the_endpoint_is_down(
    app: App, tenant: Tenant, embedder: WordEmbedder
) -> None:
    ids = [add(app, tenant, f"note {n}") for n in range(3)]
    embedder.down = True
    try:
        assert drain(app) == 3
    finally:
        embedder.down = False
    assert {row(app, id)["attempts"] for id in ids} == {0}
    age(app, tenant)

    assert drain(app) == 3
    assert {get(app, tenant, id).status for id in ids} == {Status.DONE}


def test_a_stopping_worker_finishes_what_it_holds(own: App, tenant: Tenant) -> None:
    gated = GatedEmbedder()
    id = add(own, tenant, "hello")
    with running(replace(own, embedder=gated)) as stopping, gated:
        assert gated.asked.wait(60)
        stopping.stop()
        gated.gate.set()

    assert row(own, id)["status"] == "done"


@pytest.mark.usefixtures("apart")
def test_a_stopping_worker_finishes_all_that_it_holds_and_claims_no_more(
    own: App, tenant: Tenant
) -> None:
    gated = GatedEmbedder()
    for n in range(6):
        add(own, tenant, f"note {n}")
    with running(replace(own, embedder=gated)) as stopping, gated:
        eventually(lambda: len(gated.came) == 2)
        stopping.stop()
        gated.gate.set()

    with own.db.begin() as tx:
        found = documents.counts(tx, tenant)
    assert (found[Status.DONE], found[Status.QUEUED]) == (2, 4)


def is_due(found: dict[str, Any]) -> bool:
    return found["status"] == "queued" and found["due"]


def test_a_stopping_worker_gives_back_what_it_cannot_finish(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing.Worker, "grace", timedelta(milliseconds=50))
    gated = GatedEmbedder()
    id = add(own, tenant, "hello")
    with running(replace(own, embedder=gated)) as stopping, gated:
        assert gated.asked.wait(60)
        stopping.stop()
        # Who begins to read just before it is given back sees it as due a moment later.
        given_back = eventually(lambda: is_due(found := row(own, id)) and found)
        assert given_back["attempts"] == 0
        assert drain(own) == 1
        gated.gate.set()

    found = row(own, id)
    assert (found["status"], found["claims"]) == ("done", 2)


@pytest.mark.one_server  # on Citus the role may not end the sessions of others
def test_a_worker_outlives_its_database_connections(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "PAUSE", timedelta(milliseconds=50))
    gated = GatedEmbedder()
    ids = [add(own, tenant, f"note {n}") for n in range(8)]
    with running(replace(own, embedder=gated)), gated:
        assert gated.asked.wait(60)
        cut_connections(own.db)
        gated.gate.set()
        eventually(all_done(own, tenant))

    assert {row(own, id)["attempts"] for id in ids} == {1}


def test_a_worker_waits_for_a_blob_store_that_is_away_at_its_start(
    own: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "TICK", timedelta(milliseconds=20))
    away = AwayAtFirst(Path(own.config.data_dir) / "blobs")
    with running(replace(own, blobs=away)):
        add(own, tenant, "hello")
        eventually(all_done(own, tenant))
        eventually(lambda: away.asked > 3)


class HangingDeletes(FolderBlobs):
    """Takes what is put there, and hangs over what is to go."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.gate = threading.Event(), threading.Event()

    def delete(self, key: str) -> None:
        self.asked.set()
        assert self.gate.wait(60)
        super().delete(key)


def test_a_store_that_hangs_over_a_deletion_holds_up_no_document(
    own: App, tenant: Tenant, tmp_path: Path
) -> None:
    hanging = HangingDeletes(tmp_path)
    key = blobs.new_key(tenant.id, b"bytes")
    hanging.put(key, b"bytes")
    with own.db.begin() as tx:
        tx.execute("insert into doomed_blobs (key) values (%s)", (key,))
    with running(replace(own, blobs=hanging)):
        assert hanging.asked.wait(60)
        add(own, tenant, "hello")
        eventually(all_done(own, tenant))
        assert hanging.has(key)
        hanging.gate.set()
        eventually(lambda: not hanging.has(key))


def test_a_file_that_the_store_keeps_holds_up_no_other(
    own: App, tenant: Tenant, tmp_path: Path
) -> None:
    store = FolderBlobs(tmp_path)
    kept, free = (blobs.new_key(tenant.id, name) for name in (b"kept", b"free"))
    (tmp_path / kept).mkdir(parents=True)  # as one that is locked
    store.put(free, b"free")
    with own.db.begin() as tx:
        tx.execute(
            "insert into doomed_blobs (key, doomed_at) values (%s, '2000-01-01'), (%s, now())",
            (kept, free),
        )

    with running(replace(own, blobs=store)):
        eventually(lambda: not store.has(free))

    with own.db.begin() as tx:  # for the next try, and for `verify` to tell
        left = tx.execute(
            "delete from doomed_blobs where key in (%s, %s) returning key", (kept, free)
        )
        assert [row["key"] for row in left] == [kept]


def test_a_file_that_the_store_kept_goes_when_it_is_let_go(
    own: App, tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although no other file is to be deleted meanwhile."""
    monkeypatch.setattr(processing, "SECOND_LOOK", timedelta())
    monkeypatch.setattr(processing, "TICK", timedelta(milliseconds=50))
    store = LockedOnce(tmp_path, tenant.id)
    key = blobs.new_key(tenant.id, b"locked")
    store.put(key, b"locked")
    doom(own, key)

    with running(replace(own, blobs=store)):
        eventually(lambda: not store.has(key))


def test_a_file_that_the_store_keeps_is_asked_for_once_an_hour(
    own: App, tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is deleted meanwhile: there may be many such files."""
    monkeypatch.setattr(processing, "TICK", timedelta(milliseconds=50))
    store = LockedOnce(tmp_path, tenant.id)
    locked, free = (blobs.new_key(tenant.id, name) for name in (b"locked", b"free"))
    store.put(locked, b"locked")
    store.put(free, b"free")
    with running(replace(own, blobs=store)):
        doom(own, locked)
        eventually(lambda: store.asked == [locked])
        doom(own, free)
        eventually(lambda: not store.has(free))

    assert store.asked == [locked, free]
    with own.db.begin() as tx:
        documents.forget_blobs(tx, [locked])


def doom(app: App, key: str) -> None:
    with app.db.begin() as tx:
        tx.execute("insert into doomed_blobs (key) values (%s)", (key,))


class LockedOnce(FolderBlobs):
    """Keeps the first file of an organisation that it is to delete, the first time."""

    def __init__(self, root: Path, org: OrgId) -> None:
        super().__init__(root)
        self._org = org
        self.asked: list[str] = []

    def delete(self, key: str) -> None:
        if not key.startswith(f"{self._org}/"):  # what other tests left in the database
            super().delete(key)
            return
        self.asked.append(key)
        if len(self.asked) == 1:
            raise Undeletable("locked")
        super().delete(key)


def test_a_lease_that_ran_out_under_a_worker_is_held_anew_by_it(own: App, tenant: Tenant) -> None:
    """As after an outage longer than a lease: the first try ends, the second goes on."""
    gated = GatedEmbedder()
    beating = own.config.model_copy(update={"lease_seconds": 0.6})
    patient = Patient(**{one.name: getattr(own, one.name) for one in fields(own)})
    id = add(own, tenant, "slow to embed")
    with running(replace(patient, embedder=gated, config=beating)), gated:
        assert gated.asked.wait(60)
        with own.db.begin() as tx:
            documents.release(tx, [Claim(get(own, tenant, id), 1, documents.text_content(""))])
        eventually(lambda: row(own, id)["claims"] == 2)
        gated.let_the_first_pass()
        until = {row(own, id)["due_at"]}

        def renewed() -> bool:
            until.add(row(own, id)["due_at"])
            return len(until) > 4

        eventually(renewed)
        gated.gate.set()
        eventually(all_done(own, tenant))

    assert row(own, id)["claims"] == 2


class Patient(App):
    """Its leases outlast any stop of the heart, however often that beats."""

    @property
    def lease(self) -> timedelta:
        return HOUR


def listeners(db: Database) -> int:
    with db.begin() as tx:
        found = tx.execute(
            "select count(*) as n from pg_stat_activity"
            " where datname = current_database() and query = 'listen recollect_due'"
        ).fetchone()
    assert found is not None
    return found["n"]


def cut_connections(db: Database) -> None:
    with db.begin() as tx:
        tx.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
