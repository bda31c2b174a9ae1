"""Every form of the console, found by a walk over its routes, against who may not send it, against
ids of others, and against odd input."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, LiteralString, cast
from urllib.parse import quote

import httpx
import pytest

from recollect import console
from recollect.app import App
from recollect.console._room import SignedInPage
from recollect.db import Database
from recollect.model import Org, Plan, Scope, Tenant
from recollect.orgs import orgs
from tests.console.test_console import add, browse, me, new_key, site

__all__ = ["browse", "me", "site"]
NAME = re.compile(r"""\bname="([A-Za-z_.]+)\"""")
TEMPLATES = Path(console.__file__).with_name("templates")
FIELDS = sorted({name for file in TEMPLATES.iterdir() for name in NAME.findall(file.read_text())})
PATHS = sorted(
    route.path
    for included in console.router.routes
    for route in cast("Any", included).original_router.routes
    if isinstance(route, SignedInPage)
    and "POST" in (route.methods or ())
    and ":path" not in route.path
)
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


def test_the_walk_finds_the_forms():
    assert len(PATHS) > 30
    assert {"content", "tag", "name"} <= set(FIELDS)


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
