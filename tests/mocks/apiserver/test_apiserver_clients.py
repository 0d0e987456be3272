"""The Python client, unmodified, in both flavours: it creates, lists, pages, watches, patches and is refused."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from drawbar.mocks import apiserver

SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s1"},
    "spec": {
        "driver": "drawbar.dev",
        "pool": {"name": "chassis-1", "generation": 1, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [
            {
                "name": "slot-1",
                "bindsToNode": True,
                "bindingConditions": ["drawbar.dev/attached"],
                "bindingFailureConditions": ["drawbar.dev/attach-failed"],
                "capacity": {"memory": {"value": "80Gi"}},
            }
        ],
    },
}
WIDGETS = ("drawbar.dev", "v1alpha1", "widgets")


@pytest.fixture
async def config(tmp_path: Path) -> Any:
    async with apiserver.serving(tls=True) as server, asyncio.timeout(120):
        yield server.kubeconfig(tmp_path / "admin.kubeconfig")


async def test_the_synchronous_client_works_with_slices(config: Path) -> None:
    from kubernetes import client, watch
    from kubernetes import config as loader

    def use() -> list[Any]:
        load: Any = loader.new_client_from_config
        seen: list[Any] = []
        with load(str(config)) as connection:
            api = client.ResourceV1Api(connection)
            made = api.create_resource_slice(SLICE)
            seen.append(made.spec.devices[0].binding_conditions)
            patch = [{"op": "replace", "path": "/spec/pool/generation", "value": 2}]
            seen.append(api.patch_resource_slice("s1", patch).spec.pool.generation)
            listed = api.list_resource_slice(field_selector="spec.driver=drawbar.dev")
            seen.append([item.metadata.name for item in listed.items])
            stream = watch.Watch().stream(
                api.list_resource_slice, resource_version=made.metadata.resource_version, timeout_seconds=1
            )
            seen.append([(event["type"], event["object"].spec.pool.generation) for event in stream])
            made.metadata.resource_version = "1"
            with pytest.raises(client.ApiException) as stale:
                api.replace_resource_slice("s1", made)
            seen.append(stale.value.status)
            api.delete_resource_slice("s1")
        return seen

    assert await asyncio.to_thread(use) == [["drawbar.dev/attached"], 2, ["s1"], [("MODIFIED", 2)], 409]


async def test_the_synchronous_client_works_with_custom_resources_and_leases(
    config: Path, definition: Any
) -> None:
    from datetime import UTC, datetime

    from kubernetes import client
    from kubernetes import config as loader

    def use() -> list[Any]:
        load: Any = loader.new_client_from_config
        with load(str(config)) as connection:
            client.ApiextensionsV1Api(connection).create_custom_resource_definition(definition)
            custom = client.CustomObjectsApi(connection)
            body = {
                "apiVersion": "drawbar.dev/v1alpha1",
                "kind": "Widget",
                "metadata": {"name": "w"},
                "spec": {"nodeName": "n"},
            }
            custom.create_cluster_custom_object(*WIDGETS, body)
            ready = {"status": {"phase": "Ready"}}
            patched = custom.patch_cluster_custom_object_status(*WIDGETS, "w", ready)
            stamp = datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
            spec = client.V1LeaseSpec(holder_identity="me", renew_time=stamp, lease_duration_seconds=15)
            lease = client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=spec)
            held = client.CoordinationV1Api(connection).create_namespaced_lease("default", lease)
            return [patched["status"], held.spec.renew_time == stamp]

    assert await asyncio.to_thread(use) == [{"phase": "Ready"}, True]


async def test_the_asynchronous_client_works_unmodified(config: Path) -> None:
    from kubernetes.aio import client, watch
    from kubernetes.aio import config as loader

    load: Any = loader.new_client_from_config
    async with await load(str(config)) as connection:
        api = client.CoreV1Api(connection)
        for name in ("a", "b", "c"):
            body = {"metadata": {"name": name}, "data": {"k": "v"}}
            await api.create_namespaced_config_map("default", body)
        first = await api.list_namespaced_config_map("default", limit=2)
        rest = await api.list_namespaced_config_map("default", limit=2, _continue=first.metadata._continue)
        assert [item.metadata.name for item in (*first.items, *rest.items)] == ["a", "b", "c"]
        await api.patch_namespaced_config_map("a", "default", {"data": {"k": "w"}})
        events = []
        options = {"resource_version": first.metadata.resource_version, "timeout_seconds": 1}
        async with watch.Watch() as watcher:
            stream = watcher.stream(api.list_namespaced_config_map, "default", **options)
            events += [(event["type"], event["object"].data) async for event in stream]
        assert events == [("MODIFIED", {"k": "w"})]
        with pytest.raises(client.ApiException) as caught:
            await api.read_namespaced_config_map("z", "default")
        assert caught.value.status == 404
        slices = client.ResourceV1Api(connection)
        await slices.create_resource_slice(SLICE)
        listed = await slices.list_resource_slice()
        assert listed.items[0].spec.devices[0].capacity["memory"].value == "80Gi"


async def test_the_dynamic_client_discovers_and_applies(config: Path) -> None:
    from kubernetes import config as loader
    from kubernetes import dynamic

    def use() -> list[Any]:
        load: Any = loader.new_client_from_config
        with load(str(config)) as connection:
            tool = dynamic.DynamicClient(connection)
            slices = tool.resources.get(api_version="resource.k8s.io/v1", kind="ResourceSlice")
            applied = slices.server_side_apply(body=SLICE, name="s1", field_manager="suite")
            return [applied.metadata.name, [item.kind for item in slices.get().items]]

    assert await asyncio.to_thread(use) == ["s1", ["ResourceSlice"]]
