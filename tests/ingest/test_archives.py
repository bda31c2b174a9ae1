"""Archives on their way through the queue: each file a document, which lives with its archive."""

import hashlib
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import psutil
import pytest

from recollect import blobs, documents
from recollect.app import App, index_identity
from recollect.blobs import Blobs, open_blobs
from recollect.connectors.base import Source
from recollect.db import Database
from recollect.documents import DocumentChange, DocumentQuery, NewDocument
from recollect.errors import LeaseLost, Unavailable
from recollect.index.vector_index import adopt
from recollect.ingest.pipeline import process
from recollect.model import (
    Blob,
    Connection,
    ConnectionId,
    Content,
    DocumentId,
    Extracted,
    Org,
    Plan,
    Remembered,
    Scope,
    StoredBlob,
    Tenant,
    random_id,
)
from recollect.ops import backup, verify
from recollect.orgs import orgs, tags
from recollect.sync import connections
from recollect.sync.connections import SealedConnection
from recollect.worker import processing, syncs
from recollect.worker.processing import drain
from tests.chaos.test_crash import children, part_of
from tests.conftest import Service, eventually, start_service
from tests.contract.calls import found, get, listed, upload
from tests.extract.archives import locked, packed
from tests.fakes.shelf import SHELVES, Shelf, ShelfConnector, providing, shelved
from tests.fakes.site import Site

FRUIT = {"a.txt": "Pears hang in the orchard.", "sub/b.md": "# Quince\n\nQuinces are sour."}


def send(
    http: httpx.Client, files: Mapping[str, str | bytes], name: str = "fruit.zip", **fields: str
) -> str:
    answer = upload(http, name, packed(files), **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def members(http: httpx.Client, archive: str) -> dict[str, dict[str, Any]]:
    """By their paths."""
    found = listed(http, archiveId=archive, limit=1100, includeContent=True)
    assert all(one["archiveId"] == archive for one in found)
    return {one["archivePath"]: one for one in found}


def texts(http: httpx.Client, archive: str) -> dict[str, str]:
    return {path: one["content"] for path, one in members(http, archive).items()}


def take(app: App, id: str) -> Any:
    """A worker's claim of this document alone."""
    with app.db.begin() as tx:
        claims = documents.claim(tx, lease=app.lease, limit=100, max_attempts=5)
    [mine] = [claim for claim in claims if claim.document.id == id]
    return mine


@pytest.fixture
def other(app: App, live_url: str) -> Generator[httpx.Client]:
    """A client of another organisation."""
    with app.db.begin() as tx:
        made = orgs.create(tx, f"other-{uuid.uuid4().hex[:8]}", Plan.ENTERPRISE)
        key = orgs.create_key(tx, made.id, scope=Scope.ADMIN)[1]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=live_url, headers=headers, timeout=60, trust_env=False) as http:
        yield http
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


def test_each_file_becomes_a_document(app: App, client: httpx.Client):
    id = send(client, {**FRUIT, "c.exe": b"MZ\x90\0\x03"}, containerTag="shop", metadata='{"n": 1}')
    drain(app)

    archive = get(client, id)
    assert (archive["status"], archive["members"], archive["title"]) == ("done", 2, "fruit.zip")
    assert "- c.exe: not read, its kind is not supported" in archive["content"]
    assert archive["warnings"] == ["1 file in it was not read, because its kind is not supported."]
    assert "archiveId" not in archive
    made = members(client, id)
    assert {path: one["title"] for path, one in made.items()} == {
        "a.txt": "a.txt",
        "sub/b.md": "Quince",
    }
    for one in made.values():
        assert (one["status"], one["containerTags"], one["metadata"]) == (
            "done",
            ["shop"],
            {"n": 1},
        )
        assert get(client, one["id"])["source"] == "upload"
    [hit] = found(client, "quinces sour", containerTags=["shop"], limit=1)
    assert hit["documentId"] == made["sub/b.md"]["id"]
    assert found(client, "fruit.zip c.exe")[0]["documentId"] == id
    address = client.get(f"/v3/documents/{made['a.txt']['id']}/file-url").json()["url"]
    assert client.get(address).content == FRUIT["a.txt"].encode()


