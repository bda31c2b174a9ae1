"""The file beside its text in a headless Chromium: it is drawn, it stays, and it never runs."""

import base64
import io

import pytest
from PIL import Image

from recollect.app import App
from recollect.model import Tenant
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.console.test_console import all_of, get
from tests.console.test_console_original import HTML, SVG, call_it, picture, place, sound
from tests.e2e.browser import NEEDS_CHROMIUM, Tab
from tests.extract.samples import pdf, set_pdf

pytestmark = NEEDS_CHROMIUM

PAGES = [
    f"Page {n}: {' '.join(f'herons wade at {i},' for i in range(n * 100, n * 100 + 50))}"
    for n in range(1, 5)
]


def upload(room: Tab, app: App, tenant: Tenant, site: str, name: str, data: bytes) -> str:
    """A file as a person adds it; the id of its document."""
    before = {document.id for document in all_of(app, tenant)}
    room.open(f"{site}/console/add")
    room.js(f"""
      const files = new DataTransfer();
      files.items.add(new File([new Uint8Array({list(data)})], {name!r}));
      document.querySelector("#file").files = files.files;
    """)
    room.click(".add .actions button")
    (made,) = [document for document in all_of(app, tenant) if document.id not in before]
    return made.id


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("evil.html", HTML, "webpage"),
        ("evil.png", SVG, "image"),
        ("evil.pdf", HTML, "pdf"),
    ],
    ids=["page", "drawing", "document"],
)
def test_a_script_in_a_file_never_runs_even_if_it_is_opened_by_itself(
    room: Tab, app: App, tenant: Tenant, site: str, name: str, data: bytes, kind: str
):
    id = upload(room, app, tenant, site, name, data)
    call_it(app, get(app, tenant, id), kind, name, "")
    own = f"{site}/console/documents/{id}"
    room.js("localStorage.clear()")
    for place_ in (own, f"{own}/view"):
        room.open(place_)
        assert "localStorage" not in room.js("[...document.scripts].map((s) => s.text).join()")
    # A download leaves the page as it is.
    room.send("Page.navigate", url=f"{own}/original")

    assert room.js("location.href") == f"{own}/view"
    assert room.js("localStorage.ran") is None


def test_a_picture_is_drawn_and_a_refresh_does_not_disturb_it(
    room: Tab, app: App, tenant: Tenant, site: str
):
    id = upload(room, app, tenant, site, "heron.png", picture())
    room.open(f"{site}/console/documents/{id}")
    drawn = room.js("document.querySelector('.original img').naturalWidth")
    room.js("window.old = document.querySelector('.original img')")
    with app.db.begin() as tx:
        tx.execute(
            "update documents set status = 'failed', due_at = null, error_code = 'too_large',"
            " error_message = 'It is too large.', warnings = '{Beware}' where id = %s",
            (id,),
        )
    eventually(lambda: "It is too large." in room.text())

    assert drawn == 40
    assert room.js("document.querySelector('.original img') === window.old")
    assert room.js("document.querySelectorAll('.original, h1, #text, .facts').length") == 4
    assert "Beware" in room.text()
    assert "failed" in room.text(".state")
    assert room.js("document.querySelector('article').dataset.state") == "finished"
    assert room.complaints == []


@pytest.mark.slow
def test_a_recording_goes_to_the_time_of_a_chunk(room: Tab, app: App, tenant: Tenant, site: str):
    id = upload(room, app, tenant, site, "call.wav", sound(20))
    drain(app)
    place(app, get(app, tenant, id), {0: '{"time": 12.5}'})
    own = f"{site}/console/documents/{id}"
    player = "document.querySelector('audio')"
    room.open(f"{own}?chunk=0")
    eventually(lambda: room.js(f"{player}.readyState") > 0)
    begun = room.js(f"{player}.currentTime")
    room.open(own)
    eventually(lambda: room.js(f"{player}.readyState") > 0)
    before = room.js(f"{player}.currentTime")
    room.js("document.querySelector('[data-seek]').click()")

    assert begun == 12.5
    assert before == 0
    eventually(lambda: room.js(f"{player}.currentTime") >= 12.5)
    assert room.js("location.href") == own
    assert room.js(f"{player}.duration") == 20
    assert room.complaints == []


