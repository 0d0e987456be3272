"""A device of this node as it is published in a ResourceSlice; pure."""

from drawbar.driver.api import quantities, slices
from drawbar.driver.node.inventory import attributes
from drawbar.driver.node.local import naming


def published(one: naming.Resident) -> slices.Device:
    """The device with everything a claim can select it by, and without taints."""
    amount = memory_bytes(one)
    values = attributes.of(one.card)
    return slices.Device(
        name=one.name,
        attributes={name: _attribute(value) for name, value in sorted(values.items())},
        capacity={"memory": slices.Capacity(value=quantities.of_bytes(amount))} if amount else {},
    )


def memory_bytes(one: naming.Resident) -> int:
    """The memory of its CXL memory devices; 0 where the kernel does not say."""
    return sum((memdev.ram_bytes or 0) + (memdev.pmem_bytes or 0) for memdev in one.card.memdevs)


def _attribute(value: attributes.Value) -> slices.Attribute:
    # A boolean is an int, too.
    if isinstance(value, bool):
        return slices.Attribute(bool_=value)
    if isinstance(value, int):
        return slices.Attribute(int_=value)
    return slices.Attribute(string=value)
