"""The console as a person uses it: a headless Chromium, driven over its DevTools protocol."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.sync.client import ClientConnection, connect

from recollect.app import App
from recollect.model import Tenant
from recollect.worker import drain
from tests.conftest import eventually
from tests.integration.test_console import PAYLOADS, add, all_of, console_site, fail, hostile

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
pytestmark = pytest.mark.skipif(not os.access(CHROMIUM, os.X_OK), reason=f"{CHROMIUM} is not here")


class Tab:
    """One page of a browser: commands, JavaScript, and what the page complained of."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []

    def attach(self) -> Self:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        made = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = made["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.send(f"{domain}.enable")
        return self

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=30))
            self._note(answer)
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _note(self, event: dict[str, Any]) -> None:
        """Keep script errors, blocked resources, and dialogs that nobody asked for."""
        match event.get("method"):
            case "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error" or entry["source"] == "security":
                    self.complaints.append(entry["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(event["params"]["exceptionDetails"]))
            case "Page.javascriptDialogOpening":
                self.complaints.append("dialog: " + event["params"]["message"])
                number = next(self._numbers)
                close = {"id": number, "method": "Page.handleJavaScriptDialog"}
                close |= {"params": {"accept": True}, "sessionId": self._session}
                self._socket.send(json.dumps(close))
            case _:
                pass

    def js(self, expression: str) -> Any:
        made = self.send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in made, made["exceptionDetails"]
        return made["result"].get("value")

    def open(self, url: str) -> None:
        """Go there and wait until it stands."""
        self.js("window.left = true")
        self.send("Page.navigate", url=url)
        self.arrived()

    def arrived(self) -> None:
        """Wait for the page that a click or a link leads to."""
        eventually(lambda: self.js("!window.left && document.readyState === 'complete'"), 30)

    def click(self, selector: str) -> None:
        """Click what leads to another page."""
        self.js(f"window.left = true; document.querySelector({json.dumps(selector)}).click()")
        self.arrived()

    def type(self, selector: str, text: str) -> None:
        self.js(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind, more in (("keyDown", text), ("keyUp", {})):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more
            )

    def text(self, selector: str = "main") -> str:
        return self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")


@contextmanager
def browser() -> Generator[Tab]:
    """A Chromium of our own, with a profile that nobody used before."""
    profile = Path(tempfile.mkdtemp(prefix="recollect-chromium-"))
    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = profile / "DevToolsActivePort"
        eventually(lambda: said.exists() and len(said.read_text().splitlines()) == 2, 60)
        port, path = said.read_text().splitlines()
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as socket:
            yield Tab(socket).attach()
            socket.send(json.dumps({"id": 0, "method": "Browser.close"}))
            process.wait(20)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(profile, ignore_errors=True)


CONTRAST = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".hidden, .skip, option")) continue;
    const [a, b] = [light(parts(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${node.tagName} ${node.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return faint;
})()
"""


@pytest.fixture(scope="module")
def site(app: App) -> Generator[str]:
    with console_site(app) as url:
        yield url


@pytest.fixture(scope="module")
def chromium() -> Generator[Tab]:
    with browser() as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Tab:
    """A browser in which nobody is signed in."""
    chromium.open("about:blank")  # what the test before left open would go on following
    chromium.send("Network.clearBrowserCookies")
    chromium.send("Emulation.setFocusEmulationEnabled", enabled=True)
    chromium.complaints.clear()
    return chromium


@pytest.fixture
def room(tab: Tab, site: str, key: str) -> Tab:
    """Signed in with this test's key, at the overview."""
    tab.open(f"{site}/console")
    tab.type("#key", key)
    tab.click("form button")
    assert tab.text("h1") == "Overview"
    return tab


def test_signing_in_by_hand(tab: Tab, site: str, key: str):
    tab.open(f"{site}/console/documents?status=failed")
    tab.type("#key", key[:-1])
    tab.js("window.left = true")
    tab.press("Enter", 13)
    tab.arrived()
    refused = tab.text()
    tab.type("#key", key)
    tab.click("form button")

    assert "This key opens nothing" in refused
    assert tab.js("location.pathname + location.search") == "/console/documents?status=failed"
    assert tab.js("document.cookie") == ""
    tab.click(".who button")
    tab.open(f"{site}/console")
    assert tab.js("location.pathname") == "/console/login"


def test_a_link_from_another_site_finds_the_session(room: Tab, site: str):
    elsewhere = site.replace("127.0.0.1", "localhost")
    room.open(f"{elsewhere}/docs-of-another-site")
    room.js(
        f"const a = document.createElement('a'); a.href = '{site}/console/add';"
        " window.left = true; document.body.append(a); a.click()"
    )
    room.arrived()

    eventually(lambda: room.js("location.pathname") == "/console/add", 20)


def test_what_is_added_is_watched_until_it_is_searchable(
    room: Tab, app: App, tenant: Tenant, site: str
):
    room.click("nav a[href='/console/add']")
    room.type("#content", "The heron <b>wades</b> at dusk.")
    room.type("#tag", "birds")
    room.js("document.querySelector('[data-more]').click()")
    room.type("tr:last-child input[name=key]", "topic")
    room.type("tr:last-child input[name=value]", "herons")
    room.click(".add .actions button")
    before = room.text()
    room.js("window.same = true")
    drain(app)
    eventually(lambda: "All finished." in room.text(), 20)

    assert "0 of 1 document finished." in before
    assert "queued" in before
    assert room.js("window.same")
    assert room.text("#say") == "All finished"
    assert "1 chunk, searchable" in room.text()
    room.click("main .row a")
    assert "The heron <b>wades</b> at dusk." in room.text(".prose")
    assert "topic" in room.text(".facts")
    assert room.complaints == []


def test_files_are_dropped_and_added(room: Tab, app: App, tenant: Tenant):
    room.click("nav a[href='/console/add']")
    room.js("""
      const files = new DataTransfer();
      files.items.add(new File(["# Egret\\n\\nwhite"], "egret <i>.md", {type: "text/markdown"}));
      files.items.add(new File(["crane"], "crane.txt", {type: "text/plain"}));
      const zone = document.querySelector("[data-drop]");
      for (const name of ["dragover", "drop"]) {
        zone.dispatchEvent(new DragEvent(name, {
          dataTransfer: files, bubbles: true, cancelable: true}));
      }
    """)
    listed = room.text("[data-chosen]")
    room.click(".add .actions button")
    drain(app)
    eventually(lambda: "All finished." in room.text(), 20)

    assert listed.splitlines() == ["egret <i>.md · 1 kB", "crane.txt · 1 kB"]
    assert sorted(document.title or "" for document in all_of(app, tenant)) == [
        "Egret",
        "crane.txt",
    ]


def test_a_file_too_large_is_refused_before_it_is_sent(room: Tab):
    room.click("nav a[href='/console/add']")
    said = room.js("""
      const files = new DataTransfer();
      files.items.add(new File([new Uint8Array(50 * 1024 * 1024 + 1)], "big.txt"));
      const input = document.querySelector("#file");
      input.files = files.files;
      input.dispatchEvent(new Event("change", {bubbles: true}));
      input.validationMessage
    """)

    assert said == "big.txt is larger than 50 MB."


def test_a_hit_opens_the_document_at_its_place(room: Tab, app: App, tenant: Tenant):
    filler = "\n\n".join(f"# Part {n}\n\n{f'Filling number {n} here. ' * 45}" for n in range(130))
    add(app, tenant, filler + "\n\n# Last\n\nTwo egrets were wading at dusk.")
    drain(app)
    room.click("nav a[href='/console/playground']")
    room.type("#q", "wading egret")
    room.click(".search button")
    room.click(".hits h2 a")
    place = room.js("document.querySelector('.chunk.wanted').getBoundingClientRect().toJSON()")
    height = room.js("innerHeight")

    assert 0 <= place["top"] < height
    assert "egrets" in room.js(
        "[...document.querySelectorAll('.wanted mark')].map(m => m.innerText)"
    )
    assert room.js("document.querySelector('.chunk.wanted').id === location.hash.slice(1)")


def test_code_is_copied(room: Tab, app: App, tenant: Tenant, site: str):
    add(app, tenant, "a heron")
    drain(app)
    room.send(
        "Browser.grantPermissions",
        origin=site,
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    room.open(f"{site}/console/playground?q=heron+%26+%27egret%27")
    room.js("document.querySelector('[data-copy]').click()")
    eventually(lambda: room.text("#say") == "Copied", 10)

    shown = room.js("document.querySelector('.code pre').textContent")
    assert "YOUR_KEY" in shown
    assert room.js("navigator.clipboard.readText()") == shown


def test_what_is_ticked_stays_ticked_while_the_table_is_refreshed(
    room: Tab, app: App, tenant: Tenant
):
    for number in range(3):
        add(app, tenant, f"text {number}", title=f"Title {number}")
    room.click("nav a[href='/console/documents']")
    room.js("document.querySelectorAll('input[name=id]')[1].click()")
    room.js("document.querySelectorAll('input[name=id]')[1].focus()")
    ticked = room.js("document.activeElement.value")
    drain(app)
    eventually(lambda: "queued" not in room.text("tbody"), 20)

    assert room.js("[...document.querySelectorAll('tbody input:checked')].map(i => i.value)") == [
        ticked
    ]
    assert room.js("document.activeElement.value") == ticked
    assert room.text("#say") == "0 documents on this page unfinished"


def test_selecting_all_and_deleting(room: Tab, app: App, tenant: Tenant):
    for number in range(3):
        add(app, tenant, f"text {number}")
    drain(app)
    room.click("nav a[href='/console/documents']")
    room.js("document.querySelector('#all').click()")
    room.click("button[value=delete]")
    asked = room.text("h1")
    still = len(all_of(app, tenant))
    room.click("button[value=delete]")

    assert asked == "Delete 3 documents?"
    assert still == 3
    assert "3 documents deleted for good." in room.text(".notice")
    assert all_of(app, tenant) == []


def test_an_ended_session_is_told_and_not_asked_for_again(room: Tab, app: App, tenant: Tenant):
    add(app, tenant, "waits")
    room.click("nav a[href='/console/documents']")
    room.send("Network.clearBrowserCookies")
    eventually(lambda: "session has ended" in room.text("#say"), 20)

    assert "queued" in room.text("tbody")


def test_no_stored_script_ever_runs(room: Tab, app: App, tenant: Tenant, site: str):
    made = hostile(app, tenant, PAYLOADS)
    room.js("document.title")
    places = ["", "/documents?size=100", "/playground?q=needle&limit=100"]
    places += [f"/documents/{document.id}?q=needle" for document in made]
    progress = "&".join(f"id={document.id}" for document in made)
    for place in [*places, f"/progress?{progress}"]:
        room.open(f"{site}/console{place}")
        room.js("""
          for (const node of document.querySelectorAll("main *")) {
            for (const name of ["mouseover", "focus", "toggle", "error", "load"]) {
              node.dispatchEvent(new Event(name, {bubbles: true}));
            }
          }
        """)

        assert room.js("typeof window.ran") == "undefined", place
        assert room.js("location.href") == f"{site}/console{place}"
    assert room.complaints == []


@pytest.fixture
def furnished(room: Tab, app: App, tenant: Tenant) -> list[str]:
    """Paths of all pages, with something of everything on them; long words included."""
    long = "unbroken" * 40
    text = "\n\n".join(f"# Part {n}\n\n{f'A heron, number {n}. ' * 45}{long}" for n in range(4))
    done = add(app, tenant, text, custom_id=long[:255], filepath=long, metadata={long[:64]: long})
    drain(app)
    broken = add(app, tenant, "broken", title=long, tags=["x" * 100])
    fail(app, broken, "unreadable_content", f"{long} is damaged")
    waiting = add(app, tenant, "waiting", title="Waits")
    return [
        "/console",
        "/console/documents",
        "/console/documents?status=done&tag=none",
        f"/console/documents/{done.id}?q=heron&chunk=2",
        f"/console/documents/{broken.id}",
        f"/console/documents/{waiting.id}",
        "/console/documents/absent",
        "/console/add",
        f"/console/progress?id={done.id}&id={broken.id}&id={waiting.id}",
        "/console/playground",
        "/console/playground?q=heron",
        "/console/playground?q=x&filters=%7B",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_telephone_and_can_be_read(
    room: Tab, site: str, furnished: list[str], scheme: str
):
    room.send(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    wide: list[str] = []
    faint: list[str] = []
    for path in furnished:
        for width in (380, 1280):
            room.send(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=800,
                deviceScaleFactor=1,
                mobile=width == 380,
            )
            room.open(site + path)
            if room.js("document.documentElement.scrollWidth") > width:
                wide.append(f"{width} {path}")
        faint += room.js(CONTRAST)
    room.send("Emulation.clearDeviceMetricsOverride")
    room.send("Emulation.setEmulatedMedia", features=[])

    assert wide == []
    assert faint == []


def test_everything_can_be_reached_by_keyboard_and_has_a_name(
    room: Tab, site: str, furnished: list[str]
):
    for path in furnished:
        room.open(site + path)
        room.js("document.body.tabIndex = -1; document.body.focus()")  # some focus their field
        room.press("Tab", 9)
        assert room.js("document.activeElement.className") == "skip", path
        assert room.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"

        tree = room.send("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "link", "textbox", "searchbox", "checkbox", "combobox", "spinbutton"}
        nameless = [
            node["role"]["value"]
            for node in tree
            if not node.get("ignored")
            and node.get("role", {}).get("value") in roles
            and not node.get("name", {}).get("value", "").strip()
        ]
        assert nameless == [], path
        assert room.js("document.querySelectorAll('h1').length") == 1, path
        assert room.js("[...document.querySelectorAll('table')].every(t => t.caption)"), path


def test_without_scripts_everything_still_works(room: Tab, site: str, app: App, tenant: Tenant):
    room.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        room.open(f"{site}/console/add")
        assert room.js("document.querySelector('[data-more]').hidden")
        room.type("#content", "The heron wades.")
        room.click(".add .actions button")
        assert "0 of 1 document finished." in room.text()
        drain(app)
        room.open(f"{site}/console/playground")
        room.type("#q", "heron")
        room.click(".search button")
        room.click(".hits h2 a")
        assert room.text("mark") == "heron"
        room.click("button[value=delete]")
        room.click("button[value=delete]")
        assert "1 document deleted for good." in room.text()
    finally:
        room.send("Emulation.setScriptExecutionDisabled", value=False)

    assert all_of(app, tenant) == []
