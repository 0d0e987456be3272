"""Drivers and firmware that are too old for their class."""

import msgspec
import pytest
from tests.scenes import cards

from drawbar.driver.api.attachments import Versions
from drawbar.driver.node.attachments import initialisation
from drawbar.driver.node.inventory import model


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.9", "1.10"),
        ("550.54.9", "550.54.14"),
        ("5.15", "5.15.2"),
        ("1.0.0-rc1", "1.0.0-rc2"),
        ("2B4QFXO6", "2B4QFXO7"),
        ("EDA5402Q", "EDA5602Q"),
        ("1_4", "1.5"),
    ],
)
def test_versions_are_in_order(lower, higher):
    assert initialisation.order(lower) < initialisation.order(higher)


@pytest.fixture
def card(tmp_path):
    """Return `card(driver_version, firmware)`: an NVMe disk below a sysfs with the version of its module."""

    def make(version=None, firmware=None):
        if version is not None:
            module = tmp_path / "bus/pci/drivers/nvme/module"
            module.mkdir(parents=True)
            (module / "version").write_text(f"{version}\n")
        function = cards.function(nvme="SN1", driver="nvme")
        controller = msgspec.structs.replace(function.nvme[0], firmware=firmware)
        return model.Card(functions=(msgspec.structs.replace(function, nvme=(controller,)),))

    return make


@pytest.mark.parametrize(
    ("shown", "least", "words"),
    [
        ({"version": "1.10"}, {"driver": "1.9"}, None),
        (
            {"version": "1.9"},
            {"driver": "1.10"},
            "its driver nvme has version 1.9, and at least 1.10 is asked for",
        ),
        ({}, {"driver": "1.0"}, "its driver nvme shows no version to the kernel"),
        ({"firmware": "EDA5602Q"}, {"firmware": "EDA5402Q"}, None),
        ({"firmware": "EDA5402Q"}, {"firmware": "EDA5602Q"}, "its firmware has version EDA5402Q"),
        ({}, {"firmware": "1"}, "its firmware shows no version"),
        ({}, {}, None),
    ],
)
def test_an_old_or_unknown_version_is_named(tmp_path, card, shown, least, words):
    why = initialisation.too_old(card(**shown), Versions(**least), tmp_path)
    assert why is None if words is None else why.startswith(words)
