"""The API server's client against the API server double."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
import yaml
from tests.scenes import apiservers
from tests.scenes.apiservers import Thing

from drawbar.driver.kube import client, errors, kinds

KIND = kinds.CONFIG_MAP


@pytest.fixture
async def api(tmp_path):
    async with apiservers.double(tmp_path) as (_, api):
        yield api


def body(name="one", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"k": "v"},
    }


async def make(api, name="one", **metadata):
    return await api.create(KIND, body(name, **metadata), into=Thing, namespace="default")


async def test_an_object_is_created_read_replaced_and_deleted(api):
    made = await make(api)
    assert await api.read(KIND, "one", into=Thing, namespace="default") == made
    fresh = body(resourceVersion=made.metadata.resource_version, labels={"a": "b"})
    replaced = await api.replace(KIND, "one", fresh, into=Thing, namespace="default")
    assert replaced.metadata.labels == {"a": "b"}
    await api.delete(KIND, "one", namespace="default")
    with pytest.raises(errors.NotFound):
        await api.read(KIND, "one", into=Thing, namespace="default")


async def test_a_dry_run_answers_but_stores_nothing(api):
    answer = await api.create(KIND, body(), into=Thing, namespace="default", dry_run=True)
    assert answer.metadata.uid
    assert (await api.list_all(KIND, into=Thing, namespace="default")).items == ()


async def test_a_second_object_of_a_name_is_refused_as_already_existing(api):
    await make(api)
    with pytest.raises(errors.AlreadyExists, match="one"):
        await make(api)


async def test_a_stale_view_is_a_conflict_and_changes_nothing(api):
    made = await make(api)
    stale = body(resourceVersion="1", labels={"a": "b"})
    with pytest.raises(errors.Conflict) as refused:
        await api.replace(KIND, "one", stale, into=Thing, namespace="default")
    assert not isinstance(refused.value, errors.AlreadyExists)
    assert await api.read(KIND, "one", into=Thing, namespace="default") == made


async def test_applying_takes_fields_over_from_their_owner(api):
    for manager, value in (("first", "1"), ("second", "2")):
        stored = await api.patch(
            KIND,
            "one",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"k": value}},
            content=client.Patch.APPLY,
            into=dict,
            namespace="default",
            manager=manager,
        )
    assert stored["data"] == {"k": "2"}
    assert [entry["manager"] for entry in stored["metadata"]["managedFields"] if entry["fieldsV1"]] == [
        "second"
    ]


async def test_an_apply_removes_fields_left_out_by_its_manager(api):
    for data in ({"k": "1", "gone": "1"}, {"k": "1"}):
        stored = await api.patch(
            KIND,
            "one",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data},
            content=client.Patch.APPLY,
            into=dict,
            namespace="default",
            manager="me",
        )
    assert stored["data"] == {"k": "1"}


@pytest.mark.parametrize(
    ("content", "change"),
    [
        pytest.param(client.Patch.MERGE, {"data": {"k": None, "x": "1"}}, id="merge"),
        pytest.param(
            client.Patch.JSON,
            [{"op": "remove", "path": "/data/k"}, {"op": "add", "path": "/data/x", "value": "1"}],
            id="json",
        ),
    ],
)
async def test_a_patch_changes_only_its_fields(api, content, change):
    await make(api)
    stored = await api.patch(KIND, "one", change, content=content, into=dict, namespace="default")
    assert stored["data"] == {"x": "1"}


@pytest.mark.parametrize("conditions", [{"uid": "another"}, {"resource_version": "1"}])
async def test_a_delete_of_another_object_of_that_name_is_a_conflict(api, conditions):
    await make(api)
    with pytest.raises(errors.Conflict):
        await api.delete(KIND, "one", namespace="default", **conditions)
    await api.read(KIND, "one", into=Thing, namespace="default")


async def test_a_delete_with_fitting_conditions_deletes_and_a_second_one_is_success(api):
    made = (await make(api)).metadata
    for _ in range(2):
        await api.delete(
            KIND, "one", namespace="default", uid=made.uid, resource_version=made.resource_version
        )
    assert (await api.list_all(KIND, into=Thing, namespace="default")).items == ()


async def test_a_long_list_comes_in_pages_and_whole(api, monkeypatch):
    monkeypatch.setattr(client, "PAGE_LIMIT", 2)
    made = [await make(api, f"n{number}") for number in range(5)]
    listing = await api.list_all(KIND, into=Thing, namespace="default")
    assert list(listing.items) == made
    assert int(listing.resource_version) >= int(made[-1].metadata.resource_version)


async def test_a_list_whose_pages_are_no_longer_kept_is_expired(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "PAGE_LIMIT", 2)
    async with apiservers.double(tmp_path) as (server, api):
        for number in range(5):
            await make(api, f"n{number}")
        first = json.loads(await api.request("GET", KIND.path(namespace="default"), {"limit": "2"}))
        await make(api, "later")
        server.store.compact()
        with pytest.raises(errors.Expired):
            await api.request(
                "GET",
                KIND.path(namespace="default"),
                {"limit": "2", "continue": first["metadata"]["continue"]},
            )


async def test_a_list_can_be_narrowed_by_labels_and_fields(api):
    await make(api, "one", labels={"a": "b"})
    await make(api, "two")
    by_label = await api.list_all(KIND, into=Thing, labels="a=b")
    by_field = await api.list_all(KIND, into=Thing, fields="metadata.name=two")
    assert [item.metadata.name for item in (*by_label.items, *by_field.items)] == ["one", "two"]


async def test_a_watch_yields_changes_since_the_list(api):
    await make(api)
    listing = await api.list_all(KIND, into=Thing, namespace="default")
    await api.patch(
        KIND,
        "one",
        {"data": {"k": "w"}},
        content=client.Patch.MERGE,
        into=Thing,
        namespace="default",
    )
    await api.delete(KIND, "one", namespace="default")
    watch = api.watch(KIND, into=Thing, resource_version=listing.resource_version, namespace="default")
    async with asyncio.timeout(120), contextlib.aclosing(watch):
        events = [await anext(watch), await anext(watch)]
    assert [(event.type, event.item.metadata.name) for event in events] == [
        ("MODIFIED", "one"),
        ("DELETED", "one"),
    ]
    assert int(events[1].resource_version) > int(events[0].resource_version) > int(listing.resource_version)


async def test_a_watch_from_a_forgotten_version_is_expired(tmp_path):
    async with apiservers.double(tmp_path) as (server, api):
        listing = await api.list_all(KIND, into=Thing)
        await make(api)
        await make(api, "two")
        server.store.compact()
        with pytest.raises(errors.Expired):
            async for _ in api.watch(KIND, into=Thing, resource_version=listing.resource_version):
                pass


async def test_an_unknown_caller_and_one_without_permission_are_denied(tmp_path):
    async with apiservers.double(tmp_path, "powerless") as (server, api):
        with pytest.raises(errors.Denied, match=r"403.*powerless"):
            await api.list_all(KIND, into=Thing)
        with pytest.raises(errors.Denied):
            async for _ in api.watch(KIND, into=Thing, resource_version="1"):
                pass
        async with client.connecting(apiservers.connection(server.url, "Bearer s3cr3t")) as other:
            with pytest.raises(errors.Denied, match="401") as refused:
                await other.list_all(KIND, into=Thing)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(body("Not A Name"), id="name"),
        pytest.param({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}, id="kind"),
        pytest.param([], id="no-object"),
    ],
)
async def test_a_refused_object_is_invalid_and_not_retried(api, content):
    with pytest.raises(errors.Invalid):
        await api.create(KIND, content, into=Thing, namespace="default")


async def test_a_type_that_is_not_installed_is_not_found(api):
    with pytest.raises(errors.NotFound):
        await api.list_all(kinds.ATTACHMENT, into=Thing)


def test_paths_are_those_of_the_api():
    assert KIND.path(namespace="ns", name="n") == "/api/v1/namespaces/ns/configmaps/n"
    assert kinds.SLICE.path() == "/apis/resource.k8s.io/v1/resourceslices"
    assert (
        kinds.CLAIM.path(namespace="a", name="b", subresource="status")
        == "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/b/status"
    )


def test_a_name_cannot_lead_to_another_path():
    assert KIND.path(namespace="ns", name="a/../b?c") == "/api/v1/namespaces/ns/configmaps/a%2F..%2Fb%3Fc"
    with pytest.raises(errors.Invalid):
        KIND.path(namespace="..", name="x")


def test_an_object_is_named_with_its_namespace_or_without_where_it_has_none():
    with pytest.raises(ValueError, match="needs a namespace"):
        KIND.path(name="x")
    with pytest.raises(ValueError, match="not namespaced"):
        kinds.NODE.path(namespace="ns")


def test_the_kinds_of_our_own_are_those_of_the_definitions(pytestconfig):
    for kind in (kinds.FABRIC, kinds.ATTACHMENT):
        (file,) = (pytestconfig.rootpath / "deploy" / "drawbar" / "definitions").glob(f"{kind.plural}.yaml")
        spec = yaml.safe_load(file.read_text())["spec"]
        assert (spec["group"], spec["names"]["plural"], spec["names"]["kind"]) == (
            kind.group,
            kind.plural,
            kind.kind,
        )
        assert (spec["scope"] == "Namespaced") is kind.namespaced


async def follow(api):
    version = (await api.list_all(KIND, into=Thing, namespace="default")).resource_version
    async for _ in api.watch(KIND, into=Thing, namespace="default", resource_version=version):
        pass


async def timers(port):
    """Return the timers of the connections to a local port, as the kernel numbers them (proc_net_tcp.txt)."""
    text = await asyncio.to_thread(Path("/proc/net/tcp").read_text)
    lines = [line.split() for line in text.splitlines()[1:]]
    return [line[5].partition(":")[0] for line in lines if int(line[2].partition(":")[2], 16) == port]


async def test_watches_take_no_connection_from_requests_and_notice_a_peer_that_is_gone(api, until):
    keepalive = "02"
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        port = int(api.server.rpartition(":")[2])
        watching = [tasks.create_task(follow(api)) for _ in range(client.REQUESTS_LIMIT + 1)]
        await until(lambda: timers(port), lambda listed: listed.count(keepalive) >= len(watching))
        await make(api)
        for task in watching:
            task.cancel()
