"""Plug-in for the published suite of the Python client: switches on what talks to a server.

The suite skips those tests, and its examples name a document `id` that no server has. So each
test begins with an organisation that holds nothing but that document, an application for Notion,
and a connection and a memory of the names that the examples use.
"""

import os
from functools import cache

import httpx
import psycopg
import pytest

OFF = "Mock server tests are disabled"
ON = pytest.StashKey[bool]()
ENVIRONMENT = os.environ  # noqa: TID251 # how the suite itself is told


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(mark.kwargs.get("reason") == OFF for mark in item.iter_markers("skip")):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
            item.stash[ON] = True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.stash.get(ON, False):
        prepare(*opened(), ENVIRONMENT["TEST_API_ORG"])


@cache
def opened() -> tuple[httpx.Client, psycopg.Connection]:
    """One of each for all tests: a client and its store of certificates cost 0.1 s to make."""
    headers = {"Authorization": "Bearer My API Key"}
    http = httpx.Client(base_url=ENVIRONMENT["TEST_API_BASE_URL"], headers=headers, timeout=60)
    return http, psycopg.connect(ENVIRONMENT["TEST_API_DATABASE"], autocommit=True)


def prepare(http: httpx.Client, session: psycopg.Connection, org: str) -> None:
    """Leave of the organisation, whose key is `My API Key`, just what the examples name."""
    reset = {"confirmation": org}
    http.post("/v3/settings/reset", json=reset).raise_for_status()
    one = {"content": "The one that the examples name.", "customId": "id"}
    http.post("/v3/documents", json=one).raise_for_status()
    application = {
        "notionCustomKeyEnabled": True,
        "notionClientId": "id",
        "notionClientSecret": "secret",
    }
    http.patch("/v3/settings", json=application).raise_for_status()
    known = {"containerTag": "user_123", "memories": [{"content": "John prefers dark mode"}]}
    told = http.post("/v4/memories", json=known).raise_for_status().json()
    with session.transaction():
        session.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit, state)"
            " select 'connectionId', id, 'notion', '{user_123,project_123,_:_k--W2K_1V}', 100,"
            " 'ready' from orgs where name = %s",
            (org,),
        )
        session.execute(
            "insert into memories (id, org_id, tag, content, terms, weights)"
            " select 'mem_abc123', org_id, tag, content, terms, weights from memories"
            " where id = %s",
            (told["memories"][0]["id"],),
        )
        session.execute(
            "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
            " values ('mem_abc123', %s, '', 0, 1)",
            (told["documentId"],),
        )
