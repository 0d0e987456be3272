"""`drawbar discover --record`, run as a user runs it, and the events that it keeps."""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drawbar.driver import errors
from drawbar.driver.cli import discover
from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.errors import UeventError
from drawbar.driver.node.recording import recorder
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree, load_events, load_recording, wire

RECORDINGS = Path(__file__).parents[2] / "cases" / "kernels" / "kernel-6.1-qemu"
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="S4YNNE0N800001")


def run(*arguments):
    parser = argparse.ArgumentParser()
    discover.COMMAND.configure(parser)
    return discover.COMMAND.run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def host(tmp_path):
    return SysfsTree.create(tmp_path / "sys", slots=2, uevent_socket=tmp_path / "u")


def test_the_command_prints_path_size_and_contents_of_a_recording(host, tmp_path, capsys):
    host.attach(1, NVME)
    assert run("--sysfs", host.root, "--record", tmp_path / "r", "--record-seconds", "0") == 0
    output = capsys.readouterr().out
    assert f"Written to {tmp_path / 'r'}" in output
    count = len(reader.read(host.root).functions)
    assert f"{count} PCI functions, 2 slots; " in output
    assert "never read" in output
    assert "resource0" in output
    assert "--mask-serials replaces them" in output
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"sysfs.json.gz", "recording.json"}


def test_json_has_the_same_for_programs(host, tmp_path, capsys):
    run(
        "--sysfs",
        host.root,
        "--record",
        tmp_path / "r",
        "--record-seconds",
        "0",
        "-o",
        "json",
        "--mask-serials",
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("folder") == str(tmp_path / "r")
    assert printed == json.loads((tmp_path / "r/recording.json").read_text())
    assert printed["masked"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mask-serials",), "add --record DIR"),
        (("--record-seconds", "3"), "add --record DIR"),
        (("--record", "r", "--watch"), "leave --watch and --class out"),
        (("--record", "r", "--class", "gpu"), "leave --watch and --class out"),
        (("--record", "r", "--record-seconds", "-1"), "give 0 to"),
        (("--record", "r", "--record-seconds", "nan"), "give 0 to"),
    ],
)
def test_options_that_do_not_go_together_are_reported_in_a_sentence(arguments, words):
    with pytest.raises(errors.UsageError, match=words):
        run(*arguments)


def test_ctrl_c_ends_a_recording_with_its_events_and_the_tree_as_it_is_then(host, tmp_path):
    main = "import sys; from drawbar.driver import main; sys.exit(main.main())"
    source, folder = f"unix:{tmp_path / 'u'}", tmp_path / "r"
    command = [
        sys.executable,
        "-c",
        main,
        "discover",
        "--sysfs",
        host.root,
        "--uevents",
        source,
        "--record",
        folder,
    ]
    with subprocess.Popen(
        [*command, "--mask-serials"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr.readline() == "Recording events, Ctrl-C ends.\n"
            address = host.attach(1, NVME)
            process.send_signal(signal.SIGINT)
            output, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    assert "sysfs-end.json.gz" in output
    events = [uevents.parse(event.datagram) for event in load_events(folder)]
    assert [(event.action, event.devpath.rpartition("/")[2]) for event in events][:2] == [
        ("add", address),
        ("add", "nvme0"),
    ]
    assert not any(NVME.serial in str(event.properties) for event in events)
    for name, there in (("sysfs.json.gz", False), ("sysfs-end.json.gz", True)):
        load_recording(folder / name, tmp_path / name)
        function = reader.read_function(tmp_path / name, address)
        assert (function is not None) == there
    assert function.serial == "MASKED000001"


async def test_a_recording_ends_by_itself_after_its_seconds_and_needs_no_second_tree_if_nothing_happened(
    host, tmp_path
):
    settings = recorder.Settings(
        folder=tmp_path / "r", sysfs=host.root, source=f"unix:{tmp_path / 'u'}", seconds=0.01
    )
    summary = await recorder.record(settings, asyncio.Event())
    assert summary["uevents"]["events"] == 0
    assert [tree["file"] for tree in summary["trees"]] == ["sysfs.json.gz"]
    assert load_events(tmp_path / "r") == ()


async def test_events_are_masked_as_the_tree_is(host, tmp_path):
    identity, stop = "5b39d29b-197a-4b21-8a76-3c116a3705b6", asyncio.Event()
    settings = recorder.Settings(
        folder=tmp_path / "r", sysfs=host.root, source=f"unix:{tmp_path / 'u'}", seconds=None, masked=True
    )

    def ready():
        devpath = f"/devices/pci0000:00/{identity}"
        variables = {"ACTION": "add", "SUBSYSTEM": "nd", "OF": identity.upper()}
        assert wire.send(tmp_path / "u", wire.encode("add", devpath, variables))
        stop.set()

    await recorder.record(settings, stop, ready)
    (event,) = load_events(tmp_path / "r")
    pseudonym = b"00000000-0000-4000-8000-000000000001"
    assert event.datagram.count(pseudonym) == 2
    assert identity.encode() not in event.datagram.lower()


async def test_events_that_cannot_be_received_end_the_recording_before_it_begins(host, tmp_path):
    settings = recorder.Settings(folder=tmp_path / "r", sysfs=host.root, source="nonsense", seconds=None)
    with pytest.raises(UeventError, match="not a source of uevents"):
        await recorder.record(settings, asyncio.Event())


class Source:
    """Events from a list, and an error at the end if there is one."""

    def __init__(self, *events, error=None):
        self._events, self._error = events, error

    async def events(self):
        for event in self._events:
            yield event
        if self._error is not None:
            raise self._error


def event(subsystem, devpath="/devices/pci0000:00/0000:00:03.0"):
    return uevents.parse(f"add@{devpath}\0ACTION=add\0SUBSYSTEM={subsystem}\0SEQNUM=7\0".encode())


async def test_only_events_of_recorded_devices_are_kept_and_only_so_many():
    listener = recorder.Listener(most=2)
    keyboard, tunnel = event("input"), event("net", "/devices/virtual/net/tun0")
    await listener.listen(
        Source(event("pci"), keyboard, tunnel, event("nvme"), event("cxl"), uevents.Overflow())
    )
    assert [event.message.split("\n")[2] for event in listener.events] == ["SUBSYSTEM=pci", "SUBSYSTEM=nvme"]
    assert (listener.others, listener.dropped, listener.overflows, listener.broken) == (2, 1, 1, None)


async def test_events_that_end_early_are_kept_with_the_reason():
    listener = recorder.Listener()
    await listener.listen(Source(event("pci"), error=UeventError("the kernel's uevents ended")))
    assert (len(listener.events), listener.broken) == (1, "the kernel's uevents ended")


async def test_every_event_that_a_kernel_sent_of_a_disk_and_a_memory_device_is_kept_as_it_was():
    sent = load_events(RECORDINGS / "uevents.jsonl")
    listener = recorder.Listener()
    await listener.listen(Source(*(uevents.parse(event.datagram) for event in sent)))
    kept = [event.message.replace("\n", "\0").encode() for event in listener.events]
    assert kept == [event.datagram for event in sent]
