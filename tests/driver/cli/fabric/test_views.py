"""Devices as tables and JSON values."""

import dataclasses
import io

import pytest
from rich import console

from drawbar.driver.api import fabrics
from drawbar.driver.cli.fabric import observed, oddities, views
from drawbar.fabric import attributes, contract, witnesses
from drawbar.fabric.witnesses import Kind

SOURCE = observed.Source(name="f", spec=fabrics.FabricSpec(adapter="redfish", endpoint="https://m"))
POOL = contract.Device(
    id="e1.pool",
    device_class=contract.DeviceClass.CXL_MEMORY,
    carving=contract.Carving(free_bytes=3 << 30, step_bytes=1 << 30, is_pool=True),
)
SLICE = contract.Device(
    id="e1.pool.1",
    device_class=contract.DeviceClass.CXL_MEMORY,
    slice_of=contract.Slice(origin_id="e1.pool"),
)
PLAIN = contract.Device(id="gpu-1", device_class=contract.DeviceClass.GPU)


def print_devices(*devices):
    out = console.Console(file=io.StringIO(), width=160)
    views.show_devices(out, [views.device(device, SOURCE) for device in devices])
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_slices_have_a_column_where_there_are_any():
    head, pool, made, plain = print_devices(POOL, SLICE, PLAIN)
    assert head.endswith("SLICES")
    assert pool.endswith("3072 MiB free")
    assert made.endswith("of e1.pool")
    assert plain.startswith("gpu-1")
    assert not print_devices(PLAIN)[0].endswith("SLICES")


def test_the_switch_has_a_column_where_it_is_known():
    head, at_switch, plain = print_devices(
        contract.Device(id="gpu-0", device_class=contract.DeviceClass.GPU, switch="sw-0"), PLAIN
    )
    assert head.endswith("SWITCH")
    assert at_switch.endswith("sw-0")
    assert plain.startswith("gpu-1")
    assert not print_devices(PLAIN)[0].endswith("SWITCH")


def test_the_document_names_origin_and_free_memory():
    pool, made = views.device(POOL, SOURCE), views.device(SLICE, SOURCE)
    assert pool["carving"] == {"freeBytes": 3 << 30, "stepBytes": 1 << 30, "isPool": True}
    assert (pool["sliceOf"], made["sliceOf"], made["carving"]) == (None, "e1.pool", None)


def test_the_kinds_of_identifiers_have_a_column():
    card = contract.Device(
        id="nic-1",
        device_class=contract.DeviceClass.NIC,
        identifiers=(
            witnesses.identifier(Kind.BOARD_SERIAL, "MT23"),
            witnesses.identifier(Kind.MAC, "94:6d:ae:51:c0:2a"),
            witnesses.identifier(Kind.MAC, "94:6d:ae:51:c0:2b"),
        ),
    )
    head, line, plain = print_devices(card, PLAIN)
    assert "IDENTIFIERS" in head
    assert "board mac*2" in line
    assert plain.startswith("gpu-1")
    shown = views.device(card, SOURCE)
    assert [each["value"] for each in shown["identifiers"]] == [
        "mt23",
        "94:6d:ae:51:c0:2a",
        "94:6d:ae:51:c0:2b",
    ]
    assert shown["recognition"]["means"] == "identifier"


def test_a_check_forecasts_how_each_device_is_recognised():
    out = console.Console(file=io.StringIO(), width=200)
    views.show_devices(out, views.devices([PLAIN, SLICE], (), SOURCE), forecasts=True)
    head, plain, _ = out.file.getvalue().splitlines()
    assert "RECOGNISED BY" in head
    assert "sole arrival" in plain


def test_devices_beyond_the_offer_are_marked_where_the_fabric_names_one():
    def column(**offer):
        spec = fabrics.FabricSpec(adapter="a", endpoint="e", offer=fabrics.Offer(**offer))
        source = observed.Source(name="f", spec=spec)
        out = console.Console(file=io.StringIO(), width=160)
        documents = [views.device(device, source) for device in (POOL, SLICE, PLAIN)]
        views.show_devices(out, documents)
        head, *_ = out.file.getvalue().splitlines()
        return ("OFFER" in head), [document["offered"] for document in documents]

    assert column() == (False, [True, True, True])
    assert column(devices=("e1.pool",)) == (True, [True, True, False])
    assert column(max_per_model=1) == (True, [None, None, None])


def test_the_document_has_the_attributes_of_the_adapter_as_plain_values():
    collected = attributes.collect(
        [("a.com/v", attributes.Version("1.2.3")), ("a.com/n", 7), ("a.com/b", True)]
    )
    shown = views.device(dataclasses.replace(PLAIN, attributes=collected.kept), SOURCE)
    assert shown["attributes"] == {"a.com/b": True, "a.com/n": 7, "a.com/v": "1.2.3"}


def make_inventory(*devices, **changes):
    return contract.Inventory(version="1", devices=devices, **changes)


def test_a_part_that_is_left_out_is_odd():
    inventory = make_inventory(
        PLAIN, unread=("/zone/1 cannot be read",), oddities=("the fabric SAS is left out",)
    )
    sentences = oddities.oddities(SOURCE, contract.Capabilities(), (), inventory)
    assert sentences[:2] == (
        "/zone/1 cannot be read; its devices are in doubt",
        "the fabric SAS is left out",
    )


def test_an_attribute_that_was_dropped_is_odd():
    refused = attributes.collect([("drawbar.dev/class", "gpu")]).refused
    device = dataclasses.replace(PLAIN, serial="1", refused_attributes=refused)
    sentences = oddities.oddities(SOURCE, contract.Capabilities(), (), make_inventory(device))
    (sentence,) = [each for each in sentences if "attribute" in each]
    assert "gpu-1 is offered without an attribute of its adapter" in sentence
    assert "drawbar.dev is not the adapter's own" in sentence


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        ({"devices": ("gpu-1",)}, None),
        ({"devices": ("gpu-1", "gone")}, "names devices that are not listed: gone"),
        ({"models": ("none",)}, "leaves out every device"),
    ],
)
def test_an_offer_that_cannot_be_meant_is_odd(offer, words):
    spec = fabrics.FabricSpec(adapter="a", endpoint="e", offer=fabrics.Offer(**offer))
    sentences = oddities.oddities(
        observed.Source(name="f", spec=spec), contract.Capabilities(), (), make_inventory(PLAIN)
    )
    matching = [each for each in sentences if "spec.offer" in each]
    assert len(matching) == (words is not None)
    assert all(words in each for each in matching)
