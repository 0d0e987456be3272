"""What a class of device is, and what most classes have in common.

A kernel driver makes device files, and whoever has one open uses the device. Functions that vfio has are handed on as they
are, to a virtual machine or a driver in user space: whoever has the group's file open has every function of the group, and
their drivers cannot be changed.

Source: Documentation/driver-api/vfio.rst.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import erasing, kernel
from drawbar.driver.node.classes import users
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model
from drawbar.fabric.classes import DeviceClass

VFIO = "vfio-pci"
VFIO_CONTAINER = "/dev/vfio/vfio"


def vfio_groups(card: model.Card) -> tuple[int, ...]:
    """The IOMMU groups of the functions that vfio has."""
    groups = {
        function.iommu_group
        for function in card.functions
        if function.driver == VFIO and function.iommu_group is not None
    }
    return tuple(sorted(groups))


def vfio_nodes(card: model.Card) -> tuple[spec.DeviceNode, ...]:
    """The groups' files, and the file that all users of vfio share; their numbers are left to the runtime."""
    paths = tuple(f"/dev/vfio/{group}" for group in vfio_groups(card))
    return tuple(
        spec.DeviceNode(path=path, permissions=spec.READ_WRITE)
        for path in ((*paths, VFIO_CONTAINER) if paths else ())
    )


def vfio_numbers(host: Host, card: model.Card) -> dict[users.Numbers, str]:
    """The groups' files by their numbers."""
    numbers = {}
    for group in vfio_groups(card):
        major, _, minor = (files.text(f"{host.sysfs}/class/vfio/{group}/dev") or "").partition(":")
        if major.isdecimal() and minor.isdecimal():
            key = users.Numbers(block=False, major=int(major), minor=int(minor))
            numbers[key] = f"/dev/vfio/{group}"
    return numbers


