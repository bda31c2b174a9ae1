"""Traces: one of each attempt at a document and of each sync, at a collector that may be away."""

import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import structlog

from recollect import documents
from recollect.app import App
from recollect.documents import NewDocument
from recollect.errors import LeaseLost, SetupError
from recollect.ingest.pipeline import process, trace_id
from recollect.model import DocumentId, Status, Tenant
from recollect.orgs import orgs
from recollect.telemetry import tracing
from recollect.telemetry.tracing import open_tracer
from recollect.worker.processing import Worker, drain
from tests.conftest import capture_logs, eventually
from tests.fakes.collector import Collector, collecting

STAGES = ["extracting", "chunking", "embedding", "indexing"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a machine that stalls: what is not taken in time is dropped."""
    monkeypatch.setattr(tracing, "PATIENCE", 60.0)


@pytest.fixture
def collector() -> Generator[Collector]:
    with collecting() as one:
        yield one


@contextmanager
def traced(app: App, url: str, headers: str | None = None) -> Generator[App]:
    """At the end all spans are sent."""
    tracer = open_tracer(url, headers)
    assert tracer is not None
    try:
        yield replace(app, tracer=tracer)
    finally:
        tracer.close()


def add(app: App, tenant: Tenant, content: Any, **more: Any) -> DocumentId:
    new = NewDocument(content, ["notes"], **more)
    with app.db.begin() as tx:
        return documents.add(tx, tenant, new, DocumentId(orgs.random_id())).id


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_document_is_a_trace_with_a_span_for_each_stage(
    app: App, tenant: Tenant, collector: Collector
):
    with traced(app, collector.url, "x-key=a secret key, x-team=search") as own:
        id = add(own, tenant, documents.text_content("The ferry leaves at noon. CANARY"))
        drain(own)

    mine = [one for one in collector.spans if attributes(one).get("recollect.document") == id]
    [root] = mine
    parts = [one for one in collector.spans if one.parent_span_id == root.span_id]
    assert root.name == "document"
    assert [one.name for one in parts] == STAGES
    assert {one.trace_id for one in parts} == {root.trace_id}
    assert root.start_time_unix_nano == parts[0].start_time_unix_nano
    for one, following in pairwise(parts):
        assert one.end_time_unix_nano == following.start_time_unix_nano
    assert parts[-1].end_time_unix_nano <= root.end_time_unix_nano
    told = attributes(root)
    assert told["recollect.org"] == tenant.id
    assert told["recollect.chunks"] == told["recollect.embedded"] == 1
    assert "CANARY" not in str(collector.spans)
    path, headers = collector.requests[0]
    assert path == "/v1/traces"
    assert headers["x-key"] == "a secret key"
    assert headers["x-team"] == "search"


def test_a_failed_attempt_says_so_with_its_code_and_the_stages_until_then(
    app: App, tenant: Tenant, collector: Collector
):
    with traced(app, collector.url) as own:
        id = add(own, tenant, documents.text_content("<p hidden>CANARY</p><div></div>"))
        drain(own)

    with app.db.begin() as tx:
        found = documents.get(tx, tenant, id)
    assert found is not None
    assert found.status is Status.FAILED
    [root] = [one for one in collector.spans if one.name == "document"]
    assert root.status.code == 2  # STATUS_CODE_ERROR
    assert attributes(root)["error.type"] == "empty_content"
    assert [one.name for one in collector.spans if one.parent_span_id] == []
    assert "CANARY" not in str(collector.spans)


def test_what_was_deleted_while_it_was_worked_is_no_error_of_ours(
    app: App, tenant: Tenant, collector: Collector
):
    with traced(app, collector.url) as own:
        id = add(own, tenant, documents.text_content("Nobody wants this any more."))
        with own.db.begin() as tx:
            turn = documents.DocumentTurn()
            [claim] = documents.claim(tx, lease=own.lease, limit=1, max_attempts=3, turn=turn)
            documents.delete(tx, tenant, [id])
        with pytest.raises(LeaseLost):
            process(own, claim)

    [root] = [one for one in collector.spans if attributes(one).get("recollect.document") == id]
    assert attributes(root)["error.type"] == "lease_lost"


def test_lines_of_the_log_lead_to_the_trace(app: App, tenant: Tenant, collector: Collector):
    with (
        traced(app, collector.url) as own,
        capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines,
    ):
        id = add(own, tenant, documents.text_content("The ferry leaves at noon."))
        worker = Worker(own)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            eventually(lambda: any(line.get("outcome") == "done" for line in lines))
        finally:
            worker.stop()
            thread.join()

    [line] = [line for line in lines if line.get("document") == id and "outcome" in line]
    assert {one.trace_id.hex() for one in collector.spans} == {line["trace"]}


def test_each_attempt_is_a_trace_of_its_own(app: App, tenant: Tenant):
    add(app, tenant, documents.text_content("The ferry leaves at noon."))
    ids = set[str]()
    for _ in range(2):
        with app.db.begin() as tx:
            [claim] = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
            documents.release(tx, [claim])
        ids.add(trace_id(claim))

    assert len(ids) == 2
    assert {len(id) for id in ids} == {32}


@pytest.mark.parametrize("status", [503, 400, None])
def test_a_collector_that_takes_nothing_costs_no_document(
    app: App,
    tenant: Tenant,
    collector: Collector,
    status: int | None,
    monkeypatch: pytest.MonkeyPatch,
):
    # All that there is to tell goes at once, at the end: it is refused once.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    url = collector.url if status else "http://127.0.0.1:1"
    collector.status = status or 200
    with (
        capture_logs() as lines,
        traced(app, url, "authorization=Bearer sesame") as own,
    ):
        id = add(own, tenant, documents.text_content("The ferry leaves at noon."))
        drain(own)

    with app.db.begin() as tx:
        found = documents.get(tx, tenant, id)
    assert found is not None
    assert found.status is Status.DONE
    [said] = [line for line in lines if "collector" in line["event"]]
    assert "sesame" not in str(said)


@pytest.mark.parametrize("headers", ["no-equals", "=value", "a=b,c"])
def test_headers_that_are_none_are_refused(headers: str):
    with pytest.raises(SetupError, match="name=value"):
        open_tracer("http://127.0.0.1:1", headers)


def test_without_a_collector_nothing_of_it_is_loaded():
    assert open_tracer(None, "a=b") is None
    code = (
        "import sys, recollect.worker.processing, recollect.worker.syncs;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    # The MCP package may bring the bare API; the SDK and the exporter are what costs.
    assert "sdk" not in said
    assert "exporter" not in said
