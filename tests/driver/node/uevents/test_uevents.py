"""Uevents: the wire format, the bounded backlog, and both sources."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import types
import uuid
from pathlib import Path

import pytest

from drawbar.driver.node import errors, uevents
from drawbar.driver.node.uevents import sources
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree, wire

RECORDED = [
    json.loads(line)["msg"].replace("\n", "\0").encode()
    for line in (Path(__file__).parents[3] / "cases/kernels/kernel-6.1-qemu/uevents.jsonl")
    .read_text()
    .splitlines()
]
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")


def test_every_recorded_event_is_understood_in_order():
    events = [uevents.parse(message) for message in RECORDED]
    assert [event.seqnum for event in events if event] == list(range(715, 743))


def test_an_event_holds_the_properties_of_the_kernel():
    event = uevents.parse(RECORDED[0])
    assert event is not None
    assert (event.action, event.subsystem, event.seqnum) == ("add", "pci", 715)
    assert event.devpath == "/devices/pci0000:00/0000:00:03.0/0000:01:00.0"
    assert event.properties["PCI_ID"] == "1B36:0010"


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\0",
        b"libudev\0\xfe\xed\xca\xfe",
        b"no separator\0ACTION=add\0",
        b"add@\0SEQNUM=1\0",
        b"@/devices/x\0",
        b"add@relative\0",
    ],
)
def test_other_datagrams_are_skipped(datagram):
    assert uevents.parse(datagram) is None


def test_broken_pairs_and_foreign_bytes_do_not_spoil_an_event():
    event = uevents.parse(b"add@/devices/x\0=nothing\0no equals sign\0A=b=c\0N=\xff\0SEQNUM=many")
    assert event is not None
    assert (event.action, event.devpath, event.subsystem, event.seqnum) == ("add", "/devices/x", "", 0)
    assert event.properties == {"A": "b=c", "N": "\ufffd", "SEQNUM": "many"}


def make_uevent(seqnum: int) -> uevents.Uevent:
    event = uevents.parse(f"add@/devices/x\0SEQNUM={seqnum}\0".encode())
    assert event is not None
    return event


async def list_seqnums(pending: sources.Backlog) -> list[int | str]:
    pending.close()
    return [
        "overflow" if isinstance(event, uevents.Overflow) else event.seqnum
        async for event in pending.events()
    ]


async def test_a_full_backlog_becomes_one_overflow_and_keeps_later_events():
    pending = sources.Backlog(3)
    for seqnum in range(1, 6):
        pending.put(make_uevent(seqnum))
    assert await list_seqnums(pending) == ["overflow", 5]


async def test_a_backlog_that_never_fills_loses_nothing():
    pending = sources.Backlog(3)
    for seqnum in range(1, 4):
        pending.put(make_uevent(seqnum))
    assert await list_seqnums(pending) == [1, 2, 3]


async def test_events_sent_to_the_socket_arrive_in_order(tmp_path):
    path = tmp_path / "uevents"
    async with asyncio.timeout(120), uevents.listening(f"unix:{path}") as source:
        sending = asyncio.to_thread(send_all, path, [b"garbage", *RECORDED])
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sending, name="sender")
            events = source.events()
            seqnums = [getattr(await anext(events), "seqnum", None) for _ in RECORDED]
    assert seqnums == list(range(715, 743))
    assert not path.exists()


def send_all(path: Path, datagrams: list[bytes]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(10)
        for datagram in datagrams:
            sender.sendto(datagram, str(path))


async def test_a_listener_that_waits_is_woken_and_ends_with_its_subscription(tmp_path):
    path = tmp_path / "uevents"
    seen: list[int] = []
    first = asyncio.Event()

    async def listen(source: uevents.UeventSource) -> None:
        async for event in source.events():
            assert isinstance(event, uevents.Uevent)
            seen.append(event.seqnum)
            first.set()

    async with (
        asyncio.timeout(120),
        asyncio.TaskGroup() as tasks,
        uevents.listening(f"unix:{path}") as source,
    ):
        tasks.create_task(listen(source), name="listener")
        await asyncio.to_thread(send_all, path, RECORDED[:1])
        await first.wait()
    assert seen == [715]


async def test_a_socket_left_behind_by_a_dead_listener_is_replaced(tmp_path):
    path = tmp_path / "uevents"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(path))
    async with uevents.listening(f"unix:{path}"):
        send_all(path, RECORDED[:1])


async def test_every_listener_gets_the_events_of_a_mocked_tree_and_the_older_may_end_first(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "u")
    source = f"unix:{tmp_path / 'u'}"
    older_ends = contextlib.AsyncExitStack()
    older = await older_ends.enter_async_context(uevents.listening(source))
    async with asyncio.timeout(120), older_ends, uevents.listening(source) as newer:
        address = await asyncio.to_thread(tree.attach, 1, NVME)
        came = [await seqnums_until_bound(each, address) for each in (older, newer)]
        assert came[0] == came[1]
        await older_ends.aclose()
        address = await asyncio.to_thread(tree.attach, 2, NVME)
        await seqnums_until_bound(newer, address)
    assert list(tmp_path.glob("u*")) == []


async def seqnums_until_bound(source: uevents.UeventSource, address: str) -> list[int]:
    numbers = []
    async for event in source.events():
        assert isinstance(event, uevents.Uevent)
        numbers.append(event.seqnum)
        if event.action == "bind" and address in event.devpath:
            break
    return numbers


async def test_more_listeners_than_the_mocked_tree_sends_to_are_refused(tmp_path):
    source = f"unix:{tmp_path / 'u'}"
    async with contextlib.AsyncExitStack() as stack:
        for _ in wire.list_listener_paths(tmp_path / "u"):
            await stack.enter_async_context(uevents.listening(source))
        with pytest.raises(errors.UeventError, match="4 listen there already"):
            await stack.enter_async_context(uevents.listening(source))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("udev", "is not a source of uevents"),
        ("unix:", "is not a source of uevents"),
        ("unix:/" + "long/" * 30, "of at most 107"),
        ("unix:/absent/directory/socket", "cannot listen"),
    ],
)
async def test_a_source_that_cannot_be_opened_is_one_clear_error(source, complaint):
    with pytest.raises(errors.UeventError, match=complaint):
        async with uevents.listening(source):
            pass


async def test_a_file_at_the_sockets_path_is_not_removed(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(errors.UeventError):
        async with uevents.listening(f"unix:{path}"):
            pass
    assert path.read_text() == "precious"


NULL_DEVICE = Path("/sys/devices/virtual/mem/null/uevent")


def ask_kernel_for_event(argument: str) -> None:
    """Ask for a synthetic event of /dev/null: Documentation/ABI/testing/sysfs-uevent."""
    NULL_DEVICE.write_text(f"change {uuid.uuid4()} DRAWBAR={argument}")


@pytest.mark.tool("kernel events")
async def test_the_kernels_own_events_arrive_as_they_were_sent():
    marker = uuid.uuid4().hex
    async with asyncio.timeout(120), uevents.listening("kernel") as source:
        ask_kernel_for_event(marker)
        async for event in source.events():
            if isinstance(event, uevents.Uevent) and event.properties.get("SYNTH_ARG_DRAWBAR") == marker:
                break
    assert isinstance(event, uevents.Uevent)
    assert (event.action, event.subsystem, event.devpath) == ("change", "mem", "/devices/virtual/mem/null")
    assert event.properties["DEVNAME"] == "null"
    assert event.seqnum > 0


class Namesake:
    """A network interface as pyudev has it, with a name that is not UTF-8."""

    action, subsystem = "move", "net"

    def __init__(self, above):
        self._above = above

    @property
    def properties(self):
        return {"INTERFACE": b"\xff".decode()}

    def find_parent(self, subsystem):
        assert subsystem == "pci"
        return self._above


class Monitor:
    """A subscription of pyudev with these devices."""

    def __init__(self, *found):
        self._found = list(found)

    def poll(self, timeout):
        assert timeout == 0
        return self._found.pop(0) if self._found else None


async def test_an_interface_whose_name_is_no_text_is_an_event_of_the_function_above_it():
    pending = sources.Backlog(4)
    function = types.SimpleNamespace(device_path="/devices/pci0000:00/0000:00:03.0")
    sources._drain(Monitor(Namesake(None), Namesake(function)), pending)
    pending.close()
    (event,) = [event async for event in pending.events()]
    assert (event.action, event.subsystem, event.devpath) == ("move", "net", function.device_path)


# Another network namespace has a loopback of its own, which is renamed here.
RENAMING = """
import asyncio, fcntl, socket, sys
from drawbar.driver.node.uevents import sources

