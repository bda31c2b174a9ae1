"""Change of the embedding model while everything goes on; see recollect/index/vector_index.py."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from recollect import documents
from recollect.app import App, index_identity
from recollect.blobs import FolderBlobs
from recollect.cli import admin, doctor
from recollect.cli import embedder as cli
from recollect.db import Database, Tx
from recollect.documents import DocumentChange, NewDocument
from recollect.errors import SetupError, Unavailable
from recollect.index import embedder, missing_vectors, model_switch, terms, vector_index
from recollect.index.embedder import FRESH, IndexEmbedder
from recollect.inference.embed import Embedder
from recollect.memories import finding, memories
from recollect.memories.records import Fact, MemoryQuery
from recollect.model import DocumentId, Failure, Hit, Plan, Status, Tenant, random_id
from recollect.ops import backup as backups
from recollect.ops import verify
from recollect.orgs import orgs, settings, tags
from recollect.search import candidates, hybrid
from recollect.worker import model_change
from recollect.worker.processing import Worker, drain
from tests.chaos.test_crash import children, part_of
from tests.conftest import Service, eventually, start_service, stop_service
from tests.db.test_rows import vectors_beside_rows
from tests.fakes.killing import kill
from tests.fakes.models import Killed, Model, endpoint, large, small
from tests.search.test_query_plans import ExplainingCursor, Undo, fill, one

NOUNS = "orchard kettle lantern harbour granite violin meadow copper thistle anchor walnut ribbon"
WORDS = [*NOUNS.split(), "saddle", "marble", "turnip", "feather", "bramble", "cobble", "mitten"]
QUERY = "harbour granite violin"


@dataclass
class Ground:
    """A service without its edges: a database, two models, and processes made at will."""

    app: App
    tenant: Tenant
    small: Model
    large: Model

    def process(self, *, knows: bool = True) -> App:
        """An App as another process has it; `knows`: how to reach what the index names."""
        known = {"small": self.small, "large": self.large}

        def opened(choice: vector_index.Choice) -> Embedder:
            if not knows:
                raise SetupError("never heard of it")
            return known[choice["model"]]

        return replace(self.app, embedder=IndexEmbedder(self.app.db, self.small, opened))

    def add(self, text: str, app: App | None = None) -> DocumentId:
        with (app or self.app).db.begin() as tx:
            new = NewDocument(documents.text_content(text), ["notes"])
            return documents.add(tx, self.tenant, new, DocumentId(random_id())).id

    def remember(self, text: str, app: App | None = None) -> None:
        here = app or self.app
        assert here.embedder is not None
        vector = here.embedder.embed([text])[0]
        fact = Fact(text, terms.weigh(self.tenant.id, text), vector)
        with here.db.begin() as tx:
            memories.add(tx, self.tenant, "notes", [fact], DocumentId(random_id()))

    def ask(self, app: App, text: str = QUERY) -> tuple[list[Hit], set[str]]:
        """The hits of a process, and the models whose vectors they were found by."""
        assert app.embedder is not None
        vector = app.embedder.embed([text], query=True)[0]
        with app.db.begin() as tx:
            hits = hybrid.search(tx, self.tenant, hybrid.Query(text, vector, limit=20))
        shown = {self.small.name, self.large.name}
        for chunk in [chunk for hit in hits for chunk in hit.chunks]:
            if chunk.similarity is None:  # an orphan of a model: nobody made this vector
                return hits, set()
            shown &= {
                model.name
                for model in (self.small, self.large)
                if abs(model.likeness(text, chunk.text) - chunk.similarity) < 0.01
            }
        return hits, shown

    def recall(self, app: App, text: str = QUERY) -> list[finding.FoundMemory]:
        assert app.embedder is not None
        vector = app.embedder.embed([text], query=True)[0]
        with app.db.begin() as tx:
            return finding.search(tx, self.tenant, text, vector, MemoryQuery(limit=20))

    def switch(self) -> None:
        with self.app.db.begin() as tx:
            model_switch.switch(tx, self.large.name, 80, choice("large"), choice("small"))

    def finish(self) -> None:
        """Some seconds later."""
        with self.app.db.begin() as tx:
            tx.execute("update index_settings set flipped_at = flipped_at - interval '1 minute'")
            model_switch.finish(tx)

    def work(self, app: App | None = None) -> int:
        """All steps that are due, inline; how many."""
        steps, here = 0, app or self.app
        while model_change.step(here):
            steps += 1
        return steps

    def index(self) -> vector_index.Index:
        with self.app.db.begin() as tx:
            found = vector_index.read(tx)
        assert found is not None
        return found

    def rows(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        with self.app.db.begin() as tx:
            return tx.execute(cast("Any", statement), parameters).fetchall()

    def one(self, statement: str, *parameters: object) -> Any:
        [row] = self.rows(statement, *parameters)
        [value] = row.values()
        return value

    def texts(self) -> list[str]:
        """All that has a vector."""
        return sorted(
            row["text"]
            for row in self.rows("select text from entries union all select content from memories")
        )

    def lacking(self, column: str) -> int:
        return self.one(
            f"select (select count(*) from entries where {column} is null)"
            f" + (select count(*) from memories where {column} is null)"
        )

    def indexes(self) -> set[str]:
        rows = self.rows(
            "select c.relname as name from pg_index i join pg_class c on c.oid = i.indexrelid"
            " where i.indrelid = 'entries'::regclass and i.indisvalid"
        )
        return {row["name"] for row in rows} & set(vector_index.INDEXES.values())

    def damage(self) -> dict[str, int]:
        done = verify.verify(self.app.db, self.app.blobs)
        return {finding.kind: finding.count for finding in done.findings}


def choice(model: str) -> dict[str, Any]:
    return {"kind": "openai", "url": None, "key": None, "model": model, "dimensions": None}


def prose(n: int) -> str:
    made = random.Random(n)
    return " ".join(made.choices(WORDS, k=14)) + f" note{n}"


def book(n: int, parts: int = 6) -> str:
    """Of several chunks."""
    return "\n\n".join(
        prose(n * 1000 + part) + " " + "so it went on " * 60 for part in range(parts)
    )


@pytest.fixture
def ground(app: App, new_database: Callable[[], str], tmp_path: Path) -> Generator[Ground]:
    with standing(app, new_database(), tmp_path) as made:
        yield made


@contextmanager
def standing(app: App, url: str, folder: Path) -> Generator[Ground]:
    """On an empty database, or on a copy of one that this has filled."""
    first, second = small(), large()
    with Database(url, size=24) as database:
        with database.begin() as tx:
            vector_index.adopt(tx, *index_identity(first))
            row = tx.execute("select id from orgs where name = 'switching'").fetchone()
            id = row["id"] if row else orgs.create(tx, "switching", Plan.ENTERPRISE).id
            tenant = Tenant(id)
            tags.ensure(tx, tenant.id, ["notes"])
        config = app.config.model_copy(
            update={"workers": 2, "lease_seconds": 120.0, "data_dir": folder}
        )
        here = replace(app, db=database, config=config, blobs=FolderBlobs(folder / "blobs"))
        made = Ground(here, tenant, first, second)
        made.app = made.process()
        yield made


@pytest.fixture(scope="module")
def pattern(
    app: App, new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A database with documents of one chunk and of several, and memories."""
    url = new_database()
    with standing(app, url, tmp_path_factory.mktemp("pattern")) as ground:
        for n in range(40):
            ground.add(prose(n))
        for n in range(2):
            ground.add(book(n))
        for n in range(8):
            ground.remember(prose(5000 + n))
        drain(ground.app)
        assert ground.damage() == {}
    return url


