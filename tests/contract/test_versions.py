"""Older texts: kept where an organisation wants that, read and searched as of a time, and gone with
their document."""

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database, Tx
from recollect.documents import _versions
from recollect.model import Claim, Org, OrgId, Scope, Tenant
from recollect.orgs import orgs
from recollect.worker.processing import drain
from tests.conftest import eventually, plain_client
from tests.contract.calls import add, found, get, refused
from tests.documents.test_hidden_rows import waiting

LONG_AGO = "2001-01-01"
TABLES = ("versions", "version_chunks", "version_entries")


def keep(client: httpx.Client, number: int | None) -> None:
    assert client.patch("/v3/settings", json={"keepVersions": number}).status_code == 200


def edit(client: httpx.Client, app: App, id: str, content: str) -> None:
    assert client.patch(f"/v3/documents/{id}", json={"content": content}).status_code == 200
    drain(app)


def versions(client: httpx.Client, id: str) -> list[dict[str, Any]]:
    return client.get(f"/v3/documents/{id}/versions").json()["versions"]


def then(client: httpx.Client, id: str, when: str) -> dict[str, Any]:
    return client.get(f"/v3/documents/{id}", params={"asOf": when}).json()


def chunks(client: httpx.Client, id: str, when: str) -> list[str]:
    answer = client.get(f"/v3/documents/{id}/chunks", params={"asOf": when}).json()
    return [chunk["content"] for chunk in answer["chunks"]]


def rows(db: Database, table: str) -> int:
    with db.begin() as tx:
        row = tx.execute(f"select count(*) as n from {table}").fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row["n"]


def paragraphs(*words: str) -> str:
    """Of each word one, long enough to be a chunk of its own."""
    return "\n\n".join((f"{word} " * 150).strip() + "." for word in words)


@pytest.fixture
def kept(client: httpx.Client) -> httpx.Client:
    keep(client, 10)
    return client


def test_without_the_setting_nothing_is_kept(client: httpx.Client, app: App, db: Database):
    id = add(client, "The fee is ten euros.")
    drain(app)
    first = versions(client, id)[0]["knownFrom"]
    edit(client, app, id, "The fee is twenty euros.")

    assert [one["knownUntil"] for one in versions(client, id)] == [None]
    assert client.get(f"/v3/documents/{id}", params={"asOf": first}).status_code == 404
    assert found(client, "fee", asOf=first) == []
    assert [rows(db, table) for table in TABLES] == [0, 0, 0]


def test_each_text_is_read_as_it_was(kept: httpx.Client, app: App):
    id = add(kept, "# Fees\n\nThe fee is ten euros.", customId="fees")
    drain(app)
    edit(kept, app, id, "# Prices\n\nThe fee is twenty euros.")
    edit(kept, app, id, "# Prices\n\nThe fee is thirty euros.")

    third, second, first = versions(kept, id)
    assert [one["revision"] for one in (first, second, third)] == [1, 2, 3]
    assert (first["knownUntil"], second["knownUntil"]) == (second["knownFrom"], third["knownFrom"])
    assert third["knownUntil"] is None
    assert first["characters"] == len("# Fees\n\nThe fee is ten euros.")
    assert (first["title"], first["chunkCount"]) == ("Fees", 1)
    for one, title, fee in ((first, "Fees", "ten"), (second, "Prices", "twenty")):
        shown = then(kept, "fees", one["knownFrom"])
        assert (shown["title"], shown["status"]) == (title, "done")
        assert fee in shown["content"]
        assert fee in chunks(kept, id, one["knownFrom"])[0]
        [hit] = found(kept, "what is the fee", asOf=one["knownFrom"], includeFullDocs=True)
        assert fee in hit["chunks"][0]["content"]
        assert fee in hit["content"]
    assert "thirty" in then(kept, id, datetime.now(UTC).isoformat())["content"]
    before = client_error(kept, id, LONG_AGO)
    assert before == 404
    assert found(kept, "fee", asOf=LONG_AGO) == []


