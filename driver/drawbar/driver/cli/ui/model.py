"""The content of the page, and the update for a browser with an older one; pure.

An update holds only the difference between two pages. So it is never larger than the whole page, even for a browser
that did not read for a long time.
"""

from collections.abc import Iterable, Mapping

import msgspec

from drawbar.driver import naturalorder
from drawbar.driver.api import fabrics, meta
from drawbar.driver.cli.doctor.plans import fabrics as judging
from drawbar.driver.cli.status import fabric_entries, observed, tree
from drawbar.driver.cli.ui import device_rows

EVENTS = 200
"""The most Events on the page, the newest first."""
CLAIMS = 100
"""The most claims without a device on the page."""
SAME_SECONDS = 2.0
"""The longest time between equal Events on a claim and its pods."""
HOSTS = 5000
"""The most hosts of a fabric on the page."""
FIRST_ROWS = 500
"""The rows of the first part of a long update; more than a screen has."""


class About(tree.Node, frozen=True):
    """The cluster.

    Attributes:
        cluster: its name for people.
        server: URL of the API server.
        driver: the DRA driver's name.
        reader: the user who logged in; empty on the loopback.
    """

    cluster: str = ""
    server: str = ""
    driver: str = ""
    reader: str = ""


class Problem(tree.Node, frozen=True):
    """A bad condition of a Fabric."""

    type: str
    reason: str
    since: str
    message: str


class Host(tree.Node, frozen=True):
    """A host and its node."""

    host: str
    node: str


class Fabric(tree.Node, frozen=True):
    """A fabric.

    Attributes:
        state: see `tree.Fabric`.
        since: the begin of the state; RFC 3339.
        message: empty for a fabric without problems.
        problems: its bad conditions, the cause of others first.
        hosts: the hosts that are nodes of the cluster.
        host_count: the number of the manager's hosts.
    """

    name: str
    state: str
    since: str
    message: str
    problems: tuple[Problem, ...] = ()
    adapter: str = ""
    hosts: tuple[Host, ...] = ()
    host_count: int = 0


class Regarding(tree.Node, frozen=True):
    """An object of an Event."""

    kind: str
    namespace: str
    name: str


class Event(tree.Node, frozen=True):
    """An Event; `type` is `Normal` or `Warning`. Equal notes on a claim, its pods and DeviceAttachment are one Event."""

    at: str
    type: str
    reason: str
    note: str
    about: tuple[Regarding, ...]


