"""Several drivers in one cluster, each with a controller of its own: none touches what another has."""

import contextlib

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import core, drivers, meta
from drawbar.driver.controller import labels, marks
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

FIRST, SECOND = "drawbar.dev", "gpu.example.com"
ACCOUNT = "drawbar:drawbar-controller"
ACCOUNTS = {FIRST: ACCOUNT, SECOND: f"{ACCOUNT}-{SECOND}"}
ATTACHMENTS = {FIRST: "fab.gpu-0", SECOND: "other.gpu-0"}


# --- the names ---


def test_the_default_driver_has_the_plain_names_and_every_other_has_its_own_in_them():
    assert drivers.manager("m", FIRST) == drivers.resource("m", FIRST) == "m"
    longest = "d" * 63
    assert len(drivers.manager("drawbar-controller-admin-access", longest)) <= 128
    assert drivers.manager("m", "a") not in {drivers.manager("m-a", FIRST), drivers.manager("m", "b")}
    assert (drivers.label_value(FIRST), drivers.label_value(SECOND)) == ("true", SECOND)


def test_a_mark_names_the_driver_and_fits_the_wire():
    cluster, fabric = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "f" * 63
    made = {marks.mark(cluster, fabric, driver) for driver in (FIRST, SECOND, "d" * 63)}
    assert len(made) == 3
    assert marks.mark(cluster, fabric, FIRST) == marks.mark(cluster, fabric)
    assert all(len(mark) <= contract.STRING_BYTES for mark in made)


def make_node(held):
    return core.Node(metadata=meta.ObjectMeta(name="n", labels=held))


def test_labels_with_another_drivers_value_stay():
    held = {
        "fabric.drawbar.dev/mine": "true",
        "fabric.drawbar.dev/left-over": SECOND,
        "fabric.drawbar.dev/another": "true",
        "closed.drawbar.dev/another": "true",
        "closed.drawbar.dev/left-over": SECOND,
    }
    for reached in ({"n"}, ()):
        (change,) = labels.plan([make_node(held)], {"mine": reached}, value=SECOND)
        assert change.labels == {"fabric.drawbar.dev/left-over": None, "closed.drawbar.dev/left-over": None}
    assert labels.plan([make_node({"fabric.drawbar.dev/mine": "x"})], {"mine": None}, value=SECOND) == ()


# --- two controllers ---


class Two:
    """A cluster with two drivers, each with a Fabric that has a device of the same name."""

    def __init__(self, cluster, fabrics):
        self.cluster, self.fabrics = cluster, fabrics

    def start(self, driver, **changes):
        name = "controller" if driver == FIRST else "second"
        self.cluster.start(driver=driver, kubeconfig=str(self.cluster.path / name), **changes)

    async def allocate(self, driver, name):
        pool = "fab/enc-1" if driver == FIRST else "other/enc-1"
        device_conditions = [[f"{driver}/{condition}" for condition in pair] for pair in (ATTACH, FAIL)]
        await self.cluster.allocate(
            "gpu-0",
            name=name,
            pod=name,
            pool=pool,
            driver=driver,
            bindingConditions=device_conditions[0],
            bindingFailureConditions=device_conditions[1],
        )

    async def node_labels(self):
        node = await self.cluster.api.read(kinds.NODE, "node-1", into=dict)
        return node["metadata"].get("labels", {})

    async def pools(self):
        return {(spec["driver"], spec["pool"]["name"]) for spec in await self.cluster.slices()}

    async def attachment(self, driver):
        return (await self.cluster.attachments()).get(ATTACHMENTS[driver])

    async def things_of(self, driver):
        """Return by kind and name the version of everything that the driver alone may change."""
        api, versions = self.cluster.api, {}
        for kind in (kinds.FABRIC, kinds.ATTACHMENT, kinds.SLICE):
            for document in (await api.list_all(kind, into=dict)).items:
                if document["spec"]["driver"] == driver:
                    metadata = document["metadata"]
                    versions[kind.kind, metadata["name"]] = metadata["resourceVersion"]
        return versions

    def hangs(self, driver):
        connection = self.fabrics[driver]._world.device("gpu-0").connection
        return connection.host_id if connection else None

    def writes_of(self, driver):
        user = f"system:serviceaccount:{ACCOUNTS[driver]}"
        return [
            write for write in self.cluster.server.writes if write.user == user and write.resource != "leases"
        ]


ATTACH, FAIL = ("attached", "visible"), ("attach-failed", "node-failed")


