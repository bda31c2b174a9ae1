"""`/docs`: the reference of the API, made of its OpenAPI document.

A page like the others here: under the same policy, with nothing from elsewhere, for anyone who
reads without a session and without a network.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from recollect.console import _code, _room
from recollect.console._rendering import inline

router = APIRouter(route_class=_room.PublicPage, include_in_schema=False)
_DRAWING = threading.Lock()
Schema = Mapping[str, Any]
Kind = Sequence[tuple[str, str | None]]
"""A type in words, each with the shape that it names, if it names one."""
BOUNDS = (
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " elements"),
    ("minimum", "maximum", ""),
)


@dataclass(frozen=True, slots=True)
class Described:
    """A field of a body, or a parameter."""

    name: str
    kind: Kind
    required: bool
    about: Markup
    place: str = ""
    """of a parameter: path, query or header"""


@dataclass(frozen=True, slots=True)
class DocumentedAnswer:
    status: str
    about: Markup
    kind: Kind
    example: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    verb: str
    path: str
    summary: str
    about: Markup
    needs_key: bool
    parameters: Sequence[Described]
    body: Sequence[Described]
    answers: Sequence[DocumentedAnswer]
    code: Mapping[str, str]


@router.get("/docs")
def reference(request: Request) -> Response:
    """Drawn once: that takes half a second of the processor, and strangers may ask for it."""
    state = request.app.state
    with _DRAWING:
        if not hasattr(state, "reference"):
            state.reference = _drawn(request)
    return HTMLResponse(state.reference)


def _drawn(request: Request) -> bytes:
    document: Schema = request.app.openapi()
    config = _room.app_of(request).config
    server = (config.public_url or config.address).rstrip("/")
    values = {
        "about": document["info"],
        "description": inline(document["info"].get("description", "")),
        "openapi": f"{request.scope['root_path']}/v3/openapi",
        "groups": groups(document, server),
        "shapes": list(shapes(document)),
    }
    return bytes(_room.page(request, "reference.html", values).body)


def groups(document: Schema, server: str) -> dict[str, list[Operation]]:
    """The operations by the first tag of each, in the document's order."""
    found: dict[str, list[Operation]] = {}
    for path, item in cast("Mapping[str, Schema]", document["paths"]).items():
        for verb, told in item.items():
            tag = next(iter(told.get("tags", ())), "more")
            found.setdefault(tag, []).append(_operation(document, server, path, verb, told))
    return found


def shapes(document: Schema) -> Iterator[tuple[str, Markup, list[Described]]]:
    """Name, description and fields of each shape."""
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield name, inline(schema.get("description", "")), list(_fields(document, schema))


def _operation(document: Schema, server: str, path: str, verb: str, told: Schema) -> Operation:
    contents: Mapping[str, Schema] = told.get("requestBody", {}).get("content", {})
    bodies = [content.get("schema", {}) for content in contents.values()]
    return Operation(
        id=told["operationId"],
        verb=verb.upper(),
        path=path,
        summary=told.get("summary", path),
        about=inline(told.get("description", "")),
        needs_key=bool(told.get("security")),
        parameters=[
            Described(
                one["name"],
                _kind(one.get("schema", {})),
                one.get("required", False),
                _about(one.get("schema", {}), one.get("description")),
                one["in"],
            )
            for one in told.get("parameters", ())
        ],
        body=[field for schema in bodies[:1] for field in _fields(document, schema)],
        answers=[_answer(status, one) for status, one in told.get("responses", {}).items()],
        code=_code.render(document, told["operationId"], server),
    )


def _answer(status: str, told: Schema) -> DocumentedAnswer:
    contents = list(cast("Mapping[str, Schema]", told.get("content", {})).values())
    content: Schema = contents[0] if contents else {}
    example = content.get("example")
    shown = example if isinstance(example, str) else json.dumps(example, indent=2)
    kind: Kind = _kind(content["schema"]) if "schema" in content else []
    return DocumentedAnswer(
        status, inline(told.get("description", "")), kind, None if example is None else shown
    )


def _fields(document: Schema, schema: Schema) -> Iterator[Described]:
    """The fields of an object; of one that may have several shapes those of each."""
    known: set[str] = set()
    for one in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        named = one.get("$ref", "").rpartition("/")[2]
        found: Schema = document["components"]["schemas"][named] if named else one
        if found is not schema and ("anyOf" in found or "oneOf" in found):
            yield from (one for one in _fields(document, found) if one.name not in known)
            continue
        for name, told in found.get("properties", {}).items():
            if name not in known:
                known.add(name)
                required = name in found.get("required", ())
                yield Described(name, _kind(told), required, _about(told))


def _about(schema: Schema, description: str | None = None) -> Markup:
    """What is said of a value, and its bounds."""
    told: list[str] = []
    for one in (schema, *schema.get("anyOf", ())):
        for least, most, unit in BOUNDS:
            match one.get(least), one.get(most):
                case None, None:
                    pass
                case None, limit:
                    told.append(f"at most {limit:,}{unit}")
                case limit, None:
                    told.append(f"at least {limit:,}{unit}")
                case low, high:
                    told.append(f"{low:,} to {high:,}{unit}")
        if "pattern" in one:
            told.append(f"must match `{one['pattern']}`")
        if one.get("default") is not None and one is schema:
            told.append(f"`{json.dumps(one['default'])}` if absent")
    said = description or schema.get("description", "")
    if said and told:
        said = f"{said.removesuffix('.')}. "
    bounds = "; ".join(told)
    return inline(f"{said}{bounds[:1].upper()}{bounds[1:]}." if told else said)


def _kind(schema: Schema) -> Kind:
    """The type in words: `string`, `array of Message`, `"asc" or "desc"`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [(name, name)]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [_kind(one) for one in schema[several] if one.get("type") != "null"]
            return [
                word for at, kind in enumerate(kinds) for word in ([_OR] if at else []) + [*kind]
            ]
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return [(" or ".join(json.dumps(value) for value in values), None)]
    if schema.get("type") == "array":
        return [("array of ", None), *_kind(schema.get("items", {}))]
    words = schema.get("type", "any value")
    return [(f"{words} ({schema['format']})" if "format" in schema else words, None)]


_OR = (" or ", None)
