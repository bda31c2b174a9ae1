"""Assistants that connect by OAuth 2.1: the whole way as clients go it, and what opens nothing."""

import base64
import hashlib
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl
from selectolax.lexbor import LexborHTMLParser

from recollect.api import REGISTRATIONS, create_app
from recollect.api.edge import Visits
from recollect.app import App
from recollect.db import Database
from recollect.model import Org, Scope
from recollect.orgs import assistants, orgs
from recollect.orgs.orgs import Limit
from tests.conftest import plain_client
from tests.contract.calls import add, refused
from tests.contract.test_edge import caller
from tests.contract.test_mcp import ACCEPT, HELLO, MODES, call

BACK = "https://assistant.example/back"
LOOPBACK = "http://127.0.0.1:33418/callback"
FORM = {"Sec-Fetch-Site": "same-origin"}
VERIFIER = "v" * 43
S256 = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


@dataclass
class Person:
    """At a browser, with a key, and one program that wants to be let in."""

    http: httpx.Client
    client_id: str
    back: str = BACK
    asked: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def at(cls, url: str, key: str, *uris: str) -> "Person":
        http = plain_client(url, FORM)
        assert http.post("/console/login", data={"key": key}).status_code == 303
        made = register(http, redirect_uris=list(uris or (BACK,)))
        assert made.status_code == 201, made.text
        return cls(http, made.json()["client_id"], (uris or (BACK,))[0])

    def query(self, **other: str) -> dict[str, str]:
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.back,
            "state": "s 1",
            "code_challenge": S256,
            "code_challenge_method": "S256",
            "resource": f"{self.http.base_url!s}".rstrip("/") + "/mcp",
            "scope": "read write",
            **other,
        }
        return {name: value for name, value in asked.items() if value}

    def asks(self, **other: str) -> httpx.Response:
        found = self.http.get("/oauth/authorize", params=self.query(**other))
        assert found.status_code == 303
        return self.http.get(found.headers["location"])

    def decides(self, *, form: dict[str, str] | None = None, **other: str) -> httpx.Response:
        """What the page's form sends."""
        data = {
            **fields(self.asks(**other)),
            "decision": "allow",
            "access": "write",
            **(form or {}),
        }
        return self.http.post("/console/assistants/allow", data=data)

    def code(self, **given: Any) -> str:
        answer = self.decides(**given)
        assert answer.status_code == 303, answer.text
        return parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]

    def token(self, **form: str) -> httpx.Response:
        return self.http.post("/oauth/token", data={"client_id": self.client_id, **form})

    def exchanges(self, code: str, **other: str) -> httpx.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.back,
            "code_verifier": VERIFIER,
            **other,
        }
        return self.token(**{name: value for name, value in form.items() if value})

    def refreshes(self, token: str, **other: str) -> httpx.Response:
        return self.token(grant_type="refresh_token", refresh_token=token, **other)

    def pair(self, **given: Any) -> dict[str, Any]:
        answer = self.exchanges(self.code(**given))
        assert answer.status_code == 200, answer.text
        return answer.json()


def fields(page: httpx.Response) -> dict[str, str]:
    """What the form of the page holds for the program."""
    shown = LexborHTMLParser(page.text).css("main form input[type=hidden]")
    return {one.attributes["name"] or "": one.attributes["value"] or "" for one in shown}


