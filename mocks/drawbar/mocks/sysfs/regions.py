"""CXL regions on a mocked host: region, dax device, NUMA node and memory blocks; for persistent ones see `nvdimm`.

Volatile memory looks as made by `cxl create-region -t ram` on Linux 6.12 (Documentation/ABI/testing/sysfs-bus-cxl,
sysfs-bus-dax, sysfs-devices-memory). From `SysfsTree.create_region` its memory is online as movable. Limits: no groups
`dax_region`, `mapping0` and `accessN`, and no memory tiers.

A region of several memory devices interleaves them at the port just above them. The ports above the endpoints have one
decoder each, as on QEMU; with several regions it shows the latest one. The kernel does not guard a region: removal of
a card leaves it without its target (`unbinding`).
"""

import dataclasses
import uuid
from collections.abc import Iterator, Sequence

from drawbar.mocks.sysfs import cards, cxl, errors, layouts, nvdimm
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable, writable
from drawbar.mocks.sysfs.steps import Add, Bind, Join, Step, Write

MOST_BLOCKS = 1024
WAYS = frozenset({1, 2, 4, 8, 16})
"""The possible ways of a region in a window without interleaving."""
GRANULARITY = 256
GRANULARITIES = frozenset(256 << power for power in range(7))
CREATE = tuple(f"{cxl.ROOT_DECODER}/create_{kind}_region" for kind in ("ram", "pmem"))
"""The files to create regions; each shows the next region's name."""
_NOWHERE = (1 << 64) - 1
_DAX_ALIGN_BYTES = 2 << 20
_UUIDS = uuid.UUID("6c8a2f5e-6f0b-5b7e-9f4e-3a5d1c0b7e21")  # the namespace of invented uuids of regions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The written values of a region's files, as accepted by the kernel.

    Attributes:
        targets: the names of endpoint decoders, in interleave order; "" for a missing one.
    """

    ways: int = 0
    granularity: int = 0
    size_bytes: int = 0
    targets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One region.

    Attributes:
        number: the number in `region<N>`.
        start: its first address.
        size_bytes: its total size.
        targets: the names of its endpoint decoders, in interleave order.
        decoders: the directories of its endpoint decoders; a directory may be gone.
        ports: the directories of the PCI ports above the cards, in the same order.
        committed: true if its decoders are programmed.
        bound: true if `cxl_region` is bound, so that it has a dax device.
        dax_driver: the driver of the dax device; `kmem` makes memory of it; "" for none.
        offline: the numbers of offline memory blocks.
        normal: the numbers of memory blocks online in zone Normal; the others are in zone Movable.
        kept: the numbers of memory blocks in use by the kernel; they cannot go offline.
        persistent: true for persistent memory, without a dax device and memory blocks.
        says_mode: true if its kernel shows the mode.
        uuid: the uuid of a persistent region; empty until set.
        draft: the values of its files.
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
        """Return the name of its directory."""
        return f"region{self.number}"

    @property
    def dax(self) -> str:
        """Return the name of its dax device's directory."""
        return f"dax{self.number}.0"

    def zone(self, block: int) -> str | None:
        """Return the zone of an online memory block; None if it is offline."""
        if block in self.offline:
            return None
        return "Normal" if block in self.normal else "Movable"

    @property
    def blocks(self) -> range:
        """Return the numbers of its memory blocks."""
        first = self.start // layouts.MEMORY_BLOCK_BYTES
        return range(first, first + self.size_bytes // layouts.MEMORY_BLOCK_BYTES)


def make_region(
    seats: Sequence[cards.Seat],
    memory_bytes: int,
    present: Sequence[Region],
    *,
    persistent: bool = False,
    says_mode: bool = True,
) -> Region:
    """Return the next region, with all the memory of the cards in these seats, `memory_bytes` each.

    Raises:
        ImpossibleWorld: the cards cannot form a region, or it would not fit.
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
        ports=tuple(seat.slot.port for seat in seats),
    )


def steps(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """Return the steps of making the region, in order."""
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
    """Return the steps of a write of its name to `create_ram_region` or `create_pmem_region`."""
    return (Add(kobject=device(region)),)


def persistent(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """Return the steps of binding `cxl_region` to a persistent region."""
    return nvdimm.region(
        device(region),
        region.number,
        start=region.start,
        size_bytes=region.size_bytes,
        node=_memory_node(region, layout),
    )


def decoders(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """Yield the steps of programming its decoders; none for a region without targets."""
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


def free_decoders(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """Yield the steps of freeing its decoders on deletion: they keep other settings, and belong to no region."""
    nothing = {"region": readable(""), "size": readable("0x0"), "start": cxl.start_file(0)}
    for folder in (*region.decoders, *(port.decoder for port in layout.cxl_ports)):
        yield Write(folder=folder, files=nothing, undone={})


def device(region: Region) -> Kobject:
    """Return the region's own device."""
    mode = {"mode": readable("pmem" if region.persistent else "ram")} if region.says_mode else {}
    # Volatile regions have the file too, but empty, for compatibility with tools.
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
    """Yield the steps of `cxl_region`: the dax region, and its device without a driver."""
    holder = cxl.device(
        f"{path(region)}/dax_region{region.number}", "cxl_dax_region", kind=8, driver="cxl_dax_region"
    )
    yield Add(kobject=holder)
    yield Bind(kobject=holder)
    yield Add(kobject=dax_device(region, layout))


def dax_made(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """Return the same steps in the order of a running kernel: the device comes before the bind event of its parent."""
    holder, bound, device = dax(region, layout)
    return holder, device, bound


def dax_device(region: Region, layout: layouts.Layout) -> Kobject:
    """Return its dax device, with its driver or, without one, `kmem`."""
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
    """Return its directory."""
    return f"{cxl.ROOT_DECODER}/region{region.number}"


def memory(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """Yield the steps of `kmem`: the memory appears while it binds, so the bind event comes last."""
    node = layouts.node(_memory_node(region, layout))
    yield Add(kobject=node)
    for number in region.blocks:
        yield from memory_block(region, layout, number)


def memory_block(region: Region, layout: layouts.Layout, number: int) -> tuple[Add, Join]:
    """Return the steps of one memory block, and of its node's link to it."""
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
    return Add(kobject=block), Join(path=f"{node.path}/{block.name}", target=block.path)


def block_files(zone: str | None) -> dict[str, Attribute]:
    """Return the state files of a memory block; `zone` is None if it is offline."""
    return {
        "online": writable(str(int(zone is not None))),
        "state": writable("offline" if zone is None else "online"),
        "valid_zones": readable(zone or "Normal Movable"),
    }


def _memory_node(region: Region, layout: layouts.Layout) -> int:
    """Return the region's NUMA node: each has its own, after those with processors."""
    return max(1, len(layout.nodes)) + region.number
