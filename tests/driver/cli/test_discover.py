"""`drawbar discover`, run on mocked and recorded hosts as a user runs it."""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenes import cards, handmade, kerneltrees
from tests.scenes.hangs import hanging_function

from drawbar.driver.cli import discover, discover_table
from drawbar.driver.node import errors, uevents
from drawbar.driver.node.discovery import devices, reader
from drawbar.driver.node.inventory import model, names, silences
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind
from drawbar.mocks.sysfs import MockDevice, SysfsTree, build, load_recording

RECORDINGS = Path(__file__).parents[2] / "cases" / "kernels" / "kernel-6.1-qemu"
GPU = MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="1654422000001")
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA80A, serial="S4EVNX0")
CXL = MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="77", memory_bytes=1 << 34
)

MAIN = """
import argparse, sys
from tests.scenes import cards, kerneltrees

from drawbar.driver.cli import discover, discover_table
parser = argparse.ArgumentParser()
discover.COMMAND.configure(parser)
sys.exit(discover.COMMAND.run(parser.parse_args()))
"""

PROGRAM = "import sys; from drawbar.driver import main; sys.exit(main.main())"


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    discover.COMMAND.configure(parser)
    return discover.COMMAND.run(parser.parse_args(arguments))


@pytest.fixture
def host(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=3, uevent_socket=tmp_path / "uevents")
    for slot, card in enumerate((GPU, NVME, CXL), start=1):
        tree.attach(slot, card)
    return tree


@pytest.mark.parametrize("form", ["json", "yaml", "table"])
def test_a_slots_name_that_is_not_utf8_is_shown(form, host, capsys):
    (host.root / "bus/pci/slots/1").rename(host.root / "bus/pci/slots/Riser \udcb0C")
    assert run("--sysfs", str(host.root), "-o", form) == 0
    assert "Riser " in capsys.readouterr().out


