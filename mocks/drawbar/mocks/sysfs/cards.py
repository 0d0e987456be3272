"""What appears in sysfs when a card is put in, and in which order.

The order is the recorded one: the function, then what its driver makes; `bind` of the function comes
last, except that an NVMe controller shows its namespaces only after it.

Not emulated: what hardly anybody reads (hwmon, queue attributes, bdi, nvme-subsystem, the nvdimm bridge
of persistent CXL memory), and the effect of writing to a file.
"""

import dataclasses
from collections.abc import Callable, Iterator

from drawbar.fabric import contract
from drawbar.mocks.sysfs import config_space, hosts
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable, trigger, writable

_SUBSYSTEM = (0x1AF4, 0x1100)
_SECTOR_BYTES = 512
_DEFAULT_NAMESPACE_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """The device appears."""

    kobject: Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Its driver has taken the device."""

    kobject: Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The device announces something, with a further variable."""

    kobject: Kobject
    variable: tuple[str, str]


Step = Add | Bind | Change


def steps(slot: int, device: MockDevice, instance: int) -> tuple[Step, ...]:
    """What happens when `device` is put into `slot`, in order.

    Args:
        slot: 1 to the number of slots.
        device: the card.
        instance: the number that the kernel gives it among the devices of its class (nvme<N>, mem<N>, ...).
    """
    function = _function(slot, device)
    if function.driver is None:
        return (Add(kobject=function),)
    build = _CHILDREN.get(device.device_class, _bind_only)
    return (Add(kobject=function), *build(function, device, instance))


def _function(slot: int, device: MockDevice) -> Kobject:
    address = hosts.slot_address(slot) + ".0"
    config = config_space.endpoint(
        vendor=device.vendor,
        device=device.device,
        class_code=device.class_code,
        subsystem=_SUBSYSTEM,
        serial_number=device.serial_number,
    )
    common = {"vendor": device.vendor, "device": device.device, "class_code": device.class_code}
    return Kobject(
        path=f"{hosts.port_path(slot)}/{address}",
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=hosts.pci_uevent(**common, subsystem=_SUBSYSTEM, address=address),
        files={
            **hosts.pci_files(**common, subsystem=_SUBSYSTEM, config=config),
            **hosts.link_files(hosts.SLOWEST, "1"),
            "link/l0s_aspm": writable("0"),
            "reset": trigger(),
            "reset_method": writable("flr bus"),
            "resource0": Attribute(mode=0o600),
            **_memory_files(device),
        },
        driver=device.bound_driver,
    )


def _memory_files(device: MockDevice) -> dict[str, Attribute]:
    if device.bound_driver == "amdgpu" and device.memory_bytes:
        return {"mem_info_vram_total": readable(str(device.memory_bytes))}
    return {}


def _bind_only(function: Kobject, _device: MockDevice, _instance: int) -> Iterator[Step]:
    yield Bind(kobject=function)


def _nvme(function: Kobject, device: MockDevice, instance: int) -> Iterator[Step]:
    controller = f"nvme{instance}"
    serial = device.serial or ""
    node = _node(
        function,
        f"nvme/{controller}",
        "nvme",
        numbers=(246, instance),
        uevent={"NVME_TRTYPE": "pcie"},
        files={
            "address": readable(function.name),
            "cntlid": readable("0"),
            "cntrltype": readable("io"),
            "firmware_rev": readable("1.0     "),
            "model": readable(f"{'Drawbar Mock NVMe':40}"),
            "numa_node": readable("-1"),
            "queue_count": readable("2"),
            "rescan_controller": trigger(),
            "reset_controller": trigger(),
            "serial": readable(f"{serial:20}"),
            "sqsize": readable("1023"),
            "state": readable("live"),
            "subsysnqn": readable(f"nqn.2014-08.org.nvmexpress:uuid:{serial}"),
            "transport": readable("pcie"),
        },
    )
    yield Add(kobject=node)
    yield Bind(kobject=function)
    yield Change(kobject=node, variable=("NVME_EVENT", "connected"))
    sectors = (device.memory_bytes or _DEFAULT_NAMESPACE_BYTES) // _SECTOR_BYTES
    namespace_files = {
        "hidden": readable("0"),
        "nsid": readable("1"),
        "removable": readable("0"),
        "ro": readable("0"),
        "size": readable(str(sectors)),
    }
    namespace = _node(
        node,
        f"{controller}n1",
        "block",
        numbers=(259, instance),
        uevent={"DEVTYPE": "disk"},
        files=namespace_files,
    )
    yield Add(kobject=namespace)
    yield Add(kobject=_node(node, f"ng{instance}n1", "nvme-generic", numbers=(245, instance)))


