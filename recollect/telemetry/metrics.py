"""What the service counts, for /metrics.

Processes count in memory (`add`, `observe`, `passed`, `stumbled`) and add that up in the database
every few seconds, so that any API process shows the sum of all; a killed process loses what it
counted since. What can be seen in the tables is looked up when someone asks, at a bounded cost.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal

from psycopg.types.json import Jsonb

from recollect.db import ReplicaState, Tx

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""
COUNTED = 100_000
"""Rows of a queue that are counted at most; a longer one shows this number."""
TROUBLED = 5
"""Failures in a row of a stage's own that are no accident."""
FRESH = "15 minutes"
"""How long after the last of them the stage counts as failing."""

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "recollect_build_info": Metric(
            "gauge", "Always 1; the labels say what runs.", ("version", "python")
        ),
        "recollect_documents": Metric("gauge", "Documents, as PostgreSQL estimates."),
        "recollect_queue_documents": Metric(
            "gauge", f"Documents in the queue, counted up to {COUNTED:,}.", ("state",)
        ),
        "recollect_queue_oldest_seconds": Metric(
            "gauge", "Since the longest waiting of them was added or changed.", ("state",)
        ),
        "recollect_documents_finished_total": Metric(
            "counter", "Attempts by how they ended; code is the failure's.", ("outcome", "code")
        ),
        "recollect_chunks_total": Metric(
            "counter", "Chunks of finished documents: embedded, reused, removed.", ("how",)
        ),
        "recollect_stage_seconds": Metric(
            "histogram", "Time of a document in a stage of processing.", ("stage",)
        ),
        "recollect_stage_failures": Metric(
            "gauge", "Failures of a stage's own in a row; 0 when it works.", ("stage",)
        ),
        "recollect_dreams_total": Metric(
            "counter",
            "Turns of reading documents with a model, by how they ended.",
            ("outcome", "code"),
        ),
        "recollect_dream_chunks_total": Metric("counter", "Chunks that a model has read."),
        "recollect_facts_total": Metric(
            "counter", "Facts that a model gave: stored, or why not.", ("outcome",)
        ),
        "recollect_fact_parts_dropped_total": Metric(
            "counter", "What was left out of facts that were stored.", ("part",)
        ),
        "recollect_llm_requests_total": Metric(
            "counter", "Requests to the language model, each further try included.", ("purpose",)
        ),
        "recollect_llm_failures_total": Metric(
            "counter", "Questions to it that ended without an answer.", ("purpose",)
        ),
        "recollect_llm_tokens_total": Metric(
            "counter", "Tokens as its endpoint counts them.", ("purpose", "kind")
        ),
        "recollect_llm_seconds_total": Metric(
            "counter", "Time spent in requests to it.", ("purpose",)
        ),
        "recollect_search_left_out_total": Metric(
            "counter",
            "Searches that went without the query's vector (embedding), rerank, rewriteQuery or"
            " aggregate, since what it takes gave no answer.",
            ("part", "code"),
        ),
        "recollect_connections": Metric("gauge", "Connections.", ("provider", "state")),
        "recollect_syncs_total": Metric("counter", "Syncs that ended.", ("provider", "outcome")),
        "recollect_sync_items_total": Metric(
            "counter",
            "Things that syncs saw, by verdict: added, changed, or why they are no document.",
            ("provider", "verdict"),
        ),
        "recollect_endpoints": Metric("gauge", "Endpoints of webhooks.", ("state",)),
        "recollect_deliveries_pending": Metric(
            "gauge", f"Deliveries of webhooks that wait, counted up to {COUNTED:,}."
        ),
        "recollect_deliveries_oldest_seconds": Metric("gauge", "Age of the oldest that waits."),
        "recollect_deliveries_total": Metric(
            "counter", "Attempts to deliver a webhook.", ("type", "outcome")
        ),
        "recollect_canary_ok": Metric("gauge", "Whether the last canary came through."),
        "recollect_canary_age_seconds": Metric("gauge", "Since the last canary."),
        "recollect_canary_seconds": Metric("gauge", "How long the last canary took."),
        "recollect_replica_serves": Metric(
            "gauge", "Whether a replica answers reads; of this process alone.", ("replica",)
        ),
        "recollect_replica_behind_bytes": Metric(
            "gauge", "Bytes of the log that it had not replayed when it was asked.", ("replica",)
        ),
        "recollect_replica_reads_total": Metric(
            "counter",
            "Reads that it answered (served), or that went on elsewhere (passed); of this process"
            " alone.",
            ("replica", "outcome"),
        ),
        "recollect_http_request_seconds": Metric(
            "histogram",
            "Requests by route template and status; of this process alone.",
            ("method", "route", "status"),
        ),
    }
)
"""Everything that /metrics may show; docs/operations.md describes each."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a metric; `name` has a suffix where it is part of a histogram."""

    metric: str
    name: str
    labels: Labels
    value: float


