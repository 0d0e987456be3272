"""The ready-made trees, as `drawbar discover` reads them, and the command that writes them."""

import argparse
import json
from pathlib import Path

import pytest
from tests.scenes import witnesses

from drawbar.driver import main
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import errors
from drawbar.mocks.sysfs import ImpossibleWorld, SysfsTree, build, command, nodes

RECORDINGS = Path(__file__).parents[1] / "cases" / "kernels" / "kernel-6.1-qemu"


@pytest.mark.parametrize("name", nodes.NODES)
def test_discovery_finds_exactly_the_cards_that_were_put_in(name, tmp_path):
    tree = build(name, tmp_path / "sys")
    discovered = reader.read(tree.root)
    cards = [
        (each.slot, each.device_class.value, each.vendor, each.device)
        for each in discovered.functions
        if each.device_class is not DeviceClass.BRIDGE and each.physical_function is None
    ]
    put_in = tree.list_attached_cards()
    assert put_in == nodes.NODES[name].cards
    assert cards == [
        (str(slot), card.device_class.value, card.vendor, card.device) for slot, card in put_in.items()
    ]
    for slot, card in put_in.items():
        assert witnesses.addresses(discovered, card) == [tree.address(slot)]
    assert {slot.name: (slot.present, slot.powered) for slot in discovered.slots} == {
        str(slot): (slot in put_in, slot in put_in) for slot in range(1, len(discovered.slots) + 1)
    }


@pytest.mark.parametrize("name", nodes.NODES)
def test_every_link_of_a_ready_made_tree_leads_somewhere(name, tmp_path):
    root = build(name, tmp_path / "sys").root
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert links
    assert [path for path in links if not path.exists()] == []


@pytest.mark.parametrize("name", nodes.NODES)
def test_a_card_runs_at_full_speed_beside_the_processors_of_its_root_complex(name, tmp_path):
    discovered = reader.read(build(name, tmp_path / "sys").root)
    nodes_of_root = {"pci0000:10": 0, "pci0000:90": 1, "pci0000:40": 0, "pci0000:0c": 0, "pci0000:00": None}
    for each in discovered.functions:
        assert each.numa_node == nodes_of_root[each.pcie_root]
        if each.slot and each.physical_function is None:
            assert (each.link.speed_gts, each.link.width) == (each.link.max_speed_gts, each.link.max_width)


def test_the_gpu_node_has_four_gpus_on_each_socket(tmp_path):
    root = build("gpu-node", tmp_path / "sys").root
    gpus = [each for each in reader.read(root).functions if each.device_class == "gpu"]
    assert [each.numa_node for each in gpus] == [0] * 4 + [1] * 4
    assert len({each.pcie_root for each in gpus}) == 2
    assert (root / "devices/system/node/node1/cpulist").read_text() == "32-63\n"
    [vendor] = {(root / each.path / "local_cpulist").read_text() for each in gpus[4:]}
    assert vendor == "32-63\n"


def test_a_bridge_of_a_switch_leads_to_the_buses_below_it(tmp_path):
    root = build("switch-node", tmp_path / "sys").root
    function = reader.read(root).by_serial("S4YNNE0N800001")
    *above, own = function.path.split("/")[2:]
    buses = [int(address.split(":")[1], 16) for address in (*above, own)]
    for index, address in enumerate(above):
        port = root / "bus/pci/devices" / address
        assert int((port / "secondary_bus_number").read_text()) == buses[index + 1]
        assert int((port / "subordinate_bus_number").read_text()) >= buses[-1]


def test_the_fpga_has_virtual_functions_that_point_to_it_and_it_to_them(tmp_path):
    root = build("fpga-node", tmp_path / "sys").root
    discovered = reader.read(root)
    owner = discovered.by_serial("00-0a-35-00-00-00-00-01")
    assert (owner.sriov.total_vfs, owner.sriov.num_vfs) == (8, 4)
    virtual = [discovered.by_address(address) for address in owner.sriov.virtual_functions]
    assert [each.address for each in virtual] == [f"0000:41:00.{number}" for number in (1, 2, 3, 4)]
    for each in virtual:
        assert (each.physical_function, each.slot, each.driver) == (owner.address, owner.slot, "dfl-pci")
        assert (each.device, each.serial, each.sriov) == (0x0B2C, None, None)
    assert discovered.by_serial("00-0a-35-00-00-00-00-02").sriov is None


