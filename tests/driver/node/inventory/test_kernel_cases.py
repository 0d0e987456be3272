"""The cards that each recorded kernel shows: see `tests/cases/README.md`."""

import json
from pathlib import Path

import pytest

from drawbar.driver.node.discovery import reader, slowreads
from drawbar.mocks.sysfs import load_recording

FOLDER = Path(__file__).parents[3] / "cases" / "kernels"
CASES = {
    f"{path.parent.name}/{name}": (path.parent / name, cards)
    for path in sorted(FOLDER.glob("*/cards.json"))
    for name, cards in json.loads(path.read_text()).items()
}


def test_every_recording_is_a_case():
    assert sorted(CASES) == sorted(
        f"{path.parent.name}/{path.name}" for path in FOLDER.glob("*/sysfs*.json.gz")
    )


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_kernel_shows_these_cards(case, tmp_path):
    recording, cards = CASES[case]
    load_recording(recording, tmp_path / "sys")
    slow = slowreads.SlowReads()
    reader.read(tmp_path / "sys", slow)
    slow.wait(120)
    assert {
        card.address: {
            "class": card.device_class,
            "slot": card.first.slot,
            "functions": len(card.functions),
            "identifiers": sorted({f"{each.kind}: {each.value}" for each in card.identifiers}),
        }
        for card in reader.read(tmp_path / "sys", slow).cards
        if card.device_class != "bridge"
    } == cards
