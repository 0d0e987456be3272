"""The controller: publishes what the fabrics have, and attaches what claims were given.

Order at the start, each step with its reason: learn what the API server knows, all of it; then wait to be the leader;
only then connect to the fabrics and begin to decide, since half a view would take a claim for gone or a device for
foreign. One that waits keeps its view current, so it begins at once.
"""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from drawbar.driver import evaluation
from drawbar.driver.api import attachments, claims, drivers, fabrics, meta, nodes, pods, slices
from drawbar.driver.controller import (
    absences,
    adminaccess,
    cluster,
    daemons,
    fabric_reconciler,
    hosts,
    lessons,
    names,
    refusals,
    settings,
    watches,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.attachments import actions, calls, context, delays, executor, index
from drawbar.driver.controller.classic import service as classic
from drawbar.driver.controller.fabrics import credentials, losses, redacting_adapter, sessions
from drawbar.driver.controller.immediate import allocator
from drawbar.driver.controller.leadership import elector
from drawbar.driver.controller.operation import gauges, instrumentation
from drawbar.driver.controller.pools import causes, devices, publisher
from drawbar.driver.controller.pools import plan as pool_plan
from drawbar.driver.kube import bodies, client, config, events, pace, workers
from drawbar.driver.slices import publisher as slice_publisher
from drawbar.fabric import contract, registry

log = logging.getLogger(__name__)

CHORE_WORKERS = 2
COUNTS_SECONDS = 2.0
CLAIM_TOO_LARGE = "ClaimTooLarge"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller takes from the machine and the installation it runs in.

    Attributes:
        clock: the time of day. Pauses and deadlines within the process follow the event loop's clock.
        adapters: the adapter of a name; raises `fabric.errors.InvalidConfiguration`.
        evaluator: of the selectors that tenants write.
    """

    clock: Callable[[], datetime.datetime] = _now
    adapters: redacting_adapter.AdapterOf = registry.adapter_class
    evaluator: evaluation.Evaluator = field(default_factory=evaluation.Inline)


async def run(options: settings.Settings, surroundings: Surroundings | None = None) -> None:
    """Runs until cancelled.

    Raises:
        errors.DrawbarError: something the configuration is to blame for.
    """
    settings.validate(options)
    connection = config.load(options.kubeconfig)
    writes = pace.Pace(per_second=options.writes_per_second, burst=options.writes_burst)
    measured = instrumentation.Instrumentation(options)
    async with (
        contextlib.aclosing(evaluation.Process()) as evaluator,
        client.connecting(connection, writes=writes) as api,
        measured.serving(),
        asyncio.TaskGroup() as tasks,
    ):
        counted = measured.client(api)
        offered = await watches.offered(counted, tasks)
        around = surroundings or Surroundings(evaluator=evaluator)
        controller = _Controller(options, counted, around, measured, offered)
        await controller.serve(tasks)


class _Controller:
    """Wires the watches to the queues; what is decided is decided in the plans."""

    def __init__(
        self,
        options: settings.Settings,
        api: client.Client,
        surroundings: Surroundings,
        measured: instrumentation.Instrumentation,
        offered: watches.Served,
    ) -> None:
        self._options = options
        self._measured = measured
        self._latency = measured.latency
        # Given while this one leads: only then are fabrics connected and anything is written.
        self._tasks: asyncio.TaskGroup | None = None
        self._uids: dict[str, names.DeviceKey] = {}
        self._classic = classic.ClassicAllocation(
            api, options.driver, offered.versions, surroundings.evaluator, self._classic_claim_gone
        )
        selector = options.node_daemon_selector
        pods_of_daemons = watches.DaemonPods(namespace=options.lease_namespace, labels=selector)
        watched = watches.Watches(
            api, options.driver, offered, self, daemons=pods_of_daemons if selector else None
        )
        self._mirrors = watched.running | self._classic.mirrors
        self._cluster = self._observed(api, surroundings, watched, modern=offered.modern)
        self._reconciler = fabric_reconciler.FabricReconciler(self._cluster, measured.watchdog)
        self._calls = calls.Calls(self._call_settled)
        self._context = context.Context(
            cluster=self._cluster,
            patience=datetime.timedelta(seconds=options.patience_seconds),
            binding_timeout=datetime.timedelta(seconds=options.binding_timeout_seconds),
            calls=self._calls,
            latency=measured.latency,
            borrowers=self._classic.borrowers,
        )
        self._classic.serve(self._context)
        self._immediate = allocator.Allocator(
            cluster=self._cluster,
            enabled=options.immediate_allocation,
            evaluator=surroundings.evaluator,
        )
        self._reconciler.done = self._chore_done
        self._devices = workers.PartitionedQueue[names.DeviceKey](
            lambda key: key.fabric, self._work_on_devices, workers=executor.WORKERS
        )
        self._delays = delays.Delays(context=self._context)
        shown = gauges.Gauges(
            cluster=self._cluster,
            devices_queue=self._devices,
            fabrics_queue=lambda: self._reconciler.waiting,
        )
        measured.watch(shown, {name: one.synced.is_set for name, one in self._mirrors.items()})

    def _observed(
        self, api: client.Client, surroundings: Surroundings, watched: watches.Watches, *, modern: bool
    ) -> cluster.Cluster:
        driver, clock = self._options.driver, surroundings.clock
        role = drivers.resource(credentials.ROLE, driver)
        vault = credentials.Vault(api, self._options.lease_namespace, role=role)
        opened = sessions.Sessions(self, self._measured.adapters(surroundings.adapters), vault)
        return cluster.Cluster(
            api=api,
            driver=driver,
            clock=clock,
            fabrics=watched.fabrics,
            attachments=watched.attachments,
            claims=watched.claims,
            nodes=watched.nodes,
            slices=watched.slices,
            placed=index.Index(),
            allocated=claim_index.Index(driver, clock),
            observers=claim_index.Index(driver, clock, devices=adminaccess.devices),
            unattached=claim_index.Index(driver, clock, devices=claim_index.without_conditions),
            sessions=opened,
            pools=publisher.Publisher(
                api,
                driver=driver,
                published=watched.slices,
                observe=lambda *seen: fabric_reconciler.observe(self._cluster, *seen),
                clock=clock,
                store=None if modern else slice_publisher.Memory(),
            ),
            daemons=daemons.Daemons(judged=watched.daemons is not None),
            absences=absences.Absences(watched.nodes, opened, clock),
            refusals=refusals.Refusals(self.troubles_changed),
            recorder=events.Recorder(api, controller=driver, instance=self._options.candidate),
        )

    async def _work_on_devices(self, queue: workers.WorkQueue[names.DeviceKey]) -> None:
        await executor.work(queue, self._reconcile)

    async def _reconcile(self, key: names.DeviceKey) -> float | None:
        with (
            self._measured.watchdog.watching(f"device {key.attachment}"),
            self._cluster.refusals.attempt((key.fabric,), f"device {key.device}"),
        ):
            return await executor.reconcile(self._context, key)

    async def serve(self, tasks: asyncio.TaskGroup) -> None:
        for one in self._mirrors.values():
            tasks.create_task(one.run(), name="reflector")
        tasks.create_task(self._cluster.recorder.run(), name="events")
        for one in self._mirrors.values():
            await one.synced.wait()
        options = self._options
        log.info("controller is ready", extra={"driver": options.driver, "server": self._cluster.api.server})
        if not options.leader_election:
            await self._lead()
        candidate = elector.Elector(
            self._cluster.api.hurried(),
            namespace=options.lease_namespace,
            name=options.lease,
            identity=options.candidate,
        )
        await candidate.run(self._lead)

    async def _lead(self) -> None:
        """Does the work until cancelled. What an earlier term knew of its calls is asked of the fabrics again.

        One that has waited for long lists everything once more: a claim that a dead watch kept from it would be taken for
        gone, and its device for nobody's.
        """
        async with asyncio.TaskGroup() as renewing:
            for one in self._mirrors.values():
                renewing.create_task(one.renew(), name="renew")
        self._calls.clear()
        self._cluster.refusals.clear()
        self._cluster.sessions.cluster = await cluster.identity(self._cluster.api)
        try:
            with self._measured.leading():
                await self._work()
        finally:
            self._tasks = None
            self._devices.stop()
            self._cluster.sessions.clear()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for fabric in self._cluster.fabrics:
                self._cluster.sessions.put(fabric, tasks)
                self._look_after(fabric.metadata.name)
            for key in self._keys():
                self._devices.add(key)
            for claim in self._cluster.observers:
                self._answer(claim)
            for metadata in self._cluster.claims.too_large.values():
                self.claim_too_large(metadata)
            tasks.create_task(self._delays.run(), name="delays")
            tasks.create_task(self._immediate.run(), name="immediate")
            self._classic.work(tasks)
            self._devices.start(tasks)
            for number in range(CHORE_WORKERS):
                tasks.create_task(self._reconciler.work(), name=f"chores-{number}")
            await asyncio.get_running_loop().create_future()

    def _chore_done(self) -> None:
        self._immediate.look_again()
        self._classic.look_again()

    # What the API server tells.

    def fabric_changed(self, old: fabrics.Fabric | None, new: fabrics.Fabric | None) -> None:
        if self._tasks is None:
            return
        name = (new or old).metadata.name  # type: ignore[union-attr] # one of the two is always given
        if new is None:
            self._cluster.sessions.drop(name)
            self._measured.metrics.forget_fabric(name)
            self._cluster.refusals.forget(name)
            self._reconciler.add(fabric_reconciler.What.LABELS)
        else:
            self._cluster.sessions.put(new, self._tasks)
        if new is None or old is None or _asked(old) != _asked(new):
            self._look_after(name)

    def _look_after(self, fabric: str) -> None:
        for what in (
            fabric_reconciler.What.PUBLISH,
            fabric_reconciler.What.STATUS,
            fabric_reconciler.What.FINALIZER,
        ):
            self._reconciler.add(what, fabric)
        self._reconciler.add(fabric_reconciler.What.LABELS)

    def attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._uids.pop(old.metadata.uid, None)
            self._calls.forget(old.metadata.uid)
        found = new or old
        assert found is not None
        key = names.DeviceKey(fabric=found.spec.fabric, device=found.spec.device)
        self._look_at_release(key, old, new)
        self._cluster.placed.change(old, new, self._cluster.clock())
        if new is not None:
            self._uids[new.metadata.uid] = key
        if self._tasks is not None:
            self._latency.changed(key, old, new)
        self._devices.add(key)
        self._classic.look_again()
        for claim in self._cluster.observers.of(key):
            self._answer(claim)
        self._reconciler.add(fabric_reconciler.What.STATUS, key.fabric, after=COUNTS_SECONDS)
        if new is None:
            self._reconciler.add(
                fabric_reconciler.What.FINALIZER, key.fabric, after=fabric_reconciler.GATHER_SECONDS
            )
        fabric = self._cluster.fabrics.get(key.fabric)
        if (old is None or new is None) and fabric is not None and fabric.spec.policy.models:
            self._reconciler.add(fabric_reconciler.What.LABELS)
        view = self._cluster.sessions.get(key.fabric)
        if view is not None:
            view.reconsider(key.device)
        if lessons.learn(self._cluster.sessions.get(key.fabric), old, new, self._cluster.clock()):
            self._reconciler.add(fabric_reconciler.What.LABELS, after=fabric_reconciler.GATHER_SECONDS)
            self._reconciler.add(
                fabric_reconciler.What.STATUS, key.fabric, after=fabric_reconciler.GATHER_SECONDS
            )
        was_ours, is_ours = (one is not None and not one.held_by_hand for one in (old, new))
        moved = was_ours != is_ours and self._shows_owner(key)
        if moved or causes.of_attachment(old) != causes.of_attachment(new):
            self._reconciler.add(
                fabric_reconciler.What.PUBLISH, key.fabric, after=fabric_reconciler.GATHER_SECONDS
            )

    def _look_at_release(
        self,
        key: names.DeviceKey,
        old: attachments.DeviceAttachment | None,
        new: attachments.DeviceAttachment | None,
    ) -> None:
        """A release that takes too long shows in the pool, until it is over."""
        if new is None:
            seconds = self._cluster.placed.release_seconds(key.attachment, self._cluster.clock())
            if seconds is not None and seconds >= index.RELEASE_SECONDS:
                self._reconciler.add(
                    fabric_reconciler.What.PUBLISH, key.fabric, after=fabric_reconciler.GATHER_SECONDS
                )
        elif new.deleting and not (old and old.deleting):
            self._reconciler.add(fabric_reconciler.What.PUBLISH, key.fabric, after=index.RELEASE_SECONDS)

    def claim_changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        keys = self._cluster.allocated.change(old, new)
        for key in keys:
            self._devices.add(key)
            if self._has_moved(key, old) or self._has_moved(key, new):
                self._reconciler.add(fabric_reconciler.What.PUBLISH, key.fabric)
        if keys and self._tasks is not None:
            self._latency.claim_changed(keys, old, new)
        self._immediate.changed(old, new)
        self._cluster.observers.change(old, new)
        self._cluster.unattached.change(old, new)
        if adminaccess.devices(new, self._options.driver):
            self._answer(new)

    def claim_too_large(self, metadata: meta.ObjectMeta) -> None:
        if self._tasks is None:
            return
        regarding = attachments.ClaimReference(
            namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
        )
        self._cluster.recorder.warning(
            regarding,
            reason=CLAIM_TOO_LARGE,
            message=f"the claim is larger than {bodies.LIMIT_BYTES // 1024**2} MiB as JSON and is not read: nothing is "
            "attached for it, and what is attached stays; shorten its selectors, parameters and annotations",
        )

    def _classic_claim_gone(self, uid: str) -> None:
        for attachment in self._cluster.attachments:
            if attachment.spec.claim is not None and attachment.spec.claim.uid == uid:
                self._devices.add(self._uids[attachment.metadata.uid])

    def _call_settled(self, uid: str, side: actions.Side, reason: str | None) -> None:
        key = self._uids.get(uid)
        if key is not None:
            self._latency.settled(key, side, reason)

    def _answer(self, claim: claims.ResourceClaim | None) -> None:
        if claim is not None:
            self._reconciler.add(
                fabric_reconciler.What.ADMIN, f"{claim.metadata.namespace}/{claim.metadata.name}"
            )

    def node_changed(self, old: nodes.Node | None, new: nodes.Node | None) -> None:
        if new is not None:
            self._cluster.absences.see(new.metadata.name)
        elif old is not None:
            self._cluster.daemons.forget(old.metadata.name)
            if any(self._cluster.placed.on(old.metadata.name)):
                self._cluster.absences.see(old.metadata.name)
        if old is None or new is None or hosts.shape(old) != hosts.shape(new):
            self._reconciler.add(fabric_reconciler.What.LABELS, after=fabric_reconciler.GATHER_SECONDS)
        if old is not None and (new is None or new.out_of_service != old.out_of_service):
            self._immediate.look_again()
            self._classic.look_again()
            for attachment in self._cluster.placed.on(old.metadata.name):
                self._devices.add(self._uids[attachment.metadata.uid])

    def daemon_changed(self, old: pods.Pod | None, new: pods.Pod | None) -> None:
        if self._cluster.daemons.change(old, new):
            self._reconciler.add(fabric_reconciler.What.LABELS, after=fabric_reconciler.GATHER_SECONDS)

    def slice_changed(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        self._cluster.pools.changed(old, new)
        self._immediate.published(old, new)
        found = new or old
        fabric = found.metadata.labels.get(pool_plan.FABRIC_LABEL) if found else None
        if fabric is not None:
            self._reconciler.add(
                fabric_reconciler.What.PUBLISH,
                fabric,
                after=0.0 if new is None else fabric_reconciler.GATHER_SECONDS,
            )

    # What the fabrics tell.

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        found = new or old
        assert found is not None
        key = names.DeviceKey(fabric=fabric, device=names.label(found.id))
        self._devices.add(key)
        self._classic.look_again()
        shown = (
            old is None
            or new is None
            or devices.shape(old) != devices.shape(new)
            or devices.is_free(old) != devices.is_free(new)
        )
        # An attach of ours changes nothing of what is published.
        ours = (
            old is not None
            and new is not None
            and devices.shape(old) == devices.shape(new)
            and self._is_ours(key)
        )
        if shown and not ours:
            self._reconciler.add(
                fabric_reconciler.What.PUBLISH, fabric, after=fabric_reconciler.GATHER_SECONDS
            )

    def hosts_changed(self, fabric: str) -> None:
        view = self._cluster.sessions.get(fabric)
        if view is not None and view.nodes.host_of:
            # Ports fill and empty all the time; what that means for the nodes can wait for the next ones.
            self._reconciler.add(fabric_reconciler.What.LABELS, after=fabric_reconciler.GATHER_SECONDS)
        else:
            self._reconciler.map(fabric)

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        uid = calls.attachment_uid(operation.request_id)
        key, side = self._uids.get(uid), self._calls.side(uid, operation.request_id)
        if key is None or side is None:
            return
        now = asyncio.get_running_loop().time()
        # What the call's answer told already may be overtaken by now.
        known = self._calls.view(uid, side, now).state == "succeeded"
        self._calls.settle(uid, side, operation, now, watched=True)
        view = self._cluster.sessions.get(fabric)
        if view is not None and operation.succeeded and operation.device is not None and not known:
            view.learn(operation.device)
        self._devices.add(key)

    def turn_came(self, key: names.DeviceKey) -> None:
        self._devices.add(key)

    def witnesses(self, fabric: str) -> dict[str, losses.Witness]:
        return {
            one.spec.device: losses.witness(
                one, node_gone=self._cluster.absences.is_gone(one.spec.node_name, (one.spec.fabric,))
            )
            for one in self._cluster.placed.of(fabric)
        }

    def published(self, fabric: str) -> frozenset[str]:
        return frozenset(device.name for one in self._cluster.pools.of(fabric) for device in one.spec.devices)

    def troubles_changed(self, fabric: str) -> None:
        self._reconciler.add(fabric_reconciler.What.STATUS, fabric, after=fabric_reconciler.GATHER_SECONDS)

    def connection_changed(self, fabric: str) -> None:
        self._reconciler.add(fabric_reconciler.What.STATUS, fabric)
        self._reconciler.add(fabric_reconciler.What.LABELS)
        self._reconciler.add(
            fabric_reconciler.What.PUBLISH, fabric, after=self._reconciler.grace_seconds(fabric)
        )
        for key in self._keys():
            if key.fabric == fabric:
                self._devices.add(key)

    def _keys(self) -> tuple[names.DeviceKey, ...]:
        """The devices that are attached or were given to a claim, each once."""
        return tuple(dict.fromkeys((*self._uids.values(), *self._cluster.allocated.keys())))

    def _is_ours(self, key: names.DeviceKey) -> bool:
        return self._cluster.attachments.get(key.attachment) is not None

    def _has_moved(self, key: names.DeviceKey, claim: claims.ResourceClaim | None) -> bool:
        """Whether the device was given to the claim out of a pool that its enclosure does not have."""
        view, given = self._cluster.sessions.get(key.fabric), claim_index.devices(claim, self._options.driver)
        device = view.device(key.device) if view is not None else None
        if device is None or key not in given:
            return False
        pool = names.pool(key.fabric, device.enclosure)
        return given[key].pool != pool and not given[key].pool.startswith(f"{pool}/")

    def _shows_owner(self, key: names.DeviceKey) -> bool:
        """Whose a device is shows in its pool only while it is connected, or if it is reserved."""
        view = self._cluster.sessions.get(key.fabric)
        device = view.device(key.device) if view is not None else None
        if view is None or device is None:
            return False
        return not devices.is_free(device) or view.spec.policy.immediate.holds(device.id, device.model)


def _asked(fabric: fabrics.Fabric) -> tuple[object, ...]:
    """What of a Fabric people decide."""
    return fabric.spec, fabric.deleting, fabric.metadata.annotations.get(fabrics.GIVE_UP_ANNOTATION)
