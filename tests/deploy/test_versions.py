"""One version after another, and back: what the one stored the other reads.

v0 holds what version 0.1.0 stores: its CRDs, objects, the record of prepared claims, and its rules for reading them. None
of these files is ever changed. With each release the one before it goes, and a folder for the new one comes.
"""

import importlib.util
from pathlib import Path

import msgspec
import pytest
import yaml

from drawbar.driver.api import attachments, bindings, drivers, fabrics, nodepools
from drawbar.driver.controller import cluster, names
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node.attachments import reporting
from drawbar.driver.node.local import residents
from drawbar.driver.node.preparation import checkpointlog, records
from drawbar.mocks import apiserver
from drawbar.mocks.testing import schemachanges

BEFORE = Path(__file__).with_name("v0")
NOW = Path(__file__).parents[2] / "deploy" / "drawbar"
KINDS = {"DeviceAttachment": kinds.ATTACHMENT, "Fabric": kinds.FABRIC}
TYPES = {"DeviceAttachment": attachments.DeviceAttachment, "Fabric": fabrics.Fabric}
OBJECTS = list(yaml.safe_load_all((BEFORE / "objects.yaml").read_text()))
FILES = ("deviceattachments.yaml", "fabrics.yaml")


def definition(folder, file):
    return yaml.safe_load((folder / "crds" / file).read_text())


