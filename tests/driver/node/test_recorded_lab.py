"""A kernel's own hot-plug of a disk and of CXL memory, as `drawbar discover --record` saw it in a guest of the lab."""

from pathlib import Path

import msgspec
import pytest
from tests.scenes import cards, inventories

from drawbar.driver.api import attachments
from drawbar.driver.node import classes, treatment, uevents
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.classes.cxl_memory import reading as cxl_memory
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.health import readings
from drawbar.driver.node.treatment import observation, plan
from drawbar.mocks.sysfs import load_events, load_recording

RECORDING = Path(__file__).parents[2] / "cases" / "kernels" / "kernel-6.1-lab"
DISK, MEMORY = "0000:01:00.0", "0000:41:00.0"


@pytest.fixture
def tree_before(tmp_path):
    load_recording(RECORDING, tmp_path / "before" / "sys")
    return tmp_path / "before" / "sys"


@pytest.fixture
def tree_after(tmp_path):
    load_recording(RECORDING / "sysfs-end.json.gz", tmp_path / "after" / "sys")
    return tmp_path / "after" / "sys"


def test_the_inventory_has_the_inserted_cards(tree_before, tree_after):
    had, has = reader.read(tree_before), reader.read(tree_after)
    new = {each.address: each for each in has.functions} | dict.fromkeys(
        each.address for each in had.functions
    )
    disk, memory = (each for each in new.values() if each is not None)
    assert (disk.address, disk.serial, disk.driver, disk.slot) == (DISK, "SN-disk-a", "nvme", "1")
    assert [node.path for node in disk.device_nodes] == ["/dev/ng0n1", "/dev/nvme0", "/dev/nvme0n1"]
    assert [each.state for each in disk.nvme] == ["live"]
    assert (memory.address, memory.driver, memory.slot) == (MEMORY, "cxl_pci", "101")
    assert memory.dsn == "00-00-00-00-00-00-12-34"
    assert [(each.name, each.serial, each.pmem_bytes) for each in has.memdevs] == [("mem0", 4660, 256 << 20)]
    assert [(slot.name, slot.present) for slot in had.slots] == [("1", False), ("2", False), ("101", False)]
    assert [(slot.name, slot.present, slot.powered) for slot in has.slots] == [
        ("1", True, True),
        ("2", False, False),
        ("101", True, True),
    ]


def test_the_kernels_events_are_enough_to_follow_it(tree_before, tree_after):
    model = inventories.read_known(tree_before)
    wanted = set()
    for each in load_events(RECORDING):
        wanted |= model.find_concerned(uevents.parse(each.datagram).devpath)
    while wanted:
        _, wanted = model.take(inventories.read_subjects(tree_after, wanted, model.slot_names))
    assert cards.of_any_arrival(model.snapshot()) == cards.of_any_arrival(reader.read(tree_after))


@pytest.mark.parametrize(
    ("device_class", "serial", "address"),
    [("nvme", "SN-disk-a", DISK), ("cxl-memory", "4660", MEMORY), ("cxl-memory", "0x1234", MEMORY)],
)
def test_a_device_is_known_by_the_serial_number_that_a_fabric_reports(
    tree_before, tree_after, device_class, serial, address
):
    identity = attachments.Identity(device_class=device_class, serial=serial)
    assert isinstance(matching.match(reader.read(tree_before), identity), matching.Absent)
    outcome = matching.match(reader.read(tree_after), identity)
    assert (outcome.by, outcome.card.address) == ("identifier", address)


def test_another_device_in_the_slot_is_known_as_the_wrong_one(tree_after):
    number = attachments.DeviceIdentifier(kind="nvme-serial", value="sn-disk-b")
    identity = attachments.Identity(device_class="nvme", identifiers=(number,), pci_id="1b36:0010")
    outcome = matching.match(reader.read(tree_after), identity, slot="1")
    assert isinstance(outcome, matching.Wrong)
    assert outcome.card.address == DISK


def look(sysfs, card, slot):
    order = treatment.Order(card=card, slot=slot)
    return observation.look(classes.Host.from_sysfs(sysfs), order, treatment.Progress())


@pytest.mark.parametrize(("address", "slot"), [(DISK, "1"), (MEMORY, "101")])
def test_a_release_begins_with_the_driver_resets_and_ends_with_the_power(
    tree_before, tree_after, address, slot
):
    card = reader.read(tree_after).card_of(address)
    seen = look(tree_after, card, slot).observed
    assert plan.plan(seen) == plan.Unbind(address=address)
    unbound = msgspec.structs.replace(
        seen, functions=tuple(msgspec.structs.replace(each, bound=False) for each in seen.functions)
    )
    assert plan.plan(unbound) == plan.Remove(address=address, reset=True)
    assert plan.plan(msgspec.structs.replace(seen, functions=())) == plan.PowerOff(slot=slot)
    gone = look(tree_before, card, slot).observed
    assert plan.plan(gone) == plan.Finish()


def test_both_are_well(tree_after):
    for address in (DISK, MEMORY):
        reading = readings.read(tree_after, reader.read(tree_after).card_of(address))
        assert (reading.asleep, reading.silent) == (False, ())
        assert not any(counted.total for log in reading.logs for counted in log.counters.values())


def test_persistent_memory_has_nothing_on_it_that_a_release_waits_for(tree_after):
    layout = cxl_memory.read_layout(
        classes.Host.from_sysfs(tree_after), reader.read(tree_after).card_of(MEMORY)
    )
    assert (layout.memdev, layout.ram_bytes, layout.regions) == ("mem0", 0, ())
