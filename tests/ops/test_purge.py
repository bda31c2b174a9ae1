"""What was deleted is found nowhere in the data folder once it is purged, service running or not.

The canaries are random, so that compression cannot hide them, and of one text every piece of eight
bytes is looked for: a compressed page breaks runs of plain bytes no finer. Each is looked for
before the purge, too, where it must be found, or looking proves nothing.
"""

import hashlib
import json
import os
import random
import string
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import httpx
import numpy as np
import psycopg
import pytest
from psycopg import sql

from recollect import documents
from recollect.app import App, index_identity
from recollect.blobs import FolderBlobs, new_key, open_blobs
from recollect.db import Database
from recollect.db.embedded import Embedded
from recollect.documents import DocumentChange, NewDocument, text_content
from recollect.errors import NotFoundError, Transient
from recollect.index.vector_index import adopt
from recollect.model import DocumentId, KeyId, Plan, Tenant, random_id
from recollect.ops import _rewrite, purge
from recollect.ops.verify import verify
from recollect.orgs import orgs, tags
from recollect.worker.processing import drain
from tests.conftest import Service, eventually, start_service, stop_service
from tests.fakes.site import Site
from tests.schema import dump

LETTERS = string.ascii_letters + string.digits
PIECE = 8


def canary(length: int = 40) -> str:
    return "".join(random.choices(LETTERS, k=length))


def noise(words: int) -> str:
    return " ".join(canary(random.randint(4, 9)) for _ in range(words))


