"""Volatile CXL memory as an administrator sets it up and takes it down: what `cxl` and `daxctl` do, by hand.

    region0 (CXL) -> dax_region0 -> dax0.0 -> a device file, or memory blocks

Names are those of the first device; the guest has one.

Source: Documentation/ABI/testing/sysfs-bus-cxl, sysfs-bus-dax.
"""

from lab import guest

CXL, DAX = "/sys/bus/cxl", "/sys/bus/dax"
REGION, DEVICE = "region0", "dax0.0"


async def make_region(machine: guest.Guest, size_bytes: int) -> None:
    """Make a region over all of the only endpoint, as `cxl create-region -t ram` does; bind no dax driver."""
    (endpoint,) = [name for name in await machine.names(f"{CXL}/devices") if name.startswith("endpoint")]
    decoder = f"decoder{endpoint.removeprefix('endpoint')}.0"
    for path, value in (
        ("decoder0.0/create_ram_region", REGION),
        (f"{REGION}/interleave_granularity", 256),
        (f"{REGION}/interleave_ways", 1),
        (f"{REGION}/size", size_bytes),
        (f"{decoder}/mode", "ram"),
        (f"{decoder}/dpa_size", size_bytes),
        (f"{REGION}/target0", decoder),
        (f"{REGION}/commit", 1),
    ):
        await machine.write(f"{CXL}/devices/{path}", f"{value}\n")
    await machine.write(f"{DAX}/drivers_autoprobe", "0\n")
    await machine.write(f"{CXL}/drivers_probe", f"{REGION}\n")
    await machine.write(f"{DAX}/drivers_autoprobe", "1\n")


async def bind(machine: guest.Guest, driver: str) -> None:
    """Bind the dax device to `device_dax` or `kmem`."""
    await machine.write(f"{DAX}/drivers/{driver}/new_id", f"{DEVICE}\n")
    await machine.write(f"{DAX}/drivers/{driver}/remove_id", f"{DEVICE}\n")


async def unbind(machine: guest.Guest, driver: str) -> None:
    """Take the dax device's driver away."""
    await machine.write(f"{DAX}/drivers/{driver}/unbind", f"{DEVICE}\n")


async def delete_region(machine: guest.Guest) -> None:
    """Delete the region, with all that was made of it."""
    await machine.write(f"{CXL}/devices/{REGION}/commit", "0\n")
    await machine.write(f"{CXL}/devices/decoder0.0/delete_region", f"{REGION}\n")