def test_json_holds_every_function_with_names_in_words(host, capsys):
    assert run("--sysfs", str(host.root), "-o", "json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"apiVersion", "kind", "cards", "functions", "slots", "cxl", "dax"}
    assert len(printed["functions"]) == 7
    gpu = next(function for function in printed["functions"] if function["deviceClass"] == "gpu")
    assert gpu == {
        "address": "0000:01:00.0",
        "deviceClass": "gpu",
        "classCode": "0x030200",
        "className": "3D controller",
        "vendorID": "0x10de",
        "vendorName": "NVIDIA Corporation",
        "deviceID": "0x2330",
        "deviceName": "GH100 [H100 SXM5 80GB]",
        "subsystemVendorID": "0x1af4",
        "subsystemDeviceID": "0x1100",
        "subsystemName": "Red Hat, Inc.",
        "driver": "nvidia",
        "serial": None,
        "deviceSerialNumber": None,
        "identifiers": [
            {"kind": "gpu-uuid", "value": GPU.text(Kind.GPU_UUID), "source": "/proc/driver/nvidia"},
        ],
        "missingIdentifiers": {},
        "numaNode": None,
        "pcieRoot": "pci0000:00",
        "linkSpeedGTs": 2.5,
        "linkWidth": 1,
        "maxLinkSpeedGTs": 2.5,
        "maxLinkWidth": 1,
        "slot": "1",
        "iommuGroup": None,
        "sriov": None,
        "physicalFunction": None,
        "ari": False,
        "defect": None,
        "deviceNodes": [
            {"path": "/dev/dri/card0", "type": "char", "major": 226, "minor": 0, "subsystem": "drm"},
            {"path": "/dev/dri/renderD128", "type": "char", "major": 226, "minor": 128, "subsystem": "drm"},
            {"path": "/dev/nvidia0", "type": "char", "major": 195, "minor": 0, "subsystem": "nvidia"},
        ],
        "networkInterfaces": [],
        "secondaryBus": None,
        "nvmeControllers": [],
        "fpgaManagers": [],
        "path": "devices/pci0000:00/0000:00:03.0/0000:01:00.0",
    }


def test_json_holds_the_cxl_topology_and_the_slots(host, capsys):
    run("--sysfs", str(host.root), "-o", "json")
    printed = json.loads(capsys.readouterr().out)
    assert {key: [device["name"] for device in value] for key, value in printed["cxl"].items()} == {
        "memdevs": ["mem0"],
        "ports": ["root0", "port1", "endpoint2"],
        "decoders": ["decoder0.0", "decoder1.0", "decoder2.0"],
        "regions": [],
    }
    assert printed["cxl"]["memdevs"][0] == {
        "name": "mem0",
        "path": "devices/pci0000:00/0000:00:05.0/0000:03:00.0/mem0",
        "serial": 77,
        "pciAddress": "0000:03:00.0",
        "ramBytes": 1 << 34,
        "pmemBytes": 0,
        "numaNode": None,
        "firmware": "BWFW VERSION 00",
        "deviceNode": {"path": "/dev/cxl/mem0", "type": "char", "major": 247, "minor": 0, "subsystem": "cxl"},
    }
    assert set(printed["slots"][0]) == {
        *("name", "address", "port", "isAmbiguous", "present", "powered", "attention"),
        *("speedGTs", "maxSpeedGTs"),
    }
    assert "sizeBytes" in printed["cxl"]["decoders"][0]
    assert "interleaveGranularityBytes" in printed["cxl"]["decoders"][0]


def test_cards_are_shown_with_their_functions(tmp_path, capsys):
    tree = build("fpga-node", tmp_path / "sys")
    run("--sysfs", str(tree.root), "-o", "json", "--class", "fpga")
    printed = json.loads(capsys.readouterr().out)
    assert [(card["address"], card["slot"], len(card["functions"])) for card in printed["cards"]] == [
        ("0000:41:00.0", "1", 5),
        ("0000:42:00.0", "2", 1),
    ]
    managers = [function["fpgaManagers"] for function in printed["functions"] if function["fpgaManagers"]]
    assert [[manager["state"] for manager in listed] for listed in managers] == [
        ["unknown"],  # of a DFL card, until a bitstream was loaded
        ["operating"],
    ]
    run("--sysfs", str(tree.root))
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.split()[-2:] == ["4", "-"]]
    assert line.split() == ["0000:41:00.0", "fpga", "1", "4", "-"]


def test_the_drivers_view_of_a_device_is_printed(tmp_path, capsys):
    for name in ("cxl-node", "nvme-node"):
        run("--sysfs", str(build(name, tmp_path / name / "sys").root), "-o", "json")
    cxl, nvme = capsys.readouterr().out.split("}\n{")
    cxl, nvme = json.loads(cxl + "}"), json.loads("{" + nvme)
    assert [(dax["name"], dax["region"], dax["driver"]) for dax in cxl["dax"]] == [
        ("dax0.0", "region0", "kmem")
    ]
    controllers = [
        function["nvmeControllers"] for function in nvme["functions"] if function["nvmeControllers"]
    ]
    assert [controller["state"] for [controller] in controllers] == ["live"] * 4
    assert {function["secondaryBus"] for function in nvme["functions"]} > {None, 0x41}


def test_class_filters_functions(host, capsys):
    run("--sysfs", str(host.root), "-o", "json", "--class", "gpu", "--class", "nvme")
    printed = json.loads(capsys.readouterr().out)
    assert [function["deviceClass"] for function in printed["functions"]] == ["gpu", "nvme"]


def test_an_unknown_class_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        run("--class", "toaster")
    assert ended.value.code == 2
    assert "cxl-memory" in capsys.readouterr().err


