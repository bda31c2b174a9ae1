"""The page Ask."""

from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

from recollect.api.turns import ASKING_KEY
from recollect.app import App
from recollect.console import _asking
from recollect.inference.llm import Llm
from recollect.model import Org, Scope, Tenant
from recollect.worker import extraction as reads_memories
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.console.test_console import (
    FORM,
    add,
    body,
    browse,
    console_site,
    me,
    new_key,
    one,
    tree,
)
from tests.fakes.llm import Model, Status, Streams, running

__all__ = ["browse", "me"]

MEETING = "The team meets on Mondays at nine in the blue room."
ASKED = {"q": "When does the team meet on Mondays?"}


@pytest.fixture
def model() -> Generator[Model]:
    with running(Model()) as started:
        yield started
    assert started.faults == []


@pytest.fixture
def asking(app: App, model: Model, key: str) -> Generator[httpx.Client]:
    """Signed in to a console with a language model."""
    llm = Llm(model.url, "a-model", total=5)
    with (
        console_site(replace(app, llm=llm)) as url,
        httpx.Client(base_url=url, headers=FORM, timeout=60, trust_env=False) as http,
    ):
        assert http.post("/console/login", data={"key": key}).status_code == 303
        yield http
    llm.close()


def test_the_overview_says_that_memories_wait_for_the_model(
    app: App, asking: httpx.Client, model: Model, tenant: Tenant
):
    for text in (MEETING, "The blue room has no window."):
        add(app, tenant, text, dreaming="instant")
    drain(app)
    assert "for memories" not in body(asking.get("/console"))

    model.misbehave = [Status(401, headers={})] * 9
    llm = Llm(model.url, "a-model", pauses=())
    reads_memories.drain(replace(app, llm=llm))
    llm.close()

    needed = one(asking.get("/console"), "[aria-labelledby=needed]").text()
    assert "2 documents wait to be read for memories: " in needed


def test_without_a_model_it_shows_the_passages_and_what_to_set(
    app: App, me: httpx.Client, tenant: Tenant
):
    document = add(app, tenant, MEETING)
    drain(app)
    assert "RECOLLECT_LLM_URL" in body(me.get("/console/ask"))
    shown = me.post("/console/ask", data=ASKED)
    assert MEETING in body(shown)
    link = one(shown, "#source-1 a").attributes["href"] or ""
    assert document.id in link
    assert me.get(link).status_code == 200
    nothing = me.post("/console/ask", data={"q": "zxqvbn wfglk"})
    assert "Nothing relevant was found" in body(nothing)


def test_passages_are_drawn_as_on_the_page_of_search(app: App, me: httpx.Client, tenant: Tenant):
    add(app, tenant, "# Meetings\n\nThe team meets on **Mondays** at <b>nine</b>.")
    drain(app)

    shown = one(me.post("/console/ask", data=ASKED), "#source-1 .drawn")

    assert "**" not in shown.text()
    assert [part.text() for part in shown.css("strong")] == ["Mondays"]
    assert "<b>nine</b>" in shown.text()


def test_the_answer_leads_to_its_passages(
    app: App, asking: httpx.Client, model: Model, tenant: Tenant
):
    add(app, tenant, MEETING)
    drain(app)
    model.misbehave = [
        Streams(
            (
                "<b>On Mondays</b> at n",
                "ine [1][7]. In the red room.",
            )
        )
    ]
    shown = asking.post("/console/ask", data=ASKED)
    text = body(shown)
    assert "<b>On Mondays</b> at nine. [1]" in text
    assert "In the red room. (no source)" in text
    assert "The model cited something that was not found; 1 such citation was left out" in text
    assert one(shown, "a[href='#source-1']").text() == "[1]"
    assert tree(shown).css("main b") == []
    model.misbehave = [Streams(("On Mondays [1]. At",), ending="")]
    cut = body(asking.post("/console/ask", data=ASKED))
    assert "On Mondays. [1]" in cut
    assert "The answer ends here" in cut
    model.misbehave = [Status(500)]
    failed = asking.post("/console/ask", data=ASKED)
    assert failed.status_code == 200
    assert "No answer" in body(failed)
    assert MEETING in body(failed)


