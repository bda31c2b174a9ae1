"""Documents over HTTP: every row of the contract on adding, reading, changing and deleting."""

import json
import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.documents import figures
from recollect.model import Org, Scope, Stage, Tenant
from recollect.worker.processing import drain, process
from tests.contract.calls import add, found, get, listed, refused, rows, upload
from tests.fakes.embedder import WordEmbedder

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ID = re.compile(r"[A-Za-z0-9]{22}")
BROKEN_PDF = b"%PDF-1.7\nthis is no PDF"
LINES = [f"Line {n} tells of the {n}th day on the river." for n in range(60)]
CHAT = "\n".join(LINES)
REQUIRED_OF_GET = {
    "id", "status", "type", "title", "summary", "content", "customId", "metadata", "connectionId",
    "source", "filepath", "taskType", "dreamingStatus", "latestRevision", "raw", "ogImage",
    "createdAt", "updatedAt", "containerTags", "containerTag", "url", "spatialPoint",
    "tombstonedAt", "activeContentUpdateId", "processingStage",
}  # fmt: skip
REQUIRED_OF_LIST = {
    "id", "status", "type", "title", "summary", "customId", "metadata", "connectionId", "filepath",
    "createdAt", "updatedAt", "containerTags", "containerTag", "url", "processingStage",
}  # fmt: skip

AGAIN = {"x-stainless-retry-count": "1"}
"""what the published clients say when they send a request again"""


def test_an_added_document_can_be_read_the_moment_the_answer_is_there(client: httpx.Client):
    answer = client.post("/v3/documents", json={"content": "Herons eat frogs."})
    written = answer.json()

    assert answer.status_code == 200
    assert set(written) == {"id", "status"}
    assert written["status"] == "queued"
    assert ID.fullmatch(written["id"])
    assert get(client, written["id"])["content"] == "Herons eat frogs."
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"


def test_a_document_has_every_field_of_the_contract(client: httpx.Client, app: App):
    id = add(
        client,
        "# The heron\n\nHerons eat frogs.",
        customId="heron/1",
        containerTag="birds",
        containerTags=["water", "birds"],
        metadata={"text": "x", "whole": 7, "part": 1.5, "flag": True},
        filepath="/birds/heron.md",
        taskType="superrag",
        documentDate="2026-01-31",
        dreaming="instant",
        entityContext="about birds",
        filterByMetadata={"a": "b"},
        unheardOf={"deep": [1]},
        summary=None,
    )
    before = get(client, id)
    drain(app)
    after = get(client, id)

    assert set(before) >= REQUIRED_OF_GET
    assert before["status"] == "queued"
    assert before["dreamingStatus"] == "dreaming"
    assert before["activeContentUpdateId"]
    assert "errorCode" not in before
    assert "memories" not in before
    expected = {
        "id": id,
        "status": "done",
        "type": "text",
        "title": "The heron",
        "summary": None,
        "content": "# The heron\n\nHerons eat frogs.",
        "url": None,
        "customId": "heron/1",
        "containerTags": ["birds", "water"],
        "containerTag": "birds",
        "metadata": {"text": "x", "whole": 7, "part": 1.5, "flag": True},
        "connectionId": None,
        "source": "api",
        "filepath": "/birds/heron.md",
        "taskType": "superrag",
        "documentDate": "2026-01-31T00:00:00.000Z",
        "dreamingStatus": "done",
        "latestRevision": 1,
        "activeContentUpdateId": None,
        "tombstonedAt": None,
        "raw": None,
        "ogImage": None,
        "spatialPoint": None,
        "processingStage": None,
    }
    assert expected.items() <= after.items()
    assert TIMESTAMP.fullmatch(after["createdAt"])
    assert after["updatedAt"] > after["createdAt"]
    listed_document = listed(client)[0]
    assert set(listed_document) == REQUIRED_OF_LIST
    assert listed_document.items() <= after.items()


def test_null_is_the_same_as_absent(client: httpx.Client):
    id = add(client, "null", customId=None, containerTag=None, containerTags=None, metadata=None)

    assert get(client, id)["metadata"] is None
    assert get(client, id)["containerTags"] == ["sm_project_default"]


def test_metadata_arrays_are_a_setting(served: Callable[..., httpx.Client]):
    liberal = served()
    id = add(liberal, metadata={"who": ["ann", "bob"]})

    assert get(liberal, id)["metadata"] == {"who": ["ann", "bob"]}
    holds = {"AND": [{"key": "who", "value": "bob", "filterType": "array_contains"}]}
    assert [d["id"] for d in listed(liberal, filters=holds)] == [id]
    refused(
        served(metadata_arrays="refuse").post(
            "/v3/documents", json={"content": "x", "metadata": {"who": ["ann"]}}
        ),
        400,
        "arrays are not allowed",
    )


