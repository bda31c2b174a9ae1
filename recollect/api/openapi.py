"""The OpenAPI document as it is served: our error body, no 422, which we never send, what each
operation answers, and what each field means."""

import json
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.responses import Response

from recollect import connectors
from recollect.api.edge import ANY_HOST
from recollect.orgs.settings import DEFAULTS


def _told(name: str) -> str:
    """A file of the documentation, which leaves it to the connectors which providers there are."""
    granted = next(iter(connectors.settings()))
    text = files("recollect.api").joinpath(name).read_text("utf-8")
    return Template(text).substitute(provider=connectors.example().provider, granted=granted)


ANSWERS: dict[str, Any] = json.loads(_told("answers.json"))
"""What each operation answers when all goes well: one small story, told by the service itself,
answers to the examples of the requests, with the ids and moments of one run. A new operation needs
its own there; `tests/contract/test_answers.py` says so."""
# Those of the providers' applications, too.
ANSWERS["getSettings"] = DEFAULTS | ANSWERS["getSettings"]
ANSWERS["updateSettings"]["updated"] = ANSWERS["getSettings"]
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "examples": [
        {"error": "Document not found", "details": "no document 'notes/1'"},
        {
            "error": "Invalid request parameters",
            "details": "customId: must not contain control characters",
            "issues": [
                {"path": ["customId"], "message": "must not contain control characters"},
            ],
        },
    ],
    "properties": {
        "error": {"type": "string", "description": "Short, stable sentence."},
        "details": {"type": "string", "description": "What is wrong, the field first."},
        "issues": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {
                    "path": {
                        "type": "array",
                        "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    },
                    "message": {"type": "string"},
                },
            },
        },
    },
}
_BUILDING = Lock()
_built: dict[str | None, dict[str, Any]] = {}
"""The document by address. All services of a process share it, as they share the routes."""
_FORM = "Body_"
"""Begins what FastAPI calls the model of a form, whose fields are texts."""
_SENTENCES = {
    "400": "Missing or invalid parameter.",
    "401": "Missing or unknown API key.",
    "403": "The key or the plan does not allow it.",
    "404": "No such document, tag, or path.",
    "409": "A passing conflict, or an ambiguous customId.",
    "429": "Too many requests; Retry-After says when to come back.",
    "500": "An error in the service itself.",
    "503": "A dependency does not answer; nothing was accepted, or its outcome is unknown.",
}


def serve_openapi(api: FastAPI, address: str | None) -> None:
    """Answer `/v3/openapi` with `api.openapi()`, which from now on declares, for every operation,
    each error that it may answer.

    `address` is where others reach the service, if it is known. The document is made once in a
    process: that takes half a second of the processor, and strangers may ask for it.
    """

    def build() -> dict[str, Any]:
        with _BUILDING:
            if address not in _built:
                _built[address] = _document(api, address)
        api.openapi_schema = _built[address]
        return api.openapi_schema

    def answer(_: Request) -> Response:
        return JSONResponse(api.openapi())

    api.openapi = build
    api.add_route("/v3/openapi", answer, include_in_schema=False)


def _document(api: FastAPI, address: str | None) -> dict[str, Any]:
    schema = get_openapi(
        title=api.title,
        version=api.version,
        summary=api.summary,
        description=api.description,
        routes=api.routes,
        servers=[{"url": address.rstrip("/")}] if address else None,
    )
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    components["Error"] = _ERROR
    components.pop("HTTPValidationError", None)
    components.pop("ValidationError", None)
    meanings = tomllib.loads(_told("fields.toml"))
    for name, model in components.items():
        _explain(name, model, meanings["fields"])
    for path, item in schema["paths"].items():
        for operation in item.values():
            _declare(operation, is_open=path in ANY_HOST)
            _show(operation)
            _explain_parameters(operation, meanings["parameters"])
    return schema


def _declare(operation: dict[str, Any], *, is_open: bool) -> None:
    operation["responses"].pop("422", None)
    if is_open:
        return
    for status, sentence in _SENTENCES.items():
        operation["responses"].setdefault(status, {"description": sentence})
    for status, response in operation["responses"].items():
        if status >= "400":
            response["content"] = {
                "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}
            }


def _show(operation: dict[str, Any]) -> None:
    for status, response in operation["responses"].items():
        told = response.get("content", {}).get("application/json")
        if status.startswith("2") and told and operation["operationId"] in ANSWERS:
            told["example"] = ANSWERS[operation["operationId"]]


def _explain(model: str, schema: dict[str, Any], meanings: Mapping[str, str | list[str]]) -> None:
    """Describe the fields that the model itself does not, and give them titles of words."""
    if "title" in schema:
        schema["title"] = _in_words(model)
    for name, field in schema.get("properties", {}).items():
        field["title"] = _in_words(name)
        _fill(field, meanings.get(f"{model}.{name}", meanings.get(name)))
        if model.startswith(_FORM) and "examples" in field:
            field["examples"] = [
                one if isinstance(one, str) else json.dumps(one) for one in field["examples"]
            ]


def _explain_parameters(operation: dict[str, Any], meanings: Mapping[str, str | list[str]]) -> None:
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        schema["title"] = _in_words(parameter["name"])
        _fill(schema, meanings.get(parameter["name"]))
        parameter.setdefault("description", schema.get("description", ""))


def _fill(schema: dict[str, Any], meaning: str | list[str] | None) -> None:
    """`meaning` is a description, with examples as JSON after it."""
    if meaning is None:
        return
    description, *examples = [meaning] if isinstance(meaning, str) else meaning
    schema.setdefault("description", description)
    if examples:
        schema.setdefault("examples", [json.loads(example) for example in examples])


def _in_words(name: str) -> str:
    """`containerTags` is "Container tags"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_-]", " ", name).split()
    return " ".join(words).lower().capitalize()
