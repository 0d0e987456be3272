"""Devices as tables and JSON values."""

import io

from rich import console

from drawbar.driver.api import fabrics
from drawbar.driver.cli.fabric import observed, views
from drawbar.fabric import contract, witnesses
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


def printed(*devices):
    out = console.Console(file=io.StringIO(), width=160)
    views.show_devices(out, [views.device(device, SOURCE) for device in devices])
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_slices_have_a_column_where_there_are_any():
    head, pool, made, plain = printed(POOL, SLICE, PLAIN)
    assert head.endswith("SLICES")
    assert pool.endswith("3072 MiB free")
    assert made.endswith("of e1.pool")
    assert plain.startswith("gpu-1")
    assert not printed(PLAIN)[0].endswith("SLICES")


def test_the_switch_has_a_column_where_it_is_known():
    head, at_switch, plain = printed(
        contract.Device(id="gpu-0", device_class=contract.DeviceClass.GPU, switch="sw-0"), PLAIN
    )
    assert head.endswith("SWITCH")
    assert at_switch.endswith("sw-0")
    assert plain.startswith("gpu-1")
    assert not printed(PLAIN)[0].endswith("SWITCH")


def test_the_document_names_origin_and_what_is_left():
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
    head, line, plain = printed(card, PLAIN)
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
