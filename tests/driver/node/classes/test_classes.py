"""What each class of device needs, gets ready, and gives to a container."""

import asyncio

import msgspec
import pytest
from tests.scenes import cards

from drawbar.cdi import spec
from drawbar.driver.node import classes, kernel
from drawbar.driver.node.classes import generic, gpu, nic
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

VENDORS = {DeviceClass.GPU: 0x1002, DeviceClass.FPGA: 0x10EE}


def device(device_class, **more):
    serial = {"nvme": "SN1", "cxl-memory": "1"}.get(device_class)
    return MockDevice(
        **(
            {
                "device_class": device_class,
                "vendor": VENDORS.get(device_class, 1),
                "device": 1,
                "serial": serial,
            }
            | more
        )
    )


def card_of(tree, slot=1):
    address = tree.address(slot)
    functions = [
        function
        for function in reader.read(tree.root).functions
        if address in (function.address, function.physical_function)
    ]
    return model.Card(functions=tuple(functions))


@pytest.fixture
def card(tmp_path):
    """Return `card(device)`: the card as a mocked host shows it."""

    def make(mock, *, vfs=0):
        tree = SysfsTree.create(tmp_path / "sys", slots=1)
        tree.attach(1, mock)
        if vfs:
            tree.set_vfs(1, vfs)
        return card_of(tree)

    return make


def paths(edits):
    return [node.path for node in edits.device_nodes]


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_a_card_with_its_driver_misses_no_requirement(card, device_class):
    assert classes.by_name(device_class).missing_requirements(card(device(device_class))) is None


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_without_its_driver_a_card_is_ready_only_in_a_class_that_needs_none(card, device_class):
    missing = classes.by_name(device_class).missing_requirements(card(device(device_class, driver="")))
    if device_class in (DeviceClass.ACCELERATOR, DeviceClass.OTHER):
        assert missing is None
    else:
        assert missing == "no kernel driver is bound; load the driver on this node"


@pytest.mark.parametrize("device_class", [DeviceClass.NVME, DeviceClass.CXL_MEMORY])
def test_storage_and_memory_need_their_device_files(card, device_class):
    seen = card(device(device_class))
    bare = msgspec.structs.replace(seen.first, device_nodes=())
    missing = classes.by_name(device_class).missing_requirements(model.Card(functions=(bare,)))
    assert missing == f"its driver {bare.driver} offers no device file; look at the kernel's log"


def test_an_unknown_class_is_treated_as_other():
    assert classes.by_name("quantum") == generic.Generic()


def passed_through(seen, *, defect=None):
    group = model.DeviceNode(path="/dev/vfio/17", major=242, minor=1, block=False, subsystem="vfio")
    function = msgspec.structs.replace(
        seen.first, driver="vfio-pci", device_nodes=() if defect else (group,), defect=defect
    )
    return model.Card(functions=(function,))


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_a_card_bound_to_vfio_is_passed_as_its_group(card, tmp_path, device_class):
    whole = passed_through(card(device(device_class)))
    operations = classes.by_name(device_class)
    (tmp_path / "dev/vfio").mkdir(parents=True)
    (tmp_path / "dev/vfio/vfio").touch()
    assert operations.missing_requirements(whole) is None
    host = classes.Host.from_sysfs(tmp_path / "sys")
    assert paths(operations.edits(whole, host)) == ["/dev/vfio/17", "/dev/vfio/vfio"]


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_a_card_whose_file_the_kernel_does_not_show_is_not_ready_for_that_reason(card, device_class):
    whole = passed_through(card(device(device_class)), defect="the file is not there")
    assert classes.by_name(device_class).missing_requirements(whole) == "the file is not there"


async def test_a_function_without_a_driver_gets_one(tmp_path, until):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    async with tree.reacting():
        address = await asyncio.to_thread(tree.attach, 1, device(DeviceClass.NVME))
        asked = kernel.Kernel(tree.root)
        await asked.unbind(address)

        async def driver():
            return reader.read_function(tree.root, address).driver

        await until(driver, lambda name: name is None)
        operations = classes.by_name("nvme")
        assert await operations.initialise(asked, card_of(tree)) is not None
        await until(driver, lambda name: name == "nvme")

        async def attempt():
            return await operations.initialise(asked, card_of(tree))

        await until(attempt, lambda missing: missing is None)


