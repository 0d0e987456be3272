"""A collector of traces: OTLP over HTTP on loopback, parsed by OpenTelemetry's own protobuf messages."""

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

PATH = "/v1/traces"


@dataclass(frozen=True, slots=True)
class Received:
    """A span as the collector received it.

    Attributes:
        service: the service that sent it.
        span: the message.
    """

    service: str
    span: Any

    @property
    def attributes(self) -> dict[str, str]:
        """Return the span's attributes."""
        return {each.key: each.value.string_value for each in self.span.attributes}


@dataclass(slots=True)
class Collector:
    """What a collector received.

    Attributes:
        port: where it listens.
        spans: the received spans.
        requests: the number of requests.
        status: its answer to each request.
    """

    port: int = 0
    spans: list[Received] = field(default_factory=list)
    requests: int = 0
    status: int = 200

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of a process that sends its traces here soon."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def take(self, body: bytes) -> None:
        """Take the body of a request."""
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            names = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self.spans.extend(Received(names["service.name"], span) for span in of_scope.spans)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector that listens on a port of its own."""
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == PATH and collector.status == http.HTTPStatus.OK:
                collector.take(body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
