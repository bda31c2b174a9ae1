"""Leases on the rows of a queue, said once: who holds a row, and until when.

A claim raises the row's number (`claims`) and sets `due_at` to the end of the lease. Whoever holds
an older number can write nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, LiteralString

from recollect.db import Tx
from recollect.errors import LeaseLost

Held = Iterable[tuple[str, int]]
"""Ids of rows with the numbers of their claims."""
SPARE = timedelta()


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of one table."""

    table: LiteralString
    held: LiteralString
    """condition of a row `d` that somebody holds"""
    id: LiteralString = "id"
    """its column that `Held` names"""
    order: LiteralString | None = None
    """in which rows `d` are locked, if not in that of their ids"""

    def renew(self, tx: Tx, held: Held, lease: timedelta, *, spare: timedelta = SPARE) -> None:
        """The heartbeat: renew the leases that are still ours; `spare`: up to which a longer one
        stays."""
        # A row that is locked is being finished; waiting for it would starve the other leases.
        longer = "due_at = greatest(now() + %s, least(d.due_at, now() + %s))"
        self._set(tx, held, longer, [lease, spare], "skip locked")

    def release(self, tx: Tx, held: Held, back: LiteralString) -> None:
        """Give back what is still ours, due at once; `back` sets what else that takes."""
        self._set(tx, held, f"due_at = now(), {back}", [], "")

    def _set(
        self, tx: Tx, held: Held, values: LiteralString, given: list[object], locked: LiteralString
    ) -> None:
        pairs = list(held)
        tx.execute(
            f"with ours as materialized (select d.{self.id} from {self.table} d"
            " join unnest(%s::text[], %s::bigint[]) as held (id, number)"
            f" on d.{self.id} = held.id and d.claims = held.number and {self.held}"
            f"{self.order or f' order by d.{self.id}'} for update of d {locked})"
            f" update {self.table} d set {values} from ours where d.{self.id} = ours.{self.id}",
            ([id for id, _ in pairs], [number for _, number in pairs], *given),
        )


def backoff(failures: LiteralString, first: LiteralString, longest: LiteralString) -> LiteralString:
    """As `loop.backoff`, of a column that counts the failures before this one; the others are
    intervals."""
    # 2 ** 20 minutes are two years; much more is no interval that PostgreSQL has.
    return f"least({first} * power(2, least({failures}, 20)), {longest})"


def fenced(tx: Tx, statement: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> None:
    """Write to a row that is only found while it is ours; raises LeaseLost if it is not."""
    if tx.execute(statement, values).rowcount == 0:
        raise LeaseLost
