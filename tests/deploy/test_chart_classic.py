"""The chart on clusters in which our controller allocates."""

import contextlib

import pytest

from drawbar.driver.api import classic, classic_v1alpha2, classic_v1alpha3, handles
from drawbar.driver.kube import client, errors, kinds
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import helm

DRIVER, OTHER = "drawbar.dev", "gpu.example.com"
ON = {"enabled": True}


def index_documents(documents):
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


async def test_only_where_it_is_asked_for_there_are_the_role_and_the_older_classes(render):
    plain, older = (
        index_documents(await render()),
        index_documents(await render(classic=ON, kube_version="1.30.14")),
    )
    # What a provider appends to the version makes no other of it.
    newer = index_documents(await render(classic=ON, kube_version="1.31.9-eks-1-31"))
    assert {kind for kind, name in older.keys() - plain.keys()} == {
        *("ClusterRole", "ClusterRoleBinding", "ResourceClass")
    }
    assert {document["apiVersion"] for (kind, _), document in newer.items() if kind == "DeviceClass"} == {
        "resource.k8s.io/v1alpha3"
    }
    assert not [key for key in older if key[0] == "DeviceClass"]
    for documents, strategy in ((plain, (1, 0)), (older, (0, 1)), (newer, (0, 1))):
        rolling = documents["DaemonSet", "drawbar-node"]["spec"]["updateStrategy"]["rollingUpdate"]
        assert (rolling["maxSurge"], rolling["maxUnavailable"]) == strategy


@pytest.mark.parametrize("driver", [DRIVER, OTHER])
async def test_the_policy_lets_each_driver_write_the_finalizer_of_its_own(render, driver):
    documents = index_documents(await render(classic=ON, kube_version="1.31.0", driverName=driver))
    (policy,) = [
        document
        for (kind, name), document in documents.items()
        if kind == "ValidatingAdmissionPolicy" and "controller" in name and name.endswith("-claims")
    ]
    (rule,) = [
        validation for validation in policy["spec"]["validations"] if "finalizers" in validation["expression"]
    ]
    assert f"f == '{classic.finalizer(driver)}'" in rule["expression"]


async def test_a_cluster_that_cannot_have_it_is_refused_with_the_reason_before_anything_is_made(render):
    for version, values, words in (
        ("1.31.0", {}, "has no resource.k8s.io/v1: Drawbar needs 1.34 or later"),
        ("1.29.0", {"classic": ON}, "set policies.enabled=false and uninstallGuard.enabled=false"),
        ("1.26.0", {"classic": ON}, "1.27"),
        ("1.32.0", {"classic": ON}, "has no classic allocation, which 1.32 withdrew"),
        ("1.36.0", {"classic": ON}, "set classic.enabled=false"),
    ):
        with pytest.raises(helm.HelmError) as caught:
            await render(**values, kube_version=version)
        assert words in str(caught.value)
    off = {"policies": {"enabled": False}, "uninstallGuard": {"enabled": False}}
    assert await render(classic=ON, kube_version="1.29.0", **off)


@pytest.fixture(params=profiles.CLASSIC_VERSIONS)
async def installation(chart_cluster, request):
    """Yield a cluster with the policies of the manifests, a client with the controller's token, the claims' version."""
    async with chart_cluster(request.param, by_helm=False) as cluster, contextlib.AsyncExitStack() as stack:
        version = profiles.CLASSIC_VERSIONS[request.param]
        await deployment.apply(cluster.api, policies=True, version=version)
        controller = await stack.enter_async_context(cluster.acting_as("drawbar-controller"))
        yield cluster, controller, version


def spec(version, driver):
    if version == "v1alpha2":
        return {"resourceClassName": f"gpu.{driver}"}
    return {
        "controller": driver,
        "devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.drawbar.dev"}]},
    }


def build_classic_status(version, driver):
    device = handles.HandleDevice(request="gpu", fabric="f", pool="f/e", device="d", attachment="f.d")
    handle = handles.Handle(node="node-1", devices=(device,))
    if version == "v1alpha2":
        return classic_v1alpha2.build_allocation(handle, driver, shareable=False)
    return classic_v1alpha3.build_allocation(handle, driver)


async def test_the_controllers_token_allocates_its_own_claims_and_writes_nothing_else_of_any(installation):
    cluster, controller, version = installation
    kind = kinds.CLASSIC_CLAIMS[version]

    async def patch(api, name, body, **where):
        return await api.patch(
            kind, name, body, content=client.Patch.MERGE, namespace="default", into=dict, **where
        )

    async def assert_denied(words, *what, **where):
        with pytest.raises(errors.Denied) as caught:
            await patch(controller, *what, **where)
        assert words in str(caught.value)

    status = {"subresource": "status"}
    for name, driver in (("ours", DRIVER), ("theirs", OTHER)):
        await cluster.create(kind, name, "default", spec=spec(version, driver))
    mine = {"metadata": {"finalizers": ["drawbar.dev/allocation"]}}
    await patch(controller, "ours", mine)
    await patch(controller, "ours", {"status": build_classic_status(version, DRIVER)}, **status)
    freed = (classic_v1alpha2 if version == "v1alpha2" else classic_v1alpha3).build_deallocation()
    await patch(controller, "ours", {"status": freed}, **status)
    await patch(controller, "ours", {"metadata": {"finalizers": None}})

    await patch(cluster.api, "theirs", {"metadata": {"finalizers": ["example.com/keep"]}})
    await patch(cluster.api, "theirs", {"status": build_classic_status(version, OTHER)}, **status)
    await assert_denied("another's", "theirs", {"status": freed}, **status)
    await assert_denied("finalizer", "theirs", {"metadata": {"finalizers": None}})
    await assert_denied("finalizer", "ours", {"metadata": {"finalizers": ["example.com/keep"]}})
    await assert_denied("nothing of a claim but", "ours", {"metadata": {"labels": {"a": "b"}}})
