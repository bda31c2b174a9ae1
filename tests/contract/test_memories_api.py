"""/v4/memories, /v4/profile, /v4/search, without a language model."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.db import Database
from recollect.index import terms
from recollect.memories import memories, reading
from recollect.memories.records import Fact, MemoryId, Relation, Span
from recollect.model import DocumentId, Org, Scope
from recollect.worker.processing import drain
from tests.contract.calls import add, found, get, listed, refused

MEMORY_FIELDS = {
    "id",
    "memory",
    "version",
    "parentMemoryId",
    "rootMemoryId",
    "isLatest",
    "isForgotten",
    "isStatic",
    "isInference",
    "buckets",
    "sourceCount",
    "metadata",
    "forgetAfter",
    "forgetReason",
    "createdAt",
    "updatedAt",
}


def remember(http: httpx.Client, *texts: str, tag: str = "ann", **more: Any) -> dict[str, Any]:
    """Add memories; the whole answer."""
    body = {"containerTag": tag, "memories": [{"content": text, **more} for text in texts]}
    answer = http.post("/v4/memories", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def call(http: httpx.Client, method: str, path: str, **body: Any) -> dict[str, Any]:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def entries(http: httpx.Client, *tags: str, **query: Any) -> list[dict[str, Any]]:
    body = call(http, "POST", "/v4/memories/list", containerTags=tags or ["ann"], **query)
    return body["memoryEntries"]


def texts(http: httpx.Client, *tags: str, **query: Any) -> list[str]:
    return sorted(entry["memory"] for entry in entries(http, *tags, **query))


def search(http: httpx.Client, q: str, **query: Any) -> list[dict[str, Any]]:
    body = call(http, "POST", "/v4/search", **{"q": q, "threshold": 0, **query})
    assert body["total"] == len(body["results"])
    assert body["timing"] >= 0
    for result in body["results"]:
        assert ("memory" in result) != ("chunk" in result)
        assert 0 <= result["similarity"] <= 1
        assert "metadata" in result
    return body["results"]


def draw(db: Database, org: Org, document: str, text: str, tag: str, **more: Any) -> MemoryId:
    """A memory as a model would have drawn it from the document's first chunk."""
    with db.begin() as tx:
        id = DocumentId(document)
        tx.execute("delete from memory_reads where document_id = %s", (id,))
        [chunk, *_] = reading.unread(tx, id)
        fact = Fact(
            text, terms.weigh(org.id, text), spans=[Span(chunk.hash, 0, len(chunk.text))], **more
        )
        return memories.store(tx, org.id, id, tag, [fact], read=[chunk.hash])[0]


# --- adding ------------------------------------------------------------------------------------


def test_memories_are_added_as_they_are(client: httpx.Client, app: App):
    answer = remember(
        client,
        "Ann likes tea.",
        isStatic=True,
        metadata={"kinds": ["drink", "hot"], "n": 1},
        forgetAfter="2999-01-01",
        forgetReason="far away",
        temporalContext={"documentDate": "2026-01-02", "eventDate": ["2025-12"]},
        buckets=["taste"],
    )

    [memory] = answer["memories"]
    assert set(memory) == MEMORY_FIELDS | {"temporalContext"}
    assert memory["memory"] == "Ann likes tea."
    assert memory["metadata"] == {"kinds": ["drink", "hot"], "n": 1}
    assert memory["forgetAfter"] == "2999-01-01T00:00:00.000Z"
    assert memory["temporalContext"] == {"documentDate": "2026-01-02", "eventDate": ["2025-12"]}
    assert (memory["isStatic"], memory["isLatest"], memory["version"]) == (True, True, 1)
    document = get(client, answer["documentId"])
    assert (document["status"], document["dreamingStatus"]) == ("done", "done")
    assert (document["containerTags"], document["source"]) == (["ann"], "memories")
    assert [m["id"] for m in document["memories"]] == [memory["id"]]
    assert set(document["memories"][0]) == set(memory)
    assert call(client, "GET", "/v3/documents/processing?view=all")["documents"] == []
    assert drain(app) == 0


def test_a_document_without_memories_does_not_name_them(client: httpx.Client, app: App):
    assert "memories" not in get(client, add(client, "Herons eat frogs."))


