"""CXL memory devices, ports, decoders, regions and dax devices, and their relations.

They are listed in `/sys/bus/cxl/devices` and `/sys/bus/dax/devices`. Without the kernel's driver these are absent. A
region takes decoders of all ports between the root and its memory devices. The kernel sends no event for these changes,
and none for a port with a newly committed decoder.

Source: Documentation/ABI/testing/sysfs-bus-cxl and sysfs-bus-dax.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from drawbar.driver.node.inventory import files, model, pci

_NAME = re.compile(r"(mem|root|port|endpoint|region)(\d+)|(decoder)(\d+)\.(\d+)")
_PORT_KINDS = {"root": "root", "port": "switch", "endpoint": "endpoint"}
_ORDER = ("mem", *_PORT_KINDS, "decoder", "region")

Object = model.Memdev | model.Port | model.Decoder | model.Region
"""An object on the CXL bus."""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """All objects on the CXL bus, in order of name."""

    memdevs: tuple[model.Memdev, ...] = ()
    ports: tuple[model.Port, ...] = ()
    decoders: tuple[model.Decoder, ...] = ()
    regions: tuple[model.Region, ...] = ()


def read(root: str) -> Topology:
    """Return the whole CXL bus of the tree at `root`, without objects that disappear meanwhile."""
    return topology(cxl_object for name in names(root) if (cxl_object := read_one(root, name)) is not None)


def names(root: str) -> list[str]:
    """Return the names of the known kinds of objects on the CXL bus."""
    return [name for name in files.names(f"{root}/bus/cxl/devices") if _NAME.fullmatch(name)]


def topology(objects: Iterable[Object]) -> Topology:
    """Return these objects as a topology, each kind in order of name."""
    ordered = sorted(objects, key=lambda each: order(each.name))
    return Topology(
        memdevs=tuple(each for each in ordered if isinstance(each, model.Memdev)),
        ports=tuple(each for each in ordered if isinstance(each, model.Port)),
        decoders=tuple(each for each in ordered if isinstance(each, model.Decoder)),
        regions=tuple(each for each in ordered if isinstance(each, model.Region)),
    )


def read_one(root: str, name: str) -> Object | None:
    """Return the object of this name, or None if there is none."""
    match = _NAME.fullmatch(name)
    link = files.link_target(f"{root}/bus/cxl/devices/{name}")
    if match is None or link is None:
        return None
    relative = files.resolve_below_root(link)
    match match[1] or match[3]:
        case "mem":
            return _memdev(root, name, relative)
        case "decoder":
            return _decoder(root, name, relative)
        case "region":
            return _region(root, name, relative)
        case kind:
            return _port(root, kind, name, relative)


def order(name: str) -> tuple[int, int, int]:
    """Return a sort key for names, by kind and then by number: mem2 before mem10, root before port."""
    match = _NAME.fullmatch(name)
    if match is None:
        return len(_ORDER), 0, 0
    return _ORDER.index(match[1] or match[3]), int(match[2] or match[4]), int(match[5] or 0)


def _memdev(root: str, name: str, relative: str) -> model.Memdev:
    path = f"{root}/{relative}"
    parent = relative.rpartition("/")[0].rpartition("/")[2]
    return model.Memdev(
        name=name,
        path=relative,
        serial=model.plausible_serial(files.number(path + "/serial")),
        pci_address=parent if pci.ADDRESS.fullmatch(parent) else None,
        ram_bytes=files.number(path + "/ram/size"),
        pmem_bytes=files.number(path + "/pmem/size"),
        numa_node=files.node_number(files.number(path + "/numa_node")),
        firmware=files.text(path + "/firmware_version") or None,
        device_node=pci.device_node(path),
    )


def _port(root: str, kind: str, name: str, relative: str) -> model.Port:
    return model.Port(
        name=name,
        path=relative,
        kind=_PORT_KINDS[kind],
        uport=files.link_name(f"{root}/{relative}/uport"),
        parent=None if kind == "root" else _parent(relative),
        decoders_committed=files.number(f"{root}/{relative}/decoders_committed"),
    )


def _decoder(root: str, name: str, relative: str) -> model.Decoder:
    path = f"{root}/{relative}"
    return model.Decoder(
        name=name,
        path=relative,
        kind=(files.text(path + "/devtype") or "").removeprefix("cxl_decoder_") or "unknown",
        port=_parent(relative),
        start=files.number(path + "/start"),
        size_bytes=files.number(path + "/size"),
        mode=files.text(path + "/mode") or None,
        target_type=files.text(path + "/target_type") or None,
        targets=_targets(files.text(path + "/target_list")),
        region=files.text(path + "/region") or None,
        interleave_ways=files.number(path + "/interleave_ways"),
        interleave_granularity_bytes=files.number(path + "/interleave_granularity"),
        locked=files.flag(files.number(path + "/locked")),
        dpa_bytes=files.number(path + "/dpa_size"),
    )


def _region(root: str, name: str, relative: str) -> model.Region:
    path = f"{root}/{relative}"
    ways = files.number(path + "/interleave_ways")
    targets = (files.text(f"{path}/target{index}") for index in range(min(ways or 0, 16)))
    return model.Region(
        name=name,
        path=relative,
        uuid=files.text(path + "/uuid") or None,
        start=files.number(path + "/resource"),
        size_bytes=files.number(path + "/size"),
        mode=files.text(path + "/mode") or None,
        committed=files.flag(files.number(path + "/commit")),
        interleave_ways=ways,
        interleave_granularity_bytes=files.number(path + "/interleave_granularity"),
        targets=tuple(target for target in targets if target),
    )


def _parent(relative: str) -> str:
    return relative.rpartition("/")[0].rpartition("/")[2]


def _targets(value: str | None) -> tuple[int, ...]:
    numbers = (files.parse_number(part) for part in (value or "").split(","))
    return tuple(number for number in numbers if number is not None)


def find_related(each: Object, by_name: Mapping[str, Object]) -> frozenset[str]:
    """Return the names of objects that may have changed together with this one.

    Args:
        each: its present or former state.
        by_name: every object by name.
    """
    match each:
        case model.Region():
            return frozenset(_decoders(each, by_name)) | _ports_above(each, by_name)
        case model.Decoder():
            regions = {other.name for other in by_name.values() if _has_decoder(other, each)}
            return frozenset(regions | ({each.port} if each.port is not None else set()))
        case _:
            return frozenset()


def functions_of(each: Object, by_name: Mapping[str, Object]) -> frozenset[str]:
    """Return the addresses of the functions with this object's memory."""
    match each:
        case model.Memdev():
            return frozenset({each.pci_address} if each.pci_address is not None else ())
        case model.Region():
            return frozenset(_functions_behind(each.targets, by_name))
        case model.Decoder():
            return frozenset(_functions_behind((each.name,), by_name))
        case model.Port():
            memdev = by_name.get(each.uport or "")
            return functions_of(memdev, by_name) if isinstance(memdev, model.Memdev) else frozenset()


