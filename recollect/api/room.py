"""Large answers: how much of documents one holds, and how much may be on its way out at once."""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from recollect import documents
from recollect.app import App
from recollect.db import Tx
from recollect.errors import Unavailable
from recollect.model import Document, DocumentId, Tenant

MOST_TEXT = 16_000_000
"""Bytes of documents' texts in an answer about several. A document of its own is never cut."""
SMALL = 1_000_000
"""Bytes below which an answer is not counted."""
ROOM = 110_000_000
"""Bytes of texts on their way out of a process at once: each is held about three times, as text, in
the answer and on the line. One that is larger than what there is goes when nothing else does."""
WAIT = 2.0
"""Seconds that an answer waits for room before its sender is asked to come again."""


class Room:
    """Counts the bytes of large answers, from before they are read until others read them. An
    organisation has two thirds of it at most, or one answer."""

    def __init__(self, size: int = ROOM) -> None:
        self._size = size
        self._taken = Counter[str]()
        """by organisation"""
        self._changed = threading.Condition()

    def take(self, size: int, org: str) -> None:
        """Wait for room; raises Unavailable."""
        end = time.monotonic() + WAIT
        with self._changed:
            while not self._has(size, org):
                if not self._changed.wait(end - time.monotonic()):
                    raise Unavailable(
                        "too many large answers are on their way; ask again, or for less at once",
                        after=timedelta(seconds=1),
                    )
            self._taken[org] += size

    def _has(self, size: int, org: str) -> bool:
        taken, own = self._taken.total(), self._taken[org]
        if own and own + size > self._size * 2 // 3:
            return False
        return not taken or taken + size <= self._size

    def give_back(self, size: int, org: str) -> None:
        with self._changed:
            self._taken[org] -= size
            self._taken += Counter()  # forgets who has none
            self._changed.notify_all()


async def current_room(request: Request) -> Room:
    return request.app.state.room


CurrentRoom = Annotated[Room, Depends(current_room)]


class Holding:
    """Room that one answer takes; given back when the answer is gone, sent or not."""

    def __init__(self, room: Room, tenant: Tenant) -> None:
        self._room = room
        self._org = tenant.id
        self._size = 0

    def take(self, size: int) -> None:
        """Raises Unavailable."""
        if size > SMALL:
            self._room.take(size, self._org)
            self._size += size

    def answer(self, body: BaseModel) -> Response:
        """Written out here, in the thread of the request: large ones would stop all others."""
        response = Response(body.model_dump_json(by_alias=True), media_type="application/json")
        if self._size:
            weakref.finalize(response, self._room.give_back, self._size, self._org)
            self._size = 0
        return response

    def __enter__(self) -> "Holding":
        return self

    def __exit__(self, *_: object) -> None:
        if self._size:  # no answer came of it
            self._room.give_back(self._size, self._org)


def fitting(tx: Tx, tenant: Tenant, ids: Iterable[DocumentId]) -> tuple[list[DocumentId], int]:
    """Those of the documents, in their order, whose texts go into one answer, and their bytes."""
    wanted = list(ids)
    sizes: Mapping[DocumentId, int] = documents.text_sizes(tx, tenant, wanted)
    fits: list[DocumentId] = []
    total = 0
    for id in wanted:
        size = sizes.get(id, 0)
        if total + size <= MOST_TEXT or not fits:
            fits.append(id)
            total += size
    return fits, total


def with_texts(
    app: App,
    tenant: Tenant,
    found: Sequence[Document],
    holding: Holding,
    field: str,
    warnings: list[str],
    *,
    newest: bool = False,
) -> list[Document]:
    """The documents with their published texts, or the `newest` that were accepted, as far as those
    go into one answer; what is left out of the `field` is added to the `warnings`."""
    fits, size = app.db.read(lambda tx: fitting(tx, tenant, [one.id for one in found]))
    holding.take(size)
    # One whose text is published meanwhile has a text, and not none.
    wanted = [one for one in found if one.id in fits]
    texts = app.db.read(lambda tx: documents.texts(tx, tenant, wanted, changed=True, newest=newest))
    if len(fits) < len(found):
        warnings.append(left_out(field, len(found) - len(fits)))
    return [replace(one, text=texts.get(one.id)) for one in found]


def left_out(field: str, missing: int) -> str:
    """The warning of an answer without some documents' texts."""
    documents_are = "document is" if missing == 1 else "documents are"
    return (
        f"{field}: the texts of {missing} {documents_are} left out, since the answer would have"
        f" more than {MOST_TEXT:,} bytes of them; ask for each by GET /v3/documents/{{id}}, or for"
        " fewer at once"
    )
