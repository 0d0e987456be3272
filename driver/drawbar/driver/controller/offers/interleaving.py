"""The rules for memory that is interleaved over the devices of a composite."""

import itertools
from collections.abc import Mapping

from drawbar.driver.controller.offers import group
from drawbar.fabric import contract

WAYS = (2, 3, 4, 6, 8, 12, 16)
"""The possible numbers of devices for interleaved memory (CXL 3.1, 8.2.4.20.7)."""


def find_problem(given: str, members: Mapping[str, contract.Device | None]) -> str | None:
    """Return why the memory of a claim's devices cannot be interleaved, in a sentence, or None if it may be.

    Devices other than memory ignore the demand, like any other that does not concern them.

    Args:
        given: the DRA name of the composite, or of the device.
        members: by name, the composite's devices, or the single device; unlisted ones are judged once they are listed.
    """
    listed = {name: device for name, device in members.items() if device is not None}
    strangers = [
        name for name, device in listed.items() if device.device_class is not contract.DeviceClass.CXL_MEMORY
    ]
    if listed and len(strangers) == len(listed):
        return None
    if len(members) < group.LEAST_MEMBERS:
        return (
            f"memory.interleave is for a composite of CXL memory devices, and {given} is a device by itself: leave it out, or "
            f"claim a composite (spec.composites of its Fabric)"
        )
    if strangers:
        return f"memory.interleave is for CXL memory, and {strangers[0]}, a member of composite {given}, is none: leave it out"
    if len(members) not in WAYS:
        *fewer, most = WAYS
        return (
            f"memory.interleave takes {', '.join(map(str, fewer))} or {most} devices, and composite {given} has {len(members)}: "
            f"leave it out, or change spec.composites of its Fabric"
        )
    sizes = {name: device.memory_bytes for name, device in listed.items() if device.memory_bytes}
    if len(set(sizes.values())) > 1:
        (first, its), (other, differs) = next(
            pair for pair in itertools.pairwise(sizes.items()) if pair[0][1] != pair[1][1]
        )
        return (
            f"memory.interleave needs members of one size, and of composite {given} {first} has {its} bytes and {other} "
            f"{differs}: leave it out, or change spec.composites of its Fabric"
        )
    return None
