"""Several memory devices as one region: by plan, and on a mocked host, from nothing and from what a crash left."""

import asyncio
import contextlib
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import parameters
from drawbar.driver.node import classes, errors, kernel
from drawbar.driver.node.classes.cxl_memory import interleaving, reading, region_steps
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

GIB = 1 << 30
WINDOW = region_steps.Window(name="decoder0.0", granularity_bytes=256, makes_ram=True, bridges=("hb0",))
CROSS = region_steps.Window(
    name="decoder0.1", granularity_bytes=1024, makes_ram=True, ways=2, bridges=("hb0", "hb1")
)


def member(number, *, bridge="hb0", route=("port1",), **changes):
    """Return the layout of a memory device with all its memory in its decoder."""
    fields = {
        "memdev": f"mem{number}",
        "ram_bytes": GIB,
        "decoder": region_steps.Decoder(name=f"decoder{number}.0", mode="ram", dpa_bytes=GIB),
        "decoders": (f"decoder{number}.0", f"decoder{number}.1"),
        "window": WINDOW,
        "bridge": bridge,
        "route": (*route, f"endpoint{number}"),
    }
    return region_steps.Layout(**fields | changes)


PAIR = (member(2), member(3))
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
SHAPED = msgspec.structs.replace(EMPTY, ways=2, granularity_bytes=256, size_bytes=2 * GIB, positions=("", ""))
WHOLE = msgspec.structs.replace(
    SHAPED,
    positions=("decoder2.0", "decoder3.0"),
    committed=True,
    driver="cxl_region",
    dax=(region_steps.Dax(name="dax0.0", driver="device_dax"),),
)


def ensemble(*members, windows=(WINDOW,), empty=None):
    return interleaving.Ensemble(
        members=members or PAIR, windows=windows, empties=(empty,) if empty is not None else ()
    )


def with_empty(**changes):
    return ensemble(empty=msgspec.structs.replace(EMPTY, **changes))


def make_pair_with_region(which, region=WHOLE, **changes):
    """Return the pair, with a region on those of its members."""
    fresh = msgspec.structs.replace(region, **changes)
    return ensemble(
        *(
            msgspec.structs.replace(layout, regions=(fresh,)) if number in which else layout
            for number, layout in enumerate(PAIR)
        )
    )


def set_region(attribute, value):
    return region_steps.SetRegion(region="region0", attribute=attribute, value=value)


def set_target(position, decoder):
    return region_steps.SetTarget(region="region0", position=position, decoder=decoder)


