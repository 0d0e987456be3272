"""What the doctor reports of a host's preparation for hot-plug, decided and read."""

import asyncio
import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes.hangs import hanging_function

from drawbar.driver.api import meta, slices
from drawbar.driver.cli.doctor import machine_observation
from drawbar.driver.cli.doctor.findings import Severity
from drawbar.driver.cli.doctor.plans import machine
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import resources
from drawbar.driver.node.recording import recorder
from drawbar.fabric.classes import DeviceClass
from drawbar.mocks import sysfs
from drawbar.mocks.sysfs.device import MockDevice

RECORDINGS = sorted((Path(__file__).parents[3] / "cases" / "kernels").glob("*/sysfs*.json.gz"))
NOWHERE = Path("/nonexistent")
GIB, MIB = 1 << 30, 1 << 20
ROOMY = resources.Windows(memory=16 * MIB, prefetchable=300 * GIB)
SMALL = resources.Windows(memory=2 * MIB, prefetchable=2 * MIB)
PORT = machine.Port(
    address="0000:00:03.0", slot="1", driver="pciehp", capable=True, buses=(1, 8), windows=ROOMY
)
CARD = machine.Card(
    address="0000:01:00.0", device_class=DeviceClass.GPU, slot="1", bars=(("0000:01:00.0", 2),)
)
WELL = machine.Machine(
    ports=(PORT,),
    has_pciehp=True,
    iommu=machine.Iommu(groups=12, modes=frozenset({"DMA-FQ"})),
    modules=machine.Modules(loaded=frozenset({"nvidia", "nvme"})),
    wanted={DeviceClass.GPU: 80 * GIB, DeviceClass.NVME: 0},
)


def port(**changes):
    return {"ports": (msgspec.structs.replace(PORT, **changes),)}


def findings_on(**changes):
    return list(machine.plan(msgspec.structs.replace(WELL, **changes)))


def unlike(listed):
    return {f"{each.severity} {each.check}" for each in listed if each.severity is not Severity.OK}


def test_a_prepared_host_gives_cause_for_nothing():
    assert {finding.severity for finding in machine.plan(WELL)} == {Severity.OK}


