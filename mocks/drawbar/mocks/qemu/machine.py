"""A virtual machine's ports, devices, objects and files, and a guest that answers a hot-unplug in a configured way.

Messages and accidents are those of QEMU 7.2 with a Debian 12 guest, measured. Not emulated: PCI functions, interrupts,
memory; any model except those of a pool; options that no fabric adapter uses; the slot's power indicator, except for
its effect on a request.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Arguments = Mapping[str, Any]
UUID = "00000000-0000-0000-0000-000000000000"
PERIPHERAL = "/machine/peripheral"


class Guest(StrEnum):
    """The guest's answer to the removal of a device."""

    ABSENT = "absent"
    """No kernel runs, so slots are off and a device is removed at once."""
    PROMPT = "prompt"
    """It releases the device after `VirtualMachine.release_seconds`."""
    SILENT = "silent"
    """It never answers."""
    REFUSING = "refusing"
    """It refuses."""


class Refusal(Exception):
    """QEMU answers with an error.

    Attributes:
        kind: the class of error.
        description: the message.
    """

    def __init__(self, description: str, kind: str = "GenericError") -> None:
        super().__init__(description)
        self.kind = kind
        self.description = description


@dataclass(kw_only=True)
class Files:
    """The files that several virtual machines open; at most one of them writes to a disk."""

    writers: dict[str, "VirtualMachine"] = field(default_factory=dict)


@dataclass(kw_only=True)
class _Device:
    model: str
    port: str
    arguments: Mapping[str, Any]
    leaving: asyncio.TimerHandle | None = None
    pressed: bool = False