def test_adding_again_at_once_is_a_retry(client: httpx.Client):
    first, again = remember(client, "One.", "Two."), remember(client, "One.", "Two.")

    assert again == {**first, "memories": again["memories"]}
    assert [m["id"] for m in again["memories"]] == [m["id"] for m in first["memories"]]
    assert len(listed(client)) == 1


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ({"memories": [{"content": "x"}]}, "containerTag"),
        ({"containerTag": "a b", "memories": [{"content": "x"}]}, "containerTag"),
        ({"containerTag": "a", "memories": []}, "memories"),
        ({"containerTag": "a", "memories": [{"content": "x"}] * 101}, "memories"),
        ({"containerTag": "a", "memories": [{"content": " "}]}, "content"),
        ({"containerTag": "a", "memories": [{"content": "x" * 10_001}]}, "content"),
        ({"containerTag": "a", "memories": [{"content": "x", "metadata": {"a": {}}}]}, "metadata"),
        ({"containerTag": "a", "memories": [{"content": "x", "forgetAfter": "soon"}]}, "forget"),
        ({"containerTag": "a", "memories": [{"content": "x", "buckets": ["No!"]}]}, "buckets"),
    ],
)
def test_what_cannot_be_added(client: httpx.Client, body: dict[str, Any], about: str):
    refused(client.post("/v4/memories", json=body), 400, about)


def test_what_cannot_be_stored_is_cleaned(client: httpx.Client):
    sent = b'{"containerTag": "ann", "memories": [{"content": "a\\u0000b \\ud800"}]}'
    answer = client.post("/v4/memories", content=sent, headers={"content-type": "application/json"})
    assert answer.json()["memories"][0]["memory"] == "a\ufffdb \ufffd"


# --- updating and forgetting -------------------------------------------------------------------


def test_an_update_is_a_new_version(client: httpx.Client):
    [first] = remember(client, "Ann lives in Bonn.", metadata={"n": 1})["memories"]
    body = {"containerTag": "ann", "content": "Ann lives in Bonn.", "newContent": "Ann left."}
    second = call(client, "PATCH", "/v4/memories", **body)
    body = {"containerTag": "ann", "id": second["id"], "newContent": "Ann is in Ulm."}
    more = {"metadata": {"n": 3}, "forgetAfter": "2999-01-01", "forgetReason": "moves on"}
    third = call(client, "PATCH", "/v4/memories", **body, **more)

    assert (second["version"], second["parentMemoryId"]) == (2, first["id"])
    assert (second["rootMemoryId"], second["metadata"]) == (first["id"], {"n": 1})
    assert (third["version"], third["parentMemoryId"]) == (3, second["id"])
    assert (third["rootMemoryId"], third["metadata"]) == (first["id"], {"n": 3})
    assert third["forgetReason"] == "moves on"
    cleared = call(
        client, "PATCH", "/v4/memories",
        containerTag="ann", id=third["id"], newContent="Ann is in Jena.", forgetAfter=None,
    )  # fmt: skip
    assert (cleared["forgetAfter"], cleared["forgetReason"]) == (None, None)
    [entry] = entries(client)
    assert entry["memory"] == "Ann is in Jena."
    assert [version["version"] for version in entry["history"]] == [4, 3, 2, 1]
    assert [version["isLatest"] for version in entry["history"]] == [True, False, False, False]


def test_an_update_that_changes_nothing_adds_no_version(client: httpx.Client):
    [first] = remember(client, "Ann lives in Bonn.", metadata={"n": 1})["memories"]
    body = {"containerTag": "ann", "id": first["id"], "newContent": "Ann is in Ulm."}
    more = {"metadata": {"n": 2}, "forgetAfter": "2999-01-01", "forgetReason": "moves on"}
    second = call(client, "PATCH", "/v4/memories", **body, **more)

    assert call(client, "PATCH", "/v4/memories", **body, **more) == second
    assert call(client, "PATCH", "/v4/memories", **body) == second
    for change in ({"metadata": {"n": True}}, {"forgetAfter": None}):
        assert call(client, "PATCH", "/v4/memories", **body, **change)["version"] > 2
    [entry] = entries(client)
    assert [version["version"] for version in entry["history"]] == [4, 3, 2, 1]


