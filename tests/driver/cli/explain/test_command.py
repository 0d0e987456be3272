"""`drawbar explain` on the mock cluster: what is wrong, and the next step."""

import json
import re

import pytest

from drawbar.driver.cli.explain import diagnosis
from drawbar.driver.cli.status import observed
from drawbar.driver.controller import names
from drawbar.driver.kube import client, kinds
from drawbar.mocks.apiserver import faults


def explain_by_check(explain_command, *words):
    """Return the exit status, and by check the findings."""
    status, out, err = explain_command(*words, "-o", "json")
    assert err == ""
    listed = json.loads(out)["findings"]
    return status, {
        check: [finding for finding in listed if finding["check"] == check]
        for check in sorted({finding["check"] for finding in listed})
    }


async def patch(api, kind, name, change, *, namespace=None, subresource=None):
    await api.patch(
        kind,
        name,
        change,
        content=client.Patch.MERGE,
        into=dict,
        namespace=namespace,
        subresource=subresource,
    )


def test_a_claim_with_a_matching_free_device_names_it(explain_command, cluster):
    async def lift(api):
        listing = await api.list_all(kinds.SLICE, into=dict)
        [entry] = [entry for entry in listing.items if entry["spec"]["pool"]["name"] == "rack-1/enc-1"]
        del entry["spec"]["devices"][1]["taints"]
        await api.replace(kinds.SLICE, entry["metadata"]["name"], entry, into=dict)

    cluster(lift)
    status, by_check = explain_by_check(explain_command, "claim/next")
    assert status == 0
    assert any(
        "1 device matches and is free" in finding["message"] for finding in by_check["claims.allocated"]
    )


def test_a_ready_claim_on_a_node_without_a_daemon(explain_command, cluster):
    status, by_check = explain_by_check(explain_command, "claim/train")
    assert status == 0, "no pod is seen anywhere, and a device is visible there: the daemon is not a pod"
    assert "nodes.daemon" not in by_check

    cluster(lambda api: run_daemon(api, "node-2"))
    status, by_check = explain_by_check(explain_command, "claim/train")
    assert status == 1
    [daemon] = by_check["nodes.daemon"]
    assert daemon["subject"] == "node node-1"
    assert "kubectl label node node-1 " in daemon["remedy"]


async def fill_second_pool(api):
    """Give the claim `second` the 65th device of node-1."""
    pool = {"name": "node-1/1", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "disk-65", "attributes": {"class": {"string": "nvme"}}}
    spec = {"driver": "drawbar.dev", "pool": pool, "nodeName": "node-1", "devices": [device]}
    body = {"apiVersion": kinds.SLICE.api_version, "kind": kinds.SLICE.kind, "metadata": {"name": "second"}}
    await api.create(kinds.SLICE, body | {"spec": spec}, into=dict)
    requests = [{"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}]
    body |= {"apiVersion": kinds.CLAIM.api_version, "kind": kinds.CLAIM.kind}
    await api.create(
        kinds.CLAIM, body | {"spec": {"devices": {"requests": requests}}}, into=dict, namespace="default"
    )
    result = {"request": "disk", "driver": "drawbar.dev", "pool": "node-1/1", "device": "disk-65"}
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await patch(api, kinds.CLAIM, "second", status, namespace="default", subresource="status")


@pytest.mark.parametrize("claim", ["local", "second"])
def test_nothing_is_called_ready_whose_readiness_nobody_reports(explain_command, cluster, claim):
    cluster(fill_second_pool)
    _, by_check = explain_by_check(explain_command, f"claim/{claim}")
    assert "claims.ready" not in by_check
    (allocated,) = by_check["claims.allocated"]
    assert (allocated["severity"], "as the pod starts" in allocated["message"]) == ("ok", True)


async def run_daemon(api, node):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"drawbar-node-{node}"},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "drawbar-node",
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    await api.create(kinds.POD, body, into=dict, namespace="drawbar")
    ready = {"type": "Ready", "status": "True"}
    change = {"status": {"phase": "Running", "conditions": [ready]}}
    await patch(api, kinds.POD, f"drawbar-node-{node}", change, namespace="drawbar", subresource="status")


def test_a_pod_leads_to_its_claims(explain_command, cluster):
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: cannot allocate all claims",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    change = {"status": {"phase": "Pending", "conditions": [condition]}}
    cluster(lambda api: patch(api, kinds.POD, "train-0", change, namespace="default", subresource="status"))
    _, by_check = explain_by_check(explain_command, "pod/train-0")
    assert "cannot allocate all claims" in by_check["pods.placed"][0]["message"]
    assert by_check["claims.ready"][0]["subject"] == "claim default/train"


def test_a_pod_without_claims_is_none_of_drawbars(explain_command, cluster):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    cluster(lambda api: api.create(kinds.POD, body, into=dict, namespace="default"))
    running = {"status": {"phase": "Running"}}
    cluster(lambda api: patch(api, kinds.POD, "plain", running, namespace="default", subresource="status"))
    status, by_check = explain_by_check(explain_command, "pod/plain")
    assert status == 0
    assert "names no ResourceClaims" in by_check["pods.placed"][0]["message"]
    assert "pods.started" not in by_check, "it has no devices"


@pytest.mark.parametrize(
    ("claim", "cause", "step"),
    [
        (
            {"resourceClaimName": "absent"},
            "names the ResourceClaim absent, which does not exist in namespace default",
            "create absent, or correct the pod",
        ),
        (
            {"resourceClaimTemplateName": "absent"},
            "kube-controller-manager makes it from the ResourceClaimTemplate absent",
            "kubectl get resourceclaimtemplate absent -n default",
        ),
    ],
    ids=["claim", "template"],
)
def test_a_pod_whose_claim_does_not_exist_has_that_cause(explain_command, cluster, claim, cause, step):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "early"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", **claim}],
        },
    }
    cluster(lambda api: api.create(kinds.POD, body, into=dict, namespace="default"))
    status, out, _ = explain_command("pod/early", "-o", "json")
    found = json.loads(out)["cause"]
    assert (status, found["severity"]) == (1, "error")
    assert cause in found["message"]
    assert step in found["remedy"]


