"""The plan for CXL memory: the next step to make memory usable, and the next step to remove it. Pure.

A region's dax device is bound to `device_dax` for exclusive use by a pod, or to `kmem` to become system memory.

Invariant: memory comes online only as movable, because the kernel's own pages could never be moved away. A dax device
loses `kmem`, and a region is removed, only if all its blocks are offline and it is volatile. In addition each of its
decoders must belong to the device itself or to another member of its composite.

This module makes one region of a whole device; `interleaving` makes one of several devices. Regions made by firmware or
an operator are used unchanged. The order is that of `cxl create-region` and `cxl destroy-region`: a decoder before its
region; ways and granularity before the size, which fixes them; commit last. Memory goes offline before the region is
removed. An uncommitted region of the wrong shape is deleted and made again.

Sizes are bytes. Source: Documentation/ABI/testing/sysfs-bus-cxl, sysfs-bus-dax, sysfs-devices-memory.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from drawbar.driver import wording
from drawbar.driver.node.inventory import model

VOLATILE = "ram"
MOVABLE = "Movable"
KMEM: Final = "kmem"
DEVICE_DAX: Final = "device_dax"
BLOCKS_SHOWN = 2
WAYS_MAX = 16
TOO_OLD = "this kernel makes no regions of volatile CXL memory; run Linux 6.3 or newer"


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A memory block (`memory46`).

    Attributes:
        name: the kernel's name.
        online: its state is not `offline`.
        zone: its zone; None if it is offline or the kernel does not show it.
    """

    name: str
    online: bool
    zone: str | None = None

    @property
    def may_stay(self) -> bool:
        """Return whether it is online in a zone without the kernel's own pages, so that its pages can be moved away."""
        return self.online and self.zone in (None, MOVABLE)


class Dax(msgspec.Struct, frozen=True, kw_only=True):
    """A dax device; the driver `kmem` makes system memory of it, `device_dax` a device file."""

    name: str
    driver: str | None


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint's decoder for the device's memory."""

    name: str
    mode: str | None
    dpa_bytes: int


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A root decoder: a range of host addresses.

    Attributes:
        granularity_bytes: the interleave granularity.
        makes_ram: its kernel can make regions of volatile memory.
        ways: the number of host bridges in its interleave set.
        bridges: these host bridges, in order; "" for one that sysfs does not name.
    """

    name: str
    granularity_bytes: int
    makes_ram: bool
    ways: int = 1
    bridges: tuple[str, ...] = ()


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A region.

    Attributes:
        window: the root decoder above it.
        positions: the target at each position in interleave order: a decoder of any device, or "".
        driver: `cxl_region` while it is in use.
    """

    name: str
    window: str
    mode: str | None
    ways: int
    granularity_bytes: int
    size_bytes: int
    positions: tuple[str, ...]
    committed: bool
    driver: str | None
    dax: tuple[Dax, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the decoders at its positions."""
        return tuple(decoder for decoder in self.positions if decoder)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One memory device with its regions.

    Attributes:
        memdev: its name; None while its driver has made none.
        ram_bytes: its volatile memory.
        decoder: the first of its decoders that is in a region, or else the first free one.
        decoders: the names of all its decoders.
        companions: the names of all decoders of the other members of its composite.
        window: the root decoder for a new region.
        bridge: the host bridge above it; None if sysfs does not show it.
        route: the names of the ports from the host bridge's down to its own.
        regions: the regions with one of its decoders.
        empty: a region without any target yet, such as the rest of a crash.
    """

    memdev: str | None = None
    ram_bytes: int = 0
    decoder: Decoder | None = None
    decoders: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    window: Window | None = None
    bridge: str | None = None
    route: tuple[str, ...] = ()
    regions: tuple[Region, ...] = ()
    empty: Region | None = None

    def find_shared_decoders(self, region: Region) -> tuple[str, ...]:
        """Return the decoders in a region that belong to devices outside its composite."""
        own = (*self.decoders, *self.companions)
        return tuple(target for target in region.targets if target not in own)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The target shape of a region.

    Attributes:
        window: the root decoder above it.
        order: its devices by position.
        granularity_bytes: its interleave granularity.
    """

    window: Window
    order: tuple[Layout, ...]
    granularity_bytes: int

    @property
    def size_bytes(self) -> int:
        """Return the volatile memory of all its devices."""
        return sum(member.ram_bytes for member in self.order)

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the decoders by position."""
        return tuple(member.decoder.name if member.decoder is not None else "" for member in self.order)

    def is_whole(self, region: Region, granularity_bytes: int | None = None) -> bool:
        """Return whether a region is committed with exactly these devices and, if given, this granularity."""
        same = granularity_bytes in (None, region.granularity_bytes)
        return region.committed and same and set(region.targets) == set(self.targets)

    def has_begun(self, region: Region) -> bool:
        """Return whether an uncommitted region can still become this shape."""
        if region.committed:
            return False
        if region.window != self.window.name:
            return False
        if not region.size_bytes:
            return True
        shape = (region.ways, region.granularity_bytes, region.size_bytes)
        if shape != (len(self.order), self.granularity_bytes, self.size_bytes):
            return False
        placed = zip(region.positions, self.targets, strict=False)
        return all(there in ("", wanted) for there, wanted in placed)


MemoryState = Literal["offline", "online_movable"]


class SetDecoder(msgspec.Struct, frozen=True, kw_only=True):
    """Set an attribute of an endpoint's decoder."""

    decoder: str
    attribute: model.DecoderAttribute
    value: int | str


