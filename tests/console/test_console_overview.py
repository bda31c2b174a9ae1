"""The overview: the last day, the pace of the queue, what needs somebody; and the empty state."""

import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from recollect import __version__
from recollect.api.metrics import LAST, Requests
from recollect.app import App
from recollect.documents import figures
from recollect.ingest import samples
from recollect.model import Org, Scope, Tenant
from recollect.worker.processing import drain
from tests.conftest import plain_client
from tests.console.test_console import add, all_of, body, browse, me, new_key, one, tree
from tests.console.test_console_connections import make

__all__ = ["browse", "me"]


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


def test_the_charts_follow_what_happens(me: httpx.Client, app: App, tenant: Tenant):
    add(app, tenant, "Herons eat frogs.")
    drain(app)
    live = me.get("/console?part=live")

    assert "Documents 1 became searchable" in " ".join(
        tree(live).css("figure.chart")[0].text().split()
    )


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


# --- the empty state ---------------------------------------------------------------------------


def test_an_empty_service_says_how_to_begin(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    empty = me.get("/console")
    reading = browse(new_key(app, org, scope=Scope.READ)[1])
    targets = [form.attributes["action"] for form in tree(empty).css(".tiles form")]

    assert [h.text() for h in tree(empty).css(".tile h3")] == [
        "Drop files",
        "Crawl a site",
        "Connect an assistant",
        "Load the sample",
    ]
    assert [h.text() for h in tree(reading.get("/console")).css(".tile h3")] == [
        "Connect an assistant"
    ]
    assert reading.post("/console/sample").status_code == 403
    assert "/console/add" in targets
    # What a card sends is a whole form; one that cannot be comes back with what was typed.
    site_form = {"m.startUrl": "ftp://docs.example/"}
    refused = me.post("/console/connections/new/web-crawler", data=site_form)
    assert refused.status_code == 400
    assert one(refused, "[id='m.startUrl']").attributes["value"] == site_form["m.startUrl"]


def test_the_sample_is_loaded_and_asked(me: httpx.Client, app: App, tenant: Tenant):
    loaded = me.post("/console/sample").headers["location"]
    me.post("/console/sample")  # again, it is the same documents
    drain(app)
    progress = me.get(loaded)
    asked = one(progress, ".lead a").attributes["href"]
    assert asked is not None
    answer = me.get(asked)

    assert len(all_of(app, tenant)) == len(samples.texts())
    assert {tag for each in all_of(app, tenant) for tag in each.container_tags} == {samples.TAG}
    assert "Nothing was found" not in body(answer)
    assert one(answer, "#q").attributes["value"] == samples.QUESTION
    assert not tree(me.get("/console")).css(".tiles")


def test_the_sample_of_a_limited_key_goes_into_its_tag(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    browse(new_key(app, org, tags=["mine"])[1]).post("/console/sample")

    assert {tag for each in all_of(app, tenant) for tag in each.container_tags} == {"mine"}


def test_an_assistant_gets_a_key_that_opens_what_was_chosen(
    me: httpx.Client, site: str, app: App, tenant: Tenant
):
    add(app, tenant, "a heron in the reeds", tags=["birds"])
    drain(app)
    before = me.get("/console/assistant")
    made = me.post("/console/assistant", data={"scope": "read", "tag": "birds"})
    command, config, _ = [pre.text() for pre in tree(made).css("pre")]
    header = json.loads(config)["mcpServers"]["recollect"]["headers"]
    with plain_client(site, header) as http:
        found = http.post("/v3/search", json={"q": "heron", "containerTags": ["birds"]})
        refused = http.post("/v3/documents", json={"content": "x", "containerTag": "birds"})

    assert all("YOUR_KEY" in pre.text() for pre in tree(before).css("pre"))
    assert shlex.split(command)[:4] == ["claude", "mcp", "add", "--transport"]
    assert f"{site}/mcp" in command
    assert found.status_code == 200
    assert len(found.json()["results"]) == 1
    assert refused.status_code == 403
    assert header["Authorization"].removeprefix("Bearer ") not in me.get("/console/keys").text


@pytest.mark.parametrize("form", [{"scope": "admin"}, {"scope": "x"}, {"tag": "no/tag"}])
def test_no_other_key_is_made_for_an_assistant(
    me: httpx.Client, app: App, tenant: Tenant, form: dict[str, str]
):
    answer = me.post("/console/assistant", data=form)

    assert answer.status_code == 400
    assert "assistant" not in [row.text() for row in tree(me.get("/console/keys")).css("tbody th")]


@pytest.mark.parametrize("given", [{"scope": Scope.WRITE}, {"scope": Scope.ADMIN, "tags": ["a"]}])
def test_who_may_not_make_keys_makes_none_for_an_assistant(
    browse: Callable[..., httpx.Client], app: App, org: Org, given: dict[str, Any]
):
    http = browse(new_key(app, org, **given)[1])

    assert http.post("/console/assistant", data={"scope": "read"}).status_code == 403
    assert not tree(http.get("/console/assistant")).css("main form")
    cross = {"sec-fetch-site": "cross-site"}
    assert http.post("/console/sample", headers=cross).status_code == 403


def test_who_runs_it_sees_how_long_searches_take(
    browse: Callable[..., httpx.Client],
    me: httpx.Client,
    app: App,
    site: str,
    key: str,
    house: Org,
):
    whole = browse(new_key(app, house, scope=Scope.ADMIN)[1])
    before = whole.get("/console")
    with plain_client(site, {"authorization": f"Bearer {key}"}) as http:
        for path in ("/v3/search", "/v4/search"):
            assert http.post(path, json={"q": "herons"}).status_code == 200
        assert http.post("/v3/search", json={"q": ""}).status_code == 400
    after, lesser = whole.get("/console"), me.get("/console")

    told = re.compile(r"half in [\d.]+ m?s, 95 of 100 in [\d.]+ m?s; the last (\d+) of")
    earlier = [int(number) for number in told.findall(body(before))] or [0]
    assert [int(number) for number in told.findall(body(after))] == [earlier[0] + 2]
    assert "95 of 100" not in body(lesser)


def test_the_times_are_those_of_the_last_searches():
    seen = Requests()
    for n in range(1, 101):
        seen.count("POST", "/v3/search", 200, n / 1000)
        seen.count("POST", "/v3/documents", 200, 60)
        seen.count("POST", "/v3/search", 400, 60)
    assert seen.searches() == (100, 50.0, 95.0)
    for _ in range(LAST):
        seen.count("POST", "/ns/{namespace}/search", 200, 0.5)
    assert seen.searches() == (LAST, 500.0, 500.0)
