"""Payloads of Alertmanager, Redfish services and commands as signals, and what hostile ones become."""

import json

import hypothesis
import pytest
from hypothesis import strategies

from drawbar.driver.api.healthpolicies import Source
from drawbar.driver.healthmonitor import signals


def read(source, document):
    return signals.read(source, json.dumps(document).encode())


def alert(status="firing", **labels):
    return {
        "status": status,
        "labels": labels,
        "annotations": {"summary": "x"},
        "startsAt": "2026-05-01T12:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus",
        "fingerprint": "c0ffee",
    }


def test_alerts_fire_or_are_resolved_with_alertmanagers_fingerprint():
    alerts = [alert(device="d0"), alert("resolved", device="d1")]
    batch = read(Source.ALERT, {"version": "4", "groupKey": "{}", "status": "firing", "alerts": alerts})
    assert [(item.labels["device"], item.firing, item.fingerprint) for item in batch.signals] == [
        ("d0", True, "c0ffee"),
        ("d1", False, "c0ffee"),
    ]
    assert (batch.complete, batch.left_out) == (False, 0)


def test_an_alert_without_a_fingerprint_has_the_same_one_whenever_its_labels_are_the_same():
    alerts = [
        {"status": "firing", "labels": {"a": "1", "b": "2"}},
        {"status": "resolved", "labels": {"b": "2", "a": "1"}},
    ]
    first, second = read(Source.ALERT, {"alerts": alerts}).signals
    assert first.fingerprint == second.fingerprint


def test_a_redfish_event_is_about_its_origin_and_fires_unless_its_severity_is_ok():
    def event(severity, message):
        return {
            "EventType": "Alert",
            "EventId": "1",
            "MessageId": f"ResourceEvent.1.3.{message}",
            "MessageSeverity": severity,
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Chassis/PCIe/PCIeDevices/GPU3"},
        }

    document = {
        "@odata.type": "#Event.v1_7_0.Event",
        "Id": "1",
        "Name": "events",
        "Events": [event("Critical", "ResourceErrorsDetected"), event("OK", "ResourceErrorsCorrected")],
    }
    fires, cleared = read(Source.REDFISH, document).signals
    assert fires.labels == {
        "origin": "/redfish/v1/Chassis/PCIe/PCIeDevices/GPU3",
        "originID": "GPU3",
        "severity": "Critical",
        "messageID": "ResourceEvent.1.3.ResourceErrorsDetected",
        "registry": "ResourceEvent",
        "message": "ResourceErrorsDetected",
        "eventType": "Alert",
    }
    assert (fires.firing, cleared.firing) == (True, False)
    assert fires.fingerprint == cleared.fingerprint


def test_the_severity_of_older_redfish_services_is_read_and_an_event_without_an_origin_is_left_out():
    events = [
        {"Severity": "Warning", "OriginOfCondition": {"@odata.id": "/redfish/v1/x/"}},
        {"Severity": "Warning"},
        {"OriginOfCondition": {"@odata.id": "/redfish/v1/x"}},
    ]
    batch = read(Source.REDFISH, {"Events": events})
    assert [item.labels["originID"] for item in batch.signals] == ["x"]
    assert batch.left_out == 2


def test_the_list_of_a_command_is_complete_unless_something_of_it_is_left_out():
    whole = read(Source.COMMAND, {"signals": [{"labels": {"device": "d0"}}]})
    assert (whole.complete, [item.firing for item in whole.signals]) == (True, [True])
    part = read(Source.COMMAND, {"signals": [{"labels": {"device": "d0"}}, {"labels": {"device": 1}}]})
    assert (part.complete, len(part.signals), part.left_out) == (False, 1, 1)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"alerts": 1, "Events": {}, "signals": ""}'],
    ids=["nothing", "cut", "a list", "null", "no text", "deep", "of other types"],
)
def test_an_invalid_payload_is_refused(source, body):
    with pytest.raises(signals.Unreadable, match="not a payload"):
        signals.read(source, body)


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({str(number): "x" for number in range(signals.LABELS_MAX + 1)}, id="many"),
        pytest.param({"x" * (signals.NAME_CHARS_MAX + 1): "x"}, id="a long name"),
        pytest.param({"x": "x" * (signals.VALUE_CHARS_MAX + 1)}, id="a long value"),
    ],
)
def test_labels_beyond_the_bounds_are_left_out(labels):
    batch = read(Source.ALERT, {"alerts": [alert(**labels), alert(device="d0")]})
    assert (len(batch.signals), batch.left_out) == (1, 1)


def test_of_a_million_alerts_the_first_are_read_and_the_rest_is_counted():
    body = b'{"alerts": [' + b",".join([b"{}"] * 1_000_000) + b"]}"
    batch = signals.read(Source.ALERT, body)
    assert (len(batch.signals), batch.left_out) == (0, 1_000_000)
    many = read(Source.ALERT, {"alerts": [alert(device="d0")] * 1000})
    assert (len(many.signals), many.left_out) == (signals.SIGNALS_MAX, 500)


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=8),
    lambda inner: (
        strategies.lists(inner, max_size=4)
        | strategies.dictionaries(
            strategies.sampled_from(
                [
                    "alerts",
                    "status",
                    "labels",
                    "Events",
                    "signals",
                    "Severity",
                    "OriginOfCondition",
                    "@odata.id",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@hypothesis.given(source=strategies.sampled_from(Source), document=JSON)
def test_any_json_is_read_or_refused(source, document):
    try:
        batch = read(source, document)
    except signals.Unreadable:
        return
    assert len(batch.signals) <= signals.SIGNALS_MAX
    assert all(isinstance(value, str) for item in batch.signals for value in item.labels.values())


ORIGIN = "/redfish/v1/Chassis/1/PCIeDevices/gpu-1"


@pytest.mark.parametrize(
    "change",
    [
        {"OriginOfCondition": ORIGIN},
        {"MessageId": None},
        {"MessageId": 7},
        {"EventType": ["Alert"]},
        {"EventType": None},
        {"Severity": "CRITICAL"},
        {"MessageSeverity": "Informational"},
        {"MessageSeverity": None},
        {"Oem": {"Dell": None}},
    ],
    ids=repr,
)
def test_a_property_in_another_form_costs_that_property_alone(change):
    event = {
        "EventType": "Alert",
        "MessageId": "GPU0001",
        "Severity": "Critical",
        "OriginOfCondition": {"@odata.id": ORIGIN},
    }
    (signal,) = read(Source.REDFISH, {"Events": [event | change]}).signals
    assert (signal.labels["origin"], signal.labels["severity"], signal.firing) == (ORIGIN, "Critical", True)
