"""Assistants, by the client of the official SDK: over HTTP and over stdio, both dialects."""

import json
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from select import select
from typing import Any, TypeVar

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent, TextResourceContents

from recollect.api import create_app
from recollect.app import App
from recollect.config import is_this_machine
from recollect.db import Database
from recollect.errors import Transient
from recollect.mcp import documents as mcp_documents
from recollect.mcp.inside import Inside
from recollect.model import Org, Scope
from recollect.orgs import orgs
from recollect.orgs.orgs import Limit
from recollect.worker.processing import drain
from tests.conftest import Service
from tests.contract.calls import add, get, listed, refused, upload
from tests.fakes.site import Site

TOOLS = {
    "search", "add", "get", "fetch", "list", "list_tags", "profile", "forget", "connect",
    "sync_status",
}  # fmt: skip
MODES = ("auto", "legacy")
Assistant = Callable[[], AbstractAsyncContextManager[Client]]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def over_http(
    url: str, key: str, *, tag: str | None = None, mode: str = "auto"
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {key}", **({"X-Recollect-Tag": tag} if tag else {})}
    bare = httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False, verify=False)
    async with bare as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(
    url: str, key: str, *, tag: str | None = None, mode: str = "auto"
) -> AsyncGenerator[Client]:
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "recollect", "mcp", *(["--tag", tag] if tag else [])],
        env={"RECOLLECT_URL": url, "RECOLLECT_API_KEY": key},
        cwd=Path(__file__).parents[2],
    )
    async with Client(started, mode=mode) as client:
        yield client


def told(block: object) -> str:
    assert isinstance(block, TextContent | TextResourceContents)
    return block.text


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer, which the text repeats for older assistants."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(told(result.content[0])) == result.structured_content
    return result.structured_content


