"""Memories without the API: versions, evidence, and how they go with their documents."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recollect import documents
from recollect.app import App
from recollect.cli.admin import embed_memories
from recollect.db import Database, Tx
from recollect.documents import DocumentChange, NewDocument
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError, ConflictError, LeaseLost, NotFoundError
from recollect.index import terms
from recollect.ingest import chunk
from recollect.memories import finding, memories, reading
from recollect.memories.records import (
    WHOLE,
    Correction,
    Fact,
    Memory,
    MemoryId,
    MemoryQuery,
    MemoryTarget,
    Relation,
    Span,
)
from recollect.model import (
    Claim,
    DocumentId,
    Entry,
    Extracted,
    Org,
    Plan,
    Status,
    Tenant,
    random_id,
)
from recollect.orgs import orgs, tags
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.fakes.embedder import WordEmbedder

STORY = "# Herons\n\nHerons eat frogs.\n\n# Storks\n\nStorks eat mice."

ANY_TIME = datetime(9999, 1, 1, tzinfo=UTC)


def fact(org: Org, text: str, embedder: WordEmbedder | None = None, **more: Any) -> Fact:
    vector = embedder.embed([text], query=True)[0] if embedder else None
    return Fact(text, terms.weigh(org.id, text), vector, **more)


def correction(org: Org, text: str, **more: Any) -> Correction:
    return Correction(text, terms.weigh(org.id, text), **more)


@pytest.fixture
def add(db: Database, tenant: Tenant, org: Org) -> Callable[..., Memory]:
    """Adds one memory directly."""

    def add(text: str, tag: str = "a", **more: Any) -> Memory:
        with db.begin() as tx:
            _, [made] = memories.add(
                tx, tenant, tag, [fact(org, text, **more)], DocumentId(random_id())
            )
        return made

    return add


@pytest.fixture
def write(app: App, tenant: Tenant) -> Callable[..., DocumentId]:
    """Adds a document and has it processed."""

    def write(text: str = STORY, tags: Sequence[str] = ("a",)) -> DocumentId:
        with app.db.begin() as tx:
            new = NewDocument(documents.text_content(text), tags)
            id = documents.add(tx, tenant, new, DocumentId(random_id())).id
        drain(app)
        return id

    return write


def draw(
    tx: Tx, org: Org, document: DocumentId, *texts: str, tag: str = "a", **more: Any
) -> list[MemoryId]:
    """Facts as if a model had read all that is unread: each from the first of those chunks."""
    chunks = reading.unread(tx, document)
    span = Span(chunks[0].hash, 0, 7)
    facts = [fact(org, text, spans=[span], **more) for text in texts]
    return memories.store(tx, org.id, document, tag, facts, read=[one.hash for one in chunks])


def live(tx: Tx, tenant: Tenant, **query: Any) -> list[str]:
    page = reading.find(tx, tenant, MemoryQuery(sort="updated_at", limit=100, **query))
    assert page.total == len(page.items)
    return sorted(memory.content for memory in page.items)


def left(db: Database, org: Org) -> int:
    """Rows of memories and of what hangs on them."""
    with db.begin() as tx:
        row = tx.execute(
            "select (select count(*) from memories where org_id = %(org)s)"
            " + (select count(*) from memory_sources s left join memories m on m.id = s.memory_id"
            "    where m.id is null or m.org_id = %(org)s)"
            " + (select count(*) from memory_relations r left join memories m"
            "    on m.id = r.memory_id where m.id is null or m.org_id = %(org)s) as n",
            {"org": org.id},
        ).fetchone()
    assert row is not None
    return row["n"]


# --- added directly ----------------------------------------------------------------------------


def test_what_is_added_directly_has_a_document_that_is_done(
    app: App, tenant: Tenant, org: Org, db: Database
):
    said = [fact(org, "Ann likes tea."), fact(org, "Ann lives in Bonn.", is_static=True)]
    with db.begin() as tx:
        id, [tea, bonn] = memories.add(tx, tenant, "a", said, DocumentId(random_id()))
        document = documents.get(tx, tenant, id, with_text=True)

    assert (document.status, document.due_at, document.failure) == (Status.DONE, None, None)
    assert document.source == documents.DIRECT
    assert document.text == "Ann likes tea.\n\nAnn lives in Bonn."
    assert (tea.sources, bonn.sources) == ([id], [id])
    assert (tea.version, tea.parent_id, tea.root_id, tea.is_latest) == (1, None, None, True)
    assert (tea.is_static, bonn.is_static) == (False, True)
    with db.begin() as tx:
        places = reading.evidence(tx, tenant, [bonn.id])[bonn.id]
    assert [(p.document_id, p.position, p.text) for p in places] == [(id, None, bonn.content)]
    assert document.text[places[0].start : places[0].end] == "Ann lives in Bonn."
    assert drain(app) == 0


def test_that_document_is_never_processed(app: App, tenant: Tenant, add: Callable[..., Memory]):
    [id] = add("Ann likes tea.").sources
    with app.db.begin() as tx:
        assert documents.reprocess(tx, tenant, ids=[id]) == []
        with pytest.raises(BadRequestError, match="bears memories"):
            documents.update(
                tx, tenant, id, DocumentChange(content=documents.text_content("other"))
            )
        documents.update(tx, tenant, id, DocumentChange(custom_id="mine", tags=["a"]))
        again = NewDocument(documents.text_content("other"), ["a"], custom_id="mine")
        with pytest.raises(BadRequestError, match="bears memories"):
            documents.add(tx, tenant, again, DocumentId(random_id()))

        assert documents.get(tx, tenant, id).status is Status.DONE


def test_the_same_again_is_known_once(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    first = add("Ann likes tea.", metadata={"n": 1})
    retried = add("Ann likes tea.")
    assert (retried.id, retried.sources) == (first.id, first.sources)
    assert retried.metadata == {"n": 1}
    with db.begin() as tx:
        tx.execute("update documents set created_at = now() - interval '1 minute'")

    later = add("Ann likes tea.", is_static=True, metadata={"n": 2})
    assert later.id == first.id
    assert len(later.sources) == 2
    assert (later.is_static, later.metadata) == (True, {"n": 2})
    assert add("Ann likes tea.", tag="b").id != first.id


def test_two_who_say_the_same_at_once_are_heard_once(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    threads = [threading.Thread(target=add, args=("Ann likes tea.",)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with db.begin() as tx:
        assert live(tx, tenant) == ["Ann likes tea."]


# --- versions, forgetting ----------------------------------------------------------------------


def test_a_correction_is_a_version_with_the_same_sources(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    first = add("Ann lives in Bonn.", metadata={"n": 1}, is_static=True, buckets=["home"])
    with db.begin() as tx:
        second = memories.correct(
            tx, tenant, "a", MemoryTarget(id=first.id), correction(org, "Ann lives in Ulm.")
        )
        # Who knows only the first version means the same thing.
        third = memories.correct(
            tx,
            tenant,
            "a",
            MemoryTarget(id=first.id),
            correction(org, "Ann lives in Jena.", metadata={"n": 3}),
        )

        assert (second.version, second.parent_id, second.root_id) == (2, first.id, first.id)
        assert (third.version, third.parent_id, third.root_id) == (3, second.id, first.id)
        assert (second.metadata, third.metadata) == ({"n": 1}, {"n": 3})
        assert (third.is_static, third.buckets) == (True, ["home"])
        assert third.sources == first.sources
        assert live(tx, tenant) == ["Ann lives in Jena."]
        versions = reading.history(tx, tenant, [third.id])[third.id]
        assert [(v.id, v.is_latest) for v in versions] == [
            (third.id, True),
            (second.id, False),
            (first.id, False),
        ]
        [ulm, bonn] = reading.neighbours(tx, tenant, [third.id])[third.id]
        assert {(n.memory, n.distance) for n in (ulm, bonn)} == {
            ("Ann lives in Ulm.", -1),
            ("Ann lives in Bonn.", -2),
        }


def test_expiry_is_inherited_replaced_or_cleared(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    soon = datetime.now(UTC) + timedelta(hours=1)
    add("Ann is away.", forget_after=soon, forget_reason="holiday")

    def changed(text: str, **more: Any) -> tuple[datetime | None, str | None]:
        with db.begin() as tx:
            [known] = reading.known(tx, tenant, "a")
            made = memories.correct(
                tx, tenant, "a", MemoryTarget(content=known.content), correction(org, text, **more)
            )
        return made.forget_after, made.forget_reason

    assert changed("Ann is in Rome.") == (soon, "holiday")
    later = soon + timedelta(days=1)
    assert changed("Ann is in Pisa.", sets_expiry=True, forget_after=later) == (later, "holiday")
    assert changed("Ann moved to Pisa.", sets_expiry=True) == (None, None)


def test_what_is_said_again_or_forgotten_did_not_change_before_it_was_made(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    with db.begin() as tx:
        tx.execute("select now()")  # the time of this transaction, from here on
        tea, bonn = add("Ann likes tea."), add("Ann is in Bonn.")
        told = [fact(org, tea.content, is_static=True)]
        _, [again] = memories.add(tx, tenant, "a", told, DocumentId(random_id()))
        gone = memories.forget(tx, tenant, "a", MemoryTarget(id=bonn.id), None)

    assert again.updated_at > tea.updated_at
    assert gone.updated_at > bonn.updated_at


def test_what_is_forgotten_or_expired_is_shown_to_nobody(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    tea = add("Ann likes tea.")
    add("Ann is away.", forget_after=datetime.now(UTC) - timedelta(seconds=1))
    with db.begin() as tx:
        gone = memories.forget(tx, tenant, "a", MemoryTarget(content="Ann likes tea."), "wrong")
    assert (gone.id, gone.is_forgotten, gone.forget_reason) == (tea.id, True, "wrong")

    with db.begin() as tx:
        assert live(tx, tenant) == []
        assert reading.known(tx, tenant, "a") == []
        assert finding.search(tx, tenant, "Ann tea away", None, MemoryQuery()) == []
        assert reading.profile(tx, tenant, "a", None, []).dynamic == []
        assert live(tx, tenant, forgotten=True) == ["Ann is away.", "Ann likes tea."]
        for text in ("Ann likes tea.", "Ann is away."):
            with pytest.raises(ConflictError):
                memories.forget(tx, tenant, "a", MemoryTarget(content=text), None)
            with pytest.raises(NotFoundError):
                memories.correct(tx, tenant, "a", MemoryTarget(content=text), correction(org, "x"))
    assert add("Ann likes tea.").id != tea.id


def test_the_id_of_a_document_is_told_from_that_of_nothing(
    db: Database, tenant: Tenant, add: Callable[..., Memory]
):
    [document] = add("Ann likes tea.").sources
    with db.begin() as tx:
        stranger = Tenant(orgs.create(tx, f"org-{random_id()}", Plan.FREE).id)
        with pytest.raises(NotFoundError, match="id of a document"):
            memories.forget(tx, tenant, "a", MemoryTarget(id=document), None)
        for who in (stranger, Tenant(tenant.id, ["b"])):
            with pytest.raises(NotFoundError, match="no memory"):
                memories.forget(tx, who, "a", MemoryTarget(id=document), None)
        tx.execute("delete from orgs where id = %s", (stranger.id,))


def test_many_are_forgotten_in_one_batch(
    db: Database, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    ids = [add(f"Ann knows {n}.").id for n in range(3)]
    other = add("Ann knows 9.", tag="b").id
    with db.begin() as tx:
        done = memories.forget_these(tx, tenant, "a", [*ids[:2], other, "nobody"], "old", "batch")
        again = memories.forget_these(tx, tenant, "a", ids[:2], "old", "batch-2")
        assert {memory.id for memory in done} == set(ids[:2])
        assert again == []
        assert live(tx, tenant) == ["Ann knows 2.", "Ann knows 9."]


def test_what_is_forgotten_takes_along_what_was_concluded_from_it(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    """The conclusion tells what was to be forgotten, and went on being shown."""
    with app.db.begin() as tx:
        first, second = write(), write("# Herons\n\nHerons are green.")
        [pregnant] = draw(tx, org, first, "Ann is pregnant.")
        derived: dict[str, Any] = {"is_inference": True, "related": {pregnant: Relation.DERIVES}}
        [leave, mended, _] = draw(
            tx, org, second, "Ann takes leave.", "Ann sings.", "Ann needs a cot.", **derived
        )
        tx.execute("delete from memory_reads")
        further: dict[str, Any] = {"is_inference": True, "related": {leave: Relation.DERIVES}}
        draw(tx, org, second, "The team needs somebody.", **further)
        memories.add(tx, tenant, "a", [fact(org, "Ann needs a cot.")], DocumentId(random_id()))
        memories.correct(tx, tenant, "a", MemoryTarget(id=mended), correction(org, "Ann hums."))
        due = correction(org, "Ann is due in May.")
        memories.correct(tx, tenant, "a", MemoryTarget(id=pregnant), due)

        gone = memories.forget(tx, tenant, "a", MemoryTarget(id=pregnant), "private")

        assert gone.content == "Ann is due in May."
        assert live(tx, tenant) == ["Ann hums.", "Ann needs a cot."]
        [concluded] = reading.versions(tx, tenant, [leave])
        assert (concluded.is_forgotten, concluded.forget_reason) == (True, "private")
        tx.execute("delete from memory_reads")
        draw(tx, org, second, "Ann takes leave.", **derived)
        assert live(tx, tenant) == ["Ann hums.", "Ann needs a cot."]


def test_what_was_forgotten_meanwhile_is_no_version_of_what_updates_it(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    """Searches showed its text beside the new one, as an earlier version."""
    with app.db.begin() as tx:
        first, second = write(), write("# Herons\n\nHerons are green.")
        [kiel] = draw(tx, org, first, "Ann lives in Kiel.")
        memories.forget(tx, tenant, "a", MemoryTarget(id=kiel), "private")

        [jena] = draw(tx, org, second, "Ann lives in Jena.", updates=kiel)

        [told] = reading.versions(tx, tenant, [jena])
        assert (told.version, told.parent_id, told.root_id) == (1, None, None)
        assert reading.neighbours(tx, tenant, [jena])[jena] == []
        found = reading.find(tx, tenant, MemoryQuery(any_of=["a"], forgotten=True)).items
        assert {one.content for one in found} == {"Ann lives in Kiel.", "Ann lives in Jena."}


# --- drawn from documents ----------------------------------------------------------------------


def test_only_what_is_new_is_unread(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    long = "\n\n".join(f"## Part {n}\n\n" + f"Sentence {n} of it. " * 60 for n in range(4))
    id = write(long)
    with app.db.begin() as tx:
        every = reading.unread(tx, id)
        draw(tx, org, id, "There are parts.")
        assert len(every) > 2
        assert reading.unread(tx, id) == []
        documents.update(
            tx, tenant, id, DocumentChange(content=documents.text_content(long + "\n\nThe end."))
        )
    drain(app)

    with app.db.begin() as tx:
        fresh = reading.unread(tx, id)
        assert 0 < len(fresh) < len(every)
        assert fresh[-1].text.endswith("The end.")


def test_the_same_document_read_again_doubles_nothing(
    app: App, org: Org, tenant: Tenant, write: Callable[..., DocumentId]
):
    id = write()
    with app.db.begin() as tx:
        [first] = draw(tx, org, id, "Herons eat frogs.")
        tx.execute("delete from memory_reads")
        [again] = draw(tx, org, id, "Herons eat frogs.")
        assert again == first
        [memory] = reading.of_document(tx, tenant, id)
        assert memory.sources == [id]
        [place] = reading.evidence(tx, tenant, [first])[first]
        text = documents.get(tx, tenant, id, with_text=True).text or ""
    assert (place.position, place.text[:8]) == (0, "# Herons")
    assert text[place.start : place.end] == "# Heron"


def test_what_stood_only_in_a_part_that_was_taken_out_is_gone(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    id, other = write("Herons eat frogs."), write("Herons eat many frogs.")
    with app.db.begin() as tx:
        draw(tx, org, id, "Herons eat frogs.", "Frogs are food.")
        draw(tx, org, other, "Herons eat frogs.")
        new = documents.text_content("Storks eat mice.")
        documents.update(tx, tenant, id, DocumentChange(content=new))
    drain(app)
    with app.db.begin() as tx:
        draw(tx, org, id, "Herons eat mice.")

        assert live(tx, tenant) == ["Herons eat frogs.", "Herons eat mice."]
        [frogs] = [m for m in reading.known(tx, tenant, "a") if "frogs" in m.content]
        assert frogs.sources == [other]


def test_a_later_document_updates_and_its_end_restores(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    old, middle, new = (write(f"{n}: where Ann lives") for n in ("old", "middle", "new"))
    with app.db.begin() as tx:
        [bonn] = draw(tx, org, old, "Ann lives in Bonn.")
        [ulm] = draw(tx, org, middle, "Ann lives in Ulm.", updates=bonn)
        [jena] = draw(tx, org, new, "Ann lives in Jena.", updates=ulm)
        assert live(tx, tenant) == ["Ann lives in Jena."]

        documents.delete(tx, tenant, [middle])
        [latest] = reading.known(tx, tenant, "a")
        assert (latest.id, latest.version, latest.parent_id) == (jena, 3, bonn)

        documents.delete(tx, tenant, [new])
        [latest] = reading.known(tx, tenant, "a")
        assert (latest.id, latest.is_latest) == (bonn, True)


def test_what_was_forgotten_does_not_return_with_the_version_before(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    old, middle, new = (write(f"{n}: where Ann lives") for n in ("old", "middle", "new"))
    with app.db.begin() as tx:
        [bonn] = draw(tx, org, old, "Ann lives in Bonn.")
        [ulm] = draw(tx, org, middle, "Ann lives in Ulm.", updates=bonn)
        [jena] = draw(tx, org, new, "Ann lives in Jena.", updates=ulm)
        memories.forget(tx, tenant, "a", MemoryTarget(id=jena), "private")

        documents.delete(tx, tenant, [middle, new])

        assert live(tx, tenant) == []
        [left] = reading.find(tx, tenant, MemoryQuery(forgotten=True)).items
        assert (left.id, left.forget_reason) == (bonn, "private")


def test_a_version_that_returns_is_one_with_what_says_the_same(
    app: App,
    tenant: Tenant,
    org: Org,
    write: Callable[..., DocumentId],
    add: Callable[..., Memory],
):
    old, new = write("old: where Ann lives"), write("new: where Ann lives")
    with app.db.begin() as tx:
        [bonn] = draw(tx, org, old, "Ann lives in Bonn.")
        draw(tx, org, new, "Ann lives in Ulm.", updates=bonn)
    again = add("Ann lives in Bonn.")
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [new])

        [left] = reading.known(tx, tenant, "a")
        assert left.content == "Ann lives in Bonn."
        assert {*left.sources} == {old, *again.sources}


def test_an_update_to_what_is_known_leaves_one(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    first, second, third = (write(f"{n}: where Ann lives") for n in ("first", "second", "third"))
    with app.db.begin() as tx:
        [bonn] = draw(tx, org, first, "Ann lives in Bonn.")
        draw(tx, org, second, "Ann lives in Ulm.", is_static=True)
        for _ in range(2):
            chunks = reading.unread(tx, third)
            [kept] = draw(tx, org, third, "Ann lives in Ulm.", updates=bonn)
            tx.execute("delete from memory_reads where document_id = %s", (third,))
            assert reading.unread(tx, third) == chunks

            [known] = reading.known(tx, tenant, "a")
            assert (known.id, known.content) == (kept, "Ann lives in Ulm.")
            assert known.is_static
            assert {*known.sources} == {second, third}


def test_a_document_that_says_no_expiry_leaves_that_of_the_memory(
    app: App,
    tenant: Tenant,
    org: Org,
    write: Callable[..., DocumentId],
    add: Callable[..., Memory],
):
    until, later = (datetime.now(UTC) + timedelta(days=days) for days in (1, 2))
    add("Ann is in Rome.", forget_after=until, forget_reason="a holiday")
    document, other = write("one: where Ann is"), write("other: where Ann is")
    with app.db.begin() as tx:
        draw(tx, org, document, "Ann is in Rome.")
        [known] = reading.known(tx, tenant, "a")
        assert (known.forget_after, known.forget_reason) == (until, "a holiday")

        draw(tx, org, other, "Ann is in Rome.", forget_after=later)
        [known] = reading.known(tx, tenant, "a")
        assert known.forget_after == later


def test_a_version_that_returns_beside_a_united_one_is_a_memory_of_its_own(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    ann, bob, moved = (write(f"{n}: who lives where") for n in ("ann", "bob", "moved"))
    with app.db.begin() as tx:
        [bonn] = draw(tx, org, ann, "They live in Bonn.")
        [rome] = draw(tx, org, bob, "They live in Rome.")
        draw(tx, org, moved, "They live in Kiel.", updates=bonn)
        kiel = memories.correct(
            tx, tenant, "a", MemoryTarget(id=rome), correction(org, "They live in Kiel.")
        )
        documents.delete(tx, tenant, [moved])
        assert live(tx, tenant) == ["They live in Bonn.", "They live in Kiel."]

        assert [one.id for one in reading.named(tx, tenant, "a", [bonn])] == [bonn]
        assert [one.id for one in reading.named(tx, tenant, "a", [rome])] == [kiel.id]
        memories.forget(tx, tenant, "a", MemoryTarget(id=bonn), None)
        assert live(tx, tenant) == ["They live in Kiel."]


def test_what_expired_stays_so_when_a_document_says_it_again(
    app: App,
    tenant: Tenant,
    org: Org,
    write: Callable[..., DocumentId],
    add: Callable[..., Memory],
):
    past, later = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
    expired = add("Ann is in Rome.", forget_after=past)
    again, anew = write("again: where Ann is"), write("anew: where Ann is")
    with app.db.begin() as tx:
        assert draw(tx, org, again, "Ann is in Rome.") == [expired.id]
        assert live(tx, tenant) == []

        draw(tx, org, anew, "Ann is in Rome.", forget_after=later)
        [known] = reading.known(tx, tenant, "a")
        assert (known.sources, known.forget_after) == ([anew], later)


def test_when_the_first_versions_go_the_rest_hold_together(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    old, new = write("old: where Ann lives"), write("new: where Ann lives")
    with app.db.begin() as tx:
        [bonn] = draw(tx, org, old, "Ann lives in Bonn.")
        memories.correct(
            tx, tenant, "a", MemoryTarget(id=bonn), correction(org, "Ann lives in Ulm.")
        )
        [jena] = draw(tx, org, new, "Ann lives in Jena.", updates=bonn)
        last = memories.correct(
            tx, tenant, "a", MemoryTarget(id=jena), correction(org, "Ann lives in Kiel.")
        )
        documents.delete(tx, tenant, [old])

        versions = reading.history(tx, tenant, [last.id])[last.id]
        assert [v.content for v in versions] == ["Ann lives in Kiel.", "Ann lives in Jena."]
        assert versions[1].parent_id is None


def test_relations_reach_what_took_the_place(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    id = write()
    with app.db.begin() as tx:
        [frogs] = draw(tx, org, id, "Herons eat frogs.")
        tx.execute("delete from memory_reads")
        related = {frogs: Relation.EXTENDS, MemoryId("nobody"): Relation.DERIVES}
        [green] = draw(tx, org, id, "They are green frogs.", related=related)
        toads = memories.correct(
            tx, tenant, "a", MemoryTarget(id=frogs), correction(org, "Herons eat toads.")
        )
        beside = reading.neighbours(tx, tenant, [green, toads.id])

    [told] = beside[green]
    assert (told.memory, told.relation, told.distance) == (
        "Herons eat toads.",
        Relation.EXTENDS,
        None,
    )
    assert [n.memory for n in beside[toads.id]] == ["Herons eat frogs.", "They are green frogs."]


def test_nothing_is_stored_of_a_document_that_is_gone(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    id = write()
    with app.db.begin() as tx:
        [chunk] = reading.unread(tx, id)
        documents.delete(tx, tenant, [id])
        said = fact(org, "Herons eat frogs.", spans=[Span(chunk.hash, 0, 5)])
        with pytest.raises(LeaseLost):
            memories.store(tx, org.id, id, "a", [said], read=[chunk.hash])


# --- how they go -------------------------------------------------------------------------------


def test_a_memory_goes_with_its_last_document(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    one, two = write("one"), write("two")
    with app.db.begin() as tx:
        [first] = draw(tx, org, one, "Herons eat frogs.")
        draw(tx, org, two, "Herons eat frogs.")
        draw(tx, org, two, "x") if reading.unread(tx, two) else None
        documents.delete(tx, tenant, [one])
        [memory] = reading.known(tx, tenant, "a")
        assert (memory.id, memory.sources) == (first, [two])
        documents.delete(tx, tenant, [two])
    assert left(app.db, org) == 0


def test_the_last_two_documents_may_go_at_the_same_moment(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    one, two = write("one"), write("two")
    with app.db.begin() as tx:
        draw(tx, org, one, "Herons eat frogs.")
        draw(tx, org, two, "Herons eat frogs.")
    began = threading.Event()

    def second() -> None:
        with app.db.begin() as tx:
            began.set()
            documents.delete(tx, tenant, [two])

    thread = threading.Thread(target=second)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [one])
        thread.start()
        assert began.wait(60)
        with app.db.begin() as watcher:
            eventually(
                lambda: watcher.execute(
                    "select 1 from pg_stat_activity where datname = current_database()"
                    " and wait_event_type = 'Lock'"
                ).fetchone()
            )
    thread.join(60)

    assert left(app.db, org) == 0


def test_a_correction_and_the_end_of_the_document_do_not_wait_for_each_other(
    app: App, tenant: Tenant, org: Org, add: Callable[..., Memory]
):
    made = [add(f"Ann knows {n}.") for n in range(8)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        memory = made[number // 2]
        try:
            with app.db.begin() as tx:
                if number % 2:
                    documents.delete(tx, tenant, list(memory.sources))
                else:
                    memories.correct(
                        tx,
                        tenant,
                        "a",
                        MemoryTarget(id=memory.id),
                        correction(org, f"New {number}."),
                    )
        except NotFoundError:
            pass
        except BaseException as error:  # noqa: BLE001 told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert left(app.db, org) == 0


def test_reading_one_document_and_the_end_of_another_do_not_wait_for_each_other(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    one, two = write("one"), write("two")
    with app.db.begin() as tx:
        ids = draw(tx, org, two, *(f"Herons eat frog {n}." for n in range(3)))
    first, middle, last = sorted(ids)
    with app.db.begin() as tx:
        texts = {memory.id: memory.content for memory in reading.named(tx, tenant, "a", ids)}
    failures: list[BaseException] = []

    def surely(work: Callable[[Tx], object]) -> None:
        try:
            with app.db.begin() as tx:
                work(tx)
        except BaseException as error:  # noqa: BLE001 told below
            failures.append(error)

    def read(tx: Tx) -> None:
        draw(tx, org, one, *(texts[id] for id in (last, middle, first)))

    def end(tx: Tx) -> None:
        documents.delete(tx, tenant, [two])

    threads = [threading.Thread(target=surely, args=(work,)) for work in (read, end)]
    with app.db.begin() as tx:
        # Whoever takes what is on either side of it waits here, and has what the other one wants.
        tx.execute("select from memories where id = %s for update", (middle,))
        for number, thread in enumerate(threads, 1):
            thread.start()
            eventually(lambda number=number: waiting(app) == number)
    for thread in threads:
        thread.join(60)

    assert failures == []
    with app.db.begin() as tx:
        assert live(tx, tenant, any_of=["a"]) == sorted(texts.values())


def say(tx: Tx, org: Org, document: DocumentId, text: str, **more: Any) -> MemoryId:
    """One more fact of a document that was read before."""
    tx.execute("delete from memory_reads where document_id = %s", (document,))
    [id] = draw(tx, org, document, text, **more)
    return id


def chain(tx: Tx, org: Org, first: DocumentId, second: DocumentId, name: str) -> list[MemoryId]:
    """Two versions, one from each document, of which the older has the lesser id."""
    for n in range(100):
        old = say(tx, org, first, f"{name} {n} is here.")
        new = say(tx, org, second, f"{name} {n} is there.", updates=old)
        if old < new:
            return [old, new]
    raise AssertionError("ids are not random")


def taken(app: App, tenant: Tenant, id: DocumentId) -> Claim:
    """The document with another text, in a worker's hands."""
    with app.db.begin() as tx:
        change = DocumentChange(content=documents.text_content("Nothing of that."))
        documents.update(tx, tenant, id, change)
    with app.db.begin() as tx:
        [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
    assert claim.document.id == id
    return claim


@pytest.mark.parametrize("way", ["deleted", "rewritten"])
def test_the_end_of_a_version_and_a_fact_about_the_one_before_do_not_wait_for_each_other(
    way: str, app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    """Whose evidence goes takes a version, then the one before it; who reads took them by id."""
    older, newer, reading = write("older"), write("newer"), write("reading")
    with app.db.begin() as tx:
        old, new = chain(tx, org, older, newer, "The key")
        # Stands in the way of whoever ends `first`, after it has ended `new` and before it comes
        # to `old`: versions behind are mended before versions that are the latest again.
        first = say(tx, org, newer, "The lamp is on.")
        behind = say(tx, org, older, "The lamp is off.", updates=first)
    claim = taken(app, tenant, newer) if way == "rewritten" else None
    failures: list[BaseException] = []

    def surely(work: Callable[[Tx], object]) -> None:
        try:
            with app.db.begin() as tx:
                work(tx)
        except BaseException as error:  # noqa: BLE001 told below
            failures.append(error)

    def end(tx: Tx) -> None:
        if claim is not None:
            said = Extracted("Nothing of that.")
            [one] = chunks = chunk.split(said.text)
            entry = Entry(one.hash, one.text, terms.weigh(org.id, one.text), None)
            documents.finish(tx, claim, said, chunks, [entry], {}, reused=0)
        else:
            documents.delete(tx, tenant, [newer])

    def read(tx: Tx) -> None:
        draw(tx, org, reading, "It is lost.", updates=new, related={old: Relation.EXTENDS})

    threads = [threading.Thread(target=surely, args=(work,)) for work in (end, read)]
    with app.db.begin() as tx:
        tx.execute("select from memories where id = %s for update", (behind,))
        for thread in threads:
            before = waiting(app)
            thread.start()
            eventually(lambda thread=thread, n=before: waiting(app) > n or not thread.is_alive())
    for thread in threads:
        thread.join(60)

    assert failures == []
    with app.db.begin() as tx:
        known = live(tx, tenant, any_of=["a"])
    assert "It is lost." in known
    assert "The lamp is off." in known


def test_adding_what_is_known_and_the_end_of_its_document_do_not_wait_for_each_other(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    id = write()
    with app.db.begin() as tx:
        ids = draw(tx, org, id, *(f"Herons eat frog {n}." for n in range(3)))
    first, middle, last = sorted(ids)
    with app.db.begin() as tx:
        texts = {memory.id: memory.content for memory in reading.named(tx, tenant, "a", ids)}
    failures: list[BaseException] = []

    def surely(work: Callable[[Tx], object]) -> None:
        try:
            with app.db.begin() as tx:
                work(tx)
        except BaseException as error:  # noqa: BLE001 told below
            failures.append(error)

    def say(tx: Tx) -> None:
        said = [fact(org, texts[one]) for one in (last, middle, first)]
        memories.add(tx, tenant, "a", said, DocumentId(random_id()))

    def end(tx: Tx) -> None:
        documents.delete(tx, tenant, [id])

    threads = [threading.Thread(target=surely, args=(work,)) for work in (say, end)]
    with app.db.begin() as tx:
        tx.execute("select from memories where id = %s for update", (middle,))
        for number, thread in enumerate(threads, 1):
            thread.start()
            eventually(lambda number=number: waiting(app) == number)
    for thread in threads:
        thread.join(60)

    assert failures == []
    with app.db.begin() as tx:
        assert live(tx, tenant, any_of=["a"]) == sorted(texts.values())


@pytest.mark.parametrize("ending", ["delete", "move", "forget"])
def test_who_ends_what_another_document_concluded_from_does_not_wait_for_its_end(
    ending: str, app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    failures: list[BaseException] = []
    meeting = threading.Barrier(2, timeout=60)

    def end(document: DocumentId, said: Sequence[MemoryId]) -> None:
        meeting.wait()
        try:
            with app.db.begin() as tx:
                if ending == "move":
                    documents.update(tx, tenant, document, DocumentChange(tags=["b"]))
                elif ending == "forget" and said:
                    memories.forget_these(tx, tenant, "a", said, None, "batch")
                else:
                    documents.delete(tx, tenant, [document])
        except BaseException as error:  # noqa: BLE001 told below
            failures.append(error)

    for _ in range(12):
        pair = write(random_id()), write(random_id())
        with app.db.begin() as tx:
            spans = {id: Span(reading.unread(tx, id)[0].hash, 0, 7) for id in pair}
            known = [draw(tx, org, id, *(f"{id} says {n}." for n in range(3))) for id in pair]
            first = known[0]
            for level in range(4):
                known.reverse()  # each has conclusions from what the other one has
                known = [
                    memories.store(
                        tx,
                        org.id,
                        id,
                        "a",
                        [
                            fact(
                                org,
                                f"{level} follows from {premise}.",
                                spans=[spans[id]],
                                is_inference=True,
                                related={premise: Relation.DERIVES},
                            )
                            for premise in premises
                        ],
                        read=[],
                    )
                    for id, premises in zip(pair, known, strict=True)
                ]
        threads = [
            threading.Thread(target=end, args=(pair[0], first)),
            threading.Thread(target=end, args=(pair[1], [])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []


@pytest.mark.parametrize("how", ["corrected", "replaced"])
def test_files_of_an_archive_are_locked_after_all_else_as_everywhere(
    how: str, app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    archive, file, other = write(), DocumentId("0" * 22), DocumentId("z" * 22)
    with app.db.begin() as tx:
        content = documents.text_content(STORY)
        new = NewDocument(content, ["a"], archive_id=archive, archive_path="a.txt", filepath="a")
        documents.add(tx, tenant, new, file)
        documents.add(tx, tenant, NewDocument(content, ["a"], filepath="b"), other)
    drain(app)
    with app.db.begin() as tx:
        [known] = draw(tx, org, file, "Herons eat frogs.")
        assert draw(tx, org, other, "Herons eat frogs.") == [known]
        [left] = draw(tx, org, archive, "Storks eat mice.")

    def change() -> None:
        with app.db.begin() as tx:
            if how == "corrected":
                target = MemoryTarget(id=known)
                memories.correct(tx, tenant, "a", target, correction(org, "Herons eat eels."))
            else:
                span = Span(chunks[0].hash, 0, 7)
                said = fact(org, "Herons eat frogs.", spans=[span], updates=left)
                memories.store(tx, org.id, archive, "a", [said], read=[])

    with app.db.begin() as tx:
        chunks = documents.chunks(tx, tenant, archive)
    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            tx.execute("select from documents where id = %s for update", (other,))
            changing = pool.submit(change)
            eventually(lambda: waiting(app))
            tx.execute("select from documents where id = %s for update nowait", (file,))
        changing.result(60)


def waiting(app: App) -> int:
    """How many sessions wait for a lock."""
    with app.db.begin() as watcher:
        row = watcher.execute(
            "select count(*) as n from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock'"
        ).fetchone()
    return row["n"] if row else 0


@pytest.mark.parametrize("end", ["tag", "bulk", "everything", "organisation"])
def test_nothing_is_left(
    end: str, app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    id = write(tags=["a", "b"])
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["a", "b"])
        [first] = draw(tx, org, id, "Herons eat frogs.")
        tx.execute("delete from memory_reads")
        draw(tx, org, id, "Green ones.", related={first: Relation.EXTENDS})
        memories.add(tx, tenant, "a", [fact(org, "Ann likes tea.")], DocumentId(random_id()))
        match end:
            case "tag":
                documents.untag(tx, tenant, "a")
                assert documents.get(tx, tenant, id).container_tags == ["b"]
                assert live(tx, tenant, any_of=["b"]) == ["Green ones.", "Herons eat frogs."]
                documents.untag(tx, tenant, "b")
            case "bulk":
                documents.delete_where(tx, tenant, tags=["a"])
            case "everything":
                documents.delete_all(tx, tenant)
            case _:
                tx.execute("delete from orgs where id = %s", (org.id,))

    assert left(app.db, org) == 0


def test_a_document_takes_its_memories_to_another_tag(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    mover, stayer = write("mover"), write("stayer")
    with app.db.begin() as tx:
        draw(tx, org, mover, "Only the mover says it.", "Both say it.")
        draw(tx, org, stayer, "Both say it.")
        documents.update(tx, tenant, mover, DocumentChange(tags=["b"]))

        assert live(tx, tenant, any_of=["b"]) == ["Both say it.", "Only the mover says it."]
        [both] = reading.known(tx, tenant, "a")
        assert (both.content, both.sources) == ("Both say it.", [stayer])


def test_merging_tags_merges_their_memories(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    one, two = write("one"), write("two")
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["a"])
        draw(tx, org, one, "Both say it.")
        draw(tx, org, two, "Both say it.")
        merge = tags.begin_merge(tx, tenant, ["a"], "b", random_id())
        # One document at a time, so that the memory is between the tags meanwhile.
        for _ in range(2):
            moved, kept = documents.retag(tx, org.id, ["a"], "b", kept=[], until=ANY_TIME, limit=1)
            assert (moved, kept) == (1, [])
        tags.advance_merge(tx, merge, 2, [], done=True)

        [both] = reading.known(tx, tenant, "b")
        assert (both.content, set(both.sources)) == ("Both say it.", {one, two})
        assert reading.known(tx, tenant, "a") == []


# --- finding -----------------------------------------------------------------------------------


def test_words_and_meaning_both_find(
    db: Database, tenant: Tenant, org: Org, embedder: WordEmbedder, add: Callable[..., Memory]
):
    for text in ("Ann likes green tea.", "Bob plays the cello.", "The budget was cut."):
        with db.begin() as tx:
            memories.add(tx, tenant, "a", [fact(org, text, embedder)], DocumentId(random_id()))

    def found(text: str, *, vector: bool, **more: Any) -> list[tuple[str, float]]:
        seen = embedder.embed([text], query=True)[0] if vector else None
        with db.begin() as tx:
            hits = finding.search(tx, tenant, text, seen, MemoryQuery(tags=["a"]), **more)
        return [(hit.memory.content, hit.similarity) for hit in hits]

    [(tea, similarity)] = found("teas liked", vector=False)
    assert (tea, similarity) == ("Ann likes green tea.", 1.0)
    [(cello, near), *rest] = found("the cello", vector=True)
    assert cello == "Bob plays the cello."
    assert all(near > other for _, other in rest)
    assert found("the cello", vector=True, threshold=near) == [(cello, near)]
    assert found("zebra", vector=False) == []


def test_vectors_of_another_model_are_passed_over(
    db: Database, tenant: Tenant, org: Org, embedder: WordEmbedder
):
    with db.begin() as tx:
        memories.add(
            tx, tenant, "a", [fact(org, "Ann likes tea.", embedder)], DocumentId(random_id())
        )
        other = embedder.embed(["Ann likes tea."], query=True)[0][:32]
        [hit] = finding.search(tx, tenant, "tea", other, MemoryQuery())
        assert hit.memory.content == "Ann likes tea."

        memories.forget_vectors(tx)

    def found_by_meaning() -> bool:
        with db.begin() as tx:
            seen = embedder.embed(["x Ann likes y"], query=True)[0]
            [hit] = finding.search(tx, tenant, "tea", seen, MemoryQuery())
        return hit.similarity < 1

    assert not found_by_meaning()
    assert embed_memories(db, embedder) >= 1
    assert found_by_meaning()
    assert embed_memories(db, embedder) == 0


def test_filters_tags_and_paths_narrow(
    app: App, tenant: Tenant, org: Org, write: Callable[..., DocumentId]
):
    one, two = write("one", tags=["team:a", "x"]), write("two", tags=["team:b"])
    with app.db.begin() as tx:
        tx.execute("update documents set filepath = '/notes/1.md' where id = %s", (one,))
        draw(tx, org, one, "Ann likes tea.", tag="team:a", metadata={"kinds": ["drink", "hot"]})
        draw(tx, org, two, "Bob likes tea.", tag="team:b", metadata={"kinds": ["drink"]})

        def found(**query: Any) -> list[str]:
            hits = finding.search(tx, tenant, "tea", None, MemoryQuery(**query))
            listed = live(tx, tenant, **query)
            assert sorted(hit.memory.content for hit in hits) == listed
            return listed

        both = ["Ann likes tea.", "Bob likes tea."]
        assert found() == found(tags=["team:*"]) == found(any_of=["team:a", "team:b"]) == both
        assert found(tags=["team:b"]) == ["Bob likes tea."]
        assert found(tags=["team:a", "x"]) == ["Ann likes tea."]
        assert found(tags=["team:b", "x"]) == found(tags=["team:a", "team:b"]) == []
        assert found(filepath="/notes/") == ["Ann likes tea."]
        hot = {"AND": [{"key": "kinds", "value": "hot", "filterType": "array_contains"}]}
        assert found(filter=parse_filter(hot)) == ["Ann likes tea."]
        scoped = Tenant(tenant.id, ["team:b"])
        assert live(tx, scoped) == ["Bob likes tea."]
        assert reading.of_document(tx, scoped, one) == []
        assert reading.drawn(tx, scoped, ["team:b"])
        assert not reading.drawn(tx, scoped, ["team:a"])


def test_a_profile_has_its_sections(db: Database, tenant: Tenant, add: Callable[..., Memory]):
    add("Ann is a doctor.", is_static=True, buckets=["work"])
    add("Ann is tired.", metadata={"mood": "low"})
    add("Ann is in Rome.", tag="b")
    with db.begin() as tx:
        found = reading.profile(tx, tenant, "a", None, ["work", "home"])
        low = parse_filter({"AND": [{"key": "mood", "value": "low"}]})
        filtered = reading.profile(tx, tenant, "a", low, [])

    def texts(some: Sequence[reading.ProfileEntry]) -> list[str]:
        return [one.text for one in some]

    assert (texts(found.static), texts(found.dynamic)) == (["Ann is a doctor."], ["Ann is tired."])
    assert texts(found.buckets["work"]) == ["Ann is a doctor."]
    assert found.buckets["home"] == []
    assert (filtered.static, texts(filtered.dynamic)) == ([], ["Ann is tired."])


def test_a_fact_needs_evidence(db: Database, org: Org, write: Callable[..., DocumentId]):
    id = write()
    with db.begin() as tx, pytest.raises(ValueError, match="evidence"):
        memories.store(tx, org.id, id, "a", [fact(org, "Herons eat.")], read=[WHOLE])
