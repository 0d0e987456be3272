"""What `drawbar discover --record` keeps of a host, loaded again and read as the host was."""

import asyncio
import contextlib
import errno
import gzip
import json
import os
import socket
from pathlib import Path

import msgspec
import pytest
from tests.scenes import cards, kerneltrees
from tests.scenes.hangs import hanging_function

from drawbar.driver import errors
from drawbar.driver.node import classes, treatment
from drawbar.driver.node.classes.cxl_memory import reading
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.errors import SysfsError
from drawbar.driver.node.health import readings
from drawbar.driver.node.recording import kinds, recorder, tree
from drawbar.driver.node.treatment import observation
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree, build, load_recording

RECORDINGS = Path(__file__).parents[3] / "cases" / "kernels" / "kernel-6.1-qemu"
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="S4YNNE0N800001")


def record_tree(root, folder, **settings):
    """Record the tree alone; return the summary."""
    chosen = recorder.Settings(folder=folder, sysfs=root, **settings)
    return asyncio.run(recorder.record(chosen, asyncio.Event()))


def again(root, tmp_path, **settings):
    """Return the tree, recorded and loaded."""
    record_tree(root, tmp_path / "recording", **settings)
    load_recording(tmp_path / "recording", tmp_path / "loaded" / "sys")
    return tmp_path / "loaded" / "sys"


def read(root, **limits):
    """Return the content of a tree, and the omissions."""
    left_out = tree.Omissions()
    return tree.read(str(root), tree.Limits(**limits), left_out), left_out


def snapshot(folder):
    return json.loads(gzip.decompress((folder / "sysfs.json.gz").read_bytes()))


def assert_alike(first, other):
    """Assert that both trees show the same to everything in the node daemon that reads them."""
    inventory = reader.read(first)
    assert cards.of_any_arrival(inventory) == cards.of_any_arrival(reader.read(other))
    hosts = classes.Host.from_sysfs(first), classes.Host.from_sysfs(other)
    for card in inventory.cards:
        assert readings.read(first, card) == readings.read(other, card)
        slot = card.slot.name if card.slot is not None else ""
        order = treatment.Order(card=card, slot=slot)
        looks = [observation.look(host, order, treatment.Progress()) for host in hosts]
        ours, theirs = (
            msgspec.structs.replace(look, card=look.card and cards.card_of_any_arrival(look.card))
            for look in looks
        )
        assert ours == theirs
        if card.memdevs:
            assert reading.read_layout(hosts[0], card) == reading.read_layout(hosts[1], card)


@pytest.mark.parametrize("name", ["switch-node", "fpga-node", "cxl-node", "empty-node"])
def test_a_mocked_host_is_the_same_once_it_was_recorded_and_loaded(name, tmp_path):
    host = build(name, tmp_path / "host" / "sys")
    assert_alike(host.root, again(host.root, tmp_path))


@pytest.mark.parametrize("name", ["sysfs-1-nvme", "sysfs-3-cxl-powered"])
def test_a_kernels_tree_is_the_same_once_it_was_recorded_and_loaded(name, tmp_path):
    root = tmp_path / "host" / "sys"
    load_recording(RECORDINGS / f"{name}.json.gz", root)
    assert_alike(root, again(root, tmp_path))


def test_this_very_host_is_the_same_once_it_was_recorded_and_loaded(tmp_path):
    loaded = again(reader.SYSFS, tmp_path)
    ours, theirs = reader.read(), reader.read(loaded)
    assert [function.address for function in ours.functions] == [f.address for f in theirs.functions]
    assert [function.driver for function in ours.functions] == [f.driver for f in theirs.functions]
    assert json.loads((tmp_path / "recording/recording.json").read_text())["kernel"]


def test_recorded_files_are_counted_and_private(tmp_path):
    host = build("cxl-node", tmp_path / "sys")
    summary = record_tree(host.root, tmp_path / "recording")
    (counts,) = summary["trees"]
    assert {key: counts[key] for key in ("pciFunctions", "slots", "cxlMemoryDevices", "daxDevices")} == {
        "pciFunctions": len(reader.read(host.root).functions),
        "slots": 4,
        "cxlMemoryDevices": 3,
        "daxDevices": 1,
    }
    assert counts["memoryBlocks"] > 0
    assert counts["bytes"] == (tmp_path / "recording/sysfs.json.gz").stat().st_size
    assert json.loads((tmp_path / "recording/recording.json").read_text()) == summary
    assert (summary["kernel"], summary["bootID"], summary["uevents"]) == (None, None, None)
    for path in (tmp_path / "recording", *(tmp_path / "recording").iterdir()):
        assert path.stat().st_mode & 0o077 == 0


