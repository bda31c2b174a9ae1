"""Groups: pairs beside a document that filters see as if they were metadata (`filterByMetadata` of
the older door). What they do to memories is in `tests/memories/test_dream.py`."""

import io
import json
import zipfile
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.worker.processing import drain
from tests.contract.calls import add, found, refused, upload
from tests.contract.test_ns_documents import document, listed, put

PATIENT = {"patient": "p1", "wards": ["a", "b"], "bed": 3, "awake": True}


def predicate(field: str, operator: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value, **more}


def matching(http: httpx.Client, filter: dict[str, Any], type: str = "documents") -> set[str]:
    key = "documentId" if type == "chunks" else "id"
    return {one[key] for one in listed(http, "a", type, filter=filter)[type]}


def searched(http: httpx.Client, filter: dict[str, Any]) -> set[str]:
    body = {"query": "heron", "filter": filter, "searchMode": "chunks", "threshold": 0}
    answer = http.post("/ns/a/search", json={**body, "include": {"documents": True}})
    assert answer.status_code == 200, answer.text
    return {one["included"]["document"]["id"] for one in answer.json()["results"]}


def form(http: httpx.Client, method: str, path: str, data: bytes | None, **fields: str) -> Any:
    files: dict[str, Any] = {name: (None, value) for name, value in fields.items()}
    if data is not None:
        files["file"] = ("notes.md", data)
    answer = http.request(method, path, files=files)
    assert answer.status_code == 200, answer.text
    return answer.json()


FILTERS = [
    (predicate("patient", "eq", "p1"), "grouped"),
    (predicate("patient", "eq", "P1", caseSensitive=False), "grouped"),
    (predicate("patient", "neq", "p1"), "plain"),
    (predicate("patient", "contains", "p"), "grouped"),
    (predicate("patient", "notContains", "p"), "plain"),
    (predicate("wards", "arrayContains", "b"), "grouped"),
    (predicate("wards", "arrayNotContains", "b"), "plain"),
    (predicate("bed", "eq", 3), "grouped"),
    (predicate("bed", "gte", 3), "grouped"),
    (predicate("bed", "gt", 3), ""),
    (predicate("awake", "eq", True), "grouped"),
    # Both have the key, and metadata wins.
    (predicate("kind", "eq", "of metadata"), "grouped"),
    (predicate("kind", "eq", "of group"), ""),
    (predicate("kind", "contains", "group"), ""),
    (predicate("year", "eq", 2026), "grouped plain"),
]


def test_filters_see_a_group_as_metadata_which_wins(client: httpx.Client, app: App):
    group = {**PATIENT, "kind": "of group"}
    labels = {"year": 2026, "kind": "of metadata"}
    ids = {
        "grouped": put(client, "a", "The heron sleeps.", group=group, metadata=labels)["id"],
        "plain": put(client, "a", "The heron wakes.", metadata={"year": 2026})["id"],
    }
    drain(app)

    for filter, names in FILTERS:
        expected = {ids[name] for name in names.split()}
        assert matching(client, filter) == expected, filter
        assert matching(client, filter, "chunks") == expected, filter
        assert searched(client, filter) == expected, filter
    seen = document(client, "a", ids["grouped"])
    assert (seen["group"], seen["metadata"]) == (group, labels)
    assert "group" not in document(client, "a", ids["plain"])


def test_a_group_without_metadata_is_seen(client: httpx.Client, app: App):
    id = put(client, "a", "The heron sleeps.", group=PATIENT)["id"]
    put(client, "a", "The heron wakes.")
    drain(app)

    assert matching(client, predicate("patient", "eq", "p1")) == {id}
    assert searched(client, predicate("patient", "eq", "p1")) == {id}


def test_the_older_door_has_the_same_groups(client: httpx.Client, app: App):
    one = add(client, "The heron sleeps.", containerTag="a", filterByMetadata={"patient": "p1"})
    file = upload(
        client, "n.md", b"The heron wades.", containerTag="a", filterByMetadata='{"patient": "p2"}'
    ).json()["id"]
    batch = client.post(
        "/v3/documents/batch",
        json={
            "documents": [
                {"content": "The heron stands.", "filterByMetadata": {"patient": "p4"}},
                "The heron flies.",
            ],
            "containerTag": "a",
            "filterByMetadata": {"patient": "p3"},
        },
    ).json()["results"]
    drain(app)

    names = {"p1": one, "p2": file, "p4": batch[0]["id"], "p3": batch[1]["id"]}
    for patient, id in names.items():
        assert document(client, "a", id)["group"] == {"patient": patient}
        filters = {"AND": [{"key": "patient", "value": patient}]}
        [hit] = found(client, "heron", filters=filters, containerTag="a")
        assert hit["documentId"] == id
    changed = client.patch(f"/v3/documents/{one}", json={"filterByMetadata": {"patient": "p9"}})
    assert changed.status_code == 200, changed.text
    assert document(client, "a", one)["group"] == {"patient": "p9"}


