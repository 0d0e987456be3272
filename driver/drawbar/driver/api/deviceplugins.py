"""The cards of device plugins, by the names of their extended resources; pure.

A device plugin reports a resource and a number to the kubelet, never a PCI address. So all cards of its vendor and
kind count as given out. The table is ordered: the first pattern that fits a name decides. A DRA driver without
addresses of its devices is looked up in the same table, as `DRIVER/`.

Sources: the resource names in the code of NVIDIA/k8s-device-plugin, ROCm/k8s-device-plugin, Xilinx/FPGA_as_a_Service,
intel/intel-device-plugins-for-kubernetes and k8snetworkplumbingwg/sriov-network-device-plugin (its prefix is
`intel.com` unless it is configured), and the documentation of the others; pci.ids for the vendors.
"""

import fnmatch
import re
from collections.abc import Iterable

import msgspec

from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass

NOTHING = "none"


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """A set of cards.

    Attributes:
        vendors: their PCI vendors; None for any.
        classes: their classes; None for any.
    """

    vendors: frozenset[int] | None = None
    classes: frozenset[DeviceClass] | None = None

    def has(self, vendor: int, device_class: DeviceClass) -> bool:
        """Return whether a PCI function belongs to such a card."""
        return (self.vendors is None or vendor in self.vendors) and (
            self.classes is None or device_class in self.classes
        )


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a resource.

    Attributes:
        pattern: of the resource's name.
        cards: the cards among which the plugin gives out some.
    """

    pattern: str
    cards: tuple[Cards, ...]


_GPUS = frozenset({DeviceClass.GPU, DeviceClass.ACCELERATOR})
_COMPUTE = _GPUS | {DeviceClass.FPGA, DeviceClass.OTHER}
_NICS = frozenset({DeviceClass.NIC})
_NVIDIA, _MELLANOX, _AMD, _AMD_CPU, _XILINX, _PENSANDO = 0x10DE, 0x15B3, 0x1002, 0x1022, 0x10EE, 0x1DD8
_INTEL, _ALTERA, _HABANA, _BROADCOM = 0x8086, 0x1172, 0x1DA3, 0x14E4


def _row(pattern: str, *vendors: int, classes: frozenset[DeviceClass] | None = None) -> Row:
    return Row(pattern=pattern, cards=(Cards(vendors=frozenset(vendors), classes=classes),))


_ANY_NIC = Cards(classes=_NICS)
ROWS = (
    _row("nvidia.com/gpu*", _NVIDIA, classes=_GPUS),
    _row("nvidia.com/mig-*", _NVIDIA, classes=_GPUS),
    _row("gpu.nvidia.com/*", _NVIDIA, classes=_GPUS),
    # Channels between nodes, not GPUs.
    _row("compute-domain.nvidia.com/*"),
    # Passed-through GPUs by model, vGPUs, and network cards of the network operator.
    _row("nvidia.com/*", _NVIDIA, _MELLANOX),
    _row("*.nvidia.com/*", _NVIDIA, _MELLANOX),
    _row("mellanox.com/*", _MELLANOX, classes=_NICS),
    _row("amd.com/xilinx*", _XILINX),
    _row("amd.com/ama*", _XILINX),
    _row("xilinx.com/*", _XILINX),
    _row("amd.com/*nic*", _PENSANDO, classes=_NICS),
    _row("amd.com/gpu*", _AMD, classes=_GPUS),
    _row("gpu.amd.com/*", _AMD, classes=_GPUS),
    # The mixed strategy names partitions, such as amd.com/cpx_nps4; FPGAs may have names of their own.
    _row("amd.com/*", _AMD, _AMD_CPU, _XILINX, classes=_COMPUTE),
    _row("gpu.intel.com/*", _INTEL, classes=frozenset({DeviceClass.GPU})),
    _row("fpga.intel.com/*", _INTEL, _ALTERA, classes=frozenset({DeviceClass.FPGA, DeviceClass.ACCELERATOR})),
    _row("gaudi.intel.com/*", _HABANA),
    _row("habana.ai/*", _HABANA),
    # A part of the processor.
    _row("sgx.intel.com/*"),
    # QAT, DSA, IAA, DLB, NPU.
    _row("*.intel.com/*", _INTEL, classes=frozenset({DeviceClass.ACCELERATOR, DeviceClass.OTHER})),
    _row("intel.com/gpu*", _INTEL, classes=frozenset({DeviceClass.GPU})),
    # The default prefix of the SR-IOV plugin for cards of all makers; its accelerators are Intel's.
    Row(
        pattern="intel.com/*",
        cards=(
            _ANY_NIC,
            Cards(vendors=frozenset({_INTEL}), classes=_COMPUTE - {DeviceClass.GPU}),
        ),
    ),
    Row(pattern="openshift.io/*", cards=(_ANY_NIC,)),
    Row(pattern="rdma/*", cards=(_ANY_NIC,)),
    Row(pattern="sriovnetwork.k8snetworkplumbingwg.io/*", cards=(_ANY_NIC,)),
    _row("broadcom.com/*", _BROADCOM, classes=_NICS),
    _row("aws.amazon.com/*", 0x1D0F),
    _row("vpc.amazonaws.com/*", 0x1D0F),
    _row("google.com/tpu*", 0x1AE0),
    _row("tpu.google.com/*", 0x1AE0),
    _row("huawei.com/*", 0x19E5, classes=_COMPUTE),
    _row("cambricon.com/*", 0xCABC),
    _row("hygon.com/*", 0x1D94, classes=_COMPUTE),
    _row("qualcomm.com/*", 0x17CB, classes=_COMPUTE),
    _row("furiosa.ai/*", 0x1ED2),
    _row("tenstorrent.com/*", 0x1E52),
    _row("rebellions.ai/*", 0x1EFF),
    _row("mthreads.com/*", 0x1ED5),
    _row("enflame.com/*", 0x1E36),
    _row("metax-tech.com/*", 0x9999),
    _row("iluvatar.com/*", 0x1E3E),
    # Files of the kernel, not cards.
    _row("devices.kubevirt.io/*"),
    _row("smarter-devices/*"),
    _row("github.com/fuse"),
)

_SETTING = re.compile(
    r"(?P<pattern>[^=\s]+/[^=\s]+)=(?:(?P<vendor>0x[0-9a-fA-F]{4})?(?P<colon>:)?(?P<name>[a-z-]+)?)"
)


def find_cards(resource: str, configured: Iterable[Row] = ()) -> tuple[Cards, ...] | None:
    """Return the cards of which a resource's device plugin hands out some; None for a resource that no row names.

    Args:
        resource: the full name.
        configured: the administrator's rows, which come first.
    """
    for row in (*configured, *ROWS):
        if fnmatch.fnmatchcase(resource, row.pattern):
            return row.cards
    return None


def parse(setting: str) -> Row | str:
    """Return the row of a setting such as `example.com/*=nic`, `*/fec=0x8086:accelerator` or `x.io/y=none`, or the fault."""
    match = _SETTING.fullmatch(setting)
    classes = {str(listed): listed for listed in OFFERED_CLASSES}
    name = match["name"] if match is not None else ""
    is_whole = match is not None and bool(match["colon"]) == bool(match["vendor"] and name)
    if match is None or not (match["vendor"] or name) or not is_whole:
        return f"{setting!r} is not RESOURCE=CLASS, RESOURCE=VENDOR, RESOURCE=VENDOR:CLASS or RESOURCE=none"
    if name and name not in classes and name != NOTHING:
        return f"{setting!r} names no class of device: choose of {', '.join(classes)}, or {NOTHING}"
    if name == NOTHING:
        return Row(pattern=match["pattern"], cards=(Cards(vendors=frozenset()),))
    cards = Cards(
        vendors=frozenset({int(match["vendor"], 16)}) if match["vendor"] else None,
        classes=frozenset({classes[name]}) if name else None,
    )
    return Row(pattern=match["pattern"], cards=(cards,))