def test_a_text_is_found_in_its_time_though_the_clock_was_set_back(
    kept: httpx.Client, app: App, db: Database
):
    id = add(kept, "The fee is ten euros.")
    drain(app)
    with db.begin() as tx:
        tx.execute("update documents set text_since = text_since + interval '1 hour'")
    edit(kept, app, id, "The fee is twenty euros.")

    second, first = versions(kept, id)
    assert first["knownFrom"] < first["knownUntil"] == second["knownFrom"]
    assert "ten" in then(kept, id, first["knownFrom"])["content"]
    assert "twenty" in then(kept, id, second["knownFrom"])["content"]


def client_error(client: httpx.Client, id: str, when: str) -> int:
    return client.get(f"/v3/documents/{id}", params={"asOf": when}).status_code


def test_what_an_edit_took_out_is_found_then_and_not_now(kept: httpx.Client, app: App):
    id = add(kept, paragraphs("alpha", "zebra", "omega"))
    other = add(kept, paragraphs("zebra", "yonder"))
    drain(app)
    when = versions(kept, other)[0]["knownFrom"]
    edit(kept, app, id, paragraphs("alpha", "walrus", "omega"))

    assert [one["documentId"] for one in found(kept, "zebra walrus", docId=id)] == [id]
    assert "zebra" not in str(found(kept, "zebra", docId=id))
    assert {one["documentId"] for one in found(kept, "zebra", asOf=when)} == {id, other}
    [hit] = found(kept, "zebra", asOf=when, docId=id, onlyMatchingChunks=False)
    assert "walrus" not in str(hit)
    assert {c["position"] for c in hit["chunks"]} >= {0, 1}
    assert [one["documentId"] for one in found(kept, '"zebra zebra" -yonder', asOf=when)] == [id]
    assert found(kept, '"walrus walrus"', asOf=when) == []


def test_marks_hold_for_words_that_stand_nowhere_now(kept: httpx.Client, app: App):
    id = add(kept, "Green toads live here.")
    drain(app)
    edit(kept, app, id, "Blue frogs dwell there.")
    when = versions(kept, id)[1]["knownFrom"]

    for query, answers in {
        '"green toads"': [id],
        '"toads"': [id],
        '"toads green"': [],
        "live -toads": [],
        'live -"green toads"': [],
        'live -"toads green"': [id],
    }.items():
        shown = [one["documentId"] for one in found(kept, query, asOf=when)]
        assert shown == answers, query


def test_they_are_found_by_words_after_their_model_got_other_dimensions(
    kept: httpx.Client, app: App, db: Database
):
    id = add(kept, "Green toads live here.")
    drain(app)
    edit(kept, app, id, "Blue frogs dwell there.")
    when = versions(kept, id)[1]["knownFrom"]
    with db.begin() as tx:  # of before a reindex, which goes through the texts of today
        tx.execute("update version_entries set embedding = '[1,0,0]'")

    [hit] = found(kept, "toads", asOf=when)
    assert hit["chunks"][0]["similarity"] is None


