"""Clauses of the contract that no other test would miss: transport, errors, keys, repair."""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

import httpx
import pytest
from psycopg import sql

from recollect import connectors, documents
from recollect.app import App
from recollect.connectors.base import Resource, Source
from recollect.db import Database
from recollect.errors import Permanent, Transient
from recollect.model import Org, Scope, Stage
from recollect.orgs import orgs
from recollect.sync import item_filter
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import serving
from tests.contract import test_isolation
from tests.contract.calls import add, found, get, listed, refused, rows, upload
from tests.contract.test_isolation import ROWS, Names
from tests.contract.test_openapi import operations
from tests.contract.test_queries import MOST, Statements
from tests.fakes.embedder import WordEmbedder
from tests.fakes.shelf import SHELVES, ShelfConnector

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
A_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
MANY_FLAGS = 15
MANY_QUERIES = 30
JSON = {"content-type": "application/json"}
owned = test_isolation.owned  # fixtures: an organisation that has something of everything
shelf = test_isolation.shelf
NOT_OF_A_SHELF = ("listConnectionResources", "getFileUrl", "getContainerTagMerge")


def bodies(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, a path that names nothing, and the model of each JSON body."""
    for name, operation in operations(schema).items():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        shape = content["schema"]
        reference = shape.get("$ref") or shape["anyOf"][0]["$ref"]
        method, path = name.split(" ")
        path = re.sub(r"\{\w+\}", "x", path.replace("{provider}", "s3"))
        yield method, path, schema["components"]["schemas"][reference.rsplit("/", 1)[1]]


@pytest.fixture
def schema(client: httpx.Client) -> dict[str, Any]:
    return client.get("/v3/openapi").json()


# --- 2: transport ------------------------------------------------------------------------------


def test_null_in_any_optional_field_is_the_same_as_absent(
    client: httpx.Client, schema: dict[str, Any]
):
    tried = 0
    for method, path, model in bodies(schema):
        # The first deletes it; and there null clears, while a body without the field is refused.
        if path in ("/v3/settings/reset", "/ns/x", "/organization"):
            continue
        required = {name: model["examples"][0].get(name) for name in model.get("required", [])}
        optional = [name for name in model["properties"] if name not in required]
        absent = client.request(method, path, json=required)
        # Of `id` or `content`, of `ids` or `failed`, one is needed: then both are refused alike.
        null = client.request(method, path, json={**required, **dict.fromkeys(optional)})
        assert null.status_code == absent.status_code, (path, null.text)
        tried += len(optional)
    assert tried > 100


def test_null_inside_an_object_is_the_same_as_absent(client: httpx.Client):
    patterns = {"urlPatterns": ["*/a"], "titlePatterns": None}
    shown = client.patch("/v3/settings", json={"includeItems": patterns}).json()["updated"]
    assert shown["includeItems"] == {"urlPatterns": ["*/a"]}
    body = {"q": "x", "searchMode": None, "include": {"documents": None, "chunks": True}}
    assert client.post("/v4/search", json=body).status_code == 200


def test_unknown_fields_are_ignored_everywhere_and_named(
    client: httpx.Client, schema: dict[str, Any]
):
    unknown = {"unheardOf": {"deep": [1]}, "provider": "x", "source": 5}
    for method, path, model in bodies(schema):
        if is_closed(model):
            continue
        example = {} if path == "/v3/settings/reset" else model["examples"][0]
        more = {name: value for name, value in unknown.items() if name not in model["properties"]}
        plain = client.request(method, path, json=example)
        answer = client.request(method, path, json={**example, **more})
        # 409: the memory that the first one forgot
        assert answer.status_code in (plain.status_code, 409), path
        if answer.is_success and isinstance(answer.json(), dict):  # an array has no room for it
            assert answer.json()["warnings"][0].startswith("unheardOf: no such field"), path


def test_unknown_fields_are_named_by_what_acts_on_something_that_is_there(
    client: httpx.Client, org: Org
):
    """An import with a misspelt tag synced all connections, and did not say why."""
    meant = "containerTgs: no such field, ignored; did you mean containerTags?"
    wrong = {"containerTgs": ["b"]}
    site = {"metadata": {"startUrl": "http://127.0.0.1:1/"}, "containerTags": ["a"]}
    id = client.post("/v3/connections/web-crawler", json=site).json()["id"]
    ask = {"containerTag": "a", "questions": [{"question": "What?", "wrds": "x", "words": "y"}]}
    asked = client.post("/v3/test-questions", json=ask).json()
    question = f"/v3/test-questions/{asked['questions'][0]['id']}"
    put = {"question": "Who?", "document": "x", **wrong}

    crawler = "/v3/connections/web-crawler"
    sentence = "questions.0.wrds: no such field, ignored; did you mean words?"
    assert asked["warnings"] == [sentence]
    assert client.put(question, json=put).json()["warnings"][0].startswith("containerTgs: ")
    assert client.post(f"{crawler}/import", json=wrong).json()["warnings"] == [meant]
    plain = client.post(f"{crawler}/import", json=wrong, headers={"accept": "text/plain"}).text
    assert plain == f"Sync of 1 web-crawler connection requested\n{meant}"
    assert client.post(f"{crawler}/connection", json=wrong).json()["warnings"] == [meant]
    gone = client.request("DELETE", f"/v3/connections/{id}", json=wrong).json()
    assert gone == {"id": id, "provider": "web-crawler", "warnings": [meant]}
    everything = {"confirmation": org.name, **wrong}
    assert client.post("/v3/settings/reset", json=everything).json()["warnings"]


def test_unknown_fields_are_named_inside_objects_too(client: httpx.Client):
    """A pattern in a misspelt list was no filter at all."""
    patterns = {"includeItems": {"urlPattern": ["*/docs/*"]}}
    search = {"q": "x", "include": {"chunk": True, "documents": True}}
    assert client.patch("/v3/settings", json=patterns).json()["warnings"] == [
        "includeItems.urlPattern: no such field, ignored; did you mean urlPatterns?"
    ]
    assert client.post("/v4/search", json=search).json()["warnings"][0] == (
        "include.chunk: no such field, ignored; did you mean chunks?"
    )


def test_unknown_fields_are_named_where_content_comes_in_or_is_asked_for(client: httpx.Client):
    """A misspelt field went unnoticed: the document was in the wrong tag."""
    meant = "containertag: no such field, ignored; did you mean containerTag?"
    wrong = {"containertag": "b"}
    note = {"content": "A heron.", **wrong}
    added = client.post("/v3/documents", json=note).json()
    batch = {"documents": [note], "metdata": {}}
    batched = client.post("/v3/documents/batch", json=batch).json()
    file = {"file": ("a.txt", b"A heron.")}
    uploaded = client.post("/v3/documents/file", files=file, data=wrong).json()
    talk = {"conversationId": "c", "messages": [{"role": "user", "content": "x"}], **wrong}
    known = {"containerTag": "a", "memories": [{"content": "Ann sings.", "is_statc": True}]}

    assert added["warnings"] == [meant]
    assert batched["results"][0]["warnings"] == [meant]
    one_name = client.post("/v3/documents/batch", json={"documents": ["x"], "customId": "n"})
    assert one_name.json()["warnings"] == ["customId: no such field, ignored."]
    assert batched["warnings"] == ["metdata: no such field, ignored; did you mean metadata?"]
    assert uploaded["warnings"] == [meant]
    for method, path, body in (
        ("PATCH", f"/v3/documents/{added['id']}", wrong),
        ("POST", "/v3/documents/list", wrong),
        ("POST", "/v4/conversations", talk),
        ("POST", "/v3/search", {"q": "x", **wrong}),
        ("POST", "/v4/search", {"q": "x", **wrong}),
    ):
        assert meant in client.request(method, path, json=body).json()["warnings"], path
    answer = client.post("/v4/memories", json=known).json()
    assert answer["warnings"] == [
        "memories.0.is_statc: no such field, ignored; did you mean isStatic?"
    ]
    named = {"containerTag": "a", "content": "Ann sings.", **wrong}
    for method, path, body in (
        ("POST", "/v4/memories/list", {"containerTags": ["a"], **wrong}),
        ("POST", "/v4/profile", {"containerTag": "a", **wrong}),
        ("PATCH", "/v4/memories", {**named, "newContent": "Ann sings."}),
        ("DELETE", "/v4/memories", named),
    ):
        assert client.request(method, path, json=body).json()["warnings"] == [meant], path
    site = {"metadata": {"startUrl": "http://127.0.0.1:1/"}, **wrong}
    hook = client.post("/v3/webhooks", json={"url": "http://127.0.0.1:1/", **wrong}).json()
    connection = client.post("/v3/connections/web-crawler", json=site).json()
    answers = [hook, connection]
    for method, path, body in (
        ("POST", "/v3/auth/scoped-key", {"containerTag": "a", **wrong}),
        ("PATCH", f"/v3/webhooks/{hook['id']}", wrong),
        ("PATCH", f"/v3/connections/{connection['id']}", wrong),
        ("PATCH", "/v3/container-tags/a", wrong),
    ):
        answers.append(client.request(method, path, json=body).json())
    for one in answers:
        assert one["warnings"][0].startswith("containertag: no such field, ignored"), one
    answer = client.patch("/v3/settings", json={"filterPromt": "x"}).json()
    assert answer["warnings"] == ["filterPromt: no such field, ignored; did you mean filterPrompt?"]
    assert "warnings" not in client.post("/v3/documents", json={"content": "A heron."}).json()


def test_of_many_unknown_fields_a_few_are_named_in_part(client: httpx.Client):
    body = {f"\ud800{n}" + "x" * 300: n for n in range(50)}
    sent = json.dumps({"content": "A heron.", **body})
    answer = client.post(
        "/v3/documents", content=sent, headers={"Content-Type": "application/json"}
    ).json()
    assert len(answer["warnings"]) == 10
    assert all(len(told) < 150 for told in answer["warnings"])


def test_bodies_of_the_namespace_door_are_closed(client: httpx.Client, schema: dict[str, Any]):
    closed = [(method, path, model) for method, path, model in bodies(schema) if is_closed(model)]
    assert {path.split("/")[1] for _, path, _ in closed} == {"ns", "organization"}
    assert len(closed) > 15
    for method, path, model in closed:
        body = {**model["examples"][0], "containerTag": "b"}
        refused(client.request(method, path, json=body), 400, "containerTag: unknown field")


def is_closed(model: dict[str, Any]) -> bool:
    return model.get("additionalProperties") is False


def test_a_slip_in_what_limits_a_deletion_deletes_nothing(client: httpx.Client):
    """Each of them deleted for good what was to stay."""
    site = {"metadata": {"startUrl": "http://127.0.0.1:1/"}, "containerTags": ["a"]}
    own = f"/v3/connections/{client.post('/v3/connections/web-crawler', json=site).json()['id']}"
    id = add(client, containerTag="a", filepath="notes/1")

    for path in (own, "/v3/connections/web-crawler"):
        by = {"containerTags": ["a"]}
        for slip in ("delete_documents=false", "deleteDocument=false"):
            refused(client.request("DELETE", f"{path}?{slip}", json=by), 400, "deleteDocuments")
        body = {**by, "deleteDocuments": False}
        refused(client.request("DELETE", path, json=body), 400, "belongs in the query")
    assert client.get(own).status_code == 200
    for body in (
        {"ids": [], "containerTags": ["a"]},
        {"containerTags": [], "filepath": "notes/"},
        {"ids": [], "filepath": "notes/"},
    ):
        refused(client.request("DELETE", "/v3/documents/bulk", json=body), 400, "must not be empty")
    body = {"containerTags": ["a"], "filePath": "drafts/"}
    refused(
        client.request("DELETE", "/v3/documents/bulk", json=body), 400, "did you mean filepath?"
    )
    assert get(client, id)["id"] == id
    body = {"containerTag": "a", "query": "heron", "dryrun": True}
    told = refused(client.post("/v4/memories/forget-matching", json=body), 400)
    assert told["details"] == "dryrun: no such field; did you mean dryRun?"


def test_a_field_of_a_form_comes_once(client: httpx.Client):
    """Of two files, or two tags, one was lost."""
    files = [("file", ("a.txt", b"one")), ("file", ("b.txt", b"two"))]
    tags = [("containerTags", (None, name)) for name in ("a", "b")]
    path = "/v3/documents/file"
    refused(client.post(path, files=files), 400, "file: stands in the form twice")
    refused(client.post(path, files=[*files[:1], *tags]), 400, "containerTags: stands")
    assert listed(client) == []


@pytest.mark.parametrize("name", ["containerTags[]", "metadata[a]"])
def test_a_field_that_a_client_spread_is_refused(client: httpx.Client, name: str):
    """As the published clients send lists and objects; the file would be kept without it."""
    files = [("file", ("a.txt", b"one")), (name, (None, "a"))]
    refused(client.post("/v3/documents/file", files=files), 400, f"{name}: send lists and objects")
    assert listed(client) == []


def test_a_compressed_body_is_refused_by_its_name(client: httpx.Client):
    body = gzip.compress(b'{"content": "A heron."}')
    for encoding in ("gzip", "utf-8, gzip"):
        headers = {**JSON, "content-encoding": encoding}
        answer = client.post("/v3/documents", content=body, headers=headers)
        refused(answer, 400, "content-encoding")


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "utf8", "identity", "identity, utf-8", ""])
def test_a_charset_in_place_of_an_encoding_is_a_slip(client: httpx.Client, encoding: str):
    body = '{"content": "Die Störche."}'.encode()
    headers = {**JSON, "content-encoding": encoding}
    answer = client.post("/v3/documents", content=body, headers=headers)
    assert answer.status_code in (200, 201), answer.text


def test_a_turn_that_is_no_text_is_refused_in_our_words(client: httpx.Client):
    body = {"conversationId": "c", "messages": [{"role": "user", "content": 5}]}
    told = refused(client.post("/v4/conversations", json=body), 400)
    assert told["details"] == "messages.0.content: must be text, or a list of parts"


def test_an_import_is_answered_as_json_where_that_is_named_first(client: httpx.Client):
    site = {"metadata": {"startUrl": "http://127.0.0.1:1/"}}
    client.post("/v3/connections/web-crawler", json=site)
    for accept, kind in (
        ("text/plain", "text/plain; charset=utf-8"),
        ("application/json, text/plain, */*", "application/json"),  # as axios sends it
        ("*/*", "application/json"),
    ):
        answer = client.post("/v3/connections/web-crawler/import", headers={"accept": accept})
        assert answer.headers["content-type"] == kind, accept


def test_a_document_to_search_in_is_the_one_in_the_tag(client: httpx.Client, app: App):
    """With the tag named, the answer was 409: name the containerTag."""
    here, _ = [add(client, containerTag=tag, customId="notes/1") for tag in ("a", "b")]
    drain(app)
    [hit] = found(client, "heron", docId="notes/1", containerTag="a")
    assert hit["documentId"] == here
    refused(client.post("/v3/search", json={"q": "heron", "docId": "notes/1"}), 409)
    nowhere = {"q": "heron", "docId": "notes/1", "containerTag": "c"}
    refused(client.post("/v3/search", json=nowhere), 404)


def test_an_ambiguous_name_is_answered_with_what_the_request_can_say(client: httpx.Client):
    for tag in ("a", "b"):
        add(client, containerTag=tag, customId="notes/1")
    path = "/v3/documents/notes%2F1"
    for answer in (client.get(path), client.patch(path, json={}), client.delete(path)):
        assert refused(answer, 409)["details"].endswith("; use the id that the service gave it")
    again = client.post("/v3/documents", json={"content": "x", "customId": "notes/1"})
    assert "name the containerTag" in refused(again, 409)["details"]


def test_a_conflict_for_good_is_not_to_be_repeated(client: httpx.Client):
    for tag in ("a", "b"):
        add(client, containerTag=tag, customId="notes/1")
    known = {"containerTag": "a", "memories": [{"content": "Ann sings."}]}
    memory = {"containerTag": "a", "content": "Ann sings."}
    client.post("/v4/memories", json=known)
    client.request("DELETE", "/v4/memories", json=memory)

    for answer in (
        client.get("/v3/documents/notes%2F1"),
        client.request("DELETE", "/v4/memories", json=memory),
    ):
        refused(answer, 409)
        assert answer.headers["x-should-retry"] == "false"


def test_a_bucket_is_named_once(client: httpx.Client):
    twice = {"profileBuckets": [{"key": "food"}, {"key": "food", "description": "Meals."}]}
    refused(client.patch("/v3/settings", json=twice), 400, "names food twice")
    add(client, containerTag="a")
    refused(client.patch("/v3/container-tags/a", json=twice), 400, "names food twice")


def test_no_body_is_an_empty_one_where_nothing_is_required(
    client: httpx.Client, schema: dict[str, Any]
):
    for method, path, model in bodies(schema):
        if method != "POST" or model.get("required"):
            continue
        empty = client.post(path, json={})
        assert client.post(path).status_code == empty.status_code, path
        assert client.post(path, content=b"", headers=JSON).status_code == empty.status_code, path


def test_numbers_and_booleans_come_as_strings_too(client: httpx.Client):
    add(client, "one")
    body = {"limit": "1", "page": "1", "includeContent": "true"}
    assert listed(client, **body)[0]["content"] == "one"
    search = {"q": "x", "limit": "3", "chunkThreshold": "0.5", "onlyMatchingChunks": "false"}
    assert client.post("/v3/search", json=search).status_code == 200
    search = {"q": "x", "limit": "3", "threshold": "0.2", "rerank": "false"}
    assert client.post("/v4/search", json=search).status_code == 200
    assert client.get("/v3/documents/processing?limit=5&page=1").status_code == 200
    refused(client.post("/v3/documents/list", json={"limit": "1.5"}), 400, "limit")


@pytest.mark.parametrize("given", ["no", "off", "0", "y", "", 0, 1, 0.0])
def test_a_flag_is_true_or_false_on_every_path(
    client: httpx.Client, schema: dict[str, Any], given: object
):
    tried = 0
    for method, path, model in bodies(schema):
        for name, field in model.get("properties", {}).items():
            if _is_flag(field):
                told = refused(client.request(method, path, json={name: given}), 400)
                assert any(one["path"][-1] == name for one in told["issues"]), (path, name, told)
                tried += 1
    assert tried > MANY_FLAGS
    body = {"query": "an old office", "dryRun": given}
    refused(client.request("DELETE", "/ns/a/memories/semantic", json=body), 400, "dryRun")


def _is_flag(field: dict[str, Any]) -> bool:
    kinds = [field.get("type"), *(one.get("type") for one in field.get("anyOf", []))]
    return "boolean" in kinds and set(kinds) <= {"boolean", "null", None}


def test_what_a_query_says_twice_is_refused_on_every_path(
    client: httpx.Client, schema: dict[str, Any]
):
    tried = 0
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            for one in operation.get("parameters", []):
                if one["in"] == "query" and "array" not in json.dumps(one["schema"]):
                    place = re.sub(r"\{\w+\}", "x", path.replace("{provider}", "s3"))
                    query = {one["name"]: ["1", "2"]}
                    told = refused(client.request(method, place, params=query), 400)
                    assert "stands in the query twice" in told["details"], (path, one["name"])
                    tried += 1
                    if one["schema"].get("type") == "boolean":
                        no = {one["name"]: "no"}
                        told = refused(client.request(method, place, params=no), 400)
                        assert "must be true or false" in told["details"], (path, told)
    assert tried > MANY_QUERIES


@pytest.mark.parametrize("comma", [",", "%2C"])
def test_tags_in_a_query_are_joined_by_commas(client: httpx.Client, comma: str):
    both = add(client, "one", containerTags=["a", "b"])
    add(client, "two", containerTag="a")
    answer = client.get(f"/v3/documents/processing?containerTags=a{comma}b").json()
    assert [document["id"] for document in answer["documents"]] == [both]


def test_a_custom_id_with_a_slash_is_one_segment_on_every_path(client: httpx.Client, app: App):
    id = upload(client, "a.txt", b"heron", customId="a/b c").json()["id"]
    drain(app)
    for base in ("/v3/documents", "/v3/memories"):
        path = f"{base}/a%2Fb%20c"
        assert client.get(path).json()["id"] == id
        assert client.get(f"{path}/chunks").json()["documentId"] == id
        assert client.get(f"{path}/file-url").status_code == 200
        assert client.patch(path, json={}).json()["id"] == id
    found_in = client.post("/v3/search", json={"q": "heron", "docId": "a/b c"}).json()
    assert [result["documentId"] for result in found_in["results"]] == [id]
    gone = client.request("DELETE", "/v3/documents/bulk", json={"ids": ["a/b c"]})
    assert gone.json()["deletedCount"] == 1


# --- 2.1: errors and retries -------------------------------------------------------------------


class Refusing(WordEmbedder):
    def embed(self, texts: Any, *, query: bool = False) -> Any:
        raise Permanent("no such model")


def test_a_client_is_told_not_to_repeat_what_stays_refused(app: App, key: str):
    headers = {"Authorization": f"Bearer {key}"}
    with serving(replace(app, embedder=Refusing())) as url:
        answer = httpx.post(
            f"{url}/v3/search", json={"q": "x"}, headers=headers, trust_env=False, verify=False
        )
    refused(answer, 503)
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers


def test_the_wait_of_a_long_window_is_one_that_clients_obey(
    client: httpx.Client, with_key: Callable[[str], httpx.Client]
):
    body = {"containerTag": "a", "rateLimitMax": 1, "rateLimitTimeWindow": 3_600_000}
    mine = with_key(client.post("/v3/auth/scoped-key", json=body).json()["key"])
    assert mine.get("/v3/documents/counts").status_code == 200
    late = mine.get("/v3/documents/counts")
    refused(late, 429)
    assert late.headers["retry-after"] == "60"
    assert int(re.findall(r"t=(\d+)", late.headers["ratelimit"])[0]) > 3500


def test_an_unknown_path_names_the_nearest(client: httpx.Client):
    for method, wrong, right in (
        ("POST", "/v1/search", "/v3/search"),
        ("POST", "/v3/document", "/v3/documents"),
        ("GET", "/v3/container-tags", "/v3/container-tags/list"),
        ("POST", "/v4/conversation", "/v4/conversations"),
        ("PATCH", "/v3/documents/ann/", "/v3/documents/ann"),
    ):
        told = refused(client.request(method, wrong), 404, "Not found")["details"]
        assert told == f"there is no {method} {wrong}; do you mean {right}?"
    assert "see /docs" in refused(client.get("/" + "z" * 5000), 404)["details"]


# --- 2, 3: timestamps, content types, required fields ------------------------------------------

DATES = re.compile(r"(At|Date|After|Since|timestamp)$|^\.?at$|\.at$")
OF_GET_PROCESSING = {
    "id", "status", "type", "title", "summary", "customId", "metadata", "connectionId",
    "createdAt", "updatedAt", "containerTags", "processingStage", "stuck",
}  # fmt: skip
OF_CONNECTION = {
    "id", "provider", "createdAt", "documentLimit", "metadata", "containerTags",
}  # fmt: skip
OF_CONNECTION_DOCUMENT = {
    "id", "title", "type", "status", "url", "summary", "createdAt", "updatedAt",
}  # fmt: skip
LAST = ("deleteDocument", "deleteContainerTag", "deleteConnection", "deleteWebhook",
        "deleteScopedKey", "resetOrganization")  # fmt: skip


def moments(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON answer that is a moment, by its name or by its look."""
    match node:
        case dict():
            for field, value in cast("dict[str, Any]", node).items():
                # What the caller gave as he gave it.
                if field not in ("metadata", "temporalContext", "payload", "details", "content"):
                    yield from moments(value, field)
        case list():
            for value in cast("list[Any]", node):
                yield from moments(value, name)
        case str() if DATES.search(name) or A_MOMENT.match(node):
            yield name, node
        case _:
            pass


def test_every_answer_is_json_with_exact_timestamps_and_a_declared_status(
    owned: Names,
    client: httpx.Client,
    app: App,
    db: Database,
    org: Org,
    schema: dict[str, Any],
):
    with db.begin() as tx:  # a moment without a fraction shows its milliseconds, too
        tx.execute(
            "update documents set created_at = date_trunc('second', created_at) where org_id = %s",
            (org.id,),
        )
        tx.execute(  # as an attempt at it would
            "update deliveries set log = log || jsonb_build_object('at', now(), 'status', 204,"
            " 'reason', null, 'ms', 31.4) where endpoint_id = %s",
            (owned.webhook,),
        )
    declared = {
        operation["operationId"]: operation["responses"]
        for operation in operations(schema).values()
    }
    seen = 0
    ids = set[str]()
    calls = sorted(ROWS.items(), key=lambda row: LAST.index(row[0]) if row[0] in LAST else -1)
    for name, row in calls:
        if name == "streamEvents":
            continue
        answer = row.call(client, owned)
        assert str(answer.status_code) in declared[name], name
        assert answer.headers["x-request-id"] not in ids, name
        ids.add(answer.headers["x-request-id"])
        if answer.status_code == 204:
            assert answer.content == b"", name
            continue
        if name == "exportTestQuestions":  # JSON lines
            assert answer.headers["content-type"] == "application/x-ndjson"
            continue
        assert answer.headers["content-type"] == "application/json", name
        for field, value in moments(answer.json()):
            assert TIMESTAMP.fullmatch(value), (name, field, value)
            seen += 1
    assert seen > 60


def test_what_is_required_is_there_and_null_where_there_is_none(
    owned: Names, client: httpx.Client, db: Database, org: Org
):
    add(client, "waiting")
    [waiting] = client.get("/v3/documents/processing?view=all").json()["documents"]
    assert set(waiting) == OF_GET_PROCESSING
    connection = client.get(f"/v3/connections/{owned.connection}").json()
    assert set(connection) >= OF_CONNECTION
    assert "email" not in connection
    assert connection["documentLimit"] == 10_000
    body = {"containerTags": []}
    refused(client.post("/v3/connections/shelf/connection", json=body), 400, "containerTags")
    with db.begin() as tx:
        tx.execute("update connections set expires_at = '2026-01-31' where org_id = %s", (org.id,))
    connection = client.get(f"/v3/connections/{owned.connection}").json()
    assert connection["expiresAt"] == "2026-01-31T00:00:00.000Z"
    [document] = client.post("/v3/connections/shelf/documents").json()
    assert set(document) == OF_CONNECTION_DOCUMENT
    [chunk, *_] = client.get(f"/v3/documents/{owned.id}/chunks").json()["chunks"]
    assert set(chunk) >= {"id", "position", "content", "type", "metadata", "createdAt"}
    tag = client.get(f"/v3/container-tags/{owned.tag}").json()
    assert set(tag) >= {"containerTag", "name", "entityContext", "profileBuckets", "documentCount"}
    found_in = client.post("/v4/search", json={"q": "zugzwang", "threshold": 0}).json()
    for result in found_in["results"]:
        assert set(result) >= {"id", "similarity", "metadata", "updatedAt"}
    hits = client.post("/v3/search", json={"q": "zugzwang"}).json()["results"]
    for hit in hits:
        assert set(hit) >= {
            "documentId", "title", "type", "score", "chunks", "metadata", "createdAt", "updatedAt",
        }  # fmt: skip
    assert any(hit["metadata"] is None for hit in hits)


def test_a_date_that_no_calendar_holds_is_refused(client: httpx.Client, db: Database, org: Org):
    for date in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-13-01", "soon"):
        body = {"content": "x", "documentDate": date}
        refused(client.post("/v3/documents", json=body), 400, "documentDate")
    assert rows(db, org)["documents"] == 0
    for date, kept in (
        ("0001-01-01", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.999Z"),
        ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000Z"),
    ):
        id = add(client, f"of {date}", documentDate=date)
        assert get(client, id)["documentDate"] == kept


def test_every_operation_shows_how_it_is_called(schema: dict[str, Any]):
    for name, operation in operations(schema).items():
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                assert parameter["description"], name
                assert parameter["schema"].get("examples") or parameter.get("examples"), name
        for answer in operation["responses"].values():
            assert answer["description"], name
    assert schema["components"]["schemas"]["Error"]["examples"]
    upload_body = schema["components"]["schemas"]["Body_uploadFile"]["properties"]
    assert upload_body["metadata"]["examples"] == ['{"year": 2026}']
    for picks in ("listConnectionResources", "configureConnection"):
        [declared] = [
            operation["responses"]["501"]
            for operation in operations(schema).values()
            if operation["operationId"] == picks
        ]
        [kind] = declared["content"].values()
        assert kind["schema"] == {"$ref": "#/components/schemas/Error"}


# --- 3, 4: statuses, batch, connections --------------------------------------------------------


def test_the_finer_words_of_a_status_are_shown_everywhere(
    client: httpx.Client, served: Callable[..., httpx.Client], app: App
):
    id = add(client)
    fine = served(status_words="sdk")
    with app.db.begin() as tx:
        [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
        documents.advance(tx, claim, Stage.INDEXING, lease=timedelta(minutes=1))
    for http, word in ((client, "processing"), (fine, "indexing")):
        [seen] = listed(http)
        [working] = http.get("/v3/documents/processing").json()["documents"]
        answer = http.patch(f"/v3/documents/{id}", json={}).json()
        assert {seen["status"], working["status"], answer["status"]} == {word}
        assert {seen["processingStage"], working["processingStage"]} == {"indexing"}


def test_a_batch_of_six_hundred_is_taken(client: httpx.Client):
    answer = client.post("/v3/documents/batch", json={"documents": [7] * 600})
    assert answer.status_code == 200
    assert (answer.json()["success"], answer.json()["failed"]) == (0, 600)


def test_lists_may_be_as_long_as_the_contract_says(client: httpx.Client):
    assert client.post("/v3/documents/list", json={"limit": 1100}).status_code == 200
    assert client.post("/v4/memories/list", json={"containerTag": "a"}).json()["pagination"] == {
        "currentPage": 1, "limit": 10, "totalItems": 0, "totalPages": 0,
    }  # fmt: skip


def test_metadata_of_a_connection_is_flat(client: httpx.Client):
    for value in ([1], {"a": 1}, None):
        metadata = {"startUrl": "https://example.com", "x": value}
        body = {"metadata": metadata}
        refused(client.post("/v3/connections/web-crawler", json=body), 400, "metadata")
    assert client.post("/v3/connections/list").json() == []


def test_deleting_by_provider_keeps_the_documents_on_demand(owned: Names, client: httpx.Client):
    [document] = client.post("/v3/connections/shelf/documents").json()
    second = client.post(
        "/v3/connections/shelf",
        json={"metadata": {"shelf": "isolated"}, "containerTags": ["vault", "more"]},
    ).json()["id"]
    answer = client.request(
        "DELETE",
        "/v3/connections/shelf?deleteDocuments=false",
        json={"containerTags": ["vault"]},
    )
    assert answer.json() == {"id": second, "provider": "shelf"}
    assert client.post("/v3/connections/list").json() == []
    assert get(client, document["id"])["connectionId"] is None
    refused(client.get(f"/v3/connections/{owned.connection}"), 404, "Connection not found")


def test_the_array_for_the_python_client_can_be_switched_off(
    owned: Names, served: Callable[..., httpx.Client]
):
    plain = served(python_client_arrays=False)
    headers = {"x-stainless-lang": "python", "x-stainless-package-version": "3.62.0"}
    answer = plain.delete(f"/v3/connections/{owned.connection}", headers=headers)
    assert answer.json() == {"id": owned.connection, "provider": "shelf"}


def test_an_unknown_provider_or_connection_is_told_apart(client: httpx.Client):
    refused(client.post("/v3/connections/telegraph", json={}), 400)
    for path in ("connection", "documents", "import"):
        body = {"containerTags": ["a"]}
        refused(client.post(f"/v3/connections/telegraph/{path}", json=body), 404)
    for path in ("", "/resources", "/sync-runs", "/items"):
        refused(client.get(f"/v3/connections/nobody{path}"), 404, "Connection not found")
    body = {"resources": [{"id": 1}]}
    refused(client.post("/v3/connections/nobody/configure", json=body), 404)
    refused(client.delete("/v3/connections/nobody"), 404)
    refused(client.delete("/v3/connections/notion"), 400, "containerTags")


# --- 4.2: picking, and what a key says of itself -----------------------------------------------


class PickingConnector(ShelfConnector):
    provider = "picking"
    name = "Picking"
    picks = True
    answer: ClassVar[Exception | None] = None

    def resources(self, source: Source, page: int, per_page: int) -> tuple[list[Resource], int]:
        if self.answer is not None:
            raise self.answer
        said = ("2026-01-31T12:00:00Z", "yesterday", None)
        return [Resource(str(n), "a", "a/a", None, False, None, at) for n, at in enumerate(said)], 7

    def configure(
        self, metadata: Mapping[str, Any], picked: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return {**metadata, "picked": len(picked)}


@pytest.fixture
def picking(client: httpx.Client) -> Iterator[str]:
    """The path of a connection whose things are picked."""
    found_connectors = connectors.all()
    assert isinstance(found_connectors, dict)
    found_connectors["picking"] = PickingConnector()
    body = {"metadata": {"shelf": "isolated"}, "containerTag": "b", "containerTags": ["a"]}
    made = client.post("/v3/connections/picking", json=body)
    assert made.status_code == 200, made.text
    yield f"/v3/connections/{made.json()['id']}"
    PickingConnector.answer = None
    del found_connectors["picking"]


def test_what_may_be_picked(client: httpx.Client, picking: str, db: Database):
    assert client.get(picking).json()["containerTags"] == ["b", "a"]
    listed_resources = client.get(f"{picking}/resources?page=1&per_page=3").json()
    assert listed_resources["total_count"] == 7
    assert set(listed_resources["resources"][0]) == {
        "id", "name", "full_name", "description", "private", "default_branch", "updated_at",
    }  # fmt: skip
    assert [one["updated_at"] for one in listed_resources["resources"]] == [
        "2026-01-31T12:00:00.000Z", None, None,
    ]  # fmt: skip
    body = {"resources": [{"id": 1}]}
    told = client.post(f"{picking}/configure", json=body).json()
    assert (told["success"], isinstance(told["message"], str)) == (True, True)
    with db.begin() as tx:
        tx.execute(
            "update connections set state = 'pending', due_at = null where id = %s",
            (picking.rsplit("/", 1)[1],),
        )
    refused(client.get(f"{picking}/resources"), 400, "authorize")
    refused(client.post(f"{picking}/configure", json=body), 400, "authorize")


@pytest.mark.parametrize("error", [Transient("busy"), Permanent("gone for good")], ids=repr)
def test_a_provider_that_does_not_answer_is_a_502(
    client: httpx.Client, picking: str, error: Exception, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(PickingConnector, "answer", error)
    answer = client.get(f"{picking}/resources")
    refused(answer, 502, "Picking did not answer")
    again = not isinstance(error, Permanent)
    assert answer.headers.get("x-should-retry") == (None if again else "false")


def test_a_scoped_key_names_all_that_it_opens(
    client: httpx.Client,
    with_key: Callable[[str], httpx.Client],
    schema: dict[str, Any],
):
    made = client.post("/v3/auth/scoped-key", json={"containerTag": "a"}).json()
    mine = with_key(made["key"])
    nobody = test_isolation.NOBODY
    paths = {
        operation["operationId"]: path
        for path, item in schema["paths"].items()
        for operation in item.values()
    }
    for name, row in ROWS.items():
        if row.scope is None:
            continue
        opened = row.call(mine, nobody).status_code != 403
        told = paths[name].startswith(tuple(made["allowedEndpoints"]))
        # Within an endpoint that it may use, a request may name what it may not.
        assert told or not opened, name


# --- 5, 7.2: adding again, repair --------------------------------------------------------------


def test_text_and_address_replace_each_other(client: httpx.Client):
    id = add(client, "one", customId="doc")
    assert add(client, "http://127.0.0.1:9/a", customId="doc") == id
    assert (get(client, id)["type"], get(client, id)["url"]) == ("webpage", "http://127.0.0.1:9/a")
    add(client, "two", customId="doc")
    seen = get(client, id)
    assert (seen["type"], seen["url"], seen["content"]) == ("text", None, "two")


def test_the_same_content_repairs_what_failed_or_has_nothing_in_it(
    client: httpx.Client, app: App, db: Database
):
    id = add(client, "heron", customId="doc")
    drain(app)
    for broken in ("status = 'failed', error_code = 'x', error_message = 'y'", "chunks = 0"):
        for send in (
            lambda: client.post("/v3/documents", json={"content": "heron", "customId": "doc"}),
            lambda: client.patch("/v3/documents/doc", json={"content": "heron"}),
        ):
            same = send().json()
            assert same == {"id": id, "status": "done"}
            with db.begin() as tx:
                tx.execute(
                    sql.SQL("update documents set {} where id = %s").format(sql.SQL(broken)), (id,)
                )
            assert send().json() == {"id": id, "status": "queued"}
            assert "errorCode" not in get(client, id)
            drain(app)
            assert get(client, id)["status"] == "done"


def test_a_revision_that_fails_leaves_the_one_before_in_the_index(client: httpx.Client, app: App):
    id = add(client, "herons eat frogs", customId="doc")
    drain(app)
    assert upload(client, "a.pdf", b"%PDF-1.7\nthis is no PDF", customId="doc").json()["id"] == id
    drain(app)
    seen = get(client, id)
    assert seen["status"] == "failed"
    assert seen["errorMessage"]
    assert [hit["documentId"] for hit in found(client, "frogs")] == [id]


def test_the_same_content_under_another_name_is_no_retry(client: httpx.Client):
    one = add(client, "same", filepath="/a")
    assert add(client, "same", filepath="/b") != one
    assert add(client, "same", filepath="/a") == one
    assert add(client, "same", filepath="/a", documentDate="2026-01-01") != one
    first = upload(client, "a.txt", b"same").json()["id"]
    assert upload(client, "b.txt", b"same").json()["id"] != first
    assert upload(client, "a.txt", b"same").json()["id"] == first


@pytest.mark.parametrize("state", ["queued", "processing", "failed", "done"])
def test_a_document_goes_at_once_in_any_state(client: httpx.Client, app: App, state: str):
    data = b"%PDF-1.7\nthis is no PDF" if state == "failed" else b"a heron"
    id = upload(client, "a.pdf" if state == "failed" else "a.txt", data).json()["id"]
    if state == "processing":
        with app.db.begin() as tx:
            documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
    elif state != "queued":
        drain(app)
    assert get(client, id)["status"] == state
    assert client.delete(f"/v3/documents/{id}").status_code == 204
    refused(client.get(f"/v3/documents/{id}"), 404)
    assert drain(app) == 0


# --- 7.1, 7.3, 7.4: tags, metadata, filters ----------------------------------------------------


def test_every_character_and_length_of_a_tag(client: httpx.Client):
    tag = "aZ09_-:." + "x" * 92
    id = add(client, containerTag=tag)
    assert [document["id"] for document in listed(client, containerTags=[tag])] == [id]
    assert client.get(f"/v3/container-tags/{tag}").json()["documentCount"] == 1


def test_the_last_context_of_a_tag_is_kept_on_it(client: httpx.Client):
    add(client, "one", containerTag="a", entityContext="first")
    add(client, "two", containerTag="a", entityContext="second")
    add(client, "three", containerTag="a")
    assert client.get("/v3/container-tags/a").json()["entityContext"] == "second"


def test_every_read_may_ask_for_all_tags_below_one(client: httpx.Client, app: App):
    id = add(client, "heron one", containerTag="team:a:b")
    add(client, "heron two", containerTag="teams:a")
    for name in ("team:a:b", "teams:a"):
        body = {"containerTag": name, "memories": [{"content": f"The heron of {name}."}]}
        assert client.post("/v4/memories", json=body).status_code == 201
    working = client.get("/v3/documents/processing", params={"containerTags": "team:*"}).json()
    assert [document["id"] for document in working["documents"]] == [id]
    drain(app)
    known = {"containerTags": ["team:*"], "q": "heron", "threshold": 0, "searchMode": "memories"}
    results = client.post("/v4/search", json=known).json()["results"]
    assert [result["memory"] for result in results] == ["The heron of team:a:b."]
    entries = client.post("/v4/memories/list", json={"containerTags": ["team:*"]}).json()
    assert [entry["containerTag"] for entry in entries["memoryEntries"]] == ["team:a:b"]


def test_no_key_of_metadata_is_reserved(client: httpx.Client, app: App):
    metadata = {"sm_source": "x", "a.b c/d": 1, "ключ": True}
    id = add(client, "heron", metadata=metadata)
    add(client, "heron too")
    drain(app)
    for key, value in metadata.items():
        filters = {"AND": [{"key": key, "value": value}]}
        assert [document["id"] for document in listed(client, filters=filters)] == [id], key
        assert [hit["documentId"] for hit in found(client, "heron", filters=filters)] == [id], key


FILTERED = {
    "/v3/documents/list": {},
    "/v3/search": {"q": "heron"},
    "/v4/search": {"q": "heron", "threshold": 0},
    "/v4/profile": {"containerTag": "a"},
    "/v4/memories/list": {"containerTag": "a"},
}


@pytest.mark.parametrize("path", FILTERED)
def test_filters_mean_the_same_on_every_path(client: httpx.Client, app: App, path: str):
    for number, metadata in enumerate(({"n": 1}, {"n": 3}, {"n": "3"}, {})):
        text = f"The heron number {number}."
        add(client, text, containerTag="a", metadata=metadata)
        if path.startswith("/v4/"):
            body = {"containerTag": "a", "memories": [{"content": text, "metadata": metadata}]}
            assert client.post("/v4/memories", json=body).status_code == 201
    drain(app)

    def numbers(entry: dict[str, Any], *, as_text: bool) -> set[str]:
        raw = {"AND": [entry]}
        body = {**FILTERED[path], "filters": json.dumps(raw) if as_text else raw, "limit": 20}
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        shown = json.dumps({**answer.json(), "pagination": None, "timing": None, "total": None})
        return set(re.findall(r"heron number (\d)", shown))

    numeric = {"key": "n", "filterType": "numeric", "numericOperator": ">"}
    for as_text in (False, True):
        assert numbers({"key": "n", "value": "3", "negate": "true"}, as_text=as_text) == {"0", "3"}
        assert numbers({**numeric, "value": 2}, as_text=as_text) == {"1"}
        assert numbers({**numeric, "value": "2", "negate": True}, as_text=as_text) == {"0"}
    condition = {"key": "a", "value": "b"}
    nested: dict[str, Any] = condition
    for _ in range(9):
        nested = {"AND": [nested]}
    for wrong, place in (
        (condition, ["filters"]),
        ({"AND": []}, ["filters", "AND"]),
        ({"AND": [condition, {**condition, "filterType": "like"}]}, ["AND", 1, "filterType"]),
        ({"OR": [condition] * 201}, ["filters"]),
        (nested, ["AND", 0]),
        ("no json", ["filters"]),
    ):
        body = {**FILTERED[path], "filters": wrong}
        [issue] = refused(client.post(path, json=body), 400, "filters")["issues"]
        assert issue["path"][-len(place) :] == place
    for right in ({"OR": [condition] * 200}, nested["AND"][0]):
        body = {**FILTERED[path], "filters": right}
        assert client.post(path, json=body).status_code == 200


# --- 7.6: settings -----------------------------------------------------------------------------


def test_null_clears_every_setting(client: httpx.Client):
    before = client.get("/v3/settings").json()
    change: dict[str, Any] = {
        name: True if isinstance(value, bool) else "x"
        for name, value in before.items()
        if name not in ("shouldLLMFilter", "chunkSize", "keepVersions", "profileBuckets")
    }
    change |= {"chunkSize": "512", "keepVersions": 3, "profileBuckets": [{"key": "work"}]}
    now = client.patch("/v3/settings", json=change).json()["updated"]
    assert {name for name, value in now.items() if value != before[name]} == set(change)
    assert now["chunkSize"] == 512
    assert client.get("/v3/settings").json() == now
    cleared = client.patch("/v3/settings", json=dict.fromkeys(change)).json()["updated"]
    assert cleared == before


@pytest.mark.parametrize(
    ("include", "exclude", "admitted"),
    [
        (None, None, True),
        ({"urlPatterns": ["https://e.org/docs/*"]}, None, True),
        ({"urlPatterns": ["HTTPS://E.ORG/*/A"]}, None, True),
        ({"urlPatterns": ["*e.org*"]}, None, True),
        ({"urlPatterns": ["e.org"]}, None, False),
        ({"urlPatterns": ["https://e.org/docs/."]}, None, False),
        ({"urlPatterns": ["nowhere"], "titlePatterns": ["the *"]}, None, True),
        ({"titlePatterns": ["The"]}, None, False),
        ({"titlePatterns": ["*"]}, {"urlPatterns": ["*/docs/*"]}, False),
        (None, {"titlePatterns": ["*HERON"]}, False),
        (None, {"titlePatterns": ["heron"]}, True),
    ],
)
def test_what_patterns_admit(include: Any, exclude: Any, admitted: bool):
    refuse = item_filter.refusal({"includeItems": include, "excludeItems": exclude})
    assert (refuse("The heron", "https://e.org/docs/a") is None) is admitted


# --- keys and limits over several processes ----------------------------------------------------


@pytest.fixture
def two(app: App, database_url: str) -> Iterator[tuple[str, str]]:
    """Addresses of two services that share nothing but the database."""
    with (
        Database(database_url, size=2) as other,
        serving(app) as one,
        serving(replace(app, db=other)) as another,
    ):
        yield one, another


def test_limits_and_revocation_hold_in_every_process(client: httpx.Client, two: tuple[str, str]):
    body = {"containerTag": "a", "rateLimitMax": 5}
    made = client.post("/v3/auth/scoped-key", json=body).json()
    headers = {"Authorization": f"Bearer {made['key']}"}

    def ask(number: int) -> httpx.Response:
        url = f"{two[number % 2]}/v3/documents/counts"
        return httpx.get(url, headers=headers, trust_env=False, verify=False)

    left = [re.findall(r"r=(\d+)", ask(number).headers["ratelimit"])[0] for number in range(5)]
    assert left == ["4", "3", "2", "1", "0"]
    for number in range(2):
        late = ask(number)
        refused(late, 429, "Too many requests")
        assert 1 <= int(late.headers["retry-after"]) <= 60
    assert client.delete(f"/v3/auth/scoped-key/{made['id']}").status_code == 204
    for number in range(2):
        refused(ask(number), 401, "Unauthorized")


def test_a_key_may_be_any_string(db: Database, org: Org, with_key: Callable[[str], httpx.Client]):
    secret = f"My API Key {org.id}"
    with db.begin() as tx:
        orgs.create_key(tx, org.id, secret=secret)
        stored = tx.execute("select k::text as k from keys k where org_id = %s", (org.id,))
        assert secret not in str(stored.fetchall())
    assert with_key(secret).get("/v3/settings").status_code == 200


def test_a_scoped_key_ends_with_its_last_day(client: httpx.Client):
    made = client.post("/v3/auth/scoped-key", json={"containerTag": "a", "expiresInDays": "1"})
    ends = datetime.fromisoformat(made.json()["expiresAt"])
    assert abs(ends - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=1)


# --- statements --------------------------------------------------------------------------------


def test_no_read_costs_more_statements_when_there_is_more(
    owned: Names,
    client: httpx.Client,
    app: App,
    monkeypatch: pytest.MonkeyPatch,
):
    statements = Statements(monkeypatch)
    # By the rows of test_isolation.py, which has one for each route that there is.
    reads = {
        name: row.call
        for name, row in ROWS.items()
        if (row.scope is Scope.READ and name not in ("streamEvents", "nsPostFeedback"))
        or name == "listAudit"
    }

    def costs() -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, call in reads.items():
            with statements.sent() as sent:
                http = (
                    test_isolation.renamed(client, owned.tag) if name.startswith("ns") else client
                )
                assert call(http, owned).status_code < 300 or name in NOT_OF_A_SHELF, name
                counts[name] = len(sent)
        return counts

    few = costs()
    for number in range(3):
        SHELVES["isolated"].put(f"more {number}", f"Text {number}.")
        add(client, f"zugzwang {number}", containerTag="vault")
        for tag in ("vault", f"more{number}"):
            body = {"containerTag": tag, "memories": [{"content": f"zugzwang {number}"}]}
            assert client.post("/v4/memories", json=body).status_code == 201
        client.post("/v3/webhooks", json={"url": f"https://hooks.example.org/{number}"})
        client.post(f"/v3/webhooks/{owned.webhook}/test")
        client.post(f"/v3/connections/{owned.connection}/sync")
        syncs.drain(app)
    body = {"metadata": {"shelf": "isolated"}, "containerTags": ["vault"]}
    client.post("/v3/connections/shelf", json=body)
    syncs.drain(app)
    drain(app)
    assert costs() == few
    assert max(few.values()) <= MOST
