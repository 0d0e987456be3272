"""What most classes have in common: a kernel driver makes device files, and whoever has one open uses the device."""

from dataclasses import dataclass

from drawbar.cdi import spec
from drawbar.driver.node import kernel
from drawbar.driver.node.classes import openers, operations, storage, users, vfio
from drawbar.driver.node.inventory import model
from drawbar.driver.node.inventory.model import FunctionClass

NO_DRIVER = "no kernel driver is bound; load the driver on this node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """A class of device; implements `operations.DeviceOperations`.

    Attributes:
        needs_driver: what it is good for comes from its kernel driver.
        needs_files: without a device file a container could not use it.
        subsystems: whose device files a container gets; empty for all.
    """

    needs_driver: bool = False
    needs_files: bool = False
    subsystems: frozenset[str] = frozenset()

    def lacks(self, card: model.Card) -> str | None:
        """See `operations.DeviceOperations`."""
        driver = card.first.driver
        if driver == vfio.DRIVER:
            return (
                None if vfio.groups(card) else "vfio-pci is bound without an IOMMU group; turn the IOMMU on"
            )
        if self.needs_driver and driver is None:
            return NO_DRIVER
        if self.needs_files and not card.device_nodes:
            return f"its driver {driver} offers no device file; look at the kernel's log"
        return None

    async def initialise(self, kernel: kernel.Kernel, card: model.Card) -> str | None:
        """Asks the kernel for drivers of functions that have none; where none fits, nothing happens."""
        lack = self.lacks(card)
        if lack is not None:
            for function in card.functions:
                if function.driver is None and function.device_class is not FunctionClass.BRIDGE:
                    await kernel.probe(function.address)
        return lack

    def users(self, host: operations.Host, card: model.Card) -> tuple[users.User, ...]:
        """Open device files, and whatever else uses a disk."""
        nodes = card.device_nodes
        wanted = openers.of_nodes(nodes) | vfio.numbers(host, card)
        return (*openers.find(host.proc, wanted), *storage.find(host, nodes))

    def unrest(self, host: operations.Host, card: model.Card) -> str | None:
        """Nothing."""
        del host, card
        return None

    async def quiesce(self, kernel: kernel.Kernel, host: operations.Host, card: model.Card) -> None:
        """Nothing to do: the driver stops the device when it is unbound."""

    def edits(self, card: model.Card, host: operations.Host) -> spec.ContainerEdits:
        """The device files of all functions."""
        del host
        nodes = tuple(
            node for node in card.device_nodes if not self.subsystems or node.subsystem in self.subsystems
        )
        return spec.ContainerEdits(device_nodes=(*(described(node) for node in nodes), *vfio.nodes(card)))


def described(node: model.DeviceNode) -> spec.DeviceNode:
    """A device file as CDI describes it."""
    kind = "b" if node.block else "c"
    return spec.DeviceNode(
        path=node.path, type=kind, major=node.major, minor=node.minor, permissions=spec.READ_WRITE
    )
