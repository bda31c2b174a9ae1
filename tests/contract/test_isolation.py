"""Nobody reaches what is another's: every route, against every key that must not open it.

The rows are checked against the OpenAPI document, so a new route without a row fails here.
"""

import re
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest

from recollect.app import App
from recollect.db import Database
from recollect.documents import _changing
from recollect.model import KeyId, Org, Scope
from recollect.orgs import assistants, orgs
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import fresh_org
from tests.contract.calls import add, found, get, refused, rows, upload
from tests.fakes.shelf import shelved

SECRET = "zugzwang"
NS = "/ns/elsewhere"
"""The namespace of whoever asks: ids of others must not exist in it."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a request names: somebody's things, or things that are nobody's."""

    id: str
    custom_id: str
    conversation: str
    tag: str
    key_id: str
    merge_id: str
    org_id: str
    org_name: str
    connection: str
    memory: str
    webhook: str
    run: str
    question: str
    test_run: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Row:
    """How to call a route about things that are another's, and the least scope it asks for."""

    call: Callable[[httpx.Client, Names], httpx.Response]
    scope: Scope | None


def post(path: str, body: Callable[[Names], dict[str, Any]]) -> Callable[..., httpx.Response]:
    return lambda http, names: http.post(path, json=body(names))


def told(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    """The answer of a stream with the events that it begins with."""
    with http.stream("GET", "/v3/documents/events", headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
            return answer
        lines = answer.iter_lines()
        said: list[str] = []
        for line in lines:
            said.append(line)
            if line == "event: gap":  # the first event for one who was away so long
                break
        said += [next(lines), next(lines)]
        return httpx.Response(200, headers=answer.headers, text="\n".join(said))


ROWS: dict[str, Row] = {
    "addDocument": Row(
        post("/v3/documents", lambda n: {"content": "mine", "customId": n.custom_id}), Scope.WRITE
    ),
    "addDocuments": Row(
        post(
            "/v3/documents/batch",
            lambda n: {"documents": [{"content": "mine too", "customId": n.custom_id}]},
        ),
        Scope.WRITE,
    ),
    "uploadFile": Row(
        lambda http, n: upload(http, "a.txt", b"mine", customId=n.custom_id), Scope.WRITE
    ),
    "listDocuments": Row(
        post("/v3/documents/list", lambda n: {"includeContent": True, "limit": 100}), Scope.READ
    ),
    "listProcessing": Row(
        lambda http, n: http.get("/v3/documents/processing?view=all"), Scope.READ
    ),
    "countDocuments": Row(lambda http, n: http.get("/v3/documents/counts"), Scope.READ),
    "retryDocuments": Row(
        post("/v3/documents/retry", lambda n: {"ids": [n.id, n.custom_id], "failed": True}),
        Scope.WRITE,
    ),
    "deleteDocuments": Row(
        lambda http, n: http.request(
            "DELETE", "/v3/documents/bulk", json={"ids": [n.id, n.conversation]}
        ),
        Scope.WRITE,
    ),
    "getDocument": Row(lambda http, n: http.get(f"/v3/documents/{n.id}"), Scope.READ),
    "updateDocument": Row(
        lambda http, n: http.patch(f"/v3/documents/{n.id}", json={"content": "taken over"}),
        Scope.WRITE,
    ),
    "deleteDocument": Row(lambda http, n: http.delete(f"/v3/documents/{n.id}"), Scope.WRITE),
    "getChunks": Row(lambda http, n: http.get(f"/v3/documents/{n.id}/chunks"), Scope.READ),
    "listVersions": Row(lambda http, n: http.get(f"/v3/documents/{n.id}/versions"), Scope.READ),
    "getFileUrl": Row(lambda http, n: http.get(f"/v3/documents/{n.id}/file-url"), Scope.READ),
    "downloadFile": Row(
        lambda http, n: http.get(f"/v3/files/{n.org_id}/{n.id}?until=99999999999&mark=0"), None
    ),
    "addConversation": Row(
        post(
            "/v4/conversations",
            lambda n: {
                "conversationId": n.conversation,
                "messages": [{"role": "user", "content": "mine as well"}],
            },
        ),
        Scope.WRITE,
    ),
    "searchDocuments": Row(
        post("/v3/search", lambda n: {"q": SECRET, "includeFullDocs": True, "limit": 100}),
        Scope.READ,
    ),
    "searchMemories": Row(
        post(
            "/v4/search",
            lambda n: {
                "q": SECRET,
                "threshold": 0,
                "searchMode": "hybrid",
                "include": {"forgottenMemories": True, "documents": True},
            },
        ),
        Scope.READ,
    ),
    "addMemories": Row(
        post(
            "/v4/memories",
            lambda n: {"containerTag": "elsewhere", "memories": [{"content": "mine"}]},
        ),
        Scope.WRITE,
    ),
    "updateMemory": Row(
        lambda http, n: http.patch(
            "/v4/memories",
            json={"containerTag": "elsewhere", "id": n.memory, "newContent": "taken over"},
        ),
        Scope.WRITE,
    ),
    "forgetMemory": Row(
        lambda http, n: http.request(
            "DELETE", "/v4/memories", json={"containerTag": "elsewhere", "id": n.memory}
        ),
        Scope.WRITE,
    ),
    "listMemories": Row(
        post(
            "/v4/memories/list",
            lambda n: {"containerTags": ["elsewhere"], "includeForgotten": True},
        ),
        Scope.READ,
    ),
    "forgetMatchingMemories": Row(
        post(
            "/v4/memories/forget-matching",
            lambda n: {"containerTag": "elsewhere", "ids": [n.memory], "query": SECRET},
        ),
        Scope.WRITE,
    ),
    "getProfile": Row(post("/v4/profile", lambda n: {"containerTag": "elsewhere"}), Scope.READ),
    "listProfileBuckets": Row(post("/v4/profile/buckets", lambda n: {}), Scope.READ),
    "getSettings": Row(lambda http, n: http.get("/v3/settings"), Scope.READ),
    "updateSettings": Row(
        lambda http, n: http.patch("/v3/settings", json={"filterPrompt": "mine"}), Scope.ADMIN
    ),
    "previewSettings": Row(
        post("/v3/settings/preview", lambda n: {"connectionId": n.connection, "examples": 100}),
        Scope.ADMIN,
    ),
    "resetOrganization": Row(
        post("/v3/settings/reset", lambda n: {"confirmation": n.org_name}), Scope.ADMIN
    ),
    "listContainerTags": Row(lambda http, n: http.get("/v3/container-tags/list"), Scope.READ),
    "getContainerTag": Row(lambda http, n: http.get(f"/v3/container-tags/{n.tag}"), Scope.READ),
    "updateContainerTag": Row(
        lambda http, n: http.patch(f"/v3/container-tags/{n.tag}", json={"name": "mine"}),
        Scope.WRITE,
    ),
    "deleteContainerTag": Row(
        lambda http, n: http.delete(f"/v3/container-tags/{n.tag}"), Scope.WRITE
    ),
    "mergeContainerTags": Row(
        post(
            "/v3/container-tags/merge",
            lambda n: {"containerTags": [n.tag], "targetContainerTag": "elsewhere"},
        ),
        Scope.WRITE,
    ),
    "getContainerTagMerge": Row(
        lambda http, n: http.get(f"/v3/container-tags/merge/{n.merge_id}"), Scope.READ
    ),
    "streamEvents": Row(lambda http, n: told(http, {"Last-Event-ID": "1"}), Scope.READ),
    "createScopedKey": Row(
        post("/v3/auth/scoped-key", lambda n: {"containerTag": n.tag}), Scope.ADMIN
    ),
    "deleteScopedKey": Row(
        lambda http, n: http.delete(f"/v3/auth/scoped-key/{n.key_id}"), Scope.ADMIN
    ),
    "listAssistants": Row(lambda http, n: http.get("/v3/assistants"), Scope.ADMIN),
    "deleteAssistant": Row(
        lambda http, n: http.delete(f"/v3/assistants/{n.assistant}"), Scope.ADMIN
    ),
    "createConnection": Row(
        post("/v3/connections/shelf", lambda n: {"metadata": {"shelf": "isolated"}}), Scope.WRITE
    ),
    "listConnections": Row(post("/v3/connections/list", lambda n: {}), Scope.READ),
    "getConnectionByTags": Row(post("/v3/connections/shelf/connection", lambda n: {}), Scope.READ),
    "listConnectionDocuments": Row(
        post("/v3/connections/shelf/documents", lambda n: {}), Scope.READ
    ),
    "importConnection": Row(post("/v3/connections/shelf/import", lambda n: {}), Scope.WRITE),
    "getConnection": Row(lambda http, n: http.get(f"/v3/connections/{n.connection}"), Scope.READ),
    "updateConnection": Row(
        lambda http, n: http.patch(f"/v3/connections/{n.connection}", json={"paused": True}),
        Scope.WRITE,
    ),
    "authorizeConnection": Row(
        lambda http, n: http.post(f"/v3/connections/{n.connection}/authorize"), Scope.WRITE
    ),
    "syncConnection": Row(
        lambda http, n: http.post(f"/v3/connections/{n.connection}/sync"), Scope.WRITE
    ),
    "checkConnection": Row(
        lambda http, n: http.post(f"/v3/connections/{n.connection}/check"), Scope.WRITE
    ),
    "listSyncRuns": Row(
        lambda http, n: http.get(f"/v3/connections/{n.connection}/sync-runs"), Scope.READ
    ),
    "listSyncChanges": Row(
        lambda http, n: http.get(f"/v3/connections/{n.connection}/sync-runs/{n.run}/changes"),
        Scope.READ,
    ),
    "listConnectionItems": Row(
        lambda http, n: http.get(f"/v3/connections/{n.connection}/items"), Scope.READ
    ),
    "listConnectionResources": Row(
        lambda http, n: http.get(f"/v3/connections/{n.connection}/resources"), Scope.READ
    ),
    "configureConnection": Row(
        lambda http, n: http.post(
            f"/v3/connections/{n.connection}/configure", json={"resources": [{"id": 1}]}
        ),
        Scope.WRITE,
    ),
    "deleteConnection": Row(
        lambda http, n: http.delete(f"/v3/connections/{n.connection}"), Scope.WRITE
    ),
    "createWebhook": Row(
        post("/v3/webhooks", lambda n: {"url": "https://hooks.example.org/"}), Scope.WRITE
    ),
    "listWebhooks": Row(lambda http, n: http.get("/v3/webhooks"), Scope.READ),
    "updateWebhook": Row(
        lambda http, n: http.patch(f"/v3/webhooks/{n.webhook}", json={"rotateSecret": True}),
        Scope.WRITE,
    ),
    "listDeliveries": Row(
        lambda http, n: http.get(f"/v3/webhooks/{n.webhook}/deliveries"), Scope.READ
    ),
    "replayDelivery": Row(
        lambda http, n: http.post(f"/v3/webhooks/{n.webhook}/deliveries/{n.id}/replay"),
        Scope.WRITE,
    ),
    "testWebhook": Row(lambda http, n: http.post(f"/v3/webhooks/{n.webhook}/test"), Scope.WRITE),
    "deleteWebhook": Row(lambda http, n: http.delete(f"/v3/webhooks/{n.webhook}"), Scope.WRITE),
    "listAudit": Row(lambda http, n: http.get("/v3/audit?limit=1000"), Scope.ADMIN),
    "getSession": Row(lambda http, n: http.get("/v3/session"), Scope.READ),
    "answerQuestion": Row(post("/v4/answer", lambda n: {"q": "heron"}), Scope.READ),
    "listTestQuestions": Row(
        lambda http, n: http.get("/v3/test-questions?containerTag=elsewhere"), Scope.READ
    ),
    "addTestQuestions": Row(
        post(
            "/v3/test-questions",
            lambda n: {"containerTag": "elsewhere", "questions": [{"question": "a", "words": "b"}]},
        ),
        Scope.WRITE,
    ),
    "importTestQuestions": Row(
        post(
            "/v3/test-questions/import",
            lambda n: {"containerTag": "elsewhere", "lines": '{"question": "a", "words": "b"}'},
        ),
        Scope.WRITE,
    ),
    "makeTestQuestions": Row(
        post("/v3/test-questions/make", lambda n: {"containerTag": n.tag}), Scope.WRITE
    ),
    "exportTestQuestions": Row(
        lambda http, n: http.get("/v3/test-questions/export?containerTag=elsewhere"), Scope.READ
    ),
    "updateTestQuestion": Row(
        lambda http, n: http.put(
            f"/v3/test-questions/{n.question}", json={"question": "taken", "words": "over"}
        ),
        Scope.WRITE,
    ),
    "deleteTestQuestion": Row(
        lambda http, n: http.delete(f"/v3/test-questions/{n.question}"), Scope.WRITE
    ),
    "listTestRuns": Row(
        lambda http, n: http.get("/v3/test-runs?containerTag=elsewhere"), Scope.READ
    ),
    "beginTestRun": Row(post("/v3/test-runs", lambda n: {"containerTag": n.tag}), Scope.WRITE),
    "stepTestRun": Row(lambda http, n: http.post(f"/v3/test-runs/{n.test_run}/step"), Scope.WRITE),
    "getTestRun": Row(lambda http, n: http.get(f"/v3/test-runs/{n.test_run}"), Scope.READ),
    "linkSession": Row(lambda http, n: http.post("/v3/session/link"), Scope.READ),
    "countEverything": Row(lambda http, n: http.get("/v3/analytics/memory"), Scope.READ),
    "listDocumentsWithMemories": Row(
        post("/v3/documents/documents", lambda n: {"limit": 100}), Scope.READ
    ),
    "nsAddDocument": Row(
        post(
            f"{NS}/document", lambda n: {"content": "mine", "id": n.custom_id, "metadata": {"a": 1}}
        ),
        Scope.WRITE,
    ),
    "nsAddDocuments": Row(
        post(
            f"{NS}/document/batch",
            lambda n: {"documents": [{"content": "mine too", "id": n.custom_id}]},
        ),
        Scope.WRITE,
    ),
    "nsGetDocument": Row(
        lambda http, n: http.get(f"{NS}/document/{n.id}?include=chunks,memories"), Scope.READ
    ),
    "nsUpdateDocument": Row(
        lambda http, n: http.patch(f"{NS}/document/{n.id}", json={"content": "taken over"}),
        Scope.WRITE,
    ),
    "nsDeleteDocuments": Row(
        lambda http, n: http.request(
            "DELETE", f"{NS}/document", json={"ids": [n.id, n.conversation]}
        ),
        Scope.WRITE,
    ),
    "nsUploadFile": Row(
        lambda http, n: http.post(f"{NS}/document/file", files={"file": ("a.txt", b"mine")}),
        Scope.WRITE,
    ),
    "nsReplaceWithFile": Row(
        lambda http, n: http.post(
            f"{NS}/document/file/{n.id}", files={"file": ("a.txt", b"taken over")}
        ),
        Scope.WRITE,
    ),
    "nsUpdateFile": Row(
        lambda http, n: http.patch(
            f"{NS}/document/file/{n.id}", files={"file": ("a.txt", b"taken over")}
        ),
        Scope.WRITE,
    ),
    "nsSearch": Row(
        post(
            f"{NS}/search",
            lambda n: {
                "query": SECRET,
                "threshold": 0,
                "include": {"documents": True, "related": True, "forgotten": True},
            },
        ),
        Scope.READ,
    ),
    "nsList": Row(
        post(f"{NS}/list/documents?limit=100", lambda n: {"include": {"content": True}}),
        Scope.READ,
    ),
    "nsCountMemories": Row(
        post(
            f"{NS}/list/documents/memory-counts", lambda n: {"ids": [n.id, n.conversation, "none"]}
        ),
        Scope.READ,
    ),
    "nsGetMemory": Row(
        lambda http, n: http.get(f"{NS}/memories/{n.memory}?include=related,documents"), Scope.READ
    ),
    "nsForgetMemories": Row(
        lambda http, n: http.request("DELETE", f"{NS}/memories", json={"ids": [n.memory, n.id]}),
        Scope.WRITE,
    ),
    "nsForgetMatching": Row(
        lambda http, n: http.request(
            "DELETE", f"{NS}/memories/semantic", json={"query": SECRET, "dryRun": False}
        ),
        Scope.WRITE,
    ),
    "nsGetProfile": Row(lambda http, n: http.post(f"{NS}/profile"), Scope.READ),
    "nsGetBuckets": Row(lambda http, n: http.get(f"{NS}/profile/buckets"), Scope.READ),
    "nsSetBuckets": Row(
        lambda http, n: http.put(f"/ns/{n.tag}/profile/buckets", json={"buckets": {"a": "mine"}}),
        Scope.WRITE,
    ),
    "nsDeleteBuckets": Row(
        lambda http, n: http.request(
            "DELETE", f"/ns/{n.tag}/profile/buckets", json={"buckets": ["a"]}
        ),
        Scope.WRITE,
    ),
    "nsListAllConnectors": Row(lambda http, n: http.get("/connectors"), Scope.READ),
    "nsListConnectors": Row(lambda http, n: http.get(f"{NS}/connectors"), Scope.READ),
    "nsCreateConnector": Row(
        post(
            f"{NS}/connectors",
            lambda n: {"provider": "web-crawler", "config": {"startUrl": "http://127.0.0.1:9/"}},
        ),
        Scope.WRITE,
    ),
    "nsGetConnector": Row(
        lambda http, n: http.get(f"{NS}/connectors/{n.connection}?include=syncs,picker"),
        Scope.READ,
    ),
    "nsUpdateConnector": Row(
        lambda http, n: http.patch(f"{NS}/connectors/{n.connection}", json={"documentLimit": 1}),
        Scope.WRITE,
    ),
    "nsDeleteConnector": Row(
        lambda http, n: http.delete(f"{NS}/connectors/{n.connection}"), Scope.WRITE
    ),
    "nsSyncConnector": Row(
        lambda http, n: http.post(f"{NS}/connectors/{n.connection}/sync"), Scope.WRITE
    ),
    "nsListNamespaces": Row(lambda http, n: http.get("/ns"), Scope.READ),
    "nsListNamespacesToo": Row(lambda http, n: http.get("/namespaces"), Scope.READ),
    "nsGetNamespace": Row(lambda http, n: http.get(f"/ns/{n.tag}"), Scope.READ),
    "nsUpdateNamespace": Row(
        lambda http, n: http.patch(f"/ns/{n.tag}", json={"supportingContext": "mine"}), Scope.WRITE
    ),
    "nsDeleteNamespace": Row(lambda http, n: http.delete(f"/ns/{n.tag}"), Scope.WRITE),
    "nsGetOrganization": Row(lambda http, n: http.get("/organization"), Scope.READ),
    "nsUpdateOrganization": Row(
        lambda http, n: http.patch("/organization", json={"organizationalContext": "mine"}),
        Scope.ADMIN,
    ),
    "nsPostFeedback": Row(post("/feedback", lambda n: {"title": SECRET}), Scope.READ),
    "health": Row(lambda http, n: http.get("/health"), None),
    "ready": Row(lambda http, n: http.get("/ready"), None),
}


class _Renamed:
    """A client that asks in another's namespace instead of its own."""

    def __init__(self, http: httpx.Client, tag: str) -> None:
        self._http, self._tag = http, tag

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        renamed = path.replace(NS, f"/ns/{self._tag}")
        return self._http.request(method, renamed, **more)

    def __getattr__(self, method: str) -> Callable[..., httpx.Response]:
        return lambda path, **more: self.request(method.upper(), path, **more)


def renamed(http: httpx.Client, tag: str) -> httpx.Client:
    return cast("httpx.Client", _Renamed(http, tag))


_NAMING_TAGS: list[Callable[[httpx.Client, Names], httpx.Response]] = [
    post("/v3/documents", lambda n: {"content": "x", "containerTag": n.tag}),
    post("/v3/documents/batch", lambda n: {"documents": ["x"], "containerTag": n.tag}),
    lambda http, n: upload(http, "a.txt", b"x", containerTags=n.tag),
    post("/v3/documents/list", lambda n: {"containerTags": [n.tag], "includeContent": True}),
    post("/v3/search", lambda n: {"q": SECRET, "containerTags": [n.tag]}),
    post("/v3/search", lambda n: {"q": SECRET, "docId": n.id}),
    post("/v4/search", lambda n: {"q": SECRET, "threshold": 0, "containerTags": [n.tag]}),
    post("/v4/profile", lambda n: {"containerTag": n.tag, "q": SECRET, "threshold": 0}),
    lambda http, n: http.get(f"/v3/test-questions?containerTag={n.tag}"),
    lambda http, n: http.get(f"/v3/test-questions/export?containerTag={n.tag}"),
    lambda http, n: http.get(f"/v3/test-runs?containerTag={n.tag}"),
    post("/v3/test-runs", lambda n: {"containerTag": n.tag}),
    post("/v3/test-questions/make", lambda n: {"containerTag": n.tag}),
    post("/v4/profile/buckets", lambda n: {"containerTag": n.tag}),
    post("/v4/memories/list", lambda n: {"containerTags": [n.tag]}),
    post("/v4/memories", lambda n: {"containerTag": n.tag, "memories": [{"content": "x"}]}),
    post(
        "/v4/memories/forget-matching",
        lambda n: {"containerTag": n.tag, "query": SECRET, "threshold": 0},
    ),
    lambda http, n: http.patch(
        "/v4/memories", json={"containerTag": n.tag, "id": n.memory, "newContent": "x"}
    ),
    lambda http, n: http.request(
        "DELETE",
        "/v4/memories",
        json={"containerTag": n.tag, "content": f"they know the {SECRET}"},
    ),
    lambda http, n: http.get(f"/v3/documents/processing?view=all&containerTags={n.tag}"),
    lambda http, n: http.request("DELETE", "/v3/documents/bulk", json={"containerTags": [n.tag]}),
    lambda http, n: http.request("DELETE", "/v3/documents/bulk", json={"filepath": "/secret/"}),
    lambda http, n: http.get(f"/v3/documents/{n.custom_id}"),
    lambda http, n: http.patch(f"/v3/documents/{n.custom_id}", json={"metadata": {}}),
    post(
        "/v4/conversations",
        lambda n: {
            "conversationId": n.conversation,
            "messages": [{"role": "user", "content": "x"}],
            "containerTag": n.tag,
        },
    ),
    *(
        lambda http, n, name=name: ROWS[name].call(renamed(http, n.tag), n)
        for name in ROWS
        if name.startswith("ns")
    ),
    lambda http, n: http.post(f"/ns/{n.tag}/list/memories", json={}),
    lambda http, n: http.get(f"/ns/{n.tag}/document/{n.custom_id}"),
    lambda http, n: http.patch(f"/ns/elsewhere/document/{n.custom_id}", json={"metadata": {}}),
    lambda http, n: http.post(f"/ns/{n.tag}/list/chunks", json={}),
    lambda http, n: http.delete(f"/ns/elsewhere?moveTo={n.tag}"),
    lambda http, n: http.delete(f"/ns/{n.tag}?moveTo=elsewhere"),
]
NAMING_TAGS = {f"naming {number}": call for number, call in enumerate(_NAMING_TAGS)}
NOBODY = Names(
    "n" * 22, "absent-1", "absent-2", "absent-3", "f" * 12, "m" * 22, "o" * 22, "absent-4",
    "c" * 22, "y" * 22, "w" * 22, "r" * 22, "q" * 22, "t" * 22,
    "z" * 22,
)  # fmt: skip


@pytest.fixture(autouse=True)
def shelf() -> Generator[None]:
    """A provider with something secret."""
    with shelved("isolated") as made:
        made.put("1", f"The provider says {SECRET}.")
        yield


@pytest.fixture
def owned(client: httpx.Client, app: App, org: Org) -> Names:
    """An organisation full of secrets."""
    labels = {"containerTag": "vault", "metadata": {"a": SECRET}, "filepath": f"/secret/{SECRET}"}
    add(client, f"the word is {SECRET}", customId="owned", entityContext=SECRET, **labels)
    talk = {"role": "user", "content": SECRET}
    body = {"conversationId": "talk", "messages": [talk], "containerTag": "vault"}
    client.post("/v4/conversations", json=body)
    file = upload(client, f"{SECRET}.txt", SECRET.encode(), containerTags="vault").json()["id"]
    client.patch("/v3/settings", json={"filterPrompt": SECRET})
    key = client.post("/v3/auth/scoped-key", json={"containerTag": "vault", "name": SECRET}).json()
    add(client, SECRET, containerTag="old")
    body = {"containerTags": ["old"], "targetContainerTag": "vault"}
    merge = client.post("/v3/container-tags/merge", json=body).json()["mergeId"]
    body = {"metadata": {"shelf": "isolated", "note": SECRET}, "containerTags": ["vault"]}
    connection = client.post("/v3/connections/shelf", json=body).json()["id"]
    syncs.drain(app)
    drain(app)
    run = client.get(f"/v3/connections/{connection}/sync-runs").json()[0]["id"]
    body = {"containerTag": "vault", "memories": [{"content": f"they know the {SECRET}"}]}
    memory = client.post("/v4/memories", json=body).json()["memories"][0]["id"]
    body = {"url": f"https://hooks.example.org/{SECRET}", "description": SECRET}
    webhook = client.post("/v3/webhooks", json=body).json()["id"]
    client.post(f"/v3/webhooks/{webhook}/test")
    body = {"containerTag": "vault", "questions": [{"question": SECRET, "words": SECRET}]}
    question = client.post("/v3/test-questions", json=body).json()["questions"][0]["id"]
    test_run = client.post("/v3/test-runs", json={"containerTag": "vault"}).json()["id"]
    with app.db.begin() as tx:
        program = assistants.register(tx, SECRET, ["https://assistant.example/back"])
        assistants.allow(
            tx,
            orgs.key(tx, KeyId(key["id"])),
            program,
            scope=Scope.READ,
            tags=None,
            redirect_uri="https://assistant.example/back",
            challenge="c" * 43,
        )
        [assistant] = assistants.find(tx, org.id)
    return Names(
        file, "owned", "talk", "vault", key["id"], merge, org.id, org.name, connection, memory,
        webhook, run, question, test_run, assistant.id,
    )  # fmt: skip


@pytest.fixture(params=["stranger", "scoped"])
def other(
    request: pytest.FixtureRequest,
    stranger: httpx.Client,
    limited: Callable[..., httpx.Client],
) -> httpx.Client:
    """Someone of another organisation, or a key of the same one that is limited to another tag."""
    return stranger if request.param == "stranger" else limited(tags=["elsewhere"])


def everything(db: Database, org: Org) -> dict[str, str]:
    """By id, all that is kept of each document and memory; so of the settings and the tags."""
    with db.begin() as tx:
        kept = tx.execute(
            "select id, d::text as row from documents d where org_id = %(org)s"
            " union all select 'settings', s::text from settings s where org_id = %(org)s"
            " union all select 'tag ' || name, t::text from tags t where org_id = %(org)s"
            " union all select id, m::text from memories m where org_id = %(org)s"
            " union all select id, q::text from test_questions q where org_id = %(org)s"
            " union all select id, r::text from test_runs r where org_id = %(org)s"
            " union all select id, a::text from assistants a where org_id = %(org)s",
            {"org": org.id},
        ).fetchall()
    return {row["id"]: row["row"] for row in kept}


def without(names: Names, answer: httpx.Response) -> str:
    """The answer with what the request named itself taken out."""
    text = answer.text
    named = (
        names.id,
        names.custom_id,
        names.conversation,
        names.tag,
        names.key_id,
        names.merge_id,
        names.connection,
        names.memory,
        names.webhook,
        names.run,
        names.assistant,
    )
    for name in named:
        text = text.replace(name, "*")
    return text


def test_every_route_has_a_row(client: httpx.Client):
    schema = client.get("/v3/openapi").json()
    routes = {
        operation["operationId"] for p in schema["paths"].values() for operation in p.values()
    }

    assert routes == set(ROWS)


def test_another_reaches_nothing(
    client: httpx.Client, other: httpx.Client, owned: Names, db: Database, org: Org
):
    before = everything(db, org)
    assert SECRET in before["settings"]
    assert SECRET in before["tag vault"]
    assert {owned.id, owned.memory} <= set(before)
    for name, call in {**{r: row.call for r, row in ROWS.items()}, **NAMING_TAGS}.items():
        answer = call(other, owned)

        assert answer.status_code < 500 or answer.url.path == "/feedback", name
        assert SECRET not in answer.text, name
        assert owned.id not in without(owned, answer), name
        now = everything(db, org)
        assert {id: now.get(id) for id in before} == before, name
    assert client.get("/v3/settings").json()["filterPrompt"] == SECRET
    tag = client.get("/v3/container-tags/vault").json()
    assert (tag["entityContext"], tag["name"]) == (SECRET, None)


NUMBERS = re.compile(
    r'"(timing|searchTime|lexical|score|similarity)":[\d.e-]+|(?<="id":)()\d+(?=,)|'
    r'"(request)":"[0-9a-f]{16}"|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=id: )\d{13}'
)
"""What no two answers have in common: times, figures that depend on what stands beside, ids of the
audit log, which count for all."""
MADE_UP = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z0-9]{22}|[0-9a-f]{12}|sm_\w{20,}|whsec_[\w+/=]+|once=[\w-]+"
    r"|org-[0-9a-f]{12})(?![A-Za-z0-9])"
)
"""Ids, secrets, and names of organisations."""


