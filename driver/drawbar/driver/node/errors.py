"""What can go wrong on a node, split by what the caller can do.

    NodeError
    ├── Unprivileged    the process lacks privileges or mounts: change its pod, start again
    ├── SysfsError      the sysfs tree is absent or unreadable: nothing can be discovered here
    ├── UeventError     hot-plug events cannot be heard (no netlink, no socket): fix the host, start again
    ├── NetlinkError    the kernel does not tell of network interfaces: what they are used for is unknown
    ├── CheckpointError the record of prepared claims cannot be read or written
    │   └── CorruptCheckpoint   nothing can be made of it: move it aside and rebuild it
    ├── SocketError     a socket that the kubelet needs cannot be made
    ├── KernelRefused   the kernel does not do what was written to sysfs; says which file, why and what to do
    │   └── KernelSilent    it has not answered yet and may still do it: look again later
    ├── HookFailed      an administrator's program or bitstream did not make a device ready: mend that
    ├── BitstreamNotLoaded  an FPGA does not take the bitstream that a claim asks for: mend the file, class or claim
    ├── CannotSetUp     a device cannot be made what its class or claim asks for
    │   └── CannotInterleave    its memory cannot be one region with that of others
    ├── NotCleaned      a user's data cannot be removed from a device: keep the device out of service
    └── PrepareError    one claim cannot be prepared now; the kubelet shows the reason and tries again
        └── DeviceLate      because a device is not here yet: wait for the next change

A single sysfs file that is absent, racing with a removal or answers with an errno is no error: the value
it would have held is None.
"""

from drawbar.driver import errors
from drawbar.driver.catalogue import reasons


class NodeError(errors.DrawbarError):
    """Base of everything that this host is to blame for."""


class Unprivileged(NodeError):
    """This process may not do what the daemon is there for; the message lists everything."""


class SysfsError(NodeError):
    """There is no readable sysfs tree where one was expected."""


class UeventError(NodeError):
    """The source of uevents cannot be opened, or broke."""


class NetlinkError(NodeError):
    """The kernel cannot be asked for its network interfaces."""


class CheckpointError(NodeError):
    """The checkpoint cannot be read, written, or is of a newer version."""


class CorruptCheckpoint(CheckpointError):
    """The checkpoint is torn or was tampered with."""


class SocketError(NodeError):
    """A UNIX socket's path is too long, or its directory cannot be used."""


class PrepareError(NodeError):
    """One claim cannot be prepared or unprepared; the others can.

    Attributes:
        reason: one word in CamelCase for the Event; the same cause has the same word.
    """

    def __init__(self, message: str, *, reason: str = reasons.PREPARE_FAILED) -> None:
        super().__init__(message)
        self.reason = reason


class DeviceLate(PrepareError):
    """A device of the claim is not here yet, and may come."""


class KernelRefused(NodeError):
    """The kernel does not do what it was asked.

    Attributes:
        path: the file in sysfs.
        number: the errno; 0 where there is none.
    """

    def __init__(self, message: str, *, path: str = "", number: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.number = number


class KernelSilent(KernelRefused):
    """The kernel has not answered in time. It may still do what it was asked, and cannot be stopped.

    Attributes:
        seconds: how long it has not answered.
    """

    def __init__(self, what: str, *, seconds: float) -> None:
        super().__init__(
            f"the kernel has not answered for {seconds:.0f} s, asked {what}; look at its log (dmesg)"
        )
        self.seconds = seconds


class HookFailed(NodeError):
    """An administrator's program, or the file of a bitstream, did not make a device ready.

    The message has the remedy, or what the program wrote last.
    """


class BitstreamNotLoaded(NodeError):
    """An FPGA does not take a bitstream from the daemon itself; the message has the remedy."""


class CannotSetUp(NodeError):
    """A device cannot be made what its class asks for, however often that is tried; the message has the remedy."""


class CannotInterleave(CannotSetUp):
    """The memory of several devices cannot be one region; the message has the remedy."""


class NotCleaned(NodeError):
    """A user's data cannot be removed from a device, so no other user may have it."""
