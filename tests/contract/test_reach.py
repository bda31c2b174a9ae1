"""A key that is limited to container tags, and what it makes, reach those tags and nothing more.

Routes and fields that name a tag come from the OpenAPI document, so that a new one is asked, too.
"""

import io
import uuid
import zipfile
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from recollect.app import App
from recollect.db import Database
from recollect.db.schema import scripts
from recollect.model import Org, Scope
from recollect.orgs import orgs
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.contract.calls import add, get, refused, upload
from tests.fakes.shelf import Shelf, shelved

MINE, THEIRS = "mine", "theirs"
PLACES = {
    "provider": "shelf",
    "connection": "shelf",
    "tag": MINE,
    "namespace": MINE,
    "type": "documents",
}
"""What stands in a path; every other parameter there is an id."""


@dataclass(frozen=True, slots=True)
class Field:
    """A place of a request where a tag may be named."""

    method: str
    path: str
    place: str
    """`json`, `form`, `query` or `path`"""
    name: str
    several: bool
    example: dict[str, Any]

    def ask(self, http: httpx.Client, ids: dict[str, str], named: list[str]) -> httpx.Response:
        """With what is the key's own in `ids`, by the word in the path before it."""
        places = {**PLACES, self.name: named[-1]} if self.place == "path" else PLACES
        path = self.path
        for word in path.split("{")[1:]:
            name = word.split("}")[0]
            kind = path.split("/{")[0].rpartition("/")[2]
            path = path.replace(f"{{{name}}}", places.get(name, ids.get(kind, "0" * 22)))
        value: Any = named if self.several else named[-1]
        match self.place:
            case "json":
                others = {n: v for n, v in self.example.items() if n not in ("ids", self.name)}
                body = {n: v for n, v in others.items() if not n.startswith("containerTag")}
                if self.name == "targetContainerTag":
                    body["containerTags"] = [MINE]
                return http.request(self.method, path, json={**body, self.name: value})
            case "form":
                return upload(http, "a.txt", b"x", **{self.name: named[-1]})
            case "query":
                return http.request(
                    self.method,
                    path,
                    params={self.name: ",".join(named) if self.several else named[-1]},
                )
            case _:
                return http.request(self.method, path, json={})


def fields(openapi: dict[str, Any]) -> list[Field]:
    """All of them, as the OpenAPI document tells."""
    found: list[Field] = []
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            found += [
                Field(
                    method,
                    path,
                    given["in"],
                    given["name"],
                    given["name"] not in ("moveTo", "containerTag"),
                    {},
                )
                for given in operation.get("parameters", [])
                if given["in"] in ("path", "query") and names_tag(given["name"])
            ]
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = resolved(openapi, content["schema"])
                place = "json" if kind == "application/json" else "form"
                example = schema.get("example") or (schema.get("examples") or [{}])[0]
                for name, about in schema.get("properties", {}).items():
                    if names_tag(name):
                        several = "array" in str(about)
                        found.append(Field(method, path, place, name, several, example))
    return found


def names_tag(name: str) -> bool:
    return name in ("tag", "namespace", "moveTo") or "containertag" in name.lower()


