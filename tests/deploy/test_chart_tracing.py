"""Traces in the chart: off by default; on, both daemons get the collector's address and a way to it."""

import pytest

from drawbar.mocks.testing import helm

pytestmark = pytest.mark.tool("chart")
ENDPOINT = "http://collector.observability.svc:4318"
WAY = [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 4318, "protocol": "TCP"}]}]
ON = {"tracing": {"enabled": True, "endpoint": ENDPOINT}, "networkPolicy": {"collector": WAY}}


def variables(documents, kind, container):
    """Return the environment of a container of the only workload of that kind."""
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == kind]
    (entries,) = [each["env"] for each in pod["containers"] if each["name"] == container]
    return {entry["name"]: entry.get("value") for entry in entries}


def egress(documents):
    """Return the egress rules by the name of their NetworkPolicy."""
    policies = [each for each in documents if each["kind"] == "NetworkPolicy"]
    return {each["metadata"]["name"]: each["spec"]["egress"] for each in policies}


DAEMONS = [("Deployment", "controller"), ("DaemonSet", "node")]


@pytest.mark.parametrize(("kind", "container"), DAEMONS)
async def test_both_daemons_send_traces_to_the_collector(render, kind, container):
    environment = variables(await render(**ON), kind, container)
    assert environment["OTEL_TRACES_EXPORTER"] == "otlp"
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == ENDPOINT


@pytest.mark.parametrize(("kind", "container"), DAEMONS)
async def test_the_default_sends_none(render, kind, container):
    assert not [name for name in variables(await render(), kind, container) if name.startswith("OTEL")]


async def test_both_daemons_may_connect_to_the_collector_only_where_it_is_on(render):
    on, off = egress(await render(**ON)), egress(await render())
    assert set(on) == set(off) == {"drawbar-controller", "drawbar-node"}
    for name, rules in on.items():
        assert [rule for rule in rules if rule not in off[name]] == WAY


@pytest.mark.parametrize(
    ("lacking", "says"),
    [
        pytest.param({"tracing": {"enabled": True}}, "tracing.endpoint", id="endpoint"),
        pytest.param({"tracing": ON["tracing"]}, "networkPolicy.collector", id="way"),
        pytest.param({"tracing": {"enabled": True, "endpoint": "collector:4318"}}, "endpoint", id="scheme"),
    ],
)
async def test_missing_values_are_named(render, lacking, says):
    with pytest.raises(helm.HelmError, match=says):
        await render(**lacking)
