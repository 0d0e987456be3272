"""Devices that live in a node and are made ready before their pod is bound: KEP-5007's first story, with a DaemonSet's hardware."""

import asyncio
import contextlib
import hashlib
import threading
from pathlib import Path

import pytest
from tests.driver.flows.sites import NODES
from tests.driver.flows.test_controller_flows_hooks import config, make_class, make_pod, put
from tests.scenes import bitstreams

from drawbar.driver.kube import kinds
from drawbar.driver.node import kernel
from drawbar.driver.node.local import selections
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs
from drawbar.mocks.sysfs import reconfiguration

FILE = bitstreams.gbs()
ASKED = {"bitstream": "filter.gbs", "sha256": hashlib.sha256(FILE).hexdigest()}
FABRIC = {"devices": 0, "ports": dict.fromkeys(NODES, 1)}
SLOT = 4


def built_in(*classes, **more):
    """Return the settings of a node whose last slot is its own.

    A pod with a device of `classes` is bound once the device is ready."""
    selection = selections.Selection(
        classes=("gpu", "fpga"), slots=(str(SLOT),), bind_when_ready=classes, **more
    )
    return {"local_pool": selection}


FPGAS = built_in("fpga")


def card(device_class, number):
    ids = {DeviceClass.FPGA: (0x8086, 0x0B2B), DeviceClass.GPU: (0x1002, 0x740F)}[device_class]
    driver = {DeviceClass.FPGA: "dfl-pci", DeviceClass.GPU: "amdgpu"}[device_class]
    return sysfs.MockDevice(
        device_class=device_class,
        vendor=ids[0],
        device=ids[1],
        serial=f"00-0a-35-00-00-00-00-0{number}",
        driver=driver,
    )


async def plug(cluster, device_class, *nodes):
    """Build a card into each of these nodes, and wait until all are offered; return their names by node."""
    for number, name in enumerate(nodes, 1):
        await asyncio.to_thread(cluster.trees[name].attach, SLOT, card(device_class, number))
    offered = await cluster.until(lambda: offers(cluster), lambda offered: set(offered) == set(nodes))
    return {name: next(iter(devices)) for name, devices in offered.items()}


async def offers(cluster):
    """Return the published devices of each node's own slots, by node and name."""
    listing = await cluster.api.list_all(kinds.SLICE, into=dict)
    specs = [item["spec"] for item in listing.items if item["spec"].get("nodeName")]
    return {
        spec["nodeName"]: {device["name"]: device for device in spec["devices"]}
        for spec in specs
        if spec.get("devices")
    }


async def taints(cluster, device):
    listing = await cluster.api.list_all(kinds.SLICE, into=dict)
    return cluster.taints_in([item["spec"] for item in listing.items], device)


async def is_unbound(cluster, name):
    pod = await cluster.api.read(kinds.POD, name, namespace="default", into=dict)
    return "nodeName" not in pod["spec"]


def put_bitstream(cluster):
    folder = cluster.hooks().bitstreams
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / "filter.gbs").write_bytes(FILE)
    for tree in cluster.trees.values():
        reconfiguration.device_files(tree.root)


async def delete(cluster, name):
    await cluster.api.delete(kinds.POD, name, namespace="default")
    await cluster.wait_until_gone(name)


class FirstCardFails(reconfiguration.PortReconfiguration):
    """The card that is loaded first finds a fault with every design, the others with none."""

    first: Path | None = None

    def __call__(self, descriptor, request, argument):
        device = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.first = self.first or device
        self.finds = "reconfig CRC error" if device == self.first else ""
        return super().__call__(descriptor, request, argument)


@pytest.fixture
def local_lab(flow_lab):
    """Return a context manager: `async with local_lab() as cluster`.

    The last slot of each node is its own. At the end the cards are clean and out.

    Real components stay for the next test, which waits until no slice is left.
    """

    @contextlib.asynccontextmanager
    async def making(**changes):
        async with flow_lab("1.36", **{"node": FPGAS} | FABRIC | changes) as cluster:
            yield cluster
            for name in ("go", "blank-now"):
                (cluster.path / name).touch()
            await cluster.until(lambda: marks(cluster), lambda files: not files)
            for name in await offers(cluster):
                await asyncio.to_thread(cluster.trees[name].detach, SLOT)

    return making


