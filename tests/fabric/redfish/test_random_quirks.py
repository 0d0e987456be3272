"""The adapter on services with any combination of quirks and accidents: it works, or fails with a documented condition.

Another client has connected `disk-1` with `h1`, which stays so. At the end nothing is attached twice, and no session, connection or
task is left.
"""

import asyncio
from contextlib import AsyncExitStack

import hypothesis
import msgspec
import pytest
from hypothesis import strategies
from tests.fabric.redfish.conftest import CONFIGURATION, RedfishLab
from tests.fabric.redfish.test_random_steps import (
    FORMS,
    PARAMETERS,
    PATHS,
    UNREADABLE,
    Walk,
    without_contradiction,
)
from tests.scenes import waiting

from drawbar.fabric import errors
from drawbar.mocks.redfish import Fault, FaultKind, paths, quirks
from drawbar.mocks.testing import virtualtime

BYSTANDER = "disk-1"
# What is right without any oddity: another host has the device, it is under way, the bystander has the host's only port, or all
# devices of the model are in use.
USUAL = {
    errors.Reason.IN_USE,
    errors.Reason.OPERATION_PENDING,
    errors.Reason.NO_FREE_PORT,
    errors.Reason.NO_DEVICE,
}
MALFORMED = {"MALFORMED_ANSWER"}
# By accident, the reasons that it may be reported with.
FAULTS = {
    FaultKind.LOST_REPLY: {"BROKEN_OFF"},
    FaultKind.HALF_BODY: {"BROKEN_OFF"},
    FaultKind.BUSY: {"SERVICE_BUSY"},
    FaultKind.STALE_ETAG: {errors.Reason.STALE_ETAG},
    FaultKind.FAILED_TASK: {"TASK_FAILED", "INTERNAL_ERROR", "HTTP_500"},
    FaultKind.HTML: MALFORMED,
    FaultKind.FORBIDDEN: {"PERMISSION_DENIED"},
}
# By quirk, likewise.
QUIRKS = {
    **{name: {"NOT_READ"} for name in ("broken-member", "html-member", "hanging-member", "bad-bytes")},
    **dict.fromkeys(UNREADABLE, MALFORMED),
    # Whether the task failed is not told, so the fabric is read.
    "forgotten-monitors": {"NOT_SHOWN"},
    "last-member": {errors.Reason.OTHERS_LOST},
}
METHODS = {"POST", "PATCH", "DELETE"}


def names_of(form):
    own = quirks.form(msgspec.structs.replace(CONFIGURATION, **form))
    return sorted(name for name, quirk in quirks.QUIRKS.items() if own in quirk.forms)


@strategies.composite
def trials(draw):
    """Draw a form, the quirks of the service, and operations each with the accident that it meets, if any."""
    form = FORMS[
        draw(strategies.sampled_from(sorted(set(FORMS) - {"a connection for each pair, and slices"})))
    ]
    names = draw(strategies.lists(strategies.sampled_from(names_of(form)), max_size=6, unique=True))
    operation = strategies.tuples(
        strategies.sampled_from(["attach", "detach"]),
        strategies.sampled_from(["gpu-1", "gpu-2"]),
        strategies.sampled_from(["h1", "h2"]),
        strategies.none() | strategies.sampled_from(sorted(FAULTS)),
        strategies.sampled_from(["GET", "change"]),
    )
    return form, without_contradiction(names), draw(strategies.lists(operation, min_size=1, max_size=6))


@pytest.mark.timeout(600)
@hypothesis.settings(deadline=None, max_examples=25)
@hypothesis.given(trials())
# Two waits, for the expanded collection and for the member, are longer than the deadline of a listing.
@hypothesis.example(
    ({"method": "connections"}, ("hanging-member",), [("attach", "gpu-1", "h1", None, "GET")])
)
# The member that the service drops belongs to a device that cannot be read.
@hypothesis.example(
    (
        {"zones": "port", "product": "H3 Falcon"},
        ("last-member", "bad-bytes"),
        [("attach", "gpu-1", "h1", None, "GET")],
    )
)
def test_the_adapter_works_or_fails_with_a_documented_condition(trial):
    virtualtime.in_virtual_time(_try)(*trial)


async def _try(form, names, operations):
    allowed = USUAL.union(*(QUIRKS.get(name, set()) for name in names))
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        lab = RedfishLab(stack)
        service = await lab.serve(
            username="drawbar", password="secret", exclusive=False, events=False, quirks=names, **form
        )
        Walk(lab, service, form, None).change(BYSTANDER, "h1", connects=True)
        adapter = await _try_connect(lab, service, form, names, allowed)
        if adapter is not None:
            async with adapter:
                for operation in operations:
                    await _operate(lab, service, adapter, form, allowed, *operation)
        await waiting.eventually(lambda: service.clients == 0)
        assert service.tree.list_members(paths.SESSIONS) == ()
    assert asyncio.all_tasks() == before


async def _try_connect(lab, service, form, names, allowed):
    """Return an adapter that can list, or None if the listing of the service contradicts itself."""
    parameters = {"pollSeconds": "9999", "taskSeconds": "60"}
    parameters |= {"profile": "constrained"} if form.get("constrained") else {}
    for name in names:
        parameters |= PARAMETERS.get(name, {})
    try:
        adapter = await lab.adapter(service, timeout_seconds=20, parameters=parameters)
    except errors.FabricError as error:
        _check(error, allowed)
        return None
    inventory = await adapter.devices()
    # A malformed collection is an error, or a part that could not be read; never an empty fabric.
    assert inventory.devices or inventory.unread
    return adapter


def _check(error, reasons):
    assert error.reason in reasons, error


async def _operate(lab, service, adapter, form, allowed, verb, name, host_id, fault, methods):
    reasons = allowed | FAULTS.get(fault, set())
    if fault is not None:
        listed = ("GET",) if methods == "GET" else tuple(METHODS)
        path = PATHS.get(form.get("method"), "/Zones")
        service.faults.add(Fault(kind=fault, methods=listed, path=path))
    prefix = Walk(lab, service, form, None)._prefix
    wanted = {"device_id": prefix + name}
    if verb == "attach" and form.get("constrained"):
        wanted = {"device_id": None, "model": "A100"}
    try:
        if verb == "attach":
            operation = await adapter.attach(lab.attach(host_id=host_id, **wanted))
        else:
            operation = await adapter.detach(lab.detach(host_id=host_id, **wanted))
        operation = await waiting.until(
            lambda: adapter.operation(operation_id=operation.id), lambda current: current.done
        )
    except errors.FabricError as error:
        reason = error.reason
        _check(error, reasons)
    else:
        reason = operation.error and operation.error.reason
        assert reason is None or reason in reasons, operation.error
        if operation.error is None:
            hosts = service.connections().get(operation.device.id.removeprefix(prefix), [])
            assert (host_id in hosts) is (verb == "attach")
    service.faults.clear()
    connections = service.connections()
    # The quirk `shared-zone` itself connects this one to both hosts.
    connections.pop("shared", None)
    assert [device_id for device_id, hosts in connections.items() if len(hosts) > 1] == []
    if connections.get(BYSTANDER) != ["h1"]:
        # The service took it with the change of another device, which the operation says at once.
        assert (reason, connections.get(BYSTANDER)) == (errors.Reason.OTHERS_LOST, None)
        Walk(lab, service, form, None).change(BYSTANDER, "h1", connects=True)