def reader():
    """Return the module with the rules by which the version before reads."""
    spec = importlib.util.spec_from_file_location("drawbar_v0_reader", BEFORE / "reader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OLD = reader()


def leaves(value, path=()):
    """Yield the path and the value of every plain value of a document."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    elif isinstance(value, list | tuple):
        for number, below in enumerate(value):
            yield from leaves(below, (*path, number))
    else:
        yield path, value


@pytest.mark.parametrize("file", FILES)
def test_the_crds_may_follow_those_of_the_version_before(file):
    assert schemachanges.incompatible(definition(BEFORE, file), definition(NOW, file)) == ()


async def store(api, kind, document):
    created = await api.create(kind, document, into=dict)
    if "status" in document:
        created["status"] = document["status"]
        name = document["metadata"]["name"]
        created = await api.replace(kind, name, created, subresource="status", into=dict)
    return created


async def test_objects_of_the_version_before_outlive_an_upgrade_with_every_field_and_can_be_written(tmp_path):
    async with apiserver.serving(profile="1.36") as server:
        admin = config.from_kubeconfig(server.kubeconfig(tmp_path / "admin", "admin"))
        async with client.connecting(admin) as api:
            for file in FILES:
                await api.create(kinds.CUSTOM_RESOURCE, definition(BEFORE, file), into=dict)
            stored = [await store(api, KINDS[document["kind"]], document) for document in OBJECTS]
            for file in FILES:
                now = definition(NOW, file)
                name = now["metadata"]["name"]
                patch = {"content": client.Patch.MERGE, "manager": "helm", "into": dict}
                await api.patch(kinds.CUSTOM_RESOURCE, name, {"spec": now["spec"]}, **patch)
            for before in stored:
                kind, name = KINDS[before["kind"]], before["metadata"]["name"]
                (after,) = [
                    body
                    for body in (await api.list_all(kind, into=dict)).items
                    if body["metadata"]["name"] == name
                ]
                assert {part: after.get(part) for part in ("spec", "status")} == {
                    part: before.get(part) for part in ("spec", "status")
                }
                read = msgspec.to_builtins(msgspec.convert(after, TYPES[after["kind"]]))
                assert (
                    dict(
                        leaves({part: read.get(part) for part in ("spec", "status") if part in read})
                    ).items()
                    >= {
                        path: value
                        for document in OBJECTS
                        if document["metadata"]["name"] == name
                        for path, value in leaves(
                            {part: document.get(part, {}) for part in ("spec", "status")}
                        )
                    }.items()
                )
                after["metadata"]["annotations"] = {"example.com/note": "written"}
                await api.replace(kind, name, after, into=dict)
                if "status" in after:
                    change = {"status": after["status"]}
                    options = {"content": client.Patch.MERGE, "manager": "daemon", "into": dict}
                    await api.patch(kind, name, change, subresource="status", **options)


@pytest.mark.parametrize("document", OBJECTS, ids=lambda document: document["metadata"]["name"])
def test_what_this_version_writes_of_an_object_the_version_before_reads_the_same(document):
    written = msgspec.to_builtins(msgspec.convert(document, TYPES[document["kind"]]))
    if document["kind"] == "DeviceAttachment":
        assert msgspec.convert(written, OLD.DeviceAttachment) == msgspec.convert(
            document, OLD.DeviceAttachment
        )
    else:
        # Of a Fabric the daemons write the status alone.
        status = written.get("status", {})
        assert msgspec.convert(status, OLD.FabricStatus) == msgspec.convert(
            document.get("status", {}), OLD.FabricStatus
        )


def test_the_record_of_prepared_claims_of_the_version_before_is_read(tmp_path):
    file = tmp_path / "checkpoint.json"
    file.write_bytes((BEFORE / "checkpoint.json").read_bytes())
    full = records.PreparedDevice(
        pool="p",
        device="gpu-1",
        cdi_id="drawbar.dev/device=u1-gpu-1",
        requests=("gpu",),
        share_id="s1",
        admin=True,
        serial="SN1",
    )
    plain = records.PreparedDevice(pool="p", device="disk-1", cdi_id="drawbar.dev/device=u2-disk-1")
    expected = {
        "u1": records.PreparedClaim(
            namespace="team-a", name="training", uid="u1", state="completed", devices=(full,), boot_id="b1"
        ),
        "u2": records.PreparedClaim(
            namespace="team-a", name="scratch", uid="u2", state="started", devices=(plain,), boot_id="b1"
        ),
    }
    line = checkpointlog.read(file)
    assert line.claims == expected
    # And goes on in the same file, as after an upgrade.
    checkpointlog.write(file, {"u2": expected["u2"]}, line)
    assert OLD.checkpoint(file.read_bytes()).claims.keys() == {"u2"}


@pytest.mark.parametrize("again", [False, True], ids=["a new file", "a further line"])
def test_the_record_that_this_version_writes_the_version_before_reads_the_same(tmp_path, again):
    before = OLD.checkpoint((BEFORE / "checkpoint.json").read_bytes())
    claims = checkpointlog.read(BEFORE / "checkpoint.json").claims
    file = tmp_path / "checkpoint.json"
    line = checkpointlog.write(file, claims, None)
    if again:
        line = checkpointlog.write(file, {}, line)
        checkpointlog.write(file, claims, line)
        assert len(file.read_bytes().splitlines()) == 3
    assert OLD.checkpoint(file.read_bytes()) == before


def test_no_field_of_the_record_lost_its_name():
    """What a version does not know it keeps and does not use, so a field under a new name would be forgotten."""
    before = {field.encode_name for field in msgspec.structs.fields(OLD.Device)}
    now = {field.encode_name for field in msgspec.structs.fields(records.PreparedDevice)} - {"unknown"}
    assert before <= now
    assert {field.encode_name for field in msgspec.structs.fields(OLD.Claim)} <= {
        field.encode_name for field in msgspec.structs.fields(records.PreparedClaim)
    }


# If one of these names changed, no daemon would find what the version before made: devices would be published twice,
# objects would never be removed, and two daemons would write one condition.
WORDS = {
    "the finalizer of an attachment": (attachments.FINALIZER, "drawbar.dev/detach"),
    "the finalizer of a Fabric": (fabrics.FINALIZER, "drawbar.dev/attachments"),
    "the label by which a node finds its attachments": (attachments.NODE_LABEL, "drawbar.dev/node"),
    "the value of that label": (attachments.node_label("n" * 64), "sha256-ce068a195ab380a813c713035ed74921"),
    "the annotation that forces a detach": (attachments.FORCE_ANNOTATION, "drawbar.dev/force-detach"),
    "what the controller says of an attachment": (attachments.ATTACHED, "Attached"),
    "what the node says of it": (
        (attachments.VISIBLE, attachments.RELEASED, attachments.EXCLUSIVE),
        ("Visible", "Released", "Exclusive"),
    ),
    "the name of an attachment": (attachments.name("fab", "gpu-1"), "fab.gpu-1"),
    "the name of a device with an odd id": (names.label("GPU/1"), "gpu-1-ecca69a3"),
    "the name of a pool": (
        names.pool("fab", "Enclosure 1", "H100"),
        "fab/enclosure-1-719869a1/model.h100-38005079",
    ),
    "the name of its slice": (names.resource_slice("drawbar.dev", "fab/enc"), "fab-8c989097"),
    "the label of the nodes that a fabric reaches": (names.node_label("fab"), "fabric.drawbar.dev/fab"),
    "the label of the nodes that are full": (
        names.closed_label("fab", "H100"),
        "closed.drawbar.dev/fab-h100-38005079-250d4350",
    ),
    "the conditions that bind": (
        bindings.binding_conditions("drawbar.dev"),
        ("drawbar.dev/attached", "drawbar.dev/visible"),
    ),
    "the conditions that fail": (
        bindings.failure_conditions("drawbar.dev"),
        ("drawbar.dev/attach-failed", "drawbar.dev/node-failed"),
    ),
    "the pool of a node": (nodepools.pool("worker-1"), "worker-1"),
    "the slice of that pool": (residents.resource_slice("drawbar.dev", "worker-1"), "worker-1-0bca3fea"),
    "the name of a resident device": (residents.label("0000:03:00.0"), "0000-03-00-0"),
    "the field managers": (
        (
            drivers.manager(cluster.MANAGER, "drawbar.dev"),
            drivers.manager(reporting.MANAGER, "drawbar.dev"),
            drivers.manager(cluster.MANAGER, "gpu.example.com"),
        ),
        ("drawbar-controller", "drawbar-node", "drawbar-controller/gpu.example.com"),
    ),
    "the lease": (
        drivers.resource("drawbar-controller", "gpu.example.com"),
        "drawbar-controller-gpu.example.com",
    ),
}


@pytest.mark.parametrize(("now", "before"), WORDS.values(), ids=WORDS)
def test_names_by_which_the_versions_find_each_others_work_stay(now, before):
    assert now == before
