"""Clients that write and remember, and watchers that look for what is torn."""

import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from random import Random
from typing import Any
from urllib.parse import urlsplit

from recollect.errors import Transient
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.torture import texts
from recollect.torture.oracle import TAG, Fault, Ledger, Verdict, Written, canonical

PATIENCE = 240.0
"""Seconds: a request that is given up may still wait at the listening socket and be served after
the next one."""
AGAIN = 0.2
"""Seconds until the next try."""
LENGTHS, OFTEN = (1, 2, 5, 25, 600), (60, 20, 15, 5, 0.3)
"""Lines of a text: the longest are stored in several batches."""
TOO_MUCH = 1500
"""Documents in the queue above which clients add none."""
NEWEST = 60
"""Changes go to the newest of a client's documents, so that many stay as they were added."""


@dataclass
class Weather:
    """What all clients look at."""

    stop: threading.Event = field(default_factory=threading.Event)
    light: bool = False
    backlog: int = 0


class _Service:
    """The API of each machine; each request goes to any of them, as behind a balancer."""

    def __init__(self, urls: Sequence[str], key: str, seed: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._endpoints = [Endpoint(url, headers=headers, timeout=PATIENCE) for url in urls]
        self._chance = Random(seed)

    def any(self) -> Endpoint:
        return self._chance.choice(self._endpoints)

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()


class Client:
    """One thread of writes; each document belongs to one client."""

    def __init__(
        self, urls: Sequence[str], key: str, ledger: Ledger, weather: Weather, seed: str
    ) -> None:
        self.faults: list[Fault] = []
        self.counts = Counter[str]()
        self._service = _Service(urls, key, f"{seed} goes")
        self._urls = [urlsplit(url) for url in urls]
        self._key = key
        self._ledger = ledger
        self._weather = weather
        self._chance = Random(seed)
        self._mine: list[Written] = []

    def run(self, *, rests: bool) -> None:
        """Until the weather says stop; one that `rests` does nothing while it is light."""
        acts: tuple[tuple[Callable[[], None], int], ...] = (
            (self._add, 10),
            (self._add_many, 5),
            (self._append, 6),
            (self._replace, 4),
            (self._relabel, 4),
            (self._delete, 2),
            (self._delete_many, 1),
            (self._upload, 2),
            (self._cut, 1),
            (self._read, 6),
        )
        functions, weights = zip(*acts, strict=True)
        while not self._weather.stop.is_set():
            if self._weather.light and rests:
                self._weather.stop.wait(0.1)
                continue
            act = self._chance.choices(functions, weights)[0]
            if self._weather.backlog > TOO_MUCH and act in (self._add, self._add_many):
                act = self._read
            act()
            if self._weather.light:
                self._weather.stop.wait(self._chance.uniform(0, 0.2))
        self._service.close()

    # --- the acts ------------------------------------------------------------------------------

    def _add(self) -> None:
        named = self._chance.random() < 0.75
        written, body = self._new(named=named)
        # Without a customId a second try may make a second document; that is the client's choice.
        answer = self._send("POST", "/v3/documents", body, [written], again=named)
        if answer is not None:
            self._identify(written, answer["id"])
            self._ledger.note("add", [written])

    def _add_many(self) -> None:
        pairs = [self._new(named=True) for _ in range(self._chance.randrange(2, 40))]
        some = [written for written, _ in pairs]
        body = {"documents": [one for _, one in pairs]}
        answer = self._send("POST", "/v3/documents/batch", body, some, again=True)
        if answer is None:
            return
        for written, result in zip(some, answer["results"], strict=True):
            if result["status"] == "error":
                self._blame("wrong", f"a batch refused an item: {result.get('error')}")
            else:
                self._identify(written, result["id"])
        self._ledger.note("add", [written for written in some if written.there])

    def _append(self) -> None:
        written = self._any(lambda one: one.custom_id is not None and not one.was_file)
        if written is None:
            return
        more = texts.part(self._chance, self._length())
        before = written.content
        after = f"{before}\n{more}"
        body = {"content": more, "containerTag": TAG, "customId": written.custom_id}
        self._change(written, "POST", "/v3/documents", body, contents={before, after})
        if written.sure:
            written.contents = {after}
            self._ledger.note("append", [written])

    def _replace(self) -> None:
        written = self._any()
        if written is None:
            return
        text = texts.part(self._chance, self._length())
        both = {written.content, text}
        self._change(written, "PATCH", self._path(written), {"content": text}, contents=both)
        if written.sure:
            written.contents = {text}
            self._ledger.note("replace", [written])

    def _relabel(self) -> None:
        written = self._any()
        if written is None:
            return
        tags = [TAG, *self._chance.sample("abcd", 2)]
        metadata = self._metadata()
        body = {"containerTags": tags, "metadata": metadata}
        written.tags.add(tuple(tags))
        written.metadata.add(canonical(metadata))
        self._change(written, "PATCH", self._path(written), body)
        if written.sure:
            written.tags, written.metadata = {tuple(tags)}, {canonical(metadata)}
            self._ledger.note("relabel", [written])

    def _delete(self) -> None:
        written = self._any()
        if written is None:
            return
        path = self._path(written)
        written.there = None
        answer = self._send("DELETE", path, None, [written], again=True)
        if answer is not None:
            written.there = False
            self._ledger.note("delete", [written])

    def _delete_many(self) -> None:
        recent = [one for one in self._mine[-NEWEST:] if one.changeable]
        some = self._chance.sample(recent, min(len(recent), self._chance.randrange(2, 6)))
        if not some:
            return
        for written in some:
            written.there = None
        body = {"ids": [self._handle(one) for one in some]}
        answer = self._send("DELETE", "/v3/documents/bulk", body, some, again=True)
        if answer is None:
            return
        if answer["deletedCount"] != len(some) and answer["tries"] == 1:
            self._blame("lost", f"{len(some) - answer['deletedCount']} were gone before a deletion")
        for written in some:
            written.there = False
        self._ledger.note("delete", some)

    def _upload(self) -> None:
        written, body = self._new(named=True)
        written.was_file = True
        fields = {
            "containerTag": TAG,
            "customId": body["customId"],
            "metadata": json.dumps(body["metadata"]),
        }
        path = "/v3/documents/file"
        file = body["content"].encode()
        answer = self._send("POST", path, fields, [written], again=True, file=file)
        if answer is not None:
            self._identify(written, answer["id"])
            self._ledger.note("upload", [written])

    def _cut(self) -> None:
        """Break the connection while sending, which must do nothing, or before the answer."""
        half = self._chance.random() < 0.5
        written = self._any()
        if written is None or self._chance.random() < 0.4:
            written, body = self._new(named=True)
            self._break_off("POST", "/v3/documents", body, half=half)
            if half:
                written.there = False
                return
            # What the first try does late is what the second one did.
            written.sure = False
            if self._chance.random() < 0.5:
                answer = self._send("POST", "/v3/documents", body, [written], again=True)
                if answer is not None:
                    self._identify(written, answer["id"])
                    self._ledger.note("add", [written])
        elif half or self._chance.random() < 0.7:
            text = texts.part(self._chance, self._length())
            self._break_off("PATCH", self._path(written), {"content": text}, half=half)
            if not half:
                written.past |= written.contents
                written.contents = {*written.contents, text}
                written.sure = False
        else:
            written.there = None
            self._break_off("DELETE", self._path(written), None, half=False)

    def _read(self) -> None:
        """What was acknowledged is there at once, and what was deleted stays so."""
        known = [one for one in self._mine[-5 * NEWEST :] if one.id and one.there is not None]
        if not known:
            return
        written = self._chance.choice(known)
        try:
            answer = self._service.any().request("GET", self._path(written))
        except Transient:
            return
        if answer.status == 503:
            return
        self.counts["reads"] += 1
        if written.there is False:
            if answer.status != 404:
                self._blame("wrong", f"{written.name} was deleted and is answered {answer.status}")
        elif answer.status == 404:
            self._blame("lost", f"{written.name} was acknowledged and is not found")
        elif answer.status != 200:
            self._blame("wrong", f"GET answered {answer.status}")
        else:
            self._check(written, json.loads(answer.data))

    def _check(self, written: Written, found: Mapping[str, Any]) -> None:
        content = found.get("content")
        unread = content is None and written.was_file
        if not unread and content not in written.past | written.contents:
            self._blame("wrong", f"{written.name} shows a content that nobody wrote")
        if tuple(found["containerTags"]) not in written.tags:
            self._blame("wrong", f"{written.name} shows the tags {found['containerTags']}")
        if canonical(found["metadata"]) not in written.metadata:
            self._blame("wrong", f"{written.name} shows metadata that nobody wrote")

    # --- how they are sent ---------------------------------------------------------------------

    def _new(self, *, named: bool) -> tuple[Written, dict[str, Any]]:
        text = texts.part(self._chance, self._length())
        metadata = self._metadata()
        custom_id = f"{self._chance.getrandbits(128):032x}" if named else None
        body: dict[str, Any] = {"content": text, "containerTag": TAG, "metadata": metadata}
        if custom_id is not None:
            body["customId"] = custom_id
        written = Written(custom_id, {text}, {(TAG,)}, {canonical(metadata)})
        self._mine.append(self._ledger.expect(written))
        return written, body

    def _change(
        self,
        written: Written,
        method: str,
        path: str,
        body: dict[str, Any],
        *,
        contents: set[str] | None = None,
    ) -> None:
        """Send a change of a document that is there."""
        if contents is not None:
            written.past |= written.contents
            written.contents = contents
        answer = self._send(method, path, body, [written], again=True)
        if answer is not None and answer.get("id") != written.id:
            self._blame("doubled", f"{written.name} became {answer.get('id')}")

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        concerned: Sequence[Written],
        *,
        again: bool,
        file: bytes | None = None,
    ) -> dict[str, Any] | None:
        """The answer, with `tries`, or None when the outcome is unknown for good."""
        tries = 0
        while True:
            tries += 1
            try:
                if file is None:
                    answer = self._service.any().request(method, path, json=body)
                else:
                    upload = ("note.txt", BytesIO(file), "text/plain")
                    answer = self._service.any().request(
                        method, path, data=body, files={"file": upload}
                    )
            except Transient as error:
                self.counts["no answer"] += 1
                if error.code == "timeout":
                    self._blame("stuck", f"{method} had no answer for {PATIENCE:.0f} s")
                    again = False
            else:
                self.counts[str(answer.status)] += 1
                if answer.status not in (429, 503):
                    return self._judged(method, answer, concerned, tries)
            if not again or self._weather.stop.wait(AGAIN):
                for written in concerned:
                    written.sure = False
                return None

    def _judged(
        self, method: str, answer: EndpointAnswer, concerned: Sequence[Written], tries: int
    ) -> dict[str, Any] | None:
        if answer.status in (200, 204):
            return {**(json.loads(answer.data) if answer.data else {}), "tries": tries}
        if answer.status == 404 and method == "DELETE" and tries > 1:
            return {"tries": tries}  # the try that had no answer did it
        for written in concerned:
            written.sure = False
        if answer.status == 404:
            self._blame("lost", f"{concerned[0].name} was acknowledged and is not found")
        else:
            said = answer.data[:120].decode(errors="replace")
            self._blame("wrong", f"{method} answered {answer.status}: {said}")
        return None

    def _break_off(
        self, method: str, path: str, body: dict[str, Any] | None, *, half: bool
    ) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        url = self._chance.choice(self._urls)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Authorization: Bearer {self._key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self.counts["cut while sending" if half else "cut before the answer"] += 1
        assert url.hostname is not None
        with contextlib.suppress(OSError):
            where = (url.hostname, url.port or 80)
            with socket.create_connection(where, timeout=10) as connection:
                connection.sendall(head.encode() + (data[: len(data) // 2] if half else data))
                self._weather.stop.wait(self._chance.choice([0.0, 0.01, 0.05]))
                if self._chance.random() < 0.5:  # a reset instead of a farewell
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def _identify(self, written: Written, id: str) -> None:
        if written.id not in (None, id):
            self._blame("doubled", f"{written.custom_id} is {written.id} and {id}")
        written.id = id
        written.there = True

    def _blame(self, verdict: Verdict, what: str) -> None:
        self.faults.append(Fault(verdict, what))

    def _any(self, fits: Callable[[Written], bool] = lambda _: True) -> Written | None:
        fitting = [one for one in self._mine[-NEWEST:] if one.changeable and fits(one)]
        return self._chance.choice(fitting) if fitting else None

    def _handle(self, written: Written) -> str:
        assert written.id is not None
        by_custom_id = written.custom_id is not None and self._chance.random() < 0.5
        return (written.custom_id if by_custom_id else None) or written.id

    def _path(self, written: Written) -> str:
        return f"/v3/documents/{self._handle(written)}"

    def _length(self) -> int:
        return self._chance.choices(LENGTHS, OFTEN)[0]

    def _metadata(self) -> dict[str, Any]:
        return {"n": self._chance.randrange(1_000_000), "who": self._chance.choice(texts.WORDS)}


class Watcher:
    """Searches, lists and reads all the while: whatever is shown is whole."""

    def __init__(
        self, urls: Sequence[str], key: str, ledger: Ledger, weather: Weather, seed: str
    ) -> None:
        self.faults: list[Fault] = []
        self.answers = 0
        self.chunks = 0
        """how many were compared with the text that they are cut from"""
        self._service = _Service(urls, key, f"{seed} goes")
        self._ledger = ledger
        self._weather = weather
        self._chance = Random(seed)

    def run(self) -> None:
        looks = (self._search, self._search, self._list, self._get)
        while not self._weather.stop.is_set():
            self._chance.choice(looks)()
            self._weather.stop.wait(0.1)
        self._service.close()

    def _search(self) -> None:
        query: dict[str, Any] = {
            "q": " ".join(self._chance.sample(texts.WORDS, 2)),
            "includeFullDocs": True,
            "onlyMatchingChunks": self._chance.random() < 0.5,
            "limit": 20,
            "containerTag": TAG,
        }
        for hit in (self._asked("POST", "/v3/search", query) or {}).get("results", ()):
            content: str | None = hit.get("content")
            if content is None:  # left out, with a warning, where it changes all the time
                continue
            self._check(hit["documentId"], content)
            for chunk in hit["chunks"]:
                self.chunks += 1
                if content[chunk["start"] : chunk["end"]] != chunk["content"]:
                    what = f"{hit['documentId']} was searched with a chunk that is not part of it"
                    self.faults.append(Fault("wrong", what))

    def _list(self) -> None:
        query = {
            "limit": 50,
            "includeContent": True,
            "containerTags": [TAG],
            "sort": self._chance.choice(["createdAt", "updatedAt"]),
        }
        found = (self._asked("POST", "/v3/documents/list", query) or {}).get("memories", ())
        for listed in found:
            self._check(listed["id"], listed.get("content"))

    def _get(self) -> None:
        written = self._ledger.written
        if not written:
            return
        one = written[-1 - self._chance.randrange(min(len(written), 200))]
        if one.id is not None:
            found = self._asked("GET", f"/v3/documents/{one.id}", None)
            if found is not None:
                self._check(one.id, found.get("content"))

    def _check(self, id: str, content: str | None) -> None:
        if content is not None and not texts.is_whole(content):
            self.faults.append(Fault("wrong", f"{id} was seen torn"))

    def _asked(self, method: str, path: str, body: object) -> dict[str, Any] | None:
        try:
            answer = self._service.any().request(method, path, json=body)
        except Transient:
            self._weather.stop.wait(AGAIN)
            return None
        if answer.status == 200:
            self.answers += 1
            return json.loads(answer.data)
        if answer.status not in (404, 429, 503):
            said = answer.data[:120].decode(errors="replace")
            self.faults.append(Fault("wrong", f"{method} {path} answered {answer.status}: {said}"))
        return None