@pytest.mark.parametrize(
    ("changes", "expected", "reported"),
    [
        pytest.param(
            {"problem": "no answer"}, {"unchecked host.hotplug"}, "cannot be looked at", id="silent kernel"
        ),
        pytest.param(
            {"ports": ()}, {"warning host.hotplug"}, "has no hot-plug slot", id="no slot, and a fabric"
        ),
        pytest.param({"ports": (), "wanted": None}, {"note host.hotplug"}, "its own devices", id="no slot"),
        pytest.param(
            port(driver=""), {"warning host.hotplug"}, "native hot-plug", id="firmware keeps hot-plug"
        ),
        pytest.param(
            port(driver="") | {"has_pciehp": False},
            {"warning host.hotplug"},
            "CONFIG_HOTPLUG_PCI_PCIE=y",
            id="kernel without pciehp",
        ),
        pytest.param(
            port(driver="") | {"command_line": "quiet pcie_ports=compat"},
            {"warning host.hotplug"},
            "take pcie_ports=compat off",
            id="compat",
        ),
        pytest.param(
            port(driver="acpiphp", capable=False), {"warning host.hotplug"}, "acpiphp", id="acpiphp"
        ),
        pytest.param(
            port(driver="", slot="", capable=None),
            {"unchecked host.hotplug"},
            "run this as root",
            id="hidden registers",
        ),
        pytest.param(port(buses=(0, 0)), {"warning host.buses"}, "pci=assign-busses", id="no bus"),
        pytest.param(port(buses=None), {"warning host.buses"}, "pci=assign-busses", id="bus unknown"),
        pytest.param(port(buses=(9, 3)), {"warning host.buses"}, "pci=assign-busses", id="buses reversed"),
        pytest.param(
            port(buses=(1, 1)) | {"wanted": {DeviceClass.FPGA: 0}, "modules": WELL.modules},
            {"warning host.buses", "note host.drivers"},
            "pci=hpbussize=5,hpmmiosize=16M,hpmmioprefsize=64M,realloc",
            id="one bus for a card with a switch",
        ),
        pytest.param(port(buses=(1, 1)), set(), "", id="one bus for a GPU"),
        pytest.param(
            port(windows=SMALL),
            {"warning host.windows"},
            "pci=hpbussize=1,hpmmiosize=16M,hpmmioprefsize=129G,realloc",
            id="80 GiB of memory want a window of 128 GiB",
        ),
        pytest.param(
            port(windows=SMALL) | {"wanted": None},
            {"note host.windows"},
            "hpmmioprefsize=257G",
            id="a class that no fabric is known to offer",
        ),
        pytest.param(
            port(windows=SMALL)
            | {"command_line": "pci=noaer,hpmmiosize=32M,hpmmioprefsize=256G,realloc root=/dev/sda1"},
            {"warning host.windows"},
            "the kernel is asked for enough",
            id="asked for already",
        ),
        pytest.param(
            port(windows=SMALL) | {"wanted": {DeviceClass.NVME: 0}}, set(), "", id="enough for a disk"
        ),
        pytest.param(port(windows=None), set(), "", id="windows unknown"),
        pytest.param(
            {"unassigned": (CARD,)}, {"error host.bars"}, "BAR 2 of 0000:01:00.0", id="no addresses"
        ),
        pytest.param(
            {"iommu": machine.Iommu()}, {"note host.iommu"}, "intel_iommu=on iommu=pt", id="IOMMU off"
        ),
        pytest.param(
            {"iommu": machine.Iommu(), "command_line": "intel_iommu=off"},
            {"note host.iommu"},
            "take intel_iommu=off off",
            id="IOMMU switched off",
        ),
        pytest.param(
            {"iommu": machine.Iommu(users=("0000:01:00.0",))},
            {"warning host.iommu"},
            "vfio-pci has 0000:01:00.0",
            id="vfio without IOMMU",
        ),
        pytest.param(
            {"modules": machine.Modules()}, {"note host.drivers"}, "--host-root", id="modules not looked at"
        ),
        pytest.param(
            {"modules": machine.Modules(available=frozenset({"nvme"}))},
            {"warning host.drivers"},
            "none of nvidia",
            id="no GPU driver",
        ),
        pytest.param(
            {"modules": machine.Modules(available=frozenset({"amdgpu", "nvme"}))},
            set(),
            "",
            id="driver waits",
        ),
    ],
)
def test_the_findings_about_a_host_have_remedies(changes, expected, reported):
    listed = findings_on(**changes)
    assert unlike(listed) == expected
    words = " ".join(f"{each.message}; {each.remedy}" for each in listed if each.severity is not Severity.OK)
    assert reported in words
    assert all(each.remedy for each in listed if each.severity is not Severity.OK)


SIZES = st.integers(0, 2**64)
PORTS = st.builds(
    machine.Port,
    address=st.just("0000:00:03.0"),
    slot=st.sampled_from(["", "1"]),
    driver=st.sampled_from(["", "pciehp", "acpiphp"]),
    capable=st.sampled_from([True, False, None]),
    buses=st.none() | st.tuples(st.integers(-1, 300), st.integers(-1, 300)),
    windows=st.none() | st.builds(resources.Windows, memory=SIZES, prefetchable=SIZES),
)


@given(
    st.builds(
        machine.Machine,
        ports=st.lists(PORTS, max_size=8).map(tuple),
        has_pciehp=st.sampled_from([True, False, None]),
        unassigned=st.sampled_from([(), (CARD,)]),
        command_line=st.text()
        | st.sampled_from(["pci=hpmmioprefsize=99999999999E,hpmmiosize=x", "pci=", "pci=a=b=c"]),
        wanted=st.none()
        | st.dictionaries(st.sampled_from(list(DeviceClass)), st.integers(-1, 2**70), max_size=8),
    )
)
def test_each_problem_of_any_host_has_a_remedy(observed):
    for finding in machine.plan(observed):
        assert finding.subject
        assert bool(finding.remedy) == (finding.severity is not Severity.OK)
        for size in re.findall(r"hpmmioprefsize=(\d+)([MG])", finding.remedy):
            assert int(size[0]) > 0


