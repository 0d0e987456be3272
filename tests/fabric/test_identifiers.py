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
    *("To-Be-Filled-By-O.E.M.", "ToBeFilledByO.E.M.", "to be filed by O.E.M.", "To be set by O.E.M."),
    *("Fill By OEM", "Filled By O.E.M.", "OEM Serial", "O.E.M."),
    *("Default_string", "DefaultString", "Default", "string"),
    *("01234567890123456789", "123456789012", "BSN12345678901234567", "NB-1234567890"),
    *("Base Board Serial Number", "Board Serial Number", "Chassis S/N", "Serial No.", "SerNum0"),
    *("<none>", "(none)", "None Specified", "No Serial Number", "No Asset Tag"),
    *(
        "N.A.",
        "#N/A",
        "NotAvailable",
        "Not_Available",
        "Not Present",
        "Not Set",
        "NotSpecified",
        "Not Defined",
    ),
    *("-", "---", ".", "..........", "_", "******"),
    *("0x0", "0x00000000", "0xFFFFFFFF", "00:00:00:00:00:00", "ff:ff:ff:ff"),
    *("Absent", "Missing", "No Asset Information", "No data", "Read failed", "Unavailable", "Unsupported"),
    *("[Insufficient Permissions]", "[GPU requires reset]", "Not Supported", "To be determined", "ERR!"),
    *("VB1234-56789", "1234567890ABCDEF", "9876543210", "0x123456789", "ABCDEFGHIJKLMNOPQRST"),
    *("N/A N/A", "none (none)", "No S/N", "SN0000000000", "-1", "4294967295", "18446744073709551615"),
    *(
        "GPU-XX",
        "CPU-XX",
        "<BAD INDEX>",
        "<OUT OF SPEC>",
        "<access denied>",
        "Read Error",
        "No data",
        "missing",
    ),
    *("[Requested functionality has been deprecated]", "[Function Not Found]", "NOT_FOUND", "No Information"),
    *("unset", "<unset>", "Uninitialized", "UNPROGRAMMED", "unsupported", "unavailable"),
    *(
        "Default Serial Number",
        "Product Serial Number",
        "Serial Number Not Available",
        "S/N: N/A",
        "Asset Tag: 0",
    ),
    *("Invalid serial", "<unknown>", "UNKNOWN SERIAL", "Unknow", "nil", "<null>", "T.B.D.", "[Empty]"),
)


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_no_identifier(text):
    assert identifiers.serial(text) == identifiers.system_uuid(text) == identifiers.host_name(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        *("MT2242XZ00QA", "1654422007043", "0320117104864", "11", "CZ-00-1", "S4EVNX0", "PHLN012300A5"),
        *("VMware-56 4d 4f 9a", "None5", "OEM-77A1", "EMPTY-RACK-7", "XFL1LWAB5Y1M", "50121119CG3R", "12345"),
        *(
            *("SN: MT2304XZ04QF", "Serial Number 4711", "Board 7", "System-7"),
            "0x1234",
            "0xf",
            "1234567",
            "AM27043696",
            "Not1",
            "12345678",
            "SN00012",
            "A-1",
            "NOTTINGHAM7",
            "errors",
        ),
    ],
)
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
        "12345678-1234-5678-90AB-CDDEEFAABBCC",
        "78563412-3412-7856-90AB-CDDEEFAABBCC",
        "4C4C4544-0000-2010-8020-80C04F202020",
        "{FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE}",
        "deadbeef-dead-beef-dead-beefdeadbeef",
        "00112233-4455-6677-8899-aabbccddeeff",
        "33221100-5544-7766-8899-AABBCCDDEEFF",
        "11223344-5566-7788-9900-AABBCCDDEEFF",
        "01234567-89ab-cdef-0123-456789abcdef",
        "00010203-0405-0607-0809-0A0B0C0D0E0F",
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


@pytest.mark.parametrize(
    "name", ["nottingham", "tobermory.example", "please-1", "node-123456789", "undefined-7"]
)
def test_a_name_that_begins_like_a_sentence_is_a_name(name):
    assert identifiers.host_name(name) == name
