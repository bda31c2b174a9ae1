"""How good search is: sets of questions with a known answer, asked of a real service over HTTP.

A service with default settings and without a language model is started; the documents of each set
are added to an organisation of their own, as a user adds them. Each question is asked by
`POST /v3/search`, twice: with nothing but the question, which gives `rescored`, the order that
users see; and with `limit` 100, whose passages carry their points by words (`lexical`) and by
meaning (`similarity`), so that the earlier steps can be told from that answer. `POST /v4/search`
gives the order of passages, whichever document they are of. The earlier steps:

- `words`: the first 40 passages by words alone; `vectors`: by meaning alone
- `plain`: reciprocal rank fusion of the two lists, which counts both alike (what this service did
  before)
- `weighted`: the sum of the standardised scores of both, with the weights of `search.ranking`

The second answer shows the hundred best passages, at most ten of a document, and the best one of
each of 100 documents, so the steps before the last are short of a passage now and then.

Measures: hit@k, the share of questions whose answer, in whole, is shown among the passages of the
first k documents, of which at most 8,000 characters count, document by document, so that one of ten
passages leaves no room for others; answer@k, the share whose answer is within the first k passages
(which the study that set the weights counted); nDCG@10, MRR@10 and recall@10 of
documents; turns@k, the mean share of the wanted turns of a conversation among the first k passages.
`relevant` is the share of questions whose first passage is marked relevant (a score from 0.5 on);
for nonsense and unrelated questions it should be small.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from bench import sets
from bench.figures import Figure
from bench.fill import new_tenant, open_database
from bench.ground import Client, Ground, Service, until
from bench.sets import Absent, Question, Set, Wanted
from recollect.index import vector_index
from recollect.orgs import orgs
from recollect.search import ranking

SIDE = 40
"""passages that each side of a step brings: as many as the service's own sides do"""
ASKED_FOR = 100
"""documents of the answer that shows the parts"""
DOCUMENTS = 10
"""that a default answer shows"""
PASSAGES = 15
"""that count where passages do"""
SHOWN = 8_000
"""characters of passages that count"""
RANK = 60
"""the constant of reciprocal rank fusion, as its authors chose it"""
RESCORED = "rescored"
ONE_BY_ONE = "one by one"
"""the same as passages in one list"""
STEPS = ("words", "vectors", "plain", "weighted", RESCORED)


@dataclass(frozen=True, slots=True)
class Size:
    questions: int
    """of each set at most, evenly from all"""
    documents: int
    """of each public set at most, its first"""
    passages: int
    asked: int
    """passages and questions of each kind of the set that is made of texts at hand"""
    judged: int
    """nonsense questions, and as many unrelated ones"""


FULL = Size(questions=300, documents=10_000, passages=400, asked=100, judged=200)
QUICK = Size(questions=100, documents=400, passages=100, asked=40, judged=60)
TINY = Size(questions=3, documents=20, passages=4, asked=2, judged=2)


@dataclass(frozen=True)
class Passage:
    document: str
    content: str
    relevant: bool
    lexical: float = 0.0
    similarity: float = 0.0

    @cached_property
    def text(self) -> str:
        return " ".join(self.content.split())


Ranked = Sequence[Passage]
"""the best first"""


def measure(
    ground: Ground,
    size: Size,
    data: Path | None = None,
    only: Sequence[str] = (),
    models: Sequence[str] = (),
    questions: int | None = None,
) -> Iterator[Figure]:
    """`data`: the folder of the public sets; `only`: names of sets; `models`: values of
    `RECOLLECT_EMBEDDER_MODEL`, each measured beside the default; `questions`: of each set at most,
    if not as many as `size` has."""
    size = size if questions is None else replace(size, questions=questions)
    wanted = list(_wanted(size, data, only))
    for model in (None, *models):
        named = {} if model is None else {"embedder_model": model}
        with ground.serving(None, **named) as service:
            yield from _of_model(service, wanted, size, model)


def _wanted(size: Size, data: Path | None, only: Sequence[str]) -> Iterator[Set]:
    for one in chain(sets.made(size.passages, size.asked), sets.public(data)):
        if only and one.name not in only:
            continue
        if isinstance(one, Absent):
            where = data or "no --data FOLDER"
            print(f"{one.name}: not measured, {one.missing} is absent ({where})", file=sys.stderr)
        else:
            yield one


@dataclass(frozen=True, slots=True)
class Loaded:
    """An organisation that holds the documents of a corpus."""

    client: Client
    ids: Sequence[str]
    model: str
    """that made the vectors"""


