"""Two devices of a fabric are one device of the cluster: both are attached, or none."""

import json

import pytest
from tests.driver.flows import sites

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults

# A daemon is killed after as many changes of attachments and claims.
STEPS = range(2, 14, 2)
DUO = {"composites": [{"name": "duo", "devices": ["disk-0", "disk-1"]}]}


async def names_of(cluster):
    return sorted(entry["name"] for spec in await cluster.slices() for entry in spec.get("devices", ()))


async def make_composite(cluster):
    await cluster.change(kinds.FABRIC, "fab", spec=DUO)
    await cluster.until(lambda: names_of(cluster), lambda value: value == ["disk-2", "duo"])


def is_true(condition, conditions):
    return any((entry["type"], entry["status"]) == (condition, "True") for entry in conditions)


async def test_a_pod_gets_all_devices_of_a_composite_and_gives_all_back(flow_lab):
    async with flow_lab("1.36", devices=3) as cluster:
        await make_composite(cluster)
        since = await cluster.version()
        # The one device that is left alone goes to another pod.
        await cluster.pod("a")
        await cluster.pod("b")
        given = {pod: await cluster.running(pod) for pod in ("a", "b")}
        (pod,) = [name for name, (_, devices) in given.items() if devices == ["duo"]]
        node = given[pod][0]
        connected = await cluster.connected()
        assert {connected["disk-0"], connected["disk-1"]} == {f"host-{node}"}

        attachments = await cluster.attachments()
        for disk in ("disk-0", "disk-1"):
            assert attachments[disk]["spec"]["composite"] == {"name": "duo", "devices": ["disk-0", "disk-1"]}
        assert "composite" not in attachments["disk-2"]["spec"]
        conditions = await cluster.conditions_of(pod)
        assert conditions == {"duo": {"attached": "Attached", "visible": "DeviceReady"}}
        await whole_before_said(cluster, since)

        handed = [
            {device["name"].split("-", 5)[-1] for device in document["devices"]}
            for file in (cluster.path / node / "k" / "cdi").glob("*.json")
            for document in [json.loads(file.read_text())]
        ]
        assert {"disk-0", "disk-1"} in handed

        (claim,) = await cluster.claims(pod)
        where = (f"claim/{claim['metadata']['name']}", "-n", "default")
        _, out, err = await cluster.operate("explain", *where)
        assert "its devices are ready" in out, err
        assert "ResourceSlice" not in out
        status, out, err = await cluster.operate("status", *where, "-o", "json")
        assert status == 0, err
        (fabric,) = json.loads(out)["fabrics"]
        shown = {
            device["name"]: (device["state"], device["composite"])
            for enclosure in fabric["enclosures"]
            for device in enclosure["devices"]
        }
        assert shown == {"duo": ("Ready", ""), "disk-0": ("Ready", "duo"), "disk-1": ("Ready", "duo")}

        await cluster.api.delete(kinds.POD, pod, namespace="default")
        await cluster.gone(pod)
        for disk in ("disk-0", "disk-1"):
            await cluster.is_free(disk)
        await cluster.pod("c")
        assert (await cluster.running("c"))[1] == ["duo"]


async def test_where_one_device_cannot_be_attached_the_others_are_given_back(flow_lab):
    async with flow_lab("1.36", devices=3, policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(
            faults.Fail(
                method=contract.OperationKind.ATTACH,
                device="disk-1",
                retryable=False,
                message="the retimer is dark",
                times=None,
            )
        )
        await make_composite(cluster)
        since = await cluster.version()
        await cluster.pod("a")
        await cluster.pod("b")
        # Each of them gets the one device that is left, or waits for it.
        await cluster.tainted("duo", "attach-failed=FabricError:NoSchedule")
        for disk in ("disk-0", "disk-1"):
            await cluster.is_free(disk)
        assert set(await cluster.connected()) <= {"disk-2"}
        for _, claim in await cluster.history(cluster.claim_kind, since):
            for device in claim.get("status", {}).get("devices", ()):
                stands = is_true("drawbar.dev/attached", device["conditions"])
                assert device["device"] != "duo" or not stands, "one member alone is not the composite"


@pytest.mark.parametrize("killed", [("controller",), sites.NODES], ids=["controller", "nodes"])
async def test_a_daemon_that_is_killed_at_any_step_leaves_no_half_of_a_composite(flow_lab, killed):
    async with flow_lab("1.36", devices=2, attachSeconds=0.05) as cluster:
        await cluster.change(kinds.FABRIC, "fab", spec=DUO)
        await cluster.until(lambda: names_of(cluster), lambda value: value == ["duo"])
        for step in STEPS:
            since = await cluster.version()
            await cluster.pod(f"pod-{step}")
            await cluster.until(
                lambda since=since: cluster.changes(since), lambda count, step=step: count >= step
            )
            for name in killed:
                await cluster.stop(name)
                if name == "controller":
                    cluster.start_controller(binding_timeout_seconds=600)
                else:
                    cluster.start_node(name)
            assert (await cluster.running(f"pod-{step}"))[1] == ["duo"]
            assert set(await cluster.connected()) == {"disk-0", "disk-1"}
            await whole_before_said(cluster, since)
            await cluster.api.delete(kinds.POD, f"pod-{step}", namespace="default")
            await cluster.gone(f"pod-{step}")
            for disk in ("disk-0", "disk-1"):
                await cluster.is_free(disk)
            await cluster.until(cluster.claims, lambda claims: not claims)


async def test_what_is_no_composite_is_reported_and_offers_none_of_its_devices(flow_lab):
    async with flow_lab("1.36", devices=2) as cluster:
        wrong = [{"name": "duo", "devices": ["disk-0", "disk-9"]}]
        await cluster.change(kinds.FABRIC, "fab", spec={"composites": wrong})
        await cluster.until(lambda: names_of(cluster), lambda value: value == ["disk-1"])

        async def degraded():
            fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
            return [
                entry["message"] for entry in fabric["status"]["conditions"] if entry["type"] == "Degraded"
            ]

        sentence = "composite duo is not offered: the fabric has no device disk-9"
        await cluster.until(degraded, lambda value: value == [sentence])


async def whole_before_said(cluster, since):
    """Check that the claim got each condition once, and after all members had theirs."""
    when = {}
    for version, attachment in await cluster.history(kinds.ATTACHMENT, since):
        for kind in ("Attached", "Visible"):
            if is_true(kind, attachment.get("status", {}).get("conditions", ())):
                when.setdefault((kind, attachment["spec"]["device"]), version)
    said = {}
    for version, claim in await cluster.history(cluster.claim_kind, since):
        for device in claim.get("status", {}).get("devices", ()):
            for kind in ("attached", "visible"):
                stands = is_true(f"drawbar.dev/{kind}", device["conditions"])
                changes = said.setdefault((device["device"], kind), [])
                if stands != bool(changes):
                    changes.append(version)
    assert {key: len(changes) for key, changes in said.items() if key[0] == "duo"} == {
        ("duo", "attached"): 1,
        ("duo", "visible"): 1,
    }
    # The claim is written before the last member's own record.
    assert said["duo", "attached"][0] > min(when["Attached", disk] for disk in ("disk-0", "disk-1"))
    assert said["duo", "visible"][0] > min(when["Visible", disk] for disk in ("disk-0", "disk-1"))