def resolved(openapi: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    for one in [schema, *schema.get("anyOf", [])]:
        if "$ref" in one:
            return openapi["components"]["schemas"][one["$ref"].rpartition("/")[2]]
    return schema


@pytest.fixture(autouse=True)
def shelf() -> Generator[Shelf]:
    """A provider whose things carry tags, as S3's do by a pattern."""
    with shelved("tagged") as made:
        yield made


@pytest.fixture
def mine(limited: Callable[..., httpx.Client]) -> httpx.Client:
    """A key that may write one tag."""
    return limited(Scope.WRITE, tags=[MINE])


PATTERN = {"shelf": "tagged", "containerTagRegex": "(?<tag>.*)"}


def carrying(db: Database, org: Org) -> dict[str, list[str]]:
    """The tags of each document, by its text or title, as they are stored."""
    with db.begin() as tx:
        rows = tx.execute(
            "select coalesce(content, title) as name, container_tags from documents"
            " where org_id = %s",
            (org.id,),
        ).fetchall()
    return {row["name"]: row["container_tags"] for row in rows}


def tag_rows(db: Database, org: Org) -> dict[str, str | None]:
    """The entity context of each tag."""
    with db.begin() as tx:
        rows = tx.execute(
            "select name, entity_context from tags where org_id = %s", (org.id,)
        ).fetchall()
    return {row["name"]: row["entity_context"] for row in rows}


def test_no_field_of_any_route_takes_a_foreign_tag(
    client: httpx.Client, limited: Callable[..., httpx.Client], db: Database, org: Org
) -> None:
    asked = fields(client.get("/v3/openapi").json())
    theirs = add(client, "theirs alone", containerTag=THEIRS)
    before = get(client, theirs)
    everything = limited(Scope.ADMIN, tags=[MINE])

    ids = {
        "documents": add(client, "mine alone", containerTag=MINE),
        "connections": connect(client, containerTags=[MINE]),
        "webhooks": client.post(
            "/v3/webhooks", json={"url": "https://hooks.example.org/", "containerTags": [MINE]}
        ).json()["id"],
    }
    kept = carrying(db, org), tag_rows(db, org)

    wrong = [
        f"{field.method} {field.path} {field.name}={named}: {answer.status_code} {answer.text[:80]}"
        for field in asked
        for named in ([THEIRS], [MINE, THEIRS])
        if not forbidden(answer := field.ask(everything, ids, named))
    ]

    assert "\n".join(wrong) == ""
    assert len(asked) > 30
    assert get(client, theirs) == before
    assert (carrying(db, org), tag_rows(db, org)) == kept


def forbidden(answer: httpx.Response) -> bool:
    """A batch says so of each of its items."""
    if answer.status_code == 200 and "results" in answer.json():
        return {one.get("error") for one in answer.json()["results"]} == {"Forbidden"}
    return answer.status_code == 403


def test_no_item_of_a_batch_takes_a_foreign_tag(mine: httpx.Client, db: Database, org: Org) -> None:
    items = [
        {"content": "a", "containerTag": THEIRS},
        {"content": "b", "containerTags": [MINE, THEIRS]},
        {"content": "c", "containerTag": MINE},
    ]

    told = mine.post("/v3/documents/batch", json={"documents": items}).json()

    assert [one["status"] for one in told["results"]] == ["error", "error", "queued"]
    assert carrying(db, org) == {"c": [MINE]}


# --- connections -----------------------------------------------------------------------------


def connect(http: httpx.Client, **body: Any) -> str:
    answer = http.post("/v3/connections/shelf", json={"metadata": {"shelf": "tagged"}, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def synced(app: App, client: httpx.Client, id: str) -> None:
    assert client.post(f"/v3/connections/{id}/sync").status_code == 202
    syncs.drain(app)


def test_what_a_pattern_finds_is_cut_to_the_tags_of_the_key_that_made_the_connection(
    mine: httpx.Client, app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "poison", title="poison.md", tags=(THEIRS,))
    shelf.put("2", "fine", title="fine.md", tags=(MINE,))

    id = connect(mine, metadata=PATTERN)
    syncs.drain(app)

    assert carrying(db, org) == {"poison.md": [MINE], "fine.md": [MINE]}
    assert THEIRS not in tag_rows(db, org)
    seen = {one["id"]: one for one in mine.get(f"/v3/connections/{id}/items").json()["items"]}
    assert "'theirs'" in seen["1"]["detail"]
    assert seen["2"]["detail"] is None

    synced(app, mine, id)  # nothing is taken for changed because of what was cut

    run = mine.get(f"/v3/connections/{id}/sync-runs").json()[0]
    assert (run["changed"], run["added"]) == (0, 0)


def test_a_limited_key_that_changes_a_connection_narrows_it(
    client: httpx.Client, mine: httpx.Client, app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "poison", title="poison.md", tags=(THEIRS,))
    id = connect(client, containerTags=[MINE])
    answer = mine.patch(f"/v3/connections/{id}", json={"metadata": PATTERN})
    assert answer.status_code == 200, answer.text

    syncs.drain(app)

    assert carrying(db, org) == {"poison.md": [MINE]}


def test_two_limited_keys_leave_what_both_may_touch(
    limited: Callable[..., httpx.Client], app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "x", title="b", tags=("b",))
    shelf.put("2", "x", title="c", tags=("c",))
    one, other = limited(tags=[MINE, "b", "c"]), limited(tags=[MINE, "b", "d", "c"])
    third = limited(tags=[MINE, "b", "c", "e"])
    id = connect(one, metadata=PATTERN, containerTags=[MINE])
    fourth = limited(tags=[MINE, "c"])

    # It would write where this one may not, so it is not there for it.
    refused(fourth.patch(f"/v3/connections/{id}", json={"metadata": PATTERN}), 404)
    for http in (other, third):
        assert http.patch(f"/v3/connections/{id}", json={"metadata": PATTERN}).status_code == 200
    with db.begin() as tx:
        row = tx.execute("select reach from connections where id = %s", (id,)).fetchone()
    assert row is not None
    assert sorted(row["reach"]) == ["b", "c", MINE]
    syncs.drain(app)

    assert carrying(db, org) == {"b": [MINE, "b"], "c": [MINE, "c"]}


def test_a_connection_that_finds_tags_is_not_there_for_a_key_that_may_not_touch_them_all(
    client: httpx.Client, mine: httpx.Client, app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "x", title="a", tags=(THEIRS,))
    id = connect(client, metadata=PATTERN, containerTags=[MINE])
    syncs.drain(app)

    assert mine.post("/v3/connections/list", json={}).json() == []
    refused(mine.patch(f"/v3/connections/{id}", json={"paused": True}), 404)
    refused(mine.delete(f"/v3/connections/{id}"), 404)
    assert carrying(db, org) == {"a": [MINE, THEIRS]}


def test_an_unlimited_key_widens_only_by_naming_tags(
    client: httpx.Client, mine: httpx.Client, app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "x", title="a", tags=(THEIRS,))
    shelf.put("2", "x", title="b", tags=("third",))
    id = connect(mine, metadata=PATTERN)
    assert client.patch(f"/v3/connections/{id}", json={"metadata": PATTERN}).status_code == 200
    syncs.drain(app)
    assert carrying(db, org) == {"a": [MINE], "b": [MINE]}

    client.patch(f"/v3/connections/{id}", json={"containerTags": [MINE, THEIRS]})
    syncs.drain(app)

    assert carrying(db, org) == {"a": [MINE, THEIRS], "b": [MINE, THEIRS]}
    refused(mine.get(f"/v3/connections/{id}"), 404)


def test_a_merge_takes_the_reach_along(
    client: httpx.Client, mine: httpx.Client, app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "x", title="a", tags=(THEIRS,))
    connect(mine, metadata=PATTERN)
    syncs.drain(app)
    body = {"containerTags": [MINE], "targetContainerTag": "whole"}
    assert client.post("/v3/container-tags/merge", json=body).status_code == 202
    drain(app)
    syncs.drain(app)
    drain(app)

    assert carrying(db, org) == {"a": ["whole"]}


def test_deleting_a_connection_leaves_documents_that_others_have(
    client: httpx.Client, mine: httpx.Client, app: App, db: Database, org: Org, shelf: Shelf
) -> None:
    shelf.put("1", "x", title="a")
    shelf.put("2", "x", title="b")
    id = connect(mine)
    syncs.drain(app)
    drain(app)
    [shared] = [
        one["id"]
        for one in client.post("/v3/documents/list", json={}).json()["memories"]
        if one["title"] == "a"
    ]
    client.patch(f"/v3/documents/{shared}", json={"containerTags": [MINE, THEIRS]})

    assert mine.delete(f"/v3/connections/{id}").status_code == 200

    assert list(carrying(db, org).values()) == [[THEIRS]]
    assert get(client, shared)["connectionId"] is None


@pytest.fixture
def empty_database(postgres_url: str) -> Generator[str]:
    """One without any table."""
    plain = f"empty_{uuid.uuid4().hex[:12]}"
    name = sql.Identifier(plain)
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(sql.SQL("create database {}").format(name))
        yield make_conninfo(postgres_url, dbname=plain)
        session.execute(sql.SQL("drop database {} with (force)").format(name))


def test_what_limited_keys_made_before_gets_its_reach_from_the_audit_log(
    empty_database: str,
) -> None:
    with psycopg.connect(empty_database) as session:
        for name, script in scripts():
            if name < "0026":
                session.execute(script)
        session.execute("insert into orgs (id, name, plan) values ('o', 'o', 'free')")
        session.execute(
            "insert into keys (id, org_id, name, hash, scope, tags) values"
            " ('k', 'o', '', 'k', 'write', '{mine,more}'), ('a', 'o', '', 'a', 'admin', null)"
        )
        session.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit,"
            " metadata, state) select id, 'o', 's3', tags, 1, '{}', 'ready' from (values"
            " ('of k', array['mine']), ('of k, changed', array['theirs']), ('of a', array['mine']),"
            " ('of old', array['mine'])) made (id, tags)"
        )
        session.execute(
            "insert into audit_log (org_id, actor, action, object, result) values"
            " ('o', 'key:k', 'connection.created', 'of k', 'done'),"
            " ('o', 'key:k', 'connection.created', 'of k, changed', 'done'),"
            " ('o', 'key:k', 'connection.deleted', 'of a', 'refused'),"
            " ('o', 'key:a', 'connection.created', 'of a', 'done')"
        )
        [script] = [script for name, script in scripts() if name.startswith("0026")]
        session.execute(script)
        rows = session.execute("select id, reach from connections").fetchall()

    assert {id: reach and sorted(reach) for id, reach in rows} == {
        "of k": ["mine", "more"],
        "of k, changed": ["mine", "more", "theirs"],
        "of a": None,
        "of old": None,
    }


# --- what a key opened ends with it -----------------------------------------------------------


def test_who_waits_for_a_document_loses_it_with_the_key(
    client: httpx.Client, db: Database, org: Org, with_key: Callable[[str], httpx.Client]
) -> None:
    id = add(client)
    with db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id)
    with ThreadPoolExecutor() as pool, db.begin() as tx:
        # Its key is checked, and its first look at the document has to wait for us.
        tx.execute("lock table documents in access exclusive mode")
        answer = pool.submit(with_key(secret).get, f"/v3/documents/{id}?wait=60")
        eventually(lambda: waits_for_a_table(db))
        orgs.revoke_key(tx, key.id)

    refused(answer.result(), 401)


def waits_for_a_table(db: Database) -> bool:
    with db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from pg_locks l join pg_class c on c.oid = l.relation"
            " where not l.granted and c.relname = 'documents'"
        ).fetchone()
    return row is not None and row["n"] > 0


