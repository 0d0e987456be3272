"""The health of devices: how long a report counts, which stream is opened, and what the pod shows."""

import datetime

import pytest
from tests.scenes import waiting

from drawbar.mocks.kubelet import health, versions

V1, ALPHA = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
DRA = "v1.DRAPlugin"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def report(device, status, timeout=None, message=""):
    return health.Report(pool="p", device=device, status=status, timeout_seconds=timeout, message=message)


@pytest.fixture
def clock():
    return waiting.Clock(START)


@pytest.fixture
def healths(clock):
    return health.Healths(default_timeout_seconds=30, clock=clock)


@pytest.mark.parametrize(
    ("timeout", "seconds", "status"),
    [
        pytest.param(None, 30, "Healthy", id="default-not-over"),
        pytest.param(None, 31, "Unknown", id="default-over"),
        pytest.param(5, 6, "Unknown", id="own-over"),
        pytest.param(90, 60, "Healthy", id="own-not-over"),
    ],
)
def test_a_report_counts_for_its_time(healths, clock, timeout, seconds, status):
    healths.take("d", [report("a", "Healthy", timeout, "fine")])
    clock.now += datetime.timedelta(seconds=seconds)
    assert healths.look("d", "p", "a") == (status, "fine" if status == "Healthy" else "")


def test_a_device_that_is_missing_from_the_next_list_stays_until_its_time_is_over(healths, clock):
    healths.take("d", [report("a", "Healthy"), report("b", "Healthy")])
    clock.now += datetime.timedelta(seconds=20)
    assert healths.take("d", [report("b", "Healthy")]) == set()
    assert healths.look("d", "p", "a") == ("Healthy", "")
    clock.now += datetime.timedelta(seconds=11)
    assert healths.take("d", [report("b", "Healthy")]) == {("p", "a")}
    assert healths.look("d", "p", "a") == ("Unknown", "")


@pytest.mark.parametrize(
    ("second", "news"),
    [
        pytest.param(report("a", "Healthy"), set(), id="the-same"),
        pytest.param(report("a", "Unhealthy"), {("p", "a")}, id="status"),
        pytest.param(report("a", "Healthy", message="warm"), {("p", "a")}, id="message"),
        pytest.param(report("a", "Healthy", 5), {("p", "a")}, id="timeout"),
    ],
)
def test_only_changes_are_news(healths, second, news):
    assert healths.take("d", [report("a", "Healthy")]) == {("p", "a")}
    assert healths.take("d", [second]) == news


def test_a_long_message_is_cut():
    assert health.cut("x" * 1024) == "x" * 1024
    assert health.cut("x" * 1025) == "x" * 1021 + "..."


@pytest.mark.parametrize(
    ("release", "supported", "service"),
    [
        pytest.param("1.35", (DRA, V1, ALPHA), None, id="1.35-has-none"),
        pytest.param("1.36", (DRA, V1), ALPHA, id="1.36-does-not-ask"),
        pytest.param("1.37", (DRA, V1, ALPHA), V1, id="1.37-takes-the-first"),
        pytest.param("1.37", (DRA, ALPHA, V1), ALPHA, id="1.37-takes-the-first-though-older"),
        pytest.param("1.37", (DRA,), None, id="1.37-opens-none-unasked"),
    ],
)
def test_each_release_opens_its_stream(release, supported, service):
    assert versions.health_service(release, supported) == service


def find_resources_status(pod):
    containers = pod["status"].get("containerStatuses") or [{}]
    return containers[0].get("allocatedResourcesStatus")


def shows(status, message=None):
    entry = {"resourceID": "drawbar.dev/claim=slot-1", "health": status}
    entry |= {"message": message} if message else {}
    return lambda pod: find_resources_status(pod) == [{"name": "claim:c1", "resources": [entry]}]


