"""What was away for a moment keeps nobody waiting for longer; what stays away is left in peace."""

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from recollect import documents
from recollect.app import App
from recollect.documents import NewDocument
from recollect.errors import Unavailable
from recollect.model import DocumentId, Status, Tenant
from recollect.worker import processing
from recollect.worker.processing import Worker
from tests.conftest import eventually
from tests.fakes.embedder import WordEmbedder


class Away(WordEmbedder):
    """Does not answer the first times, and notes when it was asked."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.asked: list[float] = []

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.asked.append(time.monotonic())
        if len(self.asked) <= self.times:
            raise Unavailable("connection refused")
        return super().embed(texts, query=query)


def gaps(app: App, tenant: Tenant, away: Away) -> list[float]:
    """Seconds between the attempts at one document, by a worker, until it is done."""
    id = DocumentId(uuid.uuid4().hex)
    with app.db.begin() as tx:
        documents.add(tx, tenant, NewDocument(documents.text_content("A note."), ["a"]), id)
    working = Worker(replace(app, embedder=away))
    thread = threading.Thread(target=working.run)
    thread.start()

    def done() -> bool:
        with app.db.begin() as tx:
            return documents.get(tx, tenant, id).status is Status.DONE

    try:
        eventually(done)
    finally:
        working.stop()
        thread.join(30)
    return [after - before for before, after in zip(away.asked, away.asked[1:], strict=False)]


def test_after_a_moment_without_it_the_queue_goes_on_at_once(
    app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that no machine is as slow.
    monkeypatch.setattr(processing, "PAUSE", timedelta(hours=1))
    [gap] = gaps(app, tenant, Away(1))

    assert processing.FIRST_PAUSE.total_seconds() <= gap < processing.PAUSE.total_seconds() / 2


def test_while_it_stays_away_the_rests_grow(
    app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "FIRST_PAUSE", timedelta(milliseconds=20))
    monkeypatch.setattr(processing, "PAUSE", timedelta(milliseconds=100))
    found = gaps(app, tenant, Away(5))

    assert all(gap >= least for gap, least in zip(found, (0.02, 0.04, 0.08, 0.1, 0.1), strict=True))
