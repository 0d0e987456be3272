"""Tracing is off unless the environment asks for it, and then costs nothing."""

import subprocess
import sys

import pytest
from tests.scenes import collectors

from drawbar.driver import errors, tracing
from drawbar.driver.tracing import activation, spans

SPAN = spans.Span(trace_id=1, name="attach", start_ns=1, end_ns=2, attributes={})


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"OTEL_TRACES_EXPORTER": "otlp"}, True, id="otlp"),
        pytest.param({"OTEL_TRACES_EXPORTER": "none"}, False, id="none"),
        pytest.param({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False, id="disabled"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False, id="endpoint alone"),
    ],
)
def test_the_standard_variables_decide(environment, on):
    assert activation.Switch("drawbar", environment).wanted is on


def test_another_exporter_is_refused():
    with pytest.raises(errors.UsageError, match="OTEL_TRACES_EXPORTER='zipkin'"):
        activation.Switch("drawbar", {"OTEL_TRACES_EXPORTER": "zipkin"})


async def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "drawbar.driver.tracing.otlp", raising=False)
    monkeypatch.delattr(tracing, "otlp", raising=False)
    with pytest.raises(errors.UsageError, match=r"pip install 'drawbar\[tracing\]'"):
        async with activation.Switch("drawbar", {"OTEL_TRACES_EXPORTER": "otlp"}).exporting():
            pass


async def test_spans_are_sent_while_it_is_on_and_dropped_before_and_after(monkeypatch, caplog):
    with collectors.collecting() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        switch = activation.Switch("drawbar-test", collector.environment)
        switch.export(SPAN)
        async with switch.exporting():
            switch.export(SPAN)
        switch.export(SPAN)
        assert [(each.service, each.span.name) for each in collector.spans] == [("drawbar-test", "attach")]
    assert caplog.text == ""


async def test_nothing_is_sent_where_it_is_off(monkeypatch):
    switch = activation.Switch("drawbar", {})
    async with switch.exporting():
        switch.export(SPAN)


def test_the_daemons_do_not_import_opentelemetry():
    program = (
        "import sys; import drawbar.driver.controller.daemon, drawbar.driver.node.daemon; "
        "sys.exit(any(name.split('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