async def trouble(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool says when it cannot."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return told(result.content[0])


T = TypeVar("T")


def talk(assistant: Assistant, said: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with assistant() as client:
            return await said(client)

    return anyio.run(run)


@contextmanager
def worked(app: App) -> Generator[None]:
    """Meanwhile what is added becomes searchable, so that no `add` waits in vain."""
    over = threading.Event()
    worker = threading.Thread(
        target=lambda: [drain(app) for _ in iter(lambda: over.wait(0.05), True)]
    )
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def key_of(
    db: Database, org: Org, scope: Scope = Scope.ADMIN, tags: list[str] | None = None
) -> str:
    with db.begin() as tx:
        return orgs.create_key(tx, org.id, scope=scope, tags=tags)[1]


# --- every tool --------------------------------------------------------------------------------


async def use_every_tool(client: Client, tag: str, site: Site) -> set[str]:
    """A visit from the first note to the last; returns which tools were called."""
    added = await call(
        client,
        "add",
        content="# Herons\n\nA heron waits in the shallow water.",
        custom_id=f"birds/{tag}",
        metadata={"year": 2026},
        wait_seconds=30,
    )
    assert added["status"] == "done", added
    found = await call(client, "search", query="Where does the heron wait?")
    assert found["note"] is None
    assert (await call(client, "search", query="zxqvbn"))["note"].startswith("Only weak matches")
    hits = found["results"]
    assert [hit["id"] for hit in hits] == [added["id"]]
    assert hits[0]["source"] == f"birds/{tag}"
    assert hits[0]["metadata"] == {"year": 2026}
    passage = hits[0]["passages"][0]

    document = await call(client, "get", id=f"birds/{tag}")
    assert document["tags"] == [tag]
    assert document["text"][passage["start"] : passage["end"]] == passage["text"]
    assert document["total_length"] == len(document["text"])
    part = await call(client, "get", id=added["id"], start=2, length=6)
    assert (part["text"], part["start"]) == ("Herons", 2)

    whole = await call(client, "fetch", id=hits[0]["id"])
    assert whole["text"] == document["text"]
    assert (whole["url"], hits[0]["url"]) == (added["uri"], added["uri"])
    assert len((await call(client, "search", query="heron", passages=1))["results"]) == 1
    before = await call(client, "search", query="heron", as_of="2001-01-01")
    assert (before["results"], before["note"]) == ([], "Nothing found.")
    tags = (await call(client, "list_tags"))["tags"]
    assert (tag, 1) in [(one["tag"], one["documents"]) for one in tags]
    known = await call(client, "profile", query="What does the heron do?")
    quiet = {"static": [], "dynamic": [], "found": [], "warnings": None}
    assert known == {"tag": tag, **quiet}

    page = await call(client, "list", status="done")
    assert ([one["id"] for one in page["documents"]], page["total"]) == ([added["id"]], 1)

    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == ["recollect://documents/{id}"]
    shown = (await client.list_resources()).resources
    assert [str(resource.uri) for resource in shown] == [added["uri"]]
    read = (await client.read_resource(added["uri"])).contents[0]
    assert told(read) == document["text"]
    with pytest.raises(MCPError, match="Document not found"):
        await client.read_resource("recollect://documents/absent")

    connected = await call(
        client, "connect", provider="web-crawler", settings={"startUrl": site.url("/")}
    )
    assert connected["authorization_link"] is None
    status: dict[str, Any] = {}
    with anyio.fail_after(120):
        while not status.get("last_synced_at"):
            found = await call(client, "sync_status", connection=connected["id"])
            status = found["connections"][0]
            await anyio.sleep(0.1)
    assert [(run["status"], run["added"]) for run in status["runs"]] == [("completed", 1)]
    everything = (await call(client, "sync_status"))["connections"]
    assert [(one["id"], one["tags"], one["runs"]) for one in everything] == [
        (connected["id"], [tag], [])
    ]

    assert (await call(client, "forget", id=added["id"]))["forgotten"]
    assert "no document" in await trouble(client, "get", id=added["id"])
    return {"add", "search", "get", "fetch", "list", "list_tags", "profile", "connect",
            "sync_status", "forget"}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", [over_http, over_stdio], ids=["http", "stdio"])
def test_an_assistant_uses_every_tool(service: Service, way: Any, mode: str) -> None:
    tag = f"mcp-{uuid.uuid4().hex[:8]}"

    async def visit(client: Client) -> tuple[set[str], set[str]]:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        with Site() as site:
            site.write("/", "The lighthouse keeper rows home.")
            return offered, await use_every_tool(client, tag, site)

    offered, used = talk(partial(way, service.url, service.key, tag=tag, mode=mode), visit)

    assert offered == used == TOOLS


def test_tools_say_what_they_do(live_url: str, key: str) -> None:
    async def look(client: Client) -> Any:
        return client.instructions, (await client.list_tools()).tools

    instructions, tools = talk(partial(over_http, live_url, key), look)

    assert "Search it before" in instructions
    for tool in tools:
        assert len(tool.description) > 80, tool.name
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["type"] == "object"
        for name, field in tool.input_schema["properties"].items():
            assert "description" in field or name in ("page",), (tool.name, name)
    hints = {tool.name: tool.annotations for tool in tools}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == {
        "search",
        "get",
        "fetch",
        "list",
        "list_tags",
        "profile",
        "sync_status",
    }
    assert [name for name, hint in hints.items() if hint.destructive_hint] == ["forget"]
    assert {name for name, hint in hints.items() if hint.open_world_hint} == {"add", "connect"}


def test_arguments_are_described_to_the_simplest_of_assistants(live_url: str, key: str) -> None:
    """Cursor's gateway refuses all tools for one `anyOf` (code-yeongyu/senpi#952), Codex took it
    for text (openai/codex#13768), Gemini takes no `$ref` (google-gemini/gemini-cli#13326)."""

    async def look(client: Client) -> list[Any]:
        return (await client.list_tools()).tools

    taken = {"type", "description", "enum", "default", "minimum", "maximum", "minLength"}
    taken |= {"maxLength", "additionalProperties"}
    types = ("string", "integer", "number", "boolean", "object")
    for tool in talk(partial(over_http, live_url, key), look):
        assert set(tool.input_schema) <= {*taken, "properties", "required"}, tool.name
        for name, field in tool.input_schema["properties"].items():
            assert set(field) <= taken, (tool.name, name)
            assert field["type"] in types, (tool.name, name)
            assert field.get("default", 0) is not None, (tool.name, name)


@pytest.mark.parametrize("left_out", [None, "", " ", {}, []])
def test_what_a_model_leaves_out_may_be_null_or_empty(
    left_out: object, live_url: str, client: httpx.Client, app: App, key: str
) -> None:
    add(client, "A heron in the reeds.")
    drain(app)

    async def use(assistant: Client) -> dict[str, dict[str, Any]]:
        answers: dict[str, dict[str, Any]] = {}
        for tool in (await assistant.list_tools()).tools:
            needed = {"query": "heron", "content": "A note.", "provider": "gmail", "id": "x"}
            names = tool.input_schema["properties"]
            required = {name: needed[name] for name in tool.input_schema.get("required", ())}
            if tool.name not in ("get", "fetch", "forget", "connect"):
                full = {**dict.fromkeys(names, left_out), **required}
                answers[tool.name] = await call(assistant, tool.name, **full)
        return answers

    with worked(app):
        answers = talk(partial(over_http, live_url, key), use)

    assert [hit["metadata"] for hit in answers["search"]["results"]] == [None]
    assert answers["list"]["total"] == 2
    assert answers["sync_status"]["connections"] == []


def test_objects_may_come_as_json_in_a_string(
    live_url: str, client: httpx.Client, app: App, key: str
) -> None:
    """So they come from Claude's apps (anthropics/claude-ai-mcp#548, claude-code#59227)."""

    async def visit(assistant: Client) -> tuple[str, list[Any]]:
        new = {"content": '{"a": 1}', "metadata": ' {"year": 2026}', "wait_seconds": "0"}
        added = await call(assistant, "add", **new)
        await anyio.to_thread.run_sync(drain, app)
        hits: list[Any] = []
        for year in (2026, 2025):
            filters = json.dumps({"AND": [{"key": "year", "value": str(year)}]})
            found = await call(assistant, "search", query="a", filters=filters, limit="3")
            hits.append([hit["id"] for hit in found["results"]])
        for broken in ('{"AND": [', '{"AND": NaN}', "[]", "year"):
            told = await trouble(assistant, "search", query="a", filters=broken)
            assert "filters: must be an object" in told
        return added["id"], hits

    id, hits = talk(partial(over_http, live_url, key), visit)

    assert hits == [[id], []]
    assert get(client, id)["content"] == '{"a": 1}'


def test_where_a_user_has_to_agree_the_link_is_handed_over(
    live_url: str, client: httpx.Client, key: str
) -> None:
    client.patch(
        "/v3/settings",
        json={
            "githubCustomKeyEnabled": True,
            "githubClientId": "an-application",
            "githubClientSecret": "its-secret",
        },
    )

    async def visit(assistant: Client) -> tuple[dict[str, Any], dict[str, Any]]:
        made = await call(assistant, "connect", provider="github", tag="code")
        return made, await call(assistant, "sync_status", connection=made["id"])

    made, status = talk(partial(over_http, live_url, key), visit)

    assert "client_id=an-application" in made["authorization_link"]
    assert made["expires_in"] == "1 hour"
    assert status["connections"][0]["state"] == "pending"
    assert "its-secret" not in json.dumps([made, status])


# --- scope -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [over_http, over_stdio], ids=["http", "stdio"])
def test_a_session_has_a_tag(
    live_url: str, client: httpx.Client, app: App, key: str, way: Any
) -> None:
    add(client, "A heron in the reeds.", containerTag="lake")
    add(client, "A heron on the roof.", containerTag="town")
    drain(app)

    async def visit(assistant: Client) -> dict[str, Any]:
        made = await call(assistant, "add", content="A note.", wait_seconds=0)
        resources = (await assistant.list_resources()).resources
        return {
            "added": made["id"],
            "found": await call(assistant, "search", query="heron"),
            "elsewhere": await call(assistant, "search", query="heron", tag="town"),
            "listed": await call(assistant, "list"),
            "resources": [resource.uri for resource in resources],
        }

    seen = talk(partial(way, live_url, key, tag="lake"), visit)

    assert get(client, seen["added"])["containerTags"] == ["lake"]
    assert ["reeds" in hit["passages"][0]["text"] for hit in seen["found"]["results"]] == [True]
    assert ["roof" in hit["passages"][0]["text"] for hit in seen["elsewhere"]["results"]] == [True]
    assert [one["tags"] for one in seen["listed"]["documents"]] == [["lake"], ["lake"]]
    assert len(seen["resources"]) == 1


def test_what_two_documents_say_is_brought_once(
    live_url: str, client: httpx.Client, app: App, key: str
) -> None:
    both = {add(client, "A heron in the reeds."), add(client, "A heron  in the reeds!")}
    drain(app)

    async def visit(assistant: Client) -> dict[str, Any]:
        return await call(assistant, "search", query="heron in reeds")

    [hit] = talk(partial(over_http, live_url, key), visit)["results"]

    assert {hit["id"], *hit["passages"][0]["also_in"]} == both


@pytest.mark.parametrize("way", [over_http, over_stdio], ids=["http", "stdio"])
def test_a_limited_key_keeps_its_limits(
    live_url: str, client: httpx.Client, app: App, db: Database, org: Org, way: Any
) -> None:
    secret = add(client, "The word is zugzwang.", containerTag="vault", customId="owned")
    own = add(client, "The word is known.", containerTag="mine")
    drain(app)
    before = listed(client, limit=100)
    scoped = key_of(db, org, Scope.WRITE, ["mine"])

    async def visit(assistant: Client) -> list[str]:
        found = await call(assistant, "search", query="The word zugzwang")
        everything = await call(assistant, "list")
        assert [hit["id"] for hit in found["results"]] == [own]
        assert [one["id"] for one in everything["documents"]] == [own]
        assert len((await assistant.list_resources()).resources) == 1
        assert [one["tag"] for one in (await call(assistant, "list_tags"))["tags"]] == ["mine"]
        with pytest.raises(MCPError, match="Document not found"):
            await assistant.read_resource(f"recollect://documents/{secret}")
        for id in (secret, "owned"):
            for tool in ("get", "fetch", "forget"):
                assert "Document not found" in await trouble(assistant, tool, id=id)
        return [
            await trouble(assistant, "search", query="x", tag="vault"),
            await trouble(assistant, "add", content="x", tag="vault"),
            await trouble(assistant, "list", tag="vault"),
            await trouble(assistant, "sync_status", tag="vault"),
            await trouble(assistant, "profile", tag="vault"),
        ]

    refusals = talk(partial(way, live_url, scoped), visit)

    assert all("may not use 'vault'" in said and "keys create" in said for said in refusals)
    assert listed(client, limit=100) == before


def test_what_was_added_is_no_error_when_nobody_can_wait_for_it(
    client: httpx.Client, db: Database, org: Org
) -> None:
    """An assistant that is told to try again would add it a second time."""
    with db.begin() as tx:
        _, few = orgs.create_key(
            tx, org.id, scope=Scope.WRITE, tags=["mine"], limit=Limit(2, timedelta(hours=1))
        )
    asked = {"name": "add", "arguments": {"content": "The word is zugzwang."}}
    headers = {**ACCEPT, "Authorization": f"Bearer {few}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    result = client.post("/mcp", json=message, headers=headers).json()["result"]

    [kept] = listed(client, containerTags=["mine"])
    assert not result["isError"], result["content"]
    assert result["structuredContent"]["id"] == kept["id"]
    assert result["structuredContent"]["status"] == "queued"


def test_metadata_are_stored_as_they_came(live_url: str, client: httpx.Client, key: str) -> None:
    given = {
        "year": 2026,
        "snowflake": 123456789012345678,
        "share": 0.5,
        "draft": True,
        "birds": ["heron", "7"],
    }

    async def visit(assistant: Client) -> str:
        new = {"content": "A heron.", "metadata": given, "wait_seconds": 0}
        return (await call(assistant, "add", **new))["id"]

    id = talk(partial(over_http, live_url, key), visit)
    stored = client.get(f"/v3/documents/{id}").json()["metadata"]
    assert json.dumps(stored, sort_keys=True) == json.dumps(given, sort_keys=True)


def test_add_says_what_the_same_name_does_to_a_text(live_url: str, key: str) -> None:
    """An assistant that thinks of an update as a replacement keeps what is no longer true."""

    async def visit(assistant: Client) -> tuple[str, str]:
        [add] = [tool for tool in (await assistant.list_tools()).tools if tool.name == "add"]
        for cook in ("Ulrika", "Wenzel"):
            new = {"content": f"The cook is {cook}.", "custom_id": "cook"}
            id = (await call(assistant, "add", **new, wait_seconds=0))["id"]
        text = (await call(assistant, "get", id=id))["text"]
        return text, add.input_schema["properties"]["custom_id"]["description"]

    text, said = talk(partial(over_http, live_url, key), visit)
    assert text == "The cook is Ulrika.\nThe cook is Wenzel."
    assert "other text is put behind it" in said


def test_without_a_tag_a_limited_key_reads_the_profile_that_it_may(
    live_url: str, client: httpx.Client, db: Database, org: Org
) -> None:
    body = {"containerTag": "shared", "memories": [{"content": "Herons fish.", "isStatic": True}]}
    assert client.post("/v4/memories", json=body).is_success
    limited = key_of(db, org, Scope.READ, ["shared", "more"])

    async def visit(assistant: Client) -> dict[str, Any]:
        return await call(assistant, "profile")

    known = talk(partial(over_http, live_url, limited), visit)
    assert (known["tag"], known["static"]) == ("shared", ["Herons fish."])


def test_another_organisation_reaches_nothing(
    live_url: str, client: httpx.Client, app: App, stranger: httpx.Client
) -> None:
    id = add(client, "The word is zugzwang.", customId="owned")
    drain(app)
    foreign = stranger.headers["authorization"].removeprefix("Bearer ")

    async def visit(assistant: Client) -> list[Any]:
        return [
            await call(assistant, "search", query="zugzwang"),
            await call(assistant, "list"),
            await call(assistant, "sync_status"),
            await trouble(assistant, "get", id=id),
            await trouble(assistant, "get", id="absent"),
            await trouble(assistant, "forget", id="owned"),
            await trouble(assistant, "fetch", id=id),
        ]

    found, everything, connections, one, absent, gone, whole = talk(
        partial(over_http, live_url, foreign), visit
    )

    assert (found["results"], everything["documents"], connections["connections"]) == ([], [], [])
    assert one.replace(id, "*") == absent.replace("absent", "*")
    assert "Document not found" in gone
    assert whole == one
    assert get(client, id)["status"] == "done"


def test_a_key_that_may_only_read_changes_nothing(
    live_url: str, client: httpx.Client, app: App, db: Database, org: Org
) -> None:
    id = add(client, "A heron.")
    drain(app)
    before = get(client, id)
    reader = key_of(db, org, Scope.READ)

    async def visit(assistant: Client) -> list[str]:
        assert (await call(assistant, "search", query="heron"))["results"]
        return [
            await trouble(assistant, "add", content="mine"),
            await trouble(assistant, "forget", id=id),
            await trouble(assistant, "connect", provider="web-crawler"),
        ]

    refusals = talk(partial(over_http, live_url, reader), visit)

    assert all("scope read, which does not allow it" in said for said in refusals)
    assert get(client, id) == before


# --- what goes wrong ---------------------------------------------------------------------------


def test_errors_say_what_to_do(live_url: str, key: str) -> None:
    async def visit(assistant: Client) -> dict[str, str]:
        with pytest.raises(MCPError, match="there is no tool 'dance'"):
            await assistant.call_tool("dance", {})
        with pytest.raises(MCPError, match="recollect://documents"):
            await assistant.read_resource("file:///etc/passwd")
        return {
            "limit": await trouble(assistant, "search", query="x", limit=1000),
            "invented": await trouble(assistant, "search", query="x", colour="red"),
            "missing": await trouble(assistant, "get", id="no-such-document"),
            "blank": await trouble(assistant, "add", content="   "),
            "provider": await trouble(assistant, "connect", provider="myspace"),
            "filter": await trouble(assistant, "search", query="x", filters={"key": "a"}),
            "path": await trouble(assistant, "get", id="../settings"),
            "moment": await trouble(assistant, "search", query="x", as_of="yesterday"),
        }

    said = talk(partial(over_http, live_url, key), visit)

    assert "limit" in said["limit"]
    assert "50" in said["limit"]
    assert "colour" in said["invented"]
    assert "`search`" in said["missing"]
    assert "must not be empty" in said["blank"]
    assert "myspace" in said["provider"]
    assert "AND" in said["filter"]
    assert "Document not found" in said["path"]
    assert "as_of: a date" in said["moment"]


def test_null_is_as_good_as_absent(live_url: str, app: App, key: str) -> None:
    """Frameworks that hold arguments in objects send it for all that a model left out."""

    async def visit(assistant: Client) -> str:
        for tool in (await assistant.list_tools()).tools:
            needed = tool.input_schema.get("required", [])
            nulls = dict.fromkeys(tool.input_schema["properties"].keys() - {*needed})
            if not needed:
                await call(assistant, tool.name, **nulls)
            elif tool.name in ("search", "add"):
                await call(assistant, tool.name, **dict.fromkeys(needed, "a heron"), **nulls)
        return await trouble(assistant, "search", query=None, limit=None, colour=None)

    with worked(app):
        said = talk(partial(over_http, live_url, key), visit)

    assert "query: " in said
    assert "colour: unknown field" in said
    assert "limit" not in said


def test_what_is_refused_is_called_as_the_tool_calls_it(live_url: str, key: str) -> None:
    async def visit(assistant: Client) -> list[str]:
        for tag in ("one", "two"):
            named = {"tag": tag, "custom_id": "same"}
            await call(assistant, "add", content=f"of {tag}", wait_seconds=0, **named)
        return [
            await trouble(assistant, "search", query="   "),
            await trouble(assistant, "add", content="x", custom_id="a\tb"),
            await trouble(assistant, "connect", provider="web-crawler", settings={"x": 1}),
            await trouble(assistant, "add", content="x", metadata={"": 1}),
            await trouble(assistant, "get", id="same"),
        ]

    query, name, settings, metadata, same = talk(partial(over_http, live_url, key), visit)

    assert query.startswith("Invalid request parameters: query: ")
    assert name.startswith("Invalid request parameters: custom_id: ")
    assert settings.startswith("Invalid request parameters: settings.startUrl: ")
    assert metadata.startswith("Invalid request parameters: metadata: ")
    assert same.endswith("; use its id, from `list`")


@pytest.mark.parametrize("way", [over_http, over_stdio], ids=["http", "stdio"])
def test_a_refused_tag_is_called_as_the_tools_call_it(live_url: str, key: str, way: Any) -> None:
    async def visit(assistant: Client) -> list[str]:
        return [
            await trouble(assistant, "search", query="x", tag="not a tag"),
            await trouble(assistant, "add", content="x", tag="not a tag"),
        ]

    for said in talk(partial(way, live_url, key), visit):
        assert (
            said
            == "Invalid request parameters: tag: 1 to 100 characters of letters, digits, _ - : ."
        )


def test_without_a_service_each_tool_says_how_to_start_one() -> None:
    async def visit(assistant: Client) -> tuple[int, str]:
        return len((await assistant.list_tools()).tools), await trouble(
            assistant, "search", query="x"
        )

    with socket.socket() as held:  # its port is nobody else's meanwhile
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        offered, said = talk(partial(over_stdio, url, "sm_any"), visit)

    assert offered == len(TOOLS)
    assert said == f"no service at {url}; start it with `recollect serve`"


def test_a_wrong_key_is_told_where_keys_come_from(live_url: str) -> None:
    async def visit(assistant: Client) -> str:
        return await trouble(assistant, "list")

    assert "recollect keys create" in talk(partial(over_stdio, live_url, "sm_wrong"), visit)


# --- the door ----------------------------------------------------------------------------------


def test_the_door_asks_for_a_key(with_key: Callable[[str], httpx.Client]) -> None:
    for secret in ("", "nobody"):
        answer = with_key(secret).post("/mcp", json=HELLO, headers=ACCEPT)

        refused(answer, 401, "Unauthorized")


def test_an_assistant_shows_why_the_door_is_shut(
    live_url: str, client: httpx.Client, db: Database, org: Org
) -> None:
    """It shows the message of JSON-RPC: of any other body, "Server returned an error response"."""
    with db.begin() as tx:
        _, few = orgs.create_key(tx, org.id, limit=Limit(1, timedelta(hours=1)))
    client.get("/v3/documents/absent", headers={"Authorization": f"Bearer {few}"})
    for key, why in (("sm_nobody", "Unauthorized"), (few, "try again in")):
        with pytest.RaisesGroup(
            pytest.RaisesExc(MCPError, match=why), allow_unwrapped=True, flatten_subgroups=True
        ):
            talk(partial(over_http, live_url, key), lambda assistant: assistant.list_tools())


def test_pages_of_strangers_are_turned_away(client: httpx.Client) -> None:
    def came(**headers: str) -> httpx.Response:
        return client.post("/mcp", json=HELLO, headers={**ACCEPT, **headers})

    assert came().status_code == 200
    assert came(Origin="http://localhost:6274").status_code == 200
    refused(came(Origin="http://evil.example"), 403, "Origin")
    refused(came(Origin="http://[evil"), 403, "Origin")
    refused(came(Origin="null"), 403, "Origin")


def test_a_slash_at_the_end_of_the_address_is_no_other_address(client: httpx.Client) -> None:
    """People type it, and had signed in before they heard that nothing is there."""
    answer = client.post("/mcp/", json=HELLO, headers=ACCEPT)

    assert answer.status_code == 200
    assert answer.text == client.post("/mcp", json=HELLO, headers=ACCEPT).text
    refused(client.post("/mcp/mcp", json=HELLO, headers=ACCEPT), 404)


def test_who_does_not_say_what_answers_it_accepts_takes_any(client: httpx.Client) -> None:
    request = client.build_request("POST", "/mcp", json=HELLO)
    del request.headers["accept"]

    assert client.send(request).status_code == 200
    refused(client.post("/mcp", json=HELLO, headers={"Accept": "text/html"}), 406)


def test_loopback_is_told_by_name_and_number() -> None:
    here = ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")
    elsewhere = ("localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", None)

    assert all(is_this_machine(host) for host in here)
    assert not any(is_this_machine(host) for host in elsewhere)


def test_the_public_address_is_no_stranger(served: Callable[..., httpx.Client]) -> None:
    with served(public_url="https://recollect.example.org") as http:
        fine = {"Host": "recollect.example.org", "Origin": "https://recollect.example.org"}
        ours = http.post("/mcp", json=HELLO, headers={**ACCEPT, **fine})
        plain = {"Host": "recollect.example.org", "Origin": "http://recollect.example.org"}
        theirs = http.post("/mcp", json=HELLO, headers={**ACCEPT, **plain})

    assert (ours.status_code, theirs.status_code) == (200, 403)


def test_nothing_but_posts(client: httpx.Client) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = client.request(method, "/mcp", headers=ACCEPT)

        refused(answer, 405, "/mcp takes POST")
        assert answer.headers["allow"] == "POST"


def test_garbage_is_refused(client: httpx.Client) -> None:
    for body in (b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff", b"1" * 5000):
        headers = {**ACCEPT, "Content-Type": "application/json"}
        answer = client.post("/mcp", content=body, headers=headers)
        assert answer.status_code == 400, body


def _tool(**arguments: object) -> dict[str, object]:
    return {"name": "add", "arguments": {"content": "a", **arguments}}


WRONG_MESSAGES: list[tuple[object, int, str]] = [
    ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], 400, "one JSON-RPC message, an object"),
    (5, 400, "one JSON-RPC message, an object"),
    ({"id": 1, "method": "ping"}, 400, 'jsonrpc: must be "2.0"'),
    ({"jsonrpc": "2.0", "id": 1}, 400, "method: must name a method"),
    ({"jsonrpc": "2.0", "id": 1, "method": 5}, 400, "method: must name a method"),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, 400, "params: must be an obj"),
    (("tools/call", {"name": "list_tags", "arguments": "{}"}), 200, "arguments: must be an object"),
    (("tools/call", {"arguments": {}}), 200, "name: is missing"),
    (("resources/read", {"uri": 5}), 200, "uri: must be text"),
    (("initialize", {"protocolVersion": None}), 200, "protocolVersion: must be text"),
    (
        ("tools/call", _tool(metadata={"a": {"b": 1}})),
        200,
        ": metadata.a: must be text, a number, ",
    ),
    (("tools/call", _tool(metadata={"int": [1]})), 200, ": metadata.int: must be text, a number, "),
    (("tools/call", _tool(metadata=5)), 200, ": metadata: must be an object"),
]


@pytest.mark.parametrize(("asked", "status", "told"), WRONG_MESSAGES)
def test_a_wrong_message_is_told_what_is_wrong_once_and_in_our_words(
    asked: object, status: int, told: str, client: httpx.Client
) -> None:
    if isinstance(asked, tuple):
        asked = {"jsonrpc": "2.0", "id": 1, "method": asked[0], "params": asked[1]}
    answer = client.post("/mcp", json=asked, headers=ACCEPT)

    assert answer.status_code == status
    said = answer.text.replace('\\"', '"')
    assert told in said
    assert "pydantic" not in said.lower()
    assert "list[str]" not in said


@pytest.mark.parametrize("text", ["heron " * 1_000_000, "ж" * 14_100_000], ids=["6MB", "28MB"])
def test_a_document_may_be_as_large_as_elsewhere(
    text: str, live_url: str, client: httpx.Client, key: str
) -> None:
    """Above what the SDK takes by itself, and above what a request may hold were it escaped."""

    async def visit(assistant: Client) -> str:
        return (await call(assistant, "add", content=text, wait_seconds=0))["id"]

    id = talk(partial(over_http, live_url, key), visit)

    assert len(get(client, id)["content"]) == len(text)


def test_fetch_says_what_it_does_not_bring(
    live_url: str, client: httpx.Client, app: App, key: str
) -> None:
    """An assistant that knows only `search` and `fetch` would take the beginning for the whole."""
    long = "The heron waits. " * 12_000 + "It flies."
    ids = [
        add(client, long),
        upload(client, "broken.pdf", b"%PDF-1.4 no more").json()["id"],
        add(client, "The heron waits."),
    ]
    drain(app)
    ids.append(add(client, "The heron has flown."))

    async def visit(assistant: Client) -> list[dict[str, Any]]:
        return [await call(assistant, "fetch", id=id) for id in ids]

    cut, broken, whole, waits = talk(partial(over_http, live_url, key), visit)

    assert cut["text"] == long[:200_000]
    assert "first 200,000 of 204,009 characters" in cut["note"]
    assert broken["note"].startswith("The document is failed.\n")
    assert whole["note"] is None
    assert waits["note"] == "The document is queued."


def test_a_message_that_is_too_large_is_refused_as_elsewhere(client: httpx.Client) -> None:
    refused(client.post("/mcp", content=b" " * (50 * 2**20 + 1)), 400, "larger than 52,428,800")


CUT = ["heron \\ud83e", "\\udda9 heron", "heron \\ud83e\\ud83e\\udda9"]
"""Texts that JavaScript cut in an emoji, in JSON."""


def asking(query: str) -> bytes:
    arguments = f'{{"name": "search", "arguments": {{"query": "{query}"}}}}'
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {arguments}}}'.encode()


