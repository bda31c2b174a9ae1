"""Authorization from link to sync, its loss and return; pushes; what is said at the end."""

import hashlib
import hmac
import json
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, LiteralString, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from recollect import encryption
from recollect.api import create_app, edge
from recollect.app import App, secret_keys
from recollect.errors import DatabaseAway, Reauthorize, Unavailable
from recollect.model import Connection, Org, Plan, Tenant
from recollect.ops import reencrypt
from recollect.orgs import orgs
from recollect.orgs.orgs import Limit
from recollect.sync import (
    authorizations,
    connection_queue,
    connections,
    push_registrations,
    revocations,
)
from recollect.sync.sources import StoredAccess
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.fakes.cabinet import Cabinet, CabinetConnector
from tests.fakes.proxy import Proxy
from tests.fakes.shelf import providing

DONE = "https://app.example/done"
NEW = SecretStr("a newer key 5d0b7e91c4a8f263d7e0")


@dataclass
class World:
    """An API whose provider `cabinet` is a fake, with a fault proxy before its token endpoint."""

    app: App
    http: httpx.Client
    cabinet: Cabinet
    proxy: Proxy

    def create(self, *tags: str, redirect: str | None = DONE) -> dict[str, Any]:
        body = {"containerTags": list(tags or ("notes",)), "redirectUrl": redirect}
        answer = self.http.post("/v3/connections/cabinet", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def follow(self, link: str, **consent: Any) -> httpx.Response:
        back = urlsplit(self.cabinet.authorization.consent(link, **consent))
        return self.http.get(
            f"{back.path}?{back.query}", headers={"authorization": ""}, follow_redirects=False
        )

    def connected(self, *tags: str, user: str = "ann@example.com") -> str:
        made = self.create(*tags)
        assert self.follow(made["authLink"], user=user).status_code == 303
        self.work()
        return made["id"]

    def work(self) -> None:
        syncs.drain(self.app)
        drain(self.app)

    def get(self, id: str) -> dict[str, Any]:
        return self.http.get(f"/v3/connections/{id}").json()

    def due(self, id: str) -> None:
        with self.app.db.begin() as tx:
            tx.execute(
                "update connections set due_at = now(), parked_until = null"
                " where id = %s and state = 'ready'",
                (id,),
            )

    def connection(self, id: str) -> Connection:
        with self.app.db.begin() as tx:
            row = tx.execute("select org_id from connections where id = %s", (id,)).fetchone()
            assert row is not None
            return connections.get(tx, Tenant(row["org_id"]), id)

    def titles(self) -> list[str]:
        listed = self.http.post("/v3/connections/cabinet/documents").json()
        return sorted(document["title"] for document in listed)


@pytest.fixture(autouse=True)
def known_connectors() -> Generator[None]:
    with providing(cabinet=CabinetConnector()):
        yield


@pytest.fixture
def world(app: App, key: str) -> Generator[World]:
    with app.db.begin() as tx:  # neither is an organisation's: what other tests left stays here
        tx.execute("delete from farewells")
        tx.execute("delete from hook_secrets")
    with Cabinet() as cabinet, Proxy() as proxy:
        proxy.upstream = cabinet.authorization.url
        given = {"cabinet": cabinet.settings(token=proxy.url)}
        config = app.config.model_copy(
            update={"providers": given, "public_url": "https://recollect.example"}
        )
        own = replace(app, config=config)
        for n in range(3):
            cabinet.shelf.put(f"{n}", f"The text of number {n}.")
        headers = {"authorization": f"Bearer {key}"}
        with TestClient(create_app(own), headers=headers) as http:
            yield World(own, cast("httpx.Client", http), cabinet, proxy)


def told(answer: httpx.Response) -> dict[str, str]:
    """What the redirect says to the caller's page."""
    assert answer.status_code == 303, answer.text
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    return {name: value for name, [value] in query.items()}


# --- from link to sync ---------------------------------------------------------------------------


def test_from_the_link_to_the_documents(world: World) -> None:
    made = world.create()
    assert (made["expiresIn"], made["redirectsTo"]) == ("1 hour", DONE)
    asked = parse_qs(urlsplit(made["authLink"]).query)
    callback = "https://recollect.example/v3/connections/auth/callback/cabinet"
    assert asked["redirect_uri"] == [callback]
    assert asked["code_challenge_method"] == ["S256"]
    assert world.get(made["id"])["state"] == "pending"
    world.work()
    assert world.cabinet.calls == [], "nothing is asked before the user agreed"

    answer = world.follow(made["authLink"])

    assert answer.headers["location"].startswith(f"{DONE}?")
    assert told(answer) == {"connectionId": made["id"], "status": "connected"}
    assert answer.headers["referrer-policy"] == "no-referrer"
    world.work()
    shown = world.get(made["id"])
    assert (shown["email"], shown["state"]) == ("ann@example.com", "ready")
    assert world.titles() == ["Thing 0", "Thing 1", "Thing 2"]


def test_without_redirect_the_page_says_who_is_connected(world: World) -> None:
    made = world.create(redirect=None)
    answer = world.follow(made["authLink"], user="<b>eve</b>@example.com")
    assert answer.status_code == 200
    assert "&lt;b&gt;eve&lt;/b&gt;@example.com" in answer.text
    assert "script-src" not in answer.headers["content-security-policy"]


def test_without_redirect_the_page_says_that_something_is_to_be_picked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CabinetConnector, "picks", True)
    page = world.follow(world.create(redirect=None)["authLink"])
    assert page.status_code == 200
    assert "Nothing is synced until someone picks what" in page.text


