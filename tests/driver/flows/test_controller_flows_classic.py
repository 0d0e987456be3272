"""Classic allocation with both daemons, scheduler, claim controller and kubelets: from a pod to its device, and back.

Source: KEP-3063; `docs/classic.md`.
"""

import functools

import pytest
from tests.driver.flows import classic, sites

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.fabric import faults

ATTACH = contract.OperationKind.ATTACH
ALPHA2, ALPHA3 = "1.30-classic", "1.31-classic"
BOTH = pytest.mark.parametrize("profile", list(profiles.CLASSIC_VERSIONS))


@pytest.fixture
def classic_lab(flow_lab):
    """Return a context manager: `async with classic_lab(profile) as cluster`; see `ClassicLab`."""
    return functools.partial(flow_lab, cluster=classic.ClassicLab)


def holds(attachment, kind):
    conditions = attachment.get("status", {}).get("conditions", ())
    return any((condition["type"], condition["status"]) == (kind, "True") for condition in conditions)


async def first_version(cluster, kind, since, is_so):
    """Return the first version since `since` in which `is_so` holds of an object of the kind."""
    return min(version for version, state in await cluster.history(kind, since) if is_so(state))


async def wait_until_deallocated(cluster, claim):
    """Wait until nothing is left of an allocation of a claim."""
    left = await cluster.until(
        lambda: cluster.read(claim),
        lambda claim: (
            not claim.get("status", {}).get("allocation") and not claim["metadata"].get("finalizers")
        ),
    )
    assert not left.get("status", {}).get("deallocationRequested")


@BOTH
async def test_a_pod_is_bound_when_its_device_is_attached_and_visible_and_gives_it_back(classic_lab, profile):
    late = {"effect": "appear", "arrival": "late", "lateSeconds": 0.3}
    async with classic_lab(profile, devices=1, attachSeconds=0.2, faults=[late]) as cluster:
        await cluster.serves()
        since = await cluster.version()
        await cluster.pod("a")
        node, devices = await cluster.wait_until_running("a")
        assert devices == ["disk-0"]
        assert await cluster.list_connections() == {"disk-0": f"host-{node}"}
        visible, allocated, bound = [
            await first_version(
                cluster, kinds.ATTACHMENT, since, lambda attachment: holds(attachment, "Visible")
            ),
            await first_version(cluster, cluster.claim_kind, since, cluster.handle),
            await first_version(
                cluster,
                kinds.POD,
                since,
                lambda pod: pod["metadata"]["name"] == "a" and pod["spec"].get("nodeName"),
            ),
        ]
        assert visible < allocated < bound
        (claim,) = await cluster.claims("a")
        assert cluster.handle(claim).node == node
        assert [consumer["name"] for consumer in claim["status"]["reservedFor"]] == ["a"]
        # The scheduler has nothing more to ask.
        await cluster.until(lambda: cluster.unsuitable("a"), lambda unsuitable: unsuitable is None)
        # The kubelet has had it prepared.
        assert len(cluster.cdi_files) == 1
        await cluster.wait_for_event("Allocated")
        await cluster.end("a")
        await cluster.is_free("disk-0")
        await cluster.until(cluster.claims, lambda claims: claims == [])
        assert cluster.cdi_files == []


async def test_a_claim_without_a_pod_holds_no_device_and_is_served_when_a_pod_wants_it(classic_lab):
    async with classic_lab(ALPHA3, devices=1) as cluster:
        await cluster.make_claim("early")
        await cluster.pod("a")
        assert (await cluster.wait_until_running("a"))[1] == ["disk-0"]
        assert cluster.handle(await cluster.read("early")) is None
        await cluster.pod_with("b", "early")
        await cluster.until(
            lambda: cluster.unsuitable("b"), lambda unsuitable: unsuitable == {"early": list(sites.NODES)}
        )
        await cluster.end("a")
        await cluster.wait_until_running("b")
        assert (await cluster.wait_for_devices("early"))[1] == ["disk-0"]
        await cluster.end("b")
        await wait_until_deallocated(cluster, "early")
        await cluster.is_free("disk-0")


