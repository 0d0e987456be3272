"""The lines of the terminal view, and the effect of each key; pure."""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich import console, text

from drawbar.driver import naturalorder
from drawbar.driver.cli import tables
from drawbar.driver.cli.status import categories, views
from drawbar.driver.cli.ui import device_rows, model

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page-up", "page-down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"
EVENTS = 5
FABRICS = 4
CLAIMS = 3
UNREAD = 2
FILTER_LIMIT = 60
KEYS = "/ filter   s state   enter open   esc back   q quit"
ALL, TROUBLE, USED, UNUSED = "all", "trouble", "in use", "free"
SHOWN = (ALL, TROUBLE, USED, UNUSED)
"""The choices of the key `s`."""
_STYLES: Mapping[str, str] = {
    "in use": "green",
    "kept": "cyan",
    "free": "dim",
    "moving": "magenta",
    "tainted": "yellow",
    "failed": "bold red",
}
_WORST_FIRST = ("failed", "tainted", "moving", "in use", "kept", "free")
_GAP = 2


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choices.

    Attributes:
        filter: words that a device must have.
        is_typing: keys go into the filter.
        show: one of `SHOWN`.
        chosen: key of the cursor's device; empty for the first one.
        is_open: the chosen device fills the screen.
        is_done: the user has quit.
    """

    filter: str = ""
    is_typing: bool = False
    show: str = ALL
    chosen: str = ""
    is_open: bool = False
    is_done: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The title above the devices of one place."""

    title: str
    counts: str


Line = Group | device_rows.Row


def category(row: device_rows.Row) -> str:
    """Return the category of a device's state: a key of `_STYLES`."""
    return categories.WORDS[row.category]


def find_reason(row: device_rows.Row) -> str:
    """Return why the device waits, failed or is tainted; empty for a device without trouble."""
    device = row.device
    reasons = [device.waits_for, *(claim.waits_for for claim in device.claims if not device.waits_for)]
    waits = next((reason for reason in reasons if reason), "")
    if waits and device.state != "Failed":
        waits = f"waits for {waits}"
    taints = [taint.text for taint in device.taints]
    ill = device.health_message or device.health if device.health == "Unhealthy" else ""
    return "; ".join(part for part in (waits, ill, *taints) if part)


def matches(row: device_rows.Row, words: Sequence[str]) -> bool:
    """Return whether each word occurs in a text of the device."""
    if not words:
        return True
    device = row.device
    parts = [row.fabric, row.enclosure, device.name, device.id, device.device_class, device.model]
    parts += [device.serial, device.state, device.node, device.host, device.port, category(row)]
    parts += [find_reason(row), device.health]
    parts += [f"{claim.namespace}/{claim.name}" for claim in device.claims]
    parts += [pod for claim in device.claims for pod in claim.pods]
    content = "\n".join(parts).lower()
    return all(word in content for word in words)


def _is_failing(row: device_rows.Row) -> bool:
    return row.category == categories.FAILED or row.device.health == "Unhealthy"


def _is_shown(row: device_rows.Row, show: str) -> bool:
    kind = category(row)
    if show == TROUBLE:
        return kind in ("failed", "moving", "tainted") or row.device.health == "Unhealthy"
    return show in (ALL, kind) or (show == UNUSED and kind == "tainted")


def arrange(page: model.Page, state: State) -> tuple[Line, ...]:
    """Return the devices that pass the user's filter, by fabric and enclosure, each place with its title."""
    words = state.filter.lower().split()
    groups: dict[tuple[str, str], list[device_rows.Row]] = {}
    for row in page.rows.values():
        if _is_shown(row, state.show) and matches(row, words):
            location = (row.fabric, row.enclosure) if row.fabric else ("", row.device.node)
            groups.setdefault(location, []).append(row)
    lines: list[Line] = []
    failing = {location for location, rows in groups.items() if any(map(_is_failing, rows))}
    # Places with a failed device come first, and a node's own devices last.
    for location in sorted(
        groups,
        key=lambda each: (
            each not in failing,
            not each[0],
            naturalorder.sort_key(each[0]),
            naturalorder.sort_key(each[1]),
        ),
    ):
        rows = sorted(
            groups[location], key=lambda row: (not _is_failing(row), naturalorder.sort_key(row.device.name))
        )
        title = " / ".join(filter(None, location)) if location[0] else f"node {location[1] or 'unknown'}"
        lines += [Group(title=title, counts=_counts(rows)), *rows]
    return tuple(lines)


