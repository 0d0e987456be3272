"""The checks: each is one sentence of the contract. The device is free when a check begins."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from drawbar.fabric import contract, errors, recognition, witnesses
from drawbar.fabric.conformance.bench import Bench, CheckSkipped, CheckWarned, expect, expect_refusal, fail

# The most devices named in one sentence.
_NAMED_MAX = 8

Body = Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A sentence and the function that checks it."""

    name: str
    body: Body


CHECKS: list[Check] = []


def check(name: str) -> Callable[[Body], Body]:
    """Return a decorator that adds a check to the suite, in the order of this file."""

    def add(body: Body) -> Body:
        CHECKS.append(Check(name=name, body=body))
        return body

    return add


@check("the listing names every device once and only hosts that exist")
async def _list_each_device_once(bench: Bench) -> None:
    inventory = await bench.adapter.devices()
    ids = [device.id for device in inventory.devices]
    expect(len(ids) == len(set(ids)), "a device id appears twice")
    hosts = {host.id for host in await bench.adapter.hosts()}
    for device in inventory.devices:
        if device.connection is not None:
            expect(device.connection.host_id in hosts, f"{device.id} is attached to an unlisted host")


@check("values that claims select by have their published form")
async def _publish_selectable_values(bench: Bench) -> None:
    for device in (await bench.adapter.devices()).devices:
        capability = device.compute_capability
        expect(
            not capability or contract.COMPUTE_CAPABILITY.fullmatch(capability) is not None,
            f"{device.id} has the compute capability {capability[:64]!r}, which is not one to three numbers with "
            "points between them",
        )
        expect(
            not device.switch or contract.SWITCH.fullmatch(device.switch) is not None,
            f"{device.id} has the switch {device.switch[:64]!r}, which is not at most 64 letters, digits and _ . : / - with "
            "a letter or digit at both ends",
        )
        expect(
            not device.refused_attributes,
            f"{device.id} has attributes that are not published: {'; '.join(device.refused_attributes[:3])}",
        )
        amounts = (device.memory_bytes, device.max_link_speed_mts, device.max_link_width)
        expect(min(amounts) >= 0, f"{device.id} has a negative memory, link speed or link width")


@check("each identifier of a device has the normal form of its kind")
async def _normalise_identifiers(bench: Bench) -> None:
    for device in (await bench.adapter.devices()).devices:
        expect(
            len(device.identifiers) <= witnesses.IDENTIFIERS_MAX,
            f"{device.id} has more than {witnesses.IDENTIFIERS_MAX} identifiers",
        )
        for each in device.identifiers:
            expect(
                each.value != "" and witnesses.normal(each.kind, each.value) == each.value,
                f"{device.id} has the {each.kind} {each.value[: witnesses.VALUE_MAX]!r}, which is a placeholder or in another "
                "form; make identifiers by drawbar.fabric.witnesses.identifier",
            )


@check("each device can be recognised by its node")
async def _allow_recognition(bench: Bench) -> None:
    has_slot = any(port.slot_hint is not None for host in await bench.adapter.hosts() for port in host.ports)
    devices = (await bench.adapter.devices()).devices
    carved = contract.find_carved(devices)
    alone = [
        device.id
        for device in devices
        if device.id not in carved
        and recognition.forecast(device, has_slot=has_slot).means is recognition.Means.SOLE_ARRIVAL
    ]
    if alone:
        shown = ", ".join(alone[:_NAMED_MAX])
        more = f", and {len(alone) - _NAMED_MAX} others" if len(alone) > _NAMED_MAX else ""
        raise CheckWarned(
            f"{shown}{more}: this device can be recognised only by sole arrival; declare an identifier of it that its host "
            "can read (docs/adapters.md)"
        )


