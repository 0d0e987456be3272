"""What the page on the local pool shows is true."""

import argparse
import re
from pathlib import Path

import pytest

from drawbar.driver import expressions
from drawbar.driver.api import slices
from drawbar.driver.configuration import loader
from drawbar.driver.node import settings
from drawbar.driver.node.local import selections
from drawbar.driver.slices import pool_writes

PAGE = (Path(__file__).parents[4] / "docs" / "local-pool.md").read_text()
EXPRESSIONS = re.search(r"```cel\n(.*?)```", PAGE, re.DOTALL).group(1).splitlines()


def load(path, text):
    path.write_text(text)
    return loader.load(
        settings.Settings,
        argparse.Namespace(config=str(path)),
        problems=lambda loaded: selections.problems(loaded.local_pool),
        environ={"NODE_NAME": "n"},
    )


def test_the_example_is_a_configuration(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    chosen = load(tmp_path / "c.yaml", example).validate().local_pool
    assert chosen.classes == ("gpu", "fpga", "nvme")
    assert chosen.has_slot("rear-3")
    assert not chosen.has_slot("front-3")
    assert expressions.fault(chosen.selector) is None


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_useful_selectors_are_answered(expression):
    device = slices.Device(
        name="x",
        attributes={
            "pciVendorID": slices.Attribute(string="0x10de"),
            "serial": slices.Attribute(string="48-b0-2d-00-00-00-00-02"),
            "resource.kubernetes.io/numaNode": slices.Attribute(int_=1),
        },
        capacity={"memory": slices.Capacity(value="80Gi")},
    )
    assert expressions.matches(expression, "drawbar.dev", device)


def test_the_size_of_a_pool_on_the_page_is_that_of_the_program():
    assert f"**{pool_writes.DEVICES_MAX} devices fit into a pool.**" in PAGE


def test_wrong_settings_are_refused_with_their_path(tmp_path):
    loaded = load(tmp_path / "c.yaml", "localPool: {classes: [other, disk]}\n")
    assert len(loaded.problems) == 2