def test_what_cannot_be_asked_is_said_on_the_page(me: httpx.Client):
    for wrong in ({}, {"q": " "}, {"q": "x" * 10_001}, {"q": "x", "tag": "not a tag!"}):
        shown = me.post("/console/ask", data=wrong)
        assert shown.status_code == 400, wrong
        assert one(shown, "[role=alert]").text()


def test_a_question_is_as_long_as_it_may_be_in_any_script(me: httpx.Client):
    shown = me.post("/console/ask", data={"q": "鷺" * 10_000})
    assert shown.status_code == 200
    too_long = me.post("/console/ask", data={"q": "鷺" * 50_000})
    assert too_long.status_code == 400
    assert "鷺鷺鷺" in (one(too_long, "#q").attributes["value"] or "")


def test_a_limited_key_asks_its_own_tags(
    app: App, browse: Callable[..., httpx.Client], org: Org, tenant: Tenant
):
    add(app, tenant, MEETING, tags=["a"])
    drain(app)
    _, secret = new_key(app, org, scope=Scope.READ, tags=["b"])
    theirs = browse(secret)
    assert MEETING not in theirs.post("/console/ask", data=ASKED).text
    refused = theirs.post("/console/ask", data={**ASKED, "tag": "a"})
    assert refused.status_code in (403, 404)
    assert MEETING not in refused.text


def test_sentences_are_sent_as_the_model_ends_them_and_who_leaves_ends_its_work(
    app: App, asking: httpx.Client, model: Model, tenant: Tenant
):
    add(app, tenant, MEETING)
    drain(app)
    model.misbehave = [Streams(("On <i>Mondays</i> at nine [1]. In the",), waits=True)]
    seen = ""
    with asking.stream("POST", "/console/ask", data=ASKED) as shown:
        assert shown.status_code == 200
        assert shown.headers["x-accel-buffering"] == "no"
        for piece in shown.iter_text():
            seen += piece
            if "#source-1" in seen:
                break
    assert "On &lt;i&gt;Mondays&lt;/i&gt; at nine." in seen
    assert "1 passage found. The model writes" in seen
    assert "</main>" not in seen
    assert model.left.wait(30)

    model.misbehave = [Streams(("On Mondays [1].",))]
    assert "cited" in body(asking.post("/console/ask", data=ASKED))  # its place is free again


def test_a_silent_model_is_no_silent_connection(
    app: App,
    asking: httpx.Client,
    model: Model,
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
):
    add(app, tenant, MEETING)
    drain(app)
    monkeypatch.setattr(_asking, "ALIVE", 0.01)
    model.misbehave = [Streams((), waits=True)]
    with asking.stream("POST", "/console/ask", data=ASKED) as shown:
        pieces = shown.iter_text()
        seen = ""
        while seen.count("<!-- alive -->") < 2:
            seen += next(pieces)
    assert model.left.wait(30)


def test_as_many_ask_at_once_as_have_a_place(
    app: App, asking: httpx.Client, model: Model, tenant: Tenant
):
    add(app, tenant, MEETING)
    drain(app)
    waiting = Streams(("On Mondays [1]. At",), waits=True)
    model.misbehave = [waiting] * ASKING_KEY
    with ExitStack() as open_ones:
        for _ in range(ASKING_KEY):
            open_ones.enter_context(asking.stream("POST", "/console/ask", data=ASKED))
        assert asking.post("/console/ask", data=ASKED).status_code == 429
        assert eventually(lambda: len(model.asked) == ASKING_KEY)
    model.misbehave = [Streams(("On Mondays [1].",))]
    assert eventually(lambda: asking.post("/console/ask", data=ASKED).status_code == 200)


def test_another_site_and_who_is_not_signed_in_get_no_answer(
    asking: httpx.Client, site: str, model: Model
):
    foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert asking.post("/console/ask", data=ASKED, headers=foreign).status_code == 403
    with httpx.Client(base_url=site, headers=FORM, trust_env=False) as stranger:
        assert stranger.post("/console/ask", data=ASKED).status_code == 401
    assert model.asked == []