def register(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/oauth/register", json={"client_name": "A test", **body})


def opens(http: httpx.Client, token: str) -> bool:
    answer = at_mcp(http, token)
    assert answer.status_code in (200, 401), answer.text
    return answer.status_code == 200


def at_mcp(http: httpx.Client, token: str | None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return http.post("/mcp", json=HELLO, headers={**ACCEPT, **headers})


def is_refused(answer: httpx.Response, error: str, status: int = 400) -> None:
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    assert answer.json()["error_description"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.fixture
def person(live_url: str, key: str) -> Generator[Person]:
    made = Person.at(live_url, key)
    yield made
    made.http.close()


@pytest.fixture
def nobody(live_url: str) -> Generator[httpx.Client]:
    with plain_client(live_url, {}) as http:
        yield http


# --- the way in ------------------------------------------------------------------------------


class Memory:
    """Where the SDK keeps what it was given."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.info = client_info


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_comes_in_by_the_address_alone(
    live_url: str, key: str, client: httpx.Client, db: Database, mode: str
):
    """It finds where to register and to ask, is let in by a person, and renews its token."""
    add(client, "the heron fishes at dawn", containerTag="birds", customId="heron")
    memory, visited = Memory(), list[str]()
    browser = plain_client(live_url, FORM)
    assert browser.post("/console/login", data={"key": key}).status_code == 303
    answered: list[str] = []

    async def visit(url: str) -> None:
        visited.append(url)
        page = browser.get(url, follow_redirects=True)
        shown = LexborHTMLParser(page.text)
        assert "A test" in (shown.css("main")[0].text())
        done = browser.post(
            "/console/assistants/allow",
            data={**fields(page), "decision": "allow", "access": "read", "tags": "birds"},
        )
        answered.append(done.headers["location"])

    async def come_back() -> AuthorizationCodeResult:
        told = dict(parse_qsl(urlsplit(answered[-1]).query))
        return AuthorizationCodeResult(code=told["code"], state=told["state"], iss=told["iss"])

    provider = OAuthClientProvider(
        f"{live_url}/mcp",
        OAuthClientMetadata(client_name="A test", redirect_uris=[AnyUrl(LOOPBACK)]),
        memory,
        visit,
        come_back,
    )

    async def talk() -> tuple[dict[str, Any], list[str]]:
        async with httpx2.AsyncClient(auth=provider, timeout=60, trust_env=False) as http:
            transport = streamable_http_client(f"{live_url}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                read = await call(client, "fetch", id="heron")
                written = await client.call_tool("add", {"content": "more"})
                assert written.is_error
                # An hour later.
                with db.begin() as tx:
                    tx.execute("update assistant_tokens set expires_at = now() - interval '1 s'"
                               " where kind = 'access'")  # fmt: skip
                assert memory.tokens is not None
                first = memory.tokens.access_token
                provider.context.token_expiry_time = 1.0
                again = await call(client, "fetch", id="heron")
                assert memory.tokens.access_token != first
                return read, [again["text"]]

    read, again = anyio.run(talk)
    assert read["text"] == "the heron fishes at dawn"
    assert again == [read["text"]]
    assert len(visited) == 1, "the person was asked once"
    [listed] = client.get("/v3/assistants").json()["assistants"]
    assert (listed["name"], listed["scope"], listed["containerTags"]) == (
        "A test",
        "read",
        ["birds"],
    )
    browser.close()


def test_a_request_without_a_token_says_where_to_get_one(nobody: httpx.Client):
    own = str(nobody.base_url).rstrip("/")
    where = f'resource_metadata="{own}/.well-known/oauth-protected-resource/mcp"'
    assert at_mcp(nobody, None).headers["www-authenticate"] == f"Bearer {where}"
    wrong = at_mcp(nobody, "oat_nothing")
    assert wrong.headers["www-authenticate"] == f'Bearer error="invalid_token", {where}'
    assert nobody.get("/v3/session").headers["www-authenticate"] == "Bearer"
    assert nobody.get("/ns/mcp").headers["www-authenticate"] == "Bearer"  # a namespace of that name
    for rest in ("", "/mcp"):
        told = nobody.get(f"/.well-known/oauth-protected-resource{rest}").json()
        assert told["resource"] == f"{own}/mcp"
        assert told["authorization_servers"] == [own]
    server = nobody.get("/.well-known/oauth-authorization-server")
    assert server.headers["access-control-allow-origin"] == "*"
    told = server.json()
    assert told["issuer"] == own
    assert told["code_challenge_methods_supported"] == ["S256"]
    for name in ("authorization", "token", "registration", "revocation"):
        path = urlsplit(told[f"{name}_endpoint"]).path
        # Each is there for who has no key.
        asked = nobody.get(path) if name == "authorization" else nobody.post(path)
        assert asked.status_code in (303, 400), (path, asked.text)


def test_a_browser_that_is_not_signed_in_signs_in_and_comes_back(person: Person, key: str):
    with plain_client(str(person.http.base_url), FORM) as http:
        found = http.get("/oauth/authorize", params=person.query())
        asked = http.get(found.headers["location"])
        assert asked.status_code == 303
        login = http.get(asked.headers["location"])
        assert login.status_code == 200
        [after] = LexborHTMLParser(login.text).css("input[name=next]")
        done = http.post("/console/login", data={"key": key, "next": after.attributes["value"]})
        shown = http.get(done.headers["location"])
        assert (shown.status_code, "Connect A test?" in shown.text) == (200, True)
        assert dict(parse_qsl(urlsplit(done.headers["location"]).query)) == person.query()


def test_the_page_names_the_program_and_where_the_answer_goes(person: Person, live_url: str):
    hostile = '<b>Claude</b>"><script>alert(1)</script>'
    made = register(person.http, client_name=hostile, redirect_uris=[BACK]).json()
    person.client_id = made["client_id"]
    page = person.asks()
    shown = LexborHTMLParser(page.text)
    assert hostile in shown.css("main")[0].text()
    assert not shown.css("main script, main b b")
    assert "assistant.example" in shown.css("main")[0].text()
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' https://assistant.example" in policy


def test_what_the_person_allows_is_what_the_token_may_do(
    person: Person, client: httpx.Client, nobody: httpx.Client
):
    answer = person.decides(form={"decision": "deny"})
    told = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    own = str(person.http.base_url).rstrip("/")
    assert told == {"error": "access_denied", "state": "s 1", "iss": own}
    answer = person.decides(form={"access": "read", "tags": "a, b"})
    told = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert (told["state"], told["iss"]) == ("s 1", own)
    pair = person.exchanges(told["code"]).json()
    assert (pair["token_type"], pair["expires_in"], pair["scope"]) == ("Bearer", 3600, "read")
    [one] = client.get("/v3/assistants").json()["assistants"]
    assert (one["scope"], one["containerTags"]) == ("read", ["a", "b"])
    assert opens(nobody, pair["access_token"])
    # Its place is /mcp, and nowhere else.
    for path in ("/v3/session", "/v3/documents/counts", "/mcp/", "/v3/openapi/"):
        headers = {"Authorization": f"Bearer {pair['access_token']}"}
        assert nobody.get(path, headers=headers).status_code in (401, 404, 405), path
        assert nobody.get(path, headers={"x-api-key": pair["access_token"]}).status_code != 200
    # The other tokens open nothing at all.
    assert not opens(nobody, pair["refresh_token"])
    assert not opens(nobody, person.code())


@pytest.mark.parametrize(
    ("scope", "tags", "form", "least"),
    [
        (Scope.READ, None, {"access": "write"}, 403),
        (Scope.WRITE, ["a"], {"access": "write", "tags": "b"}, 403),
        (Scope.WRITE, ["a"], {"access": "write", "tags": "a b"}, 403),
        (Scope.WRITE, None, {"access": "admin"}, 400),
    ],
)
def test_a_person_cannot_allow_more_than_their_key_may(
    live_url: str,
    db: Database,
    org: Org,
    scope: Scope,
    tags: list[str] | None,
    form: dict[str, str],
    least: int,
):
    with db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id, scope=scope, tags=tags)
    person = Person.at(live_url, secret)
    assert person.decides(form=form).status_code == least
    narrow = person.pair(form={"access": "read"})
    [one] = listed(db, org)
    assert (one.scope, one.tags, one.key_id) == (Scope.READ, tags, key.id)
    assert opens(person.http, narrow["access_token"])


def listed(db: Database, org: Org) -> list[assistants.Assistant]:
    with db.begin() as tx:
        return assistants.find(tx, org.id)


def test_an_assistant_ends_with_its_key_and_by_its_own_end(
    live_url: str, client: httpx.Client, db: Database, org: Org
):
    with db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id)
    person = Person.at(live_url, secret)
    one, two = person.pair(), person.pair()
    [_, first] = client.get("/v3/assistants").json()["assistants"]
    assert client.delete(f"/v3/assistants/{first['id']}").status_code == 204
    refused(client.delete(f"/v3/assistants/{first['id']}"), 404)
    assert not opens(person.http, one["access_token"])
    is_refused(person.refreshes(one["refresh_token"]), "invalid_grant")
    assert opens(person.http, two["access_token"])
    with db.begin() as tx:
        orgs.revoke_key(tx, key.id)
    assert not opens(person.http, two["access_token"])
    is_refused(person.refreshes(two["refresh_token"]), "invalid_grant")
    assert client.get("/v3/assistants").json()["assistants"] == []
    actions = [row["action"] for row in client.get("/v3/audit").json()["records"]]
    assert actions.count("assistant.allowed") == 2
    assert actions.count("assistant.revoked") == 1


def test_a_key_that_was_narrowed_narrows_what_it_allowed(person: Person, db: Database, org: Org):
    pair = person.pair(form={"tags": "a b"})
    with db.begin() as tx:
        tx.execute("update keys set tags = '{b,c}', scope = 'read' where org_id = %s", (org.id,))
    with db.begin() as tx:
        key = assistants.authenticate(tx, pair["access_token"])
    assert (key.tags, key.scope) == (["b"], Scope.READ)
    with db.begin() as tx:
        tx.execute("update keys set tags = '{c}' where org_id = %s", (org.id,))
    assert not opens(person.http, pair["access_token"])


# --- what opens nothing ----------------------------------------------------------------------


def test_a_code_is_good_once_and_its_replay_ends_what_came_of_it(person: Person):
    code = person.code()
    pair = person.exchanges(code).json()
    assert opens(person.http, pair["access_token"])
    is_refused(person.exchanges(code), "invalid_grant")
    assert not opens(person.http, pair["access_token"])
    is_refused(person.refreshes(pair["refresh_token"]), "invalid_grant")


def test_a_refresh_token_is_good_once_and_its_replay_ends_the_family(
    person: Person, moments_later: None
):
    first = person.pair()
    second = person.refreshes(first["refresh_token"]).json()
    assert not opens(person.http, first["access_token"])
    assert opens(person.http, second["access_token"])
    is_refused(person.refreshes(first["refresh_token"]), "invalid_grant")
    assert not opens(person.http, second["access_token"])
    is_refused(person.refreshes(second["refresh_token"]), "invalid_grant")


def at_once(take: Callable[[], httpx.Response]) -> list[httpx.Response]:
    together = threading.Barrier(4)

    def one(_: int) -> httpx.Response:
        together.wait()
        return take()

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, range(4)))


def test_calls_under_way_when_the_access_token_ends_renew_it_each(
    person: Person, monkeypatch: pytest.MonkeyPatch
):
    """As the SDKs for TypeScript do. It ended the assistant: the person had to let it in again."""
    old = person.pair()["refresh_token"]
    pairs = [one.json() for one in at_once(lambda: person.refreshes(old))]

    assert all(opens(person.http, pair["access_token"]) for pair in pairs)
    next_pair = person.refreshes(pairs[0]["refresh_token"]).json()
    assert opens(person.http, next_pair["access_token"])
    monkeypatch.setattr(assistants, "TOGETHER", timedelta(minutes=-1))
    # Later it is somebody else who has it.
    is_refused(person.refreshes(old), "invalid_grant")
    assert not any(opens(person.http, pair["access_token"]) for pair in [*pairs, next_pair])
    is_refused(person.refreshes(pairs[1]["refresh_token"]), "invalid_grant")


def test_a_program_that_renews_without_end_has_a_bounded_number_of_tokens(
    person: Person, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(assistants, "MOST_TOGETHER", 3)
    old = person.pair()["refresh_token"]
    pairs = [person.refreshes(old).json() for _ in range(6)]

    is_refused(person.refreshes(pairs[2]["refresh_token"]), "invalid_grant")
    assert person.refreshes(pairs[-1]["refresh_token"]).status_code == 200


@pytest.mark.parametrize("kind", ["authorization_code", "refresh_token"])
def test_of_two_at_once_at_most_one_gets_tokens(person: Person, kind: str, moments_later: None):
    secret = person.code() if kind == "authorization_code" else person.pair()["refresh_token"]
    is_code = kind == "authorization_code"
    answers = at_once(lambda: person.exchanges(secret) if is_code else person.refreshes(secret))
    granted = [one for one in answers if one.status_code == 200]
    assert len(granted) <= 1
    assert {one.status_code for one in answers} <= {200, 400}
    # It was used more than once, so somebody else has it.
    assert not any(opens(person.http, one.json()["access_token"]) for one in granted)


def test_a_code_is_bound_to_who_asked_and_how(
    person: Person, live_url: str, key: str, db: Database
):
    other = Person.at(live_url, key, BACK)
    code = person.code()
    for wrong in (
        {"code_verifier": "w" * 43},
        {"code_verifier": S256},
        {"code_verifier": ""},
        {"redirect_uri": f"{BACK}/"},
        {"client_id": other.client_id},
    ):
        is_refused(person.exchanges(code, **wrong), "invalid_grant")
    is_refused(person.exchanges(code, client_id="nobody"), "invalid_client", 401)
    for target in ("https://elsewhere.example/mcp", f"{live_url}/v3", live_url):
        is_refused(person.exchanges(code, resource=target), "invalid_target")
    assert person.exchanges(code, resource=f"{live_url}/mcp").status_code == 200
    # Programs of OAuth 2.1 name the address when they ask for the code, and then no more.
    assert person.exchanges(person.code(), redirect_uri="").status_code == 200
    old = person.code()
    with db.begin() as tx:
        tx.execute("update assistant_tokens set expires_at = now() where spent_at is null")
    is_refused(person.exchanges(old), "invalid_grant")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": ""}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": ""}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
    ],
)
def test_what_a_known_program_asks_wrongly_it_is_told_if_the_person_wants(
    person: Person, changed: dict[str, str], error: str
):
    """Its address is a stranger's, too: nobody is sent there by a link alone."""
    page = person.asks(**changed)
    assert page.status_code == 400
    assert "location" not in page.headers
    [button] = LexborHTMLParser(page.text).css("main button")
    assert button.text() == "Go back to assistant.example"
    for decision in ("deny", "allow"):  # nor does the form let it through
        sent = person.http.post(
            "/console/assistants/allow", data={**fields(page), "decision": decision}
        )
        where = urlsplit(sent.headers["location"])
        assert f"{where.scheme}://{where.netloc}{where.path}" == BACK
        told = dict(parse_qsl(where.query))
        assert (told["error"], told["state"]) == (error, "s 1")


@pytest.mark.parametrize(
    "other",
    [
        f"{BACK}/",
        f"{BACK}?a=b",
        f"{BACK}#",
        "https://assistant.example:443/back",
        "https://assistant.example.evil.example/back",
        "https://assistant.example@evil.example/back",
        "https://evil.example\\@assistant.example/back",
        "http://assistant.example/back",
        "https://assistant.example/%62ack",
        "https://assistant.example/x/../back",
        "HTTPS://assistant.example/back",
        "//assistant.example/back",
        "javascript:alert(1)",
        "",
        "http://127.0.0.1:1/other",
        "http://127.0.0.1:1/callback?x",
        "http://localhost:1/callback",
        "http://127.0.0.1.evil.example/callback",
        "http://user@127.0.0.1/callback",
    ],
)
def test_nobody_is_sent_to_an_address_that_was_not_registered(live_url: str, key: str, other: str):
    person = Person.at(live_url, key, BACK, LOOPBACK)
    shown = person.asks(redirect_uri=other)
    assert shown.status_code == 400
    assert "location" not in shown.headers
    data = {**person.query(redirect_uri=other), "decision": "allow"}
    sent = person.http.post("/console/assistants/allow", data=data)
    assert sent.status_code == 400


def test_a_program_on_the_reader_s_machine_takes_any_port(live_url: str, key: str):
    person = Person.at(live_url, key, LOOPBACK)
    person.back = "http://127.0.0.1:50123/callback"
    assert person.pair()["access_token"]


@pytest.mark.parametrize(
    "uris",
    [
        None, [], "https://a.example", [1], [BACK] * 11, ["javascript:alert(1)"],
        ["JavaScript://a/%0aalert(1)"], ["data:text/html,x"], ["http://a.example/"],
        ["https://a.example/#part"], ["https://user:pw@a.example/"], ["https:///x"], ["/back"],
        ["https://a.example/" + "x" * 3_000], ["https://a.example/ x"], ["https://a\\b.example/"],
        ["https://a.example/;form-action"], ["https://[::1/"], ["https://a.example:0/"],
        ["https://a.example:99999/"], ["mailto:a@b.example"], ["file:///etc/passwd"], [{}], [None],
        ["https://a.example/\n"], ["\x00"],
    ],
)  # fmt: skip
def test_addresses_that_nobody_should_be_sent_to_are_not_registered(
    nobody: httpx.Client, uris: Any
):
    is_refused(register(nobody, redirect_uris=uris), "invalid_redirect_uri")


def test_programs_register_as_they_are(nobody: httpx.Client):
    for uri in ("cursor://anysphere.cursor-retrieval/oauth/user-mcp/callback",
                "vscode://vscode.example/callback", "com.example.app:/back",
                "http://localhost:6274/oauth/callback", "http://[::1]:9/callback",
                "https://chatgpt.com/connector_platform_oauth_redirect"):  # fmt: skip
        made = register(
            nobody,
            redirect_uris=[uri],
            token_endpoint_auth_method="client_secret_post",
            grant_types=["authorization_code"],
        )
        assert made.status_code == 201, made.text
        told = made.json()
        assert (told["token_endpoint_auth_method"], told["redirect_uris"]) == ("none", [uri])
        assert "client_secret" not in told
    for name in (None, 7, "", "\u202e\x07", "n" * 5_000):
        told = register(nobody, client_name=name, redirect_uris=[BACK]).json()
        assert told["client_name"] in ("Unnamed", "n" * 100)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b"\xff", b"[" * 50_000, b'{"a":' * 9_000, b'"x"'],
)
def test_a_registration_that_is_none_is_refused(nobody: httpx.Client, body: bytes):
    answer = nobody.post("/oauth/register", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"] in ("invalid_client_metadata", "invalid_redirect_uri")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "unsupported_grant_type"),
        (b"grant_type=password&username=a&password=b", "unsupported_grant_type"),
        (b"grant_type=client_credentials", "unsupported_grant_type"),
        (b"grant_type=authorization_code", "invalid_request"),
        (b"grant_type=refresh_token", "invalid_request"),
        (b"grant_type=refresh_token&refresh_token=x", "invalid_client"),
        (b"grant_type=refresh_token&refresh_token=x&refresh_token=y", "invalid_request"),
        (b"grant_type=refresh_token&refresh_token=%00&client_id=a", "invalid_request"),
        (b"grant_type=refresh_token&refresh_token=x&client_id=%ed%a0%80", "invalid_request"),
        (b"\xff\xfe", "invalid_request"),
        (b"&".join(b"a%d=1" % n for n in range(60)), "invalid_request"),
    ],
)
def test_token_requests_fail_in_the_words_of_the_rfc(nobody: httpx.Client, body: bytes, error: str):
    answer = nobody.post("/oauth/token", content=body)
    is_refused(answer, error, 401 if error == "invalid_client" else 400)


