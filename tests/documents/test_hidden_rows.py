"""Documents that a large deletion has hidden but not yet removed: nobody finds them, and counts are
exact."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentQuery, NewDocument, _changing
from recollect.ingest import chunk
from recollect.ingest.pipeline import process
from recollect.memories import memories, records
from recollect.model import (
    Chunk,
    Claim,
    Connection,
    ConnectionId,
    DocumentId,
    Extracted,
    KeyId,
    SyncClaim,
    Tenant,
    random_id,
)
from recollect.ops import backup, purge, verify
from recollect.orgs import settings
from recollect.search import evaluation
from recollect.search.evaluation import Expected
from recollect.sync import connection_queue, connections, item_changes
from recollect.sync.connections import SealedConnection
from recollect.sync.item_filter import open_gate
from recollect.sync.items import SyncCounts
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.contract.calls import get, listed, upload
from tests.extract.archives import packed
from tests.fakes.shelf import SHELVES, Shelf, shelved
from tests.ops.test_backup import add as add_to
from tests.ops.test_backup import new_org, new_place, story, url_of

__all__ = ["new_place"]

FRUIT = {"a.txt": "Pears hang in the orchard.", "b.txt": "Quinces are sour."}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is deleted is more than goes in one transaction."""
    monkeypatch.setattr(_changing, "AT_ONCE", 0)


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved() as made:
        yield made


def add(app: App, tenant: Tenant, text: str, **more: Any) -> DocumentId:
    content = documents.text_content(text)
    with app.db.begin() as tx:
        new = NewDocument(content, ["notes"], tagged=True, **more)
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def delete(app: App, tenant: Tenant, *ids: str) -> None:
    with app.db.begin() as tx:
        assert not documents.delete(tx, tenant, ids)


def hidden(app: App, tenant: Tenant) -> int:
    with app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from documents where org_id = %s and gone_at is not null",
            (tenant.id,),
        ).fetchone()
    assert row is not None
    return row["n"]


def miscounted(app: App) -> list[dict[str, Any]]:
    with app.db.moment() as tx:
        return tx.execute(verify.LISTS_MISCOUNTED).fetchall()


def waiting(app: App) -> bool:
    """Whether a session of this database waits for a lock."""
    with app.db.begin() as tx:
        row = tx.execute(
            "select exists (select from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock') as waits"
        ).fetchone()
    assert row is not None
    return row["waits"]


def take(app: App, id: str) -> Claim:
    with app.db.begin() as tx:
        claims = documents.claim(tx, lease=app.lease, limit=100, max_attempts=5)
    [mine] = [claim for claim in claims if claim.document.id == id]
    return mine


# --- archives ------------------------------------------------------------------------------------


def unpacked(http: httpx.Client, app: App, **files: str) -> tuple[str, dict[str, str]]:
    """An archive that is processed, with its files by their paths."""
    sent = upload(http, "fruit.zip", packed(files or FRUIT), customId="fruit")
    assert sent.status_code == 200, sent.text
    drain(app)
    id = sent.json()["id"]
    return id, {one["archivePath"]: one["id"] for one in listed(http, archiveId=id)}


def test_an_archive_brings_something_else_for_the_path_of_a_hidden_file(
    app: App, tenant: Tenant, client: httpx.Client, large: None
) -> None:
    archive, files = unpacked(client, app)
    delete(app, tenant, files["a.txt"])
    assert hidden(app, tenant) == 1
    again = upload(
        client, "fruit.zip", packed({**FRUIT, "a.txt": "Plums instead."}), customId="fruit"
    )
    assert again.json()["id"] == archive

    process(app, take(app, archive))
    drain(app)

    found = listed(client, archiveId=archive, includeContent=True)
    assert sorted(one["content"] for one in found) == ["Plums instead.", "Quinces are sour."]


def test_an_archive_does_not_count_its_hidden_files(
    app: App, tenant: Tenant, client: httpx.Client, large: None
) -> None:
    archive, files = unpacked(client, app)
    delete(app, tenant, files["a.txt"])
    assert get(client, archive)["members"] == 1


def test_a_hidden_file_keeps_no_key_from_its_archive(
    app: App, tenant: Tenant, client: httpx.Client, large: None
) -> None:
    archive, files = unpacked(client, app)
    with app.db.begin() as tx:
        [tag] = documents.get(tx, tenant, archive).container_tags
        change = documents.DocumentChange(tags=[tag, "theirs"])
        documents.update(tx, tenant, files["a.txt"], change)
    delete(app, tenant, files["a.txt"])

    delete(app, Tenant(tenant.id, [tag]), archive)

    with app.db.begin() as tx:
        assert documents.find(tx, tenant, DocumentQuery()).total == 0


