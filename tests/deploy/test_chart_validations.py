"""Each rule of each admission policy is needed: an attempt that it refuses, and that nothing else would.

The accounts are bound to a role that allows everything here, so that only the policies stand between a daemon's token and
the cluster, as they do where an administrator widens a role. All attempts are dry runs, so they can be made again and again.
"""

import contextlib

import aiohttp
import pytest
import yaml
from tests.scenes import attachments

from drawbar.driver.kube import client, kinds

CONTROLLER, NODE = "drawbar-controller", "drawbar-node"
OTHER = "gpu.example.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ATTACHMENTS = "/apis/drawbar.dev/v1alpha1/deviceattachments"
FABRICS = "/apis/drawbar.dev/v1alpha1/fabrics"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
BINDING = kinds.Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    namespaced=False,
)
LABEL = {"metadata": {"labels": {"a": "b"}}}
SERIES = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}
OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "gone",
    "uid": "00000000-0000-0000-0000-000000000000",
}
OWNED = {"metadata": {"ownerReferences": [OWNER]}}
SEEN = {"status": {"node": {"kernelDriver": "nvme"}}}
HELD = {"metadata": {"finalizers": ["example.com/held"]}}


def resource_slice(driver="drawbar.dev", pool="", **where):
    spec = {
        "driver": driver,
        "pool": {"name": pool or where.get("nodeName", "new"), "generation": 1, "resourceSliceCount": 1},
        "devices": [],
    }
    metadata = {"name": "new"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec | where,
    }


def attachment(name, node, driver="drawbar.dev", **metadata):
    return attachments.document(name, node, driver=driver, metadata=metadata)


def condition(name, status="True"):
    """Return a condition of an attachment."""
    return {"type": name, "status": status, "reason": "Said", "lastTransitionTime": "2026-01-02T03:04:05Z"}


def taint_rule(name, *, label=True, end=True):
    metadata = {"name": name}
    metadata |= {"labels": {"drawbar.dev/taint-rule": name}} if label else {}
    metadata |= {"annotations": {"drawbar.dev/expires-at": "2026-01-02T03:04:05Z"}} if end else {}
    taint = {"key": "example.com/a", "effect": "NoSchedule"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": metadata,
        "spec": {"deviceSelector": {"driver": OTHER}, "taint": taint},
    }


def event(controller="drawbar.dev", instance="node-1", about="ResourceClaim", name="mine", **more):
    regarding = {"apiVersion": "v1", "kind": about, "name": name}
    if about not in ("Node", "DeviceAttachment", "DeviceTaintRule"):
        regarding["namespace"] = "default"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new", "namespace": "default"},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": controller,
        "reportingInstance": instance,
        "action": "Said",
        "reason": "Said",
        "type": "Normal",
        "note": "",
        "regarding": regarding,
        **more,
    }


def devices(*drivers):
    return {"status": {"devices": [{"driver": driver, "pool": "p", "device": "one"} for driver in drivers]}}


def make_allocated_status(node):
    results = [
        {"request": "r", "driver": driver, "pool": "p", "device": "one"} for driver in ("drawbar.dev", OTHER)
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": selector}} | devices(OTHER)[
        "status"
    ]


