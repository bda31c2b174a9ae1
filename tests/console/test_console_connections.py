"""The console's rooms for connections, keys and settings, over HTTP."""

import json
import re
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from pydantic import SecretStr

from recollect import connectors
from recollect.app import App, secret_keys
from recollect.config import ProviderSettings
from recollect.connectors.oauth import Tokens
from recollect.console import _picking
from recollect.db import Tx
from recollect.model import (
    Connection,
    ConnectionId,
    ConnectionState,
    Org,
    Plan,
    Scope,
    Tenant,
    random_id,
)
from recollect.orgs import audit, orgs, settings
from recollect.sync import authorizations, connect, connections, items
from recollect.sync.connections import SealedConnection
from recollect.sync.credentials import seal_tokens
from recollect.sync.push_registrations import add_registration
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.connectors.test_s3 import REGION, Amazon, amazon, put
from tests.console.test_console import (
    FORM,
    HARMLESS,
    PAYLOADS,
    body,
    console_site,
    new_key,
    one,
    tree,
)
from tests.fakes.cabinet import Cabinet, CabinetConnector
from tests.fakes.folder import MountedFolder
from tests.fakes.github import FakeGithub
from tests.fakes.site import Site

__all__ = ["amazon"]
ROOMS = "/console/connections"


@pytest.fixture(scope="module")
def site(app: App) -> Generator[str]:
    with console_site(app) as url:
        yield url


@pytest.fixture
def browse(site: str) -> Generator[Callable[..., httpx.Client]]:
    """Makes visitors; with a key, signed in."""
    made: list[httpx.Client] = []

    def visit(key: str | None = None, at: str = site) -> httpx.Client:
        http = httpx.Client(base_url=at, headers=FORM, timeout=60, trust_env=False, verify=False)
        made.append(http)
        if key is not None:
            assert http.post("/console/login", data={"key": key}).status_code == 303
        return http

    yield visit
    for http in made:
        http.close()


@pytest.fixture
def me(browse: Callable[..., httpx.Client], key: str) -> httpx.Client:
    """Signed in with an admin key of this test's organisation."""
    return browse(key)


def make(app: App, tenant: Tenant, provider: str = "web-crawler", **given: Any) -> Connection:
    """A connection as it would be after some syncs, without any."""
    told: dict[str, Any] = {
        "tags": ["notes"],
        "limit": 100,
        "metadata": {"startUrl": "https://docs.example/"} if provider == "web-crawler" else {},
        "secrets": None,
        "pending": False,
        "due": False,
    } | given
    with app.db.begin() as tx:
        new = SealedConnection(provider=provider, **told)
        return connections.create(tx, tenant.id, new, ConnectionId(random_id()))


def saw(tx: Tx, id: str, address: str, verdict: str = "document", detail: str = "") -> None:
    tx.execute(
        "insert into items (connection_id, id, url, title, verdict, detail, seen_at)"
        " values (%s, %s, %s, %s, %s, %s, now())",
        (id, address, address, f"Title of {address}", verdict, detail),
    )


def get(app: App, tenant: Tenant, id: str) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, tenant, id)


def all_of(app: App, tenant: Tenant) -> list[Connection]:
    with app.db.begin() as tx:
        return connections.find(tx, tenant)


def work(app: App) -> None:
    """All that is due, without a delay between pages."""
    syncs.drain(replace(app, config=app.config.model_copy(update={"crawl_delay": 0.0})))
    drain(app)


# --- the list and the tiles --------------------------------------------------------------------


def test_every_provider_has_a_tile_that_says_what_it_needs(me: httpx.Client):
    tiles = {tile.css("h3")[0].text(): tile for tile in tree(me.get(ROOMS)).css(".tile")}

    assert set(tiles) == {connector.name for connector in connectors.all().values()}
    for tile in tiles.values():
        assert "Needs" in tile.text()
    crawler, github = tiles["Web crawler"], tiles["GitHub"]
    assert crawler.css("a")[0].attributes["href"] == f"{ROOMS}/new/web-crawler"
    assert not github.css("a[href='/console/connections/new/github']")
    assert "RECOLLECT_GITHUB_CLIENT_ID" in github.text()
    assert "RECOLLECT_GITHUB_CLIENT_SECRET" in github.text()
    assert github.css("a")[0].attributes["href"] == f"{ROOMS}/new/github/application"
    assert github.css("a")[1].attributes["href"] == "/console/guides/github"


def test_a_provider_beyond_the_plan_says_so(
    browse: Callable[..., httpx.Client], app: App, org: Org, key: str
):
    with app.db.begin() as tx:
        orgs.change_plan(tx, org.name, Plan.FREE)
    http = browse(key)

    assert "requires a Scale or Enterprise plan (plan: free)" in body(http.get(ROOMS))
    form = {"m.startUrl": "https://docs.example/"}
    assert http.post(f"{ROOMS}/new/web-crawler", data=form).status_code == 403


def test_forms_hide_what_is_secret():
    for connector in connectors.all().values():
        secrets = {field.name for field in connector.guide.fields if field.kind == "secret"}
        assert secrets == set(connector.secrets), connector.provider


def test_the_list_shows_state_account_run_and_fault(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant, "github", tags=["code"])
    with app.db.begin() as tx:
        tx.execute(
            "update connections set state = 'needs_auth', email = 'octo@example.com',"
            " error_code = 'auth_expired', error_message = 'GitHub wants to be asked again'"
            " where id = %s",
            (made.id,),
        )
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, added)"
            " values (%s, %s, 'cron', 'failed', now(), 1204)",
            (random_id(), made.id),
        )
    shown = body(me.get(ROOMS))

    for words in (
        "GitHub · octo@example.com",
        "authorize again",
        "GitHub wants to be asked again",
        "1,204 new",
        "code",
    ):
        assert words in shown


def test_the_list_says_what_the_last_run_could_not_do_in_the_words_of_the_run(
    me: httpx.Client, app: App, tenant: Tenant
):
    made = make(app, tenant)
    with app.db.begin() as tx:
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, failed,"
            " skipped, error_code, error_message)"
            " values (%s, %s, 'cron', 'partial', now(), 1, '{\"error\": 24}', 'x', 'No answer.')",
            (random_id(), made.id),
        )
    listed = me.get(ROOMS)

    assert one(listed, ".connections .reason").text() == "No answer."
    row = one(listed, ".connections tbody tr").text()
    assert "25 failed" in row
    assert "in part, " in row
    assert "partial" not in row