# --- documents with tags of others ------------------------------------------------------------


@pytest.fixture
def shared(client: httpx.Client) -> str:
    """A document of both tags, each with a context of its own."""
    for tag in (MINE, THEIRS):
        add(client, f"in {tag}", containerTag=tag, entityContext=f"of {tag}")
    return add(client, "of both", containerTags=[MINE, THEIRS], customId="both")


def test_no_way_to_a_shared_document_rewrites_the_context_of_a_foreign_tag(
    mine: httpx.Client, shared: str, db: Database, org: Org
) -> None:
    talk = {"role": "user", "content": "hello"}
    answers = [
        mine.patch(f"/v3/documents/{shared}", json={"entityContext": "evil"}),
        mine.patch(f"/v3/documents/{shared}", json={"entityContext": "evil", "containerTag": MINE}),
        mine.post(
            "/v3/documents",
            json={"content": "of both", "customId": "both", "entityContext": "evil"},
        ),
        mine.post(
            "/v3/documents/batch",
            json={"documents": [{"content": "x", "customId": "both"}], "entityContext": "evil"},
        ),
        upload(mine, "a.txt", b"x", customId="both", entityContext="evil"),
        mine.post(
            "/v4/conversations",
            json={"conversationId": "both", "messages": [talk], "entityContext": "evil"},
        ),
    ]

    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert tag_rows(db, org) == {MINE: "evil", THEIRS: "of theirs"}


