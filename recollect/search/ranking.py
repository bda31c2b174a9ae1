"""The order of what a search found, and how relevant each of it is.

Two sides find candidates: words (BM25) and meaning (vectors). Each candidate is scored on both
sides, and once more with its own text: its best window of a few sentences, and neighbouring words
of the query that stand together in it. Each score is standardised over the candidates, so that a
side whose scores lie close together does not outvote one that tells candidates apart; the order is
that of their weighted sum. Relevance is another figure: it is made of what does not depend on the
other candidates, so that it means the same for every query.
"""

import math
import re
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from sys import intern
from typing import Self

from recollect.index import terms
from recollect.model import Parts

WINDOW = 300
"""Characters of a window: consecutive sentences are packed up to it."""
FREQUENT = 0.02
"""The share of all passages above which a short word such as "the" says nothing of relevance."""
LEAST_WINDOW = 75
"""A last window shorter than this joins the one before."""
TELLING_TOKENS = 60
"""By how many of its first words the language of a text is told."""
KEPT = 4_096
"""Texts that stay cut into windows and words, for the next queries that they answer: 15 MB."""
NEAR = 2
"""Places within which two neighbouring words of the query count as standing together."""
WORDS_WEIGHT = 1.0
WINDOW_WEIGHT = 0.6
PAIRS_WEIGHT = 0.4
CONVERSATION_WEIGHT = 0.4
NAME_WEIGHT = 6.0
"""What is called as the query stands before what holds all of its words: `notes.txt` before
`engine_notes.txt`."""
TOGETHER = 3
"""Passages of a conversation that speak for each of its passages: the best by words."""
MODEL_WEIGHTS = {"local:multilingual-e5-small-q4": 1.0, "local:all-MiniLM-L6-v2": 0.6}
"""How much the similarity of a model's vectors counts beside the words …"""
OTHER_MODEL_WEIGHT = 0.7
"""… and that of a model which is not named there."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of a logistic regression: log odds of answering, by similarity and share."""

    bias: float
    similarity: float
    share: float


# `python -m bench.relevance` learns them from SQuAD; docs/bench.md has what they say of questions
# that they were not learned from.
FITS = {
    "local:multilingual-e5-small-q4": Fit(-34.74, 38.36, 5.61),
    "local:all-MiniLM-L6-v2": Fit(-7.79, 5.43, 7.10),
}
OTHER_FIT = FITS["local:all-MiniLM-L6-v2"]
"""Of a model that is not named there: most models' cosines lie as these do."""
ONLY_WORDS = Fit(-5.64, 0.0, 8.03)
DIGITS = 6
"""of a relevance after the point: a threshold that is a score as it is shown lets that pass"""
RELEVANT = 0.5
"""The least relevance of what is called relevant: as likely as not."""
LIKENESS = math.log(0.6, 0.1)
"""A relevance of 0.1 is as much as a likeness of 0.6: what answers in other words often has no more
(docs/decisions/0055)."""
ONLY_WEAK = "Only weak matches: none of these is likely to answer the query."
JUDGE_WEIGHT = 5.0
"""A reranker's judgement counts so much times its correlation with the order of the search …"""
CHANCE_AGREEMENT = 0.3
"""… above this, which one that knows nothing often reaches by chance. One that knows nothing, or
the wrong thing, does not agree with the search, and moves nothing."""
MOST_JUDGED = 2.5
"""Bound of a standardised judgement: one passage far from all others must not decide alone."""
TELLING_PASSAGES = 20
"""Of fewer passages the correlation says less …"""
USUAL_AGREEMENT = 0.5
"""… and the more this takes its place, which is what a good reranker has."""
FEW = 4
"""Below so many candidates a mean and a deviation say little: scores count as they are."""
LOWEST, HIGHEST = -4.0, 6.0
"""Bounds of a standardised score: one candidate far from all others must not decide alone."""

