"""A collector of OpenTelemetry traces: OTLP over HTTP with protobuf."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """An OTLP/HTTP receiver; `status` is what it answers next."""

    url: str = ""
    status: int = 200
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)


@contextmanager
def collecting() -> Generator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests.append((self.path, dict(self.headers)))
            if collector.status == 200:
                told = ExportTraceServiceRequest.FromString(data)
                for resource in told.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        yield collector
        server.shutdown()
