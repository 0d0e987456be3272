"""Device taints with effect NoExecute: which pods are evicted, when, and how it is reported."""

import asyncio

import pytest

from contract import features
from contract.lab import list_consumers

pytestmark = pytest.mark.needs("v1")

FINALIZERS = ["contract.drawbar.dev/hold"]
TAINT = {"key": "contract.drawbar.dev/broken", "value": "yes", "effect": "NoExecute"}


def device(name, **fields):
    return {"name": name, **fields}


class Running:
    """A pod that runs with a device, and the slice of it. The pod stays to be looked at when it is deleted."""

    def __init__(self, lab, slice_, claim, pod):
        self.lab = lab
        self.claim = claim
        self.pod = pod
        self._slice = slice_

    async def publish(self, *devices):
        path = self.lab.world.path("resourceslices", self._slice["metadata"]["name"])
        reply = await self.lab.world.api.merge(path, {"spec": {"devices": list(devices)}})
        assert reply.code == 200, reply.body

    async def wait_until_evicted(self):
        return await self.lab.world.until(
            "pods", self.pod, lambda stored: stored["metadata"].get("deletionTimestamp")
        )

    async def check_not_evicted(self):
        """Check that the pod stays, after another pod with a taint of the same moment was evicted."""
        current = (await self.lab.world.api.get(self.lab.world.path("pods", self.pod))).body
        assert not current["metadata"].get("deletionTimestamp")


@pytest.fixture
@features.declare_needs("taints")
async def run(lab):
    """Start a pod with a device of its own pool."""

    async def start(name="d1", **request):
        slice_ = await lab.pool(device(name))
        claim = await lab.claim(requests=[lab.request(**request)])
        pod = await lab.pod(claim, metadata={"finalizers": FINALIZERS})
        await lab.wait_until_bound(pod)
        return Running(lab, slice_, claim, pod)

    return start


def disruption(pod):
    return next(
        (
            condition
            for condition in pod["status"].get("conditions") or ()
            if condition["type"] == "DisruptionTarget"
        ),
        None,
    )


async def test_a_pod_is_evicted_when_its_device_gets_the_taint(run):
    running = await run()
    await running.publish(device("d1", taints=[TAINT]))
    pod = await running.wait_until_evicted()
    condition = disruption(pod)
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByDeviceTaintManager")


async def test_an_eviction_is_an_event(run):
    running = await run()
    await running.publish(device("d1", taints=[TAINT]))
    await running.lab.event(running.pod, "DeviceTaintManagerEviction")


async def test_only_the_pod_of_the_tainted_device_is_evicted(run):
    spared = await run("d1")
    doomed = await run("d2")
    await doomed.publish(device("d2", taints=[TAINT]))
    await doomed.wait_until_evicted()
    await spared.check_not_evicted()


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
async def test_other_effects_evict_nobody(run, effect):
    spared = await run("d1")
    doomed = await run("d2")
    await spared.publish(device("d1", taints=[{**TAINT, "effect": effect}]))
    await doomed.publish(device("d2", taints=[TAINT]))
    await doomed.wait_until_evicted()
    await spared.check_not_evicted()


