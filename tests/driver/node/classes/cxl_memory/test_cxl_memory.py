"""CXL memory: from a bare device to a dax device or online memory and back, by plan and on a mocked host."""

import asyncio
import dataclasses
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import parameters
from drawbar.driver.node import classes, errors, kernel
from drawbar.driver.node.classes.cxl_memory import operations as cxl_operations
from drawbar.driver.node.classes.cxl_memory import reading, region_steps
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree, load_recording

GIB = 1 << 30
BARE = region_steps.Layout(
    memdev="mem0",
    ram_bytes=GIB,
    decoder=region_steps.Decoder(name="decoder2.0", mode="none", dpa_bytes=0),
    decoders=("decoder2.0",),
    window=region_steps.Window(name="decoder0.0", granularity_bytes=256, makes_ram=True),
)
SIZED = msgspec.structs.replace(
    BARE, decoder=region_steps.Decoder(name="decoder2.0", mode="ram", dpa_bytes=GIB)
)
EMPTY = region_steps.Region(
    name="region0",
    window="decoder0.0",
    mode="ram",
    ways=0,
    granularity_bytes=0,
    size_bytes=0,
    positions=(),
    committed=False,
    driver=None,
)
BLOCKS = tuple(region_steps.Block(name=f"memory{number}", online=True, zone="Movable") for number in (46, 47))
ONLINE = msgspec.structs.replace(
    EMPTY,
    ways=1,
    granularity_bytes=256,
    size_bytes=GIB,
    positions=("decoder2.0",),
    committed=True,
    driver="cxl_region",
    dax=(region_steps.Dax(name="dax0.0", driver="kmem"),),
    blocks=BLOCKS,
)


def make_empty_layout(**changes):
    return msgspec.structs.replace(SIZED, empty=msgspec.structs.replace(EMPTY, **changes))


def region(**changes):
    return msgspec.structs.replace(SIZED, regions=(msgspec.structs.replace(ONLINE, **changes),))


def blocks(*states):
    return tuple(
        region_steps.Block(name=f"memory{number}", online=zone is not None, zone=zone)
        for number, zone in enumerate(states)
    )


def set_region(attribute, value):
    return region_steps.SetRegion(region="region0", attribute=attribute, value=value)


def set_decoder(attribute, value):
    return region_steps.SetDecoder(decoder="decoder2.0", attribute=attribute, value=value)


