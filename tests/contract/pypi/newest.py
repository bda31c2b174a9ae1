"""Run by test_newest_client.py in a process that imports the newest published client: its calls
against a running service, each answer held against the OpenAPI document of its own sdist.

    python newest.py SDIST URL KEY SITE

prints a JSON list of `{call, status, faults}`, one for each request that was asked for by name.
"""

# What is installed beside the tests is an older client, which these calls do not fit.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

import ast
import asyncio
import inspect
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import supermemory
from supermemory import AsyncSupermemory, Supermemory

SDIST, URL, KEY, SITE = Path(sys.argv[1]), *sys.argv[2:5]
PRINTED, NS = "user_alex", "user_full"
"""Theirs ends in the printed calls, by a move."""
SPEC = json.loads((SDIST / "fern/openapi.json").read_text())
ROUTES = sorted(
    (
        (re.compile(re.sub(r"\{id\}$", "(.+)", path).replace("{", "(?P<").replace("}", ">[^/]+)")),
         path, verb)
        for path, item in SPEC["paths"].items()
        for verb in item
        if verb in ("get", "post", "put", "patch", "delete")
    ),
    key=lambda route: -len(re.sub(r"\{.*?\}", "", route[1])),
)  # fmt: skip
"""the most literal first: an id may have slashes"""
heard: list[dict[str, Any]] = []
"""what was answered since the last look"""


def faults_of(method: str, path: str, status: int, kind: str, content: bytes) -> list[str]:
    """Why an answer is not one of the document's."""
    fitting = [
        SPEC["paths"][route][verb]
        for pattern, route, verb in ROUTES
        if verb == method.lower() and pattern.fullmatch(path)
    ]
    if not fitting:
        return [f"no operation for {method} {path}"]
    told = fitting[0]["responses"].get(str(status))
    if told is None:
        return [f"undeclared status {status}"]
    schema = told.get("content", {}).get(kind.partition(";")[0], {}).get("schema")
    if schema is None:
        return [f"undeclared content type {kind}"]
    if "json" not in kind:
        return []
    whole = {**schema, "components": SPEC["components"]}
    found = jsonschema.Draft202012Validator(whole).iter_errors(json.loads(content))
    return [f"{one.json_path}: {one.message[:200]}" for one in found]


def hear(response: httpx.Response) -> None:
    response.read()
    note(response)


async def hear_later(response: httpx.Response) -> None:
    await response.aread()
    note(response)


def note(response: httpx.Response) -> None:
    asked = response.request
    kind = response.headers.get("content-type", "")
    found = faults_of(asked.method, asked.url.path, response.status_code, kind, response.content)
    heard.append({"status": response.status_code, "faults": found, "text": response.text[:300]})


def made(**more: Any) -> Supermemory:
    http = httpx.Client(event_hooks={"response": [hear]}, timeout=60, trust_env=False)
    return Supermemory(
        **{"api_key": KEY, "max_retries": 0, **more, "base_url": URL, "http_client": http}
    )


def made_async(**more: Any) -> AsyncSupermemory:
    http = httpx.AsyncClient(event_hooks={"response": [hear_later]}, timeout=60, trust_env=False)
    return AsyncSupermemory(
        **{"api_key": KEY, "max_retries": 0, **more, "base_url": URL, "http_client": http}
    )


PAUSE = threading.Event()
client = made()
results: list[dict[str, Any]] = []


def attempt(name: str, call: Callable[[], Any]) -> Any:
    """Make a call; what the service refuses is a result, too."""
    heard.clear()
    value, error = None, None
    try:
        value = call()
    except Exception as fault:  # noqa: BLE001 # told to who started this
        error = f"{type(fault).__name__}: {fault}"[:500]
    answered = heard[-1] if heard else {"status": None, "faults": ["nothing was asked"], "text": ""}
    faults = [fault for one in heard for fault in one["faults"]]
    results.append({"call": name, **answered, "faults": faults, "error": error})
    return value


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if found := holds():
            return found
        PAUSE.wait(0.2)
    raise AssertionError("did not come true")


def raw(method: str, path: str, **more: Any) -> Any:
    answer = httpx.request(
        method, URL + path, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False, **more
    )
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def memory(namespace: str = PRINTED) -> str:
    body = {
        "containerTag": namespace,
        "memories": [{"content": f"Alex owns {time.monotonic()} bicycles."}],
    }
    return raw("POST", "/v4/memories", json=body)["memories"][0]["id"]


