"""The resources that are read for the identifiers of a device, as services of several makers link to them."""

import pytest
from tests.scenes.redfish_trees import ROOT, Tree, collection, link, links, target

from drawbar.fabric.redfish import entities, models, parts
from drawbar.fabric.redfish.documents import Document

CARD = f"{ROOT}/Chassis/1/PCIeDevices/7"
GPU = f"{ROOT}/Systems/1/Processors/Video.Slot.5-1"
ADAPTER = f"{ROOT}/Chassis/1/NetworkAdapters/NIC.Slot.8"
FUNCTIONS = f"{ADAPTER}/NetworkDeviceFunctions"


def resource(schema, uri, **properties):
    return {"@odata.type": f"#{schema}.v1_0_0.{schema}", "@odata.id": uri, **properties}


def function(name, mac):
    return resource("NetworkDeviceFunction", f"{FUNCTIONS}/{name}", Ethernet={"PermanentMACAddress": mac})


DISPLAY = resource("PCIeFunction", f"{CARD}/PCIeFunctions/0", DeviceClass="DisplayController")
NETWORK = resource(
    "PCIeFunction",
    f"{CARD}/PCIeFunctions/0",
    DeviceClass="NetworkController",
    Links={"NetworkDeviceFunctions": links(f"{FUNCTIONS}/1", f"{FUNCTIONS}/2")},
)
DISK = resource(
    "PCIeFunction",
    f"{CARD}/PCIeFunctions/0",
    ClassCode="0x010802",
    Links={"Drives": links(f"{ROOT}/Systems/1/Storage/1/Drives/0")},
)


def card(*functions, **properties):
    return resource("PCIeDevice", CARD, PCIeFunctions={"Members": list(functions)}, **properties)


async def read_identifiers(tree, *resources):
    """Return the device and the number of requests for its identifiers."""
    origin = Document.from_json(target("d"))
    listed = tuple(Document.from_json(each) for each in resources)
    listed = (*listed, *models.functions(listed))
    further = await parts.read_identifying(tree, [(origin, listed)])
    device = entities.device("d", origin, (*listed, *further[origin.uri]))
    return {(each.kind.value, each.value) for each in device.identifiers}, len(tree.reads)


@pytest.mark.parametrize(
    ("described", "read", "expected", "requests"),
    [
        pytest.param(
            [card(DISPLAY, SerialNumber=None, Links={"Processors": links(GPU)})],
            [resource("Processor", GPU, ProcessorType="GPU", SerialNumber="1654422009913")],
            {("board-serial", "1654422009913")},
            1,
            id="a-gpu-of-dell",
        ),
        pytest.param(
            [
                resource(
                    "Processor",
                    GPU,
                    Id="OAM_4",
                    ProcessorType="Accelerator",
                    Assembly=link(f"{GPU}/Assembly"),
                )
            ],
            [
                resource(
                    "Assembly",
                    f"{GPU}/Assembly",
                    Assemblies=[{"Name": "<OAM_4>#FRU", "SerialNumber": "AM27"}],
                )
            ],
            {("board-serial", "am27")},
            1,
            id="a-gaudi",
        ),
        pytest.param(
            [card(DISPLAY, Links={"Processors": links(GPU)})],
            [
                resource("Processor", GPU, ProcessorType="GPU", Assembly=link(f"{GPU}/Assembly")),
                resource("Assembly", f"{GPU}/Assembly", Assemblies=[{"SerialNumber": "AM27"}]),
            ],
            {("board-serial", "am27")},
            2,
            id="an-assembly-behind-a-processor",
        ),
        pytest.param(
            [card(NETWORK, SerialNumber="MT23")],
            [function("1", "94:6D:AE:51:C0:2A"), function("2", "94:6D:AE:51:C0:2B")],
            {("board-serial", "mt23"), ("mac", "94:6d:ae:51:c0:2a")},
            1,
            id="the-first-function-of-a-card-without-expand",
        ),
        pytest.param(
            [resource("NetworkAdapter", ADAPTER, NetworkDeviceFunctions=link(FUNCTIONS))],
            [
                collection(FUNCTIONS, "1", "2"),
                function("1", "94:6D:AE:51:C0:2A"),
                function("2", "94:6D:AE:51:C0:2B"),
            ],
            {("mac", "94:6d:ae:51:c0:2a")},
            2,
            id="the-first-function-of-an-adapter-without-expand",
        ),
        pytest.param(
            [resource("NetworkAdapter", ADAPTER, Ports=link(f"{ADAPTER}/Ports"))],
            [
                collection(f"{ADAPTER}/Ports", "1"),
                resource(
                    "Port", f"{ADAPTER}/Ports/1", Ethernet={"AssociatedMACAddresses": ["94:6D:AE:51:C0:2A"]}
                ),
            ],
            {("mac", "94:6d:ae:51:c0:2a")},
            2,
            id="ports-of-an-adapter",
        ),
        pytest.param(
            [card(DISK, SerialNumber="PHTBPKK16O02G7")],
            [
                resource(
                    "Drive",
                    f"{ROOT}/Systems/1/Storage/1/Drives/0",
                    Protocol="NVMe",
                    SerialNumber="61X0A003TCD8",
                )
            ],
            {("nvme-serial", "61x0a003tcd8")},
            1,
            id="a-drive",
        ),
        pytest.param(
            [resource("Storage", f"{ROOT}/S/1", Drives=links(f"{ROOT}/S/1/Drives/0"))],
            [resource("Drive", f"{ROOT}/S/1/Drives/0", Protocol="NVMe", SerialNumber="61X0A003TCD8")],
            {("nvme-serial", "61x0a003tcd8")},
            1,
            id="a-drive-of-a-storage-block",
        ),
        pytest.param(
            [card(NETWORK)],
            [],
            set(),
            0,
            id="functions-that-are-gone",
        ),
        pytest.param(
            [card(DISPLAY, SerialNumber="1654422009913", Links={"Processors": links(GPU)})],
            [resource("Processor", GPU, ProcessorType="GPU", UUID="8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55")],
            {("board-serial", "1654422009913"), ("gpu-uuid", "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55")},
            1,
            id="a-gpu-whose-printed-number-no-node-reads",
        ),
    ],
)
async def test_the_nearest_resource_with_an_identifier_is_read(described, read, expected, requests):
    assert await read_identifiers(Tree(*read), *described) == (expected, requests)


async def test_a_chain_of_links_ends():
    chain = [
        resource(
            "Processor",
            f"{GPU}-{number}",
            ProcessorType="GPU",
            Links={"Processors": links(f"{GPU}-{number + 1}")},
        )
        for number in range(9)
    ]
    shown, requests = await read_identifiers(Tree(*chain), chain[0])
    assert shown == set()
    assert requests == parts.ROUNDS


async def test_thousands_of_links_are_bounded():
    functions = [f"{FUNCTIONS}/{number}" for number in range(3000)]
    many = NETWORK | {"Links": {"NetworkDeviceFunctions": links(*functions)}}
    _, requests = await read_identifiers(
        Tree(*(resource("NetworkDeviceFunction", uri) for uri in functions)), card(many)
    )
    assert requests <= parts.ROUNDS
