"""docs/search.md: each of its examples is asked of the service."""

import json
import re
from pathlib import Path

import httpx

from recollect.app import App
from recollect.documents.filters import parse
from recollect.index import phrases
from recollect.search import hybrid, ranking
from recollect.worker.processing import drain
from tests.contract.calls import add, found

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
NOTE = {"kind": "note", "path": "/mail/2026/05", "year": 2026, "topics": ["birds", "ponds"]}
LETTER = {"kind": "letter", "path": "/mail/1999/05", "year": 1999, "topics": ["trees"]}


def examples() -> list[str]:
    [block] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    return block.splitlines()


def test_each_example_of_a_filter_finds_the_note_alone_or_leaves_the_other_out(
    client: httpx.Client, app: App
):
    note = add(client, "A heron by the pond.", metadata=NOTE)
    letter = add(client, "A heron in the tree.", metadata=LETTER)
    drain(app)

    for example in examples():
        ids = {hit["documentId"] for hit in found(client, "heron", filters=json.loads(example))}
        assert note in ids, example
        if not re.search(r"negate|\"<\"|<=", example):
            assert letter not in ids, example


def test_every_operator_has_an_example():
    for name in ("string_contains", "array_contains", "numeric", "ignoreCase", "negate", "OR"):
        assert any(name in example for example in examples()), name
    for operator in ("<", "<=", ">", ">="):
        assert any(f'"numericOperator": "{operator}"' in example for example in examples())
    for example in examples():
        parse(json.loads(example))


def test_the_examples_of_phrases_are_read_as_the_page_says():
    rows = re.findall(r"^\| `.*\| `(.+?)` \|$", PAGE, re.MULTILINE)
    read = [phrases.read(row) for row in rows]

    assert [(len(one.phrases), len(one.excluded)) for one in read[:3]] == [(1, 0), (0, 1), (0, 1)]
    for plain in ('5" disk', "foo-bar", "a --flag", "a -1", "a - b"):
        assert plain.removeprefix("a ") in PAGE
        assert phrases.read(plain) == phrases.Reading(plain)


def test_the_figures_of_the_page_are_those_of_the_code():
    assert f"more than {hybrid.READ:,} passages" in PAGE
    assert f"{phrases.MOST} words in phrases" in PAGE
    assert f"at most {2 * hybrid.CANDIDATES} candidates" in PAGE
    assert f"from {ranking.RELEVANT} on" in PAGE
