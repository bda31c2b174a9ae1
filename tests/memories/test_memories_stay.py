"""A fact stays while a document that supports it does, in the tags that the contract says."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations, product

import numpy as np
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange
from recollect.index import terms
from recollect.memories import memories, reading
from recollect.memories.records import (
    WHOLE,
    Correction,
    Fact,
    MemoryId,
    MemoryQuery,
    MemoryTarget,
    Relation,
    Span,
)
from recollect.model import DocumentId, Org, Tenant, random_id
from recollect.orgs import tags
from tests.conftest import eventually

NAMES = ("a", "b", "c")
TAGS: list[list[str]] = [
    list[str](some) for size in (1, 2, 3) for some in permutations(NAMES, size)
]
OLD = [some for some in TAGS if some[0] == "a"]
"""The names are alike."""


def fact(org: Org, text: str) -> Fact:
    return Fact(text, terms.weigh(org.id, text))


class Undo(Exception):
    """Roll back."""


def bear(tx: Tx, org: Org, tag: str, *texts: str) -> tuple[DocumentId, MemoryId]:
    """A document of the tag with these facts, of which the first is returned. The same facts twice
    would be one document."""
    tags.ensure(tx, org.id, [tag])
    facts = [fact(org, text) for text in texts]
    id, added = memories.add(tx, Tenant(org.id), tag, facts, DocumentId(random_id()))
    return id, added[0].id


def retag(tx: Tx, org: Org, id: DocumentId, names: list[str]) -> None:
    documents.update(tx, Tenant(org.id), id, DocumentChange(tags=names))


def where(tx: Tx, org: Org, text: str) -> dict[str, int]:
    """In which tags the text is known, and how many live memories say it there."""
    found: dict[str, int] = {}
    for name in NAMES:
        known = reading.known(tx, Tenant(org.id), name)
        if count := sum(one.content == text for one in known):
            found[name] = count
    return found


@pytest.mark.parametrize("supported", [False, True], ids=["alone", "with another document"])
def test_a_fact_follows_its_document_through_all_changes_of_tags(
    app: App, org: Org, supported: bool
) -> None:
    text = "Ann drinks tea."
    for old, new in product(OLD, TAGS):
        with suppress(Undo), app.db.begin() as tx:
            id, _ = bear(tx, org, old[0], text)
            if supported:
                bear(tx, org, old[0], text, "And she sleeps.")
            retag(tx, org, id, old)
            retag(tx, org, id, new)
            expected = {old[0]} if supported or old[0] in new else set[str]()
            expected |= set() if old[0] in new else {new[0]}

            assert where(tx, org, text) == dict.fromkeys(expected, 1), (old, new)
            raise Undo


def test_a_deleted_tag_leaves_the_facts_of_documents_that_stay(app: App, org: Org) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        id, _ = bear(tx, org, "a", "Ann drinks tea.")
        retag(tx, org, id, ["a", "b"])
        gone, _ = bear(tx, org, "a", "Bob drinks milk.")
        documents.untag(tx, tenant, "a")

        assert where(tx, org, "Ann drinks tea.") == {"b": 1}
        assert where(tx, org, "Bob drinks milk.") == {}
        assert documents.find(tx, tenant, documents.DocumentQuery(id=gone)).total == 0


def test_a_whole_history_moves(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        id, memory = bear(tx, org, "a", "Ann lives in Bonn.")
        correct(tx, org, "a", memory, "Ann lives in Kiel.")
        retag(tx, org, id, ["b"])

        assert where(tx, org, "Ann lives in Kiel.") == {"b": 1}
        assert where(tx, org, "Ann lives in Bonn.") == {}
        [latest] = reading.known(tx, Tenant(org.id), "b")
        versions = reading.history(tx, Tenant(org.id), [latest.id])[latest.id]
        assert [one.content for one in versions] == ["Ann lives in Kiel.", "Ann lives in Bonn."]


def test_what_was_forgotten_stays_so_where_it_comes_to(app: App, org: Org) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        id, memory = bear(tx, org, "a", "Ann smokes.")
        bear(tx, org, "a", "Ann smokes.", "And she drinks.")
        memories.forget(tx, tenant, "a", MemoryTarget(memory), "wrong")
        retag(tx, org, id, ["b"])

        assert where(tx, org, "Ann smokes.") == {}
        kept = reading.find(tx, tenant, MemoryQuery(any_of=["b"], forgotten=True)).items
        assert [(one.content, one.is_forgotten) for one in kept] == [("Ann smokes.", True)]


def correct(tx: Tx, org: Org, tag: str, id: MemoryId, text: str) -> MemoryId:
    correction = Correction(text, terms.weigh(org.id, text))
    return memories.correct(tx, Tenant(org.id), tag, MemoryTarget(id), correction).id


def test_two_that_come_to_say_the_same_are_one(app: App, org: Org) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        first_source, first = bear(tx, org, "a", "Ann lives in Kiel.")
        second_source, second = bear(tx, org, "a", "Ann lives in Bonn.")
        latest = correct(tx, org, "a", second, "Ann lives in Kiel.")

        assert where(tx, org, "Ann lives in Kiel.") == {"a": 1}
        [one] = reading.known(tx, tenant, "a")
        assert set(one.sources) == {first_source, second_source}
        for id in (first, second, latest):
            assert [m.id for m in reading.named(tx, tenant, "a", [id])] == [latest]
        memories.forget(tx, tenant, "a", MemoryTarget(content="Ann lives in Kiel."), None)
        assert reading.known(tx, tenant, "a") == []


def test_the_united_one_stays_while_either_document_does(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        first_source, _ = bear(tx, org, "a", "Ann lives in Kiel.")
        second_source, second = bear(tx, org, "a", "Ann lives in Bonn.")
        correct(tx, org, "a", second, "Ann lives in Kiel.")
        documents.delete(tx, Tenant(org.id), [second_source])

        assert where(tx, org, "Ann lives in Kiel.") == {"a": 1}
        assert where(tx, org, "Ann lives in Bonn.") == {}
        documents.delete(tx, Tenant(org.id), [first_source])
        assert where(tx, org, "Ann lives in Kiel.") == {}


def test_a_fact_that_comes_to_where_it_is_known_is_one(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        there, _ = bear(tx, org, "b", "Ann drinks tea.")
        id, _ = bear(tx, org, "a", "Ann drinks tea.")
        retag(tx, org, id, ["b"])

        assert where(tx, org, "Ann drinks tea.") == {"b": 1}
        [one] = reading.known(tx, Tenant(org.id), "b")
        assert set(one.sources) == {there, id}


def test_a_copy_waits_for_the_vector_that_its_original_waits_for(app: App, org: Org) -> None:
    vector = np.zeros(64, np.float32)
    vector[0] = 1
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["a"])
        one = Fact("Ann drinks tea.", terms.weigh(org.id, "Ann drinks tea."), vector)
        id, [memory] = memories.add(tx, Tenant(org.id), "a", [one], DocumentId(random_id()))
        memories.add(tx, Tenant(org.id), "a", [one, fact(org, "B")], DocumentId(random_id()))
        tx.execute(
            "insert into vector_gaps (relation, first, last, size) values ('memories', %s, %s, 1)"
            " on conflict do nothing",
            (memory.id, memory.id),
        )
        retag(tx, org, id, ["b"])
        [copy] = reading.known(tx, Tenant(org.id), "b")
        gap = tx.execute("select 1 from vector_gaps where first = %s", (copy.id,)).fetchone()

        assert gap is not None
        tx.execute("delete from vector_gaps where first = any(%s)", ([copy.id, memory.id],))


def test_a_tag_that_a_document_carries_is_one(app: App, org: Org) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        id, _ = bear(tx, org, "a", "Ann drinks tea.")
        retag(tx, org, id, ["made-by-a-document"])

        assert tags.get(tx, tenant, "made-by-a-document").documents == 1


def test_what_a_user_forgot_stays_forgotten_when_a_document_says_it_again(
    app: App, org: Org
) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        _, memory = bear(tx, org, "a", "Ann smokes.")
        memories.forget(tx, tenant, "a", MemoryTarget(memory), "private")
        other, _ = bear(tx, org, "a", "Something else.")
        said = replace(fact(org, "Ann smokes."), spans=[Span(b"\0" * 16, 0, 11)])
        [kept] = memories.store(tx, org.id, other, "a", [said], read=[])

        assert kept == memory
        assert where(tx, org, "Ann smokes.") == {}
        # A user who says it again wants it known.
        bear(tx, org, "a", "Ann smokes.", "And more.")
        assert where(tx, org, "Ann smokes.") == {"a": 1}


def drawn(
    tx: Tx,
    org: Org,
    id: DocumentId,
    text: str,
    updates: MemoryId | None = None,
    follows: MemoryId | None = None,
) -> MemoryId:
    """A fact that was read in a document of the tag a, or concluded from another."""
    related = {} if follows is None else {follows: Relation.DERIVES}
    said = replace(
        fact(org, text),
        spans=[Span(WHOLE, 0, 3)],
        updates=updates,
        is_inference=follows is not None,
        related=related,
    )
    return memories.store(tx, org.id, id, "a", [said], read=[])[0]


def test_a_conclusion_that_comes_to_where_it_is_said_stays(app: App, org: Org) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        bear(tx, org, "b", "Ann sleeps badly.")
        premise, tea = bear(tx, org, "a", "Ann drinks tea.")
        id, _ = bear(tx, org, "a", "One.")
        drawn(tx, org, id, "Ann sleeps badly.", follows=tea)
        retag(tx, org, id, ["b"])
        documents.delete(tx, tenant, [premise])

        assert where(tx, org, "Ann sleeps badly.") == {"b": 1}


def test_a_conclusion_has_no_copy_where_what_it_follows_from_is_not_known(
    app: App, org: Org
) -> None:
    with app.db.begin() as tx:
        premise, tea = bear(tx, org, "a", "Ann drinks tea.")
        left, moved = (bear(tx, org, "a", text)[0] for text in ("One.", "Two."))
        for id in (left, moved):
            drawn(tx, org, id, "Ann sleeps badly.", follows=tea)
        retag(tx, org, moved, ["b"])
        assert where(tx, org, "Ann sleeps badly.") == {"a": 1}
        documents.delete(tx, Tenant(org.id), [premise])

        assert where(tx, org, "Ann sleeps badly.") == {}


def somebody_waits(app: App) -> bool:
    with app.db.begin() as tx:
        row = tx.execute(
            "select exists (select from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock') as waits"
        ).fetchone()
    return row is not None and row["waits"]


def test_a_conclusion_that_is_said_while_it_goes_stays(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        premise, tea = bear(tx, org, "a", "Ann drinks tea.")
        id, _ = bear(tx, org, "a", "One.")
        drawn(tx, org, id, "Ann sleeps badly.", follows=tea)

    def delete() -> None:
        with app.db.begin() as tx:
            documents.delete(tx, Tenant(org.id), [premise])

    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            bear(tx, org, "a", "Ann sleeps badly.")
            deleted = pool.submit(delete)
            eventually(lambda: somebody_waits(app))
        deleted.result()

    with app.db.begin() as tx:
        assert where(tx, org, "Ann sleeps badly.") == {"a": 1}


def test_a_version_that_another_document_replaced_counts_where_only_it_goes(
    app: App, org: Org
) -> None:
    with app.db.begin() as tx:
        before, _ = bear(tx, org, "a", "One.")
        after, _ = bear(tx, org, "a", "Two.")
        bonn = drawn(tx, org, before, "Ann lives in Bonn.")
        drawn(tx, org, after, "Ann lives in Kiel.", updates=bonn)
        retag(tx, org, before, ["b"])

        assert where(tx, org, "Ann lives in Kiel.") == {"a": 1}
        assert where(tx, org, "Ann lives in Bonn.") == {"b": 1}


def test_a_document_that_a_merge_leaves_keeps_its_memories(app: App, org: Org) -> None:
    tenant = Tenant(org.id)
    with app.db.begin() as tx:
        left, moved, alone = (bear(tx, org, "a", text)[0] for text in ("One.", "Two.", "Three."))
        tags.ensure(tx, org.id, ["b"])
        bonn = drawn(tx, org, moved, "Ann lives in Bonn.")
        drawn(tx, org, left, "Ann lives in Kiel.", updates=bonn)
        tea = drawn(tx, org, left, "Ann drinks tea.")
        drawn(tx, org, moved, "Ann drinks milk.", updates=tea)
        for id in (left, moved):
            drawn(tx, org, id, "Ann sleeps.")
        drawn(tx, org, alone, "Ann smokes.")
        merge = tags.begin_merge(tx, tenant, ["a"], "b", random_id())
        documents.retag(
            tx, org.id, ["a"], "b", kept=[left], until=datetime(9999, 1, 1, tzinfo=UTC), limit=9
        )
        tags.advance_merge(tx, merge, 2, [left], done=True)

        found = {
            text: where(tx, org, f"Ann {text}.")
            for text in ("lives in Bonn", "lives in Kiel", "drinks tea", "drinks milk", "sleeps")
        }
        assert found == {
            "lives in Bonn": {"b": 1},
            "lives in Kiel": {"a": 1},
            "drinks tea": {"a": 1},
            "drinks milk": {"b": 1},
            "sleeps": {"a": 1, "b": 1},
        }
        assert where(tx, org, "Ann smokes.") == {"b": 1}
        for name, id in (("a", left), ("b", moved)):
            sources = {id for one in reading.known(tx, tenant, name) for id in one.sources}
            assert sources - {alone} == {id}


def conclude(tx: Tx, org: Org, tag: str, document: DocumentId, premise: MemoryId) -> None:
    cited = replace(
        fact(org, "conclusion"),
        is_inference=True,
        spans=[Span(WHOLE, 0, 1)],
        related={premise: Relation.DERIVES},
    )
    memories.store(tx, org.id, document, tag, [cited], read=())


@pytest.mark.parametrize(
    ("bears", "leaves", "premise", "conclusion"),
    [
        ("p c", "p", {"b": 1}, {}),
        ("p c", "c", {"a": 1}, {}),
        ("pc", "pc", {"b": 1}, {"b": 1}),
        ("pc p", "pc", {"a": 1, "b": 1}, {"b": 1}),
        ("pc c", "pc", {"b": 1}, {"b": 1}),
        ("pc pc", "pc", {"a": 1, "b": 1}, {"a": 1, "b": 1}),
        ("pc p c", "pc", {"a": 1, "b": 1}, {"a": 1, "b": 1}),
    ],
)
def test_a_conclusion_is_only_where_what_it_follows_from_is(
    app: App, org: Org, bears: str, leaves: str, premise: dict[str, int], conclusion: dict[str, int]
) -> None:
    """`bears`: of each document, whether the premise or the conclusion rests on it; the first that
    is as `leaves` comes to another tag."""
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["b"])
        of: list[tuple[str, DocumentId]] = []
        known = MemoryId("")
        for n, what in enumerate(bears.split()):
            texts = [f"own {n}"] if what == "c" else ["premise", f"own {n}"]
            id, first = bear(tx, org, "a", *texts)
            of.append((what, id))
            known = first if "p" in what else known
        for what, id in of:
            if "c" in what:
                conclude(tx, org, "a", id, known)
        gone = next(id for what, id in of if what == leaves)

        retag(tx, org, gone, ["b"])

        assert (where(tx, org, "premise"), where(tx, org, "conclusion")) == (premise, conclusion)
        documents.delete(tx, Tenant(org.id), [gone])
        for found in (where(tx, org, "premise"), where(tx, org, "conclusion")):
            assert "b" not in found


def test_a_conclusion_keeps_a_premise_that_was_corrected(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["b"])
        both, premise = bear(tx, org, "a", "premise", "own")
        bear(tx, org, "a", "premise", "another")
        conclude(tx, org, "a", both, premise)
        correction = Correction("corrected", terms.weigh(org.id, "corrected"))
        memories.correct(tx, Tenant(org.id), "a", MemoryTarget(id=premise), correction)

        retag(tx, org, both, ["b"])

        assert where(tx, org, "corrected") == {"a": 1, "b": 1}
        assert where(tx, org, "conclusion") == {"b": 1}


def test_a_conclusion_that_became_its_premise_moves_as_one(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["b"])
        both, premise = bear(tx, org, "a", "premise", "own")
        other, _ = bear(tx, org, "a", "premise", "another")
        conclude(tx, org, "a", both, premise)
        conclude(tx, org, "a", other, premise)
        same = Correction("premise", terms.weigh(org.id, "premise"))
        memories.correct(tx, Tenant(org.id), "a", MemoryTarget(content="conclusion"), same)

        retag(tx, org, both, ["b"])

        assert where(tx, org, "premise") == {"a": 1, "b": 1}


def test_a_conclusion_comes_along_when_tags_are_merged(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["b"])
        first, premise = bear(tx, org, "a", "premise")
        second, _ = bear(tx, org, "a", "own")
        conclude(tx, org, "a", second, premise)
        stays, _ = bear(tx, org, "a", "premise", "another")
        merge = tags.begin_merge(tx, Tenant(org.id), ["a"], "b", random_id())

        for _ in (first, second):
            documents.retag(
                tx,
                org.id,
                ["a"],
                "b",
                kept=[stays],
                until=datetime(9999, 1, 1, tzinfo=UTC),
                limit=1,
            )
        tags.advance_merge(tx, merge, 0, [stays], done=True)

        assert where(tx, org, "premise") == {"a": 1, "b": 1}
        assert where(tx, org, "conclusion") == {"b": 1}


def test_a_premise_comes_to_where_it_is_known_while_a_conclusion_goes(app: App, org: Org) -> None:
    with app.db.begin() as tx:
        moved, _ = bear(tx, org, "a", "premise")
        _, known = bear(tx, org, "b", "premise")
        ends, _ = bear(tx, org, "b", "own")
        conclude(tx, org, "b", ends, known)

    def move() -> None:
        with app.db.begin() as tx:
            retag(tx, org, moved, ["b"])

    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            documents.delete(tx, Tenant(org.id), [ends])
            done = pool.submit(move)
            eventually(lambda: somebody_waits(app))
        done.result()

    with app.db.begin() as tx:
        assert (where(tx, org, "premise"), where(tx, org, "conclusion")) == ({"b": 1}, {})
