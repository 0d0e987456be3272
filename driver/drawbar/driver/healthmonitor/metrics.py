"""The counters of the health monitor; `docs/metrics.md` describes their use."""

from collections.abc import Callable, Mapping

from drawbar.driver.api.healthpolicies import Source
from drawbar.driver.operation import exposition

Read = Callable[[], Mapping[str, float]]

PREFIX = "drawbar_health_monitor_"


class Metrics(exposition.Exposition):
    """All counters of one health monitor."""

    def __init__(self, driver: str) -> None:
        super().__init__(PREFIX, driver)
        self.requests = self.counter("requests", "Requests; 401: a sender has a wrong token.", "status")
        self.signals = self.counter(
            "signals",
            "Signals: used, unmatched (no policy), unknown-device (none, or several), limit (too many, or a wrong form).",
            "source",
            "outcome",
        )
        self.decisions = self.counter(
            "decisions",
            "Decisions: Tainted, Changed, Renewed, Lifted, Withheld (with a reason).",
            "decision",
            "reason",
        )
        self.failures = self.counter("failures", "Refused decisions.", "decision")
        self.commands = self.counter("command_runs", "Runs of the command.", "result")
        for result in ("ok", "failed"):
            self.commands.labels(result)
        for source in Source:
            self.signals.labels(source.value, "used")
        # To Prometheus, a counter that begins at 1 has not grown.
        for decision in ("Tainted", "Changed", "Renewed", "Lifted"):
            self.failures.labels(decision)

    def show(
        self,
        *,
        ready: Read = dict,
        causes: Read = dict,
        rules: Read = dict,
        withheld: Read = dict,
        dropped_events: Read = dict,
        unreadable: Read = dict,
    ) -> None:
        """Show the values at each scrape; `withheld` by reason, `unreadable` by resource, the others by the empty string."""
        self.watch("ready", "1 while ready.", ready)
        self.watch("causes", "Reported devices.", causes)
        self.watch("rules", "DeviceTaintRules of this monitor.", rules)
        self.watch(
            "withheld",
            "Devices not tainted because of MinimumHealthyShare, Rate, Limit or DryRun.",
            withheld,
            label="reason",
        )
        self.watch(
            "unreadable_objects",
            "Unreadable objects.",
            unreadable,
            label="resource",
        )
        self.watch("dropped_events", "Unsent Events.", dropped_events, counter=True)