@pytest.fixture
def two_drivers(controller_world, second_driver, tmp_path):
    _, deploy = second_driver
    spec = configuration.DeviceSpec(id="gpu-0", device_class=DeviceClass.GPU)
    described = configuration.Configuration(
        hosts=tuple(
            configuration.HostSpec(id=f"host-{name}", name=name, ports=1) for name in ("node-1", "node-2")
        ),
        enclosures=(configuration.EnclosureSpec(id="enc-1", devices=(spec,)),),
    )
    socket = f"unix:{tmp_path / 'o.sock'}"

    @contextlib.asynccontextmanager
    async def world():
        async with (
            SimulatedFabric.running(described) as other,
            fabric_server.serving(other, socket, name="sim", version="1"),
            controller_world() as cluster,
        ):
            await deploy(cluster.api)
            cluster.server.kubeconfig(cluster.path / "second", ACCOUNTS[SECOND])
            await cluster.make_fabric()
            await cluster.make_fabric("other", endpoint=socket, driver=SECOND)
            yield Two(cluster, {FIRST: cluster.fabric, SECOND: other})

    return world


BOTH_POOLS = {(FIRST, "fab/enc-1"), (SECOND, "other/enc-1")}
BOTH_LABELS = {"fabric.drawbar.dev/fab": "true", "fabric.drawbar.dev/other": SECOND}


async def test_two_drivers_publish_attach_and_detach_each_their_own(two_drivers, until):
    async with two_drivers() as two:
        cluster = two.cluster
        two.start(FIRST)
        two.start(SECOND)
        await until(two.pools, lambda value: value == BOTH_POOLS)
        await until(two.node_labels, lambda value: value == BOTH_LABELS)
        selected = {
            spec["driver"]: spec["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"]
            for spec in await cluster.slices()
        }
        assert selected == {FIRST: ["true"], SECOND: [SECOND]}
        leases = (await cluster.api.list_all(kinds.LEASE, into=dict)).items
        assert {lease["metadata"]["name"] for lease in leases} == {
            "drawbar-controller",
            f"drawbar-controller-{SECOND}",
        }
        identity = await cluster.api.read(kinds.NAMESPACE, "kube-system", into=dict)
        for driver, claim in ((FIRST, "c1"), (SECOND, "c2")):
            await two.allocate(driver, claim)
            attachment = await until(
                lambda driver=driver: two.attachment(driver),
                lambda value: value and value.get("status", {}).get("phase") == "Attached",
            )
            assert attachment["spec"]["driver"] == driver
            managers = {entry["manager"] for entry in attachment["metadata"]["managedFields"]}
            assert drivers.manager("drawbar-controller", driver) in managers
            assert two.hangs(driver) == "host-node-1"
            fabric = attachment["spec"]["fabric"]
            mark = two.fabrics[driver]._world.device("gpu-0").connection.mark
            assert mark == marks.mark(identity["metadata"]["uid"], fabric, driver)
        # The only port of the second one's host is taken, and that of the first one is not.
        await until(two.node_labels, lambda value: value == {"fabric.drawbar.dev/fab": "true"})
        kept = await two.things_of(FIRST)
        await cluster.deallocate("c2")
        await until(
            lambda: two.attachment(SECOND), lambda attachment: "deletionTimestamp" in attachment["metadata"]
        )
        await cluster.node_says("other.gpu-0", "Released")
        await until(lambda: two.attachment(SECOND), lambda value: value is None)
        await until(two.node_labels, lambda value: value == BOTH_LABELS)
        # Its own controller may count only now, in its Fabric, what is attached.
        ours = ("Fabric", "fab")
        assert await two.things_of(FIRST) | {ours: None} == kept | {ours: None}
        assert not [write for write in two.writes_of(SECOND) if write.name == "fab"]
        assert (two.hangs(FIRST), two.hangs(SECOND)) == ("host-node-1", None)

        async def reporters():
            events = (await cluster.api.list_all(kinds.EVENT, into=dict)).items
            return {(event["regarding"]["name"], event["reportingController"]) for event in events}

        reported = {
            *(("c1", FIRST), ("fab.gpu-0", FIRST)),
            *(("c2", SECOND), ("other.gpu-0", SECOND)),
        }
        await until(reporters, lambda value: value >= reported)
        assert await reporters() == reported


