"""The alert rules and the dashboard ask for numbers that the daemons give; the rules say what to do."""

import functools
import json
import re
from pathlib import Path

import pytest
import yaml

from drawbar.driver.api import fabrics
from drawbar.driver.catalogue import links
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.operation import gauges
from drawbar.driver.controller.operation import metrics as controller_metrics
from drawbar.driver.healthmonitor import metrics as monitor_metrics
from drawbar.driver.healthmonitor import tainting
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import settings
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.operation import instrumentation

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "drawbar" / "alerts" / "drawbar.rules"
ALERTS = ROOT / "docs" / "alerts.md"
DASHBOARD = ROOT / "deploy" / "drawbar" / "dashboards" / "drawbar.json"
SELECTOR = re.compile(r"\b((?:drawbar|process)_[a-z_]+)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left)\s*\(([^)]*)\)")
# What Prometheus itself adds.
OF_THE_TARGET = {"instance", "job"}
# By label the values that the rules may ask for.
VALUES = {
    "condition": fabrics.CONDITIONS,
    "driver": {"$driver"},
    "fabric": {"$fabric"},
    "instance": {"$node"},
    "state": set(gauges.STATES),
    "operation": {"attach", "detach"},
    "step": {*controller_metrics.STEPS_THERE, *controller_metrics.STEPS_BACK},
    "health": {str(status) for status in verdicts.Status},
    "reason": set(tainting.Reason),
    "code": {"OK", "UNFINISHED", "NOT_FOUND"},
    "result": {
        *(outcomes.ATTACHED, outcomes.REUSED, *outcomes.FAILURES),
        *("OK", "Aborted"),
        *(error.__name__ for error in kube_errors.KubeError.__subclasses__()),
    },
}


@functools.cache
def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [pytest.param(rule, id=rule["alert"]) for group in groups for rule in group["rules"]]


def charts():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        pytest.param(target, id=f"{panel['title']} {target['refId']}")
        for panel in panels
        for target in panel.get("targets", ())
    ]


class Nothing:
    """A part of a daemon of which only the names of its metrics are needed."""

    audits = missed = 0
    hanging = ()


@pytest.fixture(scope="module")
def exposed_series():
    """Return by the name of every series its labels."""
    node = instrumentation.Instrumentation(settings.Settings(node_name="n"))
    node.watch_attachments([])
    node.watch_devices(Nothing())
    node.watch_prepared(int)
    node.watch_verdicts(Nothing())
    node.watch_queue(int, int)
    node.watch_neighbours(dict, int)
    controller = controller_metrics.Metrics("drawbar.dev")
    controller.watch("ready", "", dict)
    gauges.Gauges(cluster=Nothing(), devices_queue=Nothing(), fabrics_queue=Nothing()).show(controller)
    monitor = monitor_metrics.Metrics("drawbar.dev")
    monitor.show()
    labels_by_series = {}
    exposed_series = (node.metrics, controller, monitor)
    for name, labels in (item for metrics in exposed_series for item in metrics.labels().items()):
        labels_by_series[name] = set(labels)
        if name.endswith("_seconds"):
            labels_by_series |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": set(labels)}
    return labels_by_series | {"process_start_time_seconds": {"driver"}}


def check_series(expression, exposed_series):
    """Check that each series has the labels that the expression selects and groups by."""
    allowed = set(OF_THE_TARGET)
    for name, matchers in SELECTOR.findall(expression):
        assert name in exposed_series
        allowed |= exposed_series[name]
        for label, text in MATCHER.findall(matchers):
            assert label in exposed_series[name] | OF_THE_TARGET, f"{name} has no label {label}"
            assert set(text.split("|")) <= VALUES[label]
    grouped = [label for group in GROUPING.findall(expression) for label in re.split(r"[,\s]+", group)]
    assert {label for label in grouped if label} <= allowed


@pytest.mark.parametrize("rule", rules())
def test_a_rule_asks_for_series_and_labels_that_are_exposed(rule, exposed_series):
    assert SELECTOR.search(rule["expr"])
    check_series(rule["expr"], exposed_series)


@pytest.mark.parametrize("chart", charts())
def test_a_chart_asks_for_series_and_labels_that_are_exposed_and_names_labels_that_are_left(
    chart, exposed_series
):
    assert SELECTOR.search(chart["expr"])
    check_series(chart["expr"], exposed_series)
    kept = {label for group in GROUPING.findall(chart["expr"]) for label in re.split(r"[,\s]+", group)}
    assert set(re.findall(r"\{\{(\w+)\}\}", chart["legendFormat"])) <= kept


@pytest.mark.parametrize("rule", rules())
def test_a_rule_names_the_problem_and_a_remedy(rule):
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["summary"][-1] != "."
    assert rule["annotations"]["description"].endswith((".", "?"))


@pytest.mark.parametrize("rule", rules())
def test_a_text_names_only_labels_that_the_alert_will_have(rule, exposed_series):
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    aggregated = re.match(r"^(?:histogram_quantile\([\d.]+, )?sum\b", rule["expr"])
    if aggregated:
        group = re.search(r"by \(([^)]*)\)", rule["expr"])
        kept = set(group[1].split(", ")) if group else set()
    else:
        kept = OF_THE_TARGET.union(*(exposed_series[name] for name, _ in SELECTOR.findall(rule["expr"])))
    assert named <= kept


def grouped_by(expression):
    """Return the labels of each `by`, as an aggregation drops all other labels."""
    return [set(re.split(r"[,\s]+", group)) for group in re.findall(r"\bby\s*\(([^)]*)\)", expression)]


