"""Traces for OpenTelemetry, where a collector is configured; else nothing, at no cost.

A trace is one attempt at a document, with a span for each stage, or one run of a sync. Attributes
are ids, kinds, counts and error codes: no content, no names, no addresses. The id of a trace is
made of what it is about, so that a line of the log leads to it without asking anybody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from typing import Protocol

from recollect.errors import SetupError
from recollect.fetch import Endpoint

PATIENCE = 5.0
"""seconds for the collector; what it does not take in time is dropped"""

Attributes = Mapping[str, str | int]
Stages = Mapping[str, float]
"""milliseconds of what came one after the other"""
End = Callable[[Stages, Attributes, str | None], None]


def id_of(*about: str | int) -> str:
    """32 hex digits for what a trace is about: `id_of("document", id, attempt)`."""
    return blake2b("\0".join(map(str, about)).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that is under way; without a tracer it does nothing."""

    _end: End | None = None

    def end(
        self,
        *,
        stages: Stages | None = None,
        attributes: Attributes | None = None,
        code: str | None = None,
    ) -> None:
        """`stages` became spans of their own within it; a `code` says that it failed."""
        if self._end is not None:
            self._end(stages or {}, attributes or {}, code)


class Tracer(Protocol):
    """Where spans go."""

    def start(self, name: str, id: str, attributes: Attributes) -> End:
        """A root span of the trace `id`, from now on; how to end it."""
        ...

    def close(self) -> None:
        """Send what is left, for as long as the collector's patience lasts."""
        ...


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
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise SetupError(
            "RECOLLECT_OTLP_URL is set, but OpenTelemetry is not installed:"
            " pip install 'recollect[traces]', or unset it"
        )
    from recollect.telemetry.otlp import OtlpTracer  # noqa: PLC0415 - only who has a collector pays

    settings = "RECOLLECT_OTLP_URL or RECOLLECT_OTLP_HEADERS"
    return OtlpTracer(
        Endpoint(url, headers=given, timeout=PATIENCE, total=PATIENCE, settings=settings)
    )


def begin(tracer: Tracer | None, name: str, id: str, attributes: Attributes) -> OpenSpan:
    """A root span of the trace `id`, from now on; without a tracer a run that nobody hears of."""
    return OpenSpan() if tracer is None else OpenSpan(tracer.start(name, id, attributes))


def mark(tracer: Tracer | None, id: str) -> dict[str, str]:
    """What lines of the log say of the trace that they belong to."""
    return {} if tracer is None else {"trace": id}
