"""The guides that the console serves, the steps to an application, and what Settings explain."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx
import pytest

from recollect import __version__, connectors
from recollect.app import App
from recollect.console import _handbook, _show
from recollect.model import Org, Scope, Tenant
from recollect.orgs import audit, settings
from recollect.sync import connect
from tests.console.test_console import POLICY, body, browse, me, new_key, one, tree

__all__ = ["browse", "me"]
NEW = "/console/connections/new"


def test_each_provider_has_a_guide_and_no_link_in_any_leads_nowhere(me: httpx.Client):
    pages = {name: tree(me.get(f"{_handbook.GUIDES}/{name}")) for name in _handbook.names()}
    places = {
        name: {node.attributes["id"] for node in page.css("[id]")} for name, page in pages.items()
    }

    assert set(connectors.all()) <= set(pages)
    for name, page in pages.items():
        assert len(page.css(".guide p, .guide table")) > 2, name
        assert "{PUBLIC_URL}" not in page.css(".guide")[0].text()
        for link in page.css(".guide a"):
            href = link.attributes["href"] or ""
            if href.startswith(("https://", "http://")):
                continue
            target = urlsplit(href)
            there = target.path.removeprefix(f"{_handbook.GUIDES}/") or name
            assert there in pages, (name, href)
            assert not target.fragment or target.fragment in places[there], (name, href)


def test_a_guide_names_the_addresses_of_this_service(me: httpx.Client, app: App):
    answer = me.get(f"{_handbook.GUIDES}/notion")

    assert connect.callback_url(app, "notion") in body(answer)
    assert answer.headers["content-security-policy"] == POLICY
    assert not tree(answer).css("main img, main script, [style]")
    listed = tree(me.get(_handbook.GUIDES)).css("main li a")
    assert {a.attributes["href"] for a in listed} == {
        f"{_handbook.GUIDES}/{name}" for name in _handbook.names()
    }


@pytest.mark.parametrize(
    "name", ["tour", "..%2Fdocs%2Ftour", "%2E%2E", "%00", "notion.md", "decisions"]
)
def test_nothing_else_of_the_disk_is_served(me: httpx.Client, name: str):
    assert me.get(f"{_handbook.GUIDES}/{name}").status_code in (400, 404)


def test_the_steps_to_an_application_end_at_the_connection(
    me: httpx.Client, app: App, tenant: Tenant
):
    page = me.get(f"{NEW}/gmail/application")
    codes = [pre.text() for pre in tree(page).css("pre")]
    empty = me.post(f"{NEW}/gmail/application", data={"id": " abc ", "secret": ""})
    long = me.post(f"{NEW}/gmail/application", data={"id": "x" * 5000, "secret": "y"})
    kept = me.post(f"{NEW}/gmail/application", data={"id": " abc ", "secret": "very secret"})
    form = me.get(kept.headers["location"])
    with app.db.begin() as tx:
        stored = settings.read(tx, tenant.id)

    # Both providers of the company share one application, so both addresses are shown.
    assert sorted(codes) == sorted(
        connect.callback_url(app, name) for name in ("gmail", "google-drive")
    )
    assert tree(page).css("a[href='https://console.cloud.google.com']")
    assert (empty.status_code, long.status_code) == (400, 400)
    assert one(empty, "#id").attributes["value"] == "abc"
    assert kept.headers["location"] == f"{NEW}/gmail"
    assert "Not available" not in body(form)
    assert stored["googleDriveCustomKeyEnabled"] is True
    assert stored["googleDriveClientId"] == "abc"
    assert "very secret" not in str(stored)
    assert "very secret" not in me.get(f"{NEW}/gmail/application").text


def test_an_application_is_an_administrators_to_give(
    browse: Callable[..., httpx.Client], me: httpx.Client, app: App, org: Org
):
    path, form = f"{NEW}/notion/application", {"id": "a", "secret": "b"}
    writer = browse(new_key(app, org, scope=Scope.WRITE)[1])
    limited = browse(new_key(app, org, scope=Scope.ADMIN, tags=["a"])[1])

    for http in (writer, limited):
        assert http.get(path).status_code == http.post(path, data=form).status_code == 403
    crossing = me.post(path, data=form, headers={"sec-fetch-site": "cross-site"})
    assert crossing.status_code == 403
    for provider in ("web-crawler", "nothing", "%00"):
        assert me.get(f"{NEW}/{provider}/application").status_code in (400, 404)


def test_settings_explain_the_installation_to_those_whose_it_is(
    browse: Callable[..., httpx.Client], me: httpx.Client, app: App, house: Org
):
    page = browse(new_key(app, house, scope=Scope.ADMIN)[1]).get("/console/settings")
    writing = browse(new_key(app, house, scope=Scope.WRITE)[1]).get("/console/settings")
    rows = {row.css("th")[0].text(): row.text() for row in tree(page).css(".installed tbody tr")}

    assert __version__ in rows["Version"]
    assert "Embedding model" in rows
    assert f"{app.config.max_file_mb} MB" in rows["Largest file"]
    assert {"Language model", "Reranker", "Purge", "Backup", "Requests per key"} <= rows.keys()
    for link in tree(page).css(".installed a"):
        assert (link.attributes["href"] or "").rpartition("/")[2] in _handbook.names()
    # Other organisations, and lesser keys, do not see how the machine is set up.
    assert not tree(me.get("/console/settings")).css(".installed")
    assert not tree(writing).css(".installed")


def test_the_audit_log_has_who_signed_in_and_keys_that_were_nobodys(
    browse: Callable[..., httpx.Client], me: httpx.Client, app: App, org: Org, house: Org
):
    secret = new_key(app, org, scope=Scope.ADMIN)
    signed_in = browse(secret[1])
    with app.db.begin() as tx:
        audit.record(tx, "sign_in.failed", result=audit.REFUSED, guess=1)
    own = signed_in.get("/console/audit", params={"action": "sign_in."})
    of_all = browse(new_key(app, house, scope=Scope.ADMIN)[1]).get(
        "/console/audit", params={"action": "sign_in."}
    )

    assert "sign_in.done" in body(own)
    assert secret[0].id in body(own)
    assert "sign_in.failed" not in body(own)
    assert "sign_in.failed" in body(of_all)
    assert secret[0].id not in body(of_all)
    done = signed_in.get("/v3/audit", headers={"authorization": f"Bearer {secret[1]}"}).json()
    told = {(one["actor"], one["object"]) for one in done["records"] if "sign" in one["action"]}
    assert (f"key:{secret[0].id}", secret[0].id) in told
    assert not [actor for actor, _ in told if actor == "nobody"]


@pytest.mark.parametrize(
    ("ahead", "told"), [("2:00", "in 2 h"), ("1:20", "in 1 h"), ("720:00", "in 30 d")]
)
def test_what_expires_in_two_hours_says_so(ahead: str, told: str):
    hours, minutes = map(int, ahead.split(":"))
    nearly = timedelta(hours=hours, minutes=minutes) - timedelta(seconds=3)

    assert _show.ago(datetime.now(UTC) + nearly) == told
    assert _show.ago(datetime.now(UTC) - timedelta(hours=1, minutes=59)) == "1 h ago"


def test_a_refusal_is_a_sentence(me: httpx.Client):
    assert one(me.get("/console/nowhere"), ".lead").text() == (
        "There is no page of the console at this address."
    )
    assert one(me.get("/console/tags/tag?name=none"), ".lead").text() == "No container tag 'none'."
    assert _show.sentence("customId: too long") == "customId: too long."
