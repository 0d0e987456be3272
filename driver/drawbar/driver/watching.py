"""Watches: the changes that wake a reconciler, and the keys that they map to.

Each reconciler declares its watches as a table of rows. A daemon connects the tables of all reconcilers when it starts, and
tells each change that it observes. The functions of a row are pure.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

C = TypeVar("C")


def always(_change: object) -> bool:
    """Return True: each change of that kind matters."""
    return True


class Watch(msgspec.Struct, frozen=True):
    """A row of a reconciler's table; `watch` makes it with its types checked.

    Attributes:
        name: of the row, for its test.
        on: the kind of change.
        keys: returns the keys of the reconciler that a change wakes.
        when: returns whether a change of that kind matters.
    """

    name: str
    on: type
    keys: Callable[[Any], Iterable[Any]]
    when: Callable[[Any], bool]


def watch(
    name: str, on: type[C], keys: Callable[[C], Iterable[Any]], *, when: Callable[[C], bool] = always
) -> Watch:
    """Return the row, whose functions take a change of its kind."""
    return Watch(name, on, keys, when)


class Reconciler(msgspec.Struct, frozen=True):
    """A reconciler from the view of the sources of changes.

    Attributes:
        watches: its table.
        add: queues a key for the reconciler.
    """

    watches: tuple[Watch, ...]
    add: Callable[[Any], None]


class Dispatcher:
    """The connected tables. Each change wakes the reconcilers that watch its kind, once for each key."""

    def __init__(self, *reconcilers: Reconciler) -> None:
        self._rows: dict[type, list[tuple[Watch, Callable[[Any], None]]]] = {}
        self.connect(*reconcilers)

    def connect(self, *reconcilers: Reconciler) -> None:
        """Connect the tables of further reconcilers, before the first change."""
        for reconciler in reconcilers:
            for row in reconciler.watches:
                self._rows.setdefault(row.on, []).append((row, reconciler.add))

    def tell(self, change: object) -> None:
        """Add the keys that the change maps to.

        Raises:
            KeyError: no reconciler watches changes of that kind.
        """
        for add, key in dict.fromkeys(self._wakes(change)):
            add(key)

    def _wakes(self, change: object) -> Iterator[tuple[Callable[[Any], None], Any]]:
        for row, add in self._rows[type(change)]:
            if row.when(change):
                for key in row.keys(change):
                    yield add, key
