"""Forms of the console in two tabs, of a provider that is away, and with the wrong field named."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser

from recollect.app import App
from recollect.connectors.github import MOST_REPOSITORIES
from recollect.console import _picking
from recollect.model import Connection, Org, Tenant
from tests.conftest import eventually
from tests.console.test_console import add, body, console_site, new_key, one, tree
from tests.console.test_console_connections import (
    ROOMS,
    authorized,
    browse,
    cabinet,
    get,
    github_app,
    make,
    me,
)
from tests.contract.test_oauth_attacks import blocked
from tests.fakes.cabinet import Cabinet
from tests.fakes.github import FakeGithub

__all__ = ["browse", "cabinet", "me"]
HOOK = {"url": "http://127.0.0.1:9/hook", "event": "document.done"}
Filled = dict[str, str | list[str]]


def fields(answer: httpx.Response, selector: str) -> Filled:
    """What a browser sends of the form, apart from buttons."""
    sent: Filled = {}
    for field in tree(answer).css(f"{selector} :is(input, textarea, select)"):
        given = field.attributes
        name, value = given.get("name"), given.get("value") or ""
        if name is None or (given.get("type") == "checkbox" and "checked" not in given):
            continue
        if field.tag == "textarea":
            value = field.text()
        if field.tag == "select":
            chosen = field.css_first("option[selected]") or field.css_first("option")
            value = chosen.attributes.get("value") or chosen.text() if chosen else ""
        if given.get("type") == "checkbox" and name in ("event", "pick"):
            sent[name] = [*sent.get(name, []), value]
        else:
            sent[name] = value
    return sent


# --- two tabs ----------------------------------------------------------------------------------


def of_settings(me: httpx.Client, app: App, tenant: Tenant) -> tuple[str, str, str]:
    return "/console/settings", "workspacePrompt", "/console/settings"


def of_filters(me: httpx.Client, app: App, tenant: Tenant) -> tuple[str, str, str]:
    return "/console/filters", "excludeItems.urlPatterns", "/console/filters"


def of_tag(me: httpx.Client, app: App, tenant: Tenant) -> tuple[str, str, str]:
    add(app, tenant, "a text", tags=["notes"])
    return "/console/tags/tag?name=notes", "context", "/console/tags/tag"


def of_webhook(me: httpx.Client, app: App, tenant: Tenant) -> tuple[str, str, str]:
    made = me.post("/console/webhooks", data=HOOK)
    own = one(made, "main a.button").attributes["href"] or ""
    return f"{own}/edit", "description", f"{own}/edit"


def of_connection(me: httpx.Client, app: App, tenant: Tenant) -> tuple[str, str, str]:
    made = make(app, tenant, metadata={"startUrl": "http://127.0.0.1:9/"})
    return f"{ROOMS}/{made.id}/edit", "tags", f"{ROOMS}/{made.id}/edit"


@pytest.mark.parametrize("form_of", [of_settings, of_filters, of_tag, of_webhook, of_connection])
def test_what_another_tab_saved_is_not_overwritten_unasked(
    me: httpx.Client, app: App, tenant: Tenant, form_of: Callable[..., tuple[str, str, str]]
):
    opened, name, target = form_of(me, app, tenant)
    selector = f"form[action^='{target}']:has([name='{name}'])"
    mine = fields(me.get(opened), selector)
    theirs = fields(me.get(opened), selector)
    saved = me.post(target, data={**theirs, name: "theirs"})
    stale = me.post(target, data={**mine, name: "mine"})
    kept = fields(me.get(opened), selector)
    again = me.post(target, data=fields(stale, selector))

    assert saved.status_code == 303
    assert stale.status_code == 409
    assert "This form was saved in another tab" in body(stale)
    assert fields(stale, selector)[name] == "mine"
    assert kept[name] == "theirs"
    assert again.status_code == 303
    assert fields(me.get(opened), selector)[name] == "mine"


def of_document(me: httpx.Client, app: App, tenant: Tenant) -> tuple[str, str, str]:
    made = add(app, tenant, "a text")
    return f"/console/documents/{made.id}/edit", "content", f"/console/documents/{made.id}/edit"


@pytest.mark.parametrize(
    "form_of", [of_settings, of_filters, of_tag, of_webhook, of_connection, of_document]
)
def test_of_two_tabs_that_save_at_the_same_moment_one_is_told(
    browse: Callable[..., httpx.Client],
    app: App,
    tenant: Tenant,
    key: str,
    form_of: Callable[..., tuple[str, str, str]],
):
    one_tab, other = browse(key), browse(key)
    opened, name, target = form_of(one_tab, app, tenant)
    form = fields(one_tab.get(opened), f"form[action^='{target}']:has([name='{name}'])")

    def save(tab: httpx.Client, said: str) -> int:
        return tab.post(target, data={**form, name: said}).status_code

    with ThreadPoolExecutor(2) as pool:
        with app.db.begin() as tx:
            # Forms are still read, and nothing is locked or written before both have been.
            tx.execute(
                "lock table documents, settings, tags, endpoints, connections in exclusive mode"
            )
            saved = [pool.submit(save, one_tab, "mine"), pool.submit(save, other, "theirs")]
            eventually(lambda: blocked(app.db) == len(saved))
        assert sorted(one.result() for one in saved) == [303, 409]


# --- picking -----------------------------------------------------------------------------------


@pytest.fixture
def picking(
    browse: Callable[..., httpx.Client], app: App, tenant: Tenant, key: str
) -> Generator[tuple[FakeGithub, Connection, httpx.Client]]:
    """GitHub, a connection of the account octo, and a visitor who may pick for it."""
    with FakeGithub() as github:
        own = github_app(app, github.url)
        made = authorized(own, tenant, github.user("octo"))
        with console_site(own) as url:
            yield github, made, browse(key, url)


def pickable(answer: httpx.Response) -> list[str]:
    return [box.attributes["value"] or "" for box in tree(answer).css("[name=pick]")]


def test_two_tabs_that_pick_do_not_undo_each_other(
    picking: tuple[FakeGithub, Connection, httpx.Client], app: App, tenant: Tenant
):
    github, made, http = picking
    for number in range(3):
        github.repository(f"octo/repo{number}")
    url = f"{ROOMS}/{made.id}/pick"
    opened = http.get(url)
    form, offered = fields(opened, f"form[action='{url}']"), pickable(opened)
    first = http.post(url, data={**form, "pick": offered[:1]})
    turned = http.post(url, data={**form, "pick": offered[1:2], "page": "1"})
    second = http.post(url, data={**fields(turned, f"form[action='{url}']")})
    kept = get(app, tenant, made.id).metadata["resources"]
    again = http.post(url, data=fields(second, f"form[action='{url}']"))

    assert first.status_code == 303
    assert second.status_code == 409
    assert "This form was saved in another tab" in body(second)
    assert [one["name"] for one in kept] == ["octo/repo0"]
    assert again.status_code == 303
    names = [one["name"] for one in get(app, tenant, made.id).metadata["resources"]]
    assert names == ["octo/repo1"]


def test_ticks_stay_while_the_provider_is_away(
    picking: tuple[FakeGithub, Connection, httpx.Client],
):
    github, made, http = picking
    github.repository("octo/one")
    github.repository("octo/two")
    url = f"{ROOMS}/{made.id}/pick"
    ticked = pickable(http.get(url))[:1]
    github.refuse(422, message="<b>down</b>")  # a 503 would be tried again
    away = http.post(url, data={"pick": ticked, "page": "1"})
    back = http.post(url, data={"pick": pickable(away), "page": "1"})

    assert away.status_code == 502
    assert "GitHub did not answer" in body(away)
    assert "<b>down" not in away.text
    assert "Look again" in body(away)
    assert pickable(away) == ticked
    assert tree(away).css("main button:not([name])") == []  # nothing to save blindly
    assert one(away, f"main a[href='{ROOMS}/{made.id}']:not(.actions a)")
    assert [box.attributes["value"] for box in tree(back).css("[name=pick][checked]")] == ticked


def test_an_authorization_that_ended_leads_back_to_the_connection(
    picking: tuple[FakeGithub, Connection, httpx.Client],
):
    github, made, http = picking
    github.users.clear()
    answer = http.get(f"{ROOMS}/{made.id}/pick")

    assert answer.status_code == 400
    assert "Authorization" in body(answer)
    assert one(answer, f"main a[href='{ROOMS}/{made.id}']:not(.actions a)")


def test_who_has_nothing_to_pick_is_not_asked_to_save(
    picking: tuple[FakeGithub, Connection, httpx.Client],
):
    _, made, http = picking
    answer = http.get(f"{ROOMS}/{made.id}/pick")

    assert "GitHub shows this account nothing to pick." in body(answer)
    assert tree(answer).css("main button:not([name])") == []


def test_too_many_are_counted_and_the_page_stays(
    picking: tuple[FakeGithub, Connection, httpx.Client],
):
    github, made, http = picking
    for number in range(_picking.PICKS + 1):
        github.repository(f"octo/repo{number:03}")
    url = f"{ROOMS}/{made.id}/pick"
    many = [
        f'{{"id": "{10_000 + number}", "name": "octo/r{number}"}}'
        for number in range(MOST_REPOSITORIES + 1)
    ]
    answer = http.post(url, data={"pick": many, "at": "2"})

    assert answer.status_code == 400
    assert f"Picked: at most {MOST_REPOSITORIES} repositories, not 501." in body(answer)
    assert "page 2 of 2" in body(answer)
    assert "501 picked that this page does not list" in body(answer)


# --- the field that is wrong -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "sent", "wrong"),
    [
        ("/console/keys", {"scope": "read", "expires": "never ever"}, "expires"),
        ("/console/keys", {"scope": "read", "tags": "a/b"}, "tags"),
        ("/console/keys", {"scope": "read", "limit": "x"}, "limit"),
        ("/console/webhooks", {"url": "ftp://x.example", "event": "document.done"}, "url"),
        ("/console/webhooks", {"url": "http://127.0.0.1:9/"}, "event"),
        ("/console/memories", {"content": " "}, "content"),
        ("/console/memories", {"content": "x", "expires": "whenever"}, "expires"),
        ("/console/settings", {"keepVersions": "-1"}, "keepVersions"),
        ("/console/tags/tag", {"name": "notes", "title": "x" * 1_000}, "title"),
        ("/console/tags/merge", {"name": "notes", "into": ""}, "into"),
        ("/console/tags/questions", {"name": "notes", "question": ""}, "question"),
        ("/console/assistant", {"scope": "read", "tag": "a/b"}, "tag"),
        (f"{ROOMS}/new/web-crawler", {"m.startUrl": "ftp://x.example/"}, "m.startUrl"),
        (f"{ROOMS}/new/web-crawler", {"m.startUrl": "http://127.0.0.1:9/", "limit": "0"}, "limit"),
    ],
)
def test_the_page_names_the_field_that_is_wrong(
    me: httpx.Client, app: App, tenant: Tenant, path: str, sent: dict[str, Any], wrong: str
):
    add(app, tenant, "a text", tags=["notes"])
    answer = me.post(path, data=sent)

    assert answer.status_code == 400
    told = one(answer, "main .box[role=alert]")
    assert told.attributes["data-wrong"] == wrong
    # There is such a field, so a script can lead to it.
    assert tree(answer).css(f"form:not([role=search]) [name='{wrong}']:not([type=hidden])")


# --- what was done already ---------------------------------------------------------------------


def test_a_link_that_was_used_says_so_and_where_to_go_on(
    browse: Callable[..., httpx.Client],
    app: App,
    tenant: Tenant,
    key: str,
    cabinet: tuple[Cabinet, str],
):
    provider, url = cabinet
    http = browse(key, url)
    created = http.post(f"{ROOMS}/new/cabinet", data={"tags": "things"})
    link = one(http.get(created.headers["location"]), "main a.button").attributes["href"] or ""
    used = http.get(provider.authorization.consent(link))
    again = http.get(provider.authorization.consent(link))

    assert used.status_code == 303
    assert again.status_code == 400
    said = LexborHTMLParser(again.text).css_first("p")
    assert said is not None
    assert said.text().startswith("This link was used, is older than an hour")
    assert said.text().endswith("authorize the connection on its page in the console.")


@pytest.mark.parametrize("reach", [None, ["things", "others"]])
def test_who_goes_back_from_authorizing_and_sends_the_form_again_makes_no_second_connection(
    browse: Callable[..., httpx.Client],
    app: App,
    org: Org,
    cabinet: tuple[Cabinet, str],
    reach: list[str] | None,
):
    provider, url = cabinet
    http = browse(new_key(app, org, tags=reach)[1], url)

    def send(**form: str) -> str:
        answer = http.post(f"{ROOMS}/new/cabinet", data={"tags": "things", **form})
        return answer.headers["location"]

    first = send()
    assert send() == first
    others = [send(tags="things, others"), send(tags="others"), send(limit="5")]
    assert len({first, *others}) == 4
    link = one(http.get(first), "main a.button").attributes["href"] or ""
    agreed = http.get(provider.authorization.consent(link, user="ann@example.com"))
    assert http.get(agreed.headers["location"]).status_code == 303
    assert send() not in (first, *others)  # for another account


@pytest.mark.parametrize(("account", "says"), [(None, False), ("octo", True)])
def test_only_who_has_authorized_before_is_told_of_another_account(
    me: httpx.Client, app: App, tenant: Tenant, account: str | None, says: bool
):
    made = authorized(app, tenant, "token") if account else make(app, tenant, "github")
    shown = one(me.get(f"{ROOMS}/{made.id}?refused=refused"), "[role=alert]").text()

    assert "with fewer rights than needed. Leave everything ticked" in shown
    assert ("another account" in shown) == says


def test_what_another_tab_deleted_is_not_deleted_again(me: httpx.Client, app: App, tenant: Tenant):
    made = add(app, tenant, "a text")
    sent = {"action": "delete", "id": made.id, "after": "/console/documents"}
    once = me.get(me.post("/console/documents/apply", data=sent).headers["location"])
    twice = me.get(me.post("/console/documents/apply", data=sent).headers["location"])

    assert "1 document deleted for good." in body(once)
    assert "Nothing was done: what was selected is gone" in body(twice)


def test_a_connection_that_brings_the_same_is_a_link(me: httpx.Client, app: App, tenant: Tenant):
    one_of, other = make(app, tenant), make(app, tenant)
    page = me.get(f"{ROOMS}/{one_of.id}")

    link = one(page, "section[aria-label='What comes in twice'] a")
    assert link.attributes["href"] == f"{ROOMS}/{other.id}"
    assert f"Connection {other.id} brings the same into notes, too" in body(page)


def test_pages_that_show_a_secret_name_the_page_that_is_loaded_again(me: httpx.Client):
    key = me.post("/console/keys", data={"scope": "read"})
    hook = me.post("/console/webhooks", data=HOOK)
    rotated = me.post(
        (one(hook, "main a.button").attributes["href"] or "") + "/do", data={"action": "rotate"}
    )
    assistant = me.post("/console/assistant", data={"scope": "read"})

    for answer in (key, hook, rotated, assistant):
        behind = one(answer, "[data-once]").attributes["data-once"] or ""
        assert me.get(behind).status_code == 200


def test_who_cannot_authorize_is_told_what_to_set(
    browse: Callable[..., httpx.Client], app: App, tenant: Tenant, key: str
):
    providers = {name: it for name, it in app.config.providers.items() if name != "github"}
    bare = replace(app, config=app.config.model_copy(update={"providers": providers}))
    pending = make(app, tenant, "github", pending=True)
    done = authorized(app, tenant, "token")
    with console_site(bare) as url:
        http = browse(key, url)
        asked = http.get(f"{ROOMS}/{pending.id}/authorize")
        picking = http.get(f"{ROOMS}/{done.id}/pick")

    assert asked.status_code == 200
    assert picking.status_code == 400
    for answer, made in ((asked, pending), (picking, done)):
        assert "set RECOLLECT_GITHUB_CLIENT_ID and RECOLLECT_GITHUB_CLIENT_SECRET" in body(answer)
        assert "PATCH" not in body(answer)  # which is for programs
        assert tree(answer).css(f"main a[href='{ROOMS}/{made.id}']")
    assert one(asked, f"main a[href='{ROOMS}/new/github/application']")