@pytest.mark.parametrize("state", ConnectionState)
def test_every_state_of_a_connection_has_a_word(
    me: httpx.Client, app: App, tenant: Tenant, state: ConnectionState
):
    made = make(app, tenant)
    with app.db.begin() as tx:
        tx.execute(
            "update connections set state = %(state)s, error_code = 'x', error_message = 'Why.',"
            " due_at = case when %(state)s = 'syncing' then now() + interval '1 hour' end"
            " where id = %(id)s",
            {"state": state, "id": made.id},
        )
    listed, page = me.get(ROOMS), me.get(f"{ROOMS}/{made.id}")
    buttons = [one.text() for one in tree(page).css("main form button")]

    assert tree(listed).css(f".connections .mark.{state}")
    assert tree(page).css(f".head .mark.{state}")
    again = state in (ConnectionState.NEEDS_AUTH, ConnectionState.FAILED)
    assert ("Try again" in buttons) == again
    assert ("Sync now" in buttons) == (state in (ConnectionState.READY, ConnectionState.SYNCING))


def test_pushes_that_came_are_on_though_nothing_is_registered_for_the_connection(
    me: httpx.Client, app: App, tenant: Tenant
):
    """Notion's webhook is the integration's, and the operator's to make."""
    made = make(app, tenant, "notion")
    before = body(me.get(f"{ROOMS}/{made.id}"))
    with app.db.begin() as tx:
        tx.execute("update connections set pushed_at = now() where id = %s", (made.id,))

    assert "none" in before
    assert re.search(r"<dt>Pushes</dt><dd[^>]*>on, last", me.get(f"{ROOMS}/{made.id}").text)
    assert ">on</td>" in me.get(ROOMS).text


def test_a_connection_says_what_to_do_and_no_more_than_is_so(
    me: httpx.Client, app: App, tenant: Tenant
):
    """Of a provider that is to be waited for, of pushes that are off, of sources twice, at the
    end."""
    made = [make(app, tenant, provider, metadata={"bucket": "papers"}) for provider in ("s3",) * 2]
    mine = f"{ROOMS}/{made[0].id}"

    def shown(state: str, code: str, due: bool) -> str:
        with app.db.begin() as tx:
            tx.execute(
                "update connections set state = %s, error_code = %s, error_message = 'Busy',"
                " due_at = case when %s then now() + interval '1 hour' end where id = %s",
                (state, code, due, made[0].id),
            )
        return body(me.get(mine))

    nothing = "Nothing has to be done"
    assert nothing in shown("ready", "rate_limited", True)
    assert nothing in shown("ready", "provider_unavailable", True)
    assert nothing not in shown("ready", "access_denied", True)
    assert nothing not in shown("failed", "provider_unavailable", False)
    with app.db.begin() as tx:
        tx.execute("update connections set provider = 'folder' where id = %s", (made[0].id,))
    assert nothing not in shown("ready", "provider_unavailable", True), "is it mounted?"
    with app.db.begin() as tx:
        tx.execute("update connections set provider = 's3' where id = %s", (made[0].id,))
    shown("failed", "provider_unavailable", False)
    assert f"Connection {made[1].id} brings the same into notes" in body(me.get(mine))
    assert "webhooks and tokens" not in body(me.get(f"{mine}/delete"))
    drive = make(app, tenant, "google-drive")
    assert "webhooks and tokens are revoked" in body(me.get(f"{ROOMS}/{drive.id}/delete"))
    with app.db.begin() as tx:
        add_registration(tx, random_id(), drive.id, "user", secret="", url="https://a.example")
        tx.execute(
            "update registrations set error = 'too far away' where connection_id = %s", (drive.id,)
        )
    assert ">off</td>" in me.get(ROOMS).text, "a long reason would leave the others no room"
    assert "too far away" in body(me.get(f"{ROOMS}/{drive.id}"))


def test_a_key_that_is_refused_is_no_lost_authorization(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant, "s3", metadata={"bucket": "papers", "region": "eu-central-1"})
    with app.db.begin() as tx:
        tx.execute("update connections set state = 'needs_auth' where id = %s", (made.id,))

    for shown in (me.get(ROOMS), me.get(f"{ROOMS}/{made.id}")):
        assert "key refused" in body(shown)
        assert "authorize again" not in body(shown).lower()


def test_the_list_is_filtered_and_paged(me: httpx.Client, app: App, tenant: Tenant):
    for number in range(27):
        make(app, tenant, tags=["even" if number % 2 == 0 else "odd"])
    make(app, tenant, "s3", tags=["odd"])

    assert len(tree(me.get(ROOMS)).css(".connections tbody tr")) == 25
    assert len(tree(me.get(f"{ROOMS}?page=2")).css(".connections tbody tr")) == 3
    assert len(tree(me.get(f"{ROOMS}?tag=odd")).css(".connections tbody tr")) == 14
    assert len(tree(me.get(f"{ROOMS}?tag=odd&provider=s3")).css(".connections tbody tr")) == 1
    assert "There is no such page" in body(me.get(f"{ROOMS}?page=3"))


# --- from the form to the documents ------------------------------------------------------------


def test_a_site_is_connected_crawled_and_shown_as_a_tree(
    me: httpx.Client, app: App, tenant: Tenant
):
    with Site() as web:
        web.write("/", "The start.", links=["/guide/one", "/guide/two", "/private/x", "/gone"])
        web.write("/guide/one", "The first page of the guide is about herons.")
        web.write("/guide/two", "The second page of the guide is about cranes.")
        web.robots("User-agent: *\nDisallow: /private\nCrawl-delay: 0")
        form = {
            "m.startUrl": f" {web.url()} ",
            "m.includePatterns": "*\r\n*/guide/*\r\n",
            "tags": "docs, team:a",
            "limit": "50",
        }
        created = me.post(f"{ROOMS}/new/web-crawler", data=form)
        [made] = all_of(app, tenant)
        waiting = me.get(created.headers["location"])
        work(app)
        page = me.get(f"{ROOMS}/{made.id}")
        top = me.get(f"{ROOMS}/{made.id}/tree")
        folder = quote(web.url("/guide/"), safe="")
        guide = me.get(f"{ROOMS}/{made.id}/tree?open={quote(web.url(), safe='')}&open={folder}")

    assert created.headers["location"] == f"{ROOMS}/{made.id}?done=created"
    assert made.container_tags == ["docs", "team:a"]
    assert made.document_limit == 50
    assert made.metadata == {"startUrl": web.url(), "includePatterns": "*,*/guide/*"}
    assert "The first sync begins" in body(waiting)
    assert one(waiting, "article").attributes["data-state"] == "unfinished"
    assert one(page, "article").attributes["data-state"] == "finished"
    cells = [cell.text() for cell in tree(page).css(".runs tbody td.number")]
    assert cells[:3] == ["3", "0", "0"]
    assert "1 robots" in body(page)
    assert "guide/" in body(top)
    assert "two" not in body(top)
    two = web.url("/guide/two")
    assert tree(guide).css(f"a[title='{two}'][href^='/console/documents/']")