def read_machine(tree, root=None):
    return machine_observation.read(tree, root, reader.read(tree), NOWHERE)


def ports_of(tree):
    return read_machine(tree).ports


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_kernels_give_no_false_alarm(recording, tmp_path):
    sysfs.load_recording(recording, tmp_path / "sys")
    read = read_machine(tmp_path / "sys")
    assert [port.slot for port in read.ports] in (
        ["1", "2", "3"],
        ["1", "2", "101"],
        ["1", "2", "101", "102"],
        ["1", "13", "14"],
        [],
    )
    assert all(port.is_native and port.bus_count == 1 and port.windows == SMALL for port in read.ports)
    # A host without slots is for its own devices alone.
    wanted = {DeviceClass.NVME: 0} if read.ports else {}
    listed = list(machine.plan(msgspec.structs.replace(read, wanted=wanted)))
    assert {finding.severity for finding in listed} <= {Severity.OK, Severity.NOTE}


@pytest.mark.parametrize("layout", ["plain", "two-sockets", "root-ports", "cxl-switch", "lab", "newer-lab"])
def test_a_mocked_host_is_prepared_for_every_card_of_one_bus(layout, tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "sys", layout=layout)
    read = read_machine(tree.root)
    assert read.ports
    assert all(port.slot and port.is_native for port in read.ports)
    wanted = dict.fromkeys((DeviceClass.GPU, DeviceClass.NVME, DeviceClass.CXL_MEMORY), 256 * GIB)
    listed = list(machine.plan(msgspec.structs.replace(read, wanted=wanted)))
    assert {finding.check: finding.severity for finding in listed if "driver" not in finding.check} == {
        "host.hotplug": Severity.OK,
        "host.buses": Severity.OK,
        "host.windows": Severity.OK,
        "host.bars": Severity.OK,
        "host.iommu": Severity.NOTE,
    }


def test_a_card_without_addresses_is_an_error(drawbar_sysfs):
    gpu = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x740F, unassigned=True)
    drawbar_sysfs.tree.attach(1, gpu)
    read = read_machine(drawbar_sysfs.tree.root)
    (error,) = [finding for finding in machine.plan(read) if finding.severity is Severity.ERROR]
    assert (error.check, error.subject) == ("host.bars", f"gpu {drawbar_sysfs.tree.address(1)} in slot 1")


async def test_a_device_that_hangs_is_named_and_the_ports_are_read(drawbar_sysfs):
    gpu = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x740F)
    tree = drawbar_sysfs.tree
    tree.attach(1, gpu)
    with hanging_function(tree, tree.address(1)):
        observed = await machine_observation.observe(tree.root, None)
    assert [port.slot for port in observed.ports][:2] == ["1", "2"]
    (unread,) = [finding for finding in machine.plan(observed) if finding.check == "host.bars"]
    assert unread.severity is Severity.UNCHECKED
    assert f"function {tree.address(1)}" in unread.subject


def test_port_services_tell_which_ports_pciehp_has(drawbar_sysfs):
    root = drawbar_sysfs.tree.root
    first, second = (port.address for port in ports_of(root)[:2])
    for slot in ("1", "2"):
        (root / "bus/pci/slots" / slot / "module").unlink()
    assert [port.driver for port in ports_of(root)[:2]] == ["pciehp", "pciehp"]
    services = root / "bus/pci_express/drivers/pciehp"
    services.mkdir(parents=True)
    (services / f"{first}:pcie004").symlink_to("../nowhere")
    (services / "module").symlink_to("../nowhere")
    assert [(port.address, port.driver) for port in ports_of(root)[:2]] == [(first, "pciehp"), (second, "")]
    services.rename(services.with_name("aer"))
    assert read_machine(root).has_pciehp is False


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 4096, b"0x1 0x2", os.urandom(1 << 20), b"\0" * 256],
    ids=["empty", "ones", "cut", "1 MiB", "zeros"],
)
def test_garbage_in_a_ports_files_is_not_known(content, drawbar_sysfs):
    root = drawbar_sysfs.tree.root
    (folder,) = [root / "devices/pci0000:00" / ports_of(root)[0].address]
    for name in ("resource", "config", "subordinate_bus_number"):
        (folder / name).write_bytes(content)
    port = ports_of(root)[0]
    assert (port.windows, port.buses, port.driver) == (None, None, "pciehp")
    list(machine.plan(read_machine(root)))


