"""The steps in which a mocked host changes: a closed union, each told by the event that the kernel sends after it."""

import dataclasses
from collections.abc import Mapping

from drawbar.mocks.sysfs.kobjects import Attribute, Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """The device appears."""

    kobject: Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Its driver has taken the device."""

    kobject: Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The device announces something, with a further variable or without."""

    kobject: Kobject
    variable: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A link appears at `place` that leads to `target`, both below the root; no event."""

    place: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Files of a device that is there change; of one that is gone nothing does. No event.

    Attributes:
        folder: the device's directory.
        files: what they are now.
        undone: what they are once the step is undone; files that are not named stay.
    """

    folder: str
    files: Mapping[str, Attribute]
    undone: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Files appear beside the tree, in /proc or /dev of the host. No event.

    Attributes:
        files: by path below the folder of the tree.
        stays: they stay when the step is undone, for other devices have them, too.
    """

    files: Mapping[str, bytes]
    stays: bool = False


Step = Add | Bind | Beside | Change | Join | Write