def lists_same(before: tuple[model.Page, State], after: tuple[model.Page, State]) -> bool:
    """Return whether `arrange` returns the same lines for both."""
    (page, state), (new_page, new_state) = before, after
    return page is new_page and (state.filter, state.show) == (new_state.filter, new_state.show)


def _counts(rows: Iterable[device_rows.Row]) -> str:
    counted = Counter(map(category, rows))
    return ", ".join(f"{counted[kind]} {kind}" for kind in _WORST_FIRST if counted[kind])


def press(state: State, key: str, lines: Sequence[Line], *, page_rows: int) -> State:
    """Return the state after a key.

    Args:
        state: the state before.
        key: the name of a key, or a letter.
        lines: see `arrange`.
        page_rows: the step of the page keys, in rows.
    """
    if state.is_typing:
        return _type(state, key)
    commands: dict[str, dict[str, Any]] = {
        "q": {"is_done": True},
        "/": {"is_typing": True, "is_open": False},
        "s": {"show": SHOWN[(SHOWN.index(state.show) + 1) % len(SHOWN)], "is_open": False},
        ESCAPE: {"is_open": False} if state.is_open else {"filter": "", "show": ALL},
    }
    if key in commands:
        return msgspec.structs.replace(state, **commands[key])
    rows = [line for line in lines if isinstance(line, device_rows.Row)]
    if not rows:
        return state
    at = find_position(state, rows)
    moves = {UP: at - 1, "k": at - 1, DOWN: at + 1, "j": at + 1, HOME: 0, END: len(rows) - 1, ENTER: at}
    moves |= {PAGE_UP: at - page_rows, PAGE_DOWN: at + page_rows}
    if key not in moves:
        return state
    chosen = rows[max(0, min(moves[key], len(rows) - 1))].key
    return msgspec.structs.replace(state, chosen=chosen, is_open=state.is_open or key == ENTER)


def _type(state: State, key: str) -> State:
    if key == ESCAPE:
        return msgspec.structs.replace(state, is_typing=False, filter="")
    if key == ENTER:
        return msgspec.structs.replace(state, is_typing=False)
    if key == BACKSPACE:
        return msgspec.structs.replace(state, filter=state.filter[:-1])
    if len(key) == 1 and key.isprintable():
        return msgspec.structs.replace(state, filter=(state.filter + key)[:FILTER_LIMIT])
    return state


def find_position(state: State, lines: Sequence[Line]) -> int:
    """Return the index of the cursor's device; the first device if the chosen one is not listed."""
    rows = [index for index, line in enumerate(lines) if isinstance(line, device_rows.Row)]
    chosen = (index for index in rows if lines[index].key == state.chosen)  # type: ignore[union-attr]
    return next(chosen, rows[0] if rows else 0)


