"""Texts that show whether they are whole: each line names its part, its place and their number."""

import re
from random import Random

WORDS = "amber basin cedar delta ember fjord grove haven inlet jetty kiosk ledge mesa north".split()  # noqa: SIM905 # as prose
_LINE = re.compile(r"([0-9a-f]{16})x(\d+)of(\d+) ")


def part(chance: Random, lines: int) -> str:
    """Lines that no other part has; a text is one part or several, a line end between them."""
    mark = f"{chance.getrandbits(64):016x}"
    return "\n".join(
        f"{mark}x{number}of{lines} " + " ".join(chance.choices(WORDS, k=20))
        for number in range(lines)
    )


def marks(text: str) -> list[str]:
    """What tells its parts from all others, in order; empty if a stranger wrote it."""
    return list(dict.fromkeys(found[1] for found in map(_LINE.match, text.split("\n")) if found))


def is_whole(text: str) -> bool:
    """Whether each part has all of its lines, in order, and nothing stands between them."""
    mark, following, total = "", 0, 0
    for line in text.split("\n"):
        found = _LINE.match(line)
        if found is None:
            return False
        if following == total:
            mark, following, total = found[1], 0, int(found[3])
        if (found[1], int(found[2]), int(found[3])) != (mark, following, total):
            return False
        following += 1
    return following == total