async def test_who_tolerates_the_taint_for_ever_stays(run):
    spared = await run("d1", tolerations=[{"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}])
    doomed = await run("d2")
    await spared.publish(device("d1", taints=[TAINT]))
    await doomed.publish(device("d2", taints=[TAINT]))
    await doomed.wait_until_evicted()
    await spared.check_not_evicted()


async def test_who_tolerates_the_taint_for_a_time_stays_so_long(run):
    seconds = 2
    toleration = {
        "key": TAINT["key"],
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }
    patient = await run("d1", tolerations=[toleration])
    doomed = await run("d2")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await patient.publish(device("d1", taints=[TAINT]))
    await doomed.publish(device("d2", taints=[TAINT]))
    await doomed.wait_until_evicted()
    current = (await patient.lab.world.api.get(patient.lab.world.path("pods", patient.pod))).body
    # Of the time that it has, less than a second can be lost, since the time of a taint is given in whole seconds.
    if loop.time() - began < seconds / 2:
        assert not current["metadata"].get("deletionTimestamp")
    await patient.wait_until_evicted()


async def test_a_taint_that_goes_in_time_evicts_nobody(run):
    toleration = {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 4}
    patient = await run("d1", tolerations=[toleration])
    twin = await run("d2", tolerations=[toleration])
    await patient.publish(device("d1", taints=[TAINT]))
    await patient.publish(device("d1"))
    # Its time is over last: by then that of the first would be, too.
    await twin.publish(device("d2", taints=[TAINT]))
    await twin.wait_until_evicted()
    await patient.check_not_evicted()


async def test_the_time_of_a_toleration_runs_from_the_time_of_the_taint(run):
    toleration = {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    patient = await run("d1", tolerations=[toleration])
    await patient.publish(device("d1", taints=[{**TAINT, "timeAdded": "2026-01-01T00:00:00Z"}]))
    await patient.wait_until_evicted()


async def test_a_device_that_vanishes_from_its_slice_evicts_nobody(run):
    spared = await run("d1")
    doomed = await run("d2")
    await spared.publish()
    await doomed.publish(device("d2", taints=[TAINT]))
    await doomed.wait_until_evicted()
    await spared.check_not_evicted()


async def test_a_claim_that_is_not_reserved_keeps_its_allocation(run):
    running = await run()
    await running.publish(device("d1", taints=[TAINT]))
    await running.wait_until_evicted()
    path = running.lab.world.path("pods", running.pod)
    await running.lab.world.api.merge(path, {"metadata": {"finalizers": None}})
    await running.lab.world.until("resourceclaims", running.claim, lambda stored: not list_consumers(stored))


async def rule(lab, name, effect="NoExecute"):
    """Return a rule about one device of the test's driver."""
    spec = {
        "deviceSelector": {"driver": lab.world.driver, "device": name},
        "taint": {**TAINT, "effect": effect},
    }
    return await lab.world.make("devicetaintrules", spec=spec)


@pytest.mark.needs("taint rules")
async def test_a_rule_evicts_the_pods_of_the_devices_it_selects(lab, run):
    spared, doomed = await run("d1"), await run("d2")
    await rule(lab, "d2")
    await doomed.wait_until_evicted()
    await spared.check_not_evicted()


@pytest.mark.needs("taint rules")
async def test_a_rule_says_how_far_its_evictions_are(lab, run):
    running = await run("d1")
    made = await rule(lab, "d1")
    await running.wait_until_evicted()
    name = made["metadata"]["name"]

    def progress(stored):
        conditions = (stored.get("status") or {}).get("conditions") or ()
        return next((c for c in conditions if c["type"] == "EvictionInProgress"), None)

    await lab.world.until("devicetaintrules", name, progress)
    await lab.world.api.merge(lab.world.path("pods", running.pod), {"metadata": {"finalizers": None}})
    done = await lab.world.until(
        "devicetaintrules", name, lambda stored: progress(stored)["status"] == "False"
    )
    assert progress(done)["reason"] == "Completed"


@pytest.mark.needs("taint rules")
async def test_a_rule_without_effect_only_informs(lab, run):
    spared, doomed = await run("d1"), await run("d2")
    await rule(lab, "d1", "None")
    await rule(lab, "d2")
    await doomed.wait_until_evicted()
    await spared.check_not_evicted()


@pytest.mark.needs("unscheduled taint rules")
async def test_the_scheduler_of_1_36_does_not_see_rules(lab):
    """It lists them in v1beta2 and takes them for v1alpha3's type: with their gate it ends, so it is run without."""
    await lab.pool(device("d1"))
    await rule(lab, "d1", "NoSchedule")
    await lab.wait_until_bound(await lab.pod(await lab.claim()))


@pytest.mark.needs("taints", "scheduled taint rules")
async def test_a_rule_keeps_new_pods_from_the_device(lab):
    await lab.pool(device("d1"))
    made = await rule(lab, "d1", "NoSchedule")
    claim = await lab.claim()
    pod = await lab.pod(claim)
    assert await lab.unschedulable(pod)
    await lab.world.api.delete(lab.world.path("devicetaintrules", made["metadata"]["name"]))
    await lab.wait_until_bound(pod)
