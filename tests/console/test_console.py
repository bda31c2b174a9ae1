"""The console over HTTP: who gets in, what is shown to whom, and that text stays text."""

import hashlib
import hmac
import json
import re
import secrets
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect import connectors, console, documents
from recollect.api import create_app
from recollect.app import App, check_secrets, secret_keys, signing_keys, weakness
from recollect.config import Config
from recollect.console import _code, _handbook, _reading, _show
from recollect.console._room import COOKIE
from recollect.documents import DocumentQuery, NewDocument
from recollect.errors import SetupError
from recollect.model import Document, DocumentId, Key, Org, OrgId, Plan, Scope, Tenant
from recollect.orgs import orgs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.db.test_collisions import colliding_once

FORM = {"sec-fetch-site": "same-origin"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
RUN = "top.ran=1"
PAYLOADS = (
    f"<script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"</pre></div></main><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f"<SCRIPT >{RUN}</SCRIPT >",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    "<script src=data:text/javascript,top.ran=1></script>",
    f"<script type=module>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'"><img src=x onerror="{RUN}">',
    f"'><img src=x onerror='{RUN}'>",
    f'" autofocus onfocus="{RUN}" x="',
    f"' autofocus onfocus='{RUN}' x='",
    f'" onmouseover={RUN} "',
    f"` onmouseover={RUN} `",
    f"x onload={RUN}",
    f"<svg onload={RUN}>",
    f"<svg><animate onbegin={RUN} attributeName=x></svg>",
    f"<svg><script>{RUN}</script></svg>",
    f"<math><mtext><img src=x onerror={RUN}></mtext></math>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}></video>",
    f"<input autofocus onfocus={RUN}>",
    f"<iframe srcdoc='<script>{RUN}</script>'></iframe>",
    f"<iframe src=javascript:{RUN}></iframe>",
    f"<object data=javascript:{RUN}></object>",
    f"<a href=javascript:{RUN}>x</a>",
    f"<form action=javascript:{RUN}><button>x</button></form>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    "<base href=//example.invalid/>",
    "<link rel=stylesheet href=//example.invalid/x.css>",
    "<style>*{background:url(//example.invalid/)}</style>",
    f"<template><script>{RUN}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'></noscript>",
    f"javascript:{RUN}",
    f"JaVaScRiPt:{RUN}//",
    f" java\tscript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f"vbscript:{RUN}",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;script&#62;{RUN}&#60;/script&#62;",
    f"\u003cscript\u003e{RUN}",
    f"{{{{ cycler.__init__.__globals__ }}}}{{% raw %}}<script>{RUN}</script>",
    f"${{{RUN}}}",
    f"\u202e<script>{RUN}</script>\u202c",
    f"\uff1cscript\uff1e{RUN}\uff1c/script\uff1e",
)
HARMLESS = "harmless"
APPLY = "/console/documents/apply"
any_speed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""whatever else the machine does"""


# --- ground ------------------------------------------------------------------------------------


@contextmanager
def console_site(app: App, web: FastAPI | None = None) -> Generator[str]:
    """The API with the console on real HTTP, as `recollect api` serves them."""
    web = web or create_app(app)
    console.add_to(web)
    server = uvicorn.Server(uvicorn.Config(web, port=0, log_config=None, access_log=False))
    web.state.events.is_over = lambda: server.should_exit
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(60)


@pytest.fixture
def browse(site: str) -> Generator[Callable[..., httpx.Client]]:
    """Makes visitors; with a key, signed in."""
    made: list[httpx.Client] = []

    def visit(key: str | None = None) -> httpx.Client:
        # verify: no certificate is looked at on http, and loading the authorities is slow.
        http = httpx.Client(base_url=site, headers=FORM, timeout=60, trust_env=False, verify=False)
        made.append(http)
        if key is not None:
            assert http.post("/console/login", data={"key": key}).status_code == 303
        return http

    yield visit
    for http in made:
        http.close()


@pytest.fixture
def me(browse: Callable[..., httpx.Client], key: str) -> httpx.Client:
    """Signed in with an admin key of this test's organisation."""
    return browse(key)


def new_key(app: App, org: Org, **given: Any) -> tuple[Key, str]:
    with app.db.begin() as tx:
        return orgs.create_key(tx, org.id, **given)


def add(app: App, tenant: Tenant, text: str, **given: Any) -> Document:
    new: dict[str, Any] = {"tags": ["notes"], **given}
    with app.db.begin() as tx:
        content = documents.text_content(text)
        id = DocumentId(orgs.random_id())
        return documents.add(tx, tenant, NewDocument(content=content, **new), id)


def get(app: App, tenant: Tenant, id: str) -> Document:
    with app.db.begin() as tx:
        return documents.get(tx, tenant, id, with_text=True)


def all_of(app: App, tenant: Tenant) -> list[Document]:
    with app.db.begin() as tx:
        return list(documents.find(tx, tenant, DocumentQuery(limit=1000, with_text=True)).items)


def fail(app: App, document: Document, code: str, message: str) -> None:
    with app.db.begin() as tx:
        tx.execute(
            "update documents set status = 'failed', stage = null, due_at = null,"
            " error_code = %s, error_message = %s, updated_at = now() where id = %s",
            (code, message, document.id),
        )


def spoil(app: App, document: Document, payload: str, number: int) -> None:
    """Put the payload into every field that is ever shown; every second document fails with it."""
    with app.db.begin() as tx:
        tx.execute(
            "update documents set title = %(x)s, url = %(x)s, custom_id = %(x)s || id,"
            " filepath = %(x)s, kind = %(x)s, source = %(x)s, container_tags = array[%(x)s],"
            " warnings = array[%(x)s], metadata = jsonb_build_object(%(x)s::text, %(x)s::text)"
            " where id = %(id)s",
            {"x": payload, "id": document.id},
        )
    if number % 2:
        fail(app, document, payload, payload)


def hostile(app: App, tenant: Tenant, payloads: Sequence[str]) -> list[Document]:
    """A document for each payload, with the payload as its text and in every field."""
    made = [add(app, tenant, f"needle {payload}") for payload in payloads]
    drain(app)
    for number, (document, payload) in enumerate(zip(made, payloads, strict=True)):
        spoil(app, document, payload, number)
    return made


def tree(answer: httpx.Response) -> LexborHTMLParser:
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return LexborHTMLParser(answer.text)


def body(answer: httpx.Response) -> str:
    """What a reader reads, on one line."""
    main = tree(answer).css_first("main")
    assert main is not None
    return " ".join(main.text(separator=" ").split())


def one(answer: httpx.Response, selector: str) -> LexborNode:
    found = tree(answer).css(selector)
    assert len(found) == 1, (selector, len(found))
    return found[0]


# --- signing in --------------------------------------------------------------------------------


def test_a_key_opens_a_session_that_does_not_hold_it(browse: Callable[..., httpx.Client], key: str):
    http = browse()
    answer = http.post("/console/login", data={"key": f" {key}\n", "next": "/console/documents"})

    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/documents"
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "Path=/console", "SameSite=strict", "Max-Age=43200"} <= set(
        cookie.split("; ")
    )
    assert "Secure" not in cookie
    assert key not in cookie
    assert key.split("_")[2] not in cookie
    assert http.get("/console").status_code == 200
    assert http.get("/console/session").status_code == 204


def test_over_https_the_cookie_is_secure(browse: Callable[..., httpx.Client], key: str):
    headers = {"x-forwarded-proto": "https"}
    answer = browse().post("/console/login", data={"key": key}, headers=headers)

    assert "Secure" in answer.headers["set-cookie"].split("; ")


