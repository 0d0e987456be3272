"""The suite judges the simulated fabric, directly and behind a socket, and finds out adapters that lie."""

import asyncio
import dataclasses
from contextlib import AsyncExitStack
from xml.etree import ElementTree

import pytest

from drawbar.fabric import conformance, contract, errors, witnesses
from drawbar.fabric.grpc import server
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.fabric import SimulatedFabric, configuration

CONFIGURATION = b"""{
  "hosts": [{"id": "h1", "ports": 2}, {"id": "h2", "ports": 2}, {"id": "h3", "ports": 2}],
  "enclosures": [{"id": "e1", "hosts": ["h1", "h2"], "devices": [
    {"id": "d1", "class": "gpu", "model": "A", "vendor": "V"}, {"id": "d2", "class": "nvme", "model": "B"},
    {"id": "d3", "class": "nvme", "model": "B"}, {"id": "d4", "class": "nvme", "model": "B"}%s]}],
  "attachSeconds": %s, "detachSeconds": %s
}"""
CARVED = (
    b""", {"id": "m1", "class": "cxl-memory", "model": "C", "memoryBytes": 4096, "sliceStepBytes": 1024}"""
)


def list_skipped_checks(report):
    """Return the checks that were skipped, without those of slices in a fabric that makes none."""
    return tuple(outcome for outcome in report.skipped if outcome.detail != "the fabric makes no slices")


@pytest.fixture
async def connect_adapter(tmp_path):
    """Yield a function that makes an adapter of a class, through gRPC if asked."""
    async with AsyncExitStack() as stack:

        async def connect(
            *, kind=SimulatedFabric, through_grpc=False, seconds=b"0", chooses="any", carved=b""
        ):
            text = CONFIGURATION % (carved, seconds, seconds)
            described = configuration.parse(
                text.replace(b'"hosts"', b'"chooses": "%s", "hosts"' % chooses.encode(), 1)
            )
            fabric = await stack.enter_async_context(kind.running(described))
            if not through_grpc:
                return fabric
            endpoint = f"unix:{tmp_path}/fabric.sock"
            await stack.enter_async_context(server.serving(fabric, endpoint, name="test", version="1"))
            config = contract.AdapterConfig(name="test", endpoint=endpoint, timeout_seconds=10)
            return await stack.enter_async_context(await GrpcAdapter.connect(config))

        yield connect


@pytest.mark.parametrize("seconds", [b"0", b"0.02"], ids=["at once", "taking time"])
@pytest.mark.parametrize("through_grpc", [False, True], ids=["directly", "through gRPC"])
async def test_the_simulated_fabric_keeps_the_contract(connect_adapter, through_grpc, seconds):
    adapter = await connect_adapter(through_grpc=through_grpc, seconds=seconds, carved=CARVED)
    report = await conformance.check(adapter, check_seconds=20)
    assert [(outcome.name, outcome.detail) for outcome in report.failed + report.skipped] == []
    assert len(report.outcomes) == len(conformance.CHECKS)
    assert all(device.connection is None for device in (await adapter.devices()).devices)


@pytest.mark.parametrize("chooses", ["first", "last"])
@pytest.mark.parametrize("through_grpc", [False, True], ids=["directly", "through gRPC"])
async def test_a_fabric_that_chooses_the_device_keeps_the_contract(connect_adapter, through_grpc, chooses):
    adapter = await connect_adapter(through_grpc=through_grpc, chooses=chooses)
    report = await conformance.check(adapter, device_id="d3", check_seconds=20)
    assert [(outcome.name, outcome.detail) for outcome in report.failed] == []
    assert {outcome.detail for outcome in list_skipped_checks(report)} == {"the fabric chooses the device"}
    assert len(list_skipped_checks(report)) == 4
    assert all(device.connection is None for device in (await adapter.devices()).devices)


