"""The rooms of connections, keys and settings in a headless Chromium."""

import pytest

from recollect.app import App
from recollect.model import Connection, Tenant, random_id
from recollect.sync import connections
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.console.test_console import PAYLOADS
from tests.console.test_console_connections import cabinet, hostile, make, pages_of, saw
from tests.e2e.browser import NEEDS_CHROMIUM, SOME, Tab, misfits, nameless
from tests.fakes.cabinet import Cabinet
from tests.fakes.site import Site

pytestmark = NEEDS_CHROMIUM
__all__ = ["cabinet"]
ROOMS = "/console/connections"


def one_of(app: App, tenant: Tenant) -> Connection:
    with app.db.begin() as tx:
        [found] = connections.find(tx, tenant)
    return found


def test_a_site_is_connected_and_its_tree_grows(room: Tab, app: App, tenant: Tenant, site: str):
    with Site() as web:
        web.write("/", "The start.", links=["/guide/one", "/private/x"])
        web.write("/guide/one", "The first page of the guide is about herons.")
        web.robots("User-agent: *\nDisallow: /private\nCrawl-delay: 0")
        room.click("nav a[href='/console/connections']")
        room.click("a[href='/console/connections/new/web-crawler']")
        room.type("[name='m.startUrl']", web.url())
        room.type("#tags", "docs")
        room.click(".add .actions button")
        created = room.text()
        made = one_of(app, tenant)
        room.open(f"{site}{ROOMS}/{made.id}/tree")
        before = room.text()
        room.js("window.same = true")
        syncs.drain(app)
        drain(app)
        eventually(lambda: "robots" in room.text() and "3 addresses" in room.text("#say"))

    assert "The first sync begins" in created
    assert "No items yet" in before
    assert room.js("window.same")
    room.js("document.querySelectorAll('.fold')[1].click()")
    eventually(lambda: "one" in room.text(".tree .tree .tree"))
    assert room.js("window.same")
    assert "open=" in room.js("location.search")
    room.click("a[href='/console/connections']")
    assert "2 new" in room.text(".connections")
    assert room.complaints == []


def test_a_folder_is_opened_and_closed_by_keyboard(room: Tab, app: App, tenant: Tenant, site: str):
    made = make(app, tenant)
    with app.db.begin() as tx:
        for rest in ("a/1", "a/2", "b/1"):
            saw(tx, made.id, f"https://docs.example/{rest}", "robots")
    room.open(f"{site}{ROOMS}/{made.id}/tree")
    fold = "document.querySelectorAll('.fold')[1]"

    for state in ("true", "false"):
        room.js(f"{fold}.focus()")
        room.press("Enter", 13)
        eventually(lambda state=state: room.js(f"{fold}.ariaExpanded") == state)
        assert room.js(f"document.activeElement === {fold}")
    assert room.complaints == []


def test_a_running_sync_is_watched_without_loading_the_page(
    room: Tab, app: App, tenant: Tenant, site: str
):
    made = make(app, tenant)
    run = random_id()
    with app.db.begin() as tx:
        tx.execute(
            "update connections set state = 'syncing', due_at = now() + interval '1 hour'"
            " where id = %s",
            (made.id,),
        )
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status)"
            " values (%s, %s, 'manual', 'running')",
            (run, made.id),
        )
    room.open(f"{site}{ROOMS}/{made.id}")
    before = room.text(".runs")
    room.js("window.same = true")
    with app.db.begin() as tx:
        tx.execute(
            "update sync_runs set added = 41, status = 'completed', finished_at = now()"
            " where id = %s",
            (run,),
        )
        tx.execute(
            "update connections set state = 'ready', due_at = null where id = %s", (made.id,)
        )
    eventually(lambda: "completed" in room.text(".runs"))

    assert "running" in before
    assert "41" in room.text(".runs")
    assert room.js("window.same")
    assert room.text("#say") == "completed: 41 new, 0 changed, 0 removed"


def test_a_connection_is_authorized_by_a_person(
    tab: Tab, app: App, tenant: Tenant, key: str, cabinet: tuple[Cabinet, str]
):
    provider, url = cabinet
    tab.open(f"{url}{ROOMS}")
    tab.type("#key", key)
    tab.click("form button")
    tab.click("a[href='/console/connections/new/cabinet']")
    tab.click(".add .actions button")
    link = tab.js("document.querySelector('main a.button').href")
    # As the provider's page would send the browser back, from another site.
    back = provider.authorization.consent(link, user="ann@example.com")
    tab.open(back)
    tab.until("document.querySelector('h1')?.innerText.includes('ann@example.com')")
    tab.arrived()

    assert "Authorized." in tab.text(".notice")
    assert tab.complaints == []


