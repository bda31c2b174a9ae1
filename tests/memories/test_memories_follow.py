"""Wherever a document's tags go, what it says goes along: a model of who says what in which tag."""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import permutations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from recollect import documents
from recollect.db import Database, Tx
from recollect.documents import DocumentChange
from recollect.index import terms
from recollect.memories import memories, reading
from recollect.memories.records import (
    WHOLE,
    Correction,
    Fact,
    Memory,
    MemoryQuery,
    MemoryTarget,
    Span,
)
from recollect.model import DocumentId, Org, Tenant, random_id
from recollect.orgs import tags
from tests.conftest import examples, fresh_org

TAGS = ("a", "b", "c")
CHOICES: list[list[str]] = [list(some) for size in (1, 2, 3) for some in permutations(TAGS, size)]

ANY_TIME = datetime(9999, 1, 1, tzinfo=UTC)


def fact(org: Org, text: str, spans: Sequence[Span] = ()) -> Fact:
    return Fact(text, terms.weigh(org.id, text), spans=spans)


def everything(tx: Tx, tenant: Tenant) -> list[Memory]:
    return list(reading.find(tx, tenant, MemoryQuery(limit=1000)).items)


@pytest.mark.parametrize("before", CHOICES, ids="".join)
def test_no_change_of_tags_loses_a_memory(db: Database, before: list[str]):
    """By day to a third of all, which is another for each of three: one tag, two and three."""
    part = examples(change=3, night=1)
    for after in CHOICES[CHOICES.index(before) * 2 % part :: part]:
        with fresh_org(db) as org, db.begin() as tx:
            tenant = Tenant(org.id)
            other, _ = memories.add(tx, tenant, "a", [fact(org, "both")], DocumentId(random_id()))
            first = [fact(org, before[0])]
            document, _ = memories.add(tx, tenant, before[0], first, DocumentId(random_id()))
            documents.update(tx, tenant, document, DocumentChange(tags=before))
            for tag in before:
                for text in (tag, "both"):
                    cited = fact(org, text, spans=[Span(WHOLE, 0, len(text))])
                    memories.store(tx, org.id, document, tag, [cited], read=())
            documents.update(tx, tenant, document, DocumentChange(tags=after))

            home = {tag: tag if tag in after else after[0] for tag in before}
            borne = {(home[tag], text) for tag in before for text in (tag, "both")}
            found = [(m.tag, m.content, set(m.sources)) for m in everything(tx, tenant)]
        expected = [
            (
                tag,
                text,
                {d for d, has in ((document, borne), (other, {("a", "both")})) if pair in has},
            )
            for pair in borne | {("a", "both")}
            for tag, text in [pair]
        ]
        assert sorted(found, key=str) == sorted(expected, key=str), (before, after)