def render(
    state: State,
    page: model.Page,
    lines: Sequence[Line],
    *,
    now: datetime.datetime,
    width: int,
    height: int,
) -> console.Group:
    """Return the screen: exactly `height` lines, the keys in the last one.

    Args:
        state: the user's choices.
        page: the cluster.
        lines: see `arrange`.
        now: the time for ages.
        width: in columns.
        height: in lines.
    """
    above = [
        _summary(page, now, width),
        *_unread(page, now),
        *_fabrics(page, now),
        *_render_pending(page, now),
        text.Text(),
    ]
    at = find_position(state, lines)
    rows = [line for line in lines if isinstance(line, device_rows.Row)]
    if state.is_open and rows:
        middle, below = _detail(rows[find_position(state, rows)], page.events, now), []
    else:
        below = [text.Text(), *_events(page.events[:EVENTS], now)] if height >= 20 else []
        # The header of the table takes a line, and the keys another one.
        room = max(1, height - len(above) - len(below) - 2)
        begin = max(0, min(at - room // 2, len(lines) - room))
        middle = _devices(lines[begin : begin + room], at - begin, now, width)
    body = [*above, *middle]
    body = body[: max(1, height - 1 - len(below))]
    body += [text.Text()] * (height - 1 - len(below) - len(body))
    screen = [*body, *below][: max(0, height - 1)]
    for line in screen:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return console.Group(*screen, _foot(state, page, rows, width))


def _summary(page: model.Page, now: datetime.datetime, width: int) -> text.Text:
    counted = Counter(map(category, page.rows.values()))
    line = text.Text.assemble(
        (tables.clean(page.about.cluster), "bold"), f"  {sum(counted.values()):,} devices"
    )
    # A narrow terminal cuts the end of the line.
    for kind in _WORST_FIRST[:2]:
        if counted[kind]:
            line.append("  ")
            line.append(f"{counted[kind]:,} {kind}", _STYLES[kind])
    if page.waiting:
        line.append("  ")
        line.append(f"{page.waiting:,} claim{'s' * (page.waiting != 1)} waiting", "yellow")
    for kind in _WORST_FIRST[2:]:
        if counted[kind]:
            line.append("  ")
            line.append(f"{counted[kind]:,} {kind}", _STYLES[kind])
    if page.unused:
        line.append("  ")
        line.append(f"{page.unused:,} without a pod", "dim")
    clock = f"{now:%H:%M:%S} UTC"
    if (room := width - len(line.plain) - len(clock)) >= _GAP:
        line.append(" " * room + clock, "dim")
    return line


def _unread(page: model.Page, now: datetime.datetime) -> list[text.Text]:
    lines = [text.Text(f"! {tables.clean(sentence)}", "yellow") for sentence in page.unread[:UNREAD]]
    if page.stale.since:
        what = ", ".join(page.stale.kinds) or "everything"
        lines.insert(0, text.Text(f"! {what} was last read {views.age(page.stale.since, now)} ago", "red"))
    return lines


def _fabrics(page: model.Page, now: datetime.datetime) -> list[text.Text]:
    # Fabrics with a problem come first.
    ordered = sorted(
        page.fabrics, key=lambda fabric: (fabric.state == "Connected", naturalorder.sort_key(fabric.name))
    )
    longest = max((len(fabric.name) for fabric in ordered[:FABRICS]), default=0)
    lines = [
        text.Text.assemble(
            f"fabric {tables.clean(fabric.name):<{longest}}  ",
            (tables.clean(fabric.state), _fabric_style(fabric)),
            (f" {views.age(fabric.since, now)}" if fabric.since else "", "dim"),
            f"  {tables.clean(fabric.message)}",
        )
        for fabric in ordered[:FABRICS]
    ]
    if more := len(ordered) - FABRICS:
        lines += [text.Text(f"and {more} more fabrics", "dim")] * (more > 0)
    return lines


def _fabric_style(fabric: model.Fabric) -> str:
    return {"Connected": "green", "Degraded": "yellow", "Blocked": "yellow", "Pending": "yellow"}.get(
        fabric.state, "bold red"
    )


def _render_pending(page: model.Page, now: datetime.datetime) -> list[text.Text]:
    waiting = [claim for claim in page.claims if claim.severity != "note"][:CLAIMS]
    lines = [
        text.Text.assemble(
            ("claim ", ""),
            (tables.clean(f"{claim.namespace}/{claim.name}"), "bold"),
            (f"  waits {views.age(claim.since, now)}", "yellow"),
            f"  {tables.clean(claim.waits_for)}",
        )
        for claim in waiting
    ]
    if (more := page.waiting - len(waiting)) > 0:
        lines.append(text.Text(f"and {more} more claims wait", "dim"))
    return lines


_COLUMNS = ("DEVICE", "STATE", "AGE", "NODE", "CLAIM", "MODEL", "WHY")
# Narrow terminals lose the last of these columns first.
_IMPORTANCE = ("DEVICE", "STATE", "WHY", "NODE", "CLAIM", "AGE", "MODEL")
_MOST = {"DEVICE": 40, "STATE": 20, "AGE": 5, "NODE": 30, "CLAIM": 40, "MODEL": 28, "WHY": 60}


def _describe_state(row: device_rows.Row) -> str:
    """Return the state; a tainted or ill device never looks free or ready."""
    if row.category == categories.BLOCKED:
        return f"{row.device.state}, tainted"
    return f"{row.device.state}, ill" if row.device.health == "Unhealthy" else row.device.state


def _cells(row: device_rows.Row, now: datetime.datetime) -> dict[str, str]:
    device = row.device
    claim = device.claims[0] if device.claims else None
    return {
        "DEVICE": tables.clean(device.name),
        "STATE": tables.clean(_describe_state(row)),
        "AGE": views.age(device.since, now) if device.since else "",
        "NODE": tables.clean(device.node),
        "CLAIM": tables.clean(f"{claim.namespace}/{claim.name}") if claim is not None else "",
        "MODEL": tables.clean(device.model or device.device_class),
        "WHY": tables.clean(find_reason(row)),
    }


def _devices(visible: Sequence[Line], at: int, now: datetime.datetime, width: int) -> list[text.Text]:
    cells = {row.key: _cells(row, now) for row in visible if isinstance(row, device_rows.Row)}
    widths = _fit(cells.values(), width)
    head = "".join(f"{name:<{length + _GAP}}" for name, length in widths.items())
    shown = [text.Text(f"  {head}", "bold")]
    for index, line in enumerate(visible):
        if isinstance(line, Group):
            shown.append(
                text.Text.assemble((tables.clean(line.title), "bold cyan"), (f"  {line.counts}", "dim"))
            )
            continue
        drawn = text.Text().append("> " if index == at else "  ")
        for name, length in widths.items():
            content = text.Text(cells[line.key][name], _cell_style(line, name))
            content.truncate(length, overflow="ellipsis", pad=True)
            drawn.append_text(content)
            drawn.append(" " * _GAP)
        if index == at:
            drawn.stylize("bold")
        shown.append(drawn)
    if not visible:
        shown.append(text.Text("  no device to show", "dim"))
    return shown


def _cell_style(row: device_rows.Row, column: str) -> str:
    if column == "STATE":
        return _STYLES["failed" if _is_failing(row) else category(row)]
    if column == "WHY":
        return "red" if category(row) == "failed" else "yellow"
    return "dim" if column in ("AGE", "MODEL") else ""


def _fit(cells: Iterable[Mapping[str, str]], width: int) -> dict[str, int]:
    """Return the widths of the columns that fit, each as wide as its longest text; empty columns are left out."""
    listed = list(cells)
    longest = {
        name: min(_MOST[name], max((len(each[name]) for each in listed), default=0)) for name in _COLUMNS
    }
    kept: dict[str, int] = {}
    room = width - _GAP
    for name in _IMPORTANCE:
        wanted = max(longest[name], len(name))
        # The reason is worth a column even if it is cut.
        wanted = min(wanted, max(20, width // 3)) if name == "WHY" else wanted
        if (longest[name] or name in ("DEVICE", "STATE")) and (wanted + _GAP <= room or not kept):
            kept[name] = min(wanted, max(1, room - _GAP))
            room -= kept[name] + _GAP
    if "WHY" in kept:
        kept["WHY"] = max(kept["WHY"], min(longest["WHY"], kept["WHY"] + max(0, room)))
    return {name: kept[name] for name in _COLUMNS if name in kept}


def _detail(row: device_rows.Row, events: Sequence[model.Event], now: datetime.datetime) -> list[text.Text]:
    device = row.device
    state = device.state + (f", for {views.age(device.since, now)}" if device.since else "")
    facts = [
        ("device", device.name),
        ("state", state),
        ("why", find_reason(row)),
        ("fabric", " / ".join(filter(None, (row.fabric, row.enclosure)))),
        ("pool", device.pool if not row.fabric else ""),
        ("id", device.id),
        ("class", device.device_class),
        ("model", device.model),
        ("serial", device.serial),
        ("node", device.node),
        ("host", " ".join(part for part in (device.host, device.port and f"port {device.port}") if part)),
        ("slot", device.slot),
        ("health", device.health),
        ("attachment", device.attachment),
    ]
    names = {device.attachment} if device.attachment else set()
    for claim in device.claims:
        names |= {claim.name, *claim.pods}
        facts.append(("claim", f"{claim.namespace}/{claim.name}  {claim.state}"))
        facts += [("pod", f"{claim.namespace}/{pod}") for pod in claim.pods]
    facts.append(("next", f"drawbar explain device/{device.pool}/{device.name}"))
    lines = [
        text.Text.assemble((f"{name:<11}", "bold"), tables.clean(content))
        for name, content in facts
        if content
    ]
    about = [event for event in events if names & {each.name for each in event.about}]
    return [*lines, text.Text(), *_events(about, now)]


def _events(events: Sequence[model.Event], now: datetime.datetime) -> list[text.Text]:
    if not events:
        return [text.Text("no Events", "dim")]
    return [
        text.Text.assemble(
            (f"{views.age(event.at, now):>4} ", "dim"),
            (f"{tables.clean(event.reason)} ", "yellow" if event.type == "Warning" else "green"),
            tables.clean(event.note),
            (f"  {tables.clean(_name(event.about[0]))}" if event.about else "", "dim"),
        )
        for event in events
    ]


def _name(about: model.Regarding) -> str:
    return f"{about.namespace}/{about.name}" if about.namespace else about.name


def _foot(state: State, page: model.Page, rows: Sequence[device_rows.Row], width: int) -> text.Text:
    if state.is_typing:
        line = text.Text(f"/{state.filter}_", "bold")
    else:
        chosen = f"   filter: {state.filter}" if state.filter else ""
        chosen += f"   state: {state.show}" if state.show != ALL else ""
        line = text.Text(f"{len(rows):,} of {len(page.rows):,} devices{chosen}   {KEYS}", "reverse")
        line.append(" " * max(0, width - len(line.plain)))
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line
