"""The device files of AMD GPUs in partitions, which hang below platform devices."""

import pytest
from tests.scenes import inventories, kerneltrees

from drawbar.driver.node import classes
from drawbar.driver.node.discovery import reader

INSTINCT = {"class_code": 0x120000, "vendor": 0x1002, "device": 0x74A1, "driver": "amdgpu"}


class Gpus:
    """GPUs on buses 5, 6, ... of a tree."""

    def __init__(self, tmp_path, *modes):
        self.tree = kerneltrees.Tree(tmp_path / "sys")
        self.tree.node("devices/virtual/kfd/kfd", "kfd", 235, 0, "kfd")
        self._nodes = 0
        for index, mode in enumerate(modes):
            files = {"current_compute_partition": mode} if mode else {}
            base = self.tree.function(
                f"pci0000:00/0000:00:0{index + 1}.1/0000:0{index + 5}:00.0", **INSTINCT, files=files
            )
            self.tree.render_nodes(base, index)

    def partition(self, number, name="platform/amdgpu_xcp."):
        self.tree.render_nodes(f"devices/{name}{number}", 40 + number)

    def topology(self, bus, minor, *, location=0, unique=0):
        reported = f"simd_count 304\nlocation_id {bus << 8 | location}\ndomain 0\ndrm_render_minor {minor}\nunique_id {unique}"
        self.tree.write(f"devices/virtual/kfd/kfd/topology/nodes/{self._nodes}/properties", reported)
        self._nodes += 1

    @property
    def shown(self):
        """By bus the numbers of the render nodes that a container gets, and why the GPU is not ready."""
        host, result = classes.Host.from_sysfs(self.tree.root), {}
        for card in reader.read(self.tree.root).cards:
            kind = classes.by_name(card.device_class)
            paths = [node.path for node in kind.edits(card, host).device_nodes]
            assert paths[-1] == "/dev/kfd"
            renders = [int(path[len("/dev/dri/renderD") :]) for path in paths if "render" in path]
            result[int(card.address[5:7], 16)] = (renders, kind.missing_requirements(card))
        return result


@pytest.mark.parametrize("mode", [None, "SPX", "UNKNOWN"])
def test_a_whole_gpu_has_its_own_files_and_the_drivers(tmp_path, mode):
    gpus = Gpus(tmp_path, mode)
    assert gpus.shown == {5: ([128], None)}


@pytest.mark.parametrize("name", ["platform/amdgpu_xcp.", "platform/amdgpu_xcp_", "faux/amdgpu_xcp_"])
def test_the_only_gpu_in_partitions_has_all_of_them(tmp_path, name):
    gpus = Gpus(tmp_path, "CPX", "SPX")
    for number in range(7):
        gpus.partition(number, name)
    assert gpus.shown == {5: ([128, *range(168, 175)], None), 6: ([129], None)}


@pytest.mark.parametrize("in_high_bits", [True, False])
def test_partitions_of_two_gpus_are_told_apart_by_the_topology(tmp_path, in_high_bits):
    gpus = Gpus(tmp_path, "DPX", "DPX")
    for bus, own, further in ((5, 128, 169), (6, 129, 168)):
        gpus.topology(bus, own)
        gpus.topology(bus, further, location=1 << 28 if in_high_bits else 1)
    gpus.topology(0, 0)  # a processor
    gpus.partition(0)
    gpus.partition(1)
    assert gpus.shown == {5: ([128, 169], None), 6: ([129, 168], None)}


def test_partitions_that_nothing_tells_apart_go_with_no_gpu_and_these_are_not_ready(tmp_path):
    gpus = Gpus(tmp_path, "DPX", "DPX")
    gpus.partition(0)
    gpus.partition(1)
    missing = (
        "it is in partition mode DPX, and the kernel shows 1 of its 2 or more render nodes; write SPX to its "
        "current_compute_partition, or load its driver amdgpu again"
    )
    assert gpus.shown == {5: ([128], missing), 6: ([129], missing)}


def test_a_partition_without_a_file_is_missed(tmp_path):
    gpus = Gpus(tmp_path, "QPX")
    for minor in (128, 168, 169, 170):
        gpus.topology(5, minor)
    gpus.partition(0)
    renders, missing = gpus.shown[5]
    assert renders == [128, 168]
    assert "shows 2 of its 4" in missing


def test_the_event_of_a_partition_has_the_gpus_read_again(tmp_path):
    gpus = Gpus(tmp_path, "DPX")
    current = inventories.read_known(gpus.tree.root)
    gpus.partition(0)
    todo = current.find_concerned("/devices/platform/amdgpu_xcp.0/drm/renderD168")
    for _ in range(2):
        observed = inventories.read_subjects(gpus.tree.root, todo, current.slot_names)
        changes, todo = current.take(observed)
    assert "0000:05:00.0" in changes.functions
    assert current.snapshot() == reader.read(gpus.tree.root)
