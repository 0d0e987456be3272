"""The settings of a cluster of doubles."""

from dataclasses import dataclass, field
from pathlib import Path

from drawbar.mocks import errors
from drawbar.mocks.fabric import configuration
from drawbar.mocks.sysfs import hosts

MOST_NODES = 16  # a node daemon takes 60 MB of memory and a second of processor time to start
MOST_DEVICES_PER_ENCLOSURE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The size, speed and release of a cluster.

    Attributes:
        nodes: the nodes' names; each is also the name of a host of the fabric.
        enclosures: the enclosures of the pool.
        slots: hot-plug slots, and ports of the fabric, per node.
        attach_seconds: the fabric's time to attach a device.
        detach_seconds: the fabric's time to detach a device.
        profile: the Kubernetes release that the API server double imitates.
        poll_seconds: the scheduler double's pause between two looks at binding conditions.
        double: the double of the fabric, a key of `fabricdoubles.DOUBLES`; the Redfish ones take `attach_seconds`
            to detach, too.
        fabric: further settings of the simulated fabric, such as failures to come; its hosts are the nodes, and its enclosures and
            times are those here.
        service_accounts: further accounts to write a kubeconfig for, `NAMESPACE:NAME` or `NAMESPACE:NAME:NODE`.
        faults: a file of faults for the API server double, in force from its start.
        daemons: also start the controller and the node daemons; without them there are only the doubles, for a
            driver started by other means.
        start_seconds: the time limit of the start, in seconds.
    """

    nodes: tuple[str, ...] = ("node-1",)
    enclosures: tuple[configuration.EnclosureSpec, ...] = field(default=())
    slots: int = 4
    attach_seconds: float = 0.0
    detach_seconds: float = 0.0
    profile: str = "1.36"
    poll_seconds: float = 5.0
    double: str = "simulated"
    fabric: configuration.Configuration = field(default_factory=configuration.Configuration)
    service_accounts: tuple[str, ...] = ()
    faults: Path | None = None
    daemons: bool = True
    start_seconds: float = 120.0

    @property
    def devices(self) -> int:
        """Return the number of devices in the pool."""
        return sum(len(enclosure.devices) for enclosure in self.enclosures)


def validate(settings: Settings) -> None:
    """Check the settings, and list all problems at once.

    Raises:
        errors.UsageError: a setting is wrong.
    """
    problems = []
    if not 1 <= len(settings.nodes) <= MOST_NODES:
        problems.append(f"a cluster of doubles has 1 to {MOST_NODES} nodes, not {len(settings.nodes)}")
    if len(set(settings.nodes)) < len(settings.nodes):
        problems.append("two nodes have the same name")
    if not 1 <= settings.slots <= hosts.MOST_SLOTS:
        problems.append(f"a node has 1 to {hosts.MOST_SLOTS} slots, not {settings.slots}")
    if settings.poll_seconds <= 0:
        problems.append(f"the scheduler cannot look every {settings.poll_seconds} seconds")
    problems += [
        f"service account {account!r} is not NAMESPACE:NAME or NAMESPACE:NAME:NODE"
        for account in settings.service_accounts
        if account.count(":") not in (1, 2) or not all(account.split(":"))
    ]
    if settings.fabric.hosts:
        problems.append(
            "the hosts of the fabric are the nodes: leave hosts out of the fabric's configuration"
        )
    problems += [
        f"enclosure {enclosure.id} has {len(enclosure.devices)} devices, at most {MOST_DEVICES_PER_ENCLOSURE} fit"
        for enclosure in settings.enclosures
        if len(enclosure.devices) > MOST_DEVICES_PER_ENCLOSURE
    ]
    for name, seconds in (("attach", settings.attach_seconds), ("detach", settings.detach_seconds)):
        if seconds < 0:
            problems.append(f"the fabric cannot take {seconds} seconds to {name} a device")
    if problems:
        raise errors.UsageError("; ".join(problems))
