"""What users of `supermemory-agent-framework` do, with nothing but base URL and key changed.

agents_tools.py URL KEY, with SUPERMEMORY_BASE_URL in the environment
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from supermemory_agent_framework import AgentSupermemory, SupermemoryTools  # pyright: ignore[reportMissingImports]

URL, KEY = sys.argv[1:]
connection = AgentSupermemory(KEY, "agents", entity_context="Ann is a user.")


async def done() -> None:
    while True:
        listed = await connection.client.list("agents", "documents")
        states = [one.system.status for one in listed.documents]
        assert "failed" not in states
        if states and set(states) == {"done"}:
            return
        await asyncio.sleep(0.05)


async def remember(fact: str) -> None:
    """What a language model of the service would draw: there is none."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
        body = {"containerTag": "agents", "memories": [{"content": fact, "isStatic": True}]}
        answer = await http.post(f"{URL}/v4/memories", json=body)
        assert answer.status_code < 300, answer.text


async def main() -> None:
    tools = {one.name: one for one in SupermemoryTools(connection).get_tools()}

    async def call(name: str, **given: Any) -> dict[str, Any]:
        told = json.loads(await tools[name].func(**given))
        assert told["success"], told
        return told

    assert (await call("search_memories", information_to_get="tea"))["results"] == []
    first = await call("add_memory", memory="Ann drinks green tea every morning.")
    again = await call("add_memory", memory="The heron stands in the shallow water.")
    assert first["memory"]["id"] == again["memory"]["id"]  # of one conversation
    await done()
    found = await call("search_memories", information_to_get="heron in the shallow water")
    assert "shallow water" in str(found["results"]), found
    document = await connection.client.documents.get("agents", connection.custom_id)
    assert "green tea" in document.content
    assert "shallow water" in document.content
    await remember("Ann lives in Bonn.")
    profile = await call("get_profile", query="Where does Ann live?")
    assert profile["profile"]["static"] == ["Ann lives in Bonn."], profile
    assert "Ann lives in Bonn." in str(profile["search_results"]), profile


asyncio.run(main())
