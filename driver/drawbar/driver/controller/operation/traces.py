"""The traces of attaches: the steps that `latency` measures, as spans.

A trace is sent as a whole once the device is ready or has failed. Attaches without a begin in this process, devices that are
handed on, and those without an attachment have none. It is bounded like `latency`, and by `OPEN_MAX`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from drawbar.driver.api import attachments
from drawbar.driver.controller import names
from drawbar.driver.tracing import spans

ROOT = "attach"
OPEN_MAX = 4096
NAMES = {
    "create": "record attachment",
    "ask": "plan attach",
    "connect": "fabric attach",
    "tell": "report attached",
    "ready": "await node",
}
"""The span of each of `metrics.STEPS_THERE`."""
_SECOND = 1_000_000_000


@dataclass(slots=True)
class _Attach:
    """An attach that goes on.

    Attributes:
        began_ns: of the allocation.
        steps: by name, their begin and end.
        attachment: the device's attachment, once it is known.
    """

    began_ns: int
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    attachment: attachments.DeviceAttachment | None = None


class Traces:
    """The attaches that go on.

    Args:
        sink: takes the spans.
        now_ns: returns nanoseconds since 1970.
    """

    def __init__(self, sink: spans.Sink, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._sink = sink
        self._now_ns = now_ns
        self._open: dict[names.DeviceKey, _Attach] = {}

    def begin(self, key: names.DeviceKey) -> None:
        """Begin at the allocation of the device."""
        self._open.pop(key, None)
        if len(self._open) < OPEN_MAX:
            self._open[key] = _Attach(self._now_ns())

    def identify(self, key: names.DeviceKey, attachment: attachments.DeviceAttachment) -> None:
        """Note the device's attachment."""
        if (attach := self._open.get(key)) is not None:
            attach.attachment = attachment

    def add_step(self, key: names.DeviceKey, step: str, seconds: float) -> None:
        """Add a step that ends now."""
        if (attach := self._open.get(key)) is not None:
            now = self._now_ns()
            attach.steps.append((step, now - int(seconds * _SECOND), now))

    def finish(self, key: names.DeviceKey, failure: str = "") -> None:
        """Send the trace; `failure` is the reason of a failure."""
        attach = self._open.pop(key, None)
        if attach is None or attach.attachment is None:
            return
        trace, root = spans.trace_id(attach.attachment), spans.root_id(attach.attachment)
        attributes = spans.attributes(attach.attachment)
        for step, start, end in attach.steps:
            self._sink.export(
                spans.Span(
                    trace_id=trace,
                    parent_id=root,
                    name=NAMES[step],
                    start_ns=start,
                    end_ns=end,
                    attributes=attributes,
                )
            )
        self._sink.export(
            spans.Span(
                trace_id=trace,
                span_id=root,
                name=ROOT,
                start_ns=attach.began_ns,
                end_ns=self._now_ns(),
                attributes=attributes,
                failure=failure,
            )
        )

    def drop(self, key: names.DeviceKey) -> None:
        """Drop the trace of an attach that is of no interest."""
        self._open.pop(key, None)

    def clear(self) -> None:
        """Drop all traces."""
        self._open.clear()


class NoTraces(Traces):
    """Keeps nothing: tracing is off."""

    def __init__(self) -> None:
        super().__init__(spans.Off())

    def begin(self, key: names.DeviceKey) -> None:
        """Do nothing."""
