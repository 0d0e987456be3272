"""The flows of device taints: pods that must go, pods that may stay, and devices that come back.

Our taints drive them, in every form that an API server takes them, and administrators' DeviceTaintRules beside ours.

Source: KEP-5055, user stories and test plan; pkg/controller/devicetainteviction.
"""

import datetime

import pytest
from tests.scenes import maintenances

from drawbar.driver.api import meta
from drawbar.driver.kube import kinds
from drawbar.driver.node.health import policy, verdicts
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults
from drawbar.mocks.scheduler import discovery

PROFILES = pytest.mark.parametrize("profile", ["1.36", "1.37", "kep-5055"])
WITH_RULES = pytest.mark.parametrize(
    "server",
    [
        pytest.param({"profile": "1.36", "gates": {"DRADeviceTaintRules": True}}, id="1.36 with the gate"),
        pytest.param({"profile": "1.37"}, id="1.37"),
        pytest.param({"profile": "kep-5055"}, id="kep-5055"),
    ],
)
LOST = "device-lost=:NoExecute"
EVICTION = "DeviceTaintManagerEviction"


def tolerates(seconds=None):
    lost = {"key": "drawbar.dev/device-lost", "operator": "Exists", "effect": "NoExecute"}
    return lost if seconds is None else {**lost, "tolerationSeconds": seconds}


async def breaks(cluster, how, device="disk-0"):
    """Cut the device's connection, or remove the device from the fabric, while it is in use."""
    console = cluster.fabric.console
    await (console.surprise_detach if how == "link" else console.remove_device)(device)


async def delete_pod(cluster, name):
    await cluster.api.delete(kinds.POD, name, namespace="default")
    await cluster.wait_until_gone(name)


@PROFILES
@pytest.mark.parametrize("how", ["link", "pulled"])
async def test_a_pod_whose_device_vanished_is_evicted_and_its_replacement_gets_another_device(
    flow_lab, profile, how
):
    async with flow_lab(profile) as cluster:
        await cluster.pod("a")
        assert (await cluster.wait_until_running("a"))[1] == ["disk-0"]
        # Were it back before the next pod is scheduled, and its mark gone, that pod would be given it.
        kept = await cluster.takes_nothing_back()
        await breaks(cluster, how)
        await cluster.wait_until_gone("a")
        await cluster.wait_for_event_about("a", EVICTION)
        await cluster.pod("b")
        assert (await cluster.wait_until_running("b"))[1] == ["disk-1"]
        await kept.lift()
        # Its claim let go of it: all traces are gone, and the mark with its cause, or the device with its mark.
        await cluster.is_free("disk-0")
        expected = set() if how == "link" else None
        await cluster.until(lambda: cluster.taints("disk-0"), lambda value: value == expected)
        assert list(await cluster.list_connections()) == ["disk-1"]
        assert len(cluster.cdi_files) == 1
        if how == "link":
            await cluster.pod("c")
            assert (await cluster.wait_until_running("c"))[1] == ["disk-0"]


@PROFILES
@pytest.mark.parametrize("how", ["link", "pulled"])
async def test_a_pod_tolerating_the_loss_stays_and_keeps_the_taint(flow_lab, profile, how):
    async with flow_lab(profile) as cluster:
        await cluster.pod("a", tolerations=[tolerates()])
        await cluster.wait_until_running("a")
        await breaks(cluster, how)
        await cluster.until(lambda: cluster.taints("disk-0"), lambda value: LOST in value)
        # No other pod gets the device meanwhile, and this pod, which is not evicted, keeps running.
        await cluster.pod("b")
        assert (await cluster.wait_until_running("b"))[1] == ["disk-1"]
        await cluster.pod("c")
        await cluster.wait_for_event_about("c", "FailedScheduling")
        assert "deletionTimestamp" not in (await cluster.pods())["a"]["metadata"]
        assert EVICTION not in await cluster.reasons("a")
        assert LOST in await cluster.taints("disk-0")
        await delete_pod(cluster, "a")
        if how == "link":
            assert (await cluster.wait_until_running("c"))[1] == ["disk-0"]
        else:
            await cluster.until(lambda: cluster.taints("disk-0"), lambda value: value is None)


