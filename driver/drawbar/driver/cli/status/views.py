"""The tree for people; pure. Each device has a line, unless it is free and without remarks."""

import datetime
from collections import Counter
from collections.abc import Iterable, Set

import msgspec
from rich import console, text
from rich import tree as rich_tree

from drawbar.driver.api import meta
from drawbar.driver.cli import tables
from drawbar.driver.cli.doctor.findings import Finding
from drawbar.driver.cli.status import categories, faults, tree

SMALL = 40
"""The most devices of a cluster that is shown device by device."""
# The most devices with a line of their own, those with trouble first; the rest are counted.
DEVICES = 40
ENCLOSURES = 20
TROUBLES = 10
MARKS = {"error": "✗", "unchecked": "?", "warning": "!", "note": "·"}
"""The mark of each severity, the worst first."""
STYLES = {"✗": "bold red", "?": "magenta", "!": "yellow", "·": "dim"}
# The most reachability groups and refused pairs.
GROUPS = 5
LEFT_OUT = 8
"""The most left-out devices of a node that are printed."""
_COLOURS = {
    "Ready": "green",
    "Connected": "green",
    "InUse": "green",
    "Reserved": "green",
    "Held": "cyan",
    "Idle": "cyan",
    "Free": "dim",
    "Failed": "bold red",
    "Missing": "bold red",
}


def show(
    out: console.Console,
    shown: tree.Tree,
    *,
    now: datetime.datetime,
    every: bool = False,
    wide: bool = False,
) -> None:
    """Print the summary, the troubles, and the tree.

    Args:
        out: the console.
        shown: the cluster, or a part of it.
        now: the time for ages.
        every: print a line for every device.
        wide: also print the host, the port and the id of each device.
    """
    if not (shown.fabrics or shown.local or shown.claims):
        if not shown.unread:
            tables.sentence(out, "There are no fabrics and no devices.")
        return
    _summary(out, shown, now)
    _troubles(out, shown, now, every=every)
    devices = shown.devices
    is_small = every or len(devices) <= SMALL
    worth = sorted(
        (device for device in devices if every or _is_worth(device, is_small=is_small)),
        key=lambda device: not is_trouble(device),
    )
    single = frozenset(map(_key, worth if every else worth[:DEVICES]))
    form = _Form(now=now, single=single, every=every, wide=wide)
    enclosures_left = sum(len(fabric.enclosures) for fabric in shown.fabrics) if every else ENCLOSURES
    for fabric in sorted(shown.fabrics, key=lambda fabric: fabric.state == "Connected"):
        out.print(_draw_fabric(fabric, form, enclosures_left))
        enclosures_left = max(0, enclosures_left - len(fabric.enclosures))
    _print_own_devices(out, shown.local, form)


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the tree.

    Attributes:
        now: the time for ages.
        single: the devices with a line of their own.
        every: whether every object has a line.
        wide: whether a device's line has the host, the port and the id.
    """

    now: datetime.datetime
    single: Set[tuple[str, str]]
    every: bool
    wide: bool


def _draw_fabric(fabric: tree.Fabric, form: _Form, most: int) -> rich_tree.Tree:
    """Return the tree of a fabric, with at most so many enclosures, those with trouble first."""
    inside = [device for enclosure in fabric.enclosures for device in enclosure.devices]
    beyond = f"; {fabric.not_offered} not offered (spec.offer)" if fabric.not_offered else ""
    top = rich_tree.Tree(
        _line(f"fabric {fabric.name}", fabric.state, fabric.since, form.now, f"{_counts(inside)}{beyond}")
    )
    if fabric.message and not fabric.problems:
        top.add(_words(fabric.message, style="yellow"))
    _reach(top, fabric, every=form.every)
    listed = sorted(fabric.enclosures, key=lambda part: not any(map(is_trouble, part.devices)))
    for enclosure in listed[:most]:
        branch = top
        if enclosure.name:
            branch = top.add(_words("enclosure ", enclosure.name, f"  {_counts(enclosure.devices)}"))
        _devices(branch, enclosure.devices, form)
    if rest := listed[most:]:
        counts = _counts([device for enclosure in rest for device in enclosure.devices])
        top.add(text.Text(f"{len(rest)} more enclosures  {counts}; --all shows them", style="dim"))
    return top


def _print_own_devices(out: console.Console, listed: Iterable[tree.Local], form: _Form) -> None:
    """Print the nodes' own devices, and the number of those on nodes without a line."""
    counted: list[tree.Device] = []
    for local in listed:
        if form.single.isdisjoint(map(_key, local.devices)) and not local.left_out:
            counted += local.devices
            continue
        top = rich_tree.Tree(_words("own devices of node ", local.node or "?", f"  {_counts(local.devices)}"))
        _devices(top, local.devices, form)
        _add_left_out(top, local.left_out, every=form.every)
        out.print(top)
    if counted:
        first, *others = sorted({device.node or "?" for device in counted})
        nodes = f"{len(others) + 1} more nodes" if others else f"node {first}"
        tables.sentence(out, f"own devices of {nodes}  {_counts(counted)}; --all shows them")