def test_status_and_stage_while_it_is_worked_on(
    client: httpx.Client, served: Callable[..., httpx.Client], app: App
):
    id = add(client)
    with app.db.begin() as tx:
        [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
        documents.advance(tx, claim, Stage.EMBEDDING, lease=timedelta(minutes=1))

    seen = get(client, id)
    assert (seen["status"], seen["processingStage"]) == ("processing", "embedding")
    assert get(served(status_words="sdk"), id)["status"] == "embedding"
    assert [d["id"] for d in listed(client, status="processing")] == [id]
    assert [d["id"] for d in listed(client, status="chunking")] == [id]
    assert listed(client, status="done") == []


def test_a_failed_document_says_why_and_stays(client: httpx.Client, app: App):
    id = upload(client, "broken.pdf", BROKEN_PDF).json()["id"]
    drain(app)
    failed = get(client, id)

    assert failed["status"] == "failed"
    assert failed["errorCode"]
    assert failed["errorMessage"]
    assert listed(client, status="failed")[0]["errorCode"] == failed["errorCode"]
    assert client.get("/v3/documents/counts").json() == {
        "queued": 0, "processing": 0, "done": 0, "failed": 1,
    }  # fmt: skip


def test_a_failed_document_is_repaired_by_sending_it_again_or_by_asking(
    client: httpx.Client, app: App
):
    upload(client, "broken.pdf", BROKEN_PDF, customId="report")
    drain(app)
    again = upload(client, "broken.pdf", BROKEN_PDF, customId="report").json()
    assert again["status"] == "queued"
    drain(app)
    assert client.post("/v3/documents/retry", json={"failed": True}).json() == {
        "ids": [again["id"]]
    }
    assert get(client, again["id"])["status"] == "queued"
    drain(app)

    mended = client.patch("/v3/documents/report", json={"content": "Now it can be read."}).json()
    drain(app)
    assert mended["status"] == "queued"
    assert get(client, "report")["status"] == "done"
    assert "errorCode" not in get(client, "report")


class TestAddingAgain:
    """Contract 7.2: what a customId that is known does."""

    def test_the_same_content_is_nothing_to_do(self, client: httpx.Client, app: App):
        id = add(client, CHAT, customId="chat")
        drain(app)
        answer = client.post("/v3/documents", json={"content": CHAT, "customId": "chat"})

        assert answer.json() == {"id": id, "status": "done"}
        assert get(client, id)["latestRevision"] == 1

    def test_full_text_that_grew_is_processed_only_at_its_end(
        self, client: httpx.Client, app: App, embedder: WordEmbedder
    ):
        id = add(client, CHAT, customId="chat")
        drain(app)
        first = get(client, id)["chunks"]
        embedder.forget()
        grown = CHAT + "\nAnd then the heron came."
        assert add(client, grown, customId="chat") == id
        drain(app)

        seen = get(client, id)
        assert seen["content"] == grown
        assert seen["latestRevision"] == 2
        assert first["embedded"] == first["total"] > 2
        assert seen["chunks"]["embedded"] == len(embedder.texts) <= 2
        assert seen["chunks"]["reused"] >= first["total"] - 1
        assert seen["chunks"]["total"] == seen["chunks"]["reused"] + seen["chunks"]["embedded"]

    def test_only_the_new_part_is_appended(self, client: httpx.Client, app: App):
        id = add(client, CHAT, customId="chat")
        drain(app)
        add(client, "And then the heron came.", customId="chat")
        drain(app)

        assert get(client, id)["content"] == CHAT + "\nAnd then the heron came."

    def test_an_overlapping_part_is_joined_without_doubling(self, client: httpx.Client, app: App):
        id = add(client, CHAT, customId="chat")
        drain(app)
        add(client, "\n".join([*LINES[-3:], "And then the heron came."]), customId="chat")
        drain(app)

        assert get(client, id)["content"] == CHAT + "\nAnd then the heron came."

    def test_an_edited_text_replaces_and_keeps_the_chunks_that_are_the_same(
        self, client: httpx.Client, app: App
    ):
        id = add(client, CHAT, customId="chat")
        drain(app)
        edited = "\n".join(["A new first line.", *LINES[1:]])
        add(client, edited, customId="chat")
        drain(app)

        seen = get(client, id)
        assert seen["content"] == edited
        assert seen["chunks"]["reused"] >= 1
        assert seen["chunks"]["removed"] >= 1

    def test_content_sent_while_the_first_is_being_processed_is_not_lost(
        self, client: httpx.Client, app: App
    ):
        id = add(client, "one", customId="chat")
        with app.db.begin() as tx:
            documents.claim(tx, lease=timedelta(0), limit=1, max_attempts=5)
        answer = client.post("/v3/documents", json={"content": "one\ntwo", "customId": "chat"})
        assert answer.json()["status"] == "processing"
        add(client, "three", customId="chat")
        drain(app)

        assert get(client, id)["content"] == "one\ntwo\nthree"
        assert get(client, id)["status"] == "done"

    def test_a_file_replaces(self, client: httpx.Client, app: App):
        id = add(client, "text", customId="doc")
        drain(app)
        assert upload(client, "new.txt", b"The file.", customId="doc").json()["id"] == id
        drain(app)

        assert get(client, id)["content"] == "The file."

    def test_metadata_is_replaced_whole_and_kept_when_absent(self, client: httpx.Client):
        id = add(client, "a", customId="doc", metadata={"a": 1, "b": 2})
        add(client, "b", customId="doc", metadata={"b": 3})
        assert get(client, id)["metadata"] == {"b": 3}
        add(client, "c", customId="doc")
        assert get(client, id)["metadata"] == {"b": 3}

    def test_a_custom_id_is_unique_in_its_first_tag(self, client: httpx.Client):
        one = add(client, "one", customId="doc", containerTag="a")
        two = add(client, "two", customId="doc", containerTag="b")

        assert one != two
        assert add(client, "one more", customId="doc", containerTag="a") == one
        assert get(client, two)["content"] == "two"

    def test_without_a_tag_it_is_looked_for_in_all_and_ambiguity_is_told(
        self, client: httpx.Client, db: Database, org: Org
    ):
        one = add(client, "one", customId="doc", containerTag="a")
        assert add(client, "more", customId="doc", entityContext="birds") == one
        with db.begin() as tx:
            tags = tx.execute("select name, entity_context from tags where org_id = %s", (org.id,))
            assert [tuple(row.values()) for row in tags] == [("a", "birds")]
        add(client, "two", customId="doc", containerTag="b")
        before = rows(db, org)

        body = {"content": "x", "customId": "doc"}
        refused(client.post("/v3/documents", json=body), 409, "containerTag")
        refused(client.get("/v3/documents/doc"), 409, "doc")
        refused(client.patch("/v3/documents/doc", json={"content": "x"}), 409)
        refused(client.delete("/v3/documents/doc"), 409)
        assert rows(db, org) == before

    def test_a_blind_retry_of_an_add_makes_no_second_document(self, client: httpx.Client, app: App):
        first = add(client, "the same", containerTag="a")

        assert add(client, "the same", containerTag="a") == first
        assert add(client, "the same", containerTag="b") != first
        drain(app)
        assert add(client, "the same", containerTag="a") != first

    @pytest.mark.parametrize(
        "path",
        ["/v3/documents", "/v3/documents/batch", "/v3/documents/file", "/ns/a/document"],
    )
    def test_a_retry_that_says_so_finds_what_is_done(
        self, client: httpx.Client, app: App, path: str
    ):
        """A short text is done before the published clients send it again."""
        text = uuid.uuid4().hex
        body: dict[str, Any] = {"json": {"content": text}}
        if path.endswith("batch"):
            body = {"json": {"documents": [{"content": text}, {"content": f"{text}, too"}]}}
        elif path.endswith("file"):
            body = {"files": {"file": ("a.txt", text.encode())}}

        def sent(tries: int) -> list[str]:
            count = {"x-stainless-retry-count": str(tries)}
            told = client.post(path, headers=count, **body).json()
            return [one["id"] for one in told.get("results", [told])]

        first = sent(0)
        drain(app)

        assert sent(1) == sent(2) == first
        other = sent(0)
        assert not set(other) & set(first)
        for id in [*first, *other]:
            assert client.delete(f"/v3/documents/{id}").status_code == 204
        assert not set(sent(1)) & {*first, *other}

    @pytest.mark.parametrize("count", ["", "0", "00", "-1", "often"])
    def test_what_does_not_say_so_is_no_retry(self, client: httpx.Client, app: App, count: str):
        first = add(client, "the same")
        drain(app)
        headers = {"x-stainless-retry-count": count}
        answer = client.post("/v3/documents", json={"content": "the same"}, headers=headers)
        assert answer.json()["id"] != first

    @pytest.mark.parametrize("headers", [{}, AGAIN])
    def test_a_file_of_an_archive_is_never_the_one_that_was_uploaded(
        self, client: httpx.Client, app: App, headers: dict[str, str]
    ):
        """It would go with the archive."""
        packed = BytesIO()
        with ZipFile(packed, "w") as archive:
            archive.writestr("a.txt", "Owls hunt at night.")
        whole = upload(client, "owls.zip", packed.getvalue()).json()["id"]
        with app.db.begin() as tx:
            [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
        process(app, claim)
        [member] = [one["id"] for one in listed(client) if one["id"] != whole]

        file = {"file": ("a.txt", b"Owls hunt at night.", "")}
        sent = client.post("/v3/documents/file", files=file, headers=headers).json()["id"]
        assert sent != member
        client.delete(f"/v3/documents/{whole}").raise_for_status()
        assert get(client, sent)["id"] == sent


def test_a_file_keeps_the_quotation_marks_of_its_name(client: httpx.Client):
    file = {"file": ('it\'s "quoted" 100%.txt', b"Owls hunt at night.")}
    id = client.post("/v3/documents/file", files=file).json()["id"]

    assert get(client, id)["title"] == 'it\'s "quoted" 100%.txt'


@pytest.mark.parametrize(
    ("stored", "asked"), [("Vertra\u0308ge/", "Verträge/"), ("Verträge/", "Vertra\u0308ge/")]
)
def test_a_path_is_found_however_its_accents_are_encoded(
    client: httpx.Client, app: App, tenant: Tenant, stored: str, asked: str
):
    id = add(client, filepath=f"{stored}a.txt")
    add(client, "another", filepath="Vertrage/a.txt")
    drain(app)

    for path in (asked, f"{asked}a.txt"):
        assert [one["id"] for one in listed(client, filepath=path)] == [id]
        assert [one["documentId"] for one in found(client, "heron", filepath=path)] == [id]
    with app.db.begin() as tx:
        table = figures.find(tx, tenant, figures.TableQuery(text=asked.upper()))
    assert [one.id for one in table.items] == [id]
    gone = client.request("DELETE", "/v3/documents/bulk", json={"filepath": asked})
    assert gone.json()["deletedCount"] == 1


def test_messages_in_json_are_called_by_what_a_user_says_and_are_counted(
    client: httpx.Client, app: App
):
    first = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hi, I am Ann"}]
    id = add(client, json.dumps(first), customId="call", containerTag="voice")
    other = add(client, json.dumps(first[:1]))
    drain(app)
    add(
        client,
        json.dumps([{"role": "assistant", "content": "Hello."}]),
        customId="call",
        containerTag="voice",
    )
    drain(app)

    assert get(client, id)["title"] == "Hi, I am Ann"
    assert get(client, other)["title"] == json.dumps(first[:1])
    (only,) = client.get(f"/v3/documents/{id}/chunks").json()["chunks"]
    assert only["place"] == {"message": 1, "messageEnd": 3}


def test_a_script_is_called_by_what_it_says_and_has_no_headings(client: httpx.Client, app: App):
    steps = "".join(f"\n# Step {n}\necho {n} && {'sleep 1 && ' * 40} true\n" for n in range(9))
    id = add(client, f"#!/usr/bin/env bash\n# Deploy the shop\n{steps}")
    only = add(client, "#!/bin/sh")
    drain(app)

    assert get(client, id)["title"] == "Deploy the shop"
    assert get(client, only)["title"] == "!/bin/sh"
    chunks = client.get(f"/v3/documents/{id}/chunks").json()["chunks"]
    assert [one["place"] for one in chunks] == [{}] * len(chunks)
    assert len(chunks) > 1


class TestUpload:
    def test_a_file_becomes_a_document(self, client: httpx.Client, app: App):
        answer = upload(
            client,
            "Bären & Räuber.md",
            "# Bären\n\nIm Wald.".encode(),
            containerTags='["a", "b"]',
            customId="bear",
            metadata='{"pages": 1}',
            entityContext="animals",
            filepath="/books/",
            taskType="superrag",
            dreaming="dynamic",
            documentDate="2026-01-31T12:00:00Z",
            useAdvancedProcessing="true",
            filterByMetadata="{}",
        )
        assert answer.status_code == 200
        assert answer.json()["status"] == "queued"
        assert get(client, answer.json()["id"])["content"] is None
        drain(app)

        seen = get(client, "bear")
        assert seen["content"] == "# Bären\n\nIm Wald."
        assert seen["source"] == "upload"
        assert seen["containerTags"] == ["a", "b"]
        assert seen["metadata"] == {"pages": 1}
        assert seen["filepath"] == "/books/"
        assert seen["taskType"] == "superrag"
        assert seen["title"] == "Bären"

    @pytest.mark.parametrize(
        ("fields", "tags"),
        [
            ({"containerTags": "one"}, ["one"]),
            ({"containerTags": '["x","y"]', "containerTag": "z"}, ["z", "x", "y"]),
            ({"containerTag": "", "metadata": ""}, ["sm_project_default"]),
        ],
    )
    def test_tags_come_as_one_tag_or_as_json(
        self, client: httpx.Client, fields: dict[str, str], tags: list[str]
    ):
        id = upload(client, "a.txt", b"text", **fields).json()["id"]

        assert get(client, id)["containerTags"] == tags

    def test_the_kind_is_found_by_the_bytes(self, client: httpx.Client, app: App):
        # As the published client sends raw bytes.
        answer = client.post(
            "/v3/documents/file",
            files={"file": ("upload", b"name,age\nann,7\nbob,8\n", "application/octet-stream")},
        )
        drain(app)

        assert "ann" in get(client, answer.json()["id"])["content"]

    def test_a_forced_kind_is_kept(self, client: httpx.Client, app: App):
        id = upload(client, "a.txt", b"Notes", fileType="google_doc").json()["id"]
        drain(app)

        assert get(client, id)["type"] == "google_doc"


class TestUpdate:
    def test_metadata_alone_changes_at_once_without_processing(
        self, client: httpx.Client, app: App, embedder: WordEmbedder
    ):
        id = add(client, customId="doc", metadata={"draft": True})
        drain(app)
        embedder.forget()
        before = get(client, id)
        answer = client.patch("/v3/documents/doc", json={"metadata": {"draft": False}})

        assert answer.json() == {"id": id, "status": "done"}
        after = get(client, id)
        assert after["metadata"] == {"draft": False}
        assert after["updatedAt"] > before["updatedAt"]
        assert after["latestRevision"] == 1
        assert drain(app) == 0
        assert embedder.texts == []
        assert listed(client, filters={"AND": [{"key": "draft", "value": "false"}]})[0]["id"] == id

    def test_content_replaces_and_never_appends(self, client: httpx.Client, app: App):
        id = add(client, "old", customId="doc")
        drain(app)
        answer = client.patch(f"/v3/documents/{id}", json={"content": "new"})

        assert answer.json() == {"id": id, "status": "queued"}
        assert get(client, id)["content"] == "new", "who reads on and writes back loses nothing"
        body = {"q": "old", "includeFullDocs": True}
        [hit] = client.post("/v3/search", json=body).json()["results"]
        assert hit["content"] == "old", "searches find the published text until the new one is"
        drain(app)
        assert get(client, id)["content"] == "new"
        assert get(client, id)["latestRevision"] == 2

    def test_who_appends_to_what_a_list_shows_loses_nothing(self, client: httpx.Client, app: App):
        id = add(client, "line 0\n", filepath="/log.txt")
        for n in range(1, 7):
            [shown] = listed(client, filepath="/log.txt", includeContent=True)
            content = f"{shown['content']}line {n}\n"
            assert client.patch(f"/v3/documents/{id}", json={"content": content}).is_success
            if n in (3, 4):
                drain(app)
        text = "".join(f"line {n}\n" for n in range(7))
        for _ in range(2):
            [shown] = listed(client, filepath="/log.txt", includeContent=True)
            assert (get(client, id)["content"], shown["content"]) == (text, text)
            drain(app)
        [hit] = found(client, "line", includeFullDocs=True)
        assert hit["content"] == text.rstrip()

    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            ("a\r\nb\r\n", "a\nb\n"),
            ("a\rb\r", "a\nb\n"),
            ("a\fb\x85 \v", "a\nb\n\n"),
            ("\n\n  a  \nb \t\n \n\n", "  a\nb\n\n\n"),
            ("a\n\tb  ", "a\n\tb"),
            ("a\nb", "a\nb"),
            ("<html><body><p>a <b>b</b></p></body></html>\n", "a **b**\n"),
        ],
    )
    def test_a_text_is_shown_with_the_line_breaks_that_end_it(
        self, client: httpx.Client, app: App, given: str, shown: str
    ):
        id = add(client, given)
        assert get(client, id)["content"] == given
        drain(app)
        assert get(client, id)["content"] == shown
        assert client.patch(f"/v3/documents/{id}", json={"content": given}).is_success
        assert get(client, id)["latestRevision"] == 1, "nothing was changed"

    def test_labels_change(self, client: httpx.Client):
        id = add(client, customId="old", containerTag="a")
        client.patch(
            f"/v3/documents/{id}",
            json={
                "customId": "new",
                "containerTags": ["b", "c"],
                "filepath": "/x",
                "taskType": "superrag",
                "documentDate": "2026-01-01",
                "entityContext": "about c",
            },
        )

        seen = get(client, "new")
        assert seen["id"] == id
        assert seen["containerTags"] == ["b", "c"]
        assert seen["filepath"] == "/x"
        assert seen["taskType"] == "superrag"
        refused(client.get("/v3/documents/old"), 404)

    def test_an_empty_change_is_valid_and_changes_nothing(self, client: httpx.Client, app: App):
        id = add(client, metadata={"a": 1})
        drain(app)
        before = get(client, id)

        answer = client.patch(f"/v3/documents/{id}", json={})
        assert answer.json() == {"id": id, "status": "done"}
        assert get(client, id) == before

    def test_no_tags_are_refused_and_not_passed_over(self, client: httpx.Client):
        id = add(client, containerTags=["a", "b"])
        change = {"containerTags": [], "title": "Another"}
        refused(client.patch(f"/v3/documents/{id}", json=change), 400, "containerTags")
        assert get(client, id)["title"] is None
        assert client.patch(f"/v3/documents/{id}", json={"containerTags": None}).status_code == 200
        assert get(client, id)["containerTags"] == ["a", "b"]

    def test_a_taken_custom_id_is_refused(self, client: httpx.Client):
        add(client, "one", customId="one")
        id = add(client, "two", customId="two")

        refused(client.patch(f"/v3/documents/{id}", json={"customId": "one"}), 400, "taken")
        assert get(client, id)["customId"] == "two"

    def test_an_unknown_id_is_not_found(self, client: httpx.Client):
        refused(client.patch("/v3/documents/nobody", json={"metadata": {}}), 404, "nobody")


