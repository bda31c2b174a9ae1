"""The pace of crawls at one host, over all processes and organisations.

A row per host: its next free turn, how long it asked to be left alone, and which crawls are there.
One statement takes a turn and says all of that. It knows nothing but names of hosts and random ids,
and goes when nobody asked the host for a day.
"""

from datetime import timedelta

from recollect.connectors.base import HostTurn
from recollect.db import Tx
from recollect.model import ConnectionId

GUEST = timedelta(minutes=1)
"""How long after its latest turn a crawl counts, should it end without a word."""
LONGEST_REST = timedelta(days=1)
"""As long as a provider may park a connection."""
KEPT = timedelta(days=1)
# A turn more than a thousand delays away was written by a clock that was ahead.
_NEXT = (
    "greatest(h.rest_until, clock_timestamp(), case when h.next_at"
    " < greatest(h.rest_until, clock_timestamp()) + %(delay)s * 1000 then h.next_at end)"
)


def turn(tx: Tx, host: str, guest: ConnectionId, delay: timedelta) -> HostTurn:
    """Take the next turn there, `delay` before the one after it. Whoever does not use it leaves a
    gap, and nothing worse."""
    row = tx.execute(
        "insert into crawled_hosts as h (host, next_at, guests) values (%(host)s,"
        " clock_timestamp() + %(delay)s,"
        " jsonb_build_object(%(guest)s::text, extract(epoch from clock_timestamp() + %(stay)s)))"
        " on conflict (host) do update set"
        " next_at = " + _NEXT + " + %(delay)s,"
        " guests = (select coalesce(jsonb_object_agg(key, value), '{}') from jsonb_each(h.guests)"
        "   where value::float8 > extract(epoch from clock_timestamp()))"
        "  || jsonb_build_object(%(guest)s::text, extract(epoch from " + _NEXT + " + %(stay)s))"
        " returning extract(epoch from next_at - %(delay)s - clock_timestamp())::float8 as wait,"
        " coalesce(extract(epoch from rest_until - clock_timestamp()), 0)::float8 as rest,"
        " (select count(*) from jsonb_object_keys(guests)) as guests",
        {"host": host, "guest": guest, "delay": delay, "stay": delay + GUEST},
    ).fetchone()
    assert row is not None
    return HostTurn(max(row["wait"], 0.0), max(row["rest"], 0.0), row["guests"])


def rest(tx: Tx, host: str, wait: timedelta) -> None:
    """The host wants to be left alone: no turns of anybody for so long, a day at most."""
    tx.execute(
        "insert into crawled_hosts as h (host, next_at, rest_until)"
        " values (%(host)s, clock_timestamp(), clock_timestamp() + %(wait)s)"
        " on conflict (host) do update"
        " set rest_until = greatest(h.rest_until, clock_timestamp() + %(wait)s)",
        {"host": host, "wait": min(wait, LONGEST_REST)},
    )


def leave(tx: Tx, host: str, guest: ConnectionId) -> None:
    """The crawl ended: the others there may be quicker."""
    tx.execute(
        "update crawled_hosts set guests = guests - %s::text where host = %s and guests ? %s::text",
        (guest, host, guest),
    )


def sweep(tx: Tx) -> None:
    """Forget hosts that nobody asked for a while."""
    tx.execute(
        "delete from crawled_hosts where next_at < now() - %(kept)s"
        " and (rest_until is null or rest_until < now())",
        {"kept": KEPT},
    )
