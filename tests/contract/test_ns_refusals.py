"""What the namespace door refuses, by code and in words: its clients repeat each 409, 429 and 5xx,
so none is for good; and they know no field of the older API."""

import ast
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, ClassVar, Literal, cast

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from recollect.api import connections as older_connections
from recollect.api import (
    create_app,
    documents,
    memories,
    namespaces,
    search,
    session,
    settings,
    tags,
)
from recollect.api.namespaces._words import in_words
from recollect.app import App
from recollect.connectors.base import Resource, Source
from recollect.errors import (
    ConflictError,
    Permanent,
    RateLimitError,
    RecollectError,
    RequestError,
    Transient,
)
from recollect.index.phrases import QueryError
from recollect.model import ConnectionId, Trigger
from recollect.sync import connections
from recollect.worker import syncs
from tests.contract.calls import add, refused
from tests.contract.test_ns_connectors import connect
from tests.contract.test_ns_documents import listed, put
from tests.contract.test_ns_reading import remember
from tests.fakes.embedder import WordEmbedder
from tests.fakes.shelf import SHELVES, Shelf, ShelfConnector, shelved
from tests.house.facts import trees

ROUTES = [
    route
    for module in namespaces.MODULES
    for route in module.router.routes
    if isinstance(route, APIRoute)
]
REPEATED = (408, 409, 429)
"""and each 5xx"""
PASSING: Mapping[str, str] = {
    "ConflictError": "see CONFLICTS",
    "RateLimitError": "the window of the limit ends; Retry-After says when",
    "BusyError": "bodies of others are in work; Retry-After says when to come back",
    "UpstreamError": "the provider is away",
    "Transient": "what it needs fails now and then",
    "Unavailable": "what it needs is away",
    "Contended": "the database ended this transaction in favour of others",
    "Parked": "its turn comes",
    "UnmeasuredError": "the model that the test run needs is away",
}
"""Errors that a route may answer with a code that clients repeat, and what passes."""
OURS: Mapping[str, str] = {
    "SetupError": "the operator mends the machine or the settings",
    "Reauthorize": "every door that may meet it tells the user; else a bug",
    "CursorExpired": "of a sync; at a door a bug",
    "LeaseLost": "of the queues; at a door a bug",
    "Unjoined": "`intake.put` joins the texts; else a bug",
}
"""Errors that come out as 500: nothing that the request could be blamed for."""
CONFLICTS: Mapping[str, str] = {
    "Merge running": "the move ends",
    "A sync is already running": "the sync ends",
    "Conflict in intake.put": "others changed the document while this was joined to it",
    "Conflict in _adding._locked": "the id of the document was changed at this moment",
    "Conflict in tags.change_buckets": "for good, as SPEC5 wants it: a bucket of the organisation",
    "Memory already forgotten": "stands in `errors` of the answer, with 200",
    "Organisation exists": "on the command line",
    "Ambiguous customId": "400 at this door",
    "Conflict in _documents.apply": "in the console",
    "Conflict in _editing._edit": "in the console",
    "Conflict in _editing.judge": "in the console",
    "Conflict in _room.check_stamp": "in the console",
    "Conflict in targets.update": "of webhooks; an old secret signs no more",
}
"""Each conflict that is made anywhere, and why it passes, or does not come to this door."""
DECLARED: Mapping[str, str] = {
    "409": "CONFLICTS",
    "429": "limits of keys, and of what asks others at once",
    "500": "an error in the service itself",
    "503": "a dependency or a provider is away",
}


def subclasses(kind: type[RecollectError]) -> Iterator[type[RecollectError]]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def made(kind: type[RecollectError], *, permanent: bool = False) -> RecollectError:
    """One of the class, whatever its constructor wants."""
    if kind is QueryError:
        return QueryError("for a test")
    error = kind.__new__(kind)
    if isinstance(error, RequestError):
        passes = isinstance(error, RateLimitError)
        RequestError.__init__(error, "Refused", None if passes else "customId: for a test")
        if permanent:
            error.permanent = True
        if isinstance(error, RateLimitError):
            error.seconds = 1
    elif isinstance(error, Transient | Permanent):
        error.code = "test"
    return error


ERRORS = sorted({*subclasses(RecollectError)}, key=lambda kind: kind.__name__)


class Failing:
    """In place of the service behind the door: whatever is asked of it raises."""

    def __init__(self, error: RecollectError) -> None:
        self._error = error

    def __getattr__(self, _: str) -> Any:
        raise self._error


Raising = Callable[..., Iterator[httpx.Response]]


