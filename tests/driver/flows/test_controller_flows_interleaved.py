"""The memory of several devices is one region: made once all are there, and gone before the first one leaves."""

import pytest
from tests.driver.flows import sites
from tests.driver.flows.test_controller_flows_memory import GIB, MEMORY, blocks, files, make_pod, regions

from drawbar.driver.kube import kinds
from drawbar.driver.node.inventory import files as sysfs_files
from drawbar.mocks.fabric import faults

# The node daemons are killed after as many changes of attachments and claims.
STEPS = range(2, 14, 3)


def memory(number, **changes):
    return MEMORY | {"id": f"mem-{number}", "serial": f"0x123{number}"} | changes


def enclosures(*devices):
    return [{"id": "enc", "devices": list(devices)}]


PAIR = enclosures(memory(0), memory(1))
DUO = {"composites": [{"name": "duo", "devices": ["mem-0", "mem-1"]}]}


async def make_composite(cluster, composites=DUO):
    await cluster.change(kinds.FABRIC, "fab", spec=composites)

    async def list_offered_devices():
        return [entry["name"] for spec in await cluster.slices() for entry in spec.get("devices", ())]

    await cluster.until(list_offered_devices, lambda value: value == ["duo"])


def shape(cluster, node):
    """Return ways, granularity, size and commit of the node's only region."""
    (region,) = (cluster.trees[node].root / "bus/cxl/devices").glob("region*")
    names = ("interleave_ways", "interleave_granularity", "size", "commit")
    return tuple(int((region / name).read_text(), 0) for name in names)


async def give_back(cluster, pod, before):
    """End the pod, and assert that nothing of its memory is left."""
    await cluster.api.delete(kinds.POD, pod, namespace="default")
    await cluster.wait_until_gone(pod)
    await cluster.until(cluster.attachments, lambda attachments: not attachments)
    assert await cluster.list_connections() == {}
    assert (regions(cluster), blocks(cluster)) == ([], before)


@pytest.mark.parametrize(
    ("reports", "granularity"),
    [({}, 256), ({"granularity": 4096}, 4096), ({"mode": "system-ram"}, 256)],
    ids=["devdax", "granularity", "system-ram"],
)
async def test_two_devices_are_one_region_before_their_pod_is_bound_and_none_after_it(
    flow_lab, reports, granularity
):
    async with flow_lab("1.36", enclosures=PAIR) as cluster:
        await make_composite(cluster)
        before = blocks(cluster)
        await make_pod(cluster, "user", interleave=True, **reports)
        node, devices = await cluster.wait_until_running("user")
        assert devices == ["duo"]
        assert shape(cluster, node) == (2, granularity, 2 * GIB, 1)
        dax_files = [path for path in files(cluster, node) if path.startswith("/dev/dax")]
        assert dax_files == ([] if "mode" in reports else ["/dev/dax0.0"]), "one device of both, given once"
        added = [zone for path, zone in blocks(cluster).items() if path not in before]
        assert added == (["Movable"] * 8 if "mode" in reports else [])
        conditions = await cluster.conditions_of("user")
        assert conditions == {"duo": {"attached": "Attached", "visible": "DeviceReady"}}
        await give_back(cluster, "user", before)


async def test_without_the_parameter_each_member_keeps_a_region_of_its_own(flow_lab):
    async with flow_lab("1.36", enclosures=PAIR) as cluster:
        await make_composite(cluster)
        before = blocks(cluster)
        await make_pod(cluster, "user")
        node, _ = await cluster.wait_until_running("user")
        assert sorted(regions(cluster)) == ["region0", "region1"]
        assert sorted(files(cluster, node)) == ["/dev/dax0.0", "/dev/dax1.0"]
        await give_back(cluster, "user", before)


async def test_devices_that_stay_attached_are_one_region_for_the_next_claim_that_wants_that(flow_lab):
    policy = {"keepAttachedSeconds": 600, "probationSeconds": 0}
    async with flow_lab("1.36", enclosures=PAIR, policy=policy) as cluster:
        await make_composite(cluster)
        before = None
        for name, reports, amount in (("a", {}, 2), ("b", {"interleave": True}, 1), ("c", {}, 2)):
            await make_pod(cluster, name, **reports)
            node, _ = await cluster.wait_until_running(name)
            uids = {attachment["metadata"]["uid"] for attachment in (await cluster.attachments()).values()}
            assert count_committed_regions(cluster) == amount
            # A real scheduler takes either node; on the same one they are handed on as they are.
            assert before is None or before[0] != node or before[1] == uids
            before = node, uids
            await cluster.api.delete(kinds.POD, name, namespace="default")
            await cluster.wait_until_gone(name)
            # Without a claim each has a region of its own again.
            await cluster.until(lambda: idle_regions(cluster), lambda value: value == 2)


async def idle_regions(cluster):
    """Return the number of regions; None while a device is in use or not clean."""
    attachments = (await cluster.attachments()).values()
    users = [attachment["status"]["node"].get("claimUID") for attachment in attachments]
    idle = all("idleSince" in attachment["spec"] for attachment in attachments)
    return count_committed_regions(cluster) if idle and users == [None, None] else None


def count_committed_regions(cluster):
    """Return how many regions have memory: an empty one may be left for the next claim, if two devices began one at once."""
    paths = [path for tree in cluster.trees.values() for path in tree.root.glob("bus/cxl/devices/region*")]
    return sum(sysfs_files.text(f"{path}/commit") == "1" for path in paths)


