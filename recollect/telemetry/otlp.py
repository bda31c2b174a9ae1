"""Spans to one collector of OpenTelemetry. Only where one is configured is this module imported."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from recollect import __version__, log
from recollect.errors import Permanent, Transient
from recollect.fetch import Endpoint

LOG = log.get("trace")
PATH = "/v1/traces"
NS_PER_MS = 1_000_000

Attributes = Mapping[str, str | int]
Stages = Mapping[str, float]


class OtlpTracer:
    """A `tracing.Tracer`: spans in batches over OTLP/HTTP with protobuf. Threads may share it.

    A collector that is away costs spans and a line in the log, never a document.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._next = threading.local()
        self._provider = _provider(endpoint, self._next)
        self._spans = self._provider.get_tracer("recollect")

    def start(
        self, name: str, id: str, attributes: Attributes
    ) -> Callable[[Stages, Attributes, str | None], None]:
        self._next.id = int(id, 16)
        started = time.time_ns()
        span: Any = self._spans.start_span(
            name, Context(), attributes=_named(attributes), start_time=started
        )

        def end(stages: Stages, attributes: Attributes, code: str | None) -> None:
            self._finish(span, started, stages, attributes, code)

        return end

    def _finish(
        self, span: Span, started: int, stages: Stages, attributes: Attributes, code: str | None
    ) -> None:
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


def _named(attributes: Attributes) -> dict[str, str | int]:
    return {f"recollect.{name}": value for name, value in attributes.items()}


def _provider(endpoint: Endpoint, following: threading.local) -> TracerProvider:
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

    resource = Resource({"service.name": "recollect", "service.version": __version__})
    provider = TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    return provider