@dataclass(slots=True)
class StageHealth:
    """How a stage fared lately in this process."""

    passed: bool = False
    failures: int = 0
    """in a row, since the last that passed"""
    code: str | None = None


@dataclass(slots=True)
class Counts:
    """What was counted and is not in the database yet."""

    numbers: Counter[tuple[str, Labels]] = field(default_factory=Counter[tuple[str, Labels]])
    stages: dict[str, StageHealth] = field(default_factory=dict[str, StageHealth])


class _Store:
    def __init__(self) -> None:
        self.lock = Lock()
        self.counts = Counts()
        self.last: dict[str, str] = {}
        """of each stage the document that failed last, so that its tries count once"""


_STORE = _Store()


# --- counting ------------------------------------------------------------------------------------


def add(metric: str, value: float = 1, **labels: str) -> None:
    """Count something of a counter in `METRICS`."""
    with _STORE.lock:
        _add(metric, value, labels)


def observe(metric: str, seconds: float, **labels: str) -> None:
    """Count a duration of a histogram in `METRICS`."""
    with _STORE.lock:
        for bound in BUCKETS:
            if seconds <= bound:
                _add(f"{metric}_bucket", 1, {**labels, "le": str(bound)})
        _add(f"{metric}_bucket", 1, {**labels, "le": "+Inf"})
        _add(f"{metric}_sum", seconds, labels)
        _add(f"{metric}_count", 1, labels)


def passed(stages: Sequence[str]) -> None:
    """A document went through them."""
    with _STORE.lock:
        for stage in stages:
            _STORE.counts.stages[stage] = StageHealth(passed=True)
            _STORE.last.pop(stage, None)


def stumbled(stage: str, code: str, document: str | None = None) -> None:
    """A stage failed for a reason of its own; of the same document again, it counts once."""
    with _STORE.lock:
        if document is not None and _STORE.last.get(stage) == document:
            return
        if document is not None:
            _STORE.last[stage] = document
        health = _STORE.counts.stages.setdefault(stage, StageHealth())
        health.failures += 1
        health.code = code


def take() -> Counts:
    """What was counted since the last time; the caller stores it, or gives it back."""
    with _STORE.lock:
        counts, _STORE.counts = _STORE.counts, Counts()
    return counts


def give_back(counts: Counts) -> None:
    """It could not be stored."""
    with _STORE.lock:
        newer, _STORE.counts = _STORE.counts, counts
        counts.numbers.update(newer.numbers)
        for stage, health in newer.stages.items():
            before = counts.stages.get(stage)
            if before is None or health.passed:
                counts.stages[stage] = health
            else:
                before.failures += health.failures
                before.code = health.code or before.code


def _add(name: str, value: float, labels: Mapping[str, str]) -> None:
    _STORE.counts.numbers[name, tuple(sorted(labels.items()))] += value  # pyright: ignore[reportArgumentType] # a Counter adds floats as well


# --- the database --------------------------------------------------------------------------------


def store(tx: Tx, counts: Counts) -> None:
    """Add up what a process counted."""
    # In one order, so that two processes do not wait for each other.
    numbers = sorted(counts.numbers.items())
    if numbers:
        tx.execute(
            "insert into tallies (name, labels, value)"
            " select * from unnest(%s::text[], %s::jsonb[], %s::float8[])"
            " on conflict (name, labels) do update set value = tallies.value + excluded.value",
            (
                [name for (name, _), _ in numbers],
                [Jsonb(dict(labels)) for (_, labels), _ in numbers],
                [float(value) for _, value in numbers],
            ),
        )
    for stage, health in sorted(counts.stages.items()):
        tx.execute(
            "insert into stage_health as s (stage, failures, ok_at, failed_at, code) values"
            " (%(stage)s, %(failures)s, case when %(passed)s then now() end,"
            "  case when %(failures)s > 0 then now() end, %(code)s)"
            " on conflict (stage) do update set"
            " failures = excluded.failures + case when %(passed)s then 0 else s.failures end,"
            " ok_at = coalesce(excluded.ok_at, s.ok_at),"
            " failed_at = coalesce(excluded.failed_at, s.failed_at),"
            " code = coalesce(excluded.code, s.code)",
            {
                "stage": stage,
                "passed": health.passed,
                "failures": health.failures,
                "code": health.code,
            },
        )


def failing(tx: Tx) -> str | None:
    """Why processing as a whole fails: a stage that fails again and again by itself, lately."""
    row = tx.execute(
        "select stage, failures, code from stage_health where failures >= %s"
        f" and failed_at > now() - interval '{FRESH}' order by failed_at desc, stage limit 1",
        (TROUBLED,),
    ).fetchone()
    if row is None:
        return None
    return f"{row['stage']} failed {row['failures']} times in a row ({row['code']})"


