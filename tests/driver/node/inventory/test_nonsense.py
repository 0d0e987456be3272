"""Sysfs files are optional, racy and sometimes nonsense: whatever they say, a reading is a value and no error."""

import os
import random
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import attributes, cxl, files, model
from drawbar.mocks import sysfs

CONTENT = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            *(
                b"",
                b"\n",
                b"0x",
                b"-1",
                b"0xffffffff",
                b"99999999999999999999999999",
                b"9" * 4096,
                b"\xff\xfe",
            ),
            *(b"nan GT/s PCIe", b"-5 GT/s", b"inf GT/s", b"Unknown", b"1e400 GT/s", b"(null)", b"\0\0"),
            *(b"PCI_CLASS=zz\nPCI_ID=:\nDRIVER=\n", b"PCI_ID=1:2:3\n", b"DEVNAME=\nMAJOR=x\n", b"MAJOR=-1\n"),
            *(b"DEVNAME=../../etc/passwd\nMAJOR=1\nMINOR=1\n", b"decoder9.9", b"1,2,,x", b"0000:01:00"),
        ]
    ),
)
NODES = ("fpga-node", "cxl-node")
UNHURRIED = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", params=NODES)
def host(request):
    """Yield a mocked node that is only copied from."""
    with tempfile.TemporaryDirectory() as folder:
        yield sysfs.build(request.param, Path(folder) / "sys").root


def read_everything(root):
    """Read all there is, and compute everything that is computed from it."""
    inventory = reader.read(root)
    for card in inventory.cards:
        assert inventory.card_of(card.address) is card
        for name, value in attributes.from_card(card).items():
            assert isinstance(name, str)
            assert isinstance(value, str | int | bool)
    for function in inventory.functions:
        assert function == reader.read_function(root, function.address)
        assert function in (inventory.all_by_serial(function.serial) if function.serial else (function,))
    return inventory


@UNHURRIED
@given(data=st.data())
def test_nonsense_in_any_file_is_read_as_a_value(host, data):
    files = [path for path in host.rglob("*") if path.is_file() and not path.is_symlink()]
    spoilt = data.draw(st.lists(st.tuples(st.sampled_from(files), CONTENT), min_size=1, max_size=12))
    before = {path: path.read_bytes() for path, _ in spoilt}
    try:
        for path, content in spoilt:
            path.chmod(0o644)
            path.write_bytes(content)
        read_everything(host)
    finally:
        for path, content in before.items():
            path.write_bytes(content)


@UNHURRIED
@given(seed=st.integers(0, 2**32), amount=st.integers(1, 30))
def test_files_directories_and_links_that_are_missing_or_of_the_wrong_type_are_read_around(
    host, seed, amount
):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "sys"
        shutil.copytree(host, root, symlinks=True)
        chance = random.Random(seed)
        for path in chance.sample(sorted(root.rglob("*")), amount):
            if "bus" in path.relative_to(root).parts[:1] and path.is_dir() and not path.is_symlink():
                continue
            spoil(path, chance)
        if (root / "bus").is_dir():
            read_everything(root)


def spoil(path, chance):
    """Take a file or directory away, or put something else in its place."""
    if not os.path.lexists(path):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    match chance.randrange(5):
        case 0:
            path.mkdir()
        case 1:
            path.symlink_to("/nowhere/0000:00:00.0/at/all")
        case 2:
            path.symlink_to(path.name)  # a circle
        case 3:
            path.write_bytes(b"\xff")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "-",
        "1_0",
        "0b11",
        "0o7",
        "+3",
        "007",
        "\u0663",
        "\u00b2",
        "9" * 21,
        f"0x{'f' * 17}",
        "9" * 4096,
    ],
)
def test_a_text_in_another_notation_is_no_number(text):
    assert files.parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-1", -1), ("0x0d93", 0x0D93), (f"0x{'F' * 16}", 2**64 - 1), ("4096", 4096)],
)
def test_a_number_is_decimal_or_hexadecimal(text, number):
    assert files.parse_number(text) == number


def test_vanishing_directories_do_not_break_a_reading(tmp_path):
    tree = sysfs.build("switch-node", tmp_path / "sys")
    cards = tree.list_attached_cards()
    over = threading.Event()

    def plug():
        try:
            for _ in range(8):
                for slot in cards:
                    tree.detach(slot)
                for slot, card in cards.items():
                    tree.attach(slot, card)
        finally:
            over.set()

    thread = threading.Thread(target=plug)
    thread.start()
    try:
        while not over.is_set():
            inventory = reader.read(tree.root)
            assert len(inventory.functions) >= 6  # root port and switch stay
    finally:
        thread.join()
    assert len(read_everything(tree.root).cards) >= len(cards)


def test_a_dax_device_is_read_with_its_region(tmp_path):
    host = sysfs.build("cxl-node", tmp_path / "sys").root
    inventory = reader.read(host)
    [device] = inventory.dax
    [region] = inventory.regions
    assert (device.region, device.driver, device.size_bytes) == (region.name, "kmem", region.size_bytes)
    assert isinstance(device.device_node, model.DeviceNode)
    assert device.device_node.path == f"/dev/{device.name}"
    assert cxl.read_dax(str(host), "dax9.9") is None
    assert cxl.read_dax(str(host), "../dax0.0") is None