# It begins with one set of characters, which `re` looks for three times as fast as for several.
_SENTENCE_END = re.compile(
    r"[.!?…。！？\n](?:(?<=[.!?…])\s++|(?<=[。！？])|(?<=\n)\n*+)"  # noqa: RUF001 full width
)


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a candidate: its text, points by words, similarity by meaning."""

    text: str
    points: float
    similarity: float | None
    conversation: str | None = None
    """which one it is a passage of"""
    called: bool = False
    """whether the query is a name of its document"""


@dataclass(frozen=True, slots=True)
class Standing:
    """`parts.order`: the higher, the better the candidate answers; compares within one search only.
    `relevance`: how likely it is that the candidate answers, 0 … 1; compares across searches."""

    parts: Parts
    relevance: float
    share: float
    """of the query's words in the best window of the text, each counted by its rarity, 0 … 1"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The words of a query that are looked for in the texts of candidates.

    `alternatives`: the terms under which a text may hold each word; `rarity`: what finding it is
    worth, its inverse document frequency, 0 where no text in reach holds it; `weights`: the same
    as far as it depends on the scope, for the order; `total`: the sum of `rarity` over all words of
    the query, with those that no text holds at their highest; `idle`: of each language, the words
    of the query that nearly all of its texts hold, and that say nothing of relevance there.
    """

    alternatives: Sequence[frozenset[str]]
    rarity: Sequence[float]
    weights: Sequence[float]
    total: float
    idle: Mapping[str, Set[int]]

    @classmethod
    def of(
        cls,
        words: Sequence[Sequence[str]],
        groups: Sequence[Sequence[int]],
        counted: Mapping[int, int],
        total: int,
        in_scope: Mapping[int, int] | None = None,
        *,
        quoted: Container[Sequence[str]] = (),
    ) -> Self:
        """`groups`: the numbers of each word's terms; `counted`: in how many of the `total` chunks
        a number stands; `in_scope`: in how many it would, were it as frequent as in the scope,
        where that is known; `quoted`: words of phrases, which are never idle."""

        def rarities(counted: Mapping[int, int]) -> list[float]:
            return [max(terms.idf([one], counted, total).values(), default=0.0) for one in groups]

        rarity, unknown = rarities(counted), math.log1p((total + 0.5) / 0.5)
        idle: dict[str, set[int]] = {}
        for number, (word, group) in enumerate(zip(words, groups, strict=True)):
            frequent = sum(counted.get(one, 0) for one in group) > FREQUENT * total
            for term in terms.stop_terms().intersection(word) if frequent else ():
                if word not in quoted:
                    idle.setdefault(term.partition(":")[0], set()).add(number)
        return cls(
            [frozenset(word) for word in words],
            rarity,
            rarity if in_scope is None else rarities(in_scope),
            sum(r or unknown for r in rarity),
            idle,
        )


def rank(wanted: Wanted, found: Sequence[Found], *, model: str) -> list[Standing]:
    """One standing for each candidate, in their order; `model` made the vectors."""
    if not found:
        return []
    texts = _Texts(wanted)
    read = [texts.read(one.text) for one in found]
    similarities = _filled([one.similarity for one in found])
    weight = MODEL_WEIGHTS.get(model, OTHER_MODEL_WEIGHT)
    sides = [
        (WORDS_WEIGHT, [one.points for one in found]),
        (weight, similarities),
        (WINDOW_WEIGHT, [one.points for one in read]),
        (PAIRS_WEIGHT, _pairs(read)),
    ]
    lifted = [[factor * score for score in _standardised(scores)] for factor, scores in sides]
    lifted.append([CONVERSATION_WEIGHT * score for score in _conversations(found)])
    lifted.append([NAME_WEIGHT * one.called for one in found])
    known = relevance(None, 1.0, model)  # of what is called so, whatever its text means
    return [
        Standing(
            Parts(*parts),
            max(relevance(one.similarity, seen.share, model), known * one.called),
            seen.share,
        )
        for one, seen, parts in zip(found, read, zip(*lifted, strict=True), strict=True)
    ]


def lifts(order: Sequence[float], judged: Sequence[float]) -> list[float]:
    """How far a reranker's scores lift the passages, on the scale of the `order` of the search.

    Both are standardised; by how much the judgement counts is measured by how well it goes with the
    order, so that a weak reranker does no harm (docs/search.md has what was compared).
    """
    deviation, ours = _deviation(order), _centred(order)
    theirs = [max(-MOST_JUDGED, min(MOST_JUDGED, score)) for score in _centred(_log_odds(judged))]
    agreement = sum(a * b for a, b in zip(ours, theirs, strict=True)) / max(len(ours), 1)
    known = min(1.0, len(ours) / TELLING_PASSAGES)
    agreement = known * agreement + (1 - known) * USUAL_AGREEMENT
    weight = JUDGE_WEIGHT * max(0.0, agreement - CHANCE_AGREEMENT) * (deviation or 1.0)
    return [weight * score for score in theirs]


def _log_odds(scores: Sequence[float]) -> Sequence[float]:
    """Probabilities as log odds, else what is near 0 would look all alike; others within -1 … 1,
    so that their squares are numbers."""
    if not all(0 <= score <= 1 for score in scores):
        largest = max(abs(score) for score in scores)
        return [score / largest for score in scores]
    kept = [min(max(score, 1e-6), 1 - 1e-6) for score in scores]
    return [math.log(score / (1 - score)) for score in kept]


def _deviation(scores: Sequence[float]) -> float:
    """0 where they are alike but for rounding."""
    if not scores:
        return 0.0
    mean = math.fsum(scores) / len(scores)
    found = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    return found if found > 1e-9 * max(1.0, abs(mean)) else 0.0


def _centred(scores: Sequence[float]) -> list[float]:
    """With mean 0 and deviation 1; all 0 where they are alike."""
    deviation = _deviation(scores)
    if not deviation:
        return [0.0] * len(scores)
    mean = math.fsum(scores) / len(scores)
    return [(score - mean) / deviation for score in scores]


def mean(parts: Sequence[Parts], count: int) -> Parts:
    """Of `count` searches; one that did not find the chunk lifts it by nothing."""
    names = ("words", "meaning", "window", "pairs", "conversation", "name")
    return Parts(*(sum(getattr(one, name) for one in parts) / count for name in names))


def relevance(similarity: float | None, share: float, model: str) -> float:
    """How likely it is that a text answers a query, 0 … 1, by what was learned of the model.

    `similarity`: of the vectors, None where there is none; `share`: see `Standing.share`.
    """
    if similarity is None:
        fit = ONLY_WORDS
        return _likely(fit.bias + fit.share * share)
    fit = FITS.get(model, OTHER_FIT)
    return _likely(fit.bias + fit.similarity * similarity + fit.share * share)


def likeness(relevance: float) -> float:
    """The relevance of a passage on the scale on which memories are compared with a query, see
    `finding.likeness`: callers ask both for 0.6 and more unless they say otherwise."""
    return round(relevance**LIKENESS, DIGITS)


def least_relevance(likeness: float) -> float:
    """That of all passages of at least this likeness, and perhaps of some of a little less."""
    return max(0.0, likeness - 0.1**DIGITS) ** (1 / LIKENESS)


def _likely(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def falling(scores: Sequence[float]) -> list[float]:
    """The nearest scores that never rise: neighbours that do are given their mean.

    Pool adjacent violators (Ayer et al., 1955). The order of results counts more than single
    scores, so that a reader never sees a better score below a worse one.
    """
    pools: list[tuple[float, int]] = []
    for score in scores:
        mean, size = score, 1
        while pools and pools[-1][0] < mean:
            other, others = pools.pop()
            mean = (mean * size + other * others) / (size + others)
            size += others
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


@dataclass(frozen=True, slots=True)
class _Read:
    """What a text holds of a query: the best window's points, the share of the query's words in
    its best window (each counted by its rarity, 0 … 1), and pairs of neighbouring words."""

    points: float
    share: float
    pairs: frozenset[tuple[int, int]]


class _Texts:
    """Reads texts for the words of one query. What a token is to it is found once a language."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._words: dict[str, list[int]] = {}
        for number, group in enumerate(wanted.alternatives):
            for term in group:
                self._words.setdefault(term, []).append(number)
        self._beginnings = terms.beginnings(wanted.alternatives)
        self._known: dict[str, tuple[set[str], dict[str, tuple[int, ...]]]] = {}
        """by language: tokens that were looked at, and those of them that hold words"""

    def read(self, text: str) -> _Read:
        best = share = 0.0
        pairs: set[tuple[int, int]] = set()
        if self._words:
            cut = _cut(text)
            held = self._held(cut)
            for length, tokens in cut.windows:
                places = [
                    (place, word)
                    for place, token in enumerate(tokens)
                    if token in held
                    for word in held[token]
                ]
                if places:
                    best = max(best, self._points(places, length))
                    share = max(share, self._share(places, cut.language))
                    pairs |= _neighbours(places)
        return _Read(best, share, frozenset(pairs))

    def _held(self, cut: "_Cut") -> Mapping[str, tuple[int, ...]]:
        """Which words of the query the tokens of a text hold; of those tokens that hold any."""
        seen, held = self._known.setdefault(cut.language, (set(), {}))
        new = set(chain.from_iterable(tokens for _, tokens in cut.windows)) - seen
        seen |= new
        held |= terms.held(new, cut.language, self._words, self._beginnings)
        return held

    def _points(self, places: Sequence[tuple[int, int]], length: int) -> float:
        counts: dict[int, int] = {}
        for _, word in places:
            counts[word] = counts.get(word, 0) + 1
        saturation = terms.K1 * (1 - terms.B + terms.B * length / WINDOW)
        return sum(
            self._wanted.weights[word] * count * (terms.K1 + 1) / (count + saturation)
            for word, count in counts.items()
        )

    def _share(self, places: Sequence[tuple[int, int]], language: str) -> float:
        rarity, idle = self._wanted.rarity, self._wanted.idle.get(language, frozenset())
        total = self._wanted.total - sum(rarity[word] for word in idle)
        held = sum(rarity[word] for word in {word for _, word in places} - idle)
        return min(1.0, held / total) if held else 0.0


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text in windows, each with the number of its characters and its tokens."""

    language: str
    windows: Sequence[tuple[int, Sequence[str]]]


@lru_cache(maxsize=KEPT)
def _cut(text: str) -> _Cut:
    found = [(len(window), [*map(intern, terms.tokens(window))]) for window in windows(text)]
    first = islice(chain.from_iterable(tokens for _, tokens in found), TELLING_TOKENS)
    return _Cut(terms.language(first), found)


def windows(text: str) -> list[str]:
    """Consecutive sentences, packed up to `WINDOW` characters; a longer one is alone."""
    packed: list[str] = []
    start = last = 0
    ends = [one.end() for one in _SENTENCE_END.finditer(text)] if len(text) > WINDOW else []
    for end in [*ends, len(text)]:
        if end - start > WINDOW and last > start:
            packed.append(text[start:last])
            start = last
        last = end
    rest = text[start:]
    if packed and len(rest) < LEAST_WINDOW:
        packed[-1] += rest
    elif rest:
        packed.append(rest)
    return packed


def _neighbours(places: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Pairs of words that follow each other in the query and stand near each other here."""
    pairs: set[tuple[int, int]] = set()
    for index, (at, word) in enumerate(places):
        for beside, other in places[index + 1 :]:
            if beside - at > NEAR:
                break
            if abs(word - other) == 1:
                pairs.add((min(word, other), max(word, other)))
    return pairs


