"""The live model: whatever happens to a host and however its events come, it ends up as a fresh reading does."""

import asyncio
import contextlib
import random
import socket
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.scenes import waiting

from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import devices, reader, slowreads, subjects
from drawbar.driver.node.discovery.subjects import Kind, Subject
from drawbar.driver.node.inventory import index
from drawbar.driver.node.uevents import sources
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs
from drawbar.mocks.sysfs import Arrival, ImpossibleWorld, MockDevice, SysfsTree, wire

GIB = 1 << 30
CARDS = [
    MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="48-b0-2d-00-00-00-00-01"),
    MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA80A, serial="S4EVNX0"),
    MockDevice(
        device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="77", memory_bytes=GIB
    ),
    MockDevice(
        device_class=DeviceClass.FPGA,
        vendor=0x8086,
        device=0x0B2B,
        serial="00-0a-35-00-00-00-00-01",
        total_vfs=3,
        vf_device=0x0B2C,
        vf_driver="dfl-pci",
    ),
]
SLOTS = range(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("attach"), st.sampled_from(SLOTS), st.sampled_from(range(len(CARDS)))),
    st.tuples(st.just("unpowered"), st.sampled_from(SLOTS), st.sampled_from(range(len(CARDS)))),
    st.tuples(st.sampled_from(["power", "detach", "surprise", "no vfs"]), st.sampled_from(SLOTS), st.just(0)),
    st.tuples(st.just("vfs"), st.sampled_from(SLOTS), st.sampled_from([1, 3])),
    st.tuples(st.sampled_from(["region", "no region"]), st.sampled_from(SLOTS), st.just(0)),
    st.tuples(st.just("deliver"), st.just(0), st.integers(1, 9)),
)


class Host:
    """A mocked host whose events are delivered when and how the test likes."""

    def __init__(self, folder: Path, receiver: socket.socket) -> None:
        self._socket, self._receiver = folder / "uevents", receiver
        self.tree = SysfsTree.create(folder / "sys", slots=len(SLOTS), uevent_socket=self._socket)
        self.undelivered = []

    def do(self, step: str, slot: int, number: int) -> None:
        """Do one thing that may happen; do nothing where it cannot."""
        tree = self.tree
        doing = {
            "attach": lambda: tree.attach(slot, CARDS[number]),
            "unpowered": lambda: tree.attach(slot, CARDS[number], arrival=Arrival.UNPOWERED),
            "power": lambda: tree.power_on(slot),
            "detach": lambda: tree.detach(slot),
            "surprise": lambda: tree.surprise_remove(slot),
            "vfs": lambda: tree.set_vfs(slot, number),
            "no vfs": lambda: tree.set_vfs(slot, 0),
            "region": lambda: tree.create_region([slot]),
            "no region": lambda: tree.destroy_region("region0"),
        }
        # The socket holds ten events (net.unix.max_dgram_qlen), and a step may send more.
        receiving = threading.Thread(target=self._receive)
        receiving.start()
        try:
            with contextlib.suppress(ImpossibleWorld):
                doing[step]()
        finally:
            wire.send(self._socket, b"")
            receiving.join()

    def _receive(self) -> None:
        """Receive events until an empty datagram comes."""
        while datagram := self._receiver.recv(8192):
            self.undelivered.append(uevents.parse(datagram))