DELETE = region_steps.DeleteRegion(window="decoder0.0", region="region0")
BARE = member(3, decoder=region_steps.Decoder(name="decoder3.0", mode="none", dpa_bytes=0))
FORWARD = {
    "a decoder without a mode": (
        ensemble(PAIR[0], BARE),
        region_steps.SetDecoder(decoder="decoder3.0", attribute="mode", value="ram"),
    ),
    "no region": (ensemble(), region_steps.CreateRegion(window="decoder0.0")),
    "no granularity": (with_empty(), set_region("interleave_granularity", 256)),
    "no ways": (with_empty(granularity_bytes=256), set_region("interleave_ways", 2)),
    "other ways": (with_empty(granularity_bytes=256, ways=1), set_region("interleave_ways", 2)),
    "no size": (with_empty(granularity_bytes=256, ways=2), set_region("size", 2 * GIB)),
    "no targets": (
        with_empty(granularity_bytes=256, ways=2, size_bytes=2 * GIB, positions=("", "")),
        set_target(0, "decoder2.0"),
    ),
    "one target": (
        make_pair_with_region({0}, SHAPED, positions=("decoder2.0", "")),
        set_target(1, "decoder3.0"),
    ),
    "the other target alone": (
        make_pair_with_region({1}, SHAPED, positions=("", "decoder3.0")),
        set_target(0, "decoder2.0"),
    ),
    "not committed": (
        make_pair_with_region({0, 1}, committed=False, driver=None, dax=()),
        set_region("commit", 1),
    ),
    "not bound": (
        make_pair_with_region({0, 1}, driver=None, dax=()),
        region_steps.BindRegion(region="region0"),
    ),
    "no driver": (
        make_pair_with_region({0, 1}, dax=(region_steps.Dax(name="dax0.0", driver=None),)),
        region_steps.BindDax(dax="dax0.0", driver="device_dax"),
    ),
    "there": (make_pair_with_region({0, 1}), None),
    "there in another order": (make_pair_with_region({0, 1}, positions=("decoder3.0", "decoder2.0")), None),
    "a region of one device that a crash left": (
        make_pair_with_region({0}, SHAPED, ways=1, size_bytes=GIB, positions=("decoder2.0",)),
        DELETE,
    ),
    "a region of one device, as one without a claim has": (
        make_pair_with_region({0}, ways=1, positions=("decoder2.0",)),
        region_steps.UnbindDax(dax="dax0.0", driver="device_dax"),
    ),
    "a region of one device whose memory is online": (
        make_pair_with_region(
            {0},
            ways=1,
            positions=("decoder2.0",),
            blocks=(region_steps.Block(name="memory46", online=True, zone="Movable"),),
        ),
        region_steps.SetMemory(blocks=("memory46",), state="offline"),
    ),
    "a region of one device without a driver": (
        make_pair_with_region({0}, ways=1, positions=("decoder2.0",), driver=None, dax=()),
        set_region("commit", 0),
    ),
    "targets in another order, not committed": (
        make_pair_with_region({0, 1}, SHAPED, positions=("decoder3.0", "decoder2.0")),
        DELETE,
    ),
    "an empty region with another size": (
        with_empty(granularity_bytes=256, ways=1, size_bytes=GIB, positions=("",)),
        DELETE,
    ),
}


@pytest.mark.parametrize(("seen", "step"), FORWARD.values(), ids=FORWARD.keys())
def test_the_next_step_towards_one_region(seen, step):
    assert interleaving.towards_interleaved(seen) == step


def test_a_region_of_another_granularity_than_is_asked_for_is_taken_down():
    step = interleaving.towards_interleaved(make_pair_with_region({0, 1}), granularity_bytes=512)
    assert step == region_steps.UnbindDax(dax="dax0.0", driver="device_dax")
    assert interleaving.towards_interleaved(make_pair_with_region({0, 1}), granularity_bytes=256) is None


def test_the_granularity_that_is_asked_for_is_set_before_the_size():
    seen = with_empty(ways=2, granularity_bytes=256)
    assert interleaving.towards_interleaved(seen, granularity_bytes=4096) == set_region(
        "interleave_granularity", 4096
    )


IMPOSSIBLE = {
    "members of two sizes": (
        ensemble(PAIR[0], member(3, ram_bytes=2 * GIB)),
        "mem2 has 1073741824 bytes of volatile memory and mem3 2147483648, and only devices of one size",
    ),
    "persistent memory alone": (ensemble(PAIR[0], member(3, ram_bytes=0)), "mem3 has no volatile memory"),
    "five": (
        ensemble(*(member(number) for number in range(2, 7))),
        "the kernel does not interleave 5 devices: change the composite",
    ),
    "three in a window of one host bridge": (
        ensemble(*(member(number) for number in range(2, 5))),
        "decoder0.0 leads to 1 host bridges, and takes 1, 2, 4, 8 or 16 devices at each, not 3 in all",
    ),
    "behind two host bridges of which the window has one": (
        ensemble(PAIR[0], member(3, bridge="hb1")),
        "decoder0.0 leads to hb0, and takes 2 of the devices at each (mem2 at hb0, mem3 at hb1)",
    ),
    "both behind one of the window's host bridges": (
        ensemble(windows=(CROSS,)),
        "decoder0.1 leads to hb0, hb1, and takes 1 of the devices at each",
    ),
    "one directly, three behind a switch": (
        ensemble(*(member(number, route=("port1", "port9")[: 1 + (number > 2)]) for number in range(2, 6))),
        "not spread alike over the ports above them (1 below endpoint2, 3 below port9)",
    ),
    "no window": (ensemble(windows=()), "no CXL memory window above them"),
    "a persistent region": (
        make_pair_with_region({1}, mode="pmem"),
        "region0 holds persistent memory of these devices",
    ),
    "a region with another device": (
        make_pair_with_region({1}, positions=("decoder3.0", "decoder9.0")),
        "region0 is interleaved with devices that are not of the composite (decoder9.0): destroy it first",
    ),
}