OTHER_SIZE = region_steps.Decoder(name="decoder2.0", mode="ram", dpa_bytes=5)
FORWARD = [
    (BARE, set_decoder("mode", "ram"), "decoder without a mode"),
    (
        msgspec.structs.replace(SIZED, decoder=msgspec.structs.replace(OTHER_SIZE, dpa_bytes=0)),
        set_decoder("dpa_size", GIB),
        "decoder without memory",
    ),
    (
        msgspec.structs.replace(SIZED, decoder=OTHER_SIZE),
        set_decoder("dpa_size", 0),
        "decoder with other memory",
    ),
    (SIZED, region_steps.CreateRegion(window="decoder0.0"), "no region"),
    (make_empty_layout(), set_region("interleave_granularity", 256), "no granularity"),
    (make_empty_layout(granularity_bytes=256), set_region("interleave_ways", 1), "no ways"),
    (make_empty_layout(granularity_bytes=256, ways=1), set_region("size", GIB), "no size"),
    (
        make_empty_layout(granularity_bytes=256, ways=1, size_bytes=GIB, positions=("",)),
        region_steps.SetTarget(region="region0", position=0, decoder="decoder2.0"),
        "no target",
    ),
    (
        make_empty_layout(granularity_bytes=256, ways=2, size_bytes=2 * GIB, positions=("", "")),
        region_steps.DeleteRegion(window="decoder0.0", region="region0"),
        "what a crash left of an interleaved region",
    ),
    (
        region(committed=False, ways=2, positions=("decoder2.0", "")),
        region_steps.DeleteRegion(window="decoder0.0", region="region0"),
        "what is left of an interleaved region",
    ),
    (region(committed=False), set_region("commit", 1), "not committed"),
    (region(driver=None), region_steps.BindRegion(region="region0"), "not bound"),
    (
        region(blocks=blocks(None, "Movable", None)),
        region_steps.SetMemory(blocks=("memory0", "memory2"), state="online_movable"),
        "offline",
    ),
    (
        region(blocks=blocks(None, "Normal")),
        region_steps.SetMemory(blocks=("memory1",), state="offline"),
        "online where the kernel keeps its own",
    ),
    (region(), None, "online"),
    (
        region(dax=(region_steps.Dax(name="dax0.0", driver=None),), blocks=()),
        region_steps.BindDax(dax="dax0.0", driver="kmem"),
        "a dax device without a driver",
    ),
    (
        region(dax=(region_steps.Dax(name="dax0.0", driver="device_dax"),), blocks=()),
        region_steps.UnbindDax(dax="dax0.0", driver="device_dax"),
        "a dax device of its own",
    ),
    (
        region(
            positions=("decoder2.0", "decoder3.0"),
            dax=(region_steps.Dax(name="dax0.0", driver="device_dax"),),
        ),
        None,
        "an interleaved dax device of an operator",
    ),
    (msgspec.structs.replace(BARE, ram_bytes=0), None, "persistent memory alone"),
    (region(mode="pmem", committed=False), None, "a persistent region that is not ours"),
    (msgspec.structs.replace(region(), regions=(ONLINE, ONLINE)), None, "two regions online"),
]


@pytest.mark.parametrize(("seen", "step"), [case[:2] for case in FORWARD], ids=[case[2] for case in FORWARD])
def test_the_next_step_towards_online_memory(seen, step):
    assert region_steps.towards_ready(seen, "kmem") == step


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (SIZED, region_steps.CreateRegion(window="decoder0.0")),
        (region(driver=None, dax=(), blocks=()), region_steps.BindRegion(region="region0")),
        (
            region(dax=(region_steps.Dax(name="dax0.0", driver=None),), blocks=()),
            region_steps.BindDax(dax="dax0.0", driver="device_dax"),
        ),
        (
            region(blocks=blocks("Normal", None, "Movable")),
            region_steps.SetMemory(blocks=("memory0", "memory2"), state="offline"),
        ),
        (region(blocks=blocks(None)), region_steps.UnbindDax(dax="dax0.0", driver="kmem")),
        (region(dax=(region_steps.Dax(name="dax0.0", driver="device_dax"),), blocks=()), None),
        (region(positions=("decoder2.0", "decoder3.0")), None),
    ],
    ids=["bare", "not bound", "no driver", "online", "offline", "there", "interleaved, online"],
)
def test_the_next_step_towards_a_dax_device_of_its_own(seen, step):
    assert region_steps.towards_ready(seen) == step