def test_only_what_changed_is_kept_beside_the_index(kept: httpx.Client, app: App, db: Database):
    words = [f"word{n}" for n in range(12)]
    id = add(kept, paragraphs(*words))
    drain(app)
    total = rows(db, "entries")
    edit(kept, app, id, paragraphs(*words[:6], "different", *words[7:]))
    assert total > 4
    assert 1 <= rows(db, "version_entries") <= 3


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_any_history_is_read_and_found_as_it_was(kept: httpx.Client, app: App, seed: int):
    """Edits, reverts, changes of tags and metadata, in any order, on several documents."""
    chance = random.Random(seed)
    known = [add(kept, paragraphs(f"start{n}", "shared"), containerTags=["a"]) for n in range(3)]
    drain(app)
    texts = {id: [get(kept, id)["content"]] for id in known}
    moments = list[tuple[str, dict[str, tuple[str, list[str]]]]]()

    def note() -> None:
        when = datetime.now(UTC).isoformat()
        moments.append(
            (when, {id: (then(kept, id, when)["content"], chunks(kept, id, when)) for id in known})
        )
        for id in known:  # as of now is as it is
            assert moments[-1][1][id][0] == get(kept, id)["content"]

    note()
    for step in range(8):
        id = chance.choice(known)
        match chance.randrange(4):
            case 0:
                kept.patch(f"/v3/documents/{id}", json={"metadata": {"step": step}})
            case 1:
                edit(kept, app, id, chance.choice(texts[id]))
            case _:
                text = paragraphs(*(f"w{chance.randrange(9)}" for _ in range(5)))
                texts[id].append(text)
                edit(kept, app, id, text)
        note()
    for when, state in moments:
        for id, (text, pieces) in state.items():
            assert then(kept, id, when)["content"] == text
            assert chunks(kept, id, when) == pieces
            word = text.split()[0]
            [hit] = found(kept, word, asOf=when, docId=id)
            assert {c["content"] for c in hit["chunks"]} <= set(pieces)
            assert word in hit["chunks"][0]["content"]


def test_no_more_are_kept_than_wanted_and_none_when_it_is_turned_off(
    client: httpx.Client, app: App, db: Database
):
    keep(client, 2)
    id = add(client, paragraphs("one"))
    drain(app)
    for word in ("two", "three", "four"):
        edit(client, app, id, paragraphs(word))
    assert [one["revision"] for one in versions(client, id)] == [4, 3, 2]
    assert (rows(db, "versions"), rows(db, "version_entries")) == (2, 2)
    second = versions(client, id)[2]["knownFrom"]
    assert then(client, id, second)["content"].startswith("two")

    keep(client, 1)
    assert client_error(client, id, second) == 404
    assert found(client, "two", asOf=second) == []
    keep(client, None)
    assert len(versions(client, id)) == 1
    drain(app)
    assert [rows(db, table) for table in TABLES] == [0, 0, 0]
    edit(client, app, id, paragraphs("five"))
    assert len(versions(client, id)) == 1


def test_none_slips_in_while_it_is_turned_off(
    kept: httpx.Client, app: App, db: Database, monkeypatch: pytest.MonkeyPatch
):
    id = add(kept, paragraphs("one"))
    drain(app)
    turning = list[Future[None]]()
    keep_one = _versions.keep

    def turned_off_meanwhile(tx: Tx, claim: Claim, text: str) -> datetime | None:
        since = keep_one(tx, claim, text)
        turning.append(others.submit(keep, kept, 0))
        eventually(lambda: turning[0].done() or waiting(app))
        return since

    monkeypatch.setattr(_versions, "keep", turned_off_meanwhile)
    with ThreadPoolExecutor(1) as others:
        edit(kept, app, id, paragraphs("two"))
    [done] = turning
    done.result()
    assert len(versions(kept, id)) == 1
    drain(app)
    assert [rows(db, table) for table in TABLES] == [0, 0, 0]


def test_they_go_with_their_document(kept: httpx.Client, app: App, db: Database):
    id = add(kept, paragraphs("one"))
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, paragraphs("two"))
    assert rows(db, "versions") == 1
    kept.delete(f"/v3/documents/{id}")

    assert [rows(db, table) for table in TABLES] == [0, 0, 0]
    assert found(kept, "one", asOf=when) == []
    assert client_error(kept, id, when) == 404


def test_a_limited_key_sees_no_text_of_a_tag_that_is_not_its_own(
    kept: httpx.Client, app: App, db: Database, org: Org, live_url: str
):
    id = add(kept, "The secret is plum.", containerTags=["private"])
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, "There is no secret.")
    kept.patch(f"/v3/documents/{id}", json={"containerTags": ["shared"]})
    with db.begin() as tx:
        key = orgs.create_key(tx, org.id, scope=Scope.READ, tags=["shared"])[1]
    with plain_client(live_url, {"Authorization": f"Bearer {key}"}) as limited:
        assert len(versions(limited, id)) == 1
        assert client_error(limited, id, when) == 404
        assert found(limited, "plum", asOf=when) == []
    with db.begin() as tx:
        former = orgs.create_key(tx, org.id, scope=Scope.READ, tags=["private"])[1]
    with plain_client(live_url, {"Authorization": f"Bearer {former}"}) as limited:
        assert client_error(limited, id, when) == 404
        assert found(limited, "plum", asOf=when) == []


