"""What a class of device is, and what most classes have in common.

A kernel driver makes device files, and a process that has one open uses the device. Functions that vfio has are handed on as they
are, to a virtual machine or a driver in user space: a process that has the group's file open has every function of the group, and
their drivers cannot be changed.

The functions of a card may be of several classes, as those of an FPGA card with network interfaces are. The card is of the class of its
first function. Each other function that is of an offered class has to be ready by the rules of that class, and its device files, its
network interfaces and its data are treated as that class treats them.

Source: Documentation/driver-api/vfio.rst.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import kernel
from drawbar.driver.node.classes import driverfiles, users
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model, vfio
from drawbar.fabric.classes import DeviceClass

_POD_INTERFACE = "eth0"
_INSTEAD = "nic0"
NO_DRIVER = "no kernel driver is bound; load the driver on this node"

Report = Callable[[str], None]
"""Takes the progress of an erase, in a clause."""
Eraser = Callable[[Report], None]
"""Erases the user's data and returns when none are left. Blocks, and raises `errors.NotCleaned`."""
OFFERED: dict[DeviceClass, "Generic"] = {}
"""The offered classes by name. `registry` fills it, which knows them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """A class of device; itself it is `other`, about which the node has no further rules. Each class is a subclass.

    A `Card` is a value: a caller asks the inventory for a fresh one each time. Every method is idempotent.

    Attributes:
        device_class: its name.
        class_codes: the PCI class codes of its functions, as two, four or six hexadecimal digits: base class, subclass,
            interface. The longest that fits counts, unless `models` knows the function.
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
    needs_driver: bool = False
    needs_files: bool = False
    subsystems: frozenset[str] = frozenset()
    in_local_pool: bool = False
    slows_idle_link: bool = False
    asks_the_driver: bool = False

    def for_composite(self, companions: Collection[model.Card]) -> "Generic":
        """Return the class for a member of a composite; here the same.

        Args:
            companions: the other members that this node shows.
        """
        del companions
        return self

    def missing_requirements(self, card: model.Card) -> str | None:
        """Return the first thing that keeps the card from being ready, in a clause, or None. No I/O."""
        unassigned = model.describe_unassigned(card)
        if unassigned is not None:
            return unassigned
        missing = self.missing_of_function(card.first, card.device_nodes)
        if missing is not None:
            return missing
        for function, offered in _others(card):
            missing = offered.missing_of_function(function, function.device_nodes)
            if missing is not None:
                return f"of its function {function.address} ({function.device_class}), {missing}"
        physical = (function for function in card.functions if function.physical_function is None)
        return next((function.defect for function in physical if function.defect is not None), None)

    def missing_of_function(
        self, function: model.PciFunction, nodes: tuple[model.DeviceNode, ...]
    ) -> str | None:
        """Return the first thing that keeps a function of this class from being ready, in a clause, or None. No I/O.

        Args:
            function: the function.
            nodes: its device files.
        """
        if function.defect is not None or vfio.is_driver(function.driver):
            return function.defect
        if self.needs_driver and function.driver is None:
            return NO_DRIVER
        if self.needs_files and not nodes:
            return f"its driver {function.driver} offers no device file; look at the kernel's log"
        return None

    async def initialise(
        self, kernel: kernel.Kernel, card: model.Card, said: parameters.DeviceParameters = parameters.NOTHING
    ) -> str | None:
        """Go towards ready as far as the kernel lets it at once, and return what is still missing; None: ready.

        A class may need more than its card shows (`missing_requirements`), so a device is ready only if this returns None. What was
        done shows in the next `Card`. Here: ask the kernel for drivers of functions that have none.

        Args:
            kernel: of the host.
            card: the device.
            said: the parameters that hold before a container starts; an attachment names them with its claim.

        Raises:
            errors.KernelRefused: the kernel will not; the message has the remedy.
        """
        del said
        missing = self.missing_requirements(card)
        if missing is not None:
            for function in card.functions:
                if function.driver is None and function.device_class is not DeviceClass.BRIDGE:
                    await kernel.probe(function.address)
        elif driverfiles.is_slow(card):
            host = Host.from_sysfs(kernel.sysfs)
            missing = await asyncio.to_thread(driverfiles.find_missing, card, host)
        return missing

    def current_users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Return the users of the device, each in a clause; an empty result is no proof (see `users`). Reads files.

        Here: open device files, and whatever else uses a disk.
        """
        nodes = card.device_nodes
        wanted = users.of_nodes((*nodes, *driverfiles.find_nvidia(card, host)))
        openers = users.find_openers(host.proc, wanted, self.release_hints(card))
        return (*openers, *users.find_storage_users(host, nodes))

    def release_hints(self, card: model.Card) -> Mapping[str, str]:
        """Return by program the remedy that closes the device, for programs that open all devices of a host; here none."""
        del card
        return {}

    def pending_quiesce_step(self, host: Host, card: model.Card) -> str | None:
        """Return the next thing that `quiesce` brings to rest, in a clause, or None. Reads files."""
        del host, card
        return None

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """Take one step that brings the device to rest: while a step is pending, and once before a reset or an unbind.

        Here: as the classes of its other functions do, for the driver stops the device when it is unbound.

        Raises:
            errors.KernelRefused: the kernel will not; the message has the remedy.
        """
        for other in _other_classes(card):
            if type(other).quiesce is not Generic.quiesce:
                await other.quiesce(kernel, host, card)

    def resets(self, card: model.Card) -> tuple[str, ...]:
        """Return the addresses of the functions to reset between two claims and before the device leaves the node. No I/O.

        Here: all but bridges, and virtual functions, which go with their physical one.
        """
        return tuple(
            function.address
            for function in card.functions
            if function.physical_function is None and function.device_class is not DeviceClass.BRIDGE
        )

    def eraser(self, host: Host, card: model.Card) -> Eraser | None:
        """Return the eraser of the user's data, or None if the class has none. Reads files.

        It needs the device's driver, and is called when the device is at rest. Here: the eraser of the card's other functions.
        """
        for other in _other_classes(card):
            if type(other).eraser is not Generic.eraser:
                return other.eraser(host, card)
        return None

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """Return what a container gets to use the device: never a device file of another one.

        Here: the device files of all functions, those that their drivers share, and the network interfaces.
        """
        nodes = (
            *(described(node) for node in self._given_nodes(card)),
            *(described(node) for node in driverfiles.find_nvidia(card, host)),
            *driverfiles.find_shared(card, host),
        )
        return spec.ContainerEdits(
            device_nodes=nodes,
            net_devices=tuple(
                spec.NetDevice(host_name=name, name=_INSTEAD if name == _POD_INTERFACE else name)
                for name in self.interfaces(card) or ()
            ),
        )

    def _given_nodes(self, card: model.Card) -> Iterator[model.DeviceNode]:
        """Return the functions' files, each once: of each function those of its own class's `subsystems`, if that is offered."""
        own = {function.address: offered for function, offered in _others(card)}
        seen = set()
        for function in card.functions:
            subsystems = own.get(function.address, self).subsystems
            for node in function.device_nodes:
                if node.path in seen or not (
                    not subsystems or node.subsystem in subsystems or node.subsystem in vfio.SUBSYSTEMS
                ):
                    continue
                seen.add(node.path)
                yield node

    def names(self, card: model.Card, host: Host) -> frozenset[str]:
        """Return what its vendor's own CDI files may call it, in small letters. Reads files.

        Here: its PCI address.
        """
        del host
        return frozenset({card.address})

    def interfaces(self, card: model.Card) -> tuple[str, ...] | None:
        """Return the network interfaces that a container gets, by their names on the host; None of a device without any.

        Here: those of all functions.
        """
        return own_interfaces(card) or None


def own_interfaces(card: model.Card) -> tuple[str, ...]:
    """Return the network interfaces of all functions, by their names on the host."""
    return tuple(name for function in card.functions for name in function.net_interfaces)


def _others(card: model.Card) -> Iterator[tuple[model.PciFunction, Generic]]:
    """Return the card's physical functions that are of another offered class than the first, with that class."""
    for function in card.functions:
        offered = OFFERED.get(function.device_class)
        is_other = function.device_class is not card.first.device_class
        if offered is not None and is_other and function.physical_function is None:
            yield function, offered


def _other_classes(card: model.Card) -> tuple[Generic, ...]:
    return tuple(dict.fromkeys(offered for _, offered in _others(card)))


def described(node: model.DeviceNode) -> spec.DeviceNode:
    """A device file as CDI describes it."""
    kind = "b" if node.block else "c"
    return spec.DeviceNode(
        path=node.path, type=kind, major=node.major, minor=node.minor, permissions=spec.READ_WRITE
    )
