"""The node's own slices against the API server double, under the rights that the node daemon is deployed with."""

import asyncio
import contextlib
import random

import pytest
from tests.scenes import clusters, waiting

from drawbar.driver import clocks, containment
from drawbar.driver.api import slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import nulls, plan, pool, publisher
from drawbar.driver.slices import encoding
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment

NODE, DRIVER = "node-1", "drawbar.dev"
LINK = verdicts.Taint(key="link-degraded", value="x4", effect=verdicts.Effect.NO_SCHEDULE)
WIPE = {"fieldSelector": f"spec.nodeName={NODE}"}


def offer(name, *taints):
    device = slices.Device(name=name, attributes={"class": slices.Attribute(string="gpu")})
    return plan.Offer(device=device, taints=taints)


class Wire:
    """The publisher's client: counts, can be deaf to the watch, can fail some writes, and can lose fields of devices."""

    def __init__(self, api, *, deaf=False):
        self._api, self.deaf, self.dry_runs, self.refusals = api, deaf, 0, {}
        # Names of devices with which a slice is made one that the API server refuses.
        self.writes, self.drops, self.refused = 0, set(), set()

    def __getattr__(self, name):
        return getattr(self._api, name)

    async def watch(self, *args, **kwargs):
        if self.deaf:
            await asyncio.get_running_loop().create_future()
        async for event in self._api.watch(*args, **kwargs):
            yield event

    async def create(self, kind, body, *, dry_run=False, **kwargs):
        self.dry_runs += dry_run
        await self._refuse("create")
        return await self._api.create(kind, self._drop_fields(body), dry_run=dry_run, **kwargs)

    async def replace(self, kind, name, body, **kwargs):
        self.writes += 1
        await self._refuse("replace")
        return await self._api.replace(kind, name, self._drop_fields(body), **kwargs)

    def _drop_fields(self, body):
        for device in body["spec"]["devices"]:
            for name in self.drops:
                device.pop(name, None)
            if device["name"] in self.refused:
                body["spec"]["pool"]["resourceSliceCount"] = 0
        return body

    async def _refuse(self, verb):
        if self.refusals.get(verb, 0):
            self.refusals[verb] -= 1
            await self._api.read(kinds.SLICE, "there-is-none", into=dict)


class Cluster(clusters.Cluster):
    """An API server, a node, and the publisher of its pool, which offers what `offers` holds."""

    def __init__(self, api, wire, options):
        super().__init__(api)
        self.wire, self.offers, self.watched, self.events = wire, [], None, []
        self.fails = False
        self.left_out, self.again_seconds = (), None
        self.surveys, self.publisher, self._options, self._task = 0, None, options, None

    def start(self):
        self.publisher = publisher.Publisher(
            self.wire,
            driver=DRIVER,
            node_name=NODE,
            devices=self,
            time_of_day=clocks.time_of_day,
            recorder=self,
            **({"null": nulls.NullDevice()} | self._options),
        )
        self._task = asyncio.Task(self.publisher.run(), name="publisher")

    async def stop(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def survey(self, published):
        self.surveys += 1
        if self.fails:
            raise ZeroDivisionError
        return tuple(self.offers)

    def watch(self, keys):
        self.watched = keys

    def node_warning(self, name, uid, *, reason, message):
        assert uid
        self.events.append((name, reason, message))

    def unreadable(self, old, left):
        """Do nothing, as every slice can be read."""

    async def more_rounds(self, number):
        """Wait for more than so many further rounds."""
        done = self.surveys

        async def surveys():
            self.publisher.request_survey()
            return self.surveys

        await waiting.until(surveys, lambda count: count > done + number)

    def offer(self, *offers):
        self.offers = list(offers)
        self.publisher.request_survey()

    async def devices(self):
        return {
            device["name"]: device
            for slice_ in await self.list(kinds.SLICE)
            for device in slice_["spec"].get("devices", ())
        }


@contextlib.asynccontextmanager
async def cluster(tmp_path, profile="1.36", node=True, deaf=False, gates=None, **options):
    async with apiserver.serving(profile=profile, gates=gates) as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "node", "drawbar:drawbar-node", node=NODE)
        async with (
            client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api,
            client.connecting(config.from_kubeconfig(tmp_path / "node")) as own,
        ):
            await deployment.apply(api)
            world = Cluster(api, Wire(own, deaf=deaf), options)
            if node:
                await world.create(kinds.NODE, NODE)
            world.start()
            try:
                yield world
            finally:
                await world.stop()


def has_names(*names):
    return lambda devices: devices.keys() == set(names)


