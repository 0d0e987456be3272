"""Forecasts of how a node recognises a device, and the readings of one identifier as another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import contract, recognition, witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.recognition import Means
from drawbar.fabric.witnesses import Identifier, Kind

DSN = "9f-21-0f-69-a4-2d-b0-48"
UUID = "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55"
NVIDIA, AMD, INTEL, MELLANOX, BROADCOM, XILINX = 0x10DE, 0x1002, 0x8086, 0x15B3, 0x14E4, 0x10EE
HABANA, ACCELERATOR = 0x1DA3, DeviceClass.ACCELERATOR
GPU, NIC, FPGA, NVME, CXL = (
    DeviceClass.GPU,
    DeviceClass.NIC,
    DeviceClass.FPGA,
    DeviceClass.NVME,
    DeviceClass.CXL_MEMORY,
)


def _identifier(kind: Kind, text: str) -> Identifier:
    made = witnesses.identifier(kind, text)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("device_class", "vendor", "identifiers", "serial", "expected"),
    [
        pytest.param(GPU, NVIDIA, [(Kind.BOARD_SERIAL, "1654422009913")], "", (), id="nvidia-board-serial"),
        pytest.param(GPU, NVIDIA, [(Kind.GPU_UUID, UUID)], "", (Kind.GPU_UUID,), id="nvidia-uuid"),
        pytest.param(GPU, None, [(Kind.GPU_UUID, UUID)], "", (Kind.GPU_UUID,), id="uuid-of-no-known-vendor"),
        pytest.param(GPU, NVIDIA, [(Kind.PCIE_DSN, DSN)], "", (Kind.PCIE_DSN,), id="declared-dsn"),
        pytest.param(
            GPU, AMD, [(Kind.BOARD_SERIAL, "692231000117")], "", (Kind.BOARD_SERIAL,), id="amd-board-serial"
        ),
        pytest.param(
            GPU,
            AMD,
            [(Kind.GPU_UUID, "d3ff740f-0000-1000-80a1-7c52e9f0b46d")],
            "",
            (Kind.GPU_UNIQUE_ID,),
            id="amd-smi-uuid",
        ),
        pytest.param(
            FPGA, XILINX, [(Kind.BOARD_SERIAL, "XFL1RT5PM0AB")], "", (Kind.BOARD_SERIAL,), id="alveo"
        ),
        pytest.param(FPGA, INTEL, [(Kind.BOARD_SERIAL, "XFL1RT5PM0AB")], "", (), id="fpga-of-intel"),
        pytest.param(
            NIC, MELLANOX, [(Kind.BOARD_SERIAL, "MT2304XZ04QF")], "", (Kind.VPD_SERIAL,), id="connectx-serial"
        ),
        pytest.param(NIC, BROADCOM, [(Kind.BOARD_SERIAL, "VNFCVBA14I00AD")], "", (), id="number-of-an-oem"),
        pytest.param(
            NIC,
            INTEL,
            [(Kind.BOARD_SERIAL, "507C6F4A31D2")],
            "",
            (Kind.MAC, Kind.VPD_SERIAL),
            id="intel-serial",
        ),
        pytest.param(NIC, BROADCOM, [(Kind.MAC, "94:6d:ae:51:c0:2a")], "", (Kind.MAC,), id="mac"),
        pytest.param(NVME, None, [(Kind.NVME_SERIAL, "61X0A003TCD8")], "", (Kind.NVME_SERIAL,), id="drive"),
        pytest.param(NVME, None, [], "61X0A003TCD8", (Kind.NVME_SERIAL,), id="undeclared-serial-of-a-drive"),
        pytest.param(NVME, None, [], "N/A", (), id="placeholder"),
        pytest.param(CXL, None, [], "352000007", (Kind.PCIE_DSN,), id="cxl-serial-in-decimal"),
        pytest.param(CXL, None, [], "CMMD-A07713", (), id="printed-number-of-memory"),
        pytest.param(GPU, NVIDIA, [], "1654422009913", (), id="undeclared-serial-of-a-gpu"),
        pytest.param(GPU, NVIDIA, [], f"GPU-{UUID}", (Kind.GPU_UUID,), id="undeclared-uuid"),
        pytest.param(GPU, NVIDIA, [], DSN, (Kind.PCIE_DSN,), id="undeclared-dsn"),
        pytest.param(GPU, NVIDIA, [(Kind.PART_NUMBER, "2330-885-A1")], "", (), id="part-number"),
        pytest.param(
            ACCELERATOR, HABANA, [(Kind.VENDOR, "fuse-ver=01P4-HL3090A0")], "", (Kind.VENDOR,), id="gaudi"
        ),
        pytest.param(ACCELERATOR, HABANA, [(Kind.VENDOR, "tray=7")], "", (), id="vendors-own"),
        pytest.param(ACCELERATOR, HABANA, [], "01P4-HL3090A0-18-U4V195", (Kind.VENDOR,), id="hl-smi"),
    ],
)
def test_the_forecast_names_the_kinds_that_a_node_reads(
    device_class: DeviceClass,
    vendor: int | None,
    identifiers: list[tuple[Kind, str]],
    serial: str,
    expected: tuple[Kind, ...],
) -> None:
    device = contract.Device(
        id="d",
        device_class=device_class,
        pci_vendor_id=vendor,
        serial=serial or None,
        identifiers=tuple(_identifier(kind, text) for kind, text in identifiers),
    )
    forecast = recognition.forecast(device)
    assert forecast.kinds == expected
    assert forecast.means is (Means.IDENTIFIER if expected else Means.SOLE_ARRIVAL)
    assert recognition.forecast(device, has_slot=True).means is (Means.IDENTIFIER if expected else Means.SLOT)


def test_the_forecast_says_whether_the_driver_is_needed() -> None:
    uuid = contract.Device(id="d", device_class=GPU, identifiers=(_identifier(Kind.GPU_UUID, UUID),))
    dsn = contract.Device(id="d", device_class=GPU, identifiers=(_identifier(Kind.PCIE_DSN, DSN),))
    assert str(recognition.forecast(uuid)) == "gpu-uuid (once its driver is bound)"
    assert str(recognition.forecast(dsn)) == "pcie-dsn"
    assert str(recognition.forecast(contract.Device(id="d", device_class=GPU))) == "sole arrival"


@pytest.mark.parametrize(
    ("kind", "text", "reading", "value"),
    [
        (Kind.PCIE_DSN, "50-7c-6f-ff-ff-4a-31-d2", Kind.MAC, "50:7c:6f:4a:31:d2"),
        (Kind.PCIE_DSN, "00-0a-f7-ff-fe-9c-11-20", Kind.MAC, "00:0a:f7:9c:11:20"),
        (Kind.PCIE_DSN, "00-02-c9-03-00-12-34-56", Kind.NODE_GUID, "0002c90300123456"),
        (Kind.PCIE_DSN, "00-02-c9-03-00-12-34-56", Kind.MAC, "00:02:c9:12:34:56"),
        (Kind.NODE_GUID, "946d:ae03:0051:c02a", Kind.MAC, "94:6d:ae:51:c0:2a"),
        (Kind.NODE_GUID, "020a:f7ff:fe9c:1120", Kind.MAC, "00:0a:f7:9c:11:20"),
        (Kind.BOARD_SERIAL, "507C6F4A31D2", Kind.MAC, "50:7c:6f:4a:31:d2"),
        (Kind.BOARD_SERIAL, "B4:96:91:4A:31:D2", Kind.MAC, "b4:96:91:4a:31:d2"),
        (Kind.VPD_SERIAL, "B49691-4A31D2", Kind.MAC, "b4:96:91:4a:31:d2"),
        (Kind.BOARD_SERIAL, "B8599FFFFE4A31D2", Kind.MAC, "b8:59:9f:4a:31:d2"),
        (Kind.VPD_SERIAL, "BA:59:9F:FF:FE:4A:31:D2", Kind.MAC, "b8:59:9f:4a:31:d2"),
        (Kind.PCIE_DSN, "00-00-b0-83-fe-cf-d4-05", Kind.MAC, "b0:83:fe:cf:d4:05"),
        (Kind.BOARD_SERIAL, "MT2304XZ04QF", Kind.VPD_SERIAL, "mt2304xz04qf"),
        (Kind.VPD_SERIAL, "1EB0A04U0LP3", Kind.NVME_SERIAL, "1eb0a04u0lp3"),
        (Kind.GPU_UUID, "d3ff740f-0000-1000-80a1-7c52e9f0b46d", Kind.GPU_UNIQUE_ID, "d3a17c52e9f0b46d"),
        (Kind.VENDOR, "vpd-v3=5d0b3c7e9fb1ed118000946dae51c02a", Kind.MAC, "94:6d:ae:51:c0:2a"),
        (Kind.SERIAL, "d3ff740f-0000-1000-80a1-7c52e9f0b46d", Kind.GPU_UNIQUE_ID, "d3a17c52e9f0b46d"),
        (Kind.SERIAL, f"GPU-{UUID}", Kind.GPU_UUID, UUID),
        (Kind.SERIAL, "3e51a769a42db048", Kind.PCIE_DSN, "3e-51-a7-69-a4-2d-b0-48"),
        (Kind.SERIAL, "4660", Kind.PCIE_DSN, "00-00-00-00-00-00-12-34"),
        (Kind.SERIAL, "14662429805465559296", Kind.PCIE_DSN, "cb-7b-6a-39-22-df-e1-00"),
        (Kind.NVME_SERIAL, "0021340512", Kind.NVME_SERIAL, "21340512"),
        (Kind.BOARD_SERIAL, "0000692231000117", Kind.BOARD_SERIAL, "692231000117"),
        (Kind.NVME_SERIAL, "0000000061X0A003TCD8", Kind.NVME_SERIAL, "61x0a003tcd8"),
        (Kind.NVME_SERIAL, "2117-0A80-1234", Kind.NVME_SERIAL, "21170a801234"),
        (Kind.VPD_SERIAL, "MT 2304 XZ04QF", Kind.BOARD_SERIAL, "mt2304xz04qf"),
        (Kind.EUI64, "2b0a50318c382500", Kind.EUI64, "0025388c31500a2b"),
        (
            Kind.NGUID,
            "30463436-b052-3412-0025-384100000001",
            Kind.NGUID,
            "3634463052b012340025384100000001",
        ),
        (
            Kind.BOARD_SERIAL,
            "01P4-HL3090A0-18-U4V195-07-11-02",
            Kind.VENDOR,
            "fuse-ver=01p4-hl3090a0-18-u4v195-07-11-02",
        ),
        (Kind.PCIE_DSN, "48-b0-2d-a4-69-0f-21-9f", Kind.PCIE_DSN, "9f-21-0f-69-a4-2d-b0-48"),
        (Kind.PCIE_DSN, "d2-31-4a-ff-ff-6f-7c-50", Kind.MAC, "50:7c:6f:4a:31:d2"),
        (
            Kind.GPU_UUID,
            "6e1f0c6f-a152-0b7d-93c4-1b7f2f0a9d11",
            Kind.GPU_UUID,
            "6f0c1f6e-52a1-7d0b-93c4-1b7f2f0a9d11",
        ),
    ],
)
def test_an_identifier_is_read_as_another(kind: Kind, text: str, reading: Kind, value: str) -> None:
    expanded = recognition.expand((_identifier(kind, text),))
    made = [each for each in expanded if (each.kind, each.value) == (reading, value)]
    assert len(made) == 1
    assert isinstance(made[0], recognition.Derived)


def test_an_identifier_itself_is_not_derived_though_it_follows_from_another() -> None:
    mac = _identifier(Kind.MAC, "50:7c:6f:4a:31:d2")
    expanded = recognition.expand((_identifier(Kind.PCIE_DSN, "50-7c-6f-ff-ff-4a-31-d2"), mac))
    assert mac in expanded
    assert [each.value for each in expanded if each.kind is Kind.MAC] == [mac.value]


def test_the_dsn_of_a_gpu_is_no_mac_address() -> None:
    expanded = recognition.expand((_identifier(Kind.PCIE_DSN, DSN),))
    assert {each.kind for each in expanded} == {Kind.PCIE_DSN}


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.PCIE_DSN, "00-00-00-00-00-00-12-34"), (Kind.BOARD_SERIAL, "0012340300567890")],
)
def test_a_number_without_a_mac_address_is_none(kind: Kind, text: str) -> None:
    expanded = recognition.expand((_identifier(kind, text),))
    assert {Kind.MAC, Kind.NODE_GUID}.isdisjoint(each.kind for each in expanded)


@given(
    st.lists(st.tuples(st.sampled_from(list(Kind)), st.text("0123456789abcdef-:=", max_size=36)), max_size=80)
)
def test_readings_are_bounded_normal_and_stable(drawn: list[tuple[Kind, str]]) -> None:
    made = [each for kind, text in drawn if (each := witnesses.identifier(kind, text)) is not None]
    expanded = recognition.expand(made)
    assert len(expanded) <= 20 * witnesses.IDENTIFIERS_MAX
    assert all(witnesses.normal(each.kind, each.value) == each.value for each in expanded)
    assert {
        (each.kind, each.value) for each in recognition.expand(expanded[: witnesses.IDENTIFIERS_MAX])
    } <= {(each.kind, each.value) for each in expanded}