class Stale(tree.Node, frozen=True):
    """The collections out of date; the page has their last known content.

    Attributes:
        kinds: their plural names; empty if the API server answers for none.
        since: the last moment at which the whole content was known to be current, RFC 3339; empty if it is current.
    """

    kinds: tuple[str, ...] = ()
    since: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The content at one moment.

    Attributes:
        about: the cluster.
        rows: the rows by key; an unchanged row is the same object in the next page.
        claims: the first claims without a device; see `claim_entries.list_pending`.
        waiting: the number of all claims that wait for a device.
        unused: the number of all claims that no pod uses.
        events: the Events, the newest first.
        unread: one sentence for each reason why kinds cannot be read.
        stale: the kinds that could be read before, and no longer can.
    """

    about: About = msgspec.field(default_factory=About)

    rows: Mapping[str, device_rows.Row] = msgspec.field(default_factory=dict)
    fabrics: tuple[Fabric, ...] = ()
    claims: tuple[tree.Claim, ...] = ()
    waiting: int = 0
    unused: int = 0
    events: tuple[Event, ...] = ()
    unread: tuple[str, ...] = ()
    stale: Stale = Stale()


class Update(tree.Node, frozen=True):
    """The changes for a browser.

    Attributes:
        is_whole: whether the update replaces the content; else rows are added, replaced and removed.
        is_partial: whether the next update has the other rows of this one.
        rows: new or changed rows.
        gone: the keys of the removed rows.
        about, fabrics, claims, waiting, unused, events, unread, stale: the new values; None if unchanged.
    """

    is_whole: bool
    is_partial: bool = False
    about: About | None = None
    rows: tuple[device_rows.Row, ...] = ()
    gone: tuple[str, ...] = ()
    fabrics: tuple[Fabric, ...] | None = None
    claims: tuple[tree.Claim, ...] | None = None
    waiting: int | None = None
    unused: int | None = None
    events: tuple[Event, ...] | None = None
    unread: tuple[str, ...] | None = None
    stale: Stale | None = None


def update(before: Page | None, after: Page) -> Update | None:
    """Return the changes from `before` to `after`, or None if there are none.

    Args:
        before: None for a browser without content.
        after: the next content.
    """
    if before is None:
        return _make_full_update(after)
    changed = tuple(row for key, row in after.rows.items() if before.rows.get(key) is not row)
    gone = tuple(key for key in before.rows if key not in after.rows)
    if len(changed) + len(gone) > len(after.rows) // 2 + 1:
        return _make_full_update(after)
    difference = Update(
        is_whole=False,
        rows=changed,
        gone=gone,
        about=after.about if after.about != before.about else None,
        fabrics=after.fabrics if after.fabrics != before.fabrics else None,
        claims=after.claims if after.claims != before.claims else None,
        waiting=after.waiting if after.waiting != before.waiting else None,
        unused=after.unused if after.unused != before.unused else None,
        events=after.events if after.events != before.events else None,
        unread=after.unread if after.unread != before.unread else None,
        stale=after.stale if after.stale != before.stale else None,
    )
    return None if difference == Update(is_whole=False) else difference


def split(whole: Update) -> tuple[Update, ...]:
    """Return the update in parts: a browser draws the first rows of a long one while it reads the others."""
    if not whole.is_whole or len(whole.rows) <= FIRST_ROWS:
        return (whole,)
    first = msgspec.structs.replace(whole, is_partial=True, rows=whole.rows[:FIRST_ROWS])
    return first, Update(is_whole=False, rows=whole.rows[FIRST_ROWS:])


def _make_full_update(page: Page) -> Update:
    return Update(
        is_whole=True,
        about=page.about,
        rows=tuple(page.rows.values()),
        fabrics=page.fabrics,
        claims=page.claims,
        waiting=page.waiting,
        unused=page.unused,
        events=page.events,
        unread=page.unread,
        stale=page.stale,
    )


def list_fabrics(
    objects: Iterable[fabrics.Fabric], shown: Iterable[device_rows.Row], *, is_listed: bool = True
) -> tuple[Fabric, ...]:
    """Return the fabrics by name: the Fabric objects, and the fabrics that only a device names.

    Args:
        objects: the Fabrics.
        shown: the devices.
        is_listed: whether Fabrics could be read.
    """
    by_name = {fabric.metadata.name: fabric for fabric in objects}
    devices: dict[str, list[tree.Device]] = {name: [] for name in by_name}
    for row in shown:
        if row.fabric:
            devices.setdefault(row.fabric, []).append(row.device)
    return tuple(
        _describe_fabric(name, by_name.get(name), devices[name], is_listed=is_listed)
        for name in sorted(devices, key=naturalorder.sort_key)
    )


def _describe_fabric(
    name: str, item: fabrics.Fabric | None, devices: Iterable[tree.Device], *, is_listed: bool
) -> Fabric:
    described = fabric_entries.describe_fabric(name, item, {"": devices}, is_listed=is_listed)
    if item is None:
        return Fabric(name=name, state=described.state, since=described.since, message=described.message)
    return Fabric(
        name=name,
        state=described.state,
        since=described.since,
        message=described.message,
        problems=tuple(
            Problem(
                type=trouble.condition.type,
                reason=trouble.condition.reason,
                since=trouble.condition.last_transition_time or "",
                message=trouble.condition.message,
            )
            for trouble in judging.judge_all(item)
        ),
        adapter=item.spec.adapter,
        hosts=tuple(Host(host=each.host, node=each.node) for each in item.status.mapped_hosts[:HOSTS]),
        host_count=item.status.hosts,
    )


def list_events(events: Iterable[observed.Event]) -> tuple[Event, ...]:
    """Return each Event once, in the same order, with its objects."""
    groups: list[list[observed.Event]] = []
    latest: dict[tuple[str, str, str, str], list[observed.Event]] = {}
    for event in events:
        # The daemons record the same note on the claim, its pods and the DeviceAttachment, one right after the other.
        key = (event.namespace, event.type, event.reason, event.note)
        group = latest.get(key)
        if group is None or not _is_near(group[0], event):
            group = latest[key] = []
            groups.append(group)
        group.append(event)
    return tuple(
        Event(
            at=same[0].at,
            type=same[0].type,
            reason=same[0].reason,
            note=same[0].note,
            about=tuple(dict.fromkeys(_read_regarding(event) for event in same)),
        )
        for same in groups
    )


def _is_near(event: observed.Event, other: observed.Event) -> bool:
    first, second = meta.moment(event.at), meta.moment(other.at)
    return first is None or second is None or abs((first - second).total_seconds()) <= SAME_SECONDS


def _read_regarding(event: observed.Event) -> Regarding:
    item = event.regarding
    return Regarding(kind=item.kind, namespace=item.namespace, name=item.name)
