"""The mocked sysfs against the recording of a real kernel, and the worlds it refuses."""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drawbar.driver.node import uevents
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass
from drawbar.mocks.sysfs import ImpossibleWorld, MockDevice, SysfsTree, load_recording, wire

RECORDINGS = Path(__file__).parents[1] / "cases" / "kernels" / "kernel-6.1-qemu"
# QEMU's devices count no errors.
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001", aer=False)
CXL = MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="4660", memory_bytes=1 << 28
)
PORT = "devices/pci0000:00/0000:00:03.0"
NVME_PATH = f"{PORT}/0000:01:00.0"


def read_recording(name: str) -> dict[str, dict[str, str]]:
    entries = json.loads(gzip.decompress((RECORDINGS / f"{name}.json.gz").read_bytes()))
    return {path.removeprefix("/sys/"): entry for path, entry in entries.items()}


def contents(root: Path) -> dict[str, dict[str, str]]:
    """Return the tree in the form of a recording, without file contents."""
    contents_by_path = {}
    for folder, directories, files in os.walk(root):
        for name in [*directories, *files]:
            path = Path(folder) / name
            if path.is_symlink():
                contents_by_path[str(path.relative_to(root))] = {"link": str(path.readlink())}
            elif path.is_file():
                contents_by_path[str(path.relative_to(root))] = {"mode": oct(path.stat().st_mode & 0o777)}
    return contents_by_path


def kind(entry: dict[str, str]) -> dict[str, str]:
    return {"link": entry["link"]} if "link" in entry else {"mode": entry["mode"]}


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDINGS.glob("*.json.gz")))
def test_a_recording_is_written_as_the_tree_it_was_taken_from(name, tmp_path):
    load_recording(RECORDINGS / name, tmp_path)
    expected = read_recording(name.removesuffix(".json.gz"))
    assert contents(tmp_path) == {path: kind(entry) for path, entry in expected.items()}
    for path, entry in expected.items():
        if "text" in entry:
            assert (tmp_path / path).read_text() == entry["text"]


def test_a_file_the_kernel_refused_to_read_is_not_readable(tmp_path):
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(
        json.dumps({"/sys/a/vpd": {"errno": 5}, "/sys/a/ok": {"text": "1\n", "mode": "0o444"}})
    )
    load_recording(snapshot, tmp_path / "sys")
    assert (tmp_path / "sys/a/ok").read_text() == "1\n"
    with pytest.raises(OSError):  # noqa: PT011 - any errno will do
        (tmp_path / "sys/a/vpd").read_bytes()


@pytest.mark.parametrize(
    "content", ["nonsense", "[]", '{"/etc/passwd": {"text": ""}}', '{"/sys/../x": {"text": ""}}']
)
def test_an_invalid_recording_is_refused(content, tmp_path):
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(content)
    with pytest.raises(ImpossibleWorld, match="no recording of /sys"):
        load_recording(snapshot, tmp_path / "sys")


NOT_MOCKED = re.compile(
    r"/(hwmon0|queue|integrity|mq|trace|msi_irqs|power|pci_bus|0000:00:03\.0:pcie\d+|pmem0)(/|$)"
)


