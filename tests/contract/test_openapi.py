"""The OpenAPI document tells the truth about what is served."""

import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from threading import Event
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from recollect.api import openapi
from recollect.app import App
from tests.conftest import plain_client, serving

METHODS = ("get", "put", "post", "delete", "patch", "options", "head", "trace")
KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@pytest.fixture
def schema(client: httpx.Client) -> dict[str, Any]:
    return client.get("/v3/openapi").json()


def operations(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": item[method]
        for path, item in schema["paths"].items()
        for method in METHODS
        if method in item
    }


def test_it_is_made_once_and_holds_up_no_other_request(app: App, monkeypatch: pytest.MonkeyPatch):
    begun, goes_on, made = Event(), Event(), list[FastAPI]()
    whole = openapi._document

    def slow(api: FastAPI, address: str | None) -> dict[str, Any]:
        made.append(api)
        begun.set()
        assert goes_on.wait(60)
        return whole(api, address)

    monkeypatch.setattr(openapi, "_document", slow)
    monkeypatch.setattr(openapi, "_built", {})
    with serving(app) as url, plain_client(url, {}) as http, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(http.get, "/v3/openapi") for _ in range(3)]
        try:
            assert begun.wait(60)
            assert http.get("/health").status_code == 200
        finally:
            goes_on.set()
        answers = [one.result() for one in asked]

    assert len(made) == 1
    assert all(answer.json()["paths"] for answer in answers)


def test_every_operation_has_a_name_and_a_summary(schema: dict[str, Any]):
    found = operations(schema)
    names = [operation["operationId"] for operation in found.values()]

    assert len(names) == len(set(names))
    assert all(name.isalnum() for name in names)
    for operation in found.values():
        assert operation["summary"]
        assert operation["tags"]


def test_every_operation_declares_its_key_and_its_errors(schema: dict[str, Any]):
    for name, operation in operations(schema).items():
        answers = operation["responses"]
        assert "422" not in answers, name
        # An address of a file is signed.
        if name in ("GET /health", "GET /ready") or "/v3/files/" in name:
            continue
        assert operation["security"] == [{"bearer": []}], name
        for status in ("400", "401", "403", "404", "429", "500", "503"):
            [kind] = answers[status]["content"].values()
            assert kind["schema"] == {"$ref": "#/components/schemas/Error"}, name


def test_every_success_says_what_comes_back(schema: dict[str, Any]):
    for name, operation in operations(schema).items():
        successes = [status for status in operation["responses"] if status.startswith("2")]
        assert successes or name == "POST /feedback", name  # which goes to nobody here
        for status in successes:
            answer = operation["responses"][status]
            if status != "204":
                assert answer["content"], name
                assert all(kind["schema"] for kind in answer["content"].values()), name


def test_no_reference_leads_nowhere(schema: dict[str, Any]):
    def references(node: Any) -> list[str]:
        match node:
            case {"$ref": str(reference)}:
                return [reference]
            case dict():
                return [found for value in node.values() for found in references(value)]
            case list():
                return [found for value in node for found in references(value)]
            case _:
                return []

    for reference in references(schema):
        node: Any = schema
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
        assert node


def test_every_json_body_has_an_example_that_is_taken(client: httpx.Client, schema: dict[str, Any]):
    seen = 0
    for name, operation in operations(schema).items():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        shape = content["schema"]
        reference = shape.get("$ref") or shape["anyOf"][0]["$ref"]
        model = schema["components"]["schemas"][reference.rsplit("/", 1)[1]]
        assert model["examples"], name
        method, path = name.split(" ")
        for example in model["examples"]:
            for field in ("{id}", "{tag}", "{connectionId}", "{connection}", "{namespace}"):
                path = path.replace(field, "x")
            answer = client.request(method, path.replace("{provider}", "s3"), json=example)
            # The example of a connection is a crawler's; `s3` wants other metadata.
            wanting = ("/v3/settings/reset", "/v3/connections/{provider}")
            expected = {400} if name.split(" ")[1] in wanting else {200, 201, 404}
            assert answer.status_code in expected, answer.text
            seen += 1

    assert seen >= 10


def test_every_field_and_parameter_says_what_it_means(schema: dict[str, Any]):
    """In words, with an example unless its kind says all: a choice, a switch, a file, an object
    that is described itself."""
    lacking = [
        f"{model}.{name}"
        for model, described in schema["components"]["schemas"].items()
        for name, field in described.get("properties", {}).items()
        if not (field.get("description", "").strip() and _shows_a_value(field))
    ]
    lacking += [
        f"{name} {parameter['name']}"
        for name, operation in operations(schema).items()
        for parameter in operation.get("parameters", ())
        if not (parameter.get("description", "").strip() and _shows_a_value(parameter["schema"]))
    ]
    assert lacking == []


def test_titles_are_words(schema: dict[str, Any]):
    titles = {
        field["title"]
        for described in schema["components"]["schemas"].values()
        for field in described.get("properties", {}).values()
    }
    assert {"Container tags", "Is relevant", "Tool call id", "Should llm filter"} <= titles
    assert all(re.fullmatch(r"[A-Z0-9][a-z0-9]*( [a-z0-9]+)*", title) for title in titles)


def test_what_is_said_of_fields_is_said_of_fields_that_are_there(schema: dict[str, Any]):
    meanings = tomllib.loads(files("recollect.api").joinpath("fields.toml").read_text("utf-8"))
    models = schema["components"]["schemas"]
    fields = {name for model in models.values() for name in model.get("properties", ())}
    fields |= {f"{name}.{field}" for name in models for field in models[name].get("properties", ())}
    assert set(meanings["fields"]) <= fields
    parameters = {
        parameter["name"]
        for operation in operations(schema).values()
        for parameter in operation.get("parameters", ())
    }
    assert set(meanings["parameters"]) <= parameters


def test_examples_of_fields_are_of_their_kind(schema: dict[str, Any]):
    wrong = [
        (f"{model}.{name}", example)
        for model, described in schema["components"]["schemas"].items()
        for name, field in described.get("properties", {}).items()
        for example in field.get("examples", ())
        if (kinds := {one.get("type") for one in [field, *field.get("anyOf", ())]} - {None})
        and "$ref" not in str(field)
        and not any(isinstance(example, KINDS[kind]) for kind in kinds)
    ]
    assert wrong == []


def _shows_a_value(field: dict[str, Any]) -> bool:
    if field.get("examples") or {"enum", "const", "$ref"} & field.keys():
        return True
    if (
        field.get("default") is not None
        or field.get("contentMediaType")
        or field.get("format") == "binary"
    ):
        return True
    if "anyOf" in field:
        return all(_shows_a_value(one) for one in field["anyOf"])
    if field.get("type") == "array":
        return _shows_a_value(field["items"])
    return field.get("type") in ("boolean", "null")
