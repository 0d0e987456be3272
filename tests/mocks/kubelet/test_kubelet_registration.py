"""How plugins come and go: the watcher, the handshake, the choice of version and of plugin."""

import socket

import pytest

from drawbar.driver.kube import kinds
from drawbar.mocks.kubelet import errors, plugins, settings, versions, watcher
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as beta_pb2

V1, BETA, HEALTH = "v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth"


@pytest.mark.parametrize(
    ("release", "supported", "chosen"),
    [
        pytest.param("1.32", (V1, BETA), BETA, id="1.32-knows-beta-only"),
        pytest.param("1.33", (V1, BETA), BETA, id="1.33-knows-beta-only"),
        pytest.param("1.34", (V1, BETA), V1, id="1.34-takes-the-first"),
        pytest.param("1.35", (BETA, V1), BETA, id="1.35-takes-the-first-though-older"),
        pytest.param("1.36", (HEALTH, BETA, V1), BETA, id="1.36-skips-other-services"),
        pytest.param("1.37", ("v9.DRAPlugin", V1), V1, id="1.37-skips-the-unknown"),
    ],
)
def test_the_first_version_that_the_release_knows_is_taken(release, supported, chosen):
    assert versions.service(release, "d", "/e", supported) == chosen


@pytest.mark.parametrize(
    ("supported", "words"),
    [
        pytest.param((), "empty list of supported gRPC services", id="none"),
        pytest.param(
            (HEALTH,), f'none of services supported by the plugin (["{HEALTH}"])', id="no-dra-service"
        ),
        pytest.param(("1.0.0",), '(["1.0.0"]) are supported by the kubelet', id="too-old"),
    ],
)
async def test_a_plugin_without_a_known_version_is_told_so(world, supported, words):
    async with world.kubelet() as node, world.plugin(versions=supported) as plugin:
        status = await plugin.wait_for_registration()
        assert node.plugins.drivers() == []
    assert not status.plugin_registered
    assert "plugin validation failed" in status.error
    assert words in status.error


async def test_another_type_of_plugin_is_told_that_nobody_handles_it(world):
    async with world.kubelet() as node, world.plugin(kind="CSIPlugin") as plugin:
        status = await plugin.wait_for_registration()
        assert node.plugins.drivers() == []
    assert not status.plugin_registered
    assert "no handler registered for plugin type: CSIPlugin" in status.error


async def test_an_older_kubelet_calls_the_version_it_knows(world):
    async with world.kubelet(release="1.33"), world.plugin(versions=(V1, BETA)) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.runs()
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone()
    assert plugin.services == [beta_pb2.NodePrepareResourcesRequest.__module__] * 2


async def test_a_plugin_that_answers_the_good_news_with_an_error_is_deregistered_and_tried_again(world):
    async with world.kubelet() as node, world.plugin() as plugin:
        plugin.notify_answers = [RuntimeError("no"), None]
        await plugin.wait_for_registration()
        await world.drivers(node)
        assert (await plugin.wait_for_registration()).plugin_registered
        await world.drivers(node, world.DRIVER)


async def test_a_plugin_that_does_not_answer_the_good_news_in_time_is_deregistered(world):
    async with world.kubelet(notify_timeout_seconds=0.1) as node, world.plugin() as plugin:
        plugin.notify_answers = ["silence"]
        await plugin.wait_for_registration()
        await world.drivers(node)


async def test_a_plugin_that_is_silent_at_first_is_asked_again(world):
    async with world.kubelet(info_timeout_seconds=0.1), world.plugin() as plugin:
        plugin.info_answers = ["silence", RuntimeError("not yet"), None]
        assert (await plugin.wait_for_registration()).plugin_registered


async def test_a_socket_at_which_nobody_listens_holds_up_no_other(world):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(world.directory / "plugins_registry" / "a-reg.sock"))
        async with world.kubelet(dial_timeout_seconds=30), world.plugin() as plugin:
            assert (await plugin.wait_for_registration()).plugin_registered


async def test_a_socket_in_a_subfolder_is_found(world):
    async with world.kubelet() as node:
        (world.directory / "plugins_registry" / "sub" / "folder").mkdir(parents=True)
        async with world.plugin(folder="sub/folder") as plugin:
            assert (await plugin.wait_for_registration()).plugin_registered
            assert node.plugins.drivers() == [world.DRIVER]
        await world.drivers(node)