def test_a_receipt_names_the_key_that_deleted_though_the_archive_went_later(
    app: App, tenant: Tenant, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, files = unpacked(client, app)
    monkeypatch.setattr(_changing, "AT_ONCE", 0)
    with app.db.begin() as tx:
        documents.drop(tx, tenant.id, [DocumentId(files["a.txt"])], by=KeyId("first"))
    with app.db.begin() as tx:
        documents.drop(tx, tenant.id, [DocumentId(archive)], by=KeyId("second"))
    drain(app)

    with app.db.begin() as tx:
        rows = tx.execute(
            "select key_id, sum(documents)::int as n from receipts where org_id = %s"
            " group by key_id order by key_id",
            (tenant.id,),
        ).fetchall()
    assert [tuple(row.values()) for row in rows] == [("first", 1), ("second", 2)]


# --- names ---------------------------------------------------------------------------------------


def test_who_waits_for_a_document_that_is_hidden_adds_another_under_its_name(
    app: App, tenant: Tenant, large: None
) -> None:
    old = add(app, tenant, "It is old.", custom_id="name")
    drain(app)
    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            documents.delete(tx, tenant, [old])
            adding = pool.submit(add, app, tenant, "It is new.", custom_id="name")
            eventually(lambda: adding.done() or waiting(app))
        new = adding.result()
    drain(app)

    with app.db.begin() as tx:
        found = documents.get(tx, tenant, "name", with_text=True)
    assert (found.id, found.text) == (new, "It is new.")
    assert new != old


# --- what else is made of a document -------------------------------------------------------------


def test_questions_that_were_made_of_it_go_at_once(app: App, tenant: Tenant, large: None) -> None:
    id = add(app, tenant, "The harbour stands beside the copper.")
    drain(app)
    with app.db.begin() as tx:
        made = [Expected("What stands beside the copper?", document=id)]
        evaluation.add(tx, tenant, "notes", made, made_from=[id])

    delete(app, tenant, id)

    with app.db.begin() as tx:
        assert evaluation.find(tx, tenant, "notes") == []
        assert evaluation.add(tx, tenant, "notes", made, made_from=[id]) == []


def test_its_older_texts_are_not_counted(app: App, tenant: Tenant, large: None) -> None:
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, {"keepVersions": 5}, keys=[])
    id = add(app, tenant, "It was so.")
    drain(app)
    with app.db.begin() as tx:
        change = documents.DocumentChange(content=documents.text_content("It is so now."))
        documents.update(tx, tenant, id, change)
    drain(app)
    with app.db.begin() as tx:
        assert documents.bytes_kept(tx, tenant) == len("It was so.")

    delete(app, tenant, id)

    with app.db.begin() as tx:
        assert documents.bytes_kept(tx, tenant) == 0


def test_a_fact_is_not_known_by_a_document_that_is_hidden_meanwhile(
    app: App, tenant: Tenant, large: None
) -> None:
    def remember() -> DocumentId:
        fact = records.Fact("Pears hang in the orchard.", {})
        with app.db.begin() as tx:
            return memories.add(tx, tenant, "notes", [fact], DocumentId(random_id()))[0]

    old = remember()
    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            documents.delete(tx, tenant, [old])
            again = pool.submit(remember)
            eventually(lambda: again.done() or waiting(app))
        assert again.result() != old
    drain(app)

    with app.db.begin() as tx:
        known = tx.execute("select content from memories where org_id = %s", (tenant.id,))
        assert [row["content"] for row in known] == ["Pears hang in the orchard."]


def test_verify_finds_nothing_wrong_with_what_nothing_keeps_in_order(
    app: App, tenant: Tenant, large: None
) -> None:
    id = add(app, tenant, "The harbour stands beside the copper.")
    drain(app)
    delete(app, tenant, id)
    with app.db.begin() as tx:
        documents.reindex(tx)

    found = verify.verify(app.db, app.blobs).findings

    assert not [one for one in found if id in one.examples]


def test_a_purge_leaves_no_name_of_a_tag_in_the_counts(
    app: App, tenant: Tenant, large: None
) -> None:
    delete(app, tenant, add(app, tenant, "The harbour stands beside the copper."))
    purge.purge(app.db, app.blobs, app.config.data_dir)
    with app.db.begin() as tx:
        left = tx.execute("select tag from document_counts where org_id = %s", (tenant.id,))
        assert left.fetchall() == []


# --- bundles -------------------------------------------------------------------------------------


def test_what_was_deleted_comes_back_with_a_bundle(
    new_place: Callable[..., App], tmp_path: Path, large: None
) -> None:
    app = new_place()
    tenant = new_org(app)
    id = add_to(app, tenant, story(0))
    drain(app)
    backup.export(url_of(app), app.blobs, tmp_path / "b", org="acme")
    delete(app, tenant, id)
    assert hidden(app, tenant) == 1

    came = backup.bring(app, tmp_path / "b", org="acme")

    assert came.added == 1
    with app.db.begin() as tx:
        assert documents.find(tx, tenant, DocumentQuery()).total == 1
    again = backup.bring(app, tmp_path / "b", org="acme")
    assert (again.added, again.there) == (0, 1)
    with app.db.begin() as tx:
        documents.delete_all(tx, tenant)
    assert hidden(app, tenant) == 2
    assert backup.bring(app, tmp_path / "b", org="acme").added == 1