def _decoders(region: model.Region, by_name: Mapping[str, Object]) -> Iterable[str]:
    yield from region.targets
    for other in by_name.values():
        if isinstance(other, model.Decoder) and other.region == region.name:
            yield other.name


def _ports_above(region: model.Region, by_name: Mapping[str, Object]) -> set[str]:
    """Return the ports above the region's memory and their decoders; all ports and decoders if a memory device is gone.

    The kernel keeps a region that lost its memory device. The decoders above it stay set, but without its targets.
    """
    targets = [by_name.get(target) for target in region.targets]
    decoders = [target for target in targets if isinstance(target, model.Decoder)]
    if len(decoders) < max(len(targets), region.interleave_ways or 0):
        return {other.name for other in by_name.values() if isinstance(other, model.Port | model.Decoder)}
    ports: set[str] = set()
    for decoder in decoders:
        name = decoder.port
        while name is not None and name not in ports:
            port = by_name.get(name)
            ports.add(name)
            name = port.parent if isinstance(port, model.Port) else None
    above = {
        other.name for other in by_name.values() if isinstance(other, model.Decoder) and other.port in ports
    }
    return ports | above


def _has_decoder(other: Object, decoder: model.Decoder) -> bool:
    """Return whether `other` is a region with this decoder."""
    return isinstance(other, model.Region) and (other.name == decoder.region or decoder.name in other.targets)


def _functions_behind(decoders: Iterable[str], by_name: Mapping[str, Object]) -> set[str]:
    addresses: set[str] = set()
    for name in decoders:
        decoder = by_name.get(name)
        port = by_name.get(decoder.port or "") if isinstance(decoder, model.Decoder) else None
        if isinstance(port, model.Port):
            addresses |= functions_of(port, by_name)
    return addresses


_DAX_NAME = re.compile(r"dax(\d+)\.(\d+)")
_DAX_FOLDER = "bus/dax/devices"
_REGION = re.compile(r"region\d+")


def dax_names(root: str) -> list[str]:
    """Return the names of all dax devices."""
    return [name for name in files.names(f"{root}/{_DAX_FOLDER}") if _DAX_NAME.fullmatch(name)]


def read_dax(root: str, name: str) -> model.DaxDevice | None:
    """Return the dax device of this name, or None if there is none."""
    link = files.link_target(f"{root}/{_DAX_FOLDER}/{name}")
    if link is None or not _DAX_NAME.fullmatch(name):
        return None
    relative = files.resolve_below_root(link)
    path = f"{root}/{relative}"
    regions = [part for part in relative.split("/") if _REGION.fullmatch(part)]
    return model.DaxDevice(
        name=name,
        path=relative,
        region=regions[-1] if regions else None,
        driver=files.link_name(path + "/driver"),
        size_bytes=files.number(path + "/size"),
        align_bytes=files.number(path + "/align"),
        target_node=files.node_number(files.number(path + "/target_node")),
        device_node=pci.device_node(path),
    )


def dax_order(name: str) -> tuple[int, int]:
    """Return a sort key for names, by their numbers."""
    match = _DAX_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (0, 0)
