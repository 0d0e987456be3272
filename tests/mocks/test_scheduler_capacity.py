"""Consumable capacity: what a request takes, what is left, what the allocation says; pure."""

import itertools
from decimal import Decimal

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import allocation, capacity, matching, objects, pools, quantities, search, usage

DRIVER = "drawbar.dev"
NODE = matching.Node(name="node-a")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1000k", "1M"),
        ("1024", "1024"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("100m", "100m"),
        ("2e3", "2k"),
        ("0", "0"),
        ("512", "512"),
    ],
)
def test_quantities_are_written_in_their_canonical_form(text, canonical):
    assert quantities.render(quantities.parse(text), like=text) == canonical


RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
VALUES = {"default": "2Gi", "validValues": ["2Gi", "4Gi"]}


@pytest.mark.parametrize(
    ("policy", "wanted", "taken"),
    [
        pytest.param(None, None, "16Gi", id="whole-without-a-capacity"),
        pytest.param(None, "3Gi", "3Gi", id="as-wanted-without-a-policy"),
        pytest.param(RANGE, None, "1Gi", id="the-default"),
        pytest.param(RANGE, "3Gi", "3Gi", id="on-a-step"),
        pytest.param(RANGE, "2500Mi", "3Gi", id="up-to-the-next-step"),
        pytest.param(RANGE, "100Mi", "1Gi", id="up-to-the-minimum"),
        pytest.param(RANGE, "9Gi", None, id="above-the-maximum"),
        pytest.param({"validRange": {"min": "1Gi"}}, "2500Mi", "2500Mi", id="a-range-without-steps"),
        pytest.param(VALUES, "3Gi", "4Gi", id="up-to-the-next-value"),
        pytest.param(VALUES, "4Gi", "4Gi", id="a-valid-value"),
        pytest.param(VALUES, "5Gi", None, id="above-all-values"),
        pytest.param(
            {"default": "16Gi", "validValues": ["1Gi"]}, None, "16Gi", id="the-default-is-always-valid"
        ),
        pytest.param({"validValues": ["1Gi"]}, None, None, id="whole-is-no-valid-value"),
    ],
)
def test_a_request_consumes_capacity_by_its_policy(policy, wanted, taken):
    box = {"value": "16Gi"} | ({"requestPolicy": policy} if policy else {})
    device = objects.Device(name="a", capacity={"memory": box})
    requests = {} if wanted is None else {"memory": wanted}
    consumed = capacity.takes(device, objects.CapacityRequirements(requests=requests))
    assert consumed == (None if taken is None else {"memory": taken})


def test_a_capacity_that_the_device_does_not_have_cannot_be_taken():
    wanted = objects.CapacityRequirements(requests={"bandwidth": "1"})
    assert capacity.takes(objects.Device(name="a"), wanted) is None


def memory(name="mem", *, value="16Gi", policy=None, shared=True, **extra):
    box = {"value": value, "requestPolicy": policy or {"default": "4Gi"}}
    return {"name": name, "allowMultipleAllocations": shared, "capacity": {"memory": box}, **extra}


def slice_(*devices, name="s1", count=1, pool="pool"):
    spec = {
        "driver": DRIVER,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
        "allNodes": True,
        "devices": list(devices),
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.Slice)


def ask(name="one", memory=None, **fields):
    wanted = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    return {"name": name, "exactly": {"deviceClassName": "any", **wanted, **fields}}


def allocate(slices, *requests, used=(), claims=1):
    content = msgspec.convert({"requests": list(requests)}, objects.ClaimDevices)
    ids = itertools.count(1)
    return allocation.allocate(
        [search.Demand(name=f"default/c{number}", devices=content) for number in range(claims)],
        node=NODE,
        supply=pools.from_slices(slices),
        classes={"any": msgspec.convert({"metadata": {"name": "any"}}, objects.DeviceClass)},
        used=usage.total(used),
        new_share_id=lambda: f"share-{next(ids)}",
    )


def results(answer):
    if isinstance(answer, allocation.Refusal):
        return answer.reason
    return [
        (result.device, result.share_id, (result.consumed_capacity or {}).get("memory"))
        for each in answer
        for result in each.devices.results
    ]


NO = "cannot allocate all claims"
MEM = (DRIVER, "pool", "mem")


def share(amount, device=MEM):
    return usage.Use(device=device, amounts={"memory": quantities.parse(amount)})


