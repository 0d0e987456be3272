"""Dax devices: Documentation/ABI/testing/sysfs-bus-dax, listed in `/sys/bus/dax/devices`."""

import re

from drawbar.driver.node.inventory import children, files, model

NAME = re.compile(r"dax(\d+)\.(\d+)")
_FOLDER = "bus/dax/devices"
_REGION = re.compile(r"region\d+")


def names(root: str) -> list[str]:
    """Of all dax devices."""
    return [name for name in files.names(f"{root}/{_FOLDER}") if NAME.fullmatch(name)]


def read_one(root: str, name: str) -> model.DaxDevice | None:
    """The dax device of this name, or None if there is none."""
    link = files.link_target(f"{root}/{_FOLDER}/{name}")
    if link is None or not NAME.fullmatch(name):
        return None
    relative = files.below_root(link)
    path = f"{root}/{relative}"
    regions = [part for part in relative.split("/") if _REGION.fullmatch(part)]
    return model.DaxDevice(
        name=name,
        path=relative,
        region=regions[-1] if regions else None,
        driver=files.link_name(path + "/driver"),
        size_bytes=files.number(path + "/size"),
        align_bytes=files.number(path + "/align"),
        target_node=files.node_number(files.number(path + "/target_node")),
        device_node=children.device_node(path),
    )


def order(name: str) -> tuple[int, int]:
    """Sorts names by their numbers."""
    match = NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (0, 0)
