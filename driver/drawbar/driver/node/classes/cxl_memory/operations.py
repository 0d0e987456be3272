"""Reads what stands on a CXL memory device, and carries out what `plan` decided.

Not done: interleaving, a part of a device, persistent memory, and devices whose memory firmware mapped without a region.
A region's memory blocks are those in its range of host addresses, so they are found without the dax device, too.
"""

import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import erasing, errors, kernel
from drawbar.driver.node.classes import generic, users
from drawbar.driver.node.classes.cxl_memory import plan
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import cxl, files, model, pci
from drawbar.fabric.contract import DeviceClass

_MEMORY = "devices/system/memory"
_DAX = "bus/dax/devices"
_BLOCKS_MAX = 1 << 16
"""8 TiB in the smallest blocks; a range beyond is nonsense."""


def read_standing(host: Host, card: model.Card) -> plan.Standing:
    """The standing of the card's first memory device."""
    root = os.fspath(host.sysfs)
    topology = cxl.read(root)
    addresses = {function.address for function in card.functions}
    memdev = next((listed for listed in topology.memdevs if listed.pci_address in addresses), None)
    if memdev is None:
        return plan.Standing()
    endpoint = next((port for port in topology.ports if port.uport == memdev.name), None)
    decoders = tuple(
        decoder for decoder in topology.decoders if endpoint is not None and decoder.port == endpoint.name
    )
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
        and region.mode == plan.VOLATILE
    ]
    used = {target for region in own for target in region.targets}
    free = [decoder for decoder in decoders if not decoder.region]
    chosen = next((decoder for decoder in decoders if decoder.name in used), next(iter(free), None))
    return plan.Standing(
        memdev=memdev.name,
        ram_bytes=memdev.ram_bytes or 0,
        decoder=_decoder(chosen) if chosen is not None else None,
        decoders=names,
        window=window,
        regions=tuple(_region(root, region, decoders) for region in own),
        empty=_region(root, empty[0], decoders) if empty else None,
    )


def _is_on(region: model.Region, decoders: tuple[model.Decoder, ...]) -> bool:
    """Return whether either side shows it: after a surprise removal only one of them may."""
    return any(decoder.name in region.targets or decoder.region == region.name for decoder in decoders)


def _decoder(decoder: model.Decoder) -> plan.Decoder:
    return plan.Decoder(name=decoder.name, mode=decoder.mode, dpa_bytes=decoder.dpa_bytes or 0)