def set_terminal(monkeypatch, columns):
    """Make the output a terminal without colours of this width."""
    for name, content in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", str(columns))):
        monkeypatch.setenv(name, content)


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 160])
def test_a_terminal_of_any_width_gets_every_cell_and_no_broken_word(columns, host, capsys, monkeypatch):
    set_terminal(monkeypatch, columns)
    assert run("--sysfs", str(host.root)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    for function in reader.read(host.root).functions:
        assert any(line.startswith(f"{function.address}  {function.device_class}") for line in lines)
    words = " ".join(lines).split()
    assert {"[H100", "PM9A1/PM9A3/980PRO", "mem0", "16384", "/dev/dri/renderD128", "/dev/nvme0n1"} < set(
        words
    )


@pytest.mark.parametrize("columns", ["", "80"])
def test_a_function_in_a_pipe_is_one_line(columns, host, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    run("--sysfs", str(host.root))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "[H100 SXM5 80GB]" in line]
    assert "/dev/dri/renderD128" in line


@pytest.mark.parametrize(("best", "shown"), [((8.0, 4), "8GT/s x4"), ((16.0, 8), "8GT/s x4 (max 16GT/s x8)")])
def test_a_link_below_its_best_is_shown_with_that(best, shown):
    link = model.Link(speed_gts=8.0, width=4, max_speed_gts=best[0], max_width=best[1])
    assert discover_table._link(link) == shown


def test_a_card_without_power_and_hidden_serials_deserve_a_word(tmp_path, capsys):
    load_recording(RECORDINGS / "sysfs-2-cxl.json.gz", tmp_path / "sys")
    run("--sysfs", str(tmp_path / "sys"))
    assert "Slot 3 holds a card that is not powered" in capsys.readouterr().out


FORGED = "S\nremove  0000:ff:00.0 pci function\t\x1b]0;owned\x1b[31m\u202eN\x01 9"


def make_forged_tree(tmp_path):
    """Return a tree with a disk whose serial number has control characters, and one whose is a megabyte."""
    tree = kerneltrees.Tree(tmp_path / "sys")
    for number, serial in enumerate((FORGED, "X" * 1_000_000)):
        disk = tree.function(
            f"pci0000:00/0000:00:0{number}.0/0000:0{number + 1}:00.0",
            class_code=0x010802,
            vendor=0x1B36,
            device=0x10,
            driver="nvme",
        )
        tree.write(f"{disk}/nvme/nvme{number}/serial", serial)
    return tree


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize(
    "more",
    [
        (),
        (
            "-o",
            "json",
        ),
    ],
    ids=["table", "json"],
)
def test_no_device_forges_a_line_or_a_control_sequence_in_any_encoding(tmp_path, encoding, more):
    root = make_forged_tree(tmp_path).root
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "discover", "--sysfs", str(root), *more],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    written = done.stdout.decode(encoding)
    assert all(letter.isprintable() or letter == "\n" for letter in written)
    assert not [line for line in written.splitlines() if line.lstrip().startswith("remove")]
    if not more:
        assert len(written.partition("\n\n")[0].splitlines()) == 3


def test_a_watched_device_forges_no_line():
    disk = cards.function("0000:01:00.0", DeviceClass.NVME, serial=FORGED)
    change = discover.Change(action="add", subsystem="pci", address=disk.address, function=disk, device="x")
    line = discover._as_text(change, names.Names())
    assert line.isprintable()


def test_an_unready_card_is_reported_with_the_reason(tmp_path, capsys):
    tree = kerneltrees.Tree(tmp_path / "sys")
    nic = {"class_code": 0x020000, "vendor": 0x8086, "device": 0x154C, "driver": "vfio-pci"}
    tree.function("pci0000:00/0000:00:05.0", **nic)
    for function in (1, 2):
        tree.port(f"pci0000:80/0000:80:03.{function}", bus=0x80 + function)
    tree.slot("1", "0000:80:03")
    tree.slot("1-1", "0000:90:00")
    run("--sysfs", str(tree.root))
    printed = capsys.readouterr().out
    assert (
        "0000:00:05.0 is not ready: vfio-pci is bound without an IOMMU group; turn the IOMMU on." in printed
    )
    assert "Slot 1 has several possible ports at 0000:80:03; run drawbar discover as root" in printed


