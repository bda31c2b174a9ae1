"""Documents leave a tag, and it ends, while others come: their tags are known and their customIds
theirs, whoever was first."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange, NewDocument
from recollect.model import DocumentId, Scope, Tenant, random_id
from recollect.orgs import tags
from recollect.sync.sources import end_tag
from recollect.worker import tag_merges
from tests.conftest import capture_logs, eventually
from tests.contract.calls import refused
from tests.contract.conftest import limited, with_key
from tests.documents.test_hidden_rows import waiting

__all__ = ["limited", "with_key"]


def put(tx: Tx, tenant: Tenant, *names: str, custom_id: str | None = None) -> DocumentId:
    new = NewDocument(documents.text_content("A heron."), names, custom_id=custom_id)
    return documents.add(tx, tenant, new, DocumentId(random_id())).id


def carrying(app: App, tenant: Tenant, name: str) -> list[str] | None:
    """The documents of a tag that is known; None of one that is not."""
    with app.db.begin() as tx:
        known = {one.tag.name: one for one in tags.find(tx, tenant, limit=9, page=1).items}
        if name not in known:
            return None
        held = known[name].documents
        found = documents.find(tx, tenant, documents.DocumentQuery(tags=[name]))
    assert held == len(found.items)
    return [one.id for one in found.items]


def carried(tx: Tx, tenant: Tenant) -> set[str]:
    found = documents.find(tx, tenant, documents.DocumentQuery())
    return {tag for one in found.items for tag in one.container_tags}


def new(tx: Tx, tenant: Tenant, other: DocumentId) -> DocumentId:
    return put(tx, tenant, "a", custom_id="x")


def moved(tx: Tx, tenant: Tenant, other: DocumentId) -> DocumentId:
    return documents.update(tx, tenant, other, DocumentChange(tags=["b", "a"])).id


def ended(app: App, tenant: Tenant) -> None:
    with app.db.begin() as tx:
        end_tag(tx, app, tenant, "a")


def merged(app: App, tenant: Tenant) -> None:
    with app.db.begin() as tx:
        claimed = tags.claim_merge(tx)
        assert claimed is not None
        tags.advance_merge(tx, claimed, 0, [], done=True)


def cleared(app: App, tenant: Tenant) -> None:
    with app.db.begin() as tx:
        documents.delete_all(tx, tenant)
        tags.forget_all(tx, tenant.id)


@pytest.mark.parametrize(
    ("end", "come"),
    [(ended, new), (ended, moved), (merged, new), (merged, moved), (cleared, new)],
)
def test_who_comes_to_a_tag_before_it_ends_is_waited_for(
    app: App,
    tenant: Tenant,
    end: Callable[[App, Tenant], None],
    come: Callable[[Tx, Tenant, DocumentId], DocumentId],
) -> None:
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["a"])
        other = put(tx, tenant, "b")
        if end is merged:
            tags.begin_merge(tx, tenant, ["a"], "c", random_id())
    with ThreadPoolExecutor(1) as others:
        with app.db.begin() as tx:
            id = come(tx, tenant, other)
            ending = others.submit(end, app, tenant)
            eventually(lambda: waiting(app) or ending.done())
        ending.result()
    # Who deletes takes it along.
    assert carrying(app, tenant, "a") == (None if end is ended else [id])
    if end is ended:
        with app.db.begin() as tx:
            assert carried(tx, tenant) == {"b"}


@pytest.mark.parametrize("come", [new, moved])
def test_who_comes_to_a_tag_that_is_ending_makes_it_again(
    app: App, tenant: Tenant, come: Callable[[Tx, Tenant, DocumentId], DocumentId]
) -> None:
    with app.db.begin() as tx:
        first, other = put(tx, tenant, "a"), put(tx, tenant, "b")

    def coming() -> DocumentId:
        with app.db.begin() as tx:
            return come(tx, tenant, other)

    with ThreadPoolExecutor(1) as others:
        with app.db.begin() as tx:
            assert end_tag(tx, app, tenant, "a").documents == 1
            comes = others.submit(coming)
            eventually(lambda: waiting(app) or comes.done())
        id = comes.result()
    assert id != first
    assert carrying(app, tenant, "a") == [id]


def test_a_custom_id_that_is_taken_meanwhile_is_no_error_of_the_service(
    app: App, tenant: Tenant, client: httpx.Client, limited: Callable[..., httpx.Client]
) -> None:
    with app.db.begin() as tx:
        id = put(tx, tenant, "a", "b", custom_id="x")
    own = limited(Scope.WRITE, tags=["a"])
    with ThreadPoolExecutor(1) as others:
        with app.db.begin() as tx:
            between = put(tx, tenant, "c", custom_id="y")
            tx.execute(
                "update documents set custom_id = 'x', container_tags = '{b}' where id = %s",
                (between,),
            )
            deleting = others.submit(own.delete, f"/v3/documents/{id}")
            eventually(lambda: waiting(app) or deleting.done())
        refused(deleting.result(), 400, "customId")


def test_a_merge_leaves_behind_whose_custom_id_is_taken_meanwhile(app: App, tenant: Tenant) -> None:
    with app.db.begin() as tx:
        id = put(tx, tenant, "a", custom_id="x")
        begun = tags.begin_merge(tx, tenant, ["a"], "b", random_id())
    with ThreadPoolExecutor(1) as others, capture_logs() as logged:
        with app.db.begin() as tx:
            put(tx, tenant, "b", custom_id="x")
            merging = others.submit(tag_merges.step, app)
            eventually(lambda: waiting(app) or merging.done())
        merging.result()
    assert logged == []
    with app.db.begin() as tx:
        assert tags.merge(tx, tenant, begun.id).kept == [id]


def test_what_is_added_while_a_merge_brings_its_custom_id_goes_into_that_document(
    app: App, tenant: Tenant, client: httpx.Client
) -> None:
    with app.db.begin() as tx:
        id = put(tx, tenant, "a", custom_id="x")
        until = datetime.now(UTC) + timedelta(hours=1)
    again = {"content": "A stork.", "containerTag": "b", "customId": "x"}
    with ThreadPoolExecutor(1) as others:
        with app.db.begin() as tx:
            documents.retag(tx, tenant.id, ["a"], "b", kept=[], until=until, limit=9)
            adding = others.submit(client.post, "/v3/documents", json=again)
            eventually(lambda: waiting(app) or adding.done())
        assert adding.result().json()["id"] == id


@pytest.mark.parametrize("named", [True, False])
def test_what_is_added_again_does_not_go_into_a_document_that_left_the_tag(
    app: App, tenant: Tenant, named: bool
) -> None:
    own = Tenant(tenant.id, ["a"])
    with app.db.begin() as tx:
        left = put(tx, tenant, "a", "b", custom_id="x")

    def again() -> DocumentId:
        content = documents.text_content("What only a may know.")
        new = NewDocument(content, ["a"], tagged=named, custom_id="x")
        with app.db.begin() as tx:
            return documents.add(tx, own, new, DocumentId(random_id())).id

    with ThreadPoolExecutor(1) as others:
        with app.db.begin() as tx:
            documents.delete(tx, own, [left])
            adding = others.submit(again)
            eventually(lambda: waiting(app) or adding.done())
        id = adding.result()
    assert id != left
    assert carrying(app, tenant, "a") == [id]
    assert carrying(app, tenant, "b") == [left]
