"""GET /v3/documents/events: whoever listens need not ask."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.events import streams
from recollect.model import Org, Stage
from recollect.orgs import orgs
from recollect.worker.processing import drain
from tests.conftest import eventually, serving
from tests.contract.calls import add, refused, upload

Event = dict[str, Any]


def parsed(lines: Iterator[str]) -> Generator[Event]:
    event: Event = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line == "" and "data" in event:
            yield event
            event = {}
        elif name in ("event", "id"):
            event[name] = value
        elif name == "data":
            event |= {"data": value} | {f"of {k}": v for k, v in json.loads(value).items()}


@contextmanager
def listening(http: httpx.Client, last: str = "", **query: str) -> Generator[Iterator[Event]]:
    """Events from when it is entered; nothing that happens in the block is missed."""
    headers = {"Last-Event-ID": last} if last else {}
    path = "/v3/documents/events"
    with http.stream("GET", path, params=query, headers=headers, timeout=120) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        while next(lines) != ": listening":
            pass
        yield parsed(lines)


def states(events: Iterator[Event], until: str) -> list[tuple[str, str, str | None]]:
    """What is told up to the first event of that status: id, status and stage."""
    seen: list[tuple[str, str, str | None]] = []
    for event in events:
        assert event["event"] == "document"
        seen.append((event["of id"], event["of status"], event["of processingStage"]))
        if event["of status"] == until:
            return seen
    raise AssertionError(f"the stream ended after {seen}")


def test_every_change_of_a_document_is_told(client: httpx.Client, app: App):
    with listening(client) as events:
        id = add(client)
        drain(app)
        seen = states(events, "done")
        assert client.delete(f"/v3/documents/{id}").status_code == 204
        gone = states(events, "deleted")

    assert {name for name, _, _ in [*seen, *gone]} == {id}
    assert [status for _, status, _ in seen] == ["queued", *["processing"] * 4, "done"]
    assert [stage for _, _, stage in seen[1:-1]] == [
        "extracting", "chunking", "embedding", "indexing",
    ]  # fmt: skip


def test_it_says_the_words_of_the_published_clients_where_they_are_set(app: App, key: str):
    config = app.config.model_copy(update={"status_words": "sdk"})
    headers = {"Authorization": f"Bearer {key}"}
    with (
        serving(replace(app, config=config)) as url,
        httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as http,
    ):
        stages = ["extracting", "chunking", "embedding", "indexing"]
        with listening(http) as events:
            add(http)
            drain(app)
            seen = states(events, "done")
        assert [status for _, status, _ in seen] == ["queued", *stages, "done"]
        assert [stage for _, _, stage in seen] == [None, *stages, None]

        # So does what is told to one who comes back.
        id = add(http, "another")
        with app.db.begin() as tx:
            [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
            documents.advance(tx, claim, Stage.CHUNKING, lease=timedelta(minutes=1))
        with listening(http, last=str(int(time.time() * 1000))) as events:
            assert (id, "chunking", "chunking") in states(events, "chunking")
        worked = http.get(f"/v3/documents/{id}").json()
        assert (worked["status"], worked["processingStage"]) == ("chunking", "chunking")


def test_a_failure_is_told(client: httpx.Client, app: App):
    with listening(client) as events:
        id = upload(client, "broken.pdf", b"%PDF-1.7\nthis is no PDF").json()["id"]
        drain(app)
        assert states(events, "failed")[-1] == (id, "failed", None)


def test_only_what_the_key_may_see_and_the_query_asks_for(
    client: httpx.Client,
    stranger: httpx.Client,
    limited: Callable[..., httpx.Client],
    app: App,
):
    with (
        listening(client) as all_of_it,
        listening(client, containerTags="team:*,x") as asked,
        listening(limited(tags=["b"])) as allowed,
        listening(stranger) as foreign,
    ):
        plain = add(client, "one")
        both = add(client, "two", containerTags=["team:a", "x"])
        other = add(client, "three", containerTag="b")
        theirs = add(stranger, "four")
        drain(app)
        for events, known in (
            (all_of_it, {plain, both, other}), (asked, {both}), (allowed, {other}),
            (foreign, {theirs}),
        ):  # fmt: skip
            done: set[str] = set()
            while done != known:
                done |= {name for name, _, _ in states(events, "done")}
                assert done <= known

    wrong = limited(tags=["b"]).get("/v3/documents/events", params={"containerTags": "a"})
    refused(wrong, 403)


def test_a_document_that_leaves_the_tags_is_deleted_for_those_who_hear_of_them(
    client: httpx.Client, limited: Callable[..., httpx.Client], app: App
):
    own = limited(tags=["a", "b"])
    with (
        listening(own) as events,
        listening(own, containerTags="b") as asked,
        listening(client) as all_of_it,
    ):
        id = add(client, containerTags=["a", "c"])
        drain(app)
        for tags in (["b"], ["c"], ["a"]):
            change = {"containerTags": tags}
            client.patch(f"/v3/documents/{id}", json=change).raise_for_status()
        client.delete(f"/v3/documents/{id}").raise_for_status()

        states(events, "done")
        assert [next(events)["of status"] for _ in range(3)] == ["deleted", "done", "deleted"]
        assert [next(asked)["of status"] for _ in range(2)] == ["done", "deleted"]
        states(all_of_it, "done")
        assert next(all_of_it)["of status"] == "deleted"


def test_who_comes_back_is_told_what_happened_meanwhile(client: httpx.Client, app: App):
    with listening(client) as events:
        first = add(client, "one")
        last = next(events)["id"]
    drain(app)
    second = add(client, "two")
    with listening(client, last=last) as events:
        told = {(e["of id"], e["of status"]) for e in (next(events), next(events))}

    assert told == {(first, "done"), (second, "queued")}
    with listening(client, last="1") as events:
        assert next(events)["event"] == "gap"
        assert {next(events)["of id"] for _ in range(2)} == {first, second}


def ids(http: httpx.Client) -> Generator[int]:
    """The ids of a stream that tells of no document."""
    with http.stream("GET", "/v3/documents/events", timeout=120) as answer:
        for line in answer.iter_lines():
            assert not line.startswith("data")
            if line.startswith("id: "):
                yield int(line.removeprefix("id: "))


def test_who_was_cut_off_before_the_first_event_is_told_what_happened_meanwhile(
    client: httpx.Client, app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "BEAT", timedelta())
    old = add(client, "long before")
    with app.db.begin() as tx:
        tx.execute("update documents set updated_at = now() - interval '1 h' where id = %s", (old,))
    quiet = ids(client)
    greeting, *alive = (next(quiet) for _ in range(3))
    quiet.close()
    new = add(client, "one")

    assert greeting <= min(alive)
    for last in (greeting, *alive):
        with listening(client, last=str(last)) as events:
            assert next(events)["of id"] == new


def test_who_comes_back_hears_of_a_gap_if_something_may_be_gone(
    client: httpx.Client,
    stranger: httpx.Client,
    limited: Callable[..., httpx.Client],
    app: App,
):
    id, moves = add(client, "one", containerTag="a"), add(client, "two", containerTag="a")
    drain(app)
    now = str(int(time.time() * 1000))
    with listening(client, last=now) as whole:
        assert [next(whole)["event"] for _ in range(2)] == ["document"] * 2
    # What leaves the tags leaves no receipt.
    client.patch(f"/v3/documents/{moves}", json={"containerTag": "b"}).raise_for_status()
    for http, tags in ((limited(tags=["a"]), ""), (client, "a")):
        with listening(http, last=now, containerTags=tags) as some:
            assert next(some)["event"] == "gap"
            assert next(some)["of id"] == id
    client.delete(f"/v3/documents/{id}").raise_for_status()
    with listening(client, last=now) as whole:
        assert next(whole)["event"] == "gap"
        assert next(whole)["of id"] == moves
    with listening(stranger, last=now) as foreign:
        theirs = add(stranger, "three")
        assert next(foreign)["of id"] == theirs


def test_who_comes_back_after_the_clock_was_set_back_hears_of_a_gap(client: httpx.Client, app: App):
    id = add(client, "one")
    drain(app)

    with listening(client, last=str(int(time.time() * 1000) + 3_600_000)) as events:
        assert next(events)["event"] == "gap"
        assert next(events)["of id"] == id


def test_who_comes_back_to_a_machine_whose_clock_is_behind_misses_nothing(
    client: httpx.Client, app: App, db: Database, monkeypatch: pytest.MonkeyPatch
):
    with listening(client) as events:
        first = add(client, "one")
        last = next(events)["id"]
    drain(app)
    with db.begin() as tx:
        tx.execute(
            "update documents set updated_at = now() - interval '10 min' where id = %s", (first,)
        )
    last = str(int(last) - 12 * 60_000)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)

    with listening(client, last=last) as events:
        told = next(events)

    assert (told["of id"], told["of status"]) == (first, "done")


def listeners(database_url: str) -> int:
    """Connections that listen for what happens to documents."""
    with psycopg.connect(database_url) as session:
        row = session.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and (query ilike 'listen%documents%' or query ilike 'delete from watchers%')"
        ).fetchone()
    assert row is not None
    return row[0]


def test_one_connection_serves_all_streams_and_ends_with_the_last(
    client: httpx.Client, live_url: str, key: str, db: Database, database_url: str
):
    # One of an earlier test may still be about to end.
    eventually(lambda: listeners(database_url) == 0)
    with listening(client) as one, listening(client) as two, listening(client) as three:
        assert listeners(database_url) == 1
        id = add(client, "one")
        assert {next(events)["of id"] for events in (one, two, three)} == {id}
    eventually(lambda: listeners(database_url) == 0)
    with listening(client) as events:
        again = add(client, "another")
        assert next(events)["of id"] == again


def test_a_stream_whose_client_left_before_it_began_is_forgotten(database_url: str):
    async def run() -> None:
        events = streams.Events(database_url)

        async def told(source: streams.Stream) -> AsyncGenerator[str]:
            try:
                yield str(await source.get())
            finally:
                events.leave(source)

        answer = told(await events.subscribe())
        assert listeners(database_url) == 1
        del answer
        await asyncio.to_thread(eventually, lambda: listeners(database_url) == 0, timeout=10)

    eventually(lambda: listeners(database_url) == 0)
    asyncio.run(run())


def test_streams_end_when_the_database_goes_away(client: httpx.Client, database_url: str):
    with listening(client) as events, psycopg.connect(database_url, autocommit=True) as session:
        session.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where query ilike 'listen%documents%' and datname = current_database()"
        )
        assert list(events) == []
    with listening(client) as events:
        id = add(client)
        assert next(events)["of id"] == id


def test_it_asks_for_a_key(with_key: Callable[[str], httpx.Client], db: Database, org: Org):
    refused(with_key("").get("/v3/documents/events"), 401)
    with db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id)
        orgs.revoke_key(tx, key.id)
    refused(with_key(secret).get("/v3/documents/events"), 401)


def test_a_stream_ends_with_its_key(
    with_key: Callable[[str], httpx.Client],
    db: Database,
    org: Org,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(streams, "LOOK", timedelta(seconds=0.1))
    with db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id)
    with listening(with_key(secret)) as events:
        with db.begin() as tx:
            orgs.revoke_key(tx, key.id)
        assert list(events) == []
