"""Searching, listing, memories, profiles and namespaces through the namespace door."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.db import Database
from recollect.model import Org, Scope
from recollect.worker import tag_merges
from recollect.worker.processing import drain
from tests.contract.calls import add, get, refused, rows
from tests.contract.test_ns_documents import delete, document, listed, put


def remember(http: httpx.Client, tag: str, *texts: str, **more: Any) -> list[str]:
    body = {"containerTag": tag, "memories": [{"content": text, **more} for text in texts]}
    answer = http.post("/v4/memories", json=body)
    assert answer.status_code == 201, answer.text
    return [one["id"] for one in answer.json()["memories"]]


def correct(http: httpx.Client, tag: str, id: str, text: str) -> str:
    body = {"containerTag": tag, "id": id, "newContent": text}
    answer = http.patch("/v4/memories", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def search(http: httpx.Client, namespace: str, query: str, **given: Any) -> list[dict[str, Any]]:
    answer = http.post(f"/ns/{namespace}/search", json={"query": query, **given})
    assert answer.status_code == 200, answer.text
    assert answer.json()["searchTime"] > 0
    return answer.json()["results"]


def forget(http: httpx.Client, namespace: str, *ids: str) -> dict[str, Any]:
    answer = http.request("DELETE", f"/ns/{namespace}/memories", json={"ids": list(ids)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def end(http: httpx.Client, namespace: str, **query: str) -> httpx.Response:
    return http.delete(f"/ns/{namespace}", params=query)


# --- filters -------------------------------------------------------------------------------------

PAIRS: dict[str, dict[str, Any]] = {
    "two": {"n": 2, "word": "Green tea", "list": ["a", "b"], "on": True, "a.b": "dot"},
    "text two": {"n": "2", "word": "green", "list": "a", "on": "true"},
    "none": {},
}


@pytest.fixture
def labelled(client: httpx.Client) -> dict[str, str]:
    return {put(client, "f", text, metadata=pairs)["id"]: text for text, pairs in PAIRS.items()}


def p(field: str, operator: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value, **more}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (p("n", "eq", 2), {"two"}),
        (p("n", "eq", "2"), {"text two"}),
        (p("n", "neq", 2), {"text two", "none"}),
        (p("n", "neq", "2"), {"two", "none"}),
        (p("on", "eq", True), {"two"}),
        (p("on", "neq", True), {"text two", "none"}),
        (p("a.b", "eq", "dot"), {"two"}),
        (p("word", "eq", "GREEN"), set[str]()),
        (p("word", "eq", "GREEN", caseSensitive=False), {"text two"}),
        (p("word", "neq", "GREEN", caseSensitive=False), {"two", "none"}),
        (p("n", "gt", 1), {"two"}),
        (p("n", "gte", 2.0), {"two"}),
        (p("n", "lt", 2), set[str]()),
        (p("n", "lte", 2), {"two"}),
        (p("word", "contains", "reen"), {"two", "text two"}),
        (p("word", "contains", "GREEN", caseSensitive=False), {"two", "text two"}),
        (p("word", "contains", "Green", caseSensitive=None), {"two"}),
        (p("word", "notContains", "Green"), {"text two", "none"}),
        (p("list", "arrayContains", "a"), {"two", "text two"}),
        (p("list", "arrayNotContains", "b"), {"text two", "none"}),
        (
            {"operator": "and", "operands": [p("list", "arrayContains", "a"), p("n", "gt", 1)]},
            {"two"},
        ),
        (
            {"operator": "or", "operands": [p("n", "eq", 2), p("n", "eq", "2")]},
            {"two", "text two"},
        ),
        (None, {"two", "text two", "none"}),
    ],
)
def test_each_operator(
    client: httpx.Client, labelled: dict[str, str], filter: Any, expected: set[str]
):
    found = listed(client, "f", filter=filter)["documents"]

    assert {labelled[one["id"]] for one in found} == expected


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = p("a", "eq", 1)
    for _ in range(levels):
        inner = {"operator": "and", "operands": [inner]}
    return inner


@pytest.mark.parametrize(
    ("filter", "about"),
    [
        ('{"field": "a"}', "filter: must be an object"),
        ({"AND": [p("a", "eq", 1)]}, "filter.operator"),
        ({"key": "a", "value": "b"}, "filter.operator"),
        (p("a", "is", 1), "filter.operator"),
        (p("a", "eq", None), "filter.value"),
        (p("a", "eq", [1]), "filter.value"),
        (p("a", "gt", "1"), "filter.value"),
        (p("a", "gt", True), "filter.value"),
        (p("a", "contains", 1), "filter.value"),
        (p("a", "arrayContains", 1), "filter.value"),
        (p("a", "eq", 1, caseSensitive=False), "filter.caseSensitive"),
        (p("a", "arrayContains", "x", caseSensitive=False), "filter.caseSensitive"),
        (p("a", "eq", "x", caseSensitive="no"), "filter.caseSensitive"),
        (p("a", "eq", "x", negate=True), "filter.negate"),
        (p("a b", "eq", "x"), "filter.field"),
        (p("", "eq", "x"), "filter.field"),
        ({"operator": "eq", "value": "x"}, "filter.field"),
        ({"operator": "and", "operands": []}, "filter.operands"),
        ({"operator": "and"}, "filter.operands"),
        ({"operator": "and", "operands": {}}, "filter.operands"),
        ({"operator": "or", "operands": [p("a", "eq", 1), p("b", "gt", "x")]},
         "filter.operands[1].value"),
        ({"operator": "or", "operands": [p("a", "eq", 1)], "field": "x"}, "filter.field"),
        (nested(6), "5 levels"),
        ({"operator": "or", "operands": [p("a", "eq", 1)] * 201}, "200"),
        ({"operator": "or", "operands": [
            {"operator": "or", "operands": [p("a", "eq", 1)] * 101}] * 2}, "200 predicates"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["search", "list/documents", "profile"])
def test_a_filter_is_never_dropped(client: httpx.Client, path: str, filter: Any, about: str):
    body = {"filter": filter} | ({"query": "x"} if path == "search" else {})

    refused(client.post(f"/ns/f/{path}", json=body), 400, about)


def test_filters_at_their_limits(client: httpx.Client):
    assert listed(client, "f", filter=nested(5))["documents"] == []
    many = {"operator": "or", "operands": [p("a", "eq", 1)] * 200}
    assert listed(client, "f", filter=many)["documents"] == []


# --- search --------------------------------------------------------------------------------------


class TestSearch:
    def test_memories_and_chunks(self, client: httpx.Client, app: App):
        [tea] = remember(client, "ann", "Ann drinks green tea.", metadata={"a": 1})
        note = put(client, "ann", "Green tea grows on the hill.", metadata={"b": 2})["id"]
        put(client, "bob", "Green tea of Bob.")
        drain(app)
        found = {one["id"]: one for one in search(client, "ann", "green tea")}

        assert set(found) == {tea, f"{note}.0"}
        memory, chunk = found[tea], found[f"{note}.0"]
        assert (memory["memory"], memory["metadata"], memory["isLatest"]) == (
            "Ann drinks green tea.", {"a": 1}, True,
        )  # fmt: skip
        assert (chunk["chunk"], chunk["metadata"]) == ("Green tea grows on the hill.", {"b": 2})
        assert (chunk["isLatest"], chunk["isInference"]) == (True, False)
        seen = document(client, "ann", note)["system"]
        assert chunk["system"] == {name: seen[name] for name in ("createdAt", "updatedAt")}
        assert "included" not in memory
        assert [one["id"] for one in search(client, "ann", "green tea", searchMode="memories")] == [
            tea
        ]
        chunks = search(client, "ann", "green tea", searchMode="chunks")
        assert [one["id"] for one in chunks] == [f"{note}.0"]
        filter = p("b", "eq", 2)
        assert [o["id"] for o in search(client, "ann", "green tea", filter=filter)] == [f"{note}.0"]
        assert search(client, "nowhere", "green tea") == []

    def test_memories_do_not_fall_back_to_chunks(self, client: httpx.Client, app: App):
        put(client, "a", "Green tea grows on the hill.")
        drain(app)

        assert search(client, "a", "green tea", searchMode="memories") == []
        assert len(search(client, "a", "green tea")) == 1

    def test_what_is_included(self, client: httpx.Client, app: App):
        [first] = remember(client, "ann", "Ann lives in Ulm.", metadata={"a": 1})
        last = correct(client, "ann", first, "Ann lives in Bonn.")
        put(client, "ann", "Where Ann lives is told here.", id="note")
        drain(app)
        include = {"documents": True, "related": True}
        by_id = {one["id"]: one for one in search(client, "ann", "Ann lives", include=include)}

        told = by_id[last]["included"]
        assert [one["id"] for one in told["related"]["parents"]] == [first]
        assert told["related"]["parents"][0]["version"] == 1
        assert told["document"]["summary"] is None
        [chunk] = [one for one in by_id.values() if "chunk" in one]
        assert chunk["included"]["related"] == {"parents": [], "children": [], "siblings": []}
        assert chunk["included"]["document"]["id"] == document(client, "ann", "note")["id"]
        narrow = search(
            client, "ann", "Ann lives", searchMode="memories", include=include,
            filter=p("a", "eq", 2),
        )  # fmt: skip
        assert narrow == []

    def test_forgotten_ones_are_recalled_when_asked_for(self, client: httpx.Client):
        [id] = remember(client, "ann", "Ann lives in Ulm.")
        forget(client, "ann", id)

        assert search(client, "ann", "Ann lives") == []
        [found] = search(client, "ann", "Ann lives", include={"forgotten": True})
        assert (found["id"], found["isLatest"]) == (id, False)

    def test_related_ones_are_those_that_the_filter_lets_through(self, client: httpx.Client):
        [first] = remember(client, "ann", "Ann lives in Ulm.", metadata={"a": 1})
        body = {"containerTag": "ann", "id": first, "newContent": "Ann lives in Bonn."}
        last = client.patch("/v4/memories", json={**body, "metadata": {"a": 2}}).json()["id"]
        include = {"related": True}

        [found] = search(client, "ann", "Ann lives", include=include)
        assert (found["id"], len(found["included"]["related"]["parents"])) == (last, 1)
        [found] = search(client, "ann", "Ann lives", include=include, filter=p("a", "eq", 2))
        assert found["included"]["related"]["parents"] == []

    def test_as_many_and_as_like_as_are_wanted_by_default(self, client: httpx.Client):
        remember(client, "many", *(f"Ann has tea number {number}." for number in range(12)))
        assert len(search(client, "many", "Ann has tea")) == 10
        assert len(search(client, "many", "Ann has tea", limit=12)) == 12
        remember(client, "few", "Ann has tea.")
        [found] = search(client, "few", "🦩")
        assert 0.3 <= found["similarity"] < 0.6, "between this default and the older one"

    @pytest.mark.parametrize(
        ("body", "about"),
        [
            ({}, "query"),
            ({"query": " "}, "query"),
            ({"query": "-heron"}, "query: says only what must not be there"),
            ({"query": "x", "filters": {"AND": []}}, "filters: unknown field"),
            ({"query": "x", "q": "y"}, "q: unknown field"),
            ({"query": "x", "containerTag": "b"}, "containerTag: unknown field"),
            ({"query": "x", "search_mode": "chunks"}, "search_mode: unknown field"),
            ({"query": "x", "include": {"summaries": True}}, "include.summaries: unknown field"),
            ({"query": "x", "searchMode": "documents"}, "searchMode"),
            ({"query": "x", "limit": 101}, "limit"),
            ({"query": "x", "threshold": 1.1}, "threshold"),
            ({"query": "x", "rerank": True}, "rerank"),
        ],
    )
    def test_what_it_refuses(self, client: httpx.Client, body: Any, about: str):
        refused(client.post("/ns/a/search", json=body), 400, about)

    def test_options_belong_into_the_body(self, client: httpx.Client):
        answer = client.post("/ns/a/search?limit=5", json={"query": "x"})
        refused(answer, 400, "limit: belongs in the body")
        assert client.post("/ns/a/search?trace=1", json={"query": "x"}).status_code == 200
        assert client.post("/ns/a/list/documents?limit=5").status_code == 200

    def test_null_is_as_good_as_absent(self, client: httpx.Client):
        body = dict.fromkeys(("filter", "searchMode", "limit", "threshold", "rerank", "include"))

        assert search(client, "a", "x", **body) == []


# --- lists ---------------------------------------------------------------------------------------


class TestLists:
    def test_all_four_keys_are_always_there(self, client: httpx.Client):
        for type in ("documents", "chunks", "memories"):
            assert listed(client, "nowhere", type) == {
                "documents": [], "chunks": [], "memories": [],
                "pagination": {"currentPage": 1, "limit": 10, "totalItems": 0, "totalPages": 0},
            }  # fmt: skip
        refused(client.post("/ns/a/list/others"), 404)
        refused(client.post("/ns/a/list/documents?sort=position"), 400, "position")
        refused(client.post("/ns/a/list/documents?limit=101"), 400, "limit")

    def test_documents_with_content_and_counts(self, client: httpx.Client, app: App):
        one = put(client, "a", "one")["id"]
        drain(app)
        two = put(client, "a", "two")["id"]
        remember(client, "a", "a fact", "another")

        page = listed(client, "a", order="asc", include={"content": True}, limit=2)
        assert [(d["id"], d["content"]) for d in page["documents"]] == [(one, "one"), (two, None)]
        assert page["pagination"] == {
            "currentPage": 1, "limit": 2, "totalItems": 3, "totalPages": 2,
        }  # fmt: skip
        [bearing] = listed(client, "a", order="desc", limit=1)["documents"]
        assert bearing["system"]["memoryCount"] == 2
        assert "content" not in bearing
        plain = listed(client, "a", include={"memoryCount": False})["documents"]
        assert all("memoryCount" not in one["system"] for one in plain)
        ids = [bearing["id"], one, "nobody"]
        counts = client.post("/ns/a/list/documents/memory-counts", json={"ids": ids}).json()
        assert counts == {
            "counts": [{"id": ids[0], "memoryCount": 2}, {"id": one, "memoryCount": 0}]
        }
        other = client.post("/ns/b/list/documents/memory-counts", json={"ids": ids}).json()
        assert other == {"counts": []}

    def test_memories_are_counted_in_this_namespace(self, client: httpx.Client, db: Database):
        shared = add(client, "in both", containerTags=["a", "b"])
        [memory] = remember(client, "b", "a fact")
        with db.begin() as tx:
            tx.execute(
                "update memory_sources set document_id = %s where memory_id = %s", (shared, memory)
            )

        for namespace, count in (("a", 0), ("b", 1)):
            path = f"/ns/{namespace}/list/documents/memory-counts"
            told = client.post(path, json={"ids": [shared]}).json()
            assert told == {"counts": [{"id": shared, "memoryCount": count}]}
            shown = {one["id"]: one["system"] for one in listed(client, namespace)["documents"]}
            assert shown[shared]["memoryCount"] == count
            assert document(client, namespace, shared)["system"]["memoryCount"] == count

    def test_chunks_of_all_documents(self, client: httpx.Client, app: App):
        long = "\n\n".join(f"# Part {n}\n\n" + f"Word{n} stands here. " * 60 for n in range(4))
        one = put(client, "a", long, metadata={"k": 1})["id"]
        two = put(client, "a", "short", metadata={"k": 2})["id"]
        put(client, "b", "elsewhere")
        drain(app)
        count = len(document(client, "a", one, include="chunks")["chunks"])
        assert count > 1

        every = listed(client, "a", "chunks", limit=100, order="asc")
        assert [(c["documentId"], c["position"]) for c in every["chunks"]] == [
            *((one, n) for n in range(count)), (two, 0),
        ]  # fmt: skip
        assert every["pagination"]["totalItems"] == count + 1
        places = listed(client, "a", "chunks", sort="position", order="asc", limit=2)["chunks"]
        assert [(c["documentId"], c["position"]) for c in places] == [(one, 0), (two, 0)]
        [only] = listed(client, "a", "chunks", filter=p("k", "eq", 2))["chunks"]
        assert (only["id"], only["content"]) == (f"{two}.0", "short")

    def test_memories_are_the_latest_versions(self, client: httpx.Client):
        [first, gone] = remember(client, "a", "Ann lives in Ulm.", "It rains.")
        last = correct(client, "a", first, "Ann lives in Bonn.")
        forget(client, "a", gone)

        assert [m["id"] for m in listed(client, "a", "memories")["memories"]] == [last]
        every = listed(client, "a", "memories", include={"forgotten": True})["memories"]
        assert {m["id"]: m["isForgotten"] for m in every} == {last: False, gone: True}


# --- memories ------------------------------------------------------------------------------------


class TestMemories:
    def test_a_chain_of_five_versions(self, client: httpx.Client):
        ids = remember(client, "a", "one")
        for text in ("two", "three", "four", "five"):
            ids.append(correct(client, "a", ids[-1], text))

        def others(id: str, **query: Any) -> dict[str, list[tuple[str, int]]]:
            asked = {"include": "related", **query}
            told = client.get(f"/ns/a/memories/{id}", params=asked).json()["included"]["related"]
            return {
                name: [(o["memory"], o["version"]) for o in some] for name, some in told.items()
            }

        assert others(ids[4]) == {
            "parents": [("four", 4), ("three", 3), ("two", 2)], "children": [], "siblings": [],
        }  # fmt: skip
        assert others(ids[0])["children"] == [("two", 2), ("three", 3), ("four", 4)]
        assert others(ids[2]) == {
            "parents": [("two", 2), ("one", 1)], "children": [("four", 4), ("five", 5)],
            "siblings": [],
        }  # fmt: skip
        assert others(ids[4], relatedLimit=1)["parents"] == [("four", 4)]
        third = client.get(f"/ns/a/memories/{ids[2]}").json()
        assert (third["memory"], third["version"], third["isLatest"]) == ("three", 3, False)
        assert "included" not in third

    def test_its_source_is_the_document_that_changed_last(self, client: httpx.Client, db: Database):
        [id], other = remember(client, "a", "one"), put(client, "a", "two")["id"]
        with db.begin() as tx:
            tx.execute(
                "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
                " select memory_id, %s, hash, start_at, end_at from memory_sources"
                " where memory_id = %s",
                (other, id),
            )
        documents = [one["id"] for one in listed(client, "a")["documents"]]
        assert len(documents) == 2

        for changed in documents:
            client.patch(f"/ns/a/document/{changed}", json={"metadata": {"at": changed}})
            told = client.get(f"/ns/a/memories/{id}?include=documents").json()["included"]
            assert told["document"]["id"] == changed

    def test_what_belongs_to_it_and_was_forgotten_is_left_out(
        self, client: httpx.Client, db: Database
    ):
        [one, two] = remember(client, "a", "Ann has a boat.", "Ann sails.")
        with db.begin() as tx:
            tx.execute(
                "insert into memory_relations (memory_id, target_id, relation)"
                " values (%s, %s, 'extends')",
                (two, one),
            )

        def siblings(id: str) -> list[tuple[str, str]]:
            told = client.get(f"/ns/a/memories/{id}?include=related").json()["included"]["related"]
            assert (told["parents"], told["children"]) == ([], [])
            return [(other["memory"], other["relation"]) for other in told["siblings"]]

        assert siblings(two) == [("Ann has a boat.", "extends")]
        assert siblings(one) == [("Ann sails.", "extends")]
        forget(client, "a", two)
        assert siblings(one) == []
        [first] = remember(client, "a", "It rains.")
        last = correct(client, "a", first, "It snows.")
        forget(client, "a", last)
        told = client.get(f"/ns/a/memories/{first}?include=related").json()["included"]["related"]
        assert told["children"] == []

    def test_one_that_has_expired_is_forgotten(self, client: httpx.Client, db: Database):
        told = {"temporalContext": {"eventDate": ["2026-01-01"]}}
        [id, kept] = remember(client, "a", "one", "two", **told)
        with db.begin() as tx:
            tx.execute("update memories set forget_after = now() where id = %s", (id,))

        seen = client.get(f"/ns/a/memories/{id}").json()
        assert (seen["isForgotten"], seen["metadata"]) == (True, told)
        assert [m["id"] for m in listed(client, "a", "memories")["memories"]] == [kept]
        every = listed(client, "a", "memories", include={"forgotten": True})["memories"]
        assert {m["id"]: m["isForgotten"] for m in every} == {id: True, kept: False}

    def test_with_their_documents(self, client: httpx.Client):
        [id] = remember(client, "a", "one")
        last = correct(client, "a", id, "two")
        told = client.get(f"/ns/a/memories/{last}?include=related&include=documents").json()

        source = told["included"]["document"]
        assert source["title"] == "one"
        assert told["included"]["related"]["parents"][0]["document"]["id"] == source["id"]
        refused(client.get(f"/ns/a/memories/{last}?include=chunks"), 400, "include")

    def test_what_is_no_memory_of_the_namespace(self, client: httpx.Client):
        [id] = remember(client, "a", "one")
        doc = put(client, "a")["id"]

        refused(client.get(f"/ns/b/memories/{id}"), 404, "Memory not found")
        refused(client.get("/ns/a/memories/nobody"), 404, "Memory not found")
        refused(client.get(f"/ns/a/memories/{doc}"), 404, "is the id of a document")

    def test_forgetting_tells_of_each_what_became_of_it(self, client: httpx.Client):
        [first, gone] = remember(client, "a", "Ann lives in Ulm.", "It rains.")
        last = correct(client, "a", first, "Ann lives in Bonn.")
        [theirs] = remember(client, "b", "theirs")
        doc = put(client, "a")["id"]
        forget(client, "a", gone)

        told = forget(client, "a", first, last, gone, theirs, doc, "nobody")
        assert told["count"] == 1
        assert told["matches"] == [{"id": last, "memory": "Ann lives in Bonn."}]
        assert {one["id"]: one["error"] for one in told["errors"]} == {
            gone: "Memory already forgotten",
            theirs: "Memory not found",
            doc: f"{doc!r} is the id of a document; delete the document to remove those",
            "nobody": "Memory not found",
        }
        assert client.get(f"/ns/a/memories/{last}").json()["isForgotten"] is True
        assert client.get(f"/ns/b/memories/{theirs}").json()["isForgotten"] is False

    def test_forgetting_by_what_is_said(self, client: httpx.Client):
        remember(client, "a", "Ann worked in the old office.", "Bob plays cello.", "!!!")
        ask = {"query": "the old office", "dryRun": True}

        def matching(**body: Any) -> list[str]:
            answer = client.request("DELETE", "/ns/a/memories/semantic", json=body)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert (told["count"], told["errors"]) == (len(told["matches"]), [])
            return [one["memory"] for one in told["matches"]]

        assert matching(**ask) == ["Ann worked in the old office."]
        assert matching(**ask) == ["Ann worked in the old office."], "a preview changes nothing"
        exact = "  ANN worked in  the old OFFICE. "
        assert matching(query=exact, dryRun=True)[0] == "Ann worked in the old office."
        assert matching(query="!!!", dryRun=True)[0] == "!!!", "without any word, too"
        assert matching(query="the old office", dryRun=False) == ["Ann worked in the old office."]
        assert matching(**ask) == []
        entry = client.post(
            "/v4/memories/list", json={"containerTags": ["a"], "includeForgotten": True}
        ).json()["memoryEntries"]
        assert "the old office" in [one["forgetReason"] for one in entry]
        body = {"query": "x"}
        refused(client.request("DELETE", "/ns/a/memories/semantic", json=body), 400, "dryRun")

    def test_a_hundred_are_forgotten_at_once_at_most(self, client: httpx.Client):
        for numbers in (range(1, 61), range(61, 102)):
            remember(client, "a", *(f"green{' ' * number}tea" for number in numbers))
        body = {"query": "Green tea", "dryRun": True}

        told = client.request("DELETE", "/ns/a/memories/semantic", json=body).json()
        assert (told["count"], len(told["matches"])) == (100, 100)


# --- profile -------------------------------------------------------------------------------------


class TestProfile:
    def test_entries_have_ids(self, client: httpx.Client):
        [doctor] = remember(client, "ann", "Ann is a doctor.", isStatic=True, buckets=["work"])
        [tired] = remember(client, "ann", "Ann is\ntired.", metadata={"a": 1})
        early = client.post("/ns/ann/profile", json={"buckets": ["work"]}).json()["profile"]
        assert early["buckets"] == {"work": []}, "not defined yet"
        client.put("/ns/ann/profile/buckets", json={"buckets": {"work": "What she does."}})
        told = client.post("/ns/ann/profile").json()["profile"]

        assert told == {
            "static": [{"id": doctor, "memory": "Ann is a doctor."}],
            "dynamic": [{"id": tired, "memory": "Ann is\ntired."}],
            "buckets": {"work": [{"id": doctor, "memory": "Ann is a doctor."}]},
        }
        asked = client.post("/ns/ann/profile", json={"buckets": ["other"]}).json()["profile"]
        assert asked["buckets"] == {"other": []}
        filter = p("a", "eq", 1)
        some = client.post("/ns/ann/profile", json={"filter": filter}).json()["profile"]
        assert (some["static"], len(some["dynamic"])) == ([], 1)
        empty = client.post("/ns/nobody/profile", json=None).json()
        assert empty == {"profile": {"static": [], "dynamic": [], "buckets": {}}}
        refused(client.post("/ns/ann/profile", json={"q": "x"}), 400, "q: unknown field")

    def test_as_markdown(self, client: httpx.Client):
        remember(client, "ann", "Ann is a doctor.", isStatic=True)
        remember(client, "ann", "Ann is\ntired.")

        def asked(namespace: str, accept: str) -> httpx.Response:
            return client.post(f"/ns/{namespace}/profile", headers={"accept": accept})

        answer = asked("ann", "text/markdown, application/json")
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        assert answer.text == "## Static\n\n- Ann is a doctor.\n\n## Dynamic\n\n- Ann is tired.\n"
        assert asked("nobody", "text/markdown").text == ""
        for accept in ("*/*", "application/json, text/markdown", "text/html"):
            assert asked("ann", accept).headers["content-type"] == "application/json"

    def test_buckets_of_the_organisation_are_not_the_namespaces(self, client: httpx.Client):
        put(client, "ann")
        ours = [{"key": "home", "description": "Where they live."}]
        client.patch("/v3/settings", json={"profileBuckets": ours})
        path = "/ns/ann/profile/buckets"
        new = {"work": "What they do.", "play": ""}
        both = {"home": "Where they live.", **new}

        assert client.put(path, json={"buckets": new}).json() == {"buckets": both}
        assert client.put(path, json={"buckets": {"play": "Games."}}).json()["buckets"] == {
            **both, "play": "Games.",
        }  # fmt: skip
        refused(client.put(path, json={"buckets": {"home": "x", "more": "y"}}), 409)
        refused(client.request("DELETE", path, json={"buckets": ["work", "home"]}), 409)
        assert set(client.get(path).json()["buckets"]) == {"home", "work", "play"}
        gone = client.request("DELETE", path, json={"buckets": ["play", "unknown"]})
        assert set(gone.json()["buckets"]) == {"home", "work"}
        assert client.get("/ns/nobody/profile/buckets").json()["buckets"] == {
            "home": "Where they live."
        }
        refused(client.put("/ns/nobody/profile/buckets", json={"buckets": new}), 404)
        body = {"buckets": ["work"]}
        refused(client.request("DELETE", "/ns/nobody/profile/buckets", json=body), 404)
        for wrong in ({}, {"Upper": "x"}, {"static": "x"}, {"x": "y" * 2001}):
            refused(client.put(path, json={"buckets": wrong}), 400, "buckets")
        refused(client.put(path, json={"buckets": {f"b{n}": "" for n in range(50)}}), 400, "50")


def test_buckets_that_many_define_at_once_all_stay(client: httpx.Client):
    put(client, "a")

    def define(number: int) -> int:
        body = {"buckets": {f"b{number}": "x"}}
        return client.put("/ns/a/profile/buckets", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(define, range(24))) == {200}
    assert len(client.get("/ns/a/profile/buckets").json()["buckets"]) == 24


# --- namespaces and the organisation -------------------------------------------------------------


class TestNamespaces:
    def test_the_newest_first(self, client: httpx.Client):
        for name in ("team:b", "Team:a", "other"):
            put(client, name)
        remember(client, "team:b", "a fact")
        client.patch("/v3/container-tags/other", json={"name": "The others"})
        told = client.get("/ns").json()

        assert [one["id"] for one in told["namespaces"]] == ["other", "Team:a", "team:b"]
        assert told["namespaces"][0]["namespace"] == "other"
        assert told["namespaces"][0]["description"] == "The others"
        counted = told["namespaces"][2]
        assert (counted["documentCount"], counted["memoryCount"]) == (2, 1)
        part = client.get("/namespaces?q=TEAM&limit=1&page=2").json()
        assert [one["id"] for one in part["namespaces"]] == ["team:b"]
        assert part["pagination"]["totalItems"] == 2
        assert client.get("/ns?page=9").json()["pagination"]["totalItems"] == 3
        refused(client.get("/ns?limit=101"), 400, "limit")

    def test_context(self, client: httpx.Client):
        refused(client.get("/ns/a"), 404)
        refused(client.patch("/ns/a", json={"supportingContext": "x"}), 404)
        put(client, "a", supportingContext="birds")
        assert client.get("/ns/a").json()["supportingContext"] == "birds"
        for body in (None, {}):
            refused(client.patch("/ns/a", json=body), 400, "supportingContext")
        refused(client.patch("/ns/a", json={"entityContext": "x"}), 400, "entityContext")
        refused(client.patch("/ns/a", json={"supportingContext": "x" * 1501}), 400)
        cleared = client.patch("/ns/a", json={"supportingContext": None}).json()
        assert (cleared["namespace"], cleared["supportingContext"]) == ("a", None)

    def test_a_name_that_is_none(self, client: httpx.Client):
        for name in ("a%20b", "x" * 101, "ä", "a%2Fb", "team:*"):
            refused(client.get(f"/ns/{name}"), 400, "namespace")
        assert put(client, "a.b:c-d_e")["status"] == "queued"
        assert client.get("/ns/a%2Eb:c-d_e").status_code == 200

    def test_deleting_one_takes_all_that_is_in_it_alone(
        self, client: httpx.Client, app: App, db: Database, org: Org
    ):
        refused(end(client, "a"), 404)
        gone = put(client, "a", "only here")["id"]
        shared = add(client, "in both", containerTags=["a", "b"])
        remember(client, "a", "a fact", "another")
        drain(app)
        refused(client.request("DELETE", "/ns/a", json={"moveTo": "b"}), 400, "moveTo")
        for slip in ({"moveto": "b"}, {"move_to": "b"}, {"moveTo": "b", "dryRun": "true"}):
            refused(end(client, "a", **slip), 400, "moveTo")  # else all would be gone for good
        refused(client.delete("/ns/a?moveTo=b&moveTo=c"), 400, "moveTo")
        assert get(client, gone)["content"] == "only here"

        assert end(client, "a").json() == {
            "status": "deleted", "namespace": "a",
            "deletedDocumentsCount": 2, "deletedMemoriesCount": 2,
        }  # fmt: skip
        refused(client.get(f"/v3/documents/{gone}"), 404)
        assert get(client, shared)["containerTags"] == ["b"]
        assert rows(db, org)["documents"] == 1
        refused(client.get("/ns/a"), 404)

    def test_moving_one(self, client: httpx.Client, app: App):
        moved = put(client, "a", "one", id="x")["id"]
        remember(client, "a", "a fact")
        stays = put(client, "a", "two", id="taken")["id"]
        put(client, "b", "three", id="taken")
        refused(end(client, "a", moveTo="a"), 400, "moveTo")
        refused(end(client, "a", moveTo="a b"), 400, "moveTo")
        refused(end(client, "nobody", moveTo="a"), 404)
        answer = end(client, "a", moveTo="b")
        assert answer.status_code == 202
        told = answer.json()
        assert told == {
            "status": "queued", "operationId": told["operationId"], "namespace": "a", "moveTo": "b",
        }  # fmt: skip
        refused(end(client, "b"), 409)
        refused(end(client, "b", moveTo="c"), 409)
        refused(client.put("/ns/a/profile/buckets", json={"buckets": {"x": "y"}}), 409)
        while tag_merges.step(app):
            pass

        assert document(client, "b", "x")["id"] == moved
        assert [m["memory"] for m in listed(client, "b", "memories")["memories"]] == ["a fact"]
        state = client.get(f"/v3/container-tags/merge/{told['operationId']}").json()
        assert state["keptDocuments"] == [stays]
        assert client.get("/ns/a").status_code == 200
        delete(client, "a", stays)
        assert end(client, "a").status_code == 200

    def test_a_key_of_one_namespace(
        self, client: httpx.Client, limited: Callable[..., httpx.Client]
    ):
        put(client, "a")
        put(client, "b")
        mine = limited(Scope.ADMIN, tags=["a"])

        assert [one["id"] for one in mine.get("/ns").json()["namespaces"]] == ["a"]
        refused(mine.get("/ns/b"), 403)
        refused(end(mine, "a", moveTo="b"), 403)
        refused(end(mine, "b", moveTo="a"), 403)
        refused(mine.get("/organization"), 403)
        refused(mine.patch("/organization", json={"organizationalContext": "x"}), 403)


def test_the_organisation(client: httpx.Client, limited: Callable[..., httpx.Client]):
    put(client, "a")
    put(client, "b")
    assert client.get("/organization").json() == {
        "organizationalContext": None, "namespaceCount": 2,
    }  # fmt: skip
    body = {"organizationalContext": "We make bicycles."}
    assert client.patch("/organization", json=body).json()["organizationalContext"] == (
        "We make bicycles."
    )
    assert client.get("/v3/settings").json()["filterPrompt"] == "We make bicycles."
    for wrong in (None, {}, {"organizationalContext": ""}, {"filterPrompt": "x"}):
        refused(client.patch("/organization", json=wrong), 400)
    refused(limited(Scope.WRITE).patch("/organization", json=body), 403)
    cleared = client.patch("/organization", json={"organizationalContext": None}).json()
    assert cleared["organizationalContext"] is None


def test_feedback_goes_nowhere(client: httpx.Client):
    answer = client.post("/feedback", json={"type": "bug", "title": "x", "anything": 1})

    refused(answer, 503, "Feedback is not available on this deployment")
    assert answer.headers["x-should-retry"] == "false"


def test_the_key_may_come_in_a_header_of_its_own(live_url: str, key: str):
    with httpx.Client(base_url=live_url, trust_env=False) as http:
        for path in ("/ns", "/v3/container-tags/list", "/connectors"):
            assert http.get(path, headers={"x-api-key": key}).status_code == 200
            refused(http.get(path, headers={"x-api-key": "nobody"}), 401)
            both = {"x-api-key": key, "authorization": "Bearer nobody"}
            refused(http.get(path, headers=both), 401)
            assert http.get(
                path, headers={"x-api-key": "nobody", "authorization": f"Bearer {key}"}
            ).is_success
