"""What the chart makes for Prometheus: objects of its operator, and expressions that Prometheus can read."""

import importlib
import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from drawbar.driver.catalogue import links

CHART = Path(__file__).parents[2] / "deploy" / "drawbar"
METRICS = {
    "enabled": True,
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "runbookBase": "https://wiki.example.com/drawbar/",
    },
}
TEXT = {"type": "string"}
WORDS = {"type": "object", "additionalProperties": TEXT}
DURATION = {
    "type": "string",
    "minLength": 1,
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}


def make_closed_schema(*required, **properties):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


# As the API monitoring.coreos.com/v1 has them (Prometheus operator 0.80), of all fields those that are of use here. Closed,
# since that API drops what it does not know.
METADATA = make_closed_schema("name", "namespace", name=TEXT, namespace=TEXT, labels=WORDS, annotations=WORDS)
ENDPOINT = make_closed_schema(
    port=TEXT,
    scheme={"enum": ["http", "https"]},
    path=TEXT,
    interval=DURATION,
    scrapeTimeout=DURATION,
    bearerTokenFile=TEXT,
    honorLabels={"type": "boolean"},
    tlsConfig=make_closed_schema(caFile=TEXT, serverName=TEXT, insecureSkipVerify={"type": "boolean"}),
)
RULE = make_closed_schema(
    "expr",
    alert=TEXT,
    expr=TEXT,
    labels=WORDS,
    annotations=WORDS,
    keep_firing_for=DURATION,
    **{"for": DURATION},
)
GROUP = make_closed_schema(
    "name", name=TEXT | {"minLength": 1}, interval=DURATION, rules={"type": "array", "items": RULE}
)
SPECS = {
    "ServiceMonitor": make_closed_schema(
        "endpoints",
        "selector",
        endpoints={"type": "array", "items": ENDPOINT},
        selector=make_closed_schema(matchLabels=WORDS),
    ),
    "PrometheusRule": make_closed_schema(groups={"type": "array", "items": GROUP}),
}


def expressions():
    for group in yaml.safe_load((CHART / "alerts" / "drawbar.rules").read_text())["groups"]:
        for rule in group["rules"]:
            yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in json.loads((CHART / "dashboards" / "drawbar.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.tool("chart")
async def test_the_objects_of_the_prometheus_operator_have_its_fields_and_find_the_daemons(render, validator):
    schemas = importlib.import_module("jsonschema")
    documents = await render(metrics=METRICS)
    operator_objects = {document["kind"]: document for document in documents if document["kind"] in SPECS}
    for kind, spec in SPECS.items():
        envelope = make_closed_schema(
            *("apiVersion", "kind", "metadata", "spec"),
            apiVersion={"const": "monitoring.coreos.com/v1"},
            kind={"const": kind},
            metadata=METADATA,
            spec=spec,
        )
        schemas.Draft202012Validator.check_schema(envelope)
        schemas.validate(operator_objects[kind], envelope)
        assert operator_objects[kind]["metadata"]["labels"]["release"] == "prometheus"
    alerts = [
        rule for group in operator_objects["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]
    ]
    runbooks = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in alerts}
    assert runbooks == {name: f"https://wiki.example.com/drawbar/alerts#{name.lower()}" for name in runbooks}
    services = [document for document in documents if document["kind"] == "Service"]
    wanted = operator_objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
    assert len([service for service in services if wanted <= service["metadata"]["labels"].items()]) == 2
    (endpoint,) = operator_objects["ServiceMonitor"]["spec"]["endpoints"]
    for service in services:
        (port,) = [port for port in service["spec"]["ports"] if port["name"] == endpoint["port"]]
        pods = [
            workload["spec"]["template"]
            for workload in documents
            if workload["kind"] in ("Deployment", "DaemonSet")
            and service["spec"]["selector"].items()
            <= workload["spec"]["template"]["metadata"]["labels"].items()
        ]
        (pod,) = pods
        ports = [named["name"] for each in pod["spec"]["containers"] for named in each.get("ports", ())]
        assert ports == [port["targetPort"]]


@pytest.mark.tool("chart")
async def test_by_default_an_alert_leads_to_the_documentation(render):
    documents = await render(metrics={"prometheusRule": {"enabled": True}})
    (made,) = [document for document in documents if document["kind"] == "PrometheusRule"]
    for group in made["spec"]["groups"]:
        for rule in group["rules"]:
            page = links.url(f"alerts.md#{rule['alert'].lower()}")
            assert rule["annotations"]["runbook_url"] == page


@pytest.fixture
def promql():
    if importlib.util.find_spec("promql_parser") is None:
        pytest.skip("NOT TESTED: promql-parser is not installed, so the expressions were not parsed")
    return importlib.import_module("promql_parser")


@pytest.mark.tool("chart")
@pytest.mark.parametrize("expression", list(expressions()))
def test_prometheus_can_read_the_expression(promql, expression):
    promql.parse(expression)


@pytest.mark.tool("chart")
@pytest.mark.parametrize(
    "expression", ["sum by (a) rate(b[5m])", "rate(drawbar_x_total)", "histogram_quantile(x)"]
)
def test_the_parser_refuses_invalid_promql(promql, expression):
    with pytest.raises(ValueError, match=r"."):
        promql.parse(expression)
