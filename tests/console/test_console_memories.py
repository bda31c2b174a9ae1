"""The console's rooms for memories, profiles and tags: what they show, change and keep closed."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.memories import memories, reading, telling
from recollect.memories.records import Fact, Memory, MemoryQuery, MemoryTarget
from recollect.model import Org, Plan, Scope, Tenant
from recollect.orgs import orgs, tags
from recollect.worker import tag_merges
from recollect.worker.processing import drain
from tests.console.test_console import (
    PAYLOADS,
    POLICY,
    RUN,
    add,
    body,
    browse,
    get,
    me,
    new_key,
    one,
    tree,
)
from tests.console.test_console_connections import make

__all__ = ["browse", "me"]
MEMORIES = "/console/memories"
TAGS = "/console/tags"
TAG = f"{TAGS}/tag"
STRANGE = (
    "\0",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "🫏" * 40,
    "a" * 30_000,
)


def known(app: App, tenant: Tenant, text: str, tag: str = "notes", **more: Any) -> Memory:
    return telling.add(app, tenant, tag, [Fact(text=text, **more)])[1][0]


def stored(app: App, tenant: Tenant) -> list[Memory]:
    with app.db.begin() as tx:
        return list(reading.find(tx, tenant, MemoryQuery(limit=100)).items)


def details(app: App, tenant: Tenant, name: str) -> tags.TagDetails:
    with app.db.begin() as tx:
        return tags.get(tx, tenant, name)


def listed(answer: httpx.Response) -> list[str]:
    return [link.text().strip() for link in tree(answer).css("tbody th > a")]


# --- memories ----------------------------------------------------------------------------------


def test_a_memory_is_added_corrected_and_forgotten(me: httpx.Client, app: App, tenant: Tenant):
    form = {"content": "The heron\r\nnests in March.", "tag": "birds", "expires": "30d"}
    made = me.post(MEMORIES, data={**form, "static": "on"})
    page = made.headers["location"]
    shown = me.get(page)
    [memory] = stored(app, tenant)
    kept = one(shown, "#expires").attributes["value"]

    assert (memory.content, memory.tag) == ("The heron\nnests in March.", "birds")
    assert memory.is_static
    assert memory.forget_after is not None
    assert memory.forget_after > datetime.now(UTC)
    assert one(shown, "h1").text() == memory.content
    assert "Added." in one(shown, ".notice").text()

    change = {"content": "The heron nests in April.", "expires": kept}
    second = me.post(f"{MEMORIES}/{memory.id}/correct", data=change).headers["location"]
    corrected = me.get(second)
    before = me.get(page)
    [newest] = stored(app, tenant)

    assert (newest.content, newest.version) == ("The heron nests in April.", 2)
    assert newest.forget_after == memory.forget_after
    assert "The heron\nnests in March." in one(corrected, "#versions + table").text()
    assert "replaced it" in body(before)
    assert not tree(before).css("#content")
    unchanged = {**change, "expires": one(corrected, "#expires").attributes["value"]}
    assert (
        me.post(f"{MEMORIES}/{newest.id}/correct", data=unchanged)
        .headers["location"]
        .endswith(f"{newest.id}?done=same")
    )

    gone = me.post(f"{MEMORIES}/{newest.id}/forget", data={"reason": "a mistake"})
    after = me.get(gone.headers["location"])

    assert "Reason: a mistake" in body(after)
    assert not tree(after).css("form[action$=forget]")
    assert stored(app, tenant) == []
    assert listed(me.get(MEMORIES)) == []
    assert listed(me.get(MEMORIES, params={"forgotten": "true"})) == [newest.content]


def test_memories_are_found_by_tag_and_by_words_the_last_changed_first(
    me: httpx.Client, app: App, tenant: Tenant
):
    first = known(app, tenant, "Mira keeps herons.", "people:mira")
    known(app, tenant, "Jo repairs engines.", "people:jo")
    known(app, tenant, "The river rose.", "notes")
    drain(app)

    assert listed(me.get(MEMORIES)) == ["The river rose.", "Jo repairs engines.", first.content]
    assert listed(me.get(MEMORIES, params={"tag": "people:mira"})) == [first.content]
    assert sorted(listed(me.get(MEMORIES, params={"tag": "people:*"}))) == [
        "Jo repairs engines.",
        first.content,
    ]
    found = me.get(MEMORIES, params={"q": "Mira keeps herons", "tag": "people:mira"})
    assert listed(found) == [first.content]
    assert "herons" in [mark.text() for mark in tree(found).css("tbody mark")]
    assert "No memory answers this" in body(me.get(MEMORIES, params={"q": "x", "tag": "nothing"}))


def test_a_memory_shows_its_documents_and_the_profile_lists_it(
    me: httpx.Client, app: App, tenant: Tenant
):
    lasting = known(app, tenant, "Mira is a ranger.", "mira", is_static=True)
    current = known(app, tenant, "Mira counts geese.", "mira", buckets=["work"])
    page = me.get(f"{MEMORIES}/{lasting.id}")
    me.post(f"{TAGS}/bucket", data={"name": "mira", "key": "work", "description": "Jobs"})
    profile = me.get(f"{TAGS}/profile", params={"name": "mira"})
    sections = {
        section.css("h2")[0].text(): [link.text() for link in section.css("li a")]
        for section in tree(profile).css("section")
    }

    assert tree(page).css(f"a[href^='/console/documents/{lasting.sources[0]}']")
    assert sections["Lasting"] == [lasting.content]
    assert sections["Current"] == [current.content]
    assert sections["work"] == [current.content]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"content": "  "}, "write what"),
        ({"content": "x" * 10_001}, "at most 10,000"),
        ({"content": "x", "tag": "no/tag"}, "Tag: "),
        ({"content": "x", "tag": "team:*"}, "Tag: "),
        ({"content": "x", "expires": "soon"}, "how long"),
        ({"content": "x", "expires": "2001-01-01"}, "from now"),
    ],
)
def test_a_memory_that_cannot_be_says_why_and_keeps_what_was_typed(
    me: httpx.Client, app: App, tenant: Tenant, form: dict[str, str], reason: str
):
    answer = me.post(MEMORIES, data=form)

    assert answer.status_code == 400
    assert reason in one(answer, "[role=alert]").text()
    assert one(answer, "#content").text() == form["content"]
    assert one(answer, "#expires").attributes["value"] == form.get("expires", "")
    assert stored(app, tenant) == []


# --- tags --------------------------------------------------------------------------------------


def test_a_tag_shows_what_it_holds_and_its_settings_change(
    me: httpx.Client, app: App, tenant: Tenant
):
    add(app, tenant, "one", tags=["team.a"])
    add(app, tenant, "two", tags=["team.a", "notes"])
    known(app, tenant, "It rains.", "team.a")
    make(app, tenant, tags=["team.a"])
    rows = {
        row.css("th a")[0].text(): [cell.text(deep=True).split()[0] for cell in row.css("td a")]
        for row in tree(me.get(TAGS)).css("tbody tr")
    }
    page = me.get(TAG, params={"name": "team.a"})

    assert rows["team.a"] == ["3", "1"]  # a memory that is told lies in a document, too
    assert [dd.text().strip() for dd in tree(page).css(".figures dd")] == ["3", "1", "1"]
    assert listed(me.get(TAGS, params={"q": "TEAM"})) == ["team.a"]

    saved = me.post(TAG, data={"name": "team.a", "title": "Team A", "context": "Minutes.\r\nAll."})
    found = details(app, tenant, "team.a")

    assert saved.headers["location"] == f"{TAG}?name=team.a&done=saved"
    assert (found.title, found.tag.entity_context) == ("Team A", "Minutes.\nAll.")

    for key in ("work", "work", "x" * 65, "static", "no good"):
        me.post(f"{TAGS}/bucket", data={"name": "team.a", "key": key, "description": "Jobs"})
    own = details(app, tenant, "team.a").profile_buckets
    me.post(f"{TAGS}/bucket", data={"name": "team.a", "key": "work", "action": "remove"})

    assert own == [{"key": "work", "description": "Jobs"}]
    assert not details(app, tenant, "team.a").profile_buckets


def test_deleting_a_tag_says_the_numbers_first(me: httpx.Client, app: App, tenant: Tenant):
    alone = add(app, tenant, "one", tags=["old"])
    shared = add(app, tenant, "two", tags=["old", "notes"])
    make(app, tenant, tags=["old"])
    question = me.get(f"{TAGS}/delete", params={"name": "old"})

    assert one(question, "h1").text() == "Delete the tag old and 1 document?"
    assert "1 of the 2 documents has no other tag" in body(question)
    assert "1 connection that writes to this tag alone is deleted" in body(question)
    assert get(app, tenant, alone.id).id == alone.id  # asking deletes nothing

    done = me.get(me.post(f"{TAGS}/delete", data={"name": "old"}).headers["location"])

    assert "The tag old is deleted, and 1 document with it" in body(done)
    assert list(get(app, tenant, shared.id).container_tags) == ["notes"]
    assert me.get(TAG, params={"name": "old"}).status_code == 404
    assert me.post(f"{TAGS}/delete", data={"name": "old"}).status_code == 404


def test_a_tag_is_merged_after_a_question(me: httpx.Client, app: App, tenant: Tenant):
    moved = add(app, tenant, "one", tags=["mine"])
    question = me.get(f"{TAGS}/merge", params={"name": "mine", "into": "yours"})

    assert one(question, "h1").text() == "Merge the tag mine into yours?"
    assert "1 document" in body(question)
    assert list(get(app, tenant, moved.id).container_tags) == ["mine"]

    begun = me.post(f"{TAGS}/merge", data={"name": "mine", "into": "yours"}).headers["location"]
    assert "Moving" in body(me.get(begun))
    assert me.post(f"{TAGS}/delete", data={"name": "mine"}).status_code == 409
    while tag_merges.step(app):
        pass

    assert "Done: 1 document moved" in body(me.get(begun))
    assert list(get(app, tenant, moved.id).container_tags) == ["yours"]
    for into, reason in (("", "name the tag"), ("yours", "another tag"), ("a/b", "Target tag: ")):
        refused = me.get(f"{TAGS}/merge", params={"name": "yours", "into": into})
        assert (refused.status_code, reason in one(refused, "[role=alert]").text()) == (400, True)


# --- closed doors ------------------------------------------------------------------------------


def doors(memory: Memory, tag: str) -> list[tuple[str, str, dict[str, str]]]:
    """Everything in these rooms that reads or changes one memory or one tag."""
    return [
        ("GET", f"{MEMORIES}/{memory.id}", {}),
        ("GET", TAG, {"name": tag}),
        ("GET", f"{TAGS}/profile", {"name": tag}),
        ("GET", f"{TAGS}/merge", {"name": tag, "into": "notes"}),
        ("GET", f"{TAGS}/delete", {"name": tag}),
        ("POST", f"{MEMORIES}/{memory.id}/correct", {"content": "stolen"}),
        ("POST", f"{MEMORIES}/{memory.id}/forget", {}),
        ("POST", TAG, {"name": tag, "title": "stolen"}),
        ("POST", f"{TAGS}/bucket", {"name": tag, "key": "stolen"}),
        ("POST", f"{TAGS}/merge", {"name": tag, "into": "notes"}),
        ("POST", f"{TAGS}/delete", {"name": tag}),
    ]


def knock(http: httpx.Client, door: tuple[str, str, dict[str, str]], **more: Any) -> httpx.Response:
    method, path, given = door
    how = {"params": given} if method == "GET" else {"data": given}
    return http.request(method, path, **how, **more)


def test_neither_a_stranger_nor_a_key_of_another_tag_sees_or_changes_it(
    me: httpx.Client,
    browse: Callable[..., httpx.Client],
    app: App,
    org: Org,
    tenant: Tenant,
):
    add(app, tenant, "mine", tags=["notes"])
    secret = known(app, tenant, "The needle lies in the barn.", "closed")
    with app.db.begin() as tx:
        other = orgs.create(tx, f"other-{org.id}", Plan.FREE)
    try:
        limited = browse(new_key(app, org, tags=["notes"])[1])
        for http in (limited, browse(new_key(app, other)[1])):
            for door in doors(secret, "closed"):
                assert knock(http, door).status_code == 404, door
            for path in (MEMORIES, f"{MEMORIES}?q=the+needle+lies&forgotten=true", TAGS):
                shown = http.get(path).text
                assert "barn" not in shown, path
                assert "closed" not in shown, path
        for into in ("closed", "elsewhere"):
            refused = limited.post(f"{TAGS}/merge", data={"name": "notes", "into": into})
            assert refused.status_code in (401, 403), into
        told = limited.post(MEMORIES, data={"content": "stolen", "tag": "closed"})
        asked = limited.get(MEMORIES, params={"tag": "closed"})
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (other.id,))

    assert told.status_code == asked.status_code == 403
    assert [one.content for one in stored(app, tenant)] == [secret.content]
    assert details(app, tenant, "closed").title is None


def test_a_reading_key_and_another_site_change_nothing(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    memory = known(app, tenant, "It stays.", "notes")
    reader = browse(new_key(app, org, scope=Scope.READ)[1])
    writing = [door for door in doors(memory, "notes") if door[0] == "POST"]
    writing.append(("POST", MEMORIES, {"content": "x"}))
    for door in writing:
        assert knock(reader, door).status_code == 403, door
        for where in ("cross-site", "same-site", "none"):
            answer = knock(me, door, headers={"sec-fetch-site": where})
            assert answer.status_code == 403, (door, where)
    for path in (MEMORIES, f"{MEMORIES}/{memory.id}", f"{TAG}?name=notes"):
        page = reader.get(path)
        assert page.status_code == 200
        assert not tree(page).css("main form[method=post] button"), path
        assert page.headers["content-security-policy"] == POLICY

    assert [one.content for one in stored(app, tenant)] == ["It stays."]


def test_no_input_is_an_error_of_ours_and_markup_stays_text(
    me: httpx.Client, app: App, tenant: Tenant
):
    memory = known(app, tenant, "It stays.", "notes")
    ways = [*doors(memory, "notes"), ("GET", MEMORIES, {"q": "", "tag": "", "page": ""})]
    ways.append(("POST", MEMORIES, {"content": "", "tag": "", "expires": "", "reason": ""}))
    ways.append(("GET", TAGS, {"q": "", "page": "", "ended": "", "n": "", "c": ""}))
    lasting = [way for way in ways if not (way[0] == "POST" and way[1] == f"{TAGS}/delete")]
    for odd in STRANGE:
        for method, path, given in lasting:
            for field in (*given, "expires", "reason", "context", "description", "done"):
                if path.endswith("/merge") and field != "name" and field != "into":
                    continue  # a merge would begin
                answer = knock(me, (method, path, {**given, field: odd}))
                assert answer.status_code < 500, (path, field, odd[:9])
    for payload in PAYLOADS[::6]:
        hostile = known(app, tenant, payload, "notes", metadata={payload: payload})
        with app.db.begin() as tx:
            tags.patch(tx, tenant, "notes", {"title": payload, "entity_context": payload})
            memories.forget(tx, tenant, "notes", MemoryTarget(hostile.id), payload)
        for path in (
            f"{MEMORIES}/{hostile.id}",
            f"{MEMORIES}?forgotten=true",
            f"{TAG}?name=notes",
            TAGS,
        ):
            shown = tree(me.get(path))
            assert not [s for s in shown.css("script") if RUN in s.text()]
            assert not shown.css("[onload], [onerror], [onfocus], [onbegin], [ontoggle]"), path
        assert one(me.get(f"{MEMORIES}/{hostile.id}"), "h1").text() == payload
