"""The node's devices as events change them: one object at a time, storms as one, what was missed found later."""

import asyncio
import contextlib
import os
import shutil

import pytest
from tests.scenes import handmade, waiting

from drawbar.driver import containment
from drawbar.driver.node import errors, uevents
from drawbar.driver.node.discovery import devices, reader
from drawbar.driver.node.inventory.model import Silence
from drawbar.driver.node.uevents import sources
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind
from drawbar.mocks.sysfs import Arrival, MockDevice, SysfsTree, build

NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA80A, serial="S4EVNX0")
GPU = MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="48-b0-2d-00-00-00-00-01")
PORT, ADDRESS = "0000:00:03.0", "0000:01:00.0"
QUICK = devices.Tracking(coalesce_seconds=0, audit_seconds=0)


@contextlib.asynccontextmanager
async def following(tmp_path, settings=QUICK, **options):
    """Yield a mocked host, its devices as they are followed, and every change that was reported."""
    tree = SysfsTree.create(tmp_path / "sys", slots=2, uevent_socket=tmp_path / "uevents")
    tracker = devices.Devices(tree.root, settings=settings, **options)
    reported = []
    async with uevents.listening(f"unix:{tmp_path / 'uevents'}") as source, asyncio.TaskGroup() as tasks:
        await tracker.read()
        tracker.subscribe(reported.append)
        task = tasks.create_task(tracker.follow(source))
        yield tree, tracker, reported
        task.cancel()


async def test_a_hot_plugged_device_is_known_with_its_card_and_slot(tmp_path):
    async with following(tmp_path) as (tree, tracker, reported):
        await asyncio.to_thread(tree.attach, 1, NVME)
        await waiting.eventually(lambda: tracker.inventory == reader.read(tree.root))
        card = tracker.card_at(ADDRESS)
        assert (card.first.serial, card.first.driver, len(card.device_nodes)) == ("S4EVNX0", "nvme", 3)
        assert (card.slot.name, card.slot.present) == ("1", True)
        assert tracker.cards[-1] == card
        await waiting.eventually(lambda: any(ADDRESS in changes.functions for changes in reported))
        await waiting.eventually(lambda: any("1" in changes.slots for changes in reported))
        await asyncio.to_thread(tree.detach, 1)
        await waiting.eventually(lambda: tracker.inventory == reader.read(tree.root))
        assert tracker.card_at(ADDRESS) is None
        assert tracker.inventory.slots[0].present is False


async def test_an_event_makes_nothing_else_be_read(tmp_path):
    async with following(tmp_path) as (tree, tracker, reported):
        shutil.rmtree(tree.root / "devices/pci0000:00/0000:00:04.0")  # another port, and no event reports it
        await asyncio.to_thread(tree.attach, 1, GPU)
        await waiting.eventually(lambda: (card := tracker.card_at(ADDRESS)) and card.device_nodes)
        assert tracker.card_at("0000:00:04.0") is not None
        assert all("0000:00:04.0" not in changes.functions for changes in reported)


async def test_a_storm_of_events_of_one_device_is_few_readings(tmp_path):
    path = "/devices/pci0000:00/0000:00:03.0"
    event = uevents.parse(f"change@{path}\0SUBSYSTEM=pci\0".encode())
    source = sources.Backlog(10_000)
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tracker = devices.Devices(tree.root, settings=devices.Tracking(coalesce_seconds=0.05))
    await tracker.read()
    before = tracker.readings
    for _ in range(5_000):
        source.put(event)
    source.close()
    await tracker.follow(source)
    assert 1 <= tracker.readings - before <= 4


async def test_a_change_after_the_last_event_is_found_once_settled(tmp_path):
    """The change comes between the reading after the only event and the reading once it has settled."""
    source = sources.Backlog(16)
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tracker = devices.Devices(tree.root, settings=QUICK, pauses_seconds=(0.05,))
    await tracker.read()
    tree.attach(1, NVME)
    powered = []

    def note(_):
        powered.append(tracker.inventory.slots[0].powered)
        if powered == [True]:
            (tree.root / "bus/pci/slots/1/power").write_text("0\n")

    tracker.subscribe(note)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(tracker.follow(source))
        source.put(uevents.parse(f"add@/devices/pci0000:00/{PORT}/{ADDRESS}\0SUBSYSTEM=pci\0".encode()))
        await waiting.eventually(lambda: len(powered) > 1)
        assert powered == [True, False]
        assert tracker.card_at(ADDRESS).slot.powered is False
        following.cancel()


