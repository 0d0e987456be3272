"""The configuration of the controller, checked as a whole.

`drawbar.driver.configuration` reads it from file, environment and flags.
"""

import os
import re
import socket
from dataclasses import dataclass, field

from drawbar.driver import logs
from drawbar.driver.api import dnsnames, drivers
from drawbar.driver.configuration import schema
from drawbar.driver.operation import address
from drawbar.fabric import contract

DRIVER = drivers.DEFAULT
BINDING_TIMEOUT_SECONDS = 600.0
BINDING_TIMEOUT_MAX_SECONDS = 86_400
MARGIN_SECONDS = 30.0
NAMESPACE = "drawbar"
LEASE = "drawbar-controller"
# Seven writes per attach and detach: more than forty of both in a second.
WRITES_PER_SECOND = 400.0
# An address of the pod itself; a second container of it can offer them to Prometheus.
HTTP_ADDRESS = "127.0.0.1:9179"
# A DNS label, as Kubernetes requires of namespaces.
# Only equalities, as the chart sets them.
_SELECTOR = re.compile(r"[A-Za-z0-9][\w./-]*=[\w.-]*(,[A-Za-z0-9][\w./-]*=[\w.-]*)*")


def own_identity() -> str:
    """Return the host name and process id: two processes on one host are two candidates."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Probes and metrics.

    Attributes:
        address: 127.0.0.1:PORT, unix:/path, or off.
    """

    address: str = HTTP_ADDRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The controller's configuration.

    Attributes:
        driver: the DRA driver's name.
        kubeconfig: access to the API server; else $KUBECONFIG, or the pod's service account.
        binding_timeout_seconds: the scheduler's `bindingTimeout` (`DynamicResourcesArgs`); the controller gives up 30 s
            earlier.
        leader_election: wait for the lease; without it only one controller may run.
        lease_namespace: the controller's namespace, with its lease `drawbar-controller` and the Fabrics' Secrets.
        node_daemon_selector: labels of the node daemons' pods in its namespace, such as app=drawbar-node: a node is
            offered while its pod is Ready; none: while the Node is Ready.
        identity: the name in the lease, unique for each pod and kept over its restarts; none: host name and process
            id.
        writes_per_second: the most writes to the API server, sustained; renewals of the lease do not wait.
        writes_burst: the most writes at once after a quiet time.
        immediate_allocation: allocate annotated claims at once, from reserved devices; needs further permissions.
        fabric_networks: the only networks of fabric managers, such as 10.1.0.0/16; none: all addresses but loopback,
            link-local, multicast and clouds' metadata services
        log: the log on stderr.
        http: probes and metrics.
    """

    driver: str = field(
        default=DRIVER, metadata=schema.name_setting(key="driverName", flag="--driver-name", metavar="NAME")
    )
    kubeconfig: str | None = field(default=None, metadata=schema.name_setting(metavar="FILE"))
    binding_timeout_seconds: float = BINDING_TIMEOUT_SECONDS
    leader_election: bool = True
    lease_namespace: str = field(
        default=NAMESPACE, metadata=schema.name_setting(metavar="NAME", variables=("POD_NAMESPACE",))
    )
    node_daemon_selector: str = field(default="", metadata=schema.name_setting(metavar="LABELS"))
    identity: str = field(default="", metadata=schema.name_setting(metavar="NAME", variables=("POD_NAME",)))
    writes_per_second: float = field(
        default=WRITES_PER_SECOND,
        metadata=schema.name_setting(key="apiWritesPerSecond", flag="--api-writes-per-second"),
    )
    writes_burst: int = field(
        default=500, metadata=schema.name_setting(key="apiWritesBurst", flag="--api-writes-burst")
    )
    immediate_allocation: bool = False
    fabric_networks: tuple[str, ...] = field(default=(), metadata=schema.name_setting(metavar="NETWORKS"))
    log: logs.Options = field(default_factory=logs.Options)
    http: Http = field(default_factory=Http)

    @property
    def patience_seconds(self) -> float:
        """Return the seconds from an allocation to giving up; the margin leaves the scheduler time to read the failure."""
        return self.binding_timeout_seconds - min(MARGIN_SECONDS, self.binding_timeout_seconds / 4)

    @property
    def lease(self) -> str:
        """Return the name of the lease: each driver has one leader."""
        return drivers.resource(LEASE, self.driver)

    @property
    def candidate(self) -> str:
        """Return the identity of this process in the lease."""
        return self.identity or own_identity()


def problems(settings: Settings) -> list[str]:
    """Return one sentence for each wrong value."""
    sentences = drivers.problems(settings.driver)
    # These conditions are false for NaN.
    if not 1 <= settings.binding_timeout_seconds <= BINDING_TIMEOUT_MAX_SECONDS:
        sentences.append(
            f"--binding-timeout {settings.binding_timeout_seconds} is not a number of seconds from 1, the least that "
            f"the scheduler takes, to {BINDING_TIMEOUT_MAX_SECONDS}"
        )
    if not 0 < settings.writes_per_second < float("inf"):
        sentences.append(f"--api-writes-per-second {settings.writes_per_second} is not a number above 0")
    if settings.writes_burst < 1:
        sentences.append(f"--api-writes-burst {settings.writes_burst} is not above 0")
    if not dnsnames.is_label(settings.lease_namespace):
        sentences.append(f"--lease-namespace {settings.lease_namespace!r} is not the name of a namespace")
    if settings.node_daemon_selector and not _SELECTOR.fullmatch(settings.node_daemon_selector):
        sentences.append(
            f"--node-daemon-selector {settings.node_daemon_selector!r} is not a list of labels such as "
            "app=drawbar-node,release=main"
        )
    for text in settings.fabric_networks:
        try:
            contract.Networks.parse([text])
        except ValueError:
            sentences.append(
                f"--fabric-networks {text!r} is not a network; write it as 10.1.0.0/16 or fd00::/8"
            )
    return sentences + address.find_problems(settings.http.address)
