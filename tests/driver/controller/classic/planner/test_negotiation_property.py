"""Random pods, claims, nodes, crashes and lost writes: what must never happen, and what must happen in the end.

The invariants are asserted by the world at each write: no device for two claims, none lost, none allocated before it is
there. Here is what comes of it all once the trouble is over: every pod that can run runs, everything is given back, and
the contexts were written a bounded number of times.
"""

import datetime
import os
import random

import hypothesis
from hypothesis import strategies as st

from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import history

# The short run is the same every time.
EXAMPLES = int(os.environ.get("DRAWBAR_CLASSIC_EXAMPLES", "40"))
STEPS = 80
# What a pod costs that nothing goes wrong for: an entry, that no node will do, and that one will.
ANSWERS_PER_POD = 4
# Of 20 s each: longer than any pause and any probation.
PATIENT_ROUNDS = 60
SECOND = datetime.timedelta(seconds=1)


class Storm:
    """One run."""

    def __init__(self, world, seed):
        self.random = random.Random(seed)
        draw = self.random
        count = draw.randint(1, 4)
        self.world = world(
            devices=draw.randint(1, 4),
            node_names=tuple(f"n{number}" for number in range(count)),
            ports=draw.choice((None, 1, 2)),
            window=draw.choice((2, 128)),
            models=draw.choice((("m",), ("m", "k"))),
        )
        self.troubles = 0
        self.serial = 0
        self.at_once = set()
        self.dead = {}
        self.shared = [self.world.claim(f"shared{number}") for number in range(draw.randint(0, 2))]

    def add(self):
        draw, world = self.random, self.world
        self.serial += 1
        name = f"pod{self.serial}"
        entries = {}
        for number in range(draw.choice((1, 1, 1, 2))):
            model = draw.choice(("", "", "m", "k"))
            entries[f"c{number}"] = (
                matching.Request(
                    name="r", count=draw.choice((1, 1, 2)), model=model, optional=draw.random() < 0.2
                ),
            )
        named = [draw.choice(self.shared).name.name] if self.shared and draw.random() < 0.3 else []
        fits = draw.sample(sorted(world.nodes), draw.randint(1, len(world.nodes)))
        pod = world.pod(name, *named, template=entries, fits=fits)
        for claim in list(world.claims.values()):
            if pod.uid in claim.owner_uids and draw.random() < 0.1:
                # Whoever is allocated at once has no say in where.
                world._change(claim, immediate=True)
                self.at_once.add(pod.uid)

    def drive(self):
        """Run a round of the driver, which may die in it; its writes may be lost or refused."""
        world, draw = self.world, self.random
        broken = set()
        for step in world.decide():
            subject = getattr(step, "claim", None) or step.context
            if subject.uid in broken:
                continue
            fate = draw.random()
            if fate < 0.06:
                self.troubles += 1
                broken.add(subject.uid)
                if fate < 0.03:
                    continue
            self._apply(step, broken, subject)
            if draw.random() < 0.04:
                self.troubles += 1
                world.history = history.History()
                return

    def _apply(self, step, broken, subject):
        try:
            self.world.apply(step)
        except Exception as error:
            if type(error).__name__ != "Refused":
                raise
            broken.add(subject.uid)

    def step(self):
        draw, world = self.random, self.world
        match draw.randrange(10):
            case 0 if len(world.pods) < 6:
                self.add()
            case 1 | 2 | 3:
                self.drive()
            case 4 | 5:
                steps = list(world.fabric_steps())
                if steps:
                    name, what = draw.choice(steps)
                    fails = what != "gone" and draw.random() < 0.15
                    self.troubles += fails
                    world.work(name, what, fails=fails)
            case 6:
                world.schedule(self.pick)
            case 7:
                world.clean_up()
                world.now += SECOND * draw.choice((1, 10, 40))
            case 8 if draw.random() < 0.3:
                self.kill_or_revive()
            case _:
                running = [pod for pod in world.pods.values() if pod.uid in world.bound]
                waiting = list(world.pods.values())
                if running and draw.random() < 0.7:
                    world.delete_pod(draw.choice(running).name.name)
                elif waiting and draw.random() < 0.1:
                    self.troubles += 1
                    world.delete_pod(draw.choice(waiting).name.name)

    def kill_or_revive(self):
        """Bring the dead node back, or else take a node away with the pods on it."""
        world, draw = self.world, self.random
        if self.dead or len(world.nodes) == 1:
            world.nodes |= self.dead
            self.dead = {}
            return
        self.troubles += 1
        name = draw.choice(sorted(world.nodes))
        self.dead[name] = world.nodes.pop(name)
        for pod in [pod for pod in world.pods.values() if world.bound.get(pod.uid) == name]:
            world.delete_pod(pod.name.name)

    def pick(self, candidates, key=None):
        return self.random.choice(sorted(candidates, key=key))

    def calm(self):
        """Run and end pods without trouble until none is left; return the pods that wait in vain."""
        world = self.world
        world.nodes |= self.dead
        for pod in [pod for pod in world.pods.values() if not self.is_possible(pod)]:
            world.delete_pod(pod.name.name)
        idle = 0
        while world.pods and idle < PATIENT_ROUNDS:
            before = len(world.pods)
            world.schedule(self.pick)
            world.settle()
            world.attach_all()
            world.settle()
            world.clean_up()
            world.schedule(self.pick)
            for pod in [pod for pod in world.pods.values() if pod.uid in world.bound]:
                world.delete_pod(pod.name.name)
            world.clean_up()
            world.settle()
            world.now += SECOND * 20
            idle = idle + 1 if len(world.pods) == before else 0
        return tuple(world.pods.values())

    def is_possible(self, pod):
        """Return whether the pod could run in an empty cluster."""
        world = self.world
        if pod.uid in self.at_once:
            return False
        asked = [
            request
            for name in pod.claims.values()
            for request in world.wanted[
                next(claim.uid for claim in world.claims.values() if claim.name.name == name)
            ].requests
            if not request.optional
        ]
        total = sum(request.count for request in asked)
        limits = [world.ports[node] for node in world.fits[pod.uid]]
        if total > len(world.devices) or all(limit is not None and limit < total for limit in limits):
            return False
        for model in ("m", "k"):
            named = sum(request.count for request in asked if request.model == model)
            if named > sum(1 for offered in world.devices.values() if offered == model):
                return False
        return True


@hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize="DRAWBAR_CLASSIC_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(seed=st.integers(0, 2**32))
def test_every_pod_that_can_run_runs_and_everything_comes_back(seed, world):
    storm = Storm(world, seed)
    for _ in range(STEPS):
        storm.step()
    assert storm.calm() == ()
    for claim in storm.shared:
        storm.world.delete_claim(claim.name.name)
    for _ in range(3):
        storm.world.clean_up()
        storm.world.settle()
        storm.world.attach_all()
    assert storm.world.attachments == {}
    assert storm.world.claims == {}
    most = max(storm.world.context_writes.values(), default=0)
    assert most <= ANSWERS_PER_POD + 2 * (storm.troubles + storm.serial + storm.world.deallocations)