@check("reachability groups are few, and a host reaches each device that it has")
async def _bound_reach_groups(bench: Bench) -> None:
    hosts = {host.id: host for host in await bench.adapter.hosts()}
    devices = (await bench.adapter.devices()).devices
    for kind, listed, most in (
        ("device", devices, contract.DEVICE_GROUPS_MAX),
        ("host", hosts.values(), contract.HOST_GROUPS_MAX),
    ):
        for item in listed:
            bounded = contract.bound_groups(item.reach_groups, most=most)
            expect(
                bounded == item.reach_groups,
                f"the {kind} {item.id} is in more than {most} reachability groups, or one of them has an empty or long id",
            )
    for device in devices:
        host = hosts.get(device.connection.host_id) if device.connection is not None else None
        expect(
            host is None or host.reaches(device),
            f"{device.id} is attached to a host that is in none of its reachability groups",
        )


@check("attaching to a host outside the device's reachability groups is refused as incompatible")
async def _refuse_unreachable_host(bench: Bench) -> None:
    bench.require_whole_device()
    request = bench.attach_request(bench.unreached_host_id)
    with expect_refusal(errors.Code.FAILED_PRECONDITION, reason=errors.Reason.INCOMPATIBLE):
        failure = (await bench.await_end(await bench.adapter.attach(request))).failure()
        if failure is not None:
            raise failure
    expect(await bench.find_attached_host() is None, "the refused attach attached the device")


@check("an attached device is listed as attached, on a port of the host")
async def _list_attached_device(bench: Bench) -> None:
    operation = await bench.attach()
    expect(operation.device is not None, "the finished operation names no device")
    expect(await bench.find_attached_host() == bench.host_id, "the device is not listed as attached")
    port = await _find_port(bench)
    if port is None:
        fail("no port of the host shows the device")
    expect(port.state is contract.PortState.USED, f"the device's port is listed as {port.state}")


@check("attaching an attached pair succeeds")
async def _repeat_attach(bench: Bench) -> None:
    bench.require_exact_device()
    await bench.attach()
    await bench.attach()
    expect(await bench.find_attached_host() == bench.host_id, "the device is no longer attached")


@check("attaching a device that another host has is refused and names that host")
async def _refuse_device_of_another_host(bench: Bench) -> None:
    bench.require_exact_device()
    other = bench.other_host_id
    await bench.attach()
    with expect_refusal(errors.Code.FAILED_PRECONDITION, reason=errors.Reason.IN_USE, host_id=bench.host_id):
        await bench.adapter.attach(bench.attach_request(other))
    expect(await bench.find_attached_host() == bench.host_id, "the device has moved all the same")


@check("two hosts that ask at once do not both get the device")
async def _give_device_to_one_host(bench: Bench) -> None:
    bench.require_exact_device()
    requests = (bench.attach_request(), bench.attach_request(bench.other_host_id))

    async def attach(request: contract.AttachRequest) -> contract.Operation | None:
        try:
            return await bench.await_end(await bench.adapter.attach(request))
        except (errors.Aborted, errors.FailedPrecondition):
            return None

    results = await asyncio.gather(*(attach(request) for request in requests))
    winners = [operation for operation in results if operation is not None and operation.succeeded]
    expect(len(winners) == 1, f"{len(winners)} of 2 attaches succeeded")


@check("detaching frees the device and its port")
async def _free_port_on_detach(bench: Bench) -> None:
    await bench.attach()
    await bench.detach()
    expect(await bench.find_attached_host() is None, "the device is still listed as attached")
    expect(await _find_port(bench) is None, "a port still shows the device")


@check("detaching an absent device succeeds")
async def _detach_absent_device(bench: Bench) -> None:
    await bench.detach()
    expect(await bench.find_attached_host() is None, "the device is attached")


@check("detaching from a host that does not have the device leaves it where it is")
async def _keep_device_of_another_host(bench: Bench) -> None:
    other = bench.other_host_id
    await bench.attach()
    await bench.detach(bench.detach_request(other))
    expect(await bench.find_attached_host() == bench.host_id, "the device was taken from its host")


