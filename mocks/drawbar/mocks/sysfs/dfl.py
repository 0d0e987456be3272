"""DFL cards: FPGAs with the driver dfl-pci. `reconfiguration` loads designs into one.

A card has one engine with one port, as described in Documentation/fpga/dfl.rst. A base region has the engine
(`dfl-fme.N`) and the port (`dfl-port.N`). Below the engine are its manager, and a region for the port.

Limits: no bridges, VFs with released ports, interrupts or errors. A driver of these devices never binds later than the
card's own. `afu_id` does not follow the design.
"""

from collections.abc import Iterator

from drawbar.mocks.sysfs import kobjects
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable
from drawbar.mocks.sysfs.steps import Add, Bind, Step

DRIVER = "dfl-pci"
INTERFACE = "1a4222186dba448eb302425cbcde1406"
"""The interface id of bitstreams for these cards: `compat_id`."""
ENGINE_MAJOR, PORT_MAJOR = 240, 241


def steps(function: Kobject, instance: int) -> Iterator[Step]:
    """Yield the steps of the devices below the card's function, in order.

    Args:
        function: the card's function.
        instance: its number among the FPGAs of its host.
    """
    base = _device(f"{function.path}/fpga_region/region{2 * instance}", "fpga_region", parent=function)
    yield Add(kobject=base)
    engine = _feature(
        base,
        f"dfl-fme.{instance}",
        "dfl-fme",
        (ENGINE_MAJOR, instance),
        files={
            "bitstream_id": readable("0x123000200000185"),
            "bitstream_metadata": readable("0x1803271"),
            "ports_num": readable("1"),
        },
    )
    port = _feature(
        base,
        f"dfl-port.{instance}",
        "dfl-port",
        (PORT_MAJOR, instance),
        files={"afu_id": readable("d8424dc4a4a3c413f89e433683f9040b"), "id": readable("0")},
    )
    manager = _platform(engine, f"dfl-fme-mgr.{instance}", "dfl-fme-mgr")
    region = _platform(engine, f"dfl-fme-region.{instance}", "dfl-fme-region")
    for device in (engine, port):
        yield Add(kobject=device)
    for device in (manager, region):
        yield Add(kobject=device)
        yield Bind(kobject=device)
    yield Add(
        kobject=_device(
            f"{manager.path}/fpga_manager/fpga{instance}",
            "fpga_manager",
            parent=manager,
            files={
                "name": readable("DFL FME FPGA Manager"),
                "state": readable("unknown"),
                "status": Attribute(),
            },
        )
    )
    yield Add(
        kobject=_device(
            f"{region.path}/fpga_region/region{2 * instance + 1}",
            "fpga_region",
            parent=region,
            files={"compat_id": readable(INTERFACE)},
        )
    )
    for device in (engine, port, function):
        yield Bind(kobject=device)


def _device(path: str, subsystem: str, *, parent: Kobject, files: kobjects.Files | None = None) -> Kobject:
    return Kobject(
        path=path,
        subsystem=subsystem,
        subsystem_path=f"class/{subsystem}",
        files=files or {},
        links={"device": parent.path},
    )


def _platform(
    parent: Kobject,
    name: str,
    driver: str,
    *,
    uevent: dict[str, str] | None = None,
    files: kobjects.Files | None = None,
) -> Kobject:
    return Kobject(
        path=f"{parent.path}/{name}",
        subsystem="platform",
        subsystem_path="bus/platform",
        uevent={**(uevent or {}), "MODALIAS": f"platform:{driver}"},
        files=files or {},
        driver=driver,
    )


def _feature(
    base: Kobject, name: str, driver: str, numbers: tuple[int, int], *, files: kobjects.Files
) -> Kobject:
    major, minor = numbers
    return _platform(
        base,
        name,
        driver,
        uevent={"MAJOR": str(major), "MINOR": str(minor), "DEVNAME": name},
        files={"dev": readable(f"{major}:{minor}"), **files},
    )
