"""A mocked host's sysfs: a directory that looks like /sys and changes as hot-plug changes it.

A reader of the tree sees what it would see on a kernel, in the same order: a device's directory is
complete before it is listed, children come and go in the recorded order, and each step is announced by a
uevent after it has happened.
"""

import dataclasses
from pathlib import Path

from drawbar.mocks.sysfs import cards, errors, hosts, kobjects, states, wire
from drawbar.mocks.sysfs.device import MockDevice


class SysfsTree:
    """One mocked host. Safe to use from several processes; every call blocks on files and a lock.

    Not emulated: power and link changes that a card does not cause, errors of attributes, and any effect
    of writing to a file (`power`, `remove`, `unbind`): to take a card out, call `detach`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(cls, root: Path, *, slots: int = 4, uevent_socket: Path | None = None) -> "SysfsTree":
        """A new host with empty slots 1 to `slots`, at `root`.

        Raises:
            ImpossibleWorld: `root` exists and is not empty, the host would have too many slots,
                or the socket's path is longer than 107 bytes.
        """
        if not 0 <= slots <= hosts.MOST_SLOTS:
            raise errors.ImpossibleWorld(f"a mocked host has 0 to {hosts.MOST_SLOTS} slots, not {slots}")
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise errors.ImpossibleWorld(f"{root} exists already: open it, or choose an empty place")
        socket_path = str(uevent_socket.absolute()) if uevent_socket is not None else None
        if socket_path is not None and len(socket_path.encode()) > wire.LONGEST_PATH_BYTES:
            raise errors.ImpossibleWorld(
                f"the socket path {socket_path} is too long for a UNIX socket: shorten it"
            )
        tree = cls(root)
        root.mkdir(parents=True, exist_ok=True)
        with states.locked(root):
            tree._build(slots)
            states.save(root, states.State(slots=slots, uevent_socket=socket_path))
        return tree

    @classmethod
    def open(cls, root: Path) -> "SysfsTree":
        """The existing host at `root`.

        Raises:
            ImpossibleWorld: there is none.
        """
        states.load(root)
        return cls(root)

    def attached(self) -> dict[int, MockDevice]:
        """The cards that are in, by slot."""
        return {slot: occupant.device for slot, occupant in states.load(self.root).occupants.items()}

    def address(self, slot: int) -> str:
        """The PCI address that a card in this slot has."""
        return hosts.slot_address(slot) + ".0"

    def attach(self, slot: int, device: MockDevice) -> str:
        """Puts a card into a slot and answers its PCI address.

        Returns when the card's driver is bound and every event has been sent.

        Raises:
            ImpossibleWorld: there is no such slot, it is occupied, or no such card can exist.
        """
        device.check()
        with states.locked(self.root):
            state = states.load(self.root)
            self._check_free(state, slot)
            occupant = states.Occupant(device=device, instance=state.free_instance(device))
            state = dataclasses.replace(state, occupants={**state.occupants, slot: occupant})
            states.save(self.root, state)  # first: what is half built can then be detached
            hosts.write_slot(self.root, slot, occupied=True)
            events = _Events(state)
            for step in cards.steps(slot, device, occupant.instance):
                self._take(step, events)
            states.save(self.root, events.state)
        return self.address(slot)

    def detach(self, slot: int) -> None:
        """Takes the card out of a slot; nothing happens if there is none.

        Raises:
            ImpossibleWorld: there is no such slot.
        """
        with states.locked(self.root):
            state = states.load(self.root)
            self._check_exists(state, slot)
            occupant = state.occupants.get(slot)
            if occupant is None:
                return
            events = _Events(state)
            for step in reversed(cards.steps(slot, occupant.device, occupant.instance)):
                if isinstance(step, cards.Add):
                    self._undo(step.kobject, events)
            hosts.write_slot(self.root, slot, occupied=False)
            remaining = {number: other for number, other in state.occupants.items() if number != slot}
            states.save(self.root, dataclasses.replace(events.state, occupants=remaining))

    @property
    def _staging(self) -> Path:
        """Where directories are built and taken apart: beside the tree, on the same file system."""
        return self.root.with_name(f".{self.root.name}.staging")

    def _build(self, slots: int) -> None:
        for folder in ("bus/pci/devices", "bus/pci/slots", "bus/cxl/devices", "class"):
            (self.root / folder).mkdir(parents=True)
        for kobject in hosts.objects(slots):
            kobjects.add(self.root, self._staging, kobject)
            if kobject.driver is not None:
                kobjects.bind(self.root, kobject)
        for slot in range(1, slots + 1):
            hosts.write_slot(self.root, slot, occupied=False)

    def _take(self, step: cards.Step, events: "_Events") -> None:
        match step:
            case cards.Add(kobject=kobject):
                kobjects.add(self.root, self._staging, kobject)
                events.send("add", kobject, kobject.variables(bound=False))
            case cards.Bind(kobject=kobject):
                kobjects.bind(self.root, kobject)
                events.send("bind", kobject, kobject.variables(bound=True))
            case cards.Change(kobject=kobject, variable=(key, value)):
                events.send("change", kobject, {key: value, **kobject.variables(bound=False)})

    def _undo(self, kobject: kobjects.Kobject, events: "_Events") -> None:
        """Unbinds and removes, if it is there: an attach may have been cut short."""
        if not (self.root / kobject.path).exists():
            return
        if (self.root / kobject.path / "driver").is_symlink():
            kobjects.unbind(self.root, kobject)
            # The kernel takes MODALIAS out of unbind events, lest udev load the driver again.
            variables = {
                key: value for key, value in kobject.variables(bound=False).items() if key != "MODALIAS"
            }
            events.send("unbind", kobject, variables)
        kobjects.remove(self.root, self._staging, kobject)
        events.send("remove", kobject, kobject.variables(bound=False))

    def _check_exists(self, state: states.State, slot: int) -> None:
        if not 1 <= slot <= state.slots:
            raise errors.ImpossibleWorld(
                f"the mocked host {self.root} has slots 1 to {state.slots}, no slot {slot}"
            )

    def _check_free(self, state: states.State, slot: int) -> None:
        self._check_exists(state, slot)
        if slot in state.occupants:
            raise errors.ImpossibleWorld(
                f"slot {slot} of the mocked host {self.root} is occupied: detach it first"
            )


class _Events:
    """Numbers and sends the events of one change."""

    def __init__(self, state: states.State) -> None:
        self.state = state
        self._heard = True

    def send(self, action: str, kobject: kobjects.Kobject, variables: dict[str, str]) -> None:
        """Announces what has just happened to a device."""
        self.state = dataclasses.replace(self.state, seqnum=self.state.seqnum + 1)
        if self.state.uevent_socket is None or not self._heard:
            return
        devpath = "/" + kobject.path
        head = {"ACTION": action, "DEVPATH": devpath, "SUBSYSTEM": kobject.subsystem}
        message = wire.encode(action, devpath, {**head, **variables, "SEQNUM": str(self.state.seqnum)})
        self._heard = wire.send(Path(self.state.uevent_socket), message)
