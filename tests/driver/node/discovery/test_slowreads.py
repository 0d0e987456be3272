"""Reads that may take long: they block nothing, are bounded, and happen once per arrival."""

import contextlib
import os
import threading
import time

import pytest
from tests.scenes import handmade

from drawbar.driver.node.discovery import slowreads
from drawbar.driver.node.discovery.slowreads import Arrival, SlowReads
from drawbar.driver.node.inventory import nvidia, silences
from drawbar.driver.node.inventory.model import Silence
from drawbar.fabric.witnesses import Kind
from drawbar.mocks.sysfs import vital

NIC, CONNECTX = 0x020000, (0x15B3, 0x1021)
ADDRESS = "0000:ca:00.0"
SERIAL = {"SN": "MT2304XZ04QF", "PN": "MCX713106AC-VEAT"}


@contextlib.contextmanager
def hanging(*paths):
    """Make files that no read gets to the end of, as of a card that does not answer; in the end they answer."""
    for path in paths:
        os.mkfifo(path)
    try:
        yield
    finally:
        for path in paths:
            # A reader that waits goes on, and one that comes later has no file.
            writer = os.open(path, os.O_RDWR)
            path.unlink()
            os.close(writer)


def make_slow_reads(**options):
    """Return slow reads, and a function that waits until this many have ended."""
    ended = threading.Semaphore(0)
    slow = SlowReads(lambda _: ended.release(), **options)

    def wait(count=1):
        assert all(ended.acquire(timeout=120) for _ in range(count))

    return slow, wait


def test_the_data_is_there_once_it_is_read(tmp_path):
    path = tmp_path / "vpd"
    path.write_bytes(vital.image("Card", SERIAL))
    slow, wait = make_slow_reads()
    slow.vital(Arrival(ADDRESS, 1), str(path))
    wait()
    assert slow.vital(Arrival(ADDRESS, 1), str(path)).fields["SN"] == "MT2304XZ04QF"
    assert slow.list_pending() == frozenset()


def test_a_function_is_read_once_per_arrival(tmp_path):
    path = tmp_path / "vpd"
    slow, wait = make_slow_reads()
    for number, arrival in enumerate((Arrival(ADDRESS, 1), Arrival(ADDRESS, 1), Arrival(ADDRESS, 2))):
        path.write_bytes(vital.image("Card", {"SN": f"S{number}"}))
        slow.vital(arrival, str(path))
        if number != 1:
            wait()
    assert slow.vital(Arrival(ADDRESS, 1), str(path)).fields["SN"] == "S0"
    assert slow.vital(Arrival(ADDRESS, 2), str(path)).fields["SN"] == "S2"
    slow.forget([ADDRESS])
    path.write_bytes(vital.image("Card", {"SN": "S3"}))
    slow.vital(Arrival(ADDRESS, 2), str(path))
    wait()
    assert slow.vital(Arrival(ADDRESS, 2), str(path)).fields["SN"] == "S3"


def test_a_read_that_hangs_blocks_nothing_and_is_slow(tmp_path):
    tree = handmade.Tree(tmp_path)
    folder = tree.function(
        ADDRESS, CONNECTX, NIC, driver="mlx5_core", files={"net/e0/address": "94:6d:ae:51:c0:2a"}
    )
    (folder / "net/e0/addr_assign_type").write_text("0\n")
    slow = SlowReads()
    with hanging(folder / "vpd"):
        began = time.monotonic()
        function = tree.read(ADDRESS, slow)
        assert time.monotonic() - began < 5
        assert handmade.pairs(function) == {("mac", "94:6d:ae:51:c0:2a")}
        assert silences.silences(function)[Kind.VPD_SERIAL] is Silence.VPD_SLOW
        assert slow.list_pending() == {ADDRESS}


def test_threads_are_bounded_and_waiting_files_are_read_later(tmp_path):
    hung = [tmp_path / f"hung{number}" for number in range(2)]
    good = tmp_path / "vpd"
    good.write_bytes(vital.image("Card", SERIAL))
    slow, wait = make_slow_reads(threads_max=2)
    before = set(threading.enumerate())
    with hanging(*hung):
        for number, path in enumerate(hung):
            slow.vital(Arrival(f"0000:0{number}:00.0", 1), str(path))
        for number in range(20):
            slow.vital(Arrival(f"0001:00:{number:02x}.0", 1), str(good))
        assert len(set(threading.enumerate()) - before) == 2
        assert len(slow.list_pending()) == 22
    wait(22)
    assert slow.vital(Arrival("0001:00:00.0", 1), str(good)).fields["SN"] == "MT2304XZ04QF"


