"""The sysfs devices of a newly attached card, in their order.

The order is the recorded one: first the function, then its driver's devices. The function's `bind` comes last, but an
NVMe controller shows its namespaces only after it.

Limits: rarely read files are missing (hwmon, queue attributes, bdi, nvme-subsystem).
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterator

from drawbar.fabric import contract
from drawbar.fabric.witnesses import Kind
from drawbar.mocks.sysfs import aer, bridges, config_space, cxl, dfl, functions, nvdimm, vfio, vital
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.functions import Ids
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable, trigger, writable
from drawbar.mocks.sysfs.slots import Slot
from drawbar.mocks.sysfs.steps import Add, Beside, Bind, Change, Step, Write

GUEST_DRIVER = "vfio-pci"
"""The driver for handing a card to a virtual machine; it makes no devices below the card."""
_SECTOR_BYTES = 512
_DEFAULT_NAMESPACE_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The position of a card, and its number in the kernel.

    Attributes:
        slot: its slot.
        bus: the card's bus.
        instance: its number among the devices of its class (nvme<N>, mem<N>, ...).
        endpoint: the number of its CXL port, if it has one.
        iommu: true if vfio has an IOMMU; None if vfio shows nothing.
        switch: true if the card's functions are behind a switch of its own.
    """

    slot: Slot
    bus: int
    instance: int
    endpoint: int
    iommu: bool | None = None
    switch: bool = False

    @property
    def address(self) -> str:
        """Return the address of the card's first function."""
        return self.path.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Return the directory of the card's first function."""
        return self.path_of(0, 0)

    def path_of(self, unit: int, function: int, *, ari: bool = False) -> str:
        """Return the directory of a function.

        Args:
            unit: the number of its device behind the card's switch; 0 without one.
            function: the function's number.
            ari: true if all eight bits of the address are the function's number.
        """
        parent, bus = self.slot.port, self.bus
        if self.switch:
            parent, bus = self.downstream_port(unit), self.bus + BUSES_OF_SWITCH + unit
        device = self.slot.make_address(bus)
        number = f"{device[:-2]}{function >> 3:02x}.{function & 7}" if ari else f"{device}.{function}"
        return f"{parent}/{number}"

    @property
    def upstream_port(self) -> str:
        """Return the directory of the upstream port of the card's switch."""
        return f"{self.slot.port}/{self.slot.make_address(self.bus)}.0"

    def downstream_port(self, unit: int) -> str:
        """Return the directory of a downstream port of the card's switch."""
        return f"{self.upstream_port}/{self.slot.make_address(self.bus + 1)[:-2]}{unit:02x}.0"


BUSES_OF_SWITCH = 2
"""The number of buses of a switch: that of its upstream port, and the one inside it."""


def steps(seat: Seat, device: MockDevice) -> tuple[Step, ...]:
    """Return the steps of attaching `device` with power, in order."""
    card = function(seat, device)
    return (
        *_switch(seat, device),
        Add(kobject=card),
        *make_driver_steps(seat, device),
        *_further(seat, device),
    )


def make_driver_steps(seat: Seat, device: MockDevice) -> tuple[Step, ...]:
    """Return the steps of the first function's driver, in order; empty without a driver."""
    return tuple(_yield_driver_steps(function(seat, device), device, seat))


def _yield_driver_steps(card: Kobject, device: MockDevice, seat: Seat) -> Iterator[Step]:
    if card.driver is None:
        return
    if card.driver == GUEST_DRIVER:
        if seat.iommu is not None:
            yield from vfio.steps(card, iommu=seat.iommu)
        yield Bind(kobject=card)
        return
    yield from _CHILDREN.get(device.device_class, _bind_only)(card, device, seat)


