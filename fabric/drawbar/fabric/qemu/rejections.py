"""What QEMU's errors mean. All are sentences for people, most of the class GenericError; these were measured on 7.2.

An error is no proof that nothing happened: whoever gets one looks again before anything else.
"""

import re
from enum import StrEnum

from drawbar.fabric.qemu import qmp


class Meaning(StrEnum):
    """What to do about an error."""

    GONE = "gone"
    """There is no such device, object or node: for a removal that is success."""
    DUPLICATE = "duplicate"
    """There is one of that id already: compare."""
    NO_PORT = "no-port"
    """There is no such bus."""
    BUSY = "busy"
    """The guest is still at the port's previous event; try again soon."""
    PENDING = "pending"
    """It has been asked for already, and is under way."""
    HELD = "held"
    """Something in QEMU still uses it."""
    LOCKED = "locked"
    """Another process has opened the file for writing."""
    UNSUPPORTED = "unsupported"
    """This QEMU does not know the model or a property."""
    REFUSED = "refused"
    """Anything else."""


_SENTENCES = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"guest is busy", Meaning.BUSY),
        (r"already in the process of unplug", Meaning.PENDING),
        (r"^Duplicate device ID|^Duplicate nodes|attempt to add duplicate property", Meaning.DUPLICATE),
        (r"^Bus '.*' not found", Meaning.NO_PORT),
        (r"^Failed to get \".*\" lock|^Permission conflict on node", Meaning.LOCKED),
        (
            r"is not a valid device model name|^Property '.*' not found|expects a pluggable",
            Meaning.UNSUPPORTED,
        ),
        (r"is in use", Meaning.HELD),
        (r"^(object|Device|Node) '.*' not found|^Failed to find node", Meaning.GONE),
    )
)


def meaning(error: qmp.Rejected) -> Meaning:
    """The meaning of an error."""
    if error.kind == "DeviceNotFound":
        return Meaning.GONE
    found = (meaning for pattern, meaning in _SENTENCES if pattern.search(error.description))
    return next(found, Meaning.REFUSED)
