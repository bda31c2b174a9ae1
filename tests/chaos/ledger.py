"""Clients that write down what the service acknowledged, and a reader that looks for torn states.

Each document belongs to one client, and ids are fresh: over-writing would heal a loss. A write
without an answer may have happened or not, so a document has a set of contents that are right.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

WORDS = "amber basin cedar delta ember fjord grove haven inlet jetty kiosk ledge mesa north".split()  # noqa: SIM905 # as prose
COMMON = "everywhere"
"""A word of every document."""


@dataclass
class Written:
    """What one document must look like."""

    custom_id: str | None
    right: set[str]
    """contents of which one is right; acknowledged writes leave one"""
    id: str | None = None
    parts: list[str] | None = None
    """of a conversation, in order"""
    seen: set[str] = field(default_factory=set[str])
    """contents that were right at some time"""
    deleted: bool | None = False
    """None: nobody knows"""
    uploaded: bool = False
    changeable: bool = True

    @property
    def name(self) -> str | None:
        return self.id or self.custom_id


class Client:
    """One thread of reads and writes."""

    def __init__(self, http: httpx.Client, seed: str, *, pause: float) -> None:
        self._http = http
        self._chance = Random(seed)
        self._pause = pause
        self.documents: list[Written] = []
        self.counts = Counter[str]()
        self.faults: list[str] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            acts = self._add, self._converse, self._replace, self._relabel, self._delete
            act = self._chance.choices((*acts, self._upload, self._read), (8, 5, 3, 2, 2, 1, 4))[0]
            act(stop)
            if self._pause:
                stop.wait(self._chance.uniform(0, 2 * self._pause))

    # --- the acts ------------------------------------------------------------------------------

    def _add(self, stop: threading.Event) -> None:
        text = self._text(self._chance.choice([1, 1, 3, 25]))
        custom_id = uuid.UUID(int=self._chance.getrandbits(128)).hex
        if self._chance.random() < 0.25:
            custom_id = None
        written = Written(custom_id, {text})
        self.documents.append(written)
        body = {"content": text, "containerTag": "chaos"}
        if custom_id is not None:
            body["customId"] = custom_id
        # Without a customId a second try may make a second document; that is the client's choice.
        answer = self._send(stop, "POST", "/v3/documents", body, again=custom_id is not None)
        self._note(written, answer, text)

    def _converse(self, stop: threading.Event) -> None:
        """Add to a conversation, and after no answer send the same part again."""
        chats = [w for w in self._living() if w.parts]
        if not chats or self._chance.random() < 0.2:
            chat = Written(uuid.UUID(int=self._chance.getrandbits(128)).hex, set(), parts=[])
            self.documents.append(chat)
        else:
            chat = self._chance.choice(chats)
        assert chat.parts is not None
        part = self._text(1)
        before = "\n".join(chat.parts)
        after = "\n".join([*chat.parts, part])
        chat.right = {before, after} if before else {after}
        body = {"content": part, "containerTag": "chaos", "customId": chat.custom_id}
        answer = self._send(stop, "POST", "/v3/documents", body, again=True)
        chat.parts.append(part)
        self._note(chat, answer, after)

    def _replace(self, stop: threading.Event) -> None:
        if written := self._any():
            text = self._text(self._chance.choice([1, 4, 25]))
            written.right.add(text)
            written.parts = None
            answer = self._send(stop, "PATCH", self._path(written), {"content": text}, again=True)
            self._note(written, answer, text)

    def _relabel(self, stop: threading.Event) -> None:
        if written := self._any():
            tags = ["chaos", *self._chance.sample("abcd", 2)]
            body = {"containerTags": tags, "metadata": {"n": self._chance.randrange(9)}}
            self._send(stop, "PATCH", self._path(written), body, again=True)

    def _delete(self, stop: threading.Event) -> None:
        if written := self._any():
            written.deleted = None
            answer = self._send(stop, "DELETE", self._path(written), None, again=True)
            if answer is not None:  # after no answer, 404 says that the first try did it
                written.deleted = True

    def _upload(self, stop: threading.Event) -> None:
        text = self._text(3)
        custom_id = uuid.UUID(int=self._chance.getrandbits(128)).hex
        written = Written(custom_id, {text}, uploaded=True)
        self.documents.append(written)
        form = {"containerTag": "chaos", "customId": custom_id}
        answer = self._send(stop, "POST", "/v3/documents/file", form, again=True, file=text)
        self._note(written, answer, text)

    def _read(self, stop: threading.Event) -> None:
        """What was acknowledged is there at once, and what was deleted stays so."""
        known = [w for w in self.documents if w.id and w.deleted is not None]
        if not known:
            return
        written = self._chance.choice(known)
        answer = self._send(stop, "GET", self._path(written), None, again=False)
        if answer is None:
            return
        if written.deleted:
            self._expect(answer.status_code == 404, f"deleted, yet there: {written.id}")
        else:
            self._expect(answer.status_code == 200, f"acknowledged, yet gone: {written.id}")
            content = answer.json().get("content")
            # A file has no content until it was read.
            right = written.seen | written.right | ({None} if written.uploaded else set())
            self._expect(content in right, f"never written: {written.id} {content!r}")

    # --- how they are sent and noted -----------------------------------------------------------

    def _send(
        self,
        stop: threading.Event,
        method: str,
        path: str,
        body: Any,
        *,
        again: bool,
        file: str | None = None,
    ) -> httpx.Response | None:
        """The answer, or None when the outcome is unknown for good."""
        while True:
            try:
                if file is None:
                    answer = self._http.request(method, path, json=body)
                else:
                    upload = {"file": ("note.txt", file.encode(), "text/plain")}
                    answer = self._http.request(method, path, data=body, files=upload)
            except httpx.TransportError:
                self.counts["no answer"] += 1
            else:
                self.counts[f"{method} {answer.status_code}"] += 1
                if answer.status_code != 503:
                    return self._judged(method, answer)
            if not again or stop.wait(0.05):
                return None

    def _judged(self, method: str, answer: httpx.Response) -> httpx.Response:
        good = answer.status_code in (200, 204) or (
            answer.status_code == 404 and method in ("GET", "DELETE")
        )
        self._expect(good, f"{method}: {answer.status_code} {answer.text[:300]}")
        if good and method != "GET":
            self.counts["acknowledged"] += 1
        return answer

    def _note(self, written: Written, answer: httpx.Response | None, text: str) -> None:
        written.seen |= written.right
        if answer is None:
            written.changeable = False  # the next change would not know what it builds on
        elif answer.status_code == 200:
            id = answer.json()["id"]
            self._expect(written.id in (None, id), f"two ids for {written.custom_id}")
            written.id = id
            written.right = {text}

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    def _living(self) -> list[Written]:
        return [w for w in self.documents if w.deleted is False and w.changeable and w.id]

    def _any(self) -> Written | None:
        living = self._living()
        return self._chance.choice(living) if living else None

    def _path(self, written: Written) -> str:
        by_custom_id = written.custom_id and self._chance.random() < 0.5
        return f"/v3/documents/{written.custom_id if by_custom_id else written.id}"

    def _text(self, lines: int) -> str:
        """Lines that no other text has."""
        mark = f"{self._chance.getrandbits(64):016x}"
        return "\n".join(
            f"{mark}x{n} {COMMON} " + " ".join(self._chance.choices(WORDS, k=20))
            for n in range(lines)
        )


class Watcher:
    """Searches and reads all the while: what it sees is whole."""

    def __init__(self, http: httpx.Client, seed: str) -> None:
        self._http = http
        self._chance = Random(seed)
        self.answers = 0
        self.chunks = 0
        self.faults: list[str] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._look()
            except httpx.TransportError:
                stop.wait(0.05)
            stop.wait(0.01)

    def _look(self) -> None:
        query = {
            "q": " ".join(self._chance.sample(WORDS, 2)),
            "includeFullDocs": True,
            "onlyMatchingChunks": self._chance.random() < 0.5,
            "limit": 20,
        }
        if self._chance.random() < 0.5:
            query["containerTag"] = "chaos"
        answer = self._http.post("/v3/search", json=query)
        if answer.status_code == 503:
            return
        if answer.status_code != 200:
            self.faults.append(f"search: {answer.status_code} {answer.text[:300]}")
            return
        self.answers += 1
        for hit in answer.json()["results"]:
            for chunk in hit["chunks"]:
                self.chunks += 1
                if hit["content"][chunk["start"] : chunk["end"]] != chunk["content"]:
                    self.faults.append(f"torn: {hit['documentId']} at {chunk['position']}")


def in_threads(works: list[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads
