"""Both daemons do their whole work with the tokens of the chart's service accounts, and need all that these may."""

import contextlib
import shutil

import pytest
import yaml
from tests.scenes import maintenances

from drawbar.driver.api import slices, taintrules
from drawbar.driver.cli.doctor import permissions
from drawbar.driver.kube import discovery, kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

GONE = "a0000000-0000-4000-8000-000000000000"
LOCAL = {"localPool": {"classes": ["gpu"], "slots": ["3", "4"], "bindWhenReady": ["gpu"]}}


def gpu(number):
    return sysfs.MockDevice(
        device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial=f"48-b0-2d-00-00-00-00-0{number}"
    )


def collect_permissions(documents):
    """Return by user every permission of the roles that are bound to it, each as often as it is granted."""
    roles = {
        (document["kind"], document["metadata"]["name"]): document
        for document in documents
        if document["kind"].endswith("Role")
    }
    permissions_by_user = {}
    for binding in documents:
        if not binding["kind"].endswith("RoleBinding"):
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            permissions_by_user.setdefault(user, []).extend(
                (verb, group, resource)
                for rule in role["rules"]
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            )
    return permissions_by_user


async def local_devices(cluster):
    bodies = (await cluster.list_by_name(kinds.SLICE)).values()
    return [
        device["name"]
        for body in bodies
        if body["spec"].get("nodeName") == "node-1"
        for device in body["spec"].get("devices", ())
    ]


async def use_local_devices(cluster):
    """Plug two devices of the node's own in, one after the other, and take both out."""

    async def local():
        return await local_devices(cluster)

    tree = cluster.trees["node-1"]
    tree.attach(4, gpu(1))
    await cluster.until(local, lambda devices: len(devices) == 1)
    tree.attach(3, gpu(2))
    await cluster.until(local, lambda devices: len(devices) == 2)
    tree.detach(3)
    tree.detach(4)
    await cluster.until(local, lambda devices: not devices)


async def lose_the_record(cluster, name):
    """Restart the daemon without its record, so that it asks for the claims of its CDI files; one claim is gone."""
    await cluster.stop(name)
    home = cluster.path / name / "k"
    shutil.rmtree(home / "plugins" / "drawbar.dev" / "claims")
    claims = await cluster.list_by_name(kinds.CLAIM, "default")
    (uid,) = (claim["metadata"]["uid"] for claim in claims.values())
    (file,) = (home / "cdi").glob(f"*{uid}*")
    stray = file.with_name(file.name.replace(uid, GONE))
    stray.write_text(file.read_text().replace(uid, GONE))
    await cluster.start_node(name)

    async def exists():
        return stray.exists()

    await cluster.until(exists, lambda there: not there)


async def use_a_claim_twice(cluster):
    """Run two pods with one claim, one after the other, so that the Events about its device repeat."""
    request = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}
    await cluster.create(kinds.CLAIM, "kept", "default", spec={"devices": {"requests": [request]}})
    for name in ("second", "third"):
        await cluster.pod_using(name, {"name": "disk", "resourceClaimName": "kept"})
        await cluster.until_running(name)
        await cluster.delete(kinds.POD, name, "default")
        await cluster.until(lambda: cluster.list_by_name(kinds.ATTACHMENT), lambda stored: not stored)
    await cluster.delete(kinds.CLAIM, "kept", "default")


async def maintain(cluster):
    """Take free devices out of use as an administrator does, which changes a published pool."""
    await maintenances.begin(cluster.api, devices=["*"])

    async def is_tainted():
        return any(
            "maintenance" in str(body["spec"]) for body in (await cluster.list_by_name(kinds.SLICE)).values()
        )

    await cluster.until(is_tainted, bool)


