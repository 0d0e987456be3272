"""Creating, reading, changing and deleting objects over HTTP."""

import asyncio
from typing import Any

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def test_a_created_object_gets_uid_version_and_time(api: Any, make_config_map: Any) -> None:
    made = await api.post(MAPS, make_config_map(a="b"))
    metadata = made.body["metadata"]
    assert made.code == 201
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert (await api.get(f"{MAPS}/one")).body == made.body


async def test_a_taken_name_is_409(api: Any, make_config_map: Any) -> None:
    await api.post(MAPS, make_config_map())
    again = await api.post(MAPS, make_config_map())
    assert (again.code, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "one" already exists'


async def test_an_absent_object_is_404(api: Any) -> None:
    reply = await api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/x")
    assert reply.code == 404
    assert reply.body["message"] == 'resourceclaims.resource.k8s.io "x" not found'
    assert reply.body["details"] == {"name": "x", "group": "resource.k8s.io", "kind": "resourceclaims"}


async def test_generated_names_are_unique_and_bounded(api: Any) -> None:
    body = {"metadata": {"generateName": "x" * 80}}
    names = {(await api.post(MAPS, body)).body["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert {len(name) for name in names} == {63}


async def test_a_bad_name_is_422_with_its_cause(api: Any, make_config_map: Any) -> None:
    reply = await api.post(MAPS, make_config_map("Not_Valid"))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert reply.body["details"]["causes"][0]["field"] == "metadata.name"


async def test_an_absent_namespace_is_404(api: Any, make_config_map: Any) -> None:
    reply = await api.post("/api/v1/namespaces/none/configmaps", make_config_map())
    assert reply.body["message"] == 'namespaces "none" not found'


async def test_a_stale_update_is_409_and_a_fresh_one_bumps_the_version(
    api: Any, make_config_map: Any
) -> None:
    made = await api.post(MAPS, make_config_map())
    fresh = await api.put(f"{MAPS}/one", made.body | {"data": {"x": "1"}})
    stale = await api.put(f"{MAPS}/one", made.body | {"data": {"x": "2"}})
    assert fresh.code == 200
    assert int(fresh.version) > int(made.version)
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in stale.body["message"]


async def test_an_update_with_another_uid_is_409(api: Any, make_config_map: Any) -> None:
    body = (await api.post(MAPS, make_config_map())).body
    body["metadata"]["uid"] = "other"
    assert (await api.put(f"{MAPS}/one", body)).code == 409


async def test_an_update_that_changes_nothing_keeps_the_version(api: Any, make_config_map: Any) -> None:
    made = await api.post(MAPS, make_config_map(a="b"))
    again = await api.put(f"{MAPS}/one", make_config_map(a="b"))
    assert again.body == made.body


async def test_a_dry_run_stores_nothing(api: Any, make_config_map: Any) -> None:
    tried = await api.post(MAPS, make_config_map(), dryRun="All")
    assert tried.code == 201
    assert (await api.get(f"{MAPS}/one")).code == 404
    assert api.server.writes.count(resource="configmaps") == 0


async def test_delete_preconditions_protect_against_another_object(api: Any, make_config_map: Any) -> None:
    made = await api.post(MAPS, make_config_map())
    wrong = await api.delete(f"{MAPS}/one", {"preconditions": {"uid": "other"}})
    stale = await api.delete(f"{MAPS}/one", {"preconditions": {"resourceVersion": "1"}})
    right = await api.delete(f"{MAPS}/one", {"preconditions": {"uid": made.body["metadata"]["uid"]}})
    assert [wrong.code, stale.code, right.code] == [409, 409, 200]
    assert "Precondition failed: UID in precondition: other" in wrong.body["message"]
    assert right.body["status"] == "Success"


async def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_away(
    api: Any, make_config_map: Any
) -> None:
    body = make_config_map()
    body["metadata"]["finalizers"] = ["drawbar.dev/detach"]
    await api.post(MAPS, body)
    marked = await api.delete(f"{MAPS}/one")
    assert marked.body["metadata"]["deletionTimestamp"]
    more = await api.merge(f"{MAPS}/one", {"metadata": {"finalizers": ["drawbar.dev/detach", "a.dev/b"]}})
    assert more.code == 422
    assert "no new finalizers can be added" in more.body["message"]
    await api.merge(f"{MAPS}/one", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{MAPS}/one")).code == 404


async def test_lists_are_paged_consistently(api: Any, make_config_map: Any) -> None:
    for name in ("a", "b", "c"):
        await api.post(MAPS, make_config_map(name))
    first = await api.get(MAPS, limit=2)
    await api.delete(f"{MAPS}/c")
    rest = await api.get(MAPS, limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in first.body["items"]] == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 1
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["c"]
    assert "continue" not in rest.body["metadata"]


async def test_an_old_continue_token_is_410(api: Any, make_config_map: Any) -> None:
    for name in ("a", "b"):
        await api.post(MAPS, make_config_map(name))
    first = await api.get(MAPS, limit=1)
    await api.delete(f"{MAPS}/b")
    api.server.store.compact()
    rest = await api.get(MAPS, limit=1, **{"continue": first.body["metadata"]["continue"]})
    assert (rest.code, rest.body["reason"]) == (410, "Expired")


async def test_lists_select_by_label_and_field(api: Any, make_slice: Any) -> None:
    for name, driver, labels in (("a", "one.dev", {"x": "1"}), ("b", "two.dev", {})):
        body = make_slice(driver=driver)
        body["metadata"] = {"name": name, "labels": labels}
        await api.post("/apis/resource.k8s.io/v1/resourceslices", body)
    path = "/apis/resource.k8s.io/v1/resourceslices"
    by_label = await api.get(path, labelSelector="x in (1,2)")
    by_field = await api.get(path, fieldSelector="spec.driver=two.dev,spec.nodeName=")
    wrong = await api.get(path, fieldSelector="spec.pool.name=x")
    assert [item["metadata"]["name"] for item in by_label.body["items"]] == ["a"]
    assert [item["metadata"]["name"] for item in by_field.body["items"]] == ["b"]
    assert wrong.code == 400


async def test_indexes_follow_changes(api: Any, make_config_map: Any) -> None:
    async def names() -> list[str]:
        found = await api.get(MAPS, labelSelector="k=v")
        return [item["metadata"]["name"] for item in found.body["items"]]

    assert await names() == []
    await api.post(MAPS, make_config_map())
    await api.merge(f"{MAPS}/one", {"metadata": {"labels": {"k": "v"}}})
    assert await names() == ["one"]
    await api.merge(f"{MAPS}/one", {"metadata": {"labels": {"k": "w"}}})
    assert await names() == []
    await api.merge(f"{MAPS}/one", {"metadata": {"labels": {"k": "v"}}})
    await api.delete(f"{MAPS}/one")
    assert await names() == []


async def test_deletecollection_deletes_what_is_selected(api: Any, make_slice: Any) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    for name, node in (("a", "n1"), ("b", "n2")):
        body = make_slice(nodeName=node, allNodes=None)
        body["metadata"]["name"] = name
        await api.post(path, body)
    await api.delete(path, fieldSelector="spec.nodeName=n1")
    left = await api.get(path)
    assert [item["metadata"]["name"] for item in left.body["items"]] == ["b"]


async def test_status_and_spec_are_written_apart(api: Any) -> None:
    node = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}, "status": {"phase": "ignored"}}
    made = await api.post("/api/v1/nodes", node)
    assert "status" not in made.body
    await api.merge(
        "/api/v1/nodes/n1/status", {"spec": {"unschedulable": False}, "status": {"phase": "Running"}}
    )
    await api.merge("/api/v1/nodes/n1", {"status": {"phase": "Pending"}})
    now = (await api.get("/api/v1/nodes/n1")).body
    assert now["spec"] == {"unschedulable": True}
    assert now["status"] == {"phase": "Running"}


async def test_generation_counts_changes_of_spec_only(api: Any, make_slice: Any) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    await api.post(path, make_slice())
    labelled = await api.merge(f"{path}/s1", {"metadata": {"labels": {"a": "b"}}})
    changed = await api.merge(f"{path}/s1", {"spec": {"devices": []}})
    assert labelled.body["metadata"]["generation"] == 1
    assert changed.body["metadata"]["generation"] == 2


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


async def test_a_namespace_takes_its_content_with_it(api: Any, make_config_map: Any) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "x"}})
    held = make_config_map()
    held["metadata"]["finalizers"] = ["a.dev/b"]
    await api.post("/api/v1/namespaces/x/configmaps", held)
    await api.post("/api/v1/namespaces/x/configmaps", make_config_map("two"))
    await api.delete("/api/v1/namespaces/x")
    left = await api.get("/api/v1/namespaces/x/configmaps")
    assert [item["metadata"]["name"] for item in left.body["items"]] == ["one"]
    assert (await api.get("/api/v1/namespaces/x")).body["status"]["phase"] == "Terminating"
    assert (await api.post("/api/v1/namespaces/x/configmaps", make_config_map("three"))).code == 403
    await api.merge("/api/v1/namespaces/x/configmaps/one", {"metadata": {"finalizers": None}})
    assert (await api.get("/api/v1/namespaces/x")).code == 404


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
    one, two = await asyncio.gather(start(), start())
    await one.post(MAPS, make_config_map())
    assert (await two.get(f"{MAPS}/one")).code == 404
