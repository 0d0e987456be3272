"""The identifiers that the kernel shows of a function, kind by kind, with hand-made trees."""

import os

import pytest
from tests.scenes import handmade
from tests.scenes.handmade import pairs

from drawbar.driver.node.discovery import reader, slowreads
from drawbar.driver.node.inventory import identities, silences
from drawbar.driver.node.inventory.model import Silence
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind
from drawbar.mocks.sysfs import vital

ADDRESS = "0000:17:00.0"
GPU, DISPLAY, NVME, NIC, ACCELERATOR, CXL = 0x030200, 0x038000, 0x010802, 0x020000, 0x120000, 0x050210
H100, MI210, CM6, CONNECTX, E810 = (
    (0x10DE, 0x2331),
    (0x1002, 0x740F),
    (0x1E0F, 0x0007),
    (0x15B3, 0x1021),
    (0x8086, 0x1592),
)
GAUDI, ALVEO, PAC, CMM = (0x1DA3, 0x1060), (0x10EE, 0x505C), (0x8086, 0x0B30), (0x1B00, 0xC000)
UUID = "6f0c1f6e-52a1-7d0b-93c4-1b7f2f0a9d11"
DSN = "5c-21-0f-69-a4-2d-b0-48"
CASES = {
    "a Device Serial Number": ((H100, GPU), {"dsn": DSN}, {("pcie-dsn", DSN)}),
    "a Device Serial Number that the whole model shows": (
        (H100, GPU),
        {"dsn": "00-00-00-00-00-2d-b0-48"},
        set(),
    ),
    "an AMD GPU": (
        (MI210, DISPLAY),
        {
            "driver": "amdgpu",
            "files": {
                "unique_id": "d3a17c52e9f0b46d",
                "serial_number": "692231000117",
                "product_number": "102-D67302-00",
            },
        },
        {
            ("gpu-unique-id", "d3a17c52e9f0b46d"),
            ("board-serial", "692231000117"),
            ("part-number", "102-d67302-00"),
        },
    ),
    "an AMD GPU whose file has the Device Serial Number": (
        (MI210, DISPLAY),
        {"driver": "amdgpu", "files": {"serial_number": DSN, "unique_id": "0"}},
        {("pcie-dsn", DSN)},
    ),
    "an AMD GPU whose serial number is that of its chip": (
        ((0x1002, 0x738C), DISPLAY),
        {"driver": "amdgpu", "files": {"unique_id": "0e54792172da5eeb", "serial_number": "e54792172da5eeb"}},
        {("gpu-unique-id", "0e54792172da5eeb")},
    ),
    "files of another driver": (
        (MI210, DISPLAY),
        {"driver": "radeon", "files": {"unique_id": "d3a17c52e9f0b46d", "serial_number": "692231000117"}},
        set(),
    ),
    "an NVMe disk": (
        (CM6, NVME),
        {
            "driver": "nvme",
            "files": {
                "nvme/nvme3/serial": "61X0A003TCD8        ",
                "nvme/nvme3/subsysnqn": "nqn.2014-08.org.nvmexpress:uuid:8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55",
                "nvme/nvme3/nvme3n1/wwid": "eui.0025389a21014c7e",
                "nvme/nvme3/nvme3n1/eui": "00 25 38 9a 21 01 4c 7e",
                "nvme/nvme3/nvme3n1/nguid": "36344630-52b0-1234-0025-384100000001",
                "nvme/nvme3/ng3n1/wwid": "eui.1111111111111112",
            },
        },
        {
            ("nvme-serial", "61x0a003tcd8"),
            ("nvme-nqn", "nqn.2014-08.org.nvmexpress:uuid:8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55"),
            ("eui64", "0025389a21014c7e"),
            ("nguid", "3634463052b012340025384100000001"),
        },
    ),
    "a disk with several paths": (
        (CM6, NVME),
        {
            "driver": "nvme",
            "files": {"nvme/nvme0/nvme0c0n1/wwid": "eui.36344630-52b0-1234-0025-384100000001"},
        },
        {("nguid", "3634463052b012340025384100000001")},
    ),
    "a disk for which the kernel makes a name, that has not yet answered, and with a UUID of a namespace": (
        (CM6, NVME),
        {
            "driver": "nvme",
            "files": {
                "nvme/nvme3/serial": "(efault)",
                "nvme/nvme3/subsysnqn": "nqn.2014.08.org.nvmexpress:1e0f1e0f61X0A003TCD8        KCD6XLUL960G",
                "nvme/nvme3/nvme3n1/wwid": "uuid.8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55",
            },
        },
        set(),
    ),
    "a network card": (
        (CONNECTX, NIC),
        {
            "driver": "mlx5_core",
            "files": {
                "net/ens8f0np0/address": "94:6d:ae:51:c0:2a",
                "net/ens8f0np0/addr_assign_type": "0",
                "infiniband/mlx5_0/node_guid": "946d:ae03:0051:c02a",
            },
        },
        {("mac", "94:6d:ae:51:c0:2a"), ("node-guid", "946dae030051c02a")},
    ),
    "addresses that are not the card's own": (
        (CONNECTX, NIC),
        {
            "driver": "mlx5_core",
            "files": {
                "net/set/address": "94:6d:ae:51:c0:01",
                "net/set/addr_assign_type": "3",
                "net/random/address": "94:6d:ae:51:c0:02",
                "net/random/addr_assign_type": "1",
                "net/unknown/address": "94:6d:ae:51:c0:03",
                "net/representor/address": "94:6d:ae:51:c0:04",
                "net/representor/addr_assign_type": "0",
                "net/representor/phys_port_name": "pf0vf3",
                "net/host/address": "94:6d:ae:51:c0:06",
                "net/host/addr_assign_type": "0",
                "net/host/phys_port_name": "c1pf0",
                "net/port0/address": "94:6d:ae:51:c0:07",
                "net/port0/addr_assign_type": "0",
                "net/port0/phys_port_name": "p0pf0vf1",
                "net/ib0/address": "00:00:10:29:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:51:c0:2a",
                "net/ib0/addr_assign_type": "0",
                "net/port/address": "94:6d:ae:51:c0:05",
                "net/port/addr_assign_type": "0",
                "net/port/phys_port_name": "p0",
            },
        },
        {("mac", "94:6d:ae:51:c0:05")},
    ),
    "members of a bond": (
        (E810, NIC),
        {
            "driver": "ice",
            "files": {
                "net/e0/address": "94:6d:ae:51:c0:05",
                "net/e0/addr_assign_type": "3",
                "net/e0/bonding_slave/perm_hwaddr": "94:6d:ae:51:c0:06",
            },
        },
        {("mac", "94:6d:ae:51:c0:06")},
    ),
    "a virtual machine's network card": (
        ((0x1AF4, 0x1041), NIC),
        {
            "driver": "virtio-pci",
            "files": {
                "virtio3/net/eth0/address": "94:6d:ae:51:c0:05",
                "virtio3/net/eth0/addr_assign_type": "0",
            },
        },
        {("mac", "94:6d:ae:51:c0:05")},
    ),
    "CXL memory": (
        (CMM, CXL),
        {"driver": "cxl_pci", "files": {"mem2/serial": "0x3091117810000a27"}},
        {("pcie-dsn", "30-91-11-78-10-00-0a-27")},
    ),
    "a Gaudi": (
        (GAUDI, ACCELERATOR),
        {"driver": "habanalabs", "files": {"fuse_ver": "01P4-HL3090A0-18-U4V195-07-11-02"}},
        {("vendor", "fuse-ver=01p4-hl3090a0-18-u4v195-07-11-02")},
    ),
    "a Gaudi of another kernel": (
        (GAUDI, ACCELERATOR),
        {"driver": "habanalabs", "files": {"accel/accel0/fuse_ver": "01P4-HL3090A0"}},
        {("vendor", "fuse-ver=01p4-hl3090a0")},
    ),
    "a Gaudi without a number": (
        (GAUDI, ACCELERATOR),
        {"driver": "habanalabs", "files": {"fuse_ver": "N/A"}},
        set(),
    ),
    "an Alveo": (
        (ALVEO, ACCELERATOR),
        {
            "driver": "xclmgmt",
            "files": {
                "xmc.m.2097152/serial_num": "XFL1RT5PM0AB",
                "xmc.m.2097152/mac_addr0": "00:0A:35:06:51:C4",
                "xmc.m.2097152/mac_addr1": "FF:FF:FF:FF:FF:FF",
                "rom.m/uuid": "97088961feaeda9152a21d9dfd63ccef",
            },
        },
        {("board-serial", "xfl1rt5pm0ab"), ("mac", "00:0a:35:06:51:c4")},
    ),
    "an Alveo with a Versal chip": (
        ((0x10EE, 0x5094), ACCELERATOR),
        {
            "driver": "xclmgmt",
            "files": {
                "hwmon_sdm.m.33554432/serial_num": "XFL1ZZB5Y1M2",
                "hwmon_sdm.m.33554432/mac_addr0": "00:0A:35:0A:51:C4",
            },
        },
        {("board-serial", "xfl1zzb5y1m2"), ("mac", "00:0a:35:0a:51:c4")},
    ),
    "an Intel card with a board controller": (
        (PAC, ACCELERATOR),
        {
            "driver": "dfl-pci",
            "files": {
                "fpga_region/region0/dfl-fme.0/spi-altera.1.auto/spi_master/spi1/spi1.0/mac_address": "64:4c:36:f0:44:fe",
                "fpga_region/region0/dfl-fme.0/spi-altera.1.auto/spi_master/spi1/spi1.0/mac_count": "3",
            },
        },
        {("mac", "64:4c:36:f0:44:fe"), ("mac", "64:4c:36:f0:44:ff"), ("mac", "64:4c:36:f0:45:00")},
    ),
    "an Intel card without an address": (
        (PAC, ACCELERATOR),
        {"driver": "dfl-pci", "files": {"fpga_region/region0/mac_address": "ff:ff:ff:ff:ff:ff"}},
        set(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_function_has_the_identifiers_that_its_files_show(case, tmp_path):
    (ids, code), shown, expected = CASES[case]
    tree = handmade.Tree(tmp_path)
    tree.function(ADDRESS, ids, code, **shown)
    function = tree.read(ADDRESS)
    assert pairs(function) == expected
    (card,) = reader.read(tree.root).cards
    assert pairs(card) == expected


def test_each_identifier_has_its_source(tmp_path):
    tree = handmade.Tree(tmp_path)
    tree.function(ADDRESS, CM6, NVME, driver="nvme", dsn=DSN, files={"nvme/nvme3/serial": "61X0A003TCD8"})
    assert {(each.kind, each.source) for each in tree.read(ADDRESS).identifiers} == {
        (Kind.PCIE_DSN, "config"),
        (Kind.NVME_SERIAL, "nvme/nvme3/serial"),
    }


@pytest.mark.parametrize(
    ("driver", "uuid", "expected", "silence"),
    [
        ("nvidia", f"GPU-{UUID}", {("gpu-uuid", UUID)}, None),
        ("nvidia", "GPU-????????-????-????-????-????????????", set(), Silence.NOT_INITIALISED),
        ("nvidia", None, set(), Silence.NOT_INITIALISED),
        ("vfio-pci", f"GPU-{UUID}", set(), Silence.DRIVER_NOT_BOUND),
        (None, None, set(), Silence.DRIVER_NOT_BOUND),
    ],
)
def test_the_uuid_is_that_of_nvidias_driver(driver, uuid, expected, silence, tmp_path):
    tree = handmade.Tree(tmp_path)
    tree.function(ADDRESS, H100, GPU, driver=driver)
    if uuid is not None:
        tree.nvidia(ADDRESS, uuid)
    function = tree.read(ADDRESS)
    assert pairs(function) == expected
    assert silences.silences(function).get(Kind.GPU_UUID) is silence


VPD_CASES = {
    "ConnectX": (
        CONNECTX,
        {"PN": "MCX713106AC-VEAT", "SN": "MT2304XZ04QF   ", "V3": "5d0b3c7e9fb1ed118000946dae51c02a"},
        {("vpd-serial", "mt2304xz04qf"), ("part-number", "mcx713106ac-veat"), ("mac", "94:6d:ae:51:c0:2a")},
    ),
    "a V3 that is no UUID of version 1": (
        CONNECTX,
        {"SN": "MT2304XZ04QF", "V3": "5d0b3c7e9fb1ed418000946dae51c02a"},
        {("vpd-serial", "mt2304xz04qf")},
    ),
    "a V3 of another maker": (
        E810,
        {"SN": "507C6F4A31D2", "V3": "5d0b3c7e9fb1ed118000946dae51c02a"},
        {("vpd-serial", "507c6f4a31d2")},
    ),
    "a placeholder": (E810, {"SN": "N/A", "PN": ""}, set()),
    "control characters": (E810, {"SN": "AB\x1b[0mC"}, set()),
}


@pytest.mark.parametrize("case", VPD_CASES)
def test_vital_product_data_is_read_without_a_driver(case, tmp_path):
    ids, fields, expected = VPD_CASES[case]
    tree = handmade.Tree(tmp_path)
    tree.function(ADDRESS, ids, NIC, driver="vfio-pci", vpd=fields)
    slow = slowreads.SlowReads()
    tree.read(ADDRESS, slow)
    finish(slow)
    function = tree.read(ADDRESS, slow)
    assert pairs(function) == expected
    assert Kind.VPD_SERIAL not in silences.silences(function)


def finish(slow):
    """Wait until all Vital Product Data is read."""
    slow.wait(10)
    assert not slow.list_pending()


@pytest.mark.parametrize(
    ("ids", "code", "links"),
    [
        pytest.param((0x1000, 0x0072), 0x010700, {}, id="a storage adapter of LSI"),
        pytest.param((0x1969, 0x1091), NIC, {}, id="Attansic"),
        pytest.param((0x1C36, 0x0031), NIC, {}, id="Annapurna"),
        pytest.param((0x8086, 0x0001), 0x060400, {}, id="a bridge"),
        pytest.param(CONNECTX, NIC, {"physfn": "../0000:17:00.1"}, id="a virtual function"),
    ],
)
def test_vital_product_data_of_devices_that_hang_is_never_read(ids, code, links, tmp_path):
    tree = handmade.Tree(tmp_path)
    folder = tree.function(ADDRESS, ids, code, driver="mlx5_core", dsn=DSN)
    os.mkfifo(folder / "vpd")
    for name, target in links.items():
        (folder / name).symlink_to(target)
    slow = slowreads.SlowReads()
    tree.read(ADDRESS, slow)
    assert not slow.list_pending()


def test_bridges_and_virtual_functions_have_no_identifiers(tmp_path):
    tree = handmade.Tree(tmp_path)
    tree.function("0000:00:01.0", (0x8086, 0x0001), 0x060400, driver="pcieport", dsn=DSN)
    files = {"net/v/address": "94:6d:ae:51:c0:05", "net/v/addr_assign_type": "0"}
    virtual = tree.function("0000:17:00.1", CONNECTX, NIC, driver="mlx5_core", dsn=DSN, files=files)
    (virtual / "physfn").symlink_to("../0000:17:00.0")
    for address in ("0000:00:01.0", "0000:17:00.1"):
        function = tree.read(address)
        assert (function.identifiers, function.unread, silences.silences(function)) == ((), (), {})


FILES = {
    "amdgpu": (MI210, DISPLAY, ("unique_id", "serial_number", "product_number")),
    "nvme": (
        CM6,
        NVME,
        ("nvme/nvme0/serial", "nvme/nvme0/subsysnqn", "nvme/nvme0/nvme0n1/wwid", "nvme/nvme0/nvme0n1/eui"),
    ),
    "mlx5_core": (
        CONNECTX,
        NIC,
        ("net/e0/address", "net/e0/addr_assign_type", "infiniband/mlx5_0/node_guid"),
    ),
    "cxl_pci": (CMM, CXL, ("mem0/serial",)),
    "habanalabs": (GAUDI, ACCELERATOR, ("fuse_ver",)),
    "xclmgmt": (
        ALVEO,
        ACCELERATOR,
        ("xmc.m/serial_num", "xmc.m/mac_addr0", "hwmon_sdm.m/serial_num", "hwmon_sdm.m/mac_addr0"),
    ),
    "dfl-pci": (PAC, ACCELERATOR, ("fpga_region/region0/mac_address", "fpga_region/region0/mac_count")),
}


@pytest.mark.parametrize("driver", FILES)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"A" * (1 << 20), id="a megabyte of text"),
        pytest.param(b"AB\x1b]0;owned\x07\n", id="control characters"),
        pytest.param(b"\xff\xfe\x80\x81\n", id="bytes that are no text"),
        pytest.param(b"", id="nothing"),
        pytest.param(None, id="EISDIR"),
        pytest.param(b"To Be Filled By O.E.M.\n", id="a placeholder"),
    ],
)
def test_spoilt_files_give_no_identifier(driver, content, tmp_path):
    ids, code, names = FILES[driver]
    tree = handmade.Tree(tmp_path)
    tree.function(ADDRESS, ids, code, driver=driver, files=dict.fromkeys(names, content), vpd=content or b"")
    slow = slowreads.SlowReads()
    tree.read(ADDRESS, slow)
    finish(slow)
    assert pairs(tree.read(ADDRESS, slow)) == set()