def test_who_updates_or_forgets_names_what(client: httpx.Client):
    document = remember(client, "Ann likes tea.")["documentId"]
    for method, more in (("PATCH", {"newContent": "x"}), ("DELETE", {})):

        def ask(method: str = method, more: dict[str, str] = more, **body: Any) -> httpx.Response:
            return client.request(method, "/v4/memories", json={**more, **body})

        refused(ask(), 400, "containerTag")
        refused(ask(containerTag="ann"), 400, "id or the content")
        refused(ask(containerTag="ann", id="nobody"), 404, "nobody")
        refused(ask(containerTag="ann", content="Ann likes"), 404, "exactly")
        refused(ask(containerTag="bob", content="Ann likes tea."), 404)
        assert (
            "is the id of a document"
            in refused(ask(containerTag="ann", id=document), 404)["details"]
        )


def test_forgetting(client: httpx.Client):
    [tea, rum] = remember(client, "Ann likes tea.", "Ann likes rum.")["memories"]
    body = {"containerTag": "ann", "content": "Ann likes tea.", "reason": "wrong"}
    gone = call(client, "DELETE", "/v4/memories", **body)

    assert gone == {"id": tea["id"], "forgotten": True}
    for again in ({"id": tea["id"]}, {"content": "Ann likes tea."}):
        refused(
            client.request("DELETE", "/v4/memories", json={"containerTag": "ann", **again}), 409
        )
        change = {"containerTag": "ann", "newContent": "Ann likes mate.", **again}
        refused(client.patch("/v4/memories", json=change), 404, "was forgotten")
    assert texts(client) == ["Ann likes rum."]
    [shown, hidden] = entries(client, includeForgotten=True, order="asc", sort="updatedAt")
    assert (shown["memory"], hidden["forgetReason"]) == ("Ann likes rum.", "wrong")
    assert hidden["isForgotten"] is True
    assert [r["id"] for r in search(client, "Ann likes")] == [rum["id"]]
    with_gone = search(client, "Ann likes", include={"forgottenMemories": True})
    assert {r["id"] for r in with_gone} == {tea["id"], rum["id"]}


def test_what_expired_is_forgotten_everywhere(client: httpx.Client):
    past = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    document = remember(client, "Ann is away.", forgetAfter=past)["documentId"]

    assert texts(client) == []
    assert search(client, "Ann away") == []
    assert call(client, "POST", "/v4/profile", containerTag="ann")["profile"]["dynamic"] == []
    assert get(client, document)["memories"][0]["isForgotten"] is True
    refused(
        client.request(
            "DELETE", "/v4/memories", json={"containerTag": "ann", "content": "Ann is away."}
        ),
        409,
    )


def test_forget_what_matches(client: httpx.Client):
    remember(client, "Ann likes green tea.", "Ann drinks tea at five.", "Bob plays the cello.")
    path, body = "/v4/memories/forget-matching", {"containerTag": "ann", "query": "tea"}
    dry = call(client, "POST", path, **body, dryRun=True)

    assert (dry["dryRun"], dry["count"], dry["forgetBatchId"]) == (True, 2, None)
    assert "forgotten" not in dry
    assert {c["memory"] for c in dry["candidates"]} == {
        "Ann likes green tea.",
        "Ann drinks tea at five.",
    }
    assert all(0.5 <= c["score"] <= 1 for c in dry["candidates"])
    assert call(client, "POST", path, **body, dryRun=True, maxForget=1)["count"] == 1
    assert call(client, "POST", path, **body, dryRun=True, threshold=1)["count"] == 0
    assert len(texts(client)) == 3

    one = dry["candidates"][0]
    done = call(client, "POST", path, containerTag="ann", ids=[one["id"], "nobody"], reason="old")
    assert (done["dryRun"], done["count"]) == (False, 1)
    assert [f["id"] for f in done["forgotten"]] == [one["id"]]
    assert done["forgetBatchId"]
    rest = call(client, "POST", path, **body)
    assert (rest["count"], rest["summary"]) == (1, "forgot 1 memory")
    assert texts(client) == ["Bob plays the cello."]
    nothing = call(client, "POST", path, **body)
    assert (nothing["count"], nothing["forgetBatchId"], nothing["forgotten"]) == (0, None, [])
    refused(client.post(path, json={"containerTag": "ann"}), 400, "query")
    reasons = {e["forgetReason"] for e in entries(client, includeForgotten=True)}
    assert reasons == {"old", "matched: tea", None}


