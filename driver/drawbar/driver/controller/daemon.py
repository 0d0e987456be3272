"""The controller: publishes what the fabrics have, and attaches what claims were given.

Order at the start, each step with its reason: learn what the API server knows, all of it; then wait to be the leader;
only then connect to the fabrics and begin to decide, since half a view would take a claim for gone or a device for
foreign. One that waits keeps its view current, so it begins at once.
"""

import asyncio
import datetime
import logging
import socket
import time
from dataclasses import dataclass, replace
from typing import Any

from drawbar.driver.api import attachments, claims, fabrics, nodes, slices
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import hosts, labels, lanes, names, settings
from drawbar.driver.controller.attachments import calls, executor
from drawbar.driver.controller.attachments import plan as attachment_plan
from drawbar.driver.controller.fabrics import directory, status
from drawbar.driver.controller.leadership import elector
from drawbar.driver.controller.pools import plan as pool_plan
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import client, config, events, kinds, queue, reflector
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract

log = logging.getLogger(__name__)

CHORE_WORKERS = 2
# Changes that come together become one write.
GATHER_SECONDS = 0.05
COUNTS_SECONDS = 2.0
RESYNC_SECONDS = 300.0
PUBLISH, STATUS, LABELS = "publish", "status", "labels"
Chore = tuple[str, str]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


async def run(options: settings.Settings) -> None:
    """Runs until cancelled.

    Raises:
        errors.DrawbarError: something the configuration is to blame for.
    """
    settings.validate(options)
    connection = config.load(options.kubeconfig)
    async with client.connecting(connection) as api, asyncio.TaskGroup() as tasks:
        await _Controller(options, api).serve(tasks)


