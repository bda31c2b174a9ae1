"""Documents through the namespace door; and the same documents through the older one."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.model import Scope, Stage
from recollect.worker.processing import drain
from tests.contract.calls import add, get, refused

TEXT = "The heron stands in the shallow water."


def put(http: httpx.Client, namespace: str, content: str = TEXT, **fields: Any) -> dict[str, Any]:
    answer = http.post(f"/ns/{namespace}/document", json={"content": content, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def document(http: httpx.Client, namespace: str, id: str, **query: Any) -> dict[str, Any]:
    answer = http.get(f"/ns/{namespace}/document/{id}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(http: httpx.Client, namespace: str, type: str = "documents", **given: Any) -> Any:
    query = {name: given.pop(name) for name in ("page", "limit", "sort", "order") if name in given}
    answer = http.post(f"/ns/{namespace}/list/{type}", params=query, json=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def delete(http: httpx.Client, namespace: str, *ids: str) -> dict[str, Any]:
    answer = http.request("DELETE", f"/ns/{namespace}/document", json={"ids": list(ids)})
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestOneServiceBehindTwoDoors:
    def test_what_comes_in_by_one_is_read_changed_and_deleted_by_the_other(
        self, client: httpx.Client, app: App
    ):
        new = put(client, "a", id="notes/1", metadata={"year": 2026}, date="2026-05-01")
        old = add(client, "The stork stands on the roof.", containerTag="a", customId="notes/2")
        drain(app)

        assert new == {"id": new["id"], "status": "queued"}
        seen = get(client, new["id"])
        assert (seen["customId"], seen["containerTags"]) == ("notes/1", ["a"])
        assert seen["documentDate"] == "2026-05-01T00:00:00.000Z"
        assert document(client, "a", "notes/2")["id"] == old
        assert {one["id"] for one in listed(client, "a")["documents"]} == {new["id"], old}
        client.patch(f"/ns/a/document/{old}", json={"metadata": {"seen": True}})
        assert get(client, old)["metadata"] == {"seen": True}
        assert delete(client, "a", "notes/1", old) == {"count": 2, "errors": []}
        refused(client.get(f"/v3/documents/{old}"), 404)

    def test_the_same_id_in_two_namespaces_is_two_documents(self, client: httpx.Client, app: App):
        one, two = put(client, "a", "one", id="x"), put(client, "b", "two", id="x")
        drain(app)

        assert document(client, "a", "x")["content"] == "one"
        assert document(client, "b", "x")["content"] == "two"
        refused(client.get(f"/ns/a/document/{two['id']}"), 404, "Document not found")
        assert delete(client, "a", two["id"], "x", "x") == {
            "count": 1,
            "errors": [{"id": two["id"], "error": "Document not found"}],
        }
        assert document(client, "b", "x")["id"] == two["id"]
        refused(client.get(f"/ns/a/document/{one['id']}"), 404)

    def test_a_document_of_several_tags_is_in_the_namespace_of_each(
        self, client: httpx.Client, app: App
    ):
        own = put(client, "b", "b's own", id="x")["id"]
        shared = add(client, "in both", containerTags=["a", "b"], customId="x")
        drain(app)

        assert document(client, "a", "x")["id"] == shared
        assert document(client, "b", "x")["id"] == own, "the namespace's own goes by the id"
        assert document(client, "b", shared)["content"] == "in both"
        assert delete(client, "b", shared)["count"] == 1
        refused(client.get(f"/v3/documents/{shared}"), 404)

    def test_an_id_that_means_several_is_no_conflict_that_clients_repeat(
        self, client: httpx.Client
    ):
        add(client, "one", containerTags=["x", "a"], customId="same")
        add(client, "two", containerTags=["y", "a"], customId="same")

        refused(client.get("/ns/a/document/same"), 400, "Ambiguous id")
        assert delete(client, "a", "same")["errors"] == [{"id": "same", "error": "Ambiguous id"}]

    def test_deleting_for_a_key_of_one_tag_leaves_what_others_have(
        self, client: httpx.Client, limited: Callable[..., httpx.Client]
    ):
        shared = add(client, "in both", containerTags=["a", "b"])
        mine = limited(Scope.WRITE, tags=["a"])

        assert delete(mine, "a", shared)["count"] == 1
        assert get(client, shared)["containerTags"] == ["b"]


@pytest.mark.parametrize(
    "id",
    ["a/b", "a b", "ä", "x" * 255, "file/x", "batch", "100%", "a?b", "a#b", "%2F", "../up"],
)
def test_ids_of_all_kinds(client: httpx.Client, id: str):
    made = put(client, "a", id=id)

    quoted = client.get(f"/ns/a/document/{quote(id, safe='')}")
    assert quoted.json()["id"] == made["id"]
    patched = client.patch(f"/ns/a/document/{quote(id, safe='')}", json={"metadata": {"a": 1}})
    if id != "file/x":
        assert patched.json()["id"] == made["id"]
    assert delete(client, "a", id)["count"] == 1


def test_an_id_with_a_slash_as_the_python_client_sends_it(client: httpx.Client):
    made = put(client, "a", id="chats/7/notes")

    assert document(client, "a", "chats/7/notes")["id"] == made["id"]
    answer = client.patch("/ns/a/document/chats/7/notes", json={"content": "new"})
    assert answer.json()["id"] == made["id"]


class TestGet:
    def test_it_shows_the_newest_accepted_text_at_once(self, client: httpx.Client, app: App):
        id = put(client, "a", "first", id="memo")["id"]
        assert document(client, "a", id)["content"] == "first"
        drain(app)
        for text in ("second", "third"):
            client.patch("/ns/a/document/memo", json={"content": text})

            assert document(client, "a", "memo")["content"] == text
            assert get(client, id)["content"] == text
        hits = client.post("/v3/search", json={"q": "first", "includeFullDocs": True}).json()
        assert hits["results"][0]["content"] == "first", "searches go on finding what is published"
        drain(app)
        assert document(client, "a", "memo")["content"] == "third"

    def test_its_parts_come_when_asked_for(self, client: httpx.Client, app: App):
        id = put(client, "a")["id"]
        before = document(client, "a", id, include="chunks,memories")
        drain(app)
        plain = document(client, "a", id)
        whole = document(client, "a", id, include=["chunks", "memories"])

        assert (before["chunks"], before["memories"]) == ([], [])
        assert before["system"]["status"] == "queued"
        assert before["system"]["dreamingStatus"] == "dreaming"
        assert {"chunks", "memories"} & set(plain) == set()
        assert plain["metadata"] == {}
        assert plain["system"] | {"createdAt": "", "updatedAt": ""} == {
            "status": "done",
            "dreamingStatus": "done",
            "memoryCount": 0,
            "createdAt": "",
            "updatedAt": "",
        }
        [chunk] = whole["chunks"]
        assert (chunk["id"], chunk["position"], chunk["content"]) == (f"{id}.0", 0, TEXT)
        refused(client.get(f"/ns/a/document/{id}?include=everything"), 400, "include")

    def test_the_settings_of_the_older_door_have_no_say(
        self, client: httpx.Client, served: Callable[..., httpx.Client], app: App
    ):
        strict = served(metadata_arrays="refuse", status_words="spec")
        refused(strict.post("/v3/documents", json={"content": "x", "metadata": {"a": ["b"]}}), 400)
        id = put(strict, "a", metadata={"who": ["ann", "bob"]})["id"]
        assert document(strict, "a", id)["metadata"] == {"who": ["ann", "bob"]}
        with app.db.begin() as tx:
            [claim] = documents.claim(tx, lease=timedelta(minutes=1), limit=1, max_attempts=5)
        begun = document(strict, "a", id)["system"]
        assert begun["status"] == "extracting", "a word of the client, before there is a stage"
        with app.db.begin() as tx:
            documents.advance(tx, claim, Stage.EMBEDDING, lease=timedelta(minutes=1))

        system = document(strict, "a", id)["system"]
        assert (system["status"], system["dreamingStatus"]) == ("embedding", "dreaming")
        [shown] = listed(strict, "a")["documents"]
        assert shown["system"]["status"] == "embedding"
        for name in ("createdAt", "updatedAt"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", system[name])


class TestChanges:
    def test_new_text_replaces_and_metadata_changes_in_place(self, client: httpx.Client, app: App):
        id = put(client, "a", metadata={"a": 1, "b": ["x", "y"]})["id"]
        drain(app)
        kept = client.patch(f"/ns/a/document/{id}", json={"metadata": {"c": 2}})
        assert kept.json() == {"id": id, "status": "done"}
        assert document(client, "a", id)["metadata"] == {"c": 2}
        new = client.patch(f"/ns/a/document/{id}", json={"content": "other", "metadata": None})
        assert new.json() == {"id": id, "status": "queued"}
        assert document(client, "a", id)["metadata"] == {"c": 2}

    @pytest.mark.parametrize("body", [None, {}, {"taskType": "memory"}, {"metadata": None}])
    def test_a_change_of_nothing_is_refused(self, client: httpx.Client, body: Any):
        id = put(client, "a")["id"]

        refused(client.patch(f"/ns/a/document/{id}", json=body), 400, "name at least one")

    def test_its_context_is_the_namespaces(self, client: httpx.Client):
        id = put(client, "a", supportingContext="birds")["id"]
        client.patch(f"/ns/a/document/{id}", json={"supportingContext": "herons"})

        assert client.get("/ns/a").json()["supportingContext"] == "herons"
        refused(client.patch("/ns/a/document/no", json={"supportingContext": "x"}), 404)


def test_how_it_is_handled_is_kept_by_every_way_of_writing(client: httpx.Client, db: Database):
    handling = {"taskType": "superrag", "dreaming": "instant"}
    forms: dict[str, Any] = {name: (None, value) for name, value in handling.items()}
    file = {"file": ("notes.md", b"text")}
    plain = [put(client, "a", f"plain {number}")["id"] for number in range(3)]
    [batched] = client.post(
        "/ns/a/document/batch", json={"documents": [{"content": "x"}], **handling}
    ).json()["results"]
    path = "/ns/a/document/file"
    answers = [
        client.post(path, files={**file, **forms}),
        client.post(f"{path}/{plain[0]}", files={**file, **forms}),
        client.patch(f"{path}/{plain[1]}", files={**file, **forms}),
        client.patch(f"/ns/a/document/{plain[2]}", json={"content": "new", **handling}),
    ]
    ids = [put(client, "a", "one", **handling)["id"], batched["id"]]
    ids += [answer.json()["id"] for answer in answers]

    with db.begin() as tx:
        kept = tx.execute(
            "select task_type, dreaming from documents where id = any(%s)", (ids,)
        ).fetchall()
    assert [(one["task_type"], one["dreaming"]) for one in kept] == [("superrag", "instant")] * 6


class TestBatch:
    def test_the_good_come_first(self, client: httpx.Client):
        items = [
            {"content": ""},
            {"content": "one", "id": "1"},
            {"content": "http://[bad", "id": "u"},
            {"content": "two", "filters": {}, "id": "f"},
            {"content": "three"},
        ]
        told = client.post(
            "/ns/a/document/batch", json={"documents": items, "taskType": "superrag"}
        ).json()

        assert (told["count"], told["failed"]) == (2, 3)
        assert [one["status"] for one in told["results"]] == ["queued"] * 2 + ["error"] * 3
        assert [one["id"] for one in told["results"][2:]] == ["", "u", "f"]
        assert "filters: unknown field" in told["results"][4]["details"]
        assert told["results"][3]["url"] == "http://[bad"
        assert get(client, told["results"][0]["id"])["taskType"] == "superrag"

    @pytest.mark.parametrize(
        "body",
        [
            {"documents": []},
            {"documents": ["text"]},
            {"documents": [{"content": "x"}] * 601},
            {"documents": [{"content": "x"}], "containerTag": "b"},
            {},
        ],
    )
    def test_what_is_no_batch_is_refused_whole(self, client: httpx.Client, body: Any):
        refused(client.post("/ns/a/document/batch", json=body), 400)
        assert listed(client, "a")["documents"] == []


class TestFiles:
    def send(
        self, http: httpx.Client, method: str, path: str, data: bytes | None, **fields: str
    ) -> httpx.Response:
        # A form without a file, too: some field has to be there.
        files: dict[str, Any] = {name: (None, value) for name, value in fields.items()}
        if data is not None:
            files["file"] = ("notes.md", data)
        return http.request(method, path, files=files)

    def test_a_file_is_added(self, client: httpx.Client, app: App):
        labels = {"metadata": '{"a": ["x"]}', "date": "2026-01-02", "taskType": "", "group": ""}
        made = self.send(client, "POST", "/ns/a/document/file", b"# Heron\n\nIt stands.", **labels)
        assert made.status_code == 200, made.text
        drain(app)

        seen = document(client, "a", made.json()["id"])
        assert "It stands." in seen["content"]
        assert seen["metadata"] == {"a": ["x"]}

    def test_a_file_takes_the_place_of_a_text_and_clears_what_is_not_sent(
        self, client: httpx.Client, app: App
    ):
        id = put(client, "a", id="memo", metadata={"a": 1}, date="2026-05-01",
                 supportingContext="birds")["id"]  # fmt: skip
        drain(app)
        told = self.send(client, "POST", "/ns/a/document/file/memo", b"The stork.")

        assert told.json() == {"id": id, "status": "queued"}
        drain(app)
        seen = document(client, "a", "memo")
        assert (seen["id"], seen["content"], seen["metadata"]) == (id, "The stork.", {})
        assert get(client, id)["documentDate"] is None
        assert client.get("/ns/a").json()["supportingContext"] == "birds"

    def test_a_change_with_a_file_keeps_and_merges(self, client: httpx.Client, app: App):
        id = put(client, "a", id="memo", metadata={"a": 1, "b": 2}, date="2026-05-01")["id"]
        drain(app)
        path = "/ns/a/document/file/memo"
        labels = {"metadata": json.dumps({"b": None, "c": 3})}
        assert self.send(client, "PATCH", path, None, **labels).json()["status"] == "done"
        assert document(client, "a", id)["metadata"] == {"a": 1, "c": 3}
        assert self.send(client, "PATCH", path, b"The stork.").json()["status"] == "queued"
        drain(app)

        seen = document(client, "a", id)
        assert (seen["content"], seen["metadata"]) == ("The stork.", {"a": 1, "c": 3})
        assert get(client, id)["documentDate"] == "2026-05-01T00:00:00.000Z"

    def test_its_kind_is_forced_or_told(self, client: httpx.Client, app: App):
        def kept(name: str, data: bytes, **labels: str) -> dict[str, Any]:
            files: dict[str, Any] = {label: (None, value) for label, value in labels.items()}
            files["file"] = (name, data, "application/octet-stream")
            id = client.post("/ns/a/document/file", files=files).json()["id"]
            drain(app)
            return document(client, "a", id)

        table = b"bird,food\nheron,frogs\n"
        plain = kept("birds", table)["content"]
        assert kept("birds", table, mimeType="text/csv")["content"] != plain
        notes = kept("notes.txt", b"It is no picture.", fileType="image")
        assert notes["type"] == "image"

    def test_what_is_no_such_change(self, client: httpx.Client):
        put(client, "a", id="memo")
        put(client, "b", id="theirs")
        send = self.send

        refused(send(client, "POST", "/ns/a/document/file/no", b"x"), 404)
        refused(send(client, "POST", "/ns/a/document/file/theirs", b"x"), 404)
        refused(send(client, "PATCH", "/ns/a/document/file/no", b"x"), 404)
        refused(send(client, "POST", "/ns/a/document/file/memo", None, date="2026-01-01"), 400)
        refused(send(client, "PATCH", "/ns/a/document/file/memo", None, dreaming="instant"), 400)
        refused(send(client, "POST", "/ns/a/document/file", b"x", containerTag="b"), 400,
                "containerTag: unknown field")  # fmt: skip
        refused(send(client, "POST", "/ns/a/document/file", b"x", metadata="{"), 400, "metadata")
        refused(
            send(client, "POST", "/ns/a/document/file?metadata=%7B%7D", b"x"),
            400,
            "metadata: belongs in the body",
        )
        refused(send(client, "POST", "/ns/a/document/file", b"x", mimeType="text"), 400)
        refused(send(client, "POST", "/ns/a/document/file", b"x", fileType="tweet"), 400)
