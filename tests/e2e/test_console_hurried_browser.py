"""What a hurried person meets in a headless Chromium: faults, reloads, ends, and a service away."""

from recollect.app import App
from recollect.model import Tenant
from tests.conftest import eventually
from tests.console.test_console import add
from tests.console.test_console_changing import all_of
from tests.e2e.browser import NEEDS_CHROMIUM, Tab
from tests.e2e.test_console_browser import checked, choose

pytestmark = NEEDS_CHROMIUM
REGION = "document.querySelector('[data-live]')"
SEEN = "document.querySelector('#say').getBoundingClientRect().height > 10"
SLOW = 20_000
"""bytes in a second"""


def test_tab_begins_at_the_top_of_the_page(room: Tab, site: str):
    room.open(f"{site}/console/settings")
    room.press("Tab", 9)

    assert room.js("document.activeElement.className") == "skip"


def test_what_is_wrong_is_said_beside_its_field(room: Tab, site: str):
    room.open(f"{site}/console/keys")
    room.type("#expires", "never ever")
    room.click(".add .actions button")

    assert room.js("document.activeElement.id") == "expires"
    assert room.js("document.activeElement.ariaInvalid") == "true"
    assert room.js("document.activeElement.getAttribute('aria-describedby')") == "fault"
    assert room.js("document.querySelector('#fault').closest('.field').contains(expires)")
    assert "Expires: how long" in room.text("#fault")


def test_a_page_with_a_secret_makes_no_other_when_it_is_loaded_again(room: Tab, site: str):
    room.open(f"{site}/console/keys")
    room.type("#name", "robot")
    room.click(".add .actions button")
    secret = room.text("#secret")
    room.js("window.left = true")
    room.send("Page.reload")
    room.arrived()

    assert secret.startswith("sm_")
    assert room.text("h1") == "Keys"
    assert room.js("document.querySelectorAll('.keys tbody tr').length") == 2  # mine and this


def test_the_end_of_a_session_is_seen_on_an_open_page(room: Tab, site: str):
    room.open(f"{site}/console/documents")
    eventually(lambda: room.js(f"{REGION}.heard === true"))
    before = room.js(SEEN)
    room.js("fetch('/console/logout', {method: 'POST', redirect: 'manual'}).then(() => null)")
    eventually(lambda: "Your session has ended" in room.text("#say"), 60)

    assert not before
    assert room.js(SEEN)
    assert room.js(f"{REGION}.source") is None


def test_a_service_that_is_away_is_seen_and_comes_back_by_itself(
    room: Tab, app: App, tenant: Tenant, site: str
):
    add(app, tenant, "a text")  # unfinished, so the page asks for it
    room.send("Network.enable")
    room.open(f"{site}/console/documents")
    eventually(lambda: room.js(f"{REGION}.heard === true"))
    try:
        room.send("Network.setBlockedURLs", urls=["*part=live*"])
        add(app, tenant, "another", title="Another")
        eventually(lambda: "The service does not answer" in room.text("#say"), 60)
        away = room.js(SEEN)
    finally:
        room.send("Network.setBlockedURLs", urls=[])
    eventually(lambda: not room.js(SEEN), 60)

    assert away
    assert "Another" in room.text("tbody")
    room.complaints.clear()


def test_a_file_is_taken_back_while_it_is_sent(room: Tab, app: App, tenant: Tenant, site: str):
    room.send("Network.enable")
    room.open(f"{site}/console/add")
    large = "new File(['A heron. '.repeat(300_000)], 'large \u202e.txt')"
    choose(room, large, "new File(['A small heron.'], 'small.txt')")
    checked(room, 2)
    throttled = {"offline": False, "latency": 0, "downloadThroughput": -1}
    room.send("Network.emulateNetworkConditions", uploadThroughput=SLOW, **throttled)
    try:
        room.js("document.querySelector('form.add .actions button').click()")
        eventually(lambda: room.js("!document.querySelector('.files progress').hidden"))
        isolated = room.text(".files bdi")
        room.js("window.left = true; document.querySelector('.files button').click()")
    finally:
        room.send("Network.emulateNetworkConditions", uploadThroughput=-1, **throttled)
    room.arrived()

    assert isolated == "large \u202e.txt"
    assert room.js("location.pathname") == "/console/progress"
    [added] = all_of(app, tenant)
    assert added.title == "small.txt"
