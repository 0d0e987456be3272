"""What the node daemon can be told, checked as a whole."""

import re
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver import errors

DRIVER = "drawbar.dev"
DRIVER_NAME_LIMIT = 63
VISIBLE_TIMEOUT_MAX_SECONDS = 86_400
# A DNS subdomain, as Kubernetes asks of names of drivers and nodes.
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
POD_UID = re.compile(r"[A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The node daemon's configuration.

    Attributes:
        node_name: this node's name in Kubernetes.
        driver: the DRA driver's name.
        instance: the pod's uid, which keeps the sockets of two instances apart; empty where only one can run.
        kubelet_dir: the kubelet's directory, at the same path in the pod as on the host.
        cdi_dir: where the container runtime looks for CDI files.
        sysfs: the sysfs tree to read.
        uevents: `kernel`, or `unix:/path` for a mocked tree.
        visible_timeout_seconds: how long after the attach a device may take to become ready.
    """

    node_name: str
    driver: str = DRIVER
    instance: str = ""
    kubeconfig: str | None = None
    kubelet_dir: Path = Path("/var/lib/kubelet")
    cdi_dir: Path = Path("/var/run/cdi")
    sysfs: Path = Path("/sys")
    uevents: str = "kernel"
    visible_timeout_seconds: float = 60.0

    @property
    def checkpoint(self) -> Path:
        """The record of prepared claims; shared by the instances of one node, hence without the instance."""
        return self.kubelet_dir / "plugins" / self.driver / "checkpoint.json"


def validate(settings: Settings) -> None:
    """Lists everything that is wrong at once.

    Raises:
        errors.UsageError: something is.
    """
    problems = []
    if not settings.node_name:
        problems.append("no node name: pass --node-name or set NODE_NAME from spec.nodeName")
    elif not SUBDOMAIN.fullmatch(settings.node_name):
        problems.append(f"--node-name {settings.node_name!r} is no name of a node: see kubectl get nodes")
    if not SUBDOMAIN.fullmatch(settings.driver) or len(settings.driver) > DRIVER_NAME_LIMIT:
        problems.append(
            f"--driver-name {settings.driver!r} is not a DNS subdomain of at most {DRIVER_NAME_LIMIT} characters"
        )
    if not POD_UID.fullmatch(settings.instance):
        problems.append(f"--pod-uid {settings.instance!r} is no uid: set POD_UID from metadata.uid")
    for option, path in (("--kubelet-dir", settings.kubelet_dir), ("--cdi-dir", settings.cdi_dir)):
        if not path.is_absolute():
            problems.append(f"{option} {path} is not an absolute path")
    # Written so that it holds for no NaN.
    if not 0 < settings.visible_timeout_seconds <= VISIBLE_TIMEOUT_MAX_SECONDS:
        problems.append(
            f"--visible-timeout {settings.visible_timeout_seconds} is not a number of seconds from above 0 to "
            f"{VISIBLE_TIMEOUT_MAX_SECONDS}"
        )
    if problems:
        raise errors.UsageError("; ".join(problems))
