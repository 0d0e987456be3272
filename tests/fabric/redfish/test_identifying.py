"""The adapter reads the resources that identify a device, and only those."""

import msgspec
import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, adapting, link, put_host

from drawbar.fabric import recognition
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


# --- a number that no node reads ends no search ---

CHASSIS = f"{ROOT}/Chassis/c"
CARD, PROCESSOR = f"{CHASSIS}/PCIeDevices/1", f"{ROOT}/Systems/hgx/Processors/1"
ADAPTER = f"{CHASSIS}/NetworkAdapters/1"
FUNCTION, PORT = f"{CARD}/PCIeFunctions/0", f"{ADAPTER}/NetworkDeviceFunctions/1"
LOGICAL, MEMORY_URI = f"{CARD}/CXLLogicalDevices/1", f"{CHASSIS}/Memory/1"
UUID = "6f0c1f6e-52a1-7d0b-93c4-1b7f2f0a9d11"
GCXLID = {"DurableName": "CB-7B-6A-39-22-DF-E1-00:0000", "DurableNameFormat": "GCXLID"}
PRINTED = {"SerialNumber": "1654422007043"}
OF_NVIDIA = {"ProcessorType": "GPU", "Manufacturer": "NVIDIA"}
OF_AMD = {"ProcessorType": "GPU", "Manufacturer": "AMD"}
BY_GCXLID = (Kind.PCIE_DSN, "cb-7b-6a-39-22-df-e1-00")
# The endpoint's link and class code, the other resources by URI, and the identifier to be found.
LATER = {
    "UUID of the card's processor": (
        CARD,
        "0x030200",
        {
            CARD: {**PRINTED, "Links": {"Processors": [link(PROCESSOR)]}},
            PROCESSOR: {**OF_NVIDIA, "UUID": UUID},
        },
        (Kind.GPU_UUID, UUID),
    ),
    "UUID of the processor's card": (
        PROCESSOR,
        "0x030200",
        {PROCESSOR: {**OF_NVIDIA, **PRINTED, "Links": {"PCIeDevice": link(CARD)}}, CARD: {"UUID": UUID}},
        (Kind.GPU_UUID, UUID),
    ),
    "UUID two links away from a function": (
        FUNCTION,
        "0x030200",
        {
            FUNCTION: {"ClassCode": "0x030200", "Links": {"PCIeDevice": link(CARD)}},
            CARD: {**PRINTED, "Links": {"Processors": [link(PROCESSOR)]}},
            PROCESSOR: {**OF_NVIDIA, "UUID": UUID},
        },
        (Kind.GPU_UUID, UUID),
    ),
    "number of another label of the board": (
        PROCESSOR,
        "0x120000",
        {
            PROCESSOR: {**OF_AMD, "SerialNumber": "PCB052210-0076", "Links": {"PCIeDevice": link(CARD)}},
            CARD: {"SerialNumber": "692231000117"},
        },
        (Kind.BOARD_SERIAL, "692231000117"),
    ),
    "address behind a PCIe function": (
        CARD,
        "0x020000",
        {
            CARD: {"SerialNumber": "MT2304XZ04QF", "Links": {"PCIeFunctions": [link(FUNCTION)]}},
            FUNCTION: {"ClassCode": "0x020000", "Links": {"NetworkDeviceFunctions": [link(PORT)]}},
            PORT: {"Ethernet": {"PermanentMACAddress": "94:6d:ae:51:c0:2a"}},
        },
        (Kind.MAC, "94:6d:ae:51:c0:2a"),
    ),
    "address behind an adapter's controller": (
        ADAPTER,
        "0x020000",
        {
            ADAPTER: {"Controllers": [{"Links": {"NetworkDeviceFunctions": [link(PORT)]}}]},
            PORT: {"Ethernet": {"PermanentMACAddress": "94:6d:ae:51:c0:2a"}},
        },
        (Kind.MAC, "94:6d:ae:51:c0:2a"),
    ),
    "address of a port of an old adapter": (
        ADAPTER,
        "0x020000",
        {
            ADAPTER: {"NetworkPorts": link(f"{ADAPTER}/NetworkPorts")},
            f"{ADAPTER}/NetworkPorts": {
                "Members": [link(f"{ADAPTER}/NetworkPorts/1")],
                "Members@odata.count": 1,
            },
            f"{ADAPTER}/NetworkPorts/1": {
                "@odata.type": "#NetworkPort.v1_2_0.NetworkPort",
                "AssociatedNetworkAddresses": ["946DAE51C02A"],
            },
        },
        (Kind.MAC, "94:6d:ae:51:c0:2a"),
    ),
    "UUID of a GPU whose audio is listed first": (
        CARD,
        None,
        {
            CARD: {
                "UUID": UUID,
                "Links": {"PCIeFunctions": [link(f"{CARD}/PCIeFunctions/1"), link(FUNCTION)]},
            },
            f"{CARD}/PCIeFunctions/1": {"ClassCode": "0x040300"},
            FUNCTION: {"ClassCode": "0x030200"},
        },
        (Kind.GPU_UUID, UUID),
    ),
    "GCXLID of a memory's logical device": (
        MEMORY_URI,
        None,
        {
            MEMORY_URI: {"SerialNumber": "CMMD-A07713", "CXL": {"LabelStorageSizeBytes": 0}}
            | {"Links": {"CXLLogicalDevices": [link(LOGICAL)]}},
            LOGICAL: {"Identifiers": [GCXLID]},
        },
        BY_GCXLID,
    ),
    "GCXLID of a card's logical device": (
        CARD,
        None,
        {
            CARD: {"SerialNumber": "CMMD-A07713", "CXLDevice": {"DeviceType": "Type3"}}
            | {"CXLLogicalDevices": link(f"{CARD}/CXLLogicalDevices")},
            f"{CARD}/CXLLogicalDevices": {"Members": [link(LOGICAL)], "Members@odata.count": 1},
            LOGICAL: {"Identifiers": [GCXLID]},
        },
        BY_GCXLID,
    ),
}


