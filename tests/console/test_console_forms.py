"""Every form of the console, found by a walk over its routes, against who may not send it, against
ids of others, and against odd input."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import quote

import httpx
import pytest

from recollect import console
from recollect.app import App
from recollect.console import _editing
from recollect.console._room import SignedInPage
from recollect.db import Database
from recollect.model import Org, Plan, Scope, Tenant
from recollect.orgs import assistants, orgs
from recollect.search import evaluation
from recollect.search.evaluation import Expected
from tests.console.test_console import add, browse, me, new_key
from tests.console.test_console_connections import make
from tests.console.test_console_memories import known
from tests.console.test_console_rooms import URL, hook

__all__ = ["browse", "me"]
NAME = re.compile(r"""\bname="([A-Za-z_.]+)\"""")
TEMPLATES = Path(console.__file__).with_name("templates")
FIELDS = sorted({name for file in TEMPLATES.iterdir() for name in NAME.findall(file.read_text())})
PATHS = sorted(
    route.path
    for route in console.ROUTES
    if isinstance(route, SignedInPage)
    and "POST" in (route.methods or ())
    and ":path" not in route.path
)


@dataclass(frozen=True)
class Form:
    """What a person sends by a form, who may, and what comes back.

    `{memory}` and the like in the path and the fields are ids of things that are there.
    """

    least: Scope
    sent: Mapping[str, str] = field(default_factory=dict[str, str])
    answer: int = 303
    at: str = ""
    """What `{id}` of the path is an id of, or the provider."""


NOTES = {"name": "notes"}
FORMS: Mapping[str, Form] = {
    "/console/add": Form(Scope.WRITE, {"content": "A heron.", "tag": "notes"}),
    "/console/add/check": Form(Scope.WRITE, {"tag": "notes", "number": "1"}, 200),
    "/console/ask": Form(Scope.READ, {"q": "Where do herons nest?"}, 200),
    "/console/assistant": Form(Scope.ADMIN, {"scope": "read"}, 200),
    "/console/assistants/allow": Form(
        Scope.READ,
        {
            "decision": "deny",
            "client_id": "{program}",
            "redirect_uri": "https://assistant.example/back",
            "response_type": "code",
            "code_challenge": "c" * 43,
            "code_challenge_method": "S256",
        },
    ),
    "/console/assistants/{id}/revoke": Form(Scope.ADMIN, at="assistant"),
    "/console/connections/new/{provider}": Form(
        Scope.WRITE, {"m.startUrl": "http://127.0.0.1:9/", "tags": "notes"}, at="web-crawler"
    ),
    "/console/connections/new/{provider}/application": Form(
        Scope.ADMIN, {"id": "client", "secret": "hidden"}, at="gmail"
    ),
    "/console/connections/{id}/delete": Form(Scope.WRITE, {"what": "connection"}, at="connection"),
    "/console/connections/{id}/do": Form(Scope.WRITE, {"action": "pause"}, at="connection"),
    "/console/connections/{id}/edit": Form(
        Scope.WRITE, {"m.startUrl": "https://docs.example/", "tags": "other"}, at="connection"
    ),
    # A website has nothing to pick; what GitHub has is picked in test_console_connections.
    "/console/connections/{id}/pick": Form(Scope.WRITE, answer=501, at="connection"),
    "/console/documents/apply": Form(Scope.WRITE, {"action": "delete", "id": "{document}"}),
    "/console/documents/confirm": Form(Scope.WRITE, {"action": "delete", "id": "{document}"}, 200),
    "/console/documents/{id}/edit": Form(
        Scope.WRITE,
        {"title": "A heron", "content": "A heron.", "tag": "notes", "version": "{version}"},
        at="document",
    ),
    "/console/filters": Form(Scope.ADMIN, {"action": "save"}),
    "/console/keys": Form(Scope.ADMIN, {"name": "another", "scope": "read"}, 200),
    "/console/keys/{id}/revoke": Form(Scope.ADMIN, at="key"),
    "/console/logout": Form(Scope.READ),
    "/console/memories": Form(Scope.WRITE, {"content": "Herons nest in March.", "tag": "notes"}),
    "/console/memories/{id}/correct": Form(
        Scope.WRITE, {"content": "Herons nest in April."}, at="memory"
    ),
    "/console/memories/{id}/forget": Form(Scope.WRITE, {"reason": "wrong"}, at="memory"),
    "/console/sample": Form(Scope.WRITE),
    "/console/settings": Form(Scope.ADMIN, {"workspacePrompt": "We watch herons."}),
    "/console/tags/bucket": Form(Scope.WRITE, {**NOTES, "key": "food", "description": "Fish"}),
    "/console/tags/delete": Form(Scope.WRITE, NOTES),
    "/console/tags/merge": Form(Scope.WRITE, {**NOTES, "into": "others"}),
    "/console/tags/questions": Form(
        Scope.WRITE, {**NOTES, "question": "Where do herons nest?", "words": "reeds"}
    ),
    "/console/tags/questions/make": Form(Scope.WRITE, NOTES),
    "/console/tags/questions/remove": Form(Scope.WRITE, {**NOTES, "id": "{question}"}),
    "/console/tags/questions/run": Form(Scope.WRITE, NOTES),
    "/console/tags/questions/runs/{id}": Form(Scope.WRITE, at="run"),
    "/console/tags/tag": Form(Scope.WRITE, {**NOTES, "title": "Notes"}),
    "/console/webhooks": Form(Scope.WRITE, {"url": URL, "event": "document.done"}, 200),
    "/console/webhooks/{id}/delete": Form(Scope.WRITE, at="webhook"),
    "/console/webhooks/{id}/do": Form(Scope.WRITE, {"action": "pause"}, at="webhook"),
    "/console/webhooks/{id}/edit": Form(
        Scope.WRITE, {"url": URL, "event": "document.failed"}, at="webhook"
    ),
}
"""A row for every form."""
KEPT: tuple[LiteralString, ...] = ("documents", "memories", "connections", "endpoints", "tags")
"""Tables that no form changes for who may not."""
ODD = ["", "a\0b", "x" * 1_000_000, "-1", "[]", "' or 1=1 --", "\U0001f600", "../../etc/passwd"]


