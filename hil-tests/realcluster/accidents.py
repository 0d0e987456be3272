"""Which accident happens when, as a pure function of a seed, and what the fabric's journal shows afterwards.

A round makes pods and deletes others; meanwhile one victim is killed as `kill -9` does, and started again a little
later. The moments are drawn from all of the time in which devices are attached, prepared and given back, so an accident
may hit any step of that. The same seed gives the same rounds on every machine; what a moment hits is up to the machine.
"""

import enum
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drawbar.fabric import contract
from drawbar.mocks.fabric import journal

ROUND_SECONDS = 9.0
"""Longer than the scheduler's pause between two looks at binding conditions, 5 s."""
DOWN_SECONDS_MAX = 6.0
LEADER_DOWN_SECONDS_MAX = 20.0
"""Longer than a lease holds, so that now and then the other controller takes over."""
PODS_MAX = 3
CLAIMS_MAX = 2


class Victim(enum.StrEnum):
    """What is killed."""

    APISERVER = "kube-apiserver"
    ETCD = "etcd"
    LEADER = "leader"
    NODE_DAEMON = "node daemon"
    KUBELET = "kubelet"
    FABRIC = "fabric manager"


ON_A_NODE = (Victim.NODE_DAEMON, Victim.KUBELET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A pod is made, with claims of one device each."""

    pod: str
    claims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A pod is deleted."""

    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A victim ends at once; `node` where there is one of it on each."""

    victim: Victim
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The victim is started again."""

    victim: Victim
    node: str = ""


Action = Create | Delete | Kill | Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action, some seconds after the round began."""

    at_seconds: float
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round.

    Attributes:
        number: from 1.
        kill: its accident.
        steps: in order of time.
        alive: the pods that are to run at its end.
    """

    number: int
    kill: Kill
    steps: tuple[Step, ...]
    alive: tuple[str, ...]

    def __str__(self) -> str:
        times = {type(step.action): step.at_seconds for step in self.steps}
        made = sum(isinstance(step.action, Create) for step in self.steps)
        gone = sum(isinstance(step.action, Delete) for step in self.steps)
        where = f" of {self.kill.node}" if self.kill.node else ""
        return (
            f"{self.kill.victim}{where} killed at {times[Kill]:.1f} s, back at {times[Restart]:.1f} s; "
            f"{made} pods made, {gone} deleted"
        )


def plan(seed: int, rounds: int, *, devices: int, nodes: Sequence[str]) -> tuple[Round, ...]:
    """Plan the rounds of a seed. Victims come equally often, and pods never claim more devices than exist."""
    dice = random.Random(seed)
    victims: list[Victim] = []
    alive: dict[str, int] = {}
    planned = []
    for number in range(1, rounds + 1):
        if not victims:
            victims = list(Victim)
            dice.shuffle(victims)
        victim = victims.pop()
        planned.append(_round(dice, number, victim, alive, devices, nodes))
    return tuple(planned)


def _round(
    dice: random.Random,
    number: int,
    victim: Victim,
    alive: dict[str, int],
    devices: int,
    nodes: Sequence[str],
) -> Round:
    """Plan one round, and change `alive`, which has the number of claims of each pod."""
    # Before some are made: a new pod counts on the devices of those that stay, and may wait for those that go.
    leaving = [pod for pod in alive if dice.random() < 0.6]
    steps = [Step(at_seconds=dice.uniform(0, ROUND_SECONDS), action=Delete(pod=pod)) for pod in leaving]
    for pod in leaving:
        del alive[pod]
    for index in range(dice.randint(1, PODS_MAX)):
        claims = dice.randint(1, CLAIMS_MAX)
        if sum(alive.values()) + claims > devices:
            break
        pod = f"round-{number}-{index}"
        alive[pod] = claims
        steps.append(
            Step(at_seconds=dice.uniform(0, ROUND_SECONDS / 3), action=Create(pod=pod, claims=claims))
        )
    node = dice.choice(nodes) if victim in ON_A_NODE else ""
    kill = Kill(victim=victim, node=node)
    at = dice.uniform(0, ROUND_SECONDS)
    longest = LEADER_DOWN_SECONDS_MAX if victim is Victim.LEADER else DOWN_SECONDS_MAX
    steps.append(Step(at_seconds=at, action=kill))
    steps.append(Step(at_seconds=at + dice.uniform(0, longest), action=Restart(victim=victim, node=node)))
    return Round(
        number=number,
        kill=kill,
        steps=tuple(sorted(steps, key=lambda step: step.at_seconds)),
        alive=tuple(alive),
    )


def attached_twice(entries: Iterable[journal.Entry]) -> list[str]:
    """Return one sentence for each device that the fabric's journal has attached while it was attached.

    A fabric manager that was killed may have kept a change and not written its line. So a detach that was only begun
    counts as one, too.
    """
    hosts: dict[str, str] = {}
    twice = []
    for entry in entries:
        if entry.kind is contract.OperationKind.DETACH:
            hosts.pop(entry.device, None)
        elif entry.event == "finished" and entry.error is None:
            if (host := hosts.get(entry.device)) is not None:
                twice.append(f"{entry.device} was attached to {entry.host} while it was attached to {host}")
            hosts[entry.device] = entry.host
    return twice
