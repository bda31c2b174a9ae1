"""The OpenAPI document shows an answer for each operation, and it is what the service would say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from recollect.api import create_app
from recollect.api.openapi import ANSWERS
from recollect.app import App
from recollect.orgs.settings import DEFAULTS
from tests.contract import test_isolation
from tests.contract.test_isolation import ROWS, Names
from tests.contract.test_openapi import operations

owned = test_isolation.owned  # fixtures: an organisation that has something of everything
shelf = test_isolation.shelf
DOCS = Path(__file__).parents[2] / "docs"
ENDPOINT = re.compile(r"`(GET|POST|PATCH|DELETE) (/(?:v\d|ready|health)[^`?…\s]*)(\?[^`]*)?`")
BODY = re.compile(r"`(\{\"[^`]*\})`")
KINDS = {
    "moment": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    "id": r"[A-Za-z0-9]{22}",
    "id of a chunk": r"[A-Za-z0-9]{22}\.\d+",
    "id of a key": r"(key:)?[0-9a-f]{12}",
    "id of a delivery": r"msg_[0-9a-f]{32}",
    "id of a request": r"[0-9a-f]{16}",
    "key": r"sm_[0-9a-f]{12}_\w{49}",
    "secret": r"whsec_[\w+/]{43}=",
}
"""What a text may be beside a word for people."""
VARYING = {"listAudit .records[].object", "searchMemories .results[].id"}
"""Now of one kind, now of another."""


@pytest.fixture(scope="module")
def schema(app: App) -> dict[str, Any]:
    return create_app(app).openapi()


def shown(schema: dict[str, Any]) -> dict[str, tuple[dict[str, Any], Any]]:
    """By operationId: of each success in JSON the schema and the example."""
    found: dict[str, tuple[dict[str, Any], Any]] = {}
    for operation in operations(schema).values():
        for status, answer in operation["responses"].items():
            told = answer.get("content", {}).get("application/json")
            if status.startswith("2") and told is not None:
                found[operation["operationId"]] = (told["schema"], told.get("example"))
    return found


def test_every_success_in_json_has_an_answer(schema: dict[str, Any]):
    answers = {name: example for name, (_, example) in shown(schema).items()}

    assert [name for name, example in answers.items() if example is None] == []
    assert answers.keys() == ANSWERS.keys()


def test_every_answer_fits_its_schema(schema: dict[str, Any]):
    for name, (told, example) in shown(schema).items():
        whole = {**told, "components": schema["components"]}
        faults = [
            f"{fault.json_path}: {fault.message}"
            for fault in jsonschema.Draft202012Validator(whole).iter_errors(example)
        ]
        assert faults == [], name


def test_every_answer_is_what_its_model_would_write(app: App):
    """No field that does not exist, none missing, moments and absent fields as they are sent."""
    routes = [route for route in create_app(app).routes if isinstance(route, APIRoute)]
    seen = 0
    for route in routes:
        if route.operation_id is None or route.operation_id not in ANSWERS:
            continue
        model: TypeAdapter[Any] = TypeAdapter(route.response_model)
        example = ANSWERS[route.operation_id]
        written = model.dump_python(model.validate_python(example), mode="json", by_alias=True)
        assert written == example, route.operation_id
        seen += 1

    assert seen == len(ANSWERS)


def test_ids_and_moments_look_like_those_of_the_service(client: httpx.Client, owned: Names):
    compared: set[str] = set()
    for name, row in ROWS.items():
        if name not in ANSWERS or name.startswith(("delete", "reset", "nsDelete")):
            continue
        answer = row.call(client, owned)
        if answer.is_success:
            real, example = texts(answer.json()), texts(ANSWERS[name])
            for path in real.keys() & example.keys():
                if f"{name} {path}" not in VARYING:
                    assert real[path] == example[path], (name, path, answer.text)
            compared.add(name)

    assert len(compared) > 40


def texts(value: Any, path: str = "") -> dict[str, str | None]:
    """By its path, which kind each text is of; of a list, its first element."""
    match value:
        case str():
            return {path: next((k for k, p in KINDS.items() if re.fullmatch(p, value)), None)}
        case dict():
            below = [texts(under, f"{path}.{name}") for name, under in value.items()]
            return {path: kind for one in below for path, kind in one.items()}
        case [first, *_]:
            return texts(first, f"{path}[]")
        case _:
            return {}


def test_the_stored_settings_are_all_shown(client: httpx.Client):
    """One that the answer's model forgot would be lost in silence."""
    assert client.get("/v3/settings").json() == dict(DEFAULTS)


def test_the_documentation_names_what_there_is(app: App, schema: dict[str, Any]):
    """Endpoints, parameters of their queries, and bodies where they are written out."""
    routes = [route for route in create_app(app).routes if isinstance(route, APIRoute)]
    told = operations(schema)
    seen = bodies = 0
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for method, path, query, about in named(page.read_text()):
            fitting = [
                route.path
                for route in routes
                if method in (route.methods or ()) and route.path_regex.fullmatch(path)
            ]
            assert fitting, (page.name, method, path)
            seen += 1
            operation = told.get(f"{method} {fitting[0]}", {})  # those of providers are not told
            known = {one["name"] for one in operation.get("parameters", [])}
            assert set(re.findall(r"(\w+)=", query)) <= known, (page.name, method, path)
            for body in BODY.findall(about):
                content = operation["requestBody"]["content"]["application/json"]["schema"]
                jsonschema.validate(
                    json.loads(body), {**content, "components": schema["components"]}
                )
                bodies += 1

    assert seen > 50
    assert bodies > 2


def named(page: str) -> Iterator[tuple[str, str, str, str]]:
    """Each endpoint in a page of Markdown: method, path, query, and what the line says of it."""
    for line in page.splitlines():
        for match in ENDPOINT.finditer(line):
            method, path, query = match.groups(default="")
            yield method, path, query, ENDPOINT.split(line[match.end() :])[0]
