"""Words that the docs, the console, the help and messages do not use: riddles, and what is not
idiomatic."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.house.facts import trees

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs/recipes").glob("*.md"),
    *(ROOT / "recollect" / "console" / "templates").glob("*.html"),
    ROOT / "recollect" / "api" / "fields.toml",
]
NOT_USED = {
    "anew": "again",
    "for ever": "forever",
    "for who": "for those who",
    "at most so many": "at most 10, or the most documents",
    "whoever": "anyone who, those who",
    "heed(s|ed|ing)?": "obey, take effect",
    "likest": "most similar",
    "of whom": "of the person who",
    "something else than": "something other than",
    "opens nothing": "is not valid",
    "where it hurts": "what is wrong",
    "told (nothing|anything|everything)": "notified of",
    "make it": "create, or the verb of the thing",
    "kept nowhere": "not stored",
    "does not exist for it": "the key sees nothing else",
    "somebody": "you, or someone, or what it is about",
    "(comes?|goes?|takes?) along": "is included, keeps, moves with",
    "(is|are|was) mended|mends": "fix, repair",
    "in the midst of": "in the middle of",
    "for want of": "without",
    "(?<!there )is no (?!longer|more|other|one|such)[a-z-]+": "is not a",
    "(?<!there )(is|are) none": "is not one, is not valid",
    "shall": "is to, should, must",
    "likeliest": "most likely",
    "had back": "undone, restored",
    "belongs? into": "belongs in",
    "tells? (nothing|of|no more|that|times)|does not tell": "says, reports, gives",
    "(lies|lie) (in|too|outside|beside|below|at)": "is in",
    "what is known of (it|them) stays|what is here of it": "its documents stay, was read before",
    "found by asking": "looked for",
    "is taken back": "is revoked",
    "takes (it|its reader) over": "takes over its reader",
    "(is|are) made again": "is created again",
    "lets? in by a click": "connected with a click",
    "stands? for (it|them|something|a folder|another)": "points to",
}
"""A pattern, and what to write instead."""
CODE = re.compile(r"\{%.*?%\}|\{\{.*?\}\}")
"""of a template"""
READ = (
    *("api", "cli", "connectors", "console", "events", "extract"),
    *("fetch", "mcp", "memories", "orgs", "telemetry"),
)
"""Rooms whose docstrings are read as well: the first two show theirs to users."""


@cache
def messages() -> Sequence[tuple[str, str]]:
    return list(_messages())


def _messages() -> Iterator[tuple[str, str]]:
    """Every text of the source that has three words, and where it is; docstrings only of
    some rooms."""
    for file, tree in trees().items():
        read = file.split("/")[0] in READ
        inside: set[ast.AST] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=ast.Constant() as docstring) if not read:
                    inside.add(docstring)
                case ast.JoinedStr(values=values):
                    inside.update(values)
                    text = "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "it"
                        for part in values
                    )
                    yield f"recollect/{file}:{node.lineno}", text
                case ast.Constant(value=str(text)) if node not in inside and len(text.split()) > 2:
                    yield f"recollect/{file}:{node.lineno}", text
                case _:
                    pass


@cache
def lines() -> Sequence[tuple[str, str]]:
    """Of the pages, and where each is."""
    return [
        (f"{page.relative_to(ROOT)}:{number}", line)
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
    ]


def test_messages_are_found():
    texts = [text for _, text in messages()]
    assert len(texts) > 1500
    assert any("target is not a public address" in text for text in texts)
    assert any(text.startswith("there is no it it") for text in texts)


@pytest.mark.parametrize("word", NOT_USED)
def test_no_page_or_message_uses_a_word_of_the_list(word: str):
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{where}: {line.strip()[:100]}"
        for where, line in lines()
        if pattern.search(CODE.sub("", line))
    ]
    found += [f"{where}: {text[:100]}" for where, text in messages() if pattern.search(text)]
    assert not found, f"write {NOT_USED[word]!r}: {found}"