def test_a_host_with_nothing_to_show_reports_it(tmp_path, capsys):
    (tmp_path / "bus").mkdir()
    assert run("--sysfs", str(tmp_path)) == 0
    assert "No such PCI function here." in capsys.readouterr().out


def test_a_tree_that_is_not_there_is_an_error_for_the_user(tmp_path):
    with pytest.raises(errors.SysfsError, match="name one with --sysfs"):
        run("--sysfs", str(tmp_path / "absent"))


def run_without_reader(host: SysfsTree, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command with a standard output that is not read any more."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", MAIN, "--sysfs", str(host.root), *arguments]
    try:
        return subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (
            "-o",
            "json",
        ),
    ],
)
def test_a_reader_that_has_had_enough_causes_no_traceback(arguments, host):
    ended = run_without_reader(host, *arguments)
    assert (ended.returncode, ended.stderr) == (0, b"")


@contextlib.contextmanager
def watching(host: SysfsTree, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    source = f"unix:{host.root.parent / 'uevents'}"
    command = [
        sys.executable,
        "-c",
        MAIN,
        "--sysfs",
        str(host.root),
        "--watch",
        "--uevents",
        source,
        *arguments,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "Watching for changes; Ctrl-C ends.\n"
            yield process
        finally:
            process.kill()


def interrupt_process(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 130


def test_watch_prints_each_change_as_a_json_line_and_ends_quietly(host):
    with watching(host, "-o", "json", "--class", "nvme") as process:
        host.detach(1)
        host.detach(2)
        host.attach(2, NVME)
        assert process.stdout is not None
        changes = [json.loads(process.stdout.readline()) for _ in range(5 + 6)]
        interrupt_process(process)
    assert [(change["action"], change["device"]) for change in changes] == [
        ("remove", "ng0n1"),
        ("remove", "nvme0n1"),
        ("remove", "nvme0"),
        ("unbind", "0000:02:00.0"),
        ("remove", "0000:02:00.0"),
        ("add", "0000:02:00.0"),
        ("add", "nvme0"),
        ("bind", "0000:02:00.0"),
        ("change", "nvme0"),
        ("add", "nvme0n1"),
        ("add", "ng0n1"),
    ]
    assert {change["address"] for change in changes} == {"0000:02:00.0"}
    assert changes[-1]["function"]["serial"] == "S4EVNX0"
    assert changes[-1]["function"]["driver"] == "nvme"


def test_watch_prints_one_line_for_each_change_for_people(host):
    with watching(host, "--class", "gpu") as process:
        host.detach(1)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        interrupt_process(process)
    assert lines[0].startswith("remove  0000:01:00.0 drm card0 (gpu, NVIDIA Corporation")
    assert lines[3].startswith("remove  0000:01:00.0 pci function (gpu, NVIDIA Corporation")


async def watch_devices(tree):
    """Begin to watch a tree."""
    known = devices.Devices(tree.root, patience_seconds=0.05)
    await known.read()
    return discover.Watch(known)


async def test_an_overflow_is_answered_by_reading_again_and_telling_the_differences(host):
    watch = await watch_devices(host)
    host.detach(1)
    host.detach(2)
    host.attach(2, NVME)
    changes = await watch.take(uevents.Overflow())
    assert [(change.action, change.address) for change in changes] == [("remove", "0000:01:00.0")]
    host.attach(1, GPU)
    changes = await watch.take(uevents.Overflow())
    assert [(change.action, change.address) for change in changes] == [("add", "0000:01:00.0")]


async def test_events_received_after_the_function_is_gone_still_have_its_description(host):
    watch = await watch_devices(host)
    path = "/devices/pci0000:00/0000:00:03.0/0000:01:00.0"
    late = [
        uevents.parse(f"remove@{path}/drm/card0\0SUBSYSTEM=drm\0".encode()),
        uevents.parse(f"unbind@{path}\0SUBSYSTEM=pci\0".encode()),
        uevents.parse(f"remove@{path}\0SUBSYSTEM=pci\0".encode()),
    ]
    host.detach(1)
    changes = [change for event in late if event for change in await watch.take(event)]
    shown = [{each.value for each in change.function.identifiers} for change in changes if change.function]
    assert shown == [{GPU.text(Kind.GPU_UUID)}] * 3


async def test_an_event_of_a_device_that_hangs_is_told_with_its_last_description(host):
    watch = await watch_devices(host)
    event = uevents.parse(b"change@/devices/pci0000:00/0000:00:03.0/0000:01:00.0\0SUBSYSTEM=pci\0")
    with hanging_function(host, "0000:01:00.0"):
        (change,) = await watch.take(event)
    assert change.function.device_class == "gpu"


async def test_an_event_of_something_else_changes_nothing(host):
    watch = await watch_devices(host)
    event = uevents.parse(b"add@/devices/virtual/bdi/259:0\0ACTION=add\0SUBSYSTEM=bdi\0SEQNUM=1\0")
    assert event is not None
    assert await watch.take(event) == []


def test_json_says_which_identifiers_are_missing_and_why(tmp_path, capsys):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tree.attach(1, dataclasses.replace(GPU, initialised=False))
    tree.attach(2, dataclasses.replace(NVME, driver=""))
    run("--sysfs", str(tree.root), "-o", "json", "--class", "gpu", "--class", "nvme")
    printed = json.loads(capsys.readouterr().out)
    assert [function["missingIdentifiers"] for function in printed["functions"]] == [
        {"gpu-uuid": "not-initialised"},
        dict.fromkeys(("eui64", "nguid", "nvme-nqn", "nvme-serial"), "driver-not-bound"),
    ]


def test_vital_product_data_is_waited_for_a_moment(tmp_path, capsys):
    tree = handmade.Tree(tmp_path)
    tree.function("0000:17:00.0", (0x15B3, 0x1021), 0x020000, vpd={"SN": "MT2304XZ04QF", "PN": "MCX7"})
    slow = tree.function("0000:18:00.0", (0x15B3, 0x1021), 0x020000)
    os.mkfifo(slow / "vpd")
    inventory = discover.read(tree.root, 0.2)
    os.close(os.open(slow / "vpd", os.O_RDWR))
    assert [handmade.pairs(card) for card in inventory.cards] == [
        {("vpd-serial", "mt2304xz04qf"), ("part-number", "mcx7")},
        set(),
    ]
    assert silences.silences(inventory.cards[1].first)[Kind.VPD_SERIAL] == "vpd-slow"


def test_a_card_that_answers_in_time_is_shown_with_its_answer(tmp_path):
    tree = handmade.Tree(tmp_path)
    path = tree.function("0000:18:00.0", (0x15B3, 0x1021), 0x020000) / "vpd"
    os.mkfifo(path)
    answer = threading.Timer(0.3, lambda: os.close(os.open(path, os.O_RDWR)))
    answer.start()
    (card,) = discover.read(tree.root, 30).cards
    answer.join()
    assert Kind.VPD_SERIAL not in silences.silences(card.first)


def test_a_card_that_does_not_answer_is_named_and_the_others_are_shown(tmp_path, capsys):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    for slot in (1, 2):
        tree.attach(slot, NVME)
    (config,) = tree.root.glob(f"devices/**/{tree.address(1)}/config")
    config.unlink()
    os.mkfifo(config)
    run("--sysfs", str(tree.root), "--class", "nvme", "-o", "json")
    os.close(os.open(config, os.O_RDWR))
    shown = capsys.readouterr()
    assert [function["address"] for function in json.loads(shown.out)["functions"]] == [tree.address(2)]
    assert f"function {tree.address(1)} is left out" in shown.err


def test_the_table_shows_each_identifier_with_its_source(host, capsys):
    run("--sysfs", str(host.root), "--class", "nvme", "--class", "gpu")
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0000:01:00.0", "gpu-uuid", GPU.text(Kind.GPU_UUID), "/proc/driver/nvidia"] in shown
    assert ["0000:02:00.0", "nvme-serial", "s4evnx0", "nvme/nvme0/serial"] in shown
