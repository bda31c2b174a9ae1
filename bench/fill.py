"""Documents put straight into the index by the product's own statements, without HTTP or worker."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b

import numpy as np
import psycopg
from numpy.typing import NDArray

from bench.ground import KEY
from recollect import documents
from recollect.app import index_identity
from recollect.db import Database, Tx
from recollect.documents import NewDocument
from recollect.index import terms, vector_index
from recollect.inference.embed import Embedder
from recollect.model import Chunk, DocumentId, Entry, Extracted, Metadata, OrgId, Plan, Tenant
from recollect.orgs import orgs


@dataclass(frozen=True, slots=True)
class Filling:
    """A document that is ready to be indexed: texts of its chunks, and their vectors."""

    texts: Sequence[str]
    vectors: NDArray[np.float32]
    tags: Sequence[str]
    metadata: Metadata = field(default_factory=dict[str, "str | float | bool"])


def open_database(url: str) -> Database:
    """For building a large index, which takes longer than a request may."""
    return Database(
        url, size=4, statement_timeout=timedelta(hours=1), idle_timeout=timedelta(hours=1)
    )


def default_tenant(db: Database) -> Tenant:
    """The organisation that the key of the benchmark opens."""
    with db.begin() as tx:
        return Tenant(orgs.authenticate(tx, KEY).org.id)


def new_tenant(db: Database, name: str) -> Tenant:
    with db.begin() as tx:
        return Tenant(orgs.create(tx, name, Plan.ENTERPRISE).id)


@contextmanager
def vector_index_afterwards(db: Database, embedder: Embedder, chunks: int) -> Generator[None]:
    """Without the vector index inside; built at the end, in a fraction of the time.

    `chunks`: how many there will be; the whole graph has to fit into the memory of the build.
    """
    with db.begin() as tx:
        vector_index.rebind(tx, *index_identity(embedder))
        tx.execute("drop index entries_embedding")
    yield
    with db.begin() as tx:
        megabytes = max(512, chunks // 400)
        tx.execute("select set_config('maintenance_work_mem', %s, true)", (f"{megabytes}MB",))
        vector_index.rebind(tx, *index_identity(embedder))
    with psycopg.connect(db.url, autocommit=True) as session:
        session.execute("vacuum analyze")


def fill(db: Database, tenant: Tenant, fillings: Sequence[Filling]) -> list[DocumentId]:
    """Index the documents; returns their ids in the same order."""

    def put(filling: Filling) -> DocumentId:
        with db.begin() as tx:
            return _put(tx, tenant, filling)

    # Two, so that one prepares what it sends while PostgreSQL works for the other.
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(put, fillings))


def _put(tx: Tx, tenant: Tenant, filling: Filling) -> DocumentId:
    text = "\n\n".join(filling.texts)
    new = NewDocument(
        documents.text_content(text), tags=filling.tags, metadata=filling.metadata or None
    )
    added = documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
    (claim,) = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=1)
    assert claim.document.id == added.id, "nothing else may be queued"
    chunks = list(_chunks(filling.texts))
    entries = list(_entries(tenant.id, chunks, filling.vectors))
    documents.finish(tx, claim, Extracted(text), chunks, entries, {}, reused=0)
    return added.id


def _chunks(texts: Sequence[str]) -> Iterator[Chunk]:
    at = 0
    for position, text in enumerate(texts):
        digest = blake2b(text.encode(errors="replace"), digest_size=16).digest()
        yield Chunk(position, at, at + len(text), text, digest)
        at += len(text) + 2


def _entries(org: OrgId, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> Iterator[Entry]:
    for chunk, vector in {c.hash: (c, v) for c, v in zip(chunks, vectors, strict=True)}.values():
        yield Entry(chunk.hash, chunk.text, terms.weigh(org, chunk.text), vector)