@pytest.mark.parametrize(
    ("described", "composites", "words"),
    [
        (
            enclosures(memory(0)),
            None,
            "memory.interleave is for a composite of CXL memory devices, and mem-0 is a device by itself: leave it out",
        ),
        (
            enclosures(memory(0), memory(1, memoryBytes=2 * GIB)),
            DUO,
            "memory.interleave needs members of one size, and of composite duo mem-0 has 1073741824 bytes and mem-1 2147483648",
        ),
    ],
    ids=["a device by itself", "two sizes"],
)
async def test_an_impossible_interleaving_is_refused_before_any_attach(
    flow_lab, described, composites, words
):
    async with flow_lab("1.36", enclosures=described) as cluster:
        if composites is not None:
            await make_composite(cluster, composites)
        await cluster.until(cluster.slices, bool)
        await make_pod(cluster, "user", interleave=True)
        await cluster.wait_for_event("InvalidParameters", words)
        name = "duo" if composites is not None else "mem-0"
        assert await cluster.taints(name) == set(), "nothing is wrong with the device"
        assert await cluster.attachments() == {}
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.wait_until_gone("user")
        # Another claim can use it.
        await make_pod(cluster, "plain")
        assert (await cluster.wait_until_running("plain"))[1] == [name]


async def test_a_window_that_does_not_take_the_devices_fails_the_claim_and_taints_nothing(flow_lab):
    async with flow_lab("1.36", enclosures=PAIR) as cluster:
        for tree in cluster.trees.values():
            decoder = tree.root / "devices/platform/ACPI0017:00/root0/decoder0.0"
            (decoder / "interleave_ways").write_text("4\n")
        await make_composite(cluster)
        await make_pod(cluster, "user", interleave=True)
        await cluster.wait_for_event(
            "NotInterleaved", "decoder0.0 leads to 4 host bridges, and takes 1, 2, 4, 8 or 16"
        )
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.wait_until_gone("user")
        await cluster.until(cluster.attachments, lambda attachments: not attachments)
        assert await cluster.taints("duo") == set()
        assert regions(cluster) == []


async def test_a_member_that_does_not_come_fails_the_claim_and_the_one_that_waits_for_it_is_not_blamed(
    flow_lab,
):
    policy = {"probationSeconds": 3600}
    async with flow_lab("1.36", enclosures=PAIR, policy=policy, visible=2) as cluster:
        cluster.fabric.console.add_fault(faults.Appear(device="mem-1", arrival="not-seen", times=None))
        await make_composite(cluster)
        since = await cluster.version()
        # So that their history is still there.
        kept = await cluster.takes_nothing_back()
        await make_pod(cluster, "user", interleave=True)
        await cluster.wait_for_event("DeviceNotFound", "no device with serial 0x1231 appeared")
        await cluster.wait_for_taints("duo", "attach-failed=DeviceNotFound:NoSchedule")
        reported = {
            attachment["spec"]["device"]
            for _, attachment in await cluster.history(kinds.ATTACHMENT, since)
            for entry in attachment.get("status", {}).get("conditions", ())
            if entry["type"] == "Visible"
        }
        assert reported == {"mem-1"}
        assert regions(cluster) == [], "none is made before all are there"
        await kept.lift()


async def test_a_node_daemon_that_is_killed_at_any_step_leaves_one_region_or_none(flow_lab):
    async with flow_lab("1.36", enclosures=PAIR, attachSeconds=0.05) as cluster:
        await make_composite(cluster)
        before = blocks(cluster)
        for step in STEPS:
            since = await cluster.version()
            name = f"pod-{step}"
            await make_pod(cluster, name, interleave=True, mode="system-ram")
            await cluster.until(
                lambda since=since: cluster.changes(since), lambda count, step=step: count >= step
            )
            await restart(cluster)
            node, _ = await cluster.wait_until_running(name)
            assert shape(cluster, node) == (2, 256, 2 * GIB, 1)
            await cluster.api.delete(kinds.POD, name, namespace="default")
            await cluster.until(lambda: members_left(cluster), lambda left, step=step: left <= step // 3 % 3)
            await restart(cluster)
            await cluster.wait_until_gone(name)
            await cluster.until(cluster.attachments, lambda attachments: not attachments)
            assert (regions(cluster), blocks(cluster)) == ([], before)
            await cluster.until(cluster.claims, lambda claims: not claims)


async def restart(cluster):
    """Kill the node daemons, and start them again."""
    for name in sites.NODES:
        await cluster.stop(name)
        cluster.start_node(name)


async def members_left(cluster):
    """Return the number of members that their node has not released."""
    return len([None for attachment in (await cluster.attachments()).values() if not is_released(attachment)])


def is_released(attachment):
    conditions = attachment.get("status", {}).get("conditions", ())
    return any((entry["type"], entry["status"]) == ("Released", "True") for entry in conditions)


async def test_a_member_that_is_pulled_is_lost_and_the_other_one_is_not_blamed(flow_lab):
    async with flow_lab("1.36", enclosures=PAIR) as cluster:
        await make_composite(cluster)
        before = blocks(cluster)
        await make_pod(cluster, "user", interleave=True)
        node, _ = await cluster.wait_until_running("user")
        tree = cluster.trees[node]
        pulled = next(
            slot for slot, card in tree.list_attached_cards().items() if card.serial_number == 0x1231
        )
        tree.surprise_remove(pulled)
        await cluster.until(
            cluster.attachments,
            lambda attachments: visible(attachments.get("mem-1")) in (("False", "DeviceLost"), None),
        )
        survivor = (await cluster.attachments()).get("mem-0")
        assert visible(survivor) in (("True", "DeviceReady"), None)
        await give_back(cluster, "user", before)


def visible(attachment):
    """Return status and reason of the attachment's condition `Visible`; None without an attachment."""
    if attachment is None:
        return None
    return next(
        (entry["status"], entry["reason"])
        for entry in attachment["status"]["conditions"]
        if entry["type"] == "Visible"
    )