def test_each_attachment_of_a_mail_becomes_a_document(app: App, client: httpx.Client):
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "anna@orchard.test", "The harvest"
    mail.set_content("Dear Bert, the list is attached.")
    bare = bytes(mail)
    mail.add_attachment("Twelve baskets of quinces.", filename="harvest.txt")
    answer = upload(client, "a.eml", bytes(mail), customId="mail", containerTag="mails")
    id = answer.json()["id"]
    drain(app)

    assert get(client, id)["members"] == 1
    assert texts(client, id) == {"harvest.txt": "Twelve baskets of quinces."}
    [hit] = found(client, "twelve baskets", containerTags=["mails"], limit=1)
    assert hit["documentId"] == members(client, id)["harvest.txt"]["id"]
    upload(client, "a.eml", bare, customId="mail", containerTag="mails")
    drain(app)
    assert "members" not in get(client, id)
    assert members(client, id) == {}


def test_a_mail_that_was_read_before_gets_its_attachments_by_a_retry(
    app: App, client: httpx.Client
):
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "anna@orchard.test", "The harvest"
    mail.set_content("Dear Bert, the list is attached.")
    mail.add_attachment("Twelve baskets of quinces.", filename="harvest.txt")
    id = upload(client, "a.eml", bytes(mail)).json()["id"]
    drain(app)
    [member] = members(client, id).values()
    client.delete(f"/v3/documents/{member['id']}")
    with app.db.begin() as tx:
        tx.execute("update documents set unpacked = null where id = %s", (id,))
    assert "members" not in get(client, id)

    assert client.post("/v3/documents/retry", json={"ids": [id]}).status_code == 200
    drain(app)

    assert list(members(client, id)) == ["harvest.txt"]


def test_a_label_of_the_archive_is_the_folder_of_its_files(app: App, client: httpx.Client):
    id = send(client, FRUIT, filepath="/stock/fruit.zip")
    drain(app)

    assert {path: one["filepath"] for path, one in members(client, id).items()} == {
        "a.txt": "/stock/fruit.zip/a.txt",
        "sub/b.md": "/stock/fruit.zip/sub/b.md",
    }


def test_each_file_fails_by_itself(app: App, client: httpx.Client):
    id = send(client, {"a.pdf": b"%PDF-1.7\nnot really", "b.txt": "fine"})
    drain(app)

    made = members(client, id)
    assert get(client, id)["status"] == "done"
    assert (made["a.pdf"]["status"], made["a.pdf"]["errorCode"]) == ("failed", "unreadable_content")
    assert made["b.txt"]["status"] == "done"


def test_a_locked_archive_fails(app: App, client: httpx.Client):
    id = upload(client, "a.zip", locked(packed(FRUIT))).json()["id"]
    drain(app)

    assert (get(client, id)["status"], get(client, id)["errorCode"]) == ("failed", "encrypted_file")
    assert members(client, id) == {}


def test_an_archive_behind_a_url(app: App, client: httpx.Client, tenant: Tenant):
    with Site() as site:
        url = site.url("/fruit.zip")
        site.page("/fruit.zip", packed(FRUIT), mime="application/zip")
        # By the noun: the API refuses an address on this machine.
        content = Content("webpage", hashlib.sha256(url.encode()).digest(), text=url, url=url)
        with app.db.begin() as tx:
            id = documents.add(
                tx, tenant, NewDocument(content, ["web"]), DocumentId(random_id())
            ).id
        drain(app)
        before = members(client, id)

        site.page("/fruit.zip", packed({**FRUIT, "a.txt": "Sold."}), mime="application/zip")
        client.post("/v3/documents/retry", json={"ids": [id]})
        drain(app)
        assert texts(client, id) == {**FRUIT, "a.txt": "Sold."}
        assert members(client, id)["sub/b.md"] == before["sub/b.md"]

        site.page("/fruit.zip", "<p>It was moved.</p>")
        client.post("/v3/documents/retry", json={"ids": [id]})
        drain(app)
        assert members(client, id) == {}