def test_another_organisation_sees_none(kept: httpx.Client, app: App, stranger: httpx.Client):
    id = add(kept, "The secret is plum.")
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, "There is no secret.")
    assert client_error(stranger, id, when) == 404
    assert stranger.get(f"/v3/documents/{id}/versions").status_code == 404
    assert found(stranger, "plum", asOf=when) == []


def test_a_merge_of_tags_takes_them_along(kept: httpx.Client, app: App):
    id = add(kept, paragraphs("one"), containerTags=["old"])
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, paragraphs("two"))
    body = {"containerTags": ["old"], "targetContainerTag": "new"}
    assert kept.post("/v3/container-tags/merge", json=body).status_code == 202
    drain(app)
    [hit] = found(kept, "one", asOf=when, containerTags=["new"])
    assert hit["documentId"] == id


def test_the_name_of_a_tag_goes_with_it_and_what_only_it_had(
    kept: httpx.Client, app: App, db: Database, limited: Callable[..., httpx.Client]
):
    moved = add(kept, "one apple", containerTags=["leaving"])
    shared = add(kept, "two apples", containerTags=["leaving", "other"])
    drain(app)
    for id in (moved, shared):
        edit(kept, app, id, "no apples")
    kept.patch(f"/v3/documents/{moved}", json={"containerTags": ["other"]}).raise_for_status()
    when = versions(kept, shared)[-1]["knownFrom"]

    kept.delete("/v3/container-tags/leaving").raise_for_status()
    drain(app)

    assert tags_of_versions(db) == [["other"]]
    assert "two" in then(kept, shared, when)["content"]
    kept.patch(f"/v3/documents/{shared}", json={"containerTags": ["other", "leaving"]})
    assert client_error(limited(tags=["leaving"]), shared, when) == 404


def test_what_a_limited_key_deletes_has_no_past_for_it_either(
    kept: httpx.Client, app: App, db: Database, limited: Callable[..., httpx.Client]
):
    id = add(kept, "one apple", containerTags=["mine", "other"])
    drain(app)
    edit(kept, app, id, "no apples")
    limited(tags=["mine"]).delete(f"/v3/documents/{id}").raise_for_status()
    assert tags_of_versions(db) == [["other"]]


def test_a_merge_renames_its_tags_also_on_texts_of_documents_that_left_them(
    kept: httpx.Client, app: App, db: Database
):
    id = add(kept, "one apple", containerTags=["old"])
    drain(app)
    edit(kept, app, id, "no apples")
    kept.patch(f"/v3/documents/{id}", json={"containerTags": ["other"]}).raise_for_status()
    body = {"containerTags": ["old"], "targetContainerTag": "new"}
    kept.post("/v3/container-tags/merge", json=body).raise_for_status()
    drain(app)
    assert tags_of_versions(db) == [["new"]]


def tags_of_versions(db: Database) -> list[list[str]]:
    with db.begin() as tx:
        return [row["container_tags"] for row in tx.execute("select container_tags from versions")]


def test_only_the_newest_of_filters_and_tags_that_it_has_both_times(kept: httpx.Client, app: App):
    id = add(kept, paragraphs("one"), containerTags=["a", "b"], metadata={"year": 1})
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, paragraphs("two"))
    kept.patch(f"/v3/documents/{id}", json={"containerTags": ["b", "c"], "metadata": {"year": 2}})
    assert [one["documentId"] for one in found(kept, "one", asOf=when, containerTags=["b"])] == [id]
    assert found(kept, "one", asOf=when, containerTags=["a"]) == []
    assert found(kept, "one", asOf=when, containerTags=["c"]) == []
    [hit] = found(kept, "one", asOf=when)
    assert hit["metadata"] == {"year": 2}


