"""What the tokens of the chart's service accounts cannot write: what belongs to another node or another driver."""

import contextlib

import pytest
from tests.scenes import attachments

from drawbar.driver.kube import client, errors, kinds

CONTROLLER, NODE = "drawbar-controller", "drawbar-node"
OTHER = "gpu.example.com"
TIME = "2026-01-02T03:04:05Z"


@pytest.fixture(params=["1.36", pytest.param("1.34", marks=pytest.mark.tool("chart"))])
async def installation(chart_cluster, request):
    """Yield a cluster with the manifests, which the chart renders, so that no engine has to start."""
    async with chart_cluster(request.param, by_helm=False) as cluster:
        await cluster.install()
        for name in ("node-1", "node-2"):
            await cluster.create(kinds.NODE, name)
        yield cluster


def resource_slice(name, driver="drawbar.dev", **where):
    pool = {"name": where.get("nodeName", name), "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "devices": [{"name": "one"}]}
    metadata = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec | where,
    }


def attachment(name, node, driver="drawbar.dev"):
    return attachments.document(name, node, driver=driver)


def status_of(name, condition):
    entry = {"type": condition, "status": "True", "reason": "Said", "message": "", "lastTransitionTime": TIME}
    body = attachment(name, "")
    del body["spec"]
    return body | {"status": {"conditions": [entry]}}


async def say(api, name, condition, subresource="status"):
    body = status_of(name, condition)
    await api.patch(
        kinds.ATTACHMENT,
        name,
        body,
        content=client.Patch.APPLY,
        into=dict,
        subresource=subresource,
        manager="drawbar-test",
    )


async def merge(api, kind, name, change, **options):
    await api.patch(
        kind, name, change, content=client.Patch.MERGE, into=dict, manager="drawbar-test", **options
    )


@contextlib.contextmanager
def denying(words):
    with pytest.raises(errors.Denied) as caught:
        yield
    assert words in str(caught.value)


async def test_a_nodes_token_writes_the_slices_of_its_own_node_and_driver_alone(installation):
    await installation.api.create(kinds.SLICE, resource_slice("theirs", nodeName="node-2"), into=dict)
    theirs = (await installation.list_by_name(kinds.SLICE))["theirs"]
    own_node = "of its own node alone"
    async with installation.acting_as(NODE, node="node-1") as api:
        mine = await api.create(kinds.SLICE, resource_slice("mine", nodeName="node-1"), into=dict)
        for where in ({"nodeName": "node-2"}, {"allNodes": True}):
            with denying(own_node):
                await api.create(kinds.SLICE, resource_slice("new", **where), into=dict)
        with denying("of the driver drawbar.dev alone"):
            await api.create(kinds.SLICE, resource_slice("new", OTHER, nodeName="node-1"), into=dict)
        theirs["spec"]["devices"] = []
        with denying(own_node):
            await api.replace(kinds.SLICE, "theirs", theirs, into=dict)
        with denying(own_node):
            await api.delete(kinds.SLICE, "theirs")
        mine["spec"]["devices"] = []
        await api.replace(kinds.SLICE, "mine", mine, into=dict)
        await api.delete(kinds.SLICE, "mine")
    async with installation.acting_as(NODE) as api:
        with denying("must be bound to a node"):
            await api.create(kinds.SLICE, resource_slice("new", nodeName="node-1"), into=dict)


async def test_a_nodes_token_writes_the_status_of_its_own_nodes_attachments_alone(installation):
    for name, node, driver in (
        ("fab.mine", "node-1", "drawbar.dev"),
        ("fab.theirs", "node-2", "drawbar.dev"),
        ("fab.foreign", "node-1", OTHER),
    ):
        await installation.api.create(kinds.ATTACHMENT, attachment(name, node, driver), into=dict)
    async with installation.acting_as(NODE, node="node-1") as api:
        await say(api, "fab.mine", "Visible")
        with denying("of its own node alone"):
            await say(api, "fab.theirs", "Visible")
        with denying("of the driver drawbar.dev alone"):
            await say(api, "fab.foreign", "Visible")
        with denying("the conditions Visible, Released and Exclusive alone"):
            await say(api, "fab.mine", "Attached")
        with denying("cannot patch resource"):
            await merge(api, kinds.ATTACHMENT, "fab.mine", {"spec": {"claim": None}})


async def test_no_writer_can_change_the_identity_of_a_device(installation):
    await installation.api.create(kinds.ATTACHMENT, attachment("fab.mine", "node-1"), into=dict)
    for change in (
        {"identity": {"serial": "other"}},
        {"identity": {"slot": "1"}},
        {"model": "other"},
        {"hostID": "other"},
    ):
        with pytest.raises(errors.Invalid, match="only the claim"):
            await merge(installation.api, kinds.ATTACHMENT, "fab.mine", {"spec": change})
    await merge(installation.api, kinds.ATTACHMENT, "fab.mine", {"spec": {"idleSince": TIME}})