def rename(old, new):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, 0x8923, old.ljust(16, b"\\0") + new.ljust(16, b"\\0"))  # SIOCSIFNAME

async def main():
    pending = sources.Backlog(16)
    with sources.subscribe(pending):
        rename(b"lo", b"\\xff\\x1b[2J")
        rename(b"\\xff\\x1b[2J", b"lo")  # this event has the former name
        rename(b"lo", b"lo1")
        async for event in pending.events():
            if event.devpath.endswith("/lo1") and event.action == "move":
                return

asyncio.run(asyncio.wait_for(main(), 60))
"""


@pytest.mark.tool("kernel events")
def test_the_kernels_event_of_such_a_name_stops_no_later_one():
    command = ["unshare", "--net", sys.executable, "-c", RENAMING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in ended.stderr:
        pytest.skip(f"no network namespace can be made here: {ended.stderr}")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.tool("kernel events")
async def test_events_that_the_kernel_had_to_drop_are_an_overflow_and_later_ones_still_come():
    pending = sources.Backlog(4096)
    marker = uuid.uuid4().hex
    async with asyncio.timeout(120):
        with sources.subscribe(pending, receive_buffer_bytes=2048):
            for number in range(64):
                ask_kernel_for_event(str(number))
            events = pending.events()
            assert isinstance(await anext(events), uevents.Overflow)
            ask_kernel_for_event(marker)
            async for event in events:
                if isinstance(event, uevents.Uevent) and event.properties.get("SYNTH_ARG_DRAWBAR") == marker:
                    break
