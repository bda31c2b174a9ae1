"""Backups and bundles: what was acknowledged comes back whole, and nothing is embedded again."""

import base64
import fcntl
import hashlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import tracemalloc
import uuid
import zipfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from recollect import blobs, documents, encryption
from recollect.app import App, index_identity
from recollect.blobs import NOTE, FolderBlobs
from recollect.config import Config
from recollect.db import Database, machines
from recollect.db.schema import MIGRATION_LOCK, migrate, scripts
from recollect.documents import NewDocument
from recollect.errors import (
    NO_WRITES,
    AuthenticationError,
    NotFoundError,
    SetupError,
    Unavailable,
    Undeletable,
)
from recollect.index import terms, vector_index
from recollect.memories import finding, memories, reading, records
from recollect.model import (
    ConnectionId,
    Content,
    DocumentId,
    OrgId,
    Plan,
    Scope,
    StoredBlob,
    Tenant,
    random_id,
)
from recollect.ops import backup, verify
from recollect.ops.backup import Archive, Progress, Restored
from recollect.ops.backup._archive import Writing
from recollect.ops.files import delete_doomed
from recollect.orgs import assistants, audit, orgs, settings, tags
from recollect.search import hybrid
from recollect.worker.processing import drain, sweep_blobs
from tests.conftest import eventually
from tests.fakes.embedder import WordEmbedder
from tests.fakes.terminal import Terminal
from tests.fakes.website import Website
from tests.schema import dump

KEY = b"k" * 32
MARK = encryption.mark([KEY])
SUBJECTS = ("apple", "harbour", "violin", "glacier", "copper", "lantern", "meadow", "printer")


@pytest.fixture
def new_place(
    app: App, new_database: Callable[[], str], tmp_path: Path
) -> Generator[Callable[..., App]]:
    """Makes an App with a database and a folder of its own; `fresh=False`: on that database."""
    opened: list[Database] = []

    def make(url: str | None = None, folder: str | None = None) -> App:
        data_dir = tmp_path / (folder or uuid.uuid4().hex[:8])
        db = Database(url or new_database(), size=12).open()
        opened.append(db)
        embedder = WordEmbedder()
        with db.begin() as tx:
            vector_index.adopt(tx, *index_identity(embedder))
        config = Config(data_dir=data_dir, workers=1, allow_networks=app.config.allow_networks)
        return replace(
            app, config=config, db=db, blobs=FolderBlobs(data_dir / "blobs"), embedder=embedder
        )

    yield make
    for db in opened:
        db.close()


@pytest.fixture
def empty_database(postgres_url: str) -> Generator[Callable[[], str]]:
    """Makes databases without any table."""
    made: list[str] = []

    def make() -> str:
        name = f"empty_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(postgres_url, autocommit=True) as session:
            create = sql.SQL("create database {} strategy file_copy")
            session.execute(create.format(sql.Identifier(name)))
        made.append(name)
        return make_conninfo(postgres_url, dbname=name)

    yield make
    with psycopg.connect(postgres_url, autocommit=True) as session:
        for name in made:
            session.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def new_org(app: App, name: str = "acme") -> Tenant:
    with app.db.begin() as tx:
        return Tenant(orgs.create(tx, name, Plan.ENTERPRISE).id)


def story(n: int) -> str:
    one, two = SUBJECTS[n % len(SUBJECTS)], SUBJECTS[n // 8 % len(SUBJECTS)]
    return f"Note {n}: the {one} stands beside the {two}. " + f"detail{n} " * 20


def add(app: App, tenant: Tenant, text: str, **more: Any) -> DocumentId:
    new = NewDocument(documents.text_content(text), more.pop("tags", ["notes"]), **more)
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, new.tags)
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def upload(app: App, tenant: Tenant, data: bytes, name: str = "a.txt") -> tuple[DocumentId, str]:
    key = blobs.new_key(tenant.id, data)
    app.blobs.put(key, data)
    digest = hashlib.sha256(data).digest()
    new = NewDocument(Content("text", digest, blob=StoredBlob(key, name, "text/plain")), ["files"])
    with app.db.begin() as tx:
        return documents.add(tx, tenant, new, DocumentId(random_id())).id, key


def url_of(app: App) -> str:
    return app.db.url


def save(app: App, path: Path, **more: Any) -> backup.WrittenBackup:
    return backup.backup(url_of(app), app.blobs, path, sealed_with=MARK, **more)


def load(path: Path, url: str, folder: Path, **more: Any) -> Restored:
    """As the command does it: checked first."""
    with Archive(path) as archive:
        backup.check_schema(archive.manifest)
        archive.check()
        return backup.restore(archive, url, FolderBlobs(folder), **more)


def rows(url: str, query: LiteralString, *values: Any) -> list[dict[str, Any]]:
    with psycopg.Connection[dict[str, Any]].connect(url, row_factory=dict_row) as session:
        return session.execute(query, values or None).fetchall()


def count(url: str, table: str) -> int:
    with psycopg.connect(url) as session:
        query = sql.SQL("select count(*) from {}").format(sql.Identifier(table))
        row = session.execute(query).fetchone()
    assert row is not None
    return row[0]


def hits(app: App, tenant: Tenant, text: str) -> list[tuple[str, float, str]]:
    assert app.embedder is not None
    [vector] = app.embedder.embed([text], query=True)
    with app.db.begin() as tx:
        found = hybrid.search(tx, tenant, hybrid.Query(text, vector, limit=20))
    return [(h.document.id, round(h.score, 9), c.text) for h in found for c in h.chunks]


def embedded(app: App) -> Sequence[str]:
    assert isinstance(app.embedder, WordEmbedder)
    return app.embedder.texts


def nothing_in(url: str) -> bool:
    return rows(url, "select 1 as one from pg_tables where schemaname = 'public'") == []


# --- backup and restore --------------------------------------------------------------------------


