"""kubectl, unmodified, against the double: get, describe, explain, apply, diff, patch, wait, delete, auth."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment
from drawbar.mocks.kube import client, connections

KUBECTL = shutil.which("kubectl")
DEPLOY = Path(__file__).parents[3] / "deploy"
pytestmark = pytest.mark.tool("kubectl")


class Kubectl:
    """kubectl with one caller's kubeconfig."""

    def __init__(self, config: Path) -> None:
        self.config = config

    async def run(self, *words: str, body: object = None) -> tuple[int, str]:
        """Return the exit code and both outputs."""
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *words,
            env={"KUBECONFIG": str(self.config), "HOME": str(self.config.parent), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        text = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        async with asyncio.timeout(120):
            out, _ = await process.communicate(text)
        return process.returncode or 0, out.decode()

    async def __call__(self, *words: str, body: object = None) -> str:
        """Return its output; it must succeed."""
        code, out = await self.run(*words, body=body)
        assert code == 0, out
        return out


@pytest.fixture
async def server() -> AsyncIterator[apiserver.ApiServer]:
    async with apiserver.serving(tls=True) as running:
        yield running


@pytest.fixture
async def kubectl(server: apiserver.ApiServer, tmp_path: Path) -> Kubectl:
    """Return the administrator's kubectl; our definitions are in the cluster."""
    path = server.kubeconfig(tmp_path / "admin.kubeconfig")
    definition = deployment.KINDS["CustomResourceDefinition"]
    async with client.connecting(connections.from_kubeconfig(path)) as api:
        for document in deployment.documents(DEPLOY):
            if document["kind"] == definition.kind:
                await api.create(definition, document, into=dict)
    return Kubectl(path)


def attachment(name: str = "a1.a1") -> dict[str, Any]:
    """Return a DeviceAttachment that our definition accepts."""
    definition = yaml.safe_load((DEPLOY / "drawbar" / "definitions" / "deviceattachments.yaml").read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return {
        "apiVersion": "drawbar.dev/v1alpha1",
        "kind": "DeviceAttachment",
        "metadata": {"name": name},
        "spec": _make_minimal_value(spec),
    }


def _make_minimal_value(schema: dict[str, Any]) -> Any:
    """Return the least that a schema admits."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            inner = schema.get("properties") or {}
            return {key: _make_minimal_value(inner[key]) for key in schema.get("required") or ()}
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return []
        case _:
            return "a1" if schema.get("format") != "date-time" else "2026-01-01T00:00:00Z"


def resource_slice(model: str = "x") -> dict[str, Any]:
    spec = {
        "driver": "drawbar.dev",
        "pool": {"name": "chassis-1", "generation": 1, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [{"name": "slot-1", "attributes": {"model": {"string": model}}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s1"},
        "spec": spec,
    }


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}


async def test_our_definitions_are_established_once_applied(server, tmp_path):
    kubectl = Kubectl(server.kubeconfig(tmp_path / "admin.kubeconfig"))
    await kubectl("apply", "-f", str(DEPLOY / "drawbar" / "definitions"))
    out = await kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=10s")
    assert "deviceattachments.drawbar.dev condition met" in out


async def test_get_prints_the_columns_of_built_in_and_custom_kinds(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", body=resource_slice())
    out = await kubectl("get", "resourceslices")
    assert out.split()[:5] == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert "chassis-1" in out
    await kubectl("apply", "--server-side", "-f", "-", body=attachment())
    assert "a1.a1" in await kubectl("get", "deviceattachments")
    assert "NAME" in await kubectl("get", "crd,fabrics,nodes,clusterroles", "-o", "wide")
    assert (
        json.loads(await kubectl("get", "resourceslices", "-o", "json"))["items"][0]["kind"]
        == "ResourceSlice"
    )


async def test_get_selects_by_label_and_field(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "one", "--from-literal=a=b")
    await kubectl("label", "configmap", "one", "tier=gold")
    assert "one" in await kubectl("get", "configmaps", "-l", "tier=gold")
    assert "one" not in await kubectl("get", "configmaps", "--field-selector=metadata.name=two")
    await kubectl("annotate", "configmap", "one", "note=x")
    assert "note: x" in await kubectl("get", "configmap", "one", "-o", "yaml")


async def test_describe_shows_an_object_and_its_events(kubectl: Kubectl) -> None:
    await kubectl("apply", "--server-side", "-f", "-", body=attachment())
    out = await kubectl("describe", "deviceattachment", "a1.a1")
    assert "Kind:         DeviceAttachment" in out
    assert "Events:  " in out
    await kubectl("apply", "-f", "-", body=resource_slice())
    assert "slot-1" in await kubectl("describe", "resourceslice", "s1")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("deviceattachments", ("DeviceAttachment", "spec", "status", "metadata")),
        ("deviceattachments.spec", ("nodeName", "deviceID", "-required-")),
        ("fabrics.spec", ("adapter", "endpoint")),
        ("resourceslices", ("ResourceSlice", "spec", "<ResourceSliceSpec>")),
        ("resourceslices.spec.devices", ("bindingConditions", "bindsToNode", "taints")),
        ("resourceclaims.status.devices.conditions", ("lastTransitionTime", "reason")),
        ("pods.spec.containers.resources", ("limits", "claims")),
        ("leases.spec", ("holderIdentity", "renewTime")),
    ],
)
async def test_explain_knows_our_kinds_and_the_built_in_ones(
    kubectl: Kubectl, path: str, words: tuple[str, ...]
) -> None:
    out = await kubectl("explain", path)
    assert [word for word in words if word not in out] == []


async def test_explain_refuses_a_field_that_is_not_there(kubectl: Kubectl) -> None:
    code, out = await kubectl.run("explain", "resourceslices.spec.nothing")
    assert (code, "does not exist" in out) == (1, True)


async def test_client_side_apply_creates_leaves_alone_and_changes(kubectl: Kubectl) -> None:
    for body, word in (
        (config_map(a="1", b="2"), "created"),
        (config_map(a="1", b="2"), "unchanged"),
        (config_map(a="3"), "configured"),
        (resource_slice(), "created"),
        (resource_slice(), "unchanged"),
        (resource_slice("z"), "configured"),
        (attachment(), "created"),
        (attachment(), "unchanged"),
    ):
        assert word in await kubectl("apply", "-f", "-", body=body)
    assert json.loads(await kubectl("get", "configmap", "one", "-o", "json"))["data"] == {"a": "3"}


async def test_server_side_apply_tells_of_conflicts(kubectl: Kubectl) -> None:
    await kubectl("apply", "--server-side", "-f", "-", body=config_map(a="1"))
    code, out = await kubectl.run(
        "apply", "--server-side", "--field-manager=other", "-f", "-", body=config_map(a="2")
    )
    assert (code, 'conflict with "kubectl": .data.a' in out) == (1, True)
    words = ("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
    assert "serverside-applied" in await kubectl(*words, body=config_map(a="2"))


async def test_unknown_fields_are_refused_before_they_are_stored(kubectl: Kubectl) -> None:
    wrong = resource_slice()
    wrong["spec"]["devicez"] = []
    code, out = await kubectl.run("apply", "-f", "-", body=wrong)
    assert (code, 'strict decoding error: unknown field "spec.devicez"' in out) == (1, True)
    out = await kubectl("apply", "--validate=warn", "-f", "-", body=wrong)
    assert 'Warning: unknown field "spec.devicez"' in out
    bad = attachment()
    bad["spec"]["colour"] = "red"
    code, out = await kubectl.run("create", "-f", "-", body=bad)
    assert (code, 'unknown field "spec.colour"' in out) == (1, True)


async def test_diff_and_dry_run_store_nothing(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", body=config_map(a="1"))
    code, out = await kubectl.run("diff", "-f", "-", body=config_map(a="2"))
    assert (code, "+  a: " in out) == (1, True)
    await kubectl("apply", "--dry-run=server", "-f", "-", body=config_map(a="2"))
    assert json.loads(await kubectl("get", "configmap", "one", "-o", "json"))["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"data":{"a":"2"}}'),
        ("strategic", '{"data":{"a":"2"}}'),
        ("json", '[{"op":"replace","path":"/data/a","value":"2"}]'),
    ],
)
async def test_every_kind_of_patch_changes_an_object(kubectl: Kubectl, kind: str, patch: str) -> None:
    await kubectl("apply", "-f", "-", body=config_map(a="1"))
    assert "patched" in await kubectl("patch", "configmap", "one", f"--type={kind}", "-p", patch)
    assert json.loads(await kubectl("get", "configmap", "one", "-o", "json"))["data"] == {"a": "2"}


async def test_wait_sees_a_condition_that_another_sets(kubectl: Kubectl) -> None:
    await kubectl("apply", "--server-side", "-f", "-", body=attachment())
    condition = {
        "type": "Attached",
        "status": "True",
        "reason": "Done",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = json.dumps({"status": {"conditions": [condition]}})
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(
            kubectl("wait", "--for=condition=Attached", "deviceattachment/a1.a1", "--timeout=20s"),
            name="wait",
        )
        await kubectl(
            "patch", "deviceattachment", "a1.a1", "--subresource=status", "--type=merge", "-p", status
        )
    assert "condition met" in waiting.result()


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, cascade: str) -> None:
    await kubectl("apply", "-f", "-", body=config_map(a="1"))
    out = await kubectl("delete", "configmap", "one", f"--cascade={cascade}", "--timeout=10s")
    assert "deleted" in out
    assert "NotFound" in (await kubectl.run("get", "configmap", "one"))[1]


async def test_a_definition_and_a_namespace_are_deleted_with_their_objects(kubectl: Kubectl) -> None:
    await kubectl("apply", "--server-side", "-f", "-", body=attachment())
    await kubectl("create", "namespace", "x")
    await kubectl("create", "configmap", "one", "-n", "x")
    await kubectl("delete", "namespace", "x", "--timeout=10s")
    await kubectl("delete", "crd", "deviceattachments.drawbar.dev", "--timeout=10s")
    assert (await kubectl.run("get", "deviceattachments"))[0] == 1


async def test_our_own_manifests_are_applied_as_they_are(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", str(DEPLOY / "manifests" / "namespace.yaml"))
    out = await kubectl("apply", "--server-side", "-k", str(DEPLOY / "manifests"))
    assert "clusterrole.rbac.authorization.k8s.io/drawbar-controller serverside-applied" in out
    assert "deviceclass.resource.k8s.io" in out


async def test_auth_can_i_answers_by_the_roles(
    kubectl: Kubectl, server: apiserver.ApiServer, tmp_path: Path
) -> None:
    await kubectl("apply", "-f", str(DEPLOY / "manifests" / "namespace.yaml"))
    await kubectl("apply", "-k", str(DEPLOY / "manifests"))
    node = Kubectl(server.kubeconfig(tmp_path / "node.kubeconfig", "drawbar:drawbar-node", node="node-a"))
    assert (await node.run("auth", "can-i", "get", "resourceclaims"))[1].strip() == "yes"
    code, out = await node.run("auth", "can-i", "create", "deviceattachments.drawbar.dev")
    assert (code, out.strip().splitlines()[-1]) == (1, "no")
    assert "node-a" in await node("auth", "whoami")
    as_node = ("auth", "can-i", "delete", "nodes", "--as=system:serviceaccount:drawbar:drawbar-node")
    assert (await kubectl.run(*as_node))[0] == 1


async def test_api_resources_and_tokens_on_request(kubectl: Kubectl) -> None:
    out = await kubectl("api-resources", "--api-group=resource.k8s.io", "-o", "name")
    assert "resourceslices.resource.k8s.io" in out.split()
    assert "resource.k8s.io/v1" in (await kubectl("api-versions")).split()
    await kubectl("create", "serviceaccount", "robot")
    assert len((await kubectl("create", "token", "robot")).strip()) > 20