@pytest.mark.tool("another user")
def test_data_that_this_process_may_not_read_says_so(tmp_path):
    path = tmp_path / "vpd"
    path.write_bytes(vital.image("Card", SERIAL))
    path.chmod(0)
    slow, wait = make_slow_reads()
    slow.vital(Arrival(ADDRESS, 1), str(path))
    wait()
    assert slow.vital(Arrival(ADDRESS, 1), str(path)).silence is Silence.NO_PRIVILEGE


def test_a_file_that_cannot_be_read_has_no_data(tmp_path):
    slow, wait = make_slow_reads()
    slow.vital(Arrival(ADDRESS, 1), str(tmp_path))  # a directory answers EISDIR, as a broken card does EIO
    slow.vital(Arrival(ADDRESS, 2), str(tmp_path / "absent"))
    wait(2)
    for inode in (1, 2):
        answer = slow.vital(Arrival(ADDRESS, inode), str(tmp_path))
        assert (dict(answer.fields), answer.silence) == ({}, None)


def test_a_driver_that_does_not_answer_delays_a_reading_once(tmp_path):
    slow = SlowReads()
    path = tmp_path / "information"
    with hanging(path):
        assert slow.text(str(path)) is None
        began = time.monotonic()
        assert slow.text(str(path)) is None
        assert time.monotonic() - began < slowreads.PATIENCE_SECONDS / 2
    (tmp_path / "good").write_text("GPU UUID: x\n")
    assert slow.text(str(tmp_path / "good")) == "GPU UUID: x\n"
    assert slow.text(str(tmp_path)) is None


def test_many_gpus_whose_driver_does_not_answer_delay_a_reading_by_a_bounded_time(tmp_path):
    tree = handmade.Tree(tmp_path)
    addresses = [f"0000:{number:02x}:00.0" for number in range(1, 41)]
    files = [tree.folder / "proc/driver/nvidia/gpus" / address / "information" for address in addresses]
    for address, file in zip(addresses, files, strict=True):
        tree.function(address, (0x10DE, 0x2330), 0x030200, driver="nvidia")
        file.parent.mkdir(parents=True)
    waits = slowreads.THREADS_MAX * slowreads.PATIENCE_SECONDS
    before = set(threading.enumerate())
    with hanging(*files):
        slow, began = SlowReads(), time.monotonic()
        seen = tree.read(addresses[-1], slow)
        assert time.monotonic() - began < 2 * waits
        assert len(set(threading.enumerate()) - before) == slowreads.THREADS_MAX
    assert silences.is_lagging(seen)


def test_a_text_of_a_driver_is_cut(tmp_path):
    path = tmp_path / "information"
    path.write_text("Device Minor: \t 3\n" * 10_000)
    assert len(SlowReads().text(str(path))) <= 4096


def test_the_device_file_of_a_gpu_is_found_with_the_function(tmp_path):
    tree = handmade.Tree(tmp_path)
    tree.function(ADDRESS, (0x10DE, 0x2330), 0x030200, driver="nvidia")
    tree.nvidia(ADDRESS, "GPU-3f1c5ab4-3d3b-4a0e-9d4a-2b7c6d5e4f01")
    for slow in (None, SlowReads()):
        [node] = tree.read(ADDRESS, slow).device_nodes
        assert (node.path, node.major, node.minor, node.subsystem) == ("/dev/nvidia0", 195, 0, "nvidia")


@pytest.mark.parametrize(
    "text", ["Device Minor: \t 255\n", "Device Minor: \t 1000\n", "Device Minor: x\n", "", "\0" * 4096, None]
)
def test_a_text_without_the_number_of_a_gpu_gives_no_device_file(text):
    assert nvidia.device_nodes(text) == ()


def test_the_functions_that_are_remembered_are_bounded(tmp_path):
    slow, wait = make_slow_reads(remembered_max=3)
    for number in range(10):
        slow.vital(Arrival(f"0000:00:{number:02x}.0", 1), str(tmp_path / "absent"))
    wait(3)
    assert slow.vital(Arrival("0000:00:09.0", 1), str(tmp_path / "absent")) == slowreads.PENDING