@check("a detach that the host is not prepared for is refused")
async def _refuse_unprepared_detach(bench: Bench) -> None:
    await bench.attach()
    with expect_refusal(errors.Code.FAILED_PRECONDITION, reason=errors.Reason.NOT_PREPARED):
        await bench.adapter.detach(bench.detach_request(host_prepared=False))
    expect(await bench.find_attached_host() == bench.host_id, "the device was taken all the same")


@check("a forced detach works where it is announced, and nowhere else")
async def _force_detach_where_announced(bench: Bench) -> None:
    await bench.attach()
    request = replace(bench.detach_request(host_prepared=False), force=True)
    if not bench.capabilities.force_detach:
        with expect_refusal(errors.Code.UNIMPLEMENTED):
            await bench.adapter.detach(request)
        return
    await bench.detach(request)
    expect(await bench.find_attached_host() is None, "the device is still attached")


@check("the same request twice is one operation")
async def _repeat_request(bench: Bench) -> None:
    bench.require_whole_device()
    request = bench.attach_request()
    first, second = await bench.adapter.attach(request), await bench.adapter.attach(request)
    expect(first.id == second.id, "the second call began another operation")
    await bench.await_end(second)
    third = await bench.adapter.attach(request)
    expect(third.id == first.id, "after its end the request begins another operation")
    expect(third.done, "after its end the operation is not done")


@check("a request repeated after a later detach does not attach again")
async def _ignore_outdated_request(bench: Bench) -> None:
    request = bench.attach_request()
    await bench.attach(request)
    await bench.detach()
    again = await bench.await_end(await bench.adapter.attach(request))
    expect(again.device is None or again.device.id == bench.device_id, "it names another device now")
    expect(await bench.find_attached_host() is None, "the old request attached the device again")


@check("a request id is good for one request only")
async def _use_request_id_once(bench: Bench) -> None:
    request = bench.attach_request()
    await bench.attach(request)
    with expect_refusal(errors.Code.ALREADY_EXISTS):
        await bench.adapter.attach(replace(request, expected_etag="another"))


@check("an operation is found by its id and by its request id")
async def _find_operation(bench: Bench) -> None:
    request = bench.attach_request()
    operation = await bench.attach(request)
    by_id = await bench.adapter.operation(operation_id=operation.id)
    by_request = await bench.adapter.operation(request_id=request.request_id)
    expect(by_id.id == by_request.id == operation.id, "the two ids lead to different operations")
    expect(by_request.request_id == request.request_id, "the operation has another request id")
    listed = [item.id for item in await bench.adapter.operations()]
    expect(listed.count(operation.id) == 1, "the list of operations does not have it once")


@check("an unknown operation is not found")
async def _miss_unknown_operation(bench: Bench) -> None:
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.adapter.operation(request_id=bench.request_id())
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.adapter.operation(operation_id=bench.request_id())


@check("an unknown device or host is not found")
async def _miss_unknown_device_or_host(bench: Bench) -> None:
    await bench.require_whole_listing()
    exact = bench.capabilities.exact_device
    with expect_refusal(errors.Code.NOT_FOUND if exact else errors.Code.UNIMPLEMENTED):
        named = replace(bench.attach_request(), device_id="no-such-device", model=None)
        await bench.adapter.attach(named)
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.adapter.attach(bench.attach_request("no-such-host"))
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.adapter.detach(replace(bench.detach_request(), device_id="no-such-device"))


@check("a request without an id, or without a device, is invalid")
async def _refuse_incomplete_request(bench: Bench) -> None:
    with expect_refusal(errors.Code.INVALID_ARGUMENT):
        await bench.adapter.attach(replace(bench.attach_request(), request_id=""))
    with expect_refusal(errors.Code.INVALID_ARGUMENT):
        await bench.adapter.attach(replace(bench.attach_request(), device_id=None, model=None))
    with expect_refusal(errors.Code.INVALID_ARGUMENT):
        await bench.adapter.attach(bench.attach_request(request_id="x" * (contract.STRING_BYTES + 1)))