# --- the archive changes ------------------------------------------------------------------------


def test_only_what_changed_in_an_archive_is_done(app: App, client: httpx.Client):
    files = {"same.txt": "stays", "new.txt": "old words", "gone.txt": "leaves"}
    id = send(client, files, customId="box")
    drain(app)
    before = members(client, id)

    assert (
        send(
            client,
            {"same.txt": "stays", "new.txt": "new words", "more.txt": "joins"},
            customId="box",
        )
        == id
    )
    assert drain(app) == 3  # the archive, and the two files that changed or joined

    after = members(client, id)
    assert texts(client, id) == {"same.txt": "stays", "new.txt": "new words", "more.txt": "joins"}
    assert after["same.txt"] == before["same.txt"]
    assert after["new.txt"]["id"] == before["new.txt"]["id"]
    assert client.get(f"/v3/documents/{before['gone.txt']['id']}").status_code == 404
    assert get(client, id)["members"] == 3


def test_the_same_archive_once_more_costs_nothing(app: App, client: httpx.Client):
    id = send(client, FRUIT, customId="box")
    drain(app)
    before = members(client, id)

    send(client, FRUIT, customId="box")
    client.post("/v3/documents/retry", json={"ids": [id]})

    assert drain(app) == 1  # the retry of the archive itself
    assert members(client, id) == before


def test_a_retry_of_the_archive_retries_none_of_its_files(app: App, client: httpx.Client):
    id = send(client, {"a.pdf": b"%PDF-1.7\nnot really", "b.txt": "fine"})
    drain(app)

    client.post("/v3/documents/retry", json={"ids": [id]})

    assert drain(app) == 1


def test_a_retry_of_the_archive_brings_back_a_file_that_the_store_lost(
    app: App, client: httpx.Client, org: Org
):
    id = send(client, FRUIT)
    drain(app)
    lost = members(client, id)["a.txt"]["id"]
    for key in stored(app, org):
        if app.blobs.get(key) == FRUIT["a.txt"].encode():
            app.blobs.delete(key)
    client.post("/v3/documents/retry", json={"ids": [lost]})
    drain(app)
    assert get(client, lost)["errorCode"] == "missing_blob"

    client.post("/v3/documents/retry", json={"ids": [id]})
    drain(app)

    assert {one["status"] for one in members(client, id).values()} == {"done"}
    assert members(client, id)["a.txt"]["id"] == lost
    assert blobs_of(app, org) <= stored(app, org)


def test_a_damaged_successor_leaves_what_was_read_before(app: App, client: httpx.Client):
    id = send(client, FRUIT, customId="box")
    drain(app)
    upload(client, "fruit.zip", packed(FRUIT)[:-5], customId="box")
    drain(app)

    assert get(client, id)["status"] == "failed"
    assert set(members(client, id)) == set(FRUIT)


def test_other_content_in_place_of_the_archive_takes_its_files_along(
    app: App, client: httpx.Client
):
    id = send(client, FRUIT, customId="box")
    drain(app)
    client.patch(f"/v3/documents/{id}", json={"content": "No archive any more."})
    drain(app)

    assert members(client, id) == {}
    assert "members" not in get(client, id)


def test_a_file_that_was_deleted_stays_away_until_the_archive_changes_it(
    app: App, client: httpx.Client
):
    id = send(client, FRUIT, customId="box")
    drain(app)
    client.delete(f"/v3/documents/{members(client, id)['a.txt']['id']}")
    assert get(client, id)["members"] == 1

    client.post("/v3/documents/retry", json={"ids": [id]})
    send(client, {**FRUIT, "c.txt": "joins"}, customId="box")
    drain(app)
    assert set(members(client, id)) == {"sub/b.md", "c.txt"}

    send(client, {**FRUIT, "a.txt": "Pears were sold."}, customId="box")
    drain(app)
    assert texts(client, id)["a.txt"] == "Pears were sold."


