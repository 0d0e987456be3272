"""DFL cards that get a bitstream before their pod is bound, without a hook."""

import asyncio
import hashlib
import threading

import pytest
from tests.driver.flows.test_controller_flows_functions import FPGA
from tests.driver.flows.test_controller_flows_hooks import make_class, make_pod
from tests.scenes import bitstreams

from drawbar.driver.kube import kinds
from drawbar.driver.node import kernel
from drawbar.mocks.sysfs import reconfiguration

FILE = bitstreams.gbs()
ASKED = {"bitstream": "filter.gbs", "sha256": hashlib.sha256(FILE).hexdigest()}
OTHER = {"id": "fpga-1", "class": "fpga", "serial": "00-0a-35-00-00-00-00-02"}
OTHER |= {"pciVendor": 0x10EE, "pciDevice": 0x5004}


@pytest.fixture
def answers(monkeypatch):
    """Answer the kernel's ioctl on all nodes by a double; return the double."""
    double = reconfiguration.PortReconfiguration()
    monkeypatch.setattr(kernel, "ioctl", double)
    return double


def put(cluster):
    """Put the bitstream and the cards' device files where the nodes look for them."""
    folder = cluster.hooks().bitstreams
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / "filter.gbs").write_bytes(FILE)
    for tree in cluster.trees.values():
        reconfiguration.device_files(tree.root)


async def test_a_dfl_card_is_programmed_before_its_pod_is_bound(flow_lab, answers):
    answers.gate = threading.Event()
    async with flow_lab("1.36", enclosures=[{"id": "enc", "devices": [FPGA]}]) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "filters", initialise={"timeoutSeconds": 120})
        await make_pod(cluster, "p", "filters", fpga=ASKED)
        try:
            await cluster.wait_for_event(
                "Initialising", "bitstream filter.gbs is loaded into fpga-0, within 120 s"
            )
            pod = await cluster.api.read(kinds.POD, "p", namespace="default", into=dict)
            assert "nodeName" not in pod["spec"], "it waits for the card"
        finally:
            answers.gate.set()
        node, _ = await cluster.wait_until_running("p")
        (load,) = answers.loaded
        assert (load.design, load.port) == (bitstreams.DESIGN, 0)
        assert load.device == cluster.path / node / "dev/dfl-fme.0"


async def test_a_bitstream_that_is_not_loaded_takes_no_card_from_others(flow_lab, answers):
    answers.finds = "reconfig CRC error"
    async with flow_lab("1.36", enclosures=[{"id": "enc", "devices": [FPGA]}]) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "filters")
        await make_pod(cluster, "faulty", "filters", fpga=ASKED)
        await cluster.wait_for_event(
            "BitstreamNotLoaded", "fpga0 shows 'write complete error', 'reconfig CRC error'"
        )
        assert not await cluster.taints("fpga-0")
        await cluster.api.delete(kinds.POD, "faulty", namespace="default")
        await cluster.wait_until_gone("faulty")
        await cluster.is_free("fpga-0")
        answers.finds = ""
        await make_pod(cluster, "wrong", "filters", fpga=ASKED | {"sha256": "0" * 64})
        await cluster.wait_for_event("BitstreamNotLoaded", "and 000")
        assert not answers.loaded
        await cluster.api.delete(kinds.POD, "wrong", namespace="default")
        await cluster.wait_until_gone("wrong")


async def test_another_card_without_a_hook_is_left_as_it_is(flow_lab, answers):
    async with flow_lab("1.36", enclosures=[{"id": "enc", "devices": [OTHER]}]) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "filters")
        await make_pod(cluster, "p", "filters", fpga=ASKED)
        await cluster.wait_for_event("BitstreamNotLoaded", "loaded by a hook, and its DeviceClass names none")
        assert not await cluster.taints("fpga-1")
        assert not answers.loaded
        await cluster.api.delete(kinds.POD, "p", namespace="default")
        await cluster.wait_until_gone("p")
