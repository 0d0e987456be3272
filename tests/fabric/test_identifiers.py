"""How identifiers of machines are compared."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import identifiers

PLACEHOLDERS = (
    "",
    " ",
    "0",
    "N/A",
    "[N/A]",
    "Default string",
    "To Be Filled By O.E.M.",
    "to be filled by  o.e.m",
    "System Serial Number",
    "0123456789",
    "SN123456789",
    "XXXXXXXX",
    "0000-0000",
    "Not Applicable",
    "Unspecified Serial",
    "GPU-????????-????",
    "(null)",
)


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_what_the_maker_never_filled_in_is_no_identifier(text):
    assert identifiers.serial(text) == identifiers.system_uuid(text) == identifiers.host_name(text) == ""


@pytest.mark.parametrize("text", ["MT2242XZ00QA", "1654422007043", "0320117104864", "11", "CZ-00-1"])
def test_a_real_serial_number_is_one_in_capitals_and_with_blanks_as_well(text):
    compared = identifiers.serial(text)
    assert (compared != "") == (text != "11")
    assert identifiers.serial(f"  {text.lower()} ") == compared


@pytest.mark.parametrize(
    "text",
    [
        str(uuid.UUID(int=0)),
        str(uuid.UUID(int=2**128 - 1)),
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
    ],
)
def test_a_uuid_of_the_factory_is_none(text):
    assert identifiers.system_uuid(text) == ""


@given(st.uuids())
def test_a_uuid_is_the_same_in_both_orders_of_its_bytes_and_another_one_is_not(value):
    compared = identifiers.system_uuid(str(value))
    swapped = uuid.UUID(bytes_le=value.bytes)
    for text in (str(swapped), str(value).upper(), f"{{{value}}}", value.hex, value.urn):
        assert identifiers.system_uuid(text) == compared
    another = uuid.UUID(int=value.int ^ 1)
    assert identifiers.system_uuid(str(another)) != compared


@pytest.mark.parametrize(
    "text", ["localhost", "LOCALHOST.localdomain", "localhost6.localdomain6", "(none)", ""]
)
def test_the_name_of_a_machine_without_one_is_no_name(text):
    assert identifiers.host_name(text) == ""


def test_host_names_are_compared_without_capitals_and_the_dot_of_the_root():
    assert (
        identifiers.host_name("Web483.Example.")
        == identifiers.host_name("web483.example")
        == "web483.example"
    )