def test_harmful_files_are_listed_and_not_read(tmp_path):
    host = build("switch-node", tmp_path / "sys")
    card = reader.read(host.root).by_serial("S4YNNE0N800001").path
    controller = f"{card}/nvme/nvme0"
    for name in (f"{card}/resource0", f"{card}/rom", f"{card}/vpd", f"{controller}/dhchap_secret"):
        (host.root / name).write_text("not to be read")
    (host.root / card / "made_by_the_driver").write_text("not to be read")
    (host.root / controller / "hwmon0").mkdir()
    (host.root / controller / "hwmon0" / "temp1_input").write_text("not to be read")
    summary = record_tree(host.root, tmp_path / "recording")
    entries = snapshot(tmp_path / "recording")
    assert "not to be read" not in json.dumps(entries)
    assert entries[f"/sys/{card}/vpd"] == {"mode": "0o644", "size": 14}
    assert set(summary["leftOut"]["neverRead"]["names"]) == {"resource0", "rom", "vpd", "dhchap_secret"}
    assert "made_by_the_driver" in summary["leftOut"]["notKnownHarmless"]["names"]
    assert not any("hwmon" in path for path in entries)


def test_a_file_whose_reading_hangs_is_left_out_with_its_neighbours(tmp_path):
    host = build("switch-node", tmp_path / "sys")
    card = reader.read(host.root).by_serial("S4YNNE0N800001")
    with hanging_function(host, card.address):
        summary = record_tree(host.root, tmp_path / "recording")
    entries = snapshot(tmp_path / "recording")
    left_out = summary["leftOut"]["notFinishedByKernel"]
    assert f"{card.path}/config" in left_out["names"]
    assert left_out["count"] < summary["trees"][0]["files"]
    assert "size" in entries[f"/sys/{card.path}/config"]
    load_recording(tmp_path / "recording", tmp_path / "loaded" / "sys")
    shown = reader.read(tmp_path / "loaded" / "sys").functions
    assert [each.address for each in shown] == [each.address for each in reader.read(host.root).functions]


@pytest.mark.parametrize("state", ["D3cold", "D3hot"])
def test_a_sleeping_device_is_not_woken(state, tmp_path):
    host = SysfsTree.create(tmp_path / "sys", slots=1)
    address = host.attach(1, NVME)
    path = f"bus/pci/devices/{address}"
    (host.root / path / "power_state").write_text(f"{state}\n")
    path = reader.read_function(host.root, address).path
    entries, left_out = read(host.root)
    for name in ("config", "current_link_speed", "max_link_width"):
        assert isinstance(entries[f"{path}/{name}"], kinds.Unread), name
    assert isinstance(entries[f"{path}/numa_node"], kinds.Content)
    assert f"{path}/config" in left_out.names(tree.Reason.ASLEEP)


def test_a_file_that_the_kernel_refuses_is_recorded_as_refused_and_stops_nothing(tmp_path):
    host = SysfsTree.create(tmp_path / "host/sys", slots=1)
    path = reader.read_function(host.root, host.attach(1, NVME)).path
    (host.root / path / "numa_node").unlink()
    folder = os.open(host.root / path, os.O_RDONLY)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as refusing:
        refusing.bind(f"/proc/self/fd/{folder}/numa_node")  # opening it is answered with ENXIO
    os.close(folder)
    entries, left_out = read(host.root)
    assert entries[f"{path}/numa_node"] == kinds.Refused(number=errno.ENXIO)
    assert left_out.names(tree.Reason.REFUSED) == (f"{path}/numa_node: No such device or address",)
    assert_alike(host.root, again(host.root, tmp_path))


