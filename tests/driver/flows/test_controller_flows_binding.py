"""The flows of device binding conditions that Kubernetes' own integration tests have, with our daemons in them.

Source: KEP-5007, test plan; `test/integration/dra/binding_conditions.go`: basic flow, failure and rescheduling, timeout,
timeout and recovery.
"""

import pytest

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults

ATTACH = contract.OperationKind.ATTACH
BY_DEFAULT = [pytest.param({"profile": name}, id=name) for name in ("1.36", "1.37", "kep-5055")]
WITH_GATES = {"profile": "1.34", "gates": {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}}
PROFILES = pytest.mark.parametrize("server", [*BY_DEFAULT, pytest.param(WITH_GATES, id="1.34 with gates")])
READY = {"attached": "Attached", "visible": "DeviceReady"}


@PROFILES
async def test_basic_flow_the_pod_is_bound_when_the_device_is_attached_and_visible_and_not_before(
    flow_lab, server
):
    late = {"effect": "appear", "arrival": "late", "lateSeconds": 0.3}
    async with flow_lab(**server, devices=1, attachSeconds=0.2, faults=[late]) as cluster:
        await cluster.pod("a")
        (allocation,) = await cluster.wait_until_allocated("a")
        (result,) = allocation["devices"]["results"]
        (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
        node = term["matchFields"][0]["values"][0]
        assert result["bindingConditions"] == ["drawbar.dev/attached", "drawbar.dev/visible"]
        assert result["bindingFailureConditions"] == ["drawbar.dev/attach-failed", "drawbar.dev/node-failed"]
        assert allocation["allocationTimestamp"]

        async def read():
            bound = (await cluster.pods())["a"]["spec"].get("nodeName")
            # The pod first: since then conditions can only have been added.
            conditions = (await cluster.conditions_of("a")).get("disk-0", {})
            assert not bound or conditions == READY, "the pod is bound before fabric and node report it ready"
            return conditions

        await cluster.until(read, lambda conditions: conditions == READY)
        assert await cluster.wait_until_running("a") == (node, ["disk-0"])
        assert await cluster.conditions_of("a") == {"disk-0": READY}
        assert await cluster.list_connections() == {"disk-0": f"host-{node}"}
        await cluster.wait_for_event("BindingConditionsPending")

        # The next pod waits for the device until the first gives it back, and then gets it the same way.
        await cluster.pod("b")
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        _, devices = await cluster.wait_until_running("b")
        assert devices == ["disk-0"]
        assert await cluster.conditions_of("b") == {"disk-0": READY}


DARK = faults.Fail(method=ATTACH, retryable=False, message="the retimer is dark")
BY_FABRIC = [(case.values[0], DARK, "FabricError", "the retimer is dark") for case in BY_DEFAULT]
BARE = faults.Appear(driver="")
HOMELESS = faults.Appear(unassigned=True)


@pytest.mark.parametrize(
    ("server", "fault", "reason", "words"),
    [
        *(pytest.param(*case, id=f"fabric-{case[0]['profile']}") for case in BY_FABRIC),
        pytest.param(WITH_GATES, *BY_FABRIC[0][1:], id="fabric-1.34 with gates"),
        # The node takes its time to be sure, so once for each form of taints.
        pytest.param({"profile": "1.36"}, BARE, "DriverNotBound", "driver", id="node-1.36"),
        pytest.param({"profile": "1.36"}, HOMELESS, "ResourcesNotAssigned", "BAR", id="addresses-1.36"),
        pytest.param({"profile": "kep-5055"}, BARE, "DriverNotBound", "driver", id="node-kep-5055"),
    ],
)
async def test_a_failed_device_is_out_of_the_way_before_the_claim_fails_and_the_pod_gets_another(
    flow_lab, server, fault, reason, words
):
    # The other device must come up within the same time.
    patience = 5 if fault in (BARE, HOMELESS) else 60
    async with flow_lab(**server, visible=patience, policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(fault)
        await cluster.until(cluster.slices, bool)
        since = await cluster.version()
        await cluster.pod("a")
        _, devices = await cluster.wait_until_running("a")
        assert devices == ["disk-1"]
        assert await cluster.taints("disk-0") == {f"attach-failed={reason}:NoSchedule"}
        assert await cluster.taints("disk-1") == set()
        await cluster.wait_for_event("FailedScheduling", "binding failed")
        (note,) = [note for note in await cluster.notes("FailedScheduling") if "binding failed" in note]
        assert f"reason={reason}" in note
        assert words in note

        slices = await cluster.history(kinds.SLICE, since)
        claims = await cluster.history(kinds.CLAIM, since)
        tainted = min(
            version
            for version, resource_slice in slices
            if cluster.taints_in([resource_slice["spec"]], "disk-0")
        )
        reported = min(version for version, claim in claims if has_binding_failure(claim))
        assert tainted < reported, "the claim has the failure once the device is out of the way"
        held = [version for version, claim in claims if allocation(claim)]
        back = min(version for version, claim in claims if version > held[0] and not allocation(claim))
        assert reported < back, "the scheduler took the allocation back because of the failure"
        # What failed is rolled back, and only what the pod has stays connected.
        await cluster.is_free("disk-0")
        assert list(await cluster.list_connections()) == ["disk-1"]


@PROFILES
async def test_a_timeout_gives_the_pod_an_event_and_ends_the_attach(flow_lab, server):
    patience = {"timeout": 60, "patience": 4}
    async with flow_lab(**server, **patience, devices=1, policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(faults.Stick(method=ATTACH))
        # Else an Event of an earlier attempt takes in the one that is waited for: they differ by their notes alone.
        await cluster.until(cluster.slices, bool)
        await cluster.pod("a")
        reason = "AttachDeadlineExceeded"
        notes = await cluster.until(
            lambda: cluster.notes("FailedScheduling"),
            lambda notes: any("binding failed" in note for note in notes),
        )
        (note,) = [note for note in notes if "binding failed" in note]
        # We give up before the scheduler does, so that its Event has the reason and not only the time.
        name = (await cluster.claims("a"))[0]["metadata"]["name"]
        if server is WITH_GATES:
            assert f"claim {name} binding failed: reason={reason}" in note
        else:
            assert f"device binding failed: claim={name}, reason={reason}" in note
        await cluster.wait_for_taints("disk-0", f"attach-failed={reason}:NoSchedule")
        await cluster.is_free("disk-0")
        pod = (await cluster.pods())["a"]
        assert not pod["spec"].get("nodeName")
        assert allocations(await cluster.claims("a")) == [None]


@PROFILES
async def test_an_attach_is_undone_after_the_schedulers_timeout(flow_lab, server):
    async with flow_lab(**server, devices=1, timeout=3, patience=60) as cluster:
        cluster.fabric.console.add_fault(faults.Stick(method=ATTACH))
        await cluster.pod("a")
        # It dies when the device is on its way to the node.
        old = await cluster.until(cluster.attachments, bool)
        await cluster.stop("controller")
        await cluster.until(
            lambda: cluster.claims("a"),
            lambda claims: moment(claims) not in (None, old["disk-0"]["spec"]["allocationTimestamp"]),
        )
        await cluster.wait_for_event("FailedScheduling", "binding timeout")
        assert not (await cluster.pods())["a"]["spec"].get("nodeName")
        # Back again, it takes back what was begun for the allocation that is no more, and serves the one that stands.
        cluster.start_controller()
        assert (await cluster.wait_until_running("a"))[1] == ["disk-0"]
        new = (await cluster.attachments())["disk-0"]
        assert new["metadata"]["uid"] != old["disk-0"]["metadata"]["uid"]
        assert new["spec"]["allocationTimestamp"] == moment(await cluster.claims("a"))


@PROFILES
async def test_after_the_timeout_a_device_that_came_meanwhile_is_taken_and_the_first_is_free_again(
    flow_lab, server
):
    patience = {"timeout": 60, "patience": 4}
    async with flow_lab(**server, **patience, devices=1, policy={"probationSeconds": 3600}) as cluster:
        # For as long as it takes: a request that a busy machine makes too late blames no device, and is made again.
        cluster.fabric.console.add_fault(faults.Stick(method=ATTACH, device="disk-0", times=None))
        await cluster.until(cluster.slices, bool)
        await cluster.pod("a")
        await cluster.wait_until_allocated("a")
        first = (await cluster.fabric.devices()).device("disk-0")
        cluster.fabric.console.add_device(another(first))
        _, devices = await cluster.wait_until_running("a")
        assert devices == ["disk-1"]
        await cluster.wait_for_event("FailedScheduling", "AttachDeadlineExceeded")
        await cluster.is_free("disk-0")
        assert list(await cluster.list_connections()) == ["disk-1"]
        cluster.fabric.console.clear_faults()
        # Its probation is short from now on, and then the next pod may have it.
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"probationSeconds": 2}})
        await cluster.wait_for_taints("disk-0")
        await cluster.pod("b")
        assert (await cluster.wait_until_running("b"))[1] == ["disk-0"]


