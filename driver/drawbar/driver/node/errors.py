"""What can go wrong on a node, split by what the caller can do.

    NodeError
    ├── SysfsError      the sysfs tree is absent or unreadable: nothing can be discovered here
    ├── UeventError     hot-plug events cannot be heard (no netlink, no socket): fix the host, start again
    ├── CheckpointError the record of prepared claims cannot be read or written
    ├── SocketError     a socket that the kubelet needs cannot be made
    └── PrepareError    one claim cannot be prepared now; the kubelet shows the reason and tries again

A single sysfs file that is absent, racing with a removal or answers with an errno is no error: the value
it would have held is None.
"""

from drawbar.driver import errors


class NodeError(errors.DrawbarError):
    """Base of everything that this host is to blame for."""


class SysfsError(NodeError):
    """There is no readable sysfs tree where one was expected."""


class UeventError(NodeError):
    """The source of uevents cannot be opened, or broke."""


class CheckpointError(NodeError):
    """The checkpoint cannot be read, written, or is of a newer version."""


class SocketError(NodeError):
    """A UNIX socket's path is too long, or its directory cannot be used."""


class PrepareError(NodeError):
    """One claim cannot be prepared or unprepared; the others can."""