def test_forgetting_what_matches_looks_at_all_of_a_tag(client: httpx.Client):
    for start in range(0, 260, 65):
        remember(client, *(f"Ann likes tea number {n}." for n in range(start, start + 65)))
    path = "/v4/memories/forget-matching"
    body = {"containerTag": "ann", "query": "likes tea", "threshold": 0.5}

    dry = call(client, "POST", path, **body, dryRun=True, maxForget=500)
    assert (dry["count"], dry["remaining"]) == (260, 0)
    some = call(client, "POST", path, **body, maxForget=150)
    assert (some["count"], some["remaining"]) == (150, 110)
    assert some["summary"].startswith("forgot 150 memories; 110 more match")
    rest = call(client, "POST", path, **body, maxForget=500)
    assert (rest["count"], rest["remaining"]) == (110, 0)
    assert texts(client) == []


def test_forgetting_what_matches_leaves_what_is_only_of_the_same_person(client: httpx.Client):
    remember(
        client,
        "Ann lives in Bonn by the river.",
        "Ann works as a baker in Bonn.",
        "Ann likes tea.",
        "Bob lives in Kiel.",
    )
    path = "/v4/memories/forget-matching"
    body = {"containerTag": "ann", "query": "Where by the river does Ann live?", "dryRun": True}

    assert call(client, "POST", path, **body, threshold=0.1)["count"] > 1
    [one] = call(client, "POST", path, **body)["candidates"]
    assert one["memory"] == "Ann lives in Bonn by the river."
    assert one["score"] >= 0.5
    for least in [
        one["score"] for one in call(client, "POST", path, **body, threshold=0)["candidates"]
    ]:
        shown = call(client, "POST", path, **body, threshold=least)["candidates"]
        assert least in [one["score"] for one in shown]
    told = call(client, "POST", path, **{**body, "query": "Ann"})["candidates"]
    assert "Bob lives in Kiel." not in [one["memory"] for one in told]
    assert len(told) == 3, "a name means all that is known of it"


def test_a_correction_to_what_is_known_leaves_one(client: httpx.Client):
    remember(client, "Ann lives in Kiel.")
    remember(client, "Ann lives in Bonn.")
    named = {"containerTag": "ann"}
    body = {"content": "Ann lives in Bonn.", "newContent": "Ann lives in Kiel."}
    call(client, "PATCH", "/v4/memories", **named, **body)

    assert texts(client) == ["Ann lives in Kiel."]
    call(client, "DELETE", "/v4/memories", **named, content="Ann lives in Kiel.")
    assert texts(client) == []
    assert search(client, "Where does Ann live?", containerTag="ann") == []


def test_a_search_says_what_of_it_was_forgotten(client: httpx.Client):
    remember(client, "Ann likes green tea.", "Ann likes black tea.")
    named = {"containerTag": "ann"}
    call(client, "DELETE", "/v4/memories", **named, content="Ann likes green tea.", reason="wrong")
    found = search(client, "Ann tea", **named, include={"forgottenMemories": True})

    told = {one["memory"]: (one.get("isForgotten"), one.get("forgetReason")) for one in found}
    assert told == {
        "Ann likes green tea.": (True, "wrong"),
        "Ann likes black tea.": (None, None),
    }


# --- listing -----------------------------------------------------------------------------------


