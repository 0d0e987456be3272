"""Each identifier that is not there has a reason, if it can still appear."""

import msgspec
import pytest

from drawbar.driver.node.inventory import model, silences
from drawbar.driver.node.inventory.model import Silence
from drawbar.fabric import witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind

UNBOUND, LATER = Silence.DRIVER_NOT_BOUND, Silence.NOT_INITIALISED
NODE = model.DeviceNode(path="/dev/x", major=1, minor=1, block=False, subsystem="drm")
STARTING = model.NvmeController(name="nvme0", state="connecting", model=None, firmware=None, serial=None)
NVME_KINDS = (Kind.NVME_SERIAL, Kind.NVME_NQN, Kind.EUI64, Kind.NGUID)


def make_function(device_class, vendor, driver, **changes):
    return msgspec.structs.replace(
        FUNCTION, device_class=device_class, vendor=vendor, driver=driver, **changes
    )


def make_identifiers(*kinds):
    return tuple(witnesses.Identifier(kind=kind, value="x") for kind in kinds)


FUNCTION = model.PciFunction(
    address="0000:17:00.0",
    path="devices/pci0000:00/0000:17:00.0",
    class_code=0,
    device_class=DeviceClass.OTHER,
    vendor=0x8086,
    device=1,
    subsystem_vendor=None,
    subsystem_device=None,
    driver=None,
    numa_node=None,
    pcie_root=None,
    link=model.Link(),
    serial=None,
    dsn=None,
    dsn_hidden=False,
    iommu_group=None,
    sriov=None,
    physical_function=None,
    slot=None,
    device_nodes=(),
    net_interfaces=(),
)
GPU, NVME, NIC, FPGA, CXL = (
    DeviceClass.GPU,
    DeviceClass.NVME,
    DeviceClass.NIC,
    DeviceClass.FPGA,
    DeviceClass.CXL_MEMORY,
)
CASES = {
    "a disk without a driver": (make_function(NVME, 0x144D, None), dict.fromkeys(NVME_KINDS, UNBOUND)),
    "a disk of a guest": (make_function(NVME, 0x144D, "vfio-pci"), dict.fromkeys(NVME_KINDS, UNBOUND)),
    "a disk that starts": (
        make_function(NVME, 0x144D, "nvme", nvme=(STARTING,)),
        dict.fromkeys(NVME_KINDS, LATER),
    ),
    "a disk that has reported all": (
        make_function(
            NVME,
            0x144D,
            "nvme",
            nvme=(msgspec.structs.replace(STARTING, serial="S"),),
            identifiers=make_identifiers(Kind.NVME_SERIAL),
        ),
        {},
    ),
    "a GPU of a guest": (
        make_function(GPU, 0x10DE, "vfio-pci", identifiers=make_identifiers(Kind.PCIE_DSN)),
        {Kind.GPU_UUID: UNBOUND},
    ),
    "a GPU that is not initialised": (
        make_function(GPU, 0x10DE, "nvidia", unread=((Kind.GPU_UUID, LATER),)),
        {Kind.GPU_UUID: LATER},
    ),
    "a GPU that is initialised": (
        make_function(GPU, 0x10DE, "nvidia", identifiers=make_identifiers(Kind.GPU_UUID)),
        {},
    ),
    "a GPU of AMD without a number": (make_function(GPU, 0x1002, "amdgpu", device_nodes=(NODE,)), {}),
    "a GPU of AMD that starts": (
        make_function(GPU, 0x1002, "amdgpu"),
        {Kind.GPU_UNIQUE_ID: LATER, Kind.BOARD_SERIAL: LATER},
    ),
    "a GPU of another maker": (make_function(GPU, 0x8086, None), {}),
    "a network card without a driver": (
        make_function(NIC, 0x15B3, None, unread=((Kind.VPD_SERIAL, Silence.VPD_SLOW),)),
        {Kind.MAC: UNBOUND, Kind.NODE_GUID: UNBOUND, Kind.VPD_SERIAL: Silence.VPD_SLOW},
    ),
    "a network card whose data may not be read": (
        make_function(
            NIC,
            0x8086,
            "ice",
            net_interfaces=("e0",),
            dsn_hidden=True,
            unread=((Kind.VPD_SERIAL, Silence.NO_PRIVILEGE),),
        ),
        {Kind.VPD_SERIAL: Silence.NO_PRIVILEGE, Kind.PCIE_DSN: Silence.NO_PRIVILEGE},
    ),
    "a network card whose interface comes later": (make_function(NIC, 0x8086, "ice"), {Kind.MAC: LATER}),
    "an FPGA with its golden image": (
        make_function(FPGA, 0x10EE, "xdma"),
        {Kind.BOARD_SERIAL: UNBOUND, Kind.MAC: UNBOUND},
    ),
    "CXL memory with a number in configuration space": (
        make_function(CXL, 0x1B00, None, identifiers=make_identifiers(Kind.PCIE_DSN)),
        {},
    ),
    "a bridge": (make_function(DeviceClass.BRIDGE, 0x15B3, None, dsn_hidden=True), {}),
    "a virtual function": (make_function(NIC, 0x15B3, None, physical_function="0000:17:00.1"), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_kind_that_can_appear_has_its_reason(case):
    function, expected = CASES[case]
    assert silences.silences(function) == expected
    assert silences.is_lagging(function) == (LATER in expected.values())


PENDING = {
    "no driver yet": (make_function(NVME, 0x144D, None), frozenset(NVME_KINDS)),
    "a driver for a guest": (make_function(NVME, 0x144D, "vfio-pci"), frozenset()),
    "the driver of another": (make_function(GPU, 0x10DE, "nouveau"), frozenset()),
    "no addresses for its memory": (make_function(NVME, 0x144D, None, unassigned_bars=(0,)), frozenset()),
    "a driver that starts": (make_function(NIC, 0x8086, "ice"), {Kind.MAC}),
    "slow and forbidden reads": (
        make_function(
            NIC,
            0x15B3,
            None,
            unassigned_bars=(0,),
            dsn_hidden=True,
            unread=((Kind.VPD_SERIAL, Silence.VPD_SLOW), (Kind.BOARD_SERIAL, Silence.NO_PRIVILEGE)),
        ),
        {Kind.VPD_SERIAL},
    ),
    "nothing more to show": (make_function(NIC, 0x8086, "ice", net_interfaces=("e0",)), frozenset()),
}


@pytest.mark.parametrize("case", PENDING)
def test_a_kind_whose_reason_passes_by_itself_is_pending(case):
    function, expected = PENDING[case]
    assert silences.find_pending(function) == expected
