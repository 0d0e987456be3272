"""The health monitor as a daemon: its watches, its server, and its command.

There is one for each driver and it takes no lease: the chart runs one pod and replaces it only after its end.
"""

import asyncio
import contextlib
import functools
import logging
from pathlib import Path

from drawbar.driver import clocks, errors, programs
from drawbar.driver.api import drivers, healthpolicies, slices, taintrules
from drawbar.driver.configuration import loader
from drawbar.driver.healthmonitor import metrics, monitor, receiver, settings, signals
from drawbar.driver.kube import client, config, discovery, events, kinds, mirror
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.operation import address, certificates, readiness, server

log = logging.getLogger(__name__)

DISCOVERY_SECONDS = 600.0
# A list of findings, not the data behind them.
_OUTPUT_BYTES = 1 << 20
_MEMORY_BYTES = 1 << 30


async def run(options: settings.Settings) -> None:
    """Run until cancelled.

    Raises:
        errors.DrawbarError: the configuration is wrong.
    """
    loader.refuse(settings.problems(options))
    tls = options.tls
    held = certificates.Certificates(tls.certificate, tls.key, client_authority=tls.client_authority)
    context = await held.load()
    token = receiver.Token(options.token_file)
    token.load()
    counts = metrics.Metrics(options.driver)
    with counts.contained.callbacks():
        async with client.connecting(config.load(options.kubeconfig)) as connected:
            api = connected.count_requests(counts.request_done)
            kind = await _rule_kind(api)
            watcher = _monitor(options, api, kind, counts)
            contained = counts.contained
            ready = readiness.Readiness({"caches": watcher.find_missing, "workers": contained.find_missing})
            counts.show(
                ready=lambda: {"": float(not ready.find_missing())},
                causes=lambda: {"": len(watcher.state.causes)},
                rules=watcher.own_rules,
                withheld=watcher.withheld,
                dropped_events=lambda: {"": watcher.recorder.dropped},
                unreadable=lambda: mirror.count_unreadable(watcher.mirrors),
            )
            pages = server.pages(readiness.Watchdog(), ready, counts.render, contained=contained)
            async with (
                server.serving(address.parse(options.http.address), pages, contained=contained),
                receiver.serving(
                    options.listen,
                    context,
                    token,
                    watcher.receive,
                    lambda status: counts.requests.labels(str(status)).inc(),
                    contained=contained,
                ) as port,
                asyncio.TaskGroup() as tasks,
            ):
                log.info("health monitor is listening", extra={"driver": options.driver, "port": port})
                start = functools.partial(contained.start, tasks)
                for copy in watcher.mirrors:
                    start(copy.worker, copy.run)
                start("events", watcher.recorder.run)
                start("monitor", watcher.run)
                start("certificate", held.follow)
                start("token", functools.partial(token.follow, certificates.PAUSE_SECONDS))
                start("served-versions", functools.partial(_watch_versions, api, kind))
                if (path := options.command.path) is not None:
                    start("command", functools.partial(_command, path, options.command, watcher, counts))


def _monitor(
    options: settings.Settings, api: client.Client, kind: kinds.Kind, counts: metrics.Metrics
) -> monitor.Monitor:
    own = drivers.selector(options.driver)
    recorder = events.Recorder(
        api,
        controller=monitor.MANAGER,
        instance=options.instance,
        clock=asyncio.get_running_loop().time,
    )
    watch = functools.partial(mirror.Mirror, api, contained=counts.contained, recorder=recorder)
    return monitor.Monitor(
        driver=options.driver,
        kind=kind,
        policies=watch(
            kinds.HEALTH_POLICY,
            into=healthpolicies.HealthPolicy,
            # The resource of policies is small, and API servers before 1.32 select by no field of it.
            keep=lambda policy: policy.spec.driver == options.driver,
        ),
        rules=watch(kind, into=taintrules.DeviceTaintRule),
        slices=watch(kinds.SLICE, into=slices.ResourceSlice, fields=own),
        recorder=recorder,
        metrics=counts,
        clock=clocks.steady,
        time_of_day=clocks.time_of_day,
        dry_run=options.dry_run,
    )


async def _rule_kind(api: client.Client) -> kinds.Kind:
    kind = discovery.taint_rules(await discovery.await_resources(api, discovery.RESOURCE_GROUP))
    if kind is None:
        raise errors.DrawbarError(
            "the API server serves no DeviceTaintRules; use Kubernetes 1.37, or turn on the gate DRADeviceTaintRules with its API version"
        )
    return kind


async def _watch_versions(api: client.Client, at_start: kinds.Kind) -> None:
    """Ask now and then which version of DeviceTaintRules is the newest.

    Raises:
        errors.DrawbarError: it is another one by now.
    """
    while True:
        await asyncio.sleep(DISCOVERY_SECONDS)
        with contextlib.suppress(kube_errors.KubeError):
            kind = discovery.taint_rules(await discovery.resources(api, discovery.RESOURCE_GROUP))
            if kind != at_start:
                raise errors.DrawbarError(
                    "the API server serves DeviceTaintRules in another version now; ending, to be started again for that"
                )


async def _command(
    path: Path, options: settings.Command, watcher: monitor.Monitor, counts: metrics.Metrics
) -> None:
    """Run the command until cancelled."""
    logged = ""
    bounds = programs.Bounds(
        timeout_seconds=options.timeout_seconds, memory_bytes=_MEMORY_BYTES, output_bytes=_OUTPUT_BYTES
    )
    while True:
        try:
            written = await programs.output(path, bounds)
            watcher.receive(signals.read(healthpolicies.Source.COMMAND, written))
        except receiver.NotReady:
            log.debug("the cluster is not read yet")
        except (programs.Failed, signals.Unreadable) as error:
            counts.commands.labels("failed").inc()
            if str(error) != logged:
                logged = str(error)
                log.warning("the command gives no signals: %s", error)
        else:
            counts.commands.labels("ok").inc()
            logged = ""
        await asyncio.sleep(options.interval_seconds)