class TestPathIds:
    @pytest.mark.parametrize(
        ("custom_id", "path"),
        [
            ("chats/2026/1", "chats%2F2026%2F1"),
            ("100% sure?", "100%25%20sure%3F"),
            ("日本　語", "%E6%97%A5%E6%9C%AC%E3%80%80%E8%AA%9E"),
            ("a+b&c=d#e", "a+b&c=d%23e"),
            ("%2F", "%252F"),
        ],
    )
    def test_a_custom_id_finds_its_document(self, client: httpx.Client, custom_id: str, path: str):
        id = add(client, customId=custom_id)

        assert get(client, path)["id"] == id
        assert client.patch(f"/v3/documents/{path}", json={}).json()["id"] == id
        assert client.delete(f"/v3/documents/{path}").status_code == 204
        refused(client.get(f"/v3/documents/{id}"), 404)

    def test_an_id_wins_over_the_same_custom_id(self, client: httpx.Client):
        one = add(client, "one")
        two = add(client, "two", customId=one)

        assert get(client, one)["content"] == "one"
        assert client.delete(f"/v3/documents/{one}").status_code == 204
        assert get(client, one)["id"] == two


class TestList:
    def test_pages(self, client: httpx.Client):
        ids = [add(client, f"text {n}", containerTag="a") for n in range(5)]
        answer = client.post("/v3/documents/list", json={"limit": "2", "page": "2"}).json()

        assert [d["id"] for d in answer["memories"]] == [ids[2], ids[1]]
        assert answer["pagination"] == {
            "currentPage": 2, "limit": 2, "totalItems": 5, "totalPages": 3,
        }  # fmt: skip
        assert "content" not in answer["memories"][0]

    def test_nothing_found_has_no_pages(self, client: httpx.Client):
        answer = client.post("/v3/documents/list")

        assert answer.json() == {
            "memories": [],
            "pagination": {"currentPage": 1, "limit": 10, "totalItems": 0, "totalPages": 0},
        }

    def test_order_and_sort(self, client: httpx.Client):
        one, two = add(client, "one"), add(client, "two")
        client.patch(f"/v3/documents/{one}", json={"metadata": {"a": 1}})

        def order(**query: str) -> list[str]:
            return [d["id"] for d in listed(client, **query)]

        assert order() == [two, one]
        assert order(order="asc") == [one, two]
        assert order(sort="updatedAt") == [one, two]
        assert order(sort="updatedAt", order="asc") == [two, one]

    def test_several_tags_must_all_be_there(self, client: httpx.Client):
        both = add(client, "both", containerTags=["a", "b"])
        only = add(client, "only", containerTags=["a"])

        assert {d["id"] for d in listed(client, containerTags=["a"])} == {both, only}
        assert {d["id"] for d in listed(client, containerTags=["b", "a"])} == {both}
        assert {d["id"] for d in listed(client, containerTag="b")} == {both}
        assert listed(client, containerTags=["a", "c"]) == []

    def test_filepath_is_exact_or_a_prefix(self, client: httpx.Client):
        one = add(client, "one", filepath="/a/b.md")
        add(client, "two", filepath="/a_b.md")

        assert [d["id"] for d in listed(client, filepath="/a/b.md")] == [one]
        assert [d["id"] for d in listed(client, filepath="/a/")] == [one]
        assert listed(client, filepath="/a") == []

    def test_filters_as_object_and_as_text(self, client: httpx.Client):
        one = add(client, "one", metadata={"kind": "note", "year": 2024})
        two = add(client, "two", metadata={"kind": "mail", "year": 2026})
        add(client, "three")
        later = {"AND": [{"key": "year", "value": "2025", "filterType": "numeric",
                          "numericOperator": ">"}]}  # fmt: skip
        either = {"OR": [{"key": "kind", "value": "NOTE", "ignoreCase": "true"}, later]}

        assert [d["id"] for d in listed(client, filters=later)] == [two]
        assert [d["id"] for d in listed(client, filters=json.dumps(either))] == [two, one]

    def test_content_on_demand(self, client: httpx.Client):
        add(client, "the content")

        assert listed(client, includeContent=True)[0]["content"] == "the content"

    @pytest.mark.parametrize(
        "query",
        [
            {"limit": 0},
            {"limit": 1101},
            {"limit": "ten"},
            {"page": 0},
            {"sort": "title"},
            {"order": "up"},
            {"status": "lost"},
            {"filters": {"key": "a", "value": "b"}},
            {"filters": "{"},
            {"containerTags": "a"},
            {"containerTags": ["a b"]},
            {"filepath": "a\n"},
        ],
    )
    def test_what_cannot_be_understood_is_refused(self, client: httpx.Client, query: object):
        refused(client.post("/v3/documents/list", json=query), 400)