def likeness(names: Names, answer: httpx.Response) -> tuple[int, set[str], str]:
    """Of an answer what is the same in that to the same request elsewhere: what was made up for it
    is numbered as it comes."""
    seen: dict[str, str] = {}
    text = NUMBERS.sub(r"\1", without(names, answer))
    text = MADE_UP.sub(lambda made: seen.setdefault(made[0], f"<{len(seen)}>"), text)
    return answer.status_code, set(answer.headers), text


def test_what_is_anothers_looks_like_what_is_nobodys(
    other: httpx.Client, owned: Names, db: Database, with_key: Callable[[str], httpx.Client]
):
    """Step by step, as long as two do the same: one beside things of others, one alone."""
    session = other.get("/v3/session").json()
    with fresh_org(db) as empty:
        with db.begin() as tx:
            secret = orgs.create_key(tx, empty.id, tags=session["scope"].get("containerTags"))[1]
        alone = with_key(secret)
        for name, call in {**{r: row.call for r, row in ROWS.items()}, **NAMING_TAGS}.items():
            theirs, nobodys = call(other, owned), call(alone, NOBODY)

            assert likeness(owned, theirs) == likeness(NOBODY, nobodys), name


def test_every_route_asks_for_a_key_of_enough_scope(
    with_key: Callable[[str], httpx.Client],
    limited: Callable[..., httpx.Client],
    db: Database,
    org: Org,
):
    with db.begin() as tx:
        revoked, revoked_secret = orgs.create_key(tx, org.id)
        expired, expired_secret = orgs.create_key(tx, org.id)
        orgs.revoke_key(tx, revoked.id)
        tx.execute("update keys set expires_at = now() where id = %s", (expired.id,))
    wrong = [
        with_key(secret)
        for secret in ("", "nobody", uuid.uuid4().hex, revoked_secret, expired_secret)
    ]
    scopes = [Scope.READ, Scope.WRITE, Scope.ADMIN]
    keys = [limited(scope) for scope in scopes]

    for name, row in ROWS.items():
        if row.scope is None:
            assert row.call(wrong[0], NOBODY).status_code != 401, name
            continue
        for http in wrong:
            refused(row.call(http, NOBODY), 401, "Unauthorized")
        for scope, http in zip(scopes, keys, strict=True):
            enough = scopes.index(scope) >= scopes.index(row.scope)
            assert (row.call(http, NOBODY).status_code != 403) is enough, (name, scope)