def test_a_file_that_was_edited_here_stays_so_until_the_archive_changes_it(
    app: App, client: httpx.Client
):
    id = send(client, FRUIT, customId="box")
    drain(app)
    file = members(client, id)["a.txt"]["id"]
    client.patch(f"/v3/documents/{file}", json={"content": "My own words."})
    send(client, {**FRUIT, "c.txt": "joins"}, customId="box")
    drain(app)
    assert texts(client, id)["a.txt"] == "My own words."

    send(client, {"a.txt": "Theirs."}, customId="box")
    drain(app)
    assert (members(client, id)["a.txt"]["id"], texts(client, id)) == (file, {"a.txt": "Theirs."})


def test_tags_and_metadata_of_the_archive_go_to_its_files(app: App, client: httpx.Client):
    id = send(client, FRUIT, containerTag="shop", filepath="/a.zip")
    drain(app)
    change = {"containerTags": ["market", "team:a"], "metadata": {"n": 2}, "filepath": "/b.zip"}

    assert client.patch(f"/v3/documents/{id}", json=change).status_code == 200

    for path, one in members(client, id).items():
        assert one["containerTags"] == ["market", "team:a"]
        assert (one["metadata"], one["filepath"]) == ({"n": 2}, f"/b.zip/{path}")
    assert {hit["documentId"] for hit in found(client, "quinces", containerTags=["market"])}
    assert not found(client, "quinces", containerTags=["shop"])


def test_merged_tags_reach_the_files(app: App, client: httpx.Client):
    id = send(client, FRUIT, containerTag="old")
    drain(app)
    body = {"containerTags": ["old"], "targetContainerTag": "new"}
    assert client.post("/v3/container-tags/merge", json=body).status_code == 202
    drain(app)

    assert {tuple(one["containerTags"]) for one in members(client, id).values()} == {("new",)}
    assert get(client, id)["containerTags"] == ["new"]


# --- deletion -----------------------------------------------------------------------------------


def test_whatever_deletes_an_archive_deletes_its_files(app: App, client: httpx.Client, org: Org):
    deeds: dict[str, Callable[[str], httpx.Response]] = {
        "id": lambda id: client.delete(f"/v3/documents/{id}"),
        "customId": lambda id: client.delete("/v3/documents/box-customId"),
        "ids": lambda id: client.request("DELETE", "/v3/documents/bulk", json={"ids": [id]}),
        "tags": lambda id: client.request(
            "DELETE", "/v3/documents/bulk", json={"containerTags": ["tag-tags"]}
        ),
        "filepath": lambda id: client.request(
            "DELETE", "/v3/documents/bulk", json={"filepath": "/filepath.zip"}
        ),
        "tag": lambda id: client.delete("/v3/container-tags/tag-tag"),
    }
    for name, deed in deeds.items():
        id = send(
            client,
            FRUIT,
            customId=f"box-{name}",
            containerTag=f"tag-{name}",
            filepath=f"/{name}.zip",
        )
        drain(app)
        # A file that somebody gave another tag belongs to the archive all the same.
        [file, *_] = members(client, id).values()
        client.patch(f"/v3/documents/{file['id']}", json={"containerTags": ["elsewhere"]})
        keys = blobs_of(app, org)

        answer = deed(id)

        assert answer.status_code in (200, 204), (name, answer.text)
        assert listed(client) == [], name
        assert counts_of(app, org) == {}, name
        assert len(keys) == 3
        assert set(keys) <= doomed(app), name
        assert receipts_of(app, org)[-1] == (3, 3), name


def test_files_that_leave_with_a_new_archive_leave_a_receipt(
    app: App, client: httpx.Client, org: Org
):
    send(client, FRUIT, customId="box")
    drain(app)
    send(client, {"a.txt": FRUIT["a.txt"]}, customId="box")
    drain(app)

    assert receipts_of(app, org) == [(1, 1)]


def test_deleting_an_archive_fences_off_the_worker_that_unpacks_it(
    app: App, client: httpx.Client, org: Org
):
    id = send(client, FRUIT)
    claim = take(app, id)
    client.delete(f"/v3/documents/{id}")

    with pytest.raises(LeaseLost):
        process(app, claim)

    assert listed(client) == []
    assert stored(app, org) == blobs_of(app, org) | doomed(app) & stored(app, org)


