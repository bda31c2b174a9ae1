"""Reading `team:*` costs what reading one tag costs: each document carries a number for it."""

from collections.abc import Generator
from typing import Any

import httpx
import pytest
from psycopg import sql

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.documents import DocumentQuery
from recollect.index import terms
from recollect.model import Org, Tenant
from recollect.worker.processing import drain
from tests.contract.calls import add, found, listed

OTHERS = 20_000
ALONE = "set local session_replication_role = replica"
"""Without what follows each row: nothing hangs on those thousands."""


@pytest.fixture
def crowd(client: httpx.Client, app: App, db: Database, org: Org) -> Generator[list[str]]:
    """Two documents below `team:`, among thousands of the same organisation that are not."""
    ids = [add(client, "heron", containerTag=tag) for tag in ("team:a", "team:b:c")]
    add(client, "heron", containerTag="x")
    drain(app)
    with db.begin() as tx:
        tx.execute(ALONE)
        tx.execute(
            "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
            " content_hash, status, due_at)"
            " select 'x' || n || %(org)s, %(org)s, array['x' || n %% 50],"
            "  array[%(number)s, n]::int4[], 'text', 'api', 'x', 'x', 'done', null"
            " from generate_series(1, %(others)s) n",
            {"org": org.id, "number": terms.org_number(org.id), "others": OTHERS},
        )
        tx.execute("analyze documents")
    yield ids
    with db.begin() as tx:
        tx.execute(ALONE)
        tx.execute("delete from documents where org_id = %s and content_hash = 'x'", (org.id,))


def plan(db: Database, tenant: Tenant, *tags: str) -> dict[str, Any]:
    condition, parameters = documents.condition(tenant, DocumentQuery(tags=tags))
    with db.begin() as tx:
        row = tx.execute(
            sql.SQL("explain (analyze, format json) select d.id from documents d where {}").format(
                condition
            ),
            parameters,
        ).fetchone()
    assert row is not None
    return row["QUERY PLAN"][0]["Plan"]


def scans(node: dict[str, Any]) -> list[dict[str, Any]]:
    below = [found for child in node.get("Plans", []) for found in scans(child)]
    return [node, *below]


def test_a_prefix_is_found_by_the_index_like_a_tag(
    crowd: list[str], client: httpx.Client, db: Database, tenant: Tenant
):
    for tags in (["team:*"], ["team:b:c"], ["team:b:*", "team:*"]):
        nodes = scans(plan(db, tenant, *tags))
        assert "documents_scope" in {node.get("Index Name") for node in nodes}, nodes
        # More than two, since older versions of the rows count as well.
        assert max(node["Actual Rows"] for node in nodes) < 50

    assert {document["id"] for document in listed(client, containerTag="team:*")} == set(crowd)
    assert {r["documentId"] for r in found(client, "heron", containerTag="team:*")} == set(crowd)


def test_the_numbers_follow_the_tags(client: httpx.Client, app: App, db: Database, org: Org):
    id = add(client, "heron", containerTags=["team:a:b", "team:c"])
    drain(app)
    for tags in (["team:a:b", "team:c"], ["other:x"], ["team:a:b"]):
        assert client.patch(f"/v3/documents/{id}", json={"containerTags": tags}).status_code == 200
        with db.begin() as tx:
            row = tx.execute(
                "select d.scope, e.terms from documents d join entries e on e.document_id = d.id"
                " where d.id = %s",
                (id,),
            ).fetchone()
            counted = tx.execute(
                "select number from term_counts where org_id = %s", (org.id,)
            ).fetchall()
        assert row is not None
        assert len(set(row["scope"])) == len(row["scope"])
        assert row["terms"][: len(row["scope"])] == row["scope"]
        assert {count["number"] for count in counted} == set(row["terms"])
        below = tags[0].split(":")[0] + ":*"
        assert [d["id"] for d in listed(client, containerTag=below)] == [id]
        assert [r["documentId"] for r in found(client, "heron", containerTag=below)] == [id]
    assert listed(client, containerTag="other:*") == []
    assert found(client, "heron", containerTag="other:*") == []
