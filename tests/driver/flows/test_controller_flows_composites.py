"""Two devices of a fabric are one device of the cluster: both are attached, or none."""

import json

import msgspec
import pytest
from tests.driver.flows import sites

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import group
from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.fabric import configuration, faults
from drawbar.mocks.testing import worlds

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
        started = {pod: await cluster.wait_until_running(pod) for pod in ("a", "b")}
        (pod,) = [name for name, (_, devices) in started.items() if devices == ["duo"]]
        node = started[pod][0]
        connected = await cluster.list_connections()
        assert {connected["disk-0"], connected["disk-1"]} == {f"host-{node}"}

        attachments = await cluster.attachments()
        for disk in ("disk-0", "disk-1"):
            assert attachments[disk]["spec"]["composite"] == {"name": "duo", "devices": ["disk-0", "disk-1"]}
        assert "composite" not in attachments["disk-2"]["spec"]
        conditions = await cluster.conditions_of(pod)
        assert conditions == {"duo": {"attached": "Attached", "visible": "DeviceReady"}}
        await whole_before_reported(cluster, since)

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
        await cluster.wait_until_gone(pod)
        for disk in ("disk-0", "disk-1"):
            await cluster.is_free(disk)
        await cluster.pod("c")
        assert (await cluster.wait_until_running("c"))[1] == ["duo"]


async def test_the_other_members_are_detached_if_one_cannot_be_attached(flow_lab):
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
        await cluster.wait_for_taints("duo", "attach-failed=FabricError:NoSchedule")
        for disk in ("disk-0", "disk-1"):
            await cluster.is_free(disk)
        assert set(await cluster.list_connections()) <= {"disk-2"}
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
            assert (await cluster.wait_until_running(f"pod-{step}"))[1] == ["duo"]
            assert set(await cluster.list_connections()) == {"disk-0", "disk-1"}
            await whole_before_reported(cluster, since)
            await cluster.api.delete(kinds.POD, f"pod-{step}", namespace="default")
            await cluster.wait_until_gone(f"pod-{step}")
            for disk in ("disk-0", "disk-1"):
                await cluster.is_free(disk)
            await cluster.until(cluster.claims, lambda claims: not claims)


async def test_an_invalid_composite_is_reported_and_its_devices_are_withheld(flow_lab):
    async with flow_lab("1.36", devices=2) as cluster:
        wrong = [{"name": "duo", "devices": ["disk-0", "disk-9"]}]
        await cluster.change(kinds.FABRIC, "fab", spec={"composites": wrong})
        await cluster.until(lambda: names_of(cluster), lambda value: value == ["disk-1"])

        sentence = "composite duo is not offered: the fabric has no device disk-9"
        await cluster.until(lambda: list_degraded_messages(cluster), lambda value: value == [sentence])


async def test_pods_get_a_composite_each_of_a_rule_which_another_controller_leaves_as_they_are(flow_lab):
    pairs = {"name": "pair", "within": "switch", "devices": [{"class": "nvme", "count": 2}]}
    disks = [worlds.disk(number) | {"switch": "sw-0"} for number in range(5)]
    async with flow_lab("1.36", enclosures=[{"id": "enc", "devices": disks}]) as cluster:
        await cluster.change(kinds.FABRIC, "fab", spec={"compositeRules": [pairs]})
        made = pair("disk-0", "disk-1") | pair("disk-2", "disk-3")
        await cluster.until(lambda: members(cluster), lambda value: value == made)
        assert await names_of(cluster) == sorted(made)
        sentence = "composite rule pair leaves disk-4 over: a composite takes 2 nvme of one switch"
        await cluster.until(lambda: list_degraded_messages(cluster), lambda value: value == [sentence])

        await cluster.pod("a")
        node, (first,) = await cluster.wait_until_running("a")
        assert {host for disk, host in (await cluster.list_connections()).items() if disk in made[first]} == {
            f"host-{node}"
        }
        await cluster.stop("controller")
        since = await cluster.version()
        # It comes before all others, so whoever groups them again makes others.
        newcomer = worlds.disk(9) | {"id": "a", "switch": "sw-0"}
        cluster.fabric.console.add_device(
            configuration.new_device("enc", msgspec.convert(newcomer, configuration.DeviceSpec))
        )
        cluster.start_controller(binding_timeout_seconds=600)
        made |= pair("a", "disk-4")
        await cluster.until(lambda: members(cluster), lambda value: value == made)
        await cluster.until(lambda: list_degraded_messages(cluster), lambda value: value == [])
        reported = {
            entry["message"]
            for _, fabric in await cluster.history(kinds.FABRIC, since)
            for entry in fabric["status"]["conditions"]
            if entry["type"] == "Degraded"
        }
        assert not any("does not list" in message for message in reported), "a composite is no missing device"
        await cluster.pod("b")
        _, (second,) = await cluster.wait_until_running("b")
        assert first != second
        assert set(await cluster.list_connections()) == {*made[first], *made[second]}
        held = {
            disk: attachment["spec"]["composite"]["name"]
            for disk, attachment in (await cluster.attachments()).items()
        }
        assert held == dict.fromkeys(made[first], first) | dict.fromkeys(made[second], second)

        (claim,) = await cluster.claims("a")
        where = (f"claim/{claim['metadata']['name']}", "-n", "default")
        status, out, err = await cluster.operate("status", *where, "-o", "json")
        assert status == 0, err
        (fabric,) = json.loads(out)["fabrics"]
        shown = {
            device["name"]: (device["state"], device["composite"])
            for enclosure in fabric["enclosures"]
            for device in enclosure["devices"]
        }
        assert shown == {first: ("Ready", "")} | dict.fromkeys(made[first], ("Ready", first))
        _, out, err = await cluster.operate("explain", *where)
        assert "its devices are ready" in out, err

        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        for disk in made[first]:
            await cluster.is_free(disk)
        assert await members(cluster) == made
        (free,) = made.keys() - {first, second}
        await cluster.fabric.console.remove_device(made[free][0])
        sentence = sentence.replace("disk-4", made[free][1])
        await cluster.until(lambda: list_degraded_messages(cluster), lambda value: value == [sentence])
        assert await members(cluster) == {name: own for name, own in made.items() if name != free}