NO_DRIVER = "no kernel driver is bound; load the driver on this node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """A class of device; itself it is `other`, about which the node has no further rules. Each class is a subclass.

    A `Card` is a value: whoever calls asks the inventory for it anew each time. Every method is idempotent.

    Attributes:
        device_class: its name.
        class_codes: the PCI class codes of its functions, as two, four or six hexadecimal digits: base class, subclass,
            interface. The longest that fits counts.
        certain: a function with such a code is of this class, whoever made it.
        needs_driver: what it is good for comes from its kernel driver.
        needs_files: without a device file a container could not use it.
        subsystems: whose device files a container gets; empty for all.
        in_local_pool: it is offered by default where it lives in a node.
        slows_idle_link: its drivers slow an idle device's link down to save power.
        asks_the_driver: `edits` reads files of the driver, which may hang as long as that does, so it runs in a thread.
            For other classes, whose cards tell everything, a thread would cost a tenth of the whole Prepare.
    """

    device_class: DeviceClass = DeviceClass.OTHER
    class_codes: tuple[str, ...] = ()
    certain: bool = False
    needs_driver: bool = False
    needs_files: bool = False
    subsystems: frozenset[str] = frozenset()
    in_local_pool: bool = False
    slows_idle_link: bool = False
    asks_the_driver: bool = False

    def among(self, companions: Collection[model.Card]) -> "Generic":
        """Return the class of a member of a composite.

        Here: the same, for what a device is does not depend on the others.

        Args:
            companions: the other members, those that this node shows.
        """
        del companions
        return self

    def is_model(self, vendor: int, device: int) -> bool:
        """Whether a function of these PCI ids is of this class, unless its class code is `certain` to say otherwise."""
        del vendor, device
        return False

    def lacks(self, card: model.Card) -> str | None:
        """What the card itself still shows to be missing before it is ready, in one clause; None when nothing. No I/O."""
        unassigned = model.describe_unassigned(card)
        if unassigned is not None:
            return unassigned
        driver = card.first.driver
        if driver == VFIO:
            return (
                None if vfio_groups(card) else "vfio-pci is bound without an IOMMU group; turn the IOMMU on"
            )
        if self.needs_driver and driver is None:
            return NO_DRIVER
        if self.needs_files and not card.device_nodes:
            return f"its driver {driver} offers no device file; look at the kernel's log"
        return None

    async def initialise(
        self, kernel: kernel.Kernel, card: model.Card, said: parameters.DeviceParameters = parameters.NOTHING
    ) -> str | None:
        """Go towards ready as far as the kernel lets it at once, and return what is still missing; None: ready.

        A class may need more than its card shows (`lacks`), so a device is ready when this said so, not before. What was
        done shows in the next `Card`. Here: ask the kernel for drivers of functions that have none.

        Args:
            kernel: of the host.
            card: the device.
            said: the parameters that hold before a container starts; an attachment names them with its claim.

        Raises:
            errors.KernelRefused: the kernel will not; the message has the remedy.
        """
        del said
        lack = self.lacks(card)
        if lack is not None:
            for function in card.functions:
                if function.driver is None and function.device_class is not DeviceClass.BRIDGE:
                    await kernel.probe(function.address)
        return lack

    def users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Return who uses the device now, each in a clause; none found is no proof (see `users`). Reads files.

        Here: open device files, and whatever else uses a disk.
        """
        nodes = card.device_nodes
        wanted = users.of_nodes(nodes) | vfio_numbers(host, card)
        openers = users.find_openers(host.proc, wanted, self.remedies(card))
        return (*openers, *users.find_storage_users(host, nodes))

    def remedies(self, card: model.Card) -> Mapping[str, str]:
        """Return what makes programs let go of the device that use all of their host, as `users.find_openers` takes it.

        Here: none is known.
        """
        del card
        return {}

    def unrest(self, host: Host, card: model.Card) -> str | None:
        """Return what `quiesce` has to bring to rest next, in one clause; None when nothing. Reads files."""
        del host, card
        return None

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """One step that brings the device to rest. Called while there is `unrest`, and once more before unbinding.

        Here: nothing, for the driver stops the device when it is unbound.

        Raises:
            errors.KernelRefused: the kernel will not; the message has the remedy.
        """

    def resets(self, card: model.Card) -> tuple[str, ...]:
        """Return the addresses of the functions to reset between two claims and before the device leaves the node. No I/O.

        Here: all but bridges, and virtual functions, which go with their physical one.
        """
        return tuple(
            function.address
            for function in card.functions
            if function.physical_function is None and function.device_class is not DeviceClass.BRIDGE
        )

    def eraser(self, host: Host, card: model.Card) -> erasing.Eraser | None:
        """Return what makes the device forget its user's data; None of a class that has no way to, or keeps none. Reads files.

        It needs the device's driver. Called when the device is at rest, before the driver goes.
        """
        del host, card
        return None

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """Return what a container gets to use the device: never a device file of another one.

        Here: the device files of all functions.
        """
        del host
        nodes = tuple(
            node for node in card.device_nodes if not self.subsystems or node.subsystem in self.subsystems
        )
        return spec.ContainerEdits(device_nodes=(*(described(node) for node in nodes), *vfio_nodes(card)))

    def names(self, card: model.Card, host: Host) -> frozenset[str]:
        """Return what its vendor's own CDI files may call it, in small letters. Reads files.

        Here: its PCI address.
        """
        del host
        return frozenset({card.address})

    def interfaces(self, card: model.Card) -> tuple[str, ...] | None:
        """Return the network interfaces that a container gets, by their names on the host; None of a class without any."""
        del card
        return None


def described(node: model.DeviceNode) -> spec.DeviceNode:
    """A device file as CDI describes it."""
    kind = "b" if node.block else "c"
    return spec.DeviceNode(
        path=node.path, type=kind, major=node.major, minor=node.minor, permissions=spec.READ_WRITE
    )
