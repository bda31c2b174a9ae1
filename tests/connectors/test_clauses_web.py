"""Clauses of what is promised of crawls that no other test holds: pace over processes, absence."""

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from recollect import documents
from recollect.app import App, user_agent
from recollect.config import Config
from recollect.connectors.base import HostTurn
from recollect.connectors.web_crawler import WebCrawler
from recollect.db import Database
from recollect.model import Connection, ConnectionId, Tenant, Trigger, random_id
from recollect.orgs import settings
from recollect.sync import (
    connection_queue,
    connections,
    host_limits,
    item_changes,
    item_filter,
    items,
)
from recollect.sync.connections import SealedConnection
from recollect.sync.items import SyncCounts
from recollect.worker import processing, syncs
from tests.connectors.test_conformance import Hurried
from tests.connectors.test_conformance import unpaced as unpaced
from tests.fakes.site import Site, html, prose
from tests.fakes.website import Exchange, answer
from tests.sync.test_crawl import RecordingDatabase

ONE, TWO = ConnectionId("one"), ConnectionId("two")
HOUR = timedelta(hours=1)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


class Arrivals(list[tuple[float, int]]):
    """When pages of `/p/*` were asked for, and how many requests were under way then."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.two = threading.Event()
        """two were under way at once; while it is not set, the first is kept waiting for another"""
        self.two.set()
        self.met: list[float] = []
        self._site = site
        self._links = [f"/p/{n}" for n in range(8)]
        self._under_way = 0
        self._lock = threading.Lock()
        site.write("/", links=self._links)
        site.route("/p/*", self._serve)

    def _serve(self, exchange: Exchange) -> bool:
        with self._lock:
            self._under_way += 1
            self.append((monotonic(), self._under_way))
            if self._under_way > 1:
                self.two.set()
        assert self.two.wait(60)
        exchange.pause(0.02)
        with self._lock:
            self._under_way -= 1
        body = html(prose(exchange.request.path)).encode()
        exchange.send(answer(200, body, {"Content-Type": "text/html"}))
        return True

    def meet_at_the_root(self) -> None:
        """Two crawls get there before either hears of the pages; `met` is when."""
        met = threading.Barrier(2, lambda: self.met.append(monotonic()))
        root = html(prose("/"), self._links).encode()

        def serve(exchange: Exchange) -> bool:
            met.wait(60)
            exchange.send(answer(200, root, {"Content-Type": "text/html"}))
            return True

        self._site.route("/", serve)


@pytest.fixture
def arrivals(site: Site) -> Arrivals:
    return Arrivals(site)


Make = Callable[..., Connection]


@pytest.fixture
def connect(app: App, tenant: Tenant, site: Site) -> Make:
    """Makes a connection to the site."""

    def make(tag: str = "web") -> Connection:
        new = SealedConnection(
            "web-crawler", [tag], 100, {"startUrl": site.url("/")}, None, pending=False
        )
        with app.db.begin() as tx:
            return connections.create(tx, tenant.id, new, ConnectionId(random_id()))

    return make


@pytest.fixture
def host() -> str:
    return f"{random_id().lower()}.test"


def crawl(
    app: App, *, delay: float = 0.0, concurrency: int = 4, stop: threading.Event | None = None
) -> int:
    """All that is due, in one more process as far as the pace goes: it is kept by the database."""
    update = {"crawl_delay": delay, "crawl_concurrency": concurrency}
    return syncs.drain(replace(app, config=app.config.model_copy(update=update)), stop)


def again(app: App, connection: Connection) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, Tenant(connection.org_id), connection.id)


def due(app: App, connection: Connection) -> None:
    with app.db.begin() as tx:
        tx.execute(
            "update connections set due_at = now(), parked_until = null"
            " where id = %s and state = 'ready'",
            (connection.id,),
        )


def took(db: Database, host: str, guest: ConnectionId, delay: float) -> HostTurn:
    with db.begin() as tx:
        return host_limits.turn(tx, host, guest, timedelta(seconds=delay))


# --- the pace at one host ------------------------------------------------------------------------


def test_turns_follow_each_other_whoever_takes_them(db: Database, host: str):
    waits = [took(db, host, guest, 10_000).wait for guest in (ONE, TWO, ONE, TWO)]

    assert [round(wait, -4) for wait in waits] == [0, 10_000, 20_000, 30_000]
    assert took(db, f"other.{host}", ONE, 10_000).wait == 0


def test_turns_that_many_take_at_once_are_all_different(db: Database, host: str):
    with ThreadPoolExecutor(8) as pool:
        taken = pool.map(lambda n: took(db, host, ConnectionId(f"{n % 3}"), 10_000), range(24))
        turns = list(taken)

    assert sorted(round(turn.wait, -4) for turn in turns) == [10_000 * n for n in range(24)]
    assert max(turn.guests for turn in turns) == 3


def test_a_host_that_wants_rest_gets_it_from_everybody(db: Database, host: str):
    took(db, host, ONE, 1)
    with db.begin() as tx:
        host_limits.rest(tx, host, timedelta(seconds=6_000))
        host_limits.rest(tx, host, timedelta(seconds=5))

    turn = took(db, host, TWO, 1)

    assert 5_900 < turn.rest <= 6_000
    assert 5_900 < turn.wait <= 6_000, "a turn comes after the rest"
    with db.begin() as tx:
        host_limits.rest(tx, host, timedelta(days=9))
    assert took(db, host, TWO, 1).rest <= 24 * 3600, "for a day at most"


def test_a_crawl_that_left_or_died_is_no_guest(db: Database, host: str):
    assert [took(db, host, one, 0).guests for one in (ONE, TWO)] == [1, 2]
    with db.begin() as tx:
        host_limits.leave(tx, host, TWO)
    assert took(db, host, ONE, 0).guests == 1

    took(db, host, TWO, 0)
    with db.begin() as tx:
        tx.execute(
            "update crawled_hosts set guests = guests || jsonb_build_object(%s::text,"
            " extract(epoch from now()) - 1) where host = %s",
            (TWO, host),
        )
    assert took(db, host, ONE, 0).guests == 1, "it took no turn for a minute"


def test_hosts_that_nobody_asks_are_forgotten(db: Database, host: str):
    took(db, host, ONE, 0)
    took(db, f"old.{host}", ONE, 0)
    with db.begin() as tx:
        tx.execute(
            "update crawled_hosts set next_at = now() - interval '2 days' where host = %s",
            (f"old.{host}",),
        )
        host_limits.sweep(tx)
        left = tx.execute("select host from crawled_hosts where host like %s", (f"%{host}",))
        assert [row["host"] for row in left] == [host]


def test_crawls_of_several_connections_keep_their_distance_together(
    app: App, connect: Make, arrivals: Arrivals
):
    """Loops that share nothing but the database, as those of several processes do."""
    both = [connect("a"), connect("b")]
    arrivals.meet_at_the_root()

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(lambda _: crawl(app, delay=0.04), range(2))) == 2

    assert [again(app, one).last_run.added for one in both] == [9, 9]  # pyright: ignore[reportOptionalMemberAccess]
    [met] = arrivals.met
    waits = [moment - met for moment in sorted(moment for moment, _ in arrivals)]
    assert len(waits) == 16
    # The turns, not what lies between two arrivals: a machine may stall, and then catch up.
    assert all(wait >= n * 0.04 * 0.9 for n, wait in enumerate(waits)), "as in one crawl of all"


def test_crawls_of_several_connections_share_the_requests_under_way(
    app: App, connect: Make, arrivals: Arrivals
):
    both = [connect("a"), connect("b")]
    arrivals.meet_at_the_root()  # each knows of the other before the pages begin
    arrivals.two.clear()

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(lambda _: crawl(app, delay=0.001, concurrency=4), range(2))) == 2

    assert [again(app, one).last_run.added for one in both] == [9, 9]  # pyright: ignore[reportOptionalMemberAccess]
    assert 2 <= max(under_way for _, under_way in arrivals) <= 4


def test_a_retry_after_is_heeded_by_the_other_crawls_of_the_host(
    app: App, connect: Make, site: Site, arrivals: Arrivals
):
    first, second = connect("a"), connect("b")
    site.limit("/p/3", times=1, retry_after="600")

    assert crawl(app, concurrency=1) == 2

    told = [again(app, one) for one in (first, second)]
    assert {one.failure.code for one in told if one.failure} == {"rate_limited"}
    for one in told:
        assert one.due_at is not None
        assert one.due_at > datetime.now(UTC) + timedelta(minutes=9)
    asked = len(site.requests)
    due(app, first)
    due(app, second)
    crawl(app)
    assert len(site.requests) == asked, "no request of any crawl while the host rests"

    with app.db.begin() as tx:
        tx.execute("update crawled_hosts set rest_until = now(), next_at = now()")
    due(app, first)
    due(app, second)
    assert crawl(app) == 2
    assert [again(app, one).last_run.status for one in (first, second)] == ["completed"] * 2  # pyright: ignore[reportOptionalMemberAccess]
    assert len({moment for moment, _ in arrivals}) == 16, "each page once in each crawl"


@pytest.fixture
def let_in(app: App, tenant: Tenant, connect: Make, site: Site) -> Connection:
    """A model could not judge its pages when they were listed, and lets them in at the end of the
    sync: their texts were not kept, and are to be read one by one."""
    paths = [f"/q/{n}" for n in range(8)]
    site.write("/", links=paths)
    for path in paths:
        site.write(path)
    connection = connect()
    crawl(app)
    due(app, connection)
    with app.db.begin() as tx:
        documents.drop(tx, tenant.id, documents.of_connection(tx, connection.id), by=None)
        tx.execute(
            "update items set document_id = null, verdict = %s where connection_id = %s",
            (items.UNDECIDED, connection.id),
        )
        [claim] = connection_queue.claim(tx, lease=app.lease, limit=1)
        gate, counts = item_filter.open_gate(settings.read(tx, tenant.id), None), SyncCounts()
        item_changes.reconsider(tx, claim, gate, counts, after="", limit=100)
        connection_queue.finish(tx, claim, counts, again=HOUR)
        assert counts.added == 9
    site.forget()
    return connection


def test_a_page_that_is_read_by_itself_parks_them_all_when_it_is_told_to_wait(
    app: App, let_in: Connection, site: Site, connect: Make
):
    site.limit("/q/5", times=99, retry_after="36000")

    processing.drain(replace(app, config=app.config.model_copy(update={"crawl_delay": 0.0})))

    parked = again(app, let_in)
    assert timedelta(hours=9.9) < parked.parked_for <= timedelta(hours=10)
    assert parked.failure is not None
    assert parked.failure.code == "rate_limited"
    read = site.paths()
    assert read[-1] == "/q/5", "nothing is asked after it"
    with app.db.begin() as tx:
        waiting = tx.execute(
            "select due_at - now() as wait, attempts from documents where connection_id = %s"
            " and status = 'queued'",
            (let_in.id,),
        ).fetchall()
    assert len(waiting) == 9 - len(read) + 1
    assert all(row["wait"] > 9.9 * HOUR for row in waiting)
    assert {row["attempts"] for row in waiting} == {0}, "it costs none of their tries"
    connect("b")
    assert crawl(app) == 1
    assert site.paths() == read, "other crawls heed it, too"


def test_without_a_delay_a_crawl_takes_a_turn_a_second_and_no_more(
    app: App, db: Database, connect: Make, site: Site, arrivals: Arrivals
):
    connect()
    began = monotonic()

    with RecordingDatabase(db.url, size=4) as recording:
        recording.said = Counter()
        assert crawl(replace(app, db=recording)) == 1

    assert len(arrivals) == 8
    turns = sum(n for said, n in recording.said.items() if "into crawled_hosts" in said)
    assert 1 <= turns <= 1 + (monotonic() - began)
    with db.begin() as tx:
        row = tx.execute(
            "select next_at, guests from crawled_hosts where host = %s",
            (site.url("/").split("/")[2],),
        ).fetchone()
    assert row is not None
    assert row["guests"] == {}, "it left when it ended"


@pytest.mark.slow
def test_worker_processes_keep_their_distance_together(app: App, connect: Make, arrivals: Arrivals):
    """As above, with processes."""
    children = [begin(app, connect(tag), delay=0.2) for tag in ("a", "b", "c")]
    for child in children:
        assert child.stdout is not None
        told = [json.loads(line) for line in child.stdout.read().splitlines()]
        assert child.wait(60) == 0
        assert [one["added"] for one in told if one.get("added") is not None] == [9]

    moments = sorted(moment for moment, _ in arrivals)
    assert len(moments) == 24
    assert moments[-1] - moments[0] > 23 * 0.2 * 0.9
    gaps = sorted(after - before for before, after in itertools.pairwise(moments))
    assert gaps[len(gaps) // 2] > 0.1


def begin(app: App, connection: Connection, *, delay: float) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.connectors.one_sync"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    asked = {
        "providers": {},
        "data_dir": str(app.config.data_dir),
        "database": app.db.url,
        "id": connection.id,
        "syncs": 1,
        "crawl_delay": delay,
    }
    assert child.stdin is not None
    child.stdin.write(json.dumps(asked).encode())
    child.stdin.close()
    return child


# --- a site that stays away ----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/robots.txt", pytest.param("/", marks=pytest.mark.slow)])
def test_a_site_that_is_away_for_thirty_days_fails_and_loses_nothing(
    app: App, connect: Make, site: Site, path: str
):
    site.write("/", links=["/a"])
    site.write("/a")
    connection = connect()
    crawl(app)
    site.status(path, 503)
    with app.db.begin() as tx:
        tx.execute(
            "update connections set away_since = now() - interval '30 days' where id = %s",
            (connection.id,),
        )

    shown = tried(app, connection)

    assert (shown.state, shown.due_at) == ("failed", None)
    assert shown.failure is not None
    assert shown.failure.code == "gave_up"
    assert "503" in shown.failure.message
    assert len(brought(app, connection)) == 2

    site.write("/", "It is there again.", links=["/a"])
    site.robots("")
    with app.db.begin() as tx:
        connections.want(tx, [connection.id], Trigger.MANUAL)
    assert crawl(app) == 1
    shown = again(app, connection)
    assert (shown.state, shown.failure) == ("ready", None)
    assert len(brought(app, connection)) == 2


@pytest.mark.slow
def test_a_site_that_was_away_for_a_moment_is_asked_again(app: App, connect: Make, site: Site):
    connection = connect()
    site.status("/robots.txt", 503)

    shown = tried(app, connection)

    assert (shown.state, shown.due_at is not None) == ("ready", True)
    with app.db.begin() as tx:
        row = tx.execute(
            "select away_since > now() - interval '5 minutes' as lately from connections"
            " where id = %s",
            (connection.id,),
        ).fetchone()
    assert row == {"lately": True}


@pytest.mark.slow
def test_one_page_that_is_away_for_long_is_no_absence_of_the_site(
    app: App, connect: Make, site: Site
):
    site.write("/", links=["/a"])
    site.write("/a")
    connection = connect()
    crawl(app)
    site.status("/a", 503)

    tried(app, connection)

    with app.db.begin() as tx:
        row = tx.execute(
            "select away_since from connections where id = %s", (connection.id,)
        ).fetchone()
    assert row == {"away_since": None}


def tried(app: App, connection: Connection) -> Connection:
    due(app, connection)
    crawl(app, stop=Hurried())
    return again(app, connection)


def brought(app: App, connection: Connection) -> list[str]:
    with app.db.begin() as tx:
        rows = tx.execute("select id from documents where connection_id = %s", (connection.id,))
        return [row["id"] for row in rows]


# --- when, and who -------------------------------------------------------------------------------


def test_a_site_is_crawled_again_after_seven_days_and_not_before(
    app: App, connect: Make, site: Site
):
    site.write("/")
    connection = connect()
    crawl(app)

    left = again(app, connection).due_at
    assert left is not None
    assert WebCrawler.interval == timedelta(days=7)
    ahead = left - datetime.now(UTC)
    assert timedelta(days=7) - timedelta(minutes=1) < ahead < timedelta(days=7.4)
    asked = len(site.requests)
    with app.db.begin() as tx:
        tx.execute(
            "update connections set due_at = now() + interval '1 minute' where id = %s",
            (connection.id,),
        )
    assert crawl(app) == 0
    assert len(site.requests) == asked


def test_a_crawl_says_who_it_is_and_whom_to_ask(app: App, connect: Make, site: Site) -> None:
    site.write("/")
    connect()
    crawl(app)

    assert {request.headers["user-agent"] for request in site.requests} == {"RecollectBot/test"}
    asked = Config(crawl_contact="mailto:web@example.org")
    assert user_agent(asked).startswith("RecollectBot/")
    assert user_agent(asked).endswith("(+mailto:web@example.org)")
    assert user_agent(Config(public_url="https://r.example")).endswith("(+https://r.example)")


def test_a_connection_that_is_deleted_stops_its_crawl_at_once(
    app: App, tenant: Tenant, connect: Make, site: Site
) -> None:
    """In the middle of a crawl, with a request on its way; through the rows, as a caller does."""
    going, gone = threading.Event(), threading.Event()

    def hang(exchange: Exchange) -> bool:
        going.set()
        assert gone.wait(60)
        exchange.send(answer(200, html(prose("late")).encode(), {"Content-Type": "text/html"}))
        return True

    site.write("/", links=["/slow", *(f"/{n}" for n in range(9))])
    for n in range(9):
        site.write(f"/{n}")
    site.route("/slow", hang)
    connection = connect()
    slowly = {"concurrency": 1, "delay": 0.01}
    crawling = threading.Thread(target=crawl, args=(app,), kwargs=slowly)
    crawling.start()
    assert going.wait(60)
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, connection.id)
        connections.delete(tx, tenant, [found], with_documents=True)
    asked = len(site.requests)
    gone.set()
    crawling.join(60)

    assert not crawling.is_alive()
    assert len(site.requests) == asked, "before each request it is looked whether it may be"
    assert brought(app, connection) == []
