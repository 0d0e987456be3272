"""The host that cards are put into: host bridge, hot-plug root ports and their slots, a CXL root.

Names, formats, modes and links follow the recording of a Linux 6.1 guest on QEMU's q35. What this host
does not have: other devices, ACPI companions (those links dangle), AER counters, NUMA nodes, an IOMMU.
"""

from collections.abc import Iterator
from pathlib import Path

from drawbar.mocks.sysfs import config_space, kobjects
from drawbar.mocks.sysfs.kobjects import Kobject, readable, trigger, writable

MOST_SLOTS = 224  # 28 device numbers of 8 functions each; every slot is a bus of its own
_FIRST_PORT, _PORT_DEVICES = 3, 28
ROOT = "devices/pci0000:00"
CXL_ROOT = "devices/platform/ACPI0017:00/root0"
CXL_PORT = f"{CXL_ROOT}/port1"
_CXL_WINDOW_BYTES = 1 << 40
_RED_HAT, _ROOT_PORT, _INTEL, _HOST_BRIDGE = 0x1B36, 0x000C, 0x8086, 0x29C0
FASTEST, SLOWEST = "16.0 GT/s PCIe", "2.5 GT/s PCIe"


def port_address(slot: int) -> str:
    """The PCI address of a slot's root port."""
    function, device = divmod(slot - 1, _PORT_DEVICES)
    return f"0000:00:{_FIRST_PORT + device:02x}.{function}"


def slot_address(slot: int) -> str:
    """The address of a slot, without a function: its own bus, device 0."""
    return f"0000:{slot:02x}:00"


def port_path(slot: int) -> str:
    """The directory of a slot's root port below the root."""
    return f"{ROOT}/{port_address(slot)}"


def objects(slots: int) -> Iterator[Kobject]:
    """Every device that the host has while all its slots are empty, parents first."""
    yield _host_bridge()
    for slot in range(1, slots + 1):
        yield _root_port(slot)
    yield from _cxl_root()


def write_slot(root: Path, slot: int, *, occupied: bool) -> None:
    """Writes a slot's files, and the state of its port's link, for an empty or an occupied slot."""
    folder = root / "bus/pci/slots" / str(slot)
    speed, width = (SLOWEST, "1") if occupied else (FASTEST, "16")
    files = {
        "address": readable(slot_address(slot)),
        "attention": writable("0"),
        "max_bus_speed": readable(FASTEST),
        "cur_bus_speed": readable(speed),
        "adapter": readable(str(int(occupied))),
        "power": writable(str(int(occupied))),
    }
    for name, attribute in files.items():
        kobjects.write(folder / name, attribute)
    port = root / port_path(slot)
    kobjects.write(port / "current_link_speed", readable(speed))
    kobjects.write(port / "current_link_width", readable(width))


