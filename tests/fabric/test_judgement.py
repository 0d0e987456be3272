import dataclasses

import pytest

from drawbar.fabric import contract, errors, judgement

FREE = contract.Device(id="d1", device_class=contract.DeviceClass.NVME, model="M", etag="e1")
HELD = dataclasses.replace(
    FREE, id="d2", connection=contract.Connection(host_id="h1", port_id="p1", mark="m")
)
DEVICES = {device.id: device for device in (HELD, FREE)}
HOSTS = {
    "h1": contract.Host(
        id="h1",
        name="h1",
        ports=(
            contract.Port(id="p1", state=contract.PortState.USED),
            contract.Port(id="p2", state=contract.PortState.FREE),
        ),
    ),
    "full": contract.Host(
        id="full", name="full", ports=(contract.Port(id="p1", state=contract.PortState.FAULT),)
    ),
    "portless": contract.Host(id="portless", name="portless"),
}
Stay, Begin, Reason = judgement.Stay, judgement.Begin, errors.Reason


def outcome(judge):
    """Return the decision, or the code and reason of the refusal."""
    try:
        return judge()
    except errors.FabricError as error:
        return error.code, error.reason


@pytest.mark.parametrize(
    ("fields", "busy", "expected"),
    [
        ({"device_id": "d1"}, (), Begin(device_id="d1", port_id="p2")),
        ({"model": "M"}, (), Begin(device_id="d1", port_id="p2")),
        ({"model": "M"}, ("d1",), (errors.Code.RESOURCE_EXHAUSTED, Reason.NO_DEVICE)),
        ({"device_id": "d1"}, ("d1",), (errors.Code.ABORTED, Reason.OPERATION_PENDING)),
        ({"device_id": "d1", "expected_etag": "e0"}, (), (errors.Code.ABORTED, Reason.STALE_ETAG)),
        ({"device_id": "d1", "host_id": "full"}, (), (errors.Code.RESOURCE_EXHAUSTED, Reason.NO_FREE_PORT)),
        ({"device_id": "d1", "host_id": "portless"}, (), Begin(device_id="d1", port_id="")),
        ({"device_id": "d2", "mark": "m"}, (), Stay(device_id="d2")),
        ({"device_id": "d2", "mark": "other"}, (), (errors.Code.FAILED_PRECONDITION, Reason.IN_USE)),
        ({"device_id": "d2", "host_id": "full"}, (), (errors.Code.FAILED_PRECONDITION, Reason.IN_USE)),
    ],
    ids=str,
)
def test_an_attach_is_judged_by_the_listing(fields, busy, expected):
    request = contract.AttachRequest(**{"request_id": "r", "host_id": "h1"} | fields)
    judged = outcome(
        lambda: judgement.attach(request, DEVICES, HOSTS, busy=set(busy), choose_port=judgement.free_port)
    )
    assert judged == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host_prepared": True}, Begin(device_id="d2", port_id="p1")),
        ({}, (errors.Code.FAILED_PRECONDITION, Reason.NOT_PREPARED)),
        ({"host_id": "full"}, Stay(device_id="d2")),
        ({"device_id": "d1"}, Stay(device_id="d1")),
    ],
    ids=str,
)
def test_a_detach_is_judged_by_the_listing(fields, expected):
    request = contract.DetachRequest(**{"request_id": "r", "device_id": "d2", "host_id": "h1"} | fields)
    assert outcome(lambda: judgement.detach(request, DEVICES, HOSTS, busy=set())) == expected


POOL = contract.Device(
    id="pool",
    device_class=contract.DeviceClass.CXL_MEMORY,
    model="P",
    carving=contract.Carving(free_bytes=8, step_bytes=2, is_pool=True),
)
CARVED = dataclasses.replace(POOL, id="carved", carving=contract.Carving(free_bytes=4, step_bytes=2))
SLICE = dataclasses.replace(
    POOL,
    id="slice",
    carving=None,
    memory_bytes=4,
    slice_of=contract.Slice(origin_id="carved", request_id="r"),
)
USED = dataclasses.replace(SLICE, id="used", connection=contract.Connection(host_id="h1"))
WHOLE = dataclasses.replace(CARVED, id="whole", connection=contract.Connection(host_id="h1"))
MEMORY = {device.id: device for device in (POOL, CARVED, SLICE, USED, WHOLE, FREE)}
INVALID = (errors.Code.INVALID_ARGUMENT, "INVALID_ARGUMENT")
IN_USE = (errors.Code.FAILED_PRECONDITION, Reason.IN_USE)
CREATIONS = {
    "of a pool": ("pool", 8, (), Begin(device_id="pool")),
    "of a device that has slices": ("carved", 4, (), Begin(device_id="carved")),
    "more than is left": ("carved", 6, (), (errors.Code.RESOURCE_EXHAUSTED, Reason.NO_CAPACITY)),
    "no multiple of the step": ("pool", 3, (), INVALID),
    "of a device that cannot be carved": ("d1", 2, (), INVALID),
    "of a slice": ("slice", 2, (), INVALID),
    "of a device that is attached": ("whole", 2, (), IN_USE),
    "of nothing": ("none", 2, (), (errors.Code.NOT_FOUND, "NOT_FOUND")),
    "beside another one": ("pool", 2, ("pool",), (errors.Code.ABORTED, Reason.OPERATION_PENDING)),
}
DELETIONS = {
    "free": ("slice", (), Begin(device_id="slice")),
    "gone": ("none", (), Stay(device_id="none")),
    "attached": ("used", (), IN_USE),
    "no slice": ("d1", (), INVALID),
    "being attached": ("slice", ("slice",), (errors.Code.ABORTED, Reason.OPERATION_PENDING)),
}