@pytest.fixture
def filled(
    app: App, pattern: str, copy_database: Callable[[str], str], tmp_path: Path
) -> Generator[Ground]:
    """With what is in the pattern."""
    with standing(app, copy_database(pattern), tmp_path) as made:
        yield made


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


# --- all the way -------------------------------------------------------------------------------


@pytest.mark.one_server
def test_the_model_changes_without_a_restart(filled: Ground) -> None:
    api = filled.process()
    assert filled.ask(api)[1] == {filled.small.name}

    filled.switch()
    assert filled.index().phase == "building"
    assert filled.ask(api)[1] == {filled.small.name}
    filled.work()

    index = filled.index()
    assert (index.phase, index.used.name, index.used.slot) == ("kept", filled.large.name, "b")
    hits, _ = eventually(lambda: asked_of(filled, api, filled.large))
    assert hits
    assert filled.recall(api)
    assert sorted(filled.large.texts) == filled.texts()
    assert filled.small.texts == []
    assert filled.indexes() == {"entries_embedding", "entries_embedding_b"}
    assert filled.damage() == {}


def asked_of(ground: Ground, app: App, model: Model) -> Any:
    found = ground.ask(app)
    return found if found[1] == {model.name} else None


def test_what_only_older_texts_have_is_found_by_its_words_after_a_change(ground: Ground) -> None:
    with ground.app.db.begin() as tx:
        settings.patch(tx, ground.tenant.id, {"keepVersions": 3}, keys=[b"k" * 32])
    id = ground.add(book(1))
    drain(ground.app)

    def past(app: App, text: str, nth: int = -1) -> list[Hit]:
        assert app.embedder is not None
        vector = app.embedder.embed([text], query=True)[0]
        with app.db.begin() as tx:
            when = documents.versions(tx, ground.tenant, id)[nth].known_from
            query = hybrid.Query(text, vector, limit=20, as_of=when)
            return hybrid.search(tx, ground.tenant, query)

    def cosines(app: App) -> set[bool]:
        [hit] = past(app, "note1000")
        assert "note1000" in hit.chunks[0].text
        return {chunk.similarity is None for chunk in hit.chunks}

    with ground.app.db.begin() as tx:
        content = documents.text_content(prose(7))
        documents.update(tx, ground.tenant, id, DocumentChange(content=content))
    drain(ground.app)
    assert cosines(ground.app) == {False}

    ground.switch()
    ground.work()
    api = ground.process()
    eventually(lambda: asked_of(ground, api, ground.large))
    assert cosines(api) == {True}
    ground.finish()
    assert cosines(api) == {True}
    with ground.app.db.begin() as tx:  # and what is edited now keeps the vectors of its model
        content = documents.text_content(book(2))
        documents.update(tx, ground.tenant, id, DocumentChange(content=content))
    drain(api)
    [hit] = past(api, "note7", nth=1)
    assert {chunk.similarity is None for chunk in hit.chunks} == {False}


def test_two_processes_share_the_work_and_embed_each_text_once(filled: Ground) -> None:
    filled.switch()
    with running(filled.process()), running(filled.process()):
        eventually(lambda: filled.index().phase == "kept")

    assert sorted(filled.large.texts) == filled.texts()


def test_what_is_added_meanwhile_gets_both_vectors_at_once(filled: Ground) -> None:
    filled.switch()
    writer = filled.process()
    with filled.app.db.begin() as tx:
        assert missing_vectors.plan(tx)
        tx.execute("update vector_gaps set due_at = 'infinity'")  # nobody fills them now
    gaps = filled.one("select count(*) from vector_gaps")
    id = filled.add(prose(700))
    drain(writer)
    filled.remember(prose(701), writer)

    both = "embedding is not null and embedding_b is not null"
    assert filled.one(f"select {both} from entries where document_id = %s", id)
    assert filled.one(f"select {both} from memories where content = %s", prose(701))
    assert filled.one("select count(*) from vector_gaps") == gaps


