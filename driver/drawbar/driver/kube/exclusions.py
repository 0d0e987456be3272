"""Objects that are left out of a list or watch alone, since they cannot be read."""

import enum
from dataclasses import dataclass

from drawbar.driver.api import meta
from drawbar.driver.kube import kinds


class Cause(enum.StrEnum):
    """Why an object cannot be read."""

    TOO_LARGE = "TooLarge"
    MALFORMED = "Malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object that is left out of a list or watch, since it cannot be read.

    Attributes:
        metadata: name, namespace, uid and version alone.
        problem: what is wrong with it; goes on after "it".
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
