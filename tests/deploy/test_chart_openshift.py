"""The SecurityContextConstraints allow what the chart's pods ask for, and little else."""

import pytest

pytestmark = pytest.mark.tool("chart")
CONSTRAINTS = "SecurityContextConstraints"
ALL = {
    "openshift": {"enabled": True},
    "webhook": {"enabled": True},
    "ui": {"enabled": True},
    "healthMonitor": {"enabled": True, "tlsSecretName": "tls", "tokenSecretName": "token"},
    "networkPolicy": {"enabled": False},
}


def workloads(documents):
    """Yield the pod's spec of each workload, with the user of its account."""
    for document in documents:
        if document["kind"] in ("Deployment", "DaemonSet"):
            pod = document["spec"]["template"]["spec"]
            yield f"system:serviceaccount:drawbar:{pod['serviceAccountName']}", pod


def refusals(constraints, pod):
    """Yield why OpenShift would refuse a pod by these constraints."""
    for field, allowed in (("hostPID", "allowHostPID"), ("hostNetwork", "allowHostNetwork")):
        if pod.get(field) and not constraints[allowed]:
            yield field
    kinds = {next(key for key in volume if key != "name") for volume in pod["volumes"]}
    yield from sorted(kinds - set(constraints["volumes"]))
    profiles = constraints["seccompProfiles"]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        context = pod.get("securityContext", {}) | container.get("securityContext", {})
        if context.get("privileged") and not constraints["allowPrivilegedContainer"]:
            yield "privileged"
        if context.get("allowPrivilegeEscalation", True) and not constraints["allowPrivilegeEscalation"]:
            yield "allowPrivilegeEscalation"
        if constraints["readOnlyRootFilesystem"] and not context.get("readOnlyRootFilesystem"):
            yield "readOnlyRootFilesystem"
        if constraints["runAsUser"]["type"] == "MustRunAsNonRoot" and not context.get("runAsUser"):
            yield "root"
        if not context.get("privileged"):
            yield from set(context.get("capabilities", {}).get("add", ())) - set(
                constraints["allowedCapabilities"]
            )
        profile = context.get("seccompProfile", {}).get("type")
        if "*" not in profiles and profile != "RuntimeDefault":
            yield f"seccomp {profile}"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"node": {"privileged": False}},
        {"node": {"hostNetwork": True}, "controller": {"hostNetwork": True}},
        {"simulation": {"enabled": True}, "webhook": {"enabled": False}},
    ],
    ids=["the default", "capabilities", "the host's network", "the simulation"],
)
async def test_each_pod_is_allowed_by_the_constraints_of_its_account(render, changes):
    documents = await render(**ALL | changes)
    by_user = {
        user: document
        for document in documents
        if document["kind"] == CONSTRAINTS
        for user in document["users"]
    }
    pods = dict(workloads(documents))
    assert by_user.keys() == pods.keys()
    assert {user: list(refusals(by_user[user], pod)) for user, pod in pods.items()} == {
        user: [] for user in pods
    }


async def test_only_the_node_daemon_gets_near_the_host(render):
    made = {each["metadata"]["name"]: each for each in await render(**ALL) if each["kind"] == CONSTRAINTS}
    assert made.keys() == {"drawbar-node", "drawbar-controller"}
    assert all(each["groups"] == [] for each in made.values())
    others = made["drawbar-controller"]
    assert not any(others[key] for key in others if key.startswith("allowHost") or "rivileged" in key)
    assert "hostPath" not in others["volumes"]


async def test_other_clusters_get_none(render):
    assert [each for each in await render() if each["kind"] == CONSTRAINTS] == []
