"""What stands in for the electrician: devices of QEMU that are plugged into a guest's ports and pulled out.

It does nothing that a fabric adapter could not, and does not use Kubernetes.
"""

import asyncio
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from lab import errors, guest, machine, waiting

UNPLUG_SECONDS = 30.0
BLOCK_BYTES = 32 << 20
REGION_BYTES = 1 << 20
_MEMORY_SERIALS = 0x5E81_A100_0000_0000
_QUEUES_PER_FUNCTION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """An NVMe disk that may be plugged in.

    Attributes:
        name: QEMU's name of the device, and of its content.
        serial: as the kernel will show it.
        file: its content.
    """

    name: str
    serial: str
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A CXL memory device that may be plugged in.

    Attributes:
        serial: a number of 64 bits; the kernel shows it as `0x35200`.
        volatile: its memory loses its content with its power; QEMU 7.2 has none such.
        file: its content.
    """

    name: str
    serial: int
    size_bytes: int
    volatile: bool = False
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """An NVMe controller that can have virtual functions; one that is plugged in has no disk of its own in QEMU 7.2."""

    name: str
    serial: str
    functions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network card that can have virtual functions (82576); of a newer machine alone."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """An accelerator without a driver and without any identifier, that may be plugged in.

    Attributes:
        name: QEMU's name of the device, and of its content.
        content: what its memory begins with.
    """

    name: str
    content: str


Card = Disk | Memory | Controller | Network | Accelerator
"""What can be plugged in."""


class Chassis:
    """The devices around one guest. What is plugged in goes with the guest."""

    def __init__(self, host: guest.Guest, folder: Path) -> None:
        self._guest, self._folder = host, folder

    async def disk(self, name: str, *, size_bytes: int = BLOCK_BYTES) -> Disk:
        """Make a new disk, not plugged in; it begins with a line with its name."""
        file = self._folder / f"{self._guest.machine.name}-{name}.img"
        await asyncio.to_thread(_write_image, file, name, size_bytes)
        content = {"driver": "file", "filename": str(file)}
        await self._guest.monitor.ask("blockdev-add", {"node-name": name, "driver": "raw", "file": content})
        return Disk(name=name, serial=f"SN-{name}", file=file)

    async def memory(self, name: str, *, size_bytes: int = 256 << 20, volatile: bool = False) -> Memory:
        """Make new CXL memory, not plugged in; persistent memory has a label area."""
        file = self._folder / f"{self._guest.machine.name}-{name}.memory"
        backend = {"qom-type": "memory-backend-file", "mem-path": str(file), "share": True}
        await self._guest.monitor.ask("object-add", {**backend, "id": f"{name}-memory", "size": size_bytes})
        if not volatile:
            labels = {
                "qom-type": "memory-backend-ram",
                "id": f"{name}-labels",
                "size": 1 << 20,
                "share": True,
            }
            await self._guest.monitor.ask("object-add", labels)
        serial = _MEMORY_SERIALS | zlib.crc32(name.encode())
        return Memory(name=name, serial=serial, size_bytes=size_bytes, volatile=volatile, file=file)

    async def accelerator(self, name: str) -> Accelerator:
        """Make a new accelerator, not plugged in; its memory begins with a line with its name."""
        file = self._folder / f"{self._guest.machine.name}-{name}.region"
        await asyncio.to_thread(_write_image, file, name, REGION_BYTES)
        backend = {"qom-type": "memory-backend-file", "mem-path": str(file), "share": True}
        await self._guest.monitor.ask("object-add", {**backend, "id": f"{name}-memory", "size": REGION_BYTES})
        return Accelerator(name=name, content=_first_line(name))

    def controller(self, name: str, *, functions: int = 2) -> Controller:
        """Return a controller with so many virtual functions, not plugged in; one at a time can be."""
        return Controller(name=name, serial=f"SN-{name}", functions=functions)

    def network(self, name: str) -> Network:
        """Return a network card without a cable, not plugged in."""
        return Network(name=name)

    async def plug(self, device: Card, port: str) -> None:
        """Plug it into a port, and return when QEMU has taken it, not when the kernel has.

        Raises:
            errors.MonitorRefusal: QEMU does not.
        """
        arguments: dict[str, str | int]
        match device:
            case Disk():
                arguments = {"driver": "nvme", "drive": device.name, "serial": device.serial}
            case Memory(volatile=True):
                arguments = {
                    "driver": "cxl-type3",
                    "volatile-memdev": f"{device.name}-memory",
                    "sn": device.serial,
                }
            case Memory():
                arguments = {
                    "driver": "cxl-type3",
                    "memdev": f"{device.name}-memory",
                    "lsa": f"{device.name}-labels",
                    "sn": device.serial,
                }
            case Controller():
                queues = _QUEUES_PER_FUNCTION * device.functions
                arguments = {
                    "driver": "nvme",
                    "serial": device.serial,
                    "subsys": machine.SUBSYSTEM,
                    "sriov_max_vfs": device.functions,
                    "sriov_vq_flexible": queues,
                    "sriov_vi_flexible": device.functions,
                    # Two queues and one interrupt are the controller's own.
                    "max_ioqpairs": queues + 2,
                    "msix_qsize": device.functions + 5,
                }
            case Network():
                arguments = {"driver": "igb"}
            case Accelerator():
                arguments = {"driver": "ivshmem-plain", "memdev": f"{device.name}-memory"}
        await self._guest.monitor.ask("device_add", arguments | {"id": device.name, "bus": port})

    def where(self, port: str) -> dict[str, str]:
        """Return what the node is to say of a device in a PCIe port: its slot and its address."""
        number = int(port.rpartition("-")[2])
        return {"slot": str(number), "pciAddress": f"0000:{number:02x}:00.0"}

    async def press(self, device: Card) -> None:
        """Press the attention button of its slot: the kernel lets go of it after 5 s, whatever uses it."""
        await self._guest.monitor.ask("device_del", {"id": device.name})

    async def pull(self, device: Card) -> None:
        """Take it out, and return when it is out. One that the guest let go of already is out.

        Raises:
            errors.GuestSilent: the guest does not let go of it.
        """
        if not await self.is_plugged(device):
            return
        try:
            await self.press(device)
        except errors.MonitorRefusal as refusal:
            if refusal.kind != "DeviceNotFound" and "already in the process" not in refusal.text:
                raise
        await self.out(device)

    async def out(self, device: Card, *, seconds: float = UNPLUG_SECONDS) -> None:
        """Wait until QEMU has taken it out. For a CXL port it sends no DEVICE_DELETED, so it is polled.

        Raises:
            errors.GuestSilent: it is still in.
        """
        try:
            await waiting.until(lambda: self.is_plugged(device), lambda there: not there, seconds)
        except AssertionError as error:
            raise errors.GuestSilent(
                f"the guest did not let go of {device.name} within {seconds:.0f} s"
            ) from error

    async def is_plugged(self, device: Card) -> bool:
        """Return whether QEMU has it in a port."""
        there = await self._guest.monitor.ask("qom-list", {"path": "/machine/peripheral"})
        return any(entry["name"] == device.name for entry in there)


async def build_disk_arguments(host: guest.Guest) -> list[str]:
    """Return the disks in a guest's ports, and the notes beside them, as arguments of QEMU: it may be switched on again.

    Raises:
        errors.MonitorRefusal: something in a port is no NVMe disk.
    """

    async def get(path: str, name: str) -> str:
        return str(await host.monitor.ask("qom-get", {"path": path, "property": name}))

    nodes = await host.monitor.ask("query-named-block-nodes", {"flat": True})
    files = {node["node-name"]: node["file"] for node in nodes}
    notes = [entry["name"] for entry in await host.monitor.ask("qom-list", {"path": "/objects"})]
    arguments: list[tuple[str, dict[str, object]]] = []
    for port in host.machine.port_names:
        bus = f"/machine/peripheral/{port}/{port}"
        for entry in await host.monitor.ask("qom-list", {"path": bus}):
            if not entry["name"].startswith("child["):
                continue
            path = await get(bus, entry["name"])
            name, drive = path.rpartition("/")[2], await get(path, "drive")
            content = {"driver": "file", "filename": files[drive]}
            arguments += [
                (
                    "-object",
                    {
                        "qom-type": "authz-simple",
                        "id": note,
                        "identity": await get(f"/objects/{note}", "identity"),
                    },
                )
                for note in notes
                if note.startswith(f"{name}.")
            ]
            arguments += [
                ("-blockdev", {"driver": "raw", "node-name": drive, "file": content}),
                (
                    "-device",
                    {
                        "driver": "nvme",
                        "id": name,
                        "bus": port,
                        "drive": drive,
                        "serial": await get(path, "serial"),
                    },
                ),
            ]
    return [word for option, value in arguments for word in (option, json.dumps(value))]


def _write_image(file: Path, name: str, size_bytes: int) -> None:
    with file.open("wb") as image:
        image.write(_first_line(name).encode())
        image.truncate(size_bytes)


def _first_line(name: str) -> str:
    return f"this is {name}\n"
