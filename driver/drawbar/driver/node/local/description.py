"""A device of this node as it is published in a ResourceSlice; pure."""

from drawbar.driver.api import slices
from drawbar.driver.node.inventory import attributes
from drawbar.driver.node.local import naming

_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def published(one: naming.Resident) -> slices.Device:
    """The device with everything a claim can select it by, and without taints."""
    amount = memory_bytes(one)
    values = attributes.of(one.card)
    return slices.Device(
        name=one.name,
        attributes={name: _attribute(value) for name, value in sorted(values.items())},
        capacity={"memory": slices.Capacity(value=quantity(amount))} if amount else {},
    )


def memory_bytes(one: naming.Resident) -> int:
    """The memory of its CXL memory devices; 0 where the kernel does not say."""
    return sum((memdev.ram_bytes or 0) + (memdev.pmem_bytes or 0) for memdev in one.card.memdevs)


def quantity(amount_bytes: int) -> str:
    """A Kubernetes quantity in canonical form, as the API server gives it back."""
    for power in range(len(_SUFFIXES) - 1, 0, -1):
        if amount_bytes and amount_bytes % 1024**power == 0:
            return f"{amount_bytes // 1024**power}{_SUFFIXES[power]}"
    return str(amount_bytes)


def _attribute(value: attributes.Value) -> slices.Attribute:
    # A boolean is an int, too.
    if isinstance(value, bool):
        return slices.Attribute(bool_=value)
    if isinstance(value, int):
        return slices.Attribute(int_=value)
    return slices.Attribute(string=value)
