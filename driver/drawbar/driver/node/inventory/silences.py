"""The identifiers that a function may show later, each kind with the reason. Pure.

A card without a common identifier is recognised by weaker signs, such as its arrival. The reasons decide whether the node
reads the card again. After a card's arrival its driver is bound, a GPU is initialised, and Vital Product Data is read. A
kind that the card can never show is not listed.
"""

from collections.abc import Iterator, Mapping

import msgspec

from drawbar.driver.node.inventory.model import PciFunction, Silence
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind

_GUEST_DRIVERS = frozenset(
    {None, "vfio-pci", "pci-stub", "pciback", "xen-pciback", "uio_pci_generic", "igb_uio"}
)
"""Drivers without any further identifiers of a function."""


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of identifiers that drivers show for a class of functions.

    Attributes:
        vendor: the function's vendor; None for all.
        drivers: one of these must be bound; empty for any driver except a guest's.
        can_lag: a bound function that shows nothing is not yet initialised.
    """

    device_class: DeviceClass
    kinds: frozenset[Kind]
    vendor: int | None = None
    drivers: frozenset[str] = frozenset()
    can_lag: bool = True

    def concerns(self, function: PciFunction) -> bool:
        return function.device_class is self.device_class and self.vendor in (None, function.vendor)

    def is_bound(self, function: PciFunction) -> bool:
        if self.drivers:
            return function.driver in self.drivers
        return function.driver not in _GUEST_DRIVERS


_RULES = (
    _Rule(
        device_class=DeviceClass.NVME,
        kinds=frozenset({Kind.NVME_SERIAL, Kind.NVME_NQN, Kind.EUI64, Kind.NGUID}),
        drivers=frozenset({"nvme"}),
    ),
    _Rule(
        device_class=DeviceClass.GPU,
        vendor=0x10DE,
        kinds=frozenset({Kind.GPU_UUID}),
        drivers=frozenset({"nvidia"}),
        # The driver shows the GPU before it has initialised it; `PciFunction.unread` has the reason.
        can_lag=False,
    ),
    _Rule(
        device_class=DeviceClass.GPU,
        vendor=0x1002,
        kinds=frozenset({Kind.GPU_UNIQUE_ID, Kind.BOARD_SERIAL}),
        drivers=frozenset({"amdgpu"}),
    ),
    _Rule(
        device_class=DeviceClass.ACCELERATOR,
        vendor=0x1DA3,
        kinds=frozenset({Kind.VENDOR}),
        drivers=frozenset({"habanalabs"}),
    ),
    _Rule(
        device_class=DeviceClass.FPGA,
        vendor=0x10EE,
        kinds=frozenset({Kind.BOARD_SERIAL, Kind.MAC}),
        drivers=frozenset({"xclmgmt", "xocl"}),
        can_lag=False,
    ),
    _Rule(
        device_class=DeviceClass.FPGA,
        vendor=0x8086,
        kinds=frozenset({Kind.MAC}),
        drivers=frozenset({"dfl-pci"}),
    ),
    _Rule(
        device_class=DeviceClass.CXL_MEMORY, kinds=frozenset({Kind.PCIE_DSN}), drivers=frozenset({"cxl_pci"})
    ),
    _Rule(device_class=DeviceClass.NIC, kinds=frozenset({Kind.MAC})),
    _Rule(device_class=DeviceClass.NIC, vendor=0x15B3, kinds=frozenset({Kind.NODE_GUID})),
)


def silences(function: PciFunction) -> Mapping[Kind, Silence]:
    """Return the kinds that the function may show later, each with the reason."""
    if function.device_class is DeviceClass.BRIDGE or function.physical_function is not None:
        return {}
    shown = {each.kind for each in function.identifiers}
    # The reason from an attempted read is more exact.
    reasons = {
        kind: silence for kind, silence in (*_unshown(function), *function.unread) if kind not in shown
    }
    if function.dsn_hidden and Kind.PCIE_DSN not in shown:
        reasons[Kind.PCIE_DSN] = Silence.NO_PRIVILEGE
    return reasons


def find_pending(function: PciFunction) -> frozenset[Kind]:
    """Return the kinds that the function may show soon: it waits for a driver to be bound, a read, or its driver's work.

    The kernel binds no driver to a function whose memory has no addresses, and never unbinds one by itself.
    """
    can_bind = function.driver is None and not function.unassigned_bars
    passing = {Silence.NOT_INITIALISED, Silence.VPD_SLOW, *((Silence.DRIVER_NOT_BOUND,) if can_bind else ())}
    return frozenset(kind for kind, silence in silences(function).items() if silence in passing)


def is_lagging(function: PciFunction) -> bool:
    """Return whether identifiers can appear without an event, because the driver has not yet initialised the function."""
    return Silence.NOT_INITIALISED in silences(function).values()


def _unshown(function: PciFunction) -> Iterator[tuple[Kind, Silence]]:
    for rule in _RULES:
        if not rule.concerns(function):
            continue
        if not rule.is_bound(function):
            yield from ((kind, Silence.DRIVER_NOT_BOUND) for kind in rule.kinds)
        elif rule.can_lag and _is_starting(function):
            yield from ((kind, Silence.NOT_INITIALISED) for kind in rule.kinds)


def _is_starting(function: PciFunction) -> bool:
    """Return whether the bound driver has not yet made its controllers, files or interfaces."""
    if function.device_class is DeviceClass.NVME:
        return not function.nvme or any(not controller.serial for controller in function.nvme)
    return not (function.device_nodes or function.net_interfaces)