async def test_hidden_names_and_files_that_are_no_sockets_are_ignored(world):
    registry = world.directory / "plugins_registry"
    (registry / "plain-file").touch()
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(str(registry / ".hidden.sock"))
        assert list(watcher.sockets(registry)) == []
        async with world.plugin() as plugin:
            assert list(watcher.sockets(registry)) == [plugin.registration]


async def test_a_plugin_that_comes_again_is_registered_again(world):
    async with world.kubelet() as node:
        async with world.plugin() as first:
            assert (await first.wait_for_registration()).plugin_registered
        await world.drivers(node)
        async with world.plugin() as second:
            assert (await second.wait_for_registration()).plugin_registered
            await world.pod("p1", "c1")
            await world.runs()
    assert (first.prepares, second.prepares) == ([], [["c1"]])


async def test_a_plugin_whose_registration_socket_goes_is_not_called_any_more(world):
    async with world.kubelet() as node, world.plugin() as plugin:
        await plugin.wait_for_registration()
        plugin.registration.unlink()
        await world.drivers(node)
        await world.pod("p1", "c1")
        await world.event("FailedPrepareDynamicResources", f"DRA driver {world.DRIVER} is not registered")
    assert plugin.calls == []


async def test_a_second_registration_of_an_endpoint_is_refused(world):
    async with world.kubelet() as node, world.plugin(name="a") as first:
        await first.wait_for_registration()
        async with world.plugin(name="b", endpoint=first.endpoint, listening=False) as second:
            status = await second.wait_for_registration()
            assert not status.plugin_registered
            assert f"endpoint {first.endpoint} already registered" in status.error
            async with world.plugin(name="c") as third:
                await third.wait_for_registration()
            await world.drivers(node, world.DRIVER)
            assert len(second.told) == 1
        async with world.plugin(name="b", endpoint=first.endpoint, listening=False) as again:
            assert not (await again.wait_for_registration()).plugin_registered


async def test_of_two_plugins_of_a_driver_the_newest_is_called(world):
    async with world.kubelet() as node, world.plugin(name="old") as old:
        await world.wait_until_connected(node, old.endpoint)
        async with world.plugin(name="new") as new:
            await world.wait_until_connected(node, old.endpoint, new.endpoint)
            await world.pod("p1", "c1")
            await world.runs()
    assert (old.calls, new.prepares) == ([], [["c1"]])


async def test_a_plugin_that_is_connected_is_preferred_to_a_newer_one_that_is_not(world):
    async with world.kubelet() as node, world.plugin(name="old") as old:
        await old.wait_for_registration()
        await world.wait_until_connected(node, old.endpoint)
        async with world.plugin(name="new") as new:
            await new.wait_for_registration()
            await world.wait_until_connected(node, old.endpoint, new.endpoint)
            await new.service.stop(None)
            await world.wait_until_connected(node, old.endpoint)
            await world.pod("p1", "c1")
            await world.runs()
    assert (old.prepares, new.calls) == ([["c1"]], [])


async def test_a_connection_that_broke_is_made_again(world):
    async with world.kubelet() as node, world.plugin(name="a") as plugin:
        await plugin.wait_for_registration()
        await world.wait_until_connected(node, plugin.endpoint)
        await plugin.service.stop(None)
        await world.wait_until_connected(node)
        async with world.plugin(name="z", endpoint=plugin.endpoint):
            await world.wait_until_connected(node, plugin.endpoint)


def test_the_pauses_between_registrations_double_up_to_two_minutes():
    times = settings.Settings()
    pauses = [times.registration_pause_seconds(failures) for failures in range(1, 12)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122, 122]


async def test_a_path_that_no_socket_can_have_is_refused(tmp_path):
    path = tmp_path / ("x" * 120)

    async def fail_if_registered(plugin):
        raise AssertionError

    async with plugins.holding(fail_if_registered, lambda driver, connected: None) as held:
        with pytest.raises(errors.RegistrationError, match="longer than 107 bytes"):
            await watcher.register(path, held, settings.Settings())
