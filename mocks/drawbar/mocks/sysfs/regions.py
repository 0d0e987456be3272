"""CXL regions of volatile memory on a mocked host: region, dax device, NUMA node and memory blocks.

What appears is what `cxl create-region -t ram` makes on Linux 6.3 and later, with the `kmem` driver and memory onlined
as movable (Documentation/ABI/testing/sysfs-bus-cxl, sysfs-bus-dax, sysfs-devices-memory); no recording has a region.
A region of several memory devices interleaves them at the port just above them.

The ports above the endpoints have one decoder each, as on QEMU, so a host has one region at a time.

The kernel does not guard a region: a card that is taken out leaves it dangling, with a `target` that is no more.
"""

import dataclasses
import uuid
from collections.abc import Iterator, Sequence

from drawbar.mocks.sysfs import cards, cxl, errors, layouts
from drawbar.mocks.sysfs.kobjects import Attribute, Kobject, readable, writable
from drawbar.mocks.sysfs.steps import Add, Bind, Join, Step, Write

MOST_BLOCKS = 1024
_DAX_ALIGN_BYTES = 2 << 20
_UUIDS = uuid.UUID("6c8a2f5e-6f0b-5b7e-9f4e-3a5d1c0b7e21")  # names of regions below it are made up from it


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
    """

    number: int
    start: int
    size_bytes: int
    targets: tuple[str, ...]
    decoders: tuple[str, ...]
    ports: tuple[str, ...]


def made(seats: Sequence[cards.Seat], memory_bytes: int, others: Sequence[Region]) -> Region:
    """The next region, over all the memory of the cards in these seats, `memory_bytes` each.

    Raises:
        ImpossibleWorld: the cards cannot make a region, or it would not fit.
    """
    ways, size = len(seats), len(seats) * memory_bytes
    if ways not in {1, 2, 4, 8, 16}:
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
    if others:
        raise errors.ImpossibleWorld(
            f"region{others[0].number} uses the decoders of all ports: destroy it first"
        )
    decoders = tuple(cards.endpoint_decoder(seat) for seat in seats)
    return Region(
        number=0,
        start=cxl.WINDOW_START,
        size_bytes=size,
        targets=tuple(decoder.rpartition("/")[2] for decoder in decoders),
        decoders=decoders,
        ports=tuple(seat.place.port for seat in seats),
    )


def steps(region: Region, layout: layouts.Layout) -> tuple[Step, ...]:
    """What happens when the region is made, in order."""
    dax = _dax(region, layout)
    return (
        *_decoders(region, layout),
        *_devices(region),
        Add(kobject=dax),
        *_memory(region, layout),
        Bind(kobject=dax),
    )


def _decoders(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    name, ways = f"region{region.number}", len(region.targets)
    for decoder in region.decoders:
        yield Write(
            folder=decoder,
            files=cxl.endpoint_decoder_files(
                start=region.start, size=region.size_bytes, ways=ways, region=name
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
            ),
            undone=cxl.switch_decoder_files(tuple(port.dports)),
        )


def _devices(region: Region) -> Iterator[Step]:
    number = region.number
    device = cxl.device(
        _path(region),
        "cxl_region",
        kind=6,
        files={
            "commit": writable("1"),
            "interleave_granularity": writable("256"),
            "interleave_ways": writable(str(len(region.targets))),
            "mode": readable("ram"),
            "resource": readable(f"{region.start:#x}"),
            "size": writable(f"{region.size_bytes:#x}"),
            "uuid": writable(str(uuid.uuid5(_UUIDS, _path(region)))),
            **{f"target{index}": writable(target) for index, target in enumerate(region.targets)},
        },
        driver="cxl_region",
    )
    holder = cxl.device(
        f"{device.path}/dax_region{number}", "cxl_dax_region", kind=8, driver="cxl_dax_region"
    )
    for each in (device, holder):
        yield Add(kobject=each)
        yield Bind(kobject=each)


def _dax(region: Region, layout: layouts.Layout) -> Kobject:
    number = region.number
    node = str(_memory_node(region, layout))
    return Kobject(
        path=f"{_path(region)}/dax_region{number}/dax{number}.0",
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
            "numa_node": readable(node),
            "resource": Attribute(content=f"{region.start:#x}\n".encode(), mode=0o400),
            "size": writable(str(region.size_bytes)),
            "target_node": readable(node),
        },
        driver="kmem",
    )


def _path(region: Region) -> str:
    return f"{cxl.ROOT_DECODER}/region{region.number}"


def _memory(region: Region, layout: layouts.Layout) -> Iterator[Step]:
    """The memory comes online while `kmem` takes the dax device, so that the event of its binding is the last."""
    node = layouts.node(_memory_node(region, layout))
    yield Add(kobject=node)
    first = region.start // layouts.MEMORY_BLOCK_BYTES
    for number in range(first, first + region.size_bytes // layouts.MEMORY_BLOCK_BYTES):
        block = Kobject(
            path=f"devices/system/memory/memory{number}",
            subsystem="memory",
            subsystem_path="bus/memory",
            files={
                "online": writable("1"),
                "phys_device": readable("0"),
                "phys_index": readable(f"{number:08x}"),
                "removable": readable("1"),
                "state": writable("online"),
                "valid_zones": readable("Movable"),
            },
            links={f"node{node.name.removeprefix('node')}": node.path},
        )
        yield Add(kobject=block)
        yield Join(place=f"{node.path}/{block.name}", target=block.path)


def _memory_node(region: Region, layout: layouts.Layout) -> int:
    """A NUMA node of its own for each region, after those with processors."""
    return max(1, len(layout.nodes)) + region.number
