"""Masked recordings: the same model but for the pseudonyms, and nothing left of what was masked."""

import asyncio
import dataclasses
import gzip
from pathlib import Path

import msgspec
import pytest
from tests.scenes import handmade

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.driver.node.recording import kinds, masks, recorder
from drawbar.fabric.witnesses import Kind
from drawbar.mocks.sysfs import build, load_recording

RECORDINGS = Path(__file__).parents[3] / "cases" / "kernels" / "kernel-6.1-qemu"
UUID = "5b39d29b-197a-4b21-8a76-3c116a3705b6"


def content(text):
    return kinds.Content(data=text.encode(), mode=0o444)


def mask_tree(tree):
    """Return the contents of a masked tree, in order, and the masks."""
    pseudonyms = masks.Masks()
    return pseudonyms.snapshot(tree), pseudonyms


def record_masked(root, tmp_path):
    """Record the tree with masks; return the recorded inventory and the recorded text."""
    folder = tmp_path / "recording"
    asyncio.run(recorder.record(recorder.Settings(folder=folder, sysfs=root, masked=True), asyncio.Event()))
    load_recording(folder, tmp_path / "loaded" / "sys")
    text = gzip.decompress((folder / "sysfs.json.gz").read_bytes()).decode()
    return reader.read(tmp_path / "loaded" / "sys"), text + (folder / "recording.json").read_text()


def without_names(inventory):
    """Return a model without its masked parts."""
    return dataclasses.replace(
        inventory,
        functions=tuple(
            msgspec.structs.replace(
                function,
                arrival=0,
                serial=function.serial and "masked",
                dsn=function.dsn and "masked",
                identifiers=tuple(dataclasses.replace(each, value="masked") for each in function.identifiers),
                nvme=tuple(
                    msgspec.structs.replace(each, serial=each.serial and "masked") for each in function.nvme
                ),
            )
            for function in inventory.functions
        ),
        memdevs=tuple(msgspec.structs.replace(each, serial=each.serial and 1) for each in inventory.memdevs),
        regions=tuple(
            msgspec.structs.replace(each, uuid=each.uuid and "masked") for each in inventory.regions
        ),
        prebuilt=None,
    )


def same_serials(first, other):
    """Return which functions have a serial number in common, by address."""
    return [[a.serial == b.serial for a in each.functions for b in each.functions] for each in (first, other)]


@pytest.mark.parametrize("name", ["switch-node", "fpga-node", "cxl-node"])
def test_a_masked_host_is_the_same_but_for_the_masks(name, tmp_path):
    host = build(name, tmp_path / "sys")
    ours = reader.read(host.root)
    theirs, text = record_masked(host.root, tmp_path)
    assert without_names(ours) == without_names(theirs)
    before, after = same_serials(ours, theirs)
    assert before == after
    for function in ours.functions:
        if function.serial:
            assert function.serial.casefold() not in text.casefold()
            assert function.serial.encode().hex() not in text
        for each in function.identifiers:
            assert each.value not in text


def test_a_masked_recording_of_a_kernel_shows_nothing_of_the_serial_numbers(tmp_path):
    load_recording(RECORDINGS / "sysfs-3-cxl-powered.json.gz", tmp_path / "sys")
    ours = reader.read(tmp_path / "sys")
    theirs, text = record_masked(tmp_path / "sys", tmp_path)
    assert without_names(ours) == without_names(theirs)
    assert "SN0001" not in text
    assert "534e30303031" not in text  # so the WWID has it
    assert "0x1234\\n" not in text


def test_a_memory_device_and_its_function_keep_one_number_in_all_notations(tmp_path):
    theirs, _ = record_masked(build("cxl-node", tmp_path / "sys").root, tmp_path)
    for memdev in theirs.memdevs:
        (function,) = [each for each in theirs.functions if each.address == memdev.pci_address]
        assert function.dsn == model.format_serial(memdev.serial)
        card = theirs.card_of(function.address)
        identity = attachments.Identity(device_class="cxl-memory", serial=function.dsn)
        outcome = matching.match(theirs, identity)
        assert isinstance(outcome, matching.Found)
        assert (outcome.card, outcome.by) == (card, "identifier")


