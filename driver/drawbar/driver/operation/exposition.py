"""The metrics of one daemon, in a registry of its own, and their text for Prometheus.

Nothing here is global to the process, so several daemons can live in one. Names never change their meaning; labels
have few values, none of them chosen by the users of a cluster.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata

import msgspec
import prometheus_client as prometheus
from prometheus_client import core, registry

from drawbar.driver import containment

Values = tuple[str, ...]


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A number for each combination of label values, read at each scrape."""

    name: str
    help: str
    labels: Values
    counter: bool
    read: Callable[[], Mapping[Values, float]]


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A metric as documents show it.

    Attributes:
        kind: `counter`, `gauge` or `histogram`.
        labels: the names of its labels, without `driver`.
        help: its meaning.
    """

    kind: str
    labels: Values
    help: str


class Exposition:
    """All counters and histograms of one daemon; `watch` adds numbers that are read at each scrape.

    Every series has the label `driver`, those of the process too: several drivers may run in one cluster.

    Args:
        prefix: of every name, with its last underscore.
        driver: the driver's name.

    Attributes:
        contained: the unexpected errors of the daemon.
    """

    def __init__(self, prefix: str, driver: str) -> None:
        self._prefix = prefix
        self._driver = driver
        self._registry = registry.CollectorRegistry()
        self._asked: dict[str, _Asked] = {}
        self.contained = containment.Containment()
        self._described: dict[str, Described] = {}
        self.api_requests = self.counter(
            "api_requests",
            "Requests to the API server. Denied: a permission is missing; Invalid: a policy or webhook refuses; Conflict: harmless.",
            "verb",
            "resource",
            "result",
        )
        self._requests: dict[tuple[str, str, str], prometheus.Counter] = {}
        build = self.gauge("build_info", "The program; always 1.", "version", "python")
        build.labels(metadata.version("drawbar"), ".".join(map(str, sys.version_info[:3]))).set(1)
        prometheus.ProcessCollector(registry=self._registry)
        self._registry.register(_Collected(self._asked, self.contained))
        self.watch(
            "unexpected_errors",
            "Defects of Drawbar.",
            self.contained.counts,
            label="worker",
            counter=True,
        )
        self.watch(
            "failing_work",
            "Objects, loops and callbacks whose last try met a defect.",
            self.contained.count_failing,
            label="worker",
        )

    def counter(self, name: str, text: str, *labels: str) -> prometheus.Counter:
        """Add a number that only grows; its name is shown with `_total`."""
        self._describe("counter", f"{name}_total", text, labels)
        return prometheus.Counter(f"{self._prefix}{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> prometheus.Gauge:
        """Add a number that grows and shrinks."""
        self._describe("gauge", name, text, labels)
        return prometheus.Gauge(f"{self._prefix}{name}", text, labels, registry=self._registry)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> prometheus.Histogram:
        """Return a histogram of durations; `buckets` in seconds."""
        self._describe("histogram", name, text, labels)
        return prometheus.Histogram(
            f"{self._prefix}{name}", text, labels, buckets=buckets, registry=self._registry
        )

    def request_done(self, verb: str, resource: str, result: str) -> None:
        """Count a request to the API server."""
        key = (verb, resource, result)
        child = self._requests.get(key)
        if child is None:
            child = self._requests[key] = self.api_requests.labels(*key)
        child.inc()

    def watch(
        self,
        name: str,
        text: str,
        read: Callable[[], Mapping[str, float]],
        *,
        label: str = "",
        counter: bool = False,
    ) -> None:
        """Add a number that is read at each scrape.

        Args:
            name: without the prefix, and without `_total` for a counter.
            text: its help.
            read: the numbers by label value; by the empty string where there is no label.
            label: the label's name, or empty.
            counter: it only grows.
        """

        def read_values() -> Mapping[Values, float]:
            return {(value,) if label else (): number for value, number in read().items()}

        self._add(name, text, read_values, (label,) if label else (), counter=counter)

    def watch_by(
        self, name: str, text: str, read: Callable[[], Mapping[Values, float]], *labels: str
    ) -> None:
        """Add numbers with several labels, read at each scrape; `read` returns them by the labels' values."""
        self._add(name, text, read, labels, counter=False)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return prometheus.generate_latest(_Shown(self._registry, self._driver))

    def names(self) -> frozenset[str]:
        """Return the names of all metrics, as in documents: counters with `_total`."""
        families = self._registry.collect()
        return frozenset(
            f"{family.name}_total" if family.type == "counter" else family.name for family in families
        )

    def labels(self) -> Mapping[str, Values]:
        """Return the label names of this daemon's own metrics, by the metrics' names in documents."""
        return {name: ("driver", *described.labels) for name, described in self._described.items()}

    def list_described(self) -> Mapping[str, Described]:
        """Return the descriptions of this daemon's own metrics, by the metrics' names in documents."""
        return self._described

    def _describe(self, kind: str, name: str, text: str, labels: Values) -> None:
        self._described[f"{self._prefix}{name}"] = Described(kind=kind, labels=labels, help=text)

    def _add(
        self,
        name: str,
        text: str,
        read: Callable[[], Mapping[Values, float]],
        labels: Values,
        *,
        counter: bool,
    ) -> None:
        kind, shown = ("counter", f"{name}_total") if counter else ("gauge", name)
        self._describe(kind, shown, text, labels)
        self._asked[name] = _Asked(
            name=self._prefix + name, help=text, labels=labels, counter=counter, read=read
        )


class _Collected(registry.Collector):
    def __init__(self, asked: dict[str, _Asked], contained: containment.Containment) -> None:
        self._asked = asked
        self._contained = contained

    def describe(self) -> Iterable[core.Metric]:
        return ()

    def collect(self) -> Iterator[core.Metric]:
        for asked in tuple(self._asked.values()):
            family = core.CounterMetricFamily if asked.counter else core.GaugeMetricFamily
            family_of_samples = family(asked.name, asked.help, labels=asked.labels)
            with self._contained.attempt("metrics", asked.name, extra=lambda: {"metric": asked.name}):  # noqa: B023
                for values, number in asked.read().items():
                    family_of_samples.add_metric(values, number)
            yield family_of_samples


class _Shown(registry.Collector):
    """A registry with the driver on every series, and without the creation time of counters."""

    def __init__(self, inner: registry.CollectorRegistry, driver: str) -> None:
        self._inner = inner
        self._label = {"driver": driver}

    def collect(self) -> Iterator[core.Metric]:
        for family in self._inner.collect():
            family.samples = [
                sample._replace(labels=self._label | sample.labels)
                for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            yield family
