"""The null device as a node publishes it."""

import msgspec
import pytest

from drawbar.driver.api import meta
from drawbar.driver.node.local import nulls, plan, residents

OWNER = meta.OwnerReference(name="n")


def list_null_devices(settings, shared):
    return [msgspec.to_builtins(offer.device) for offer in nulls.offers(settings, shared=shared)]


def test_it_is_one_device_for_everybody_where_devices_can_be_shared():
    assert list_null_devices(nulls.NullDevice(enabled=True), shared=True) == [
        {"name": "none", "attributes": {"class": {"string": "none"}}, "allowMultipleAllocations": True}
    ]


def test_elsewhere_it_is_there_in_copies_that_are_one_claims_each():
    devices = list_null_devices(nulls.NullDevice(enabled=True, copies=3), shared=False)
    assert [device["name"] for device in devices] == ["none-1", "none-2", "none-3"]
    assert all(device["attributes"] == {"class": {"string": "none"}} for device in devices)
    assert all("allowMultipleAllocations" not in device for device in devices)


def test_it_is_offered_only_where_an_administrator_wants_it():
    assert nulls.offers(nulls.NullDevice(), shared=True) == ()


def test_its_health_is_not_watched():
    offers = nulls.offers(nulls.NullDevice(enabled=True), shared=True)
    observed = plan.Observed(driver="d", node_name="n", owner=OWNER, offers=offers)
    assert plan.keys(observed) == frozenset()


@pytest.mark.parametrize("name", ["none", "none-1", "none-48"])
def test_its_names_are_those_of_no_device_of_a_node(name):
    assert nulls.is_null(name)
    assert residents.class_of(name) is None


@pytest.mark.parametrize("name", ["none-0", "none-x", "nonesuch", "gpu-none", "none-01"])
def test_other_names_are_not_its_own(name):
    assert not nulls.is_null(name)


@pytest.mark.parametrize(("copies", "wrong"), [(0, True), (1, False), (48, False), (49, True)])
def test_copies_fit_into_a_slice_beside_the_devices(copies, wrong):
    assert bool(nulls.problems(nulls.NullDevice(copies=copies))) is wrong