@check("an attach with a stale etag is aborted")
async def _abort_stale_etag(bench: Bench) -> None:
    bench.require_exact_device()
    etag = (await bench.device()).etag
    if etag is None:
        raise CheckSkipped("the fabric has no etags")
    await bench.attach()
    await bench.detach()
    with expect_refusal(errors.Code.ABORTED, reason=errors.Reason.STALE_ETAG):
        await bench.adapter.attach(replace(bench.attach_request(), expected_etag=etag))


@check("an attach by model chooses a device of that model and names it")
async def _attach_by_model(bench: Bench) -> None:
    request = await _request_model(bench)
    chosen = (await bench.attach(request)).device
    if chosen is None:
        fail("the operation does not name the device")
    expect(chosen.model == bench.model, f"a device of the model {chosen.model} was chosen")
    expect(await bench.find_attached_host() == bench.host_id, "the device is not listed as attached")
    by_request = (await bench.adapter.operation(request_id=request.request_id)).device
    expect(by_request is not None and by_request.id == chosen.id, "asked again, it names another device")


@check("the same attach by model twice is one device, and another one gets another device or NO_DEVICE")
async def _repeat_attach_by_model(bench: Bench) -> None:
    request = await _request_model(bench)
    before = await _list_attached(bench)
    first, second = await bench.attach(request), await bench.attach(request)
    expect(first.id == second.id, "the second call began another operation")
    expect(len(await _list_attached(bench) - before) == 1, "the repeated request attached another device")
    hosts = await bench.adapter.hosts()
    free_ports = [
        host.id
        for host in hosts
        for port in host.ports
        if port.state is contract.PortState.FREE and host.id in bench.host_ids
    ]
    # Two more attaches show whether they get other devices, and whether the last of a model is refused.
    for host_id in free_ports[:2]:
        attached = await _list_attached(bench)
        free = [
            device
            for device in (await bench.adapter.devices()).devices
            if device.model == bench.model and device.connection is None
        ]
        if not free:
            with expect_refusal(errors.Code.RESOURCE_EXHAUSTED, reason=errors.Reason.NO_DEVICE):
                await bench.adapter.attach(await _request_model(bench, host_id))
            return
        await bench.attach(await _request_model(bench, host_id))
        expect(bench.device_id not in attached, "it got a device that was attached already")


@check("a model that no device has is not found")
async def _miss_unknown_model(bench: Bench) -> None:
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.adapter.attach(replace(await _request_model(bench), model="no-such-model"))


async def _request_model(bench: Bench, host_id: str | None = None) -> contract.AttachRequest:
    """Return an attach of any device of the model; skip the check if the fabric has none."""
    if not bench.capabilities.select_by_model or not bench.model:
        raise CheckSkipped("the fabric does not select by model")
    bench.require_whole_device()
    await bench.require_model_within_bounds()
    return replace(bench.attach_request(host_id), device_id=None, model=bench.model)


async def _list_attached(bench: Bench) -> set[str]:
    return {device.id for device in (await bench.adapter.devices()).devices if device.connection is not None}


@check("a connection shows the mark that it was made with, and keeps it")
async def _keep_mark(bench: Bench) -> None:
    if not bench.capabilities.marks:
        raise CheckSkipped("the fabric keeps no marks")
    operation = await bench.attach(replace(bench.attach_request(), mark="conformance/a"))
    expect(operation.mark == "conformance/a", "the operation does not show the mark of its request")
    expect(await bench.mark() == "conformance/a", "the connection does not show its mark")
    if bench.capabilities.exact_device:
        await bench.attach(replace(bench.attach_request(), mark="conformance/a"))
        with expect_refusal(
            errors.Code.FAILED_PRECONDITION, reason=errors.Reason.IN_USE, host_id=bench.host_id
        ):
            await bench.adapter.attach(replace(bench.attach_request(), mark="conformance/b"))
        expect(await bench.mark() == "conformance/a", "the mark was changed by a refused request")
    await bench.detach()
    await bench.attach()
    expect(await bench.mark() is None, "a connection made without a mark shows one")


