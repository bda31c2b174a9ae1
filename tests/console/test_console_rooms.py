"""The console's rooms for webhooks, filters and the audit log, its stream, and code to copy."""

import ast
import asyncio
import inspect
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema
import pytest
import uvicorn
from supermemory import Supermemory

from recollect import console
from recollect.api import create_app, turns
from recollect.app import App
from recollect.console import _code, _live
from recollect.events import endpoints, outbox, signing, streams, targets
from recollect.events.listener import Notice
from recollect.events.outbox import Attempt
from recollect.events.streams import STREAMS_OF_A_KEY, Events
from recollect.events.targets import WebhookTarget
from recollect.model import Connection, Key, Org, Plan, Scope, Tenant, random_id
from recollect.orgs import audit, orgs, settings
from recollect.sync import connections, items
from recollect.worker.processing import drain
from tests.conftest import eventually, plain_client
from tests.console.test_console import (
    HARMLESS,
    PAYLOADS,
    add,
    body,
    browse,
    me,
    new_key,
    one,
    tree,
)
from tests.console.test_console_connections import make, saw

__all__ = ["browse", "me"]
HOOKS = "/console/webhooks"
URL = "http://127.0.0.1:9/hook"


def hook(app: App, tenant: Tenant, **given: Any) -> WebhookTarget:
    return endpoints.create(app, tenant, **{"url": URL, **given})[0]


def find(app: App, tenant: Tenant) -> list[WebhookTarget]:
    with app.db.begin() as tx:
        return targets.find(tx, tenant)


def told(app: App, tenant: Tenant, target: WebhookTarget, attempt: Attempt | None) -> str:
    """A delivery that was tried once, if there is an attempt; its id."""
    with app.db.begin() as tx:
        made = outbox.try_out(tx, tenant, target.id)
        if attempt is not None:
            (claimed,) = outbox.claim(tx, lease=timedelta(minutes=1), limit=1, busy={})
            if attempt.reason is None:
                outbox.delivered(tx, claimed, attempt)
            else:
                outbox.refused(tx, claimed, attempt, None)
    return made.id


# --- webhooks ----------------------------------------------------------------------------------


def test_a_webhook_is_made_and_its_secret_is_shown_once(me: httpx.Client, app: App, tenant: Tenant):
    form = {"url": URL, "event": ["document.done", "sync.failed"], "description": "intranet"}
    made = me.post(HOOKS, data=form)
    (found,) = find(app, tenant)
    secret = one(made, "#secret").text().strip()

    assert secret.startswith(signing.PREFIX)
    assert signing.check_secret(secret) == secret
    assert (found.url, found.description) == (URL, "intranet")
    assert list(found.events) == ["document.done", "sync.failed"]
    assert found.tags is None
    for path in (HOOKS, f"{HOOKS}/{found.id}", f"{HOOKS}/{found.id}/edit"):
        assert secret not in me.get(path).text, path


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({}, "Address: "),
        ({"url": URL}, "choose at least one"),
        ({"url": URL, "event": ["none.such"]}, "choose at least one"),
        ({"url": "http://10.1.2.3/", "event": ["document.done"]}, "Address: "),
        ({"url": "file:///etc/passwd", "event": ["document.done"]}, "Address: "),
        ({"url": URL, "event": ["document.done"], "tags": "no/tag"}, "Tag: "),
        ({"url": URL, "event": ["document.done"], "description": "x" * 201}, "at most 200"),
    ],
)
def test_a_webhook_that_may_not_be_says_why_and_keeps_what_was_typed(
    me: httpx.Client, app: App, tenant: Tenant, form: dict[str, Any], reason: str
):
    answer = me.post(HOOKS, data=form)

    assert answer.status_code == 400
    assert reason in one(answer, "[role=alert]").text()
    assert one(answer, "#url").attributes["value"] == form.get("url", "")
    assert find(app, tenant) == []


