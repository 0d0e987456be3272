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


async def test_deletecollection_deletes_the_selected_objects(api: Any, make_slice: Any) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    for name, node in (("a", "n1"), ("b", "n2")):
        body = make_slice(nodeName=node, allNodes=None)
        body["metadata"]["name"] = name
        await api.post(path, body)
    await api.delete(path, fieldSelector="spec.nodeName=n1")
    left = await api.get(path)
    assert [item["metadata"]["name"] for item in left.body["items"]] == ["b"]


async def test_status_and_spec_are_written_apart(api: Any) -> None:
    node = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}}
    await api.post("/api/v1/nodes", node)
    await api.merge(
        "/api/v1/nodes/n1/status", {"spec": {"unschedulable": False}, "status": {"phase": "Running"}}
    )
    await api.merge("/api/v1/nodes/n1", {"status": {"phase": "Pending"}})
    now = (await api.get("/api/v1/nodes/n1")).body
    assert now["spec"] == {"unschedulable": True}
    assert now["status"] == {"phase": "Running"}


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


async def test_both_event_apis_show_the_same_event(api: Any) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "hello",
        "type": "Normal",
        "reason": "R",
        "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "drawbar.dev/controller",
        "reportingInstance": "controller-0",
    }
    await api.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    core = await api.get("/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=p")
    assert [(item["message"], item["involvedObject"]["kind"]) for item in core.body["items"]] == [
        ("hello", "Pod")
    ]


async def test_bad_requests_get_a_status_and_no_traceback(api: Any) -> None:
    replies = [
        await api.post(MAPS, b"{nonsense"),
        await api.post(MAPS, b"[1]"),
        await api.post(MAPS, {"metadata": {"name": 7}}),
        await api.post(MAPS, {"metadata": {"name": "x"}}, kind="text/plain"),
        await api.send("PATCH", f"{MAPS}/one", {}, kind="application/json"),
        await api.post(MAPS, {"kind": "Pod", "metadata": {"name": "x"}}),
        await api.get("/apis/none/v1/things"),
        await api.get(MAPS, accept="application/vnd.kubernetes.protobuf"),
        await api.post(MAPS, b" " * (4 * 1024 * 1024)),
        await api.put(MAPS, {}),
        await api.get(MAPS, limit="many"),
    ]
    assert [reply.code for reply in replies] == [400, 400, 400, 415, 415, 400, 404, 406, 413, 405, 400]
    assert all(reply.body["kind"] == "Status" and reply.body["code"] == reply.code for reply in replies)


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
