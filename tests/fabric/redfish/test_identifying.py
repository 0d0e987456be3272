"""The adapter reads the resources that identify a device, and only those."""

import msgspec
import pytest

from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.redfish import transcripts
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.fabric.witnesses import Kind, normal
from drawbar.mocks import identities
from drawbar.mocks.redfish import Fault, FaultKind
from drawbar.mocks.redfish.configuration import Device, Enclosure

GPU = Device(id="gpu-1", kind="gpu", serial="1654422007043", vendor="NVIDIA")
DISK = Device(id="disk-1", kind="nvme", serial="61X0A003TCD8")
MEMORY = Device(id="memory-1", kind="cxl-memory", serial="0x3091117810000a27", memory_mib=1024)
NIC = Device(id="nic-1", kind="nic", serial="MT2242XZ00QA")
GAUDI = Device(id="oam-1", kind="accelerator", serial="AM27043696")
ZONES = {"enclosures": (Enclosure(id="e1", devices=(GPU, DISK, MEMORY, NIC, GAUDI)),)}
FORMS = {
    "zones": ZONES,
    "zones without $expand": ZONES | {"expand": False},
    "connections": {"method": "connections", "enclosures": (Enclosure(id="e1", devices=(MEMORY,)),)},
    "composition": {
        "method": "composition",
        "enclosures": (Enclosure(id="e1", devices=(GPU, DISK, GAUDI)),),
    },
}


def list_identifiers(device):
    return {(each.kind, each.value) for each in device.identifiers}


def by_id(devices):
    return {device.id.rpartition(".")[2]: device for device in devices}


async def read(redfish_lab, **form):
    service = await redfish_lab.serve(**form)
    adapter = await redfish_lab.connect(service)
    return by_id((await adapter.devices()).devices)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_device_shows_the_identifiers_of_its_kernel(redfish_lab, form):
    devices = await read(redfish_lab, **form)
    (enclosure,) = form["enclosures"]
    for device in enclosure.devices:
        seen = {
            (each.kind, each.value)
            for each in identities.defaults(DeviceClass(device.kind), device.serial)
            # The kernel alone reads these two: a manager shows the printed number.
            if each.kind is not Kind.VPD_SERIAL
            and not (device.kind == "accelerator" and each.kind is Kind.PCIE_DSN)
        }
        assert devices[device.id].device_class.value == device.kind
        assert seen <= list_identifiers(devices[device.id])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_no_serial_number_is_a_pcie_device_serial_number(redfish_lab, form):
    service = await redfish_lab.serve(**form)
    numbers = [service.tree[uri].get("SerialNumber") for uri in service.tree]
    assert [number for number in numbers if number and normal(Kind.PCIE_DSN, number)] == []


@pytest.mark.parametrize(("manners", "ids"), [("dell", 0x10DE), ("hpe", 0x10DE), ("supermicro", None)])
@pytest.mark.parametrize("expand", [True, False])
async def test_the_manners_of_makers_change_no_identifier_and_no_class(redfish_lab, manners, ids, expand):
    plain = await read(redfish_lab, **ZONES, expand=expand)
    odd = await read(redfish_lab, **ZONES, expand=expand, manners=manners)
    for name, device in odd.items():
        # The printed number of memory is at its PCIe device alone.
        lost = {(Kind.BOARD_SERIAL, "sn-memory-1")} if manners == "supermicro" else set()
        assert list_identifiers(device) == list_identifiers(plain[name]) - lost
    assert [device.device_class for device in odd.values()] == [
        device.device_class for device in plain.values()
    ]
    assert odd["gpu-1"].pci_vendor_id == ids
    assert odd["disk-1"].serial == "61X0A003TCD8"


async def requests(redfish_lab, **form):
    service = await redfish_lab.serve(**form)
    config = redfish_lab.config(service)
    recorder = transcripts.Recorder(config)
    async with await RedfishAdapter.connect(config, recorder):
        pass
    exchanges = transcripts.parse(msgspec.json.encode(recorder.transcript())).exchanges
    return [exchange.uri for exchange in exchanges if "NetworkDeviceFunctions" in exchange.uri]


@pytest.mark.parametrize(("expand", "each"), [(True, 1), (False, 2)])
async def test_a_network_card_costs_few_requests_more(redfish_lab, expand, each):
    cards = tuple(Device(id=f"nic-{number}", kind="nic") for number in range(8))
    read_for_them = await requests(
        redfish_lab, enclosures=(Enclosure(id="e1", devices=cards),), expand=expand
    )
    assert len(read_for_them) == each * len(cards)


async def test_a_device_with_an_identifier_costs_none(redfish_lab):
    assert await requests(redfish_lab, enclosures=(Enclosure(id="e1", devices=(GPU, DISK, MEMORY)),)) == []


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize("kind", [FaultKind.FORBIDDEN, FaultKind.HTML])
async def test_a_card_whose_functions_cannot_be_read_is_listed_without_addresses(redfish_lab, kind, expand):
    service = await redfish_lab.serve(**ZONES, expand=expand)
    service.faults.add(Fault(kind=kind, methods=("GET",), path="/NetworkDeviceFunctions", times=None))
    adapter = await redfish_lab.connect(service)
    devices = by_id((await adapter.devices()).devices)
    assert list_identifiers(devices["nic-1"]) == {(Kind.BOARD_SERIAL, "mt2242xz00qa")}
    assert (Kind.BOARD_SERIAL, "1654422007043") in list_identifiers(devices["gpu-1"])


async def test_an_answer_that_breaks_off_leaves_the_device_and_its_other_identifiers(redfish_lab):
    service = await redfish_lab.serve(**ZONES)
    service.faults.add(
        Fault(kind=FaultKind.HALF_BODY, methods=("GET",), path="/NetworkDeviceFunctions", times=None)
    )
    adapter = await redfish_lab.connect(service)
    inventory = await adapter.devices()
    assert inventory.devices
    assert inventory.unread == ()
