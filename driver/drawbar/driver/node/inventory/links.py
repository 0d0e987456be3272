"""PCIe link speeds and widths, as the kernel writes them.

`current_link_speed` says `16.0 GT/s PCIe`, `8 GT/s` on old kernels and `Unknown` where the link is down;
widths of a link that is down come out as 0, 63 or 255 (all ones, cut).
"""

import functools

from drawbar.driver.node.inventory import files, model

_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})  # PCI Express Base Specification, 7.5.3.6
_HIGHEST_SPEED_GTS = 256.0  # PCIe 8.0


NONE = model.Link()
"""Of a function that has none, or does not say."""


def read(directory: int) -> model.Link:
    """The link of the function whose directory this descriptor is."""
    return _link(
        files.text("current_link_speed", directory),
        files.text("current_link_width", directory),
        files.text("max_link_speed", directory),
        files.text("max_link_width", directory),
    )


@functools.lru_cache(maxsize=256)  # a host has thousands of links, and few different ones
def _link(now: str | None, lanes: str | None, fastest: str | None, most: str | None) -> model.Link:
    return model.Link(
        speed_gts=speed(now),
        width=width(files.parse_number(lanes)),
        max_speed_gts=speed(fastest),
        max_width=width(files.parse_number(most)),
    )


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