def test_listing_pages_sorts_and_filters(client: httpx.Client):
    for n in range(5):
        remember(client, f"Fact {n}.", metadata={"n": n, "kinds": ["odd" if n % 2 else "even"]})
    remember(client, "Fact of Bob.", tag="bob")
    call(client, "PATCH", "/v4/memories", containerTag="ann", content="Fact 0.", newContent="F0.")

    page = call(
        client, "POST", "/v4/memories/list", containerTags=["ann"], limit=2, page=3, order="asc"
    )
    assert page["pagination"] == {
        "currentPage": 3, "limit": 2, "totalItems": 5, "totalPages": 3,
    }  # fmt: skip
    assert len(page["memoryEntries"]) == 1
    [newest, *_] = entries(client, sort="updatedAt", limit=5)
    assert newest["memory"] == "F0."
    odd = {"AND": [{"key": "kinds", "value": "odd", "filterType": "array_contains"}]}
    assert texts(client, filters=odd) == ["Fact 1.", "Fact 3."]
    assert len(texts(client, "ann", "bob", limit=100)) == 6
    assert texts(client, "nobody") == []
    refused(client.post("/v4/memories/list", json={}), 400, "containerTags")
    refused(client.post("/v4/memories/list", json={"containerTags": []}), 400, "containerTags")


def test_an_entry_names_its_documents(client: httpx.Client):
    document = remember(client, "Ann likes tea.")["documentId"]
    [entry] = entries(client)

    assert set(entry) == MEMORY_FIELDS | {"containerTag", "documentIds", "history"}
    assert (entry["documentIds"], entry["sourceCount"]) == ([document], 1)
    assert entry["containerTag"] == "ann"


# --- profile -----------------------------------------------------------------------------------


def test_a_profile(client: httpx.Client):
    remember(client, "Ann is a doctor.", isStatic=True, buckets=["work"])
    remember(client, "Ann is tired.", metadata={"mood": "low"})
    add(client, "x", containerTag="ann")
    client.patch("/v3/settings", json={"profileBuckets": [{"key": "home", "description": "d"}]})
    ask = "/v4/profile"

    whole = call(client, "POST", ask, containerTag="ann")
    assert whole == {
        "profile": {
            "static": ["Ann is a doctor."],
            "dynamic": ["Ann is tired."],
            "buckets": {"home": []},
        }
    }
    client.patch("/v3/container-tags/ann", json={"profileBuckets": [{"key": "work"}]})
    own = call(client, "POST", ask, containerTag="ann", include=["buckets"])
    assert own == {"profile": {"buckets": {"home": [], "work": ["Ann is a doctor."]}}}
    named = call(client, "POST", ask, containerTag="ann", include=["buckets"], buckets=["other"])
    assert named == {"profile": {"buckets": {"other": []}}}
    low = {"AND": [{"key": "mood", "value": "low"}]}
    filtered = call(client, "POST", ask, containerTag="ann", filters=low, q="doctor", threshold=0)
    assert (filtered["profile"]["static"], filtered["profile"]["dynamic"]) == (
        [],
        ["Ann is tired."],
    )
    assert [r["memory"] for r in filtered["searchResults"]["results"]] in ([], ["Ann is tired."])
    asked = call(client, "POST", ask, containerTag="ann", q="doctor", threshold=0.6)
    [answer] = asked["searchResults"]["results"]
    assert (answer["memory"], asked["searchResults"]["total"]) == ("Ann is a doctor.", 1)


def test_an_unknown_tag_has_an_empty_profile(client: httpx.Client):
    answer = call(client, "POST", "/v4/profile", containerTag="nobody")
    assert answer == {"profile": {"static": [], "dynamic": [], "buckets": {}}}
    refused(client.post("/v4/profile", json={}), 400, "containerTag")


def test_buckets_are_those_of_all_and_of_the_tag(client: httpx.Client):
    ask = "/v4/profile/buckets"
    assert client.post(ask).json() == {"buckets": []}
    everywhere = [{"key": "home", "description": "where they live"}]
    client.patch("/v3/settings", json={"profileBuckets": everywhere})
    add(client, "x", containerTag="ann")
    own = [{"key": "work"}, {"key": "home", "description": "another"}]
    client.patch("/v3/container-tags/ann", json={"profileBuckets": own})

    assert call(client, "POST", ask) == {"buckets": everywhere}
    assert call(client, "POST", ask, containerTag="bob") == {"buckets": everywhere}
    assert call(client, "POST", ask, containerTag="ann") == {
        "buckets": [*everywhere, {"key": "work", "description": None}]
    }


# --- search ------------------------------------------------------------------------------------