def _of_model(
    service: Service, wanted: Sequence[Set], size: Size, model: str | None
) -> Iterator[Figure]:
    loaded: dict[str, Loaded] = {}
    for one in wanted:
        if one.corpus not in loaded:
            loaded[one.corpus] = load(service, one, size)
        yield from _figures(loaded[one.corpus], one, size, f"@{model}" if model else "")


def load(service: Service, one: Set, size: Size) -> Loaded:
    with open_database(service.database_url) as db:
        tenant = new_tenant(db, one.corpus)
        with db.begin() as tx:
            client = Client(service.port, orgs.create_key(tx, tenant.id)[1])
            index = vector_index.read(tx)
    ids: list[str] = [
        client.send("POST", source.path, source.body)["id"]
        for source in one.documents[: size.documents]
    ]
    until(client.drained, within=7_200)
    return Loaded(client, ids, index.used.name if index else "")


def _chosen(one: Set, size: Size, documents: int) -> list[Question]:
    """Evenly from all that ask for one of the first `documents`."""
    found: list[Question] = []
    for question in one.questions:
        wanted = [some for some in question.wanted if some.document < documents]
        if wanted:
            found.append(replace(question, wanted=wanted))
    return found[:: max(1, -(-len(found) // size.questions))]


def _figures(loaded: Loaded, one: Set, size: Size, suffix: str) -> Iterator[Figure]:
    asked = _chosen(one, size, len(loaded.ids))
    answers = [(question, ask(loaded, question)) for question in asked]
    for name in one.measures:
        measured = MEASURES[name]
        orders = {step: step for step in STEPS}
        if name in BY_PASSAGES:
            orders[RESCORED] = ONE_BY_ONE
        values = {
            step: statistics.mean(measured(found[order], q, loaded.ids) for q, found in answers)
            for step, order in orders.items()
        }
        single = max(values["words"], values["vectors"], 1e-9)
        for step, value in values.items():
            yield Figure(
                f"quality.{one.name}.{name}.{step}{suffix}",
                f"{len(asked)} questions, {step}",
                value,
                UNITS[name],
                value / single,
                "best single side",
            )
    if one.judged:
        for kind, some in (
            ("answerable", [found[RESCORED] for _, found in answers]),
            ("nonsense", _order_of_service(loaded, sets.nonsense(size.judged))),
            ("unrelated", _order_of_service(loaded, sets.unrelated(size.judged))),
        ):
            yield Figure(
                f"quality.{one.name}.relevant.{kind}{suffix}",
                f"{len(some)} {kind} questions, those with a hit that is marked relevant",
                statistics.mean(any(p.relevant for p in ranked) for ranked in some),
                "share",
            )


def _order_of_service(loaded: Loaded, asked: Sequence[str]) -> list[Ranked]:
    return [_search(loaded.client, {"q": text}) for text in asked]


def ask(loaded: Loaded, question: Question) -> dict[str, Ranked]:
    """What each step finds."""
    body: dict[str, Any] = {"q": question.text}
    if question.tag is not None:
        body["containerTags"] = [question.tag]
    parts = _search(loaded.client, {**body, "limit": ASKED_FOR})
    words = sorted((p for p in parts if p.lexical > 0), key=lambda p: -p.lexical)[:SIDE]
    vectors = sorted(parts, key=lambda p: -p.similarity)[:SIDE]
    weight = ranking.MODEL_WEIGHTS.get(loaded.model, ranking.OTHER_MODEL_WEIGHT)
    return {
        "words": words,
        "vectors": vectors,
        "plain": _plain(words, vectors),
        "weighted": _weighted(words, vectors, weight),
        RESCORED: _search(loaded.client, body),
        ONE_BY_ONE: _one_by_one(loaded.client, body),
    }


def _one_by_one(client: Client, body: Mapping[str, Any]) -> Ranked:
    wanted = {**body, "searchMode": "documents", "threshold": 0, "limit": PASSAGES}
    return [
        Passage(one["documents"][0]["id"], one["chunk"], one["similarity"] >= ranking.RELEVANT)
        for one in client.send("POST", "/v4/search", wanted)["results"]
    ]


def _search(client: Client, body: Mapping[str, Any]) -> Ranked:
    found = [
        (
            -chunk["score"],
            nth,
            Passage(
                result["documentId"],
                chunk["content"],
                chunk["isRelevant"],
                chunk["lexical"],
                chunk["similarity"] or 0.0,
            ),
        )
        for result in client.send("POST", "/v3/search", body)["results"]
        for nth, chunk in enumerate(result["chunks"])
    ]
    # Neighbours in the order may share a score: then each document's best one comes first.
    return [passage for *_, passage in sorted(found, key=lambda one: one[:2])]


def _plain(words: Ranked, vectors: Ranked) -> Ranked:
    points: dict[Passage, float] = {}
    for side in (words, vectors):
        for place, passage in enumerate(side, 1):
            points[passage] = points.get(passage, 0.0) + 1 / (RANK + place)
    return sorted(points, key=lambda p: -points[p])


def _weighted(words: Ranked, vectors: Ranked, weight: float) -> Ranked:
    both = list(dict.fromkeys((*words, *vectors)))
    sides = (
        (ranking.WORDS_WEIGHT, _standardised([p.lexical for p in both])),
        (weight, _standardised([p.similarity for p in both])),
    )
    order = {
        passage: sum(factor * scores[n] for factor, scores in sides)
        for n, passage in enumerate(both)
    }
    return sorted(both, key=lambda p: -order[p])


def _standardised(scores: Sequence[float]) -> list[float]:
    mean, deviation = statistics.fmean(scores or [0]), statistics.pstdev(scores or [0])
    return [(score - mean) / deviation if deviation else 0.0 for score in scores]


def _documents(ranked: Ranked) -> list[list[Passage]]:
    """The first documents, in the order of their best passage."""
    found: dict[str, list[Passage]] = {}
    for passage in ranked:
        found.setdefault(passage.document, []).append(passage)
    return list(found.values())[:DOCUMENTS]


def _holds(passage: Passage, text: str, wanted: Wanted, ids: Sequence[str]) -> bool:
    return ids[wanted.document] == passage.document and (
        not wanted.texts or any(one in text for one in wanted.texts)
    )


def _hit(ranked: Ranked, question: Question, ids: Sequence[str], first: int) -> float:
    left = SHOWN
    for passage in chain.from_iterable(_documents(ranked)[:first]):
        shown, left = passage.content[:left], max(0, left - len(passage.content))
        if any(_holds(passage, shown, wanted, ids) for wanted in question.wanted):
            return 1.0
    return 0.0


def _answered(ranked: Ranked, question: Question, ids: Sequence[str], first: int) -> float:
    """Whether one of the first passages holds the answer, of whichever document they are."""
    return float(
        any(
            _holds(passage, passage.content, wanted, ids)
            for passage in ranked[:first]
            for wanted in question.wanted
        )
    )


def _turns(ranked: Ranked, question: Question, ids: Sequence[str], first: int) -> float:
    return statistics.mean(
        any(_holds(passage, passage.text, wanted, ids) for passage in ranked[:first])
        for wanted in question.wanted
    )


def _places(ranked: Ranked, question: Question, ids: Sequence[str]) -> list[int]:
    """Of wanted documents, from 1."""
    wanted = {ids[one.document] for one in question.wanted}
    return [n for n, some in enumerate(_documents(ranked), 1) if some[0].document in wanted]


def _ndcg(ranked: Ranked, question: Question, ids: Sequence[str]) -> float:
    wanted = len({one.document for one in question.wanted})
    best = sum(1 / math.log2(place + 1) for place in range(1, min(wanted, DOCUMENTS) + 1))
    return sum(1 / math.log2(place + 1) for place in _places(ranked, question, ids)) / best


def _mrr(ranked: Ranked, question: Question, ids: Sequence[str]) -> float:
    return max((1 / place for place in _places(ranked, question, ids)), default=0.0)


def _recall(ranked: Ranked, question: Question, ids: Sequence[str]) -> float:
    return float(bool(_places(ranked, question, ids)))


MEASURES: Mapping[str, Callable[[Ranked, Question, Sequence[str]], float]] = {
    "hit1": lambda ranked, question, ids: _hit(ranked, question, ids, 1),
    "hit5": lambda ranked, question, ids: _hit(ranked, question, ids, 5),
    "answer1": lambda ranked, question, ids: _answered(ranked, question, ids, 1),
    "answer5": lambda ranked, question, ids: _answered(ranked, question, ids, 5),
    "turns5": lambda ranked, question, ids: _turns(ranked, question, ids, 5),
    "turns15": lambda ranked, question, ids: _turns(ranked, question, ids, 15),
    "ndcg10": _ndcg,
    "mrr10": _mrr,
    "recall10": _recall,
}
BY_PASSAGES = ("answer1", "answer5", "turns5", "turns15")
UNITS = {
    "hit1": "hit@1",
    "hit5": "hit@5",
    "answer1": "answer@1",
    "answer5": "answer@5",
    "turns5": "turns@5",
    "turns15": "turns@15",
    "ndcg10": "nDCG@10",
    "mrr10": "MRR@10",
    "recall10": "recall@10",
}