@pytest.mark.parametrize("query", CUT)
def test_a_text_cut_in_an_emoji_is_taken(query: str, client: httpx.Client) -> None:
    headers = {**ACCEPT, "Content-Type": "application/json"}
    answer = client.post("/mcp", content=asking(query), headers=headers)

    assert answer.json()["result"]["isError"] is False


def test_a_text_cut_in_an_emoji_is_answered_over_stdio(live_url: str, key: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "recollect", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RECOLLECT_URL": live_url, "RECOLLECT_API_KEY": key},
        cwd=Path(__file__).parents[2],
        bufsize=0,
    ) as assistant:
        assert assistant.stdin is not None
        assert assistant.stdout is not None
        for message in (json.dumps(HELLO).encode(), *map(asking, CUT)):
            assistant.stdin.write(message + b"\n")
            assert select([assistant.stdout], [], [], 30)[0], f"no answer to {message!r}"
            answer = json.loads(assistant.stdout.readline())
            assert not answer["result"].get("isError")
        assistant.stdin.close()


def test_a_tag_of_any_spelling_comes_through_the_header(
    live_url: str, client: httpx.Client, key: str
) -> None:
    async def visit(assistant: Client) -> str:
        return (await call(assistant, "add", content="A note.", wait_seconds=0))["id"]

    id = talk(partial(over_http, live_url, key, tag="team%3Ablue"), visit)

    assert get(client, id)["containerTags"] == ["team:blue"]