def _cxl_memory(function: Kobject, device: MockDevice, instance: int) -> Iterator[Step]:
    port = instance + 2  # root0 and port1 are the host's
    memdev = hosts.cxl_object(
        f"{function.path}/mem{instance}",
        "cxl_memdev",
        kind=5,
        uevent={"MAJOR": "247", "MINOR": str(instance), "DEVNAME": f"cxl/mem{instance}"},
        files={
            "dev": readable(f"247:{instance}"),
            "firmware_version": readable("BWFW VERSION 00"),
            "label_storage_size": readable("0"),
            "numa_node": readable("-1"),
            "payload_max": readable("2048"),
            "pmem/size": readable("0x0"),
            "ram/size": readable(f"{device.memory_bytes:#x}"),
            "serial": readable(f"{device.serial_number or 0:#x}"),
        },
        driver="cxl_mem",
    )
    endpoint = hosts.cxl_object(
        f"{hosts.CXL_PORT}/endpoint{port}",
        "cxl_port",
        kind=3,
        links={"uport": memdev.path},
        driver="cxl_port",
    )
    decoder = hosts.cxl_object(
        f"{endpoint.path}/decoder{port}.0",
        "cxl_decoder_endpoint",
        kind=0,
        files={
            **hosts.decoder_files(start=0, size=0),
            "dpa_resource": readable("0xffffffffffffffff"),
            "dpa_size": writable("0x0000000000000000"),
            "mode": writable("none"),
            "region": readable(""),
            "target_type": readable("expander"),
        },
    )
    yield from (Add(kobject=each) for each in (memdev, endpoint, decoder))
    yield from (Bind(kobject=each) for each in (endpoint, memdev, function))


def _gpu(function: Kobject, _device: MockDevice, instance: int) -> Iterator[Step]:
    for name, minor in ((f"renderD{128 + instance}", 128 + instance), (f"card{instance}", instance)):
        yield Add(
            kobject=_node(
                function,
                f"drm/{name}",
                "drm",
                numbers=(226, minor),
                devname=f"dri/{name}",
                uevent={"DEVTYPE": "drm_minor"},
            )
        )
    yield Bind(kobject=function)


def _accelerator(function: Kobject, _device: MockDevice, instance: int) -> Iterator[Step]:
    name = f"accel{instance}"
    yield Add(
        kobject=_node(
            function,
            f"accel/{name}",
            "accel",
            numbers=(261, instance),
            devname=f"accel/{name}",
            uevent={"DEVTYPE": "accel_minor"},
        )
    )
    yield Bind(kobject=function)


def _fpga(function: Kobject, _device: MockDevice, instance: int) -> Iterator[Step]:
    yield Add(
        kobject=Kobject(
            path=f"{function.path}/fpga_manager/fpga{instance}",
            subsystem="fpga_manager",
            subsystem_path="class/fpga_manager",
            files={"name": readable("Drawbar Mock FPGA Manager"), "state": readable("operating")},
            links={"device": function.path},
        )
    )
    yield Bind(kobject=function)


def _nic(function: Kobject, _device: MockDevice, instance: int) -> Iterator[Step]:
    name, index = f"eth{instance}", str(instance + 2)  # interface 1 is lo
    yield Add(
        kobject=Kobject(
            path=f"{function.path}/net/{name}",
            subsystem="net",
            subsystem_path="class/net",
            uevent={"INTERFACE": name, "IFINDEX": index},
            files={
                "address": readable(f"02:00:00:00:00:{instance:02x}"),
                "dev_id": readable("0x0"),
                "ifindex": readable(index),
                "mtu": writable("1500"),
                "operstate": readable("down"),
            },
            links={"device": function.path},
        )
    )
    yield Bind(kobject=function)


def _node(
    parent: Kobject,
    name: str,
    subsystem: str,
    *,
    numbers: tuple[int, int],
    devname: str | None = None,
    uevent: dict[str, str] | None = None,
    files: dict[str, Attribute] | None = None,
) -> Kobject:
    """A device of a class, with a node in /dev, directly or in a class folder below its parent."""
    major, minor = numbers
    return Kobject(
        path=f"{parent.path}/{name}",
        subsystem=subsystem,
        subsystem_path=f"class/{subsystem}",
        uevent={
            "MAJOR": str(major),
            "MINOR": str(minor),
            "DEVNAME": devname or name.rpartition("/")[2],
            **(uevent or {}),
        },
        files={"dev": readable(f"{major}:{minor}"), **(files or {})},
        links={"device": parent.path},
    )


_Builder = Callable[[Kobject, MockDevice, int], Iterator[Step]]
_CHILDREN: dict[contract.DeviceClass, _Builder] = {
    contract.DeviceClass.NVME: _nvme,
    contract.DeviceClass.CXL_MEMORY: _cxl_memory,
    contract.DeviceClass.GPU: _gpu,
    contract.DeviceClass.ACCELERATOR: _accelerator,
    contract.DeviceClass.FPGA: _fpga,
    contract.DeviceClass.NIC: _nic,
}
