"""What the health monitor counts; `docs/metrics.md` describes what each is good for."""

from drawbar.driver.api.healthpolicies import Source
from drawbar.driver.operation import exposition

PREFIX = "drawbar_health_monitor_"


class Metrics(exposition.Exposition):
    """All counters of one health monitor."""

    def __init__(self, driver: str) -> None:
        super().__init__(PREFIX, driver)
        self.requests = self.counter("requests", "Requests by their status.", "status")
        self.signals = self.counter("signals", "Signals by what became of them.", "source", "outcome")
        self.decisions = self.counter("decisions", "Decisions.", "decision", "reason")
        self.failures = self.counter("failures", "Decisions that could not be carried out.", "decision")
        self.commands = self.counter("command_runs", "Runs of the command.", "result")
        for result in ("ok", "failed"):
            self.commands.labels(result)
        for source in Source:
            self.signals.labels(source.value, "used")