def test_another_site_cannot_let_anyone_in(person: Person):
    data = {**person.query(), "decision": "allow", "access": "read"}
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ):
        answer = person.http.post("/console/assistants/allow", data=data, headers=headers)
        assert answer.status_code == 403
    with plain_client(str(person.http.base_url), FORM) as http:
        assert http.post("/console/assistants/allow", data=data).status_code == 401


def test_odd_parameters_of_the_page_are_refused(person: Person):
    for odd in ({"state": "x" * 5_000}, {"state": "a\0b"}, {"client_id": "\0"}):
        shown = person.http.get("/console/assistants/allow", params=person.query(**odd))
        assert shown.status_code == 400, odd
    twice = "&".join(["client_id=" + person.client_id, "client_id=other", f"redirect_uri={BACK}"])
    assert person.http.get(f"/console/assistants/allow?{twice}").status_code == 400
    long = "\u00e9\U0001f600'\"<>" * 100
    told = dict(parse_qsl(urlsplit(person.decides(state=long).headers["location"]).query))
    assert told["state"] == long


def test_a_token_can_be_given_back(person: Person, nobody: httpx.Client):
    pair = person.pair()
    for token in ("nothing", pair["access_token"]):
        form = {"token": token, "client_id": "another" if token != "nothing" else person.client_id}
        assert nobody.post("/oauth/revoke", data=form).status_code == 200
    assert opens(nobody, pair["access_token"])
    form = {"token": pair["refresh_token"], "client_id": person.client_id}
    assert nobody.post("/oauth/revoke", data=form).status_code == 200
    assert not opens(nobody, pair["access_token"])
    is_refused(nobody.post("/oauth/revoke", data={}), "invalid_request")