class Generous(SimulatedFabric):
    """Attaches one more device of the model whenever it is asked, as a count that is raised."""

    async def attach(self, request):
        self.count = getattr(self, "count", 0) + 1
        operation = await super().attach(
            dataclasses.replace(request, request_id=f"{request.request_id}+{self.count}")
        )
        return dataclasses.replace(operation, request_id=request.request_id)


class Nameless(SimulatedFabric):
    """Does not name the device that it chose."""

    async def operation(self, *, operation_id=None, request_id=None):
        operation = await super().operation(operation_id=operation_id, request_id=request_id)
        return dataclasses.replace(operation, device=None)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            Generous,
            "the same attach by model twice is one device, and another one gets another device or NO_DEVICE",
        ),
        (Nameless, "an attach by model chooses a device of that model and names it"),
    ],
)
async def test_a_fabric_that_chooses_carelessly_is_found_out(connect_adapter, kind, sentence):
    adapter = await connect_adapter(kind=kind, chooses="first")
    checks = [check for check in conformance.CHECKS if check.name == sentence]
    report = await conformance.check(adapter, device_id="d3", checks=checks, check_seconds=1)
    assert report.outcomes[0].verdict is conformance.Verdict.FAILED


class Blind(SimulatedFabric):
    """Attaches a device to any host, although its groups tell otherwise."""

    async def hosts(self):
        groups = frozenset({"elsewhere"})
        return tuple(
            dataclasses.replace(host, reach_groups=groups) if host.id == "h2" else host
            for host in await super().hosts()
        )


class Divided(SimulatedFabric):
    """Has a device in more groups than a device may be in."""

    async def hosts(self):
        return tuple(
            dataclasses.replace(host, reach_groups=frozenset({"g0"})) for host in await super().hosts()
        )

    async def devices(self):
        inventory = await super().devices()
        groups = frozenset(f"g{number}" for number in range(contract.DEVICE_GROUPS_MAX + 1))
        return dataclasses.replace(
            inventory,
            devices=tuple(dataclasses.replace(device, reach_groups=groups) for device in inventory.devices),
        )


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Blind, "attaching to a host outside the device's reachability groups is refused as incompatible"),
        (Divided, "reachability groups are few, and a host reaches each device that it has"),
    ],
)
async def test_a_fabric_that_tells_wrong_groups_is_found_out(connect_adapter, kind, sentence):
    adapter = await connect_adapter(kind=kind)
    checks = [check for check in conformance.CHECKS if check.name == sentence]
    hosts = ("h1", "h2")
    report = await conformance.check(adapter, host_ids=hosts, checks=checks, check_seconds=5)
    assert report.outcomes[0].verdict is conformance.Verdict.FAILED


class Forgetful(SimulatedFabric):
    """Answers every request as if it were new."""

    async def attach(self, request):
        self.count = getattr(self, "count", 0) + 1
        operation = await super().attach(
            dataclasses.replace(request, request_id=f"{request.request_id}+{self.count}")
        )
        return dataclasses.replace(operation, request_id=request.request_id)


class Robber(SimulatedFabric):
    """Takes a device from the host that has it."""

    async def attach(self, request):
        try:
            return await super().attach(request)
        except (errors.FailedPrecondition, errors.Aborted):
            if self._running:
                await asyncio.wait(self._running.values())
            await self.take_away(request.device_id)
            return await super().attach(request)


class Bully(SimulatedFabric):
    """Detaches without asking whether the host is prepared, and from whichever host has it."""

    async def detach(self, request):
        await self.take_away(request.device_id)
        return await super().detach(request)


class Mute(SimulatedFabric):
    """Does not say which host has the device."""

    async def attach(self, request):
        try:
            return await super().attach(request)
        except errors.FailedPrecondition as error:
            raise errors.FailedPrecondition(error.message, reason=error.reason) from error


class Blind(SimulatedFabric):
    """Never lists a connection."""

    async def devices(self):
        inventory = await super().devices()
        return dataclasses.replace(
            inventory,
            devices=tuple(dataclasses.replace(device, connection=None) for device in inventory.devices),
        )


