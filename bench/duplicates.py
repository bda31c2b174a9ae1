"""Which passages are taken to say what another one says: paragraphs, changed in known ways."""

import random
import re
from collections.abc import Callable, Iterator

from bench import corpus
from bench.figures import Figure
from bench.ground import Ground
from recollect.search.duplicates import SaidBefore

FULL, QUICK, TINY = 1_500, 300, 20
"""paragraphs"""
SENTENCE = re.compile(r"(?<=[.!?])\s+")
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Change = Callable[[str, str, random.Random], str | None]
"""A paragraph, another one, and draws; None where there is nothing to change."""


def measure(ground: Ground, size: int) -> Iterator[Figure]:
    """The share that is folded, of those that say the same and of those that do not."""
    draws = random.Random(3)
    paragraphs = [text for text in corpus.paragraphs() if 300 <= len(text) <= 1_200]
    some = draws.sample(paragraphs, min(size, len(paragraphs)))
    for (id, what), change in KINDS.items():
        folded: list[bool] = []
        for text in some:
            changed = change(text, draws.choice(some), draws)
            if changed is not None and changed != text:
                said = SaidBefore()
                said.add(text)
                folded.append(said.by(changed) is not None)
        share = sum(folded) / max(len(folded), 1)
        yield Figure(f"duplicates.{id}", f"folded: {what}", share, "share")


def _marked(text: str) -> str:
    return "> " + text.replace(". ", ". **", 1).replace(", ", "**, ", 1)


def _word(text: str) -> str:
    return re.sub(r"\b(the|and|of|to|a)\b", "which", text, count=1)


def _typed(text: str, draws: random.Random) -> str:
    letters = list(text)
    for _ in range(max(1, len(text) // 100)):
        at = draws.randrange(len(letters))
        if letters[at].isalpha():
            letters[at] = draws.choice(LETTERS)
    return "".join(letters)


def _shorter(text: str) -> str | None:
    sentences = SENTENCE.split(text)
    return " ".join(sentences[:-1]) if len(sentences) > 2 else None


def _other_end(text: str, other: str) -> str | None:
    sentences = SENTENCE.split(text)
    few = 3 <= len(sentences) <= 6
    return " ".join([*sentences[:-1], SENTENCE.split(other)[0]]) if few else None


def _number(text: str, draws: random.Random) -> str | None:
    return re.sub(
        r"\d+", lambda found: str(int(found.group()[:9]) + draws.randint(1, 9)), text, count=1
    )


KINDS: dict[tuple[str, str], Change] = {
    ("spacing", "in capitals, with other spaces"): lambda a, _, __: a.upper().replace(" ", "  "),
    ("marks", "with marks of Markdown"): lambda a, _, __: _marked(a),
    ("shorter", "without its last sentence"): lambda a, _, __: _shorter(a),
    ("word", "with one word changed"): lambda a, _, __: _word(a),
    ("typed", "with a typing error for each 100 characters"): lambda a, _, r: _typed(a, r),
    ("other-end", "not the same: another last sentence, of 3 to 6"): lambda a, b, _: _other_end(
        a, b
    ),
    ("number", "not the same: a number changed"): lambda a, _, r: _number(a, r),
    ("longer", "not the same: another one behind it"): lambda a, b, _: f"{a} {b}",
    ("another", "not the same: any other"): lambda a, b, _: b,
}
