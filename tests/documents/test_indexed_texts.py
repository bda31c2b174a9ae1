"""Whatever text is indexed fits its index, at the longest that we accept.

A key of a B-tree holds 2,704 bytes, and what cannot be compressed is not. So each indexed column of
text is named here with the most bytes that reach it, and all of them are written for real.
"""

import secrets
import zipfile
from collections.abc import Iterator
from io import BytesIO

import psycopg
import pytest

from recollect import documents
from recollect.app import App
from recollect.blobs import new_key
from recollect.db import Database
from recollect.documents import NewDocument
from recollect.extract import _wire
from recollect.model import Content, DocumentId, Status, StoredBlob, Tenant, random_id
from recollect.orgs import orgs, tags
from recollect.sync import push_registrations, runs
from recollect.sync.authorizations import ACCOUNT_BYTES
from recollect.worker.processing import drain

LARGEST = 2_704
"""bytes of a key of a B-tree, with what goes before each column"""
ID = 22
"""of all that we name ourselves"""
WORD = 40
"""of a word of ours: the name of a provider, a state, a stage"""
TAG = 100
"""ASCII alone (`tags.check`)"""
HOST = 253
"""RFC 1035; a name in ASCII"""
KEY = 200
"""of a file in the blob store, which we name"""
CUSTOM_ID = 255 * 4
ITEM = runs.ID_BYTES

REACH = {
    "lineages.line": 64,
    "assistant_tokens.assistant_id": ID,
    "assistants.client_id": ID,
    "assistants.id": ID,
    "assistants.key_id": ID,
    "assistants.org_id": ID,
    "audit_log.org_id": ID,
    "authorizations.connection_id": ID,
    "authorizations.key_id": ID,
    "oauth_clients.id": ID,
    "sessions.key_id": ID,
    "authorizations.state": 64,
    "chunks.document_id": ID,
    "connections.account": ACCOUNT_BYTES,
    "connections.id": ID,
    "connections.org_id": ID,
    "connections.provider": WORD,
    "crawled_hosts.host": HOST,
    "deliveries.endpoint_id": ID,
    "deliveries.id": WORD,
    "document_counts.connection_id": ID,
    "document_counts.org_id": ID,
    "document_counts.tag": TAG,
    "documents.archive_id": ID,
    "documents.archive_path": _wire.PATH_BYTES,
    "documents.connection_id": ID,
    "documents.container_tags": TAG,
    "documents.custom_id": CUSTOM_ID,
    "documents.id": ID,
    "facets.id": ID,  # of a coordinator of Citus
    "documents.org_id": ID,
    "documents.scope": 2 * TAG,
    "documents.source_id": ITEM,
    "documents.status": WORD,
    "doomed_blobs.key": KEY,
    "dreams.document_id": ID,
    "dreams.org_id": ID,
    "endpoints.id": ID,
    "endpoints.org_id": ID,
    "entries.document_id": ID,
    "farewells.id": ID,
    "folders.connection_id": ID,
    "folders.id": ITEM,
    "hook_secrets.provider": WORD,
    "items.connection_id": ID,
    "items.document_id": ID,
    "items.id": ITEM,
    "items.verdict": WORD,
    "judgements.connection_id": ID,
    "judgements.item_id": ITEM,
    "key_usage.key_id": ID,
    "keys.id": ID,
    "keys.org_id": ID,
    "memories.id": ID,
    "memories.org_id": ID,
    "memories.parent_id": ID,
    "memories.root_id": ID,
    "memories.tag": TAG,
    "memories.content": 32,  # its md5
    "memory_reads.document_id": ID,
    "memory_relations.memory_id": ID,
    "memory_relations.target_id": ID,
    "memory_sources.document_id": ID,
    "memory_sources.memory_id": ID,
    "migrations.name": 100,
    "orgs.id": ID,
    "orgs.name": 100 * 4,
    "purges.id": ID,
    "pushes.key": 500 * 4,
    "pushes.provider": WORD,
    "receipt_documents.receipt_id": ID,
    "receipts.id": ID,
    "registrations.connection_id": ID,
    "registrations.id": ID,
    "settings.org_id": ID,
    "word_refresh.relation": 9,  # one of two words
    "stage_health.stage": WORD,
    "sync_changes.document_id": ID,
    "sync_changes.run_id": ID,
    "sync_runs.connection_id": ID,
    "sync_runs.id": ID,
    "tag_merges.id": ID,
    "tag_merges.org_id": ID,
    "tags.name": TAG,
    "tags.org_id": ID,
    "tallies.name": WORD * 2,
    "tallies.labels": 1_000,  # words of ours
    "term_counts.org_id": ID,
    "vector_gaps.first": ID,
    "vector_gaps.last": ID,
    "vector_gaps.relation": WORD,
    "receipts.org_id": ID,
    "watchers.id": ID,
    "test_questions.id": ID,
    "test_questions.made_from": ID,
    "test_questions.org_id": ID,
    "test_questions.tag": TAG,
    "test_results.question_id": ID,
    "test_results.run_id": ID,
    "test_runs.id": ID,
    "test_runs.org_id": ID,
    "test_runs.tag": TAG,
    "version_entries.document_id": ID,
    "versions.document_id": ID,
}