def test_what_is_wrong_is_said_and_what_was_typed_stays(me: httpx.Client, app: App, tenant: Tenant):
    wrong = [
        ("web-crawler", {"m.startUrl": "ftp://x.example/", "tags": "mine"}, "Start page:"),
        ("web-crawler", {"m.startUrl": "http://10.0.0.1/", "tags": "mine"}, "Start page:"),
        ("web-crawler", {"m.startUrl": "http://127.0.0.1:9/", "tags": "no/tag mine"}, "Tags: "),
        (
            "web-crawler",
            {"m.startUrl": "http://127.0.0.1:9/", "limit": "10001"},
            "Limit: 1 to",
        ),
        (
            "web-crawler",
            {"m.startUrl": "http://127.0.0.1:9/", "limit": "1" * 5000},
            "Limit: 1 to",
        ),
        (
            "web-crawler",
            {"m.startUrl": "http://127.0.0.1:9/", "m.crawlDepth": "x"},
            "Depth: a whole",
        ),
        ("s3", {"m.bucket": "b" * 10}, "Access key id is required"),
        ("github", {}, "RECOLLECT_GITHUB_CLIENT_ID"),
    ]
    for provider, form, told in wrong:
        answer = me.post(f"{ROOMS}/new/{provider}", data=form)
        assert answer.status_code == 400, form
        assert told in body(answer)
        for name, value in form.items():
            if provider != "github":
                assert one(answer, f"[name='{name}']").attributes.get("value") == value
    assert all_of(app, tenant) == []


def test_a_connection_is_tested_before_it_is_made(me: httpx.Client, app: App, tenant: Tenant):
    with Site() as web:
        web.write("/", "The start.")
        web.robots("User-agent: *\nDisallow: /private\nCrawl-delay: 0")
        asked = {"action": "test", "tags": "docs"}
        url = web.url()
        failed = me.post(
            f"{ROOMS}/new/web-crawler", data={**asked, "m.startUrl": web.url("/private/x")}
        )
        assert all_of(app, tenant) == []
        made = me.post(f"{ROOMS}/new/web-crawler", data={**asked, "m.startUrl": url})

    assert failed.status_code == 200
    assert "robots" in one(failed, "[role=alert]").text()
    assert made.headers["location"].endswith("?done=created")
    assert len(all_of(app, tenant)) == 1


def test_a_bucket_is_tested_before_it_is_connected(
    me: httpx.Client, app: App, tenant: Tenant, amazon: Amazon
):
    bucket = amazon.bucket()
    put(amazon, bucket, "notes/a.md")
    asked = {
        "action": "test",
        "tags": "docs",
        "m.bucket": bucket,
        "m.region": REGION,
        "m.endpoint": amazon.url,
        "m.accessKeyId": amazon.key,
        "m.secretAccessKey": amazon.secret,
    }
    mistyped = me.post(f"{ROOMS}/new/s3", data={**asked, "m.secretAccessKey": "x" * 40})
    absent = me.post(f"{ROOMS}/new/s3", data={**asked, "m.bucket": "not-there"})
    before = all_of(app, tenant)
    made = me.post(f"{ROOMS}/new/s3", data=asked)

    assert "secretAccessKey does not belong" in one(mistyped, "[role=alert]").text()
    assert one(mistyped, "[name='m.bucket']").attributes["value"] == bucket
    assert "x" * 40 not in mistyped.text
    assert "there is no bucket" in one(absent, "[role=alert] li").text()
    assert "listing, s3 fail" in one(absent, "[role=alert] li").text()
    assert before == []
    assert made.headers["location"].endswith("?done=created")
    assert [connection.provider for connection in all_of(app, tenant)] == ["s3"]


def test_a_folder_is_tested_before_it_is_connected(
    browse: Callable[..., httpx.Client], key: str, app: App, tenant: Tenant
):
    with MountedFolder() as folder:
        (folder.path / "a.md").write_text("A heron.")
        config = app.config.model_copy(update={"folders": [folder.root]})
        with console_site(replace(app, config=config)) as url:
            http = browse(key, url)
            asked = {"action": "test", "tags": "docs"}
            outside = http.post(f"{ROOMS}/new/folder", data={**asked, "m.path": "/etc"})
            absent = http.post(
                f"{ROOMS}/new/folder", data={**asked, "m.path": f"{folder.path}/absent"}
            )
            before = all_of(app, tenant)
            made = http.post(f"{ROOMS}/new/folder", data={**asked, "m.path": str(folder.path)})

    assert "is not below a folder of RECOLLECT_FOLDERS" in one(outside, "[role=alert]").text()
    assert one(outside, "[name='m.path']").attributes["value"] == "/etc"
    assert "there is no such folder" in one(absent, "[role=alert]").text()
    assert before == []
    assert made.headers["location"].endswith("?done=created")
    assert [connection.provider for connection in all_of(app, tenant)] == ["folder"]


def test_secrets_go_in_and_are_never_shown_again(me: httpx.Client, app: App, tenant: Tenant):
    form = {
        "m.bucket": "company-data",
        "m.region": "eu-central-1",
        "m.accessKeyId": "AKIACANARY",
        "m.secretAccessKey": "hunter2-canary",
    }
    refused = me.post(f"{ROOMS}/new/s3", data={**form, "m.region": "?"})
    me.post(f"{ROOMS}/new/s3", data=form)
    [made] = all_of(app, tenant)
    pages = [refused, *(me.get(f"{ROOMS}/{made.id}{rest}") for rest in ("", "/edit"))]
    saved = me.post(
        f"{ROOMS}/{made.id}/edit",
        data={**form, "m.region": "eu-west-1", "tags": "s"}
        | {"m.accessKeyId": "", "m.secretAccessKey": ""},
    )

    assert refused.status_code == 400
    for page in pages:
        assert "CANARY" not in page.text.upper()
    assert one(pages[-1], "[name='m.secretAccessKey']").attributes["type"] == "password"
    assert saved.headers["location"].endswith("done=changed")
    changed = get(app, tenant, made.id)
    assert changed.metadata == {"bucket": "company-data", "region": "eu-west-1"}
    with app.db.begin() as tx:
        assert connections.sealed(tx, made.id).secrets is not None


@pytest.mark.parametrize(
    "picked", [[], [{"id": "1", "name": "octo/docs", "defaultBranch": "main"}]]
)
def test_what_was_picked_stays_when_other_metadata_change(
    app: App, tenant: Tenant, picked: list[dict[str, str]]
):
    """Also a choice of nothing, which is a list of texts as others are."""
    own = {"team": "ops", "owners": ["ann", "bob"]}
    made = make(app, tenant, "github", metadata={"resources": picked, **own})
    changes = connect.ConnectionChanges(metadata={"team": "dev"})

    changed = connect.change(github_app(app, "http://127.0.0.1:9"), tenant, made, changes)

    assert changed.metadata == {"resources": picked, "team": "dev"}


