"""Questions with a known answer: does the passage that holds it come up?

`python -m bench.answers FILE [--asked FILE] [--most N] [--model NAME]` reads a set in the format
of SQuAD (COVID-QA, XQuAD, SQuAD itself: docs/bench.md says where they are had). Nothing is
downloaded. Each paragraph is a document, cut, weighed and embedded with the default settings; each
question is searched as `POST /v3/search` does it, by words alone, by vectors alone and by both.
`--asked` takes the questions from another file of the same set, in another language: the documents
stay those of the first.

hit@k: the share of questions whose answer, in whole, is shown among the passages of the first k
documents, of which at most 8,000 characters count.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import Figure, as_json, floors, table
from bench.fill import Filling, default_tenant, fill, open_database, vector_index_afterwards
from bench.ground import Ground
from recollect.db import Database
from recollect.inference.embed import DEFAULT, MODELS
from recollect.ingest import chunk
from recollect.model import DocumentId, Hit, Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

CUTS = (1, 5)
SHOWN = 8_000
"""characters of passages that count"""
BATCH = 256


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    paragraph: int
    answers: Sequence[str]
    """as they stand in the paragraph; none: it holds no answer"""


def load(path: Path) -> tuple[list[str], list[Question]]:
    """The paragraphs, and what is asked about them. Raises SystemExit for another format."""
    try:
        given: Mapping[str, Any] = json.loads(path.read_bytes())
        paragraphs = [one for article in given["data"] for one in article["paragraphs"]]
        questions = [
            Question(asked["question"], number, [one["text"] for one in asked["answers"]])
            for number, paragraph in enumerate(paragraphs)
            for asked in paragraph["qas"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is no set in the format of SQuAD: {error}") from error
    return [one["context"] for one in paragraphs], questions


def index(
    ground: Ground, db: Database, tenant: Tenant, paragraphs: Sequence[str]
) -> list[DocumentId]:
    """One document for each paragraph."""
    split = [[piece.text for piece in chunk.split(text)] for text in paragraphs]
    with vector_index_afterwards(db, ground.embedder):
        return fill(db, tenant, list(_fillings(ground, split)))


def measure(ground: Ground, documents: Path, asked: Path, most: int) -> Iterator[Figure]:
    paragraphs, _ = load(documents)
    _, questions = load(asked)
    wanted = [one for one in questions if one.answers]
    wanted = wanted[:: max(1, len(wanted) // most)]
    # Another language's answers are its own words: there the document has to do.
    spans = documents == asked
    with open_database(ground.new_database()) as db:
        tenant = default_tenant(db)
        ids = index(ground, db, tenant, paragraphs)
        places: dict[str, list[int | None]] = {"words": [], "vectors": [], "both": []}
        for question in wanted:
            [vector] = ground.embedder.embed([question.text], query=True)
            for side, query in (
                ("words", Query(question.text, None)),
                ("vectors", Query("", vector)),
                ("both", Query(question.text, vector)),
            ):
                with db.begin() as tx:
                    hits = hybrid.search(tx, tenant, query)
                id = ids[question.paragraph]
                places[side].append(_place(hits, id, question.answers if spans else None))
    name = f"{documents.stem}-{asked.stem}" if documents != asked else documents.stem
    for cut in CUTS:
        shares = {side: _share(found, cut) for side, found in places.items()}
        single = max(shares["words"], shares["vectors"], 1e-9)
        for side, share in shares.items():
            label = f"{name} by {side}, {len(wanted)} questions"
            yield Figure(
                f"answers.{name}.{cut}.{side}",
                label,
                share,
                f"hit@{cut}",
                share / single,
                "best single side",
            )


def _fillings(ground: Ground, split: Sequence[Sequence[str]]) -> Iterator[Filling]:
    for start in range(0, len(split), BATCH):
        some = split[start : start + BATCH]
        vectors = ground.embedder.embed([text for texts in some for text in texts])
        at = 0
        for texts in some:
            yield Filling(texts, vectors[at : at + len(texts)], ["answers"])
            at += len(texts)


def _place(hits: Sequence[Hit], wanted: DocumentId, answers: Sequence[str] | None) -> int | None:
    left = SHOWN
    for place, hit in enumerate(hits, 1):
        for one in hit.chunks:
            shown, left = one.text[:left], max(0, left - len(one.text))
            if hit.document.id == wanted and (
                answers is None or any(answer in shown for answer in answers)
            ):
                return place
    return None


def _share(places: Sequence[int | None], cut: int) -> float:
    return sum(place is not None and place <= cut for place in places) / max(len(places), 1)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=__doc__)
    parser.add_argument("documents", type=Path, metavar="FILE")
    parser.add_argument("--asked", type=Path, metavar="FILE", help="questions from another file")
    parser.add_argument("--most", type=int, default=10_000, metavar="N", help="questions at most")
    parser.add_argument("--model", choices=MODELS, default=DEFAULT)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    with Ground(model=given.model) as ground:
        asked = given.asked or given.documents
        figures = list(measure(ground, given.documents, asked, given.most))
    kept = floors()
    print(json.dumps(as_json(figures, kept), indent=2) if given.json else table(figures, kept))


if __name__ == "__main__":
    main(sys.argv[1:])
