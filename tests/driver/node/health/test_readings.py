"""What is read of a card's health, on mocked trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.node.discovery import reader
from drawbar.driver.node.health import policy, readings, samples
from drawbar.driver.node.health.samples import Severity
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

DISK = sysfs.MockDevice(
    device_class=DeviceClass.NVME,
    vendor=0x1B36,
    device=0x0010,
    serial="SN0001",
    link_speed_gts=16.0,
    link_width=4,
)
PORT = "0000:00:03.0"
MEMORY = sysfs.MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="0x1234", memory_bytes=1 << 30
)


@pytest.fixture
def tree(tmp_path):
    return sysfs.SysfsTree.create(tmp_path / "sys")


def card(tree, slot=1):
    return next(card for card in reader.read(tree.root).cards if card.address == tree.address(slot))


def read(tree, slot=1):
    return readings.read(tree.root, card(tree, slot))


def put(tree, slot, name, text):
    (tree.root / "bus/pci/devices" / tree.address(slot) / name).write_text(text)


def totals(log, severity):
    return log.counters[severity].total


def test_a_healthy_disk_has_a_driver_a_live_controller_and_no_errors(tree):
    tree.attach(1, DISK)
    seen = read(tree)
    assert (seen.address, seen.device_class, seen.driver) == (tree.address(1), "nvme", "nvme")
    assert seen.nvme == {"nvme0": "live"}
    assert (seen.asleep, seen.silent, seen.memdevs) == (False, (), ())
    assert [log.address for log in seen.logs] == [tree.address(1), PORT]
    assert all(log.counters[severity].total == 0 for log in seen.logs for severity in Severity)


def test_the_errors_of_the_port_above_and_those_that_the_root_port_received_are_read_too(tree):
    tree.attach(1, DISK)
    tree.add_errors(1, sysfs.Severity.CORRECTABLE, {"BadTLP": 2, "Timeout": 1})
    tree.add_errors(1, sysfs.Severity.FATAL, {"DLP": 4}, at_port=True)
    seen = read(tree)
    device, port = seen.logs
    assert device.counters[Severity.CORRECTABLE].kinds == {"BadTLP": 2, "Timeout": 1}
    assert (totals(device, Severity.CORRECTABLE), totals(port, Severity.FATAL)) == (3, 4)
    assert (totals(seen.messages, Severity.CORRECTABLE), totals(seen.messages, Severity.FATAL)) == (3, 4)


def test_a_port_of_a_switch_receives_no_errors(tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "switched", layout="one-switch")
    tree.attach(1, DISK)
    seen = read(tree)
    assert seen.messages is None
    assert len(seen.logs) == 2


def test_the_link_of_a_card_with_a_switch_is_the_one_to_its_slot(tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "switched", layout="one-switch")
    tree.attach(1, DISK)
    seen = reader.read(tree.root)
    endpoint = seen.by_address(tree.address(1))
    *_, root_port, upstream, downstream, _end = endpoint.path.split("/")
    bridges = (seen.by_address(downstream), seen.by_address(upstream))
    reading = readings.read(tree.root, model.Card(functions=(endpoint, *bridges)))
    assert [log.address for log in reading.logs] == [endpoint.address, downstream, upstream, root_port]
    assert (reading.link.most_gts, reading.link.most_width) == (32.0, 16)
    assert reading.messages.address == root_port


def test_a_function_of_the_root_complex_has_no_link_and_no_port(tree):
    tree.attach(1, DISK)
    bridge = reader.read(tree.root).by_address(PORT)
    reading = readings.read(tree.root, model.Card(functions=(bridge,)))
    assert (reading.link, reading.messages) == (None, None)


def test_a_card_without_error_reporting_has_only_its_port_s_counters(tree):
    tree.attach(1, sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=1, aer=False))
    assert [log.address for log in read(tree).logs] == [PORT]


@pytest.mark.parametrize(
    ("text", "total", "kinds"),
    [
        ("RxErr 0\nBadTLP 3\nTOTAL_ERR_COR 2\n", 2, {"BadTLP": 3}),
        (
            "Receiver Error 1\nBad TLP 0\nRELAY_NUM Rollover 2\n",
            3,
            {"Receiver Error": 1, "RELAY_NUM Rollover": 2},
        ),
        ("BadTLP many\nRxErr 1\n\nnonsense", 1, {"RxErr": 1}),
    ],
    ids=["short names and a total", "long names and no total", "nonsense between"],
)
def test_counters_are_split_at_the_last_space(text, total, kinds):
    assert readings.counters(text) == samples.Counters(total=total, kinds=kinds)


@given(st.text(max_size=200))
def test_no_file_of_counters_is_too_odd(text):
    counters = readings.counters(text)
    assert counters is None or counters.total >= 0


def test_the_maximum_of_a_link_is_the_minimum_of_both_ends(tree):
    tree.attach(1, DISK)
    link = read(tree).link
    assert (link.speed_gts, link.width, link.most_gts, link.most_width) == (16.0, 4, 16.0, 4)
    tree.set_link(1, speed_gts=5.0, width=2)
    link = read(tree).link
    assert (link.speed_gts, link.width, link.most_gts, link.most_width) == (5.0, 2, 16.0, 4)


@pytest.mark.parametrize(("speed", "width"), [("Unknown", "4"), ("16.0 GT/s PCIe", "63"), ("", "")])
def test_a_link_that_is_down_says_nothing(tree, speed, width):
    tree.attach(1, DISK)
    put(tree, 1, "current_link_speed", speed)
    put(tree, 1, "current_link_width", width)
    assert read(tree).link is None


def test_a_sleeping_device_is_not_asked_for_its_link_or_whether_it_answers(tree):
    tree.attach(1, DISK)
    tree.set_link(1, speed_gts=2.5)
    tree.lose(1)
    put(tree, 1, "power_state", "D3cold\n")
    seen = read(tree)
    assert seen.asleep
    assert (seen.link, seen.silent) == (None, ())


def test_a_card_that_answers_all_ones_is_silent_although_the_kernel_still_shows_it(tree):
    tree.attach(1, DISK)
    tree.lose(1)
    assert read(tree).silent == (tree.address(1),)


def test_virtual_functions_are_not_asked_whether_they_answer(tree):
    tree.attach(1, sysfs.MockDevice(device_class=DeviceClass.NIC, vendor=0x15B3, device=2, total_vfs=4))
    tree.set_vfs(1, 2)
    device = card(tree)
    assert len(device.functions) == 3
    for function in device.functions[1:]:
        (tree.root / function.path / "config").write_bytes(b"\xff" * 64)
    seen = readings.read(tree.root, device)
    assert (seen.silent, len(seen.logs)) == ((), 2)


def test_a_card_that_was_pulled_is_gone(tree):
    tree.attach(1, DISK)
    before = card(tree)
    tree.surprise_remove(1)
    assert readings.read(tree.root, before) == samples.Gone()


def test_a_driver_that_is_not_bound_is_none(tree):
    tree.attach(1, DISK)
    device = card(tree)
    (tree.root / device.first.path / "driver").unlink()
    assert readings.read(tree.root, device).driver is None


def test_a_controller_s_state_is_the_kernel_s_word(tree):
    tree.attach(1, DISK)
    put(tree, 1, "nvme/nvme0/state", "deleting (no IO)\n")
    assert read(tree).nvme == {"nvme0": "deleting (no IO)"}


def test_memory_that_is_mapped_has_committed_decoders(tree):
    tree.attach(1, MEMORY)
    (memdev,) = read(tree).memdevs
    assert (memdev.name, memdev.driver, memdev.security, memdev.committed) == ("mem0", "cxl_mem", None, 0)
    region = tree.create_region([1])
    assert read(tree).memdevs[0].committed == 1
    tree.destroy_region(region)
    assert read(tree).memdevs[0].committed == 0


def test_the_kernel_s_own_count_of_committed_decoders_comes_first(tree):
    tree.attach(1, MEMORY)
    device = card(tree)
    (endpoint,) = (tree.root / "bus/cxl/devices").glob("endpoint*")
    (endpoint / "decoders_committed").write_text("7\n")
    security = tree.root / device.memdevs[0].path / "security"
    security.mkdir(exist_ok=True)
    (security / "state").write_text("locked\n")
    (memdev,) = readings.read(tree.root, device).memdevs
    assert (memdev.committed, memdev.security) == (7, "locked")


def test_a_memory_device_without_an_endpoint_shows_no_decoders(tree):
    tree.attach(1, MEMORY)
    device = card(tree)
    (endpoint,) = (tree.root / "bus/cxl/devices").glob("endpoint*")
    endpoint.unlink()
    assert readings.read(tree.root, device).memdevs[0].committed is None


def test_a_directory_with_nothing_in_it_but_one_file_is_read(tree):
    tree.attach(1, MEMORY)
    device = card(tree)
    folder = tree.root / device.first.path
    for entry in folder.iterdir():
        if entry.is_file() and entry.name != "vendor":
            entry.unlink()
    seen = readings.read(tree.root, device)
    assert (seen.link, seen.silent) == (None, ())


def test_files_that_rules_name_are_read_but_not_of_a_device_that_sleeps(tree, monkeypatch):
    tree.attach(1, DISK)
    monkeypatch.setattr(policy, "FILES", ("vendor", "no-such-file"))
    assert read(tree).files == {"vendor": "0x1b36"}
    put(tree, 1, "power_state", "D3hot\n")
    assert read(tree).files == {}