def test_a_shared_document_shows_a_limited_key_its_own_tags_only(
    mine: httpx.Client, shared: str, app: App
) -> None:
    drain(app)
    answers = [
        mine.get(f"/v3/documents/{shared}"),
        mine.get(f"/v3/documents/{shared}/chunks"),
        mine.post("/v3/documents/list", json={}),
        mine.get("/v3/documents/processing?view=all"),
        mine.patch(f"/v3/documents/{shared}", json={"metadata": {"a": 1}}),
        mine.post("/v3/search", json={"q": "both", "includeFullDocs": True}),
        mine.post(
            "/v4/search", json={"q": "both", "searchMode": "hybrid", "include": {"documents": True}}
        ),
        mine.get("/v3/container-tags/list"),
    ]

    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert [answer.url.path for answer in answers if THEIRS in answer.text] == []
    assert answers[0].json()["containerTags"] == [MINE]
    assert all(shared in answer.text for answer in answers if "search" in answer.url.path)


@pytest.mark.parametrize("order", [[MINE, THEIRS], [THEIRS, MINE]], ids=["first", "second"])
def test_tags_of_others_stay_whatever_a_limited_key_names(
    client: httpx.Client, limited: Callable[..., httpx.Client], order: list[str]
) -> None:
    id = add(client, "of both", containerTags=order, customId="both")
    http = limited(Scope.WRITE, tags=[MINE, "more"])

    assert http.patch(f"/v3/documents/{id}", json={"containerTags": ["more"]}).status_code == 200

    expected = {MINE: ["more", THEIRS], THEIRS: [THEIRS, "more"]}[order[0]]
    assert get(client, id)["containerTags"] == expected
    assert get(http, id)["containerTags"] == ["more"]


