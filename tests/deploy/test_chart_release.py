"""Install, upgrade, roll back and uninstall with Helm's own engine, and the guard before the end."""

import pytest
import yaml
from tests.deploy.conftest import CHART

from drawbar.driver.kube import client, kinds
from drawbar.mocks.testing import helm

pytestmark = pytest.mark.tool("chart")
ENGINES = ("v4", "v3")
PROFILES = ("1.34", "1.36", "1.37")
BEFORE = {"deviceClasses": {"classes": ["gpu"]}, "controller": {"config": {"apiWritesBurst": 100}}}
AFTER = {"deviceClasses": {"classes": ["gpu", "nic"]}, "controller": {"config": {"apiWritesBurst": 200}}}


def list_installed_objects(cluster):
    """Return the objects of an installation, found by their label."""
    return {
        (resource.kind, name)
        for resource in cluster.server.registry.catalogue.all()
        for (_, name), item in cluster.server.store.collection(resource.where).items.items()
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "drawbar"
    }


async def classes(cluster):
    return sorted(await cluster.list_by_name(kinds.DEVICE_CLASS))


async def burst(cluster):
    maps = await cluster.list_by_name(kinds.CONFIG_MAP, "drawbar")
    text = maps["drawbar-controller"]["data"]["controller.yaml"]
    return next(line for line in text.splitlines() if "apiWritesBurst" in line)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(chart_cluster, profile, engine):
    async with chart_cluster(profile, engine) as cluster:
        await cluster.install(**BEFORE)
        installed = list_installed_objects(cluster)
        assert ("Deployment", "drawbar-controller") in installed
        assert await classes(cluster) == ["gpu.drawbar.dev"]

        image = {"image": {"repository": "registry.example.com/drawbar"}}
        chart = str(cluster.chart)
        await cluster.helm("upgrade", chart=chart, values=AFTER | image)
        assert await classes(cluster) == ["gpu.drawbar.dev", "nic.drawbar.dev"]
        assert await burst(cluster) == "apiWritesBurst: 200"

        await cluster.helm("rollback", revision=1)
        assert await classes(cluster) == ["gpu.drawbar.dev"]
        assert await burst(cluster) == "apiWritesBurst: 100"
        assert list_installed_objects(cluster) == installed

        await cluster.helm("uninstall")
        assert {kind for kind, _ in list_installed_objects(cluster)} == {"CustomResourceDefinition"}
        # They hold what an administrator wrote, and stay unless crds.keep is false.
        definitions = await cluster.list_by_name(kinds.CUSTOM_RESOURCE)
        assert sorted(definitions) == [
            "deviceattachments.drawbar.dev",
            "fabrics.drawbar.dev",
            "healthpolicies.drawbar.dev",
            "maintenances.drawbar.dev",
        ]


ATTACHMENT = {
    "fabric": "rack-7",
    "deviceID": "gpu-1",
    "driver": "drawbar.dev",
    "pool": "p",
    "device": "gpu-1",
    "nodeName": "node-1",
    "hostID": "h",
    "identity": {"deviceClass": "gpu"},
}


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_installation_stays_whole_while_a_device_is_attached_or_a_fabric_is_there(
    chart_cluster, engine
):
    async with chart_cluster(engine=engine) as cluster:
        await cluster.install()
        installed = list_installed_objects(cluster)
        await cluster.create(kinds.ATTACHMENT, "rack-7.gpu-1", spec=ATTACHMENT)

        with pytest.raises(helm.HelmError, match="the device gpu-1 is still attached to node-1"):
            await cluster.helm("uninstall")
        await cluster.delete(kinds.ATTACHMENT, "rack-7.gpu-1")
        await cluster.create(kinds.FABRIC, "rack-7", spec={"adapter": "grpc", "endpoint": "unix:/x"})
        with pytest.raises(helm.HelmError, match="the Fabric rack-7 is still there"):
            await cluster.helm("uninstall")
        assert list_installed_objects(cluster) == installed

        await cluster.delete(kinds.FABRIC, "rack-7")
        # Another driver's objects are its own affair.
        other = {"driver": "gpu.example.com"}
        await cluster.create(kinds.FABRIC, "other", spec={"adapter": "grpc", "endpoint": "unix:/x"} | other)
        await cluster.helm("uninstall")
        assert {kind for kind, _ in list_installed_objects(cluster)} == {"CustomResourceDefinition"}


async def test_an_upgrade_changes_the_definitions_and_an_uninstallation_may_take_them(chart_cluster):
    async with chart_cluster() as cluster:
        await cluster.install()
        merge = client.Patch.MERGE
        without = {"spec": {"names": {"categories": []}}}
        await cluster.api.patch(
            kinds.CUSTOM_RESOURCE, "fabrics.drawbar.dev", without, content=merge, into=dict
        )
        values = {"image": {"repository": "r/d"}, "crds": {"keep": False}}
        await cluster.helm("upgrade", chart=str(cluster.chart), values=values)
        definitions = await cluster.list_by_name(kinds.CUSTOM_RESOURCE)
        assert definitions["fabrics.drawbar.dev"]["spec"]["names"]["categories"] == ["drawbar"]
        await cluster.helm("uninstall")
        assert await cluster.list_by_name(kinds.CUSTOM_RESOURCE) == {}


async def test_the_definitions_are_left_to_others_on_request(render):
    def select_definitions(documents):
        return [each for each in documents if each["kind"] == "CustomResourceDefinition"]

    assert select_definitions(await render(crds={"install": False})) == []
    files = [yaml.safe_load(file.read_text()) for file in sorted((CHART / "definitions").glob("*.yaml"))]
    rendered = select_definitions(await render())
    for definition in rendered:
        assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert definition["metadata"].pop("labels")["app.kubernetes.io/name"] == "drawbar"
    assert sorted(rendered, key=lambda each: each["metadata"]["name"]) == files


async def test_a_second_driver_is_installed_beside_the_first_and_shares_no_object_with_it(chart_cluster):
    async with chart_cluster() as cluster:
        await cluster.install()
        first = list_installed_objects(cluster)
        values = {"image": {"repository": "r/d"}, "driverName": "gpu.example.com", "crds": {"install": False}}
        await cluster.engine.call(
            "helm_install",
            namespace="drawbar",
            release_name="second",
            chart=str(cluster.chart),
            values=values,
            timeout="30s",
        )
        second = list_installed_objects(cluster) - first
        own = {(kind, name) for kind, name in first if kind != "CustomResourceDefinition"}
        assert {kind for kind, _ in second} == {kind for kind, _ in own}
        assert len(second) == len(own)
        assert all("gpu.example.com" in name for _, name in second)