@pytest.mark.parametrize("case", LATER)
async def test_a_serial_number_that_no_node_reads_ends_no_search(case):
    linked, class_code, resources, wanted = LATER[case]
    made = redfish_servers.Service()
    for uri, properties in resources.items():
        made.put(uri, **properties)
    entity = {"EntityType": "PCIeDevice", "EntityRole": "Target", "EntityLink": link(linked)}
    if class_code is not None:
        entity["EntityPciId"] = {"ClassCode": class_code}
    made.put_fabric("PCIe", {"h1": put_host(made, "h1"), "card": entity})
    async with adapting(made) as adapter:
        (device,) = (await adapter.devices()).devices
    assert wanted in list_identifiers(device)


@pytest.mark.parametrize(
    ("processor", "class_code", "ids"),
    [
        ({**OF_AMD, "SerialNumber": "692413001234"}, "0x120000", (0x1002, 0x74A1)),
        ({"ProcessorType": "FPGA", "SerialNumber": "XFL1RT5PM0AB"}, "0x120000", (0x10EE, 0x505C)),
    ],
    ids=["MI300X", "Alveo"],
)
@pytest.mark.parametrize("owner", ["processor", "card"])
async def test_a_printed_serial_number_comes_with_the_vendor_whose_driver_reads_it(
    processor, class_code, ids, owner
):
    made = redfish_servers.Service()
    functions = {"PCIeFunctions": [link(FUNCTION)]}
    of_processor, of_card = (functions, {}) if owner == "processor" else ({}, functions)
    made.put(PROCESSOR, **processor, Links={"PCIeDevice": link(CARD), **of_processor})
    made.put(CARD, Links=of_card)
    made.put(FUNCTION, VendorId=f"{ids[0]:#06x}", DeviceId=f"{ids[1]:#06x}", ClassCode=class_code)
    entity = {"EntityType": "Processor", "EntityRole": "Target", "EntityLink": link(PROCESSOR)}
    made.put_fabric("PCIe", {"h1": put_host(made, "h1"), "card": entity})
    async with adapting(made) as adapter:
        (device,) = (await adapter.devices()).devices
    assert (device.pci_vendor_id, device.pci_device_id) == ids
    assert recognition.forecast(device).kinds == (Kind.BOARD_SERIAL,)
