"""Learn how likely it is that a query means a memory, from labelled questions about facts.

`python -m bench.likeness [--model NAME]` reads `likeness.jsonl`: tags of eight facts, with
questions that some of them answer, questions about the same person or matter that none answers, and
queries that mean all of them. Each is asked over every fact alone, over its own tag, over three
tags in one, and over all. Half of the tags are learned from and the others tried, and the other way
round. It prints what was tried: which share of the memories meant would be forgotten, how many
others with each query, and how many queries that mean none would have one forgotten. The
coefficients, which stand in `recollect/memories/forgetting.py`, are learned from all, and tried on
`likeness_tried.jsonl`, from which nothing is learned.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.relevance import fit
from recollect.index import terms
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.local_model import DEFAULT, MODELS, local_name
from recollect.memories.finding import likeness
from recollect.memories.forgetting import LEAST, apart

SET = Path(__file__).with_suffix(".jsonl")
TRIED = SET.with_name("likeness_tried.jsonl")
"""Tags of 14 facts by another author, who had not seen the first: nothing is learned from them."""
ORG = "bench"
IN_ONE = (0, 1, 3, 12)
"""how many tags of the set stand in the one that is asked; 0: a single fact of its own"""
FORMER = 0.6, 0.06
"""the rule before: so like at least, and at most so much below the likest"""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query over the memories of a tag, with a row for each memory."""

    tag: int
    tags: int
    kind: str
    means: NDArray[np.bool_]
    words: Array
    """share, and share of the rare"""
    cosines: Array

    def features(self, *, words_only: bool) -> Array:
        ones = np.ones((len(self.means), 1))
        more = [] if words_only else [self.cosines, apart(self.cosines)]
        return np.column_stack([ones, self.words, *more])


def read(embedder: Embedder, file: Path) -> Iterator[Asked]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    vectors = [embedder.embed(row["facts"]) for row in rows]
    held = [[set(terms.weigh(ORG, fact)) for fact in row["facts"]] for row in rows]
    for number, row in enumerate(rows):
        queries = [("answered", text, set(meant)) for text, meant in row["asked"]]
        queries += [("not answered", text, set[int]()) for text in row["none"]]
        queries += [("about all", text, set(range(len(row["facts"])))) for text in row["all"]]
        asked = embedder.embed([text for _, text, _ in queries], query=True)
        for (kind, text, meant), vector in zip(queries, asked, strict=True):
            groups = terms.query_terms(ORG, text)
            for tags in IN_ONE:
                places = [
                    ((number + other) % len(rows), n)
                    for other in range(tags or 1)
                    for n in range(len(row["facts"]))
                ]
                for some in [[one] for one in places] if not tags else [places]:
                    texts = [held[place][n] for place, n in some]
                    counted = {n: sum(n in one for one in texts) for group in groups for n in group}
                    rarity = terms.rarities(groups, counted, len(texts))
                    shares = [
                        (terms.share(groups, one), terms.share(groups, one, rarity))
                        for one in texts
                    ]
                    yield Asked(
                        number,
                        tags,
                        kind,
                        np.array([place == number and n in meant for place, n in some]),
                        np.array(shares),
                        np.array([vectors[place][n] @ vector for place, n in some]),
                    )


def learned(some: Sequence[Asked], *, words_only: bool) -> Array:
    """Each query counts the same, over however many memories it is asked."""
    size = max(len(one.means) for one in some if one.tags == 1)
    return fit(
        np.concatenate([one.features(words_only=words_only) for one in some]),
        np.concatenate([one.means for one in some]).astype(float),
        np.concatenate([np.full(len(one.means), min(1, size / len(one.means))) for one in some]),
    )


def tell(name: str, asked: Sequence[Asked], forgets: Callable[[Asked], NDArray[np.bool_]]) -> None:
    print(name)
    for tags in IN_ONE:
        parts: list[str] = []
        for kind in ("answered", "about all", "not answered"):
            some = [
                (forgets(one), one.means) for one in asked if (one.tags, one.kind) == (tags, kind)
            ]
            if not some:
                continue
            wrong = np.mean([np.sum(gone & ~meant) for gone, meant in some])
            if kind == "not answered":
                share = np.mean([gone.any() for gone, _ in some])
                parts.append(f"{kind}: {share:.2f} lose one, {wrong:.2f} each")
            else:
                found = sum(np.sum(gone & meant) for gone, meant in some)
                share = found / sum(np.sum(meant) for _, meant in some)
                parts.append(f"{kind}: {share:.2f} found, {wrong:.2f} others each")
        print(f"  {tags} in one: {'; '.join(parts)}")


def likely(halves: Sequence[Array], one: Asked, *, words_only: bool) -> NDArray[np.bool_]:
    points = one.features(words_only=words_only) @ halves[one.tag % 2]
    return 1 / (1 + np.exp(-points)) >= LEAST


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.likeness", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default=DEFAULT)
    model = parser.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        choice = EmbedderChoice("local", model=model)
        embedder = open_embedder(choice, cache=Path(folder), threads=2)
        assert embedder is not None
        asked, others = list(read(embedder, SET)), list(read(embedder, TRIED))

    def before(one: Asked) -> NDArray[np.bool_]:
        pairs = zip(one.cosines.tolist(), one.words[:, 0].tolist(), strict=True)
        like = np.array([likeness(cosine, share, local_name(model)) for cosine, share in pairs])
        return (like >= FORMER[0]) & (like >= like.max() - FORMER[1])

    tell("the likest and what is near them", asked, before)
    for words_only in (False, True):
        halves = [
            learned([one for one in asked if one.tag % 2 != half], words_only=words_only)
            for half in (0, 1)
        ]

        tell(
            "words only" if words_only else "words and meaning",
            asked,
            partial(likely, halves, words_only=words_only),
        )
        whole = learned(asked, words_only=words_only)
        print(f"  {tuple(whole.round(2).tolist())}")
        tell("  of another author", others, partial(likely, [whole, whole], words_only=words_only))


if __name__ == "__main__":
    main()
