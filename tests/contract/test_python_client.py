"""The published Python client, with nothing but its base URL changed."""

import asyncio
from collections.abc import Generator
from typing import Any, cast

import pytest
import supermemory
from supermemory import AsyncSupermemory, Supermemory

from recollect.app import App
from recollect.worker.processing import drain

FINE_WORDS = {"status_words": "sdk"}


@pytest.fixture
def sdk(live_url: str, key: str) -> Generator[Supermemory]:
    with Supermemory(base_url=live_url, api_key=key, max_retries=0) as client:
        yield client


def test_add_get_update_delete(sdk: Supermemory, app: App):
    added = sdk.documents.add(
        content="# The heron\n\nHerons eat frogs.",
        custom_id="notes/heron 1",
        container_tag="birds",
        container_tags=["birds", "water"],
        metadata={"year": 2026, "draft": True},
        entity_context="about birds",
        task_type="memory",
        dreaming="dynamic",
        document_date="2026-01-31",
        filepath="/h.md",
    )
    assert added.status == "queued"
    drain(app)

    document = sdk.documents.get("notes/heron 1")
    assert document.id == added.id
    assert document.status == "done"
    assert document.title == "The heron"
    assert document.container_tags == ["birds", "water"]
    assert document.metadata == {"year": 2026, "draft": True}
    assert document.dreaming_status == "done"
    assert document.latest_revision == 1
    assert document.url is None

    updated = sdk.documents.update(added.id, content="Herons eat mice.", metadata={"year": 2027})
    assert (updated.id, updated.status) == (added.id, "queued")
    assert sdk.documents.update(added.id).id == added.id
    assert cast("Any", sdk.documents.delete("notes/heron 1")) is None
    with pytest.raises(supermemory.NotFoundError):
        sdk.documents.get(added.id)


def test_the_client_that_checks_every_answer_has_nothing_to_say(live_url: str, key: str, app: App):
    strict = Supermemory(
        base_url=live_url, api_key=key, max_retries=0, _strict_response_validation=True
    )
    with strict as sdk:
        added = sdk.add(content="Herons eat frogs.", custom_id="heron")
        assert sdk.documents.get(added.id).status == "queued"
        drain(app)
        assert sdk.documents.get(added.id).content == "Herons eat frogs."
        assert sdk.documents.list(include_content=True).memories[0].custom_id == "heron"
        assert sdk.search.documents(q="heron", include_full_docs=True).results
        assert sdk.documents.batch_add(documents=["x", ""]).failed == 1
        assert sdk.settings.get().should_llm_filter is False
        assert sdk.settings.update(filter_prompt="x").updated.filter_prompt == "x"
        assert sdk.documents.delete_bulk(ids=[added.id, "nobody"]).deleted_count == 1


def test_list_and_filters_in_the_spelling_of_the_client(sdk: Supermemory):
    one = sdk.documents.add(content="one", container_tag="a", metadata={"year": 2020})
    two = sdk.documents.add(content="two", container_tag="a", metadata={"year": 2026})

    page = sdk.documents.list(
        container_tags=["a"], limit=1, page="2", order="asc", sort="createdAt"
    )
    assert [memory.id for memory in page.memories] == [two.id]
    assert page.pagination.total_items == 2
    assert page.pagination.total_pages == 2
    condition = {
        "key": "year",
        "value": "2025",
        "filter_type": "numeric",
        "numeric_operator": "<",
        "ignore_case": False,
        "negate": False,
    }
    for filters in ({"and_": [condition]}, {"AND": [condition]}, {"OR": [{"AND": [condition]}]}):
        found = sdk.documents.list(filters=cast("Any", filters))
        assert [memory.id for memory in found.memories] == [one.id]


def test_upload(sdk: Supermemory, app: App):
    raw = sdk.documents.upload_file(file=b"Notes on the heron.", container_tags="birds")
    named = sdk.documents.upload_file(
        file=("frog.md", b"# Frogs", "text/markdown"),
        container_tags='["birds", "water"]',
        custom_id="frog",
        metadata='{"legs": 4}',
    )
    drain(app)

    assert sdk.documents.get(raw.id).content == "Notes on the heron."
    document = sdk.documents.get("frog")
    assert document.id == named.id
    assert document.container_tags == ["birds", "water"]
    assert document.metadata == {"legs": 4}
    assert document.source == "upload"


def test_search(sdk: Supermemory, app: App):
    id = sdk.documents.add(content="Herons eat frogs.", container_tag="birds").id
    drain(app)
    found = sdk.search.execute(
        q="frogs",
        container_tags=["birds"],
        chunk_threshold=0.1,
        document_threshold=0.1,
        include_full_docs=True,
        include_summary=True,
        limit=5,
        only_matching_chunks=True,
        rerank=False,
        rewrite_query=False,
    )

    assert [result.document_id for result in found.results] == [id]
    assert found.results[0].chunks[0].content == "Herons eat frogs."
    assert found.results[0].chunks[0].is_relevant is True
    assert found.total == 1
    assert found.timing >= 0
    assert sdk.search.documents(q="frogs", doc_id=id).results[0].document_id == id


def test_bulk(sdk: Supermemory):
    batch = sdk.documents.batch_add(
        documents=[{"content": "one"}, {"content": "two", "custom_id": "2"}], container_tag="a"
    )
    assert batch.success == 2
    assert [result.status for result in batch.results] == ["queued", "queued"]

    assert sdk.documents.delete_bulk(ids=[batch.results[0].id]).deleted_count == 1
    gone = sdk.documents.delete_bulk(container_tags=["a"])
    assert gone.success is True
    assert gone.deleted_count == 1
    assert sdk.documents.list().memories == []


def test_settings(model_url: str, key: str):
    sdk = Supermemory(base_url=model_url, api_key=key, max_retries=0)
    changed = sdk.settings.update(
        should_llm_filter=True,
        include_items={"urlPatterns": ["*docs*"], "titlePatterns": []},
        exclude_items="*draft*",
        filter_prompt="only papers",
        chunk_size=512,
        github_client_id="id",
        github_client_secret="s3cret",
        profile_buckets=[{"key": "work", "description": "about work"}],
    )
    assert changed.org_id
    assert changed.org_slug
    assert changed.updated.filter_prompt == "only papers"

    settings = sdk.settings.get()
    assert settings.should_llm_filter is True
    assert settings.include_items == {"urlPatterns": ["*docs*"], "titlePatterns": []}
    assert settings.github_client_secret != "s3cret"
    assert settings.chunk_size == 512


def test_errors_become_the_right_classes(live_url: str, sdk: Supermemory):
    with pytest.raises(supermemory.BadRequestError, match="content") as bad:
        sdk.documents.add(content="")
    assert cast("Any", bad.value.body)["error"] == "Invalid request parameters"
    with pytest.raises(supermemory.NotFoundError):
        sdk.documents.get("nobody")
    sdk.documents.add(content="a", custom_id="x", container_tag="a")
    sdk.documents.add(content="b", custom_id="x", container_tag="b")
    with pytest.raises(supermemory.ConflictError):
        sdk.documents.get("x")
    with (
        Supermemory(base_url=live_url, api_key="My API Key", max_retries=0) as stranger,
        pytest.raises(supermemory.AuthenticationError),
    ):
        stranger.documents.list()


def test_the_asynchronous_client(live_url: str, key: str):
    async def add_and_get() -> str | None:
        async with AsyncSupermemory(base_url=live_url, api_key=key) as sdk:
            added = await sdk.documents.add(content="from a loop")
            return (await sdk.documents.get(added.id)).content

    assert asyncio.run(add_and_get()) == "from a loop"
