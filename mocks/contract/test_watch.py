"""Watches: their events, the order, the start and the end."""

import pytest


async def test_a_watch_from_a_list_shows_later_changes_in_order(world):
    name, path = world.name(), world.path("configmaps")
    selector = f"metadata.name={name}"
    listed = await world.api.get(path, fieldSelector=selector)
    async with world.api.watch(path, fieldSelector=selector, resourceVersion=listed.version) as changes:
        made = await world.make("configmaps", name, data={"a": "1"})
        changed = (await world.api.merge(world.path("configmaps", name), {"data": {"a": "2"}})).body
        await world.api.delete(world.path("configmaps", name))
        assert await changes.expect("ADDED") == made
        assert await changes.expect("MODIFIED") == changed
        last = await changes.expect("DELETED")
    assert last["data"] == {"a": "2"}
    assert int(last["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


async def test_a_watch_from_an_older_version_begins_with_missed_changes(world):
    name, path = world.name(), world.path("configmaps")
    made = await world.make("configmaps", name)
    await world.api.merge(world.path("configmaps", name), {"data": {"a": "2"}})
    await world.api.merge(world.path("configmaps", name), {"data": {"a": "3"}})
    query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": made["metadata"]["resourceVersion"]}
    async with world.api.watch(path, **query) as changes:
        assert (await changes.expect("MODIFIED"))["data"] == {"a": "2"}
        assert (await changes.expect("MODIFIED"))["data"] == {"a": "3"}


async def test_a_watch_without_a_version_begins_with_existing_objects(world):
    made = await world.make("configmaps")
    selector = f"metadata.name={made['metadata']['name']}"
    for query in ({}, {"resourceVersion": "0"}):
        async with world.api.watch(world.path("configmaps"), fieldSelector=selector, **query) as changes:
            first = await changes.expect("ADDED")
            assert first["metadata"]["uid"] == made["metadata"]["uid"]


async def test_an_object_that_no_longer_fits_the_selector_is_deleted_for_the_watch(world):
    group = world.name("group")
    made = await world.make("configmaps", metadata={"labels": {"contract.drawbar.dev/group": group}})
    path = world.path("configmaps", made["metadata"]["name"])
    query = {
        "labelSelector": f"contract.drawbar.dev/group={group}",
        "resourceVersion": made["metadata"]["resourceVersion"],
    }
    async with world.api.watch(world.path("configmaps"), **query) as changes:
        out = await world.api.merge(path, {"metadata": {"labels": {"contract.drawbar.dev/group": "other"}}})
        gone = await changes.expect("DELETED")
        assert gone["metadata"]["resourceVersion"] == out.version
        assert gone["metadata"]["labels"]["contract.drawbar.dev/group"] == group
        await world.api.merge(path, {"metadata": {"labels": {"contract.drawbar.dev/group": group}}})
        await changes.expect("ADDED")


async def test_a_write_that_changes_nothing_is_no_event(world):
    made = await world.make("configmaps", data={"a": "1"})
    name = made["metadata"]["name"]
    query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": made["metadata"]["resourceVersion"]}
    async with world.api.watch(world.path("configmaps"), **query) as changes:
        await world.api.put(world.path("configmaps", name), made)
        await world.api.merge(world.path("configmaps", name), {"data": {"a": "2"}})
        assert (await changes.expect("MODIFIED"))["data"] == {"a": "2"}


async def test_a_watch_ends_after_the_seconds_asked_for(world):
    listed = await world.api.get(world.path("configmaps"))
    query = {"resourceVersion": listed.version, "timeoutSeconds": 1, "fieldSelector": "metadata.name=none"}
    async with world.api.watch(world.path("configmaps"), **query) as changes:
        assert await changes.next() is None


async def test_a_bookmark_carries_a_version_and_no_object(world):
    """A bookmark carries only a version; the test passes if none comes, as no server promises any."""
    made = await world.make("configmaps")
    query = {"allowWatchBookmarks": True, "timeoutSeconds": 4, "fieldSelector": "metadata.name=none"}
    version = made["metadata"]["resourceVersion"]
    async with world.api.watch(world.path("configmaps"), resourceVersion=version, **query) as changes:
        event = await changes.next()
    if event is None:
        return
    mark = event["object"]
    assert (event["type"], mark["kind"]) == ("BOOKMARK", "ConfigMap")
    assert int(mark["metadata"]["resourceVersion"]) >= int(version)
    assert "name" not in mark["metadata"]


async def test_a_watch_without_bookmarks_asked_for_gets_none(world):
    listed = await world.api.get(world.path("configmaps"))
    query = {"timeoutSeconds": 3, "fieldSelector": "metadata.name=none"}
    async with world.api.watch(world.path("configmaps"), resourceVersion=listed.version, **query) as changes:
        assert await changes.next() is None


async def test_a_watch_may_begin_with_the_list_and_mark_its_end(world):
    made = await world.make("configmaps")
    query = {
        "sendInitialEvents": True,
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": True,
        "fieldSelector": f"metadata.name={made['metadata']['name']}",
    }
    async with world.api.watch(world.path("configmaps"), **query) as changes:
        # Behind a feature gate until 1.31.
        assert changes.code == (422 if world.can.minor <= 31 else 200)
        if changes.code == 422:
            return
        assert (await changes.expect("ADDED"))["metadata"]["uid"] == made["metadata"]["uid"]
        mark = await changes.expect("BOOKMARK")
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_initial_events_need_a_version_match(world):
    reply = await world.api.get(world.path("configmaps"), watch=True, sendInitialEvents=True)
    assert (reply.code, reply.reason) == (422, "Invalid")


async def test_a_watch_of_one_namespace_shows_no_other(world):
    home = (await world.make("namespaces"))["metadata"]["name"]
    listed = await world.api.get(world.path("leases", namespace=home))
    query = {"resourceVersion": listed.version}
    async with world.api.watch(world.path("leases", namespace=home), **query) as changes:
        await world.make("leases", spec={})
        mine = await world.make("leases", metadata={"namespace": home}, spec={})
        assert (await changes.expect("ADDED"))["metadata"]["uid"] == mine["metadata"]["uid"]


async def test_a_selector_that_does_not_parse_refuses_the_watch(world):
    reply = await world.api.get(world.path("configmaps"), watch=True, labelSelector="a b")
    assert reply.code == 400


async def test_an_object_is_shown_deleted_only_when_its_last_finalizer_goes(world):
    made = await world.make("configmaps", metadata={"finalizers": ["contract.drawbar.dev/hold"]})
    name = made["metadata"]["name"]
    query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": made["metadata"]["resourceVersion"]}
    async with world.api.watch(world.path("configmaps"), **query) as changes:
        await world.api.delete(world.path("configmaps", name))
        assert (await changes.expect("MODIFIED"))["metadata"]["deletionTimestamp"]
        await world.api.merge(world.path("configmaps", name), {"metadata": {"finalizers": None}})
        await changes.expect("DELETED")


async def forgotten(world):
    """Return a version that the server no longer remembers; a double forgets when told, a cluster has long since."""
    made = await world.make("configmaps")
    await world.make("configmaps")
    restarted = await world.api.post("/mocks/drawbar.dev/v1/restart", None)
    return "1" if restarted.code == 404 else made["metadata"]["resourceVersion"]


async def test_a_version_that_is_forgotten_has_expired(world):
    version = await forgotten(world)
    async with world.api.watch(world.path("configmaps"), resourceVersion=version) as changes:
        event = await changes.next()
    if event["type"] == "ADDED":
        pytest.skip("this cluster is so young that it still remembers its first version")
    reported = event["object"] if changes.code == 200 else event
    assert (reported["kind"], reported["code"], reported["reason"]) == ("Status", 410, "Expired")


async def test_after_an_expired_version_a_new_list_goes_on(world):
    await forgotten(world)
    listed = await world.api.get(world.path("configmaps"))
    async with world.api.watch(world.path("configmaps"), resourceVersion=listed.version) as changes:
        made = await world.make("configmaps")
        assert (await changes.expect("ADDED"))["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("<a href='x'>&", rb"\u003ca href='x'\u003e\u0026"),
        ("<\u2028\u2029", rb"\u003c\u2028\u2029"),
    ],
    ids=["ascii", "separators"],
)
async def test_html_characters_are_escaped_in_every_answer(world, text, escaped):
    made = await world.make("configmaps", data={"a": text})
    name, path = made["metadata"]["name"], world.path("configmaps")
    selector = f"metadata.name={name}"
    read = await world.api.get(world.path("configmaps", name))
    listed = await world.api.get(path, fieldSelector=selector)
    async with world.api.watch(path, fieldSelector=selector) as changes:
        line = await changes.line()
    for raw in (read.raw, listed.raw, line):
        assert escaped in raw
        assert b"<" not in raw
    assert read.body["data"] == listed.items[0]["data"] == {"a": text}