def test_a_webhook_is_changed_paused_resumed_and_deleted(
    me: httpx.Client, app: App, tenant: Tenant
):
    own = f"{HOOKS}/{hook(app, tenant).id}"
    form = {"url": URL + "/2", "event": ["document.failed"], "description": "new"}
    me.post(f"{own}/edit", data={**form, "tags": "a"})
    assert find(app, tenant)[0].tags == ["a"]
    assert me.post(f"{own}/edit", data=form).headers["location"] == f"{own}?done=changed"
    (changed,) = find(app, tenant)
    waiting = told(app, tenant, changed, None)
    me.post(f"{own}/do", data={"action": "pause"})
    paused = me.get(own)
    replayed = me.post(f"{own}/do", data={"action": "replay", "delivery": waiting})
    me.post(f"{own}/do", data={"action": "resume"})

    assert (changed.url, list(changed.events)) == (URL + "/2", ["document.failed"])
    assert changed.tags is None
    assert "Paused" in body(paused)
    assert not tree(paused).css("button[value=replay]")
    assert replayed.status_code == 400
    assert find(app, tenant)[0].disabled_at is None
    assert "gets no more events" in body(me.get(f"{own}/delete"))
    assert me.post(f"{own}/delete").headers["location"] == f"{HOOKS}?done=deleted"
    assert find(app, tenant) == []


def test_the_log_tells_how_it_went_and_sends_again(me: httpx.Client, app: App, tenant: Tenant):
    target = hook(app, tenant)
    dead = told(app, tenant, target, Attempt(500, "answered 500", 31.0))
    with app.db.begin() as tx:
        tx.execute("update endpoints set rest_until = now() where id = %s", (target.id,))
    told(app, tenant, target, Attempt(204, None, 12.5))
    own = f"{HOOKS}/{target.id}"
    page = me.get(own)
    only = me.get(own, params={"state": "dead"})

    assert [row.text() for row in tree(page).css(".deliveries td .mark")] == ["delivered", "dead"]
    assert [row.text() for row in tree(only).css(".deliveries td .mark")] == ["dead"]
    assert "answered 500" in body(only)
    assert '"type": "webhook.test"' in tree(page).css(".payload")[0].text()
    me.post(f"{own}/do", data={"action": "replay", "delivery": dead})
    with app.db.begin() as tx:
        states = {
            d.id: d.state
            for d in outbox.deliveries(tx, tenant, target.id, state=None, limit=9, page=1).items
        }
    assert states[dead] == "pending"
    assert me.post(f"{own}/do", data={"action": "replay", "delivery": "x"}).status_code == 404
    assert me.post(f"{own}/do", data={"action": "x"}).status_code == 400


def test_a_new_secret_is_shown_once_and_the_old_one_signs_on(
    me: httpx.Client, app: App, tenant: Tenant
):
    target = hook(app, tenant)
    answer = me.post(f"{HOOKS}/{target.id}/do", data={"action": "rotate"})
    told(app, tenant, target, None)
    with app.db.begin() as tx:
        (claimed,) = outbox.claim(tx, lease=timedelta(minutes=1), limit=1, busy={})

    assert one(answer, "#secret").text().strip().startswith(signing.PREFIX)
    assert len(claimed.secrets) == 2


def test_webhooks_of_others_do_not_exist_and_readers_only_look(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    mine, all_tags = hook(app, tenant, tags=["mine"]), hook(app, tenant)
    with app.db.begin() as tx:
        other = orgs.create(tx, f"other-{random_id()}", Plan.ENTERPRISE)
    foreign = hook(app, Tenant(other.id))
    _, reading = new_key(app, org, scope=Scope.READ)
    _, limited = new_key(app, org, scope=Scope.WRITE, tags=["mine"])
    reader, narrow = browse(reading), browse(limited)
    try:
        for http, absent in ((reader, [foreign]), (narrow, [foreign, all_tags])):
            for target in absent:
                for path in ("", "/edit", "/delete"):
                    wanted = (403, 404) if http is reader else (404,)
                    assert http.get(f"{HOOKS}/{target.id}{path}").status_code in wanted
                assert target.id not in http.get(HOOKS).text
                assert http.get(f"/console/events?of=webhooks/{target.id}").status_code == 404
        for path, form in (
            ("", {"url": URL, "event": ["document.done"]}),
            (f"/{mine.id}/do", {"action": "pause"}),
            (f"/{mine.id}/edit", {"url": URL}),
            (f"/{mine.id}/delete", {}),
        ):
            assert reader.post(HOOKS + path, data=form).status_code == 403, path
        assert not tree(reader.get(f"{HOOKS}/{mine.id}")).css("main form")
        form = {"url": URL, "event": ["document.done"], "tags": "theirs"}
        assert narrow.post(HOOKS, data=form).status_code == 403
        assert narrow.post(HOOKS, data={**form, "tags": ""}).status_code == 200
        assert sorted(list(t.tags or ["all"]) for t in find(app, tenant)) == [
            ["all"],
            ["mine"],
            ["mine"],
        ]
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (other.id,))