@pytest.mark.slow
def test_on_a_phone_the_text_comes_before_a_pdf(room: Tab, app: App, tenant: Tenant, site: str):
    id = upload(room, app, tenant, site, "report.pdf", pdf("Herons wade here."))
    drain(app)
    size = {"height": 844, "deviceScaleFactor": 1}
    room.send("Emulation.setDeviceMetricsOverride", width=390, mobile=True, **size)
    room.open(f"{site}/console/documents/{id}")
    tops = room.js(
        "['#text', '.original', '.facts'].map((one) =>"
        " document.querySelector(one).getBoundingClientRect().top)"
    )
    room.send("Emulation.clearDeviceMetricsOverride")

    assert tops == sorted(tops)


def test_a_pdf_opens_at_the_page_of_a_hit_and_of_a_chunk(
    room: Tab, app: App, tenant: Tenant, site: str
):
    id = upload(room, app, tenant, site, "report.pdf", pdf(*PAGES))
    drain(app)
    own = f"{site}/console/documents/{id}"
    frame = "document.querySelector('iframe').contentWindow"
    room.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        room.open(f"{own}?q=herons&chunk=2")
        wanted = room.js("document.querySelector('.wanted .spot').href")
        eventually(lambda: room.js(f"{frame}.location.href") == wanted.split(":~:")[0])
        last = room.js("[...document.querySelectorAll('.spot')].at(-1).href")
        room.js("[...document.querySelectorAll('.spot')].at(-1).click()")
        eventually(lambda: room.js(f"{frame}.location.href") == last.split(":~:")[0])
    finally:
        room.send("Emulation.setScriptExecutionDisabled", value=False)

    assert wanted.startswith(f"{own}/view?at=")
    assert wanted != last
    assert room.js("location.pathname").endswith(id)
    assert room.js(f"{frame}.document.contentType") == "application/pdf"
    assert room.complaints == []


def test_a_hit_is_marked_on_the_page_of_its_pdf(room: Tab, app: App, tenant: Tenant, site: str):
    lines = [f"At {hour} o'clock {hour + 20} herons wade by the shore." for hour in range(1, 24)]
    id = upload(room, app, tenant, site, "report.pdf", set_pdf(*lines))
    drain(app)
    own = f"{site}/console/documents/{id}"
    size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    room.send("Emulation.setDeviceMetricsOverride", **size)
    try:
        room.open(f"{own}?q=herons&chunk=0")
        eventually(lambda: violet(room) > 1_000)
        room.open(own)
        eventually(lambda: drawn(room) > 1_000)
        assert violet(room) == 0
    finally:
        room.send("Emulation.clearDeviceMetricsOverride")


def violet(room: Tab) -> int:
    """How many pixels of the file beside the text have the colour of Chromium's mark."""
    return sum(min(r, b) > g + 15 and g > 150 for r, g, b in pixels(room))


def drawn(room: Tab) -> int:
    """How many are white, as paper is."""
    return sum(pixel == (255, 255, 255) for pixel in pixels(room))


def pixels(room: Tab) -> list[tuple[int, int, int]]:
    box = room.js("""
      (() => {
        const file = document.querySelector("iframe");
        file.scrollIntoView({block: "center", behavior: "instant"});
        const {left, top, right, bottom} = file.getBoundingClientRect();
        return [left, Math.max(top, 0), right, Math.min(bottom, innerHeight)];
      })()
    """)
    shot = base64.b64decode(room.send("Page.captureScreenshot", format="png")["data"])
    whole = Image.open(io.BytesIO(shot)).convert("RGB").crop(box).tobytes()
    return list(zip(whole[::3], whole[1::3], whole[2::3], strict=True))
