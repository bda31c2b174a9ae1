"""The page Ask in a headless Chromium: what has come is seen, and can be stopped."""

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from recollect.app import App
from recollect.console import _asking
from recollect.inference.llm import Llm
from recollect.model import Tenant
from recollect.worker.processing import drain
from tests.conftest import plain_client
from tests.console.test_console import FORM, PAYLOADS, add, console_site
from tests.e2e.browser import NEEDS_CHROMIUM, Tab
from tests.e2e.conftest import cookie
from tests.fakes.llm import Model, Streams, running

pytestmark = NEEDS_CHROMIUM
MEETING = "The team meets on Mondays at nine in the blue room."
WRITING = "document.querySelector('.writing')"


@pytest.fixture
def model() -> Generator[Model]:
    with running(Model()) as started:
        yield started


@pytest.fixture
def ask(tab: Tab, app: App, model: Model, key: str, tenant: Tenant) -> Generator[Tab]:
    """At the page, signed in, with a document and a model that waits for the test."""
    add(app, tenant, MEETING)
    drain(app)
    llm = Llm(model.url, "a-model", total=60)
    with console_site(replace(app, llm=llm)) as site:
        with plain_client(site, FORM) as http:
            answer = http.post("/console/login", data={"key": key})
        tab.send("Network.setCookie", url=f"{site}/console", **cookie(answer))
        tab.open(f"{site}/console/ask")
        tab.type("#q", "When does the team meet on Mondays?")
        yield tab
        model.over.set()
    llm.close()


def submit(tab: Tab) -> None:
    tab.js("document.querySelector('form.search button').click()")


def test_the_first_sentence_is_seen_while_the_model_writes(ask: Tab, model: Model) -> None:
    model.misbehave = [Streams(("On Mondays at nine [1]. In the",), waits=True)]
    submit(ask)
    ask.until("document.querySelector('[data-stop]')?.checkVisibility() ?? false")
    ask.until("document.querySelector('.answer .lead')?.innerText.includes('On Mondays at nine.')")
    during = ask.text(".writing"), ask.js("document.readyState")
    model.over.set()
    ask.until("document.getElementById('answered') && document.readyState === 'complete'")

    assert during == ("1 passage found. The model writes … Stop", "loading")
    assert ask.js(f"getComputedStyle({WRITING}).display") == "none"
    assert "In the" in ask.text(".answer .lead")
    assert ask.text("#source-1 h3").endswith("cited")
    assert ask.complaints == []


def test_stop_ends_the_model_s_work_and_keeps_what_came(ask: Tab, model: Model) -> None:
    model.misbehave = [Streams(("On Mondays at nine [1]. In the",), waits=True)]
    submit(ask)
    ask.until("document.querySelector('[data-stop]')?.checkVisibility() ?? false")
    ask.until("document.querySelector('.answer .lead')?.innerText.includes('On Mondays at nine.')")
    ask.js("document.querySelector('[data-stop]').click()")

    assert model.left.wait(30)
    assert ask.text(".writing") == "Stopped."
    assert "On Mondays at nine." in ask.text(".answer .lead")


def test_what_the_model_writes_stays_text(ask: Tab, model: Model) -> None:
    model.misbehave = [Streams(tuple(f"{payload} [1]. " for payload in PAYLOADS))]
    submit(ask)
    ask.until("document.getElementById('answered') && document.readyState === 'complete'")

    assert ask.js("window.ran") is None
    assert (
        ask.js("document.querySelectorAll('.answer script, .answer img, .answer svg').length") == 0
    )
    assert ask.complaints == []


def test_a_broken_connection_is_said(
    ask: Tab, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_asking, "PATIENCE", 1)
    site = urlsplit(ask.js("location.href"))
    model.misbehave = [Streams(("On Mondays at nine [1]. In the",), waits=True)]
    with cable((str(site.hostname), int(site.port or 0))) as (address, cut):
        ask.open(f"{address}/console/ask")
        ask.type("#q", "When does the team meet on Mondays?")
        submit(ask)
        # The script has come by the same cable.
        ask.until("document.querySelector('[data-stop]')?.checkVisibility() ?? false")
        ask.until("document.querySelector('.answer .lead')?.innerText.includes('On Mondays')")
        cut()
        ask.until(f"{WRITING}.innerText.startsWith('The connection broke')")
        assert "On Mondays at nine." in ask.text(".answer .lead")


@contextmanager
def cable(to: tuple[str, int]) -> Generator[tuple[str, Callable[[], None]]]:
    """An address that leads to another, and what cuts all its connections."""
    ends: list[socket.socket] = []

    def pour(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut() -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection(to)
                ends.extend((here, there))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=pour, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", cut
        cut()
        listening.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.close()
