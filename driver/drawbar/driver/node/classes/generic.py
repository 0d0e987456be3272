"""The base of every class of device, with the rules that most classes share.

A kernel driver makes device files, and a process with an open device file uses the device. Functions bound to vfio are
passed on unchanged, to a virtual machine or to a driver in user space. A process with the group's file open has every
function of the group, and their drivers cannot be changed.

The functions of a card may be of several classes, as on an FPGA card with network interfaces. The class of the first
function is the card's class. Every other function of an offered class follows the rules of its own class: for its
readiness, its device files, its network interfaces and its data.

Source: Documentation/driver-api/vfio.rst.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import kernel
from drawbar.driver.node.classes import driverfiles, users
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model, nvidia, vfio
from drawbar.fabric.classes import DeviceClass

_POD_INTERFACE = "eth0"
# These drivers have the whole function, so a container of any class gets their files.
_OF_ANY_CLASS = frozenset({*vfio.SUBSYSTEMS, nvidia.SUBSYSTEM})
NO_DRIVER = "no kernel driver is bound; load the driver on this node"

Report = Callable[[str], None]
"""A callback for the progress of an erase, as a clause."""
Eraser = Callable[[Report], None]
"""A function to erase all of the user's data. Blocks, and raises `errors.NotCleaned`."""
OFFERED: dict[DeviceClass, "Generic"] = {}
"""The offered classes by name. `registry`, which knows all of them, fills it."""


