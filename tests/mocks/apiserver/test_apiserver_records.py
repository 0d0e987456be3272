"""Events and Leases: their limits, and that a lease has one holder."""

from typing import Any

import pytest

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
STAMP = "2026-01-01T00:00:00.000000Z"


def event(**fields: Any) -> dict[str, Any]:
    whole = {
        "regarding": {"kind": "ConfigMap", "name": "a", "namespace": "default"},
        "note": "attached",
        "type": "Normal",
        "reason": "Attached",
        "action": "Attach",
        "eventTime": STAMP,
        "reportingController": "drawbar.dev/controller",
        "reportingInstance": "controller-0",
        **fields,
    }
    kept = {key: value for key, value in whole.items() if value is not None}
    return {"metadata": {"generateName": "e-"}, **kept}


@pytest.mark.parametrize(
    ("fields", "path", "text"),
    [
        ({"note": "x" * 1025}, "message", "can have at most 1024 characters"),
        ({"note": "é" * 513}, "message", "can have at most 1024 characters"),
        ({"reason": "x" * 129}, "reason", "can have at most 128 characters"),
        ({"action": "x" * 129}, "action", "can have at most 128 characters"),
        ({"reportingInstance": "x" * 129}, "reportingInstance", "can have at most 128 characters"),
        ({"reportingController": "drawbar controller"}, "reportingController", "name part"),
        ({"reportingController": None}, "reportingController", "Required value"),
        ({"reportingInstance": None}, "reportingInstance", "Required value"),
        ({"action": None}, "action", "Required value"),
        ({"reason": None}, "reason", "Required value"),
        ({"eventTime": None}, "eventTime", "Required value"),
        ({"type": "Loud"}, "type", "has invalid value: Loud"),
        ({"deprecatedCount": 1}, "count", "needs to be unset"),
        ({"deprecatedSource": {"component": "x"}}, "source", "needs to be unset"),
        ({"series": {"count": 1, "lastObservedTime": STAMP}}, "series.count", "should be at least 2"),
    ],
)
async def test_an_event_over_a_limit_is_told_where(api: Any, fields: Any, path: str, text: str) -> None:
    refused = await api.post(EVENTS, event(**fields))
    assert refused.code == 422
    causes = [cause for cause in refused.body["details"]["causes"] if cause["field"] == path]
    assert any(text in cause["message"] for cause in causes), refused.body["message"]


async def test_an_event_at_its_limits_is_taken(api: Any) -> None:
    fields = dict.fromkeys(("reason", "action", "reportingInstance"), "x" * 128)
    assert (await api.post(EVENTS, event(note="x" * 1024, **fields))).code == 201


async def test_an_old_event_is_not_held_to_the_new_limits(api: Any) -> None:
    about = {"kind": "ConfigMap", "name": "a", "namespace": "default"}
    body = {"metadata": {"name": "old"}, "involvedObject": about, "reason": "R" * 200, "message": "x" * 2000}
    assert (await api.post(CORE, body)).code == 201


@pytest.mark.parametrize(
    ("about", "code"),
    [({"namespace": "default"}, 201), ({"namespace": "kube-system"}, 422), ({}, 201)],
)
async def test_an_old_event_stands_in_the_namespace_of_its_object(api: Any, about: Any, code: int) -> None:
    body = {"metadata": {"name": "old"}, "involvedObject": {"kind": "Node", "name": "n", **about}}
    assert (await api.post(CORE, body)).code == code


async def test_of_a_new_event_only_the_series_changes(api: Any) -> None:
    made = (await api.post(EVENTS, event())).body
    path = f"{EVENTS}/{made['metadata']['name']}"
    series = {"count": 2, "lastObservedTime": STAMP}
    assert (await api.merge(path, {"series": series})).code == 200
    refused = await api.merge(path, {"note": "detached"})
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "message")


def lease(holder: str, **spec: Any) -> dict[str, Any]:
    whole = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": STAMP, **spec}
    return {"metadata": {"name": "leader"}, "spec": whole}


async def test_a_lease_is_not_overwritten_blindly(api: Any) -> None:
    await api.post(LEASES, lease("first"))
    refused = await api.put(f"{LEASES}/leader", lease("second"))
    assert refused.code == 422
    assert refused.body["message"].endswith(
        "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions"),
        ({"preferredHolder": "x"}, "spec.preferredHolder"),
    ],
)
async def test_a_lease_that_breaks_a_rule_is_told_where(api: Any, spec: Any, field: str) -> None:
    refused = await api.post(LEASES, lease("a", **spec))
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field]