def test_many_at_once_stay_apart(
    live_url: str, client: httpx.Client, app: App, db: Database, org: Org
) -> None:
    tags = [f"room-{number}" for number in range(6)]
    for tag in tags:
        add(client, f"A heron lives in {tag}.", containerTag=tag)
    drain(app)
    keys = {tag: key_of(db, org, Scope.READ, [tag]) for tag in tags}
    seen: dict[str, set[str]] = {}

    async def one(tag: str) -> None:
        async with over_http(live_url, keys[tag]) as assistant:
            told: set[str] = set()
            for _ in range(3):
                found = await call(assistant, "search", query="Where does the heron live?")
                told |= {hit["passages"][0]["text"] for hit in found["results"]}
            seen[tag] = told

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for tag in tags:
                group.start_soon(one, tag)

    anyio.run(all_of_them)

    assert seen == {tag: {f"A heron lives in {tag}."} for tag in tags}


def test_the_guide_can_be_copied() -> None:
    text = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
    snippets = [json.loads(found) for found in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]

    assert len(snippets) == 5
    assert all("recollect" in json.dumps(snippet) for snippet in snippets)
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == TOOLS


def test_the_command_lists_the_tools(tmp_path: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "recollect", "mcp", "--json"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    assert {tool["name"] for tool in json.loads(listed.stdout)} == TOOLS


# --- names that are no ids ---------------------------------------------------------------------


def words_beside_ids(app: App) -> set[str]:
    """What stands in the API's addresses where the id of a document does."""
    paths = create_app(app).state.paths
    return {
        path.removeprefix("/v3/documents/")
        for path in paths
        if path.startswith("/v3/documents/") and path.count("/") == 3 and "{" not in path
    }


def test_words_that_are_routes_are_no_ids(live_url: str, app: App, key: str) -> None:
    words = words_beside_ids(app)
    assert "events" in words
    assert words == set(mcp_documents.NO_IDS)

    async def visit(assistant: Client) -> list[str]:
        said = [await trouble(assistant, "get", id=word) for word in sorted(words)]
        said += [await trouble(assistant, "forget", id=word) for word in sorted(words)]
        for word in sorted(words):
            with pytest.raises(MCPError, match="Document not found"):
                await assistant.read_resource(f"recollect://documents/{word}")
        return said

    said = talk(partial(over_http, live_url, key), visit)

    assert all("Document not found" in one for one in said), said


def test_a_provider_is_no_route(live_url: str, key: str) -> None:
    async def visit(assistant: Client) -> str:
        return await trouble(assistant, "connect", provider="list")

    assert "no provider 'list'" in talk(partial(over_http, live_url, key), visit)


def test_a_stream_inside_ends_at_once(app: App, key: str) -> None:
    inside = Inside(create_app(app), f"Bearer {key}", ("127.0.0.1", 1))

    async def ask() -> None:
        with anyio.fail_after(30), pytest.raises(Transient):
            await inside.send("GET", "/v3/documents/events")

    anyio.run(ask)