def test_who_comes_in_waits_for_no_code_on_the_next_page(app: App):
    web = create_app(app)
    with console_site(app, web) as url:
        before = web.openapi_schema
        answer = httpx.get(f"{url}/console/login", timeout=60, trust_env=False)
        eventually(lambda: web.openapi_schema is not None)

    assert before is None
    assert answer.status_code == 200


def test_what_opens_nothing_gets_no_session(
    browse: Callable[..., httpx.Client], app: App, org: Org, key: str
):
    revoked, secret = new_key(app, org)
    with app.db.begin() as tx:
        orgs.revoke_key(tx, revoked.id)
    _, expired = new_key(app, org, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    for wrong in ("", "x", secret, expired, key[:-1], key + "x", key.swapcase()):
        answer = browse().post("/console/login", data={"key": wrong})

        assert answer.status_code == 401, wrong
        assert "set-cookie" not in answer.headers
        assert "is not valid" in body(answer)
        assert one(answer, "input[name=key]").attributes.get("value") is None


@pytest.mark.parametrize(
    "target",
    [
        "https://example.com/console",
        "//example.com/console",
        "/\\example.com",
        "/console\\..\\..\\x",
        "/console/\r\nset-cookie: a=b",
        "/consolation",
        "/v3/documents",
        "javascript:alert(1)",
        "",
    ],
)
def test_after_signing_in_one_stays_in_the_console(
    browse: Callable[..., httpx.Client], key: str, target: str
):
    http = browse()
    answer = http.post("/console/login", data={"key": key, "next": target})
    again = http.get("/console/login", params={"next": target})

    assert answer.headers["location"] == again.headers["location"] == "/console"


def test_who_is_not_signed_in_is_led_to_the_login_and_back(
    browse: Callable[..., httpx.Client], key: str
):
    http = browse()
    sent = http.get("/console/documents?tag=a%26b&page=2")
    login = http.get(sent.headers["location"])
    field = one(login, "input[name=next]").attributes["value"]
    answer = http.post("/console/login", data={"key": key, "next": field or ""})

    assert sent.status_code == 303
    assert answer.headers["location"] == "/console/documents?tag=a%26b&page=2"


def test_who_had_a_session_is_told_that_it_ended(me: httpx.Client, app: App, org: Org):
    with app.db.begin() as tx:
        tx.execute(
            "delete from sessions where key_id in (select id from keys where org_id = %s)",
            (org.id,),
        )
    ended = me.get("/console/keys", follow_redirects=True)
    me.cookies.clear()
    fresh = me.get("/console/login")

    assert "Your session has ended. Sign in again" in body(ended)
    assert "has ended" not in body(fresh)
    # Without a script, who comes back from a provider finds a way on.
    assert tree(ended).css("noscript")


def test_a_session_ends_with_its_key(browse: Callable[..., httpx.Client], app: App, org: Org):
    revoked, secret = new_key(app, org)
    expiring, other = new_key(app, org)
    first, second = browse(secret), browse(other)
    assert first.get("/console").status_code == second.get("/console").status_code == 200
    with app.db.begin() as tx:
        orgs.revoke_key(tx, revoked.id)
        tx.execute("update keys set expires_at = now() where id = %s", (expiring.id,))

    for http in (first, second):
        assert http.get("/console").headers["location"].startswith("/console/login")
        assert http.get("/console?part=live").status_code == 401
        assert http.get("/console/session").status_code == 200
        assert http.post("/console/add", data={"content": "x"}).status_code == 401


def test_what_is_refused_before_a_page_is_asked_is_told_by_a_page_too(me: httpx.Client, site: str):
    large = "x" * 1_100_000
    for answer, status, reason in (
        (me.get("/console/documents?q=%00"), 400, "NUL"),
        (me.get("/console/login?next=%00"), 400, "NUL"),
        (me.get("/console?part=%00"), 400, "NUL"),
        (me.post("/console/memories", data={"content": large}), 400, "larger than 1,048,576"),
        (me.post("/console/keys", headers={"content-encoding": "gzip"}), 400, "content-encoding"),
        (me.options("/console/keys"), 405, "takes"),
    ):
        assert answer.status_code == status, reason
        assert answer.headers["content-type"].startswith("text/html"), reason
        assert reason in one(answer, ".lead").text()
        assert one(answer, "main a").attributes["href"] == "/console"
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["cache-control"] == "no-store"
    # What is no page, or is not the console's, says it as before.
    for path in ("/docs?x=%00", "/consolation?x=%00"):
        assert "error" in httpx.get(site + path, trust_env=False).json()


def test_a_form_of_another_organisation_does_nothing(me: httpx.Client, app: App, tenant: Tenant):
    for path, sent in (
        ("/console/add", {"content": "x"}),
        ("/console/settings", {"workspacePrompt": "x"}),
        ("/console/documents/apply", {"action": "failed"}),
        ("/console/assistants/allow", {"decision": "allow"}),
    ):
        answer = me.post(f"{path}?org=other", data=sent)
        assert answer.status_code == 409
        assert "another organisation" in one(answer, ".lead").text()
    assert all_of(app, tenant) == []

    assert me.post(f"/console/add?org={tenant.id}", data={"content": "x"}).status_code == 303
    assert len(all_of(app, tenant)) == 1
    assert me.post("/console/logout?org=other").status_code == 303
    assert me.post("/console/add", data={"content": "y"}).status_code == 401


def test_what_is_no_session_opens_nothing(browse: Callable[..., httpx.Client], app: App, org: Org):
    mine, secret = new_key(app, org)
    with app.db.begin() as tx:
        token, old = orgs.sign_in(tx, mine.id), orgs.sign_in(tx, mine.id)
        kept = tx.execute("select id from sessions where key_id = %s", (mine.id,)).fetchall()
        tx.execute(
            "update sessions set expires_at = now() where id = %s",
            (hashlib.sha256(old.encode()).digest(),),
        )

    def opens(token: str) -> bool:
        cookie = {"cookie": f"{COOKIE}={token}"}
        return browse().get("/console", headers=cookie).status_code == 200

    assert opens(token)
    stored = [bytes(row["id"]).hex() for row in kept]
    changed = (token[:-1], token + "A", token.swapcase())
    others = (*changed, old, mine.id, secret, "0" * 43, "", *stored)
    assert not any(opens(other) for other in others)


def test_no_secret_of_the_installation_makes_a_session(app: App, org: Org, browse: Any):
    """What a session was until it stood in a table: a note, signed with the installation's key."""
    mine, _ = new_key(app, org)
    said = f"{mine.id}.{int(time.time()) + 3600}"
    for key in secret_keys(app.config):
        mark = hmac.digest(key, b"recollect console session 1\n" + said.encode(), "sha256").hex()
        cookie = {"cookie": f"{COOKIE}={said}.{mark}"}
        assert browse().get("/console", headers=cookie).status_code == 303


def test_signing_out_ends_the_session(browse: Callable[..., httpx.Client], key: str):
    here, elsewhere = browse(key), browse(key)
    taken = {"cookie": f"{COOKIE}={here.cookies[COOKIE]}"}
    assert browse().get("/console", headers=taken).status_code == 200

    answer = here.post("/console/logout")

    assert answer.headers["location"] == "/console/login"
    assert here.get("/console").status_code == 303
    # Also for who took the cookie before.
    assert browse().get("/console", headers=taken).status_code == 303
    assert browse().get("/console/keys", headers=taken).status_code == 303
    assert elsewhere.get("/console").status_code == 200


def test_signing_out_everywhere_ends_all_sessions_of_the_key(
    browse: Callable[..., httpx.Client], key: str, app: App, org: Org
):
    _, other = new_key(app, org)
    here, there, others = browse(key), browse(key), browse(other)

    here.post("/console/logout", data={"everywhere": "true"})

    assert [http.get("/console").status_code for http in (here, there, others)] == [303, 303, 200]


def test_a_login_reads_no_large_body(browse: Callable[..., httpx.Client]):
    answer = browse().post("/console/login", data={"key": "x" * 5000})

    assert 400 <= answer.status_code < 500
    assert "set-cookie" not in answer.headers


@pytest.fixture
def hasty() -> Generator[None]:
    """Threads take turns as often as they can: one comes between any two steps of another."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty")
def test_processes_that_start_at_once_share_one_secret(tmp_path: Path):
    for folder in range(100):  # in some, one looks for the file just before another has made it
        config = Config(data_dir=tmp_path / str(folder))
        with ThreadPoolExecutor(8) as pool:
            ready = threading.Barrier(8)
            found = list(pool.map(partial(_asked_with_others, ready), [config] * 8))

        path = config.data_dir / "secret-key"
        assert set(found) == {(path.read_bytes(),)}
        assert len(found[0][0]) == 32
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [file.name for file in config.data_dir.iterdir()] == ["secret-key"]


def _asked_with_others(ready: threading.Barrier, config: Config) -> tuple[bytes, ...]:
    ready.wait()
    return secret_keys(config)


def test_a_damaged_secret_is_not_replaced_in_silence(tmp_path: Path):
    (tmp_path / "secret-key").write_bytes(b"half")

    with pytest.raises(SetupError, match="damaged"):
        secret_keys(Config(data_dir=tmp_path))


def test_several_secrets_are_named_newest_first(tmp_path: Path):
    def keys(named: str) -> tuple[bytes, ...]:
        return secret_keys(Config(data_dir=tmp_path, secret_key=SecretStr(named)))

    old, new = "the old one 7c5e91b0d8f3a2640f1b", "the new one 2ba80e6d9f41c7538d60"
    assert keys(f"{new}, {old}") == keys(new) + keys(old)
    assert keys(f"{new}, hunter2")[0] == keys(new)[0]
    assert list(tmp_path.iterdir()) == []
    for blank in ("", " ", f"{new},", ",", f"{new},,{old}"):
        with pytest.raises(SetupError, match="RECOLLECT_SECRET_KEY"):
            keys(blank)


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        "x" * 31,
        "a" * 64,
        "hunter2" * 5,
        "passwordpasswordpasswordpassword1",
        "0123456789" * 4,
        "abcdefghijklmnopqrstuvwxyz0123456789",
    ],
)
def test_a_secret_that_may_be_guessed_is_refused(tmp_path: Path, secret: str):
    with pytest.raises(SetupError, match="RECOLLECT_SECRET_KEY: the first key") as refused:
        secret_keys(Config(data_dir=tmp_path, secret_key=SecretStr(secret)))

    assert secret not in str(refused.value)
    # As an old one behind a good one it opens what it sealed.
    both = SecretStr(f"{secrets.token_hex(16)},{secret}")
    config = Config(data_dir=tmp_path, secret_key=both)
    assert len(secret_keys(config)) == 2
    assert signing_keys(config) == secret_keys(config)[:1]


@pytest.mark.parametrize("make", [secrets.token_hex, secrets.token_urlsafe])
def test_no_random_secret_is_refused(make: Callable[[int], str]):
    assert [word for _ in range(2_000) if weakness(word := make(24)[:32]) is not None] == []


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": "192.168.1.5"}, True),
        ({"public_url": "https://memory.example/"}, True),
        ({"host": "127.0.0.1"}, False),
        ({"host": "::1"}, False),
        ({"host": "localhost", "public_url": "http://localhost:6767"}, False),
    ],
)
def test_a_key_that_may_be_guessed_is_refused_where_others_reach_the_service(
    tmp_path: Path, given: dict[str, str], refused: bool
):
    short = Config.model_validate({"data_dir": tmp_path, "api_key": "word", **given})
    enough = short.model_copy(update={"api_key": SecretStr("w" * 16)})

    check_secrets(enough)
    if refused:
        with pytest.raises(SetupError, match="RECOLLECT_API_KEY has 4 characters"):
            check_secrets(short)
    else:
        check_secrets(short)


# --- policy ------------------------------------------------------------------------------------


def test_every_answer_carries_the_policy(
    browse: Callable[..., httpx.Client], me: httpx.Client, app: App, tenant: Tenant
):
    document = add(app, tenant, "needle")
    drain(app)
    pages = [
        "/console",
        "/console?part=live",
        "/console/documents",
        "/console/documents?part=live",
        f"/console/documents/{document.id}?q=needle",
        f"/console/documents/{document.id}?part=live",
        "/console/documents/unknown",
        "/console/add",
        f"/console/progress?id={document.id}",
        f"/console/progress?id={document.id}&part=live",
        "/console/search?q=needle",
        "/console/search?q=needle&filters=x",
        "/console/nowhere",
        "/console/documents?page=x",
        "/console/static/console.js",
        "/console/static/console.css",
        "/console/static/icon.svg",
        "/console/static/nothing.js",
    ]
    answers = [me.get(page) for page in pages]
    answers += [browse().get("/console/login"), browse().get("/console")]
    answers += [browse().post("/console/login", data={"key": "x"})]
    answers += [me.post("/console/documents/confirm", data={"action": "failed"})]
    answers += [me.post("/console/documents/confirm", data={"action": "x"})]
    answers += [me.post("/console/add", data={"content": ""})]
    answers += [me.post("/console/add", data={"content": "x"}, headers={"sec-fetch-site": "none"})]

    for answer in answers:
        if "/static/nothing" not in str(answer.url):
            assert answer.headers["content-security-policy"] == POLICY, answer.url
    statuses = [answer.status_code for answer in answers]
    assert statuses[: len(pages)] == [200] * 6 + [404] + [200] * 4 + [400, 404, 400] + [200] * 3 + [
        404
    ]


def test_pages_hold_nothing_that_the_policy_would_stop(me: httpx.Client, app: App, tenant: Tenant):
    document = add(app, tenant, "needle in a text")
    drain(app)
    for path in (
        "/console",
        "/console/documents",
        f"/console/documents/{document.id}",
        "/console/add",
        "/console/search?q=needle",
    ):
        page = tree(me.get(path))

        scripts: list[dict[str, str | None]] = [
            {"src": "/console/static/console.js", "defer": None},
            {"type": "module", "src": "/console/static/keys.js"},
        ]
        if path == "/console/add":
            scripts.append({"type": "module", "src": "/console/static/adding.js"})
        assert [s.attributes for s in page.css("script")] == scripts
        assert not page.css("style, [style], iframe, object, base")
        for node in page.css("*"):
            assert not [name for name in node.attributes if name.startswith("on")]


@pytest.mark.parametrize("path", ["console.js", "keys.js", "adding.js", "console.css", "icon.svg"])
def test_static_files_are_open_and_asked_for_again(browse: Callable[..., httpx.Client], path: str):
    http = browse()
    answer = http.get(f"/console/static/{path}")
    again = http.get(f"/console/static/{path}", headers={"if-none-match": answer.headers["etag"]})

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"
    assert again.status_code == 304


POSTS = (
    "/console/logout",
    "/console/add",
    "/console/add/check",
    "/console/documents/confirm",
    "/console/documents/apply",
)


@pytest.mark.parametrize("path", POSTS)
def test_other_sites_cannot_post(
    browse: Callable[..., httpx.Client], site: str, key: str, app: App, tenant: Tenant, path: str
):
    document = add(app, tenant, "stays")
    http = browse(key)
    del http.headers["sec-fetch-site"]
    form = {"content": "planted", "action": "delete", "id": document.id}
    foreign = (
        {},
        {"origin": "https://example.com"},
        {"origin": "null"},
        {"origin": site.replace("127.0.0.1", "127.0.0.2")},
        {"origin": site + "0"},
        {"sec-fetch-site": "cross-site", "origin": site},
        {"sec-fetch-site": "same-site", "origin": site},
        {"sec-fetch-site": "none"},
    )
    for headers in foreign:
        assert http.post(path, data=form, headers=headers).status_code == 403, headers
    assert [found.id for found in all_of(app, tenant)] == [document.id]

    answer = http.post(path, data=form, headers={"origin": site})
    assert answer.status_code < 400


def test_other_sites_cannot_sign_a_visitor_in(browse: Callable[..., httpx.Client], key: str):
    headers = {"sec-fetch-site": "cross-site"}
    answer = browse().post("/console/login", data={"key": key}, headers=headers)

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


# --- who sees and does what --------------------------------------------------------------------


@pytest.mark.parametrize("path", POSTS[1:])
def test_a_reading_key_may_not_write(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant, path: str
):
    document = add(app, tenant, "stays")
    http = browse(new_key(app, org, scope=Scope.READ)[1])
    for action in ("delete", "retry", "failed"):
        form = {"content": "new", "action": action, "id": document.id}
        assert http.post(path, data=form).status_code == 403

    assert http.get("/console/add").status_code == 403
    assert [found.id for found in all_of(app, tenant)] == [document.id]


def test_a_reading_key_sees_no_writing_buttons(
    browse: Callable[..., httpx.Client], me: httpx.Client, app: App, org: Org, tenant: Tenant
):
    done = add(app, tenant, "needle")
    drain(app)
    fail(app, broken := add(app, tenant, "broken"), "too_large", "it is too large")
    http = browse(new_key(app, org, scope=Scope.READ)[1])

    def writing(http: httpx.Client, path: str) -> list[str | None]:
        page = tree(http.get(path))
        places = [form.attributes.get("action") for form in page.css("form[method=post]")]
        places += [a.attributes.get("href") for a in page.css("a[href='/console/add']")]
        places += [
            box.attributes.get("name") for box in page.css("form[method=post] [type=checkbox]")
        ]
        return [place for place in places if place != "/console/logout"]

    for path in (
        "/console",
        "/console/documents",
        f"/console/documents/{done.id}",
        f"/console/documents/{broken.id}",
        f"/console/progress?id={broken.id}",
        "/console/search?q=needle",
    ):
        assert http.get(path).status_code == 200
        shown = writing(http, path)
        assert not [place for place in shown if place != "/console/documents/confirm"], path
        assert not tree(http.get(path)).css("button[name=action]"), path
        assert writing(me, path), path


def test_of_many_tags_lists_show_the_first(me: httpx.Client, app: App, tenant: Tenant):
    many = add(app, tenant, "needle", tags=[f"tag-{n}" for n in range(9)])
    few = add(app, tenant, "another needle", tags=["a", "b", "c", "d", "e"])
    drain(app)

    for path in ("/console/documents", "/console/search?q=needle"):
        page = me.get(path).text
        assert page.count("tag-4</a>") == 1
        assert "tag-5</a>" not in page
        assert page.count(" and 4 more") == (2 if path == "/console/documents" else 1)
        assert "and 0 more" not in page
    assert "tag-8</a>" in me.get(f"/console/documents/{many.id}").text
    assert ">e</a>" in me.get(f"/console/documents/{few.id}").text


def test_a_key_limited_to_tags_sees_and_adds_only_there(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    mine = add(app, tenant, "needle of mine", tags=["mine"], title="of mine")
    theirs = add(app, tenant, "needle of theirs", tags=["theirs"], title="of theirs")
    drain(app)
    http = browse(new_key(app, org, tags=["mine"])[1])
    pages = [
        http.get(path)
        for path in (
            "/console",
            "/console/documents",
            "/console/search?q=needle",
            f"/console/progress?id={mine.id}&id={theirs.id}",
        )
    ]
    written = http.post("/console/add", data={"content": "another"})
    foreign = http.post("/console/add", data={"content": "another", "tag": "theirs"})
    http.post("/console/documents/apply", data={"action": "delete", "id": theirs.id})

    assert http.get(f"/console/documents/{theirs.id}").status_code == 404
    assert not [page for page in pages if "theirs" in page.text]
    assert all(mine.id in page.text for page in pages[1:])
    assert "Documents 1 Passages 1" in body(pages[0])
    assert written.status_code == 303
    assert foreign.status_code == 403
    assert http.get("/console/search?q=needle&tag=theirs").status_code == 403
    assert {found.container_tags[0] for found in all_of(app, tenant)} == {"mine", "theirs"}
    assert len(all_of(app, tenant)) == 3
    assert [o.text() for o in tree(http.get("/console/add")).css("select#tag option")] == ["mine"]


def test_a_shared_document_shows_a_limited_key_its_own_tags(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    shared = add(app, tenant, "needle of both", tags=["theirs", "mine"], title="of both")
    drain(app)
    waiting = add(app, tenant, "waiting needle", tags=["theirs", "mine"], title="waits")
    broken = add(app, tenant, "broken needle", tags=["theirs", "mine"], title="broken")
    fail(app, broken, "too_large", "too large")
    http = browse(new_key(app, org, tags=["mine"])[1])
    paths = [
        "/console",
        "/console/documents",
        f"/console/documents/{shared.id}",
        f"/console/documents/{broken.id}",
        "/console/search?q=needle",
        f"/console/progress?id={shared.id}&id={waiting.id}&id={broken.id}",
        "/console/add",
        "/console/connections",
        "/console/webhooks",
    ]
    pages = {path: http.get(path) for path in paths}
    asked = {"action": "delete", "id": [shared.id, broken.id]}
    pages["confirm"] = http.post("/console/documents/confirm", data=asked)
    http.post("/console/documents/apply", data=asked)

    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert [path for path, page in pages.items() if "theirs" in page.text] == []
    assert "mine" in pages[f"/console/documents/{shared.id}"].text
    kept = {found.id: list(found.container_tags) for found in all_of(app, tenant)}
    assert kept == {
        shared.id: ["theirs"],
        broken.id: ["theirs"],
        waiting.id: ["theirs", "mine"],
    }


def test_another_organisations_documents_do_not_exist(me: httpx.Client, app: App, tenant: Tenant):
    with app.db.begin() as tx:
        other = Tenant(orgs.create(tx, f"other-{tenant.id}", Plan.FREE).id)
    try:
        foreign = add(app, other, "needle of others", title="of others")
        drain(app)
        fail(app, foreign, "too_large", "of others")
        absent = me.get("/console/documents/absent")
        present = me.get(f"/console/documents/{foreign.id}")
        form = {"action": "delete", "id": foreign.id}
        confirm = me.post("/console/documents/confirm", data=form)
        me.post("/console/documents/apply", data=form)
        me.post("/console/documents/apply", data={"action": "failed"})

        assert present.status_code == absent.status_code == 404
        assert body(present) == body(absent).replace("absent", foreign.id)
        assert "of others" not in confirm.text
        for path in ("", "/documents", f"/progress?id={foreign.id}", "/search?q=needle"):
            assert "of others" not in me.get(f"/console{path}").text
        assert get(app, other, foreign.id).status == "failed"
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (other.id,))


# --- text stays text ---------------------------------------------------------------------------


def skeleton(page: LexborHTMLParser) -> list[tuple[str | None, tuple[str, ...]]]:
    """Every element with its attributes' names: what markup in a text would change."""
    nodes = page.css("*")
    return [(node.tag, tuple(sorted(node.attributes))) for node in nodes]


PLACES = (
    "/console",
    "/console/documents",
    "/console/documents?status=failed",
    "/console/documents?size=100&part=live",
    "/console/documents/{id}?view=source",
    "/console/documents/{id}?view=source&q=needle",
    "/console/documents/{id}?view=source&part=live",
    "/console/progress?id={id}",
)


def test_stored_markup_is_shown_and_never_becomes_markup(
    browse: Callable[..., httpx.Client], app: App, org: Org, me: httpx.Client
):
    with app.db.begin() as tx:
        twin = orgs.create(tx, f"twin-{org.id}", Plan.FREE)
    try:
        calm = browse(new_key(app, twin)[1])
        bad = hostile(app, Tenant(org.id), PAYLOADS)
        good = hostile(app, Tenant(twin.id), [f"{HARMLESS}{n}" for n in range(len(PAYLOADS))])
        expected = {
            (place, n % 2): skeleton(tree(calm.get(place.format(id=good[n].id))))
            for place in PLACES[4:]
            for n in (0, 1)
        }
        for number, payload in enumerate(PAYLOADS):
            for place in PLACES[4:]:
                shown = tree(me.get(place.format(id=bad[number].id)))

                assert skeleton(shown) == expected[place, number % 2], (payload, place)
                assert not shown.css("a[href^='java' i], a[href^='data' i], a[href^='vb' i]")
                if place == "/console/documents/{id}?view=source":
                    assert [n.text() for n in shown.css(".prose")] == [f"needle {payload}".strip()]
                    assert [n.text() for n in shown.css("h1")] == [payload]
        for place in PLACES[:4]:
            shown = skeleton(tree(me.get(place)))

            assert shown == skeleton(tree(calm.get(place))), place
    finally:
        with app.db.begin() as tx:
            tx.execute("delete from orgs where id = %s", (twin.id,))


def test_what_is_typed_comes_back_as_text(me: httpx.Client, browse: Callable[..., httpx.Client]):
    visitor = browse()

    def pages(typed: str) -> list[httpx.Response]:
        form = {"content": typed, "tag": "<>", "customId": typed, "key": typed, "value": typed}
        return [
            me.get("/console/search", params={"q": typed, "tag": typed, "filters": typed}),
            me.get("/console/documents", params={"tag": typed, "status": typed}),
            me.get("/console/" + quote(typed, safe="")),
            me.get("/console/documents/" + quote(typed, safe="")),
            me.get("/console/documents", params={"page": typed}),
            me.post("/console/add", data=form),
            me.post("/console/documents/confirm", data={"action": "failed", "back": typed}),
            visitor.get("/console/login", params={"next": typed}),
        ]

    calm = [(answer.status_code, skeleton(tree(answer))) for answer in pages("harmless<>")]
    for payload in PAYLOADS:
        for answer, expected in zip(pages(payload), calm, strict=True):
            assert (answer.status_code, skeleton(tree(answer))) == expected, answer.url


def test_only_web_addresses_become_links(me: httpx.Client, app: App, tenant: Tenant):
    linked = {
        'https://example.com/"onmouseover=top.ran=1 ': True,
        "http://example.com/?a=<script>&b=1": True,
        "javascript:top.ran=1//https://example.com": False,
        "//example.com": False,
        "http://[": False,
    }
    for url, expected in linked.items():
        document = add(app, tenant, "text")
        with app.db.begin() as tx:
            tx.execute("update documents set url = %s where id = %s", (url, document.id))
        found = tree(me.get(f"/console/documents/{document.id}")).css("a[rel]")

        assert [a.attributes["href"] for a in found] == ([url] if expected else [])


def test_no_input_is_an_error_of_ours(me: httpx.Client, app: App, tenant: Tenant):
    document = add(app, tenant, "needle")
    drain(app)
    odd = ("%00", "%FF", "%ED%A0%80", "%F0%9F%92%A9", "%25", "a" * 3000)
    for value in odd:
        for path in (
            f"/console/documents?tag={value}&status={value}&done={value}",
            f"/console/documents/{value}",
            f"/console/documents/{document.id}?q={value}",
            f"/console/documents/{document.id}?chunk=99999999999999999999",
            f"/console/progress?id={value}",
            f"/console/search?q={value}",
            f"/console/search?q=x&tag={value}&filters={value}",
            f"/console/search?q=x&limit={value}",
            f"/console/login?next={value}",
        ):
            assert me.get(path).status_code < 500, path
        form = {"content": "x\0y", "tag": value, "customId": "\0", "action": value, "id": "\0"}
        for path in POSTS[1:]:
            assert me.post(path, data=form).status_code < 500


# --- rooms -------------------------------------------------------------------------------------


def test_the_overview_counts_and_says_why(me: httpx.Client, app: App, tenant: Tenant):
    assert "Nothing here yet" in body(me.get("/console"))
    add(app, tenant, "\n\n".join(f"# Part {n}\n\n{'A line of words. ' * 60}" for n in range(5)))
    drain(app)
    for number in range(3):
        failed = add(app, tenant, f"broken {number}", title=f"Broken {number}")
        fail(app, failed, "encrypted_file", f"page {number} is encrypted")
    fail(app, add(app, tenant, "large"), "too_large", "larger than 50 MB")
    add(app, tenant, "waits longest", title="Waits longest")
    add(app, tenant, "waits", title="Waits shorter")
    with app.db.begin() as tx:
        chunks = len(documents.chunks(tx, tenant, all_of(app, tenant)[-1].id))
    answer = me.get("/console")

    figures = [" ".join(d.text(separator=" ").split()) for d in tree(answer).css(".figures > div")]
    assert figures == [
        "Queued 2",
        "Processing 0",
        "Done 1",
        "Failed 4",
        "Documents 7",
        f"Passages {chunks}",
    ]
    assert chunks > 3
    said = body(answer)
    assert "Waits longest" in said
    assert "Waits shorter" not in said
    rows = [" ".join(row.text(separator=" ").split()) for row in tree(answer).css("tbody tr")]
    assert rows[0].startswith("too_large 1 document 1 ")
    assert rows[1].startswith("encrypted_file 3 documents 3 Broken 2 ")
    assert rows[1].endswith("page 2 is encrypted")
    assert one(answer, "[data-state]").attributes["data-state"] == "unfinished"


def test_documents_are_filtered_and_paged(me: httpx.Client, app: App, tenant: Tenant):
    for number in range(30):
        add(
            app,
            tenant,
            f"text {number}",
            title=f"Title {number:02}",
            tags=["even", "odd"][number % 2 :],
        )
    fail(app, add(app, tenant, "broken", title="Broken", tags=["odd"]), "too_large", "too large")

    def titles(**query: Any) -> list[str]:
        page = tree(me.get("/console/documents", params=query))
        return [link.text() for link in page.css("tbody th > a")]

    assert len(titles()) == 25
    assert titles(page=2) == [f"Title {number:02}" for number in range(5, -1, -1)]
    assert len(titles(size=50)) == 31
    assert titles(status="failed") == ["Broken"]
    assert len(titles(tag="even")) == 15
    assert titles(tag="none") == titles(page=9) == titles(type="pdf") == []
    assert titles(type="text", tag="even", size=100) == titles(tag="even")
    add(app, tenant, "below", title="Below", tags=["team:red"])
    assert titles(tag="team:*") == ["Below"]
    links = tree(me.get("/console/documents?tag=odd&status=queued&size=25")).css(".pages a")
    assert [parse_qs(urlsplit(a.attributes["href"] or "").query) for a in links][-1] == {
        "tag": ["odd"],
        "status": ["queued"],
        "size": ["25"],
        "page": ["2"],
    }


def titles(answer: httpx.Response) -> list[str]:
    return [link.text() for link in tree(answer).css(".documents tbody th > a")]


def test_work_is_apart_from_administration(me: httpx.Client):
    rooms = tree(me.get("/console")).css("nav a")
    names = [room.text() for room in rooms]
    first = [room.attributes.get("class") for room in rooms].index("apart")

    assert {"Search", "Documents", "Memories", "Connections"} <= {*names[:first]}
    assert names[first:] == ["Filters", "Webhooks", "Keys", "Audit", "Settings"]


def test_documents_are_found_by_title_and_path_and_sorted(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    for path in ("src/heron/__init__.py", "src/owl/__init__.py", "src/owl/100%_sure.py"):
        _, folder, name = path.split("/")
        add(app, tenant, f"{name}\n\nabout the {folder}", filepath=path, tags=[folder])
    drain(app)
    table = "/console/documents"

    both = me.get(table, params={"q": "__INIT__"})
    assert titles(both) == ["__init__.py"] * 2
    paths = [path.text() for path in tree(both).css(".documents .path")]
    assert paths == ["src/owl/__init__.py", "src/heron/__init__.py"]
    assert [cell.text() for cell in tree(both).css(".documents td.number.wide")][::2] == ["1", "1"]
    assert "2 documents" in body(both)
    assert one(both, "#q").attributes["value"] == "__INIT__"
    assert titles(me.get(table, params={"q": "src/owl"})) == ["100%_sure.py", "__init__.py"]
    assert titles(me.get(table, params={"q": "0%_s"})) == ["100%_sure.py"]
    assert titles(me.get(table, params={"q": "owl_"})) == [], "a sign is only itself"
    assert "No document matches." in body(me.get(table, params={"q": "zxqvbn"}))

    by_title = ["100%_sure.py", "__init__.py", "__init__.py"]
    assert titles(me.get(table, params={"sort": "title"})) == by_title
    oldest = me.get(table, params={"sort": "oldest", "q": "__init__", "size": "25"})
    paths = [path.text() for path in tree(oldest).css(".documents .path")]
    assert paths == ["src/heron/__init__.py", "src/owl/__init__.py"]
    assert titles(me.get(table, params={"sort": "; drop"})) == titles(me.get(table))

    _, bound = new_key(app, org, scope=Scope.READ, tags=["heron"])
    mine = browse(bound).get(table, params={"q": "__init__"})
    assert [path.text() for path in tree(mine).css(".documents .path")] == ["src/heron/__init__.py"]
    assert titles(browse(bound).get(table, params={"q": "owl"})) == []


def test_bulk_delete_asks_first_and_names_what_it_is_about(
    me: httpx.Client, app: App, tenant: Tenant
):
    kept = add(app, tenant, "kept")
    doomed = [add(app, tenant, f"doomed {n}", title=f"Doomed {n}") for n in range(2)]
    form = {"action": "delete", "id": [d.id for d in doomed], "after": "/console/documents?tag=x"}
    asked = me.post("/console/documents/confirm", data=form)
    still = len(all_of(app, tenant))
    sure = one(asked, "form[action='/console/documents/apply']")
    fields = [(i.attributes["name"], i.attributes["value"]) for i in sure.css("input, button")]
    done = me.post("/console/documents/apply", data={"action": "delete", **_by_name(fields)})

    assert "Delete 2 documents?" in body(asked)
    assert "Doomed 0" in body(asked)
    assert "Doomed 1" in body(asked)
    assert still == 3
    assert done.headers["location"] == "/console/documents?tag=x&done=delete&n=2"
    assert [found.id for found in all_of(app, tenant)] == [kept.id]
    assert "2 documents deleted for good." in body(me.get(done.headers["location"]))


def test_the_selected_are_tagged_and_what_is_refused_says_why(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    taken = add(app, tenant, "the first", tags=["birds"], custom_id="one")
    same = add(app, tenant, "the second", tags=["notes"], custom_id="one")
    free = add(app, tenant, "the third", tags=["notes"])
    drain(app)
    ids = [same.id, free.id, "gone"]

    asked = me.post("/console/documents/confirm", data={"action": "tag", "id": ids})
    assert "Tag 2 documents" in body(asked)
    for wrong, reason in (("", "Tag: name the tag"), ("a b/c\n", "Tag: ")):
        answer = me.post(APPLY, data={"action": "tag", "id": ids, "tag": wrong})
        assert answer.status_code == 400
        assert reason in one(answer, "[role=alert]").text()
        kept = {box.attributes["value"] for box in tree(answer).css("[name=id]")}
        assert kept == {same.id, free.id}, "what was chosen is still chosen"

    answer = me.post(APPLY, data={"action": "tag", "id": ids, "tag": "birds"})
    assert answer.status_code == 400
    assert one(answer, "[name=id]").attributes["value"] == same.id
    assert "'one' is taken in tag 'birds'" in body(answer)
    assert "1 document could not be tagged; the others are." in body(answer)
    assert get(app, tenant, free.id).container_tags == ["birds"]
    assert get(app, tenant, same.id).container_tags == ["notes"]

    done = me.post(APPLY, data={"action": "tag", "id": ids, "tag": "owls"})
    assert done.status_code == 303
    assert "2 documents given the tag." in body(me.get(done.headers["location"]))
    assert get(app, tenant, same.id).container_tags == ["owls"]

    _, limited = new_key(app, org, scope=Scope.WRITE, tags=["birds"])
    answer = browse(limited).post(APPLY, data={"action": "tag", "id": taken.id, "tag": "owls"})
    assert answer.status_code == 403
    done = browse(limited).post(APPLY, data={"action": "tag", "id": free.id, "tag": "birds"})
    assert done.headers["location"].endswith("n=0"), "it does not exist for this key"
    assert get(app, tenant, taken.id).container_tags == ["birds"]
    _, reading = new_key(app, org, scope=Scope.READ)
    answer = browse(reading).post(APPLY, data={"action": "tag", "id": taken.id, "tag": "owls"})
    assert answer.status_code == 403


def _by_name(fields: list[tuple[str | None, str | None]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in fields:
        found.setdefault(name or "", []).append(value or "")
    return found


def test_retry_of_some_and_of_all_that_failed(me: httpx.Client, app: App, tenant: Tenant):
    broken = [add(app, tenant, f"broken {n}") for n in range(3)]
    for document in broken:
        fail(app, document, "too_large", "too large")
    asked = me.post(
        "/console/documents/confirm", data={"action": "retry", "id": [broken[0].id, "gone"]}
    )
    me.post("/console/documents/apply", data={"action": "retry", "id": [broken[0].id]})
    first = [get(app, tenant, document.id).status for document in broken]
    everything = me.post("/console/documents/confirm", data={"action": "failed"})
    with colliding_once(app.db, "documents", "new.status = 'queued'"):
        done = me.post("/console/documents/apply", data={"action": "failed"})

    assert "Retry 1 document?" in body(asked)
    assert first == ["queued", "failed", "failed"]
    assert "2 documents will be processed again" in body(everything)
    assert done.headers["location"].endswith("?done=retry&n=2")
    drain(app)
    assert {get(app, tenant, document.id).status for document in broken} == {"done"}


def test_a_document_shows_its_text_in_chunks_and_all_that_is_known(
    me: httpx.Client, app: App, tenant: Tenant
):
    text = "\n\n".join(f"# Part {n}\n\n{'Herons wade in the river. ' * 40}" for n in range(6))
    document = add(
        app,
        tenant,
        text,
        custom_id="my/name",
        filepath="notes/a.md",
        metadata={"topic": "birds", "year": 2026, "public": True},
        document_date=datetime(2026, 3, 1, tzinfo=UTC),
    )
    before = me.get(f"/console/documents/{document.id}")
    drain(app)
    answer = me.get(f"/console/documents/{document.id}?view=source")
    with app.db.begin() as tx:
        chunks = documents.chunks(tx, tenant, document.id)

    assert one(before, "[data-state]").attributes["data-state"] == "unfinished"
    assert text in one(before, ".prose").text()
    assert [node.text() for node in tree(answer).css(".chunk .prose")] == [c.text for c in chunks]
    assert [node.attributes["id"] for node in tree(answer).css(".chunk")] == [
        f"chunk-{n}" for n in range(len(chunks))
    ]
    said = body(answer)
    for fact in ("my/name", "notes/a.md", "birds", "2026", "true", "2026-03-01", "Attempts 1"):
        assert fact in said
    assert f"{len(chunks)} passages: 0 kept, {len(chunks)} embedded, 0 removed" in said
    timed = get(app, tenant, document.id).timings
    assert {row.text() for row in tree(answer).css(".timings tbody th")} == set(timed)
    assert {"extracting", "chunking", "embedding"} <= set(timed)
    assert me.get("/console/documents/my%2Fname").status_code in (200, 404)


def test_a_failed_document_says_why_and_keeps_its_last_good_text(
    me: httpx.Client, app: App, tenant: Tenant
):
    document = add(app, tenant, "the good text")
    drain(app)
    fail(app, document, "encrypted_file", "page 4 of report.pdf is encrypted")
    with app.db.begin() as tx:
        tx.execute(
            "update documents set warnings = %s where id = %s",
            (["page 2 is a picture"], document.id),
        )
    said = body(me.get(f"/console/documents/{document.id}"))

    assert "Failed: page 4 of report.pdf is encrypted encrypted_file" in said
    assert "The text below is revision 1; it stays searchable." in said
    assert "the good text" in said
    assert "page 2 is a picture" in said


def test_the_list_says_what_was_not_read_of_a_document(me: httpx.Client, app: App, tenant: Tenant):
    document = add(app, tenant, "the good text")
    drain(app)
    with app.db.begin() as tx:
        tx.execute(
            "update documents set warnings = %s where id = %s",
            (["page 2 is a picture", "page 3 as well", "and page 4"], document.id),
        )

    assert "page 2 is a picture · 2 more warnings" in body(me.get("/console/documents"))


def test_a_hit_leads_to_its_place_with_the_words_marked(me: httpx.Client, app: App, tenant: Tenant):
    filler = "\n\n".join(f"# Part {n}\n\n{f'Filling number {n} here. ' * 45}" for n in range(130))
    add(app, tenant, filler + "\n\n# Last\n\nTwo egrets were wading at dusk.", title="Long")
    drain(app)
    found = me.get("/console/search", params={"q": "egret wades"})
    place = one(found, ".hits h3 a").attributes["href"] or ""
    answer = me.get(place)
    wanted = one(answer, ".chunk.wanted")

    assert wanted.attributes["id"] == urlsplit(place).fragment
    assert int(place.rsplit("-", 1)[1]) > _reading.PART
    assert {mark.text() for mark in wanted.css("mark")} >= {"egrets", "wading"}
    assert len(tree(answer).css(".chunk")) <= _reading.PART
    assert one(answer, ".pages a[aria-current]") is not None


@any_speed
@given(text=st.text(), query=st.text())
def test_marking_loses_and_adds_nothing(text: str, query: str):
    pieces = _show.marked(OrgId("o"), query, text)

    assert "".join(words for words, _ in pieces) == text
    assert all(words for words, _ in pieces)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("heron", "Herons and a HERON, not heroic", ["Herons", "HERON"]),
        ("the herons", "the heron in the river", ["heron"]),
        ("Häuser", "ein Haus, zwei Häuser", ["Haus", "Häuser"]),
        ("cafe", "a café", ["café"]),
        ("東京", "私は東京に住む", ["東京"]),
        ("青", "空が青い", ["青"]),
        ("カタカナ", "カ と ｶﾀｶﾅ", ["ｶﾀｶﾅ"]),
        ("किताब", "हिन्दी में किताब पढ़ना", ["किताब"]),
        ("ข้าว", "ฉันกินข้าว", ["ข้", "าว"]),
        (
            "resume naive",
            "a re\u0301sume\u0301, nai\u0308ve",
            ["re\u0301sume\u0301", "nai\u0308ve"],
        ),
        ("research", "re\u00adsearch", ["re\u00adsearch"]),
        ("C++", "C and C++", ["C++"]),
        ("nothing", "else", []),
        ("", "else", []),
    ],
)
def test_words_are_marked_as_the_index_takes_them(query: str, text: str, expected: list[str]):
    pieces = _show.marked(OrgId("o"), query, text)

    assert [words for words, marked in pieces if marked] == expected


# --- adding ------------------------------------------------------------------------------------


def ids_of(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 303, body(answer)
    return parse_qs(urlsplit(answer.headers["location"]).query)["id"]


def test_adding_a_text_with_labels(me: httpx.Client, app: App, tenant: Tenant):
    form = {
        "content": "First line\r\nsecond line",
        "tag": "birds",
        "customId": "c-1",
        "key": ["topic", "year", "public", ""],
        "kind": ["text", "number", "boolean", "text"],
        "value": ["herons", "2026", "True", ""],
    }
    (id,) = ids_of(me.post("/console/add", data=form))
    (again,) = ids_of(me.post("/console/add", data={**form, "content": "third line"}))
    drain(app)

    document = get(app, tenant, id)
    assert again == id
    assert document.text == "First line\nsecond line\nthird line"
    assert document.container_tags == ["birds"]
    assert document.custom_id == "c-1"
    assert document.metadata == {"topic": "herons", "year": 2026, "public": True}
    assert "All finished." in body(me.get(f"/console/progress?id={id}"))


def test_a_web_address_alone_is_fetched(me: httpx.Client, app: App, tenant: Tenant):
    (id,) = ids_of(me.post("/console/add", data={"content": " https://example.com/a?b \r\n"}))

    assert get(app, tenant, id).url == "https://example.com/a?b"
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [id])


def test_files_are_taken_each_on_its_own(me: httpx.Client, app: App, tenant: Tenant):
    files = [
        ("file", ("../a <b>.md", b"# Heron\n\nwades", "text/markdown")),
        ("file", ("b.bin", bytes(range(256)), "application/octet-stream")),
        ("file", ("empty.txt", b"", "text/plain")),
    ]
    answer = me.post("/console/add", data={"tag": "birds", "content": ""}, files=files)
    drain(app)

    (document,) = all_of(app, tenant)
    assert answer.status_code == 400
    said = body(answer)
    assert "Some were not added , 1 document is on the way" in said
    assert "b.bin : File: this kind is not supported" in said
    assert "empty.txt : File is empty" in said
    assert document.title == "Heron"
    assert document.source == "upload"
    assert document.container_tags == ["birds"]
    assert one(answer, "#tag").attributes["value"] == "birds"
    assert len(list(app.blobs.older_than(timedelta(0)))) >= 1


def test_a_long_text_may_be_pasted(me: httpx.Client, app: App, tenant: Tenant):
    long = "A line of words that goes on. \n" * 70_000
    (id,) = ids_of(me.post("/console/add", data={"content": long}, files={"file": ("", b"")}))

    assert len(get(app, tenant, id).text or "") == len(long)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [id])


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({}, "write a text, paste a URL, or choose a file"),
        ({"content": " \n"}, "write a text"),
        ({"content": "http://127.1.2.3.4.5/"}, ""),
        ({"content": "ok", "tag": "no spaces"}, "Tag: 1 to 100 characters"),
        ({"content": "ok", "customId": "x" * 256}, "The customId: 1 to 255"),
        ({"content": "ok", "customId": "a\tb"}, "The customId: 1 to 255"),
        ({"content": "ok", "key": "n", "kind": "number", "value": "1_0"}, "n: '1_0' is not a"),
        ({"content": "ok", "key": "n", "kind": "number", "value": "NaN"}, "n: must be a finite"),
        ({"content": "ok", "key": "n", "kind": "number", "value": "true"}, "is not a number"),
        ({"content": "ok", "key": "n", "kind": "number", "value": "1e999"}, "must be a finite"),
        ({"content": "ok", "key": "b", "kind": "boolean", "value": "yes"}, "b: must be true or"),
        ({"content": "ok", "key": "", "kind": "text", "value": "x"}, "1 to 64 characters"),
        ({"content": "ok", "key": "k" * 65, "kind": "text", "value": "x"}, "1 to 64 characters"),
        ({"content": "ok", "key": "k", "kind": "text", "value": "x" * 10_001}, "at most 10,000"),
    ],
)
def test_what_may_not_be_added_is_said_and_what_was_typed_is_kept(
    me: httpx.Client, app: App, tenant: Tenant, form: dict[str, str], reason: str
):
    answer = me.post("/console/add", data=form)

    assert answer.status_code == 400
    assert reason in one(answer, "[role=alert]").text()
    assert one(answer, "textarea#content").text() == form.get("content", "")
    assert one(answer, "#customId").attributes["value"] == form.get("customId", "")
    typed = [i.attributes["value"] for i in tree(answer).css("input[name=value]")]
    assert len(typed) == 3
    assert typed[0] == form.get("value", "")
    assert all_of(app, tenant) == []


