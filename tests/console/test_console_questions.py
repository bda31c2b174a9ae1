"""Test questions in the console."""

from collections.abc import Callable

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentChange
from recollect.model import Org, Scope, Tenant
from recollect.search import evaluation
from recollect.search.evaluation import Expected
from recollect.worker.processing import drain
from tests.console.test_console import add, body, browse, me, new_key, one, tree

__all__ = ["browse", "me"]

PAGE = "/console/tags/questions"
NAME = {"name": "notes"}
MEETING = "The team meets on Mondays at nine in the blue room."


@pytest.fixture
def meeting(app: App, tenant: Tenant) -> str:
    document = add(app, tenant, MEETING, tags=["notes"])
    drain(app)
    return document.id


def listed(app: App, tenant: Tenant) -> list[Expected]:
    with app.db.begin() as tx:
        return [one.expected for one in evaluation.find(tx, tenant, "notes")]


def test_questions_are_added_run_compared_and_removed(
    app: App, me: httpx.Client, tenant: Tenant, meeting: str
):
    tag = me.get("/console/tags/tag", params=NAME)
    [link] = [a for a in tree(tag).css("a") if "questions" in (a.attributes["href"] or "")]
    assert "None yet" in body(me.get(link.attributes["href"] or ""))
    for form in (
        {"question": "<b>When</b> does the team meet on Mondays?", "document": meeting},
        {"question": "team Mondays", "words": "red room"},
    ):
        assert me.post(PAGE, data={**NAME, **form}).status_code == 303

    first = me.post(f"{PAGE}/run", data=NAME)
    shown = me.get(first.headers["location"])
    second = me.get(me.post(f"{PAGE}/run", data=NAME).headers["location"])

    assert "2 of 2 questions asked" in body(shown)
    assert [row.css("td")[0].text() for row in tree(shown).css("tbody tr")] == ["1", "not found"]
    assert "0.500" in body(shown)
    assert "before 0.500" in body(second)
    assert tree(shown).css("main b") == []
    page = me.get(PAGE, params=NAME)
    assert len(tree(page).css("section[aria-labelledby=runs] tbody tr")) == 2
    id = tree(page).css("input[name=id]")[0].attributes["value"] or ""
    assert me.post(f"{PAGE}/remove", data={**NAME, "id": id}).status_code == 303
    assert [expected.words for expected in listed(app, tenant)] == ["red room"]


def test_expected_documents_are_called_by_their_titles(
    app: App, me: httpx.Client, tenant: Tenant, meeting: str
):
    given = [
        Expected("What does the heading say?", document=meeting),
        Expected("What else?", document="gone-since"),
        Expected("Whose?", document="same"),
    ]
    for text, tag in (("Theirs", "others"), ("Ours", "notes")):
        add(app, tenant, text, tags=[tag], custom_id="same")
    drain(app)
    with app.db.begin() as tx:
        documents.update(tx, tenant, meeting, DocumentChange(title="Weekly meeting"))
        evaluation.add(tx, tenant, "notes", given)

    page = me.get(PAGE, params=NAME)

    links = tree(page).css("section[aria-labelledby=questions] tbody a")
    assert [link.text() for link in links] == ["Weekly meeting", "Ours"]
    assert [me.get(link.attributes["href"] or "").status_code for link in links] == [200, 200]
    assert "gone-since not in this tag" in body(page)


def test_a_long_run_stops_to_show_how_far_it_is(
    app: App, me: httpx.Client, tenant: Tenant, meeting: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluation, "STRETCH", 0.0)
    with app.db.begin() as tx:
        given = [Expected(f"team {n}", words="Mondays") for n in range(30)]
        evaluation.add(tx, tenant, "notes", given)
    address = me.post(f"{PAGE}/run", data=NAME).headers["location"]

    half = me.get(address)
    assert "1 of 30 questions asked" in body(half)
    assert one(half, "main form button").text() == "Go on"
    monkeypatch.setattr(evaluation, "STRETCH", 60.0)
    assert me.post(address).status_code == 303
    whole = me.get(address)
    assert "30 of 30 questions asked" in body(whole)
    assert tree(whole).css("main form") == []


def test_they_are_made_of_headings(app: App, me: httpx.Client, tenant: Tenant, meeting: str):
    none = me.post(f"{PAGE}/make", data=NAME)
    assert "no document left to make questions from" in body(me.get(none.headers["location"]))
    text = "# Boats\n\n" + "All about boats. " * 90 + "\n\n## Mooring\n\n" + "Tie a line. " * 90
    add(app, tenant, text, tags=["notes"])
    drain(app)
    made = me.post(f"{PAGE}/make", data=NAME)
    assert "Boats Mooring" in body(me.get(made.headers["location"]))


def test_what_cannot_be_is_said_and_what_was_typed_stays(me: httpx.Client, meeting: str):
    for wrong in ({}, {"question": "x"}, {"question": "x" * 1_001, "words": "y"}):
        shown = me.post(PAGE, data={**NAME, **wrong})
        assert shown.status_code == 400, wrong
        assert one(shown, "[role=alert]").text()
    assert one(shown, "#words").attributes["value"] == "y"
    assert me.post(f"{PAGE}/run", data=NAME).status_code == 400
    for path in (PAGE, f"{PAGE}?name=none", f"{PAGE}/runs/{'x' * 22}"):
        assert me.get(path).status_code in (400, 404)
    assert me.post(f"{PAGE}/remove", data={**NAME, "id": "\0"}).status_code in (303, 404)


def test_neither_strangers_nor_limited_nor_reading_keys_touch_them(
    app: App,
    browse: Callable[..., httpx.Client],
    me: httpx.Client,
    org: Org,
    tenant: Tenant,
    meeting: str,
):
    me.post(PAGE, data={**NAME, "question": "the secret question", "words": "x"})
    run = me.post(f"{PAGE}/run", data=NAME).headers["location"]
    id = one(me.get(PAGE, params=NAME), "input[name=id]").attributes["value"] or ""
    _, limited = new_key(app, org, scope=Scope.WRITE, tags=["elsewhere"])
    _, reading = new_key(app, org, scope=Scope.READ, tags=None)
    theirs, reader = browse(limited), browse(reading)
    for http, refused in ((theirs, (403, 404)), (reader, (403,))):
        for path, data in (
            (PAGE, {**NAME, "question": "a", "words": "b"}),
            (f"{PAGE}/remove", {**NAME, "id": id}),
            (f"{PAGE}/make", NAME),
            (f"{PAGE}/run", NAME),
            (run, {}),
        ):
            assert http.post(path, data=data).status_code in refused, path
    assert theirs.get(run).status_code == 404
    assert "secret" not in theirs.get(PAGE, params=NAME).text
    assert "secret" in reader.get(run).text
    assert tree(reader.get(PAGE, params=NAME)).css("main form") == []
    assert [one.question for one in listed(app, tenant)] == ["the secret question"]
    foreign = me.post(PAGE, data=NAME, headers={"sec-fetch-site": "cross-site"})
    assert foreign.status_code == 403
