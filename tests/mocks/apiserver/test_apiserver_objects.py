"""Creating, reading, changing and deleting objects over HTTP."""

import asyncio
from typing import Any

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def test_a_dry_run_stores_nothing(api: Any, make_config_map: Any) -> None:
    tried = await api.post(MAPS, make_config_map(), dryRun="All")
    assert tried.code == 201
    assert (await api.get(f"{MAPS}/one")).code == 404
    assert api.server.writes.count(resource="configmaps") == 0


async def test_an_old_continue_token_is_410_with_one_for_the_latest_version(
    api: Any, make_config_map: Any
) -> None:
    for name in ("a", "b", "c"):
        await api.post(MAPS, make_config_map(name))
    first = await api.get(MAPS, limit=1)
    await api.delete(f"{MAPS}/b")
    api.server.store.compact()
    rest = await api.get(MAPS, limit=1, **{"continue": first.body["metadata"]["continue"]})
    assert (rest.code, rest.body["reason"]) == (410, "Expired")
    rest = await api.get(MAPS, limit=1, **{"continue": rest.body["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["c"]


async def test_indexes_follow_changes(api: Any, make_config_map: Any) -> None:
    async def names() -> list[str]:
        listing = await api.get(MAPS, labelSelector="k=v")
        return [item["metadata"]["name"] for item in listing.body["items"]]

    assert await names() == []
    await api.post(MAPS, make_config_map())
    await api.merge(f"{MAPS}/one", {"metadata": {"labels": {"k": "v"}}})
    assert await names() == ["one"]
    await api.merge(f"{MAPS}/one", {"metadata": {"labels": {"k": "w"}}})
    assert await names() == []
    await api.merge(f"{MAPS}/one", {"metadata": {"labels": {"k": "v"}}})
    await api.delete(f"{MAPS}/one")
    assert await names() == []


async def test_a_pod_is_bound_once_and_then_deleted_gracefully(api: Any) -> None:
    await api.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert (await api.post(f"{PODS}/p/binding", binding)).code == 201
    again = await api.post(f"{PODS}/p/binding", binding)
    assert 'pod p is already assigned to node "n1"' in again.body["message"]
    marked = await api.delete(f"{PODS}/p")
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await api.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n1"
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_writes_are_counted_by_who_and_what(api: Any, make_config_map: Any) -> None:
    api.server.writes.clear()
    await api.post(MAPS, make_config_map(), fieldManager="me")
    await api.post(MAPS, make_config_map(), fieldManager="me")
    assert api.server.writes.count(verb="create", resource="configmaps", manager="me") == 1
    assert len(api.server.writes) == 2
    assert sum(api.server.writes.totals.values()) == 1


async def test_two_servers_at_once_share_nothing(start: Any, make_config_map: Any) -> None:
    first, second = await asyncio.gather(start(), start())
    await first.post(MAPS, make_config_map())
    assert (await second.get(f"{MAPS}/one")).code == 404
