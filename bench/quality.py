"""Retrieval quality: does the passage that answers come up, by words, by meaning, and by both.

Questions are made of documents at hand, never written for the purpose; each asks for one passage:

- `summary`: the first sentence of a docstring, without the names of code in it; wanted is the rest
  of that docstring.
- `heading`: a heading of at least three words in a README or the language reference; wanted is the
  text below it.
- `comment`: a comment of a whole sentence in a program; wanted is the code below it.
- `opening`: the first sentence of a paragraph of prose; wanted are its other sentences.

What was taken for the question is cut out of the passage, so that words alone do not decide. All
passages, those of questions and others like them, are documents of one organisation, searched as
`search` does it: with the text alone, with the vector alone, and with both.

MRR@10 is the mean of 1/place of the wanted document, recall@10 how often it is among the first ten.
"""

import random
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import corpus
from bench.figures import Figure
from bench.fill import Filling, default_tenant, fill, open_database, vector_index_afterwards
from bench.ground import Ground
from recollect.db import Database
from recollect.ingest import chunk
from recollect.model import DocumentId, Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
NAME = re.compile(r"\S*[_(){}\[\]<>=`*]\S*|\b\w+\.\w+\b|\b\w*[a-z][A-Z]\w*\b|\b[A-Z]{2,}\w*\b")
"""what looks like the name of something in a program"""
HEADING = re.compile(r"^(?:#{1,4} (?P<md>.+)|(?P<rst>[^\n]{8,70})\n(?:={8,}|-{8,}|\*{8,}))$", re.M)
COMMENT = re.compile(r"(?:^[ ]*# .*\n)+", re.M)
LEAST, MOST = 200, 4_000
"""characters of a passage"""
SEED = 17


@dataclass(frozen=True, slots=True)
class Question:
    kind: str
    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Size:
    questions: int
    """of each kind"""
    passages: int
    """of each kind, with those that answer"""


FULL = Size(questions=150, passages=1_000)
QUICK = Size(questions=50, passages=120)
TINY = Size(questions=2, passages=4)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    with open_database(ground.new_database()) as db:
        asked, ids, tenant = populate(ground, db, size)
        places: dict[str, list[int | None]] = {"words": [], "vectors": [], "both": []}
        for question, wanted in zip(asked, ids, strict=True):
            vector = ground.embedder.embed([question.text], query=True)[0]
            for side, query in (
                ("words", Query(question.text, None)),
                ("vectors", Query("", vector)),
                ("both", Query(question.text, vector)),
            ):
                places[side].append(_place(db, tenant, query, wanted))
    yield from _figures(places, asked)


def populate(
    ground: Ground, db: Database, size: Size
) -> tuple[list[Question], list[DocumentId], Tenant]:
    """Questions, and the document that each asks for."""
    tenant = default_tenant(db)
    choose = random.Random(SEED)
    asked: list[Question] = []
    others: list[Question] = []
    for some in questions().values():
        chosen = choose.sample(some, min(size.passages, len(some)))
        asked += chosen[: size.questions]
        others += chosen[size.questions :]
    with vector_index_afterwards(db, ground.embedder):
        ids = fill(db, tenant, list(_fillings(ground, [*asked, *others])))
    return asked, ids[: len(asked)], tenant


def questions() -> dict[str, list[Question]]:
    """All that the documents at hand give, by kind."""
    found: dict[tuple[str, str], Question] = {}
    answers: set[str] = set()
    for question in (*_summaries(), *_headings(), *_comments(), *_openings()):
        if LEAST <= len(question.answer) <= MOST and question.answer not in answers:
            answers.add(question.answer)
            found.setdefault((question.kind, question.text), question)
    kinds = dict.fromkeys(kind for kind, _ in found)
    return {kind: [one for one in found.values() if one.kind == kind] for kind in kinds}


def _summaries() -> Iterator[Question]:
    for text in corpus.docstrings():
        first, _, rest = text.partition("\n\n")
        words = " ".join(NAME.sub(" ", first).split())
        if len(first) < 200 and len(words.split()) >= 5:
            yield Question("summary", words, rest.strip())


def _headings() -> Iterator[Question]:
    for text in (*corpus.readmes(), *corpus.topics()):
        found = list(HEADING.finditer(text))
        ends = [*(one.start() for one in found[1:]), len(text)]
        for one, end in zip(found, ends, strict=False):
            words = (one["md"] or one["rst"]).strip(" #*`")
            below = text[one.end() : end].strip()
            if len(words.split()) >= 3 and words.lower() not in below.lower():
                yield Question("heading", words, below[:MOST])


def _comments() -> Iterator[Question]:
    for source in corpus.sources():
        for one in COMMENT.finditer(source):
            words = " ".join(line.strip().removeprefix("# ") for line in one[0].splitlines())
            below = source[one.end() :].split("\n\n", 1)[0]
            if 8 <= len(words.split()) <= 40 and words[0].isupper() and "#" not in below:
                yield Question("comment", words, below.strip())


def _openings() -> Iterator[Question]:
    for text in corpus.paragraphs():
        first, *rest = SENTENCE.split(" ".join(text.split()))
        if 6 <= len(first.split()) <= 30 and len(rest) >= 2:
            yield Question("opening", first, " ".join(rest))


def _fillings(ground: Ground, all: Sequence[Question]) -> Iterator[Filling]:
    split = [[piece.text for piece in chunk.split(one.answer)] for one in all]
    vectors = ground.embedder.embed([text for texts in split for text in texts])
    at = 0
    for texts in split:
        yield Filling(texts, vectors[at : at + len(texts)], ["quality"])
        at += len(texts)


def _place(db: Database, tenant: Tenant, query: Query, wanted: DocumentId) -> int | None:
    with db.begin() as tx:
        hits = hybrid.search(tx, tenant, query)
    found = [hit.document.id for hit in hits]
    return found.index(wanted) + 1 if wanted in found else None


def _figures(places: dict[str, list[int | None]], asked: Sequence[Question]) -> Iterator[Figure]:
    for name, unit, measured in (("mrr", "MRR@10", _mrr), ("recall", "recall@10", _recall)):
        singles = max(measured(places["words"]), measured(places["vectors"]))
        for side, found in places.items():
            value = measured(found)
            yield Figure(
                f"quality.{name}.{side}",
                f"by {side}, {len(asked)} questions",
                value,
                unit,
                value / singles,
                "best single side",
            )
    for kind in dict.fromkeys(question.kind for question in asked):
        of_kind = {
            side: _mrr([p for p, one in zip(found, asked, strict=True) if one.kind == kind])
            for side, found in places.items()
        }
        yield Figure(
            f"quality.mrr.both.{kind}",
            f"by both, {kind} questions"
            f" (words {of_kind['words']:.3f}, vectors {of_kind['vectors']:.3f})",
            of_kind["both"],
            "MRR@10",
            of_kind["both"] / max(of_kind["words"], of_kind["vectors"], 1e-9),
            "best single side",
        )


def _mrr(places: Sequence[int | None]) -> float:
    return statistics.mean(0.0 if place is None else 1 / place for place in places)


def _recall(places: Sequence[int | None]) -> float:
    return statistics.mean(place is not None for place in places)
