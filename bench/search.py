"""Search among 100,000 chunks: how long it takes, over HTTP and in-process, and what it misses.

The chunks are made of real passages: each text mixes lines of two, and its vector is the same mix
of their vectors with some noise, so that words and meaning agree and real queries (a few words of a
passage, embedded by the real model) fall among them. They stand under tags of 60, 2,000 and 12,000
and one with the rest; 99 other organisations have a ninth as many together. Each search alternates
with the bare counterpart: the 40 nearest of the whole table by the vector index, no words, no
tenant; and each over HTTP with the smallest server, which embeds the query, too, and asks for the
ten nearest, of the tag if there is one.

Recall is the share of the ten nearest chunks, found by comparing all vectors, that a search by
vector alone with the default limit gives among its first ten: of everything, in a tag, under
filters that match 0.1, 1, 20 and 90 in a hundred documents, under both, and in one of the hundred
organisations.
"""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import sql

from bench import beside, corpus, smallest
from bench.figures import Figure, percentile
from bench.fill import (
    Filling,
    default_tenant,
    fill,
    new_tenant,
    open_database,
    vector_index_afterwards,
)
from bench.ground import Client, Ground
from recollect.db import Database
from recollect.documents.filters import parse
from recollect.model import Tenant
from recollect.search import candidates, hybrid
from recollect.search.hybrid import Query

Vectors = NDArray[np.float32]
NEAREST = 10
FILTER = {"AND": [{"key": "shelf", "value": "7"}]}
"""holds for a tenth of the documents"""
DRAWS = 1_000
MATRIX: dict[str, tuple[str | None, int]] = {
    "untagged": (None, DRAWS),
    "tag": ("big", DRAWS),
    "filter-0.1": (None, 1),
    "filter-1": (None, 10),
    "filter-20": (None, 200),
    "filter-90": (None, 900),
    "tag-filter-20": ("big", 200),
}
"""what recall is measured under: a tag, and below which of the draws documents match"""


@dataclass(frozen=True, slots=True)
class Size:
    tags: dict[str, int]
    """chunks under each tag"""
    others: int
    """chunks of the other organisations together"""
    orgs: int
    """how many others"""
    passages: int
    searches: int
    """of each kind, in-process, and half as many over HTTP"""
    recalls: int


FULL = Size(
    {"small": 60, "mid": 2_000, "big": 12_000, "rest": 85_940},
    others=11_000, orgs=99, passages=1_200, searches=60, recalls=40,
)  # fmt: skip
QUICK = Size(
    {"small": 60, "mid": 1_000, "big": 3_000, "rest": 7_940},
    others=1_300, orgs=9, passages=300, searches=20, recalls=20,
)  # fmt: skip
TINY = Size(
    {"small": 5, "mid": 10, "big": 20, "rest": 40},
    others=10, orgs=2, passages=12, searches=2, recalls=2,
)  # fmt: skip


class Passages:
    """Real texts, their vectors, and new chunks and queries made of them."""

    def __init__(self, ground: Ground, count: int, seed: int) -> None:
        chosen = [text for text in corpus.paragraphs() if 200 <= len(text) <= 700]
        self._random = random.Random(seed)
        self._noise = np.random.default_rng(seed)
        self.texts = self._random.sample(chosen, min(count, len(chosen)))
        self.vectors = ground.embedder.embed(self.texts)
        self._made = self._documents = 0

    def filling(self, chunks: int, tag: str) -> Filling:
        """One document of that many new chunks."""
        made = [self._chunk() for _ in range(chunks)]
        metadata = {
            "shelf": str(self._random.randrange(10)),
            # Each draw is had once in so many documents, so that even the rarest filter matches.
            "draw": self._documents * 619 % DRAWS,
        }
        self._documents += 1
        return Filling(
            [text for text, _ in made], np.stack([vector for _, vector in made]), [tag], metadata
        )

    def query(self) -> str:
        """Six words that stand side by side in a passage."""
        words = self._random.choice(self.texts).split()
        start = self._random.randrange(max(1, len(words) - 6))
        return " ".join(words[start : start + 6])

    def _chunk(self) -> tuple[str, Vectors]:
        self._made += 1
        one, two = self._random.sample(range(len(self.texts)), 2)
        share = self._random.uniform(0.3, 0.9)
        lines = [*self._part(one, share), *self._part(two, 1 - share), f"No. {self._made}"]
        noise = self._noise.normal(size=self.vectors.shape[1]) * 0.25 / 384**0.5
        vector = share * self.vectors[one] + (1 - share) * self.vectors[two] + noise
        return "\n".join(lines), (vector / np.linalg.norm(vector)).astype(np.float32)

    def _part(self, number: int, share: float) -> list[str]:
        lines = self.texts[number].splitlines()
        return self._random.sample(lines, max(1, round(share * len(lines))))


