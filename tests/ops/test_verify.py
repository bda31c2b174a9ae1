"""Each kind of damage is done by SQL, found, named, and mended; an intact service has none."""

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recollect import blobs, documents
from recollect.app import App, index_identity
from recollect.blobs import open_blobs
from recollect.db import Database
from recollect.documents import DocumentChange, NewDocument, text_content
from recollect.errors import NotFoundError
from recollect.index import terms
from recollect.index.vector_index import adopt
from recollect.memories import memories, reading, telling
from recollect.memories.records import Correction, Fact, MemoryTarget
from recollect.model import Content, DocumentId, Plan, Status, StoredBlob, Tenant, random_id
from recollect.ops import _words, rewording, verify
from recollect.orgs import orgs, settings, tags
from recollect.worker.maintenance import Maintainer
from recollect.worker.processing import drain
from tests.fakes.site import prose


@dataclass(frozen=True, slots=True)
class Ground:
    """A process on a database and a blob folder of its own, with documents in one organisation."""

    app: App
    tenant: Tenant
    folder: Path

    def add(self, text: str) -> DocumentId:
        with self.app.db.begin() as tx:
            tags.ensure(tx, self.tenant.id, ["a", "b"])
            new = NewDocument(text_content(text), tags=["a", "b"])
            return documents.add(tx, self.tenant, new, DocumentId(random_id())).id

    def upload(self, data: bytes, custom_id: str | None = None) -> tuple[DocumentId, Path]:
        key = blobs.new_key(self.tenant.id, data)
        self.app.blobs.put(key, data)
        content = Content(
            kind="text",
            hash=hashlib.sha256(data).digest(),
            blob=StoredBlob(key, "a.txt", "text/plain"),
        )
        with self.app.db.begin() as tx:
            tags.ensure(tx, self.tenant.id, ["a"])
            new = NewDocument(content, tags=["a"], custom_id=custom_id)
            id = documents.add(tx, self.tenant, new, DocumentId(random_id())).id
        return id, self.folder / key

    def sql(self, statement: str, *parameters: object, watched: bool = False) -> int:
        with self.app.db.begin() as tx:
            if not watched:
                # As if there were no triggers, no references, no order in which things happen.
                tx.execute("set local session_replication_role = replica")
            return tx.execute(statement, parameters).rowcount  # pyright: ignore[reportArgumentType]

    def verify(self, *, mend: bool = False) -> dict[str, verify.Finding]:
        done = verify.verify(self.app.db, self.app.blobs, mend=mend)
        return {one.kind: one for one in done.findings}


@pytest.fixture(scope="module")
def process(app: App, new_database: Callable[[], str]) -> Generator[App]:
    with Database(new_database(), size=8) as database:
        with database.begin() as tx:
            adopt(tx, *index_identity(app.embedder))
        yield replace(app, db=database)


@pytest.fixture
def ground(process: App, tmp_path: Path) -> Generator[Ground]:
    """What a test wrote goes with it: each look is at all there is."""
    mine = replace(process, blobs=open_blobs(tmp_path.as_uri()))
    with process.db.begin() as tx:
        org = orgs.create(tx, "verified", Plan.ENTERPRISE)
    yield Ground(mine, Tenant(org.id), tmp_path)
    with process.db.begin() as tx:
        for table in ("orgs", "doomed_blobs"):
            tx.execute(f"delete from {table}")


@pytest.fixture
def id(ground: Ground) -> DocumentId:
    """A document of several chunks, among others."""
    found = ground.add("\n\n".join(prose(f"{random_id()} {n}") for n in range(9)))
    ground.add(prose(random_id()))
    drain(ground.app)
    assert ground.verify() == {}
    return found