class Following(RuleBasedStateMachine):
    """A memory is found where a document that bears it says so, and nowhere else.

    The model: which document says which text in which tag.
    """

    db: Database
    drawer = Bundle("documents")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.org = self.stack.enter_context(fresh_org(self.db))
        with self.db.begin() as tx:
            tags.ensure(tx, self.org.id, TAGS)
        self.tenant = Tenant(self.org.id)
        self.tags: dict[DocumentId, list[str]] = {}
        self.said: set[tuple[DocumentId, str, str]] = set()
        self.texts = 0

    def teardown(self) -> None:
        self.stack.close()

    def moved(self, document: DocumentId, after: list[str], target: str | None = None) -> None:
        home = target or after[0]
        self.said = {
            (one, tag if one != document or tag in after else home, text)
            for one, tag, text in self.said
        }
        self.tags[document] = after

    @rule(target=drawer, tag=st.sampled_from(TAGS), text=st.sampled_from("xyz"))
    def add(self, tag: str, text: str) -> DocumentId:
        with self.db.begin() as tx:
            facts = [fact(self.org, text), fact(self.org, f"own {self.texts}")]
            id, _ = memories.add(tx, self.tenant, tag, facts, DocumentId(random_id()))
        self.tags[id] = [tag]
        self.said |= {(id, tag, text), (id, tag, f"own {self.texts}")}
        self.texts += 1
        return id

    @rule(document=drawer, after=st.sampled_from(CHOICES))
    def patch(self, document: DocumentId, after: list[str]) -> None:
        if document in self.tags:
            with self.db.begin() as tx:
                documents.update(tx, self.tenant, document, DocumentChange(tags=after))
            self.moved(document, after)

    @rule(document=drawer)
    def delete(self, document: DocumentId) -> None:
        if self.tags.pop(document, None):
            with self.db.begin() as tx:
                documents.delete(tx, self.tenant, [document])
            self.said = {one for one in self.said if one[0] != document}

    @rule(tag=st.sampled_from(TAGS))
    def untag(self, tag: str) -> None:
        with self.db.begin() as tx:
            gone = documents.untag(tx, self.tenant, tag)
        assert set(gone) == {id for id, names in self.tags.items() if names == [tag]}
        for id in gone:
            del self.tags[id]
        self.said = {one for one in self.said if one[0] in self.tags}
        for id, names in list(self.tags.items()):
            self.moved(id, [name for name in names if name != tag])

    @rule(pair=st.permutations(TAGS), leaves=st.integers(0, 2))
    def merge(self, pair: list[str], leaves: int) -> None:
        source, target, _ = pair
        kept = [id for id, names in self.tags.items() if source in names][:leaves]
        with self.db.begin() as tx:
            merge = tags.begin_merge(tx, self.tenant, [source], target, random_id())
            moved = 1
            while moved:
                moved, _ = documents.retag(
                    tx, self.org.id, [source], target, kept=kept, until=ANY_TIME, limit=1
                )
            tags.advance_merge(tx, merge, 0, kept, done=True)
            tags.ensure(tx, self.org.id, TAGS)
        for id, names in list(self.tags.items()):
            if id not in kept:
                after = list(dict.fromkeys(target if name == source else name for name in names))
                self.moved(id, after, target)

    @rule(tag=st.sampled_from(TAGS), old=st.sampled_from("xyz"), new=st.sampled_from("xyz"))
    def correct(self, tag: str, old: str, new: str) -> None:
        if any((tag, old) == one[1:] for one in self.said):
            with self.db.begin() as tx:
                done = memories.correct(
                    tx,
                    self.tenant,
                    tag,
                    MemoryTarget(content=old),
                    Correction(new, terms.weigh(self.org.id, new)),
                )
            assert (done.content, done.is_latest) == (new, True)
            self.said = {
                (id, where, new if (where, text) == (tag, old) else text)
                for id, where, text in self.said
            }

    @rule(tag=st.sampled_from(TAGS), text=st.sampled_from("xyz"))
    def forget(self, tag: str, text: str) -> None:
        if any((tag, text) == one[1:] for one in self.said):
            with self.db.begin() as tx:
                memories.forget(tx, self.tenant, tag, MemoryTarget(content=text), None)
            self.said = {one for one in self.said if one[1:] != (tag, text)}

    @invariant()
    def found_where_said(self) -> None:
        with self.db.begin() as tx:
            found = everything(tx, self.tenant)
            versions = reading.history(tx, self.tenant, [one.id for one in found])
        assert sorted((one.tag, one.content) for one in found) == sorted(
            {(tag, text) for _, tag, text in self.said}
        )
        for one in found:
            bearers = {id for id, tag, text in self.said if (tag, text) == (one.tag, one.content)}
            assert set(one.sources) == bearers
            assert one in versions[one.id]


def test_a_memory_is_found_exactly_where_a_document_says_it(db: Database):
    class Here(Following):
        pass

    Here.db = db
    run_state_machine_as_test(
        Here,
        settings=settings(max_examples=25, stateful_step_count=20, deadline=None, derandomize=True),
    )