async def test_the_controllers_token_writes_its_own_drivers_slices_alone(installation):
    everywhere = {"allNodes": True}
    await installation.api.create(kinds.SLICE, resource_slice("foreign", OTHER, **everywhere), into=dict)
    await installation.api.create(kinds.SLICE, resource_slice("local", nodeName="node-1"), into=dict)
    slices = await installation.list_by_name(kinds.SLICE)
    async with installation.acting_as(CONTROLLER, node="node-1") as api:
        mine = await api.create(kinds.SLICE, resource_slice("mine", **everywhere), into=dict)
        mine["spec"]["devices"] = []
        await api.replace(kinds.SLICE, "mine", mine, into=dict)
        await api.delete(kinds.SLICE, "mine")
        for name, words in (("foreign", "of the driver drawbar.dev alone"), ("local", "its node daemon's")):
            with denying(words):
                await api.replace(kinds.SLICE, name, slices[name], into=dict)
            with denying(words):
                await api.delete(kinds.SLICE, name)
        with denying("of the driver drawbar.dev alone"):
            await api.create(kinds.SLICE, resource_slice("new", OTHER, **everywhere), into=dict)


async def test_the_controllers_token_writes_its_own_drivers_objects_and_no_spec_of_a_fabric(installation):
    for name, driver in (("fab", "drawbar.dev"), ("foreign", OTHER)):
        spec = {"adapter": "grpc", "endpoint": "unix:/x", "driver": driver}
        await installation.create(kinds.FABRIC, name, spec=spec)
    work = {"fabric": "fab", "devices": ["*"]}
    await installation.create(kinds.MAINTENANCE, "work", spec=work)
    finalizer = {"metadata": {"finalizers": ["drawbar.dev/attachments"]}}
    async with installation.acting_as(CONTROLLER) as api:
        await merge(api, kinds.FABRIC, "fab", finalizer)
        await merge(api, kinds.FABRIC, "fab", {"metadata": {"finalizers": []}})
        await merge(api, kinds.FABRIC, "fab", {"status": {"devices": 1}}, subresource="status")
        with denying("the spec of a Fabric or a Maintenance is the administrator's"):
            await merge(api, kinds.FABRIC, "fab", {"spec": {"endpoint": "unix:/mine"}})
        foreign = "of the driver drawbar.dev alone"
        with denying(foreign):
            await merge(api, kinds.FABRIC, "foreign", finalizer)
        with denying(foreign):
            await merge(api, kinds.FABRIC, "foreign", {"status": {"devices": 1}}, subresource="status")
        with denying(foreign):
            await api.create(kinds.ATTACHMENT, attachment("fab.new", "node-1", OTHER), into=dict)
        await api.create(kinds.ATTACHMENT, attachment("fab.new", "node-1"), into=dict)
        with denying('cannot patch resource "maintenances"'):
            await merge(api, kinds.MAINTENANCE, "work", {"spec": {"nodes": ["n"]}})
        await merge(api, kinds.MAINTENANCE, "work", {"status": {"conditions": []}}, subresource="status")


async def test_the_controllers_token_changes_nothing_of_a_node_but_its_own_labels(installation):
    async with installation.acting_as(CONTROLLER) as api:
        for value in ("true", None):
            await merge(
                api, kinds.NODE, "node-1", {"metadata": {"labels": {"fabric.drawbar.dev/fab": value}}}
            )
        for change in (
            {"metadata": {"labels": {"drawbar.dev/host": "true"}}},
            {"metadata": {"annotations": {"a": "b"}}},
            {"spec": {"unschedulable": True}},
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        ):
            with denying("of a Node"):
                await merge(api, kinds.NODE, "node-1", change)


async def test_neither_token_speaks_for_another_drivers_devices_nor_changes_an_allocation(installation):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}
    claim = await installation.create(kinds.CLAIM, "c1", "default", spec={"devices": {"requests": [request]}})
    results = [
        {"request": "r", "driver": driver, "pool": "p", "device": "one"} for driver in ("drawbar.dev", OTHER)
    ]
    node = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [node]}]}
    claim["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
    await installation.api.replace(
        kinds.CLAIM, "c1", claim, namespace="default", subresource="status", into=dict
    )
    entry = {"driver": OTHER, "pool": "p", "device": "one"}
    at = {"namespace": "default", "subresource": "status"}
    for account, where in ((NODE, "node-1"), (CONTROLLER, None)):
        async with installation.acting_as(account, node=where) as api:
            for change in ({"devices": [entry]}, {"allocation": None}):
                with pytest.raises((errors.Denied, errors.Invalid)):
                    await merge(api, kinds.CLAIM, "c1", {"status": change}, **at)
    async with installation.acting_as(NODE, node="node-1") as api:
        mine = {"devices": [entry | {"driver": "drawbar.dev"}]}
        await merge(api, kinds.CLAIM, "c1", {"status": mine}, **at)


async def test_the_controllers_token_deletes_rules_of_drawbar_taint_that_have_an_end_alone(chart_cluster):
    (kind, *_) = kinds.TAINT_RULES
    label, end = {"drawbar.dev/taint-rule": "swap"}, {"drawbar.dev/expires-at": TIME}
    async with chart_cluster("1.37", by_helm=False) as cluster:
        await cluster.install()
        spec = {"deviceSelector": {"device": "d"}, "taint": {"key": "a.dev/b", "effect": "NoSchedule"}}
        for name, labels, annotations in (("swap", label, end), ("lasting", label, {}), ("theirs", {}, end)):
            metadata = {"name": name, "labels": labels, "annotations": annotations}
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
            await cluster.api.create(kind, body, into=dict)
        async with cluster.acting_as(CONTROLLER) as api:
            for name in ("lasting", "theirs"):
                with denying("may delete a DeviceTaintRule that has"):
                    await api.delete(kind, name)
            await api.delete(kind, "swap")
        assert sorted(await cluster.list_by_name(kind)) == ["lasting", "theirs"]
