"""Pods that name their node themselves: no scheduler waits for them, so Prepare does."""

import asyncio
import hashlib
import json
import threading

import pytest
from tests.driver.flows.lab import drawbar_fabric
from tests.driver.flows.test_controller_flows_cleaning import OWN_DISKS, SSD, local_taints
from tests.driver.flows.test_controller_flows_hooks import BITSTREAM, config, make_class, put

from drawbar.driver.kube import kinds
from drawbar.driver.node.classes import nvme
from drawbar.driver.node.preparation import limits

pytestmark = pytest.mark.attack

# A Prepare says soon why it waits, and the kubelet asks again.
SOON = {"prepare": limits.Limits(late_device_seconds=0.5)}
NVME = {"deviceClassName": "nvme.drawbar.dev"}


class Disks:
    """Erases disks once it is let; a mocked host's have nothing to erase themselves."""

    def __init__(self):
        self.let, self.erased = threading.Event(), []

    def eraser(self, host, card):
        def erase(report):
            report("sanitizing /dev/nvme0, 3 % done")
            assert self.let.wait(600)
            self.erased.append(card.serial)

        return erase


@pytest.fixture
def disks(monkeypatch):
    made = Disks()
    monkeypatch.setattr(nvme.Nvme, "eraser", lambda _, host, card: made.eraser(host, card))
    yield made
    made.let.set()


async def claim_and_scheduled_pod(cluster, exactly, *, config=(), where=None):
    """Create a claim and a pod for the scheduler; return the claim's node and device."""
    requests = [{"name": "d", "exactly": exactly}]
    spec = {"devices": {"requests": requests, "config": list(config)}}
    await cluster.create(kinds.CLAIM, "loot", "default", spec=spec)
    await pod(cluster, "p1", **({"nodeSelector": {"kubernetes.io/hostname": where}} if where else {}))

    async def allocation():
        claim = await cluster.api.read(kinds.CLAIM, "loot", namespace="default", into=dict)
        return claim.get("status", {}).get("allocation")

    allocated = await cluster.until(allocation, bool)
    (term,) = allocated["nodeSelector"]["nodeSelectorTerms"]
    (field,) = [*term.get("matchFields", ()), *term.get("matchExpressions", ())][:1]
    return field["values"][0], allocated["devices"]["results"][0]["device"]


async def pod(cluster, name, **spec):
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
    uses = {"name": "d", "resourceClaimName": "loot"}
    body = {"containers": [container], "resourceClaims": [uses], "tolerations": [{"operator": "Exists"}]}
    await cluster.create(kinds.POD, name, "default", spec=body | spec)


async def unscheduled_pod(cluster, node, reason, words):
    """Create a pod of that node with the same claim, and wait until its Prepare is refused for that reason."""
    await pod(cluster, "p2", nodeName=node)
    # The scheduler may have taken its own pod's reservation back by then.
    await cluster.until(
        cluster.claims,
        lambda claims: "p2" in {user["name"] for user in claims[0]["status"].get("reservedFor", ())},
    )
    await cluster.wait_for_event(reason, words)


async def phase(cluster, name):
    return (await cluster.pods())[name].get("status", {}).get("phase")


async def has_nothing(cluster, *, files=0):
    """Return whether the pod `p2` does not run and no container was given a device."""
    return await phase(cluster, "p2") != "Running" and len(cluster.cdi_files) == files


async def delete(cluster, *names):
    for name in names:
        await cluster.api.delete(kinds.POD, name, namespace="default")
    for name in names:
        await cluster.wait_until_gone(name)


async def test_it_gets_no_disk_that_still_has_the_data_of_another(flow_lab, disks):
    policy = {"keepAttachedSeconds": 3600, "probationSeconds": 0}
    async with flow_lab("1.36", devices=1, policy=policy, node=SOON) as cluster:
        await cluster.pod("victim")
        where, _ = await cluster.wait_until_running("victim")
        await delete(cluster, "victim")
        node, device = await claim_and_scheduled_pod(cluster, NVME, where=where)
        await unscheduled_pod(cluster, node, "NotCleaned", "removes first: sanitizing /dev/nvme0, 3 % done")
        assert await has_nothing(cluster)
        assert disks.erased == []
        # A daemon that begins again reads the same, and erases again.
        await cluster.stop(node)
        cluster.start_node(node, **SOON)
        await cluster.until(lambda: cluster.notes("NotCleaned"), lambda notes: len(notes) > 1)
        assert await has_nothing(cluster)
        disks.let.set()
        await cluster.wait_until_running("p2")
        await cluster.wait_until_running("p1")
        serial = (await cluster.attachments())[device]["spec"]["identity"]["serial"]
        assert set(disks.erased) == {serial}, "the waiting pod did not keep its node from erasing"
        await delete(cluster, "p1", "p2")


