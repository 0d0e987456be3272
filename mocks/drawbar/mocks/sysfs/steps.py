"""The steps of a change of a mocked host: a closed union, in which the kernel's event follows the step."""

import dataclasses
from collections.abc import Mapping

from drawbar.mocks.sysfs.kobjects import Attribute, Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A device appears."""

    kobject: Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A driver binds to the device."""

    kobject: Kobject


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The device announces a change, with an optional further variable."""

    kobject: Kobject
    variable: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A link appears at `path` to `target`, both below the root; no event."""

    path: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Files of a present device change; an absent device is skipped. No event.

    Attributes:
        folder: the device's directory.
        files: their new content.
        undone: their content once the step is undone; files without an entry stay.
    """

    folder: str
    files: Mapping[str, Attribute]
    undone: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Files appear beside the tree, in /proc or /dev of the host. No event.

    Attributes:
        files: the contents by path below the tree's parent folder.
        stays: true if they stay when the step is undone, because other devices share them.
    """

    files: Mapping[str, bytes]
    stays: bool = False


Step = Add | Bind | Beside | Change | Join | Write
