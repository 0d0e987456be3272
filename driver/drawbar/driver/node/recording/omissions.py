"""What is not in a recording, and why: counted in full, named as far as there is room."""

import dataclasses
import enum
from typing import Any

_NAMED_MOST = 200


class Reason(enum.StrEnum):
    """Why something that is there was left out."""

    NEVER_READ = "neverRead"
    """Reading it could disturb a device, or shows a key."""
    NOT_KNOWN = "notKnownHarmless"
    """An attribute that a driver added."""
    ASLEEP = "deviceAsleep"
    """Reading it would power the device up."""
    TOO_LARGE = "tooLarge"
    NO_ROOM = "recordingFull"
    REFUSED = "refusedByKernel"
    """The kernel answered with an errno; it will do so again when the recording is loaded."""
    VANISHED = "vanished"
    """It went away while it was recorded."""


@dataclasses.dataclass(slots=True)
class _Kind:
    count: int = 0
    names: dict[str, None] = dataclasses.field(default_factory=dict)


class Omissions:
    """What one or several trees lack."""

    def __init__(self) -> None:
        self._kinds: dict[Reason, _Kind] = {}

    def note(self, reason: Reason, name: str) -> None:
        """Something was left out; `name` is its path, or what all of its sort are called."""
        kind = self._kinds.setdefault(reason, _Kind())
        kind.count += 1
        if len(kind.names) < _NAMED_MOST:
            kind.names[name] = None

    def count(self, reason: Reason) -> int:
        """How many were left out for this reason."""
        return self._kinds[reason].count if reason in self._kinds else 0

    def names(self, reason: Reason) -> tuple[str, ...]:
        """Some of them, in order of appearance."""
        return tuple(self._kinds[reason].names) if reason in self._kinds else ()

    def document(self) -> dict[str, Any]:
        """As JSON, by reason."""
        return {
            reason.value: {"count": kind.count, "names": list(kind.names)}
            for reason, kind in self._kinds.items()
        }
