"""What any user may write who may create claims, and that it harms no other user."""

import msgspec
import pytest

from drawbar.driver.api import claims
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import answers, client, decoding, errors, kinds, mirror
from drawbar.mocks.testing import worlds

DEVICE, OTHER, POOL, AT = "gpu-0", "disk-0", "fab/enc-1", "2026-01-01T00:00:00Z"
SELECTORS = 32


def large_claim(name, *, characters, requests=2, annotations=None):
    """Return a claim with so many `<`, each of which takes six bytes in every answer."""
    expression = f'"{"<" * (characters // (requests * SELECTORS))}" != ""'
    way = {"deviceClassName": "any", "selectors": [{"cel": {"expression": expression}}] * SELECTORS}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "devices": {"requests": [{"name": f"r{number}", "exactly": way} for number in range(requests)]}
        },
    }


async def make(cluster, body):
    return await cluster.api.create(kinds.CLAIM, body, namespace="default", into=dict)


async def notes(cluster, name):
    """Return by reason the notes of all Events on an object."""
    by_reason = {}
    for event in (await cluster.api.list_all(kinds.EVENT, into=dict)).items:
        if event["regarding"]["name"] == name:
            by_reason.setdefault(event["reason"], []).append(event["note"])
    return by_reason


# The test's own request; the controller sends nothing large.
@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_a_claim_as_large_as_can_be_stored_is_read_and_ends_nothing(served_world, until):
    hostile = large_claim("hostile", characters=1_400_000, requests=5)
    async with served_world() as cluster:
        await make(cluster, hostile)
        await cluster.allocate(DEVICE)
        await cluster.wait_until_attached(DEVICE, "c1")
        # A new controller reads it in a list, and its deletion in the watch.
        await cluster.stop()
        cluster.start()
        await cluster.api.delete(kinds.CLAIM, "hostile", namespace="default")
        await cluster.deallocate("c1")
        await cluster.wait_until_deleting(f"fab.{DEVICE}")
        await cluster.node_says(f"fab.{DEVICE}", "Released")
        await cluster.allocate(DEVICE, name="c2")
        await cluster.wait_until_attached(DEVICE, "c2")
        assert not any(task.done() for task in cluster.controllers)


async def test_a_claim_beyond_that_is_reported_once_and_harms_no_other(served_world, until, monkeypatch):
    async with served_world() as cluster:
        await cluster.allocate(DEVICE)
        await cluster.wait_until_attached(DEVICE, "c1")
        await make(cluster, large_claim("large", characters=60_000))
        monkeypatch.setattr(answers, "LIMIT_BYTES", 50_000)
        for text in ("a", "b"):
            with pytest.raises(errors.TooLarge):
                await annotate(cluster, "large", {"a": text})
            await until(lambda: notes(cluster, "large"), lambda value: reasons.OBJECT_UNREADABLE in value)
        assert "deletionTimestamp" not in (await cluster.attachments())[f"fab.{DEVICE}"]["metadata"]
        await cluster.deallocate("c1")
        await cluster.wait_until_deleting(f"fab.{DEVICE}")
        assert len((await notes(cluster, "large"))[reasons.OBJECT_UNREADABLE]) == 1


def images(count):
    """Return a node's status with that many images, as a kubelet reports it."""
    return {
        "status": {
            "images": [{"names": [f"{number}:" + "<" * 100], "sizeBytes": 1} for number in range(count)]
        }
    }


LARGE = {
    kinds.CLAIM: ("c1", None, {}),
    kinds.NODE: ("node-1", "status", images(200)),
    kinds.FABRIC: (
        "fab",
        None,
        {"spec": {"hosts": [{"host": f"h{n}<", "node": f"n{n}"} for n in range(2000)]}},
    ),
}


@pytest.mark.filterwarnings("ignore:Sending a large body")
@pytest.mark.parametrize("kind", LARGE, ids=lambda kind: kind.kind)
async def test_an_object_that_was_never_read_takes_nothing_away(served_world, until, monkeypatch, kind):
    """The object is too large for a new controller; what was attached and published before stays."""
    name, subresource, more = LARGE[kind]
    async with served_world() as cluster:
        claim = await make(cluster, large_claim("c1", characters=60_000 if kind is kinds.CLAIM else 100))
        claim["status"] = {
            "allocation": worlds.allocation("node-1", worlds.result(POOL, DEVICE, request="r0"), at=AT)
        }
        await cluster.api.replace(
            kinds.CLAIM, "c1", claim, namespace="default", subresource="status", into=dict
        )
        await cluster.wait_until_attached(DEVICE, "c1")
        published = await cluster.wait_for_slices()
        await cluster.stop()
        if more:
            merge = client.Patch.MERGE
            await cluster.api.patch(kind, name, more, content=merge, subresource=subresource, into=dict)
        monkeypatch.setattr(answers, "LIMIT_BYTES", 50_000)
        controller = await cluster.controller()
        await until(lambda: notes(cluster, name), lambda value: reasons.OBJECT_UNREADABLE in value)
        assert mirror.count_unreadable(controller._mirrors.values())[kind.plural] == 1.0
        if kind is not kinds.FABRIC:
            # By then it has looked at everything that it leads.
            await cluster.allocate(OTHER, name="c2", pod="pod-2", node="node-2")
            await cluster.wait_until_attached(OTHER, "c2")
        monkeypatch.undo()
        held = await cluster.attachments()
        assert "deletionTimestamp" not in held[f"fab.{DEVICE}"]["metadata"]
        assert names_of(await cluster.wait_for_slices()) == names_of(published)
        await cluster.api.delete(kinds.CLAIM, "c1", namespace="default")
        await cluster.wait_until_deleting(f"fab.{DEVICE}")


def names_of(published):
    return [device["name"] for spec in published for device in spec["devices"]]


async def annotate(cluster, name, annotations):
    body = {"metadata": {"annotations": annotations}}
    merge = client.Patch.MERGE
    await cluster.api.patch(kinds.CLAIM, name, body, content=merge, namespace="default", into=dict)


def test_unneeded_metadata_of_a_claim_is_not_kept():
    metadata = {
        "name": "c",
        "labels": {f"l{number}": "" for number in range(1000)},
        "annotations": {f"a{number}": "" for number in range(1000)}
        | {claims.MODE_ANNOTATION: "Immediate", claims.NODE_ANNOTATION: "n" * 100_000},
        "finalizers": [*(f"example.org/{number}" for number in range(1000)), claims.SCHEDULED],
        "ownerReferences": [{"uid": str(number)} for number in range(1000)],
    }
    kept = decoding.decode(msgspec.json.encode({"metadata": metadata}), claims.ResourceClaim).metadata
    assert kept.annotations == {claims.MODE_ANNOTATION: "Immediate", claims.NODE_ANNOTATION: "n" * 253}
    assert (kept.labels, kept.owner_references, kept.finalizers) == ({}, (), (claims.SCHEDULED,))
