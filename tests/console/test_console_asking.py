"""The page Ask."""

from collections.abc import Callable, Generator
from dataclasses import replace

import httpx
import pytest

from recollect.app import App
from recollect.inference.llm import Llm
from recollect.model import Org, Scope, Tenant
from recollect.worker.processing import drain
from tests.console.test_console import (
    FORM,
    add,
    body,
    browse,
    console_site,
    me,
    new_key,
    one,
    site,
    tree,
)
from tests.fakes.llm import Model, Status, Streams, running

__all__ = ["browse", "me", "site"]

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
    assert "1 citation of the model named nothing that was found, and is left out" in text
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
