"""Devices that are reserved for immediate allocation, as the plan of the pools and the ledger of failures see them."""

import datetime

from tests.scenes import attachments as scenes
from tests.scenes import pools

from drawbar.driver.api import attachments, fabrics, meta, slices
from drawbar.driver.controller.pools import desired, devices, fabric_state
from drawbar.driver.slices import encoding, pool_writes
from drawbar.fabric import contract

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def make_device(name, model="M1"):
    return contract.Device(
        id=name, enclosure="enc", device_class=contract.DeviceClass.NVME, model=model, serial=name
    )


def observe_pools(*reserved, published=(), ours=()):
    return pools.make_fabric_state(
        make_device("d-0"),
        make_device("d-1"),
        fabric="fab",
        ours=ours,
        reserved=frozenset(reserved),
        published=published,
    )


def read_published(actions):
    (action,) = actions
    assert isinstance(action, pool_writes.Create | pool_writes.Replace)
    return {device.name: device.taints for device in action.slice.spec.devices}, action.slice


def make_slices():
    (action,) = desired.plan(observe_pools(), NOW)
    return (action.slice,)


def test_a_reserved_device_is_not_published():
    devices, _ = read_published(desired.plan(observe_pools("d-1"), NOW))
    assert devices.keys() == {"d-0"}


def test_a_device_is_withdrawn_while_it_is_reserved():
    devices, slice_ = read_published(desired.plan(observe_pools("d-1", published=make_slices()), NOW))
    assert devices.keys() == {"d-0"}
    devices, _ = read_published(desired.plan(observe_pools(published=(slice_,)), NOW))
    assert devices.keys() == {"d-0", "d-1"}


def test_a_reserved_device_in_use_is_tainted_until_released():
    devices, slice_ = read_published(
        desired.plan(observe_pools("d-1", published=make_slices(), ours=["d-1"]), NOW)
    )
    (taint,) = devices["d-1"]
    assert (taint.key, taint.effect) == ("drawbar.dev/reserved", "NoSchedule")
    assert desired.plan(observe_pools("d-1", published=(slice_,), ours=["d-1"]), NOW) == ()
    devices, _ = read_published(desired.plan(observe_pools("d-1", published=(slice_,)), NOW))
    assert devices.keys() == {"d-0"}


def test_an_immediately_allocated_device_is_not_published():
    devices, _ = read_published(desired.plan(observe_pools("d-1", ours=["d-1"]), NOW))
    assert devices.keys() == {"d-0"}


def attachment(name, pool, claim="c"):
    reference = attachments.ClaimReference(namespace="ns", name=claim, uid=claim) if claim else None
    return scenes.attachment(device=name, pool=pool, claim=reference)


def test_a_device_that_is_no_longer_reserved_stays_in_its_claims_pool():
    spec = fabrics.FabricSpec(adapter="a", endpoint="e")
    fabric = fabrics.Fabric(metadata=meta.ObjectMeta(name="fab"), spec=spec)
    facts = fabric_state.Facts(
        fabric=fabric, devices=(make_device("d-0"), make_device("d-1")), silent_seconds=0.0, probations={}
    )
    kept = encoding.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE)

    def pools(*attached):
        observation = fabric_state.observe("drawbar.dev", facts, iter(attached), (), kept, date=NOW)
        return {
            device.name: action.slice.spec.pool.name
            for action in desired.plan(observation, NOW)
            for device in action.slice.spec.devices
        }

    assert pools(attachment("d-1", "fab/enc/1")) == {"d-0": "fab/enc", "d-1": "fab/enc/1"}
    # What an operator attached by hand was given out of no pool.
    assert pools(attachment("d-1", "any", claim=None)) == {"d-0": "fab/enc", "d-1": "fab/enc"}


def test_an_allocated_device_keeps_its_room_in_its_pool():
    listing = tuple(make_device(f"d-{number:02}") for number in range(pool_writes.DEVICES_MAX + 1))
    usual = devices.homes("fab", {each.id: each for each in listing}, ())
    assert [name for name, pool in usual.items() if pool == "fab/enc/1"] == ["d-64"]
    places = devices.homes(
        "fab", {each.id: each for each in listing}, (), devices.Rules(attached_pools={"d-64": "fab/enc"})
    )
    assert [name for name, pool in places.items() if pool == "fab/enc/1"] == ["d-63"]


def test_a_reservation_is_by_id_or_by_model():
    wanted = fabrics.Reservation(devices=("d-0", "GPU/1"), models=("M2",))
    listing = [make_device("d-0"), make_device("d-1"), make_device("GPU/1"), make_device("d-3", "M2")]
    names = desired.find_reserved(wanted, listing)
    assert len(names) == 3
    assert {"d-0", "d-3"} < names
    assert "d-1" not in names


def test_a_pool_of_nothing_but_reserved_devices_is_not_published():
    assert desired.plan(observe_pools("d-0", "d-1"), NOW) == ()
    (action,) = desired.plan(observe_pools("d-0", "d-1", published=make_slices()), NOW)
    assert isinstance(action, pool_writes.Delete)
    assert isinstance(action.slice, slices.ResourceSlice)
