"""`drawbar maintenance` on a mock cluster without a controller: what is written, and what is refused."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml
from tests.scenes import maintenances as scenes

from drawbar.driver.api import maintenances
from drawbar.driver.cli.maintenance import entries, execution
from drawbar.driver.cli.status import tree
from drawbar.driver.controller import names
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.cluster import deployment

ROOT = Path(__file__).parents[4]


def objects(cluster):
    listed = cluster(lambda api: api.list_all(kinds.MAINTENANCE, into=maintenances.Maintenance))
    return {item.metadata.name: item for item in listed.items}


def spec(cluster):
    """Return the devices and the nodes in maintenance."""
    scope = maintenances.unite(objects(cluster).values())
    return sorted(scope.devices), sorted(scope.nodes)


def write(cluster, **content):
    cluster(lambda api: scenes.begin(api, fabric="rack-1", **content))


def reach(cluster):
    async def label(api):
        change = {"metadata": {"labels": {names.node_label("rack-1"): "true"}}}
        await api.patch(kinds.NODE, "node-1", change, content=client.Patch.MERGE, into=dict)

    cluster(label)


def test_an_enclosure_means_all_its_devices_and_repetition_changes_nothing(maintenance_command, cluster):
    status, out, err = maintenance_command("on", "enclosure/rack-1/enc-1", "--yes", "--timeout", "1")
    assert status == 1, "there is no controller that taints"
    assert "written, and not in effect after 1 s" in err
    assert "no further claim is given any of its 2 devices" in out
    assert "in use by default/train (pods: 1), which keep what they have" in out
    assert spec(cluster) == (["gpu-1", "gpu-2"], [])
    status, out, _ = maintenance_command("on", "device/gpu-1", "--yes")
    assert status == 0
    assert "nothing to change" in out


def test_off_removes_only_the_named_entries(maintenance_command, cluster):
    write(cluster, devices=["gpu-1", "elsewhere"])
    status, out, _ = maintenance_command("off", "device/rack-1/enc-1/gpu-1", "--yes")
    assert status == 0, "the slice has no taint on it"
    assert "back from maintenance" in out
    assert spec(cluster) == (["elsewhere"], [])


def test_a_node_is_named_where_a_fabric_reaches_it(maintenance_command, cluster):
    reach(cluster)
    planned = json.loads(maintenance_command("on", "node/node-1", "--dry-run", "-o", "json")[1])
    assert planned["fabrics"] == [{"name": "rack-1", "devices": [], "nodes": ["node-1"]}]
    assert spec(cluster) == ([], [])
    assert maintenance_command("on", "node/node-1", "--yes", "--timeout", "1")[0] == 1
    assert spec(cluster) == ([], ["node-1"])
    assert maintenance_command("off", "node/node-1", "--yes")[0] == 0
    assert spec(cluster) == ([], [])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("on", "device/none"), "no fabric has a device none"),
        (("on", "device/disk-9"), "is a device of node node-1 itself"),
        (("on", "enclosure/rack-1/none"), "there is rack-1/enc-1"),
        (("on", "node/none"), "there is no node none"),
    ],
)
def test_impossible_maintenance_is_refused_with_one_sentence(maintenance_command, cluster, words, sentence):
    status, out, err = maintenance_command(*words, "--yes")
    assert (status, out) == (1, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_one_device_cannot_come_back_from_the_maintenance_of_all(maintenance_command, cluster):
    write(cluster, devices=["*"])
    status, _, err = maintenance_command("off", "device/gpu-1", "--yes")
    assert status == 1
    assert "Maintenance work has * in its spec.devices" in err
    assert "kubectl edit maintenance work" in err
    assert "nothing to change" in maintenance_command("on", "device/gpu-1", "--yes")[1]


def test_without_a_terminal_and_without_yes_nothing_is_changed(maintenance_command, cluster):
    status, _, err = maintenance_command("on", "device/gpu-1")
    assert status == 1
    assert "add --yes" in err
    assert err.count("\n") == 1
    assert spec(cluster) == ([], [])


def test_entries_that_several_write_at_the_same_moment_all_stay(cluster):
    """Several writers read the objects before the others have written theirs."""
    names = [f"gpu-{number}" for number in range(4)]
    plans = [
        entries.Plan(
            on=True,
            changes=(entries.Change(fabric="rack-1", devices=frozenset({name})),),
            devices=(tree.Device(name=name, pool="rack-1/enc-1"),),
        )
        for name in names
    ]

    async def write_all(api):
        await asyncio.gather(*(execution.write(api, planned) for planned in plans))

    cluster(write_all)
    assert spec(cluster) == (names, [])
    assert list(objects(cluster)) == ["rack-1"]


def test_each_reason_has_an_object_and_off_takes_the_device_out_of_all(maintenance_command, cluster):
    on = ("on", "device/gpu-1", "--yes", "--timeout", "3", "--reason")
    assert maintenance_command(*on, "OPS-7: riser")[0] == 1, "there is no controller that taints"
    write(cluster, name="theirs", devices=["gpu-1", "gpu-2"], reason="OPS-8")
    by_reason = {item.spec.reason: item for item in objects(cluster).values()}
    assert by_reason["OPS-7: riser"].spec.devices == ("gpu-1",)
    assert by_reason["OPS-7: riser"].metadata.name.startswith("rack-1-")
    assert maintenance_command("off", "device/gpu-1", "--yes", "--timeout", "60")[0] == 0
    assert {name: item.spec.devices for name, item in objects(cluster).items()} == {"theirs": ("gpu-2",)}


def test_the_object_of_another_fabric_is_left_alone(maintenance_command, cluster):
    cluster(lambda api: scenes.begin(api, fabric="rack-9", name="rack-1", devices=["*"]))
    status, _, err = maintenance_command("on", "device/gpu-1", "--yes")
    assert status == 1
    assert "the Maintenance rack-1 is of Fabric rack-9" in err
    assert spec(cluster) == (["*"], [])


@pytest.mark.parametrize("reason", ["x" * 257, "two\nlines", "\x1b[31mred"])
def test_a_reason_that_cannot_be_shown_is_refused(maintenance_command, reason):
    status, _, err = maintenance_command("on", "device/gpu-1", "--reason", reason)
    assert status == 2
    assert "give at most 256 characters that can be printed" in err


def bind(cluster, *, role, without=()):
    """Give the account `default:technician` a role of the manifests, and nothing else."""
    documents = yaml.safe_load_all((ROOT / "deploy/manifests" / f"{role}-rbac.yaml").read_text())
    (body,) = [document for document in documents if document["kind"] == "ClusterRole"]
    for rule in body["rules"]:
        rule["verbs"] = [verb for verb in rule["verbs"] if verb not in without]
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "technician"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": body["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "technician", "namespace": "default"}],
    }

    async def create(api):
        for document in (body, binding):
            await api.create(deployment.KINDS[document["kind"]], document, into=dict)

    cluster(create)
    return cluster.server.account("default:technician")


@pytest.mark.parametrize("role", ["technician", "operator"])
def test_the_role_suffices_for_maintenance_and_changes_no_fabric(maintenance_command, cluster, role):
    account = bind(cluster, role=role)
    reach(cluster)
    at = ("--kubeconfig", account)
    # gpu-2 has the taint already, so it is in effect at once.
    assert maintenance_command("on", "device/gpu-2", "--yes", *at)[0] == 0
    assert maintenance_command("on", "node/node-1", "--dry-run", *at)[0] == 0
    assert maintenance_command("list", *at)[0] == 0
    assert spec(cluster) == (["gpu-2"], [])
    # There is no controller that lifts the taint.
    assert maintenance_command("off", "device/gpu-2", "--yes", "--timeout", "1", *at)[0] == 1
    assert objects(cluster) == {}

    async def edit():
        async with client.connecting(config.from_kubeconfig(account)) as api:
            for change in ({"endpoint": "https://evil"}, {"tls": {"verify": False}}, {"adapter": "redfish"}):
                with pytest.raises(kube_errors.Denied):
                    await api.patch(
                        kinds.FABRIC, "rack-1", {"spec": change}, content=client.Patch.MERGE, into=dict
                    )
            with pytest.raises(kube_errors.Denied):
                await api.read(kinds.SECRET, "fabric-credentials", namespace="drawbar", into=dict)

    asyncio.run(edit())


def test_a_refusal_before_any_change_is_one_sentence(maintenance_command, cluster):
    account = bind(cluster, role="technician", without=("create",))
    status, _, err = maintenance_command("on", "device/gpu-1", "--yes", "--kubeconfig", account)
    assert status == 1
    (line,) = err.splitlines()
    assert "cannot create" in line


def test_the_list_is_a_table_and_a_document(maintenance_command, cluster):
    assert "Nothing is in maintenance." in maintenance_command("list")[1]
    write(cluster, devices=["gpu-1"], nodes=["node-1"], reason="OPS-7")
    out = maintenance_command("list")[1]
    assert [re.sub(r" \d+s ", " 0s ", line).split() for line in out.splitlines()[1:]] == [
        ["rack-1", "device", "gpu-1", "Unknown", "-", "0s", "work", "OPS-7"],
        ["rack-1", "node", "node-1", "Unknown", "-", "0s", "work", "OPS-7"],
    ]
    (document,) = json.loads(maintenance_command("list", "-o", "json")[1])["items"]
    assert document.pop("since")
    message = "Waiting for a controller of the driver that spec.driver names."
    assert document == {
        "name": "work",
        "fabric": "rack-1",
        "devices": ["gpu-1"],
        "nodes": ["node-1"],
        "reason": "OPS-7",
        "createdBy": "",
        "applied": "Unknown",
        "message": message,
    }


@pytest.mark.parametrize(
    "words", [("on", "gpu-1"), ("on", "pod/x"), ("off",), (), ("on", "device/x", "--timeout", "0")]
)
def test_a_wrong_command_line_is_refused(maintenance_command, words):
    assert maintenance_command(*words)[0] == 2
