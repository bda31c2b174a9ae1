"""The authorization code flow against servers that others wrote, and one of ours for the rest.

Third parties: `emulate` (npm) as Google, Microsoft and GitHub, and `oidc-provider-mock` (PyPI, on
top of Authlib). `Peer.checks` is the table of what each looks at; our own looks at everything.
"""

import re
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import httpx
import oidc_provider_mock
import pytest

from recollect.connectors import oauth
from recollect.connectors.oauth import AuthorizationLink, OAuth, OAuthClient, Tokens
from recollect.errors import Permanent, Reauthorize, RecollectError, Transient
from tests.fakes.authorization import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.fakes.emulate import behind_proxy
from tests.fakes.proxy import Proxy

CALLBACK = "http://127.0.0.1:9911/v3/connections/auth/callback/somewhere"
ANN = "ann@example.com"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:authlib")


@dataclass(frozen=True)
class Peer:
    proxy: Proxy
    """all goes through it"""
    oauth: OAuth
    client: OAuthClient
    consent: Callable[[str], str]
    """the user agrees on the page of a link; where the browser is sent"""
    who: str
    """path that answers 200 to a living access token"""
    checks: frozenset[str]
    id_token: bool = False

    def begin(self) -> AuthorizationLink:
        return oauth.begin(self.oauth, self.client, redirect_uri=CALLBACK, scopes=self.oauth.scopes)

    def come_back(self, link: AuthorizationLink) -> dict[str, str]:
        """The query with which the browser arrives at our callback."""
        location = self.consent(link.url)
        assert location.startswith(f"{CALLBACK}?")
        return dict(parse_qsl(urlsplit(location).query, strict_parsing=True))

    def authorize(self) -> Tokens:
        link = self.begin()
        return self.exchange(self.come_back(link)["code"], link)

    def exchange(self, code: str, link: AuthorizationLink) -> Tokens:
        return oauth.exchange(
            self.oauth, self.client, code, redirect_uri=CALLBACK, verifier=link.verifier
        )

    def refresh(self, tokens: Tokens) -> Tokens:
        return oauth.refresh(self.oauth, self.client, tokens)

    def ask(self, tokens: Tokens) -> int:
        headers = {"authorization": f"Bearer {tokens.access}"}
        with http() as client:
            return client.get(self.proxy.url + self.who, headers=headers).status_code


def http() -> httpx.Client:
    """Without certificates, which take long to load."""
    return httpx.Client(trust_env=False, verify=False)


def press(proxy: Proxy, path: str, **user: str) -> Callable[[str], str]:
    """The button of a consent page: a form with what the link asked for, and who it is."""

    def consent(link: str) -> str:
        asked = dict(parse_qsl(urlsplit(link).query))
        with http() as browser:
            page = browser.get(link)
            assert page.status_code == 200, page.text
            sent = browser.post(proxy.url + path, data={**asked, **user})
        assert sent.status_code == 302, sent.text
        return sent.headers["location"]

    return consent


def google(stack: ExitStack) -> Peer:
    seed = {
        "google": {
            "users": [{"email": "decoy@example.com"}, {"email": ANN, "name": "Ann"}],
            "oauth_clients": [
                {"client_id": "id", "client_secret": "s3cret-google", "redirect_uris": [CALLBACK]}
            ],
        }
    }
    proxy = stack.enter_context(behind_proxy("google", seed))
    provider = OAuth(
        f"{proxy.url}/o/oauth2/v2/auth",
        f"{proxy.url}/oauth2/token",
        f"{proxy.url}/oauth2/revoke",
        scopes=("openid", "email", "https://www.googleapis.com/auth/drive.readonly"),
        parameters={"access_type": "offline", "prompt": "consent"},
    )
    return Peer(
        proxy,
        provider,
        OAuthClient("id", "s3cret-google"),
        press(proxy, "/o/oauth2/v2/auth/callback", email=ANN),
        "/oauth2/v2/userinfo",
        frozenset({"client", "verifier", "refresh", "revoke"}),
        id_token=True,
    )