def test_a_mocked_nvme_device_has_the_names_modes_and_links_of_the_recorded_one(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tree.attach(1, NVME)
    mocked, real = contents(tree.root), read_recording("sysfs-1-nvme")
    ours = {path: entry for path, entry in mocked.items() if "0000:01:00.0" in path or "/slots/" in path}
    unknown = {path: entry for path, entry in ours.items() if path not in real}
    assert unknown == {}
    assert {path: kind(real[path]) for path in ours} == ours
    missing = [
        p for p in real if p.startswith(NVME_PATH + "/") and p not in ours and not NOT_MOCKED.search(p)
    ]
    assert sorted(path.removeprefix(NVME_PATH + "/") for path in missing) == [
        *("nvme/nvme0/dctype", "nvme/nvme0/kato"),
        *(
            f"nvme/nvme0/nvme0n1/{name}"
            for name in (
                *("alignment_offset", "bdi", "capability", "discard_alignment", "diskseq", "events"),
                *("events_async", "events_poll_msecs", "ext_range", "inflight", "range", "stat", "wwid"),
            )
        ),
        "pools",
    ]


@pytest.mark.parametrize(
    "name", ["class", "vendor", "device", "subsystem_vendor", "numa_node", "uevent", "driver"]
)
def test_a_mocked_nvme_device_matches_the_recorded_one(name, tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tree.attach(1, NVME)
    real = read_recording("sysfs-1-nvme")[f"{NVME_PATH}/{name}"]
    ours = tree.root / NVME_PATH / name
    if "link" in real:
        assert str(ours.readlink()) == real["link"]
    else:
        # The programming interface's revision: 0x010802 in both.
        assert ours.read_text() == real["text"]


def test_an_endpoint_decoder_and_memdev_have_the_names_modes_and_links_of_the_recorded_ones(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    tree.attach(1, CXL)
    mocked, real = contents(tree.root), read_recording("sysfs-3-cxl-powered")
    for folder in (
        "devices/platform/ACPI0017:00/root0/port1/endpoint2",
        "devices/platform/ACPI0017:00/root0/port1",
    ):
        for path, entry in mocked.items():
            if path.startswith(folder + "/") and not path.endswith(("/uport", "/dport0")):
                assert kind(real[path]) == entry, path
    names = {p.rpartition("/mem0/")[2]: e for p, e in mocked.items() if "0000:01:00.0/mem0/" in p}
    recorded = {p.rpartition("/mem0/")[2]: kind(e) for p, e in real.items() if "0000:0d:00.0/mem0/" in p}
    assert names == {name: entry for name, entry in recorded.items() if not name.startswith("pmem0/")}


def receive_uevents(receiver: socket.socket) -> list[uevents.Uevent]:
    events: list[uevents.Uevent] = []
    while True:
        try:
            event = uevents.parse(receiver.recv(65536))
        except BlockingIOError:
            return events
        assert event is not None
        events.append(event)


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as receiver:
        receiver.bind(str(tmp_path / "uevents"))
        yield receiver


NVME_NOT_SENT = {"nvme-subsystem", "hwmon", "bdi"}


def recorded_events(first: int, last: int) -> list[uevents.Uevent]:
    lines = (RECORDINGS / "uevents.jsonl").read_text().splitlines()
    events = [uevents.parse(json.loads(line)["msg"].replace("\n", "\0").encode()) for line in lines]
    return [e for e in events if e and first <= e.seqnum <= last and e.subsystem not in NVME_NOT_SENT]


def comparable(event: uevents.Uevent) -> tuple[str, str, list[tuple[str, str]]]:
    pairs = [pair for pair in event.properties.items() if pair[0] not in ("SEQNUM", "DISKSEQ")]
    return event.action, event.devpath, pairs


def test_an_nvme_device_comes_and_goes_with_the_recorded_events(tmp_path, listener):
    tree = SysfsTree.create(tmp_path / "sys", slots=2, uevent_socket=tmp_path / "uevents")
    assert receive_uevents(listener) == []
    tree.attach(1, NVME)
    came = receive_uevents(listener)
    assert [comparable(event) for event in came] == [comparable(event) for event in recorded_events(715, 723)]
    tree.detach(1)
    went = receive_uevents(listener)
    assert [comparable(event) for event in went] == [comparable(event) for event in recorded_events(735, 742)]
    assert [event.seqnum for event in came + went] == list(range(1, len(came + went) + 1))


def test_a_cxl_device_comes_with_events_in_the_recorded_order(tmp_path, listener):
    tree = SysfsTree.create(tmp_path / "sys", slots=1, uevent_socket=tmp_path / "uevents")
    tree.attach(1, CXL)
    ours = [(event.action, event.devpath.rpartition("/")[2]) for event in receive_uevents(listener)]
    pmem = ("pmem0", "nmem0")
    real = [(e.action, e.devpath.rpartition("/")[2]) for e in recorded_events(724, 734)]
    assert ours == [(action, name.replace("0000:0d", "0000:01")) for action, name in real if name not in pmem]


def test_events_that_nobody_listens_to_are_dropped(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "absent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / "uevents"))
    other = SysfsTree.create(tmp_path / "other", uevent_socket=tmp_path / "uevents")
    for each in (tree, other):
        assert each.attach(1, NVME) == "0000:01:00.0"


ALL_CLASSES = [
    MockDevice(device_class=kind, vendor=0x10EE, device=1, memory_bytes=1 << 30, driver=driver)
    for kind in OFFERED_CLASSES
    for driver in (None, "", "vfio-pci")
]


@pytest.mark.parametrize("card", ALL_CLASSES, ids=lambda card: f"{card.device_class}-{card.driver}")
def test_a_card_that_was_put_in_and_taken_out_leaves_nothing_behind(card, tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tree.attach(2, CXL)

    def devices() -> dict[str, str]:
        files = [
            path for path in (tree.root / "devices").rglob("*") if path.is_file() and not path.is_symlink()
        ]
        return {str(path): path.read_text(errors="replace") for path in files}

    before = contents(tree.root), devices()
    tree.attach(1, card)
    assert contents(tree.root) != before[0]
    tree.detach(1)
    after = {path: entry for path, entry in contents(tree.root).items() if "/drivers/" not in path}
    assert after == {path: entry for path, entry in before[0].items() if "/drivers/" not in path}
    assert devices() == before[1]
    # The emptied directories keep their numbers, which the kernel uses once.
    graves = list((tree.root.parent / ".sys.staging").iterdir())
    assert all(grave.suffix == ".removed" and not any(grave.iterdir()) for grave in graves)


def test_every_link_into_the_tree_leads_somewhere(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=8)
    for slot, kind_ in enumerate(OFFERED_CLASSES, start=1):
        tree.attach(slot, MockDevice(device_class=kind_, vendor=0x10EE, device=1))
    for path in tree.root.rglob("*"):
        if path.is_symlink():
            assert path.exists(), path


def test_devices_of_one_class_get_the_lowest_free_number(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    for slot in (1, 2, 3):
        tree.attach(slot, NVME)
    tree.detach(2)
    tree.attach(4, NVME)
    assert sorted(path.name for path in (tree.root / "class/nvme").iterdir()) == ["nvme0", "nvme1", "nvme2"]
    assert "0000:04:00.0" in str((tree.root / "class/nvme/nvme1").readlink())


def test_taking_out_of_an_empty_slot_does_nothing(tmp_path, listener):
    tree = SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    tree.detach(1)
    assert receive_uevents(listener) == []


def test_a_card_whose_attach_was_cut_short_can_be_taken_out(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    tree.attach(1, NVME)
    (tree.root / "class/nvme/nvme0").unlink()
    for name in ("nvme0n1", "ng0n1"):
        leftover = tree.root / NVME_PATH / "nvme/nvme0" / name
        leftover.rename(tmp_path / name)
    tree.detach(1)
    assert not (tree.root / NVME_PATH).exists()
    assert tree.attach(1, NVME) == "0000:01:00.0"


@pytest.mark.parametrize(
    ("slot", "card", "complaint"),
    [
        (1, NVME, "slot 1 .* is occupied"),
        (0, NVME, "slots 1 to 4, no slot 0"),
        (5, NVME, "slots 1 to 4, no slot 5"),
        (2, MockDevice(device_class=DeviceClass.GPU, vendor=0x1FFFF, device=1), "is no PCI id"),
        (2, MockDevice(device_class=DeviceClass.GPU, vendor=1, device=-1), "is no PCI id"),
        (
            2,
            MockDevice(device_class=DeviceClass.GPU, vendor=1, device=1, serial="GPU\n7"),
            "no serial number",
        ),
        (2, MockDevice(device_class=DeviceClass.CXL_MEMORY, vendor=1, device=1, serial="x"), "no CXL serial"),
        (2, MockDevice(device_class=DeviceClass.NVME, vendor=1, device=1, serial="é"), "no NVMe serial"),
        (2, MockDevice(device_class=DeviceClass.NVME, vendor=1, device=1, serial="S" * 21), "no NVMe serial"),
        (
            2,
            MockDevice(device_class=DeviceClass.NVME, vendor=1, device=1, memory_bytes=-1),
            "bytes of memory",
        ),
    ],
)
def test_an_impossible_world_is_refused_and_changes_nothing(slot, card, complaint, tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    tree.attach(1, NVME)
    before = contents(tree.root), tree.list_attached_cards()
    with pytest.raises(ImpossibleWorld, match=complaint):
        tree.attach(slot, card)
    assert (contents(tree.root), tree.list_attached_cards()) == before


def test_a_host_is_made_only_where_nothing_is_and_opened_only_where_one_is(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    with pytest.raises(ImpossibleWorld, match="exists already"):
        SysfsTree.create(tmp_path / "sys")
    with pytest.raises(ImpossibleWorld, match="create one first"):
        SysfsTree.open(tmp_path / "other")
    with pytest.raises(ImpossibleWorld, match="0 to 224 slots"):
        SysfsTree.create(tmp_path / "many", slots=225)
    with pytest.raises(ImpossibleWorld, match="too long"):
        SysfsTree.create(tmp_path / "far", uevent_socket=Path("/" + "long/" * 30))
    (tmp_path / "sys.json").write_text("{")
    with pytest.raises(ImpossibleWorld, match="does not describe"):
        tree.attach(1, NVME)


def test_the_largest_host_has_a_bus_and_a_port_of_its_own_for_every_slot(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=224)
    assert len(list((tree.root / "bus/pci/devices").iterdir())) == 225
    assert tree.attach(224, NVME) == "0000:e0:00.0"
    assert tree.list_attached_cards() == {224: NVME}


ATTACH = """
import sys
import time
from pathlib import Path
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree
card = MockDevice(device_class=DeviceClass.NVME, vendor=0x144d, device=0xa80a)
SysfsTree.open(Path(sys.argv[1])).attach(int(sys.argv[2]), card)
"""


def test_several_processes_can_put_cards_into_one_host_at_once(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=4)
    command = [sys.executable, "-c", ATTACH, str(tree.root)]
    workers = [subprocess.Popen([*command, str(slot)]) for slot in range(1, 5)]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert sorted(path.name for path in (tree.root / "class/nvme").iterdir()) == [
        f"nvme{n}" for n in range(4)
    ]
    assert sorted(tree.list_attached_cards()) == [1, 2, 3, 4]


def test_a_sender_sleeps_while_a_listener_reads_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "_PATIENCE_SECONDS", 0.5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "uevents"))
        began = time.thread_time()
        while wire.send(tmp_path / "uevents", b"event"):
            pass
        assert time.thread_time() - began < 0.1
