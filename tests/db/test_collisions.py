"""Of two transactions that wait for each other the server ends one: that is done again."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import LiteralString

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import TRIES, Database, Tx
from recollect.documents import NewDocument
from recollect.errors import Collided, Contended
from recollect.model import DocumentId, Status, Tenant, random_id
from recollect.orgs import tags
from recollect.sync import connections
from recollect.worker import tag_merges
from recollect.worker.processing import drain


def test_what_collides_is_done_again(database_url: str):
    both = threading.Barrier(2)
    began: list[str] = []

    def work(first: str, second: str) -> str:
        def write(tx: Tx) -> str:
            began.append(first)
            tx.execute("update rivals set n = n + 1 where name = %s", (first,))
            if began.count(first) == 1:
                both.wait(60)
            tx.execute("update rivals set n = n + 1 where name = %s", (second,))
            return first

        return base.write(write)

    with Database(database_url) as base, ThreadPoolExecutor(2) as pool:
        with base.begin() as tx:
            tx.execute("create table rivals (name text primary key, n int not null default 0)")
            tx.execute("insert into rivals values ('a'), ('b')")
        try:
            assert list(pool.map(work, "ab", "ba")) == ["a", "b"]
            with base.begin() as tx:
                rows = tx.execute("select n from rivals").fetchall()
            assert [row["n"] for row in rows] == [2, 2]
            assert 3 <= len(began) <= 1 + TRIES  # the one that was ended may be ended again
        finally:
            with base.begin() as tx:
                tx.execute("drop table rivals")


def test_what_collides_each_time_is_given_up(database_url: str):
    began: list[int] = []

    def collide(tx: Tx) -> None:
        began.append(1)
        tx.execute("do $$ begin raise exception using errcode = '40P01'; end $$")

    with Database(database_url) as base:
        with pytest.raises(Collided):
            base.write(collide)
        assert len(began) == TRIES


def test_what_may_have_been_kept_is_not_done_again(database_url: str):
    """Of 40003 nobody knows whether the server committed: an add would be doubled."""
    began: list[int] = []

    def end_unknown(tx: Tx) -> None:
        began.append(1)
        tx.execute("do $$ begin raise exception using errcode = '40003'; end $$")

    with Database(database_url) as base:
        with pytest.raises(Contended) as ended:
            base.write(end_unknown)
        assert not isinstance(ended.value, Collided)
        assert len(began) == 1


@contextmanager
def colliding_once(base: Database, table: LiteralString, ends: LiteralString) -> Generator[None]:
    """The first change of a row of the table that `ends` meets another transaction."""
    with base.begin() as tx:
        tx.execute("create sequence collisions")
        tx.execute(
            "create function collide() returns trigger language plpgsql as $$ begin"
            " if nextval('collisions') = 1 then raise exception using errcode = '40P01'; end if;"
            " return new; end $$"
        )
        tx.execute(
            f"create trigger collide before insert or update on {table}"
            f" for each row when ({ends}) execute function collide()"
        )
    try:
        yield
        with base.begin() as tx:
            row = tx.execute("select last_value as n from collisions").fetchone()
        assert row is not None
        assert row["n"] > 1
    finally:
        with base.begin() as tx:
            tx.execute("drop function collide cascade")
            tx.execute("drop sequence collisions")


@pytest.mark.parametrize("text", ["A heron.", "# A\n\n" + "Herons eat frogs. " * 2_000])
def test_no_attempt_at_a_document_counts_because_its_end_collides(
    app: App, tenant: Tenant, text: str
):
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content(text), ["a"])
        id = documents.add(tx, tenant, new, DocumentId(random_id())).id
    with colliding_once(app.db, "documents", "new.status = 'done'"):
        drain(app)
    with app.db.begin() as tx:
        found = documents.get(tx, tenant, id)
    assert (found.status, found.attempts) == (Status.DONE, 1)


def test_a_merge_that_collides_is_not_put_off(app: App, tenant: Tenant):
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content("A heron."), ["a"])
        id = documents.add(tx, tenant, new, DocumentId(random_id())).id
        begun = tags.begin_merge(tx, tenant, ["a"], "b", random_id())
    with colliding_once(app.db, "tag_merges", "new.finished_at is not null"):
        assert tag_merges.step(app)
    with app.db.begin() as tx:
        assert tags.merge(tx, tenant, begun.id).finished_at is not None
        assert documents.get(tx, tenant, id).container_tags == ["b"]
    assert not tag_merges.step(app)


@pytest.mark.parametrize("door", ["/v3/container-tags/merge", "/ns/a"])
def test_the_wish_to_merge_that_collides_is_done_again(
    app: App, tenant: Tenant, client: httpx.Client, door: str
):
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["a"])
    with colliding_once(app.db, "tag_merges", "new.finished_at is null"):
        if door == "/ns/a":
            answer = client.delete(door, params={"moveTo": "b"})
        else:
            body = {"containerTags": ["a"], "targetContainerTag": "b"}
            answer = client.post(door, json=body)
    assert answer.status_code == 202, answer.text
    assert tag_merges.step(app)


@pytest.mark.parametrize("door", ["/v3/connections/{}", "/ns/a/connectors/{}"])
def test_the_end_of_a_connection_that_collides_is_done_again(
    app: App, tenant: Tenant, client: httpx.Client, door: str
):
    site = {"containerTags": ["a"], "metadata": {"startUrl": "http://127.0.0.1:9/"}}
    connection = client.post("/v3/connections/web-crawler", json=site).json()["id"]
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content("A heron."), ["a"])
        id = documents.add(tx, tenant, new, DocumentId(random_id())).id
        tx.execute(
            "update documents set connection_id = %s, source_id = 's' where id = %s",
            (connection, id),
        )
    with colliding_once(app.db, "documents", "new.connection_id is null"):
        answer = client.delete(door.format(connection), params={"deleteDocuments": False})
    assert answer.status_code == 200, answer.text
    with app.db.begin() as tx:
        assert documents.get(tx, tenant, id).connection_id is None
        assert connections.find(tx, tenant) == []
