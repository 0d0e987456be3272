"""Normal forms of identifiers of devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import witnesses
from drawbar.fabric.witnesses import Kind

DSN = "9f-21-0f-69-a4-2d-b0-48"
UUID = "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.PCIE_DSN, "9F-21-0F-69-A4-2D-B0-48", DSN),
        (Kind.PCIE_DSN, "9f210f69a42db048", DSN),
        (Kind.PCIE_DSN, "0x9F210F69A42DB048", DSN),
        (Kind.PCIE_DSN, "9f:21:0f:69:a4:2d:b0:48", DSN),
        (Kind.PCIE_DSN, "9f-21-0f-69-a4-2d-b0-48:0007", DSN),
        (Kind.PCIE_DSN, "0x1234", "00-00-00-00-00-00-12-34"),
        (Kind.PCIE_DSN, "00-00-00-00-00-00-12-34", "00-00-00-00-00-00-12-34"),
        (Kind.PCIE_DSN, "00-00-00-00-00-2d-b0-48", ""),
        (Kind.PCIE_DSN, "0x2db048", ""),
        (Kind.PCIE_DSN, "01-00-00-00-68-4c-e0-00", ""),
        (Kind.PCIE_DSN, "00-00-00-00-00-00-00-00", ""),
        (Kind.PCIE_DSN, "ff-ff-ff-ff-ff-ff-ff-ff", ""),
        (Kind.PCIE_DSN, "1652923004410", ""),
        (Kind.GPU_UUID, f"GPU-{UUID.upper()}", UUID),
        (Kind.GPU_UUID, f"MIG-{UUID}", ""),
        (Kind.GPU_UUID, "GPU-????????-????-????-????-????????????", ""),
        (Kind.GPU_UUID, "00000000-0000-0000-0000-000000000000", ""),
        (Kind.GPU_UUID, "03000200-0400-0500-0006-000700080009", ""),
        (Kind.GPU_UNIQUE_ID, "GPU-d3a17c52e9f0b46d", "d3a17c52e9f0b46d"),
        (Kind.GPU_UNIQUE_ID, "0", ""),
        (Kind.BOARD_SERIAL, " MT2304XZ04QF      ", "mt2304xz04qf"),
        (Kind.BOARD_SERIAL, "0320117104864", "0320117104864"),
        (Kind.BOARD_SERIAL, "[N/A]", ""),
        (Kind.BOARD_SERIAL, "XXXXXXXX", ""),
        (Kind.SERIAL, "Default string", ""),
        (Kind.SERIAL, "a\x1b[0m", ""),
        (Kind.MAC, "50-7C-6F-11-F2-A6", "50:7c:6f:11:f2:a6"),
        (Kind.MAC, "507C6F11F2A6", "50:7c:6f:11:f2:a6"),
        (Kind.MAC, "FF:FF:FF:FF:FF:FF", ""),
        (Kind.MAC, "02:00:00:00:00:01", ""),
        (Kind.NODE_GUID, "946d:ae03:0051:c02a", "946dae030051c02a"),
        (Kind.NODE_GUID, "0000:0000:0000:0000", ""),
        (Kind.EUI64, "eui.0025388c31500a2b", "0025388c31500a2b"),
        (Kind.EUI64, "00 25 38 8c 31 50 0a 2b", "0025388c31500a2b"),
        (Kind.NGUID, "36344630-52b0-1234-0025-384100000001", "3634463052b012340025384100000001"),
        (Kind.VENDOR, "fuse-ver=01P4-HL3090A0", "fuse-ver=01p4-hl3090a0"),
        (Kind.VENDOR, "no name", ""),
        (Kind.VENDOR, "fuse-ver=N/A", ""),
        (Kind.VENDOR, "v3=00000000000000000000000000000000", ""),
        (Kind.PCIE_DSN, "00-00-00-ff-ff-00-00-00", ""),
        (Kind.PCIE_DSN, "a0-36-9f-ff-ff-00-00-00", ""),
        (Kind.PCIE_DSN, "a0-36-9f-ff-fe-ff-ff-ff", ""),
        (Kind.PCIE_DSN, "48-b0-2d-00-00-00-00-00", ""),
        (Kind.PCIE_DSN, "00-02-c9-03-00-00-00-00", ""),
        (Kind.PCIE_DSN, "fe-fe-fe-fe-fe-fe-fe-fe", ""),
        (Kind.PCIE_DSN, "de-ad-be-ef-de-ad-be-ef", ""),
        (Kind.PCIE_DSN, "01-23-45-67-89-ab-cd-ef", ""),
        (Kind.PCIE_DSN, "00-01-02-03-04-05-06-07", ""),
        (Kind.PCIE_DSN, "12-34-56-78-9a-bc-de-f0", ""),
        (Kind.PCIE_DSN, "50-7c-6f-ff-ff-11-f2-a6", "50-7c-6f-ff-ff-11-f2-a6"),
        (Kind.PCIE_DSN, "9F 21 0F 69 A4 2D B0 48", DSN),
        (Kind.PCIE_DSN, "9F210F69-A42DB048", DSN),
        (Kind.PCIE_DSN, "9f-21-0f-69-a4-2d-b0-48\0", DSN),
        (Kind.GPU_UUID, "12345678-1234-5678-90AB-CDDEEFAABBCC", ""),
        (Kind.GPU_UUID, "GPU-fefefefe-fefe-fefe-fefe-fefefefefefe", ""),
        (Kind.GPU_UUID, "00112233-4455-6677-8899-aabbccddeeff", ""),
        (Kind.GPU_UNIQUE_ID, "0x0000000000000001", ""),
        (Kind.GPU_UNIQUE_ID, "0xD3A17C52E9F0B46D", "d3a17c52e9f0b46d"),
        (Kind.MAC, "00:11:22:33:44:55", ""),
        (Kind.MAC, "00:01:02:03:04:05", ""),
        (Kind.MAC, "00:12:34:56:78:9a", ""),
        (Kind.MAC, "50:7c:6f:00:00:00", ""),
        (Kind.MAC, "50:7c:6f:ff:ff:ff", ""),
        (Kind.MAC, "00:00:00:00:00:01", ""),
        (Kind.MAC, "00:00:00:12:34:56", ""),
        (Kind.MAC, "de:ad:be:ef:00:01", ""),
        (Kind.MAC, "0x507C6F11F2A6", "50:7c:6f:11:f2:a6"),
        (Kind.MAC, "507c.6f11.f2a6", "50:7c:6f:11:f2:a6"),
        (Kind.MAC, "50:7c:6f:11:f2:a6\0\0", "50:7c:6f:11:f2:a6"),
        (Kind.EUI64, "0025380000000000", ""),
        (Kind.EUI64, "eui.0000000000000001", ""),
        (Kind.EUI64, "0025:388C:3150:0A2B", "0025388c31500a2b"),
        (Kind.NGUID, "00000000000000000000000000000001", ""),
        (Kind.NGUID, "00000000-0000-0000-0025-380000000000", ""),
        (Kind.NGUID, "0123456789abcdef0123456789abcdef", ""),
        (Kind.NODE_GUID, "0000:0000:0000:0001", ""),
        (Kind.NODE_GUID, "0002:c903:0000:0000", ""),
        (Kind.NODE_GUID, "0x946dae030051c02a", "946dae030051c02a"),
        (Kind.NVME_SERIAL, "S4EVNX0N500000\0\0\0\0\0\0", "s4evnx0n500000"),
        (Kind.NVME_SERIAL, "      S4EVNX0N500000", "s4evnx0n500000"),
        (Kind.NVME_SERIAL, "\0\0\0\0", ""),
        (Kind.NVME_NQN, "nqn.2014-08.org.nvmexpress.discovery", ""),
        (Kind.NVME_NQN, "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000000", ""),
        (Kind.NVME_NQN, "nqn.2014-08.org.nvmexpress:uuid:03000200-0400-0500-0006-000700080009", ""),
        (Kind.NVME_NQN, "nqn.1994-11.com.Samsung:nvme:S4EV", "nqn.1994-11.com.samsung:nvme:s4ev"),
        (Kind.BOARD_SERIAL, "1654422007043\r\n", "1654422007043"),
        (Kind.BOARD_SERIAL, "MT\u200b2304", ""),
        (Kind.PCIE_DSN, "12-34-56-78-90-00-00-00", ""),
        (Kind.PCIE_DSN, "00-00-00-00-12-34-56-78", ""),
        (Kind.PCIE_DSN, "00-00-00-01-01-00-0a-35", ""),
        (Kind.PCIE_DSN, "35-0a-00-01-01-00-00-00", ""),
        (Kind.PCIE_DSN, "00-e0-4c-ff-fe-c8-22-01", ""),
        (Kind.PCIE_DSN, "00-00-00-01-00-4c-e0-00", ""),
        (Kind.PCIE_DSN, "12-34-56-78-12-34-56-78", ""),
        (Kind.PCIE_DSN, "12-34-56-10-12-30-00-86", ""),
        (Kind.PCIE_DSN, "00-e0-4c-00-00-00-00-00", ""),
        (Kind.PCIE_DSN, "00-e0-4c-68-00-00-00-01", ""),
        (Kind.PCIE_DSN, "00-0e-df-10-b5-97-00-aa", ""),
        (Kind.PCIE_DSN, "00-0e-df-b5-10-00-87-ca", ""),
        (Kind.PCIE_DSN, "ca-87-00-10-b5-df-0e-00", ""),
        (Kind.PCIE_DSN, "ba-86-01-10-b5-df-0e-00", ""),
        (Kind.PCIE_DSN, "88-77-66-55-44-33-22-11", ""),
        (Kind.PCIE_DSN, "08-07-06-05-04-03-02-01", ""),
        (Kind.PCIE_DSN, "fe-dc-ba-98-76-54-32-10", ""),
        (Kind.PCIE_DSN, "00-00-00-ff-ff-9f-36-a0", ""),
        (Kind.PCIE_DSN, "00-0e-df-00-00-12-34-57", "00-0e-df-00-00-12-34-57"),
        (Kind.MAC, "88:88:88:88:87:88", ""),
        (Kind.MAC, "00:00:5e:00:01:07", ""),
        (Kind.MAC, "00:00:5e:00:53:01", ""),
        (Kind.MAC, "54:10:ec:00:00:01", "54:10:ec:00:00:01"),
        (Kind.NVME_SERIAL, "VB1234-56789        ", ""),
        (Kind.NVME_NQN, "nqn.2019-08.org.qemu:", ""),
        (Kind.NVME_NQN, "nqn.2014-08.org.nvmexpress:uuid:", ""),
        (Kind.NVME_NQN, "nqn.2019-08.org.qemu:To Be Filled By O.E.M.", ""),
        (Kind.GPU_UUID, "GPU-00000000-0000-0000-0000-000000000001", ""),
        (Kind.GPU_UUID, "11111111-2222-3333-4444-555555555555", ""),
        (Kind.GPU_UUID, "GPU-12345678-1234-1234-1234-123456789abc", ""),
        (Kind.GPU_UUID, "GPU-00000000-0000-0000-0000-ac1f6b123457", "00000000-0000-0000-0000-ac1f6b123457"),
    ],
)
def test_a_text_in_the_normal_form_of_its_kind(kind, text, value):
    assert witnesses.normal(kind, text) == value


NUMBERS = st.one_of(st.integers(0, 1 << 25), st.integers(0, (1 << 64) - 1))


@given(
    st.sampled_from(Kind),
    st.one_of(
        st.text(max_size=200),
        NUMBERS.map(hex),
        NUMBERS.map(lambda number: number.to_bytes(8, "big").hex("-")),
    ),
)
def test_a_normal_form_is_its_own_normal_form(kind, text):
    value = witnesses.normal(kind, text)
    assert witnesses.normal(kind, value) == value
    assert len(value) <= witnesses.VALUE_MAX
    assert value.isprintable()
