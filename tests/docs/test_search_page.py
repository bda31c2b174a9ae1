"""docs/search.md: each of its examples is asked of the service."""

import json
import re
from pathlib import Path

import httpx

from recollect.app import App
from recollect.documents.filters import OPERATORS_ON_THE_WIRE, FilterKind, parse
from recollect.index import phrases
from recollect.search import candidates, ranking
from recollect.worker.processing import drain
from tests.contract.calls import add, found

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
NOTE = {"kind": "note", "path": "/mail/2026/05", "year": 2026, "topics": ["birds", "ponds"]}
LETTER = {"kind": "mail", "path": "/mail/2025/05", "year": 2025, "topics": ["trees"]}


def examples() -> list[str]:
    [block] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    return block.splitlines()


def test_each_example_of_a_filter_finds_the_note_and_not_the_letter(client: httpx.Client, app: App):
    """Asked of memories, whose metadata may have arrays, and of documents but for these."""
    texts = {"A heron by the pond.": NOTE, "A heron in the tree.": LETTER}
    known = [{"content": text, "metadata": data} for text, data in texts.items()]
    body = {"containerTag": "ann", "memories": known}
    assert client.post("/v4/memories", json=body).status_code == 201
    for text, data in texts.items():
        flat = {key: value for key, value in data.items() if key != "topics"}
        add(client, text, metadata=flat, containerTag="bob")
    drain(app)

    for example in examples():
        more = {"filters": json.loads(example), "containerTag": "ann", "threshold": 0}
        answer = client.post("/v4/search", json={"q": "heron", **more}).json()
        assert [one["memory"] for one in answer["results"]] == ["A heron by the pond."], example
        if "array" not in example:
            hits = found(client, "heron", filters=json.loads(example), containerTag="bob")
            texts_found = [hit["chunks"][0]["content"] for hit in hits]
            assert texts_found == ["A heron by the pond."], example


def test_every_operator_has_an_example():
    for name in ("string_contains", "array_contains", "numeric", "ignoreCase", "negate", "OR"):
        assert any(name in example for example in examples()), name
    for operator in ("<", "<=", ">", ">="):
        assert any(f'"numericOperator": "{operator}"' in example for example in examples())
    for example in examples():
        parse(json.loads(example))


def test_the_schema_has_the_grammar_too(client: httpx.Client):
    models = client.get("/v3/openapi").json()["components"]["schemas"]
    for name in ("SearchRequest", "ListDocuments", "MemorySearch"):
        told = models[name]["properties"]["filters"]["description"]
        for word in (*FilterKind, *OPERATORS_ON_THE_WIRE, "negate", "ignoreCase", "AND", "OR"):
            assert word in re.findall(r"[\w]+|[<>=]+", told), (name, word)


def test_the_examples_of_phrases_are_read_as_the_page_says():
    rows = re.findall(r"^\| `.*\| `(.+?)` \|$", PAGE, re.MULTILINE)
    read = [phrases.read(row) for row in rows]

    assert [(len(one.phrases), len(one.excluded)) for one in read[:3]] == [(1, 0), (0, 1), (0, 1)]
    for plain in ('5" disk', "foo-bar", "a --flag", "a -1", "a - b"):
        assert plain.removeprefix("a ") in PAGE
        assert phrases.read(plain) == phrases.Reading(plain)


def test_the_figures_of_the_page_are_those_of_the_code():
    assert f"more than {candidates.READ:,} passages" in PAGE
    assert f"{phrases.MOST} words in phrases" in PAGE
    assert f"at most {2 * candidates.CANDIDATES} candidates" in PAGE
    assert f"from {ranking.RELEVANT} on" in PAGE