def test_memory_that_may_never_go_offline_is_named_with_the_remedy():
    assert region_steps.find_misplaced(region(blocks=blocks("Movable", None))) is None
    text = region_steps.find_misplaced(region(blocks=blocks("Normal", "Movable", "DMA32", "Normal")))
    assert text.startswith("memory0, memory2 and 1 more came online in zone Normal")
    assert "set auto_online_blocks to online_movable" in text


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (region_steps.Layout(), "no CXL memory device"),
        (msgspec.structs.replace(BARE, decoder=None), "cxl_port"),
        (msgspec.structs.replace(BARE, window=None), "window"),
        (
            msgspec.structs.replace(BARE, window=msgspec.structs.replace(BARE.window, makes_ram=False)),
            "Linux 6.3 or newer",
        ),
        (make_empty_layout(granularity_bytes=256, ways=1, size_bytes=GIB), "no place"),
        (region(dax=()), "dax_cxl"),
        (region(blocks=()), "no memory blocks"),
        (region(positions=("decoder2.0", "decoder3.0"), committed=False), "commit or delete it on the node"),
    ],
)
def test_an_impossible_region_step_is_reported(seen, why):
    missing = region_steps.towards_ready(seen, "kmem")
    assert isinstance(missing, region_steps.Missing)
    assert why in missing.why


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (region(), region_steps.SetMemory(blocks=("memory46", "memory47"), state="offline")),
        (
            region(blocks=blocks(None, "Movable")),
            region_steps.SetMemory(blocks=("memory1",), state="offline"),
        ),
        (region(blocks=blocks(None)), region_steps.UnbindDax(dax="dax0.0", driver="kmem")),
        (
            region(blocks=(), dax=(region_steps.Dax(name="dax0.0", driver="device_dax"),)),
            region_steps.UnbindDax(dax="dax0.0", driver="device_dax"),
        ),
        (region(blocks=(), dax=(region_steps.Dax(name="dax0.0", driver=None),)), set_region("commit", 0)),
        (
            region(blocks=(), dax=(), committed=False),
            region_steps.DeleteRegion(window="decoder0.0", region="region0"),
        ),
        (region(mode="pmem"), None),
        (region(positions=("decoder2.0", "decoder3.0")), None),
        (SIZED, None),
    ],
    ids=[
        "online",
        "partly online",
        "offline",
        "dax",
        "unbound",
        "not committed",
        "persistent",
        "interleaved",
        "nothing",
    ],
)
def test_the_next_step_back(seen, step):
    assert region_steps.towards_rest(seen) == step


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (region(), ()),
        (region(mode="pmem"), ("persistent memory",)),
        (region(positions=("decoder2.0", "decoder3.0")), ("decoder3.0",)),
    ],
)
def test_obstacles_to_a_release_are_named(seen, wanted):
    obstacles = region_steps.obstacles(seen)
    assert len(obstacles) == len(wanted)
    assert all(part in text for part, text in zip(wanted, obstacles, strict=True))


@given(
    zones=st.lists(st.sampled_from([None, "Movable", "Normal"]), max_size=4),
    committed=st.booleans(),
    driver=st.sampled_from([None, "cxl_region"]),
    mode=st.sampled_from(["ram", "pmem", None]),
    targets=st.sampled_from([("decoder2.0",), ("decoder2.0", "decoder3.0"), ("decoder3.0",)]),
)
def test_a_region_goes_only_when_its_memory_is_offline_and_it_is_volatile_and_ours_alone(
    zones, committed, driver, mode, targets
):
    seen = region(blocks=blocks(*zones), committed=committed, driver=driver, mode=mode, positions=targets)
    match region_steps.towards_rest(seen):
        case region_steps.SetRegion() | region_steps.DeleteRegion() | region_steps.UnbindDax():
            assert not any(zones)
            assert mode != "pmem"
            assert targets == ("decoder2.0",)
        case region_steps.SetMemory(state=state):
            assert state == "offline"
    match region_steps.towards_ready(seen, "kmem"):
        case region_steps.SetMemory(state=state, blocks=names):
            wanted = {"offline": "Normal", "online_movable": None}[state]
            assert all(zones[int(name.removeprefix("memory"))] == wanted for name in names)


# --- on a mocked host ---


def memory(serial="4660", size=1 << 29):
    return MockDevice(
        device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial=serial, memory_bytes=size
    )


@pytest.fixture
def tree(tmp_path):
    """Return a host with one slot, which is empty."""
    return SysfsTree.create(tmp_path / "sys", slots=1)


def with_region(tree):
    """Return the region of a memory device that was put into the slot."""
    tree.attach(1, memory())
    tree.create_region([1])
    return tree.root / "bus/cxl/devices/region0"


def read_layout(tree):
    return reading.read_layout(classes.Host.from_sysfs(tree.root), card_of(tree))


def card_of(tree, slot=1):
    return model.Card(functions=(reader.read_function(tree.root, tree.address(slot)),))


