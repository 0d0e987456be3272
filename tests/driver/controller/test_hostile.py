"""What any user may write who may create claims, and that it harms no other user."""

import msgspec
import pytest

from drawbar.driver.api import claims
from drawbar.driver.kube import bodies, client, decoding, errors, events, kinds

DEVICE = "gpu-0"
SELECTORS = 32


def large_claim(name, *, characters, requests=2, annotations=None):
    """A claim with so many `<`, each of which takes six bytes in every answer."""
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
    """What the Events on one claim say, by reason, with the number of Events."""
    by_reason = {}
    for event in (await cluster.api.list_all(kinds.EVENT, into=dict)).items:
        if (event["regarding"]["kind"], event["regarding"]["name"]) == ("ResourceClaim", name):
            by_reason.setdefault(event["reason"], []).append(event["note"])
    return by_reason


# The test's own request; the controller sends nothing large.
@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_a_claim_as_large_as_can_be_stored_is_read_and_ends_nothing(served_world, until):
    hostile = large_claim("hostile", characters=1_400_000, requests=5)
    async with served_world() as cluster:
        await make(cluster, hostile)
        await cluster.allocate(DEVICE)
        await cluster.attached(DEVICE, "c1")
        # A new controller reads it in a list, and its deletion in the watch.
        await cluster.stop()
        cluster.start()
        await cluster.api.delete(kinds.CLAIM, "hostile", namespace="default")
        await cluster.deallocate("c1")
        await cluster.deleting(f"fab.{DEVICE}")
        await cluster.node_says(f"fab.{DEVICE}", "Released")
        await cluster.allocate(DEVICE, name="c2")
        await cluster.attached(DEVICE, "c2")
        assert not any(task.done() for task in cluster.controllers)


async def test_a_claim_beyond_that_is_reported_once_and_harms_no_other(served_world, until, monkeypatch):
    async with served_world() as cluster:
        await cluster.allocate(DEVICE)
        await cluster.attached(DEVICE, "c1")
        await make(cluster, large_claim("large", characters=60_000))
        monkeypatch.setattr(bodies, "LIMIT_BYTES", 50_000)
        for text in ("a", "b"):
            with pytest.raises(errors.TooLarge):
                await annotate(cluster, "large", {"a": text})
            await until(lambda: notes(cluster, "large"), lambda value: events.UNREADABLE in value)
        assert "deletionTimestamp" not in (await cluster.attachments())[f"fab.{DEVICE}"]["metadata"]
        await cluster.deallocate("c1")
        await cluster.deleting(f"fab.{DEVICE}")
        assert len((await notes(cluster, "large"))[events.UNREADABLE]) == 1


async def annotate(cluster, name, annotations):
    body = {"metadata": {"annotations": annotations}}
    merge = client.Patch.MERGE
    await cluster.api.patch(kinds.CLAIM, name, body, content=merge, namespace="default", into=dict)


def test_what_anybody_may_write_into_a_claims_metadata_is_not_kept():
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