def test_the_cxl_node_has_ports_decoders_and_a_region_with_memory(tmp_path):
    root = build("cxl-node", tmp_path / "sys").root
    discovered = reader.read(root)
    assert [(port.name, port.kind, port.parent) for port in discovered.ports[:3]] == [
        ("root0", "root", None),
        ("port1", "switch", "root0"),
        ("port2", "switch", "port1"),
    ]
    assert [(port.uport, port.parent) for port in discovered.ports[3:]] == [
        (f"mem{number}", "port2") for number in range(3)
    ]
    [region] = discovered.regions
    assert (region.mode, region.committed, region.interleave_ways) == ("ram", True, 2)
    assert region.targets == ("decoder3.0", "decoder4.0")
    by_name = {decoder.name: decoder for decoder in discovered.decoders}
    assert [by_name[name].region for name in (*region.targets, "decoder5.0")] == ["region0", "region0", None]
    assert by_name["decoder2.0"].targets == (0, 1)
    for name in ("decoder1.0", "decoder2.0", *region.targets):
        assert (by_name[name].start, by_name[name].size_bytes) == (region.start, region.size_bytes)
    assert sum(by_name[name].dpa_bytes for name in region.targets) == region.size_bytes
    dax = root / "bus/dax/devices/dax0.0"
    assert int((dax / "size").read_text()) == region.size_bytes
    node = root / "devices/system/node" / f"node{(dax / 'target_node').read_text().strip()}"
    block_bytes = int((root / "devices/system/memory/block_size_bytes").read_text(), 16)
    blocks = [path for path in node.iterdir() if path.name.startswith("memory")]
    assert len(blocks) * block_bytes == region.size_bytes
    assert {(path / "valid_zones").read_text() for path in blocks} == {"Movable\n"}


def test_an_unknown_node_and_a_directory_in_use_are_refused(tmp_path):
    with pytest.raises(ImpossibleWorld, match="choose gpu-node, fpga-node"):
        build("tpu-node", tmp_path / "sys")
    build("empty-node", tmp_path / "sys")
    with pytest.raises(ImpossibleWorld, match="exists already"):
        build("empty-node", tmp_path / "sys")
    with pytest.raises(ImpossibleWorld, match="no layout"):
        SysfsTree.create(tmp_path / "other", layout="round")


# --- the command ---


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


async def test_the_command_writes_a_tree_and_says_where(tmp_path, capsys):
    assert await command.serve(arguments("nvme-node", "--root", tmp_path / "sys")) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported == {"ready": True, "tree": "nvme-node", "root": str(tmp_path / "sys")}
    assert len(SysfsTree.open(tmp_path / "sys").list_attached_cards()) == 4


async def test_the_command_writes_a_recorded_tree(tmp_path, capsys):
    recording = RECORDINGS / "sysfs-1-nvme.json.gz"
    assert await command.serve(arguments(recording, "--root", tmp_path / "sys")) == 0
    assert reader.read(tmp_path / "sys").by_serial("SN0001") is not None
    with pytest.raises(ImpossibleWorld, match="exists already"):
        await command.serve(arguments(recording, "--root", tmp_path / "sys"))


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (["tpu-node"], ImpossibleWorld, "no ready-made node tpu-node"),
        (["/no/such/file.json"], ImpossibleWorld, "no recording /no/such/file.json"),
        (["x.json", "--uevents", "/tmp/u"], errors.UsageError, "leave --uevents out"),
        (["empty-node", "--uevents", "/" + "long/" * 30], ImpossibleWorld, "too long for a UNIX socket"),
    ],
)
async def test_user_errors_are_reported_with_a_sentence(tmp_path, words, kind, sentence):
    with pytest.raises(kind, match=sentence):
        await command.serve(arguments(*words, "--root", tmp_path / "sys"))


async def test_a_root_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UsageError, match="choose another --root"):
        await command.serve(arguments("empty-node", "--root", tmp_path / "file" / "sys"))


def test_discover_reads_a_tree_written_by_the_command(tmp_path, capsys):
    root = str(tmp_path / "sys")
    assert main.main(["mock", "sysfs", "gpu-node", "--root", root]) == 0
    capsys.readouterr()
    assert main.main(["discover", "--sysfs", root, "-o", "json"]) == 0
    discovered = json.loads(capsys.readouterr().out)
    shown = {each["value"] for function in discovered["functions"] for each in function["identifiers"]}
    for card in nodes.NODES["gpu-node"].cards.values():
        kind = witnesses.kind(card)
        assert card.text(kind) in shown