def test_a_key_is_made_copied_and_revoked(room: Tab, site: str):
    room.send(
        "Browser.grantPermissions",
        origin=site,
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    room.click("nav a[href='/console/keys']")
    room.type("#name", "robot")
    room.click(".add .actions button")
    secret = room.text("#secret")
    room.js("document.querySelector('[data-copy]').click()")
    eventually(lambda: room.text("#say") == "Copied")
    assert room.js("navigator.clipboard.readText()") == secret
    room.click("main a[href='/console/keys']")
    assert secret not in room.text()
    room.click(f"a[href*='{secret.split('_')[1]}']")
    room.click("main form button")
    assert "is revoked" in room.text(".notice")


@pytest.mark.parametrize("some", SOME)
def test_no_stored_script_ever_runs(room: Tab, app: App, tenant: Tenant, site: str, some: slice):
    for payload in PAYLOADS[some]:
        made = hostile(app, tenant, payload)
        for path in pages_of(made):
            room.open(f"{site}{path}")
            assert room.js("typeof window.ran") == "undefined", (path, payload)
            assert room.js("location.pathname") == path.partition("?")[0]
        room.open("about:blank")  # a page would follow what goes now
        with app.db.begin() as tx:
            tx.execute("delete from connections where id = %s", (made.id,))
    assert room.complaints == []


@pytest.fixture
def furnished(app: App, tenant: Tenant) -> list[str]:
    """Paths of all pages, with something of everything on them; long words included."""
    long = "unbroken" * 20
    crawl = hostile(app, tenant, long)
    fine = make(app, tenant, tags=["notes", "x" * 100])
    pending = make(app, tenant, "github", pending=True)
    with app.db.begin() as tx:
        for number, verdict in enumerate(("robots", "error", "planned", "off_host", "document")):
            saw(tx, fine.id, f"https://docs.example/a/{number}/{long}", verdict, long)
    rooms = [
        *pages_of(crawl),
        *pages_of(fine),
        f"{ROOMS}/{pending.id}?refused=refused",
        f"{ROOMS}/new/s3",
        f"{ROOMS}/new/web-crawler",
        f"{ROOMS}/new/github",
        f"{ROOMS}/absent",
        "/console/keys",
        "/console/settings",
        "/console/filters?url=x",
    ]
    return list(dict.fromkeys(rooms))


def test_pages_fit_a_telephone_and_can_be_read(room: Tab, site: str, furnished: list[str]):
    assert [wrong for path in furnished for wrong in misfits(room, site + path, 390)] == []


def test_everything_has_a_name_and_a_place(room: Tab, site: str, furnished: list[str]):
    for path in furnished:
        room.open(site + path)
        assert nameless(room) == [], path
        assert room.js("document.querySelectorAll('h1').length") == 1, path
        assert room.js("[...document.querySelectorAll('table')].every(t => t.caption)"), path
        twice = room.js(
            "[...document.querySelectorAll('[id]')].map(n => n.id)"
            ".filter((id, at, all) => all.indexOf(id) !== at)"
        )
        assert twice == [], path


def test_without_scripts_everything_still_works(room: Tab, site: str, app: App, tenant: Tenant):
    room.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        room.open(f"{site}{ROOMS}/new/web-crawler")
        room.type("[name='m.startUrl']", "http://127.0.0.1:9/a")
        room.click("button[value=connect]")
        room.click("button[value=pause]")
        assert "Paused" in room.text(".notice")
        room.click("button[value=resume]")
        made = one_of(app, tenant)
        with app.db.begin() as tx:
            for rest in ("b/1", "b/2"):
                saw(tx, made.id, f"http://127.0.0.1:9/{rest}", "robots")
        room.open(f"{site}{ROOMS}/{made.id}/tree")
        room.click(".tree .tree .fold")
        assert room.text(".tree .tree .tree").split()[0] == "1"
        room.click("a[href$='/edit']")
        room.js("document.querySelector('#limit').value = ''")
        room.type("#limit", "5")
        room.click(".add .actions button")
        room.click("a[href$='/delete']")
        room.click("button[value=all]")
        assert "deleted for good" in room.text(".notice")
    finally:
        room.send("Emulation.setScriptExecutionDisabled", value=False)
