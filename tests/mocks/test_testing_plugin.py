"""The pytest plugin, in test runs of its own."""

from importlib import metadata

import pytest

PLUGIN = "drawbar.mocks.testing.plugin"
pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester):
    """Return a function that runs the tests of a driver's developer in a process of their own."""

    def run(code, *options):
        pytester.makepyfile(code)
        # pytest refuses a plugin that is named and also found by itself.
        named = () if metadata.entry_points(group="pytest11", value=PLUGIN) else ("-p", PLUGIN)
        arguments = (*named, "-p", "no:cacheprovider", *options)
        return pytester.runpytest_subprocess(*arguments, timeout=170)

    return run


def test_an_api_server_answers_the_official_client_with_the_release_of_the_marker(run):
    outcome = run(
        """
        import kubernetes
        import pytest

        def version(server):
            with kubernetes.config.new_client_from_config(str(server.kubeconfig)) as client:
                return kubernetes.client.VersionApi(client).get_code().git_version

        def test_the_usual_one(drawbar_apiserver):
            assert version(drawbar_apiserver).startswith("v1.36.")

        @pytest.mark.drawbar(profile="1.34")
        def test_another_one(drawbar_apiserver):
            assert version(drawbar_apiserver).startswith("v1.34.")

        @pytest.mark.drawbar(profile="0.1")
        def test_one_that_is_not(drawbar_apiserver):
            pass
        """
    )
    outcome.assert_outcomes(passed=2, errors=1)
    outcome.stdout.fnmatch_lines(["*no profile '0.1'; use one of*"])


def test_the_release_can_be_chosen_for_the_whole_run(run):
    code = """
        import json, ssl, urllib.request

        def test_it(drawbar_apiserver):
            async def trust(server):
                return server.client_context()

            where = drawbar_apiserver.url + "/version"
            with urllib.request.urlopen(where, context=drawbar_apiserver.call(trust)) as answer:
                assert json.load(answer)["minor"] == "37"
        """
    run(code, "--drawbar-profile", "1.37").assert_outcomes(passed=1)
    run(code, "-o", "drawbar_profile=1.37").assert_outcomes(passed=1)


def test_writes_can_be_inspected_and_an_account_has_no_rights(run):
    outcome = run(
        """
        import kubernetes

        def test_it(drawbar_apiserver):
            body = {"metadata": {"name": "a"}}
            with kubernetes.config.new_client_from_config(str(drawbar_apiserver.kubeconfig)) as client:
                kubernetes.client.CoreV1Api(client).create_namespaced_config_map("default", body)

            async def count(server):
                return len(server.writes)

            assert drawbar_apiserver.call(count) == 1
            weak = drawbar_apiserver.account("default:driver", node="node-a")
            with kubernetes.config.new_client_from_config(str(weak)) as client:
                try:
                    kubernetes.client.CoreV1Api(client).list_node()
                except kubernetes.client.ApiException as error:
                    assert error.status == 403
        """
    )
    outcome.assert_outcomes(passed=1)


def test_a_cluster_is_as_the_marker_says_and_gone_afterwards(run, pytester):
    outcome = run(
        """
        import pathlib
        import kubernetes
        import pytest

        POOL = {"enclosures": [{"id": "box", "devices": [
            {"id": "d1", "class": "nvme", "serial": "S1", "pciVendor": "0x144d", "pciDevice": "0xa824"}]}]}

        @pytest.mark.drawbar(nodes=2, fabric=POOL, poll_seconds=0.2)
        def test_it(drawbar_cluster):
            with kubernetes.config.new_client_from_config(str(drawbar_cluster.kubeconfig)) as client:
                nodes = kubernetes.client.CoreV1Api(client).list_node().items
            assert {node.metadata.name for node in nodes} == set(drawbar_cluster.nodes) == {"node-1", "node-2"}
            assert drawbar_cluster.nodes["node-2"].registry.is_dir()
            pathlib.Path("where").write_text(str(drawbar_cluster.logs.parent))
        """
    )
    outcome.assert_outcomes(passed=1)
    where = pytester.path.joinpath("where").read_text()
    assert where
    assert not pytester.path.joinpath(where).exists()


def test_a_fabric_serves_its_configuration(run):
    outcome = run(
        """
        import asyncio
        import pytest
        from drawbar.fabric import contract, registry

        async def devices(endpoint):
            config = contract.AdapterConfig(name="f", endpoint=endpoint, timeout_seconds=10)
            async with await registry.adapter_class("grpc").connect(config) as adapter:
                return [device.id for device in (await adapter.devices()).devices]

        def test_the_usual_one(drawbar_fabric):
            assert asyncio.run(devices(drawbar_fabric.endpoint)) == ["gpu-1", "gpu-2"]
            assert drawbar_fabric.journal() == []

        @pytest.mark.drawbar(fabric={"enclosures": [{"id": "e", "devices": [{"id": "d", "class": "gpu"}]}]})
        def test_my_own(drawbar_fabric):
            assert asyncio.run(devices(drawbar_fabric.endpoint)) == ["d"]

        @pytest.mark.drawbar(fabric={"hosts": [{"id": ""}]})
        def test_a_wrong_one(drawbar_fabric):
            pass
        """
    )
    outcome.assert_outcomes(passed=2, errors=1)
    outcome.stdout.fnmatch_lines(["*drawbar mock fabric did not start: *a host has an empty id*"])


def test_a_host_has_slots_and_tells_of_hot_plug(run):
    outcome = run(
        """
        import socket
        import pytest
        from drawbar.fabric.contract import DeviceClass
        from drawbar.mocks import sysfs

        @pytest.mark.drawbar(slots=2)
        def test_it(drawbar_sysfs):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
                listener.bind(str(drawbar_sysfs.uevents))
                disk = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="S1")
                address = drawbar_sysfs.tree.attach(2, disk)
                assert (drawbar_sysfs.tree.root / "bus/pci/devices" / address).exists()
                assert listener.recv(65536)
            with pytest.raises(sysfs.ImpossibleWorld):
                drawbar_sysfs.tree.attach(3, disk)
        """
    )
    outcome.assert_outcomes(passed=1)


def test_a_marker_with_a_word_that_no_fixture_knows_is_refused(run):
    outcome = run(
        """
        import pytest

        @pytest.mark.drawbar(profil="1.36")
        def test_it(drawbar_sysfs):
            pass
        """,
        "--strict-markers",
    )
    outcome.assert_outcomes(errors=1)
    outcome.stdout.fnmatch_lines(["*@pytest.mark.drawbar does not know profil*"])


def test_who_uses_no_fixture_pays_no_import(run):
    outcome = run(
        """
        import sys

        def test_it():
            heavy = {name for name in sys.modules if name.startswith("drawbar.")}
            assert heavy <= {"drawbar.mocks", "drawbar.mocks.testing", "drawbar.mocks.testing.plugin"}
            assert "aiohttp" not in sys.modules and "grpc" not in sys.modules
        """
    )
    outcome.assert_outcomes(passed=1)
