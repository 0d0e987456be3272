"""The root of the errors that reach a user.

    DrawbarError                 shown as one sentence, then the process ends with `exit_code`
    ├── UsageError               the command line, a file or an environment variable is at fault
    ├── kube.errors.KubeError    the API server refused the request, or did not answer
    ├── operation.address.AddressError  probes and metrics cannot be served, or no process serves them
    └── node.errors.NodeError    this host is at fault: sysfs, sockets, checkpoint

A message names the fault and the remedy. It never holds a secret.
"""

import enum
from collections.abc import Iterator


class ExitStatus(enum.IntEnum):
    """The exit statuses of every verb."""

    FINE = 0
    """Done, or nothing is wrong."""
    FOUND = 1
    """Trouble was found, something was refused or declined, or a named object does not exist."""
    USAGE = 2
    """The command line, the kubeconfig or a configuration file is wrong."""
    UNREAD = 3
    """Not everything could be read: the cluster was not reached, a right is missing, or a fabric manager hides a part."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


class DrawbarError(Exception):
    """An error with a message that explains it completely; it is printed without a traceback.

    Attributes:
        exit_code: the process's exit status, if the error is not handled.
        ends_daemon: whether an unhandled error ends a daemon; otherwise the work is retried.
    """

    exit_code = ExitStatus.FOUND
    ends_daemon = True


class UsageError(DrawbarError):
    """The command line, a configuration file or an environment variable is wrong."""

    exit_code = ExitStatus.USAGE


UNEXPECTED_LOGGED = "unexpected error, will try again"
"""The log message, with the trace, for a defect of Drawbar that is contained and retried."""


def find_leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group, however nested; an error that is no group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from find_leaves(inner)
    else:
        yield error