# --- filters -----------------------------------------------------------------------------------


@pytest.fixture
def crawl(app: App, tenant: Tenant) -> Connection:
    """A connection with a document, and a thing that a stored pattern keeps out."""
    made = make(app, tenant)
    document = add(app, tenant, "The guide.", title="Guide")
    with app.db.begin() as tx:
        tx.execute(
            "insert into items (connection_id, id, url, title, verdict, document_id, seen_at)"
            " values (%s, 'guide', 'https://docs.example/guide', 'Guide', 'document', %s, now())",
            (made.id, document.id),
        )
        saw(tx, made.id, "https://docs.example/drafts/1", "filtered", "excludeItems: */drafts/*")
        settings.patch(
            tx, tenant.id, {"excludeItems": {"urlPatterns": ["*/drafts/*"]}}, keys=[b"x" * 32]
        )
    return made


def test_a_dry_run_tells_what_would_come_and_go_and_changes_nothing(
    me: httpx.Client, app: App, tenant: Tenant, crawl: Connection
):
    with app.db.begin() as tx:
        before = settings.read(tx, tenant.id), items.verdicts(tx, crawl.id)
    form = {"action": "try", "excludeItems.urlPatterns": "*/guide", "connection": crawl.id}
    answer = me.post("/console/filters", data=form)
    figures = [node.text() for node in tree(answer).css(".told .figures dd")]
    rows = [
        " ".join(row.text(separator=" ").split()) for row in tree(answer).css(".effects tbody tr")
    ]

    assert answer.status_code == 200
    assert figures == ["1", "1", "0"], body(answer)
    assert any("comes in" in row and "excludeItems: */drafts/*" in row for row in rows), rows
    assert any("dropped" in row and "excludeItems: */guide" in row for row in rows), rows
    assert one(answer, "[name='excludeItems.urlPatterns']").text() == "*/guide"
    assert "This filter is not saved." in body(answer)
    with app.db.begin() as tx:
        assert (settings.read(tx, tenant.id), items.verdicts(tx, crawl.id)) == before


def test_filters_say_how_to_have_a_model_when_there_is_none(me: httpx.Client, app: App):
    page = me.get("/console/filters")
    refused = me.post("/console/filters", data={"action": "try", "shouldLLMFilter": "on"})

    assert "No language model is configured" in body(page)
    assert "RECOLLECT_LLM_URL" in body(page)
    assert refused.status_code == 400
    assert "RECOLLECT_LLM_URL" in one(refused, "[role=alert]").text()


def test_a_rule_for_a_model_that_is_not_there_is_stored_with_a_warning(
    me: httpx.Client, app: App, tenant: Tenant
):
    before = body(me.get("/console/filters"))
    saved = me.post("/console/filters", data={"filterPrompt": "x", "shouldLLMFilter": "on"})
    after = body(me.get("/console/filters"))

    assert saved.status_code == 303
    with app.db.begin() as tx:
        assert settings.read(tx, tenant.id)["shouldLLMFilter"] is True
    warning = "until then syncs take in nothing that the model would have to judge"
    assert (warning in before, warning in after) == (False, True)
    assert ("only patterns decide" in before, "only patterns decide" in after) == (True, False)


def test_a_dry_run_on_a_foreign_connection_finds_none(me: httpx.Client):
    form = {"action": "try", "connection": "absent"}
    assert me.post("/console/filters", data=form).status_code == 404


# --- audit -------------------------------------------------------------------------------------