@pytest.fixture
def raising(app: App, key: str) -> Generator[Raising]:
    """Asks operations of the door, as the OpenAPI document shows it, while what is behind the
    door raises an error: all of them, or of each `some` one, the next time the next one."""
    api = create_app(app)
    schema = api.openapi()
    turn = count()
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(api, headers=headers, raise_server_exceptions=False) as http:

        def ask(error: RecollectError, some: int = 1) -> Iterator[httpx.Response]:
            api.state.app = Failing(error)
            for method, path, body in islice(operations(schema), next(turn) % some, None, some):
                answer = http.request(method, re.sub(r"\{.*?\}", "documents", path), **body)
                yield cast("httpx.Response", answer)

        yield ask


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Of the door: method, path, and an example of what is sent."""
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            if operation["tags"][0].startswith("namespaces: "):
                content = operation.get("requestBody", {}).get("content", {})
                body: dict[str, Any] = {}
                if "multipart/form-data" in content:
                    body = {"files": {"file": ("notes.md", b"# Notes")}}
                elif content:
                    shape = content["application/json"]["schema"]
                    name = (shape.get("$ref") or shape["anyOf"][0]["$ref"]).rsplit("/", 1)[1]
                    body = {"json": schema["components"]["schemas"][name]["examples"][0]}
                yield method.upper(), path, body


@pytest.mark.parametrize("some", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_no_operation_answers_for_good_what_clients_repeat(raising: Raising, some: int):
    """By day a third of the operations raises each error, and all raise conflicts."""
    for kind in ERRORS:
        every = 1 if kind is ConflictError else some
        names = {one.__name__ for one in kind.__mro__}
        if names & OURS.keys():
            assert next(raising(made(kind))).status_code == 500, kind
            continue
        answers = list(raising(made(kind), every))
        assert len(answers) * every == len(ROUTES) == 33
        # A batch tells of each item by itself, and feedback goes to nobody.
        reached = [one for one in answers if one.url.path != "/feedback"]
        assert sum(one.status_code < 400 for one in reached) <= 1, kind
        for answer in reached:
            assert "customId" not in answer.text, answer.url
            if answer.status_code in REPEATED or answer.status_code >= 500:
                assert names & PASSING.keys(), (kind, answer.url)
        if issubclass(kind, RequestError) and not issubclass(kind, RateLimitError):
            for answer in raising(made(kind, permanent=True), every):
                assert answer.status_code < 500 or answer.url.path == "/feedback", answer.url


def test_each_conflict_is_known_and_has_a_reason():
    found = {
        title if title != "Conflict" else f"{title} in {place}"
        for name, tree in trees().items()
        if not name.startswith("cli/")
        for place, title in conflicts(name, tree)
    }
    assert found == set(CONFLICTS)


def conflicts(name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Where one is made, and its short sentence."""
    module = name.removesuffix(".py").rsplit("/", 1)[-1]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for node in ast.walk(function):
            match node:
                case ast.Call(
                    func=ast.Name(id="ConflictError" | "AmbiguousError" | "ForgottenError"),
                    args=[title, *_],
                ):
                    yield f"{module}.{function.name}", str(getattr(title, "value", ast.dump(title)))
                case _:
                    pass


def test_the_document_declares_no_other(client: httpx.Client):
    schema = client.get("/v3/openapi").json()
    for path, item in schema["paths"].items():
        for operation in item.values():
            if not operation["tags"][0].startswith("namespaces: "):
                continue
            answers = operation["responses"]
            repeated = {one for one in answers if int(one) in REPEATED or one >= "500"}
            assert repeated == set(DECLARED), path
            for status in answers:
                about = f"{path} {status}: {answers[status]['description']}"
                assert not foreign_names(answers[status]["description"]), about


# --- words ---------------------------------------------------------------------------------------

SHARED = ("documents", "index", "ingest", "memories", "orgs", "search", "sync", "connectors",
          "inference", "api/search.py", "api/room.py", "api/wire.py", "api/documents.py",
          "api/turns.py", "api/errors.py", "errors.py", "db", "fetch")  # fmt: skip
"""Whose texts this door may show."""
ELSEWHERE: Mapping[str, str] = {
    "includeFullDocs:": "only where texts are asked for, which a search here cannot",
    "asOf:": "nor does it ask for the past",
    "name ids, containerTags, or a filepath": "here ids are required",
    "name ids (1 to 100), containerTags, or a filepath": "an endpoint of the older API",
    "containerTags: one tag": "a form of the older API",
    "status: one of": "a list of the older API",
    "name: 1 to 100 printable": "organisations are made on the command line",
    "expires: how long": "keys are made elsewhere",
    "lines:": "test questions",
    "question:": "test questions",
    "state: this link was used": "the page that providers send users back to",
    "excludeItems:": "why an item of a sync was left out: listed by the older API",
    "includeItems:": "the same",
    "shouldLLMFilter:": "settings of the older API",
}
"""Texts by their beginning that never come to this door, and why."""


