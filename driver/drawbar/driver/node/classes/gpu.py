"""GPUs.

Nothing that the daemon does not own is stopped: a client of the GPU (`nvidia-persistenced`, an exporter) is named, and
whoever runs it ends it. The device files of NVIDIA's driver are not in sysfs; /proc/driver/nvidia tells the number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from drawbar.cdi import spec
from drawbar.driver.node.classes import generic, users
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model
from drawbar.fabric.classes import DeviceClass

_NVIDIA_MAJOR = 195  # Documentation/admin-guide/devices.txt
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", re.MULTILINE | re.IGNORECASE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_EXPORTER = "leave {address} out of its GPUs, or restart it when no pod has the GPU"
# Of programs that have all GPUs of a host open, by the first 15 characters of their names.
_REMEDIES = {
    "nvidia-persiste": "run nvidia-smi -i {address} -pm 0",
    "nv-hostengine": _EXPORTER,
    "dcgm-exporter": _EXPORTER,
    "gpuagent": _EXPORTER,
}
# Files that every user of such a GPU needs, and that give access to none by themselves.
_SHARED = {"nvidia": ("nvidiactl", "nvidia-uvm"), "amdgpu": ("kfd",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(generic.Generic):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.GPU
    class_codes: tuple[str, ...] = ("03",)
    slows_idle_link: bool = True
    asks_the_driver: bool = True
    needs_driver: bool = True
    subsystems: frozenset[str] = frozenset({"drm", "accel"})

    def users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Open device files, those of NVIDIA's driver among them."""
        own = users.of_nodes(_nvidia(host, card))
        # `super()` does not know the class that `slots=True` makes of this one.
        return (
            *users.find_openers(host.proc, own, self.remedies(card)),
            *generic.Generic.users(self, host, card),
        )

    def remedies(self, card: model.Card) -> Mapping[str, str]:
        """What ends the hold of a vendor's daemons and exporters."""
        return {name: remedy.format(address=card.address) for name, remedy in _REMEDIES.items()}

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """The files of this GPU, and those that all GPUs of its driver share; no libraries."""
        common = generic.Generic.edits(self, card, host)
        shared = tuple(
            spec.DeviceNode(path=f"/dev/{name}", permissions=spec.READ_WRITE)
            for name in _SHARED.get(card.first.driver or "", ())
            if (host.dev / name).exists()
        )
        own = tuple(generic.described(node) for node in _nvidia(host, card))
        return msgspec.structs.replace(common, device_nodes=(*common.device_nodes, *own, *shared))

    def names(self, card: model.Card, host: Host) -> frozenset[str]:
        """Its PCI address, and the UUID of NVIDIA's driver."""
        uuids = (_UUID.search(information) for information in _information(host, card))
        return generic.Generic.names(self, card, host) | {match[1].lower() for match in uuids if match}


def _nvidia(host: Host, card: model.Card) -> tuple[model.DeviceNode, ...]:
    nodes = []
    for information in _information(host, card):
        if match := _MINOR.search(information):
            minor = int(match[1])
            nodes.append(
                model.DeviceNode(
                    path=f"/dev/nvidia{minor}",
                    major=_NVIDIA_MAJOR,
                    minor=minor,
                    block=False,
                    subsystem="nvidia",
                )
            )
    return tuple(nodes)


def _information(host: Host, card: model.Card) -> tuple[str, ...]:
    """What NVIDIA's driver tells of the card's functions that it has."""
    return tuple(
        files.text(f"{host.proc}/driver/nvidia/gpus/{function.address}/information") or ""
        for function in card.functions
        if function.driver == "nvidia"
    )
