"""The OpenAPI document as it is served: our error body, no 422, which we never send, and what each
operation answers."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from recollect.api.answers import ANSWERS
from recollect.api.edge import ANY_HOST

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


def document_errors(api: FastAPI, address: str | None) -> None:
    """Make `api.openapi()` declare, for every operation, each error that it may answer.

    `address` is where others reach the service, if it is known.
    """

    def build() -> dict[str, Any]:
        if api.openapi_schema is None:
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
            for path, item in schema["paths"].items():
                for operation in item.values():
                    _declare(operation, is_open=path in ANY_HOST)
                    _show(operation)
            api.openapi_schema = schema
        return api.openapi_schema

    api.openapi = build


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
