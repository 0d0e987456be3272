"""The reading of the state of CXL memory devices: regions, windows, decoders, dax devices and memory blocks.

A region's memory blocks are found by its range of host addresses, so the dax device is not needed to find them.
"""

import itertools
import os
import re
from collections.abc import Collection

from drawbar.driver.node.classes.cxl_memory import interleaving, region_steps
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import cxl, files, model

_ROOT = re.compile(r"root\d+")
_MEMORY = "devices/system/memory"
_DAX = "bus/dax/devices"
_BLOCKS_MAX = 1 << 16
"""8 TiB in the smallest blocks; a longer range is implausible."""


def read_layout(host: Host, card: model.Card, companions: Collection[model.Card] = ()) -> region_steps.Layout:
    """Return the layout of the card's first memory device; `companions` are the other members of its composite."""
    return _Reading(os.fspath(host.sysfs)).read_layout(card, companions)


def read_ensemble(host: Host, cards: Collection[model.Card]) -> interleaving.Ensemble:
    """Return the joint state of the cards' memory devices."""
    reading = _Reading(os.fspath(host.sysfs))
    windows = {
        window.name: window
        for card in cards
        for window in reading.windows(reading.endpoint(reading.memdev(card)))
    }
    return interleaving.Ensemble(
        members=tuple(reading.read_layout(card, ()) for card in cards),
        windows=tuple(windows.values()),
        empties=tuple(empty for name in windows for empty in reading.empties(name)),
    )


class _Reading:
    """The CXL bus, read once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._topology = cxl.read(root)

    def read_layout(self, card: model.Card, companions: Collection[model.Card]) -> region_steps.Layout:
        memdev = self.memdev(card)
        if memdev is None:
            return region_steps.Layout()
        endpoint = self.endpoint(memdev)
        decoders = self.decoders(endpoint)
        window = next((candidate for candidate in self.windows(endpoint) if candidate.ways == 1), None)
        own = [region for region in self._topology.regions if _uses_decoder(region, decoders)]
        empties = self.empties(window.name) if window is not None else []
        used = {target for region in own for target in region.targets}
        free = [decoder for decoder in decoders if not decoder.region]
        chosen = next((decoder for decoder in decoders if decoder.name in used), next(iter(free), None))
        theirs = (self.decoders(self.endpoint(self.memdev(companion))) for companion in companions)
        return region_steps.Layout(
            memdev=memdev.name,
            ram_bytes=memdev.ram_bytes or 0,
            decoder=_decoder(chosen) if chosen is not None else None,
            decoders=tuple(decoder.name for decoder in decoders),
            companions=tuple(decoder.name for decoder in itertools.chain(*theirs)),
            window=window,
            bridge=self._bridge(endpoint),
            route=_route(endpoint),
            regions=tuple(_region(self._root, region, decoders) for region in own),
            empty=empties[0] if empties else None,
        )

    def memdev(self, card: model.Card) -> model.Memdev | None:
        """Return the card's first memory device, or None."""
        addresses = {function.address for function in card.functions}
        return next((listed for listed in self._topology.memdevs if listed.pci_address in addresses), None)

    def endpoint(self, memdev: model.Memdev | None) -> model.Port | None:
        """Return the memory device's own port, or None."""
        name = memdev.name if memdev is not None else ""
        return next((port for port in self._topology.ports if port.uport == name), None)

    def decoders(self, endpoint: model.Port | None) -> tuple[model.Decoder, ...]:
        """Return the endpoint's decoders."""
        name = endpoint.name if endpoint is not None else ""
        return tuple(decoder for decoder in self._topology.decoders if decoder.port == name)

    def empties(self, window: str) -> list[region_steps.Region]:
        """Return the uncommitted volatile regions below a root decoder that have no target yet."""
        return [
            _region(self._root, region, ())
            for region in self._topology.regions
            if _parent_name(region) == window
            and not region.targets
            and not region.committed
            and region.mode == region_steps.VOLATILE
        ]

    def windows(self, endpoint: model.Port | None) -> list[region_steps.Window]:
        """Return the root decoders for volatile memory that lead to the endpoint's host bridge, the widest first."""
        if endpoint is None:
            return []
        bridge = self._bridge(endpoint)
        candidates = [
            decoder
            for decoder in self._topology.decoders
            if decoder.kind == "root"
            and endpoint.path.startswith(_folder(decoder) + "/")
            and files.number(f"{self._root}/{decoder.path}/cap_ram") == 1
        ]
        windows = (self._window(decoder) for decoder in sorted(candidates, key=_size, reverse=True))
        # A window counts if sysfs does not show its bridges.
        return [
            window
            for window in windows
            if bridge is None or not any(window.bridges) or bridge in window.bridges
        ]

    def _window(self, decoder: model.Decoder) -> region_steps.Window:
        folder = f"{self._root}/{_folder(decoder)}"
        return region_steps.Window(
            name=decoder.name,
            granularity_bytes=decoder.interleave_granularity_bytes or 256,
            makes_ram=files.text(f"{self._root}/{decoder.path}/create_ram_region") is not None,
            ways=decoder.interleave_ways or 1,
            bridges=tuple(files.link_name(f"{folder}/dport{target}") or "" for target in decoder.targets),
        )

    def _bridge(self, endpoint: model.Port | None) -> str | None:
        """Return the host bridge above an endpoint, or None if sysfs does not show it."""
        first = next(iter(_route(endpoint)), None)
        return next((port.uport for port in self._topology.ports if port.name == first), None)


