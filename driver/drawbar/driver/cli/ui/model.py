"""What the page shows, and what has to be sent to a browser that shows an older state; pure.

An update has what differs between two pages and nothing of what was between them, so that it is never larger than the whole
page, however long a browser did not read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import fabrics
from drawbar.driver.cli.status import observed, tree
from drawbar.driver.cli.ui import device_rows

EVENTS = 200
"""So many Events are shown, the newest."""


class Fabric(tree.Node, frozen=True):
    """A fabric; see `tree.Fabric`."""

    name: str
    state: str
    since: str
    message: str


class Event(tree.Node, frozen=True):
    """An Event; `type` is `Normal` or `Warning`."""

    at: str
    type: str
    reason: str
    kind: str
    namespace: str
    name: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that is shown at one moment.

    Attributes:
        rows: by key; a row that did not change is the same object in the next page.
        claims: those that wait for the scheduler.
        events: the newest first.
        unread: one sentence for each kind that cannot be followed now.
    """

    rows: Mapping[str, device_rows.Row] = field(default_factory=dict)
    fabrics: tuple[Fabric, ...] = ()
    claims: tuple[tree.Claim, ...] = ()
    events: tuple[Event, ...] = ()
    unread: tuple[str, ...] = ()


class Update(tree.Node, frozen=True):
    """What a browser has to change.

    Attributes:
        is_whole: it replaces what is shown; else rows are added, replaced and taken away.
        rows: new or changed.
        gone: the keys of the rows that are there no more.
        fabrics: and what follows: None where it is as before.
    """

    is_whole: bool
    rows: tuple[device_rows.Row, ...] = ()
    gone: tuple[str, ...] = ()
    fabrics: tuple[Fabric, ...] | None = None
    claims: tuple[tree.Claim, ...] | None = None
    events: tuple[Event, ...] | None = None
    unread: tuple[str, ...] | None = None


def update(before: Page | None, after: Page) -> Update | None:
    """Return what a browser that shows `before` needs to show `after`; None where it shows that already.

    Args:
        before: None for a browser that shows nothing yet.
        after: what is to be shown.
    """
    if before is None:
        return _whole(after)
    changed = tuple(row for key, row in after.rows.items() if before.rows.get(key) is not row)
    gone = tuple(key for key in before.rows if key not in after.rows)
    if len(changed) + len(gone) > len(after.rows) // 2 + 1:
        return _whole(after)
    difference = Update(
        is_whole=False,
        rows=changed,
        gone=gone,
        fabrics=after.fabrics if after.fabrics != before.fabrics else None,
        claims=after.claims if after.claims != before.claims else None,
        events=after.events if after.events != before.events else None,
        unread=after.unread if after.unread != before.unread else None,
    )
    return None if difference == Update(is_whole=False) else difference


def _whole(page: Page) -> Update:
    return Update(
        is_whole=True,
        rows=tuple(page.rows.values()),
        fabrics=page.fabrics,
        claims=page.claims,
        events=page.events,
        unread=page.unread,
    )


def list_fabrics(objects: Iterable[fabrics.Fabric], shown: Iterable[device_rows.Row]) -> tuple[Fabric, ...]:
    """Return the fabrics, by name: the Fabric objects, and those that only a device names."""
    by_name = {fabric.metadata.name: fabric for fabric in objects}
    names = by_name.keys() | {row.fabric for row in shown if row.fabric}
    described = (
        tree.describe_fabric(name, by_name.get(name), {}, is_listed=bool(by_name)) for name in sorted(names)
    )
    return tuple(
        Fabric(name=fabric.name, state=fabric.state, since=fabric.since, message=fabric.message)
        for fabric in described
    )


def list_events(events: Iterable[observed.Event]) -> tuple[Event, ...]:
    """Return Events as they are shown, in the same order."""
    return tuple(
        Event(
            at=event.at,
            type=event.type,
            reason=event.reason,
            kind=event.regarding.kind,
            namespace=event.regarding.namespace,
            name=event.regarding.name,
            note=event.note,
        )
        for event in events
    )
