"""Functions that vfio has: their device files are those that the kernel shows, with an IOMMU and without."""

import pytest
from tests.scenes import kerneltrees

from drawbar.driver.node import classes
from drawbar.driver.node.discovery import reader

NIC = {"class_code": 0x020000, "vendor": 0x8086, "device": 0x154C}
PATH = "pci0000:00/0000:00:05.0"


def list_files_and_missing(tree):
    """Return the files that a container gets, and why the function is not ready."""
    host = classes.Host.from_sysfs(tree.root)
    [card] = reader.read(tree.root).cards
    kind = classes.by_name(card.device_class)
    edits = kind.edits(card, host)
    return [node.path for node in edits.device_nodes], kind.missing_requirements(card)


@pytest.fixture
def tree(tmp_path):
    return kerneltrees.Tree(tmp_path / "sys")


@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci", "nvgrace-gpu-vfio-pci"])
@pytest.mark.parametrize(
    ("name", "path"),
    [("noiommu-4", "/dev/vfio/noiommu-4"), ("4", "/dev/vfio/4")],
    ids=["without", "with IOMMU"],
)
def test_a_function_is_handed_on_by_the_file_of_its_group(tree, driver, name, path):
    tree.function(PATH, **NIC, driver=driver, group=4)
    tree.node(f"devices/virtual/vfio/{name}", f"vfio/{name}", 242, 0, "vfio")
    tree.node("devices/virtual/misc/vfio", "vfio/vfio", 10, 196, "misc")
    assert list_files_and_missing(tree) == ([path, "/dev/vfio/vfio"], None)


def test_with_iommufd_a_function_has_a_file_of_its_own(tree):
    base = tree.function(PATH, **NIC, driver="vfio-pci", group=4)
    tree.node(f"{base}/vfio-dev/vfio0", "vfio/devices/vfio0", 511, 0, "vfio-dev")
    tree.node("devices/virtual/misc/iommu", "iommu", 10, 125, "misc")
    assert list_files_and_missing(tree) == (["/dev/vfio/devices/vfio0", "/dev/iommu"], None)


def test_a_group_without_a_file_is_named_and_no_file_is_made_up(tree):
    tree.function(PATH, **NIC, driver="vfio-pci", group=4)
    tree.node("devices/virtual/vfio/5", "vfio/5", 242, 0, "vfio")
    files, missing = list_files_and_missing(tree)
    assert files == []
    assert "the kernel shows no file of its IOMMU group 4" in missing


def test_without_a_group_the_iommu_is_off(tree):
    tree.function(PATH, **NIC, driver="vfio-pci")
    assert list_files_and_missing(tree) == ([], "vfio-pci is bound without an IOMMU group; turn the IOMMU on")


def test_the_functions_of_one_group_share_its_file(tree):
    for function in (0, 1):
        tree.function(f"pci0000:00/0000:00:05.{function}", **NIC, driver="vfio-pci", group=4)
    tree.node("devices/virtual/vfio/4", "vfio/4", 242, 0, "vfio")
    assert list_files_and_missing(tree) == (["/dev/vfio/4"], None)
