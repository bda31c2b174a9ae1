"""Learn what relevance a hit has, from questions with and without an answer among the documents.

`python -m bench.relevance FILE… [--without FILE…] [--most N]` reads sets in the format of SQuAD
(see `bench.answers`). Every third paragraph is left out of the documents, so that what is asked
about it has no answer. The first hits of each question are examples: their features are the cosine
of the vectors and the share of the question's words (`recollect.search.ranking`), and they
are relevant if they hold the answer. A logistic regression is fitted to the questions about two
thirds of the articles and tried on the others; the coefficients that it prints stand in
`recollect/search/ranking.py`.

`--made` learns from the first hit of each question alone, and asks made questions, too: on other
subjects, and of made-up words. Half of them are learned from. Questions whose paragraph was left
out and whose neighbours stayed count less than these, since few questions in life miss so narrowly:
by the greatest of `WEIGHTS` with which `ENOUGH` of the questions that have an answer get a relevant
hit. What was not learned from is halved by a hash of each question: the weight is chosen on one
half, and the other shows how good it is; both are printed. `--without` names sets whose paragraphs
and questions must not be learned from.

`--in-use` learns nothing: it says how many questions of each kind get a hit that the service as it
is calls relevant.
"""

import argparse
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.answers import Question, index, load
from bench.fill import default_tenant, open_database
from bench.ground import Ground
from recollect.db import Database
from recollect.inference.local_model import DEFAULT, MODELS
from recollect.model import DocumentId, HitChunk, Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

HIDDEN = 3
"""of so many paragraphs, one is not among the documents"""
LOOKED_AT = 3
"""hits of each question that are learned from"""
WEIGHTS = (1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.05)
"""with `--made`, what a question may count whose own paragraph alone is missing …"""
ENOUGH = 0.9
"""… and how many of the questions that have an answer shall get a relevant hit"""
THINGS = (
    "the espresso machine", "my sourdough starter", "the bicycle brakes", "a wool sweater",
    "the dishwasher filter", "our holiday rota", "the office printer", "a leaking tap",
    "my tomato seedlings", "the guest wifi", "a kitten's vaccination", "the ukulele strings",
    "a crochet blanket", "the parental leave form", "an expense claim", "the car's tyre pressure",
    "a sleeping bag", "the garage door opener", "my contact lenses", "the yoga class",
)  # fmt: skip
FORMS = (
    "How often should I clean {}?", "Who do I ask about {} on a Friday?",
    "What does it cost to replace {}?", "Where is the manual for {} kept?",
    "Why does {} smell of vinegar?", "Can {} be sent back after 14 days?",
    "Which colour goes best with {}?", "When was {} last checked?",
    "How do I stop {} from making noise at night?", "Is {} allowed on the night train?",
)  # fmt: skip
STEPS = 50
RIDGE = 1e-3

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    asked: int
    text: str
    """of the question"""
    first: bool
    hidden: bool
    similarity: float
    share: float
    answers: bool
    score: float
    """what the service as it is says"""
    made: str = ""
    """with which questions it came, if not with those of a set"""

    @property
    def narrow(self) -> bool:
        """Whether the question's own paragraph is missing, and its neighbours are there."""
        return self.hidden and not self.made

    @property
    def shown(self) -> bool:
        """Of the half that shows how good the choice was, not of the one that it was made on."""
        return bool(zlib.crc32(self.text.encode()) & 1)


def made() -> dict[str, list[str]]:
    """Questions that nothing in the sets answers, 200 of each kind; the same each time."""
    choose = random.Random(11)

    def word(offset: int) -> str:
        letters = range(offset, offset + choose.randint(3, 9))
        return "".join(
            choose.choice("bcdfghjklmnpqrstvwxz" if n % 3 else "aeiouy") for n in letters
        )

    return {
        "on other subjects": [form.format(thing) for thing in THINGS for form in FORMS],
        "of made-up words": [
            " ".join(word(n) for n in range(choose.randint(1, 6))) for _ in range(200)
        ],
    }


