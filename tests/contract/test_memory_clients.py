"""Memories, profiles and their search through the published Python client, with nothing but its
base URL changed; the npm client's are a scenario of `npm/scenarios.mjs`."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import supermemory
from supermemory import Supermemory

from recollect.app import App
from recollect.inference.rerank import EndpointReranker
from recollect.worker.processing import drain
from tests.conftest import serving
from tests.fakes.rerank import Judge, judging


@pytest.fixture
def sdk(live_url: str, key: str) -> Generator[Supermemory]:
    with Supermemory(base_url=live_url, api_key=key, max_retries=0) as client:
        yield client


def remember(http: httpx.Client, *memories: dict[str, object]) -> list[str]:
    """The client has no call for it; returns the ids."""
    answer = http.post("/v4/memories", json={"containerTag": "ann", "memories": list(memories)})
    assert answer.status_code == 201, answer.text
    return [memory["id"] for memory in answer.json()["memories"]]


def test_what_is_known_is_profiled_found_corrected_and_forgotten(
    sdk: Supermemory, client: httpx.Client
):
    tea, _ = remember(
        client,
        {"content": "Ann drinks green tea.", "isStatic": True, "metadata": {"kind": "taste"}},
        {"content": "Ann waits for a heron.", "buckets": ["birds"]},
    )

    profile = sdk.profile(container_tag="ann", q="green tea", threshold=0.3, buckets=["birds"])
    assert profile.profile.static == ["Ann drinks green tea."]
    assert profile.profile.dynamic == ["Ann waits for a heron."]
    assert profile.profile.buckets == {"birds": ["Ann waits for a heron."]}
    assert profile.search_results is not None
    assert profile.search_results.total == 1
    only = sdk.profile(container_tag="ann", include=["static"])
    assert only.profile.static == ["Ann drinks green tea."]
    assert only.profile.dynamic is None

    changed = sdk.memories.update_memory(
        container_tag="ann",
        id=tea,
        new_content="Ann drinks black tea.",
        metadata={"kind": "taste", "sure": True},
        temporal_context={"document_date": "2026-03-01"},
    )
    assert (changed.version, changed.parent_memory_id, changed.root_memory_id) == (2, tea, tea)
    tastes: Any = {"AND": [{"key": "kind", "value": "taste"}]}
    found = sdk.search.memories(
        q="black tea",
        container_tag="ann",
        include={"related_memories": True, "documents": True},
        filters=tastes,
        threshold=0.3,
    )
    [one] = found.results
    assert (one.memory, one.version, one.root_memory_id) == ("Ann drinks black tea.", 2, tea)
    assert one.metadata == {"kind": "taste", "sure": True}
    assert one.context is not None
    assert one.context.parents is not None
    assert [parent.memory for parent in one.context.parents] == ["Ann drinks green tea."]
    assert one.documents

    gone = sdk.memories.forget(
        container_tag="ann", content="Ann drinks black tea.", reason="coffee"
    )
    assert gone.forgotten
    assert sdk.profile(container_tag="ann").profile.static == []
    with pytest.raises(supermemory.ConflictError):
        sdk.memories.forget(container_tag="ann", id=tea)
    with pytest.raises(supermemory.NotFoundError):
        sdk.memories.update_memory(container_tag="ann", id="nobody", new_content="x")
    with pytest.raises(supermemory.BadRequestError):
        sdk.memories.forget(container_tag="ann")


def test_the_three_modes_answer(sdk: Supermemory, client: httpx.Client, app: App):
    remember(client, {"content": "Ann waits for a heron."})
    sdk.add(content="The heron stands in the water.", container_tag="ann")
    drain(app)
    kinds: dict[str, set[str]] = {}
    for mode in ("memories", "documents", "hybrid"):
        found = sdk.search.memories(q="heron", container_tag="ann", search_mode=mode, threshold=0.2)
        kinds[mode] = {"memory" if one.memory else "chunk" for one in found.results}

    assert kinds["documents"] == {"chunk"}
    assert kinds["hybrid"] == {"memory", "chunk"}
    assert "memory" in kinds["memories"]


def test_a_reranked_search_is_understood(app: App, key: str):
    with judging(Judge()) as judge:
        reranker = EndpointReranker(judge.url, None)
        with (
            serving(replace(app, reranker=reranker)) as url,
            Supermemory(base_url=url, api_key=key, max_retries=0) as sdk,
        ):
            sdk.add(content="A heron, a heron, a heron and all the rest of the many birds.")
            sdk.add(content="The heron waits in the reeds.")
            drain(app)

            documents = sdk.search.documents(q="heron", rerank=True)
            chunks = sdk.search.memories(
                q="heron", rerank=True, search_mode="documents", threshold=0.1
            )
        reranker.close()

    assert documents.results[0].chunks[0].content.startswith("A heron, a heron")
    assert chunks.results[0].chunk is not None
    assert chunks.results[0].chunk.startswith("A heron, a heron")