# By policy: what is attempted (account's node, method, path, body), and a part of the refusal's message.
ATTEMPTS = {
    "drawbar-node-slices": [
        ("", "POST", SLICES, resource_slice(allNodes=True), "must be bound to a node"),
        ("node-1", "POST", SLICES, resource_slice(nodeName="node-2"), "of its own node alone"),
        ("node-1", "POST", SLICES, resource_slice(pool="node-1", allNodes=True), "of its own node alone"),
        ("node-1", "DELETE", f"{SLICES}/theirs", {}, "of its own node alone"),
        ("node-1", "PATCH", f"{SLICES}/theirs", LABEL, "of its own node alone"),
        (
            "node-1",
            "POST",
            SLICES,
            resource_slice(OTHER, nodeName="node-1"),
            "of the driver drawbar.dev alone",
        ),
        (
            # With a generation of its own it would take the fabric's pool away from everybody.
            "node-1",
            "POST",
            SLICES,
            resource_slice(pool="fab/enc", nodeName="node-1"),
            "the pools that have the name of its own node alone",
        ),
    ],
    "drawbar-node-attachments": [
        ("node-1", "PATCH", f"{ATTACHMENTS}/fab.theirs/status", SEEN, "of its own node alone"),
        ("", "PATCH", f"{ATTACHMENTS}/fab.mine/status", SEEN, "of its own node alone"),
        ("node-1", "PATCH", f"{ATTACHMENTS}/fab.foreign/status", SEEN, "of the driver"),
        ("node-1", "PATCH", f"{ATTACHMENTS}/fab.mine", LABEL, "nothing of a DeviceAttachment but its status"),
        ("node-1", "DELETE", f"{ATTACHMENTS}/fab.mine", {}, "nothing of a DeviceAttachment but its status"),
        ("node-1", "POST", ATTACHMENTS, attachment("fab.new", "node-1"), "nothing of a DeviceAttachment but"),
        (
            "node-1",
            "PATCH",
            f"{ATTACHMENTS}/fab.mine/status",
            {"status": {"conditions": [condition("Attached")]}},
            "the conditions Visible, Released and Exclusive alone",
        ),
        *(
            ("node-1", "PATCH", f"{ATTACHMENTS}/fab.mine/status", {"status": status}, words)
            for status, words in (
                ({"operation": {"requestID": "x"}}, "operation, connection and error"),
                ({"connection": {"port": "x"}}, "operation, connection and error"),
                ({"error": {"reason": "X"}}, "operation, connection and error"),
                ({"phase": "Ready"}, "the phases that its conditions"),
                ({"phase": "Failed", "conditions": [condition("Visible")]}, "the phases that its conditions"),
            )
        ),
    ],
    "drawbar-node-claims": [
        ("node-1", "PATCH", f"{CLAIM}/mine", LABEL, "nothing of a claim but its status"),
        ("node-1", "DELETE", f"{CLAIM}/mine", {}, "nothing of a claim but its status"),
        (
            "node-1",
            "PATCH",
            f"{CLAIM}/mine/status",
            {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
            "the scheduler's",
        ),
        ("node-1", "PATCH", f"{CLAIM}/mine/status", devices(), "may speak for devices of the driver"),
        (
            "node-1",
            "PATCH",
            f"{CLAIM}/theirs/status",
            devices(OTHER, "drawbar.dev"),
            "for its own node alone",
        ),
        ("", "PATCH", f"{CLAIM}/mine/status", devices(OTHER, "drawbar.dev"), "for its own node alone"),
    ],
    "drawbar-controller-slices": [
        ("", "POST", SLICES, resource_slice(OTHER, allNodes=True), "of the driver drawbar.dev alone"),
        ("", "DELETE", f"{SLICES}/foreign", {}, "of the driver drawbar.dev alone"),
        ("", "POST", SLICES, resource_slice(nodeName="node-1"), "its node daemon's"),
        ("", "DELETE", f"{SLICES}/theirs", {}, "its node daemon's"),
    ],
    "drawbar-controller-objects": [
        ("", "PATCH", f"{FABRICS}/foreign", LABEL, "of the driver drawbar.dev alone"),
        ("", "DELETE", f"{ATTACHMENTS}/fab.foreign", {}, "of the driver drawbar.dev alone"),
        ("", "PATCH", f"{FABRICS}/fab", {"spec": {"endpoint": "unix:/mine"}}, "the administrator's"),
        ("", "DELETE", f"{FABRICS}/fab", {}, "the administrator's"),
        ("", "PATCH", f"{FABRICS}/fab", LABEL, "the labels and annotations of a Fabric"),
        (
            "",
            "PATCH",
            f"{FABRICS}/fab",
            {"metadata": {"annotations": {"a": "b"}}},
            "the labels and annotations",
        ),
        # An owner that does not exist has the garbage collector delete it.
        ("", "PATCH", f"{FABRICS}/fab", OWNED, "no owners"),
        ("", "PATCH", f"{ATTACHMENTS}/fab.mine", OWNED, "no owners"),
        ("", "PATCH", f"{FABRICS}/fab", HELD, "of the finalizers of Fabrics"),
        ("", "PATCH", f"{ATTACHMENTS}/fab.mine", HELD, "of the finalizers of Fabrics"),
    ],
    "drawbar-controller-nodes": [
        (
            "",
            "PATCH",
            f"{NODES}/node-1/status",
            {"status": {"phase": "Gone"}},
            "nothing of a Node but its labels",
        ),
        ("", "DELETE", f"{NODES}/node-1", {}, "nothing of a Node but its labels"),
        (
            "",
            "PATCH",
            f"{NODES}/node-1",
            {"spec": {"unschedulable": True}},
            "nothing of a Node but its labels",
        ),
        (
            "",
            "PATCH",
            f"{NODES}/node-1",
            {"metadata": {"annotations": {"a": "b"}}},
            "nothing of a Node but its",
        ),
        ("", "PATCH", f"{NODES}/node-1", OWNED, "nothing of a Node but its labels"),
        ("", "PATCH", f"{NODES}/node-1", HELD, "nothing of a Node but its labels"),
        ("", "PATCH", f"{NODES}/node-1", LABEL, "may change the labels"),
        (
            "",
            "PATCH",
            f"{NODES}/node-1",
            {"metadata": {"labels": {"drawbar.dev/host": "true"}}},
            "may change the labels",
        ),
        ("", "PATCH", f"{NODES}/node-1", {"metadata": {"labels": {"a": None}}}, "may change the labels"),
        *(
            (
                "",
                "PATCH",
                f"{NODES}/node-1",
                {"metadata": {"labels": labels}},
                "labels of the driver drawbar.dev",
            )
            for labels in (
                {"fabric.drawbar.dev/new": OTHER},
                {"fabric.drawbar.dev/foreign": "true"},
                {"fabric.drawbar.dev/foreign": None},
                {"closed.drawbar.dev/foreign": None},
            )
        ),
    ],
    "drawbar-node-events": [
        ("node-1", "POST", EVENTS, event(OTHER), "Events of the reporting controller drawbar.dev alone"),
        ("node-1", "POST", EVENTS, event(instance="node-2"), "of its own node as their reporting instance"),
        ("", "POST", EVENTS, event(), "of its own node as their reporting instance"),
        ("node-1", "POST", EVENTS, event(about="Secret"), "and its own Node alone"),
        ("node-1", "POST", EVENTS, event(about="Node", name="node-2"), "and its own Node alone"),
        ("node-1", "DELETE", f"{EVENTS}/there", {}, "changes nothing but the series of its own"),
        ("node-2", "PATCH", f"{EVENTS}/there", SERIES, "of its own node as their reporting instance"),
        (
            "node-1",
            "PATCH",
            f"{EVENTS}/foreign",
            SERIES,
            "Events of the reporting controller drawbar.dev alone",
        ),
        ("node-1", "PATCH", f"{EVENTS}/there", LABEL, "changes nothing but the series of its own"),
    ],
    "drawbar-controller-events": [
        ("", "POST", EVENTS, event(OTHER), "Events of the reporting controller drawbar.dev alone"),
        ("", "POST", EVENTS, event(about="Secret"), "Fabrics and Nodes alone"),
        ("c-0", "POST", EVENTS, event(instance="c-1"), "of its own pod as their reporting instance"),
        ("", "DELETE", f"{EVENTS}/there", {}, "changes nothing but the series of its own"),
        ("c-0", "PATCH", f"{EVENTS}/there", SERIES, "of its own pod as their reporting instance"),
        ("", "PATCH", f"{EVENTS}/there", LABEL, "changes nothing but the series of its own"),
    ],
    "drawbar-controller-rules": [
        ("", "DELETE", f"{RULES}/endless", {}, "may delete a DeviceTaintRule"),
        ("", "DELETE", f"{RULES}/foreign", {}, "may delete a DeviceTaintRule"),
        ("", "PATCH", f"{RULES}/ended", LABEL, "may delete a DeviceTaintRule"),
        ("", "POST", RULES, taint_rule("new"), "may delete a DeviceTaintRule"),
    ],
    "drawbar-controller-claims": [
        ("", "PATCH", f"{CLAIM}/mine", LABEL, "nothing of a claim but its status"),
        (
            "",
            "PATCH",
            f"{CLAIM}/mine/status",
            {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
            "the scheduler's",
        ),
        ("", "PATCH", f"{CLAIM}/mine/status", devices(), "may speak for devices of the driver"),
    ],
}


@pytest.fixture
async def wide(chart_cluster):
    """Yield a cluster whose policies alone restrict the accounts, with an object of each kind, and a session with it."""
    # With all rights, so that the release's own checks on who speaks for a device let the accounts through.
    async with chart_cluster("1.37", by_helm=False) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.install()
        role = {"apiGroup": BINDING.group, "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [
            {"kind": "ServiceAccount", "name": account, "namespace": "drawbar"}
            for account in (CONTROLLER, NODE)
        ]
        await cluster.create(BINDING, "everything", roleRef=role, subjects=subjects)
        for name, driver in (("fab", "drawbar.dev"), ("foreign", OTHER)):
            spec = {"adapter": "grpc", "endpoint": "unix:/x", "driver": driver}
            await cluster.create(kinds.FABRIC, name, spec=spec)
        for rule in (
            taint_rule("ended"),
            taint_rule("endless", end=False),
            taint_rule("foreign", label=False),
        ):
            await cluster.api.create(kinds.TAINT_RULES[0], rule, into=dict)
        for name, node, driver in (
            ("fab.mine", "node-1", "drawbar.dev"),
            ("fab.theirs", "node-2", "drawbar.dev"),
            ("fab.foreign", "node-1", OTHER),
        ):
            await cluster.api.create(kinds.ATTACHMENT, attachment(name, node, driver), into=dict)
        for name, driver, where in (
            ("theirs", "drawbar.dev", {"nodeName": "node-2"}),
            ("foreign", OTHER, {"allNodes": True}),
        ):
            body = resource_slice(driver, **where) | {"metadata": {"name": name}}
            await cluster.api.create(kinds.SLICE, body, into=dict)
        request = {"name": "r", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}
        for name, node in (("mine", "node-1"), ("theirs", "node-2")):
            claim = await cluster.create(
                kinds.CLAIM, name, "default", spec={"devices": {"requests": [request]}}
            )
            claim["status"] = make_allocated_status(node)
            at = {"namespace": "default", "subresource": "status"}
            await cluster.api.replace(kinds.CLAIM, name, claim, into=dict, **at)
        labels = {f"{kind}.drawbar.dev/foreign": OTHER for kind in ("fabric", "closed")}
        labels |= {"fabric.drawbar.dev/mine": "true", "a": "kept"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": labels}}
        await cluster.api.create(kinds.NODE, node, into=dict)
        await cluster.create(kinds.NODE, "node-2")
        await cluster.create(kinds.EVENT, "there", "default", **rest_of(event()))
        await cluster.create(kinds.EVENT, "foreign", "default", **rest_of(event(OTHER)))
        connector = aiohttp.TCPConnector(ssl=cluster.server.client_context() or True)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(cluster.server.url, connector=connector)
        )
        session.headers["Authorization"] = f"Bearer {cluster.server.token_for()}"
        yield cluster, session


def rest_of(body):
    return {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}


async def attempt(session, policy, bound_to, method, path, body):
    """Return the message of the refusal, also where a policy cannot judge it; empty if it is let through.

    An administrator acts as the account, with the extra fields of a token that is bound to a node or a pod. A deletion
    has no body: it would count instead of `dryRun`.
    """
    account = NODE if policy.startswith(NODE) else CONTROLLER
    headers = {"Impersonate-User": f"system:serviceaccount:drawbar:{account}"}
    if bound_to:
        key = "pod-name" if account == CONTROLLER else "node-name"
        headers[f"Impersonate-Extra-authentication.kubernetes.io%2F{key}"] = bound_to
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    async with session.request(
        method, path, params={"dryRun": "All"}, json=body or None, headers=headers
    ) as answer:
        answered = await answer.json()
    return answered["message"] if answer.status >= 300 else ""


async def test_the_policies_alone_refuse_foreign_writes(wide):
    _, session = wide
    for policy, attempts in ATTEMPTS.items():
        for *what, words in attempts:
            assert words in await attempt(session, policy, *what), what


# By policy: what is let through, since it is the daemon's own.
OWN = {
    "drawbar-node-slices": [
        ("node-1", "POST", SLICES, resource_slice(pool=pool, nodeName="node-1"))
        for pool in ("node-1", "node-1/7", "node-1/probe")
    ],
    "drawbar-node-attachments": [
        ("node-1", "PATCH", f"{ATTACHMENTS}/fab.mine/status", {"status": status})
        for status in (
            {"node": {"pciAddress": "0000:01:00.0"}, "phase": "Pending"},
            {"phase": "Ready", "conditions": [condition("Visible")]},
            {"phase": "Idle", "conditions": [condition("Visible")]},
            {"phase": "Failed", "conditions": [condition("Visible", "False")]},
            {"phase": "Released", "conditions": [condition("Released"), condition("Visible")]},
        )
    ],
    "drawbar-controller-objects": [
        ("", "POST", ATTACHMENTS, attachment("fab.new", "node-1", finalizers=["drawbar.dev/detach"])),
        ("", "PATCH", f"{FABRICS}/fab", {"metadata": {"finalizers": ["drawbar.dev/attachments"]}}),
        (
            "",
            "PATCH",
            f"{ATTACHMENTS}/fab.mine",
            {"metadata": {"finalizers": ["drawbar.dev/detach"]}} | LABEL,
        ),
        ("", "DELETE", f"{ATTACHMENTS}/fab.mine", {}),
    ],
    "drawbar-controller-nodes": [
        ("", "PATCH", f"{NODES}/node-1", {"metadata": {"labels": {"fabric.drawbar.dev/new": "true"}}}),
        ("", "PATCH", f"{NODES}/node-1", {"metadata": {"labels": {"fabric.drawbar.dev/mine": None}}}),
    ],
    "drawbar-node-events": [
        ("node-1", "POST", EVENTS, event(about=about, name=name))
        for about, name in (
            ("ResourceClaim", "c"),
            ("Pod", "p"),
            ("DeviceAttachment", "a"),
            ("Node", "node-1"),
        )
    ]
    + [("node-1", "PATCH", f"{EVENTS}/there", SERIES)],
    "drawbar-controller-events": [
        (bound_to, "POST", EVENTS, event(about=about, instance="c-0"))
        for bound_to in ("", "c-0")
        for about in ("ResourceClaim", "Pod", "DeviceAttachment", "Fabric", "Node", "DeviceTaintRule")
    ]
    + [("", "PATCH", f"{EVENTS}/there", SERIES)],
    "drawbar-controller-rules": [("", "DELETE", f"{RULES}/ended", {})],
}


async def test_the_policies_let_the_daemons_do_their_work(wide):
    _, session = wide
    for policy, attempts in OWN.items():
        for what in attempts:
            assert not await attempt(session, policy, *what), what


async def test_the_type_checker_reports_no_problem_in_them(wide):
    cluster, _ = wide
    checked = {
        name: policy["status"]["typeChecking"]
        for name, policy in (await cluster.list_by_name(kinds.ADMISSION_POLICY)).items()
    }
    assert checked.keys() == ATTEMPTS.keys()
    assert not any(checked.values())


async def test_without_any_one_validation_something_is_let_through(wide, pytestconfig):
    cluster, session = wide
    policies = {
        document["metadata"]["name"]: document
        for document in yaml.safe_load_all(
            (pytestconfig.rootpath / "deploy/manifests/policies.yaml").read_text()
        )
        if document["kind"] == "ValidatingAdmissionPolicy"
    }
    assert policies.keys() == ATTEMPTS.keys()
    for name, policy in policies.items():
        validations = policy["spec"]["validations"]
        for without in validations:
            # A policy without any is refused.
            rest = [validation for validation in validations if validation is not without] or [
                {"expression": "true"}
            ]
            change = {"spec": {"validations": rest}}
            options = {"content": client.Patch.MERGE, "into": dict, "manager": "test"}
            await cluster.api.patch(kinds.ADMISSION_POLICY, name, change, **options)
            refusals = [await attempt(session, name, *what) for *what, _ in ATTEMPTS[name]]
            assert "" in refusals, f"{name}: nothing needs {without['expression']}"
        change = {"spec": {"validations": validations}}
        await cluster.api.patch(kinds.ADMISSION_POLICY, name, change, **options)