def test_a_batch_takes_a_group_for_each(client: httpx.Client):
    body = {"documents": [{"content": "one", "group": {"n": 1}}, {"content": "two"}]}
    one, two = client.post("/ns/a/document/batch", json=body).json()["results"]
    assert document(client, "a", one["id"])["group"] == {"n": 1}
    assert "group" not in document(client, "a", two["id"])


def test_changes_of_a_group(client: httpx.Client, app: App):
    id = put(client, "a", "one", id="memo", group={"n": 1}, metadata={"m": 1})["id"]
    drain(app)
    path = f"/ns/a/document/{id}"

    assert client.patch(path, json={"metadata": {"m": 2}}).json()["status"] == "done"
    assert document(client, "a", id)["group"] == {"n": 1}
    assert client.patch(path, json={"group": {"k": "v"}}).json()["status"] == "done"
    assert document(client, "a", id)["group"] == {"k": "v"}
    assert document(client, "a", id)["metadata"] == {"m": 2}
    client.patch(path, json={"group": None, "metadata": {}})
    assert document(client, "a", id)["group"] == {"k": "v"}
    put(client, "a", "one", id="memo")
    assert document(client, "a", id)["group"] == {"k": "v"}
    put(client, "a", "one", id="memo", group={"again": True})
    assert document(client, "a", id)["group"] == {"again": True}
    assert client.patch(path, json={"group": {}}).json()["status"] == "done"
    assert "group" not in document(client, "a", id)


def test_a_file_keeps_or_clears_the_group(client: httpx.Client, app: App):
    made = form(client, "POST", "/ns/a/document/file", b"one", group=json.dumps({"n": 1}))
    path = f"/ns/a/document/file/{made['id']}"
    drain(app)

    form(client, "PATCH", path, b"two")
    assert document(client, "a", made["id"])["group"] == {"n": 1}
    form(client, "PATCH", path, None, group=json.dumps({"n": 2}))
    assert document(client, "a", made["id"])["group"] == {"n": 2}
    form(client, "PATCH", path, b"three", group="")
    assert document(client, "a", made["id"])["group"] == {"n": 2}
    form(client, "POST", path, b"four", group=json.dumps({"n": 4}))
    assert document(client, "a", made["id"])["group"] == {"n": 4}
    form(client, "POST", path, b"five")
    assert "group" not in document(client, "a", made["id"])


def test_the_files_of_an_archive_have_its_group(client: httpx.Client, app: App):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("heron.txt", "The heron stands.")
    fields: dict[str, Any] = {
        "file": ("birds.zip", packed.getvalue()),
        "group": (None, json.dumps({"n": 1})),
    }
    made = client.post("/ns/a/document/file", files=fields).json()
    drain(app)

    of_one = predicate("n", "eq", 1)
    assert len(matching(client, of_one)) == 2
    client.patch(f"/ns/a/document/{made['id']}", json={"group": {"n": 2}})
    assert matching(client, of_one) == set()
    assert len(matching(client, predicate("n", "eq", 2))) == 2


def test_the_same_text_in_another_group_is_no_retry(client: httpx.Client):
    one, again = (put(client, "a", "the same", group={"n": 1})["id"] for _ in range(2))
    other, plain = put(client, "a", "the same", group={"n": 2}), put(client, "a", "the same")
    assert one == again
    assert len({one, other["id"], plain["id"]}) == 3


@pytest.mark.parametrize("bad", ["text", [1], {"a": {"b": 1}}, {"a": [1]}, {"": 1}, {"a": None}])
def test_what_is_no_group(client: httpx.Client, bad: object):
    body = {"content": "x", "group": bad}
    refused(client.post("/ns/a/document", json=body), 400, "group")
    refused(client.patch("/ns/a/document/x", json={"group": bad}), 400, "group")
    older = {"content": "x", "filterByMetadata": bad}
    refused(client.post("/v3/documents", json=older), 400, "filterByMetadata")
    [item] = client.post("/ns/a/document/batch", json={"documents": [body]}).json()["results"]
    assert item["status"] == "error"
    assert listed(client, "a")["documents"] == []