SYSTEM_RAM = parameters.DeviceParameters(memory=parameters.Memory(mode="system-ram"))


async def initialise_memory(asked, tree, until, slot=1, wanted=parameters.NOTHING):
    async def attempt():
        return await classes.by_name("cxl-memory").initialise(asked, card_of(tree, slot), wanted)

    return await until(attempt, lambda missing: missing is None)


def dax_driver(tree):
    (region,) = read_layout(tree).regions
    (dax,) = region.dax
    return dax.driver


def paths(tree):
    """Return the paths of the device files that a container gets."""
    edits = classes.by_name("cxl-memory").edits(card_of(tree), classes.Host.from_sysfs(tree.root))
    return [node.path for node in edits.device_nodes]


async def test_a_pod_gets_the_dax_device_of_the_memory_and_none_of_it_comes_online(tree, until):
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, memory())
        assert paths(tree) == ["/dev/cxl/mem0"]
        await initialise_memory(asked, tree, until)
        assert dax_driver(tree) == "device_dax"
        assert read_layout(tree).regions[0].blocks == ()
        assert paths(tree) == ["/dev/dax0.0"]
        assert (tree.root / "bus/dax/drivers_autoprobe").read_text() == "1\n"


async def test_one_use_becomes_the_other(tree, until):
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, memory())
        await initialise_memory(asked, tree, until, wanted=SYSTEM_RAM)
        assert (dax_driver(tree), paths(tree)) == ("kmem", ["/dev/cxl/mem0"])
        await initialise_memory(asked, tree, until)
        assert (dax_driver(tree), read_layout(tree).regions[0].blocks) == ("device_dax", ())
        await initialise_memory(asked, tree, until, wanted=SYSTEM_RAM)
        assert dax_driver(tree) == "kmem"


async def online_in_normal_zone(asked, tree, until):
    """Bring the memory online as an administrator does by the policy of the host, in zone Normal."""
    await initialise_memory(asked, tree, until)
    (tree.root / "bus/dax/drivers/device_dax/unbind").write_text("dax0.0")

    async def driver():
        return dax_driver(tree)

    await until(driver, lambda bound: bound is None)
    (tree.root / "bus/dax/drivers/kmem/bind").write_text("dax0.0")
    await until(driver, lambda bound: bound == "kmem")
    assert [block.zone for block in read_layout(tree).regions[0].blocks] == ["Normal"] * 2


async def test_memory_that_came_online_in_the_wrong_zone_is_brought_online_as_movable(tree, until):
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, memory())
        await online_in_normal_zone(asked, tree, until)
        await initialise_memory(asked, tree, until, wanted=SYSTEM_RAM)
        assert [block.zone for block in read_layout(tree).regions[0].blocks] == ["Movable"] * 2


async def test_memory_that_does_not_leave_the_wrong_zone_is_named(tree, until):
    asked, host = kernel.Kernel(tree.root), classes.Host.from_sysfs(tree.root)
    operations = classes.by_name("cxl-memory")
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, memory())
        await online_in_normal_zone(asked, tree, until)
        await asyncio.to_thread(tree.keep_online, "region0")
        assert "came online in zone Normal" in operations.pending_quiesce_step(host, card_of(tree))

        async def attempt():
            return await operations.initialise(asked, card_of(tree), SYSTEM_RAM)

        assert "came online in zone Normal" in await until(attempt, lambda why: why and "zone" in why)


def make_unwritable_region(tree):
    """Return a region of memory in the wrong zone whose state cannot be written."""
    (tree.root / "devices/system/memory/memory45/state").unlink()
    (tree.root / "devices/system/memory/memory45/state").mkdir()
    return region(blocks=(region_steps.Block(name="memory45", online=True, zone="Normal"),))


