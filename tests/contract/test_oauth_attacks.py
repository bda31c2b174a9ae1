"""What a stranger tries at the doors of OAuth: to be let in, to lead a person astray, to be in the
way of others."""

import re
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser

from recollect.api import REGISTRATIONS, create_app
from recollect.api.edge import is_open
from recollect.app import App
from recollect.cli.api import website
from recollect.db import Database
from recollect.errors import BadRequestError
from recollect.model import Org, Scope
from recollect.orgs import assistants, orgs
from tests.conftest import capture_logs, eventually, plain_client
from tests.contract.calls import refused
from tests.contract.test_edge import caller
from tests.contract.test_mcp import ACCEPT, HELLO
from tests.contract.test_oauth import (
    BACK,
    FORM,
    S256,
    VERIFIER,
    Person,
    is_refused,
    opens,
    register,
)


@pytest.fixture
def person(live_url: str, key: str) -> Generator[Person]:
    made = Person.at(live_url, key)
    yield made
    made.http.close()


@pytest.fixture
def nobody(live_url: str) -> Generator[httpx.Client]:
    with plain_client(live_url, {}) as http:
        yield http


# --- where a person is sent ------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "https://claude.ai%2Eevil.example/", "https://claude.ai&(a.evil.example/", "https://*/",
        "https://*.evil.example/", "http://a[::1]/", "http://[::1].evil.example/",
        "https://[v1.a]/", "https://[::1%25lo]/", "https://a.example:/", "http://127.1/",
        "http://2130706433/", "http://localhost./", "http://[::ffff:127.0.0.1]/",
        "http:127.0.0.1/", "https:/a.example", "https:////a.example", "https://\u0441laude.ai/",
        "https://a.example/\r\nx: y", "https://a.example\t/", "\x01https://a.example/",
        "https://a.example/'", "java\nscript:alert(1)", "VBScript://a/x", "blob:https://a/x",
    ],
)  # fmt: skip
def test_an_address_that_browsers_may_read_differently_is_not_registered(
    nobody: httpx.Client, uri: str
):
    is_refused(register(nobody, redirect_uris=[uri]), "invalid_redirect_uri")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("evil://claude.ai/callback", "evil://claude.ai"),
        ("com.evil.app:/claude.ai", "com.evil.app:"),
        ("https://claude.ai.evil.example/claude.ai", "claude.ai.evil.example"),
        ("http://[::1]:9/claude.ai", "[::1]:9"),
    ],
)
def test_the_page_does_not_take_an_app_s_scheme_for_a_site(
    live_url: str, key: str, uri: str, shown: str
):
    page = LexborHTMLParser(Person.at(live_url, key, uri).asks().text)
    assert page.css("p.lead b")[1].text() == shown
    assert f"and know {shown}." in page.css("p.bad")[0].text()


def test_nothing_that_a_program_says_is_markup_or_moves_the_cursor(
    person: Person, client: httpx.Client
):
    hostile = "\x1b[2J\u202e\r\n\"'><script src=//a></script>{{ 7*7 }}"
    name = hostile[8:]
    made = register(person.http, client_name=hostile, redirect_uris=[BACK]).json()
    person.client_id = made["client_id"]
    fault = person.asks(**dict.fromkeys(("state", "resource", "scope"), hostile))
    person.pair(state=hostile)
    listed = person.http.get("/console/assistants")
    for page in (person.asks(state=hostile), fault, listed):
        shown = LexborHTMLParser(page.text)
        assert not shown.css("main script, script[src^='//']")
        assert name in shown.css("main")[0].text()
        assert page.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    [one] = client.get("/v3/assistants").json()["assistants"]
    assert one["name"].isprintable()


def test_a_long_state_does_not_keep_anyone_from_signing_in(person: Person, key: str):
    with plain_client(str(person.http.base_url), FORM) as http:
        found = http.get("/oauth/authorize", params=person.query(state="=" * 4_000))
        login = http.get(http.get(found.headers["location"]).headers["location"])
        [after] = LexborHTMLParser(login.text).css("input[name=next]")
        done = http.post("/console/login", data={"key": key, "next": after.attributes["value"]})
        assert http.get(done.headers["location"]).status_code == 200