def test_memories_answer(client: httpx.Client):
    remember(client, "Ann likes green tea.", metadata={"a": 1})
    remember(client, "Bob plays the cello.")
    [best, *_] = search(client, "green tea", containerTag="ann")

    assert best["memory"] == "Ann likes green tea."
    assert (best["version"], best["metadata"]) == (1, {"a": 1})
    assert best["updatedAt"].endswith("Z")
    assert "context" not in best
    assert "documents" not in best
    assert [r["memory"] for r in search(client, "green tea", threshold=0.6)] == [best["memory"]]
    assert search(client, "green tea", threshold=0.6, containerTag="bob") == []
    scores = [r["similarity"] for r in search(client, "Ann plays tea")]
    assert scores == sorted(scores, reverse=True)
    assert len(search(client, "Ann plays tea", limit=1)) == 1
    for query in ("Ann plays tea", "green cello of Bob", "who likes tea"):
        for least in [r["similarity"] for r in search(client, query)]:
            shown = [r["similarity"] for r in search(client, query, threshold=least)]
            assert least in shown, query


def test_words_alone_find_memories_and_chunks(
    client: httpx.Client, served: Callable[..., httpx.Client], app: App
):
    lexical = served(embedder=None)
    remember(lexical, "Ann likes green tea.")
    add(client, "Herons eat frogs.")
    drain(app)

    [tea] = search(lexical, "green tea", threshold=0.6)
    assert (tea["memory"], tea["similarity"]) == ("Ann likes green tea.", 1)
    [frogs] = search(lexical, "frogs", threshold=0.6)
    assert frogs["chunk"] == "Herons eat frogs."
    assert search(lexical, "zebra") == []


def test_without_a_model_chunks_answer(client: httpx.Client, app: App, db: Database, org: Org):
    id = add(client, "Herons eat frogs.", containerTag="birds", metadata={"a": 1}, filepath="/h.md")
    drain(app)
    remember(client, "Ann likes tea.", tag="birds")
    [chunk] = search(client, "What do herons eat?", threshold=0.6)

    assert chunk["chunk"] == "Herons eat frogs."
    assert chunk["id"] == f"{id}.0"
    assert (chunk["metadata"], chunk["filepath"]) == ({"a": 1}, "/h.md")
    assert [d["id"] for d in chunk["documents"]] == [id]
    assert [r["memory"] for r in search(client, "tea", threshold=0.6)] == ["Ann likes tea."]

    draw(db, org, id, "There are herons.", "birds")
    assert search(client, "zebra stripes", threshold=0.9) == []
    assert [r["memory"] for r in search(client, "frogs eat", threshold=0.6)] == []
    assert search(client, "frogs", searchMode="documents")[0]["chunk"] == "Herons eat frogs."


def test_modes(client: httpx.Client, app: App, db: Database, org: Org):
    id = add(client, "Herons eat frogs in spring.", containerTag="birds")
    drain(app)
    draw(db, org, id, "Herons eat frogs.", "birds")

    def kinds(**query: Any) -> set[str]:
        return {"memory" if "memory" in r else "chunk" for r in search(client, "herons", **query)}

    assert kinds() == kinds(searchMode="memories") == {"memory"}
    assert kinds(searchMode="documents") == {"chunk"}
    assert kinds(searchMode="hybrid") == {"memory", "chunk"}
    assert len(search(client, "herons", searchMode="hybrid", limit=1)) == 1
    refused(client.post("/v4/search", json={"q": "x", "searchMode": "other"}), 400, "searchMode")
    refused(client.post("/v4/search", json={"q": " "}), 400, "q")
    refused(client.post("/v4/search", json={"q": "x", "threshold": 2}), 400, "threshold")
    refused(client.post("/v4/search", json={"q": "x", "filters": {"a": 1}}), 400, "filters")