@pytest.mark.parametrize(
    ("slices", "requests", "used", "expected"),
    [
        pytest.param(
            [slice_(memory())], [ask()], [], [("mem", "share-1", "4Gi")], id="the-default-is-consumed"
        ),
        pytest.param(
            [slice_(memory())], [ask(memory="6Gi")], [], [("mem", "share-1", "6Gi")], id="as-wanted"
        ),
        pytest.param(
            [slice_(memory())],
            [ask("x", "10Gi"), ask("y", "6Gi")],
            [],
            [("mem", "share-1", "10Gi"), ("mem", "share-2", "6Gi")],
            id="two-shares-of-one-device",
        ),
        pytest.param(
            [slice_(memory())], [ask("x", "10Gi"), ask("y", "7Gi")], [], NO, id="more-than-there-is"
        ),
        pytest.param(
            [slice_(memory())],
            [ask(memory="6Gi")],
            [share("10Gi")],
            [("mem", "share-1", "6Gi")],
            id="what-is-left",
        ),
        pytest.param(
            [slice_(memory())], [ask(memory="6Gi")], [share("8Gi"), share("4Gi")], NO, id="not-enough-left"
        ),
        pytest.param([slice_(memory())], [ask(count=2)], [], NO, id="one-request-takes-a-device-once"),
        pytest.param(
            [slice_(memory("m1"), memory("m2"))],
            [ask("x", "12Gi"), ask("y", "12Gi")],
            [],
            [("m1", "share-1", "12Gi"), ("m2", "share-2", "12Gi")],
            id="the-second-goes-elsewhere",
        ),
        pytest.param(
            [slice_(memory(shared=False))],
            [ask(memory="6Gi")],
            [],
            [("mem", None, None)],
            id="not-shared-but-large-enough",
        ),
        pytest.param(
            [slice_(memory(shared=False))], [ask(memory="17Gi")], [], NO, id="not-shared-and-too-small"
        ),
        pytest.param([slice_(memory(shared=False))], [ask("x"), ask("y")], [], NO, id="not-shared-and-twice"),
        pytest.param([slice_({"name": "bare"})], [ask(memory="1Gi")], [], NO, id="without-that-capacity"),
        pytest.param(
            [slice_(memory("m1"), {"name": "bare"}, memory("m2"))],
            [ask(allocationMode="All", memory="1Gi")],
            [],
            [("m1", "share-1", "1Gi"), ("m2", "share-2", "1Gi")],
            id="all-means-all-with-that-capacity",
        ),
        pytest.param([slice_(memory())], [ask()], [usage.Use(device=MEM)], NO, id="taken-whole"),
    ],
)
def test_shares_of_a_device_add_up_to_no_more_than_it_has(slices, requests, used, expected):
    assert results(allocate(slices, *requests, used=used)) == expected


def test_two_claims_share_a_device_with_an_id_each():
    allocated = results(allocate([slice_(memory())], ask(memory="8Gi"), claims=2))
    assert allocated == [("mem", "share-1", "8Gi"), ("mem", "share-2", "8Gi")]


def test_a_share_is_written_as_the_api_spells_it():
    (answer,) = allocate([slice_(memory())], ask())
    (result,) = msgspec.to_builtins(answer)["devices"]["results"]
    assert (result["shareID"], result["consumedCapacity"]) == ("share-1", {"memory": "4Gi"})


def test_an_invalid_capacity_ends_the_attempt():
    with pytest.raises(
        search.AllocationError, match=r"claim default/c0, request one: .*'lots' is not a quantity"
    ):
        allocate([slice_(memory())], ask(memory="lots"))


def claim(*results):
    return documents.Document(
        metadata=meta.ObjectMeta(name="c1"),
        status={
            "allocation": {
                "devices": {"results": [{"driver": DRIVER, "pool": "pool", **result} for result in results]}
            }
        },
    )


def test_usage_is_read_from_allocated_claims():
    stored = claim(
        {"device": "a"},
        {"device": "b", "adminAccess": True},
        {"device": "mem", "shareID": "1", "consumedCapacity": {"memory": "1Gi"}},
        {"device": "mem", "shareID": "2", "consumedCapacity": {"memory": "2Gi"}},
        {"device": "odd", "shareID": "3", "consumedCapacity": {"memory": "some"}},
    )
    used = usage.total(usage.of_claim(stored))
    assert used.whole == {(DRIVER, "pool", "a"), (DRIVER, "pool", "odd")}
    assert used.shared == {MEM: {"memory": Decimal(3 * 2**30)}}