@pytest.mark.parametrize(
    "end",
    [
        ". no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful.",
        ". deallocation of ResourceClaim completed, preemption: 0/1 nodes are available",
        ". still not schedulable, preemption: 0/1 nodes are available",
        ". preemption: 0/1 nodes are available",
    ],
)
def test_the_schedulers_reason_is_shown_without_its_search_for_victims(end):
    assert observed.cut_preemption(f'resourceclaim "x" not found{end}') == 'resourceclaim "x" not found'


@pytest.mark.parametrize(("seconds", "severity"), [(30, "note"), (-60, "warning")], ids=["just", "long"])
def test_a_pod_that_is_being_deleted_is_not_called_well(
    explain_command, cluster, monkeypatch, seconds, severity
):
    monkeypatch.setattr(diagnosis, "DELETION_SECONDS", seconds)

    async def delete(api):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "ending", "finalizers": ["example.com/x"]},
            "spec": {
                "nodeName": "node-1",
                "containers": [{"name": "c", "image": "i"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}],
            },
        }
        await api.create(kinds.POD, body, into=dict, namespace="default")
        running = {"status": {"phase": "Running"}}
        await patch(api, kinds.POD, "ending", running, namespace="default", subresource="status")
        await api.delete(kinds.POD, "ending", namespace="default")

    cluster(delete)
    _, by_check = explain_by_check(explain_command, "pod/ending")
    [found] = by_check["pods.started"]
    assert (found["severity"], "is being deleted" in found["message"]) == (severity, True), found
    assert "kubectl describe pod ending -n default" in found["remedy"]


def test_a_failed_attach_has_reason_and_remedy(explain_command, cluster):
    error = {"reason": "NoFreePort", "message": "host-1 is full"}
    change = {"status": {"phase": "Failed", "error": error}}
    cluster(lambda api: patch(api, kinds.ATTACHMENT, "rack-1.gpu-1", change, subresource="status"))
    _, by_check = explain_by_check(explain_command, "device/gpu-1")
    [failed] = by_check["attachments.failed"]
    assert "NoFreePort" in failed["message"]
    assert "host-1 is full" in failed["message"]


