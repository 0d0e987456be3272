"""Identifiers that both sides of the emulation make from one serial number."""

import pytest

from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass
from drawbar.fabric.witnesses import Kind, normal
from drawbar.mocks import identities


def _pairs(device_class, serial):
    return [(each.kind, each.value) for each in identities.defaults(device_class, serial)]


@pytest.mark.parametrize(
    ("device_class", "serial", "expected"),
    [
        pytest.param(DeviceClass.NVME, "S6C1NA0T", [(Kind.NVME_SERIAL, "s6c1na0t")], id="nvme"),
        pytest.param(DeviceClass.CXL_MEMORY, "0x2a", [(Kind.PCIE_DSN, "00-00-00-00-00-00-00-2a")], id="cxl"),
        pytest.param(
            DeviceClass.CXL_MEMORY, "42", [(Kind.PCIE_DSN, "00-00-00-00-00-00-00-2a")], id="cxl, decimal"
        ),
        pytest.param(
            DeviceClass.GPU,
            "1654422009913",
            [
                (Kind.BOARD_SERIAL, "1654422009913"),
                (Kind.GPU_UUID, "fc83b1d9-5fb6-5a2b-86b6-df7371d899bf"),
            ],
            id="gpu",
        ),
        pytest.param(
            DeviceClass.NIC,
            "MT2304XZ04QF",
            [(Kind.VPD_SERIAL, "mt2304xz04qf"), (Kind.MAC, "d8:b8:0f:8b:22:12")],
            id="nic",
        ),
        pytest.param(DeviceClass.FPGA, "fpga-1", [(Kind.PCIE_DSN, "cd-4a-6b-c0-d1-9f-a9-22")], id="fpga"),
        pytest.param(
            DeviceClass.FPGA,
            "00-0A-35-00-00-00-00-01",
            [(Kind.PCIE_DSN, "00-0a-35-00-00-00-00-01")],
            id="fpga whose serial number is a Device Serial Number",
        ),
        pytest.param(DeviceClass.OTHER, "", [], id="no serial number"),
        pytest.param(DeviceClass.GPU, "  ", [], id="blanks"),
    ],
)
def test_each_class_has_the_identifiers_of_its_kind(device_class, serial, expected):
    assert _pairs(device_class, serial) == expected


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_the_values_are_in_normal_form_and_differ_between_devices(device_class):
    values = [_pairs(device_class, serial) for serial in ("0x1a", "0x1b")]
    assert all(normal(kind, value) == value for pairs in values for kind, value in pairs)
    assert values[0]
    assert not set(values[0]) & set(values[1])
