"""Forgetting what a query means: the memories of a tag, looked at before they go."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recollect.app import App
from recollect.db import Tx
from recollect.index import vector_index
from recollect.memories import finding, memories, reading
from recollect.memories.finding import Compared, FoundMemory, NamedStanding
from recollect.memories.records import Memory, MemoryQuery
from recollect.model import Tenant

LEAST = 0.5
"""As likely as not, the query means the memory."""
NEIGHBOURS = 7
"""The nearest others that a memory has to stand out from: about one person, all are near."""
FITS: Mapping[str, Sequence[float]] = {
    "local:multilingual-e5-small-q4": (-17.22, 0.30, 3.94, 18.56, 22.28),
    "local:all-MiniLM-L6-v2": (-2.93, 2.41, 2.72, 0.44, 7.19),
}
"""A constant, and coefficients of the share of the words, of the rare ones, of the cosine, and of
how far it stands out; from `bench.likeness`."""
OTHER_FIT = FITS["local:all-MiniLM-L6-v2"]
WORDS_FIT = (-3.56, 4.72, 1.79)
"""without vectors: a constant, the share of the words, and that of the rare ones"""


def matching(
    app: App, tenant: Tenant, tag: str, query: str, *, most: int, threshold: float = LEAST
) -> tuple[list[FoundMemory], int]:
    """Live memories of the tag that the query means, the most likely first; before all others those
    whose text is the query itself, but for case and spaces. The first of them, and how many.

    `similarity` is how likely it is that the query means the memory (`chances`).
    """
    vector = None if app.embedder is None else app.embedder.embed([query], query=True)[0]
    with app.db.begin() as tx:
        same = reading.saying(tx, tenant, tag, query)
        standings = finding.every(tx, tenant, query, vector, MemoryQuery(any_of=[tag]))
    likely = {one.id: 1.0 for one in same}
    for one, chance in zip(
        standings, chances(standings, vector_index.made_by(vector)), strict=True
    ):
        if chance >= threshold:
            likely.setdefault(one.id, chance)
    first = [one.id for one in same]
    rest = sorted(likely.keys() - {*first}, key=lambda id: (-likely[id], id))
    shown = [*first, *rest][:most]
    with app.db.begin() as tx:
        read = {one.id: one for one in reading.named(tx, tenant, tag, shown)}
    # One that was corrected meanwhile says something else now.
    found = [FoundMemory(read[id], likely[id]) for id in shown if id in read]
    return found, len(likely) - len(shown) + len(found)


def chances(compared: Sequence[Compared | NamedStanding], model: str) -> list[float]:
    """How likely it is, 0 … 1, that a query means each of the memories that it was held against.

    A cosine alone is not enough: to a question about a person, all facts about that person are
    near. So it counts how far one stands out from the nearest others, and which share of the
    query's words it holds, the rare ones for more. `bench.likeness` fits and measures this.
    """
    words = np.array([[one.share, one.rare_share] for one in compared]).reshape(-1, 2)
    without = np.array([one.cosine is None for one in compared], bool)
    cosines = np.array([one.cosine or 0.0 for one in compared])
    fit, worded = np.array(FITS.get(model, OTHER_FIT)), np.array(WORDS_FIT)
    both: NDArray[np.float64] = np.column_stack([words, cosines, apart(cosines)]) @ fit[1:] + fit[0]
    points = np.where(without, words @ worded[1:] + worded[0], both)
    # As they are shown: a threshold that was read off an answer lets that memory pass.
    return [round(1 / (1 + math.exp(-one)), 6) for one in points.tolist()]


def apart(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each memory's cosine is above the mean of the highest others; 0 if there is no
    other."""
    if len(cosines) < 2:
        return np.zeros(len(cosines))
    order = np.argsort(-cosines, kind="stable")
    best = cosines[order[: NEIGHBOURS + 1]]
    found = cosines - best[:NEIGHBOURS].mean()
    for place, number in enumerate(order[: NEIGHBOURS + 1]):
        found[number] = cosines[number] - np.delete(best, place).mean()
    return found


def forget(
    app: App, tenant: Tenant, tag: str, found: Sequence[FoundMemory], reason: str | None, batch: str
) -> list[Memory]:
    """Forget these memories. A memory that was corrected since it was found stays, because it says
    something else now. Returns those that were forgotten."""
    ids = [one.memory.id for one in found]

    def write(tx: Tx) -> list[Memory]:
        memories.hold(tx, tenant, tag)
        still = {one.id for one in reading.named(tx, tenant, tag, ids)}
        return memories.forget_these(
            tx, tenant, tag, [id for id in ids if id in still], reason, batch
        )

    return app.db.write(write)
