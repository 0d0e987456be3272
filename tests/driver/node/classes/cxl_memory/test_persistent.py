"""Persistent CXL memory: the node daemon makes nothing of it, and sees who uses it, on a mocked guest of the lab."""

import pytest

from drawbar.driver.node import classes
from drawbar.driver.node.classes.cxl_memory import operations, reading, region_steps
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

MEMORY = MockDevice(
    device_class=DeviceClass.CXL_MEMORY,
    vendor=0x8086,
    device=0x0D93,
    serial="4660",
    memory_bytes=512 << 20,
    persistent=True,
)


@pytest.fixture
def tree(tmp_path):
    made = SysfsTree.create(tmp_path / "sys", layout="lab")
    made.attach(101, MEMORY)
    made.power_on(101)
    return made


def read_layout_and_card(tree):
    card = model.Card(functions=(reader.read_function(tree.root, tree.address(101)),))
    return reading.read_layout(classes.Host.from_sysfs(tree.root), card), card


def make_dax(tree, start):
    """Do what `ndctl create-namespace -m devdax` does: below the nd bus, and in the region's range."""
    device = tree.root / "bus/nd/devices/dax0.0" / "dax0.0"
    device.mkdir()
    (device / "resource").write_text(f"{start:#x}\n")
    (device / "dev").write_text("252:0\n")
    (device / "uevent").write_text("MAJOR=252\nMINOR=0\nDEVNAME=dax0.0\n")
    links = tree.root / "bus/dax/devices"
    links.mkdir(parents=True)
    (links / "dax0.0").symlink_to(device.resolve())
    return device


def test_without_a_region_there_is_nothing_to_do(tree):
    layout, _ = read_layout_and_card(tree)
    assert (region_steps.towards_ready(layout), region_steps.towards_rest(layout)) == (None, None)


def test_a_region_without_a_mode_is_an_obstacle_and_left_alone(tree):
    tree.create_region([101])
    assert not (tree.root / "bus/cxl/devices/region0/mode").exists()
    layout, _ = read_layout_and_card(tree)
    assert [text.partition(":")[0] for text in region_steps.obstacles(layout)] == [
        "region0 holds persistent memory"
    ]
    assert (region_steps.towards_ready(layout), region_steps.towards_rest(layout)) == (None, None)


def test_a_dax_device_in_the_regions_range_belongs_to_the_device(tree):
    tree.create_region([101])
    _, card = read_layout_and_card(tree)
    assert operations.dax_nodes(classes.Host.from_sysfs(tree.root), card) == (), (
        "what is on the nd bus is no device file"
    )
    start = reader.read(tree.root).regions[0].start
    device = make_dax(tree, start + (18 << 20))
    (node,) = operations.dax_nodes(classes.Host.from_sysfs(tree.root), card)
    assert (node.path, node.major, node.minor) == ("/dev/dax0.0", 252, 0)
    (device / "resource").write_text(f"{start - (2 << 20):#x}\n")
    assert operations.dax_nodes(classes.Host.from_sysfs(tree.root), card) == (), "that is another's"
