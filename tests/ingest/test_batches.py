"""Documents of a batch that are new are added together; what comes of it is the same."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.documents import DocumentQuery
from recollect.errors import RequestError
from recollect.ingest import intake
from recollect.ingest.intake import Labels
from recollect.model import Content, Document, Org, Plan, Tenant
from recollect.orgs import orgs, tags
from tests.conftest import examples

LABELS = st.builds(
    Labels,
    tags=st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    custom_id=st.sampled_from([None, None, "one", "two", "three"]),
    metadata=st.sampled_from([None, {"year": 1}, {"year": 2}]),
    entity_context=st.sampled_from([None, None, None, "A zoo."]),
)
WANTED = st.tuples(LABELS, st.sampled_from(["A heron.", "A stork.", "A crane.", "https://a.org/"]))


@settings(max_examples=examples(change=15, night=500))
@given(before=st.lists(WANTED, max_size=2), batch=st.lists(WANTED, min_size=2, max_size=6))
def test_a_batch_is_as_one_after_the_other(
    app: App, before: list[tuple[Labels, str]], batch: list[tuple[Labels, str]]
):
    def each(tenant: Tenant, some: list[tuple[Labels, Content]]) -> list[Document | RequestError]:
        return [outcome for one in some for outcome in intake.take_all(app, tenant, [one])]

    def together(
        tenant: Tenant, some: list[tuple[Labels, Content]]
    ) -> list[Document | RequestError]:
        return intake.take_all(app, tenant, some)

    def come_of(
        take: Callable[[Tenant, list[tuple[Labels, Content]]], list[Document | RequestError]],
    ) -> Any:
        with app.db.begin() as tx:
            tenant = Tenant(orgs.create(tx, f"org-{orgs.random_id()}", Plan.FREE).id)
        each(tenant, _readable(app, before))
        outcomes = take(tenant, _readable(app, batch))
        with app.db.begin() as tx:
            there = documents.find(tx, tenant, DocumentQuery(limit=100)).items
            contexts = {tag: tags.guidance(tx, tenant.id, tag) for tag in "abc"}
            tx.execute("delete from orgs where id = %s", (tenant.id,))
        ids = [one.id if isinstance(one, Document) else str(one) for one in outcomes]
        places = {id: place for place, id in reversed(list(enumerate(ids)))}
        stored = sorted(_told(one) for one in there)
        return [places[id] for id in ids], [*map(_outcome, outcomes)], stored, contexts

    assert come_of(together) == come_of(each)


def _readable(app: App, some: list[tuple[Labels, str]]) -> list[tuple[Labels, Content]]:
    return [(labels, intake.content_of(app, text)) for labels, text in some]


def _told(document: Document) -> str:
    shown = (document.custom_id, document.container_tags, document.metadata, document.url)
    return repr((*shown, document.status, document.revision, document.kind))


def _outcome(one: Document | RequestError) -> str:
    return _told(one) if isinstance(one, Document) else f"{type(one)} {one}"


def test_new_documents_come_in_one_transaction(app: App, tenant: Tenant):
    some = [(Labels(tags=[f"user-{n}"], custom_id=f"{n % 25}"), f"Note {n}.") for n in range(25)]

    taken = intake.take_all(app, tenant, _readable(app, some))

    added = [one for one in taken if isinstance(one, Document)]
    assert [one.custom_id for one in added] == [labels.custom_id for labels, _ in some]
    # now() is when the transaction began.
    assert added[-1].created_at - added[0].created_at == timedelta(microseconds=len(some) - 1)
    with app.db.begin() as tx:
        listed = documents.find(tx, tenant, DocumentQuery(limit=100)).items
    assert [one.id for one in listed] == [one.id for one in reversed(added)]


def test_batches_that_meet_do_not_wait_for_each_other_in_a_circle(
    app: App, tenant: Tenant, db: Database
):
    names = [f"n{n}" for n in range(20)]
    rounds, at_once = 8, 4
    start = threading.Barrier(at_once, timeout=60)

    def add(sender: int) -> None:
        order = names if sender % 2 else names[::-1]
        for turn in range(rounds):
            tagged = [(name, Labels(tags=[f"{turn}-{name}"])) for name in order]
            some = [
                (replace(labels, custom_id=f"{turn}-{name}"), f"Note {turn} {name}.")
                for name, labels in tagged
            ]
            some += [(labels, f"{turn} {name}.") for name, labels in tagged]
            start.wait()
            intake.take_together(app, tenant, _readable(app, some))  # or raises Contended

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(add, range(at_once)))

    with db.begin() as tx:
        there = documents.find(tx, tenant, DocumentQuery(limit=1_000)).items
    assert len(there) == rounds * 2 * len(names)
    assert len({(one.custom_id, *one.container_tags) for one in there}) == len(there)


def test_a_tag_that_a_batch_names_keeps_its_context(app: App, org: Org, tenant: Tenant):
    with app.db.begin() as tx:
        tags.ensure(tx, org.id, ["zoo"], "Animals of a zoo.")

    intake.take_all(app, tenant, _readable(app, [(Labels(tags=["zoo"]), f"{n}") for n in range(3)]))

    with app.db.begin() as tx:
        assert tags.guidance(tx, org.id, "zoo")[0] == "Animals of a zoo."