DAMAGES = {
    "revision_behind": "update documents set revision = revision + 1 where id = %s",
    "chunks_missing": "delete from chunks where document_id = %s and position = 1",
    "chunk_without_entry": "delete from entries e where document_id = %s and hash ="
    " (select min(hash) from entries m where m.document_id = e.document_id)",
    "offsets_wrong": "update documents set text = ' ' || text where id = %s",
    "hash_wrong": "update entries set text = text || '!' where document_id = %s",
    "scope_wrong": "update documents set scope = scope || 5 where id = %s",
    # A server of Citus 14 crashes where a slice is all that is set.
    "words_wrong": "update entries set terms = '{}' || terms[:cardinality(terms) - 1]"
    " where document_id = %s",
    "vector_missing": "update entries set embedding = null where document_id = %s",
    "entry_orphaned": "insert into entries (document_id, hash, text, terms, weights, embedding)"
    " select document_id, '\\x00', text, terms, weights, embedding from entries"
    " where document_id = %s limit 1",
    "count_wrong": "update term_counts set entries = entries + 3 where number ="
    " (select terms[5] from entries where document_id = %s limit 1)",
    "stranded": "update documents set status = 'queued', due_at = 'infinity' where id = %s",
}


def test_weights_that_are_not_those_of_the_text_are_made_again(
    ground: Ground, id: DocumentId
) -> None:
    changed = ground.sql(
        "update entries e set weights = o.weights, terms = e.terms[:2] || o.terms[3:]"
        " from (select * from entries where document_id = %s order by hash limit 1) o"
        " where e.document_id = o.document_id and e.hash <> o.hash",
        id,
    )
    with ground.app.db.begin() as tx:
        before = tx.execute("select hash, embedding from entries order by 1").fetchall()

    found = ground.verify(mend=True)

    assert found["words_wrong"].mended == changed
    assert list(found["words_wrong"].examples) == [id]
    assert ground.verify() == {}
    with ground.app.db.begin() as tx:
        assert tx.execute("select hash, embedding from entries order by 1").fetchall() == before


