"""The console's pages of archives with their members, and of what a sync changed."""

from collections.abc import Sequence
from typing import Any, get_args

import httpx
import pytest

from recollect.app import App, secret_keys
from recollect.documents import figures
from recollect.model import Connection, DocumentId, Org, Plan, Scope, Tenant, random_id
from recollect.orgs import orgs, settings
from recollect.sync import change_log
from recollect.worker.processing import drain
from tests.console.test_console import (
    HARMLESS,
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
    tree,
)
from tests.console.test_console_connections import ROOMS, make
from tests.extract.archives import packed

__all__ = ["browse", "me"]
FRUIT = {"a.txt": "Pears hang in the orchard.", "sub/b.md": "# Quince\n\nQuinces are sour."}


def archive(app: App, tenant: Tenant, paths: Sequence[str], **given: Any) -> str:
    """An archive as it is once it was unpacked, with documents of these paths; its id."""
    held = add(app, tenant, f"archive {random_id()}", **given)
    members = [add(app, tenant, f"member {path}", **given) for path in paths]
    with app.db.begin() as tx:
        tx.execute("update documents set unpacked = '{}' where id = %s", (held.id,))
        for path, member in zip(paths, members, strict=True):
            tx.execute(
                "update documents set archive_id = %s, archive_path = %s where id = %s",
                (held.id, path, member.id),
            )
    return held.id


def ran(
    app: App, made: Connection, changes: Sequence[tuple[str, str, int | None, int | None]]
) -> str:
    """A run that did this: (document, what, texts, new texts); its id."""
    run = random_id()
    tally = [sum(what == kind for _, what, _, _ in changes) for kind in get_args(change_log.What)]
    with app.db.begin() as tx:
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status, finished_at, added,"
            " changed, removed) values (%s, %s, 'cron', 'completed', now(), %s, %s, %s)",
            (run, made.id, *tally),
        )
        for number, (id, what, texts, new) in enumerate(changes):
            tx.execute(
                "insert into sync_changes (run_id, document_id, what, at, revision, texts,"
                " new_texts) values (%s, %s, %s, now() + %s * interval '1 ms', 1, %s, %s)",
                (run, id, what, number, texts, new),
            )
    return run


def rows(answer: httpx.Response, table: str) -> list[str]:
    return [
        " ".join(row.text(separator=" ").split()) for row in tree(answer).css(f"{table} tbody tr")
    ]


# --- archives ----------------------------------------------------------------------------------


def test_an_archive_leads_to_its_files_and_they_lead_back(
    me: httpx.Client, app: App, tenant: Tenant
):
    files = {"file": ("fruit.zip", packed(FRUIT), "application/zip")}
    assert me.post("/console/add", data={"tag": "notes"}, files=files).status_code == 303
    drain(app)
    (held,) = [document for document in all_of(app, tenant) if document.members is not None]
    page = me.get(f"/console/documents/{held.id}")
    links = [a.attributes["href"] or "" for a in tree(page).css(".members tbody th a")]
    member = me.get(links[1])
    table = rows(me.get("/console/documents"), ".documents")
    asked = me.post("/console/documents/confirm", data={"action": "delete", "id": held.id})

    assert "2 documents came out of it" in one(page, ".members caption").text()
    assert [row.split()[0] for row in rows(page, ".members")] == ["a.txt", "sub/b.md"]
    assert "Quinces are sour." in one(member, ".drawn").text()
    assert one(member, f".facts a[href='/console/documents/{held.id}']").text() == "fruit.zip"
    assert "sub/b.md" in one(member, ".facts").text()
    assert not tree(member).css(".members")
    assert any("2 files in it" in row for row in table)
    assert any("sub/b.md in another document" in row for row in table)
    assert "with all documents that came out of them" in body(asked)
    me.post("/console/documents/apply", data={"action": "delete", "id": held.id})
    assert all_of(app, tenant) == []


