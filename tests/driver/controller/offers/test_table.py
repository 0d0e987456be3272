"""The table of the kinds of offers: what a fabric offers, and that a kind is one module and one row."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import fabrics
from drawbar.driver.controller.offers import table
from drawbar.driver.controller.offers.offer import Stock
from drawbar.fabric import contract

ROOT = Path(__file__).parents[4]
NAMES = [f"d{number}" for number in range(6)]


@st.composite
def devices(draw):
    """Draw devices of one enclosure: whole ones, pools of memory, and slices of these."""
    made = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        carving = contract.Carving(free_bytes=1 << 28, step_bytes=1 << 28, is_pool=draw(st.booleans()))
        origin = contract.Slice(
            origin_id=draw(st.sampled_from(NAMES)), mark=draw(st.sampled_from([None, "m"]))
        )
        shape = draw(st.sampled_from([{}, {"carving": carving}, {"slice_of": origin}]))
        made.append(contract.Device(id=name, device_class=contract.DeviceClass.CXL_MEMORY, **shape))
    return tuple(made)


@given(
    devices(),
    st.lists(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3), max_size=3),
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(NAMES)),
)
def test_a_device_is_in_one_offer_at_most_and_none_that_is_withheld_is_offered(listed, groups, given_, whole):
    named = tuple(
        fabrics.Composite(name=f"c{number}", devices=tuple(members)) for number, members in enumerate(groups)
    )
    stock = Stock(
        spec=fabrics.FabricSpec(adapter="a", endpoint="e", composites=named),
        devices=listed,
        in_use=given_,
        kept_whole=whole,
        made=dict.fromkeys(NAMES, 0),
    )
    arranged = table.arrange(stock)
    parts = [part for offer in arranged.offers.values() for part in offer.parts]
    assert len(parts) == len(set(parts))
    assert not arranged.withheld & arranged.offers.keys()
    assert set(parts) <= stock.by_name.keys()
    assert stock.by_name.keys() <= {*parts, *arranged.withheld}


MODULE = '''"""A bundle: two devices of different kinds as one offer; pure."""

from collections.abc import Collection

from drawbar.driver.controller.offers.offer import Arrangement, Offer, Stock

PARTS = ("gpu-0", "disk-0")


def offer(stock: Stock, taken: Collection[str]) -> Arrangement:
    """Return the bundle, once the fabric has both devices."""
    if not stock.by_name.keys() >= set(PARTS):
        return Arrangement()
    bundle = Offer(name="bundle", device=stock.by_name[PARTS[0]], parts=PARTS)
    return Arrangement(
        offers={"bundle": bundle}, members={"bundle": PARTS}, withheld=frozenset(PARTS)
    )
'''
ROW = "    Kind(arrange=bundle.offer, groups=lambda spec: True),\n"
TEST = '''"""A claim of a bundle."""


async def test_a_claim_gets_both_parts_or_none(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        devices = await until(cluster.list_devices, lambda value: "bundle" in value)
        assert not devices.keys() & {"gpu-0", "disk-0"}
        await cluster.allocate("bundle")
        await cluster.wait_until_attached("bundle")
        assert sorted(await cluster.attachments()) == ["fab.disk-0", "fab.gpu-0"]
        await cluster.deallocate()
        for part in ("fab.disk-0", "fab.gpu-0"):
            await cluster.wait_until_deleting(part)
        await cluster.release_attachments("fab.disk-0", "fab.gpu-0")
        await cluster.stop()
'''


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the tree."""
    skipped = shutil.ignore_patterns("__pycache__", "*.log")
    for name in ("driver", "fabric", "cdi", "proto", "mocks", "deploy", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_a_new_kind_of_offer_is_one_module_and_one_row(copy):
    offers = copy / "driver/drawbar/driver/controller/offers"
    (offers / "bundle.py").write_text(MODULE)
    rows = (offers / "table.py").read_text()
    before = "KINDS = (\n"
    assert rows.count(before) == 1
    rows = rows.replace(before, before + ROW).replace("offers import exact", "offers import bundle, exact")
    (offers / "table.py").write_text(rows)
    (copy / "tests/driver/controller/test_bundle.py").write_text(TEST)
    python_path = os.pathsep.join(str(copy / name) for name in ("driver", "fabric", "cdi", "proto", "mocks"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/driver/controller/test_bundle.py"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