def test_saving_what_is_the_same_lists_nothing_anew(me: httpx.Client, app: App, tenant: Tenant):
    own = {"team": "ops", "owners": ["ann", "bob"]}
    narrow = {"crawlDepth": 3, "excludePatterns": ["*/old/*", "*/draft/*"]}
    metadata = {"startUrl": "http://127.0.0.1:9/", **own, **narrow}
    made = make(app, tenant, metadata=metadata)
    with app.db.begin() as tx:
        tx.execute("update connections set cursor = '{}' where id = %s", (made.id,))
    page = tree(me.get(f"{ROOMS}/{made.id}/edit"))
    form = {
        str(field.attributes["name"]): field.attributes.get("value") or field.text()
        for field in page.css("form.add [name]:not([name=before])")
    }
    same = me.post(f"{ROOMS}/{made.id}/edit", data=form)
    limited = me.post(f"{ROOMS}/{made.id}/edit", data={**form, "limit": "7"})
    kept = get(app, tenant, made.id)
    wide = {"m.crawlDepth": "", "m.excludePatterns": ""}
    me.post(f"{ROOMS}/{made.id}/edit", data={**form, **wide})
    changed = get(app, tenant, made.id)

    assert same.headers["location"].endswith("done=same")
    assert limited.headers["location"].endswith("done=changed")
    assert (kept.document_limit, kept.cursor, kept.metadata) == (7, {}, metadata)
    assert changed.metadata == {"startUrl": "http://127.0.0.1:9/", **own}
    assert changed.cursor is None


# --- authorizing and picking -------------------------------------------------------------------


@pytest.fixture
def cabinet(app: App) -> Generator[tuple[Cabinet, str]]:
    """A console whose provider `cabinet` is a fake, behind a narrow list of redirect origins."""
    found = connectors.all()
    assert isinstance(found, dict)
    found["cabinet"] = CabinetConnector()
    with Cabinet() as made:
        given = {"cabinet": made.settings()}
        origins = ["https://app.example"]
        config = app.config.model_copy(update={"providers": given, "redirect_origins": origins})
        own = replace(app, config=config)
        with console_site(own) as url:
            public = config.model_copy(update={"public_url": url})
            # The address is known only now that the site stands.
            object.__setattr__(own, "config", public)
            yield made, url
    del found["cabinet"]


def test_authorizing_leads_to_the_provider_and_back_into_the_console(
    browse: Callable[..., httpx.Client],
    app: App,
    tenant: Tenant,
    key: str,
    cabinet: tuple[Cabinet, str],
):
    provider, url = cabinet
    http = browse(key, url)
    created = http.post(f"{ROOMS}/new/cabinet", data={"tags": "things"})
    [made] = all_of(app, tenant)
    waiting = http.get(f"{ROOMS}/{made.id}")
    page = http.get(created.headers["location"])
    link = one(page, "main a.button").attributes["href"] or ""
    denied = http.get(provider.authorization.consent(link, deny=True))
    told = http.get(http.get(denied.headers["location"]).headers["location"])
    agreed = http.get(provider.authorization.consent(link, user="ann@example.com"))
    returned = http.get(agreed.headers["location"])
    connected = http.get(returned.headers["location"])

    assert created.headers["location"] == f"{ROOMS}/{made.id}/authorize"
    assert made.state is ConnectionState.PENDING
    assert "It is not authorized yet" in body(waiting)
    assert "This link opens 127.0.0.1" in body(page)
    assert "The authorization was refused at the provider" in body(told)
    assert agreed.headers["location"].startswith(f"{url}{ROOMS}/back?")
    assert "Authorized." in body(connected)
    assert "ann@example.com" in body(connected)
    assert get(app, tenant, made.id).state is ConnectionState.READY


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/console/connections/back",
        "{url}.evil.example/console/connections/back",
        "{url}@evil.example/console/connections/back",
        "{url}/console/connections/../../v3/documents",
        "{url}/v3/documents",
    ],
)
def test_the_way_back_is_the_console_and_no_more(
    browse: Callable[..., httpx.Client], key: str, cabinet: tuple[Cabinet, str], target: str
):
    _, url = cabinet
    answer = browse(at=url).post(
        "/v3/connections/cabinet",
        json={"redirectUrl": target.replace("{url}", url)},
        headers={"authorization": f"Bearer {key}"},
    )

    assert answer.status_code == 400
    assert "redirectUrl" in answer.text


def test_repositories_are_picked_over_several_pages(
    browse: Callable[..., httpx.Client], app: App, tenant: Tenant, key: str
):
    with FakeGithub() as github:
        token = github.user("octo")
        for number in range(_picking.PICKS + 5):
            github.repository(f"octo/repo{number:03}", {"guide.md": f"# Guide {number}"})
        own = github_app(app, github.url)
        made = authorized(own, tenant, token)
        with console_site(own) as url:
            http = browse(key, url)
            asked = http.get(f"{ROOMS}/{made.id}")
            first = http.get(f"{ROOMS}/{made.id}/pick")
            ticks = [
                box.attributes["value"] or ""
                for box in tree(first).css(".picks td input")
                if "repo003" in (box.attributes["value"] or "")
            ]
            second = http.post(f"{ROOMS}/{made.id}/pick", data={"pick": ticks, "page": "2"})
            more = [
                box.attributes["value"] or ""
                for box in tree(second).css(".picks td input")
                if "repo103" in (box.attributes["value"] or "")
            ]
            carried = [
                box.attributes["value"] or "" for box in tree(second).css("fieldset input[checked]")
            ]
            nothing = http.post(f"{ROOMS}/{made.id}/pick", data={})
            forged = http.post(f"{ROOMS}/{made.id}/pick", data={"pick": ["[]", "{"]})
            saved = http.post(f"{ROOMS}/{made.id}/pick", data={"pick": carried + more})
            again = http.get(f"{ROOMS}/{made.id}/pick")

    assert "Nothing is picked yet" in body(asked)
    assert "no longer ticked stay" in body(first)
    assert len(tree(first).css(".picks tbody tr")) == _picking.PICKS
    assert len(tree(second).css(".picks tbody tr")) == 5
    assert nothing.status_code == forged.status_code == 400
    assert saved.headers["location"].endswith("done=picked")
    names = [one["name"] for one in get(app, tenant, made.id).metadata["resources"]]
    assert names == ["octo/repo003", "octo/repo103"]
    ticked = [box.attributes["value"] or "" for box in tree(again).css(".picks [checked]")]
    assert [json.loads(value)["name"] for value in ticked] == ["octo/repo003"]


def github_app(app: App, url: str) -> App:
    given = ProviderSettings(client_id="id", client_secret=SecretStr("secret"), api_url=url)
    providers = {**app.config.providers, "github": given}
    return replace(app, config=app.config.model_copy(update={"providers": providers}))