def test_what_comes_along(client: httpx.Client, app: App, db: Database, org: Org):
    id = add(
        client, "Herons eat frogs.", containerTag="birds", metadata={"a": 1}, filepath="/b/1.md"
    )
    drain(app)
    frogs = draw(db, org, id, "Herons eat frogs.", "birds")
    draw(db, org, id, "Frogs are green.", "birds", related={frogs: Relation.EXTENDS})
    body = {"containerTag": "birds", "id": frogs, "newContent": "Herons eat toads."}
    call(client, "PATCH", "/v4/memories", **body)
    include = {"documents": True, "relatedMemories": True, "chunks": True, "summaries": True}
    [toads, *_] = search(client, "herons toads", include=include)

    assert toads["memory"] == "Herons eat toads."
    assert toads["rootMemoryId"] == frogs
    [parent] = toads["context"]["parents"]
    assert (parent["memory"], parent["relation"], parent["version"]) == (
        "Herons eat frogs.",
        "updates",
        -1,
    )
    [green] = toads["context"]["related"]
    assert (green["memory"], green["relation"]) == ("Frogs are green.", "extends")
    assert toads["context"]["children"] == []
    [document] = toads["documents"]
    assert (document["id"], document["type"], document["metadata"]) == (id, "text", {"a": 1})
    assert toads["chunks"] == [
        {
            "content": "Herons eat frogs.",
            "documentId": id,
            "position": 0,
            "score": toads["similarity"],
        }
    ]
    assert toads["filepath"] == "/b/1.md"
    assert search(client, "herons", filepath="/b/")[0]["memory"]
    assert search(client, "herons", filepath="/c/") == []


@pytest.mark.parametrize("path", ["/v3/search", "/v4/search"])
def test_what_is_not_configured_is_said(client: httpx.Client, path: str):
    plain = call(client, "POST", path, q="heron")
    assert "warnings" not in plain
    told = call(client, "POST", path, q="heron", rerank=True, rewriteQuery=True)
    assert [warning.split(":")[0] for warning in told["warnings"]] == ["rerank", "rewriteQuery"]


def test_an_aggregate_is_not_made_up(client: httpx.Client):
    told = call(client, "POST", "/v4/search", q="heron", aggregate=True)
    assert [warning.split(":")[0] for warning in told["warnings"]] == ["aggregate"]


# --- deletion ----------------------------------------------------------------------------------


def test_what_is_deleted_is_known_no_more(client: httpx.Client, app: App, db: Database, org: Org):
    id = add(client, "Herons eat frogs.", containerTag="birds")
    drain(app)
    draw(db, org, id, "Herons eat frogs.", "birds")
    told = remember(client, "Ann likes herons.", tag="birds")["documentId"]
    assert len(search(client, "herons", threshold=0.3)) == 2
    client.delete(f"/v3/documents/{id}")
    assert [r["memory"] for r in search(client, "herons")] == ["Ann likes herons."]
    client.delete(f"/v3/documents/{told}")

    assert search(client, "herons", include={"forgottenMemories": True}) == []
    assert found(client, "herons") == []
    assert texts(client, "birds", includeForgotten=True) == []


def test_a_tag_takes_its_memories_along(client: httpx.Client):
    remember(client, "Ann likes tea.")
    assert client.delete("/v3/container-tags/ann").json()["deletedCount"] == 1
    assert texts(client, includeForgotten=True) == []


# --- keys --------------------------------------------------------------------------------------


def test_a_scoped_key_reaches_only_its_tag(
    client: httpx.Client, limited: Callable[..., httpx.Client], app: App, db: Database, org: Org
):
    shared = add(client, "Herons eat frogs.", containerTags=["ann", "bob"])
    drain(app)
    secret = draw(db, org, shared, "Ann keeps herons.", "ann")
    bob = limited(tags=["bob"])
    remember(client, "Bob likes tea.", tag="bob")

    assert "memories" not in get(bob, shared)
    assert get(client, shared)["memories"][0]["id"] == secret
    assert [r["memory"] for r in search(bob, "Ann herons tea")] == ["Bob likes tea."]
    for path, body in {
        "/v4/profile": {"containerTag": "ann"},
        "/v4/memories/list": {"containerTags": ["ann"]},
        "/v4/search": {"q": "x", "containerTag": "ann"},
        "/v4/memories/forget-matching": {"containerTag": "ann", "query": "x"},
    }.items():
        refused(bob.post(path, json=body), 403)
    body = {"containerTag": "bob", "id": secret}
    refused(bob.request("DELETE", "/v4/memories", json=body), 404)
    reader = limited(Scope.READ)
    refused(
        reader.post("/v4/memories", json={"containerTag": "a", "memories": [{"content": "x"}]}),
        403,
    )
