"""Owner references: what goes with its owner, what stays, and what a propagation policy changes."""

from typing import Any

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def owned_by(owner: Any, kind: str = "ConfigMap", **more: Any) -> Any:
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"], **more}


async def make(api: Any, name: str, *owners: Any, **metadata: Any) -> Any:
    body = {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}
    made = await api.post(MAPS, body)
    assert made.code == 201, made.body
    return made.body


async def names(api: Any) -> list[str]:
    return sorted(item["metadata"]["name"] for item in (await api.get(MAPS)).body["items"])


async def test_an_owner_recreated_under_its_name_does_not_keep_the_dependents(api: Any) -> None:
    owner = await make(api, "owner")
    await api.delete(f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
    await make(api, "owner")
    await make(api, "late", owned_by(owner))
    assert await names(api) == ["owner"]


async def test_foreground_deletion_does_not_wait_for_dependents_that_do_not_block(api: Any) -> None:
    owner = await make(api, "owner")
    await make(api, "child", owned_by(owner), finalizers=["drawbar.dev/x"])
    await api.delete(f"{MAPS}/owner", propagationPolicy="Foreground")
    assert await names(api) == ["child"]


async def test_a_dependent_with_a_finalizer_is_marked_and_waits_for_it(api: Any) -> None:
    owner = await make(api, "owner")
    await make(api, "child", owned_by(owner), finalizers=["drawbar.dev/detach"])
    await api.delete(f"{MAPS}/owner")
    assert (await api.get(f"{MAPS}/child")).body["metadata"]["deletionTimestamp"]


async def test_an_unresolvable_owner_keeps_its_dependent(api: Any, make_slice: Any) -> None:
    stranger = {"apiVersion": "example.org/v1", "kind": "Thing", "name": "t", "uid": "u"}
    await make(api, "child", stranger)
    clusterwide = make_slice()
    owner = await make(api, "owner")
    clusterwide["metadata"]["ownerReferences"] = [owned_by(owner)]
    await api.post(SLICES, clusterwide)
    await api.delete(f"{MAPS}/owner")
    assert await names(api) == ["child"]
    assert (await api.get(f"{SLICES}/s1")).code == 200


async def test_watchers_see_the_collected_object_go(api: Any) -> None:
    owner = await make(api, "owner")
    await make(api, "child", owned_by(owner))
    before = (await api.get(MAPS)).version
    await api.delete(f"{MAPS}/owner")
    import json

    async with api.watch(MAPS, resourceVersion=before, timeoutSeconds=1) as stream:
        events = [json.loads(line) async for line in stream.content]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("DELETED", "owner"),
        ("DELETED", "child"),
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"propagationPolicy": "Never"}, 'Unsupported value: "Never"'),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, "cannot be both set"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused(api: Any, options: Any, text: str) -> None:
    await make(api, "owner")
    refused = await api.delete(f"{MAPS}/owner", options)
    assert (refused.code, text in refused.body["message"]) == (422, True)
