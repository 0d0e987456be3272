"""One fabric manager: connected, listed and watched for as long as its Fabric object asks for it.

The session holds the latest state that the fabric manager reported, and what the cluster holds of the fabric. It is given that
value whenever it changes; it reports changes to a listener, and asks nobody for anything. A defect of Drawbar itself ends like
a fault of the manager: the session begins again after a pause.
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
    """Run `run()` as a task; read the attributes at any time.

    Attributes:
        name: of the Fabric.
        inventory: devices and hosts as last reported.
        manager: the connection to the fabric manager.
        nodes: which host is which node.
        is_mapped: the hosts of a listing were mapped since the session began.
        unpublished: why the fabric is not published; None if it is.
        faults: the failures of devices and hosts.
        attaches: those of the last minute, by namespace.
        erasures: those of the last day, by the name of the device.
        pairs: of devices and hosts that the manager refused.
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
        self.faults = faults.Ledger()
        self.attaches: rates.Rate[str] = rates.Rate(ATTACHES_WINDOW)
        self.erasures: rates.Rate[str] = rates.Rate(ERASURES_WINDOW)
        self.pairs = pairs.Pairs()

    @property
    def spec(self) -> fabrics.FabricSpec:
        """The Fabric's, as last given."""
        return self.manager.spec

    @property
    def connection(self) -> status.Connection:
        """Whether the manager is reached, and why not."""
        return self.manager.state

    @property
    def troubles(self) -> dict[str, str]:
        """See `News.troubles`."""
        return self._news.troubles

    @property
    def listed(self) -> bool:
        """Whether a listing was taken over since the session began."""
        return self.inventory.listed

    @property
    def hosts(self) -> tuple[contract.Host, ...]:
        """All hosts, as last reported."""
        return self.inventory.hosts

    @property
    def devices(self) -> tuple[contract.Device, ...]:
        """All devices, as last reported; without what they are carved into for claims."""
        return tuple(device for name, device in self.inventory.devices.items() if not names.is_share(name))

    @property
    def missing(self) -> frozenset[str]:
        """See `Inventory.missing`."""
        return self.inventory.missing

    def device(self, name: str) -> contract.Device | None:
        """Return the device of that DRA name, as last reported."""
        return self.inventory.devices.get(name)

    @property
    def view(self) -> status.View:
        """What the Fabric's status is made from; looks at every device."""
        wanted, devices = self.spec.policy.immediate, self.inventory.devices
        return status.View(
            connection=self.connection,
            nodes=self.nodes if self.listed else None,
            devices=len(devices),
            hosts=len(self.hosts),
            unpublished=self.unpublished,
            reserved=sum(wanted.holds(device.id, device.model) for device in devices.values()),
            missing=self.inventory.is_missing,
            exceeded=any(subject in self.troubles for subject in LIMITED),
        )

    @property
    def silent_seconds(self) -> float:
        """The seconds since the manager was last reached; 0.0 while it is."""
        return self.manager.silent_seconds

    @property
    def mark(self) -> str | None:
        """See `ManagerConnection.mark`."""
        return self.manager.mark

    @property
    def given_up(self) -> bool:
        """Whether an administrator gave the fabric up, and its manager is not reached."""
        return self._given_up and not self.connection.connected

    def adapter(self) -> contract.FabricAdapter:
        """See `ManagerConnection.adapter`."""
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

    def hold(self, held: holdings.Holdings) -> None:
        """See `Inventory.hold`."""
        self.inventory.hold(held)

    def change(self, spec: fabrics.FabricSpec, *, given_up: bool = False) -> None:
        """Take over a change of the Fabric other than how its manager is reached; all devices are looked at."""
        if (spec, given_up) != (self.spec, self._given_up):
            self.manager.spec, self._given_up = spec, given_up
            self._news.tell_connection()

    def map(self, nodes: NodeMap) -> None:
        """Take over which host is which node; where a host is another node now, all devices are looked at again."""
        before, self.nodes = self.nodes, nodes
        if before.host_of and before.host_of != nodes.host_of:
            self._news.tell_connection()

    def report(self, subject: str, trouble: str = "") -> bool:
        """See `News.report`."""
        return self._news.report(subject, trouble)

    async def read(self) -> None:
        """List the fabric; concurrent callers share a listing.

        Raises:
            errors.FabricError: it cannot be read.
        """
        await self.manager.read()
