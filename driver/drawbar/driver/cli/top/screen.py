"""What stands on the screen, and what a key does; pure."""

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import console, table, text

from drawbar.driver.cli import tables
from drawbar.driver.cli.status import observed, tree, views

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page-up", "page-down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"
EVENTS = 5
FABRICS = 6
FILTER_LIMIT = 60
# Columns of the table of devices that are left out where the terminal is narrower.
_WIDE, _MIDDLE = 110, 70
_KEYS = "/ filter   enter open   esc back   arrows, page keys   q quit"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A device with its place."""

    fabric: str
    enclosure: str
    device: tree.Device

    @property
    def key(self) -> Key:
        """Pool and name."""
        return self.device.pool, self.device.name

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether each word stands somewhere in what is shown of the device."""
        device = self.device
        parts = [self.fabric, self.enclosure, device.name, device.id, device.device_class, device.model]
        parts += [device.serial, device.state, device.node, device.host, device.port, device.waits_for]
        parts += [f"{taint.key}:{taint.effect}" for taint in device.taints]
        parts += [f"{claim.namespace}/{claim.name}" for claim in device.claims]
        parts += [pod for claim in device.claims for pod in claim.pods]
        content = "\n".join(parts).lower()
        return all(word in content for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the user has chosen.

    Attributes:
        filter: words that a device's row must have.
        is_typing: whether keys go into the filter.
        chosen: the device of the cursor; None for the first of the list.
        is_open: whether the chosen device is shown alone.
        is_done: whether to end.
    """

    filter: str = ""
    is_typing: bool = False
    chosen: Key | None = None
    is_open: bool = False
    is_done: bool = False


def rows(shown: tree.Tree, words: str) -> tuple[Row, ...]:
    """Return the devices that match the words: first what waits, then what is used, then what is free."""
    listed = [
        Row(fabric=fabric.name, enclosure=enclosure.name, device=device)
        for fabric in shown.fabrics
        for enclosure in fabric.enclosures
        for device in enclosure.devices
    ]
    listed += [
        Row(fabric="", enclosure="", device=device) for local in shown.local for device in local.devices
    ]
    wanted = words.lower().split()
    return tuple(sorted((row for row in listed if row.matches(wanted)), key=_order))


def _order(row: Row) -> tuple[bool, bool, str, Key]:
    state = row.device.state
    is_settled = state in tree.SETTLED
    # What has waited longest is first.
    return is_settled, state == tree.FREE, "" if is_settled else row.device.since, row.key


def press(state: State, key: str, listed: Sequence[Row], page: int) -> State:
    """Return what a key makes of the state.

    Args:
        state: before.
        key: a name from above, or a letter.
        listed: the devices of the list.
        page: how many of them are seen at once.
    """
    if state.is_typing:
        return _type(state, key)
    if key == "q":
        return dataclasses.replace(state, is_done=True)
    if key == ESCAPE:
        return (
            dataclasses.replace(state, is_open=False)
            if state.is_open
            else dataclasses.replace(state, filter="")
        )
    if key == "/":
        return dataclasses.replace(state, is_typing=True, is_open=False)
    if not listed:
        return state
    at = position(state, listed)
    if key == ENTER:
        return dataclasses.replace(state, chosen=listed[at].key, is_open=True)
    moves = {UP: at - 1, "k": at - 1, DOWN: at + 1, "j": at + 1, HOME: 0, END: len(listed) - 1}
    moves |= {PAGE_UP: at - page, PAGE_DOWN: at + page}
    if key not in moves:
        return state
    return dataclasses.replace(state, chosen=listed[max(0, min(moves[key], len(listed) - 1))].key)


def _type(state: State, key: str) -> State:
    if key == ESCAPE:
        return dataclasses.replace(state, is_typing=False, filter="", chosen=None)
    if key == ENTER:
        return dataclasses.replace(state, is_typing=False, chosen=None)
    if key == BACKSPACE:
        return dataclasses.replace(state, filter=state.filter[:-1])
    if len(key) == 1 and key.isprintable():
        return dataclasses.replace(state, filter=(state.filter + key)[:FILTER_LIMIT])
    return state


def position(state: State, listed: Sequence[Row]) -> int:
    """Return the place of the cursor; the first one where the chosen device is not in the list."""
    return next((index for index, row in enumerate(listed) if row.key == state.chosen), 0)


def page_rows(shown: tree.Tree, height: int) -> int:
    """Return how many devices fit on a screen of this height."""
    fabrics = min(len(shown.fabrics), FABRICS)
    # The heads of the three tables, two empty lines, and the line of keys.
    return max(1, height - fabrics - EVENTS - 6)


def render(
    state: State,
    shown: tree.Tree,
    listed: Sequence[Row],
    events: Sequence[observed.Event],
    *,
    now: datetime.datetime,
    width: int,
    height: int,
) -> console.Group:
    """Return the screen.

    Args:
        state: what the user has chosen.
        shown: the tree.
        listed: `rows` of it.
        events: the newest first.
        now: from which ages are counted.
        width: in columns.
        height: in lines.
    """
    at = position(state, listed)
    if state.is_open and listed:
        lines = _detail(listed[at], events, now)
        return console.Group(*_cut(lines, width, height - 1), _foot(state, shown, listed))
    page = page_rows(shown, height)
    begin = max(0, min(at - page // 2, len(listed) - page))
    return console.Group(
        _fabrics(shown, now, width),
        text.Text(),
        _devices(listed[begin : begin + page], at - begin, now, width),
        text.Text(),
        *_cut(
            [_event(event, now) for event in events[:EVENTS]] or [text.Text("no Events", "dim")],
            width,
            EVENTS,
        ),
        _foot(state, shown, listed),
    )


def _fabrics(shown: tree.Tree, now: datetime.datetime, width: int) -> table.Table:
    head = ["FABRIC", "STATE", "AGE", "DEVICES", "READY", "WAITING", "FAILED", "FREE"]
    lines = []
    for fabric in shown.fabrics[:FABRICS]:
        devices = [device for enclosure in fabric.enclosures for device in enclosure.devices]
        states = Counter(device.state for device in devices)
        waiting = sum(device.state not in tree.SETTLED and device.state != "Failed" for device in devices)
        lines.append(
            [
                text.Text(tables.clean(fabric.name)),
                text.Text(tables.clean(fabric.state), "green" if fabric.state == "Connected" else "bold red"),
                text.Text(views.age(fabric.since, now) if fabric.since else "-"),
                *(
                    text.Text(str(count))
                    for count in (len(devices), states["Ready"], waiting, states["Failed"], states[tree.FREE])
                ),
            ]
        )
    more = len(shown.fabrics) - FABRICS
    if more > 0:
        head[0] = f"FABRIC (and {more} more)"
    kept = range(len(head)) if width >= _MIDDLE else (0, 1, 3, 5, 6)
    return _table([head[index] for index in kept], [[line[index] for index in kept] for line in lines])


def _devices(listed: Sequence[Row], at: int, now: datetime.datetime, width: int) -> table.Table:
    head = ["DEVICE", "STATE", "AGE", "NODE", "CLAIM", "WAITS FOR", "MODEL", "FABRIC"]
    lines = []
    for row in listed:
        device = row.device
        claim = device.claims[0] if device.claims else None
        taints = " ".join(f"{taint.key}:{taint.effect}" for taint in device.taints)
        state = text.Text(tables.clean(device.state), views.colour(device.state))
        lines.append(
            [
                text.Text(tables.clean(device.name)),
                state,
                text.Text(views.age(device.since, now) if device.since else "-"),
                text.Text(tables.clean(device.node or "-")),
                text.Text(tables.clean(f"{claim.namespace}/{claim.name}" if claim is not None else "-")),
                text.Text(tables.clean(device.waits_for or taints or "-"), "yellow"),
                text.Text(tables.clean(device.model or device.device_class or "-")),
                text.Text(tables.clean(f"{row.fabric}/{row.enclosure}".strip("/") or "-")),
            ]
        )
    kept = range(len(head)) if width >= _WIDE else (0, 1, 2, 3, 5) if width >= _MIDDLE else (0, 1, 2)
    return _table([head[index] for index in kept], [[line[index] for index in kept] for line in lines], at)


def _table(head: Sequence[str], lines: Iterable[Sequence[text.Text]], at: int = -1) -> table.Table:
    shown = table.Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name in head:
        shown.add_column(name, no_wrap=True, overflow="ellipsis")
    for index, line in enumerate(lines):
        shown.add_row(*line, style="reverse" if index == at else "")
    return shown


def _detail(row: Row, events: Sequence[observed.Event], now: datetime.datetime) -> list[text.Text]:
    device = row.device
    state = device.state + (f", for {views.age(device.since, now)}" if device.since else "")
    facts = [
        ("device", device.name),
        ("pool", device.pool),
        ("fabric", f"{row.fabric}/{row.enclosure}".strip("/")),
        ("id", device.id),
        ("class", device.device_class),
        ("model", device.model),
        ("serial", device.serial),
        ("state", state),
        ("waits for", device.waits_for),
        ("node", device.node),
        ("host", " ".join(part for part in (device.host, device.port and f"port {device.port}") if part)),
        ("slot", device.slot),
        ("attachment", device.attachment),
        *(("taint", f"{taint.key}={taint.value}:{taint.effect}") for taint in device.taints),
    ]
    names = {device.attachment} if device.attachment else set()
    for claim in device.claims:
        names |= {claim.name, *claim.pods}
        facts.append(("claim", f"{claim.namespace}/{claim.name}  {claim.state}"))
        facts += [("pod", f"{claim.namespace}/{pod}") for pod in claim.pods]
    lines = [_fact(name, content) for name, content in facts if content]
    about = [event for event in events if event.regarding.name in names]
    return [*lines, text.Text(), *(_event(event, now) for event in about)]


def _fact(name: str, content: str) -> text.Text:
    return text.Text.assemble((f"{name:<11}", "bold"), tables.clean(content))


def _event(event: observed.Event, now: datetime.datetime) -> text.Text:
    regarding = event.regarding
    where = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
    return text.Text.assemble(
        (f"{views.age(event.at, now):>4} ", "dim"),
        (f"{tables.clean(event.reason)} ", "yellow" if event.type == "Warning" else "green"),
        f"{tables.clean(regarding.kind)} {tables.clean(where)}: {tables.clean(event.note)}",
    )


def _cut(lines: Sequence[text.Text], width: int, most: int) -> list[text.Text]:
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return list(lines[: max(0, most)])


def _foot(state: State, shown: tree.Tree, listed: Sequence[Row]) -> text.Text:
    if state.is_typing:
        return text.Text(f"/{state.filter}_", "bold")
    unread = f"   {len(shown.unread)} kinds cannot be read: drawbar status names them" if shown.unread else ""
    chosen = f"   filter: {state.filter}" if state.filter else ""
    line = text.Text(f"{len(listed)} of {len(shown.devices)} devices{chosen}   {_KEYS}{unread}", "dim")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