def microsoft(stack: ExitStack) -> Peer:
    seed = {
        "microsoft": {
            "users": [{"email": "decoy@example.com"}, {"email": ANN, "name": "Ann"}],
            "oauth_clients": [
                {"client_id": "id", "client_secret": "s3cret-ms", "redirect_uris": [CALLBACK]}
            ],
        }
    }
    proxy = stack.enter_context(behind_proxy("microsoft", seed))
    provider = OAuth(
        f"{proxy.url}/oauth2/v2.0/authorize",
        f"{proxy.url}/oauth2/v2.0/token",
        scopes=("openid", "email", "offline_access", "Files.Read", "User.Read"),
        client="basic",
        rotates=True,
    )
    return Peer(
        proxy,
        provider,
        OAuthClient("id", "s3cret-ms"),
        press(proxy, "/oauth2/v2.0/authorize/callback", email=ANN),
        "/v1.0/me",
        frozenset({"client", "verifier", "callback", "refresh", "rotation"}),
        id_token=True,
    )


def github(stack: ExitStack) -> Peer:
    seed = {
        "github": {
            "users": [{"login": "decoy"}, {"login": "ann", "email": ANN}],
            "oauth_apps": [
                {
                    "client_id": "id",
                    "client_secret": "s3cret-github",
                    "name": "Recollect",
                    "redirect_uris": [CALLBACK],
                }
            ],
        }
    }
    proxy = stack.enter_context(behind_proxy("github", seed))
    provider = OAuth(
        f"{proxy.url}/login/oauth/authorize",
        f"{proxy.url}/login/oauth/access_token",
        scopes=("repo", "user:email"),
        separator=",",
    )
    return Peer(
        proxy,
        provider,
        OAuthClient("id", "s3cret-github"),
        press(proxy, "/login/oauth/callback", login="ann"),
        "/user",
        frozenset({"client"}),
    )


def authlib(stack: ExitStack) -> Peer:
    server = stack.enter_context(
        oidc_provider_mock.run_server_in_thread(require_client_registration=True)
    )
    proxy = stack.enter_context(Proxy(f"http://localhost:{server.server_port}"))
    with http() as client:
        made = client.post(f"{proxy.url}/oauth2/clients", json={"redirect_uris": [CALLBACK]}).json()
    assert made["token_endpoint_auth_method"] == "client_secret_basic"
    provider = OAuth(
        f"{proxy.url}/oauth2/authorize",
        f"{proxy.url}/oauth2/token",
        scopes=("openid", "email"),
        client="basic",
    )

    def consent(link: str) -> str:
        with http() as browser:
            return browser.post(link, data={"sub": ANN}).headers["location"]

    return Peer(
        proxy,
        provider,
        OAuthClient(made["client_id"], made["client_secret"]),
        consent,
        "/userinfo",
        frozenset({"client", "callback", "refresh"}),
        id_token=True,
    )


EVERYTHING = frozenset({"client", "verifier", "callback", "refresh", "rotation", "revoke"})


def ours(stack: ExitStack, server: AuthorizationServer, provider: OAuth) -> Peer:
    stack.enter_context(server)
    proxy = stack.enter_context(Proxy(server.url))
    provider = replace(
        provider,
        authorize_url=f"{proxy.url}/authorize",
        token_url=f"{proxy.url}/token",
        revoke_url=f"{proxy.url}/revoke",
        scopes=("read", "list"),
    )
    client = OAuthClient(CLIENT_ID, CLIENT_SECRET)
    return Peer(proxy, provider, client, server.consent, "/me", EVERYTHING)


def strict(stack: ExitStack) -> Peer:
    return ours(stack, AuthorizationServer(), OAuth("", "", rotates=True))


def like_notion(stack: ExitStack) -> Peer:
    server = AuthorizationServer(client="basic", takes="json")
    provider = OAuth("", "", client="basic", sends="json", rotates=True, pkce=False)
    return replace(ours(stack, server, provider), checks=EVERYTHING - {"verifier"})


def like_github(stack: ExitStack) -> Peer:
    server = AuthorizationServer(answers="form", errors_with_200=True, separator=",")
    return ours(stack, server, OAuth("", "", rotates=True, separator=","))


PEERS = {
    "emulated-google": google,
    "emulated-microsoft": microsoft,
    "emulated-github": github,
    "oidc-provider-mock": authlib,
    "own": strict,
    "own-like-notion": like_notion,
    "own-like-github": like_github,
}