class Strict(SimulatedFabric):
    """Refuses to detach what is not attached."""

    async def detach(self, request):
        operation = await super().detach(request)
        if operation.device.connection is None and not (await self._was_attached(request)):
            raise errors.NotFound("not attached")
        return operation

    async def _was_attached(self, request):
        operations = await self.operations()
        return any(item.kind is contract.OperationKind.ATTACH for item in operations)


class Markless(SimulatedFabric):
    """Declares that it keeps marks, and does not."""

    async def attach(self, request):
        return await super().attach(dataclasses.replace(request, mark=None))


class Careless(SimulatedFabric):
    """Lets the last one to ask have the mark."""

    async def attach(self, request):
        device = self._world.stock._devices[request.device_id]
        if device.connection is not None and device.connection.host_id == request.host_id:
            changed = dataclasses.replace(
                device, connection=dataclasses.replace(device.connection, mark=request.mark)
            )
            self._world.stock._devices[request.device_id] = changed
        return await super().attach(request)


class Sloppy(SimulatedFabric):
    """Shows an identifier as its manager writes it."""

    async def devices(self):
        inventory = await super().devices()
        number = witnesses.Identifier(kind=witnesses.Kind.MAC, value="94-6D-AE-51-C0-2A")
        devices = tuple(dataclasses.replace(device, identifiers=(number,)) for device in inventory.devices)
        return dataclasses.replace(inventory, devices=devices)


class Verbose(SimulatedFabric):
    """Declares the capabilities of its devices in words of its own."""

    async def devices(self):
        inventory = await super().devices()
        return dataclasses.replace(
            inventory,
            devices=tuple(
                dataclasses.replace(device, compute_capability="sm_90") for device in inventory.devices
            ),
        )


class Wordy(SimulatedFabric):
    """Describes the switches of its devices."""

    async def devices(self):
        inventory = await super().devices()
        return dataclasses.replace(
            inventory,
            devices=tuple(dataclasses.replace(device, switch="the left one") for device in inventory.devices),
        )


class Unsettled(SimulatedFabric):
    """Follows a version that it cannot know."""

    def watch(self, from_version):
        return super().watch(self._history.version if from_version == "no-such-version" else from_version)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Forgetful, "the same request twice is one operation"),
        (Forgetful, "a request repeated after a later detach does not attach again"),
        (Robber, "attaching a device that another host has is refused and names that host"),
        (Robber, "two hosts that ask at once do not both get the device"),
        (Bully, "a detach that the host is not prepared for is refused"),
        (Bully, "detaching from a host that does not have the device leaves it where it is"),
        (Mute, "attaching a device that another host has is refused and names that host"),
        (Blind, "an attached device is listed as attached, on a port of the host"),
        (Strict, "detaching an absent device succeeds"),
        (Markless, "a connection shows the mark that it was made with, and keeps it"),
        (Careless, "a connection shows the mark that it was made with, and keeps it"),
        (Verbose, "values that claims select by have their published form"),
        (Sloppy, "each identifier of a device has the normal form of its kind"),
        (Wordy, "values that claims select by have their published form"),
        (Unsettled, "a watch from an unknown version asks for a new listing and ends"),
    ],
)
async def test_an_adapter_that_breaks_a_promise_is_found_out(connect_adapter, kind, sentence):
    adapter = await connect_adapter(kind=kind)
    checks = [check for check in conformance.CHECKS if check.name == sentence]
    report = await conformance.check(adapter, checks=checks, check_seconds=0.5)
    assert report.outcomes[0].name == sentence
    assert report.outcomes[0].verdict is conformance.Verdict.FAILED
    assert report.outcomes[0].detail
    assert not report.passed


WITHOUT_SLOTS = "each device can be recognised by its node"


class Slotless(SimulatedFabric):
    """Names no slot of a port."""

    async def hosts(self):
        return tuple(
            dataclasses.replace(
                host, ports=tuple(dataclasses.replace(port, slot_hint=None) for port in host.ports)
            )
            for host in await super().hosts()
        )


