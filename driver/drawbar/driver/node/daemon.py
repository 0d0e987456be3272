"""The node daemon: it follows attachments and hot-plug, and serves the kubelet.

The start has a fixed order. The daemon subscribes to uevents before it reads sysfs, so no change is missed, and a change in
between is seen twice. Then it learns this node's attachments and restores the prepared claims. After that it registers
with the kubelet, which may call from then on.

During a rolling update there are two instances. Both follow the kernel and answer the kubelet. The kubelet calls the last
instance to register. Only one instance acts: it makes devices ready, releases them, writes to attachments and claims, and
publishes the node's pools. This is the instance with the lock `acting.lock` in the driver's directory, until its process ends.
The older instance goes on acting, because it is known to work. So an update whose new pod never becomes ready changes nothing.
"""

import asyncio
import contextlib
import functools
import logging

from drawbar.driver import clocks, evaluation, watching
from drawbar.driver.api import attachments, nodepools
from drawbar.driver.catalogue import reasons
from drawbar.driver.configuration import loader
from drawbar.driver.kube import client, config, events, kinds, mirror, workers
from drawbar.driver.node import claim_versions, kernel, parts, settings, treatment, uevents, watches
from drawbar.driver.node.attachments import context, exclusiveness, executor, probation
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import devices, live
from drawbar.driver.node.health import attached, monitor, readings, verdicts
from drawbar.driver.node.local import publisher, residents
from drawbar.driver.node.operation import host, instrumentation
from drawbar.driver.node.plugin import server, sockets
from drawbar.driver.node.preparation import (
    cdifiles,
    cleaning,
    holders,
    locks,
    store,
    sweeping,
)
from drawbar.driver.node.treatment import hooks

log = logging.getLogger(__name__)

WORKERS = 4
HELD_LOOK_SECONDS = 1.0


async def run(options: settings.Settings) -> None:
    """Run the daemon until cancelled.

    Raises:
        errors.DrawbarError: this host or the configuration has a fault.
    """
    loader.refuse(settings.problems(options))
    where = sockets.paths(options.kubelet_dir, options.driver, options.instance)
    await host.check(options)
    connection = config.load(options.kubeconfig)
    # Before the daemon reads or writes anything: the files may belong to another instance.
    sockets.prepare(where)
    measured = instrumentation.Instrumentation(options)
    with measured.contained.callbacks():
        async with (
            client.connecting(connection) as api,
            uevents.listening(options.uevents) as source,
            measured.serving(),
            asyncio.TaskGroup() as tasks,
        ):
            await _Node(options, measured.client(api), measured).serve(measured.uevents(source), where, tasks)


def _wait_for_another() -> None:
    log.info("another instance acts on the devices of this node: serving the kubelet beside it until it ends")