def blobs_of(app: App, org: Org) -> set[str]:
    with app.db.begin() as tx:
        rows = tx.execute(
            "select blob from documents where org_id = %s and blob is not null", (org.id,)
        )
        return {row["blob"] for row in rows}


def doomed(app: App) -> set[str]:
    with app.db.begin() as tx:
        return {row["key"] for row in tx.execute("select key from doomed_blobs")}


def stored(app: App, org: Org) -> set[str]:
    """Keys of the organisation's blobs that are in the store."""
    return {key for key in app.blobs.older_than(timedelta(0)) if key.startswith(org.id)}


def counts_of(app: App, org: Org) -> dict[int, int]:
    with app.db.begin() as tx:
        rows = tx.execute("select number, entries from term_counts where org_id = %s", (org.id,))
        return {row["number"]: row["entries"] for row in rows}


def receipts_of(app: App, org: Org) -> list[tuple[int, int]]:
    """Documents and files of each."""
    with app.db.begin() as tx:
        rows = tx.execute(
            "select documents, files from receipts where org_id = %s order by deleted_at", (org.id,)
        )
        return [(row["documents"], row["files"]) for row in rows]


# --- workers that die ---------------------------------------------------------------------------


class _Falling:
    """A blob store that stops answering after so many files."""

    def __init__(self, blobs: Blobs, after: int) -> None:
        self._blobs = blobs
        self.left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def put(self, key: str, data: bytes) -> None:
        if self.left == 0:
            raise Unavailable("the store is away")
        self.left -= 1
        self._blobs.put(key, data)


def test_a_store_that_goes_away_meanwhile_leaves_nothing_behind(
    app: App, client: httpx.Client, org: Org
):
    id = send(client, {f"{n}.txt": f"Number {n}." for n in range(5)})

    with pytest.raises(Unavailable):
        process(replace(app, blobs=_Falling(app.blobs, 3)), take(app, id))

    assert members(client, id) == {}
    assert stored(app, org) == blobs_of(app, org)


def test_a_worker_that_lost_its_archive_doubles_nothing(app: App, client: httpx.Client, org: Org):
    """Two hold the same archive; the one that is late finds its work done."""
    id = send(client, FRUIT)
    late = take(app, id)
    with app.db.begin() as tx:
        tx.execute("update documents set due_at = now() where id = %s", (id,))
    process(app, take(app, id))

    with pytest.raises(LeaseLost):
        process(app, late)

    assert sorted(members(client, id)) == sorted(FRUIT)
    assert stored(app, org) == blobs_of(app, org)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_killed_worker_loses_and_doubles_no_file(short_tmp: Path):
    """kill -9 again and again while archives are unpacked."""
    files = {f"{n:03}.txt": f"Number {n} of the archive." for n in range(150)}
    settings = {"embedder": "none", "workers": "2", "lease_seconds": "3", "max_attempts": "50"}
    service = start_service(short_tmp / "archives", **settings)
    over = Event()
    killed: list[int] = []

    def kill() -> None:
        while len(killed) < 5 and not over.wait(0.4):
            with suppress(psutil.NoSuchProcess):
                if found := _worker_of(service):
                    found.kill()
                    killed.append(found.pid)

    try:
        with service.client() as http:
            killer = Thread(target=kill)
            killer.start()
            ids = [send(http, files, customId=f"box-{n}") for n in range(3)]
            changed = {**files, "000.txt": "Another one."}
            assert send(http, changed, customId="box-0") == ids[0]
            killer.join(60)
            over.set()
            eventually(lambda: _idle(http), timeout=120)

            for id in ids:
                assert get(http, id)["members"] == 150
                assert sorted(members(http, id)) == sorted(files)
                assert {one["status"] for one in members(http, id).values()} == {"done"}
            assert texts(http, ids[0])["000.txt"] == "Another one."
            assert http.get("/v3/documents/counts").json()["done"] == 3 * 151
            assert len(killed) == 5
    finally:
        over.set()
        service.process.terminate()
        service.process.wait(60)


def _worker_of(service: Service) -> psutil.Process | None:
    return next((child for child in children(service) if part_of(child) == "worker"), None)


