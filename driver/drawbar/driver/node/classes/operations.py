"""What the node does differently for each class of device: the port that every class implements."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drawbar.cdi import spec
from drawbar.driver.node import kernel
from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model

SYSFS = Path("/sys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where the host's kernel is looked at.

    Attributes:
        sysfs: the sysfs tree.
        proc: the proc file system, of the host's process namespace, or nothing is seen of other processes.
        dev: the host's device files.
    """

    sysfs: Path = SYSFS
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")

    @classmethod
    def of(cls, sysfs: Path) -> "Host":
        """The host of that sysfs tree. A tree elsewhere than /sys is a mocked host's: processes and files lie beside it.

        Its device numbers mean other devices to the kernel that this process runs on.
        """
        return (
            cls()
            if sysfs == SYSFS
            else cls(sysfs=sysfs, proc=sysfs.parent / "proc", dev=sysfs.parent / "dev")
        )


class DeviceOperations(Protocol):
    """One class of device.

    A `Card` is a value: whoever calls asks the inventory for it anew each time. Every method is idempotent.
    """

    def lacks(self, card: model.Card) -> str | None:
        """What the card itself still shows to be missing before it is ready, in one clause; None when nothing. Pure."""
        ...

    async def initialise(self, kernel: kernel.Kernel, card: model.Card) -> str | None:
        """Goes towards ready as far as the kernel lets it at once, and gives what is still missing; None: ready.

        A class may need more than its card shows (`lacks`), so a device is ready when this said so, not before. What
        was done shows in the next `Card`.

        Raises:
            errors.KernelRefused: the kernel will not; the message has the remedy.
        """
        ...

    def users(self, host: Host, card: model.Card) -> tuple[users.User, ...]:
        """Who uses the device now; none found is no proof (see `openers`). Reads files: call it in a thread."""
        ...

    def unrest(self, host: Host, card: model.Card) -> str | None:
        """What `quiesce` has to bring to rest next, in one clause; None when nothing. Reads files, as `users`."""
        ...

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """One step that brings the device to rest. Called while there is `unrest`, and once more before unbinding.

        Raises:
            errors.KernelRefused: the kernel will not; the message has the remedy.
        """
        ...

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """What a container gets to use the device: never a device file of another one."""
        ...
