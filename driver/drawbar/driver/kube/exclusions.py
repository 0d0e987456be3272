"""Unreadable objects, which are excluded from a list or watch."""

import enum

import msgspec

from drawbar.driver.api import meta
from drawbar.driver.kube import kinds


class Cause(enum.StrEnum):
    """The reason why an object cannot be read."""

    TOO_LARGE = "TooLarge"
    MALFORMED = "Malformed"


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable object, excluded from a list or watch.

    Attributes:
        metadata: only name, namespace, uid and version.
        problem: the fault, as a continuation of "it".
    """

    kind: kinds.Kind
    metadata: meta.ObjectMeta
    cause: Cause
    problem: str

    @property
    def subject(self) -> str:
        """Return the object's kind, namespace and name."""
        where = "/".join(part for part in (self.metadata.namespace, self.metadata.name) if part)
        return f"{self.kind.kind} {where}"

    @property
    def remedy(self) -> str:
        """Return the remedy for the object's owner."""
        return "shorten it" if self.cause is Cause.TOO_LARGE else "correct the field, or delete the object"

    def __str__(self) -> str:
        return f"{self.subject} is left out, since it {self.problem}; {self.remedy}"