@pytest.mark.parametrize(("seen", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_an_impossible_region_is_reported_with_the_reason(seen, why):
    problem = interleaving.towards_interleaved(seen)
    assert isinstance(problem, interleaving.CannotInterleave)
    assert why in problem.why


def test_a_granularity_that_is_not_the_windows_is_refused_where_that_is_interleaved():
    spread = (member(2), member(3, bridge="hb1"))
    problem = interleaving.towards_interleaved(ensemble(*spread, windows=(CROSS,)), granularity_bytes=256)
    assert "alternates between its host bridges after 1024 bytes" in problem.why
    created = interleaving.towards_interleaved(ensemble(*spread, windows=(CROSS,)), granularity_bytes=1024)
    assert created == region_steps.CreateRegion(window="decoder0.1")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (ensemble(region_steps.Layout(), PAIR[1]), "no CXL memory device"),
        (ensemble(PAIR[0], member(3, decoder=None)), "mem3 has no free decoder"),
        (
            ensemble(windows=(msgspec.structs.replace(WINDOW, makes_ram=False),)),
            "run Linux 6.3 or newer",
        ),
        (with_empty(granularity_bytes=256, ways=2, size_bytes=2 * GIB), "no place"),
        (make_pair_with_region({0, 1}, dax=()), "dax_cxl"),
    ],
)
def test_a_region_waits_for_expected_members(seen, why):
    missing = interleaving.towards_interleaved(seen)
    assert isinstance(missing, region_steps.Missing)
    assert why in missing.why


def order(members, window=WINDOW):
    """Return the members' decoders in the order of their positions in a region made of them."""
    seen = ensemble(*members, windows=(window,))
    targets = []
    empty = msgspec.structs.replace(
        EMPTY,
        window=window.name,
        ways=len(members),
        granularity_bytes=window.granularity_bytes,
        size_bytes=len(members) * GIB,
        positions=("",) * len(members),
    )
    for _ in members:
        step = interleaving.towards_interleaved(msgspec.structs.replace(seen, empties=(empty,)))
        assert step.position == len(targets)
        targets.append(step.decoder)
        positions = (*targets, *("",) * (len(members) - len(targets)))
        empty = msgspec.structs.replace(empty, positions=positions)
    return targets


def test_positions_alternate_between_host_bridges_and_then_between_the_ports_below_them():
    members = [
        member(2, bridge="hb0", route=("port1", "port3")),
        member(3, bridge="hb0", route=("port1", "port3")),
        member(4, bridge="hb0", route=("port1", "port4")),
        member(5, bridge="hb0", route=("port1", "port4")),
        *(member(number, bridge="hb1", route=("port2",)) for number in range(6, 10)),
    ]
    wanted = [2, 6, 4, 7, 3, 8, 5, 9]
    assert order(members, CROSS) == [f"decoder{number}.0" for number in wanted]


@given(shuffled=st.permutations(range(2, 10)), ports=st.sampled_from([1, 2, 4]))
def test_each_port_has_every_nth_position_for_any_member_order(shuffled, ports):
    """The kernel compares the ports of targets `ports` positions apart (`check_last_peer`)."""
    port_of = {f"decoder{number}.0": number % ports for number in shuffled}
    members = [member(number, route=("port1", f"port{20 + number % ports}")) for number in shuffled]
    targets = order(members)
    for position in range(ports, len(targets)):
        assert port_of[targets[position]] == port_of[targets[position - ports]]
    assert len({port_of[target] for target in targets[:ports]}) == ports


ATTRIBUTES = {"interleave_ways": "ways", "interleave_granularity": "granularity_bytes", "size": "size_bytes"}


