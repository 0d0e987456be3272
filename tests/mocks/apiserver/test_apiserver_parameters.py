"""Policies with parameters: judged once for each object that the binding finds."""

import contextlib

import pytest

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment

POLICY = deployment.KINDS["ValidatingAdmissionPolicy"]
BINDING = deployment.KINDS["ValidatingAdmissionPolicyBinding"]
RULE = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["configmaps"]}


@contextlib.asynccontextmanager
async def serve_limited(tmp_path, *, kind="Node", not_found="Allow", selector=None):
    """Serve a policy that refuses a ConfigMap with the name in the label `limit` of a selected Node."""
    async with apiserver.serving() as server:
        file = server.kubeconfig(tmp_path / "admin", "admin")
        async with client.connecting(config.from_kubeconfig(file)) as api:
            spec = {
                "paramKind": {"apiVersion": "v1", "kind": kind},
                "matchConstraints": {"resourceRules": [RULE]},
                "validations": [
                    {
                        "expression": "params.metadata.labels['limit'] != object.metadata.name",
                        "messageExpression": "'not beside ' + params.metadata.name",
                    }
                ],
            }
            reference = {"selector": selector or {}, "parameterNotFoundAction": not_found}
            bound = {"policyName": "limit", "validationActions": ["Deny"], "paramRef": reference}
            for made, content in ((POLICY, spec), (BINDING, bound)):
                await create(api, made, "limit", spec=content)
            yield api


async def create(api, kind, name, **content):
    labels = content.pop("labels", {})
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, "labels": labels}}
    namespace = "default" if kind is kinds.CONFIG_MAP else None
    await api.create(kind, body | content, namespace=namespace, into=dict)


async def test_each_parameter_that_is_found_has_its_say(tmp_path):
    async with serve_limited(tmp_path) as api:
        await create(api, kinds.NODE, "node-1", labels={"limit": "one"})
        await create(api, kinds.NODE, "node-2", labels={"limit": "two"})
        for name, node in (("one", "node-1"), ("two", "node-2")):
            with pytest.raises(errors.Invalid, match=f"not beside {node}"):
                await create(api, kinds.CONFIG_MAP, name)
        await create(api, kinds.CONFIG_MAP, "three")


async def test_a_selector_leaves_parameters_out(tmp_path):
    async with serve_limited(tmp_path, selector={"matchLabels": {"limit": "two"}}) as api:
        await create(api, kinds.NODE, "node-1", labels={"limit": "one"})
        await create(api, kinds.CONFIG_MAP, "one")


@pytest.mark.parametrize(("not_found", "allowed"), [("Allow", True), ("Deny", False)])
async def test_the_binding_decides_about_missing_parameters(tmp_path, not_found, allowed):
    async with serve_limited(tmp_path, not_found=not_found) as api:
        with contextlib.nullcontext() if allowed else pytest.raises(errors.Invalid, match="no params found"):
            await create(api, kinds.CONFIG_MAP, "one")


async def test_a_kind_that_is_not_there_fails_every_write_that_is_meant(tmp_path):
    async with serve_limited(tmp_path, kind="Fabric") as api:
        with pytest.raises(errors.Invalid, match="failed to find resource referenced by paramKind"):
            await create(api, kinds.CONFIG_MAP, "one")


async def test_the_server_tells_which_permissions_were_needed(tmp_path):
    async with apiserver.serving() as server:
        file = server.kubeconfig(tmp_path / "robot", "default:robot")
        async with client.connecting(config.from_kubeconfig(file)) as api:
            with pytest.raises(errors.Denied):
                await api.read(kinds.CONFIG_MAP, "one", namespace="default", into=dict)
        (asked,) = server.registry.authorizer.asked
        assert (asked.user, asked.allowed) == ("system:serviceaccount:default:robot", False)
        assert (asked.verb, asked.group, asked.resource) == ("get", "", "configmaps")