async def test_a_slot_is_read_when_asked_for_since_a_card_without_power_has_no_event(tmp_path):
    async with following(tmp_path) as (tree, tracker, reported):
        await asyncio.to_thread(tree.attach, 2, NVME, arrival=Arrival.UNPOWERED)
        assert tracker.inventory.slots[1].present is False
        slot = await tracker.refresh_slot("2")
        assert (slot.present, slot.powered) == (True, False)
        assert tracker.inventory.slots[1] == slot
        assert [changes.slots for changes in reported] == [frozenset({"2"})]
        assert await tracker.refresh_slot("absent") is None


async def test_one_function_is_read_when_asked_for(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    tracker = devices.Devices(tree.root)
    await tracker.read()
    tree.attach(1, NVME)
    card = await tracker.refresh(ADDRESS)
    assert card.first.serial == "S4EVNX0"
    tree.detach(1)
    assert await tracker.refresh(ADDRESS) is None


async def test_slots_added_with_a_switch_contain_the_cards_below(tmp_path):
    """A hot-plug driver announces a slot after the function of its port."""
    source = sources.Backlog(16)
    tree = SysfsTree.create(tmp_path / "sys")
    tree.attach(1, NVME)
    slot = tree.root / "bus/pci/slots/1"
    slot.rename(tmp_path / "slot")
    tracker = devices.Devices(tree.root, settings=QUICK)
    await tracker.read()
    assert tracker.card_at(ADDRESS).slot is None
    (tmp_path / "slot").rename(slot)
    source.put(uevents.parse(b"add@/bus/pci/slots/1\0SUBSYSTEM=slots\0"))
    source.close()
    await tracker.follow(source)
    assert tracker.card_at(ADDRESS).slot.name == "1"
    assert tracker.inventory == reader.read(tree.root)


async def follow_events(tracker, *events):
    """Let the tracker follow these events and nothing more."""
    source = sources.Backlog(64)
    for event in events:
        source.put(uevents.parse(event.encode()))
    source.close()
    await tracker.follow(source)


async def test_the_events_of_a_region_refresh_the_decoders_that_have_none(tmp_path):
    tree = build("cxl-node", tmp_path / "sys")
    tracker = devices.Devices(tree.root, settings=QUICK)
    await tracker.read()
    [region] = tracker.inventory.regions
    reported = []
    tracker.subscribe(reported.append)
    tree.destroy_region(region.name)
    await follow_events(tracker, f"remove@/{region.path}\0", f"remove@/{tracker.inventory.dax[0].path}\0")
    assert tracker.inventory == reader.read(tree.root)
    assert {decoder.region for decoder in tracker.inventory.decoders} == {None}
    # Those whose memory it was are reported.
    used = frozenset().union(*(changes.functions for changes in reported))
    assert len(used) == len(region.targets)
    assert {tracker.card_at(address).device_class.value for address in used} == {"cxl-memory"}
    tree.create_region([1])
    await follow_events(tracker, f"add@/{region.path}\0", f"add@/{region.path}/dax_region0/dax0.0\0")
    assert tracker.inventory == reader.read(tree.root)
    assert tracker.inventory.regions[0].committed


async def test_the_event_of_a_virtual_function_refreshes_the_physical_one(tmp_path):
    tree = build("fpga-node", tmp_path / "sys")
    tracker = devices.Devices(tree.root, settings=QUICK)
    await tracker.read()
    physical = next(each for each in tracker.inventory.functions if each.sriov and each.sriov.num_vfs)
    paths = [tracker.inventory.by_address(each).path for each in physical.sriov.virtual_functions]
    tree.set_vfs(1, 0)
    await follow_events(tracker, *(f"remove@/{path}\0" for path in paths))
    assert tracker.inventory == reader.read(tree.root)
    assert len(tracker.card_at(physical.address).functions) == 1


async def test_the_effects_of_an_event_are_read_after_the_source_ends(tmp_path):
    tree = build("fpga-node", tmp_path / "sys")
    tree.set_vfs(1, 0)
    tree.set_vfs(1, 1)
    tracker = devices.Devices(tree.root, settings=QUICK)
    await tracker.read()
    physical = next(each for each in tracker.inventory.functions if each.sriov and each.sriov.num_vfs)
    [gone] = physical.sriov.virtual_functions
    path = tracker.inventory.by_address(gone).path
    tree.set_vfs(1, 0)

    class Source:
        async def events(self):
            yield uevents.parse(f"remove@/{path}\0".encode())
            # Of the function that the event names, and then of the physical one, which follows from that.
            for _ in range(2):
                before = tracker.readings
                while tracker.readings == before:  # noqa: ASYNC110 - counted, and sent to no subscriber
                    await asyncio.sleep(0)

    async with asyncio.timeout(120):
        await tracker.follow(Source())
    assert tracker.inventory == reader.read(tree.root)


async def test_the_events_of_a_disk_with_several_paths_refresh_all_its_functions(tmp_path):
    tree = build("nvme-node", tmp_path / "sys")
    tracker = devices.Devices(tree.root, settings=QUICK)
    await tracker.read()
    first, second = [card.first for card in tracker.cards if card.first.nvme][:2]
    subsystem = tree.root / "devices/virtual/nvme-subsystem/nvme-subsys4"
    head = subsystem / "nvme4n1"
    head.mkdir(parents=True)
    (head / "uevent").write_text("MAJOR=259\nMINOR=9\nDEVNAME=nvme4n1\nDEVTYPE=disk\n")
    (head / "subsystem").symlink_to(tree.root / "class/block")
    (tree.root / "class/block/nvme4n1").symlink_to(head)
    for number, each in enumerate((first, second)):
        name = each.nvme[0].name
        (subsystem / name).symlink_to(f"../../../{each.path.removeprefix('devices/')}/nvme/{name}")
        (tree.root / each.path / "nvme" / name / f"nvme4c{number}n1").mkdir()
    await follow_events(tracker, "add@/devices/virtual/nvme-subsystem/nvme-subsys4/nvme4n1\0")
    for each in (first, second):
        nodes = [node.path for node in tracker.card_at(each.address).device_nodes]
        assert "/dev/nvme4n1" in nodes
    assert tracker.inventory == reader.read(tree.root)


async def test_an_audit_finds_and_counts_changes_without_events(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    tracker = devices.Devices(tree.root, settings=devices.Tracking(audit_share=1))
    await tracker.read()
    assert not await tracker.audit()
    assert (tracker.audits, tracker.missed) == (1, 0)
    tree.attach(1, NVME)
    changes = await tracker.audit()
    assert changes.functions >= {ADDRESS}
    assert changes.slots == {"1"}
    assert (tracker.audits, tracker.missed) == (2, len(changes.functions) + 1)
    assert tracker.inventory == reader.read(tree.root)
    tree.detach(1)
    await tracker.audit()
    assert tracker.inventory == reader.read(tree.root)


async def test_audits_are_made_by_themselves(tmp_path, caplog):
    settings = devices.Tracking(audit_seconds=0.05, audit_share=1)
    async with following(tmp_path, settings) as (tree, tracker, _):
        (tree.root / f"bus/pci/devices/{PORT}/numa_node").write_text("1\n")
        await waiting.eventually(lambda: tracker.inventory.by_address(PORT).numa_node == 1)
        (tree.root / "bus").rename(tree.root / "gone")  # outlives a tree that is away for a while
        await waiting.eventually(lambda: any(record.levelname == "WARNING" for record in caplog.records))
        audits = tracker.audits
        (tree.root / "gone").rename(tree.root / "bus")
        await waiting.eventually(lambda: tracker.audits > audits + 1)


async def test_an_ended_subscription_receives_nothing(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    reported = []
    tracker = devices.Devices(tree.root, lambda: reported.append("all"))
    end = tracker.subscribe(lambda changes: reported.append("one"))
    await tracker.read()
    end()
    tree.attach(1, NVME)
    await tracker.read()
    await tracker.read()
    assert reported == ["all", "one", "all"]


async def test_a_tree_that_is_not_there_is_one_clear_error(tmp_path):
    with pytest.raises(errors.SysfsError, match="is not a sysfs tree"):
        await devices.Devices(tmp_path / "absent").read()


def test_devices_settle_once_for_every_pause_after_their_last_event():
    waiting = devices.Settling((1.0, 5.0))
    assert waiting.next() is None
    waiting.touch(["a", "b"], 10.0)
    waiting.touch(["a"], 10.5)
    assert waiting.next() == 11.0
    assert waiting.due(10.9) == frozenset()
    assert waiting.due(11.0) == {"b"}
    assert waiting.due(12.0) == {"a"}
    assert waiting.due(15.4) == {"b"}
    assert waiting.next() == 15.5
    assert waiting.due(20.0) == {"a"}
    assert waiting.next() is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"coalesce_seconds": -1.0}, "coalesce_seconds"),
        ({"coalesce_seconds": float("nan")}, "coalesce_seconds"),
        ({"audit_seconds": 0.5}, "audit_seconds"),
        ({"audit_seconds": 1e9}, "audit_seconds"),
        ({"audit_share": 0.0}, "audit_share"),
        ({"audit_share": 1.5}, "audit_share"),
    ],
)
def test_settings_that_cannot_be_are_named(wrong, named):
    [problem] = devices.problems(devices.Tracking(**wrong))
    assert problem.startswith(named)