def pci_files(
    *, vendor: int, device: int, subsystem: tuple[int, int], class_code: int, config: bytes
) -> dict[str, kobjects.Attribute]:
    """The attributes that every PCI function has."""
    return {
        "ari_enabled": readable("0"),
        "broken_parity_status": writable("0"),
        "class": readable(f"0x{class_code:06x}"),
        "config": kobjects.Attribute(content=config, mode=0o644),
        "consistent_dma_mask_bits": readable("64"),
        "d3cold_allowed": writable("1"),
        "device": readable(f"0x{device:04x}"),
        "dma_mask_bits": readable("64"),
        "driver_override": writable("(null)"),
        "enable": writable("1"),
        "irq": readable("0"),
        "local_cpulist": readable("0"),
        "local_cpus": readable("1"),
        "modalias": readable(modalias(vendor, device, subsystem, class_code)),
        "msi_bus": writable("1"),
        "numa_node": writable("-1"),
        "power_state": readable("D0"),
        "remove": trigger(0o220),
        "rescan": trigger(),
        "resource": readable("\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7)),
        "revision": readable("0x00"),
        "subsystem_device": readable(f"0x{subsystem[1]:04x}"),
        "subsystem_vendor": readable(f"0x{subsystem[0]:04x}"),
        "vendor": readable(f"0x{vendor:04x}"),
    }


def link_files(speed: str, width: str) -> dict[str, kobjects.Attribute]:
    """The attributes of a PCI Express link that runs as fast as it can."""
    return {
        "current_link_speed": readable(speed),
        "current_link_width": readable(width),
        "max_link_speed": readable(speed),
        "max_link_width": readable(width),
    }


def pci_uevent(
    *, vendor: int, device: int, subsystem: tuple[int, int], class_code: int, address: str
) -> dict[str, str]:
    """The uevent variables of a PCI function (drivers/pci/pci-driver.c, `pci_uevent`)."""
    return {
        "PCI_CLASS": f"{class_code:04X}",
        "PCI_ID": f"{vendor:04X}:{device:04X}",
        "PCI_SUBSYS_ID": f"{subsystem[0]:04X}:{subsystem[1]:04X}",
        "PCI_SLOT_NAME": address,
        "MODALIAS": modalias(vendor, device, subsystem, class_code),
    }


def modalias(vendor: int, device: int, subsystem: tuple[int, int], class_code: int) -> str:
    """What modprobe is asked for."""
    return (
        f"pci:v{vendor:08X}d{device:08X}sv{subsystem[0]:08X}sd{subsystem[1]:08X}"
        f"bc{class_code >> 16:02X}sc{class_code >> 8 & 0xFF:02X}i{class_code & 0xFF:02X}"
    )


def _host_bridge() -> Kobject:
    ids = {"vendor": _INTEL, "device": _HOST_BRIDGE}
    subsystem = (0x1AF4, 0x1100)
    return Kobject(
        path=f"{ROOT}/0000:00:00.0",
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=pci_uevent(**ids, subsystem=subsystem, class_code=0x060000, address="0000:00:00.0"),
        files=pci_files(
            **ids, subsystem=subsystem, class_code=0x060000, config=config_space.host_bridge(**ids)
        ),
    )


def _root_port(slot: int) -> Kobject:
    ids = {"vendor": _RED_HAT, "device": _ROOT_PORT}
    subsystem = (_RED_HAT, 0)
    config = config_space.root_port(**ids, secondary_bus=slot)
    return Kobject(
        path=port_path(slot),
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=pci_uevent(**ids, subsystem=subsystem, class_code=0x060400, address=port_address(slot)),
        files={
            **pci_files(**ids, subsystem=subsystem, class_code=0x060400, config=config),
            **link_files(FASTEST, "16"),
            "reset_subordinate": trigger(),
            "secondary_bus_number": readable(str(slot)),
            "subordinate_bus_number": readable(str(slot)),
        },
        driver="pcieport",
    )


def _cxl_root() -> Iterator[Kobject]:
    acpi = "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0016:00"
    yield cxl_object(
        CXL_ROOT,
        "cxl_port",
        kind=4,
        links={"uport": "devices/platform/ACPI0017:00", "dport0": acpi},
    )
    yield cxl_object(
        f"{CXL_ROOT}/decoder0.0",
        "cxl_decoder_root",
        kind=0,
        files={
            **{name: readable("1") for name in ("cap_pmem", "cap_ram", "cap_type2", "cap_type3")},
            "create_pmem_region": writable("region0"),
            "delete_region": trigger(),
            **decoder_files(start=0x2_D000_0000, size=_CXL_WINDOW_BYTES),
            "target_list": readable("0"),
        },
    )
    yield cxl_object(CXL_PORT, "cxl_port", kind=3, links={"uport": acpi, "dport0": ROOT}, driver="cxl_port")
    yield cxl_object(
        f"{CXL_PORT}/decoder1.0",
        "cxl_decoder_switch",
        kind=0,
        files={
            **decoder_files(start=0, size=0),
            "region": readable(""),
            "target_list": readable("0"),
            "target_type": readable("expander"),
        },
    )


def cxl_object(
    path: str,
    devtype: str,
    *,
    kind: int,
    uevent: dict[str, str] | None = None,
    files: dict[str, kobjects.Attribute] | None = None,
    links: dict[str, str] | None = None,
    driver: str | None = None,
) -> Kobject:
    """A device on the CXL bus; `kind` is the number in its module alias (drivers/cxl/cxl.h)."""
    described = devtype != "cxl_memdev"  # a memdev is a character device and has `dev` in place of these two
    return Kobject(
        path=path,
        subsystem="cxl",
        subsystem_path="bus/cxl",
        uevent={**(uevent or {}), "DEVTYPE": devtype, "MODALIAS": f"cxl:t{kind}"},
        files={
            **({"devtype": readable(devtype), "modalias": readable(f"cxl:t{kind}")} if described else {}),
            **(files or {}),
        },
        links=links or {},
        driver=driver,
    )


def decoder_files(*, start: int, size: int) -> dict[str, kobjects.Attribute]:
    """The attributes that every CXL decoder has."""
    return {
        "interleave_granularity": readable("256"),
        "interleave_ways": readable("1"),
        "locked": readable("0"),
        "size": readable(f"{size:#x}"),
        "start": kobjects.Attribute(content=f"{start:#x}\n".encode(), mode=0o400),
    }