def test_a_card_unites_the_identifiers_of_its_functions(tmp_path):
    tree = handmade.Tree(tmp_path)
    for number in (0, 1):
        files = {
            f"net/e{number}/address": f"94:6d:ae:51:c0:2{number}",
            f"net/e{number}/addr_assign_type": "0",
        }
        tree.function(f"0000:17:00.{number}", E810, NIC, driver="ice", dsn=DSN, files=files)
    (card,) = reader.read(tree.root).cards
    assert [(each.kind.value, each.value) for each in card.identifiers] == [
        ("pcie-dsn", DSN),
        ("mac", "94:6d:ae:51:c0:20"),
        ("mac", "94:6d:ae:51:c0:21"),
    ]


def test_without_privilege_the_kernels_own_file_has_the_number(tmp_path):
    (tmp_path / "serial_number").write_text(f"{DSN}\n")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    directory = identities.FunctionDirectory(
        root=str(tmp_path),
        address="0000:01:00.0",
        relative="",
        descriptor=descriptor,
        device_class=DeviceClass.GPU,
        vendor=0x10DE,
        driver=None,
        names=frozenset({"serial_number"}),
        directories=(),
    )
    readings = identities.Readings(
        dsn=None, dsn_hidden=True, information=None, vpd=lambda _: identities.NO_VPD
    )
    (shown,), unread = identities.read(directory, readings)
    os.close(descriptor)
    assert (shown.kind, shown.value, shown.source, unread) == (Kind.PCIE_DSN, DSN, "serial_number", ())


def test_vital_data_has_the_kernels_checksum():
    data = vital.image("Card", {"SN": "X"})
    assert sum(data[:-1]) & 0xFF == 0
