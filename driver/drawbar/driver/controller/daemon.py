"""The controller: publishes what the fabrics have, and attaches what claims were given.

Order at the start, each step with its reason: learn what the API server knows, all of it; then wait to be the leader;
only then connect to the fabrics and begin to decide, since half a view would take a claim for gone or a device for
foreign. One that waits keeps its view current, so it begins at once.
"""

import asyncio
import contextlib
import datetime
import functools
import logging
from dataclasses import dataclass, field

from drawbar.driver import clocks, evaluation
from drawbar.driver.api import drivers
from drawbar.driver.controller import (
    absences,
    attachment_index,
    changes,
    cluster,
    daemons,
    expiry,
    fabric_reconciler,
    maintenance,
    names,
    refusals,
    retries,
    routing,
    settings,
    watches,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.attachments import calls, context, delays, executor
from drawbar.driver.controller.classic import service as classic
from drawbar.driver.controller.fabrics import credentials, redacting_adapter, sessions
from drawbar.driver.controller.immediate import allocator
from drawbar.driver.controller.leadership import elector
from drawbar.driver.controller.operation import gauges, instrumentation
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import client, config, events, workers
from drawbar.driver.slices import publisher as slice_publisher
from drawbar.fabric import contract, registry

log = logging.getLogger(__name__)

FABRIC_WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller takes from the machine and the installation it runs in.

    Attributes:
        clock: for spans between observations of objects. Pauses within the process follow the event loop's clock.
        time_of_day: for dates in objects.
        adapters: the adapter of a name; raises `fabric.errors.InvalidConfiguration`.
        evaluator: of the selectors that tenants write.
    """

    clock: clocks.Clock = clocks.steady
    time_of_day: clocks.Clock = clocks.time_of_day
    adapters: redacting_adapter.AdapterOf = registry.adapter_class
    evaluator: evaluation.Evaluator = field(default_factory=evaluation.Inline)


async def run(options: settings.Settings, surroundings: Surroundings | None = None) -> None:
    """Runs until cancelled.

    Raises:
        errors.DrawbarError: something the configuration is to blame for.
    """
    settings.validate(options)
    connection = config.load(options.kubeconfig)
    writes = client.Pace(per_second=options.writes_per_second, burst=options.writes_burst)
    measured = instrumentation.Instrumentation(options)
    with measured.contained.callbacks():
        async with (
            contextlib.aclosing(evaluation.Process()) as evaluator,
            client.connecting(connection, writes=writes) as api,
            measured.serving(),
            asyncio.TaskGroup() as tasks,
        ):
            counted = measured.client(api)
            offered = await watches.offered(counted, tasks, measured.contained)
            around = surroundings or Surroundings(evaluator=evaluator)
            controller = _Controller(options, counted, around, measured, offered)
            await controller.serve(tasks)


class _Controller:
    """The parts of one controller, made in the order in which they need each other."""

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
        evaluator, selector = surroundings.evaluator, options.node_daemon_selector
        self._contained = measured.contained
        self._recorder = events.Recorder(
            api,
            controller=options.driver,
            instance=options.candidate,
            clock=asyncio.get_running_loop().time,
        )
        self._classic = classic.ClassicAllocation(
            api,
            options.driver,
            offered.versions,
            evaluator,
            self._classic_claim_gone,
            contained=measured.contained,
            recorder=self._recorder,
        )
        pods = watches.DaemonPods(namespace=options.lease_namespace, labels=selector)
        watched = watches.Watches(
            api,
            options.driver,
            offered,
            daemons=pods if selector else None,
            contained=measured.contained,
            recorder=self._recorder,
        )
        self._mirrors = watched.running | self._classic.mirrors
        self._cluster = self._observed(api, surroundings, watched, modern=offered.modern)
        self._jobs = fabric_reconciler.FabricReconciler(self._cluster, measured.watchdog)
        self._context = context.Context(
            cluster=self._cluster,
            patience=datetime.timedelta(seconds=options.patience_seconds),
            binding_timeout=datetime.timedelta(seconds=options.binding_timeout_seconds),
            calls=calls.Calls(),
            latency=measured.latency,
            classic_demand=self._classic.watch.demand if self._classic.watch is not None else None,
            claim_mirrors=(
                watched.claims,
                *(self._classic.watch.claim_mirrors.values() if self._classic.watch is not None else ()),
            ),
            watchdog=measured.watchdog,
        )
        self._delays = delays.Delays(context=self._context)
        self._immediate = allocator.Allocator(
            cluster=self._cluster, enabled=options.immediate_allocation, evaluator=evaluator
        )
        self._devices = workers.PartitionedQueue[names.DeviceKey](
            lambda key: key.fabric,
            functools.partial(executor.work, self._context),
            workers=executor.WORKERS,
            contained=measured.contained,
        )
        self._changes = changes.Changes(
            cluster=self._cluster,
            context=self._context,
            devices=self._devices,
            jobs=self._jobs,
            immediate=self._immediate,
            look_again={
                routing.Allocation.CLASSIC: self._classic.look_again,
                routing.Allocation.IMMEDIATE: self._immediate.look_again,
            },
            metrics=measured.metrics,
        )
        self._context.calls.settled = self._changes.call_settled
        self._jobs.done = self._changes.job_done
        self._cluster.sessions.follow(self._changes)
        self._changes.follow(watched, self._mirrors.values())
        shown = gauges.Gauges(
            cluster=self._cluster,
            devices_queue=self._devices,
            fabrics_queue=lambda: self._jobs.waiting,
            mirrors=self._mirrors.values,
        )
        measured.watch(shown, {name: mirror.synced.is_set for name, mirror in self._mirrors.items()})

    def _observed(
        self, api: client.Client, surroundings: Surroundings, watched: watches.Watches, *, modern: bool
    ) -> cluster.Cluster:
        driver, clock = self._options.driver, surroundings.clock
        role = drivers.resource(credentials.ROLE, driver)
        vault = credentials.Vault(api, self._options.lease_namespace, role=role)
        networks = contract.Networks.parse(self._options.fabric_networks)
        opened = sessions.Sessions(
            self._measured.adapters(surroundings.adapters),
            vault,
            networks,
            contained=self._contained,
            recorder=self._recorder,
            clock=clock,
        )
        sources = publisher.Sources(
            fabrics=watched.fabrics,
            sessions=opened,
            placed=attachment_index.Index(),
            allocated=claim_index.Index(driver, clock),
            maintenance=maintenance.Index(),
        )
        return cluster.Cluster(
            api=api,
            driver=driver,
            clock=clock,
            time_of_day=surroundings.time_of_day,
            fabrics=watched.fabrics,
            attachments=watched.attachments,
            claims=watched.claims,
            nodes=watched.nodes,
            slices=watched.slices,
            maintenances=watched.maintenances,
            maintenance=sources.maintenance,
            placed=sources.placed,
            allocated=sources.allocated,
            observers=claim_index.Index(driver, clock, devices=claim_index.observed_devices),
            unattached=claim_index.Index(driver, clock, devices=claim_index.without_conditions),
            sessions=opened,
            pools=publisher.Publisher(
                api,
                driver=driver,
                published=watched.slices,
                sources=sources,
                clock=clock,
                time_of_day=surroundings.time_of_day,
                store=None if modern else slice_publisher.Memory(),
            ),
            daemons=daemons.Daemons(judged=watched.daemons is not None),
            absences=absences.Absences(watched.nodes, opened, clock),
            refusals=refusals.Refusals(self._refusals_changed),
            retries=retries.Retries(driver, clock),
            recorder=self._recorder,
            contained=self._contained,
        )

    # What is made before `_changes` reports to it.

    def _classic_claim_gone(self, uid: str) -> None:
        self._changes.classic_claim_gone(uid)

    def _refusals_changed(self, fabric: str) -> None:
        self._changes.troubles_changed(fabric)

    async def serve(self, tasks: asyncio.TaskGroup) -> None:
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
            self._cluster.api.hurried(),
            namespace=options.lease_namespace,
            name=options.lease,
            identity=options.candidate,
        )
        await contained.keep("leading", functools.partial(candidate.run, self._lead))

    async def _lead(self) -> None:
        """Work until cancelled. What an earlier term knew of its calls is asked of the fabrics again.

        A controller that has waited for long lists everything once more: a claim that a dead watch kept from it would be
        taken for gone, and its device for free.
        """
        async with asyncio.TaskGroup() as renewing:
            for mirror in self._mirrors.values():
                renewing.create_task(mirror.renew(), name="renew")
        self._context.calls.clear()
        self._cluster.refusals.clear()
        self._cluster.sessions.cluster = await cluster.identity(self._cluster.api)
        try:
            with self._measured.leading():
                await self._work()
        finally:
            self._devices.stop()
            self._changes.end()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            contained = self._contained
            self._changes.begin(tasks)
            contained.start(tasks, "delays", self._delays.run)
            contained.start(tasks, "immediate", self._immediate.run)
            contained.start(tasks, "expiry", expiry.Expiry(cluster=self._cluster).run)
            self._classic.work(tasks, self._context)
            self._devices.start(tasks)
            for number in range(FABRIC_WORKERS):
                contained.start(tasks, "fabrics", self._jobs.work, subject=f"worker {number}")
            await asyncio.get_running_loop().create_future()
