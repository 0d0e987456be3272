"""Opaque parameters through the whole cluster: obeyed in the container, or refused before anything is attached."""

import json

from drawbar.driver.kube import kinds

HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}


def config(**reported):
    return [{"opaque": {"driver": "drawbar.dev", "parameters": HEAD | reported}}]


async def make_pod(cluster, name, **reported):
    request = {"name": "disk", "exactly": {"deviceClassName": "tuned"}}
    await cluster.pod_from_template(name, {"requests": [request], "config": config(**reported)})


async def test_parameters_are_obeyed_or_nothing_is_attached(flow_lab):
    async with flow_lab("1.36") as cluster:
        selector = {"cel": {"expression": 'device.driver == "drawbar.dev"'}}
        mode = config(environment={"MODE": "fast"}, deviceFiles={"readOnly": True})
        await cluster.create(kinds.DEVICE_CLASS, "tuned", spec={"selectors": [selector], "config": mode})

        await make_pod(cluster, "bad", deviceFiles={"readOnly": False})
        await cluster.wait_for_event(
            "InvalidParameters", "deviceFiles.readOnly is set by its DeviceClass, to True"
        )
        assert (await cluster.attachments(), await cluster.list_connections()) == ({}, {})
        await cluster.api.delete(kinds.POD, "bad", namespace="default")
        await cluster.wait_until_gone("bad")

        await make_pod(cluster, "good", deviceFiles={"user": 1000})
        node, _ = await cluster.wait_until_running("good")
        (file,) = (cluster.path / node / "k" / "cdi").glob("drawbar.dev-*.json")
        (edits,) = [device["containerEdits"] for device in json.loads(file.read_text())["devices"]]
        assert "MODE=fast" in edits["env"]
        assert {(node["uid"], node["permissions"]) for node in edits["deviceNodes"]} == {(1000, "r")}


async def test_a_class_decides_how_long_an_attach_may_take(flow_lab):
    async with flow_lab("1.36", attachSeconds=60) as cluster:
        selector = {"cel": {"expression": 'device.driver == "drawbar.dev"'}}
        short = config(attachTimeoutSeconds=2)
        await cluster.create(kinds.DEVICE_CLASS, "tuned", spec={"selectors": [selector], "config": short})
        await make_pod(cluster, "hasty")

        async def notes():
            # On a busy machine the fabric may not have been asked by then.
            reasons = ("AttachDeadlineExceeded", "FabricUnreachable")
            return [note for reason in reasons for note in await cluster.notes(reason)]

        await cluster.until(
            notes, lambda current: any("within 2 s of the allocation" in note for note in current)
        )


async def test_a_claim_beyond_the_limit_of_its_namespace_blames_the_limit(flow_lab):
    policy = {"probationSeconds": 0, "attachesPerNamespacePerMinute": 1}
    async with flow_lab("1.36", devices=2, timeout=600, patience=8, policy=policy) as cluster:
        await cluster.pod("first")
        await cluster.wait_until_running("first")
        await cluster.pod("second")
        limit = "policy.attachesPerNamespacePerMinute of Fabric fab allows"
        await cluster.wait_for_event("AttachNotBegun", limit)
        assert await cluster.notes("FabricUnreachable") == []