@given(st.binary(max_size=300))
def test_any_configuration_space_tells_or_does_not(config):
    assert machine_observation.is_hotplug_capable(config) in (True, False, None)


async def test_a_host_without_sysfs_is_reported(tmp_path):
    read = await machine_observation.observe(tmp_path / "sys", None)
    assert unlike(machine.plan(read)) == {"unchecked host.hotplug"}


def test_drivers_are_found_where_the_host_has_them(drawbar_sysfs, tmp_path):
    folder = tmp_path / "lib/modules" / os.uname().release
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text(
        "kernel/drivers/net/mlx5-core.ko.xz: kernel/x.ko.xz\nupdates/nvidia.ko:\n"
    )
    (folder / "modules.builtin").write_text("kernel/drivers/nvme/host/nvme.ko\n")
    read = read_machine(drawbar_sysfs.tree.root, tmp_path)
    assert read.modules.available == {"mlx5_core", "nvidia", "nvme"}
    assert "pciehp" in read.modules.loaded
    assert read_machine(drawbar_sysfs.tree.root, NOWHERE).modules.available is None


def device(name="gpu", memory="80Gi", **spec):
    return slices.ResourceSlice(
        metadata=meta.ObjectMeta(name="s"),
        spec=slices.SliceSpec(
            driver="drawbar.dev",
            pool=slices.Pool(name="p", generation=1, resource_slice_count=1),
            devices=(
                slices.Device(
                    name="d",
                    attributes={"class": slices.Attribute(string=name)},
                    capacity={"memory": slices.Capacity(value=memory)} if memory else {},
                ),
            ),
            **spec,
        ),
    )


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ([device(), device(memory="40Gi")], {DeviceClass.GPU: 80 * GIB}),
        ([device(memory="")], {DeviceClass.GPU: 0}),
        ([device(memory="a lot")], {DeviceClass.GPU: 0}),
        ([device(name="cxl-memory-pool")], {}),
        ([device(node_name="n1")], {}),
    ],
    ids=["the largest counts", "unknown size", "no quantity", "a pool of memory", "of a node itself"],
)
def test_the_offers_of_fabrics_are_read_from_slices(published, expected):
    assert machine_observation.measure_classes(published) == expected


async def test_the_recorder_keeps_all_files_read_by_the_doctor(drawbar_sysfs, tmp_path):
    root = drawbar_sysfs.tree.root
    first = ports_of(root)[0].address
    service = root / "devices/pci0000:00" / first / f"{first}:pcie004"
    service.mkdir()
    drivers = root / "bus/pci_express/drivers/pciehp"
    drivers.mkdir(parents=True)
    (drivers / service.name).symlink_to(f"../../../../{service.relative_to(root)}")
    (root / "kernel/iommu_groups/0").mkdir(parents=True)
    (root / "kernel/iommu_groups/0/type").write_text("DMA-FQ\n")
    folder = tmp_path / "recorded"
    await recorder.record(recorder.Settings(folder=folder, sysfs=root), asyncio.Event())
    sysfs.load_recording(folder / recorder.START, tmp_path / "again")
    before, after = (read_machine(tree) for tree in (root, tmp_path / "again"))
    assert before == after
    assert before.iommu.modes == {"DMA-FQ"}
    assert before.has_pciehp is True


def test_of_a_command_line_only_options_about_devices_are_recorded():
    line = (
        "root=UUID=1 pci=hpbussize=8,realloc pcie_ports=native user=ann iommu=pt intel_iommu=on ip=10.0.0.1"
    )
    assert recorder.kernel_options(line) == [
        "pci=hpbussize=8,realloc",
        "pcie_ports=native",
        "iommu=pt",
        "intel_iommu=on",
    ]