@pytest.fixture(scope="module", params=list(PEERS))
def running(request: pytest.FixtureRequest) -> Generator[Peer]:
    with ExitStack() as stack:
        yield PEERS[request.param](stack)


@pytest.fixture
def peer(running: Peer) -> Generator[Peer]:
    running.proxy.strict = True
    running.proxy.forget()
    yield running
    running.proxy.behave()


def only_if(peer: Peer, check: str) -> None:
    if check not in peer.checks:
        pytest.skip(f"this server does not look at it: {check}")


# --- the flow ----------------------------------------------------------------------------------


def test_a_user_authorizes(peer: Peer):
    began = datetime.now(UTC)
    link = peer.begin()
    answer = peer.come_back(link)
    tokens = peer.exchange(answer["code"], link)

    assert answer["state"] == link.state
    assert peer.ask(tokens) == 200
    assert peer.ask(Tokens("another")) == 401
    assert oauth.missing(peer.oauth.scopes, tokens) == []
    assert set(peer.oauth.scopes) == set(tokens.scopes)
    assert (tokens.refresh is not None) == ("refresh" in peer.checks)
    if tokens.expires_at is not None:
        assert timedelta() < tokens.expires_at - began <= timedelta(hours=1, minutes=1)


def test_a_code_serves_once(peer: Peer):
    link = peer.begin()
    code = peer.come_back(link)["code"]
    peer.exchange(code, link)

    for used in (code, "never issued", ""):
        with pytest.raises(Reauthorize):
            peer.exchange(used, link)


def test_a_wrong_secret_is_the_operator_s_fault(peer: Peer):
    only_if(peer, "client")
    link = peer.begin()
    code = peer.come_back(link)["code"]

    for wrong in (replace(peer.client, secret="wr0ng"), replace(peer.client, id="nobody")):
        with pytest.raises(Permanent, match="client id and client secret") as caught:
            replace(peer, client=wrong).exchange(code, link)
        assert caught.value.code == "invalid_client"
    assert peer.ask(peer.exchange(code, link)) == 200


def test_a_code_that_was_stolen_is_worth_nothing(peer: Peer):
    only_if(peer, "verifier")
    mine, theirs = peer.begin(), peer.begin()

    for verifier in (theirs.verifier, None):
        code = peer.come_back(mine)["code"]
        with pytest.raises(Reauthorize):
            peer.exchange(code, replace(mine, verifier=verifier))


def test_another_callback_gets_no_tokens(peer: Peer):
    only_if(peer, "callback")
    link = peer.begin()
    code = peer.come_back(link)["code"]

    with pytest.raises(Reauthorize):
        oauth.exchange(
            peer.oauth,
            peer.client,
            code,
            redirect_uri=f"{CALLBACK}-else",
            verifier=link.verifier,
        )


def test_an_expired_token_is_refreshed(peer: Peer):
    only_if(peer, "refresh")
    first = peer.authorize()
    peer.proxy.expire()
    assert peer.ask(first) == 401
    second = peer.refresh(first)

    assert peer.ask(second) == 200
    assert second.access != first.access
    assert (second.refresh != first.refresh) == ("rotation" in peer.checks)
    assert set(second.scopes) == set(first.scopes)
    assert second.extra.keys() >= first.extra.keys()
    assert peer.ask(peer.refresh(second)) == 200


def test_a_refresh_token_that_rotated_is_dead(peer: Peer):
    only_if(peer, "rotation")
    first = peer.authorize()
    peer.refresh(first)

    with pytest.raises(Reauthorize):
        peer.refresh(first)


def test_a_lost_answer_to_a_refresh_costs_the_authorization_only_where_tokens_rotate(peer: Peer):
    only_if(peer, "refresh")
    tokens = peer.authorize()
    peer.proxy.on("^POST .*token", lose=True)

    with pytest.raises(Transient) as caught:
        peer.refresh(tokens)
    assert caught.value.code == "provider_unavailable"
    if "rotation" in peer.checks:
        with pytest.raises(Reauthorize):
            peer.refresh(tokens)
    else:
        assert peer.ask(peer.refresh(tokens)) == 200