def _switch(seat: Seat, device: MockDevice) -> Iterator[Step]:
    """Yield the steps of the ports of the card's own switch."""
    if not device.switch:
        return
    first, last = seat.bus, seat.bus + device.buses - 1
    link, locality = (device.link_speed_gts, device.link_width), seat.slot.locality
    ports = [
        bridges.port(
            seat.upstream_port,
            bridges.PortKind.UPSTREAM,
            ids=bridges.SWITCH,
            buses=(first + 1, last),
            link=link,
            locality=locality,
        )
    ]
    for unit in range(device.buses - BUSES_OF_SWITCH):
        bus = first + BUSES_OF_SWITCH + unit
        ports.append(
            bridges.port(
                seat.downstream_port(unit),
                bridges.PortKind.DOWNSTREAM,
                ids=bridges.SWITCH,
                buses=(bus, bus),
                link=link,
                locality=locality,
            )
        )
    for port in ports:
        yield Add(kobject=port)
        yield Bind(kobject=port)


def _further(seat: Seat, device: MockDevice) -> Iterator[Step]:
    """Yield the steps of the card's other functions and their drivers."""
    unit, number = 0, 0
    for index, further in enumerate(device.further, start=1):
        unit, number = (unit + 1, 0) if device.switch and not further.beside else (unit, number + 1)
        path = seat.path_of(unit, number, ari=device.ari)
        own = dataclasses.replace(
            seat, instance=_FURTHER_APART * seat.slot.number + index, endpoint=seat.endpoint
        )
        each = _function(own, dataclasses.replace(further, ari=device.ari), path)
        yield Add(kobject=each)
        yield from _yield_driver_steps(each, further, own)


_FURTHER_APART = 20
"""The distance between two slots' instance numbers for further functions, for the names of their devices."""


def running_link(slot: Slot, device: MockDevice) -> tuple[str, str]:
    """Return the current speed and width of the link between a card and its port, as in the files."""
    speed, width = fastest_link(slot, device)
    return functions.speed_text(speed), str(width)


def fastest_link(slot: Slot, device: MockDevice) -> tuple[float, int]:
    """Return the maximum of the link between a card and its port: GT/s and lanes."""
    return min(device.link_speed_gts, slot.speed_gts), min(device.link_width, slot.width)


def function(seat: Seat, device: MockDevice) -> Kobject:
    """Return the card's first function."""
    return _function(seat, device, seat.path)


def _function(seat: Seat, device: MockDevice, path: str) -> Kobject:
    ids = Ids(vendor=device.vendor, device=device.device, class_code=device.class_code)
    lines = functions.assign_bars(device.bars, seat.slot.bus)
    config = config_space.endpoint(
        vendor=ids.vendor,
        device=ids.device,
        class_code=ids.class_code,
        subsystem=ids.subsystem,
        serial_number=device.serial_number,
        bars={
            bar.number: bar.register | (0 if device.unassigned else lines[bar.number][0])
            for bar in device.bars
        },
    )
    return Kobject(
        path=path,
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=functions.uevent(ids, path.rpartition("/")[2]),
        files={
            **functions.files(ids, config=config, locality=seat.slot.locality),
            **functions.link_files(
                current=running_link(seat.slot, device),
                fastest_gts=device.link_speed_gts,
                widest=device.link_width,
            ),
            **(aer.files() if device.aer else {}),
            "ari_enabled": readable("1" if device.ari else "0"),
            "link/l0s_aspm": writable("0"),
            "reset": trigger(),
            "reset_method": writable("flr bus"),
            "resource": functions.resource({} if device.unassigned else lines),
            **({} if device.unassigned else {"resource0": Attribute(mode=0o600)}),
            **_amd_files(device),
            **_vital_files(device),
            **_sriov_files(device),
        },
        driver=device.bound_driver,
    )


def _sriov_files(device: MockDevice) -> dict[str, Attribute]:
    if not device.total_vfs:
        return {}
    return {
        "sriov_drivers_autoprobe": writable("1"),
        "sriov_numvfs": writable("0"),
        "sriov_offset": readable("1"),
        "sriov_stride": readable("1"),
        "sriov_totalvfs": readable(str(device.total_vfs)),
        "sriov_vf_device": readable(f"{device.vf_device or device.device:x}"),
        "sriov_vf_total_msix": readable("0"),
    }