class TestDelete:
    def test_it_is_gone_from_everywhere(
        self, client: httpx.Client, app: App, db: Database, org: Org
    ):
        id = add(client, customId="doc")
        drain(app)
        answer = client.delete(f"/v3/documents/{id}")

        assert answer.status_code == 204
        assert answer.content == b""
        refused(client.get(f"/v3/documents/{id}"), 404, "Document not found")
        refused(client.delete("/v3/documents/doc"), 404)
        assert client.post("/v3/search", json={"q": "heron"}).json()["results"] == []
        assert rows(db, org) == {
            "documents": 0, "entries": 0, "chunks": 0, "terms": 0, "tags": 1, "settings": 0,
        }  # fmt: skip

    def test_work_in_flight_is_dropped(self, client: httpx.Client, app: App):
        id = add(client)
        with app.db.begin() as tx:
            documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)

        assert client.delete(f"/v3/documents/{id}").status_code == 204
        assert drain(app) == 0

    def test_a_body_does_no_harm(self, client: httpx.Client):
        id = add(client)
        other = add(client, "other")

        answer = client.request("DELETE", f"/v3/documents/{id}", json={"ids": [other]})
        assert answer.status_code == 204
        assert get(client, other)

    def test_bulk_by_ids(self, client: httpx.Client):
        one, two = add(client, "one"), add(client, "two", customId="second")
        answer = client.request(
            "DELETE", "/v3/documents/bulk", json={"ids": [one, "second", "nobody"]}
        )

        assert answer.status_code == 200
        assert answer.json()["deletedCount"] == 2
        assert answer.json()["errors"] == [{"id": "nobody", "error": "Document not found"}]
        for id in (one, two):
            refused(client.get(f"/v3/documents/{id}"), 404)

    def test_bulk_by_tags_takes_everything_in_any_of_them(self, client: httpx.Client):
        add(client, "one", containerTags=["a"])
        add(client, "two", containerTags=["x", "b"])
        kept = add(client, "three", containerTags=["c"])
        answer = client.request("DELETE", "/v3/documents/bulk", json={"containerTags": ["a", "b"]})

        assert answer.json() == {
            "success": True, "deletedCount": 2, "containerTags": ["a", "b"],
        }  # fmt: skip
        assert [d["id"] for d in listed(client)] == [kept]

    def test_bulk_by_filepath(self, client: httpx.Client):
        add(client, "one", filepath="/old/a.md")
        kept = add(client, "two", filepath="/new/a.md")
        answer = client.request("DELETE", "/v3/documents/bulk", json={"filepath": "/old/"})

        assert answer.json()["deletedCount"] == 1
        assert [d["id"] for d in listed(client)] == [kept]

    @pytest.mark.parametrize(
        "body",
        [None, {}, {"ids": []}, {"containerTags": []}, {"ids": ["a"] * 101}, {"ids": "a"},
         {"containerTags": ["no tag"]}, {"ids": [None]}],
    )  # fmt: skip
    def test_bulk_without_a_selection_deletes_nothing(self, client: httpx.Client, body: object):
        kept = add(client)
        answer = (
            client.request("DELETE", "/v3/documents/bulk")
            if body is None
            else client.request("DELETE", "/v3/documents/bulk", json=body)
        )

        refused(answer, 400)
        assert get(client, kept)


