"""A request as code to copy, in curl, Python and TypeScript, as the OpenAPI document has it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

KEY = "YOUR_KEY"
"""Stands for the key, which is for the reader to fill in."""
FILE = "notes.pdf"
METHODS: Mapping[str, str] = {
    "searchDocuments": "search.documents",
    "addDocument": "documents.add",
    "listDocuments": "documents.list",
    "listConnections": "connections.list",
    "uploadFile": "documents.upload_file",
    "nsAddDocument": "add",
    "nsAddDocuments": "documents.batch_add",
    "nsGetDocument": "documents.get",
    "nsUpdateDocument": "documents.update",
    "nsDeleteDocuments": "documents.delete",
    "nsUploadFile": "documents.upload_file",
    "nsReplaceWithFile": "documents.replace_with_file",
    "nsUpdateFile": "documents.update_file",
    "nsSearch": "search",
    "nsList": "list",
    "nsCountMemories": "content_management.post_ns_by_namespace_list_documents_memory_counts",
    "nsGetMemory": "memories.get",
    "nsForgetMemories": "memories.forget",
    "nsForgetMatching": "memories.forget_matching",
    "nsGetProfile": "profile",
    "nsGetBuckets": "profiles.get_buckets",
    "nsSetBuckets": "profiles.set_buckets",
    "nsDeleteBuckets": "profiles.delete_buckets",
    "nsListAllConnectors": "connectors.list_all",
    "nsListConnectors": "connectors.list",
    "nsCreateConnector": "connectors.create",
    "nsGetConnector": "connectors.get",
    "nsUpdateConnector": "connectors.update",
    "nsDeleteConnector": "connectors.delete",
    "nsSyncConnector": "connectors.sync",
    "nsListNamespaces": "namespaces.list",
    "nsListNamespacesToo": "namespaces.list",
    "nsGetNamespace": "namespaces.get",
    "nsUpdateNamespace": "namespaces.update",
    "nsDeleteNamespace": "namespaces.delete",
    "nsGetOrganization": "organization.get",
    "nsUpdateOrganization": "organization.update",
    "nsPostFeedback": "feedback.post_feedback",
}
"""Operations for which the published clients have a method that takes what the path names and the
fields of the body; all others go through their plain `get`, `post`, `patch` and `delete`."""
NEWEST = "ns"
"""Beginning of operations that clients from version 5 on call; all others are for older ones."""
AS_ONE = frozenset(["nsCreateConnector"])
"""Methods for Python that take the body as one argument, `request`."""
OURS: Mapping[str, frozenset[str]] = {
    "searchDocuments": frozenset(["asOf", "foldDuplicates"]),
    "listDocuments": frozenset(["archiveId", "containerTag", "status"]),
}
"""Fields of our own, which those methods do not know; in Python they go by `extra_body`, in
TypeScript under a comment, since its compiler refuses a field that is not declared."""
UNDECLARED = "// @ts-ignore: only Recollect has this field"
"""Above such a field of a method; a compiler may not mind it, so nothing is expected."""
SHOWN: Mapping[str, tuple[str, str]] = {
    "searchDocuments": (
        "for result in found.results:\n    print(result.score, result.title)\n",
        "for (const result of found.results) {\n  console.log(result.score, result.title);\n}\n",
    )
}
"""What is done with the answer, where it is not just printed."""


def render(
    document: Mapping[str, Any],
    operation: str,
    server: str,
    *,
    body: Mapping[str, Any] | None = None,
    path: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The request as code, by language.

    `document` is the OpenAPI document, `operation` an operationId in it; raises KeyError for one
    that it has not. Without `body` it is the operation's own example; what `path` does not name of
    the path, and what the query has to have, stands there in capitals.
    """
    verb, route, told = _operation(document, operation)
    named = path or {}
    where = re.sub(r"\{(\w+)\}", lambda m: named.get(m[1]) or _capitals(m[1]), route)
    where += _query(told)
    if "multipart/form-data" in told.get("requestBody", {}).get("content", {}):
        return _upload(operation, verb, server, where, _placed(route, named))
    sent = example(document, operation) if body is None else body
    places = _placed(route, named)
    return {
        "curl": _curl(verb, server + where, sent),
        "Python": _python(operation, verb, server, where, places, sent),
        "TypeScript": _typescript(operation, verb, server, where, places, sent),
    }


def _query(told: Mapping[str, Any]) -> str:
    """The parameters that have to be in the query."""
    asked = [
        f"{one['name']}={_capitals(one['name'])}"
        for one in told.get("parameters", ())
        if one["in"] == "query" and one.get("required")
    ]
    return "?" + "&".join(asked) if asked else ""


def _placed(route: str, named: Mapping[str, str]) -> list[str]:
    """What stands in the path, for the methods of clients."""
    return [named.get(name) or _capitals(name) for name in re.findall(r"\{(\w+)\}", route)]


def example(document: Mapping[str, Any], operation: str) -> Mapping[str, Any] | None:
    """The body that the document gives as an example; None for an operation without one."""
    _, _, told = _operation(document, operation)
    kinds = told.get("requestBody", {}).get("content", {})
    schema: Mapping[str, Any] = kinds.get("application/json", {}).get("schema", {})
    for one in (schema, *schema.get("anyOf", ())):
        found = _resolved(document, one)
        if found.get("examples") and found["examples"][0]:
            return found["examples"][0]
    return None


def operations(document: Mapping[str, Any]) -> list[str]:
    """The ids of all operations."""
    items = cast("Mapping[str, Mapping[str, Any]]", document["paths"]).values()
    return [told["operationId"] for item in items for told in item.values()]