class _Controller:
    """Wires the watches to the queues; what is decided is decided in the plans."""

    def __init__(self, options: settings.Settings, api: client.Client) -> None:
        self._options = options
        self._api = api
        # Given while this one leads: only then are fabrics connected and anything is written.
        self._tasks: asyncio.TaskGroup | None = None
        self._uids: dict[str, names.DeviceKey] = {}
        self._chores: queue.WorkQueue[Chore] = queue.WorkQueue()
        self._index = claim_index.Index(options.driver)
        self._calls = calls.Calls()
        self._directory = directory.Directory(self)
        self._recorder = events.Recorder(api, controller=options.driver, instance=socket.gethostname())
        self._fabrics = reflector.Reflector(
            api, kinds.FABRIC, into=fabrics.Fabric, changed=self._fabric_changed
        )
        self._attachments = reflector.Reflector(
            api, kinds.ATTACHMENT, into=attachments.DeviceAttachment, changed=self._attachment_changed
        )
        self._claims = reflector.Reflector(
            api, kinds.CLAIM, into=claims.ResourceClaim, changed=self._claim_changed
        )
        self._nodes = reflector.Reflector(api, kinds.NODE, into=nodes.Node, changed=self._node_changed)
        self._slices = reflector.Reflector(
            api,
            kinds.SLICE,
            into=slices.ResourceSlice,
            changed=self._slice_changed,
            fields=f"spec.driver={options.driver}",
        )
        self._pools = publisher.Publisher(
            api, driver=options.driver, published=self._slices, observe=self._observe_pools, clock=_now
        )
        self._context = executor.Context(
            api=api,
            driver=options.driver,
            patience=datetime.timedelta(seconds=options.patience_seconds),
            fabrics=self._directory,
            attachments=self._attachments,
            claims=self._claims,
            nodes=self._nodes,
            index=self._index,
            pools=self._pools,
            calls=self._calls,
            recorder=self._recorder,
            clock=_now,
        )
        self._lanes = lanes.Lanes(lambda key: executor.reconcile(self._context, key))

    async def serve(self, tasks: asyncio.TaskGroup) -> None:
        watched: tuple[reflector.Reflector[Any], ...] = (
            self._fabrics,
            self._attachments,
            self._claims,
            self._nodes,
            self._slices,
        )
        for one in watched:
            tasks.create_task(one.run(), name="reflector")
        tasks.create_task(self._recorder.run(), name="events")
        for one in watched:
            await one.synced.wait()
        options = self._options
        log.info("controller is ready", extra={"driver": options.driver, "server": self._api.server})
        if not options.leader_election:
            await self._lead()
        candidate = elector.Elector(
            self._api, namespace=options.lease_namespace, name=settings.LEASE, identity=options.identity
        )
        await candidate.run(self._lead)

    async def _lead(self) -> None:
        """Does the work until cancelled. What an earlier term knew of its calls is asked of the fabrics again."""
        self._calls.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for fabric in self._fabrics:
                    self._directory.put(fabric, tasks)
                for key in {*self._uids.values(), *self._index.keys()}:
                    self._lanes.add(key)
                self._lanes.start(tasks)
                for number in range(CHORE_WORKERS):
                    tasks.create_task(self._do_chores(), name=f"chores-{number}")
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            self._lanes.stop()
            self._directory.clear()

    # What the API server tells.

    def _fabric_changed(self, old: fabrics.Fabric | None, new: fabrics.Fabric | None) -> None:
        if self._tasks is None:
            return
        name = (new or old).metadata.name  # type: ignore[union-attr] # one of the two is always given
        if new is None:
            self._directory.drop(name)
            self._chores.add((LABELS, ""))
        else:
            self._directory.put(new, self._tasks)
        if new is None or old is None or old.spec != new.spec:
            self._chores.add((PUBLISH, name))
            self._chores.add((STATUS, name))

    def _attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._uids.pop(old.metadata.uid, None)
            self._calls.forget(old.metadata.uid)
        found = new or old
        assert found is not None
        key = names.DeviceKey(fabric=found.spec.fabric, device=found.spec.device)
        if new is not None:
            self._uids[new.metadata.uid] = key
        self._lanes.add(key)
        self._chores.add_after((STATUS, key.fabric), COUNTS_SECONDS)
        before, after = _verdict(old), _verdict(new)
        # Whose a device is shows in its pool only while it is connected.
        if before.failing != after.failing or (before.ours != after.ours and self._is_connected(key)):
            self._chores.add_after((PUBLISH, key.fabric), GATHER_SECONDS)

    def _claim_changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        for key in self._index.change(old, new):
            self._lanes.add(key)

    def _node_changed(self, old: nodes.Node | None, new: nodes.Node | None) -> None:
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        self._chores.add_after((LABELS, ""), GATHER_SECONDS)
        if new is None and old is not None:
            for attachment in self._attachments:
                if attachment.spec.node_name == old.metadata.name:
                    self._lanes.add(self._uids[attachment.metadata.uid])

    def _slice_changed(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        found = new or old
        fabric = found.metadata.labels.get(pool_plan.FABRIC_LABEL) if found else None
        if fabric is not None:
            self._chores.add_after((PUBLISH, fabric), 0.0 if new is None else GATHER_SECONDS)

    # What the fabrics tell.

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        found = new or old
        assert found is not None
        key = names.DeviceKey(fabric=fabric, device=names.label(found.id))
        self._lanes.add(key)
        shown = old is None or new is None or _shape(old) != _shape(new) or _is_free(old) != _is_free(new)
        # An attach of ours changes nothing of what is published.
        ours = old is not None and new is not None and _shape(old) == _shape(new) and self._is_ours(key)
        if shown and not ours:
            self._chores.add_after((PUBLISH, fabric), GATHER_SECONDS)

    def hosts_changed(self, fabric: str) -> None:
        self._map(fabric)

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        uid = operation.request_id.rpartition("-")[0]
        key, side = self._uids.get(uid), self._calls.side(uid, operation.request_id)
        if key is None or side is None:
            return
        self._calls.settle(uid, side, operation, time.monotonic())
        view = self._directory.get(fabric)
        if view is not None and operation.succeeded and operation.device is not None:
            view.learn(operation.device)
        self._lanes.add(key)

    def connection_changed(self, fabric: str) -> None:
        self._chores.add((STATUS, fabric))
        self._chores.add((LABELS, ""))
        for key in {*self._uids.values(), *self._index.keys()}:
            if key.fabric == fabric:
                self._lanes.add(key)

    # Chores: what is done per fabric, or for all nodes.

    async def _do_chores(self) -> None:
        while True:
            chore = await self._chores.take()
            try:
                await self._do(chore)
            except kube_errors.KubeError as error:
                pause = self._chores.retry(chore)
                log.warning("will try again: %s", error, extra={"seconds": round(pause, 2)})
            else:
                self._chores.forget(chore)
            finally:
                self._chores.done(chore)

    async def _do(self, chore: Chore) -> None:
        what, fabric = chore
        if what == PUBLISH:
            again = await self._publish(fabric)
            if self._fabrics.get(fabric) is not None:
                self._chores.add_after(chore, RESYNC_SECONDS if again is None else min(again, RESYNC_SECONDS))
        elif what == STATUS:
            await self._write_status(fabric)
        else:
            await self._write_labels()

    async def _publish(self, fabric: str) -> float | None:
        dropped = self._pools.dropped_fields
        try:
            again = await self._pools.publish(fabric)
        except (kube_errors.Denied, kube_errors.Invalid) as error:
            self._say_published(fabric, str(error))
            raise
        self._say_published(fabric, "")
        if dropped != self._pools.dropped_fields:
            for one in self._directory:
                self._chores.add((STATUS, one.name))
        return again

    def _say_published(self, fabric: str, refused: str) -> None:
        view = self._directory.get(fabric)
        if view is not None and view.unpublished != refused:
            view.unpublished = refused
            self._chores.add((STATUS, fabric))

    async def _write_status(self, name: str) -> None:
        fabric, view = self._fabrics.get(name), self._directory.get(name)
        if fabric is None or view is None:
            return
        attached = sum(
            one.spec.fabric == name and one.holds(attachments.ATTACHED) for one in self._attachments
        )
        wanted = status.status(
            fabric, view.view, dropped_fields=self._pools.dropped_fields, attached=attached, now=_now()
        )
        if wanted == fabric.status:
            return
        stored = await self._api.patch(
            kinds.FABRIC,
            name,
            status.document(fabric, wanted),
            content=client.Patch.APPLY,
            into=fabrics.Fabric,
            subresource="status",
            manager=executor.MANAGER,
        )
        self._fabrics.learn(stored)

    async def _write_labels(self) -> None:
        for view in self._directory:
            self._map(view.name)
        reached = {view.name: view.nodes.with_room if view.listed else None for view in self._directory}
        for change in labels.plan(self._nodes, reached):
            stored = await self._api.patch(
                kinds.NODE,
                change.node,
                {"metadata": {"labels": change.labels}},
                content=client.Patch.MERGE,
                into=nodes.Node,
                manager=executor.MANAGER,
            )
            self._nodes.learn(stored)

    def _map(self, fabric: str) -> None:
        view = self._directory.get(fabric)
        if view is None or not view.listed:
            return
        mapped = hosts.node_map(view.spec, view.hosts, {node.metadata.name for node in self._nodes})
        if mapped != view.nodes:
            view.nodes = mapped
            self._chores.add_after((STATUS, fabric), GATHER_SECONDS)
            self._chores.add_after((LABELS, ""), GATHER_SECONDS)

    def _observe_pools(
        self, fabric: str, published: tuple[slices.ResourceSlice, ...], keeps_conditions: bool
    ) -> pool_plan.Observed | None:
        known, view = self._fabrics.get(fabric), self._directory.get(fabric)
        ours = [one for one in self._attachments if one.spec.fabric == fabric]
        if known is None:
            # A pool goes with its Fabric, but not from under devices that are still attached.
            found: tuple[contract.Device, ...] | None = None if ours else ()
        else:
            found = view.devices if view is not None and view.listed else None
        failing = {one.spec.device: _verdict(one).failing for one in ours}
        probation = known.spec.policy.probation_seconds if known else 0
        return pool_plan.Observed(
            driver=self._options.driver,
            fabric=fabric,
            devices=found,
            attached_by_us=frozenset(one.spec.device for one in ours if one.spec.claim is not None),
            failing={device: reason for device, reason in failing.items() if reason},
            published=published,
            keeps_conditions=keeps_conditions,
            probation=datetime.timedelta(seconds=probation),
        )

    def _is_ours(self, key: names.DeviceKey) -> bool:
        return self._attachments.get(key.attachment) is not None

    def _is_connected(self, key: names.DeviceKey) -> bool:
        view = self._directory.get(key.fabric)
        device = view.device(key.device) if view is not None else None
        return device is not None and not _is_free(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """What of an attachment shows in its pool.

    Attributes:
        ours: a claim of this cluster has the device.
        failing: the reason that the device is to blame for, or empty.
    """

    ours: bool
    failing: str


def _verdict(attachment: attachments.DeviceAttachment | None) -> _Verdict:
    failure = attachment_plan.problem(attachment) if attachment is not None else None
    blamed = failure is not None and failure.reason not in attachment_plan.NOT_THE_DEVICE
    return _Verdict(
        ours=attachment is not None and attachment.spec.claim is not None,
        failing=failure.reason if failure is not None and blamed else "",
    )


def _is_free(device: contract.Device) -> bool:
    return device.connection is None


def _shape(device: contract.Device) -> contract.Device:
    """What of a device is published."""
    return replace(device, connection=None, etag=None)
