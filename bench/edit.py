"""Edits: how many texts are embedded when one paragraph of a 105 KB document changes.

Over HTTP against the running service, by PATCH and by sending the whole text again under its
customId; counted is what the service itself says it embedded. The ratio is to the chunks of the
whole document, which is what processing it again would embed.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.corpus import Shuffled
from bench.figures import Figure
from bench.ground import Client, Ground, until

Editor = Callable[[list[str], int, str], list[str]]


@dataclass(frozen=True, slots=True)
class Size:
    length: int
    edits: int
    """of each document, half by PATCH and half by customId"""
    appends: int


FULL = Size(length=105_000, edits=40, appends=6)
QUICK = Size(length=105_000, edits=8, appends=2)
TINY = Size(length=8_000, edits=4, appends=1)


@dataclass
class Kept:
    """A document in the service, and the paragraphs that it should hold."""

    client: Client
    id: str
    custom_id: str
    paragraphs: list[str]
    revision: int
    chunks: int

    @property
    def text(self) -> str:
        return "\n\n".join(self.paragraphs)

    def patch(self) -> int:
        """Send the text by id; returns how many texts that embedded."""
        self.client.send("PATCH", f"/v3/documents/{self.id}", {"content": self.text})
        return self._embedded()

    def resend(self, content: str) -> int:
        """Send under the customId; the same."""
        self.client.add(content, customId=self.custom_id, containerTag="edit")
        return self._embedded()

    def _embedded(self) -> int:
        document = self._settled()
        if document["content"] != self.text:
            raise RuntimeError("the document does not hold what was sent")
        changed = document["latestRevision"] != self.revision
        self.revision = document["latestRevision"]
        self.chunks = document["chunks"]["total"]
        return document["chunks"]["embedded"] if changed else 0

    def _settled(self) -> dict[str, Any]:
        until(lambda: self.client.document(self.id)["status"] == "done", every=0.02)
        return self.client.document(self.id)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    client = ground.service.client()
    kept = [
        add(client, "prose", _prose(size.length)),
        add(client, "talk", _talk(size.length)),
    ]
    chunks = statistics.mean(document.chunks for document in kept)
    edits = [n for document in kept for n in _edit(document, size.edits)]
    whole = f"all {chunks:.0f} chunks"
    mean = statistics.mean(edits)
    yield Figure("edit.mean", "embedded per edit, mean", mean, "texts", mean / chunks, whole)
    worst = max(edits)
    yield Figure("edit.most", "embedded per edit, most", worst, "texts", worst / chunks, whole)
    appends = max(n for document in kept for n in _append(document, size.appends))
    yield Figure(
        "edit.append", "embedded on append, most", appends, "texts", appends / chunks, whole
    )
    same = sum(document.patch() + document.resend(document.text) for document in kept)
    yield Figure("edit.same", "embedded when nothing changed", same, "texts", same / chunks, whole)


def add(client: Client, name: str, paragraphs: list[str]) -> Kept:
    """The document as it is after its first processing."""
    custom_id = f"bench-edit-{name}"
    id = client.add("\n\n".join(paragraphs), customId=custom_id, containerTag="edit")
    until(lambda: client.document(id)["status"] == "done", every=0.05)
    document = client.document(id)
    return Kept(
        client,
        id,
        custom_id,
        paragraphs,
        document["latestRevision"],
        document["chunks"]["total"],
    )


def _edit(document: Kept, count: int) -> Iterator[int]:
    """Edits from the first paragraph to the last, each kind by turns."""
    fresh = Shuffled(31)
    for number in range(count):
        at = number * (len(document.paragraphs) - 1) // max(count - 1, 1)
        editor = EDITORS[number // 2 % len(EDITORS)]
        document.paragraphs = editor(document.paragraphs, at, fresh.document(300))
        yield document.patch() if number % 2 else document.resend(document.text)


def _append(document: Kept, count: int) -> Iterator[int]:
    """The whole text with more at its end, or only what is new."""
    fresh = Shuffled(32)
    for number in range(count):
        new = fresh.document(400)
        if number % 2:
            document.paragraphs.append(new)
            yield document.patch()
        else:
            # Only the new part is sent: the service puts it on a line of its own.
            document.paragraphs[-1] += f"\n{new}"
            yield document.resend(new)


def _rewritten(paragraphs: list[str], at: int, new: str) -> list[str]:
    return [*paragraphs[:at], new, *paragraphs[at + 1 :]]


def _inserted(paragraphs: list[str], at: int, new: str) -> list[str]:
    return [*paragraphs[:at], new, *paragraphs[at:]]


def _removed(paragraphs: list[str], at: int, _: str) -> list[str]:
    return [*paragraphs[:at], *paragraphs[at + 1 :]]


def _touched(paragraphs: list[str], at: int, new: str) -> list[str]:
    words = paragraphs[at].split(" ")
    words[len(words) // 2] = new.split()[0] + " again"
    return [*paragraphs[:at], " ".join(words), *paragraphs[at + 1 :]]


EDITORS: Sequence[Editor] = (_rewritten, _touched, _inserted, _removed)


def _prose(length: int) -> list[str]:
    """Paragraphs under headings."""
    texts = Shuffled(3)
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < length:
        if len(paragraphs) % 7 == 0:
            paragraphs.append(f"## Part {len(paragraphs) // 7 + 1}")
        paragraphs.append(texts.document(500))
    return paragraphs


def _talk(length: int) -> list[str]:
    """A conversation, one message a paragraph."""
    texts = Shuffled(4)
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < length:
        speaker = ("user", "assistant")[len(paragraphs) % 2]
        message = " ".join(texts.document((120, 400)[len(paragraphs) % 2]).split())
        paragraphs.append(f"{speaker}: {message}")
    return paragraphs
