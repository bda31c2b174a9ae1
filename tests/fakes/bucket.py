"""A bucket behind the S3 protocol on loopback: it keeps objects, and fails on demand."""

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

Way = Literal["cut", "hang", "lose"]
"""How an answer fails: it ends within its body, it does not come until the bucket is healed, or the
connection ends instead of it when all is done."""
ANSWERS = 120
"""seconds after which what hangs is let go all the same"""


class Bucket:
    """`locked` objects can be neither read nor deleted, which the bucket says (403)."""

    def __init__(self, name: str = "files") -> None:
        self.name = name
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.locked: set[str] = set()
        self.asked: list[str] = []
        """verb, and path with query, of each request"""
        self.healed = threading.Event()
        self._fault: tuple[str, Way | tuple[int, str], int] | None = None

    def fail(self, verb: str, how: Way | tuple[int, str], times: int = 1_000_000) -> None:
        """So many times, each request of a verb, or of any (`""`); with status and code, or so."""
        self.healed.clear()
        self._fault = verb, how, times

    def heal(self) -> None:
        self._fault = None
        self.healed.set()

    def fault(self, verb: str) -> Way | tuple[int, str] | None:
        if self._fault is None or self._fault[2] < 1 or self._fault[0] not in (verb, ""):
            return None
        wanted, how, times = self._fault
        self._fault = wanted, how, times - 1
        return how


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def log_message(self, format: str, *args: Any) -> None:  # its name there
        pass

    def _serve(self) -> None:
        bucket, parts = self.bucket, urlsplit(self.path)
        _, name, key = (unquote(parts.path) + "/").split("/", 2)
        key = key.rstrip("/")
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        bucket.asked.append(f"{self.command} {self.path}")
        match bucket.fault(self.command):
            case (int() as status, str() as code):
                self._answer(status, _error(code))
            case "hang":
                bucket.healed.wait(ANSWERS)
                self.close_connection = True
            case how:
                if name != bucket.name:
                    status, body, headers = 404, _error("NoSuchBucket"), {}
                else:
                    status, body, headers = self._done(key, query, data)
                if how == "lose":
                    self.close_connection = True
                    return
                self._answer(status, body, headers, cut=how == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # their names there

    def _done(
        self, key: str, query: dict[str, str], data: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        bucket, mark = self.bucket, {"etag": f'"{sha256(data).hexdigest()}"'}
        match self.command:
            case "PUT" if "uploadId" in query:
                bucket.uploads[query["uploadId"]][int(query["partNumber"])] = data
                return 200, b"", mark
            case "PUT":
                bucket.objects[key] = data
                return 200, b"", mark
            case "POST" if "uploads" in query:
                id = f"upload{len(bucket.asked)}"
                bucket.uploads[id] = {}
                told = f"<R><Bucket>b</Bucket><Key>k</Key><UploadId>{id}</UploadId></R>"
                return 200, told.encode(), {}
            case "POST" if "uploadId" in query:
                sent = bucket.uploads.pop(query["uploadId"], None)
                if sent is None:
                    return 404, _error("NoSuchUpload"), {}
                bucket.objects[key] = b"".join(part for _, part in sorted(sent.items()))
                return 200, b"<R><ETag>whole</ETag></R>", {}
            case "POST":
                return 200, self._deleted(data.decode()), {}
            case "DELETE":
                bucket.uploads.pop(query.get("uploadId", ""), None)
                return 204, b"", {}
            case _ if not key:
                return 200, self._list(query.get("prefix", "")), {}
            case _:
                return self._read(key)

    def _deleted(self, wish: str) -> bytes:
        told = ""
        for key in re.findall("<Key>(.*?)</Key>", wish):
            if key in self.bucket.locked:
                told += f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message/></Error>"
            else:
                self.bucket.objects.pop(key, None)
                told += f"<Deleted><Key>{key}</Key></Deleted>"
        return f"<DeleteResult>{told}</DeleteResult>".encode()

    def _list(self, prefix: str) -> bytes:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        found = [(key, data) for key, data in self.bucket.objects.items() if key.startswith(prefix)]
        rows = "".join(
            f"<Contents><Key>{key}</Key><LastModified>{now}</LastModified><ETag>e</ETag>"
            f"<Size>{len(data)}</Size></Contents>"
            for key, data in found
        )
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        )

    def _read(self, key: str) -> tuple[int, bytes, dict[str, str]]:
        if key in self.bucket.locked:
            return 403, _error("InvalidObjectState"), {}
        if key not in self.bucket.objects:
            return 404, _error("NoSuchKey"), {}
        data = self.bucket.objects[key]
        headers = {
            "etag": f'"{sha256(data).hexdigest()}"',
            "last-modified": format_datetime(datetime.now(UTC), usegmt=True),
        }
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or "")
        if wanted is None:
            return 200, data, headers
        start, end = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        headers["content-range"] = f"bytes {start}-{end}/{len(data)}"
        return 206, data[start : end + 1], headers

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left, as one does that waits no longer."""


@contextmanager
def serving_bucket() -> Generator[Bucket]:
    """The environment names it meanwhile."""
    bucket = Bucket()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"bucket": bucket}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "AKIABUCKET",
            "AWS_SECRET_ACCESS_KEY": "secret/of+bucket",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        }.items():
            patch.setenv(name, value)
        try:
            yield bucket
        finally:
            bucket.heal()
            server.shutdown()
            server.server_close()