def test_a_writer_that_has_not_heard_of_it_leaves_nothing_behind(filled: Ground) -> None:
    deaf = replace(filled.app, embedder=filled.small)  # as before the switch, and forever
    filled.switch()
    while filled.one("select count(*) from vector_gaps where claims = 0") or not filled.one(
        "select planned_at is not null from index_settings"
    ):
        model_change.step(filled.app)
    id = filled.add(prose(800))
    drain(deaf)
    filled.remember(prose(801), deaf)
    assert filled.lacking("embedding_b")
    with filled.app.db.begin() as tx:
        assert not model_switch.flip(tx), "it would have flipped with vectors missing"

    filled.work()

    assert filled.index().phase == "kept"
    assert filled.lacking("embedding_b") == filled.lacking("embedding") == 0
    # Now it writes vectors of the model before: those of the other are lacking in turn.
    later = filled.add(prose(802))
    drain(replace(filled.app, embedder=cast("Any", Stale(filled.small))))
    assert filled.one("select embedding_b is null from entries where document_id = %s", later)
    filled.work()
    assert filled.lacking("embedding_b") == filled.lacking("embedding") == 0
    assert filled.one("select count(*) from entries where document_id = %s", id) == 1


class Stale:
    """A process that goes on with the model that it saw last."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.dimensions = model.name, model.dimensions

    def embed(self, texts: list[str], *, query: bool = False) -> vector_index.ModelVectors:
        return vector_index.ModelVectors.of(self._model.embed(texts, query=query), self.name)


# --- under load --------------------------------------------------------------------------------


class Load:
    """Threads that add, edit and delete, and threads that search, until the end of the block."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.stop = threading.Event()
        self.faults: list[str] = []
        self.searches: list[tuple[str, ...]] = []
        self.writes = 0
        self._threads = [
            threading.Thread(target=self._surely, args=(work, number))
            for work, number in [*((self._write, n) for n in range(4)), (self._search, 9)]
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(60)
        assert self.faults == []

    def _surely(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 # a thread has nobody to raise to
            self.faults.append(f"{work.__name__}: {error!r}")

    def _write(self, number: int) -> None:
        ground, chance = self.ground, random.Random(number)
        app = ground.process()
        mine: list[DocumentId] = []
        while not self.stop.wait(0.02):
            n = 10_000 * (number + 1) + self.writes
            doing = chance.random()
            if doing < 0.5 or not mine:
                mine.append(ground.add(book(n) if chance.random() < 0.1 else prose(n)))
            elif doing < 0.75:
                change = DocumentChange(content=documents.text_content(prose(n)))
                with app.db.begin() as tx:
                    documents.update(tx, ground.tenant, chance.choice(mine), change)
            elif doing < 0.9:
                with app.db.begin() as tx:
                    documents.delete(tx, ground.tenant, [mine.pop()])
            else:
                ground.remember(prose(n), app)
            self.writes += 1

    def _search(self, number: int) -> None:
        app = self.ground.process()
        while not self.stop.wait(0.01):
            hits, models = self.ground.ask(app)
            if not hits or not models:
                self.faults.append(f"{len(hits)} hits of {models or 'several models'}")
            if len(models) == 1:
                self.searches.append(tuple(models))
            self.ground.recall(app)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_searches_are_of_one_model_while_four_threads_write(filled: Ground) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(running(filled.process()))
        load = stack.enter_context(Load(filled))
        eventually(lambda: load.writes > 40)
        filled.switch()
        eventually(lambda: filled.index().phase == "kept", 120)
        eventually(lambda: load.searches[-1] == (filled.large.name,))
        with filled.app.db.begin() as tx:
            model_switch.rollback(tx)
        eventually(lambda: load.searches[-1] == (filled.small.name,))
        filled.switch()
        assert filled.index().phase == "kept"
        eventually(lambda: load.searches[-1] == (filled.large.name,))
        eventually(lambda: finished(filled))
        eventually(lambda: filled.index().phase is None, 180)
        written = load.writes
        eventually(lambda: load.writes > written + 40)
        load.stop.set()
        eventually(all_done(filled))
        eventually(lambda: filled.one("select count(*) from vector_gaps") == 0)

    assert filled.index().used.name == filled.large.name
    assert filled.lacking("embedding_b") == 0
    assert filled.one("select count(*) from entries where embedding is not null") == 0
    assert filled.one("select count(*) from memories where embedding is not null") == 0
    assert filled.indexes() == {"entries_embedding_b"}
    assert filled.damage() == {}


def finished(ground: Ground) -> bool:
    with contextlib.suppress(SetupError), ground.app.db.begin() as tx:
        model_switch.finish(tx)
        return True
    return False


def all_done(ground: Ground) -> Callable[[], bool]:
    def holds() -> bool:
        with ground.app.db.begin() as tx:
            found = documents.counts(tx, ground.tenant)
        return sum(found.values()) == found[Status.DONE]

    return holds


# --- when something goes wrong -----------------------------------------------------------------


def test_a_worker_killed_in_the_middle_loses_a_batch_at_most(
    filled: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_change, "BATCH", 16)
    filled.switch()
    filled.large.dies_after = 3
    with pytest.raises(Killed):
        filled.work()
    filled.large.dies_after = None
    total = len(filled.texts())
    assert total - filled.lacking("embedding_b") == len(filled.large.texts) - 16 > 16
    other = filled.process()
    filled.work(other)
    assert filled.index().phase == "building", "what the dead one holds is not done"

    with filled.app.db.begin() as tx:
        tx.execute("update vector_gaps set due_at = now()")  # its lease is over
    filled.work(other)

    assert filled.index().phase == "kept"
    texts = filled.texts()
    assert set(filled.large.texts) == set(texts)
    assert len(filled.large.texts) <= len(texts) + 16
    assert filled.damage() == {}


def test_a_new_model_that_is_down_disturbs_nobody(
    filled: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("PAUSE", "TICK"):
        monkeypatch.setattr(f"recollect.worker.processing.{pause}", timedelta(seconds=0.2))
    filled.switch()
    filled.large.down = True
    with pytest.raises(Unavailable):
        filled.work()
    id = filled.add(prose(900))
    with running(filled.process()):
        eventually(all_done(filled))

        assert filled.one("select chunks from documents where id = %s", id) == 1
        assert filled.ask(filled.process())[1] == {filled.small.name}
        with filled.app.db.begin() as tx:
            progress = model_switch.progress(tx)
        assert progress.failure is not None
        assert "does not answer" in progress.failure.message
        filled.large.down = False
        eventually(lambda: filled.index().phase == "kept")

    assert filled.lacking("embedding_b") == 0


def test_a_new_model_that_hangs_is_left_alone_for_longer(
    filled: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "REST", 0.0)
    monkeypatch.setattr(embedder, "SHARE", 10_000)
    filled.switch()
    writer = filled.process()
    filled.large.slow, filled.large.down = 0.05, True
    filled.remember(prose(970), writer)
    filled.large.slow, filled.large.down = 0.0, False
    filled.remember(prose(971), writer)
    assert filled.large.texts == []

    filled.work()
    assert filled.index().phase == "kept"


def test_a_text_that_the_new_model_refuses_keeps_the_old_one_in_use(filled: Ground) -> None:
    filled.large.refuses = "note7"
    filled.switch()
    filled.work()

    assert filled.index().phase == "building"
    refused = filled.one("select count(*) from entries where text like '%%note7%%'")
    assert filled.one("select count(*) from entries where embedding_b is null") == refused
    with filled.app.db.begin() as tx:
        progress = model_switch.progress(tx)
        tx.execute("update vector_gaps set due_at = now()")
    assert progress.failure is not None
    assert progress.failure.code == "embedding_refused"
    filled.large.refuses = None
    filled.work()
    assert filled.index().phase == "kept"


def test_texts_behind_refused_ones_get_their_vectors(
    filled: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_change, "BATCH", 1)
    filled.large.refuses = "note7"
    refused = filled.one("select count(*) from entries where text like '%%note7%%'")
    filled.switch()

    def work() -> bool:
        filled.work()
        with filled.app.db.begin() as tx:
            tx.execute("update vector_gaps set due_at = now()")
        return filled.lacking("embedding_b") == refused

    assert refused
    assert any(work() for _ in range(200))


def test_a_text_that_the_new_model_fails_at_holds_up_itself_alone(filled: Ground) -> None:
    """As where it answers 500 to it, or 200 with an error, or a vector of NaN: not Permanent."""
    filled.large.fails_at = "note7"
    failing = filled.one("select count(*) from entries where text like '%%note7%%'")
    filled.switch()
    filled.work()

    assert filled.index().phase == "building"
    assert filled.one("select count(*) from entries where embedding_b is null") == failing
    with filled.app.db.begin() as tx:
        progress = model_switch.progress(tx)
    assert progress.failure is not None
    assert progress.failure.code == "embedding_refused"
    held = filled.one("select document_id from entries where text like '%%note7'")
    assert progress.failure.message.startswith(f"{held}: ")
    with filled.app.db.begin() as tx:
        documents.delete(tx, filled.tenant, [DocumentId(held)])
        tx.execute("update vector_gaps set due_at = now()")
    filled.work()
    assert filled.index().phase == "kept"


def test_vectors_of_one_model_are_stored_while_the_other_is_down(filled: Ground) -> None:
    filled.switch()
    filled.work()
    with filled.app.db.begin() as tx:
        tx.execute("update entries set embedding = null, embedding_b = null")
        for row in tx.execute("select id from documents").fetchall():
            missing_vectors.note(tx, "entries", row["id"])
    filled.small.down = True
    for _ in range(filled.one("select count(*) from documents")):
        with pytest.raises(Unavailable):
            filled.work()

    assert filled.one("select count(*) from entries where embedding_b is null") == 0
    filled.small.down = False
    filled.work()
    assert filled.lacking("embedding") == 0


def test_vectors_of_other_dimensions_than_agreed_are_not_stored(filled: Ground) -> None:
    filled.switch()
    filled.large.dimensions = 96  # its endpoint runs another model under the name
    with pytest.raises(Unavailable, match="of 96 dimensions, the index has 80"):
        filled.work()
    filled.add(prose(950))
    with running(filled.process()):
        eventually(all_done(filled))

    assert filled.one("select count(*) from entries where embedding_b is not null") == 0
    filled.large.dimensions = 80
    filled.work()
    assert filled.index().phase == "kept"
    assert filled.lacking("embedding_b") == 0


def test_a_change_that_was_given_up_leaves_no_index_behind(filled: Ground) -> None:
    filled.switch()
    index = filled.index()
    with filled.app.db.begin() as tx:
        model_switch.rollback(tx)
    filled.work()

    assert not model_switch.build_beside(filled.app.db, index), "a worker that was slow to hear"
    assert filled.indexes() == {"entries_embedding"}


def test_why_the_vector_index_is_not_built_is_told(
    filled: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was in the log alone, and the change seemed to go on for ever."""

    def told(*, as_json: bool = False) -> str:
        with filled.app.db.begin() as tx:
            found = model_switch.progress(tx)
        cli._show(found, as_json=as_json)
        return capsys.readouterr().out

    filled.switch()
    with filled.app.db.begin() as tx:
        tx.execute("create table entries_embedding_b ()")  # in the place of the index
    with pytest.raises(psycopg.errors.WrongObjectType):
        filled.work()

    assert filled.index().phase == "building"
    assert "; the last try failed: " in told()
    waits = json.loads(told(as_json=True))
    assert (waits["phase"], waits["left"], waits["waiting"]) == ("building", 0, 0)
    assert "is not an index" in waits["reason"]

    with filled.app.db.begin() as tx:
        tx.execute("drop table entries_embedding_b")
    filled.work()
    assert filled.index().phase == "kept"
    assert json.loads(told(as_json=True))["reason"] is None


def test_an_index_that_fails_after_its_change_was_given_up_is_no_news(
    filled: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` told of it until the next change."""
    filled.switch()

    def give_up(*_: Any) -> None:
        with filled.app.db.begin() as tx:
            model_switch.rollback(tx)
        raise Unavailable("the disk is full")

    monkeypatch.setattr(model_switch, "index_definition", give_up)
    with pytest.raises(Unavailable):
        filled.work()
    monkeypatch.undo()

    def cleared() -> bool:
        filled.work()  # once the server has ended the session that built
        return filled.index().phase is None

    eventually(cleared)
    with filled.app.db.begin() as tx:
        found = model_switch.progress(tx)
    assert found.index is not None
    assert (found.index.phase, found.failure) == (None, None)


@pytest.mark.parametrize(("size", "told"), [(1_600_000, "1.6 MB"), (400_000_000, "0.40 GB")])
def test_what_a_switch_costs_is_told_of_small_installations_too(
    size: int, told: str, capsys: pytest.CaptureFixture[str]
):
    """All below five megabytes was 0.00 GB."""
    cli._tell_cost("other", 384, model_switch.Estimate(1278, size, 0, 2 * size))

    assert f"about {told} of disk for its vectors" in capsys.readouterr().err


def test_who_stops_waiting_for_a_change_is_told_that_it_goes_on(
    filled: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_PAUSE", Interrupted())
    filled.switch()
    with pytest.raises(KeyboardInterrupt):
        cli._awaited(filled.app.db)
    assert "the workers go on" in capsys.readouterr().err


def test_who_stops_a_reindex_is_told_that_the_workers_embed_the_rest(
    filled: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setenv("RECOLLECT_DATABASE_URL", filled.app.db.url)
    monkeypatch.setattr(admin, "open_embedder_of", lambda *_: filled.small)
    monkeypatch.setattr(admin, "embed_memories", interrupted)
    with pytest.raises(KeyboardInterrupt):
        admin.reindex(yes=True)
    assert "stopped: the workers embed the rest" in capsys.readouterr().err


def test_a_reindex_that_is_run_again_counts_what_the_first_one_queued(filled: Ground) -> None:
    with filled.app.db.begin() as tx:
        first = documents.reindex(tx)
        assert first > 0
        assert documents.reindex(tx) == first


def test_memories_that_a_killed_reindex_did_not_get_to_are_embedded_by_the_workers(
    ground: Ground,
) -> None:
    for n in range(3):
        ground.remember(f"Ann rows boat {n}")
    for model in (ground.large, ground.small):
        with ground.app.db.begin() as tx:  # as `recollect reindex` begins; then it is killed
            vector_index.rebind(tx, *index_identity(model))
            documents.reindex(tx)
            memories.forget_vectors(tx)
    drain(ground.app)
    ground.work()
    lacking = "select count(*) from memories where embedding is null"
    assert ground.one(lacking) == 0
    assert ground.one("select count(*) from vector_gaps") == 0

    with ground.app.db.begin() as tx:
        vector_index.rebind(tx, *index_identity(None))
        memories.forget_vectors(tx)
        assert not missing_vectors.wanted(tx), "no model makes them"


def test_a_missing_vector_that_no_gap_names_stops_the_flip(filled: Ground) -> None:
    filled.switch()
    with filled.app.db.begin() as tx:
        missing_vectors.plan(tx)
        tx.execute("delete from vector_gaps")  # as after a restore into another collation
    filled.work()

    assert filled.index().phase == "kept"
    assert filled.lacking("embedding_b") == 0


def test_a_model_that_a_process_cannot_reach_is_named(filled: Ground) -> None:
    filled.switch()
    filled.work()
    lost = filled.process(knows=False)

    with pytest.raises(Unavailable, match=r"openai:large cannot be opened: never heard of it"):
        filled.ask(lost)


# --- back, and to the end ----------------------------------------------------------------------


def test_a_rollback_is_at_once_and_has_what_was_written_meanwhile(filled: Ground) -> None:
    filled.switch()
    filled.work()
    id = filled.add("the cassowary sits in parliament")
    drain(filled.process())
    with filled.app.db.begin() as tx:
        model_switch.rollback(tx)

    hits, models = filled.ask(filled.process(), "cassowary parliament")
    assert models == {filled.small.name}
    assert hits[0].document.id == id
    assert filled.index().phase == "returned"
    with filled.app.db.begin() as tx, pytest.raises(SetupError, match="again already"):
        model_switch.rollback(tx)
    embedded = len(filled.large.texts)
    filled.switch()
    assert filled.ask(filled.process())[1] == {filled.large.name}
    assert len(filled.large.texts) == embedded


def test_giving_up_leaves_nothing_of_the_new_model(filled: Ground) -> None:
    filled.switch()
    for _ in range(3):
        model_change.step(filled.app)
    with filled.app.db.begin() as tx:
        model_switch.rollback(tx)
    with filled.app.db.begin() as tx, pytest.raises(SetupError, match="in a moment"):
        model_switch.switch(tx, filled.large.name, 80, choice("large"), choice("small"))
    filled.work()

    index = filled.index()
    assert (index.phase, index.other, index.used.name) == (None, None, filled.small.name)
    assert filled.one("select count(*) from vector_gaps") == 0
    assert filled.one("select count(*) from entries where embedding_b is not null") == 0
    assert filled.ask(filled.app)[1] == {filled.small.name}
    assert filled.damage() == {}
    filled.large.texts.clear()
    filled.switch()
    filled.work()
    assert filled.index().phase == "kept"


def test_after_the_end_the_next_change_goes_the_other_way(filled: Ground) -> None:
    filled.switch()
    filled.work()
    filled.finish()
    filled.work()
    assert filled.indexes() == {"entries_embedding_b"}
    with filled.app.db.begin() as tx:
        model_switch.switch(tx, filled.small.name, 48, choice("small"), choice("large"))
    filled.work()

    index = filled.index()
    assert (index.phase, index.used.name, index.used.slot) == ("kept", filled.small.name, "a")
    assert filled.ask(filled.process())[1] == {filled.small.name}
    assert sorted(filled.small.texts) == filled.texts()
    assert filled.damage() == {}
    assert vectors_beside_rows(filled.app) == []


def test_a_search_under_way_is_not_robbed_of_its_vectors(filled: Ground) -> None:
    filled.switch()
    filled.work()
    assert filled.app.embedder is not None
    old = vector_index.ModelVectors.of(filled.small.embed([QUERY], query=True), filled.small.name)[
        0
    ]
    with filled.app.db.begin() as slow:
        column = vector_index.sought(slow, "entries", old).column
        filled.finish()
        with pytest.raises(Unavailable, match="in use"):
            filled.work()
        found = slow.execute(
            cast("Any", "select count(*) as n from entries where embedding is not null")
        )
        assert column.as_string() == '"embedding"'
        assert found.fetchone()["n"] > 0  # pyright: ignore[reportOptionalSubscript]
    filled.work()

    assert filled.index().phase is None
    with filled.app.db.begin() as tx, pytest.raises(Unavailable, match="ask again"):
        hybrid.search(tx, filled.tenant, hybrid.Query(QUERY, old))


@pytest.mark.parametrize("phase", ["building", "kept"])
def test_what_is_deleted_is_gone_from_both(filled: Ground, phase: str) -> None:
    filled.switch()
    model_change.step(filled.app)
    model_change.step(filled.app)
    if phase == "kept":
        filled.work()
    with filled.app.db.begin() as tx:
        documents.delete_all(tx, filled.tenant)

    assert (
        filled.one("select (select count(*) from entries) + (select count(*) from memories)") == 0
    )
    filled.work()
    assert filled.index().phase == "kept"
    assert filled.one("select count(*) from vector_gaps") == 0


# --- what else knows of the two slots ----------------------------------------------------------


def test_verify_finds_and_mends_what_is_wrong_beside(filled: Ground) -> None:
    filled.switch()
    filled.work()
    with filled.app.db.begin() as tx:
        tx.execute("update entries set embedding = null where text like '%note1%'")
    assert filled.damage().keys() == {"vector_beside_missing"}
    verify.verify(filled.app.db, filled.app.blobs, mend=True)
    filled.work()
    assert filled.damage() == {}
    assert filled.lacking("embedding") == 0

    filled.finish()
    filled.work()
    with filled.app.db.begin() as tx:
        tx.execute("update entries set embedding = '[1,2]' where text like '%note3%'")
    assert filled.damage().keys() == {"vector_left_over"}
    verify.verify(filled.app.db, filled.app.blobs, mend=True)
    assert filled.damage() == {}


def test_a_bundle_is_of_the_model_in_use(
    filled: Ground, new_database: Callable[[], str], tmp_path: Path
) -> None:
    filled.switch()
    filled.work()
    bundle = backups.export(
        filled.app.db.url, filled.app.blobs, tmp_path / "bundle", org="switching"
    )
    assert bundle.embedder is not None
    assert bundle.embedder.name == filled.large.name

    with Database(new_database(), size=8) as database:
        with database.begin() as tx:
            vector_index.adopt(tx, *index_identity(filled.large))
            orgs.create(tx, "there", Plan.ENTERPRISE)
        filled.large.texts.clear()
        there = replace(filled.app, db=database, embedder=filled.large)
        brought = backups.bring(there, tmp_path / "bundle", org="there")
        assert brought.embedded == 0
        assert brought.memories == 8
        assert filled.large.texts == []
        with database.begin() as tx:
            row = tx.execute(
                "select count(*) filter (where vector_dims(embedding) = 80) as held,"
                " count(*) as n from entries"
            ).fetchone()
        assert row is not None
        assert row["held"] == row["n"] > 40


@pytest.mark.parametrize("phase", ["building", "kept"])
def test_a_backup_goes_on_where_it_was(
    filled: Ground, empty: str, tmp_path: Path, phase: str
) -> None:
    filled.switch()
    for _ in range(3):
        model_change.step(filled.app)
    if phase == "kept":
        filled.work()
    made = backups.backup(
        filled.app.db.url, filled.app.blobs, tmp_path / "saved.zip", sealed_with=""
    )
    before = len(filled.large.texts)
    with backups.Archive(made.path) as archive:
        backups.restore(archive, empty, FolderBlobs(tmp_path / "restored"))

    with Database(empty, size=8) as database:
        filled.app = replace(filled.app, db=database)
        filled.app = filled.process()
        assert filled.index().phase == phase
        filled.work()
        assert filled.index().phase == "kept"
        assert filled.ask(filled.app)[1] == {filled.large.name}
        assert filled.lacking("embedding") == filled.lacking("embedding_b") == 0
        assert filled.indexes() == {"entries_embedding", "entries_embedding_b"}
        total = len(filled.texts())
        assert len(filled.large.texts) == total
        assert phase == "building" or before == total


@pytest.fixture
def empty(postgres_url: str) -> Generator[str]:
    """A database without any table."""
    name = f"empty_{random_id().lower()}"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(cast("Any", f'create database "{name}"'))
    yield make_conninfo(postgres_url, dbname=name)
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(cast("Any", f'drop database "{name}" with (force)'))


@pytest.mark.one_server
def test_the_second_slot_is_walked_by_its_index(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "EXACT_UP_TO", 100)
    monkeypatch.setattr(candidates, "MOST_VISITS", 10**9)
    monkeypatch.setattr(candidates, "VISIT", 0)
    with ground.app.db.begin() as tx:
        vector_index.rebind(tx, "fake:noise", 16)
        fill(tx, ground.tenant, 1_200)
        model_switch.switch(tx, ground.large.name, 16, choice("large"), choice("small"))
        tx.execute(
            "update entries set embedding_b"
            " = coalesce(embedding, array_fill(1, array[16])::vector::halfvec)"
        )
        missing_vectors.plan(tx)
        tx.execute("delete from vector_gaps")
    assert model_switch.build_beside(ground.app.db, ground.index())
    with ground.app.db.begin() as tx:
        assert model_switch.flip(tx)
    with psycopg.connect(ground.app.db.url, autocommit=True) as session:
        session.execute("vacuum analyze")
    noise = np.random.default_rng(7).normal(size=16).astype(np.float32)

    ExplainingCursor.explained.clear()
    with contextlib.suppress(Undo), ground.app.db.begin() as tx:
        factory, tx.cursor_factory = tx.cursor_factory, ExplainingCursor
        try:
            assert hybrid.search(tx, ground.tenant, hybrid.Query("no such word", noise))
        finally:
            tx.cursor_factory = factory
        raise Undo
    found = one(list(ExplainingCursor.explained), "picked as materialized")
    assert "entries_embedding_b" in found.indexes
    assert not found.scans("entries")


# --- at the start, and what an operator is told ------------------------------------------------


def test_settings_may_lag_behind_by_one_change(filled: Ground) -> None:
    def starts(tx: Tx, model: Model) -> bool:
        index = vector_index.read(tx)
        assert index is not None
        return index.used.name == model.name or vector_index.reaches(index, model.name)

    filled.switch()
    with filled.app.db.begin() as tx:
        assert starts(tx, filled.small)
    filled.work()
    with filled.app.db.begin() as tx:
        assert starts(tx, filled.small)
        assert starts(tx, filled.large)
    filled.finish()
    filled.work()
    with filled.app.db.begin() as tx:
        assert starts(tx, filled.small)
        assert starts(tx, filled.large)
        with pytest.raises(SetupError, match="recollect embedder switch"):
            vector_index.adopt(tx, "openai:third", 7)
        with pytest.raises(SetupError, match=r"run `recollect reindex`$"):
            vector_index.adopt(tx, filled.large.name, 96)
        # What runs still since before that change goes on while the next one does.
        model_switch.switch(tx, "openai:third", 7, choice("large"), choice("large"))
        assert starts(tx, filled.small)


def test_the_address_of_the_second_model_may_change_meanwhile(filled: Ground) -> None:
    filled.switch()
    moved = {**choice("large"), "url": "http://moved.example/v1"}
    for phase in ("building", "returned"):
        with filled.app.db.begin() as tx:
            model_switch.switch(tx, filled.large.name, 80, moved, choice("small"))
        index = filled.index()
        other = index.other if phase == "building" else index.used
        assert other is not None
        assert (other.name, other.choice) == (filled.large.name, moved)
        filled.work()
        if phase == "building":
            with filled.app.db.begin() as tx:
                model_switch.rollback(tx)
            moved["url"] = "http://moved.again.example/v1"


def test_what_waits_for_the_second_model_is_due_when_its_address_or_key_changes(
    filled: Ground,
) -> None:
    filled.switch()
    filled.large.refuses = "note"
    filled.work()
    filled.large.refuses = None
    assert filled.work() == 0
    with filled.app.db.begin() as tx:
        tx.execute("update vector_gaps set due_at = now()")
        in_work = missing_vectors.claim(tx, lease=timedelta(minutes=1))
    assert in_work is not None

    filled.switch()
    with filled.app.db.begin() as tx:
        missing_vectors.postpone(tx, in_work, Failure("old", "key"), timedelta(hours=1))
    filled.work()

    assert filled.index().used.name == filled.large.name


def test_what_cannot_be_is_refused_with_what_comes_first(filled: Ground) -> None:
    def refused(name: str, dimensions: int) -> str:
        with filled.app.db.begin() as tx, pytest.raises(SetupError) as error:
            model_switch.switch(tx, name, dimensions, choice("large"), choice("small"))
        return str(error.value)

    assert "matter of settings" in refused(filled.small.name, 48)
    assert "recollect reindex" in refused(filled.small.name, 24)
    assert "up to 4000" in refused("openai:huge", 4096)
    with filled.app.db.begin() as tx, pytest.raises(SetupError, match="nothing to finish"):
        model_switch.finish(tx)
    with filled.app.db.begin() as tx, pytest.raises(SetupError, match="no model to go back to"):
        model_switch.rollback(tx)
    filled.switch()
    assert "embedder rollback" in refused("openai:third", 8)
    assert "with 80 dimensions, not 96" in refused(filled.large.name, 96)
    with filled.app.db.begin() as tx, pytest.raises(SetupError, match="not complete yet"):
        model_switch.finish(tx)
    filled.work()
    assert "embedder finish" in refused("openai:third", 8)
    with filled.app.db.begin() as tx:
        # By the clock of one transaction: it may have taken long to come here.
        tx.execute("update index_settings set flipped_at = now()")
        with pytest.raises(SetupError, match="try again in 5 seconds"):
            model_switch.finish(tx)
    with filled.app.db.begin() as tx:
        assert model_switch.estimate(tx, 80).texts == len(filled.texts())


def test_the_doctor_says_what_holds_a_change_up(filled: Ground) -> None:
    with endpoint(filled.small, filled.large) as url:
        known = {"embedder": "openai", "embedder_url": url, "embedder_model": "small"}
        config = filled.app.config.model_copy(
            update={**known, "database_url": SecretStr(filled.app.db.url)}
        )

        def told() -> list[tuple[str, str]]:
            return [(one.state, one.details) for one in doctor._embedder(config, away=False)]

        assert told() == [("ok", "openai:small, 48 dimensions")]
        filled.large.refuses = "note7"
        filled.switch()
        filled.work()
        [_, (state, details)] = told()
        assert state == "warn"
        assert "stretches of texts wait for vectors: " in details
        assert "too long for the model" in details
        filled.large.refuses = None
        with filled.app.db.begin() as tx:
            tx.execute("update vector_gaps set due_at = now()")
        filled.work()
        assert told() == [("ok", "openai:small, 48 dimensions; searches use openai:large")]


def test_an_idle_process_asks_nothing_of_its_own(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []
    before = vector_index.read
    for module in (vector_index, model_switch):
        monkeypatch.setattr(module, "read", lambda tx: (looked.append(None), before(tx))[1])
    with running(ground.process()):
        threading.Event().wait(2 * FRESH)

    assert looked == []


# --- the service as it is run ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_whole_service_changes_its_model_while_workers_are_killed(short_tmp: Path) -> None:
    first, second = small(), large()
    with endpoint(first, second) as url, ExitStack() as stack:
        settings = {
            "embedder": "openai",
            "embedder_url": url,
            "embedder_model": "small",
            "workers": "1",
            "lease_seconds": "2",
            "canary_interval": "0",
        }
        folder = short_tmp / "switched"
        service = start_service(folder, **settings)
        stack.callback(lambda: stop_service(service))
        client = stack.enter_context(service.client())
        for n in range(12):
            body = {"content": book(n, 40), "containerTag": "notes"}
            assert client.post("/v3/documents", json=body).status_code == 200
        eventually(lambda: not client.get("/v3/documents/processing").json()["totalCount"])
        assert found_by(client, first)

        same = ["switch", "openai", "--url", url, "--model", "small"]
        assert command(folder, settings, *same, fails="already") is None  # and asks nothing
        second.slow = 1.5
        to = ["switch", "openai", "--url", url, "--model", "large", "--yes"]
        told = command(folder, settings, *to)
        assert told["phase"] == "building"
        assert told["estimate"]["texts"] > 5 * model_change.BATCH
        for _ in range(2):
            seen = len(second.texts)
            eventually(lambda seen=seen: len(second.texts) > seen)
            kill_workers(service)
            assert found_by(client, first)
        second.slow = 0
        eventually(lambda: command(folder, settings, "status")["phase"] == "kept", 120)
        eventually(lambda: found_by(client, second))
        # A killed worker loses a batch at most.
        assert len(second.texts) <= told["estimate"]["texts"] + 2 * model_change.BATCH + 2

        assert command(folder, settings, "rollback")["used"]["name"] == first.name
        eventually(lambda: found_by(client, first))
        command(folder, settings, *to)
        eventually(lambda: found_by(client, second))
        eventually(lambda: command(folder, settings, "finish", fails="try again in 5 seconds"))
        eventually(lambda: command(folder, settings, "status")["phase"] is None)
        stack.pop_all().close()

        # The settings still name the model before.
        again = start_service(folder, **settings)
        try:
            with again.client() as client:
                assert found_by(client, second)
        finally:
            stop_service(again)


def found_by(client: httpx.Client, model: Model) -> bool:
    """Whether a search is answered, by this model's vectors alone."""
    answer = client.post("/v3/search", json={"q": QUERY, "chunkThreshold": 0})
    assert answer.status_code == 200, answer.text
    chunks = [chunk for hit in answer.json()["results"] for chunk in hit["chunks"]]
    return bool(chunks) and all(
        abs(model.likeness(QUERY, chunk["content"]) - chunk["similarity"]) < 0.01
        for chunk in chunks
    )


def command(folder: Path, settings: dict[str, str], *words: str, fails: str = "") -> Any:
    """What it prints; None when it fails for that reason."""
    environment = {
        **os.environ,  # noqa: TID251 # the child needs PATH and the like
        "RECOLLECT_DATA_DIR": str(folder),
        **{f"RECOLLECT_{name.upper()}": value for name, value in settings.items()},
    }
    ended = subprocess.run(
        [sys.executable, "-m", "recollect", "embedder", *words, "--json"],
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    if fails and fails in ended.stderr.decode():
        return None
    assert ended.returncode == 0, ended.stderr.decode()
    return json.loads(ended.stdout)


def kill_workers(service: Service) -> None:
    kill(eventually(lambda: [child for child in children(service) if part_of(child) == "worker"]))
