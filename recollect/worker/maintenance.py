"""What a worker process does beside its queues: add up what was counted, send the canary, sweep."""

import threading
import time
from datetime import timedelta

from recollect import db, documents, log
from recollect.app import App
from recollect.blobs import delete_all, new_key
from recollect.documents import NewDocument
from recollect.errors import Permanent, RecollectError, Refused, Unavailable
from recollect.events import outbox
from recollect.loop import enduring
from recollect.model import DocumentId, Status, random_id
from recollect.ops import canary, rewording
from recollect.orgs import audit
from recollect.search.ask import ask
from recollect.search.hybrid import Query
from recollect.telemetry import metrics

LOG = log.get("maintenance")
BEAT = timedelta(seconds=5)
SWEEP = timedelta(hours=1)
PATIENCE = timedelta(minutes=2)
"""How long a canary may take."""
REFRESHING = 2.0
"""Seconds of a beat in which texts get the words that this version reads."""
LOOK = 0.2
"""Seconds between two looks at it."""


class Maintainer:
    """Does this work until `stop` is called."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stop = threading.Event()

    def stop(self) -> None:
        """Safe in a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Until stopped; an unreachable database is waited for."""
        bird: threading.Thread | None = None
        swept = 0.0
        while not self._stop.is_set():
            # Each for itself: what one of them meets does not stop the others.
            with enduring(LOG):
                flush(self._app)
            with enduring(LOG):
                documents.fold_counts(self._app.db)
            with enduring(LOG):
                if time.monotonic() - swept > SWEEP.total_seconds() or not swept:
                    sweep(self._app)
                    swept = time.monotonic()
            with enduring(LOG):
                self.refresh_words()
            with enduring(LOG):
                if (bird is None or not bird.is_alive()) and self._due():
                    # Apart, since it waits for others.
                    bird = threading.Thread(target=self._send, name="canary", daemon=True)
                    bird.start()
            self._stop.wait(BEAT.total_seconds())
        with enduring(LOG):
            flush(self._app)

    def refresh_words(self) -> None:
        """For a part of the time, so that an upgrade slows nothing else down for long."""
        until = time.monotonic() + REFRESHING
        while not self._stop.is_set() and time.monotonic() < until:
            if not rewording.refresh_words(self._app.db):
                return

    def _due(self) -> bool:
        interval = self._app.config.canary_interval
        if not interval:
            return False
        with self._app.db.begin() as tx:
            return canary.take(tx, interval)

    def _send(self) -> None:
        with enduring(LOG):
            send_canary(self._app, self._stop)


def flush(app: App) -> None:
    """Store what this process counted; what cannot be stored now is kept for the next time."""
    _bill(app)
    counts = metrics.take()
    if not counts.numbers and not counts.stages:
        return
    try:
        with app.db.begin() as tx:
            metrics.store(tx, counts)
    except Refused:
        raise  # they would be refused each time, and all that is counted later with them
    except BaseException:
        metrics.give_back(counts)
        raise


def _bill(app: App) -> None:
    """Count what the language model has cost since the last time."""
    if app.llm is None:
        return
    for purpose, spent in app.llm.spent_since().items():
        for metric, value, labels in (
            ("recollect_llm_requests_total", spent.calls, {}),
            ("recollect_llm_failures_total", spent.failures, {}),
            ("recollect_llm_seconds_total", spent.seconds, {}),
            ("recollect_llm_tokens_total", spent.prompt_tokens, {"kind": "prompt"}),
            ("recollect_llm_tokens_total", spent.completion_tokens, {"kind": "completion"}),
        ):
            if value:
                metrics.add(metric, value, purpose=purpose, **labels)


def sweep(app: App) -> None:
    """Forget what is kept for a time only, and measure what searches go by."""
    with app.db.begin() as tx:
        db.measure_index(tx)
        outbox.sweep(tx)
        audit.sweep(tx, app.config.audit_retention)


def send_canary(app: App, stop: threading.Event, patience: timedelta = PATIENCE) -> bool | None:
    """Keep a file and drop it; add a document, wait until the workers are done with it, find it,
    delete it.

    Whether it came through, which is written down; None: we were stopped meanwhile.
    """
    began = time.monotonic()
    with app.db.begin() as tx:
        canary.ensure(tx)
        canary.sweep(tx)
    try:
        reason = _fly(app, stop, began + patience.total_seconds())
    except Unavailable:
        raise
    except RecollectError as error:
        reason = f"{type(error).__name__}: {error}"
    with app.db.begin() as tx:
        canary.sweep(tx)
        if stop.is_set() and reason is not None:
            return None
        ms = round((time.monotonic() - began) * 1000, 1)
        canary.settle(tx, ok=reason is None, reason=reason, ms=ms)
    if reason is None:
        LOG.info("canary", ok=True, ms=ms)
    else:
        LOG.warning("canary", ok=False, reason=reason, ms=ms)
    return reason is None


def _files(app: App) -> str | None:
    """Why the store of files is none: an upload would meet the same."""
    data = b"The canary sings in the store."
    key = new_key(canary.TENANT.id, data)
    try:
        app.blobs.put(key, data)
        kept = app.blobs.get(key)
        delete_all(app.blobs, [key])  # one that is kept, say locked for a time, is told to the log
    except (Unavailable, Permanent) as error:
        return str(error)
    return None if kept == data else "the store of files gives back other bytes than it took"


def _fly(app: App, stop: threading.Event, until: float) -> str | None:
    """Why it did not come through."""
    if broken := _files(app):
        return broken
    word = f"canary{random_id().lower()}"
    content = documents.text_content(f"The {word} sings in the mine.")
    new = NewDocument(content, [canary.TAG], custom_id="canary", source=canary.TAG)
    with app.db.begin() as tx:
        id = documents.add(tx, canary.TENANT, new, DocumentId(random_id())).id
    while True:
        with app.db.begin() as tx:
            found = documents.get(tx, canary.TENANT, id)
        if found.status is Status.DONE:
            break
        if found.status is Status.FAILED:
            return f"it failed: {found.failure.code if found.failure else 'unknown'}"
        if time.monotonic() > until:
            why = f" ({found.failure.code})" if found.failure else ""
            return f"it is still {found.stage or found.status}{why}"
        if stop.wait(LOOK):
            return "stopped"
    query = Query(text=word, vector=None)
    answer = ask(app, canary.TENANT, query)
    if answer.warnings:
        return answer.warnings[0]
    if not [hit for hit in answer.hits if hit.document.id == id]:
        return "it was indexed and is not found"
    with app.db.begin() as tx:
        documents.delete(tx, canary.TENANT, [id])
    if ask(app, canary.TENANT, query).hits:
        return "it was deleted and is found"
    return None