def _window(root: str, topology: cxl.Topology, endpoint: model.Port | None) -> plan.Window | None:
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
    return plan.Window(
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


def _region(root: str, region: model.Region, decoders: tuple[model.Decoder, ...]) -> plan.Region:
    path = f"{root}/{region.path}"
    return plan.Region(
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
        (
            decoder.mode
            for decoder in decoders
            if decoder.region == region.name or decoder.name in region.targets
        ),
        None,
    )


def _above(region: model.Region) -> str:
    return region.path.rpartition("/")[0].rpartition("/")[2]


def _dax(root: str, region: model.Region) -> list[plan.Dax]:
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
    by_name = {place.rpartition("/")[2]: place for place in places}
    return [
        plan.Dax(name=name, driver=files.link_name(f"{place}/driver"))
        for name, place in by_name.items()
        if name.startswith("dax") and name[3:4].isdecimal()
    ]


def _is_in(root: str, dax: str, region: model.Region) -> bool:
    start = files.number(f"{root}/{_DAX}/{dax}/resource")
    if not start or not region.start or not region.size_bytes:
        return False
    return region.start <= start < region.start + region.size_bytes


def _blocks(root: str, region: model.Region) -> list[plan.Block]:
    size = _hexadecimal(files.text(f"{root}/{_MEMORY}/block_size_bytes"))
    if not size or not region.start or not region.size_bytes:
        return []
    first, end = region.start // size, -(-(region.start + region.size_bytes) // size)
    blocks = []
    for number in range(first, min(end, first + _BLOCKS_MAX)):
        name = f"memory{number}"
        state = files.text(f"{root}/{_MEMORY}/{name}/state")
        if state is not None:
            online = state != "offline"  # going-offline is not gone
            zone = files.text(f"{root}/{_MEMORY}/{name}/valid_zones") if online else None
            blocks.append(plan.Block(name=name, online=online, zone=zone or None))
    return blocks


def _hexadecimal(text: str | None) -> int:
    """`block_size_bytes` is hexadecimal without 0x."""
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0


def dax_nodes(host: Host, card: model.Card, driver: str | None = None) -> tuple[model.DeviceNode, ...]:
    """The device files of the regions' dax devices, which are not below the card in sysfs; those of one driver, or all."""
    root = os.fspath(host.sysfs)
    names = [
        dax.name
        for region in read_standing(host, card).regions
        for dax in region.dax
        if driver in (None, dax.driver)
    ]
    device_nodes = (pci.device_node(f"{root}/bus/dax/devices/{name}") for name in names)
    return tuple(node for node in device_nodes if node is not None)


_DRIVERS: dict[str | None, plan.DaxDriver] = {
    None: plan.DEVICE_DAX,
    parameters.DEVDAX: plan.DEVICE_DAX,
    parameters.SYSTEM_RAM: plan.KMEM,
}
STEPS_MAX = 24
"""From nothing to online memory takes about twelve; a device that takes more goes round in circles."""
BLOCKS_AT_ONCE = 64
"""Between two looks; taking a block offline moves up to 2 GiB of pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CxlMemory(generic.Generic):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.CXL_MEMORY
    class_codes: tuple[str, ...] = ("0502",)  # CXL 2.0, 8.1.12.1
    certain: bool = True
    in_local_pool: bool = True
    needs_driver: bool = True
    needs_files: bool = True
    asks_the_driver: bool = True

    async def initialise(
        self, kernel: kernel.Kernel, card: model.Card, said: parameters.DeviceParameters = parameters.NOTHING
    ) -> str | None:
        """Binds the driver, makes a region of all the memory, and a dax device or movable system memory of that."""
        lack = await generic.Generic.initialise(self, kernel, card)
        if lack is not None:
            return lack
        host, driver = Host.from_sysfs(kernel.sysfs), _DRIVERS.get(said.memory.mode, plan.DEVICE_DAX)
        # An empty region has no owner yet: two devices that arrive at once would both fill the same one.
        async with kernel.filling_region:
            return await self._bring_up(kernel, host, card, driver)

    async def _bring_up(
        self, kernel: kernel.Kernel, host: Host, card: model.Card, driver: plan.DaxDriver
    ) -> str | None:
        before: plan.Action | None = None
        for _ in range(STEPS_MAX):
            standing = await _standing(kernel, host, card)
            step = plan.towards_ready(standing, driver)
            match step:
                case None:
                    return None
                case plan.Missing(why=why):
                    return why
                case _ if step == before:
                    return plan.misplaced(standing) or "the kernel has not yet done what it was asked"
            await _do(kernel, standing, step)
            before = step
        return "it takes more steps than it should; look at the kernel's log"

    def users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Open files of the device and of its dax devices, and what stands on it that is not ours to take away."""
        kept = plan.obstacles(read_standing(host, card))
        mapped = users.find_openers(host.proc, users.of_nodes(dax_nodes(host, card)))
        return (*kept, *mapped, *generic.Generic.users(self, host, card))

    def unrest(self, host: Host, card: model.Card) -> str | None:
        """Memory that is online, and regions; other words for every step, so that one sees that it goes on."""
        standing = read_standing(host, card)
        match plan.towards_rest(standing):
            case None:
                return None
            case plan.SetMemory(blocks=blocks):
                return plan.misplaced(standing) or f"{len(blocks)} memory blocks are online"
            case plan.UnbindDax(dax=name, driver=driver):
                return f"{name} is bound to {driver}"
            case plan.SetRegion(region=name):
                return f"{name} is committed"
            case plan.DeleteRegion(region=name):
                return f"{name} is there"

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """Takes memory offline, then its dax device's driver and its region away."""
        standing = await _standing(kernel, host, card)
        step = plan.towards_rest(standing)
        if step is not None:
            await _do(kernel, standing, step)

    def eraser(self, host: Host, card: model.Card) -> erasing.Eraser | None:
        """Sanitizes volatile memory, where kernel and device can; persistent memory is left alone."""
        memdev = next(iter(card.memdevs), None)
        if memdev is None:
            return functools.partial(_without_memory, card.address)
        folder = Path(host.sysfs, "bus/cxl/devices", memdev.name, "security")
        is_volatile = bool(memdev.ram_bytes) and not memdev.pmem_bytes
        if not is_volatile or not os.path.lexists(folder / "sanitize"):
            return None
        return functools.partial(_sanitize, folder, memdev.name)

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """The dax device alone, where there is one: whoever has the memory device's own file can erase the memory."""
        given = generic.Generic.edits(self, card, host)
        nodes = dax_nodes(host, card, plan.DEVICE_DAX)
        return (
            msgspec.structs.replace(given, device_nodes=tuple(map(generic.described, nodes)))
            if nodes
            else given
        )


SANITIZE_SECONDS = 3600.0
"""A device's controller does it; the longest that a mailbox command may take is not specified."""
SANITIZE_LOOK_SECONDS = 0.5


def _without_memory(address: str, report: erasing.Report) -> None:
    del report
    raise errors.NotCleaned(
        f"{address} is not erased, so no other user gets it: its driver shows no memory device; look at the kernel's log"
    )


def _sanitize(folder: Path, name: str, report: erasing.Report) -> None:
    """Sanitize a memory device without regions (Documentation/ABI/testing/sysfs-bus-cxl, `security/`)."""
    report(f"sanitizing {name}")
    try:
        kernel.write(folder / "sanitize", "1")
    except errors.KernelRefused as refused:
        raise errors.NotCleaned(f"{name} is not erased, so no other user gets it: {refused}") from refused
    ends = time.monotonic() + SANITIZE_SECONDS
    while files.text(f"{folder}/state") == "sanitize":
        if time.monotonic() > ends:
            raise errors.NotCleaned(
                f"{name} is not erased, so no other user gets it: its sanitize did not end within an hour"
            )
        time.sleep(SANITIZE_LOOK_SECONDS)


async def _standing(kernel: kernel.Kernel, host: Host, card: model.Card) -> plan.Standing:
    return await kernel.run(
        f"the memory of {card.address}", f"what stands on {card.address}", lambda: read_standing(host, card)
    )


async def _do(kernel: kernel.Kernel, standing: plan.Standing, step: plan.Action) -> None:
    match step:
        case plan.SetDecoder(decoder=decoder, attribute=attribute, value=value):
            await kernel.set_decoder(decoder, attribute, value)
        case plan.CreateRegion(window=window):
            await kernel.create_region(window)
        case plan.SetRegion(region=region, attribute=part, value=value):
            await kernel.set_region(region, part, value)
        case plan.BindRegion(region=region):
            await kernel.bind_region(region)
        case plan.BindDax(dax=dax, driver=driver):
            await kernel.bind_dax(dax, driver)
        case plan.UnbindDax(dax=dax, driver=bound):
            await kernel.unbind_dax(dax, bound)
        case plan.DeleteRegion(window=window, region=region):
            await kernel.delete_region(window, region)
        case plan.SetMemory(blocks=blocks, state=state):
            await _set_memory(kernel, standing, blocks[:BLOCKS_AT_ONCE], state)
        case _:
            assert_never(step)


async def _set_memory(
    kernel: kernel.Kernel, standing: plan.Standing, blocks: tuple[str, ...], state: plan.MemoryState
) -> None:
    """Set the blocks' state; memory that cannot go offline because of where it came online is named, with the remedy."""
    try:
        for block in blocks:
            await kernel.set_memory(block, state)
    except errors.KernelRefused as refused:
        why = plan.misplaced(standing)
        if why is None:
            raise
        if isinstance(refused, errors.KernelSilent):
            raise errors.KernelSilent(f"to set memory {state}: {why}", seconds=refused.seconds) from refused
        raise errors.KernelRefused(
            f"{why} ({refused})", path=refused.path, number=refused.number
        ) from refused
