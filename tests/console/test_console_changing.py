"""Changing documents in the console: all that match at once, and one by its form."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.console import _documents
from recollect.documents import figures
from recollect.model import Document, Org, Scope, Tenant
from recollect.worker.processing import drain
from tests.console.test_console import (
    APPLY,
    PAYLOADS,
    add,
    all_of,
    body,
    browse,
    fail,
    get,
    me,
    new_key,
    one,
    skeleton,
    tree,
)
from tests.console.test_console_original import upload

__all__ = ["browse", "me"]
CONFIRM = "/console/documents/confirm"
LIST = "/console/documents?tag=zoo"


@pytest.fixture
def zoo(app: App, tenant: Tenant) -> list[Document]:
    """More than a page of one tag, and others beside."""
    made = [add(app, tenant, f"animal {n}", tags=["zoo"], title=f"Animal {n}") for n in range(30)]
    for n in range(3):
        add(app, tenant, f"other {n}", tags=["park"])
    return made


def asked(http: httpx.Client, action: str, matching: str = LIST) -> dict[str, Any]:
    """The fields of the question about all that match."""
    answer = http.post(CONFIRM, data={"action": action, "matching": matching, "back": matching})
    assert answer.status_code == 200, body(answer)
    fields = tree(answer).css("form[action$=apply] [name]:not(button)")
    return {"action": action} | {
        str(f.attributes["name"]): f.attributes.get("value") for f in fields
    }


def tagged(app: App, tenant: Tenant, tag: str) -> int:
    return sum(tag in document.container_tags for document in all_of(app, tenant))


# --- all that match -----------------------------------------------------------------------------


def test_all_that_match_are_deleted_after_a_question_with_their_number(
    me: httpx.Client, app: App, tenant: Tenant, zoo: list[Document]
):
    shown = me.get(LIST)
    box = one(shown, "input[name=matching]").attributes
    question = me.post(CONFIRM, data={"action": "delete", "matching": box["value"] or ""})

    assert "All 30 that match" in body(shown)
    assert one(question, "h1").text() == "Delete 30 documents?"
    assert "and 10 more" in body(question)
    assert len(all_of(app, tenant)) == 33
    done = me.post(APPLY, data=asked(me, "delete", box["value"] or ""))
    assert done.status_code == 303
    assert "n=30" in done.headers["location"]
    assert {tuple(d.container_tags) for d in all_of(app, tenant)} == {("park",)}
    assert not tree(me.get("/console/documents?tag=park")).css("input[name=matching]")
    assert zoo


def test_what_changed_since_the_question_is_asked_again(
    me: httpx.Client, app: App, tenant: Tenant, zoo: list[Document]
):
    fields = asked(me, "delete")
    add(app, tenant, "a newcomer", tags=["zoo"])
    again = me.post(APPLY, data=fields)

    assert again.status_code == 409
    assert one(again, "h1").text() == "Delete 31 documents?"
    assert "has changed since" in one(again, "[role=alert]").text()
    assert tagged(app, tenant, "zoo") == 31
    without = {name: value for name, value in fields.items() if name != "digest"}
    assert me.post(APPLY, data=without).status_code == 409
    assert tagged(app, tenant, "zoo") == len(zoo) + 1


def test_all_that_match_are_tagged_and_retried(
    me: httpx.Client, app: App, tenant: Tenant, zoo: list[Document], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_documents, "RETRIED", 7)
    for document in zoo:
        fail(app, document, "too_large", "it is too large")
    failed = f"{LIST}&status=failed&q=animal+1"
    done = me.post(APPLY, data=asked(me, "retry", failed))
    assert "n=11" in done.headers["location"]
    assert sum(d.status == "queued" for d in all_of(app, tenant)) == 11 + 3
    wrong = me.post(APPLY, data={**asked(me, "tag"), "tag": "no spaces"})
    assert wrong.status_code == 400
    assert one(wrong, "h1").text() == "Tag 30 documents"
    assert "Tag: " in one(wrong, "[role=alert]").text()
    assert me.post(APPLY, data={**asked(me, "tag"), "tag": "ark"}).status_code == 303
    assert (tagged(app, tenant, "ark"), tagged(app, tenant, "zoo")) == (30, 0)


def test_no_more_are_taken_at_once_than_a_request_can_do(
    me: httpx.Client, app: App, tenant: Tenant, zoo: list[Document], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(figures, "GATHERED", 12)
    assert "All that match, 12 at once" in body(me.get(LIST))
    question = me.post(CONFIRM, data={"action": "delete", "matching": LIST})
    assert one(question, "h1").text() == "Delete 12 documents?"
    assert "These are the first 12 of all that match" in body(question)
    me.post(APPLY, data=asked(me, "delete"))

    left = {document.id for document in all_of(app, tenant)} & {one.id for one in zoo}
    assert left == {document.id for document in zoo[:18]}  # the newest went


def test_all_that_match_are_those_of_the_key(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant, zoo: list[Document]
):
    limited = browse(new_key(app, org, tags=["park"])[1])
    reader = browse(new_key(app, org, scope=Scope.READ)[1])
    everything = "/console/documents"

    assert reader.post(CONFIRM, data={"action": "delete", "matching": LIST}).status_code == 403
    assert reader.post(APPLY, data={"action": "delete", "matching": LIST}).status_code == 403
    nothing = limited.post(CONFIRM, data={"action": "delete", "matching": LIST})
    assert one(nothing, "h1").text() == "Nothing matches"
    fields = asked(limited, "delete", everything)
    foreign = browse(new_key(app, org, tags=["zoo"])[1])
    assert foreign.post(APPLY, data=fields).status_code == 409
    assert limited.post(APPLY, data=fields).status_code == 303
    assert (tagged(app, tenant, "park"), tagged(app, tenant, "zoo")) == (0, len(zoo))


@pytest.mark.parametrize(
    "odd",
    [
        "http://[",
        "?q=%00%ff",
        "?tag=%ed%a0%80",
        "?status=nonsense&sort=x",
        "?" + "q=a&" * 1000,
        "x",
    ],
)
def test_an_odd_address_is_no_error_of_ours_and_nothing_is_done(
    me: httpx.Client, app: App, tenant: Tenant, odd: str
):
    add(app, tenant, "a document", tags=["zoo"])
    question = me.post(CONFIRM, data={"action": "delete", "matching": odd})
    done = me.post(APPLY, data={"action": "delete", "matching": odd, "digest": "é"})

    assert question.status_code == 200
    assert done.status_code == 409
    assert len(all_of(app, tenant)) == 1


# --- one document -------------------------------------------------------------------------------


def form_of(http: httpx.Client, id: str) -> dict[str, Any]:
    """The fields of its form as a browser sends them."""
    page = tree(http.get(f"/console/documents/{id}/edit"))
    form: dict[str, Any] = {"key": [], "kind": [], "value": []}
    for field in page.css("form.add [name]"):
        name, value = field.attributes["name"] or "", field.attributes.get("value") or ""
        if field.tag == "textarea":
            value = field.text()
        if field.tag == "select":
            chosen = field.css("option[selected]")
            value = (chosen or field.css("option"))[0].text()
        if name in ("key", "kind", "value"):
            form[name].append(value)
        else:
            form[name] = value
    return form


def sent(http: httpx.Client, id: str, form: dict[str, Any]) -> httpx.Response:
    return http.post(f"/console/documents/{id}/edit", data=form)


METADATA = {"topic": "birds", "year": 2026, "share": 0.5, "public": True}


@pytest.fixture
def note(app: App, tenant: Tenant) -> Document:
    made = add(
        app, tenant, "Heron\n\nIt wades.", tags=["notes"], metadata=METADATA, filepath="a/b.md"
    )
    drain(app)
    return made


def test_a_form_that_is_not_touched_changes_nothing(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    before = get(app, tenant, note.id)
    assert sent(me, note.id, form_of(me, note.id)).status_code == 303
    after = get(app, tenant, note.id)

    assert (after.revision, after.metadata, after.container_tags, after.filepath, after.text) == (
        before.revision, METADATA, ["notes"], "a/b.md", before.text,
    )  # fmt: skip


def test_text_labels_and_metadata_are_changed(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    form = form_of(me, note.id)
    form |= {"tag": "notes, birds", "customId": "heron", "filepath": "c/d.md"}
    topic, year = form["key"].index("topic"), form["key"].index("year")
    form["key"][topic], form["value"][topic] = "subject", "herons"
    form["key"][year], form["value"][year] = "", ""
    assert sent(me, note.id, form).headers["location"].endswith("?done=edit")
    labelled = get(app, tenant, note.id)
    form = form_of(me, note.id)
    assert sent(me, note.id, {**form, "content": "Egret\r\n\r\nIt wades."}).status_code == 303
    drain(app)
    rewritten = get(app, tenant, note.id)

    assert labelled.container_tags == ["notes", "birds"]
    assert (labelled.custom_id, labelled.filepath) == ("heron", "c/d.md")
    assert labelled.metadata == {"subject": "herons", "share": 0.5, "public": True}
    assert labelled.revision == 1
    assert (rewritten.text, rewritten.title, rewritten.revision) == (
        "Egret\n\nIt wades.", "Egret", 2,
    )  # fmt: skip
    form = form_of(me, note.id)
    form["key"] = [""] * len(form["key"])
    form["value"] = [""] * len(form["value"])
    assert sent(me, note.id, form).status_code == 303
    assert not get(app, tenant, note.id).metadata


def test_a_title_that_was_given_stays_until_it_is_given_up(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    assert sent(me, note.id, {**form_of(me, note.id), "title": "Of herons"}).status_code == 303
    given = get(app, tenant, note.id)
    assert sent(me, note.id, {**form_of(me, note.id), "content": "Egret\n\nIt."}).status_code == 303
    drain(app)
    rewritten = get(app, tenant, note.id)
    assert sent(me, note.id, {**form_of(me, note.id), "title": " "}).status_code == 303
    assert sent(me, note.id, {**form_of(me, note.id), "content": "Stork\n\nIt."}).status_code == 303
    drain(app)

    assert (given.title, given.revision) == ("Of herons", 1)
    assert (rewritten.title, rewritten.text) == ("Of herons", "Egret\n\nIt.")
    assert get(app, tenant, note.id).title == "Stork"


def test_what_was_typed_is_kept_when_it_cannot_be_saved(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    stale = {**form_of(me, note.id), "content": "mine"}
    assert sent(me, note.id, {**form_of(me, note.id), "content": "theirs"}).status_code == 303
    for form, status, reason in (
        (stale, 409, "Another person changed the document"),
        ({**form_of(me, note.id), "content": "mine", "tag": "no spaces"}, 400, "Tag: 1 to 100"),
        ({**form_of(me, note.id), "content": "mine", "tag": " , "}, 400, "at least one"),
        ({**form_of(me, note.id), "content": "mine", "value": ["x", "?"]}, 400, "not a number"),
        ({**form_of(me, note.id), "content": "mine", "filepath": "a\x07b"}, 400, "File path: "),
    ):
        answer = sent(me, note.id, form)

        assert answer.status_code == status, reason
        assert reason in one(answer, "[role=alert]").text()
        assert one(answer, "#content").text() == "mine"
    empty = sent(me, note.id, {**form_of(me, note.id), "content": " "})
    assert "Text must not be empty" in body(empty)
    drain(app)
    assert get(app, tenant, note.id).text == "theirs"
    # A form that was refused as stale stays stale: what is there now has to be looked at.
    assert sent(me, note.id, stale).status_code == 409


def test_what_was_typed_is_kept_when_the_document_is_gone(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    form = form_of(me, note.id)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [note.id])
    answer = sent(me, note.id, {**form, "content": "mine", "title": "Mine"})

    assert answer.status_code == 404
    assert "was deleted after you opened" in one(answer, "[role=alert]").text()
    assert one(answer, "form[action='/console/add'] #content").text() == "mine"
    assert one(answer, "#customId").attributes["value"] == form["customId"]


def test_a_text_is_saved_however_long_the_new_one_is(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    text = "It wades.\n\n" * 100_000
    form = form_of(me, note.id)
    refused = sent(me, note.id, {**form, "content": text, "tag": "no spaces"})
    assert refused.status_code == 400
    assert "It wades." in one(refused, "#content").text()

    assert sent(me, note.id, {**form, "content": text}).status_code == 303
    drain(app)
    assert get(app, tenant, note.id).text == text.strip()


def test_the_text_of_a_file_is_not_changed_by_a_form(me: httpx.Client, app: App, tenant: Tenant):
    file = upload(me, app, tenant, "a.md", b"# A heron", "text/markdown")
    drain(app)
    form = form_of(me, file.id)
    assert "content" not in form
    assert sent(me, file.id, {**form, "content": "mine", "tag": "birds"}).status_code == 303
    after = get(app, tenant, file.id)

    assert (after.text, after.revision, after.container_tags) == ("# A heron", 1, ["birds"])
    assert "comes from a file" in body(me.get(f"/console/documents/{file.id}/edit"))


def test_a_key_changes_what_it_may_and_nothing_else(
    browse: Callable[..., httpx.Client], me: httpx.Client, app: App, org: Org, tenant: Tenant
):
    shared = add(app, tenant, "shared", tags=["zoo", "park"])
    hidden = add(app, tenant, "hidden", tags=["park"])
    limited = browse(new_key(app, org, tags=["zoo"])[1])
    reader = browse(new_key(app, org, scope=Scope.READ)[1])
    form = form_of(me, shared.id)

    for id in (shared.id, hidden.id):
        assert reader.get(f"/console/documents/{id}/edit").status_code == 403
        assert sent(reader, id, form).status_code == 403
    assert limited.get(f"/console/documents/{hidden.id}/edit").status_code == 404
    assert sent(limited, hidden.id, form).status_code == 404
    own = form_of(limited, shared.id)
    assert sent(limited, shared.id, {**own, "tag": "park"}).status_code == 403
    assert sent(limited, shared.id, {**own, "customId": "mine"}).status_code == 303
    after = get(app, tenant, shared.id)
    assert (sorted(after.container_tags), after.custom_id) == (["park", "zoo"], "mine")
    assert get(app, tenant, hidden.id).custom_id is None


def test_what_is_typed_into_the_form_stays_text(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    def page(typed: str) -> httpx.Response:
        form = {"tag": "no spaces", "content": typed, "filepath": typed, "version": typed}
        form |= {"customId": typed, "key": typed, "kind": "text", "value": typed}
        return sent(me, note.id, form)

    calm = skeleton(tree(page("harmless")))
    for payload in PAYLOADS[::3]:
        assert skeleton(tree(page(payload))) == calm, payload
    assert get(app, tenant, note.id).revision == 1


def test_other_sites_cannot_change_a_document(
    me: httpx.Client, app: App, tenant: Tenant, note: Document
):
    form = {**form_of(me, note.id), "customId": "theirs"}
    answer = me.post(
        f"/console/documents/{note.id}/edit", data=form, headers={"sec-fetch-site": "cross-site"}
    )

    assert answer.status_code == 403
    assert get(app, tenant, note.id).custom_id is None
