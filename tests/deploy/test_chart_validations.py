"""Each rule of each admission policy is needed: an attempt that it refuses, and that nothing else would.

The accounts are bound to a role that allows everything here, so that only the policies stand between a daemon's token and
the cluster, as they do where somebody widens a role. All attempts are dry runs, so they can be made again and again.
"""

import contextlib

import pytest
import yaml

from drawbar.driver.kube import client, errors, kinds

CONTROLLER, NODE = "drawbar-controller", "drawbar-node"
OTHER = "gpu.example.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ATTACHMENTS = "/apis/drawbar.dev/v1alpha1/deviceattachments"
FABRICS = "/apis/drawbar.dev/v1alpha1/fabrics"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"
BINDING = kinds.Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    namespaced=False,
)
LABEL = {"metadata": {"labels": {"a": "b"}}}
ATTACHED = {
    "type": "Attached",
    "status": "True",
    "reason": "Said",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


def resource_slice(driver="drawbar.dev", **where):
    spec = {
        "driver": driver,
        "pool": {"name": "new", "generation": 1, "resourceSliceCount": 1},
        "devices": [],
    }
    metadata = {"name": "new"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec | where,
    }


def attachment(name, node, driver="drawbar.dev"):
    spec = {"fabric": "fab", "deviceID": name, "driver": driver, "pool": "p", "device": name}
    spec |= {"nodeName": node, "hostID": "h", "identity": {"deviceClass": "gpu"}}
    metadata = {"name": name}
    return {
        "apiVersion": "drawbar.dev/v1alpha1",
        "kind": "DeviceAttachment",
        "metadata": metadata,
        "spec": spec,
    }


def devices(*drivers):
    return {"status": {"devices": [{"driver": one, "pool": "p", "device": "one"} for one in drivers]}}


def allocated(node):
    results = [
        {"request": "r", "driver": one, "pool": "p", "device": "one"} for one in ("drawbar.dev", OTHER)
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": selector}} | devices(OTHER)[
        "status"
    ]


# By policy: what is attempted (account's node, method, path, body), and what is said of it.
ATTEMPTS = {
    "drawbar-node-slices": [
        ("", "POST", SLICES, resource_slice(allNodes=True), "must be bound to a node"),
        ("node-1", "POST", SLICES, resource_slice(nodeName="node-2"), "of its own node alone"),
        ("node-1", "DELETE", f"{SLICES}/theirs", {}, "of its own node alone"),
        ("node-1", "PATCH", f"{SLICES}/theirs", LABEL, "of its own node alone"),
        (
            "node-1",
            "POST",
            SLICES,
            resource_slice(OTHER, nodeName="node-1"),
            "of the driver drawbar.dev alone",
        ),
    ],
    "drawbar-node-attachments": [
        (
            "node-1",
            "PATCH",
            f"{ATTACHMENTS}/theirs/status",
            {"status": {"phase": "Ready"}},
            "of its own node alone",
        ),
        ("", "PATCH", f"{ATTACHMENTS}/mine/status", {"status": {"phase": "Ready"}}, "of its own node alone"),
        ("node-1", "PATCH", f"{ATTACHMENTS}/foreign/status", {"status": {"phase": "Ready"}}, "of the driver"),
        ("node-1", "PATCH", f"{ATTACHMENTS}/mine", LABEL, "nothing of a DeviceAttachment but its status"),
        ("node-1", "DELETE", f"{ATTACHMENTS}/mine", {}, "nothing of a DeviceAttachment but its status"),
        ("node-1", "POST", ATTACHMENTS, attachment("new", "node-1"), "nothing of a DeviceAttachment but"),
        (
            "node-1",
            "PATCH",
            f"{ATTACHMENTS}/mine/status",
            {"status": {"conditions": [ATTACHED]}},
            "the condition Attached is the controller's",
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
        ("", "DELETE", f"{ATTACHMENTS}/foreign", {}, "of the driver drawbar.dev alone"),
        ("", "PATCH", f"{FABRICS}/fab", {"spec": {"endpoint": "unix:/mine"}}, "the administrator's"),
        ("", "DELETE", f"{FABRICS}/fab", {}, "the administrator's"),
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
        ("", "PATCH", f"{NODES}/node-1", LABEL, "may change the labels"),
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
    """The accounts may do everything but for the policies, of which these are the objects."""
    # An older one, which has no checks of its own on who speaks for a device.
    async with chart_cluster("1.34", by_helm=False) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.install()
        role = {"apiGroup": BINDING.group, "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [
            {"kind": "ServiceAccount", "name": one, "namespace": "drawbar"} for one in (CONTROLLER, NODE)
        ]
        await cluster.create(BINDING, "everything", roleRef=role, subjects=subjects)
        for name in ("node-1", "node-2"):
            await cluster.create(kinds.NODE, name)
        for name, driver in (("fab", "drawbar.dev"), ("foreign", OTHER)):
            spec = {"adapter": "grpc", "endpoint": "unix:/x", "driver": driver}
            await cluster.create(kinds.FABRIC, name, spec=spec)
        for name, node, driver in (
            ("mine", "node-1", "drawbar.dev"),
            ("theirs", "node-2", "drawbar.dev"),
            ("foreign", "node-1", OTHER),
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
            claim["status"] = allocated(node)
            at = {"namespace": "default", "subresource": "status"}
            await cluster.api.replace(kinds.CLAIM, name, claim, into=dict, **at)
        accounts = {
            (account, node): await stack.enter_async_context(cluster.acting_as(account, node=node or None))
            for account, node in ((CONTROLLER, ""), (NODE, ""), (NODE, "node-1"))
        }
        yield cluster, accounts


async def attempt(accounts, policy, node, method, path, body):
    """What is said against it, also where a policy cannot judge it; empty if it is let through."""
    api = accounts[NODE if policy.startswith(NODE) else CONTROLLER, node]
    content = {"content": client.Patch.MERGE} if method == "PATCH" else {}
    try:
        await api.request(method, path, {"dryRun": "All"}, body=body, **content)
    except (errors.Denied, errors.Invalid) as error:
        return str(error)
    return ""


async def test_the_policies_alone_refuse_what_is_not_the_daemons_own(wide):
    _, accounts = wide
    for policy, attempts in ATTEMPTS.items():
        for *what, words in attempts:
            assert words in await attempt(accounts, policy, *what), what


async def test_without_any_one_validation_something_is_let_through(wide, pytestconfig):
    cluster, accounts = wide
    policies = {
        one["metadata"]["name"]: one
        for one in yaml.safe_load_all((pytestconfig.rootpath / "deploy/manifests/policies.yaml").read_text())
        if one["kind"] == "ValidatingAdmissionPolicy"
    }
    assert policies.keys() == ATTEMPTS.keys()
    for name, policy in policies.items():
        validations = policy["spec"]["validations"]
        for without in validations:
            rest = [one for one in validations if one is not without]
            change = {"spec": {"validations": rest}}
            options = {"content": client.Patch.MERGE, "into": dict, "manager": "test"}
            await cluster.api.patch(kinds.ADMISSION_POLICY, name, change, **options)
            said = [await attempt(accounts, name, *what) for *what, _ in ATTEMPTS[name]]
            assert "" in said, f"{name}: nothing needs {without['expression']}"
        change = {"spec": {"validations": validations}}
        await cluster.api.patch(kinds.ADMISSION_POLICY, name, change, **options)