def test_a_device_that_is_listed_and_gone_is_recorded_as_far_as_it_is_there(tmp_path):
    host = SysfsTree.create(tmp_path / "host/sys", slots=2)
    gone, stays = host.attach(1, NVME), host.attach(2, NVME)
    path = host.root / reader.read_function(host.root, gone).path
    path.rename(tmp_path / "away")
    loaded = again(host.root, tmp_path)
    assert reader.read_function(loaded, gone) is None
    ours, theirs = reader.read_function(host.root, stays), reader.read_function(loaded, stays)
    assert theirs == msgspec.structs.replace(ours, arrival=theirs.arrival)


async def test_devices_may_come_and_go_while_a_host_is_recorded(tmp_path):
    host = SysfsTree.create(tmp_path / "sys", slots=2)
    address = await asyncio.to_thread(host.attach, 1, NVME)
    stays = await asyncio.to_thread(host.attach, 2, NVME)
    power = host.root / "bus/pci/slots/1/power"
    done = asyncio.Event()

    async def toggle():
        wanted = "0"
        while not done.is_set():
            there = wanted == "1"
            async with asyncio.timeout(120):
                while (host.root / f"bus/pci/devices/{address}/driver").exists() != there:
                    # Again and again: the tree writes this file, too, and the later one counts.
                    with power.open("w") as file:
                        file.write(wanted)
                    await asyncio.sleep(0.005)
            wanted = "0" if there else "1"

    seen = set()
    async with host.reacting(), asyncio.TaskGroup() as tasks:
        tasks.create_task(toggle(), name="toggle")
        for number in range(4):
            folder = tmp_path / f"recording-{number}"
            await recorder.record(recorder.Settings(folder=folder, sysfs=host.root), asyncio.Event())
            loaded = tmp_path / f"loaded-{number}"
            load_recording(folder, loaded)
            inventory = await asyncio.to_thread(reader.read, loaded)
            seen |= {function.address for function in inventory.functions if function.driver == "nvme"}
            assert inventory.by_serial(NVME.serial) is not None
        done.set()
    assert {stays} <= seen <= {stays, address}


def test_a_file_that_is_too_long_is_left_out_and_named(tmp_path):
    host = SysfsTree.create(tmp_path / "sys", slots=1)
    path = reader.read_function(host.root, host.attach(1, NVME)).path
    (host.root / path / "label").write_text("x" * 5000)
    entries, left_out = read(host.root, file_bytes=4000)
    assert entries[f"{path}/label"] == kinds.Unread(mode=0o644, size=5000)
    assert left_out.names(tree.Reason.TOO_LARGE) == (f"{path}/label",)
    assert isinstance(entries[f"{path}/config"], kinds.Content), "configuration space has a limit of its own"


def test_a_recording_that_is_full_stays_within_its_bounds_and_says_how_much_is_missing(tmp_path):
    host = build("nvme-node", tmp_path / "sys")
    whole, _ = read(host.root)
    entries, left_out = read(host.root, entries=100)
    assert len(entries) == 100
    assert left_out.count(tree.Reason.NO_ROOM) >= len(whole) - 100
    assert len(left_out.names(tree.Reason.NO_ROOM)) <= 200
    entries, _ = read(host.root, tree_bytes=10_000)
    assert sum(len(each.data) for each in entries.values() if isinstance(each, kinds.Content)) <= 10_000


def test_a_recording_without_privilege_counts_cut_configurations(tmp_path):
    host = SysfsTree.create(tmp_path / "sys", slots=1)
    config = host.root / f"bus/pci/devices/{host.attach(1, NVME)}/config"
    config.write_bytes(config.read_bytes()[:64])
    (counts,) = record_tree(host.root, tmp_path / "recording")["trees"]
    assert counts["configurationsCut"] == 1


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("devices/pci0000:00/0000:00:03.0/net/eth0", True),
        ("devices/virtual/nvme-subsystem/nvme-subsys0", True),
        ("devices/virtual/net/docker0", False),
        ("devices/virtual/nvme-fabrics/ctl/nvme1", False),
        ("devices/virtual/block/loop0", False),
    ],
)
def test_devices_of_no_hardware_are_not_recorded(path, kept):
    assert kinds.concerns(path) is kept