def _operation(document: Mapping[str, Any], id: str) -> tuple[str, str, Mapping[str, Any]]:
    for route, item in cast("Mapping[str, Mapping[str, Any]]", document["paths"]).items():
        for verb, told in item.items():
            if told["operationId"] == id:
                return verb, route, told
    raise KeyError(id)


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference: str | None = schema.get("$ref")
    if reference is None:
        return schema
    found: Any = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def _capitals(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


# --- curl ----------------------------------------------------------------------------------------


def _curl(verb: str, url: str, sent: Mapping[str, Any] | None) -> str:
    plain = "get" if sent is None else "post"
    method = "" if verb == plain else f"-X {verb.upper()} "
    lines = [f"curl {method}{shlex.quote(url)}", f"-H 'Authorization: Bearer {KEY}'"]
    if sent is not None:
        lines += [
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(json.dumps(sent, ensure_ascii=False))}",
        ]
    return " \\\n  ".join(lines) + "\n"


# --- the published clients -----------------------------------------------------------------------


def _python(
    operation: str,
    verb: str,
    server: str,
    where: str,
    places: Sequence[str],
    sent: Mapping[str, Any] | None,
) -> str:
    head = (
        f"# pip install '{_wanted(operation)}'\n"
        "from supermemory import Supermemory\n\n"
        f"client = Supermemory(api_key={_literal(KEY)}, base_url={_literal(server)})\n"
    )
    if operation in METHODS:
        known, ours = _parted(operation, sent or {})
        rows = "".join(f"    {_snake(name)}={_literal(v)},\n" for name, v in known.items())
        if operation in AS_ONE:
            rows = f"    request={_literal(known)},\n"
        rows += f"    extra_body={_literal(ours)},\n" if ours else ""
        rows = "".join(f"    {_literal(place)},\n" for place in places) + rows
        arguments = f"\n{rows}" if rows else ""
        call = f"client.{METHODS[operation]}({arguments})"
    else:
        rows = f"    {_literal(where)},\n    cast_to=object,\n"
        if sent is not None:
            rows += f"    body={_literal(sent)},\n"
        call = f"client.{verb}(\n{rows})"
    told = SHOWN[operation][0] if operation in SHOWN else "print(found)\n"
    return f"{head}found = {call}\n\n{told}"


def _parted(operation: str, sent: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the method knows, and what is ours alone."""
    own = OURS.get(operation, frozenset())
    known = {name: value for name, value in sent.items() if name not in own}
    return known, {name: sent[name] for name in sent if name in own}


def _typescript(
    operation: str,
    verb: str,
    server: str,
    where: str,
    places: Sequence[str],
    sent: Mapping[str, Any] | None,
) -> str:
    head = _typescript_head(operation, server)
    body = "" if sent is None else _json(sent, 2)
    if operation in METHODS:
        for name in _parted(operation, sent or {})[1]:
            body = body.replace(f'\n  "{name}":', f'\n  {UNDECLARED}\n  "{name}":')
        given = ", ".join([*map(_json, places), *([body] if body else [])])
        call = f"client.{_camel(METHODS[operation])}({given})"
    else:
        more = f", {{ body: {body} }}" if body else ""
        call = f"client.{verb}({_json(where)}{more})"
    told = SHOWN[operation][1] if operation in SHOWN else "console.log(found);\n"
    return f"{head}const found = await {call};\n{told}"


def _typescript_head(operation: str, server: str) -> str:
    newest = operation.startswith(NEWEST)
    option = "baseUrl" if newest else "baseURL"
    return (
        f"// {'supermemory 5, if npm has it' if newest else 'npm install supermemory@4'}\n"
        'import Supermemory from "supermemory";\n\n'
        f'const client = new Supermemory({{ apiKey: "{KEY}", {option}: {_json(server)} }});\n'
    )


def _wanted(operation: str) -> str:
    """Which version of the Python client has the method."""
    return "supermemory>=5" if operation.startswith(NEWEST) else "supermemory<4"


def _upload(
    operation: str, verb: str, server: str, where: str, places: Sequence[str]
) -> dict[str, str]:
    """A file, which no example can hold."""
    method, newest = METHODS[operation], operation.startswith(NEWEST)
    change = "" if verb == "post" else f"-X {verb.upper()} "
    file = f"Path({_literal(FILE)})" + (".read_bytes()" if newest else "")
    first = "".join(f"{_json(place)}, " for place in places)
    return {
        "curl": f"curl {change}{shlex.quote(server + where)} \\\n"
        f"  -H 'Authorization: Bearer {KEY}' \\\n"
        f"  -F file=@{FILE}\n",
        "Python": f"# pip install '{_wanted(operation)}'\n"
        "from pathlib import Path\n\nfrom supermemory import Supermemory\n\n"
        f"client = Supermemory(api_key={_literal(KEY)}, base_url={_literal(server)})\n"
        f"found = client.{method}({first}file={file})\n\nprint(found)\n",
        "TypeScript": 'import fs from "node:fs";\n'
        + _typescript_head(operation, server)
        + f"const found = await client.{_camel(method)}({first}{{\n"
        f"  file: fs.createReadStream({_json(FILE)}),\n}});\nconsole.log(found);\n",
    }


def _literal(value: object) -> str:
    """A JSON value in Python's spelling; JSON's strings are Python's as well."""
    match value:
        case None | bool():
            return repr(value)
        case Mapping():
            pairs = cast("Mapping[str, object]", value).items()
            return "{" + ", ".join(f"{_json(key)}: {_literal(v)}" for key, v in pairs) + "}"
        case str():
            return _json(value)
        case Sequence():
            return "[" + ", ".join(map(_literal, cast("Sequence[object]", value))) + "]"
        case _:
            return _json(value)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda capital: "_" + capital[0].lower(), name)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)