class _Node:
    """The parts of one node daemon, made in the order of their dependencies."""

    def __init__(
        self, options: settings.Settings, api: client.Client, measured: instrumentation.Instrumentation
    ) -> None:
        made = _basis(options, api, measured)
        self._options, self._measured, self._contained = options, measured, made.contained
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()
        self._recorder, self._changes = made.recorder, made.changes
        self._arrivals, self._attachments, self._own = made.arrivals, made.attached, made.own
        self._served, self._holders, self._verdicts = made.served, made.holders, made.verdicts
        # The process runs only if there is a selector, and only while devices change.
        self._evaluator = evaluation.Process()
        self._neighbours = parts.build_neighbours(made)
        # All claims are watched only if the scheduler waits for a device of this node.
        self._holds_back = asyncio.Event()
        self._local = parts.residents(made, self._neighbours, self._evaluator, self._holds_back)
        self._publisher = parts.build_publisher(made, self._local)
        treated = treatment.Executor(made.kernel, limits=options.release)
        hooked = hooks.Runner(options.initialise, made.kernel, made.contained)
        self._cleaner = parts.cleaner(made, treated, hooked, self._local)
        self._networks = parts.reporting_networks(made)
        self._context = parts.surroundings(made, treated, hooked, self._find_sharing)
        self._demanded = parts.build_demands(made, self._context, self._cleaner, self._local, self._publisher)
        finder = parts.finder(made, self._context, self._cleaner, self._local, self._demanded)
        self._preparer = parts.preparation(made, finder, self._networks, self._cleaner, self._demanded)
        self._sweeper = sweeping.Sweeper(self._preparer, finder, made.reader, made.contained)
        self._watched = attached.AttachedDevices(
            made.verdicts, made.recorder, self._context.card, lambda: measured.acting.reached
        )
        self._exclusiveness = parts.exclusive(made, self._context, self._neighbours)
        self._claims = parts.follow_claims(made, self._demanded)
        self._connect()
        self._show()

    def _connect(self) -> None:
        """Follow the sources of changes, and connect the reconcilers that watch them."""
        self._attachments.follow(self._attachment_changed)
        self._attachments.report_unreadable(self._recorder.unreadable)
        self._verdicts.subscribe(self._verdict_changed)
        self._arrivals.subscribe(self._hardware_changed)
        self._changes.connect(
            watching.Reconciler(watches.ATTACHMENTS, self._queue.add),
            watching.Reconciler(watches.HEALTH, self._verdicts.request_reading),
            watching.Reconciler(watches.WAITING_CLAIMS, lambda _: self._preparer.wake()),
            watching.Reconciler(watches.LOCAL_POOL, lambda _: self._publisher.request_survey()),
            watching.Reconciler(watches.CLEANING, self._clean),
            watching.Reconciler(watches.DEMANDS, lambda _: self._demanded.requeue_all()),
        )

    def _clean(self, key: str | tuple[str, str]) -> None:
        if isinstance(key, str):
            self._cleaner.look()
        else:
            self._cleaner.start_cleaning(*key)

    def _find_sharing(self, attachment: attachments.DeviceAttachment) -> context.Sharing:
        """Return the use of the virtual functions of an attachment's card."""
        functions = self._local.virtual_functions(attachment)
        if not functions:
            return context.Sharing()
        clauses = []
        for pool, device in sorted(self._holders.list_devices()):
            if device in functions and (not pool or self._local.owns(pool)):
                uid = self._holders.find(pool, device) or ""
                claim = self._holders.store.claims.get(uid)
                holder = f"{claim.namespace}/{claim.name}" if claim is not None else f"of uid {uid}"
                clauses.append(f"claim {holder} has {device}")
        offered = (device.name for listed in self._publisher.published for device in listed.spec.devices)
        return context.Sharing(claims=tuple(clauses), offered=not functions.isdisjoint(offered))

    def _show(self) -> None:
        """Show an administrator the state of the parts."""
        measured = self._measured
        measured.watch_attachments(self._own)
        measured.watch_devices(self._arrivals)
        measured.watch_verdicts(self._verdicts)
        measured.watch_prepared(
            lambda: sum(len(claim.devices) for claim in self._holders.store.claims.values())
        )
        measured.watch_unreadable(
            lambda: (
                mirror.count_unreadable((self._attachments, self._claims))
                | self._publisher.count_unreadable()
            )
        )
        measured.watch_neighbours(
            self._neighbours.count_left_out,
            lambda: exclusiveness.count(self._own) + len(self._neighbours.conflicts),
        )
        measured.watch_queue(lambda: len(self._queue), lambda: self._recorder.dropped)

    async def serve(
        self, source: uevents.UeventSource, where: sockets.Sockets, tasks: asyncio.TaskGroup
    ) -> None:
        await self._arrivals.read()
        start = functools.partial(self._contained.start, tasks)
        start("uevents", functools.partial(self._arrivals.follow, source))
        start(self._attachments.worker, self._attachments.run)
        start("events", self._recorder.run)
        start("served-versions", self._served.run)
        await self._attachments.synced.wait()
        self._measured.synced.reached = True
        await self._preparer.restore()
        for uid in self._holders.store.claims:
            self._networks.report(uid)
        self._measured.restored.reached = True
        # The served versions decide which objects get reports.
        await self._served.known.wait()
        await publisher.say_conflicts(self._options.cdi_dir, self._options.driver)
        start("health", self._verdicts.run)
        start("networks", self._networks.run)
        sockets.sweep(self._options.kubelet_dir, self._options.driver)
        prepared = self._measured.preparation(self._preparer, self._recorder)
        async with server.serving(
            self._options.driver, where, prepared, self._verdicts, self._measured.registered.reach
        ):
            log.info("node daemon is ready", extra={"node": self._options.node_name})
            # Inside the block: at the end, another instance may act at once while this one answers its last calls.
            await self._act()

    async def _act(self) -> None:
        """Wait until no other instance acts, then act on the node's devices until cancelled."""
        measured, lock = self._measured, self._options.acting_lock
        async with locks.Lock(lock).hold(None, on_wait=_wait_for_another):
            measured.acting.reached = True
            log.info("acting on the devices of this node", extra={"node": self._options.node_name})
            # Hooks have the outer group: a worker may begin one while the inner group ends.
            async with asyncio.TaskGroup() as hooks, asyncio.TaskGroup() as tasks:
                self._context.hooks.tasks = hooks
                start = functools.partial(self._contained.start, tasks)
                for number in range(WORKERS):
                    start("attachments", self._work, subject=f"worker {number}")
                start("sweeper", self._sweeper.run)
                # The held devices are known by now, so they stay published.
                start("local-pool", self._publish)
                start(self._neighbours.worker, self._follow_neighbours)
                start("local-cleaning", functools.partial(self._cleaner.run, self._demanded.end_claim))
                start("local-devices", self._demanded.run)
                start(self._claims.worker, self._follow_claims)

    async def _work(self) -> None:
        """Reconcile attachments until cancelled."""
        await self._queue.run(
            self._reconcile,
            lambda name: {"attachment": name},
            worker="attachments",
            contained=self._contained,
            report=self._report_unexpected,
        )

    def _report_unexpected(self, name: str, failure: str) -> None:
        """Emit an Event on an attachment and its claim."""
        attachment = self._own.get(name)
        if attachment is not None:
            self._recorder.record_unexpected(kinds.ATTACHMENT, attachment.metadata, failure)
            self._recorder.record_warning(
                attachment.spec.claim, reason=reasons.UNEXPECTED_ERROR, message=failure
            )

    async def _follow_neighbours(self) -> None:
        await self._served.modern.wait()
        await self._neighbours.run()

    async def _publish(self) -> None:
        await self._served.modern.wait()
        # So that a device of another driver is never offered, even for a moment.
        await self._neighbours.synced.wait()
        async with contextlib.aclosing(self._evaluator):
            await self._publisher.run()

    async def _follow_claims(self) -> None:
        await self._served.modern.wait()
        await self._holds_back.wait()
        await self._claims.run()

    async def _reconcile(self, name: str) -> float | None:
        attachment = self._own.get(name)
        if attachment is None:
            self._context.forget(name)
            self._exclusiveness.forget(name)
            return None
        with self._measured.watchdog.watching(f"attachment {name}"):
            again = await executor.reconcile(self._context, attachment)
            look = await self._look_at_others(name)
            again = min((seconds for seconds in (again, look) if seconds is not None), default=None)
        spec = attachment.spec
        if attachment.deleting and self._holders.find(spec.pool, spec.device) is not None:
            # The kubelet may unprepare the claim at another instance, and then only the record on disk shows it.
            again = HELD_LOOK_SECONDS if again is None else min(again, HELD_LOOK_SECONDS)
        return again

    async def _look_at_others(self, name: str) -> float | None:
        # Read the attachment as it was just written, because each report repeats the node's former reports.
        attachment = self._own.get(name)
        if attachment is None:
            return None
        return await self._exclusiveness.reconcile(attachment, self._context.time_of_day())

    def _attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        attachment = new or old
        if attachment is None:
            return
        is_own = self._own.has(attachment)
        is_of_card = residents.marks(old) != residents.marks(new)
        self._changes.tell(
            watches.AttachmentChange(name=attachment.metadata.name, own=is_own, card=is_of_card)
        )
        if is_own:
            self._measured.meter.note_change(old, new)
            self._watched.note_change(old, new)

    def _hardware_changed(self, changes: live.Changes) -> None:
        affected = tuple(each.metadata.name for each in self._own if self._context.is_affected(each, changes))
        self._changes.tell(watches.HardwareChange(functions=changes.functions, attachments=affected))

    def _verdict_changed(self, key: verdicts.Key) -> None:
        is_local = nodepools.is_pool(key.pool, self._options.node_name)
        names = self._own.names_for(key.pool, key.device)
        self._changes.tell(watches.VerdictChange(attachments=names, local=is_local))


