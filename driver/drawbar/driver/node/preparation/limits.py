"""The waits of a Prepare, all of them shorter than the patience of the kubelet."""

from dataclasses import dataclass

# The kubelet gives up a call after 45 s and then tells its user nothing but that; the waits come one after the other.
LATE_DEVICE_MAX_SECONDS = 30.0
LOCK_MAX_SECONDS = 10.0
# Kubelets of before 1.28 give up after 10 s. What is left of that for the write and the answer, when a wait ends.
ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The waits of a Prepare.

    Attributes:
        late_device_seconds: how long a call waits for a device that is not here yet; 0 does not wait.
        lock_seconds: how long another instance may keep the record of prepared claims to itself.
    """

    late_device_seconds: float = 30.0
    lock_seconds: float = 10.0


def problems(limits: Limits) -> list[str]:
    """Return one sentence for each wrong value."""
    wrong = []
    # Written so that they hold for no NaN.
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
