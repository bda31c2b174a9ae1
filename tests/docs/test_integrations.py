"""The recipes of docs/integrations.md: the very blocks that a reader copies, against a service."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import NewDocument
from recollect.model import DocumentId, Tenant
from recollect.orgs import orgs
from recollect.worker.processing import drain

PAGE = Path(__file__).parents[2] / "docs/integrations.md"
TEXTS = [
    "The ferry leaves at noon from the northern pier.",
    "Bread is baked before dawn.",
    "The library is closed on Mondays.",
    "\n\n".join(f"# Pier {n}\n\n{' '.join(['The ferry passes the pier.'] * 50)}" for n in range(9)),
]


@pytest.fixture
def run(
    app: App, tenant: Tenant, live_url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Runs the blocks below the given headings, after the first; returns their names."""
    monkeypatch.setenv("RECOLLECT_URL", live_url)
    monkeypatch.setenv("RECOLLECT_API_KEY", key)
    with app.db.begin() as tx:
        for n, text in enumerate(TEXTS):
            content = documents.text_content(text)
            new = NewDocument(content, ["handbook"], metadata={"number": n})
            documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
    drain(app)

    def run(*headings: str) -> dict[str, Any]:
        parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
        sections = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
        names: dict[str, Any] = {"__name__": "recipe"}
        for heading in ("", *headings):
            for block in re.findall(r"```python\n(.+?)```", sections[heading], re.DOTALL):
                exec(compile(block, f"{PAGE.name}: {heading}", "exec"), names)
        return names

    return run


def test_langchain_s_retriever_finds_passages_and_their_places(
    run: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
):
    names = run("LangChain: a retriever")

    assert TEXTS[0] in capsys.readouterr().out
    best = names["retriever"].invoke("When does the ferry leave?")[0]
    assert best.page_content == TEXTS[0]
    assert (best.metadata["start"], best.metadata["end"]) == (0, len(TEXTS[0]))
    assert best.metadata["number"] == 0
    later = asyncio.run(names["retriever"].ainvoke("bread before dawn"))
    assert later[0].page_content == TEXTS[1]

    filters = {"AND": [{"key": "number", "value": "2", "filterType": "numeric"}]}
    narrow = names["RecollectRetriever"](client=names["client"], tag="handbook", filters=filters)
    assert [one.page_content for one in narrow.invoke("ferry")] in ([], [TEXTS[2]])
    few = names["RecollectRetriever"](client=names["client"], tag="handbook", k=2)
    assert len(few.invoke("ferry pier")) == 2  # passages, of which one document has many


def test_llamaindex_s_retriever_finds_nodes_with_scores(run: Callable[..., dict[str, Any]]):
    names = run("LlamaIndex: a retriever")
    nodes = names["nodes"]
    few = names["RecollectNodes"](names["client"], tag="handbook", k=2)

    assert len(few.retrieve("ferry pier")) == 2

    assert nodes[0].node.get_content() == TEXTS[0]
    assert nodes[0].score > 0
    assert (nodes[0].node.start_char_idx, nodes[0].node.end_char_idx) == (0, len(TEXTS[0]))


def test_llamaindex_s_reader_brings_whole_documents(run: Callable[..., dict[str, Any]]):
    found = run("LlamaIndex: a reader")["documents"]

    assert {one.text for one in found} == set(TEXTS)


def test_every_recipe_of_the_page_is_run():
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    ran = set(re.findall(r'run\("(.+?)"\)', Path(__file__).read_text()))

    assert set(headings) - {"Packages that were run"} == ran