FORGOTTEN = {
    "type": "Attached",
    "status": "True",
    "reason": "ConnectionNotShown",
    "message": "the fabric manager no longer shows this connection: since 2026-01-02T03:04:05Z it lists gpu-1 as free",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("target", ["claim/train", "device/gpu-1", "pod/train-0"])
@pytest.mark.parametrize("status", ["True", "False"])
def test_a_connection_that_the_manager_forgot_is_named_with_its_date(
    explain_command, cluster, target, status
):
    visible = FORGOTTEN | {"type": "Visible", "status": status, "reason": "R", "message": ""}
    conditions = [FORGOTTEN | {"status": status}, *([visible] if status == "True" else [])]
    change = {"status": {"phase": "Ready" if status == "True" else "Pending", "conditions": conditions}}
    cluster(lambda api: patch(api, kinds.ATTACHMENT, "rack-1.gpu-1", change, subresource="status"))
    _, by_check = explain_by_check(explain_command, target)
    found = by_check["attachments.attach"][0]
    assert found["severity"] == "warning"
    assert FORGOTTEN["message"] in found["message"]
    assert "/docs/fabrics" in found["remedy"]


UUID_SOURCES = {"fabricSource": "Processor.UUID", "nodeSource": "/proc/driver/nvidia"}
RECOGNISED = {
    "a-number": (
        {"kind": "gpu-uuid", **UUID_SOURCES},
        "gpu-uuid, the same at the fabric manager (Processor.UUID) and on the node (/proc/driver/nvidia)",
    ),
    "its-arrival": ({"kind": "sole-arrival"}, "sole-arrival"),
}


@pytest.mark.parametrize("target", ["claim/train", "device/gpu-1", "pod/train-0"])
@pytest.mark.parametrize("case", RECOGNISED)
def test_the_witness_by_which_a_device_was_recognised_is_one_line(explain_command, cluster, case, target):
    by, words = RECOGNISED[case]
    change = {"status": {"node": {"pciAddress": "0000:1b:00.0", "recognisedBy": by}}}
    cluster(lambda api: patch(api, kinds.ATTACHMENT, "rack-1.gpu-1", change, subresource="status"))
    _, by_check = explain_by_check(explain_command, target)
    [line] = by_check["attachments.visible"]
    assert (line["severity"], line["subject"]) == ("ok", "DeviceAttachment rack-1.gpu-1")
    assert line["message"] == f"node node-1 recognised it as 0000:1b:00.0, by {words}"


def test_a_device_that_was_not_recognised_has_no_such_line(explain_command, cluster):
    _, by_check = explain_by_check(explain_command, "claim/train")
    assert "attachments.visible" not in by_check


def test_a_tainted_device_names_the_remedy(explain_command, cluster):
    status, by_check = explain_by_check(explain_command, "device/rack-1/enc-1/gpu-2")
    assert status == 0
    [taint] = by_check["devices.tainted"]
    assert "drawbar.dev/maintenance" in taint["message"]
    assert "drawbar maintenance off" in taint["remedy"]
    assert "devices.offered" not in by_check, "the device is not free for claims"


def test_a_fabric_that_is_not_connected_is_named(explain_command, cluster):
    condition = {
        "type": "Connected",
        "status": "False",
        "reason": "Unavailable",
        "message": "nothing listens",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    change = {"status": {"conditions": [condition]}}
    cluster(lambda api: patch(api, kinds.FABRIC, "rack-1", change, subresource="status"))
    status, by_check = explain_by_check(explain_command, "device/gpu-2")
    assert status == 1
    assert "nothing listens" in by_check["fabrics.connected"][0]["message"]


def test_a_node_that_is_down_is_the_cause_of_its_missing_label(explain_command, cluster):
    down = {"status": {"conditions": [condition("Ready", "Unknown", "NodeStatusUnknown")]}}
    cluster(lambda api: patch(api, kinds.NODE, "node-1", down, subresource="status"))
    status, out, _ = explain_command("node/node-1", "-o", "json")
    document = json.loads(out)
    assert (status, document["cause"]["message"]) == (1, "is not Ready")
    assert "has no label" not in out


def test_a_cordoned_node_is_named_with_the_command_that_opens_it(explain_command, cluster):
    cluster(lambda api: patch(api, kinds.NODE, "node-1", {"spec": {"unschedulable": True}}))
    _, by_check = explain_by_check(explain_command, "node/node-1")
    [note] = by_check["nodes.ready"]
    assert (note["severity"], note["remedy"]) == ("note", "kubectl uncordon node-1")


def test_a_node_is_compared_with_its_fabrics_and_its_daemon(explain_command, cluster):
    cluster(lambda api: run_daemon(api, "node-2"))
    status, by_check = explain_by_check(explain_command, "node/node-1")
    assert status == 1
    assert "no pod of the node daemon" in by_check["nodes.daemon"][0]["message"]
    assert "has no label" in by_check["hosts.node"][0]["message"]

    async def correct(api):
        label = {names.node_label("rack-1"): "true"}
        await patch(api, kinds.NODE, "node-1", {"metadata": {"labels": label}})
        await run_daemon(api, "node-1")

    cluster(correct)
    status, by_check = explain_by_check(explain_command, "node/node-1")
    assert status == 0
    assert by_check["hosts.node"][0]["severity"] == "ok"


def test_a_device_on_a_deleted_node_names_the_node(explain_command, cluster):
    cluster(lambda api: api.delete(kinds.NODE, "node-1"))
    status, by_check = explain_by_check(explain_command, "device/gpu-1")
    assert status == 1
    assert "is gone" in by_check["nodes.ready"][0]["message"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("claim/none", "there is no ResourceClaim none in namespace default"),
        ("pod/none", "there is no pod none in namespace default"),
        ("node/none", "there is no node none"),
        ("device/none", "has a device none; there is disk-9, gpu-1, gpu-2"),
    ],
)
def test_an_object_that_does_not_exist_is_one_sentence(explain_command, cluster, target, sentence):
    status, out, err = explain_command(target)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [("gpu-1",), ("rack/rack-1",), ("claim/",)])