def _amd_files(device: MockDevice) -> dict[str, Attribute]:
    """Return the files of `amdgpu`: memory size, and the numbers of the GPU and of its board."""
    if device.bound_driver != "amdgpu":
        return {}
    texts = {
        "mem_info_vram_total": str(device.memory_bytes) if device.memory_bytes else None,
        "product_number": device.text(Kind.PART_NUMBER),
        "serial_number": device.text(Kind.BOARD_SERIAL),
        "unique_id": device.text(Kind.GPU_UNIQUE_ID),
    }
    files = {name: readable(text) for name, text in texts.items() if text is not None}
    mode = _PARTITION_MODES.get(device.partitions, "CPX")
    return files | ({"current_compute_partition": writable(mode)} if device.partitions > 1 else {})


_PARTITION_MODES = {1: "SPX", 2: "DPX", 3: "TPX", 4: "QPX"}


def _vital_files(device: MockDevice) -> dict[str, Attribute]:
    """Return the Vital Product Data of a card with a serial number in it, else nothing."""
    serial = device.text(Kind.VPD_SERIAL)
    if serial is None:
        return {}
    part = device.text(Kind.PART_NUMBER)
    fields = {**({"PN": part} if part else {}), "SN": f"{serial:24}"}
    return {"vpd": Attribute(content=vital.image("Drawbar Mock", fields), mode=0o600)}


def _bind_only(function: Kobject, _device: MockDevice, _seat: Seat) -> Iterator[Step]:
    yield Bind(kobject=function)


def _nvme(function: Kobject, device: MockDevice, seat: Seat) -> Iterator[Step]:
    instance = seat.instance
    controller = f"nvme{instance}"
    serial = device.text(Kind.NVME_SERIAL) or device.serial or ""
    identity = {
        "firmware_rev": readable("1.0     "),
        "model": readable(f"{'Drawbar Mock NVMe':40}"),
        "serial": readable(f"{serial:20}"),
    }
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
            **dict.fromkeys(identity, readable("(efault)")),
            "numa_node": readable(str(seat.slot.locality.node)),
            "queue_count": readable("2"),
            "rescan_controller": trigger(),
            "reset_controller": trigger(),
            "sqsize": readable("1023"),
            "state": readable("live"),
            "subsysnqn": readable(device.text(Kind.NVME_NQN) or f"nqn.2014-08.org.nvmexpress:uuid:{serial}"),
            "transport": readable("pcie"),
        },
    )
    yield Add(kobject=node)
    yield Bind(kobject=function)
    # The kernel reads the identity after the driver has bound; before that the files show "(efault)".
    yield Write(folder=node.path, files=identity, undone=identity)
    yield Change(kobject=node, variable=("NVME_EVENT", "connected"))
    sectors = (device.memory_bytes or _DEFAULT_NAMESPACE_BYTES) // _SECTOR_BYTES
    namespace_files = {
        "hidden": readable("0"),
        "nsid": readable("1"),
        "removable": readable("0"),
        "ro": readable("0"),
        "size": readable(str(sectors)),
        **_namespace_names(device),
    }
    namespace = _node(
        node,
        f"{controller}n1",
        "block",
        numbers=(259, instance),
        # The kernel counts disks from boot on (since Linux 5.15); here the number is the instance's, so it repeats.
        uevent={"DEVTYPE": "disk", "DISKSEQ": str(instance + 1)},
        files=namespace_files,
    )
    yield Add(kobject=namespace)
    yield Add(kobject=_node(node, f"ng{instance}n1", "nvme-generic", numbers=(245, instance)))


def _namespace_names(device: MockDevice) -> dict[str, Attribute]:
    """Return the files with a namespace's worldwide names, in the format of `nvme`."""
    eui, nguid = device.text(Kind.EUI64), device.text(Kind.NGUID)
    texts = {
        "eui": bytes.fromhex(eui).hex(" ") if eui else None,
        "nguid": str(uuid.UUID(nguid)) if nguid else None,
        "wwid": f"eui.{nguid or eui}" if nguid or eui else None,
    }
    return {name: readable(text) for name, text in texts.items() if text is not None}


