"""`docs/development/extending.md` is followed step by step on a copy of the repository, and what it adds is there and works."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "development" / "extending.md").read_text()
BLOCK = re.compile(r"^`([^`\n]+)`:\n\n```(python|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COPIED = (
    "driver",
    "fabric",
    "cdi",
    "proto",
    "mocks",
    "deploy",
    "docs",
    "tests",
    "bench",
    "generate.py",
    "pyproject.toml",
)
SOURCES = ("driver", "fabric", "cdi", "proto", "mocks")
MADE_BY_HELM = {
    f"test_the_manifests_have_a_class_for_each[{name}]"
    for name in ("deviceclasses.yaml", "classic/deviceclasses.yaml", "classic/resourceclasses.yaml")
}
ASKED = """
import asyncio, json, sys
from pathlib import Path
from drawbar.driver.node import classes
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.health import judgement, monitor, policy, readings
card = next(card for card in reader.read(Path(sys.argv[1])).cards if card.first.serial)
taken = readings.read(Path(sys.argv[1]), card)
_, verdict = judgement.judge(judgement.History(), taken, 0.0, policy.Policy())
dsp = classes.by_name("dsp")
print(json.dumps({
    "class": classes.classify(0x118000, 0x104C, 0x1000),
    "module": type(dsp).__module__,
    "lack": dsp.missing_requirements(card),
    "taints": [taint.key for taint in verdict.taints],
    "rule": policy.Policy().rules.parity_broken.unhealthy,
}))
"""


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def write_blocks(root, title):
    """Write the new files of a section, and make its changes of others."""
    for path, kind, text in BLOCK.findall(section(title)):
        file = root / path
        if kind == "python":
            assert not file.exists(), path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            continue
        lines = text.splitlines()
        before = "\n".join(line[1:] for line in lines if line[0] in " -")
        after = "\n".join(line[1:] for line in lines if line[0] in " +")
        assert file.read_text().count(before) == 1, f"{path}: {before}"
        file.write_text(file.read_text().replace(before, after))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a copy of the repository with everything that the page adds."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.log"))
        else:
            shutil.copy(ROOT / name, root / name)
    for title in ("A fabric adapter", "A device class", "A health rule", "A verb"):
        write_blocks(root, title)
    made = run(root, "generate.py")
    assert made.returncode == 0, made.stderr
    subprocess.run([root / "proto/generate"], check=True, env=os.environ | {"PYTHON": sys.executable})
    return root


def run(root, *words):
    """Run Python on the copy; return the finished process."""
    python_path = os.pathsep.join(str(root / name) for name in SOURCES)
    environment = os.environ | {"PYTHONPATH": python_path}
    command = [sys.executable, *(str(word) for word in words)]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture
def tree(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    tree.attach(1, MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN1"))
    return tree


def test_the_class_the_rule_and_the_verb_are_there(copy, tree, tmp_path):
    (tree.root / "bus/pci/devices" / tree.address(1) / "broken_parity_status").write_text("1\n")
    done = run(copy, "-c", ASKED, tree.root)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "class": "dsp",
        "module": "drawbar.driver.node.classes.dsp",
        "lack": None,
        "taints": ["parity-broken"],
        "rule": False,
    }
    slots = run(copy, "-m", "drawbar.driver.main", "slots", "--sysfs", tree.root)
    assert "1\t0000:01:00" in slots.stdout, slots.stderr


def test_the_tests_of_the_copy_fail_only_without_helm(copy):
    done = run(
        copy,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rf", "--timeout=200"),
        "tests/docs/test_device_classes.py",
        "tests/driver/node/health/test_policy.py",
        "tests/docs/test_reference.py",
    )
    failed = set(re.findall(r"^FAILED \S+?::(.*?)(?: - .*)?$", done.stdout, re.MULTILINE))
    assert failed == MADE_BY_HELM, done.stdout + done.stderr


def test_a_device_class_is_one_module_and_one_row(copy):
    blocks = BLOCK.findall(section("A device class"))
    assert [kind for _, kind, _ in blocks] == ["python", "diff"]
    assert [line[0] for line in blocks[1][2].splitlines()].count("+") == 1
    lists = {
        "deploy/drawbar/definitions/deviceattachments.yaml": ["nic, dsp, other]"],
        "deploy/drawbar/definitions/fabrics.yaml": [
            "nic, dsp, other]",
            "dsp: {type: string, enum: [none, reset]",
        ],
        "deploy/drawbar/values.yaml": ["nic, dsp, cxl-memory-pool"],
        "deploy/drawbar/values.schema.json": ['"dsp",', "nic|dsp|other", '"parityBroken": {'],
        "proto/drawbar/proto/fabric/v1alpha1/fabric_pb2.pyi": [
            "DEVICE_CLASS_DSP: DeviceClass.ValueType  # 8"
        ],
        "docs/reference/device-classes.md": ["- `dsp`: Signal processors."],
    }
    for path, parts in lists.items():
        text = (copy / path).read_text()
        assert [part for part in parts if part not in text] == [], path
        assert [part for part in parts if part in (ROOT / path).read_text()] == [], path


def test_completion_proposes_the_class(copy):
    asked = "from drawbar.driver import main; main.complete(['discover', '--class', 'd'])"
    assert run(copy, "-c", asked).stdout.split() == ["dsp", ":4"]


def test_the_adapter_keeps_the_contract(copy):
    done = run(copy, "-c", JUDGED)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    entries = (copy / "pyproject.toml").read_text()
    assert 'rack = "drawbar.fabric.rack.adapter:RackAdapter"' in entries


JUDGED = """
import asyncio, contextlib, json, tempfile
from drawbar.fabric import conformance, contract
from drawbar.fabric.grpc import server
from drawbar.fabric.rack.adapter import RackAdapter
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
DESCRIBED = b'''{"hosts": [{"id": "h1", "ports": 2}, {"id": "h2", "ports": 2}], "enclosures": [{"id": "e", "devices": [
  {"id": "d1", "class": "nvme"}]}], "attachSeconds": 0, "detachSeconds": 0}'''
async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with contextlib.AsyncExitStack() as stack:
            fabric = await stack.enter_async_context(SimulatedFabric.running(configuration.parse(DESCRIBED)))
            await stack.enter_async_context(server.serving(fabric, f"unix:{folder}/7.sock", name="rack", version="1"))
            config = contract.AdapterConfig(name="rack", endpoint=f"rack:{folder}/7", timeout_seconds=10)
            adapter = await stack.enter_async_context(await RackAdapter.connect(config))
            report = await conformance.check(adapter, check_seconds=30)
            print(json.dumps([outcome.name + ": " + outcome.detail for outcome in report.failed]))
asyncio.run(main())
"""