def test_a_user_who_took_it_back_has_to_authorize_again(peer: Peer):
    only_if(peer, "refresh")
    tokens = peer.authorize()
    peer.proxy.revoke()

    with pytest.raises(Reauthorize, match="authorize the connection again"):
        peer.refresh(tokens)
    assert peer.ask(peer.authorize()) == 200


def test_without_a_refresh_token_nothing_is_asked(peer: Peer):
    with pytest.raises(Reauthorize):
        peer.refresh(Tokens("access"))

    assert peer.proxy.log == []


def test_what_is_revoked_is_dead(peer: Peer):
    tokens = peer.authorize()
    if peer.oauth.revoke_url is None:
        assert not oauth.revoke(peer.oauth, peer.client, tokens)
        return

    assert oauth.revoke(peer.oauth, peer.client, tokens)
    assert oauth.revoke(peer.oauth, peer.client, tokens), "twice is no error"
    with pytest.raises(Reauthorize):
        peer.refresh(tokens)


def test_the_id_token_says_who_it_was(peer: Peer):
    tokens = peer.authorize()
    assert ("id_token" in tokens.extra) == peer.id_token

    if peer.id_token:
        claims = oauth.read_id_token(tokens.extra["id_token"], peer.client)
        assert claims["email"] == ANN
        assert claims["sub"]
        with pytest.raises(Permanent):
            oauth.read_id_token(tokens.extra["id_token"], OAuthClient("another", ""))


def test_secrets_travel_in_no_address(peer: Peer):
    tokens = peer.authorize()
    if tokens.refresh is not None:
        tokens = peer.refresh(tokens)
    oauth.revoke(peer.oauth, peer.client, tokens)

    for secret in (peer.client.secret, tokens.access, str(tokens.refresh)):
        for seen in peer.proxy.log:
            assert quote(secret, safe="") not in seen.path
    for seen in peer.proxy.seen("^POST .*token"):
        assert seen.headers["accept"] == "application/json"
        assert ("authorization" in seen.headers) == (peer.oauth.client == "basic")


# --- bad days ----------------------------------------------------------------------------------

BAD_DAYS: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "502 in HTML": {"status": 502, "body": b"<html>Bad Gateway", "headers": {"Content-Type": "x"}},
    "503": {"status": 503},
    "503 with an error": {"status": 503, "json_body": {"error": "invalid_grant"}},
    "408": {"status": 408},
    "temporarily_unavailable": {"status": 400, "json_body": {"error": "temporarily_unavailable"}},
    "server_error": {"status": 400, "json_body": {"error": "server_error"}},
    "server_error with 200": {"status": 200, "json_body": {"error": "server_error"}},
    "cut": {"cut": 20},
    "empty": {"cut": 0},
    "reset": {"reset": True},
    "HTML": {"status": 200, "body": b"<html>please log in"},
    "nothing": {"status": 200, "body": b""},
    "{}": {"status": 200, "json_body": {}},
    "[]": {"status": 200, "body": b"[]"},
    "null": {"status": 200, "body": b"null"},
    "no text": {"status": 200, "body": b"\xff\xfe\xfd"},
    "deep": {"status": 200, "body": b"[" * 200_000},
    "digits": {"status": 200, "body": b'{"access_token":' + b"1" * 10_000 + b"}"},
    "token is no text": {"status": 200, "json_body": {"access_token": 12345678}},
    "token is empty": {"status": 200, "json_body": {"access_token": ""}},
    "token with a line break": {"status": 200, "json_body": {"access_token": "a\r\nX: y"}},
    "token in Greek": {"status": 200, "json_body": {"access_token": "αβγδ"}},
    "not modified": {"status": 304, "body": b""},
    "large": {"status": 200, "body": b'{"access_token": "a"}' + b" " * 1_000_000},
    "garbled gzip": {"status": 200, "headers": {"Content-Encoding": "gzip"}},
    "unknown encoding": {"status": 200, "headers": {"Content-Encoding": "br"}},
}


@pytest.fixture
def server() -> Generator[AuthorizationServer]:
    with AuthorizationServer(rotates=False) as server:
        yield server