async def test_a_refusal_to_take_memory_of_the_wrong_zone_offline_has_the_remedy(tree):
    with_region(tree)
    with pytest.raises(errors.KernelRefused, match=r"^memory45 came online in zone Normal.*cannot write"):
        await cxl_operations._set_memory(
            kernel.Kernel(tree.root), make_unwritable_region(tree), ("memory45",), "offline"
        )


async def test_a_kernel_that_does_not_end_to_take_memory_of_the_wrong_zone_offline_has_the_remedy(tree):
    with_region(tree)
    state, wrong = tree.root / "devices/system/memory/memory45/state", make_unwritable_region(tree)
    state.rmdir()
    os.mkfifo(state)
    try:
        with pytest.raises(errors.KernelSilent, match="memory45 came online in zone Normal"):
            await cxl_operations._set_memory(
                kernel.Kernel(tree.root, deadline_seconds=0.2), wrong, ("memory45",), "offline"
            )
    finally:
        await asyncio.to_thread(state.read_text)


async def test_memory_comes_online_as_movable_and_goes_again(tree, until):
    asked, host = kernel.Kernel(tree.root), classes.Host.from_sysfs(tree.root)
    operations = classes.by_name("cxl-memory")
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, memory())
        await initialise_memory(asked, tree, until, wanted=SYSTEM_RAM)
        (region,) = read_layout(tree).regions
        assert region.size_bytes == 1 << 29
        assert [(block.online, block.zone) for block in region.blocks] == [(True, "Movable")] * 2

        async def at_rest():
            if operations.pending_quiesce_step(host, card_of(tree)) is not None:
                await operations.quiesce(asked, host, card_of(tree))
            return read_layout(tree).regions

        assert await until(at_rest, lambda regions: not regions) == ()
        await operations.quiesce(asked, host, card_of(tree))
        await initialise_memory(asked, tree, until)


async def test_an_empty_region_that_a_crash_left_is_used(tree, until):
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, memory())
        await asked.create_region("decoder0.0")

        async def regions():
            return [path.name for path in (tree.root / "bus/cxl/devices").glob("region*")]

        await until(regions, bool)
        await initialise_memory(asked, tree, until)
        assert await regions() == ["region0"]


@pytest.mark.parametrize("sizes", [(1 << 29, 1 << 29), (1 << 28, 1 << 29)], ids=["alike", "of two sizes"])
async def test_two_memory_devices_that_arrive_at_once_fill_a_region_each(tmp_path, until, sizes):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        for slot, size in enumerate(sizes, start=1):
            await asyncio.to_thread(tree.attach, slot, memory(serial=str(slot), size=size))
        await asyncio.gather(*(initialise_memory(asked, tree, until, slot) for slot in (1, 2)))
        host = classes.Host.from_sysfs(tree.root)
        made = [reading.read_layout(host, card_of(tree, slot)).regions for slot in (1, 2)]
        assert [region.size_bytes for (region,) in made] == list(sizes)
        assert len({region.name for (region,) in made}) == 2


async def test_without_its_driver_the_driver_comes_first(tree):
    await asyncio.to_thread(tree.attach, 1, dataclasses.replace(memory(), driver=""))
    asked = kernel.Kernel(tree.root)
    assert "no kernel driver" in await classes.by_name("cxl-memory").initialise(asked, card_of(tree))


async def test_a_kernel_that_does_not_do_it_is_not_asked_for_ever(tree):
    await asyncio.to_thread(tree.attach, 1, memory())  # and no kernel reacts
    asked = kernel.Kernel(tree.root)
    pending = await classes.by_name("cxl-memory").initialise(asked, card_of(tree))
    assert pending == "the kernel has not finished the request"


def test_the_window_is_the_widest_that_takes_volatile_memory_and_leads_here(tree):
    tree.attach(1, memory())
    root = tree.root / "devices/platform/ACPI0017:00/root0"
    assert read_layout(tree).window.name == "decoder0.0"
    (root / "decoder0.0/create_ram_region").unlink()
    assert not read_layout(tree).window.makes_ram
    (root / "dport0").unlink()
    (root / "dport0").symlink_to("../../somewhere/ACPI0016:07")
    assert read_layout(tree).window is None


