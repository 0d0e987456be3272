"""`drawbar explain claim/NAME` for each state of a claim: one cause, and a next step with the real names."""

import json
import re

import pytest

from drawbar.driver.kube import client, kinds

POOL = "rack-1/enc-1"
CLASS = "gpu.drawbar.dev"
TAINT = {"key": "drawbar.dev/maintenance", "effect": "NoSchedule"}
TOLERATION = {"key": TAINT["key"], "operator": "Exists"}
FPGA = [{"cel": {"expression": "device.attributes['drawbar.dev'].class == 'fpga'"}}]
BROKEN = [{"cel": {"expression": "device.attributes['drawbar.dev'].model.startsWith(1)"}}]


def exactly(**fields):
    return {"name": "gpu", "exactly": {"deviceClassName": CLASS} | fields}


def either(*alternatives):
    ways = [
        {"name": f"way-{number}", "deviceClassName": CLASS} | each for number, each in enumerate(alternatives)
    ]
    return {"name": "gpu", "firstAvailable": ways}


# The requests, the exit status, and parts of the cause and of its next step; a claim that could have its devices has no cause.
REQUESTS = {
    "no class": (
        [exactly(deviceClassName="none")],
        1,
        "there is no DeviceClass none",
        "kubectl get deviceclasses",
    ),
    "broken selector": (
        [exactly(selectors=BROKEN)],
        1,
        "its selectors cannot be evaluated",
        "CEL expression",
    ),
    "none matches": ([exactly(selectors=FPGA)], 1, "none of the devices", "kubectl get resourceslices"),
    "too few": ([exactly(count=3)], 1, "only 2 exist that match: waiting cannot help", "ask for 2 at most"),
    "in use or tainted": (
        [exactly()],
        1,
        "2 match, and 0 are free (1 Ready, 1 tainted)",
        f"drawbar explain device/{POOL}/gpu-2",
    ),
    "all of them": (
        [exactly(allocationMode="All", tolerations=[TOLERATION])],
        1,
        "wants 2 devices; 2 match, and 1 are free (1 Ready)",
        "drawbar status shows their users",
    ),
    "tolerated taint": ([exactly(tolerations=[TOLERATION])], 0, "", ""),
    "administrator": ([exactly(adminAccess=True, tolerations=[TOLERATION])], 0, "", ""),
    "an alternative": ([either({"count": 8}, {"tolerations": [TOLERATION]})], 0, "", ""),
    "no alternative": ([either({"count": 8}, {})], 1, "2 match, and 0 are free", "drawbar explain device/"),
    "the second request": (
        [exactly(tolerations=[TOLERATION]), exactly(count=3) | {"name": "more"}],
        1,
        "request more (class gpu.drawbar.dev) wants 3 devices, and only 2",
        "ask for 2 at most",
    ),
}


def create(requests, labels=()):
    async def work(api):
        body = {
            "apiVersion": kinds.CLAIM.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": "wanted"},
            "spec": {"devices": {"requests": requests}},
        }
        if any(request.get("exactly", {}).get("adminAccess") for request in requests):
            change = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
            namespace = kinds.Kind(
                group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False
            )
            await api.patch(namespace, "default", change, content=client.Patch.MERGE, into=dict)
        await api.create(kinds.CLAIM, body, into=dict, namespace="default")

    return work


def explain(explain_command, name="wanted"):
    status, out, err = explain_command(f"claim/{name}", "-o", "json")
    assert err == ""
    return status, json.loads(out)


@pytest.mark.parametrize("case", REQUESTS)
def test_a_claim_without_a_device_has_one_cause_and_a_next_step(explain_command, cluster, case):
    requests, expected, words, step = REQUESTS[case]
    cluster(create(requests))
    status, document = explain(explain_command)
    assert status == expected, document
    if not expected:
        assert document["cause"] is None
        return
    cause = document["cause"]
    assert (cause["subject"], words in cause["message"]) == ("claim default/wanted", True), cause
    assert step in cause["remedy"]
    assert not re.search(r"\bNAME\b", cause["remedy"])