@check("a mark with every character that is allowed is kept as it is, up to its greatest length")
async def _keep_longest_mark(bench: Bench) -> None:
    if not bench.capabilities.marks:
        raise CheckSkipped("the fabric keeps no marks")
    mark = "drawbar/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/a.b-c_".ljust(contract.STRING_BYTES, "x")
    await bench.attach(replace(bench.attach_request(), mark=mark))
    expect(await bench.mark() == mark, "the mark was cut or changed")
    await bench.detach()
    with expect_refusal(errors.Code.INVALID_ARGUMENT):
        await bench.adapter.attach(replace(bench.attach_request(), mark=mark + "x"))


@check("a watch tells of an attach")
async def _watch_attach(bench: Bench) -> None:
    if not bench.capabilities.watch:
        raise CheckSkipped("the fabric has no watch")
    version = (await bench.adapter.devices()).version
    await bench.attach()
    async with bench.adapter.watch(version) as events:
        async for event in events:
            match event:
                case contract.DeviceChanged(device=device) if device.id == bench.device_id:
                    if device.connection is not None and device.connection.host_id == bench.host_id:
                        return
                case contract.Resync():
                    fail("a fresh version was answered with a resync")
    fail("the watch ended without telling")


@check("a watch from an unknown version asks for a new listing and ends")
async def _end_watch_of_unknown_version(bench: Bench) -> None:
    if not bench.capabilities.watch:
        raise CheckSkipped("the fabric has no watch")
    async with bench.adapter.watch("no-such-version") as events:
        seen = [event async for event in events]
    expect(seen == [contract.Resync()], f"got {seen[:2]} instead of one resync")


@check("cancelling a finished operation changes nothing")
async def _keep_finished_operation(bench: Bench) -> None:
    if not bench.capabilities.cancel:
        raise CheckSkipped("the fabric does not cancel")
    operation = await bench.attach()
    cancelled = await bench.adapter.cancel(operation.id)
    expect(cancelled.succeeded, "the finished operation is no longer a success")
    expect(await bench.find_attached_host() == bench.host_id, "the device was detached")
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.adapter.cancel(bench.request_id())


@check("a chunk is listed with its origin and size, and reduces the remaining memory")
async def _list_chunk(bench: Bench) -> None:
    origin = await bench.slices.origin()
    assert origin.carving is not None
    made = await bench.slices.create(bench.slices.create_request(origin))
    inventory = await bench.adapter.devices()
    listed, rest = inventory.device(made.id), inventory.device(origin.id)
    expect(listed is not None and listed.slice_of is not None, "the slice is not listed as one")
    assert listed is not None
    assert listed.slice_of is not None
    expect(listed.slice_of.origin_id == origin.id, "the slice names another origin")
    expect(listed.memory_bytes == origin.carving.step_bytes, "the slice has another size")
    left = rest.carving.free_bytes if rest is not None and rest.carving is not None else -1
    expect(left == origin.carving.free_bytes - listed.memory_bytes, "the remaining memory is wrong")


@check("the same creation twice is one slice, and another request makes another one")
async def _repeat_creation(bench: Bench) -> None:
    origin = await bench.slices.origin()
    request = bench.slices.create_request(origin)
    made = await bench.slices.create(request)
    again = await bench.slices.create(request)
    expect(again.id == made.id, "a second slice was made")
    other = await bench.slices.create(bench.slices.create_request(origin))
    expect(other.id != made.id, "the slice of another request is the same")
    assert origin.carving is not None
    twice = replace(request, memory_bytes=2 * origin.carving.step_bytes)
    with expect_refusal(errors.Code.ALREADY_EXISTS):
        await bench.await_success(await bench.adapter.create_slice(twice))