@dataclass(frozen=True, slots=True)
class Filled:
    db: Database
    tenant: Tenant
    other: Tenant
    passages: Passages
    made: Sequence[Filling]
    others: Sequence[Filling]
    """documents of `tenant`, and of `other`"""


def measure(ground: Ground, size: Size, others: Path | None = None) -> Iterator[Figure]:
    """`others`: a Python that has other vector stores installed, to be measured as well."""
    url = ground.new_database()
    with open_database(url) as db:
        filled = populate(ground, db, size)
    ground.restart_database()  # its cache goes by the data that it finds when it starts
    with open_database(url) as db:
        filled = replace(filled, db=db)
        yield from _times(ground, filled, size)
        yield from _recalls(ground, filled, size)
        if others is not None:
            yield from _beside(ground, filled, size, others)


def populate(ground: Ground, db: Database, size: Size) -> Filled:
    passages = Passages(ground, size.passages, seed=11)
    tenant = default_tenant(db)
    others = [new_tenant(db, f"bench-{number}") for number in range(size.orgs)]
    chunks = sum(size.tags.values()) + size.others
    with vector_index_afterwards(db, ground.embedder, chunks):
        made = [one for tag, n in size.tags.items() for one in _documents(passages, n, tag)]
        fill(db, tenant, made)
        theirs: list[Filling] = []
        for other in others:
            theirs = list(_documents(passages, size.others // size.orgs, "others"))
            fill(db, other, theirs)
    return Filled(db, tenant, others[-1], passages, made, theirs)


def _documents(passages: Passages, chunks: int, tag: str) -> Iterator[Filling]:
    """Documents of 1 to 60 chunks, that many chunks in all."""
    sizes = random.Random(chunks)
    while chunks:
        size = min(chunks, sizes.randint(1, 60))
        chunks -= size
        yield passages.filling(size, tag)


def _times(ground: Ground, filled: Filled, size: Size) -> Iterator[Figure]:
    past = "mid" if "mid" in size.tags else "big"
    kinds: list[tuple[str, str, dict[str, object]]] = [
        ("untagged", "untagged", {}),
        *(
            (f"tag-{tag}", f"tag of {count:,}", {"containerTag": tag})
            for count, tag in {count: tag for tag, count in reversed(size.tags.items())}.items()
        ),
        ("filter", "untagged, metadata filter", {"filters": FILTER}),
        ("as-of", "as of now, untagged", {"asOf": datetime.now(UTC).isoformat()}),
        (
            "as-of.tag",
            f"as of now, tag of {size.tags[past]:,}",
            {"asOf": datetime.now(UTC).isoformat(), "containerTag": past},
        ),
    ]
    url = filled.db.url
    with ground.answering(url) as service, smallest.answering(ground, url) as connect:
        client, other = service.client(), connect()
        for id, what, given in kinds:
            took, bare = _in_process(ground, filled, size.searches, given)
            asked, least = _over_http(filled, client, other, size.searches // 2, given)
            for name, share in (("p50", 0.5), ("p95", 0.95)):
                yield Figure(
                    f"search.{id}.{name}",
                    f"{what}, in-process, {name}",
                    percentile(took, share) * 1000,
                    "ms",
                    percentile(took, share) / percentile(bare, share),
                    f"bare {candidates.CANDIDATES} nearest",
                )
                yield Figure(
                    f"search.{id}.http.{name}",
                    f"{what}, HTTP, {name}",
                    percentile(asked, share) * 1000,
                    "ms",
                    percentile(asked, share) / percentile(least, share),
                    "the smallest server",
                )


def _in_process(
    ground: Ground, filled: Filled, count: int, given: dict[str, object]
) -> tuple[list[float], list[float]]:
    took: list[float] = []
    bare: list[float] = []
    tag = given.get("containerTag")
    for number in range(count + 3):
        text = filled.passages.query()
        query = Query(
            text,
            ground.embedder.embed([text], query=True)[0],
            tags=[str(tag)] if tag else [],
            filter=parse(given["filters"]) if "filters" in given else None,
            as_of=datetime.fromisoformat(str(given["asOf"])) if "asOf" in given else None,
        )
        started = time.perf_counter()
        with filled.db.begin() as tx:
            hybrid.search(tx, filled.tenant, query)
        searched = time.perf_counter()
        _bare(filled.db, query)
        if number >= 3:
            took.append(searched - started)
            bare.append(time.perf_counter() - searched)
    return took, bare


def _bare(db: Database, query: Query) -> None:
    assert query.vector is not None
    with db.begin() as tx:
        tx.execute(
            sql.SQL(
                "select document_id, hash from entries"
                " order by (embedding::halfvec({dimensions})) <=> %s limit %s"
            ).format(dimensions=sql.Literal(len(query.vector))),
            (HalfVector(query.vector), candidates.CANDIDATES),
        ).fetchall()


def _over_http(
    filled: Filled, client: Client, other: Client, count: int, given: dict[str, object]
) -> tuple[list[float], list[float]]:
    """By turns: how long the service takes, and how long the smallest server."""
    took: list[float] = []
    least: list[float] = []
    tag = {"containerTag": given["containerTag"]} if "containerTag" in given else {}
    for number in range(count + 3):
        q = filled.passages.query()
        started = time.perf_counter()
        client.send("POST", "/v3/search", {"q": q, **given})
        answered = time.perf_counter()
        other.send("POST", "/v3/search", {"q": q, **tag})
        if number >= 3:
            took.append(answered - started)
            least.append(time.perf_counter() - answered)
    return took, least


def _recalls(ground: Ground, filled: Filled, size: Size) -> Iterator[Figure]:
    for id, (tag, below) in MATRIX.items():
        some = [one for one in filled.made if tag in (None, *one.tags)]
        share = sum(int(one.metadata["draw"]) < below for one in some) / len(some)
        what = f"{'in the big tag' if tag else 'untagged'}, {share:.1%} of the documents"
        yield _recall(ground, filled, filled.tenant, id, what, some, size, tag, below)
    yield _recall(
        ground, filled, filled.other, "org", f"one of {size.orgs + 1} organisations",
        filled.others, size, None, DRAWS,
    )  # fmt: skip


def _beside(ground: Ground, filled: Filled, size: Size, python: Path) -> Iterator[Figure]:
    texts = [filled.passages.query() for _ in range(size.searches)]
    queries = np.stack([ground.embedder.embed([text], query=True)[0] for text in texts])
    scopes = {id: (tag, below if below < DRAWS else None) for id, (tag, below) in MATRIX.items()}
    folder = ground.new_folder(with_model=False)
    yield from beside.measure(
        python, folder, filled.db, filled.tenant, filled.made, queries, scopes
    )


def _recall(
    ground: Ground,
    filled: Filled,
    tenant: Tenant,
    id: str,
    what: str,
    some: Sequence[Filling],
    size: Size,
    tag: str | None,
    below: int,
) -> Figure:
    matching = [one.vectors for one in some if int(one.metadata["draw"]) < below]
    vectors = np.concatenate([filled.passages.vectors[:0], *matching])
    condition = {
        "filterType": "numeric", "key": "draw", "value": str(below), "numericOperator": "<",
    }  # fmt: skip
    found: list[float] = []
    for _ in range(size.recalls):
        vector = ground.embedder.embed([filled.passages.query()], query=True)[0]
        # Without words, search is by vector alone.
        query = Query(
            "",
            vector,
            tags=[tag] if tag else [],
            filter=parse({"AND": [condition]}) if below < DRAWS else None,
        )
        with filled.db.begin() as tx:
            hits = hybrid.search(tx, tenant, query)
        near = sorted((c.similarity or 0.0 for hit in hits for c in hit.chunks), reverse=True)
        exact = np.sort(vectors @ vector)[::-1][:NEAREST]
        # Stored vectors have half precision: what is as near as the last is as good.
        enough = [one >= exact[-1] - 2e-4 for one in near[:NEAREST]] if len(exact) else []
        found.append(sum(enough) / len(exact) if len(exact) else 1.0 - bool(near))
    return Figure(
        f"search.recall.{id}",
        f"nearest {NEAREST} found, {what}",
        statistics.mean(found),
        "recall",
        statistics.mean(found),
        "comparing all",
    )