def connector(namespace: str = PRINTED) -> str:
    """One that has synced once."""
    told = client.connectors.create(
        namespace, request={"provider": "web-crawler", "config": {"startUrl": SITE}}
    )
    until(lambda: client.connectors.get(namespace, told.id).system.last_successful_sync_at)
    return told.id


def document() -> str:
    client.add(PRINTED, content="Alex prefers morning meetings.", id="my-doc-123")
    return "my-doc-123"


# --- the reference, as printed -------------------------------------------------------------------


def reference() -> Iterator[tuple[str, str]]:
    blocks = re.findall(r"```python\n(.*?)```", (SDIST / "reference.md").read_text(), re.DOTALL)
    for block in blocks:
        call = block[block.rindex("\nclient.") :].strip()
        yield re.match(r"client\.([\w.]+)", call)[1], call  # pyright: ignore[reportOptionalSubscript]


def as_printed() -> None:
    for name, call in reference():
        if "mem_abc123" in call:
            call = call.replace("mem_abc123", memory())
        if "PTzGiUYei7pgzg5buzZHgA" in call:
            call = call.replace("PTzGiUYei7pgzg5buzZHgA", connector())
        document()
        attempt(f"printed {name}", lambda call=call: eval(call, {"client": client}))


# --- and once more with every argument ---------------------------------------------------------


def with_everything() -> None:
    beside: dict[str, Any] = {
        "supporting_context": "Notes about Alex.",
        "metadata": {"source": "slack", "priority": 3, "open": True, "labels": ["a", "b"]},
        "group": {"team": "rides", "parts": ["a", "b"]},
        "date": "2026-05-01",
    }
    handling: dict[str, Any] = {"task_type": "memory", "dreaming": "instant"}
    form = {**beside} | {name: json.dumps(beside[name]) for name in ("metadata", "group")}
    file = b"# Alex\n\nAlex rides to work."
    filter = {
        "operator": "and",
        "operands": [
            {"field": "source", "operator": "eq", "value": "slack", "caseSensitive": False},
            {"field": "priority", "operator": "gte", "value": 3},
            {"operator": "or", "operands": [
                {"field": "labels", "operator": "arrayContains", "value": "a"},
                {"field": "none", "operator": "notContains", "value": "x"},
            ]},
        ],
    }  # fmt: skip
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: client.add(NS, content="Alex.", id="full", **beside, **handling),
        "documents.batch_add": lambda: client.documents.batch_add(
            NS,
            documents=[
                {
                    "content": "One.",
                    "id": "b/1",
                    "metadata": {"a": 1},
                    "group": {"team": "rides"},
                    "date": "2026-01-01",
                    "supportingContext": "x",
                },
                {"content": ""},
            ],
            **handling,
        ),
        "documents.get": lambda: client.documents.get(NS, "full", include=["chunks", "memories"]),
        "documents.get with a slash": lambda: client.documents.get(NS, "b/1"),
        "documents.update": lambda: client.documents.update(
            NS, "full", content="Alex, again.", **beside, **handling
        ),
        "documents.upload_file": lambda: client.documents.upload_file(
            NS, file=file, file_type="text", mime_type="text/markdown", **form, **handling
        ),
        "documents.replace_with_file": lambda: client.documents.replace_with_file(
            NS, "full", file=file, file_type="text", mime_type="text/markdown", **form, **handling
        ),
        "documents.update_file": lambda: client.documents.update_file(
            NS, "full", file=file, file_type="text", mime_type="text/markdown", **form, **handling
        ),
        "search": lambda: client.search(
            NS,
            query="Alex",
            filter=filter,
            search_mode="hybrid",
            limit=5,
            threshold=0.1,
            rerank="order",
            rewrite_query=True,
            include={"documents": True, "related": True, "forgotten": True},
        ),
        "search aggregate": lambda: client.search(NS, query="Alex", rerank="aggregate"),
        "profile": lambda: client.profile(NS, filter=filter, buckets=["interests"]),
        "list documents": lambda: client.list(
            NS,
            "documents",
            page=1,
            limit=5,
            sort="updatedAt",
            order="asc",
            filter=filter,
            include={"content": True, "memoryCount": True, "forgotten": True},
        ),
        "list chunks": lambda: client.list(NS, "chunks", sort="position", order="asc"),
        "list memories": lambda: client.list(NS, "memories", include={"forgotten": True}),
        "content_management": lambda: (
            client.content_management.post_ns_by_namespace_list_documents_memory_counts(
                NS, ids=["full", "b/1"]
            )
        ),
        "profiles.set_buckets": lambda: client.profiles.set_buckets(
            NS, buckets={"a": "A.", "b": ""}
        ),
        "profiles.get_buckets": lambda: client.profiles.get_buckets(NS),
        "profiles.delete_buckets": lambda: client.profiles.delete_buckets(NS, buckets=["a", "b"]),
        "memories.get": lambda: client.memories.get(
            NS, memory(NS), include=["related", "documents"], related_limit=5
        ),
        "memories.forget": lambda: client.memories.forget(NS, ids=[memory(NS), "nobody"]),
        "memories.forget_matching": lambda: client.memories.forget_matching(
            NS, query="bicycles", dry_run=False
        ),
        "connectors.create s3": lambda: client.connectors.create(
            NS,
            request={
                "provider": "s3",
                "documentLimit": 5,
                "config": {
                    "bucket": "notes",
                    "region": "eu-central-1",
                    "accessKeyId": "AKIAEXAMPLE",
                    "secretAccessKey": "c2VjcmV0",
                    "prefix": "a/",
                },
            },
        ),
        "connectors.get": lambda: client.connectors.get(
            NS, crawler, include=["syncs", "picker"], return_url="https://app.example.org/"
        ),
        "connectors.update": lambda: client.connectors.update(NS, crawler, document_limit=7),
        "connectors.list": lambda: client.connectors.list(
            NS, provider="web-crawler", page=1, limit=5
        ),
        "connectors.list_all": lambda: client.connectors.list_all(provider="s3", page=1, limit=5),
        "connectors.delete": lambda: client.connectors.delete(NS, crawler, delete_documents=False),
        "namespaces.list": lambda: client.namespaces.list(page=1, limit=5, q="ALEX"),
        "namespaces.get": lambda: client.namespaces.get(NS),
        "namespaces.update": lambda: client.namespaces.update(NS, supporting_context="About Alex."),
        "organization.update": lambda: client.organization.update(
            organizational_context="Bicycles."
        ),
        "organization.get": lambda: client.organization.get(),
        "documents.delete": lambda: client.documents.delete(NS, ids=["full", "b/1", "nobody"]),
        "namespaces.delete": lambda: client.namespaces.delete(NS),
    }
    client.add(NS, content="so that there is something")
    crawler = connector(NS)
    for name, call in calls.items():
        attempt(f"full {name}", call)


