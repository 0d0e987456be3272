"""The times of the kubelet double, with the real kubelet's values, and the release it behaves like."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from drawbar.driver import backoff
from drawbar.mocks.kubelet import versions

# The releases there are; `versions` explains the services.
SERVICES_BY_RELEASE = versions.SERVICES_BY_RELEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the kubelet double behaves.

    Attributes:
        release: which kubelet this is, such as `1.36`.
        resource_health: whether it watches the health of devices; None: as its release does by default.
        check_device_nodes: refuse a CDI device node that is not on this host, as a runtime does. Off by default,
            because the device nodes of mocked devices do not exist.
        watch_seconds: pause between two listings of the registration directory; the real kubelet uses inotify.
        reconcile_seconds: pause between two comparisons of the sockets with the registered plugins.
        dial_timeout_seconds: for connecting to a registration socket.
        info_timeout_seconds: for GetInfo.
        notify_timeout_seconds: for NotifyRegistrationStatus.
        registration_first_seconds: pause after a failed registration; doubles each time.
        registration_max_seconds: the longest such pause.
        call_timeout_seconds: for NodePrepareResources and NodeUnprepareResources.
        retry_first_seconds: pause after the first failed sync of a pod; doubles each time. The real kubelet's first
            pauses are longer; only that it tries again and how long the pauses become are imitated.
        retry_max_seconds: the longest such pause.
        resync_seconds: pause between two syncs of every pod although nothing changed.
        unprepare_seconds: pause between two searches for claims of pods that are gone.
        stop_seconds: how long containers take to end after their signal, if the grace period is as long. Zero, as
            there are no processes.
        wiping_seconds: how long a driver may be without a connected plugin before its node's slices are deleted.
        wipe_retry_first_seconds: pause after a failed wipe; doubles each time.
        wipe_retry_max_seconds: the longest such pause.
        health_timeout_seconds: how long a health report without a time of its own counts.
        health_reconnect_seconds: pause between two health streams to one plugin.
    """

    release: str = "1.36"
    resource_health: bool | None = None
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

    @property
    def watches_health(self) -> bool:
        """Whether health streams are opened and pods show health."""
        wanted = self.resource_health
        return versions.health_is_on(self.release) if wanted is None else wanted

    def pause_seconds(self, failures: int) -> float:
        """The pause after that many failed syncs of a pod in a row (at least one)."""
        return backoff.longest(failures, self.retry_first_seconds, self.retry_max_seconds)

    def registration_pause_seconds(self, failures: int) -> float:
        """The pause after that many failed registrations at one socket in a row (at least one)."""
        return backoff.longest(failures, self.registration_first_seconds, self.registration_max_seconds)

    def with_time(self, name: str, seconds: float) -> Self:
        """The same with one of the times replaced.

        Raises:
            ValueError: there is no time of that name, or it is negative; the message says which there are.
        """
        if name not in times():
            raise ValueError(f"there is no time {name!r}; there are {', '.join(times())}")
        if seconds < 0:
            raise ValueError(f"{name} cannot be negative")
        changes: dict[str, Any] = {f"{name}_seconds": seconds}
        return replace(self, **changes)


def times() -> tuple[str, ...]:
    """The names of all times, without their unit."""
    suffix = "_seconds"
    return tuple(field.name.removesuffix(suffix) for field in fields(Settings) if field.name.endswith(suffix))
