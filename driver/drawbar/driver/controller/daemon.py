"""The controller: it publishes the fabrics' devices, and attaches the devices of claims.

At the start it first learns the whole state from the API server. Then it waits to be the leader. Only then it connects
to the fabrics and begins to decide. With half a view, a claim would seem gone or a device foreign. A waiting controller
keeps its view current, so it begins at once.
"""

import asyncio
import contextlib
import datetime
import functools
import logging

import msgspec

from drawbar.driver import clocks, containment, evaluation, watching
from drawbar.driver.api import drivers
from drawbar.driver.configuration import loader
from drawbar.driver.controller import (
    absences,
    allocators,
    attachment_index,
    change_kinds,
    cluster,
    cluster_observer,
    daemons,
    expiry,
    fabric_observer,
    fabric_reconciler,
    jobs,
    maintenance,
    names,
    outcomes,
    refusals,
    retries,
    settings,
    watches,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.attachments import calls, context, delays, executor
from drawbar.driver.controller.fabrics import credentials, redacting_adapter, sessions
from drawbar.driver.controller.leadership import elector
from drawbar.driver.controller.operation import gauges, instrumentation
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import client, config, events, pacing, workers
from drawbar.driver.slices import publisher as slice_publisher
from drawbar.fabric import contract, registry

log = logging.getLogger(__name__)

FABRIC_WORKERS = 2


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's inputs from its machine and installation.

    Attributes:
        clock: the clock for spans between observations of objects. Pauses within the process follow the event loop's
            clock.
        time_of_day: the clock for dates in objects.
        adapters: returns the adapter of a name; raises `fabric.errors.InvalidConfiguration`.
        evaluator: evaluates the selectors of tenants.
    """

    clock: clocks.Clock = clocks.steady
    time_of_day: clocks.Clock = clocks.time_of_day
    adapters: redacting_adapter.AdapterOf = registry.adapter_class
    evaluator: evaluation.Evaluator = msgspec.field(default_factory=evaluation.Inline)


async def run(options: settings.Settings, surroundings: Surroundings | None = None) -> None:
    """Run until cancelled.

    Raises:
        errors.DrawbarError: the configuration is wrong, or the API server is not reached.
    """
    loader.refuse(settings.problems(options))
    connection = config.load(options.kubeconfig)
    writes = pacing.Pace(per_second=options.writes_per_second, burst=options.writes_burst)
    measured = instrumentation.Instrumentation(options)
    with measured.contained.callbacks():
        async with (
            contextlib.aclosing(evaluation.Process()) as evaluator,
            client.connecting(connection, writes=writes) as api,
            measured.serving(),
            asyncio.TaskGroup() as tasks,
        ):
            counted = measured.client(api)
            offered = await watches.discover_versions(counted, tasks, measured.contained)
            around = surroundings or Surroundings(evaluator=evaluator)
            await Controller(collect_basis(options, counted, around, measured, offered)).serve(tasks)


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all other parts need."""

    options: settings.Settings
    api: client.Client
    surroundings: Surroundings
    measured: instrumentation.Instrumentation
    offered: watches.Served
    recorder: events.Recorder

    @property
    def contained(self) -> containment.Containment:
        """Return the unexpected errors of this controller."""
        return self.measured.contained


def collect_basis(
    options: settings.Settings,
    api: client.Client,
    surroundings: Surroundings,
    measured: instrumentation.Instrumentation,
    offered: watches.Served,
) -> Basis:
    """Return the parts that all other parts need."""
    recorder = events.Recorder(
        api, controller=options.driver, instance=options.candidate, clock=asyncio.get_running_loop().time
    )
    return Basis(
        options=options,
        api=api,
        surroundings=surroundings,
        measured=measured,
        offered=offered,
        recorder=recorder,
    )


class Controller:
    """The parts of one controller, made in the order of their dependencies: queues, cluster, reconcilers, observers."""

    def __init__(self, basis: Basis) -> None:
        self._options, self._measured = basis.options, basis.measured
        self._contained, self._recorder = basis.contained, basis.recorder
        watched, opened, placed = _watches(basis), _sessions(basis), attachment_index.Index()
        self._devices = workers.PartitionedQueue[names.DeviceKey](
            lambda key: key.fabric, workers=executor.WORKERS, contained=self._contained
        )
        queue = jobs.Jobs(watched.nodes, opened)
        self._allocators = allocators.allocators(
            basis.options,
            basis.api,
            basis.offered.versions,
            basis.surroundings.evaluator,
            lambda uid: self._devices.add_all(map(attachment_index.device_key, placed.for_claim(uid))),
            contained=self._contained,
            recorder=self._recorder,
        )
        changes = watching.Dispatcher(
            watching.Reconciler(executor.WATCHES, self._devices.add),
            watching.Reconciler(jobs.WATCHES, queue.add_due),
            *self._allocators.reconcilers,
        )
        self._cluster = _cluster(basis, watched, opened, placed, changes)
        self._context = _context(basis, self._cluster, self._allocators)
        self._delays = delays.Delays(context=self._context)
        self._jobs = fabric_reconciler.FabricReconciler(
            self._cluster, queue, basis.measured.watchdog, changes.tell
        )
        self._listener = fabric_observer.FabricObserver(
            cluster=self._cluster, calls=self._context.calls, jobs=self._jobs, changes=changes
        )
        self._mirrors = watched.running | self._allocators.mirrors
        self._observer = cluster_observer.ClusterObserver(
            self._cluster,
            watched=watched,
            mirrors=self._mirrors.values(),
            context=self._context,
            changes=changes,
            metrics=basis.measured.metrics,
        )
        self._show(queue)

    def _show(self, queue: jobs.Jobs) -> None:
        """Publish the state of the parts for an administrator."""
        shown = gauges.Gauges(
            cluster=self._cluster,
            devices_queue=self._devices,
            fabrics_queue=queue.count_waiting,
            mirrors=self._mirrors.values,
        )
        self._measured.watch(shown, {name: mirror.synced.is_set for name, mirror in self._mirrors.items()})

    async def serve(self, tasks: asyncio.TaskGroup) -> None:
        """Learn the cluster, wait for the leadership, and work until cancelled."""
        contained = self._contained
        for mirror in self._mirrors.values():
            contained.start(tasks, mirror.worker, mirror.run)
        contained.start(tasks, "events", self._recorder.run)
        for mirror in self._mirrors.values():
            await mirror.synced.wait()
        options = self._options
        log.info("controller is ready", extra={"driver": options.driver, "server": self._cluster.api.server})
        if not options.leader_election:
            await contained.keep("leading", self._lead)
        candidate = elector.Elector(
            self._cluster.api.skip_pacing(),
            namespace=options.lease_namespace,
            name=options.lease,
            identity=options.candidate,
        )
        await contained.keep("leading", functools.partial(candidate.run, self._lead))

    async def _lead(self) -> None:
        """Work until cancelled. The states of calls from an earlier term are asked of the fabrics again.

        After a long wait, a controller lists everything once more. A dead watch may have hidden a claim; it would seem
        gone, and its device free.
        """
        async with asyncio.TaskGroup() as renewing:
            for mirror in self._mirrors.values():
                renewing.create_task(mirror.renew(), name="renew")
        self._context.calls.clear()
        self._cluster.refusals.clear()
        uid = await cluster.identity(self._cluster.api)
        with self._measured.leading():
            await self._work(uid)

    async def _work(self, cluster_uid: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            contained = self._contained
            try:
                self._observer.begin(sessions.Term(tasks=tasks, listener=self._listener, cluster=cluster_uid))
                contained.start(tasks, "delays", self._delays.run)
                contained.start(tasks, "expiry", expiry.Expiry(cluster=self._cluster).run)
                self._allocators.start(tasks, self._context)
                self._devices.start(tasks, functools.partial(executor.work, self._context))
                for number in range(FABRIC_WORKERS):
                    contained.start(tasks, "fabrics", self._jobs.work, subject=f"worker {number}")
                await asyncio.get_running_loop().create_future()
            finally:
                # Before the group ends: an ending group takes no more tasks.
                self._devices.stop()
                self._observer.end()


def _watches(basis: Basis) -> watches.Watches:
    options, selector = basis.options, basis.options.node_daemon_selector
    pods = watches.DaemonPods(namespace=options.lease_namespace, labels=selector) if selector else None
    return watches.Watches(
        basis.api,
        options.driver,
        basis.offered,
        daemons=pods,
        contained=basis.contained,
        recorder=basis.recorder,
    )


def _sessions(basis: Basis) -> sessions.Sessions:
    options = basis.options
    role = drivers.resource(credentials.ROLE, options.driver)
    return sessions.Sessions(
        basis.measured.adapters(basis.surroundings.adapters),
        credentials.Vault(basis.api, options.lease_namespace, role=role),
        contract.Networks.parse(options.fabric_networks),
        contained=basis.contained,
        recorder=basis.recorder,
        clock=basis.surroundings.clock,
    )


def _cluster(
    basis: Basis,
    watched: watches.Watches,
    opened: sessions.Sessions,
    placed: attachment_index.Index,
    changes: watching.Dispatcher,
) -> cluster.Cluster:
    driver, surroundings = basis.options.driver, basis.surroundings
    clock = surroundings.clock
    sources = publisher.Sources(
        fabrics=watched.fabrics,
        sessions=opened,
        placed=placed,
        allocated=claim_index.Index(driver, clock),
        maintenance=maintenance.Index(),
    )
    return cluster.Cluster(
        api=basis.api,
        driver=driver,
        clock=clock,
        time_of_day=surroundings.time_of_day,
        fabrics=watched.fabrics,
        attachments=watched.attachments,
        claims=watched.claims,
        nodes=watched.nodes,
        maintenances=watched.maintenances,
        maintenance=sources.maintenance,
        placed=placed,
        allocated=sources.allocated,
        observers=claim_index.Index(driver, clock, devices=claim_index.list_observed_devices),
        unattached=claim_index.Index(driver, clock, devices=claim_index.remove_conditions),
        sessions=opened,
        pools=publisher.Publisher(
            basis.api,
            driver=driver,
            published=watched.slices,
            sources=sources,
            clock=clock,
            time_of_day=surroundings.time_of_day,
            store=None if basis.offered.modern else slice_publisher.Memory(),
        ),
        daemons=daemons.Daemons(judged=watched.daemons is not None),
        absences=absences.Absences(watched.nodes, opened, clock),
        refusals=refusals.Refusals(lambda fabric: changes.tell(change_kinds.TroublesChange(fabric=fabric))),
        retries=retries.Retries(driver, clock),
        recorder=basis.recorder,
        contained=basis.contained,
    )


def _context(basis: Basis, observed: cluster.Cluster, allocating: allocators.Allocators) -> context.Context:
    options, measured = basis.options, basis.measured

    def note_settled(uid: str, side: outcomes.Side, reason: str | None) -> None:
        key = observed.placed.device(uid)
        if key is not None:
            measured.latency.note_result(key, side, reason)

    return context.Context(
        cluster=observed,
        patience=datetime.timedelta(seconds=options.patience_seconds),
        binding_timeout=datetime.timedelta(seconds=options.binding_timeout_seconds),
        calls=calls.Calls(note_settled),
        latency=measured.latency,
        other_demand=allocating.demand,
        claim_mirrors=(observed.claims, *allocating.claim_mirrors),
        watchdog=measured.watchdog,
    )
