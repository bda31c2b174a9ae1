"""What nobody should send: a clear 4xx or a sensible result, never a 5xx, nothing half-written."""

import json
import socket
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from recollect.app import App
from recollect.db import Database
from recollect.model import Org
from recollect.orgs import orgs
from recollect.worker.processing import drain
from tests.contract.calls import add, found, get, refused, rows, upload

JSON = {"content-type": "application/json"}
NO_ROWS = {"documents": 0, "entries": 0, "chunks": 0, "terms": 0, "tags": 0, "settings": 0}
MB = 1024 * 1024


def post(http: httpx.Client, body: bytes, path: str = "/v3/documents") -> httpx.Response:
    return http.post(path, content=body, headers=JSON)


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.fixture
def nothing_written(db: Database, org: Org) -> Generator[None]:
    yield
    assert rows(db, org) == NO_ROWS


@pytest.mark.usefixtures("nothing_written")
class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "about"),
        [
            ({}, "content"),
            ({"content": None}, "content"),
            ({"content": ""}, "content"),
            ({"content": " \n\t "}, "content"),
            ({"content": 5}, "content"),
            ({"content": ["x"]}, "content"),
            ({"content": "x", "metadata": {"a": {"b": 1}}}, "objects are not allowed"),
            ({"content": "x", "metadata": {"a": [1, 2]}}, "arrays are not allowed"),
            ({"content": "x", "metadata": {"a": None}}, "a: "),
            ({"content": "x", "metadata": {"": 1}}, "1 to 64"),
            ({"content": "x", "metadata": {"k" * 65: 1}}, "1 to 64"),
            ({"content": "x", "metadata": {"a\nb": 1}}, "control"),
            ({"content": "x", "metadata": {"a": "x" * 10_001}}, "10,000"),
            ({"content": "x", "metadata": {f"k{n}": n for n in range(5000)}}, "1,000 keys"),
            ({"content": "x", "metadata": ["a"]}, "metadata"),
            ({"content": "x", "metadata": "a"}, "metadata"),
            ({"content": "x", "metadata": {"a": 10**400}}, "finite"),
            ({"content": "x", "entityContext": "x" * 1501}, "entityContext"),
            ({"content": "x", "entityContext": 5}, "entityContext"),
            ({"content": "x", "customId": ""}, "customId"),
            ({"content": "x", "customId": "x" * 256}, "customId"),
            ({"content": "x", "customId": "a\x1bb"}, "customId"),
            ({"content": "x", "customId": 5}, "customId"),
            ({"content": "x", "containerTag": ""}, "containerTag"),
            ({"content": "x", "containerTag": "a b"}, "letters"),
            ({"content": "x", "containerTag": "x" * 101}, "100 characters"),
            ({"content": "x", "containerTag": "größe"}, "letters"),
            ({"content": "x", "containerTags": "a"}, "containerTags"),
            ({"content": "x", "containerTags": ["a", "a/b"]}, "letters"),
            ({"content": "x", "containerTags": [f"t{n}" for n in range(101)]}, "containerTags"),
            ({"content": "x", "taskType": "other"}, "taskType"),
            ({"content": "x", "documentDate": "yesterday"}, "documentDate"),
            ({"content": "x", "documentDate": 5}, "documentDate"),
            ({"content": "x", "filepath": "x" * 1001}, "filepath"),
            ({"content": "http://localhost:bad/"}, ""),
            ({"content": "http://[::1"}, ""),
        ],
    )
    def test_a_field_that_is_wrong(self, client: httpx.Client, fields: object, about: str):
        body = refused(client.post("/v3/documents", json=fields), 400, about)
        assert body["error"] == "Invalid request parameters"
        assert body["details"]

    @pytest.mark.parametrize(
        ("body", "about"),
        [
            (b"", "JSON object"),
            (b'{"content": ', "not valid JSON"),
            (b"{'content': 'x'}", "not valid JSON"),
            (b'{"content": "\xff\xfe"}', "UTF-8"),
            (b"[]", "JSON object"),
            (b'"x"', "JSON object"),
            (b"null", "JSON object"),
            (b"7", "JSON object"),
            (deep(100_000), "nests too deeply"),
            (b"[" * 100_000, "nests too deeply"),
            (b'{"content": "x", "metadata": ' + deep(500) + b"}", "objects are not allowed"),
            (b'{"content": "x", "metadata": {"a": 1e400}}', "finite"),
            (b'{"content": "x", "metadata": {"a": NaN}}', "finite"),
            (b'{"content": "x", "metadata": {"a": -Infinity}}', "finite"),
            (b'{"content": "x", "metadata": {"a": ' + b"9" * 400 + b"}}", "finite"),
            (b'{"content": "x", "metadata": {"a": ' + b"9" * 5000 + b"}}", "too many digits"),
            (b'{"content": "x", "metadata": {"a\\u0000": 1}}', "control"),
            (b'{"content": "x", "metadata": {"a\\ud800": 1}}', "control"),
            (b'{"content": "x", "metadata": {"a\\ud800": {"b": 1}}}', "control"),
            (b'{"content": "x", "customId": "a\\u0000"}', "customId"),
            (b'{"content": "x", "customId": "a\\ud800"}', "customId"),
            (b'{"content": "x", "containerTag": "a\\u0000"}', "containerTag"),
            (b'{"content": "x", "containerTag": "a\\ud800"}', "containerTag"),
            (b'{"content": "x", "filepath": "a\\u0000"}', "filepath"),
        ],
    )
    def test_a_body_that_is_wrong(self, client: httpx.Client, body: bytes, about: str):
        refused(post(client, body), 400, about)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"content-type": "text/plain"},
            {"content-type": "application/x-www-form-urlencoded"},
            {"content-type": "multipart/form-data"},
            {"content-type": ";;;"},
        ],
    )
    def test_a_wrong_content_type(self, client: httpx.Client, headers: dict[str, str]):
        answer = client.post("/v3/documents", content=b'{"content": "x"}', headers=headers)
        refused(answer, 400, "application/json")

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v3/documents/batch", b'{"documents": ' + b"[" * 900 + b"]" * 900 + b"}"),
            ("/v3/documents/batch", b'{"documents": ["\\u0000 ", "", {}, [], 1e999]}'),
        ],
    )
    def test_a_batch_of_nothing_good(self, client: httpx.Client, path: str, body: bytes):
        answer = post(client, body.replace(b'"\\u0000 ", ', b""), path)
        assert answer.status_code == 200
        assert answer.json()["success"] == 0
        assert all(result["status"] == "error" for result in answer.json()["results"])

    @pytest.mark.parametrize(
        ("fields", "about"),
        [
            ({"metadata": "{"}, "JSON"),
            ({"metadata": '{"a": {"b": 1}}'}, "objects are not allowed"),
            ({"metadata": '{"a":' * 100_000}, "JSON"),
            ({"metadata": '{"a": 1e400}'}, "finite"),
            ({"metadata": "[1]"}, "metadata"),
            ({"containerTags": "[" * 100_000}, "containerTags"),
            ({"containerTags": "[1]"}, "containerTags"),
            ({"containerTags": "a b"}, "letters"),
            ({"fileType": "banana"}, "fileType"),
            ({"fileType": "a\0"}, "fileType"),
            ({"customId": "a\0"}, "customId"),
            ({"entityContext": "x" * 1501}, "entityContext"),
            ({"metadata": "x" * 2 * MB}, "1024KB"),
        ],
    )
    def test_an_upload_with_a_wrong_field(
        self, client: httpx.Client, app: App, org: Org, fields: dict[str, str], about: str
    ):
        refused(upload(client, "a.txt", b"text", **fields), 400, about)
        assert not (app.config.data_dir / "blobs" / org.id).exists()

    @pytest.mark.parametrize(
        ("name", "data", "about"),
        [
            ("empty.txt", b"", "is empty"),
            ("a.7z", b"7z\xbc\xaf\x27\x1c" + bytes(range(256)), "not supported"),
            ("a.exe", b"MZ\x90\x00\x03" + bytes(100), "not supported"),
        ],
    )
    def test_a_file_that_cannot_be_read(
        self, client: httpx.Client, name: str, data: bytes, about: str
    ):
        refused(upload(client, name, data), 400, about)

    def test_an_upload_that_is_none(self, client: httpx.Client):
        path = "/v3/documents/file"
        bad = {"content-type": "multipart/form-data; boundary=x"}
        refused(client.post(path), 400, "file")
        refused(client.post(path, json={"file": "x"}), 400, "file")
        refused(client.post(path, data={"file": "x"}), 400, "must be a file")
        refused(client.post(path, content=b"x", headers={**bad}), 400)
        refused(client.post(path, content=b"--x\r\nno header", headers={**bad}), 400)
        refused(
            client.post(path, content=b"x", headers={"content-type": "multipart/form-data"}),
            400,
            "boundary",
        )

    def test_a_file_of_one_byte_too_many(self, client: httpx.Client):
        refused(upload(client, "a.txt", b"a" * (50 * MB + 1)), 400, "50 MB")

    def test_a_body_beyond_all_limits(self, client: httpx.Client):
        def endless() -> Generator[bytes]:
            yield b'{"content": "'
            for _ in range(81):
                yield b"a" * MB
            yield b'"}'

        answer = client.post("/v3/documents", content=endless(), headers=JSON)
        refused(answer, 400, "larger than")

    @pytest.mark.parametrize("path", ["/v3/documents", "/v3/documents/file"])
    def test_a_body_that_stops_half_way(
        self, client: httpx.Client, live_url: str, key: str, path: str
    ):
        kind = "application/json" if path == "/v3/documents" else "multipart/form-data; boundary=b"
        start = (
            b'{"content": "a long tale'
            if path == "/v3/documents"
            else b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nabc'
        )
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: 100000\r\n\r\n"
        )
        where = urlsplit(live_url)
        with socket.create_connection((where.hostname, where.port), timeout=60) as wire:
            wire.sendall(head.encode() + start)
            wire.shutdown(socket.SHUT_WR)
            assert b" 200 " not in wire.recv(65536)

        assert client.get("/health").status_code == 200

    @pytest.mark.parametrize("path", ["%00", "%ED%A0%80", "%FF", "..%2F..%2Fetc", "%", "%zz", "x"])
    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_a_path_that_names_nothing(self, client: httpx.Client, method: str, path: str):
        refused(client.request(method, f"/v3/documents/{path}", json={}), 404, "not found")

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("DELETE", "/v3/documents/bulk", b'{"ids": ["\\u0000", "\\ud800", "nobody"]}'),
            ("POST", "/v3/documents/retry", b'{"ids": ["\\u0000", "\\ud800"]}'),
            ("POST", "/v3/documents/list", b'{"page": 1000000, "limit": 1100}'),
            ("POST", "/v3/search", b'{"q": "\\u0000 \\ud800 ((\\" & | ! :* \\\\"}'),
            ("POST", "/v3/search", b'{"q": "' + b"word " * 1900 + b'"}'),
        ],
    )
    def test_a_request_about_nothing(
        self, client: httpx.Client, method: str, path: str, body: bytes
    ):
        assert client.request(method, path, content=body, headers=JSON).status_code == 200

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v3/documents/list", b'{"filters": ' + b'{"AND":[' * 400 + b"]}" * 400 + b"}"),
            ("/v3/documents/list", b'{"filters": "' + b"[" * 100_000 + b'"}'),
            ("/v3/documents/list", b'{"status": "\\u0000"}'),
            ("/v3/documents/list", b'{"filepath": "\\ud800"}'),
            ("/v3/documents/list", b'{"page": 1e400}'),
            ("/v3/documents/list", b'{"limit": ' + b"9" * 400 + b"}"),
            ("/v3/search", b'{"q": "x", "chunkThreshold": NaN}'),
            (
                "/v3/search",
                b'{"q": "x", "filters": {"AND": [{"key": "a\\u0000", "value": "\\ud800"}]}}',
            ),
        ],
    )
    def test_a_query_that_is_wrong(self, client: httpx.Client, path: str, body: bytes):
        refused(post(client, body, path), 400)

    def test_a_document_id_with_nul_in_a_search(self, client: httpx.Client):
        refused(post(client, b'{"q": "x", "docId": "\\u0000"}', "/v3/search"), 404)

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v3/nothing", 404),
            ("GET", "/v3/documents/", 404),
            ("POST", "/v3/documents/", 404),
            ("GET", "/v3/documents/a/b/c", 404),
            ("GET", "/", 200),
            ("GET", "//v3/documents/x", 404),
            ("PUT", "/v3/documents", 405),
            ("GET", "/v3/search", 405),
            ("OPTIONS", "/v3/documents", 405),
            ("TRACE", "/v3/documents", 405),
        ],
    )
    def test_a_path_or_method_that_is_not_there(
        self, client: httpx.Client, method: str, path: str, status: int
    ):
        answer = client.request(method, client.base_url.join("/").copy_with(raw_path=path.encode()))
        if status == 200:
            assert answer.status_code == 200
        else:
            refused(answer, status)

    @pytest.mark.parametrize(
        ("path", "takes"),
        [
            ("/v3/documents/x", "DELETE, GET, PATCH"),
            ("/ns/a", "DELETE, GET, PATCH"),
            ("/ns/a/document/file/x", "GET, PATCH, POST"),
        ],
    )
    def test_all_methods_of_a_path_are_told(self, client: httpx.Client, path: str, takes: str):
        answer = client.put(path)
        refused(answer, 405, f"{path} takes {takes}")
        assert answer.headers["allow"] == takes

    @pytest.mark.parametrize(
        "header",
        [None, "", "Bearer", "Basic {key}", "{key}", "Bearer nobody", "Bearer {key}x",
         "Bearer sm_0123456789ab_" + "a" * 49, "bearer {key}\u00e9"],
    )  # fmt: skip
    def test_a_key_that_is_none(self, live_url: str, key: str, header: str | None):
        headers = {} if header is None else {b"authorization": header.format(key=key).encode()}
        for method, path in [
            ("POST", "/v3/documents"), ("GET", "/v3/documents/x"), ("GET", "/v3/settings"),
            ("GET", "/v3/nothing"), ("DELETE", "/v3/documents/bulk"), ("POST", "/v3/search"),
            ("GET", "/anything"), ("POST", "/v3/documents/file"),
        ]:  # fmt: skip
            answer = httpx.request(
                method, live_url + path, headers=headers, content=b"no json", trust_env=False,
                verify=False,  # to read the certificates takes longer than the request
            )  # fmt: skip
            assert refused(answer, 401)["error"] == "Unauthorized"
            assert answer.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize("why", ["revoked", "expired"])
    def test_a_key_that_was_one(
        self, with_key: Callable[[str], httpx.Client], db: Database, org: Org, why: str
    ):
        with db.begin() as tx:
            known, secret = orgs.create_key(tx, org.id)
        http = with_key(secret)
        assert http.get("/v3/settings").status_code == 200
        with db.begin() as tx:
            if why == "revoked":
                orgs.revoke_key(tx, known.id)
            else:
                tx.execute("update keys set expires_at = now() where id = %s", (known.id,))

        refused(http.get("/v3/settings"), 401, "Unauthorized")