def _pairs(read: Sequence[_Read]) -> list[float]:
    """Points for pairs: the fewer candidates hold one, the more it tells."""
    holding: dict[tuple[int, int], int] = {}
    for one in read:
        for pair in one.pairs:
            holding[pair] = holding.get(pair, 0) + 1
    n = len(read)
    worth = {pair: math.log1p((n - f + 0.5) / (f + 0.5)) for pair, f in holding.items()}
    return [sum(worth[pair] for pair in one.pairs) for one in read]


def _conversations(found: Sequence[Found]) -> list[float]:
    """How well the conversation of a passage fits by words, standardised; 0 where it is of none.

    Fewer than `FEW` beside others are 0, too: they would be lifted for being of a conversation.
    What a turn is about is often said in others, as findings on LoCoMo show
    (docs/decisions/0050-conversations-and-tags.md).
    """
    points: dict[str, list[float]] = {}
    for one in found:
        if one.conversation is not None:
            points.setdefault(one.conversation, []).append(one.points)
    fits = {name: sum(sorted(all, reverse=True)[:TOGETHER]) for name, all in points.items()}
    told = [fits[one.conversation] for one in found if one.conversation is not None]
    if len(told) < min(FEW, len(found)):
        return [0.0] * len(found)
    standardised = iter(_standardised(told))
    return [0.0 if one.conversation is None else next(standardised) for one in found]


def _filled(similarities: Sequence[float | None]) -> list[float]:
    """A candidate whose vector is still to be made counts as the least similar one."""
    known = [one for one in similarities if one is not None]
    least = min(known, default=0.0)
    return [least if one is None else one for one in similarities]


def _standardised(scores: Sequence[float]) -> list[float]:
    if len(scores) < FEW:
        highest = max(scores)
        return [score / highest if highest > 0 else 0.0 for score in scores]
    return [max(LOWEST, min(HIGHEST, score)) for score in _centred(scores)]
