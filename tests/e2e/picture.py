"""Take the picture of the console that the README shows: `make picture`.

A service of its own with the bundled sample, asked the question of `recollect quickstart`; nothing
of the machine is on it.
"""

import base64
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

from recollect.ingest.samples import QUESTION, TAG
from tests.conftest import Service, start_service
from tests.e2e.browser import Tab, browser

PICTURE = Path(__file__).parents[2] / "docs/console.png"
WIDTH, HEIGHT = 1200, 780
SCALE = 1.5
COLOURS = 96
LARGEST = 150_000
"""bytes"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-picture-") as folder:
        Path(folder).chmod(0o711)  # the database runs as another user where we are root
        service = start_service(Path(folder) / "data")
        try:
            fill(service)
            with browser() as tab:
                data = taken(tab, service)
        finally:
            service.process.terminate()
            service.process.wait(60)
    PICTURE.write_bytes(data)
    sys.stdout.write(f"{PICTURE.name}: {len(data):,} bytes\n")


def fill(service: Service) -> None:
    address = ["--url", service.url, "--key", service.key]
    subprocess.run([sys.executable, "-m", "recollect", "quickstart", *address], check=True)
    with service.client() as http:
        query = {"containerTags": [TAG], "limit": 100}
        for document in http.post("/v3/documents/list", json=query).json()["memories"]:
            told = http.get(f"/v3/documents/{document['id']}", params={"wait": 60}).json()
            assert told["status"] == "done", told


def taken(tab: Tab, service: Service) -> bytes:
    """The search with the answer, as a PNG of few colours."""
    tab.open(f"{service.url}/console")
    tab.type("#key", service.key)
    tab.click("form button")
    light = {"name": "prefers-color-scheme", "value": "light"}
    tab.send("Emulation.setEmulatedMedia", features=[light])
    tab.send(
        "Emulation.setDeviceMetricsOverride",
        width=WIDTH,
        height=HEIGHT,
        deviceScaleFactor=SCALE,
        mobile=False,
    )
    asked = f"{service.url}/console/search?{urlencode({'q': QUESTION, 'tag': TAG})}"
    tab.open(asked)
    tab.open(asked)  # the first search after a start takes longer than any other
    assert tab.js("document.querySelectorAll('.hits > li').length") >= 3
    assert str(Path(tempfile.gettempdir())) not in tab.text("body")
    assert service.key not in tab.text("body")
    # Where it scrolls is no part of the page.
    tab.js("document.documentElement.style.overflow = 'hidden'; document.activeElement?.blur()")
    shot = base64.b64decode(tab.send("Page.captureScreenshot", format="png")["data"])
    small = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS)
    out = io.BytesIO()
    small.save(out, "PNG", optimize=True)
    assert out.tell() < LARGEST, f"{out.tell():,} bytes"
    return out.getvalue()


if __name__ == "__main__":
    main()