def names_of(routes: Sequence[Any]) -> set[str]:
    """Fields and parameters of the requests of some routes."""
    found: set[str] = set()

    def of_model(model: Any) -> None:
        for kind in (model, *getattr(model, "__args__", ())):
            for name, field in getattr(kind, "model_fields", {}).items():
                found.add(field.alias or name)
                of_model(field.annotation)

    def of_dependant(dependant: Any) -> None:
        for one in (*dependant.query_params, *dependant.body_params):
            found.add(one.alias)
            of_model(one.field_info.annotation)
        for one in dependant.dependencies:
            of_dependant(one)

    for route in routes:
        of_dependant(route.dependant)
    return found


def _foreign() -> re.Pattern[str]:
    older = (documents, memories, search, session, settings, tags, older_connections)
    theirs = names_of([one for m in older for one in m.router.routes if isinstance(one, APIRoute)])
    names = sorted(theirs - names_of(ROUTES))
    compound = "|".join(name for name in names if re.search("[a-z][A-Z]", name))
    every = "|".join(map(re.escape, names))
    return re.compile(
        rf"(?<![\w/])(?:{compound})(?!\w)|(?:^|; )(?:{every})(?=[:.\[])|/v[34]/(?!settings)"
        r"|[Cc]ontainer tag|[Cc]onnection not found|no connection '"
    )


_FOREIGN = _foreign()


def foreign_names(told: str) -> list[str]:
    return _FOREIGN.findall(told)


def texts(tree: ast.Module) -> Iterator[str]:
    """Sentences in code: no docstrings, no statements of SQL."""
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                told = [
                    str(one.value) if isinstance(one, ast.Constant) else "'…'" for one in values
                ]
                if " " in "".join(told).strip():
                    yield "".join(told)
            case ast.Constant(value=str(text)) if not {id(node)} & (notes | parts):
                if " " in text.strip():
                    yield text
            case _:
                pass


def test_what_other_rooms_say_names_no_field_of_the_older_api():
    assert foreign_names("customId: is taken")
    assert foreign_names("aggregate: no language model is configured")
    told = {
        text
        for name, tree in trees().items()
        if name.startswith(SHARED)
        for text in texts(tree)
        if not text.startswith(tuple(ELSEWHERE)) and "->>" not in text
    }
    assert len(told) > 500
    assert {text: names for text in told if (names := foreign_names(in_words(text)))} == {}


def test_what_is_quoted_stays():
    assert in_words("filters: unknown field") == "filters: unknown field"
    assert in_words("no document 'customId' in this containerTag") == (
        "no document 'customId' in this namespace"
    )
    assert in_words("the documents' texts of 'a' have a customId") == (
        "the documents' texts of 'a' have a id"
    )
    assert in_words("filters: must be an object; q: is missing") == (
        "filter: must be an object; query: is missing"
    )


def test_warnings_and_refusals_name_fields_of_this_door(client: httpx.Client):
    put(client, "a", "Green tea.")
    body = {"query": "tea", "rerank": "aggregate", "rewriteQuery": True}
    warnings: list[str] = client.post("/ns/a/search", json=body).json()["warnings"]
    assert [one.partition(":")[0] for one in warnings] == ["rerank", "rewriteQuery", "rerank"]
    chunks = client.post("/ns/a/search", json={**body, "searchMode": "chunks"}).json()["warnings"]

    told = refused(client.get("/ns/a/memories/nobody"), 404)
    assert told["details"] == "no memory 'nobody' in this namespace"
    for names in (["x", "a"], ["y", "a"]):
        add(client, names[0], containerTags=names, customId="same")
    ambiguous = refused(client.get("/ns/a/document/same"), 400, "Ambiguous id")
    assert ambiguous["details"].endswith("; use the id that the service gave it")
    s3 = {"bucket": "B_", "region": "eu", "accessKeyId": "A", "secretAccessKey": "b"}
    bucket = client.post("/ns/a/connectors", json={"provider": "s3", "config": s3})
    refused(bucket, 400, "config.bucket: ")
    remember(client, "a", "a fact")
    [bearing] = listed(client, "a", limit=1)["documents"]
    told = client.patch(f"/ns/a/document/{bearing['id']}", json={"content": "x"})
    for text in (*warnings, *chunks, told.text, bucket.text, str(ambiguous)):
        assert not foreign_names(text), text


# --- what would be repeated for good -------------------------------------------------------------


class Picking(ShelfConnector):
    """One whose things are picked by asking the provider."""

    picks: ClassVar[bool] = True
    selects: ClassVar[Literal["repos", "folders", "labels"] | None] = "repos"

    def resources(self, source: Source, page: int, per_page: int) -> tuple[list[Resource], int]:
        SHELVES["ns"].check("resources")
        return [], 0


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved("ns", Picking()) as made:
        yield made


