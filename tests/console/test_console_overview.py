"""The overview: the last day, the pace of the queue, what needs somebody; and the empty state."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from recollect import __version__
from recollect.app import App
from recollect.documents import figures
from recollect.model import Org, Tenant
from recollect.worker.processing import drain
from tests.console.test_console import add, body, browse, me, new_key, one, site, tree
from tests.console.test_console_connections import make

__all__ = ["browse", "me", "site"]


def aged(app: App, tenant: Tenant, tag: str, ages: list[float], chunks: int = 3) -> None:
    """Documents that became searchable so many minutes ago."""
    for age in ages:
        document = add(app, tenant, f"old {tag} {age}", tags=[tag])
        with app.db.begin() as tx:
            tx.execute(
                "update documents set status = 'done', stage = null, due_at = null, chunks = %s,"
                " updated_at = now() - %s where id = %s",
                (chunks, timedelta(minutes=age), document.id),
            )


def test_the_last_day_is_drawn_and_stands_in_a_table(me: httpx.Client, app: App, tenant: Tenant):
    aged(app, tenant, "notes", [1, 1, 185, 185, 185, 60 * 30])
    answer = me.get("/console")
    rows = [
        [cell.text().strip() for cell in row.css("th, td")]
        for row in tree(answer).css(".hours tbody tr")
    ]
    then = datetime.now(UTC) - timedelta(minutes=185)
    numbers = {row[0]: row[1:] for row in rows}

    assert len(rows) == 24
    assert numbers[f"{then:%Y-%m-%d %H:00}"] == ["3", "9"]
    assert sum(int(row[1]) for row in rows) == 5  # what is older than a day is not of the day
    assert [len(svg.css("rect")) for svg in tree(answer).css("svg")] == [2, 2]
    assert all(svg.attributes["role"] == "img" for svg in tree(answer).css("svg"))
    assert not tree(answer).css("[style]")
    assert "2 became searchable within the last hour" in body(answer)
    # The part that follows by itself does not count the day again.
    assert "svg" not in me.get("/console?part=live").text


def test_a_limited_key_sees_the_day_of_its_tags_alone(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    aged(app, tenant, "notes", [2, 2])
    aged(app, tenant, "closed", [2, 2, 2])
    make(app, tenant, tags=["closed"])
    answer = browse(new_key(app, org, tags=["notes"])[1]).get("/console")

    assert "2 became searchable, at most 2 in an hour" in body(answer)
    assert "closed" not in answer.text
    assert "Database" not in body(answer)


def test_hours_that_were_not_looked_at_are_named(
    me: httpx.Client, app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(figures, "LOOKED_AT", 3)
    aged(app, tenant, "notes", [1, 2, 3, 400])

    assert "earlier hours are not counted" in body(me.get("/console"))


def test_the_queue_says_how_long_it_takes_where_there_is_a_pace(
    me: httpx.Client, app: App, tenant: Tenant
):
    for number in range(8):
        add(app, tenant, f"waits {number}")
    unknown = body(me.get("/console"))
    aged(app, tenant, "notes", [1, 2, 4, 8])
    known = body(me.get("/console"))
    with app.db.begin() as tx:
        pace = figures.pace(tx, tenant, 100)

    assert " left at the pace" not in unknown
    # Four in eight minutes, so eight take a quarter of an hour, give or take a slow machine.
    assert pace.per_second == pytest.approx(4 / 480, rel=0.3)
    assert re.search(r"About 1\d|About 2\d", known)


def test_what_needs_somebody_comes_first(me: httpx.Client, app: App, tenant: Tenant):
    add(app, tenant, "one")
    drain(app)
    calm = me.get("/console")
    waits, failed = make(app, tenant, provider="notion"), make(app, tenant)
    with app.db.begin() as tx:
        tx.execute(
            "update connections set state = 'needs_auth', error_code = 'x',"
            " error_message = 'the user took it back' where id = %s",
            (waits.id,),
        )
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, added)"
            " values (%s, %s, 'cron', 'completed', now(), 7)",
            (f"run-{failed.id}", failed.id),
        )
    answer = me.get("/console")
    needed = one(answer, "#needed")

    assert not tree(calm).css("#needed")
    assert needed.parent is not None
    assert "authorize it again (the user took it back)" in needed.parent.text()
    assert answer.text.index('id="needed"') < answer.text.index('class="figures"')
    assert "7 new" in " ".join(one(answer, ".syncs tbody").text().split())
    assert __version__ in body(answer)
