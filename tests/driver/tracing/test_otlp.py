"""Spans arrive at a real collector as OTLP, and a collector that fails harms nothing."""

import socket
import time

import pytest
from tests.scenes import collectors

from drawbar.driver.tracing import otlp, spans

TRACE, ROOT = 0xB1ED559121BD430D919602F05FBB2955, 0xFC4DCCB7FD502FB8
PROMPT_SECONDS = 30.0
"""Far less than the minute that OpenTelemetry goes on trying."""


def span(**changes):
    fields = {"trace_id": TRACE, "name": "fabric attach", "start_ns": 10, "end_ns": 30, "attributes": {}}
    return spans.Span(**fields | changes)


@pytest.fixture
def collector(monkeypatch):
    with collectors.collecting() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        yield collector


def test_a_span_arrives_with_its_ids_times_attributes_and_failure(collector):
    sink = otlp.Otlp("drawbar-test", collector.environment)
    sink.export(span(span_id=ROOT, attributes={"drawbar.device": "gpu-1"}, failure="LinkDown"))
    sink.export(span(parent_id=ROOT))
    sink.close()
    root, child = collector.spans
    assert root.service == "drawbar-test"
    assert root.attributes == {"drawbar.device": "gpu-1"}
    assert (root.span.start_time_unix_nano, root.span.end_time_unix_nano) == (10, 30)
    assert (root.span.status.code, root.span.status.message) == (2, "LinkDown")
    assert {each.span.trace_id for each in (root, child)} == {TRACE.to_bytes(16)}
    assert root.span.parent_span_id == b""
    assert child.span.parent_span_id == root.span.span_id == ROOT.to_bytes(8)
    assert child.span.status.code == 0


def test_the_environment_may_name_the_service_and_its_attributes(collector, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    sink = otlp.Otlp("drawbar-test", {"OTEL_SERVICE_NAME": "mine"})
    sink.export(span())
    sink.close()
    assert [each.service for each in collector.spans] == ["mine"]


@pytest.mark.parametrize("status", [400, 503])
def test_a_collector_that_refuses_delays_neither_spans_nor_the_end(collector, status):
    collector.status = status
    sink = otlp.Otlp("drawbar-test", collector.environment)
    began = time.monotonic()
    for _ in range(5000):
        sink.export(span())
    sink.close()
    assert time.monotonic() - began < PROMPT_SECONDS
    assert collector.requests
    assert collector.spans == []


def test_a_collector_that_is_not_there_delays_neither_spans_nor_the_end(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        began = time.monotonic()
        sink = otlp.Otlp("drawbar-test", {})
        for _ in range(5000):
            sink.export(span())
        sink.close()
        assert time.monotonic() - began < PROMPT_SECONDS


def test_the_queue_is_bounded(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    with collectors.collecting() as collector:
        collector.status = 503
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
        sink = otlp.Otlp("drawbar-test", {})
        for number in range(1000):
            sink.export(span(start_ns=number))
        collector.status = 200
        sink.close()
        assert len(collector.spans) <= 8 + 8