@pytest.mark.parametrize(
    "wrong", ["yesterday", "", "12", "2026-13-01", "9999-12-31T23:59:59-14:00"]
)
def test_what_is_no_time_is_refused(client: httpx.Client, wrong: str):
    refused(client.post("/v3/search", json={"q": "x", "asOf": wrong}), 400, "asOf")
    refused(client.get("/v3/documents/x", params={"asOf": wrong}), 400, "asOf")


def test_what_was_stored_before_is_known_since(kept: httpx.Client, app: App):
    id = add(kept, paragraphs("one"))
    assert kept.get(f"/v3/documents/{id}/versions").json() == {"versions": []}
    now = datetime.now(UTC)
    assert client_error(kept, id, now.isoformat()) == 404
    drain(app)
    later = (now + timedelta(days=1)).isoformat()
    assert then(kept, id, later)["content"].startswith("one")


def test_the_view_has_the_columns_of_the_table(db: Database):
    """A new column of `documents` belongs into the view of migration 0039, too."""
    with db.begin() as tx:
        found = tx.execute(
            "select table_schema as schema, table_name as name,"
            " array_agg(column_name::text order by column_name) as columns"
            " from information_schema.columns"
            " where table_schema in ('public', 'public_as_of')"
            " and table_name in ('documents', 'chunks', 'entries') group by 1, 2"
        ).fetchall()
    of = {(row["schema"], row["name"]): row["columns"] for row in found}
    for name in ("documents", "chunks", "entries"):
        assert of["public_as_of", name] == of["public", name]


def test_bytes_are_counted_for_those_who_may_see_them(
    kept: httpx.Client, app: App, db: Database, org: Org
):
    id = add(kept, "ä" * 10, containerTags=["a"])
    drain(app)
    edit(kept, app, id, "b")
    with db.begin() as tx:
        whole, foreign = Tenant(org.id), Tenant(org.id, tags=["b"])
        assert documents.bytes_kept(tx, whole) == 20
        assert documents.bytes_kept(tx, foreign) == 0
        assert documents.bytes_kept(tx, Tenant(OrgId("nobody"))) == 0


def test_passages_by_the_other_search(kept: httpx.Client, app: App):
    id = add(kept, "The fee is ten euros.")
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, "The fee is twenty euros.")

    body = {"q": "what is the fee", "searchMode": "documents", "threshold": 0.1}
    asked = {**body, "include": {"documents": True}, "asOf": when}
    [then_] = kept.post("/v4/search", json=asked).json()["results"]
    assert then_["chunk"] == "The fee is ten euros."
    assert "twenty" not in str(then_)
    [now] = kept.post("/v4/search", json=body).json()["results"]
    assert now["chunk"] == "The fee is twenty euros."


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v4/search", {}),
        ("/v4/search", {"searchMode": "hybrid"}),
        ("/v4/answer", {"memories": True}),
        ("/v4/answer", {"profile": True, "containerTag": "a"}),
        ("/v4/answer", {"asOf": "yesterday"}),
    ],
)
def test_memories_have_no_past(path: str, more: dict[str, Any], client: httpx.Client):
    body = {"q": "fee", "asOf": LONG_AGO, **more}
    refused(client.post(path, json=body), 400, "asOf")


def test_an_answer_rests_on_what_was_known(kept: httpx.Client, app: App):
    fact = {
        "containerTag": "sm_project_default",
        "memories": [{"content": "The fee is six euros."}],
    }
    id = add(kept, "The fee is ten euros.")
    drain(app)
    when = versions(kept, id)[0]["knownFrom"]
    edit(kept, app, id, "The fee is twenty euros.")
    assert kept.post("/v4/memories", json=fact).status_code == 201

    told = kept.post("/v4/answer", json={"q": "what is the fee", "asOf": when}).json()
    assert [one["content"] for one in told["sources"]] == ["The fee is ten euros."]
