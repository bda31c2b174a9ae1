"""A deletion of many documents: gone from every answer with its commit, from the tables later."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import AT_ONCE, DocumentQuery, NewDocument
from recollect.errors import LeaseLost, NotFoundError, Unavailable
from recollect.memories import memories, records
from recollect.model import DocumentId, Plan, Stage, Tenant, random_id
from recollect.ops import purge, verify
from recollect.orgs import orgs, tags
from recollect.search import hybrid
from recollect.search.hybrid import Query
from recollect.worker import processing
from tests.conftest import facet

MANY = AT_ONCE // 2 + 100
"""documents, each with a chunk: more than go in one transaction"""


@pytest.fixture
def neighbour(app: App) -> Generator[Tenant]:
    with app.db.begin() as tx:
        made = orgs.create(tx, f"neighbour-{random_id()}", Plan.ENTERPRISE)
    yield Tenant(made.id)
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


def add(app: App, tenant: Tenant, tag: str, text: str, **more: Any) -> DocumentId:
    content = documents.text_content(text)
    with app.db.begin() as tx:
        new = NewDocument(content, [tag], tagged=True, **more)
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def fill(app: App, tenant: Tenant, tag: str, count: int = MANY) -> None:
    """Finished documents with a chunk and an entry each, as one that is there in fact."""
    pattern = add(app, tenant, tag, "A zebra crosses the road.")
    processing.drain(app)
    with app.db.begin() as tx:
        for table in ("documents", "entries", "chunks"):
            id = "id" if table == "documents" else "document_id"
            names = [
                row["name"]
                for row in tx.execute(
                    "select attname as name from pg_attribute where attrelid = %s::regclass"
                    " and attnum > 0 and not attisdropped and attgenerated = ''"
                    " and attname <> %s",
                    (table, id),
                )
            ]
            columns = ", ".join(names)
            if table == "entries":
                facet(tx)
            tx.execute(
                f"insert into {table} ({id}, {columns})"  # names of our own schema
                f" select %s || n, {columns} from {table}, generate_series(2, %s) n"
                f" where {id} = %s",
                (f"{pattern}-", count, pattern),
            )
        tx.execute(
            "update term_counts set entries = entries * %s where org_id = %s", (count, tenant.id)
        )


def rows(app: App, tenant: Tenant) -> int:
    """How many the table holds, shown or not."""
    with app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from documents where org_id = %s", (tenant.id,)
        ).fetchone()
    assert row is not None
    return row["n"]


def delete(app: App, tenant: Tenant, tag: str) -> int:
    with app.db.begin() as tx:
        return len(documents.delete_where(tx, tenant, tags=[tag]))


def seen(app: App, tenant: Tenant, tag: str) -> dict[str, int]:
    """By each way of looking."""
    with app.db.begin() as tx:
        details = {
            one.tag.name: one.documents for one in tags.find(tx, tenant, limit=9, page=1).items
        }
        return {
            "list": documents.find(tx, tenant, DocumentQuery(tags=[tag], limit=9)).total,
            "all": documents.find(tx, tenant, DocumentQuery(limit=9)).total,
            "counts": sum(documents.counts(tx, tenant).values()),
            "search": len(hybrid.search(tx, tenant, Query("zebra", None, tags=[tag]))),
            "tags": details.get(tag, 0),
            "tag": tags.get(tx, tenant, tag).documents,
        }


def test_all_is_gone_at_once_and_the_rows_by_and_by(
    app: App, tenant: Tenant, neighbour: Tenant
) -> None:
    fill(app, tenant, "many")
    kept = add(app, tenant, "kept", "Another zebra.")
    theirs = add(app, neighbour, "many", "Their zebra.")
    processing.drain(app)
    named = seen(app, tenant, "many")
    assert (named["list"], named["all"], named["tag"]) == (MANY, MANY + 1, MANY)

    assert delete(app, tenant, "many") == MANY

    assert rows(app, tenant) == MANY + 1, "so much is not deleted in one transaction"
    now = seen(app, tenant, "many")
    assert now == {"list": 0, "all": 1, "counts": 1, "search": 0, "tags": 0, "tag": 0}
    with app.db.begin() as tx:
        hits = hybrid.search(tx, tenant, Query("zebra", None))
        assert [hit.document.id for hit in hits] == [kept]
        assert len(hybrid.search(tx, neighbour, Query("zebra", None))) == 1
        gone = tx.execute("select id from documents where gone_at is not null limit 1").fetchone()
        assert gone is not None
        with pytest.raises(NotFoundError):
            documents.get(tx, tenant, gone["id"])
        assert documents.delete(tx, tenant, [gone["id"]]), "it is unknown"
    assert delete(app, tenant, "many") == 0

    processing.drain(app)

    assert rows(app, tenant) == 1
    assert rows(app, neighbour) == 1
    with app.db.begin() as tx:
        counted = tx.execute(
            "select max(entries) as most, min(entries) as least from term_counts where org_id = %s",
            (tenant.id,),
        ).fetchone()
        receipts = tx.execute(
            "select sum(documents)::int as n from receipts where org_id = %s", (tenant.id,)
        ).fetchone()
        assert documents.get(tx, neighbour, theirs).id == theirs
    assert counted == {"most": 1, "least": 1}, "of the one that is left"
    assert receipts == {"n": MANY}


def test_who_works_on_one_loses_it_and_what_is_known_of_it_goes_too(
    app: App, tenant: Tenant
) -> None:
    """One is in work, one has a customId that is free again, one bore a memory."""
    fill(app, tenant, "many")
    named = add(app, tenant, "many", "It has a name.", custom_id="name")
    with app.db.begin() as tx:
        [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
        memories.add(tx, tenant, "many", [records.Fact("A fact.", {})], DocumentId(random_id()))
    assert claim.document.id == named

    assert delete(app, tenant, "many") >= MANY + 1

    with app.db.begin() as tx, pytest.raises(LeaseLost):
        documents.advance(tx, claim, Stage.INDEXING, lease=app.lease)
    again = add(app, tenant, "many", "Another has it.", custom_id="name")
    assert again != named
    with app.db.begin() as tx:
        left = tx.execute("select content from memories where org_id = %s", (tenant.id,)).fetchall()
        assert left == []
        assert documents.next_due_in(tx) is not None
    processing.drain(app)
    assert rows(app, tenant) == 1
    with app.db.begin() as tx:
        assert documents.get(tx, tenant, "name").id == again


def test_a_purge_completes_no_receipt_before_the_rows_are_gone(app: App, tenant: Tenant) -> None:
    fill(app, tenant, "many")
    delete(app, tenant, "many")
    purge.purge(app.db, app.blobs, app.config.data_dir)
    assert rows(app, tenant) == 0
    with app.db.begin() as tx:
        found = tx.execute(
            "select sum(documents)::int as n, bool_and(purged_at is not null) as whole"
            " from receipts where org_id = %s",
            (tenant.id,),
        ).fetchone()
    assert found == {"n": MANY, "whole": True}


def test_what_was_cut_off_goes_on_and_verify_finds_nothing_wrong(app: App, tenant: Tenant) -> None:
    """A worker loses its connection within a step, and one ends between two."""
    fill(app, tenant, "many")
    delete(app, tenant, "many")
    with pytest.raises(Unavailable):
        sweep_in_vain(app)
    assert rows(app, tenant) == MANY
    with app.db.begin() as tx:
        assert documents.sweep(tx) == documents.SWEPT // 2
    assert rows(app, tenant) == MANY - documents.SWEPT // 2
    with app.db.begin() as tx:
        tags.forget(tx, tenant.id, "many")
    found = verify.verify(app.db, app.blobs)
    assert not [
        one for one in found.findings if one.kind in ("count_wrong", "tag_missing", "stranded")
    ]
    processing.drain(app)
    assert rows(app, tenant) == 0


def sweep_in_vain(app: App) -> None:
    with app.db.begin() as tx:
        assert documents.sweep(tx) == documents.SWEPT // 2
        tx.execute("select pg_terminate_backend(pg_backend_pid())")
