"""The rows of a table of what a change wakes, for the controller and for the node daemon; pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table; `row` makes it with its types checked.

    Attributes:
        name: of the row, for its test.
        on: the kind of change.
        when: whether a change of that kind matters.
        wakes: what it wakes.
    """

    name: str
    on: type
    when: Callable[[Any], bool]
    wakes: Callable[[Any], Iterable[Any]]


def row(name: str, on: type[C], when: Callable[[C], bool], wakes: Callable[[C], Iterable[Any]]) -> Row:
    """Return the row, whose functions take a change of its kind."""
    return Row(name, on, when, wakes)


def by_change(rows: Iterable[Row]) -> dict[type, tuple[Row, ...]]:
    """Return the rows by the kind of change that they are about, in their order."""
    listed: dict[type, list[Row]] = {}
    for each in rows:
        listed.setdefault(each.on, []).append(each)
    return {on: tuple(about) for on, about in listed.items()}


def always(_change: object) -> bool:
    """Return True: each change of that kind matters."""
    return True