def test_the_audit_log_is_filtered_and_turned(me: httpx.Client, app: App, tenant: Tenant):
    today = datetime.now(UTC).date()
    with app.db.begin() as tx:
        for number in range(150):
            audit.record(tx, "tests.counted", f"object-{number}", org=tenant.id, number=number)
    me.post("/console/keys", data={"name": "robot <b>", "scope": "read"})
    page = me.get("/console/audit")
    (made,) = tree(me.get("/console/audit?action=key.created")).css(".audit tbody tr")[:1]
    first = tree(me.get("/console/audit?action=tests."))
    older = first.css(".pages a")[-1].attributes["href"] or ""
    second = tree(me.get(older))

    assert "key.created" in body(page)
    assert "scope read" in made.text()
    assert len(first.css(".audit tbody tr")) == 100
    assert len(second.css(".audit tbody tr")) == 50
    assert "object-0" in (second.body.text() if second.body else "")
    assert not second.css("a[href*='before=1&']")
    later = (today + timedelta(days=2)).isoformat()  # also when midnight has passed meanwhile
    assert "Nothing matches" in body(me.get(f"/console/audit?since={later}"))
    assert "object-" in body(me.get(f"/console/audit?since={today.isoformat()}"))
    assert me.get("/console/audit?since=yesterday").status_code == 400


def test_the_audit_log_is_for_administrators_of_the_organisation(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    with app.db.begin() as tx:
        other = orgs.create(tx, f"other-{random_id()}", Plan.ENTERPRISE)
        audit.record(tx, "tests.foreign", "foreign-canary", org=other.id)
    try:
        for given in ({"scope": Scope.WRITE}, {"scope": Scope.ADMIN, "tags": ["mine"]}):
            http = browse(new_key(app, org, **given)[1])
            assert http.get("/console/audit").status_code == 403
            assert "Audit" not in [a.text() for a in tree(http.get("/console")).css("nav a")]
        whole = browse(new_key(app, org, scope=Scope.ADMIN)[1])
        assert "foreign-canary" not in whole.get("/console/audit?action=tests.").text
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (other.id,))


# --- text stays text ---------------------------------------------------------------------------


def test_stored_markup_in_the_new_rooms_stays_text(me: httpx.Client, app: App, tenant: Tenant):
    def shape(answer: httpx.Response) -> list[tuple[str, tuple[str, ...]]]:
        assert answer.status_code == 200, answer.text
        return sorted((n.tag or "", tuple(sorted(n.attributes))) for n in tree(answer).css("*"))

    plain: dict[str, list[Any]] = {}
    for payload in (HARMLESS, *PAYLOADS[::3]):
        target = hook(app, tenant)
        told(app, tenant, target, None)
        made = make(app, tenant)
        with app.db.begin() as tx:
            log = json.dumps([{"at": payload, "status": 500, "reason": payload, "ms": 1}])
            tx.execute(
                "update endpoints set url = %(x)s, description = %(x)s, events = array[%(x)s],"
                " tags = array[%(x)s], disabled_at = now(), disabled_reason = %(x)s"
                " where id = %(id)s",
                {"x": payload, "id": target.id},
            )
            tx.execute(
                "update deliveries set type = %(x)s, log = %(log)s,"
                " payload = jsonb_build_object(%(x)s::text, %(x)s::text)"
                " where endpoint_id = %(id)s",
                {"x": payload, "log": log, "id": target.id},
            )
            action = payload.strip()  # as it is looked for
            audit.record(tx, action, payload, org=tenant.id, given=payload)
            tx.execute("update connections set email = %s where id = %s", (payload, made.id))
            saw(tx, made.id, f"https://x.example/{payload}", "filtered", "includeItems: x")
        own = f"{HOOKS}/{target.id}"
        pages = {
            "list": me.get(HOOKS),
            "one": me.get(own),
            "edit": me.get(f"{own}/edit"),
            "delete": me.get(f"{own}/delete"),
            "audit": me.get("/console/audit", params={"action": action}),
            "try": me.post("/console/filters", data={"action": "try", "filterPrompt": payload}),
            "ask": me.get("/console/filters", params={"url": payload, "title": payload}),
        }
        for name, answer in pages.items():
            found = shape(answer)
            assert found == plain.setdefault(name, found), (name, payload)
        with app.db.begin() as tx:
            tx.execute("delete from endpoints where id = %s", (target.id,))
            tx.execute("delete from connections where id = %s", (made.id,))