class Generic(msgspec.Struct, frozen=True, kw_only=True):
    """A class of device. The base itself is the class `other`, without further rules; each other class is a subclass.

    A `Card` is a value: the caller asks the inventory for a fresh one each time. Every method is idempotent.

    Attributes:
        device_class: its name.
        class_codes: the PCI class codes of its functions, as two, four or six hexadecimal digits: base class, subclass,
            interface. The longest match wins, unless `models` knows the function.
        needs_driver: the device is of no use without its kernel driver.
        needs_files: a container cannot use the device without a device file.
        subsystems: the subsystems of a container's device files; empty for all.
        asks_the_driver: `edits` reads files of the driver, which may hang, so it runs in a thread. The other classes need
            only the card; for them a thread would add a tenth to the duration of Prepare.
    """

    device_class: DeviceClass = DeviceClass.OTHER
    class_codes: tuple[str, ...] = ()
    needs_driver: bool = False
    needs_files: bool = False
    subsystems: frozenset[str] = frozenset()
    asks_the_driver: bool = False

    def for_composite(self, companions: Collection[model.Card]) -> "Generic":
        """Return the class of a member of a composite; here the same class.

        Args:
            companions: the other members visible on this node.
        """
        del companions
        return self

    def missing_requirements(self, card: model.Card) -> str | None:
        """Return the first reason why the card is not ready, as a clause, or None. No I/O."""
        unassigned = model.describe_unassigned(card)
        if unassigned is not None:
            return unassigned
        missing = self.missing_of_function(card.first, card.device_nodes)
        if missing is not None:
            return missing
        for function, offered in _other_functions(card):
            missing = offered.missing_of_function(function, function.device_nodes)
            if missing is not None:
                return f"of its function {function.address} ({function.device_class}), {missing}"
        physical = (function for function in card.functions if function.physical_function is None)
        return next((function.defect for function in physical if function.defect is not None), None)

    def missing_of_function(
        self, function: model.PciFunction, nodes: tuple[model.DeviceNode, ...]
    ) -> str | None:
        """Return the first reason why a function of this class is not ready, as a clause, or None. No I/O.

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
        self,
        kernel: kernel.Kernel,
        card: model.Card,
        device_parameters: parameters.DeviceParameters = parameters.NOTHING,
    ) -> str | None:
        """Bring the device as close to ready as the kernel allows now; return the next missing requirement, or None if ready.

        A class may need more than its card shows (`missing_requirements`). A device is therefore ready only if this returns
        None. The next `Card` shows the changes. Here: ask the kernel for drivers of functions without one.

        Args:
            kernel: the host's kernel.
            card: the device.
            device_parameters: the parameters in force before a container starts; an attachment names them with its claim.

        Raises:
            errors.KernelRefused: the kernel refused; the message has the remedy.
        """
        del device_parameters
        missing = self.missing_requirements(card)
        if missing is not None:
            for function in card.functions:
                if function.driver is None and function.device_class is not DeviceClass.BRIDGE:
                    await kernel.probe(function.address)
            return missing
        return driverfiles.find_missing(card, Host.from_sysfs(kernel.sysfs))

    def current_users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Return the users of the device, each as a clause. An empty result is no proof (see `users`). Reads files.

        Here: processes with open device files or partitions, and all users of a disk.
        """
        nodes = card.device_nodes
        openers = users.find_openers(host.proc, users.index_files(host, nodes), self.release_hints(card))
        return (*openers, *users.find_storage_users(host, nodes))

    def release_hints(self, card: model.Card) -> Mapping[str, str]:
        """Return a remedy for each program that opens all devices of a host, by its name; here none."""
        del card
        return {}

    def pending_quiesce_step(self, host: Host, card: model.Card) -> str | None:
        """Return the next step of `quiesce`, as a clause, or None if none is pending. Reads files."""
        del host, card
        return None

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """Take one step to bring the device to rest. Runs while a step is pending, and once before a reset or an unbind.

        Here: let the classes of the card's other functions take their step; the driver stops the device at its unbind.

        Raises:
            errors.KernelRefused: the kernel refused; the message has the remedy.
        """
        for other in _other_classes(card):
            if type(other).quiesce is not Generic.quiesce:
                await other.quiesce(kernel, host, card)

    def resets(self, card: model.Card) -> tuple[str, ...]:
        """Return the addresses of the functions to reset between two claims and before the device leaves the node. No I/O.

        Here: all functions except bridges and virtual functions. A virtual function is reset with its physical function.
        """
        return tuple(
            function.address
            for function in card.functions
            if function.physical_function is None and function.device_class is not DeviceClass.BRIDGE
        )

    def eraser(self, host: Host, card: model.Card) -> Eraser | None:
        """Return the eraser of the user's data, or None if the class has none. Reads files.

        The eraser needs the device's driver, and runs when the device is at rest.
        Here: the eraser of the card's other functions.
        """
        for other in _other_classes(card):
            if type(other).eraser is not Generic.eraser:
                return other.eraser(host, card)
        return None

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """Return the container's edits for the device, without any device file of another device.

        Here: the device files of all functions, the files shared by their drivers, and the network interfaces.
        """
        nodes = (
            *(describe_node(node) for node in self._container_nodes(card)),
            *driverfiles.find_shared(card, host),
        )
        return spec.ContainerEdits(
            device_nodes=nodes,
            net_devices=_net_devices(self.interfaces(card) or ()),
        )

    def _container_nodes(self, card: model.Card) -> Iterator[model.DeviceNode]:
        """Yield the functions' device files, each once.

        A function of another offered class yields the files of that class's `subsystems`, any other those of this class.
        """
        own = {function.address: offered for function, offered in _other_functions(card)}
        seen = set()
        for function in card.functions:
            subsystems = own.get(function.address, self).subsystems
            for node in function.device_nodes:
                if node.path in seen or not (
                    not subsystems or node.subsystem in subsystems or node.subsystem in _OF_ANY_CLASS
                ):
                    continue
                seen.add(node.path)
                yield node

    def names(self, card: model.Card, host: Host) -> frozenset[str]:
        """Return the device's possible names in its vendor's own CDI files, in small letters. Reads files.

        Here: its PCI address.
        """
        del host
        return frozenset({card.address})

    def interfaces(self, card: model.Card) -> tuple[str, ...] | None:
        """Return the container's network interfaces, by their names on the host, or None for a device without any.

        Here: the interfaces of all functions.
        """
        return own_interfaces(card) or None


def own_interfaces(card: model.Card) -> tuple[str, ...]:
    """Return the network interfaces of all functions, by their names on the host."""
    return tuple(name for function in card.functions for name in function.net_interfaces)


def _other_functions(card: model.Card) -> Iterator[tuple[model.PciFunction, Generic]]:
    """Yield the physical functions of another offered class than the first function's, each with its class."""
    for function in card.functions:
        offered = OFFERED.get(function.device_class)
        is_other = function.device_class is not card.first.device_class
        if offered is not None and is_other and function.physical_function is None:
            yield function, offered


def _other_classes(card: model.Card) -> tuple[Generic, ...]:
    return tuple(dict.fromkeys(offered for _, offered in _other_functions(card)))


def _net_devices(names: Collection[str]) -> tuple[spec.NetDevice, ...]:
    """Return the interfaces by their names in a pod: their own, without the name of the pod's first interface."""
    instead = next(free for number in itertools.count() if (free := f"nic{number}") not in names)
    return tuple(
        spec.NetDevice(host_name=name, name=instead if name == _POD_INTERFACE else name) for name in names
    )


def describe_node(node: model.DeviceNode) -> spec.DeviceNode:
    """Return the CDI description of a device file."""
    kind = "b" if node.block else "c"
    return spec.DeviceNode(
        path=node.path, type=kind, major=node.major, minor=node.minor, permissions=spec.READ_WRITE
    )
