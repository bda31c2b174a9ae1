"""POST /v3/search: what is found, what is shown of it, what narrows it."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.model import Scope
from recollect.worker.processing import drain
from tests.contract.calls import add, found, get, refused

FOREST = "\n\n".join(
    f"## Walk {n}\n\n"
    + " ".join(f"On walk {n} step {m} we saw the tree number {n * 100 + m}." for m in range(30))
    for n in range(8)
)


def ids(results: list[dict[str, Any]]) -> list[str]:
    return [result["documentId"] for result in results]


def test_an_answer_has_every_field_of_the_contract(client: httpx.Client, app: App):
    id = add(
        client,
        "# The heron\n\nHerons eat frogs.",
        customId="heron",
        metadata={"kind": "bird"},
        filepath="/h.md",
    )
    drain(app)
    [result] = found(client, "heron")

    assert result["documentId"] == id
    assert result["title"] == "The heron"
    assert result["type"] == "text"
    assert 0 < result["score"] <= 1
    assert result["metadata"] == {"kind": "bird"}
    assert result["customId"] == "heron"
    assert result["filepath"] == "/h.md"
    assert result["createdAt"].endswith("Z")
    assert result["updatedAt"].endswith("Z")
    assert "content" not in result
    [chunk] = result["chunks"]
    assert set(chunk) >= {"content", "score", "isRelevant", "position", "start", "end"}
    assert chunk["isRelevant"] is True
    assert chunk["position"] == 0


def test_a_document_is_found_only_once_it_is_processed_and_then_anew(
    client: httpx.Client, app: App
):
    id = add(client, "Herons eat frogs.")
    assert found(client, "frogs") == []
    drain(app)
    assert ids(found(client, "frogs")) == [id]
    client.patch(f"/v3/documents/{id}", json={"content": "Herons eat mice."})
    assert ids(found(client, "frogs")) == [id]
    drain(app)
    assert "frogs" not in json.dumps(found(client, "frogs"))
    assert ids(found(client, "mice")) == [id]


def test_the_best_comes_first_and_limit_cuts(client: httpx.Client, app: App):
    best = add(client, "The kingfisher dives for the kingfisher's fish.")
    add(client, "A fish swims past the old mill.")
    add(client, "Nothing to see here, only fish and mills.")
    drain(app)

    assert ids(found(client, "kingfisher"))[0] == best
    assert ids(found(client, "kingfisher fish", limit=1)) == [best]
    scores = [result["score"] for result in found(client, "kingfisher fish", limit="3")]
    assert scores == sorted(scores, reverse=True)


def test_all_container_tags_must_match(client: httpx.Client, app: App):
    both = add(client, "heron one", containerTags=["a", "b"])
    only = add(client, "heron two", containerTags=["a"])
    drain(app)

    assert set(ids(found(client, "heron", containerTags=["a"]))) == {both, only}
    assert ids(found(client, "heron", containerTags=["a", "b"])) == [both]
    assert ids(found(client, "heron", containerTag="b")) == [both]
    assert found(client, "heron", containerTags=["a", "nowhere"]) == []


def test_filters_narrow_before_the_best_are_chosen(client: httpx.Client, app: App):
    for n in range(25):
        add(client, f"heron heron heron {n}", metadata={"year": 2000 + n, "kind": "noise"})
    wanted = add(client, "one heron among many words of the marsh", metadata={"kind": "note"})
    drain(app)
    note = {"AND": [{"key": "kind", "value": "note"}]}

    assert ids(found(client, "heron", filters=note, limit=1)) == [wanted]
    assert ids(found(client, "heron", filters=json.dumps(note), limit=1)) == [wanted]
    late = {
        "AND": [
            {"key": "year", "value": "2020", "filterType": "numeric", "numericOperator": ">="},
            {"key": "kind", "value": "note", "negate": True},
        ]
    }
    assert len(found(client, "heron", filters=late, limit=100)) == 5


def test_filepath_narrows(client: httpx.Client, app: App):
    one = add(client, "heron one", filepath="/notes/one.md")
    add(client, "heron two", filepath="/mail/two.md")
    drain(app)

    assert ids(found(client, "heron", filepath="/notes/")) == [one]


def test_the_threshold_drops_weaker_chunks(client: httpx.Client, app: App):
    add(client, "heron heron heron")
    add(client, "a long tale of marsh and reed and water where a heron once stood")
    drain(app)
    every = found(client, "heron", chunkThreshold=0)
    best = max(chunk["score"] for result in every for chunk in result["chunks"])

    few = found(client, "heron", chunkThreshold=best)
    assert len(few) < len(every)
    assert all(chunk["score"] >= best for result in few for chunk in result["chunks"])


def test_one_document_can_be_searched_alone(client: httpx.Client, app: App):
    add(client, "heron heron heron heron")
    id = add(client, FOREST + "\n\nAt the end stood a heron.", customId="forest")
    drain(app)

    assert ids(found(client, "heron", docId=id)) == [id]
    assert ids(found(client, "heron", docId="forest")) == [id]
    refused(client.post("/v3/search", json={"q": "heron", "docId": "nobody"}), 404, "nobody")


def test_the_tag_says_which_of_several_documents_of_a_custom_id_is_meant(
    client: httpx.Client, app: App
):
    for tag in ("a", "b"):
        add(client, "A heron.", customId="notes/1", containerTag=tag)
    drain(app)

    for tag in ("a", "b"):
        [hit] = found(client, "heron", docId="notes/1", containerTag=tag)
        assert client.get(f"/v3/documents/{hit['documentId']}").json()["containerTags"] == [tag]
    refused(client.post("/v3/search", json={"q": "heron", "docId": "notes/1"}), 409)


def test_neighbours_come_along_on_demand(
    client: httpx.Client, served: Callable[..., httpx.Client], app: App
):
    id = add(client, FOREST)
    drain(app)
    lexical = served(embedder=None)
    [alone] = found(lexical, "405")
    [more] = found(lexical, "405", onlyMatchingChunks=False)

    assert all(chunk["isRelevant"] for chunk in alone["chunks"])
    neighbours = {c["position"] for c in more["chunks"] if not c["isRelevant"]}
    matches = {c["position"] for c in more["chunks"] if c["isRelevant"]}
    assert id == more["documentId"]
    assert neighbours
    assert not neighbours & matches
    assert all(p - 1 in matches or p + 1 in matches for p in neighbours)


def test_the_whole_document_and_its_summary_on_demand(client: httpx.Client, app: App):
    id = add(client, FOREST)
    drain(app)
    [result] = found(client, "tree", includeFullDocs=True, includeSummary=True)

    assert result["content"] == get(client, id)["content"]
    assert result["summary"] is None


def test_what_older_clients_send_is_taken(client: httpx.Client, app: App):
    id = add(client, "heron")
    drain(app)
    extra = {
        "documentThreshold": 0.5,
        "categoriesFilter": ["technology"],
        "rerank": True,
        "rewriteQuery": True,
        "userId": "x",
        "filters": None,
        "docId": None,
    }

    assert ids(found(client, "heron", **extra)) == [id]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("東京の天気は明日晴れるでしょう。", "天気"),
        ("机器学习正在改变世界。", "学习"),
        ("서울의 날씨가 좋습니다.", "날씨가"),
        ("Цапли стоят в мелкой воде и ловят лягушек.", "лягушек"),
        ("Цапли стоят в мелкой воде и ловят лягушек.", "цапля"),
        ("يقف مالك الحزين في الماء الضحل.", "الماء"),
        ("Die Häuser am Fluss sind alt.", "Haus"),
        ("Sie wanderten durch die Wälder.", "Wald"),
        ("Το ποτάμι είναι βαθύ.", "ποτάμι"),
        ("Übergrößenträger", "übergrössenträger"),
    ],
)
def test_words_of_many_languages_are_found_without_an_embedding_model(
    served: Callable[..., httpx.Client], app: App, text: str, query: str
):
    lexical = served(embedder=None)
    id = add(lexical, text)
    add(lexical, "Nothing of the kind stands here.")
    drain(app)

    assert ids(found(lexical, query)) == [id]


def test_offsets_count_characters_of_any_script(client: httpx.Client, app: App):
    text = "\n\n".join(f"Абзац {n}: 🦩 東京 é̈ {'слово ' * 60}" for n in range(12))
    add(client, text)
    drain(app)

    for result in found(client, "Абзац 7", onlyMatchingChunks=False):
        assert len(result["chunks"]) > 1


def test_a_reading_key_may_search_and_a_key_of_a_tag_finds_only_that(
    client: httpx.Client, app: App, limited: Callable[..., httpx.Client]
):
    own = add(client, "heron", containerTag="a")
    foreign = add(client, "heron heron", containerTag="b")
    drain(app)
    reader = limited(Scope.READ, ["a"])

    assert ids(found(reader, "heron")) == [own]
    refused(reader.post("/v3/search", json={"q": "heron", "containerTag": "b"}), 403)
    refused(reader.post("/v3/search", json={"q": "heron", "docId": foreign}), 404)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"q": ""},
        {"q": " \n\t"},
        {"q": None},
        {"q": 5},
        {"q": "x" * 10_001},
        {"q": "x", "limit": 0},
        {"q": "x", "limit": 101},
        {"q": "x", "chunkThreshold": 1.5},
        {"q": "x", "chunkThreshold": -1},
        {"q": "x", "filters": {"key": "a", "value": "b"}},
        {"q": "x", "filters": {"AND": []}},
        {"q": "x", "filters": {"AND": [{"key": "a", "value": "b", "filterType": "like"}]}},
        {"q": "x", "filters": "no json"},
        {"q": "x", "containerTags": ["a b"]},
        {"q": "x", "containerTags": "a"},
    ],
)
def test_what_cannot_be_understood_is_refused(client: httpx.Client, body: object):
    refused(client.post("/v3/search", json=body), 400)
