"""The controller's counters and histograms; `docs/metrics.md` describes the use of each.

Children of metrics are looked up once, since an attach touches a dozen of them.
"""

import prometheus_client as prometheus

from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.operation import exposition

PREFIX = "drawbar_controller_"
STEPS_THERE = ("create", "ask", "connect", "tell", "ready")
STEPS_BACK = ("release", "ask-detach", "disconnect", "free")
# Software takes milliseconds, hardware seconds, and people minutes.
STEP_BUCKETS_SECONDS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    180.0,
    600.0,
)
CALL_BUCKETS_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0)
SIDES = {outcomes.Side.ATTACH: "attach", outcomes.Side.DETACH: "detach"}


class Metrics(exposition.Exposition):
    """All counters and histograms of one controller."""

    def __init__(self, driver: str) -> None:
        super().__init__(PREFIX, driver)
        steps = self.histogram(
            "step_duration_seconds",
            "Time of each step of an attach or a detach.",
            STEP_BUCKETS_SECONDS,
            "step",
        )
        self.steps_there = tuple(steps.labels(name) for name in STEPS_THERE)
        self.steps_back = tuple(steps.labels(name) for name in STEPS_BACK)
        attaches = self.histogram(
            "attach_duration_seconds",
            "From the allocation to attached on the claim (classic: to Attached on the DeviceAttachment).",
            STEP_BUCKETS_SECONDS,
            "way",
        )
        self.attach_seconds = {way: attaches.labels(way) for way in (outcomes.ATTACHED, outcomes.REUSED)}
        self.attaches = self._make_series(
            self.counter(
                "attaches",
                "Attaches: Attached, Reused (still on the node), or the reason of the failure.",
                "result",
            ),
            (outcomes.ATTACHED, outcomes.REUSED, reasons.OTHER, *sorted(outcomes.FAILURES)),
        )
        self.detaches = self._make_series(
            self.counter("detaches", "Detaches: Released, NodeGone or Forced.", "result"), outcomes.DETACHES
        )
        self.failed_operations = self.counter(
            "failed_operations", "Failed attempts to attach or detach.", "operation", "reason"
        )
        # Existing Fabrics that were connected at least once.
        self.connected: set[str] = set()
        self.terms = self.counter("terms", "Terms of leadership.")
        self.call_seconds = self.histogram(
            "fabric_call_duration_seconds",
            "Time to the fabric manager's answer; not for watch.",
            CALL_BUCKETS_SECONDS,
            "fabric",
            "call",
        )
        self.calls = self.counter(
            "fabric_calls",
            "Calls to the fabric manager: OK, a code such as UNAVAILABLE, or UNFINISHED (given up); a watch counts at its end.",
            "fabric",
            "call",
            "code",
        )

    def forget_fabric(self, fabric: str) -> None:
        """Drop the series of a Fabric that is gone; unfinished calls make no new ones."""
        self.connected.discard(fabric)
        for metric in (self.call_seconds, self.calls):
            metric.remove_by_labels({"fabric": fabric})

    @staticmethod
    def _make_series(counter: prometheus.Counter, values: tuple[str, ...]) -> dict[str, prometheus.Counter]:
        """Return a series for each value from the start: to Prometheus, a counter that begins at 1 has not grown."""
        return {value: counter.labels(value) for value in values}
