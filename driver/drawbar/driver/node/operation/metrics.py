"""What the daemon counts, in a registry of its own; `docs/metrics.md` tells administrators what each is good for.

Nothing here is global to the process, so several daemons can live in one. Names never change their meaning; labels
have few values, none of them chosen by users.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

import prometheus_client as prometheus
from prometheus_client import core, registry

PREFIX = "drawbar_node_"
# A kubelet waits 45 s for an answer; a claim whose devices are there takes milliseconds.
CLAIM_BUCKETS_SECONDS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    45.0,
)
VISIBLE_BUCKETS_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
RELEASE_BUCKETS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A number, or one per value of a label, that is asked for when somebody looks.

    Attributes:
        counter: it only grows.
        read: the numbers by label value; by the empty string where there is no label.
    """

    name: str
    help: str
    label: str
    counter: bool
    read: Callable[[], dict[str, float]]


class Metrics:
    """All counters and histograms of one daemon; `watch` adds numbers that are read when somebody looks."""

    def __init__(self) -> None:
        self._registry = registry.CollectorRegistry()
        self._asked: dict[str, Asked] = {}
        self.claim_requests = self._counter(
            "claim_requests", "Claims that the kubelet asked for, one by one.", "operation", "result"
        )
        self.claim_seconds = self._histogram(
            "claim_request_duration_seconds",
            "From the kubelet's call to the answer for one claim.",
            CLAIM_BUCKETS_SECONDS,
            "operation",
        )
        self.claims_in_flight = prometheus.Gauge(
            f"{PREFIX}claim_requests_in_flight",
            "Claims being worked on.",
            ["operation"],
            registry=self._registry,
        )
        self.uevents = self._counter("uevents", "Events of the kernel about devices.", "action")
        self.overflows = self._counter(
            "uevent_overflows", "Times that events were lost and all was read again."
        )
        self.visible_seconds = self._histogram(
            "visible_duration_seconds",
            "From the last event of a device to its attachment being Visible at the API server.",
            VISIBLE_BUCKETS_SECONDS,
        )
        self.attach_failures = self._counter(
            "attach_failures", "Devices that did not come or would not work.", "reason"
        )
        self.release_seconds = self._histogram(
            "release_duration_seconds",
            "From the wish to detach to the device being Released.",
            RELEASE_BUCKETS_SECONDS,
        )
        self.api_requests = self._counter(
            "api_requests", "Requests to the API server.", "verb", "resource", "result"
        )
        self.slice_writes = self._counter("slice_writes", "Writes of this node's ResourceSlices.", "result")
        build = prometheus.Gauge(
            f"{PREFIX}build_info",
            "The program; the value is 1.",
            ["version", "python"],
            registry=self._registry,
        )
        build.labels(metadata.version("drawbar"), ".".join(map(str, sys.version_info[:3]))).set(1)
        prometheus.ProcessCollector(registry=self._registry)
        self._registry.register(_Collected(self._asked))

    def watch(
        self,
        name: str,
        text: str,
        read: Callable[[], dict[str, float]],
        *,
        label: str = "",
        counter: bool = False,
    ) -> None:
        """Adds a number that is read when somebody looks.

        Args:
            name: without the prefix, and without `_total` for a counter.
            text: its help.
            read: the numbers by label value; by the empty string where there is no label.
            label: the label's name, or empty.
            counter: it only grows.
        """
        self._asked[name] = Asked(name=PREFIX + name, help=text, label=label, counter=counter, read=read)

    def rendered(self) -> bytes:
        """Everything in Prometheus' text format."""
        return prometheus.generate_latest(_WithoutTimes(self._registry))

    def names(self) -> frozenset[str]:
        """The names of all metrics, as they stand in documents: counters with `_total`."""
        found = self._registry.collect()
        return frozenset(f"{one.name}_total" if one.type == "counter" else one.name for one in found)

    def _counter(self, name: str, text: str, *labels: str) -> prometheus.Counter:
        return prometheus.Counter(f"{PREFIX}{name}", text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> prometheus.Histogram:
        return prometheus.Histogram(f"{PREFIX}{name}", text, labels, buckets=buckets, registry=self._registry)


class _Collected(registry.Collector):
    def __init__(self, asked: dict[str, Asked]) -> None:
        self._asked = asked

    def describe(self) -> Iterable[core.Metric]:
        return ()

    def collect(self) -> Iterator[core.Metric]:
        for one in tuple(self._asked.values()):
            family = core.CounterMetricFamily if one.counter else core.GaugeMetricFamily
            found = family(one.name, one.help, labels=[one.label] if one.label else None)
            for value, number in one.read().items():
                found.add_metric([value] if one.label else [], number)
            yield found


class _WithoutTimes(registry.Collector):
    """A registry without the time at which each counter came to be, which nobody reads."""

    def __init__(self, inner: registry.CollectorRegistry) -> None:
        self._inner = inner

    def collect(self) -> Iterator[core.Metric]:
        for family in self._inner.collect():
            family.samples = [one for one in family.samples if not one.name.endswith("_created")]
            yield family