def examples(
    ground: Ground,
    paragraphs: Sequence[str],
    questions: Sequence[Question],
    *,
    words_only: bool,
    others: bool,
) -> list[Example]:
    shown = [number for number in range(len(paragraphs)) if number % HIDDEN]
    with open_database(ground.new_database()) as db:
        tenant = default_tenant(db)
        ids = dict(
            zip(shown, index(ground, db, tenant, [paragraphs[n] for n in shown]), strict=True)
        )
        found: list[Example] = []
        for number, question in enumerate(questions):
            wanted = ids.get(question.paragraph)
            for place, (id, one) in enumerate(_hits(ground, db, tenant, question, words_only)):
                answers = id == wanted and any(answer in one.text for answer in question.answers)
                found.append(
                    Example(
                        number,
                        question.text,
                        place == 0,
                        wanted is None,
                        one.similarity or 0.0,
                        one.share,
                        answers,
                        one.score,
                    )
                )
        if others:
            found += _of_made(ground, db, tenant, words_only=words_only)
        return found


def _of_made(ground: Ground, db: Database, tenant: Tenant, *, words_only: bool) -> list[Example]:
    return [
        Example(
            -1 - number,
            text,
            place == 0,
            True,
            one.similarity or 0.0,
            one.share,
            False,
            one.score,
            kind,
        )
        for kind, texts in made().items()
        for number, text in enumerate(texts)
        for place, (_, one) in enumerate(
            _hits(ground, db, tenant, Question(text, 0, []), words_only)
        )
    ]


def _hits(
    ground: Ground, db: Database, tenant: Tenant, question: Question, words_only: bool
) -> list[tuple[DocumentId, HitChunk]]:
    [vector] = ground.embedder.embed([question.text], query=True)
    with db.begin() as tx:
        hits = hybrid.search(tx, tenant, Query(question.text, None if words_only else vector))
    return [(hit.document.id, hit.chunks[0]) for hit in hits][:LOOKED_AT]


def fit(features: Array, relevant: Array, counts: Array) -> Array:
    """Coefficients of a logistic regression, by Newton's method."""
    weights = np.zeros(features.shape[1])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-features @ weights))
        slope = features.T @ (counts * (relevant - likely)) - RIDGE * weights
        bend = (features * (counts * likely * (1 - likely))[:, None]).T @ features
        weights += np.linalg.solve(bend + RIDGE * np.eye(len(weights)), slope)
    return weights


def tell(examples: Sequence[Example], held_out: set[int], *, words_only: bool) -> None:
    """Learn, and print the coefficients and what they say of what was not learned from."""
    others = any(one.made for one in examples)
    learned = [one for one in examples if one.asked not in held_out and (one.first or not others)]
    tried = [one for one in examples if one.asked in held_out]
    halves = {
        "chosen on": [one for one in tried if not one.shown],
        "shown on": [one for one in tried if one.shown],
    }
    weight, weights = _chosen(learned, halves["chosen on"], others=others, words_only=words_only)
    print(
        f"{'words only' if words_only else 'both'}: Fit({', '.join(f'{w:.2f}' for w in weights)}),"
        f" a question whose own paragraph is missing counts {weight:g}"
    )
    for half, some in halves.items():
        print(f" the half that the weight was {half}")
        _tell_half(some, _likely(some, weights, words_only=words_only), others=others)


def _chosen(
    learned: Sequence[Example], tried: Sequence[Example], *, others: bool, words_only: bool
) -> tuple[float, Array]:
    """The greatest weight that leaves enough relevant hits, or the least, and what it teaches."""
    weight, weights = 1.0, np.zeros(0)
    for weight in WEIGHTS if others else (1.0,):
        weights = fit(
            _features(learned, words_only=words_only),
            np.array([float(one.answers) for one in learned]),
            _counts(learned, weight),
        )
        likely = _likely(tried, weights, words_only=words_only)
        if relevant(tried, likely, hidden=False, kind="")[1] >= ENOUGH:
            break
    return weight, weights