class TestBatch:
    def test_each_document_stands_for_itself(self, client: httpx.Client, db: Database, org: Org):
        answer = client.post(
            "/v3/documents/batch",
            json={
                "documents": [
                    {"content": "one", "customId": "1"},
                    {"content": ""},
                    {"content": "three", "containerTag": "own", "metadata": {"n": 3}},
                    "four",
                    7,
                    {"content": "https://127.1.1.1.nowhere:99999/"},
                    {"content": "seven", "metadata": {"a": {"b": 1}}},
                ],
                "containerTag": "all",
                "metadata": {"batch": True},
                "documentDate": "2026-01-31",
                "taskType": "superrag",
                "filepath": "/batch",
                "entityContext": "all of it",
                "content": None,
            },
        )
        body = answer.json()

        assert answer.status_code == 200
        assert (body["success"], body["failed"]) == (3, 4)
        states = [result["status"] for result in body["results"]]
        assert states == ["queued", "error", "queued", "queued", "error", "error", "error"]
        for result in body["results"]:
            if result["status"] == "error":
                assert result["error"]
                assert result["details"]
        one, _, three, four, *_ = body["results"]
        assert get(client, one["id"])["containerTags"] == ["all"]
        assert get(client, one["id"])["metadata"] == {"batch": True}
        assert get(client, one["id"])["documentDate"] == "2026-01-31T00:00:00.000Z"
        assert get(client, three["id"])["containerTags"] == ["own"]
        assert get(client, three["id"])["metadata"] == {"n": 3}
        assert get(client, four["id"])["taskType"] == "superrag"
        assert get(client, four["id"])["filepath"] == "/batch"
        assert rows(db, org)["documents"] == 3

    def test_a_refused_one_says_which_it_is(self, client: httpx.Client):
        """It had no id, and an address was not repeated: only its place told."""
        closed = "http://127.0.0.1:99999/page"
        given = [
            {"content": " ", "customId": "notes/1"},
            {"content": "x", "custom_id": "notes/2", "metadata": {"a": {"b": 1}}},
            {"content": closed, "metadata": {"a": {"b": 1}}},
            {"content": "x", "customId": 7},
        ]
        results = client.post("/v3/documents/batch", json={"documents": given}).json()["results"]

        assert [one["id"] for one in results] == ["notes/1", "notes/2", "", ""]
        assert [one.get("url") for one in results] == [None, None, closed, None]

    def test_in_either_spelling_a_document_has_its_own(self, client: httpx.Client):
        """The API takes the names of Python as well."""
        given = [
            {"content": "one", "container_tag": "own", "task_type": "superrag"},
            {"content": "two", "container_tags": ["own"]},
        ]
        body = {"documents": given, "containerTag": "all", "taskType": "memory"}
        made = client.post("/v3/documents/batch", json=body).json()["results"]

        one, two = (get(client, result["id"]) for result in made)
        assert one["containerTags"] == two["containerTags"] == ["own"]
        assert (one["taskType"], two["taskType"]) == ("superrag", "memory")

    @pytest.mark.parametrize("given", [[], ["x"] * 601, "x", None])
    def test_one_to_six_hundred(self, client: httpx.Client, given: object):
        refused(client.post("/v3/documents/batch", json={"documents": given}), 400, "documents")