def test_a_wrong_command_line_is_refused(explain_command, words):
    assert explain_command(*words)[0] == 2


def test_without_an_object_it_is_the_doctor(explain_command, cluster):
    _, out, _ = explain_command("-o", "json")
    checks = {finding["check"] for finding in json.loads(out)["findings"]}
    assert {"server.version", "access.permission"} <= checks


def test_the_cause_comes_first_and_each_fact_once(explain_command, cluster):
    words = "the link did not come up"

    async def fail(api):
        degraded = condition("Degraded", "True", "Troubles", f"host host-1 is avoided: {words}")
        await patch(
            api,
            kinds.FABRIC,
            "rack-1",
            {"status": {"conditions": [condition("Connected", "True", "Connected"), degraded]}},
            subresource="status",
        )
        change = {"status": {"phase": "Failed", "error": {"reason": "LinkDown", "message": words}}}
        await patch(api, kinds.ATTACHMENT, "rack-1.gpu-1", change, subresource="status")

    cluster(fail)
    _, out, _ = explain_command("claim/train")
    assert out.splitlines()[0] == "Cause"
    assert "host host-1 is avoided" in out.splitlines()[1]
    assert out.count(words) == 1


def test_the_failure_of_a_device_is_told_beside_the_cause_that_it_ends_with(explain_command, cluster):
    words = "capabilities took too long"
    failure = f"the fabric manager did not take the request within 60 s; it refused last: {words}"

    async def fail(api):
        change = {"status": {"conditions": [condition("Connected", "False", "DeadlineExceeded", words)]}}
        await patch(api, kinds.FABRIC, "rack-1", change, subresource="status")
        change = {"status": {"phase": "Failed", "error": {"reason": "NoAnswer", "message": failure}}}
        await patch(api, kinds.ATTACHMENT, "rack-1.gpu-1", change, subresource="status")

    cluster(fail)
    _, out, _ = explain_command("device/gpu-1", "-o", "json")
    explained = json.loads(out)
    assert words in explained["cause"]["message"]
    assert any(failure in finding["message"] for finding in explained["consequences"])


def condition(kind, status, reason, message=""):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_waiting_is_not_advised_where_it_cannot_help(explain_command, cluster):
    async def create(api):
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.drawbar.dev", "count": 3}}
        claim = {
            "apiVersion": kinds.CLAIM.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": "three"},
            "spec": {"devices": {"requests": [request]}},
        }
        await api.create(kinds.CLAIM, claim, into=dict, namespace="default")

    cluster(create)
    status, out, _ = explain_command("claim/three")
    assert status == 1
    assert "wants 3 devices, and only 2 exist that match: waiting cannot help" in out.splitlines()[1]
    assert "ask for 2 at most" in out.splitlines()[2]


@pytest.mark.drawbar(profile="1.37")
def test_a_rule_that_blocks_a_claim_is_its_cause_with_the_way_to_lift_it(explain_command, cluster):
    async def taint(api):
        kind = kinds.TAINT_RULES[0]
        rule = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "psu"},
            "spec": {
                "deviceSelector": {"pool": "rack-1/enc-1", "device": "gpu-2"},
                "taint": {"key": "example.com/psu", "effect": "NoSchedule"},
            },
        }
        await api.create(kind, rule, into=dict)
        listing = await api.list_all(kinds.SLICE, into=dict)
        [entry] = [entry for entry in listing.items if entry["spec"]["pool"]["name"] == "rack-1/enc-1"]
        del entry["spec"]["devices"][1]["taints"]
        await api.replace(kinds.SLICE, entry["metadata"]["name"], entry, into=dict)

    cluster(taint)
    status, out, _ = explain_command("claim/next")
    assert status == 1
    assert "example.com/psu by DeviceTaintRule psu" in out.splitlines()[1]
    assert "drawbar taint remove psu" in out.splitlines()[2]
    _, out, _ = explain_command("device/gpu-2")
    assert "set by DeviceTaintRule psu" in out.splitlines()[1]