def _counts(learned: Sequence[Example], weight: float) -> Array:
    """What narrow misses lose by their weight, the made questions gain."""
    narrow = sum(one.narrow for one in learned)
    made = sum(bool(one.made) for one in learned)
    gained = narrow * (1 - weight) / made if made else 1.0
    return np.array(
        [gained if one.made else weight if one.narrow and made else 1.0 for one in learned]
    )


def _features(some: Sequence[Example], *, words_only: bool) -> Array:
    similar = [0.0 if words_only else one.similarity for one in some]
    return np.array([[1.0, s, one.share] for s, one in zip(similar, some, strict=True)])


def _likely(some: Sequence[Example], weights: Array, *, words_only: bool) -> Array:
    return 1 / (1 + np.exp(-_features(some, words_only=words_only) @ weights))


def relevant(
    some: Sequence[Example], likely: Iterable[float], *, hidden: bool, kind: str
) -> tuple[int, float]:
    """How many questions there are of a kind, and the share of them that have a relevant hit."""
    best: dict[int, float] = {}
    for one, p in zip(some, likely, strict=True):
        if one.hidden == hidden and one.made == kind:
            best[one.asked] = max(p, best.get(one.asked, 0.0))
    return len(best), float(np.mean([p >= 0.5 for p in best.values()])) if best else 0.0


def tell_in_use(found: Sequence[Example], *, words_only: bool, others: bool) -> None:
    print(f"{'words only' if words_only else 'both'}: as the service is")
    _tell_half(found, np.array([one.score for one in found]), others=others)


def _tell_half(tried: Sequence[Example], likely: Array, *, others: bool) -> None:
    for low in np.arange(0, 1, 0.1):
        some = [one.answers for one, p in zip(tried, likely, strict=True) if low <= p < low + 0.1]
        if some:
            held = f"{np.mean(some):.2f} of {len(some)} hold the answer"
            print(f"  {low:.1f} to {low + 0.1:.1f}: {held}")
    kinds = ((False, "", "with an answer"), (True, "", "without"))
    kinds += tuple((True, kind, kind) for kind in made() if others)
    for hidden, kind, name in kinds:
        asked, share = relevant(tried, likely, hidden=hidden, kind=kind)
        print(f"  {asked} questions {name}: {share:.3f} have a relevant hit")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relevance", description=__doc__)
    parser.add_argument("sets", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--without", type=Path, nargs="*", default=[], metavar="FILE")
    parser.add_argument("--most", type=int, default=3_000, metavar="N", help="questions at most")
    parser.add_argument("--made", action="store_true", help="ask made questions, too")
    parser.add_argument("--in-use", action="store_true", help="learn nothing; say what holds now")
    parser.add_argument("--model", choices=MODELS, default=DEFAULT)
    given = parser.parse_args()
    barred = {text for path in given.without for text in load(path)[0]}
    paragraphs: list[str] = []
    questions: list[Question] = []
    for path in given.sets:
        some, asked = load(path)
        kept = {
            n: len(paragraphs) + k
            for k, n in enumerate(n for n, t in enumerate(some) if t not in barred)
        }
        paragraphs += [some[n] for n in kept]
        questions += [
            Question(one.text, kept[one.paragraph], one.answers)
            for one in asked
            if one.paragraph in kept and one.answers
        ]
    questions = questions[:: max(1, len(questions) // given.most)]
    held_out = {n for n, one in enumerate(questions) if one.paragraph * 3 // len(paragraphs) == 2}
    held_out |= set(range(-1, -1_000, -2))  # of the made ones
    with Ground(model=given.model) as ground:
        for words_only in (False, True):
            found = examples(
                ground, paragraphs, questions, words_only=words_only, others=given.made
            )
            if given.in_use:
                tell_in_use(found, words_only=words_only, others=given.made)
            else:
                tell(found, held_out, words_only=words_only)


if __name__ == "__main__":
    main()