def indexed(db: Database) -> dict[str, set[str]]:
    """By the name of a B-tree: its columns of text, or of what text is made of."""
    with db.begin() as tx:
        rows = tx.execute(
            "select c.relname as index, t.relname || '.' || a.attname as name"
            " from pg_index i join pg_class c on c.oid = i.indexrelid"
            " join pg_class t on t.oid = i.indrelid join pg_am m on m.oid = c.relam"
            " join pg_depend d on d.objid = c.oid and d.refobjid = t.oid and d.refobjsubid > 0"
            " join pg_attribute a on a.attrelid = t.oid and a.attnum = d.refobjsubid"
            " where t.relnamespace = current_schema()::regnamespace and m.amname = 'btree'"
            " and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype)"
            " union select k.conname, t.relname || '.' || a.attname"
            " from pg_constraint k join pg_class t on t.oid = k.conrelid"
            " join pg_attribute a on a.attrelid = t.oid and a.attnum = any(k.conkey)"
            " where k.contype in ('p', 'u') and t.relnamespace = current_schema()::regnamespace"
            " and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype)"
        ).fetchall()
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["index"], set()).add(row["name"])
    return found


def test_every_indexed_text_has_a_longest_that_fits(db: Database):
    found = indexed(db)
    known = {name for names in found.values() for name in names}

    assert known <= set(REACH), "say how long it may be, and where that is enforced"
    for index, names in found.items():
        # Each may take eight bytes more, and other columns beside them some forty.
        assert sum(REACH[name] + 8 for name in names) + 56 <= LARGEST, index


def random_text(bytes: int) -> str:
    """Of four bytes a character, which neither compression nor normalisation makes shorter."""
    ideographs = range(0x20000, 0x2A6D7)  # CJK extension B: NFC leaves them as they are
    text = "".join(chr(secrets.choice(ideographs)) for _ in range(bytes // 4))
    return text + "x" * (bytes % 4)


@pytest.mark.parametrize("bytes", sorted({*REACH.values()}))
def test_the_server_takes_a_key_of_that_length_beside_an_id(database_url: str, bytes: int):
    with psycopg.connect(database_url) as session:
        session.execute("create temporary table probe (id text, value text, hash bytea)")
        session.execute("create unique index on probe (id, value, hash)")
        session.execute(
            "insert into probe values (%s, %s, %s)",
            (random_id(), random_text(bytes), secrets.token_bytes(32)),
        )


# --- from outside --------------------------------------------------------------------------------


def archived(app: App, tenant: Tenant, paths: Iterator[str]) -> DocumentId:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in paths:
            archive.writestr(path, f"what lies at {path[:20]}")
    data = packed.getvalue()
    key = new_key(tenant.id, data)
    app.blobs.put(key, data)
    content = Content("zip", b"hash", blob=StoredBlob(key, "files.zip", "application/zip"))
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["notes"])
        new = NewDocument(content, ["notes"])
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def test_an_archive_with_a_path_that_no_index_holds_is_done_without_that_file(
    app: App, tenant: Tenant
):
    """976 characters of four bytes: within the limit of characters, beyond that of an index."""
    long, longest = ["/".join(random_text(236) for _ in range(n)) for n in (16, 10)]
    longest += "/" + random_text(_wire.PATH_BYTES - len(longest.encode()) - 1)
    id = archived(app, tenant, iter([long, "notes.txt", longest]))

    drain(app)

    with app.db.begin() as tx:
        found = documents.get(tx, tenant, id)
        rows = tx.execute("select archive_path from documents where archive_id = %s", (id,))
        paths = [row["archive_path"] for row in rows]
    assert found.status is Status.DONE
    assert found.attempts == 1
    assert sorted(len(path.encode()) for path in paths) == [9, 2_400]


def test_a_custom_id_and_a_name_of_the_longest_kind_are_kept(app: App, tenant: Tenant):
    name = random_text(CUSTOM_ID)
    tag = "t" * TAG
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, [tag])
        new = NewDocument(documents.text_content("hello"), [tag], custom_id=name)
        documents.add(tx, tenant, new, DocumentId(random_id()))
        org = orgs.create(
            tx, "".join(secrets.choice("äöüßéèêñ") for _ in range(100)), orgs.Plan.FREE
        )
        tx.execute("delete from orgs where id = %s", (org.id,))
        assert push_registrations.first_push(tx, "github", random_text(2_000))
        assert push_registrations.first_push(tx, "github", random_text(9_000))
