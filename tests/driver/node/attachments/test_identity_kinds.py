"""Cards and devices of unusual kinds: several functions, virtual functions, batches, shared and reversed numbers.

Each row has the fabric's description, the node's functions, and the right outcome.
"""

import msgspec
import pytest
from tests.scenes import cards

from drawbar.driver.controller.attachments import identities
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.inventory import index, model
from drawbar.fabric import contract, witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

GPU, FPGA, NIC, NVME, CXL = (
    DeviceClass.GPU,
    DeviceClass.FPGA,
    DeviceClass.NIC,
    DeviceClass.NVME,
    DeviceClass.CXL_MEMORY,
)
OTHER, BRIDGE = DeviceClass.OTHER, DeviceClass.BRIDGE
H100, CONNECTX, E810, SSD, CMM = (
    (0x10DE, 0x2330),
    (0x15B3, 0x1021),
    (0x8086, 0x1592),
    (0x144D, 0xA824),
    (0x1B00, 0xC000),
)
N3000, N3000_NIC, CONNECTX_VF, PLX = (0x8086, 0x0B30), (0x8086, 0x0D58), (0x15B3, 0x101E), (0x10B5, 0x8747)
SMARTSSD, GOLDEN, INSTINCT = (0x10EE, 0x6987), (0x10EE, 0x903F), (0x1002, 0x740F)
UUID = "6f0c1f6e-52a1-7d0b-93c4-1b7f2f0a9d1"
BOARD = "board-serial=1654422007043"


def identifiers(*listed):
    pairs = (each.split("=", 1) for each in listed)
    made = (witnesses.identifier(Kind(kind), text, "sysfs") for kind, text in pairs)
    return tuple(each for each in made if each is not None)


def device(device_class, ids, *listed, serial=None):
    vendor, number = ids or (None, None)
    return contract.Device(
        id="d",
        device_class=device_class,
        pci_vendor_id=vendor,
        pci_device_id=number,
        serial=serial,
        identifiers=identifiers(*listed),
    )


def function(address, device_class, ids, *listed, **fields):
    described = {"vendor": ids[0], "device": ids[1], "driver": "x"} | fields
    made = cards.function(address, device_class, **described)
    return msgspec.structs.replace(made, identifiers=identifiers(*listed))


def in_slot(name, *functions):
    return tuple(msgspec.structs.replace(each, slot=name) for each in functions)


def outcome(described, functions, *, shared=(), **what):
    names = dict.fromkeys(each.slot for each in functions if each.slot)
    seen = index.Inventory(functions=tuple(functions), slots=tuple(map(cards.slot, names)))
    same = {(each.kind, each.value) for each in identifiers(*shared)}
    match = matching.match(seen, identities.identify(described, shared=same), **what)
    if isinstance(match, matching.Found):
        return match.card.address, match.by
    return type(match).__name__