def _route(endpoint: model.Port | None) -> tuple[str, ...]:
    """Return the names of the ports from below the root down to the endpoint."""
    parts = endpoint.path.split("/") if endpoint is not None else []
    root = next((number for number, part in enumerate(parts) if _ROOT.fullmatch(part)), len(parts))
    return tuple(parts[root + 1 :])


def _folder(decoder: model.Decoder) -> str:
    return decoder.path.rpartition("/")[0]


def _size(decoder: model.Decoder) -> int:
    return decoder.size_bytes or 0


def _uses_decoder(region: model.Region, decoders: tuple[model.Decoder, ...]) -> bool:
    """Return whether the region or a decoder shows the link; after a surprise removal only one of them may."""
    return any(decoder.name in region.targets or decoder.region == region.name for decoder in decoders)


def _decoder(decoder: model.Decoder) -> region_steps.Decoder:
    return region_steps.Decoder(name=decoder.name, mode=decoder.mode, dpa_bytes=decoder.dpa_bytes or 0)


def _region(root: str, region: model.Region, decoders: tuple[model.Decoder, ...]) -> region_steps.Region:
    path = f"{root}/{region.path}"
    return region_steps.Region(
        name=region.name,
        window=_parent_name(region),
        mode=region.mode or _mode(region, decoders),
        ways=region.interleave_ways or 0,
        granularity_bytes=region.interleave_granularity_bytes or 0,
        size_bytes=region.size_bytes or 0,
        positions=_positions(path, region.interleave_ways or 0),
        committed=bool(region.committed),
        driver=files.link_name(path + "/driver"),
        dax=tuple(_dax(root, region)),
        blocks=tuple(_blocks(root, region)),
    )


def _positions(path: str, ways: int) -> tuple[str, ...]:
    """Return the target at each position of a region, as far as sysfs shows positions."""
    shown = (files.text(f"{path}/target{position}") for position in range(min(ways, region_steps.WAYS_MAX)))
    return tuple(itertools.takewhile(lambda target: target is not None, shown))  # type: ignore[arg-type]


def _mode(region: model.Region, decoders: tuple[model.Decoder, ...]) -> str | None:
    """Return the mode of the region's decoders.

    Before Linux 6.3 a region has no mode of its own, because every region was persistent.
    """
    return next(
        (
            decoder.mode
            for decoder in decoders
            if decoder.region == region.name or decoder.name in region.targets
        ),
        None,
    )


def _parent_name(region: model.Region) -> str:
    return region.path.rpartition("/")[0].rpartition("/")[2]


def _dax(root: str, region: model.Region) -> list[region_steps.Dax]:
    """Return the dax devices of a region.

    They are below it in sysfs, or within its range: those of persistent memory are below another bus.
    """
    path = f"{root}/{region.path}"
    directories = [
        f"{path}/{name}/{dax}"
        for name in files.names(path)
        if name.startswith("dax_region")
        for dax in files.names(f"{path}/{name}")
    ]
    directories += [
        f"{root}/{_DAX}/{name}" for name in files.names(f"{root}/{_DAX}") if _is_in(root, name, region)
    ]
    by_name = {directory.rpartition("/")[2]: directory for directory in directories}
    return [
        region_steps.Dax(name=name, driver=files.link_name(f"{directory}/driver"))
        for name, directory in by_name.items()
        if name.startswith("dax") and name[3:4].isdecimal()
    ]


def _is_in(root: str, dax: str, region: model.Region) -> bool:
    start = files.number(f"{root}/{_DAX}/{dax}/resource")
    if not start or not region.start or not region.size_bytes:
        return False
    return region.start <= start < region.start + region.size_bytes


def _blocks(root: str, region: model.Region) -> list[region_steps.Block]:
    size = _hexadecimal(files.text(f"{root}/{_MEMORY}/block_size_bytes"))
    if not size or not region.start or not region.size_bytes:
        return []
    first, end = region.start // size, -(-(region.start + region.size_bytes) // size)
    blocks = []
    for number in range(first, min(end, first + _BLOCKS_MAX)):
        name = f"memory{number}"
        state = files.text(f"{root}/{_MEMORY}/{name}/state")
        if state is not None:
            online = state != "offline"  # "going-offline" is still in use
            zone = files.text(f"{root}/{_MEMORY}/{name}/valid_zones") if online else None
            blocks.append(region_steps.Block(name=name, online=online, zone=zone or None))
    return blocks


def _hexadecimal(text: str | None) -> int:
    """Return the number in `block_size_bytes`, which is hexadecimal without 0x; 0 if it cannot be parsed."""
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0