@pytest.fixture
def ids(app: App, tenant: Tenant, org: Org) -> list[str]:
    """Of things of this organisation that carry the tag `theirs`."""
    found = [add(app, tenant, "a heron", tags=["theirs"]).id, "theirs"]
    found.append(new_key(app, org, name="other")[0].id)
    return found


def rows(db: Database, org: Org) -> Mapping[str, list[str]]:
    """What is kept of the organisation, and its keys without the time of their last use."""
    with db.begin() as tx:
        kept = {
            table: [
                row["said"]
                for row in tx.execute(
                    "select t::text as said from " + table + " t where org_id = %s order by 1",
                    (org.id,),
                )
            ]
            for table in KEPT
        }
        keys = tx.execute("select id from keys where org_id = %s order by 1", (org.id,)).fetchall()
    return {**kept, "keys": [row["id"] for row in keys]}


def send(http: httpx.Client, path: str, value: str, **how: Any) -> httpx.Response:
    filled = re.sub(r"\{[^}]*\}", quote(value[:200] or "x", safe=""), path)
    return http.post(filled, data=dict.fromkeys(FIELDS, value), **how)


def test_the_walk_finds_the_forms_and_each_has_a_row():
    assert sorted(FORMS) == PATHS
    assert len(PATHS) > 30
    assert {"content", "tag", "name"} <= set(FIELDS)


@pytest.fixture
def things(app: App, tenant: Tenant, org: Org) -> dict[str, str]:
    """Ids of what the rows speak of."""
    document = add(app, tenant, "Herons nest in the reeds.", title="Heron")
    key = new_key(app, org, name="other")[0]
    back = "https://assistant.example/back"
    with app.db.begin() as tx:
        [question] = evaluation.add(tx, tenant, "notes", [Expected("Where?", document.id, None)])
        run = evaluation.begin(tx, tenant, "notes", rerank=False, rewrite=False)
        program = assistants.register(tx, "A test", [back])
        assistants.allow(
            tx,
            key,
            program,
            scope=Scope.READ,
            tags=None,
            redirect_uri=back,
            challenge="c" * 43,
        )
        [assistant] = assistants.find(tx, org.id)
    return {
        "document": document.id,
        "version": _editing.version(document),
        "memory": known(app, tenant, "Herons nest in May.").id,
        "connection": make(app, tenant).id,
        "webhook": hook(app, tenant).id,
        "key": key.id,
        "question": question.id,
        "run": run.id,
        "program": program.id,
        "assistant": assistant.id,
    }