@pytest.mark.parametrize("prefix", ["", "/tools"])
def test_the_way_holds_where_the_public_address_has_a_path(
    served: Callable[..., httpx.Client], key: str, prefix: str
):
    http = served(public_url="https://example.org/tools")
    http.headers.update(FORM)
    http.base_url, http.follow_redirects = "https://example.org", False
    for name, more in (("authorization-server", ""), ("protected-resource", "/mcp")):
        assert http.get(f"/.well-known/oauth-{name}/tools{more}").status_code == 200
    made = http.post(f"{prefix}/oauth/register", json={"redirect_uris": [BACK]}).json()
    person = Person(http, made["client_id"])
    asked = person.query(resource="https://example.org/tools/mcp")
    found = http.get(f"{prefix}/oauth/authorize", params=asked)
    login = http.get(http.get(found.headers["location"]).headers["location"])
    [after] = LexborHTMLParser(login.text).css("input[name=next]")
    done = http.post("/console/login", data={"key": key, "next": after.attributes["value"]})
    assert "Connect Unnamed?" in http.get(done.headers["location"]).text


# --- who says where we are -------------------------------------------------------------------


def test_no_header_makes_another_server_of_us(served: Callable[..., httpx.Client]):
    lies = {
        "Host": 'evil.example", error="x',
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Prefix": "/evil",
        "Forwarded": "host=evil.example",
    }
    http = served(public_url="https://example.org")
    del http.headers["authorization"]
    for path in ("authorization-server", "protected-resource/mcp"):
        told = http.get(f"/.well-known/oauth-{path}", headers=lies)
        assert "evil" not in told.text
        assert told.headers["cache-control"] == "no-store"
    own = 'resource_metadata="https://example.org/.well-known/oauth-protected-resource/mcp"'
    assert http.post("/mcp", headers=lies).headers["www-authenticate"] == f"Bearer {own}"
    here = served(public_url=None)
    del here.headers["authorization"]
    told = here.post("/mcp", headers=lies).headers["www-authenticate"]
    assert told.count('"') == 2
    closed = served(host="127.0.0.1")
    for path in ("/.well-known/oauth-authorization-server", "/oauth/authorize"):
        refused(closed.get(path, headers={"Host": "evil.example"}), 403)


@pytest.mark.parametrize("path", ["/v3/mcp", "/v3/documents/mcp", "/mcp/mcp"])
def test_only_the_door_of_assistants_says_where_tokens_are(nobody: httpx.Client, path: str):
    assert nobody.get(path).headers["www-authenticate"] == "Bearer"


def test_a_key_in_the_other_header_opens_the_door(nobody: httpx.Client, key: str, person: Person):
    pair = person.pair()
    for secret in (key, pair["access_token"]):
        answer = nobody.post("/mcp", json=HELLO, headers={**ACCEPT, "x-api-key": secret})
        assert answer.status_code == 200, answer.text
    for name in ("token", "access_token", "key"):
        answer = nobody.post(f"/mcp?{name}={pair['access_token']}", json=HELLO, headers=ACCEPT)
        assert answer.status_code == 401


# --- secrets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verifier", ["v" * 42, "v" * 129, "v" * 42 + "!", "v" * 43 + "\n", S256])
def test_a_verifier_is_what_the_rfc_says(person: Person, verifier: str):
    is_refused(person.exchanges(person.code(), code_verifier=verifier), "invalid_grant")


