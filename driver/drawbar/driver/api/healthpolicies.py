"""HealthPolicies: the taints of devices for other programs' alerts.

The CRD bounds every field, so objects read here are within the bounds.

Source: `deploy/drawbar/definitions/healthpolicies.yaml`.
"""

import enum

from drawbar.driver.api import drivers, meta

KIND = "HealthPolicy"

MONITOR_LABEL = "drawbar.dev/health-monitor"
"""On rules of a health monitor; the value is the driver of its policies."""
POLICY_ANNOTATION = "drawbar.dev/health-policy"
EFFECT_ANNOTATION = "drawbar.dev/health-effect"
"""The effect that the monitor wrote; where the rule has another, an administrator changed it."""
ACTED_ANNOTATION = "drawbar.dev/health-acted-at"
"""When the monitor last gave the rule an effect."""


class Source(enum.StrEnum):
    """The source of signals."""

    ALERT = "alert"
    REDFISH = "redfish"
    COMMAND = "command"


class Device(meta.Struct, frozen=True):
    """Which labels of a signal name the device.

    Attributes:
        label: its value is the device's name, or the value of `attribute`.
        attribute: a string attribute of the driver's devices, such as serial.
        pool_label: its value is the name of the pool; without it, one device of all pools must fit.
    """

    label: str = "device"
    attribute: str | None = None
    pool_label: str | None = None


class Taint(meta.Struct, frozen=True):
    """The taint of the rules; its value is the policy's name.

    Attributes:
        evictions_per_second: how many pods may be evicted because of it, where the API server keeps that.
    """

    key: str = "drawbar.dev/health-monitor"
    effect: str = "None"
    evictions_per_second: int | None = None


class Hold(meta.Struct, frozen=True):
    """How long a signal must hold before the device is tainted; both must be reached."""

    seconds: int = 60
    times: int = 1


class Rate(meta.Struct, frozen=True):
    """The most devices that are tainted, or given a harder effect, within so many seconds."""

    devices: int = 5
    seconds: int = 3600


class Spec(meta.Struct, frozen=True):
    """The administrator's policy.

    Attributes:
        driver: whose devices are tainted; the monitor of this driver serves the policy.
        fabric: devices of this Fabric alone.
        match_labels: a signal must have each of them.
        clear_seconds: how long a device must be clear before its rule is deleted; None for as long as `hold.seconds`.
        expire_seconds: a signal that is not repeated for so long counts as gone; rules expire then.
    """

    source: Source
    driver: str = drivers.DEFAULT
    fabric: str | None = None
    match_labels: dict[str, str] = {}
    device: Device = Device()
    taint: Taint = Taint()
    hold: Hold = Hold()
    clear_seconds: int | None = None
    minimum_healthy_percent: int = 80
    rate: Rate = Rate()
    expire_seconds: int = 21600
    dry_run: bool = False

    @property
    def clear_after_seconds(self) -> int:
        """Return the seconds without findings after which a device's rule is deleted."""
        return self.hold.seconds if self.clear_seconds is None else self.clear_seconds


class HealthPolicy(meta.Struct, frozen=True):
    """A policy."""

    metadata: meta.ObjectMeta
    spec: Spec
