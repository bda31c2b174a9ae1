"""Where the text stands in the original, in little memory: a table has a place for every row."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Any, overload

from recollect.extract._wire import Stretch
from recollect.model import Place


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours that differ only in the number called `counter`, if there is one."""

    at: Mapping[str, str | int | float]
    counter: str | None
    starts: "array[int]"
    numbers: "array[Any]"
    """int or float"""

    def place(self, index: int) -> Place:
        if self.counter is None:
            return Place(self.starts[index], self.at)
        return Place(self.starts[index], {**self.at, self.counter: self.numbers[index]})


class Places(Sequence[Place]):
    """Places in order; 12 bytes each where only the last name's number changes."""

    __slots__ = ("_count", "_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._firsts: list[int] = []
        self._count = 0

    @classmethod
    def of(cls, places: Iterable[Place]) -> "Places":
        if isinstance(places, Places):
            return places
        packed = cls()
        for place in places:
            packed.add(place.start, place.at)
        return packed

    def add(self, start: int, at: Mapping[str, str | int | float]) -> None:
        """One more; raises ValueError if it lies before the last one."""
        counter, number, rest = None, 0, at
        for last in list(at)[-1:]:
            if not isinstance(value := at[last], str):
                counter, number = last, value
                rest = {name: at[name] for name in at if name != last}
        typecode = "d" if isinstance(number, float) else "q"
        run = self._runs[-1] if self._runs else None
        if run and start < run.starts[-1]:
            raise ValueError(f"the place at {start} comes after that at {run.starts[-1]}")
        if (
            run is None
            or run.counter != counter
            or run.numbers.typecode != typecode
            or run.at != rest
        ):
            run = _Run(rest, counter, array("I"), array(typecode))
            self._runs.append(run)
            self._firsts.append(self._count)
        run.starts.append(start)
        run.numbers.append(number)
        self._count += 1

    def add_all(
        self,
        at: Mapping[str, str | int | float],
        counter: str,
        starts: "array[int]",
        numbers: "array[Any]",
    ) -> None:
        """Many that differ in `counter` alone, in order, behind all others: arrays "I" and "q"."""
        self._append(_Run(at, counter, starts, numbers))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Place: ...
    @overload
    def __getitem__(self, index: slice) -> list[Place]: ...
    def __getitem__(self, index: int | slice) -> Place | list[Place]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        position = index + self._count if index < 0 else index
        if not 0 <= position < self._count:
            raise IndexError(index)
        run = bisect_right(self._firsts, position) - 1
        return self._runs[run].place(position - self._firsts[run])

    def starts(self) -> "array[int]":
        """Of all, in order."""
        starts = array("I")
        for run in self._runs:
            starts.extend(run.starts)
        return starts

    def moved(self, starts: Sequence[int], end: int) -> "Places":
        """The same places at other starts, without those at or after `end`.

        Of several at one start the last remains: the others have no text left.
        """
        moved = Places()
        number = 0
        # The rule is that nothing falls away; then no start needs a look of its own.
        if self._count and starts[-1] < end and all(map(lt, starts, islice(starts, 1, None))):
            for run in self._runs:
                behind = number + len(run.starts)
                shifted = array("I", starts[number:behind])
                moved._append(_Run(run.at, run.counter, shifted, run.numbers))
                number = behind
            return moved
        for run in self._runs:
            kept = _Run(run.at, run.counter, array("I"), array(run.numbers.typecode))
            for value in run.numbers:
                start = starts[number]
                number += 1
                if start < end and (number == len(starts) or starts[number] > start):
                    kept.starts.append(start)
                    kept.numbers.append(value)
            moved._append(kept)
        return moved

    def pack(self) -> tuple[Stretch, ...]:
        return tuple(
            Stretch(
                at=dict(run.at),
                counter=run.counter,
                whole=run.numbers.typecode == "q",
                starts=run.starts.tobytes(),
                numbers=run.numbers.tobytes(),
            )
            for run in self._runs
        )

    @staticmethod
    def validate(stretches: Iterable[Stretch], length: int) -> None:
        """ValueError for places that are not in order within a text of so many characters."""
        last = 0
        for stretch in stretches:
            (run,) = Places.unpack([stretch])._runs or [None]
            if run is None:
                continue
            if (
                run.starts[0] < last
                or run.starts[-1] > length
                or any(map(lt, islice(run.starts, 1, None), run.starts))
            ):
                raise ValueError("places that are not in order")
            if not stretch.whole and not all(map(math.isfinite, run.numbers)):
                raise ValueError("an invalid number")
            last = run.starts[-1]

    @classmethod
    def unpack(cls, stretches: Iterable[Stretch]) -> "Places":
        """Never fails: stretches come from a child that may lie, and lies here harm nobody."""
        places = cls()
        for stretch in stretches:
            starts: array[int] = array("I")
            numbers: array[Any] = array("q" if stretch.whole else "d")
            count = min(
                len(stretch.starts) // starts.itemsize, len(stretch.numbers) // numbers.itemsize
            )
            starts.frombytes(stretch.starts[: count * starts.itemsize])
            numbers.frombytes(stretch.numbers[: count * numbers.itemsize])
            places._append(_Run(stretch.at, stretch.counter, starts, numbers))
        return places

    def _append(self, run: _Run) -> None:
        if run.starts:
            self._runs.append(run)
            self._firsts.append(self._count)
            self._count += len(run.starts)