def test_the_usual_settings_are_right():
    assert devices.problems(devices.Tracking()) == []
    assert devices.problems(devices.Tracking(audit_seconds=0)) == []


@pytest.mark.defects
async def test_a_subscriber_that_raises_keeps_no_change_from_the_others_and_gets_it_later(tmp_path):
    contained, broken, late = containment.Containment(), True, []

    def subscriber(changes):
        if broken:
            raise KeyError
        late.append(changes)

    async with following(tmp_path, contained=contained) as (tree, tracker, reported):
        tracker._subscribers.insert(0, subscriber)
        await asyncio.to_thread(tree.attach, 1, NVME)
        await waiting.eventually(lambda: any(ADDRESS in changes.functions for changes in reported))
        broken = False
        await waiting.eventually(lambda: any(ADDRESS in changes.functions for changes in late))
        assert contained.count_failing() == {"hardware-changes": 0.0}


@pytest.mark.defects
async def test_the_inventory_is_read_and_followed_again_after_an_unexpected_error(tmp_path, monkeypatch):
    contained, failures = containment.Containment(), [KeyError("a defect")]
    monkeypatch.setattr(containment, "PAUSE_FIRST_SECONDS", 0.01)
    tree = SysfsTree.create(tmp_path / "sys", slots=2, uevent_socket=tmp_path / "uevents")
    tracker = devices.Devices(tree.root, settings=QUICK, contained=contained)

    class Source:
        """The events of another source, which fails once."""

        def __init__(self, inner):
            self._inner = inner

        async def events(self):
            async for event in self._inner.events():
                if failures:
                    raise failures.pop()
                yield event

    async with uevents.listening(f"unix:{tmp_path / 'uevents'}") as source, asyncio.TaskGroup() as tasks:
        await tracker.read()
        inner = Source(source)
        kept = contained.start(tasks, "uevents", lambda: tracker.follow(inner))
        await asyncio.to_thread(tree.attach, 1, NVME)
        await waiting.eventually(lambda: tracker.inventory == reader.read(tree.root))
        await waiting.eventually(lambda: tracker.card_at(ADDRESS))
        assert contained.counts()["uevents"] == 1.0
        kept.cancel()


