"""The settings of the node daemon, checked as a whole.

Each topic's dataclass is in the module of its part, with the rules for its values. `drawbar.driver.configuration` reads the
settings from file, environment and flags.

By default, probes and metrics are served on a UNIX socket next to the kubelet's. Two instances can run side by side during a
rolling update, only root has access, and with `hostNetwork` no port of the host is used.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from drawbar.driver import logs
from drawbar.driver.api import dnsnames, drivers
from drawbar.driver.configuration import schema
from drawbar.driver.node import treatment
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.health import policy
from drawbar.driver.node.local import nulls, selections
from drawbar.driver.node.preparation import limits
from drawbar.driver.node.treatment import hooks
from drawbar.driver.operation import address

AUTO = address.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Probes and metrics.

    Attributes:
        address: auto (a socket beside the kubelet's), unix:/path, 127.0.0.1:PORT, or off.
    """

    address: str = AUTO


def parse_endpoint(text: str, data_dir: Path, instance: str) -> address.Endpoint | None:
    """Return the endpoint of an address; None for `off`.

    Args:
        text: the address; see `Http`.
        data_dir: the driver's directory at the kubelet, for `auto`.
        instance: the pod's UID, for `auto`.

    Raises:
        errors.UsageError: the text is no address; the message has the remedy.
    """
    return address.parse(text, auto=str(_socket_path(data_dir, instance)))


def _socket_path(data_dir: Path, instance: str) -> Path:
    path = data_dir / (f"http-{instance}.sock" if instance else "http.sock")
    if len(str(path).encode()) <= address.PATH_LIMIT_BYTES:
        return path
    short = hashlib.sha256(instance.encode()).hexdigest()[:8]
    return data_dir / f"h-{short}.sock"


DRIVER = drivers.DEFAULT
VISIBLE_TIMEOUT_MAX_SECONDS = 86_400
POD_UID = re.compile(r"[A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The node daemon's configuration.

    Attributes:
        node_name: this node's name in Kubernetes.
        driver: the DRA driver's name.
        instance: the pod's uid, to tell two instances on one node apart.
        kubeconfig: access to the API server; else $KUBECONFIG, or the pod's service account.
        kubelet_dir: the kubelet's directory, at the host's path.
        cdi_dir: the container runtime's directory of CDI files.
        sysfs: the sysfs tree to read.
        uevents: kernel, or unix:/path of a mocked tree.
        visible_timeout_seconds: the longest time from the attach to readiness.
        device_metadata: give containers files about their devices.
        log: the log on stderr.
        http: probes and metrics.
        discovery: how closely the inventory follows the kernel.
        prepare: how long a Prepare may wait.
        release: how long a release may take.
        initialise: where the programs and bitstreams lie that make devices ready.
        local_pool: which devices of this node are its own to give out.
        null_device: whether a request may go without a device.
        health: the limits of a healthy device, and the consequences.
    """

    node_name: str = field(default="", metadata=schema.name_setting(metavar="NAME", variables=("NODE_NAME",)))
    driver: str = field(
        default=DRIVER, metadata=schema.name_setting(key="driverName", flag="--driver-name", metavar="NAME")
    )
    instance: str = field(
        default="",
        metadata=schema.name_setting(key="podUID", flag="--pod-uid", metavar="UID", variables=("POD_UID",)),
    )
    kubeconfig: str | None = field(default=None, metadata=schema.name_setting(metavar="FILE"))
    kubelet_dir: Path = Path("/var/lib/kubelet")
    cdi_dir: Path = Path("/var/run/cdi")
    sysfs: Path = Path("/sys")
    uevents: str = field(default="kernel", metadata=schema.name_setting(metavar="SOURCE"))
    visible_timeout_seconds: float = 60.0
    device_metadata: bool = False
    log: logs.Options = field(default_factory=logs.Options)
    http: Http = field(default_factory=Http)
    discovery: devices.Tracking = field(default_factory=devices.Tracking)
    prepare: limits.Limits = field(default_factory=limits.Limits)
    release: treatment.Timeouts = field(default_factory=treatment.Timeouts)
    initialise: hooks.Settings = field(default_factory=hooks.Settings)
    local_pool: selections.Selection = field(default_factory=selections.Selection)
    null_device: nulls.NullDevice = field(default_factory=nulls.NullDevice)
    health: policy.Policy = field(default_factory=policy.Policy)

    @property
    def data_dir(self) -> Path:
        """Return the driver's directory at the kubelet."""
        return self.kubelet_dir / "plugins" / self.driver

    @property
    def acting_lock(self) -> Path:
        """Return the lock file of the instance that acts on the node's devices."""
        return self.data_dir / "acting.lock"


def problems(settings: Settings) -> list[str]:
    """Return one sentence for each wrong value of all topics."""
    topics = {
        "http": address.find_problems(settings.http.address, auto="/http.sock"),
        "discovery": devices.problems(settings.discovery),
        "prepare": limits.problems(settings.prepare),
        "release": treatment.problems(settings.release),
        "initialise": hooks.problems(settings.initialise),
        "localPool": selections.problems(settings.local_pool),
        "nullDevice": nulls.problems(settings.null_device),
        "health": policy.problems(settings.health),
    }
    wrong = _problems(settings)
    return wrong + [f"{topic}: {sentence}" for topic, sentences in topics.items() for sentence in sentences]


def _problems(settings: Settings) -> list[str]:
    wrong = []
    if not settings.node_name:
        wrong.append("no node name: pass --node-name or set NODE_NAME from spec.nodeName")
    elif not dnsnames.is_subdomain(settings.node_name):
        wrong.append(f"--node-name {settings.node_name!r} is not the name of a node: see kubectl get nodes")
    wrong += drivers.problems(settings.driver)
    if not POD_UID.fullmatch(settings.instance):
        wrong.append(f"--pod-uid {settings.instance!r} is not a UID: set POD_UID from metadata.uid")
    for option, path in (("--kubelet-dir", settings.kubelet_dir), ("--cdi-dir", settings.cdi_dir)):
        if not path.is_absolute():
            wrong.append(f"{option} {path} is not an absolute path")
    # NaN fails this comparison, so it is refused.
    if not 0 < settings.visible_timeout_seconds <= VISIBLE_TIMEOUT_MAX_SECONDS:
        wrong.append(
            f"--visible-timeout {settings.visible_timeout_seconds} is not a number of seconds from above 0 to "
            f"{VISIBLE_TIMEOUT_MAX_SECONDS}"
        )
    return wrong