def _idle(http: httpx.Client) -> bool:
    counts = http.get("/v3/documents/counts").json()
    return counts["queued"] == counts["processing"] == 0


# --- tenants ------------------------------------------------------------------------------------


def test_files_never_cross_an_organisation(app: App, client: httpx.Client, other: httpx.Client):
    id = send(client, FRUIT)
    drain(app)
    file = members(client, id)["a.txt"]["id"]

    assert listed(other, archiveId=id) == []
    assert found(other, "pears orchard") == []
    for address in (f"/v3/documents/{file}", f"/v3/documents/{file}/file-url"):
        assert other.get(address).status_code == 404
    assert other.delete(f"/v3/documents/{file}").status_code == 404
    assert other.patch(f"/v3/documents/{id}", json={"metadata": {"n": 1}}).status_code == 404
    assert members(client, id)["a.txt"]["metadata"] is None


def test_a_scoped_key_sees_only_files_of_its_tags(
    app: App, client: httpx.Client, live_url: str, org: Org
):
    id = send(client, FRUIT, containerTag="shop")
    drain(app)
    file = members(client, id)["a.txt"]["id"]
    client.patch(f"/v3/documents/{file}", json={"containerTags": ["secret"]})
    with app.db.begin() as tx:
        key = orgs.create_key(tx, org.id, scope=Scope.WRITE, tags=["shop"])[1]
    headers = {"Authorization": f"Bearer {key}"}

    with httpx.Client(base_url=live_url, headers=headers, trust_env=False) as scoped:
        assert set(members(scoped, id)) == {"sub/b.md"}
        assert scoped.get(f"/v3/documents/{file}").status_code == 404


@pytest.mark.parametrize("change", ["metadata", "label", "content", "again", "namespace"])
def test_a_scoped_key_changes_no_file_that_it_does_not_see(
    app: App, client: httpx.Client, live_url: str, org: Org, change: str
):
    id = send(client, FRUIT, containerTag="shop", customId="fruit")
    drain(app)
    file = members(client, id)["a.txt"]["id"]
    client.patch(f"/v3/documents/{file}", json={"containerTags": ["secret"]})
    with app.db.begin() as tx:
        key = orgs.create_key(tx, org.id, scope=Scope.WRITE, tags=["shop"])[1]
    headers = {"Authorization": f"Bearer {key}"}
    before = get(client, file)
    own = {"containerTag": "shop", "customId": "fruit"}

    with httpx.Client(base_url=live_url, headers=headers, trust_env=False) as scoped:
        path = f"/v3/documents/{id}"
        assert scoped.patch(path, json={"title": "Fruit"}).status_code == 200
        assert upload(scoped, "fruit.zip", packed(FRUIT), **own).status_code == 200
        match change:
            case "metadata":
                answer = scoped.patch(path, json={"metadata": {"seen": True}})
            case "label":
                answer = scoped.patch(path, json={"filepath": "mine"})
            case "content":
                answer = scoped.patch(path, json={"content": "No archive any more."})
            case "again":
                answer = upload(scoped, "fruit.zip", packed({"a.txt": "Mine."}), **own)
            case _:
                answer = scoped.patch(f"/ns/shop/document/{id}", json={"metadata": {"n": 1}})
    assert answer.status_code == 403
    assert "also carries a tag" in answer.text
    drain(app)
    assert get(client, file) == before


# --- connections --------------------------------------------------------------------------------


class _ArchiveConnector(ShelfConnector):
    """Things whose text is the hexadecimal form of a file."""

    provider = "archive-shelf"
    name = "Archive shelf"

    def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
        fetched = super().fetch(source, item)
        assert isinstance(fetched, Extracted)
        return Blob(bytes.fromhex(fetched.text), name="fruit.zip")


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with providing(archive_shelf=_ArchiveConnector()), shelved() as made:
        yield made


@pytest.fixture
def connection(app: App, tenant: Tenant, shelf: Shelf) -> Connection:
    [name] = [name for name, one in SHELVES.items() if one is shelf]
    new = SealedConnection("archive-shelf", ["notes"], 2, {"shelf": name}, None, pending=False)
    with app.db.begin() as tx:
        return connections.create(tx, tenant.id, new, ConnectionId(random_id()))