def test_other_buses_of_the_host_are_recorded_no_deeper_than_their_device_files(tmp_path):
    host = SysfsTree.create(tmp_path / "host/sys", slots=1)
    function = reader.read_function(host.root, host.attach(1, NVME)).path
    deepest = host.root / function / "usb1/1-1/1-1:1.0/0003:1234"
    deepest.mkdir(parents=True)
    (host.root / function / "usb1/serial").write_text("of a user's keyboard")
    (host.root / function / "usb1/uevent").write_text("MAJOR=189\nMINOR=0\nDEVNAME=bus/usb/001/001\n")
    (deepest / "uevent").write_text("HID_NAME=Keyboard\n")
    assert_alike(host.root, again(host.root, tmp_path))
    assert "eyboard" not in json.dumps(snapshot(tmp_path / "recording"))


def test_devices_listed_by_a_class_are_recorded_at_any_depth(tmp_path):
    host = SysfsTree.create(tmp_path / "host/sys", slots=1)
    function = reader.read_function(host.root, host.attach(1, NVME)).path
    manager = f"{function}/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.1/fpga_manager/fpga7"
    (host.root / manager).mkdir(parents=True)
    for name, text in (("name", "Deep\n"), ("state", "operating\n")):
        (host.root / manager / name).write_text(text)
    for path, target in (
        (f"{manager}/subsystem", "class/fpga_manager"),
        ("class/fpga_manager/fpga7", manager),
    ):
        (host.root / path).parent.mkdir(parents=True, exist_ok=True)
        (host.root / path).symlink_to(os.path.relpath(host.root / target, (host.root / path).parent))
    (fpga_manager,) = reader.read(host.root).by_serial(NVME.serial).fpga_managers
    assert fpga_manager.title == "Deep"
    assert_alike(host.root, again(host.root, tmp_path))


def test_an_unusable_path_is_an_error_for_the_user(tmp_path):
    host = SysfsTree.create(tmp_path / "sys", slots=1)
    (tmp_path / "file").write_text("")
    for folder, words in (
        (tmp_path, "not empty"),
        (tmp_path / "file", "choose another"),
        (tmp_path / "file/x", "choose"),
    ):
        with pytest.raises(errors.UsageError, match=words):
            record_tree(host.root, folder)
    with pytest.raises(SysfsError, match="name one with --sysfs"):
        record_tree(tmp_path / "absent", tmp_path / "recording")
    assert not (tmp_path / "recording").exists()


def test_cards_as_servers_have_them_are_the_same_in_a_recording(tmp_path):
    host = SysfsTree.create(tmp_path / "sys", layout="server", iommu=False)
    port = MockDevice(
        device_class=DeviceClass.NIC, vendor=0x8086, device=0x0D58, driver="i40e", representors=2
    )
    fpga = MockDevice(
        device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B30, switch=True, further=(port,)
    )
    gpu = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x74A1, code=0x120000, partitions=4)
    disk = MockDevice(
        device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="S1", driver="vfio-pci"
    )
    for slot, card in ((1, fpga), (2, gpu), (3, disk)):
        host.attach(slot, card)
    other = again(host.root, tmp_path)
    assert_alike(host.root, other)
    hosts = (
        classes.Host(sysfs=host.root, dev=tmp_path / "dev"),
        classes.Host(sysfs=other, dev=tmp_path / "dev"),
    )
    for card in reader.read(other).cards:
        first, second = (classes.by_name(card.device_class).edits(card, each) for each in hosts)
        assert first == second


@pytest.mark.parametrize("function", [1, 2])
def test_the_number_that_firmware_gives_a_slot_is_recorded_and_nothing_else_of_the_firmware(
    tmp_path, function
):
    made = kerneltrees.Tree(tmp_path / "sys")
    for number in (1, 2):
        base = made.port(f"pci0000:80/0000:80:03.{number}", bus=0x80 + number)
        made.link(f"{base}/firmware_node", f"devices/LNXSYSTM:00/device:{number}")
        made.write(f"devices/LNXSYSTM:00/device:{number}/sun", number)
        made.write(f"devices/LNXSYSTM:00/device:{number}/path", "\\_SB_")
    made.slot(str(function), "0000:80:03")
    other = again(made.root, tmp_path)
    assert [slot.port for slot in reader.read(other).slots] == [f"0000:80:03.{function}"]
    assert not (other / "devices/LNXSYSTM:00/device:1/path").exists()