def test_the_page_says_what_the_account_now_brings_twice(world: World) -> None:
    first = world.create(redirect=None)
    alone = world.follow(first["authLink"]).text
    page = world.follow(world.create(redirect=None)["authLink"]).text
    other = world.follow(world.create("elsewhere", redirect=None)["authLink"]).text

    assert f"Connection {first['id']} brings the same into notes, too" in page
    assert "brings the same" not in alone + other


@pytest.mark.parametrize(("how", "said"), [("agreed", "is connected"), ("lost", "invalid_grant")])
def test_a_page_that_may_not_be_named_any_more_is_not_gone_to(
    world: World, key: str, how: str, said: str
) -> None:
    link = world.create()["authLink"]
    config = world.app.config.model_copy(update={"redirect_origins": ("https://other.example",)})
    now = replace(world, app=replace(world.app, config=config))
    now = replace(now, http=second_client(now, key))
    if how == "lost":
        world.proxy.on("POST /token", status=400, json_body={"error": "invalid_grant"})
    answer = now.follow(link)
    assert "location" not in answer.headers
    assert said in answer.text


def test_a_state_serves_once_for_its_own_provider_for_an_hour(world: World) -> None:
    made = world.create()
    world.follow(made["authLink"])
    again = world.follow(made["authLink"])
    assert again.status_code == 400
    assert "was used" in again.text

    state = parse_qs(urlsplit(world.create()["authLink"]).query)["state"][0]
    foreign = world.http.get(f"/v3/connections/auth/callback/github?state={state}&code=x")
    assert foreign.status_code in (400, 404)

    old = world.create()
    with world.app.db.begin() as tx:
        tx.execute("update authorizations set expires_at = now() - interval '1 second'")
    assert world.follow(old["authLink"]).status_code == 400
    for junk in ("", "?state=x", "?code=y", "?state=x&code=y", "?error=access_denied"):
        answer = world.http.get(f"/v3/connections/auth/callback/cabinet{junk}")
        assert answer.status_code == 400
        assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("end", ["revoked_at = now()", "expires_at = now()"])
def test_a_link_ends_with_the_key_that_made_it(world: World, org: Org, end: LiteralString) -> None:
    with world.app.db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id)
    headers = {"authorization": f"Bearer {secret}"}
    made = world.http.post(
        "/v3/connections/cabinet", json={"redirectUrl": DONE}, headers=headers
    ).json()
    path = f"/v3/connections/{made['id']}/authorize"
    again = world.http.post(path, json={"redirectUrl": DONE}, headers=headers).json()
    with world.app.db.begin() as tx:
        tx.execute("update keys set " + end + " where id = %s", (key.id,))

    for link in (made["authLink"], again["authLink"]):
        assert world.follow(link, deny=True).status_code == 400  # and nobody is sent anywhere
        answer = world.follow(link)
        assert answer.status_code == 400
        assert "was revoked" in answer.text
    assert world.get(made["id"])["state"] == "pending"
    # A link of a key that opens something still does.
    assert told(world.follow(world.http.post(path, json={"redirectUrl": DONE}).json()["authLink"]))


def test_a_connection_has_so_many_links_and_the_newest_are_good(world: World) -> None:
    id = world.create()["id"]
    path, body = f"/v3/connections/{id}/authorize", {"redirectUrl": DONE}
    links = [world.http.post(path, json=body).json()["authLink"] for _ in range(2)]
    with world.app.db.begin() as tx:
        tx.execute(
            "insert into authorizations (state, connection_id, expires_at)"
            " select sha256(convert_to(n::text, 'UTF8')), %s, now() + %s"
            " from generate_series(1, %s) n",
            (id, authorizations.AUTH_LINK_LIFE, authorizations.MOST_LINKS - 2),
        )
    world.http.post(path, json=body)
    with world.app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from authorizations where connection_id = %s", (id,)
        ).fetchone()
    assert row == {"n": authorizations.MOST_LINKS}
    assert world.follow(links[0]).status_code == 400
    assert told(world.follow(links[1]))


def test_the_other_spelling_of_the_callback(world: World) -> None:
    made = world.create()
    back = urlsplit(world.cabinet.authorization.consent(made["authLink"]))
    answer = world.http.get(
        f"/v3/connections/cabinet/callback?{back.query}",
        headers={"authorization": ""},
        follow_redirects=False,
    )
    assert told(answer)["status"] == "connected"


def test_a_denial_leaves_the_link_good(world: World) -> None:
    made = world.create()
    assert told(world.follow(made["authLink"], deny=True)) == {
        "connectionId": made["id"],
        "status": "error",
        "error": "access_denied",
    }
    assert world.get(made["id"])["state"] == "pending"
    assert told(world.follow(made["authLink"]))["status"] == "connected"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("access_denied", "because the authorization was refused there."),
        ("application_suspended", "answered application_suspended."),
        ("redirect_uri_mismatch", "/v3/connections/auth/callback/cabinet has to be registered"),
        ("Call 0800-1234 now", "because the authorization was refused there."),
    ],
)
def test_what_a_provider_answers_instead_is_told(world: World, error: str, told: str) -> None:
    """But no text that a stranger puts into a link."""
    made = world.create(redirect=None)
    state = parse_qs(urlsplit(made["authLink"]).query)["state"][0]

    for path in (f"?state={state}&", "?"):
        answer = world.http.get(
            f"/v3/connections/auth/callback/cabinet{path}{urlencode({'error': error})}"
        )
        assert answer.status_code == 400
        assert told in answer.text
        assert "0800" not in answer.text


