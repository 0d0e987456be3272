"""The waits of a Prepare, each shorter than the kubelet's own timeout."""

from dataclasses import dataclass

# The kubelet gives up a call after 45 s, and then reports no other reason. The two waits follow one another.
LATE_DEVICE_MAX_SECONDS = 30.0
LOCK_MAX_SECONDS = 10.0
# The time for the write and the answer after a wait. Kubelets before 1.28 give up a call after 10 s.
ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The waits of a Prepare.

    Attributes:
        late_device_seconds: the wait of a call for a missing device.
        lock_seconds: the wait of a call for another instance's lock of the record of prepared claims.
    """

    late_device_seconds: float = 30.0
    lock_seconds: float = 10.0


def problems(limits: Limits) -> list[str]:
    """Return one sentence for each wrong value."""
    wrong = []
    # NaN fails these comparisons, so it is refused.
    if not 0 <= limits.late_device_seconds <= LATE_DEVICE_MAX_SECONDS:
        wrong.append(
            f"the wait for a late device, {limits.late_device_seconds} s, is not between 0 and "
            f"{LATE_DEVICE_MAX_SECONDS:g} s; the kubelet gives up a call after 45 s"
        )
    if not 0 < limits.lock_seconds <= LOCK_MAX_SECONDS:
        wrong.append(
            f"the wait for the checkpoint, {limits.lock_seconds} s, is not above 0 and at most {LOCK_MAX_SECONDS:g} s; "
            f"the kubelet gives up a call after 45 s"
        )
    return wrong
