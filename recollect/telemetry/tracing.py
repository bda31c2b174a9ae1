"""Traces for OpenTelemetry, where a collector is configured; else nothing, at no cost.

A trace is one attempt at a document, with a span for each stage, or one run of a sync. Attributes
are ids, kinds, counts and error codes: no content, no names, no addresses. The id of a trace is
made of what it is about, so that a line of the log leads to it without asking anybody.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from recollect import log
from recollect.errors import Permanent, SetupError, Transient
from recollect.fetch import Endpoint

if TYPE_CHECKING:  # only who configures a collector pays for loading them
    from opentelemetry.sdk.trace import Span, TracerProvider

LOG = log.get("trace")
PATH = "/v1/traces"
PATIENCE = 5.0
"""seconds for the collector; what it does not take in time is dropped"""
NS_PER_MS = 1_000_000

Attributes = Mapping[str, str | int]


def id_of(*about: str | int) -> str:
    """32 hex digits for what a trace is about: `id_of("document", id, attempt)`."""
    return blake2b("\0".join(map(str, about)).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Run:
    """A span that is under way; without a tracer it does nothing."""

    _tracer: "Tracer | None" = None
    _span: "Span | None" = None
    _started: int = 0

    def end(
        self,
        *,
        stages: Mapping[str, float] | None = None,
        attributes: Attributes | None = None,
        code: str | None = None,
    ) -> None:
        """`stages` are milliseconds of what came one after the other; a `code` says it failed."""
        if self._tracer is not None and self._span is not None:
            self._tracer.finish(self._span, self._started, stages or {}, attributes or {}, code)


class Tracer:
    """Spans in batches to one collector, over OTLP/HTTP with protobuf. Threads may share it.

    A collector that is away costs spans and a line in the log, never a document.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises SetupError when the packages of the extra `traces` are not installed."""
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
            raise SetupError(
                "RECOLLECT_OTLP_URL is set, but OpenTelemetry is not installed:"
                " pip install 'recollect[traces]', or unset it"
            )
        self._endpoint = endpoint
        self._next = threading.local()
        self._provider = _provider(endpoint, self._next)
        self._spans = self._provider.get_tracer("recollect")

    def begin(self, name: str, id: str, attributes: Attributes) -> Run:
        """A root span of the trace `id`, from now on."""
        from opentelemetry.context import Context  # noqa: PLC0415

        self._next.id = int(id, 16)
        started = time.time_ns()
        span: Any = self._spans.start_span(
            name, Context(), attributes=_named(attributes), start_time=started
        )
        return Run(self, span, started)

    def finish(
        self,
        span: "Span",
        started: int,
        stages: Mapping[str, float],
        attributes: Attributes,
        code: str | None,
    ) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context  # noqa: PLC0415

        inside, at = set_span_in_context(span), started
        for stage, took in stages.items():
            part = self._spans.start_span(stage, inside, start_time=at)
            at += int(took * NS_PER_MS)
            part.end(at)
        span.set_attributes(_named(attributes))
        if code is not None:
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR, code))
        span.end(max(at, time.time_ns()))

    def close(self) -> None:
        """Send what is left, for as long as the collector's patience lasts."""
        self._provider.shutdown()
        self._endpoint.close()


def open_tracer(url: str | None, headers: str | None) -> Tracer | None:
    """`headers` are `name=value`, separated by commas. Raises SetupError; None without a URL."""
    if url is None:
        return None
    given: dict[str, str] = {}
    for pair in (headers or "").split(","):
        name, equals, value = pair.partition("=")
        if pair.strip() and not (equals and name.strip()):
            raise SetupError("RECOLLECT_OTLP_HEADERS must be name=value, separated by commas")
        if equals:
            given[name.strip()] = value.strip()
    return Tracer(Endpoint(url, headers=given, timeout=PATIENCE, total=PATIENCE))


def begin(tracer: Tracer | None, name: str, id: str, attributes: Attributes) -> Run:
    """As `Tracer.begin`; without a tracer a run that nobody hears of."""
    return Run() if tracer is None else tracer.begin(name, id, attributes)


def mark(tracer: Tracer | None, id: str) -> dict[str, str]:
    """What lines of the log say of the trace that they belong to."""
    return {} if tracer is None else {"trace": id}


def _named(attributes: Attributes) -> dict[str, str | int]:
    return {f"recollect.{name}": value for name, value in attributes.items()}


def _provider(endpoint: Endpoint, following: threading.local) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import (  # noqa: PLC0415
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return following.id

    class Exporter(SpanExporter):
        """Through the door that all endpoints of the operator go through."""

        def __init__(self) -> None:
            self._heard = True

        def export(self, spans: Any) -> SpanExportResult:
            data = encode_spans(spans).SerializeToString()
            headers = {"Content-Type": "application/x-protobuf"}
            try:
                answer = endpoint.request("POST", PATH, content=data, headers=headers)
                if not 200 <= answer.status < 300:
                    raise endpoint.refusal(answer)
            except (Transient, Permanent) as error:
                if self._heard:  # once, not for every batch
                    LOG.warning("the collector takes no traces; they are dropped", error=str(error))
                self._heard = False
                return SpanExportResult.FAILURE
            if not self._heard:
                LOG.info("the collector takes traces again")
            self._heard = True
            return SpanExportResult.SUCCESS

    resource = Resource({"service.name": "recollect", "service.version": version("recollect")})
    provider = TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    return provider