@pytest.mark.parametrize("rule", rules())
def test_an_alert_carries_the_driver_so_that_two_in_a_cluster_do_not_mask_or_add_up(rule):
    assert all("driver" in labels for labels in grouped_by(rule["expr"]))
    assert not re.search(r"\b(sum|max|min|count|group)\s*\(", rule["expr"]), "an aggregation over all drivers"
    assert not re.search(r"\b(without|ignoring)\s*\([^)]*driver", rule["expr"])


@pytest.mark.parametrize("chart", charts())
def test_a_chart_shows_the_drivers_that_are_chosen(chart):
    assert all('driver=~"$driver"' in matchers for _, matchers in SELECTOR.findall(chart["expr"]))


@pytest.mark.parametrize("chart", charts())
def test_a_chart_shows_the_fabrics_and_node_daemons_that_are_chosen(chart, exposed_series):
    for name, matchers in SELECTOR.findall(chart["expr"]):
        assert ('fabric=~"$fabric"' in matchers) == ("fabric" in exposed_series[name])
        assert ('instance=~"$node"' in matchers) == name.startswith("drawbar_node_")


def test_each_panel_has_a_description_and_each_variable_exists():
    dashboard = json.loads(DASHBOARD.read_text())
    assert all(panel["description"].endswith(".") for panel in dashboard["panels"])
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource", "driver", "fabric", "node"}


def test_each_variable_lists_the_values_of_a_label_of_series_that_exist_and_all_of_them_can_be_chosen(
    exposed_series,
):
    source, *variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for variable in variables:
        query = re.fullmatch(r"label_values\((\w*)\{(.*)\}, (\w+)\)", variable["query"]["query"])
        series, matchers, label = query.groups()
        if pattern := re.fullmatch(r'__name__=~"(.*)"', matchers):
            selected = [name for name in exposed_series if re.fullmatch(pattern[1], name)]
        else:
            selected = [series] if series in exposed_series else []
            assert matchers == 'driver=~"$driver"'
        assert selected, variable["name"]
        # Prometheus itself adds the instance.
        assert label == "instance" or all(label in exposed_series[name] for name in selected)
        assert variable["includeAll"]
        assert variable["multi"]
        assert variable["allValue"] == ".*"


def test_panels_and_variables_ask_the_prometheus_that_is_chosen():
    dashboard = json.loads(DASHBOARD.read_text())
    _, *variables = dashboard["templating"]["list"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert all(entry["datasource"] == chosen for entry in (*dashboard["panels"], *variables))


def test_the_runbook_of_every_alert_is_its_paragraph_in_the_documentation():
    page = ALERTS.read_text()
    sections = {
        heading: text.strip()
        for heading, text in re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    }
    alerts = {rule.id: rule.values[0]["annotations"]["runbook_url"] for rule in rules()}
    assert sections.keys() == alerts.keys()
    assert all(sections.values())
    # A heading's anchor is its text in lower case.
    assert alerts == {name: links.url(f"alerts.md#{name.lower()}") for name in alerts}


def test_the_dashboard_shows_all_metrics_of_the_health_monitor(exposed_series):
    charted = {
        name
        for chart in charts()
        for name, _ in SELECTOR.findall(chart.values[0]["expr"])
        if name.startswith(monitor_metrics.PREFIX)
    }
    counted = {name for name in exposed_series if name.startswith(monitor_metrics.PREFIX)}
    of_every_daemon = {
        "ready",
        "api_requests_total",
        "dropped_events_total",
        "build_info",
        "failing_work",
        "unreadable_objects",
    }
    assert counted - charted == {monitor_metrics.PREFIX + name for name in of_every_daemon}


def test_a_number_that_is_bad_is_seen_by_its_colour():
    panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text())["panels"]}
    for title in ("Fabrics that can be reached", "Controllers that lead", "Node daemons that are not ready"):
        steps = panels[title]["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert {step["color"] for step in steps} == {"green", "red"}
        assert panels[title]["options"]["colorMode"] == "background"
    rows = [panel for panel in panels.values() if panel["type"] == "row"]
    assert len(rows) > 3
    assert rows[0]["gridPos"]["y"] == 0


def test_the_links_of_panels_lead_to_alerts_that_exist():
    pages = {rule.values[0]["annotations"]["runbook_url"] for rule in rules()}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    linked = [link["url"] for panel in panels for link in panel.get("links", ())]
    assert linked
    assert set(linked) <= pages


def test_panels_have_unique_numbers_and_positions():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


def test_rule_names_are_unique():
    names = [rule.id for rule in rules()]
    assert len(names) == len(set(names))
    assert all(name.startswith("Drawbar") for name in names)


def test_the_documented_series_of_the_controller_are_those_that_are_exposed(exposed_series):
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    text = page.replace("drawbar_<daemon>_", "drawbar_controller_")
    section = text.partition("## All daemons")[2].partition("## `drawbar node`")[0]
    listed = {
        name: {"driver", *(label for label in labels.split(", ") if label)}
        for name, labels in re.findall(
            r"^- `(drawbar_controller_[a-z_]+)(?:\{(.*?)\})?`: ", section, re.MULTILINE
        )
    }
    made = {name: labels for name, labels in exposed_series.items() if name.startswith("drawbar_controller_")}
    assert listed == {name: labels for name, labels in made.items() if not name.endswith(("_bucket", "_sum"))}
    assert set(re.findall(r"drawbar_controller_[a-z_]+", text)) <= made.keys()