def as_seen(regions):
    """Return the pair with these regions on its members."""
    members = (
        msgspec.structs.replace(
            layout, regions=tuple(each for each in regions if {*each.targets} & {*layout.decoders})
        )
        for layout in PAIR
    )
    empty = next((each for each in regions if not each.targets and not each.committed), None)
    return ensemble(*members, empty=empty)


def play(regions, step):
    """Carry out a step as a kernel does; assert that the kernel would not refuse it."""
    match step:
        case region_steps.CreateRegion():
            regions.append(EMPTY)
            return
        case region_steps.DeleteRegion():
            assert not regions[0].committed
            regions.clear()
            return
        case region_steps.SetRegion(attribute="commit", value=0):
            changes = {"committed": False, "driver": None, "dax": ()}
        case region_steps.SetRegion(attribute="commit"):
            assert sorted(regions[0].positions) == ["decoder2.0", "decoder3.0"]
            changes = {"committed": True}
        case region_steps.SetRegion(attribute=attribute, value=value):
            assert not regions[0].size_bytes, "nothing of it changes once it has a size"
            changes = {ATTRIBUTES[attribute]: value}
            changes |= {"positions": ("",) * value} if attribute == "interleave_ways" else {}
        case region_steps.SetTarget(position=position, decoder=decoder):
            assert decoder not in regions[0].targets
            placed = list(regions[0].positions)
            placed[position] = decoder
            changes = {"positions": tuple(placed)}
        case region_steps.BindRegion():
            changes = {"driver": "cxl_region", "dax": (region_steps.Dax(name="dax0.0", driver=None),)}
        case region_steps.BindDax(driver=driver):
            changes = {"dax": (region_steps.Dax(name="dax0.0", driver=driver),)}
    regions[0] = msgspec.structs.replace(regions[0], **changes)


@given(
    ways=st.sampled_from([0, 1, 2, 4]),
    granularity=st.sampled_from([0, 256, 1024]),
    size=st.sampled_from([0, GIB, 2 * GIB]),
    first=st.sampled_from(["", "decoder2.0", "decoder3.0"]),
    second=st.sampled_from(["", "decoder2.0", "decoder3.0"]),
    committed=st.booleans(),
)
def test_the_plan_reaches_one_region_from_any_state_after_a_crash(
    ways, granularity, size, first, second, committed
):
    """A short model of the kernel carries out the plan, and refuses the same steps as the real kernel."""
    positions = (first, second)[:ways] + ("",) * (ways - 2)
    if not size or (first and first == second):
        positions = ("",) * ways
    committed &= bool(positions) and all(positions)
    regions = [
        msgspec.structs.replace(
            EMPTY,
            ways=ways,
            granularity_bytes=granularity,
            size_bytes=size if ways and granularity else 0,
            positions=positions if ways and granularity else ("",) * ways,
            committed=committed and bool(granularity and ways == 2 and size),
        )
    ]
    for _ in range(30):
        step = interleaving.towards_interleaved(as_seen(regions))
        if step is None:
            break
        play(regions, step)
    (region,) = regions
    assert step is None
    assert region.committed
    assert {*region.targets} == {"decoder2.0", "decoder3.0"}
    assert region.dax[0].driver == "device_dax"


# --- on a mocked host ---

SIZE = 1 << 29
INTERLEAVED = parameters.DeviceParameters(memory=parameters.Memory(interleave=True))
SYSTEM_RAM = parameters.DeviceParameters(memory=parameters.Memory(interleave=True, mode="system-ram"))


def memory(serial, size=SIZE):
    return MockDevice(
        device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial=serial, memory_bytes=size
    )


@pytest.fixture
def tree(tmp_path):
    return SysfsTree.create(tmp_path / "sys", slots=4)


async def put_in(tree, count, sizes=None):
    for slot in range(1, count + 1):
        await asyncio.to_thread(tree.attach, slot, memory(f"466{slot}", (sizes or {}).get(slot, SIZE)))