def test_no_input_of_the_new_rooms_is_an_error_of_ours(me: httpx.Client, app: App, tenant: Tenant):
    own = f"{HOOKS}/{hook(app, tenant).id}"
    strange = "%00%ED%A0%80%FF/../%27%22<"
    for path in (
        f"{HOOKS}/{strange}",
        f"{own}?state={strange}&page=999999",
        f"{own}?page={'9' * 30}",
        f"/console/audit?action={strange}&actor={strange}&since={strange}",
        f"/console/audit?before={'9' * 30}",
        f"/console/events?of={strange}",
        f"/console/events?of=documents/{strange}",
        "/console/events",
    ):
        assert me.get(path).status_code in (200, 400, 404), path
    for path in (HOOKS, f"{own}/do", f"{own}/edit", "/console/filters"):
        form = {"url": "\0", "event": "\0", "action": "\0", "tags": "\0", "description": "\0"}
        assert me.post(path, data=form).status_code in (303, 400, 404), path


# --- the stream --------------------------------------------------------------------------------


class Heard:
    """The events of a stream, read in a thread until it ends."""

    def __init__(self, http: httpx.Client, of: str) -> None:
        self.names: list[str] = []
        self.headers: dict[str, str] = {}
        self.over = threading.Event()
        self._http = http
        self._of = of
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        eventually(lambda: "hello" in self.names)

    def _read(self) -> None:
        try:
            with self._http.stream("GET", "/console/events", params={"of": self._of}) as answer:
                self.headers = dict(answer.headers)
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        self.names.append(line.removeprefix("event: "))
        except httpx.HTTPError:
            pass
        finally:
            self.over.set()

    @property
    def changes(self) -> int:
        return self.names.count("change")


def listeners(app: App) -> int:
    """Sessions that listen, or have said since that somebody watches."""
    with app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from pg_stat_activity where datname = current_database()"
            " and (query = 'listen recollect_documents' or query like '% watchers %')"
            " and pid <> pg_backend_pid()"
        ).fetchone()
    return row["n"] if row else 0


def test_what_happens_to_documents_is_told_over_one_connection(
    browse: Callable[..., httpx.Client], key: str, app: App, org: Org, tenant: Tenant
):
    # Nobody listens who could hand out to this test's streams what came before them.
    eventually(lambda: listeners(app) == 0)
    document, other = add(app, tenant, "mine"), add(app, tenant, "other", tags=["theirs"])
    drain(app)
    _, limited = new_key(app, org, tags=["notes"])
    all_of_it = Heard(browse(key), "documents")
    single = Heard(browse(key), f"documents/{document.id}")
    narrow = Heard(browse(limited), "documents")
    assert all_of_it.headers["cache-control"] == "no-store"
    assert listeners(app) == 1
    add(app, tenant, "third", tags=["theirs"])
    eventually(lambda: all_of_it.changes >= 1)
    assert (single.changes, narrow.changes) == (0, 0)
    with app.db.begin() as tx:
        tx.execute(
            "update documents set status = 'failed', stage = null, due_at = null,"
            " error_code = 'x', error_message = 'x' where id = %s",
            (document.id,),
        )
    eventually(lambda: single.changes >= 1 and narrow.changes >= 1)

    assert browse(limited).get(f"/console/events?of=documents/{other.id}").status_code == 404
    assert httpx.get(
        f"{single._http.base_url}/console/events?of=documents", trust_env=False
    ).status_code in (303, 401)


def test_much_that_happens_is_told_little(
    browse: Callable[..., httpx.Client],
    key: str,
    app: App,
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
):
    # A word each time would be 40 at once; one in three seconds are 20 after a minute.
    monkeypatch.setattr(_live, "SPACING", timedelta(seconds=3))
    heard = Heard(browse(key), "documents")
    for number in range(40):
        add(app, tenant, f"text {number}")
    eventually(lambda: heard.changes >= 1)
    drain(app)

    assert heard.changes < 20  # 40 were added, each with stages


