"""A headless Chromium, driven over its DevTools protocol."""

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.conftest import eventually

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
NEEDS_CHROMIUM = pytest.mark.skipif(
    not os.access(CHROMIUM, os.X_OK), reason=f"{CHROMIUM} is not here"
)
SOME = [
    pytest.param(slice(1, None, 13), id="some"),
    pytest.param(slice(None), id="all", marks=pytest.mark.slow),
]
"""Which payloads get pages of their own: out of an element, out of an attribute, embedded, in an
address. The tests of the pages without a browser try all of them on all pages."""
WIDE = 1280
PATIENCE = 60.0
"""seconds after which something that does not happen is a failure"""
GONE = re.compile(
    r"navigated or closed|context was destroyed|Cannot find (default )?(execution )?context"
)


class Gone(AssertionError):
    """The page that was asked is left before it answered."""


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
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            self._note(answer)
            if answer.get("id") == number:
                if "error" in answer:
                    message = answer["error"].get("message", "")
                    raise (Gone if GONE.search(message) else AssertionError)(answer["error"])
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

    def until(self, expression: str) -> None:
        """Wait for it to be true, in whatever page the tab comes to."""

        def holds() -> bool:
            try:
                return self.js(expression)
            except Gone:
                return False

        eventually(holds, PATIENCE)

    def open(self, url: str) -> None:
        """Go there and wait until it stands."""
        self._leave("")
        self.send("Page.navigate", url=url)
        self.arrived()

    def arrived(self) -> None:
        """Wait for the page that a click or a link leads to."""
        self.until("!window.left && document.readyState === 'complete'")

    def click(self, selector: str) -> None:
        """Click what leads to another page."""
        self._leave(f"document.querySelector({json.dumps(selector)}).click()")
        self.arrived()

    def _leave(self, by: str) -> None:
        with suppress(Gone):  # by then the next page may be there
            self.js(f"window.left = true; {by}")

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
            process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(profile, ignore_errors=True)


ROLES = frozenset({"button", "link", "textbox", "searchbox", "checkbox", "combobox", "spinbutton"})


def nameless(tab: Tab) -> list[str]:
    """Roles of the parts of a page that have no name for who does not see them."""
    root = tab.send("DOM.getDocument", depth=0)["root"]["nodeId"]
    return [
        role
        for role in sorted(ROLES)
        for node in tab.send("Accessibility.queryAXTree", nodeId=root, role=role)["nodes"]
        if not node.get("ignored") and not node.get("name", {}).get("value", "").strip()
    ]


def misfits(tab: Tab, url: str, narrow: int) -> list[str]:
    """What is wrong with a page: on a telephone and on a desk, by day and by night."""
    wrong: list[str] = []
    size = {"height": 800, "deviceScaleFactor": 1}
    tab.send("Emulation.setDeviceMetricsOverride", width=narrow, mobile=True, **size)
    tab.open(url)
    if tab.js("document.documentElement.scrollWidth") > narrow:
        wrong.append(f"{url} is wider than {narrow}")
    if tab.js(WIDE_TABLE):
        wrong.append(f"{url} has a table that is wider than its text")
    tab.send("Emulation.setDeviceMetricsOverride", width=WIDE, mobile=False, **size)
    tab.until(f"innerWidth === {WIDE}")
    if tab.js("document.documentElement.scrollWidth") > WIDE:
        wrong.append(f"{url} is wider than {WIDE}")
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        tab.send("Emulation.setEmulatedMedia", features=[feature])
        tab.until(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        wrong += [f"{url} {scheme} {one}" for one in tab.js(CONTRAST)]
    tab.send("Emulation.clearDeviceMetricsOverride")
    tab.send("Emulation.setEmulatedMedia", features=[])
    return wrong


WIDE_TABLE = """
(() => {
  const main = document.querySelector("main");
  const edge = main.getBoundingClientRect().right - parseFloat(getComputedStyle(main).paddingRight);
  return [...main.querySelectorAll(":scope > table")]
    .some((table) => table.getBoundingClientRect().right > edge + 1);
})()
"""
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
