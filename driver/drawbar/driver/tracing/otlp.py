"""The sink that sends spans to a collector by OTLP over HTTP, from a thread of its own.

OpenTelemetry reads its standard variables: OTEL_EXPORTER_OTLP_ENDPOINT and _HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_*. Its queue
is bounded (2,048 spans) and drops the oldest spans.
"""

import importlib.metadata
import random
import threading
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk import resources
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.util import instrumentation

from drawbar.driver.tracing import spans

CLOSE_SECONDS = 2.0
_VERSION = importlib.metadata.version("drawbar")
_SCOPE = instrumentation.InstrumentationScope("drawbar", _VERSION)
_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class Otlp:
    """A sink of spans for one service.

    Args:
        service: the name of the service, unless OTEL_SERVICE_NAME names another.
        environment: the environment variables; OpenTelemetry itself reads those of the process.
    """

    def __init__(self, service: str, environment: Mapping[str, str]) -> None:
        named = {} if environment.get("OTEL_SERVICE_NAME") else {resources.SERVICE_NAME: service}
        self._resource = resources.Resource.create({**named, resources.SERVICE_VERSION: _VERSION})
        self._exporter = trace_exporter.OTLPSpanExporter()
        self._queue = export.BatchSpanProcessor(self._exporter)

    def export(self, span: spans.Span) -> None:
        """Take a span, as `spans.Sink` specifies."""
        self._queue.on_end(
            sdk.ReadableSpan(
                span.name,
                context=_context(span.trace_id, span.span_id or _new_id()),
                parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
                resource=self._resource,
                attributes=span.attributes,
                status=trace.Status(trace.StatusCode.ERROR, span.failure)
                if span.failure
                else trace.Status(trace.StatusCode.UNSET),
                start_time=span.start_ns,
                end_time=span.end_ns,
                instrumentation_scope=_SCOPE,
            )
        )

    def close(self) -> None:
        """Send the waiting spans; give up after 2 s."""
        closing = threading.Thread(target=self._queue.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            # Interrupt its pause between two attempts.
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


def _context(trace_id: int, span_id: int) -> trace.SpanContext:
    return trace.SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)


def _new_id() -> int:
    return random.getrandbits(64) or 1