async def marks(cluster):
    """Return the marks of devices that are not clean."""
    return [file for node in NODES for file in (cluster.path / node).glob("k/plugins/*/unclean/*.json")]


@pytest.fixture
def answers(monkeypatch):
    """Answer the kernel's ioctl on all nodes by a double; return the double."""
    double = reconfiguration.PortReconfiguration()
    monkeypatch.setattr(kernel, "ioctl", double)
    return double


async def test_a_card_of_a_node_is_programmed_before_its_pod_is_bound(local_lab, answers):
    answers.gate = threading.Event()
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        published = (await offers(cluster))["node-1"][device]
        assert published["bindsToNode"] is True
        assert published["bindingConditions"] == ["drawbar.dev/visible"]
        assert published["bindingFailureConditions"] == ["drawbar.dev/node-failed"]
        await asyncio.to_thread(put_bitstream, cluster)
        await make_class(cluster, "filters", initialise={"timeoutSeconds": 120})
        await make_pod(cluster, "p", "filters", fpga=ASKED)
        try:
            await cluster.wait_for_event(
                "Initialising", f"bitstream filter.gbs is loaded into {device}, within 120 s"
            )
            assert await is_unbound(cluster, "p"), "it waits for the card"
        finally:
            answers.gate.set()
        assert await cluster.wait_until_running("p") == ("node-1", [device])
        (load,) = answers.loaded
        assert (load.design, load.port) == (bitstreams.DESIGN, 0)
        assert (await cluster.conditions_of("p"))[device] == {"visible": "DeviceReady"}
        assert not await cluster.attachments()
        await delete(cluster, "p")


async def test_a_pod_goes_to_another_node_where_the_card_of_one_does_not_take_the_bitstream(
    local_lab, monkeypatch
):
    cards = FirstCardFails()
    monkeypatch.setattr(kernel, "ioctl", cards)
    async with local_lab() as cluster:
        devices = await plug(cluster, DeviceClass.FPGA, *NODES)
        await asyncio.to_thread(put_bitstream, cluster)
        await make_class(cluster, "filters", fpga=ASKED)
        since = await cluster.version()
        await make_pod(cluster, "p", "filters")
        node, (device,) = await cluster.wait_until_running("p")
        (other,) = set(NODES) - {node}
        assert cards.first.parents[1].name == other
        assert await taints(cluster, devices[other]) == {"attach-failed=BitstreamNotLoaded:NoSchedule"}
        assert not await taints(cluster, device)
        await cluster.wait_for_event("BitstreamNotLoaded", "reconfig CRC error")
        await cluster.wait_for_event_about("p", "BitstreamNotLoaded")
        failures = {
            version
            for version, claim in await cluster.history(cluster.claim_kind, since)
            for entry in claim.get("status", {}).get("devices", ())
            for condition in entry.get("conditions", ())
            if condition["type"] == "drawbar.dev/node-failed" and condition["status"] == "True"
        }
        tainted = {
            version
            for version, item in await cluster.history(kinds.SLICE, since)
            for entry in item["spec"].get("devices", ())
            if entry["name"] == devices[other] and entry.get("taints")
        }
        assert min(tainted) < min(failures), "else the scheduler could pick the same card again"
        await delete(cluster, "p")


async def test_a_bitstream_that_a_claim_names_takes_no_card_from_others(local_lab, answers):
    answers.finds = "reconfig CRC error"
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await asyncio.to_thread(put_bitstream, cluster)
        await make_class(cluster, "filters")
        await make_pod(cluster, "faulty", "filters", fpga=ASKED)
        await cluster.wait_for_event("BitstreamNotLoaded", "reconfig CRC error")
        assert not {taint for taint in await taints(cluster, device) if taint.startswith("attach-failed")}
        await delete(cluster, "faulty")
        answers.finds = ""
        await make_pod(cluster, "p", "filters", fpga=ASKED)
        await cluster.wait_until_running("p")
        await delete(cluster, "p")


