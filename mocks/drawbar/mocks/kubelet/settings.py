"""The times of the kubelet double, with the real kubelet's values, and what it knows of its release."""

from dataclasses import dataclass

# What each kubelet release speaks; the first entry of the plugin's list that is here wins.
SERVICES_BY_RELEASE = {
    "1.32": ("v1beta1.DRAPlugin",),
    "1.33": ("v1beta1.DRAPlugin",),
    "1.34": ("v1.DRAPlugin", "v1beta1.DRAPlugin"),
    "1.35": ("v1.DRAPlugin", "v1beta1.DRAPlugin"),
    "1.36": ("v1.DRAPlugin", "v1beta1.DRAPlugin"),
    "1.37": ("v1.DRAPlugin", "v1beta1.DRAPlugin"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the kubelet double behaves.

    Attributes:
        release: which kubelet this is, such as `1.36`.
        watch_seconds: pause between two looks at the registration directory.
        dial_timeout_seconds: for connecting to a registration socket.
        info_timeout_seconds: for GetInfo.
        notify_timeout_seconds: for NotifyRegistrationStatus.
        call_timeout_seconds: for NodePrepareResources and NodeUnprepareResources.
        retry_first_seconds: pause after the first failed sync of a pod, or registration; doubles each time.
        retry_max_seconds: the longest such pause.
        check_device_nodes: refuse a CDI device node that is not on this host, as a runtime does. Off by default,
            because the device nodes of mocked devices do not exist.
    """

    release: str = "1.36"
    watch_seconds: float = 0.1
    dial_timeout_seconds: float = 10.0
    info_timeout_seconds: float = 1.0
    notify_timeout_seconds: float = 5.0
    call_timeout_seconds: float = 45.0
    retry_first_seconds: float = 1.0
    retry_max_seconds: float = 90.0
    check_device_nodes: bool = False

    def pause_seconds(self, failures: int) -> float:
        """The pause after that many failures in a row (at least one)."""
        return min(self.retry_max_seconds, self.retry_first_seconds * 2.0 ** min(failures - 1, 16))
