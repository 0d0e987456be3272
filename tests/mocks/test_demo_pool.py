"""The demo's pool: devices that can exist, enough for all pods."""

import collections

import pytest

from drawbar.mocks import cluster, errors
from drawbar.mocks.cluster import deployment, settings
from drawbar.mocks.demo import pods, simulated
from drawbar.mocks.fabric import configuration, pool


@pytest.mark.parametrize("amount", [1, 4, simulated.MOST_PODS])
def test_the_pool_is_one_that_the_fabric_accepts_and_holds_a_spare_of_each_class(amount):
    enclosures = pool.make_enclosures(pods.amounts(amount))
    host = configuration.HostSpec(id="h", sysfs="/sys")
    described = configuration.Configuration(hosts=(host,), enclosures=enclosures)
    assert configuration.find_problems(described) == []
    held = collections.Counter(device.device_class for _, device in described.devices())
    asked = collections.Counter(pods.assign_classes(amount).values())
    assert all(held[device_class] > asked[device_class] for device_class in pods.CLASSES)
    serials = [device.serial for _, device in described.devices()]
    assert len(set(serials)) == len(serials)
    settings.validate(cluster.Settings(enclosures=enclosures, slots=amount))


def test_four_pods_ask_for_four_different_classes():
    assert len(set(pods.assign_classes(4).values())) == 4


@pytest.mark.parametrize("version", deployment.CLASSES)
def test_every_class_of_the_demo_has_a_class_that_is_deployed(version):
    deployed = deployment.documents(deployment.folder(), version=version)
    names = {manifest["metadata"]["name"] for manifest in deployed if manifest["kind"].endswith("Class")}
    assert {f"{device_class.value}.drawbar.dev" for device_class in pods.CLASSES} <= names


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pods": 0}, "--pods 0"),
        ({"pods": 1000}, "--pods 1000"),
        ({"nodes": 0}, "--nodes 0"),
        ({"profile": "1.33"}, "--profile 1.33 is not imitated: use one of 1.30-classic"),
        ({"profile": "1.34"}, "--profile 1.34 cannot show it: .*DRADeviceBindingConditions"),
        ({"nodes": 100}, "--nodes 100"),
        ({"attach_seconds": -1.0}, "--attach-seconds -1"),
        ({"detach_seconds": 1000.0}, "--detach-seconds 1000"),
        ({"deadline_seconds": 0.0, "attach_seconds": 0.0, "detach_seconds": 0.0}, "--deadline 0"),
    ],
)
def test_impossible_options_are_refused_with_a_sentence(changes, words):
    with pytest.raises(errors.UsageError, match=words):
        simulated.validate(simulated.Options(**changes))


def test_all_mistakes_of_a_cluster_are_listed_at_once():
    wrong = cluster.Settings(nodes=("a", "a"), slots=0, attach_seconds=-1.0)
    with pytest.raises(errors.UsageError) as caught:
        settings.validate(wrong)
    assert str(caught.value).count(";") == 2
