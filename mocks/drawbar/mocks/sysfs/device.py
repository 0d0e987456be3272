"""The cards for the slots of a mocked host."""

import dataclasses
import functools

from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Identifier, Kind, normal
from drawbar.mocks import identities
from drawbar.mocks.sysfs import errors, functions

_SERIAL_CHARACTERS = 64
_NVME_SERIAL_BYTES = 20  # NVM Express Base Specification, Identify Controller, SN

CLASS_CODES = {
    DeviceClass.GPU: 0x030200,
    DeviceClass.ACCELERATOR: 0x120000,
    DeviceClass.FPGA: 0x120000,
    DeviceClass.NVME: 0x010802,
    DeviceClass.CXL_MEMORY: 0x050210,
    DeviceClass.NIC: 0x020000,
    DeviceClass.OTHER: 0x088000,
}
_DRIVERS = {
    DeviceClass.GPU: "amdgpu",
    DeviceClass.ACCELERATOR: "habanalabs",
    DeviceClass.FPGA: "dfl-pci",
    DeviceClass.NVME: "nvme",
    DeviceClass.CXL_MEMORY: "cxl_pci",
    DeviceClass.NIC: "mlx5_core",
}
USUAL_LANES = {
    DeviceClass.GPU: 16,
    DeviceClass.ACCELERATOR: 16,
    DeviceClass.FPGA: 16,
    DeviceClass.NVME: 4,
    DeviceClass.CXL_MEMORY: 8,
    DeviceClass.NIC: 16,
    DeviceClass.OTHER: 1,
}
"""The usual number of lanes of a real card. QEMU's cards, and a `MockDevice` by default, have one."""
_REGISTER_BYTES = 64 << 10
_MAPPED = (DeviceClass.GPU, DeviceClass.ACCELERATOR)
_MAPPED_BYTES = 256 << 20
MOST_VFS = 255
"""The limit with all on the card's own bus, at consecutive routing ids (PCI Express Base Specification, 9.2.1.2)."""
_DRIVERS_BY_VENDOR = {
    (DeviceClass.GPU, 0x10DE): "nvidia",
    (DeviceClass.GPU, 0x8086): "xe",
    (DeviceClass.NIC, 0x8086): "ice",
    (DeviceClass.FPGA, 0x10EE): "xclmgmt",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MockDevice:
    """A card with one or more functions, and optional virtual functions.

    Attributes:
        device_class: its class; it decides the class code, the default driver and the driver's devices.
        vendor: its PCI vendor id. A kernel recognises an FPGA only by the vendor (0x10ee Xilinx, 0x1172 Altera).
        device: its PCI device id.
        serial: its printed serial number. For NVMe it is a text of at most 20 bytes; for CXL memory a number, decimal or
            after 0x; for every other class a text of at most 64 characters. In the form `xx-xx-xx-xx-xx-xx-xx-xx` it is also
            the Device Serial Number.
        identifiers: its identifiers by kind; None for those from `serial` by `identities.defaults`. The kernel shows only
            some kinds: a GPU's UUID, but a board serial number only if the driver has a file for it.
        initialised: true if NVIDIA's driver has initialised the GPU and knows its UUID; see `SysfsTree.initialise`.
        driver: its kernel driver; None for the usual one of class and vendor, "" for none. Without a driver there are no
            devices below the function.
        memory_bytes: the capacity of the NVMe namespace, of the CXL memory or of the GPU's memory, in bytes.
        persistent: true for CXL memory that keeps its content without power, as all of QEMU 7.2 does.
        link_speed_gts: the maximum speed of its link in GT/s per lane.
        link_width: the maximum number of lanes of its link.
        aer: true if it counts PCI Express errors, as most cards do; QEMU's do not.
        total_vfs: the maximum number of virtual functions; 0 without SR-IOV.
        vf_device: the PCI device id of virtual functions; None for the card's own.
        vf_driver: the driver of virtual functions; None for none.
        unassigned: true if the kernel has no addresses for its memory, so that no driver binds.
        code: an unusual class code; None for the usual one.
        further: its other functions. Their drivers stay bound while the card is attached. Of each only the class, the
            ids, the driver and the driver's devices are used.
        beside: true for a further function of the previous function's device, even if the card has a switch.
        ari: true if its functions are numbered over all device numbers of the bus, up to 256.
        switch: true if its functions are behind a switch of its own, each on its own bus unless it is `beside` another.
        partitions: the number of partitions of an AMD GPU.
        representors: the number of representors of a network card in switchdev mode.
        minor: the number of a GPU in NVIDIA's driver; its files in /proc and /dev then lie beside the tree. Without a
            number, a GPU with a UUID gets one.
    """

    device_class: DeviceClass
    vendor: int
    device: int
    serial: str | None = None
    identifiers: tuple[Identifier, ...] | None = None
    initialised: bool = True
    driver: str | None = None
    memory_bytes: int = 0
    persistent: bool = False
    link_speed_gts: float = 2.5
    link_width: int = 1
    aer: bool = True
    total_vfs: int = 0
    vf_device: int | None = None
    vf_driver: str | None = None
    unassigned: bool = False
    code: int | None = None
    further: "tuple[MockDevice, ...]" = ()
    beside: bool = False
    ari: bool = False
    switch: bool = False
    partitions: int = 1
    representors: int = 0
    minor: int | None = None

    @property
    def bars(self) -> tuple[functions.Bar, ...]:
        """Return its memory BARs: registers, and for GPUs and accelerators the memory."""
        registers = functions.Bar(number=0, size=_REGISTER_BYTES)
        if self.device_class not in _MAPPED:
            return (registers,)
        mapped = max(_MAPPED_BYTES, 1 << max(self.memory_bytes - 1, 0).bit_length())
        mapped = min(mapped, functions.PREFETCHABLE_BYTES)
        return (registers, functions.Bar(number=2, size=mapped, prefetchable=True))

    def with_usual_link(self, speed_gts: float = 16.0) -> "MockDevice":
        """Return the same card with the lanes of a real one of its class."""
        return dataclasses.replace(self, link_speed_gts=speed_gts, link_width=USUAL_LANES[self.device_class])

    @property
    def class_code(self) -> int:
        """Return the class code, 24 bits: base class, subclass, programming interface."""
        return CLASS_CODES[self.device_class] if self.code is None else self.code

    @property
    def functions(self) -> "tuple[MockDevice, ...]":
        """Return all functions, the first one before the further ones."""
        return (self, *self.further)

    @property
    def buses(self) -> int:
        """Return the number of buses behind its port."""
        return 2 + sum(not each.beside for each in self.functions) if self.switch else 1

    @property
    def bound_driver(self) -> str | None:
        """Return the driver that binds to it, or None."""
        if self.unassigned:
            return None
        if self.driver is not None:
            return self.driver or None
        usual = _DRIVERS.get(self.device_class)
        return _DRIVERS_BY_VENDOR.get((self.device_class, self.vendor), usual)

    @property
    def serial_number(self) -> int | None:
        """Return the 64-bit Device Serial Number in its configuration space, or None."""
        if self.device_class is DeviceClass.CXL_MEMORY and self.identifiers is None:
            return int(self.serial, 0) if self.serial is not None else None
        text = self.text(Kind.PCIE_DSN) or _usual_number(self)
        return int(text.replace("-", ""), 16) if text else None

    def text(self, kind: Kind) -> str | None:
        """Return the text of the first identifier of this kind, as a kernel writes it, or None."""
        return next(iter(self.texts(kind)), None)

    def texts(self, kind: Kind) -> tuple[str, ...]:
        """Return the texts of all identifiers of this kind."""
        listed = _defaults(self.device_class, self.serial) if self.identifiers is None else self.identifiers
        return tuple(self._spelt(each) for each in listed if each.kind is kind)

    def _spelt(self, identifier: Identifier) -> str:
        """Return the given serial number if the identifier is its normal form, else the identifier's value."""
        serial = self.serial or ""
        return serial if normal(identifier.kind, serial) == identifier.value else identifier.value

    def check(self) -> None:
        """Raise ImpossibleWorld unless such a card can exist."""
        if self.device_class not in CLASS_CODES:
            raise errors.ImpossibleWorld(f"a device of the class {self.device_class} is no card for a slot")
        for name, value in (
            ("vendor", self.vendor),
            ("device", self.device),
            ("vf_device", self.vf_device or 0),
        ):
            if not 0 <= value < 0xFFFF:
                raise errors.ImpossibleWorld(f"{name} {value:#x} is no PCI id: give one below 0xffff")
        if self.memory_bytes < 0:
            raise errors.ImpossibleWorld(f"a device cannot have {self.memory_bytes} bytes of memory")
        if not 0 <= self.total_vfs <= MOST_VFS:
            raise errors.ImpossibleWorld(
                f"a card can have 0 to {MOST_VFS} virtual functions, not {self.total_vfs}"
            )
        if self.persistent and self.device_class is not DeviceClass.CXL_MEMORY:
            raise errors.ImpossibleWorld(f"only CXL memory can be persistent, not {self.device_class}")
        most = 256 if self.ari or self.switch else 8
        if len(self.functions) > most:
            raise errors.ImpossibleWorld(
                f"such a card has {most} functions at most, not {len(self.functions)}"
            )
        check_link(self.link_speed_gts, self.link_width)
        if self.serial is not None:
            self._check_serial(self.serial)

    def _check_serial(self, serial: str) -> None:
        if self.device_class is DeviceClass.NVME:
            if not (serial.isascii() and serial.isprintable() and 0 < len(serial) <= _NVME_SERIAL_BYTES):
                raise errors.ImpossibleWorld(
                    f"{serial!r} is no NVMe serial: give 1 to 20 printable ASCII characters"
                )
        elif self.device_class is DeviceClass.CXL_MEMORY:
            if not _is_64_bit_number(serial):
                raise errors.ImpossibleWorld(
                    f"{serial!r} is no CXL serial: give a 64-bit number, decimal or 0x.."
                )
        elif not (serial.isprintable() and 0 < len(serial) <= _SERIAL_CHARACTERS):
            raise errors.ImpossibleWorld(
                f"{serial!r} is no serial number: give 1 to {_SERIAL_CHARACTERS} printable characters"
            )


@functools.lru_cache(1024)
def _defaults(device_class: DeviceClass, serial: str | None) -> tuple[Identifier, ...]:
    return identities.defaults(device_class, serial or "")


_BETWEEN = {0x8086: "ff-ff", 0x14E4: "ff-fe"}
"""The middle of the Device Serial Number, by vendor: Intel and Broadcom put it between the halves of the first MAC address."""


def _usual_number(device: MockDevice) -> str | None:
    """Return the Device Serial Number that follows from the serial number or the MAC address, or None."""
    if device.serial is not None and identities.DSN.fullmatch(device.serial):
        return device.serial
    mac, between = device.text(Kind.MAC), _BETWEEN.get(device.vendor)
    if device.device_class is not DeviceClass.NIC or mac is None or between is None:
        return None
    pairs = mac.split(":")
    return "-".join((*pairs[:3], between, *pairs[3:]))


def check_link(speed_gts: float, width: int) -> None:
    """Raise ImpossibleWorld unless a PCI Express link can have this speed and width."""
    if speed_gts not in functions.SPEEDS_GTS or width not in functions.WIDTHS:
        raise errors.ImpossibleWorld(
            f"no link runs at {speed_gts:g} GT/s on {width} lanes: choose a speed of "
            f"{', '.join(f'{speed:g}' for speed in functions.SPEEDS_GTS)} and {', '.join(map(str, functions.WIDTHS))} lanes"
        )


def _is_64_bit_number(text: str) -> bool:
    try:
        return 0 <= int(text, 0) < 1 << 64
    except ValueError:
        return False