def test_fewer_scopes_than_asked(world: World) -> None:
    made = world.create(redirect=None)
    answer = world.follow(made["authLink"], scopes=["things"])
    assert answer.status_code == 400
    assert "hooks was not granted" in answer.text
    assert world.get(made["id"])["state"] == "pending"


def test_what_was_authorized_with_fewer_scopes_is_taken_back(world: World) -> None:
    made = world.create()
    assert told(world.follow(made["authLink"], scopes=["things"]))["error"] == "refused"
    syncs.drain(world.app)
    assert world.proxy.asked("POST /revoke") == 2, "access and refresh token"
    id = world.connected()
    again = world.http.post(f"/v3/connections/{id}/authorize", json={"redirectUrl": DONE})
    assert told(world.follow(again.json()["authLink"], scopes=["things"]))["error"] == "refused"
    syncs.drain(world.app)
    assert world.proxy.asked("POST /revoke") == 2, "not what the connection lives by"


def test_missing_scopes_are_told_where_the_account_cannot_be_asked_for(world: World) -> None:
    made = world.create(redirect=None)
    world.proxy.on("GET /me", status=403, times=50)
    answer = world.follow(made["authLink"], scopes=["things"])
    assert "hooks was not granted" in answer.text


def test_the_reason_of_a_refusal_is_told_where_nothing_can_be_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(revocations, "take_back", broken)
    id = world.connected()
    again = world.http.post(f"/v3/connections/{id}/authorize", json={"redirectUrl": DONE})
    refused = world.follow(again.json()["authLink"], user="eve@example.com")
    assert told(refused)["error"] == "refused"


def test_a_provider_that_does_not_answer_the_exchange(world: World) -> None:
    made = world.create()
    world.proxy.on("POST /token", status=503)
    assert told(world.follow(made["authLink"]))["error"] == "provider_unavailable"


@pytest.mark.parametrize("status", [400, 401, 503])
def test_a_page_of_a_used_link_says_that_a_new_one_is_needed(world: World, status: int) -> None:
    made = world.create(redirect=None)
    world.proxy.on("POST /token", status=status, json_body={"error": "invalid_client"})
    assert "Have a new link made" in world.follow(made["authLink"]).text


def test_a_page_without_what_a_provider_sends_along_says_what_it_lacks(world: World) -> None:
    answer = world.http.get("/v3/connections/auth/callback/cabinet?code=1")
    assert answer.status_code == 400
    assert "Part of the address is missing" in answer.text


