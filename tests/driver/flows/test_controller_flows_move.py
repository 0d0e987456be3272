"""An operator has a claim's pods started again on another device with `drawbar move`, under the role `drawbar-operator` alone."""

import asyncio
import json

from drawbar.driver.kube import client, kinds

BUDGETS = kinds.Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
# As the controller of budgets computes it for one ready pod and minAvailable: 1.
NO_MORE = {
    "observedGeneration": 1,
    "expectedPods": 1,
    "currentHealthy": 1,
    "desiredHealthy": 1,
    "disruptionsAllowed": 0,
}


async def make(cluster, name):
    """Make a pod that has a controller, and the label `app`."""
    await cluster.pod(name)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job"}}
    job = await cluster.api.patch(
        kinds.CONFIG_MAP,
        "job",
        body,
        content=client.Patch.APPLY,
        into=dict,
        namespace="default",
        manager="administrator",
    )
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "job", "uid": job["metadata"]["uid"]}
    await cluster.change(
        kinds.POD,
        name,
        "default",
        metadata={"ownerReferences": [owner | {"controller": True}], "labels": {"app": "train"}},
    )


async def list_maintained_devices(cluster):
    listed = await cluster.api.list_all(kinds.MAINTENANCE, into=dict)
    return [device for item in listed.items for device in item["spec"].get("devices", ())]


async def test_the_next_pod_of_the_same_controller_gets_another_device(flow_lab):
    async with flow_lab("1.36", devices=2) as cluster:
        await make(cluster, "train-1")
        _, (first,) = await cluster.wait_until_running("train-1")
        (other,) = {"disk-0", "disk-1"} - {first}
        claim = (await cluster.claims("train-1"))[0]["metadata"]["name"]

        status, out, _ = await cluster.operate("move", claim, "--dry-run", "-o", "json")
        planned = json.loads(out)
        assert (status, planned["pods"], planned["done"]) == (0, ["train-1"], False)
        assert "pod train-1 is evicted: ConfigMap job makes another" in planned["consequences"]
        assert await list_maintained_devices(cluster) == [], "a dry run changes nothing"

        async with asyncio.TaskGroup() as group:
            moving = group.create_task(cluster.operate("move", f"default/{claim}", "--yes"))
            await cluster.wait_until_gone("train-1")
            assert await list_maintained_devices(cluster) == [first]
            await make(cluster, "train-2")
        status, out, err = moving.result()
        assert status == 0, err
        assert f"moved: train-2 runs in place of train-1; {first} can be given to claims again." in out
        assert (await cluster.wait_until_running("train-2"))[1] == [other]
        assert await list_maintained_devices(cluster) == []


async def test_a_pod_whose_budget_allows_no_disruption_stays_and_the_result_tells_so(flow_lab):
    async with flow_lab("1.36", devices=2) as cluster:
        await make(cluster, "train-1")
        _, (held,) = await cluster.wait_until_running("train-1")
        claim = (await cluster.claims("train-1"))[0]["metadata"]["name"]
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
        await cluster.create(BUDGETS, "budget", namespace="default", spec=spec)
        await cluster.api.patch(
            BUDGETS,
            "budget",
            {"status": NO_MORE},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )
        await cluster.until(
            lambda: cluster.api.read(BUDGETS, "budget", namespace="default", into=dict),
            lambda budget: {key: budget["status"].get(key) for key in NO_MORE} == NO_MORE,
        )
        status, _, err = await cluster.operate("move", claim, "--yes", "--timeout", "8")
        assert status == 1
        assert "not evicted: train-1 (the API server refuses it: " in err
        assert "would violate the pod's disruption budget" in err
        assert f"in maintenance until it is taken out: drawbar maintenance off device/{held}" in err
        assert "not done after 8 s" in err
        assert (await cluster.pods())["train-1"]["status"]["phase"] == "Running"
        assert await list_maintained_devices(cluster) == [held]
        status, _, err = await cluster.operate("maintenance", "off", f"device/{held}", "--yes")
        assert status == 0, err
        await cluster.api.delete(BUDGETS, "budget", namespace="default")
