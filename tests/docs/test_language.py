"""Words that the docs, the console and the help do not use: riddles, and what is not idiomatic."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs/recipes").glob("*.md"),
    *(ROOT / "recollect" / "console" / "templates").glob("*.html"),
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
}
"""A pattern, and what to write instead."""


@pytest.mark.parametrize("word", NOT_USED)
def test_pages_use_no_word_of_the_list(word: str):
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"write {NOT_USED[word]!r}: {found}"
