"""Requests that may go without a device: the null device with both daemons, the scheduler and the kubelet."""

import json

from drawbar.driver.kube import kinds
from drawbar.driver.node.local import nulls

WITH_NULLS = {"null_device": nulls.NullDevice(enabled=True, copies=1)}
# As an administrator of 1.34 may have set them: binding conditions on, and no device for more than one.
GATES = {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}


async def perhaps_a_disk(cluster, name, *, surely=(), perhaps=("disk",)):
    """Create a pod with a claim of a disk per request, where those of `perhaps` also accept nothing."""
    alternatives = [
        {"name": "card", "deviceClassName": "nvme.drawbar.dev"},
        {"name": "nothing", "deviceClassName": "none.drawbar.dev"},
    ]
    asked = [{"name": name, "exactly": {"deviceClassName": "nvme.drawbar.dev"}} for name in surely]
    asked += [{"name": name, "firstAvailable": alternatives} for name in perhaps]
    await cluster.pod_from_template(name, {"requests": asked}, ["it"])


async def nulls_published(cluster):
    """Return the devices of each node's null class, by node."""
    listing = await cluster.api.list_all(kinds.SLICE, into=dict)
    return {
        resource_slice["spec"]["nodeName"]: [
            device
            for device in resource_slice["spec"].get("devices", ())
            if device["attributes"]["class"]["string"] == "none"
        ]
        for resource_slice in listing.items
        if resource_slice["spec"].get("nodeName")
    }


async def on_both_nodes(cluster, *names):
    await cluster.until(
        lambda: nulls_published(cluster),
        lambda devices: (
            [[device["name"] for device in devices[node]] for node in sorted(devices)] == [list(names)] * 2
        ),
    )


async def pool_is_there(cluster, disks):
    await cluster.until(
        cluster.slices, lambda specs: [len(spec.get("devices", ())) for spec in specs] == [disks]
    )


def variables(cluster):
    """Return by CDI device the variables that its container gets."""
    files = [
        file for name in ("node-1", "node-2") for file in (cluster.path / name / "k" / "cdi").glob("*.json")
    ]
    return {
        device["name"].split("-", 5)[-1]: sorted(device["containerEdits"].get("env", ()))
        for file in files
        for device in json.loads(file.read_text())["devices"]
    }


async def test_any_number_of_pods_run_without_a_disk_when_the_disks_are_gone_and_get_the_variables(
    flow_lab,
):
    async with flow_lab("1.36", devices=1, node=WITH_NULLS) as cluster:
        await on_both_nodes(cluster, "none")
        await pool_is_there(cluster, 1)
        await perhaps_a_disk(cluster, "lucky", surely=["disk"], perhaps=())
        assert (await cluster.wait_until_running("lucky"))[1] == ["disk-0"]
        without = ["a", "b", "c"]
        for name in without:
            await perhaps_a_disk(cluster, name)
        for name in without:
            assert (await cluster.wait_until_running(name))[1] == ["none"]
        environment = variables(cluster)
        assert environment["none.disk"] == ["DRAWBAR_DISK=none"]
        assert "DRAWBAR_DISK_0_SERIAL=SN0000" in environment["disk-0"]
        assert len(cluster.cdi_files) == 4
        # Nothing is attached for them, and nothing is waited for.
        assert list(await cluster.attachments()) == ["disk-0"]
        for name in without:
            (allocation,) = await cluster.wait_until_allocated(name)
            (result,) = allocation["devices"]["results"]
            assert result["shareID"]
            assert "bindingConditions" not in result
            await cluster.api.delete(kinds.POD, name, namespace="default")
        for name in without:
            await cluster.wait_until_gone(name)
        await cluster.until(read_files(cluster), lambda files: len(files) == 1)
        await cluster.api.delete(kinds.POD, "lucky", namespace="default")
        await cluster.is_free("disk-0")
        # Of several requests each is answered by itself.
        await perhaps_a_disk(cluster, "several", surely=["first"], perhaps=["second", "third-one"])
        assert (await cluster.wait_until_running("several"))[1] == ["disk-0", "none", "none"]
        environment = variables(cluster)
        assert environment["none.second"] == ["DRAWBAR_SECOND=none"]
        assert environment["none.third-one"] == ["DRAWBAR_THIRD_ONE=none"]


async def test_where_devices_cannot_be_shared_each_node_has_copies_and_reports_it(flow_lab):
    async with flow_lab("1.34", gates=GATES, devices=1, node=WITH_NULLS) as cluster:
        await on_both_nodes(cluster, "none-1")
        await cluster.wait_for_event("NullDeviceNotShared", "at most 1 claims can go without a device")
        await pool_is_there(cluster, 1)
        for name in ("a", "b", "c"):
            await perhaps_a_disk(cluster, name)
        for name in ("a", "b", "c"):
            await cluster.wait_until_running(name)
        assert sorted([(await cluster.devices_of(name))[0] for name in ("a", "b", "c")]) == [
            "disk-0",
            "none-1",
            "none-1",
        ]
        # Both copies and the disk are taken: the next one waits, and is served when a pod goes.
        await perhaps_a_disk(cluster, "late")
        await cluster.wait_for_event_about("late", "FailedScheduling")
        await cluster.api.delete(kinds.POD, "b", namespace="default")
        await cluster.wait_until_running("late")


def read_files(cluster):
    async def read():
        return cluster.cdi_files

    return read
