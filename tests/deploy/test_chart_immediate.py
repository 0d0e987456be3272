"""Immediate allocation as the chart allows it: a role and a policy that are there only where it is turned on."""

import contextlib

import pytest
import yaml

from drawbar.driver.kube import client, errors, kinds
from drawbar.mocks.cluster import deployment

ON = {"controller": {"config": {"immediateAllocation": True}}}
ROLE = "drawbar-controller-immediate"
ANNOTATED = {"drawbar.dev/allocation-mode": "Immediate"}
PROTECTED = ["resource.kubernetes.io/delete-protection"]


async def test_no_account_may_allocate_where_it_is_not_turned_on(render):
    assert "resourceclaims/binding" not in str(await render())


async def test_the_role_is_the_one_that_the_documentation_has(render, pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "immediate.md").read_text()
    documented = list(yaml.safe_load_all(page.split("```yaml\n")[1].split("```")[0]))
    documents = [document for document in await render(**ON) if document["metadata"]["name"] == ROLE]
    for document in documents:
        del document["metadata"]["labels"]
    assert sorted(map(str, documents)) == sorted(map(str, documented))


def allocation(driver="drawbar.dev"):
    node = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    result = {"request": "r", "driver": driver, "pool": "p", "device": "one"}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node]}]},
    }


async def make(cluster, name, **metadata):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}
    body = {
        "apiVersion": kinds.CLAIM.api_version,
        "kind": kinds.CLAIM.kind,
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": [request]}},
    }
    await cluster.api.create(kinds.CLAIM, body, namespace="default", into=dict)


async def allocate(api, name, **status):
    await api.patch(
        kinds.CLAIM,
        name,
        {"status": status},
        content=client.Patch.MERGE,
        into=dict,
        namespace="default",
        subresource="status",
        manager="drawbar-test",
    )


@contextlib.contextmanager
def denying(words):
    with pytest.raises(errors.Denied) as caught:
        yield
    assert words in str(caught.value)


async def test_the_controllers_token_allocates_only_requested_claims_and_own_devices(chart_cluster, render):
    async with chart_cluster("1.36", by_helm=False) as cluster:
        await cluster.install()
        for document in await render(**ON):
            name, kind = document["metadata"]["name"], deployment.KINDS.get(document["kind"])
            if name == "drawbar-controller-claims" and document["kind"] == "ValidatingAdmissionPolicy":
                await cluster.api.delete(kind, name)
            elif name != ROLE:
                continue
            await cluster.api.create(kind, document, into=dict)
        await make(cluster, "asks", annotations=ANNOTATED)
        await make(cluster, "plain")
        await make(cluster, "scheduled", annotations=ANNOTATED, finalizers=PROTECTED)
        async with cluster.acting_as("drawbar-controller") as api:
            with denying("is the scheduler's"):
                await allocate(api, "plain", allocation=allocation())
            with denying("is the scheduler's"):
                await allocate(api, "scheduled", allocation=allocation())
            with denying("is the scheduler's"):
                await allocate(api, "asks", allocation=allocation("gpu.example.com"))
            await allocate(api, "asks", allocation=allocation())
            with denying("who may use a claim is the scheduler's to say"):
                await allocate(api, "asks", reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}])
            await allocate(api, "asks", allocation=None)