@pytest.mark.parametrize(
    "delete",
    [
        lambda http, id: http.delete(f"/v3/documents/{id}"),
        lambda http, id: http.delete("/v3/documents/both"),
        lambda http, id: http.request("DELETE", "/v3/documents/bulk", json={"ids": [id]}),
        lambda http, id: http.request("DELETE", "/v3/documents/bulk", json={"filepath": "/x/"}),
        lambda http, id: http.request(
            "DELETE", "/v3/documents/bulk", json={"containerTags": [MINE]}
        ),
        lambda http, id: http.delete(f"/v3/container-tags/{MINE}"),
    ],
    ids=["id", "customId", "bulk ids", "bulk path", "bulk tags", "tag"],
)
def test_what_a_limited_key_deletes_stays_for_the_others(
    client: httpx.Client,
    mine: httpx.Client,
    delete: Callable[[httpx.Client, str], httpx.Response],
    app: App,
) -> None:
    shared = add(client, "of both", containerTags=[MINE, THEIRS], customId="both", filepath="/x/y")
    drain(app)

    assert delete(mine, shared).status_code in (200, 204)

    refused(mine.get(f"/v3/documents/{shared}"), 404)
    kept = get(client, shared)
    assert (kept["containerTags"], kept["content"]) == ([THEIRS], "of both")
    hits = client.post("/v3/search", json={"q": "both", "containerTags": [THEIRS]}).json()
    assert [hit["documentId"] for hit in hits["results"]] == [shared]
    gone = client.post("/v3/search", json={"q": "both", "containerTags": [MINE]}).json()
    assert shared not in [hit["documentId"] for hit in gone["results"]]


def zipped(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.txt", text)
    return data.getvalue()


def test_what_is_done_to_an_archive_takes_no_foreign_tag_off_a_file_of_it(
    client: httpx.Client, limited: Callable[..., httpx.Client], app: App
) -> None:
    http = limited(Scope.WRITE, tags=[MINE, "more"])
    labels = {"customId": "both", "containerTags": MINE}
    archive = upload(http, "a.zip", zipped(one="the first", two="the second"), **labels).json()
    drain(app)
    files = {
        one["title"]: one["id"] for one in client.post("/v3/documents/list").json()["memories"]
    }
    [id] = [id for title, id in files.items() if "one" in (title or "")]
    client.patch(f"/v3/documents/{id}", json={"containerTags": [MINE, THEIRS]})

    refused(http.patch(f"/v3/documents/{archive['id']}", json={"containerTags": ["more"]}), 403)
    refused(http.delete(f"/v3/documents/{archive['id']}"), 403, archive["id"])
    refused(http.delete(f"/v3/container-tags/{MINE}"), 403)
    wider = {**labels, "containerTags": "more"}
    upload(http, "a.zip", zipped(one="the first"), **wider)
    again = upload(http, "a.zip", zipped(one="the first, changed", two="the second"), **labels)
    assert again.status_code == 200
    drain(app)

    assert get(client, id)["containerTags"] == [MINE, THEIRS]
    assert get(client, id)["content"] == "the first, changed"
    assert http.delete(f"/v3/documents/{id}").status_code == 204
    assert get(client, id)["containerTags"] == [THEIRS]


def test_a_deletion_that_would_double_a_customid_for_others_is_refused_without_naming_their_tag(
    client: httpx.Client, mine: httpx.Client
) -> None:
    add(client, "theirs", containerTag=THEIRS, customId="same")
    shared = add(client, "of both", containerTags=[MINE, "x"], customId="same")
    client.patch(f"/v3/documents/{shared}", json={"containerTags": [MINE, THEIRS]})

    told = refused(mine.delete(f"/v3/documents/{shared}"), 400, "same")

    assert THEIRS not in str(told)
    assert get(client, shared)["containerTags"] == [MINE, THEIRS]


def test_a_renaming_that_is_taken_in_a_foreign_tag_does_not_name_it(
    client: httpx.Client, mine: httpx.Client
) -> None:
    add(client, "theirs", containerTag=THEIRS, customId="same")
    shared = add(client, "of both", containerTags=[THEIRS, MINE], customId="other")

    told = refused(mine.patch(f"/v3/documents/{shared}", json={"customId": "same"}), 400, "same")

    assert THEIRS not in str(told)