@pytest.fixture
def own(server: AuthorizationServer) -> Generator[Peer]:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.url))
        provider = OAuth(
            f"{proxy.url}/authorize", f"{proxy.url}/token", f"{proxy.url}/revoke", ("read", "list")
        )
        client = OAuthClient(CLIENT_ID, CLIENT_SECRET)
        yield Peer(proxy, provider, client, server.consent, "/me", EVERYTHING)


@pytest.mark.parametrize("day", list(BAD_DAYS))
def test_a_bad_day_is_passing(own: Peer, day: str):
    tokens = own.authorize()
    own.proxy.forget()
    own.proxy.on("^POST /token", **BAD_DAYS[day])

    with pytest.raises(Transient) as caught:
        own.refresh(tokens)
    assert caught.value.code == "provider_unavailable"
    assert own.proxy.asked("") == 1, "tried once: when to try again is not decided here"
    assert own.ask(own.refresh(tokens)) == 200


@pytest.mark.parametrize(
    "fault", [{"hold": Event()}, {"dribble": (1000, 0.05)}], ids=["silence", "dribble"]
)
def test_an_answer_that_does_not_end_is_given_up(
    own: Peer, fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    tokens = own.authorize()
    monkeypatch.setattr(oauth, "PATIENCE", 0.3)
    monkeypatch.setattr(oauth, "LONGEST_ANSWER_TIME", 0.3)
    own.proxy.on("^POST /token", **fault)

    with pytest.raises(Transient) as caught:
        own.refresh(tokens)
    assert caught.value.code == "provider_unavailable"


def test_nobody_there_is_passing(own: Peer):
    tokens = own.authorize()
    gone = replace(own.oauth, token_url="http://127.0.0.1:1/token")

    with pytest.raises(Transient) as caught:
        oauth.refresh(gone, own.client, tokens)
    assert caught.value.code == "provider_unavailable"


def test_how_long_to_wait_is_passed_on(own: Peer):
    tokens = own.authorize()
    wait = {"headers": {"Retry-After": "17"}}
    own.proxy.on("^POST /token", status=429, **wait)
    own.proxy.on("^POST /token", status=503, **wait)

    for code in ("rate_limited", "provider_unavailable"):
        with pytest.raises(Transient) as caught:
            own.refresh(tokens)
        assert (caught.value.code, caught.value.after) == (code, timedelta(seconds=17))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(own: Peer, status: int):
    tokens = own.authorize()
    own.proxy.on("^POST /token", status=status, headers={"Location": f"{own.proxy.url}/stolen"})

    with pytest.raises(Transient):
        own.refresh(tokens)
    assert own.proxy.asked("stolen") == 0


@pytest.mark.parametrize(
    "error",
    ["invalid_grant", "bad_refresh_token", "interaction_required", "consent_required"],
)
@pytest.mark.parametrize("status", [200, 400, 401])
def test_what_only_the_user_can_mend(own: Peer, error: str, status: int):
    tokens = own.authorize()
    said = {"error": error, "error_description": "Token has been\r\nexpired."}
    own.proxy.on("^POST /token", status=status, json_body=said)

    with pytest.raises(Reauthorize, match=rf"\({error}: Token has been expired\.\)"):
        own.refresh(tokens)


def test_what_notion_says_of_an_error_is_told(own: Peer):
    tokens = own.authorize()
    said = {"object": "error", "code": "invalid_grant", "message": "Invalid refresh token."}
    own.proxy.on("^POST /token", status=400, json_body=said)

    with pytest.raises(Reauthorize, match=r"\(invalid_grant: Invalid refresh token\.\)"):
        own.refresh(tokens)


@pytest.mark.parametrize(
    "error", ["invalid_client", "unauthorized_client", "incorrect_client_credentials"]
)
def test_what_only_the_operator_can_mend(own: Peer, error: str):
    tokens = own.authorize()
    own.proxy.on("^POST /token", status=401, json_body={"error": error})

    with pytest.raises(Permanent, match=rf"{error}.*client secret") as caught:
        own.refresh(tokens)
    assert caught.value.code == "invalid_client"


def test_a_callback_that_is_not_registered_is_named(own: Peer):
    link = own.begin()
    own.proxy.on("^POST /token", status=200, json_body={"error": "redirect_uri_mismatch"})

    with pytest.raises(Permanent, match=re.escape(CALLBACK)) as caught:
        own.exchange("code", link)
    assert caught.value.code == "invalid_client"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"status": 400, "json_body": {"error": "invalid_scope"}}, "provider_error"),
        ({"status": 400, "json_body": {"error": {"code": 400}}}, "http_400"),
        ({"status": 400, "json_body": {"error": "no <b>code</b>"}}, "http_400"),
        ({"status": 404, "body": b"<html>"}, "http_404"),
        ({"status": 403, "body": b"<html>"}, "http_403"),
        (
            {"status": 200, "json_body": {"access_token": "a", "token_type": "mac"}},
            "unsupported_token_type",
        ),
    ],
    ids=["scope", "object", "markup", "404", "403", "mac"],
)
def test_what_is_none_of_these_gives_nothing_up(own: Peer, answer: dict[str, Any], code: str):
    tokens = own.authorize()
    own.proxy.on("^POST /token", **answer)

    with pytest.raises(Permanent) as caught:
        own.refresh(tokens)
    assert caught.value.code == code


