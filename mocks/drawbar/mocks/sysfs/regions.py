"""CXL regions on a mocked host: region, dax device, NUMA node and memory blocks; for persistent ones see `nvdimm`.

What appears of volatile memory is what `cxl create-region -t ram` makes on Linux 6.12 (Documentation/ABI/testing/sysfs-bus-cxl,
sysfs-bus-dax, sysfs-devices-memory); made by `SysfsTree.create_region`, its memory is online as movable. Left out: the groups
`dax_region`, `mapping0` and `accessN`, and the memory tiers.
A region of several memory devices interleaves them at the port just above them.

The ports above the endpoints have one decoder each, as on QEMU; of several regions it shows the one that was made last.

The kernel does not guard a region: a card that is taken out leaves it without its target (`unbinding`).
"""

import dataclasses
import uuid
from collections.abc import Iterator, Sequence

from drawbar.mocks.sysfs import cards, cxl, errors, layouts, nvdimm
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable, writable
from drawbar.mocks.sysfs.steps import Add, Bind, Join, Step, Write

MOST_BLOCKS = 1024
WAYS = frozenset({1, 2, 4, 8, 16})
"""Of a region in a window that is not interleaved itself."""
GRANULARITY = 256
GRANULARITIES = frozenset(256 << power for power in range(7))
CREATE = tuple(f"{cxl.ROOT_DECODER}/create_{kind}_region" for kind in ("ram", "pmem"))
"""Each shows the next region's name."""
_NOWHERE = (1 << 64) - 1
_DAX_ALIGN_BYTES = 2 << 20
_UUIDS = uuid.UUID("6c8a2f5e-6f0b-5b7e-9f4e-3a5d1c0b7e21")  # names of regions below it are made up from it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What was written to a region's files, and the kernel took.

    Attributes:
        targets: the names of endpoint decoders, in interleave order; "" for a place that has none.
    """

    ways: int = 0
    granularity: int = 0
    size_bytes: int = 0
    targets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One region.

    Attributes:
        number: of `region<N>`.
        start: its first address.
        size_bytes: in all.
        targets: the names of its endpoint decoders, in interleave order.
        decoders: their directories; a directory may be gone.
        ports: the directories of the PCI ports above the cards, in the same order.
        committed: its decoders are programmed.
        bound: `cxl_region` has it, so it has a dax device.
        dax_driver: what has the dax device: `kmem` makes memory of it; "" for none.
        offline: the memory blocks that are not online.
        normal: the memory blocks that came online in zone Normal; the others are in zone Movable.
        kept: the memory blocks that the kernel will not take offline, because it uses them itself.
        persistent: of persistent memory; it has no dax device and no memory blocks.
        says_mode: its kernel says which of the two it is.
        uuid: of a persistent one; empty before it was set.
        draft: what its files say.
    """

    number: int
    start: int = 0
    size_bytes: int = 0
    targets: tuple[str, ...] = ()
    decoders: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    committed: bool = True
    bound: bool = True
    dax_driver: str = "kmem"
    offline: tuple[int, ...] = ()
    normal: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    persistent: bool = False
    says_mode: bool = True
    uuid: str = ""
    draft: Draft = Draft()

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"region{self.number}"

    @property
    def dax(self) -> str:
        """Of its dax device's directory."""
        return f"dax{self.number}.0"

    def zone(self, block: int) -> str | None:
        """Where a memory block is online; None where it is not."""
        if block in self.offline:
            return None
        return "Normal" if block in self.normal else "Movable"

    @property
    def blocks(self) -> range:
        """The numbers of its memory blocks."""
        first = self.start // layouts.MEMORY_BLOCK_BYTES
        return range(first, first + self.size_bytes // layouts.MEMORY_BLOCK_BYTES)


def made(
    seats: Sequence[cards.Seat],
    memory_bytes: int,
    present: Sequence[Region],
    *,
    persistent: bool = False,
    says_mode: bool = True,
) -> Region:
    """The next region, over all the memory of the cards in these seats, `memory_bytes` each.

    Raises:
        ImpossibleWorld: the cards cannot make a region, or it would not fit.
    """
    ways, size = len(seats), len(seats) * memory_bytes
    if ways not in WAYS:
        raise errors.ImpossibleWorld(f"a region interleaves 1, 2, 4, 8 or 16 memory devices, not {ways}")
    if (
        not size
        or size % (ways * layouts.MEMORY_BLOCK_BYTES)
        or size > MOST_BLOCKS * layouts.MEMORY_BLOCK_BYTES
    ):
        raise errors.ImpossibleWorld(
            f"a region of {size} bytes cannot be: give each card a multiple of {layouts.MEMORY_BLOCK_BYTES} bytes, "
            f"and all together at most {MOST_BLOCKS * layouts.MEMORY_BLOCK_BYTES}"
        )
    decoders = tuple(cards.endpoint_decoder(seat) for seat in seats)
    if busy := [other for other in present if set(other.decoders) & set(decoders)]:
        raise errors.ImpossibleWorld(f"{busy[0].name} uses a decoder of these cards: destroy it first")
    number = next(
        number for number in range(len(present) + 1) if number not in {other.number for other in present}
    )
    return Region(
        number=number,
        persistent=persistent,
        says_mode=says_mode,
        uuid=str(uuid.uuid5(_UUIDS, str(number))) if persistent else "",
        dax_driver="" if persistent else "kmem",
        start=max((other.start + other.size_bytes for other in present), default=0) or cxl.WINDOW_START,
        size_bytes=size,
        targets=(targets := tuple(decoder.rpartition("/")[2] for decoder in decoders)),
        draft=Draft(ways=ways, granularity=GRANULARITY, size_bytes=size, targets=targets),
        decoders=decoders,
        ports=tuple(seat.place.port for seat in seats),
    )


def steps(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """What happens when the region is made, in order."""
    if region.persistent:
        return (*decoders(region, layout), Add(kobject=device(region)), *persistent(region, layout))
    return (
        *decoders(region, layout),
        Add(kobject=device(region)),
        Bind(kobject=device(region)),
        *dax(region, layout),
        *memory(region, layout),
        Bind(kobject=dax_device(region, layout)),
    )


def empty(region: Region) -> tuple[Step, ...]:
    """What appears when its name is written to `create_ram_region` or `create_pmem_region`."""
    return (Add(kobject=device(region)),)


def persistent(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """What appears when `cxl_region` takes a persistent one, its binding included."""
    return nvdimm.region(
        device(region),
        region.number,
        start=region.start,
        size_bytes=region.size_bytes,
        node=_memory_node(region, layout),
    )


def decoders(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """What committing it programs; nothing of a region without targets."""
    if not region.targets:
        return
    name, ways = f"region{region.number}", len(region.targets)
    for decoder in region.decoders:
        yield Write(
            folder=decoder,
            files=cxl.endpoint_decoder_files(
                start=region.start,
                size=region.size_bytes,
                ways=ways,
                region=name,
                mode="pmem" if region.persistent else "ram",
                granularity=region.draft.granularity,
            ),
            undone=cxl.endpoint_decoder_files(),
        )
    *above, last = layout.cxl_ports
    chosen = tuple(number for path in region.ports for number, port in last.dports.items() if port == path)
    for port, targets in (*((port, tuple(port.dports)) for port in above), (last, chosen)):
        yield Write(
            folder=port.decoder,
            files=cxl.switch_decoder_files(
                targets or tuple(port.dports),
                start=region.start,
                size=region.size_bytes,
                ways=ways if port is last else 1,
                region=name,
                granularity=region.draft.granularity,
            ),
            undone=cxl.switch_decoder_files(tuple(port.dports)),
        )


def freed(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """What its decoders show when it is deleted: they keep what they were set to, and belong to no region."""
    nothing = {"region": readable(""), "size": readable("0x0"), "start": cxl.start_file(0)}
    for folder in (*region.decoders, *(port.decoder for port in layout.cxl_ports)):
        yield Write(folder=folder, files=nothing, undone={})


def device(region: Region) -> Kobject:
    """The region itself."""
    mode = {"mode": readable("pmem" if region.persistent else "ram")} if region.says_mode else {}
    # One of volatile memory has the file too, for the sake of tools, and nothing in it.
    identity = writable(region.uuid or str(uuid.UUID(int=0))) if region.persistent else readable("")
    return cxl.device(
        path(region),
        "cxl_region",
        kind=6,
        files={
            "commit": writable(str(int(region.committed))),
            "interleave_granularity": writable(str(region.draft.granularity)),
            "interleave_ways": writable(str(region.draft.ways)),
            **mode,
            "resource": readable(f"{region.start if region.size_bytes else _NOWHERE:#x}"),
            "size": writable(f"{region.size_bytes:#x}"),
            "uuid": identity,
            **{f"target{index}": writable(target) for index, target in enumerate(region.draft.targets)},
        },
        driver="cxl_region",
    )


def dax(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """What `cxl_region` makes: the dax region, and its device without a driver."""
    holder = cxl.device(
        f"{path(region)}/dax_region{region.number}", "cxl_dax_region", kind=8, driver="cxl_dax_region"
    )
    yield Add(kobject=holder)
    yield Bind(kobject=holder)
    yield Add(kobject=dax_device(region, layout))


def dax_made(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """The same as it comes: the device is there before its region's driver has been announced."""
    holder, bound, device = dax(region, layout)
    return holder, device, bound


def dax_device(region: Region, layout: layouts.Layout) -> Kobject:
    """Its dax device, with the driver that it has or would have."""
    number = region.number
    node = str(_memory_node(region, layout))
    return Kobject(
        path=f"{path(region)}/dax_region{number}/dax{number}.0",
        subsystem="dax",
        subsystem_path="bus/dax",
        uevent={
            "MAJOR": "252",
            "MINOR": str(number),
            "DEVNAME": f"dax{number}.0",
            "MODALIAS": "dax:t0",
        },
        files={
            "align": writable(str(_DAX_ALIGN_BYTES)),
            "dev": readable(f"252:{number}"),
            "modalias": readable("dax:t0"),
            "memmap_on_memory": writable("1"),
            "numa_node": readable("-1"),
            "resource": Attribute(content=f"{region.start:#x}\n".encode(), mode=0o400),
            "size": writable(str(region.size_bytes)),
            "target_node": readable(node),
        },
        driver=region.dax_driver or "kmem",
    )


def path(region: Region) -> str:
    """Its directory."""
    return f"{cxl.ROOT_DECODER}/region{region.number}"


def memory(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """The memory comes while `kmem` takes the dax device, so that the event of its binding is the last."""
    node = layouts.node(_memory_node(region, layout))
    yield Add(kobject=node)
    for number in region.blocks:
        yield from memory_block(region, layout, number)


def memory_block(region: Region, layout: layouts.Layout, number: int) -> tuple[Add, Join]:
    """One memory block of it, and how its node lists it."""
    node = layouts.node(_memory_node(region, layout))
    block = Kobject(
        path=f"devices/system/memory/memory{number}",
        subsystem="memory",
        subsystem_path="bus/memory",
        files={
            **block_files(region.zone(number)),
            "phys_device": readable("0"),
            "phys_index": readable(f"{number:08x}"),
            "removable": readable("1"),
        },
        links={f"node{node.name.removeprefix('node')}": node.path},
    )
    return Add(kobject=block), Join(place=f"{node.path}/{block.name}", target=block.path)


def block_files(zone: str | None) -> dict[str, Attribute]:
    """The files by which a memory block shows its state; `zone` is None where it is offline."""
    return {
        "online": writable(str(int(zone is not None))),
        "state": writable("offline" if zone is None else "online"),
        "valid_zones": readable(zone or "Normal Movable"),
    }


def _memory_node(region: Region, layout: layouts.Layout) -> int:
    """A NUMA node of its own for each region, after those with processors."""
    return max(1, len(layout.nodes)) + region.number