async def test_trouble_of_one_driver_does_not_affect_the_other(two_drivers, until):
    async with two_drivers() as two:
        cluster = two.cluster
        two.start(FIRST)
        two.start(SECOND, leader_election=False)
        await until(two.pools, lambda value: value == BOTH_POOLS)
        for driver, claim in ((FIRST, "c1"), (SECOND, "c2")):
            await two.allocate(driver, claim)
            await until(lambda claim=claim: cluster.device_conditions(claim), bool)
        await until(
            lambda: two.attachment(FIRST),
            lambda attachment: attachment.get("status", {}).get("phase") == "Attached",
        )
        await until(two.node_labels, lambda value: value == {"fabric.drawbar.dev/fab": "true"})
        # The first one is away, its claim goes, and the second begins again: it may not do the work of the first.
        await cluster.stop()
        await cluster.deallocate("c1")
        await cluster.stop()
        kept = await two.things_of(FIRST)
        cluster.server.writes.clear()
        two.start(SECOND, leader_election=False)
        # Its only record is removed by force, and it takes the device back and frees it.
        name = ATTACHMENTS[SECOND]
        gone = {"metadata": {"finalizers": None}}
        await cluster.deallocate("c2")
        await cluster.patch(kinds.ATTACHMENT, name, gone)
        with contextlib.suppress(kube_errors.NotFound):
            await cluster.api.delete(kinds.ATTACHMENT, name)
        force = {"metadata": {"annotations": {"drawbar.dev/force-detach": "true"}}}

        async def is_free():
            with contextlib.suppress(kube_errors.NotFound):
                await cluster.patch(kinds.ATTACHMENT, name, force)
            return two.hangs(SECOND) is None and await two.attachment(SECOND) is None

        await until(is_free, bool)
        # Its node label is removed by hand; then its Fabric goes, and everything of it.
        await until(two.node_labels, lambda value: value == BOTH_LABELS)
        off = {"metadata": {"labels": {"fabric.drawbar.dev/other": None}}}
        await cluster.patch(kinds.NODE, "node-1", off)
        await until(two.node_labels, lambda value: value == BOTH_LABELS)
        await cluster.api.begin_delete(kinds.FABRIC, "other", into=dict)
        await until(lambda: two.things_of(SECOND), lambda value: not value)
        await until(two.node_labels, lambda value: value == {"fabric.drawbar.dev/fab": "true"})
        assert await two.things_of(FIRST) == kept
        assert two.hangs(FIRST) == "host-node-1"
        assert not [write for write in two.writes_of(SECOND) if write.name.startswith(("fab.", "fab-", "c1"))]
        # The first one is back and does its own work.
        two.start(FIRST)
        await until(
            lambda: two.attachment(FIRST), lambda attachment: "deletionTimestamp" in attachment["metadata"]
        )
        await cluster.node_says(ATTACHMENTS[FIRST], "Released")
        await until(lambda: two.attachment(FIRST), lambda value: value is None)
        assert two.hangs(FIRST) is None


async def test_a_fabric_whose_driver_no_controller_serves_stays_as_it_is_until_one_does(two_drivers, until):
    async with two_drivers() as two:
        cluster = two.cluster
        await two.allocate(SECOND, "c2")
        by_hand = {"fabric": "other", "driver": SECOND, "pool": "other/enc-1", "hostID": "host-node-2"}
        await cluster.api.create(
            kinds.ATTACHMENT, scenes.document("other.gpu-0", "node-2", **by_hand), into=dict
        )
        before = await two.things_of(SECOND)
        two.start(FIRST)
        await until(two.pools, lambda value: value == {(FIRST, "fab/enc-1")})
        await two.allocate(FIRST, "c1")
        await until(lambda: cluster.device_conditions("c1"), bool)
        assert await two.things_of(SECOND) == before
        assert await cluster.device_conditions("c2") == {}
        two.start(SECOND)
        await until(two.pools, lambda value: value == BOTH_POOLS)
        await until(
            lambda: two.attachment(SECOND),
            lambda attachment: attachment.get("status", {}).get("phase") == "Attached",
        )
        assert two.hangs(SECOND) == "host-node-2"
        device_conditions = await until(lambda: cluster.device_conditions("c2"), bool)
        assert device_conditions == {"gpu-0": {f"{SECOND}/attach-failed": "DeviceInUse"}}


async def test_of_two_replicas_of_a_second_driver_one_leads(two_drivers, until):
    async with two_drivers() as two:
        for name in ("one", "two"):
            two.start(SECOND, identity=name)
        await until(two.pools, lambda value: value == {(SECOND, "other/enc-1")})

        async def holder():
            name = f"drawbar-controller-{SECOND}"
            lease = await two.cluster.api.read(kinds.LEASE, name, namespace="drawbar", into=dict)
            return lease["spec"]["holderIdentity"]

        first = await holder()
        if first == "two":
            two.cluster.controllers.reverse()
        await two.cluster.stop()
        await until(holder, lambda value: value == ({"one", "two"} - {first}).pop())


@pytest.mark.parametrize("driver", ["", "UPPER", "a_b", "a..b", "d" * 64])
async def test_the_driver_of_a_fabric_is_a_drivers_name(controller_world, driver):
    async with controller_world() as cluster:
        with pytest.raises(kube_errors.Invalid, match=r"spec\.driver"):
            await cluster.make_fabric(driver=driver)


async def test_the_driver_of_a_fabric_never_changes_and_is_the_default_where_it_names_none(controller_world):
    async with controller_world() as cluster:
        await cluster.make_fabric()
        assert (await cluster.api.read(kinds.FABRIC, "fab", into=dict))["spec"]["driver"] == FIRST
        for change in (SECOND, None):
            body = {"spec": {"driver": change}}
            with contextlib.suppress(kube_errors.Invalid):
                await cluster.patch(kinds.FABRIC, "fab", body)
            assert (await cluster.api.read(kinds.FABRIC, "fab", into=dict))["spec"]["driver"] == FIRST