def test_a_backup_during_writes_holds_all_that_was_acknowledged_before(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    acknowledged: list[tuple[str, str | bytes, str | None]] = []
    pairs: list[tuple[str, str]] = []
    stop = threading.Event()
    faults: list[BaseException] = []
    wanted = 40

    def write(lane: int) -> None:
        try:
            n = lane
            while not stop.is_set():
                if len(acknowledged) >= wanted:
                    stop.wait(0.01)
                    continue
                text = story(n)
                with app.db.begin() as tx:  # two that belong together
                    first, second = (
                        documents.add(
                            tx,
                            tenant,
                            NewDocument(documents.text_content(text + half), ["notes"]),
                            DocumentId(random_id()),
                        ).id
                        for half in ("left", "right")
                    )
                pairs.append((first, second))
                acknowledged.append((first, text + "left", None))
                data = f"file {n} {random_id()}".encode()
                id, key = upload(app, tenant, data)
                acknowledged.append((id, data, key))
                if n % 3 == 0:  # and some go again
                    with app.db.begin() as tx:
                        documents.delete(tx, tenant, [add(app, tenant, story(n) + "short-lived")])
                n += 4
        except BaseException as error:  # noqa: BLE001 # told below, in the test's own thread
            faults.append(error)

    threads = [threading.Thread(target=write, args=(lane,)) for lane in range(4)]
    for thread in threads:
        thread.start()
    working = threading.Thread(target=lambda: [drain(app) for _ in iter(stop.is_set, True)])
    working.start()
    eventually(lambda: len(acknowledged) >= wanted or faults)

    before = list(acknowledged)
    steps: dict[str, int] = {}

    def written_meanwhile(progress: Progress) -> None:
        """At each step the backup waits until something was written, and goes on beside more."""
        nonlocal wanted
        if progress.step not in steps:
            seen = len(acknowledged)
            wanted = seen + 20
            eventually(lambda: len(acknowledged) >= seen + 10 or faults)
            steps[progress.step] = len(acknowledged) - seen

    try:
        made = save(app, tmp_path / "b.zip", tell=written_meanwhile)
    finally:
        stop.set()
        for thread in [*threads, working]:
            thread.join()
    assert not faults
    url = empty_database()
    restored = load(tmp_path / "b.zip", url, tmp_path / "there")

    assert restored.documents == made.manifest.rows("documents") >= len(before)
    assert steps.keys() == {"tables", "files"}
    assert min(steps.values()) > 0, "nobody wrote while the backup was made"
    held = {row["id"]: row for row in rows(url, "select * from documents")}
    store = FolderBlobs(tmp_path / "there")
    for id, body, key in before:
        row = held[id]
        if isinstance(body, bytes):
            assert row["blob"] == key
            assert store.get(str(key)) == body
        else:
            assert row["content"] == body
    assert all((first in held) == (second in held) for first, second in pairs)
    counted = {table.name: table.rows for table in made.manifest.tables}
    assert {table: count(url, table) for table in counted} == counted
    unfinished = [row for row in held.values() if row["status"] == "done" and row["chunks"] == 0]
    assert not unfinished


@pytest.mark.one_server
def test_a_restored_service_goes_on_where_the_other_stood(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    tenant, stranger = new_org(app), new_org(app, "others")
    for n in range(24):
        add(app, tenant, story(n), custom_id=f"note-{n}", metadata={"n": n})
    add(app, stranger, story(1) + " of others")
    upload(app, tenant, b"The lighthouse keeper counts ships.\n", "ships.txt")
    drain(app)
    waiting = add(app, tenant, "Queued: the telescope waits for its lens.")
    cursor = {"page": "t-41", "nested": {"since": 7}}
    with app.db.begin() as tx:
        _, secret = orgs.create_key(tx, tenant.id)
        tx.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit, state,"
            " cursor, tokens) values ('c1', %s, 'github', '{notes}', 100, 'ready', %s, %s)",
            (
                tenant.id,
                json.dumps(cursor),
                encryption.seal([KEY], "hush", place=(tenant.id, "c1")),
            ),
        )
    questions = ("apple beside the harbour", "ships", "detail17", "violin")
    expected = {q: hits(app, tenant, q) for q in questions}
    assert all(expected.values())
    save(app, tmp_path / "b.zip")

    url = empty_database()
    load(tmp_path / "b.zip", url, tmp_path / "there" / "blobs")
    again = new_place(url, "there")

    assert {q: hits(again, tenant, q) for q in questions} == expected
    assert embedded(again) == []
    assert drain(again) == 1
    assert embedded(again) == ["Queued: the telescope waits for its lens."]
    with again.db.begin() as tx:
        assert documents.get(tx, tenant, waiting).status == "done"
        assert orgs.authenticate(tx, secret).org.id == tenant.id
        held = tx.execute("select cursor, tokens from connections").fetchone()
        file = documents.file(tx, tenant, hits(again, tenant, "ships")[0][0])
    assert held is not None
    assert held["cursor"] == cursor
    assert encryption.unseal([KEY], held["tokens"], place=(tenant.id, "c1")) == "hush"
    assert again.blobs.get(file.key) == b"The lighthouse keeper counts ships.\n"
    assert dump(url) == dump(url_of(app)), "indexes, foreign keys or triggers are not as they were"


def test_older_texts_come_back_with_a_backup(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, {"keepVersions": 3}, keys=[KEY])
    id = add(app, tenant, story(1))
    drain(app)
    with app.db.begin() as tx:
        change = documents.DocumentChange(content=documents.text_content("Nothing is left of it."))
        documents.update(tx, tenant, id, change)
    drain(app)

    def as_it_was(here: App) -> tuple[list[Any], list[str], str | None]:
        with here.db.begin() as tx:
            known = documents.versions(tx, tenant, id)
        with here.db.begin() as tx:
            query = hybrid.Query("apple", None, as_of=known[-1].known_from)
            found = [c.text for h in hybrid.search(tx, tenant, query) for c in h.chunks]
            text = documents.get(tx, tenant, id, with_text=True).text
        return known, found, text

    expected = as_it_was(app)
    assert (len(expected[0]), expected[1], expected[2]) == (2, [story(1).strip()], story(1).strip())
    save(app, tmp_path / "b.zip")
    url = empty_database()
    load(tmp_path / "b.zip", url, tmp_path / "there" / "blobs")
    again = new_place(url, "there")
    assert as_it_was(again) == expected
    again.db.close()
    load(tmp_path / "b.zip", url, tmp_path / "there" / "blobs", replace=True)
    again = new_place(url, "there")
    assert as_it_was(again) == expected
    with again.db.begin() as tx:
        documents.delete(tx, tenant, [id])
    assert [count(url, name) for name in ("versions", "version_chunks", "version_entries")] == [
        0
    ] * 3


def test_files_stay_until_a_backup_has_copied_them(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    uploaded = [upload(app, tenant, f"page {n}".encode()) for n in range(5)]
    for _, key in uploaded:  # old enough for the sweep, too
        os.utime(app.config.data_dir / "blobs" / key, (0, 0))
    deleted = threading.Event()

    def delete_all_meanwhile(progress: Progress) -> None:
        if progress.step == "files" and not deleted.is_set():
            deleted.set()
            with app.db.begin() as tx:
                documents.delete_all(tx, tenant)
            delete_doomed(app.db, app.blobs)
            sweep_blobs(app)

    made = save(app, tmp_path / "b.zip", tell=delete_all_meanwhile)

    assert deleted.is_set()
    assert made.manifest.missing == []
    url = empty_database()
    load(tmp_path / "b.zip", url, tmp_path / "there")
    store = FolderBlobs(tmp_path / "there")
    assert [store.get(key) for _, key in uploaded] == [f"page {n}".encode() for n in range(5)]
    delete_doomed(app.db, app.blobs)  # and now they go
    assert not list((app.config.data_dir / "blobs").rglob("*.????????"))


def test_a_file_that_was_lost_before_is_named_and_stops_nothing(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    _, lost = upload(app, tenant, b"lost")
    _, kept = upload(app, tenant, b"kept")
    app.blobs.delete(lost)

    made = save(app, tmp_path / "b.zip")

    assert made.manifest.missing == [lost]
    load(tmp_path / "b.zip", empty_database(), tmp_path / "there")
    assert FolderBlobs(tmp_path / "there").get(kept) == b"kept"


def test_a_restore_that_fails_over_a_store_that_keeps_files_says_why_it_failed(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    """And takes back what the store lets go."""
    app = new_place()
    tenant = new_org(app)
    for name in (b"one", b"two", b"three"):
        upload(app, tenant, name)
    save(app, tmp_path / "b.zip")
    there = tmp_path / "there"

    with Archive(tmp_path / "b.zip") as archive, pytest.raises(Unavailable, match="No space left"):
        backup.restore(archive, empty_database(), KeepsTheFirst(there, used=True))

    assert len([path for path in there.rglob("*") if path.is_file() and path.name != NOTE]) == 1


class KeepsTheFirst(FolderBlobs):
    """Takes two files, and does not let the first one go."""

    def __init__(self, root: Path, *, used: bool) -> None:
        super().__init__(root, used=used)
        self._taken: list[str] = []

    def put(self, key: str, data: bytes) -> None:
        if len(self._taken) == 2:
            raise Unavailable("cannot write to the blob folder: No space left on device")
        super().put(key, data)
        self._taken.append(key)

    def delete(self, key: str) -> None:
        if key == self._taken[0]:
            raise Undeletable(f"{key} is locked")
        super().delete(key)


def test_a_file_that_was_damaged_before_is_named_and_stops_no_restore(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    id, damaged = upload(app, tenant, b"as it was uploaded")
    _, kept = upload(app, tenant, b"kept")
    app.blobs.put(damaged, b"As it was uploaded")

    made = save(app, tmp_path / "b.zip")

    bundle = bundle_of(app, tmp_path / "bundle")
    assert (bundle.damaged, bundle.missing, bundle.files) == ([id], [], 2)
    assert (made.manifest.damaged, made.manifest.missing) == ([damaged], [])
    there = FolderBlobs(tmp_path / "there")
    assert load(tmp_path / "b.zip", empty_database(), tmp_path / "there").damaged == [damaged]
    assert there.get(kept) == b"kept"
    assert there.get(damaged) == b"As it was uploaded"
    there.put(damaged, b"as it was uploaded")  # whoever has it whole keeps that
    load(tmp_path / "b.zip", empty_database(), tmp_path / "there")
    assert there.get(damaged) == b"as it was uploaded"


def test_what_a_killed_run_left_goes_with_the_next_one(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    new_org(app)
    dead = [tmp_path / ".b.zip.0123abcd.part", tmp_path / ".bundle.0123abcd.part"]
    others = [tmp_path / ".c.zip.0123abcd.part", tmp_path / ".b.zip.of-mine.part"]
    alive = tmp_path / ".b.zip.89abcdef.part"
    for path in (dead[0], alive, *others):
        path.write_bytes(b"rows")
    dead[1].mkdir()
    (dead[1] / "documents.jsonl").write_bytes(b"rows")

    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        save(app, tmp_path / "b.zip")
        bundle_of(app, tmp_path / "bundle")

    assert not any(path.exists() for path in dead)
    assert all(path.exists() for path in (alive, *others))


def test_two_runs_for_one_path_that_begin_together_leave_each_other_alone(tmp_path: Path) -> None:
    path, meeting = tmp_path / "b.zip", threading.Barrier(2, timeout=60)

    def write(force: bool) -> bool:
        meeting.wait()
        try:
            with Writing(path, force=force) as file:
                file.put("a", b"rows")
                meeting.wait()
        except SetupError as error:
            return "is there already" not in str(error)
        return True

    with ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            assert list(pool.map(write, [True, True])) == [True, True]
            path.unlink()
            assert sorted(pool.map(write, [False, False])) == [False, True]
            path.unlink()


def test_a_name_that_cannot_be_is_said(
    new_place: Callable[..., App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, long = new_place(), tmp_path / ("x" * 300)
    new_org(app)
    monkeypatch.chdir(tmp_path)

    for write in (save, bundle_of):
        with pytest.raises(SetupError, match="File name too long"):
            write(app, long)
    for here in (Path("."), Path("..")):
        with pytest.raises(SetupError, match="is there already; name a new folder"):
            bundle_of(app, here)


def test_no_device_is_replaced_by_a_backup(new_place: Callable[..., App], tmp_path: Path) -> None:
    app, pipe = new_place(), tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(SetupError, match="is a device"):
        save(app, pipe, force=True)

    assert pipe.is_fifo()


def test_two_backups_at_once_do_not_disturb_each_other(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    new_org(app)
    inside: list[bool] = []

    def second(progress: Progress) -> None:
        if not inside:
            with app.db.begin() as tx:
                inside.append(documents.blobs_may_go(tx))

    save(app, tmp_path / "one.zip", tell=second)
    save(app, tmp_path / "two.zip")

    assert inside == [False]
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == ["one.zip", "two.zip"]


@pytest.fixture(scope="module")
def sound(
    app: App, new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A backup with a little of everything."""
    folder = tmp_path_factory.mktemp("sound")
    with Database(new_database(), size=4) as db:
        here = replace(app, db=db, blobs=FolderBlobs(folder / "blobs"), embedder=WordEmbedder())
        with db.begin() as tx:
            vector_index.adopt(tx, *index_identity(here.embedder))
        tenant = new_org(here)
        for n in range(5):
            add(here, tenant, story(n))
        upload(here, tenant, b"a file " * 100)
        drain(here)
        save(here, folder / "sound.zip")
    return folder / "sound.zip"


def _rewritten(source: Path, path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return path


def _flipped(source: Path, path: Path, member: str) -> Path:
    data = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        info = archive.getinfo(member)
    at = info.header_offset + 30 + len(info.filename) + 20 + info.compress_size // 2
    data[at] ^= 0x55
    path.write_bytes(data)
    return path


def _listed(source: Path, path: Path, **bits: tuple[int, int]) -> None:
    """With other bytes, by their places, where its end lists the first member."""
    data = bytearray(source.read_bytes())
    at = data.index(b"PK\x01\x02")
    for place, value in bits.values():
        data[at + place] = value
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "empty": lambda _, to: to.write_bytes(b""),
    "text": lambda _, to: to.write_text("no archive"),
    "no backup": lambda _, to: zipfile.ZipFile(to, "w").writestr("a", "b"),
    "cut in the middle": lambda s, to: to.write_bytes(s.read_bytes()[: s.stat().st_size // 2]),
    "first byte cut off": lambda s, to: to.write_bytes(s.read_bytes()[1:]),
    "last byte cut off": lambda s, to: to.write_bytes(s.read_bytes()[:-1]),
    "a bit of the documents": lambda s, to: _flipped(s, to, "tables/documents"),
    "a bit of the entries": lambda s, to: _flipped(s, to, "tables/entries"),
    "a bit of the manifest": lambda s, to: _flipped(s, to, "manifest.json"),
    "a bit of the sums": lambda s, to: _flipped(s, to, "SHA256SUMS"),
    "other rows, CRC right": lambda s, to: _rewritten(
        s, to, lambda name, data: data + b"x" if name == "tables/orgs" else data
    ),
    "a table gone": lambda s, to: _rewritten(
        s, to, lambda name, data: None if name == "tables/tags" else data
    ),
    "a file gone": lambda s, to: _rewritten(
        s, to, lambda name, data: None if name.startswith("files/") else data
    ),
    "of a ZIP to come": lambda s, to: _listed(s, to, version=(6, 255)),
    "encrypted": lambda s, to: _listed(s, to, flags=(8, 1)),
    "a name in no script": lambda s, to: _listed(s, to, flags=(9, 8), name=(46, 255)),
    "no sums": lambda s, to: _rewritten(
        s, to, lambda name, data: None if name == "SHA256SUMS" else data
    ),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_backup_is_refused_before_anything_is_written(
    how: str, sound: Path, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    path = tmp_path / "copy.zip"
    DAMAGES[how](sound, path)
    url = empty_database()

    with pytest.raises(SetupError, match=r"copy\.zip is (damaged|empty|not a backup)"):
        load(path, url, tmp_path / "there")

    assert nothing_in(url)
    assert not (tmp_path / "there").exists()


BOMB = 48 << 20
"""bytes that a hundred kilobytes unpack to, and half as many again as may be held"""


@pytest.mark.parametrize("method", ["ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA"])
@pytest.mark.parametrize("member", ["manifest.json", "SHA256SUMS", "tables/orgs"])
def test_a_backup_that_unpacks_to_no_end_takes_no_memory(
    sound: Path, tmp_path: Path, member: str, method: str
) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if name != member:
                new.writestr(name, old.read(name))
        spaces = zipfile.ZipInfo(member)
        spaces.compress_type = getattr(zipfile, method)
        with new.open(spaces, "w") as file:
            for _ in range(BOMB >> 20):
                file.write(b" " * (1 << 20))
    assert path.stat().st_size < 2_000_000

    tracemalloc.start()
    try:
        with pytest.raises(SetupError, match="damaged"), Archive(path) as archive:
            archive.check()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 32 << 20


def test_a_session_does_not_come_back_with_a_backup(
    app: App, new_database: Callable[[], str], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    with Database(new_database(), size=4) as db:
        here = replace(app, db=db, blobs=FolderBlobs(tmp_path / "blobs"), embedder=WordEmbedder())
        with db.begin() as tx:
            vector_index.adopt(tx, *index_identity(here.embedder))
        tenant = new_org(here)
        with db.begin() as tx:
            key, secret = orgs.create_key(tx, tenant.id)
            token = orgs.sign_in(tx, key.id)
        save(here, tmp_path / "backup.zip")
    url = empty_database()
    load(tmp_path / "backup.zip", url, tmp_path / "there")

    with Database(url, size=1) as there, there.begin() as tx:
        assert orgs.authenticate(tx, secret).id == key.id
        with pytest.raises(AuthenticationError):
            orgs.signed_in(tx, token)


def test_an_assistant_s_tokens_do_not_come_back_with_a_backup(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    """It may have been revoked since, or have renewed a token that somebody else has."""
    here, back = new_place(), "https://assistant.example/back"
    tenant, verifier = new_org(here), "v" * 43
    told = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    with here.db.begin() as tx:
        key, _ = orgs.create_key(tx, tenant.id)
        program = assistants.register(tx, "A test", [back])
        code = assistants.allow(
            tx, key, program, scope=Scope.READ, tags=None, redirect_uri=back,
            challenge=told.decode().rstrip("="),
        )  # fmt: skip
        pair = assistants.exchange(
            tx, code, client_id=program.id, redirect_uri=back, verifier=verifier
        )
    assert pair is not None
    save(here, tmp_path / "backup.zip")
    url = empty_database()
    load(tmp_path / "backup.zip", url, tmp_path / "there")

    with Database(url, size=1) as there, there.begin() as tx:
        assert assistants.refresh(tx, pair.refresh, client_id=program.id) is None
        with pytest.raises(AuthenticationError):
            assistants.authenticate(tx, pair.access)


def _with_a_short_time(data: bytes) -> bytes:
    """With four bytes in place of the eight of a time."""
    at = data.index(b"\0\0\0\x08")
    return data[:at] + b"\0\0\0\x04" + data[at + 8 :]


@pytest.mark.parametrize(
    ("table", "forge"), [("orgs", lambda _: b"no rows"), ("migrations", _with_a_short_time)]
)
def test_a_forged_table_is_named(
    sound: Path,
    tmp_path: Path,
    empty_database: Callable[[], str],
    table: str,
    forge: Callable[[bytes], bytes],
) -> None:
    sums = dict[str, str]()

    def change(name: str, data: bytes) -> bytes:
        if name == "SHA256SUMS":
            return "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
        data = forge(data) if name == f"tables/{table}" else data
        sums[name] = hashlib.sha256(data).hexdigest()
        return data

    forged = _rewritten(sound, tmp_path / "forged.zip", change)
    with pytest.raises(SetupError, match=f"forged.zip is damaged: tables/{table}: "):
        load(forged, empty_database(), tmp_path / "blobs")


def test_the_sound_one_is_taken(
    sound: Path, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    assert load(sound, empty_database(), tmp_path / "there").documents == 6
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(sound).extractall(unpacked)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=unpacked, check=True)


def test_no_name_in_a_backup_leads_out_of_the_blob_folder(
    sound: Path, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    path = tmp_path / "evil.zip"
    evil = "../../outside"
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(path, "w") as new:
        sums = old.read("SHA256SUMS").decode()
        for name in old.namelist():
            data = old.read(name)
            if name.startswith("files/"):
                sums = sums.replace(name, f"files/{evil}")
                name = f"files/{evil}"
            if name != "SHA256SUMS":
                new.writestr(name, data)
        new.writestr("SHA256SUMS", sums)
    url = empty_database()

    with pytest.raises(SetupError, match="no document has the file"):
        load(path, url, tmp_path / "deep" / "there")

    assert nothing_in(url)
    assert not list(tmp_path.rglob("outside"))


@pytest.fixture(scope="module")
def newest_schema(new_database: Callable[[], str]) -> str:
    return dump(new_database())


SCHEMAS = [name for name, _ in scripts()]


def migrated(session: psycopg.Connection[Any], until: str) -> None:
    """Give an empty database the schema of an earlier version."""
    session.execute(
        "create table migrations"
        " (name text primary key, applied_at timestamptz not null default now())"
    )
    for name, script in scripts():
        if name <= until:
            session.execute(script)
            session.execute("insert into migrations (name) values (%s)", (name,))


def test_what_was_imported_and_synced_before_is_told_apart_from_what_users_set(
    empty_database: Callable[[], str],
) -> None:
    url = empty_database()
    scope = documents.scope(OrgId("o"), ["here"])
    kinds = {  # connection, source, url, content
        "page": (None, None, "https://docs.example.org/a", "https://docs.example.org/a"),
        "moved": (None, None, "https://notion.so/a", "The text of a page that was moved."),
        "note": (None, None, None, "A note."),
        "kept": (None, "k", "https://notion.so/k", "The text of a page that was kept."),
        "synced": ("c1", "s", "https://notion.so/s", None),
        "relisted": ("c2", "r", "https://notion.so/r", None),
    }
    with psycopg.connect(url) as session:
        migrated(session, "0020_hosts_and_absence")
        session.execute("insert into orgs (id, name, plan) values ('o', 'acme', 'free')")
        for id, cursor in (("c1", "{}"), ("c2", None)):
            session.execute(
                "insert into connections (id, org_id, provider, container_tags, document_limit,"
                " state, cursor) values (%s, 'o', 'notion', '{now}', 100, 'ready', %s)",
                (id, cursor),
            )
        for id, (connection, source, address, content) in kinds.items():
            session.execute(
                "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
                " content_hash, url, connection_id, source_id)"
                " values (%s, 'o', '{here}', %s, 'text', 'api', %s, %s, %s, %s, %s)",
                (id, scope, content, b"h", address, connection, source),
            )
            if connection is not None:
                session.execute(
                    "insert into items (connection_id, id, tags, verdict, document_id, seen_at)"
                    " values (%s, %s, '{own}', 'document', %s, now())",
                    (connection, source, id),
                )

    migrate(url)

    marked = rows(url, "select id, source_id from documents where source_id is not null")
    assert {row["id"]: row["source_id"] for row in marked} == {
        "moved": "moved",
        "kept": "k",
        "synced": "s",
        "relisted": "r",
    }
    given = rows(url, "select document_id, given_tags from items")
    assert {row["document_id"]: row["given_tags"] for row in given} == {
        "synced": ["now", "own"],
        "relisted": ["here"],
    }


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(name, marks=[] if name in (SCHEMAS[0], SCHEMAS[-1]) else [pytest.mark.slow])
        for name in SCHEMAS
    ],
)
@pytest.mark.one_server
def test_a_backup_of_any_earlier_schema_is_brought_up_to_date(
    last: str, empty_database: Callable[[], str], newest_schema: str, tmp_path: Path
) -> None:
    old, org = empty_database(), OrgId(random_id())
    text = "The copper kettle sings before dawn."
    with psycopg.connect(old) as session:
        migrated(session, last)
        session.execute("insert into orgs (id, name, plan) values (%s, 'acme', 'free')", (org,))
        session.execute("insert into index_settings (embedder, dimensions) values ('none', 0)")
        session.execute(
            "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
            " content_hash) values ('old-one', %s, '{notes}', %s, 'text', 'api', %s, %s)",
            (org, documents.scope(org, ["notes"]), text, hashlib.sha256(text.encode()).digest()),
        )
    made = backup.backup(old, FolderBlobs(tmp_path / "b"), tmp_path / "b.zip", sealed_with="")
    url = empty_database()

    done = load(tmp_path / "b.zip", url, tmp_path / "there")

    assert made.manifest.migrations[-1] == last
    assert list(done.migrated) == [name for name, _ in scripts() if name > last]
    assert dump(url) == newest_schema
    with Database(url, size=2) as db, db.begin() as tx:
        assert documents.get(tx, Tenant(org), "old-one", with_text=True).text == text


def test_a_backup_of_a_newer_version_is_refused_with_its_name(
    new_place: Callable[..., App], empty_database: Callable[[], str], tmp_path: Path
) -> None:
    app = new_place()
    new_org(app)
    with app.db.begin() as tx:
        tx.execute("insert into migrations (name) values ('9999_tomorrow')")
    save(app, tmp_path / "b.zip")
    url = empty_database()

    with pytest.raises(SetupError, match=r"newer than this one's \(it has 9999_tomorrow\)"):
        load(tmp_path / "b.zip", url, tmp_path / "there")

    assert nothing_in(url)


def test_a_used_database_is_refused_unless_it_is_to_be_replaced(
    sound: Path,
    new_place: Callable[..., App],
    new_database: Callable[[], str],
    empty_database: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "LOOKS", 3)  # it goes on running, however long it is looked at
    app = new_place()
    tenant = new_org(app, "mine")
    add(app, tenant, "mine alone")
    url = url_of(app)

    with pytest.raises(SetupError, match="a service is running"):
        load(sound, url, tmp_path / "there", replace=True)
    app.db.close()
    with pytest.raises(SetupError, match="in use already"):
        load(sound, url, tmp_path / "there")
    assert [row["name"] for row in rows(url, "select name from orgs")] == ["mine"]

    load(sound, url, tmp_path / "there", replace=True)

    assert [row["name"] for row in rows(url, "select name from orgs")] == ["acme"]
    assert load(sound, new_database(), tmp_path / "made-but-unused").documents == 6
    foreign = empty_database()
    with psycopg.connect(foreign) as session:
        session.execute("create table orders (id int)")
    with pytest.raises(SetupError, match="tables of another program"):
        load(sound, foreign, tmp_path / "foreign", replace=True)


def test_a_service_that_was_just_stopped_is_waited_for(
    sound: Path, new_place: Callable[..., App], tmp_path: Path
) -> None:
    """Its last session may take a moment to end, and the restore was refused."""
    app = new_place()
    url = url_of(app)
    app.db.close()
    waits = "select 1 from pg_stat_activity where datname = current_database()"
    waits += " and pid <> pg_backend_pid() and query like '%pg_sleep%'"
    with (
        ThreadPoolExecutor(1) as beside,
        psycopg.connect(url, application_name="recollect") as last,
    ):

        def end() -> None:
            eventually(lambda: rows(url, waits))
            last.close()

        ending = beside.submit(end)
        load(sound, url, tmp_path / "there", replace=True)
        ending.result()

    assert [row["name"] for row in rows(url, "select name from orgs")] == ["acme"]


def test_what_was_deleted_and_revoked_since_is_named_when_it_comes_back(
    new_place: Callable[..., App], terminal: Terminal, tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    kept, gone = add(app, tenant, "kept"), add(app, tenant, "deleted later")
    with app.db.begin() as tx:
        before, _ = orgs.create_key(tx, tenant.id, name="revoked before")
        key, secret = orgs.create_key(tx, tenant.id, name="revoked later")
        orgs.revoke_key(tx, before.id)
    save(app, tmp_path / "b.zip")
    late = add(app, tenant, "added and deleted later")
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [gone, late])
        orgs.revoke_key(tx, key.id)
    url, place = url_of(app), tmp_path / "there"
    app.db.close()
    in_use = (
        "select 1 from pg_stat_activity where application_name = 'recollect'"
        " and datname = current_database()"
    )
    eventually(lambda: not rows(url, in_use))

    done = load(tmp_path / "b.zip", url, place, replace=True)

    assert (done.deleted, done.revoked) == ([gone], [key.id])
    assert kept in {row["id"] for row in rows(url, "select id from documents")}

    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(place)}
    again = ("restore", str(tmp_path / "b.zip"), "--replace")
    told = terminal.run(*again, **given)
    assert (told.code, "keys create --scope admin" in told.err) == (0, True), told.err
    assert "what was deleted since then is back" in told.err
    (place / "api-key").write_text(f"{secret}\n")
    told = terminal.run(*again, "--json", **given)
    assert json.loads(told.out)["keyKept"] is True


def test_a_restore_whose_keys_cannot_be_kept_changes_nothing(
    terminal: Terminal,
    new_place: Callable[..., App],
    empty_database: Callable[[], str],
    tmp_path: Path,
) -> None:
    app = new_place()
    new_org(app)
    save(app, tmp_path / "b.zip", secrets={"secret-key": KEY})
    url, place = empty_database(), tmp_path / "place"
    place.write_text("no folder")
    given = {
        "RECOLLECT_DATABASE_URL": url,
        "RECOLLECT_DATA_DIR": str(place),
        "RECOLLECT_BLOB_URL": (tmp_path / "files").as_uri(),
    }

    told = terminal.run("restore", str(tmp_path / "b.zip"), **given)

    assert (told.code, nothing_in(url)) == (1, True)
    assert "cannot be put into" in told.err
    place.unlink()
    closed = (place / "closed").as_uri()
    place.mkdir()
    (place / "closed").write_text("no folder")
    told = terminal.run(
        "restore", str(tmp_path / "b.zip"), **{**given, "RECOLLECT_BLOB_URL": closed}
    )
    assert (told.code, nothing_in(url)) == (1, True)
    assert told.err.startswith("error: ")
    assert [path.name for path in place.iterdir()] == ["closed"]
    told = terminal.run("restore", str(tmp_path / "b.zip"), **{**given, "RECOLLECT_BLOB_URL": None})
    assert told.code == 0, told.err
    assert (place / "secret-key").read_bytes() == KEY
    assert (place / "secret-key").stat().st_mode & 0o777 == 0o600
    # What a restore replaces may be the only copy of a key.
    for mine in (b"first", b"second"):
        (place / "secret-key").write_bytes(mine)
        again = ["restore", str(tmp_path / "b.zip"), "--replace"]
        told = terminal.run(*again, **{**given, "RECOLLECT_BLOB_URL": None})
        assert told.code == 0, told.err
    kept = {path.name: path.read_bytes() for path in place.glob("secret-key.*")}
    assert kept == {"secret-key.replaced": b"first", "secret-key.replaced.2": b"second"}


def test_the_keys_of_a_backup_are_there_before_its_database(
    terminal: Terminal,
    new_place: Callable[..., App],
    empty_database: Callable[[], str],
    tmp_path: Path,
) -> None:
    """A restore that was killed behind the commit left a database without its key."""
    app = new_place()
    new_org(app)
    save(app, tmp_path / "b.zip", secrets={"secret-key": KEY})
    url, place = empty_database(), tmp_path / "place"
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(place)}
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(url, autocommit=True) as holder:
            holder.execute("select pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            done = pool.submit(terminal.run, "restore", str(tmp_path / "b.zip"), **given)
            eventually(lambda: (place / "secret-key").exists() or done.done())

            assert not done.done()
            assert nothing_in(url)
            assert (place / "secret-key").read_bytes() == KEY
            second = os.open(place, os.O_RDONLY)
            with pytest.raises(BlockingIOError):  # so that it takes nothing away when it is refused
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(second)
        assert done.result().code == 0
    assert (place / "secret-key").read_bytes() == KEY


def test_a_restore_that_is_refused_makes_no_store_of_files(
    terminal: Terminal, sound: Path, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    """The service would have started on the folder of a volume that is not mounted."""
    url, place = empty_database(), tmp_path / "place"
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(place)}
    for folder, code in (("mounted", 0), ("away", 1)):
        files = tmp_path / folder
        more = {**given, "RECOLLECT_BLOB_URL": files.as_uri()}
        told = terminal.run("restore", str(sound), **more)
        assert (told.code, (files / NOTE).exists()) == (code, code == 0), told.err


def test_a_restore_that_fails_leaves_database_and_files_as_they_were(
    sound: Path, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    url = empty_database()
    load(sound, url, tmp_path / "first")
    before = rows(url, "select id, updated_at from documents order by id")

    class Full(FolderBlobs):
        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            raise Unavailable("cannot write to the blob folder: No space left on device")

    with Archive(sound) as archive, pytest.raises(Unavailable, match="No space left"):
        backup.restore(archive, url, Full(tmp_path / "full", used=True), replace=True)
    # Else the service would start on it, though the volume with its files is not mounted there.
    assert [path for path in (tmp_path / "full").rglob("*") if path.is_file()] == []
    with Archive(sound) as archive, pytest.raises(Unavailable, match="No space left"):
        backup.restore(archive, url, Full(tmp_path / "full"), replace=True)

    assert rows(url, "select id, updated_at from documents order by id") == before
    assert [path.name for path in (tmp_path / "full").rglob("*") if path.is_file()] == [NOTE]


# --- the commands --------------------------------------------------------------------------------


def recollect(*arguments: str, url: str | None, data_dir: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,  # noqa: TID251 # the child needs PATH and the like
        "RECOLLECT_DATA_DIR": str(data_dir),
        "RECOLLECT_EMBEDDER": "none",
    }
    if url is not None:
        environment["RECOLLECT_DATABASE_URL"] = url

    done = subprocess.run(
        [sys.executable, "-m", "recollect", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.slow
def test_the_commands_move_an_installation_into_an_embedded_database(
    new_place: Callable[..., App], short_tmp: Path, tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    add(app, tenant, story(3))
    drain(app)
    here, there = app.config.data_dir, short_tmp / f"moved-{uuid.uuid4().hex[:6]}"
    here.mkdir(exist_ok=True)
    (here / "secret-key").write_bytes(KEY)
    with app.db.begin() as tx:
        tx.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit, state,"
            " tokens) values ('c1', %s, 'github', '{notes}', 100, 'ready', %s)",
            (tenant.id, encryption.seal([KEY], "hush", place=(tenant.id, "c1"))),
        )
    file = tmp_path / "b.zip"

    saved = recollect("backup", str(file), url=url_of(app), data_dir=here)
    assert saved.returncode == 0, saved.stderr
    assert "1 document," in saved.stdout
    assert "the secret key is not in it" in saved.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    refused = recollect("backup", str(file), url=url_of(app), data_dir=here)
    assert refused.returncode == 1
    assert "is there already; --force replaces it" in refused.stderr
    keyed = tmp_path / "keyed.zip"
    told = recollect("backup", str(keyed), "--with-key", "--json", url=url_of(app), data_dir=here)
    assert json.loads(told.stdout)["secrets"] == ["secret-key"]
    assert json.loads(told.stdout)["documents"] == 1

    moved = recollect("restore", str(file), url=None, data_dir=there)
    assert moved.returncode == 0, moved.stderr
    assert "restored 1 document and" in moved.stdout
    assert "1 connection must be authorized again" in moved.stderr
    again = recollect("restore", str(file), url=None, data_dir=there)
    assert again.returncode == 1
    assert "in use already" in again.stderr
    whole = recollect("restore", str(keyed), "--replace", "--json", url=None, data_dir=there)
    assert whole.returncode == 0, whole.stderr
    assert json.loads(whole.stdout)["keyMissing"] is False
    assert (there / "secret-key").read_bytes() == KEY
    assert (there / "secret-key").stat().st_mode & 0o777 == 0o600

    with app.db.begin() as tx:
        tx.execute("delete from connections where org_id = %s", (tenant.id,))
    recollect("backup", str(file), "--force", url=url_of(app), data_dir=here)
    (there / "secret-key").write_bytes(b"another key of thirty-two bytes.")
    without = recollect("restore", str(file), "--replace", url=None, data_dir=there)
    assert "secrets among the settings must be set again" in without.stderr
    assert "0 connections" not in without.stderr
    listed = recollect("orgs", "list", "--json", url=None, data_dir=there)
    assert [one["name"] for one in json.loads(listed.stdout)] == ["acme"]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    environment = {
        **os.environ,  # noqa: TID251 # the child needs PATH and the like
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "RECOLLECT_EMBEDDER": "none",
    }
    with Terminal(tmp_path_factory.mktemp("terminal"), environment) as terminal:
        yield terminal


def refused(terminal: Terminal, file: Path, *, url: str | None, data_dir: Path) -> str:
    """What a backup says that cannot be made."""
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(data_dir)}
    done = terminal.run("backup", str(file), **given)
    assert done.code == 1
    assert "Traceback" not in done.err, done.err
    return done.err


def test_doctor_leaves_the_schema_of_an_older_version_as_it_is(
    terminal: Terminal, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    """It is asked before the first start of a new version, from which there is no way back."""
    url = empty_database()
    with psycopg.connect(url) as session:
        migrated(session, "0010_turns")
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(tmp_path)}
    told = terminal.run("doctor", **given)

    assert told.code == 0, told.err
    assert "warn database: configured; written by an older Recollect" in told.out
    newest = rows(url, "select max(name) as name from migrations")
    assert newest == [{"name": "0010_turns"}]


MAKING = ("backup", "export")
ON_THE_DATABASE = [
    ["verify"],
    ["purge", "--now"],
    ["receipt", "7msRU48jI0KqwTPC6nnlhv"],
    ["export", "BUNDLE"],
    ["import", "BUNDLE"],
    ["embedder", "status"],
    ["orgs", "list"],
    ["keys", "create"],
    ["assistants", "list"],
    ["audit"],
    ["reindex", "--yes"],
    ["connections", "verify"],
]
"""Commands that need a database that a service of this version has started on."""


@pytest.mark.parametrize("command", ON_THE_DATABASE, ids=lambda words: words[0])
def test_only_the_start_of_a_service_takes_the_way_back_to_an_older_version(
    command: list[str], terminal: Terminal, empty_database: Callable[[], str], tmp_path: Path
) -> None:
    url = empty_database()
    with psycopg.connect(url) as session:
        migrated(session, "0010_turns")

    told = on_database(terminal, command, tmp_path, url)

    assert "the database was written by an older Recollect" in told
    newest = rows(url, "select max(name) as name from migrations")
    assert newest == [{"name": "0010_turns"}]


@pytest.mark.parametrize(
    "command",
    [["backup", "b.zip"], ["export", "bundle"], ["verify"], ["audit"]],
    ids=lambda words: words[0],
)
def test_a_database_that_takes_no_writes_can_be_saved_and_looked_at(
    command: list[str], terminal: Terminal, new_place: Callable[..., App], tmp_path: Path
) -> None:
    """A provider makes it so when its disk is nearly full."""
    app = new_place()
    tenant = new_org(app, "default")
    add(app, tenant, story(1))
    drain(app)
    url = make_conninfo(url_of(app), options="-c default_transaction_read_only=on")
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(app.config.data_dir)}
    done = terminal.run(command[0], *(str(tmp_path / name) for name in command[1:]), **given)

    assert done.code == 0, done.err
    assert ("not in the audit log: the database takes no writes" in done.err) == (
        command[0] in MAKING
    )
    told = terminal.run("doctor", **given)
    assert told.code == 1
    assert NO_WRITES in told.out


@pytest.mark.parametrize("command", ON_THE_DATABASE, ids=lambda words: words[0])
def test_a_command_that_finds_no_database_makes_none(
    command: list[str], terminal: Terminal, tmp_path: Path
) -> None:
    told = on_database(terminal, command, tmp_path, None)

    assert f"there is no database in {tmp_path / 'data'}" in told
    assert not (tmp_path / "data").exists()


def test_a_database_that_is_served_is_not_reindexed(
    new_database: Callable[[], str], terminal: Terminal, tmp_path: Path
) -> None:
    """The service would go on with vectors of the model before, which fit no index any more."""
    url = new_database()
    before = rows(url, "select * from index_settings")

    with Database(url, size=1, name=machines.Shared(["k"], "files").name) as service:
        service.read(lambda tx: tx.execute("select 1"))
        told = on_database(terminal, ["reindex", "--yes"], tmp_path, url)

    assert "a service is running on this database; stop it first" in told
    assert rows(url, "select * from index_settings") == before


def on_database(terminal: Terminal, command: list[str], folder: Path, url: str | None) -> str:
    """What a command says that is refused."""
    bundle = folder / "bundle"
    if command[0] == "import":
        bundle.mkdir()
        (bundle / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
        (bundle / "documents.jsonl").touch()
    words = [str(bundle) if word == "BUNDLE" else word for word in command]
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(folder / "data")}
    done = terminal.run(*words, **given)
    assert done.code == 1
    assert done.out == ""
    assert "Traceback" not in done.err, done.err
    return done.err


@pytest.mark.parametrize("command", ["backup", "export", "import"])
def test_no_command_begins_a_new_store_where_the_files_are_away(
    command: str,
    new_place: Callable[..., App],
    new_database: Callable[[], str],
    terminal: Terminal,
    tmp_path: Path,
) -> None:
    """As of a volume that is not mounted: the service would take it for its own from then on."""
    app, bundle, files = new_place(), tmp_path / "bundle", tmp_path / "not mounted"
    files.mkdir()
    upload(app, new_org(app, orgs.DEFAULT), b"a file")
    given = {
        "RECOLLECT_DATABASE_URL": url_of(app),
        "RECOLLECT_DATA_DIR": str(app.config.data_dir),
        "RECOLLECT_EMBEDDER": "none",
        "RECOLLECT_BLOB_URL": files.as_uri(),
    }
    if command == "import":
        there = {**given, "RECOLLECT_BLOB_URL": (app.config.data_dir / "blobs").as_uri()}
        assert terminal.run("export", str(bundle), **there).code == 0
        given["RECOLLECT_DATABASE_URL"] = there["RECOLLECT_DATABASE_URL"] = new_database()
        assert terminal.run("orgs", "create", orgs.DEFAULT, **given).code == 0
        # The first work on a database makes the folder, as the first start of the service does.
        there["RECOLLECT_BLOB_URL"] = (tmp_path / "new").as_uri()
        assert terminal.run(command, str(bundle), **there).code == 0
        assert (tmp_path / "new" / NOTE).exists()
        assert terminal.run("orgs", "create", "second", **given).code == 0

    more = ("--org", "second") if command == "import" else ()
    done = terminal.run(command, str(bundle), *more, **given)

    assert done.code == 1
    assert "the blob folder is away" in done.err
    assert list(files.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_nothing(
    new_place: Callable[..., App], terminal: Terminal, tmp_path: Path
) -> None:
    app = new_place()
    upload(app, new_org(app), os.urandom(300_000))
    folder = tmp_path / "target"
    folder.mkdir()
    process, what = terminal.pid, resource.RLIMIT_FSIZE
    before = resource.prlimit(process, what)

    resource.prlimit(process, what, (100_000, before[1]))
    try:
        told = refused(terminal, folder / "b.zip", url=url_of(app), data_dir=app.config.data_dir)
    finally:
        resource.prlimit(process, what, before)

    assert "cannot write" in told
    assert "nothing is left of it" in told
    assert list(folder.iterdir()) == []


def test_what_breaks_off_is_said_as_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Writing(tmp_path / "b.zip") as file:
            file.put("one", b"heron" * 1_000)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("backup {}/new.zip", "new.zip; a backup is complete or absent"),
        ("restore {}/made.zip --replace", "the database is as it was before"),
        ("export {}/new --org acme", "new; a bundle is complete or absent"),
        ("import {}/bundle --org acme", "what was added stays; the same command adds the rest"),
    ],
)
def test_who_stops_a_command_is_told_what_has_become_of_it(
    terminal: Terminal, new_place: Callable[..., App], tmp_path: Path, command: str, told: str
) -> None:
    app = new_place()
    add(app, new_org(app), story(1))
    drain(app)
    save(app, tmp_path / "made.zip")
    bundle_of(app, tmp_path / "bundle")
    with app.db.begin() as tx:  # as the commands, whose settings name no model
        tx.execute("delete from index_settings")
    app.db.close()
    there = {"RECOLLECT_DATABASE_URL": url_of(app), "RECOLLECT_DATA_DIR": str(tmp_path / "d")}
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url_of(app)) as blocker:
        blocker.execute("lock table documents in access exclusive mode")
        ended = pool.submit(lambda: terminal.run(*command.format(tmp_path).split(), **there))
        eventually(lambda: rows(url_of(app), WAITING) or ended.done())
        assert not ended.done(), ended.result()
        os.kill(terminal.pid, signal.SIGINT)

        done = ended.result()
    assert (done.code, told in done.err) == (130, True), done.err
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.zip").exists()


WAITING: LiteralString = (
    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


def test_no_command_takes_an_empty_folder_for_that_of_the_files(
    terminal: Terminal, new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    _, key = upload(app, tenant, b"uploaded")
    folder = app.config.data_dir / "blobs"
    bundle_of(app, tmp_path / "bundle")
    new_org(app, "elsewhere")
    folder.rename(tmp_path / "kept")
    folder.mkdir()
    given = {
        "RECOLLECT_DATABASE_URL": url_of(app),
        "RECOLLECT_DATA_DIR": str(app.config.data_dir),
    }
    with app.db.begin() as tx:  # as the commands, whose settings name no model
        tx.execute("delete from index_settings")

    for command in (
        ("export", str(tmp_path / "other"), "--org", "acme"),
        ("import", str(tmp_path / "bundle"), "--org", "elsewhere"),
    ):
        done = terminal.run(*command, **given)
        assert done.code == 1
        assert "the blob folder is away" in done.err
    told = terminal.run("doctor", **given)
    assert told.code == 1
    assert f"FAIL files: {folder.as_uri()} has none of the files" in told.out

    assert list(folder.iterdir()) == []
    assert not (tmp_path / "other").exists()
    folder.rmdir()
    (tmp_path / "kept").rename(folder)
    assert app.blobs.get(key) == b"uploaded"
    assert f"ok   files: {folder.as_uri()}" in terminal.run("doctor", **given).out


def test_what_cannot_be_backed_up_is_said(
    tmp_path: Path, empty_database: Callable[[], str], terminal: Terminal
) -> None:
    nowhere = refused(terminal, tmp_path / "b.zip", url=None, data_dir=tmp_path / "none")
    assert "there is no database in" in nowhere
    assert not (tmp_path / "none").exists()
    url = empty_database()
    unused = refused(terminal, tmp_path / "b.zip", url=url, data_dir=tmp_path)
    assert "there is nothing to back up" in unused
    folder = refused(terminal, tmp_path / "no" / "b.zip", url=url, data_dir=tmp_path)
    assert "No such file or directory" in folder
    for taken in (Path("/"), Path("."), tmp_path):
        told = refused(terminal, taken, url=url, data_dir=tmp_path)
        assert f"{taken} is a folder; name the file to write" in told
    assert not list(tmp_path.glob("**/*.zip"))
    assert not list(tmp_path.glob("**/*.part"))


# --- bundles -------------------------------------------------------------------------------------


def bundle_of(app: App, folder: Path, **more: Any) -> backup.Bundle:
    return backup.export(url_of(app), app.blobs, folder, org="acme", **more)


def filled(app: App) -> Tenant:
    tenant = new_org(app)
    for n in range(12):
        labels = {"n": n, "even": n % 2 == 0}
        group = {"even": n % 2 == 0}
        add(app, tenant, story(n), custom_id=f"note-{n}", metadata=labels, group=group)
    add(app, tenant, "The orchard keeper counts pears.", tags=["orchard", "notes"])
    upload(app, tenant, b"The lighthouse keeper counts ships.\n", "ships.txt")
    drain(app)
    return tenant


QUESTIONS = ("apple beside the harbour", "counts ships", "detail7", "pears")


def test_a_bundle_goes_into_another_installation_without_embedding(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant = filled(app)
    waiting = add(app, tenant, "Queued: the telescope waits.", custom_id="late")
    with app.db.begin() as tx:
        tags.patch(tx, tenant, "notes", {"title": "Notes", "entity_context": "of a keeper"})
        documents.update(tx, tenant, "note-3", documents.DocumentChange(title="The third"))
    expected = {q: [(id, text) for id, _, text in hits(app, tenant, q)] for q in QUESTIONS}
    there = new_org(other, "elsewhere")

    bundle = bundle_of(app, tmp_path / "bundle")
    done = backup.bring(other, tmp_path / "bundle", org="elsewhere")

    assert (bundle.documents, bundle.files) == (15, 1)
    assert (done.added, done.queued, done.there, done.renamed) == (15, 1, 0, 0)
    assert (done.taken_over, done.embedded) == (bundle.chunks, 0)
    assert embedded(other) == []
    assert {q: [(id, text) for id, _, text in hits(other, there, q)] for q in QUESTIONS} == expected
    with app.db.begin() as old, other.db.begin() as new:
        for n in range(12):
            before = documents.get(old, tenant, f"note-{n}", with_text=True)
            after = documents.get(new, there, f"note-{n}", with_text=True)
            assert (after.id, after.custom_id, after.text) == (
                before.id,
                before.custom_id,
                before.text,
            )
            assert (after.metadata, after.group, after.container_tags, after.title) == (
                before.metadata,
                {"even": n % 2 == 0},
                before.container_tags,
                before.title,
            )
            assert (after.created_at, after.updated_at) == (before.created_at, before.updated_at)
            assert documents.chunks(new, there, after.id) == documents.chunks(
                old, tenant, before.id
            )
        documents.update(
            new, there, "note-3", documents.DocumentChange(content=documents.text_content("New."))
        )
        kept = tags.get(new, there, "notes")
        assert (kept.title, kept.tag.entity_context) == ("Notes", "of a keeper")
        file = documents.file(new, there, hits(other, there, "counts ships")[0][0])
    assert other.blobs.get(file.key) == b"The lighthouse keeper counts ships.\n"
    assert drain(other) == 2
    with other.db.begin() as tx:
        assert documents.get(tx, there, waiting).status == "done"
        assert documents.get(tx, there, "note-3").title == "The third"
        [counted] = tx.execute(
            "select (select sum(entries) from term_counts) as told,"
            " (select sum(cardinality(terms)) from entries) as there"
        ).fetchall()
    assert counted["told"] == counted["there"]


def test_a_bundle_goes_into_another_organisation_beside_its_own(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    tenant, second = filled(app), new_org(app, "second")
    bundle_of(app, tmp_path / "bundle")
    assert isinstance(app.embedder, WordEmbedder)
    app.embedder.forget()

    first = backup.bring(app, tmp_path / "bundle", org="second")
    once_more = backup.bring(app, tmp_path / "bundle", org="second")
    home = backup.bring(app, tmp_path / "bundle", org="acme")

    assert (first.added, first.renamed, first.there) == (14, 14, 0)
    assert (once_more.added, once_more.there, once_more.differing) == (0, 14, 0)
    assert (home.added, home.there, home.differing) == (0, 14, 0)
    assert embedded(app) == []
    for question in QUESTIONS:
        # Those that score alike stand in the order of their ids, which are others here.
        ours = sorted((text, score) for _, score, text in hits(app, tenant, question))
        assert sorted((t, score) for _, score, t in hits(app, second, question)) == ours
    assert not {id for id, _, _ in hits(app, tenant, "apple")} & {
        id for id, _, _ in hits(app, second, "apple")
    }


def recalled(app: App, tenant: Tenant, text: str) -> list[tuple[str, int, list[str], bool]]:
    """What searchers of memories see: text, version, its neighbours, whether it has evidence."""
    assert app.embedder is not None
    [vector] = app.embedder.embed([text], query=True)
    with app.db.begin() as tx:
        found = finding.search(tx, tenant, text, vector, records.MemoryQuery(tags=["notes"]))
        ids = [one.memory.id for one in found]
        related, evidence = reading.neighbours(tx, tenant, ids), reading.evidence(tx, tenant, ids)
    return [
        (
            one.memory.content,
            one.memory.version,
            sorted(f"{near.relation} {near.memory}" for near in related[one.memory.id]),
            bool(evidence[one.memory.id]),
        )
        for one in found
    ]


def test_memories_go_along_with_their_versions_relations_and_sources(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant, second = new_org(app), new_org(app, "second")
    there = new_org(other, "elsewhere")
    add(app, tenant, "The miller told that the mill stands still in winter.", custom_id="talk")
    drain(app)

    def fact(text: str, **more: Any) -> records.Fact:
        assert app.embedder is not None
        return records.Fact(
            text, terms.weigh(tenant.id, text), app.embedder.embed([text], query=True)[0], **more
        )

    with app.db.begin() as tx:
        document = documents.get(tx, tenant, "talk")
        [chunk] = documents.chunks(tx, tenant, document.id)
        span = records.Span(chunk.hash, 21, 52)
        drawn = fact(
            "The mill stands still in winter.",
            spans=[span],
            is_inference=True,
            group={"town": "Bonn"},
        )
        kept = memories.store(tx, tenant.id, document.id, "notes", [drawn], read=[chunk.hash])
        _, [old, _] = memories.add(
            tx,
            tenant,
            "notes",
            [
                fact("The miller has two cats.", metadata={"sure": True}),
                fact(
                    "Winter is quiet at the mill.",
                    related={records.MemoryId(kept[0]): records.Relation.DERIVES},
                ),
            ],
            DocumentId(random_id()),
        )
        said = "The miller has three cats."
        memories.correct(
            tx,
            tenant,
            "notes",
            records.MemoryTarget(id=old.id),
            records.Correction(said, fact(said).weights, fact(said).vector),
        )
    expected = {q: recalled(app, tenant, q) for q in ("cats of the miller", "mill in winter")}
    assert [(said, 2)] == [one[:2] for one in expected["cats of the miller"] if "cats" in one[0]]
    assert any("derives" in near for one in expected["mill in winter"] for near in one[2])
    assert all(one[3] for found in expected.values() for one in found)

    bundle = bundle_of(app, tmp_path / "bundle")
    done = backup.bring(other, tmp_path / "bundle", org="elsewhere")
    beside = backup.bring(app, tmp_path / "bundle", org="second")
    again = backup.bring(app, tmp_path / "bundle", org="second")

    assert bundle.memories == done.memories == beside.memories == 4
    assert (again.memories, again.added) == (0, 0)
    assert embedded(other) == []
    assert {q: recalled(other, there, q) for q in expected} == expected
    for question, found in expected.items():
        assert sorted(recalled(app, second, question)) == sorted(found)
    with other.db.begin() as tx:
        ids = [one.id for one in reading.find(tx, there, records.MemoryQuery()).items]
        versions = sorted(len(past) for past in reading.history(tx, there, ids).values())
        assert reading.unread(tx, documents.get(tx, there, "talk").id) == []
        grouped = records.MemoryQuery(grouped=True, group={"town": "Bonn"})
        [still] = reading.find(tx, there, grouped).items
        assert still.content == "The mill stands still in winter."
    with app.db.begin() as tx:
        mine = [one.id for one in reading.find(tx, tenant, records.MemoryQuery()).items]
        assert versions == sorted(len(p) for p in reading.history(tx, tenant, mine).values())


def test_an_import_that_was_cut_off_goes_on(new_place: Callable[..., App], tmp_path: Path) -> None:
    app, other = new_place(), new_place()
    filled(app)
    there = new_org(other, "elsewhere")
    bundle_of(app, tmp_path / "bundle")

    def cut(progress: Progress) -> None:
        if progress.done == 6:
            raise CutError

    with pytest.raises(CutError):
        backup.bring(other, tmp_path / "bundle", org="elsewhere", tell=cut)
    with other.db.begin() as tx:
        mine = documents.get(tx, there, "note-2")
        documents.update(
            tx,
            there,
            mine.id,
            documents.DocumentChange(content=documents.text_content("changed here")),
        )

    done = backup.bring(other, tmp_path / "bundle", org="elsewhere")

    assert (done.there, done.added, done.differing) == (6, 8, 1)
    with other.db.begin() as tx:
        row = tx.execute("select content from documents where id = %s", (mine.id,)).fetchone()
        assert row is not None
        assert row["content"] == "changed here"
        assert sum(documents.counts(tx, there).values()) == 14


def test_another_model_embeds_and_says_so(new_place: Callable[..., App], tmp_path: Path) -> None:
    app, other = new_place(), new_place()
    filled(app)
    there = new_org(other, "elsewhere")
    bundle = bundle_of(app, tmp_path / "bundle")
    assert isinstance(other.embedder, WordEmbedder)
    other.embedder.name = "fake:other"
    with other.db.begin() as tx:
        vector_index.rebind(tx, *index_identity(other.embedder))

    done = backup.bring(other, tmp_path / "bundle", org="elsewhere")

    reason = backup.must_embed(bundle, other.embedder)
    assert reason is not None
    assert "of fake:words, the index is of fake:other" in reason
    assert done.taken_over == 0
    assert done.embedded == len(embedded(other)) == bundle.chunks
    assert hits(other, there, "pears")


def test_an_export_holds_the_organisation_and_tags_that_were_named(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    filled(app)
    add(app, new_org(app, "others"), "a secret of others", tags=["orchard"])

    bundle_of(app, tmp_path / "all")
    some = bundle_of(app, tmp_path / "some", tags=["orchard"])

    assert "a secret of others" not in (tmp_path / "all" / "documents.jsonl").read_text()
    lines = (tmp_path / "some" / "documents.jsonl").read_text().splitlines()
    assert [json.loads(line)["title"] for line in lines] == ["The orchard keeper counts pears."]
    assert [tag.name for tag in some.tags] == ["orchard"]
    with pytest.raises(NotFoundError):
        backup.export(url_of(app), app.blobs, tmp_path / "none", org="nobody")
    with pytest.raises(NotFoundError, match="no container tag 'orchards'"):
        bundle_of(app, tmp_path / "none", tags=["orchard", "orchards"])
    with pytest.raises(SetupError, match="not empty"):
        bundle_of(app, tmp_path / "all")
    assert not (tmp_path / "none").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.isalnum()) == []


def test_a_bundle_that_others_wrote_is_read(new_place: Callable[..., App], tmp_path: Path) -> None:
    app = new_place()
    tenant = new_org(app)
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    (folder / "documents.jsonl").write_text(
        '{"containerTags": ["notes"], "text": "The clockmaker lends a spring."}\n'
        '{"containerTags": ["notes"], "customId": "b", "text": "A bell, cast in tin.",'
        ' "chunks": [{"start": 0, "end": 20}], "extra": 1}\n'
    )

    done = backup.bring(app, folder, org="acme")
    again = backup.bring(app, folder, org="acme")
    drain(app)

    assert (done.added, done.queued, done.embedded) == (2, 1, 1)
    assert (again.added, again.there) == (0, 2)
    assert hits(app, tenant, "clockmaker")[0][2].startswith("The clock")
    assert hits(app, tenant, "bell")[0][2] == "A bell, cast in tin."


def test_chunks_that_others_cut_are_no_damage(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    text = "  Padded.  " + "It goes on and on. " * 200
    chunks = [{"start": 0, "end": 11}, {"start": 11, "end": len(text)}]
    line = {"id": "d", "containerTags": ["notes"], "text": text, "chunks": chunks}
    (tmp_path / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    (tmp_path / "documents.jsonl").write_text(json.dumps(line))
    backup.bring(app, tmp_path, org="acme")

    assert verify.verify(app.db, app.blobs, mend=True).findings == []
    with app.db.begin() as tx:
        assert documents.get(tx, tenant, "d").status == "done"


def test_numbers_of_metadata_come_as_they_are(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant, there = new_org(app), new_org(other)
    numbers = {"year": 2026, "snowflake": 123456789012345678, "share": 0.5, "public": True}
    id = add(app, tenant, story(1), metadata=numbers, group=numbers)
    drain(app)

    bundle_of(app, tmp_path / "bundle")
    backup.bring(other, tmp_path / "bundle", org="acme")

    with other.db.begin() as tx:
        found = documents.get(tx, there, id)
    for brought in (found.metadata, found.group):
        assert json.dumps(brought, sort_keys=True) == json.dumps(numbers, sort_keys=True)


FAULTS = [
    ('{"text": "no tags"}', "containerTags"),
    ('{"containerTags": [], "text": "x"}', "at least one"),
    ('{"containerTags": ["a b"], "text": "x"}', "letters, digits"),
    ('{"containerTags": ["a"]}', "neither content, text, nor file"),
    ('{"containerTags": ["a"], "text": "x", "chunks": [{"start": 0, "end": 9}]}', "outside"),
    ('{"containerTags": ["a"], "text": "x", "metadata": {"a": {"b": 1}}}', "metadata"),
    ('{"containerTags": ["a"], "file": {"sha256": "../../etc", "size": 1}}', "not a SHA-256"),
    ('{"containerTags": ["a"], "file": {"sha256": "' + "0" * 64 + '", "size": 1}}', "read"),
    ('{"containerTags": ["a"], "text": "x", "id": "../x"}', "id: "),
    ('{"containerTags": ["a"], "text": "x", "customId": "' + "x" * 256 + '"}', "customId"),
    ('{"containerTags": ["a"], "text": "x", "type": "A kind"}', "type"),
    ('{"containerTags": ["a"], "text": "x", "source": "' + "x" * 1_001 + '"}', "source"),
    ("{", "truncated"),
    *(
        ('{"containerTags": ["a"], "text": "x", "' + name + '": "' + time + '"}', name)
        for name in ("createdAt", "updatedAt", "documentDate")
        for time in ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00")
    ),
]
MEMORY = {"id": "m", "tag": "a", "content": "Ada."}
MEMORY_FAULTS = [
    ({"version": 1 << 31}, "version"),
    ({"version": 0}, "version"),
    ({"tag": "a b"}, "letters, digits"),
    ({"temporal": {"documentDate": 5}}, "documentDate"),
    ({"temporal": {"eventDate": "2026"}}, "eventDate"),
    *(
        ({name: "9999-12-31T23:59:59-12:00"}, name)
        for name in ("createdAt", "updatedAt", "forgetAfter", "forgottenAt")
    ),
]


def test_a_faulty_line_is_named(new_place: Callable[..., App], tmp_path: Path) -> None:
    app = new_place()
    new_org(app)
    (tmp_path / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    good = '{"containerTags": ["notes"], "text": "fine"}'
    for line, fault in FAULTS:
        (tmp_path / "documents.jsonl").write_text(f"{good}\n{line}\n")

        with pytest.raises(SetupError, match="line 2: ") as caught:
            backup.bring(app, tmp_path, org="acme")

        assert fault in str(caught.value)


def test_a_line_that_the_database_refuses_is_named(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    new_org(app)
    archive = {"id": "z", "containerTags": ["a"], "text": "fine"}
    longest = random.Random(1).randbytes(9_000).hex()
    member = {**archive, "id": "m", "archive": "z", "archivePath": longest}
    (tmp_path / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    (tmp_path / "documents.jsonl").write_text(f"{json.dumps(archive)}\n{json.dumps(member)}\n")

    with pytest.raises(SetupError, match=r"line 2: .*index row"):
        backup.bring(app, tmp_path, org="acme")


@pytest.mark.parametrize(
    ("tag", "fault"),
    [
        ({"profileBuckets": [{"name": "work"}]}, "key"),
        ({"profileBuckets": [{"key": "At work"}]}, "key"),
        ({"title": "x" * 201}, "title"),
        ({"entityContext": "x" * 1_501}, "entityContext"),
        ({"name": "no spaces"}, "'no spaces': 1 to 100 characters"),
    ],
)
def test_a_faulty_tag_is_named(
    new_place: Callable[..., App], tmp_path: Path, tag: dict[str, Any], fault: str
) -> None:
    app = new_place()
    new_org(app)
    head = {"format": "recollect-bundle", "version": 1, "tags": [{"name": "a", **tag}]}
    (tmp_path / "bundle.json").write_text(json.dumps(head))
    (tmp_path / "documents.jsonl").write_text("")

    with pytest.raises(SetupError, match=rf"bundle.json: .*{fault}"):
        backup.bring(app, tmp_path, org="acme")


@pytest.mark.parametrize("name", ["documents", "memories", "questions"])
def test_a_bundle_without_digests_that_was_cut_off_at_a_line_is_refused(
    new_place: Callable[..., App], tmp_path: Path, name: str
) -> None:
    app = new_place()
    tenant = new_org(app)
    head = {"format": "recollect-bundle", "version": 1, "documents": 1}
    (tmp_path / "documents.jsonl").write_text('{"containerTags": ["a"], "text": "An owl."}')
    (tmp_path / "bundle.json").write_text(json.dumps({**head, name: 2}))

    with pytest.raises(SetupError, match=rf"{name}.jsonl has [01] lines, and .* says 2"):
        backup.bring(app, tmp_path, org="acme")
    assert hits(app, tenant, "owl") == []

    (tmp_path / "bundle.json").write_text(json.dumps(head))
    assert backup.bring(app, tmp_path, org="acme").added == 1


def test_a_faulty_memory_is_named(new_place: Callable[..., App], tmp_path: Path) -> None:
    app = new_place()
    new_org(app)
    document = {"id": "d", "containerTags": ["a"], "text": "Ada."}
    (tmp_path / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    (tmp_path / "documents.jsonl").write_text(json.dumps(document))
    source = {"document": "d", "start": 0, "end": 4}
    for more, fault in MEMORY_FAULTS:
        line = json.dumps({**MEMORY, "sources": [source], **more})
        (tmp_path / "memories.jsonl").write_text(f"{line}\n")

        with pytest.raises(SetupError, match=r"memories.jsonl, line 1: ") as caught:
            backup.bring(app, tmp_path, org="acme")

        assert fault in str(caught.value)


def test_a_line_without_end_is_refused(
    new_place: Callable[..., App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_place()
    new_org(app)
    monkeypatch.setattr("recollect.ops.backup._import.LONGEST_LINE", 1_000)
    (tmp_path / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    good = '{"containerTags": ["notes"], "text": "fine"}'
    (tmp_path / "documents.jsonl").write_text(f'{good}\n{good[:-2]}{"x" * 1_000}"}}\n')

    with pytest.raises(SetupError, match="line 2: longer than 1,000 bytes"):
        backup.bring(app, tmp_path, org="acme")


def test_a_damaged_bundle_is_refused(new_place: Callable[..., App], tmp_path: Path) -> None:
    app = new_place()
    filled(app)
    other = new_place()
    there = new_org(other, "elsewhere")
    bundle_of(app, tmp_path / "bundle")
    lines = tmp_path / "bundle" / "documents.jsonl"
    text = lines.read_text()

    lines.write_text(text[: len(text) // 2])
    with pytest.raises(SetupError, match="SHA-256 differs"):
        backup.bring(other, tmp_path / "bundle", org="elsewhere")
    lines.write_text(text)
    [file] = [path for path in (tmp_path / "bundle" / "files").rglob("*") if path.is_file()]
    file.write_bytes(b"another file")
    with pytest.raises(SetupError, match="is damaged"):
        backup.bring(other, tmp_path / "bundle", org="elsewhere")

    with other.db.begin() as tx:
        found = documents.find(tx, there, documents.DocumentQuery(limit=100))
    assert not [one for one in found.items if one.kind != "text" or one.title == "ships.txt"]


# --- bundles over what is there ------------------------------------------------------------------


class CutError(Exception):
    pass


def fact(app: App, tenant: Tenant, text: str, **more: Any) -> records.Fact:
    assert app.embedder is not None
    [vector] = app.embedder.embed([text])
    return records.Fact(text, terms.weigh(tenant.id, text), vector, **more)


def tell_fact(app: App, tenant: Tenant, text: str, **more: Any) -> records.MemoryId:
    told = fact(app, tenant, text, **more)
    with app.db.begin() as tx:
        return memories.add(tx, tenant, "notes", [told], DocumentId(random_id()))[1][0].id


def corrected(app: App, tenant: Tenant, id: records.MemoryId, text: str) -> records.MemoryId:
    said = fact(app, tenant, text)
    change = records.Correction(text, said.weights, said.vector)
    with app.db.begin() as tx:
        return memories.correct(tx, tenant, "notes", records.MemoryTarget(id=id), change).id


def drawn(app: App, tenant: Tenant, document: str, quote: str) -> records.MemoryId:
    """A memory with that text as its evidence, as a model draws it."""
    with app.db.begin() as tx:
        found = documents.get(tx, tenant, document)
        chunk = next(c for c in documents.chunks(tx, tenant, found.id) if quote in c.text)
        start = chunk.text.index(quote)
        span = records.Span(chunk.hash, start, start + len(quote))
        one = fact(app, tenant, quote, spans=[span], is_inference=True)
        [id] = memories.store(tx, tenant.id, found.id, "notes", [one], read=[chunk.hash])
    return records.MemoryId(id)


def standing(app: App, tenant: Tenant) -> set[str]:
    """What is known now, by its text."""
    with app.db.begin() as tx:
        return {one.content for one in reading.find(tx, tenant, records.MemoryQuery()).items}


def packed(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return out.getvalue()


def settled(app: App, tenant: Tenant) -> Tenant:
    """An organisation with all that a bundle can hold."""
    for n in range(3):
        add(app, tenant, story(n), custom_id=f"note-{n}", metadata={"n": n})
    upload(app, tenant, packed({"a.txt": "The ferry is late.", "b.txt": "The ferry is blue."}))
    drain(app)
    ship = drawn(app, tenant, "note-1", "stands beside the")
    cats = tell_fact(app, tenant, "The miller has two cats.")
    tell_fact(app, tenant, "A mill is quiet.", related={ship: records.Relation.DERIVES})
    three = corrected(app, tenant, cats, "The miller has three cats.")
    corrected(app, tenant, three, "The miller has four cats.")
    return tenant


TABLES: dict[str, LiteralString] = {
    "documents": "select id, custom_id, container_tags, title, metadata, group_pairs, status, text,"
    " content, content_hash, source_id, archive_id, archive_path, unpacked, chunks from documents"
    " order by id",
    "chunks": "select * from chunks order by document_id, position",
    "memories": "select id, tag, content, version, parent_id, root_id, is_latest, forgotten_at,"
    " group_pairs from memories order by id",
    "memory_sources": "select * from memory_sources order by memory_id, document_id, hash",
    "memory_relations": "select * from memory_relations order by memory_id, target_id",
    "memory_reads": "select * from memory_reads order by document_id, hash",
    "term_counts": "select sum(entries) as entries from term_counts",
}


def all_of(app: App) -> dict[str, Any]:
    return {name: rows(url_of(app), query) for name, query in TABLES.items()}


def test_an_import_that_is_cut_off_anywhere_and_run_again_is_as_one_that_was_not(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, whole = new_place(), new_place()
    settled(app, new_org(app))
    new_org(whole, "elsewhere")
    bundle = bundle_of(app, tmp_path / "bundle")
    steps = list[Progress]()
    backup.bring(whole, tmp_path / "bundle", org="elsewhere", tell=steps.append)
    expected = all_of(whole)
    assert len(steps) == (bundle.documents or 0) + (bundle.memories or 0) + 1
    assert len(expected["memories"]) == bundle.memories == 5
    assert expected["memory_relations"]

    for n in range(len(steps)):
        cut, seen = new_place(), list[Progress]()
        new_org(cut, "elsewhere")

        def stop(progress: Progress, n: int = n, seen: list[Progress] = seen) -> None:
            seen.append(progress)
            if len(seen) > n:
                raise CutError

        with pytest.raises(CutError):
            backup.bring(cut, tmp_path / "bundle", org="elsewhere", tell=stop)
        done = backup.bring(cut, tmp_path / "bundle", org="elsewhere")

        assert all_of(cut) == expected, f"cut before step {n}"
        assert done.conflicts == 0


def test_a_newer_bundle_brings_newer_facts_and_corrections_and_drops_nothing(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant = settled(app, new_org(app))
    there = new_org(other, "elsewhere")
    bonn = tell_fact(app, tenant, "Ada lives in Bonn.")
    bundle_of(app, tmp_path / "first")
    backup.bring(other, tmp_path / "first", org="elsewhere")
    tell_fact(other, there, "Only here: the lamp is green.")
    with app.db.begin() as tx:
        change = documents.DocumentChange(content=documents.text_content("The owl sleeps by day."))
        documents.update(tx, tenant, "note-2", change)
    drain(app)
    drawn(app, tenant, "note-2", "The owl sleeps by day.")
    corrected(app, tenant, bonn, "Ada lives in Kiel.")
    tell_fact(app, tenant, "Ada sails.")
    before = standing(other, there)

    bundle_of(app, tmp_path / "second")
    done = backup.bring(other, tmp_path / "second", org="elsewhere")
    again = backup.bring(other, tmp_path / "second", org="elsewhere")

    assert standing(other, there) == before - {"Ada lives in Bonn."} | {
        "Ada lives in Kiel.",
        "Ada sails.",
        "The owl sleeps by day.",
    }
    assert (done.memories, done.memories_differing, done.memories_left_out) == (3, 0, 0)
    assert (done.differing, done.conflicts) == (1, 1)
    assert (again.added, again.memories, again.conflicts) == (0, 0, 1)
    # The owl's document is another here, so the fact is borne by one of its own and stays when
    # that is read again.
    with other.db.begin() as tx:
        documents.reprocess(tx, there, ids=["note-2"])
    drain(other)
    with other.db.begin() as tx:
        document = documents.get(tx, there, "note-2").id
        memories.store(tx, there.id, document, "notes", [], read=[])
    assert "The owl sleeps by day." in standing(other, there)


def test_what_was_corrected_here_too_stands_and_is_told(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant, there = new_org(app), new_org(other, "elsewhere")
    bonn, tea = (tell_fact(app, tenant, text) for text in ("Ada lives in Bonn.", "Ada likes tea."))
    further = tell_fact(app, tenant, "Ada has a boat.")
    bundle_of(app, tmp_path / "first")
    backup.bring(other, tmp_path / "first", org="elsewhere")
    corrected(app, tenant, bonn, "Ada lives in Kiel.")
    corrected(other, there, bonn, "Ada lives in Jena.")
    corrected(other, there, further, "Ada has two boats.")
    with other.db.begin() as tx:
        memories.forget(tx, there, "notes", records.MemoryTarget(id=tea), None)

    bundle_of(app, tmp_path / "second")
    done = backup.bring(other, tmp_path / "second", org="elsewhere")
    again = backup.bring(other, tmp_path / "second", org="elsewhere")

    assert standing(other, there) == {"Ada lives in Jena.", "Ada has two boats."}
    assert (done.memories, done.memories_differing) == (1, 2)
    assert (again.memories, again.memories_differing) == (0, 2)
    kept = rows(url_of(other), "select content, is_latest from memories where root_id is not null")
    assert {"content": "Ada lives in Kiel.", "is_latest": False} in kept
    # Taking back the correction of here leaves the one that came along.
    assert len(rows(url_of(other), "select 1 from memories where is_latest")) == 3


def test_a_text_that_is_known_here_stays_one_memory(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant, there = new_org(app), new_org(other, "elsewhere")
    bonn = tell_fact(app, tenant, "Ada lives in Bonn.")
    own = tell_fact(other, there, "Ada lives in Bonn.")
    bundle_of(app, tmp_path / "first")

    first = backup.bring(other, tmp_path / "first", org="elsewhere")
    again = backup.bring(other, tmp_path / "first", org="elsewhere")

    latest = "select id, content from memories where is_latest"
    assert rows(url_of(other), latest) == [{"id": own, "content": "Ada lives in Bonn."}]
    assert (first.conflicts, again.conflicts, again.memories) == (0, 0, 0)
    assert count(url_of(other), "memories") == 2

    corrected(app, tenant, bonn, "Ada lives in Kiel.")
    bundle_of(app, tmp_path / "second")
    second = backup.bring(other, tmp_path / "second", org="elsewhere")

    assert standing(other, there) == {"Ada lives in Kiel."}
    assert (second.memories, second.conflicts) == (1, 0)


def test_a_file_that_is_missing_here_of_an_archive_that_is_here_comes_back(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant = settled(app, new_org(app))
    add(app, tenant, "The last of the bundle: a kite.", custom_id="last")
    drain(app)
    there = new_org(other, "elsewhere")
    bundle = bundle_of(app, tmp_path / "bundle")
    backup.bring(other, tmp_path / "bundle", org="elsewhere")
    expected = all_of(other)
    [member] = rows(url_of(other), "select id from documents where archive_path = 'a.txt'")
    with other.db.begin() as tx:
        assert documents.delete(tx, there, [member["id"]]) == {}

    done = backup.bring(other, tmp_path / "bundle", org="elsewhere")

    assert (done.added, done.there) == (1, (bundle.documents or 0) - 1)
    assert all_of(other) == expected


def test_a_file_of_an_archive_that_is_another_here_stands_alone(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    settled(app, new_org(app))
    there = new_org(other, "elsewhere")
    bundle_of(app, tmp_path / "bundle")
    backup.bring(other, tmp_path / "bundle", org="elsewhere")
    data = packed({"c.txt": "The ferry is gone."})
    blob = StoredBlob(blobs.new_key(there.id, data), "a.zip", None)
    other.blobs.put(blob.key, data)
    [archive] = rows(url_of(other), "select id from documents where unpacked is not null")
    change = documents.DocumentChange(
        content=Content("text", hashlib.sha256(data).digest(), blob=blob)
    )
    with other.db.begin() as tx:
        documents.update(tx, there, archive["id"], change)
    drain(other)

    done = backup.bring(other, tmp_path / "bundle", org="elsewhere")
    again = backup.bring(other, tmp_path / "bundle", org="elsewhere")

    assert (done.added, done.differing) == (2, 1)
    assert (again.added, again.differing) == (0, 1)
    members = rows(url_of(other), "select archive_path from documents where archive_id is not null")
    assert members == [{"archive_path": "c.txt"}]
    assert {text for *_, text in hits(other, there, "ferry") if "ferry is" in text} == {
        "The ferry is late.",
        "The ferry is blue.",
        "The ferry is gone.",
    }


def two_gates(app: App, other: App, folder: Path) -> None:
    """A bundle with a document that is another there."""
    tenant, there = new_org(app), new_org(other, "elsewhere")
    add(app, tenant, "The gate is open.", custom_id="gate")
    add(other, there, "The gate is shut.", custom_id="gate")
    drain(app)
    drain(other)
    bundle_of(app, folder)


def test_the_command_tells_of_conflicts_and_ends_with_1(
    new_place: Callable[..., App],
    new_database: Callable[[], str],
    tmp_path: Path,
    terminal: Terminal,
) -> None:
    app, url = new_place(), new_database()
    with Database(url, size=4) as db:
        two_gates(app, replace(app, db=db, embedder=None), tmp_path / "bundle")
    given = {"RECOLLECT_DATABASE_URL": url, "RECOLLECT_DATA_DIR": str(tmp_path / "data")}

    done = terminal.run("import", str(tmp_path / "bundle"), "--org", "elsewhere", **given)
    back = terminal.run("export", str(tmp_path / "back"), "--org", "elsewhere", **given)

    assert done.code == 1, done.err
    assert back.code == 0, back.err
    with Database(url, size=1) as db, db.begin() as tx:
        told = audit.find(tx, org=orgs.find(tx, "elsewhere").id, actor="cli")
    # Who made the organisation depends on whether a command ran in this process before.
    made = [(one.action, dict(one.details)) for one in told if one.action != "org.created"]
    assert made == [
        ("export.made", {"documents": 1}),
        ("import.begun", {"documents": 1}),
    ]
    assert "0 added, 1 there already" in done.out
    assert "1 of those there already differ from the bundle, and stay" in done.err


# --- documents of connections --------------------------------------------------------------------


def test_the_text_of_a_connection_is_read_from_itself_after_a_move(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    with Website() as site:
        tenant, there = new_org(app), new_org(other, "elsewhere")
        site.page("/page", "<p>Please sign in to continue.</p>")
        texts = {
            "listed": "# Plan\n\nThe mast is of *oak*.",
            "fetched": "<!doctype html> begins each page of the handbook.",
        }
        with app.db.begin() as tx:
            tags.ensure(tx, tenant.id, ["notes"])
            tx.execute(
                "insert into connections"
                " (id, org_id, provider, container_tags, document_limit, state)"
                " values ('c1', %s, 'notion', '{notes}', 100, 'ready')",
                (tenant.id,),
            )
            for name, text in texts.items():
                asked = documents.SyncedDocument(
                    connection_id=ConnectionId("c1"),
                    source_id=name,
                    provider="notion",
                    version="1",
                    kind="notion_doc",
                    tags=["notes"],
                    title=name,
                    url=site.url("/page") if name == "listed" else None,
                    metadata={},
                    text=text,
                )
                documents.put(tx, tenant.id, asked, None)
        mine = add(app, tenant, "A note of my own.")
        drain(app)
        before = rows(url_of(app), "select id, title, text, kind from documents order by id")
        bundle_of(app, tmp_path / "bundle")
        backup.bring(other, tmp_path / "bundle", org="elsewhere")

        with other.db.begin() as tx:
            done = documents.reprocess(tx, there, ids=[row["id"] for row in before])
        drain(other)

        assert len(done) == 3
        after = rows(url_of(other), "select id, title, text, kind from documents order by id")
        assert after == before
        assert site.paths() == []
        marked = rows(url_of(other), "select id from documents where source_id is not null")
        assert len(marked) == 2
        assert {"id": mine} not in marked


def test_memories_that_follow_from_themselves_end_an_import_like_others(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    (tmp_path / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    (tmp_path / "documents.jsonl").write_text(
        '{"id": "d", "containerTags": ["notes"], "text": "Ada."}\n'
    )
    one = {"tag": "notes", "sources": [{"document": "d", "start": 0, "end": 3}]}
    lines = [
        {**one, "id": "a", "content": "Its own parent.", "parent": "a", "root": "a"},
        {**one, "id": "b", "content": "Of a circle.", "parent": "c", "root": "c"},
        {**one, "id": "c", "content": "Of the same.", "parent": "b", "root": "b"},
    ]
    (tmp_path / "memories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    done = backup.bring(app, tmp_path, org="acme")
    again = backup.bring(app, tmp_path, org="acme")

    assert (done.memories, again.memories) == (3, 0)
    assert "Its own parent." in standing(app, tenant)
    looped = rows(url_of(app), "select 1 from memories where parent_id = id or root_id = id")
    assert looped == []