@pytest.mark.parametrize("error", ["temporarily_unavailable", "internal_failure"])
def test_what_passes_by_itself(own: Peer, error: str):
    """The second is Google's: github.com/googleapis/google-auth-library-python/pull/368"""
    tokens = own.authorize()
    own.proxy.on("^POST /token", status=400, json_body={"error": error})

    with pytest.raises(Transient, match=error):
        own.refresh(tokens)


@pytest.mark.parametrize("error", ["access_denied", "invalid_client", "strange", "server_error"])
def test_no_message_repeats_a_secret(own: Peer, error: str):
    link = own.begin()
    code = own.come_back(link)["code"]
    tokens = own.exchange(code, link)

    def messages(attempt: Callable[[], object], *secrets: str | None) -> None:
        known = [str(secret) for secret in (*secrets, CLIENT_SECRET, "at-canary")]
        echo = f"{' '.join(known)} {urlencode({'all': ' '.join(known)})} {quote(CLIENT_SECRET)}"
        said = {"error": error, "error_description": echo, "access_token": "at-canary"}
        own.proxy.behave()
        own.proxy.on("^POST /", times=None, status=400, json_body=said)
        with pytest.raises(RecollectError) as caught:
            attempt()
        assert not any(secret in str(caught.value) for secret in known)
        assert quote(CLIENT_SECRET) not in str(caught.value)
        assert len(str(caught.value)) < 600

    messages(lambda: own.exchange(code, link), code, link.verifier)
    messages(lambda: own.refresh(tokens), tokens.refresh)
    if error != "access_denied":  # which is as good as revoked
        messages(lambda: oauth.revoke(own.oauth, own.client, tokens), tokens.access, tokens.refresh)


# --- what the published servers leave out ------------------------------------------------------


def test_a_denial_names_the_attempt(own: Peer, server: AuthorizationServer):
    link = own.begin()
    answer = dict(parse_qsl(urlsplit(server.consent(link.url, deny=True)).query))

    assert answer["error"] == "access_denied"
    assert oauth.hashed(answer["state"]) == oauth.hashed(link.state)


def test_a_scope_that_was_unticked_is_missing(own: Peer, server: AuthorizationServer):
    link = own.begin()
    location = server.consent(link.url, scopes=["list"])
    tokens = own.exchange(dict(parse_qsl(urlsplit(location).query))["code"], link)

    assert oauth.missing(own.oauth.scopes, tokens) == ["read"]


def test_tokens_die_of_age_and_of_the_user(own: Peer, server: AuthorizationServer):
    tokens = own.authorize()
    server.expire()
    assert own.ask(tokens) == 401
    tokens = own.refresh(tokens)
    assert own.ask(tokens) == 200
    server.withdraw()

    assert own.ask(tokens) == 401
    with pytest.raises(Reauthorize):
        own.refresh(tokens)