def test_of_many_entries_some_are_compared_and_all_are_mended(
    ground: Ground, id: DocumentId, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = ground.sql("update entries set terms = '{}' || terms[:4] where document_id = %s", id)
    monkeypatch.setattr(_words, "WORDS_COMPARED", 2)
    with ground.app.db.begin() as tx:
        row = tx.execute("select sum(chunks) as n from documents").fetchone()
    assert row is not None
    assert row["n"] > 4
    found: dict[str, verify.Finding] = {}
    while "words_wrong" not in found:
        found = ground.verify(mend=True)
    monkeypatch.undo()

    assert found["words_wrong"].mended == changed
    assert ground.verify() == {}


def test_after_an_upgrade_the_workers_give_texts_the_words_of_this_version(
    ground: Ground, id: DocumentId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody had `verify --mend` run, searches did not find them by new words."""
    _, [memory] = telling.add(ground.app, ground.tenant, "a", [Fact("Ann drinks tea.", {})])
    drain(ground.app)
    with ground.app.db.begin() as tx:
        rows = tx.execute("select hash from entries where document_id = %s", (id,)).fetchall()
        bare = {row["hash"]: dict[int, float]() for row in rows}
        scope = documents.sought(ground.tenant.id, ["a", "b"])
        documents.reweigh_entries(tx, ground.tenant.id, id, scope, bare)
        memories.reweigh(tx, {memory.id: {}})
        tx.execute("delete from word_refresh")
    ground.sql("update documents set title = 'Zebra' where id = %s", id)
    assert ground.verify()["words_wrong"].count == len(rows) + 1
    monkeypatch.setattr(rewording, "AT_ONCE", 2)
    worker = Maintainer(ground.app)

    with ground.app.db.begin() as tx:
        tx.execute("select pg_advisory_xact_lock(%s)", (rewording._LOCK,))
        assert not rewording.refresh_words(ground.app.db), "another process is at it"
    assert rewording.refresh_words(ground.app.db)
    worker.refresh_words()

    assert ground.verify() == {}
    with ground.app.db.begin() as tx:
        done = tx.execute("select version, after from word_refresh").fetchall()
    assert done == [{"version": terms.VERSION, "after": ""}] * 2


def edit_meanwhile(
    ground: Ground, patch: pytest.MonkeyPatch, module: ModuleType, id: DocumentId, text: str
) -> None:
    """Once `module` has looked at some documents, `id` gets another text."""
    read = module.stored_words

    def meanwhile(*given: Any) -> Any:
        found = read(*given)
        patch.setattr(module, "stored_words", read)
        with ground.app.db.begin() as tx:
            documents.update(tx, ground.tenant, id, DocumentChange(content=text_content(text)))
        drain(ground.app)
        return found

    patch.setattr(module, "stored_words", meanwhile)


@pytest.mark.parametrize("module", [rewording, verify])
def test_words_of_a_text_that_changed_meanwhile_are_looked_at_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    """What was the first passage got the words of the title."""
    first, before = prose(random_id()), [prose(random_id()) for _ in range(2)]
    id = ground.add(first)
    drain(ground.app)
    ground.sql("delete from word_refresh")
    ground.sql("update documents set title = 'Zebra' where id = %s", id)
    edit_meanwhile(ground, monkeypatch, module, id, "\n\n".join([*before, first]))

    if module is rewording:
        Maintainer(ground.app).refresh_words()
    else:
        assert ground.verify(mend=True)["words_wrong"].mended == 0

    assert ground.verify() == {}


def test_what_the_text_needs_by_now_is_not_dropped(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = prose(random_id()), prose(random_id())
    id, other = ground.add(first), ground.add(second)
    drain(ground.app)
    ground.sql(
        "insert into entries (document_id, hash, text, terms, weights, embedding)"
        " select %s, hash, text, terms, weights, embedding from entries where document_id = %s",
        id, other,
    )  # fmt: skip
    edit_meanwhile(ground, monkeypatch, verify, id, f"{first}\n\n{second}")

    assert ground.verify(mend=True)["entry_orphaned"].mended == 0

    # That entry had never been counted, and has the words of a first passage.
    assert ground.verify(mend=True).keys() <= {"count_wrong", "words_wrong"}
    assert ground.verify() == {}


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("words_wrong", "terms = '{}'"),
        ("memory_vector_wrong", "embedding = null"),
        ("memory_vector_wrong", "embedding = '[1,2,3]'"),
        ("memory_vector_wrong", "embedding_b = embedding"),
    ],
)
def test_a_memory_is_found_by_its_words_and_its_vector(
    ground: Ground, id: DocumentId, kind: str, damage: str
) -> None:
    text = f"Ann {random_id()} drinks tea."
    _, [memory] = telling.add(ground.app, ground.tenant, "a", [Fact(text, {})])
    drain(ground.app)
    assert ground.verify() == {}
    assert ground.sql(f"update memories set {damage} where id = %s", memory.id)

    found = ground.verify(mend=True)

    assert (list(found[kind].examples), found[kind].mended) == ([memory.id], 1)
    assert ground.verify() == {}
    assert ground.app.embedder is not None
    with ground.app.db.begin() as tx:
        noted = tx.execute("delete from vector_gaps").rowcount
        waiting = memories.without_vector(tx)
        vectors = ground.app.embedder.embed([*waiting.values()])
        memories.embed(tx, dict(zip(waiting, vectors, strict=True)))
    assert noted == (kind != "words_wrong")
    assert ground.verify() == {}


@pytest.mark.parametrize("versions", ["none", "one", "both"])
def test_a_memory_that_lost_its_sources_rests_on_a_document_again(
    ground: Ground, id: DocumentId, versions: str
) -> None:
    text = f"Ann {random_id()} drinks tea."
    told, [first] = telling.add(ground.app, ground.tenant, "a", [Fact(text, {})])
    change = Correction(f"{text} Green tea.")
    last = telling.correct(ground.app, ground.tenant, "a", MemoryTarget(first.id), change)
    lost = {"none": [], "one": [last.id], "both": [first.id, last.id]}[versions]
    ground.sql("delete from memory_sources where memory_id = any(%s)", lost)

    found = ground.verify(mend=True)

    if lost:
        assert found["memory_without_source"].mended == len(lost)
    assert ground.verify() == {}
    with ground.app.db.begin() as tx:
        now = reading.get(tx, ground.tenant, last.id)
        assert (now.sources == [told]) is (versions != "both")
        documents.delete(tx, ground.tenant, now.sources)
    with ground.app.db.begin() as tx, pytest.raises(NotFoundError):
        reading.get(tx, ground.tenant, last.id)


def test_what_was_forgotten_and_rests_on_nothing_is_removed(ground: Ground, id: DocumentId) -> None:
    text = f"Ann {random_id()} drinks tea."
    _, [memory] = telling.add(ground.app, ground.tenant, "a", [Fact(text, {})])
    ground.sql("update memories set forgotten_at = now() where id = %s", memory.id)
    ground.sql("delete from memory_sources where memory_id = %s", memory.id)

    found = ground.verify(mend=True)

    assert found["memory_without_source"].mended == 1
    assert ground.sql("delete from memories where id = %s", memory.id) == 0


@pytest.mark.parametrize(
    ("damage", "compared"),
    [
        ("delete from version_entries where document_id = %s", 0),
        ("update version_entries set text = text || '!' where document_id = %s", 0),
        ("update version_entries set terms = terms[:2] where document_id = %s", 10_000),
        # No words are compared, but one text is wrong: then the words of all are compared.
        (
            "update version_entries k set terms = terms[:2], text = text || case when hash ="
            " (select max(hash) from version_entries m where m.document_id = k.document_id)"
            " then '!' else '' end where document_id = %s",
            0,
        ),
    ],
    ids=["deleted", "text", "words", "words of many"],
)
def test_passages_of_older_texts_are_made_again(
    ground: Ground, damage: str, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ground.app.db.begin() as tx:
        settings.patch(tx, ground.tenant.id, {"keepVersions": 5}, keys=[])
    paragraphs = [prose(f"{random_id()} {n}") for n in range(9)]
    id = ground.add("\n\n".join(paragraphs))
    drain(ground.app)
    with ground.app.db.begin() as tx:
        change = DocumentChange(content=text_content("\n\n".join(paragraphs[4:])))
        documents.update(tx, ground.tenant, id, change)
    drain(ground.app)
    kept = "select hash, text, terms from version_entries where document_id = %s order by 1"
    with ground.app.db.begin() as tx:
        before = tx.execute(kept, (id,)).fetchall()
    assert ground.verify() == {}
    changed = ground.sql(damage, id)
    assert changed == len(before) > 1
    monkeypatch.setattr(_words, "WORDS_COMPARED", compared)

    found = ground.verify(mend=True)

    assert found["older_text_wrong"].count == found["older_text_wrong"].mended == changed
    monkeypatch.undo()
    assert ground.verify() == {}
    with ground.app.db.begin() as tx:
        after = tx.execute(kept, (id,)).fetchall()
    assert [(one["hash"], one["text"]) for one in after] == [
        (one["hash"], one["text"]) for one in before
    ]
    assert [set(one["terms"]) for one in after] == [set(one["terms"]) for one in before]


def test_lost_places_of_older_texts_are_found_and_made_again(ground: Ground) -> None:
    with ground.app.db.begin() as tx:
        settings.patch(tx, ground.tenant.id, {"keepVersions": 5}, keys=[])
    paragraphs = [prose(f"{random_id()} {n}") for n in range(9)]
    id = ground.add("\n\n".join(paragraphs))
    drain(ground.app)
    with ground.app.db.begin() as tx:
        change = DocumentChange(content=text_content("\n\n".join(paragraphs[4:])))
        documents.update(tx, ground.tenant, id, change)
    drain(ground.app)
    lost = " from version_chunks c using versions v where v.id = c.version_id and document_id = %s"
    kept = "select c.* from version_chunks c join versions v on v.id = c.version_id" + (
        " where document_id = %s order by position"
    )
    with ground.app.db.begin() as tx:
        before = tx.execute(kept, (id,)).fetchall()
    assert len(before) > 2

    for which in ("and position in (0, 2)", "and position > 1", ""):
        gone = ground.sql(f"delete{lost} {which}", id)
        assert ground.verify()["older_text_wrong"].examples == [id]
        found = ground.verify(mend=True)
        assert found["older_text_wrong"].mended == found["older_text_wrong"].count == gone > 1
        assert ground.verify() == {}
        with ground.app.db.begin() as tx:
            assert tx.execute(kept, (id,)).fetchall() == before

    # What is left tells that it was cut otherwise.
    ground.sql(f"delete{lost} and position = 0", id)
    ground.sql(
        "update version_chunks set start_at = start_at + 1 where position = 1 and version_id ="
        " (select id from versions where document_id = %s)",
        id,
    )
    found = ground.verify(mend=True)
    assert (found["older_text_wrong"].count, found["older_text_wrong"].mended) == (1, 0)
    with ground.app.db.begin() as tx:
        documents.delete(tx, ground.tenant, [id])
    assert ground.verify() == {}


def test_a_passage_is_made_again_from_whichever_older_text_still_has_it(ground: Ground) -> None:
    with ground.app.db.begin() as tx:
        settings.patch(tx, ground.tenant.id, {"keepVersions": 5}, keys=[])
    kept = [prose(f"{random_id()} {n}") for n in range(3)]
    id = ground.add("\n\n".join(kept))
    drain(ground.app)
    for more in ("More.", "Other."):
        with ground.app.db.begin() as tx:
            change = DocumentChange(content=text_content("\n\n".join([*kept, more])))
            documents.update(tx, ground.tenant, id, change)
        drain(ground.app)
    with ground.app.db.begin() as tx:
        documents.update(tx, ground.tenant, id, DocumentChange(content=text_content("Gone.")))
    drain(ground.app)

    for nth in range(3):
        # The text of one of the three is damaged.
        ground.sql(
            "update versions set text = translate(text, 'e', 'o') where id = (select id from"
            " versions where document_id = %s order by known_until offset %s limit 1)",
            id,
            nth,
        )
        lost = ground.sql(
            "delete from version_entries k where k.document_id = %s and 3 = (select count(*)"
            " from versions v join version_chunks c on c.version_id = v.id"
            " where v.document_id = k.document_id and c.hash = k.hash)",
            id,
        )
        found = ground.verify(mend=True)
        if nth < 2:
            assert lost > 0
            assert found["older_text_wrong"].mended == lost
    with ground.app.db.begin() as tx:
        documents.delete(tx, ground.tenant, [id])
    assert ground.verify() == {}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_and_mended(ground: Ground, id: DocumentId, kind: str) -> None:
    assert ground.sql(DAMAGES[kind], id)
    found = ground.verify()

    assert kind in found
    assert found[kind].count >= 1
    assert found[kind].mended == 0
    if kind != "count_wrong":
        assert list(found[kind].examples) == [id]

    mended = ground.verify(mend=True)
    drain(ground.app)

    assert mended[kind].mended == mended[kind].count
    assert ground.verify() == {}
    with ground.app.db.begin() as tx:
        assert len(documents.chunks(tx, ground.tenant, id)) > 2


def test_entries_of_other_tags_than_the_document_carries_are_made_again(
    ground: Ground, id: DocumentId
) -> None:
    """The mend put the document right and kept its entries, which searches in the tag pass over."""
    ground.sql("update documents set container_tags = '{b}' where id = %s", id)
    found = ground.verify(mend=True)
    drain(ground.app)

    assert found["scope_wrong"].mended == found["scope_wrong"].count > 1
    assert ground.verify() == {}


@pytest.mark.parametrize(
    "damage",
    [
        "insert into chunks (document_id, position, start_at, end_at, hash)"
        " values ('nowhere', 0, 0, 1, '\\x01')",
        "insert into entries (document_id, hash, text, terms, weights)"
        " select 'nowhere', '\\x01', text, terms, weights from entries limit 1",
        "insert into term_counts (org_id, number, entries) values ('nowhere', 1, 1)",
        "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
        " content_hash) values ('lost', 'nowhere', '{a}', '{1}', 'text', 'api', 'x', '\\x01')",
    ],
    ids=["chunk", "entry", "count", "document"],
)
def test_rows_that_belong_to_nothing_are_found_and_removed(
    ground: Ground, id: DocumentId, damage: str
) -> None:
    assert ground.sql(damage)
    found = ground.verify(mend=True)

    assert "reference_broken" in found
    assert "nowhere" in found["reference_broken"].examples[0]
    assert ground.verify() == {}


def test_a_missing_tag_is_made_again(ground: Ground, id: DocumentId) -> None:
    assert ground.sql("delete from tags where name = 'a' and org_id = %s", ground.tenant.id)
    [found] = ground.verify(mend=True).values()

    assert (found.kind, list(found.examples), found.mended) == ("tag_missing", ["a"], 1)
    assert ground.verify() == {}


def test_a_tag_that_several_organisations_lack_is_made_in_each(
    ground: Ground, id: DocumentId
) -> None:
    with ground.app.db.begin() as tx:
        second = Tenant(orgs.create(tx, "second", Plan.ENTERPRISE).id)
    other = replace(ground, tenant=second)
    other.add(prose(random_id()))
    drain(ground.app)
    assert ground.sql("delete from tags where name = 'a'") == 2

    [found] = ground.verify(mend=True).values()
    assert (found.count, found.mended) == (2, 2)
    assert ground.verify() == {}


def test_a_document_that_its_connection_does_not_know_is_remembered(
    ground: Ground, id: DocumentId
) -> None:
    ground.sql(
        "insert into connections (id, org_id, provider, container_tags, document_limit, state)"
        " values ('c', %s, 's3', '{a}', 10, 'ready')",
        ground.tenant.id,
    )
    change = "update documents set connection_id = %s, source_id = 's' where id = %s"
    ground.sql(change, "c", id, watched=True)
    try:
        [found] = ground.verify(mend=True).values()
        assert (found.kind, list(found.examples)) == ("item_missing", [id])
        assert ground.verify() == {}
    finally:
        ground.sql(change, None, id, watched=True)
        ground.sql("delete from items")
        ground.sql("delete from connections")


def test_files_are_compared_with_their_digests(ground: Ground) -> None:
    missing, gone = ground.upload(b"first words of the one")
    damaged, altered = ground.upload(b"first words of the other")
    drain(ground.app)
    assert ground.verify() == {}
    kept = gone.read_bytes(), altered.read_bytes()
    gone.unlink()
    altered.write_bytes(b"other words")
    found = ground.verify(mend=True)

    assert set(found) == {"file_missing", "file_damaged"}
    assert list(found["file_missing"].examples) == [missing]
    assert list(found["file_damaged"].examples) == [damaged]
    assert all(one.mended == 0 for one in found.values())
    gone.write_bytes(kept[0])
    altered.write_bytes(kept[1])
    assert ground.verify() == {}


def test_sending_a_file_again_brings_back_what_the_disk_lost(ground: Ground) -> None:
    """The remedy that is told: the same bytes counted as no change, and were thrown away."""
    names = ("lost", "altered", "retried", "altered and retried")
    texts = {name: f"words of the {name} file".encode() for name in names}
    sent = {name: ground.upload(text, name) for name, text in texts.items()}
    drain(ground.app)
    sent["lost"][1].unlink()
    sent["altered"][1].write_bytes(b"other words")
    sent["retried"][1].unlink()
    sent["altered and retried"][1].write_bytes(b"other words")
    retried = [sent["retried"][0], sent["altered and retried"][0]]
    with ground.app.db.begin() as tx:
        documents.reprocess(tx, ground.tenant, ids=retried)
    drain(ground.app)
    with ground.app.db.begin() as tx:
        for id in retried:
            failed = documents.get(tx, ground.tenant, id)
            assert failed.failure is not None
            assert failed.failure.code == "missing_blob"

    for name, text in texts.items():
        ground.upload(text, name)
    drain(ground.app)

    with ground.app.db.begin() as tx:
        for id, _ in sent.values():
            document = documents.get(tx, ground.tenant, id)
            assert (document.status, document.revision) == (Status.DONE, 1)
    assert ground.verify(mend=True).keys() <= {"file_undeleted"}
    assert ground.verify() == {}


def test_files_that_nobody_names_are_removed(ground: Ground) -> None:
    orphan = blobs.new_key(ground.tenant.id, b"nobody's")
    doomed = blobs.new_key(ground.tenant.id, b"late")
    young = blobs.new_key(ground.tenant.id, b"an upload of this moment")
    for key in (orphan, doomed, young):
        ground.app.blobs.put(key, b"bytes")
    for key in (orphan, doomed):
        os.utime(ground.folder / key, (1, 1))
    ground.sql(
        "insert into doomed_blobs (key, doomed_at) values (%s, now() - interval '2 h')", doomed
    )
    found = ground.verify(mend=True)

    assert list(found["file_orphaned"].examples) == [orphan]
    assert list(found["file_undeleted"].examples) == [doomed]
    assert not (ground.folder / orphan).exists()
    assert not (ground.folder / doomed).exists()
    assert (ground.folder / young).exists()
    assert ground.verify() == {}
    ground.app.blobs.delete(young)


def test_a_file_that_the_store_keeps_is_told_and_stops_no_mending(ground: Ground) -> None:
    kept, late, orphan = (blobs.new_key(ground.tenant.id, name) for name in (b"k", b"l", b"o"))
    (ground.folder / kept).mkdir(parents=True)
    for key in (late, orphan):
        ground.app.blobs.put(key, b"bytes")
    os.utime(ground.folder / orphan, (1, 1))
    for key in (kept, late):
        ground.sql(
            "insert into doomed_blobs (key, doomed_at) values (%s, now() - interval '2 h')", key
        )

    ground.verify(mend=True)

    assert list(ground.verify()["file_undeleted"].examples) == [kept]
    assert not (ground.folder / late).exists()
    assert not (ground.folder / orphan).exists()
    (ground.folder / kept).rmdir()
    ground.verify(mend=True)
    assert ground.verify() == {}


def test_there_is_no_false_alarm_while_the_service_writes(ground: Ground) -> None:
    stop = threading.Event()

    def work() -> None:
        kept: deque[DocumentId] = deque()
        while not stop.is_set():
            first, second = ground.add(prose(random_id(), 400)), ground.add(prose(random_id(), 200))
            kept.append(first)
            gone = [second] if len(kept) < 5 else [second, kept.popleft()]
            drain(ground.app)
            change = DocumentChange(content=text_content(prose(random_id(), 300)), tags=["b", "a"])
            with ground.app.db.begin() as tx:
                documents.update(tx, ground.tenant, first, change)
            with ground.app.db.begin() as tx:
                documents.delete(tx, ground.tenant, gone)

    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(work) for _ in range(2)]
        try:
            found = [ground.verify() for _ in range(24)]
        finally:
            stop.set()
        for one in busy:
            one.result()
    drain(ground.app)

    assert found == [{}] * 24
    assert ground.verify() == {}


@pytest.mark.usefixtures("id")
def test_counts_are_mended_while_others_change_them(ground: Ground) -> None:
    damage = "update term_counts set entries = entries + 7 where org_id = %s"
    assert ground.sql(damage, ground.tenant.id)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            ground.add(prose(random_id(), 100))
            drain(ground.app)

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(work)
        try:
            assert ground.verify(mend=True)["count_wrong"].mended
        finally:
            stop.set()
        busy.result()

    assert ground.verify() == {}


def test_looking_takes_few_documents_at_a_time(
    ground: Ground, id: DocumentId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "CHUNKS_AT_ONCE", 1)
    for _ in range(3):
        ground.add(prose(random_id(), 300))
    drain(ground.app)
    ground.sql("update documents set text = ' ' || text where id = %s", id)
    found = ground.verify()
    ground.verify(mend=True)
    drain(ground.app)

    assert list(found["offsets_wrong"].examples) == [id]
    assert ground.verify() == {}
