"""The counts that lists show are kept, and are what a count of the rows would give."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentChange, DocumentQuery, NewDocument, _changing
from recollect.errors import RequestError
from recollect.model import DocumentId, Status, Tenant, random_id
from recollect.ops import verify
from recollect.orgs import tags
from recollect.worker import processing

TAGS = ("heron", "otter", "pike")


def add(app: App, tenant: Tenant, *named: str, id: str | None = None) -> DocumentId:
    content = documents.text_content(f"A {random_id()} by the shore of {' and '.join(named)}.")
    with app.db.begin() as tx:
        new = NewDocument(content, named, tagged=True, custom_id=id)
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def counted(app: App, tenant: Tenant) -> dict[str, int]:
    """The rows of the table, counted: of each tag, and of all."""
    with app.db.begin() as tx:
        rows = tx.execute(
            "select container_tags, chunks from documents where org_id = %s and gone_at is null",
            (tenant.id,),
        ).fetchall()
    found = {tag: sum(tag in row["container_tags"] for row in rows) for tag in TAGS}
    return found | {"": len(rows), "chunks": sum(row["chunks"] for row in rows)}


def told(app: App, tenant: Tenant) -> dict[str, int]:
    """The same as lists say it."""
    with app.db.begin() as tx:
        every = documents.find(tx, tenant, DocumentQuery())
        assert sum(documents.counts(tx, tenant).values()) == every.total
        found = {
            tag: documents.find(tx, tenant, DocumentQuery(tags=[tag], page=9)).total for tag in TAGS
        }
        listed = {
            one.tag.name: one.documents for one in tags.find(tx, tenant, limit=99, page=1).items
        }
        assert {tag: listed.get(tag, 0) for tag in TAGS} == found
        chunks = documents.find_chunks(tx, tenant, DocumentQuery()).total
    return found | {"": every.total, "chunks": chunks}


@dataclass
class Chance:
    """What happens to documents, by lot."""

    app: App
    tenant: Tenant
    lots: random.Random
    made: list[DocumentId] = field(default_factory=list[DocumentId])

    def step(self) -> str:
        step = self.lots.choice(
            [self.add, self.work, self.change, self.retag, self.delete, self.clear, self.merge]
        )
        with suppress(RequestError):  # of a document or a tag that is gone
            step()
        if self.lots.random() < 0.3:
            documents.fold_counts(self.app.db)
        return step.__name__

    def some(self) -> list[DocumentId]:
        return self.lots.sample(self.made, min(len(self.made), 3))

    def tagged(self) -> tuple[str, ...]:
        return tuple(self.lots.sample(TAGS, self.lots.randint(1, 3)))

    def add(self) -> None:
        self.made += [add(self.app, self.tenant, *self.tagged()) for _ in range(4)]

    def work(self) -> None:
        processing.drain(self.app)

    def change(self) -> None:
        content = documents.text_content("Something new. " * self.lots.randint(1, 900))
        self.update(lambda: DocumentChange(content=content))

    def retag(self) -> None:
        self.update(lambda: DocumentChange(tags=self.tagged()))

    def update(self, change: Callable[[], DocumentChange]) -> None:
        with self.app.db.begin() as tx:
            for id in self.some():
                documents.update(tx, self.tenant, id, change())

    def delete(self) -> None:
        limited = Tenant(self.tenant.id, self.lots.choice([None, TAGS[:1]]))
        with self.app.db.begin() as tx:
            documents.delete(tx, limited, self.some())

    def clear(self) -> None:
        with self.app.db.begin() as tx:
            documents.delete_where(tx, self.tenant, tags=[self.lots.choice(TAGS)])

    def merge(self) -> None:
        source, target = self.lots.sample(TAGS, 2)
        with self.app.db.begin() as tx:
            tags.begin_merge(tx, self.tenant, [source], target, random_id())
        processing.drain(self.app)


@pytest.mark.parametrize("at_once", [2, _changing.AT_ONCE])
@pytest.mark.parametrize("seed", range(3))
def test_lists_say_what_there_is_whatever_happens(
    app: App, tenant: Tenant, seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_changing, "AT_ONCE", at_once)
    chance = Chance(app, tenant, random.Random(seed))
    happened: list[str] = []
    for _ in range(40):
        happened.append(chance.step())

        assert told(app, tenant) == counted(app, tenant), happened


def test_many_are_counted_off_in_one_step_and_what_follows_as_ever(
    app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_changing, "AT_ONCE", 2)
    for number in range(30):
        add(app, tenant, "heron", *(["otter"] if number % 2 else []))
    rest = add(app, tenant, "pike")
    documents.fold_counts(app.db)
    with app.db.begin() as tx:
        documents.delete_where(tx, tenant, tags=["heron"])
        written = tx.execute(
            "select tag from document_counts where org_id = %s and not folded", (tenant.id,)
        ).fetchall()
        documents.update(tx, tenant, rest, DocumentChange(tags=["heron"]))

    assert sorted(row["tag"] for row in written) == ["", "heron", "otter"]
    assert told(app, tenant) == counted(app, tenant)
    assert told(app, tenant) == {"": 1, "chunks": 0, "heron": 1, "otter": 0, "pike": 0}


def test_many_that_write_at_once_and_fold_are_counted(app: App, tenant: Tenant):
    def write(number: int) -> None:
        tag = TAGS[number % 3]
        ids = [add(app, tenant, tag) for _ in range(10)]
        documents.fold_counts(app.db)
        with app.db.begin() as tx:
            documents.delete(tx, tenant, ids[:5])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(12)))
    documents.fold_counts(app.db)

    assert told(app, tenant) == counted(app, tenant)
    assert told(app, tenant)[""] == 60


def test_a_key_of_one_tag_and_a_key_of_two_see_their_own(app: App, tenant: Tenant):
    for named in (["heron"], ["heron", "otter"], ["otter"], ["pike"], ["pike"]):
        add(app, tenant, *named)
    one, two = Tenant(tenant.id, ["heron"]), Tenant(tenant.id, ["heron", "otter"])

    def total(seen_by: Tenant, *asked: str) -> int:
        with app.db.begin() as tx:
            return documents.find(tx, seen_by, DocumentQuery(tags=asked)).total

    assert (total(one), total(two)) == (2, 3)
    assert (total(one, "heron"), total(one, "otter"), total(one, "pike")) == (2, 1, 0)
    assert (total(two, "heron", "otter"), total(two, "pike")) == (1, 0)
    with app.db.begin() as tx:
        assert documents.counts(tx, two)[Status.QUEUED] == 3
        assert documents.find(tx, Tenant(tenant.id, []), DocumentQuery()).total == 0


def test_folded_counts_keep_no_name_of_a_tag_that_is_gone(app: App, tenant: Tenant):
    id = add(app, tenant, "heron")
    documents.fold_counts(app.db)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [id])
    documents.fold_counts(app.db)

    with app.db.begin() as tx:
        left = tx.execute(
            "select tag from document_counts where org_id = %s", (tenant.id,)
        ).fetchall()
    assert left == []


def test_a_page_counts_no_rows(app: App, tenant: Tenant, client: httpx.Client):
    """What lists say follows the kept counts: they are not counted beside."""
    add(app, tenant, "heron")
    with app.db.begin() as tx:
        tx.execute("update document_counts set documents = 7 where org_id = %s", (tenant.id,))

    def total(path: str, **body: object) -> int:
        return client.post(path, json=body).json()["pagination"]["totalItems"]

    assert total("/v3/documents/list") == total("/v3/documents/list", containerTags=["heron"]) == 7
    listed = client.get("/v3/container-tags/list").json()
    assert [one["documentCount"] for one in listed["containerTags"]] == [7]
    assert sum(client.get("/v3/documents/counts").json().values()) == 7

    found = verify.verify(app.db, app.blobs, mend=True).findings

    assert [(one.kind, one.mended >= 2) for one in found] == [("count_wrong", True)]
    assert total("/v3/documents/list") == total("/v3/documents/list", containerTags=["heron"]) == 1
    assert not verify.verify(app.db, app.blobs).findings