@check("a slice is attached and detached as a device, and neither deleted meanwhile nor its origin attached")
async def _attach_chunk(bench: Bench) -> None:
    origin = await bench.slices.origin()
    bench.require_exact_device()
    made = await bench.slices.create(bench.slices.create_request(origin))
    attach = replace(bench.attach_request(), device_id=made.id)
    await bench.await_success(await bench.adapter.attach(attach))
    with expect_refusal(errors.Code.FAILED_PRECONDITION, reason=errors.Reason.IN_USE, host_id=bench.host_id):
        await bench.slices.delete(made.id)
    whole = replace(bench.attach_request(), device_id=origin.id)
    with expect_refusal(errors.Code.FAILED_PRECONDITION, reason=errors.Reason.CARVED):
        await bench.adapter.attach(whole)
    detach = replace(bench.detach_request(), device_id=made.id)
    await bench.await_success(await bench.adapter.detach(detach))
    listed = (await bench.adapter.devices()).device(made.id)
    expect(listed is not None and listed.connection is None, "the slice is not listed as free")


@check("a device that is attached as a whole is not carved")
async def _refuse_carving_of_attached(bench: Bench) -> None:
    origin = await bench.slices.origin()
    bench.require_exact_device()
    if origin.carving is not None and origin.carving.is_pool:
        raise CheckSkipped("a pool of memory is attached only in chunks")
    await bench.await_success(
        await bench.adapter.attach(replace(bench.attach_request(), device_id=origin.id))
    )
    try:
        with expect_refusal(
            errors.Code.FAILED_PRECONDITION, reason=errors.Reason.IN_USE, host_id=bench.host_id
        ):
            await bench.slices.create(bench.slices.create_request(origin))
    finally:
        detach = replace(bench.detach_request(), device_id=origin.id)
        await bench.await_success(await bench.adapter.detach(detach))


@check("a deleted slice gives its memory back, and deleting it again succeeds")
async def _delete_chunk(bench: Bench) -> None:
    origin = await bench.slices.origin()
    made = await bench.slices.create(bench.slices.create_request(origin))
    await bench.slices.delete(made.id)
    await bench.slices.delete(made.id)
    inventory = await bench.adapter.devices()
    rest = inventory.device(origin.id)
    expect(inventory.device(made.id) is None, "the slice is still listed")
    expect(rest is not None and rest.carving == origin.carving, "the memory did not come back")


@check(
    "a chunk larger than the remaining memory is exhausted, and one that is not a multiple of the step is invalid"
)
async def _refuse_impossible_chunk(bench: Bench) -> None:
    origin = await bench.slices.origin()
    assert origin.carving is not None
    free, step = origin.carving.free_bytes, origin.carving.step_bytes
    request = bench.slices.create_request(origin)
    with expect_refusal(errors.Code.RESOURCE_EXHAUSTED, reason=errors.Reason.NO_CAPACITY):
        await bench.slices.create(replace(request, memory_bytes=(free // step + 1) * step))
    if step > 1:
        odd = replace(bench.slices.create_request(origin), memory_bytes=step + 1)
        with expect_refusal(errors.Code.INVALID_ARGUMENT):
            await bench.slices.create(odd)
    with expect_refusal(errors.Code.NOT_FOUND):
        await bench.slices.create(replace(bench.slices.create_request(origin), device_id="no-such-device"))


@check("slices are made of the devices that can be carved, and of no other")
async def _carve_only_carvable(bench: Bench) -> None:
    device = await bench.device()
    request = contract.CreateSliceRequest(request_id=bench.request_id(), device_id=device.id, memory_bytes=1)
    if not bench.capabilities.slices:
        with expect_refusal(errors.Code.UNIMPLEMENTED):
            await bench.adapter.create_slice(request)
    elif device.carving is None:
        with expect_refusal(errors.Code.INVALID_ARGUMENT):
            await bench.slices.create(request)


async def _find_port(bench: Bench) -> contract.Port | None:
    """Return the host's port with the device, or None."""
    hosts = {host.id: host for host in await bench.adapter.hosts()}
    expect(bench.host_id in hosts, f"the listing has lost the host {bench.host_id}")
    ports = hosts[bench.host_id].ports
    return next((port for port in ports if port.device_id == bench.device_id), None)