def test_persistent_memory_without_a_region_mode_is_left_alone(tree):
    """Linux 6.1, in the lab: `mode` came with volatile regions, in 6.3; the decoders have always had it."""
    with_region(tree)
    host, buses = classes.Host.from_sysfs(tree.root), tree.root / "bus/cxl/devices"
    (buses / "region0/mode").unlink()
    operations = classes.by_name("cxl-memory")
    assert operations.current_users(host, card_of(tree)) == ()
    for decoder in buses.glob("decoder*/dpa_size"):
        (decoder.parent / "mode").write_text("pmem\n")
    (user,) = operations.current_users(host, card_of(tree))
    assert user.startswith("region0 holds persistent memory")
    assert region_steps.towards_rest(read_layout(tree)) is None


def test_an_empty_region_of_persistent_memory_is_not_filled(tree):
    region = with_region(tree)
    for name, content in {"commit": "0", "target0": "", "mode": "ram"}.items():
        (region / name).write_text(f"{content}\n")
    for decoder in region.parent.glob("decoder*/region"):
        decoder.write_text("\n")
    assert read_layout(tree).empty.name == "region0"
    (region / "mode").write_text("pmem\n")
    assert read_layout(tree).empty is None


def test_a_block_that_a_region_has_in_part_counts(tree):
    (with_region(tree) / "size").write_text("0x18000000\n")
    (region,) = read_layout(tree).regions
    assert len(region.blocks) == 2


@pytest.mark.parametrize("size", ["", "0", "nonsense"])
def test_without_a_size_of_blocks_there_are_none(tree, size):
    with_region(tree)
    (tree.root / "devices/system/memory/block_size_bytes").write_text(size)
    (region,) = read_layout(tree).regions
    assert region.blocks == ()


def test_a_card_without_a_memory_device_has_no_regions(tree):
    tree.attach(1, MockDevice(device_class=DeviceClass.GPU, vendor=1, device=2))
    host = classes.Host.from_sysfs(tree.root)
    assert read_layout(tree) == region_steps.Layout()
    assert classes.by_name("cxl-memory").pending_quiesce_step(host, card_of(tree)) is None


def test_an_open_dax_device_is_a_user(tree, tmp_path):
    with_region(tree)
    host = classes.Host.from_sysfs(tree.root)
    dax = tree.root / "bus/dax/devices/dax0.0/uevent"
    dax.write_text(dax.read_text().replace("MAJOR=252", "MAJOR=1").replace("MINOR=0", "MINOR=3"))
    folder = tmp_path / "proc/12/fd"
    folder.mkdir(parents=True)
    (folder / "4").symlink_to("/dev/null")
    (user,) = classes.by_name("cxl-memory").current_users(host, card_of(tree))
    assert user == "held by pid 12 (?), /dev/dax0.0"


def test_a_recorded_device_of_persistent_memory_is_ready_as_it_is(tmp_path):
    """Linux 6.1 shows no volatile memory, and makes no regions of it."""
    recording = Path(__file__).parents[4] / "cases/kernels/kernel-6.1-qemu/sysfs-3-cxl-powered.json.gz"
    load_recording(recording, tmp_path / "sys")
    host = classes.Host.from_sysfs(tmp_path / "sys")
    card = model.Card(functions=(reader.read_function(host.sysfs, "0000:0d:00.0"),))
    seen = reading.read_layout(host, card)
    assert (seen.memdev, seen.ram_bytes, seen.decoders) == ("mem0", 0, ("decoder2.0",))
    assert seen.window == region_steps.Window(
        name="decoder0.0", granularity_bytes=256, makes_ram=False, bridges=("ACPI0016:00",)
    )
    assert region_steps.towards_ready(seen) is None
    assert "6.3" in region_steps.towards_ready(msgspec.structs.replace(seen, ram_bytes=1)).why