async def test_it_gets_no_disk_that_arrived_with_the_data_of_another(flow_lab, disks, capsys):
    disks.let.set()
    async with flow_lab("1.36", devices=1, node=SOON) as cluster:
        await cluster.until(cluster.slices, bool)
        (device,) = (await cluster.fabric.devices()).devices
        assert await drawbar_fabric(cluster, "attach", device.id, "node-1") == 0
        await cluster.until(
            cluster.attachments, lambda value: value[device.id]["status"].get("phase") == "Ready"
        )
        await cluster.stop("node-1")
        assert await drawbar_fabric(cluster, "detach", device.id, "--force") == 0
        disks.let.clear()
        cluster.start_node("node-1", **SOON)
        node, _ = await claim_and_scheduled_pod(cluster, NVME)
        await unscheduled_pod(cluster, node, "NotCleaned", "traces of an earlier use")
        assert await has_nothing(cluster)
        disks.let.set()
        await cluster.wait_until_running("p2")
        assert disks.erased == [device.serial]
        await delete(cluster, "p1", "p2")
        capsys.readouterr()


async def test_it_gets_no_card_that_is_still_made_ready(flow_lab):
    async with flow_lab("1.36", devices=1, node=SOON) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "packets", initialise={"hook": "loads", "timeoutSeconds": 600})
        digest = hashlib.sha256(BITSTREAM).hexdigest()
        reported = config(fpga={"bitstream": "packets.bit", "sha256": digest})
        node, device = await claim_and_scheduled_pod(cluster, {"deviceClassName": "packets"}, config=reported)
        await cluster.wait_for_event("Initialising", "hook loads")
        words = (
            f"{device} is not ready for its claim on this node yet: its hook loads is running; trying again"
        )
        await unscheduled_pod(cluster, node, "DeviceNotReady", words)
        assert await has_nothing(cluster)
        (cluster.path / "go").touch()
        await cluster.wait_until_running("p2")
        (loaded,) = cluster.path.glob("loaded-*")
        assert loaded.read_bytes() == BITSTREAM
        await cluster.wait_until_running("p1")
        # Of two containers that use the claim, the second one is answered from the record.
        assert len((cluster.path / "runs").read_text().splitlines()) == 1
        await delete(cluster, "p1", "p2")


async def test_it_gets_no_device_that_its_class_refuses(flow_lab):
    async with flow_lab("1.36", devices=1, node=SOON) as cluster:
        await make_class(cluster, "modern", minimumVersions={"firmware": "99.0"})
        node, device = await claim_and_scheduled_pod(cluster, {"deviceClassName": "modern"})
        await unscheduled_pod(cluster, node, "DeviceFailed", f"{device} cannot be used on this node: ")
        await cluster.wait_for_event("VersionTooOld")
        assert await has_nothing(cluster)
        await delete(cluster, "p1", "p2")
        await cluster.is_free(device)


async def test_it_gets_no_disk_of_its_node_that_still_has_the_data_of_another(flow_lab, disks):
    async with flow_lab("1.36", devices=0, node=OWN_DISKS | SOON) as cluster:
        tree = cluster.trees["node-1"]
        # The node sees its host's processes, of which none uses the disk.
        processes = tree.root.parent / "proc"
        (processes / "self" / "ns").mkdir(parents=True)
        (processes / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        await asyncio.to_thread(tree.attach, 1, SSD)
        await cluster.until(lambda: local_taints(cluster), lambda value: value == {"nvme-own1": []})
        await cluster.pod("victim")
        await cluster.wait_until_running("victim")
        await delete(cluster, "victim")
        tolerant = NVME | {"tolerations": [{"operator": "Exists"}]}
        node, _ = await claim_and_scheduled_pod(cluster, tolerant)
        await unscheduled_pod(cluster, node, "NotCleaned", "are being removed")
        assert await has_nothing(cluster)
        await cluster.stop(node)
        cluster.start_node(node, **(OWN_DISKS | SOON))
        await cluster.until(lambda: cluster.notes("NotCleaned"), lambda notes: len(notes) > 1)
        assert await has_nothing(cluster)
        disks.let.set()
        await cluster.wait_until_running("p2")
        assert set(disks.erased) == {"OWN1"}
        await delete(cluster, "p1", "p2")


async def test_a_pod_keeps_its_device_over_a_restart_of_the_node_daemon(flow_lab):
    async with flow_lab("1.36", devices=1, node=SOON) as cluster:
        node, _ = await claim_and_scheduled_pod(cluster, NVME)
        await pod(cluster, "p2", nodeName=node)
        await cluster.wait_until_running("p2")
        (file,) = (cluster.path / node / "k" / "cdi").glob("*.json")
        before = json.loads(await asyncio.to_thread(file.read_text))
        await cluster.stop(node)
        cluster.start_node(node, **SOON)
        await cluster.wait_until_running("p1")
        assert json.loads(await asyncio.to_thread(file.read_text)) == before
        await delete(cluster, "p1", "p2")
