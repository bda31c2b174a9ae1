"""Google's own description of an API, as the judge of what goes over the wire.

    contract = Contract("drive.v3")
    contract.check_request("GET", "/drive/v3/files?pageSize=1001", b"")
    # ["drive.files.list: pageSize=1001 is more than 1000"]

The discovery documents come with Google's official client (static discovery). They know names,
types and bounds; not which fields are always there, nor anything about the course of time.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import googleapiclient.discovery_cache

DOCUMENTS = Path(str(googleapiclient.discovery_cache.__file__)).parent / "documents"
SAID_IN_PROSE = re.compile(r"`([^`]+)`")
PROSE_ENUMS = {"corpora", "spaces"}
"""parameters whose values the documents name in their descriptions only"""


@dataclass(frozen=True)
class Method:
    id: str
    verb: str
    path: re.Pattern[str]
    said: Mapping[str, Any]
    upload: bool = False


class Contract:
    """One API; `check_…` return sentences, none if all is well."""

    def __init__(self, name: str) -> None:
        self._document: dict[str, Any] = json.loads((DOCUMENTS / f"{name}.json").read_text())
        self._schemas: dict[str, Any] = self._document["schemas"]

    @cached_property
    def methods(self) -> list[Method]:
        return list(self._methods(self._document))

    def check_request(self, verb: str, target: str, body: bytes) -> list[str]:
        """`target` is path and query as they were sent."""
        parts = urlsplit(target)
        method = self.method(verb, target)
        if method is None:
            return [f"{verb} {parts.path} is no method of the API"]
        query = parse_qsl(parts.query, keep_blank_values=True)
        found = [*self._query(method, query), *self._body(method, body)]
        return [f"{method.id}: {fault}" for fault in found]

    def check_answer(
        self, verb: str, target: str, status: int, body: bytes, content_type: str = ""
    ) -> list[str]:
        method = self.method(verb, target)
        if method is None:
            return [] if status == 404 else [f"{verb} {target} is no method, but got {status}"]
        query = dict(parse_qsl(urlsplit(target).query))
        return [
            f"{method.id}: {f}" for f in self._answer(method, query, status, body, content_type)
        ]

    def method(self, verb: str, target: str) -> Method | None:
        path = urlsplit(target).path
        for method in self.methods:
            if method.verb == verb and method.path.fullmatch(path):
                return method
        return None

    def check_value(self, value: Any, schema: str) -> list[str]:
        return list(self._value(value, {"$ref": schema}, schema))

    # --- requests ------------------------------------------------------------------------------

    def _query(self, method: Method, query: list[tuple[str, str]]) -> Iterator[str]:
        own: dict[str, Any] = method.said.get("parameters", {})
        known = {**self._document["parameters"], **own}
        names = [name for name, _ in query]
        for name, value in query:
            spec = known.get(name)
            if spec is None or spec.get("location") != "query":
                yield f"there is no parameter {name!r}"
                continue
            if spec.get("deprecated"):
                yield f"{name} is deprecated"
            if names.count(name) > 1 and not spec.get("repeated"):
                yield f"{name} is given more than once"
            yield from _parameter(name, value, spec)
            if name == "fields" and "response" in method.said:
                yield from self._fields(value, method.said["response"]["$ref"])
        for name, spec in own.items():
            # What the method cannot do without is named by the order of its parameters.
            needed = spec.get("required") or name in method.said.get("parameterOrder", ())
            if needed and spec["location"] == "query" and name not in names:
                yield f"{name} is missing"
        if dict(query).get("alt") == "media" and not method.said.get("supportsMediaDownload"):
            yield "alt=media is not for this method"

    def _fields(self, mask: str, schema: str) -> Iterator[str]:
        """The partial response syntax: `a,b(c,d/e),*`."""
        try:
            tree = parse_mask(mask)
        except ValueError as error:
            yield f"fields: {error}"
            return
        yield from self._masked(tree, {"$ref": schema}, "fields")

    def _masked(self, tree: "Mask", spec: Mapping[str, Any], where: str) -> Iterator[str]:
        spec = self._resolved(spec)
        if spec.get("type") == "array":
            spec = self._resolved(spec["items"])
        properties: Mapping[str, Any] = spec.get("properties", {})
        for name, below in tree.items():
            if name == "*" or (not properties and "additionalProperties" in spec):
                continue
            if name not in properties:
                yield f"{where}: there is no field {name!r}"
                continue
            if properties[name].get("deprecated"):
                yield f"{where}: {name} is deprecated"
            if below:
                yield from self._masked(below, properties[name], f"{where}.{name}")

    def _body(self, method: Method, body: bytes) -> Iterator[str]:
        if method.upload:
            return
        if "request" not in method.said:
            if body:
                yield "a body was sent, but it takes none"
            return
        try:
            value: Any = json.loads(body or b"{}")
        except ValueError:
            yield "the body is no JSON"
            return
        schema = method.said["request"]["$ref"]
        yield from self._value(value, {"$ref": schema}, schema)

    # --- answers -------------------------------------------------------------------------------

    def _answer(
        self, method: Method, query: Mapping[str, str], status: int, body: bytes, mime: str
    ) -> Iterator[str]:
        if status in (204, 304):
            if body:
                yield f"{status} with a body"
            return
        if not 200 <= status < 300:
            yield from _error(status, body, mime)
            return
        if query.get("alt") == "media" or "response" not in method.said:
            return
        if not mime.startswith("application/json"):
            yield f"the answer is {mime or 'of no type'}, not JSON"
        try:
            value: Any = json.loads(body)
        except ValueError:
            yield "the answer is no JSON"
            return
        schema = method.said["response"]["$ref"]
        yield from self._value(value, {"$ref": schema}, schema)
        if "fields" in query:
            yield from _beyond(value, parse_mask(query["fields"]), schema)

    # --- values --------------------------------------------------------------------------------

    def _value(self, value: Any, spec: Mapping[str, Any], where: str) -> Iterator[str]:
        spec = self._resolved(spec)
        match spec.get("type"):
            case "object":
                yield from self._object(value, spec, where)
            case "array":
                if not isinstance(value, list):
                    yield f"{where} is no list"
                    return
                for at, entry in enumerate(value):
                    yield from self._value(entry, spec["items"], f"{where}[{at}]")
            case "any" | None:
                return
            case kind:
                yield from _scalar(value, str(kind), spec, where)

    def _object(self, value: Any, spec: Mapping[str, Any], where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where} is no object"
            return
        properties = spec.get("properties", {})
        for name, below in value.items():
            inner = properties.get(name, spec.get("additionalProperties"))
            if inner is None:
                yield f"{where} has no {name!r}"
                continue
            yield from self._value(below, inner, f"{where}.{name}")

    def _resolved(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._schemas[spec["$ref"]] if "$ref" in spec else spec

    def _methods(self, node: Mapping[str, Any]) -> Iterator[Method]:
        for said in node.get("methods", {}).values():
            path = said.get("flatPath", said["path"])
            base = "/" + self._document["servicePath"]
            yield Method(said["id"], said["httpMethod"], _pattern(base + path), said)
            for protocol in said.get("mediaUpload", {}).get("protocols", {}).values():
                yield Method(
                    said["id"], said["httpMethod"], _pattern(protocol["path"]), said, upload=True
                )
        for resource in node.get("resources", {}).values():
            yield from self._methods(resource)


# --- partial responses -------------------------------------------------------------------------

Mask = dict[str, "Mask"]


def parse_mask(text: str) -> Mask:
    """`files(id,owners/name),nextPageToken` as a tree; empty below a name means all of it.

    Raises ValueError.
    """
    tokens = re.findall(r"[A-Za-z0-9_*-]+|[(),/]|\S", text)
    mask, rest = _parse(tokens)
    if rest or not mask:
        raise ValueError(f"{text!r} is no list of fields")
    return mask


def masked(value: Any, mask: Mask) -> Any:
    """What is left of an answer."""
    if not mask or "*" in mask:
        return value
    if isinstance(value, list):
        return [masked(entry, mask) for entry in value]
    if not isinstance(value, dict):
        return value
    return {name: masked(value[name], below) for name, below in mask.items() if name in value}


def _parse(tokens: list[str]) -> tuple[Mask, list[str]]:
    mask: Mask = {}
    while True:
        if not tokens or not re.fullmatch(r"[\w*-]+", tokens[0]):
            raise ValueError("a name of a field is missing")
        name, tokens = tokens[0], tokens[1:]
        below = mask.setdefault(name, {})
        while tokens[:1] == ["/"]:
            if len(tokens) < 2 or not re.fullmatch(r"[\w*-]+", tokens[1]):
                raise ValueError("a name of a field is missing")
            below, tokens = below.setdefault(tokens[1], {}), tokens[2:]
        if tokens[:1] == ["("]:
            inner, tokens = _parse(tokens[1:])
            if tokens[:1] != [")"]:
                raise ValueError("a bracket is not closed")
            below.update(inner)
            tokens = tokens[1:]
        if tokens[:1] != [","]:
            return mask, tokens
        tokens = tokens[1:]


def _beyond(value: Any, mask: Mask, where: str) -> Iterator[str]:
    if masked(value, mask) != value:
        yield f"{where}: the answer has fields that were not asked for"


# --- single values -----------------------------------------------------------------------------


def _parameter(name: str, value: str, spec: Mapping[str, Any]) -> Iterator[str]:
    kind = spec.get("type")
    if kind == "boolean" and value not in ("true", "false"):
        yield f"{name}={value} is neither true nor false"
    if kind == "integer":
        if not re.fullmatch(r"-?\d+", value):
            yield f"{name}={value} is no number"
            return
        if "maximum" in spec and int(value) > int(spec["maximum"]):
            yield f"{name}={value} is more than {spec['maximum']}"
        if "minimum" in spec and int(value) < int(spec["minimum"]):
            yield f"{name}={value} is less than {spec['minimum']}"
    if "pattern" in spec and not re.fullmatch(spec["pattern"], value):
        yield f"{name}={value} does not look like {spec['pattern']}"
    allowed = spec.get("enum")
    if allowed is None and name in PROSE_ENUMS:
        allowed = SAID_IN_PROSE.findall(spec.get("description", ""))
    if allowed and value not in allowed:
        yield f"{name}={value} is none of {', '.join(allowed)}"


def _scalar(value: Any, kind: str, spec: Mapping[str, Any], where: str) -> Iterator[str]:
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    if not isinstance(value, types[kind]) or (kind != "boolean" and isinstance(value, bool)):
        yield f"{where} is a {type(value).__name__}, not a {kind} ({spec.get('format', 'plain')})"
        return
    if "enum" in spec and value not in spec["enum"]:
        yield f"{where}: {value!r} is none of {', '.join(spec['enum'])}"
    if not _fits(value, spec.get("format", "")):
        yield f"{where}: {value!r} is no {spec['format']}"


def _fits(value: Any, form: str) -> bool:
    match form:
        case "int64" | "uint64":
            return re.fullmatch(r"-?\d{1,20}", str(value)) is not None
        case "int32" | "uint32":
            return -(2**31) <= int(value) < 2**32
        case "date-time" | "google-datetime":
            return "T" in value and _is_time(value)
        case "byte":
            return _is_base64(value)
        case _:
            return True


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_base64(value: str) -> bool:
    try:
        base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False
    return True


def _error(status: int, body: bytes, mime: str) -> Iterator[str]:
    """The form that all of Google's JSON APIs give errors; what is not JSON came from elsewhere."""
    if not mime.startswith("application/json"):
        return
    try:
        error: Any = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        yield f"a {status} without an error in its body"
        return
    if error.get("code") != status or not isinstance(error.get("message"), str):
        yield f"a {status} whose body says code {error.get('code')!r}"


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{([^}]*)\}", unquote(path))
    # `{+name}` may hold slashes (RFC 6570 reserved expansion).
    inner = [".+" if part.startswith("+") else "[^/]+" for part in parts[1::2]]
    fixed = [re.escape(part) for part in parts[::2]]
    return re.compile("".join(f + i for f, i in zip(fixed, [*inner, ""], strict=True)))


__all__ = ["Contract", "Mask", "Method", "masked", "parse_mask"]
