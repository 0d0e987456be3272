"""Devices, an enclosure and a node are taken out of service with `drawbar maintenance`; no pod ends for it.

The user has the role `drawbar-operator` alone.
"""

import json


async def maintenance(cluster, *words):
    """Run `drawbar maintenance` as an operator, and return what it printed."""
    status, out, err = await cluster.operate("maintenance", *words)
    assert status == 0, err
    return out


async def document(cluster, *words):
    whole = json.loads(await maintenance(cluster, *words, "-o", "json"))
    return whole.get("items", whole)


async def test_devices_in_maintenance_get_no_new_pod_and_keep_their_own(flow_lab):
    async with flow_lab("1.36", devices=2) as cluster:
        await cluster.pod("a")
        _, (kept,) = await cluster.wait_until_running("a")
        (free,) = {"disk-0", "disk-1"} - {kept}

        planned = await document(cluster, "on", "enclosure/fab/enc", "--dry-run")
        assert not planned["done"]
        assert "default/" in "".join(planned["consequences"])
        assert await document(cluster, "list") == [], "a dry run changes nothing"

        await maintenance(cluster, "on", "enclosure/fab/enc", "--yes")
        await cluster.wait_for_taints(kept, "maintenance=:NoSchedule")
        (listed,) = await document(cluster, "list")
        assert (listed["fabric"], listed["devices"]) == ("fab", ["disk-0", "disk-1"])
        await cluster.pod("b")
        await cluster.wait_for_event_about("b", "FailedScheduling")
        assert (await cluster.pods())["a"]["status"]["phase"] == "Running"

        await maintenance(cluster, "off", f"device/{free}", "--yes")
        assert (await cluster.wait_until_running("b"))[1] == [free]
        assert (await document(cluster, "list"))[0]["devices"] == [kept]


async def test_no_further_device_goes_to_a_node_in_maintenance(flow_lab):
    async with flow_lab("1.36", devices=2) as cluster:
        await cluster.pod("a")
        there, _ = await cluster.wait_until_running("a")
        (elsewhere,) = {"node-1", "node-2"} - {there}
        await maintenance(cluster, "on", f"node/{elsewhere}", "--yes")
        await cluster.pod("b")
        assert (await cluster.wait_until_running("b"))[0] == there
        await maintenance(cluster, "off", f"node/{elsewhere}", "--yes")
        assert await document(cluster, "list") == []
