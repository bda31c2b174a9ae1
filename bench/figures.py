"""What was measured, what it is compared with, and the floor that it must keep."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FLOORS = Path(__file__).with_name("floors.json")


@dataclass(frozen=True, slots=True)
class Figure:
    """`ratio` is to the bare counterpart that `against` names, measured in the same run."""

    id: str
    what: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""


@dataclass(frozen=True, slots=True)
class Floor:
    """`measure` is `value` or `ratio`; `least` and `most` are inclusive."""

    measure: str
    least: float | None = None
    most: float | None = None

    def is_for(self, figure: Figure) -> bool:
        """Not for the ratio of one whose counterpart is not installed here."""
        return self.measure == "value" or figure.ratio is not None

    def holds(self, figure: Figure) -> bool:
        found = figure.ratio if self.measure == "ratio" else figure.value
        assert found is not None, f"{figure.id} has no ratio"
        above = self.least is None or found >= self.least
        return above and (self.most is None or found <= self.most)

    def __str__(self) -> str:
        sign, bound = ("≥", self.least) if self.most is None else ("≤", self.most)
        return f"{self.measure} {sign} {bound:g}"


def floors() -> dict[str, Floor]:
    """By the id of a figure."""
    return {id: Floor(**given) for id, given in json.loads(FLOORS.read_text()).items()}


def below(figures: Sequence[Figure], floors: dict[str, Floor]) -> list[Figure]:
    return [
        one
        for one in figures
        if (floor := floors.get(one.id)) and floor.is_for(one) and not floor.holds(one)
    ]


def as_json(figures: Sequence[Figure], floors: dict[str, Floor]) -> list[dict[str, Any]]:
    low = below(figures, floors)
    return [
        {
            **asdict(one),
            "floor": str(floors[one.id]) if one.id in floors else None,
            "ok": one not in low,
        }
        for one in figures
    ]


def table(figures: Sequence[Figure], floors: dict[str, Floor]) -> str:
    rows = [("what", "figure", "ratio", "against", "floor", "")]
    for one in figures:
        floor = floors.get(one.id)
        floor = floor if floor and floor.is_for(one) else None
        verdict = "" if floor is None else "ok" if floor.holds(one) else "BELOW"
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        rows.append(
            (
                f"{one.id}: {one.what}",
                f"{_short(one.value)} {one.unit}",
                ratio,
                one.against,
                str(floor or ""),
                verdict,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    aligned = (
        "  ".join(
            cell.rjust(width) if column in (1, 2) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(aligned)


def alternate(
    rounds: int, bare: Callable[[int], float], real: Callable[[int], float]
) -> tuple[list[float], list[float]]:
    """Measure by turns, A B A B A: each B beside the mean of the A before and after it.

    A machine that is busy with something else for a while so slows both alike. Returns what `real`
    gave in each round, and its ratio.
    """
    before = bare(0)
    found: list[float] = []
    ratios: list[float] = []
    for number in range(rounds):
        found.append(real(number))
        after = bare(number + 1)
        ratios.append(found[-1] / statistics.mean((before, after)))
        before = after
    return found, ratios


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _short(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"