def test_one_kind_of_secret_does_not_pass_for_another(person: Person, live_url: str, key: str):
    code, pair = person.code(), person.pair(form={"access": "read"})
    is_refused(person.refreshes(code), "invalid_grant")
    for token in (pair["access_token"], pair["refresh_token"]):
        is_refused(person.exchanges(token), "invalid_grant")
    is_refused(person.refreshes(pair["access_token"]), "invalid_grant")
    other = Person.at(live_url, key)
    is_refused(other.refreshes(pair["refresh_token"]), "invalid_grant")
    is_refused(other.exchanges(code), "invalid_grant")
    assert person.exchanges(code).status_code == 200, "what strangers tried has not ended it"
    wider = person.refreshes(pair["refresh_token"], scope="read write admin")
    assert wider.json()["scope"] == "read"
    assert (wider.headers["cache-control"], wider.headers["pragma"]) == ("no-store", "no-cache")


def test_a_token_opens_no_other_door(person: Person, nobody: httpx.Client, app: App):
    token = person.pair()["access_token"]
    tried = 0
    for route in website(app).routes:
        path = re.sub(r"{[^}]*}", "x", getattr(route, "path", ""))
        for method in getattr(route, "methods", None) or ():
            if path in ("/mcp", "") or is_open(path, method):
                continue
            tried += 1
            for headers in ({"Authorization": f"Bearer {token}"}, {"x-api-key": token}):
                assert nobody.request(method, path, headers=headers).status_code == 401, path
    assert tried > 100
    nobody.cookies.set("recollect_session", token)
    assert nobody.get("/console/keys").status_code == 303
    assert nobody.post("/console/login", data={"key": token}, headers=FORM).status_code == 401


def test_no_secret_is_told_to_the_log_or_the_audit(person: Person, db: Database):
    with capture_logs() as lines:
        code = person.code(state="a-secret-state")
        pair = person.exchanges(code).json()
        next_pair = person.refreshes(pair["refresh_token"]).json()
        person.exchanges(code)
        opens(person.http, pair["access_token"])
        with db.begin() as tx:
            kept = tx.execute("select a::text as row from audit_log a").fetchall()
    told = str(lines) + str(kept)
    assert "assistant.revoked" in told
    for secret in (code, *pair.values(), *next_pair.values(), VERIFIER, "a-secret-state"):
        if len(str(secret)) > 10:
            assert str(secret).removeprefix("oat_") not in told


# --- two at once -----------------------------------------------------------------------------


def blocked(db: Database) -> int:
    """How many wait for a lock of another."""
    with db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return row["n"]


def allowing(db: Database, person: Person, key: str) -> Callable[[Any], str]:
    """What the page's button does with the database."""
    with db.begin() as tx:
        allowed, known = orgs.authenticate(tx, key), assistants.client(tx, person.client_id)
    return lambda tx: assistants.allow(
        tx, allowed, known, scope=Scope.READ, tags=None, redirect_uri=BACK, challenge=S256
    )


def test_a_registration_is_not_forgotten_while_a_person_allows_it(
    person: Person, db: Database, key: str, nobody: httpx.Client
):
    allow = allowing(db, person, key)
    with db.begin() as tx:
        tx.execute("update oauth_clients set created_at = now() - interval '2 days'")
    with ThreadPoolExecutor(1) as pool:
        with db.begin() as tx:
            code = allow(tx)
            later = pool.submit(register, nobody, redirect_uris=[BACK])
            eventually(lambda: later.done() or blocked(db))
        assert later.result().status_code == 201
    assert person.exchanges(code).status_code == 200


def test_a_person_is_told_when_the_registration_was_forgotten(
    person: Person, db: Database, key: str
):
    allow = allowing(db, person, key)
    with db.begin() as tx:
        tx.execute("delete from oauth_clients where id = %s", (person.client_id,))
    with pytest.raises(BadRequestError, match="forgotten"), db.begin() as tx:
        allow(tx)


@contextmanager
def held(db: Database) -> Generator[ThreadPoolExecutor]:
    """Access tokens cannot be deleted until the block ends, so that what deletes them waits."""
    with ThreadPoolExecutor(2) as pool, db.begin() as tx:
        tx.execute("select 1 from assistant_tokens where kind = 'access' for update")
        yield pool