def cards_of(tree, slots):
    return [model.Card(functions=(reader.read_function(tree.root, tree.address(slot)),)) for slot in slots]


def member_operations(tree, slot, slots):
    """Return the operations on the member in `slot`, one of those in `slots`, and the member's card."""
    cards = dict(zip(slots, cards_of(tree, slots), strict=True))
    companions = [card for number, card in cards.items() if number != slot]
    return classes.by_name("cxl-memory").for_composite(companions), cards[slot]


async def initialise_memory(asked, tree, until, slot, slots, wanted=INTERLEAVED):
    """Make the member ready; try again after each refusal of the kernel, as the daemon does."""

    async def attempt():
        member, card = member_operations(tree, slot, slots)
        try:
            return await member.initialise(asked, card, wanted)
        except errors.KernelRefused as refused:
            return str(refused)

    return await until(attempt, lambda missing: missing is None)


async def release(asked, tree, until, slot, slots):
    """Bring the member to rest."""
    host = classes.Host.from_sysfs(tree.root)

    async def pending_step():
        member, card = member_operations(tree, slot, slots)
        left = member.pending_quiesce_step(host, card)
        if left is not None:
            with contextlib.suppress(errors.KernelRefused):
                await member.quiesce(asked, host, card)
        return left

    return await until(pending_step, lambda left: left is None)


def regions(tree):
    return reader.read(tree.root).regions


def blocks(tree):
    return list((tree.root / "devices/system/memory").glob("memory[0-9]*"))


@pytest.mark.parametrize("count", [2, 4])
async def test_all_members_become_one_region_in_any_order(tree, until, count):
    asked, slots = kernel.Kernel(tree.root), range(1, count + 1)
    async with tree.reacting():
        await put_in(tree, count)
        await asyncio.gather(*(initialise_memory(asked, tree, until, slot, slots) for slot in slots))
        (region,) = regions(tree)
        assert (region.interleave_ways, region.size_bytes, region.committed) == (count, count * SIZE, True)
        assert len(set(region.targets)) == count
        paths = []
        for slot in slots:
            member, card = member_operations(tree, slot, slots)
            edits = member.edits(card, classes.Host.from_sysfs(tree.root))
            paths += [node.path for node in edits.device_nodes]
        assert paths == ["/dev/dax0.0"], "one device of all gives it, once"
        await asyncio.gather(*(release(asked, tree, until, slot, slots) for slot in slots))
        assert regions(tree) == ()


async def test_memory_of_the_node_is_offline_before_the_region_goes_whichever_member_is_first(tree, until):
    asked, slots = kernel.Kernel(tree.root), (1, 2)
    async with tree.reacting():
        await put_in(tree, 2)
        await initialise_memory(asked, tree, until, 1, slots, SYSTEM_RAM)
        await initialise_memory(asked, tree, until, 2, slots, SYSTEM_RAM)
        assert {(path / "valid_zones").read_text() for path in blocks(tree)} == {"Movable\n"}
        assert len(blocks(tree)) == 4
        await release(asked, tree, until, 2, slots)
        assert (regions(tree), blocks(tree)) == ((), [])
        await release(asked, tree, until, 1, slots)


async def test_a_region_over_more_than_the_composite_is_left_alone_on_release(tree):
    await put_in(tree, 3)
    tree.create_region([1, 2])
    host = classes.Host.from_sysfs(tree.root)
    member, card = member_operations(tree, 1, (1, 3))
    (user,) = member.current_users(host, card)
    assert user.startswith("region0 is interleaved with other devices (decoder3.0)")
    assert member.pending_quiesce_step(host, card) is None
    member, card = member_operations(tree, 1, (1, 2))
    assert member.current_users(host, card) == ()
    assert member.pending_quiesce_step(host, card) == "4 memory blocks are online"