async def test_where_conditions_are_dropped_nothing_unattached_is_published_and_no_pod_is_bound(flow_lab):
    async with flow_lab("1.34") as cluster:
        fabric = await cluster.until(
            lambda: cluster.api.read(kinds.FABRIC, "fab", into=dict),
            lambda fabric: condition(fabric, "FeaturesDropped").get("status") == "True",
        )
        assert "bindingConditions" in condition(fabric, "FeaturesDropped")["message"]
        await cluster.pod("a")
        await cluster.wait_for_event("FailedScheduling")
        assert await cluster.slices() == []
        assert await cluster.list_connections() == {}
        assert not (await cluster.pods())["a"]["spec"].get("nodeName")


async def test_where_only_taints_are_dropped_a_failed_device_is_withdrawn_before_the_claim_fails(flow_lab):
    gates = {"DRADeviceBindingConditions": True}
    async with flow_lab("1.34", gates=gates, attachSeconds=0.2) as cluster:
        fault = faults.Fail(method=ATTACH, device="disk-0", times=None, retryable=False)
        cluster.fabric.console.add_fault(fault)
        await cluster.until(cluster.slices, bool)
        cluster.server.writes.clear()
        # Were it back before the pod is scheduled again, it would be given to the pod again.
        kept = await cluster.takes_nothing_back()
        await cluster.pod("a")
        assert (await cluster.wait_until_running("a"))[1] == ["disk-1"]
        await kept.lift()
        await cluster.is_free("disk-0")
        # A failure is not recorded there once it is over, and the pool is written as often as it changes.
        await cluster.until(lambda: cluster.taints("disk-0"), lambda value: value == set())
        assert cluster.server.writes.count(resource="resourceslices") == 2
        dropped = condition(await cluster.api.read(kinds.FABRIC, "fab", into=dict), "FeaturesDropped")
        assert (dropped["status"], "withdrawn" in dropped["message"]) == ("True", True)


def allocation(claim):
    return claim.get("status", {}).get("allocation")


def has_binding_failure(claim):
    """Return whether a condition is true of it that takes its devices from the pod."""
    results = (allocation(claim) or {}).get("devices", {}).get("results", ())
    fatal = {name for result in results for name in result.get("bindingFailureConditions", ())}
    return any(
        condition["type"] in fatal and condition["status"] == "True"
        for device in claim.get("status", {}).get("devices", ())
        for condition in device.get("conditions", ())
    )


def allocations(claims):
    return [allocation(claim) for claim in claims]


def moment(claims):
    """Return the timestamp of the only claim's allocation; None without an allocation."""
    (allocation,) = allocations(claims)
    return allocation and allocation["allocationTimestamp"]


def condition(fabric, kind):
    conditions = fabric.get("status", {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == kind), {})


def another(device):
    """Return a second disk of the same kind."""
    return contract.Device(
        id="disk-1",
        device_class=device.device_class,
        enclosure=device.enclosure,
        model=device.model,
        serial="SN0001",
        pci_vendor_id=device.pci_vendor_id,
        pci_device_id=device.pci_device_id,
    )