async def test_a_ready_card_is_not_touched(card, tmp_path):
    seen = card(device(DeviceClass.NVME))
    probe = tmp_path / "sys/bus/pci/drivers_probe"
    before = probe.read_bytes() if probe.exists() else None
    assert await classes.by_name("nvme").initialise(kernel.Kernel(tmp_path / "sys"), seen) is None
    assert (probe.read_bytes() if probe.exists() else None) == before


@pytest.mark.parametrize(
    ("device_class", "expected"),
    [
        (DeviceClass.GPU, ["/dev/dri/card0", "/dev/dri/renderD128"]),
        (DeviceClass.ACCELERATOR, ["/dev/accel/accel0"]),
        (DeviceClass.NVME, ["/dev/ng0n1", "/dev/nvme0", "/dev/nvme0n1"]),
        (DeviceClass.CXL_MEMORY, ["/dev/cxl/mem0"]),
        (DeviceClass.FPGA, []),
        (DeviceClass.NIC, []),
        (DeviceClass.OTHER, []),
    ],
)
def test_a_container_gets_the_device_files_of_the_card(card, tmp_path, device_class, expected):
    seen = card(device(device_class))
    assert (
        paths(classes.by_name(device_class).edits(seen, classes.Host.from_sysfs(tmp_path / "sys")))
        == expected
    )


def test_a_device_file_is_described_with_its_numbers_and_type(card):
    edits = classes.by_name("nvme").edits(card(device(DeviceClass.NVME)), classes.Host())
    assert (
        spec.DeviceNode(path="/dev/nvme0n1", type="b", major=259, minor=0, permissions="rw")
        in edits.device_nodes
    )


def test_a_gpu_gives_no_files_of_other_subsystems(card):
    seen = card(device(DeviceClass.GPU))
    bus = model.DeviceNode(path="/dev/i2c-5", major=89, minor=5, block=False, subsystem="i2c-dev")
    function = msgspec.structs.replace(seen.first, device_nodes=(*seen.first.device_nodes, bus))
    assert "/dev/i2c-5" not in paths(
        classes.by_name("gpu").edits(model.Card(functions=(function,)), classes.Host())
    )


