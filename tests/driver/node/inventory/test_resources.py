"""Which BARs of a function have no address, and how large the windows of a port are."""

import dataclasses
import gzip
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model, resources
from drawbar.fabric.classes import DeviceClass
from drawbar.mocks import sysfs
from drawbar.mocks.sysfs.device import CLASS_CODES, MockDevice

RECORDINGS = sorted((Path(__file__).parents[3] / "cases" / "kernels").glob("*/sysfs*.json.gz"))
NONE = (0, 0, 0)
REGISTERS = (0xFE00_0000, 0xFE00_FFFF, 0x140204)
GPU = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x740F, memory_bytes=64 << 30)


def text(*lines, amount=13):
    padded = [*lines, *[NONE] * (amount - len(lines))]
    return "\n".join(f"0x{start:016x} 0x{end:016x} 0x{flags:016x}" for start, end, flags in padded) + "\n"


def header(*registers, kind=0):
    space = bytearray(64)
    space[0x0E] = kind
    for number, register in enumerate(registers):
        struct.pack_into("<I", space, 0x10 + 4 * number, register)
    return bytes(space)


@pytest.mark.parametrize(
    ("lines", "registers", "expected"),
    [
        pytest.param((REGISTERS,), (0xFE00_0004,), (), id="assigned"),
        pytest.param((), (), (), id="no BAR at all"),
        pytest.param((), (0x4, 0, 0xC, 0), (0, 2), id="cleared lines, two of 64 bits"),
        pytest.param((REGISTERS,), (0xFE00_0004, 0, 0xC, 0), (2,), id="the large one alone"),
        pytest.param((REGISTERS,), (0xFE00_0004, 0xFFFF_FFF0), (), id="the upper half is no BAR"),
        pytest.param((), (0x8,), (0,), id="of 32 bits, prefetchable"),
        pytest.param((), (0xFE00_0000,), (0,), id="of 32 bits, with the firmware's old address"),
        pytest.param((), (0x1, 0xE001), (), id="I/O ports"),
        pytest.param(((0, 0x3FFF, 0x2014_0204),), (0x4,), (0,), id="flag of a BAR without an address"),
        pytest.param(((0, 0x3FFF, 0x140204),), (0x4,), (0,), id="address 0"),
        pytest.param(((0, 0xFF, 0x2004_0101),), (0x1,), (), id="I/O ports without an address"),
        pytest.param(((0, 0x3F_FFFF_FFFF, 0x3014_220C),), (0xC,), (0,), id="too large for this kernel"),
        pytest.param((NONE,) * 6 + ((0, 0x7FFFF, 0x2004_6200),), (), (), id="a ROM"),
        pytest.param((), (0xFFFF_FFFF,) * 6, (), id="a function that does not answer"),
    ],
)
def test_memory_bars_without_an_address_are_found(lines, registers, expected):
    assert resources.unassigned_bars(resources.parse(text(*lines)), header(*registers)) == expected


def test_a_bridges_registers_are_not_taken_for_bars():
    assert resources.memory_bars(header(0x4, 0, 0x10100, 0x4, kind=1)) == frozenset()


@pytest.mark.parametrize("amount", [7, 13])
def test_the_windows_of_a_bridge_are_the_last_lines(amount):
    lines = [
        NONE,
        (0xFE00_0000, 0xFE1F_FFFF, 0x200),
        (0x3_4000_0000, 0x3_401F_FFFF, 0x102201),
        NONE,
    ]
    padded = [NONE] * amount + lines
    assert resources.windows(resources.parse(text(*padded, amount=amount + 4))) == resources.Windows(
        memory=2 << 20, prefetchable=2 << 20
    )


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([NONE] * 4, id="none"),
        pytest.param(
            [NONE, (0, 0x1FFFFF, 0x2000_0200), (0, 0x1FFFFF, 0x3010_2201), NONE], id="without an address"
        ),
    ],
)
def test_a_window_without_an_address_has_no_room(lines):
    read = resources.windows(resources.parse(text(*[NONE] * 13, *lines, amount=17)))
    assert read == resources.Windows()


@given(st.text() | st.lists(st.sampled_from([text(), "0x0 0x0 0x0", "-1 2 3", "0x1 0x2"])).map("\n".join))
def test_any_text_is_parsed_or_left(content):
    lines = resources.parse(content)
    assert len(lines) <= 17
    assert resources.windows(lines) is None or len(lines) in (11, 17)


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 3), max_size=17), st.binary(max_size=80))
def test_any_registers_give_numbers_of_bars(lines, config):
    parsed = resources.parse(text(*lines, amount=len(lines)).strip())
    assert set(resources.unassigned_bars(parsed, config)) <= set(range(6))
    windows = resources.windows(parsed)
    assert windows is None or (windows.memory >= 0 and windows.prefetchable >= 0)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recorded_kernel_has_all_addresses_assigned(recording, tmp_path):
    content = json.loads(gzip.decompress(recording.read_bytes()))
    if not any("/resource" in path for path in content):
        pytest.fail("the recording has no resource files")
    sysfs.load_recording(recording, tmp_path / "sys")
    inventory = reader.read(tmp_path / "sys")
    assert inventory.functions
    assert [each.address for each in inventory.functions if each.unassigned_bars] == []


@pytest.mark.parametrize("device_class", sorted(CLASS_CODES))
@pytest.mark.parametrize("driver", [None, ""])
def test_a_mocked_card_has_addresses_within_its_ports_windows(device_class, driver, drawbar_sysfs):
    device = dataclasses.replace(GPU, device_class=device_class, driver=driver)
    drawbar_sysfs.tree.attach(1, device)
    (card,) = [each for each in reader.read(drawbar_sysfs.tree.root).cards if each.slot is not None]
    assert card.unassigned_bars == ()
    folder = drawbar_sysfs.tree.root / card.first.path
    _, memory, prefetchable, _ = resources.parse((folder.parent / "resource").read_text())[-4:]
    bars = [line for line in resources.parse((folder / "resource").read_text()) if not line.is_cleared]
    assert bars
    for bar in bars:
        window = prefetchable if bar.flags & 0x2000 else memory
        assert window.start <= bar.start < bar.end <= window.end


def test_a_mocked_card_without_addresses_shows_it_in_both_files(drawbar_sysfs):
    drawbar_sysfs.tree.attach(1, dataclasses.replace(GPU, unassigned=True))
    (card,) = [each for each in reader.read(drawbar_sysfs.tree.root).cards if each.slot is not None]
    assert card.unassigned_bars == ((card.address, 0), (card.address, 2))
    assert f"BAR 0 of {card.address}, 2 of {card.address}" in (model.describe_unassigned(card) or "")