def test_a_replay_and_a_renewal_at_once_both_get_nothing(
    person: Person, db: Database, moments_later: None
):
    """Neither is in the way of the other, else the end of a stolen family could be put off."""
    first = person.pair()
    second = person.refreshes(first["refresh_token"]).json()
    with held(db) as pool:
        replay = pool.submit(person.refreshes, first["refresh_token"])
        eventually(lambda: blocked(db) == 1)
        renewal = pool.submit(person.refreshes, second["refresh_token"])
        eventually(lambda: blocked(db) == 2)
    is_refused(replay.result(), "invalid_grant")
    is_refused(renewal.result(), "invalid_grant")
    assert not opens(person.http, second["access_token"])


def test_a_token_that_two_give_back_at_once_is_gone_for_both(person: Person, db: Database):
    token = person.pair()["refresh_token"]
    answers = list[Future[httpx.Response]]()
    with held(db) as pool:
        for waiting in (1, 2):
            answers.append(pool.submit(person.http.post, "/oauth/revoke", data={"token": token}))
            eventually(lambda waiting=waiting: blocked(db) == waiting)
    assert [one.result().status_code for one in answers] == [200, 200]


# --- how much --------------------------------------------------------------------------------


def test_a_program_that_renews_without_end_does_not_fill_the_table(
    person: Person, db: Database, monkeypatch: pytest.MonkeyPatch, moments_later: None
):
    monkeypatch.setattr(assistants, "MOST_SPENT", 2)
    pairs = [person.pair()]
    for _ in range(4):
        pairs.append(person.refreshes(pairs[-1]["refresh_token"]).json())
    with db.begin() as tx:
        rows = tx.execute("select kind, spent_at is null as counts from assistant_tokens")
        kept = sorted((row["kind"], row["counts"]) for row in rows)
    spent = [("refresh", False)] * 2
    assert kept == [("access", True), *spent, ("refresh", True)]
    is_refused(person.refreshes(pairs[0]["refresh_token"]), "invalid_grant")
    assert opens(person.http, pairs[-1]["access_token"]), "nobody gained by one that is forgotten"
    is_refused(person.refreshes(pairs[3]["refresh_token"]), "invalid_grant")
    assert not opens(person.http, pairs[-1]["access_token"])


def test_a_key_lets_in_so_many_and_no_more(
    person: Person, live_url: str, org: Org, db: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(assistants, "MOST_OF_KEY", 2)
    with ThreadPoolExecutor(4) as pool:
        answers = [one.result() for one in [pool.submit(person.decides) for _ in range(4)]]
    assert sorted(one.status_code for one in answers) == [303, 303, 400, 400]
    with db.begin() as tx:
        _, other = orgs.create_key(tx, org.id, scope=Scope.WRITE)
    page = Person.at(live_url, other).asks().text
    assert "a key of scope admin revokes it" in page


def test_those_that_can_ask_no_more_take_no_place(
    person: Person, db: Database, monkeypatch: pytest.MonkeyPatch
):
    """They are on no list, so nobody could revoke them."""
    monkeypatch.setattr(assistants, "MOST_OF_KEY", 1)
    person.pair()
    assert person.decides().status_code == 400
    with db.begin() as tx:
        tx.execute("update assistant_tokens set expires_at = now()")

    assert person.decides().status_code == 303


def test_a_page_in_a_browser_of_this_machine_registers_only_so_often(app: App, key: str):
    """A simple request of any site's page reaches loopback, though it may not read the answer."""
    page = {"Origin": "https://evil.example", "content-type": "text/plain"}
    body = b'{"redirect_uris": ["https://evil.example/back"]}'
    with caller(create_app(app), "127.0.0.1", key) as here:
        for _ in range(REGISTRATIONS.requests):
            assert here.post("/oauth/register", content=body, headers=page).status_code == 201
        refused(here.post("/oauth/register", content=body, headers=page), 429)
        assert register(here, redirect_uris=[BACK]).status_code == 201, "programs do not wait"
