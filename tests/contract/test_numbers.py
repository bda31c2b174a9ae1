"""Numbers and other words from outside, far too long or of other scripts: never a 500, never a
broken stream."""

import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from recollect import console
from recollect.api.wire import RequestBody
from recollect.mcp.tools import TOOLS
from tests.console.test_console import FORM
from tests.contract.calls import add
from tests.contract.test_ns_refusals import names_of

KINDS = [
    ["9" * 5_000, "-" + "9" * 5_000, "0" * 5_000 + "1", "9" * 400],
    ["9" * 20 + "." + "9" * 20, "1e999", "nan"],
    ["²", "٣٣"],
    ["2147483648", "9223372036854775808"],
    ["\x00", "\ud800"],
    [""],
]
HOSTILE = [value for kind in KINDS for value in kind]
BY_DAY = [pytest.param(kind, id=f"kind {number}") for number, kind in enumerate(KINDS)]
AT_NIGHT = [
    pytest.param([value], id=f"{number}", marks=pytest.mark.slow)
    for number, value in enumerate(HOSTILE)
]
"""Each value in every place; by day a place meets one of each kind, the next place the next one."""
HEADERS = (
    "Last-Event-ID",
    "Range",
    "If-None-Match",
    "If-Modified-Since",
    "Cookie",
    "X-Forwarded-For",
    "X-Recollect-Tag",
    "X-Stainless-Lang",
    "X-Stainless-Package-Version",
    "User-Agent",
    "Accept",
    "Origin",
    "Sec-Fetch-Site",
    "Traceparent",
    "Retry-After",
    "MCP-Protocol-Version",
    "Content-Type",
)


def spelled(value: str) -> str:
    return quote(value.encode("utf-8", "surrogatepass"), safe="")


def fine(http: httpx.Client, method: str, path: str, **headers: bytes) -> None:
    """Not an error of ours; of a stream the first words come."""
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    with http.stream(method, path, headers=list(given.items())) as answer:
        if "event-stream" in answer.headers.get("content-type", ""):
            assert next(answer.iter_bytes())
        else:
            answer.read()
        told = answer.status_code < 500 or answer.status_code == 501 or path.startswith("/feedback")
        assert told, (method, path[:200], given)


@pytest.fixture
def paths(client: httpx.Client) -> dict[str, dict[str, Any]]:
    add(client)
    return client.get("/v3/openapi").json()["paths"]


@pytest.mark.parametrize("values", [*BY_DAY, *AT_NIGHT])
def test_no_query_or_path_breaks_anything(
    client: httpx.Client, paths: dict[str, dict[str, Any]], values: Sequence[str]
):
    next_one = cycle(values)
    for path, item in paths.items():
        bare = re.sub(r"\{\w+\}", "x", path)
        for verb, told in item.items():
            if path != bare:
                within = spelled(next(next_one)) or "x"
                fine(client, verb.upper(), re.sub(r"\{\w+\}", within, path))
            for one in told.get("parameters", ()):
                if one["in"] == "query":
                    said = spelled(next(next_one))
                    fine(client, verb.upper(), f"{bare}?{one['name']}={said}")


@pytest.mark.parametrize("values", [pytest.param(HOSTILE, id="in turn"), *AT_NIGHT])
def test_no_header_breaks_anything(
    client: httpx.Client, paths: dict[str, dict[str, Any]], values: Sequence[str]
):
    """By day each route gets each header, and each value: there are as many headers, and more."""
    assert len(HEADERS) >= len(HOSTILE)
    read = [re.sub(r"\{\w+\}", "x", path) for path, item in paths.items() if "get" in item]
    for at, path in enumerate(read):
        for number, name in enumerate(HEADERS, at):
            value = values[number % len(values)]
            text = value.encode("utf-8", "surrogatepass").replace(b"\x00", b"")
            fine(client, "GET", path, **{name: text})


@pytest.mark.parametrize("values", [*BY_DAY, *AT_NIGHT])
def test_nor_the_console(live_url: str, key: str, values: Sequence[str]):
    pages = {
        route.path: names_of([route])
        for router in [console._signing.doors, *(part.rooms for part in console.PARTS)]
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    assert len(pages) > 30
    assert {"page", "limit", "chunk", "from", "files", "q", "part"} <= set().union(*pages.values())
    next_one = cycle(values)
    with httpx.Client(
        base_url=live_url, headers=FORM, timeout=60, trust_env=False, verify=False
    ) as http:
        assert http.post("/console/login", data={"key": key}).status_code == 303
        for path, names in sorted(pages.items()):
            bare = re.sub(r"\{[\w:]+\}", "x", path)
            if path != bare:
                within = spelled(next(next_one)) or "x"
                fine(http, "GET", re.sub(r"\{[\w:]+\}", within, path))
            # The page where an assistant is allowed declares none and reads all.
            for name in sorted(names) or ["client_id"]:
                fine(http, "GET", f"{bare}?{name}={spelled(next(next_one))}")
            fine(http, "GET", bare, Last_Event_ID=b"9" * 5_000)


def test_pushes_and_returns_of_strangers(live_url: str):
    with httpx.Client(base_url=live_url, timeout=60, trust_env=False, verify=False) as http:
        for provider in ("github", "onedrive", "google-drive", "gmail", "notion"):
            fine(http, "POST", f"/v3/hooks/{provider}", Content_Type=b"application/json")
            back = f"/v3/connections/auth/callback/{provider}"
            for value in map(spelled, HOSTILE):
                fine(http, "GET", f"{back}?state={value}")
                for name in ("registration", "validationToken"):
                    fine(http, "POST", f"/v3/hooks/{provider}?{name}={value}")


def test_a_stream_takes_up_only_where_it_ended(client: httpx.Client):
    id = add(client)
    for last, told in [("1", True), ("9" * 15, True), ("9" * 16, False), ("9" * 5_000, False)]:
        with client.stream(
            "GET", "/v3/documents/events", headers={"Last-Event-ID": last}
        ) as answer:
            assert answer.status_code == 200
            words, heard = answer.iter_text(), ""
            while "listening" not in heard or (told and id not in heard):
                heard += next(words)


def below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        yield one
        yield from below(one)


def numbers() -> Iterator[tuple[type[BaseModel], str]]:
    """Fields of all bodies, and of all tools' arguments, that take a number and no flag, as their
    schema says."""
    for body in (*below(RequestBody), *(tool.arguments for tool in TOOLS)):
        for name, told in body.model_json_schema(by_alias=True).get("properties", {}).items():
            kinds = {one.get("type") for one in (told, *told.get("anyOf", ()))}
            if kinds & {"number", "integer"} and "boolean" not in kinds:
                yield body, name


def test_true_is_no_number():
    found = list(numbers())
    assert len(found) > 20
    assert {"passages", "wait_seconds", "document_limit"} <= {name for _, name in found}
    for body, name in found:
        with pytest.raises(ValidationError) as refused:
            body.model_validate({name: True})
        told = {one["loc"]: one["msg"] for one in refused.value.errors()}
        assert "number" in told[(name,)] or "integer" in told[(name,)], (body, name)