def authorized(app: App, tenant: Tenant, token: str) -> Connection:
    made = make(app, tenant, "github", pending=True)
    with app.db.begin() as tx:
        authorizations.authorize(
            tx,
            made,
            tokens=seal_tokens(app, made.id, Tokens(token)),
            expires_at=None,
            account="1",
            email="octo@example.com",
            due=False,
        )
    return get(app, tenant, made.id)


# --- tending -----------------------------------------------------------------------------------


def test_pausing_resuming_and_syncing_now(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)

    def act(action: str) -> str:
        answer = me.post(f"{ROOMS}/{made.id}/do", data={"action": action})
        return body(me.get(answer.headers["location"]))

    assert "Paused: nothing is synced" in act("pause")
    assert get(app, tenant, made.id).paused
    assert "Resumed" in act("resume")
    assert not get(app, tenant, made.id).paused
    assert "A sync is on its way" in act("sync")
    assert get(app, tenant, made.id).due_at is not None
    pending = make(app, tenant, "github", pending=True)
    answer = me.post(f"{ROOMS}/{pending.id}/do", data={"action": "sync"})
    assert answer.headers["location"].endswith("done=lost")
    assert me.post(f"{ROOMS}/{made.id}/do", data={"action": "x"}).status_code == 400


def test_runs_tell_what_they_did_and_why_not(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    with app.db.begin() as tx:
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, added,"
            " changed, unchanged, removed, failed, skipped, notes, error_code, error_message)"
            " values (%s, %s, 'event', 'partial', now(), 1, 2, 3000, 4, 5,"
            " '{\"over_limit\": 6, \"robots\": 7}', '{one sentence,another}', 'x', 'one sentence')",
            (random_id(), made.id),
        )
    page = me.get(f"{ROOMS}/{made.id}")

    cells = [cell.text() for cell in tree(page).css(".runs tbody td.number")]
    assert cells == ["1", "2", "4", "3,000", "5"]
    for words in ("in part", "by a push", "6 over limit", "7 robots", "one sentence", "another"):
        assert words in body(page)
    assert body(page).count("one sentence") == 1


def test_errors_count_as_failed_and_the_first_run_is_called_so(
    me: httpx.Client, app: App, tenant: Tenant
):
    made = make(app, tenant)
    with app.db.begin() as tx:
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, failed,"
            " skipped)"
            " values (%s, %s, 'cron', 'partial', now(), 1, '{\"error\": 24}')",
            (random_id(), made.id),
        )
    page = me.get(f"{ROOMS}/{made.id}")

    assert [cell.text() for cell in tree(page).css(".runs tbody td.number")][-1] == "25"
    assert "the first" in one(page, ".runs tbody th").text()
    assert not tree(page).css(".runs .details")