class TestKeys:
    def test_a_reading_key_may_not_write(self, limited: Callable[..., httpx.Client]):
        reader = limited(Scope.READ)

        assert listed(reader) == []
        refused(reader.post("/v3/documents", json={"content": "x"}), 403)
        refused(reader.delete("/v3/documents/x"), 403)

    def test_a_key_of_a_tag_sees_and_touches_only_that(
        self, client: httpx.Client, limited: Callable[..., httpx.Client]
    ):
        foreign = add(client, "foreign", containerTag="b", customId="doc")
        mine = limited(tags=["a"])
        own = add(mine, "own", customId="doc")

        assert get(mine, own)["containerTags"] == ["a"]
        assert get(mine, "doc")["id"] == own
        assert [d["id"] for d in listed(mine)] == [own]
        refused(mine.get(f"/v3/documents/{foreign}"), 404)
        refused(mine.post("/v3/documents", json={"content": "x", "containerTag": "b"}), 403, "'b'")
        refused(mine.post("/v3/documents/list", json={"containerTags": ["a", "b"]}), 403)
        refused(mine.patch(f"/v3/documents/{own}", json={"containerTag": "b"}), 403)
        bulk = mine.request("DELETE", "/v3/documents/bulk", json={"ids": [foreign]})
        assert bulk.json()["deletedCount"] == 0
        assert get(client, foreign)