def test_one_custom_id_names_one_document(me: httpx.Client, app: App, tenant: Tenant):
    files = [("file", (f"{n}.txt", b"text", "text/plain")) for n in range(2)]
    answer = me.post("/console/add", data={"customId": "c"}, files=files)

    assert answer.status_code == 400
    assert "names one document" in body(answer)
    assert all_of(app, tenant) == []


# --- search ------------------------------------------------------------------------------------


def test_a_search_splits_the_score(me: httpx.Client, app: App, tenant: Tenant):
    add(app, tenant, "The heron stands in the river.", metadata={"topic": "birds"})
    add(app, tenant, "Trains stand in the station.", metadata={"topic": "rail"})
    drain(app)
    query = {"q": "heron river", "filters": '{"AND": [{"key": "topic", "value": "birds"}]}'}
    answer = me.get("/console/search", params=query)
    rows = [" ".join(d.text(separator=" ").split()) for d in tree(answer).css(".scores > div")]

    assert [a.text() for a in tree(answer).css(".hits h3 a")] == ["The heron stands in the river."]
    for place in ("h3", ".drawn"):
        marks = [mark.text() for mark in tree(answer).css(f".hits {place} mark")]
        assert marks == ["heron", "river"]
    assert re.fullmatch(r"Score 0\.\d{3}", rows[0])
    assert re.fullmatch(r"Lexical \d\.\d\d", rows[1])
    assert re.fullmatch(r"Similarity 0\.\d{3}", rows[2])
    lifts = [re.fullmatch(r"(\w+) [+-]\d\.\d\d", row) for row in rows[3:]]
    assert [one and one[1] for one in lifts] == ["Words", "Meaning", "Window", "Pairs"]
    assert "1 document in" in body(answer)
    assert "Only weak matches" not in body(answer)
    turns = "user: The weir is open.\n\nassistant: {} herons came.\n\nuser: Good night."
    for count in ("Seven", "No", "Two", "More"):
        add(app, tenant, turns.format(count), metadata={"topic": "talk"})
    drain(app)
    talk = me.get("/console/search", params={"q": "seven herons"})
    assert any("Conversation" in part.text() for part in tree(talk).css(".scores > div"))
    weak = me.get("/console/search", params={"q": "zxqvbn"})
    assert "Only weak matches" in body(weak)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"filters": "{"}, "Filters"),
        ({"filters": '{"AND": []}'}, "Filters (AND)"),
        ({"limit": "0"}, "Limit: 1 to 100"),
        ({"limit": "101"}, "Limit: 1 to 100"),
        ({"tag": "no spaces"}, "Tag: 1 to 100"),
        ({"q": "x" * 10_001}, "at most 10,000"),
    ],
)
def test_a_search_that_cannot_be_says_why(me: httpx.Client, query: dict[str, str], reason: str):
    answer = me.get("/console/search", params={"q": "heron", **query})

    assert answer.status_code == 400
    assert reason in one(answer, "[role=alert]").text()
    assert not tree(answer).css(".hits")


