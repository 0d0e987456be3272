"""PCIe link speeds and widths, as the kernel writes them.

`current_link_speed` says `16.0 GT/s PCIe`, `8 GT/s` on old kernels and `Unknown` where the link is down;
widths of a link that is down come out as 0, 63 or 255 (all ones, cut).
"""

import functools

from drawbar.driver.node.inventory import files, model

_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})  # PCI Express Base Specification, 7.5.3.6
_HIGHEST_SPEED_GTS = 256.0  # PCIe 8.0


def read(path: str) -> model.Link:
    """The link of the function in this directory."""
    return model.Link(
        speed_gts=speed(files.text(path + "/current_link_speed")),
        width=width(files.number(path + "/current_link_width")),
        max_speed_gts=speed(files.text(path + "/max_link_speed")),
        max_width=width(files.number(path + "/max_link_width")),
    )


@functools.lru_cache(maxsize=32)  # a host has four or five different speeds, and thousands of links
def speed(value: str | None) -> float | None:
    """GT/s, or None for `Unknown`, for conventional PCI's MHz and for anything else."""
    if not value:
        return None
    amount, _, unit = value.partition(" ")
    if not unit.startswith("GT/s"):
        return None
    try:
        found = float(amount)
    except ValueError:
        return None
    return found if 0 < found <= _HIGHEST_SPEED_GTS else None


def width(value: int | None) -> int | None:
    """Lanes, or None for a number of lanes that no link has."""
    return value if value in _WIDTHS else None