def sync(app: App, connection: Connection) -> None:
    with app.db.begin() as tx:
        tx.execute("update connections set due_at = now() where id = %s", (connection.id,))
    syncs.drain(app)
    drain(app)


def archive_of(http: httpx.Client, connection: Connection) -> str:
    [one] = [one for one in listed(http) if one["connectionId"] == connection.id]
    return one["id"]


def test_an_archive_of_a_connection(
    app: App, client: httpx.Client, shelf: Shelf, connection: Connection
):
    shelf.put("1", packed(FRUIT).hex())
    sync(app, connection)
    id = archive_of(client, connection)
    before = members(client, id)
    assert {path: one["content"] for path, one in before.items()} == {
        "a.txt": FRUIT["a.txt"],
        "sub/b.md": FRUIT["sub/b.md"],
    }
    assert {one["connectionId"] for one in before.values()} == {None}
    address = client.get(f"/v3/documents/{before['a.txt']['id']}/file-url").json()["url"]
    assert client.get(address).content == FRUIT["a.txt"].encode()

    shelf.put("1", packed({**FRUIT, "a.txt": "Pears were sold."}).hex())
    sync(app, connection)
    after = members(client, id)
    assert after["a.txt"]["content"] == "Pears were sold."
    assert after["sub/b.md"] == before["sub/b.md"]


def test_the_limit_of_a_connection_counts_archives_not_files(
    app: App, client: httpx.Client, shelf: Shelf, connection: Connection
):
    for n in range(2):
        shelf.put(str(n), packed({f"{n}-{m}.txt": f"{n} {m}" for m in range(5)}).hex())
    sync(app, connection)
    sync(app, connection)

    assert len(listed(client, limit=100)) == 12


def test_what_vanishes_at_the_provider_takes_its_files_along(
    app: App, client: httpx.Client, org: Org, shelf: Shelf, connection: Connection
):
    shelf.put("1", packed(FRUIT).hex())
    sync(app, connection)
    shelf.take("1")
    sync(app, connection)

    assert listed(client) == []
    assert receipts_of(app, org) == [(3, 2)]


def test_a_connection_deleted_with_its_documents_takes_the_files(
    app: App, client: httpx.Client, shelf: Shelf, connection: Connection
):
    shelf.put("1", packed(FRUIT).hex())
    sync(app, connection)
    answer = client.delete(f"/v3/connections/{connection.id}", params={"deleteDocuments": "true"})

    assert answer.status_code == 200, answer.text
    assert listed(client) == []


def test_a_connection_deleted_without_its_documents_leaves_the_files(
    app: App, client: httpx.Client, shelf: Shelf, connection: Connection
):
    shelf.put("1", packed(FRUIT).hex())
    sync(app, connection)
    id = archive_of(client, connection)
    client.delete(f"/v3/connections/{connection.id}", params={"deleteDocuments": "false"})
    client.post("/v3/documents/retry", json={"ids": [id]})
    drain(app)

    assert get(client, id)["status"] == "done"
    assert set(members(client, id)) == set(FRUIT)


# --- what goes over everything ------------------------------------------------------------------


@pytest.fixture
def ground(
    app: App, new_database: Callable[[], str], tmp_path: Path
) -> Generator[tuple[App, Tenant]]:
    """A process on a database and a blob folder of its own."""
    with Database(new_database(), size=8) as database:
        with database.begin() as tx:
            adopt(tx, *index_identity(app.embedder))
            tenant = Tenant(orgs.create(tx, "grounded", Plan.ENTERPRISE).id)
        yield replace(app, db=database, blobs=open_blobs((tmp_path / "b").as_uri())), tenant


def put(app: App, tenant: Tenant, files: Mapping[str, str | bytes]) -> str:
    data = packed(files)
    key = blobs.new_key(tenant.id, data)
    app.blobs.put(key, data)
    content = Content("text", hashlib.sha256(data).digest(), blob=StoredBlob(key, "a.zip", None))
    new = NewDocument(content, ["notes"], custom_id="box")
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["notes"])
        id = documents.add(tx, tenant, new, DocumentId(random_id())).id
    drain(app)
    return id