@pytest.mark.parametrize(("device_id", "memory_bytes", "busy", "expected"), CREATIONS.values(), ids=CREATIONS)
def test_the_creation_of_a_memory_chunk_is_judged_by_the_listing(device_id, memory_bytes, busy, expected):
    request = contract.CreateSliceRequest(request_id="r", device_id=device_id, memory_bytes=memory_bytes)
    assert outcome(lambda: judgement.create_slice(request, MEMORY, busy=set(busy))) == expected


@pytest.mark.parametrize(("device_id", "busy", "expected"), DELETIONS.values(), ids=DELETIONS)
def test_the_deletion_of_a_memory_chunk_is_judged_by_the_listing(device_id, busy, expected):
    request = contract.DeleteSliceRequest(request_id="r", device_id=device_id)
    assert outcome(lambda: judgement.delete_slice(request, MEMORY, busy=set(busy))) == expected


@pytest.mark.parametrize("device_id", ["pool", "carved"])
def test_a_carved_device_cannot_be_attached_itself(device_id):
    request = contract.AttachRequest(request_id="r", host_id="portless", device_id=device_id)
    judged = outcome(
        lambda: judgement.attach(request, MEMORY, HOSTS, busy=set(), choose_port=judgement.free_port)
    )
    assert judged == (errors.Code.FAILED_PRECONDITION, Reason.CARVED)


@pytest.mark.parametrize("listed", [(POOL, SLICE), (CARVED, SLICE)], ids=["a pool", "a carved device"])
def test_an_attach_by_model_takes_neither_chunks_nor_carved_devices(listed):
    request = contract.AttachRequest(request_id="r", host_id="portless", model="P")
    devices = {device.id: device for device in listed}
    judged = outcome(
        lambda: judgement.attach(request, devices, HOSTS, busy=set(), choose_port=judgement.free_port)
    )
    assert judged == (errors.Code.RESOURCE_EXHAUSTED, Reason.NO_DEVICE)


def _make_inventory(**groups):
    """Return devices d1 and d3 of one model in these groups, and hosts in theirs."""
    devices = {
        name: dataclasses.replace(FREE, id=name, reach_groups=frozenset(groups.get(name, ())))
        for name in ("d1", "d3")
    }
    hosts = {"h1": dataclasses.replace(HOSTS["h1"], reach_groups=frozenset(groups.get("h1", ())))}
    return devices, hosts


OUTSIDE = (errors.Code.FAILED_PRECONDITION, Reason.INCOMPATIBLE)


@pytest.mark.parametrize(
    ("groups", "fields", "expected"),
    [
        ({"d1": ["a"], "h1": ["b"]}, {"device_id": "d1"}, OUTSIDE),
        ({"d1": ["a"], "h1": ["b"]}, {"model": "M"}, Begin(device_id="d3", port_id="p2")),
        ({"d1": ["a"], "d3": ["a"], "h1": ["b"]}, {"model": "M"}, OUTSIDE),
        ({"d1": ["a", "b"], "h1": ["b", "c"]}, {"device_id": "d1"}, Begin(device_id="d1", port_id="p2")),
        ({"d1": ["a"]}, {"device_id": "d1"}, Begin(device_id="d1", port_id="p2")),
        ({"h1": ["b"]}, {"device_id": "d1"}, Begin(device_id="d1", port_id="p2")),
    ],
    ids=str,
)
def test_an_attach_outside_the_groups_of_the_device_is_refused(groups, fields, expected):
    devices, hosts = _make_inventory(**groups)
    request = contract.AttachRequest(**{"request_id": "r", "host_id": "h1"} | fields)
    choose = judgement.free_port
    judged = outcome(lambda: judgement.attach(request, devices, hosts, busy=frozenset(), choose_port=choose))
    assert judged == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a", "b", "a", ""], {"a", "b"}),
        ([f"g{number}" for number in range(5)], set()),
        (["x" * contract.reach.GROUP_BYTES], {"x" * contract.reach.GROUP_BYTES}),
        (["a", "x" * (contract.reach.GROUP_BYTES + 1)], set()),
    ],
    ids=["repeated and empty", "too many", "longest", "too long"],
)
def test_groups_beyond_the_limits_rule_nothing_out(ids, expected):
    assert contract.bound_groups(ids, most=4) == expected