def test_the_files_of_an_archive_are_paged_by_their_paths(
    me: httpx.Client, app: App, tenant: Tenant
):
    held = archive(app, tenant, [f"{n:03}.txt" for n in reversed(range(60))])
    path = f"/console/documents/{held}"
    first, second = me.get(path), me.get(path, params={"files": 2})
    beyond = me.get(path, params={"files": 9})

    assert [row.split()[0] for row in rows(first, ".members")] == [f"{n:03}.txt" for n in range(50)]
    assert [row.split()[0] for row in rows(second, ".members")][-1] == "059.txt"
    assert "page 2 of 2" in one(second, ".members caption").text()
    assert "There is no such page" in body(beyond)
    assert "No document came out of it" in body(
        me.get(f"/console/documents/{archive(app, tenant, [])}")
    )


def test_a_key_limited_to_tags_sees_files_and_archives_only_there(
    browse: Any, app: App, org: Org, tenant: Tenant
):
    held = archive(app, tenant, ["mine.txt", "theirs.txt"], tags=["mine"])
    with app.db.begin() as tx:
        mine, theirs = figures.members(tx, tenant, DocumentId(held), limit=9, page=1).items
        tx.execute(
            "update documents set container_tags = '{theirs}', scope = '{}' where id = %s",
            (theirs.id,),
        )
    own = browse(new_key(app, org, scope=Scope.READ, tags=["mine"])[1])
    other = browse(new_key(app, org, scope=Scope.READ, tags=["theirs"])[1])

    assert [row.split()[0] for row in rows(own.get(f"/console/documents/{held}"), ".members")] == [
        "mine.txt"
    ]
    assert other.get(f"/console/documents/{mine.id}").status_code == 404
    page = other.get(f"/console/documents/{theirs.id}")
    assert "out of reach of this key" in body(page)
    assert held not in page.text


# --- what a sync changed -----------------------------------------------------------------------


def test_a_sync_tells_what_it_added_changed_and_removed(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    new, old, waits = (add(app, tenant, word, title=word) for word in ("new", "old", "waits"))
    run = ran(
        app,
        made,
        [
            (new.id, "added", 4, 4),
            (old.id, "changed", 4, 1),
            (waits.id, "changed", None, None),
            ("Vanished", "removed", None, None),
            ("Deleted", "added", None, None),
        ],
    )
    before = ran(app, make(app, tenant), [(new.id, "added", 1, 1)])
    own = f"{ROOMS}/{made.id}"
    links = [a.attributes["href"] or "" for a in tree(me.get(own)).css(".runs tbody td a")]
    page = me.get(f"{own}/runs/{run}")

    assert tree(me.get(ROOMS)).css(f".connections td a[href='{own}/runs/{run}']")
    assert links == [f"{own}/runs/{run}?what={what}" for what in ("added", "changed", "removed")]
    shown = rows(page, ".changes")
    assert [row.split()[0] for row in shown] == ["new", "old", "waits", "gone;", "gone;"]
    for row, words in zip(
        shown,
        ("added 100 %", "changed 25 %", "changed not processed yet", "removed –", "added –"),
        strict=True,
    ):
        assert words in row
    assert "Vanished" in shown[3]
    assert "/console/documents/Deleted" not in page.text
    assert f'href="/console/documents/{old.id}"' in page.text
    assert [len(rows(me.get(link), ".changes")) for link in links] == [2, 2, 1]
    assert me.get(f"{own}/runs/{before}").status_code == 404
    assert me.get(f"{own}/runs/absent").status_code == 404


def test_a_sync_that_changed_nothing_says_so(me: httpx.Client, app: App, tenant: Tenant):
    made = make(app, tenant)
    quiet = ran(app, made, [])
    old = ran(app, made, [("Vanished", "removed", None, None)])
    with app.db.begin() as tx:
        tx.execute("delete from sync_changes where run_id = %s", (old,))
    own = f"{ROOMS}/{made.id}/runs"

    assert "Nothing changed." in body(me.get(f"{own}/{quiet}"))
    assert "Nothing was removed." in body(me.get(f"{own}/{quiet}?what=removed"))
    assert "not kept any more" in body(me.get(f"{own}/{old}"))
    assert "There is no such page" in body(me.get(f"{own}/{quiet}?page=7"))
    for odd in ("%00", "%FF", "a" * 3000, "%F0%9F%92%A9"):
        for path in (f"{own}/{odd}", f"{own}/{quiet}?what={odd}", f"{own}/{quiet}?page={odd}"):
            assert me.get(path).status_code < 500, path


def test_changes_of_others_do_not_exist(me: httpx.Client, app: App, tenant: Tenant):
    with app.db.begin() as tx:
        other = Tenant(orgs.create(tx, f"other-{tenant.id}", Plan.FREE).id)
    try:
        made = make(app, other)
        foreign = add(app, other, "a foreign text", title="a foreign title")
        run = ran(app, made, [(foreign.id, "added", 1, 1)])
        mine = ran(app, own := make(app, tenant), [(foreign.id, "added", 1, 1)])

        assert me.get(f"{ROOMS}/{made.id}/runs/{run}").status_code == 404
        assert me.get(f"{ROOMS}/{own.id}/runs/{run}").status_code == 404
        assert "a foreign title" not in me.get(f"{ROOMS}/{own.id}/runs/{mine}").text
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (other.id,))