def is_trouble(device: tree.Device) -> bool:
    """Return whether the device failed, is unhealthy, or waits."""
    return categories.judge(device) in (categories.FAILED, categories.MOVING) or device.health == "Unhealthy"


def _is_worth(device: tree.Device, *, is_small: bool) -> bool:
    if is_trouble(device) or device.taints:
        return True
    return is_small and device.state != tree.FREE


def _summary(out: console.Console, shown: tree.Tree, now: datetime.datetime) -> None:
    """Print a line for fabrics, one for devices and one for claims."""
    bad = [fabric for fabric in shown.fabrics if fabric.state != "Connected"]
    if shown.fabrics:
        states = Counter(fabric.state for fabric in shown.fabrics)
        out.print(
            _render_heading(
                "Fabrics", ", ".join(f"{count} {state}" for state, count in sorted(states.items())), bool(bad)
            )
        )
    if devices := shown.devices:
        failed = any(device.state == "Failed" or device.health == "Unhealthy" for device in devices)
        out.print(_render_heading("Devices", _counts(devices), failed))
    pending = [claim for claim in shown.claims if claim.severity == "warning"]
    unused = sum(claim.severity == "note" for claim in shown.claims)
    if pending or unused:
        oldest = min((claim.since for claim in pending if claim.since), default="")
        since = f", the oldest for {age(oldest, now)}" if oldest else ""
        noun = {0: "none waits", 1: "1 waits"}.get(len(pending), f"{len(pending)} wait")
        more = f"; {unused} without a pod" if unused else ""
        out.print(_render_heading("Claims", f"{noun} for a device{since}{more}", False))
    out.print()


def _render_heading(name: str, content: str, is_bad: bool) -> text.Text:
    line = text.Text(f"{name:<8}", style="bold")
    return line.append(content, style="red" if is_bad else "not bold")


def list_troubles(shown: tree.Tree, now: datetime.datetime) -> list[tuple[str, str, str]]:
    """Return mark, sentence and next step of each trouble, the worst first."""
    entries: list[tuple[str, str, str]] = []
    for fabric in shown.fabrics:
        entries += (_enter(f"fabric {fabric.name}:", problem) for problem in fabric.problems)
    for device in shown.devices:
        subject = f"device {device.pool}/{device.name}"
        entries += (_enter(subject, problem) for problem in faults.list_problems(device, now))
    waiting = (claim for claim in shown.claims if claim.state == "Pending")
    found = (faults.judge_claim(claim, age(claim.since, now) if claim.since else "") for claim in waiting)
    entries += (_enter(finding.subject, finding) for finding in found)
    return sorted(entries, key=lambda entry: list(MARKS.values()).index(entry[0]))


def _enter(subject: str, problem: Finding | tree.Problem) -> tuple[str, str, str]:
    return MARKS[problem.severity], f"{subject} {problem.message}", problem.remedy


def _troubles(out: console.Console, shown: tree.Tree, now: datetime.datetime, *, every: bool) -> None:
    """Print the troubles, the worst first, each with the next step."""
    entries = list_troubles(shown, now)
    for mark, message, remedy in entries if every else entries[:TROUBLES]:
        line = text.Text(f"{mark} ", style=STYLES[mark])
        tables.paragraph(out, line.append(tables.clean(message), style="not bold default"))
        if remedy:
            tables.paragraph(out, text.Text(f"  -> {tables.clean(remedy)}", style="dim"))
    if (more := len(entries) - TROUBLES) > 0 and not every:
        out.print(text.Text(f"and {more} more; --all shows them", style="dim"))
    if entries:
        out.print()