def fill(http: httpx.Client, path: str, things: Mapping[str, str]) -> httpx.Response:
    """Send a form as its row says."""
    form = FORMS[path]
    target = re.sub(r"\{[^}]*\}", lambda _: things.get(form.at, form.at), path)
    return http.post(target, data={name: it.format_map(things) for name, it in form.sent.items()})


@pytest.mark.parametrize("path", PATHS)
def test_a_form_is_taken_from_those_who_may_send_it_and_from_no_other(
    app: App,
    browse: Callable[..., httpx.Client],
    things: dict[str, str],
    db: Database,
    org: Org,
    path: str,
):
    form = FORMS[path]
    before = rows(db, org)
    below = {Scope.READ: [], Scope.WRITE: [Scope.READ], Scope.ADMIN: [Scope.READ, Scope.WRITE]}
    for scope in below[form.least]:
        assert fill(browse(new_key(app, org, scope=scope)[1]), path, things).status_code == 403
    after = rows(db, org)
    assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}

    http = browse(new_key(app, org, scope=form.least)[1])
    answer = fill(http, path, things)

    assert answer.status_code == form.answer, answer.text


def test_no_form_is_taken_from_another_site_or_without_a_session(
    browse: Callable[..., httpx.Client], me: httpx.Client, ids: list[str], db: Database, org: Org
):
    before = rows(db, org)
    stranger = browse()
    for path in PATHS:
        for foreign in ("cross-site", "same-site", "none"):
            answer = send(me, path, ids[0], headers={"sec-fetch-site": foreign})
            assert answer.status_code == 403, (path, foreign)
        for cookie in ("", "recollect_session=guess"):
            answer = send(stranger, path, ids[0], headers={"cookie": cookie})
            assert answer.status_code == 401, (path, cookie)

    assert rows(db, org) == before


@pytest.mark.parametrize("who", ["reads", "limited", "another organisation"])
def test_no_form_changes_what_a_session_does_not_reach(
    app: App,
    browse: Callable[..., httpx.Client],
    ids: list[str],
    db: Database,
    org: Org,
    who: str,
):
    with db.begin() as tx:
        other = orgs.create(tx, f"org-{orgs.random_id()}", Plan.ENTERPRISE)
    secret = {
        "reads": lambda: new_key(app, org, scope=Scope.READ),
        "limited": lambda: new_key(app, org, tags=["mine"]),
        "another organisation": lambda: new_key(app, other),
    }[who]()[1]
    http = browse(secret)
    before = rows(db, org)
    for path in PATHS:
        for id in ids if not path.endswith("/logout") else []:
            assert send(http, path, id).status_code != 500, (path, id)

    after = rows(db, org)
    if who == "limited":  # it may make things of its own
        after = {
            table: [row for row in after[table] if row in was] for table, was in before.items()
        }
    assert after == before
    with db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (other.id,))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_form_breaks_by_odd_input(me: httpx.Client):
    broken: list[tuple[str, str, int]] = []
    for path in PATHS:
        if path.endswith("/logout"):
            continue
        for value in ODD:
            answer = send(me, path, value)
            if answer.status_code >= 500:
                broken.append((path, value[:20], answer.status_code))
        others: list[dict[str, Any]] = [
            {},
            {"json": {"a": [1]}},
            {"files": {"content": ("a", b"\0")}},
        ]
        for more in others:
            answer = me.post(re.sub(r"\{[^}]*\}", "x", path), **more)
            if answer.status_code >= 500:
                broken.append((path, repr(more), answer.status_code))

    assert broken == []