def test_a_provider_that_refuses_is_no_5xx_and_one_that_is_away_is(
    client: httpx.Client, app: App, shelf: Shelf
):
    id = connect(client, "a")
    path, body = f"/ns/a/connectors/{id}", {"selection": {"repos": ["1"]}}

    shelf.fail("resources", Permanent("the account is closed"))
    refused(client.patch(path, json=body), 400, "the account is closed")
    shelf.fail("resources", Transient("it is away"))
    refused(client.patch(path, json=body), 503, "it is away")
    refused(client.patch(path, json=body), 400, "has no '1'")


def test_a_paused_connector_that_an_event_wanted_is_synced_by_hand(
    client: httpx.Client, app: App, shelf: Shelf
):
    id = connect(client, "a")
    with app.db.begin() as tx:
        connections.want(tx, [ConnectionId(id)], Trigger.EVENT)
    paused = client.patch(f"/v3/connections/{id}", json={"paused": True})
    assert paused.status_code == 200, paused.text
    assert syncs.drain(app) == 0, "nothing runs, so nobody waits for its end"

    assert client.post(f"/ns/a/connectors/{id}/sync").status_code == 202
    refused(client.post(f"/ns/a/connectors/{id}/sync"), 409, "already running")
    assert syncs.drain(app) == 1


class Refusing(WordEmbedder):
    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        raise Permanent("embeddings: it refuses this text", code="embedding_refused")


def test_a_text_that_the_embedding_model_refuses_is_no_5xx(
    served: Callable[..., httpx.Client],
):
    http = served(embedder=Refusing())
    body = {"query": "the old office", "dryRun": True}

    refused(http.request("DELETE", "/ns/a/memories/semantic", json=body), 400, "refuses")


# --- found by strangers --------------------------------------------------------------------------


def test_what_is_not_there_is_called_what_this_door_calls_it(
    client: httpx.Client, limited: Callable[..., httpx.Client]
):
    assert refused(client.get("/ns/nobody"), 404) == {
        "error": "Namespace not found", "details": "no namespace 'nobody'",
    }  # fmt: skip
    assert refused(client.get("/ns/a/connectors/x"), 404) == {
        "error": "Connector not found", "details": "no connector 'x'",
    }  # fmt: skip
    told = refused(limited(tags=["a"]).get("/organization"), 403)
    assert told["details"] == "this key is limited to namespaces"


def test_a_slip_in_what_spares_the_documents_of_a_connector(client: httpx.Client):
    crawler = {"provider": "web-crawler", "config": {"startUrl": "http://127.0.0.1:9/"}}
    path = f"/ns/a/connectors/{client.post('/ns/a/connectors', json=crawler).json()['id']}"

    for slip in ("delete_documents=false", "deletedocuments=false", "deleteDocuments=false&x=1"):
        refused(client.delete(f"{path}?{slip}"), 400, "deleteDocuments")
    refused(client.request("DELETE", path, json={"deleteDocuments": False}), 400, "deleteDocuments")
    assert client.get(path).status_code == 200
    assert client.delete(f"{path}?deleteDocuments=false").status_code == 200


def test_a_field_of_a_form_comes_once(client: httpx.Client):
    files = [("file", ("a.txt", b"one")), ("file", ("b.txt", b"two"))]
    refused(client.post("/ns/a/document/file", files=files), 400, "file: stands there twice")

    dates = [("file", ("a.txt", b"one")), *[("date", (None, "2026-01-01"))] * 2]
    refused(client.post("/ns/a/document/file", files=dates), 400, "date: stands there twice")
    assert listed(client, "a")["documents"] == []


def test_a_name_of_the_wrong_form_is_called_so(client: httpx.Client):
    put(client, "a")
    path = "/ns/a/profile/buckets"

    told = refused(client.put(path, json={"buckets": {"Upper": "x"}}), 400)
    assert told["issues"][0]["path"] == ["buckets", "Upper"]
    assert "must match" in told["details"]
    told = refused(client.put(path, json={"buckets": {"static": "x"}}), 400)
    assert told["details"] == "buckets.static: static is a bucket of the service itself"
    refused(client.post("/ns/a/profile", json={"buckets": ["ä"]}), 400, "buckets.0: must match")


def test_a_value_that_may_be_of_several_types_is_refused_once(client: httpx.Client) -> None:
    for value in ({"b": 1}, [1], None):
        sent = {"provider": "folder", "config": {"path": value}}
        answer = client.post("/ns/shop/connectors", json=sent)

        told = "config.path: must be text, a whole number or true or false"
        refused(answer, 400, told)
        assert ";" not in answer.text