def _reach(branch: rich_tree.Tree, fabric: tree.Fabric, *, every: bool) -> None:
    """Add the reachability groups, and the pairs that the manager refused."""
    if fabric.reach_groups:
        below = branch.add(text.Text("reachability groups"))
        for group in fabric.reach_groups if every else fabric.reach_groups[:GROUPS]:
            counts = f"  {group.devices} devices, {group.hosts} hosts, {group.nodes} of them nodes"
            below.add(_words(group.id, counts, style="" if group.hosts else "yellow"))
        if not every and (more := len(fabric.reach_groups) - GROUPS) > 0:
            below.add(text.Text(f"and {more} more; --all shows them", style="dim"))
    if fabric.incompatible:
        below = branch.add(text.Text("refused by the fabric manager", style="yellow"))
        for pair in fabric.incompatible if every else fabric.incompatible[:GROUPS]:
            below.add(_words(pair.device, " at host ", pair.host, ": ", pair.message))
        if not every and (more := len(fabric.incompatible) - GROUPS) > 0:
            below.add(text.Text(f"and {more} more; --all shows them", style="dim"))


def _devices(branch: rich_tree.Tree, devices: Iterable[tree.Device], form: _Form) -> None:
    listed = sorted(devices, key=lambda device: not is_trouble(device))
    for device in listed:
        if _key(device) in form.single:
            _device(branch, device, form.now, wide=form.wide)
    rest = [device for device in listed if _key(device) not in form.single]
    used = [device for device in rest if device.state != tree.FREE or device.taints]
    # If no device has a line of its own, the enclosure's line has the counts.
    if used and len(used) < len(listed):
        branch.add(text.Text(f"and {len(used)} more: {_counts(used)}; --all shows them", style="dim"))
    free = Counter(
        device.model or device.device_class
        for device in rest
        if device.state == tree.FREE and not device.taints
    )
    if free and len(rest) <= SMALL:
        names = ", ".join(f"{tables.clean(name) or '?'} x {count}" for name, count in sorted(free.items()))
        branch.add(text.Text(f"free: {names}", style="dim"))


def _add_left_out(branch: rich_tree.Tree, listed: tuple[tree.LeftOut, ...], *, every: bool) -> None:
    """Add the devices that a node leaves to other components, and the number of the rest."""
    shown = listed if every else listed[:LEFT_OUT]
    for left in shown:
        branch.add(_words("left out: ", left.name, ": ", left.reason))
    if more := len(listed) - len(shown):
        branch.add(text.Text(f"and {more} more are left out; --all shows them", style="dim"))


def _key(device: tree.Device) -> tuple[str, str]:
    return device.pool, device.name


def _device(branch: rich_tree.Tree, device: tree.Device, now: datetime.datetime, *, wide: bool) -> None:
    about = " ".join(part for part in (device.device_class, device.model, device.serial) if part)
    if wide:
        named = (("", device.host), ("port ", device.port), ("slot ", device.slot))
        location = ", ".join(f"{word}{part}" for word, part in named if part)
        about += "".join(f"  {name} {part}" for name, part in (("id", device.id), ("at", location)) if part)
    line = _line(device.name, device.state, device.since, now, about)
    for taint in device.taints:
        by = f" (rule {tables.clean(taint.rule)})" if taint.rule else ""
        line.append(f"  {tables.clean(taint.text)}{by}", style="yellow")
    node = branch.add(line)
    if device.waits_for:
        node.add(_words("" if device.state == "Failed" else "waits for ", device.waits_for, style="yellow"))
    below = node.add(_words("node ", device.node)) if device.node else node
    for claim in device.claims:
        leaf = below.add(_claim(claim, now))
        for pod in claim.pods:
            leaf.add(_words("pod ", pod))


def _claim(claim: tree.Claim, now: datetime.datetime) -> text.Text:
    return _line(f"claim {claim.namespace}/{claim.name}", claim.state, claim.since, now, "")


def colour(state: str) -> str:
    """Return the style of a state; yellow for a state that will change."""
    return _COLOURS.get(state, "yellow")


def _line(name: str, state: str, since: str, now: datetime.datetime, about: str) -> text.Text:
    line = text.Text(tables.clean(name), style="bold")
    line.append(f"  {tables.clean(state)}", style=colour(state))
    if since:
        line.append(f" {age(since, now)}", style="not bold dim")
    if about:
        line.append(f"  {tables.clean(about)}", style="not bold")
    return line


def _words(*parts: str, style: str = "") -> text.Text:
    return text.Text("".join(tables.clean(part) for part in parts), style=style)


def _counts(devices: Iterable[tree.Device]) -> str:
    counted = Counter(map(categories.judge, devices))
    total = sum(counted.values())
    listed = ", ".join(f"{counted[kind]} {word}" for kind, word in categories.WORDS.items() if counted[kind])
    return f"{total} device{'s' * (total != 1)}{': ' * bool(listed)}{listed}"


def age(since: str, now: datetime.datetime) -> str:
    """Return the age of a time in its largest unit; a question mark if it is not a time."""
    moment = meta.moment(since)
    if moment is None:
        return "?"
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