@pytest.mark.parametrize(
    ("release", "versions_", "package"),
    [
        pytest.param("1.36", (DRA,), "v1alpha1", id="1.36-though-not-advertised"),
        pytest.param("1.37", (DRA, V1, ALPHA), "v1", id="1.37"),
    ],
)
async def test_the_pod_shows_the_plugins_health_report(world, release, versions_, package):
    spoken = world.health()
    async with world.kubelet(release=release), world.plugin(versions=versions_, health=spoken) as plugin:
        await plugin.wait_for_registration()
        assert await spoken.open() == package
        await world.pod("p1", "c1")
        await world.pod_that(shows("Unknown"))
        spoken.say(slot_1="Healthy")
        await world.pod_that(shows("Healthy"))
        spoken.say(slot_1=("Unhealthy", 0, "link down"))
        await world.pod_that(shows("Unhealthy", "link down"))


async def test_a_pod_names_the_request_that_its_container_names(world):
    def prepare_devices(claims):
        return {uid: _replace_devices(answer, *devices) for uid, answer in _each(world, claims)}

    devices = [world.device("slot-1", "one"), world.device("slot-2", "two")]
    use = [{"name": "c1", "request": "one"}]
    containers = [
        {"name": "main", "image": "none", "resources": {"claims": use}},
        {"name": "other", "image": "none"},
    ]
    async with world.kubelet(), world.plugin(prepare_devices, health=world.health()) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1", containers=containers)
        pod = await world.runs()
    resources = [{"resourceID": "drawbar.dev/claim=slot-1", "health": "Unknown"}]
    assert find_resources_status(pod) == [{"name": "claim:c1/one", "resources": resources}]
    assert "allocatedResourcesStatus" not in pod["status"]["containerStatuses"][1]


async def test_a_device_without_a_cdi_id_is_shown_by_its_name(world):
    def prepare_without_cdi(claims):
        return {
            uid: _replace_devices(answer, world.device("slot-1", cdi=[]))
            for uid, answer in _each(world, claims)
        }

    async with world.kubelet(), world.plugin(prepare_without_cdi) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        pod = await world.runs()
    ((status,),) = [
        [resource["resourceID"] for resource in entry["resources"]] for entry in find_resources_status(pod)
    ]
    assert status == "drawbar.dev/chassis-1/slot-1"


def _each(world, claims):
    return world.all_prepared(claims).items()


def _replace_devices(answer, *devices):
    del answer.devices[:]
    answer.devices.extend(devices)
    return answer


async def test_a_report_that_is_not_repeated_becomes_unknown(world):
    spoken = world.health()
    times = {"health_timeout_seconds": 0.2, "resync_seconds": 0.05}
    async with world.kubelet(**times), world.plugin(health=spoken) as plugin:
        await plugin.wait_for_registration()
        await spoken.open()
        await world.pod("p1", "c1")
        await world.runs()
        spoken.say(slot_1="Healthy")
        await world.pod_that(shows("Healthy"))
        await world.pod_that(shows("Unknown"))


async def test_when_the_stream_ends_all_is_forgotten_and_a_new_one_is_opened(world):
    spoken = world.health()
    async with world.kubelet(resync_seconds=0.05), world.plugin(health=spoken) as plugin:
        await plugin.wait_for_registration()
        await spoken.open()
        await world.pod("p1", "c1")
        await world.runs()
        spoken.say(slot_1="Healthy")
        await world.pod_that(shows("Healthy"))
        spoken.end()
        await world.pod_that(shows("Unknown"))
        await spoken.open()
        spoken.say(slot_1="Healthy")
        await world.pod_that(shows("Healthy"))


async def test_a_stream_that_is_refused_is_opened_again(world):
    spoken = world.health()
    spoken.refusals = 2
    async with world.kubelet(), world.plugin(health=spoken) as plugin:
        await plugin.wait_for_registration()
        await spoken.open()
    assert spoken.refusals == 0


async def test_where_the_gate_is_off_nothing_is_opened_and_nothing_shown(world):
    spoken = world.health()
    async with world.kubelet(release="1.35"), world.plugin(health=spoken) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        pod = await world.runs()
        assert spoken.streams == []
    assert find_resources_status(pod) is None