@dataclass(kw_only=True)
class VirtualMachine:
    """One QEMU.

    Attributes:
        ports: models of the hot-plug ports, by id.
        files: shared with the other virtual machines.
        guest: the guest's answer to a removal.
        release_seconds: the time that a prompt guest needs.
        closing_seconds: the time for which the file of a removed device stays open.
        busy: the number of next removal requests that are answered with "guest is busy".
        uuid: of the machine; the default is that of QEMU.
        unknown: models that this QEMU does not have.
        accidents: ids of devices that were plugged into a port in use: a fabric adapter must never do that.
        added: ids of all devices that were ever plugged in, in order.
    """

    ports: dict[str, str] = field(default_factory=lambda: {"rp1": "pcie-root-port", "rp2": "pcie-root-port"})
    files: Files = field(default_factory=Files)
    guest: Guest = Guest.ABSENT
    release_seconds: float = 0.0
    closing_seconds: float = 0.0
    busy: int = 0
    uuid: str = UUID
    unknown: frozenset[str] = frozenset()
    accidents: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    devices: dict[str, _Device] = field(default_factory=dict)
    objects: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)
    _listeners: list[Callable[[str, Mapping[str, Any]], None]] = field(default_factory=list)

    def execute(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Execute a command and return its answer.

        Raises:
            Refusal: QEMU answers with an error.
        """
        method = getattr(self, "_" + command.replace("-", "_"), None)
        if method is None:
            raise Refusal(f"The command {command} has not been found", "CommandNotFound")
        return method(arguments)

    def listen(self, listener: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Call the listener with every event."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Stop calling the listener."""
        self._listeners.remove(listener)

    def power_off(self, device_id: str) -> None:
        """Power the slot off, as the guest does; QEMU then removes the device."""
        self._leave(device_id)

    # --- state ---

    def _qmp_capabilities(self, _: Arguments) -> Any:
        return {}

    def _query_uuid(self, _: Arguments) -> Any:
        return {"UUID": self.uuid}

    def _query_named_block_nodes(self, _: Arguments) -> Any:
        return [{"node-name": name, "file": path} for name, path in self.nodes.items()]

    def _qom_list(self, arguments: Arguments) -> Any:
        path = arguments["path"]
        if path == "/objects":
            return [{"name": name, "type": f"child<{it['qom-type']}>"} for name, it in self.objects.items()]
        if path == PERIPHERAL:
            all_models = self.ports | {name: device.model for name, device in self.devices.items()}
            return [{"name": name, "type": f"child<{model}>"} for name, model in all_models.items()]
        return [
            {"name": "realized", "type": "bool"},
            *({"name": name, "type": "link<device>"} for name in self._children(path)),
        ]

    def _qom_get(self, arguments: Arguments) -> Any:
        path, wanted = arguments["path"], arguments["property"]
        parent, _, name = path.rpartition("/")
        if parent == "/objects" and name in self.objects:
            return self.objects[name][wanted]
        if parent == PERIPHERAL and name in self.ports:
            return 1 + list(self.ports).index(name)
        children = self._children(path)
        if wanted not in children:
            raise Refusal(f"Property 'PCIE.{wanted}' not found")
        return f"{PERIPHERAL}/{children[wanted]}"

    def _children(self, path: str) -> dict[str, str]:
        port = path.rpartition("/")[2]
        if port not in self.ports or path != f"{PERIPHERAL}/{port}/{port}":
            raise Refusal(f"Device '{path}' not found", "DeviceNotFound")
        there = [name for name, device in self.devices.items() if device.port == port]
        return {f"child[{number}]": name for number, name in enumerate(there)}

    # --- objects and files ---

    def _object_add(self, arguments: Arguments) -> Any:
        name = arguments["id"]
        if name in self.objects:
            raise Refusal(f"attempt to add duplicate property '{name}' to object (type 'container')")
        self.objects[name] = arguments
        return {}

    def _object_del(self, arguments: Arguments) -> Any:
        name = arguments["id"]
        if name not in self.objects:
            raise Refusal(f"object '{name}' not found")
        if self._is_used(name):
            raise Refusal(f"object '{name}' is in use, can not be deleted")
        del self.objects[name]
        return {}

    def _blockdev_add(self, arguments: Arguments) -> Any:
        name, path = arguments["node-name"], arguments["file"]["filename"]
        if name in self.nodes:
            raise Refusal(f"Duplicate nodes with node-name='{name}'")
        if "missing" in path:
            raise Refusal(f"Could not open '{path}': No such file or directory")
        self.nodes[name] = path
        return {}

    def _blockdev_del(self, arguments: Arguments) -> Any:
        name = arguments["node-name"]
        if name not in self.nodes:
            raise Refusal(f"Failed to find node with node-name='{name}'")
        if self._is_used(name):
            raise Refusal(f"Node {name} is in use")
        del self.nodes[name]
        return {}

    def _is_used(self, name: str) -> bool:
        return name in self._held or any(
            name in device.arguments.values() for device in self.devices.values()
        )

    # --- devices ---

    def _device_add(self, arguments: Arguments) -> Any:
        driver, name, bus = arguments["driver"], arguments["id"], arguments["bus"]
        self._check_addable(driver, name, bus)
        if (node := arguments.get("drive")) is not None:
            self._open_for_writing(node)
        occupied = any(device.port == bus for device in self.devices.values())
        self.devices[name] = _Device(model=driver, port=bus, arguments=arguments)
        self.added.append(name)
        if occupied:
            # QEMU accepts, the guest sees the button pressed, and soon both devices are gone.
            self.accidents.append(name)
            for doomed in [each for each, device in self.devices.items() if device.port == bus]:
                self._leave_after(doomed, 0.05)
        return {}

    def _check_addable(self, driver: str, name: str, bus: str) -> None:
        if driver in self.unknown:
            raise Refusal(f"'{driver}' is not a valid device model name")
        if bus not in self.ports:
            raise Refusal(f"Bus '{bus}' not found")
        if name in self.devices:
            raise Refusal(f"Duplicate device ID '{name}'")

    def _open_for_writing(self, node: str) -> None:
        path = self.nodes[node]
        if self.files.writers.setdefault(path, self) is not self:
            # QEMU 7.2 does not release the node that a device failed with.
            self._held.add(node)
            raise Refusal('Failed to get "write" lock')

    def _device_del(self, arguments: Arguments) -> Any:
        name = arguments["id"]
        if (device := self.devices.get(name)) is None:
            raise Refusal(f"Device '{name}' not found", "DeviceNotFound")
        if self.busy:
            self.busy -= 1
            raise Refusal("Hot-unplug failed: guest is busy (power indicator blinking)")
        if device.pressed:
            raise Refusal(f"Device {name} is already in the process of unplug")
        match self.guest:
            case Guest.ABSENT:
                self._leave(name)
            case Guest.PROMPT:
                device.pressed = True
                self._leave_after(name, self.release_seconds)
            case Guest.SILENT:
                device.pressed = True
            case Guest.REFUSING:
                self._tell("DEVICE_UNPLUG_GUEST_ERROR", {"device": name, "path": f"{PERIPHERAL}/{name}"})
        return {}

    def _leave_after(self, name: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.devices[name].leaving = loop.call_later(seconds, self._leave, name)

    def _leave(self, name: str) -> None:
        device = self.devices.pop(name, None)
        if device is None:
            return
        if device.leaving is not None:
            device.leaving.cancel()
        if (node := device.arguments.get("drive")) is not None:
            self._held.add(node)
            asyncio.get_running_loop().call_later(self.closing_seconds, self._close, node)
        if device.model == "cxl-type3":
            # QEMU 7.2 keeps remains of the device: it sends no event and does not release the memory.
            self._held.add(device.arguments["memdev"])
            return
        self._tell("DEVICE_DELETED", {"device": name, "path": f"{PERIPHERAL}/{name}"})

    def _close(self, node: str) -> None:
        self._held.discard(node)
        self.files.writers.pop(self.nodes[node], None)

    def _tell(self, name: str, data: Mapping[str, Any]) -> None:
        for listener in tuple(self._listeners):
            listener(name, data)