def test_a_note_has_the_title_of_its_front_matter_or_begins_after_it(
    client: httpx.Client, app: App
):
    notes = {
        "---\ntitle: Of herons\ntags: [a]\n---\n\nThey wade.": "Of herons",
        "---\ntags: [a]\n---\n\n## They wade.": "They wade.",
        "---\ntags: [a]\n---\n": "tags: [a]",
        "---\n\nThey wade.\n\n---\n\ntitle: no": "They wade.",
        "system of locks: see\n\nThe weir.\n\nuser fees: none": "system of locks: see",
    }
    ids = [add(client, note) for note in notes]
    drain(app)

    assert [get(client, id)["title"] for id in ids] == list(notes.values())


def test_a_text_is_called_by_its_first_line_with_words_without_the_marks_around_it(
    client: httpx.Client, app: App
):
    texts = {
        "# Notes on *herons*": "Notes on *herons*",
        "# About C#\n\ntext": "About C#",
        "## Closed ##": "Closed",
        "== Of a wiki ==": "Of a wiki",
        "*** Framed ***": "Framed",
        "**Bold**": "Bold",
        "**Bold** and plain": "**Bold** and plain",
        "* an item of *herons*": "an item of *herons*",
        "> - quoted": "quoted",
        "-5 degrees": "-5 degrees",
        "=SUM(A1)": "=SUM(A1)",
        "---\n\n***\n\nafter rules": "after rules",
        '{\n  "name": "herons"\n}': '"name": "herons"',
        "```python\ndef wade(): ...\n```": "def wade(): ...",
        '"""\nA module.\n"""': "A module.",
        "/**\n * Wades.\n */": "Wades.",
        "{}": "{}",
        "---\n---\n": "---",
        "# ": "#",
        "\n😀🎉": "😀🎉",
        "42": "42",
        "طائر": "طائر",
        "invoice \u202efdp.exe\n\ntext": "invoice fdp.exe",
    }
    ids = [add(client, text) for text in texts]
    drain(app)

    assert [get(client, id)["title"] for id in ids] == list(texts.values())


def test_a_given_title_outlives_new_content_and_what_is_not_a_title_is_refused(
    client: httpx.Client, app: App
):
    id = add(client, "Herons eat frogs.", containerTag="birds")
    assert client.patch(f"/v3/documents/{id}", json={"title": " Of herons "}).status_code == 200
    drain(app)
    assert get(client, id)["title"] == "Of herons"
    assert client.patch(f"/v3/documents/{id}", json={"content": "Storks."}).status_code == 200
    drain(app)
    assert (get(client, id)["title"], get(client, id)["content"]) == ("Of herons", "Storks.")
    client.patch(f"/v3/documents/{id}", json={"title": "", "content": "Egrets."})
    drain(app)
    assert get(client, id)["title"] == "Egrets."
    for title in ("x" * 1001, "two\nlines", 7):
        refused(client.patch(f"/v3/documents/{id}", json={"title": title}), 400, "title")