class TestTaken:
    def test_entity_context_up_to_its_limit(self, client: httpx.Client):
        add(client, entityContext="é" * 1500)

    def test_a_custom_id_up_to_its_limit(self, client: httpx.Client):
        id = add(client, customId="ü" * 255)
        assert get(client, id)["customId"] == "ü" * 255

    def test_nul_and_lone_surrogates_become_replacement_characters(
        self, client: httpx.Client, app: App
    ):
        body = b'{"content": "a\\u0000b \\ud800 heron", "metadata": {"a": "\\u0000\\udfff"}}'
        id = post(client, body).json()["id"]
        drain(app)

        assert get(client, id)["content"] == "a\ufffdb \ufffd heron"
        assert get(client, id)["metadata"] == {"a": "\ufffd\ufffd"}
        assert found(client, "heron")

    def test_a_surrogate_in_raw_bytes_is_replaced_too(self, client: httpx.Client):
        id = post(client, b'{"content": "a\xed\xa0\x80b"}').json()["id"]
        assert get(client, id)["content"] == "a\ufffdb"

    def test_surrogate_pairs_are_one_character(self, client: httpx.Client):
        id = post(client, b'{"content": "\\ud83e\\udda9"}').json()["id"]
        assert get(client, id)["content"] == "🦩"

    def test_numbers_come_back_as_they_were(self, client: httpx.Client):
        numbers = {"a": 2**60, "b": 1.5e300, "c": -0.1, "d": 0, "e": float(10**20)}
        id = add(client, metadata=numbers)
        seen = get(client, id)["metadata"]
        assert {key: float(value) for key, value in seen.items()} == numbers

    def test_unknown_fields_of_any_shape(self, client: httpx.Client):
        nested = b"[" * 500 + b"]" * 500
        assert post(client, b'{"content": "x", "extra": ' + nested + b"}").status_code == 200

    def test_a_name_that_is_an_attack(self, client: httpx.Client, app: App):
        for name in ("../../etc/passwd", "a\0b.txt", "x" * 500 + ".txt", "", "\r\nX: y.txt"):
            answer = upload(client, name or "upload", f"text {len(name)}".encode())
            assert answer.status_code == 200, answer.text
            drain(app)
            assert get(client, answer.json()["id"])["status"] == "done"

    def test_a_mime_type_that_is_none(self, client: httpx.Client):
        files = {"file": ("a.txt", b"text", "text/\x00plain")}
        answer = client.post("/v3/documents/file", files=files, data={"mimeType": "\0"})
        assert answer.status_code == 200

    def test_a_file_of_exactly_the_limit(self, client: httpx.Client):
        answer = upload(client, "a.txt", b"a" * 50 * MB)
        assert answer.status_code == 200
        assert client.delete(f"/v3/documents/{answer.json()['id']}").status_code == 204

    def test_ten_megabytes_in_one_line(self, client: httpx.Client):
        line = "word " * (2 * MB)
        id = add(client, line)
        assert get(client, id)["content"] == line

    def test_the_same_request_many_times_at_once(
        self, client: httpx.Client, db: Database, org: Org
    ):
        body = {"content": "the same", "customId": "one", "containerTags": ["b", "a"]}
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: client.post("/v3/documents", json=body), range(24)))

        assert {answer.status_code for answer in answers} == {200}
        assert len({json.dumps(answer.json()["id"]) for answer in answers}) == 1
        assert rows(db, org)["documents"] == 1