def test_two_organisations_with_the_same_names_stay_apart(
    client: httpx.Client, stranger: httpx.Client, app: App, db: Database, org: Org
):
    for http, word in ((client, "heron"), (stranger, "stork")):
        add(http, f"a {word} in the water", customId="bird", containerTag="a")
    drain(app)

    assert get(client, "bird")["content"] == "a heron in the water"
    assert get(stranger, "bird")["content"] == "a stork in the water"
    assert [r["chunks"][0]["content"] for r in found(client, "water", containerTag="a")] == [
        "a heron in the water"
    ]
    stranger.request("DELETE", "/v3/documents/bulk", json={"containerTags": ["a"]})
    assert rows(db, org)["documents"] == 1
    assert found(client, "water")


VARYING = re.compile(r'"(?:timing|searchTime|lexical)":[\d.]+')
"""Milliseconds that a search took; and the rarity of words, which is counted with the rows."""
CHANGING_ONE = {
    "retryDocuments", "deleteDocuments", "updateDocument", "deleteDocument", "nsUpdateDocument",
    "nsUpdateFile", "nsReplaceWithFile", "nsDeleteDocuments",
}  # fmt: skip


def test_what_is_hidden_looks_like_what_is_gone(
    client: httpx.Client,
    owned: Names,
    app: App,
    org: Org,
    db: Database,
    monkeypatch: pytest.MonkeyPatch,
):
    """Between the answer to a large deletion and the end of the last row, nobody sees the rows."""
    monkeypatch.setattr(_changing, "AT_ONCE", 0)
    add(client, f"another {SECRET}", customId="kept", containerTag="other")
    drain(app)
    # A link to sign in is new each time, and the end of the rows is an event to deliver.
    asked = {
        name: row
        for name, row in ROWS.items()
        if name in CHANGING_ONE or row.scope is Scope.READ
        if name not in {"linkSession", "listDeliveries"}
    }

    body = {"containerTags": ["vault"]}
    client.request("DELETE", "/v3/documents/bulk", json=body).raise_for_status()
    assert rows(db, org)["documents"] > 1
    inside = renamed(client, "vault")
    who = {name: inside if name.startswith("ns") else client for name in asked}
    hidden = {name: row.call(who[name], owned) for name, row in asked.items()}
    drain(app)

    assert rows(db, org)["documents"] == 1
    for name, row in asked.items():
        gone = row.call(who[name], owned)
        assert gone.status_code == hidden[name].status_code, name
        assert VARYING.sub("", gone.text) == VARYING.sub("", hidden[name].text), name
