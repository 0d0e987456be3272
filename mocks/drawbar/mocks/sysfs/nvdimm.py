"""Persistent CXL memory on a mocked host: the devices of `cxl_pmem` and `libnvdimm`.

Names, order, events and attributes are those of Linux 6.1.192. Names of the nd bus are ambiguous: it has a `region0`
of its own, and its `dax0.0` is not a dax device but a seed for one.

Limits: no namespaces (writes to `namespace0.0`, `btt0.0`, `pfn0.0` and `dax0.0` have no effect), no labels, no
`available_slots` and no `set_cookie`.
"""

from collections.abc import Iterator

from drawbar.mocks.sysfs import cxl
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable, writable
from drawbar.mocks.sysfs.steps import Add, Bind, Step

LABEL_BYTES = 1 << 20
_BRIDGE = f"{cxl.ROOT}/nvdimm-bridge0"
_BUS = f"{_BRIDGE}/ndbus0"
_NOWHERE = Attribute()  # reading it is ENXIO on a kernel


def bridge() -> tuple[Kobject, ...]:
    """Return the devices of a host without memory cards."""
    return (
        cxl.device(_BRIDGE, "cxl_nvdimm_bridge", kind=1, driver="cxl_nvdimm_bridge"),
        _nd(
            _BUS,
            "",
            kind=0,
            driver="nd_bus",
            files={"commands": readable(""), "provider": readable("CXL")},
        ),
    )


def dimm(memdev: Kobject, instance: int) -> Iterator[Step]:
    """Yield the steps of a persistent memory device, after its driver has bound."""
    own = cxl.device(f"{memdev.path}/pmem{instance}", "cxl_nvdimm", kind=2, driver="cxl_nvdimm")
    shown = _nd(
        f"{_BUS}/nmem{instance}",
        "nvdimm",
        kind=1,
        driver="nvdimm",
        uevent={"MAJOR": "242", "MINOR": str(instance), "DEVNAME": f"nmem{instance}"},
        files={
            "commands": readable("get_size get_data set_data "),
            "dev": readable(f"242:{instance}"),
            "flags": readable("label "),
            "state": readable("idle"),
        },
    )
    yield from (Add(kobject=own), Add(kobject=shown), Bind(kobject=shown), Bind(kobject=own))


def region(above: Kobject, number: int, *, start: int, size_bytes: int, node: int) -> tuple[Step, ...]:
    """Return the steps of binding `cxl_region` to a persistent region.

    Args:
        above: the CXL region.
        number: the region's number.
        start: the region's first address.
        size_bytes: the region's size.
        node: the NUMA node of its memory, if it became one.
    """
    own = cxl.device(f"{above.path}/pmem_region{number}", "cxl_pmem_region", kind=7, driver="cxl_pmem_region")
    nodes = {"numa_node": readable("0"), "target_node": readable(str(node))}
    shown = _nd(
        f"{_BUS}/region{number}",
        "nd_pmem",
        kind=2,
        driver="nd_region",
        files={
            **nodes,
            "available_size": readable(str(size_bytes)),
            "dax_seed": readable(f"dax{number}.0"),
            "mappings": readable("1"),
            "namespace_seed": readable(f"namespace{number}.0"),
            "nstype": readable("5"),
            "persistence_domain": readable("memory_controller"),
            "read_only": writable("0"),
            "resource": Attribute(content=f"{start:#x}\n".encode(), mode=0o400),
            "size": readable(str(size_bytes)),
        },
    )
    namespace, btt, pfn, dax = _seeds(shown, number, nodes)
    return (
        Add(kobject=own),
        Add(kobject=shown),
        Bind(kobject=own),
        Bind(kobject=above),
        *(Add(kobject=kobject) for kobject in (namespace, btt, pfn)),
        Bind(kobject=shown),
        Add(kobject=dax),
    )


def _seeds(region: Kobject, number: int, nodes: dict[str, Attribute]) -> Iterator[Kobject]:
    """Yield the seeds of a namespace and of the devices on top of one."""
    empty = {"namespace": writable(""), "size": _NOWHERE, "uuid": writable("")}
    mapped = {
        "align": writable("2097152"),
        "mode": writable("none"),
        "resource": Attribute(mode=0o400),
        "supported_alignments": readable("4096 2097152 1073741824 "),
    }
    content = {
        "nd_namespace_pmem": {
            "alt_name": writable(""),
            "holder": readable(""),
            "mode": readable("raw"),
            "nstype": readable("5"),
            "resource": Attribute(mode=0o400),
            "size": writable("0"),
            "uuid": writable(""),
        },
        "nd_btt": {**empty, "sector_size": writable("512 520 528 4096 4104 4160 4224 ")},
        "nd_pfn": {**empty, **mapped},
        "nd_dax": {**empty, **mapped},
    }
    for devtype, files in content.items():
        name = devtype.split("_")[1]
        # In the kernel all except dax have the same kind, `nd:t5`.
        kind = 7 if name == "dax" else 5
        yield _nd(f"{region.path}/{name}{number}.0", devtype, kind=kind, files={**nodes, **files})


def _nd(
    path: str,
    devtype: str,
    *,
    kind: int,
    driver: str | None = None,
    uevent: dict[str, str] | None = None,
    files: dict[str, Attribute] | None = None,
) -> Kobject:
    """Return a device on the nd bus; `kind` is the number in its module alias (include/uapi/linux/ndctl.h)."""
    described = {"DEVTYPE": devtype} if devtype else {}
    return Kobject(
        path=path,
        subsystem="nd",
        subsystem_path="bus/nd",
        uevent={**(uevent or {}), **described, "MODALIAS": f"nd:t{kind}"},
        files={
            **({"devtype": readable(devtype), "modalias": readable(f"nd:t{kind}")} if devtype else {}),
            **(files or {}),
        },
        driver=driver,
    )