def nvidia(tmp_path, seen, text="Model: \t H100\nDevice Minor: \t 3\n"):
    """Return the card as NVIDIA's driver shows it with this text, and its host."""
    folder = tmp_path / "proc/driver/nvidia/gpus" / seen.address
    folder.mkdir(parents=True)
    (folder / "information").write_text(text)
    (tmp_path / "dev").mkdir()
    for name in ("nvidia3", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    function = reader.read_function(tmp_path / "sys", seen.address)
    return model.Card(functions=(function,)), classes.Host.from_sysfs(tmp_path / "sys")


def test_a_gpu_of_nvidia_gives_its_own_file_and_the_shared_ones_that_exist(card, tmp_path):
    seen = card(device(DeviceClass.GPU, vendor=0x10DE))
    edits = gpu.Gpu().edits(*nvidia(tmp_path, seen))
    assert (
        spec.DeviceNode(path="/dev/nvidia3", type="c", major=195, minor=3, permissions="rw")
        in edits.device_nodes
    )
    assert paths(edits)[-1] == "/dev/nvidiactl"
    assert "/dev/nvidia-uvm" not in paths(edits)


def test_a_gpu_without_a_number_gets_its_files_from_sysfs(card, tmp_path):
    seen = card(device(DeviceClass.GPU, vendor=0x10DE))
    edits = gpu.Gpu().edits(*nvidia(tmp_path, seen, text="Model: H100\n"))
    assert paths(edits) == ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidiactl"]


def test_a_gpu_is_named_by_its_address_and_the_uuid_of_its_driver(card, tmp_path):
    seen = card(device(DeviceClass.GPU, vendor=0x10DE))
    uuid = "GPU-3F1C5AB4-3d3b-4a0e-9d4a-2b7c6d5e4f01"
    seen, host = nvidia(tmp_path, seen, text=f"Model: H100\nGPU UUID: \t {uuid}\nDevice Minor: \t 3\n")
    assert gpu.Gpu().names(seen, host) == {seen.address, uuid.lower()}
    assert classes.by_name("other").names(seen, host) == {seen.address}


def test_the_interfaces_of_a_nic_move_into_the_container_under_their_own_names(card):
    seen = card(device(DeviceClass.NIC, total_vfs=2, vf_driver="iavf"), vfs=2)
    second = msgspec.structs.replace(seen.first, net_interfaces=("ens1f0", "ens1f1"))
    virtual = msgspec.structs.replace(seen.functions[1], net_interfaces=("ens1f0v0",))
    card_with_parts = model.Card(functions=(second, virtual))
    interfaces = nic.Nic().edits(card_with_parts, classes.Host()).net_devices
    assert [interface.host_name for interface in interfaces] == ["ens1f0", "ens1f1", "ens1f0v0"]
    edits = nic.Nic().edits(card_with_parts.bare, classes.Host())
    assert [(interface.host_name, interface.name) for interface in edits.net_devices] == [
        ("ens1f0", "ens1f0"),
        ("ens1f1", "ens1f1"),
    ]


def test_the_interfaces_of_a_virtual_function_move_into_the_container_that_has_just_that(card):
    seen = card(device(DeviceClass.NIC, total_vfs=2, vf_driver="iavf"), vfs=2)
    virtual = msgspec.structs.replace(seen.functions[1], net_interfaces=("ens1f0v0",))
    edits = nic.Nic().edits(model.Card(functions=(virtual,)), classes.Host())
    assert [interface.host_name for interface in edits.net_devices] == ["ens1f0v0"]


def test_an_interface_never_takes_the_name_of_the_pods_own(card):
    edits = nic.Nic().edits(card(device(DeviceClass.NIC)), classes.Host())
    assert [(interface.host_name, interface.name) for interface in edits.net_devices] == [("eth0", "nic0")]


def test_an_interface_never_takes_the_name_of_another_of_its_card(card):
    seen = card(device(DeviceClass.NIC))
    port = msgspec.structs.replace(seen.first, net_interfaces=("eth0", "nic0"))
    edits = nic.Nic().edits(model.Card(functions=(port,)), classes.Host())
    assert [(interface.host_name, interface.name) for interface in edits.net_devices] == [
        ("eth0", "nic1"),
        ("nic0", "nic0"),
    ]


def test_the_files_of_all_functions_are_passed(card):
    seen = card(device(DeviceClass.GPU))
    node = model.DeviceNode(path="/dev/dri/card9", major=226, minor=9, block=False, subsystem="drm")
    second = msgspec.structs.replace(seen.first, address="0000:01:00.1", device_nodes=(node,))
    both = model.Card(functions=(seen.first, second))
    assert paths(classes.by_name("gpu").edits(both, classes.Host()))[-1] == "/dev/dri/card9"


# --- the flush of a disk: /dev of the host lies beside the mocked tree, so a plain file stands for the disk ---


async def flush(tmp_path, seen):
    tree = tmp_path / "sys"
    await classes.by_name("nvme").quiesce(kernel.Kernel(tree), classes.Host.from_sysfs(tree), seen)


async def test_a_disk_is_flushed_without_a_change(card, tmp_path):
    seen = card(device(DeviceClass.NVME))
    disk = tmp_path / "dev/nvme0n1"
    disk.parent.mkdir()
    disk.write_text("data")
    await flush(tmp_path, seen)
    assert disk.read_text() == "data"


async def test_a_disk_without_a_file_is_left_to_its_driver(card, tmp_path):
    await flush(tmp_path, card(device(DeviceClass.NVME)))
    assert not (tmp_path / "dev").exists()


@pytest.mark.parametrize("target", ["/dev/null", "loop"], ids=["cannot be flushed", "cannot be opened"])
async def test_a_disk_that_is_broken_comes_off_all_the_same(card, tmp_path, target, caplog):
    seen = card(device(DeviceClass.NVME))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvme0n1").symlink_to("nvme0n1" if target == "loop" else target)
    await flush(tmp_path, seen)
    assert [record.levelname for record in caplog.records if "disk" in record.message] == ["WARNING"]


@pytest.mark.parametrize("driver", [None, "vfio-pci"])
@pytest.mark.parametrize("device_class", [each.value for each in DeviceClass])
def test_no_class_takes_a_card_without_addresses_for_ready(device_class, driver):
    bare = model.Card(
        functions=(
            cards.function(
                "0000:02:00.0",
                DeviceClass(device_class),
                driver=driver,
                iommu_group=7,
                unassigned_bars=tuple(range(6)),
            ),
        )
    )
    missing = classes.by_name(device_class).missing_requirements(bare)
    assert missing is not None
    assert (
        "BAR 0 of 0000:02:00.0, 1 of 0000:02:00.0, 2 of 0000:02:00.0, 3 of 0000:02:00.0 and 2 more" in missing
    )
