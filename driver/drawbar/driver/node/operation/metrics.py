"""What the node daemon counts; `docs/metrics.md` tells administrators what each is good for."""

from drawbar.driver.kube import kinds
from drawbar.driver.operation import exposition

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


class Metrics(exposition.Exposition):
    """All counters and histograms of one node daemon."""

    def __init__(self, driver: str) -> None:
        super().__init__(PREFIX, driver)
        self.claim_requests = self.counter(
            "claim_requests", "Claims that the kubelet asked for, one by one.", "operation", "result"
        )
        self.claim_seconds = self.histogram(
            "claim_request_duration_seconds",
            "From the kubelet's call to the answer for one claim.",
            CLAIM_BUCKETS_SECONDS,
            "operation",
        )
        self.claims_in_flight = self.gauge("claim_requests_in_flight", "Claims being worked on.", "operation")
        self.uevents = self.counter("uevents", "Events of the kernel about devices.", "action")
        self.overflows = self.counter(
            "uevent_overflows", "Times that events were lost and all was read again."
        )
        self.visible_seconds = self.histogram(
            "visible_duration_seconds",
            "From the last event of a device to its attachment being Visible at the API server.",
            VISIBLE_BUCKETS_SECONDS,
        )
        self.attach_failures = self.counter(
            "attach_failures", "Devices that did not come or would not work.", "reason"
        )
        self.release_seconds = self.histogram(
            "release_duration_seconds",
            "From the wish to detach to the device being Released.",
            RELEASE_BUCKETS_SECONDS,
        )
        self.slice_writes = self.counter("slice_writes", "Writes of this node's ResourceSlices.", "result")

    def request_done(self, verb: str, resource: str, result: str) -> None:
        """See `exposition.Exposition.request_done`; writes of slices have a number of their own."""
        super().request_done(verb, resource, result)
        if resource == kinds.SLICE.plural and verb in ("POST", "PUT", "PATCH", "DELETE"):
            self.slice_writes.labels(result).inc()
