"""The CXL bus of a host without cards: the platform device, the ports and the decoders above endpoints.

Formats, modes and links follow the recording. No recording has the ports of a CXL switch; they follow
Documentation/ABI/testing/sysfs-bus-cxl.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from drawbar.mocks.sysfs import kobjects
from drawbar.mocks.sysfs.kobjects import Kobject, readable, trigger, writable

PLATFORM = "devices/platform/ACPI0017:00"
ROOT = f"{PLATFORM}/root0"
HOST_BRIDGE_PORT = f"{ROOT}/port1"
ROOT_DECODER = f"{ROOT}/decoder0.0"
WINDOW_START = 0x2_D000_0000
WINDOW_BYTES = 1 << 40
VOLATILE_REGIONS = (6, 3)
"""The first Linux with regions of volatile memory, and with the attribute `mode` of regions."""
_ACPI = "devices/LNXSYSTM:00/LNXSYBUS:00"
_ACPI_HOST_BRIDGE = f"{_ACPI}/ACPI0016:00"
_ROOT_KIND, _PORT_KIND, _DECODER_KIND = 4, 3, 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A CXL port between the root and the endpoints.

    Attributes:
        path: its directory.
        uport: the directory of its device on the host's side.
        dports: the directories of the PCI ports below it, by number.
    """

    path: str
    uport: str
    dports: Mapping[int, str]

    @property
    def decoder(self) -> str:
        """Return the directory of its only decoder."""
        number = self.path.rpartition("/port")[2]
        return f"{self.path}/decoder{number}.0"


def host_bridge_port(dports: Mapping[int, str]) -> Port:
    """Return the port of the only CXL host bridge."""
    return Port(path=HOST_BRIDGE_PORT, uport=_ACPI_HOST_BRIDGE, dports=dports)


def objects(
    *, uid: int, ports: tuple[Port, ...], linux: tuple[int, int] = VOLATILE_REGIONS
) -> Iterator[Kobject]:
    """Yield the ACPI companions, the platform device, the root and its ports; `uid` is the host bridge's number."""
    makes = ("pmem", "ram") if linux >= VOLATILE_REGIONS else ("pmem",)
    for name in ("ACPI0016:00", "ACPI0017:00"):
        yield _acpi(name)
    yield Kobject(
        path=PLATFORM,
        subsystem="platform",
        subsystem_path="bus/platform",
        uevent={"MODALIAS": "acpi:ACPI0017:"},
        files={"driver_override": writable("(null)"), "modalias": readable("acpi:ACPI0017:")},
        links={"firmware_node": f"{_ACPI}/ACPI0017:00"},
        driver="cxl_acpi",
    )
    yield device(
        ROOT, "cxl_port", kind=_ROOT_KIND, links={"uport": PLATFORM, f"dport{uid}": _ACPI_HOST_BRIDGE}
    )
    yield device(
        ROOT_DECODER,
        "cxl_decoder_root",
        kind=_DECODER_KIND,
        files={
            **{name: readable("1") for name in ("cap_pmem", "cap_ram", "cap_type2", "cap_type3")},
            **{f"create_{kind}_region": writable("region0") for kind in makes},
            "delete_region": trigger(),
            **decoder_files(start=WINDOW_START, size=WINDOW_BYTES),
            "target_list": readable(str(uid)),
        },
    )
    for port in ports:
        links = {f"dport{number}": path for number, path in port.dports.items()}
        yield device(
            port.path, "cxl_port", kind=_PORT_KIND, links={"uport": port.uport, **links}, driver="cxl_port"
        )
        yield device(
            port.decoder,
            "cxl_decoder_switch",
            kind=_DECODER_KIND,
            files=switch_decoder_files(tuple(port.dports)),
        )


def switch_decoder_files(
    targets: tuple[int, ...],
    *,
    start: int = 0,
    size: int = 0,
    ways: int = 1,
    region: str = "",
    granularity: int = 256,
) -> dict[str, kobjects.Attribute]:
    """Return the attributes of a decoder between the root and the endpoints; without a size it is unused."""
    return {
        **decoder_files(start=start, size=size, ways=ways, granularity=granularity),
        "region": readable(region),
        "target_list": readable(",".join(map(str, targets))),
        "target_type": readable("expander"),
    }


def endpoint_decoder_files(
    *,
    start: int = 0,
    size: int = 0,
    ways: int = 1,
    region: str = "",
    mode: str = "none",
    granularity: int = 256,
) -> dict[str, kobjects.Attribute]:
    """Return the attributes of an endpoint's decoder; without a size it is unused."""
    used = size // ways
    return {
        **decoder_files(start=start, size=size, ways=ways, granularity=granularity),
        "dpa_resource": readable("0x0" if used else "0xffffffffffffffff"),
        "dpa_size": writable(f"{used:#018x}"),
        "mode": writable(mode),
        "region": readable(region),
        "target_type": readable("expander"),
    }


def decoder_files(
    *, start: int, size: int, ways: int = 1, granularity: int = 256
) -> dict[str, kobjects.Attribute]:
    """Return the common attributes of all CXL decoders."""
    return {
        "interleave_granularity": readable(str(granularity)),
        "interleave_ways": readable(str(ways)),
        "locked": readable("0"),
        "size": readable(f"{size:#x}"),
        "start": start_file(start),
    }


def start_file(address: int) -> kobjects.Attribute:
    """Return the file with the start of a decoder's range; only root may read it."""
    return kobjects.Attribute(content=f"{address:#x}\n".encode(), mode=0o400)


def device(
    path: str,
    devtype: str,
    *,
    kind: int,
    uevent: dict[str, str] | None = None,
    files: dict[str, kobjects.Attribute] | None = None,
    links: dict[str, str] | None = None,
    driver: str | None = None,
) -> Kobject:
    """Return a device on the CXL bus; `kind` is the number in its module alias (drivers/cxl/cxl.h)."""
    described = devtype != "cxl_memdev"  # a memdev is a character device and has `dev` in place of these two
    return Kobject(
        path=path,
        subsystem="cxl",
        subsystem_path="bus/cxl",
        uevent={**(uevent or {}), "DEVTYPE": devtype, "MODALIAS": f"cxl:t{kind}"},
        files={
            **({"devtype": readable(devtype), "modalias": readable(f"cxl:t{kind}")} if described else {}),
            **(files or {}),
        },
        links=links or {},
        driver=driver,
    )


def _acpi(name: str) -> Kobject:
    hid = name.partition(":")[0]
    return Kobject(
        path=f"{_ACPI}/{name}",
        subsystem="acpi",
        subsystem_path="bus/acpi",
        uevent={"MODALIAS": f"acpi:{hid}:"},
        files={"hid": readable(hid), "modalias": readable(f"acpi:{hid}:"), "status": readable("15")},
    )