NIC_ADDRESS = "0000:ca:00.0"


@contextlib.asynccontextmanager
async def followed_by_hand(tmp_path):
    """Yield a tree that is made by hand, its devices as they are followed, and where its events go."""
    tree = handmade.Tree(tmp_path)
    (tree.root / "bus/pci/devices").mkdir(parents=True)
    # Without a second look, so that a test sees what caused the first.
    source, tracker = sources.Backlog(64), devices.Devices(tree.root, settings=QUICK, pauses_seconds=())
    await tracker.read()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tracker.follow(source))
        yield tree, tracker, source
        source.close()


def announce(source, action, devpath):
    event = uevents.parse(f"{action}@/{devpath}\0SUBSYSTEM=pci\0SEQNUM=1\0".encode())
    assert event is not None
    source.put(event)


def list_identifiers(tracker, address):
    card = tracker.card_at(address)
    return set() if card is None else handmade.pairs(card)


async def test_vital_product_data_is_known_once_it_is_read_without_an_event(tmp_path):
    async with followed_by_hand(tmp_path) as (tree, tracker, source):
        folder = tree.function(NIC_ADDRESS, (0x15B3, 0x1021), 0x020000, driver="mlx5_core")
        os.mkfifo(folder / "vpd")
        announce(source, "add", f"{handmade.PORT}/{NIC_ADDRESS}")
        await waiting.eventually(lambda: tracker.card_at(NIC_ADDRESS) is not None)
        assert tracker.card_at(NIC_ADDRESS).first.unread == ((Kind.VPD_SERIAL, Silence.VPD_SLOW),)
        other = tree.function("0000:cb:00.0", (0x15B3, 0x1021), 0x020000, vpd={"SN": "MT2"})
        announce(source, "add", f"{handmade.PORT}/{other.name}")
        await waiting.eventually(lambda: list_identifiers(tracker, other.name) == {("vpd-serial", "mt2")})
        # The card answers after all, with nothing.
        os.close(os.open(folder / "vpd", os.O_RDWR))
        await waiting.eventually(lambda: tracker.card_at(NIC_ADDRESS).first.unread == ())


