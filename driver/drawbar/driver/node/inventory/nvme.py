"""NVMe controllers, and the disks that several of them lead to (drivers/nvme/host)."""

import re

from drawbar.driver.node.inventory import children, files, model

_CONTROLLER = re.compile(r"nvme\d+")
_SUBSYSTEMS = "devices/virtual/nvme-subsystem"


def read(path: str) -> tuple[model.NvmeController, ...]:
    """The controllers of the function in this directory."""
    return tuple(
        model.NvmeController(
            name=name,
            state=files.text(f"{path}/nvme/{name}/state") or None,
            model=files.text(f"{path}/nvme/{name}/model") or None,
            firmware=files.text(f"{path}/nvme/{name}/firmware_rev") or None,
            serial=files.text(f"{path}/nvme/{name}/serial") or None,
        )
        for name in files.names(path + "/nvme")
        if _CONTROLLER.fullmatch(name)
    )


def behind(root: str, subsystem: str) -> frozenset[str]:
    """The functions whose controllers lead to the disks of an NVMe subsystem."""
    path = f"{root}/{_SUBSYSTEMS}/{subsystem}"
    found = set()
    for name in files.names(path):
        if _CONTROLLER.fullmatch(name):
            parts = (files.link_target(f"{path}/{name}") or "").split("/")
            found |= {part for part in parts if children.ADDRESS.fullmatch(part)}
    return frozenset(found)
