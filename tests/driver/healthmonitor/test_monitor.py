"""The monitor: nothing is taken before the cluster is read, a failure ends a look, and a decision is reported once."""

import datetime

import msgspec
import pytest

from drawbar.driver.api import healthpolicies, meta, slices, taintrules
from drawbar.driver.catalogue import reasons
from drawbar.driver.healthmonitor import metrics, monitor, receiver, signals
from drawbar.driver.kube import errors, kinds

NOW = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
ALERT = healthpolicies.Source.ALERT
DEFAULT = healthpolicies.Taint()


class Mirrored(list):
    """Objects that never change, in place of a mirror."""

    def follow(self, changed):
        """Do nothing, as nothing changes."""

    def report_unreadable(self, changed):
        """Do nothing, as every attachment can be read."""


class Rules(Mirrored):
    """The rules of a cluster whose API server refuses to create any."""

    def __init__(self):
        self.refused = 0

    def __iter__(self):
        return iter(())

    async def create(self, body):
        self.refused += 1
        raise errors.Denied("forbidden")


class Keeping(Mirrored):
    """The rules of a cluster whose API server keeps a rate of evictions, or drops it."""

    def __init__(self, *, rates):
        self._rates, self.stored = rates, {}
        self.created = self.deleted = 0

    def __iter__(self):
        return iter(self.stored.values())

    async def create(self, body):
        if not self._rates:
            body["spec"]["taint"].pop("evictionsPerSecond", None)
        rule = msgspec.convert(body, taintrules.DeviceTaintRule)
        self.created += 1
        self.stored[rule.metadata.name] = rule
        return rule

    async def delete(self, rule):
        self.deleted += 1
        del self.stored[rule.metadata.name]


class Recorder:
    """Keeps the messages of Events."""

    def __init__(self):
        self.messages = []

    def policy_event(self, name, uid, *, warning, reason, message):
        self.messages.append((warning, reason, message))

    def unreadable(self, old, left):
        """Do nothing, as every object can be read."""


def make_slices(count):
    return [
        slices.ResourceSlice(
            metadata=meta.ObjectMeta(name="s"),
            spec=slices.SliceSpec(
                driver="drawbar.dev",
                pool=slices.Pool(name="p", generation=1, resource_slice_count=1),
                devices=tuple(slices.Device(name=f"d{number}") for number in range(count)),
            ),
        )
    ]


@pytest.fixture
def make_monitor():
    """Return a monitor of a cluster with so many devices, and a policy with this share."""

    def make(*, share, dry_run=False, taint=DEFAULT, rules=None):
        hold = healthpolicies.Hold(seconds=0)
        spec = healthpolicies.Spec(source=ALERT, hold=hold, minimum_healthy_percent=share, taint=taint)
        policy = healthpolicies.HealthPolicy(metadata=meta.ObjectMeta(name="p", uid="u"), spec=spec)
        return monitor.Monitor(
            driver="drawbar.dev",
            kind=kinds.TAINT_RULES[0],
            policies=Mirrored([policy]),
            rules=Rules() if rules is None else rules,
            slices=Mirrored(make_slices(4)),
            recorder=Recorder(),
            metrics=metrics.Metrics("drawbar.dev"),
            clock=lambda: NOW,
            time_of_day=lambda: NOW,
            dry_run=dry_run,
            _started=True,
        )

    return make


def batch(*devices, firing=True):
    return signals.Batch(
        source=ALERT,
        signals=tuple(
            signals.Signal(source=ALERT, labels={"device": name}, fingerprint=name, firing=firing)
            for name in devices
        ),
    )


def test_signals_are_refused_until_the_cluster_is_read(make_monitor):
    watcher = make_monitor(share=0)
    watcher._started = False
    with pytest.raises(receiver.NotReady, match="not read yet"):
        watcher.receive(batch("d0"))
    assert watcher.state.causes == {}


async def test_a_refused_write_ends_the_look_and_counts_against_the_rate(make_monitor):
    watcher = make_monitor(share=0)
    watcher.receive(batch("d0", "d1"))
    for _ in range(10):
        try:
            await watcher.look()
        except errors.Denied:
            continue
    assert watcher.rules.refused == 5, "one per look, and no more than the rate allows"
    assert b'failures_total{decision="Tainted",driver="drawbar.dev"} 5.0' in watcher.metrics.render()
    reported = {reason for _, reason, _ in watcher.recorder.messages}
    assert reported == {"DeviceWithheld"}, "what was not done is not reported as done"


@pytest.mark.parametrize(
    ("options", "reason", "warning"),
    [({"share": 100}, "MinimumHealthyShare", True), ({"share": 0, "dry_run": True}, "DryRun", False)],
)
async def test_a_withheld_taint_is_reported_once_and_shown_while_withheld(
    make_monitor, options, reason, warning
):
    watcher = make_monitor(**options)
    watcher.receive(batch("d0"))
    for _ in range(3):
        await watcher.look()
    ((warned, event, message),) = watcher.recorder.messages
    assert (warned, event) == (warning, "DeviceWithheld")
    assert message.startswith("did not taint drawbar.dev/p/d0 with effect None, since ")
    assert watcher.withheld()[reason] == 1
    assert watcher.rules.refused == 0


@pytest.mark.parametrize("rate", [3, None])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_rate_of_evictions_is_sent_and_where_it_is_dropped_that_is_reported_once(
    make_monitor, rate, kept
):
    rules = Keeping(rates=kept)
    watcher = make_monitor(share=0, taint=healthpolicies.Taint(evictions_per_second=rate), rules=rules)
    watcher.receive(batch("d0", "d1"))
    await watcher.look()
    assert [rule.spec.taint.evictions_per_second for rule in rules] == [rate if kept else None] * 2
    dropped = [entry for entry in watcher.recorder.messages if entry[1] == reasons.EVICTION_RATE_DROPPED]
    assert len(dropped) == (rate is not None and not kept)
    assert all(warning and "so 3 has no effect" in message for warning, _, message in dropped)


@pytest.mark.parametrize("step", [-600, 600])
def test_a_step_of_the_time_of_day_moves_the_moments_of_the_state_with_it(make_monitor, step):
    watcher, past = make_monitor(share=0), [0, 0]
    watcher.clock = lambda: NOW + datetime.timedelta(seconds=past[0])
    watcher.time_of_day = lambda: NOW + datetime.timedelta(seconds=sum(past))
    watcher.receive(batch("d0"))
    past[:] = [5, step]
    watcher.receive(batch("d1"))
    since = {key.device.name: cause.since for key, cause in watcher.state.causes.items()}
    assert since["d1"] - since["d0"] == datetime.timedelta(seconds=5)
    assert since["d1"] == NOW + datetime.timedelta(seconds=5 + step)


async def test_signals_that_change_every_millisecond_cost_the_rate_in_writes_and_one_event_each(make_monitor):
    stored = Keeping(rates=True)
    watcher = make_monitor(share=0, rules=stored)
    passed = datetime.timedelta()
    watcher.clock = watcher.time_of_day = lambda: NOW + passed
    for millisecond in range(60_000):
        passed = datetime.timedelta(milliseconds=millisecond)
        watcher.receive(batch("d0", "d1", "d2", "d3", firing=millisecond % 2 == 0))
        if millisecond % 501 == 0:
            await watcher.look()
    limit = healthpolicies.Rate().devices
    assert (stored.created, stored.deleted) == (limit, limit)
    assert len(watcher.recorder.messages) == 2 * limit + 4, "of each taint, of its end, and of each device"
