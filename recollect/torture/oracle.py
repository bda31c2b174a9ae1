"""What the service acknowledged, on disk, and what each document may be by now, in memory.

A write without an answer may have happened or not, so a document has sets of what is right. Ids
are fresh: to write over a document would heal its loss.
"""

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from recollect.torture import texts

Verdict = Literal["lost", "doubled", "stuck", "wrong"]
VERDICTS: tuple[Verdict, ...] = ("lost", "doubled", "stuck", "wrong")
TAG = "torture"
"""The first tag of every document that clients write."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A promise that did not hold."""

    verdict: Verdict
    what: str
    """names the document, never quotes more than a few words of it"""


@dataclass
class Written:
    """One document, of one client."""

    custom_id: str | None
    contents: set[str]
    """of which one is right"""
    tags: set[tuple[str, ...]]
    """likewise"""
    metadata: set[str]
    """likewise, as JSON"""
    id: str | None = None
    there: bool | None = None
    """None: nobody knows"""
    sure: bool = True
    """whether the next change would know what it builds on"""
    was_file: bool = False
    """a file has no content until it was read"""
    past: set[str] = field(default_factory=set[str])
    """contents that were right once and may be shown until the newest is processed"""

    @property
    def changeable(self) -> bool:
        return self.there is True and self.sure and self.id is not None

    @property
    def name(self) -> str:
        return self.id or self.custom_id or "(no id)"

    @property
    def content(self) -> str:
        """The right one, of a document that is `changeable`."""
        [content] = self.contents
        return content


def canonical(metadata: Any) -> str:
    """Metadata as a value that compares."""
    return json.dumps(metadata, sort_keys=True)


class Ledger:
    """Acknowledged writes, one JSON object a line, on the disk before the client goes on."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._lock = threading.Lock()
        self.written: list[Written] = []
        self.acknowledged = 0

    def expect(self, written: Written) -> Written:
        """A document that is about to be written."""
        with self._lock:
            self.written.append(written)
        return written

    def note(self, act: str, documents: Sequence[Written]) -> None:
        """An answer said that it is done."""
        lines = "".join(
            json.dumps(
                {
                    "act": act,
                    "id": one.id,
                    "customId": one.custom_id,
                    "there": one.there,
                    "sha256": [sha256(text.encode()).hexdigest() for text in one.contents],
                }
            )
            + "\n"
            for one in documents
        )
        with self._lock:
            self._file.write(lines)
            self._file.flush()
            self.acknowledged += len(documents)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def compare(written: Sequence[Written], listed: Sequence[dict[str, Any]]) -> list[Fault]:
    """Every way in which the listed documents differ from what was acknowledged."""
    faults = _doubled(listed)
    by_id = {found["id"]: found for found in listed}
    by_custom_id = {found["customId"]: found for found in listed if found["customId"]}
    by_content = {found.get("content"): found for found in listed}
    known: set[str] = set()
    for one in written:
        found = by_id.get(one.id or "") or by_custom_id.get(one.custom_id)
        if found is None and one.id is None:
            found = next((by_content[text] for text in one.contents if text in by_content), None)
        if found is not None:
            known.add(found["id"])
            faults += _differences(one, found)
        elif one.there is True:
            faults.append(Fault("lost", f"{one.name} was acknowledged and is not there"))
    marks = {mark for one in written for text in one.contents for mark in texts.marks(text)}
    for id, found in by_id.items():
        if id in known:
            continue
        if marks.intersection(texts.marks(found.get("content") or "")):
            faults.append(Fault("doubled", f"{id} is a second one of a document"))
        else:
            faults.append(Fault("wrong", f"{id} was written by nobody"))
    return faults


def _doubled(listed: Sequence[dict[str, Any]]) -> list[Fault]:
    faults: list[Fault] = []
    by_custom_id: dict[str, str] = {}
    by_mark: dict[str, str] = {}
    for found in listed:
        if found["customId"]:
            first = by_custom_id.setdefault(found["customId"], found["id"])
            if first != found["id"]:
                faults.append(Fault("doubled", f"{first} and {found['id']} have one customId"))
        for mark in texts.marks(found.get("content") or ""):
            first = by_mark.setdefault(mark, found["id"])
            if first != found["id"]:
                faults.append(Fault("doubled", f"{first} and {found['id']} have one text"))
    return faults


def _differences(one: Written, found: dict[str, Any]) -> list[Fault]:
    id = found["id"]
    if one.there is False:
        return [Fault("wrong", f"{id} was deleted, or never wholly sent, and is there")]
    if found["status"] != "done":
        code = found.get("errorCode")
        return [Fault("stuck", f"{id} is {found['status']}" + (f" ({code})" if code else ""))]
    faults: list[Fault] = []
    if found.get("content") not in one.contents:
        old = found.get("content") in one.past
        faults.append(Fault("wrong", f"{id} has {'an old' if old else 'a foreign'} content"))
    if tuple(found["containerTags"]) not in one.tags:
        faults.append(Fault("wrong", f"{id} has the tags {found['containerTags']}"))
    if canonical(found["metadata"]) not in one.metadata:
        faults.append(Fault("wrong", f"{id} has the metadata {canonical(found['metadata'])[:80]}"))
    if one.custom_id != found["customId"]:
        faults.append(Fault("wrong", f"{id} has another customId"))
    return faults