ACCELERATOR_AND_NICS = (
    function("0000:41:00.0", FPGA, N3000),
    function("0000:41:00.1", NIC, N3000_NIC, "mac=64:4c:36:00:10:01"),
    function("0000:41:00.2", NIC, N3000_NIC, "mac=64:4c:36:00:10:02"),
)
PF = function(
    "0000:3b:00.0", NIC, CONNECTX, "mac=94:6d:ae:51:c0:20", sriov=model.Sriov(total_vfs=2, num_vfs=2)
)
WITH_VFS = (
    PF,
    *(
        function(
            f"0000:3b:00.{number}",
            NIC,
            CONNECTX_VF,
            f"mac=94:6d:ae:51:c0:2{number}",
            physical_function=PF.address,
        )
        for number in (1, 2)
    ),
)
GPU_WITH_AUDIO = (
    function("0000:17:00.0", GPU, H100, f"gpu-uuid={UUID}1", driver="nvidia"),
    function("0000:17:00.1", OTHER, (0x10DE, 0x22BA)),
)
BATCH = tuple(
    function(
        f"0000:5{number}:00.0",
        NVME,
        SSD,
        f"nvme-serial=S4EVNX0N50000{number}",
        f"pcie-dsn=00-25-38-8c-31-50-0a-0{number}",
    )
    for number in range(8)
)
BASEBOARD = tuple(
    function(f"0000:6{number}:00.0", GPU, H100, f"gpu-uuid={UUID}{number}", BOARD, driver="nvidia")
    for number in range(4)
)
TWINS = tuple(function(f"0000:0{bus}:00.0", NVME, SSD, "nvme-serial=SN7", slot=str(bus)) for bus in (1, 2))
OF_TWO_MAKERS = (TWINS[0], function("0000:02:00.0", NVME, (0x8086, 0x0A54), "nvme-serial=SN7"))
DISK_AND_FPGA = in_slot(
    "5",
    function("0000:05:00.0", NVME, SSD, "nvme-serial=SN8"),
    function("0000:06:00.0", FPGA, SMARTSSD),
)
BEHIND_VMD = (
    function("10000:01:00.0", NVME, SSD, "nvme-serial=VMD-A1"),
    function("10001:01:00.0", NVME, SSD, "nvme-serial=VMD-A2"),
    function("0000:01:00.0", NVME, SSD, "nvme-serial=VMD-A3"),
)
FAR = (function("deadbeef:01:00.0", NVME, SSD, "nvme-serial=VMD-A4"),)
ARI = tuple(
    function(
        f"0000:21:{number >> 3:02x}.{number & 7}",
        NIC,
        E810,
        f"mac=50:7c:6f:11:f2:{number:02x}",
        ari=number > 7,
    )
    for number in range(256)
)
NO_ARI = tuple(msgspec.structs.replace(each, ari=False) for each in ARI[:16])
HOPPER = (function("0000:17:00.0", GPU, H100, "pcie-dsn=9f-21-0f-69-a4-2d-b0-48", slot="5"),)
SAMSUNG = (function("0000:01:00.0", NVME, SSD, "pcie-dsn=2b-0a-50-31-8c-38-25-00", driver=None, slot="1"),)
LOGICAL_DEVICES = tuple(
    function(f"0000:c{bus}:00.0", CXL, CMM, "pcie-dsn=cb-7b-6a-39-22-df-e1-00") for bus in (1, 2)
)
ON_A_SWITCH = in_slot(
    "5",
    function("0000:17:00.0", BRIDGE, PLX, secondary_bus=0x18),
    function("0000:19:00.0", GPU, H100),
)
CROSSED = (
    function("0000:61:00.0", GPU, H100, f"gpu-uuid={UUID}1", "pcie-dsn=9f-21-0f-69-a4-2d-b0-41"),
    function("0000:62:00.0", GPU, H100, f"gpu-uuid={UUID}2", "pcie-dsn=9f-21-0f-69-a4-2d-b0-42"),
)
PORT = (function("0000:3b:00.0", NIC, CONNECTX, "mac=94:6d:ae:51:c0:20", slot="3"),)
FRU = (function("0000:01:00.0", GPU, INSTINCT, "board-serial=6922310001171234", driver="amdgpu", slot="1"),)
UNKNOWN_IMAGE = (function("0000:01:00.0", OTHER, GOLDEN, driver=None, slot="1"),)
WITH_ID = (
    function(
        "0000:01:00.0",
        GPU,
        INSTINCT,
        "gpu-unique-id=d3a17c52e9f0b46d",
        "board-serial=692231000117",
        driver="amdgpu",
    ),
)