async def test_a_returning_card_is_read_again(tmp_path):
    async with followed_by_hand(tmp_path) as (tree, tracker, source):
        for serial in ("mt1", "mt2"):
            folder = tree.function(NIC_ADDRESS, (0x15B3, 0x1021), 0x020000, vpd={"SN": serial})
            announce(source, "add", f"{handmade.PORT}/{NIC_ADDRESS}")
            expected = {("vpd-serial", serial)}
            await waiting.eventually(
                lambda expected=expected: list_identifiers(tracker, NIC_ADDRESS) == expected
            )
            shutil.rmtree(folder)
            (tree.root / "bus/pci/devices" / NIC_ADDRESS).unlink()


async def test_a_driver_that_is_bound_later_shows_its_identifiers_with_the_event(tmp_path):
    async with followed_by_hand(tmp_path) as (tree, tracker, source):
        folder = tree.function(ADDRESS, (0x144D, 0xA80A), 0x010802)
        announce(source, "add", f"{handmade.PORT}/{ADDRESS}")
        await waiting.eventually(lambda: tracker.card_at(ADDRESS) is not None)
        (folder / "uevent").write_text("DRIVER=nvme\nPCI_CLASS=10802\nPCI_ID=144D:A80A\nPCI_SUBSYS_ID=0:0\n")
        tree.write(folder / "nvme/nvme0/serial", "S4EVNX0")
        announce(source, "bind", f"{handmade.PORT}/{ADDRESS}")
        await waiting.eventually(lambda: list_identifiers(tracker, ADDRESS) == {("nvme-serial", "s4evnx0")})


async def test_a_gpu_that_is_initialised_without_an_event_is_known_when_it_is_looked_at_again(tmp_path):
    async with followed_by_hand(tmp_path) as (tree, tracker, source):
        tree.function(ADDRESS, (0x10DE, 0x2331), 0x030200, driver="nvidia")
        tree.nvidia(ADDRESS, "GPU-????????-????-????-????-????????????")
        announce(source, "add", f"{handmade.PORT}/{ADDRESS}")
        await waiting.eventually(lambda: tracker.card_at(ADDRESS) is not None)
        await tracker.refresh_lagging()
        assert list_identifiers(tracker, ADDRESS) == set()
        tree.nvidia(ADDRESS, "GPU-6f0c1f6e-52a1-7d0b-93c4-1b7f2f0a9d11")
        await tracker.refresh_lagging()
        assert list_identifiers(tracker, ADDRESS) == {("gpu-uuid", "6f0c1f6e-52a1-7d0b-93c4-1b7f2f0a9d11")}
        readings = tracker.readings
        await tracker.refresh_lagging()
        assert tracker.readings == readings