def test_texts_that_tell_the_account_are_kept(own: Peer):
    tokens = own.authorize()

    assert tokens.extra == {
        "workspace_id": "w1",
        "owner.type": "user",
        "owner.user.id": "u1",
        "owner.user.person.email": ANN,
    }
    own.proxy.on("^POST /token", status=200, json_body={"access_token": "a", "bot": "b1"})
    assert own.refresh(tokens) == replace(
        tokens, access="a", expires_at=None, extra={**tokens.extra, "bot": "b1"}
    )


def test_extra_texts_are_bounded(own: Peer):
    tokens = own.authorize()
    deep: dict[str, Any] = {"t": "x"}
    for _ in range(50):
        deep = {"d": deep}
    many = {f"n{i}": "x" for i in range(500)}
    strange = {"long": "x" * 20_000, "half": "\ud800", "n": 1, "l": ["x"], "": "y"}
    body = {"access_token": "a", **strange, "deep": deep, **many}
    own.proxy.on("^POST /token", status=200, json_body=body)

    extra = own.refresh(replace(tokens, extra={})).extra
    assert len(extra) == 100
    assert {"long", "half", "n", "l"}.isdisjoint(extra)
    assert all(len(name) < 50 for name in extra)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (3600, 3600),
        ("3600", 3600),
        (3599.5, 3599.5),
        (0, None),
        (-1, None),
        ("", None),
        ("soon", None),
        ("1e3", None),
        (True, None),
        (None, None),
        (10**30, None),
        ("9" * 5000, None),
        ([3600], None),
    ],
    ids=range(13),
)
def test_when_a_token_ends(own: Peer, told: object, seconds: float | None):
    tokens = own.authorize()
    own.proxy.on("^POST /token", status=200, json_body={"access_token": "a", "expires_in": told})
    before = datetime.now(UTC)
    end = own.refresh(tokens).expires_at

    if seconds is None:
        assert end is None
    else:
        assert end is not None
        life = timedelta(seconds=seconds)
        assert before + life <= end <= datetime.now(UTC) + life


def test_headers_of_the_provider_are_sent_but_ours_win(own: Peer):
    tokens = own.authorize()
    given = {"Notion-Version": "2025-09-03", "Accept": "text/html"}
    oauth.refresh(own.oauth, own.client, tokens, headers=given)

    sent = own.proxy.log[-1].headers
    assert sent["notion-version"] == "2025-09-03"
    assert sent["accept"] == "application/json"


def test_an_address_of_the_settings_keeps_its_path_and_query(own: Peer):
    tokens = own.authorize()
    own.proxy.on("^POST /tenant/token", status=200, json_body={"access_token": "a"})
    provider = replace(own.oauth, token_url=f"{own.proxy.url}/tenant/token?api-version=1")

    assert oauth.refresh(provider, own.client, tokens).access == "a"
    assert own.proxy.log[-1].line == "POST /tenant/token?api-version=1"


# --- revocation --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["invalid_token", "invalid_grant"])
def test_what_was_dead_already_is_revoked(own: Peer, error: str):
    own.proxy.on("^POST /revoke", times=2, status=400, json_body={"error": error})

    assert oauth.revoke(own.oauth, own.client, Tokens("a", "b"))
    assert own.proxy.asked("/revoke") == 2


def test_one_kind_of_token_is_enough(own: Peer):
    """Some take access tokens only."""
    own.proxy.on(
        "^POST /revoke", after=1, status=400, json_body={"error": "unsupported_token_type"}
    )

    assert oauth.revoke(own.oauth, own.client, Tokens("a", "b"))


def test_a_revocation_that_was_refused_is_told(own: Peer):
    own.proxy.on("^POST /revoke", times=None, status=401, json_body={"error": "invalid_client"})

    with pytest.raises(Permanent) as caught:
        oauth.revoke(own.oauth, own.client, Tokens("a", "b"))
    assert caught.value.code == "invalid_client"


@pytest.mark.parametrize("fault", [{"status": 503}, {"lose": True}], ids=["503", "lost"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_revocation_may_be_tried_again(own: Peer, fault: dict[str, Any], after: int):
    tokens = own.authorize()
    own.proxy.on("^POST /revoke", after=after, **fault)

    with pytest.raises(Transient):
        oauth.revoke(own.oauth, own.client, tokens)
    assert oauth.revoke(own.oauth, own.client, tokens)
    with pytest.raises(Reauthorize):
        own.refresh(tokens)
