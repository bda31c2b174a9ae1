"""What of OAuth needs no provider: links, scopes, id_tokens, where a browser may be sent."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recollect.connectors.oauth import (
    AuthorizationLink,
    OAuth,
    OAuthClient,
    Tokens,
    begin,
    challenge,
    check_redirect,
    exchange,
    hashed,
    missing,
    read_id_token,
    with_outcome,
)
from recollect.errors import BadRequestError, Permanent, SetupError

CLIENT = OAuthClient("client id", "client-secret")
CALLBACK = "https://memory.example/v3/connections/auth/callback/notion"
PROVIDER = OAuth("https://login.example/authorize", "https://login.example/token")
WORDS = st.text(st.characters(codec="utf-8"))


def asked(link: AuthorizationLink) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(link.url).query, keep_blank_values=True))


def linked(
    oauth: OAuth = PROVIDER, scopes: Sequence[str] = ("a", "b/c"), **more: str
) -> AuthorizationLink:
    return begin(oauth, CLIENT, redirect_uri=CALLBACK, scopes=scopes, parameters=more)


# --- links -------------------------------------------------------------------------------------


def test_a_link_asks_for_a_code_with_a_state_and_a_challenge():
    link = linked(replace(PROVIDER, parameters={"access_type": "offline"}), prompt="consent")

    assert link.url.startswith("https://login.example/authorize?")
    assert link.verifier is not None
    assert asked(link) == {
        "response_type": "code",
        "client_id": "client id",
        "redirect_uri": CALLBACK,
        "scope": "a b/c",
        "state": link.state,
        "code_challenge": challenge(link.verifier),
        "code_challenge_method": "S256",
        "access_type": "offline",
        "prompt": "consent",
    }


def test_a_link_without_what_the_provider_does_not_have():
    link = linked(replace(PROVIDER, pkce=False), scopes=())

    assert link.verifier is None
    assert set(asked(link)) == {"response_type", "client_id", "redirect_uri", "state"}


def test_a_link_keeps_the_query_that_the_settings_gave():
    link = linked(replace(PROVIDER, authorize_url="https://login.example/a?tenant=x"))

    assert asked(link)["tenant"] == "x"
    assert link.url.count("?") == 1


@given(more=st.dictionaries(st.sampled_from(["state", "redirect_uri", "client_id"]), WORDS))
def test_parameters_replace_nothing_that_the_flow_relies_on(more: dict[str, str]):
    link = linked(replace(PROVIDER, parameters=more), **more)

    told = parse_qs(urlsplit(link.url).query)
    assert told["state"] == [link.state]
    assert told["redirect_uri"] == [CALLBACK]
    assert told["client_id"] == [CLIENT.id]


def test_each_attempt_has_its_own_state_and_verifier():
    links = [linked() for _ in range(200)]

    for words in ({link.state for link in links}, {link.verifier for link in links}):
        assert len(words) == 200
        # RFC 7636 4.1: 43 to 128 unreserved characters
        assert all(re.fullmatch(r"[A-Za-z0-9._~-]{43,128}", word or "") for word in words)
    assert not {link.state for link in links} & {link.verifier for link in links}


def test_the_challenge_is_that_of_the_standard():
    # RFC 7636, appendix B
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_a_state_is_stored_as_its_hash():
    link = linked()

    assert hashed(link.state) == hashlib.sha256(link.state.encode()).digest()
    assert hashed(link.state) != hashed(linked().state)
    assert hashed("\ud800") != hashed("?")  # whatever a stranger's callback brings


def test_nothing_that_is_secret_is_shown_by_accident():
    link = linked()
    tokens = Tokens("access-canary", "refresh-canary", extra={"id_token": "id-canary"})

    for word in (CLIENT.secret, link.state, str(link.verifier), "canary"):
        assert word not in f"{CLIENT!r} {link!r} {tokens!r}"


def test_an_address_that_is_none_is_the_operator_s_fault():
    broken = replace(PROVIDER, token_url="login.example/token")

    with pytest.raises(SetupError):
        exchange(broken, CLIENT, "code", redirect_uri=CALLBACK, verifier=None)


# --- scopes ------------------------------------------------------------------------------------

DRIVE = "https://www.googleapis.com/auth/drive.readonly"
GMAIL = "https://www.googleapis.com/auth/gmail.readonly"
EMAIL = "https://www.googleapis.com/auth/userinfo.email"


@pytest.mark.parametrize(
    ("granted", "needed", "lacking"),
    [
        ([DRIVE, EMAIL, "openid"], ["openid", "email", DRIVE], []),
        ([EMAIL, "openid"], ["openid", "email", DRIVE], [DRIVE]),
        ([EMAIL, DRIVE], [DRIVE, GMAIL], [GMAIL]),
        (["https://evil.example/auth/drive.readonly"], [DRIVE], [DRIVE]),
        (["Files.Read", "User.Read"], ["Files.Read", "offline_access", "User.Read"], []),
        (["https://graph.microsoft.com/files.read"], ["Files.Read"], []),
        (["User.Read"], ["Files.Read"], ["Files.Read"]),
        (["repo", "user"], ["repo", "user:email"], []),
        (["repo", "admin:repo_hook"], ["write:repo_hook"], []),
        (["repo", "read:repo_hook"], ["write:repo_hook"], ["write:repo_hook"]),
        (["public_repo", "user:email"], ["repo"], ["repo"]),
        (["write:repo_hook"], ["admin:repo_hook"], ["admin:repo_hook"]),
        (["user:email"], ["user"], ["user"]),
        (["user"], ["read:user"], []),
        ([], ["repo"], []),
    ],
    ids=lambda value: " ".join(value) or "none",
)
def test_what_was_not_granted_is_named(granted: list[str], needed: list[str], lacking: list[str]):
    assert missing(needed, Tokens("t", scopes=granted)) == lacking


@given(
    granted=st.sets(st.sampled_from("abcdef"), min_size=1),
    needed=st.sets(st.sampled_from("abcdef")),
)
def test_plain_scopes_are_a_set(granted: set[str], needed: set[str]):
    assert set(missing(sorted(needed), Tokens("t", scopes=sorted(granted)))) == needed - granted


# --- id_tokens ---------------------------------------------------------------------------------


def id_token(claims: Any) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{part}.c2lnbmF0dXJl"


@given(name=WORDS)
def test_the_claims_of_an_id_token(name: str):
    claims = {"aud": CLIENT.id, "sub": "1", "name": name}

    assert read_id_token(id_token(claims), CLIENT) == claims


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": CLIENT.id},
        {"aud": [CLIENT.id]},
        {"aud": [CLIENT.id, "api"], "azp": CLIENT.id},
    ],
    ids=["one", "list", "several"],
)
def test_an_id_token_that_is_ours(claims: dict[str, Any]):
    assert read_id_token(id_token(claims), CLIENT) == claims


@pytest.mark.parametrize(
    "token",
    [
        id_token({"aud": "somebody else"}),
        id_token({"aud": CLIENT.id + "x"}),
        id_token({"aud": f"x {CLIENT.id}"}),
        id_token({"aud": []}),
        id_token({"aud": {CLIENT.id: 1}}),
        id_token({"aud": None}),
        id_token({"sub": "1"}),
        id_token({"aud": [CLIENT.id, "api"]}),
        id_token({"aud": [CLIENT.id, "api"], "azp": "api"}),
        id_token([CLIENT.id]),
        id_token("text"),
        id_token({"aud": CLIENT.id}) + ".more",
        id_token({"aud": CLIENT.id}).rpartition(".")[0],
        "a.b.c",
        "a.!.c",
        "..",
        "",
        "é.é.é",
        "a." + base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".c",
        "a." + base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode() + ".c",
    ],
    ids=range(20),
)
def test_an_id_token_that_is_not_ours(token: str):
    with pytest.raises(Permanent) as caught:
        read_id_token(token, CLIENT)

    assert caught.value.code == "bad_id_token"


@given(st.text())
def test_any_text_is_an_id_token_or_refused(token: str):
    with pytest.raises(Permanent):
        read_id_token(token, CLIENT)


# --- where a browser may be sent ---------------------------------------------------------------

ANYWHERE = (
    "https://app.example",
    "https://app.example/done?next=%2Fa&x=1",
    "https://app.example:8443/a@b",
    "https://app.example/?to=https://other.example",
    "https://xn--bcher-kva.example/",
    "https://bücher.example/",
    "https://93.184.216.34/",
    "HTTPS://App.Example/",
    "http://localhost:3000/done",
    "http://127.0.0.1/",
    "http://127.8.9.1:1/",
    "http://127.1/",
    "http://[::1]:3000/",
)
NOWHERE = (
    "",
    "/done",
    "//evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "https:evil.example",
    "https:/evil.example",
    "https:///evil.example",
    "https:\\\\evil.example",
    "https://app.example\\@evil.example",
    "https://good.example@evil.example",
    "https://good.example:443@evil.example/",
    "https://@evil.example",
    "https://user:password@evil.example/",
    "https://app.example/#token",
    "https://app.example/a\\b",
    "https://app.example/a b",
    "https://app.example/\ta",
    "https://app.exa\nmple/",
    "https://app.example/\r\nSet-Cookie: a=b",
    "https://app.example/\x00",
    "https://app.example/\x7f",
    "https://app.example/\u202egpj.exe",
    "https://app.example/\u2028",
    "https://app.example/\u00a0",
    "https://app.example/\ud800",
    " https://app.example/",
    "https://app.example/ ",
    "javascript:alert(1)",
    "java\nscript:alert(1)",
    "JavaScript://app.example/%0aalert(1)",
    "data:text/html,x",
    "blob:https://app.example/1",
    "file:///etc/passwd",
    "ftp://app.example/",
    "ws://app.example/",
    "app.example",
    "http://app.example/",
    "http://localhost.evil.example/",
    "http://127.0.0.1.evil.example/",
    "http://evil.example/localhost",
    "http://localhost@evil.example/",
    "http://[::ffff:10.0.0.1]/",
    "http://10.0.0.1/",
    "http://169.254.169.254/",
    "http://0.0.0.0/",
    "https://",
    "https://?x",
    "https://[::1/",
    "https://app.example:99999/",
    "https://a..%00b/",
    "https://app.example/" + "a" * 5000,
)


@pytest.mark.parametrize("url", ANYWHERE, ids=range(len(ANYWHERE)))
def test_a_browser_may_go_there(url: str):
    check_redirect(url, [])
    assert with_outcome(url, status="connected").isascii()


@pytest.mark.parametrize("url", NOWHERE, ids=range(len(NOWHERE)))
def test_a_browser_may_not_go_there(url: str):
    with pytest.raises(BadRequestError, match="redirectUrl"):
        check_redirect(url, [])
    with pytest.raises(BadRequestError, match="redirectUrl"):
        check_redirect(url, ["https://app.example", "http://localhost:3000"])


ORIGINS = ("https://app.example", "HTTPS://Other.Example:443/", "http://intern.example:8080")


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example",
        "https://app.example:443/a?b",
        "https://APP.example/a",
        "https://other.example/",
        "http://intern.example:8080/x",
    ],
    ids=range(5),
)
def test_named_origins_are_let_in(url: str):
    check_redirect(url, ORIGINS)


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example.evil.example/",
        "https://evil.example/app.example",
        "https://evilapp.example/",
        "https://sub.app.example/",
        "https://app.example./",
        "https://app.example:8443/",
        "http://app.example/",
        "http://intern.example/",
        "https://intern.example:8080/",
        "https://аpp.example/",  # a Cyrillic letter
        "http://localhost/",
        "https://app.example@evil.example/",
    ],
    ids=range(12),
)
def test_all_others_are_not(url: str):
    with pytest.raises(BadRequestError):
        check_redirect(url, ORIGINS)


@pytest.mark.parametrize("origin", ["", "*", "https://*", "app.example", "https://app.example/a"])
def test_what_is_no_origin_lets_nobody_in(origin: str):
    with pytest.raises(BadRequestError):
        check_redirect("https://app.example/a", [origin])


PIECES = (
    "https:", "http:", "//", "/", "\\", "@", "app.example", "evil.example", "localhost", "::1",
    "127.0.0.1", "[", "]", ":", "443", "?", "#", "%2f", "%40", "%00", "\t", " ", ".", "é", "a", "=",
)  # fmt: skip
MOSAIC = st.builds(
    lambda front, rest: front + "".join(rest),
    st.sampled_from(["", "https://", "https://app.example"]),
    st.lists(st.sampled_from(PIECES), max_size=8),
)


@given(url=MOSAIC)
def test_another_parser_sees_the_same_host(url: str):
    try:
        check_redirect(url, ["https://app.example"])
    except BadRequestError:
        return
    for text in (url, with_outcome(url, status="error")):
        seen = urlsplit(text)
        assert (seen.scheme, seen.hostname, seen.port) in (
            ("https", "app.example", None),
            ("https", "app.example", 443),
        )
        assert (seen.username, seen.fragment) == (None, "")


@given(url=MOSAIC | st.text())
@example("https://app.example/??a&&=&b=?")
def test_an_outcome_goes_where_the_address_does(url: str):
    try:
        check_redirect(url, [])
    except BadRequestError:
        return
    sent = with_outcome(url, status="error", code="a b")
    check_redirect(sent, [])
    assert parse_qsl(urlsplit(sent).query)[-2:] == [("status", "error"), ("code", "a b")]
    assert with_outcome(sent, status="error", code="a b") == sent


def test_an_outcome_is_added_to_what_is_there():
    url = "https://app.example/done?a=1&a=%2F&b"

    assert with_outcome(url, connectionId="c1", status="error", errorCode="access denied&x") == (
        "https://app.example/done?a=1&a=%2F&b&connectionId=c1&status=error"
        "&errorCode=access+denied%26x"
    )
    assert with_outcome(url, errorCode=None) == url


def test_an_outcome_cannot_be_forged_beforehand():
    url = "https://app.example/?status=connected&st%61tus=connected&x=status"

    assert with_outcome(url, status="error") == "https://app.example/?x=status&status=error"
    assert with_outcome("https://app.example?status=1", status=None) == "https://app.example/"


@given(facts=st.dictionaries(st.sampled_from(["status", "connectionId", "code"]), WORDS))
def test_an_outcome_arrives_as_it_was_told(facts: dict[str, str]):
    sent = with_outcome("https://app.example/?code=old&keep=%C3%A9", **facts)

    told = dict(parse_qsl(urlsplit(sent).query, keep_blank_values=True))
    assert told == {"code": "old", "keep": "é"} | facts
    assert sent.isascii()
    check_redirect(sent, ["https://app.example"])
