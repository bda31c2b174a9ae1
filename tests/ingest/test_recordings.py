"""Recordings on their way through the queue: captions, an endpoint, a local engine, none."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from recollect import documents
from recollect.app import App
from recollect.blobs import new_key
from recollect.cli import doctor
from recollect.config import Config
from recollect.documents import NewDocument
from recollect.errors import LeaseLost, Permanent
from recollect.inference.speech import LocalEngine
from recollect.inference.transcribe import Listener, TranscriberChoice, open_transcriber
from recollect.ingest import pipeline
from recollect.model import (
    Content,
    DocumentId,
    Extracted,
    OrgId,
    Status,
    StoredBlob,
    Tenant,
)
from recollect.worker.processing import drain
from tests.extract.conftest import needs_pocketsphinx
from tests.extract.recordings import Track, recording
from tests.fakes.transcription import Service, running


@pytest.fixture
def service() -> Iterator[Service]:
    with running(Service()) as service:
        yield service


def read(app: App, listener: Listener, data: bytes, name: str = "talk.mp3") -> Extracted:
    key = new_key(OrgId("org"), data)
    app.blobs.put(key, data)
    content = Content("text", b"", blob=StoredBlob(key, name, None))
    return pipeline.read(replace(app, listener=listener), OrgId("org"), content)


def test_what_an_endpoint_heard_stands_in_its_chapters_with_times(app: App, service: Service):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    data = recording("matroska", 3.0, tags={"title": "Talk"}, chapters=[(0, "One"), (1.2, "Two")])

    found = read(app, listener, data, "talk.mkv")

    assert found.text == (
        "Title: Talk\nDuration: 0:03\n\n## One\n\nFirst of 1.\n\n## Two\n\nSecond of 1."
    )
    assert found.title == "Talk"
    assert found.places[-1].at == {"time": 1.5}
    assert found.text[found.places[-1].start :] == "Second of 1."
    assert found.warnings == ["Its text was written by a machine (openai:whisper-1)."]
    assert service.heard[0].seconds == pytest.approx(3, abs=0.2)


def test_long_hearing_holds_its_document_and_ends_where_that_is_gone(
    app: App, tenant: Tenant, service: Service, monkeypatch: pytest.MonkeyPatch
):
    """Heartbeats go on for two hours; what took longer was begun again each time."""
    monkeypatch.setattr(pipeline, "LATE", timedelta())
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    own, data = replace(app, listener=listener), recording("mp3")
    key = new_key(tenant.id, data)
    app.blobs.put(key, data)
    new = NewDocument(Content("audio", b"", blob=StoredBlob(key, "talk.mp3", None)), ["talks"])
    with app.db.begin() as tx:
        id = documents.add(tx, tenant, new, DocumentId(uuid.uuid4().hex)).id
        [claim] = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
    longer: list[bool] = []

    def watched(heard: Any) -> tuple[int, dict[str, str], str]:
        with app.db.begin() as tx:
            documents.renew(tx, [claim], lease=app.lease)  # the last heartbeat
            documents.recall(tx, lease=app.lease)  # another worker starts
            row = tx.execute(
                "select due_at > now() + %s as longer from documents where id = %s",
                (app.lease, id),
            ).fetchone()
        longer.append(bool(row and row["longer"]))
        return Service.answer(service, heard)

    service.answer = watched
    pipeline.process(own, claim)
    assert longer == [True]

    with app.db.begin() as tx:
        documents.reprocess(tx, tenant, ids=[id])
        [claim] = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
        documents.delete(tx, tenant, [id])
    with pytest.raises(LeaseLost):
        pipeline.process(own, claim)
    assert len(service.heard) == 1


def test_an_endpoint_that_is_away_keeps_recordings_waiting_and_nothing_else(
    app: App, tenant: Tenant, service: Service
):
    """It was given up after four attempts and half a minute."""
    choice = TranscriberChoice("auto", service.url, "a-key", "whisper-1")
    data = recording("mp3")
    key = new_key(tenant.id, data)
    app.blobs.put(key, data)
    talk = NewDocument(Content("audio", b"", blob=StoredBlob(key, "talk.mp3", None)), ["talks"])
    with app.db.begin() as tx:
        id = documents.add(tx, tenant, talk, DocumentId(uuid.uuid4().hex)).id
        note = documents.add(
            tx, tenant, NewDocument(documents.text_content("a note"), ["talks"]), DocumentId("note")
        ).id
    service.answers = [(401, {}, "no such key")] * 100

    own = replace(app, listener=open_transcriber(choice))
    for _ in range(app.config.max_attempts + 2):
        drain(own)
        with app.db.begin() as tx:
            tx.execute("update documents set due_at = now() where id = %s", (id,))

    with app.db.begin() as tx:
        waiting, done = documents.get(tx, tenant, id), documents.get(tx, tenant, note)
    assert (waiting.status, waiting.attempts, done.status) == (Status.QUEUED, 0, Status.DONE)
    assert waiting.failure is not None
    assert "check RECOLLECT_TRANSCRIBER_KEY" in waiting.failure.message
    assert len(service.heard) == 1  # it is left alone for a while

    service.answers.clear()
    drain(replace(app, listener=open_transcriber(choice)))  # after a restart
    with app.db.begin() as tx:
        assert documents.get(tx, tenant, id).status == Status.DONE


def test_the_doctor_asks_the_endpoint(service: Service, tmp_path: Path):
    config = Config(
        data_dir=tmp_path, transcriber_url=service.url, transcriber_model="whisper-1",
        transcriber_key=SecretStr("tk-a-secret"),
    )  # fmt: skip

    [fine] = doctor._recordings(config)
    service.answers = [(401, {}, "bad key tk-a-secret")]
    [wrong] = doctor._recordings(config)

    assert (fine.state, wrong.state) == ("ok", "FAIL")
    assert "RECOLLECT_TRANSCRIBER_KEY" in wrong.details
    assert "tk-a-secret" not in wrong.details
    assert [heard.seconds for heard in service.heard] == [1, 1]


def test_captions_come_before_any_engine(app: App, service: Service):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    captions = Track([(0.5, 1.5, "As it was shown.")])

    found = read(app, listener, recording("mp4", 2.0, tracks=[captions]), "talk.mp4")

    assert found.text.endswith("As it was shown.")
    assert service.heard == []


def test_without_an_engine_what_is_known_is_kept_and_the_mend_is_named(app: App):
    found = read(app, Listener(None), recording("mp3", tags={"title": "Talk"}))

    assert (found.kind, found.title) == ("audio", "Talk")
    assert found.text == "Title: Talk\nDuration: 0:02"
    [warning] = found.warnings
    assert "RECOLLECT_TRANSCRIBER_MODEL" in warning
    # `recollect add` passes over a file that is as it was, and would not transcribe it.
    assert warning.endswith("then retry the document.")
    assert not found.unheard


def test_without_an_engine_it_fails_if_it_is_to(app: App):
    with pytest.raises(Permanent) as caught:
        read(app, Listener(None, fails=True), recording("mp3"))

    assert caught.value.code == "not_transcribed"


@needs_pocketsphinx
def test_a_local_engine_listens_in_the_sandbox(app: App):
    silence = recording("wav", np.zeros(16_000))

    found = read(app, Listener(LocalEngine("pocketsphinx")), silence, "talk.wav")

    assert found.warnings == ["No speech was found in it (pocketsphinx listened)."]
