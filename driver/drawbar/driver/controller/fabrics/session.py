"""One fabric manager, connected, listed and watched for as long as its Fabric object exists.

The session holds the fabric manager's latest state, and the cluster's holdings of the fabric. It receives the holdings
whenever they change. It reports changes to a listener, and asks nobody for anything. A defect of Drawbar itself ends
like a fault of the manager: the session begins again after a pause.
"""

import datetime

from drawbar.driver import clocks, containment
from drawbar.driver.api import fabrics
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import faults, names, pairs, rates
from drawbar.driver.controller.fabrics import credentials, redacting_adapter, status
from drawbar.driver.controller.fabrics.connection import LIMITED, ManagerConnection
from drawbar.driver.controller.fabrics.inventory import Inventory
from drawbar.driver.controller.fabrics.news import Listener, News
from drawbar.driver.controller.hosts import NodeMap
from drawbar.driver.controller.offers import holdings
from drawbar.fabric import contract

ATTACHES_WINDOW = datetime.timedelta(minutes=1)
ERASURES_WINDOW = datetime.timedelta(days=1)


class Session:
    """The session with one fabric manager. Run `run()` as a task; read the attributes at any time.

    Attributes:
        name: the Fabric's name.
        inventory: devices and hosts as last reported.
        manager: the connection to the fabric manager.
        nodes: the map of hosts to nodes.
        is_mapped: whether the hosts of a listing were mapped since the session began.
        usable_nodes: the number of nodes that can be given devices, with or without a free port; None before the first look.
        is_all_tainted: whether each published device has a taint that keeps further claims away.
        unpublished: the reason why the fabric is not published; None if it is.
        faults: the failures of devices and hosts.
        attaches: the attaches of the last minute, by namespace.
        erasures: the erasures of the last day, by the name of the device.
        pairs: the pairs of devices and hosts that the manager refused.
    """

    def __init__(
        self,
        fabric: fabrics.Fabric,
        listener: Listener,
        adapters: redacting_adapter.AdapterOf,
        *,
        vault: credentials.Vault | None = None,
        networks: contract.Networks | None = None,
        cluster: str = "",
        contained: containment.Containment | None = None,
        report: containment.Report | None = None,
        clock: clocks.Clock = clocks.steady,
    ) -> None:
        """Begin a session; `report` shows an unexpected error on the Fabric."""
        self.name = fabric.metadata.name
        self._contained = contained or containment.Uncontained()
        self._report_unexpected = report
        self._given_up = fabric.given_up
        self._news = News(self.name, listener, self._contained, report)
        devices_max = fabric.spec.policy.limits.budget.devices
        self.inventory = Inventory(self.name, self._news, devices_max=devices_max, clock=clock)
        self.manager = ManagerConnection(
            fabric,
            adapters,
            self.inventory,
            self._news,
            self._contained,
            vault=vault,
            networks=networks,
            cluster=cluster,
            report=report,
        )
        self.unpublished: str | None = None
        self.nodes = NodeMap()
        self.is_mapped = False
        self.usable_nodes: int | None = None
        self.is_all_tainted = False
        self.faults = faults.Ledger()
        self.attaches: rates.Line[str, names.DeviceKey] = rates.Line(ATTACHES_WINDOW)
        self.erasures: rates.Rate[str] = rates.Rate(ERASURES_WINDOW)
        self.pairs = pairs.Pairs()

    @property
    def spec(self) -> fabrics.FabricSpec:
        """Return the Fabric's latest spec."""
        return self.manager.spec

    @property
    def connection(self) -> status.Connection:
        """Return whether the manager is reached, and why not."""
        return self.manager.state

    @property
    def troubles(self) -> dict[str, str]:
        """Return the troubles, as in `News.troubles`."""
        return self._news.troubles

    @property
    def has_listing(self) -> bool:
        """Return whether a listing was taken in since the session began."""
        return self.inventory.listed

    @property
    def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as last reported."""
        return self.inventory.hosts

    @property
    def devices(self) -> tuple[contract.Device, ...]:
        """Return all devices, as last reported, without the memory chunks of shares."""
        return tuple(device for name, device in self.inventory.devices.items() if not names.is_share(name))

    @property
    def missing(self) -> frozenset[str]:
        """Return the missing devices, as in `Inventory.missing`."""
        return self.inventory.missing

    def device(self, name: str) -> contract.Device | None:
        """Return the device of that DRA name, as last reported."""
        return self.inventory.devices.get(name)

    def find_turn(
        self, namespace: str, key: names.DeviceKey, now: datetime.datetime
    ) -> datetime.datetime | None:
        """Return when the device may be attached for the namespace, or None if it may now."""
        limit = self.spec.policy.attaches_per_namespace_per_minute
        return self.attaches.find_turn(namespace, key, limit, now)

    def describe_queue(self, key: names.DeviceKey, namespace: str, now: datetime.datetime) -> str:
        """Return the obstacle of an attach, as a clause: busy manager or limited namespace; empty without one."""
        if self.manager.queue.is_waiting(key):
            return "the fabric manager is busy with other devices"
        limit = self.spec.policy.attaches_per_namespace_per_minute
        if not namespace or self.attaches.acts.free_at(namespace, limit, now) is None:
            return ""
        return (
            f"namespace {namespace} has begun {limit} attaches within a minute, as many "
            f"as policy.attachesPerNamespacePerMinute of Fabric {self.name} allows"
        )

    @property
    def view(self) -> status.View:
        """Return the input of the Fabric's status; this looks at every device."""
        wanted, devices = self.spec.policy.immediate, self.inventory.devices
        return status.View(
            connection=self.connection,
            nodes=self.nodes if self.has_listing else None,
            devices=len(devices),
            hosts=len(self.hosts),
            unpublished=self.unpublished,
            usable_nodes=self.usable_nodes,
            is_all_tainted=self.is_all_tainted,
            reserved=sum(wanted.holds(device.id, device.model) for device in devices.values()),
            missing=self.inventory.is_missing,
            exceeded=any(subject in self.troubles for subject in LIMITED),
        )

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the manager was last reached; 0.0 while it is."""
        return self.manager.silent_seconds

    @property
    def mark(self) -> str | None:
        """Return the mark, as in `ManagerConnection.mark`."""
        return self.manager.mark

    @property
    def given_up(self) -> bool:
        """Return whether an administrator gave the fabric up, and its manager is not reached."""
        return self._given_up and not self.connection.connected

    def adapter(self) -> contract.FabricAdapter:
        """Return the adapter, as in `ManagerConnection.adapter`."""
        return self.manager.adapter()

    async def run(self) -> None:
        """Serve until cancelled, again after an unexpected error; see `ManagerConnection.run`."""
        try:
            await self._contained.keep(
                "fabric",
                self.manager.run,
                subject=self.name,
                failed=lambda failure: self.manager.set_state(
                    connected=False, reason=reasons.UNEXPECTED_ERROR, message=failure
                ),
                report=self._report_unexpected,
            )
        finally:
            self._news.close()

    def update_holdings(self, held: holdings.Holdings) -> None:
        """Take in the cluster's holdings, as in `Inventory.update_holdings`."""
        self.inventory.update_holdings(held)

    def change(self, spec: fabrics.FabricSpec, *, given_up: bool = False) -> None:
        """Take in a change of the Fabric other than the access to its manager; have all devices reconciled."""
        if (spec, given_up) != (self.spec, self._given_up):
            self.manager.spec, self._given_up = spec, given_up
            self._news.tell_connection()

    def map(self, nodes: NodeMap) -> None:
        """Take in the map of hosts to nodes; if a host has another node now, have all devices reconciled."""
        before, self.nodes = self.nodes, nodes
        if before.host_of and before.host_of != nodes.host_of:
            self._news.tell_connection()

    def report(self, subject: str, trouble: str = "") -> bool:
        """Report a trouble, as in `News.report`."""
        return self._news.report(subject, trouble)

    async def read(self) -> None:
        """List the fabric; concurrent callers share a listing.

        Raises:
            errors.FabricError: it cannot be read.
        """
        await self.manager.read()