async def test_from_every_step_at_which_the_daemon_may_die_the_next_one_goes_on(tree, until):
    slots = (1, 2)
    async with tree.reacting():
        await put_in(tree, 2)
        for steps in itertools.count(1, 3):
            asked = _Dying(tree.root, steps)
            try:
                for slot in slots:
                    await initialise_memory(asked, tree, until, slot, slots, SYSTEM_RAM)
                for slot in slots:
                    await release(asked, tree, until, slot, slots)
            except _Died:
                pass
            else:
                break
            fresh = kernel.Kernel(tree.root)
            if steps % 2:
                for slot in slots:
                    await initialise_memory(fresh, tree, until, slot, slots, SYSTEM_RAM)
                (region,) = regions(tree)
                assert (region.interleave_ways, region.committed) == (2, True)
            for slot in reversed(slots):
                await release(fresh, tree, until, slot, slots)
            # One without any target belongs to no device, and the next device uses it.
            assert ([region for region in regions(tree) if region.targets], blocks(tree)) == ([], [])
    assert steps > 20, "it dies at every third step once"


class _Died(Exception):
    """The daemon was killed."""


class _Dying(kernel.Kernel):
    """A kernel whose daemon is killed before the nth thing that it asks for, looks included."""

    def __init__(self, sysfs, steps):
        super().__init__(sysfs)
        self._left = steps

    async def run(self, target, what, function):
        if not what.startswith("to show the memory of"):
            self._left -= 1
            if self._left <= 0:
                raise _Died
        return await super().run(target, what, function)


async def test_the_remaining_member_is_released_and_used_again(tree, until):
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        await put_in(tree, 2)
        for slot in (1, 2):
            await initialise_memory(asked, tree, until, slot, (1, 2))
        await asyncio.to_thread(tree.surprise_remove, 2)
        (region,) = regions(tree)
        assert (region.committed, region.targets) == (False, ("decoder2.0",))
        await asyncio.to_thread(tree.attach, 2, memory("4662"))
        for slot in (1, 2):
            await initialise_memory(asked, tree, until, slot, (1, 2))
        assert regions(tree)[0].targets == ("decoder2.0", "decoder3.0")
        await asyncio.to_thread(tree.surprise_remove, 2)
        await release(asked, tree, until, 1, (1,))
        assert regions(tree) == ()
        await initialise_memory(asked, tree, until, 1, (1,), parameters.NOTHING)
        assert regions(tree)[0].interleave_ways == 1


async def test_the_remains_of_a_pulled_member_are_replaced_by_a_region(tree, until):
    asked = kernel.Kernel(tree.root)
    async with tree.reacting():
        await put_in(tree, 2)
        await initialise_memory(asked, tree, until, 1, (1, 2))
        await asyncio.to_thread(tree.surprise_remove, 2)
        await initialise_memory(asked, tree, until, 1, (1,), parameters.NOTHING)
        (region,) = regions(tree)
        assert (region.interleave_ways, region.committed, region.size_bytes) == (1, True, SIZE)


async def test_members_of_two_sizes_are_refused(tree):
    await put_in(tree, 2, sizes={2: 2 * SIZE})
    member, card = member_operations(tree, 1, (1, 2))
    with pytest.raises(errors.CannotInterleave, match="only devices of one size are interleaved"):
        await member.initialise(kernel.Kernel(tree.root), card, INTERLEAVED)
    assert regions(tree) == ()


def test_a_window_that_is_interleaved_itself_is_read_with_its_host_bridges(tree):
    tree.attach(1, memory("4661"))
    root = tree.root / "devices/platform/ACPI0017:00/root0"
    (root / "decoder0.0/interleave_ways").write_text("2\n")
    (root / "decoder0.0/target_list").write_text("0,7\n")
    (root / "dport7").symlink_to("../../../LNXSYSTM:00/LNXSYBUS:00/ACPI0016:01")
    seen = reading.read_ensemble(classes.Host.from_sysfs(tree.root), cards_of(tree, [1]))
    assert seen.windows == (
        region_steps.Window(
            name="decoder0.0",
            granularity_bytes=256,
            makes_ram=True,
            ways=2,
            bridges=("ACPI0016:00", "ACPI0016:01"),
        ),
    )
    assert seen.members[0].window is None, "one device by itself has no region there"
    assert seen.members[0].route == ("port1", "endpoint2")
