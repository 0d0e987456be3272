"""The stage `accidents`: rounds of accidents on a running installation, and what is left in the end."""

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from typing import assert_never

from drawbar.driver.kube import kinds
from drawbar.mocks.fabric import journal
from realcluster import accidents, control_plane, errors, installation, kubelets, stages

SEED = "ACCIDENTS_SEED"
ROUNDS = "ACCIDENTS_ROUNDS"
DEVICES = 6
SETTLE_SECONDS = 390.0
"""After a round: a lease that runs out, an API server that starts, and the scheduler, which looks again after 5 minutes at
a pod whose wake-up it missed in an outage (seen on 1.34)."""
OLDEST = 31
"""The oldest minor release whose claims the installation can write."""


def run(context: stages.Context) -> stages.Outcome:
    """Run as many rounds as ACCIDENTS_ROUNDS says, or 30, with the seed ACCIDENTS_SEED, or a new one."""
    if context.installed.release.minor < OLDEST:
        return stages.Outcome(skipped=True, text=f"claims of 1.{OLDEST} and later alone are written here")
    seed = int(os.environ.get(SEED) or time.time_ns() % 1_000_000)
    rounds = int(os.environ.get(ROUNDS) or 30)
    context.say(f"accidents: {rounds} rounds from {SEED}={seed}")
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(context.plane())
        nodes = [stack.enter_context(kubelets.Kubelet.running(plane, name)) for name in control_plane.NODES]
        try:
            asyncio.run(
                _rounds(
                    context,
                    plane,
                    nodes,
                    accidents.plan(seed, rounds, devices=DEVICES, nodes=control_plane.NODES),
                )
            )
        except errors.RealClusterError as error:
            return stages.Outcome(failed=True, text=f"{SEED}={seed}: {error}")
    return stages.Outcome(text=f"{rounds} rounds from {SEED}={seed}: nothing lost, leaked or attached twice")


async def _rounds(
    context: stages.Context,
    plane: control_plane.ControlPlane,
    nodes: Sequence[kubelets.Kubelet],
    planned: Sequence[accidents.Round],
) -> None:
    folder = context.folder / "drawbar"
    folder.mkdir()
    async with installation.Installation.running(plane, nodes, folder, devices=DEVICES) as made:
        context.say(f"Drawbar has {DEVICES} devices for {len(nodes)} nodes")
        for planned_round in planned:
            begun = time.monotonic()
            try:
                await _round(context, made, planned_round)
            except errors.RealClusterError as error:
                raise errors.RealClusterError(
                    f"round {planned_round.number} ({planned_round}): {error}"
                ) from error
            context.say(
                f"round {planned_round.number}: {planned_round}; at rest after {time.monotonic() - begun:.0f} s"
            )
        for pod in planned[-1].alive:
            await made.delete_pod(pod)
        await stages.settle(made.list_leftovers, SETTLE_SECONDS)
        if problems := accidents.attached_twice(journal.read(made.journal)) + made.tracebacks():
            raise errors.RealClusterError("; ".join(problems))


async def _round(context: stages.Context, made: installation.Installation, planned: accidents.Round) -> None:
    begun = time.monotonic()
    failure = ""
    try:
        await _play(made, planned, begun)
    except* errors.RealClusterError as group:
        failure = str(group.exceptions[0])
    if failure:
        raise errors.RealClusterError(failure)
    await stages.settle(lambda: _list_problems(context, made, planned.alive), SETTLE_SECONDS)


async def _play(made: installation.Installation, planned: accidents.Round, begun: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        for step in planned.steps:
            await asyncio.sleep(max(0.0, begun + step.at_seconds - time.monotonic()))
            match step.action:
                # A request may wait for the API server, which a later step starts again.
                case accidents.Create(pod=pod, claims=claims):
                    tasks.create_task(made.create_pod(pod, claims), name=f"create {pod}")
                case accidents.Delete(pod=pod):
                    tasks.create_task(made.delete_pod(pod), name=f"delete {pod}")
                case accidents.Kill(victim=victim, node=node):
                    await _kill(made, victim, node)
                case accidents.Restart(victim=victim, node=node):
                    _restart(made, victim, node)
                case _:
                    assert_never(step.action)


async def _list_problems(
    context: stages.Context, made: installation.Installation, alive: Sequence[str]
) -> list[str]:
    """Return what is not yet as it is to be, one sentence each."""
    for name in await made.mend_flapping_pods():
        context.say(f"all claims were written to pod {name}: kube-controller-manager took turns with them")
    pods = {pod["metadata"]["name"]: pod for pod in await made.objects(kinds.POD)}
    problems = [f"pod {name} is {installation.phase(pods.get(name)) or 'not there'}" for name in alive]
    problems = [sentence for sentence in problems if not sentence.endswith(" is Running")]
    problems += [f"pod {name} is still there" for name in pods if name not in alive]
    return problems or await made.untrue()


async def _kill(made: installation.Installation, victim: accidents.Victim, node: str) -> None:
    match victim:
        case accidents.Victim.APISERVER:
            made.plane.kill(control_plane.APISERVER)
        case accidents.Victim.ETCD:
            made.plane.kill(control_plane.ETCD)
        case accidents.Victim.LEADER:
            made.daemons[await made.leader()].kill()
        case accidents.Victim.NODE_DAEMON:
            made.daemons[node].kill()
        case accidents.Victim.KUBELET:
            made.nodes[node].kill()
        case accidents.Victim.FABRIC:
            made.daemons["fabric"].kill()
        case _:
            assert_never(victim)


def _restart(made: installation.Installation, victim: accidents.Victim, node: str) -> None:
    match victim:
        case accidents.Victim.APISERVER | accidents.Victim.ETCD:
            # As static pods are: a component that ended with another one is started again, too.
            for name in control_plane.COMPONENTS:
                made.plane.start(name)
        case accidents.Victim.LEADER:
            for name in installation.CONTROLLERS:
                made.daemons[name].start()
        case accidents.Victim.NODE_DAEMON:
            made.daemons[node].start()
        case accidents.Victim.KUBELET:
            made.nodes[node].start()
        case accidents.Victim.FABRIC:
            made.daemons["fabric"].start()
        case _:
            assert_never(victim)
