"""The check of a device's driver and firmware against the minimum versions of its class.

Sources: Documentation/ABI/stable/sysfs-module (`version`); drivers/nvme/host/sysfs.c (`firmware_rev`).
"""

import re
from pathlib import Path

from drawbar.driver.api import attachments
from drawbar.driver.node.inventory import files, model

_PARTS = re.compile(r"\d+|[^\W\d_]+")


def too_old(card: model.Card, least: attachments.Versions, sysfs: Path) -> str | None:
    """Return the part that is too old or shows no version, in a clause with the remedy, or None. It reads files.

    Args:
        card: the device, with its driver bound.
        least: the minimum versions.
        sysfs: the path of the host's sysfs.
    """
    driver = card.first.driver
    shown = files.text(f"{sysfs}/bus/pci/drivers/{driver}/module/version") if driver else None
    firmware = next((nvme.firmware for nvme in card.first.nvme if nvme.firmware), None)
    for what, version, wanted in (
        (f"its driver {driver}", shown, least.driver),
        ("its firmware", firmware, least.firmware),
    ):
        if not wanted:
            continue
        if version is None:
            return f"{what} shows no version to the kernel, and at least {wanted} is asked for: leave that out for such devices"
        if order(version) < order(wanted):
            return f"{what} has version {version}, and at least {wanted} is asked for: bring it up to date"
    return None


def order(version: str) -> tuple[tuple[bool, int, str], ...]:
    """Return the sort key of a version. Numbers compare as numbers, words alphabetically; a number precedes a word."""
    return tuple(
        (not part.isdigit(), int(part) if part.isdigit() else 0, "" if part.isdigit() else part.lower())
        for part in _PARTS.findall(version)
    )