class CreateRegion(msgspec.Struct, frozen=True, kw_only=True):
    """Make an empty region below a root decoder."""

    window: str


class SetRegion(msgspec.Struct, frozen=True, kw_only=True):
    """Set an attribute of a region."""

    region: str
    attribute: model.RegionAttribute
    value: int | str


class SetTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Put an endpoint's decoder at a position of a region."""

    region: str
    position: int
    decoder: str


class BindRegion(msgspec.Struct, frozen=True, kw_only=True):
    """Let the region's driver make a dax device."""

    region: str


class BindDax(msgspec.Struct, frozen=True, kw_only=True):
    """Bind a dax device without a driver."""

    dax: str
    driver: model.DaxDriver


class UnbindDax(msgspec.Struct, frozen=True, kw_only=True):
    """Unbind a dax device from its driver."""

    dax: str
    driver: str


class DeleteRegion(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a region."""

    window: str
    region: str


class SetMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Take memory blocks online or offline."""

    blocks: tuple[str, ...]
    state: MemoryState


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """No further step is possible; `why` is a clause with the remedy."""

    why: str


Action = (
    SetDecoder
    | CreateRegion
    | SetRegion
    | SetTarget
    | BindRegion
    | BindDax
    | UnbindDax
    | DeleteRegion
    | SetMemory
)
Rest = SetMemory | UnbindDax | SetRegion | DeleteRegion


def towards_ready(layout: Layout, driver: model.DaxDriver = DEVICE_DAX) -> Action | Missing | None:
    """Return the next step to usable memory, or None if it is ready or the device has no volatile memory.

    Args:
        layout: the device's state.
        driver: the driver for its dax device.
    """
    if layout.memdev is None:
        return Missing(why="its driver has made no CXL memory device; look at the kernel's log")
    if not layout.ram_bytes:
        return None
    if not layout.regions:
        return _build(layout)
    steps = (_bring_up(layout, region, driver) for region in layout.regions)
    return next((step for step in steps if step is not None), None)


def towards_rest(layout: Layout) -> Rest | None:
    """Return the next step to a device without regions, or None if only `obstacles` remain."""
    for region in layout.regions:
        if _obstacle(layout, region) is not None:
            continue
        return take_down(region)
    return None


def take_down(region: Region) -> Rest:
    """Return the next step to remove a region."""
    online = tuple(block.name for block in region.blocks if block.online)
    if online:
        return SetMemory(blocks=online, state="offline")
    for dax in region.dax:
        if dax.driver is not None:
            return UnbindDax(dax=dax.name, driver=dax.driver)
    if region.committed:
        return SetRegion(region=region.name, attribute="commit", value=0)
    return DeleteRegion(window=region.window, region=region.name)


def obstacles(layout: Layout) -> tuple[str, ...]:
    """Return a clause for each region on the device that Drawbar must not remove."""
    texts = (_obstacle(layout, region) for region in layout.regions)
    return tuple(text for text in texts if text is not None)


def find_misplaced(layout: Layout) -> str | None:
    """Return which online memory may never go offline again, as a clause with the remedy, or None if there is none."""
    blocks = [
        block for region in layout.regions for block in region.blocks if block.online and not block.may_stay
    ]
    if not blocks:
        return None
    named = wording.join_some([block.name for block in blocks], BLOCKS_SHOWN)
    return (
        f"{named} came online in zone {blocks[0].zone}, where the "
        f"kernel keeps pages that cannot be moved away: set auto_online_blocks to online_movable, look for a udev rule "
        f"that brings memory online, and restart the node"
    )


def _obstacle(layout: Layout, region: Region) -> str | None:
    if sharing := layout.find_shared_decoders(region):
        return f"{region.name} is interleaved with other devices ({', '.join(sharing)}): destroy it first"
    if region.mode not in (None, VOLATILE):
        return f"{region.name} holds persistent memory: save the data, destroy its namespaces and then the region"
    return None


def _build(layout: Layout) -> Action | Missing:
    allotment = allot(layout)
    if isinstance(allotment, Missing):
        return allotment
    window = layout.window
    if window is None:
        return Missing(
            why="no CXL memory window above it takes volatile memory; look at the firmware's CXL settings"
        )
    if layout.empty is None and not window.makes_ram:
        return Missing(why=TOO_OLD)
    if allotment is not None:
        return allotment
    if layout.empty is None:
        return CreateRegion(window=window.name)
    shape = Shape(window=window, order=(layout,), granularity_bytes=window.granularity_bytes)
    return fill(layout.empty, shape)


def allot(layout: Layout) -> SetDecoder | Missing | None:
    """Return the next step to give the decoder all of the device's volatile memory, or None if it has it."""
    decoder = layout.decoder
    if decoder is None:
        return Missing(why=f"{layout.memdev} has no free decoder; look whether cxl_port is loaded")
    if decoder.mode != VOLATILE:
        return SetDecoder(decoder=decoder.name, attribute="mode", value=VOLATILE)
    if decoder.dpa_bytes != layout.ram_bytes:
        # A decoder must release its memory before it can take another amount.
        amount = layout.ram_bytes if not decoder.dpa_bytes else 0
        return SetDecoder(decoder=decoder.name, attribute="dpa_size", value=amount)
    return None


def fill(region: Region, shape: Shape) -> Action | Missing:
    """Return the next step to bring an uncommitted region to that shape; the last one commits it."""
    ways = len(shape.order)
    if not shape.has_begun(region):
        # Ways, granularity and size are fixed once the size is set.
        return DeleteRegion(window=region.window, region=region.name)
    if region.granularity_bytes != shape.granularity_bytes:
        return SetRegion(
            region=region.name, attribute="interleave_granularity", value=shape.granularity_bytes
        )
    if region.ways != ways:
        return SetRegion(region=region.name, attribute="interleave_ways", value=ways)
    if region.size_bytes != shape.size_bytes:
        return SetRegion(region=region.name, attribute="size", value=shape.size_bytes)
    if len(region.positions) != ways:
        return Missing(why=f"{region.name} has no place for a target yet")
    for position, (there, wanted) in enumerate(zip(region.positions, shape.targets, strict=True)):
        if not there:
            return SetTarget(region=region.name, position=position, decoder=wanted)
    return SetRegion(region=region.name, attribute="commit", value=1)


def _bring_up(layout: Layout, region: Region, driver: model.DaxDriver) -> Action | Missing | None:
    if region.mode not in (None, VOLATILE):
        return None
    if not region.committed and layout.find_shared_decoders(region):
        return Missing(
            why=f"{region.name} is interleaved with other devices and not committed: commit or delete it on the node"
        )
    if not region.committed and "" in region.positions:
        # It was interleaved with a device that is gone.
        return DeleteRegion(window=region.window, region=region.name)
    if not region.committed:
        return SetRegion(region=region.name, attribute="commit", value=1)
    if region.driver is None:
        return BindRegion(region=region.name)
    return _use_committed(layout, region, driver)


def _use_committed(layout: Layout, region: Region, driver: model.DaxDriver) -> Action | Missing | None:
    if layout.find_shared_decoders(region) and region.dax:
        # An operator interleaved it with other devices and chose its drivers.
        return _online(region) if all(dax.driver == KMEM for dax in region.dax) else None
    return drive(region, driver)


def drive(region: Region, driver: model.DaxDriver) -> Action | Missing | None:
    """Return the next step to bind a region's dax devices to that driver, and for `kmem` to take the memory online; None if done."""
    if not region.dax:
        return Missing(why=f"{region.name} has no dax device; load dax_cxl")
    other = next((dax for dax in region.dax if dax.driver != driver), None)
    if other is not None:
        return _rebind(region, other, driver)
    return _online(region) if driver == KMEM else None


def _rebind(region: Region, dax: Dax, driver: model.DaxDriver) -> Action:
    if dax.driver is None:
        return BindDax(dax=dax.name, driver=driver)
    if online := _names(block for block in region.blocks if block.online):
        return SetMemory(blocks=online, state="offline")
    return UnbindDax(dax=dax.name, driver=dax.driver)


def _online(region: Region) -> Action | Missing | None:
    if not region.blocks:
        return Missing(why=f"{region.name} has no memory blocks yet; look at the kernel's log")
    if wrong := _names(block for block in region.blocks if block.online and not block.may_stay):
        # The kernel's policy has just put it online in a zone for its own pages. At this early time it can still go offline.
        return SetMemory(blocks=wrong, state="offline")
    if idle := _names(block for block in region.blocks if not block.online):
        return SetMemory(blocks=idle, state="online_movable")
    return None


def _names(blocks: Iterable[Block]) -> tuple[str, ...]:
    return tuple(block.name for block in blocks)
