"""Sets in the format of SQuAD, put into an index without HTTP: what `bench.relevance` learns from.

Each paragraph is a document, cut, weighed and embedded with the default settings. Nothing is
downloaded. (`python -m bench quality` asks such sets over HTTP.)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fill import Filling, fill, vector_index_afterwards
from bench.ground import Ground
from recollect.db import Database
from recollect.ingest import chunk
from recollect.model import DocumentId, Tenant

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
    with vector_index_afterwards(db, ground.embedder, sum(map(len, split))):
        return fill(db, tenant, list(_fillings(ground, split)))


def _fillings(ground: Ground, split: Sequence[Sequence[str]]) -> Iterator[Filling]:
    for start in range(0, len(split), BATCH):
        some = split[start : start + BATCH]
        vectors = ground.embedder.embed([text for texts in some for text in texts])
        at = 0
        for texts in some:
            yield Filling(texts, vectors[at : at + len(texts)], ["answers"])
            at += len(texts)