async def test_an_immediate_claim_has_its_device_before_any_pod_and_until_it_is_deleted(classic_lab):
    async with classic_lab(ALPHA2) as cluster:
        await cluster.make_claim("early", immediate=True)
        node, devices = await cluster.wait_for_devices("early")
        (uid,) = [attachment["metadata"]["uid"] for attachment in (await cluster.attachments()).values()]
        for name in ("a", "b"):
            await cluster.pod_with(name, "early")
            assert (await cluster.wait_until_running(name))[0] == node
            await cluster.end(name)
        assert await cluster.wait_for_devices("early") == (node, devices)
        assert [attachment["metadata"]["uid"] for attachment in (await cluster.attachments()).values()] == [
            uid
        ]
        await cluster.api.delete(cluster.claim_kind, "early", namespace="default")
        await cluster.is_free(devices[0])
        await cluster.until(cluster.claims, lambda claims: claims == [])


@BOTH
async def test_a_shared_claim_is_attached_once_and_for_as_long_as_one_pod_uses_it(classic_lab, profile):
    async with classic_lab(profile) as cluster:
        parameters = None
        if cluster.has_parameters:
            parameters = "shared"
            await cluster.parameters(parameters, shareable="true")
        await cluster.make_claim("shared", parameters)
        for name in ("a", "b"):
            await cluster.pod_with(name, "shared")
        assert len({(await cluster.wait_until_running(name))[0] for name in ("a", "b")}) == 1
        _, (device,) = await cluster.wait_for_devices("shared")
        (uid,) = [attachment["metadata"]["uid"] for attachment in (await cluster.attachments()).values()]
        await cluster.end("a")
        await cluster.until(
            lambda: cluster.read("shared"),
            lambda claim: len(claim.get("status", {}).get("reservedFor", ())) == 1,
        )
        (kept,) = (await cluster.attachments()).values()
        assert (kept["metadata"]["uid"], kept["metadata"].get("deletionTimestamp")) == (uid, None)
        await cluster.end("b")
        await wait_until_deallocated(cluster, "shared")
        await cluster.is_free(device)


@BOTH
async def test_a_deallocated_claim_is_allocated_again_on_its_next_pods_node(classic_lab, profile):
    async with classic_lab(profile, devices=1) as cluster:
        await cluster.make_claim("moving")
        for node in sites.NODES:
            await cluster.pod_with("a", "moving", node=node)
            assert (await cluster.wait_until_running("a"))[0] == node
            assert await cluster.wait_for_devices("moving") == (node, ["disk-0"])
            assert await cluster.list_connections() == {"disk-0": f"host-{node}"}
            await cluster.end("a")
            await wait_until_deallocated(cluster, "moving")
        await cluster.is_free("disk-0")


async def test_a_pod_goes_to_the_node_that_has_a_port_for_all_of_its_claims(classic_lab):
    async with classic_lab(ALPHA3, devices=4, ports={"node-1": 1, "node-2": 2}) as cluster:
        await cluster.pod("two", claims=2)
        node, devices = await cluster.wait_until_running("two")
        assert (node, len(devices)) == ("node-2", 2)
        await cluster.pod("one")
        assert (await cluster.wait_until_running("one"))[0] == "node-1"
        # There are devices, and no port.
        await cluster.pod("late")
        await cluster.until(
            lambda: cluster.unsuitable("late"), lambda unsuitable: unsuitable == {"disk-0": list(sites.NODES)}
        )
        await cluster.end("two")
        assert (await cluster.wait_until_running("late"))[0] == "node-2"


