"""The errors of a node, split by the caller's remedy.

    NodeError
    ├── Unprivileged    the process has too few privileges or mounts: change its pod, start again
    ├── SysfsError      the sysfs tree is absent or unreadable: nothing can be discovered here
    ├── UeventError     the daemon cannot receive hot-plug events (no netlink, no socket): fix the host, start again
    ├── NetlinkError    the kernel does not list network interfaces: their uses are unknown
    ├── CheckpointError the record of prepared claims cannot be read or written
    │   └── CorruptCheckpoint   the record is damaged: move it aside and rebuild it
    ├── SocketError     a socket for the kubelet cannot be made
    ├── KernelRefused   the kernel refused a write to sysfs; names the file, the reason and the remedy
    │   └── KernelSilent    the kernel has not answered yet and may still do it: look again later
    ├── HookFailed      an administrator's program or bitstream did not make a device ready: correct that
    ├── BitstreamNotLoaded  an FPGA does not take a claim's bitstream: correct the file, class or claim
    ├── CannotSetUp     a device can never meet the demands of its class or claim
    │   └── CannotInterleave    its memory cannot form one region with the memory of other devices
    ├── NotCleaned      a user's data cannot be removed from a device: keep the device out of service
    └── PrepareError    one claim cannot be prepared now; the kubelet shows the reason and tries again
        └── DeviceLate      a device is not here yet: wait for the next change

A single sysfs file that is absent or answers with an errno, for instance during a removal, is no error: its value is None.
"""

from drawbar.driver import errors
from drawbar.driver.catalogue import reasons


class NodeError(errors.DrawbarError):
    """The base of all errors with their cause on this host."""


class Unprivileged(NodeError):
    """The process has too few privileges or mounts; the message lists the missing ones."""


class SysfsError(NodeError):
    """The sysfs tree is absent or unreadable."""


class UeventError(NodeError):
    """The source of uevents cannot be opened, or has failed."""


class NetlinkError(NodeError):
    """The kernel does not list its network interfaces."""


class CheckpointError(NodeError):
    """The checkpoint cannot be read or written, or a newer Drawbar wrote it."""


class CorruptCheckpoint(CheckpointError):
    """The checkpoint is damaged."""


class SocketError(NodeError):
    """A UNIX socket's path is too long, or its directory cannot be used."""


class PrepareError(NodeError):
    """One claim cannot be prepared or unprepared; other claims can.

    Attributes:
        reason: one word in CamelCase for the Event, the same for the same cause.
    """

    def __init__(self, message: str, *, reason: str = reasons.PREPARE_FAILED) -> None:
        super().__init__(message)
        self.reason = reason


class DeviceLate(PrepareError):
    """A device of the claim is not here or not ready yet, and waiting may help."""


class KernelRefused(NodeError):
    """The kernel refused a request.

    Attributes:
        path: the file in sysfs or in /dev; empty if unknown.
        number: the errno; 0 without one.
    """

    def __init__(self, message: str, *, path: str = "", number: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.number = number


class KernelSilent(KernelRefused):
    """The kernel has not answered in time. It may still fulfil the request, and cannot be stopped.

    Attributes:
        seconds: the time since the request, in seconds.
    """

    def __init__(self, what: str, *, seconds: float) -> None:
        super().__init__(
            f"the kernel has not answered for {seconds:.0f} s, asked {what}; look at its log (dmesg)"
        )
        self.seconds = seconds


class HookFailed(NodeError):
    """An administrator's program, or the file of a bitstream, did not make a device ready.

    The message has the remedy, or the program's last output.
    """


class BitstreamNotLoaded(NodeError):
    """An FPGA does not take a bitstream from the daemon itself; the message has the remedy."""


class CannotSetUp(NodeError):
    """A device can never meet the demands of its class; the message has the remedy."""


class CannotInterleave(CannotSetUp):
    """The memory of several devices cannot form one region; the message has the remedy."""


class NotCleaned(NodeError):
    """A user's data cannot be removed from a device, so no other user may have the device."""