def test_what_was_seen_is_filtered_by_verdict_and_text(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    with app.db.begin() as tx:
        for number in range(60):
            saw(tx, made.id, f"https://docs.example/{number:02}", "robots", "Disallow: /")
        saw(tx, made.id, "https://docs.example/heron", "error", "it answers 500")
        saw(tx, made.id, "https://docs.example/away")  # its document was deleted

    def rows(query: str) -> list[str]:
        return [
            row.text() for row in tree(me.get(f"{ROOMS}/{made.id}/seen?{query}")).css("tbody tr")
        ]

    assert len(rows("")) == 50
    assert len(rows("page=2")) == 12
    assert len(rows("verdict=robots&page=2")) == 10
    assert ["it answers 500" in row for row in rows("q=HERON")] == [True]
    assert ["away" in row for row in rows("verdict=deleted")] == [True]
    assert rows("verdict=document") == rows("verdict=nonsense") == []


def test_ending_asks_first_and_may_keep_the_documents(me: httpx.Client, app: App, tenant: Tenant):
    with Site() as web:
        web.write("/", "The start is about herons and their nests.")
        for what, left in (("all", 0), ("connection", 1)):
            me.post(f"{ROOMS}/new/web-crawler", data={"m.startUrl": web.url()})
            [made] = all_of(app, tenant)
            work(app)
            asked = me.get(f"{ROOMS}/{made.id}/delete")
            refused = me.post(f"{ROOMS}/{made.id}/delete", data={"what": "x"})
            still = len(all_of(app, tenant))
            done = me.post(f"{ROOMS}/{made.id}/delete", data={"what": what})

            assert "brought 1 document." in body(asked)
            assert (refused.status_code, still) == (400, 1)
            assert all_of(app, tenant) == []
            assert done.headers["location"].startswith(f"{ROOMS}?done=")
            assert f"{left} document" in body(me.get("/console/documents")) or not left


# --- the tree ----------------------------------------------------------------------------------


def test_the_tree_reads_a_page_of_open_folders_only(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    with app.db.begin() as tx:
        tx.execute(
            "insert into items (connection_id, id, url, verdict, seen_at)"
            " select %s, url, url, case when n %% 3 = 0 then 'robots' else 'duplicate' end, now()"
            " from (select n, 'https://docs.example/part' || n %% 50 || '/' || n as url"
            "  from generate_series(1, 1500) n) as pages",
            (made.id,),
        )
        for number in range(250):
            saw(tx, made.id, f"https://docs.example/flat/{number:03}?q=/a/b", "near_duplicate")
    own = f"{ROOMS}/{made.id}/tree"
    top = me.get(own)
    flat = me.get(f"{own}?open=https://docs.example/&open=https://docs.example/flat/")
    more = tree(flat).css("a[data-turn]")
    after = [a.attributes["href"] or "" for a in more if a.text() == "More…"]
    second = me.get(after[0])
    closed = me.get(f"{own}?open=-")

    assert "duplicate 1,000" in " ".join(body(top).split())
    assert len(tree(top).css(".node")) == 1 + 51
    assert len(tree(flat).css(".node")) == 1 + 51 + 100
    assert "099?q=/a/b" in body(flat)
    assert "100?q=/a/b" not in body(flat)
    assert len(tree(second).css(".node")) == 100
    assert "100?q=/a/b" in body(second)
    assert len(tree(closed).css(".node")) == 1
    assert len(top.content) < 100_000
    with app.db.begin() as tx:
        assert (
            sum(
                sum(b.verdicts.values())
                for b in items.below(tx, made.id, "https://docs.example/", after="", limit=100)
            )
            == 1_750
        )


def test_a_folder_opens_and_closes_by_its_link(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    with app.db.begin() as tx:
        for rest in ("", "a/", "a/b/c", "a/b/d", "%C3%A4/x&y=1"):
            saw(tx, made.id, f"https://docs.example/{rest}", "robots")

    def folds(answer: httpx.Response) -> dict[str, tuple[str, str]]:
        return {
            fold.text(): (fold.attributes["aria-expanded"] or "", fold.attributes["href"] or "")
            for fold in tree(answer).css(".fold")
        }

    top = folds(me.get(f"{ROOMS}/{made.id}/tree"))
    opened = folds(me.get(top["a/"][1]))
    deeper = folds(me.get(opened["b/"][1]))
    strange = me.get(top["%C3%A4/"][1])
    shut = folds(me.get(deeper["a/"][1]))

    assert top["https://docs.example/"][0] == "true"
    assert top["a/"][0] == opened["b/"][0] == "false"
    assert opened["a/"][0] == deeper["b/"][0] == "true"
    assert "x&y=1" in body(strange)
    assert set(shut) == set(top)
    assert "b%2F" not in shut["a/"][1], "what was open in it is closed with it"


# --- who sees and does what --------------------------------------------------------------------

WRITES = (
    ("{id}/do", {"action": "pause"}),
    ("{id}/edit", {"limit": "1"}),
    ("{id}/pick", {"pick": "{}"}),
    ("{id}/delete", {"what": "all"}),
    ("new/web-crawler", {"m.startUrl": "http://127.0.0.1:9/"}),
)
LOOKS = ("", "/seen", "/tree")
WRITING_LOOKS = ("/edit", "/delete", "/authorize", "/pick")


def test_a_reading_key_sees_no_buttons_and_may_do_nothing(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    made = make(app, tenant)
    http = browse(new_key(app, org, scope=Scope.READ)[1])

    for path in (ROOMS, *(f"{ROOMS}/{made.id}{rest}" for rest in LOOKS)):
        page = http.get(path)
        assert page.status_code == 200
        assert len(tree(page).css("form[method=post]")) == 1, "signing out"
        assert not tree(page).css("a[href*='/new/'], a[href$='/edit'], a[href$='/delete']")
    for path in (*(f"{made.id}{rest}" for rest in WRITING_LOOKS), "new/s3"):
        assert http.get(f"{ROOMS}/{path}").status_code == 403, path
    for path, form in WRITES:
        target = path.replace("{id}", made.id)
        assert http.post(f"{ROOMS}/{target}", data=form).status_code == 403, path
    assert [get(app, tenant, made.id)] == all_of(app, tenant) == [made]
    assert http.get("/console/keys").status_code == 403
    assert http.post("/console/keys", data={"scope": "admin"}).status_code == 403
    assert http.get("/console/settings").status_code == 200
    assert not tree(http.get("/console/settings")).css("form.add button")
    assert http.post("/console/settings", data={}).status_code == 403
    links = [a.text() for a in tree(http.get(ROOMS)).css("nav[aria-label=Rooms] a")]
    assert links == [
        "Overview",
        "Search",
        "Ask",
        "Documents",
        "Memories",
        "Tags",
        "Connections",
        "Filters",
        "Webhooks",
        "Settings",
    ]


def test_a_key_limited_to_tags_sees_and_makes_connections_only_there(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    mine = make(app, tenant, tags=["mine"])
    theirs = make(app, tenant, tags=["theirs"], metadata={"startUrl": "https://theirs.example/"})
    both = make(app, tenant, tags=["mine", "theirs"])
    limited, secret = new_key(app, org, scope=Scope.ADMIN, tags=["mine"])
    http = browse(secret)

    shown = http.get(ROOMS)
    assert mine.id in shown.text
    assert "theirs" not in shown.text
    for other in (theirs, both):
        for rest in (*LOOKS, *WRITING_LOOKS):
            assert http.get(f"{ROOMS}/{other.id}{rest}").status_code == 404, rest
        for path, form in WRITES[:4]:
            assert (
                http.post(f"{ROOMS}/{path}".replace("{id}", other.id), data=form).status_code == 404
            )
    form = {"m.startUrl": "http://127.0.0.1:9/", "tags": "theirs"}
    assert http.post(f"{ROOMS}/new/web-crawler", data=form).status_code == 403
    assert http.post(f"{ROOMS}/{mine.id}/edit", data=form).status_code == 403
    assert http.post(f"{ROOMS}/new/web-crawler", data={**form, "tags": ""}).status_code == 303
    with app.db.begin() as tx:
        seen = connections.find(tx, Tenant(org.id, ["mine"]))
    assert [one.container_tags for one in seen] == [["mine"], ["mine"]]
    for room in ("keys", "settings", "filters"):
        assert http.get(f"/console/{room}").status_code == 403
        assert http.post(f"/console/{room}", data={"scope": "admin"}).status_code == 403
    assert limited.tags == ["mine"]
    assert http.get(f"/console/keys/{limited.id}/revoke").status_code == 403
    assert http.post(f"/console/keys/{limited.id}/revoke").status_code == 403


def test_another_organisations_things_do_not_exist(me: httpx.Client, app: App, tenant: Tenant):
    with app.db.begin() as tx:
        other = orgs.create(tx, f"other-{random_id()}", Plan.ENTERPRISE)
        foreign_key, _ = orgs.create_key(tx, other.id)
    foreign = make(app, Tenant(other.id))
    try:
        for id in (foreign.id, "absent"):
            for rest in (*LOOKS, *WRITING_LOOKS):
                assert me.get(f"{ROOMS}/{id}{rest}").status_code == 404, rest
            for path, form in WRITES[:4]:
                answer = me.post(f"{ROOMS}/{path}".replace("{id}", id), data=form)
                assert answer.status_code == 404, path
            assert me.get(f"{ROOMS}/back?connectionId={id}&status=connected").status_code == 404
        assert foreign.id not in me.get(ROOMS).text
        for id in (foreign_key.id, "absent"):
            assert me.get(f"/console/keys/{id}/revoke").status_code == 404
            assert me.post(f"/console/keys/{id}/revoke").status_code == 404
        assert foreign_key.id not in me.get("/console/keys").text
        assert get(app, Tenant(other.id), foreign.id) == foreign
        with app.db.begin() as tx:
            assert orgs.key(tx, foreign_key.id).revoked_at is None
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (other.id,))


def test_other_sites_cannot_post(
    browse: Callable[..., httpx.Client], app: App, tenant: Tenant, key: str
):
    made = make(app, tenant)
    http = browse(key)
    del http.headers["sec-fetch-site"]
    with app.db.begin() as tx:
        before = orgs.list_keys(tx, tenant.id)
    rooms = [(f"{ROOMS}/{path}".replace("{id}", made.id), form) for path, form in WRITES]
    rooms += [("/console/keys", {"scope": "admin"}), ("/console/settings", {"filterPrompt": "x"})]
    rooms += [(f"/console/keys/{before[0].id}/revoke", {})]
    for path, form in rooms:
        for headers in ({}, {"origin": "https://example.com"}, {"sec-fetch-site": "cross-site"}):
            assert http.post(path, data=form, headers=headers).status_code == 403, path

    assert all_of(app, tenant) == [made]
    with app.db.begin() as tx:
        assert orgs.list_keys(tx, tenant.id) == before
        assert settings.read(tx, tenant.id) == settings.DEFAULTS


# --- keys --------------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_does_what_it_says(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, tenant: Tenant
):
    form = {"name": "robot <b>", "scope": "write", "tags": "docs, team:a", "expires": "30"}
    answer = me.post("/console/keys", data={**form, "limit": "120"})
    secret = one(answer, "#secret").text()
    found = browse(secret)
    listed = me.get("/console/keys")

    assert secret.startswith("sm_")
    assert answer.headers["cache-control"] == "no-store"
    assert found.get("/console/add").status_code == 200
    assert secret not in listed.text
    assert secret.split("_")[2] not in listed.text
    assert "robot <b>" in body(listed)
    for shown in (answer, listed):
        assert "at most 120 requests per minute" in body(shown)
    with app.db.begin() as tx:
        made = orgs.authenticate(tx, secret)
        row = tx.execute("select rate_limit from keys where id = %s", (made.id,)).fetchone()
        audited = audit.find(tx, org=tenant.id, action="key.created")
        mine = orgs.list_keys(tx, tenant.id)[0].id
    assert (made.scope, made.tags, made.name) == (Scope.WRITE, ["docs", "team:a"], "robot <b>")
    [told] = [one for one in audited if one.object == made.id]
    assert told.actor == f"key:{mine}"
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).days in (29, 30)
    assert row == {"rate_limit": 120}


def test_a_key_is_revoked_after_a_question(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org
):
    made, secret = new_key(app, org, name="robot")
    theirs = browse(secret)
    asked = me.get(f"/console/keys/{made.id}/revoke")
    still = theirs.get("/console").status_code
    done = me.post(f"/console/keys/{made.id}/revoke")

    assert "Revoke this key?" in body(asked)
    assert "signed out" not in body(asked)
    assert still == 200
    assert "is revoked" in body(me.get(done.headers["location"]))
    assert theirs.get("/console").status_code == 303


def test_revoking_ones_own_key_ends_the_session(
    browse: Callable[..., httpx.Client], app: App, org: Org
):
    made, secret = new_key(app, org)
    http = browse(secret)
    asked = http.get(f"/console/keys/{made.id}/revoke")
    done = http.post(f"/console/keys/{made.id}/revoke")

    assert "you will be signed out" in body(asked)
    assert done.headers["location"] == "/console/login"
    assert http.get("/console/keys").status_code == 303


@pytest.mark.parametrize(
    "form",
    [
        {"scope": "owner"},
        {},
        {"scope": "read", "expires": "0"},
        {"scope": "read", "expires": "1e3"},
        {"scope": "read", "expires": "9" * 5000},
        {"scope": "read", "limit": "-1"},
        {"scope": "read", "tags": "no/tag"},
        {"scope": "read", "name": "x" * 101},
        {"scope": "read", "name": "a\nb"},
    ],
)
def test_a_key_that_cannot_be_is_not_made(
    me: httpx.Client, app: App, org: Org, form: dict[str, str]
):
    assert me.post("/console/keys", data=form).status_code == 400
    with app.db.begin() as tx:
        assert len(orgs.list_keys(tx, org.id)) == 1


def test_keys_are_paged_with_those_that_open_something_first(me: httpx.Client, app: App, org: Org):
    for number in range(60):
        made, _ = new_key(app, org, name=f"key{number}")
        if number % 2:
            with app.db.begin() as tx:
                orgs.revoke_key(tx, made.id)

    first, second = me.get("/console/keys"), me.get("/console/keys?page=2")
    assert len(tree(first).css(".keys tbody tr")) == 50
    assert len(tree(second).css(".keys tbody tr")) == 11
    assert not tree(second).css("a[href$='/revoke']")
    assert me.get("/console/keys?page=3").status_code == 404


# --- settings ----------------------------------------------------------------------------------


def stored(app: App, tenant: Tenant) -> dict[str, Any]:
    with app.db.begin() as tx:
        return settings.read(tx, tenant.id)


def test_patterns_and_prompts_are_kept_and_tried(me: httpx.Client, app: App, tenant: Tenant):
    form = {
        "excludeItems.urlPatterns": " */drafts/* \r\n\r\n*.bak",
        "includeItems.titlePatterns": "Minutes*",
        "filterPrompt": "Only minutes.",
    }
    saved = me.post("/console/filters", data=form)
    now = stored(app, tenant)

    def tried(**query: str) -> str:
        return one(me.get("/console/filters", params=query), ".tried").text()

    assert saved.headers["location"] == "/console/filters?done=saved"
    assert now["excludeItems"] == {"urlPatterns": ["*/drafts/*", "*.bak"], "titlePatterns": []}
    assert now["includeItems"] == {"urlPatterns": [], "titlePatterns": ["Minutes*"]}
    assert now["filterPrompt"] == "Only minutes."
    assert "excludeItems: */drafts/*" in tried(url="https://x/drafts/1", title="Minutes of May")
    assert "no pattern matches" in tried(url="https://x/1", title="Other")
    assert "Comes in" in tried(title="minutes of May")
    me.post("/console/filters", data={})
    assert stored(app, tenant) == settings.DEFAULTS


def fields(answer: httpx.Response) -> dict[str, str]:
    """What a browser would send of the form as it stands."""
    return {
        str(field.attributes["name"]): field.attributes.get("value") or field.text()
        for field in tree(answer).css("form.add [name]:not(button)")
        if field.attributes.get("type") != "checkbox" or "checked" in field.attributes
    }


def test_saving_the_page_as_it_is_changes_nothing(me: httpx.Client, app: App, tenant: Tenant):
    keys = secret_keys(app.config)
    given = {
        "includeItems": {"urlPatterns": ["a", "b"]},
        "shouldLLMFilter": True,
        "filterPrompt": "x",
        "chunkSize": 400,
        "githubCustomKeyEnabled": True,
        "githubClientId": "id",
        "githubClientSecret": "s3cret-canary",
    }
    with app.db.begin() as tx:
        before = settings.patch(tx, tenant.id, given, keys=keys)
    page = me.get("/console/settings")
    form = fields(page)
    filters = {n: v for n, v in fields(me.get("/console/filters")).items() if n != "connection"}
    assert me.post("/console/filters", data=filters).status_code == 303
    saved = me.post("/console/settings", data=form)

    assert "canary" not in page.text
    assert saved.status_code == 303
    assert stored(app, tenant) == before
    me.post("/console/settings", data={**form, "githubClientSecret": "newer"})
    with app.db.begin() as tx:
        assert settings.secret(tx, tenant.id, "githubClientSecret", keys=keys) == "newer"
    rest = {n: v for n, v in form.items() if n != "githubCustomKeyEnabled"}
    me.post("/console/settings", data={**rest, "githubClientSecret.forget": "on"})
    assert stored(app, tenant)["githubClientSecret"] is None


def test_an_application_of_ones_own_opens_its_tile(me: httpx.Client):
    form = {"githubCustomKeyEnabled": "on", "githubClientId": "id"}
    half = me.post("/console/settings", data=form)
    whole = me.post("/console/settings", data={**form, "githubClientSecret": "s3cret"})
    page = me.get(f"{ROOMS}/new/github")

    assert half.status_code == 400
    assert "GitHub" in one(half, "[role=alert]").text()
    assert one(half, "[name=githubClientId]").attributes["value"] == "id"
    assert whole.status_code == 303
    assert "opens github.com" in body(page)


def test_buckets_of_the_organisation_are_set_and_taken_away(
    me: httpx.Client, app: App, tenant: Tenant
):
    typed = {"profileBuckets": "health: Illnesses: all\r\n\r\nwork"}
    assert me.post("/console/settings", data=typed).status_code == 303
    kept = stored(app, tenant)["profileBuckets"]
    shown = one(me.get("/console/settings"), "#profileBuckets").text()
    refused = [
        me.post("/console/settings", data={"profileBuckets": line})
        for line in (
            "No Key: x",
            "static: x",
            "a: " + "x" * 2_001,
            "\n".join(f"k{n}" for n in range(51)),
        )
    ]
    assert me.post("/console/settings", data={"profileBuckets": " "}).status_code == 303

    assert kept == [{"key": "health", "description": "Illnesses: all"}, {"key": "work"}]
    assert shown.split("\n") == ["health: Illnesses: all", "work"]
    assert [answer.status_code for answer in refused] == [400] * 4
    assert not stored(app, tenant)["profileBuckets"]


def test_settings_beyond_their_bounds_are_refused(me: httpx.Client, app: App, tenant: Tenant):
    for form in (
        {"includeItems.urlPatterns": "x" * 1001},
        {"excludeItems.titlePatterns": "\n".join("x" * 1001)},
        {"filterPrompt": "x" * 10_001},
    ):
        for action in ("save", "try"):
            answer = me.post("/console/filters", data={**form, "action": action})
            assert answer.status_code == 400
    for form in ({"githubClientId": "x" * 1001}, {"workspacePrompt": "x" * 10_001}):
        assert me.post("/console/settings", data=form).status_code == 400
    assert stored(app, tenant) == settings.DEFAULTS


# --- text stays text ---------------------------------------------------------------------------


def hostile(app: App, tenant: Tenant, payload: str, provider: str = "web-crawler") -> Connection:
    """A connection with the payload in everything that is ever shown of it."""
    made = make(app, tenant, provider)
    with app.db.begin() as tx:
        tx.execute(
            "update connections set email = %(x)s, account = %(x)s, container_tags = array[%(x)s],"
            " metadata = jsonb_build_object('startUrl', %(x)s::text, %(x)s::text, %(x)s::text,"
            "  'resources', jsonb_build_array(jsonb_build_object('id', '1', 'name', %(x)s::text))),"
            " state = 'needs_auth', error_code = %(x)s, error_message = %(x)s where id = %(id)s",
            {"x": payload, "id": made.id},
        )
        tx.execute(
            "insert into registrations (id, connection_id, resource, secret, url, error)"
            " values (%s, %s, 'x', 'x', 'x', %s)",
            (random_id(), made.id, payload),
        )
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, notes,"
            " skipped, error_code, error_message) values (%(run)s, %(id)s, 'cron', 'failed', now(),"
            " array[%(x)s, 'other'], jsonb_build_object(%(x)s::text, 1), %(x)s, %(x)s)",
            {"x": payload, "id": made.id, "run": random_id()},
        )
        for address in (payload, f"https://docs.example/{payload}/x", f"https://{payload}/"):
            saw(tx, made.id, address, payload, payload)
    return made


def pages_of(made: Connection) -> list[str]:
    return [
        ROOMS,
        *(f"{ROOMS}/{made.id}{rest}" for rest in ("", "/seen", "/edit", "/delete")),
        f"{ROOMS}/{made.id}/tree?open=-",
        f"{ROOMS}/{made.id}/tree?open={quote('https://docs.example/', safe='')}",
    ]


def test_stored_markup_is_shown_and_never_becomes_markup(
    me: httpx.Client, app: App, tenant: Tenant
):
    def shape(answer: httpx.Response) -> list[tuple[str, tuple[str, ...]]]:
        """Elements and attributes, which are the same whatever the text."""
        assert answer.status_code == 200, answer.text
        found = [(n.tag or "", tuple(sorted(n.attributes))) for n in tree(answer).css("*")]
        return sorted(found)  # addresses stand in the order of their letters

    plain = {}
    for payload in (HARMLESS, *PAYLOADS):
        if "/" in payload or "?" in payload or "#" in payload:
            continue  # in an address they make folders, which is a shape of its own
        made = hostile(app, tenant, payload)
        for path in pages_of(get(app, tenant, made.id)):
            key = path.replace(made.id, "ID")
            found = shape(me.get(path))
            assert found == plain.setdefault(key, found), (path, payload)
        with app.db.begin() as tx:
            tx.execute("delete from connections where id = %s", (made.id,))
    assert len(plain) >= 7


def test_only_web_addresses_become_links(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    with app.db.begin() as tx:
        for address in ("javascript:alert(1)", "data:text/html,x", "https://docs.example/"):
            saw(tx, made.id, address, "robots")
    links = [a.attributes["href"] for a in tree(me.get(f"{ROOMS}/{made.id}/seen")).css("tbody a")]

    assert links == ["https://docs.example/"]


def test_no_input_is_an_error_of_ours(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    strange = "%00%ED%A0%80%FF/../%27%22<"
    for path in (
        f"?tag={strange}&provider={strange}&page=999999",
        f"?page={'9' * 30}",
        f"/new/{strange}",
        f"/{strange}",
        f"/{made.id}?done={strange}&refused={strange}",
        f"/{made.id}/seen?verdict={strange}&q={strange}&page=1000000",
        f"/{made.id}/tree?open={strange}&root={strange}&after={strange}",
        f"/{made.id}/tree?" + "&".join(["open=x"] * 40),
        f"/back?connectionId={strange}&status={strange}&error={strange}",
    ):
        assert me.get(ROOMS + path).status_code in (200, 303, 400, 404), path
    for path in ("do", "edit", "pick", "delete"):
        for form in ({"action": "\0", "what": "\0", "pick": "\0", "m.startUrl": "\0\ud7ff"}, {}):
            answer = me.post(f"{ROOMS}/{made.id}/{path}", data=form)
            assert answer.status_code in (303, 400, 422, 501), (path, answer.status_code)
    many = {"pick": ["{}"] * 1200}
    assert me.post(f"{ROOMS}/{made.id}/pick", data=many).status_code == 400
    assert me.get(f"/console/filters?url={strange}").status_code in (200, 400)
    assert me.get(f"/console/keys/{strange}/revoke").status_code in (400, 404)