@pytest.mark.parametrize("redirect", [DONE, None], ids=["redirect", "page"])
def test_a_database_that_is_away_is_not_said_of_the_provider(
    world: World, monkeypatch: pytest.MonkeyPatch, redirect: str | None
) -> None:
    made = world.create(redirect=redirect)

    def away(*_: object, **__: object) -> None:
        raise DatabaseAway("host db1 does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(authorizations, "take_authorization", away)
        early = world.follow(made["authLink"])
    with monkeypatch.context() as patched:
        patched.setattr(authorizations, "authorize", away)
        late = world.follow(made["authLink"])

    assert early.status_code == 503
    assert "Reload this page" in early.text
    if redirect:
        assert told(late)["error"] == "service_unavailable"
    else:
        assert late.status_code == 503
        assert "a new link" in late.text
    assert "db1" not in early.text + late.text + late.headers.get("location", "")
    assert world.get(made["id"])["state"] == "pending"


def test_no_application_names_the_settings(app: App, client: httpx.Client) -> None:
    answer = client.post("/v3/connections/cabinet", json={})
    assert answer.status_code == 400
    assert "RECOLLECT_CABINET_CLIENT_ID" in answer.json()["details"]
    assert client.post("/v3/connections/list").json() == []


# --- loss and return -----------------------------------------------------------------------------


def test_many_calls_with_an_expired_token_cause_one_refresh(world: World) -> None:
    id = world.connected()
    world.cabinet.authorization.expire()
    world.proxy.forget()
    connection = world.connection(id)
    stale = StoredAccess(world.app, CabinetConnector(), connection).token()
    accesses = [StoredAccess(world.app, CabinetConnector(), connection) for _ in range(20)]

    with ThreadPoolExecutor(20) as pool:
        fresh = set(pool.map(lambda access: access.token(stale), accesses))

    assert len(fresh) == 1
    assert fresh != {stale}
    assert world.proxy.asked("POST /token") == 1


@pytest.mark.parametrize("refused", [False, True])
def test_authorizing_again_during_a_refresh(world: World, refused: bool) -> None:
    """What the provider says of the old authorization then leaves the new one alone."""
    id = world.connected()
    old = StoredAccess(world.app, CabinetConnector(), world.connection(id)).token()

    class Meanwhile(CabinetConnector):
        def headers(self) -> Mapping[str, str]:
            """Asked for where the refresh is about to be sent."""
            if refused:
                world.cabinet.authorization.withdraw()
            link = world.http.post(f"/v3/connections/{id}/authorize").json()
            assert world.follow(link["authLink"]).status_code == 200
            return super().headers()

    access = StoredAccess(world.app, Meanwhile(), world.connection(id))
    token = access.token(stale=old)

    assert token is not None
    stored = StoredAccess(world.app, CabinetConnector(), world.connection(id)).token()
    assert token == stored != old
    assert token in world.cabinet.authorization.grants[-1].access


def test_a_sync_with_an_expired_token_goes_on(world: World) -> None:
    id = world.connected()
    world.cabinet.authorization.expire()
    world.cabinet.shelf.put("9", "New.")
    world.due(id)
    world.work()
    assert len(world.titles()) == 4
    assert world.get(id)["state"] == "ready"


def test_a_revoked_authorization_deletes_nothing_and_comes_back(world: World) -> None:
    id = world.connected()
    assert world.connection(id).cursor == {"runs": 2}, "one more after the registration"
    world.cabinet.authorization.withdraw()
    world.due(id)
    world.work()
    shown = world.get(id)
    assert (shown["state"], shown["errorCode"]) == ("needs_auth", "auth_expired")
    assert shown["lastSyncRun"]["errorCode"] == "auth_expired"
    assert len(world.titles()) == 3
    called = len(world.cabinet.calls)
    world.due(id)
    world.work()
    assert len(world.cabinet.calls) == called, "no calls until the user comes back"
    answer = world.http.post("/v3/connections/cabinet/import")
    assert "authorized first" in answer.text

    other = world.http.post(f"/v3/connections/{id}/authorize", json={"redirectUrl": DONE}).json()
    assert told(world.follow(other["authLink"], user="eve@example.com"))["error"] == "refused"
    assert world.get(id)["state"] == "needs_auth"

    link = world.http.post(f"/v3/connections/{id}/authorize").json()
    assert world.follow(link["authLink"]).status_code == 200
    world.work()
    assert world.get(id)["state"] == "ready"
    assert world.connection(id).cursor == {"runs": 3}


def test_a_lost_answer_to_a_refresh_ends_as_needs_auth(world: World) -> None:
    id = world.connected()
    world.cabinet.authorization.expire()
    world.proxy.on("POST /token", cut=0, times=1)
    world.due(id)
    world.work()
    world.due(id)
    world.work()
    assert world.get(id)["state"] == "needs_auth"
    assert len(world.titles()) == 3


# --- pushes --------------------------------------------------------------------------------------


def test_a_push_brings_what_is_new(world: World) -> None:
    id = world.connected()
    [hook] = world.cabinet.hooks
    assert world.get(id)["pushes"] == "on"
    url = urlsplit(world.cabinet.hooks[hook]["url"])
    assert url.netloc == "recollect.example"
    world.work()
    body = b'{"news": 1}'
    world.cabinet.shelf.put("9", "Pushed.")
    path = f"{url.path}?{url.query}"

    forged = world.http.post(path, content=body, headers={"x-cabinet-signature": "0" * 64})
    assert (forged.status_code, forged.content) == (401, b"")
    with world.app.db.begin() as tx:
        assert connection_queue.next_due_in(tx) is None or not due(world, id)
    headers = world.cabinet.signed(hook, body) | {"authorization": ""}
    assert world.http.post(path, content=body, headers=headers).status_code == 202
    assert due(world, id)
    world.work()
    assert len(world.titles()) == 4
    assert world.get(id)["lastSyncRun"]["status"] == "completed"

    assert world.http.post(path, content=body, headers=headers).status_code == 202
    assert not due(world, id), "the same push again is none"


def due(world: World, id: str) -> bool:
    with world.app.db.begin() as tx:
        row = tx.execute(
            "select due_at <= now() as due from connections where id = %s", (id,)
        ).fetchone()
    assert row is not None
    return row["due"]


@pytest.mark.parametrize("name", ["nobody", "cabinet"])
def test_pushes_to_nothing(world: World, name: str) -> None:
    answer = world.http.post(f"/v3/hooks/{name}?registration=unknown", content=b"{}")
    assert answer.status_code == (202 if name == "cabinet" else 404)
    large = world.http.post(f"/v3/hooks/{name}", content=b"x" * (1024 * 1024 + 1))
    assert large.status_code == 400


def test_strangers_may_not_knock_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "PUSHES", Limit(5))
    headers = {"authorization": ""}
    with TestClient(create_app(world.app), headers=headers) as http:
        path = "/v3/hooks/cabinet?registration=unknown"
        answers = [http.post(path, content=b"{}").status_code for _ in range(7)]
        assert answers == [202] * 5 + [429] * 2
        limited = http.get("/v3/connections/cabinet/callback?state=x&code=y")
        assert limited.status_code == 429
        assert int(limited.headers["retry-after"]) <= 60
        assert http.get("/health").status_code == 200