async def test_the_pool_is_published_for_the_node_and_goes_with_its_node_object(tmp_path, until):
    async with cluster(tmp_path) as world:
        world.offer(offer("gpu-a"))
        await until(world.devices, has_names("gpu-a"))
        (slice_,) = await world.list(kinds.SLICE)
        node = await world.api.read(kinds.NODE, NODE, into=dict)
        (owner,) = slice_["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (node["metadata"]["uid"], True)
        assert slice_["spec"]["nodeName"] == NODE
        assert slice_["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        assert world.watched == {verdicts.Key(pool=NODE, device="gpu-a")}


async def test_a_pool_that_the_kubelet_wipes_is_back_at_once_with_its_taints_as_they_were(tmp_path, until):
    async with cluster(tmp_path) as world:
        world.offer(offer("gpu-a", LINK))
        before = await until(world.devices, has_names("gpu-a"))
        (slice_,) = await world.list(kinds.SLICE)
        await world.api.request("DELETE", kinds.SLICE.path(), WIPE)

        async def again():
            return [slice_["metadata"]["uid"] for slice_ in await world.list(kinds.SLICE)]

        await until(again, lambda uids: uids not in ([], [slice_["metadata"]["uid"]]))
        assert await world.devices() == before


async def test_withdrawn_devices_leave_the_pool_and_the_last_one_deletes_it(tmp_path, until):
    async with cluster(tmp_path) as world:
        world.offer(offer("gpu-a"), offer("gpu-b"))
        await until(world.devices, has_names("gpu-a", "gpu-b"))
        world.offer(offer("gpu-b", LINK))
        devices = await until(world.devices, has_names("gpu-b"))
        assert devices["gpu-b"]["taints"][0]["key"] == f"{DRIVER}/link-degraded"
        world.offer()
        await until(lambda: world.list(kinds.SLICE), lambda slices: not slices)
        assert world.watched == frozenset()


async def test_nothing_is_written_when_nothing_changed(tmp_path, until):
    async with cluster(tmp_path, resync_seconds=0.05) as world:
        world.offer(offer("gpu-a"), offer("gpu-b", LINK))
        await until(world.devices, has_names("gpu-a", "gpu-b"))
        (before,) = await world.list(kinds.SLICE)

        await world.more_rounds(5)
        assert await world.list(kinds.SLICE) == (before,)


async def test_without_a_device_neither_the_node_is_read_nor_a_slice_written(tmp_path, until):
    async with cluster(tmp_path, node=False) as world:
        world.offer()

        async def read_watched():
            return world.watched

        await until(read_watched, lambda keys: keys == frozenset())
        assert await world.list(kinds.SLICE) == ()


async def test_a_node_object_that_comes_late_is_waited_for(tmp_path, until):
    async with cluster(tmp_path, node=False) as world:
        world.offer(offer("gpu-a"))
        await world.create(kinds.NODE, NODE)
        await until(world.devices, has_names("gpu-a"))


async def test_a_slice_that_is_lost_behind_the_back_of_the_watch_is_found_by_the_full_round(tmp_path, until):
    async with cluster(tmp_path, deaf=True, resync_seconds=0.05) as world:
        world.offer(offer("gpu-a"))
        await until(world.devices, has_names("gpu-a"))
        (slice_,) = await world.list(kinds.SLICE)
        await world.api.delete(kinds.SLICE, slice_["metadata"]["name"])
        await until(world.devices, has_names("gpu-a"))


async def test_a_slice_made_by_hand_for_this_node_is_left_alone(tmp_path, until):
    async with cluster(tmp_path) as world:
        pool = {"name": "by-hand", "generation": 1, "resourceSliceCount": 1}
        content = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": [{"name": "x"}]}
        await world.create(kinds.SLICE, "by-hand", spec=content)
        world.offer(offer("gpu-a"))
        await until(world.devices, has_names("gpu-a", "x"))
        world.offer()
        await until(world.devices, has_names("x"))


@pytest.mark.parametrize("profile", ["1.34", "kep-5055"])
async def test_where_taints_are_dropped_a_tainted_device_is_withdrawn_and_nothing_is_written_over_and_over(
    tmp_path, until, profile
):
    async with cluster(tmp_path, profile=profile) as world:
        world.offer(offer("gpu-a", LINK), offer("gpu-b"))
        await until(world.devices, has_names("gpu-b"))
        assert world.publisher.dropped_fields == ("taints",)
        (before,) = await world.list(kinds.SLICE)
        world.offer(offer("gpu-a"), offer("gpu-b"))
        await until(world.devices, has_names("gpu-a", "gpu-b"))
        (after,) = await world.list(kinds.SLICE)
        assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
        assert len(world.watched) == 2


async def test_an_api_server_that_does_not_know_the_effect_none_gets_the_pool_without_such_taints(
    tmp_path, until
):
    informs = verdicts.Taint(key="link-slow", value="", effect=verdicts.Effect.NONE)
    async with cluster(tmp_path, profile="1.34", gates={"DRADeviceTaints": True}) as world:
        world.offer(offer("gpu-a", LINK, informs), offer("gpu-b", informs))
        devices = await until(world.devices, has_names("gpu-a", "gpu-b"))
        assert [taint["key"] for taint in devices["gpu-a"]["taints"]] == [f"{DRIVER}/{LINK.key}"]
        assert "taints" not in devices["gpu-b"]


async def test_fields_dropped_by_the_api_server_cause_no_more_writes(tmp_path, until):
    async with cluster(tmp_path) as world:
        world.wire.drops = {"attributes"}
        world.offer(offer("gpu-a"))
        assert "attributes" not in (await until(world.devices, has_names("gpu-a")))["gpu-a"]
        await world.more_rounds(5)
        assert world.wire.writes == 0
        assert world.publisher.dropped_fields == ("attributes",)


async def test_dropped_fields_are_probed_again_without_a_write(tmp_path, until):
    async with cluster(tmp_path, profile="1.34", resync_seconds=0.05) as world:
        world.offer(offer("gpu-a", LINK), offer("gpu-b"))
        await until(world.devices, has_names("gpu-b"))
        (before,) = await world.list(kinds.SLICE)

        async def count_dry_runs():
            return world.wire.dry_runs

        await until(count_dry_runs, lambda number: number > 2)
        assert world.publisher.dropped_fields == ("taints",)
        assert await world.list(kinds.SLICE) == (before,)


async def test_binding_conditions_that_are_dropped_are_left_out_and_asked_for_again_without_writing(
    tmp_path, until
):
    gates = {"DRADeviceBindingConditions": False}
    async with cluster(tmp_path, gates=gates, resync_seconds=0.05) as world:
        device = pool.held_back(slices.Device(name="fpga-a"), DRIVER)
        world.offer(plan.Offer(device=device), offer("gpu-b"))
        await until(world.devices, has_names("fpga-a", "gpu-b"))

        async def count_dry_runs():
            return world.wire.dry_runs

        await until(count_dry_runs, lambda number: number > 0)
        (before,) = await world.list(kinds.SLICE)
        seen, writes = world.wire.dry_runs, world.wire.writes
        await until(count_dry_runs, lambda number: number > seen + 2)
        assert world.wire.writes == writes
        assert world.publisher.dropped_fields == (
            "bindingConditions",
            "bindingFailureConditions",
            "bindsToNode",
        )
        assert await world.list(kinds.SLICE) == (before,)


def test_two_writers_who_disagree_do_not_chase_each_other():
    pace = publisher.Pace(jitter=random.Random(1))
    pace.note_disturbance(0.0)
    assert pace.compute_pause(0.0) == 0.0
    pauses = []
    now = 0.0
    for _ in range(8):
        now += 1.0 + (pauses[-1] if pauses else 0.0)
        pace.note_disturbance(now)
        pauses.append(pace.compute_pause(now))
    assert pauses[0] > 0
    assert pauses[-1] > 10
    assert max(pauses) <= publisher.DISTURBED_MAX_SECONDS
    assert pace.compute_pause(now + publisher.CALM_SECONDS + 1) == 0.0
    pace.note_disturbance(now + publisher.CALM_SECONDS + 1)
    assert pace.compute_pause(now + publisher.CALM_SECONDS + 1) == 0.0


def test_a_writer_that_disagrees_ten_times_a_second_is_answered_after_growing_pauses():
    pace = publisher.Pace(jitter=random.Random(1))
    now = last = 0.0
    answers = 0
    while now < 60:
        pace.note_disturbance(now)
        if now - last >= pace.compute_pause(now):
            answers, last = answers + 1, now
        now += 0.1
    assert answers < 15


def test_the_slices_of_one_wipe_count_once():
    pace = publisher.Pace(jitter=random.Random(1))
    for moment in (0.0, 0.1, 0.2):
        pace.note_disturbance(moment)
    assert pace.compute_pause(0.2) == 0.0


def test_the_pause_after_failures_is_bounded_and_reset_by_success():
    pace = publisher.Pace(jitter=random.Random(1))
    pauses = [pace.note_failure() for _ in range(30)]
    assert pauses[0] <= publisher.FAILED_FIRST_SECONDS
    assert publisher.FAILED_MAX_SECONDS / 2 <= pauses[-1] <= publisher.FAILED_MAX_SECONDS
    pace.note_success()
    assert pace.note_failure() <= publisher.FAILED_FIRST_SECONDS


@pytest.mark.parametrize("kind", ["create", "replace"])
async def test_a_round_that_fails_is_made_again(tmp_path, until, kind):
    async with cluster(tmp_path) as world:
        if kind == "replace":
            world.offer(offer("gpu-a"))
            await until(world.devices, has_names("gpu-a"))
        world.wire.refusals[kind] = 2
        world.offer(offer("gpu-a", LINK))
        await until(world.devices, lambda devices: "taints" in devices.get("gpu-a", {}))
        assert world.wire.refusals[kind] == 0


async def test_the_null_device_is_copied_while_the_api_server_cannot_share_it(tmp_path, until):
    wanted = nulls.NullDevice(enabled=True, copies=2)
    options = {"null": wanted}
    async with cluster(tmp_path, resync_seconds=0.3, **options) as world:
        world.wire.drops = {encoding.SHARING}
        world.offer(offer("gpu-a"))
        await until(world.devices, has_names("gpu-a", "none-1", "none-2"))
        assert world.events == [(NODE, reasons.NULL_DEVICE_NOT_SHARED, nulls.shortage(wanted, NODE))]
        # The gate is turned on: the next full round finds out.
        world.wire.drops = set()
        devices = await until(world.devices, has_names("gpu-a", "none"))
        assert devices["none"]["allowMultipleAllocations"] is True
        assert world.watched == {verdicts.Key(pool=NODE, device="gpu-a")}
        assert len(world.events) == 1


async def test_a_start_leaves_the_copies_of_the_null_device_as_they_are_and_says_nothing_of_them_again(
    tmp_path, until
):
    options = {"null": nulls.NullDevice(enabled=True, copies=2)}
    async with cluster(tmp_path, **options) as world:
        world.wire.drops = {encoding.SHARING}
        world.offer(offer("gpu-a"))
        await until(world.devices, has_names("gpu-a", "none-1", "none-2"))
        before = await world.list(kinds.SLICE)
        await world.stop()
        world.start()
        await world.more_rounds(3)
        assert await world.list(kinds.SLICE) == before
        assert len(world.events) == 1


async def test_a_null_device_that_is_no_longer_shared_is_reported(tmp_path, until):
    wanted = nulls.NullDevice(enabled=True, copies=2)
    options = {"null": wanted, "resync_seconds": 0.05}
    async with cluster(tmp_path, **options) as world:
        world.wire.drops = {"taints"}
        world.offer(offer("gpu-a", LINK))
        await until(world.devices, has_names("none"))
        assert (world.publisher.dropped_fields, world.events) == (("taints",), [])
        world.wire.drops = {"taints", encoding.SHARING}
        await until(world.devices, has_names("none-1", "none-2"))
        assert [message for _, _, message in world.events] == [nulls.shortage(wanted, NODE)]


@pytest.mark.defects
async def test_a_survey_that_fails_leaves_the_pool_as_it_is_and_is_made_again(tmp_path, until):
    contained = containment.Containment()
    async with cluster(tmp_path, contained=contained) as world:
        world.offer(offer("gpu-1"))
        await until(world.devices, lambda devices: "gpu-1" in devices)
        world.fails = True
        world.offer(offer("gpu-2"))
        await waiting.eventually(lambda: contained.counts()["local-pool"] > 1)
        assert (await world.devices()).keys() == {"gpu-1"}
        world.fails = False
        await until(world.devices, lambda devices: devices.keys() == {"gpu-2"})
        assert contained.count_failing()["local-pool"] == 0.0


async def test_a_refused_slice_delays_no_other_slice_of_the_node_and_is_reported_once(tmp_path, until):
    async with cluster(tmp_path) as world:
        world.wire.refused = {f"gpu-{number:02}" for number in range(64)}
        world.offer(*(offer(f"gpu-{number:02}") for number in range(65)))
        await until(world.devices, has_names("gpu-64"))
        ((name, reason, message),) = await waiting.eventually(lambda: world.events)
        assert (name, reason) == (NODE, reasons.SLICES_REFUSED)
        assert "1 of the ResourceSlices cannot be written" in message
        world.wire.refused = set()
        await until(world.devices, lambda devices: len(devices) == 65)
        assert len(world.events) == 1