def look(tx: Tx) -> list[Sample]:
    """All numbers of `METRICS` that the database knows. No statement reads a large table."""
    return [
        *(
            Sample(_whole(row["name"]), row["name"], _labels(row["labels"]), row["value"])
            for row in tx.execute("select name, labels, value from tallies order by name, labels")
        ),
        *_queue(tx),
        *_connections(tx),
        *_deliveries(tx),
        *_health(tx),
    ]


def of_replicas(found: Sequence[ReplicaState]) -> list[Sample]:
    samples: list[Sample] = []
    for one in found:
        samples += (
            _sample("recollect_replica_serves", one.state == "serves", replica=one.name),
            _sample("recollect_replica_behind_bytes", one.behind, replica=one.name),
        )
        for outcome, value in (("served", one.served), ("passed", one.passed)):
            name = "recollect_replica_reads_total"
            samples.append(_sample(name, value, replica=one.name, outcome=outcome))
    return samples


def _queue(tx: Tx) -> list[Sample]:
    samples: list[Sample] = []
    estimate = tx.execute(
        "select greatest(reltuples, 0) as n from pg_class where oid = 'documents'::regclass"
    ).fetchone()
    assert estimate is not None
    samples.append(_sample("recollect_documents", estimate["n"]))
    for row in tx.execute(
        "select case when status = 'processing' then 'processing'"
        "  when error_code is not null then 'retrying' else 'queued' end as state,"
        " count(*) as n, extract(epoch from now() - min(updated_at)) as age"
        " from (select status, error_code, updated_at from documents where due_at is not null"
        "  order by due_at limit %s) waiting group by 1",
        (COUNTED,),
    ):
        samples.append(_sample("recollect_queue_documents", row["n"], state=row["state"]))
        samples.append(_sample("recollect_queue_oldest_seconds", row["age"], state=row["state"]))
    told = {sample.labels for sample in samples}
    for state in ("queued", "processing", "retrying"):
        if (("state", state),) not in told:
            samples.append(_sample("recollect_queue_documents", 0, state=state))
            samples.append(_sample("recollect_queue_oldest_seconds", 0, state=state))
    return samples


def _connections(tx: Tx) -> list[Sample]:
    rows = tx.execute(
        "select provider, case when paused and state = 'ready' then 'paused' else state end as"
        " state, count(*) as n from connections group by 1, 2 order by 1, 2"
    )
    return [
        _sample("recollect_connections", row["n"], provider=row["provider"], state=row["state"])
        for row in rows
    ]


def _deliveries(tx: Tx) -> list[Sample]:
    samples = [
        _sample("recollect_endpoints", row["n"], state=row["state"])
        for row in tx.execute(
            "select case when disabled_at is not null then 'disabled' when failures > 0"
            " then 'failing' else 'fine' end as state, count(*) as n from endpoints group by 1"
        )
    ]
    row = tx.execute(
        "select count(*) as n, extract(epoch from now() - min(created_at)) as age"
        " from (select created_at from deliveries where due_at is not null"
        "  order by endpoint_id, due_at limit %s) waiting",
        (COUNTED,),
    ).fetchone()
    assert row is not None
    return [
        *samples,
        _sample("recollect_deliveries_pending", row["n"]),
        _sample("recollect_deliveries_oldest_seconds", max(row["age"] or 0, 0)),
    ]


def _health(tx: Tx) -> list[Sample]:
    samples = [
        _sample("recollect_stage_failures", row["failures"], stage=row["stage"])
        for row in tx.execute("select stage, failures from stage_health order by stage")
    ]
    row = tx.execute(
        "select ok, ms, extract(epoch from now() - ran_at) as age from canary"
        " where ran_at is not null"
    ).fetchone()
    if row is not None:
        samples.append(_sample("recollect_canary_ok", row["ok"]))
        samples.append(_sample("recollect_canary_age_seconds", row["age"]))
        samples.append(_sample("recollect_canary_seconds", row["ms"] / 1000))
    return samples


def _sample(metric: str, value: float, **labels: str) -> Sample:
    return Sample(metric, metric, _labels(labels), float(value))


def _labels(given: Mapping[str, Any]) -> Labels:
    return tuple(sorted(given.items()))


def _whole(name: str) -> str:
    """The metric that a number belongs to: `x_seconds` of `x_seconds_bucket`."""
    for suffix in ("_bucket", "_sum", "_count"):
        if METRICS.get(name.removesuffix(suffix), METRICS["recollect_documents"]).kind == (
            "histogram"
        ):
            return name.removesuffix(suffix)
    return name