async def test_a_hook_makes_a_gpu_of_a_node_ready_before_its_pod_is_bound(local_lab):
    async with local_lab(node=built_in("gpu")) as cluster:
        (device,) = (await plug(cluster, DeviceClass.GPU, "node-2")).values()
        await asyncio.to_thread(put, cluster)
        digest = hashlib.sha256(b"the bits of an FPGA").hexdigest()
        await make_class(cluster, "packets", initialise={"hook": "loads", "timeoutSeconds": 60})
        await make_pod(cluster, "p", "packets", fpga={"bitstream": "packets.bit", "sha256": digest})
        await cluster.wait_for_event(
            "Initialising", f"hook loads with bitstream packets.bit makes {device} ready"
        )
        assert await is_unbound(cluster, "p")
        (cluster.path / "go").touch()
        assert await cluster.wait_until_running("p") == ("node-2", [device])
        assert (cluster.path / "runs").read_text().splitlines() == [
            f"{cluster.trees['node-2'].address(SLOT)} gpu"
        ]
        await delete(cluster, "p")


async def test_a_device_that_needs_nothing_is_ready_at_once_and_one_that_can_need_nothing_has_no_conditions(
    local_lab,
):
    async with local_lab() as cluster:
        await plug(cluster, DeviceClass.FPGA, "node-1")
        (gpu,) = await plug_gpu(cluster)
        await make_class(cluster, "any")
        await make_pod(cluster, "a", "any")
        await make_pod(cluster, "b", "any")
        nodes = {(await cluster.wait_until_running(name))[0] for name in ("a", "b")}
        assert nodes == set(NODES)
        assert "bindingConditions" not in (await offers(cluster))["node-2"][gpu]
        for name in ("a", "b"):
            await delete(cluster, name)


async def plug_gpu(cluster):
    await asyncio.to_thread(cluster.trees["node-2"].attach, SLOT, card(DeviceClass.GPU, 2))
    return (await cluster.until(lambda: offers(cluster), lambda offered: "node-2" in offered))["node-2"]


async def test_a_card_is_cleaned_between_two_users_and_the_second_is_not_bound_before(local_lab):
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "blanked", cleanUp={"hook": "blanks", "timeoutSeconds": 60})
        await make_pod(cluster, "first", "blanked")
        await cluster.wait_until_running("first")
        await make_pod(cluster, "second", "blanked")
        await delete(cluster, "first")
        await cluster.until(lambda: taints(cluster, device), lambda value: value == {"cleaning=:NoSchedule"})
        assert await is_unbound(cluster, "second")
        (cluster.path / "blank-now").touch()
        await cluster.wait_until_running("second")
        assert (cluster.path / "blanked").read_text() == f"{device}\n"
        assert cluster.trees["node-1"].resets(SLOT) == 1
        await delete(cluster, "second")


async def test_a_daemon_that_is_restarted_in_the_middle_makes_the_card_ready_and_leaves_it_so(local_lab):
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "packets", initialise={"hook": "loads", "timeoutSeconds": 60}, fpga=PACKETS)
        await make_pod(cluster, "p", "packets")
        await cluster.wait_for_event("Initialising", "hook loads")
        await cluster.stop("node-1")
        assert await is_unbound(cluster, "p")
        (cluster.path / "go").touch()
        cluster.start_node("node-1", **FPGAS)
        assert await cluster.wait_until_running("p") == ("node-1", [device])
        runs = (cluster.path / "runs").read_text().splitlines()
        assert len(runs) == 1, "the first was killed before it was let"
        await cluster.stop("node-1")
        cluster.start_node("node-1", **FPGAS)
        await make_pod(cluster, "next", "packets")
        await cluster.wait_for_event_about("next", "FailedScheduling")
        assert (cluster.path / "runs").read_text().splitlines() == runs, "a pod uses the card"
        await delete(cluster, "p")
        await cluster.wait_until_running("next")
        assert len((cluster.path / "runs").read_text().splitlines()) == 2
        await delete(cluster, "next")