# --- how much --------------------------------------------------------------------------------


def test_registrations_that_nobody_uses_are_forgotten(
    person: Person, nobody: httpx.Client, db: Database, monkeypatch: pytest.MonkeyPatch
):
    person.pair()
    monkeypatch.setattr(assistants, "MOST_CLIENTS", 3)
    made = [register(nobody, redirect_uris=[BACK]).json()["client_id"] for _ in range(5)]
    with db.begin() as tx:
        rows = tx.execute("select id from oauth_clients").fetchall()
        assert {row["id"] for row in rows} >= {person.client_id, *made}, "they are young"
        tx.execute("update oauth_clients set created_at = created_at - interval '2 hours'")
    made.append(register(nobody, redirect_uris=[BACK]).json()["client_id"])
    with db.begin() as tx:
        rows = tx.execute("select id from oauth_clients").fetchall()
        assert {row["id"] for row in rows} >= {person.client_id, *made[-3:]}
        assert not {row["id"] for row in rows} & set(made[:3])
        tx.execute("update oauth_clients set created_at = now() - interval '2 days'")
    register(nobody, redirect_uris=[BACK])
    with db.begin() as tx:
        rows = tx.execute("select id from oauth_clients").fetchall()
    assert person.client_id in {row["id"] for row in rows}
    assert not {row["id"] for row in rows} & set(made)