def test_forged_pushes_use_up_nothing_of_genuine_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may come from the same address: by one proxy, or out of the provider itself."""
    monkeypatch.setattr(edge, "PUSHES", Limit(5))
    id = world.connected()
    [hook] = world.cabinet.hooks
    url = urlsplit(world.cabinet.hooks[hook]["url"])
    path, body = f"{url.path}?{url.query}", b'{"news": 1}'
    with TestClient(create_app(world.app), headers={"authorization": ""}) as http:
        for n in range(9):
            told = json.dumps({"news": n}).encode()
            genuine = http.post(path, content=told, headers=world.cabinet.signed(hook, told))
            assert genuine.status_code == 202
        world.work()
        wrong = {"x-cabinet-signature": "0" * 64}
        kinds = [(path, wrong), (url.path, wrong), (path, {}), ("/v3/hooks/nobody", {})]
        for n in range(8):
            to, headers = kinds[n % len(kinds)]
            forged = http.post(to, content=body, headers=headers).status_code
            assert (forged == 429) is (n >= 5)
            assert not due(world, id)
        assert http.post(f"{path}&challenge=hello", content=b"").status_code == 200
        news = b'{"news": "last"}'
        genuine = http.post(path, content=news, headers=world.cabinet.signed(hook, news))
        assert genuine.status_code == 202
        assert due(world, id)


def test_the_handshake_may_come_before_the_answer(world: World) -> None:
    heard: list[int] = []

    def handshake() -> None:
        assert world.cabinet.on_subscribe.wait(60)
        [hook] = world.cabinet.hooks.values()
        url = urlsplit(hook["url"])
        path = f"{url.path}?{url.query}&challenge=hello"
        heard.append(world.http.post(path, content=b"").status_code)

    caller = threading.Thread(target=handshake)
    caller.start()
    world.connected()
    caller.join(60)
    assert heard == [200]


def test_a_registration_is_made_anew_before_it_ends(world: World) -> None:
    id = world.connected()
    [first] = world.cabinet.hooks
    with world.app.db.begin() as tx:
        tx.execute("update registrations set renew_at = now() where connection_id = %s", (id,))
    world.work()
    [second] = world.cabinet.hooks
    assert second != first, "the old one was taken back once the new one lived"
    with world.app.db.begin() as tx:
        rows = tx.execute(
            "select renew_at > now() as later from registrations where connection_id = %s", (id,)
        ).fetchall()
    assert [row["later"] for row in rows] == [True]


def test_refused_registrations_are_polled_instead(world: World) -> None:
    world.cabinet.refuse_hooks = True
    id = world.connected()
    shown = world.get(id)
    assert shown["pushes"].startswith("off (")
    assert "hooks are not allowed here" in shown["pushes"]
    connection = world.connection(id)
    assert connection.due_at is not None
    assert connection.last_synced_at is not None
    assert connection.due_at - connection.last_synced_at <= world.app.config.poll_interval


def test_one_account_in_two_organisations(world: World, stranger_key: tuple[Org, str]) -> None:
    mine = world.connected()
    theirs = World(world.app, second_client(world, stranger_key[1]), world.cabinet, world.proxy)
    yours = theirs.connected()
    assert theirs.titles() == ["Thing 0", "Thing 1", "Thing 2"]
    assert len(world.cabinet.hooks) == 2
    assert world.http.delete(f"/v3/connections/{mine}").status_code == 200
    syncs.drain(world.app)
    assert len(world.cabinet.hooks) == 1
    assert world.proxy.asked("POST /revoke") == 0, "the other needs the authorization"
    world.cabinet.shelf.put("9", "New.")
    theirs.due(yours)
    theirs.work()
    assert len(theirs.titles()) == 4
    theirs.http.delete(f"/v3/connections/{yours}")
    syncs.drain(world.app)
    assert world.proxy.asked("POST /revoke") > 0


@pytest.mark.parametrize("client", [None, "an app of its own"])
def test_two_providers_of_one_application_share_an_authorization(
    world: World, key: str, client: str | None
) -> None:
    class Drawer(CabinetConnector):
        provider = "drawer"

    cabinet = world.cabinet.settings(token=world.proxy.url)
    drawer = cabinet.model_copy(update={"client_id": client})
    config = world.app.config.model_copy(
        update={"providers": {"cabinet": cabinet, "drawer": drawer}}
    )
    with providing(drawer=Drawer()):
        own = replace(world, app=replace(world.app, config=config))
        own = replace(own, http=second_client(own, key))
        id = own.connected()
        with own.app.db.begin() as tx:
            tx.execute("update connections set provider = 'drawer' where id = %s", (id,))
        other = own.connected()
        own.http.delete(f"/v3/connections/{other}")
        syncs.drain(own.app)
        assert (world.proxy.asked("POST /revoke") > 0) is (client is not None)
        assert len(world.cabinet.hooks) == 1
        own.http.delete(f"/v3/connections/{id}")
        syncs.drain(own.app)
        assert world.proxy.asked("POST /revoke") > 0


def test_two_providers_of_one_application_that_end_together_end_its_authorization_once(
    world: World, key: str, org: Org
) -> None:
    class Drawer(CabinetConnector):
        provider = "drawer"

    cabinet = world.cabinet.settings(token=world.proxy.url)
    providers = {"cabinet": cabinet, "drawer": cabinet}
    config = world.app.config.model_copy(update={"providers": providers})
    with providing(drawer=Drawer()):
        own = replace(world, app=replace(world.app, config=config))
        own = replace(own, http=second_client(own, key))
        id = own.connected()
        with own.app.db.begin() as tx:
            tx.execute("update connections set provider = 'drawer' where id = %s", (id,))
        own.connected()
        own.http.post("/v3/settings/reset", json={"confirmation": org.name})
        seen: list[int] = []
        world.proxy.on("POST /revoke", do=lambda: seen.append(len(world.cabinet.hooks)), times=None)
        for _ in range(2):  # what takes the authorization back waits for the other one
            syncs.drain(own.app)
            with own.app.db.begin() as tx:
                tx.execute("update farewells set due_at = now()")
    assert seen == [0, 0], "access and refresh token of one of them, after both registrations"


def test_what_another_account_authorized_in_vain_is_taken_back(world: World) -> None:
    id = world.connected("a")
    world.cabinet.authorization.withdraw()
    for taken_back in (2, 2):
        again = world.http.post(f"/v3/connections/{id}/authorize", json={"redirectUrl": DONE})
        refused = world.follow(again.json()["authLink"], user="eve@example.com")
        assert told(refused)["error"] == "refused"
        syncs.drain(world.app)
        assert world.proxy.asked("POST /revoke") == taken_back, "not what another one lives by"
        world.connected("b", user="eve@example.com")


def test_an_authorization_that_was_given_again_is_not_taken_back_later(world: World) -> None:
    id = world.connected()
    world.proxy.on("POST /revoke", status=503, times=50)
    world.http.delete(f"/v3/connections/{id}")
    syncs.drain(world.app)
    world.proxy.behave()
    asked = world.proxy.asked("POST /revoke")
    world.connected()
    with world.app.db.begin() as tx:
        assert tx.execute("update farewells set due_at = now()").rowcount == 1
    syncs.drain(world.app)
    assert world.proxy.asked("POST /revoke") == asked


@pytest.fixture
def stranger_key(app: App) -> Generator[tuple[Org, str]]:
    with app.db.begin() as tx:
        org = orgs.create(tx, f"other-{orgs.random_id()}", Plan.ENTERPRISE)
        secret = orgs.create_key(tx, org.id)[1]
    yield org, secret
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (org.id,))


def second_client(world: World, key: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {key}"}
    return cast("httpx.Client", TestClient(create_app(world.app), headers=headers))


# --- the end -------------------------------------------------------------------------------------


def test_disconnect_takes_back_what_was_given(world: World) -> None:
    id = world.connected()
    called = len(world.cabinet.calls)
    assert world.http.delete(f"/v3/connections/{id}").json()["provider"] == "cabinet"
    with world.app.db.begin() as tx:
        assert (
            tx.execute("select 1 from registrations where connection_id = %s", (id,)).rowcount == 0
        )
    syncs.drain(world.app)
    assert world.cabinet.hooks == {}
    assert world.proxy.asked("POST /revoke") > 0
    assert all(call.startswith("DELETE /hooks") for call in world.cabinet.calls[called:])
    with world.app.db.begin() as tx:
        assert tx.execute("select 1 from farewells").rowcount == 0


def test_two_connections_of_one_account_end_together(world: World) -> None:
    world.connected("a")
    world.connected("a")
    assert len(world.cabinet.hooks) == 2
    gone = world.http.request("DELETE", "/v3/connections/cabinet", json={"containerTags": ["a"]})
    assert gone.status_code == 200
    syncs.drain(world.app)
    assert world.cabinet.hooks == {}
    assert world.proxy.asked("POST /revoke") == 2, "access and refresh token of one of them"


def test_disconnect_while_the_provider_is_down(world: World) -> None:
    id = world.connected()
    world.proxy.on("POST /revoke", status=503, times=50)
    assert world.http.delete(f"/v3/connections/{id}").status_code == 200
    syncs.drain(world.app)
    world.proxy.behave()
    with world.app.db.begin() as tx:
        assert tx.execute("update farewells set due_at = now()").rowcount == 1
    syncs.drain(world.app)
    with world.app.db.begin() as tx:
        assert tx.execute("select 1 from farewells").rowcount == 0


def test_a_registration_that_cannot_be_taken_back_keeps_nothing_else(world: World) -> None:
    world.connected("a")
    world.connected("a")
    api = Proxy(world.cabinet.url)
    with api:
        providers = {"cabinet": world.cabinet.settings(api=api.url, token=world.proxy.url)}
        own = replace(
            world.app, config=world.app.config.model_copy(update={"providers": providers})
        )
        api.on("DELETE /hooks", status=451, body=b"{}")
        world.http.request("DELETE", "/v3/connections/cabinet", json={"containerTags": ["a"]})
        syncs.drain(own)
    assert len(world.cabinet.hooks) == 1, "the other one"
    assert world.proxy.asked("POST /revoke") > 0


def test_a_revocation_that_is_tried_again_has_what_the_last_refresh_brought(world: World) -> None:
    world.cabinet.authorization.life = 60
    id = world.connected()
    world.proxy.on("POST /revoke", status=503, times=50)
    world.http.delete(f"/v3/connections/{id}")
    syncs.drain(world.app)
    world.proxy.behave()
    with world.app.db.begin() as tx:
        tx.execute("update farewells set due_at = now()")
    syncs.drain(world.app)
    assert [grant.refresh for grant in world.cabinet.authorization.grants] == [set()]


def test_tokens_are_nowhere_in_the_open(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    id = world.connected()
    world.cabinet.authorization.expire()
    world.due(id)
    world.work()
    grants = world.cabinet.authorization.grants
    secrets = [token for grant in grants for token in (*grant.access, *grant.refresh)]
    assert secrets
    secrets += [hook["secret"] for hook in world.cabinet.hooks.values()]
    shown = json.dumps([world.get(id), world.http.get(f"/v3/connections/{id}/sync-runs").json()])
    with world.app.db.begin() as tx:
        for table in ("connections", "registrations", "sync_runs", "authorizations", "farewells"):
            rows = tx.execute(f"select * from {table}").fetchall()
            shown += str(rows)
    out, err = capfd.readouterr()
    for secret in secrets:
        assert secret not in shown
        assert secret not in out + err


def test_a_change_of_the_key_seals_anew_and_a_lost_one_asks_again(world: World) -> None:
    id = world.connected()
    old = secret_keys(world.app.config)
    path = world.app.config.data_dir / "secret-key"
    kept = path.read_bytes()
    newer = replace(world.app, config=world.app.config.model_copy(update={"secret_key": NEW}))
    try:
        assert reencrypt.reseal(newer) >= 2
        assert reencrypt.reseal(newer) == 0
        path.unlink()
        world.due(id)
        syncs.drain(newer)
        assert world.get(id)["state"] == "ready"
        with newer.db.begin() as tx:
            mark = encryption.mark(secret_keys(newer.config))
            assert connections.sealed_by_others(tx, mark) == 0
    finally:
        path.write_bytes(kept)
    assert secret_keys(world.app.config) == old
    world.due(id)
    syncs.drain(world.app)
    shown = world.get(id)
    assert shown["state"] == "needs_auth"
    assert "RECOLLECT_SECRET_KEY" in shown["error"]
    assert len(world.titles()) == 3


def test_once_a_lost_key_is_back_everything_goes_on(world: World) -> None:
    revoked = world.connected(user="bob@example.com")
    world.cabinet.authorization.withdraw()
    world.due(revoked)
    id = world.connected()
    world.cabinet.shelf.put("9", "New.")
    lost = lost_key(world)
    world.due(id)
    syncs.drain(lost.app)
    shown = world.get(id)
    assert (shown["state"], shown["errorCode"]) == ("needs_auth", "key_lost")
    assert shown["lastSyncRun"]["errorCode"] == "auth_expired"

    reencrypt.reseal(lost.app)
    assert world.get(id)["state"] == "needs_auth", "this key does not open it either"
    reencrypt.reseal(world.app)

    world.work()
    assert world.get(id)["state"] == "ready"
    assert len(world.titles()) == 3 + 4
    assert world.get(revoked)["state"] == "needs_auth", "no key brings that back"


def test_a_link_of_a_lost_key_leads_back_with_the_reason(world: World) -> None:
    made = world.create()
    path = f"/v3/connections/{made['id']}/authorize"
    links = [
        world.http.post(path, json=body).json()["authLink"] for body in ({"redirectUrl": DONE}, {})
    ]
    with world.app.db.begin() as tx:
        tx.execute(
            "update authorizations set verifier = 'sealed2:00000000:AAAA' where connection_id = %s",
            (made["id"],),
        )
    back = world.follow(links[0])
    assert told(back)["error"] == "service_error"
    page = world.follow(links[1])
    assert page.status_code == 500
    assert "RECOLLECT_SECRET_KEY" in page.text


def test_a_verification_token_counts_once_the_operator_confirmed_it(
    world: World, service_free: None
) -> None:
    token = "secret_verification_token_of_the_application"
    first = world.http.post("/v3/hooks/notion", json={"verification_token": token})
    assert first.status_code == 200
    with world.app.db.begin() as tx:
        [pending] = push_registrations.hook_secrets(tx, "notion")
    assert not pending.confirmed
    assert token not in pending.sealed
    body = json.dumps({"id": "e1", "type": "page.created", "workspace_id": "w1"}).encode()
    mark = hmac.new(token.encode(), body, hashlib.sha256).hexdigest()
    signed = {"x-notion-signature": f"sha256={mark}", "content-type": "application/json"}
    assert world.http.post("/v3/hooks/notion", content=body, headers=signed).status_code == 401
    with world.app.db.begin() as tx:
        push_registrations.confirm_hook_secret(tx, "notion", pending.hash)
    assert world.http.post("/v3/hooks/notion", content=body, headers=signed).status_code == 200
    for n in range(10):
        world.http.post("/v3/hooks/notion", json={"verification_token": f"a stranger's {n}"})
    with world.app.db.begin() as tx:
        found = push_registrations.hook_secrets(tx, "notion")
    assert [one.hash for one in found if one.confirmed] == [pending.hash]
    assert len(found) <= 1 + push_registrations.PENDING_KEPT
    assert world.http.post("/v3/hooks/notion", content=body, headers=signed).status_code == 200


@pytest.fixture
def service_free(app: App) -> Generator[None]:
    """The tokens are the installation's, not the organisation's: leave none behind."""
    yield
    with app.db.begin() as tx:
        tx.execute("delete from hook_secrets")


def test_a_push_of_gmail_without_its_settings_proves_nothing(world: World) -> None:
    assert world.http.post("/v3/hooks/gmail", json={"message": {}}).status_code == 401


def test_authorizing_again_during_a_sync(world: World) -> None:
    id = world.connected()
    world.due(id)
    with world.app.db.begin() as tx:
        [claim] = connection_queue.claim(tx, lease=world.app.lease, limit=1)
    link = world.http.post(f"/v3/connections/{id}/authorize").json()
    assert world.follow(link["authLink"]).status_code == 200
    assert world.get(id)["state"] == "syncing"
    # It was refused with the old authorization; the new one is another try.
    syncs.settle(world.app, claim, Reauthorize("the provider refuses the authorization"))
    assert world.get(id)["state"] == "syncing"
    world.work()
    assert world.get(id)["state"] == "ready"


def test_a_registration_that_was_cut_off_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> Any:
        raise Killed

    monkeypatch.setattr(CabinetConnector, "subscribe", die)
    made = world.create()
    world.follow(made["authLink"])
    with pytest.raises(Killed):
        syncs.drain(world.app)
    monkeypatch.undo()
    world.work()
    assert world.cabinet.hooks == {}, "it may still be answered"
    with world.app.db.begin() as tx:
        tx.execute("update registrations set renew_at = now() where renew_at < now() + '1 hour'")
    world.work()
    assert len(world.cabinet.hooks) == 1
    assert world.get(made["id"])["pushes"] == "on"


def lost_key(world: World) -> World:
    """The same service after its secret was lost."""
    lost = world.app.config.model_copy(
        update={"secret_key": NEW, "data_dir": world.app.config.data_dir / "elsewhere"}
    )
    own = replace(world.app, config=lost)
    http = TestClient(
        create_app(own), headers={"authorization": world.http.headers["authorization"]}
    )
    return replace(world, app=own, http=cast("httpx.Client", http))


def test_what_no_key_opens_can_be_deleted(world: World) -> None:
    id = world.connected()
    lost = lost_key(world)
    assert lost.http.delete(f"/v3/connections/{id}").status_code == 200
    assert world.http.get(f"/v3/connections/{id}").status_code == 404


def test_a_revocation_that_no_key_opens_keeps_no_other_waiting(world: World) -> None:
    world.connected("a")
    first = world.connected("b", user="bob@example.com")
    world.http.delete(f"/v3/connections/{first}")
    lost = lost_key(world)
    syncs.drain(lost.app)
    with world.app.db.begin() as tx:
        assert tx.execute("select 1 from farewells").rowcount == 0


def test_a_hook_that_no_key_opens_proves_nothing(world: World) -> None:
    world.connected()
    [hook] = world.cabinet.hooks.values()
    url = urlsplit(hook["url"])
    answer = lost_key(world).http.post(f"{url.path}?{url.query}", content=b"{}")
    assert answer.status_code < 500


def test_an_application_that_was_taken_away_is_the_operator_s_to_mend(world: World) -> None:
    id = world.connected()
    world.cabinet.shelf.put("9", "New.")
    world.cabinet.authorization.expire()
    without = world.app.config.model_copy(
        update={
            "providers": {
                "cabinet": world.cabinet.settings(token=world.proxy.url).model_copy(
                    update={"client_id": None}
                )
            }
        }
    )
    own = replace(world.app, config=without)
    world.due(id)
    syncs.drain(own)
    shown = world.get(id)
    assert shown["state"] == "ready"
    assert "RECOLLECT_CABINET_CLIENT_ID" in shown["error"]
    assert "error in Recollect" not in shown["error"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b'{"error": "invalid_client"}'),
        (400, b'{"error": "invalid_scope"}'),
        (403, b"<html>our systems have detected unusual traffic"),
    ],
    ids=["client", "scope", "traffic"],
)
def test_documents_wait_while_no_token_can_be_had(world: World, status: int, body: bytes) -> None:
    """Google has answered 403 where it limits requests:
    github.com/googleapis/google-oauth-java-client/issues/57"""
    made = world.create()
    world.follow(made["authLink"])
    syncs.drain(world.app)
    world.cabinet.authorization.expire()
    world.proxy.on("POST /token", status=status, body=body, times=None)
    drain(world.app)
    listed = world.http.post("/v3/connections/cabinet/documents").json()
    assert {document["status"] for document in listed} == {"queued"}
    world.proxy.behave()
    with world.app.db.begin() as tx:
        tx.execute("update documents set due_at = now() where connection_id = %s", (made["id"],))
    drain(world.app)
    listed = world.http.post("/v3/connections/cabinet/documents").json()
    assert {document["status"] for document in listed} == {"done"}


def test_a_reset_takes_back_what_was_given(world: World, org: Org) -> None:
    world.connected()
    answer = world.http.post("/v3/settings/reset", json={"confirmation": org.name})
    assert answer.status_code == 200
    syncs.drain(world.app)
    assert world.cabinet.hooks == {}
    assert world.proxy.asked("POST /revoke") > 0


def test_an_application_whose_secret_no_key_opens_is_named(world: World) -> None:
    mine = {"googleDriveCustomKeyEnabled": True, "googleDriveClientId": "1"}
    world.http.patch("/v3/settings", json={**mine, "googleDriveClientSecret": "hush"})
    answer = lost_key(world).http.post("/v3/connections/google-drive", json={})
    assert answer.status_code == 400
    assert "googleDriveClientSecret" in answer.json()["details"]
    assert "hush" not in answer.text
