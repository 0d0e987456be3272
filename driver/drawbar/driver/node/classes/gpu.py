"""GPUs.

The node does not stop programs of other owners. It names a client of the GPU (`nvidia-persistenced`, an exporter), and
the owner has to end it. `driverfiles` finds the device files of the GPU's driver.

NVIDIA's container runtime adds all GPUs of the host to a container of an image with `NVIDIA_VISIBLE_DEVICES=all`, as most
images with CUDA have it. The value `void` makes it add none.

Source: NVIDIA/nvidia-container-toolkit, internal/config/image.
"""

from collections.abc import Mapping

import msgspec

from drawbar.cdi import spec
from drawbar.driver.node.classes import generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model, nvidia
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind

_EXPORTER = "leave {address} out of its GPUs, or restart it when no pod has the GPU"
_NO_OTHER_GPU = "NVIDIA_VISIBLE_DEVICES=void"
# For programs that open all GPUs of a host, by the first 15 characters of their names.
_REMEDIES = {
    "nvidia-persiste": "run nvidia-smi -i {address} -pm 0",
    "nvidia-cuda-mps": "run echo quit | nvidia-cuda-mps-control",
    "nv-hostengine": _EXPORTER,
    "dcgm-exporter": _EXPORTER,
    "gpuagent": _EXPORTER,
}


class Gpu(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.GPU
    class_codes: tuple[str, ...] = ("03",)
    needs_driver: bool = True
    subsystems: frozenset[str] = frozenset({"drm", "accel"})

    def release_hints(self, card: model.Card) -> Mapping[str, str]:
        """Return the remedies for a vendor's daemons and exporters."""
        return {name: remedy.format(address=card.address) for name, remedy in _REMEDIES.items()}

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """Return the edits of any class, and for NVIDIA's driver the variable that keeps its container runtime from adding GPUs."""
        edits = generic.Generic.edits(self, card, host)
        if all(function.driver != nvidia.DRIVER for function in card.functions):
            return edits
        return msgspec.structs.replace(edits, env=(*edits.env, _NO_OTHER_GPU))

    def names(self, card: model.Card, host: Host) -> frozenset[str]:
        """Return the card's PCI address and the UUIDs of NVIDIA's driver, in small letters."""
        uuids = (
            f"gpu-{each.value}"
            for function in card.functions
            for each in function.identifiers
            if each.kind is Kind.GPU_UUID
        )
        return generic.Generic.names(self, card, host) | frozenset(uuids)