@PROFILES
async def test_a_pod_that_tolerates_the_loss_for_a_while_goes_when_that_is_over(flow_lab, profile):
    async with flow_lab(profile, devices=1) as cluster:
        await cluster.pod("a", tolerations=[tolerates(seconds=3)])
        await cluster.wait_until_running("a")
        await breaks(cluster, "link")
        await cluster.until(lambda: cluster.taints("disk-0"), lambda value: LOST in value)
        (since,) = await times(cluster)
        assert "a" in await cluster.pods()
        # Once there is more about the device, the clock of the toleration must not start again.
        await cluster.until(now, lambda value: value > since)
        cluster.fabric.console.set_health("disk-0", contract.Health.WARNING)
        warned = "fabric-health=warning:None"
        await cluster.until(lambda: cluster.taints("disk-0"), lambda value: warned in value)
        assert since in await times(cluster) or "a" not in await cluster.pods()
        await cluster.wait_until_gone("a")
        await cluster.is_free("disk-0")
        await cluster.wait_for_taints("disk-0", warned)


@PROFILES
@pytest.mark.parametrize("who", ["fabric", "node", "maintenance"])
async def test_an_unhealthy_device_stays_with_its_pod_and_gets_no_other(flow_lab, profile, who):
    async with flow_lab(profile) as cluster:
        await cluster.pod("a")
        node, _ = await cluster.wait_until_running("a")
        mark = await falls_ill(cluster, who, node)
        await cluster.wait_for_taints("disk-0", mark)
        await cluster.pod("b")
        assert (await cluster.wait_until_running("b"))[1] == ["disk-1"]
        assert EVICTION not in await cluster.reasons("a")
        if who == "node":
            # Only its node observes that, so the mark ends with the attachment or when it is well.
            await gets_well(cluster, who, node)
            await cluster.wait_for_taints("disk-0")
            return
        await delete_pod(cluster, "a")
        await cluster.is_free("disk-0")
        await cluster.pod("c")
        await cluster.wait_for_event_about("c", "FailedScheduling")
        assert await cluster.taints("disk-0") == {mark}
        await gets_well(cluster, who, node)
        assert (await cluster.wait_until_running("c"))[1] == ["disk-0"]
        assert await cluster.taints("disk-0") == set()


async def falls_ill(cluster, who, node):
    if who == "fabric":
        cluster.fabric.console.set_health("disk-0", contract.Health.CRITICAL)
        return "fabric-health=critical:NoSchedule"
    if who == "node":
        nvme_state(cluster, node).write_text("dead\n")
        return "nvme-dead=dead:NoSchedule"
    await maintenances.begin(cluster.api, devices=["disk-0"])
    return "maintenance=:NoSchedule"


async def gets_well(cluster, who, node):
    if who == "fabric":
        cluster.fabric.console.set_health("disk-0", contract.Health.OK)
    elif who == "node":
        nvme_state(cluster, node).write_text("live\n")
    else:
        await maintenances.end(cluster.api)


@pytest.mark.parametrize("profile", ["1.36", "kep-5055"])
@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
async def test_a_finding_of_a_node_has_the_effect_of_its_policy(flow_lab, profile, effect):
    rules = policy.Rules(nvme_dead=policy.Rule(effect=verdicts.Effect(effect)))
    health = policy.Policy(interval_seconds=1, recovery_seconds=1, rules=rules)
    async with flow_lab(profile, devices=1, node={"health": health}) as cluster:
        await cluster.pod("a")
        node, _ = await cluster.wait_until_running("a")
        kept = await cluster.takes_nothing_back()
        nvme_state(cluster, node).write_text("dead\n")
        await cluster.wait_for_taints("disk-0", f"nvme-dead=dead:{effect}")
        if effect == "NoExecute":
            await cluster.wait_until_gone("a")
            await cluster.wait_for_event_about("a", EVICTION)
            await kept.lift()
        else:
            nvme_state(cluster, node).write_text("live\n")
            await kept.lift()
        await cluster.wait_for_taints("disk-0")
        if effect != "NoExecute":
            assert EVICTION not in await cluster.reasons("a")


def nvme_state(cluster, node):
    (file,) = cluster.trees[node].root.glob("bus/pci/devices/*/nvme/nvme*/state")
    return file


@PROFILES
async def test_a_device_that_failed_to_attach_evicts_no_pod_and_comes_back_after_probation(flow_lab, profile):
    async with flow_lab(profile, policy={"probationSeconds": 3600}) as cluster:
        await cluster.pod("a")
        await cluster.wait_until_running("a")
        attach = contract.OperationKind.ATTACH
        cluster.fabric.console.add_fault(faults.Fail(method=attach, device="disk-1", retryable=False))
        await cluster.pod("b")
        await cluster.wait_for_taints("disk-1", "attach-failed=FabricError:NoSchedule")
        await cluster.wait_for_event_about("b", "FailedScheduling")
        # Not before: a short one may be over before it is observed.
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"probationSeconds": 2}})
        assert (await cluster.wait_until_running("b"))[1] == ["disk-1"], "after its probation"
        assert await cluster.taints("disk-1") == set()
        assert EVICTION not in await cluster.reasons("a")