def _cxl_memory(function: Kobject, device: MockDevice, seat: Seat) -> Iterator[Step]:
    instance, port = seat.instance, seat.endpoint
    memdev = cxl.device(
        f"{function.path}/mem{instance}",
        "cxl_memdev",
        kind=5,
        uevent={"MAJOR": "247", "MINOR": str(instance), "DEVNAME": f"cxl/mem{instance}"},
        files={
            "dev": readable(f"247:{instance}"),
            "firmware_version": readable("BWFW VERSION 00"),
            "label_storage_size": readable(str(nvdimm.LABEL_BYTES if device.persistent else 0)),
            "numa_node": readable(str(seat.slot.locality.node)),
            "payload_max": readable("2048"),
            "pmem/size": readable(f"{device.memory_bytes if device.persistent else 0:#x}"),
            "ram/size": readable(f"{0 if device.persistent else device.memory_bytes:#x}"),
            "serial": readable(f"{device.serial_number or 0:#x}"),
        },
        driver="cxl_mem",
    )
    endpoint = cxl.device(
        f"{seat.slot.cxl_port}/endpoint{port}",
        "cxl_port",
        kind=3,
        links={"uport": memdev.path},
        driver="cxl_port",
    )
    decoder = cxl.device(
        endpoint_decoder(seat), "cxl_decoder_endpoint", kind=0, files=cxl.endpoint_decoder_files()
    )
    yield from (Add(kobject=each) for each in (memdev, endpoint, decoder))
    yield from (Bind(kobject=each) for each in (endpoint, memdev))
    if device.persistent:
        yield from nvdimm.dimm(memdev, instance)
    yield Bind(kobject=function)


def endpoint_decoder(seat: Seat) -> str:
    """Return the directory of a memory card's decoder."""
    return f"{seat.slot.cxl_port}/endpoint{seat.endpoint}/decoder{seat.endpoint}.0"


def information(address: str, device: MockDevice, seat: Seat) -> Beside | None:
    """Return the file of NVIDIA's driver about a GPU; None for a GPU without UUID and minor number."""
    minor = _minor(device, seat)
    if minor is None:
        return None
    own = device.text(Kind.GPU_UUID)
    shown = own if own is not None and device.initialised else "????????-????-????-????-????????????"
    lines = (
        "Model: \t\t Drawbar Mock GPU",
        f"GPU UUID: \t GPU-{shown}",
        f"Bus Location: \t {address}",
        f"Device Minor: \t {minor}",
    )
    content = "".join(f"{line}\n" for line in lines).encode()
    return Beside(files={f"proc/driver/nvidia/gpus/{address}/information": content})


def _minor(device: MockDevice, seat: Seat) -> int | None:
    """Return the number of a GPU in NVIDIA's driver; None for a GPU without UUID and minor number."""
    return seat.instance if device.minor is None and device.text(Kind.GPU_UUID) is not None else device.minor


def _gpu(function: Kobject, device: MockDevice, seat: Seat) -> Iterator[Step]:
    yield from _drm(function, seat.instance)
    for number in range(device.partitions - 1):
        # The kernel numbers partitions across all GPUs of a host (drivers/gpu/drm/amd/amdxcp).
        instance = _PARTITIONS_APART * (seat.instance + 1) + number
        partition = Kobject(
            path=f"devices/platform/amdgpu_xcp.{instance}",
            subsystem="platform",
            subsystem_path="bus/platform",
            uevent={"MODALIAS": "platform:amdgpu_xcp"},
        )
        yield Add(kobject=partition)
        yield from _drm(partition, instance)
    if function.driver == "nvidia" and (step := information(function.name, device, seat)) is not None:
        yield Beside(files=dict.fromkeys(_NVIDIA_SHARED, b""), stays=True)
        yield Beside(files={f"dev/nvidia{_minor(device, seat)}": b""})
        yield step
    yield Bind(kobject=function)