def scan(folder: Path, patterns: Mapping[str, Sequence[bytes]]) -> dict[str, set[str]]:
    """Which canaries are found in which files."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*"):
        # Programs and models that ship with the product hold no content, and are large.
        if path.relative_to(folder).parts[0] in ("cache", "postgresql-18") or not path.is_file():
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        for name, pieces in patterns.items():
            if any(piece in data for piece in pieces):
                found.setdefault(name, set()).add(str(path.relative_to(folder)))
    return found


def recollect(data_dir: Path, *arguments: str) -> Any:
    """A command beside the running service; returns its JSON."""
    environment = {
        **os.environ,  # noqa: TID251 # the child needs PATH and the like
        "RECOLLECT_DATA_DIR": str(data_dir),
    }
    done = subprocess.run(
        [sys.executable, "-m", "recollect", *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def running(short_tmp: Path) -> Generator[Service]:
    service = start_service(short_tmp / f"purged-{random_id()[:6]}", log_level="debug")
    yield service
    stop_service(service)


class Canaries:
    """Names → what was written, and the byte patterns to look for."""

    def __init__(self) -> None:
        self.patterns: dict[str, list[bytes]] = {}

    def __call__(self, name: str, *, pieces: bool = False) -> str:
        text = canary()
        found = [text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be")]
        found.append(text.lower().encode())
        if pieces:
            found += [text[at : at + PIECE].encode() for at in range(len(text) - PIECE + 1)]
        self.patterns[name] = found
        return text


def added(http: httpx.Client, body: Mapping[str, Any]) -> str:
    answer = http.post("/v3/documents", json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()["id"]


def await_done(http: httpx.Client, id: str) -> None:
    told = http.get(f"/v3/documents/{id}", params={"wait": 60}).json()
    assert told["status"] == "done", told


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_a_purge_no_canary_is_left_in_the_data_folder(running: Service) -> None:
    new = Canaries()
    url = Embedded(running.data_dir).superuser_url
    with running.client() as http, Site() as site:
        # Each way of deleting has a document with a canary of its own.
        everything = added(
            http,
            {
                "content": f"{new('title')} as a title\n\n{new('text', pieces=True)} {noise(400)}",
                "customId": new("customId"),
                "containerTags": ["kept", new("tag of a document")],
                "metadata": {"note": new("metadata"), new("metadata key"): 1},
                "filepath": f"/{new('filepath')}/",
                "entityContext": new("entity context"),
            },
        )
        upload = http.post(
            "/v3/documents/file",
            files={
                "file": (f"{new('file name')}.txt", f"{new('file')} {noise(60)}".encode("utf-16"))
            },
            data={"containerTag": "kept"},
        ).json()["id"]
        bulk = added(http, {"content": f"{new('bulk')} {noise(50)}", "containerTag": "kept"})
        tagged = added(http, {"content": f"{new('by tag')} {noise(50)}", "containerTag": "doomed"})
        name = new("tag")
        label = added(
            http,
            {"content": f"{new('deleted tag')} {noise(9)}", "containerTag": name}
            | {"entityContext": new("context of a tag")},
        )
        edited = added(http, {"content": f"{new('replaced')} {noise(50)}", "containerTag": "kept"})
        talk = http.post(
            "/v4/conversations",
            json={
                "conversationId": new("conversation id"),
                "messages": [{"role": "user", "content": f"{new('conversation')} {noise(9)}"}],
                "containerTags": ["kept"],
            },
        ).json()["id"]
        site.write("/", f"{new('page')} {noise(80)}", title=new("title of a page"))
        site.robots("User-agent: *\nAllow: /")
        connection = http.post(
            "/v3/connections/web-crawler",
            json={"metadata": {"startUrl": site.url("/")}, "containerTags": ["kept"]},
        ).json()["id"]
        single = [everything, upload, talk]
        for id in (*single, bulk, tagged, label, edited):
            await_done(http, id)

        def crawled() -> list[str]:
            listed = http.post("/v3/documents/list", json={"limit": 100}).json()["memories"]
            return [
                one["id"]
                for one in listed
                if one["connectionId"] == connection and one["status"] == "done"
            ]

        assert eventually(crawled)
        with psycopg.connect(url, autocommit=True) as session:
            row = session.execute(
                "select embedding::text from entries where document_id = %s limit 1", (everything,)
            ).fetchone()
            assert row is not None
            vector = np.array(json.loads(row[0]), dtype=np.float16).tobytes()
            new.patterns["vector"] = [vector[at : at + 32] for at in (64, 256, 512)]
            with pytest.raises(psycopg.Error):
                session.execute(sql.SQL("select {}::int").format(sql.Literal(new("statement"))))
            session.execute("analyze")
            session.execute("checkpoint")
        before = scan(running.data_dir, new.patterns)

        assert set(before) == set(new.patterns)

        for id in single:
            assert http.delete(f"/v3/documents/{id}").status_code == 204
        assert http.request("DELETE", "/v3/documents/bulk", json={"ids": [bulk]}).json()["success"]
        http.request("DELETE", "/v3/documents/bulk", json={"containerTags": ["doomed"]})
        assert http.delete(f"/v3/container-tags/{name}").json()["deletedCount"] == 1
        http.patch("/v3/settings", json={"keepVersions": 5})
        http.patch(f"/v3/documents/{edited}", json={"content": "something else"})
        assert http.delete(f"/v3/connections/{connection}").status_code == 200
        tag = http.get("/v3/container-tags/list").json()
        for one in tag.get("containerTags", []):
            if one["containerTag"] not in ("kept",):
                http.delete(f"/v3/container-tags/{one['containerTag']}")
        http.patch("/v3/container-tags/kept", json={"entityContext": None})
        await_done(http, edited)
        assert len(http.get(f"/v3/documents/{edited}/versions").json()["versions"]) == 2
        http.patch("/v3/settings", json={"keepVersions": 0})

        assert set(scan(running.data_dir, new.patterns)) >= {"text", "vector", "metadata", "tag"}

        stop, kept = threading.Event(), list[str]()

        def work() -> None:
            with running.client() as other:
                while not stop.is_set():
                    kept.append(added(other, {"content": noise(30), "containerTag": "kept"}))
                    assert other.post("/v3/search", json={"q": "something"}).status_code == 200
                    stop.wait(0.5)

        with ThreadPoolExecutor(1) as pool:
            busy = pool.submit(work)
            try:
                done = recollect(running.data_dir, "purge", "--now")
            finally:
                stop.set()
            busy.result()

        assert scan(running.data_dir, new.patterns) == {}
        assert done["left"] == []
        assert done["receipts"] >= 5
        assert kept
        for id in kept:
            await_done(http, id)
        [receipt] = recollect(running.data_dir, "receipt", everything)
        assert receipt["purgedAt"] > receipt["deletedAt"]
        assert receipt["sha256"] == [hashlib.sha256(everything.encode()).hexdigest()]
        assert (receipt["documents"], receipt["files"]) == (1, 0)
        assert receipt["key"]
        listed = recollect(running.data_dir, "receipt")
        assert receipt in listed
        assert [one["deletedAt"] for one in listed] == sorted(
            (one["deletedAt"] for one in listed), reverse=True
        )
        assert recollect(running.data_dir, "verify")["findings"] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_a_reset_of_everything_no_canary_is_left(running: Service) -> None:
    new = Canaries()
    with running.client() as http:
        ids = [
            added(
                http,
                {
                    "content": f"{new(f'text {number}')} {noise(20)}",
                    "customId": new(f"customId {number}"),
                    "containerTag": new(f"tag {number}"),
                    "metadata": {"note": new(f"metadata {number}")},
                },
            )
            for number in range(3)
        ]
        for id in ids:
            await_done(http, id)
        with psycopg.connect(Embedded(running.data_dir).superuser_url, autocommit=True) as session:
            session.execute("analyze")
            session.execute("checkpoint")
        before = scan(running.data_dir, new.patterns)
        org = http.get("/v3/settings").json()
        answer = http.post(
            "/v3/settings/reset", json={"confirmation": org.get("orgSlug", "default")}
        )
        assert answer.status_code == 200, answer.text
        recollect(running.data_dir, "purge", "--now")

    assert set(before) == set(new.patterns)
    assert scan(running.data_dir, new.patterns) == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_went_wrong_with_a_document_leaves_no_word_of_it(running: Service) -> None:
    """Errors quote what they stumble over: names, rows, parts of a file, texts of statements."""
    new = Canaries()
    url = Embedded(running.data_dir).superuser_url
    broken = {
        "pdf": b"%PDF-1.7\n" + new("in a PDF").encode(),
        "docx": b"PK\x03\x04" + new("in a DOCX").encode(),
        "zip": b"PK\x03\x04" + new("in a ZIP").encode(),
        "png": b"\x89PNG\r\n\x1a\n" + new("in a picture").encode(),
        "mp3": b"ID3\x03" + new("in a recording").encode(),
        "eml": b"Content-Type: multipart/mixed; boundary=" + new("in a mail").encode(),
        "xlsx": new("in a sheet").encode(),
    }
    with running.client() as http, Site() as site:
        ids = [
            http.post(
                "/v3/documents/file",
                files={"file": (f"{new(f'name of a {ending}')}.{ending}", data)},
                data={"containerTag": "kept", "customId": new(f"customId of a {ending}")},
            ).json()["id"]
            for ending, data in broken.items()
        ]
        ids.append(added(http, {"content": site.url(f"/{new('address')}"), "containerTag": "kept"}))
        ended = [http.get(f"/v3/documents/{id}", params={"wait": 60}).json() for id in ids]
        assert "failed" in {one["status"] for one in ended}
        # Requests that are refused, each with its words in another place.
        for path in ("documents", "container-tags", "connections", "webhooks"):
            http.get(f"/v3/{path}/{new(f'path of {path}')}", params={"q": new(f"query of {path}")})
        http.post("/v3/documents", json={"content": 1, "metadata": new("refused metadata")})
        http.post("/v3/documents", content=new("no JSON"))
        http.post("/v3/search", json={"q": new("search"), "filters": new("filter")})
        http.post("/v3/search", json={"q": f"{new('word sought')} {new('another')}"})
        site.robots("User-agent: *\nAllow: /")
        connection = http.post(
            "/v3/connections/web-crawler",
            json={
                "metadata": {"startUrl": site.url(f"/{new('start page')}")},
                "containerTags": ["kept"],
            },
        ).json()["id"]

        def told() -> bool:
            runs = http.get(f"/v3/connections/{connection}/sync-runs").json()
            return any(run["status"] in ("partial", "failed") for run in runs)

        assert eventually(told)
        with psycopg.connect(url, autocommit=True) as session:
            # Each says its words in another part of what the server has to tell.
            quoting: list[tuple[LiteralString, str]] = [
                ("select {}::int", "invalid value"),
                ("select 1/0, {}", "statement"),
                ("insert into tags select org_id, {} from keys, generate_series(1, 2)", "key"),
                ("insert into tags (org_id, name) values ({}, 'x')", "row"),
                ("do $$ begin raise exception 'no' using hint = {}; end $$", "hint"),
                ("do $$ begin raise exception 'no' using detail = {}; end $$", "detail"),
                ("do $$ begin raise warning using message = {}; end $$", "warning"),
                ("do $$ begin raise log using message = E'a\\n' || {}; end $$", "second line"),
                ("select {} from nowhere", "no such table"),
            ]
            for statement, name in quoting:
                with suppress(psycopg.Error):
                    session.execute(sql.SQL(statement).format(sql.Literal(new(name))))
            with pytest.raises(psycopg.Error):
                session.execute("select %s::int", (new("parameter"),))
            session.execute("checkpoint")
        before = scan(running.data_dir, new.patterns)

        for id in ids:
            assert http.delete(f"/v3/documents/{id}").status_code == 204
        assert http.delete(f"/v3/connections/{connection}").status_code == 200
        done = recollect(running.data_dir, "purge", "--now")

        assert {"name of a pdf", "in a PDF", "address", "start page", "invalid value"} <= set(
            before
        )
        assert done["left"] == []
        assert scan(running.data_dir, new.patterns) == {}


# --- on a server that is not our own -------------------------------------------------------------


@pytest.fixture
def mine(app: App, new_database: Callable[[], str], tmp_path: Path) -> Generator[App]:
    """A process on a database and a blob folder that nobody else uses."""
    with Database(new_database(), size=8) as database:
        with database.begin() as tx:
            adopt(tx, *index_identity(app.embedder))
        yield replace(app, db=database, blobs=open_blobs(tmp_path.as_uri()))


@pytest.fixture
def owner(mine: App) -> Tenant:
    with mine.db.begin() as tx:
        return Tenant(orgs.create(tx, "mine", Plan.ENTERPRISE).id, key=KeyId("the key"))


def written(app: App, tenant: Tenant, text: str, **labels: Any) -> DocumentId:
    with app.db.begin() as tx:
        new = NewDocument(text_content(text), tags=["kept"], **labels)
        tags.ensure(tx, tenant.id, ["kept"])
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_large_table_is_written_anew_beside_the_service(
    mine: App, owner: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rewrite, "LARGE", 0)
    first = [written(mine, owner, noise(600)) for _ in range(10)]
    drain(mine)
    schema = dump(mine.db.url)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            id = written(mine, owner, noise(300))
            drain(mine)
            with mine.db.begin() as tx:
                documents.update(tx, owner, first[0], DocumentChange(tags=[random_id(), "kept"]))
            stop.wait(0.1)
            if random.random() < 0.5:
                with mine.db.begin() as tx:
                    documents.delete(tx, owner, [id])
            else:
                first.append(id)

    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(work) for _ in range(2)]
        try:
            done = [purge.purge(mine.db, mine.blobs, mine.config.data_dir) for _ in range(3)]
        finally:
            stop.set()
        for one in busy:
            one.result()

    assert {"entries", "chunks"} <= {table.table for table in done[0].tables}
    assert dump(mine.db.url) == schema
    found = [f for f in verify(mine.db, mine.blobs).findings if f.kind != "tag_missing"]
    assert found == []
    with mine.db.begin() as tx:
        assert all(documents.chunks(tx, owner, id) for id in first)


def test_what_cannot_be_reached_on_a_foreign_server_is_said(
    mine: App, owner: Tenant, postgres_url: str
) -> None:
    id = written(mine, owner, noise(20))
    drain(mine)
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])
    done = purge.purge(mine.db, mine.blobs, mine.config.data_dir)
    with mine.db.begin() as tx:
        [receipt] = purge.receipts(tx, id)
    with psycopg.connect(postgres_url) as session:
        row = session.execute(
            "select count(*) from pg_file_settings"
            " where name = 'wal_recycle' and sourcefile like '%auto.conf'"
        ).fetchone()

    with mine.db.begin() as tx:
        # By the superuser of that server, or without one.
        assert any("administrator" in told for told in done.left)
        assert row == (0,)
        assert receipt.purged_at is not None
        assert (receipt.key, receipt.documents, receipt.chunks) == ("the key", 1, 1)
        assert purge.receipts(tx, receipt.id) == [receipt]
        assert purge.receipts(tx, "never seen") == []
        assert purge.latest(tx, 1) == [receipt]


def test_a_purge_waits_for_whoever_may_still_read_what_was_deleted(
    mine: App, owner: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = written(mine, owner, noise(20))
    with mine.db.begin() as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select count(*) from documents")
        with mine.db.begin() as tx:
            documents.delete(tx, owner, [id])
        with monkeypatch.context() as hasty:
            hasty.setattr(_rewrite, "PATIENCE", timedelta(seconds=0.3))
            with pytest.raises(Transient, match="is open for"):
                purge.purge(mine.db, mine.blobs, mine.config.data_dir)
    with mine.db.begin() as tx:
        [receipt] = purge.receipts(tx, id)
    assert receipt.purged_at is None
    purge.purge(mine.db, mine.blobs, mine.config.data_dir)
    with mine.db.begin() as tx:
        [receipt] = purge.receipts(tx, id)
    assert receipt.purged_at is not None


@pytest.mark.one_server
def test_what_a_purge_that_was_cut_off_left_is_cleared_away(mine: App, owner: Tenant) -> None:
    written(mine, owner, noise(20))
    schema = dump(mine.db.url)
    with mine.db.begin() as tx:
        tx.execute("create schema purging")
        tx.execute("create table purging.entries (like entries)")
        tx.execute(
            "create function purging.note() returns trigger language plpgsql as"
            " $$ begin return null; end $$"
        )
        tx.execute(
            "create trigger purging after insert on entries for each row"
            " execute function purging.note()"
        )
    purge.purge(mine.db, mine.blobs, mine.config.data_dir)
    assert dump(mine.db.url) == schema


def test_one_purge_at_a_time(mine: App) -> None:
    with psycopg.connect(mine.db.url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(hashtextextended('recollect.purge', 0))")
        with pytest.raises(Transient, match="another purge"):
            purge.purge(mine.db, mine.blobs, mine.config.data_dir)


def test_a_purge_is_due_when_something_was_deleted_and_the_interval_is_over(
    mine: App, owner: Tenant
) -> None:
    def is_due(interval: timedelta) -> bool:
        with mine.db.begin() as tx:
            return purge.due(tx, interval)

    id = written(mine, owner, noise(20))
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])
    # The server counts what a session did once the session has a moment.
    assert eventually(lambda: is_due(timedelta()))
    assert not is_due(timedelta(hours=1))

    def quiet() -> bool:
        purge.purge(mine.db, mine.blobs, mine.config.data_dir)
        return not is_due(timedelta())

    assert eventually(quiet)
    id = written(mine, owner, noise(20))
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])
    assert eventually(lambda: is_due(timedelta()))


def test_what_would_lock_everybody_out_is_left_to_the_operator(
    mine: App, owner: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "SOON", 0)
    id = written(mine, owner, noise(20))
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])
    done = purge.purge(mine.db, mine.blobs, mine.config.data_dir, gently=True)
    assert "documents" not in {table.table for table in done.tables}
    assert any(told.startswith("documents, which is large") for told in done.left)
    assert done.receipts == 0
    with mine.db.begin() as tx:
        [receipt] = purge.receipts(tx, id)
    assert receipt.purged_at is None
    assert purge.purge(mine.db, mine.blobs, mine.config.data_dir).receipts >= 1


def test_a_file_that_the_store_keeps_is_told_and_no_receipt_says_that_it_is_gone(
    mine: App, owner: Tenant, tmp_path: Path
) -> None:
    kept, free = (new_key(owner.id, name) for name in (b"kept", b"free"))
    (tmp_path / kept).mkdir(parents=True)  # as one that is locked
    mine.blobs.put(free, b"free")
    id = written(mine, owner, noise(20))
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])
        tx.execute("insert into doomed_blobs (key) values (%s), (%s)", (kept, free))

    done = purge.purge(mine.db, mine.blobs, mine.config.data_dir)

    assert (done.files, done.receipts) == (1, 0)
    assert any(told.startswith("files of deleted documents") for told in done.left)
    (tmp_path / kept).rmdir()
    done = purge.purge(mine.db, mine.blobs, mine.config.data_dir)
    assert (done.files, done.receipts) == (1, 1)


def test_a_backup_that_copies_files_is_waited_for(mine: App) -> None:
    with psycopg.connect(mine.db.url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(hashtextextended('recollect.blobs', 0))")
        with pytest.raises(Transient, match="a backup copies files"):
            purge.purge(mine.db, mine.blobs, mine.config.data_dir)


def test_no_receipt_is_complete_where_a_backup_began_between_two_files(
    mine: App, owner: Tenant, tmp_path: Path
) -> None:
    """Its files stay until the backup is complete, and only 100 are asked for at a time."""
    id = written(mine, owner, noise(20))
    keys = [new_key(owner.id, bytes([number])) for number in range(101)]
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])
        tx.execute("insert into doomed_blobs (key) select unnest(%s::text[])", (keys,))
    with psycopg.connect(mine.db.url, autocommit=True) as backup:
        store = HeldAtTheFirst(tmp_path, backup)
        with pytest.raises(Transient, match="a backup copies files"):
            purge.purge(mine.db, store, mine.config.data_dir)

    with mine.db.begin() as tx:
        [receipt] = purge.receipts(tx, id)
    assert receipt.purged_at is None
    assert purge.purge(mine.db, mine.blobs, mine.config.data_dir).files == 1


class HeldAtTheFirst(FolderBlobs):
    """A backup begins to copy files while the first one is deleted."""

    def __init__(self, root: Path, backup: psycopg.Connection[Any]) -> None:
        super().__init__(root)
        self._backup = backup

    def delete(self, key: str) -> None:
        super().delete(key)
        self._backup.execute("select pg_advisory_lock(hashtextextended('recollect.blobs', 0))")


def test_the_service_purges_by_itself(mine: App, owner: Tenant) -> None:
    soon = mine.config.model_copy(update={"purge_interval": timedelta(milliseconds=1)})
    id = written(mine, owner, noise(20))
    with mine.db.begin() as tx:
        documents.delete(tx, owner, [id])

    def purged() -> bool:
        purger = purge.Purger(replace(mine, config=soon))
        # The server counts what a session did once the session has a moment: so it may look again.
        thread = threading.Thread(target=purger.run)
        thread.start()
        thread.join(1)
        purger.stop()
        thread.join(60)
        with mine.db.begin() as tx:
            [receipt] = purge.receipts(tx, id)
        return receipt.purged_at is not None

    assert eventually(purged)


def test_a_merge_of_tags_is_forgotten_with_the_tag_it_made(mine: App, owner: Tenant) -> None:
    with mine.db.begin() as tx:
        tags.ensure(tx, owner.id, ["old", "new"])
        merge = tags.begin_merge(tx, owner, ["old"], "new", random_id())
        tags.advance_merge(tx, merge, 0, [], done=True)
        assert tags.merge(tx, owner, merge.id).finished_at is not None
        tags.forget(tx, owner.id, "new")
        with pytest.raises(NotFoundError):
            tags.merge(tx, owner, merge.id)


def test_the_item_of_a_deleted_document_forgets_what_it_was(mine: App, owner: Tenant) -> None:
    id = written(mine, owner, noise(20))
    with mine.db.begin() as tx:
        tx.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit, state)"
            " values ('c', %s, 's3', '{kept}', 10, 'ready')",
            (owner.id,),
        )
        tx.execute(
            "insert into items (connection_id, id, version, title, url, metadata, tags, extra,"
            " verdict, document_id, seen_at) values ('c', 'i', '1', 't', 'u', '{\"a\": 1}', '{x}',"
            " '{\"b\": 2}', 'document', %s, now())",
            (id,),
        )
        tx.execute("insert into judgements values ('c', 'i', '\\x01', true, 'it is of use')")
        documents.delete(tx, owner, [id])
        judged = tx.execute("select count(*) as n from judgements").fetchone()
        row = tx.execute(
            "select id, version, title, url, metadata, tags, extra from items"
        ).fetchone()

    assert judged == {"n": 0}
    assert row == {
        "id": "i",
        "version": "1",
        "title": None,
        "url": None,
        "metadata": {},
        "tags": [],
        "extra": {},
    }


@pytest.mark.slow
def test_files_that_a_crash_left_behind_are_removed(running: Service) -> None:
    url = Embedded(running.data_dir).superuser_url
    with psycopg.connect(url, autocommit=True) as session:
        row = session.execute(
            "select oid::text from pg_database where datname = current_database()"
        ).fetchone()
        assert row is not None
        known = session.execute("select pg_relation_filepath('documents')").fetchone()
        assert known is not None
    folder = running.data_dir / "postgres" / "data" / "base" / row[0]
    left, young = folder / "4000000001", folder / "4000000002"
    for path in (left, young):
        path.write_bytes(b"half a table")
    os.utime(left, (1, 1))
    recollect(running.data_dir, "purge", "--now")

    assert not left.exists()
    assert young.exists()
    young.unlink()
    with running.client() as http:
        assert http.get("/ready").status_code == 200
