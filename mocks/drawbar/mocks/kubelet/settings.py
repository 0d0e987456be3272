"""The times of the kubelet double, with the real kubelet's values, and its imitated release."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from drawbar.mocks.kube import backoff
from drawbar.mocks.kubelet import versions

# All releases; `versions` explains the services.
SERVICES_BY_RELEASE = versions.SERVICES_BY_RELEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the kubelet double.

    Attributes:
        release: the imitated kubelet's release, such as `1.36`.
        check_device_nodes: true to refuse a CDI device node missing from this host, as a runtime does. The default is
            false, because the device nodes of mocked devices do not exist.
        watch_seconds: pause between two listings of the registration directory; the real kubelet uses inotify.
        reconcile_seconds: pause between two comparisons of the sockets with the registered plugins.
        dial_timeout_seconds: time limit for connecting to a registration socket.
        info_timeout_seconds: time limit for GetInfo.
        notify_timeout_seconds: time limit for NotifyRegistrationStatus.
        registration_first_seconds: pause after a failed registration; doubles each time.
        registration_max_seconds: the longest such pause.
        call_timeout_seconds: time limit for NodePrepareResources and NodeUnprepareResources.
        retry_first_seconds: pause after the first failed sync of a pod; doubles each time. The real kubelet's first
            pauses are longer; only the retries and the longest pause are imitated.
        retry_max_seconds: the longest such pause.
        resync_seconds: pause between two syncs of every unchanged pod.
        unprepare_seconds: pause between two searches for claims of missing pods.
        stop_seconds: time for containers to end after their signal, up to the grace period. Zero, because there are
            no processes.
        wiping_seconds: time without a connected plugin until the driver's slices of the node are deleted.
        wipe_retry_first_seconds: pause after a failed wipe; doubles each time.
        wipe_retry_max_seconds: the longest such pause.
        health_timeout_seconds: validity of a health report without a time-out of its own.
        health_reconnect_seconds: pause between two health streams to one plugin.
    """

    release: str = "1.36"
    check_device_nodes: bool = False
    watch_seconds: float = 0.1
    reconcile_seconds: float = 1.0
    dial_timeout_seconds: float = 10.0
    info_timeout_seconds: float = 1.0
    notify_timeout_seconds: float = 5.0
    registration_first_seconds: float = 0.5
    registration_max_seconds: float = 122.0
    call_timeout_seconds: float = 45.0
    retry_first_seconds: float = 1.0
    retry_max_seconds: float = 90.0
    resync_seconds: float = 60.0
    unprepare_seconds: float = 60.0
    stop_seconds: float = 0.0
    wiping_seconds: float = 30.0
    wipe_retry_first_seconds: float = 1.0
    wipe_retry_max_seconds: float = 300.0
    health_timeout_seconds: float = 30.0
    health_reconnect_seconds: float = 5.0

    def pause_seconds(self, failures: int) -> float:
        """Return the pause after this number of consecutive failed syncs of a pod (at least one), in seconds."""
        return backoff.longest(failures, self.retry_first_seconds, self.retry_max_seconds)

    def registration_pause_seconds(self, failures: int) -> float:
        """Return the pause after this number of consecutive failed registrations (at least one), in seconds."""
        return backoff.longest(failures, self.registration_first_seconds, self.registration_max_seconds)

    def with_time(self, name: str, seconds: float) -> Self:
        """Return the same settings with one of the times replaced.

        Raises:
            ValueError: there is no time of that name (the message lists all), or it is negative.
        """
        if name not in times():
            raise ValueError(f"there is no time {name!r}; there are {', '.join(times())}")
        if seconds < 0:
            raise ValueError(f"{name} cannot be negative")
        changes: dict[str, Any] = {f"{name}_seconds": seconds}
        return replace(self, **changes)


def times() -> tuple[str, ...]:
    """Return the names of all times, without their unit."""
    suffix = "_seconds"
    return tuple(field.name.removesuffix(suffix) for field in fields(Settings) if field.name.endswith(suffix))
