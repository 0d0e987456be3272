"""What goes wrong in the lab.

LabError
    Unavailable     this host lacks something; the message names what to install
    GuestFailure    a guest did not do what it was asked
    GuestSilent     a guest did not answer in time
    MonitorRefusal  QEMU refused a command
"""


class LabError(Exception):
    """The root of this tree; its text is one sentence with the remedy."""


class Unavailable(LabError):
    """This host lacks something that the lab needs."""


class GuestFailure(LabError):
    """A guest, or something in it, did not do what it was asked."""


class GuestSilent(LabError):
    """A guest did not answer by its deadline, or has ended."""


class MonitorRefusal(LabError):
    """QEMU refused a command.

    Attributes:
        kind: QMP's `class`, such as `DeviceNotFound` or `GenericError`.
    """

    def __init__(self, command: str, kind: str, text: str) -> None:
        super().__init__(f"QEMU refuses {command}: {text} ({kind})")
        self.kind = kind
        self.text = text
