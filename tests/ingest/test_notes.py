"""Notes worked together end as they would by themselves, whatever happens to one of them."""

import base64
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentChange
from recollect.errors import Permanent, Unavailable
from recollect.ingest import intake, notes
from recollect.ingest.intake import Labels
from recollect.model import Changed, Claim, DocumentId, Tenant
from recollect.worker.processing import Worker, drain
from tests.conftest import eventually
from tests.fakes.embedder import WordEmbedder

TEXTS = [
    *(f"note number {n} of the heron and the weir" for n in range(40)),
    "the same twice",
    "# A title\n\nand a first part.\n\n" + "It goes on and on about storks. " * 100,
    "<html><body><p>a page</p></body></html>",
    "\ufeff  Käse \u200b und Bröt",
    "a line\r\nand another\x0cand one more",
    f"a weir ![](data:image/png;base64,{base64.b64encode(bytes(range(256)) * 4).decode()})",
]


class Picky(WordEmbedder):
    """Refuses some texts, or all; tells how many came at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.sizes.append(len(texts))
        self.meanwhile()
        if any("poison" in text for text in texts):
            raise Permanent("it cannot be read", code="refused_by_the_model")
        return super().embed(texts, query=query)


@pytest.fixture
def model() -> Picky:
    return Picky()


@pytest.fixture
def own(app: App, model: Picky) -> App:
    return replace(app, embedder=model)


def add(app: App, tenant: Tenant, text: str, *, tag: str = "notes") -> DocumentId:
    labels = Labels(tags=[tag])
    return intake.take(app, tenant, labels, intake.content_of(app, text)).id


def claimed(app: App, *, limit: int = 1) -> list[Claim]:
    with app.db.begin() as tx:
        first = documents.claim(tx, lease=app.lease, limit=limit, max_attempts=5)
        return first + documents.claim_notes(
            tx, first[0], lease=app.lease, limit=15, max_attempts=5
        )


@contextmanager
def working(app: App) -> Generator[Worker]:
    made = Worker(app)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(60)
        assert not thread.is_alive()


def rows(app: App, tenant: Tenant) -> dict[str, dict[str, Any]]:
    """By text: all that is stored of a document, but for its names and times."""
    with app.db.begin() as tx:
        found = tx.execute(
            "with placed as materialized (select document_id,"
            "  jsonb_agg(jsonb_build_array(position, start_at, end_at, hash, place)"
            "   order by position) as places from chunks group by document_id),"
            " held as materialized (select document_id, jsonb_agg(jsonb_build_array(hash, text,"
            "   weights::text, embedding::text) order by hash) as entry_rows"
            "  from entries group by document_id)"
            " select d.content, d.kind, d.title, d.text, d.status, d.stage, d.attempts, d.claims,"
            " d.indexed_revision, d.warnings, d.chunks, d.embedded, d.reused, d.removed,"
            " d.error_code, d.due_at,"
            " (select jsonb_object_agg(k, true) from jsonb_object_keys(d.timings) k) as timings,"
            " p.places, h.entry_rows"
            " from documents d left join placed p on p.document_id = d.id"
            " left join held h on h.document_id = d.id where d.org_id = %s",
            (tenant.id,),
        ).fetchall()
    return {row["content"]: row for row in found}


def term_counts(app: App, tenant: Tenant) -> list[int]:
    with app.db.begin() as tx:
        found = tx.execute(
            "select entries from term_counts where org_id = %s order by entries", (tenant.id,)
        ).fetchall()
    return [row["entries"] for row in found]


def statuses(app: App, tenant: Tenant) -> set[str]:
    return {row["status"] for row in rows(app, tenant).values()}


def test_together_all_is_as_it_would_be_one_by_one(own: App, model: Picky, tenant: Tenant):
    ids = [add(own, tenant, text) for text in TEXTS]
    with working(own):
        eventually(lambda: statuses(own, tenant) == {"done"})
    together, counted, largest = rows(own, tenant), term_counts(own, tenant), max(model.sizes)
    with own.db.begin() as tx:
        documents.delete(tx, tenant, ids)
    drain(own)  # the rows go behind the answer
    assert term_counts(own, tenant) == []
    for text in TEXTS:
        add(own, tenant, text)
    drain(own)

    assert largest > 8
    assert together == rows(own, tenant)
    assert counted == term_counts(own, tenant)


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_pictures_within_a_text_that_was_given_are_not_indexed(own: App, tenant: Tenant, size: int):
    picture = base64.b64encode(bytes(range(256)) * (size // 256)).decode()
    add(own, tenant, f"A heron.\n\n![its nest](data:image/png;base64,{picture})\n\nA weir.")

    drain(own)

    [row] = rows(own, tenant).values()
    assert row["text"] == "A heron.\n\n![its nest](data:image/png;base64,…)\n\nA weir."
    assert row["warnings"] == [f"Data in base64 was left out ({len(picture):,} characters)."]
    assert row["chunks"] == 1


def test_one_that_cannot_be_done_fails_alone(own: App, tenant: Tenant):
    for n in range(10):
        add(own, tenant, f"note {n}")
    add(own, tenant, "poison")
    add(own, tenant, "\u200b")
    with working(own):
        eventually(lambda: not statuses(own, tenant) & {"queued", "processing"})

    found = rows(own, tenant)
    failed = {text: row["error_code"] for text, row in found.items() if row["status"] == "failed"}
    assert failed == {"poison": "refused_by_the_model", "\u200b": "empty_content"}
    assert {row["attempts"] for row in found.values()} == {1}
    assert {row["claims"] for row in found.values()} == {1}


def test_what_is_deleted_or_changed_meanwhile_keeps_nobody_else(
    own: App, model: Picky, tenant: Tenant
):
    gone, changed, *_ = [add(own, tenant, f"note {n}") for n in range(6)]
    claims = claimed(own)

    def meanwhile() -> None:
        model.meanwhile = lambda: None
        with own.db.begin() as tx:
            documents.delete(tx, tenant, [gone])
        with own.db.begin() as tx:
            new = DocumentChange(content=documents.text_content("newer"))
            documents.update(tx, tenant, changed, new)

    model.meanwhile = meanwhile
    outcomes = notes.process(own, claims)

    done = [one for one in outcomes if isinstance(one, Changed)]
    assert (len(claims), len(done)) == (6, 5)
    found = rows(own, tenant)
    assert sorted(row["status"] for row in found.values()) == ["done"] * 4 + ["queued"]
    assert found["newer"]["status"] == "queued"
    drain(own)
    assert rows(own, tenant)["newer"]["text"] == "newer"


def test_what_is_down_costs_nobody_an_attempt(own: App, model: Picky, tenant: Tenant):
    ids = [add(own, tenant, f"note {n}") for n in range(12)]
    model.down = True
    with pytest.raises(Unavailable):
        notes.process(own, claimed(own))
    with own.db.begin() as tx:  # its leases run out
        tx.execute("update documents set due_at = now() where id = any(%s)", (ids,))
    with working(own):
        eventually(lambda: any(row["error_code"] for row in rows(own, tenant).values()))
        model.down = False
        eventually(lambda: statuses(own, tenant) == {"done"})

    assert {row["attempts"] for row in rows(own, tenant).values()} <= {1, 2}


def test_only_new_notes_of_the_same_tag_come_along(own: App, tenant: Tenant):
    again = add(own, tenant, "done before")
    with own.db.begin() as tx:
        tx.execute("update documents set claims = 1 where id = %s", (again,))
    long = add(own, tenant, "a long one " * 1_000)
    ids = [add(own, tenant, f"note {n}") for n in range(40)]
    elsewhere = add(own, tenant, "elsewhere", tag="zoo")

    first, *beside = claimed(own)
    assert first.document.id == again
    assert not documents.is_note(first)
    assert {one.document.id for one in beside} == set(ids[:15])

    both = claimed(own, limit=2)
    assert {one.document.id for one in both[:2]} == {elsewhere, long}