class Numbered(Slotless):
    """Shows a number of each device that its host can read."""

    async def devices(self):
        inventory = await super().devices()
        devices = tuple(
            dataclasses.replace(
                device,
                identifiers=(
                    witnesses.identifier(witnesses.Kind.PCIE_DSN, f"{number << 40 | 0x3C2A91 + number:#x}"),
                ),
            )
            for number, device in enumerate(inventory.devices, 1)
        )
        return dataclasses.replace(inventory, devices=devices)


async def test_an_adapter_without_identifiers_gets_a_warning(connect_adapter):
    checks = [check for check in conformance.CHECKS if check.name == WITHOUT_SLOTS]
    report = await conformance.check(await connect_adapter(kind=Slotless), checks=checks)
    (outcome,) = report.warned
    assert outcome.detail.startswith("d1, d2, d3, d4: this device can be recognised only by sole arrival")
    assert report.passed
    report = await conformance.check(await connect_adapter(kind=Numbered), checks=checks)
    assert report.warned == ()
    report = await conformance.check(await connect_adapter(), checks=checks)
    assert report.warned == ()


class Modest(SimulatedFabric):
    """Can do only what every fabric must, and declares it."""

    async def capabilities(self):
        return contract.Capabilities()

    async def devices(self):
        inventory = await super().devices()
        return dataclasses.replace(
            inventory,
            devices=tuple(dataclasses.replace(device, etag=None) for device in inventory.devices),
        )

    async def detach(self, request):
        if request.force:
            raise errors.Unimplemented("this fabric cannot force a detach")
        return await super().detach(request)


async def test_checks_of_missing_capabilities_are_skipped(connect_adapter):
    report = await conformance.check(await connect_adapter(kind=Modest))
    assert report.passed
    assert len(list_skipped_checks(report)) == 9


class Sticky(SimulatedFabric):
    """Never lets a device go."""

    async def detach(self, request):
        raise errors.PermissionDenied("no")


async def test_a_device_that_cannot_be_freed_ends_the_suite(connect_adapter):
    report = await conformance.check(await connect_adapter(kind=Sticky))
    assert len(report.outcomes) < len(conformance.CHECKS)
    assert report.outcomes[-1].name.startswith("the device can be freed after")
    assert "PERMISSION_DENIED" in report.outcomes[-1].detail


async def test_a_fabric_with_one_host_skips_checks_for_two(connect_adapter):
    adapter = await connect_adapter()
    report = await conformance.check(adapter, host_ids=("h1",))
    assert report.passed
    assert len(list_skipped_checks(report)) == 4


async def test_without_a_free_device_the_suite_says_so(connect_adapter):
    adapter = await connect_adapter()
    for host_id in ("h1", "h1", "h2", "h2"):
        await _fill(adapter, host_id)
    with pytest.raises(errors.FailedPrecondition, match="no free device"):
        await conformance.check(adapter)


async def test_without_a_free_port_the_suite_says_so(connect_adapter):
    adapter = await connect_adapter()
    for host_id in ("h1", "h1", "h2", "h2"):
        await _fill(adapter, host_id)
    with pytest.raises(errors.FailedPrecondition, match="no host has a free port"):
        await conformance.check(adapter, device_id="d1")


async def _fill(adapter, host_id):
    """Connect a free device to one more port of the host, for fabrics that have enough devices."""
    free = [device for device in (await adapter.devices()).devices if device.connection is None]
    await adapter.attach(
        contract.AttachRequest(request_id=f"fill-{free[0].id}", device_id=free[0].id, host_id=host_id)
    )


class Recorded(SimulatedFabric):
    """Notes what is asked of it."""

    asked: list[tuple[str | None, str | None, str]]

    async def attach(self, request):
        self.asked.append((request.device_id, request.model, request.host_id))
        return await super().attach(request)

    async def detach(self, request):
        self.asked.append((request.device_id, None, request.host_id))
        return await super().detach(request)