async def play(steps, chance, *, loses=False) -> tuple[index.Inventory, index.Inventory]:
    """Play the steps with events in any order, some of them twice; return the model then, and a fresh reading."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(folder / "uevents"))
            host = Host(folder, receiver)
            tracker = devices.Devices(
                host.tree.root, settings=devices.Tracking(coalesce_seconds=0), pauses_seconds=(0.001,)
            )
            await tracker.read()
            source = sources.Backlog(10_000)
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(tracker.follow(source))
                for step, slot, number in steps:
                    if step != "deliver":
                        host.do(step, slot, number)
                        continue
                    chance.shuffle(host.undelivered)
                    for event in host.undelivered[:number]:
                        source.put(event)
                        if chance.random() < 0.3:
                            source.put(event)
                    del host.undelivered[:number]
                    await asyncio.sleep(0)
                chance.shuffle(host.undelivered)
                for event in host.undelivered:
                    if not loses or chance.random() < 0.5:
                        source.put(event)
                if loses:
                    source.overflow()
                source.close()
                await following
            # Cards are put in without power, and no event reports it.
            for slot in SLOTS:
                await tracker.refresh_slot(str(slot))
            return tracker.inventory, reader.read(host.tree.root)


UNHURRIED = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@UNHURRIED
@given(steps=st.lists(STEPS, max_size=14), seed=st.integers(0, 2**32))
@example(steps=[("attach", 1, 2), ("region", 1, 0), ("detach", 1, 0)], seed=0)
def test_reordered_and_repeated_events_lead_to_a_fresh_readings_result(steps, seed):
    followed, fresh = asyncio.run(play(steps, random.Random(seed)))
    assert followed == fresh
    assert followed.cards == fresh.cards


@UNHURRIED
@given(steps=st.lists(STEPS, max_size=10), seed=st.integers(0, 2**32))
def test_lost_events_and_an_overflow_lead_to_a_fresh_readings_result(steps, seed):
    followed, fresh = asyncio.run(play(steps, random.Random(seed), loses=True))
    assert followed == fresh
    assert followed.cards == fresh.cards


def function(address):
    return Subject(Kind.FUNCTION, address)


@pytest.mark.parametrize(
    ("devpath", "expected"),
    [
        ("/devices/pci0000:00/0000:00:03.0", {function("0000:00:03.0")}),
        (
            "/devices/pci0000:00/0000:00:03.0/0000:01:00.0",
            {function("0000:00:03.0"), function("0000:01:00.0")},
        ),
        ("/devices/pci0000:00/0000:00:03.0/0000:01:00.0/nvme/nvme0", {function("0000:01:00.0")}),
        (
            "/devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0/mem0",
            {function("0000:0d:00.0"), Subject(Kind.CXL, "mem0")},
        ),
        (
            "/devices/platform/ACPI0017:00/root0/port1/endpoint2/decoder2.0",
            {Subject(Kind.CXL, name) for name in ("root0", "port1", "endpoint2", "decoder2.0")},
        ),
        (
            "/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0",
            {Subject(Kind.CXL, name) for name in ("root0", "decoder0.0", "region0")}
            | {Subject(Kind.DAX, "dax0.0")},
        ),
        ("/bus/pci/slots/7", {subjects.SLOTS, Subject(Kind.SLOT, "7")}),
        (
            "/devices/virtual/nvme-subsystem/nvme-subsys4/nvme4n1",
            {Subject(Kind.NVME_SUBSYSTEM, "nvme-subsys4")},
        ),
        ("/devices/virtual/bdi/259:0", set()),
        ("/devices/system/cpu/cpu3", set()),
        ("/", set()),
    ],
)
def test_an_event_names_the_objects_to_read_again(devpath, expected):
    assert subjects.subjects_of_event(devpath) == expected


@pytest.mark.parametrize("name", ["gpu-node", "fpga-node", "cxl-node", "switch-node"])
async def test_reading_object_by_object_equals_one_full_reading(name, tmp_path):
    tree = sysfs.build(name, tmp_path / "sys")
    tracker = devices.Devices(tree.root, settings=devices.Tracking(audit_share=1))
    changes = await tracker.audit()
    assert changes.functions == {function.address for function in tracker.inventory.functions}
    # Vital Product Data is read in threads, after everything else.
    slow = slowreads.SlowReads()
    reader.read(tree.root, slow)
    slow.wait(10)
    expected = reader.read(tree.root, slow)

    async def is_complete():
        await tracker.audit()
        return tracker.inventory == expected

    await waiting.eventually(is_complete)