def test_a_memory_of_a_bundle_is_not_known_by_a_document_that_is_hidden_meanwhile(
    new_place: Callable[..., App], tmp_path: Path, large: None
) -> None:
    app = new_place()
    tenant = new_org(app)
    fact = records.Fact("Pears hang in the orchard.", {})
    with app.db.begin() as tx:
        bearer, _ = memories.add(tx, tenant, "notes", [fact], DocumentId(random_id()))
    backup.export(url_of(app), app.blobs, tmp_path / "b", org="acme")
    with app.db.begin() as tx:
        tx.execute("delete from memories")
    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            documents.delete(tx, tenant, [bearer])
            coming = pool.submit(backup.bring, app, tmp_path / "b", org="acme")
            eventually(lambda: coming.done() or waiting(app))
        coming.result()

    with app.db.begin() as tx:
        found = tx.execute(
            "select m.id from memories m join memory_sources s on s.memory_id = m.id"
            " join documents d on d.id = s.document_id where d.gone_at is not null"
        )
        assert found.fetchall() == []


# --- connections ---------------------------------------------------------------------------------


@pytest.fixture
def connection(app: App, tenant: Tenant, shelf: Shelf) -> Connection:
    """Two things on the shelf are documents."""
    shelf.put("1", "The first thing tells of pears.")
    shelf.put("2", "The second thing tells of plums.")
    [name] = [name for name, known in SHELVES.items() if known is shelf]
    new = SealedConnection("shelf", ["notes"], 100, {"shelf": name}, None, pending=False)
    with app.db.begin() as tx:
        made = connections.create(tx, tenant.id, new, ConnectionId(random_id()))
    sync(app, made)
    return made


def due(app: App, connection: Connection) -> None:
    with app.db.begin() as tx:
        tx.execute("update connections set due_at = now() where id = %s", (connection.id,))


def sync(app: App, connection: Connection) -> None:
    due(app, connection)
    syncs.drain(app)
    drain(app)


def brought(app: App, connection: Connection) -> dict[str, DocumentId]:
    query = DocumentQuery(connections=[connection.id])
    with app.db.begin() as tx:
        found = documents.find(tx, Tenant(connection.org_id), query).items
    return {str(one.title): one.id for one in found}


def claimed(app: App, connection: Connection, limit: int) -> SyncClaim:
    with app.db.begin() as tx:
        tx.execute(
            "update connections set due_at = now(), document_limit = %s where id = %s",
            (limit, connection.id),
        )
        [claim] = connection_queue.claim(tx, lease=app.lease, limit=1)
    return claim


def fill(app: App, claim: SyncClaim) -> None:
    with app.db.begin() as tx:
        connection_queue.lock(tx, claim, lease=app.lease)
        gate = open_gate(settings.read(tx, claim.connection.org_id), None)
        item_changes.fill(tx, claim, gate, SyncCounts(), 100)


def test_what_is_over_the_limit_is_counted_off_as_it_is_when_it_goes(
    app: App, connection: Connection, shelf: Shelf, large: None
) -> None:
    """A worker finishes some of them meanwhile: they have chunks now."""
    shelf.put("3", "The third thing tells of figs.")
    shelf.put("4", "The fourth thing tells of medlars.")
    due(app, connection)
    syncs.drain(app)
    with app.db.begin() as tx:
        works = documents.claim(tx, lease=timedelta(minutes=1), limit=9, max_attempts=5)
    assert len(works) == 2
    claim = claimed(app, connection, 1)
    text = "It was read."
    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            for work in works:
                chunks = [Chunk(0, 0, len(text), text, chunk.digest(text))]
                documents.finish(tx, work, Extracted(text), chunks, [], {}, reused=0)
            filling = pool.submit(fill, app, claim)
            eventually(lambda: filling.done() or waiting(app))
        filling.result()

    assert len(brought(app, connection)) == 1
    assert miscounted(app) == []


def test_what_a_user_deletes_while_the_limit_takes_it_stays_away(
    app: App, connection: Connection
) -> None:
    tenant = Tenant(connection.org_id)
    claim = claimed(app, connection, 1)
    with ThreadPoolExecutor(1) as pool:
        with app.db.begin() as tx:
            documents.delete(tx, tenant, list(brought(app, connection).values()))
            filling = pool.submit(fill, app, claim)
            eventually(lambda: filling.done() or waiting(app))
        filling.result()
    with app.db.begin() as tx:
        connection_queue.release(tx, [claim])
        tx.execute("update connections set document_limit = 100 where id = %s", (connection.id,))
    sync(app, connection)

    assert brought(app, connection) == {}
    assert miscounted(app) == []


def test_the_feed_of_a_sync_names_no_hidden_document(
    app: App, connection: Connection, client: httpx.Client, large: None
) -> None:
    delete(app, Tenant(connection.org_id), *brought(app, connection).values())
    path = f"/v3/connections/{connection.id}/sync-runs"
    [run] = client.get(path).json()
    changes = client.get(f"{path}/{run['id']}/changes").json()["changes"]
    assert [(one["title"], one["url"]) for one in changes] == [(None, None)] * 2