_PARTITIONS_APART = 16
_NVIDIA_SHARED = ("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-uvm-tools", "dev/nvidia-modeset")


def _drm(parent: Kobject, instance: int) -> Iterator[Step]:
    for name, minor in ((f"renderD{128 + instance}", 128 + instance), (f"card{instance}", instance)):
        yield Add(
            kobject=_node(
                parent,
                f"drm/{name}",
                "drm",
                numbers=(226, minor),
                devname=f"dri/{name}",
                uevent={"DEVTYPE": "drm_minor"},
            )
        )


def _accelerator(function: Kobject, _device: MockDevice, seat: Seat) -> Iterator[Step]:
    instance = seat.instance
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


def _fpga(function: Kobject, _device: MockDevice, seat: Seat) -> Iterator[Step]:
    if function.driver == dfl.DRIVER:
        yield from dfl.steps(function, seat.instance)
        return
    yield Add(
        kobject=Kobject(
            path=f"{function.path}/fpga_manager/fpga{seat.instance}",
            subsystem="fpga_manager",
            subsystem_path="class/fpga_manager",
            files={"name": readable("Drawbar Mock FPGA Manager"), "state": readable("operating")},
            links={"device": function.path},
        )
    )
    yield Bind(kobject=function)


_INTERFACES_APART = 1000


def _nic(function: Kobject, device: MockDevice, seat: Seat) -> Iterator[Step]:
    own = interface(function, seat.instance, permanent=device.text(Kind.MAC))
    if device.representors:
        switch = {"phys_switch_id": readable("946dae0300510000")}
        own = dataclasses.replace(own, files={**own.files, **switch, "phys_port_name": readable("p0")})
    yield Add(kobject=own)
    for number in range(device.representors):
        # In switchdev mode each virtual function's port has a representor below the physical function.
        shown = interface(function, seat.instance, number)
        name = f"{own.name}r{number}"
        yield Add(
            kobject=dataclasses.replace(
                shown,
                path=f"{function.path}/net/{name}",
                uevent={**shown.uevent, "INTERFACE": name},
                files={**shown.files, **switch, "phys_port_name": readable(f"pf0vf{number}")},
            )
        )
    yield Bind(kobject=function)


def interface(
    function: Kobject, instance: int, virtual: int | None = None, permanent: str | None = None
) -> Kobject:
    """Return the network interface of a card, or of its virtual function `virtual`."""
    # Interface 1 is lo; virtual functions get numbers after all cards.
    name, index = f"eth{instance}", instance + 2
    if virtual is not None:
        name, index = f"{name}v{virtual}", (instance + 1) * _INTERFACES_APART + virtual
    return Kobject(
        path=f"{function.path}/net/{name}",
        subsystem="net",
        subsystem_path="class/net",
        uevent={"INTERFACE": name, "IFINDEX": str(index)},
        files={
            "addr_assign_type": readable("1" if permanent is None else "0"),  # NET_ADDR_RANDOM, NET_ADDR_PERM
            "address": readable(
                permanent or f"02:00:00:00:{0 if virtual is None else virtual + 1:02x}:{instance:02x}"
            ),
            "dev_id": readable("0x0"),
            "ifindex": readable(str(index)),
            "iflink": readable(str(index)),
            "mtu": writable("1500"),
            "operstate": readable("down"),
        },
        links={"device": function.path},
    )


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
    """Return a device of a class with a node in /dev; it lies directly below its parent or in a class folder there."""
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


_Builder = Callable[[Kobject, MockDevice, Seat], Iterator[Step]]
_CHILDREN: dict[contract.DeviceClass, _Builder] = {
    contract.DeviceClass.NVME: _nvme,
    contract.DeviceClass.CXL_MEMORY: _cxl_memory,
    contract.DeviceClass.GPU: _gpu,
    contract.DeviceClass.ACCELERATOR: _accelerator,
    contract.DeviceClass.FPGA: _fpga,
    contract.DeviceClass.NIC: _nic,
}
