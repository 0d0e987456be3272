"""Persistent CXL memory as an administrator sets it up and takes it down: what `cxl`, `ndctl` and `daxctl` do, by hand.

    region0 (CXL) -> region0 and namespace0.0 (nd bus) -> dax0.0 -> memory blocks

Names are those of the first device; the guest has one. The newline behind a value matters: the kernel takes no uuid
without it.

Source: Documentation/ABI/testing/sysfs-bus-cxl, sysfs-bus-nd, sysfs-bus-dax, sysfs-devices-memory.
"""

import uuid

from lab import errors, guest

CXL, ND, DAX, MEMORY = "/sys/bus/cxl", "/sys/bus/nd", "/sys/bus/dax", "/sys/devices/system/memory"
REGION, NAMESPACE, DEVICE = "region0", "namespace0.0", "dax0.0"
ALIGNMENT_BYTES = 2 << 20


async def make_region(machine: guest.Guest, size_bytes: int) -> None:
    """Make a committed region over all of the only endpoint, as `cxl create-region -t pmem` does."""
    (endpoint,) = [name for name in await machine.names(f"{CXL}/devices") if name.startswith("endpoint")]
    decoder = f"decoder{endpoint.removeprefix('endpoint')}.0"
    for path, value in (
        ("decoder0.0/create_pmem_region", REGION),
        (f"{REGION}/interleave_ways", 1),
        (f"{REGION}/interleave_granularity", 256),
        (f"{REGION}/uuid", uuid.uuid4()),
        (f"{REGION}/size", size_bytes),
        (f"{decoder}/mode", "pmem"),
        (f"{decoder}/dpa_size", size_bytes),
        (f"{REGION}/target0", decoder),
        (f"{REGION}/commit", 1),
    ):
        await _write(machine, f"{CXL}/devices/{path}", value)
    await _write(machine, f"{CXL}/drivers/cxl_region/bind", REGION)


async def delete_region(machine: guest.Guest) -> None:
    """Delete the region, with all that was made of it."""
    await _write(machine, f"{CXL}/devices/{REGION}/commit", 0)
    await _write(machine, f"{CXL}/devices/decoder0.0/delete_region", REGION)


async def make_dax(machine: guest.Guest, size_bytes: int) -> None:
    """Make a dax device over all of the region, as `ndctl create-namespace -m devdax` does."""
    for path, value in (
        (f"{NAMESPACE}/uuid", uuid.uuid4()),
        (f"{NAMESPACE}/size", size_bytes),
        (f"{DEVICE}/mode", "pmem"),
        (f"{DEVICE}/align", ALIGNMENT_BYTES),
        (f"{DEVICE}/uuid", uuid.uuid4()),
        (f"{DEVICE}/namespace", NAMESPACE),
    ):
        await _write(machine, f"{ND}/devices/{path}", value)
    await _write(machine, f"{ND}/drivers/dax_pmem/bind", DEVICE)


async def to_system_memory(machine: guest.Guest) -> list[str]:
    """Hand the dax device to the kernel as memory, as `daxctl reconfigure-device -m system-ram -N` does; return the blocks."""
    await _write(machine, f"{DAX}/drivers/device_dax/unbind", DEVICE)
    await _write(machine, f"{DAX}/drivers/kmem/new_id", DEVICE)
    return await blocks(machine)


async def blocks(machine: guest.Guest) -> list[str]:
    """Return the names of the dax device's memory blocks."""
    node = (await machine.read(f"{DAX}/devices/{DEVICE}/target_node")).strip()
    names = await machine.names(f"/sys/devices/system/node/node{node}")
    return [name for name in names if name.startswith("memory") and name[6:].isdecimal()]


async def set_state(machine: guest.Guest, names: list[str], state: str) -> None:
    """Set the state of memory blocks: `online_movable` or `offline`."""
    for name in names:
        await _write(machine, f"{MEMORY}/{name}/state", state)


async def states(machine: guest.Guest, names: list[str]) -> set[str]:
    """Return the states of the blocks; empty once there are no blocks."""
    there = [name for name in names if name in await machine.names(MEMORY)]
    return {(await machine.read(f"{MEMORY}/{name}/state")).strip() for name in there}


async def from_system_memory(machine: guest.Guest) -> None:
    """Take the memory from the kernel. What is online stays forever then, and so do its neighbours."""
    await _write(machine, f"{DAX}/drivers/kmem/unbind", DEVICE)
    await _write(machine, f"{ND}/drivers/dax_pmem/unbind", DEVICE)


async def used_bytes(machine: guest.Guest, node: str) -> int:
    """Return how much of a NUMA node's memory is in use.

    Raises:
        errors.GuestFailure: there is no such node.
    """
    lines = (await machine.read(f"/sys/devices/system/node/node{node}/meminfo")).splitlines()
    kibibytes = next((line.split()[3] for line in lines if "MemUsed:" in line), None)
    if kibibytes is None:
        raise errors.GuestFailure(f"node {node} has no memory")
    return int(kibibytes) << 10


async def _write(machine: guest.Guest, path: str, value: object) -> None:
    await machine.write(path, f"{value}\n")
