"""What users of `supermemory-openai-sdk` do, with nothing but base URL and key changed.

openai_tools.py URL KEY
"""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import httpx2
from openai import AsyncOpenAI
from supermemory import Supermemory
from supermemory_openai import (  # pyright: ignore[reportMissingImports]
    OpenAIMiddlewareOptions,
    SupermemoryTools,
    with_supermemory,
)

(URL, KEY), TAG = sys.argv[1:], "openai-py"
client = Supermemory(base_url=URL, api_key=KEY)


def settled(tag: str, count: int) -> list[Any]:
    while True:
        found = client.documents.list(container_tags=[tag]).memories
        states = [client.documents.get(one.id, extra_query={"wait": 10}).status for one in found]
        assert "failed" not in states
        if states.count("done") >= count:
            return client.documents.list(container_tags=[tag]).memories


async def tools() -> None:
    kit = SupermemoryTools(KEY, {"base_url": URL, "container_tags": [TAG]})
    added = await kit.add_memory("Ann drinks green tea.")
    document = await kit.document_add("The heron stands in the water.", title="Heron")
    assert added["success"], added
    assert document["success"], document
    await asyncio.to_thread(settled, TAG, 2)
    found = await kit.search_memories("where does the heron stand")
    assert "heron stands" in str(found["results"]), found
    listed = await kit.document_list(limit=10)
    assert len(listed["documents"]) == 2, listed
    bonn = {"content": "Ann lives in Bonn.", "isStatic": True}
    client.post("/v4/memories", cast_to=object, body={"containerTag": TAG, "memories": [bonn]})
    known = await kit.get_profile("Bonn")
    assert known["profile"]["static"] == ["Ann lives in Bonn."], known
    forgot = await kit.memory_forget(memory_content="Ann lives in Bonn.")
    assert forgot["success"], forgot
    assert (await kit.get_profile())["profile"]["static"] == []
    deleted = await kit.document_delete(document["document"]["id"])
    assert deleted["success"], deleted
    told = await kit.execute_tool_call(
        SimpleNamespace(
            function=SimpleNamespace(
                name="search_memories", arguments='{"information_to_get": "tea"}'
            )
        )
    )
    assert "green tea" in told, told


async def middleware() -> None:
    bonn = {"content": "Ann lives in Bonn.", "isStatic": True}
    client.post("/v4/memories", cast_to=object, body={"containerTag": "mid", "memories": [bonn]})
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.content.decode())
        message = {"role": "assistant", "content": "In Bonn."}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx2.Response(200, json={**body, "choices": [choice]})

    # The model that it talks to: no request leaves this process.
    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    options = OpenAIMiddlewareOptions(
        container_tag="mid",
        custom_id="talk-1",
        mode="full",
        add_memory="always",
        api_key=KEY,
        base_url=URL,
    )
    wrapped = with_supermemory(AsyncOpenAI(api_key="none", http_client=transport), options)
    question = [{"role": "user", "content": "Where does Ann live?"}]
    told = await wrapped.chat.completions.create(model="m", messages=question)
    assert told.choices[0].message.content == "In Bonn."
    assert "Ann lives in Bonn." in asked[0], asked
    await wrapped.wait_for_background_tasks()
    kept = await asyncio.to_thread(settled, "mid", 2)
    assert any("talk-1" in (one.custom_id or "") for one in kept), kept


asyncio.run(tools())
asyncio.run(middleware())
