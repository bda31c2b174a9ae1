"""Where a passage stands in the original, in the words of people."""

from collections.abc import Mapping
from typing import Any


def in_words(place: Mapping[str, Any]) -> str:
    """`page 3`, `Q1, rows 17 to 20`, `1:23 to 2:10`; empty where a place names none of these."""
    outside = ("member", "sheet", "chapter")
    said = [str(place[name]) for name in outside if name in place]
    for name in ("page", "row", "cell", "message"):
        if name in place:
            end = place.get(f"{name}End")
            said.append(f"{name}s {place[name]} to {end}" if end else f"{name} {place[name]}")
    if "time" in place:
        said.append(
            " to ".join(_clock(place[name]) for name in ("time", "timeEnd") if name in place)
        )
    said += [f"up to {end}" for name in outside if (end := place.get(f"{name}End"))]
    return ", ".join(said)


def _clock(seconds: float) -> str:
    """`1:23`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
