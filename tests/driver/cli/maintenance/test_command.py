"""`drawbar maintenance` on a mock cluster without a controller: what is written, and what is refused."""

import json

import pytest

from drawbar.driver.api import fabrics
from drawbar.driver.controller import names
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors


def spec(cluster):
    fabric = cluster(lambda api: api.read(kinds.FABRIC, "rack-1", into=fabrics.Fabric))
    return sorted(fabric.spec.maintenance), sorted(fabric.spec.maintenance_nodes)


def write(cluster, **content):
    async def patch(api):
        await api.patch(kinds.FABRIC, "rack-1", {"spec": content}, content=client.Patch.MERGE, into=dict)

    cluster(patch)


def reach(cluster):
    async def label(api):
        change = {"metadata": {"labels": {names.node_label("rack-1"): "true"}}}
        await api.patch(kinds.NODE, "node-1", change, content=client.Patch.MERGE, into=dict)

    cluster(label)


def test_an_enclosure_is_all_its_devices_and_what_is_tainted_needs_no_change(maintenance_command, cluster):
    status, out, err = maintenance_command("on", "enclosure/rack-1/enc-1", "--yes", "--timeout", "1")
    assert status == 1, "there is no controller that taints"
    assert "written, and not in effect after 1 s" in err
    assert "no further claim is given any of its 2 devices" in out
    assert "in use by default/train (pods: 1), which keep what they have" in out
    assert spec(cluster) == (["gpu-1", "gpu-2"], [])
    status, out, _ = maintenance_command("on", "device/gpu-1", "--yes")
    assert status == 0
    assert "nothing to change" in out


def test_off_takes_out_what_is_meant_by_name_or_id_and_leaves_the_rest(maintenance_command, cluster):
    write(cluster, maintenance=["gpu-1", "elsewhere"])
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
def test_what_cannot_be_in_maintenance_is_one_sentence(maintenance_command, cluster, words, sentence):
    status, out, err = maintenance_command(*words, "--yes")
    assert (status, out) == (1, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_one_device_cannot_come_back_from_the_maintenance_of_all(maintenance_command, cluster):
    write(cluster, maintenance=["*"])
    status, _, err = maintenance_command("off", "device/gpu-1", "--yes")
    assert status == 1
    assert "has * in its spec.maintenance" in err
    assert "nothing to change" in maintenance_command("on", "device/gpu-1", "--yes")[1]


def test_without_a_terminal_and_without_yes_nothing_is_changed(maintenance_command, cluster):
    status, _, err = maintenance_command("on", "device/gpu-1")
    assert status == 2
    assert "add --yes" in err
    assert spec(cluster) == ([], [])


def test_an_entry_that_another_writes_at_the_same_moment_stays(maintenance_command, cluster, monkeypatch):
    read, raced = client.Client.read, []

    async def slow(self, kind, name, **options):
        item = await read(self, kind, name, **options)
        if kind is kinds.FABRIC and not raced:
            raced.append(name)
            change = {"spec": {"maintenance": ["theirs"]}}
            await self.patch(kind, name, change, content=client.Patch.MERGE, into=dict)
        return item

    monkeypatch.setattr(client.Client, "read", slow)
    maintenance_command("on", "device/gpu-1", "--yes", "--timeout", "1")
    monkeypatch.undo()
    assert raced
    assert spec(cluster) == (["gpu-1", "theirs"], [])


def test_a_refusal_is_reported_with_what_was_not_done(maintenance_command, cluster, monkeypatch):
    async def refuse(self, kind, name, *_arguments, **_options):
        raise kube_errors.Denied(f"{kind.plural} {name} is forbidden")

    monkeypatch.setattr(client.Client, "patch", refuse)
    status, _, err = maintenance_command("on", "device/gpu-1", "--yes")
    assert status == 1
    assert "changed: no Fabric; not changed: rack-1" in err


def test_the_list_is_a_table_and_a_document(maintenance_command, cluster):
    assert "Nothing is in maintenance." in maintenance_command("list")[1]
    write(cluster, maintenance=["gpu-1"], maintenanceNodes=["node-1"])
    out = maintenance_command("list")[1]
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["rack-1", "device", "gpu-1"],
        ["rack-1", "node", "node-1"],
    ]
    assert json.loads(maintenance_command("list", "-o", "json")[1]) == [
        {"fabric": "rack-1", "devices": ["gpu-1"], "nodes": ["node-1"]}
    ]


@pytest.mark.parametrize(
    "words", [("on", "gpu-1"), ("on", "pod/x"), ("off",), (), ("on", "device/x", "--timeout", "0")]
)
def test_a_wrong_command_line_is_refused(maintenance_command, words):
    assert maintenance_command(*words)[0] == 2
