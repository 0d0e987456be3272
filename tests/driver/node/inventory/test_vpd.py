"""Vital Product Data: its form, and the functions that are asked for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.node.inventory import vpd
from drawbar.fabric.classes import DeviceClass
from drawbar.mocks.sysfs import vital

FIELDS = {"PN": "MCX713106AC-VEAT", "EC": "A5", "SN": "MT2304XZ04QF            ", "V2": "x"}


def fields(data):
    return vpd.read_fields(lambda length, offset: data[offset : offset + length])


def test_the_fields_of_the_read_only_part_are_read_without_padding():
    read = fields(vital.image("ConnectX-7", FIELDS))
    assert {name: read[name] for name in FIELDS} == {**FIELDS, "SN": "MT2304XZ04QF"}


def test_no_more_than_the_read_only_part_is_asked_for():
    data, asked = vital.image("Card", FIELDS) + bytes(30_000), []

    def read(length, offset):
        asked.append((offset, length))
        return data[offset : offset + length]

    vpd.read_fields(read)
    assert max(offset + length for offset, length in asked) < len(data) - 29_000


def test_a_length_that_is_too_large_is_cut():
    asked = []

    def read(length, offset):
        asked.append(length)
        return (b"\x90\xff\xff" if offset == 0 else b"SN\x02AB" + bytes(length))[:length]

    assert vpd.read_fields(read)["SN"] == "AB"
    assert max(asked) == vpd.READ_BYTES_MAX


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 64, id="ones"),
        pytest.param(bytes(64), id="zeros"),
        pytest.param(b"A" * (1 << 20), id="a megabyte of text"),
        pytest.param(b"\x82\x00\x00" * 100, id="names without end"),
        pytest.param(b"\x90\x10\x00SN\xffABC", id="a field that is longer than its part"),
        pytest.param(b"\x90\x07\x00SN\x04\xff\xfe\xfd\xfc", id="a field that is no text"),
        pytest.param(b"\x90\x0b\x00SN\x08MT12" + b"\xff" * 4, id="a half of a number, then ones"),
        pytest.param(b"\x90\x0b\x00SN\x08MT1", id="a half of a number, then the end"),
        pytest.param(b"\x90\x00\x00\x90\x07\x00SN\x04A123", id="an empty part before another"),
        pytest.param(b"\x78\x90\x07\x00SN\x04A123", id="the end before the part"),
        pytest.param(b"\x91\x07\x00YA\x04A123\x90\x07\x00SN\x04A123", id="the writable part first"),
        pytest.param(b"\x82\x04\x00Card\x78", id="a name alone"),
        pytest.param(b"\x90\x07\x00sn\x04A123", id="small letters"),
        pytest.param(b"\x90\x07\x00SN\x04MT\xe94", id="a letter of another alphabet"),
        pytest.param(b"\x82\x01\x00A" * 9 + b"\x90\x07\x00SN\x04A123", id="many names"),
    ],
)
def test_other_data_has_no_serial_number(data):
    assert "SN" not in fields(data)


@given(st.binary(max_size=300))
def test_any_data_is_read_as_a_value(data):
    assert all(isinstance(text, str) for text in fields(b"\x90" + data).values())


@pytest.mark.parametrize(
    ("device_class", "vendor", "device", "is_identified", "expected"),
    [
        (DeviceClass.NIC, 0x15B3, 0x1021, True, True),
        (DeviceClass.NVME, 0x1E0F, 0x0007, True, True),
        (DeviceClass.FPGA, 0x10EE, 0x5004, False, True),
        (DeviceClass.GPU, 0x10DE, 0x2331, True, False),
        (DeviceClass.STORAGE, 0x15B3, 0x1021, False, False),
        (DeviceClass.BRIDGE, 0x15B3, 0x1021, False, False),
        (DeviceClass.OTHER, 0x8086, 0x1021, False, False),
        (DeviceClass.NIC, 0x1000, 0x0073, False, False),
        (DeviceClass.NIC, 0x1969, 0x1091, False, False),
        (DeviceClass.NIC, 0x1C36, 0x0031, False, False),
        (DeviceClass.NIC, 0x1C36, 0x0001, False, True),
    ],
)
def test_only_functions_that_answer_well_are_asked(device_class, vendor, device, is_identified, expected):
    assert vpd.is_worthwhile(device_class, vendor, device, is_identified=is_identified) is expected
