"""NVMe controllers, and the disks that several of them lead to (drivers/nvme/host)."""

import re

from drawbar.driver.node.inventory import children, files, model

_CONTROLLER = re.compile(r"nvme\d+")
_SUBSYSTEMS = "devices/virtual/nvme-subsystem"
_NOWHERE = frozenset({"(efault)", "(null)"})
"""What the kernel writes for a text that is not there (lib/vsprintf.c). A controller that has not been asked yet who it is
answers so for a moment, Linux 6.1 does."""


def read(path: str) -> tuple[model.NvmeController, ...]:
    """The controllers of the function in this directory."""
    return tuple(
        model.NvmeController(
            name=name,
            state=files.text(f"{path}/nvme/{name}/state") or None,
            model=_told(f"{path}/nvme/{name}/model"),
            firmware=_told(f"{path}/nvme/{name}/firmware_rev"),
            serial=_told(f"{path}/nvme/{name}/serial"),
        )
        for name in files.names(path + "/nvme")
        if _CONTROLLER.fullmatch(name)
    )


def _told(path: str) -> str | None:
    said = files.text(path)
    return said if said and said not in _NOWHERE else None


def behind(root: str, subsystem: str) -> frozenset[str]:
    """The functions whose controllers lead to the disks of an NVMe subsystem."""
    path = f"{root}/{_SUBSYSTEMS}/{subsystem}"
    found = set()
    for name in files.names(path):
        if _CONTROLLER.fullmatch(name):
            parts = (files.link_target(f"{path}/{name}") or "").split("/")
            found |= {part for part in parts if children.ADDRESS.fullmatch(part)}
    return frozenset(found)
