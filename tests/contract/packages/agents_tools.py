"""What users of `supermemory-agent-framework` do, with nothing but base URL and key changed.

agents_tools.py URL KEY, with SUPERMEMORY_BASE_URL in the environment
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from agent_framework import (  # pyright: ignore[reportMissingImports]
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Message,
)
from supermemory_agent_framework import (  # pyright: ignore[reportMissingImports]
    AgentSupermemory,
    SupermemoryChatMiddleware,
    SupermemoryContextProvider,
    SupermemoryMiddlewareOptions,
    SupermemoryTools,
)

URL, KEY = sys.argv[1:]
connection = AgentSupermemory(KEY, "agents", entity_context="Ann is a user.")


class Model(ChatMiddlewareLayer, BaseChatClient):  # pyright: ignore[reportUntypedBaseClass]
    """Says the same to everything, and keeps what it was asked."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.asked: list[str] = []

    async def _inner_get_response(self, *, messages: Any, options: Any, **_: Any) -> Any:
        self.asked.append(
            "\n".join([str(options.get("instructions")), *(m.text for m in messages)])
        )
        return ChatResponse(messages=[Message("assistant", ["She lives in Bonn."])])


async def done(tag: str = "agents") -> None:
    while True:
        listed = await connection.client.list(tag, "documents")
        states = [one.system.status for one in listed.documents]
        assert "failed" not in states
        if states and set(states) == {"done"}:
            return
        await asyncio.sleep(0.05)


async def remember(fact: str, tag: str = "agents") -> None:
    """What a language model of the service would draw: there is none."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
        body = {"containerTag": tag, "memories": [{"content": fact, "isStatic": True}]}
        answer = await http.post(f"{URL}/v4/memories", json=body)
        assert answer.status_code < 300, answer.text


async def talked(tag: str, conversation: AgentSupermemory) -> str:
    """The text that was kept of a conversation."""
    await done(tag)
    document = await conversation.client.documents.get(tag, conversation.custom_id)
    return document.content


async def provider() -> None:
    """Memories before a run, the conversation after it."""
    await remember("Ann lives in Bonn.", "provider")
    own = AgentSupermemory(KEY, "provider", entity_context="Ann is a user.")
    model = Model()
    giving = SupermemoryContextProvider(own, mode="full", store_conversations=True)
    agent = Agent(model, "Be short.", context_providers=[giving])
    answer = await agent.run("Where does Ann live?")
    assert answer.text == "She lives in Bonn."
    assert "Ann lives in Bonn." in model.asked[0], model.asked
    assert "Ann is a user." in model.asked[0], model.asked
    kept = await talked("provider", own)
    assert "User: Where does Ann live?" in kept, kept
    assert "Assistant: She lives in Bonn." in kept, kept


async def middleware() -> None:
    """The same between agent and model."""
    await remember("Ann lives in Bonn.", "middleware")
    own = AgentSupermemory(KEY, "middleware")
    options = SupermemoryMiddlewareOptions(mode="full", add_memory="always")
    between = SupermemoryChatMiddleware(own, options=options)
    model = Model(middleware=[between])
    await Agent(model, "Be short.").run("Where does Ann live?")
    assert "Ann lives in Bonn." in model.asked[0], model.asked
    await between.wait_for_background_tasks()
    assert "User: Where does Ann live?" in await talked("middleware", own)


async def tools_of_an_agent() -> None:
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


async def main() -> None:
    await tools_of_an_agent()
    await provider()
    await middleware()


asyncio.run(main())
