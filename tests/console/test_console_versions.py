"""The page of a document's versions, and the setting that keeps them."""

import random
import string
from collections.abc import Callable

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.console import _versions
from recollect.console._versions import COMPARED, SHOWN, differences
from recollect.documents import DocumentChange
from recollect.model import Org, Scope, Tenant
from recollect.orgs import settings
from recollect.worker.processing import drain
from tests.console.test_console import (
    PAYLOADS,
    add,
    body,
    browse,
    me,
    new_key,
    one,
    tree,
)

__all__ = ["browse", "me"]


def keep(app: App, tenant: Tenant, number: int) -> None:
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, {"keepVersions": number}, keys=[])


def change(app: App, tenant: Tenant, id: str, text: str) -> None:
    with app.db.begin() as tx:
        to = DocumentChange(content=documents.text_content(text))
        documents.update(tx, tenant, id, to)


def edit(app: App, tenant: Tenant, id: str, text: str) -> None:
    change(app, tenant, id, text)
    drain(app)


def written(app: App, tenant: Tenant, *texts: str, **given: object) -> str:
    """A document that had all of these texts."""
    keep(app, tenant, 10)
    id = add(app, tenant, texts[0], **given).id
    drain(app)
    for text in texts[1:]:
        edit(app, tenant, id, text)
    return id


def changes(answer: httpx.Response) -> tuple[list[str], list[str]]:
    page = tree(answer)
    return [n.text() for n in page.css(".diff del")], [n.text() for n in page.css(".diff ins")]


def test_the_page_shows_the_versions_and_what_changed(
    me: httpx.Client, app: App, tenant: Tenant
) -> None:
    id = written(
        app, tenant, "# Fee\n\nTen euros.\n\nPaid.", "# Fee\n\nTwelve euros.\n\nPaid.", "# Fees\n"
    )
    link = one(me.get(f"/console/documents/{id}"), "a[href$='/versions']")
    assert link.text() == "3 versions"

    newest = me.get(link.attributes["href"] or "")
    assert [n.text() for n in tree(newest).css("tbody th")] == [
        "Revision 3",
        "Revision 2",
        "Revision 1",
    ]
    assert changes(newest)[1] == ["# Fees"]
    second = me.get(f"/console/documents/{id}/versions", params={"number": 1})
    assert changes(second) == (["Ten euros."], ["Twelve euros."])
    assert "Paid." in body(second)
    first = me.get(f"/console/documents/{id}/versions", params={"number": 2})
    assert one(first, "details .prose").text() == "# Fee\n\nTen euros.\n\nPaid."
    assert "No text from before it is kept" in body(first)
    assert one(first, "td [aria-current], th [aria-current]").text() == "Revision 1"
    for wrong in ("3", "-1", "x", "9" * 30):
        answer = me.get(f"/console/documents/{id}/versions", params={"number": wrong})
        assert answer.status_code in (400, 404), wrong


def test_without_older_texts_nothing_leads_there(
    me: httpx.Client, app: App, tenant: Tenant
) -> None:
    id = add(app, tenant, "Alone.").id
    assert me.get(f"/console/documents/{id}/versions").status_code == 404  # nothing is known yet
    drain(app)
    assert not tree(me.get(f"/console/documents/{id}")).css("a[href$='/versions']")
    assert "Settings say how many are" in body(me.get(f"/console/documents/{id}/versions"))


def test_markup_in_texts_stays_text(me: httpx.Client, app: App, tenant: Tenant) -> None:
    keep(app, tenant, 10)
    made = [(add(app, tenant, f"{payload} before").id, payload) for payload in PAYLOADS]
    drain(app)
    for id, payload in made:
        change(app, tenant, id, f"{payload} after")
    drain(app)
    for id, _ in made:
        page = me.get(f"/console/documents/{id}/versions")
        told = " ".join(part for side in changes(page) for part in side)
        assert "before" in told
        assert not tree(page).css(".diff :not(p, ins, del), main script, main img, main svg")


def test_strangers_and_limited_keys_see_none(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
) -> None:
    id = written(app, tenant, "Plum is the secret.", "Nothing is.", tags=["private"])
    limited = browse(new_key(app, org, scope=Scope.READ, tags=["shared"])[1])
    assert limited.get(f"/console/documents/{id}/versions").status_code == 404
    assert browse().get(f"/console/documents/{id}/versions").status_code == 303


def test_the_setting_is_a_number_and_a_lower_one_counts_at_once(
    me: httpx.Client, app: App, tenant: Tenant
) -> None:
    id = written(app, tenant, "1" * 1_000, "2" * 1_000, "three")
    for wrong in ("101", "-1", "many", "1.5", "²", "9" * 40):
        refused = me.post("/console/settings", data={"keepVersions": wrong})
        assert refused.status_code == 400, wrong
        assert "0 to 100" in one(refused, "[role=alert]").text()
    page = me.get("/console/settings")
    assert one(page, "[name=keepVersions]").attributes["value"] == "10"
    assert "Kept now: 2.0 kB" in body(page)
    assert me.post("/console/settings", data={"keepVersions": ""}).status_code == 303
    assert "Kept now" not in body(me.get("/console/settings"))
    assert len(tree(me.get(f"/console/documents/{id}/versions")).css("tbody tr")) == 1


# --- differences ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_leads_from_one_text_to_the_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_versions, "AROUND", 10_000)
    chance = random.Random(seed)
    before = [chance.choice("abcd") for _ in range(chance.randrange(40))]
    after = [line for line in before if chance.random() > 0.2]
    for _ in range(chance.randrange(6)):
        after.insert(chance.randrange(len(after) + 1), chance.choice(string.ascii_letters))
    told = differences(before, after)

    assert told is not None
    if before == after:
        assert told == []
        return
    assert [line for what, line in told if what != "in"] == before
    assert [line for what, line in told if what != "out"] == after


def test_lines_far_from_a_change_are_left_out() -> None:
    before = [f"line {n}" for n in range(100)]
    told = differences(before, [*before[:50], "new", *before[51:90], *before[91:]])
    assert told is not None
    kept = [line for what, line in told if what == "same"]
    assert kept == [
        f"line {n}" for n in (*range(47, 50), *range(51, 54), *range(87, 90), 91, 92, 93)
    ]
    assert [what for what, _ in told].count("gap") == 1


def test_what_would_take_long_is_not_compared() -> None:
    many = [str(n) for n in range(COMPARED)]
    assert differences(many, [line + "!" for line in many]) is None
    assert differences(many, [*many, "more"]) is not None
    told = differences([], many)
    assert told is not None
    assert len(told) == SHOWN
