"""Reads what stands on a CXL memory device; what vanishes meanwhile is left out.

A region's memory blocks are those in its range of host addresses, so they are found without the dax device, too.
"""

import os

from drawbar.driver.node.classes import operations
from drawbar.driver.node.classes.cxl_memory import standing
from drawbar.driver.node.inventory import cxl, files, model, pci

_MEMORY = "devices/system/memory"
_DAX = "bus/dax/devices"
_BLOCKS_MAX = 1 << 16
"""8 TiB in the smallest blocks; a range beyond is nonsense."""


def read(host: operations.Host, card: model.Card) -> standing.Standing:
    """The standing of the card's first memory device."""
    root = os.fspath(host.sysfs)
    topology = cxl.read(root)
    addresses = {function.address for function in card.functions}
    memdev = next((one for one in topology.memdevs if one.pci_address in addresses), None)
    if memdev is None:
        return standing.Standing()
    endpoint = next((port for port in topology.ports if port.uport == memdev.name), None)
    decoders = tuple(one for one in topology.decoders if endpoint is not None and one.port == endpoint.name)
    names = tuple(decoder.name for decoder in decoders)
    window = _window(root, topology, endpoint)
    own = [region for region in topology.regions if _is_on(region, decoders)]
    empty = [
        region
        for region in topology.regions
        if window is not None
        and _above(region) == window.name
        and not region.targets
        and not region.committed
        and region.mode == standing.VOLATILE
    ]
    used = {target for region in own for target in region.targets}
    free = [decoder for decoder in decoders if not decoder.region]
    chosen = next((decoder for decoder in decoders if decoder.name in used), next(iter(free), None))
    return standing.Standing(
        memdev=memdev.name,
        ram_bytes=memdev.ram_bytes or 0,
        decoder=_decoder(chosen) if chosen is not None else None,
        decoders=names,
        window=window,
        regions=tuple(_region(root, region, decoders) for region in own),
        empty=_region(root, empty[0], decoders) if empty else None,
    )


def _is_on(region: model.Region, decoders: tuple[model.Decoder, ...]) -> bool:
    """By either side's word: after a surprise removal only one of them may still say so."""
    return any(decoder.name in region.targets or decoder.region == region.name for decoder in decoders)


def _decoder(decoder: model.Decoder) -> standing.Decoder:
    return standing.Decoder(name=decoder.name, mode=decoder.mode, dpa_bytes=decoder.dpa_bytes or 0)


def _window(root: str, topology: cxl.Topology, endpoint: model.Port | None) -> standing.Window | None:
    """The widest window above the endpoint that takes volatile memory without interleaving host bridges."""
    if endpoint is None:
        return None
    candidates = [
        decoder
        for decoder in topology.decoders
        if decoder.kind == "root"
        and endpoint.path.startswith(decoder.path.rpartition("/")[0] + "/")
        and files.number(f"{root}/{decoder.path}/cap_ram") == 1
        and (decoder.interleave_ways or 1) == 1
        and _leads_to(root, topology, decoder, endpoint)
    ]
    if not candidates:
        return None
    best = max(candidates, key=lambda decoder: decoder.size_bytes or 0)
    return standing.Window(
        name=best.name,
        granularity_bytes=best.interleave_granularity_bytes or 256,
        makes_ram=files.text(f"{root}/{best.path}/create_ram_region") is not None,
    )


def _leads_to(root: str, topology: cxl.Topology, window: model.Decoder, endpoint: model.Port) -> bool:
    """Whether the host bridge above the endpoint is one of the window's targets; true where sysfs does not say."""
    above = window.path.rpartition("/")[0]
    first = endpoint.path.removeprefix(above + "/").partition("/")[0]
    bridge = next((port.uport for port in topology.ports if port.name == first), None)
    bridges = [files.link_name(f"{root}/{above}/dport{target}") for target in window.targets]
    return bridge is None or not any(bridges) or bridge in bridges


def _region(root: str, region: model.Region, decoders: tuple[model.Decoder, ...]) -> standing.Region:
    path = f"{root}/{region.path}"
    return standing.Region(
        name=region.name,
        window=_above(region),
        mode=region.mode or _mode(region, decoders),
        ways=region.interleave_ways or 0,
        granularity_bytes=region.interleave_granularity_bytes or 0,
        size_bytes=region.size_bytes or 0,
        targets=region.targets,
        committed=bool(region.committed),
        driver=files.link_name(path + "/driver"),
        open=files.text(path + "/target0") is not None,
        dax=tuple(_dax(root, region)),
        blocks=tuple(_blocks(root, region)),
    )


def _mode(region: model.Region, decoders: tuple[model.Decoder, ...]) -> str | None:
    """What the decoders of a region are for: before Linux 6.3, which made persistent ones alone, it does not say."""
    return next(
        (one.mode for one in decoders if one.region == region.name or one.name in region.targets), None
    )


def _above(region: model.Region) -> str:
    return region.path.rpartition("/")[0].rpartition("/")[2]


def _dax(root: str, region: model.Region) -> list[standing.Dax]:
    """The dax devices of a region: below it, or in its range, for those of persistent memory are below another bus."""
    path = f"{root}/{region.path}"
    places = [
        f"{path}/{name}/{dax}"
        for name in files.names(path)
        if name.startswith("dax_region")
        for dax in files.names(f"{path}/{name}")
    ]
    places += [
        f"{root}/{_DAX}/{name}" for name in files.names(f"{root}/{_DAX}") if _is_in(root, name, region)
    ]
    found = {place.rpartition("/")[2]: place for place in places}
    return [
        standing.Dax(name=name, driver=files.link_name(f"{place}/driver"))
        for name, place in found.items()
        if name.startswith("dax") and name[3:4].isdecimal()
    ]


def _is_in(root: str, dax: str, region: model.Region) -> bool:
    start = files.number(f"{root}/{_DAX}/{dax}/resource")
    if not start or not region.start or not region.size_bytes:
        return False
    return region.start <= start < region.start + region.size_bytes


def _blocks(root: str, region: model.Region) -> list[standing.Block]:
    size = _hexadecimal(files.text(f"{root}/{_MEMORY}/block_size_bytes"))
    if not size or not region.start or not region.size_bytes:
        return []
    first, end = region.start // size, -(-(region.start + region.size_bytes) // size)
    found = []
    for number in range(first, min(end, first + _BLOCKS_MAX)):
        name = f"memory{number}"
        state = files.text(f"{root}/{_MEMORY}/{name}/state")
        if state is not None:
            online = state != "offline"  # going-offline is not gone
            zone = files.text(f"{root}/{_MEMORY}/{name}/valid_zones") if online else None
            found.append(standing.Block(name=name, online=online, zone=zone or None))
    return found


def _hexadecimal(text: str | None) -> int:
    """`block_size_bytes` is hexadecimal without 0x."""
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0


def nodes(host: operations.Host, card: model.Card) -> tuple[model.DeviceNode, ...]:
    """The device files of the region's dax devices, which are not below the card in sysfs."""
    root = os.fspath(host.sysfs)
    names = [dax.name for region in read(host, card).regions for dax in region.dax]
    found = (pci.device_node(f"{root}/bus/dax/devices/{name}") for name in names)
    return tuple(node for node in found if node is not None)