async def expired_rule(cluster):
    """Make a DeviceTaintRule whose time is over; return its kind, or None where the API server has no such rules."""
    kind = discovery.taint_rules(await discovery.resources(cluster.api, discovery.RESOURCE_GROUP))
    if kind is not None:
        rule = taintrules.document(
            f"{kind.group}/{kind.version}",
            "over",
            taintrules.DeviceSelector(driver="drawbar.dev"),
            slices.Taint(key="example.com/over", effect="None"),
            labels={},
            annotations={taintrules.EXPIRES_ANNOTATION: "2026-01-01T00:00:00Z"},
        )
        await cluster.api.create(kind, rule, into=dict)
    return kind


@pytest.mark.parametrize("profile", ["1.36", "1.37"])
@pytest.mark.tool("chart")
async def test_the_whole_flow_runs_with_the_charts_tokens_and_needs_every_permission_of_its_roles(
    chart_cluster, profile
):
    async with chart_cluster(profile) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.install(node={"config": LOCAL})
        release = await cluster.helm("get_manifest")
        await cluster.start_doubles(stack)
        rules = await expired_rule(cluster)
        await cluster.start_controller()
        for name in ("node-1", "node-2"):
            await cluster.start_node(name)
        await cluster.declare_fabric()

        await use_a_claim_twice(cluster)
        node = await cluster.run_pod("first")
        if rules is not None:
            await cluster.until(lambda: cluster.list_by_name(rules), lambda stored: not stored)
        await lose_the_record(cluster, node)
        await use_local_devices(cluster)
        await maintain(cluster)
        await cluster.delete(kinds.POD, "first", "default")

        await cluster.until(lambda: cluster.list_by_name(kinds.ATTACHMENT), lambda stored: not stored)
        await cluster.delete(kinds.FABRIC, "fab")

        await cluster.until(lambda: cluster.list_by_name(kinds.FABRIC), lambda stored: not stored)

        asked = cluster.server.registry.authorizer.asked

        async def is_lease_renewed():
            return any((request.verb, request.resource) == ("update", "leases") for request in asked)

        # That comes seconds after the lease was taken, and the rest may be over by then.
        await cluster.until(is_lease_renewed, bool)
        assert [request for request in asked if not request.allowed] == []
        for user, allowed in collect_permissions(
            [document for document in yaml.safe_load_all(release) if document]
        ).items():
            used = {
                (request.verb, request.group, request.resource) for request in asked if request.user == user
            }
            served = [what for what in allowed if rules is not None or what[2] != "devicetaintrules"]
            # A rule that another one repeats could be removed without a test that fails.
            assert sorted(served) == sorted(used), user


@pytest.mark.parametrize("parts", [(), (permissions.Part.IMMEDIATE,)])
async def test_the_roles_match_the_doctors_list_of_permissions(render, parts):
    values = {
        "credentialsSecrets": ["fabric-credentials"],
        "controller": {"config": {"immediateAllocation": permissions.Part.IMMEDIATE in parts}},
    }
    documents = await render(**values)
    needed = permissions.list_permissions(
        driver="drawbar.dev",
        namespace="drawbar",
        lease="drawbar-controller",
        secrets=["fabric-credentials"],
        parts=parts,
    )
    proxy = {"enabled": True}
    watched = await render(**values, metrics=proxy)
    for daemon in permissions.Daemon:
        wanted = {
            (permission.verb, permission.group, permission.resource)
            for permission in needed
            if permission.daemon is daemon
        }
        user = f"system:serviceaccount:drawbar:drawbar-{daemon}"
        assert set(collect_permissions(documents)[user]) == wanted
        assert set(collect_permissions(watched)[user]) == wanted
    # The proxy in its pod asks the API server who a caller is and what the caller may, as an account of its own.
    assert set(collect_permissions(watched)["system:serviceaccount:drawbar:drawbar-metrics-proxy"]) == {
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    }


async def test_permissions_of_one_namespace_are_not_granted_cluster_wide(render):
    for document in await render():
        for rule in document.get("rules") or () if document["kind"] == "ClusterRole" else ():
            assert not {"secrets", "leases", "configmaps"} & set(rule["resources"])