def test_one_thing_has_one_pseudonym_wherever_it_stands():
    entries, pseudonyms = mask_tree(
        {
            f"fs/btrfs/{UUID}/devices/nvme0n1": kinds.Link(target=f"../../{UUID.upper()}/x"),
            "devices/pci0000:00/region0/uuid": content(f"{UUID}\n"),
            "devices/pci0000:00/nvme0/serial": content("S4YNNE0N800001      \n"),
            "devices/pci0000:00/nvme0/subsysnqn": content("nqn.2014.com.x:S4YNNE0N800001\n"),
            "devices/pci0000:00/note": content("of s4ynne0n800001, not xS4YNNE0N800001\n"),
            "devices/pci0000:00/net/enx0a1b2c3d4e5f/address": content("0a:1b:2c:3d:4e:5f\n"),
            "devices/pci0000:00/net/enx0a1b2c3d4e5f/broadcast": content("ff:ff:ff:ff:ff:ff\n"),
        }
    )
    uuid, address = "00000000-0000-4000-8000-000000000001", "02:00:00:00:00:01"
    assert {
        path: getattr(entry, "data", b"").decode() or entry.target for path, entry in entries.items()
    } == {
        f"fs/btrfs/{uuid}/devices/nvme0n1": f"../../{uuid}/x",
        "devices/pci0000:00/region0/uuid": f"{uuid}\n",
        "devices/pci0000:00/nvme0/serial": "MASKED000001        \n",
        "devices/pci0000:00/nvme0/subsysnqn": "nqn.2014-08.org.nvmexpress:masked-000001\n",
        "devices/pci0000:00/note": "of MASKED000001, not xS4YNNE0N800001\n",
        f"devices/pci0000:00/net/enx{address.replace(':', '')}/address": f"{address}\n",
        f"devices/pci0000:00/net/enx{address.replace(':', '')}/broadcast": "ff:ff:ff:ff:ff:ff\n",
    }
    assert pseudonyms.counts == {"serials": 1, "identifiers": 1, "uuids": 1, "addresses": 1}


def test_a_second_tree_and_the_events_have_the_pseudonyms_of_the_first():
    first, pseudonyms = mask_tree({"a/serial": content("DISK-000-A\n"), "a/uuid": content(UUID)})
    second = pseudonyms.snapshot({"b/serial": content("DISK-000-B\n"), "c/serial": content("DISK-000-A\n")})
    assert second["c/serial"] == first["a/serial"] != second["b/serial"]
    event = f"add@/devices/x/{UUID}\nSERIAL=disk-000-a\nPARTNAME=home of Jane\nOTHER=DISK-000-B\n"
    assert pseudonyms.text(event) == (
        "add@/devices/x/00000000-0000-4000-8000-000000000001\n"
        "SERIAL=MASKED000001\nPARTNAME=masked\nOTHER=MASKED000002\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("serial", ""),
        ("serial", "0x0\n"),
        ("serial", "(null)\n"),
        ("nguid", "00000000-0000-0000-0000-000000000000\n"),
        ("address", "00:00:00:00:00:00\n"),
        ("address", "0000:01:00.0\n"),
        ("node_guid", "0000:0000:0000:0000\n"),
        ("unique_id", "0\n"),
        ("size", "3840755982336\n"),
        ("firmware_rev", "1.0     \n"),
        ("uevent", "DRIVER=nvme\nPCI_ID=1B36:0010\nPCI_SLOT_NAME=0000:01:00.0\n"),
    ],
)
def test_text_without_identifiers_stays(name, text):
    entries, pseudonyms = mask_tree({f"devices/x/{name}": content(text)})
    assert entries[f"devices/x/{name}"].data.decode() == text
    assert pseudonyms.counts == {}


def test_a_short_serial_is_masked_in_its_own_file_and_nowhere_else():
    entries, _ = mask_tree({"a/serial": content("77\n"), "a/size": content("77\n")})
    assert entries["a/serial"].data == b"MASKED000001\n"
    assert entries["a/size"].data == b"77\n"


