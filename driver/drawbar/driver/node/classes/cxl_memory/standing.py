"""What stands on a CXL memory device: decoders, its region, the region's dax devices and memory blocks, as values.

Sizes are bytes. Source: Documentation/ABI/testing/sysfs-bus-cxl, sysfs-bus-dax, sysfs-devices-memory.
"""

from dataclasses import dataclass

VOLATILE = "ram"
MOVABLE = "Movable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A memory block (`memory46`); `zone` is where it is online, None where it is offline or the kernel does not say."""

    name: str
    online: bool
    zone: str | None = None

    @property
    def may_stay(self) -> bool:
        """Whether it is online, and its pages can be moved away: the kernel's own never are put there."""
        return self.online and self.zone in (None, MOVABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dax:
    """A dax device; only `kmem` makes system memory of it."""

    name: str
    driver: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The endpoint's decoder that is to take the memory."""

    name: str
    mode: str | None
    dpa_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A root decoder: a range of host addresses; `makes_ram`: its kernel can make regions of volatile memory."""

    name: str
    granularity_bytes: int
    makes_ram: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region.

    Attributes:
        window: the root decoder that it is below.
        targets: decoders of any device, in interleave order; empty while nobody has set one.
        open: it has a place for a target.
        driver: `cxl_region` while it is in use.
    """

    name: str
    window: str
    mode: str | None
    ways: int
    granularity_bytes: int
    size_bytes: int
    targets: tuple[str, ...]
    committed: bool
    driver: str | None
    open: bool = True
    dax: tuple[Dax, ...] = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One memory device with what stands on it.

    Attributes:
        memdev: its name; None while its driver has made none.
        ram_bytes: its volatile memory.
        decoder: the first of its decoders that is free, or in the region.
        decoders: the names of all its decoders.
        window: where a region can be made.
        regions: those with one of its decoders.
        empty: a region that nobody has put anything into yet: what a crash leaves, for one.
    """

    memdev: str | None = None
    ram_bytes: int = 0
    decoder: Decoder | None = None
    decoders: tuple[str, ...] = ()
    window: Window | None = None
    regions: tuple[Region, ...] = ()
    empty: Region | None = None

    def shared(self, region: Region) -> tuple[str, ...]:
        """The decoders of other devices in a region."""
        return tuple(target for target in region.targets if target not in self.decoders)