def test_young_registrations_are_bounded_too(
    nobody: httpx.Client, db: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(assistants, "MOST_YOUNG", 3)
    made = [register(nobody, redirect_uris=[BACK]).json()["client_id"] for _ in range(5)]

    with db.begin() as tx:
        rows = tx.execute("select id from oauth_clients").fetchall()
    assert {row["id"] for row in rows} & set(made) == set(made[-3:])


@pytest.mark.costly
def test_a_thousand_registrations_from_fifty_addresses_push_out_nobody(
    person: Person, app: App, key: str, db: Database
):
    """Those before the last of each address are written at once: it is their number that counts."""
    with db.begin() as tx:
        tx.execute(
            "insert into oauth_clients (id, name, redirect_uris)"
            " select 'flood ' || n, 'Unnamed', '{}' from generate_series(1, 950) n"
        )
    api = create_app(app)
    for number in range(50):
        with caller(api, f"203.0.113.{number}", key) as stranger:
            assert register(stranger, redirect_uris=[BACK]).status_code == 201

    assert person.pair()["access_token"], "a person who was about to allow it"


def test_what_is_over_leaves_no_rows(person: Person, db: Database, org: Org):
    person.pair()
    person.code()
    with db.begin() as tx:
        tx.execute("update assistant_tokens set expires_at = now() - interval '2 days'")
        tx.execute("update assistants set created_at = now() - interval '2 days'")
    assert listed(db, org) == []
    person.pair()
    with db.begin() as tx:
        kept = tx.execute("select id from assistants where org_id = %s", (org.id,)).fetchall()
    assert len(kept) == 1


def test_no_secret_is_kept_in_clear(person: Person, db: Database, app: App):
    code = person.code()
    pair = person.exchanges(code).json()
    with db.begin() as tx:
        kept = tx.execute("select t::text as row from assistant_tokens t").fetchall()
    text = str(kept)
    for secret in (code, pair["access_token"], pair["refresh_token"], VERIFIER):
        assert secret not in text
        assert secret.removeprefix("oat_") not in text


def test_a_stranger_registers_only_so_often(app: App, key: str):
    api = create_app(app)
    with caller(api, "203.0.113.5", key) as one, caller(api, "203.0.113.6", key) as other:
        for _ in range(REGISTRATIONS.requests):
            assert register(one, redirect_uris=[BACK]).status_code == 201
        refused(register(one, redirect_uris=[BACK]), 429, "Too many requests")
        assert register(other, redirect_uris=[BACK]).status_code == 201


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
def test_a_stranger_guesses_tokens_only_so_often(app: App, key: str, path: str):
    api = create_app(app)
    api.state.tokens = Visits(Limit(3))
    guess = {"grant_type": "refresh_token", "refresh_token": "oat_guess", "token": "oat_guess"}
    with caller(api, "203.0.113.5", key) as one, caller(api, "203.0.113.6", key) as other:
        for _ in range(3):
            assert one.post(path, data=guess).status_code < 429
        refused(one.post(path, data=guess), 429, "Too many requests")
        assert other.post(path, data=guess).status_code < 429