def test_no_remedy_is_a_relative_path(explain_command, cluster):
    for words in ((), ("node/node-1",), ("claim/next",), ("device/gpu-2",)):
        _, out, _ = explain_command(*words, "-o", "json")
        assert all(
            "docs/" not in finding["remedy"].replace("https://drawbar.dev/docs/", "")
            for finding in json.loads(out)["findings"]
        )


@pytest.mark.parametrize("words", [("device/gpu-1",), ("fabric/rack-1",)])
def test_nothing_is_called_well_if_a_part_cannot_be_read(explain_command, cluster, words):
    async def refuse(server):
        refusal = faults.Refusal(code=403)
        server.faults.add(faults.Fault(effect=refusal, select=faults.Selection(resource="maintenances")))

    cluster.server.call(refuse)
    status, out, _ = explain_command(*words)
    assert status == 3
    assert "Nothing is wrong" not in out
    assert "maintenances cannot be read" in " ".join(out.split())


def taint(key, value="", *, device=0):
    """Have the driver taint gpu-1, or another device of rack-1."""

    async def work(api):
        listing = await api.list_all(kinds.SLICE, into=dict)
        [entry] = [entry for entry in listing.items if entry["spec"]["pool"]["name"] == "rack-1/enc-1"]
        listed = [{"key": f"drawbar.dev/{key}", "value": value, "effect": "NoSchedule"}]
        entry["spec"]["devices"][device]["taints"] = listed
        await api.replace(kinds.SLICE, entry["metadata"]["name"], entry, into=dict)

    return work


@pytest.mark.parametrize("target", ["pod/train-0", "claim/train", "device/gpu-1"])
def test_a_sick_device_is_the_cause_with_its_users_and_the_next_step(explain_command, cluster, target):
    cluster(taint("fabric-health", "critical"))
    status, out, _ = explain_command(target)
    assert status == 0
    cause, step = out.splitlines()[1:3]
    assert cause.startswith("! device rack-1/enc-1/gpu-1: has the taint drawbar.dev/fabric-health=critical:")
    assert cause.endswith("used by claim default/train (pod train-0)")
    assert "drawbar move train -n default" in step


@pytest.mark.parametrize("key", ["maintenance", "cleaning", "reserved"])
def test_a_taint_on_a_sound_device_is_no_fault_of_its_pod(explain_command, cluster, key):
    cluster(taint(key))
    assert "Nothing is wrong with pod train-0." in explain_command("pod/train-0")[1]


def test_status_explain_and_doctor_name_the_same_sick_devices(run_verb, cluster):
    cluster(taint("fabric-health", "critical"))
    cluster(taint("attach-failed", "DeviceLost", device=1))
    for words in (("status",), ("explain", "--brief"), ("doctor", "--brief"), ("status", "-o", "wide")):
        out = run_verb(*words)[1]
        for line in (
            "gpu-1.* has the taint drawbar.dev/fabric-health=critical:NoSchedule, used by claim default/train",
            "gpu-2.* has the taint drawbar.dev/attach-failed=DeviceLost:NoSchedule",
            "drawbar move train -n default.*check the device at the fabric manager",
            "kubectl get events -A --field-selector reason=DeviceLost shows the message; check the device's link and power",
        ):
            assert re.search(line, out), (words, line, out)


def test_status_explain_and_doctor_name_the_same_cause_of_a_wait(run_verb, cluster):
    async def create(api):
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drawbar.dev", "count": 3}}]
        claim = {
            "apiVersion": kinds.CLAIM.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": "never"},
            "spec": {"devices": {"requests": requests}},
        }
        await api.create(kinds.CLAIM, claim, into=dict, namespace="default")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "never-0"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "never"}],
            },
        }
        await api.create(kinds.POD, pod, into=dict, namespace="default")
        refused = condition("PodScheduled", "False", "Unschedulable", "3 cannot allocate all claims")
        change = {"status": {"conditions": [refused]}}
        await patch(api, kinds.POD, "never-0", change, namespace="default", subresource="status")

    cluster(create)
    for words in (
        ("status",),
        ("status", "pod/never-0"),
        ("status", "claim/never"),
        ("explain", "pod/never-0"),
        ("explain", "--brief"),
        ("doctor", "--brief"),
    ):
        out = run_verb(*words)[1]
        assert "wants 3 devices, and only 2 exist that match: waiting cannot help" in out, (words, out)
        assert "never-0" in out
