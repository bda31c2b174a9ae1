"""What content sent again under the same customId means. A guess by nature: PATCH does not guess.

All rules look at whole lines, without the white space at their ends, and without blank lines at the
two ends of a text; only "starts with" also holds in the middle of a line. The first that fits wins.
"""

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from recollect.documents.stretch import LENGTH, lines

TELLING = re.compile("[^\\W_]|[\u2600-\u27bf\U0001f000-\U0001faff]")
"""A letter, digit or emoji: what a line must hold to identify a text; `---` and `}` do not."""
ITEM = re.compile(r"\s*[(\uff08]?(\d{1,9})(?:[.)]\s|[\u3001\uff09\uff0e])")

BYTE_ORDER_MARK = "\ufeff"


class MergeRule(StrEnum):
    """Which rule fitted."""

    UNCHANGED = "unchanged"
    APPENDED = "appended"
    EDITED = "edited"
    JOINED = "joined"
    EXTENDED = "extended"


@dataclass(frozen=True, slots=True)
class Merged:
    """The text from now on. Only `EDITED` may hold less than the old text did."""

    text: str
    kind: MergeRule


def merge(old: str, new: str) -> Merged:
    """Decide what `new` means for a document that holds `old`.

    - same lines, or `old` ends with `new`: UNCHANGED. So a blind retry doubles nothing.
    - `new` starts with `old`: APPENDED, the whole text was sent again with more.
    - half of `old`'s telling lines are in `new` in order, or all of `old` with other line ends:
      EDITED, `new` takes its place. White space does not count, nor do the numbers of a list that
      begins again: an item in front changes them all. Unless these lines are just the half that
      `old` ends with and `new` begins with:
    - the last lines of `old` are the first of `new`: JOINED without doubling them. A part that
      happens to begin with the line the text ends with ("user: ok") loses that line.
    - else only the new part was sent: EXTENDED.

    n log n in the number of lines.
    """
    known, sent = _Lines.of(old), _Lines.of(new)
    common = overlap(known.keys, sent.keys)
    if common == len(sent.keys):
        return Merged(old, MergeRule.UNCHANGED)
    if common == len(known.keys) or new.startswith(old):
        return Merged(new, MergeRule.APPENDED)
    overlaps = any(map(_tells, sent.keys[:common]))
    # An overlap of half the old lines may be all that `new` holds of them: the rest must stay.
    if not (overlaps and 2 * common >= len(known.keys)) and _edits(known.keys, sent.keys):
        return Merged(new, MergeRule.EDITED)
    if overlaps:
        kept = known.raw[: len(known.keys) - common]
        return Merged("\n".join(kept + sent.raw), MergeRule.JOINED)
    return Merged(f"{old}\n{new.removeprefix(BYTE_ORDER_MARK)}", MergeRule.EXTENDED)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a text from the first that is not blank; `keys` to the last that is not."""

    raw: list[str]
    keys: list[str]

    @classmethod
    def of(cls, text: str) -> "_Lines":
        raw = list(lines(text.removeprefix(BYTE_ORDER_MARK)))
        keys = [line.rstrip() for line in raw]
        filled = [index for index, key in enumerate(keys) if key] or [len(keys)]
        return cls(raw[filled[0] :], keys[filled[0] : filled[-1] + 1])


def _tells(line: str) -> bool:
    # In stretches, since the interpreter is held while the pattern looks.
    return any(TELLING.search(line, at, at + LENGTH) for at in range(0, len(line), LENGTH))


def _edits(old: Sequence[str], new: Sequence[str]) -> bool:
    if holds_half(old, new):
        return True
    # A part that comes after a list goes on with its numbers; one that does not is the whole list.
    is_list = _first_number(new) <= _first_number(old) < math.inf
    old, new = _loosely(old, is_list), _loosely(new, is_list)
    if "".join(new).startswith("".join(old)):
        return True
    return (is_list or 2 * overlap(old, new) < len(old)) and holds_half(old, new)


def _first_number(keys: Sequence[str]) -> float:
    return next((int(item[1]) for key in keys if (item := ITEM.match(key, 0, LENGTH))), math.inf)


def _loosely(keys: Sequence[str], is_list: bool) -> list[str]:
    """Without white space and the numbers of a list, but for lines so long that others would
    wait."""
    starts = (ITEM.match(key, 0, LENGTH) if is_list else None for key in keys)
    return [
        "".join(key[item.end() if item else 0 :].split()) if len(key) < LENGTH else key
        for key, item in zip(keys, starts, strict=True)
    ]


def overlap(old: Sequence[str], new: Sequence[str]) -> int:
    """How many items at the end of `old` are those at the start of `new`, at most.

    The prefix function of Knuth, Morris and Pratt, so that a log of one repeated line stays linear.
    """
    most = min(len(old), len(new))
    if old[len(old) - most :] == new[:most]:
        return most
    fallback = [0] * most
    length = 0
    for index in range(1, most):
        while length and new[index] != new[length]:
            length = fallback[length - 1]
        length += new[index] == new[length]
        fallback[index] = length
    length = 0
    for line in old[len(old) - most :]:
        while length and (length == most or line != new[length]):
            length = fallback[length - 1]
        length += line == new[length]
    return length


def holds_half(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether `new` holds at least half of the telling lines of `old` in their order.

    Equal heads and tails count as they are. What is between is counted in three ways, of which none
    counts too many: exactly, where no line repeats; else perhaps too few, and in doubt the old text
    is kept. (The true count takes quadratic time.)
    """
    old = [line for line in old if _tells(line)]
    kept = set(old)
    new = [line for line in new if line in kept]
    needed = (len(old) + 1) // 2
    most = min(len(old), len(new))
    if not needed or most < needed:
        return False
    head = next((i for i in range(most) if old[i] != new[i]), most)
    tail = next((i for i in range(most - head) if old[-1 - i] != new[-1 - i]), most - head)
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    needed -= head + tail
    return (
        needed <= 0
        or _paired(old, new) >= needed
        or _paired(old[::-1], new[::-1]) >= needed
        or _met(old, new) >= needed
    )


def _paired(old: Sequence[str], new: Sequence[str]) -> int:
    """Pairs the n-th occurrence of a line with the n-th; the longest run of pairs in order."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for index in range(len(new) - 1, -1, -1):
        places[new[index]].append(index)
    ends: list[int] = []
    """smallest last place of a run of each length"""
    for line in old:
        if places[line]:
            place = places[line].pop()
            at = bisect_left(ends, place)
            ends[at : at + 1] = [place]
    return len(ends)


def _met(old: Sequence[str], new: Sequence[str]) -> int:
    """Goes through `old` and on to the next occurrence of each line, if there is one."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for index, line in enumerate(new):
        places[line].append(index)
    count = at = 0
    for line in old:
        following = bisect_left(places[line], at)
        if following < len(places[line]):
            at = places[line][following] + 1
            count += 1
    return count