# --- retrying all ------------------------------------------------------------------------------


def test_all_that_failed_is_retried_in_parts_and_once(
    me: httpx.Client, app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("recollect.console._documents.RETRIED", 2)
    broken = [add(app, tenant, f"broken {n}") for n in range(5)]
    for document in broken:
        fail(app, document, "too_large", "too large")
    whole = add(app, tenant, "whole")
    drain(app)
    asked = me.post("/console/documents/confirm", data={"action": "failed"})
    done = me.post("/console/documents/apply", data={"action": "failed"})

    assert "5 documents will be processed again" in body(asked)
    assert done.headers["location"].endswith("?done=retry&n=5")
    assert {get(app, tenant, document.id).status for document in broken} == {"queued"}
    assert get(app, tenant, whole.id).status == "done"


# --- text stays text ---------------------------------------------------------------------------


def test_stored_markup_in_members_changes_and_filters_stays_text(
    me: httpx.Client, app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    def shape(answer: httpx.Response) -> list[tuple[str, tuple[str, ...]]]:
        """Elements and attributes, which are the same whatever the text."""
        assert answer.status_code == 200, answer.text
        assert not tree(answer).css("a[href^='java' i], a[href^='data' i], a[href^='vb' i]")
        # Files stand in the order of their paths, so that elements differ in their order alone.
        return sorted((n.tag or "", tuple(sorted(n.attributes))) for n in tree(answer).css("*"))

    monkeypatch.setattr("recollect.console._reading.MEMBERS", 100)
    monkeypatch.setattr("recollect.console._connections.CHANGES", 100)
    made = make(app, tenant)
    calm: dict[str, object] = {}
    for texts in ([HARMLESS] * len(PAYLOADS), PAYLOADS):
        held = archive(app, tenant, [f"{text}/{n}" for n, text in enumerate(texts)])
        with app.db.begin() as tx:
            members = figures.members(tx, tenant, DocumentId(held), limit=100, page=1).items
            for member in members:
                tx.execute(
                    "update documents set title = %(x)s, url = %(x)s, kind = %(x)s,"
                    " status = 'failed', due_at = null, error_code = %(x)s,"
                    " error_message = %(x)s where id = %(id)s",
                    {"x": (member.archive_path or "").rpartition("/")[0], "id": member.id},
                )
            tx.execute(
                "update documents set title = %(x)s, url = %(x)s where id = %(id)s",
                {"x": texts[0], "id": held},
            )
            patterns = {"urlPatterns": list(texts), "titlePatterns": list(texts)}
            rules = {"includeItems": patterns, "excludeItems": patterns, "filterPrompt": texts[2]}
            settings.patch(tx, tenant.id, rules, keys=secret_keys(app.config))
        run = ran(app, made, [(member.id, "changed", 2, 1) for member in members])
        pages = {
            "archive": f"/console/documents/{held}",
            "changes": f"{ROOMS}/{made.id}/runs/{run}",
            "some": f"{ROOMS}/{made.id}/runs/{run}?what=changed&part=live",
            "filters": "/console/filters",
        }
        for name, path in pages.items():
            found = shape(me.get(path))
            assert found == calm.setdefault(name, found), name
        for member in members[:: 1 if texts is PAYLOADS else len(PAYLOADS)]:
            found = shape(me.get(f"/console/documents/{member.id}"))
            assert found == calm.setdefault("member", found), member.archive_path
