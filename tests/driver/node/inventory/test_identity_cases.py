"""Hosts of real fabrics (serial numbers are made up): the node collects every identifier that a kernel shows, and no other."""

import json
from pathlib import Path

import pytest
from tests.scenes import handmade

from drawbar.driver.node.discovery import reader, slowreads

CASES = {
    case["id"]: case["cards"]
    for case in json.loads((Path(__file__).parents[3] / "cases/identity/hosts.json").read_text())
}


def build(tree, card):
    """Make a card as its kernel shows it; a permanent address is one that the kernel calls so."""
    files = {}
    for path, text in card.get("sysfs", {}).items():
        files[path.removeprefix("cxl/")] = text
        if path.startswith("net/"):
            files[f"{path.rpartition('/')[0]}/addr_assign_type"] = "0"
    tree.function(
        card["address"],
        (int(card["vendor"], 16), int(card["device"], 16)),
        int(card["class"], 16),
        driver=card.get("driver"),
        dsn=card.get("dsn"),
        files=files,
        vpd=card.get("vpd"),
    )
    if (shown := card.get("proc_driver_nvidia")) is not None:
        tree.nvidia(card["address"], shown["GPU UUID"])


@pytest.mark.parametrize("case", CASES)
def test_the_node_collects_identifiers_from_the_kernel(case, tmp_path):
    tree = handmade.Tree(tmp_path)
    for card in CASES[case]:
        build(tree, card)
    slow = slowreads.SlowReads()
    reader.read(tree.root, slow)
    slow.wait(10)
    for card in CASES[case]:
        collected = handmade.pairs(tree.read(card["address"], slow))
        assert sorted(f"{kind}={value}" for kind, value in collected) == sorted(card["identifiers"])
        # What a vendor's library alone tells, such as a board serial number, stays unknown.
        only_the_library = {
            text.casefold() for library in card.get("vendorLibrary", {}).values() for text in library.values()
        } - {text.casefold() for text in _texts(card)}
        assert not only_the_library & {value for _, value in collected}


def _texts(card):
    shown = (card.get("sysfs", {}), card.get("vpd") or {}, card.get("proc_driver_nvidia", {}))
    for texts in shown:
        for text in texts.values():
            yield from (text.strip(), text.strip().removeprefix("GPU-"))
