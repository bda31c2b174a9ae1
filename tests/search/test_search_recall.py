"""Under a filter that matches many, far from the query, the true nearest come back."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from recollect import documents
from recollect.db import Database
from recollect.documents.filters import parse
from recollect.index import vector_index
from recollect.model import Plan, Tenant
from recollect.orgs import orgs
from recollect.search import hybrid
from recollect.search.hybrid import Query

DIMENSIONS = 16
EACH = 11_000
"""more than are compared one by one"""
QUERY = np.ones(DIMENSIONS, dtype=np.float32)

Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def divided(new_database: Callable[[], str]) -> Generator[tuple[Database, Tenant, Vectors]]:
    """Documents of ops near the query, and as many of fin far from it, with their vectors."""
    rng = np.random.default_rng(5)
    near = (rng.normal(size=(EACH, DIMENSIONS)) * 0.1 + 1).astype(np.float32)
    far = (rng.normal(size=(EACH, DIMENSIONS)) * 0.5 - 0.5).astype(np.float32)
    url = new_database()
    with Database(url) as db:
        with db.begin() as tx:
            tenant = Tenant(orgs.create(tx, "divided", Plan.ENTERPRISE).id)
            vector_index.adopt(tx, "fake:divided", DIMENSIONS)
        _fill(db, tenant, {"ops": near, "fin": far})
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("vacuum analyze")
        yield db, tenant, far


def _fill(db: Database, tenant: Tenant, parts: dict[str, Vectors]) -> None:
    """One entry a document, by COPY: the service's own way would take minutes."""
    scope = documents.scope(tenant.id, [])
    with db.begin() as tx:
        tx.execute("set local session_replication_role = replica")
        for name, vectors in parts.items():
            tx.execute(
                "insert into documents (id, org_id, container_tags, scope, kind, source, metadata,"
                " content, content_hash, status, due_at, indexed_revision, text,"
                "  chunks)"
                " select %(name)s || n, %(org)s, '{all}', %(scope)s::int4[], 'text', 'api',"
                "  jsonb_build_object('dept', %(name)s::text), 'x', sha256('x'), 'done', null, 1,"
                "  'x', 1"
                " from generate_series(0, %(most)s) n",
                {"name": name, "org": tenant.id, "scope": scope, "most": EACH - 1},
            )
            with tx.cursor().copy(
                "copy entries (document_id, hash, text, terms, weights, embedding) from stdin"
            ) as copy:
                numbers = "{" + ",".join(map(str, scope)) + "}"
                for n, vector in enumerate(vectors):
                    row = "[" + ",".join(f"{x:.5f}" for x in vector) + "]"
                    copy.write_row((f"{name}{n}", b"h", "x", numbers, "{}/1000000000", row))
        tx.execute(
            "insert into chunks (document_id, position, start_at, end_at, hash)"
            " select document_id, 0, 0, 1, hash from entries"
        )
        tx.execute(
            "insert into term_counts (org_id, number, entries) select %s, unnest(%s::int4[]), %s",
            (tenant.id, scope, EACH * len(parts)),
        )


@pytest.mark.parametrize("seed", range(4))
def test_the_nearest_that_match_are_found_though_others_are_nearer(
    divided: tuple[Database, Tenant, Vectors], seed: int
) -> None:
    db, tenant, far = divided
    noise = np.random.default_rng(seed).normal(size=DIMENSIONS) * 0.3
    vector = (QUERY + noise).astype(np.float32)
    cosines = far @ vector / np.linalg.norm(far, axis=1)
    true = {f"fin{n}" for n in np.argsort(-cosines)[:10]}
    filter = parse({"AND": [{"key": "dept", "value": "fin"}]})

    with db.begin() as tx:
        hits = hybrid.search(tx, tenant, Query("", vector, filter=filter, limit=10))

    found: set[Any] = {hit.document.id for hit in hits}
    assert len(found & true) >= 9