async def test_a_short_first_listing_leaves_rule_composites_unchanged(flow_lab):
    pairs = {"name": "pair", "within": "enclosure", "devices": [{"class": "nvme", "count": 2}]}
    async with flow_lab("1.36", devices=4) as cluster:
        await cluster.change(kinds.FABRIC, "fab", spec={"compositeRules": [pairs]})
        made = pair("disk-0", "disk-1") | pair("disk-2", "disk-3")
        await cluster.until(lambda: members(cluster), lambda value: value == made)
        await cluster.stop("controller")
        since = await cluster.version()
        lacking = [(await cluster.fabric.devices()).device(disk) for disk in ("disk-1", "disk-2")]
        for disk in lacking:
            await cluster.fabric.console.remove_device(disk.id)
        cluster.start_controller(binding_timeout_seconds=600)
        await cluster.until(
            lambda: list_degraded_messages(cluster),
            lambda value: any("(disk-1, disk-2)" in message for message in value),
        )
        for disk in lacking:
            cluster.fabric.console.add_device(disk)
        await cluster.until(lambda: list_degraded_messages(cluster), lambda value: value == [])
        assert await members(cluster) == made
        (now,) = [
            entry for entry in (await cluster.api.list_all(kinds.SLICE, into=dict)).items if is_ours(entry)
        ]
        assert int(now["metadata"]["resourceVersion"]) <= int(since), "the slice was never written"


async def test_a_claim_keeps_its_composite_when_the_rule_goes_and_its_devices_are_offered_alone_after_it(
    flow_lab,
):
    pairs = {"name": "pair", "within": "enclosure", "devices": [{"class": "nvme", "count": 2}]}
    async with flow_lab("1.36", devices=2) as cluster:
        await cluster.change(kinds.FABRIC, "fab", spec={"compositeRules": [pairs]})
        made = pair("disk-0", "disk-1")
        await cluster.until(lambda: members(cluster), lambda value: value == made)
        await cluster.pod("a")
        await cluster.wait_until_running("a")
        await cluster.stop("controller")
        await cluster.change(kinds.FABRIC, "fab", spec={"compositeRules": []})
        cluster.start_controller(binding_timeout_seconds=600)
        await cluster.until(lambda: list_degraded_messages(cluster), lambda value: value == [])
        assert (await members(cluster), await names_of(cluster)) == (made, list(made))
        assert set(await cluster.list_connections()) == {"disk-0", "disk-1"}
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        await cluster.until(lambda: names_of(cluster), lambda value: value == ["disk-0", "disk-1"])


def is_ours(resource_slice):
    return resource_slice["spec"]["pool"]["name"].startswith("fab")


def pair(*disks):
    return {names.composite("pair", disks): disks}


async def members(cluster):
    """Return the members of each composite in the slices, by the composite's name."""
    return {
        entry["name"]: tuple(
            entry["attributes"][name]["string"] for name in group.MEMBERS if name in entry["attributes"]
        )
        for spec in await cluster.slices()
        for entry in spec.get("devices", ())
        if group.MEMBERS[0] in entry["attributes"]
    }


async def list_degraded_messages(cluster):
    """Return the messages in the Fabric's condition if it is True."""
    fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
    return [
        entry["message"]
        for entry in fabric["status"]["conditions"]
        if (entry["type"], entry["status"]) == ("Degraded", "True")
    ]


async def whole_before_reported(cluster, since):
    """Assert that the claim got each condition once, after all members had it."""
    when = {}
    for version, attachment in await cluster.history(kinds.ATTACHMENT, since):
        for kind in ("Attached", "Visible"):
            if is_true(kind, attachment.get("status", {}).get("conditions", ())):
                when.setdefault((kind, attachment["spec"]["device"]), version)
    report_text = {}
    for version, claim in await cluster.history(cluster.claim_kind, since):
        for device in claim.get("status", {}).get("devices", ()):
            for kind in ("attached", "visible"):
                stands = is_true(f"drawbar.dev/{kind}", device["conditions"])
                changes = report_text.setdefault((device["device"], kind), [])
                if stands != bool(changes):
                    changes.append(version)
    assert {key: len(changes) for key, changes in report_text.items() if key[0] == "duo"} == {
        ("duo", "attached"): 1,
        ("duo", "visible"): 1,
    }
    # The claim is written before the last member's own record.
    assert report_text["duo", "attached"][0] > min(when["Attached", disk] for disk in ("disk-0", "disk-1"))
    assert report_text["duo", "visible"][0] > min(when["Visible", disk] for disk in ("disk-0", "disk-1"))