# --- README, MIGRATION, examples ----------------------------------------------------------------


def documents() -> None:
    pages = {name: (SDIST / name).read_text() for name in ("README.md", "MIGRATION.md")}
    for page, told in pages.items():
        shared: dict[str, Any] = {"__name__": "__docs__", "print": lambda *_, **__: None}
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", told, re.DOTALL), 1):
            run(f"{page} {number}", block, shared)
    for example in sorted((SDIST / "examples").glob("*.py")):
        shared = {"__name__": "__main__", "print": lambda *_, **__: None}
        run(f"examples/{example.name}", example.read_text(), shared)


def run(name: str, code: str, shared: dict[str, Any]) -> None:
    """A piece of their documentation, as it stands, but that clients are ours."""
    code = re.sub(r"\bsleep\(\d+\)", "sleep(0)", code)
    shared |= {"_made": made, "_made_async": made_async}

    def go() -> None:
        compiled = compile(code, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        kept = supermemory.Supermemory, supermemory.AsyncSupermemory
        supermemory.Supermemory, supermemory.AsyncSupermemory = made, made_async
        try:
            found = eval(compiled, shared)
            if inspect.iscoroutine(found):
                asyncio.run(found)
        finally:
            supermemory.Supermemory, supermemory.AsyncSupermemory = kept

    attempt(name, go)


with tempfile.TemporaryDirectory() as folder, chdir(folder):
    Path("notes.pdf").write_bytes(b"%PDF-1.4 test")
    as_printed()
    with_everything()
    documents()
sys.stdout.write("\n" + json.dumps(results) + "\n")