async def test_with_bounds_no_other_device_and_host_is_touched(connect_adapter, monkeypatch):
    monkeypatch.setattr(Recorded, "asked", [], raising=False)
    adapter = await connect_adapter(kind=Recorded)
    before = {device.id: device for device in (await adapter.devices()).devices}
    report = await conformance.check(adapter, device_ids=("d2", "d1"), host_ids=("h2",), check_seconds=20)
    assert report.passed
    assert {outcome.detail for outcome in list_skipped_checks(report)} == {
        "needs a second host with a free port",
        "the fabric could choose d3, which is not to be touched",
        "every host is in a reachability group of the device, or no groups are known",
    }
    unknown = {"no-such-device", "no-such-host", None, ""}
    assert {device for device, _, _ in Recorded.asked} <= {"d2", *unknown}
    assert {model for _, model, _ in Recorded.asked} == {None}
    assert {host for _, _, host in Recorded.asked} <= {"h2", *unknown}
    after = {device.id: device for device in (await adapter.devices()).devices}
    assert {name: after[name] for name in ("d1", "d3", "d4")} == {
        name: before[name] for name in ("d1", "d3", "d4")
    }


async def test_with_all_devices_of_a_model_within_the_bounds_no_check_by_model_is_skipped(connect_adapter):
    adapter = await connect_adapter()
    report = await conformance.check(adapter, device_ids=("d2", "d3", "d4"), check_seconds=20)
    assert report.failed + list_skipped_checks(report) == ()


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"device_ids": ("d9",)}, "there is no device d9"),
        ({"device_ids": ("d2", "d1")}, "device d1 is attached to host h1"),
        ({"device_ids": ("d2",), "host_ids": ("h9",)}, "there is no host h9"),
    ],
)
async def test_bounds_that_do_not_hold_are_refused_before_anything_is_touched(
    connect_adapter, bounds, sentence
):
    adapter = await connect_adapter()
    await adapter.attach(contract.AttachRequest(request_id="user", device_id="d1", host_id="h1"))
    with pytest.raises(errors.FailedPrecondition, match=sentence):
        await conformance.check(adapter, **bounds)


async def test_a_fabric_that_could_choose_another_device_is_refused_with_bounds(connect_adapter):
    adapter = await connect_adapter(chooses="first")
    with pytest.raises(errors.FailedPrecondition, match="could choose d3"):
        await conformance.check(adapter, device_ids=("d2",))


class Wrong(SimulatedFabric):
    """Attaches another device than it is asked to."""

    async def attach(self, request):
        return await super().attach(
            dataclasses.replace(request, device_id="d3") if request.device_id == "d2" else request
        )


async def test_a_device_out_of_bounds_that_the_fabric_attaches_all_the_same_is_reported_and_left(
    connect_adapter,
):
    adapter = await connect_adapter(kind=Wrong)
    (check, *_) = [
        check for check in conformance.CHECKS if check.name.startswith("an attached device is listed")
    ]
    report = await conformance.check(adapter, device_ids=("d2",), checks=[check], check_seconds=5)
    assert "attached the device d3, which was not to be touched" in report.failed[0].detail
    assert (await adapter.devices()).device("d3").connection is not None


def test_a_report_is_written_as_junit():
    verdicts = conformance.Verdict
    outcomes = (
        conformance.Outcome(name="a", verdict=verdicts.PASSED),
        conformance.Outcome(name="b", verdict=verdicts.FAILED, detail="<no>\x00"),
        conformance.Outcome(name="c", verdict=verdicts.SKIPPED, detail="none"),
        conformance.Outcome(name="d", verdict=verdicts.WARNED, detail="odd"),
    )
    root = ElementTree.fromstring(conformance.junit(conformance.Report(outcomes=outcomes), suite="grpc"))
    assert root.attrib == {"name": "grpc", "tests": "4", "failures": "1", "skipped": "1"}
    assert [[(part.tag, part.get("message")) for part in case] for case in root] == [
        [],
        [("failure", "<no>?")],
        [("skipped", "none")],
        [("system-out", None)],
    ]
    assert root[3][0].text == "warning: odd"
