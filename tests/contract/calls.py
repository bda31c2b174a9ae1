"""Calls that many contract tests make, with what must hold of every answer."""

from typing import Any

import httpx

from recollect.db import Database
from recollect.model import Org


def add(
    http: httpx.Client, content: str = "The heron stands in the shallow water.", **labels: Any
) -> str:
    """Add a document and return its id."""
    answer = http.post("/v3/documents", json={"content": content, **labels})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def get(http: httpx.Client, id: str) -> dict[str, Any]:
    answer = http.get(f"/v3/documents/{id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def upload(http: httpx.Client, name: str, data: bytes, **fields: str) -> httpx.Response:
    return http.post("/v3/documents/file", files={"file": (name, data)}, data=fields)


def listed(http: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = http.post("/v3/documents/list", json=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["memories"]


def found(http: httpx.Client, q: str, **query: Any) -> list[dict[str, Any]]:
    """The documents that a search answers with; each chunk is what its offsets cut out of the
    published text, while a document may show a newer one already."""
    answer = http.post("/v3/search", json={"q": q, **query})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["total"] == len(body["results"])
    assert body["timing"] >= 0
    full = http.post("/v3/search", json={"q": q, **query, "includeFullDocs": True}).json()
    published = {one["documentId"]: one["content"] for one in full["results"]}
    for result in body["results"]:
        stored = published[result["documentId"]]
        assert result["chunks"]
        for chunk in result["chunks"]:
            assert stored[chunk["start"] : chunk["end"]] == chunk["content"]
    return body["results"]


def refused(answer: httpx.Response, status: int, about: str = "") -> dict[str, Any]:
    """An error of the contract's shape, or of JSON-RPC's at /mcp, with `about` in its text."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert about in answer.text
    if answer.request.url.path.rstrip("/").endswith("/mcp") and "jsonrpc" in body:
        assert set(body) == {"jsonrpc", "id", "error"}
        assert body["id"] is None
        assert body["error"]["message"]
        return body
    assert isinstance(body["error"], str)
    assert body["error"]
    assert set(body) <= {"error", "details", "issues"}
    assert isinstance(body.get("details", ""), str)
    for issue in body.get("issues", []):
        assert set(issue) == {"path", "message"}
    return body


def rows(db: Database, org: Org) -> dict[str, int]:
    """How many rows the organisation has, by table."""
    with db.begin() as tx:
        counted = tx.execute(
            "select (select count(*) from documents where org_id = %(org)s) as documents,"
            " (select count(*) from entries e join documents d on d.id = e.document_id"
            "  where d.org_id = %(org)s) as entries,"
            " (select count(*) from chunks c join documents d on d.id = c.document_id"
            "  where d.org_id = %(org)s) as chunks,"
            " (select count(*) from term_counts where org_id = %(org)s) as terms,"
            " (select count(*) from tags where org_id = %(org)s) as tags,"
            " (select count(*) from settings where org_id = %(org)s) as settings",
            {"org": org.id},
        ).fetchone()
    assert counted is not None
    return dict(counted)
