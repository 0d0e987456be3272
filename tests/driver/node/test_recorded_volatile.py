"""Volatile CXL memory of a real kernel, as `drawbar discover --record` saw it in a newer guest of the lab."""

from pathlib import Path

import pytest
from tests.scenes import cards, inventories

from drawbar.driver.node import classes, uevents
from drawbar.driver.node.classes.cxl_memory import reading, region_steps
from drawbar.driver.node.discovery import reader
from drawbar.mocks.sysfs import load_events, load_recording

RECORDING = Path(__file__).parents[2] / "cases" / "kernels" / "kernel-6.12-lab"
CARD = "0000:41:00.0"
SIZE = 256 << 20


@pytest.fixture
def dax(tmp_path):
    """Return the host on which a pod would have the memory for itself."""
    load_recording(RECORDING / "sysfs-end.json.gz", tmp_path / "dax" / "sys")
    return classes.Host.from_sysfs(tmp_path / "dax" / "sys")


@pytest.fixture
def system_ram(tmp_path):
    """Return the host that uses the memory as its own."""
    load_recording(RECORDING / "sysfs-system-ram.json.gz", tmp_path / "ram" / "sys")
    return classes.Host.from_sysfs(tmp_path / "ram" / "sys")


def card(host):
    return reader.read(host.sysfs).card_of(CARD)


def test_a_separate_dax_device_is_ready_and_passed_to_a_container(dax):
    layout = reading.read_layout(dax, card(dax))
    (region,) = layout.regions
    assert (layout.ram_bytes, region.size_bytes, region.mode, region.committed) == (SIZE, SIZE, "ram", True)
    assert region.dax == (region_steps.Dax(name="dax0.0", driver="device_dax"),)
    assert region_steps.towards_ready(layout) is None
    edits = classes.by_name("cxl-memory").edits(card(dax), dax)
    assert [(node.path, node.type, node.major, node.minor) for node in edits.device_nodes] == [
        ("/dev/dax0.0", "c", 252, 0)
    ]
    assert region_steps.towards_ready(layout, "kmem") == region_steps.UnbindDax(
        dax="dax0.0", driver="device_dax"
    )
    assert region_steps.towards_rest(layout) == region_steps.UnbindDax(dax="dax0.0", driver="device_dax")


def test_system_memory_is_ready_and_goes_offline_first(system_ram):
    layout = reading.read_layout(system_ram, card(system_ram))
    (region,) = layout.regions
    assert region.dax == (region_steps.Dax(name="dax0.0", driver="kmem"),)
    assert [(block.name, block.zone) for block in region.blocks] == [
        ("memory118", "Movable"),
        ("memory119", "Movable"),
    ]
    assert region_steps.towards_ready(layout, "kmem") is None
    offline = region_steps.SetMemory(blocks=("memory118", "memory119"), state="offline")
    assert region_steps.towards_ready(layout) == offline
    assert region_steps.towards_rest(layout) == offline
    assert region_steps.find_misplaced(layout) is None


def test_a_card_without_a_region_gets_one_from_the_kernels_next_name(tmp_path):
    load_recording(RECORDING, tmp_path / "sys")
    assert reader.read(tmp_path / "sys").card_of(CARD) is None
    decoder = tmp_path / "sys/bus/cxl/devices/decoder0.0"
    assert (decoder / "create_ram_region").read_text() == "region0\n"


def test_the_kernels_events_are_enough_to_follow_it(tmp_path, dax):
    load_recording(RECORDING, tmp_path / "before" / "sys")
    model = inventories.read_known(tmp_path / "before" / "sys")
    for each in load_events(RECORDING):
        wanted, done = model.find_concerned(uevents.parse(each.datagram).devpath), set()
        while wanted:
            names = model.slot_names
            _, further = model.take(inventories.read_subjects(dax.sysfs, wanted, names))
            # With other slots, what was read already may turn out to be in one.
            done = done | wanted if model.slot_names is names else set()
            wanted = further - done
    assert cards.of_any_arrival(model.snapshot()) == cards.of_any_arrival(reader.read(dax.sysfs))