@pytest.mark.parametrize(
    ("text", "pseudonym"),
    [
        ("0xABCDEF", "0xface000000000001"),
        ("0xabcdef", "0xface000000000001"),
        ("00-00-00-00-00-ab-cd-ef", "fa-ce-00-00-00-00-00-01"),
    ],
)
def test_numbers_are_masked_as_numbers(text, pseudonym):
    entries, _ = mask_tree({"a/serial": content(f"{text}\n")})
    assert entries["a/serial"].data.decode() == f"{pseudonym}\n"


def test_addresses_of_infiniband_keep_their_length():
    address = "80:00:02:08:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:5b:3a:40"
    entries, _ = mask_tree({"net/ib0/address": content(address)})
    other = entries["net/ib0/address"].data.decode()
    assert (len(other), other == address) == (len(address), False)


def test_bytes_that_are_no_text_stay_as_they_are():
    entries, _ = mask_tree({"a/CDAT": kinds.Content(data=b"\xff\xfe", mode=0o400)})
    assert entries["a/CDAT"].data == b"\xff\xfe"


EUI, NGUID = "0025389a21014c7e", "3634463052b012340025384100000001"
KINDS = {
    "nvme/nvme0/serial": f"{'S6C1NA0TA07733':20}",
    "nvme/nvme0/subsysnqn": f"nqn.2014-08.org.nvmexpress:uuid:{UUID}",
    "nvme/nvme0/nvme0n1/eui": bytes.fromhex(EUI).hex(" "),
    "nvme/nvme0/nvme0n1/wwid": f"eui.{EUI}",
    "nvme/nvme0/nvme0n1/nguid": "36344630-52b0-1234-0025-384100000001",
    "nvme/nvme0/nvme0c0n1/wwid": f"eui.{NGUID}",
    "infiniband/mlx5_0/node_guid": "946d:ae03:0051:c02a",
    "net/e0/address": "94:6d:ae:51:c0:2a",
    "net/e0/addr_assign_type": "0",
    "xmc.m/serial_num": "XFL1RT5PM0AB",
    "xmc.m/mac_addr0": "94:6D:AE:51:C0:2A",
}


def test_masked_identifiers_keep_their_kind_and_their_equality(tmp_path):
    ours, theirs = handmade.Tree(tmp_path / "ours"), handmade.Tree(tmp_path / "theirs")
    contents = {
        "function": ("0000:17:00.0", (0x15B3, 0x1021), 0x020000, "mlx5_core", KINDS),
        "gpu": (
            "0000:18:00.0",
            (0x1002, 0x740F),
            0x038000,
            "amdgpu",
            {
                "unique_id": "d3a17c52e9f0b46d",
                "serial_number": "692231000117",
                "product_number": "102-D67302-00",
            },
        ),
        "accelerator": (
            "0000:19:00.0",
            (0x1DA3, 0x1060),
            0x120000,
            "habanalabs",
            {"fuse_ver": "01P4-HL3090A0-18"},
        ),
    }
    for address, ids, code, driver, files in contents.values():
        ours.function(address, ids, code, driver=driver, files=files, dsn="00-25-38-9a-21-01-4c-7e")
    tree = {
        str(path.relative_to(ours.root)): kinds.Content(data=path.read_bytes(), mode=0o444)
        for path in ours.root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    entries, _ = mask_tree(tree)
    for path, entry in entries.items():
        theirs.write(theirs.root / path, entry.data)
    (theirs.root / "bus/pci/devices").mkdir(parents=True)
    for address, *_ in contents.values():
        (theirs.root / "bus/pci/devices" / address).symlink_to(f"../../../{handmade.PORT}/{address}")
        before, after = ours.read(address).identifiers, theirs.read(address).identifiers
        assert [each.kind for each in before] == [each.kind for each in after]
        for mine, other in zip(before, after, strict=True):
            assert (mine.value == other.value) == (mine.kind is Kind.PART_NUMBER)
    disk = {each.kind: each.value for each in theirs.read("0000:17:00.0").identifiers}
    assert disk[Kind.EUI64] == disk[Kind.PCIE_DSN].replace("-", "")
    text = "".join(entry.data.decode("latin-1") for entry in entries.values()).casefold()
    for secret in (
        EUI,
        NGUID,
        UUID,
        "s6c1na0ta07733",
        "51:c0:2a",
        "0051:c02a",
        "xfl1rt5pm0ab",
        "d3a17c52e9f0b46d",
    ):
        assert secret not in text