PACKETS = {"bitstream": "packets.bit", "sha256": hashlib.sha256(b"the bits of an FPGA").hexdigest()}


async def test_a_claim_that_goes_in_the_middle_leaves_a_card_that_is_cleaned_for_the_next(local_lab):
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await asyncio.to_thread(put, cluster)
        await make_class(
            cluster, "packets", initialise={"hook": "loads"}, cleanUp={"hook": "blanks"}, fpga=PACKETS
        )
        await make_class(cluster, "plain")
        await make_pod(cluster, "gone", "packets")
        await cluster.wait_for_event("Initialising", "hook loads")
        await delete(cluster, "gone")
        await cluster.until(lambda: taints(cluster, device), lambda value: value == {"cleaning=:NoSchedule"})
        await make_pod(cluster, "p", "plain")
        (cluster.path / "blank-now").touch()
        await cluster.wait_until_running("p")
        assert (cluster.path / "blanked").read_text() == f"{device}\n"
        assert not (cluster.path / "runs").exists(), "the hook ended with its claim"
        await delete(cluster, "p")


async def test_without_binding_conditions_a_pod_waits_for_its_card_on_the_node(local_lab, answers):
    gates = {"DRADeviceBindingConditions": False}
    answers.gate = threading.Event()
    async with local_lab(gates=gates) as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await asyncio.to_thread(put_bitstream, cluster)
        assert "bindingConditions" not in (await offers(cluster))["node-1"][device]
        await make_class(cluster, "filters")
        await make_pod(cluster, "p", "filters", fpga=ASKED)
        await cluster.wait_for_event("Initialising", "bitstream filter.gbs")
        assert not await is_unbound(cluster, "p")
        assert not cluster.cdi_files, "no container gets the card yet"
        answers.gate.set()
        await cluster.wait_until_running("p")
        assert [load.design for load in answers.loaded] == [bitstreams.DESIGN]
        await delete(cluster, "p")


async def test_a_card_with_old_firmware_sends_its_pod_elsewhere(local_lab):
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await make_class(cluster, "newer", minimumVersions={"driver": "999"})
        await make_pod(cluster, "n", "newer")
        await cluster.wait_for_event("VersionTooOld", "at least 999 is asked for")
        wanted = {"attach-failed=VersionTooOld:NoSchedule"}
        await cluster.until(lambda: taints(cluster, device), lambda value: value == wanted)
        await delete(cluster, "n")


async def test_a_claim_with_a_disk_of_the_fabric_and_a_card_of_the_node_waits_for_both(local_lab, answers):
    answers.gate = threading.Event()
    async with local_lab(devices=1) as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await asyncio.to_thread(put_bitstream, cluster)
        await make_class(cluster, "filters")
        requests = [
            {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}},
            {"name": "card", "exactly": {"deviceClassName": "fpga.drawbar.dev"}},
        ]
        loaded = config(fpga=ASKED)[0] | {"requests": ["card"]}
        await cluster.pod_from_template("p", {"requests": requests, "config": [loaded]})
        await cluster.wait_for_event("Initialising", "bitstream filter.gbs")
        ready = {"attached": "Attached", "visible": "DeviceReady"}
        await cluster.until(lambda: cluster.conditions_of("p"), lambda value: value == {"disk-0": ready})
        assert await is_unbound(cluster, "p")
        answers.gate.set()
        assert await cluster.wait_until_running("p") == ("node-1", ["disk-0", device])
        assert await cluster.conditions_of("p") == {"disk-0": ready, device: {"visible": "DeviceReady"}}
        await delete(cluster, "p")


async def test_parameters_that_cannot_be_obeyed_end_in_their_words_and_take_no_card_from_others(local_lab):
    async with local_lab() as cluster:
        (device,) = (await plug(cluster, DeviceClass.FPGA, "node-1")).values()
        await make_class(cluster, "any")
        await make_pod(cluster, "p", "any", initialise={"hook": "loads"})
        await cluster.wait_for_event("InvalidParameters", "initialise.hook is reserved for administrators")
        assert not {taint for taint in await taints(cluster, device) if taint.startswith("attach-failed")}
        await delete(cluster, "p")
