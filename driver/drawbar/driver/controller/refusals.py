"""The controller's writes that the API server refuses, by Fabric, until it takes them.

A refusal (a missing permission, an admission policy, a validation rule) lasts until an administrator changes the
cluster. Nothing works until then, so it shows in the Fabric's condition `Writable`. A stale view (Conflict) and an
API server that does not answer are no refusals: they pass by themselves.

Each entry is the subject of a write (a node, a pool, a device with its claim) and is dropped when a later attempt is
accepted or finds nothing to write. The entries are bounded by the plans' simultaneous writes.
"""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator

from drawbar.driver.kube import errors

SHOWN_MAX = 3
MESSAGE_LIMIT_CHARS = 1024


class Refusals:
    """The present refusals.

    Args:
        changed: called with the name of a Fabric whose refusals have changed.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._refused: dict[str, dict[str, str]] = {}

    @contextlib.contextmanager
    def attempt(self, fabrics: Collection[str], subject: str) -> Iterator[None]:
        """Record the outcome of the writes in the block; errors pass through.

        Args:
            fabrics: the names of the Fabrics that need the write.
            subject: the subject of the write, such as `node n1`.
        """
        try:
            yield
        except (errors.Denied, errors.Invalid) as error:
            for fabric in fabrics:
                self._set(fabric, subject, str(error))
            raise
        self._drop(fabrics, subject)

    def record(self, fabric: str, subject: str, message: str) -> None:
        """Record why a write for a Fabric is refused; an empty message drops the entry."""
        if message:
            self._set(fabric, subject, message)
        else:
            self._drop((fabric,), subject)

    def drop(self, subject: str) -> None:
        """Drop the entries of a subject: there is nothing left to write."""
        self._drop(tuple(self._refused), subject)

    def retain(self, prefix: str, subjects: Collection[str]) -> None:
        """Drop the entries with the prefix that are not among the subjects: nothing is to be written for them."""
        for subject in {*itertools.chain(*self._refused.values())} - set(subjects):
            if subject.startswith(prefix):
                self.drop(subject)

    def is_refused(self, subject: str) -> bool:
        """Return whether the last attempt to write the subject was refused, for any Fabric."""
        return any(subject in refused for refused in self._refused.values())

    def message(self, fabric: str) -> str:
        """Return the refusals of a Fabric in one bounded text with the API server's messages; empty without any."""
        refused = self._refused.get(fabric, {})
        shown = "; ".join(f"{subject}: {refused[subject]}" for subject in sorted(refused)[:SHOWN_MAX])
        more = len(refused) - SHOWN_MAX
        tail = f"; and {more} more" if more > 0 else ""
        return shown[: MESSAGE_LIMIT_CHARS - len(tail)] + tail

    def forget(self, fabric: str) -> None:
        """Drop all entries of a Fabric that is gone."""
        self._refused.pop(fabric, None)

    def clear(self) -> None:
        """Drop everything: another controller may have written meanwhile."""
        self._refused.clear()

    def _set(self, fabric: str, subject: str, message: str) -> None:
        refused = self._refused.setdefault(fabric, {})
        if refused.get(subject) != message:
            refused[subject] = message
            self._changed(fabric)

    def _drop(self, fabrics: Collection[str], subject: str) -> None:
        for fabric in fabrics:
            refused = self._refused.get(fabric, {})
            if refused.pop(subject, None) is None:
                continue
            if not refused:
                del self._refused[fabric]
            self._changed(fabric)
