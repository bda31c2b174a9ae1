"""What decides between equals: recency and place, never a random id; and words that say nothing."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.inference.llm import Llm
from recollect.worker.processing import drain
from tests.contract.calls import add, found
from tests.fakes.llm import Model, running

Served = Callable[..., httpx.Client]
COPIES = 130
"""of one text: more than both sides bring as candidates"""
SHOWN = 5


def ids(results: list[dict[str, Any]]) -> list[str]:
    return [result["documentId"] for result in results]


def test_of_more_equals_than_are_looked_at_the_newest_come_first(
    client: httpx.Client, served: Served, app: App
):
    """By words and vectors, and by words; in a tag, and in all."""
    text = "The heron eats frogs."
    made = [add(client, text, customId=f"c{n}", containerTag="copies") for n in range(COPIES)]
    drain(app)
    # What is changed last is the newest, and of them all the first that was made.
    for id in made[:SHOWN]:
        client.patch(f"/v3/documents/{id}", json={"metadata": {"changed": True}})

    for asked in (client, served(embedder=None)):
        for tags in (["copies"], None):
            results = found(asked, "heron frogs", limit=SHOWN, containerTags=tags)
            assert ids(results) == made[:SHOWN][::-1], (asked, tags)


def test_of_equals_that_several_wordings_find_the_newest_come_first(
    client: httpx.Client, served: Served, app: App
):
    made = [add(client, "The heron eats frogs.", customId=f"w{n}") for n in range(9)]
    drain(app)
    client.patch(f"/v3/documents/{made[4]}", json={"metadata": {"changed": True}})
    with running(Model()) as model:
        model.answer = lambda _: {"queries": ["heron", "frogs eaten"]}
        asked = served(llm=Llm(model.url, "a-model", hurry=60))
        results = found(asked, "heron frogs", limit=9, rewriteQuery=True)

    assert ids(results) == [made[4], *(id for id in made[::-1] if id != made[4])]


def test_of_equal_passages_of_a_document_the_first_comes_first(served: Served, app: App):
    asked = served(embedder=None)
    parts = [f"## Part\n\n{'heron ' * 100} frog{n:03}{' marsh' * 20}" for n in range(60)]
    parts.append("## End\n\n" + "of something else " * 60)
    add(asked, "\n\n".join(parts))
    drain(app)

    [result] = found(asked, "heron")

    positions = [chunk["position"] for chunk in result["chunks"]]
    assert positions == list(range(len(positions)))


@pytest.mark.parametrize(
    ("telling", "asked", "text", "chatter"),
    [
        ("heron pond", "what is the heron in the pond and of the pond", "A heron, a pond.",
         "What is the use of it, and what is in the and of the and the?"),
        ("Reiher Teich", "wo ist der Reiher in dem Teich und auf dem Teich", "Reiher am Teich.",
         "Wo ist das, und wo ist der, die und das in dem auf dem und dem?"),
        ("héron étang", "où est le héron dans le étang et sur le étang", "Un héron, un étang.",
         "Où est le, et où est la, et dans le sur la et dans les?"),
    ],
    ids=["en", "de", "fr"],
)  # fmt: skip
def test_stop_words_never_decide(
    client: httpx.Client,
    served: Served,
    app: App,
    telling: str,
    asked: str,
    text: str,
    chatter: str,
):
    wanted = add(client, text)
    for n in range(12):
        add(client, f"{chatter} {n}")
    drain(app)
    by_words = served(embedder=None)

    with_them, without = found(by_words, asked), found(by_words, telling)

    assert ids(with_them) == ids(without) == [wanted]
    assert with_them[0]["chunks"] == without[0]["chunks"]
    assert ids(found(client, asked))[0] == wanted