def test_a_broken_class_is_named_as_the_cause(explain_command, cluster):
    async def spoil(api):
        change = {"spec": {"selectors": BROKEN}}
        await api.patch(kinds.DEVICE_CLASS, CLASS, change, content=client.Patch.MERGE, into=dict)

    cluster(spoil)
    status, document = explain(explain_command, "next")
    assert status == 1
    assert "the class's selectors cannot be evaluated" in document["cause"]["message"]
    assert document["cause"]["remedy"].startswith(f"kubectl edit deviceclass {CLASS}")


def disconnect(pools=True):
    """Disconnect the Fabric; without `pools`, withdraw its devices too."""
    condition = {
        "type": "Connected",
        "status": "False",
        "reason": "Unavailable",
        "message": "nothing listens",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    async def work(api):
        change = {"status": {"conditions": [condition]}}
        await api.patch(
            kinds.FABRIC, "rack-1", change, content=client.Patch.MERGE, into=dict, subresource="status"
        )
        if not pools:
            await api.delete(kinds.SLICE, POOL.replace("/", "-"))

    return work


@pytest.mark.parametrize(
    ("requests", "pools", "is_fabric"),
    [
        ([exactly(deviceClassName="none")], True, False),
        ([exactly(deviceClassName="none")], False, False),
        ([exactly(selectors=FPGA)], True, False),
        ([exactly(selectors=FPGA)], False, True),
        ([exactly()], True, True),
        ([exactly()], False, True),
    ],
)
def test_a_lost_fabric_is_the_cause_only_if_it_could_have_the_device(
    explain_command, cluster, requests, pools, is_fabric
):
    cluster(create(requests))
    cluster(disconnect(pools))
    _, document = explain(explain_command)
    subject = "Fabric rack-1" if is_fabric else "claim default/wanted"
    assert document["cause"]["subject"] == subject, document


def allocate(name, conditions=(), failures=(), reported=(), *, driver="drawbar.dev"):
    """Give gpu-2 to a new claim."""

    async def work(api):
        await create([exactly()])(api)
        result = {"request": "gpu", "driver": driver, "pool": POOL, "device": name}
        if conditions:
            result |= {"bindingConditions": list(conditions), "bindingFailureConditions": list(failures)}
        entry = {"driver": driver, "pool": POOL, "device": name, "conditions": list(reported)}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "wanted-0", "uid": "u"}],
            **({"devices": [entry]} if reported else {}),
        }
        await api.patch(
            kinds.CLAIM,
            "wanted",
            {"status": status},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )

    return work


def test_a_claim_whose_attach_has_not_begun_waits_for_the_controller(explain_command, cluster):
    cluster(allocate("gpu-2", ["drawbar.dev/ready"], ["drawbar.dev/failed"]))
    status, out, _ = explain_command("claim/wanted")
    assert status == 0
    assert "gpu-2 is not ready: drawbar.dev/ready is not True yet" in out
    assert "drawbar doctor --brief shows whether a controller leads" in out


def test_a_claim_without_binding_conditions_names_its_pod(explain_command, cluster):
    cluster(allocate("gpu-2"))
    status, document = explain(explain_command)
    assert status == 1
    assert "allocated without binding conditions" in document["cause"]["message"]
    assert "kubectl delete pod wanted-0 -n default" in document["cause"]["remedy"]


def test_a_claim_of_another_driver_is_left_to_it(explain_command, cluster):
    cluster(allocate("gpu-2", driver="other.example.com"))
    status, document = explain(explain_command)
    assert (status, document["cause"]) == (0, None)
    [note] = [each for each in document["findings"] if each["check"] == "claims.allocated"]
    assert note["message"] == "has no device of the driver drawbar.dev, but of other.example.com"


def test_a_deleted_claim_names_the_pods_that_keep_it(explain_command, cluster):
    async def delete(api):
        change = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        await api.patch(
            kinds.CLAIM, "train", change, content=client.Patch.MERGE, into=dict, namespace="default"
        )
        await api.delete(kinds.CLAIM, "train", namespace="default")

    cluster(delete)
    status, document = explain(explain_command, "train")
    assert status == 0
    cause = document["cause"]
    assert cause["message"] == "is being deleted, and goes once its users have ended: pods/train-0"
    assert cause["remedy"] == "kubectl delete pods train-0 -n default"