def listened(
    app: App, key: Key, notices: Sequence[Notice | None], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What a page of all documents is told, and the waits; each of these brings the next notice."""
    happened: list[str] = []
    source: asyncio.Queue[Notice | None] = asyncio.Queue()
    coming = iter(notices)

    async def wait(seconds: float) -> None:
        happened.append(f"wait {seconds:g}")
        for notice in islice(coming, 1):
            source.put_nowait(notice)

    async def listen() -> None:
        source.put_nowait(next(coming))
        topic = _live.Topic("documents", None, Tenant(key.org.id))
        events = Events(app.db.url)
        heartbeat = streams.Heartbeat(app, lambda tx: orgs.key(tx, key.id))
        with monkeypatch.context() as patched:
            patched.setattr(_live, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": wait}))
            async for word in _live._documents(heartbeat, topic, events, source):
                happened.extend(re.findall("event: (.*)", word))

    asyncio.run(listen())
    return happened


def test_between_two_words_to_a_page_there_is_always_a_rest(
    app: App, org: Org, monkeypatch: pytest.MonkeyPatch
):
    mine, _ = new_key(app, org)
    news = Notice(org.id, "x", "done", None, "text", (), 0)

    happened = listened(app, mine, [news, news, news, None], monkeypatch)

    assert happened == ["hello", *["change", "wait 1"] * 3]


def test_a_page_of_a_busy_organisation_loses_its_key_as_well(
    app: App, org: Org, monkeypatch: pytest.MonkeyPatch
):
    mine, _ = new_key(app, org)
    with app.db.begin() as tx:
        orgs.revoke_key(tx, mine.id)
    news = Notice(org.id, "x", "done", None, "text", (), 0)
    monkeypatch.setattr(streams, "LOOK", timedelta(0))

    assert listened(app, mine, [news] * 9, monkeypatch) == ["hello"]


def test_connections_and_deliveries_are_looked_at_for_who_watches(
    browse: Callable[..., httpx.Client],
    key: str,
    app: App,
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(_live, "LOOK", timedelta(seconds=0.1))
    made, quiet = make(app, tenant), make(app, tenant)
    target = hook(app, tenant)
    of_made = Heard(browse(key), f"connections/{made.id}")
    of_quiet = Heard(browse(key), f"connections/{quiet.id}")
    of_all = Heard(browse(key), "connections")
    of_hook = Heard(browse(key), f"webhooks/{target.id}")

    def happens() -> bool:
        with app.db.begin() as tx:
            tx.execute(
                "insert into sync_runs (id, connection_id, trigger, status)"
                " values (%s, %s, 'manual', 'running')",
                (random_id(), made.id),
            )
        return of_made.changes > 0 and of_all.changes > 0

    eventually(happens)
    assert (of_quiet.changes, of_hook.changes) == (0, 0)
    told(app, tenant, target, None)
    eventually(lambda: of_hook.changes > 0)
    with app.db.begin() as tx:
        assert connections.mark(tx, tenant, made.id) != connections.mark(tx, tenant, quiet.id)


def test_a_stream_ends_with_its_key_and_with_the_process(
    browse: Callable[..., httpx.Client], app: App, org: Org, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "LOOK", timedelta(seconds=0.2))
    key, secret = new_key(app, org)
    heard = Heard(browse(secret), "documents")
    with app.db.begin() as tx:
        orgs.revoke_key(tx, key.id)
    assert heard.over.wait(60)

    with serving(app) as (url, server):
        _, secret = new_key(app, org)
        with plain_client(url, {"sec-fetch-site": "same-origin"}) as http:
            http.post("/console/login", data={"key": secret})
            open_ones = [Heard(http, "documents"), Heard(http, "connections")]
            server.should_exit = True
            # Long before the server ends them.
            assert all(stream.over.wait(60) for stream in open_ones)


def test_a_stream_ends_with_the_session(
    browse: Callable[..., httpx.Client], app: App, key: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "LOOK", timedelta(seconds=0.2))
    http = browse(key)
    told = [Heard(http, "documents"), Heard(http, "connections")]

    http.post("/console/logout")

    assert all(stream.over.wait(60) for stream in told)


def test_streams_look_at_their_key_within_five_seconds():
    assert timedelta(seconds=5) > streams.LOOK + _live.SPACING


@contextmanager
def serving(app: App) -> Generator[tuple[str, uvicorn.Server]]:
    """As `recollect api` serves, waiting for what is under way at the end."""
    web = create_app(app)
    console.add_to(web)
    config = uvicorn.Config(
        web, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=600
    )
    server = uvicorn.Server(config)
    web.state.events.is_over = lambda: server.should_exit
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


# --- documents ---------------------------------------------------------------------------------


def test_the_original_is_handed_over_and_never_shown(me: httpx.Client, app: App, tenant: Tenant):
    page = b"<script>top.ran=1</script> a heron"
    sent = me.post("/console/add", files={"file": ("herons <b>.html", page, "text/html")})
    drain(app)
    id = sent.headers["location"].partition("id=")[2]
    link = one(me.get(f"/console/documents/{id}"), "a[download]").attributes["href"] or ""
    answer = me.get(link)

    assert answer.content == page
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    text = add(app, tenant, "a text")
    assert not tree(me.get(f"/console/documents/{text.id}")).css("a[download]")
    assert me.get(f"/console/documents/{text.id}/original").status_code == 404


# --- code --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def openapi(app: App) -> dict[str, Any]:
    return create_app(app).openapi()


def _bodies(openapi: dict[str, Any]) -> list[str]:
    return [id for id in _code.operations(openapi) if _code.example(openapi, id) is not None]


def test_every_operation_of_the_document_can_be_had_as_code(openapi: dict[str, Any]):
    ids = _code.operations(openapi)
    assert len(ids) > 50
    for id in ids:
        made = _code.render(openapi, id, "http://127.0.0.1:6767")
        assert set(made) == {"curl", "Python", "TypeScript"}
        ast.parse(made["Python"])
        words = shlex.split(made["curl"])
        assert words[0] == "curl"
        assert any(word.startswith("http://127.0.0.1:6767/") for word in words)
        assert all(_code.KEY in code for code in made.values()), id
        assert "{" not in next(w for w in words if w.startswith("http"))
        asked = _code._operation(openapi, id)[2].get("parameters", ())
        needed = {one["name"] for one in asked if one["in"] == "query" and one.get("required")}
        for code in made.values():
            assert {name for name in needed if f"{name}={_code._capitals(name)}" in code} == needed


def test_the_code_says_what_the_examples_say(openapi: dict[str, Any]):
    ids = _bodies(openapi)
    assert len(ids) > 20
    for id in ids:
        example = _code.example(openapi, id)
        made = _code.render(openapi, id, "http://x")
        words = shlex.split(made["curl"])
        assert json.loads(words[words.index("-d") + 1]) == example, id
        call = next(
            node.value
            for node in ast.walk(ast.parse(made["Python"]))
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "found"
        )
        assert isinstance(call, ast.Call)
        given = {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in call.keywords
            if keyword.arg not in (None, "cast_to", "extra_body")
        }
        if id in _code.AS_ONE:
            assert given == {"request": example}, id
        elif id in _code.METHODS:
            known = set(example or {}) - _code.OURS.get(id, set())
            assert set(given) == {_code._snake(name) for name in known}, id
        else:
            assert given == {"body": example}, id
        assert json.dumps(next(iter((example or {}).values())), ensure_ascii=False)[:20] in made[
            "TypeScript"
        ] or isinstance(next(iter((example or {}).values())), dict | list)


def test_fields_of_our_own_are_no_arguments_of_the_published_methods(openapi: dict[str, Any]):
    """Whatever a page sends, its code for Python must run."""
    published = Supermemory(api_key="x", base_url="http://x")
    for id in _bodies(openapi):
        if id not in _code.METHODS or id.startswith(_code.NEWEST):
            continue
        takes = inspect.signature(attrgetter(_code.METHODS[id])(published)).parameters
        body = _code._operation(openapi, id)[2]["requestBody"]["content"]["application/json"]
        kinds = [body["schema"], *body["schema"].get("anyOf", ())]
        fields = {f for kind in kinds for f in _code._resolved(openapi, kind).get("properties", ())}
        assert {f for f in fields if _code._snake(f) not in takes} == _code.OURS.get(id, set()), id


def test_typescript_takes_fields_that_its_client_does_not_declare(openapi: dict[str, Any]):
    for id, own in _code.OURS.items():
        sent = {"q": "a", **dict.fromkeys(sorted(own), "x"), "filters": dict.fromkeys(own, 1)}
        lines = _code.render(openapi, id, "http://x", body=sent)["TypeScript"].splitlines()
        fields = [line for line in lines if line.startswith('  "')]
        marked = [below for above, below in pairwise(lines) if _code.UNDECLARED in above]

        assert [json.loads(f"{{{line.strip(',')}}}") for line in marked] == [
            {name: "x"} for name in sorted(own)
        ]
        assert len(fields) == len(own) + 2


def test_examples_fit_their_schemas(openapi: dict[str, Any]):
    for id in _bodies(openapi):
        schema = _code._operation(openapi, id)[2]["requestBody"]["content"]["application/json"][
            "schema"
        ]
        whole = {**schema, "components": openapi["components"]}
        jsonschema.validate(_code.example(openapi, id), whole)


def test_no_example_deletes_everything(openapi: dict[str, Any]):
    """Pasted with a key and sent, it would on a new service."""
    example = _code.example(openapi, "resetOrganization")
    assert example is not None
    assert example["confirmation"] != orgs.DEFAULT
    reset = openapi["components"]["schemas"]["Reset"]["properties"]["confirmation"]
    assert orgs.DEFAULT not in reset.get("examples", [])


def test_an_unknown_operation_is_none(openapi: dict[str, Any]):
    with pytest.raises(KeyError):
        _code.render(openapi, "noSuchThing", "http://x")


@pytest.mark.parametrize("language", ["curl", "Python"])
def test_code_of_a_room_runs(me: httpx.Client, key: str, app: App, tenant: Tenant, language: str):
    page = tree(me.get("/console/webhooks"))
    codes = dict(
        zip(
            [n.text() for n in page.css(".code h3")],
            [n.text() for n in page.css(".code pre")],
            strict=True,
        )
    )
    code = (
        codes[language]
        .replace("YOUR_KEY", key)
        .replace("https://app.example.org/hooks/recollect", URL)
    )
    script = code.replace("curl ", "curl -s --noproxy '*' ", 1)
    command = ["sh", "-c", script] if language == "curl" else [sys.executable, "-c", code]
    subprocess.run(command, check=True, capture_output=True, timeout=60)

    assert [list(target.events) for target in find(app, tenant)] == [
        ["document.done", "document.failed"]
    ]


@pytest.mark.parametrize(
    "path",
    ["/documents", "/add", "/webhooks", "/filters", "/connections/new/web-crawler"],
)
def test_rooms_show_their_requests_as_code(me: httpx.Client, path: str):
    page = tree(me.get(f"/console{path}?tag={quote('a:*')}"))
    ids = [node.attributes["id"] for node in page.css("[id]")]

    assert {"curl", "Python", "TypeScript"} <= {node.text() for node in page.css(".code h3")}
    assert len(ids) == len(set(ids))


def test_who_is_signed_in_takes_turns_and_has_so_many_streams(app: App, org: Org):
    made, secret = new_key(app, org)

    async def run() -> None:
        web = create_app(app)
        console.add_to(web)
        transport = httpx.ASGITransport(web)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
            AsyncExitStack() as held,
        ):
            form = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
            signed = await http.post("/console/login", data={"key": secret}, headers=form)
            assert signed.status_code == 303
            for _ in range(turns.PER_KEY):
                await held.enter_async_context(web.state.turns.turn(made))
            page = asyncio.create_task(http.get("/console/documents"))
            while web.state.turns._known[f"key {made.id}"] == turns.PER_KEY:
                assert not page.done()
                await asyncio.sleep(0)
            await held.aclose()
            assert (await page).status_code == 200

            take = partial(web.state.events.streams.take, org.id, made.id)
            streams = [take() for _ in range(STREAMS_OF_A_KEY)]
            refused = await http.get("/console/events?of=documents")
            assert (refused.status_code, len(streams)) == (429, STREAMS_OF_A_KEY)

    asyncio.run(run())


def test_files_that_are_added_here_leave_places_as_other_uploads_do(app: App, org: Org):
    made, secret = new_key(app, org)

    async def run() -> None:
        web = create_app(app)
        console.add_to(web)
        transport = httpx.ASGITransport(web)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
            AsyncExitStack() as held,
        ):
            form = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
            await http.post("/console/login", data={"key": secret}, headers=form)
            for _ in range(turns.UPLOADS_KEY):
                await held.enter_async_context(web.state.turns.upload(made))
            sent = {"file": ("herons.txt", b"Herons wade.", "text/plain")}
            upload = asyncio.create_task(http.post("/console/add", files=sent, headers=form))
            while web.state.turns._known[f"uploads of key {made.id}"] == turns.UPLOADS_KEY:
                assert not upload.done()
                await asyncio.sleep(0)
            assert (await http.get("/console/search")).status_code == 200
            await held.aclose()
            assert (await upload).status_code == 303

    asyncio.run(run())