def _basis(
    options: settings.Settings, api: client.Client, measured: instrumentation.Instrumentation
) -> parts.Basis:
    contained, changes = measured.contained, watching.Dispatcher()
    recorder = events.Recorder(
        api, controller=options.driver, instance=options.node_name, clock=asyncio.get_running_loop().time
    )
    mirrored = mirror.Mirror(
        api,
        kinds.ATTACHMENT,
        into=attachments.DeviceAttachment,
        labels=f"{attachments.NODE_LABEL}={attachments.node_label(options.node_name)}",
        contained=contained,
        recorder=recorder,
    )
    files = store.Store(
        cdifiles.CdiFiles(options.cdi_dir, options.driver),
        options.data_dir,
        lock_seconds=options.prepare.lock_seconds,
    )
    served = claim_versions.Served(api)
    return parts.Basis(
        options=options,
        api=api,
        contained=contained,
        recorder=recorder,
        changes=changes,
        boot_id=host.read_boot_id(),
        host=users.Host.from_sysfs(options.sysfs),
        arrivals=devices.Devices(options.sysfs, settings=options.discovery, contained=contained),
        attached=mirrored,
        own=parts.Own(mirrored, options.driver),
        served=served,
        reader=claim_versions.Reader(
            api, driver=options.driver, node_name=options.node_name, versions=served
        ),
        holders=holders.Holders(files),
        works=cleaning.Works(),
        probations=probation.Probations(clocks.steady, lambda: changes.tell(watches.DemandChange())),
        verdicts=monitor.Monitor(
            functools.partial(readings.read, options.sysfs), options.health, contained=contained
        ),
        kernel=kernel.Kernel(options.sysfs, deadline_seconds=options.release.kernel_seconds),
    )
