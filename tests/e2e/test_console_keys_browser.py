"""The keys of the console in a headless Chromium: `/`, Ctrl-K and `?`, and the row of a phone."""

from recollect.app import App
from recollect.model import Tenant
from tests.console.test_console import add
from tests.e2e.browser import NEEDS_CHROMIUM, Tab

pytestmark = NEEDS_CHROMIUM
CONTROL = 2
OPEN = "document.querySelector('dialog[open]') !== null"


def chord(tab: Tab, key: str, code: int, modifiers: int = 0) -> None:
    """A key as a keyboard sends it; with a modifier it types nothing."""
    typed = {} if modifiers else {"text": key}
    for kind, more in (("keyDown", typed), ("keyUp", {})):
        tab.send(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            windowsVirtualKeyCode=code,
            modifiers=modifiers,
            **more,
        )


def test_a_slash_leads_to_the_search_and_types_nothing(
    room: Tab, app: App, tenant: Tenant, site: str
):
    add(app, tenant, "one")
    room.open(f"{site}/console/documents")
    chord(room, "/", 191)
    on_the_page = room.js("document.activeElement.id")
    chord(room, "/", 191)
    typed = room.js("document.activeElement.value")
    room.open(f"{site}/console/settings")
    room.js("window.left = true")
    chord(room, "/", 191)
    room.arrived()

    assert on_the_page == "q"
    assert typed == "/"  # in a field it is a letter like others
    assert room.js("document.activeElement.id") == "q"
    assert room.js("location.pathname") == "/console/search"
    assert room.complaints == []


def test_the_palette_goes_to_pages_and_searches(room: Tab, site: str):
    room.open(f"{site}/console/keys")
    chord(room, "k", 75, CONTROL)
    focused = room.js("document.activeElement.id")
    room.send("Input.insertText", text="docum")
    first = room.text(".palette li")
    room.js("window.left = true")
    room.press("Enter", 13)
    room.arrived()
    came_to = room.js("location.pathname")
    chord(room, "k", 75, CONTROL)
    room.send("Input.insertText", text="<b>herons & co")
    said = room.text(".palette")
    room.js("window.left = true")
    room.press("Enter", 13)
    room.arrived()

    assert focused == "palette"
    assert first == "Documents"
    assert came_to == "/console/documents"
    assert said == "Search for “<b>herons & co”"
    assert room.js("document.querySelector('#q').value") == "<b>herons & co"
    assert room.complaints == []


def test_a_question_mark_shows_the_keys_and_escape_gives_the_focus_back(room: Tab):
    room.js("document.querySelector('nav a').focus()")
    chord(room, "?", 191)
    shown = room.text("dialog")
    room.press("Escape", 27)
    room.until(f"!({OPEN})")

    assert "Ctrl K" in shown
    assert room.js("document.activeElement.textContent.trim()") == "Overview"
    assert room.complaints == []


def test_on_a_phone_the_rooms_are_one_row_that_shows_where_one_is(room: Tab, site: str):
    size = {"height": 844, "deviceScaleFactor": 1}
    room.send("Emulation.setDeviceMetricsOverride", width=390, mobile=True, **size)
    room.open(f"{site}/console/settings")
    tops = room.js("[...document.querySelectorAll('nav a')].map((a) => a.offsetTop)")
    placed = room.js(
        "(({left, right}) => left >= 0 && right <= innerWidth)"
        "(document.querySelector('nav [aria-current]').getBoundingClientRect())"
    )
    above = room.js(
        "[...document.querySelectorAll('.brand, .who')].map((one) => {"
        " const {top, bottom} = one.getBoundingClientRect(); return (top + bottom) / 2})"
    )
    room.send("Emulation.clearDeviceMetricsOverride")

    assert len(set(tops)) == 1
    assert placed
    assert max(above) - min(above) < 4  # the name and the account stand in one row above