ODD = """it's a "heron" \\ $HOME `id` ${x} 東 </script> @file"""


def codes(me: httpx.Client) -> dict[str, str]:
    filters = (
        '{"AND": [{"key": "topic", "value": "it\'s"}, {"key": "n", "value": "1", "negate": true}]}'
    )
    query = {"q": ODD, "limit": 3, "tag": "birds", "filters": filters}
    page = tree(me.get("/console/search", params=query))
    names = [node.text() for node in page.css(".code h3")]
    return dict(zip(names, [node.text() for node in page.css(".code pre")], strict=True))


@pytest.fixture
def bird(app: App, tenant: Tenant) -> Document:
    document = add(app, tenant, "a heron", tags=["birds"], metadata={"topic": "it's"})
    drain(app)
    return document


def test_the_search_as_curl_runs(me: httpx.Client, key: str, bird: Document):
    code = codes(me)["curl"]
    assert key not in code
    script = code.replace("YOUR_KEY", key).replace("curl ", "curl -s --noproxy '*' ", 1)
    ran = subprocess.run(["sh", "-c", script], capture_output=True, check=True, timeout=60)

    assert [hit["documentId"] for hit in json.loads(ran.stdout)["results"]] == [bird.id]


def test_the_search_as_python_runs(me: httpx.Client, key: str, bird: Document):
    code = codes(me)["Python"]
    assert key not in code
    assert "pip install 'supermemory<4'" in code
    script = code.replace("YOUR_KEY", key)
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=60, text=True
    )

    assert ran.stdout.split(maxsplit=1)[1] == "a heron\n"


def test_the_search_as_typescript_is_the_same_search(me: httpx.Client, bird: Document):
    code = codes(me)["TypeScript"]
    argument = re.search(r"search\.documents\((\{.*\n\})\);", code, re.DOTALL)
    assert argument is not None

    sent = json.loads(argument[1].replace(_code.UNDECLARED, ""))
    assert sent["q"] == ODD
    assert sent["limit"] == 3
    assert sent["containerTags"] == ["birds"]
    assert [part["key"] for part in sent["filters"]["AND"]] == ["topic", "n"]
    assert f'{_code.UNDECLARED}\n  "foldDuplicates": true' in code


# --- packaging ---------------------------------------------------------------------------------


def test_the_wheel_holds_templates_and_static_files(tmp_path: Path):
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=root,
        capture_output=True,
        check=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if name.startswith("recollect/console/")}
    folder = root / "recollect" / "console"
    files = [p for p in folder.rglob("*") if p.suffix in (".html", ".css", ".js", ".svg", ".py")]

    assert len(files) > 15
    guides = {f"recollect/console/guides/{name}.md" for name in _handbook.names()}
    assert names == {str(file.relative_to(root)) for file in files} | guides
    assert len(guides) == len(_handbook.COMMON) + len(connectors.all())