def held(app: App, tenant: Tenant, archive: str) -> dict[str, str]:
    query = DocumentQuery(archive=archive, limit=100, with_text=True)
    with app.db.begin() as tx:
        page = documents.find(tx, tenant, query)
    return {one.archive_path or "": one.text or "" for one in page.items}


def test_verify_finds_nothing_wrong_with_archives(ground: tuple[App, Tenant]):
    app, tenant = ground
    id = put(app, tenant, FRUIT)
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["shop", "team:a"])
        [one, _] = documents.find(tx, tenant, DocumentQuery(archive=DocumentId(id))).items
        documents.update(tx, tenant, one.id, DocumentChange(tags=["shop"]))
        documents.update(tx, tenant, id, DocumentChange(tags=["team:a", "shop"]))
    put(app, tenant, {"a.txt": "Others.", "c.txt": "Joins."})
    processing.sweep_blobs(app)

    assert verify.verify(app.db, app.blobs).findings == []


def test_verify_finds_a_file_without_its_archive(ground: tuple[App, Tenant]):
    app, tenant = ground
    id = put(app, tenant, FRUIT)
    with app.db.begin() as tx:
        tx.execute("set local session_replication_role = replica")
        tx.execute("delete from documents where id = %s", (id,))

    found = {one.kind: one for one in verify.verify(app.db, app.blobs).findings}
    assert f"documents.archive_id = {id}" in found["reference_broken"].examples

    verify.verify(app.db, app.blobs, mend=True)
    assert held(app, tenant, id) == {}
    assert verify.verify(app.db, app.blobs).findings == []


def test_an_open_bundle_keeps_files_with_their_archive(
    ground: tuple[App, Tenant], app: App, tmp_path: Path
):
    there, tenant = ground
    id = put(there, tenant, {**FRUIT, "c.txt": "Was deleted."})
    with there.db.begin() as tx:
        [file] = [
            one.id
            for one in documents.find(tx, tenant, DocumentQuery(archive=id)).items
            if one.archive_path == "c.txt"
        ]
        documents.delete(tx, tenant, [file])
    backup.export(there.db.url, there.blobs, tmp_path / "bundle", org="grounded")
    with app.db.begin() as tx:
        made = orgs.create(tx, f"brought-{uuid.uuid4().hex[:8]}", Plan.ENTERPRISE)
    tenant = Tenant(made.id)

    brought = backup.bring(app, tmp_path / "bundle", org=made.name)
    again = backup.bring(app, tmp_path / "bundle", org=made.name)

    assert (brought.added, again.added, again.there) == (3, 0, 3)
    assert held(app, tenant, id) == {"a.txt": FRUIT["a.txt"], "sub/b.md": FRUIT["sub/b.md"]}
    with app.db.begin() as tx:
        documents.reprocess(tx, tenant, ids=[id])
    assert drain(app) == 1
    assert set(held(app, tenant, id)) == set(FRUIT)
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


def test_a_file_without_its_archive_in_the_bundle_stands_alone(
    ground: tuple[App, Tenant], app: App, tmp_path: Path
):
    there, tenant = ground
    id = put(there, tenant, FRUIT)
    with there.db.begin() as tx:
        for one in documents.find(tx, tenant, DocumentQuery(archive=id)).items:
            documents.update(tx, tenant, one.id, DocumentChange(tags=["only"]))
    backup.export(there.db.url, there.blobs, tmp_path / "bundle", org="grounded", tags=["only"])
    with app.db.begin() as tx:
        made = orgs.create(tx, f"brought-{uuid.uuid4().hex[:8]}", Plan.ENTERPRISE)

    assert backup.bring(app, tmp_path / "bundle", org=made.name).added == 2
    with app.db.begin() as tx:
        page = documents.find(tx, Tenant(made.id), DocumentQuery())
        assert [one.archive_id for one in page.items] == [None, None]
        tx.execute("delete from orgs where id = %s", (made.id,))
