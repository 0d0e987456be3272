"""Forecasts among all devices of a fabric, and the numbers that several of them show."""

import dataclasses

import pytest

from drawbar.driver.api import fabrics
from drawbar.driver.cli.fabric import observed, oddities, prospects
from drawbar.fabric import contract, witnesses
from drawbar.fabric.recognition import Means
from drawbar.fabric.witnesses import Kind

SOURCE = observed.Source(name="f", spec=fabrics.FabricSpec(adapter="redfish", endpoint="https://m"))
HOST = contract.Host(id="h1", name="h1", ports=(contract.Port(id="1", state=contract.PortState.FREE),))
HOST_WITH_SLOTS = dataclasses.replace(
    HOST, ports=(contract.Port(id="1", state=contract.PortState.FREE, slot_hint="3"),)
)


def device(name, *numbers, **changes):
    made = contract.Device(
        id=name,
        device_class=contract.DeviceClass.GPU,
        pci_vendor_id=0x10DE,
        pci_device_id=0x2330,
        identifiers=tuple(witnesses.identifier(kind, value) for kind, value in numbers),
    )
    return dataclasses.replace(made, **changes)


def dsn(number):
    return Kind.PCIE_DSN, number.to_bytes(8, "big").hex("-")


def warnings(*devices, hosts=(HOST,)):
    can = contract.Capabilities(marks=True)
    reported = oddities.oddities(SOURCE, can, hosts, contract.Inventory(version="1", devices=devices))
    return [sentence for sentence in reported if "recognised" in sentence or "show" in sentence]


def test_a_number_of_each_device_recognises_it():
    devices = [device("a", dsn((1 << 40) + 1)), device("b", dsn((2 << 40) + 1))]
    assert [each.means for each in prospects.forecasts(devices, (HOST,)).values()] == [Means.IDENTIFIER] * 2
    assert warnings(*devices) == []


def test_a_number_that_two_devices_show_recognises_neither_and_names_both():
    devices = [
        device("a", dsn((1 << 40) + 1)),
        device("b", dsn((1 << 40) + 1)),
        device("c", dsn((3 << 40) + 1)),
    ]
    means = {name: each.means for name, each in prospects.forecasts(devices, (HOST,)).items()}
    assert means == {"a": Means.SOLE_ARRIVAL, "b": Means.SOLE_ARRIVAL, "c": Means.IDENTIFIER}
    alone, same = warnings(*devices)
    assert alone.startswith(
        "devices a, b can be recognised only by sole arrival: no identifier is theirs alone"
    )
    assert same.startswith("devices a, b show the same pcie-dsn 00-00-01-00-00-00-00-01")


def test_a_serial_number_that_two_devices_show_is_reported_once():
    number = (Kind.BOARD_SERIAL, "1583124769917")
    devices = [device(name, number, serial="1583124769917") for name in ("a", "b")]
    assert len([each for each in warnings(*devices) if "show the same" in each]) == 1
    devices = [device(name, serial="S1") for name in ("a", "b")]
    (same,) = (each for each in warnings(*devices) if "show the same" in each)
    assert "same serial s1" in same


def test_a_part_number_is_that_of_a_model():
    devices = [
        device(name, (Kind.PART_NUMBER, "2330-885-A1"), dsn((n << 40) + 1)) for n, name in enumerate("ab", 1)
    ]
    assert warnings(*devices) == []


def test_a_slice_and_the_device_that_it_is_carved_from_are_one():
    origin = device("pool", dsn((1 << 40) + 1), carving=contract.Carving(free_bytes=1, is_pool=True))
    part = device("pool.1", dsn((1 << 40) + 1), slice_of=contract.Slice(origin_id="pool"))
    assert prospects.forecasts([origin, part], (HOST,))["pool.1"].means is Means.IDENTIFIER
    assert warnings(origin, part) == []


@pytest.mark.parametrize(("host", "means"), [(HOST, Means.SOLE_ARRIVAL), (HOST_WITH_SLOTS, Means.SLOT)])
def test_the_slots_of_ports_come_before_the_sole_arrival(host, means):
    gpu = device("a", (Kind.BOARD_SERIAL, "1654422007043"))
    assert prospects.forecasts([gpu], (host,))["a"].means is means
    assert bool(warnings(gpu, hosts=(host,))) is (means is Means.SOLE_ARRIVAL)


def test_hundreds_of_devices_take_one_sentence():
    (sentence,) = warnings(*(device(f"d{number}") for number in range(300)))
    assert "d7 and 292 more" in sentence
    assert "the fabric manager shows no identifier" in sentence


def test_each_kind_has_a_short_name():
    assert len(prospects.shorten(Kind).split()) == len(Kind)


def machine(name, **numbers):
    return dataclasses.replace(
        HOST, id=name, identifiers={kind.replace("_", "-"): text for kind, text in numbers.items()}
    )


UUID = "68d5e212-165b-4ca0-909b-c86b9cee0112"
SWAPPED = "12E2D568-5B16-A04C-909B-C86B9CEE0112"


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("system_uuid", UUID, UUID),
        ("system_uuid", UUID, SWAPPED),
        ("serial", "CNFCP007BE00IT", "cnfcp007be00it "),
        ("hostname", "web483", "WEB483."),
        ("asset", "a7", "A7"),
    ],
)
def test_an_identifier_that_several_hosts_have_is_reported_with_their_ids(kind, one, other):
    hosts = (machine("h1", **{kind: one}), machine("h2", **{kind: other}), machine("h3", **{kind: "b-9"}))
    (same,) = warnings(hosts=hosts)
    assert same.startswith(
        f"hosts h1, h2 show the same {kind.replace('_', '-')} {one}, so it identifies none of them"
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("system_uuid", "00000000-0000-0000-0000-000000000000"),
        ("system_uuid", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"),
        ("system_uuid", "03000200-0400-0500-0006-000700080009"),
        ("serial", "To be filled by O.E.M."),
        ("serial", "Not Specified"),
        ("hostname", "localhost"),
        ("hostname", "localhost.localdomain"),
        ("hostname", "(none)"),
        ("asset", "N/A"),
    ],
)
def test_a_placeholder_of_a_host_is_reported_as_no_identifier(kind, text):
    named = f"the placeholder {kind.replace('_', '-')} {text}, which identifies no machine"
    (alone,) = warnings(hosts=(machine("h1", **{kind: text}), machine("h2")))
    assert alone.startswith(f"host h1 shows {named}")
    (both,) = warnings(hosts=(machine("h1", **{kind: text}), machine("h2", **{kind: text})))
    assert both.startswith(f"hosts h1, h2 show {named}")
    assert "spec.hosts" in both


def test_hosts_with_numbers_of_their_own_are_not_odd():
    hosts = (machine("h1", serial="A1", hostname="a"), machine("h2", serial="A2", hostname="b"))
    assert warnings(hosts=hosts) == []
