"""Which numbers identify a device among all devices of a fabric, and which are those of several."""

import pytest

from drawbar.driver.controller.fabrics import numbers
from drawbar.fabric import contract, witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

DSN, OTHER = "9f210f69a42db048", "9f210f69a42db049"


def device(name, *listed, origin=None, serial=None):
    made = tuple(witnesses.identifier(Kind.PCIE_DSN, text, "DSN") for text in listed)
    part_of = contract.Slice(origin_id=origin) if origin is not None else None
    return contract.Device(
        id=name, device_class=DeviceClass.GPU, identifiers=made, serial=serial, slice_of=part_of
    )


def part(name, text):
    number = witnesses.identifier(Kind.PART_NUMBER, text, "part")
    return contract.Device(id=name, device_class=DeviceClass.GPU, identifiers=(number,))


POOL = device("pool", DSN)
CASES = {
    "each has its own": ([device("a", DSN), device("b", OTHER)], {}),
    "two have one": ([device("a", DSN), device("b", DSN), device("c", OTHER)], {"pcie-dsn": ("a", "b")}),
    "one serial number": ([device("a", serial="S1 "), device("b", serial="s1")], {"serial": ("a", "b")}),
    "placeholders": ([device("a", serial="N/A"), device("b", serial="N/A")], {}),
    "one part number": ([part("a", "2330-885-A1"), part("b", "2330-885-A1")], {}),
    "a slice and its origin": ([POOL, device("pool.1", DSN, origin="pool")], {}),
    "a slice whose origin is not listed": ([device("pool.1", DSN, origin="pool")], {}),
    "two slices": (
        [POOL, *(device(f"pool.{number}", DSN, origin="pool") for number in (1, 2))],
        {"pcie-dsn": ("pool.1", "pool.2")},
    ),
    "a slice and a stranger": (
        [POOL, device("pool.1", DSN, origin="pool"), device("a", DSN)],
        {"pcie-dsn": ("pool", "pool.1", "a")},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_devices_that_share_a_number_are_named(case):
    devices, expected = CASES[case]
    listed = numbers.Numbers.from_devices(devices)
    assert {kind.value: ids for (kind, _), ids in listed.holders().items()} == expected
    for each in devices:
        shared = {kind.value for kind, _ in listed.find_shared(each)}
        assert shared == {kind for kind, ids in expected.items() if each.id in ids}


def test_a_removed_device_shares_no_identifier():
    first, second = device("a", DSN, serial="S1"), device("b", DSN, serial="S1")
    listed = numbers.Numbers.from_devices([first, second])
    assert numbers.remove_identifiers(first, listed.find_shared(first)) == device("a")
    listed.remove(second)
    assert listed.holders() == {}
    assert numbers.remove_identifiers(first, listed.find_shared(first)) == first