async def test_pods_that_compete_for_devices_are_all_served(classic_lab):
    names = [f"p{number}" for number in range(5)]
    async with classic_lab(ALPHA3) as cluster:
        for name in names:
            await cluster.pod(name)
        left = set(names)
        while left:
            pods = await cluster.until(
                cluster.pods,
                lambda pods: any(pod.get("status", {}).get("phase") == "Running" for pod in pods.values()),
            )
            done = next(name for name, pod in pods.items() if pod.get("status", {}).get("phase") == "Running")
            assert len(await cluster.list_connections()) <= 2
            await cluster.end(done)
            left.remove(done)
        await cluster.until(cluster.attachments, lambda attachments: attachments == {})
        await cluster.until(cluster.claims, lambda claims: claims == [])


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        pytest.param(
            faults.Fail(method=ATTACH, retryable=False, message="the retimer is dark"),
            "FabricError",
            "the retimer is dark",
            id="fabric",
        ),
        pytest.param(faults.Appear(driver=""), "DriverNotBound", "driver", id="node"),
    ],
)
async def test_a_failed_device_is_reported_and_the_pod_gets_another(classic_lab, fault, reason, words):
    async with classic_lab(ALPHA3, visible=5, policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(fault)
        await cluster.pod("a")
        _, (device,) = await cluster.wait_until_running("a")
        await cluster.wait_for_event(reason, words)
        (other,) = {"disk-0", "disk-1"} - {device}
        await cluster.is_free(other)
        assert list(await cluster.list_connections()) == [device]


async def test_where_the_only_device_fails_all_nodes_are_unsuitable_until_its_probation_is_over(classic_lab):
    async with classic_lab(ALPHA3, devices=1, policy={"probationSeconds": 3600}) as cluster:
        fault = faults.Fail(method=ATTACH, retryable=False, message="the retimer is dark")
        cluster.fabric.console.add_fault(fault)
        await cluster.pod("a")
        await cluster.wait_for_event("FabricError", "the retimer is dark")
        await cluster.until(
            lambda: cluster.unsuitable("a"), lambda unsuitable: unsuitable == {"disk-0": list(sites.NODES)}
        )
        (claim,) = await cluster.claims("a")
        await wait_until_deallocated(cluster, claim["metadata"]["name"])
        await cluster.is_free("disk-0")
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"probationSeconds": 2}})
        assert (await cluster.wait_until_running("a"))[1] == ["disk-0"]


@BOTH
async def test_a_claim_that_cannot_be_served_has_an_event_with_the_reason_and_holds_up_no_other(
    classic_lab, profile
):
    async with classic_lab(profile, devices=1) as cluster:
        if cluster.has_parameters:
            parameters = "wrong"
            await cluster.parameters(parameters, deviceClass="gpu")
            words = "deviceClass"
        else:
            parameters, words = {"allocationMode": "All"}, "allocationMode: All"
        await cluster.make_claim("wrong", parameters)
        await cluster.pod_with("a", "wrong")
        await cluster.wait_for_event("CannotServeClaim", words)
        await cluster.until(
            lambda: cluster.unsuitable("a"), lambda unsuitable: unsuitable == {"wrong": list(sites.NODES)}
        )
        await cluster.pod("b")
        await cluster.wait_until_running("b")
        assert not (await cluster.pods())["a"]["spec"].get("nodeName")
        assert cluster.handle(await cluster.read("wrong")) is None


async def test_a_controller_that_dies_in_mid_attach_is_taken_up_where_it_was(classic_lab):
    async with classic_lab(ALPHA3, attachSeconds=0.5) as cluster:
        await cluster.pod("a")
        begun = await cluster.until(cluster.attachments, bool)
        await cluster.stop("controller")
        cluster.start_controller()
        _, (device,) = await cluster.wait_until_running("a")
        attachments = await cluster.attachments()
        assert {name: attachment["metadata"]["uid"] for name, attachment in attachments.items()} == {
            device: begun[device]["metadata"]["uid"]
        }
        assert list(await cluster.list_connections()) == [device]


async def test_a_pod_that_goes_in_mid_attach_leaves_nothing(classic_lab):
    async with classic_lab(ALPHA3, attachSeconds=0.5) as cluster:
        await cluster.make_claim("kept")
        await cluster.pod_with("a", "kept")
        (device,) = await cluster.until(cluster.attachments, bool)
        await cluster.end("a")
        await cluster.is_free(device)
        await wait_until_deallocated(cluster, "kept")
        await cluster.wait_for_event("NobodyWaits")