CASES = {
    "fpga-by-a-nic-of-its-own": (
        device(FPGA, N3000, "mac=64:4c:36:00:10:02"),
        ACCELERATOR_AND_NICS,
        ("0000:41:00.0", "identifier"),
    ),
    "fpga-that-its-manager-calls-a-nic": (
        device(NIC, N3000_NIC, "mac=64:4c:36:00:10:01"),
        ACCELERATOR_AND_NICS,
        ("0000:41:00.0", "identifier"),
    ),
    "another-fpga-of-the-model": (
        device(FPGA, N3000, "mac=64:4c:36:00:99:01"),
        ACCELERATOR_AND_NICS,
        "Absent",
    ),
    "gpu-whose-manager-shows-the-ids-of-its-audio": (
        device(GPU, (0x10DE, 0x22BA), f"gpu-uuid={UUID}1"),
        GPU_WITH_AUDIO,
        ("0000:17:00.0", "identifier"),
    ),
    "the-address-of-a-virtual-function": (
        device(NIC, CONNECTX, "mac=94:6d:ae:51:c0:21"),
        WITH_VFS,
        "Absent",
    ),
    "the-addresses-of-both": (
        device(NIC, CONNECTX, "mac=94:6d:ae:51:c0:21", "mac=94:6d:ae:51:c0:20"),
        WITH_VFS,
        ("0000:3b:00.0", "identifier"),
    ),
    "a-device-of-the-ids-of-virtual-functions": (device(NIC, CONNECTX_VF), WITH_VFS, "Absent"),
    "a-virtual-function-in-a-guest": (
        device(NIC, CONNECTX_VF),
        (function("0000:3b:00.1", NIC, CONNECTX_VF),),
        ("0000:3b:00.1", "sole-arrival"),
    ),
    "one-of-a-batch": (
        device(NVME, SSD, "nvme-serial=S4EVNX0N500005"),
        BATCH,
        ("0000:55:00.0", "identifier"),
    ),
    "a-ninth-of-a-batch": (device(NVME, SSD, "nvme-serial=S4EVNX0N500009"), BATCH, "Absent"),
    "a-batch-by-its-prefix": (device(NVME, SSD, "nvme-serial=S4EVNX0N50000"), BATCH, "Absent"),
    "one-of-a-baseboard": (
        device(GPU, H100, f"gpu-uuid={UUID}2", BOARD),
        BASEBOARD,
        ("0000:62:00.0", "identifier"),
    ),
    "a-baseboard-by-its-serial-number": (device(GPU, H100, BOARD), BASEBOARD, "Unrecognised"),
    "a-baseboard-whose-manager-shows-other-uuids": (
        device(GPU, H100, "gpu-uuid=aaaa1f6e-52a1-7d0b-93c4-1b7f2f0a9d12", BOARD),
        BASEBOARD,
        "Ambiguous",
    ),
    "twins": (device(NVME, SSD, "nvme-serial=SN7"), TWINS, "Ambiguous"),
    "twins-of-two-makers": (
        device(NVME, SSD, "nvme-serial=SN7"),
        OF_TWO_MAKERS,
        ("0000:01:00.0", "identifier"),
    ),
    "numbers-of-two-cards": (
        device(GPU, H100, f"gpu-uuid={UUID}1", "pcie-dsn=9f-21-0f-69-a4-2d-b0-42"),
        CROSSED,
        "Absent",
    ),
    "disk-with-an-fpga": (
        device(NVME, SSD, "nvme-serial=SN8"),
        DISK_AND_FPGA,
        ("0000:06:00.0", "identifier"),
    ),
    "fpga-with-a-disk": (
        device(FPGA, SMARTSSD, "nvme-serial=SN8"),
        DISK_AND_FPGA,
        ("0000:06:00.0", "identifier"),
    ),
    "domain-above-ffff": (
        device(NVME, SSD, "nvme-serial=VMD-A2"),
        BEHIND_VMD,
        ("10001:01:00.0", "identifier"),
    ),
    "same-bus-of-another-domain": (
        device(NVME, SSD, "nvme-serial=VMD-A3"),
        BEHIND_VMD,
        ("0000:01:00.0", "identifier"),
    ),
    "domain-of-eight-digits": (
        device(NVME, SSD, "nvme-serial=VMD-A4"),
        FAR,
        ("deadbeef:01:00.0", "identifier"),
    ),
    "last-of-256-functions": (
        device(NIC, E810, "mac=50:7c:6f:11:f2:ff"),
        ARI,
        ("0000:21:00.0", "identifier"),
    ),
    "device-number-one-without-ari": (
        device(NIC, E810, "mac=50:7c:6f:11:f2:08"),
        NO_ARI,
        ("0000:21:01.0", "identifier"),
    ),
    "dsn-in-the-old-order-of-lspci": (
        device(GPU, H100, "pcie-dsn=48-b0-2d-a4-69-0f-21-9f"),
        HOPPER,
        ("0000:17:00.0", "identifier"),
    ),
    "another-dsn-in-the-old-order": (device(GPU, H100, "pcie-dsn=48-b0-2d-a4-69-0f-21-9e"), HOPPER, "Absent"),
    "uuid-in-the-order-of-smbios": (
        device(GPU, H100, "gpu-uuid=6e1f0c6f-a152-0b7d-93c4-1b7f2f0a9d11"),
        GPU_WITH_AUDIO,
        ("0000:17:00.0", "identifier"),
    ),
    "uuid-with-all-bytes-reversed": (
        device(GPU, H100, "gpu-uuid=119d0a2f-7f1b-c493-0b7d-a1526e1f0c6f"),
        GPU_WITH_AUDIO,
        "Absent",
    ),
    "eui-that-is-the-reversed-dsn": (device(NVME, SSD, "eui64=0025388c31500a2b"), SAMSUNG, "Absent"),
    "two-logical-devices-of-one-memory": (
        device(CXL, CMM, "pcie-dsn=cb-7b-6a-39-22-df-e1-00:0001"),
        LOGICAL_DEVICES,
        "Ambiguous",
    ),
    "memory-by-its-number-in-decimal": (
        device(CXL, CMM, serial="4660"),
        (function("0000:c1:00.0", CXL, CMM, "pcie-dsn=0x1234"),),
        ("0000:c1:00.0", "identifier"),
    ),
    "pattern-that-a-whole-model-shows": (
        device(CXL, CMM, "pcie-dsn=12-34-56-78-90-00-00-00"),
        (function("0000:c1:00.0", CXL, CMM, "pcie-dsn=12-34-56-78-90-00-00-00"),),
        ("0000:c1:00.0", "sole-arrival"),
    ),
    "disks-of-virtualbox": (
        device(NVME, (0x80EE, 0x4E56), "nvme-serial=VB1234-56789"),
        tuple(
            function(f"0000:0{bus}:00.0", NVME, (0x80EE, 0x4E56), "nvme-serial=VB1234-56789")
            for bus in (1, 2)
        ),
        "Unrecognised",
    ),
    "controllers-that-nobody-programmed": (
        device(NIC, E810, "mac=88:88:88:88:87:88"),
        (function("0000:3b:00.0", NIC, E810, "mac=88:88:88:88:87:88"),),
        ("0000:3b:00.0", "sole-arrival"),
    ),
    "text-of-a-tool-in-place-of-a-number": (
        device(GPU, H100, "board-serial=[Insufficient Permissions]"),
        (function("0000:17:00.0", GPU, H100, "board-serial=[Insufficient Permissions]"),),
        ("0000:17:00.0", "sole-arrival"),
    ),
    "the-number-of-another-label-of-an-amd-board": (
        device(GPU, INSTINCT, "gpu-unique-id=d3a17c52e9f0b46d", "board-serial=PCB052210-0076"),
        WITH_ID,
        ("0000:01:00.0", "identifier"),
    ),
    "a-unique-id-that-the-manager-shows-as-a-serial-number": (
        device(GPU, INSTINCT, "board-serial=0xd3a17c52e9f0b46d", serial="0xd3a17c52e9f0b46d"),
        WITH_ID,
        ("0000:01:00.0", "identifier"),
    ),
    "the-address-of-another-port-of-a-card-with-the-serial-number": (
        device(NIC, CONNECTX, "mac=b8:3f:d2:00:10:5c", "board-serial=MT2304XZ04QF"),
        (function("0000:03:00.0", NIC, CONNECTX, "mac=b8:3f:d2:00:10:50", "vpd-serial=MT2304XZ04QF"),),
        ("0000:03:00.0", "identifier"),
    ),
    "another-chip-of-a-board-with-one-serial-number": (
        device(NIC, CONNECTX, "mac=b8:3f:d2:00:10:50", "board-serial=MT2304XZ04QF"),
        (
            function("0000:03:00.0", NIC, CONNECTX, "mac=b8:3f:d2:00:10:50", "vpd-serial=MT2304XZ04QF"),
            function("0000:83:00.0", NIC, CONNECTX, "mac=b8:3f:d2:00:10:60", "vpd-serial=MT2304XZ04QF"),
        ),
        ("0000:03:00.0", "identifier"),
    ),
    "a-chip-without-its-address-beside-another-of-its-board": (
        device(NIC, CONNECTX, "mac=b8:3f:d2:00:10:50", "board-serial=MT2304XZ04QF"),
        (
            function("0000:03:00.0", NIC, CONNECTX, "vpd-serial=MT2304XZ04QF"),
            function("0000:83:00.0", NIC, CONNECTX, "mac=b8:3f:d2:00:10:60", "vpd-serial=MT2304XZ04QF"),
        ),
        "Ambiguous",
    ),
    "another-board-serial-of-amd": (
        device(GPU, INSTINCT, "board-serial=692231000118"),
        WITH_ID,
        "Absent",
    ),
}
IN_SLOT = {
    "fpga-of-another-address": (
        device(NIC, N3000_NIC, "mac=64:4c:36:00:99:01"),
        in_slot("4", *ACCELERATOR_AND_NICS),
        "4",
        "Wrong",
    ),
    "a-twin-in-the-slot-of-the-fabric": (
        device(NVME, SSD, "nvme-serial=SN7"),
        TWINS,
        "2",
        ("0000:02:00.0", "slot"),
    ),
    "a-virtual-functions-ids": (device(NIC, CONNECTX_VF), in_slot("3", *WITH_VFS), "3", "Wrong"),
    "another-dsn-in-either-order": (
        device(GPU, H100, "pcie-dsn=48-b0-2d-a4-69-0f-21-9e"),
        HOPPER,
        "5",
        "Wrong",
    ),
    "eui-that-is-the-reversed-dsn": (
        device(NVME, SSD, "eui64=0025388c31500a2b"),
        SAMSUNG,
        "1",
        ("0000:01:00.0", "slot"),
    ),
    "another-port-of-a-nic": (device(NIC, CONNECTX, "mac=94:6d:ae:51:c0:21"), PORT, "3", "Wrong"),
    "a-board-serial-that-the-kernel-cut": (
        device(GPU, INSTINCT, "board-serial=69223100011712345678"),
        FRU,
        "1",
        ("0000:01:00.0", "slot"),
    ),
    "a-golden-image-of-another-class": (
        device(FPGA, (0x10EE, 0x5004), "board-serial=XFL1LWAB5Y1M"),
        UNKNOWN_IMAGE,
        "1",
        ("0000:01:00.0", "slot"),
    ),
    "part-number-of-another-chip": (
        device(GPU, None, "part-number=2331-885-A1"),
        in_slot("5", function("0000:17:00.0", GPU, H100)),
        "5",
        "Wrong",
    ),
    "part-number-of-the-board": (
        device(GPU, H100, "part-number=900-21010-0200-600"),
        in_slot("5", function("0000:17:00.0", GPU, H100)),
        "5",
        ("0000:17:00.0", "slot"),
    ),
    "a-switch-and-nothing-behind-it": (device(GPU, H100), ON_A_SWITCH[:1], "5", "Wrong"),
    "a-card-with-a-switch": (device(GPU, H100), ON_A_SWITCH, "5", ("0000:19:00.0", "slot")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_device_among_the_cards_that_arrived_is_recognised_or_not_guessed(case):
    described, functions, expected = CASES[case]
    assert outcome(described, functions, arrivals=matching.Arrivals()) == expected


@pytest.mark.parametrize("case", IN_SLOT)
def test_a_card_in_the_slot_of_the_fabric_is_the_device_unless_it_contradicts(case):
    described, functions, slot, expected = IN_SLOT[case]
    assert outcome(described, functions, slot=slot) == expected


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_the_functions_decides_nothing(case):
    described, functions, expected = CASES[case]
    assert outcome(described, functions[::-1], arrivals=matching.Arrivals()) == expected


@pytest.mark.parametrize(
    ("shared", "expected"), [((), ("0000:60:00.0", "identifier")), ((BOARD,), "Wrong")], ids=["own", "shared"]
)
def test_only_a_board_serial_of_the_device_alone_excuses_another_uuid(shared, expected):
    """A manager may show another kind of UUID. On a baseboard, another UUID means the neighbour."""
    described = device(GPU, H100, f"gpu-uuid={UUID}3", BOARD)
    assert outcome(described, in_slot("5", *BASEBOARD[:1]), slot="5", shared=shared) == expected


def test_a_number_derived_on_both_sides_decides_and_not_the_model():
    described = device(NIC, E810, "board-serial=507C6F4A31D2")
    seen = index.Inventory(
        functions=(
            function("0000:3b:00.0", NIC, E810, "pcie-dsn=50-7c-6f-ff-ff-4a-31-d2", driver="vfio-pci"),
        )
    )
    match = matching.match(seen, identities.identify(described))
    assert isinstance(match, matching.Found)
    assert match.deciding.kind == Kind.MAC
