"""Passages that say what a better one says are shown once, with where else it stands.

A text is its runs of three words, folded (Broder, "On the resemblance and containment of
documents", 1997). It is left out where a better passage holds most of its runs, all of those with
a number (rows of a table, invoices and logs differ in little else), and where no more than a few
words in a row are new: a single sentence that says something else is not lost. One that says more
than the better passage stays. `python -m bench duplicates` measures it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from recollect.index import terms
from recollect.model import AlsoIn, Hit, HitChunk

WORDS = 3
"""of a run"""
CONTAINED = 0.7
"""The least share of a text's runs that a better one holds."""
NEW = 6
"""The most runs one after another that it does not hold: those of four words."""

_BELOW_ZERO = re.compile(r"(?<!\w)-(?=\d)")
Run = tuple[str, ...]


class SaidBefore:
    """Texts that were met, the best first, by the numbers that `add` gives from 0 on."""

    def __init__(self) -> None:
        self._holders: dict[Run, set[int]] = {}
        self._count = 0

    def by(self, text: str) -> int | None:
        """The best that says it; None: it says something new."""
        runs = _read(text)
        held = Counter(one for run in set(runs) for one in self._holders.get(run, ()))
        least = CONTAINED * len(set(runs))
        enough = (one for one, count in held.items() if count >= least)
        return min((one for one in enough if not self._adds(runs, one)), default=None)

    def _adds(self, runs: Sequence[Run], holder: int) -> bool:
        """Whether a text adds a number, or several words in a row, to what was said."""
        row = 0
        for run in runs:
            new = holder not in self._holders.get(run, ())
            row = row + 1 if new else 0
            if row > NEW or (new and any(one.isdigit() for word in run for one in word)):
                return True
        return False

    def add(self, text: str) -> int:
        for run in set(_read(text)):
            self._holders.setdefault(run, set()).add(self._count)
        self._count += 1
        return self._count - 1


def fold(hits: Sequence[Hit]) -> list[Hit]:
    """Each passage that a better one says goes into that one's `also_in`; documents of which
    nothing is left go with it."""
    said = SaidBefore()
    kept: list[HitChunk] = []
    also: list[list[AlsoIn]] = []
    of: list[tuple[Hit, list[int]]] = []
    for hit in hits:
        own: list[int] = []
        for chunk in hit.chunks:
            better = said.by(chunk.text)
            if better is None:
                own.append(said.add(chunk.text))
                kept.append(chunk)
                also.append([])
            else:
                also[better].append(AlsoIn(hit.document, chunk.position, chunk.start, chunk.end))
        if own:
            of.append((hit, own))
    return [
        replace(hit, chunks=[replace(kept[n], also_in=also[n]) for n in own]) for hit, own in of
    ]


def _read(text: str) -> list[Run]:
    """Its runs of words, in its order; of a text of few words one run."""
    signed = _BELOW_ZERO.sub("\N{MINUS SIGN}", text)  # which is a word of its own, unlike a hyphen
    words = [word for token in terms.tokens(signed) for word in terms.sequence(token, "")]
    # What has no words, such as a ruler, says nothing that another could say, too.
    starts = range(max(len(words) - WORDS, 0) + 1) if words else ()
    return [tuple(words[at : at + WORDS]) for at in starts]