@WITH_RULES
async def test_an_administrators_rule_previews_then_evicts_and_the_device_comes_back_clean(flow_lab, server):
    async with flow_lab(**server) as cluster:
        await cluster.pod("a")
        await cluster.wait_until_running("a")
        rule = await discovery.taint_rules(cluster.api)
        selector = {"driver": "drawbar.dev", "pool": "fab/enc", "device": "disk-0"}
        taint = {"key": "example.com/recall", "effect": "None"}
        await cluster.create(rule, "recall", spec={"deviceSelector": selector, "taint": taint})

        async def progress():
            stored = await cluster.api.read(rule, "recall", into=dict)
            conditions = stored.get("status", {}).get("conditions", ())
            return next(
                (condition for condition in conditions if condition["type"] == "EvictionInProgress"), {}
            )

        preview = await cluster.until(progress, lambda value: value.get("reason") == "NoEffect")
        assert "1" in preview["message"]
        assert EVICTION not in await cluster.reasons("a")

        await cluster.change(rule, "recall", spec={"taint": {**taint, "effect": "NoExecute"}})
        await cluster.wait_until_gone("a")
        await cluster.until(progress, lambda value: value.get("reason") == "Completed")
        await cluster.is_free("disk-0")
        # The scheduler of 1.36 does not see rules: it would give the device out again, and again.
        if server["profile"] != "1.36":
            await cluster.pod("b")
            assert (await cluster.wait_until_running("b"))[1] == ["disk-1"]
        # The rule is the administrator's: nothing of it stands in our slices, and we do not touch it.
        assert await cluster.taints("disk-0") == set()
        await cluster.api.delete(rule, "recall")
        await cluster.pod("c")
        assert (await cluster.wait_until_running("c"))[1] == ["disk-0"]


@WITH_RULES
async def test_a_rule_that_goes_in_time_evicts_no_pod(flow_lab, server):
    async with flow_lab(**server, devices=1) as cluster:
        patient = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
        await cluster.pod("a", tolerations=[patient])
        await cluster.wait_until_running("a")
        rule = await discovery.taint_rules(cluster.api)
        taint = {"key": "example.com/recall", "effect": "NoExecute"}
        selector = {"driver": "drawbar.dev", "device": "disk-0"}
        await cluster.create(rule, "recall", spec={"deviceSelector": selector, "taint": taint})

        async def reasons():
            stored = await cluster.api.read(rule, "recall", into=dict)
            return {condition["reason"] for condition in stored.get("status", {}).get("conditions", ())}

        await cluster.until(reasons, lambda current: current == {"PodsPendingEviction"})
        await cluster.api.delete(rule, "recall")
        await cluster.wait_for_event_about("a", EVICTION)
        assert await cluster.notes(EVICTION) == ["Cancelling deletion"]
        assert "deletionTimestamp" not in (await cluster.pods())["a"]["metadata"]


async def test_an_eviction_writes_taints_in_the_form_of_the_api_server(flow_lab):
    async with flow_lab("kep-5055") as cluster:
        before = await cluster.until(cluster.slices, lambda value: len(value) == 2)
        await cluster.pod("a", tolerations=[tolerates()])
        await cluster.wait_until_running("a")
        await breaks(cluster, "link")
        await cluster.until(lambda: cluster.taints("disk-0"), lambda value: LOST in value)
        after = await cluster.slices()
        assert [spec["pool"] for spec in after] == [spec["pool"] for spec in before]
        for spec in after:
            assert bool(spec.get("devices")) != bool(spec.get("taints")), "devices or taints, never both"
            assert not any("taints" in device for device in spec.get("devices", ()))


async def now():
    return meta.timestamp(datetime.datetime.now(datetime.UTC))


async def times(cluster):
    """Return the times of the taints for a lost device, of slices and of devices."""
    specs = await cluster.slices()
    taints = [
        taint for spec in specs for device in spec.get("devices", ()) for taint in device.get("taints", ())
    ]
    taints += [entry["taint"] for spec in specs for entry in spec.get("taints", ())]
    return [taint["timeAdded"] for taint in taints if taint["key"] == "drawbar.dev/device-lost"]
