"""The suite judges the redfish adapter over each method, in each form that services have it."""

import pytest
from tests.fabric.redfish.conftest import WITH_POOL

from drawbar.fabric import conformance

CONSTRAINED = {"method": "composition", "constrained": True, "profile": "constrained"}
SLICES = {"method": "connections", "enclosures": WITH_POOL}
FORMS = {
    "a zone for each pair": {},
    "a zone for each pair, by tasks": {"task_seconds": 0.02},
    "a zone for each pair, without $expand and events": {"expand": False, "events": False},
    "a zone for each host port": {"zones": "port", "product": "H3 Falcon"},
    "a zone for each host port, by actions": {"zones": "port", "product": "H3 Falcon", "actions": True},
    "a connection for each pair": {"method": "connections"},
    "a connection for each pair, by tasks": {"method": "connections", "task_seconds": 0.02},
    "a connection for each pair, without $expand and events": {
        "method": "connections",
        "expand": False,
        "events": False,
    },
    "slices of a memory domain": SLICES,
    "slices of a memory domain, by tasks": SLICES | {"task_seconds": 0.02},
    "a connection without an initiator": {"method": "connections", "initiators": False},
    "a connection that its client names": {
        "method": "connections",
        "initiators": False,
        "named_connections": True,
        "product": "Memory Appliance Composer & Fabric Manager Redfish Service",
    },
    "a connection without an initiator, by tasks, without $expand and events": {
        "method": "connections",
        "initiators": False,
        "task_seconds": 0.02,
        "expand": False,
        "events": False,
    },
    "composition by changed arrays": {"method": "composition"},
    "composition by actions": {"method": "composition", "actions": True},
    "composition by actions and tasks": {"method": "composition", "actions": True, "task_seconds": 0.02},
    "composition by counts": CONSTRAINED,
    "composition by counts and tasks": CONSTRAINED | {"task_seconds": 0.02},
    "with sessions": {"username": "drawbar", "password": "secret"},
    "with a password in each request": {
        "username": "drawbar",
        "password": "secret",
        "quirks": ("basic-only",),
    },
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_the_adapter_keeps_the_contract(redfish_lab, form):
    options = dict(form)
    profile = {"profile": options.pop("profile")} if "profile" in options else {}
    service = await redfish_lab.serve(**options)
    adapter = await redfish_lab.connect(service, parameters=profile)
    report = await conformance.check(adapter, check_seconds=30)
    assert [(outcome.name, outcome.detail) for outcome in report.failed] == []
    skipped = {"cancelling a finished operation changes nothing"}
    if not (await adapter.capabilities()).marks:
        skipped |= {outcome.name for outcome in report.skipped if "mark" in outcome.name}
    if not (await adapter.capabilities()).exact_device:
        chosen = [outcome.name for outcome in report.skipped if "chooses the device" in outcome.detail]
        assert len(chosen) == 4
        skipped |= set(chosen)
    left_out = {
        outcome.name
        for outcome in report.skipped
        if not {"chunks", "reachability", "slices"} & {*outcome.detail.split()}
    }
    assert left_out <= skipped
    assert all(len(hosts) == 0 for hosts in service.connections().values())
